"""sdk.py URL: drives a server with the public SDK, as its documentation says; BOXD_API_KEY is set."""

import os
import sys

import boxd
from boxd import Boxd
from cases import case, done, equal

url = sys.argv[1]


def raises(kind, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


client = Boxd(base_url=url)
machines = client.machines
files = machines.files
vm = "sdk-1"


@case("whoami tells the account")
def _():
    assert client.account.get().user_id
    equal(client.account.config().default_image, "host")


@case("create with labels answers before the machine runs")
def _():
    machine = machines.create(vm, labels={"team": "a", "kind": "test"}, vcpu=1, env={"MADE": "by sdk"})
    equal(machine.name, vm)
    assert machine.status in ("pending", "starting", "running"), machine.status
    equal(machine.labels, {"team": "a", "kind": "test"})


@case("wait_until_ready returns a running machine")
def _():
    equal(machines.wait_until_ready(vm, timeout=60, poll_interval=0.05).status, "running")


@case("get finds a machine by its name and by its id")
def _():
    by_name = machines.get(vm)
    equal(machines.get(by_name.id).name, vm)
    equal((by_name.resources.vcpu, by_name.resources.memory_bytes), (1, 4 << 30))
    equal(by_name.restart_policy, "always")


@case("list filters by label")
def _():
    equal([m.name for m in machines.list(labels={"team": "a"})], [vm])
    equal([m.name for m in machines.list(labels=["kind"])], [vm])
    equal(machines.list(labels={"team": "b"}), [])


@case("exec gives output, errors and the exit code apart")
def _():
    result = machines.exec(vm, "echo out; echo err >&2; exit 7")
    equal((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 7))


@case("exec takes env, cwd and a list of words")
def _():
    equal(machines.exec(vm, "pwd; echo $A", cwd="/usr", env={"A": "1 2"}).stdout.split("\n")[0], "/usr")
    equal(machines.exec(vm, ["sh", "-c", 'echo "$A"'], env={"A": "a 'b'"}).stdout, "a 'b'\n")
    equal(machines.exec(vm, ["printf", "%s|", "a b", "$HOME", "'"]).stdout, "a b|$HOME|'|")
    equal(machines.exec(vm, "true", cwd="/missing").exit_code != 0, True)


@case("the environment given at create is every command's")
def _():
    equal(machines.exec(vm, 'echo "$MADE"').stdout, "by sdk\n")


@case("commands run as boxd at home, and sudo works without asking")
def _():
    equal(machines.exec(vm, "id -u; id -un; pwd").stdout, "1000\nboxd\n/home/boxd\n")
    equal(machines.exec(vm, "sudo -n id -u").stdout, "0\n")


@case("exec that is given no input does not wait for any")
def _():
    equal(machines.exec(vm, "cat; echo end").stdout, "end\n")


@case("stream_exec sends stdin and ends with the exit code")
def _():
    with machines.stream_exec(vm, command="while read x; do echo got $x; done; exit 5") as stream:
        stream.write("a\n")
        output = iter(stream)
        equal(next(output), b"got a\n")
        stream.write("b\n")
        stream.write_eof()
        equal(b"".join(output), b"got b\n")
        equal(stream.exit_code, 5)


@case("stream_exec gives a terminal of the asked size, and resizes it")
def _():
    command = "tty; stty size; read x; stty size; echo $x"
    with machines.stream_exec(vm, command=command, tty=True, cols=100, rows=40) as stream:
        seen = b""
        for chunk in stream:
            seen += chunk
            if b"40 100" in seen and b"50 120" not in seen and not stream._closed:
                stream.resize(120, 50)
                stream.write(b"typed\n")
                stream.write_eof()
        lines = seen.decode().replace("\r", "").split("\n")
        assert lines[0].startswith("/dev/pts/"), seen
        assert "50 120" in lines and lines.count("typed") == 2, seen
        equal(stream.exit_code, 0)


@case("closing a stream kills the command and its children")
def _():
    with machines.stream_exec(vm, command="sleep 4242 & sleep 4242 & echo up; wait") as stream:
        equal(next(iter(stream)), b"up\n")
    left = "for i in 1 2 3 4 5 6; do pgrep -f 'sleep 424[2]' || exit 0; sleep 0.5; done; exit 1"
    equal(machines.exec(vm, left).exit_code, 0)


@case("20 MiB go up and come down unchanged")
def _():
    data = os.urandom(20 << 20)
    equal(files.upload(vm, "/home/boxd/big", data), len(data))
    equal(files.download(vm, "/home/boxd/big") == data, True)


@case("paths may be relative to the home, and files empty")
def _():
    equal(files.upload(vm, "note", "text\n"), 5)
    equal(files.download(vm, "/home/boxd/note"), b"text\n")
    equal(files.upload(vm, "empty", b""), 0)
    equal(files.download(vm, "empty"), b"")
    equal(files.upload(vm, "-n", "dash"), 4)
    equal(files.download(vm, "-n"), b"dash")


@case("mkdir, list_dir, rename, copy and delete work on files and directories")
def _():
    files.mkdir(vm, "d")
    files.upload(vm, "d/a b", "1")
    machines.exec(vm, "ln -s a\\ b d/link; chmod 640 'd/a b'; printf x > \"d/new\nline\"")
    entries = {e.name: e for e in files.list_dir(vm, "d").entries}
    equal(sorted(entries), ["a b", "link", "new\nline"])
    equal((entries["a b"].size_bytes, entries["a b"].permissions), (1, "-rw-r-----"))
    equal([e.name for e in files.list_dir(vm, ".").entries if e.is_dir], ["d"])
    files.copy(vm, "d", "copy")
    files.rename(vm, "d", "moved")
    equal(files.download(vm, "copy/a b"), files.download(vm, "moved/a b"))
    files.delete(vm, "moved")
    raises(boxd.NotFoundError, files.list_dir, vm, "moved")
    equal(files.list_dir(vm, "copy").truncated, False)


@case("file calls fail with the reason")
def _():
    assert "'./missing' does not exist" in str(raises(boxd.NotFoundError, files.download, vm, "missing"))
    raises(boxd.NotFoundError, files.upload, vm, "no/parent", "x")
    raises(boxd.NotFoundError, files.delete, vm, "missing")
    raises(boxd.ConflictError, files.mkdir, vm, "copy")
    raises(boxd.ConflictError, files.download, vm, "copy")
    raises(boxd.PermissionDeniedError, files.upload, vm, "/etc/passwd", "x")


@case("update_labels sets, removes and replaces")
def _():
    equal(machines.update_labels(vm, set={"team": "b"}, remove=["kind"]), {"team": "b"})
    equal(machines.update_labels(vm, set={"x": ""}, replace_all=True), {"x": ""})
    equal(machines.get(vm).labels, {"x": ""})


@case("pause freezes the machine, resume and exec wake it")
def _():
    machines.pause(vm)
    equal(machines.get(vm).status, "suspended")
    machines.resume(vm)
    equal(machines.get(vm).status, "running")
    machines.pause(vm)
    equal(machines.exec(vm, "echo awake").stdout, "awake\n")
    equal(machines.get(vm).status, "running")


@case("stop, start and reboot keep the files")
def _():
    machines.stop(vm)
    equal(machines.get(vm).status, "stopped")
    assert "start it first" in str(raises(boxd.ConflictError, machines.exec, vm, "true"))
    machines.start(vm)
    equal(files.download(vm, "note"), b"text\n")
    machines.reboot(vm)
    equal(files.download(vm, "note"), b"text\n")


@case("set_delete_after tells the time and is cleared")
def _():
    assert machines.set_delete_after(vm, 3600) is not None
    assert machines.set_delete_after(vm, cron="0 3 * * *") is not None
    equal(machines.set_delete_after(vm, 0), None)


@case("what boxd-local does not have says so")
def _():
    error = raises(boxd.BoxdError, machines.hibernate, vm)
    equal((error.code, "HibernateVm" in str(error)), ("unimplemented", True))


@case("a taken name is a conflict, a wrong key is an authentication error")
def _():
    raises(boxd.ConflictError, machines.create, vm)
    with Boxd(base_url=url, api_key="bxd_wrong") as other:
        raises(boxd.AuthenticationError, other.machines.list)
    with Boxd(base_url=url, token="bxl_wrong") as other:
        raises(boxd.AuthenticationError, other.machines.list)


@case("a deleted machine is gone")
def _():
    machines.delete(vm)
    raises(boxd.NotFoundError, machines.get, vm)
    equal(machines.list(), [])


client.close()
done()
