/* The gRPC client against the gRPC server, on one loop: over TCP, a unix socket and TLS. */
#include "base/base.h"

#include <sys/stat.h>

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "rpc-peer.h"

/* ---- a server: the path says what a request gets ---- */

struct serving {
    struct rpc_stream *stream;
    const char *path;
    size_t messages;
};

static struct {
    size_t started, ended, cancelled, stored;
    bool half_closed;
} seen;

static void serve_message(void *arg, const uint8_t *data, size_t n)
{
    struct serving *v = arg;

    v->messages++;
    seen.stored += n;
    if (!strcmp(v->path, "/t/echo") && rpc_stream_send(v->stream, data, n) > 1 << 20)
        rpc_stream_pause(v->stream, true);
    if (!strcmp(v->path, "/t/closed"))
        rpc_stream_pause(v->stream, true);
}

static void serve_writable(void *arg)
{
    struct serving *v = arg;

    rpc_stream_pause(v->stream, false);
}

static void serve_half_close(void *arg)
{
    struct serving *v = arg;
    char text[32];

    seen.half_closed = true;
    if (!strcmp(v->path, "/t/count")) {
        snprintf(text, sizeof text, "%zu", v->messages);
        rpc_stream_send(v->stream, text, strlen(text));
    }
    if (strcmp(v->path, "/t/never") != 0)
        rpc_stream_end(v->stream, RPC_OK, NULL);
}

static void serve_end(void *arg, bool cancelled)
{
    seen.ended++;
    seen.cancelled += cancelled;
    free(arg);
}

static const struct rpc_stream_handlers serve_handlers = {
    .message = serve_message,
    .half_close = serve_half_close,
    .writable = serve_writable,
    .end = serve_end,
};

static void serve_start(void *arg, struct rpc_stream *s, const char *path,
                        const char *authorization)
{
    static const char *const paths[] = { "/t/echo", "/t/count", "/t/never", "/t/closed" };
    static uint8_t many[1000];

    seen.started++;
    if (!strcmp(path, "/t/odd")) {
        rpc_stream_end(s, RPC_NOT_FOUND, "50% of 'ä'\nlost");
        return;
    }
    if (!strcmp(path, "/t/early")) { /* an answer before the request is complete */
        for (int i = 0; i < 1000; i++)
            rpc_stream_send(s, many, sizeof many);
        rpc_stream_end(s, RPC_ABORTED, "enough");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct serving *v;

        if (strcmp(path, paths[i]) != 0)
            continue;
        v = calloc(1, sizeof *v);
        if (!v)
            abort();
        v->stream = s;
        v->path = paths[i];
        rpc_stream_accept(s, &serve_handlers, v);
    }
}

static struct rpc_server *serve(int fd, const char *cert, const char *key)
{
    struct rpc_server_options options = { .handlers = { .start = serve_start },
                                          .cert_file = cert,
                                          .key_file = key };
    struct rpc_server *server = NULL;

    ok(rpc_server_new(&loop, &options, &server) == 0);
    ok(rpc_server_listen(server, fd) == 0);
    return server;
}

/* ---- promises about every transport ---- */

static void test_shapes(struct rpc_channel *ch)
{
    struct calling c = { 0 };

    t("a unary call brings one message and OK");
    ok(one(ch, "/t/echo", &c, "hello") == RPC_OK && c.messages == 1);
    ok_str(buf_str(&c.got), "hello");
    t("an empty message is a message");
    ok(one(ch, "/t/echo", &c, "") == RPC_OK && c.messages == 1 && c.got.len == 0);

    t("many messages go up, one comes down");
    start(ch, "/t/count", &c, 0);
    for (int i = 0; i < 1000; i++)
        ok(rpc_call_send(c.call, "x", 1) > 0);
    rpc_call_finish(c.call);
    ok(rpc_call_send(c.call, "x", 1) == 0);
    ok(wait_for(&c.ended) && c.code == RPC_OK);
    ok_str(buf_str(&c.got), "1000");

    t("an error's words arrive as they were written");
    start(ch, "/t/odd", &c, 0);
    ok(wait_for(&c.ended) && c.code == RPC_NOT_FOUND && !c.local);
    ok_str(c.words, "50% of 'ä'\nlost");
    t("an answer that comes before the request is complete arrives whole");
    start(ch, "/t/early", &c, 0);
    ok(wait_for(&c.ended) && c.code == RPC_ABORTED && c.messages == 1000);
    ok_str(c.words, "enough");
    t("an unknown path is UNIMPLEMENTED");
    ok(one(ch, "/t/what", &c, "") == RPC_UNIMPLEMENTED);
    buf_clear(&c.got);
}

