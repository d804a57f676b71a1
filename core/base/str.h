/* base/str.h: text helpers. All of them take untrusted input. */
#pragma once

#include "base/base.h"
#include "base/buf.h"

/* Parses a whole decimal number, no sign, no blanks. -EINVAL, or -ERANGE above `max`. */
int parse_u64(const char *s, uint64_t max, uint64_t *out);
/* Parses bytes with an optional unit K, M, G, T (powers of 1024; "KiB", "kb" and so on too). */
int parse_size(const char *s, uint64_t *out);
/* Parses seconds with an optional unit s, m, h, d. */
int parse_seconds(const char *s, uint64_t *out);
/* Whether the bytes are well-formed UTF-8 (no surrogates, no overlong forms, NUL allowed). */
bool utf8_valid(const void *data, size_t n);
bool starts_with(const char *s, const char *prefix);
/* Appends `s` quoted for a POSIX shell: 'a'\''b'. Any byte but NUL. */
int shell_quote(struct buf *out, const char *s);
/* Splits a line into words as a POSIX shell does (blanks, '...', "...", \), with # comments and
 * without any expansion. *words is a NULL-ended array, freed with strv_free.
 * -EINVAL with words for an open quote. */
int shell_split(const char *line, char ***words, size_t *count);
void strv_free(char **v);
DEFINE_CLEANUP(char *, strv_free);
#define _cleanup_strv_ _cleanup_(cleanup_strv_freep)
/* Writes n random bytes from the kernel; a negative errno when it has none. */
int random_bytes(void *data, size_t n);
/* Writes 2*n hex digits and a NUL of n random bytes (n <= 64). */
int random_hex(char *out, size_t n);
/* Replaces control characters: text from outside stays on its line and cannot steer a terminal. */
void make_plain(char *s);
/* asprintf that returns NULL when memory ran out. */
char *strf(const char *fmt, ...) _printf_(1, 2);
/* Milliseconds: monotonic, and since 1970. */
uint64_t now_ms(void);
int64_t wall_ms(void);
