/* fs/data.c: the content of open files: what is here, what must come first, who waits for it. */
#include "data.h"

#include "deadline.h"

#include <fcntl.h>

/* An op that waits for content (a read), for all of it (hold), or for the machine to have it. */
struct wait {
    struct list link; /* in data->waits */
    struct data *d;
    struct op *op; /* NULL: of a data_push() */
    /* Whether it may go on; looked at again at each data_wake(). */
    bool (*ready)(struct wait *w, int *r);
    void (*then)(struct op *op, int r, void *arg);
    void *arg;
    uint64_t off, size;
};

static void wait_end(struct wait *w, int r)
{
    struct op *op = w->op;
    data_then *then = w->then;
    void *arg = w->arg;

    list_remove(&w->link);
    if (op)
        op_wait(op, NULL, NULL);
    free(w);
    then(op, r, arg);
}

off_t data_size(const struct data *d, off_t otherwise)
{
    return d->dirty || d->store || d->n->deleted ? (off_t)d->size : otherwise;
}

bool data_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

void data_seen(struct tree_node *n, const struct stat *st)
{
    struct data *d = n->data;

    if (d && !d->dirty && !d->store && !d->load && !n->deleted && !data_same_file(&d->known, st))
        d->stale = true;
}

int data_temporary(struct data *d)
{
    static const char *const places[] = { NULL, "/var/tmp", "/tmp" };
    int r = -ENOENT;

    if (d->fd >= 0)
        return 0;
    for (size_t i = 0; d->fd < 0 && i < ARRAY_LEN(places); i++) {
        const char *dir = i ? places[i] : getenv("TMPDIR");
        _cleanup_free_ char *name = dir ? strf("%s/boxdfs-XXXXXX", dir) : NULL;

        if (!dir)
            continue;
        d->fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
        if (d->fd < 0 && name && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
            d->fd = mkostemp(name, O_CLOEXEC);
            if (d->fd >= 0)
                unlink(name);
        }
        r = -errno;
    }
    return d->fd >= 0 ? 0
                      : boxd_words(r, "cannot make a temporary file in $TMPDIR or /var/tmp: %s",
                                   strerror(-r));
}

struct data *data_new(struct tree_node *n, const struct stat *st)
{
    struct data *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->n = n;
    list_add(&n->node.mnt->data, &d->link);
    d->fd = -1;
    list_init(&d->waits);
    data_reset(d, st);
    node_ref(&n->node);
    n->data = d;
    return d;
}

void data_reset(struct data *d, const struct stat *st)
{
    d->known = *st;
    d->size = d->remote = d->base = (uint64_t)st->st_size;
    d->have = 0;
    d->stale = d->dirty = d->refused = false;
    d->load_error = 0;
    /* old bytes must not show in a gap that is made later */
    d->fd = close_keep_errno(d->fd);
}

void data_unuse(struct data *d)
{
    struct tree_node *n = d->n;

    if (d->opens || d->store || !list_empty(&d->waits))
        return;
    n->data = NULL;
    list_remove(&d->link);
    if (d->load) {
        d->load->d = NULL;
        if (!d->load->busy)
            boxd_fetch_cancel(d->load->fetch);
    }
    if (d->fd >= 0)
        close(d->fd);
    free(d);
    node_unref(&n->node);
}

void data_abandon(struct data *d)
{
    d->opens++;                    /* nobody frees it from here on but we */
    while (!list_empty(&d->waits)) /* the ops were answered when the mount ended: of data_push() */
        wait_end(container_of(d->waits.next, struct wait, link), -ECANCELED);
    if (d->store)
        boxd_store_cancel(d->store);
    if (d->load)
        d->load->d = NULL;
    list_remove(&d->link);
    if (d->fd >= 0)
        close(d->fd);
    free(d);
}

/* ---- content from the machine ---- */

bool data_loaded(const struct data *d)
{
    return d->have >= d->base && !d->load && !d->stale;
}

void data_arrived(struct data *d, const void *bytes, size_t n)
{
    const char *p = bytes;
    int r = d->load_error < 0 ? d->load_error : data_temporary(d);

    /* Behind what was here at the open a file may have grown; not so when it was changed here. */
    if (d->dirty || d->store) {
        uint64_t room = d->base > d->have ? d->base - d->have : 0;

        if (n > room)
            n = (size_t)room;
    }
    while (r >= 0 && n) {
        ssize_t put = pwrite(d->fd, p, n, (off_t)d->have);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0) {
            r = boxd_words(-errno, "cannot write a temporary file: %s", strerror(errno));
            break;
        }
        p += put;
        n -= (size_t)put;
        d->have += (uint64_t)put;
    }
    d->load_error = r < 0 ? r : 0;
    if (d->have > d->base)
        d->base = d->remote = d->have;
    if (d->size < d->have && !d->dirty && !d->store)
        d->size = d->have;
    data_wake(d);
}

