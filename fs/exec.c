/* fs/exec.c: the file `exec`: all text written to one open goes to one shell in the machine.
 * Write-only: a write returns when its complete text has run. Read-write: a write starts, reads
 * stream. Read-only: the output of the caller's last script; runs nothing, never blocks. */
#include "data.h"
#include "exec.h"

#include <boxd/exec.h>
#include <boxd/shell.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#define UNREAD_MAX                                                                \
    (1024u * 1024) /* of output that nobody reads; then the script is slowed down \
                    */
#define UNREAD_LOW (256u * 1024)

struct exec_open {
    struct mount *mnt;
    struct boxd_machine *machine; /* referenced */
    int mode;                     /* O_RDONLY, O_WRONLY, O_RDWR */
    struct script *script;
    struct boxd_call *waking; /* the wait for the machine */
    struct data_push *push;   /* sends what was written to files before the text */
    struct boxd_shell *shell; /* NULL before it starts and after it was freed */
    bool begun;               /* the shell was started once */
    bool ended;               /* it is over */
    bool newline;             /* the last byte written was one */
    bool released, full, paused;
    int error;                 /* sticky: what every later write gets */
    struct buf unread;         /* output for the reader of a read-write open */
    uint64_t position;         /* of a read-only open, in the script's whole output */
    struct list writes, reads; /* struct waiting */
    struct fuse_pollhandle *poll;
};

/* An op that waits on the open. */
struct waiting {
    struct list link;
    struct exec_open *o;
    struct op *op;
    size_t size;
    char *text; /* of a write that was not given to the shell yet */
    bool ready; /* ... and may be when the push under way is done */
};

static struct exec_open *of(const struct fuse_file_info *fi)
{
    return (struct exec_open *)(uintptr_t)fi->fh;
}

static void open_free(struct exec_open *o)
{
    if (o->poll)
        fuse_pollhandle_destroy(o->poll);
    script_unref(o->script);
    boxd_machine_unref(o->machine);
    buf_clear(&o->unread);
    free(o);
}

static struct op *waiting_end(struct waiting *w)
{
    struct op *op = w->op;

    list_remove(&w->link);
    op_wait(op, NULL, NULL);
    free(w->text);
    free(w);
    return op;
}

/* Answers every write whose text the shell has, and after a failure the others too: r < 0, or what
 * it wrote. */
static void writes_end(struct exec_open *o, int r)
{
    list_each_safe(it, &o->writes)
    {
        struct waiting *w = container_of(it, struct waiting, link);
        size_t size = w->size;
        struct op *op;

        if (w->text && r >= 0 && !o->ended)
            continue;
        op = waiting_end(w);
        if (r < 0)
            op_fail(op, r);
        else if (!strcmp(op->what, "write"))
            op_reply_written(op, size);
        else
            op_reply_ok(op);
    }
}

static bool busy(const struct exec_open *o)
{
    return o->waking || o->push || (o->shell && boxd_shell_busy(o->shell));
}

/* Answers a read with what is there; nothing is the end of file. */
static void read_now(struct exec_open *o, struct op *op, size_t size)
{
    size_t n = size < o->unread.len ? size : o->unread.len;

    op_reply_buf(op, o->unread.data, n);
    buf_consume(&o->unread, n);
    if (!o->unread.len)
        buf_clear(&o->unread);
    if (o->paused && o->unread.len <= UNREAD_LOW && o->shell) {
        o->paused = false;
        boxd_shell_pause(o->shell, false);
    }
}

static void reads_wake(struct exec_open *o)
{
    while (!list_empty(&o->reads) && (o->unread.len || !busy(o))) {
        struct waiting *w = container_of(o->reads.next, struct waiting, link);
        size_t size = w->size;

        read_now(o, waiting_end(w), size);
    }
    if (o->poll) {
        struct fuse_pollhandle *ph = steal_ptr(o->poll);

        fuse_lowlevel_notify_poll(ph);
        fuse_pollhandle_destroy(ph);
    }
}

/* ---- what the shell says ---- */

