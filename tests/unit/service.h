/* tests/unit/service.h: a service that plays a script, in the loop of the client it is for.
 *
 * A test sets `request` (or `open` and `message` for streams) and looks at what was counted. The
 * server is the project's own: what is tested is the protocol and the client above it. */
#pragma once

#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "api/boxd.pb-c.h"
#include "api/wire.h"
#include "base/buf.h"
#include "base/str.h"
#include "rpc/server.h"
#include <boxd/client.h>
#include <boxd/error.h>

#include "tap.h"

struct service;

/* A request under way. */
struct request {
    struct service *sv;
    struct rpc_stream *stream;
    char path[64];   /* without the service's name */
    struct buf body; /* the messages so far, one after the other */
    unsigned messages;
    bool half_closed, cancelled;
    size_t sent;
};

struct service {
    uv_loop_t loop;
    struct rpc_server *server;
    char address[64];
    struct boxd_client *client;
    /* The script. `request` runs when the client has half-closed. */
    void (*open)(struct request *q);
    void (*message)(struct request *q, const uint8_t *data, size_t n);
    void (*request)(struct request *q);
    void (*writable)(struct request *q);
    void (*http)(struct service *sv, struct rpc_http *h, const char *method, const char *path,
                 const void *body, size_t n);
    unsigned requests, cancelled, exchanges, connections; /* seen so far */
    char authorization[128];                              /* of the last request */
    char body[512];                                       /* of the last HTTP request */
    int step;                                             /* for the script's use */
    void *data;
};

static inline void sv_message(void *arg, const uint8_t *data, size_t n)
{
    struct request *q = arg;

    q->messages++;
    buf_add(&q->body, data, n);
    if (q->sv->message)
        q->sv->message(q, data, n);
}

static inline void sv_half_close(void *arg)
{
    struct request *q = arg;

    q->half_closed = true;
    if (q->sv->request)
        q->sv->request(q);
}

static inline void sv_writable(void *arg)
{
    struct request *q = arg;

    if (q->sv->writable)
        q->sv->writable(q);
}

static inline void sv_end(void *arg, bool cancelled)
{
    struct request *q = arg;

    q->sv->cancelled += cancelled;
    buf_clear(&q->body);
    free(q);
}

static inline void sv_start(void *arg, struct rpc_stream *s, const char *path,
                            const char *authorization)
{
    static const struct rpc_stream_handlers handlers = { sv_message, sv_half_close, sv_writable,
                                                         sv_end };
    struct service *sv = arg;
    struct request *q = calloc(1, sizeof *q);
    const char *name = strrchr(path, '/');

    q->sv = sv;
    q->stream = s;
    snprintf(q->path, sizeof q->path, "%s", name ? name + 1 : path);
    snprintf(sv->authorization, sizeof sv->authorization, "%s", authorization ? authorization : "");
    sv->requests++;
    rpc_stream_accept(s, &handlers, q);
    if (sv->open)
        sv->open(q);
}

static inline void sv_http(void *arg, struct rpc_http *h, const char *method, const char *path,
                           const void *body, size_t n)
{
    struct service *sv = arg;

    sv->exchanges++;
    snprintf(sv->body, sizeof sv->body, "%.*s", (int)n, (const char *)body);
    if (sv->http)
        sv->http(sv, h, method, path, body, n);
    else
        rpc_http_reply(h, 404, "{}", 0);
}

/* Listens on a free port of 127.0.0.1, or on the port it had before. */
static inline void sv_listen(struct service *sv)
{
    struct rpc_server_options o = { .handlers = { .start = sv_start, .http = sv_http }, .arg = sv };
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    if (sv->address[0])
        a.sin_port = htons((uint16_t)strtoul(strrchr(sv->address, ':') + 1, NULL, 10));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 16) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0 ||
        rpc_server_new(&sv->loop, &o, &sv->server) < 0 || rpc_server_listen(sv->server, fd) < 0) {
        perror("listening for the test");
        exit(1);
    }
    snprintf(sv->address, sizeof sv->address, "http://127.0.0.1:%u", ntohs(a.sin_port));
}

static inline struct boxd_client *sv_client(struct service *sv, const char *token, const char *key)
{
    struct boxd_client_options o = { .address = sv->address, .token = token, .api_key = key };
    struct boxd_client *c = NULL;

    ok(boxd_client_new(&sv->loop, &o, &c) == 0);
    return c;
}

static inline void sv_start_all(struct service *sv)
{
    *sv = (struct service){ 0 };
    uv_loop_init(&sv->loop);
    sv_listen(sv);
}

static inline void sv_stop(struct service *sv)
{
    if (sv->client)
        boxd_client_free(sv->client);
    if (sv->server)
        rpc_server_free(sv->server);
    uv_run(&sv->loop, UV_RUN_DEFAULT);
    ok(uv_loop_close(&sv->loop) == 0);
}

static inline void sv_give_up(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

/* Runs the loop until *flag, at most 10 s. */
static inline bool sv_until(struct service *sv, const bool *flag)
{
    bool late = false;
    uv_timer_t timer;

    uv_timer_init(&sv->loop, &timer);
    timer.data = &late;
    uv_timer_start(&timer, sv_give_up, 10000, 0);
    while (!*flag && !late)
        uv_run(&sv->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&sv->loop, UV_RUN_NOWAIT);
    return *flag;
}

/* Runs the loop for a while. */
static inline void sv_for(struct service *sv, unsigned ms)
{
    uint64_t end = now_ms() + ms;
    bool late = false;
    uv_timer_t timer;

    uv_timer_init(&sv->loop, &timer);
    timer.data = &late;
    uv_timer_start(&timer, sv_give_up, ms, 0);
    while (!late && now_ms() < end + 1)
        uv_run(&sv->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&sv->loop, UV_RUN_NOWAIT);
}

static inline void sv_send(struct request *q, const ProtobufCMessage *m)
{
    _cleanup_buf_ struct buf b = { 0 };

    ok(wire_pack(m, &b) == 0);
    rpc_stream_send(q->stream, b.data, b.len);
}

/* Answers a unary request. */
static inline void sv_answer(struct request *q, const ProtobufCMessage *m)
{
    sv_send(q, m);
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

/* Unpacks a unary request; the caller frees. */
static inline ProtobufCMessage *sv_unpack(struct request *q, const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = NULL;

    ok(wire_unpack(d, q->body.data, q->body.len, &m) == 0);
    return m;
}

/* What a callback was given. */
struct got {
    bool done;
    unsigned times;
    int r;
    char words[512], text[256];
    int64_t number;
    size_t count;
};

static inline void got_r(struct got *g, int r)
{
    g->times++;
    g->done = true;
    g->r = r;
    snprintf(g->words, sizeof g->words, "%s", r < 0 ? boxd_error_words(r) : "");
}

static inline void got_done(void *arg, int r)
{
    got_r(arg, r);
}
