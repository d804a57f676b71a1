/* fs/op.h: one request of the kernel, from its arrival to its reply.
 *
 * An op is made by the dispatcher, handed to the node's operation, and freed by exactly one of the
 * op_reply_*() functions or op_fail(). Whoever lets an op wait says with op_wait() how the wait is
 * ended when the caller is interrupted or the mount ends. Nothing here knows gRPC.
 * Threads: the loop's thread. */
#pragma once

#include "base/base.h"
#include "base/list.h"

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

struct mount;
struct node;

struct op {
    fuse_req_t req;
    struct mount *mnt;
    struct node *node; /* the node the request is about; referenced */
    const char *what;  /* "read", "mkdir": for errors */
    char *name;        /* in `node`, for requests about a name; owned */
    char *path;        /* for errors: below the mount point; made when first needed */
    uid_t uid;
    gid_t gid;
    pid_t pid; /* 0: a caller of another pid namespace */
    mode_t umask;
    void (*cancel)(struct op *op, void *arg);
    void *cancel_arg;
    bool asked;       /* FUSE_INTERRUPT came: its signal is looked at until it ends the wait */
    bool interrupted; /* ... and it is one that ends a wait */
    uint64_t started_ms;
    uint64_t deadline_ms; /* 0: its wait has none; fs/deadline.c */
    bool late;            /* it passed */
    void *data;           /* private to the operation that runs it */
    struct list link;     /* in mnt->ops */
};

/* Makes the op of a request about node `ino`, or about `name` (may be NULL) in it; NULL when it is
 * answered already: memory ran out, the node is unknown, or its kind serves the owner only and
 * `what` is more than getattr. For fs/dispatch.c. */
struct op *op_new(fuse_req_t req, fuse_ino_t ino, const char *what, const char *name);

/* The op now waits. `cancel` is called at most once, when it must end early: it stops what is under
 * way and replies (usually op_fail(op, -EINTR)). Called at once, before op_wait() returns, when the
 * caller was already interrupted. op_wait(op, NULL, NULL) ends the wait. */
void op_wait(struct op *op, void (*cancel)(struct op *op, void *arg), void *arg);

/* RELEASE came for a handle that a reply had given out. For fs/dispatch.c. */
void op_closed(struct node *n, uint64_t fh);
/* Releases what is still open: the mount ended, and the kernel will not do it. */
void ops_close_all(struct mount *mnt);

/* Ends the wait early, as an interruption does. */
void op_cancel(struct op *op);
/* Where the op's node is, below the mount point, for people: "/dev/etc/hosts". */
const char *op_path(struct op *op);

/* Replies; each frees the op. op_fail takes a negative errno and, unless it is an everyday one
 * (ENOENT of a look-up, EINTR, EEXIST ...), writes its words to `.boxd/errors`. */
void op_fail(struct op *op, int r);
void op_reply_ok(struct op *op);
/* Replies with a new or known node; counts the kernel's look-up. Drops the caller's reference. */
void op_reply_entry(struct op *op, struct node *child, const struct stat *st);
void op_reply_attr(struct op *op, const struct stat *st);
void op_reply_open(struct op *op, struct fuse_file_info *fi);
/* OPEN with FOPEN_STREAM (offsets are always 0, reader and writer never block each other), which
 * libfuse has no field for. */
void op_reply_open_stream(struct op *op, uint64_t fh);
void op_reply_create(struct op *op, struct node *child, const struct stat *st,
                     struct fuse_file_info *fi);
void op_reply_buf(struct op *op, const void *data, size_t n);
/* Replies to READ with `n` bytes at `off` of a descriptor, without copying where possible. */
void op_reply_fd(struct op *op, int fd, off_t off, size_t n);
void op_reply_written(struct op *op, size_t n);
void op_reply_link(struct op *op, const char *target);
void op_reply_statfs(struct op *op, const struct statvfs *st);
/* POLL*: events that are true now. */
void op_reply_poll(struct op *op, unsigned revents);

/* The session of the caller: two terminals of one user are two callers (for `.boxd/last`, errors).
 */
pid_t op_session(const struct op *op);
