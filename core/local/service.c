/* local/service.c: see service.h. What belongs to every call: looking it up, letting it in,
 * unpacking its messages, answering it. Knows no machine. */
#include "base/base.h"

#include "api/wire.h"
#include "base/str.h"
#include "local/service.h"
#include "local/vm.h"
#include <boxd/error.h>
#include <boxd/log.h>

#define PATH_PREFIX "/boxd.api.v1.BoxdApi/"
#define EXCHANGE_PATH "/api/v1/auth/token"

/* ---- statuses ----------------------------------------------------------------------------------
 */

static const struct {
    int error;
    enum rpc_code code;
} codes[] = {
    { -ENOENT, RPC_NOT_FOUND },
    { -EEXIST, RPC_ALREADY_EXISTS },
    { -EINVAL, RPC_INVALID_ARGUMENT },
    { -EILSEQ, RPC_INVALID_ARGUMENT },
    { -EBADMSG, RPC_INVALID_ARGUMENT },
    { -ENAMETOOLONG, RPC_INVALID_ARGUMENT },
    { -EBUSY, RPC_FAILED_PRECONDITION },
    { -ENOTDIR, RPC_FAILED_PRECONDITION },
    { -EISDIR, RPC_FAILED_PRECONDITION },
    { -ENOTEMPTY, RPC_FAILED_PRECONDITION },
    { -ELOOP, RPC_FAILED_PRECONDITION },
    { -EACCES, RPC_PERMISSION_DENIED },
    { -EPERM, RPC_PERMISSION_DENIED },
    { -EROFS, RPC_PERMISSION_DENIED },
    { -ENOSPC, RPC_RESOURCE_EXHAUSTED },
    { -EDQUOT, RPC_RESOURCE_EXHAUSTED },
    { -EMSGSIZE, RPC_RESOURCE_EXHAUSTED },
    { -EFBIG, RPC_RESOURCE_EXHAUSTED },
    { -ENOMEM, RPC_RESOURCE_EXHAUSTED },
    { -EOPNOTSUPP, RPC_UNIMPLEMENTED },
    { -ESHUTDOWN, RPC_ABORTED },
};

enum rpc_code service_code(int r)
{
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].error == r)
            return codes[i].code;
    return RPC_INTERNAL;
}

/* ---- one call ----------------------------------------------------------------------------------
 */

struct call *call_ref(struct call *c)
{
    c->refs++;
    return c;
}

void call_unref(struct call *c)
{
    if (--c->refs)
        return;
    if (c->free_data)
        c->free_data(c->data);
    free(c);
}

bool call_open(const struct call *c)
{
    return c->stream && !c->answered;
}

void call_end(struct call *c, enum rpc_code code, const char *words)
{
    if (!call_open(c))
        return;
    c->answered = true;
    if (code != RPC_OK)
        boxd_log(BOXD_LOG_DEBUG, "%s: %s: %s", c->type->name, rpc_code_name(code),
                 words ? words : "");
    rpc_stream_end(c->stream, code, words);
}

void call_fail(struct call *c, int r)
{
    call_end(c, service_code(r), boxd_error_words(r));
}

ssize_t call_send(struct call *c, const ProtobufCMessage *m)
{
    _cleanup_buf_ struct buf bytes = { 0 };
    ssize_t n;

    if (!call_open(c))
        return 0;
    n = wire_pack(m, &bytes);
    if (!n)
        n = rpc_stream_send(c->stream, bytes.data, bytes.len);
    if (n < 0)
        call_fail(c, (int)n);
    return n;
}

void call_reply(struct call *c, const ProtobufCMessage *m)
{
    if (call_send(c, m) >= 0)
        call_end(c, RPC_OK, NULL);
}

static void on_message(void *arg, const uint8_t *data, size_t n)
{
    struct call *c = arg;
    _cleanup_wire_ ProtobufCMessage *m = NULL;
    int r;

    if (!call_open(c))
        return;
    if (c->started && !c->type->stream) {
        call_end(c, RPC_INVALID_ARGUMENT, "call takes one message and got more");
        return;
    }
    c->started = true;
    boxd_words_clear();
    r = wire_unpack(c->type->request, data, n, &m);
    if (r < 0) {
        call_fail(c, r);
        return;
    }
    call_ref(c);
    c->type->message(c, m);
    call_unref(c);
}

static void on_half_close(void *arg)
{
    struct call *c = arg;

    if (!call_open(c))
        return;
    if (!c->started)
        call_end(c, RPC_INVALID_ARGUMENT, "call got no message");
    else if (c->type->half_close)
        c->type->half_close(c);
}

static void on_writable(void *arg)
{
    struct call *c = arg;

    if (c->writable)
        c->writable(c);
}

static void on_end(void *arg, bool cancelled)
{
    struct call *c = arg;

    c->stream = NULL;
    if (c->gone)
        c->gone(c);
    call_unref(c);
}

