# tests/lib.sh: what every test script stands on. A script begins with
#     . "$(dirname "$0")/../lib.sh"        # its first argument is the build directory
# and ends with `finish`. A case says what it promises, does it, and looks:
#     t "a failing script fails its write"
#     run "echo 'exit 3' > $M/exec"
#     fails_with "Input/output error"
# `as USER` says who runs the commands from there on. Everything a script makes is below $scratch and
# goes when it ends, however it ends.
set -u

build=$(cd "${1:?usage: $0 BUILD_DIR}" && pwd)
src=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$src/tests/host.sh"

scratch=$(mktemp -d "/tmp/boxdfs-test.XXXXXX")
chmod 0755 "$scratch"
echo "$$ $(pid_start $$)" >"$scratch/.owner"
export BOXDFS_TEST_SCRATCH=$scratch
unset BOXD_API_KEY BOXD_TOKEN BOXD_BASE_URL BOXD_API_URL

# Ordinary users must be able to reach the programs.
reachable() {
    local d=$1
    while [ "$d" != / ]; do
        case $(stat -c %A "$d") in *x | *t) d=$(dirname "$d") ;; *) return 1 ;; esac
    done
}
if ! reachable "$build"; then
    mkdir "$scratch/build"
    (cd "$build" && find fs core -type f \( -perm -u+x -o -name '*.so*' \) ! -name '*.p' -print0 |
        xargs -0 cp --parents -P -t "$scratch/build")
    (cd "$build" && find core -type l -name '*.so*' -exec cp --parents -P -t "$scratch/build" {} +)
    build=$scratch/build
fi
export PATH="$build/fs:$build/core/local:$PATH"

# ---- results -------------------------------------------------------------------------------------
count=0 failed=0 name='' bad='' skipped='' who=root
[ "$(id -u)" = 0 ] || who=$(id -un)

flush() {
    [ -n "$name" ] || return 0
    count=$((count + 1))
    if [ -n "$skipped" ]; then
        echo "ok $count - $name # SKIP $skipped"
    elif [ -n "$bad" ]; then
        printf '%s' "$bad" | sed 's/^/# /'
        echo "not ok $count - $name"
        failed=$((failed + 1))
    else
        echo "ok $count - $name"
    fi
    name='' bad='' skipped=''
}
t() { flush && name="$*${suffix:+ ($suffix)}"; }
skip() { skipped=${*:-no reason given}; }
complain() { bad="$bad$*"$'\n'; }
finish() {
    flush
    echo "1..$count"
    finished=1
    exit $((failed > 0))
}

# ok COMMAND...: the command succeeds. One word is a line for the shell.
ok() {
    local text=$*
    [ $# -gt 1 ] || set -- eval "$1"
    "$@" || complain "line ${BASH_LINENO[0]}: not so: $text"
}
is() { # is GOT WANT
    [ "$1" = "$2" ] || complain "line ${BASH_LINENO[0]}: got '${1:0:2000}', want '${2:0:2000}'"
}
below() { # below NUMBER LIMIT
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }' ||
        complain "line ${BASH_LINENO[0]}: $1 is not below $2"
}

# ---- commands ------------------------------------------------------------------------------------
# run COMMAND...: leaves $out, $err, $status and $took (milliseconds). One word is a line for bash.
# It may last $limit seconds.
limit=60
run() {
    local start

    [ $# -gt 1 ] || set -- bash -c "$1"
    start=$(now_ms)
    as_user "$who" timeout -k 2 "$limit" "$@" >"$scratch/.out" 2>"$scratch/.err" </dev/null
    status=$?
    took=$(($(now_ms) - start))
    out=$(tr -d '\0' <"$scratch/.out") err=$(tr -d '\0' <"$scratch/.err")
    ran=$*
}
now_ms() { date +%s%3N; }
succeeds() {
    [ "$status" = 0 ] || complain "line ${BASH_LINENO[0]}: $ran: exit $status: $out $err"
}
fails_with() { # fails_with TEXT: the last command failed and said so on stderr
    [ "$status" != 0 ] || complain "line ${BASH_LINENO[0]}: $ran: succeeded, should fail: $1"
    case $err in *"$1"*) ;; *) complain "line ${BASH_LINENO[0]}: $ran: said '$err', not '$1'" ;; esac
}
prints() { # prints TEXT: its output holds this
    case $out in *"$1"*) ;; *) complain "line ${BASH_LINENO[0]}: $ran: printed '$out', not '$1'" ;; esac
}
until_true() { # until_true SECONDS COMMAND...
    local end=$(($(now_ms) + $1 * 1000))
    shift
    until "$@"; do
        [ "$(now_ms)" -lt "$end" ] || return 1
        sleep 0.02
    done
}

