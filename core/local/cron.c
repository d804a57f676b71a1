/* local/cron.c: see cron.h. */
#include "base/base.h"

#include "local/cron.h"
#include <boxd/error.h>

#define DAY_SECONDS 86400
#define YEARS_AHEAD 5

enum { MINUTE, HOUR, DAY, MONTH, WEEKDAY, FIELDS };

static const struct {
    const char *name;
    unsigned low, high;
} fields[FIELDS] = { { "minute", 0, 59 },
                     { "hour", 0, 23 },
                     { "day", 1, 31 },
                     { "month", 1, 12 },
                     { "weekday", 0, 7 } };

struct cron {
    uint64_t set[FIELDS];
    bool any[FIELDS]; /* the field was `*` */
};

static bool read_number(const char **p, unsigned *out)
{
    unsigned n = 0, digits = 0;

    for (; **p >= '0' && **p <= '9' && digits < 3; (*p)++, digits++)
        n = n * 10 + (unsigned)(**p - '0');
    *out = n;
    return digits > 0;
}

/* One item of a list: `*`, N, N-M, each with an optional /STEP. */
static bool read_item(const char **p, unsigned low, unsigned high, uint64_t *set)
{
    unsigned from = low, to = high, step = 1;

    if (**p == '*') {
        (*p)++;
    } else {
        if (!read_number(p, &from))
            return false;
        to = from;
        if (**p == '-') {
            (*p)++;
            if (!read_number(p, &to))
                return false;
        } else if (**p == '/') {
            to = high;
        }
    }
    if (**p == '/') {
        (*p)++;
        if (!read_number(p, &step) || !step)
            return false;
    }
    if (from < low || to > high || from > to)
        return false;
    for (unsigned i = from; i <= to; i += step)
        *set |= (uint64_t)1 << i;
    return true;
}

static bool read_field(const char **p, int field, struct cron *c)
{
    c->any[field] = (*p)[0] == '*' && ((*p)[1] == ' ' || !(*p)[1]);
    for (;;) {
        if (!read_item(p, fields[field].low, fields[field].high, &c->set[field]))
            return false;
        if (**p != ',')
            break;
        (*p)++;
    }
    return **p == ' ' || !**p;
}

static int cron_parse(const char *line, struct cron *c)
{
    const char *p = line;

    memset(c, 0, sizeof(*c));
    for (int i = 0; i < FIELDS; i++) {
        while (*p == ' ')
            p++;
        if (!*p || !read_field(&p, i, c))
            return boxd_words(-EINVAL,
                              "cron line '%.80s' is not valid at its %s: five fields are expected, "
                              "as in '0 3 * * *'",
                              line, fields[i].name);
    }
    while (*p == ' ')
        p++;
    if (*p)
        return boxd_words(-EINVAL, "cron line '%.80s' is not valid: it has more than five fields",
                          line);
    if (c->set[WEEKDAY] & 1 << 7)
        c->set[WEEKDAY] |= 1; /* 7 is Sunday too */
    return 0;
}

static bool has(uint64_t set, int i)
{
    return set >> i & 1;
}

static bool day_matches(const struct cron *c, const struct tm *tm)
{
    bool day = has(c->set[DAY], tm->tm_mday), weekday = has(c->set[WEEKDAY], tm->tm_wday);

    if (!has(c->set[MONTH], tm->tm_mon + 1))
        return false;
    if (c->any[DAY] || c->any[WEEKDAY])
        return day && weekday;
    return day || weekday;
}

/* The first minute of the day at or after `minute`, or -1. */
static int minute_in_day(const struct cron *c, int minute)
{
    for (; minute < 24 * 60; minute++)
        if (has(c->set[HOUR], minute / 60) && has(c->set[MINUTE], minute % 60))
            return minute;
    return -1;
}

int cron_next(const char *line, int64_t from, int64_t *out)
{
    struct cron c;
    int r = cron_parse(line, &c);
    int64_t start = from / 60 * 60 + 60, midnight = start / DAY_SECONDS * DAY_SECONDS;
    int minute = (int)((start - midnight) / 60);

    if (r < 0)
        return r;
    for (int day = 0; day <= YEARS_AHEAD * 366; day++, midnight += DAY_SECONDS, minute = 0) {
        time_t t = (time_t)midnight;
        struct tm tm;
        int found;

        if (!gmtime_r(&t, &tm) || !day_matches(&c, &tm))
            continue;
        found = minute_in_day(&c, minute);
        if (found >= 0) {
            *out = midnight + (int64_t)found * 60;
            return 0;
        }
    }
    return boxd_words(-EINVAL, "cron line '%.80s' never fires", line);
}