static void on_output(void *arg, const void *data, size_t n)
{
    struct exec_open *o = arg;

    machine_changed(o->machine);
    script_output(o->script, data, n);
    if (o->mode != O_RDWR || o->released)
        return;
    if (buf_add(&o->unread, data, n) < 0)
        boxd_log(BOXD_LOG_ERROR, "no memory for the output of a script");
    if (o->unread.len > UNREAD_MAX && !o->paused) {
        o->paused = true;
        boxd_shell_pause(o->shell, true);
    }
    reads_wake(o);
}

static void on_idle(void *arg)
{
    struct exec_open *o = arg;

    machine_changed(o->machine);
    script_exit(o->script, "exit 0");
    writes_end(o, 0);
    reads_wake(o);
}

static void on_writable(void *arg)
{
    struct exec_open *o = arg;

    o->full = false;
    if (o->mode == O_RDWR)
        writes_end(o, 0);
}

static void on_ended(void *arg, int r, int status)
{
    struct exec_open *o = arg;

    o->ended = true;
    machine_changed(o->machine);
    if (r == -ECANCELED) {
        script_exit(o->script, "killed");
        r = -EINTR;
    } else if (r < 0) {
        script_exit(o->script, "lost %s", boxd_error_words(r));
    } else {
        script_exit(o->script, "exit %d", status);
        if (status)
            r = boxd_words(-EIO, "the script ended with exit %d", status);
    }
    o->error = r == -EINTR ? -EIO : r;
    if (o->released && o->error < 0 && r != -EINTR)
        journal_add(machine_errors(o->mnt, o->machine), "exec: %s", boxd_error_words(r));
    writes_end(o, r);
    reads_wake(o);
    if (o->released) {
        boxd_shell_free(o->shell, true);
        open_free(o);
    }
}

/* ---- writing ---- */

static ssize_t give(struct exec_open *o, const char *text, size_t n)
{
    ssize_t r = o->ended ? 0 : boxd_shell_write(o->shell, text, n);

    if (n)
        o->newline = text[n - 1] == '\n';
    if (r >= 0) {
        script_text(o->script, text, n);
        if (busy(o))
            script_exit(o->script, "running");
        o->full = r > BOXD_EXEC_QUEUE;
    }
    return r;
}

/* Whether a write has nothing more to wait for. */
static bool write_done(const struct exec_open *o)
{
    return o->ended || (o->mode == O_RDWR ? !o->full : !busy(o));
}

static void write_cancel(struct op *op, void *arg)
{
    struct waiting *w = arg;
    struct exec_open *o = w->o;

    if (o->waking)
        boxd_call_cancel(o->waking); /* on_awake() answers */
    else if (w->text)
        op_fail(waiting_end(w), -EINTR); /* the shell does not have it */
    else if (o->shell && o->mode == O_WRONLY)
        boxd_shell_kill(o->shell); /* on_ended() answers */
    else
        op_fail(waiting_end(w), -EINTR);
}

static void start_shell(struct exec_open *o)
{
    static const struct boxd_shell_handlers handlers = {
        .output = on_output, .idle = on_idle, .writable = on_writable, .ended = on_ended
    };
    struct boxd_shell_options options = { .machine = o->machine->id, .stop = o->mode == O_WRONLY };

    o->shell = boxd_shell_start(o->mnt->client, &options, &handlers, o);
    o->begun = o->shell;
}

static void push(struct exec_open *o);

/* What was written to files before these texts is in the machine, or could not be sent. */
static void on_pushed(void *arg)
{
    struct exec_open *o = arg;
    int r = 0;

    o->push = NULL;
    list_each(it, &o->writes)
    {
        struct waiting *w = container_of(it, struct waiting, link);

        if (!w->ready || !w->text)
            continue;
        if (r >= 0 && give(o, w->text, w->size) < 0)
            r = -ENOMEM;
        free(steal_ptr(w->text));
    }
    if (r < 0 || write_done(o))
        writes_end(o, r);
    push(o);
    reads_wake(o);
}

