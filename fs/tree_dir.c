/* fs/tree_dir.c: directories. One exec a listing, kept with the open directory so that offsets stay
 * true; rewinding asks again. */
#include "tree.h"

struct entry {
    char *name;
    uint64_t ino;
    mode_t type;
};

struct open_dir {
    struct entry *entries;
    size_t count, room;
    bool read; /* something was read since the listing was made */
};

static void clear(struct open_dir *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->entries[i].name);
    free(d->entries);
    *d = (struct open_dir){ 0 };
}

static int add(struct open_dir *d, const char *name, uint64_t ino, mode_t type)
{
    if (d->count == d->room) {
        size_t room = d->room ? d->room * 2 : 32;
        struct entry *entries = reallocarray(d->entries, room, sizeof *entries);

        if (!entries)
            return -ENOMEM;
        d->entries = entries;
        d->room = room;
    }
    d->entries[d->count] = (struct entry){ strdup(name), ino, type };
    if (!d->entries[d->count].name)
        return -ENOMEM;
    d->count++;
    return 0;
}

/* `.`, `..`, and in the machine's own directory ctl and exec. */
static int add_own(struct open_dir *d, struct node *n)
{
    bool root = tree_is_root(n);
    uint64_t ino = root ? ino_of("machine", n->machine->id) : tree_ino(n, &tree_of(n)->last);
    int r = add(d, ".", ino, S_IFDIR);

    if (r >= 0)
        r = add(d, "..", n->parent->id, S_IFDIR);
    if (r >= 0 && root && !n->mnt->opt.hide_special) {
        r = add(d, "ctl", special_ino(n, "ctl"), S_IFREG);
        if (r >= 0)
            r = add(d, "exec", special_ino(n, "exec"), S_IFREG);
    }
    return r;
}

static int fill(struct open_dir *d, struct node *n, const struct boxd_list_entry *entries,
                size_t count)
{
    int r;

    clear(d);
    r = add_own(d, n);
    for (size_t i = 0; r >= 0 && i < count; i++)
        if (!tree_is_special(n, entries[i].name))
            r = add(d, entries[i].name, tree_ino(n, &entries[i].st), entries[i].st.st_mode);
    return r;
}

static void reply_entries(struct op *op, struct open_dir *d, size_t size, off_t off)
{
    _cleanup_free_ char *data = malloc(size);
    struct dirbuf buf = { .req = op->req, .data = data, .size = size };

    if (!data) {
        op_fail(op, -ENOMEM);
        return;
    }
    d->read = true;
    for (size_t i = off < 0 ? 0 : (size_t)off; i < d->count; i++) {
        struct stat st = { .st_ino = d->entries[i].ino, .st_mode = d->entries[i].type };

        if (!dirbuf_add(&buf, d->entries[i].name, &st, (off_t)i + 1))
            break;
    }
    op_reply_buf(op, data, buf.len);
}

/* The listing came, for opendir (no data yet) or for a rewound readdir (flags: the reply's size).
 */
static void listed(struct job *j, int r, const struct boxd_list_entry *entries, size_t count)
{
    struct open_dir *d = j->data;
    struct op *op = j->op;
    bool opening = !d;
    size_t size = j->flags;

    if (r >= 0 && opening && !(d = calloc(1, sizeof *d)))
        r = -ENOMEM;
    if (r >= 0)
        r = fill(d, op->node, entries, count);
    if (r >= 0)
        ahead_keep(op->node, op->pid, j->changes, entries, count);
    if (r < 0) {
        if (opening && d) {
            clear(d);
            free(d);
        }
        job_fail(j, r);
    } else if (opening) {
        struct fuse_file_info fi = { .fh = (uintptr_t)d };

        op_reply_open(job_end(j), &fi);
    } else {
        reply_entries(job_end(j), d, size, 0);
    }
}

static void on_listed(void *arg, int r, const struct stat *self,
                      const struct boxd_list_entry *entries, size_t count, bool kernel)
{
    job_called(arg);
    listed(arg, r, entries, count);
}

static void run_list(struct job *j)
{
    if (tree_in_kernel_fs(j->path))
        listed(j, 0, NULL, 0);
    else
        job_call(j, boxd_script_list(j->op->mnt->client, j->op->node->machine->id, j->path,
                                     on_listed, j));
}

void tree_opendir(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct job *j = job_new(op, NULL, NULL, run_list);

    if (j)
        job_start(j);
}

void tree_readdir(struct op *op, struct node *n, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct open_dir *d = (struct open_dir *)(uintptr_t)fi->fh;
    struct job *j;

    if (off != 0 || !d->read) {
        reply_entries(op, d, size, off);
        return;
    }
    j = job_new(op, NULL, NULL, run_list);
    if (!j)
        return;
    j->data = d;
    j->flags = size < 1 ? 1 : size > UINT32_MAX ? UINT32_MAX : (unsigned)size;
    job_start(j);
}

void tree_releasedir(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct open_dir *d = (struct open_dir *)(uintptr_t)fi->fh;

    clear(d);
    free(d);
    op_reply_ok(op);
}
