/* local/vm.h: a machine as the service sees it: its record, its state, and what waits for it.
 *
 * pending -> starting -> running <-> suspended; stopped and failed are left by a start; every state
 * is left by a destroy. A machine that ran when the last server ended is `suspended` without a host
 * machine: the next call that needs it starts it. Knows no RPC. */
#pragma once

#include "local/service.h"
#include "local/state.h"

enum vm_status { VM_PENDING, VM_STARTING, VM_RUNNING, VM_SUSPENDED, VM_STOPPED, VM_FAILED };
const char *vm_status_name(enum vm_status s);

struct vm {
    struct list link; /* in service.vms; alone once destroyed */
    struct service *s;
    struct vm_record rec;
    enum vm_status status;
    struct host_machine *host; /* NULL: nothing runs */
    struct list waiters, commands;
    uv_timer_t timer; /* the start's delay, or the pause before a restart */
    unsigned deaths;  /* in a row, each soon after the start */
    uint64_t started_ms, used_ms;
};

/* Adopts a machine of the state directory; takes what `rec` holds. */
int vm_load(struct service *s, struct vm_record *rec);
/* Creates a machine and lets it start on the next turn of the loop; takes what `rec` holds, also on
 * failure. 0 or a negative errno with words. */
int vm_create(struct service *s, struct vm_record *rec, struct vm **out);
/* By id, else by name. NULL with words of -ENOENT. */
struct vm *vm_find(struct service *s, const char *id_or_name);
/* Whether a name, or an id, is taken. */
bool vm_taken(struct service *s, const char *name);

/* `ready` gets 0 as soon as the machine runs, which may be before this returns; suspended machines
 * are woken. Else a negative errno with words: -EBUSY stopped or failed, -ENOENT destroyed
 * meanwhile. `vm` is NULL in that last case. */
typedef void vm_ready(void *arg, struct vm *vm, int r);
void vm_need(struct vm *vm, vm_ready *ready, void *arg);
/* As vm_need(), but starts stopped and failed machines too. */
void vm_start(struct vm *vm, vm_ready *ready, void *arg);

/* Kills everything in it and starts it again; refuses as vm_need() does. */
void vm_reboot(struct vm *vm, vm_ready *ready, void *arg);

/* Each saves the record; 0 or a negative errno with words. */
int vm_stop(struct vm *vm);
int vm_suspend(struct vm *vm);
int vm_save(struct vm *vm);
/* Kills it and forgets it at once; `done` runs when its files are deleted. `vm` is dead after. */
int vm_destroy(struct vm *vm, host_done *done, void *arg);
/* Notes that somebody uses it now. */
void vm_touch(struct vm *vm);
/* Once a second: deletions that are due, automatic suspension. */
void vm_tick(struct service *s, int64_t wall, uint64_t now);
/* Whether something runs, suspended or not. */
bool vm_any_alive(struct service *s);
/* At the end: kills and frees all. */
void vm_free_all(struct service *s);
