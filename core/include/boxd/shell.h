/* boxd/shell.h: a shell in a machine that is fed a script piece by piece, wherever it is cut.
 *
 * All text goes to one shell, so `cd`, variables and functions last as long as the session. It
 * starts in the user's home with its input at /dev/null; stdout and stderr come merged, in order.
 * Text runs as soon as it is complete (a here-document, a quote or an `if` may span many writes).
 *
 * Life: boxd_shell_start() returns at once; text written before the shell is there is queued.
 * `ended` runs at most once and is the last callback; the handle lives until boxd_shell_free().
 * boxd_client_free() runs `ended` with -ECANCELED. From a callback only boxd_shell_write() and
 * boxd_shell_pause() may be called, and from `ended` boxd_shell_free() with `keep`.
 * Threads: the loop's thread. Nothing runs before boxd_shell_start() has returned. */
#pragma once

#include <boxd/client.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct boxd_shell;

struct boxd_shell_options {
    const char *machine; /* id or name */
    const char *dir;     /* where to start; NULL: the user's home */
    bool stop;           /* end at the first failing command, as sh -e; `set +e` opts out */
};

struct boxd_shell_handlers {
    void (*output)(void *arg, const void *data, size_t n);
    /* All complete text has run; what is incomplete waits for more. */
    void (*idle)(void *arg);
    /* Less than BOXD_EXEC_QUEUE bytes wait to be sent. May be NULL. */
    void (*writable)(void *arg);
    /* r = 0: the shell ended with `status`. Else -ENODEV no such machine, -ECONNRESET the
     * connection was lost and the result is unknown, -ECANCELED after boxd_shell_kill(). */
    void (*ended)(void *arg, int r, int status);
};

/* NULL only when memory ran out. */
BOXD_API struct boxd_shell *boxd_shell_start(struct boxd_client *c,
                                             const struct boxd_shell_options *o,
                                             const struct boxd_shell_handlers *h, void *arg);
/* Adds text (copied). Returns the bytes that wait to be sent, or -ENOMEM. Ignored (0) after
 * boxd_shell_finish() or the end. */
BOXD_API ssize_t boxd_shell_write(struct boxd_shell *s, const void *text, size_t n);
/* Whether complete lines were given that have not been reported as taken. */
BOXD_API bool boxd_shell_busy(const struct boxd_shell *s);
/* No more text: what is left runs, with the final newline added, then the shell ends. */
BOXD_API void boxd_shell_finish(struct boxd_shell *s);
BOXD_API void boxd_shell_pause(struct boxd_shell *s, bool paused);
/* Kills the script and its descendants; `ended` runs before this returns. */
BOXD_API void boxd_shell_kill(struct boxd_shell *s);
/* Frees the handle, and kills a shell that has not ended (without `ended`). After the end, commands
 * in the background go on when `keep`, else they are killed too. */
BOXD_API void boxd_shell_free(struct boxd_shell *s, bool keep);
