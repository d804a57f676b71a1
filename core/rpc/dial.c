#include "base/base.h"

#include <netdb.h>
#include <sys/un.h>

#include <boxd/error.h>

#include "rpc/dial.h"

#define BACKLOG_WAIT_MS 10

static void try_next(struct dial *d);

static void put(struct dial *d)
{
    if (--d->handles)
        return;
    uv_freeaddrinfo(d->list);
    d->list = NULL;
    d->released(d);
}

static void on_timer_closed(uv_handle_t *h)
{
    put(h->data);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct dial *d = h->data;

    d->polling = false;
    if (d->fd >= 0)
        close(steal_fd(&d->fd));
    if (!d->over)
        try_next(d);
    put(d);
}

static void stop(struct dial *d)
{
    d->over = true;
    if (d->resolving)
        uv_cancel((uv_req_t *)&d->resolve); /* too late is fine: its answer is ignored */
    if (d->polling && !uv_is_closing((uv_handle_t *)&d->poll))
        uv_close((uv_handle_t *)&d->poll, on_poll_closed);
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
}

void dial_cancel(struct dial *d)
{
    if (!d->over)
        stop(d);
}

static void finish(struct dial *d, int result)
{
    stop(d);
    d->done(d, result);
}

static void on_connected(uv_poll_t *poll, int status, int events)
{
    struct dial *d = poll->data;
    int error = 0, fd = d->fd;
    socklen_t length = sizeof error;

    uv_poll_stop(poll);
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        error = errno;
    if (error) {
        d->last_error = -error;
        uv_close((uv_handle_t *)poll, on_poll_closed);
        return;
    }
    /* The poll handle lets go of the socket before it is given away. */
    d->fd = -1;
    finish(d, fd);
}

static void on_attempt_timeout(uv_timer_t *timer)
{
    struct dial *d = timer->data;

    d->last_error = -ETIMEDOUT;
    if (d->polling && !uv_is_closing((uv_handle_t *)&d->poll))
        uv_close((uv_handle_t *)&d->poll, on_poll_closed);
}

/* Starts connecting; 0 or a negative errno. */
static int attempt(struct dial *d, const struct sockaddr *address, socklen_t length)
{
    _cleanup_close_ int fd =
        socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int r;

    if (fd < 0)
        return -errno;
    do
        r = connect(fd, address, length);
    while (r < 0 && errno == EINTR);
    if (r < 0 && errno != EINPROGRESS)
        return -errno;
    r = uv_poll_init(d->loop, &d->poll, fd);
    if (r < 0)
        return r;
    d->fd = steal_fd(&fd);
    d->polling = true;
    d->handles++;
    d->poll.data = d;
    uv_poll_start(&d->poll, UV_WRITABLE, on_connected);
    uv_timer_start(&d->timer, on_attempt_timeout, d->attempt_ms, 0);
    return 0;
}

static void try_next(struct dial *d)
{
    while (d->next) {
        struct addrinfo *a = d->next;
        int r;

        d->next = a->ai_next;
        r = attempt(d, a->ai_addr, a->ai_addrlen);
        if (r == 0)
            return;
        d->last_error = r;
    }
    finish(d, boxd_words(d->last_error, "%m"));
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct dial *d = request->data;
    unsigned count = 0;

    d->resolving = false;
    d->list = d->next = list;
    if (!d->over && status < 0) {
        finish(d, boxd_words(-EHOSTUNREACH, "cannot resolve the name: %s", uv_strerror(status)));
    } else if (!d->over) {
        for (struct addrinfo *a = list; a; a = a->ai_next)
            count++;
        d->attempt_ms /= count ? count : 1;
        d->last_error = -EHOSTUNREACH;
        try_next(d);
    }
    put(d);
}

static int start_resolving(struct dial *d)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    char port[8];
    int r;

    snprintf(port, sizeof port, "%u", d->target->port);
    d->resolve.data = d;
    r = uv_getaddrinfo(d->loop, &d->resolve, on_resolved, d->target->host, port, &hints);
    if (r < 0)
        return boxd_words(r, "cannot resolve the name: %s", uv_strerror(r));
    d->resolving = true;
    d->handles++;
    return 0;
}

static void on_unix_timer(uv_timer_t *timer)
{
    struct dial *d = timer->data;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int r;

    snprintf(address.sun_path, sizeof address.sun_path, "%s", d->target->host);
    r = attempt(d, (const struct sockaddr *)&address, sizeof address);
    if (r == -EAGAIN && d->attempt_ms > BACKLOG_WAIT_MS) { /* the server's backlog is full */
        d->attempt_ms -= BACKLOG_WAIT_MS;
        uv_timer_start(timer, on_unix_timer, BACKLOG_WAIT_MS, 0);
    } else if (r < 0)
        finish(d, boxd_words(r, "%m"));
}

int dial_start(struct dial *d, uv_loop_t *loop, const struct rpc_target *target,
               uint64_t timeout_ms)
{
    int r;

    d->loop = loop;
    d->target = target;
    d->attempt_ms = timeout_ms;
    d->fd = -1;
    d->handles = 1;
    d->timer.data = d;
    r = uv_timer_init(loop, &d->timer);
    if (r == 0 && target->is_unix)
        r = uv_timer_start(&d->timer, on_unix_timer, 0, 0);
    else if (r == 0)
        r = start_resolving(d);
    if (r < 0) {
        d->over = true;
        uv_close((uv_handle_t *)&d->timer, on_timer_closed);
    }
    return r;
}
