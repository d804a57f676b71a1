# tests/mount/silent.sh BUILD_DIR: a service that stops answering costs nobody more than op_timeout,
# and nobody who gives up anything; when it answers again all goes on.
. "$(dirname "$0")/../lib.sh"

start_local
mount_address far "$address" -o op_timeout=2
D=$M/dev
run "mkdir $D && ls $D/home/boxd && echo kept >$D/home/boxd/f"
succeeds
kill -STOP "$server"

t "a file operation fails when op_timeout has passed, and says why"
run "cat $D/home/boxd/f"
fails_with "Connection "
ok "[[ \$err = *'timed out'* || \$err = *'reset by peer'* ]]" # the transport notices after 3 s
below "$took" 8000 # the kernel looks a name up again when a look-up failed
run "cat $D/.boxd/errors"
prints "did not answer within 2 s"

t "so do changes"
run "mkdir $D/home/boxd/d"
fails_with "Connection "
below "$took" 8000 # the kernel looks a name up again when a look-up failed

t "who gives up is free at once"
for signal in INT KILL; do
    run "env --default-signal=INT ls $D/home/boxd & sleep 0.5; kill -$signal \$!; s=\${EPOCHREALTIME/.}; wait \$!
        echo \$(((\${EPOCHREALTIME/.} - s) / 1000))"
    below "${out:-9999}" 1000
    run "env --default-signal=INT bash -c 'echo true >$D/exec' & sleep 0.5; kill -$signal \$!; s=\${EPOCHREALTIME/.}; wait \$!
        echo \$(((\${EPOCHREALTIME/.} - s) / 1000))"
    below "${out:-9999}" 1000
done

t "the root answers all the while"
run "ls $D/home/boxd & s=\${EPOCHREALTIME/.}; ls $M && stat $D; echo \$(((\${EPOCHREALTIME/.} - s) / 1000)); wait"
prints dev
below "$(tail -n1 <<<"$out")" 3000

t "afterwards all works, and an exec that waited goes on"
run "(sleep 1; kill -CONT $server) & s=\${EPOCHREALTIME/.}; echo 'cat ~/f' >$D/exec && cat $D/exec"
succeeds
run "cat $D/home/boxd/f && echo more >>$D/home/boxd/f && mkdir $D/home/boxd/e && ls $D/home/boxd"
succeeds
prints kept
kill -CONT "$server"

run boxdfs umount "$M"
stop_local
finish
