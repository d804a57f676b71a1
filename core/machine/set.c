#include "machine/set.h"

#include <boxd/error.h>

bool plain_file_name(const char *name)
{
    size_t n = strlen(name);

    if (!n || n > 255 || name[0] == '.' || !strcmp(name, "ctl"))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f || name[i] == '/')
            return false;
    return true;
}

void set_event(struct boxd_machines *s, struct member *b, const char *text)
{
    if (s->handlers.event)
        s->handlers.event(s->arg, &b->m, text);
}

void set_changed(struct boxd_machines *s, struct member *b)
{
    if (s->handlers.changed)
        s->handlers.changed(s->arg, &b->m);
}

/* ---- objects -----------------------------------------------------------------------------------
 */

static void member_free(struct member *b)
{
    list_remove(&b->link);
    boxd_machine_info_free(b->info);
    free(b->m.failure);
    free(b->shown);
    free(b);
}

struct member *member_new(struct boxd_machines *s, const struct boxd_machine_info *info)
{
    struct member *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    list_init(&b->link);
    b->info = boxd_machine_info_dup(info);
    b->shown = strdup(info->id);
    if (!b->info || !b->shown) {
        member_free(b);
        return NULL;
    }
    b->m = (struct boxd_machine){
        .id = b->info->id, .shown = b->shown, .info = b->info, .refs = 1, .set = s
    };
    wait_init(b);
    list_add(&s->members, &b->link);
    return b;
}

struct boxd_machine *boxd_machine_ref(struct boxd_machine *m)
{
    m->refs++;
    return m;
}

void boxd_machine_unref(struct boxd_machine *m)
{
    struct boxd_machines *s = m->set;

    if (--m->refs)
        return;
    if (s && s->handlers.released)
        s->handlers.released(s->arg, m);
    member_free(member_of(m));
}

/* ---- the two orders ----------------------------------------------------------------------------
 */

static int compare_shown(const void *a, const void *b)
{
    return strcmp((*(struct member *const *)a)->shown, (*(struct member *const *)b)->shown);
}

static int compare_id(const void *a, const void *b)
{
    return strcmp((*(struct member *const *)a)->info->id, (*(struct member *const *)b)->info->id);
}

static int find_shown(const void *key, const void *b)
{
    return strcmp(key, (*(struct member *const *)b)->shown);
}

static int find_id(const void *key, const void *b)
{
    return strcmp(key, (*(struct member *const *)b)->info->id);
}

struct member *set_find_id(const struct boxd_machines *s, const char *id)
{
    struct member **b = s->count ? bsearch(id, s->by_id, s->count, sizeof *b, find_id) : NULL;

    return b ? *b : NULL;
}

static struct member *set_find_shown(const struct boxd_machines *s, const char *shown)
{
    struct member **b =
        s->count ? bsearch(shown, s->by_shown, s->count, sizeof *b, find_shown) : NULL;

    return b ? *b : NULL;
}

static void remove_from(struct member **v, size_t n, const struct member *b)
{
    for (size_t i = 0; i < n; i++)
        if (v[i] == b) {
            memmove(v + i, v + i + 1, (n - i - 1) * sizeof *v);
            return;
        }
}

static bool taken(const struct boxd_machines *s, const char *name, const struct member *b)
{
    const struct member *shown = set_find_shown(s, name), *id = set_find_id(s, name);

    return (shown && shown != b) || (id && id != b);
}

/* Moves a member to its place in the order of names. */
static void reorder(struct boxd_machines *s, struct member *b)
{
    size_t lo = 0, hi = s->count - 1;

    remove_from(s->by_shown, s->count, b);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (strcmp(s->by_shown[mid]->shown, b->shown) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(s->by_shown + lo + 1, s->by_shown + lo, (s->count - 1 - lo) * sizeof(struct member *));
    s->by_shown[lo] = b;
}

/* Gives a member its shown name: its own if that is a plain file name which nothing else has. */
static int set_name(struct boxd_machines *s, struct member *b)
{
    const char *want = b->info->name;
    char *copy;

    if (!plain_file_name(want) || taken(s, want, b))
        want = b->info->id;
    if (!strcmp(want, b->shown))
        return 0;
    copy = strdup(want);
    if (!copy)
        return -ENOMEM;
    free(b->shown);
    b->shown = copy;
    b->m.shown = copy;
    reorder(s, b);
    return 0;
}

/* A machine whose id is the name that another is shown by: the other gives way. */
static int give_way(struct boxd_machines *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct member *b = s->by_id[i];
        const struct member *other = set_find_id(s, b->shown);

        if (other && other != b && set_name(s, b) < 0)
            return -ENOMEM;
    }
    return 0;
}

