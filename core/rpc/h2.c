#include "base/base.h"

#include <boxd/error.h>

#include "rpc/h2.h"
#include "rpc/rpc.h"

/* Cancels a client may send: a burst, and how many a second come back. nghttp2's own default ends
 * the connection, innocent streams included, after a thousand. */
#define RESET_BURST 100000
#define RESET_RATE 10000

nghttp2_nv h2_nv(const char *name, const char *value)
{
    return (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                         strlen(value), NGHTTP2_NV_FLAG_NONE };
}

static struct h2_stream *find(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* nghttp2 forgets the stream object, which may go away before the HTTP/2 stream does. */
static void detach(struct h2_stream *s)
{
    struct h2 *h = s->h2;

    if (!h)
        return;
    nghttp2_session_set_stream_user_data(h->session, s->id, NULL);
    s->h2 = NULL;
    list_remove(&s->link);
    if (!--h->stream_count && h->ops->busy)
        h->ops->busy(h, false);
}

static void attach(struct h2_stream *s, struct h2 *h, int32_t id)
{
    s->h2 = h;
    s->id = id;
    list_add(&h->streams, &s->link);
    if (!h->stream_count++ && h->ops->busy)
        h->ops->busy(h, true);
}

/* ---- input ---- */

static void consume(struct h2_stream *s, size_t n)
{
    if (!s->h2 || !n)
        return;
    nghttp2_session_consume_stream(s->h2->session, s->id, n);
    /* A window that opens while nothing comes in has no other occasion to be told. */
    wire_want_write(s->h2->wire);
}

/* Hands messages over until the reader pauses. Returns the bytes that are done with. */
static size_t deliver(struct h2_stream *s, const uint8_t *data, size_t n)
{
    size_t done = 0;

    while (done < n && !s->paused && !s->discard) {
        const uint8_t *message;
        size_t length;
        ssize_t k = frame_in_feed(&s->in, data + done, n - done, &message, &length);

        if (k < 0) {
            s->discard = true;
            s->ops->broken(s, (int)k);
            break;
        }
        done += (size_t)k;
        if (message)
            s->ops->message(s, message, length);
    }
    return s->discard ? n : done;
}

static void drain(struct h2_stream *s)
{
    size_t n = s->pending.len - s->pending_off;

    if (n) {
        size_t k = deliver(s, (const uint8_t *)s->pending.data + s->pending_off, n);

        consume(s, k);
        s->pending_off += k;
        if (k < n)
            return;
        buf_clear(&s->pending);
        s->pending_off = 0;
    }
    if (s->input_done && !s->paused && !s->input_told) {
        s->input_told = true;
        s->ops->input_end(s);
    }
}

/* Keeps what the reader did not take; its window stays closed by as much. */
static void keep(struct h2_stream *s, const uint8_t *data, size_t n)
{
    int r;

    if (s->pending_off > s->pending.len / 2) {
        buf_consume(&s->pending, s->pending_off);
        s->pending_off = 0;
    }
    r = buf_add(&s->pending, data, n);
    if (r < 0) {
        s->discard = true;
        s->ops->broken(s, -ENOMEM);
    }
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *s = find(session, id);
    size_t k = 0;

    /* At once, whoever reads: else one slow stream would stop all others. */
    nghttp2_session_consume_connection(session, n);
    if (!s)
        return 0;
    h2_stream_ref(s);
    if (!s->pending.len)
        k = deliver(s, data, n);
    consume(s, k);
    if (k < n)
        keep(s, data + k, n - k);
    h2_stream_unref(s);
    return h->wire->state == WIRE_CLOSED ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void run_later(struct later *item)
{
    struct h2_stream *s = container_of(item, struct h2_stream, later);

    h2_stream_ref(s);
    if (s->tell_writable) {
        s->tell_writable = false;
        if (!s->out.finished)
            s->ops->writable(s);
    }
    drain(s);
    h2_stream_unref(s);
}

void h2_stream_pause(struct h2_stream *s, bool paused)
{
    s->paused = paused;
    if (!paused)
        later_add(s->queue, &s->later);
}

void h2_stream_input_done(struct h2_stream *s)
{
    s->input_done = true;
    later_add(s->queue, &s->later);
}

void h2_stream_shut(struct h2_stream *s)
{
    s->discard = true;
    s->input_told = true;
    s->tell_writable = false;
    later_cancel(&s->later);
}

/* ---- output ---- */

static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *out, size_t n,
                          uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct h2_stream *s = find(session, id);
    size_t k;

    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    k = frame_out_take(&s->out, out, n);
    if (s->above_low && s->out.queued < RPC_QUEUE_LOW) {
        s->above_low = false;
        s->tell_writable = true;
        later_add(s->queue, &s->later);
    }
    if (!s->out.queued && s->out.finished) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->h2->server) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            s->ops->trailers(s);
        }
    } else if (!k) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)k;
}

