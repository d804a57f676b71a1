"""hostile-server.py SOCKET MODE_FILE: a service that lies, one way a machine: the machine's name says
which (see `evils`). MODE_FILE holds what ListVms answers (see `lists`)."""
import os
import re
import sys
import threading
import time
from concurrent import futures

import grpc
import boxd_pb2 as pb
import boxd_pb2_grpc

socket, mode_file = sys.argv[1:3]
MIB = 1 << 20
started = {}


def record(name="", kind="4", size=5, mode=None, ino=None, tail=None):
    """What stat says: a directory, a file (8) or a link (a)."""
    mode = mode or {"4": "41ed", "8": "81a4", "a": "a1ff"}[kind]
    date = "2024-01-01 00:00:00.000000000 +0000"
    ino = ino or abs(hash(name)) % (1 << 40) + 1
    return (f"{size} {ino} 77|{date}|{date}|{mode} 1 1000 1000 8 4096 0 0 "
            f"1704067200 1704067200 1704067200 {date}|{tail if tail is not None else ''}")


def listing(*entries):
    head = record("/", tail="./\n") + "ef53/\n"
    return (head + "".join(record(e, "8", tail=f"./{e}/\n") for e in entries)).encode("utf-8", "surrogateescape")


def kind_of(path):
    name = path.rsplit("/", 1)[-1]
    return "8" if name.startswith("file") else "a" if name.startswith("link") else "4"


def out(data, code=0):
    for at in range(0, len(data), MIB):
        yield pb.ExecChunk(data=data[at:at + MIB])
    yield pb.ExecChunk(exit_code=code)


def forever(context, data=b"x" * 65536):
    while context.is_active():
        yield pb.ExecChunk(data=data)


def silent(context):
    gone = threading.Event()
    context.add_callback(gone.set)
    gone.wait()
    return
    yield


def honest(command, path):
    if "id -u && id -g" in command:
        return out(b"1000\n1000\n")
    if "exec cat --" in command:
        return out(record(path, "8").encode() + b"\nhello")
    if "readlink" in command:
        return out(b"file\0/file")
    if '"$1/."' in command and "set -- ./.*" in command:
        return out(listing("file", "file2"))
    if "stat -f -c" in command:
        return out(b"100 50 50 4096 100 50 255\n")
    return out((record(path, kind_of(path)) + "\n").encode())


# name: what its commands answer; None: as an honest machine. They see (context, command, path, requests).
def when(what, answer):
    return lambda c, command, path, r: answer(c) if what in command else None


CAT, LIST, LINK, STAT = "exec cat --", "set -- ./.*", "readlink", 'exec stat -c "$f"'
evils = {
    "honest": lambda *a: None,
    "endless-cat": when(CAT, lambda c: (x for g in ([pb.ExecChunk(data=record("f", "8").encode() + b"\n")], forever(c)) for x in g)),
    "endless-header": when(CAT, forever),
    "endless-list": when(LIST, lambda c: (x for g in ([pb.ExecChunk(data=listing("a"))], forever(c)) for x in g)),
    "endless-stat": when(STAT, forever),
    "endless-error": lambda c, command, p, r: None if "true" == command else (
        pb.ExecChunk(data=b"x" * 65536, is_stderr=True) for _ in iter(c.is_active, False)),
    "endless-store": when("s=$?; [ -z", forever),
    "silent-store": when("s=$?; [ -z", silent),
    "silent-stat": when(STAT, silent),
    "silent-list": when(LIST, silent),
    "silent-cat": when(CAT, silent),
    "silent-all": lambda c, *a: silent(c),
    "silent-exec": when("__b_nonce", silent),
    "endless-exec": when("__b_nonce", forever),
    "no-exit": lambda c, command, *a: None if command == "true" else iter([pb.ExecChunk(data=b"hello")]),
    "empty-stream": lambda c, command, *a: None if command == "true" else iter([]),
    "cut": lambda c, command, *a: None if command == "true" else abort_after(c, b"12 3"),
    "exit-absurd": lambda c, command, *a: None if command == "true" else out(b"", -2147483648),
    "more-after-exit": lambda c, command, *a: None if command == "true" else iter(
        [pb.ExecChunk(exit_code=0), pb.ExecChunk(data=b"late"), pb.ExecChunk(exit_code=3)]),
    "short-cat": when(CAT, lambda c: out(record("f", "8", size=1000).encode() + b"\nhello")),
    "long-cat": when(CAT, lambda c: out(record("f", "8", size=2).encode() + b"\n" + b"y" * 3 * MIB)),
    "huge-size": when("", lambda c: None),
    "nul-list": when(LIST, lambda c: out(listing("a\0b"))),
    "dots-list": when(LIST, lambda c: out(listing("..", ".", "...", "ok"))),
    "slash-list": when(LIST, lambda c: out(listing("a/b"))),
    "empty-name": when(LIST, lambda c: out(listing(""))),
    "long-name": when(LIST, lambda c: out(listing("n" * 256))),
    "twice-list": when(LIST, lambda c: out(listing(*["same"] * 1000, "ctl", "exec", ".boxd"))),
    "million-list": when(LIST, lambda c: out(listing(*(f"file{i}" for i in range(300000))))),
    "long-link": when(LINK, lambda c: out(b"x" * MIB + b"\0/x")),
    "up-link": when(LINK, lambda c: out(b"../../../../etc/passwd\0/etc/passwd")),
    "dot-link": when(LINK, lambda c: out(b"/etc/passwd\0/../../etc/passwd")),
    "rubbish": lambda c, command, *a: None if command == "true" else out(os.urandom(5000)),
    "negative-stat": when(STAT, lambda c: out(b"-1 -1 -1|-|-|-1 -1 -1\n")),
    "big-stat": when(STAT, lambda c: out((record("f", "8", size=9223372036854775807, ino=18446744073709551615) + "\n").encode())),
    "bad-mode": when(STAT, lambda c: out((record("f", mode="ffff") + "\n").encode())),
    "type-change": lambda c, command, path, r: out((record(path, "84a"[int(time.time() * 50) % 3]) + "\n").encode()) if STAT in command else None,
    "same-ino": lambda c, command, path, r: out((record(path, kind_of(path), ino=7) + "\n").encode()) if STAT in command else None,
}


