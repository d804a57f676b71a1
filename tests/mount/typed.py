"""tests/mount/typed.py COMMAND READY: types Ctrl-C at COMMAND, which runs in bash on a terminal of its
own, as soon as the shell line READY succeeds; prints the seconds from there to its end."""
import os
import pty
import select
import subprocess
import sys
import time

pid, terminal = pty.fork()
if pid == 0:
    os.execvp("bash", ["bash", "-c", sys.argv[1]])
end = time.monotonic() + 20
while subprocess.run(["bash", "-c", sys.argv[2]], stderr=subprocess.DEVNULL).returncode:
    if time.monotonic() > end:
        sys.exit("the command never got ready")
    time.sleep(0.02)
start = time.monotonic()
os.write(terminal, b"\x03")
while time.monotonic() - start < 30:
    if select.select([terminal], [], [], 0.01)[0]:
        try:
            os.read(terminal, 4096)
        except OSError:
            pass
    if os.waitpid(pid, os.WNOHANG)[0]:
        print("%.3f" % (time.monotonic() - start))
        sys.exit(0)
os.kill(pid, 9)
sys.exit("still running 30 s after Ctrl-C")
