/* What the service lists becomes the set: appeared, changed, vanished. */
#include "machine/set.h"

#include <boxd/log.h>

static int by_id(const void *a, const void *b)
{
    return strcmp((*(struct member *const *)a)->info->id, (*(struct member *const *)b)->info->id);
}

/* New objects for what the set does not have, at most one for an id. */
static size_t appeared(struct boxd_machines *s, const struct boxd_machine_info *const *list,
                       size_t count, struct member **out)
{
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < count; i++) {
        struct member *b;

        /* An id is the last resort for a name, so an odd one cannot be shown at all. */
        if (!plain_file_name(list[i]->id) || set_find_id(s, list[i]->id))
            continue;
        b = member_new(s, list[i]);
        if (b)
            out[n++] = b;
    }
    if (n)
        qsort(out, n, sizeof *out, by_id);
    for (size_t i = 0; i < n; i++) {
        if (kept && !strcmp(out[kept - 1]->info->id, out[i]->info->id))
            boxd_machine_unref(&out[i]->m);
        else
            out[kept++] = out[i];
    }
    return kept;
}

/* Updates what is listed and returns the others, each with a reference. */
static size_t compare(struct boxd_machines *s, const struct boxd_machine_info *const *list,
                      size_t count, struct member **vanished)
{
    size_t n = 0;

    for (size_t i = 0; i < s->count; i++)
        s->by_id[i]->listed = false;
    for (size_t i = 0; i < count; i++) {
        struct member *b = set_find_id(s, list[i]->id);

        if (!b || b->listed)
            continue;
        b->listed = true;
        if (member_update(b, list[i]) < 0)
            boxd_log(BOXD_LOG_ERROR, "no memory for what is new about machine '%s'", b->shown);
    }
    for (size_t i = 0; i < s->count; i++)
        if (!s->by_id[i]->listed)
            vanished[n++] = member_of(boxd_machine_ref(&s->by_id[i]->m));
    return n;
}

int set_merge(struct boxd_machines *s, const struct boxd_machine_info *const *list, size_t count)
{
    _cleanup_free_ struct member **vanished = calloc(s->count + 1, sizeof(struct member *));
    _cleanup_free_ struct member **fresh = NULL;
    size_t n;
    int r;

    if (count > MACHINES_MAX) {
        boxd_log(BOXD_LOG_ERROR, "the service lists %zu machines; the first %d are shown", count,
                 MACHINES_MAX);
        count = MACHINES_MAX;
    }
    fresh = calloc(count + 1, sizeof *fresh);
    if (!vanished || !fresh)
        return -ENOMEM;
    /* Those that went free their names for those that came. */
    n = compare(s, list, count, vanished);
    for (size_t i = 0; i < n; i++) {
        set_drop(s, vanished[i]);
        boxd_machine_unref(&vanished[i]->m);
    }
    n = appeared(s, list, count, fresh);
    r = n ? set_insert(s, fresh, n, s->known) : 0;
    s->known = true;
    return r;
}
