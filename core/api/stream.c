#include "api/stream.h"

#include <boxd/error.h>

#include "api/credentials.h"
#include "api/errno.h"
#include "api/wire.h"

/* What was sent is kept up to this size until the first answer, so that a call which the service
 * refused to look at can be sent again. */
#define KEPT_MAX ((size_t)256 * 1024)
#define RETRIES 2
static const uint16_t retry_delay_ms[RETRIES] = { 500, 1000 };

/* What rpc knows of a stream: it may outlive the stream until its end was told. */
struct attempt {
    struct stream *s; /* NULL: nobody listens any more */
    struct rpc_call *rpc;
};

struct stream {
    struct stream_spec spec;
    struct boxd_client *client;
    char *subject;
    struct attempt *attempt; /* NULL: waiting for credentials, a retry or stream_begin() */
    struct credential_wait wait;
    struct timer timer; /* the next attempt, or the failure below */
    int failure;
    char *failure_words;
    struct buf kept; /* messages behind their length */
    bool repeatable; /* `kept` holds all that was sent, and nothing was delivered */
    bool finished, paused, renewed;
    unsigned retries;
    uint64_t generation; /* of the credentials in use */
};

static void begin(struct stream *s);

static void detach(struct stream *s)
{
    struct attempt *a = steal_ptr(s->attempt);

    list_remove(&s->wait.link);
    timer_clear(&s->timer);
    if (!a)
        return;
    a->s = NULL;
    rpc_call_cancel(a->rpc);
}

static void stream_free(struct stream *s)
{
    buf_clear(&s->kept);
    free(s->failure_words);
    free(s->subject);
    free(s);
}

void stream_close(struct stream *s)
{
    detach(s);
    stream_free(s);
}

/* The words for r were just remembered. */
static void finish(struct stream *s, int r)
{
    void (*end)(void *arg, int r) = s->spec.end;
    void *arg = s->spec.arg;

    if (r < 0)
        s->client->stats.failures++;
    list_remove(&s->wait.link);
    timer_clear(&s->timer);
    stream_free(s);
    end(arg, r);
}

void stream_fail(struct stream *s, int r)
{
    if (s->failure)
        return;
    s->failure = r;
    s->failure_words = strdup(boxd_error_words(r));
    detach(s);
    timer_set(s->client->timers, &s->timer, 0);
}

void stream_fail_answer(struct stream *s, const char *why)
{
    stream_fail(s, api_words(-EIO, s->spec.method, s->subject, why));
}

static void timer_ran(struct timer *t)
{
    struct stream *s = container_of(t, struct stream, timer);

    if (!s->failure) {
        begin(s);
        return;
    }
    finish(s, s->failure_words ? boxd_words(s->failure, "%s", s->failure_words) : s->failure);
}

/* The service was reached and turned the stream away (REFUSED_STREAM, GOAWAY). */
static bool refused(const struct rpc_status *status)
{
    return status->unprocessed && (!status->local || status->connection_lost);
}

/* Milliseconds until the call is tried again, or -1: it is not. */
static int retry_delay(const struct stream *s, const struct rpc_status *status)
{
    const struct api_method *m = s->spec.method;

    if (status->code != RPC_UNAVAILABLE || s->retries == RETRIES || !s->repeatable)
        return -1;
    if (status->unprocessed)
        return refused(status) ? 0 : retry_delay_ms[s->retries];
    if (m->shape != API_UNARY && m->shape != API_SERVER_STREAM)
        return -1;
    if (status->connection_lost && m->changes)
        return -1;
    return retry_delay_ms[s->retries];
}

static void attempt_end(void *arg, const struct rpc_status *status)
{
    struct attempt *a = arg;
    struct stream *s = a->s;
    int delay;

    free(a);
    if (!s)
        return;
    s->attempt = NULL;
    if (status->code == RPC_OK) {
        finish(s, 0);
        return;
    }
    if (status->code == RPC_UNAUTHENTICATED && s->repeatable && !s->renewed &&
        s->client->credentials && credentials_renew(s->client->credentials, s->generation)) {
        s->renewed = true;
        begin(s);
        return;
    }
    delay = retry_delay(s, status);
    if (delay < 0) {
        finish(s, api_errno(s->spec.method, s->subject, status));
        return;
    }
    s->retries++;
    s->client->stats.retries++;
    timer_set(s->client->timers, &s->timer, (unsigned)delay);
}

static void attempt_message(void *arg, const uint8_t *data, size_t n)
{
    struct stream *s = ((struct attempt *)arg)->s;

    if (!s)
        return;
    s->repeatable = false;
    buf_clear(&s->kept);
    s->spec.message(s->spec.arg, data, n);
}

