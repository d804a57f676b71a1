/* rpc-peer.h: what the tests of the transport share: one loop, sockets, a client's call that
 * remembers what came. */
#pragma once

#include "base/base.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boxd/error.h>

#include "base/buf.h"
#include "base/str.h"
#include "rpc/rpc.h"
#include "rpc/server.h"
#include "tap.h"

static uv_loop_t loop;

struct calling {
    struct rpc_call *call;
    struct buf got;
    size_t messages, writables;
    enum rpc_code code;
    char words[512];
    bool ended, local, lost, unprocessed;
};

static inline void got_message(void *arg, const uint8_t *data, size_t n)
{
    struct calling *c = arg;

    ok(!c->ended);
    c->messages++;
    buf_add(&c->got, data, n);
}

static inline void got_writable(void *arg)
{
    struct calling *c = arg;

    c->writables++;
}

static inline void got_end(void *arg, const struct rpc_status *s)
{
    struct calling *c = arg;

    ok(!c->ended);
    c->ended = true;
    c->code = s->code;
    c->local = s->local;
    c->lost = s->connection_lost;
    c->unprocessed = s->unprocessed;
    snprintf(c->words, sizeof c->words, "%s", s->message);
}

static inline struct rpc_call *start(struct rpc_channel *ch, const char *path, struct calling *c,
                                     uint32_t deadline_ms)
{
    struct rpc_call_spec spec = { .path = path,
                                  .deadline_ms = deadline_ms,
                                  .handlers = { got_message, got_writable, got_end },
                                  .arg = c };

    buf_clear(&c->got);
    *c = (struct calling){ 0 };
    c->call = rpc_call_start(ch, &spec);
    if (!c->call)
        abort();
    ok(!c->ended); /* no callback before the call is known */
    return c->call;
}

static inline void on_limit(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static inline void free_handle(uv_handle_t *h)
{
    free(h);
}

/* Runs the loop until *flag, at most so long. */
static inline bool wait_ms(const bool *flag, uint64_t ms)
{
    uv_timer_t *limit = malloc(sizeof *limit);
    bool late = false;

    if (!limit)
        abort();
    limit->data = &late;
    uv_timer_init(&loop, limit);
    uv_timer_start(limit, on_limit, ms, 0);
    while (!*flag && !late)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)limit, free_handle);
    uv_run(&loop, UV_RUN_NOWAIT);
    return *flag;
}

static inline bool wait_for(const bool *flag)
{
    return wait_ms(flag, 20000);
}

static inline void pass_ms(uint64_t ms)
{
    static const bool never;

    wait_ms(&never, ms);
}

/* One message up, half-close, and wait for the end. */
static inline enum rpc_code one(struct rpc_channel *ch, const char *path, struct calling *c,
                                const char *text)
{
    start(ch, path, c, 0);
    rpc_call_send(c->call, text, strlen(text));
    rpc_call_finish(c->call);
    ok(wait_for(&c->ended));
    return c->code;
}

static inline int listen_tcp(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        abort();
    *port = ntohs(a.sin_port);
    return fd;
}

static inline int listen_unix(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0)
        abort();
    return fd;
}

static inline int connect_tcp(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        abort();
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static inline struct rpc_channel *open_channel(const char *address,
                                               const struct rpc_channel_options *options)
{
    struct rpc_target target;
    struct rpc_channel *ch = NULL;

    ok(rpc_target_parse(address, &target) == 0);
    ok(rpc_channel_new(&loop, &target, options, &ch) == 0);
    rpc_target_clear(&target);
    return ch;
}
