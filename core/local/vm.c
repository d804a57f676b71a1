/* local/vm.c: see vm.h. */
#include "base/base.h"

#include "base/str.h"
#include "local/command.h"
#include "local/vm.h"
#include <boxd/error.h>
#include <boxd/log.h>

/* A machine that ends by itself within this time of its start is in a row of deaths. */
#define SHORT_LIFE_MS 10000
#define DEATHS_MAX 5
#define RESTART_DELAY_MS 1000

struct waiter {
    struct list link;
    vm_ready *ready;
    void *arg;
};

static void boot(struct vm *vm);

const char *vm_status_name(enum vm_status s)
{
    static const char *const names[] = {
        [VM_PENDING] = "pending",     [VM_STARTING] = "starting", [VM_RUNNING] = "running",
        [VM_SUSPENDED] = "suspended", [VM_STOPPED] = "stopped",   [VM_FAILED] = "failed",
    };

    return names[s];
}

/* ---- records --------------------------------------------------------------------------------- */

int vm_save(struct vm *vm)
{
    return state_save(vm->s->options->vms_dir, &vm->rec);
}

/* Saves where no caller can be told. */
static void save_quietly(struct vm *vm)
{
    int r = vm_save(vm);

    if (r < 0)
        boxd_log(BOXD_LOG_ERROR, "%s", boxd_error_words(r));
}

static int save_wanted(struct vm *vm, enum vm_wanted wanted)
{
    enum vm_wanted before = vm->rec.wanted;
    int r;

    vm->rec.wanted = wanted;
    r = vm_save(vm);
    if (r < 0)
        vm->rec.wanted = before;
    return r;
}

static struct vm *vm_new(struct service *s, struct vm_record *rec)
{
    struct vm *vm = calloc(1, sizeof(*vm));

    if (!vm)
        return NULL;
    vm->s = s;
    vm->rec = *rec;
    *rec = (struct vm_record){ 0 };
    list_init(&vm->link);
    list_init(&vm->waiters);
    list_init(&vm->commands);
    uv_timer_init(s->loop, &vm->timer);
    vm->timer.data = vm;
    vm->used_ms = now_ms();
    return vm;
}

static void on_vm_closed(uv_handle_t *h)
{
    struct vm *vm = h->data;

    vm_record_clear(&vm->rec);
    free(vm);
}

static void vm_free(struct vm *vm)
{
    list_remove(&vm->link);
    uv_close((uv_handle_t *)&vm->timer, on_vm_closed);
}

static void on_leftovers_deleted(void *arg, int r)
{
    struct vm *vm = arg;

    if (!r)
        r = state_remove(vm->s->options->vms_dir, vm->rec.id);
    if (r < 0)
        boxd_log(BOXD_LOG_ERROR, "cannot delete the rest of machine '%s': %s", vm->rec.name,
                 boxd_error_words(r));
    vm_free(vm);
}

int vm_load(struct service *s, struct vm_record *rec)
{
    static const enum vm_status status_of[] = {
        [VM_WANT_RUN] = VM_SUSPENDED,
        [VM_WANT_STOP] = VM_STOPPED,
        [VM_WANT_FAILED] = VM_FAILED,
    };
    struct vm *vm = vm_new(s, rec);

    if (!vm)
        return -ENOMEM;
    if (vm->rec.wanted == VM_WANT_GONE) {
        host_delete(s->host, vm->rec.id, on_leftovers_deleted, vm);
        return 0;
    }
    vm->status = status_of[vm->rec.wanted];
    list_add(&s->vms, &vm->link);
    return 0;
}

int vm_create(struct service *s, struct vm_record *rec, struct vm **out)
{
    struct vm *vm = vm_new(s, rec);
    int r;

    if (!vm)
        return -ENOMEM;
    vm->status = VM_PENDING;
    r = vm_save(vm);
    if (r < 0) {
        vm_free(vm);
        return r;
    }
    list_add(&s->vms, &vm->link);
    boot(vm);
    *out = vm;
    return 0;
}

