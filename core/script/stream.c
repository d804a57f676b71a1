/* Whole files over one exec each: a fetch streams a file out of the machine, a store into it. */
#include "base/base.h"

#include <boxd/error.h>
#include <boxd/exec.h>

#include "api/client.h"
#include "base/buf.h"
#include "script/line.h"
#include "script/script.h"

#define HEADER_MAX 1024
#define STDERR_MAX 4096

/* Keeps the end of what is said on stderr: the last line has the reason. */
static int keep_tail(struct buf *b, const void *data, size_t n)
{
    if (n > STDERR_MAX) {
        data = (const char *)data + (n - STDERR_MAX);
        n = STDERR_MAX;
    }
    if (b->len + n > STDERR_MAX)
        buf_consume(b, b->len + n - STDERR_MAX);
    return buf_add(b, data, n);
}

struct boxd_fetch {
    struct boxd_exec *exec;
    struct boxd_fetch_handlers h;
    void *arg;
    bool opened;
    uint64_t limit, received;
    struct buf header, err;
    int failed; /* found out on this side; reported at the end */
};

static void fetch_free(struct boxd_fetch *f)
{
    buf_clear(&f->header);
    buf_clear(&f->err);
    free(f);
}

/* Collects the first line; what stands behind it is content. Returns the bytes it took. */
static size_t fetch_header(struct boxd_fetch *f, const char *data, size_t n)
{
    const char *end = memchr(data, '\n', n);
    size_t take = end ? (size_t)(end - data) : n;
    struct stat st;

    if (f->header.len + take > HEADER_MAX) {
        f->failed = boxd_words(-EIO, "the machine's answer to open is malformed");
        return n;
    }
    f->failed = buf_add(&f->header, data, take);
    if (f->failed < 0 || !end)
        return n;
    f->failed = line_stat_parse(buf_str(&f->header), &st);
    if (f->failed >= 0 && !S_ISREG(st.st_mode))
        f->failed = boxd_words(-ESTALE, "the file changed while it was opened");
    if (f->failed < 0)
        return n;
    f->opened = true;
    f->h.opened(f->arg, &st);
    return take + 1;
}

static void fetch_take(struct boxd_fetch *f, int fd, const void *data, size_t n)
{
    const char *p = data;

    if (fd == 2) {
        f->failed = keep_tail(&f->err, data, n);
        return;
    }
    if (!f->opened) {
        size_t used = fetch_header(f, p, n);

        p += used;
        n -= used;
    }
    if (f->failed < 0 || !n)
        return;
    if (n > f->limit - f->received) {
        f->failed = boxd_words(-EFBIG, "the file grew beyond %" PRIu64 " bytes", f->limit);
        return;
    }
    f->received += n;
    f->h.data(f->arg, p, n);
}

/* After a failure nothing more is waited for: a hostile machine might print for ever. */
static void fetch_output(void *arg, int fd, const void *data, size_t n)
{
    struct boxd_fetch *f = arg;

    if (f->failed < 0)
        return;
    fetch_take(f, fd, data, n);
    if (f->failed < 0)
        exec_fail(f->exec, f->failed);
}

static void fetch_done(void *arg, int r, int code)
{
    struct boxd_fetch *f = arg;

    if (r != -ECANCELED && f->failed < 0)
        r = f->failed;
    else
        r = script_result(r, code, buf_str(&f->err), f->err.len);
    if (r >= 0 && !f->opened)
        r = boxd_words(-EIO, "the machine gave no answer to open");
    f->h.done(f->arg, r);
    fetch_free(f);
}

struct boxd_fetch *boxd_script_fetch(struct boxd_client *c, const char *machine, const char *path,
                                     unsigned flags, uint64_t limit, const struct stat *known,
                                     const struct boxd_fetch_handlers *h, void *arg)
{
    struct boxd_fetch *f = calloc(1, sizeof *f);
    _cleanup_buf_ struct buf line = { 0 };
    struct boxd_exec_options o = { .machine = machine };
    struct boxd_exec_handlers eh = { .output = fetch_output, .done = fetch_done };

    if (!f)
        return NULL;
    f->h = *h;
    f->arg = arg;
    f->limit = limit;
    if (line_fetch(&line, path, flags, limit, known) >= 0) {
        o.command = line.data;
        f->exec = boxd_exec_start(c, &o, &eh, f);
    }
    if (!f->exec) {
        fetch_free(f);
        return NULL;
    }
    boxd_exec_eof(f->exec);
    return f;
}

void boxd_fetch_pause(struct boxd_fetch *f, bool paused)
{
    boxd_exec_pause(f->exec, paused);
}

void boxd_fetch_cancel(struct boxd_fetch *f)
{
    boxd_exec_cancel(f->exec);
}

struct boxd_store {
    struct boxd_exec *exec;
    struct boxd_store_handlers h;
    void *arg;
    struct buf out, err;
    int failed;
};

static void store_free(struct boxd_store *s)
{
    buf_clear(&s->out);
    buf_clear(&s->err);
    free(s);
}

static void store_output(void *arg, int fd, const void *data, size_t n)
{
    struct boxd_store *s = arg;

    if (s->failed < 0)
        return;
    if (fd == 2)
        s->failed = keep_tail(&s->err, data, n);
    else if (s->out.len + n > HEADER_MAX)
        s->failed = boxd_words(-EIO, "the machine's answer to write is malformed");
    else
        s->failed = buf_add(&s->out, data, n);
    if (s->failed < 0)
        exec_fail(s->exec, s->failed);
}

static void store_writable(void *arg)
{
    struct boxd_store *s = arg;

    if (s->h.writable)
        s->h.writable(s->arg);
}

static void store_done(void *arg, int r, int code)
{
    struct boxd_store *s = arg;
    struct stat st = { 0 };

    if (r != -ECANCELED && s->failed < 0)
        r = s->failed;
    else
        r = script_result(r, code, buf_str(&s->err), s->err.len);
    if (r >= 0)
        r = line_stat_parse(buf_str(&s->out), &st);
    s->h.done(s->arg, r, r < 0 ? NULL : &st);
    store_free(s);
}

struct boxd_store *boxd_script_store(struct boxd_client *c, const char *machine, const char *path,
                                     unsigned flags, const struct boxd_store_handlers *h, void *arg)
{
    struct boxd_store *s = calloc(1, sizeof *s);
    _cleanup_buf_ struct buf line = { 0 };
    struct boxd_exec_options o = { .machine = machine };
    struct boxd_exec_handlers eh = { .output = store_output,
                                     .writable = store_writable,
                                     .done = store_done };

    if (!s)
        return NULL;
    s->h = *h;
    s->arg = arg;
    if (line_store(&line, path, flags) >= 0) {
        o.command = line.data;
        s->exec = boxd_exec_start(c, &o, &eh, s);
    }
    if (!s->exec) {
        store_free(s);
        return NULL;
    }
    return s;
}

ssize_t boxd_store_write(struct boxd_store *s, const void *data, size_t n)
{
    return boxd_exec_write(s->exec, data, n);
}

void boxd_store_eof(struct boxd_store *s)
{
    boxd_exec_eof(s->exec);
}

void boxd_store_cancel(struct boxd_store *s)
{
    boxd_exec_cancel(s->exec);
}
