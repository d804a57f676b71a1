/* fs/status.h: the text of `.boxd/status`: lines `KEY VALUE`, from what is known already. */
#pragma once

#include "fs.h"

int status_account(struct mount *mnt, struct buf *out);
int status_machine(struct mount *mnt, struct boxd_machine *m, struct buf *out);
/* The value of a line of such a text, copied; NULL when there is none or memory ran out. */
char *status_value(const char *text, const char *key);