int set_insert(struct boxd_machines *s, struct member **members, size_t count, bool tell)
{
    size_t n = s->count + count;
    struct member **shown = reallocarray(s->by_shown, n + 1, sizeof *shown), **id;
    int r;

    if (shown)
        s->by_shown = shown;
    id = reallocarray(s->by_id, n + 1, sizeof *id);
    if (id)
        s->by_id = id;
    if (!shown || !id) {
        for (size_t i = 0; i < count; i++)
            boxd_machine_unref(&members[i]->m);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++)
        shown[s->count + i] = id[s->count + i] = members[i];
    s->count = n;
    qsort(s->by_shown, n, sizeof *s->by_shown, compare_shown);
    qsort(s->by_id, n, sizeof *s->by_id, compare_id);
    r = give_way(s);
    for (size_t i = 0; i < count; i++)
        if (set_name(s, members[i]) < 0)
            r = -ENOMEM; /* it stays shown by its id */
    for (size_t i = 0; i < count; i++) {
        if (tell)
            set_event(s, members[i], "created");
        set_changed(s, members[i]);
    }
    return r;
}

void set_drop(struct boxd_machines *s, struct member *b)
{
    if (b->m.gone)
        return;
    remove_from(s->by_shown, s->count, b);
    remove_from(s->by_id, s->count, b);
    s->count--;
    b->m.gone = true;
    b->m.ready = false;
    set_event(s, b, "destroyed");
    set_changed(s, b);
    wait_fail(b, boxd_words(-EIO, "machine '%s' was destroyed", b->shown));
    boxd_machine_unref(&b->m);
}

static bool rebooted(const struct boxd_machine_info *was, const struct boxd_machine_info *is)
{
    return strcmp(is->status, "running") || (was->boot_time_ms != is->boot_time_ms);
}

static int keep_info(struct member *b, const struct boxd_machine_info *info)
{
    struct boxd_machine_info *copy = boxd_machine_info_dup(info);

    if (!copy)
        return -ENOMEM;
    boxd_machine_info_free(b->info);
    b->info = copy;
    b->m.info = copy;
    b->m.id = copy->id;
    return 0;
}

int member_update(struct member *b, const struct boxd_machine_info *info)
{
    struct boxd_machines *s = b->m.set;
    bool status = strcmp(b->info->status, info->status) != 0;
    bool name = strcmp(b->info->name, info->name) != 0;
    bool again = rebooted(b->info, info);
    int r = keep_info(b, info);

    if (r < 0)
        return r;
    if (again)
        b->m.ready = false;
    if (strcmp(info->status, "failed") && b->m.failure) {
        free(b->m.failure);
        b->m.failure = NULL;
    }
    r = set_name(s, b); /* also when an equal name became free */
    if (status)
        set_event(s, b, b->info->status);
    if (status || name)
        set_changed(s, b);
    return r;
}

/* ---- the embedder's side -----------------------------------------------------------------------
 */

int boxd_machines_new(struct boxd_client *c, const struct boxd_machines_handlers *h, void *arg,
                      struct boxd_machines **out)
{
    struct boxd_machines *s = calloc(1, sizeof *s);

    if (!s)
        return -ENOMEM;
    s->client = c;
    if (h)
        s->handlers = *h;
    s->arg = arg;
    list_init(&s->changes);
    list_init(&s->members);
    refresh_init(s);
    *out = s;
    return 0;
}

void boxd_machines_free(struct boxd_machines *s)
{
    struct list done;

    list_init(&done);
    refresh_stop(s);
    /* A wait that ends may let go of any machine. */
    while (!list_empty(&s->members)) {
        struct member *b = container_of(s->members.next, struct member, link);

        list_remove(&b->link);
        list_add(&done, &b->link);
        wait_cancel(b);
    }
    /* While the set is still known to them, so that `released` is told. */
    while (s->count)
        boxd_machine_unref(&s->by_id[--s->count]->m);
    list_each_safe(it, &done)
    {
        container_of(it, struct member, link)->m.set = NULL;
        list_remove(it);
    }
    free(s->by_shown);
    free(s->by_id);
    free(s);
}

struct boxd_machine *boxd_machines_find(struct boxd_machines *s, const char *shown)
{
    struct member *b = set_find_shown(s, shown);

    return b ? &b->m : NULL;
}

struct boxd_machine *boxd_machines_find_id(struct boxd_machines *s, const char *id)
{
    struct member *b = set_find_id(s, id);

    return b ? &b->m : NULL;
}

void boxd_machines_each(struct boxd_machines *s, bool (*each)(void *arg, struct boxd_machine *m),
                        void *arg)
{
    for (size_t i = 0; i < s->count; i++)
        if (!each(arg, &s->by_shown[i]->m))
            return;
}
