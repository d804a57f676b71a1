/* fs/op.c: the life of a request: made, perhaps waiting, answered once.
 * Every reply of the mount leaves from this file. */
#include "fs.h"

#include "interrupt.h"

#include <linux/fuse.h>
#include <sys/stat.h>

/* Failures that belong to everyday work are not noted. */
static const int everyday[] = { ENOENT,    EINTR,      EEXIST, ENOTDIR, EISDIR, ENOTEMPTY,
                                ECANCELED, EOPNOTSUPP, EAGAIN, ENOSYS,  ELOOP };

/* What goes through a handle was allowed when that was opened, perhaps before the caller changed
 * its uid. */
static const char *const by_handle[] = { "getattr", "read",       "write", "close",    "release",
                                         "readdir", "releasedir", "fsync", "fsyncdir", "poll" };

static bool allowed(const struct op *op)
{
    if (!op->node->ops->owner_only || op->uid == op->mnt->uid || op->uid == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(by_handle); i++)
        if (!strcmp(op->what, by_handle[i]))
            return true;
    return false;
}

struct op *op_new(fuse_req_t req, fuse_ino_t ino, const char *what, const char *name)
{
    struct mount *mnt = fuse_req_userdata(req);
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct node *n = node_find(mnt, ino);
    struct op *op = n ? calloc(1, sizeof *op) : NULL;

    mnt->requests++;
    boxd_words_clear();
    if (!op) {
        fuse_reply_err(req, n ? ENOMEM : ESTALE);
        return NULL;
    }
    if (n->machine)
        fsmachine(n->machine)->requests++;
    *op = (struct op){ .req = req,
                       .mnt = mnt,
                       .node = node_ref(n),
                       .what = what,
                       .name = name ? strdup(name) : NULL,
                       .uid = ctx->uid,
                       .gid = ctx->gid,
                       .pid = ctx->pid,
                       .umask = ctx->umask,
                       .started_ms = now_ms() };
    list_add(&mnt->ops, &op->link);
    if (allowed(op))
        return op;
    op_fail(op, -EACCES);
    return NULL;
}

static void op_free(struct op *op)
{
    list_remove(&op->link);
    node_unref(op->node);
    free(op->path);
    free(op->name);
    free(op);
}

static void fuse_interrupted(fuse_req_t req, void *arg)
{
    /* libfuse holds the request's lock here: no reply from inside. */
    interrupt_ask(arg);
}

void op_wait(struct op *op, void (*cancel)(struct op *op, void *arg), void *arg)
{
    bool first = cancel && !op->cancel;

    op->cancel = cancel;
    op->cancel_arg = arg;
    if (!cancel)
        return;
    if (op->interrupted || op->mnt->ending) {
        op_cancel(op);
        return;
    }
    if (first && op->req)
        fuse_req_interrupt_func(op->req, fuse_interrupted, op);
    else if (op->asked)
        interrupt_ask(op);
}

void op_cancel(struct op *op)
{
    void (*cancel)(struct op * op, void *arg) = op->cancel;

    op->cancel = NULL;
    op->interrupted = true;
    if (cancel)
        cancel(op, op->cancel_arg);
}

/* The node's path below the mount point, for people. */
static char *node_path(const struct node *n)
{
    _cleanup_free_ char *above = NULL;

    if (!n->parent)
        return strdup("");
    above = node_path(n->parent);
    return above ? strf("%s/%s", above, n->name) : NULL;
}

const char *op_path(struct op *op)
{
    _cleanup_free_ char *dir = op->path ? NULL : node_path(op->node);

    if (!op->path && dir)
        op->path = op->name ? strf("%s/%s", dir, op->name) : strdup(*dir ? dir : "/");
    return op->path ? op->path : "?";
}

static void note_failure(struct op *op, int r)
{
    const char *words = boxd_error_words(r), *name = strerrorname_np(-r);

    for (size_t i = 0; i < ARRAY_LEN(everyday); i++)
        if (r == -everyday[i])
            return;
    journal_add(machine_errors(op->mnt, op->node->machine), "%s %s %s: %s", op->what, op_path(op),
                name ? name : "EIO", words);
    boxd_log(BOXD_LOG_ERROR, "%s %s: %s", op->what, op_path(op), words);
}

/* A release that the kernel did not ask for (see release()) has no request. */
static void answer(struct op *op, int error)
{
    if (op->req)
        fuse_reply_err(op->req, error);
    op_free(op);
}

void op_fail(struct op *op, int r)
{
    if (r >= 0 || r < -4095)
        r = boxd_words(-EIO, "'%s' ended with the impossible result %d", op->what, r);
    if (op->late && (r == -EINTR || r == -ECANCELED))
        r = boxd_words(-ETIMEDOUT, "the machine did not answer within %u s (-o op_timeout)",
                       op->mnt->opt.op_timeout_ms / 1000);
    note_failure(op, r);
    /* The kernel would take ENOSYS as "never ask again", for the whole mount. */
    if (r == -ENOSYS)
        r = -EOPNOTSUPP;
    answer(op, r == -ECANCELED ? EINTR : -r);
}

void op_reply_ok(struct op *op)
{
    answer(op, 0);
}

static struct fuse_entry_param entry(struct node *child, const struct stat *st)
{
    /* Time-outs 0: the machine's programs change files without telling us. */
    return (struct fuse_entry_param){ .ino = child->id, .attr = *st };
}