struct vm *vm_find(struct service *s, const char *id_or_name)
{
    struct vm *named = NULL;

    list_each(it, &s->vms)
    {
        struct vm *vm = container_of(it, struct vm, link);

        if (!strcmp(vm->rec.id, id_or_name))
            return vm;
        if (!strcmp(vm->rec.name, id_or_name))
            named = vm;
    }
    if (!named)
        boxd_words(-ENOENT, *id_or_name ? "machine '%.80s' not found" : "machine is not named%s",
                   id_or_name);
    return named;
}

bool vm_taken(struct service *s, const char *name)
{
    bool taken = vm_find(s, name);

    boxd_words_clear();
    return taken;
}

void vm_touch(struct vm *vm)
{
    vm->used_ms = now_ms();
    vm->rec.last_connected_ms = wall_ms();
}

/* ---- waiting for a machine ---------------------------------------------------------------------
 */

/* Tells all who wait; each may do anything, also destroy the machine. */
static void tell_waiters(struct vm *vm, int r, const char *words, bool gone)
{
    struct list all;

    list_init(&all);
    while (!list_empty(&vm->waiters)) {
        struct list *it = vm->waiters.next;

        list_remove(it);
        list_add(&all, it);
    }
    while (!list_empty(&all)) {
        struct waiter *w = container_of(all.next, struct waiter, link);

        list_remove(&w->link);
        if (r < 0)
            boxd_words(r, "%s", words);
        w->ready(w->arg, gone ? NULL : vm, r);
        free(w);
    }
}

static void add_waiter(struct vm *vm, vm_ready *ready, void *arg)
{
    struct waiter *w = calloc(1, sizeof(*w));

    if (!w) {
        ready(arg, vm, -ENOMEM);
        return;
    }
    w->ready = ready;
    w->arg = arg;
    list_add(&vm->waiters, &w->link);
}

static int refuse_stopped(const struct vm *vm)
{
    if (vm->status == VM_STOPPED)
        return boxd_words(-EBUSY, "machine '%s' is stopped: start it first", vm->rec.name);
    return boxd_words(-EBUSY, "machine '%s' failed to start: %s", vm->rec.name, vm->rec.failure);
}

void vm_start(struct vm *vm, vm_ready *ready, void *arg)
{
    int r = 0;

    if (vm->status == VM_SUSPENDED && vm->host) {
        r = host_machine_freeze(vm->host, false);
        if (!r)
            vm->status = VM_RUNNING;
    }
    if (r < 0 || vm->status == VM_RUNNING) {
        ready(arg, vm, r);
        return;
    }
    if (vm->status != VM_PENDING && vm->status != VM_STARTING) {
        r = save_wanted(vm, VM_WANT_RUN);
        if (r < 0) {
            ready(arg, vm, r);
            return;
        }
        boot(vm);
    }
    add_waiter(vm, ready, arg);
}

void vm_need(struct vm *vm, vm_ready *ready, void *arg)
{
    if (vm->status == VM_STOPPED || vm->status == VM_FAILED)
        ready(arg, vm, refuse_stopped(vm));
    else
        vm_start(vm, ready, arg);
}

/* ---- starting -------------------------------------------------------------------------------- */

static void start_failed(struct vm *vm, int r)
{
    _cleanup_free_ char *why = strdup(boxd_error_words(r)), *words = NULL;

    uv_timer_stop(&vm->timer);
    if (vm->host)
        host_machine_free(steal_ptr(vm->host));
    vm->status = VM_FAILED;
    vm->rec.wanted = VM_WANT_FAILED;
    text_set(&vm->rec.failure, why ? why : "out of memory");
    boxd_log(BOXD_LOG_ERROR, "machine '%s' failed to start: %s", vm->rec.name, vm->rec.failure);
    save_quietly(vm);
    words = strf("machine '%s' failed to start: %s", vm->rec.name, vm->rec.failure);
    tell_waiters(vm, -EBUSY, words ? words : "machine failed to start", false);
}

