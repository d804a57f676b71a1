#!/bin/bash
# A machine whose programs lie: its owner is root in it, and replaces what boxdfs uses. The mount must
# stay, every operation end, and the other machine not notice.
# limit: 240
. "$(dirname "$0")/../lib.sh"

start_local --idle-exit 0
M=$home/m
mkdir "$M"
boxdfs -f -o "op_timeout=3,address=$address" "$M" >"$scratch/log" 2>&1 &
pid=$!
ok until_true 10 test -e "$M/ctl"
run "mkdir $M/good && echo fine >$M/good/home/boxd/f"
succeeds
before=$(pids_of_program boxd-local | wc -l)

# lie PROGRAM SCRIPT: the machine `bad`, new, with this for a program of its /usr/bin.
lie() {
    run "mkdir $M/bad && echo x >$M/bad/home/boxd/f && ls $M/bad/home/boxd >/dev/null"
    succeeds
    printf '#!/bin/bash\n%s\n' "$2" >"$scratch/lie"
    run "cp $scratch/lie $M/bad/tmp/lie && chmod 755 $M/bad/tmp/lie &&
        echo 'for p in $1; do sudo -n mv /usr/bin/\$p /usr/bin/\$p.real; sudo -n cp /tmp/lie /usr/bin/\$p; done' >$M/bad/exec"
    succeeds
}
# Every operation on it ends, without a look at how; then it goes, and the good one is as it was.
survive() {
    local failures=0 line

    for line in "stat $M/bad/home/boxd/f" "cat $M/bad/home/boxd/f" "ls -l $M/bad/home/boxd" "echo y >$M/bad/home/boxd/f" \
        "mkdir $M/bad/tmp/d" "mv $M/bad/tmp/lie $M/bad/tmp/l2" "df $M/bad/tmp" "rm $M/bad/tmp/l2" "timeout -s INT 3 bash -c 'echo id >$M/bad/exec'"; do
        limit=20
        run "$line"
        limit=60
        ok "[ $status != 124 -o \"${line::7}\" = timeout ]"
        below "$took" 15000
        failures=$((failures + (status != 0)))
    done
    ok "[ $failures -gt 0 ]" # or it did not lie at all
    run "cat $M/good/home/boxd/f; echo true >$M/good/exec"
    is "$out" fine
    run "echo destroy >$M/bad/ctl"
    succeeds
    ok until_true 10 eval "[ \$(pids_of_program boxd-local | wc -l) -le $before ]"
}

t "a stat that prints for ever"
lie stat 'exec yes'
survive

t "a stat that says nothing, and one that kills its parent"
lie stat 'exit 0'
survive
lie stat 'kill -9 $PPID'
survive

t "a cat that never ends, and prints what it likes"
lie cat 'while :; do echo 1 2 3; done'
survive

t "programs that hang"
lie "stat cat" 'exec sleep 3600'
survive

t "absurd numbers for attributes"
lie stat 'for n in 99999999999999999999 -1 18446744073709551615; do printf "%s " $n $n $n "|" $n "|"; echo; done'
survive

t "a shell that closes its outputs at once but goes on"
run "mkdir $M/bad && ls $M/bad/home >/dev/null; echo 'exec >&- 2>&-; sleep 3600' >$M/bad/exec & sleep 1; kill \$!; wait; echo destroy >$M/bad/ctl"
succeeds
below "$took" 10000

t "a bounded fork bomb ends with its machine"
run "mkdir $M/bad && ls $M/bad/home >/dev/null; echo 'for i in 1 2 3 4 5 6 7; do (for j in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 3600 & done) & done; wait' >$M/bad/exec & sleep 1; kill \$!; wait
    cat $M/good/home/boxd/f; echo destroy >$M/bad/ctl"
is "$out" fine
ok until_true 10 eval "[ \$(pids_of_program boxd-local | wc -l) -le $before ]"

t "a file that changes while it is read, a directory that changes while it is listed"
run "mkdir $M/bad && ls $M/bad/home >/dev/null
    echo 'timeout 3 sh -c \"while :; do head -c 3000000 /dev/zero >f; : >f; mkdir -p d; touch d/1 d/2; rm -rf d; done\"' >$M/bad/exec &
    for i in {1..20}; do cat $M/bad/home/boxd/f; ls $M/bad/home/boxd/d; done >/dev/null 2>&1; wait; echo destroy >$M/bad/ctl"
succeeds

t "nothing is left, and the process ends cleanly"
kill -TERM "$pid"
wait "$pid"
is "$?" 0
is "$(grep -v '^fuse: reading device' "$scratch/log")" ""
finish