static void test_ends(struct rpc_channel *ch)
{
    struct calling c = { 0 };
    size_t before = seen.cancelled;

    t("a deadline ends a call that is never answered, at both ends");
    start(ch, "/t/never", &c, 50);
    ok(wait_for(&c.ended) && c.code == RPC_DEADLINE_EXCEEDED);
    pass_ms(50);
    ok(seen.cancelled == before + 1);
    t("cancel ends a call before it returns, and reaches the server");
    start(ch, "/t/never", &c, 0);
    pass_ms(20);
    rpc_call_cancel(c.call);
    ok(c.ended && c.code == RPC_CANCELLED && c.local);
    pass_ms(20);
    ok(seen.cancelled == before + 2);
    t("a call cancelled before it left is never seen by the server");
    before = seen.started;
    start(ch, "/t/never", &c, 0);
    rpc_call_cancel(c.call);
    ok(c.ended && c.code == RPC_CANCELLED);
    ok(one(ch, "/t/echo", &c, "x") == RPC_OK && seen.started <= before + 2);
    t("a header that HTTP/2 cannot carry ends its own call only");
    {
        struct rpc_header bad = { "authorization", "a\nb" };
        struct rpc_call_spec spec = { .path = "/t/echo",
                                      .headers = &bad,
                                      .header_count = 1,
                                      .handlers = { .end = got_end },
                                      .arg = &c };

        buf_clear(&c.got);
        c = (struct calling){ 0 };
        ok(rpc_call_start(ch, &spec) != NULL && !c.ended);
        ok(wait_for(&c.ended) && c.code == RPC_INTERNAL && c.local);
    }
    buf_clear(&c.got);
}

static void test_pause(struct rpc_channel *ch)
{
    static uint8_t block[64 * 1024];
    struct calling c = { 0 };
    ssize_t queued = 0;

    t("a paused call gets nothing, not even its end, until it is resumed");
    start(ch, "/t/echo", &c, 0);
    rpc_call_pause(c.call, true);
    rpc_call_send(c.call, "x", 1);
    rpc_call_finish(c.call);
    pass_ms(50);
    ok(!c.messages && !c.ended);
    rpc_call_pause(c.call, false);
    ok(!c.messages);
    ok(wait_for(&c.ended) && c.messages == 1 && c.code == RPC_OK);

    t("a reader that pauses holds its sender back, and all arrives when it goes on");
    start(ch, "/t/echo", &c, 0);
    rpc_call_pause(c.call, true);
    for (int i = 0; i < 512; i++) /* 32 MiB: above every window together */
        queued = rpc_call_send(c.call, block, sizeof block);
    pass_ms(300);
    ok(queued > 0 && !c.messages && !c.writables);
    rpc_call_pause(c.call, false);
    for (int i = 0; i < 200 && c.messages < 512; i++)
        pass_ms(20);
    ok(c.messages == 512);
    t("the sender is told once that its queue is low");
    ok(c.writables == 1);
    rpc_call_finish(c.call);
    ok(wait_for(&c.ended) && c.code == RPC_OK);
    buf_clear(&c.got);

    t("a server that pauses is sent no more than a window");
    seen.stored = 0;
    start(ch, "/t/closed", &c, 0);
    for (int i = 0; i < 512; i++)
        rpc_call_send(c.call, block, sizeof block);
    pass_ms(300);
    ok(seen.stored == sizeof block);
    rpc_call_cancel(c.call);
    ok(c.ended);
}

