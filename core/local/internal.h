/* local/internal.h: shared by the files behind host.h, and by nobody else. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/list.h"
#include "local/host.h"
#include "local/proto.h"

#include <uv.h>

#define SHIFT 100000
#define SPAWN_FDS (CGROUPS + 8)
#define STAMP_SIZE 64
#define HIGH_FD 64 /* sources live above, so that no dup2 in a child hits another's source */

/* ---- spawn.c: helper processes ----------------------------------------------------------------
 */

/* A child process of ours, known by pidfd. `exited` runs once on the loop with the wait status;
 * the child may be freed in it. */
struct child {
    uv_poll_t poll;
    pid_t pid; /* 0: none */
    int pidfd;
    void (*exited)(struct child *c, int status);
    void (*closed)(struct child *c); /* the loop has let go; the memory may be freed */
};

/* Takes charge of a child that was started (pid, our own, not yet waited for). */
int child_watch(uv_loop_t *loop, struct child *c, pid_t pid);
/* Stops watching; `closed` follows later. Harmless when nothing is watched. */
void child_unwatch(struct child *c);
/* Reaps now, waiting up to `ms`; true when it is dead. */
bool child_wait(struct child *c, int ms);

/* What a helper is started with. */
struct spawn {
    struct buf spec;
    int fds[SPAWN_FDS];
    size_t nfds;
    int std[3]; /* -1: /dev/null */
    int r;      /* the first error while filling in */
};
void spawn_init(struct spawn *s);
void spawn_clear(struct spawn *s);
DEFINE_CLEANUP(struct spawn, spawn_clear);
void spawn_str(struct spawn *s, const char *key, const char *value);
void spawn_num(struct spawn *s, const char *key, uint64_t value);
/* Passes a descriptor, which stays the caller's, under a name. Below 0: none is passed. */
void spawn_fd(struct spawn *s, const char *name, int fd);
/* Starts boxd-init in this mode; *control is our end of its socket (blocking). */
int spawn_run(struct host *h, struct spawn *s, const char *mode, pid_t *pid, int *control);

/* A helper that does one thing and answers MSG_DONE or MSG_ERROR. */
struct job {
    struct child child;
    int control;
    host_done *done;
    void *arg;
    struct list link; /* in host.jobs */
    struct host *host;
};
int job_start(struct host *h, struct spawn *s, const char *mode, host_done *done, void *arg,
              struct job **out);
/* Calls done(arg, r) from the loop, with the words that are remembered now. */
void host_defer(struct host *h, int r, host_done *done, void *arg);
/* Forgets the callback; the helper is killed. */
void job_cancel(struct job *j);

/* ---- host.c -----------------------------------------------------------------------------------
 */

struct host {
    uv_loop_t *loop;
    enum host_kind kind;
    char *state;
    bool view;      /* BASE is served by boxd-view */
    bool plain;     /* there is a BASE for privileged machines */
    bool base_lost; /* boxd-view died: the next start makes a new one */
    bool allow_privileged, exec_pid_namespace, force_view;
    uint64_t ids[2]; /* where the user's ranges of ids start */
    int self;        /* boxd-init as a sealed memfd */
    int null;        /* /dev/null */
    int user, mnt;   /* the base's namespaces; root: `user` only shifts ids */
    struct child view_child;
    char *libexec; /* where boxd-view and the shim are */
    char limits[256];
    bool closing;
    struct list machines, dying, jobs, builds;
    char *cgroups[CGROUPS]; /* directories of ours, see cgroup.c; NULL where not permitted */
};

/* Passes what `enter_base` needs. */
void host_spawn_base(struct host *h, struct spawn *s);
/* Makes the base again when it was lost. */
int host_base_ready(struct host *h);
/* Opens a program of ours. */
int host_program(struct host *h, const char *name);

/* ---- layer.c ----------------------------------------------------------------------------------
 */

/* The directory below the state that `image` needs, built when missing: *lower is it. done(arg, 0)
 * when it is there. `born` is what the machine was made with before, or NULL. */
struct build_waiter {
    struct list link;
    host_done *done;
    void *arg;
};
/* The name of the present LAYER. A privileged machine has one with this computer's ids. */
int layer_stamp(struct host *h, bool privileged, char out[STAMP_SIZE]);
/* Makes sure that `stamp` exists: 0 when it does, 1 when `w->done` will tell, or negative. */
int layer_ensure(struct host *h, bool privileged, const char *stamp, struct build_waiter *w);
/* The same for an unpacked tarball. */
int image_ensure(struct host *h, bool privileged, const char *name, int fd, const char *stamp,
                 struct build_waiter *w);
/* Finds an image: *path is a directory (absolute), or *fd an open tarball and stamp its name. */
int image_find(struct host *h, bool privileged, const char *image, char **path, int *fd,
               char stamp[STAMP_SIZE]);
void build_forget(struct build_waiter *w);
/* Forgets builds whose jobs were cancelled. */
void build_drop_all(struct host *h);

/* ---- cgroup.c ---------------------------------------------------------------------------------
 */

/* Makes this server's groups where it may, and removes those of dead servers. Never fails: limits
 * are for where they are permitted. */
void cgroup_open(struct host *h);
void cgroup_close(struct host *h);
/* A machine's groups: made, with limits, and their cgroup.procs opened; unused ones are -1. Fails
 * only for a privileged machine: without the devices group it would reach this computer's disks. */
int cgroup_make(struct host *h, const struct host_spec *spec, int fds[CGROUPS]);
/* The controller of group `i`. */
const char *cgroup_name(size_t i);
/* Removes the machine's groups, and those it made in them, when they are empty. */
void cgroup_remove(struct host *h, const char *id);
/* Thaws everything in the machine's groups, what it froze itself too: else it could not die. */
void cgroup_thaw_all(struct host *h, const char *id);
/* The file that thaws a machine whose processes do not even die while frozen, or -1. */
int cgroup_open_thaw(struct host *h, const char *id);
/* 0, or -EOPNOTSUPP when there is no freezer here. */
int cgroup_freeze(struct host *h, const char *id, bool frozen);

/* ---- machine.c --------------------------------------------------------------------------------
 */

enum machine_state { MACHINE_STARTING, MACHINE_RUNNING, MACHINE_DEAD };

struct host_machine {
    struct child init;
    struct list link; /* in host.machines, later in host.dying */
    struct host *host;
    enum machine_state state;
    char *id, *hostname, *image, *image_path;
    char lower[STAMP_SIZE + 16];
    bool privileged, frozen, uses_base, freed, settled;
    uint64_t memory_bytes;
    uint32_t vcpu;
    struct build_waiter build;
    bool building;
    uv_timer_t begin; /* first step, and the deadline of the start */
    uv_poll_t control_poll;
    struct child starter;
    struct job *guard; /* of a frozen machine */
    int control;
    int pts, inner;     /* its terminals; the user namespace of boxd */
    int procs[CGROUPS]; /* cgroup.procs */
    unsigned handles;   /* of the loop's, still open */
    host_done *done;
    void *arg;
    void (*died)(void *arg);
    void *died_arg;
};

/* Passes the control groups that a process of the machine joins. */
void machine_spawn_cgroups(const struct host_machine *m, struct spawn *s);
/* Ends every machine that shows this computer's /usr: it has lost it. */
void machines_lose_view(struct host *h);
/* Waits for what is left of a machine of this id that was freed. */
void machine_settle(struct host *h, const char *id);
/* Drops one of the handles that keep a machine's memory; the last one of a freed machine frees it.
 */
void machine_unref(struct host_machine *m);
