"""service.py ADDRESS SET: drives boxd-local with grpcio and the generated messages. ADDRESS is the path
of its socket or an http URL (with KEY set); SET is a group of cases below."""

import json
import os
import queue
import sys
import threading
import time
import urllib.error
import urllib.request

import grpc
import boxd_pb2 as pb
import boxd_pb2_grpc
from cases import case, done, equal

address, what = sys.argv[1:3]
factor = int(os.environ.get("MEMORY_FACTOR", "1"))
is_url = address.startswith("http://")
channel = grpc.insecure_channel(address[len("http://"):] if is_url else "unix:" + address)
api = boxd_pb2_grpc.BoxdApiStub(channel)
vm = "svc"


def fails(code, words, call, *args, **kwargs):
    try:
        result = call(*args, **kwargs)
        if hasattr(result, "__next__"):
            list(result)
    except grpc.RpcError as error:
        equal(error.code().name, code)
        assert words in error.details(), f"{error.details()!r} does not say {words!r}"
        return
    raise AssertionError(f"no {code}")


def get(name=vm):
    return api.GetVm(pb.GetVmRequest(vm_id=name))


def create(name=vm, **kwargs):
    return api.CreateVm(pb.CreateVmRequest(name=name, **kwargs))


def destroy(name=vm):
    api.DestroyVm(pb.DestroyVmRequest(vm_id=name))


class Exec:
    """One stream; half-closes at once unless `keep`."""

    def __init__(self, command, keep=False, machine=vm, stub=api, **kwargs):
        self.inputs = queue.Queue()
        self.inputs.put(pb.ExecChunk(vm_id=machine, command=command, **kwargs))
        self.out, self.err, self.code = b"", b"", None
        if not keep:
            self.inputs.put(None)
        self.call = stub.Exec(iter(self.inputs.get, None))

    def send(self, data):
        self.inputs.put(pb.ExecChunk(stdin=True, data=data))

    def finish(self):
        self.inputs.put(None)
        for chunk in self.call:
            if chunk.is_stderr:
                self.err += chunk.data
            else:
                self.out += chunk.data
            self.code = chunk.exit_code
        return self.out, self.err, self.code


def run(command, **kwargs):
    return Exec(command, **kwargs).finish()


def wait(predicate, seconds=10):
    end = time.monotonic() + seconds
    while not predicate():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def server_memory():
    pid = open(os.path.join(os.path.dirname(address), "local", "lock")).read().strip()
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * 4096


def processes(pattern):
    return int(run(f"pgrep -cf '{pattern}'")[0])


# ---- machines --------------------------------------------------------------------------------------


def validation():
    refused = lambda words, **kwargs: fails("INVALID_ARGUMENT", words, create, **kwargs)

    @case("names, labels, sizes and policies are checked")
    def _():
        for name in ("Upper", "-a", "a-", "a.b", "x" * 64):
            refused("is not valid", name=name)
        refused("'boxd/' is reserved", labels={"boxd/a": "1"})
        refused("is not valid", labels={"Team": "1"})
        refused("control character", labels={"a": "\n"})
        refused("too long", labels={"a": "x" * 257})
        refused("at most 64", labels={f"k{i}": "" for i in range(65)})
        refused("size", config=pb.VmConfig(vcpu=3))
        refused("size", config=pb.VmConfig(vcpu=1, memory_bytes=8 << 30))
        refused("disk", config=pb.VmConfig(disk_bytes=1))
        refused("always or never", restart_policy="sometimes")
        refused("environment", env=[pb.EnvVar(key="A B", value="1")])

    @case("an unknown image, machine or organisation is NOT_FOUND")
    def _():
        fails("NOT_FOUND", "missing", create, image_ref="missing")
        fails("NOT_FOUND", "machine 'missing' not found", get, "missing")
        fails("NOT_FOUND", "not named", get, "")
        fails("NOT_FOUND", "organisation", api.ListVms, pb.ListVmsRequest(org="x"))
        fails("NOT_FOUND", "not found", run, "true", machine="missing")

    @case("text that is not UTF-8 is INVALID_ARGUMENT in every call")
    def _():
        for name in ("GetVm", "CreateVm", "Mkdir"):
            raw = channel.unary_unary(f"/boxd.api.v1.BoxdApi/{name}")
            fails("INVALID_ARGUMENT", "UTF-8", raw, b"\x0a\x02\xff\xfe")
            fails("INVALID_ARGUMENT", "", raw, b"\x0a\x02a\x00")
        raw = channel.stream_stream("/boxd.api.v1.BoxdApi/Exec")
        fails("INVALID_ARGUMENT", "UTF-8", raw, iter([b"\x22\x01\xff"]))

    @case("bytes that are no message are INVALID_ARGUMENT, unknown fields are skipped")
    def _():
        raw = channel.unary_unary("/boxd.api.v1.BoxdApi/ListVms")
        fails("INVALID_ARGUMENT", "", raw, b"\x0a\xff\xff\xff\xff\x0f")
        raw(b"\xf8\xff\x01\x05")

    @case("calls that do not exist here are UNIMPLEMENTED and name themselves")
    def _():
        for name in ("ForkVm", "CreateSnapshot", "ListOrgs", "NoSuchCall"):
            raw = channel.unary_unary(f"/boxd.api.v1.BoxdApi/{name}")
            fails("UNIMPLEMENTED", f"'{name}'", raw, b"")
        fails("UNIMPLEMENTED", "unknown", channel.unary_unary("/other.Api/X"), b"")
        fails("UNIMPLEMENTED", "'networks'", create, networks=["a"])

    @case("a unary call without a message is refused")
    def _():
        raw = channel.stream_unary("/boxd.api.v1.BoxdApi/GetConfig")
        fails("INVALID_ARGUMENT", "no message", raw, iter([]))

    @case("a privileged machine needs the server's consent")
    def _():
        fails("PERMISSION_DENIED", "--allow-privileged", create, image_ref="privileged:host")


