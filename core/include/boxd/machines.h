/* boxd/machines.h: the account's machines as a set that is kept up to date.
 *
 * Life: a machine object lives while somebody holds a reference; the set holds one while the
 * service lists it. `gone` is set for good when the service no longer knows it; a new machine of
 * the same name is a new object. The set is freed before its client, and not inside its handlers
 * (a callback given to a call may free it); a machine that outlives it can only be unref'd.
 * Errors and threads: see boxd/client.h. */
#pragma once

#include <boxd/client.h>
#include <boxd/machine.h>

struct boxd_machines;

struct boxd_machine {
    const char *id;
    /* The name to show: the machine's name, or its id when the name is not a plain file name (255
     * bytes, no slash or control character), is `ctl`, starts with a dot, or is another's too. */
    const char *shown;
    const struct boxd_machine_info *info; /* the newest that the service told; never NULL */
    bool gone;
    bool ready;                /* answered `true` since it last started */
    char *failure;             /* why it failed to start, or NULL */
    void *user;                /* the embedder's, see `released` */
    unsigned refs;             /* private */
    struct boxd_machines *set; /* private */
};

struct boxd_machines_handlers {
    /* A line for the `events` of the account, or with a machine for that machine's. May be NULL. */
    void (*event)(void *arg, struct boxd_machine *m, const char *text);
    /* The machine appeared, vanished or changed its state or name. May be NULL. */
    void (*changed)(void *arg, struct boxd_machine *m);
    /* The last reference to an object went: `user` must not be used any more. May be NULL. */
    void (*released)(void *arg, struct boxd_machine *m);
};

BOXD_API int boxd_machines_new(struct boxd_client *c, const struct boxd_machines_handlers *h,
                               void *arg, struct boxd_machines **out);
/* Ends waits with -ECANCELED and drops the set's references. */
BOXD_API void boxd_machines_free(struct boxd_machines *s);
/* Asks the service now (ListVms). Calls made while one is under way share its answer. */
BOXD_API struct boxd_call *boxd_machines_refresh(struct boxd_machines *s, boxd_done *done,
                                                 void *arg);
/* Says that somebody looks: refreshed every 4 s while used in the last minute, then less often up
 * to 60 s. Returns the age of what is known in milliseconds, UINT64_MAX when nothing is known yet.
 */
BOXD_API uint64_t boxd_machines_touch(struct boxd_machines *s);
/* Returns a borrowed machine or NULL. */
BOXD_API struct boxd_machine *boxd_machines_find(struct boxd_machines *s, const char *shown);
BOXD_API struct boxd_machine *boxd_machines_find_id(struct boxd_machines *s, const char *id);
/* Iterates in the order of names; stops when `each` returns false. */
BOXD_API void boxd_machines_each(struct boxd_machines *s,
                                 bool (*each)(void *arg, struct boxd_machine *m), void *arg);
/* Creates a machine and adds it to the set as soon as the service accepted it. */
typedef void boxd_machines_created(void *arg, int r, struct boxd_machine *m);
BOXD_API struct boxd_call *boxd_machines_create(struct boxd_machines *s,
                                                const struct boxd_create_options *o,
                                                boxd_machines_created *done, void *arg);
/* Destroys it; on success it leaves the set before `done` runs. */
BOXD_API struct boxd_call *boxd_machines_destroy(struct boxd_machines *s, struct boxd_machine *m,
                                                 boxd_done *done, void *arg);
/* Tells the set that a command changed the machine's state (stop, pause ...): `ready` is dropped
 * and GetVm is asked. */
BOXD_API void boxd_machine_stale(struct boxd_machine *m);

BOXD_API struct boxd_machine *boxd_machine_ref(struct boxd_machine *m);
BOXD_API void boxd_machine_unref(struct boxd_machine *m);

/* Waits until the machine answers: GetVm until it runs, then Exec of `true`; at most `timeout_ms`
 * (0: 180 s). Answers at once (but never before it returned) when it is known to be ready. A
 * suspended machine is woken. -EIO with words when it failed or was destroyed, -EBUSY when it is
 * stopped, -ETIMEDOUT. Waits of one machine share their polling. boxd_call_cancel() ends one. */
BOXD_API struct boxd_call *boxd_machine_wait(struct boxd_machine *m, uint32_t timeout_ms,
                                             boxd_done *done, void *arg);
