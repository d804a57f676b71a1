/* fs/tree.h: the files of a machine in script mode; shared by tree_*.c and data.c.
 *
 * A tree node is known by its name in its parent; its path in the machine is made from those when a
 * shell line needs it. Nothing is cached beyond the second of tree_ahead.c. */
#pragma once

#include "fs.h"

#include <boxd/script.h>
#include <sys/stat.h>

struct data;

struct tree_node {
    struct node node;
    struct stat last;  /* the machine's own numbers, as last seen */
    struct data *data; /* while it is open; fs/data.c */
    bool is_root;      /* a struct tree_root, which holds a reference to the machine */
    bool deleted;      /* the name is gone; its open content lives on here */
    bool attr_ahead;   /* fs/tree_ahead.c: `last` answers one getattr of ... */
    pid_t seen_by;     /* ... the caller that looked it up */
    uint64_t seen_ms, seen_changes;
};

struct tree_root {
    struct tree_node tree;
    bool user_known;
    uid_t uid; /* the machine's user */
    gid_t gid;
    struct list ahead; /* fs/tree_ahead.c */
    size_t ahead_entries;
};

extern const struct node_ops tree_ops;

static inline struct tree_node *tree_of(struct node *n)
{
    return (struct tree_node *)(void *)n;
}
static inline bool tree_is_root(const struct node *n)
{
    return n->parent && n->parent->ops != &tree_ops;
}
struct tree_root *tree_root_of(struct node *n);

/* The path in the machine of `name` in `dir`, or of `dir` itself when name is NULL.
 * -ENAMETOOLONG, -ENOMEM. */
int tree_path(const struct node *dir, const char *name, char **path);
/* Whether it lies on a file system of the kernel, by its path: sizes there say nothing. */
bool tree_in_kernel_fs(const char *path);
/* ctl, exec and .boxd in the machine's own directory. */
bool tree_is_special(const struct node *dir, const char *name);
/* The node for what the machine has under this name: the known one when it is still the same thing.
 * Referenced for the caller; NULL: out of memory. */
struct node *tree_adopt(struct node *dir, const char *name, const struct stat *st);
/* What the kernel is told: inode tagged, owners mapped, the size of an open file's newest content.
 */
void tree_stat(struct tree_node *n, const struct stat *st, struct stat *out);
uint64_t tree_ino(const struct node *n, const struct stat *st);
/* The name is gone (deleted or replaced). */
void tree_gone(struct node *n);

/* ---- tree_ahead.c: what the last second has told; `changes` is that of fsmachine when it was
 * asked for ---- */

void ahead_keep(struct node *dir, pid_t pid, uint64_t changes,
                const struct boxd_list_entry *entries, size_t count);
/* The node's `last` is new: a look-up or an open was answered with it. */
void ahead_seen(struct tree_node *n, pid_t pid, uint64_t changes);
/* Whether a look-up can be answered, and with what. `first`: a listing says it, for the first time.
 */
bool ahead_lookup(struct node *dir, const char *name, pid_t pid, struct stat *st, bool *first);
/* Whether `last` answers a getattr. */
bool ahead_attr(struct tree_node *n, pid_t pid);
void ahead_clear(struct tree_root *root);

/* ---- tree_job.c: an op that needs the machine ---- */

struct job {
    struct op *op;
    struct boxd_call *call;
    /* The machine answers and its user is known: start a call with job_call(), or end the job. */
    void (*run)(struct job *j);
    struct node *dir, *dir2; /* referenced; what name and name2 stand in */
    char *name, *name2, *path, *path2;
    mode_t mode;
    unsigned flags;
    bool change;      /* it changes the machine's files */
    uint64_t changes; /* of the machine when the call started */
    struct boxd_setattr set;
    struct fuse_file_info fi;
    void *data;
};

/* Makes a job for the op; when memory runs out the op is answered and NULL returned. `dir` and
 * `name` may be NULL; with them `path` is made too, else the path of the op's node. */
struct job *job_new(struct op *op, struct node *dir, const char *name, void (*run)(struct job *j));
/* Waits until the machine is ready, then runs it. The last thing a caller does with the job. */
void job_start(struct job *j);
/* The job waits for this call; NULL: memory ran out. The last thing a caller does. */
void job_call(struct job *j, struct boxd_call *call);
/* In a callback of its call: it is over. */
static inline void job_called(struct job *j)
{
    j->call = NULL;
}
/* Frees the job and gives back its op, whose wait has ended. */
struct op *job_end(struct job *j);
void job_fail(struct job *j, int r);

/* ---- the operations, by file ---- */

void tree_opendir(struct op *op, struct node *n, struct fuse_file_info *fi);
void tree_readdir(struct op *op, struct node *n, size_t size, off_t off, struct fuse_file_info *fi);
void tree_releasedir(struct op *op, struct node *n, struct fuse_file_info *fi);

void tree_readlink(struct op *op, struct node *n);
/* The target to store for a link made with `target`: the mount's own prefix is stripped. */
const char *tree_link_target(const struct node *n, const char *target);

void tree_setattr(struct op *op, struct node *n, const struct stat *st, int to_set,
                  struct fuse_file_info *fi);
void tree_mkdir(struct op *op, struct node *dir, const char *name, mode_t mode);
void tree_mknod(struct op *op, struct node *dir, const char *name, mode_t mode, dev_t rdev);
void tree_symlink(struct op *op, struct node *dir, const char *name, const char *target);
void tree_link(struct op *op, struct node *n, struct node *dir, const char *name);
void tree_unlink(struct op *op, struct node *dir, const char *name);
void tree_rmdir(struct op *op, struct node *dir, const char *name);
void tree_rename(struct op *op, struct node *dir, const char *name, struct node *new_dir,
                 const char *new_name, unsigned flags);

void tree_create(struct op *op, struct node *dir, const char *name, mode_t mode,
                 struct fuse_file_info *fi);
void tree_open(struct op *op, struct node *n, struct fuse_file_info *fi);
void tree_read(struct op *op, struct node *n, size_t size, off_t off, struct fuse_file_info *fi);
void tree_write(struct op *op, struct node *n, const void *data, size_t size, off_t off,
                struct fuse_file_info *fi);
void tree_flush(struct op *op, struct node *n, struct fuse_file_info *fi);
void tree_release(struct op *op, struct node *n, struct fuse_file_info *fi);
void tree_fsync(struct op *op, struct node *n, int datasync, struct fuse_file_info *fi);
