/* boxd/log.h: one log for a process: a file, or nothing.
 *
 * A line is `2026-01-31T10:20:30.123Z LEVEL text`. Keys, tokens and the content of files are never
 * logged. Threads: any. */
#pragma once

#include <boxd/visibility.h>
#include <stdbool.h>

enum boxd_log_level { BOXD_LOG_ERROR, BOXD_LOG_INFO, BOXD_LOG_DEBUG };

/* Logs to `path`, created 0600 and appended to; NULL stops logging. `debug` also takes debug lines.
 * Returns 0 or a negative errno with words. */
BOXD_API int boxd_log_open(const char *path, bool debug);
BOXD_API void boxd_log(enum boxd_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Whether a debug line would be written, for callers whose arguments cost something. */
BOXD_API bool boxd_log_debugging(void);
