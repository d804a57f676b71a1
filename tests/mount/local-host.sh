#!/bin/bash
# limit: 280
# What a machine of this computer is, without any service: host-run drives core/local/host.h as root,
# as a user with subordinate ids and as one without; root also over the FUSE view and privileged.
. "$(dirname "$0")/../lib.sh"

host_run=$build/core/local/host-run
m() { run "$host_run" $options "$home/host" "$@"; }           # a command in the machine
msh() { run "$host_run" $options "$home/host" /bin/sh -c "$1"; } # a shell line
root_sh() { run "$host_run" $options -u root "$home/host" /bin/sh -c "$1"; }
sleeping() { grep -qsxzE "$$[.]$1" /proc/[0-9]*/cmdline; } # sleep PID.$1
# Whether a process, if there was one, is gone or only waits to be reaped.
ended() { [ -z "$1" ] || ! ps -o stat= -p "$1" | grep -q '^[^Z]'; }
options=

# ---- canaries: secrets of this computer, placed where they are usually kept -----------------------
canary=CANARY-$$-$RANDOM
public=/usr/share/boxdfs-canary-public.$$
canaries=()
plant() { # plant MODE PATH
    mkdir -p "$(dirname "$2")" && echo "$canary" >"$2" && chmod "$1" "$2" && canaries+=("$2")
}
plant_all() {
    mkdir -m 0700 "/usr/share/boxdfs-canary-dir.$$" && canaries+=("/usr/share/boxdfs-canary-dir.$$")
    mkdir "/boxdfs-canary.$$" && canaries+=("/boxdfs-canary.$$")
    plant 0600 "/usr/share/boxdfs-canary-private.$$"
    plant 0640 "/usr/share/boxdfs-canary-group.$$"
    plant 0644 "/usr/share/boxdfs-canary-dir.$$/file"
    plant 0644 "/boxdfs-canary.$$/file"
    plant 0644 "/opt/boxdfs-canary.$$"
    plant 0644 "/srv/boxdfs-canary.$$"
    plant 0644 "/mnt/boxdfs-canary.$$"
    plant 0644 "/run/boxdfs-canary.$$"
    plant 0644 "/dev/shm/boxdfs-canary.$$"
    plant 0644 "/tmp/boxdfs-canary.$$"
    plant 0644 "/var/tmp/boxdfs-canary.$$"
    plant 0600 "/etc/boxdfs-canary-private.$$"
    plant 0644 "/root/boxdfs-canary.$$"
    if [ "$who" != root ]; then
        plant 0600 "/usr/share/boxdfs-canary-own.$$" && chown "$who" "/usr/share/boxdfs-canary-own.$$"
    fi
    plant 0644 "$public"
}
uproot_all() {
    [ ${#canaries[@]} = 0 ] || rm -rf "${canaries[@]}"
    canaries=()
}
trap 'uproot_all; leave' EXIT
# Where a secret could be; /usr as a whole is too big to read in a test.
places="/boxdfs-canary* /opt /srv /mnt /media /run /dev /tmp /var /etc /root /home /boot \
    /usr/share/boxdfs-canary*"

# ---- one kind ------------------------------------------------------------------------------------
machine_tests() {
    t "a machine has the user boxd, who becomes root by sudo -n"
    msh 'id -u; id -un; echo $HOME; pwd; sudo -n id -u; sudo -n -u "#1234" id -u'
    is "$out" $'1000\nboxd\n/home/boxd\n/home/boxd\n0\n1234'

    t "a machine's root adds users and becomes them"
    msh 'sudo -n useradd -m agent && sudo -n su agent -c "id -un; cd; touch a; stat -c %U a"'
    is "$out" $'agent\nagent'

    t "files of a machine survive its end, those of /run do not"
    msh 'ls -d /home/agent; echo kept >~/kept; sudo -n touch /run/gone'
    is "$out" /home/agent
    msh 'cat ~/kept; ls /run/gone 2>&1 | wc -l; ls /run | grep -c gone'
    is "$out" $'kept\n1\n0'

    t "packages' files can be changed in a machine and stay as they are here"
    root_sh 'echo changed >/usr/share/common-licenses/BSD && cat /usr/share/common-licenses/BSD &&
        chmod 700 /usr/bin/cal 2>/dev/null; rm -rf /usr/share/doc/bash && touch /usr/bin/curl'
    prints changed
    ok "! grep -q changed /usr/share/common-licenses/BSD"

    t "a machine has its own name, loopback and no other network"
    msh 'hostname; getent hosts box1 | head -c 9; ls /sys/class/net'
    is "$out" $'box1\n127.0.1.1lo'

    t "a machine has the usual devices and no others"
    msh 'ls /dev | tr "\n" " "; : >/dev/null; head -c 3 /dev/zero | wc -c; head -c 5 /dev/urandom | wc -c'
    ok '[[ $out == "fd full "*"null ptmx pts random shm stderr stdin stdout tty urandom zero "[3]*5 ]]'
    ok '! [[ $out == *vda* || $out == *mem* || $out == *kmsg* ]]'

    t "exit statuses are a shell's"
    msh 'exit 7' && is "$status" 7
    msh 'kill -9 $$' && is "$status" 137
    m /no/such/program && is "$status" 127 && fails_with "No such file"
    m /etc/passwd && is "$status" 126

    t "a terminal has the user's name and a size"
    run "$host_run" $options -t "$home/host" /bin/sh -c 'tty; stty size; stat -c %U $(tty)'
    is "$(echo "$out" | tr -d '\r')" $'/dev/pts/0\n24 80\nboxd'

    t "standard input reaches a command whole"
    head -c 3000000 /dev/urandom >"$scratch/random"
    chmod 644 "$scratch/random"
    run "'$host_run' $options -I '$home/host' /usr/bin/md5sum <'$scratch/random'"
    is "${out%% *}" "$(md5sum <"$scratch/random" | cut -d' ' -f1)"

    t "a killed command takes along what left its session"
    run "$host_run" $options -k 200 "$home/host" /bin/sh -c \
        "setsid sleep $$.1 & (setsid setsid sleep $$.2 &); sleep $$.3"
    is "$status" 143
    ok "! sleeping '[123]'"

    t "a command that ignores TERM is killed two seconds later"
    run "$host_run" $options -k 100 "$home/host" /bin/sh -c "trap '' TERM; sleep $$.4; sleep $$.5"
    is "$status" 137
    below "$took" 6000

    t "a frozen machine stands still"
    run "$host_run" $options -f "$home/host" /bin/sh -c \
        'for i in 1 2 3 4 5 6 7 8 9; do echo tick; sleep 0.1; done'
    is "$(echo "$out" | sed -n '/freeze 0/,/thaw 0/p' | grep -c tick)" 0
    is "$(echo "$out" | grep -c tick)" 9

    t "a command ends although its daemon runs on, and the daemon dies with the machine"
    msh "nohup sleep $$.6 >/dev/null 2>&1 & exit 4"
    is "$status" 4
    ok "! sleeping 6"
}

# A daemon outlives its command, and nothing outlives a killed server.
death_tests() {
    local server

    t "nothing of a machine outlives its killed server by 0.3 s"
    mkfifo -m 666 "$scratch/hold" 2>/dev/null
    as_user "$who" "$host_run" $options -H "$home/host" /bin/sh -c \
        "nohup sleep $$.7 >/dev/null 2>&1 & setsid sleep $$.8 >/dev/null 2>&1 & exit 0" \
        <>"$scratch/hold" >"$scratch/held" 2>&1 &
    ok until_true 20 grep -q held "$scratch/held"
    ok until_true 5 eval "sleeping 7 && sleeping 8"
    server=$(pids_of_program host-run)
    kill -9 $server
    sleep 0.3
    ok "! sleeping 7 && ! sleeping 8"

    t "nothing of a frozen machine outlives its killed server either"
    as_user "$who" "$host_run" $options -k 1500 -f "$home/host" \
        /bin/sh -c "sleep $$.9; :" >"$scratch/frozen" 2>&1 &
    ok until_true 20 grep -q "freeze 0" "$scratch/frozen"
    ok "sleeping 9"
    server=$(pids_of_program host-run)
    guard=$(pgrep -P "$server" -xf "boxd guard") # only the version 1 freezer needs one
    kill -9 $server
    sleep 0.3
    ok "! sleeping 9"
    ok ended "$guard"

    t "the next server cleans up after a killed one"
    m /bin/true
    succeeds
    is "$(find /sys/fs/cgroup -name "boxd-local-$server" 2>/dev/null)" ""
    ok "! grep -qF '$home/host' /proc/mounts"
}

view_tests() {
    t "machines end when the view of this computer's /usr dies"
    as_user "$who" "$host_run" $options "$home/host" /bin/sh -c "sleep $$.5; :" >"$scratch/held" 2>&1 &
    ok until_true 20 sleeping 5
    kill -9 $(pgrep -P "$(pids_of_program host-run)" -f "^boxd-view ")
    wait $!
    is $? 137
    ok "! sleeping 5"
}

secret_tests() {
    t "a machine's root finds nothing private of this computer"
    plant_all
    root_sh "grep -rsl --devices=skip $canary $places; ls -d /boxdfs-canary* 2>/dev/null; true"
    is "$out" "$public"

    t "what is made or becomes private while a machine runs stays hidden too"
    mkfifo -m 666 "$scratch/late" 2>/dev/null
    as_user "$who" "$host_run" $options -u root "$home/host" /bin/sh -c "ls / /usr/share >/dev/null
        echo ready; sleep 1; cat $public $places/* 2>/dev/null; grep -rsl $canary $places" \
        >"$scratch/late" 2>/dev/null &
    exec 8<"$scratch/late"
    read -r -t 20 line <&8
    is "$line" ready
    plant 0644 "/boxdfs-canary-late.$$/file" && canaries+=("/boxdfs-canary-late.$$")
    plant 0600 "/usr/share/boxdfs-canary-late.$$"
    chmod 0600 "$public"
    is "$(cat <&8)" ""
    exec 8<&-
    uproot_all

    t "a command has no open files but its own three"
    msh 'for f in /proc/self/fd/*; do [ -e $f ] && echo ${f##*/}; done'
    is "$out" $'0\n1\n2'

    t "a machine sees nothing of its server"
    run env SECRET="$canary" "$host_run" $options -u root "$home/host" /bin/sh -c '
        tr "\0" " " </proc/1/environ; tr "\0" " " </proc/1/cmdline; readlink /proc/1/exe
        cat /proc/1/maps /proc/mounts; ls -l /proc/1/fd /proc/1/cwd; tr "\0" "\n" </proc/self/environ'
    prints "init"
    ok '[[ $out != *CANARY* && $out != *"$home"* && $out != *"$build"* && $out != *host-run* ]]'
}

delete_tests() {
    t "a deleted machine leaves no files"
    run "$host_run" $options -d "$home/host" /bin/true
    succeeds
    is "$(ls "$home/host/machines")" ""
}

for user in $users; do
    suffix=$user
    as "$user"
    machine_tests
    death_tests
    [ "$user" = root ] || view_tests
    secret_tests
    delete_tests
done

if [ "$(id -u)" = 0 ]; then
    as root
    suffix="root, FUSE view"
    options=-v
    rm -rf "$home/host"
    machine_tests
    death_tests
    view_tests
    secret_tests
    options=
fi

# ---- privileged ------------------------------------------------------------------------------------
privileged_tests() {
    t "a privileged machine has this computer's ids and all the server's rights"
    root_sh 'cat /proc/self/uid_map; grep CapEff /proc/self/status'
    is "$(echo $out)" "0 0 4294967295 $(echo $(grep CapEff /proc/self/status))"

    t "a privileged machine mounts what it wants, and nobody else sees it"
    root_sh "mount -t tmpfs none-$$ /mnt && touch /mnt/a && ls /mnt && sysctl -qw net.ipv4.ip_forward=1"
    is "$out" a
    ok "! grep -q none-$$ /proc/mounts"

    t "this computer's disks cannot be opened in a privileged machine, and it cannot allow it"
    for d in /sys/block/*/dev /sys/class/mem/{mem,kmsg}/dev; do
        [ -e "$d" ] || continue
        kind=c && [ "${d#/sys/block}" = "$d" ] || kind=b
        root_sh "mknod /root/node $kind $(tr : ' ' <"$d") && echo a | tee /sys/fs/cgroup/devices/devices.allow
            head -c 1 /root/node; s=\$?; rm /root/node; exit \$s"
        fails_with "cannot open '/root/node' for reading: Operation not permitted"
    done

    t "modes of a privileged machine's devices are its own"
    root_sh 'chmod 0600 /dev/null /dev/tty; stat -c %a /dev/null'
    is "$out $(stat -c %a /dev/null /dev/tty | tr '\n' ' ')" "600 666 666 "

    t "a privileged machine has control groups of its own, gone with it at once"
    root_sh 'for c in /sys/fs/cgroup/*; do mkdir $c/inner || exit; done
        echo 1000000 >/sys/fs/cgroup/memory/inner/memory.limit_in_bytes
        sleep 1000 & echo $! >/sys/fs/cgroup/freezer/inner/cgroup.procs
        echo FROZEN >/sys/fs/cgroup/freezer/inner/freezer.state; ls /sys/fs/cgroup | tr "\n" " "'
    succeeds
    ok '[[ $out == *devices*freezer*memory*pids* ]]'
    is "$(find /sys/fs/cgroup -type d -path '*boxd-local*/inner')" ""

    t "Docker's directory in a privileged machine is no overlay, and stays"
    root_sh 'stat -f -c %T /var/lib/docker; touch /var/lib/docker/kept'
    ok '[ "$out" != overlayfs ]'
    root_sh 'ls /var/lib/docker'
    is "$out" kept
}

if [ "$(id -u)" = 0 ] && [ ! -e /sys/fs/cgroup/devices/devices.list ]; then
    t "a privileged machine is refused where nothing keeps it from the disks"
    run "$host_run" -p "$home/host" /bin/true
    fails_with "version 1 control group 'devices'"
elif [ "$(id -u)" = 0 ]; then
    as root
    suffix="privileged"
    options=-p
    rm -rf "$home/host"
    machine_tests
    privileged_tests
    death_tests
    secret_tests
    delete_tests
    options=
fi

t "an ordinary user's server makes no privileged machine"
if [ "$(id -u)" = 0 ]; then as boxdtest; fi
run "$host_run" -p "$home/host" /bin/true
fails_with "privileged machines are not allowed here"

# ---- images --------------------------------------------------------------------------------------
make_image() {
    image=$home/image
    mkdir -p "$image"/{bin,etc,tmp,root,home/boxd}
    cp "$(command -v busybox)" "$image/bin/busybox"
    for lib in $(ldd "$image/bin/busybox" 2>/dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$image$(dirname "$lib")" && cp "$lib" "$image$lib"
    done
    for name in sh id ls cat hostname stat; do ln -sf busybox "$image/bin/$name"; done
    echo 'root:x:0:0::/root:/bin/sh' >"$image/etc/passwd"
    tar -C "$image" -czf "$home/tiny.tar.gz" .
    chown -R "$who:" "$image" "$home/tiny.tar.gz"
}
for user in $users; do
    suffix=$user
    as "$user"
    make_image
    privileged=
    if [ "$user" = root ] && [ -e /sys/fs/cgroup/devices/devices.list ]; then privileged=-p; fi

    t "an image directory is a machine's whole file system, and is not written to"
    run "$host_run" -n i1 -i "$image" "$home/host" /bin/sh -c 'id -u; ls /; hostname; >/new; cat /etc/hosts'
    succeeds
    prints $'0\nbin\ndev\netc'
    ok "[ ! -e '$image/new' ]"

    t "a tarball is unpacked once for all machines of it"
    as_user "$who" mkdir -p "$home/host/images"
    as_user "$who" cp "$home/tiny.tar.gz" "$home/host/images/"
    run "$host_run" -n i2 -i tiny "$home/host" /bin/sh -c 'stat -c %u /bin/busybox'
    is "$out" 0
    run "$host_run" -n i3 -i tiny "$home/host" /bin/sh -c 'stat -c %u /bin/busybox'
    is "$out" 0
    is "$(ls "$home/host/unpacked" | wc -l)" 1

    if [ -n "$privileged" ]; then
        t "images are privileged machines too"
        run "$host_run" -p -n p1 -i "$image" "$home/host" /bin/sh -c 'cat /proc/self/uid_map; ls -d /var/lib/docker'
        is "$(echo $out)" "0 0 4294967295 /var/lib/docker"
        run "$host_run" -p -n p2 -i tiny "$home/host" /bin/sh -c 'stat -c %u /bin/busybox'
        is "$out" 0
    fi

    t "an unknown image is refused in words"
    run "$host_run" -n i4 -i missing "$home/host" /bin/true
    fails_with "image 'missing' does not exist"
    run "$host_run" -n i4 -i ../tiny "$home/host" /bin/true
    fails_with "is not the name of an image"
done
finish