def machines():
    @case("create answers before the machine runs, which then goes through starting")
    def _():
        equal(create(labels={"a": "1"}).status, "pending")
        seen = {get().status}
        wait(lambda: seen.add(get().status) or "running" in seen)
        assert seen <= {"pending", "starting", "running"} and "starting" in seen, seen
        assert get().boot_time_ms > 0 and get().created_at > 0

    @case("a taken name is ALREADY_EXISTS")
    def _():
        fails("ALREADY_EXISTS", "'svc' exists already", create)

    @case("without a name the machine gets a suggested one")
    def _():
        suggested = api.SuggestVmName(pb.SuggestVmNameRequest()).name
        made = create("").name
        assert suggested and made and suggested != made
        destroy(made)

    @case("a machine that fails to start says why")
    def _():
        create("broken-1")
        wait(lambda: get("broken-1").status == "failed")
        need = get("broken-1").requirements[0]
        equal((need.kind, need.met), ("start", False))
        assert "--fail-start" in need.reason
        fails("FAILED_PRECONDITION", "--fail-start", run, "true", machine="broken-1")
        destroy("broken-1")

    @case("a destroyed machine is NOT_FOUND, also while it was starting")
    def _():
        create("short")
        destroy("short")
        fails("NOT_FOUND", "", get, "short")
        fails("NOT_FOUND", "", destroy, "short")

    @case("selectors of ListVms must all match")
    def _():
        names = lambda *s: [m.name for m in api.ListVms(pb.ListVmsRequest(label_selector=s)).vms]
        equal((names("a"), names("a=1"), names("a=2"), names("a", "b")), ([vm], [vm], [], []))
        fails("INVALID_ARGUMENT", "label key", names, "A")

    @case("UpdateVmLabels is one edit, all or nothing")
    def _():
        edit = lambda **k: dict(api.UpdateVmLabels(pb.UpdateVmLabelsRequest(vm=vm, **k)).labels)
        equal(edit(set={"b": "2"}, remove=["a", "zz"]), {"b": "2"})
        fails("INVALID_ARGUMENT", "", edit, set={"c": "3", "BAD": ""})
        fails("INVALID_ARGUMENT", "replace_all", edit, remove=["b"], replace_all=True)
        equal(dict(get().labels), {"b": "2"})

    @case("a suspended machine is frozen, and exec wakes it")
    def _():
        run("(while sleep 0.02; do date +%s%N; done) > ticks 2>&1 &")
        time.sleep(0.2)
        api.SuspendVm(pb.SuspendVmRequest(vm_id=vm))
        equal(get().status, "suspended")
        time.sleep(0.6)
        equal(run("echo awake"), (b"awake\n", b"", 0))
        equal(get().status, "running")
        time.sleep(0.2)
        ticks = [int(t) for t in run("cat ticks")[0].split()]
        gap = max(b - a for a, b in zip(ticks, ticks[1:])) / 1e9
        assert 0.5 < gap < 5, gap

    @case("commands of a machine that is stopped under them are ABORTED")
    def _():
        create("halt")
        sleeping = Exec("echo up; sleep 600", machine="halt")
        equal(next(sleeping.call).data, b"up\n")
        api.StopVm(pb.StopVmRequest(vm_id="halt"))
        fails("ABORTED", "stopped", lambda: list(sleeping.call))
        fails("FAILED_PRECONDITION", "start it first", run, "true", machine="halt")
        api.StartVm(pb.StartVmRequest(vm_id="halt"))
        equal(run("echo on", machine="halt")[0], b"on\n")
        destroy("halt")

    @case("SetDeleteAfter deletes the machine when the time has come")
    def _():
        create("lease")
        after = lambda **k: api.SetDeleteAfter(pb.SetDeleteAfterRequest(vm_id="lease", **k)).delete_at_ms
        assert after(delete_after_secs=3600) > time.time() * 1000 + 3_500_000
        fails("INVALID_ARGUMENT", "exclude", after, delete_after_secs=1, delete_after_cron="* * * * *")
        fails("INVALID_ARGUMENT", "cron", after, delete_after_cron="soon")
        assert 0 < after(delete_after_cron="* * * * *") - time.time() * 1000 <= 60_000
        equal(after(), 0)
        after(delete_after_secs=1)
        wait(lambda: "lease" not in [m.name for m in api.ListVms(pb.ListVmsRequest()).vms])

    @case("an idle machine is suspended after its timeout")
    def _():
        create("idle", config=pb.VmConfig(srf=pb.SrfConfig(auto_suspend_timeout_secs=1)))
        wait(lambda: get("idle").status == "suspended")
        equal(run("echo hi", machine="idle")[0], b"hi\n")
        destroy("idle")

    @case("a machine outlives the killing of all that it may kill")
    def _():
        run("sudo -n sh -c 'kill -9 1; kill -9 -1'")
        equal(run("echo alive")[0], b"alive\n")


