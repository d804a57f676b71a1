/* local/call_machines.c: the calls on machines and the account. */
#include "base/base.h"

#include "api/boxd.pb-c.h"
#include "api/wire.h"
#include "base/str.h"
#include "local/cron.h"
#include "local/names.h"
#include "local/service.h"
#include "local/validate.h"
#include "local/vm.h"
#include <boxd/error.h>
#include <pwd.h>

#define DEFAULT_IMAGE "host"
#define DELETE_AFTER_MAX ((uint64_t)10 * 366 * 86400)

/* Finds the machine or answers NOT_FOUND. */
static struct vm *find(struct call *c, const char *id_or_name)
{
    struct vm *vm = vm_find(c->s, id_or_name);

    if (!vm)
        call_fail(c, -ENOENT);
    return vm;
}

/* ---- telling about a machine -------------------------------------------------------------------
 */

/* What one GetVmResponse points to besides the machine's own texts. */
struct told {
    PB(GetVmResponse) m;
    PB(GetVmResponse__LabelsEntry) * labels;
    PB(GetVmResponse__LabelsEntry) * *label_list;
    PB(MachineRequirement) requirement, *requirement_list[1];
    PB(VmSource) source;
};

static int tell_labels(const struct pairs *labels, struct told *t)
{
    t->labels = calloc(labels->count + 1, sizeof(*t->labels));
    t->label_list = calloc(labels->count + 1, sizeof(*t->label_list));
    if (!t->labels || !t->label_list)
        return -ENOMEM;
    for (size_t i = 0; i < labels->count; i++) {
        boxd__api__v1__get_vm_response__labels_entry__init(&t->labels[i]);
        t->labels[i].key = labels->items[i].key;
        t->labels[i].value = labels->items[i].value;
        t->label_list[i] = &t->labels[i];
    }
    t->m.n_labels = labels->count;
    t->m.labels = t->label_list;
    return 0;
}

static void told_clear(struct told *t)
{
    free(t->labels);
    free(t->label_list);
}

/* Borrows from the machine; to be cleared in any case. */
static int tell(const struct vm *vm, struct told *t)
{
    const struct vm_record *r = &vm->rec;

    boxd__api__v1__get_vm_response__init(&t->m);
    boxd__api__v1__vm_source__init(&t->source);
    t->source.kind = (char *)(uintptr_t) "standalone";
    t->m.vm_id = r->id;
    t->m.name = r->name;
    t->m.image_ref = r->image;
    t->m.status = (char *)(uintptr_t)vm_status_name(vm->status);
    t->m.restart_policy = r->restart_policy;
    t->m.disk_bytes = r->disk;
    t->m.auto_suspend_timeout_secs = r->auto_suspend;
    t->m.source = t->source.kind;
    t->m.source_info = &t->source;
    t->m.vcpu = r->vcpu;
    t->m.memory_bytes = r->memory;
    t->m.created_at = r->created_at;
    t->m.boot_time_ms = r->boot_time_ms;
    t->m.last_connected_ms = r->last_connected_ms;
    t->m.delete_at_ms = r->delete_at_ms;
    t->m.delete_after_cron = r->delete_cron;
    t->m.isolated = r->isolated;
    if (vm->status == VM_FAILED) {
        boxd__api__v1__machine_requirement__init(&t->requirement);
        t->requirement.kind = (char *)(uintptr_t) "start";
        t->requirement.reason = r->failure;
        t->requirement_list[0] = &t->requirement;
        t->m.requirements = t->requirement_list;
        t->m.n_requirements = 1;
    }
    return tell_labels(&r->labels, t);
}

static void call_get(struct call *c, const ProtobufCMessage *message)
{
    const PB(GetVmRequest) *m = (const PB(GetVmRequest) *)message;
    struct vm *vm = find(c, m->vm_id);
    struct told t = { 0 };

    if (!vm)
        return;
    if (tell(vm, &t) < 0)
        call_fail(c, -ENOMEM);
    else
        call_reply(c, &t.m.base);
    told_clear(&t);
}

static bool has_label(const struct vm *vm, const char *selector)
{
    for (size_t i = 0; i < vm->rec.labels.count; i++)
        if (selector_matches(selector, vm->rec.labels.items[i].key, vm->rec.labels.items[i].value))
            return true;
    return false;
}

