/* fs/dotboxd.c: `.boxd`: what the mount knows, as text files. Reachable by name, listed nowhere.
 * Nothing here asks the service or a machine.
 *
 * A file is made at each look-up, by a fresh node: its text is the one of that moment and has its
 * true size, and two callers may see two texts. `errors` and `events` are live: they grow under a
 * reader (`tail -f`). */
#include "fs.h"

#include "status.h"

#include <fcntl.h>
#include <sys/stat.h>

struct dotboxd_dir {
    struct node node;
    const struct entry *entries; /* ends with a NULL name */
    struct boxd_machine *m;      /* referenced; NULL: the account's */
};

struct text_node {
    struct node node;
    struct boxd_machine *m;        /* referenced; NULL: the account's */
    struct buf text;               /* unless live */
    const struct journal *journal; /* live; belongs to the machine or the mount */
    time_t when;
};

/* What a directory of this file holds: a text or a journal or a directory. */
struct entry {
    const char *name;
    int (*text)(struct op *op, struct boxd_machine *m, int which, struct buf *out);
    int which;
    struct journal *(*journal)(struct mount *mnt, struct boxd_machine *m);
    const struct entry *entries;
};

static int text_status(struct op *op, struct boxd_machine *m, int which, struct buf *out)
{
    return m ? status_machine(op->mnt, m, out) : status_account(op->mnt, out);
}

static int text_last(struct op *op, struct boxd_machine *m, int which, struct buf *out)
{
    const struct buf *b = exec_last(op->mnt, m, op->uid, op_session(op), which);

    if (!b)
        return -ENOENT;
    return buf_add(out, buf_str(b), b->len);
}

static const struct entry last_entries[] = {
    { .name = "script", .text = text_last, .which = 0 },
    { .name = "output", .text = text_last, .which = 1 },
    { .name = "exit", .text = text_last, .which = 2 },
    { 0 },
};

static const struct entry account_entries[] = {
    { .name = "status", .text = text_status },
    { .name = "errors", .journal = machine_errors },
    { .name = "events", .journal = machine_events },
    { 0 },
};

static const struct entry machine_entries[] = {
    { .name = "status", .text = text_status },
    { .name = "errors", .journal = machine_errors },
    { .name = "events", .journal = machine_events },
    { .name = "last", .entries = last_entries },
    { 0 },
};

/* ---- text files ---- */

static const struct buf *text_of(const struct text_node *t)
{
    return t->journal ? journal_text(t->journal) : &t->text;
}

static void text_stat(const struct text_node *t, struct stat *st)
{
    special_stat(&t->node, st);
    st->st_mode = S_IFREG | 0400;
    st->st_size = (off_t)text_of(t)->len;
    st->st_blocks = (st->st_size + 511) / 512;
    st->st_mtim.tv_sec = st->st_ctim.tv_sec = t->journal ? time(NULL) : t->when;
}

static void text_getattr(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct stat st;

    text_stat((struct text_node *)n, &st);
    op_reply_attr(op, &st);
}

static void text_open(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    if ((fi->flags & O_ACCMODE) != O_RDONLY)
        op_fail(op, boxd_words(-EACCES, "'%s' can only be read", n->name));
    else
        op_reply_open(op, fi);
}

static void text_read(struct op *op, struct node *n, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
    const struct buf *b = text_of((struct text_node *)n);
    size_t at = off < 0 || (size_t)off > b->len ? b->len : (size_t)off;

    op_reply_buf(op, buf_str(b) + at, size < b->len - at ? size : b->len - at);
}

static void text_free(struct node *n)
{
    struct text_node *t = (struct text_node *)n;

    buf_clear(&t->text);
    if (t->m)
        boxd_machine_unref(t->m);
}

static const struct node_ops text_ops = {
    .kind = "text",
    .owner_only = true,
    .missing = -EPERM,
    .getattr = text_getattr,
    .open = text_open,
    .read = text_read,
    .free = text_free,
};

/* ---- directories ---- */

static void directory_stat(const struct node *n, struct stat *st)
{
    st->st_mode = S_IFDIR | 0500;
    st->st_nlink = 2;
}

static void dir_getattr(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct stat st;

    special_stat(n, &st);
    op_reply_attr(op, &st);
}

