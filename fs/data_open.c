/* fs/data_open.c: open, create, close. One exec an open: it checks the rights in the machine and
 * streams the content of a file that is read; the answer does not wait for the bytes. */
#include "data.h"

#include <fcntl.h>

/* What open(2) waits for. */
struct opening {
    struct job *job;
    struct loader *load;
};

static bool writes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY;
}

/* What the kernel gives back with the open file: FLUSH tells no flags. */
#define HANDLE_WRITES 2
static uint64_t open_handle(int flags)
{
    return 1 | (writes(flags) ? HANDLE_WRITES : 0);
}

/* Where sizes say nothing (0 in proc), reads must not be bounded by them. */
static void reply_open(struct job *j, struct data *d)
{
    struct fuse_file_info fi = { .fh = open_handle(j->fi.flags) };

    d->opens++;
    fi.direct_io = tree_in_kernel_fs(j->path) || (!writes(j->fi.flags) && d->known.st_size == 0);
    op_reply_open(job_end(j), &fi);
}

/* The machine says what the file is: join its open content, or begin it. */
static int join(struct opening *o, const struct stat *st)
{
    struct job *j = o->job;
    struct tree_node *n = tree_of(j->op->node);
    struct loader *l = o->load;
    struct data *d = n->data;
    bool idle;

    n->last = *st;
    ahead_seen(n, j->op->pid, j->changes);
    if (!d) {
        d = data_new(n, st);
        if (!d)
            return -ENOMEM;
    } else {
        idle = !d->load && !d->dirty && !d->store;
        if (j->fi.flags & O_TRUNC && !idle) {
            int r = data_truncate(d, 0);

            if (r < 0)
                return r;
        } else if (idle && !data_same_file(&d->known, st)) {
            data_reset(d, st);
        }
    }
    if (l->content && !d->load && !d->dirty && !d->store && d->have < d->base) {
        l->d = d;
        d->load = l;
    } else if (l->content && !d->load && d->base == 0 && !d->dirty && !d->store) {
        l->d = d; /* no size known: proc */
        d->load = l;
    }
    o->job = NULL;
    l->opening = NULL;
    reply_open(j, d);
    return 0;
}

static void on_opened(void *arg, const struct stat *st)
{
    struct loader *l = arg;
    struct opening *o = l->opening;

    l->busy = true;
    if (o) {
        int r = join(o, st);

        if (r < 0) {
            l->opening = NULL;
            job_fail(o->job, r);
        }
        free(o);
    } else if (l->d && !l->d->dirty && !l->d->store) {
        data_reset(l->d, st);
    }
    l->busy = false;
}

static void on_data(void *arg, const void *bytes, size_t n)
{
    struct loader *l = arg;

    l->busy = true;
    if (l->d)
        data_arrived(l->d, bytes, n);
    l->busy = false;
}

static void on_fetched(void *arg, int r)
{
    struct loader *l = arg;

    if (l->opening) {
        job_fail(l->opening->job, r);
        free(l->opening);
    } else if (l->d) {
        data_load_ended(l->d, r);
    }
    free(l);
}

const struct boxd_fetch_handlers loader_handlers = { .opened = on_opened,
                                                     .data = on_data,
                                                     .done = on_fetched };

static void opening_cancel(struct op *op, void *arg)
{
    struct opening *o = arg;

    boxd_fetch_cancel(o->load->fetch); /* on_fetched() answers with -ECANCELED */
}

static unsigned fetch_flags(const struct job *j, const struct data *d)
{
    int flags = j->fi.flags, mode = flags & O_ACCMODE;
    unsigned f = mode == O_RDONLY ? BOXD_FETCH_READ
                 : mode == O_RDWR ? BOXD_FETCH_READ | BOXD_FETCH_WRITE
                                  : BOXD_FETCH_WRITE;
    bool busy = d && (d->dirty || d->store || d->load);

    if (flags & O_TRUNC && writes(flags))
        return busy ? f : f | BOXD_FETCH_TRUNC;
    return mode == O_WRONLY || busy ? f : f | BOXD_FETCH_CONTENT;
}