static void wake(struct h2_stream *s)
{
    if (!s->h2)
        return;
    /* Fails when the stream is not deferred, which is no matter: it is read anyway. */
    (void)nghttp2_session_resume_data(s->h2->session, s->id);
    wire_want_write(s->h2->wire);
}

ssize_t h2_stream_send(struct h2_stream *s, const void *data, size_t n)
{
    int r;

    if (s->out.finished)
        return 0;
    r = frame_out_add(&s->out, data, n);
    if (r < 0)
        return r;
    if (s->out.queued > RPC_QUEUE_LOW)
        s->above_low = true;
    wake(s);
    return (ssize_t)s->out.queued;
}

void h2_stream_finish(struct h2_stream *s)
{
    if (s->out.finished)
        return;
    s->out.finished = true;
    wake(s);
}

/* ---- streams ---- */

void h2_stream_init(struct h2_stream *s, const struct h2_stream_ops *ops, struct later_queue *queue)
{
    *s = (struct h2_stream){ .ops = ops, .queue = queue, .refs = 1 };
    later_init(&s->later, run_later);
    list_init(&s->link);
    frame_out_init(&s->out);
}

void h2_stream_ref(struct h2_stream *s)
{
    s->refs++;
}

void h2_stream_unref(struct h2_stream *s)
{
    if (--s->refs)
        return;
    later_cancel(&s->later);
    detach(s);
    frame_in_clear(&s->in);
    frame_out_clear(&s->out);
    buf_clear(&s->pending);
    s->ops->destroy(s);
}

int h2_stream_submit(struct h2_stream *s, struct h2 *h, const nghttp2_nv *headers, size_t n)
{
    nghttp2_data_provider body = { .read_callback = read_queue };
    int32_t id = nghttp2_submit_request(h->session, NULL, headers, n, &body, s);

    if (id < 0)
        return boxd_words(id == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EIO, "cannot start a stream: %s",
                          nghttp2_strerror(id));
    attach(s, h, id);
    wire_want_write(h->wire);
    return 0;
}

int h2_stream_respond(struct h2_stream *s, const nghttp2_nv *headers, size_t n, bool end)
{
    nghttp2_data_provider body = { .read_callback = read_queue };
    int r;

    if (!s->h2)
        return 0;
    r = nghttp2_submit_response(s->h2->session, s->id, headers, n, end ? NULL : &body);
    wire_want_write(s->h2->wire);
    return r < 0 ? boxd_words(-EIO, "cannot answer: %s", nghttp2_strerror(r)) : 0;
}

void h2_stream_reset(struct h2_stream *s, uint32_t error_code)
{
    struct h2 *h = s->h2;

    if (!h)
        return;
    (void)nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, error_code);
    detach(s);
    wire_want_write(h->wire);
}

bool h2_stream_local_open(const struct h2_stream *s)
{
    return s->h2 && nghttp2_session_get_stream_local_close(s->h2->session, s->id) == 0;
}

