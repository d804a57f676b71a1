/* fs/mount.h: mounting, unmounting, and the life of the mounting process. */
#pragma once

#include "fs.h"

/* Makes `mount_point` of the options absolute and says with words why it cannot be mounted on; a
 * dead boxdfs mount that covers it is taken away first. */
int mount_point_check(struct options *o);
/* `path` as the mount table has it: absolute, without links above its last component, which is not
 * looked at. 0 or a negative errno with words. */
int mount_path(const char *path, char **out);
/* Whether this process may mount at all: /dev/fuse, fusermount3. 0 or a negative errno with words.
 */
int mount_able(void);
/* Mounts and returns the descriptor of /dev/fuse, or a negative errno with words. */
int mount_attach(const struct options *o);
/* Takes the topmost mount off `path`; `lazy`: even when files are open in it. May block. */
int mount_detach(const char *path, bool lazy);
/* Whether a mount whose daemon is gone (or does not answer for 10 s) covers `path`. May block. */
bool mount_dead(const char *path);
/* Takes a dead mount away. May block. */
int mount_recover(const char *path);

/* Connects, asks the service once, mounts, and serves until the end. `ready` is called with 0 when
 * the mount answers, or once with a negative errno with words. Returns the exit code. */
int mount_run(struct options *o, void (*ready)(void *arg, int r), void *arg);