void data_load_ended(struct data *d, int r)
{
    d->load = NULL;
    if (r < 0 && d->load_error == 0)
        d->load_error = r;
    if (d->load_error == 0 && d->have < d->base) { /* it shrank while it was read */
        d->base = d->have;
        if (!d->dirty && !d->store)
            d->size = d->remote = d->have;
    }
    data_wake(d);
    data_unuse(d);
}

int data_load(struct data *d)
{
    struct mount *mnt = d->n->node.mnt;
    _cleanup_free_ char *path = NULL;
    struct loader *l;
    int r;

    if (d->load)
        return 0;
    r = tree_path(&d->n->node, NULL, &path);
    if (r < 0)
        return r;
    l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    *l = (struct loader){ .d = d, .mnt = mnt, .content = true };
    d->load_error = 0;
    l->fetch = boxd_script_fetch(mnt->client, d->n->node.machine->id, path,
                                 BOXD_FETCH_READ | BOXD_FETCH_CONTENT, mnt->opt.script_max, NULL,
                                 &loader_handlers, l);
    if (!l->fetch) {
        free(l);
        return -ENOMEM;
    }
    d->load = l;
    return 0;
}

/* ---- waits ---- */

void data_moved(struct data *d)
{
    list_each(it, &d->waits)
    {
        struct wait *w = container_of(it, struct wait, link);

        if (w->op)
            op_deadline(w->op);
    }
}

static void wait_cancel(struct op *op, void *arg)
{
    struct wait *w = arg;
    struct data *d = w->d;

    wait_end(w, -EINTR);
    data_unuse(d);
}

/* One wait at a time, from the start again: what runs may add and end others. The op that runs
 * keeps its file open, so the data lives. */
void data_wake(struct data *d)
{
    bool again = true;

    data_moved(d);
    d->opens++; /* nobody may free it in between */
    while (again) {
        again = false;
        list_each(it, &d->waits)
        {
            struct wait *w = container_of(it, struct wait, link);
            int r = 0;

            if (!w->ready(w, &r))
                continue;
            wait_end(w, r);
            again = true;
            break;
        }
    }
    d->opens--;
}

static void wait_for(struct data *d, struct op *op, struct wait want)
{
    struct wait *w;
    int r = 0;

    want.d = d;
    want.op = op;
    d->opens++;
    if (want.ready(&want, &r)) {
        want.then(op, r, want.arg);
        d->opens--;
        data_unuse(d);
        return;
    }
    d->opens--;
    w = malloc(sizeof *w);
    if (!w) {
        want.then(op, -ENOMEM, want.arg);
        return;
    }
    *w = want;
    list_init(&w->link);
    list_add(&d->waits, &w->link);
    if (op) {
        op_deadline(op);
        op_wait(op, wait_cancel, w);
    }
}

/* All content is here, or why it cannot be. */
static bool ready_whole(struct wait *w, int *r)
{
    struct data *d = w->d;

    if (data_loaded(d))
        return true;
    if (d->load)
        return false;
    if (d->load_error < 0) {
        *r = d->load_error;
        d->load_error = 0; /* the next one may try again */
        return true;
    }
    if (d->stale) {
        struct stat now = d->n->last;

        data_reset(d, &now);
    }
    if (!d->base)
        return true;
    *r = data_load(d);
    return *r < 0;
}

static bool ready_range(struct wait *w, int *r)
{
    struct data *d = w->d;

    if (d->stale && !d->dirty && !d->store)
        return ready_whole(w, r);
    /* bytes that were written here behind all of the machine's need none of those */
    if (w->off >= d->base && w->off < d->size)
        return true;
    if (w->off + w->size <= d->have)
        return true;
    return ready_whole(w, r);
}

static bool ready_synced(struct wait *w, int *r)
{
    struct data *d = w->d;

    if (d->store)
        return false;
    if (!d->dirty || d->n->deleted)
        return true;
    if (d->refused) {
        *r = boxd_words(-EFBIG,
                        "nothing was sent: a file may have %" PRIu64 " bytes (-o script_max)",
                        d->n->node.mnt->opt.script_max);
        return true;
    }
    if (w->off) { /* a store was tried for this wait */
        *r = d->error;
        if (d->error < 0 || ++w->size > 2)
            return true;
    }
    if (d->dirty_from < d->remote && !data_loaded(d) && !ready_whole(w, r))
        return false;
    if (*r < 0)
        return true;
    w->off = 1;
    *r = data_store(d);
    return *r < 0;
}

void data_sync(struct data *d, struct op *op, data_then *then, void *arg)
{
    wait_for(d, op, (struct wait){ .ready = ready_synced, .then = then, .arg = arg });
}

void data_hold(struct data *d, struct op *op, data_then *then, void *arg)
{
    wait_for(d, op, (struct wait){ .ready = ready_whole, .then = then, .arg = arg });
}

