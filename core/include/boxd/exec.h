/* boxd/exec.h: runs one shell line in a machine, with its input and outputs as streams.
 *
 * Life: boxd_exec_start() returns at once; what is written before the stream is open is queued.
 * `done` of the handlers runs exactly once and is the last callback; the handle dies when it
 * returns. boxd_exec_cancel() and boxd_client_free() run it with -ECANCELED before they return; the
 * service then kills the command's process group (TERM, then KILL).
 * Threads: the loop's thread. Nothing runs before boxd_exec_start() has returned. */
#pragma once

#include <boxd/client.h>
#include <stdbool.h>
#include <stddef.h>

struct boxd_exec;

struct boxd_exec_options {
    const char *machine; /* id or name */
    const char *command; /* one line for the machine's /bin/sh; UTF-8, at most 1 MiB less 4 KiB */
    bool tty;            /* a terminal: both outputs come as descriptor 1 */
    uint32_t cols, rows; /* its size; 0: 80 x 24 */
    uint32_t timeout_ms; /* 0: none. After it `done` gets -ETIMEDOUT */
    bool bulk;           /* much data: goes over a second connection, so that others stay quick */
};

struct boxd_exec_handlers {
    /* Output of the command: fd is 1 or 2. `data` dies when the callback returns. NULL: discarded.
     */
    void (*output)(void *arg, int fd, const void *data, size_t n);
    /* Less than BOXD_EXEC_QUEUE bytes of input wait to be sent, after boxd_exec_write() returned
     * more than that. May be NULL. */
    void (*writable)(void *arg);
    /* r = 0: the command ended with `exit_code` (128 + n for a signal). Otherwise a negative errno:
     * -ENOENT no such machine, -EBUSY it is not running, -ECONNRESET the result is unknown. */
    void (*done)(void *arg, int r, int exit_code);
};

#define BOXD_EXEC_QUEUE (256 * 1024)

/* NULL only when memory ran out. */
BOXD_API struct boxd_exec *boxd_exec_start(struct boxd_client *c, const struct boxd_exec_options *o,
                                           const struct boxd_exec_handlers *h, void *arg);
/* Queues input (copied, cut into messages of 64 KiB) and returns the bytes now waiting, or -ENOMEM.
 * The caller should pause above BOXD_EXEC_QUEUE until `writable`. Ignored after boxd_exec_eof(). */
BOXD_API ssize_t boxd_exec_write(struct boxd_exec *e, const void *data, size_t n);
/* End of input. A command that reads its input hangs until this is called. */
BOXD_API void boxd_exec_eof(struct boxd_exec *e);
BOXD_API void boxd_exec_resize(struct boxd_exec *e, uint32_t cols, uint32_t rows);
/* While paused no output is delivered and at most one stream window (4 MiB) is buffered; `done`
 * waits for the output too. */
BOXD_API void boxd_exec_pause(struct boxd_exec *e, bool paused);
BOXD_API void boxd_exec_cancel(struct boxd_exec *e);

/* A short command whose whole output is wanted: input is empty, or `input` (copied). Fails with
 * -EFBIG when stdout or stderr exceed `limit` bytes each. */
typedef void boxd_run_done(void *arg, int r, int exit_code, const void *out, size_t out_len,
                           const void *err, size_t err_len);
BOXD_API struct boxd_call *boxd_run(struct boxd_client *c, const char *machine, const char *command,
                                    const void *input, size_t input_len, size_t limit,
                                    uint32_t timeout_ms, boxd_run_done *done, void *arg);
