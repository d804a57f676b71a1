/* local/host.h: machines made of Linux namespaces on this computer. Knows no RPC and no service
 * state: it builds, freezes, kills and enters one machine; local/service.c decides when.
 *
 * The recipe (one overlay LAYER:BASE, an allow list of what a machine may see, init a fresh
 * program, what each kind of machine can do) is described in core/local/README.md.
 *
 * Threads: the loop's thread. Only host_open() and host_machine_start() may take milliseconds; work
 * that takes longer (building a layer, unpacking an image, deleting a tree, copying) runs on
 * libuv's thread pool or in a child process and answers through a callback, which never runs before
 * the function returned, and exactly once. */
#pragma once

#include "base/base.h"
#include <uv.h>

/* What this process may do decides the kind of its machines. */
enum host_kind {
    HOST_ROOT,        /* root: user namespace over an idmapped base, or a FUSE view */
    HOST_USER_SUBUID, /* ordinary user with a range in /etc/subuid and newuidmap */
    HOST_USER_SINGLE, /* ordinary user without: one id, sudo is the shim */
};
const char *host_kind_name(enum host_kind k);

struct host;
struct host_machine;

struct host_options {
    const char *state_dir;   /* absolute, exists, 0700, ours */
    bool allow_privileged;   /* whether a machine may be `privileged` (root only) */
    bool exec_pid_namespace; /* tests: every exec gets an own pid namespace, as on the service */
    bool force_single;       /* tests: behave as without subuids */
    bool force_view;         /* tests: the FUSE view although an idmapped mount would work */
};

typedef void host_done(void *arg, int r);

/* Finds out the kind, prepares the base (for a user: its namespaces). Negative errno with words
 * that name the cure (subuids, /dev/fuse, user namespaces switched off). */
int host_open(uv_loop_t *loop, const struct host_options *o, struct host **out);
/* Kills every machine, ends the view, unmounts. State on disk stays. Runs the loop until the dead
 * have been reaped, so it must not be called from one of the loop's callbacks. */
void host_close(struct host *h);
enum host_kind host_get_kind(const struct host *h);
/* One line for people about what machines here cannot do ("no separation between user ids ..."), or
 * "" when there is nothing to tell. */
const char *host_limits(const struct host *h);

struct host_spec {
    const char *id; /* safe as a file name; names the machine's directory in the state */
    const char *hostname;
    const char *image; /* "host", or the name of an image directory or tarball under
                          STATE/images/NAME{,.tar,.tar.gz,.tar.zst}, or an absolute path of one */
    bool privileged;
    uint64_t memory_bytes; /* limit where cgroups allow it; 0: none */
    uint32_t vcpu;
};

/* Starts the machine: makes its layer, unpacks its image when needed, mounts, starts init.
 * The machine's files are kept in STATE/machines/ID; when they exist already they are used again.
 * `done` gets 0 and from then on the machine can be entered; or a negative errno with words.
 * The handle is valid until host_machine_free(), which may also be called before `done` (it then
 * never runs) and kills what was started. NULL only when memory ran out. */
struct host_machine *host_machine_start(struct host *h, const struct host_spec *spec,
                                        host_done *done, void *arg);
/* `died` is told when init ends by itself (killed inside). */
void host_machine_on_death(struct host_machine *m, void (*died)(void *arg), void *arg);
/* Kills every process of the machine, unmounts, frees. Files stay. */
void host_machine_free(struct host_machine *m);
/* Freezes or thaws every process of the machine; 0 or a negative errno with words. */
int host_machine_freeze(struct host_machine *m, bool frozen);
/* Deletes a machine's files; it must not be running. */
void host_delete(struct host *h, const char *id, host_done *done, void *arg);
/* Whether an image of this name can be had: 0, or -ENOENT with words. */
int host_image_check(struct host *h, const char *image);
/* Whether privileged machines may be made: 0, or -EACCES with words. */
int host_privileged_check(const struct host *h);

/* ---- running a command in a machine ------------------------------------------------------------
 */

struct host_exec_spec {
    const char *const *argv; /* NULL-ended; argv[0] an absolute path in the machine */
    const char *const *env;  /* NULL-ended "K=V", added to the default environment */
    const char *user;        /* NULL: boxd if it exists in the machine's passwd, else root */
    const char *cwd;         /* NULL: the user's home, else / */
    bool tty;
    uint16_t cols, rows; /* 0: 80 x 24 */
};

struct host_exec;
/* `exit_code` as a shell's: 128 + n for a signal. 126, 127: the program could not be started. */
typedef void host_exec_done(void *arg, int exit_code);

/* Starts a command. The three descriptors are the server's ends, non-blocking, owned by the caller:
 * in_fd to write its stdin, out_fd and err_fd to read (with tty: in_fd and out_fd are two
 * descriptors of the terminal's master, err_fd is -1). `done` runs once after the command has
 * ended; output may still be unread in the pipes, and a background process may hold them open.
 * Returns 0, -EBUSY when frozen, or a negative errno with words. */
int host_exec_start(struct host_machine *m, const struct host_exec_spec *spec, int *in_fd,
                    int *out_fd, int *err_fd, host_exec_done *done, void *arg,
                    struct host_exec **out);
/* Kills the command's process group and every descendant: TERM, and KILL 2 s later or at once when
 * `hard`. `done` still runs. */
void host_exec_kill(struct host_exec *e, bool hard);
int host_exec_resize(struct host_exec *e, uint16_t cols, uint16_t rows);
/* Forgets the callback; the command is killed hard. The handle is freed. Valid until `done`
 * returned (the handle is freed after it) or this was called. */
void host_exec_free(struct host_exec *e);
