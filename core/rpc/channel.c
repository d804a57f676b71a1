/* Connections of a channel: opening, liveness, going away, waiting before the next try. */
#include "base/base.h"

#include <boxd/error.h>

#include "base/str.h"
#include "rpc/client.h"
#include "rpc/tls.h"

#define BACKOFF_FIRST 100
/* No more than a call spends on its retries: a service that is back is found by the next call. */
#define BACKOFF_LAST 1000
#define HEADER_LIMIT 65536

struct conn {
    struct wire wire;
    struct h2 h2;
    struct dial dial;
    uint64_t tick_ms; /* the last look at liveness */
    uv_timer_t timer; /* the connect time-out, then liveness */
    struct rpc_channel *channel;
    struct list link;
    unsigned parts; /* dial, wire, timer: what still uses the memory */
    bool gone;      /* reported already */
};

static struct conn *conn_of(struct h2 *h)
{
    return container_of(h, struct conn, h2);
}

static const struct h2_ops conn_ops;

/* ---- life of the memory ---- */

void channel_ref(struct rpc_channel *ch)
{
    ch->refs++;
}

void channel_unref(struct rpc_channel *ch)
{
    if (--ch->refs)
        return;
    SSL_CTX_free(ch->tls);
    rpc_target_clear(&ch->target);
    free(ch->ca_file);
    free(ch->last_failure);
    free(ch);
}

static void conn_put(struct conn *c)
{
    if (--c->parts)
        return;
    channel_unref(c->channel);
    free(c);
}

static void on_timer_closed(uv_handle_t *h)
{
    conn_put(h->data);
}

static void on_dial_released(struct dial *d)
{
    conn_put(container_of(d, struct conn, dial));
}

