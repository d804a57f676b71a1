/* fs/dispatch.c: reads /dev/fuse on the loop and calls the operations of nodes.
 * A kind that lacks an operation is answered here. Never with ENOSYS, which the kernel takes as
 * "never ask again" for the whole mount; except for xattr and access, where that is meant. */
#include "fs.h"

#include "dispatch.h"

#include <fcntl.h>
#include <poll.h>

#define REQUESTS_A_TURN 64 /* then the network and the timers have theirs */

/* The op of a request whose node must have operation `fn`, or returns. */
#define OP_FOR(ino, what_, name_, fn, otherwise)      \
    struct op *op = op_new(req, (ino), what_, name_); \
    if (!op)                                          \
        return;                                       \
    if (!op->node->ops->fn) {                         \
        lacks(op, (otherwise));                       \
        return;                                       \
    }                                                 \
    const struct node_ops *ops _unused_ = op->node->ops

static void lacks(struct op *op, int otherwise)
{
    if (otherwise == 0)
        op_reply_ok(op);
    else
        op_fail(op, op->node->ops->missing ? op->node->ops->missing : otherwise);
}

static void on_init(void *arg, struct fuse_conn_info *conn)
{
    static const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS |
                                   FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_SPLICE_WRITE |
                                   FUSE_CAP_SPLICE_MOVE;
    struct mount *mnt = arg;

    /* Not AUTO_INVAL_DATA: with attribute timeouts of 0 it asks for the attributes before every
     * read of 128 KiB. Each open drops the cached pages, and so does a changed size in any reply.
     * Named here: anything else that libfuse would turn on stays off (no read by splice, because
     * written bytes are wanted in memory; no readdirplus, because attributes cost a question). */
    conn->want = conn->capable & wanted;
    conn->max_write = 1024 * 1024;
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    if (mnt->on_ready)
        mnt->on_ready(mnt);
}

static void on_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    OP_FOR(parent, "lookup", name, lookup, -ENOTDIR);
    ops->lookup(op, op->node, name);
}

static void forget_one(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    struct node *n = node_find(fuse_req_userdata(req), ino);

    if (n && ino != FUSE_ROOT_ID)
        node_forget(n, count);
}

static void on_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    forget_one(req, ino, count);
    fuse_reply_none(req);
}

static void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *f)
{
    for (size_t i = 0; i < count; i++)
        forget_one(req, f[i].ino, f[i].nlookup);
    fuse_reply_none(req);
}

static void on_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    OP_FOR(ino, "getattr", NULL, getattr, -EACCES);
    ops->getattr(op, op->node, fi);
}

static void on_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
                       struct fuse_file_info *fi)
{
    OP_FOR(ino, "setattr", NULL, setattr, -EPERM);
    ops->setattr(op, op->node, st, to_set, fi);
}

static void on_readlink(fuse_req_t req, fuse_ino_t ino)
{
    OP_FOR(ino, "readlink", NULL, readlink, -EINVAL);
    ops->readlink(op, op->node);
}

static void on_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    OP_FOR(parent, "mknod", name, mknod, -EPERM);
    ops->mknod(op, op->node, name, mode, rdev);
}

static void on_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    OP_FOR(parent, "mkdir", name, mkdir, -EPERM);
    ops->mkdir(op, op->node, name, mode);
}

static void on_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    OP_FOR(parent, "unlink", name, unlink, -EPERM);
    ops->unlink(op, op->node, name);
}

static void on_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    OP_FOR(parent, "rmdir", name, rmdir, -EPERM);
    ops->rmdir(op, op->node, name);
}

static void on_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    OP_FOR(parent, "symlink", name, symlink, -EPERM);
    ops->symlink(op, op->node, name, target);
}

/* The other directory of a rename or a link; answers the op and returns NULL when it cannot be one.
 */
static struct node *other_dir(struct op *op, fuse_ino_t ino)
{
    struct node *dir = node_find(op->mnt, ino);
    int r = 0;

    if (!dir)
        r = -ESTALE;
    else if (dir->machine != op->node->machine)
        r = -EXDEV;
    else if (!dir->ops->create && !dir->ops->rename)
        r = -EPERM;
    if (r == 0)
        return dir;
    op_fail(op, r);
    return NULL;
}

static void on_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                      const char *newname, unsigned int flags)
{
    OP_FOR(parent, "rename", name, rename, -EPERM);
    struct node *dir = other_dir(op, newparent);

    if (dir)
        ops->rename(op, op->node, name, dir, newname, flags);
}

static void on_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
    OP_FOR(ino, "link", NULL, link, -EPERM);
    struct node *dir = other_dir(op, newparent);

    if (dir)
        ops->link(op, op->node, dir, newname);
}

static void on_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *fi)
{
    OP_FOR(parent, "create", name, create, -EPERM);
    ops->create(op, op->node, name, mode, fi);
}