/* Before a script runs it must see every write(2) that has returned: texts wait for that. */
static void push(struct exec_open *o)
{
    bool any = false;
    int r;

    list_each(it, &o->writes)
    {
        struct waiting *w = container_of(it, struct waiting, link);

        if (w->text)
            w->ready = any = true;
    }
    if (!any || o->push)
        return;
    r = data_push(o->mnt, o->machine, on_pushed, o, &o->push);
    if (r < 0)
        writes_end(o, r);
    else if (r == 0)
        on_pushed(o);
}

/* The machine answers, or will not. */
static void on_awake(void *arg, int r)
{
    struct exec_open *o = arg;

    o->waking = NULL;
    if (r == -ECANCELED)
        r = -EINTR;
    else if (r < 0 && o->machine->gone)
        r = boxd_words(-ENODEV, "the machine does not exist any more");
    if (r >= 0) {
        start_shell(o);
        r = o->shell ? 0 : -ENOMEM;
    }
    if (r < 0)
        writes_end(o, r);
    else
        push(o);
    reads_wake(o);
}

static void wait_write(struct exec_open *o, struct op *op, const void *text, size_t size)
{
    struct waiting *w = calloc(1, sizeof *w);

    if (w && text && !(w->text = malloc(size ? size : 1))) {
        free(w);
        w = NULL;
    }
    if (!w) {
        op_fail(op, -ENOMEM);
        return;
    }
    w->o = o;
    w->op = op;
    w->size = size;
    if (text)
        memcpy(w->text, text, size);
    list_add(&o->writes, &w->link);
    if (!o->begun && !o->waking) {
        o->waking = boxd_machine_wait(o->machine, o->mnt->opt.ready_timeout_ms, on_awake, o);
        if (!o->waking) {
            writes_end(o, -ENOMEM);
            return;
        }
    }
    op_wait(op, write_cancel, w); /* may answer it */
    if (o->begun && !o->push)
        push(o);
}

static bool refuse(struct exec_open *o, struct op *op)
{
    if (o->error < 0) {
        op_fail(op, boxd_words(o->error, "the script has failed before"));
        return true;
    }
    if (o->ended && o->mode == O_RDWR) {
        op_fail(op, boxd_words(-EPIPE, "the script has ended"));
        return true;
    }
    return false;
}

static void exec_write(struct op *op, struct node *n, const void *data, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    struct exec_open *o = of(fi);

    if (refuse(o, op))
        return;
    if (!o->script) {
        o->script = script_begin(o->machine, op->uid, op_session(op));
        if (!o->script) {
            op_fail(op, -ENOMEM);
            return;
        }
    }
    if (!o->begun) {
        if (o->machine->gone)
            op_fail(op, boxd_words(-ENODEV, "the machine does not exist any more"));
        else
            wait_write(o, op, data, size);
        return;
    }
    wait_write(o, op, data, size);
}

/* Whether the process that closes still has the file open under another descriptor: a shell's
 * redirection, not the end of what it writes. */
static bool still_open(const struct op *op)
{
    _cleanup_free_ char *dir = strf("/proc/%d/fd", (int)op->pid);
    _cleanup_free_ char *own = strf("%s/%s/exec", op->mnt->opt.mount_point, op->node->parent->name);
    _cleanup_closedir_ DIR *fds = dir && own ? opendir(dir) : NULL;
    struct dirent *e;

    while (fds && (e = readdir(fds))) {
        char link[4096];
        ssize_t len = readlinkat(dirfd(fds), e->d_name, link, sizeof link - 1);

        if (len <= 0)
            continue;
        link[len] = '\0';
        if (!strcmp(link, own))
            return true;
    }
    return false;
}

static void exec_flush(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct exec_open *o = of(fi);

    if (o->mode != O_WRONLY || !o->begun) {
        op_reply_ok(op);
        return;
    }
    if (!o->ended && !o->newline && !still_open(op) && give(o, "\n", 1) < 0) {
        op_fail(op, -ENOMEM);
        return;
    }
    if (o->error < 0)
        op_fail(op, boxd_words(o->error, "the script has failed before"));
    else if (write_done(o))
        op_reply_ok(op);
    else
        wait_write(o, op, NULL, 0);
}

/* ---- reading ---- */

static void read_cancel(struct op *op, void *arg)
{
    op_fail(waiting_end(arg), -EINTR);
}

