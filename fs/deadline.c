/* fs/deadline.c: no file operation waits for ever on a machine that does not answer. A wait that
 * has a deadline ends with -ETIMEDOUT; whoever sees progress sets the deadline anew. */
#include "fs.h"

#include "deadline.h"

#define LOOK_MS 250

/* Cancelling one op may answer others, so the walk starts again after each. */
static bool end_one(struct mount *mnt, bool *waiting)
{
    uint64_t now = now_ms();

    *waiting = false;
    list_each(it, &mnt->ops)
    {
        struct op *op = container_of(it, struct op, link);

        if (!op->cancel || !op->deadline_ms)
            continue;
        *waiting = true;
        if (now < op->deadline_ms)
            continue;
        op->late = true;
        op_cancel(op);
        return true;
    }
    return false;
}

static void look(uv_timer_t *timer)
{
    struct mount *mnt = timer->data;
    bool waiting;

    while (end_one(mnt, &waiting))
        ;
    if (!waiting)
        uv_timer_stop(timer);
}

int deadlines_init(struct mount *mnt)
{
    int r = uv_timer_init(&mnt->loop, &mnt->deadlines);

    mnt->deadlines.data = mnt;
    return r;
}

void op_deadline(struct op *op)
{
    uv_timer_t *timer = &op->mnt->deadlines;

    op->deadline_ms = now_ms() + op->mnt->opt.op_timeout_ms;
    if (!uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, look, LOOK_MS, LOOK_MS);
}
