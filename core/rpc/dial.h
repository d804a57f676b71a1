/* rpc/dial.h: from a target to a connected socket, without blocking. Addresses are tried in turn.
 *
 * Life: `done` runs once from the loop, with a socket (the callee's then) or a negative errno with
 * words; dial_cancel() instead ends it without. `released` is the last use of the memory. */
#pragma once

#include "base/base.h"
#include "rpc/rpc.h"
#include <sys/socket.h>

struct dial {
    uv_loop_t *loop;
    const struct rpc_target *target; /* outlives the dial */
    void (*done)(struct dial *d, int fd_or_error);
    void (*released)(struct dial *d);
    uv_getaddrinfo_t resolve;
    uv_poll_t poll;
    uv_timer_t timer; /* one attempt's share of the time */
    struct addrinfo *list, *next;
    uint64_t attempt_ms;
    int fd, last_error;
    bool resolving, polling, over;
    unsigned handles; /* uv things that still use the memory */
};

int dial_start(struct dial *d, uv_loop_t *loop, const struct rpc_target *target,
               uint64_t timeout_ms);
void dial_cancel(struct dial *d);
