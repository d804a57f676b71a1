/* Calls: from the request's headers to exactly one status. */
#include "base/base.h"

#include <boxd/error.h>

#include "rpc/client.h"
#include "rpc/status.h"

#define HEADERS_MAX 64
#define FIXED_HEADERS 8

/* What a request is made of, copied from the caller; dies when it is submitted. */
struct call_text {
    char *path;
    size_t count;
    char *name[HEADERS_MAX], *value[HEADERS_MAX];
};

static const struct h2_stream_ops call_ops;

static struct rpc_call *call_of(struct h2_stream *s)
{
    return container_of(s, struct rpc_call, stream);
}

static void text_free(struct call_text *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->name[i]);
        free(t->value[i]);
    }
    free(t->path);
    free(t);
}
DEFINE_CLEANUP(struct call_text, text_free);

/* ---- the end of a call ---- */

static void destroy(struct h2_stream *s)
{
    struct rpc_call *call = call_of(s);

    if (call->text)
        text_free(call->text);
    buf_clear(&call->message);
    channel_unref(call->channel);
    free(call);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct rpc_call *call = h->data;

    h2_stream_unref(&call->stream);
}

static void end(struct rpc_call *call)
{
    if (call->ended)
        return;
    call->ended = true;
    list_remove(&call->link);
    h2_stream_shut(&call->stream);
    if (call->deadline_ms)
        uv_close((uv_handle_t *)&call->timer, on_timer_closed);
    call->status.message = buf_str(&call->message);
    call->handlers.end(call->arg, &call->status);
    h2_stream_unref(&call->stream);
}

/* The first status wins. `words` NULL: what the message buffer holds. */
static void settle(struct rpc_call *call, enum rpc_code code, bool local, const char *words)
{
    if (call->settled)
        return;
    call->settled = true;
    call->waiting = false;
    call->status.code = code;
    call->status.local = local;
    if (words) {
        buf_truncate(&call->message, 0);
        (void)buf_addstr(&call->message, words); /* without memory: a status without words */
    }
    if (call->deadline_ms)
        uv_timer_stop(&call->timer);
    h2_stream_input_done(&call->stream);
}

/* This side gives the call up. */
static void give_up(struct rpc_call *call, enum rpc_code code, const char *words)
{
    settle(call, code, true, words);
    h2_stream_reset(&call->stream, NGHTTP2_CANCEL);
}

void call_unprocessed(struct rpc_call *call, const char *words)
{
    if (!call->settled)
        call->status.unprocessed = true;
    settle(call, RPC_UNAVAILABLE, true, words);
}

void call_abandon(struct rpc_call *call)
{
    call->settled = false;
    call->status = (struct rpc_status){ 0 };
    give_up(call, RPC_CANCELLED, "cancelled");
    end(call);
}

static void on_deadline(uv_timer_t *timer)
{
    give_up(timer->data, RPC_DEADLINE_EXCEEDED, "no answer within the deadline");
}

/* ---- what the server sends ---- */

static void on_header(struct h2_stream *s, const char *name, const char *value)
{
    struct rpc_call *call = call_of(s);

    if (call->settled)
        return;
    if (!strcmp(name, ":status")) {
        call->http_status = (unsigned)strtoul(value, NULL, 10); /* nghttp2 lets three digits pass */
    } else if (!strcmp(name, "content-type")) {
        call->grpc_content = status_content_is_grpc(value);
    } else if (!strcmp(name, "grpc-status")) {
        call->got_status = true;
        call->status.code = status_parse(value);
    } else if (!strcmp(name, "grpc-message")) {
        buf_truncate(&call->message, 0);
        (void)status_decode_message(&call->message, value, strlen(value));
    }
}

/* The status of an answer that is complete, or that cannot become one. */
static void settle_by_answer(struct rpc_call *call)
{
    char words[128];

    if (call->got_status) {
        settle(call, call->status.code, false, NULL);
    } else if (!call->http_status) {
        settle(call, RPC_INTERNAL, false, "the server answered without headers");
    } else if (call->http_status != 200) {
        snprintf(words, sizeof words, "the server answered HTTP status %u", call->http_status);
        settle(call, status_of_http(call->http_status), false, words);
    } else if (!call->grpc_content) {
        settle(call, RPC_UNKNOWN, false, "the server answered something that is not gRPC");
    } else {
        settle(call, RPC_UNKNOWN, false, "the server sent no grpc-status");
    }
}