static void on_restart(uv_timer_t *timer)
{
    boot(timer->data);
}

/* Init ended by itself. */
static void on_death(void *arg)
{
    struct vm *vm = arg;

    boxd_log(BOXD_LOG_INFO, "machine '%s' ended by itself", vm->rec.name);
    command_lose_all(vm, "the machine ended by itself");
    host_machine_free(steal_ptr(vm->host));
    if (!strcmp(vm->rec.restart_policy, "never")) {
        vm->status = VM_STOPPED;
        vm->rec.wanted = VM_WANT_STOP;
        save_quietly(vm);
        return;
    }
    vm->deaths = now_ms() - vm->started_ms < SHORT_LIFE_MS ? vm->deaths + 1 : 1;
    if (vm->deaths > DEATHS_MAX) {
        start_failed(vm, boxd_words(-EIO, "it ended %d times right after its start", DEATHS_MAX));
        return;
    }
    vm->status = VM_STARTING;
    uv_timer_start(&vm->timer, on_restart, RESTART_DELAY_MS, 0);
}

static void on_started(void *arg, int r)
{
    struct vm *vm = arg;

    if (r < 0) {
        start_failed(vm, r);
        return;
    }
    vm->status = VM_RUNNING;
    vm->started_ms = now_ms();
    vm->used_ms = vm->started_ms;
    vm->rec.boot_time_ms = wall_ms();
    text_set(&vm->rec.failure, "");
    boxd_log(BOXD_LOG_INFO, "machine '%s' runs", vm->rec.name);
    save_quietly(vm);
    tell_waiters(vm, 0, NULL, false);
}

static void start_host(struct vm *vm)
{
    const struct options *o = vm->s->options;
    bool privileged = starts_with(vm->rec.image, "privileged:");
    struct host_spec spec = {
        .id = vm->rec.id,
        .hostname = vm->rec.name,
        .image = vm->rec.image + (privileged ? strlen("privileged:") : 0),
        .privileged = privileged,
        .memory_bytes = vm->rec.memory,
        .vcpu = vm->rec.vcpu,
    };

    if (o->fail_start && starts_with(vm->rec.name, o->fail_start)) {
        start_failed(vm, boxd_words(-EIO, "its start was made to fail (--fail-start)"));
        return;
    }
    vm->host = host_machine_start(vm->s->host, &spec, on_started, vm);
    if (!vm->host)
        start_failed(vm, boxd_words(-ENOMEM, "out of memory"));
    else
        host_machine_on_death(vm->host, on_death, vm);
}

static void on_delay_over(uv_timer_t *timer)
{
    start_host(timer->data);
}

static void on_scheduled(uv_timer_t *timer)
{
    struct vm *vm = timer->data;

    vm->status = VM_STARTING;
    uv_timer_start(&vm->timer, on_delay_over, vm->s->options->start_delay_ms, 0);
}

