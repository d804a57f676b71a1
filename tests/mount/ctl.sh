# tests/mount/ctl.sh BUILD_DIR: commands through `ctl`, of the account and of a machine.
# limit: 300
. "$(dirname "$0")/../lib.sh"

words_are_checked() {
    t "reading ctl before anything was written shows its words, as comments"
    run "grep -vc '^#' $M/ctl"
    is "$out" 0
    run "cat $M/ctl"
    prints "create|new" && prints "label.KEY=VALUE"

    t "a bad word fails its write, and the words name it and the nearest one"
    run "echo 'creat x' >$M/ctl"
    fails_with "Invalid argument"
    run "cat $M/ctl"
    is "$out" "unknown command 'creat': did you mean 'create'"

    t "a bad value makes nothing"
    run "echo 'create bad vcpu=many' >$M/ctl"
    fails_with "Invalid argument"
    run "cat $M/ctl; ls $M"
    is "$out" "option 'vcpu' needs a number from 1 to 1024, not 'many'
ctl"

    t "an unknown machine is ENOENT, with words"
    run "echo 'destroy nosuch' >$M/ctl"
    fails_with "No such file or directory"
    run "cat $M/ctl"
    is "$out" "machine 'nosuch' does not exist"

    t "words are read once"
    run "cat $M/ctl"
    prints "# the account"
}

commands_work() {
    t "create waits until the machine answers; list shows it with its labels"
    run "echo 'create one vcpu=2 label.team=a lease=1h' >$M/ctl && echo list team=a >$M/ctl && cat $M/ctl"
    prints "one" && prints "running" && prints "label.team=a"
    run "echo 'list team=b' >$M/ctl; exec 3<>$M/ctl; cat <&3 | head -1"
    prints "# the account"

    t "a name is chosen when none is given, and told"
    run "exec 3<>$M/ctl; echo create >&3; read -r name <&3; echo \"destroy \$name\" >&3 && ls $M"
    is "$out" "ctl
one"

    t "commands may be cut into writes anywhere"
    run "python3 -c 'import os,sys
f = os.open(sys.argv[1], os.O_WRONLY)
for c in b\"list\\nwho\" b\"ami\\n# a comment\\n\\nsuggest-name\":
    os.write(f, bytes([c]))
os.close(f)' $M/ctl && cat $M/ctl"
    succeeds
    prints "one  " && prints "user local-"
    is "$(wc -l <<<"$out")" 4

    t "the first failing command ends the write and the open"
    run "printf 'whoami\nbogus\ndestroy one\n' >$M/ctl"
    fails_with "Invalid argument"
    run "cat $M/ctl; ls $M"
    prints "user local-" && prints "unknown command 'bogus'" && prints "
one"

    t "pause, resume, stop, start and reboot do what they say"
    run "echo pause >$M/one/ctl && grep ^state $M/one/.boxd/status"
    is "$out" "state suspended"
    run "echo resume >$M/one/ctl && ls $M/one/etc/passwd"
    succeeds
    run "echo 'stop one' >$M/ctl && echo list >$M/ctl && cat $M/ctl"
    prints stopped
    run "echo start >$M/one/ctl && ls $M/one/etc/passwd"
    succeeds
    run "echo reboot >$M/one/ctl && ls $M/one/etc/passwd"
    succeeds
}

two_users_of_ctl() {
    local pid

    stop_mount
    start_local --state "$home/late-state" --start-delay 4
    mount_address late "$address"
    t "a waiting create disturbs no other user of ctl, and ends for Ctrl-C"
    run "setsid env --default-signal=INT bash -c \"echo 'create slow' >$M/ctl\" & pid=\$!
        until [ -d $M/slow ]; do sleep 0.05; done
        s=\${EPOCHREALTIME/.}; echo whoami >$M/ctl || exit 1; cat $M/ctl; ls $M >/dev/null
        kill -INT -- -\$pid; wait \$pid; echo status \$?; echo \$(((\${EPOCHREALTIME/.} - s) / 1000))"
    prints "user local-"
    below "$(grep -x '[0-9]*' <<<"$out")" 2500
    prints "status 130"
    stop_mount
    stop_local
}

stop_mount() {
    run "echo 'destroy one' >$M/ctl" 2>/dev/null
    run boxdfs umount "$M"
    succeeds
}

others_stay_out() {
    [ "$(id -u)" = 0 ] || return 0
    t "another user may not use ctl or .boxd, even with allow_other"
    mount_local open -o allow_other,default_permissions
    chmod 0711 "$scratch" "$home"
    run setpriv --reuid 65534 --regid 65534 --clear-groups bash -c "ls $M && { cat $M/ctl || cat $M/.boxd/status; }"
    fails_with "ermission denied"
    prints ctl
    run boxdfs umount "$M"
}

for who in $users; do
    as "$who"
    suffix=$who
    mount_local box
    words_are_checked
    commands_work
    two_users_of_ctl
done
as root
suffix=
others_stay_out
finish
