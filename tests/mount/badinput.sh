# tests/mount/badinput.sh BUILD_DIR: every mount that cannot be says so in one line, and leaves nothing.
# limit: 200
. "$(dirname "$0")/../lib.sh"

# refused WORDS COMMAND...: exit 1, one line on stderr with these words, nothing mounted.
refused() {
    local words=$1
    shift
    run "$@"
    is "$status" 1
    fails_with "boxdfs: "
    fails_with "$words"
    is "$(wc -l <<<"$err")" 1
    ok "! is_mounted $home/m"
}

bad_service() {
    t "no credentials: names BOXD_API_KEY and --local"
    refused BOXD_API_KEY boxdfs "$home/m"
    fails_with "--local"
    refused BOXD_API_KEY boxdfs -f "$home/m"

    t "a server that is not there"
    refused "127.0.0.1" "BOXD_API_KEY=bxd_x timeout 50 boxdfs -o address=http://127.0.0.1:1 $home/m"
    refused "$home/nothing" boxdfs -o "address=unix:$home/nothing" "$home/m"

    t "a wrong key, which is never shown"
    as_user "$who" boxd-local --socket "$home/s" --state "$home/keyed" --listen 127.0.0.1:0 --ready-fd 9 \
        9>"$scratch/ready" >>"$scratch/server.out" 2>&1 </dev/null &
    server=$!
    until_true 20 grep -q http "$scratch/ready"
    refused "key" "BOXD_API_KEY=bxd_wrong boxdfs -o address=$(grep http "$scratch/ready") $home/m"
    ok "[ -z \"\$(grep bxd_wrong <<<'$err')\" ]"
    end_processes "$server"

    t "a boxd-local that does not start"
    refused "boxd-local" boxdfs --local --local-options "--nonsense" "$home/m"
}

bad_mount_point() {
    t "a mount point that does not exist, is no directory, is not empty or is missing"
    refused "does not exist" boxdfs --local "$home/nosuch"
    refused "No such file" boxdfs --local "$home/nosuch/m"
    run "touch file; mkdir -p full/x"
    refused "not a directory" boxdfs --local "$home/file"
    refused "not empty" boxdfs --local "$home/full"
    refused "mount point is missing" boxdfs --local

    t "a busy mount point"
    refused "busy" boxdfs --local /proc
    mount_local other
    refused "already" boxdfs --local "$home/other"
    run boxdfs umount "$home/other"
    succeeds
}

bad_options() {
    t "an unknown or impossible option is named"
    refused "'nonsense'" boxdfs --local -o nonsense "$home/m"
    refused "'--nonsense'" boxdfs --nonsense "$home/m"
    refused "'ro'" boxdfs --local -o ro "$home/m"
    refused "default_permissions" boxdfs --local -o allow_other "$home/m"
    refused "'script_max'" boxdfs --local -o script_max=lots "$home/m"

    t "the helper of mount(8) takes the words of fstab and refuses the same ones"
    ln -sf "$build/fs/boxdfs" "$home/mount.boxdfs"
    refused "'nonsense'" "$home/mount.boxdfs" local "$home/m" -o rw,nonsense
    run "$home/mount.boxdfs" local "$home/m" -o rw,_netdev,noauto,nofail,user,x-systemd.automount
    succeeds
    ok is_mounted "$home/m"
    run boxdfs umount "$home/m"
    succeeds
}

bad_commands() {
    t "umount and status of what is no boxdfs mount"
    refused "not a boxdfs mount" boxdfs umount "$home"
    refused "not a boxdfs mount" boxdfs status "$home"
    refused "usage" boxdfs umount
}

no_device() {
    [ "$(id -u)" = 0 ] || return 0
    t "without a right to /dev/fuse: the cure is named"
    run "unshare -m bash -c 'mount --bind /dev/null $home/file && mount -t tmpfs none /dev && boxdfs --local $home/m'"
    fails_with "/dev/fuse is missing"
    is "$status" 1
    run "unshare -m bash -c 'mount -t tmpfs none /dev && boxdfs doctor'"
    is "$status" 1
    prints "FAIL fuse"

    t "without fusermount3 an ordinary user is told which package has it"
    as "${test_users%% *}"
    run mkdir -p "$home/m"
    as root
    run "unshare -m bash -c 'mount --bind /dev/null /usr/bin/fusermount3 &&
        exec setpriv --reuid ${test_users%% *} --regid ${test_users%% *} --init-groups boxdfs --local $scratch/${test_users%% *}/m'"
    fails_with "fuse3"
}

for who in $users; do
    as "$who"
    suffix=$who
    run mkdir -p "$home/m"
    bad_service
    bad_mount_point
    bad_options
    bad_commands
done
who=$(id -un)
as "$who"
suffix=
no_device
t "doctor finds nothing missing here"
run boxdfs doctor
succeeds
finish
