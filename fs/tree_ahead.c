/* fs/tree_ahead.c: answers that are known ahead, so that `ls -l` is one exec and not thousands.
 *
 * Who listed a directory gets the attributes of its entries from that listing: each for a second
 * after it asked for the first time (ls looks a name up thrice), and the next one no later than a
 * second after the last. A directory on the way to a file is not asked for again by
 * the same process for a second, and a look-up answers the getattr behind it. Nothing of this
 * outlives a change, a script's text or end, or a ctl command (machine_changed()): look-ups see
 * what an exec did. READDIRPLUS would not do: the kernel asks again for entries whose time-out is
 * 0, and with another one it would not see what a script did. */
#include "tree.h"

#define AHEAD_MS 1000
#define ENTRIES_MAX 100000 /* of one machine */

struct ahead_entry {
    const char *name; /* in `names` */
    struct stat st;
    uint64_t used_ms; /* for the first time; 0: never */
};

struct ahead {
    struct list link; /* in root->ahead, the newest last */
    fuse_ino_t dir;   /* node numbers are never used twice */
    pid_t pid;
    uint64_t changes, used_ms;
    size_t count;
    struct ahead_entry *entries; /* sorted */
    char *names;
};

static void drop(struct tree_root *root, struct ahead *a)
{
    root->ahead_entries -= a->count;
    list_remove(&a->link);
    free(a->entries);
    free(a->names);
    free(a);
}

void ahead_clear(struct tree_root *root)
{
    while (!list_empty(&root->ahead))
        drop(root, container_of(root->ahead.next, struct ahead, link));
}

static bool valid(const struct node *n, uint64_t changes, uint64_t since_ms)
{
    return changes == fsmachine(n->machine)->changes && now_ms() - since_ms < AHEAD_MS;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ahead_entry *)a)->name, ((const struct ahead_entry *)b)->name);
}

static int copy(struct ahead *a, const struct boxd_list_entry *entries, size_t count)
{
    size_t bytes = 0;
    char *p;

    for (size_t i = 0; i < count; i++)
        bytes += strlen(entries[i].name) + 1;
    a->entries = calloc(count, sizeof *a->entries);
    a->names = p = malloc(bytes);
    if (!a->entries || !p)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(entries[i].name) + 1;

        memcpy(p, entries[i].name, n);
        a->entries[i] = (struct ahead_entry){ .name = p, .st = entries[i].st };
        p += n;
    }
    a->count = count;
    qsort(a->entries, count, sizeof *a->entries, by_name);
    return 0;
}

/* Makes room: what nobody can use any more goes, then the oldest. */
static void make_room(struct tree_root *root, struct node *dir, pid_t pid, size_t count)
{
    list_each_safe(it, &root->ahead)
    {
        struct ahead *a = container_of(it, struct ahead, link);

        if (!valid(&root->tree.node, a->changes, a->used_ms) ||
            (a->dir == dir->id && a->pid == pid) || root->ahead_entries + count > ENTRIES_MAX)
            drop(root, a);
    }
}

void ahead_keep(struct node *dir, pid_t pid, uint64_t changes,
                const struct boxd_list_entry *entries, size_t count)
{
    struct tree_root *root = tree_root_of(dir);
    struct ahead *a;

    if (!pid || !count || count > ENTRIES_MAX || changes != fsmachine(dir->machine)->changes)
        return;
    make_room(root, dir, pid, count);
    a = calloc(1, sizeof *a);
    if (!a)
        return;
    *a = (struct ahead){ .dir = dir->id, .pid = pid, .changes = changes, .used_ms = now_ms() };
    list_init(&a->link);
    if (copy(a, entries, count) < 0)
        a->count = 0;
    root->ahead_entries += a->count;
    list_add(&root->ahead, &a->link);
    if (!a->count)
        drop(root, a);
}

static bool from_listing(struct node *dir, const char *name, pid_t pid, struct stat *st,
                         bool *first)
{
    struct tree_root *root = tree_root_of(dir);

    list_each(it, &root->ahead)
    {
        struct ahead *a = container_of(it, struct ahead, link);
        struct ahead_entry key = { .name = name }, *e;

        if (a->dir != dir->id || a->pid != pid || !valid(dir, a->changes, a->used_ms))
            continue;
        e = bsearch(&key, a->entries, a->count, sizeof *a->entries, by_name);
        *first = e && !e->used_ms;
        if (!e || (!*first && now_ms() - e->used_ms >= AHEAD_MS))
            return false;
        a->used_ms = now_ms();
        if (*first)
            e->used_ms = a->used_ms;
        *st = e->st;
        return true;
    }
    return false;
}

bool ahead_lookup(struct node *dir, const char *name, pid_t pid, struct stat *st, bool *first)
{
    struct node *known = node_child(dir, name);
    struct tree_node *n = known && known->ops == &tree_ops ? tree_of(known) : NULL;

    *first = false;
    if (!pid || !dir->machine->ready || dir->machine->gone)
        return false;
    /* older attributes must not reach whoever has the file open */
    if (n && n->data)
        return false;
    if (n && S_ISDIR(n->last.st_mode) && n->seen_by == pid &&
        valid(known, n->seen_changes, n->seen_ms)) {
        *st = n->last;
        return true;
    }
    return from_listing(dir, name, pid, st, first);
}

void ahead_seen(struct tree_node *n, pid_t pid, uint64_t changes)
{
    n->seen_by = pid;
    n->seen_changes = changes;
    n->seen_ms = now_ms();
    n->attr_ahead = pid != 0;
}

bool ahead_attr(struct tree_node *n, pid_t pid)
{
    struct boxd_machine *m = n->node.machine;

    if (!n->attr_ahead || n->seen_by != pid || !m->ready || m->gone ||
        !valid(&n->node, n->seen_changes, n->seen_ms))
        return false;
    n->attr_ahead = false;
    return true;
}
