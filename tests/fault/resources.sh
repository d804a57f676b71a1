#!/bin/bash
# What runs out: descriptors, space for temporary files; what floods: odd bytes, opens, connections.
# limit: 240
. "$(dirname "$0")/../lib.sh"

start_local --idle-exit 0 --listen 127.0.0.1:0
url=$(grep -o 'http://.*' "$scratch/ready")
M=$home/m
mkdir "$M"
mount_here() { # with the shell's limits and environment
    boxdfs -f -o "address=$address" "$M" >>"$scratch/log" 2>&1 &
    pid=$!
    until_true 10 test -e "$M/ctl" || complain "no mount: $(tail -5 "$scratch/log")"
}
end_mount() {
    kill -TERM "$pid"
    wait "$pid"
    is "$?" 0
}
memory() { awk '/VmRSS/ { print $2 }' "/proc/$1/status"; }
descriptors() { ls "/proc/$1/fd" | wc -l; }
mount_here
factor=1
grep -q 'lib[atu]san' "/proc/$pid/maps" && factor=12
run "mkdir $M/dev && ls $M/dev/home/boxd && echo true >$M/dev/exec"
succeeds
D=$M/dev H=$M/dev/home/boxd
before=$(descriptors "$pid") server_before=$(descriptors "$server")

t "rubbish of any length written to ctl and exec fails, and is not kept"
for file in "$M/ctl" "$D/ctl" "$D/exec"; do
    for what in "head -c 300000 /dev/urandom" "head -c 2000000 /dev/zero" "head -c 2000000 /dev/zero | tr '\\0' a"; do
        run "$what >$file"
        ok "[ $status != 124 ]"
    done
done
run "echo whoami >$M/ctl && echo true >$D/exec"
succeeds

t "thousands of opens of the special files are opened and closed, none runs anything"
run "ulimit -n 4096; for f in $D/exec $D/ctl $M/ctl; do python3 -c 'import os, sys
fs = [os.open(sys.argv[1], os.O_RDWR if i % 2 else os.O_WRONLY) for i in range(3000)]' \$f || exit 1; done"
succeeds

t "every call that special files do not know ends with an error"
cat >"$scratch/odd.py" <<'PY'
import fcntl, mmap, os, select, sys
for path in sys.argv[1:]:
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDWR | os.O_TRUNC):
        try:
            f = os.open(path, flags)
        except OSError:
            continue
        null, (r, w) = os.open("/dev/null", os.O_RDWR), os.pipe()
        poll = select.poll()
        poll.register(f)
        for call in (lambda: os.lseek(f, 10, 0), lambda: os.lseek(f, 0, 2), lambda: mmap.mmap(f, 4096),
                     lambda: os.ftruncate(f, 100), lambda: os.pread(f, 10, 1 << 40), lambda: os.pwrite(f, b"#\n", 1 << 40),
                     lambda: os.posix_fallocate(f, 0, 10), lambda: os.fsync(f), lambda: os.fchmod(f, 0o777),
                     lambda: os.fchown(f, 1, 1), lambda: fcntl.ioctl(f, 0x5401, b"0" * 64), lambda: poll.poll(50),
                     lambda: os.sendfile(f, null, 0, 100), lambda: os.splice(f, w, 100),
                     lambda: os.copy_file_range(f, null, 10), lambda: os.setxattr(path, "user.a", b"b"),
                     lambda: os.link(path, path + "2"), lambda: os.rename(path, path + "2"), lambda: os.unlink(path)):
            try:
                call()
            except (OSError, ValueError):
                pass
        for fd in (f, null, r, w):
            os.close(fd)
PY
run "python3 $scratch/odd.py $M/ctl $D/ctl $D/exec $M/.boxd/status $D/.boxd/last/output; ls $M $D >/dev/null && echo whoami >$M/ctl"
succeeds

t "another user meets nothing of a mount, nor of one open to all its special files"
mkdir "$scratch/all"
chmod 755 "$scratch/all"
boxdfs -f -o "address=$address,allow_other,default_permissions" "$scratch/all" >>"$scratch/log" 2>&1 &
all=$!
ok until_true 10 test -e "$scratch/all/ctl"
for user in $users; do
    [ "$user" != root ] || continue
    for line in "echo whoami >$scratch/all/ctl" "echo id >$scratch/all/dev/exec" "cat $scratch/all/dev/exec" \
        "echo destroy >$scratch/all/dev/ctl" "cat $scratch/all/.boxd/status" "ls $scratch/all/dev/.boxd/last" "mkdir $scratch/all/evil"; do
        as "$user"
        run "$line"
        fails_with "ermission denied"
    done
    as root
