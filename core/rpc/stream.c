/* Requests, server side: from the request's headers to the trailers. */
#include "base/base.h"

#include <boxd/error.h>

#include "rpc/serving.h"
#include "rpc/status.h"

struct rpc_stream {
    struct h2_stream stream;
    struct server_conn *conn;
    struct rpc_stream_handlers handlers;
    void *arg;
    char *path, *authorization;
    uint64_t timeout_ms;
    uv_timer_t timer;
    bool has_timer, post, grpc_content, has_timeout, bad_timeout;
    bool started;   /* the request's headers are whole */
    bool responded; /* response headers are submitted */
    bool ending;    /* the status below is decided */
    bool over;      /* `end` ran */
    bool trailed;   /* the status is submitted */
    enum rpc_code code;
    struct buf message;
};

static const struct h2_stream_ops stream_ops;

static struct rpc_stream *stream_of(struct h2_stream *s)
{
    return container_of(s, struct rpc_stream, stream);
}

/* ---- life ---- */

struct h2_stream *server_stream_new(struct server_conn *c)
{
    struct rpc_stream *s;

    if (c->server->freed)
        return NULL;
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    h2_stream_init(&s->stream, &stream_ops, &c->server->queue);
    s->conn = c;
    c->refs++;
    return &s->stream;
}

static void destroy(struct h2_stream *st)
{
    struct rpc_stream *s = stream_of(st);

    free(s->path);
    free(s->authorization);
    buf_clear(&s->message);
    server_conn_put(s->conn);
    free(s);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct rpc_stream *s = h->data;

    h2_stream_unref(&s->stream);
}

