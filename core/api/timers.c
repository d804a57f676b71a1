#include "api/timers.h"

#include "base/str.h"

struct timers {
    uv_timer_t uv;
    struct list set; /* by due time */
};

static void freed(uv_handle_t *h)
{
    free(h->data);
}

static void run_due(uv_timer_t *uv);

static void arm(struct timers *ts)
{
    const struct timer *first;
    uint64_t now = now_ms();

    if (list_empty(&ts->set)) {
        uv_timer_stop(&ts->uv);
        return;
    }
    first = container_of(ts->set.next, struct timer, link);
    uv_update_time(ts->uv.loop);
    uv_timer_start(&ts->uv, run_due, first->due > now ? first->due - now : 0, 0);
}

static void run_due(uv_timer_t *uv)
{
    struct timers *ts = uv->data;
    struct list due;
    uint64_t now = now_ms();

    /* One that is set anew by what runs here waits for the next turn. */
    list_init(&due);
    list_each_safe(it, &ts->set)
    {
        if (container_of(it, struct timer, link)->due > now)
            break;
        list_remove(it);
        list_add(&due, it);
    }
    arm(ts);
    while (!list_empty(&due)) {
        struct timer *t = container_of(due.next, struct timer, link);

        list_remove(&t->link);
        t->run(t);
    }
}

int timers_new(uv_loop_t *loop, struct timers **out)
{
    struct timers *ts = calloc(1, sizeof *ts);
    int r;

    if (!ts)
        return -ENOMEM;
    r = uv_timer_init(loop, &ts->uv);
    if (r < 0) {
        free(ts);
        return r;
    }
    ts->uv.data = ts;
    list_init(&ts->set);
    *out = ts;
    return 0;
}

void timers_free(struct timers *ts)
{
    list_each_safe(it, &ts->set) list_remove(it);
    uv_close((uv_handle_t *)&ts->uv, freed);
}

void timer_init(struct timer *t, void (*run)(struct timer *t))
{
    *t = (struct timer){ .run = run };
    list_init(&t->link);
}

void timer_set(struct timers *ts, struct timer *t, uint64_t ms)
{
    struct list *at;

    list_remove(&t->link);
    t->due = now_ms() + ms;
    for (at = ts->set.prev; at != &ts->set; at = at->prev)
        if (container_of(at, struct timer, link)->due <= t->due)
            break;
    list_add(at->next, &t->link); /* before the one after `at` */
    if (ts->set.next == &t->link)
        arm(ts);
}

void timer_clear(struct timer *t)
{
    list_remove(&t->link);
}

bool timer_is_set(const struct timer *t)
{
    return !list_empty(&t->link);
}
