/* helper/users.h: the machine's users, read from its own /etc by whoever is inside already.
 * The files are the machine's: any content, size or kind must be survived. */
#pragma once

#include "base/base.h"

#define USER_GROUPS 64

struct user {
    uid_t uid;
    gid_t gid;
    char name[256];
    char home[1024];
    char shell[256];
    gid_t groups[USER_GROUPS];
    size_t ngroups;
};

/* Finds `who`: a name, a number, or NULL for boxd if there is one, else root. A number needs no
 * entry. -ENOENT when there is no such user. */
int user_find(const char *who, struct user *u);
/* The id of a group; -ENOENT when there is none of this name. */
int group_find(const char *name, gid_t *gid);
