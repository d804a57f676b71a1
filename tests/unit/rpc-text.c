/* What the transport reads and writes as text or bytes, without a connection: addresses, statuses,
 * time-outs, gRPC's framing, HTTP/1.1. */
#include "base/base.h"

#include <boxd/error.h>

#include "base/buf.h"
#include "base/str.h"
#include "rpc/frame.h"
#include "rpc/http1.h"
#include "rpc/rpc.h"
#include "rpc/status.h"
#include "tap.h"

static const struct {
    const char *address, *host;
    unsigned port;
    bool tls, is_unix;
} addresses[] = {
    { "http://box:99", "box", 99, false, false },
    { "https://boxd.sh:9443", "boxd.sh", 9443, true, false },
    { "https://boxd.sh/", "boxd.sh", 443, true, false },
    { "boxd.sh:9443", "boxd.sh", 9443, true, false },
    { "localhost:1", "localhost", 1, false, false },
    { "127.0.0.1:50051", "127.0.0.1", 50051, false, false },
    { "http://[::1]:8080", "::1", 8080, false, false },
    { "[2001:db8::1]:9443", "2001:db8::1", 9443, true, false },
    { "unix:/run/s", "/run/s", 0, false, true },
    { "unix:///run/s", "/run/s", 0, false, true },
};

static const char *const bad_addresses[] = {
    "",           "http://",   "http://:80",   "http://a:0", "http://a:65536",
    "http://a:x", "http://a:", "http://[::1",  "http://a/b", "http://a b:1",
    "unix:s",     "unix:",     "http://a:1:2", "ftp://a:1",  "http://[::1]x",
    "a\nb:1",
};

static void test_addresses(void)
{
    struct rpc_target target;
    char path[300];

    t("an address becomes host, port and transport by the scheme rule");
    for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
        ok(rpc_target_parse(addresses[i].address, &target) == 0);
        ok_str(target.host, addresses[i].host);
        ok_str(target.text, addresses[i].address);
        ok(target.is_unix || target.port == addresses[i].port);
        ok(target.tls == addresses[i].tls && target.is_unix == addresses[i].is_unix);
        rpc_target_clear(&target);
    }
    t("a malformed address is refused with words that name it");
    for (size_t i = 0; i < ARRAY_LEN(bad_addresses); i++) {
        ok(rpc_target_parse(bad_addresses[i], &target) == -EINVAL);
        ok(strstr(boxd_error_words(-EINVAL), bad_addresses[i]) != NULL);
    }
    t("a path too long for a unix socket is refused");
    memset(path, 'x', sizeof path);
    memcpy(path, "unix:/", 6);
    path[sizeof path - 1] = '\0';
    ok(rpc_target_parse(path, &target) == -EINVAL);
}

static const char *decoded(const char *text)
{
    static struct buf out;

    buf_clear(&out);
    ok(status_decode_message(&out, text, strlen(text)) == 0);
    ok(utf8_valid(buf_str(&out), out.len));
    return buf_str(&out);
}

static void test_messages(void)
{
    _cleanup_buf_ struct buf out = { 0 };
    char big[3 * STATUS_MESSAGE_MAX];

    t("a grpc-message survives encoding and decoding");
    ok(status_encode_message(&out, "50% of 'ä'\n") == 0);
    ok_str(buf_str(&out), "50%25 of '%C3%A4'%0A");
    ok_str(decoded(buf_str(&out)), "50% of 'ä'\n");
    t("a hostile grpc-message becomes valid text");
    ok_str(decoded("%ff%zz%4"), "?%zz%4");
    ok_str(decoded("a%00b%1b[2J%7f"), "a?b?[2J?");
    ok_str(decoded("%C3"), "?");
    ok_str(decoded("%ED%A0%80"), "???");
    t("an endless grpc-message is cut at a character");
    for (size_t i = 0; i + 2 < sizeof big; i += 2)
        memcpy(big + i, "\xc3\xa4", 2);
    big[sizeof big - 2] = '\0';
    ok(strlen(decoded(big)) == STATUS_MESSAGE_MAX);
    buf_clear(&out);
    ok(status_encode_message(&out, big) == 0 && out.len < 8192);
}

