/* rpc/later.h: work put off to the loop, so that no callback runs inside the call that causes it.
 *
 * Life: an item is owned by its user, is in the queue at most once, and leaves it before it runs.
 * Items run on the next turn of the loop, in order; an item added meanwhile waits for the turn
 * after. Threads: the loop's thread. */
#pragma once

#include "base/base.h"
#include "base/list.h"
#include <uv.h>

struct later_queue {
    uv_idle_t idle; /* active only while something is queued */
    struct list items;
    void (*released)(void *arg);
    void *arg;
};

struct later {
    struct list link;
    void (*run)(struct later *item);
};

int later_queue_init(struct later_queue *q, uv_loop_t *loop);
/* Forgets what is queued; `released` runs on the loop when the queue's memory is free to go. */
void later_queue_close(struct later_queue *q, void (*released)(void *arg), void *arg);
void later_init(struct later *item, void (*run)(struct later *item));
void later_add(struct later_queue *q, struct later *item);
void later_cancel(struct later *item);