/* The kernel took the entry: the caller's reference becomes the kernel's, or goes. */
static void looked_up(struct node *child, int reply)
{
    if (reply == 0 && child->lookups++ == 0)
        return;
    node_unref(child);
}

void op_reply_entry(struct op *op, struct node *child, const struct stat *st)
{
    struct fuse_entry_param e = entry(child, st);

    looked_up(child, fuse_reply_entry(op->req, &e));
    op_free(op);
}

void op_reply_attr(struct op *op, const struct stat *st)
{
    fuse_reply_attr(op->req, st, 0);
    op_free(op);
}

/* ---- what is open ---- */

struct open_file {
    struct list in_mount, in_node;
    struct node *node; /* referenced */
    struct fuse_file_info fi;
    bool dir;
};

static void remember_open(struct op *op, struct node *n, const struct fuse_file_info *fi)
{
    struct open_file *f = fi->fh ? calloc(1, sizeof *f) : NULL;

    /* Without memory the handle is only not closed when the mount ends with it open. */
    if (!f)
        return;
    *f = (struct open_file){ .node = node_ref(n), .fi = *fi, .dir = !strcmp(op->what, "opendir") };
    list_add(&op->mnt->opens, &f->in_mount);
    list_add(&n->opens, &f->in_node);
}

static void forget_open(struct open_file *f)
{
    list_remove(&f->in_mount);
    list_remove(&f->in_node);
    node_unref(f->node);
    free(f);
}

void op_closed(struct node *n, uint64_t fh)
{
    list_each(it, &n->opens)
    {
        struct open_file *f = container_of(it, struct open_file, in_node);

        if (f->fi.fh != fh)
            continue;
        forget_open(f);
        return;
    }
}

/* A release that the kernel does not ask for; its op has no request. */
static void release(struct mount *mnt, struct node *n, struct fuse_file_info *fi, bool dir)
{
    void (*fn)(struct op *, struct node *, struct fuse_file_info *) =
        dir ? n->ops->releasedir : n->ops->release;
    struct op *op = fn ? calloc(1, sizeof *op) : NULL;

    if (!op)
        return;
    *op = (struct op){ .mnt = mnt,
                       .node = node_ref(n),
                       .what = "release",
                       .uid = mnt->uid,
                       .gid = mnt->gid,
                       .started_ms = now_ms() };
    list_add(&mnt->ops, &op->link);
    fn(op, n, fi);
}

void ops_close_all(struct mount *mnt)
{
    while (!list_empty(&mnt->opens)) {
        struct open_file *f = container_of(mnt->opens.next, struct open_file, in_mount);
        struct node *n = node_ref(f->node);
        struct fuse_file_info fi = f->fi;
        bool dir = f->dir;

        forget_open(f);
        release(mnt, n, &fi, dir);
        node_unref(n);
    }
}

/* The reply that gives a handle out. -ENOENT: the opener was killed before it saw it, so nobody
 * will close it but we. */
static void opened(struct op *op, struct node *n, struct fuse_file_info *fi, int reply)
{
    if (reply == -ENOENT)
        release(op->mnt, n, fi, !strcmp(op->what, "opendir"));
    else
        remember_open(op, n, fi);
}

void op_reply_open(struct op *op, struct fuse_file_info *fi)
{
    opened(op, op->node, fi, fuse_reply_open(op->req, fi));
    op_free(op);
}

void op_reply_open_stream(struct op *op, uint64_t fh)
{
    struct fuse_open_out out = { .fh = fh, .open_flags = FOPEN_DIRECT_IO | FOPEN_STREAM };
    struct fuse_file_info fi = { .fh = fh };

    opened(op, op->node, &fi, fuse_reply_buf(op->req, (const char *)&out, sizeof out));
    op_free(op);
}

void op_reply_create(struct op *op, struct node *child, const struct stat *st,
                     struct fuse_file_info *fi)
{
    struct fuse_entry_param e = entry(child, st);
    int r = fuse_reply_create(op->req, &e, fi);

    opened(op, child, fi, r);
    looked_up(child, r);
    op_free(op);
}

void op_reply_buf(struct op *op, const void *data, size_t n)
{
    fuse_reply_buf(op->req, data, n);
    op_free(op);
}

void op_reply_fd(struct op *op, int fd, off_t off, size_t n)
{
    struct fuse_bufvec v = FUSE_BUFVEC_INIT(n);

    v.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY;
    v.buf[0].fd = fd;
    v.buf[0].pos = off;
    fuse_reply_data(op->req, &v, 0);
    op_free(op);
}

void op_reply_written(struct op *op, size_t n)
{
    fuse_reply_write(op->req, n);
    op_free(op);
}

void op_reply_link(struct op *op, const char *target)
{
    fuse_reply_readlink(op->req, target);
    op_free(op);
}

void op_reply_statfs(struct op *op, const struct statvfs *st)
{
    fuse_reply_statfs(op->req, st);
    op_free(op);
}

void op_reply_poll(struct op *op, unsigned revents)
{
    fuse_reply_poll(op->req, revents);
    op_free(op);
}

pid_t op_session(const struct op *op)
{
    return op->pid ? getsid(op->pid) : 0;
}
