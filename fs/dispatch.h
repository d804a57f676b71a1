/* fs/dispatch.h: the kernel's requests, from /dev/fuse to the operations of nodes. */
#pragma once

#include "op.h"

extern const struct fuse_lowlevel_ops dispatch_ops;

/* Starts reading the session's descriptor on the loop. `ended` of the mount is called when the
 * kernel ended the session. */
int dispatch_start(struct mount *mnt);
void dispatch_stop(struct mount *mnt);
