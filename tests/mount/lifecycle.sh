# tests/mount/lifecycle.sh BUILD_DIR: how a mount begins, ends, dies and is found again.
# limit: 300
. "$(dirname "$0")/../lib.sh"

process_of() { sed -n 's/^pid //p' < <(as_user "$who" cat "$1/.boxd/status"); }
ended() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.Z' "/proc/$1/status"; }

begins() {
    t "the background process answers when boxdfs returns, and keeps no terminal"
    mount_local box
    run "ls $M"
    is "$out" ctl
    pid=$(process_of "$M")
    is "$(readlink "/proc/$pid/cwd" "/proc/$pid/fd/"{0,1,2} | sort -u)" "/
/dev/null"

    t "the kernel shows source, type and protections"
    run "findmnt -n -o SOURCE,FSTYPE,OPTIONS $M"
    prints "local" && prints "fuse.boxdfs" && prints "nosuid,nodev"

    t "its memory is in no core dump"
    is "$(stat -c %U "/proc/$pid/environ")" root
}

ends() {
    local signal

    for signal in TERM INT HUP; do
        t "SIG$signal unmounts and ends it, even while a file is open"
        is_mounted "$M" || mount_local box
        pid=$(process_of "$M")
        rm -f "$home/reader"
        as_user "$who" sh -c "exec <$M/.boxd/events && echo \$\$ >$home/reader && exec sleep 30" &
        ok until_true 10 test -s "$home/reader"
        kill -"$signal" "$pid"
        ok until_true 10 ended "$pid"
        kill "$(cat "$home/reader")"
        wait $! 2>/dev/null
        ok "! is_mounted $M"
    done

    t "umount(8) or fusermount3 ends it too"
    mount_local box
    pid=$(process_of "$M")
    if [ "$who" = root ]; then run umount "$M"; else run fusermount3 -u "$M"; fi
    succeeds
    ok until_true 10 ended "$pid"

    t "boxdfs umount refuses a busy mount and says who to ask; -f does not"
    mount_local box
    pid=$(process_of "$M")
    run "exec 7<$M/.boxd/events; boxdfs umount $M"
    fails_with "fuser -vm"
    run "exec 7<$M/.boxd/events; boxdfs umount -f $M"
    succeeds
    ok "! is_mounted $M"
    ok until_true 10 ended "$pid"

    t "a foreground mount ends with its signal and exit 0"
    run "boxdfs -f --local $M & pid=\$!; until [ -e $M/ctl ]; do sleep 0.05; done; kill -INT \$pid; wait \$pid"
    succeeds
    ok "! is_mounted $M"
}

dies() {
    t "after kill -9 status says so, and mounting again recovers"
    mount_local box
    pid=$(process_of "$M")
    kill -9 "$pid"
    ok until_true 10 ended "$pid"
    run "ls $M"
    fails_with "not connected"
    run boxdfs status "$M"
    fails_with "is dead"
    mount_local box
    run "ls $M"
    is "$out" ctl

    t "and boxdfs umount takes a dead mount away"
    pid=$(process_of "$M")
    kill -9 "$pid"
    ok until_true 10 ended "$pid"
    run boxdfs umount "$M"
    succeeds
    ok "! is_mounted $M"

    t "a mount whose process is stopped, not answering, is recovered too"
    mount_local box
    pid=$(process_of "$M")
    kill -STOP "$pid"
    mount_local box
    run "ls $M"
    is "$out" ctl
    kill -9 "$pid"
    run boxdfs umount "$M"
    succeeds
}

tells() {
    t "status shows machines of one mount and of all"
    mount_local box
    run "mkdir $M/dev && boxdfs status $M"
    prints "NAME" && prints "dev"
    run boxdfs status
    prints "$M" && prints "dev"
    run "boxdfs status --errors $M; mkdir $M/.x; boxdfs status --errors $M"
    prints "mkdir /.x EPERM"

    t "machines outlive the mount"
    run boxdfs umount "$M"
    mount_local box
    run "ls $M"
    is "$out" "ctl
dev"

    t "a server that starts with machines, so with a helper of its own, keeps nobody waiting"
    run boxdfs umount "$M"
    end_processes $(pids_of_program boxd-local)
    mount_local box
    ok below "$took" 5000
    run "ls $M/dev/home; echo destroy >$M/dev/ctl"
    is "$out" boxd
    run boxdfs umount "$M"
    run boxdfs status
    ok "! grep -qxF $M <<<'$out'"
}

for who in $users; do
    as "$who"
    suffix=$who
    begins
    ends
    dies
    tells
done
finish
