# tests/bench/run.sh BUILD_DIR: prints what the main path costs, each as `name: value unit, goal`.
# With BOXDFS_FIGURES=N a figure N times worse than its goal fails.
# limit: 600
. "$(dirname "$0")/../lib.sh"

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

figure() { # figure NAME VALUE UNIT GOAL: more is better for MB/s, less for all else
    local factor=${BOXDFS_FIGURES:-0}

    t "$1: ${2:-nothing} $3, goal $4"
    ok test -n "$2"
    [ "$factor" != 0 ] || return 0
    case $3 in
    MB/s) below "$(echo "$4 / $factor" | bc -l)" "$2" ;;
    *) below "$2" $(($4 * factor)) ;;
    esac
}

# clock N COMMAND: the milliseconds of each of N runs in one shell; $i counts.
clock() {
    run "for ((i = 0; i < $1; i++)); do
            s=\${EPOCHREALTIME/.}; $2 || exit 1; echo \$(((\${EPOCHREALTIME/.} - s))) | sed 's/...\$/.&/'
        done"
    [ "$status" = 0 ] || complain "$2: $err"
    echo "$out"
}

limit=200
mount_local box -o script_max=512M
run "mkdir $M/warm && echo true >$M/warm/exec"
H=$M/warm/home/boxd

figure "create to first exec done" "$(clock 7 "mkdir $M/m\$i && echo true >$M/m\$i/exec" | median)" ms 100
figure "exec of true through the mount" "$(clock 41 "echo true >$M/warm/exec" | median)" ms 10
run "head -c 256M /dev/urandom >big"
figure "copy in of 256 MiB" "$(clock 3 "cp big $H/big\$i" |
    awk '{ print 268435.456 / $1 }' | median)" MB/s 200
figure "copy out of 256 MiB" "$(clock 3 "cp $H/big\$i back" |
    awk '{ print 268435.456 / $1 }' | median)" MB/s 200
figure "resident memory of boxdfs after it" "$(awk '/VmRSS/ { print int($2 / 1024) }' \
    "/proc/$(pids_of_program boxdfs)/status")" MiB 30
t "what came back is what went in"
run "cmp big back"
succeeds
finish
