/* helper/helper.h: boxd-init, the static program that does everything inside namespaces.
 *
 * The server starts it afresh for each job, from a sealed copy in memory, with an empty environment
 * and only the descriptors that the job names: so it is single-threaded, may block, and nothing of
 * the server's memory can be seen where it goes. Each mode is a function of one file. */
#pragma once

#include "base/base.h"
#include "local/proto.h"

#define SHIFT 100000 /* root's machines: id 0 inside is this one outside */
#define IDS 65536

/* Modes; each returns the exit status' negative errno (0: success). Words have been sent. */
int mode_base(const struct spec *s);  /* makes the namespace that holds BASE */
int mode_start(const struct spec *s); /* mounts a machine and starts its init */
int mode_exec(const struct spec *s);  /* runs one command in a machine */
int mode_layer(const struct spec *s); /* builds a LAYER */
int mode_unpack(const struct spec *s);
int mode_delete(const struct spec *s);
int mode_signal(const struct spec *s); /* signals every process of a machine */
int mode_guard(const struct spec *s);  /* thaws a machine when the server is gone */
_Noreturn void init_main(void);

/* Enters the namespaces that the server's base lives in (fd.user, fd.mount; those given). */
int enter_base(const struct spec *s);
/* Inside a new machine's namespaces, the merged tree as working directory: mounts the rest and
 * makes it the root. Detached mounts that it gets (-1: none): a FUSE device node, and a directory
 * that is no overlay, for Docker. */
struct detached {
    int fuse, docker;
};
int machine_setup(const struct spec *s, const struct detached *d);
/* Joins the machine's control groups; init and its commands are then born in them. */
int join_cgroups(const struct spec *s);

/* Small calls with words. */
int write_text(const char *path, const char *text);
int make_dir(const char *path, mode_t mode);
int remove_tree(int dirfd, const char *name);

/* Dies with the server: `parent` is the pid that must still be the parent (0: unknown). */
int die_with_parent(pid_t parent);