static void on_headers(struct h2_stream *s, bool end_of_stream)
{
    struct rpc_call *call = call_of(s);

    if (call->got_headers)
        return;
    if (call->http_status < 200) {
        call->http_status = 0; /* 1xx: the answer is still to come */
        return;
    }
    call->got_headers = true;
    if (end_of_stream || (call->http_status == 200 && call->grpc_content))
        return;
    settle_by_answer(call);
    s->discard = true;
    h2_stream_reset(s, NGHTTP2_CANCEL);
}

static void on_message(struct h2_stream *s, const uint8_t *data, size_t n)
{
    struct rpc_call *call = call_of(s);

    if (call->handlers.message)
        call->handlers.message(call->arg, data, n);
    else
        give_up(call, RPC_INTERNAL, "the server sent a message where none belongs");
}

static void on_writable(struct h2_stream *s)
{
    struct rpc_call *call = call_of(s);

    if (call->handlers.writable && !call->settled)
        call->handlers.writable(call->arg);
}

static void on_remote_end(struct h2_stream *s)
{
    settle_by_answer(call_of(s));
    if (h2_stream_local_open(s))
        h2_stream_reset(s, NGHTTP2_NO_ERROR); /* nobody reads what would follow */
}

static void on_input_end(struct h2_stream *s)
{
    struct rpc_call *call = call_of(s);

    if (call->status.code == RPC_OK && frame_in_partial(&s->in)) {
        call->settled = false;
        settle(call, RPC_INTERNAL, true, "the server's last message is cut off");
    }
    end(call);
}

static const struct {
    int r;
    enum rpc_code code;
    const char *words;
} broken_table[] = {
    { -EMSGSIZE, RPC_RESOURCE_EXHAUSTED, "the server sent a message above the limit" },
    { -EPROTO, RPC_INTERNAL, "the server sent a compressed message, which was not asked for" },
    { -ENOMEM, RPC_RESOURCE_EXHAUSTED, "no memory for the server's message" },
};

static void on_broken(struct h2_stream *s, int r)
{
    struct rpc_call *call = call_of(s);

    /* What came in before is worth less than the truth about the rest. */
    call->settled = false;
    for (size_t i = 0; i < ARRAY_LEN(broken_table); i++)
        if (broken_table[i].r == r)
            give_up(call, broken_table[i].code, broken_table[i].words);
}

static void on_stream_closed(struct h2_stream *s, uint32_t error_code)
{
    struct rpc_call *call = call_of(s);
    char words[128];

    if (call->settled)
        return;
    if (error_code == NGHTTP2_NO_ERROR) {
        settle_by_answer(call);
        return;
    }
    snprintf(words, sizeof words, "the server reset the stream (%s)",
             nghttp2_http2_strerror(error_code));
    call->status.unprocessed = error_code == NGHTTP2_REFUSED_STREAM;
    settle(call, status_of_reset(error_code), false, words);
}

static void on_stream_lost(struct h2_stream *s, const char *words)
{
    struct rpc_call *call = call_of(s);
    char text[512];

    if (call->settled)
        return;
    snprintf(text, sizeof text, "the connection to '%s' broke: %s", call->channel->target.text,
             words);
    call->status.connection_lost = true;
    call->status.unprocessed = !s->sent;
    settle(call, RPC_UNAVAILABLE, true, text);
}

static const struct h2_stream_ops call_ops = {
    .header = on_header,
    .headers = on_headers,
    .message = on_message,
    .writable = on_writable,
    .remote_end = on_remote_end,
    .input_end = on_input_end,
    .broken = on_broken,
    .stream_closed = on_stream_closed,
    .stream_lost = on_stream_lost,
    .destroy = destroy,
};

/* ---- the request ---- */

static const char *authority(const struct rpc_channel *ch, char *room, size_t size)
{
    if (ch->target.is_unix)
        return "localhost";
    snprintf(room, size, strchr(ch->target.host, ':') ? "[%s]:%u" : "%s:%u", ch->target.host,
             ch->target.port);
    return room;
}

