/* The server: listening, telling HTTP/2 from HTTP/1.1, and the life of connections. */
#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <boxd/error.h>

#include "rpc/serving.h"
#include "rpc/tls.h"

#define HEADER_LIMIT (16 * 1024)
#define MAX_STREAMS 1000
#define HELLO_TIMEOUT_MS 10000 /* to say who one is: TLS, the preface, a whole HTTP/1.1 request */
#define LINGER_MS 2000
#define ACCEPT_PAUSE_MS 100 /* after running out of descriptors */
#define ACCEPT_BURST 32

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_LEN (sizeof preface - 1)

struct listener {
    uv_poll_t poll;
    uv_timer_t pause;
    struct rpc_server *server;
    struct list link;
    int fd;
    unsigned parts;
};

/* ---- memory ---- */

static void server_put(struct rpc_server *s)
{
    if (--s->refs)
        return;
    SSL_CTX_free(s->tls);
    free(s);
}

void server_conn_put(struct server_conn *c)
{
    if (--c->refs)
        return;
    http1_clear(&c->http);
    buf_clear(&c->reply);
    server_put(c->server);
    free(c);
}

static void on_timer_closed(uv_handle_t *h)
{
    server_conn_put(h->data);
}

static void conn_leave(struct server_conn *c)
{
    struct rpc_server *s = c->server;

    if (c->gone)
        return;
    c->gone = true;
    list_remove(&c->link);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
    s->conn_count--;
    if (s->handlers.connections && !s->freed)
        s->handlers.connections(s->arg, s->conn_count);
}

/* The client did not say what it wants, or did not close. */
static void on_hello_timeout(uv_timer_t *timer)
{
    struct server_conn *c = timer->data;

    conn_leave(c);
    wire_close(&c->wire);
}

/* ---- HTTP/1.1 ---- */

static void set_reply(struct server_conn *c, int status, const char *body, unsigned retry_after)
{
    if (c->replied)
        return;
    c->replied = true;
    buf_clear(&c->reply);
    if (http1_response(&c->reply, status, body, retry_after) < 0)
        buf_clear(&c->reply); /* without memory: an end without an answer */
    wire_want_write(&c->wire);
}

void rpc_http_reply(struct rpc_http *h, int status, const char *body, unsigned retry_after)
{
    set_reply(h->conn, status, body, retry_after);
}

const struct rpc_peer *rpc_http_peer(const struct rpc_http *h)
{
    return &h->conn->peer;
}

static int http_received(struct wire *w, const uint8_t *data, size_t n)
{
    struct server_conn *c = w->owner;
    const struct rpc_server_handlers *on = &c->server->handlers;
    struct rpc_http request = { .conn = c };
    int r;

    if (c->replied)
        return 0;
    r = http1_feed(&c->http, data, n);
    if (r < 0)
        set_reply(c, -r, "{\"error\":\"malformed request\"}", 0);
    if (r <= 0)
        return 0;
    if (on->http)
        on->http(c->server->arg, &request, c->http.method, c->http.path, http1_body(&c->http),
                 c->http.body_len);
    if (!c->gone)
        set_reply(c, 404, "{\"error\":\"not found\"}", 0);
    return 0;
}

static int http_produce(struct wire *w, struct buf *out, size_t room)
{
    struct server_conn *c = w->owner;

    if (!c->replied)
        return 0;
    if (!c->reply.len) {
        /* Closing with unread bytes would reset the connection, and the reply with it: let the
         * client close. */
        if (!c->lingering) {
            c->lingering = true;
            uv_timer_start(&c->timer, on_hello_timeout, LINGER_MS, 0);
            wire_end_output(w);
        }
        return 0;
    }
    if (buf_add(out, c->reply.data, c->reply.len) < 0)
        return boxd_words(-ENOMEM, "no memory to send");
    buf_clear(&c->reply);
    return 0;
}

/* ---- a connection ---- */

static void on_wire_closed(struct wire *w, int r, const char *words)
{
    conn_leave(w->owner);
}

