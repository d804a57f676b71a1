/* fs/exec.h: the callers' last scripts, kept with the machine (fs/exec_last.c). */
#pragma once

#include "fs.h"

#define OUTPUT_KEPT (10u * 1024 * 1024)

/* One script: what a caller wrote to one open of `exec`, and what came of it. */
struct script {
    struct list link; /* in fsmachine.scripts, newest last; in no list when it was replaced */
    unsigned refs;
    uid_t uid;
    pid_t session;
    struct buf text, output, exit;
    uint64_t dropped; /* bytes of output before what is kept */
};

/* Begins a script: it is the caller's last one from now on. Referenced for the caller. */
struct script *script_begin(struct boxd_machine *m, uid_t uid, pid_t session);
struct script *script_last(struct boxd_machine *m, uid_t uid, pid_t session);
struct script *script_ref(struct script *s);
void script_unref(struct script *s);
/* Without memory the record is short, the script is not affected. */
void script_text(struct script *s, const void *text, size_t n);
void script_output(struct script *s, const void *data, size_t n);
void script_exit(struct script *s, const char *fmt, ...) _printf_(2, 3);
