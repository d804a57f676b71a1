# tests/soak/mirror.sh BUILD_DIR: ten minutes of random file operations and machines that come and go:
# the same results as on a plain directory, and boxdfs does not grow.
# limit: 1200
. "$(dirname "$0")/../lib.sh"

seconds=${BOXDFS_SOAK_SECONDS:-600}
resident() { awk '/VmRSS/ { print $2 }' "/proc/$(pids_of_program boxdfs)/status"; }
if [ "$users" != "$who" ]; then as boxdtest; fi
limit=$((seconds + 120))
mount_local box
run "mkdir $M/dev"

t "random operations have the same results as on a plain directory"
run "mkdir warm $M/dev/home/boxd/{warm,mirror} plain &&
    python3 $src/tests/mount/mirror.py $M/dev/home/boxd/warm warm 1 500 60"
succeeds
before=$(resident)
run "python3 $src/tests/mount/mirror.py $M/dev/home/boxd/mirror plain $RANDOM 100000000 $((seconds / 2))"
succeeds

t "machines come and go"
run "for ((i = 0, end = SECONDS + $((seconds / 2)); SECONDS < end; i++)); do
    mkdir $M/m\$i && echo true >$M/m\$i/exec && echo destroy >$M/m\$i/ctl || exit 1; done; ls $M"
succeeds
is "$out" "ctl
dev"

t "boxdfs is not larger than in the beginning by more than 8 MiB"
below "$(resident)" $((before + 8192))
finish
