# tests/host.sh: what the tests change on the host itself, and how it is put back: users, the mode of
# /dev/fuse, and whatever a killed test left. Sourced by tests/lib.sh and tests/run.sh. Everything
# here may be called twice, and ends processes by id only.

host_state=/run/boxdfs-test # holders/PID: who uses the users and the mode; fuse-mode: the old mode
test_users="boxdtest boxdtest1"

# pid_alive PID START: whether the process that started at START still lives (ids are used again).
pid_start() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
pid_alive() { [ -n "$1" ] && [ "$(pid_start "$1")" = "$2" ]; }

host_locked() { # host_locked FUNCTION: alone on this computer
    mkdir -p "$host_state/holders"
    (flock -w 60 9 && "$1") 9>"$host_state/lock"
}

# Opens /dev/fuse for ordinary users and makes the users, until the last holder lets go. Root only.
host_hold() {
    [ "$(id -u)" = 0 ] || return 0
    host_locked host_prepare
}
host_release() {
    [ "$(id -u)" = 0 ] && [ -d "$host_state" ] || return 0
    host_locked host_restore
}

host_prepare() {
    pid_start $$ >"$host_state/holders/$$"
    [ -e /dev/fuse ] || modprobe fuse 2>/dev/null
    if [ -e /dev/fuse ] && [ ! -e "$host_state/fuse-mode" ]; then
        stat -c %a /dev/fuse >"$host_state/fuse-mode"
        chmod 0666 /dev/fuse
    fi
    id boxdtest >/dev/null 2>&1 || useradd -M -d /nonexistent -s /bin/bash boxdtest
    id boxdtest1 >/dev/null 2>&1 ||
        useradd -M -d /nonexistent -s /bin/bash -K SUB_UID_COUNT=0 -K SUB_GID_COUNT=0 boxdtest1
}

host_restore() {
    local f user

    rm -f "$host_state/holders/$$"
    for f in "$host_state"/holders/*; do
        [ -e "$f" ] || continue
        if pid_alive "${f##*/}" "$(cat "$f")"; then return 0; fi
        rm -f "$f"
    done
    if [ -e "$host_state/fuse-mode" ]; then
        chmod "$(cat "$host_state/fuse-mode")" /dev/fuse
    fi
    for user in $test_users; do
        id "$user" >/dev/null 2>&1 || continue
        end_processes $(pids_of_user "$user")
        userdel "$user" 2>/dev/null
    done
    rm -rf "$host_state"
}

pids_of_user() { ps -o pid= -U "$1" 2>/dev/null; }

# Processes that a script started: they carry its scratch directory in their environment.
pids_of_scratch() {
    local p

    for p in /proc/[0-9]*; do
        [ "${p#/proc/}" != $$ ] &&
            grep -qszF "BOXDFS_TEST_SCRATCH=$1" "$p/environ" 2>/dev/null && echo "${p#/proc/}"
    done
}

# Processes that run a program of this build, or of the copy that ordinary users can reach.
pids_of_build() {
    local p exe

    for p in /proc/[0-9]*; do
        exe=$(readlink "$p/exe" 2>/dev/null) || continue
        case $exe in "$1"/fs/* | "$1"/core/* | "$1"/tests/*) echo "${p#/proc/}" ;; esac
    done
}

end_processes() { # end_processes PID...: TERM, and KILL for who is there 2 s later
    local p i alive

    [ $# -gt 0 ] || return 0
    kill -TERM "$@" 2>/dev/null
    for i in $(seq 40); do
        alive=
        for p in "$@"; do [ -e "/proc/$p" ] && alive="$alive $p"; done
        [ -n "$alive" ] || return 0
        sleep 0.05
    done
    kill -KILL $alive 2>/dev/null
    sleep 0.1
}

mounts_below() { # mount points below a directory, the innermost first
    awk -v d="$1/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
        while read -r m; do printf '%b\n' "${m//\\/\\0}"; done
}

unmount_below() {
    mounts_below "$1" | while IFS= read -r m; do
        fusermount3 -u -z "$m" 2>/dev/null || umount -l "$m" 2>/dev/null
    done
}

# A script's directory with everything in it.
remove_scratch() {
    unmount_below "$1"
    end_processes $(pids_of_scratch "$1")
    unmount_below "$1"
    rm -rf --one-file-system "$1" 2>/dev/null && return 0
    # Files of subordinate ids, made by an ordinary user's machines.
    unshare --map-root-user --map-auto rm -rf --one-file-system "$1" 2>/dev/null ||
        unshare --map-root-user rm -rf --one-file-system "$1"
}

# Directories of scripts that are dead.
stale_scratches() {
    local d

    for d in /tmp/boxdfs-test.*; do
        [ -d "$d" ] && [ -r "$d/.owner" ] || continue
        pid_alive $(cat "$d/.owner") || echo "$d"
    done
}

# Groups of machines are called boxd-local-PID; these are of servers that are dead.
dead_groups() {
    find /sys/fs/cgroup -type d -name 'boxd-local-*' 2>/dev/null | while read -r g; do
        [ -d "/proc/${g##*-}" ] || echo "$g"
    done
}
remove_group() {
    find "$1" -name freezer.state -exec sh -c 'echo THAWED >"$1"' _ {} \; 2>/dev/null
    end_processes $(find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null | grep -vx 0)
    find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null
}

# Processes in a network namespace that is not ours and that were not there at the start: machines
# without a server. Only where nothing else makes such namespaces.
pids_of_namespaces() {
    local p mine ns

    mine=$(readlink /proc/self/ns/net)
    for p in /proc/[0-9]*; do
        ns=$(readlink "$p/ns/net" 2>/dev/null) && [ "$ns" != "$mine" ] && echo "${p#/proc/}"
    done
}

# leftovers BUILD: one line for everything that tests left, and cleans it.
leftovers() {
    local d p g

    for d in $(stale_scratches); do
        mounts_below "$d" | sed 's/^/mount: /'
        echo "directory: $d"
        remove_scratch "$d"
    done
    for p in $(pids_of_build "$1"); do
        echo "process $p: $(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null)"
        end_processes "$p"
    done
    for g in $(dead_groups); do
        echo "group: $g"
        remove_group "$g"
    done
    if [ "$(id -u)" = 0 ] && [ -d "$host_state" ]; then
        host_release
        [ -d "$host_state" ] || echo "users and the mode of /dev/fuse, held by a dead test"
    fi
}
