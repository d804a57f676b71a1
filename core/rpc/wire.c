#include "base/base.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boxd/error.h>

#include "base/str.h"
#include "rpc/tls.h"
#include "rpc/wire.h"

#define READ_SIZE ((size_t)128 * 1024)
#define READ_ROUNDS 32 /* reads a turn, so that one busy connection leaves time to the others */
#define GATHER ((size_t)64 * 1024)

static void on_poll(uv_poll_t *poll, int status, int events);

static void listen_for(struct wire *w, int events)
{
    if (w->state == WIRE_CLOSED || w->events == events)
        return;
    w->events = events;
    uv_poll_start(&w->poll, events, on_poll);
}

static void on_released(uv_handle_t *h)
{
    struct wire *w = h->data;

    SSL_free(w->ssl);
    w->ssl = NULL;
    close(w->fd);
    buf_clear(&w->out);
    free(steal_ptr(w->in));
    w->ops->released(w);
}

void wire_close(struct wire *w)
{
    if (w->state == WIRE_CLOSED)
        return;
    if (w->ssl && w->state == WIRE_OPEN)
        tls_say_goodbye(w->ssl);
    w->state = WIRE_CLOSED;
    later_cancel(&w->flush);
    later_cancel(&w->more);
    uv_poll_stop(&w->poll);
    shutdown(w->fd, SHUT_RDWR); /* the peer learns now, not when the loop turns */
    uv_close((uv_handle_t *)&w->poll, on_released);
}

void wire_fail(struct wire *w, int r, const char *words)
{
    char copy[512];

    if (w->state == WIRE_CLOSED)
        return;
    snprintf(copy, sizeof copy, "%s", words);
    wire_close(w);
    w->ops->closed(w, r, copy);
}

void wire_end_output(struct wire *w)
{
    if (w->state != WIRE_OPEN)
        return;
    if (w->ssl)
        tls_say_goodbye(w->ssl);
    shutdown(w->fd, SHUT_WR);
}

