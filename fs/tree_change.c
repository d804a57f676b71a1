/* fs/tree_change.c: names that come, go and move, and attributes. Each is one exec. */
#include "data.h"

#include <stdio.h>

static struct boxd_client *client(const struct job *j)
{
    return j->op->mnt->client;
}

static const char *machine(const struct job *j)
{
    return j->op->node->machine->id;
}

static struct job *change_new(struct op *op, struct node *dir, const char *name,
                              void (*run)(struct job *j))
{
    struct job *j = job_new(op, dir, name, run);

    if (j)
        j->change = true;
    return j;
}

/* ---- new names ---- */

static void on_made(void *arg, int r, const struct stat *st)
{
    struct job *j = arg;
    struct node *n = NULL;
    struct stat out;

    job_called(j);
    if (r >= 0) {
        n = tree_adopt(j->dir, j->name, st);
        r = n ? 0 : -ENOMEM;
    }
    if (r < 0) {
        job_fail(j, r);
        return;
    }
    tree_stat(tree_of(n), st, &out);
    op_reply_entry(job_end(j), n, &out);
}

/* A job for a new name, or NULL when the op was answered. */
static struct job *new_name(struct op *op, struct node *dir, const char *name,
                            void (*run)(struct job *j))
{
    if (!tree_is_special(dir, name))
        return change_new(op, dir, name, run);
    op_fail(op, -EEXIST);
    return NULL;
}

static void run_mkdir(struct job *j)
{
    job_call(j, boxd_script_mkdir(client(j), machine(j), j->path, j->mode, on_made, j));
}

void tree_mkdir(struct op *op, struct node *dir, const char *name, mode_t mode)
{
    struct job *j = new_name(op, dir, name, run_mkdir);

    if (!j)
        return;
    j->mode = mode & ~op->umask & 07777;
    job_start(j);
}

static void run_mknod(struct job *j)
{
    if (S_ISFIFO(j->mode))
        job_call(j,
                 boxd_script_mkfifo(client(j), machine(j), j->path, j->mode & 07777, on_made, j));
    else
        job_call(j, boxd_script_create(client(j), machine(j), j->path, j->mode & 07777,
                                       BOXD_CREATE_EXCL, on_made, j));
}

void tree_mknod(struct op *op, struct node *dir, const char *name, mode_t mode, dev_t rdev)
{
    struct job *j;

    if (!S_ISREG(mode) && !S_ISFIFO(mode)) {
        op_fail(op, boxd_words(-EPERM, "only files and FIFOs can be made in a machine"));
        return;
    }
    j = new_name(op, dir, name, run_mknod);
    if (!j)
        return;
    j->mode = (mode & S_IFMT) | (mode & ~op->umask & 07777);
    job_start(j);
}

static void run_symlink(struct job *j)
{
    job_call(j, boxd_script_symlink(client(j), machine(j), j->name2, j->path, on_made, j));
}

void tree_symlink(struct op *op, struct node *dir, const char *name, const char *target)
{
    struct job *j = new_name(op, dir, name, run_symlink);

    if (!j)
        return;
    j->name2 = strdup(tree_link_target(dir, target));
    if (j->name2)
        job_start(j);
    else
        job_fail(j, -ENOMEM);
}

static void run_link(struct job *j)
{
    job_call(j, boxd_script_link(client(j), machine(j), j->path2, j->path, on_made, j));
}

void tree_link(struct op *op, struct node *n, struct node *dir, const char *name)
{
    struct job *j;
    int r;

    if (tree_of(n)->deleted) {
        op_fail(op, -ENOENT);
        return;
    }
    j = new_name(op, dir, name, run_link);
    if (!j)
        return;
    r = tree_path(n, NULL, &j->path2);
    if (r < 0)
        job_fail(j, r);
    else
        job_start(j);
}

/* ---- names that go ---- */