/* Leaves the channel; the memory goes when uv lets go of it. */
static void conn_leave(struct conn *c)
{
    struct rpc_channel *ch = c->channel;

    if (c->gone)
        return;
    c->gone = true;
    list_remove(&c->link);
    if (ch->current == c)
        ch->current = NULL;
    ch->sent += c->wire.sent;
    ch->received += c->wire.received;
    dial_cancel(&c->dial);
    if (c->h2.session)
        ch->latency_us = c->h2.latency_us;
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* ---- failing ---- */

/* Fails the calls that wait for the connection that could not be opened. */
static void fail_waiting(struct rpc_channel *ch, const char *words)
{
    list_each_safe(it, &ch->calls)
    {
        struct rpc_call *call = container_of(it, struct rpc_call, link);

        if (call->waiting)
            call_unprocessed(call, words);
    }
}

static void back_off(struct rpc_channel *ch, const char *words)
{
    ch->backoff_ms = ch->backoff_ms ? ch->backoff_ms * 2 : BACKOFF_FIRST;
    if (ch->backoff_ms > BACKOFF_LAST)
        ch->backoff_ms = BACKOFF_LAST;
    ch->retry_at_ms = uv_now(ch->loop) + ch->backoff_ms;
    free(ch->last_failure);
    ch->last_failure = strf("cannot connect to '%s': %s", ch->target.text, words);
}

static void conn_failed(struct conn *c, const char *words)
{
    struct rpc_channel *ch = c->channel;
    bool opening = ch->current == c && !c->h2.ready;

    channel_ref(ch);
    conn_leave(c);
    wire_close(&c->wire);
    if (opening) {
        back_off(ch, words);
        fail_waiting(ch, ch->last_failure ? ch->last_failure : words);
    }
    channel_unref(ch);
}

static void on_closed(struct h2 *h, int r, const char *words)
{
    conn_failed(conn_of(h), words);
}

static void on_released(struct h2 *h)
{
    conn_put(conn_of(h));
}

/* The last stream on a connection that takes no new ones is over. */
static void close_if_drained(struct conn *c)
{
    if (!c->h2.going_away || c->h2.stream_count || c->gone)
        return;
    conn_leave(c);
    wire_close(&c->wire);
}

/* ---- liveness ---- */

static void on_tick(uv_timer_t *timer)
{
    struct conn *c = timer->data;
    const struct rpc_channel_options *o = &c->channel->options;
    uint64_t now = uv_now(timer->loop);
    /* After a stop of this very process the answer may lie unread: look once more. */
    bool slept = now - c->tick_ms > 2 * (uint64_t)o->ping_interval_ms;

    c->tick_ms = now;
    if (c->h2.probe_waits && !slept && now - c->wire.heard_ms >= o->ping_timeout_ms &&
        uv_hrtime() - c->h2.probe_ns >= (uint64_t)o->ping_timeout_ms * 1000000)
        wire_fail(&c->wire, -ETIMEDOUT, "the server stopped answering");
    else
        h2_probe(&c->h2);
}

static void on_busy(struct h2 *h, bool busy)
{
    struct conn *c = conn_of(h);
    uint64_t interval = c->channel->options.ping_interval_ms;

    if (c->gone)
        return;
    if (busy) {
        c->tick_ms = uv_now(c->timer.loop);
        uv_timer_start(&c->timer, on_tick, interval, interval);
        if (uv_hrtime() - h->probe_ns > interval * 1000000)
            h2_probe(h);
    } else {
        uv_timer_stop(&c->timer);
        close_if_drained(c);
    }
}

/* ---- opening ---- */

static void on_ready(struct h2 *h)
{
    struct conn *c = conn_of(h);
    struct rpc_channel *ch = c->channel;

    uv_timer_stop(&c->timer);
    ch->backoff_ms = 0;
    ch->retry_at_ms = 0;
    h2_probe(h);
    list_each_safe(it, &ch->calls)
    {
        struct rpc_call *call = container_of(it, struct rpc_call, link);

        if (call->waiting)
            call_submit(call, h);
    }
}

static void on_going_away(struct h2 *h)
{
    struct conn *c = conn_of(h);

    if (c->channel->current == c)
        c->channel->current = NULL;
    close_if_drained(c);
}

static void on_wire_open(struct wire *w)
{
    struct conn *c = container_of(w, struct conn, wire);
    const struct rpc_channel_options *o = &c->channel->options;
    struct h2_settings settings = { .stream_window = o->stream_window,
                                    .connection_window = o->connection_window,
                                    .header_limit = HEADER_LIMIT };
    int r = h2_start(&c->h2, w, false, &conn_ops, &settings);

    if (r < 0)
        conn_failed(c, boxd_error_words(r));
    else
        wire_flush(w);
}

static void on_wire_closed(struct wire *w, int r, const char *words)
{
    conn_failed(container_of(w, struct conn, wire), words);
}

static void on_wire_released(struct wire *w)
{
    conn_put(container_of(w, struct conn, wire));
}

/* Until the connection is open; then h2's own. */
static const struct wire_ops opening_ops = {
    .opened = on_wire_open,
    .closed = on_wire_closed,
    .released = on_wire_released,
};

static void on_dialed(struct dial *d, int fd)
{
    struct conn *c = container_of(d, struct conn, dial);
    struct rpc_channel *ch = c->channel;
    SSL *ssl = NULL;
    int r = fd;

    if (fd >= 0 && ch->target.tls) {
        r = tls_client_new(ch->tls, ch->target.host, &ssl);
        if (r < 0)
            close(fd);
    }
    if (r >= 0) {
        r = wire_open(&c->wire, ch->loop, &ch->queue, fd, ssl, false, &opening_ops, c);
        if (r == 0)
            c->parts++;
    }
    if (r < 0)
        conn_failed(c, boxd_error_words(r));
}

static void on_connect_timeout(uv_timer_t *timer)
{
    conn_failed(timer->data, "no answer in time");
}

static int conn_new(struct rpc_channel *ch)
{
    struct conn *c = calloc(1, sizeof *c);
    int r;

    if (!c)
        return boxd_words(-ENOMEM, "no memory for a connection");
    c->channel = ch;
    c->wire.state = WIRE_CLOSED; /* until there is one */
    c->parts = 2;
    c->timer.data = c;
    c->dial.done = on_dialed;
    c->dial.released = on_dial_released;
    uv_timer_init(ch->loop, &c->timer);
    uv_timer_start(&c->timer, on_connect_timeout, ch->options.connect_timeout_ms, 0);
    channel_ref(ch);
    ch->current = c;
    ch->conn_count++;
    list_add(&ch->conns, &c->link);
    r = dial_start(&c->dial, ch->loop, &ch->target, ch->options.connect_timeout_ms);
    if (r < 0) {
        back_off(ch, boxd_error_words(r));
        conn_leave(c);
    }
    return r;
}

int channel_connection(struct rpc_channel *ch, struct h2 **out)
{
    struct conn *c = ch->current;

    /* Its stream numbers are used up, or it broke the rules and is about to be closed. */
    if (c && c->h2.ready && !nghttp2_session_check_request_allowed(c->h2.session)) {
        c->h2.going_away = true;
        on_going_away(&c->h2);
    }
    if (ch->current) {
        *out = &ch->current->h2;
        return ch->current->h2.ready;
    }
    if (uv_now(ch->loop) < ch->retry_at_ms)
        return boxd_words(-EHOSTUNREACH, "%s",
                          ch->last_failure ? ch->last_failure : "cannot connect");
    return conn_new(ch);
}

static const struct h2_ops conn_ops = {
    .ready = on_ready,
    .busy = on_busy,
    .going_away = on_going_away,
    .closed = on_closed,
    .released = on_released,
};

/* ---- the channel ---- */

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
    return value ? value : fallback;
}