# ---- exec ------------------------------------------------------------------------------------------


def execs():
    @case("exit codes and signals are told")
    def _():
        for command, code in (("true", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143),
                              ("missing-command", 127), ("/etc", 126)):
            equal((command, run(command)[2]), (command, code))

    @case("stdin arrives whole and in order, half-close is its end")
    def _():
        data = os.urandom(3 << 20)
        stream = Exec("cat", keep=True)
        for i in range(0, len(data), 100_000):
            stream.send(data[i:i + 100_000])
        equal(stream.finish()[0] == data, True)

    @case("input in the first message counts")
    def _():
        equal(run("cat", stdin=True, data=b"early")[0], b"early")

    @case("the last chunk carries the exit code, also without output")
    def _():
        chunks = list(Exec("exit 9").call)
        equal(chunks[-1].exit_code, 9)
        equal(len(list(Exec("true").call)) >= 1, True)

    @case("all output before the end arrives, and a background process is not waited for")
    def _():
        start = time.monotonic()
        out, _, code = run("head -c 3000000 /dev/zero; sleep 30 & exit 4")
        equal((len(out), code), (3_000_000, 4))
        assert time.monotonic() - start < 10

    @case("an empty command is refused")
    def _():
        fails("INVALID_ARGUMENT", "command is empty", run, "")

    @case("cancelling kills the command's grandchildren, also those that ignore TERM")
    def _():
        stream = Exec("sh -c 'trap \"\" TERM; sleep 4711 & sleep 4711 & wait' & echo up; wait", keep=True)
        equal(next(stream.call).data, b"up\n")
        wait(lambda: processes("^sleep 471[1]") == 2)
        stream.call.cancel()
        wait(lambda: processes("^sleep 471[1]") == 0)

    @case("a deadline kills the command as a cancel does")
    def _():
        try:
            list(api.Exec(iter([pb.ExecChunk(vm_id=vm, command="sleep 4712")]), timeout=0.5))
        except grpc.RpcError as error:
            equal(error.code().name, "DEADLINE_EXCEEDED")
        wait(lambda: processes("^sleep 471[2]") == 0)

    @case("a slow reader slows the command down and costs no memory")
    def _():
        before = server_memory()
        stream = Exec("yes")
        next(stream.call)
        time.sleep(1.5)
        assert server_memory() - before < factor * (16 << 20), server_memory() - before
        stream.call.cancel()
        wait(lambda: processes("^ye[s]") == 0)

    @case("a command that reads slowly slows its client down and costs no memory")
    def _():
        before = server_memory()
        sent = [0]

        def requests():
            yield pb.ExecChunk(vm_id=vm, command="read x; exec sleep 4713")
            while sent[0] < 256:
                sent[0] += 1
                yield pb.ExecChunk(stdin=True, data=b"x" * 1_000_000 if sent[0] > 1 else b"go\n")

        call = api.Exec(requests())
        time.sleep(1.5)
        assert sent[0] < 200, "the client was not slowed down"
        assert server_memory() - before < factor * (24 << 20), server_memory() - before
        call.cancel()

    @case("32 commands run at once, each with its own output")
    def _():
        streams = [Exec(f"read x; echo {i} $x", keep=True) for i in range(32)]
        for i, stream in enumerate(streams):
            stream.send(b"a%d\n" % i)
        equal([s.finish() for s in streams], [(b"%d a%d\n" % (i, i), b"", 0) for i in range(32)])

    @case("a terminal merges the outputs, has a size and ends with its shell")
    def _():
        stream = Exec("tty; stty size; echo err >&2; read x; echo $x; exit 3", keep=True, tty=True,
                      cols=90, rows=20)
        stream.send(b"typed\n")
        out, err, code = stream.finish()
        lines = out.decode().replace("\r", "").split("\n")
        assert {"/dev/pts/0", "20 90", "err", "typed"} <= set(lines), lines
        equal((err, code), (b"", 3))

    @case("a terminal's end of input is a character, its close a hang-up")
    def _():
        equal(Exec("cat; echo over", tty=True).finish()[2], 0)
        stream = Exec("echo up; sleep 4714", keep=True, tty=True)
        next(stream.call)
        stream.call.cancel()
        wait(lambda: processes("^sleep 471[4]") == 0)