/* ---- nghttp2's events ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *s;

    if (!h->server || f->hd.type != NGHTTP2_HEADERS || f->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = h->ops->begin(h);
    if (!s) {
        nghttp2_submit_rst_stream(session, 0, f->hd.stream_id, NGHTTP2_REFUSED_STREAM);
        return 0;
    }
    attach(s, h, f->hd.stream_id);
    nghttp2_session_set_stream_user_data(session, s->id, s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *s = find(session, f->hd.stream_id);

    if (!s)
        return 0;
    s->header_bytes += name_len + value_len + 32; /* as RFC 9113 counts */
    if (s->header_bytes > h->settings.header_limit) {
        h2_stream_reset(s, NGHTTP2_ENHANCE_YOUR_CALM);
        s->ops->stream_closed(s, NGHTTP2_ENHANCE_YOUR_CALM);
        return 0;
    }
    s->ops->header(s, (const char *)name, (const char *)value);
    return 0;
}

static void on_settings_ack(struct h2 *h)
{
    uint32_t us = (uint32_t)((uv_hrtime() - h->probe_ns) / 1000);

    if (h->acks_due)
        h->acks_due--;
    if (h->acks_due || !h->probe_waits)
        return;
    h->probe_waits = false;
    if (!us)
        us = 1;
    h->latency_us = h->latency_us ? (h->latency_us * 7 + us) / 8 : us;
}

static void on_settings(struct h2 *h)
{
    if (h->ready)
        return;
    h->ready = true;
    h->ops->ready(h);
}

static void on_stream_frame(struct h2 *h, const nghttp2_frame *f)
{
    struct h2_stream *s = find(h->session, f->hd.stream_id);
    bool end = f->hd.flags & NGHTTP2_FLAG_END_STREAM;

    if (!s)
        return;
    h2_stream_ref(s);
    if (f->hd.type == NGHTTP2_HEADERS)
        s->ops->headers(s, end);
    if (end && s->h2)
        s->ops->remote_end(s);
    h2_stream_unref(s);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
    struct h2 *h = arg;

    switch (f->hd.type) {
    case NGHTTP2_SETTINGS:
        if (f->hd.flags & NGHTTP2_FLAG_ACK)
            on_settings_ack(h);
        else
            on_settings(h);
        break;
    case NGHTTP2_GOAWAY:
        h->going_away = true;
        if (h->ops->going_away)
            h->ops->going_away(h);
        break;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        on_stream_frame(h, f);
        break;
    default:
        break;
    }
    return h->wire->state == WIRE_CLOSED ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

/* An answer may be complete while the request still runs: tell the client to stop sending. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
    struct h2 *h = arg;
    struct h2_stream *s = find(session, f->hd.stream_id);

    if (s && f->hd.type == NGHTTP2_HEADERS)
        s->sent = true;
    if (f->hd.type == NGHTTP2_GOAWAY && f->goaway.error_code != NGHTTP2_NO_ERROR)
        snprintf(h->reason, sizeof h->reason, "the peer broke HTTP/2's rules (%s)",
                 nghttp2_http2_strerror(f->goaway.error_code));
    if (h->server && f->hd.type == NGHTTP2_HEADERS && f->hd.flags & NGHTTP2_FLAG_END_STREAM &&
        nghttp2_session_get_stream_remote_close(session, f->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, f->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *arg)
{
    struct h2_stream *s = find(session, id);

    if (!s)
        return 0;
    h2_stream_ref(s);
    detach(s);
    s->ops->stream_closed(s, error_code);
    h2_stream_unref(s);
    return 0;
}

/* ---- the connection ---- */

static int session_failed(int e)
{
    return boxd_words(e == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO, "HTTP/2: %s",
                      nghttp2_strerror(e));
}

int h2_received(struct wire *w, const uint8_t *data, size_t n)
{
    struct h2 *h = w->owner;
    ssize_t k;

    h->inside = true;
    k = nghttp2_session_mem_recv(h->session, data, n);
    h->inside = false;
    return k < 0 ? session_failed((int)k) : 0;
}

static int h2_produce(struct wire *w, struct buf *out, size_t room)
{
    struct h2 *h = w->owner;

    while (out->len < room) {
        const uint8_t *data;
        ssize_t n;
        int r;

        h->inside = true;
        n = nghttp2_session_mem_send(h->session, &data);
        h->inside = false;
        if (n < 0)
            return session_failed((int)n);
        if (!n)
            break;
        r = buf_add(out, data, (size_t)n);
        if (r < 0)
            return boxd_words(r, "no memory to send");
    }
    if (!out->len && !nghttp2_session_want_read(h->session) &&
        !nghttp2_session_want_write(h->session))
        return boxd_words(-ECONNRESET, "%s", h->reason[0] ? h->reason : "closed by the peer");
    return 0;
}

static void lose_streams(struct h2 *h, const char *words)
{
    while (!list_empty(&h->streams)) {
        struct h2_stream *s = container_of(h->streams.next, struct h2_stream, link);

        h2_stream_ref(s);
        detach(s);
        s->ops->stream_lost(s, words);
        h2_stream_unref(s);
    }
}

static void h2_closed(struct wire *w, int r, const char *words)
{
    struct h2 *h = w->owner;

    lose_streams(h, words);
    h->ops->closed(h, r, words);
}

static void h2_released(struct wire *w)
{
    struct h2 *h = w->owner;

    nghttp2_session_del(h->session);
    h->session = NULL;
    h->ops->released(h);
}

const struct wire_ops h2_wire_ops = {
    .received = h2_received,
    .produce = h2_produce,
    .closed = h2_closed,
    .released = h2_released,
};

void h2_close(struct h2 *h, const char *words)
{
    if (!h->inside) {
        (void)nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR);
        wire_flush(h->wire);
    }
    wire_close(h->wire);
    lose_streams(h, words);
}

