/* Asks the service for its machines: when told, and by itself while somebody looks. Creating and
 * destroying are here too, because they make a list that is on its way outdated. */
#include "machine/set.h"

#include <boxd/error.h>
#include <boxd/log.h>

#include "base/str.h"

#define INTERVAL_MS 4000u
#define INTERVAL_MAX_MS 60000u
#define USED_MS 60000u

struct refresh {
    struct boxd_call call;
    struct boxd_machines *set;
    struct list link;
    boxd_done *done;
    void *arg;
};

static bool start(struct boxd_machines *s);

static void refresh_end(struct refresh *f, int r)
{
    boxd_done *done = f->done;
    void *arg = f->arg;

    list_remove(&f->link);
    call_remove(&f->call);
    free(f);
    done(arg, r);
}

static void refresh_cancel(struct boxd_call *call)
{
    refresh_end(container_of(call, struct refresh, call), -ECANCELED);
}

static void plan(struct boxd_machines *s)
{
    uint64_t now = now_ms();

    if (!s->used_at)
        return;
    if (now - s->used_at <= USED_MS)
        s->interval = INTERVAL_MS;
    else
        s->interval = s->interval * 2 < INTERVAL_MAX_MS ? s->interval * 2 : INTERVAL_MAX_MS;
    timer_set(s->client->timers, &s->refresh_timer, s->interval);
}

/* Answers those that wait. They may free the set: nothing of it is touched afterwards. */
static void answer_all(struct boxd_machines *s, int r)
{
    struct list waiting;
    char words[512];

    snprintf(words, sizeof words, "%s", boxd_error_words(r));
    list_init(&waiting);
    list_each_safe(it, &s->refreshes)
    {
        list_remove(it);
        list_add(&waiting, it);
    }
    while (!list_empty(&waiting)) {
        if (r < 0)
            boxd_words(r, "%s", words);
        refresh_end(container_of(waiting.next, struct refresh, link), r);
    }
}

static void listed(void *arg, int r, const struct boxd_machine_info *const *machines, size_t count)
{
    struct boxd_machines *s = arg;

    s->list_call = NULL;
    if (r == -ECANCELED) /* the client goes; those who wait are told by it */
        return;
    if (r >= 0 && s->outdated && start(s))
        return;
    if (r >= 0)
        r = set_merge(s, machines, count);
    if (r >= 0)
        s->listed_at = now_ms();
    else
        boxd_log(BOXD_LOG_ERROR, "%s", boxd_error_words(r));
    plan(s);
    answer_all(s, r);
}

static bool start(struct boxd_machines *s)
{
    s->outdated = false;
    timer_clear(&s->refresh_timer);
    s->list_call = boxd_list(s->client, NULL, 0, listed, s);
    return s->list_call != NULL;
}

static void timer_ran(struct timer *t)
{
    struct boxd_machines *s = container_of(t, struct boxd_machines, refresh_timer);

    if (!s->list_call && !start(s))
        plan(s);
}

void refresh_init(struct boxd_machines *s)
{
    list_init(&s->refreshes);
    timer_init(&s->refresh_timer, timer_ran);
    s->interval = INTERVAL_MS;
}

struct boxd_call *boxd_machines_refresh(struct boxd_machines *s, boxd_done *done, void *arg)
{
    struct refresh *f = calloc(1, sizeof *f);

    if (!f)
        return NULL;
    if (!s->list_call && !start(s)) {
        free(f);
        return NULL;
    }
    f->set = s;
    f->done = done;
    f->arg = arg;
    list_add(&s->refreshes, &f->link);
    call_init(&f->call, s->client, refresh_cancel);
    return &f->call;
}

uint64_t boxd_machines_touch(struct boxd_machines *s)
{
    uint64_t now = now_ms(), age = s->known ? now - s->listed_at : UINT64_MAX;
    bool resting = !s->used_at || s->interval > INTERVAL_MS;

    s->used_at = now;
    if (resting && !s->list_call) {
        s->interval = INTERVAL_MS;
        timer_set(s->client->timers, &s->refresh_timer, age < INTERVAL_MS ? INTERVAL_MS - age : 0);
    }
    return age;
}

