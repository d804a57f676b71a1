#include "base/str.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <strings.h>
#include <sys/random.h>

#include <boxd/error.h>

int parse_u64(const char *s, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;

    if (!*s)
        return -EINVAL;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v))
            return -ERANGE;
    }
    if (v > max)
        return -ERANGE;
    *out = v;
    return 0;
}

/* The number in front of a unit; *unit points behind it. */
static int parse_prefix(const char *s, uint64_t *v, const char **unit)
{
    char digits[24];
    size_t n = strspn(s, "0123456789");

    if (!n)
        return -EINVAL;
    if (n >= sizeof digits)
        return -ERANGE;
    memcpy(digits, s, n);
    digits[n] = '\0';
    *unit = s + n;
    return parse_u64(digits, UINT64_MAX, v);
}

int parse_size(const char *s, uint64_t *out)
{
    static const char units[] = "kmgt";
    const char *unit, *u;
    uint64_t v;
    int r = parse_prefix(s, &v, &unit);

    if (r < 0)
        return r;
    if (*unit) {
        u = strchr(units, tolower((unsigned char)*unit));
        if (!u || (unit[1] && strcasecmp(unit + 1, "b") && strcasecmp(unit + 1, "ib")))
            return -EINVAL;
        if (__builtin_mul_overflow(v, (uint64_t)1 << (10 * (u - units + 1)), &v))
            return -ERANGE;
    }
    *out = v;
    return 0;
}

int parse_seconds(const char *s, uint64_t *out)
{
    static const struct {
        char unit;
        unsigned seconds;
    } units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 } };
    const char *unit;
    uint64_t v;
    int r = parse_prefix(s, &v, &unit);

    if (r < 0)
        return r;
    if (!*unit) {
        *out = v;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (*unit == units[i].unit && !unit[1])
            return __builtin_mul_overflow(v, units[i].seconds, out) ? -ERANGE : 0;
    return -EINVAL;
}

/* Length of the well-formed sequence at p, 0 if there is none (Unicode 15, table 3-7). */
static size_t utf8_sequence(const unsigned char *p, size_t n)
{
    static const struct {
        unsigned char first_lo, first_hi, second_lo, second_hi, len;
    } rows[] = {
        { 0x00, 0x7f, 0x00, 0x00, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (p[0] < rows[i].first_lo || p[0] > rows[i].first_hi)
            continue;
        if (n < rows[i].len)
            return 0;
        if (rows[i].len > 1 && (p[1] < rows[i].second_lo || p[1] > rows[i].second_hi))
            return 0;
        for (size_t k = 2; k < rows[i].len; k++)
            if ((p[k] & 0xc0) != 0x80)
                return 0;
        return rows[i].len;
    }
    return 0;
}

bool utf8_valid(const void *data, size_t n)
{
    const unsigned char *p = data;

    while (n) {
        size_t k = utf8_sequence(p, n);

        if (!k)
            return false;
        p += k;
        n -= k;
    }
    return true;
}

bool starts_with(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

int shell_quote(struct buf *out, const char *s)
{
    int r = buf_addch(out, '\'');

    for (; r >= 0 && *s; s++)
        r = *s == '\'' ? buf_addstr(out, "'\\''") : buf_addch(out, *s);
    return r < 0 ? r : buf_addch(out, '\'');
}

void strv_free(char **v)
{
    for (char **p = v; p && *p; p++)
        free(*p);
    free(v);
}

/* Reads one word at *p into `word`; the caller skipped the blanks before it. */
static int split_word(const char **p, struct buf *word)
{
    const char *s = *p;
    char quote = 0;
    int r = buf_reserve(word, 0);

    for (; r >= 0 && *s && (quote || !isspace((unsigned char)*s)); s++) {
        if (quote ? *s == quote : (*s == '\'' || *s == '"')) {
            quote = quote ? 0 : *s;
            continue;
        }
        if (*s == '\\' && quote != '\'') {
            /* Inside "..." a backslash escapes only these; else it is itself. */
            if (!quote || strchr("$`\"\\", s[1])) {
                if (!s[1])
                    return boxd_words(-EINVAL, "the line ends after a backslash");
                s++;
            }
        }
        r = buf_addch(word, *s);
    }
    if (quote)
        return boxd_words(-EINVAL, "missing closing quote %c", quote);
    *p = s;
    return r;
}

int shell_split(const char *line, char ***words, size_t *count)
{
    _cleanup_strv_ char **v = calloc(1, sizeof *v);
    size_t n = 0;

    if (!v)
        return -ENOMEM;
    for (;;) {
        _cleanup_buf_ struct buf word = { 0 };
        char **grown;
        int r;

        while (isspace((unsigned char)*line))
            line++;
        if (!*line || *line == '#')
            break;
        r = split_word(&line, &word);
        if (r < 0)
            return r;
        grown = reallocarray(v, n + 2, sizeof *v);
        if (!grown)
            return -ENOMEM;
        v = grown;
        v[n] = buf_steal(&word);
        if (!v[n])
            return -ENOMEM;
        v[++n] = NULL;
    }
    *count = n;
    *words = steal_ptr(v);
    return 0;
}

int random_bytes(void *data, size_t n)
{
    unsigned char *p = data;

    while (n) {
        ssize_t k = getrandom(p, n, 0);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

int random_hex(char *out, size_t n)
{
    unsigned char raw[64];
    int r;

    if (n > sizeof raw)
        return -EINVAL;
    r = random_bytes(raw, n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", raw[i]);
    return 0;
}

void make_plain(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            *s = '?';
}

char *strf(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : s;
}

uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
