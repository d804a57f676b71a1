#!/bin/bash
# The public Python SDK, unchanged, against boxd-local over TCP with a key.
# limit: 180
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../python.sh"

# Names of what a boxd-local of ours leaves in the kernel when it does not clean up.
traces() {
    pids_of_program boxd-local
    mounts_below "$scratch"
    find /sys/fs/cgroup -depth -type d -path "*boxd-local-$server*" 2>/dev/null
}

t "a server on TCP makes a private key and says where"
start_local --listen 127.0.0.1:0
url=$(grep http "$scratch/ready")
is "$(stat -c %a "$home/local/key")" 600
ok grep -qF "$home/local/key" "$scratch/server.out"

BOXD_API_KEY=$(cat "$home/local/key") run_python "$src/tests/interop/sdk.py" "$url"

t "the server ends on SIGTERM and leaves no process, mount or socket"
stop_local
until_true 10 test ! -e "$home/s"
is "$(traces)" ""
ok test ! -e "$home/s"
finish
