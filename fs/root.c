/* fs/root.c: the mount's own directory: one directory a machine, ctl, and .boxd by name.
 * Nothing here waits for a machine, only for the service's list of them, and for that at most
 * FRESH_WAIT_MS. */
#include "fs.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#define FRESH_WAIT_MS 1000
/* Older than this means that nobody looked for a while: the list is asked for first. */
#define FRESH_AGE_MS 5000

/* ---- the list is fresh, or as fresh as it gets in a second ---- */

struct fresh {
    struct op *op;
    void (*then)(struct op *op, void *arg);
    void *arg;
    struct boxd_call *call;
    uv_timer_t timer;
};

static void fresh_closed(uv_handle_t *timer)
{
    free(timer->data);
}

/* Ends the wait; what is known then is what there is, unless nothing was ever known. */
static void fresh_end(struct fresh *f, int r)
{
    struct op *op = f->op;
    void (*then)(struct op * op, void *arg) = f->then;
    void *arg = f->arg;

    f->op = NULL;
    uv_close((uv_handle_t *)&f->timer, fresh_closed);
    op_wait(op, NULL, NULL);
    if (r < 0 && boxd_machines_touch(op->mnt->machines) == UINT64_MAX) {
        free(arg);
        op_fail(op, r);
        return;
    }
    then(op, arg);
}

static void fresh_done(void *arg, int r)
{
    struct fresh *f = arg;

    f->call = NULL;
    if (f->op)
        fresh_end(f, r);
}

static void fresh_late(uv_timer_t *timer)
{
    struct fresh *f = timer->data;
    struct boxd_call *call = steal_ptr(f->call);

    f->op->mnt->list_late_ms = now_ms();
    fresh_end(f, boxd_words(-ETIMEDOUT, "the service does not answer"));
    if (call)
        boxd_call_cancel(call);
}

static void fresh_cancel(struct op *op, void *arg)
{
    struct fresh *f = arg;
    struct boxd_call *call = steal_ptr(f->call);
    void *owned = f->arg;

    f->op = NULL;
    uv_close((uv_handle_t *)&f->timer, fresh_closed);
    if (call)
        boxd_call_cancel(call);
    free(owned);
    op_fail(op, -EINTR);
}

/* A service that was just waited for in vain is not waited for again by every look-up. */
static bool known_silent(const struct mount *mnt)
{
    return mnt->list_late_ms && now_ms() - mnt->list_late_ms < FRESH_AGE_MS;
}

/* Calls `then` with the machines known well enough. `arg` was allocated; `then` frees it, or it is
 * freed when the op fails before. */
static void with_fresh_list(struct op *op, void (*then)(struct op *op, void *arg), void *arg)
{
    struct fresh *f;

    if (boxd_machines_touch(op->mnt->machines) <= FRESH_AGE_MS || known_silent(op->mnt)) {
        then(op, arg);
        return;
    }
    f = calloc(1, sizeof *f);
    if (!f) {
        free(arg);
        op_fail(op, -ENOMEM);
        return;
    }
    *f = (struct fresh){ .op = op, .then = then, .arg = arg };
    uv_timer_init(&op->mnt->loop, &f->timer);
    f->timer.data = f;
    uv_timer_start(&f->timer, fresh_late, FRESH_WAIT_MS, 0);
    f->call = boxd_machines_refresh(op->mnt->machines, fresh_done, f);
    if (!f->call)
        fresh_end(f, -ENOMEM);
    else
        op_wait(op, fresh_cancel, f);
}

/* ---- attributes ---- */

static void directory_stat(struct mount *mnt, ino_t ino, mode_t mode, time_t when, struct stat *st)
{
    *st = (struct stat){ .st_ino = ino,
                         .st_mode = S_IFDIR | mode,
                         .st_nlink = 2,
                         .st_uid = mnt->uid,
                         .st_gid = mnt->gid,
                         .st_blksize = 4096 };
    st->st_atim.tv_sec = st->st_mtim.tv_sec = st->st_ctim.tv_sec = when;
}

void machine_stat(struct mount *mnt, const struct boxd_machine *m, struct stat *st)
{
    time_t since = m->info->created_at > 0 ? (time_t)m->info->created_at : mnt->since;

    directory_stat(mnt, ino_of("machine", m->id), 0755, since, st);
}

static void root_getattr(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct stat st;

    directory_stat(op->mnt, n->id, 0755, op->mnt->since, &st);
    op_reply_attr(op, &st);
}

