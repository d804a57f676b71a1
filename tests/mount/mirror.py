"""tests/mount/mirror.py MOUNTED PLAIN SEED OPERATIONS SECONDS: does the same random file operations in a
directory of the mount and in a plain one; results, errors and contents must be the same. Ends after
that many operations or seconds."""
import errno
import os
import random
import stat
import sys
import time

mounted, plain = (os.fsencode(p) for p in sys.argv[1:3])
rng = random.Random(int(sys.argv[3]))
NAMES = [b"a", b"b", b"c d", b"-e", "\u00fc".encode(), b"\xff", b"x\ny"]
# A directory that is not empty may be told as either.
SAME = {errno.ENOTEMPTY: errno.EEXIST}


def path():
    return b"/".join(rng.choice(NAMES) for _ in range(rng.choice((1, 1, 2, 3))))


def write(flags, data, off=None):
    def run(p):
        fd = os.open(p, flags | os.O_CLOEXEC, 0o640)
        try:
            if off is not None:
                os.lseek(fd, off, os.SEEK_SET)
            return os.write(fd, data)
        finally:
            os.close(fd)
    return run


def read(p):
    with open(p, "rb") as f:
        return f.read()


def attributes(p):
    st = os.lstat(p)
    is_dir = stat.S_ISDIR(st.st_mode)
    return st.st_mode, 0 if is_dir else st.st_size, 0 if is_dir else st.st_nlink


def operation():
    """A name, and a function of a top directory."""
    p, q = path(), path()
    data = rng.randbytes(rng.choice((0, 1, 100, 5000, 200000)))
    off, size, mode = rng.randrange(10000), rng.randrange(8000), rng.choice((0o644, 0o600, 0o755))
    one = {
        "create": write(os.O_WRONLY | os.O_CREAT | os.O_TRUNC, data),
        "create exclusively": write(os.O_WRONLY | os.O_CREAT | os.O_EXCL, data),
        "append": write(os.O_WRONLY | os.O_APPEND, data),
        "write inside": write(os.O_RDWR, data, off),
        "truncate": lambda p: os.truncate(p, size),
        "chmod": lambda p: os.chmod(p, mode if not os.path.isdir(p) else mode | 0o700),
        "times": lambda p: os.utime(p, (10 ** 9, 10 ** 9 + size)) or int(os.stat(p).st_mtime),
        "mkdir": lambda p: os.mkdir(p, 0o750),
        "rmdir": os.rmdir,
        "unlink": os.unlink,
        "symlink": lambda p: os.symlink(rng_target, p),
        "readlink": os.readlink,
        "list": lambda p: sorted(os.listdir(p)),
        "stat": attributes,
        "read": read,
    }
    rng_target = rng.choice(NAMES)
    weights = {"create": 4, "read": 3, "mkdir": 3, "stat": 2, "list": 2}
    names = list(one) + ["rename"]
    name = rng.choices(names, [weights.get(n, 1) for n in names])[0]
    if name == "rename":
        return name, (p, q), lambda top: os.rename(top + b"/" + p, top + b"/" + q)
    return name, (p,), lambda top: one[name](top + b"/" + p)


def outcome(run, top):
    try:
        return run(top)
    except OSError as e:
        return "error", errno.errorcode[SAME.get(e.errno, e.errno)]


def tree(top):
    found = {}
    for base, dirs, files in os.walk(top):
        for n in dirs + files:
            p = os.path.join(base, n)
            regular = stat.S_ISREG(os.lstat(p).st_mode)
            found[os.path.relpath(p, top)] = attributes(p), read(p) if regular else None
    return found


end = time.monotonic() + float(sys.argv[5])
for i in range(int(sys.argv[4])):
    if time.monotonic() > end:
        break
    name, where, run = operation()
    a, b = outcome(run, mounted), outcome(run, plain)
    if a != b:
        sys.exit("operation %d, %s %s: %.200r on the mount, %.200r on a plain directory" % (i, name, where, a, b))
if tree(mounted) != tree(plain):
    sys.exit("the trees differ after %d operations" % (i + 1))
print(i + 1, "operations")