/* No question of liveness comes along to carry the WINDOW_UPDATE. */
static void test_reopened_window(const char *address)
{
    static uint8_t block[64 * 1024];
    const struct rpc_channel_options options = { .ping_interval_ms = 60000 };
    struct rpc_target target;
    struct rpc_channel *ch;
    struct calling c = { 0 };

    t("a window that a resumed reader opens is told at once");
    ok(rpc_target_parse(address, &target) == 0);
    ok(rpc_channel_new(&loop, &target, &options, &ch) == 0);
    start(ch, "/t/echo", &c, 0);
    rpc_call_pause(c.call, true);
    for (int i = 0; i < 512; i++)
        rpc_call_send(c.call, block, sizeof block);
    rpc_call_finish(c.call);
    pass_ms(300);
    rpc_call_pause(c.call, false);
    ok(wait_for(&c.ended) && c.code == RPC_OK && c.messages == 512);
    buf_clear(&c.got);
    rpc_channel_free(ch);
    rpc_target_clear(&target);
}

static void test_limits(struct rpc_channel *ch)
{
    uint8_t *big = calloc(1, RPC_MESSAGE_MAX + 1);
    struct calling c = { 0 };

    t("the largest message goes there and back; a larger one is refused at once");
    start(ch, "/t/echo", &c, 0);
    ok(rpc_call_send(c.call, big, (size_t)RPC_MESSAGE_MAX + 1) == -EMSGSIZE);
    ok(rpc_call_send(c.call, big, RPC_MESSAGE_MAX) > 0);
    rpc_call_finish(c.call);
    ok(wait_for(&c.ended) && c.code == RPC_OK && c.got.len == RPC_MESSAGE_MAX);
    buf_clear(&c.got);
    free(big);
}