/* ---- the transport's events --------------------------------------------------------------------
 */

static const struct call_type *find_call(const char *name)
{
    static const struct call_type *const tables[] = { machine_calls, exec_calls, file_calls };

    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        for (const struct call_type *t = tables[i]; t->name; t++)
            if (!strcmp(t->name, name))
                return t;
    return NULL;
}

static void refuse_unknown(struct rpc_stream *stream, const char *path)
{
    bool ours = starts_with(path, PATH_PREFIX);
    _cleanup_free_ char *words =
        strf(ours ? "call '%.80s' is not available in boxd-local" : "path '%.80s' is unknown",
             ours ? path + strlen(PATH_PREFIX) : path);

    rpc_stream_end(stream, RPC_UNIMPLEMENTED, words);
}

static void on_start(void *arg, struct rpc_stream *stream, const char *path,
                     const char *authorization)
{
    static const struct rpc_stream_handlers handlers = { on_message, on_half_close, on_writable,
                                                         on_end };
    struct service *s = arg;
    const struct call_type *type;
    struct call *c;

    if (!rpc_stream_peer(stream)->is_unix &&
        !(s->auth && auth_check(s->auth, authorization, wall_ms() / 1000))) {
        rpc_stream_end(stream, RPC_UNAUTHENTICATED,
                       "token is missing, wrong or expired: exchange the API key again");
        return;
    }
    type = starts_with(path, PATH_PREFIX) ? find_call(path + strlen(PATH_PREFIX)) : NULL;
    if (!type) {
        refuse_unknown(stream, path);
        return;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        rpc_stream_end(stream, RPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    *c = (struct call){ .s = s, .type = type, .stream = stream, .refs = 1 };
    rpc_stream_accept(stream, &handlers, c);
}

static void on_http(void *arg, struct rpc_http *h, const char *method, const char *path,
                    const void *body, size_t body_len)
{
    struct service *s = arg;
    struct auth_answer a = { 0 };

    if (!s->auth || strcmp(path, EXCHANGE_PATH) != 0)
        rpc_http_reply(h, 404, "{\"error\":\"not found\"}", 0);
    else if (strcmp(method, "POST") != 0)
        rpc_http_reply(h, 405, "{\"error\":\"use POST\"}", 0);
    else
        auth_exchange(s->auth, rpc_http_peer(h)->address, body, body_len, wall_ms() / 1000, &a);
    if (a.status)
        rpc_http_reply(h, a.status, a.body ? a.body : "{}", a.retry_after);
    free(a.body);
}

static bool on_peer(void *arg, const struct rpc_peer *peer)
{
    if (!peer->is_unix || peer->uid == geteuid() || !peer->uid)
        return true;
    boxd_log(BOXD_LOG_ERROR, "connection of user %u was refused: only user %u and root may connect",
             (unsigned)peer->uid, (unsigned)geteuid());
    return false;
}

static void on_connections(void *arg, unsigned count)
{
    struct service *s = arg;

    s->connections = count;
}

struct rpc_server_handlers service_handlers(void)
{
    return (struct rpc_server_handlers){
        .peer = on_peer,
        .start = on_start,
        .http = on_http,
        .connections = on_connections,
    };
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_tick(uv_timer_t *timer)
{
    struct service *s = timer->data;
    uint64_t now = now_ms();

    vm_tick(s, wall_ms(), now);
    if (s->connections || vm_any_alive(s) || !s->options->idle_exit_seconds) {
        s->idle_since_ms = now;
    } else if (now - s->idle_since_ms >= s->options->idle_exit_seconds * 1000) {
        boxd_log(BOXD_LOG_INFO, "nobody needs the server any more");
        s->idle(s);
    }
}

static int load_one(void *arg, struct vm_record *rec)
{
    return vm_load(arg, rec);
}

int service_new(uv_loop_t *loop, const struct options *o, struct host *host, struct auth *auth,
                void (*idle)(struct service *s), struct service **out)
{
    struct service *s = calloc(1, sizeof(*s));
    int r;

    if (!s) {
        host_close(host);
        auth_free(auth);
        return -ENOMEM;
    }
    s->loop = loop;
    s->options = o;
    s->host = host;
    s->auth = auth;
    s->idle = idle;
    s->idle_since_ms = now_ms();
    list_init(&s->vms);
    uv_timer_init(loop, &s->tick);
    s->tick.data = s;
    r = state_load(o->vms_dir, load_one, s);
    if (r < 0) {
        service_free(s);
        return r;
    }
    uv_timer_start(&s->tick, on_tick, 1000, 1000);
    *out = s;
    return 0;
}

static void on_service_closed(uv_handle_t *h)
{
    free(h->data);
}

void service_free(struct service *s)
{
    vm_free_all(s);
    host_close(s->host);
    auth_free(s->auth);
    uv_close((uv_handle_t *)&s->tick, on_service_closed);
}
