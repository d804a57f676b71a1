/* Waiting for a machine to answer: GetVm until it runs, then Exec of `true` until it succeeds.
 * All who wait for a machine share one such way; it ends with the last of them. */
#include "machine/set.h"

#include <boxd/error.h>
#include <boxd/exec.h>

#define TIMEOUT_MS 180000u
#define DELAY_MIN_MS 50
#define DELAY_MAX_MS 500
#define PROBE_TIMEOUT_MS 30000u
#define PROBE_OUTPUT_MAX 4096

struct wait {
    struct boxd_call call;
    struct list link;
    struct member *member; /* a reference */
    struct timer timer;    /* the end of patience, or the result below */
    uint32_t timeout_ms;
    bool settled;
    int result;
    char *words;
    boxd_done *done;
    void *arg;
};

static void ask(struct member *b);

/* ---- those who wait ----------------------------------------------------------------------------
 */

static void wait_end(struct wait *w, int r)
{
    boxd_done *done = w->done;
    void *arg = w->arg;
    struct member *b = w->member;

    if (r < 0 && w->words)
        boxd_words(r, "%s", w->words);
    list_remove(&w->link);
    timer_clear(&w->timer);
    call_remove(&w->call);
    free(w->words);
    free(w);
    done(arg, r);
    boxd_machine_unref(&b->m);
}

/* When nobody waits any more, nothing more is asked. A GetVm under way may still answer. */
static void wait_leave(struct wait *w, int r)
{
    struct member *b = w->member;

    list_remove(&w->link);
    if (list_empty(&b->waits)) {
        timer_clear(&b->poll_timer);
        if (b->probing)
            boxd_call_cancel(b->probing);
    }
    wait_end(w, r);
}

static void wait_call_cancel(struct boxd_call *call)
{
    wait_leave(container_of(call, struct wait, call), -ECANCELED);
}

static void wait_timer_ran(struct timer *t)
{
    struct wait *w = container_of(t, struct wait, timer);

    if (w->settled)
        wait_end(w, w->result);
    else
        wait_leave(w,
                   boxd_words(-ETIMEDOUT, "machine '%s' is not ready after %.1f s (it is %s)",
                              w->member->shown, w->timeout_ms / 1000.0, w->member->info->status));
}

/* Gives one its result, with the words remembered for it, on the loop's next turn. */
static void wait_settle(struct wait *w, int r)
{
    w->settled = true;
    w->result = r;
    if (r < 0)
        w->words = strdup(boxd_error_words(r));
    timer_set(w->call.client->timers, &w->timer, 0);
}

/* The same for all; they may free the set, so not now. */
static void settle(struct member *b, int r)
{
    while (!list_empty(&b->waits)) {
        struct wait *w = container_of(b->waits.next, struct wait, link);

        list_remove(&w->link);
        list_add(&b->settled, &w->link);
        wait_settle(w, r);
    }
}

static void stop_asking(struct member *b)
{
    timer_clear(&b->poll_timer);
    b->ask_again = false;
    if (b->asking)
        boxd_call_cancel(b->asking);
    if (b->probing)
        boxd_call_cancel(b->probing);
}

void wait_fail(struct member *b, int r)
{
    settle(b, r);
    stop_asking(b);
}

void wait_cancel(struct member *b)
{
    boxd_machine_ref(&b->m);
    stop_asking(b);
    settle(b, -ECANCELED);
    while (!list_empty(&b->settled))
        wait_end(container_of(b->settled.next, struct wait, link), -ECANCELED);
    boxd_machine_unref(&b->m);
}

/* ---- the way to readiness ----------------------------------------------------------------------
 */

static void poll_timer_ran(struct timer *t)
{
    ask(container_of(t, struct member, poll_timer));
}

void wait_init(struct member *b)
{
    list_init(&b->waits);
    list_init(&b->settled);
    timer_init(&b->poll_timer, poll_timer_ran);
}

static void ask_later(struct member *b)
{
    timer_set(b->m.set->client->timers, &b->poll_timer, b->poll_delay);
    b->poll_delay += b->poll_delay / 2;
    if (b->poll_delay > DELAY_MAX_MS)
        b->poll_delay = DELAY_MAX_MS;
}

/* The machine cannot become ready: WHY is kept for whoever asks later. */
static void failed(struct member *b, const char *why)
{
    char *copy = strdup(why), event[512];
    bool news = !b->m.failure || strcmp(b->m.failure, why);

    snprintf(event, sizeof event, "failed: %s", why);
    if (copy) {
        free(b->m.failure);
        b->m.failure = copy;
    }
    if (news)
        set_event(b->m.set, b, event);
    settle(b, boxd_words(-EIO, "machine '%s' failed to start: %s", b->shown, why));
}

/* The service's own words out of "cannot run a command in machine 'ID': machine 'dev' failed to
 * start: WORDS". */
static const char *reason(const char *words)
{
    static const char *const prefixes[] = { "': ", "failed to start: " };

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        const char *at = strstr(words, prefixes[i]);

        if (at)
            words = at + strlen(prefixes[i]);
    }
    return words;
}