static void stop_timer(struct rpc_stream *s)
{
    if (!s->has_timer)
        return;
    s->has_timer = false;
    uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

/* Tells the user, once. */
static void tell_end(struct rpc_stream *s, bool cancelled)
{
    if (s->over)
        return;
    s->over = true;
    stop_timer(s);
    h2_stream_shut(&s->stream);
    if (s->handlers.end)
        s->handlers.end(s->arg, cancelled);
}

/* ---- the answer ---- */

static int status_fields(struct rpc_stream *s, nghttp2_nv nv[2], char number[12], struct buf *text)
{
    snprintf(number, 12, "%d", (int)s->code);
    nv[0] = h2_nv("grpc-status", number);
    if (!s->message.len || status_encode_message(text, buf_str(&s->message)) < 0)
        return 1;
    nv[1] = h2_nv("grpc-message", buf_str(text));
    return 2;
}

static void on_trailers(struct h2_stream *st)
{
    struct rpc_stream *s = stream_of(st);
    _cleanup_buf_ struct buf text = { 0 };
    nghttp2_nv nv[2];
    char number[12];
    int n = status_fields(s, nv, number, &text);

    s->trailed = true;
    (void)nghttp2_submit_trailer(st->h2->session, st->id, nv, (size_t)n); /* else: stream_closed */
}

static int respond(struct rpc_stream *s, bool end)
{
    _cleanup_buf_ struct buf text = { 0 };
    nghttp2_nv nv[4];
    char number[12];
    size_t n = 0;

    s->responded = true;
    nv[n++] = h2_nv(":status", "200");
    nv[n++] = h2_nv("content-type", "application/grpc");
    if (end) {
        n += (size_t)status_fields(s, nv + n, number, &text);
        s->trailed = true;
    }
    return h2_stream_respond(&s->stream, nv, n, end);
}

ssize_t rpc_stream_send(struct rpc_stream *s, const void *data, size_t n)
{
    int r = 0;

    if (s->ending)
        return 0;
    if (!s->responded)
        r = respond(s, false);
    return r < 0 ? r : h2_stream_send(&s->stream, data, n);
}

void rpc_stream_end(struct rpc_stream *s, enum rpc_code code, const char *message)
{
    if (s->ending)
        return;
    s->ending = true;
    s->code = code;
    if (message)
        (void)buf_addstr(&s->message, message); /* without memory: a status without words */
    stop_timer(s);
    h2_stream_shut(&s->stream);
    if (!s->responded)
        (void)respond(s, true);
    else
        h2_stream_finish(&s->stream);
}

void rpc_stream_pause(struct rpc_stream *s, bool paused)
{
    h2_stream_pause(&s->stream, paused);
}

void rpc_stream_accept(struct rpc_stream *s, const struct rpc_stream_handlers *h, void *arg)
{
    s->handlers = *h;
    s->arg = arg;
}

const struct rpc_peer *rpc_stream_peer(const struct rpc_stream *s)
{
    return &s->conn->peer;
}

/* ---- the request ---- */

static void keep(char **where, const char *value)
{
    free(*where);
    *where = strdup(value);
}

static void on_header(struct h2_stream *st, const char *name, const char *value)
{
    struct rpc_stream *s = stream_of(st);

    if (s->started)
        return;
    if (!strcmp(name, ":path"))
        keep(&s->path, value);
    else if (!strcmp(name, ":method"))
        s->post = !strcmp(value, "POST");
    else if (!strcmp(name, "authorization"))
        keep(&s->authorization, value);
    else if (!strcmp(name, "content-type"))
        s->grpc_content = status_content_is_grpc(value);
    else if (!strcmp(name, "grpc-timeout"))
        s->bad_timeout = timeout_parse(value, &s->timeout_ms) < 0, s->has_timeout = true;
}

static void on_deadline(uv_timer_t *timer)
{
    struct rpc_stream *s = timer->data;
    bool blocked = s->stream.out.queued > 0;

    rpc_stream_end(s, RPC_DEADLINE_EXCEEDED, "the deadline passed");
    if (blocked)
        h2_stream_reset(&s->stream, NGHTTP2_CANCEL);
    tell_end(s, true);
    if (blocked)
        h2_stream_unref(&s->stream);
}

static void start_timer(struct rpc_stream *s)
{
    if (!s->has_timeout)
        return;
    s->has_timer = true;
    s->timer.data = s;
    uv_timer_init(s->conn->server->loop, &s->timer);
    uv_timer_start(&s->timer, on_deadline, s->timeout_ms, 0);
    h2_stream_ref(&s->stream);
}

static void refuse_http(struct rpc_stream *s, const char *status)
{
    nghttp2_nv nv = h2_nv(":status", status);

    s->ending = s->responded = s->trailed = true;
    h2_stream_shut(&s->stream);
    (void)h2_stream_respond(&s->stream, &nv, 1, true);
}

static void on_headers(struct h2_stream *st, bool end)
{
    struct rpc_stream *s = stream_of(st);
    struct rpc_server *server = s->conn->server;

    if (s->started)
        return;
    s->started = true;
    if (!s->post) {
        refuse_http(s, "405");
    } else if (!s->grpc_content) {
        refuse_http(s, "415");
    } else if (s->bad_timeout || !s->path) {
        rpc_stream_end(s, RPC_INTERNAL, "malformed request headers");
    } else {
        start_timer(s);
        server->handlers.start(server->arg, s, s->path, s->authorization);
        if (!s->handlers.end)
            rpc_stream_end(s, RPC_UNIMPLEMENTED, NULL);
    }
}

static void on_message(struct h2_stream *st, const uint8_t *data, size_t n)
{
    struct rpc_stream *s = stream_of(st);

    if (s->handlers.message)
        s->handlers.message(s->arg, data, n);
}

static void on_writable(struct h2_stream *st)
{
    struct rpc_stream *s = stream_of(st);

    if (s->handlers.writable)
        s->handlers.writable(s->arg);
}

static void on_remote_end(struct h2_stream *st)
{
    h2_stream_input_done(st);
}

static void on_input_end(struct h2_stream *st)
{
    struct rpc_stream *s = stream_of(st);

    if (frame_in_partial(&st->in)) {
        rpc_stream_end(s, RPC_INTERNAL, "the last message is cut off");
        tell_end(s, true);
    } else if (s->handlers.half_close) {
        s->handlers.half_close(s->arg);
    }
}

static void on_broken(struct h2_stream *st, int r)
{
    struct rpc_stream *s = stream_of(st);

    if (r == -EPROTO)
        rpc_stream_end(s, RPC_UNIMPLEMENTED, "compressed messages are not supported");
    else
        rpc_stream_end(s, RPC_RESOURCE_EXHAUSTED, "a message is above the limit");
    tell_end(s, true);
}

static void on_stream_closed(struct h2_stream *st, uint32_t error_code)
{
    struct rpc_stream *s = stream_of(st);

    tell_end(s, !s->trailed || (error_code != NGHTTP2_NO_ERROR && error_code != NGHTTP2_CANCEL));
    h2_stream_unref(st);
}

static void on_stream_lost(struct h2_stream *st, const char *words)
{
    tell_end(stream_of(st), true);
    h2_stream_unref(st);
}

static const struct h2_stream_ops stream_ops = {
    .header = on_header,
    .headers = on_headers,
    .message = on_message,
    .writable = on_writable,
    .remote_end = on_remote_end,
    .input_end = on_input_end,
    .broken = on_broken,
    .trailers = on_trailers,
    .stream_closed = on_stream_closed,
    .stream_lost = on_stream_lost,
    .destroy = destroy,
};