static void on_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    OP_FOR(ino, "open", NULL, open, -EACCES);
    ops->open(op, op->node, fi);
}

static void on_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    OP_FOR(ino, "read", NULL, read, -EACCES);
    ops->read(op, op->node, size, off, fi);
}

static void on_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
    OP_FOR(ino, "write", NULL, write, -EACCES);
    ops->write(op, op->node, data, size, off, fi);
}

static void on_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    OP_FOR(ino, "close", NULL, flush, 0);
    ops->flush(op, op->node, fi);
}

static void on_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct node *n = node_find(fuse_req_userdata(req), ino);

    if (n)
        op_closed(n, fi->fh);
    OP_FOR(ino, "release", NULL, release, 0);
    ops->release(op, op->node, fi);
}

static void on_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    OP_FOR(ino, "fsync", NULL, fsync, 0);
    ops->fsync(op, op->node, datasync, fi);
}

static void on_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct op *op = op_new(req, ino, "opendir", NULL);

    if (!op)
        return;
    if (op->node->ops->opendir)
        op->node->ops->opendir(op, op->node, fi);
    else if (op->node->ops->readdir)
        op_reply_open(op, fi);
    else
        lacks(op, -ENOTDIR);
}

static void on_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi)
{
    OP_FOR(ino, "readdir", NULL, readdir, -ENOTDIR);
    ops->readdir(op, op->node, size, off, fi);
}

static void on_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct node *n = node_find(fuse_req_userdata(req), ino);

    if (n)
        op_closed(n, fi->fh);
    OP_FOR(ino, "releasedir", NULL, releasedir, 0);
    ops->releasedir(op, op->node, fi);
}

static void on_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct op *op = op_new(req, ino, "fsyncdir", NULL);

    if (op)
        op_reply_ok(op);
}

static void on_statfs(fuse_req_t req, fuse_ino_t ino)
{
    OP_FOR(ino, "statfs", NULL, statfs, -EACCES);
    ops->statfs(op, op->node);
}

static void on_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi,
                    struct fuse_pollhandle *ph)
{
    struct op *op = op_new(req, ino, "poll", NULL);

    if (op && op->node->ops->poll) {
        op->node->ops->poll(op, op->node, fi, ph);
        return;
    }
    if (ph)
        fuse_pollhandle_destroy(ph);
    if (op)
        op_reply_poll(op, POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM);
}

const struct fuse_lowlevel_ops dispatch_ops = {
    .init = on_init,
    .lookup = on_lookup,
    .forget = on_forget,
    .forget_multi = on_forget_multi,
    .getattr = on_getattr,
    .setattr = on_setattr,
    .readlink = on_readlink,
    .mknod = on_mknod,
    .mkdir = on_mkdir,
    .unlink = on_unlink,
    .rmdir = on_rmdir,
    .symlink = on_symlink,
    .rename = on_rename,
    .link = on_link,
    .create = on_create,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .flush = on_flush,
    .release = on_release,
    .fsync = on_fsync,
    .opendir = on_opendir,
    .readdir = on_readdir,
    .releasedir = on_releasedir,
    .fsyncdir = on_fsyncdir,
    .statfs = on_statfs,
    .poll = on_poll,
};

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct mount *mnt = poll->data;

    for (int i = 0; i < REQUESTS_A_TURN; i++) {
        int r = fuse_session_receive_buf(mnt->se, &mnt->request);

        if (r == -EINTR)
            continue;
        if (r == -EAGAIN && status == 0)
            return;
        /* 0: unmounted; anything else: the connection is dead. */
        if (r <= 0 || fuse_session_exited(mnt->se)) {
            dispatch_stop(mnt);
            mnt->unmounted = true;
            mount_end(mnt);
            return;
        }
        fuse_session_process_buf(mnt->se, &mnt->request);
    }
}

int dispatch_start(struct mount *mnt)
{
    int fd = fuse_session_fd(mnt->se), flags = fcntl(fd, F_GETFL);
    int r;

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return boxd_words(-errno, "cannot read /dev/fuse: %s", strerror(errno));
    r = uv_poll_init(&mnt->loop, &mnt->fuse_poll, fd);
    if (r < 0)
        return boxd_words(r, "cannot watch /dev/fuse: %s", uv_strerror(r));
    mnt->fuse_poll.data = mnt;
    r = uv_poll_start(&mnt->fuse_poll, UV_READABLE | UV_DISCONNECT, on_readable);
    if (r < 0)
        return boxd_words(r, "cannot watch /dev/fuse: %s", uv_strerror(r));
    mnt->polling = true;
    return 0;
}

void dispatch_stop(struct mount *mnt)
{
    if (!mnt->polling)
        return;
    mnt->polling = false;
    uv_poll_stop(&mnt->fuse_poll);
    uv_close((uv_handle_t *)&mnt->fuse_poll, NULL);
}