/* A machine that is starting or waking, or a service that is busy with it, may say these. */
static bool passing(int r)
{
    return r == -EBUSY || r == -EHOSTUNREACH || r == -ECONNRESET || r == -ETIMEDOUT;
}

static void probed(void *arg, int r, int exit_code, const void *out, size_t out_len,
                   const void *err, size_t err_len)
{
    struct member *b = arg;

    b->probing = NULL;
    if (r >= 0 && exit_code == 0) {
        b->m.ready = true;
        settle(b, 0);
    } else if (r == -ECANCELED || list_empty(&b->waits)) {
        /* nobody wants to know */
    } else if (!strcmp(b->info->status, "failed")) {
        failed(b, r < 0 ? reason(boxd_error_words(r)) : "no command can run in it");
    } else if (r == -ENOENT) {
        set_drop(b->m.set, b);
    } else if (r >= 0 || passing(r)) {
        ask_later(b);
    } else {
        settle(b, r);
    }
    boxd_machine_unref(&b->m);
}

static void probe(struct member *b)
{
    if (b->probing)
        return;
    b->probing = boxd_run(b->m.set->client, b->m.id, "true", NULL, 0, PROBE_OUTPUT_MAX,
                          PROBE_TIMEOUT_MS, probed, b);
    if (b->probing)
        boxd_machine_ref(&b->m);
    else
        settle(b, -ENOMEM);
}

static void resumed(void *arg, int r, int64_t microseconds)
{
    struct member *b = arg;

    b->asking = NULL;
    if (r == -ENOENT)
        set_drop(b->m.set, b);
    else if (r == -EBUSY)
        ask_later(b);
    else if (r < 0 && r != -ECANCELED)
        settle(b, r);
    else if (r >= 0)
        ask(b);
    boxd_machine_unref(&b->m);
}

static void resume(struct member *b)
{
    b->asking = boxd_resume(b->m.set->client, b->m.id, resumed, b);
    if (b->asking)
        boxd_machine_ref(&b->m);
    else
        settle(b, -ENOMEM);
}

static void stopped(struct member *b)
{
    settle(b, boxd_words(-EBUSY, "machine '%s' is stopped (write 'start' to its ctl)", b->shown));
}

static void vanished(struct member *b)
{
    set_drop(b->m.set, b);
}

/* What a status means to those who wait; any other may still change by itself. */
static const struct {
    const char *status;
    void (*next)(struct member *b);
} statuses[] = {
    { "running", probe },      { "hibernated", probe }, /* a command wakes it */
    { "suspended", resume },   { "stopped", stopped },
    { "failed", probe }, /* the refusal says why */
    { "destroyed", vanished },
};

static void proceed(struct member *b)
{
    if (b->ask_again) {
        b->ask_again = false;
        ask(b);
        return;
    }
    if (list_empty(&b->waits))
        return;
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++)
        if (!strcmp(statuses[i].status, b->info->status)) {
            statuses[i].next(b);
            return;
        }
    ask_later(b);
}

static void answered(void *arg, int r, const struct boxd_machine_info *info)
{
    struct member *b = arg;

    b->asking = NULL;
    if (r >= 0 && strcmp(info->id, b->m.id))
        r = boxd_words(-EIO, "the service answered for another machine than '%s'", b->shown);
    if (r >= 0)
        r = member_update(b, info);
    if (r == -ENOENT)
        set_drop(b->m.set, b);
    else if (r < 0 && r != -ECANCELED)
        settle(b, r);
    else if (r >= 0)
        proceed(b);
    boxd_machine_unref(&b->m);
}

static void ask(struct member *b)
{
    if (b->asking || b->m.gone)
        return;
    timer_clear(&b->poll_timer);
    b->asking = boxd_get(b->m.set->client, b->m.id, answered, b);
    if (b->asking)
        boxd_machine_ref(&b->m);
    else
        settle(b, -ENOMEM);
}

/* ---- the embedder's side -----------------------------------------------------------------------
 */

void boxd_machine_stale(struct boxd_machine *m)
{
    struct member *b = member_of(m);

    m->ready = false;
    if (m->gone || !m->set)
        return;
    if (b->asking)
        b->ask_again = true;
    else
        ask(b);
}

struct boxd_call *boxd_machine_wait(struct boxd_machine *m, uint32_t timeout_ms, boxd_done *done,
                                    void *arg)
{
    struct member *b = member_of(m);
    struct wait *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    *w = (struct wait){ .member = b, .done = done, .arg = arg };
    w->timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS;
    list_init(&w->link);
    timer_init(&w->timer, wait_timer_ran);
    boxd_machine_ref(m);
    call_init(&w->call, m->set->client, wait_call_cancel);
    if (m->gone || m->ready) {
        list_add(&b->settled, &w->link);
        wait_settle(w, m->ready ? 0 : boxd_words(-EIO, "machine '%s' was destroyed", b->shown));
        return &w->call;
    }
    timer_set(w->call.client->timers, &w->timer, w->timeout_ms);
    list_add(&b->waits, &w->link);
    if (!b->asking && !b->probing && !timer_is_set(&b->poll_timer)) {
        b->poll_delay = DELAY_MIN_MS;
        ask(b);
    }
    return &w->call;
}