static void on_wire_released(struct wire *w)
{
    server_conn_put(w->owner);
}

static const struct wire_ops http_ops = {
    .received = http_received,
    .produce = http_produce,
    .closed = on_wire_closed,
    .released = on_wire_released,
};

static struct server_conn *conn_of(struct h2 *h)
{
    return container_of(h, struct server_conn, h2);
}

static void on_h2_ready(struct h2 *h)
{
}

static struct h2_stream *on_h2_begin(struct h2 *h)
{
    return server_stream_new(conn_of(h));
}

static void on_h2_closed(struct h2 *h, int r, const char *words)
{
    conn_leave(conn_of(h));
}

static void on_h2_released(struct h2 *h)
{
    server_conn_put(conn_of(h));
}

static const struct h2_ops h2_conn_ops = {
    .ready = on_h2_ready,
    .begin = on_h2_begin,
    .closed = on_h2_closed,
    .released = on_h2_released,
};

static int start_h2(struct server_conn *c)
{
    struct h2_settings settings = { .stream_window = c->server->stream_window,
                                    .connection_window = c->server->connection_window,
                                    .max_streams = MAX_STREAMS,
                                    .header_limit = HEADER_LIMIT };
    int r = h2_start(&c->h2, &c->wire, true, &h2_conn_ops, &settings);

    if (r < 0)
        return r;
    uv_timer_stop(&c->timer);
    return h2_received(&c->wire, c->hello, c->hello_len);
}

/* The first bytes: HTTP/2's preface, or else HTTP/1.1. */
static int sniff(struct wire *w, const uint8_t *data, size_t n)
{
    struct server_conn *c = w->owner;
    size_t k = PREFACE_LEN - c->hello_len;
    int r;

    if (k > n)
        k = n;
    memcpy(c->hello + c->hello_len, data, k);
    c->hello_len += k;
    if (memcmp(c->hello, preface, c->hello_len) != 0) {
        w->ops = &http_ops;
        r = http_received(w, c->hello, c->hello_len);
    } else if (c->hello_len == PREFACE_LEN) {
        r = start_h2(c);
    } else {
        return 0;
    }
    if (r < 0 || k == n || c->wire.state == WIRE_CLOSED)
        return r;
    return w->ops->received(w, data + k, n - k);
}

static void on_wire_open(struct wire *w)
{
}

static int nothing_to_send(struct wire *w, struct buf *out, size_t room)
{
    return 0;
}

static const struct wire_ops sniff_ops = {
    .opened = on_wire_open,
    .received = sniff,
    .produce = nothing_to_send,
    .closed = on_wire_closed,
    .released = on_wire_released,
};

/* ---- accepting ---- */

static void find_peer(int fd, struct rpc_peer *peer)
{
    struct sockaddr_storage address = { 0 };
    socklen_t length = sizeof address;
    struct ucred credentials;
    const void *ip;

    *peer = (struct rpc_peer){ .uid = (uid_t)-1 };
    if (getpeername(fd, (struct sockaddr *)&address, &length) < 0)
        return;
    if (address.ss_family == AF_UNIX) {
        length = sizeof credentials;
        peer->is_unix = true;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
            peer->uid = credentials.uid;
            peer->pid = credentials.pid;
        }
        return;
    }
    ip = address.ss_family == AF_INET6
             ? (const void *)&((struct sockaddr_in6 *)(void *)&address)->sin6_addr
             : (const void *)&((struct sockaddr_in *)(void *)&address)->sin_addr;
    inet_ntop(address.ss_family, ip, peer->address, sizeof peer->address);
}