static void read_last(struct exec_open *o, struct op *op, size_t size)
{
    struct script *s = o->script;
    uint64_t at = o->position;
    size_t n;

    if (!s) {
        op_reply_buf(op, NULL, 0);
        return;
    }
    at = at > s->dropped ? at - s->dropped : 0;
    n = at < s->output.len ? s->output.len - (size_t)at : 0;
    if (n > size)
        n = size;
    o->position = s->dropped + at + n;
    op_reply_buf(op, n ? s->output.data + at : NULL, n);
}

static void exec_read(struct op *op, struct node *n, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
    struct exec_open *o = of(fi);
    struct waiting *w;

    if (o->mode == O_RDONLY) {
        read_last(o, op, size);
        return;
    }
    if (o->unread.len || !busy(o)) {
        read_now(o, op, size);
        return;
    }
    w = calloc(1, sizeof *w);
    if (!w) {
        op_fail(op, -ENOMEM);
        return;
    }
    w->o = o;
    w->op = op;
    w->size = size;
    list_add(&o->reads, &w->link);
    op_wait(op, read_cancel, w);
}

static void exec_poll(struct op *op, struct node *n, struct fuse_file_info *fi,
                      struct fuse_pollhandle *ph)
{
    struct exec_open *o = of(fi);
    unsigned events = 0;

    if (ph) {
        if (o->poll)
            fuse_pollhandle_destroy(o->poll);
        o->poll = ph;
    }
    if (o->mode != O_RDWR || o->unread.len || !busy(o))
        events |= POLLIN | POLLRDNORM;
    if (o->mode != O_RDONLY && !o->full)
        events |= POLLOUT | POLLWRNORM;
    op_reply_poll(op, events);
}

/* ---- open and close ---- */

static void exec_open_file(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct exec_open *o = calloc(1, sizeof *o);

    if (!o) {
        op_fail(op, -ENOMEM);
        return;
    }
    o->mnt = op->mnt;
    o->machine = boxd_machine_ref(n->machine);
    o->mode = fi->flags & O_ACCMODE;
    o->newline = true;
    list_init(&o->writes);
    list_init(&o->reads);
    if (o->mode == O_RDONLY) {
        o->script = script_last(n->machine, op->uid, op_session(op));
        if (o->script)
            script_ref(o->script);
    }
    op_reply_open_stream(op, (uintptr_t)o);
}

static void exec_release(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct exec_open *o = of(fi);

    op_reply_ok(op);
    o->released = true;
    if (o->waking) {
        boxd_call_cancel(o->waking);
        o->waking = NULL;
    }
    if (o->push) {
        data_push_forget(o->push);
        o->push = NULL;
    }
    if (o->shell && !o->ended && o->mode == O_WRONLY) {
        boxd_shell_finish(o->shell); /* on_ended() frees */
        return;
    }
    if (o->shell) {
        if (!o->ended)
            script_exit(o->script, "killed");
        boxd_shell_free(o->shell, o->mode == O_WRONLY);
    }
    open_free(o);
}

static void exec_getattr(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct stat st;

    special_stat(n, &st);
    op_reply_attr(op, &st);
}

/* `>` truncates, touch sets times: both mean nothing here, and neither may fail. */
static void exec_setattr(struct op *op, struct node *n, const struct stat *st, int to_set,
                         struct fuse_file_info *fi)
{
    if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        op_fail(op, boxd_words(-EPERM, "'exec' belongs to the mount"));
    else
        exec_getattr(op, n, fi);
}

static const struct node_ops exec_ops = {
    .kind = "exec",
    .owner_only = true,
    .getattr = exec_getattr,
    .setattr = exec_setattr,
    .open = exec_open_file,
    .read = exec_read,
    .write = exec_write,
    .flush = exec_flush,
    .release = exec_release,
    .poll = exec_poll,
};

struct node *exec_node(struct mount *mnt, struct node *dir, struct boxd_machine *m)
{
    struct node *n = node_new(mnt, &exec_ops, dir, "exec", sizeof *n);

    if (n)
        node_detach(n); /* a fresh one for every look-up: a second user never waits for the first */
    return n;
}
