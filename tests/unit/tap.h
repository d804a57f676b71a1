/* tests/unit/tap.h: the Test Anything Protocol in a page.
 * A test is `t("what it promises"); ok(condition); ok(...)`: one line a promise; a false condition
 * prints its text and place, and the program goes on. End main with `return tap_done();`. */
#pragma once

#include "base/base.h"

static int tap_count, tap_failed;
static bool tap_bad;
static const char *tap_name;

static inline void tap_flush(void)
{
    if (!tap_name)
        return;
    printf("%sok %d - %s\n", tap_bad ? "not " : "", ++tap_count, tap_name);
    fflush(stdout);
    tap_failed += tap_bad;
    tap_bad = false;
    tap_name = NULL;
}

static inline void t(const char *name)
{
    tap_flush();
    tap_name = name;
}

static inline bool tap_ok(bool good, const char *text, const char *file, int line)
{
    if (!good) {
        tap_bad = true;
        printf("# %s:%d: %s\n", file, line, text);
    }
    return good;
}
#define ok(cond) tap_ok((cond), #cond, __FILE__, __LINE__)
#define ok_str(got, want) tap_ok_str((got), (want), __FILE__, __LINE__)

static inline bool tap_ok_str(const char *got, const char *want, const char *file, int line)
{
    bool good = got && want && !strcmp(got, want);

    if (!good) {
        tap_bad = true;
        printf("# %s:%d: got \"%s\", want \"%s\"\n", file, line, got ? got : "(null)",
               want ? want : "(null)");
    }
    return good;
}

static inline int tap_done(void)
{
    tap_flush();
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}
