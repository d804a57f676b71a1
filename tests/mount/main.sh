# tests/mount/main.sh BUILD_DIR: the main path, as root and as ordinary users: mount, make a machine,
# files in and out, run scripts, interrupt them, destroy, unmount.
# limit: 600
. "$(dirname "$0")/../lib.sh"
tools=$src/tests/mount

machine_appears() {
    t "boxdfs --local mounts, and mkdir makes a machine"
    mount_local box
    run "mkdir $M/dev"
    succeeds
    D=$M/dev
    H=$D/home/boxd

    t "the mount says what it is, and is nosuid and nodev"
    run "grep ' $M ' /proc/self/mountinfo"
    prints fuse.boxdfs && prints nosuid && prints nodev

    t "an ordinary tree of a Unix machine is below it"
    run "ls $D; stat -c %F $D/etc $H"
    succeeds
    prints home && prints directory

    t "an unknown machine does not exist"
    run "ls $M/nosuch"
    fails_with "No such file or directory"
}

files_go_in_and_out() {
    t "200 files of awkward names come back as they went in"
    run "python3 $tools/tree.py make tree && cp -r --preserve=mode tree $H/tree"
    succeeds
    run "cp -r --preserve=mode $H/tree back && python3 $tools/tree.py compare tree back"
    succeeds
    t "and the mount shows them the same"
    run "python3 $tools/tree.py compare tree $H/tree"
    succeeds

    t "an empty, a 1-byte and a 50 MiB random file come back as they went in"
    run ": >empty; printf x >one; head -c 50M /dev/urandom >big
        for f in empty one big; do cp \$f $H/ && cp $H/\$f \$f.back && cmp \$f \$f.back || exit 1; done"
    succeeds
    run "stat -c %s $H/empty $H/one $H/big"
    is "$out" "0
1
52428800"

    t "a script sees the same bytes"
    run "echo 'sha256sum <~/big' >$D/exec && sha256sum <big && cat $D/exec"
    succeeds
    is "$(uniq <<<"$out" | wc -l)" 1

    t "what a script makes, changes and removes is seen at once"
    run "echo 'echo 1 >~/seen; rm ~/one; mkdir ~/made' >$D/exec
        cat $H/seen; ls -d $H/made; test ! -e $H/one"
    succeeds
    prints 1
    run "echo 'echo 22 >~/seen' >$D/exec; cat $H/seen"
    is "$out" 22

    t "append, truncate, chmod, times, rename, links and removal work"
    run "cd $H && echo a >f && echo b >>f && truncate -s 3 f && chmod 751 f && touch -d @1000000000 f &&
        stat -c '%s %a %Y' f && mv f g && ln -s g l && readlink l && cat l && rm g l && ls -A made &&
        rmdir made && ls"
    succeeds
    prints "3 751 1000000000"
    prints "g
a"
    t "the file system under the machine has a size"
    run "df --output=size,fstype $D"
    succeeds
}

scripts_run() {
    local shell

    for shell in bash dash "busybox sh"; do
        t "a good script succeeds from $shell"
        run "$shell -c 'echo \"echo hello\" >$D/exec; echo \$?'"
        is "$out" 0
        t "a failing script fails its write from $shell"
        run "$shell -c 'echo \"exit 3\" >$D/exec'"
        fails_with "rror"
        ok "[[ \$err =~ (Input/output|I/O).error ]]"
        ok "[ $status = 1 ] || [ $status = 2 ]"
        run "cat $D/.boxd/last/exit"
        is "$out" "exit 3"
    done

    t "a script that comes line by line is one script"
    run "printf 'if true\nthen\n  echo yes\nfi\ncat <<X\nthis\nthat\nX\necho \"over\ntwo lines\"\n' >$D/exec"
    succeeds
    run "cat $D/exec"
    is "$out" "yes
this
that
over
two lines"

    t "variables and cd last from one line to the next"
    run "printf 'x=5\ncd /usr\necho \$x \$PWD\n' >$D/exec; cat $D/exec"
    is "$out" "5 /usr"

    t "one open for both streams what the script prints"
    run "exec 3<>$D/exec; echo 'echo one; sleep 0.2; echo two >&2' >&3; cat <&3"
    is "$out" "one
two"

    t "scripts start in the user's home, as the user"
    run "echo 'pwd; id -un; sudo -n id -un' >$D/exec; cat $D/exec"
    is "$out" "/home/boxd
boxd
root"

    t "reading exec never runs anything"
    run "cat $D/exec; cat $D/.boxd/last/script"
    prints "sudo -n id -un"
}