static void run_open(struct job *j)
{
    struct data *d = tree_of(j->op->node)->data;
    struct opening *o = calloc(1, sizeof *o);
    struct loader *l = calloc(1, sizeof *l);
    unsigned flags = fetch_flags(j, d);
    bool known = d && data_loaded(d) && !d->dirty && !d->store;

    if (o && l) {
        *o = (struct opening){ .job = j, .load = l };
        *l = (struct loader){ .opening = o, .mnt = j->op->mnt };
        l->content = flags & BOXD_FETCH_CONTENT;
        l->fetch = boxd_script_fetch(j->op->mnt->client, j->op->node->machine->id, j->path, flags,
                                     j->op->mnt->opt.script_max, known ? &d->known : NULL,
                                     &loader_handlers, l);
        if (l->fetch) {
            op_wait(j->op, opening_cancel, o);
            return;
        }
    }
    free(o);
    free(l);
    job_fail(j, -ENOMEM);
}

void tree_open(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct job *j = job_new(op, NULL, NULL, run_open);

    if (!j)
        return;
    j->fi = *fi;
    j->change = fi->flags & O_TRUNC && writes(fi->flags);
    job_start(j);
}

/* ---- create ---- */

static void on_created(void *arg, int r, const struct stat *st)
{
    struct job *j = arg;
    struct node *n = NULL;
    struct fuse_file_info fi;
    struct stat out;

    job_called(j);
    if (r >= 0)
        n = tree_adopt(j->dir, j->name, st);
    if (r >= 0 && (!n || (!tree_of(n)->data && !data_new(tree_of(n), st))))
        r = -ENOMEM;
    else if (r >= 0) /* it came into being, or was emptied, while it is open here */
        data_seen(tree_of(n), st);
    if (r < 0) {
        if (n)
            node_unref(n);
        job_fail(j, r);
        return;
    }
    tree_of(n)->data->opens++;
    tree_stat(tree_of(n), st, &out);
    fi = j->fi;
    fi.fh = open_handle(fi.flags);
    op_reply_create(job_end(j), n, &out, &fi);
}

static void run_create(struct job *j)
{
    job_call(j, boxd_script_create(j->op->mnt->client, j->op->node->machine->id, j->path, j->mode,
                                   j->flags, on_created, j));
}

void tree_create(struct op *op, struct node *dir, const char *name, mode_t mode,
                 struct fuse_file_info *fi)
{
    struct job *j;

    if (tree_is_special(dir, name)) {
        op_fail(op, -EEXIST);
        return;
    }
    j = job_new(op, dir, name, run_create);
    if (!j)
        return;
    j->fi = *fi;
    j->change = true;
    j->mode = mode & ~op->umask;
    j->flags =
        (fi->flags & O_EXCL ? BOXD_CREATE_EXCL : 0) | (fi->flags & O_TRUNC ? BOXD_CREATE_TRUNC : 0);
    job_start(j);
}

/* ---- close ---- */

static void synced(struct op *op, int r, void *arg)
{
    if (r < 0)
        op_fail(op, r);
    else
        op_reply_ok(op);
}

void tree_flush(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct data *d = tree_of(n)->data;

    /* FLUSH also comes before the first WRITE of "echo x > f" (dup2): nothing is dirty then. */
    if (!d || !(fi->fh & HANDLE_WRITES))
        op_reply_ok(op);
    else
        data_sync(d, op, synced, NULL);
}

void tree_fsync(struct op *op, struct node *n, int datasync, struct fuse_file_info *fi)
{
    tree_flush(op, n, fi);
}

/* The last close was told what went wrong; what was never flushed (a killed writer) is sent now. */
void tree_release(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct data *d = tree_of(n)->data;

    if (d) {
        d->opens--;
        if (!d->opens && d->dirty && !d->refused && !d->error && !d->store &&
            !tree_of(n)->deleted && (data_loaded(d) || d->dirty_from >= d->remote)) {
            int r = data_store(d);

            if (r < 0)
                journal_add(machine_errors(op->mnt, n->machine), "close %s: %s", n->name,
                            boxd_error_words(r));
        }
        data_unuse(d);
    }
    op_reply_ok(op);
}
