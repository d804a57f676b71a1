#!/bin/bash
# Things that happen at the same moment, and servers that stop, die and come back under a mount.
# limit: 240
. "$(dirname "$0")/../lib.sh"

start_local --idle-exit 0
M=$home/m
mkdir "$M"
mount_here() {
    boxdfs -f -o "address=$address" "$M" >>"$scratch/log" 2>&1 &
    pid=$!
    until_true 10 test -e "$M/ctl" || complain "no mount: $(tail -5 "$scratch/log")"
}
processes() { pids_of_program boxd-local | wc -l; }
mount_here
before=$(processes)

t "twenty that create and destroy one name end, and leave nothing"
run "for i in {1..20}; do (mkdir $M/race && ls $M/race; echo destroy >$M/race/ctl) 2>/dev/null & done; wait
    ls $M"
is "$out" ctl
ok until_true 10 eval "[ \$(processes) = $before ]"

t "a machine that is destroyed ends its commands, uploads and listings"
for delay in 0.05 0.2 0.5; do
    run "mkdir $M/g && ls $M/g >/dev/null; (echo 'sleep 60' >$M/g/exec) & (head -c 50000000 /dev/zero >$M/g/tmp/f) &
        (cat $M/g/usr/bin/* >/dev/null) & sleep $delay; echo destroy >$M/g/ctl; wait; ls $M"
    is "$out" ctl
    below "$took" 20000
done
ok until_true 10 eval "[ \$(processes) = $before ]"

run "mkdir $M/dev && ls $M/dev/home/boxd"
H=$M/dev/home/boxd
t "renaming and removing a file that others write: all end, the name is free afterwards"
run "for i in {1..20}; do (head -c 1000000 /dev/zero >$H/f) 2>/dev/null & (mv $H/f $H/g; rm -f $H/g; cat $H/f) >/dev/null 2>&1 & done; wait
    rm -f $H/f $H/g; ls -A $H | grep -v '^\\.'; echo last >$H/f && cat $H/f"
is "$out" last

t "a working directory that a script removes can be left and made again"
run "mkdir $H/sub && cd $H/sub && echo 'rm -rf ~/sub' >$M/dev/exec; touch here; cd $H; mkdir sub && ls sub"
is "$status" 0

t "umount -l with an open file: what was written before and after arrives, and the process ends"
run "exec 7>$H/open; echo one >&7; umount -l $M; echo two >&7; exec 7>&-"
succeeds
ok until_true 10 eval "! kill -0 $pid 2>/dev/null"
mount_here
run "cat $H/open"
is "$out" "one
two"

t "a stopped server: the root still answers, and all goes on when it continues"
kill -STOP "$server"
run "timeout -s INT 1 stat $H/open; ls $M"
is "$out" "ctl
dev"
below "$took" 4000
kill -CONT "$server"
run "cat $H/open"
succeeds

t "a killed server fails what is under way within seconds and leaves no process"
run "(head -c 80000000 /dev/zero >$H/big) & (echo 'sleep 30' >$M/dev/exec) & (exec 3<>$M/dev/exec; echo yes >&3; cat <&3 | wc -c) &
    sleep 1; kill -9 $server; wait; ls $H"
fails_with "No route to host"
below "$took" 10000
ok until_true 5 eval "[ \$(processes) = 0 ]"

t "the next call after the server's return works; a machine that ran starts by itself"
start_local --idle-exit 0
run "ls $M && cat $H/open && echo true >$M/dev/exec"
succeeds

t "a machine that another mount destroyed is gone here after the first access"
run "mkdir $home/m2 && boxdfs -o address=$address $home/m2 && mkdir $home/m2/two && sleep 5.1; ls $M/two >/dev/null && echo destroy >$home/m2/two/ctl; ls $M/two/home; sleep 0.3; ls $M; boxdfs umount $home/m2"
is "$out" "ctl
dev"

t "one mount inside another"
run "mkdir $H/in && boxdfs -o address=$address $H/in && cat $H/in/dev/home/boxd/open && boxdfs umount $H/in"
is "$out" "one
two"

t "SIGTERM with everything under way ends the process within seconds, and nothing is leaked"
bash -c "(echo 'sleep 30' >$M/dev/exec) & (head -c 90000000 /dev/zero >$H/big) & (exec 3<>$M/dev/exec; echo 'cat /dev/zero' >&3; cat <&3 >/dev/null) &
    for i in {1..30}; do (ls $M/dev/usr/bin) & done; wait" >/dev/null 2>&1 &
sleep 0.7
kill -TERM "$pid"
ok until_true 10 eval "! kill -0 $pid 2>/dev/null"
wait "$pid"
is "$?" 0
ok "! is_mounted $M"
# libfuse itself may say that the kernel ended the connection under its read.
is "$(grep -v '^boxd-local: \|^fuse: reading device' "$scratch/log")" ""
finish