/* ---- changes -----------------------------------------------------------------------------------
 */

struct change {
    struct boxd_call call;
    struct list link;
    struct boxd_machines *set;
    struct boxd_call *inner;
    struct member *member; /* to destroy, with a reference */
    boxd_machines_created *created;
    boxd_done *destroyed;
    void *arg;
};

static struct change *change_new(struct boxd_machines *s, void *arg,
                                 void (*cancel)(struct boxd_call *call))
{
    struct change *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    h->set = s;
    h->arg = arg;
    list_add(&s->changes, &h->link);
    call_init(&h->call, s->client, cancel);
    return h;
}

static void change_free(struct change *h)
{
    list_remove(&h->link);
    call_remove(&h->call);
    if (h->member)
        boxd_machine_unref(&h->member->m);
    free(h);
}

static void change_cancel(struct boxd_call *call)
{
    boxd_call_cancel(container_of(call, struct change, call)->inner);
}

static int add_created(struct boxd_machines *s, const struct boxd_created *c, struct member **out)
{
    struct boxd_machine_info info = { .id = c->id,
                                      .name = c->name,
                                      .image = c->image,
                                      .status = c->status,
                                      .restart_policy = "",
                                      .source = "",
                                      .public_ip = c->public_ip,
                                      .org = "" };

    *out = set_find_id(s, c->id); /* a list was faster */
    if (*out)
        return 0;
    if (!plain_file_name(c->id))
        return boxd_words(-EIO, "cannot create machine '%s': the service gave it an unusable id",
                          c->name);
    *out = member_new(s, &info);
    return *out ? set_insert(s, out, 1, true) : -ENOMEM;
}

static void created(void *arg, int r, const struct boxd_created *c)
{
    struct change *h = arg;
    struct boxd_machines *s = h->set;
    boxd_machines_created *done = h->created;
    struct member *b = NULL;

    arg = h->arg;
    if (r >= 0) {
        s->outdated = true;
        r = add_created(s, c, &b);
    }
    change_free(h);
    done(arg, r, r < 0 ? NULL : &b->m);
}

struct boxd_call *boxd_machines_create(struct boxd_machines *s, const struct boxd_create_options *o,
                                       boxd_machines_created *done, void *arg)
{
    struct change *h = change_new(s, arg, change_cancel);

    if (!h)
        return NULL;
    h->created = done;
    h->inner = boxd_create(s->client, o, created, h);
    if (h->inner)
        return &h->call;
    change_free(h);
    return NULL;
}

static void destroyed(void *arg, int r)
{
    struct change *h = arg;
    boxd_done *done = h->destroyed;

    arg = h->arg;
    if (r >= 0 || r == -ENOENT) {
        char words[512];

        snprintf(words, sizeof words, "%s", boxd_error_words(r));
        h->set->outdated = true;
        set_drop(h->set, h->member);
        if (r < 0)
            boxd_words(r, "%s", words);
    }
    change_free(h);
    done(arg, r);
}

struct boxd_call *boxd_machines_destroy(struct boxd_machines *s, struct boxd_machine *m,
                                        boxd_done *done, void *arg)
{
    struct change *h = change_new(s, arg, change_cancel);

    if (!h)
        return NULL;
    h->destroyed = done;
    h->member = member_of(boxd_machine_ref(m));
    h->inner = boxd_destroy(s->client, m->id, destroyed, h);
    if (h->inner)
        return &h->call;
    change_free(h);
    return NULL;
}

void refresh_stop(struct boxd_machines *s)
{
    timer_clear(&s->refresh_timer);
    if (s->list_call)
        boxd_call_cancel(s->list_call);
    while (!list_empty(&s->refreshes))
        refresh_end(container_of(s->refreshes.next, struct refresh, link), -ECANCELED);
    while (!list_empty(&s->changes))
        change_cancel(&container_of(s->changes.next, struct change, link)->call);
}
