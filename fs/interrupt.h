/* fs/interrupt.h: which signals end a wait. FUSE_INTERRUPT comes for every signal that the caller
 * gets, once, and does not say which: a background job's SIGCHLD must not kill a script. */
#pragma once

#include "op.h"

int interrupts_init(struct mount *mnt);
/* The kernel asked for `op` to be interrupted: its caller's signals are looked at soon, and again
 * every 200 ms until the op is answered or one of them ends its wait. */
void interrupt_ask(struct op *op);
/* Whether the text of /proc/TID/status shows INT, TERM, HUP, QUIT or KILL pending and not blocked.
 */
bool interrupt_ends_wait(const char *proc_status);
