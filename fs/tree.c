/* fs/tree.c: nodes of a machine's tree: paths, identity, attributes, look-up. One look-up is one
 * exec; nothing is remembered between two. */
#include "data.h"

#include <sys/statvfs.h>

#define NOBODY 65534

struct tree_root *tree_root_of(struct node *n)
{
    while (!tree_is_root(n))
        n = n->parent;
    return (struct tree_root *)(void *)n;
}

/* Puts "/part" in front of what stands at text + *at. */
static void prepend(char *text, size_t *at, const char *part)
{
    size_t n = strlen(part);

    *at -= n + 1;
    text[*at] = '/';
    memcpy(text + *at + 1, part, n);
}

int tree_path(const struct node *dir, const char *name, char **path)
{
    size_t len = name ? strlen(name) + 1 : 0, at;
    char *text;

    if (name && len - 1 > BOXD_NAME_MAX)
        return -ENAMETOOLONG;
    for (const struct node *n = dir; !tree_is_root(n); n = n->parent)
        len += strlen(n->name) + 1;
    if (len > BOXD_PATH_MAX)
        return -ENAMETOOLONG;
    text = strdup("/");
    if (text && len) {
        free(text);
        text = malloc(len + 1);
    }
    if (!text)
        return -ENOMEM;
    if (len)
        text[len] = '\0';
    at = len;
    if (name)
        prepend(text, &at, name);
    for (const struct node *n = dir; !tree_is_root(n); n = n->parent)
        prepend(text, &at, n->name);
    *path = text;
    return 0;
}

bool tree_in_kernel_fs(const char *path)
{
    static const char *const tops[] = { "/proc", "/sys", "/dev" };

    for (size_t i = 0; i < ARRAY_LEN(tops); i++) {
        size_t n = strlen(tops[i]);

        if (!strncmp(path, tops[i], n) && (path[n] == '/' || !path[n]))
            return true;
    }
    return false;
}

bool tree_is_special(const struct node *dir, const char *name)
{
    return tree_is_root(dir) &&
           (!strcmp(name, "ctl") || !strcmp(name, "exec") || !strcmp(name, ".boxd"));
}

/* Numbers of two machines or two file systems must not collide in one mount: a tag of both is
 * folded into the top bits; the low ones stay, which is what git compares. */
