# tests/fault/killed-run.sh BUILD_DIR: a test script that is killed leaves nothing behind for long: the
# next start of tests/run.sh finds and removes it.
# limit: 240
. "$(dirname "$0")/../lib.sh"

# A script that mounts, runs a process and a local machine, and then hangs.
cat >"$scratch/hangs.sh" <<EOF
. "$src/tests/lib.sh"
mount_local box && run "mkdir \$M/dev"
sleep 600 &
echo "\$scratch \$! \$M" >"$scratch/ready"
wait
EOF
cat >"$scratch/passes.sh" <<EOF
. "$src/tests/lib.sh"
t "passes"
finish
EOF
start_hanging() {
    rm -f "$scratch/ready"
    bash "$scratch/hangs.sh" "$build" >"$scratch/hangs.out" 2>&1 &
    hangs=$!
    until_true 60 test -s "$scratch/ready" && read -r left process mnt <"$scratch/ready"
}
nothing_left() {
    ok "! is_mounted '$mnt'"
    ok "[ ! -d '/proc/$process' ]"
    ok "[ ! -d '$left' ]"
    is "$(pids_of_scratch "$left")" ""
}

t "a script that hangs has a mount, a process and a directory"
start_hanging
ok is_mounted "$mnt"
ok test -d "/proc/$process"
ok test -d "$left"

t "the next start of tests/run.sh says what a killed one left"
kill -KILL "$hangs"
wait "$hangs" 2>/dev/null
limit=120
run env -u BOXDFS_TEST_SCRATCH BOXDFS_BUILD="$1" CI= bash "$src/tests/run.sh" "$scratch/passes.sh"
succeeds
prints "directory: $left"
prints "mount: $mnt"

t "and nothing of it is there any more"
nothing_left

t "a script that is asked to end cleans up itself"
start_hanging
kill -TERM "$hangs"
wait "$hangs" 2>/dev/null
nothing_left
finish
