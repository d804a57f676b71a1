#include "base/base.h"

#include <fcntl.h>
#include <stdarg.h>

#include <boxd/error.h>
#include <boxd/log.h>

static int log_fd = -1;
static bool log_debug;

int boxd_log_open(const char *path, bool debug)
{
    _cleanup_close_ int fd = -1;

    if (path) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
        if (fd < 0)
            return boxd_words(-errno, "cannot open log '%s': %s", path, strerror(errno));
    }
    if (log_fd >= 0)
        close(log_fd);
    log_fd = steal_fd(&fd);
    log_debug = debug;
    return 0;
}

bool boxd_log_debugging(void)
{
    return log_fd >= 0 && log_debug;
}

void boxd_log(enum boxd_log_level level, const char *fmt, ...)
{
    static const char *const names[] = { "error", "info", "debug" };
    char line[2048], when[32];
    struct timespec now;
    struct tm tm;
    va_list ap;
    int n, m;

    if (log_fd < 0 || (level == BOXD_LOG_DEBUG && !log_debug))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    n = snprintf(line, sizeof line, "%s.%03ldZ %s ", when, now.tv_nsec / 1000000, names[level]);
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (m < 0)
        return;
    n += m;
    if ((size_t)n > sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    /* One write a line: lines of two processes never mix. Nobody is left to tell when it fails. */
    if (write(log_fd, line, (size_t)n) < 0)
        return;
}