/* chmod, chown, utimes of the mount point: programs that copy trees do it, nobody needs it. */
static void root_setattr(struct op *op, struct node *n, const struct stat *st, int to_set,
                         struct fuse_file_info *fi)
{
    op_fail(op, boxd_words(-EPERM, "the mount's own directory cannot be changed"));
}

static void root_statfs(struct op *op, struct node *n)
{
    struct statvfs st = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = 255 };

    op_reply_statfs(op, &st);
}

/* ---- look-up ---- */

static void reply_machine(struct op *op, struct boxd_machine *m)
{
    struct node *n = tree_root(op->mnt, m);
    struct stat st;

    if (!n) {
        op_fail(op, -ENOMEM);
        return;
    }
    machine_stat(op->mnt, m, &st);
    op_reply_entry(op, n, &st);
}

static void reply_special(struct op *op, struct node *n)
{
    struct stat st;

    if (!n) {
        op_fail(op, -ENOMEM);
        return;
    }
    special_stat(n, &st);
    op_reply_entry(op, n, &st);
}

static void lookup_machine(struct op *op, void *arg)
{
    _cleanup_free_ char *name = arg;
    struct boxd_machine *m = boxd_machines_find(op->mnt->machines, name);

    if (m)
        reply_machine(op, m);
    else
        op_fail(op, -ENOENT);
}

static void root_lookup(struct op *op, struct node *dir, const char *name)
{
    char *copy;

    if (!strcmp(name, "ctl")) {
        reply_special(op, ctl_node(op->mnt, dir, NULL));
        return;
    }
    if (!strcmp(name, ".boxd")) {
        reply_special(op, dotboxd_node(op->mnt, dir, NULL));
        return;
    }
    if (name[0] == '.') { /* no machine is shown under such a name: desktops ask for many */
        op_fail(op, -ENOENT);
        return;
    }
    copy = strdup(name);
    if (!copy)
        op_fail(op, -ENOMEM);
    else
        with_fresh_list(op, lookup_machine, copy);
}

/* ---- listing: what was there at opendir, so that offsets stay true ---- */

struct listing {
    size_t count, room;
    struct item {
        char *name;
        ino_t ino;
        mode_t type;
    } * items;
};

static void listing_free(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i].name);
    free(l->items);
    free(l);
}
DEFINE_CLEANUP(struct listing, listing_free);

static bool listing_add(struct listing *l, const char *name, ino_t ino, mode_t type)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 32;
        struct item *items = reallocarray(l->items, room, sizeof *items);

        if (!items)
            return false;
        l->items = items;
        l->room = room;
    }
    l->items[l->count] = (struct item){ .name = strdup(name), .ino = ino, .type = type };
    if (!l->items[l->count].name)
        return false;
    l->count++;
    return true;
}

struct listing_machines {
    struct listing *l;
    bool short_of_memory;
};

static bool list_machine(void *arg, struct boxd_machine *m)
{
    struct listing_machines *lm = arg;

    lm->short_of_memory = !listing_add(lm->l, m->shown, ino_of("machine", m->id), S_IFDIR);
    return !lm->short_of_memory;
}

static int listing_make(struct mount *mnt, struct listing **out)
{
    _cleanup_(cleanup_listing_freep) struct listing *l = calloc(1, sizeof *l);
    struct listing_machines lm = { .l = l };

    if (!l || !listing_add(l, ".", mnt->root->id, S_IFDIR) ||
        !listing_add(l, "..", mnt->root->id, S_IFDIR) ||
        !listing_add(l, "ctl", special_ino(mnt->root, "ctl"), S_IFREG))
        return -ENOMEM;
    boxd_machines_each(mnt->machines, list_machine, &lm);
    if (lm.short_of_memory)
        return -ENOMEM;
    *out = steal_ptr(l);
    return 0;
}

static void open_listing(struct op *op, void *arg)
{
    struct listing *l;
    int r = listing_make(op->mnt, &l);
    struct fuse_file_info fi = { 0 };

    if (r < 0) {
        op_fail(op, r);
        return;
    }
    fi.fh = (uintptr_t)l;
    op_reply_open(op, &fi);
}

static void root_opendir(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    with_fresh_list(op, open_listing, NULL);
}

static void root_releasedir(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    listing_free((struct listing *)(uintptr_t)fi->fh);
    op_reply_ok(op);
}

static void root_readdir(struct op *op, struct node *n, size_t size, off_t off,
                         struct fuse_file_info *fi)
{
    struct listing *l = (struct listing *)(uintptr_t)fi->fh;
    _cleanup_free_ char *data = malloc(size);
    struct dirbuf d = { .req = op->req, .data = data, .size = size };