static int conn_new(struct rpc_server *s, int fd, const struct rpc_peer *peer)
{
    _cleanup_close_ int owned = fd;
    struct server_conn *c = calloc(1, sizeof *c);
    SSL *ssl = s->tls ? SSL_new(s->tls) : NULL;
    int r;

    if (!c || (s->tls && !ssl)) {
        free(c);
        return -ENOMEM;
    }
    r = wire_open(&c->wire, s->loop, &s->queue, steal_fd(&owned), ssl, true, &sniff_ops, c);
    if (r < 0) {
        free(c);
        return r;
    }
    c->server = s;
    c->peer = *peer;
    c->refs = 2; /* the wire's and the timer's */
    c->timer.data = c;
    uv_timer_init(s->loop, &c->timer);
    uv_timer_start(&c->timer, on_hello_timeout, HELLO_TIMEOUT_MS, 0);
    s->refs++;
    list_add(&s->conns, &c->link);
    s->conn_count++;
    if (s->handlers.connections)
        s->handlers.connections(s->arg, s->conn_count);
    return 0;
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct listener *l = timer->data;

    uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;
    struct rpc_server *s = l->server;

    for (int i = 0; i < ACCEPT_BURST && !s->freed; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct rpc_peer peer;

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            uv_poll_stop(poll); /* else the loop would spin */
            uv_timer_start(&l->pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
        }
        if (fd < 0)
            return;
        find_peer(fd, &peer);
        if (s->handlers.peer && !s->handlers.peer(s->arg, &peer))
            close(fd);
        else
            (void)conn_new(s, fd, &peer); /* without memory: a closed connection */
    }
}

static void on_listener_closed(uv_handle_t *h)
{
    struct listener *l = h->data;

    if (--l->parts)
        return;
    close(l->fd);
    server_put(l->server);
    free(l);
}

int rpc_server_listen(struct rpc_server *s, int fd)
{
    struct listener *l = calloc(1, sizeof *l);
    int r;

    if (!l) {
        close(fd);
        return -ENOMEM;
    }
    r = uv_poll_init(s->loop, &l->poll, fd); /* makes it non-blocking */
    if (r < 0) {
        close(fd);
        free(l);
        return boxd_words(r, "cannot listen: %s", uv_strerror(r));
    }
    uv_timer_init(s->loop, &l->pause);
    l->server = s;
    l->fd = fd;
    l->parts = 2;
    l->poll.data = l->pause.data = l;
    s->refs++;
    list_add(&s->listeners, &l->link);
    return uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
}

/* ---- the server ---- */

int rpc_server_new(uv_loop_t *loop, const struct rpc_server_options *o, struct rpc_server **out)
{
    struct rpc_server *s = calloc(1, sizeof *s);
    int r = 0;

    if (!s)
        return -ENOMEM;
    s->loop = loop;
    s->refs = 1;
    s->handlers = o->handlers;
    s->arg = o->arg;
    s->stream_window = o->stream_window ? o->stream_window : 8u << 20;
    s->connection_window = o->connection_window ? o->connection_window : 32u << 20;
    list_init(&s->listeners);
    list_init(&s->conns);
    if (o->cert_file || o->key_file)
        r = o->cert_file && o->key_file ? tls_server_context(o->cert_file, o->key_file, &s->tls)
                                        : boxd_words(-EINVAL, "a certificate needs its key");
    if (r == 0)
        r = later_queue_init(&s->queue, loop);
    if (r < 0)
        server_put(s);
    else
        *out = s;
    return r;
}

static void on_queue_released(void *arg)
{
    server_put(arg);
}

void rpc_server_free(struct rpc_server *s)
{
    if (s->freed)
        return;
    s->freed = true;
    while (!list_empty(&s->listeners)) {
        struct listener *l = container_of(s->listeners.next, struct listener, link);

        list_remove(&l->link);
        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        uv_close((uv_handle_t *)&l->pause, on_listener_closed);
    }
    while (!list_empty(&s->conns)) {
        struct server_conn *c = container_of(s->conns.next, struct server_conn, link);

        conn_leave(c);
        if (c->h2.session)
            h2_close(&c->h2, "the server ends");
        else
            wire_close(&c->wire);
    }
    later_queue_close(&s->queue, on_queue_released, s);
}
