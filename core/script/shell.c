/* A shell session: the wrapper over one Exec. */
#include "base/base.h"

#include <boxd/error.h>
#include <boxd/exec.h>
#include <boxd/shell.h>

#include "base/str.h"
#include "script/wrapper.h"

struct boxd_shell {
    struct boxd_exec *exec; /* NULL when it is over */
    struct boxd_shell_handlers h;
    void *arg;
    struct reports reports;
    struct buf partial; /* text behind the last newline */
    uint64_t sent, seen;
    bool finished; /* no more text */
    bool ended;    /* `ended` has run */
    bool orphan;   /* the handle was freed; the exec goes on with its background commands */
};

static void destroy(struct boxd_shell *s)
{
    buf_clear(&s->reports.held);
    buf_clear(&s->partial);
    free(s);
}

static void end(struct boxd_shell *s, int r, int status)
{
    if (s->ended)
        return;
    s->ended = true;
    s->h.ended(s->arg, r, status);
}

static void on_text(void *arg, const char *data, size_t n)
{
    struct boxd_shell *s = arg;

    s->h.output(s->arg, data, n);
}

static bool on_report(void *arg, char kind, int status)
{
    struct boxd_shell *s = arg;

    if (kind == 'X') {
        end(s, 0, status);
        return false;
    }
    if (s->seen < s->sent && ++s->seen == s->sent)
        s->h.idle(s->arg);
    return true;
}

static void on_output(void *arg, int fd, const void *data, size_t n)
{
    struct boxd_shell *s = arg;

    /* Without memory output is lost, never a report: they are looked for again in what follows. */
    if (!s->ended && reports_feed(&s->reports, data, n) < 0)
        buf_clear(&s->reports.held);
}

static void on_writable(void *arg)
{
    struct boxd_shell *s = arg;

    if (!s->ended && s->h.writable)
        s->h.writable(s->arg);
}

static void on_done(void *arg, int r, int code)
{
    struct boxd_shell *s = arg;

    s->exec = NULL;
    if (s->orphan) {
        destroy(s);
        return;
    }
    if (!s->ended)
        reports_flush(&s->reports);
    if (r == -ENOENT || r == -ESTALE)
        r = boxd_words(-ENODEV, "the machine does not exist");
    end(s, r, code);
}

struct boxd_shell *boxd_shell_start(struct boxd_client *c, const struct boxd_shell_options *o,
                                    const struct boxd_shell_handlers *h, void *arg)
{
    static const struct boxd_exec_handlers handlers = { .output = on_output,
                                                        .writable = on_writable,
                                                        .done = on_done };
    struct boxd_shell *s = calloc(1, sizeof *s);
    struct boxd_exec_options options = { .machine = o->machine };
    _cleanup_buf_ struct buf line = { 0 }, hello = { 0 };

    if (!s)
        return NULL;
    s->h = *h;
    s->arg = arg;
    s->reports.output = on_text;
    s->reports.report = on_report;
    s->reports.arg = s;
    if (random_hex(s->reports.nonce, NONCE_HEX / 2) >= 0 && wrapper_line(&line, o->dir) >= 0 &&
        wrapper_greeting(&hello, s->reports.nonce, o->stop) >= 0) {
        options.command = line.data;
        s->exec = boxd_exec_start(c, &options, &handlers, s);
    }
    if (!s->exec) {
        destroy(s);
        return NULL;
    }
    if (boxd_exec_write(s->exec, hello.data, hello.len) < 0) {
        s->ended = true;
        s->orphan = true;
        boxd_exec_cancel(s->exec);
        return NULL;
    }
    return s;
}

ssize_t boxd_shell_write(struct boxd_shell *s, const void *text, size_t n)
{
    _cleanup_buf_ struct buf frames = { 0 };
    const char *end_of_lines = memrchr(text, '\n', n);
    size_t whole = end_of_lines ? (size_t)(end_of_lines - (const char *)text) + 1 : 0;
    ssize_t r;

    if (s->finished || s->ended || !s->exec)
        return 0;
    r = buf_add(&s->partial, text, whole);
    if (r >= 0 && whole) {
        r = wrapper_frames(&frames, s->partial.data, s->partial.len, &s->sent);
        if (r >= 0) {
            buf_clear(&s->partial);
            r = boxd_exec_write(s->exec, frames.data, frames.len);
        }
    }
    if (r >= 0) {
        int e = buf_add(&s->partial, (const char *)text + whole, n - whole);

        if (e < 0)
            r = e;
    }
    return r;
}

bool boxd_shell_busy(const struct boxd_shell *s)
{
    return !s->ended && s->seen < s->sent;
}

void boxd_shell_finish(struct boxd_shell *s)
{
    if (s->finished || !s->exec)
        return;
    /* Without memory for the newline the text must not run cut short: the shell is killed. */
    if (s->partial.len && boxd_shell_write(s, "\n", 1) < 0) {
        boxd_exec_cancel(s->exec);
        return;
    }
    s->finished = true;
    boxd_exec_eof(s->exec);
}

void boxd_shell_pause(struct boxd_shell *s, bool paused)
{
    if (s->exec)
        boxd_exec_pause(s->exec, paused);
}

void boxd_shell_kill(struct boxd_shell *s)
{
    if (s->exec)
        boxd_exec_cancel(s->exec);
}

void boxd_shell_free(struct boxd_shell *s, bool keep)
{
    if (!s->exec) {
        destroy(s);
        return;
    }
    s->orphan = true;
    if (s->ended && keep) {
        boxd_exec_eof(s->exec);
        return;
    }
    s->ended = true;
    boxd_exec_cancel(s->exec);
}
