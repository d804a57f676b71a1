/* What no well-behaved peer sends: odd answers to our client, and noise at our server. */
#include "base/base.h"

#include "rpc-peer.h"

/* ---- frames by hand ---- */

enum { DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY };
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4 };

static void add_frame(struct buf *out, uint8_t type, uint8_t flags, uint32_t id, const void *data,
                      size_t n)
{
    const uint8_t head[9] = {
        (uint8_t)(n >> 16),  (uint8_t)(n >> 8),   (uint8_t)n,         type,       flags,
        (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id
    };

    buf_add(out, head, sizeof head);
    buf_add(out, data, n);
}

/* "name: value" lines as HPACK literals. */
static void add_headers(struct buf *out, uint8_t flags, const char *lines)
{
    _cleanup_buf_ struct buf block = { 0 };

    while (*lines) {
        size_t n = strcspn(lines, "\n");
        const char *colon = memchr(lines + 1, ':', n);
        size_t name = (size_t)(colon - lines), value = n - name - 2;

        buf_addch(&block, 0);
        buf_addch(&block, (char)name);
        buf_add(&block, lines, name);
        buf_addch(&block, (char)value);
        buf_add(&block, colon + 2, value);
        lines += n + 1;
    }
    add_frame(out, HEADERS, flags | END_HEADERS, 1, block.data, block.len);
}

#define GOOD ":status: 200\ncontent-type: application/grpc\n"

/* ---- our client against odd answers ---- */

struct answer {
    const char *what;
    const char *headers; /* NULL: none */
    bool headers_end;
    const char *data; /* of `data_len` bytes */
    size_t data_len;
    const char *trailers;
    uint8_t frame; /* one more frame, of this type */
    const char *payload;
    size_t payload_len;
    enum rpc_code code;
    bool unprocessed, lost;
};

static const struct answer answers[] = {
    { "401", ":status: 401\n", true, .code = RPC_UNAUTHENTICATED },
    { "403", ":status: 403\n", true, .code = RPC_PERMISSION_DENIED },
    { "404 with a page", ":status: 404\ncontent-type: text/html\n", .data = "<html>", .data_len = 6,
      .code = RPC_UNIMPLEMENTED },
    { "429", ":status: 429\n", true, .code = RPC_UNAVAILABLE },
    { "502", ":status: 502\n", true, .code = RPC_UNAVAILABLE },
    { "418", ":status: 418\n", true, .code = RPC_UNKNOWN },
    { "503 with a status", ":status: 503\ngrpc-status: 8\n", true, .code = RPC_RESOURCE_EXHAUSTED },
    { "not gRPC", ":status: 200\ncontent-type: text/html\n", .code = RPC_UNKNOWN },
    { "nearly gRPC", ":status: 200\ncontent-type: application/grpcx\n", .code = RPC_UNKNOWN },
    { "trailers only", GOOD "grpc-status: 5\ngrpc-message: gone%21\n", true,
      .code = RPC_NOT_FOUND },
    { "no status", GOOD, true, .code = RPC_UNKNOWN },
    { "no status in trailers", GOOD, .trailers = "x: y\n", .code = RPC_UNKNOWN },
    { "an odd status", GOOD "grpc-status: 99\n", true, .code = RPC_UNKNOWN },
    { "compressed", GOOD, .data = "\1\0\0\0\1x", .data_len = 6, .code = RPC_INTERNAL },
    { "oversize", GOOD, .data = "\0\xff\0\0\0", .data_len = 5, .code = RPC_RESOURCE_EXHAUSTED },
    { "cut message", GOOD, .data = "\0\0\0\0\7abc", .data_len = 8, .trailers = "grpc-status: 0\n",
      .code = RPC_INTERNAL },
    { "refused", NULL, .frame = RST_STREAM, .payload = "\0\0\0\7", .payload_len = 4,
      .code = RPC_UNAVAILABLE, .unprocessed = true },
    { "calm down", NULL, .frame = RST_STREAM, .payload = "\0\0\0\x0b", .payload_len = 4,
      .code = RPC_RESOURCE_EXHAUSTED },
    { "reset", GOOD, .frame = RST_STREAM, .payload = "\0\0\0\2", .payload_len = 4,
      .code = RPC_INTERNAL },
    { "going away before us", NULL, .frame = GOAWAY, .payload = "\0\0\0\0\0\0\0\0",
      .payload_len = 8, .code = RPC_UNAVAILABLE, .unprocessed = true },
    { "nonsense for a frame", NULL, .frame = SETTINGS, .payload = "xyz", .payload_len = 3,
      .code = RPC_UNAVAILABLE, .lost = true },
    { "a pushed stream", NULL, .frame = PUSH, .payload = "\0\0\0\2", .payload_len = 4,
      .code = RPC_UNAVAILABLE, .lost = true },
    { "data without headers", NULL, .data = "\0\0\0\0\0", .data_len = 5, .code = RPC_UNAVAILABLE,
      .lost = true },
};

static void make_answer(struct buf *out, const struct answer *a)
{
    bool goaway = a->frame == GOAWAY || a->frame == SETTINGS;

    if (a->headers)
        add_headers(out, a->headers_end ? END_STREAM : 0, a->headers);
    if (a->data)
        add_frame(out, DATA, 0, 1, a->data, a->data_len);
    if (a->trailers)
        add_headers(out, END_STREAM, a->trailers);
    if (a->frame)
        add_frame(out, a->frame, a->frame == PUSH ? END_HEADERS : 0, goaway ? 0 : 1, a->payload,
                  a->payload_len);
}

/* Serves one connection by hand: SETTINGS, and `answer` once the request's headers are there. */
struct by_hand {
    uv_poll_t poll;
    int listener, fd;
    struct buf in, answer;
    bool answered, closing;
};

static bool has_request(const struct buf *in)
{
    size_t at = 24; /* the preface */

    while (at + 9 <= in->len) {
        const uint8_t *f = (const uint8_t *)in->data + at;

        if (f[3] == HEADERS)
            return true;
        at += 9 + ((size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2]);
    }
    return false;
}

static void on_by_hand(uv_poll_t *poll, int status, int events);

static void by_hand_accept(struct by_hand *h)
{
    _cleanup_buf_ struct buf hello = { 0 };

    h->fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (h->fd < 0)
        return;
    uv_poll_stop(&h->poll);
    add_frame(&hello, SETTINGS, 0, 0, NULL, 0);
    ok(send(h->fd, hello.data, hello.len, 0) == (ssize_t)hello.len);
}

static void on_by_hand(uv_poll_t *poll, int status, int events)
{
    by_hand_accept(poll->data);
}

static void on_by_hand_data(uv_timer_t *timer)
{
    struct by_hand *h = timer->data;
    char room[4096];
    ssize_t n;

    if (h->fd < 0)
        return;
    n = recv(h->fd, room, sizeof room, 0);
    if (n > 0)
        buf_add(&h->in, room, (size_t)n);
    if (h->answered || !has_request(&h->in))
        return;
    h->answered = true;
    (void)!send(h->fd, h->answer.data, h->answer.len, MSG_NOSIGNAL);
}

static void ask_by_hand(struct buf *answer, struct calling *c)
{
    struct by_hand h = { .fd = -1 };
    uv_timer_t timer;
    char address[64];
    uint16_t port;
    struct rpc_channel *ch;

    h.listener = listen_tcp(&port);
    h.answer = *answer;
    h.poll.data = timer.data = &h;
    uv_poll_init(&loop, &h.poll, h.listener);
    uv_poll_start(&h.poll, UV_READABLE, on_by_hand);
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_by_hand_data, 1, 1);
    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    ch = open_channel(address, NULL);
    start(ch, "/t/x", c, 0);
    ok(wait_for(&c->ended));
    rpc_channel_free(ch);
    uv_close((uv_handle_t *)&h.poll, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    close(h.listener);
    if (h.fd >= 0)
        close(h.fd);
    buf_clear(&h.in);
    buf_clear(&h.answer);
}

static void test_answers(void)
{
    struct calling c = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        const struct answer *a = &answers[i];
        struct buf bytes = { 0 };
        char name[128];

        snprintf(name, sizeof name, "an odd answer gives a status: %s", a->what);
        t(name);
        make_answer(&bytes, a);
        ask_by_hand(&bytes, &c);
        if (!ok(c.code == a->code && c.unprocessed == a->unprocessed && c.lost == a->lost))
            printf("# %s: %s, unprocessed %d, lost %d\n", rpc_code_name(c.code), c.words,
                   c.unprocessed, c.lost);
        tap_flush();
    }
}

