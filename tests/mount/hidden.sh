# tests/mount/hidden.sh BUILD_DIR: a copy of the mount in a mount namespace that somebody else made does
# not keep boxdfs alive.
. "$(dirname "$0")/../lib.sh"

mount_local box
run "mkdir $M/dev && echo true >$M/dev/exec"
t "boxdfs umount ends the process although another mount namespace has a copy"
if [ "$who" = root ]; then
    unshare --mount --propagation private sleep 60 &
    until_true 5 grep -q sleep "/proc/$!/cmdline"
    run boxdfs umount "$M"
    succeeds
    below "$took" 5000
    is "$(pids_of_program boxdfs)" ""
else
    skip "only root may make a mount namespace here"
fi
finish
