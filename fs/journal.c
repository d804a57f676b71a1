/* fs/journal.c: a bounded log of lines that is read as a file (`errors`, `events`).
 * It keeps the last JOURNAL_LINES lines and at most JOURNAL_BYTES bytes; old lines go a quarter at
 * a time, so that a reader who follows the file sees it shrink rarely. */
#include "fs.h"

#include <stdarg.h>

#define JOURNAL_LINES 1000
#define JOURNAL_BYTES ((size_t)256 * 1024)
#define LINE_MAX_BYTES 2048

struct journal {
    struct buf text;
    size_t lines;
};

struct journal *journal_new(void)
{
    return calloc(1, sizeof(struct journal));
}

void journal_free(struct journal *j)
{
    if (!j)
        return;
    buf_clear(&j->text);
    free(j);
}

/* Drops whole lines from the front until a quarter of both limits is free. */
static void make_room(struct journal *j)
{
    const char *p = j->text.data, *end = p + j->text.len, *eol;
    size_t bytes = j->text.len > JOURNAL_BYTES / 4 * 3 ? j->text.len - JOURNAL_BYTES / 4 * 3 : 0;
    size_t lines = j->lines > JOURNAL_LINES / 4 * 3 ? j->lines - JOURNAL_LINES / 4 * 3 : 0;

    while (p < end && (lines > 0 || (size_t)(p - j->text.data) < bytes)) {
        eol = memchr(p, '\n', (size_t)(end - p));
        p = eol ? eol + 1 : end;
        j->lines--;
        lines -= lines > 0;
    }
    buf_consume(&j->text, (size_t)(p - j->text.data));
}

void journal_add(struct journal *j, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES], when[32];
    struct timespec now;
    struct tm tm;
    va_list ap;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    make_plain(line);
    if (j->lines >= JOURNAL_LINES || j->text.len >= JOURNAL_BYTES)
        make_room(j);
    /* Nobody can be told that a line about a failure was lost to a lack of memory. */
    if (buf_addf(&j->text, "%s.%03ldZ %s\n", when, now.tv_nsec / 1000000, line) < 0)
        return;
    j->lines++;
}

const struct buf *journal_text(const struct journal *j)
{
    return &j->text;
}
