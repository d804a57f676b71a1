/* fs/node.h: what the kernel knows as an inode: a look-up count, and a table of operations.
 *
 * Life: a node is referenced by the kernel's look-up count (as one reference), by each child's
 * `parent`, by open files and by ops. It dies with the last. Numbers are never used twice. Nothing
 * is keyed by path; a path is made from parents and names when a shell line needs it. A node never
 * changes its parent except by a rename through this mount. */
#pragma once

#include "op.h"

struct mount;
struct boxd_machine;

struct node_ops {
    const char *kind; /* "root", "tree", "ctl": for logs */
    bool owner_only;  /* serves the mounting user and root only, whatever allow_other says */

    /* Any operation may be NULL: then the answer is `missing` or, without that, -ENOSYS for xattr
     * and the like, -EPERM for changes, -EACCES for the rest; see fs/dispatch.c. */
    int missing;
    void (*lookup)(struct op *op, struct node *dir, const char *name);
    void (*getattr)(struct op *op, struct node *n, struct fuse_file_info *fi);
    void (*setattr)(struct op *op, struct node *n, const struct stat *st, int to_set,
                    struct fuse_file_info *fi);
    void (*readlink)(struct op *op, struct node *n);
    void (*mkdir)(struct op *op, struct node *dir, const char *name, mode_t mode);
    void (*mknod)(struct op *op, struct node *dir, const char *name, mode_t mode, dev_t rdev);
    void (*symlink)(struct op *op, struct node *dir, const char *name, const char *target);
    void (*link)(struct op *op, struct node *n, struct node *dir, const char *name);
    void (*unlink)(struct op *op, struct node *dir, const char *name);
    void (*rmdir)(struct op *op, struct node *dir, const char *name);
    void (*rename)(struct op *op, struct node *dir, const char *name, struct node *new_dir,
                   const char *new_name, unsigned flags);
    void (*create)(struct op *op, struct node *dir, const char *name, mode_t mode,
                   struct fuse_file_info *fi);
    void (*open)(struct op *op, struct node *n, struct fuse_file_info *fi);
    void (*read)(struct op *op, struct node *n, size_t size, off_t off, struct fuse_file_info *fi);
    /* `data` dies when the function returns. */
    void (*write)(struct op *op, struct node *n, const void *data, size_t size, off_t off,
                  struct fuse_file_info *fi);
    void (*flush)(struct op *op, struct node *n, struct fuse_file_info *fi);
    void (*release)(struct op *op, struct node *n, struct fuse_file_info *fi);
    void (*fsync)(struct op *op, struct node *n, int datasync, struct fuse_file_info *fi);
    void (*opendir)(struct op *op, struct node *n, struct fuse_file_info *fi);
    void (*readdir)(struct op *op, struct node *n, size_t size, off_t off,
                    struct fuse_file_info *fi);
    void (*releasedir)(struct op *op, struct node *n, struct fuse_file_info *fi);
    void (*statfs)(struct op *op, struct node *n);
    void (*poll)(struct op *op, struct node *n, struct fuse_file_info *fi,
                 struct fuse_pollhandle *ph);
    /* The node dies: free what the kind added. May be NULL. */
    void (*free)(struct node *n);
};

struct node_table;

struct node {
    fuse_ino_t id; /* what the kernel calls it; also st_ino unless the kind says otherwise */
    const struct node_ops *ops;
    struct mount *mnt;
    struct node *parent; /* referenced; NULL for the root */
    char *name;          /* its name in `parent` */
    uint64_t lookups;    /* the kernel's count */
    unsigned refs;
    struct boxd_machine *machine;   /* NULL above the machines. Taken from the parent by node_new();
                                     * tree_root() sets and references it */
    struct list by_id, by_name;     /* in the table's buckets */
    struct list siblings, children; /* known children of a directory; not referenced */
    struct list opens;              /* fs/op.c: what is open of it */
    /* A kind embeds this struct as its first member and adds its own fields behind it. */
};

int node_table_new(struct node_table **out);
/* Frees every node that is left, whatever holds it. */
void node_table_free(struct node_table *t);

/* Allocates a zeroed object of `size` bytes (at least sizeof(struct node)), gives it a number and
 * one reference that belongs to the caller. NULL: out of memory. */
void *node_new(struct mount *mnt, const struct node_ops *ops, struct node *parent, const char *name,
               size_t size);
struct node *node_ref(struct node *n);
void node_unref(struct node *n);
/* By number; borrowed. NULL for one that the kernel cannot know. */
struct node *node_find(struct mount *mnt, fuse_ino_t id);
/* A known child of this name, borrowed, or NULL. Nodes that get a fresh number at each look-up
 * (ctl, exec) are not found: they are made with node_new and unlinked with node_detach. */
struct node *node_child(struct node *dir, const char *name);
/* Takes the node out of its parent's children (deleted, replaced); it keeps parent and name. */
void node_detach(struct node *n);
/* Gives it a new place (rename). */
int node_move(struct node *n, struct node *new_parent, const char *new_name);
void node_forget(struct node *n, uint64_t count);

/* A stable inode number made of two texts, apart from every node's own number. */
ino_t ino_of(const char *kind, const char *text);
/* The number of a special file, which stays the same while its node does not. */
ino_t special_ino(const struct node *dir, const char *name);

/* Adds an entry to a readdir reply; false when the reply is full. `off` is the offset of the next.
 */
struct dirbuf {
    fuse_req_t req;
    char *data;
    size_t size, len;
};
bool dirbuf_add(struct dirbuf *d, const char *name, const struct stat *st, off_t next);
