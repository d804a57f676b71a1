# tests/mount/root.sh BUILD_DIR: the mount's own directory and `.boxd`: what is there, what is refused.
# limit: 300
. "$(dirname "$0")/../lib.sh"

a_directory_of_machines() {
    t "an empty mount shows ctl only, and .boxd is there without being listed"
    mount_local box
    run "ls -A $M; ls $M/.boxd"
    is "$out" "ctl
errors
events
status"

    t "mkdir makes a machine, whose directory belongs to the mounting user"
    run "mkdir $M/dev && ls -A $M && stat -c '%F %a %u' $M/dev"
    is "$out" "ctl
dev
directory 755 $(id -u "$who")"
    run "mkdir $M/dev"
    fails_with "File exists"

    t "names that cannot be a machine's are refused"
    run "mkdir $M/.Trash-1000"
    fails_with "Operation not permitted"
    run "mkdir '$M/A B'"
    fails_with "Invalid argument"
    run "cat $M/.boxd/errors"
    prints "mkdir /.Trash-1000 EPERM: a machine's name cannot start with '.'"
    prints "mkdir /A B EINVAL: "
}

nothing_else_can_be_there() {
    local command

    for command in "touch $M/x" "ln -s a $M/x" "mkfifo $M/x" "rm -f $M/ctl" "mv $M/dev $M/other" \
        "rmdir $M/dev" "chmod 700 $M" "chmod 644 $M/ctl" "mv $M/ctl $M/x" "ln $M/ctl $M/x"; do
        t "'${command//$M/MNT}' is refused"
        run "$command"
        fails_with "Operation not permitted"
    done
    t "the words of a refused rmdir say how to destroy a machine"
    run "cat $M/.boxd/errors"
    prints "rmdir /dev EPERM: 'dev' is a machine, which rmdir destroys only with -o rmdir=delete"
}

knows_things() {
    t "status has its true size, and what it says is true"
    run "test \$(stat -c %s $M/dev/.boxd/status) -gt 0 && cat $M/dev/.boxd/status"
    succeeds
    prints "name dev" && prints "image host"
    run "cat $M/.boxd/status"
    prints "machines 1" && prints "mount $M" && prints "round_trips "
    run "tar c -C $M/dev .boxd/status | tar xO | grep -c '^name dev'"
    is "$out" 1

    t "events tell what happened, and tail -f follows them"
    run "tail -f $M/dev/.boxd/events >followed & ls $M/dev >/dev/null; echo stop >$M/dev/ctl
        for i in {1..100}; do grep -q stopped followed && break; sleep 0.1; done; kill \$!; wait; grep stopped followed"
    succeeds

    t "what is in .boxd can only be read"
    run "echo x >$M/.boxd/status"
    fails_with "denied"
    run "rm -f $M/.boxd/errors"
    fails_with "Operation not permitted"

    t "df answers, and listing the root touches no machine"
    run "df $M && ls -l $M && grep state $M/dev/.boxd/status"
    prints "state stopped"
}

rmdir_can_delete() {
    run boxdfs umount "$M"
    succeeds
    t "with -o rmdir=delete, rmdir destroys a machine"
    mount_local box -o rmdir=delete
    run "rmdir $M/dev && ls -A $M"
    is "$out" ctl
    run boxdfs umount "$M"
    succeeds
}

for who in $users; do
    as "$who"
    suffix=$who
    a_directory_of_machines
    nothing_else_can_be_there
    knows_things
    rmdir_can_delete
done
finish