static bool selected(const struct vm *vm, const PB(ListVmsRequest) * m)
{
    for (size_t i = 0; i < m->n_label_selector; i++)
        if (!has_label(vm, m->label_selector[i]))
            return false;
    return true;
}

/* An account here has no organisations; its own may be named by the empty word. */
static int check_org(const char *org)
{
    return *org ? boxd_words(-ENOENT, "organisation '%.80s' not found: boxd-local has none", org)
                : 0;
}

static int check_list(const PB(ListVmsRequest) * m)
{
    int r = m->all_contexts ? 0 : check_org(m->org);

    for (size_t i = 0; !r && i < m->n_label_selector; i++)
        r = validate_selector(m->label_selector[i]);
    return r;
}

static size_t count_vms(struct service *s)
{
    size_t n = 0;

    list_each(it, &s->vms) n++;
    return n;
}

static void call_list_vms(struct call *c, const ProtobufCMessage *message)
{
    const PB(ListVmsRequest) *m = (const PB(ListVmsRequest) *)message;
    PB(ListVmsResponse) answer = BOXD__API__V1__LIST_VMS_RESPONSE__INIT;
    size_t n = count_vms(c->s);
    _cleanup_free_ struct told *told = calloc(n + 1, sizeof(*told));
    _cleanup_free_ PB(GetVmResponse) **list = calloc(n + 1, sizeof(*list));
    int r = told && list ? check_list(m) : -ENOMEM;

    list_each(it, &c->s->vms)
    {
        struct vm *vm = container_of(it, struct vm, link);

        if (r < 0 || !selected(vm, m))
            continue;
        r = tell(vm, &told[answer.n_vms]);
        list[answer.n_vms] = &told[answer.n_vms].m;
        answer.n_vms++;
    }
    answer.vms = list;
    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
    for (size_t i = 0; told && i < answer.n_vms; i++)
        told_clear(&told[i]);
}

/* ---- creating ----------------------------------------------------------------------------------
 */

