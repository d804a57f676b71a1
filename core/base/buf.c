#include "base/buf.h"

#include <stdarg.h>

void buf_init(struct buf *b)
{
    *b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
    free(b->data);
    buf_init(b);
}

int buf_reserve(struct buf *b, size_t more)
{
    size_t cap = b->cap ? b->cap : 64;
    char *data;

    if (more >= BUF_MAX - b->len)
        return -EOVERFLOW;
    while (cap < b->len + more + 1)
        cap += cap / 2;
    if (cap == b->cap)
        return 0;
    data = realloc(b->data, cap);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t n)
{
    int r = buf_reserve(b, n);

    if (r < 0)
        return r;
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return 0;
}

int buf_addstr(struct buf *b, const char *s)
{
    return buf_add(b, s, strlen(s));
}

int buf_addch(struct buf *b, char c)
{
    return buf_add(b, &c, 1);
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int n, r;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -EINVAL;
    r = buf_reserve(b, (size_t)n);
    if (r < 0)
        return r;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void buf_consume(struct buf *b, size_t n)
{
    if (!n)
        return;
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}

void buf_truncate(struct buf *b, size_t n)
{
    if (!b->data)
        return;
    b->len = n;
    b->data[n] = '\0';
}

char *buf_steal(struct buf *b)
{
    char *data;

    if (!b->data && buf_reserve(b, 0) < 0)
        return NULL;
    data = b->data;
    buf_init(b);
    return data;
}

const char *buf_str(const struct buf *b)
{
    return b->data ? b->data : "";
}
