# tests/fault/run-sh.sh BUILD_DIR: tests/run.sh counts what scripts say and notices the ones that say
# nothing, die, or hang.
# limit: 240
. "$(dirname "$0")/../lib.sh"
own_build=$1

# counts SCRIPT_TEXT: runs tests/run.sh with one script of this text.
counts() {
    printf '%s\n' "$1" >"$scratch/case.sh"
    run env -u BOXDFS_TEST_SCRATCH BOXDFS_BUILD="$own_build" CI="${2:-}" sh "$src/tests/run.sh" "$scratch/case.sh"
}
closes_with() { is "${out##*$'\n'} and $status" "$1"; }

# The check for leftovers is a test too.
t "what passes, fails and is skipped is counted, and a failure is exit status 1"
counts 'echo "ok 1 - a"; echo "not ok 2 - b"; echo "ok 3 - c # SKIP no d"; exit 1'
closes_with "2 passed, 1 failed, 1 skipped and 1"
prints "case.sh: b"
prints "case.sh: c: no d"

t "all well is exit status 0"
counts 'echo "ok 1 - a"'
closes_with "2 passed, 0 failed, 0 skipped and 0"

t "a script that prints no test fails"
counts 'true'
closes_with "1 passed, 1 failed, 0 skipped and 1"

t "a script that dies after a good test fails"
counts 'echo "ok 1 - a"; kill -SEGV $$'
closes_with "2 passed, 1 failed, 0 skipped and 1"

t "a script that hangs is ended with its children, and fails"
counts $'# limit: 1\necho "ok 1 - a"; sleep 500 & sleep 500'
closes_with "2 passed, 1 failed, 0 skipped and 1"
prints "did not end within its time limit"

t "a skip that is not on the list fails with CI=true"
counts 'echo "ok 1 - c # SKIP no d"' true
is "$status" 1
prints "not listed in tests/skips-allowed"

t "a false condition fails its test, and only that"
counts ". $src/tests/lib.sh; t a; is 1 2; t b; is 1 1; t c; run false; succeeds; t d; run true; fails_with x; finish"
closes_with "2 passed, 3 failed, 0 skipped and 1"

t "a script that stops before its end fails"
counts ". $src/tests/lib.sh; t a; is 1 1; exit 0"
closes_with "2 passed, 1 failed, 0 skipped and 1"
finish