void call_submit(struct rpc_call *call, struct h2 *h)
{
    _cleanup_(cleanup_text_freep) struct call_text *t = steal_ptr(call->text);
    nghttp2_nv nv[HEADERS_MAX + FIXED_HEADERS];
    char timeout[16], host[300];
    uint64_t now = uv_now(call->channel->loop);
    size_t n = 0;

    call->waiting = false;
    nv[n++] = h2_nv(":method", "POST");
    nv[n++] = h2_nv(":scheme", call->channel->target.tls ? "https" : "http");
    nv[n++] = h2_nv(":path", t->path);
    nv[n++] = h2_nv(":authority", authority(call->channel, host, sizeof host));
    nv[n++] = h2_nv("te", "trailers");
    nv[n++] = h2_nv("content-type", "application/grpc");
    nv[n++] = h2_nv("user-agent", "boxd/" BOXDFS_VERSION);
    if (call->deadline_ms) {
        timeout_format(timeout, call->deadline_ms > now ? call->deadline_ms - now : 1);
        nv[n++] = h2_nv("grpc-timeout", timeout);
    }
    for (size_t i = 0; i < t->count; i++)
        nv[n++] = h2_nv(t->name[i], t->value[i]);
    if (h2_stream_submit(&call->stream, h, nv, n) < 0)
        call_unprocessed(call, boxd_error_words(-EIO));
}

static bool header_good(const struct rpc_header *h)
{
    return nghttp2_check_header_name((const uint8_t *)h->name, strlen(h->name)) &&
           nghttp2_check_header_value((const uint8_t *)h->value, strlen(h->value));
}

/* 0, -ENOMEM, or -EINVAL for what HTTP/2 cannot carry. */
static int copy_text(const struct rpc_call_spec *spec, struct call_text **out)
{
    _cleanup_(cleanup_text_freep) struct call_text *t = calloc(1, sizeof *t);

    if (!t)
        return -ENOMEM;
    t->path = strdup(spec->path);
    if (!t->path)
        return -ENOMEM;
    if (spec->header_count > HEADERS_MAX)
        return -EINVAL;
    for (size_t i = 0; i < spec->header_count; i++) {
        if (!header_good(&spec->headers[i]))
            return -EINVAL;
        t->name[i] = strdup(spec->headers[i].name);
        t->value[i] = strdup(spec->headers[i].value);
        t->count++;
        if (!t->name[i] || !t->value[i])
            return -ENOMEM;
    }
    *out = steal_ptr(t);
    return 0;
}

static void start_timer(struct rpc_call *call, uint32_t deadline_ms)
{
    if (!deadline_ms)
        return;
    uv_update_time(call->channel->loop);
    call->deadline_ms = uv_now(call->channel->loop) + deadline_ms;
    call->timer.data = call;
    uv_timer_init(call->channel->loop, &call->timer);
    uv_timer_start(&call->timer, on_deadline, deadline_ms, 0);
    h2_stream_ref(&call->stream);
}

static void find_connection(struct rpc_call *call)
{
    struct h2 *h;
    int r = channel_connection(call->channel, &h);

    if (r > 0)
        call_submit(call, h);
    else if (r == 0)
        call->waiting = true;
    else
        call_unprocessed(call, boxd_error_words(r));
}

struct rpc_call *rpc_call_start(struct rpc_channel *ch, const struct rpc_call_spec *spec)
{
    struct rpc_call *call;
    int r;

    if (ch->freed)
        return NULL;
    call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    h2_stream_init(&call->stream, &call_ops, &ch->queue);
    list_init(&call->link);
    call->channel = ch;
    channel_ref(ch);
    call->handlers = spec->handlers;
    call->arg = spec->arg;
    r = copy_text(spec, &call->text);
    if (r == -ENOMEM) {
        h2_stream_unref(&call->stream);
        return NULL;
    }
    ch->call_count++;
    list_add(&ch->calls, &call->link);
    if (r < 0) {
        give_up(call, RPC_INTERNAL, "a request header has characters that HTTP/2 cannot carry");
        return call;
    }
    start_timer(call, spec->deadline_ms);
    find_connection(call);
    return call;
}

ssize_t rpc_call_send(struct rpc_call *call, const void *data, size_t n)
{
    return call->settled ? 0 : h2_stream_send(&call->stream, data, n);
}

void rpc_call_finish(struct rpc_call *call)
{
    h2_stream_finish(&call->stream);
}

void rpc_call_pause(struct rpc_call *call, bool paused)
{
    h2_stream_pause(&call->stream, paused);
}

void rpc_call_cancel(struct rpc_call *call)
{
    call_abandon(call);
}