done
boxdfs umount "$scratch/all"
wait "$all"

t "what a machine has in its home, FIFOs, sockets, loops, holds up no reader of the rest"
run "echo 'mkfifo p; ln -s loop loop; perl -MSocket -e \"socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(chr 115))\" || :' >$D/exec; ls -lA $H >/dev/null && find $H -type f"
succeeds
run "cat $H/loop"
fails_with "symbolic links"

t "after all this no descriptor is left, and the memory is bounded"
ok until_true 5 eval "[ \$(descriptors $pid) -le $((before + 2)) ]"
ok until_true 5 eval "[ \$(descriptors $server) -le $((server_before + 4)) ]"
below "$(memory "$pid")" $((40960 * factor))
below "$(memory "$server")" $((20480 * factor))

t "without descriptors opens fail with words, and work again afterwards"
end_mount
soft=$(ulimit -Sn)
ulimit -Sn 40
mount_here
ulimit -Sn "$soft"
run "python3 -c 'import os
fs = []
for i in range(60):
    f = os.open(\"$H/e%d\" % i, os.O_CREAT | os.O_RDWR); os.write(f, b\"x\"); fs.append(f)'"
fails_with "Too many open files"
run "cat $H/e3; rm $H/e*; echo y >$H/again && cat $H/again; grep -c EMFILE $M/.boxd/errors"
prints xy

t "without space for temporary files writes fail with ENOSPC, small files and the rest go on"
end_mount
mkdir "$scratch/tiny"
if [ "$who" = root ]; then
    mount -t tmpfs -o size=1m tmpfs "$scratch/tiny"
    TMPDIR=$scratch/tiny mount_here
    run "head -c 5000000 /dev/zero >$H/big"
    fails_with "No space left"
    run "echo small >$H/small && cat $H/small && echo 'echo ran' >$D/exec && cat $D/exec"
    is "$out" "small
ran"
    end_mount
    umount "$scratch/tiny"
else
    skip "only root can make a small file system"
fi

t "rubbish, floods and half-open connections on TCP: the server goes on and keeps nothing"
cat >"$scratch/flood.py" <<'PY'
import os, socket, struct, sys
host, port = sys.argv[1].removeprefix("http://").split(":")
start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
def frame(kind, flags, stream, data=b""):
    return struct.pack(">I", len(data))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + data
def talk(data):
    with socket.create_connection((host, int(port)), 5) as s:
        s.settimeout(0.5)
        try:
            s.sendall(data)
            s.recv(4096)
        except OSError:
            pass
h = b"\x83\x86\x01\x01x\x04\x1c/boxd.api.v1.BoxdApi/ListVms\x0f\x10\x10application/grpc"
post = b"POST /api/v1/auth/token HTTP/1.1\r\nHost: x\r\n"
hello = start + frame(4, 0, 0)
for data in (os.urandom(100000), b"GET / HTTP/1.1\r\nX: " + b"a" * 2000000, b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 100000,
             post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
             post + b"Content-Length: -1\r\n\r\n", post + b"Content-Length: 99999999999999999999\r\n\r\n",
             post + b"Content-Length: 60000\r\n\r\n" + b"[" * 60000, b"GET /\0 HTTP/1.1\r\n\r\n",
             hello + frame(4, 0, 0, b"\0\3\0\0\0\1") * 20000, hello + frame(6, 0, 0, b"12345678") * 100000,
             hello + b"".join(frame(1, 4, i, h) + frame(3, 0, i, b"\0\0\0\x08") for i in range(1, 40001, 2)),
             hello + frame(1, 0, 1, h) + frame(9, 0, 1, b"\0\1a\1b" * 1000) * 2000,
             hello + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 3, hello + frame(0, 0, 1, b"x" * 16384) * 10,
             hello + frame(1, 4, 1, h) + frame(0, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 100)):
    talk(data)
for i in range(300):
    talk(post + b"Authorization: Bearer wrong\r\nContent-Length: 2\r\n\r\n{}")
open_ = [socket.create_connection((host, int(port)), 5) for i in range(500)]
for i, s in enumerate(open_):
    s.send(start[:i % 24])
talk(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
PY
run "ulimit -n 2048; python3 $scratch/flood.py $url"
succeeds
mount_here
run "cat $H/again && echo true >$D/exec"
succeeds
ok until_true 5 eval "[ \$(descriptors $server) -le $((server_before + 4)) ]"
below "$(memory "$server")" $((20480 * factor))
end_mount
is "$(grep -v '^boxd-local: \|^fuse: reading device' "$scratch/log")" ""
finish
