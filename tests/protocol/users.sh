#!/bin/bash
# limit: 240
# boxd-local of ordinary users, with subordinate ids and without: the whole protocol, other users kept
# out, a killed server and a killed view of this computer's /usr. As root also the view alone.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../python.sh"
python_stubs

machine_processes() { pgrep -fc "sleep $1"; }
python_case() { run "$python $src/tests/protocol/service.py $home/s $*" && succeeds; }
again() { start_local --idle-exit 0 --log "$home/log" "$@"; }

life_tests() { # life_tests [OPTION...]: machines come back by themselves
    t "machines come back by themselves when the view of this computer's /usr was killed"
    again "$@"
    python_case leave_running
    kill -9 "$(pgrep -P "$server" -f '^boxd-view ')"
    ok until_true 5 eval '[ $(machine_processes 31337) = 0 ]'
    python_case survived
    ok grep -q "'boxd-view' ended .*machines that show this computer's /usr end too" "$home/log"
    stop_local
    is "$(mounts_below "$home/local")" ""
}

for user in $users; do
    [ "$user" != root ] || continue
    as "$user"
    suffix=$user

    t "a server lets only its user in"
    start_local --idle-exit 0 --start-delay 0.3 --fail-start broken
    is "$(stat -c '%a %U' "$home/s")" "600 $user"
    is "$(stat -c '%a %U' "$home/local")" "700 $user"
    # A sanitizer's own memory is no part of the promise.
    export MEMORY_FACTOR=1
    grep -q 'lib[atu]san' "/proc/$server/maps" && MEMORY_FACTOR=10
    run_python "$src/tests/protocol/service.py" "$home/s" all

    t "a killed server leaves no process of its machines"
    python_case leave_running
    ok "[ \$(machine_processes 31337) -gt 0 ]"
    kill -9 "$server"
    ok until_true 5 eval '[ $(machine_processes 31337) = 0 ]'
    is "$(mounts_below "$home/local")" ""
    again
    python_case survived
    stop_local
    run rm -rf "$home/local/vms"
    life_tests
done

if [ "$(id -u)" = 0 ]; then
    as root
    suffix="root, FUSE view"
    life_tests --force-view
fi
suffix=

t "no server reported a leak or an error of memory"
is "$(grep -aE 'Sanitizer|runtime error' "$scratch/server.out")" ""
finish