# ---- users ---------------------------------------------------------------------------------------
# The users a scenario runs as: root, one with subordinate ids, one without; or only oneself.
users=$who
if [ "$who" = root ]; then users="root $test_users"; fi

as() {
    who=$1
    home=$scratch/$who
    [ -d "$home" ] && return 0
    mkdir -p "$home/run" "$home/tmp"
    if [ "$who" != "$(id -un)" ]; then chown -R "$who:" "$home"; fi
    chmod 0700 "$home" "$home/run"
}
as_user() { # as_user USER COMMAND...: with a home and a runtime directory of its own
    local user=$1 h=$scratch/$1
    shift
    set -- env -C "$h" HOME="$h" XDG_RUNTIME_DIR="$h/run" TMPDIR="$h/tmp" BOXD_LOCAL_STATE="$h/local" \
        XDG_STATE_HOME="$h/state" USER="$user" LOGNAME="$user" LC_ALL=C.UTF-8 "$@"
    if [ "$user" != "$(id -un)" ]; then set -- setpriv --reuid "$user" --regid "$user" --init-groups "$@"; fi
    "$@"
}

# ---- mounts and servers --------------------------------------------------------------------------
# mount_local NAME [OPTION...]: boxdfs --local in the background at $M. Fails as boxdfs does.
mount_local() {
    M=$home/$1
    shift
    is_mounted "$M" || as_user "$who" mkdir -p "$M" # a dead mount would hang mkdir
    run boxdfs --local "$@" "$M"
    [ "$status" = 0 ] || { complain "boxdfs --local: exit $status: $err" && return 1; }
}
mount_address() { # mount_address NAME ADDRESS [OPTION...]
    M=$home/$1
    as_user "$who" mkdir -p "$M"
    run boxdfs -o "address=$2" "${@:3}" "$M"
    [ "$status" = 0 ] || { complain "boxdfs -o address=$2: exit $status: $err" && return 1; }
}
# Processes of this script that run this program of the build.
pids_of_program() {
    local p

    for p in $(pids_of_scratch "$scratch"); do
        case $(readlink "/proc/$p/exe") in "$build"/*/"$1") echo "$p" ;; esac
    done
}
is_mounted() { mounts_below "$(dirname "$1")" | grep -qxF "$1"; }
umount_all() { unmount_below "$scratch"; }

# start_local [OPTION...]: a server of one's own; $address is where it listens, $scratch/ready says
# all its addresses, $server is its pid.
start_local() {
    address=unix:$home/s
    rm -f "$scratch/ready"
    as_user "$who" boxd-local --socket "$home/s" --state "$home/local" --ready-fd 8 "$@" \
        >>"$scratch/server.out" 2>&1 </dev/null 8>"$scratch/ready" &
    until_true 20 test -s "$scratch/ready" || complain "boxd-local: $(tail -5 "$scratch/server.out")"
    server=$(cat "$home/local/lock")
}
stop_local() { end_processes "$server"; }

leave() {
    flush
    remove_scratch "$scratch"
    host_release
    [ -n "${finished:-}" ] || { echo "# $0 ended early" && exit 1; }
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

host_hold
as "$who"