static void test_answer_noise(void)
{
    struct calling c = { 0 };
    unsigned state = 1;

    t("noise instead of an answer ends the call and harms nobody");
    for (int i = 0; i < 60; i++) {
        struct buf bytes = { 0 };

        if (i % 2)
            add_headers(&bytes, 0, GOOD);
        for (int k = 0; k < 40; k++) {
            uint8_t payload[64];

            for (size_t j = 0; j < sizeof payload; j++)
                payload[j] = (uint8_t)((state = state * 1103515245 + 12345) >> 16);
            add_frame(&bytes, payload[0] % 10, payload[1], payload[2] % 4, payload + 4,
                      payload[3] % 60);
        }
        buf_add(&bytes, "\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9); /* a frame that is too long */
        ask_by_hand(&bytes, &c);
        ok(c.ended && c.code != RPC_OK);
    }
    buf_clear(&c.got);
}

/* ---- noise at our server ---- */

static void serve(void *arg, struct rpc_stream *s, const char *path, const char *authorization)
{
    rpc_stream_end(s, RPC_OK, NULL);
}

static unsigned connections;

static void on_connections(void *arg, unsigned count)
{
    connections = count;
}

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
static const char *const openings[] = {
    "", "P", "PRI * HTTP/2.0\r\n\r\nXX", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", PREFACE
};

static void throw_at(uint16_t port, const struct buf *bytes)
{
    int fd = connect_tcp(port);

    (void)!send(fd, bytes->data, bytes->len, MSG_NOSIGNAL);
    for (int i = 0; i < 4; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    close(fd);
}

static void test_server_noise(void)
{
    struct rpc_server_options options = { .handlers = { .start = serve,
                                                        .connections = on_connections } };
    struct rpc_server *server = NULL;
    struct calling c = { 0 };
    struct rpc_channel *ch;
    unsigned state = 7;
    char address[64];
    uint16_t port;

    t("noise at the server ends its own connection only");
    ok(rpc_server_new(&loop, &options, &server) == 0);
    ok(rpc_server_listen(server, listen_tcp(&port)) == 0);
    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    ch = open_channel(address, NULL);
    ok(one(ch, "/t/x", &c, "") == RPC_OK);
    for (size_t i = 0; i < 200; i++) {
        _cleanup_buf_ struct buf bytes = { 0 };

        buf_addstr(&bytes, openings[i % ARRAY_LEN(openings)]);
        if (i % 3 == 0)
            add_frame(&bytes, SETTINGS, 0, 0, NULL, 0);
        for (int k = 0; k < 20; k++) {
            uint8_t payload[64];

            for (size_t j = 0; j < sizeof payload; j++)
                payload[j] = (uint8_t)((state = state * 1103515245 + 12345) >> 16);
            add_frame(&bytes, payload[0] % 10, payload[1], payload[2] % 4, payload + 4,
                      payload[3] % 60);
        }
        throw_at(port, &bytes);
    }
    ok(one(ch, "/t/x", &c, "") == RPC_OK && !c.lost);
    pass_ms(100);
    ok(connections == 1);
    rpc_channel_free(ch);
    rpc_server_free(server);
    uv_run(&loop, UV_RUN_DEFAULT);
}

int main(void)
{
    uv_loop_init(&loop);
    test_answers();
    test_answer_noise();
    test_server_noise();
    ok(uv_loop_close(&loop) == 0);
    return tap_done();
}