/* ---- reads and writes ---- */

struct range {
    struct data *d;
    uint64_t off;
    size_t size;
    char *bytes; /* of a write */
    bool append;
};

static void read_then(struct op *op, int r, void *arg)
{
    _cleanup_free_ struct range *g = arg;
    struct data *d = g->d;
    uint64_t end = g->off + g->size < d->size ? g->off + g->size : d->size;

    if (r < 0)
        op_fail(op, r);
    else if (g->off >= end || d->fd < 0)
        op_reply_buf(op, NULL, 0);
    else
        op_reply_fd(op, d->fd, (off_t)g->off, (size_t)(end - g->off));
}

void tree_read(struct op *op, struct node *n, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct data *d = tree_of(n)->data;
    struct range *g = malloc(sizeof *g);

    if (!g || !d || off < 0) {
        free(g);
        op_fail(op, !g ? -ENOMEM : -EINVAL);
        return;
    }
    *g = (struct range){ .d = d, .off = (uint64_t)off, .size = size };
    wait_for(d, op,
             (struct wait){
                 .ready = ready_range, .then = read_then, .arg = g, .off = g->off, .size = size });
}

static void mark_dirty(struct data *d, uint64_t from)
{
    if (!d->dirty || from < d->dirty_from)
        d->dirty_from = from;
    d->dirty = true;
    d->error = 0;
}

int data_truncate(struct data *d, uint64_t size)
{
    int r;

    if (size > d->n->node.mnt->opt.script_max)
        return boxd_words(-EFBIG, "larger than script_max");
    r = data_temporary(d);
    if (r < 0)
        return r;
    if (ftruncate(d->fd, (off_t)size) < 0)
        return -errno;
    /* what comes from the machine behind the new end is not wanted any more */
    if (d->base > size)
        d->base = size;
    if (d->have > d->base)
        d->have = d->base;
    d->size = size;
    d->stale = d->refused = false;
    mark_dirty(d, size < d->remote ? 0 : d->remote);
    return 0;
}

static int put(struct data *d, const char *bytes, size_t n, uint64_t off)
{
    int r = data_temporary(d);

    for (size_t at = 0; r >= 0 && at < n;) {
        ssize_t w = pwrite(d->fd, bytes + at, n - at, (off_t)(off + at));

        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            r = boxd_words(-errno, "cannot write a temporary file: %s", strerror(errno));
        else
            at += (size_t)w;
    }
    if (r < 0)
        return r;
    if (off == 0 && n >= d->base) /* nothing of the machine's is left to see */
        d->base = d->have = 0;
    mark_dirty(d, off < d->size ? off : d->size);
    if (off + n > d->size)
        d->size = off + n;
    d->stale = false;
    return 0;
}

static void write_then(struct op *op, int r, void *arg)
{
    struct range *g = arg;
    size_t size = g->size;

    if (r >= 0)
        r = put(g->d, g->bytes, size, g->append ? g->d->size : g->off);
    free(g->bytes);
    free(g);
    if (r < 0)
        op_fail(op, r);
    else
        op_reply_written(op, size);
}

/* Whether a write needs what the machine has: it lands among bytes that are not here yet. */
static bool needs_content(const struct data *d, uint64_t off, size_t size)
{
    if (data_loaded(d) || off >= d->base)
        return d->stale;
    return !(off == 0 && size >= d->base) && (d->load || off + size > d->have || d->have < d->base);
}

void tree_write(struct op *op, struct node *n, const void *data, size_t size, off_t off,
                struct fuse_file_info *fi)
{
    struct data *d = tree_of(n)->data;
    uint64_t at = off < 0 ? 0 : (uint64_t)off;
    struct range *g;
    int r;

    if (fi->flags & O_APPEND && d)
        at = d->size;
    if (!d || at > op->mnt->opt.script_max || size > op->mnt->opt.script_max - at) {
        if (d) { /* what was written before must not be left in the machine as if it were whole */
            d->refused = true;
            mark_dirty(d, d->size);
        }
        op_fail(op, !d ? -EBADF
                       : boxd_words(-EFBIG, "a file may have %" PRIu64 " bytes (-o script_max)",
                                    op->mnt->opt.script_max));
        return;
    }
    if (!needs_content(d, at, size)) {
        r = put(d, data, size, at);
        if (r < 0)
            op_fail(op, r);
        else
            op_reply_written(op, size);
        return;
    }
    g = malloc(sizeof *g);
    if (g && !(g->bytes = malloc(size ? size : 1))) {
        free(g);
        g = NULL;
    }
    if (!g) {
        op_fail(op, -ENOMEM);
        return;
    }
    g->d = d;
    g->off = at;
    g->size = size;
    g->append = fi->flags & O_APPEND;
    memcpy(g->bytes, data, size);
    data_hold(d, op, write_then, g);
}
