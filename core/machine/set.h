/* machine/set.h: inside of the machine set. set.c holds the objects, merge.c turns what the service
 * lists into them, refresh.c asks it, wait.c waits for one machine. */
#pragma once

#include "base/base.h"
#include "base/list.h"
#include "api/client.h"
#include "api/timers.h"
#include <boxd/machines.h>

/* More than any account has; a service that lists more is not believed. */
#define MACHINES_MAX 10000

struct member {
    struct boxd_machine m; /* what the embedder sees */
    struct boxd_machine_info *info;
    char *shown;
    struct list link; /* in the set's members */
    bool listed;      /* by the answer that is being merged */
    /* The way to readiness; runs while somebody waits, see wait.c. */
    struct list waits, settled; /* settled: told on the loop's next turn */
    struct timer poll_timer;
    uint64_t poll_delay;
    struct boxd_call *asking;  /* GetVm or ResumeVm under way */
    struct boxd_call *probing; /* Exec of `true` under way */
    bool ask_again;            /* what is under way began before the machine changed */
};

struct boxd_machines {
    struct boxd_client *client;
    struct boxd_machines_handlers handlers;
    void *arg;
    struct member **by_shown, **by_id; /* sorted; count of both */
    size_t count;
    struct list members; /* every object alive, gone ones too */
    bool known;          /* the service has answered once */

    struct boxd_call *list_call;
    bool outdated; /* the set changed while the list was asked for: ask again */
    struct list refreshes;
    struct timer refresh_timer;
    uint64_t used_at, listed_at, interval;
    struct list changes; /* creations and destructions under way */
};

static inline struct member *member_of(struct boxd_machine *m)
{
    return container_of(m, struct member, m);
}

/* A new object with one reference, which is the set's once set_insert() took it. */
struct member *member_new(struct boxd_machines *s, const struct boxd_machine_info *info);
/* Takes over what the service told newly, telling the embedder what changed. -ENOMEM. */
int member_update(struct member *b, const struct boxd_machine_info *info);
/* Adds members, each under a name of its own; `tell`: they are new to the service too. The set
 * takes the references, on failure too. */
int set_insert(struct boxd_machines *s, struct member **members, size_t count, bool tell);
/* The machine is no more: tells the embedder, ends its waits, drops the set's reference. */
void set_drop(struct boxd_machines *s, struct member *b);
struct member *set_find_id(const struct boxd_machines *s, const char *id);
bool plain_file_name(const char *name);
void set_event(struct boxd_machines *s, struct member *b, const char *text);
void set_changed(struct boxd_machines *s, struct member *b);

/* Makes the set what the service listed. */
int set_merge(struct boxd_machines *s, const struct boxd_machine_info *const *list, size_t count);

void refresh_init(struct boxd_machines *s);
void refresh_stop(struct boxd_machines *s);

void wait_init(struct member *b);
/* Forgets what is under way for a machine. Those who wait get r, with the words remembered for it:
 * on the loop's next turn, or with -ECANCELED before this returns. */
void wait_fail(struct member *b, int r);
void wait_cancel(struct member *b);