/* Bytes written, -EAGAIN, or another negative errno with words. */
static ssize_t write_some(struct wire *w, const void *data, size_t n)
{
    ssize_t k;

    if (w->ssl)
        return tls_write(w->ssl, data, n);
    do
        k = send(w->fd, data, n, MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    if (k >= 0)
        return k;
    return errno == EAGAIN ? -EAGAIN : boxd_words(-errno, "%m");
}

/* Bytes read, 0 at the end, -EAGAIN, or another negative errno with words. */
static ssize_t read_some(struct wire *w, void *data, size_t n)
{
    ssize_t k;

    if (w->ssl)
        return tls_read(w->ssl, data, n);
    do
        k = recv(w->fd, data, n, 0);
    while (k < 0 && errno == EINTR);
    if (k >= 0)
        return k;
    return errno == EAGAIN ? -EAGAIN : boxd_words(-errno, "%m");
}

/* 1 when the gathered bytes are out, 0 when the socket is full, negative when it broke. */
static int write_out(struct wire *w)
{
    while (w->out_off < w->out.len) {
        ssize_t k = write_some(w, w->out.data + w->out_off, w->out.len - w->out_off);

        if (k == -EAGAIN)
            return 0;
        if (k < 0)
            return (int)k;
        w->out_off += (size_t)k;
        w->sent += (uint64_t)k;
    }
    w->out_off = 0;
    buf_truncate(&w->out, 0);
    return 1;
}

void wire_flush(struct wire *w)
{
    int r;

    if (w->state != WIRE_OPEN)
        return;
    for (;;) {
        r = write_out(w);
        if (r <= 0)
            break;
        r = w->ops->produce(w, &w->out, GATHER);
        if (w->state == WIRE_CLOSED)
            return;
        if (r < 0 || !w->out.len)
            break;
    }
    if (r < 0)
        wire_fail(w, r, boxd_error_words(r));
    else
        listen_for(w, w->out.len ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static void run_flush(struct later *item)
{
    wire_flush(container_of(item, struct wire, flush));
}

void wire_want_write(struct wire *w)
{
    if (w->state == WIRE_OPEN)
        later_add(w->queue, &w->flush);
}

static void read_in(struct wire *w)
{
    int rounds = 0;
    ssize_t n;
    int r;

    for (;;) {
        n = read_some(w, w->in, READ_SIZE);
        if (n <= 0)
            break;
        w->received += (uint64_t)n;
        w->heard_ms = uv_now(w->poll.loop);
        r = w->ops->received(w, w->in, (size_t)n);
        if (w->state == WIRE_CLOSED)
            return;
        if (r < 0) {
            wire_flush(w); /* the reason, for the peer */
            wire_fail(w, r, boxd_error_words(r));
            return;
        }
        /* TLS may hold bytes that poll cannot see: only -EAGAIN means that nothing is left. */
        if (!w->ssl && (size_t)n < READ_SIZE)
            break;
        if (++rounds == READ_ROUNDS) {
            later_add(w->queue, &w->more);
            break;
        }
    }
    if (n == 0)
        wire_fail(w, -ECONNRESET, "closed by the peer");
    else if (n < 0 && n != -EAGAIN)
        wire_fail(w, (int)n, boxd_error_words((int)n));
    else
        wire_flush(w);
}

static void run_more(struct later *item)
{
    struct wire *w = container_of(item, struct wire, more);

    if (w->state == WIRE_OPEN)
        read_in(w);
}

static void shake_hands(struct wire *w)
{
    int want = UV_READABLE;
    int r = w->ssl ? tls_handshake(w->ssl, w->accepting, &want) : 0;

    if (r == -EAGAIN) {
        listen_for(w, want);
        return;
    }
    if (r < 0) {
        wire_fail(w, r, boxd_error_words(r));
        return;
    }
    w->state = WIRE_OPEN;
    w->heard_ms = uv_now(w->poll.loop);
    w->ops->opened(w);
    if (w->state == WIRE_OPEN)
        read_in(w); /* TLS may have read ahead */
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct wire *w = poll->data;

    if (w->state == WIRE_HANDSHAKE)
        shake_hands(w);
    else if (status < 0 || (events & UV_READABLE)) /* reading tells the reason */
        read_in(w);
    else
        wire_flush(w);
}

static const struct {
    int level, name, value;
} socket_options[] = {
    { IPPROTO_TCP, TCP_NODELAY, 1 },
    { IPPROTO_TCP, TCP_NOTSENT_LOWAT, 128 * 1024 },
    /* A peer whose computer vanished while nothing was under way is noticed within a minute. */
    { SOL_SOCKET, SO_KEEPALIVE, 1 },
    { IPPROTO_TCP, TCP_KEEPIDLE, 30 },
    { IPPROTO_TCP, TCP_KEEPINTVL, 10 },
    { IPPROTO_TCP, TCP_KEEPCNT, 3 },
};

static void set_socket_options(int fd)
{
    for (size_t i = 0; i < ARRAY_LEN(socket_options); i++) /* a unix socket has none: no harm */
        (void)setsockopt(fd, socket_options[i].level, socket_options[i].name,
                         &socket_options[i].value, sizeof socket_options[i].value);
}

int wire_open(struct wire *w, uv_loop_t *loop, struct later_queue *queue, int fd, SSL *ssl,
              bool accepting, const struct wire_ops *ops, void *owner)
{
    int r = -ENOMEM;

    *w = (struct wire){ .queue = queue, .ops = ops, .owner = owner, .fd = fd, .ssl = ssl };
    w->accepting = accepting;
    w->in = malloc(READ_SIZE);
    later_init(&w->flush, run_flush);
    later_init(&w->more, run_more);
    set_socket_options(fd);
    if (w->in && (!ssl || tls_attach(ssl, fd) == 0))
        r = uv_poll_init(loop, &w->poll, fd);
    if (r < 0) {
        w->state = WIRE_CLOSED;
        SSL_free(ssl);
        close(fd);
        free(steal_ptr(w->in));
        return r;
    }
    w->poll.data = w;
    listen_for(w, accepting ? UV_READABLE : UV_READABLE | UV_WRITABLE);
    return 0;
}