static void on_gone(void *arg, int r)
{
    struct job *j = arg;
    struct node *child;

    job_called(j);
    if (r < 0) {
        job_fail(j, r);
        return;
    }
    child = node_child(j->dir, j->name);
    if (child)
        tree_gone(child);
    op_reply_ok(job_end(j));
}

/* The content of an open file must be here before its name goes: afterwards nothing can fetch it.
 */
static void hold_child(struct job *j, struct node *dir, const char *name, data_then *then)
{
    struct node *child = node_child(dir, name);
    struct data *d = child && child->ops == &tree_ops ? tree_of(child)->data : NULL;

    if (d)
        data_hold(d, j->op, then, j);
    else
        then(j->op, 0, j);
}

static void unlink_held(struct op *op, int r, void *arg)
{
    struct job *j = arg;

    if (r == -EINTR)
        job_fail(j, r);
    else /* content that cannot be had does not keep the name */
        job_call(j, boxd_script_unlink(client(j), machine(j), j->path, on_gone, j));
}

static void run_unlink(struct job *j)
{
    hold_child(j, j->dir, j->name, unlink_held);
}

static void run_rmdir(struct job *j)
{
    job_call(j, boxd_script_rmdir(client(j), machine(j), j->path, on_gone, j));
}

static void remove_name(struct op *op, struct node *dir, const char *name,
                        void (*run)(struct job *j))
{
    struct job *j;

    if (tree_is_special(dir, name)) {
        op_fail(op, boxd_words(-EPERM, "'%s' belongs to the mount and cannot be removed", name));
        return;
    }
    j = change_new(op, dir, name, run);
    if (j)
        job_start(j);
}

void tree_unlink(struct op *op, struct node *dir, const char *name)
{
    remove_name(op, dir, name, run_unlink);
}

void tree_rmdir(struct op *op, struct node *dir, const char *name)
{
    remove_name(op, dir, name, run_rmdir);
}

/* ---- names that move ---- */

static void on_renamed(void *arg, int r)
{
    struct job *j = arg;
    struct node *child, *replaced;

    job_called(j);
    if (r >= 0) {
        child = node_child(j->dir, j->name);
        replaced = node_child(j->dir2, j->name2);
        if (replaced && replaced != child)
            tree_gone(replaced);
        if (child && node_move(child, j->dir2, j->name2) < 0)
            node_detach(child); /* its next look-up makes another */
    }
    if (r < 0)
        job_fail(j, r);
    else
        op_reply_ok(job_end(j));
}

static void rename_held(struct op *op, int r, void *arg)
{
    struct job *j = arg;

    if (r == -EINTR)
        job_fail(j, r);
    else
        job_call(j, boxd_script_rename(client(j), machine(j), j->path, j->path2,
                                       j->flags & RENAME_NOREPLACE, on_renamed, j));
}

static void run_rename(struct job *j)
{
    hold_child(j, j->dir2, j->name2, rename_held);
}

void tree_rename(struct op *op, struct node *dir, const char *name, struct node *new_dir,
                 const char *new_name, unsigned flags)
{
    struct job *j;
    int r;

    if (flags & ~(unsigned)RENAME_NOREPLACE || new_dir->ops != &tree_ops) {
        op_fail(op, new_dir->ops != &tree_ops ? -EXDEV : -EINVAL);
        return;
    }
    if (tree_is_special(dir, name) || tree_is_special(new_dir, new_name)) {
        op_fail(op, boxd_words(-EPERM, "ctl, exec and .boxd belong to the mount"));
        return;
    }
    j = change_new(op, dir, name, run_rename);
    if (!j)
        return;
    j->flags = flags;
    j->dir2 = node_ref(new_dir);
    j->name2 = strdup(new_name);
    r = j->name2 ? tree_path(new_dir, new_name, &j->path2) : -ENOMEM;
    if (r < 0)
        job_fail(j, r);
    else
        job_start(j);
}

/* ---- attributes ---- */

