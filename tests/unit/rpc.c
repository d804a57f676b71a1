/* The gRPC client against the gRPC server, on one loop, over a unix socket and TCP. */
#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/str.h"
#include "rpc/rpc.h"
#include "rpc/server.h"
#include "tap.h"

static uv_loop_t loop;

/* ---- a server: the path says what a request gets ---- */

struct serving {
    struct rpc_stream *stream;
    const char *path;
    size_t messages;
};

static void serve_message(void *arg, const uint8_t *data, size_t n)
{
    struct serving *v = arg;

    v->messages++;
    if (!strcmp(v->path, "/t/echo"))
        rpc_stream_send(v->stream, data, n);
}

static void serve_half_close(void *arg)
{
    struct serving *v = arg;
    char text[32];

    if (!strcmp(v->path, "/t/count")) {
        snprintf(text, sizeof text, "%zu", v->messages);
        rpc_stream_send(v->stream, text, strlen(text));
    }
    if (strcmp(v->path, "/t/never") != 0)
        rpc_stream_end(v->stream, RPC_OK, NULL);
}

static void serve_end(void *arg, bool cancelled)
{
    free(arg);
}

static const struct rpc_stream_handlers serve_handlers = {
    .message = serve_message,
    .half_close = serve_half_close,
    .end = serve_end,
};

static void serve_start(void *arg, struct rpc_stream *s, const char *path,
                        const char *authorization)
{
    static const char *const paths[] = { "/t/echo", "/t/count", "/t/never" };

    if (!strcmp(path, "/t/odd")) {
        rpc_stream_end(s, RPC_NOT_FOUND, "50% of 'ä'\nlost");
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

/* ---- a client's call that remembers what came ---- */

struct calling {
    struct buf got;
    size_t messages;
    enum rpc_code code;
    char words[512];
    bool ended, local, lost, unprocessed;
};

static void got_message(void *arg, const uint8_t *data, size_t n)
{
    struct calling *c = arg;

    c->messages++;
    buf_add(&c->got, data, n);
}

static void got_end(void *arg, const struct rpc_status *s)
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

static struct rpc_call *start(struct rpc_channel *ch, const char *path, struct calling *c,
                              uint32_t deadline_ms)
{
    struct rpc_call_spec spec = { .path = path,
                                  .deadline_ms = deadline_ms,
                                  .handlers = { .message = got_message, .end = got_end },
                                  .arg = c };

    *c = (struct calling){ 0 };
    return rpc_call_start(ch, &spec);
}

static void on_limit(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

/* Runs the loop until *flag or ten seconds passed. */
static bool wait_for(const bool *flag)
{
    static uv_timer_t limit;
    bool late = false;

    limit.data = &late;
    uv_timer_init(&loop, &limit);
    uv_timer_start(&limit, on_limit, 10000, 0);
    while (!*flag && !late)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&limit, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return !late;
}

static int listen_tcp(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0)
        abort();
    getsockname(fd, (struct sockaddr *)&a, &n);
    *port = ntohs(a.sin_port);
    return fd;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 64) < 0)
        abort();
    return fd;
}

static struct rpc_channel *dial(const char *address)
{
    struct rpc_target target;
    struct rpc_channel *ch = NULL;

    ok(rpc_target_parse(address, &target) == 0);
    ok(rpc_channel_new(&loop, &target, NULL, &ch) == 0);
    rpc_target_clear(&target);
    return ch;
}

/* ---- promises ---- */

static void test_shapes(struct rpc_channel *ch)
{
    struct calling c;
    struct rpc_call *call;

    t("a unary call brings one message and OK");
    call = start(ch, "/t/echo", &c, 0);
    ok(rpc_call_send(call, "hello", 5) > 0);
    rpc_call_finish(call);
    ok(wait_for(&c.ended) && c.code == RPC_OK && c.messages == 1);
    ok_str(buf_str(&c.got), "hello");
    buf_clear(&c.got);

    t("many messages go up, one comes down");
    call = start(ch, "/t/count", &c, 0);
    for (int i = 0; i < 1000; i++)
        rpc_call_send(call, "x", 1);
    rpc_call_finish(call);
    ok(wait_for(&c.ended) && c.code == RPC_OK);
    ok_str(buf_str(&c.got), "1000");
    buf_clear(&c.got);

    t("an error's words arrive as they were written");
    call = start(ch, "/t/odd", &c, 0);
    ok(wait_for(&c.ended) && c.code == RPC_NOT_FOUND && !c.local);
    ok_str(c.words, "50% of 'ä'\nlost");

    t("an unknown path is UNIMPLEMENTED");
    call = start(ch, "/t/what", &c, 0);
    rpc_call_finish(call);
    ok(wait_for(&c.ended) && c.code == RPC_UNIMPLEMENTED);

    t("a deadline ends a call that is never answered");
    call = start(ch, "/t/never", &c, 50);
    rpc_call_finish(call);
    ok(wait_for(&c.ended) && c.code == RPC_DEADLINE_EXCEEDED);

    t("cancel ends a call before it returns");
    call = start(ch, "/t/never", &c, 0);
    rpc_call_cancel(call);
    ok(c.ended && c.code == RPC_CANCELLED && c.local);
}

int main(void)
{
    struct rpc_server_options options = { .handlers = { .start = serve_start } };
    char dir[] = "/tmp/boxdfs-rpc-XXXXXX", path[64], address[80];
    struct rpc_server *server = NULL;
    struct rpc_channel *by_tcp, *by_unix;
    uint16_t port;

    uv_loop_init(&loop);
    ok(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/s", dir);
    ok(rpc_server_new(&loop, &options, &server) == 0);
    ok(rpc_server_listen(server, listen_tcp(&port)) == 0);
    ok(rpc_server_listen(server, listen_unix(path)) == 0);
    snprintf(address, sizeof address, "http://127.0.0.1:%u", port);
    by_tcp = dial(address);
    snprintf(address, sizeof address, "unix:%s", path);
    by_unix = dial(address);
    test_shapes(by_tcp);
    test_shapes(by_unix);
    rpc_channel_free(by_tcp);
    rpc_channel_free(by_unix);
    rpc_server_free(server);
    t("nothing is left on the loop after everything was freed");
    uv_run(&loop, UV_RUN_DEFAULT);
    ok(uv_loop_close(&loop) == 0);
    unlink(path);
    rmdir(dir);
    return tap_done();
}