    if (!data) {
        op_fail(op, -ENOMEM);
        return;
    }
    for (size_t i = off < 0 ? 0 : (size_t)off; i < l->count; i++) {
        struct stat st = { .st_ino = l->items[i].ino, .st_mode = l->items[i].type };

        if (!dirbuf_add(&d, l->items[i].name, &st, (off_t)i + 1))
            break;
    }
    op_reply_buf(op, data, d.len);
}

/* ---- changes ---- */

static void creation_cancel(struct op *op, void *arg)
{
    struct boxd_call *call = arg;

    boxd_call_cancel(call); /* created() runs with -ECANCELED */
}

static void created(void *arg, int r, struct boxd_machine *m)
{
    struct op *op = arg;

    if (r < 0)
        op_fail(op, r);
    else
        reply_machine(op, m);
}

static void root_mkdir(struct op *op, struct node *dir, const char *name, mode_t mode)
{
    struct boxd_create_options o = { .name = name };
    struct boxd_call *call;

    if (name[0] == '.') {
        op_fail(op, boxd_words(-EPERM, "a machine's name cannot start with '.': '%s'", name));
        return;
    }
    if (!utf8_valid(name, strlen(name))) {
        op_fail(op, boxd_words(-EINVAL, "a machine's name must be UTF-8 text"));
        return;
    }
    if (!strcmp(name, "ctl") || boxd_machines_find(op->mnt->machines, name)) {
        op_fail(op, -EEXIST);
        return;
    }
    call = boxd_machines_create(op->mnt->machines, &o, created, op);
    if (!call)
        op_fail(op, -ENOMEM);
    else
        op_wait(op, creation_cancel, call);
}

static void destroyed(void *arg, int r)
{
    struct op *op = arg;

    if (r < 0)
        op_fail(op, r);
    else
        op_reply_ok(op);
}

static void root_rmdir(struct op *op, struct node *dir, const char *name)
{
    struct boxd_machine *m = boxd_machines_find(op->mnt->machines, name);
    struct boxd_call *call;

    if (!m) {
        op_fail(op, strcmp(name, "ctl") ? -ENOENT : -ENOTDIR);
        return;
    }
    if (!op->mnt->opt.rmdir_deletes) {
        op_fail(op, boxd_words(-EPERM,
                               "'%s' is a machine, which rmdir destroys only with -o rmdir=delete "
                               "(or: echo destroy > %s/%s/ctl)",
                               name, op->mnt->opt.mount_point, name));
        return;
    }
    call = boxd_machines_destroy(op->mnt->machines, m, destroyed, op);
    if (!call)
        op_fail(op, -ENOMEM);
    else
        op_wait(op, creation_cancel, call);
}

static void root_rename(struct op *op, struct node *dir, const char *name, struct node *new_dir,
                        const char *new_name, unsigned flags)
{
    op_fail(op, boxd_words(-EPERM,
                           "'%s' cannot be renamed by its directory: a machine reboots to "
                           "get another name",
                           name));
}

static void root_refuse(struct op *op, const char *name)
{
    op_fail(op,
            boxd_words(-EPERM, "'%s' cannot be here: only machines are (mkdir makes one)", name));
}

static void root_create(struct op *op, struct node *dir, const char *name, mode_t mode,
                        struct fuse_file_info *fi)
{
    root_refuse(op, name);
}

static void root_mknod(struct op *op, struct node *dir, const char *name, mode_t mode, dev_t rdev)
{
    root_refuse(op, name);
}

static void root_symlink(struct op *op, struct node *dir, const char *name, const char *target)
{
    root_refuse(op, name);
}

static void root_unlink(struct op *op, struct node *dir, const char *name)
{
    op_fail(op, boxd_words(-EPERM, "'%s' belongs to the mount and cannot be removed", name));
}

static const struct node_ops root_ops = {
    .kind = "root",
    .lookup = root_lookup,
    .getattr = root_getattr,
    .setattr = root_setattr,
    .statfs = root_statfs,
    .opendir = root_opendir,
    .readdir = root_readdir,
    .releasedir = root_releasedir,
    .mkdir = root_mkdir,
    .rmdir = root_rmdir,
    .rename = root_rename,
    .create = root_create,
    .mknod = root_mknod,
    .symlink = root_symlink,
    .unlink = root_unlink,
};

struct node *root_new(struct mount *mnt)
{
    return node_new(mnt, &root_ops, NULL, "", sizeof(struct node));
}
