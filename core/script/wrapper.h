/* script/wrapper.h: the shell text that runs scripts in a machine, and both directions of what is
 * said to it. No I/O.
 *
 * Input: two lines with a nonce, then frames: "LINES LAST\n" and that many lines of script; LAST is
 * 1 on the final frame of what is written at once. The wrapper collects text until it is complete
 * and evaluates it in itself, so that variables and functions live on.
 * Output: what the script says (stdout and stderr in order), and between it reports: the nonce,
 * then "R\n" (a frame was taken and all complete text has run), "I\n" (taken, incomplete so far) or
 * "X<status>\n" (the shell has ended). The nonce is random and stands in no argument or variable of
 * the environment, so a script's output cannot hold a report by accident. */
#pragma once

#include "base/buf.h"

#define NONCE_HEX 32 /* digits */
#define FRAME_BYTES (16u * 1024)

/* Appends the whole line for Exec. `dir`: where to start; NULL: the user's home. */
int wrapper_line(struct buf *out, const char *dir);
/* Appends the lines with the nonce; `stop`: end at the first failing command (sh -e). */
int wrapper_greeting(struct buf *out, const char *nonce, bool stop);
/* Appends `text`, whole lines (ends in a newline), as frames, and adds their number to *frames.
 * NUL bytes, which no shell can read, are left out. */
int wrapper_frames(struct buf *out, const char *text, size_t n, uint64_t *frames);

struct reports {
    char nonce[NONCE_HEX + 1];
    struct buf held; /* bytes that may be the start of a report */
    /* Output of the script; borrowed. */
    void (*output)(void *arg, const char *data, size_t n);
    /* kind: 'R', 'I', 'X'. Returns false to stop: the rest is dropped. */
    bool (*report)(void *arg, char kind, int status);
    void *arg;
};
/* Takes output of the wrapper; -ENOMEM. Bytes held back are less than a report's length. */
int reports_feed(struct reports *r, const char *data, size_t n);
/* Hands over what is held back: the stream has ended. */
void reports_flush(struct reports *r);
