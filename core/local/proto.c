/* The messages and specifications between the server and its helper; see proto.h. */
#include "base/base.h"
#include "base/str.h"
#include "local/proto.h"

#include <boxd/error.h>
#include <sys/socket.h>
#include <sys/stat.h>

int msg_send(int sock, const struct msg *m, const int *fds, size_t nfds)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * MSG_FDS)];
    } control = { 0 };
    struct iovec io = { (void *)(uintptr_t)m, sizeof *m };
    struct msghdr h = { .msg_iov = &io, .msg_iovlen = 1 };
    struct cmsghdr *c;

    if (nfds > MSG_FDS)
        return -EINVAL;
    if (nfds) {
        h.msg_control = control.space;
        h.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
    }
    for (;;) {
        if (sendmsg(sock, &h, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

/* Takes over the descriptors of a received message. */
static void take_fds(struct msghdr *h, int fds[MSG_FDS], size_t *nfds)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
        size_t n;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (*nfds < MSG_FDS)
                fds[(*nfds)++] = fd;
            else
                close(fd);
        }
    }
}

int msg_recv(int sock, struct msg *m, int fds[MSG_FDS], size_t *nfds)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * MSG_FDS)];
    } control;
    struct iovec io = { m, sizeof *m };
    struct msghdr h = { .msg_iov = &io,
                        .msg_iovlen = 1,
                        .msg_control = control.space,
                        .msg_controllen = sizeof control };
    ssize_t n;

    *nfds = 0;
    for (size_t i = 0; i < MSG_FDS; i++)
        fds[i] = -1;
    do {
        n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 && errno != ECONNRESET ? -errno : -EPIPE;
    take_fds(&h, fds, nfds);
    if (n == sizeof *m) {
        m->text[sizeof m->text - 1] = '\0';
        return 0;
    }
    for (size_t i = 0; i < *nfds; i++) {
        close(fds[i]);
        fds[i] = -1;
    }
    *nfds = 0;
    return -EBADMSG;
}

int msg_error(int sock, int r)
{
    struct msg m = { .type = MSG_ERROR, .value = r };

    snprintf(m.text, sizeof m.text, "%s", boxd_error_words(r));
    msg_send(sock, &m, NULL, 0); /* nobody left to hear it: the exit status says enough */
    return r;
}

int msg_simple(int sock, enum msg_type type, int32_t value)
{
    struct msg m = { .type = type, .value = value };

    return msg_send(sock, &m, NULL, 0);
}

int spec_add(struct buf *b, const char *key, const char *value)
{
    int r = buf_addf(b, "%s=", key);

    return r < 0 ? r : buf_add(b, value, strlen(value) + 1);
}

int spec_add_num(struct buf *b, const char *key, uint64_t value)
{
    int r = buf_addf(b, "%s=%" PRIu64, key, value);

    return r < 0 ? r : buf_addch(b, '\0');
}

int spec_load(int fd, struct spec *s)
{
    struct stat st;
    size_t got = 0;

    if (fstat(fd, &st) < 0)
        return -errno;
    s->len = (size_t)st.st_size;
    s->data = calloc(1, s->len + 1);
    if (!s->data)
        return -ENOMEM;
    while (got < s->len) {
        ssize_t n = pread(fd, s->data + got, s->len - got, (off_t)got);

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        got += (size_t)n;
    }
    return 0;
}

/* The value when `entry` is `key`'s. */
static const char *entry_value(const char *entry, const char *key)
{
    size_t n = strlen(key);

    return !strncmp(entry, key, n) && entry[n] == '=' ? entry + n + 1 : NULL;
}

const char *spec_get(const struct spec *s, const char *key)
{
    for (size_t at = 0; at < s->len; at += strlen(s->data + at) + 1) {
        const char *v = entry_value(s->data + at, key);

        if (v)
            return v;
    }
    return NULL;
}

uint64_t spec_num(const struct spec *s, const char *key, uint64_t missing)
{
    const char *v = spec_get(s, key);
    uint64_t n;

    return v && parse_u64(v, UINT64_MAX, &n) == 0 ? n : missing;
}

int spec_fd(const struct spec *s, const char *name)
{
    char key[32];

    snprintf(key, sizeof key, "fd.%s", name);
    return (int)(int64_t)spec_num(s, key, UINT64_MAX);
}

const char **spec_all(const struct spec *s, const char *key)
{
    size_t n = 0;
    const char **all;

    for (size_t at = 0; at < s->len; at += strlen(s->data + at) + 1)
        n += entry_value(s->data + at, key) != NULL;
    all = calloc(n + 1, sizeof *all);
    if (!all)
        return NULL;
    n = 0;
    for (size_t at = 0; at < s->len; at += strlen(s->data + at) + 1)
        if (entry_value(s->data + at, key))
            all[n++] = entry_value(s->data + at, key);
    return all;
}