/* Starts on the next turn of the loop, so that a create answers first. */
static void boot(struct vm *vm)
{
    if (vm->status != VM_PENDING)
        vm->status = VM_STARTING;
    uv_timer_start(&vm->timer, on_scheduled, 0, 0);
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void halt(struct vm *vm, const char *why)
{
    uv_timer_stop(&vm->timer);
    command_lose_all(vm, why);
    if (vm->host)
        host_machine_free(steal_ptr(vm->host));
}

int vm_stop(struct vm *vm)
{
    int r = save_wanted(vm, VM_WANT_STOP);

    if (r < 0)
        return r;
    halt(vm, "the machine was stopped");
    vm->status = VM_STOPPED;
    vm->deaths = 0;
    tell_waiters(vm, -EBUSY, "machine was stopped meanwhile: start it first", false);
    return 0;
}

void vm_reboot(struct vm *vm, vm_ready *ready, void *arg)
{
    if (vm->status == VM_STOPPED || vm->status == VM_FAILED) {
        ready(arg, vm, refuse_stopped(vm));
        return;
    }
    halt(vm, "the machine was rebooted");
    vm->status = VM_STARTING;
    boot(vm);
    add_waiter(vm, ready, arg);
}

int vm_suspend(struct vm *vm)
{
    int r;

    if (vm->status == VM_SUSPENDED)
        return 0;
    if (vm->status == VM_STOPPED || vm->status == VM_FAILED)
        return refuse_stopped(vm);
    if (vm->status != VM_RUNNING)
        return boxd_words(-EBUSY, "machine '%s' is still starting: wait until it runs",
                          vm->rec.name);
    r = host_machine_freeze(vm->host, true);
    if (!r)
        vm->status = VM_SUSPENDED;
    return r;
}

struct deletion {
    struct service *s;
    char *id;
    host_done *done;
    void *arg;
};

static void on_deleted(void *arg, int r)
{
    struct deletion *d = arg;

    if (!r)
        r = state_remove(d->s->options->vms_dir, d->id);
    d->done(d->arg, r);
    free(d->id);
    free(d);
}

int vm_destroy(struct vm *vm, host_done *done, void *arg)
{
    struct deletion *d = calloc(1, sizeof(*d));
    int r = d ? text_set(&d->id, vm->rec.id) : -ENOMEM;

    if (!r)
        r = save_wanted(vm, VM_WANT_GONE);
    if (r < 0) {
        free(d ? d->id : NULL);
        free(d);
        return r;
    }
    d->s = vm->s;
    d->done = done;
    d->arg = arg;
    list_remove(&vm->link);
    halt(vm, "the machine was destroyed");
    tell_waiters(vm, -ENOENT, "machine was destroyed meanwhile", true);
    host_delete(vm->s->host, d->id, on_deleted, d);
    vm_free(vm);
    return 0;
}

/* ---- the passing of time ------------------------------------------------------------------------
 */

static void on_lease_deleted(void *arg, int r)
{
    if (r < 0)
        boxd_log(BOXD_LOG_ERROR, "cannot delete a machine's files: %s", boxd_error_words(r));
}

static bool lease_over(const struct vm *vm, int64_t wall)
{
    return vm->rec.delete_at_ms && vm->rec.delete_at_ms <= wall;
}

static bool idle_too_long(const struct vm *vm, uint64_t now)
{
    return vm->rec.auto_suspend && vm->status == VM_RUNNING && list_empty(&vm->commands) &&
           now - vm->used_ms >= (uint64_t)vm->rec.auto_suspend * 1000;
}

void vm_tick(struct service *s, int64_t wall, uint64_t now)
{
    list_each_safe(it, &s->vms)
    {
        struct vm *vm = container_of(it, struct vm, link);
        int r = 0;

        if (lease_over(vm, wall)) {
            boxd_log(BOXD_LOG_INFO, "machine '%s' is deleted: its time is over", vm->rec.name);
            r = vm_destroy(vm, on_lease_deleted, NULL);
        } else if (idle_too_long(vm, now)) {
            r = vm_suspend(vm);
        }
        if (r < 0)
            boxd_log(BOXD_LOG_ERROR, "%s", boxd_error_words(r));
    }
}

bool vm_any_alive(struct service *s)
{
    list_each(it, &s->vms)
    {
        struct vm *vm = container_of(it, struct vm, link);

        if (vm->host || vm->status == VM_PENDING || vm->status == VM_STARTING)
            return true;
    }
    return false;
}

void vm_free_all(struct service *s)
{
    while (!list_empty(&s->vms)) {
        struct vm *vm = container_of(s->vms.next, struct vm, link);

        list_remove(&vm->link);
        halt(vm, "boxd-local ends");
        tell_waiters(vm, -ENOENT, "boxd-local ends", true);
        vm_free(vm);
    }
}