uint64_t tree_ino(const struct node *n, const struct stat *st)
{
    uint64_t tag = UINT64_C(0xcbf29ce484222325), ino;

    for (const char *p = n->machine->id; *p; p++)
        tag = (tag ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    tag = (tag ^ st->st_dev) * UINT64_C(0x9e3779b97f4a7c15);
    ino = st->st_ino ^ (tag >> 48) << 48;
    return ino ? ino : 1;
}

/* The machine's user shows as the mounting user; an id that happens to equal that one, as nobody.
 */
static unsigned map_id(unsigned id, bool known, unsigned theirs, unsigned ours)
{
    if (known && id == theirs)
        return ours;
    return id == ours ? NOBODY : id;
}

void tree_stat(struct tree_node *n, const struct stat *st, struct stat *out)
{
    const struct tree_root *root = tree_root_of(&n->node);

    *out = *st;
    out->st_ino = tree_ino(&n->node, st);
    out->st_uid = map_id(st->st_uid, root->user_known, root->uid, n->node.mnt->uid);
    out->st_gid = map_id(st->st_gid, root->user_known, root->gid, n->node.mnt->gid);
    if (n->data)
        out->st_size = data_size(n->data, st->st_size);
}

struct node *tree_adopt(struct node *dir, const char *name, const struct stat *st)
{
    struct node *known = node_child(dir, name);
    struct tree_node *n;

    if (known && known->ops == &tree_ops) {
        n = tree_of(known);
        /* An overlay gives a file another number when it is first written: content that is open
         * here keeps its node. */
        if ((n->last.st_mode & S_IFMT) == (st->st_mode & S_IFMT) &&
            (n->data || (n->last.st_ino == st->st_ino && n->last.st_dev == st->st_dev))) {
            n->last = *st;
            return node_ref(known);
        }
        node_detach(known);
    }
    n = node_new(dir->mnt, &tree_ops, dir, name, sizeof *n);
    if (!n)
        return NULL;
    n->last = *st;
    return &n->node;
}

void tree_gone(struct node *n)
{
    struct tree_node *t = tree_of(n);

    if (n->ops != &tree_ops)
        return;
    t->deleted = true;
    t->last.st_nlink = 0;
    node_detach(n);
}

/* ---- look-up and attributes ---- */

static void on_looked_up(void *arg, int r, const struct stat *st)
{
    struct job *j = arg;
    struct node *n;
    struct stat out;

    job_called(j);
    if (r < 0) {
        job_fail(j, r);
        return;
    }
    n = tree_adopt(j->dir, j->name, st);
    if (!n) {
        job_fail(j, -ENOMEM);
        return;
    }
    ahead_seen(tree_of(n), j->op->pid, j->changes);
    tree_stat(tree_of(n), st, &out);
    op_reply_entry(job_end(j), n, &out);
}

/* Answers without asking the machine, when it has just said it. */
static bool lookup_ahead(struct op *op, struct node *dir, const char *name)
{
    struct stat st, out;
    struct node *n;
    bool first;

    if (!ahead_lookup(dir, name, op->pid, &st, &first))
        return false;
    n = tree_adopt(dir, name, &st);
    if (!n) {
        op_fail(op, -ENOMEM);
        return true;
    }
    if (first)
        ahead_seen(tree_of(n), op->pid, fsmachine(n->machine)->changes);
    tree_stat(tree_of(n), &st, &out);
    op_reply_entry(op, n, &out);
    return true;
}

static void run_lookup(struct job *j)
{
    job_call(j, boxd_script_stat(j->op->mnt->client, j->op->node->machine->id, j->path,
                                 on_looked_up, j));
}

static void lookup_special(struct op *op, struct node *dir, const char *name)
{
    struct node *n = !strcmp(name, "ctl")    ? ctl_node(op->mnt, dir, dir->machine)
                     : !strcmp(name, "exec") ? exec_node(op->mnt, dir, dir->machine)
                                             : dotboxd_node(op->mnt, dir, dir->machine);
    struct stat st;

    if (!n) {
        op_fail(op, -ENOMEM);
        return;
    }
    special_stat(n, &st);
    op_reply_entry(op, n, &st);
}

static void tree_lookup(struct op *op, struct node *dir, const char *name)
{
    struct job *j;

    if (tree_is_special(dir, name)) {
        lookup_special(op, dir, name);
        return;
    }
    if (lookup_ahead(op, dir, name))
        return;
    j = job_new(op, dir, name, run_lookup);
    if (j)
        job_start(j);
}

static void on_attr(void *arg, int r, const struct stat *st)
{
    struct job *j = arg;
    struct tree_node *n = tree_of(j->op->node);
    struct stat out;

    job_called(j);
    if (r == -ENOENT && n->data) { /* the machine deleted what is open here */
        r = 0;
        st = &n->last;
    }
    if (r < 0) {
        job_fail(j, r);
        return;
    }
    n->last = *st;
    data_seen(n, st);
    tree_stat(n, st, &out);
    op_reply_attr(job_end(j), &out);
}

static void run_getattr(struct job *j)
{
    job_call(j,
             boxd_script_stat(j->op->mnt->client, j->op->node->machine->id, j->path, on_attr, j));
}

static void tree_getattr(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct stat st;
    struct job *j;

    if (tree_is_root(n)) {
        if (n->machine->gone) {
            op_fail(op, -ESTALE);
            return;
        }
        machine_stat(op->mnt, n->machine, &st);
        op_reply_attr(op, &st);
        return;
    }
    if (tree_of(n)->deleted) {
        tree_stat(tree_of(n), &tree_of(n)->last, &st);
        op_reply_attr(op, &st);
        return;
    }
    if (ahead_attr(tree_of(n), op->pid)) {
        tree_stat(tree_of(n), &tree_of(n)->last, &st);
        op_reply_attr(op, &st);
        return;
    }
    j = job_new(op, NULL, NULL, run_getattr);
    if (j)
        job_start(j);
}

static void on_statfs(void *arg, int r, const struct statvfs *st)
{
    struct job *j = arg;

    job_called(j);
    if (r < 0)
        job_fail(j, r);
    else
        op_reply_statfs(job_end(j), st);
}

static void run_statfs(struct job *j)
{
    job_call(
        j, boxd_script_statfs(j->op->mnt->client, j->op->node->machine->id, j->path, on_statfs, j));
}

/* df must always return: a machine that is not there is empty. */
static void tree_statfs(struct op *op, struct node *n)
{
    struct statvfs none = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = BOXD_NAME_MAX };
    struct job *j;

    if (n->machine->gone || !n->machine->ready) {
        op_reply_statfs(op, &none);
        return;
    }
    j = job_new(op, NULL, NULL, run_statfs);
    if (j)
        job_start(j);
}

static void tree_free(struct node *n)
{
    struct tree_node *t = tree_of(n);

    if (t->data)
        data_abandon(t->data);
    if (!t->is_root)
        return;
    ahead_clear((struct tree_root *)t);
    if (fsmachine(n->machine)->root == n)
        fsmachine(n->machine)->root = NULL;
    boxd_machine_unref(n->machine);
}

const struct node_ops tree_ops = {
    .kind = "tree",
    .lookup = tree_lookup,
    .getattr = tree_getattr,
    .setattr = tree_setattr,
    .readlink = tree_readlink,
    .mkdir = tree_mkdir,
    .mknod = tree_mknod,
    .symlink = tree_symlink,
    .link = tree_link,
    .unlink = tree_unlink,
    .rmdir = tree_rmdir,
    .rename = tree_rename,
    .create = tree_create,
    .open = tree_open,
    .read = tree_read,
    .write = tree_write,
    .flush = tree_flush,
    .release = tree_release,
    .fsync = tree_fsync,
    .opendir = tree_opendir,
    .readdir = tree_readdir,
    .releasedir = tree_releasedir,
    .statfs = tree_statfs,
    .free = tree_free,
};

struct node *tree_root(struct mount *mnt, struct boxd_machine *m)
{
    struct fsmachine *fm = fsmachine(m);
    struct node *same_name;
    struct tree_root *root;

    if (fm->root)
        return node_ref(fm->root);
    /* another machine had the name before */
    same_name = node_child(mnt->root, m->shown);
    if (same_name)
        node_detach(same_name);
    root = node_new(mnt, &tree_ops, mnt->root, m->shown, sizeof *root);
    if (!root)
        return NULL;
    root->tree.node.machine = boxd_machine_ref(m);
    root->tree.is_root = true;
    list_init(&root->ahead);
    root->tree.last.st_mode = S_IFDIR;
    fm->root = &root->tree.node;
    return fm->root;
}
