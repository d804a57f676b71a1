/* base/list.h: an intrusive doubly linked list (a ring with a head).
 * A link that is in no list points to itself, so list_remove() of it is harmless. */
#pragma once

#include "base/base.h"

struct list {
    struct list *prev, *next;
};

#define LIST_HEAD(name)  \
    {                    \
        &(name), &(name) \
    }
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define list_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* Safe against removal of the current element, and of no other. */
#define list_each_safe(it, head)                                              \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
         it = it##_next, it##_next = it->next)

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

/* Adds at the end. */
static inline void list_add(struct list *head, struct list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}