static void test_crowds(struct rpc_channel *ch)
{
    static struct calling all[1500];
    size_t good = 0;

    t("more calls than the server takes at once are all answered in the end");
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        start(ch, "/t/echo", &all[i], 0);
        rpc_call_send(all[i].call, "x", 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        rpc_call_finish(all[i].call);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        good += wait_for(&all[i].ended) && all[i].code == RPC_OK && all[i].messages == 1;
    ok(good == ARRAY_LEN(all));
    t("thousands of cancels harm no other call");
    start(ch, "/t/never", &all[0], 0);
    for (int i = 0; i < 5000; i++) {
        start(ch, "/t/never", &all[1], 0);
        if (i % 10 == 0)
            uv_run(&loop, UV_RUN_NOWAIT);
        rpc_call_cancel(all[1].call);
    }
    ok(one(ch, "/t/echo", &all[1], "x") == RPC_OK && !all[0].ended);
    rpc_call_cancel(all[0].call);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_clear(&all[i].got);
}

/* ---- re-entrancy ---- */

static struct calling other;
static struct rpc_channel *doomed;

static void cancel_itself(void *arg, const uint8_t *data, size_t n)
{
    struct calling *c = arg;

    c->messages++;
    rpc_call_cancel(c->call);
}

static void free_channel(void *arg, const uint8_t *data, size_t n)
{
    struct calling *c = arg;

    c->messages++;
    rpc_channel_free(doomed);
}

static void just_end(void *arg, const struct rpc_status *s)
{
    struct calling *c = arg;

    c->ended = true;
    c->code = s->code;
}

static void test_reentrancy(const char *address)
{
    struct rpc_channel *ch = open_channel(address, NULL);
    struct calling c = { 0 };
    struct rpc_call_spec spec = { .path = "/t/echo",
                                  .handlers = { .message = cancel_itself, .end = just_end },
                                  .arg = &c };

    t("a call may be cancelled inside its own message");
    c.call = rpc_call_start(ch, &spec);
    for (int i = 0; i < 10; i++)
        rpc_call_send(c.call, "x", 1);
    ok(wait_for(&c.ended) && c.messages == 1 && c.code == RPC_CANCELLED);
    t("a channel may be freed inside a message; all its calls end first");
    c = (struct calling){ 0 };
    doomed = ch;
    spec.handlers.message = free_channel;
    start(ch, "/t/never", &other, 0);
    c.call = rpc_call_start(ch, &spec);
    rpc_call_send(c.call, "x", 1);
    rpc_call_send(c.call, "x", 1);
    ok(wait_for(&c.ended) && c.messages == 1 && c.code == RPC_CANCELLED);
    ok(other.ended && other.code == RPC_CANCELLED);
    pass_ms(20);
}

/* ---- connections ---- */

static void test_vanishing(void)
{
    struct rpc_channel *ch;
    struct rpc_server *server;
    struct rpc_channel_stats stats;
    struct calling c = { 0 }, d = { 0 };
    char address[64];
    uint16_t port;
    int fd = listen_tcp(&port), again;

    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    ch = open_channel(address, NULL);
    again = dup(fd);
    server = serve(fd, NULL, NULL);
    t("every call learns that its connection is lost");
    ok(one(ch, "/t/echo", &c, "x") == RPC_OK);
    start(ch, "/t/never", &c, 0);
    start(ch, "/t/never", &d, 0);
    pass_ms(20);
    rpc_server_free(server);
    ok(wait_for(&c.ended) && c.code == RPC_UNAVAILABLE && c.lost && c.local && !c.unprocessed);
    ok(wait_for(&d.ended) && d.lost);
    t("a new call makes a new connection");
    server = serve(again, NULL, NULL);
    ok(one(ch, "/t/echo", &c, "x") == RPC_OK);
    rpc_channel_stats(ch, &stats);
    ok(stats.connections == 2 && stats.connected && stats.calls == 4 && stats.latency_us > 0);
    rpc_server_free(server);
    pass_ms(20);
    t("a refused connection is UNAVAILABLE, never processed, and not tried again at once");
    ok(one(ch, "/t/echo", &c, "x") == RPC_UNAVAILABLE && c.unprocessed && c.local && !c.lost);
    ok(strstr(c.words, "onnection refused") && strstr(c.words, address));
    ok(one(ch, "/t/echo", &c, "x") == RPC_UNAVAILABLE && c.unprocessed);
    rpc_channel_stats(ch, &stats);
    ok(stats.connections == 3 && !stats.connected);
    rpc_channel_free(ch);
    pass_ms(20);
    buf_clear(&c.got);
}

static void test_silence(void)
{
    struct rpc_channel_options options = { .connect_timeout_ms = 200 };
    struct rpc_channel *ch;
    struct calling c = { 0 };
    char address[64];
    uint16_t port;
    int fd = listen_tcp(&port);

    t("a server that accepts and says nothing meets the connect time-out");
    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    ch = open_channel(address, &options);
    start(ch, "/t/echo", &c, 0);
    ok(wait_ms(&c.ended, 2000) && c.code == RPC_UNAVAILABLE && c.unprocessed);
    rpc_channel_free(ch);
    t("a name that does not exist is UNAVAILABLE");
    ch = open_channel("http://no-such-host.invalid:1", NULL);
    start(ch, "/t/echo", &c, 15000);
    ok(wait_for(&c.ended) && c.code == RPC_UNAVAILABLE && c.unprocessed);
    rpc_channel_free(ch);
    pass_ms(20);
    close(fd);
}

/* ---- TLS ---- */

static void write_pem(const char *path, EVP_PKEY *key, X509 *cert)
{
    FILE *f = fopen(path, "w");

    if (!f || (cert ? PEM_write_X509(f, cert) : PEM_write_PrivateKey(f, key, 0, 0, 0, 0, 0)) != 1 ||
        fclose(f) != 0)
        abort();
}

/* A certificate for localhost that vouches for itself. */
static void make_certificate(const char *cert_file, const char *key_file)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:localhost");

    if (!key || !cert || !names)
        abort();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(cert));
    X509_add_ext(cert, names, -1);
    if (!X509_sign(cert, key, EVP_sha256()))
        abort();
    write_pem(cert_file, NULL, cert);
    write_pem(key_file, key, NULL);
    X509_EXTENSION_free(names);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void test_tls(const char *dir)
{
    char cert[64], key[64], address[64];
    struct rpc_channel_options options = { .ca_file = cert };
    struct rpc_target target;
    struct rpc_channel *ch;
    struct rpc_server *server;
    struct calling c = { 0 };
    uint16_t port;
    int r;

    snprintf(cert, sizeof cert, "%s/cert", dir);
    snprintf(key, sizeof key, "%s/key", dir);
    make_certificate(cert, key);
    server = serve(listen_tcp(&port), cert, key);
    snprintf(address, sizeof address, "https://localhost:%u", port);
    ch = open_channel(address, &options);
    test_shapes(ch);
    test_pause(ch);
    test_limits(ch);
    rpc_channel_free(ch);

    t("a certificate nobody vouches for is refused");
    ch = open_channel(address, NULL);
    ok(one(ch, "/t/echo", &c, "x") == RPC_UNAVAILABLE && c.unprocessed);
    ok(strstr(c.words, "certificate") != NULL);
    rpc_channel_free(ch);
    t("a certificate for another name is refused");
    snprintf(address, sizeof address, "https://127.0.0.1:%u", port);
    ch = open_channel(address, &options);
    ok(one(ch, "/t/echo", &c, "x") == RPC_UNAVAILABLE && c.unprocessed);
    ok(strstr(c.words, "mismatch") != NULL);
    rpc_channel_free(ch);
    t("plaintext to a TLS server, and TLS to a plaintext one, end with words");
    snprintf(address, sizeof address, "http://localhost:%u", port);
    ch = open_channel(address, NULL);
    ok(one(ch, "/t/echo", &c, "x") == RPC_UNAVAILABLE && c.words[0]);
    rpc_channel_free(ch);
    rpc_server_free(server);
    server = serve(listen_tcp(&port), NULL, NULL);
    snprintf(address, sizeof address, "https://localhost:%u", port);
    ch = open_channel(address, &options);
    ok(one(ch, "/t/echo", &c, "x") == RPC_UNAVAILABLE && c.words[0]);
    rpc_channel_free(ch);
    rpc_server_free(server);
    pass_ms(20);
    t("a file without certificates is refused with its name");
    options.ca_file = "/dev/null";
    ok(rpc_target_parse(address, &target) == 0);
    r = rpc_channel_new(&loop, &target, &options, &ch);
    ok(r == -EINVAL && strstr(boxd_error_words(r), "/dev/null"));
    rpc_target_clear(&target);
    unlink(cert);
    unlink(key);
    buf_clear(&c.got);
}