# ---- files -----------------------------------------------------------------------------------------


def files():
    upload = lambda *chunks: api.UploadFileStream(iter([pb.UploadFileChunk(**c) for c in chunks]))

    def download(path):
        chunks = list(api.DownloadFileStream(pb.DownloadFileRequest(vm_id=vm, path=path)))
        return b"".join(c.data for c in chunks), {c.total_size for c in chunks}

    @case("streamed files keep their bytes and tell their size")
    def _():
        data = os.urandom(5 << 20)
        head = dict(vm_id=vm, path="f", total_size=len(data))
        parts = [dict(data=data[i:i + 300_000]) for i in range(0, len(data), 300_000)]
        equal(upload(head, *parts).bytes_written, len(data))
        equal(download("f") == (data, {len(data)}), True)
        equal(upload(dict(vm_id=vm, path="e", total_size=0)).bytes_written, 0)
        equal(download("e"), (b"", {0}))

    @case("an upload that is shorter or longer than it said is refused")
    def _():
        head = dict(vm_id=vm, path="f", total_size=3)
        fails("INVALID_ARGUMENT", "before its total_size", upload, head, dict(data=b"ab"))
        fails("INVALID_ARGUMENT", "longer than its total_size", upload, head, dict(data=b"abcd"))
        fails("INVALID_ARGUMENT", "longer", upload, dict(vm_id=vm, path="f", data=b"x"))

    @case("the calls without streams work up to 4 MiB")
    def _():
        run("head -c 5000000 /dev/zero > f2")
        api.UploadFile(pb.UploadFileRequest(vm_id=vm, path="u", data=b"abc"))
        once = lambda path: api.DownloadFile(pb.DownloadFileRequest(vm_id=vm, path=path)).data
        equal(once("u"), b"abc")
        assert len(once("/proc/self/status")) > 100
        fails("RESOURCE_EXHAUSTED", "DownloadFileStream", once, "f2")

    @case("a FIFO, a device and a directory neither block nor pass for a file")
    def _():
        run("mkfifo p; mkdir -p dir")
        for path, words in ("p", "not a regular file"), ("/dev/zero", "not a regular"), ("dir", "a directory"):
            fails("FAILED_PRECONDITION", words, download, path)
            fails("FAILED_PRECONDITION", "", api.UploadFile, pb.UploadFileRequest(vm_id=vm, path=path))

    @case("no path leads out of the machine")
    def _():
        run("ln -s ../../../../../../../../../etc/hostname way-out")
        equal(download("way-out")[0], b"svc\n")
        equal(download("../../../../../../etc/hostname")[0], b"svc\n")

    @case("awkward names are kept, and those that are not UTF-8 are readable")
    def _():
        run("mkdir n; cd n; touch -- '-dash' 'a b' '$HOME' \"$(printf 'x\\377y')\"")
        names = [e.name for e in api.ListDir(pb.ListDirRequest(vm_id=vm, path="n")).entries]
        equal(sorted(names), sorted(["-dash", "a b", "$HOME", "x\ufffdy"]))

    @case("a listing of very many entries is cut and says so")
    def _():
        run("mkdir many; cd many; seq 12000 | xargs touch")
        listing = api.ListDir(pb.ListDirRequest(vm_id=vm, path="many"))
        assert listing.truncated and 5000 < len(listing.entries) <= 10000

    @case("rename replaces a file and refuses a full directory")
    def _():
        rename = lambda a, b: api.RenamePath(pb.RenamePathRequest(vm_id=vm, old_path=a, new_path=b))
        run("echo 1 > a; echo 2 > b; mkdir -p d1 d2/x; touch d2/x/y")
        rename("a", "b")
        equal(download("b")[0], b"1\n")
        fails("FAILED_PRECONDITION", "is a directory", rename, "b", "d2")
        fails("FAILED_PRECONDITION", "not empty", rename, "d1", "d2")
        fails("NOT_FOUND", "", rename, "missing", "x")
        fails("INVALID_ARGUMENT", "path is empty", rename, "", "x")


