/* fs/commands.h: the sub-commands of boxdfs. Each gets the words after its name and returns the
 * exit code. */
#pragma once

#include "fs.h"

int cmd_umount(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/* One line of /proc/self/mountinfo. Both texts end with the entry. */
struct mount_entry {
    char *device, *target, *type, *source, *options; /* device: MAJOR:MINOR */
};
/* Calls `each` for every mount, oldest first, until it returns false. 0 or a negative errno. */
int mounts_each(bool (*each)(void *arg, const struct mount_entry *e), void *arg);
/* Whether the newest mount at exactly `path` is of type fuse.boxdfs; *type (freed by the caller)
 * is its type or NULL. */
int mounts_type(const char *path, char **type);

/* The text of a file of at most 1 MiB, for the caller to free; NULL with errno. */
char *read_text(const char *path);

/* fs/local_server.c: the address of this user's boxd-local, which is started with `options` when
 * none answers. May block up to 15 s. */
int local_server_address(const char *options, char **address);
