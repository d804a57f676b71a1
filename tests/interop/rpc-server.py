"""A grpcio server with raw bytes for messages: the peer of rpc-client.c. Prints its ports, one a line.

rpc-server.py [CERT KEY]: ports of a plain server, one whose connections live 1.5 s, one that stops
when asked, and, with a certificate, one with TLS."""
import hashlib
import os
import sys
import threading
import time
from concurrent import futures

import grpc

cancelled = 0
flaky_seen = 0
lock = threading.Lock()


def unary(request, context):
    return request


def upload(requests, context):
    digest = hashlib.sha256()
    for r in requests:
        digest.update(r)
    return digest.hexdigest().encode()


def download(request, context):
    """COUNT SIZE: that many messages, then one with the digest of all."""
    count, size = map(int, request.split())
    digest = hashlib.sha256()
    block = os.urandom(size)
    for i in range(count):
        digest.update(block)
        yield block
    yield digest.hexdigest().encode()


def echo(requests, context):
    for r in requests:
        yield r


def slow(requests, context):
    for r in requests:
        time.sleep(0.2)
        yield r


def error_headers(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "50% of 'ä'\nlost")


def error_trailers(request, context):
    yield b"first"
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "after one message")


def never(requests, context):
    global cancelled
    done = threading.Event()
    context.add_callback(done.set)
    done.wait()
    with lock:
        cancelled += 1
    yield b""


def count_cancelled(request, context):
    return str(cancelled).encode()


def flaky(request, context):
    global flaky_seen
    with lock:
        flaky_seen += 1
        first = flaky_seen % 2 == 1
    if first:
        context.abort(grpc.StatusCode.UNAVAILABLE, "try again")
    return request


def big(request, context):
    return bytes(17 << 20)


def meta(request, context):
    context.send_initial_metadata((("x-more", "1"), ("x-more-bin", b"\0\1\2")))
    context.set_trailing_metadata((("x-last", "2"), ("x-last-bin", b"\xff")))
    return dict(context.invocation_metadata()).get("x-test", "").encode()


def handlers(server_box):
    def stop(request, context):
        server_box[0].stop(10)
        return b""

    rpc = {
        "unary": grpc.unary_unary_rpc_method_handler(unary),
        "upload": grpc.stream_unary_rpc_method_handler(upload),
        "download": grpc.unary_stream_rpc_method_handler(download),
        "echo": grpc.stream_stream_rpc_method_handler(echo),
        "slow": grpc.stream_stream_rpc_method_handler(slow),
        "error_headers": grpc.unary_unary_rpc_method_handler(error_headers),
        "error_trailers": grpc.unary_stream_rpc_method_handler(error_trailers),
        "never": grpc.stream_stream_rpc_method_handler(never),
        "cancelled": grpc.unary_unary_rpc_method_handler(count_cancelled),
        "flaky": grpc.unary_unary_rpc_method_handler(flaky),
        "big": grpc.unary_unary_rpc_method_handler(big),
        "meta": grpc.unary_unary_rpc_method_handler(meta),
        "stop": grpc.unary_unary_rpc_method_handler(stop),
    }
    return grpc.method_handlers_generic_handler("t", rpc)


def serve(credentials=None, options=()):
    box = []
    options = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)) + options
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=150), options=options)
    box.append(server)
    server.add_generic_rpc_handlers((handlers(box),))
    if credentials:
        port = server.add_secure_port("localhost:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    return server


servers = [serve(), serve(options=(("grpc.max_connection_age_ms", 1500),)), serve()]
if len(sys.argv) > 2:
    cert, key = (open(p, "rb").read() for p in sys.argv[1:3])
    servers.append(serve(grpc.ssl_server_credentials([(key, cert)])))
print("ready", flush=True)
sys.stdin.read()  # until the test closes it
os._exit(0)
