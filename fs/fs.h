/* fs/fs.h: the mount: the state of a mounting process, all of it owned by the loop's thread. */
#pragma once

#include <boxd/client.h>
#include <boxd/error.h>
#include <boxd/log.h>
#include <boxd/machines.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"
#include "node.h"
#include "op.h"

/* Options of the command line and of -o, parsed by fs/options.c from one table. */
struct options {
    char *mount_point; /* absolute, without links */
    bool local, foreground, debug, allow_other, default_permissions, hide_special;
    bool rmdir_deletes;
    char *address, *log, *fsname, *local_options; /* may be NULL */
    uint64_t script_max;                          /* bytes */
    uint32_t ready_timeout_ms;
    uint32_t op_timeout_ms; /* a file operation that waits longer than this fails ETIMEDOUT */
};

struct mount {
    struct options opt;
    uv_loop_t loop;
    struct fuse_session *se;
    struct boxd_client *client;
    struct boxd_machines *machines;
    struct node_table *nodes;
    struct node *root;
    struct list ops;   /* every op that has no reply yet */
    struct list opens; /* what the kernel has open, with a handle (fs/op.c) */
    struct list data;  /* fs/data.c: the content of open files */
    uid_t uid;         /* of the mounting user */
    gid_t gid;
    time_t since;
    uint64_t requests;               /* from the kernel */
    struct journal *errors, *events; /* of the account */
    struct list ctl_answers;         /* fs/ctl.c: text that waits for its user's next read */
    uv_poll_t fuse_poll;             /* fs/dispatch.c ... */
    struct fuse_buf request;         /* the one being read */
    bool polling;
    void (*on_ready)(struct mount *mnt); /* the kernel's first request came: the mount answers */
    uv_timer_t interrupts;               /* fs/interrupt.c */
    uv_timer_t deadlines;                /* fs/deadline.c */
    uint64_t list_late_ms;               /* fs/root.c: when the service last left us waiting */
    bool unmounted;                      /* the kernel ended the session */
    bool ending;                         /* waits end, no new one starts */
};

/* What a mount keeps with each machine, in boxd_machine.user: made when first asked for, freed when
 * the last reference to the machine goes (fs/machine.c). */
struct fsmachine {
    struct journal *errors, *events;
    struct node *root;   /* fs/tree.c: not referenced; cleared when that node dies */
    struct list scripts; /* fs/exec.c: the callers' last scripts */
    void (*free_scripts)(struct fsmachine *fm); /* set by fs/exec.c when it adds the first */
    uint64_t requests;                          /* from the kernel, below this machine */
    uint64_t changes;                           /* machine_changed() */
};
/* Never NULL: when memory runs out the process ends (it is 200 bytes a machine). */
struct fsmachine *fsmachine(struct boxd_machine *m);
void fsmachine_free(struct boxd_machine *m);

/* Something ended that may have changed the machine's files: a change, a script, a ctl command.
 * What was learned before is not used any more. Call it before the answer. */
static inline void machine_changed(struct boxd_machine *m)
{
    fsmachine(m)->changes++;
}

/* ---- entry points between the parts of fs ---- */

/* fs/tree.c: the machine's own `/`, with ctl, exec and .boxd in it (referenced for the caller). */
struct node *tree_root(struct mount *mnt, struct boxd_machine *m);
/* fs/ctl.c: a fresh node for every look-up. `m` NULL: the account's. */
struct node *ctl_node(struct mount *mnt, struct node *dir, struct boxd_machine *m);
void ctl_answers_free(struct mount *mnt);
/* fs/exec.c: a fresh node for every look-up. */
struct node *exec_node(struct mount *mnt, struct node *dir, struct boxd_machine *m);
/* fs/dotboxd.c: the `.boxd` directory of the account or of a machine. */
struct node *dotboxd_node(struct mount *mnt, struct node *dir, struct boxd_machine *m);
/* Attributes of the special files (ctl, exec: size 0, direct_io, mode 0600, owner the mounting
 * user). */
void special_stat(const struct node *n, struct stat *st);

/* fs/exec.c: the caller's last script: what is 0 script, 1 output, 2 exit. NULL when there is none.
 */
const struct buf *exec_last(struct mount *mnt, struct boxd_machine *m, uid_t uid, pid_t session,
                            int what);

/* fs/mount.c: ends every wait, then the loop; callable from any callback. */
void mount_end(struct mount *mnt);

/* fs/root.c: the mount's own directory, node FUSE_ROOT_ID. */
struct node *root_new(struct mount *mnt);
/* fs/root.c: attributes of a machine's directory, which no machine is asked for: every look-up and
 * getattr of the node that tree_root() gives answers with them. */
void machine_stat(struct mount *mnt, const struct boxd_machine *m, struct stat *st);

/* fs/journal.c: a bounded log of lines (the last 1000), readable as a file. */
struct journal *journal_new(void);
void journal_free(struct journal *j);
void journal_add(struct journal *j, const char *fmt, ...) _printf_(2, 3);
const struct buf *journal_text(const struct journal *j);
/* The journals of a machine (kept with it), or the account's when m is NULL. */
struct journal *machine_errors(struct mount *mnt, struct boxd_machine *m);
struct journal *machine_events(struct mount *mnt, struct boxd_machine *m);
