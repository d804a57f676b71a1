"""grpcio and urllib as clients of our server (rpc-echo): rpc-client.py PORT TEST [CERT]."""
import hashlib
import json
import os
import random
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

import grpc

port, test = sys.argv[1:3]
cert = sys.argv[3] if len(sys.argv) > 3 else None
options = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
if cert:
    credentials = grpc.ssl_channel_credentials(open(cert, "rb").read())
    channel = grpc.secure_channel("localhost:" + port, credentials, options)
else:
    channel = grpc.insecure_channel("127.0.0.1:" + port, options)


def code_of(call):
    try:
        call()
    except grpc.RpcError as e:
        return e.code(), e.details()
    return grpc.StatusCode.OK, ""


def shapes():
    assert channel.unary_unary("/t/unary")(b"hello", timeout=5) == b"hello"
    assert channel.unary_unary("/t/unary")(b"", timeout=5) == b""
    big = os.urandom(5 << 20)
    assert channel.unary_unary("/t/unary")(big, timeout=20) == big
    assert channel.stream_unary("/t/upload")(iter([b"a", b"b"]), timeout=5).decode() == hashlib.sha256(b"ab").hexdigest()
    assert len(list(channel.unary_stream("/t/download")(b"10 1000", timeout=5))) == 11
    assert list(channel.stream_stream("/t/echo")(iter([b"1", b"22", b""]), timeout=5)) == [b"1", b"22", b""]


def errors():
    got = code_of(lambda: channel.unary_unary("/t/error_headers")(b"", timeout=5))
    assert got == (grpc.StatusCode.NOT_FOUND, "50% of 'ä'\nlost"), got
    got = code_of(lambda: list(channel.unary_stream("/t/error_trailers")(b"", timeout=5)))
    assert got == (grpc.StatusCode.FAILED_PRECONDITION, "after one message"), got
    assert code_of(lambda: channel.unary_unary("/t/what")(b"", timeout=5))[0] == grpc.StatusCode.UNIMPLEMENTED
    got = code_of(lambda: channel.unary_unary("/t/unary")(bytes(17 << 20), timeout=20))
    assert got[0] == grpc.StatusCode.RESOURCE_EXHAUSTED, got
    call = lambda: channel.unary_unary("/t/unary")(b"x" * 1000, timeout=5, compression=grpc.Compression.Gzip)
    assert code_of(call)[0] == grpc.StatusCode.UNIMPLEMENTED
    assert code_of(lambda: channel.unary_unary("/t/never")(b"", timeout=0.3))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert channel.unary_unary("/t/unary")(b"still", timeout=5) == b"still"


def cancel():
    before = int(channel.unary_unary("/t/cancelled")(b""))
    call = channel.stream_stream("/t/never")(iter([b"x"]))
    time.sleep(0.2)
    call.cancel()
    time.sleep(0.2)
    assert int(channel.unary_unary("/t/cancelled")(b"")) == before + 1


def bulk():
    digest = hashlib.sha256()
    blocks = [os.urandom(1 << 20) for _ in range(64)]
    for b in blocks:
        digest.update(b)
    assert channel.stream_unary("/t/upload")(iter(blocks), timeout=60).decode() == digest.hexdigest()
    digest = hashlib.sha256()
    last = b""
    for m in channel.unary_stream("/t/download")(b"64 1048576", timeout=60):
        digest.update(last)
        last = m
    assert last.decode() == digest.hexdigest()


def churn():
    stop, counts, wrong = time.time() + 10, [0], []

    def work(seed):
        r = random.Random(seed)
        while time.time() < stop:
            blocks = [r.randbytes(r.choice((1, 100, 70000))) for _ in range(r.randrange(1, 20))]
            call = channel.stream_stream("/t/echo")(iter(blocks), timeout=30)
            counts[0] += 1
            if r.random() < 0.3:
                next(call)
                call.cancel()
            elif list(call) != blocks:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    print("#", counts[0], "streams,", len(wrong), "wrong")
    assert not wrong and counts[0] > 100


def http():
    base = ("https://localhost:" if cert else "http://127.0.0.1:") + port
    context = ssl.create_default_context(cafile=cert) if cert else None
    get = lambda path, data=None: urllib.request.urlopen(base + path, data, timeout=5, context=context)
    assert json.load(get("/a/b")) == {"method": "GET", "path": "/a/b", "length": 0}
    assert json.load(get("/x", bytes(60000))) == {"method": "POST", "path": "/x", "length": 60000}
    try:
        get("/busy")
        raise AssertionError("429 expected")
    except urllib.error.HTTPError as e:
        assert e.code == 429 and e.headers["Retry-After"] == "7"
    try:
        get("/x", bytes(70000))
        raise AssertionError("413 expected")
    except urllib.error.HTTPError as e:
        assert e.code == 413


{"shapes": shapes, "errors": errors, "cancel": cancel, "bulk": bulk, "churn": churn, "http": http}[test]()
