/* CreateVm: the one call whose request has much in it. */
#include "api/calls.h"

#include <boxd/machine.h>

typedef Boxd__Api__V1__EnvVar env_var;
typedef Boxd__Api__V1__CreateVmRequest__LabelsEntry labels_entry;

/* The arrays of pointers that protobuf-c wants, in memory that lives until the request is packed.
 */
struct parts {
    env_var *vars, **var_list;
    labels_entry *labels, **label_list;
};

static void parts_clear(struct parts *p)
{
    free(p->vars);
    free(p->var_list);
    free(p->labels);
    free(p->label_list);
}

static bool parts_fill(struct parts *p, const struct boxd_create_options *o)
{
    p->vars = calloc(o->env_count + 1, sizeof *p->vars);
    p->var_list = calloc(o->env_count + 1, sizeof *p->var_list);
    p->labels = calloc(o->labels.count + 1, sizeof *p->labels);
    p->label_list = calloc(o->labels.count + 1, sizeof *p->label_list);
    if (!p->vars || !p->var_list || !p->labels || !p->label_list)
        return false;
    for (size_t i = 0; i < o->env_count; i++) {
        boxd__api__v1__env_var__init(&p->vars[i]);
        p->vars[i].key = text(o->env[i].key);
        p->vars[i].value = text(o->env[i].value);
        p->var_list[i] = &p->vars[i];
    }
    for (size_t i = 0; i < o->labels.count; i++) {
        boxd__api__v1__create_vm_request__labels_entry__init(&p->labels[i]);
        p->labels[i].key = text(o->labels.items[i].key);
        p->labels[i].value = text(o->labels.items[i].value);
        p->label_list[i] = &p->labels[i];
    }
    return true;
}

static void answer_created(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__CreateVmResponse *v = (const void *)m;
    struct boxd_created created = { 0 };

    if (r >= 0)
        created =
            (struct boxd_created){ v->vm_id, v->name, v->status, v->image, v->url, v->public_ip };
    ((boxd_created_done *)done)(arg, r, r < 0 ? NULL : &created);
}

struct boxd_call *boxd_create(struct boxd_client *c, const struct boxd_create_options *o,
                              boxd_created_done *done, void *arg)
{
    static const struct api_method method = METHOD(CreateVm, create_vm, "create machine", true);
    Boxd__Api__V1__CreateVmRequest q = BOXD__API__V1__CREATE_VM_REQUEST__INIT;
    Boxd__Api__V1__VmConfig config = BOXD__API__V1__VM_CONFIG__INIT;
    Boxd__Api__V1__SrfConfig srf = BOXD__API__V1__SRF_CONFIG__INIT;
    _cleanup_(parts_clear) struct parts parts = { 0 };

    if (!parts_fill(&parts, o))
        return NULL;
    q.name = text(o->name);
    q.image_ref = text(o->image);
    q.restart_policy = text(o->restart_policy ? o->restart_policy : "always");
    q.org = text(o->org);
    q.isolated = o->isolated;
    q.n_env = o->env_count;
    q.env = parts.var_list;
    q.n_labels = o->labels.count;
    q.labels = parts.label_list;
    q.n_cmd = o->cmd_count;
    q.cmd = (char **)(uintptr_t)o->cmd;
    q.n_networks = o->network_count;
    q.networks = (char **)(uintptr_t)o->networks;
    q.config = &config;
    config.vcpu = o->vcpu;
    config.memory_bytes = o->memory_bytes;
    config.disk_bytes = o->disk_bytes;
    if (o->auto_suspend_set && o->auto_suspend_seconds >= 0) {
        srf._auto_suspend_timeout_secs_case =
            BOXD__API__V1__SRF_CONFIG___AUTO_SUSPEND_TIMEOUT_SECS_AUTO_SUSPEND_TIMEOUT_SECS;
        srf.auto_suspend_timeout_secs =
            o->auto_suspend_seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)o->auto_suspend_seconds;
        config.srf = &srf;
    }
    return unary_start(c, &method, o->name, &q.base, answer_created, (api_done *)done, arg);
}
