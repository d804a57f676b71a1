/* helper/layer.h: the tools with which a LAYER is written; used by layer.c and etc.c. */
#pragma once

#include "base/base.h"

#include <sys/stat.h>

struct layer {
    int out;     /* directory of the layer being built */
    int root;    /* this computer's / */
    uid_t shift; /* added to every owner */
    bool one;    /* only one id exists: owners are not changed */
    bool real;   /* real root: trusted.* attributes and whiteouts */
    bool shim;   /* sudo is the shim */
    int shim_fd; /* the shim's program, or -1 */
};

/* All paths are relative ("etc/passwd"). Parents are made. Each returns 0 or words. */
int layer_dir(const struct layer *l, const char *path, mode_t mode, bool opaque);
int layer_file(const struct layer *l, const char *path, const char *text, mode_t mode, gid_t gid);
int layer_link(const struct layer *l, const char *target, const char *path);
int layer_own(const struct layer *l, const char *path, uid_t uid, gid_t gid);
/* Copies what everybody may read of this computer's `path`; `hidden(path)` true: left out. */
int layer_copy(const struct layer *l, const char *path, bool (*hidden)(const char *path));
/* Copies a whole file's bytes from descriptor to descriptor. */
int copy_bytes(int from, int to);

/* etc.c: /etc and what belongs to it. */
int layer_etc(const struct layer *l);