/* An empty SETTINGS, which every peer must acknowledge at once. Not a PING: gRPC's servers count
 * those on silent streams and end the connection after a few ("too many pings"). */
void h2_probe(struct h2 *h)
{
    if (h->probe_waits || nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, NULL, 0) < 0)
        return;
    h->acks_due++;
    h->probe_waits = true;
    h->probe_ns = uv_hrtime();
    wire_want_write(h->wire);
}

static int new_session(struct h2 *h)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *option = NULL;
    int r = NGHTTP2_ERR_NOMEM;

    if (nghttp2_session_callbacks_new(&cb) == 0 && nghttp2_option_new(&option) == 0) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
        nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
        nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_stream_reset_rate_limit(option, RESET_BURST, RESET_RATE);
        r = h->server ? nghttp2_session_server_new2(&h->session, cb, h, option)
                      : nghttp2_session_client_new2(&h->session, cb, h, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(cb);
    return r;
}

static int announce(struct h2 *h)
{
    nghttp2_settings_entry entries[4];
    size_t n = 0;
    int r;

    entries[n++] =
        (nghttp2_settings_entry){ NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, h->settings.stream_window };
    entries[n++] =
        (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, h->settings.header_limit };
    if (h->settings.max_streams)
        entries[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                                 h->settings.max_streams };
    if (!h->server)
        entries[n++] = (nghttp2_settings_entry){ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 };
    r = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, entries, n);
    h->acks_due = 1;
    if (r == 0)
        r = nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                  (int32_t)h->settings.connection_window);
    return r;
}

int h2_start(struct h2 *h, struct wire *wire, bool server, const struct h2_ops *ops,
             const struct h2_settings *settings)
{
    int r;

    *h = (struct h2){ .wire = wire, .ops = ops, .settings = *settings, .server = server };
    list_init(&h->streams);
    r = new_session(h);
    if (r == 0)
        r = announce(h);
    if (r < 0)
        return session_failed(r);
    wire->ops = &h2_wire_ops;
    wire->owner = h;
    wire_want_write(wire);
    return 0;
}
