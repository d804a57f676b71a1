#!/bin/bash
# boxd-local driven by grpcio: statuses, validation, streams, cancelling, limits, its own life.
# limit: 240
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../python.sh"
python_stubs

machine_processes() { pgrep -f "sleep $1" | wc -l; }
# The user's own server, once more, after the last one ended or was killed.
again() { start_local --idle-exit 0 "$@"; }
python_case() { run "$python $src/tests/protocol/service.py $home/s $*" && succeeds; }

t "a server on a unix socket lets only its user in"
start_local --idle-exit 0 --start-delay 0.3 --fail-start broken
is "$(stat -c %a "$home/s")" 600
is "$(stat -c %a "$home/local")" 700

# A sanitizer's own memory is no part of the promise.
export MEMORY_FACTOR=1
grep -q 'lib[atu]san' "/proc/$server/maps" && MEMORY_FACTOR=10
run_python "$src/tests/protocol/service.py" "$home/s" all

t "the server stays below 20 MiB with ten machines"
python_case ten
below "$(awk '/VmRSS/ { print $2 }' "/proc/$server/status")" $((20480 * MEMORY_FACTOR))

t "a second server for the same state says who runs and ends with 1"
run boxd-local --socket "$home/other" --state "$home/local"
is "$status" 1
fails_with "is in use by boxd-local, pid $server"
ok test ! -e "$home/other"

t "a second server for the same socket is refused"
run boxd-local --socket "$home/s" --state "$home/local2"
is "$status" 1
fails_with "in use by another server"

t "a killed server leaves no process of its machines"
python_case leave_running
ok "[ \$(machine_processes 31337) -gt 0 ]"
kill -9 "$server"
ok until_true 5 eval '[ $(machine_processes 31337) = 0 ]'
is "$(mounts_below "$home/local")" ""

t "machines, labels and the stopped state survive a kill; one that ran starts when needed"
again
python_case survived

t "a damaged state file is set aside, the other machines are there"
stop_local
printf '{' >"$home/local/vms/vm-0000.json"
again --log "$home/log"
python_case survived
ok test -e "$home/local/vms/vm-0000.json.damaged"
ok grep -q "vm-0000.json' is damaged" "$home/log"

t "SIGTERM ends the server and all its machines, and removes the socket"
stop_local
is "$(pids_of_program boxd-local)" ""
is "$(machine_processes 31337)" 0
ok test ! -e "$home/s"

t "the server ends by itself when nobody needs it"
start_local --idle-exit 1
ok until_true 6 test ! -e "$home/s"
is "$(pids_of_program boxd-local)" ""

t "TCP is loopback only unless told otherwise"
run boxd-local --socket "$home/s" --state "$home/local" --listen 0.0.0.0:0
is "$status" 1
fails_with "is not loopback"

t "over TCP nobody without a token gets an answer, and exchanges are limited"
again --listen 127.0.0.1:0
KEY=$(cat "$home/local/key") run "$python $src/tests/protocol/service.py $(grep http "$scratch/ready") tcp"
succeeds
stop_local

t "in the background it returns when the socket answers"
run boxd-local --background --idle-exit 1 --socket "$home/s" --state "$home/local"
succeeds
ok test -S "$home/s"
run boxd-local --background --socket "$home/s" --state "$home/local"
fails_with "is in use by boxd-local"
is "$status" 1
ok until_true 6 test ! -e "$home/s"

t "wrong options are refused with the cure"
run boxd-local --nonsense
fails_with "see --help"
run boxd-local --idle-exit soon
fails_with "'--idle-exit' has no valid time 'soon'"
run boxd-local extra
fails_with "argument 'extra' is not expected"
run boxd-local --help
succeeds
prints "usage: boxd-local"
run boxd-local --socket "$home/$(printf %0200d 0)" --state "$home/local"
fails_with "too long"

t "no server reported a leak or an error of memory"
is "$(grep -aE 'Sanitizer|runtime error' "$scratch/server.out")" ""
finish
