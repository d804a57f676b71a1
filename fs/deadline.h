/* fs/deadline.h: how long a file operation may wait for a machine (-o op_timeout). */
#pragma once

#include "op.h"

int deadlines_init(struct mount *mnt);
/* From now on the op's wait ends with -ETIMEDOUT after op_timeout, unless this is called again. */
void op_deadline(struct op *op);
