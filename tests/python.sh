# tests/python.sh: the Python of the tests that drive a server or a client with grpcio or the public
# SDK. Sourced after tests/lib.sh; sets $python. The packages are those of tests/requirements.txt, in
# $BOXDFS_TEST_VENV (which tests/run.sh makes) or in an environment of the script's own.

venv=${BOXDFS_TEST_VENV:-$scratch/venv}
python=$venv/bin/python
base_python=python3
[ -x /usr/bin/python3 ] && base_python=/usr/bin/python3
if [ ! -x "$python" ]; then
    "$base_python" -m venv "$venv" &&
        "$venv/bin/pip" install -q -r "$src/tests/requirements.txt" ||
        { echo "# cannot install the Python packages of tests/requirements.txt" && exit 1; }
fi

# cases.py is found by import.
export PYTHONPATH=$src/tests PYTHONDONTWRITEBYTECODE=1

# python_stubs: the messages and calls of core/api/boxd.proto as modules, found by import.
python_stubs() {
    mkdir -p "$scratch/stubs" &&
        "$python" -m grpc_tools.protoc -I "$src/core/api" --python_out="$scratch/stubs" \
            --grpc_python_out="$scratch/stubs" boxd.proto
    PYTHONPATH=$scratch/stubs:$PYTHONPATH
}

# run_python SCRIPT [ARG...]: a script that prints lines of its own cases; they are counted here.
run_python() {
    flush
    "$python" "$@" >"$scratch/tap" 2>"$scratch/tap.err"
    local status=$?

    cat "$scratch/tap"
    sed 's/^/# /' "$scratch/tap.err"
    count=$((count + $(grep -c '^\(not \)\?ok ' "$scratch/tap")))
    failed=$((failed + $(grep -c '^not ok ' "$scratch/tap")))
    t "$(basename "$1") runs to its end"
    is "$status" 0
}
