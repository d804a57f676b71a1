/* base/buf.h: a growable byte buffer.
 *
 * `data` is NULL only while nothing was ever appended; otherwise it is followed by a NUL byte, so
 * text can be used as a C string. Life: `= {0}` or buf_init, then buf_clear (may be used again);
 * or _cleanup_buf_. Errors: -ENOMEM, and -EOVERFLOW for more than BUF_MAX bytes; the content is
 * unchanged then. Appending never keeps a reference to what was appended. */
#pragma once

#include "base/base.h"

#define BUF_MAX ((size_t)1 << 40)

struct buf {
    char *data;
    size_t len;
    size_t cap;
};

void buf_init(struct buf *b);
/* Frees the memory; the buffer is empty and usable afterwards. */
void buf_clear(struct buf *b);
/* Makes room for `more` bytes after `len`, and the NUL. */
int buf_reserve(struct buf *b, size_t more);
int buf_add(struct buf *b, const void *data, size_t n);
int buf_addstr(struct buf *b, const char *s);
int buf_addch(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
/* Drops the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
/* Keeps the first n bytes (n <= len). */
void buf_truncate(struct buf *b, size_t n);
/* Hands the memory to the caller, who frees it; never NULL unless memory ran out. */
char *buf_steal(struct buf *b);
/* The text so far; "" when empty. */
const char *buf_str(const struct buf *b);

static inline void cleanup_bufp(struct buf *b)
{
    buf_clear(b);
}
#define _cleanup_buf_ _cleanup_(cleanup_bufp)