static void dir_free(struct node *n)
{
    struct dotboxd_dir *d = (struct dotboxd_dir *)n;

    if (d->m)
        boxd_machine_unref(d->m);
}

static struct node *dir_node(struct node *parent, const char *name, const struct entry *entries,
                             struct boxd_machine *m);

static int lookup_text(struct op *op, struct dotboxd_dir *d, const struct entry *e)
{
    struct text_node *t = node_new(op->mnt, &text_ops, &d->node, e->name, sizeof *t);
    struct stat st;
    int r = 0;

    if (!t)
        return -ENOMEM;
    node_detach(&t->node);
    t->m = d->m ? boxd_machine_ref(d->m) : NULL;
    t->when = time(NULL);
    if (e->journal)
        t->journal = e->journal(op->mnt, d->m);
    else
        r = e->text(op, d->m, e->which, &t->text);
    if (r < 0) {
        node_unref(&t->node);
        return r;
    }
    text_stat(t, &st);
    op_reply_entry(op, &t->node, &st);
    return 0;
}

static int lookup_dir(struct op *op, struct dotboxd_dir *d, const struct entry *e)
{
    struct node *n = dir_node(&d->node, e->name, e->entries, d->m);
    struct stat st;

    if (!n)
        return -ENOMEM;
    special_stat(n, &st);
    op_reply_entry(op, n, &st);
    return 0;
}

static void dir_lookup(struct op *op, struct node *n, const char *name)
{
    struct dotboxd_dir *d = (struct dotboxd_dir *)n;
    int r = -ENOENT;

    for (const struct entry *e = d->entries; e->name && r == -ENOENT; e++)
        if (!strcmp(e->name, name)) {
            r = e->entries ? lookup_dir(op, d, e) : lookup_text(op, d, e);
            break;
        }
    if (r < 0)
        op_fail(op, r);
}

static void dir_readdir(struct op *op, struct node *n, size_t size, off_t off,
                        struct fuse_file_info *fi)
{
    const struct entry *entries = ((struct dotboxd_dir *)n)->entries;
    _cleanup_free_ char *data = malloc(size);
    struct dirbuf d = { .req = op->req, .data = data, .size = size };
    off_t i = 0;

    if (!data) {
        op_fail(op, -ENOMEM);
        return;
    }
    /* The offset is a place in the table: the table never changes. */
    for (const struct entry *e = entries; e->name; e++, i++) {
        struct stat st = { .st_ino = special_ino(n, e->name),
                           .st_mode = e->entries ? S_IFDIR : S_IFREG };

        if (i >= off && !dirbuf_add(&d, e->name, &st, i + 1))
            break;
    }
    op_reply_buf(op, data, d.len);
}

static const struct node_ops dir_ops = {
    .kind = ".boxd",
    .owner_only = true,
    .missing = -EPERM,
    .lookup = dir_lookup,
    .getattr = dir_getattr,
    .readdir = dir_readdir,
    .free = dir_free,
};

/* The known node or a new one, referenced for the caller. */
static struct node *dir_node(struct node *parent, const char *name, const struct entry *entries,
                             struct boxd_machine *m)
{
    struct node *known = node_child(parent, name);
    struct dotboxd_dir *d;

    if (known && known->ops == &dir_ops)
        return node_ref(known);
    d = node_new(parent->mnt, &dir_ops, parent, name, sizeof *d);
    if (!d)
        return NULL;
    d->entries = entries;
    d->m = m ? boxd_machine_ref(m) : NULL;
    return &d->node;
}

struct node *dotboxd_node(struct mount *mnt, struct node *dir, struct boxd_machine *m)
{
    return dir_node(dir, ".boxd", m ? machine_entries : account_entries, m);
}

/* ---- what all special files share ---- */

void special_stat(const struct node *n, struct stat *st)
{
    *st = (struct stat){ .st_ino = special_ino(n->parent, n->name),
                         .st_mode = S_IFREG | 0600,
                         .st_nlink = 1,
                         .st_uid = n->mnt->uid,
                         .st_gid = n->mnt->gid,
                         .st_blksize = 4096 };
    st->st_atim.tv_sec = st->st_mtim.tv_sec = st->st_ctim.tv_sec = n->mnt->since;
    if (n->ops == &dir_ops)
        directory_stat(n, st);
}