static void test_statuses(void)
{
    char text[16];
    uint64_t ms;

    t("statuses out of range are UNKNOWN");
    ok(status_parse("5") == RPC_NOT_FOUND);
    ok(status_parse("17") == RPC_UNKNOWN && status_parse("-1") == RPC_UNKNOWN);
    ok(status_parse("") == RPC_UNKNOWN && status_parse("5x") == RPC_UNKNOWN);
    ok_str(rpc_code_name((enum rpc_code)99), "UNKNOWN");
    t("a time-out survives writing and reading, and malformed ones are refused");
    timeout_format(text, 1500);
    ok_str(text, "1500m");
    ok(timeout_parse("1500m", &ms) == 0 && ms == 1500);
    timeout_format(text, UINT64_MAX);
    ok(strlen(text) <= 9 && timeout_parse(text, &ms) == 0 && ms == UINT32_MAX);
    ok(timeout_parse("1n", &ms) == 0 && ms == 1);
    ok(timeout_parse("2H", &ms) == 0 && ms == 7200000);
    ok(timeout_parse("", &ms) < 0 && timeout_parse("5", &ms) < 0 && timeout_parse("m", &ms) < 0);
    ok(timeout_parse("5x", &ms) < 0 && timeout_parse("123456789m", &ms) < 0);
}

static void test_framing(void)
{
    static const uint8_t compressed[] = { 1, 0, 0, 0, 1, 'x' };
    static const size_t lengths[] = { 5, 0, 1, 0 };
    static const uint8_t huge[] = { 0, 0xff, 0xff, 0xff, 0xff };
    struct frame_in in = { 0 };
    struct frame_out out;
    const uint8_t *message;
    uint8_t wire[64];
    size_t length, n, found = 0;

    t("messages come out of the stream however it is cut");
    frame_out_init(&out);
    ok(frame_out_add(&out, "hello", 5) == 0 && frame_out_add(&out, NULL, 0) == 0);
    ok(frame_out_add(&out, "x", 1) == 0 && out.queued == 21);
    n = frame_out_take(&out, wire, 7);
    n += frame_out_take(&out, wire + n, sizeof wire - n);
    ok(n == 21 && !out.queued && !out.head);
    for (size_t i = 0; i < n; i++) {
        ok(frame_in_feed(&in, wire + i, 1, &message, &length) == 1);
        if (message)
            ok(length == lengths[found++]);
    }
    ok(found == 3 && !frame_in_partial(&in));
    ok(frame_in_feed(&in, wire, 4, &message, &length) == 4 && frame_in_partial(&in));
    frame_in_clear(&in);
    t("compressed and oversize messages are refused before they are stored");
    ok(frame_in_feed(&in, compressed, sizeof compressed, &message, &length) == -EPROTO);
    frame_in_clear(&in);
    ok(frame_in_feed(&in, huge, sizeof huge, &message, &length) == -EMSGSIZE && !in.body.cap);
    ok(frame_out_add(&out, wire, (size_t)RPC_MESSAGE_MAX + 1) == -EMSGSIZE);
    frame_in_clear(&in);
    frame_out_clear(&out);
}

static const struct {
    const char *text;
    int result;
} requests[] = {
    { "GET / HTTP/1.1\r\n\r\n", 1 },
    { "POST /x HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", 1 },
    { "POST /x HTTP/1.1\r\ncontent-length:3 \r\n\r\nab", 0 },
    { "GET / HTTP/1.1\r\n", 0 },
    { "GET / HTTP/1.1\n\n", 0 },
    { "GET  HTTP/1.1\r\n\r\n", -400 },
    { "GET http://x/ HTTP/1.1\r\n\r\n", -400 },
    { "GET / HTTP/3\r\n\r\n", -505 },
    { "PUT / HTTP/1.1\r\n\r\n", -405 },
    { "GET / HTTP/1.1\r\nnonsense\r\n\r\n", -400 },
    { "GET / HTTP/1.1\r\n folded: x\r\n\r\n", -400 },
    { "GET / HTTP/1.1\r\na b: x\r\n\r\n", -400 },
    { "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", -501 },
    { "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", -400 },
    { "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", -400 },
    { "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", -400 },
    { "POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n", -413 },
    { "\r\n\r\n", -400 },
};

static void test_http(void)
{
    struct http1 h = { 0 };
    char many[HTTP1_HEAD_MAX + 1];

    t("HTTP/1.1 requests are whole, unfinished or refused with a status");
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        const char *text = requests[i].text;
        int r = http1_feed(&h, (const uint8_t *)text, strlen(text));

        if (!ok(r == requests[i].result))
            printf("# request %zu gave %d\n", i, r);
        http1_clear(&h);
    }
    t("a request that comes byte by byte has its method, path and body");
    for (const char *c = requests[1].text; *c; c++)
        ok(http1_feed(&h, (const uint8_t *)c, 1) == !c[1]);
    ok_str(h.method, "POST");
    ok_str(h.path, "/x");
    ok(h.body_len == 3 && !memcmp(http1_body(&h), "abc", 3));
    http1_clear(&h);
    t("endless headers are refused");
    memset(many, 'x', sizeof many);
    ok(http1_feed(&h, (const uint8_t *)many, sizeof many) == -431);
    http1_clear(&h);
}

int main(void)
{
    test_addresses();
    test_messages();
    test_statuses();
    test_framing();
    test_http();
    return tap_done();
}
