#include "base/base.h"

#include <stdarg.h>

#include <boxd/error.h>

static _Thread_local struct {
    int r;
    char text[1024];
} last;

int boxd_words(int r, const char *fmt, ...)
{
    char text[sizeof last.text]; /* the arguments may be the remembered words themselves */
    va_list ap;

    errno = r < 0 ? -r : r;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(last.text, text, sizeof text);
    last.r = r;
    return r;
}

const char *boxd_error_words(int r)
{
    if (r == last.r && last.text[0])
        return last.text;
    return strerror(r < 0 ? -r : r);
}

void boxd_words_clear(void)
{
    last.r = 0;
    last.text[0] = '\0';
}
