"""tests/mount/tree.py make DIR | compare A B: a tree of 200 files with awkward names, and whether two
trees are the same in names, bytes, modes and link targets."""
import os
import random
import stat
import sys

AWKWARD = [
    b"two words", b" leading and trailing ", b"new\nline", b"tab\there", "gr\u00fc\u00df.txt".encode(),
    "\u65e5\u672c\u8a9e".encode(), b"\xff\xfe not utf-8 \x80", b"cut \xe2\x82", b"-rf", b"--help", b"-",
    b"n" * 255, "\u00e9".encode() * 127, b"'quote'", b'"double"', b"back\\slash", b"$HOME", b"`id`",
    b"$(id)", b"a;b", b"a|b", b"a&b", b"a>b", b"*", b"?", b"[a]", b"~", b"#", b"!", b"%s%n", b"...",
    b".hidden", b"\x01\x02\x1b[31m", b"\\n", b"{a,b}", b"a=b", b"\r", b"x\n", b"\nx", b"ctl", b"exec",
]
MODES = [0o644, 0o600, 0o755, 0o700, 0o640, 0o444, 0o666]


def make(top):
    rng = random.Random(1)
    dirs = [b"", b"sub dir", b"sub dir/deep\n", b"\xfe", b"-d"]
    top = os.fsencode(top)
    for d in dirs:
        os.makedirs(os.path.join(top, d), exist_ok=True)
    for i in range(200):
        name = AWKWARD[i] if i < len(AWKWARD) else b"file %d" % i
        path = os.path.join(top, dirs[i % len(dirs)], name)
        size = 0 if i % 20 == 0 else 1 if i % 20 == 1 else rng.randrange(2, 20000)
        with open(path, "wb") as f:
            f.write(rng.randbytes(size))
        os.chmod(path, MODES[i % len(MODES)])
    os.symlink("two words", os.path.join(top, b"link"))
    os.symlink(b"nowhere\xff", os.path.join(top, b"dangling"))


def content(top):
    found = {}
    for base, dirs, files in os.walk(os.fsencode(top)):
        for name in dirs + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    what = f.read()
            else:
                what = None
            found[os.path.relpath(path, os.fsencode(top))] = (st.st_mode, what)
    return found


def compare(a, b):
    a, b = content(a), content(b)
    bad = 0
    for name in sorted(set(a) | set(b)):
        if a.get(name) == b.get(name):
            continue
        if name not in a or name not in b:
            print("only in the", "first:" if name in a else "second:", name)
        elif a[name][0] != b[name][0]:
            print("modes differ: %o %o" % (a[name][0], b[name][0]), name)
        else:
            print("contents differ:", name)
        bad += 1
    if len(a) < 200:
        print("only", len(a), "entries")
        bad += 1
    return 1 if bad else 0


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    sys.exit(compare(sys.argv[2], sys.argv[3]))
