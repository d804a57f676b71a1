/* api/timers.h: many timers behind one uv handle, so that what owns a timer can be freed at once.
 *
 * A timer that is set runs once, never from inside timer_set(); 0 ms means the loop's next turn.
 * Threads: the loop's thread. */
#pragma once

#include "base/base.h"
#include "base/list.h"
#include <uv.h>

struct timers;

struct timer {
    struct list link;
    uint64_t due;
    void (*run)(struct timer *t);
};

int timers_new(uv_loop_t *loop, struct timers **out);
/* Timers that are still set never run. The uv handle finishes closing on the loop. */
void timers_free(struct timers *ts);

void timer_init(struct timer *t, void (*run)(struct timer *t));
/* Sets it, or sets it anew. */
void timer_set(struct timers *ts, struct timer *t, uint64_t ms);
void timer_clear(struct timer *t);
bool timer_is_set(const struct timer *t);