# Whether processes with such an argument run in the machine.
in_machine="grep -qsz '^3[0-9][0-9][0-9]\$' /proc/[0-9]*/cmdline"
not_in_machine="if $in_machine; then exit 1; fi" # sh -e does not mind a failing '! command'

scripts_end() {
    local pid

    t "Ctrl-C ends a script, and its children, within a second"
    run "python3 $tools/typed.py \"echo 'sleep 3001 & sleep 3002' >$D/exec\" \"echo \\\"$in_machine\\\" >$D/exec\""
    succeeds
    below "${out:-99}" 1
    run "echo \"$not_in_machine\" >$D/exec"
    succeeds

    for signal in INT TERM HUP KILL; do
        t "SIG$signal ends a script and its children, also in sessions of their own"
        # what a shell starts in the background ignores SIGINT, unless somebody resets it
        run "env --default-signal=INT setsid bash -c \"echo 'sleep 3003 & setsid sleep 3005 & sleep 3004' >$D/exec\" & pid=\$!
            until echo \"$in_machine\" >$D/exec; do sleep 0.05; done 2>/dev/null
            kill -$signal \$pid; wait \$pid
            for i in {1..50}; do echo \"$not_in_machine\" >$D/exec && exit 0; sleep 0.1; done 2>/dev/null
            exit 1"
        succeeds
    done

    t "a background job that ends meanwhile does not end it"
    run "sleep 0.3 & echo 'sleep 1; echo done' >$D/exec; echo \$?; cat $D/exec"
    is "$out" "0
done"

    t "a second exec of the machine runs while the first one sleeps"
    run "echo 'sleep 4' >$D/exec & s=\${EPOCHREALTIME/.}; sleep 0.3; echo true >$D/exec || exit 1
        echo \$(((\${EPOCHREALTIME/.} - s) / 1000)); wait"
    succeeds
    below "${out:-9999}" 2500
}

root_stays_quick() {
    t "ls, stat and mkdir at the root are quick while a machine's script runs"
    run "echo 'sleep 3' >$D/exec & sleep 0.2
        s=\${EPOCHREALTIME/.}; ls $M >/dev/null; stat $M $D >/dev/null; mkdir $M/dev2; e=\${EPOCHREALTIME/.}
        kill -INT \$!; wait; echo \$(((e - s) / 1000))"
    below "${out:-9999}" 1500
}

machine_goes() {
    t "destroy makes the machine vanish"
    run "echo destroy >$D/ctl; echo 'destroy dev2' >$M/ctl; ls $M"
    succeeds
    is "$out" ctl

    t "boxdfs umount unmounts, and its process ends"
    run boxdfs umount "$M"
    succeeds
    ok "! is_mounted $M"
    ok until_true 10 no_mount_process
}
no_mount_process() { [ -z "$(pids_of_program boxdfs)" ]; }

quick_while_starting() {
    end_processes $(pids_of_program boxd-local) # of --local: one server for one state directory
    start_local --start-delay 3
    mount_address late "$address"

    t "mkdir, ls and stat at the root are quick while a machine starts slowly"
    run "mkdir $M/slow"
    succeeds
    below "$took" 500
    run "ls $M/slow/etc >waited & sleep 0.3; s=\${EPOCHREALTIME/.}; ls $M >/dev/null; stat $M/slow >/dev/null
        mkdir $M/other; echo \$(((\${EPOCHREALTIME/.} - s) / 1000)); wait; grep -cx passwd waited"
    succeeds
    below "${out%%$'\n'*}" 1500
    t "and what waits inside goes on when it has started"
    prints "
1"
    run boxdfs umount "$M"
    stop_local
}

for who in $users; do
    as "$who"
    suffix=$who
    machine_appears
    files_go_in_and_out
    scripts_run
    scripts_end
    root_stays_quick
    machine_goes
    quick_while_starting
done
finish
