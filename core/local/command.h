/* local/command.h: a command in a machine with its input and outputs as byte streams, with flow
 * control both ways. Knows no RPC.
 *
 * `done` runs once and is the last callback; the handle dies when it returns, or in
 * command_cancel(). It runs when the command has ended and what it wrote was delivered; processes
 * that it left behind and that hold the pipes are not waited for. */
#pragma once

#include "local/vm.h"

#define COMMAND_INPUT_HIGH ((size_t)256 * 1024)

struct command;

struct command_spec {
    const char *const *argv; /* NULL-ended */
    bool tty;
    uint32_t cols, rows;
};

struct command_handlers {
    /* fd 1 or 2. May call command_pause() and command_cancel(). */
    void (*output)(void *arg, int fd, const void *data, size_t n);
    /* command_write() returned more than COMMAND_INPUT_HIGH and now less waits. */
    void (*drained)(void *arg);
    /* r = 0 and the exit code, or -ESHUTDOWN with words: the machine went away under it. */
    void (*done)(void *arg, int r, int exit_code);
};

/* The machine must run. 0 or a negative errno with words; nothing runs before it returned. */
int command_start(struct vm *vm, const struct command_spec *spec, const struct command_handlers *h,
                  void *arg, struct command **out);
/* Queues input (copied): bytes waiting, or -ENOMEM. Ignored when the command reads no more. */
ssize_t command_write(struct command *j, const void *data, size_t n);
void command_eof(struct command *j);
/* While paused no output is read. */
void command_pause(struct command *j, bool paused);
void command_resize(struct command *j, uint32_t cols, uint32_t rows);
/* Nobody is interested any more: TERM to the command and its descendants, KILL 2 s later. No
 * callback runs. */
void command_cancel(struct command *j);
/* For vm.c: the machine goes away; ends every command in it. */
void command_lose_all(struct vm *vm, const char *why);