# ---- life ------------------------------------------------------------------------------------------


def ten():
    for i in range(10):
        create(f"ten-{i}")
    for i in range(10):
        equal(run("echo ok", machine=f"ten-{i}")[0], b"ok\n")
    print(f"resident with 10 machines: {server_memory() >> 10} KiB")
    for i in range(10):
        destroy(f"ten-{i}")


def leave_running():
    for name in ("ran", "halted"):
        create(name, labels={"of": name})
        equal(run("echo kept > file; setsid sleep 31337 & exit 0", machine=name)[2], 0)
    api.StopVm(pb.StopVmRequest(vm_id="halted"))


def survived():
    equal(get("ran").labels["of"], "ran")
    equal(get("halted").status, "stopped")
    fails("FAILED_PRECONDITION", "start it first", run, "true", machine="halted")
    equal(run("cat file", machine="ran")[0], b"kept\n")
    equal(get("ran").status, "running")


def tcp():
    def exchange(key):
        request = urllib.request.Request(address + "/api/v1/auth/token", json.dumps({"api_key": key}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, json.load(error), error.headers

    with_token = lambda token: api.GetConfig(pb.GetConfigRequest(), metadata=[("authorization", token)])
    fails("UNAUTHENTICATED", "token", api.GetConfig, pb.GetConfigRequest())
    for token in ("", "Bearer", "Bearer bxl_" + "0" * 112, "Bearer " + os.environ["KEY"]):
        fails("UNAUTHENTICATED", "token", with_token, token)
    equal(exchange("bxd_wrong")[0], 401)
    status, answer, _ = exchange(os.environ["KEY"])
    equal(status, 200)
    assert 3500 < answer["expires_at"] - time.time() <= 3600
    equal(with_token("Bearer " + answer["token"]).default_image, "host")
    flipped = answer["token"][:-1] + ("0" if answer["token"][-1] != "0" else "1")
    fails("UNAUTHENTICATED", "token", with_token, "Bearer " + flipped)
    for _ in range(28):
        exchange("bxd_wrong")
    status, _, headers = exchange(os.environ["KEY"])
    equal(status, 429)
    assert 0 < int(headers["Retry-After"]) <= 60


if what == "all":
    validation()
    machines()
    execs()
    files()
    destroy()
    done()
globals()[what]()
