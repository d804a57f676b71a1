/* fs/node.c: the table of nodes: numbers, names, counts.
 * Two hash tables that grow: by number, and by (parent, name). Nothing here talks to the kernel or
 * to a machine. */
#include "fs.h"

#define FIRST_BUCKETS 256 /* a power of two, as every later size */

struct node_table {
    struct list *by_id, *by_name;
    size_t buckets, count;
    fuse_ino_t last_id;
};

static struct list *buckets_new(size_t n)
{
    struct list *b = calloc(n, sizeof *b);

    for (size_t i = 0; b && i < n; i++)
        list_init(&b[i]);
    return b;
}

int node_table_new(struct node_table **out)
{
    struct node_table *t = calloc(1, sizeof *t);

    if (!t)
        return -ENOMEM;
    t->buckets = FIRST_BUCKETS;
    t->last_id = FUSE_ROOT_ID - 1; /* the first node is the root */
    t->by_id = buckets_new(t->buckets);
    t->by_name = buckets_new(t->buckets);
    if (!t->by_id || !t->by_name) {
        node_table_free(t);
        return -ENOMEM;
    }
    *out = t;
    return 0;
}

static uint64_t hash_id(uint64_t x)
{
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 32;
}

static uint64_t hash_name(const struct node *parent, const char *name)
{
    uint64_t h = hash_id(parent->id) ^ UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

static struct list *id_bucket(struct node_table *t, fuse_ino_t id)
{
    return &t->by_id[hash_id(id) & (t->buckets - 1)];
}

static struct list *name_bucket(struct node_table *t, const struct node *parent, const char *name)
{
    return &t->by_name[hash_name(parent, name) & (t->buckets - 1)];
}

static void move_all(struct node_table *t, struct list *by_id, struct list *by_name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        list_each_safe(it, &by_id[i])
        {
            struct node *node = container_of(it, struct node, by_id);

            list_remove(it);
            list_add(id_bucket(t, node->id), it);
        }
        list_each_safe(it, &by_name[i])
        {
            struct node *node = container_of(it, struct node, by_name);

            list_remove(it);
            list_add(name_bucket(t, node->parent, node->name), it);
        }
    }
}

/* Doubles the buckets when they are full; keeps the old ones when memory is short. */
static void grow(struct node_table *t)
{
    struct list *by_id, *by_name, *old_id = t->by_id, *old_name = t->by_name;
    size_t n = t->buckets;

    if (t->count < n)
        return;
    by_id = buckets_new(2 * n);
    by_name = buckets_new(2 * n);
    if (!by_id || !by_name) {
        free(by_id);
        free(by_name);
        return;
    }
    t->by_id = by_id;
    t->by_name = by_name;
    t->buckets = 2 * n;
    move_all(t, old_id, old_name, n);
    free(old_id);
    free(old_name);
}

static void attach(struct node *n)
{
    list_add(name_bucket(n->mnt->nodes, n->parent, n->name), &n->by_name);
    list_add(&n->parent->children, &n->siblings);
}

void *node_new(struct mount *mnt, const struct node_ops *ops, struct node *parent, const char *name,
               size_t size)
{
    struct node_table *t = mnt->nodes;
    struct node *n = size < sizeof *n ? NULL : calloc(1, size);

    if (!n)
        return NULL;
    n->name = strdup(name);
    if (!n->name) {
        free(n);
        return NULL;
    }
    n->ops = ops;
    n->mnt = mnt;
    n->refs = 1;
    list_init(&n->by_id);
    list_init(&n->by_name);
    list_init(&n->siblings);
    list_init(&n->children);
    list_init(&n->opens);
    grow(t);
    n->id = ++t->last_id;
    t->count++;
    list_add(id_bucket(t, n->id), &n->by_id);
    if (parent) {
        n->parent = node_ref(parent);
        n->machine = parent->machine;
        attach(n);
    }
    return n;
}

struct node *node_ref(struct node *n)
{
    n->refs++;
    return n;
}

static void destroy(struct node *n)
{
    node_detach(n);
    list_remove(&n->by_id);
    /* Only at the end of the mount has a dying node children: they go in any order. */
    while (!list_empty(&n->children))
        list_remove(n->children.next);
    n->mnt->nodes->count--;
    if (n->ops->free)
        n->ops->free(n);
    free(n->name);
    free(n);
}

void node_unref(struct node *n)
{
    while (n && --n->refs == 0) {
        struct node *parent = n->parent;

        destroy(n);
        n = parent;
    }
}

struct node *node_find(struct mount *mnt, fuse_ino_t id)
{
    list_each(it, id_bucket(mnt->nodes, id))
    {
        struct node *n = container_of(it, struct node, by_id);

        if (n->id == id)
            return n;
    }
    return NULL;
}

struct node *node_child(struct node *dir, const char *name)
{
    list_each(it, name_bucket(dir->mnt->nodes, dir, name))
    {
        struct node *n = container_of(it, struct node, by_name);

        if (n->parent == dir && !strcmp(n->name, name))
            return n;
    }
    return NULL;
}

void node_detach(struct node *n)
{
    list_remove(&n->by_name);
    list_remove(&n->siblings);
}

int node_move(struct node *n, struct node *new_parent, const char *new_name)
{
    char *name = strdup(new_name);
    struct node *old = n->parent;

    if (!name)
        return -ENOMEM;
    node_detach(n);
    free(n->name);
    n->name = name;
    n->parent = node_ref(new_parent);
    attach(n);
    node_unref(old);
    return 0;
}

void node_forget(struct node *n, uint64_t count)
{
    /* The kernel never forgets more than it looked up; if it did, the count must not wrap. */
    if (count > n->lookups)
        count = n->lookups;
    if (!count)
        return;
    n->lookups -= count;
    if (!n->lookups)
        node_unref(n);
}

ino_t ino_of(const char *kind, const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *kind; kind++)
        h = (h ^ (unsigned char)*kind) * UINT64_C(0x100000001b3);
    h *= UINT64_C(0x100000001b3);
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (h >> 2) | UINT64_C(1) << 62;
}

ino_t special_ino(const struct node *dir, const char *name)
{
    _cleanup_free_ char *text =
        strf("%s/%s/%s", dir->machine ? dir->machine->id : "", dir->name, name);

    return text ? ino_of("special", text) : dir->id;
}

bool dirbuf_add(struct dirbuf *d, const char *name, const struct stat *st, off_t next)
{
    size_t room = d->size - d->len;
    size_t n = fuse_add_direntry(d->req, d->data + d->len, room, name, st, next);

    if (n > room)
        return false;
    d->len += n;
    return true;
}

void node_table_free(struct node_table *t)
{
    /* At the end of the mount the kernel sends no more FORGETs. Parents are not touched: each node
     * goes exactly once, and `free` of a kind must not look at other nodes. */
    for (size_t i = 0; t->by_id && i < t->buckets; i++)
        while (!list_empty(&t->by_id[i]))
            destroy(container_of(t->by_id[i].next, struct node, by_id));
    free(t->by_id);
    free(t->by_name);
    free(t);
}
