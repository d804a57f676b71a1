#!/bin/bash
# A service whose every answer lies: boxdfs must stay, answer, forget nothing and leak nothing.
# limit: 240
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../python.sh"
python_stubs

list() { echo "$1" >"$scratch/mode"; }
memory() { awk '/VmRSS/ { print $2 }' "/proc/$pid/status"; }
# soon COMMAND: it ends by itself, well or with an error, while the mount lives.
soon() {
    limit=20
    run "$1"
    limit=60
    ok "[ $status != 124 ]"
    ok test -e "$M/ctl"
}

list evils
"$python" "$src/tests/fault/hostile-server.py" "$scratch/s" "$scratch/mode" >"$scratch/ready" 2>"$scratch/server.err" &
server=$!
ok until_true 20 test -s "$scratch/ready"
M=$home/m
mkdir "$M"
boxdfs -f -o "op_timeout=2,address=unix:$scratch/s" "$M" >"$scratch/log" 2>&1 &
pid=$!
ok until_true 20 test -e "$M/ctl"
factor=1
grep -q 'lib[atu]san' "/proc/$pid/maps" && factor=8


t "an honest machine works beside the others"
run "cat $M/honest/file; ls $M/honest; readlink $M/honest/link"
is "$out" "helloctl
exec
file
file2
file"

t "whatever a machine answers, every operation ends and the mount lives"
for m in $(ls "$M"); do
    case $m in ctl | endless-e* | silent-e* | silent-all | million-list) continue ;; esac
    soon "cat $M/$m/file; ls $M/$m; readlink $M/$m/link; echo data >$M/$m/file; echo true >$M/$m/exec"
done

t "an answer to open, write or list that never ends, ends the operation at once"
for line in "cat $M/endless-header/file" "ls $M/endless-list"; do
    run "$line"
    ok "[ $status != 0 ]"
    below "$took" 5000
done
run "python3 -c 'import os; f = os.open(\"$M/endless-store/file\", os.O_WRONLY); os.write(f, b\"x\"); os.close(f)'"
fails_with "Input/output error"
below "$took" 5000

t "a script that prints for ever fills no memory, and ends with its caller"
run "timeout -s INT 2 bash -c 'echo yes >$M/endless-exec/exec'"
below "$took" 5000
below "$(memory)" $((102400 * factor))

t "names that a directory must not have fail its listing; . and .. are left out"
for m in slash-list nul-list empty-name long-name; do
    run "ls $M/$m"
    fails_with "Input/output error"
done
run "ls -a $M/dots-list"
is "$out" ".
..
...
ctl
exec
ok"

t "no link leads out of its machine"
run "readlink $M/up-link/link $M/dot-link/link"
is "$out" "$M/up-link/etc/passwd
$M/dot-link/etc/passwd"

t "machines of odd names show under their ids, those of odd ids not at all"
list names
run "echo refresh >$M/ctl && ls $M"
succeeds
ok "! grep -q / <<<\"$out\"" && prints odd0
list ids
run "echo refresh >$M/ctl && ls -A $M | tr '\\n' ' '"
is "$out" "ctl honest v11 v12 v13 v8 "

t "lists of twins, odd statuses, large texts and 50000 machines"
for l in twins statuses labels many swap none evils; do
    list $l
    soon "echo refresh >$M/ctl && ls $M | wc -l"
    succeeds
done
below "$(memory)" $((102400 * factor))

t "ids that the service makes up are refused"
for n in slash empty dots long; do
    run "mkdir $M/$n"
    fails_with "Input/output error"
done

t "no text of the service steers the terminal or makes lines of its own"
run "exec 3<>$M/ctl; echo whoami >&3; cat <&3; echo list >&3; cat <&3"
ok "! grep -q \$'\\e' <<<'$out'"
is "$(grep -c '^user\|^name' <<<"$out")" 2

t "a silent service delays look-ups once, not each"
list silent
sleep 5.2
run "for i in {1..6}; do stat $M/honest >/dev/null; done; boxdfs status $M"
succeeds
below "$took" 4000

t "SIGTERM ends it with everything in flight, and nothing is leaked"
for line in "cat $M/silent-cat/file" "ls $M/silent-list" "stat $M/silent-stat/file" \
    "echo x >$M/silent-store/file" "echo x >$M/silent-exec/exec" "mkdir $M/silent" "echo refresh >$M/ctl"; do
    bash -c "$line" >/dev/null 2>&1 &
done
sleep 0.5
kill -TERM "$pid"
ok until_true 10 test ! -e "$M/ctl"
wait "$pid"
is "$?" 0
is "$(cat "$scratch/log")" ""
ok kill -0 "$server"
finish