int main(void)
{
    char dir[] = "/tmp/boxdfs-rpc-XXXXXX", path[64], tcp[64], local[80];
    struct rpc_channel *by_tcp, *by_unix;
    struct rpc_server *server, *local_server;
    uint16_t port;

    uv_loop_init(&loop);
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/s", dir);
    server = serve(listen_tcp(&port), NULL, NULL);
    local_server = serve(listen_unix(path), NULL, NULL);
    snprintf(tcp, sizeof tcp, "http://127.0.0.1:%u", port);
    snprintf(local, sizeof local, "unix:%s", path);
    by_tcp = open_channel(tcp, NULL);
    by_unix = open_channel(local, NULL);
    test_shapes(by_tcp);
    test_shapes(by_unix);
    test_ends(by_unix);
    test_pause(by_tcp);
    test_pause(by_unix);
    test_reopened_window(local);
    test_limits(by_unix);
    test_crowds(by_unix);
    test_reentrancy(local);
    rpc_channel_free(by_tcp);
    rpc_channel_free(by_unix);
    rpc_server_free(server);
    rpc_server_free(local_server);
    test_vanishing();
    test_silence();
    test_tls(dir);
    t("every stream the server began has ended, and nothing is left on the loop");
    uv_run(&loop, UV_RUN_DEFAULT);
    ok(uv_loop_close(&loop) == 0);
    unlink(path);
    rmdir(dir);
    return tap_done();
}