static void set_options(struct rpc_channel *ch, const struct rpc_channel_options *o)
{
    ch->options = *o;
    ch->options.connect_timeout_ms = or_default(o->connect_timeout_ms, 10000);
    ch->options.stream_window = or_default(o->stream_window, 4u << 20);
    ch->options.connection_window = or_default(o->connection_window, 32u << 20);
    ch->options.ping_interval_ms = or_default(o->ping_interval_ms, 1000);
    ch->options.ping_timeout_ms = or_default(o->ping_timeout_ms, 3000);
}

static int set_target(struct rpc_channel *ch, const struct rpc_target *t)
{
    ch->target = *t;
    ch->target.text = strdup(t->text);
    ch->target.host = strdup(t->host);
    return ch->target.text && ch->target.host ? 0 : -ENOMEM;
}

int rpc_channel_new(uv_loop_t *loop, const struct rpc_target *target,
                    const struct rpc_channel_options *options, struct rpc_channel **out)
{
    static const struct rpc_channel_options none;
    struct rpc_channel *ch = calloc(1, sizeof *ch);
    int r;

    if (!ch)
        return -ENOMEM;
    ch->loop = loop;
    ch->refs = 1;
    list_init(&ch->conns);
    list_init(&ch->calls);
    set_options(ch, options ? options : &none);
    r = set_target(ch, target);
    if (r == 0 && target->tls)
        r = tls_client_context(ch->options.ca_file, &ch->tls);
    ch->options.ca_file = NULL; /* the caller's; read already */
    if (r == 0)
        r = later_queue_init(&ch->queue, loop);
    if (r < 0) {
        channel_unref(ch);
        return r;
    }
    *out = ch;
    return 0;
}

static void on_queue_released(void *arg)
{
    channel_unref(arg);
}

void rpc_channel_free(struct rpc_channel *ch)
{
    if (ch->freed)
        return;
    ch->freed = true;
    while (!list_empty(&ch->calls))
        call_abandon(container_of(ch->calls.next, struct rpc_call, link));
    while (!list_empty(&ch->conns)) {
        struct conn *c = container_of(ch->conns.next, struct conn, link);

        conn_leave(c);
        wire_close(&c->wire);
    }
    later_queue_close(&ch->queue, on_queue_released, ch);
}

void rpc_channel_stats(const struct rpc_channel *ch, struct rpc_channel_stats *out)
{
    *out = (struct rpc_channel_stats){ .calls = ch->call_count,
                                       .connections = ch->conn_count,
                                       .bytes_sent = ch->sent,
                                       .bytes_received = ch->received,
                                       .latency_us = ch->latency_us };
    list_each(it, &ch->conns)
    {
        const struct conn *c = container_of(it, struct conn, link);

        out->bytes_sent += c->wire.sent;
        out->bytes_received += c->wire.received;
    }
    if (ch->current && ch->current->h2.ready) {
        out->connected = true;
        if (ch->current->h2.latency_us)
            out->latency_us = ch->current->h2.latency_us;
    }
}