static void on_set(void *arg, int r, const struct stat *st)
{
    struct job *j = arg;
    struct tree_node *n = tree_of(j->op->node);
    struct stat out;

    job_called(j);
    if (r < 0) {
        job_fail(j, r);
        return;
    }
    n->last = *st;
    if (n->data && !n->data->dirty && !n->data->store && !n->data->load && !n->data->stale &&
        (uint64_t)st->st_size == n->data->size)
        n->data->known = *st; /* our own change does not make the content stale */
    tree_stat(n, st, &out);
    op_reply_attr(job_end(j), &out);
}

/* Owners inward: the mounting user is the machine's user; nobody else can be named. */
static int map_owner(const struct job *j)
{
    const struct tree_root *root = tree_root_of(j->op->node);
    const struct mount *mnt = j->op->mnt;

    if ((j->set.set_uid && j->set.uid != mnt->uid) || (j->set.set_gid && j->set.gid != mnt->gid))
        return boxd_words(-EPERM, "files of a machine belong to its own users");
    return root->user_known ? 0 : -EIO;
}

static void set_now(struct job *j)
{
    const struct tree_root *root = tree_root_of(j->op->node);
    struct boxd_setattr set = j->set;

    set.uid = root->uid;
    set.gid = root->gid;
    job_call(j, boxd_script_setattr(client(j), machine(j), j->path, &set, on_set, j));
}

/* Content that is written later would change the times and the mode again, so it goes first. */
static void set_synced(struct op *op, int r, void *arg)
{
    struct job *j = arg;

    if (r < 0)
        job_fail(j, r);
    else
        set_now(j);
}

static void answer_deleted(struct job *j)
{
    struct tree_node *n = tree_of(j->op->node);
    struct stat out;

    if (j->set.set_mode)
        n->last.st_mode = (n->last.st_mode & S_IFMT) | (j->set.mode & 07777);
    tree_stat(n, &n->last, &out);
    op_reply_attr(job_end(j), &out);
}

static void run_setattr(struct job *j)
{
    struct data *d = tree_of(j->op->node)->data;
    int r = map_owner(j);

    /* A new size of a file that is open here: the content here has it, close(2) sends it. By path,
     * nobody may close it: then it is sent at once. */
    if (r >= 0 && j->set.set_size && d) {
        r = data_truncate(d, j->set.size);
        j->set.set_size = false;
    }
    if (r < 0)
        job_fail(j, r);
    else if (tree_of(j->op->node)->deleted)
        answer_deleted(j);
    else if (d && !(j->flags & FUSE_SET_ATTR_SIZE && j->fi.fh))
        data_sync(d, j->op, set_synced, j);
    else
        set_now(j);
}

void tree_setattr(struct op *op, struct node *n, const struct stat *st, int to_set,
                  struct fuse_file_info *fi)
{
    struct job *j;

    if (tree_is_root(n)) {
        op_fail(op, boxd_words(-EPERM, "a machine's own directory cannot be changed"));
        return;
    }
    j = change_new(op, NULL, NULL, run_setattr);
    if (!j)
        return;
    j->flags = (unsigned)to_set;
    if (fi)
        j->fi = *fi;
    j->set = (struct boxd_setattr){
        .set_mode = to_set & FUSE_SET_ATTR_MODE,
        .set_uid = to_set & FUSE_SET_ATTR_UID,
        .set_gid = to_set & FUSE_SET_ATTR_GID,
        .set_size = to_set & FUSE_SET_ATTR_SIZE,
        .set_atime = to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW),
        .set_mtime = to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW),
        .atime_now = to_set & FUSE_SET_ATTR_ATIME_NOW,
        .mtime_now = to_set & FUSE_SET_ATTR_MTIME_NOW,
        .mode = st->st_mode & 07777,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .size = (uint64_t)st->st_size,
        .atime = st->st_atim,
        .mtime = st->st_mtim,
    };
    job_start(j);
}
