#include "base/base.h"

#include "rpc/later.h"

static void run_items(uv_idle_t *idle)
{
    struct later_queue *q = idle->data;
    struct list now;

    list_init(&now);
    if (!list_empty(&q->items)) {
        list_add(&q->items, &now);
        list_remove(&q->items);
    }
    uv_idle_stop(idle);
    while (!list_empty(&now)) {
        struct later *item = container_of(now.next, struct later, link);

        list_remove(&item->link);
        item->run(item);
    }
}

int later_queue_init(struct later_queue *q, uv_loop_t *loop)
{
    list_init(&q->items);
    q->idle.data = q;
    return uv_idle_init(loop, &q->idle);
}

static void queue_closed(uv_handle_t *h)
{
    struct later_queue *q = h->data;

    q->released(q->arg);
}

void later_queue_close(struct later_queue *q, void (*released)(void *arg), void *arg)
{
    while (!list_empty(&q->items))
        list_remove(q->items.next);
    q->released = released;
    q->arg = arg;
    uv_close((uv_handle_t *)&q->idle, queue_closed);
}

void later_init(struct later *item, void (*run)(struct later *item))
{
    list_init(&item->link);
    item->run = run;
}

void later_add(struct later_queue *q, struct later *item)
{
    if (!list_empty(&item->link) || uv_is_closing((uv_handle_t *)&q->idle))
        return;
    list_add(&q->items, &item->link);
    uv_idle_start(&q->idle, run_items);
}

void later_cancel(struct later *item)
{
    list_remove(&item->link);
}
