#!/bin/bash
# tests/interop/rpc.sh BUILD_DIR: our gRPC client and server against grpcio's.
. "$(dirname "$0")/../lib.sh"
programs=$(cd "$1" && pwd)/tests/interop
here=$src/tests/interop
venv=${BOXDFS_TEST_VENV:-$scratch/venv}
soak=${BOXDFS_CHURN_SECONDS:-30}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import grpc' 2>/dev/null ||
    "$venv/bin/pip" install -q "$(grep ^grpcio== "$src/tests/requirements.txt")"
python=$venv/bin/python

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$scratch/key.pem" \
    -out "$scratch/cert.pem" -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null

# listening FILE COMMAND...: a server whose standard input is ours to close; $! is its process.
servers=()
listening() {
    local out=$1
    shift
    mkfifo "$out.in"
    "$@" <"$out.in" >"$out" 2>"$out.err" &
    servers+=($!)
    exec {held}>"$out.in"
    until_true 20 test -s "$out" -o -S "$out.sock"
}

listening "$scratch/grpcio" "$python" "$here/rpc-server.py" "$scratch/cert.pem" "$scratch/key.pem"
grpcio=${servers[-1]}
until_true 20 grep -q ready "$scratch/grpcio"
mapfile -t port <"$scratch/grpcio"

client() { # client PORT_OR_ADDRESS TEST [ARG]
    run env SSL_CERT_FILE="$scratch/cert.pem" "$programs/rpc-client" "$@"
    succeeds
    [ -z "$out" ] || echo "$out"
}

for transport in plaintext TLS; do
    to=http://127.0.0.1:${port[0]}
    [ $transport = TLS ] && to=https://localhost:${port[3]}
    suffix=$transport
    t "every shape of call works against grpcio"
    client "$to" shapes
    t "errors in headers and in trailers arrive with their words, UNAVAILABLE is followed by success"
    client "$to" errors
    t "a server that never answers meets the deadline"
    client "$to" deadline
    t "cancel reaches the server"
    client "$to" cancel
    t "a stuck reader and a slow stream hold up no other call"
    client "$to" slow
    t "256 MiB go each way unchanged"
    client "$to" bulk
    t "an oversize message is refused and the connection lives on"
    client "$to" oversize
    t "64 streams with random sizes, pauses and cancels for $soak s: no wrong byte, no lost status"
    limit=$((soak + 60)) client "$to" churn "$soak"
done
suffix=
t "a certificate for another name is refused"
run env SSL_CERT_FILE="$scratch/cert.pem" "$programs/rpc-client" "https://127.0.0.1:${port[3]}" untrusted
succeeds
t "a certificate nobody vouches for is refused"
run env -u SSL_CERT_FILE "$programs/rpc-client" "https://localhost:${port[3]}" untrusted
succeeds
t "connections that the server ages out fail no call"
client "http://127.0.0.1:${port[1]}" age
t "a server that stops lets old streams end and new calls know that they never started"
client "http://127.0.0.1:${port[2]}" stop
t "a silent stream outlives our questions whether the server is alive"
client "http://127.0.0.1:${port[0]}" idle 12
t "a stopped server is noticed"
client "http://127.0.0.1:${port[0]}" stopped "$grpcio"

listening "$scratch/plain" "$programs/rpc-echo" tcp
listening "$scratch/tls" "$programs/rpc-echo" tcp "$scratch/cert.pem" "$scratch/key.pem"
for transport in plaintext TLS; do
    suffix=$transport
    args=("$(cat "$scratch/plain")")
    [ $transport = TLS ] && args=("$(cat "$scratch/tls")")
    for promise in "shapes:grpcio's client gets every shape of call from our server" \
        "errors:grpcio's client gets our errors, deadlines and limits" \
        "cancel:grpcio's cancel reaches our server" "bulk:64 MiB go each way unchanged to grpcio" \
        "churn:grpcio's 32 streams with cancels get no wrong byte" \
        "http:plain HTTP/1.1 requests are answered on the same port"; do
        t "${promise#*:}"
        run "$python" "$here/rpc-client.py" "${args[0]}" "${promise%%:*}" \
            $([ $transport = TLS ] && echo "$scratch/cert.pem")
        succeeds
        [ -z "$out" ] || echo "$out"
    done
done
suffix=
listening "$scratch/local" "$programs/rpc-echo" "unix:$scratch/local.sock"
t "64 streams between our own ends for $soak s: no wrong byte, no lost status"
limit=$((soak + 60)) client "unix:$scratch/local.sock" churn "$soak"
t "our own ends move 1 GiB each way"
client "unix:$scratch/local.sock" speed
finish