static void attempt_writable(void *arg)
{
    struct stream *s = ((struct attempt *)arg)->s;

    if (s && s->spec.writable)
        s->spec.writable(s->spec.arg);
}

/* Gives the call what was kept for it. */
static int send_kept(struct stream *s)
{
    uint32_t n;

    for (size_t at = 0; at < s->kept.len; at += n) {
        ssize_t r;

        memcpy(&n, s->kept.data + at, sizeof n);
        at += sizeof n;
        r = rpc_call_send(s->attempt->rpc, s->kept.data + at, n);
        if (r < 0)
            return (int)r;
    }
    if (s->kept.len > KEPT_MAX) {
        s->repeatable = false;
        buf_clear(&s->kept);
    }
    if (s->finished)
        rpc_call_finish(s->attempt->rpc);
    if (s->paused)
        rpc_call_pause(s->attempt->rpc, true);
    return 0;
}

static int attempt(struct stream *s, const char *authorization)
{
    char path[96];
    struct rpc_channel *channel;
    struct rpc_header header = { "authorization", authorization };
    struct rpc_call_spec spec = {
        .path = path,
        .headers = &header,
        .header_count = authorization ? 1 : 0,
        .deadline_ms = s->spec.deadline_ms,
        .handlers = { attempt_message, attempt_writable, attempt_end },
    };
    _cleanup_free_ struct attempt *a = calloc(1, sizeof *a);
    int r = client_channel(s->client, s->spec.bulk, &channel);

    if (!a)
        return -ENOMEM;
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "/boxd.api.v1.BoxdApi/%s", s->spec.method->name);
    a->s = s;
    spec.arg = a;
    a->rpc = rpc_call_start(channel, &spec);
    if (!a->rpc)
        return -ENOMEM;
    s->attempt = steal_ptr(a);
    s->client->stats.round_trips++;
    return send_kept(s);
}

static void begin(struct stream *s)
{
    struct credentials *cs = s->client->credentials;
    const char *authorization = NULL;
    int r = 0;

    if (cs)
        r = credentials_get(cs, &authorization, &s->generation);
    if (r == -EAGAIN) {
        credentials_wait(cs, &s->wait);
        return;
    }
    if (r >= 0)
        r = attempt(s, authorization);
    if (r < 0)
        stream_fail(s, r);
}

static void credentials_came(struct credential_wait *w, int r)
{
    struct stream *s = container_of(w, struct stream, wait);

    if (r < 0)
        stream_fail(s, r);
    else
        begin(s);
}

struct stream *stream_new(struct boxd_client *c, const struct stream_spec *spec)
{
    struct stream *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->spec = *spec;
    s->spec.subject = NULL;
    s->client = c;
    s->repeatable = true;
    timer_init(&s->timer, timer_ran);
    credential_wait_init(&s->wait, credentials_came);
    if (spec->subject) {
        s->subject = strdup(spec->subject);
        if (!s->subject) {
            free(s);
            return NULL;
        }
    }
    c->stats.calls++;
    return s;
}

void stream_begin(struct stream *s)
{
    if (!s->failure)
        begin(s);
}

static int keep(struct stream *s, const void *data, size_t n)
{
    uint32_t length = (uint32_t)n;
    int r;

    if (n > RPC_MESSAGE_MAX)
        return -EMSGSIZE;
    r = buf_reserve(&s->kept, sizeof length + n);
    if (r < 0)
        return r;
    buf_add(&s->kept, &length, sizeof length);
    return buf_add(&s->kept, data, n);
}

ssize_t stream_send_bytes(struct stream *s, const void *data, size_t n)
{
    int r = 0;

    if (s->failure || s->finished)
        return 0;
    if (s->repeatable && s->attempt && s->kept.len + n > KEPT_MAX) {
        s->repeatable = false;
        buf_clear(&s->kept);
    }
    if (s->repeatable)
        r = keep(s, data, n);
    if (r < 0)
        return r;
    return s->attempt ? rpc_call_send(s->attempt->rpc, data, n) : (ssize_t)s->kept.len;
}

ssize_t stream_send(struct stream *s, const ProtobufCMessage *m)
{
    _cleanup_buf_ struct buf b = { 0 };
    int r = wire_pack(m, &b);

    if (r == -EILSEQ || r == -EMSGSIZE) {
        stream_fail(s, api_words(-EINVAL, s->spec.method, s->subject, boxd_error_words(r)));
        return 0;
    }
    return r < 0 ? r : stream_send_bytes(s, b.data, b.len);
}

void stream_finish(struct stream *s)
{
    if (s->finished)
        return;
    s->finished = true;
    if (s->attempt)
        rpc_call_finish(s->attempt->rpc);
}

void stream_pause(struct stream *s, bool paused)
{
    s->paused = paused;
    if (s->attempt)
        rpc_call_pause(s->attempt->rpc, paused);
}
