/* fs/tree_link.c: symbolic links. The kernel that follows them is the client's, so a target must
 * never lead out of the machine's directory; see SECURITY.md. */
#include "tree.h"

#include <limits.h>

/* Whether the kernel may follow `target` from a directory `depth` names below the machine's `/`:
 * relative, `..` only in front, and not above the machine's `/`. */
static bool safe(const char *target, unsigned depth)
{
    bool named = false;

    if (*target == '/')
        return false;
    for (const char *p = target; *p;) {
        size_t n = strcspn(p, "/");

        if (n == 2 && !memcmp(p, "..", 2)) {
            if (named || !depth)
                return false;
            depth--;
        } else if (n && !(n == 1 && *p == '.')) {
            named = true;
        }
        p += n;
        p += strspn(p, "/");
    }
    return true;
}

static int prefix(const struct node *n, struct buf *out)
{
    const struct node *root = &tree_root_of((struct node *)n)->tree.node;
    const char *mnt = n->mnt->opt.mount_point;

    return buf_addf(out, "%s/%s", strcmp(mnt, "/") ? mnt : "", root->name);
}

/* Appends an absolute path of the machine without `.`, `..` and doubled slashes. */
static int add_plain(struct buf *out, size_t floor, const char *path)
{
    int r = 0;

    while (r >= 0 && *path) {
        size_t n = strcspn(path, "/");

        if (n == 2 && !memcmp(path, "..", 2)) {
            size_t at = out->len;

            while (at > floor && out->data[at - 1] != '/')
                at--;
            buf_truncate(out, at > floor ? at - 1 : floor);
        } else if (n && !(n == 1 && *path == '.')) {
            r = buf_addch(out, '/');
            if (r >= 0)
                r = buf_add(out, path, n);
        }
        path += n;
        path += strspn(path, "/");
    }
    return r;
}

/* Where the machine says the link leads, or where its text leads when that is nowhere. */
static int absolute(struct node *n, const char *link, const char *target, const char *resolved,
                    struct buf *out)
{
    int r = prefix(n, out);
    size_t floor = out->len;

    if (r < 0)
        return r;
    if (*resolved) {
        r = add_plain(out, floor, resolved);
    } else {
        if (*target != '/') {
            r = add_plain(out, floor, link);
            if (r >= 0)
                r = add_plain(out, floor, "..");
        }
        if (r >= 0)
            r = add_plain(out, floor, target);
    }
    if (r >= 0 && out->len == floor)
        r = buf_addch(out, '/');
    if (r >= 0 && out->len >= PATH_MAX)
        r = -ENAMETOOLONG;
    return r;
}

static void on_link(void *arg, int r, const char *target, const char *resolved)
{
    struct job *j = arg;
    _cleanup_buf_ struct buf out = { 0 };
    unsigned depth = 0;

    job_called(j);
    for (const struct node *dir = j->op->node->parent; r >= 0 && !tree_is_root(dir);
         dir = dir->parent)
        depth++;
    if (r >= 0)
        r = safe(target, depth) ? buf_addstr(&out, target)
                                : absolute(j->op->node, j->path, target, resolved, &out);
    if (r < 0)
        job_fail(j, r);
    else
        op_reply_link(job_end(j), buf_str(&out));
}

static void run_readlink(struct job *j)
{
    /* links below /proc/PID are doors, not names: the client's kernel cannot go through them */
    if (starts_with(j->path, "/proc/") && strchr(j->path + 6, '/'))
        job_fail(j, -EACCES);
    else
        job_call(j, boxd_script_readlink(j->op->mnt->client, j->op->node->machine->id, j->path,
                                         on_link, j));
}

void tree_readlink(struct op *op, struct node *n)
{
    struct job *j = job_new(op, NULL, NULL, run_readlink);

    if (j)
        job_start(j);
}

const char *tree_link_target(const struct node *n, const char *target)
{
    _cleanup_buf_ struct buf own = { 0 };

    if (prefix(n, &own) < 0 || !starts_with(target, own.data))
        return target;
    target += own.len;
    return *target == '/' ? target : *target ? target - own.len : "/";
}