def abort_after(context, data):
    yield pb.ExecChunk(data=data)
    context.abort(grpc.StatusCode.INTERNAL, "cut\n" + "x" * 3000)


def vm(name, id=None, status="running", **more):
    return pb.GetVmResponse(vm_id=id if id is not None else "id-" + name, name=name, status=status, **more)


odd = ["..", ".", "", "a/b", "n" * 10240, "new\nline", "ctl", ".boxd", "exec", "tab\t", "\x7f", "é", "-rf", " "]
lists = {
    "evils": lambda: [vm(n) for n in evils],
    "names": lambda: [vm(n, f"odd{i}") for i, n in enumerate(odd)] + [vm("honest")],
    "ids": lambda: [vm(f"v{i}", n) for i, n in enumerate(odd)] + [vm("honest")],
    "twins": lambda: [vm("twin", f"t{i % 50}") for i in range(5000)] + [vm("t3", "t4"), vm("honest")],
    "statuses": lambda: [vm("honest"), vm("st1", status="no\nsuch"), vm("st2", status=""), vm("st3", status="x" * 100000), vm("st4", status="destroyed")],
    "labels": lambda: [vm("honest", labels={f"k{i}": "v" * 1000 for i in range(2000)}), vm("big", image_ref="i" * 3 * MIB, created_at=-2**63, boot_time_ms=2**63 - 1, disk_bytes=2**64 - 1)],
    "many": lambda: [vm(f"m{i}") for i in range(50000)] + [vm("honest")],
    "many2": lambda: [vm(f"x{i}") for i in range(50000)] + [vm("honest")],
    "swap": lambda: [vm(f"m{i}", f"id-m{49999 - i}") for i in range(50000)] + [vm("honest")],
    "none": lambda: [],
}


class Service(boxd_pb2_grpc.BoxdApiServicer):
    def ListVms(self, request, context):
        mode = open(mode_file).read().strip()
        if mode == "silent":
            list(silent(context))
        if mode == "error":
            context.abort(grpc.StatusCode.INTERNAL, "\x1b[31mred\n" + "e" * 6000)
        if mode == "unauth":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        return pb.ListVmsResponse(vms=lists[mode]())

    def GetVm(self, request, context):
        name = request.vm_id.removeprefix("id-")
        if name == "other":
            return vm("honest")
        return vm(name, request.vm_id)

    def CreateVm(self, request, context):
        n = request.name
        if n == "silent":
            list(silent(context))
        return pb.CreateVmResponse(vm_id={"slash": "a/b", "empty": "", "dots": "..", "known": "id-honest", "long": "x" * 300}.get(n, "id-" + n),
                                   name="../../" if n == "renamed" else n, status="running")

    def Whoami(self, request, context):
        return pb.WhoamiResponse(user_id="u\n\x1b[2J" * 100, display_name="\x1b]0;x\x07")

    def GetConfig(self, request, context):
        return pb.GetConfigResponse()

    def Exec(self, requests, context):
        first = next(requests)
        words = re.search(r"set -- '?([^' ;]*)", first.command)
        path = words[1] if words else ""
        name = first.vm_id.removeprefix("id-")
        if first.command == "true" and name != "silent-all":
            return out(b"")
        evil = evils.get(name, evils["honest"])
        answer = evil(context, first.command, path, requests)
        return answer if answer is not None else honest(first.command, path)


server = grpc.server(futures.ThreadPoolExecutor(max_workers=200),
                     options=(("grpc.max_send_message_length", -1),))
boxd_pb2_grpc.add_BoxdApiServicer_to_server(Service(), server)
server.add_insecure_port("unix:" + socket)
server.start()
print("ready", flush=True)
threading.Event().wait()
