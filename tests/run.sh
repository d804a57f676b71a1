#!/bin/bash
# tests/run.sh [SUITE|SCRIPT]...: installs what the tests need, builds, and runs the suites: unit,
# protocol, interop, mount, fault, valgrind; `bench` and `soak` only by name. Ends with one line of
# counts, and with 1 when anything failed.
#
# Environment: BOXDFS_BUILD (build-test), BOXDFS_SETUP (options for meson), BOXDFS_TEST_VENV (where
# the Python packages go), CI=true (-Werror, and only the skips of tests/skips-allowed).
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # called as `sh tests/run.sh`
cd "$(dirname "$0")/.." || exit 1
. tests/host.sh

build=${BOXDFS_BUILD:-$PWD/build-test}
all_suites=(unit protocol interop mount fault valgrind)
passed=0 failed=0 skips=() failures=() running=

say() { echo "== $*"; }
stop() { echo "tests/run.sh: $*" >&2 && exit 1; }

install_packages() {
    sh install.sh --packages $(sed 's/#.*//' tests/packages) ||
        stop "cannot test without the packages named above"
}

# The Python packages that some suites drive the server with, once per build directory.
install_python() {
    local python=python3

    export BOXDFS_TEST_VENV=${BOXDFS_TEST_VENV:-$build/venv}
    grep -q BOXDFS_TEST_VENV "${scripts[@]}" || return 0
    [ -x /usr/bin/python3 ] && python=/usr/bin/python3
    cmp -s tests/requirements.txt "$BOXDFS_TEST_VENV/installed" && return
    say "installing the Python packages of tests/requirements.txt into $BOXDFS_TEST_VENV"
    rm -rf "$BOXDFS_TEST_VENV"
    "$python" -m venv "$BOXDFS_TEST_VENV" &&
        "$BOXDFS_TEST_VENV/bin/pip" install -q -r tests/requirements.txt &&
        cp tests/requirements.txt "$BOXDFS_TEST_VENV/installed" ||
        stop "cannot install the Python packages of tests/requirements.txt"
}

build_all() {
    local werror=false

    [ "${CI:-}" = true ] && werror=true
    say "building in $build"
    [ -e "$build/build.ninja" ] ||
        meson setup "$build" -Dwerror=$werror ${BOXDFS_SETUP:-} >"$build.log" 2>&1 ||
        { cat "$build.log" && stop "meson setup failed"; }
    ninja -C "$build" >"$build.log" 2>&1 || { tail -50 "$build.log" && stop "the build failed"; }
    rm -f "$build.log"
}

# count SCRIPT STATUS SECONDS: reads a script's TAP lines from $log.
count() {
    local line good=0 bad=0 skip=0

    while IFS= read -r line; do
        case $line in
        "not ok "*) bad=$((bad + 1)) && failures+=("$1: ${line#not ok * - }") ;;
        "ok "*"# SKIP"*) skip=$((skip + 1)) && note_skip "$1: ${line#ok * - }" ;;
        "ok "*) good=$((good + 1)) ;;
        esac
    done <"$log"
    if [ $((good + bad + skip)) = 0 ]; then
        bad=1 && failures+=("$1: printed no test")
    elif [ "$2" = 124 ] || [ "$2" = 137 ]; then
        bad=$((bad + 1)) && failures+=("$1: did not end within its time limit")
    elif [ "$2" != 0 ] && [ $bad = 0 ]; then
        bad=1 && failures+=("$1: ended with exit status $2")
    fi
    passed=$((passed + good)) failed=$((failed + bad))
    echo "$1: $good passed, $bad failed, $skip skipped in $3 s" | sed 's/, 0 skipped//'
    case $1 in bench/* | *figures.sh) sed -n 's/^\(not \)*ok [0-9]* - /    /p' "$log" ;; esac
    [ $bad = 0 ] || grep -v '^ok ' "$log" | sed 's/^/    /' | tail -200
}

note_skip() {
    local what=${1%% # SKIP*}

    skips+=("${1/ # SKIP/:}")
    [ "${CI:-}" = true ] && ! grep -v '^#' tests/skips-allowed | grep -qxF "$what" || return 0
    failed=$((failed + 1)) && failures+=("$what: skipped, and not listed in tests/skips-allowed")
}

# A script may say `# limit: SECONDS`; without it 300.
run_script() {
    local limit start=$SECONDS status

    limit=$(sed -n 's/^# limit: \([0-9]*\)$/\1/p' "$1")
    timeout -k 10 "${limit:-300}" bash "$1" "$build" >"$log" 2>&1 </dev/null &
    running=$!
    wait "$running"
    status=$?
    running=
    count "${1#tests/}" "$status" $((SECONDS - start))
}

# Everything that ran is over: what is still there was left.
check_leftovers() {
    local left

    host_release
    left=$(leftovers "$build" && new_on_host)
    if [ -z "$left" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)) && failures+=("leftovers: nothing is left after the tests")
        echo "left after the tests, now removed:"
        echo "$left" | sed 's/^/    /'
    fi
}

# What differs from the start, where no other test run shares this computer.
host_facts() {
    stat -c 'mode of /dev/fuse: %a' /dev/fuse 2>/dev/null
    ls /run/netns 2>/dev/null | sed 's/^/network namespace: /'
    sed -n 's/^\(boxdtest[^:]*\):.*/user: \1/p' /etc/passwd
    [ "${CI:-}" != true ] || pids_of_namespaces | sed 's/^/process of a machine: /'
}
new_on_host() {
    [ -d "$host_state" ] || host_facts | grep -vxF "$facts"
    return 0
}

leave() {
    [ -z "$running" ] || { kill -TERM "$running" 2>/dev/null && wait "$running"; }
    rm -f "$log"
    leftovers "$build" >/dev/null
    host_release
}

case ${1:-} in
-h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 0 ;;
esac
scripts=()
for what in "${@:-${all_suites[@]}}"; do
    if [ -d "tests/$what" ]; then scripts+=(tests/"$what"/*.sh); else scripts+=("$what"); fi
    [ -f "${scripts[-1]}" ] || stop "no suite or script '$what' (suites: ${all_suites[*]} bench soak)"
done
install_packages
log=$(mktemp)
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir -p "$(dirname "$build")"
left=$(leftovers "$build")
facts=$(host_facts)
[ -z "$left" ] || { say "removed what an earlier, killed run left:" && echo "$left"; }
build_all
install_python
host_hold
for script in "${scripts[@]}"; do run_script "$script"; done
check_leftovers
if [ ${#skips[@]} -gt 0 ]; then say "skipped" && printf '%s\n' "${skips[@]}"; fi
if [ ${#failures[@]} -gt 0 ]; then say "failed" && printf '%s\n' "${failures[@]}"; fi
echo "$passed passed, $failed failed, ${#skips[@]} skipped"
[ "$failed" = 0 ]
