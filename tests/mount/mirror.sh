# tests/mount/mirror.sh BUILD_DIR: random file operations do on the mount what they do on a plain
# directory, errors included.
. "$(dirname "$0")/../lib.sh"

if [ "$users" != "$who" ]; then as boxdtest; fi # root passes every check of modes
mount_local box
run "mkdir $M/dev && mkdir $M/dev/home/boxd/mirror"
limit=120
for seed in 1 2 3; do
    t "operations with seed $seed have the same results as on a plain directory"
    run "mkdir -p plain$seed $M/dev/home/boxd/mirror/$seed &&
        python3 $src/tests/mount/mirror.py $M/dev/home/boxd/mirror/$seed plain$seed $seed 250 60"
    succeeds
done
finish