/* What a request may ask for and boxd-local does not have. */
static int refuse_unavailable(const PB(CreateVmRequest) * m)
{
    const PB(VmConfig) *config = m->config;
    const struct {
        const char *name;
        bool asked;
    } unavailable[] = {
        { "cmd", m->n_cmd > 0 },
        { "networks", m->n_networks > 0 },
        { "shared", m->shared },
        { "team", *m->team != '\0' },
        { "spec", m->spec != NULL },
        { "volumes", config && config->n_volumes > 0 },
        { "proxies", config && config->network && config->network->n_proxies > 0 },
        { "auto_destroy_timeout_secs",
          config && config->srf && config->srf->auto_destroy_timeout_secs > 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(unavailable); i++)
        if (unavailable[i].asked)
            return boxd_words(-EOPNOTSUPP, "option '%s' of CreateVm is not available in boxd-local",
                              unavailable[i].name);
    return check_org(m->org);
}

static int choose_name(struct service *s, const char *name, struct vm_record *rec)
{
    char suggested[NAME_MAX_LEN + 1];
    int r;

    if (*name) {
        r = validate_name(name);
        if (!r && vm_taken(s, name))
            r = boxd_words(-EEXIST, "machine '%s' exists already", name);
    } else {
        r = suggest_name(s, suggested);
        name = suggested;
    }
    return r < 0 ? r : text_set(&rec->name, name);
}

static int choose_image(struct service *s, const char *image, struct vm_record *rec)
{
    const char *name = *image ? image : DEFAULT_IMAGE;
    int r = 0;

    if (starts_with(name, "privileged:")) {
        name += strlen("privileged:");
        r = host_privileged_check(s->host);
    }
    if (r == 0)
        r = host_image_check(s->host, name);
    return r < 0 ? r : text_set(&rec->image, *image ? image : DEFAULT_IMAGE);
}

static int take_labels(const PB(CreateVmRequest) * m, struct pairs *labels)
{
    int r = 0;

    if (m->n_labels > LABELS_MAX)
        return boxd_words(-EINVAL, "machine has too many labels: at most %d", LABELS_MAX);
    for (size_t i = 0; !r && i < m->n_labels; i++) {
        r = validate_label(m->labels[i]->key, m->labels[i]->value);
        if (!r)
            r = pairs_set(labels, m->labels[i]->key, m->labels[i]->value);
    }
    return r;
}

static int take_config(const PB(VmConfig) * config, struct vm_record *rec)
{
    int r = validate_size(config ? config->vcpu : 0, config ? config->memory_bytes : 0, &rec->vcpu,
                          &rec->memory);

    if (r < 0 || !config)
        return r;
    rec->disk = config->disk_bytes;
    if (config->srf && config->srf->_auto_suspend_timeout_secs_case)
        rec->auto_suspend = config->srf->auto_suspend_timeout_secs;
    return validate_disk(config->disk_bytes);
}

static int take_env(const PB(CreateVmRequest) * m, struct pairs *env)
{
    int r = 0;

    for (size_t i = 0; !r && i < m->n_env; i++) {
        r = validate_env_key(m->env[i]->key);
        if (!r)
            r = pairs_set(env, m->env[i]->key, m->env[i]->value);
    }
    return r;
}

static int make_record(struct service *s, const PB(CreateVmRequest) * m, struct vm_record *rec)
{
    char id[2 * 8 + 1];
    _cleanup_free_ char *whole = NULL;
    int r = vm_record_init(rec);

    if (!r)
        r = refuse_unavailable(m);
    if (!r)
        r = random_hex(id, 8);
    if (r < 0)
        return r;
    whole = strf("vm-%s", id);
    r = whole ? text_set(&rec->id, whole) : -ENOMEM;
    if (!r)
        r = choose_name(s, m->name, rec);
    if (!r)
        r = choose_image(s, m->image_ref, rec);
    if (!r)
        r = validate_restart_policy(m->restart_policy);
    if (!r)
        r = text_set(&rec->restart_policy, *m->restart_policy ? m->restart_policy : "always");
    if (!r)
        r = take_config(m->config, rec);
    if (!r)
        r = take_labels(m, &rec->labels);
    if (!r)
        r = take_env(m, &rec->env);
    rec->isolated = m->isolated;
    rec->created_at = wall_ms() / 1000;
    return r;
}

static void call_create(struct call *c, const ProtobufCMessage *message)
{
    PB(CreateVmResponse) answer = BOXD__API__V1__CREATE_VM_RESPONSE__INIT;
    struct vm_record rec;
    struct vm *vm;
    int r = make_record(c->s, (const PB(CreateVmRequest) *)message, &rec);

    if (!r)
        r = vm_create(c->s, &rec, &vm);
    vm_record_clear(&rec);
    if (r < 0) {
        call_fail(c, r);
        return;
    }
    answer.vm_id = vm->rec.id;
    answer.name = vm->rec.name;
    answer.image = vm->rec.image;
    answer.status = (char *)(uintptr_t)vm_status_name(vm->status);
    call_reply(c, &answer.base);
}

static void call_suggest(struct call *c, const ProtobufCMessage *message)
{
    PB(SuggestVmNameResponse) answer = BOXD__API__V1__SUGGEST_VM_NAME_RESPONSE__INIT;
    char name[NAME_MAX_LEN + 1];
    int r = suggest_name(c->s, name);

    answer.name = name;
    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
}

/* ---- state changes ------------------------------------------------------------------------------
 */

static void on_destroyed(void *arg, int r)
{
    struct call *c = arg;
    PB(DestroyVmResponse) answer = BOXD__API__V1__DESTROY_VM_RESPONSE__INIT;

    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
    call_unref(c);
}

static void call_destroy(struct call *c, const ProtobufCMessage *message)
{
    struct vm *vm = find(c, ((const PB(DestroyVmRequest) *)message)->vm_id);
    int r;

    if (!vm)
        return;
    r = vm_destroy(vm, on_destroyed, call_ref(c));
    if (r < 0)
        on_destroyed(c, r);
}

static void on_running(void *arg, struct vm *vm, int r)
{
    struct call *c = arg;
    PB(StartVmResponse) answer = BOXD__API__V1__START_VM_RESPONSE__INIT;

    /* RebootVmResponse is as empty. */
    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
    call_unref(c);
}

static void call_start(struct call *c, const ProtobufCMessage *message)
{
    struct vm *vm = find(c, ((const PB(StartVmRequest) *)message)->vm_id);

    if (vm)
        vm_start(vm, on_running, call_ref(c));
}

static void call_reboot(struct call *c, const ProtobufCMessage *message)
{
    struct vm *vm = find(c, ((const PB(RebootVmRequest) *)message)->vm_id);

    if (vm)
        vm_reboot(vm, on_running, call_ref(c));
}

static void call_stop(struct call *c, const ProtobufCMessage *message)
{
    struct vm *vm = find(c, ((const PB(StopVmRequest) *)message)->vm_id);
    PB(StopVmResponse) answer = BOXD__API__V1__STOP_VM_RESPONSE__INIT;
    int r = vm ? vm_stop(vm) : -ENOENT;

    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
}

static void call_suspend(struct call *c, const ProtobufCMessage *message)
{
    struct vm *vm = find(c, ((const PB(SuspendVmRequest) *)message)->vm_id);
    PB(SuspendVmResponse) answer = BOXD__API__V1__SUSPEND_VM_RESPONSE__INIT;
    uint64_t start = uv_hrtime();
    int r = vm ? vm_suspend(vm) : -ENOENT;

    answer.suspend_us = (uv_hrtime() - start) / 1000;
    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
}

struct resuming {
    struct call *call;
    uint64_t start;
};

static void on_resumed(void *arg, struct vm *vm, int r)
{
    _cleanup_free_ struct resuming *w = arg;
    PB(ResumeVmResponse) answer = BOXD__API__V1__RESUME_VM_RESPONSE__INIT;

    answer.resume_us = (uv_hrtime() - w->start) / 1000;
    if (r < 0)
        call_fail(w->call, r);
    else
        call_reply(w->call, &answer.base);
    call_unref(w->call);
}

static void call_resume(struct call *c, const ProtobufCMessage *message)
{
    struct vm *vm = find(c, ((const PB(ResumeVmRequest) *)message)->vm_id);
    struct resuming *w = vm ? calloc(1, sizeof(*w)) : NULL;

    if (!vm)
        return;
    if (!w) {
        call_fail(c, -ENOMEM);
        return;
    }
    w->call = call_ref(c);
    w->start = uv_hrtime();
    vm_need(vm, on_resumed, w);
}

/* ---- labels and leases --------------------------------------------------------------------------
 */

static int new_labels(const PB(UpdateVmLabelsRequest) * m, const struct pairs *now,
                      struct pairs *out)
{
    int r = m->replace_all ? 0 : pairs_copy(out, now);

    if (m->replace_all && m->n_remove)
        return boxd_words(-EINVAL, "labels to remove make no sense together with replace_all");
    for (size_t i = 0; !r && i < m->n_remove; i++)
        pairs_remove(out, m->remove[i]);
    for (size_t i = 0; !r && i < m->n_set; i++) {
        r = validate_label(m->set[i]->key, m->set[i]->value);
        if (!r)
            r = pairs_set(out, m->set[i]->key, m->set[i]->value);
    }
    if (!r && out->count > LABELS_MAX)
        r = boxd_words(-EINVAL, "machine has too many labels: at most %d", LABELS_MAX);
    return r;
}

static void reply_labels(struct call *c, const struct pairs *labels)
{
    PB(UpdateVmLabelsResponse) answer = BOXD__API__V1__UPDATE_VM_LABELS_RESPONSE__INIT;
    PB(UpdateVmLabelsResponse__LabelsEntry) entries[LABELS_MAX], *list[LABELS_MAX];

    for (size_t i = 0; i < labels->count; i++) {
        boxd__api__v1__update_vm_labels_response__labels_entry__init(&entries[i]);
        entries[i].key = labels->items[i].key;
        entries[i].value = labels->items[i].value;
        list[i] = &entries[i];
    }
    answer.n_labels = labels->count;
    answer.labels = list;
    call_reply(c, &answer.base);
}

static void call_labels(struct call *c, const ProtobufCMessage *message)
{
    const PB(UpdateVmLabelsRequest) *m = (const PB(UpdateVmLabelsRequest) *)message;
    struct vm *vm = find(c, m->vm);
    struct pairs labels = { 0 }, before;
    int r;

    if (!vm)
        return;
    r = new_labels(m, &vm->rec.labels, &labels);
    if (!r) {
        before = vm->rec.labels;
        vm->rec.labels = labels;
        labels = before;
        r = vm_save(vm);
        if (r < 0) {
            labels = vm->rec.labels;
            vm->rec.labels = before;
        }
    }
    pairs_clear(&labels);
    if (r < 0)
        call_fail(c, r);
    else
        reply_labels(c, &vm->rec.labels);
}

/* When a request wants the machine deleted; 0: never. */
static int deletion_time(const PB(SetDeleteAfterRequest) * m, int64_t *at_ms)
{
    int64_t now = wall_ms(), at_s;
    int r;

    *at_ms = 0;
    if (m->delete_after_secs && *m->delete_after_cron)
        return boxd_words(-EINVAL, "delete_after_secs and delete_after_cron exclude each other");
    if (m->delete_after_secs > DELETE_AFTER_MAX)
        return boxd_words(-EINVAL, "delete_after_secs is too large: at most ten years");
    if (m->delete_after_secs)
        *at_ms = now + (int64_t)m->delete_after_secs * 1000;
    if (!*m->delete_after_cron)
        return 0;
    r = cron_next(m->delete_after_cron, now / 1000, &at_s);
    if (!r)
        *at_ms = at_s * 1000;
    return r;
}

static void call_delete_after(struct call *c, const ProtobufCMessage *message)
{
    const PB(SetDeleteAfterRequest) *m = (const PB(SetDeleteAfterRequest) *)message;
    PB(SetDeleteAfterResponse) answer = BOXD__API__V1__SET_DELETE_AFTER_RESPONSE__INIT;
    struct vm *vm = find(c, m->vm_id);
    int64_t at = 0;
    int r;

    if (!vm)
        return;
    r = deletion_time(m, &at);
    if (!r)
        r = text_set(&vm->rec.delete_cron, m->delete_after_cron);
    if (!r) {
        vm->rec.delete_at_ms = at;
        r = vm_save(vm);
    }
    answer.delete_at_ms = at;
    if (r < 0)
        call_fail(c, r);
    else
        call_reply(c, &answer.base);
}

/* ---- the account
 * --------------------------------------------------------------------------------- */

static void call_whoami(struct call *c, const ProtobufCMessage *message)
{
    PB(WhoamiResponse) answer = BOXD__API__V1__WHOAMI_RESPONSE__INIT;
    PB(BillingInfo) billing = BOXD__API__V1__BILLING_INFO__INIT;
    const struct passwd *user = getpwuid(geteuid());
    char id[32];

    snprintf(id, sizeof(id), "local-%u", (unsigned)geteuid());
    answer.user_id = id;
    if (user && utf8_valid(user->pw_name, strlen(user->pw_name)))
        answer.display_name = user->pw_name;
    answer.billing = &billing;
    call_reply(c, &answer.base);
}

static void call_config(struct call *c, const ProtobufCMessage *message)
{
    PB(GetConfigResponse) answer = BOXD__API__V1__GET_CONFIG_RESPONSE__INIT;

    answer.default_image = (char *)(uintptr_t)DEFAULT_IMAGE;
    answer.zone = (char *)(uintptr_t) "local";
    call_reply(c, &answer.base);
}

#define CALL(name_, request_, function)                                                         \
    {                                                                                           \
        .name = name_, .request = &boxd__api__v1__##request_##__descriptor, .message = function \
    }

const struct call_type machine_calls[] = {
    CALL("CreateVm", create_vm_request, call_create),
    CALL("DestroyVm", destroy_vm_request, call_destroy),
    CALL("StartVm", start_vm_request, call_start),
    CALL("StopVm", stop_vm_request, call_stop),
    CALL("RebootVm", reboot_vm_request, call_reboot),
    CALL("GetVm", get_vm_request, call_get),
    CALL("ListVms", list_vms_request, call_list_vms),
    CALL("SuggestVmName", suggest_vm_name_request, call_suggest),
    CALL("SuspendVm", suspend_vm_request, call_suspend),
    CALL("ResumeVm", resume_vm_request, call_resume),
    CALL("UpdateVmLabels", update_vm_labels_request, call_labels),
    CALL("SetDeleteAfter", set_delete_after_request, call_delete_after),
    CALL("Whoami", whoami_request, call_whoami),
    CALL("GetConfig", get_config_request, call_config),
    { 0 },
};
