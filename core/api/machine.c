/* The calls of boxd/machine.h, one function each. */
#include "api/calls.h"

#include <boxd/error.h>
#include <boxd/machine.h>

/* Calls whose request is only the machine and whose answer says nothing. */
#define MACHINE_CALL(function, rpc, stem, Type, INIT, what)                                      \
    struct boxd_call *function(struct boxd_client *c, const char *machine, boxd_done *done,      \
                               void *arg)                                                        \
    {                                                                                            \
        static const struct api_method method = METHOD(rpc, stem, what, true);                   \
        Boxd__Api__V1__##Type##Request q = BOXD__API__V1__##INIT##_REQUEST__INIT;                \
                                                                                                 \
        q.vm_id = text(machine);                                                                 \
        return unary_start(c, &method, machine, &q.base, answer_nothing, (api_done *)done, arg); \
    }

MACHINE_CALL(boxd_destroy, DestroyVm, destroy_vm, DestroyVm, DESTROY_VM, "destroy machine")
MACHINE_CALL(boxd_start, StartVm, start_vm, StartVm, START_VM, "start machine")
MACHINE_CALL(boxd_stop, StopVm, stop_vm, StopVm, STOP_VM, "stop machine")
MACHINE_CALL(boxd_reboot, RebootVm, reboot_vm, RebootVm, REBOOT_VM, "reboot machine")

static void answer_suspend(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__SuspendVmResponse *v = (const void *)m;

    ((boxd_number_done *)done)(arg, r, r < 0 ? 0 : (int64_t)v->suspend_us);
}

struct boxd_call *boxd_suspend(struct boxd_client *c, const char *machine, boxd_number_done *done,
                               void *arg)
{
    static const struct api_method method = METHOD(SuspendVm, suspend_vm, "pause machine", true);
    Boxd__Api__V1__SuspendVmRequest q = BOXD__API__V1__SUSPEND_VM_REQUEST__INIT;

    q.vm_id = text(machine);
    return unary_start(c, &method, machine, &q.base, answer_suspend, (api_done *)done, arg);
}

static void answer_resume(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__ResumeVmResponse *v = (const void *)m;

    ((boxd_number_done *)done)(arg, r, r < 0 ? 0 : (int64_t)v->resume_us);
}

struct boxd_call *boxd_resume(struct boxd_client *c, const char *machine, boxd_number_done *done,
                              void *arg)
{
    static const struct api_method method = METHOD(ResumeVm, resume_vm, "resume machine", true);
    Boxd__Api__V1__ResumeVmRequest q = BOXD__API__V1__RESUME_VM_REQUEST__INIT;

    q.vm_id = text(machine);
    return unary_start(c, &method, machine, &q.base, answer_resume, (api_done *)done, arg);
}

static void answer_machine(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__GetVmResponse *v = (const void *)m;
    _cleanup_free_ struct boxd_label *labels = NULL;
    struct boxd_machine_info info;
    char source[512];

    if (r >= 0) {
        labels = calloc(v->n_labels + 1, sizeof *labels);
        if (labels)
            info_fill(&info, labels, source, sizeof source, v);
        else
            r = -ENOMEM;
    }
    ((boxd_machine_done *)done)(arg, r, r < 0 ? NULL : &info);
}

struct boxd_call *boxd_get(struct boxd_client *c, const char *machine, boxd_machine_done *done,
                           void *arg)
{
    static const struct api_method method = METHOD(GetVm, get_vm, "look up machine", false);
    Boxd__Api__V1__GetVmRequest q = BOXD__API__V1__GET_VM_REQUEST__INIT;

    q.vm_id = text(machine);
    return unary_start(c, &method, machine, &q.base, answer_machine, (api_done *)done, arg);
}

static void answer_text(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__SuggestVmNameResponse *v = (const void *)m;

    ((boxd_text_done *)done)(arg, r, r < 0 ? NULL : v->name);
}

struct boxd_call *boxd_suggest_name(struct boxd_client *c, boxd_text_done *done, void *arg)
{
    static const struct api_method method =
        METHOD(SuggestVmName, suggest_vm_name, "suggest a name", false);
    Boxd__Api__V1__SuggestVmNameRequest q = BOXD__API__V1__SUGGEST_VM_NAME_REQUEST__INIT;

    return unary_start(c, &method, NULL, &q.base, answer_text, (api_done *)done, arg);
}

static void answer_number(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__SetDeleteAfterResponse *v = (const void *)m;

    ((boxd_number_done *)done)(arg, r, r < 0 ? 0 : v->delete_at_ms);
}

struct boxd_call *boxd_set_delete_after(struct boxd_client *c, const char *machine,
                                        uint64_t seconds, const char *cron, boxd_number_done *done,
                                        void *arg)
{
    static const struct api_method method =
        METHOD(SetDeleteAfter, set_delete_after, "set the lease of machine", true);
    Boxd__Api__V1__SetDeleteAfterRequest q = BOXD__API__V1__SET_DELETE_AFTER_REQUEST__INIT;

    q.vm_id = text(machine);
    q.delete_after_secs = seconds;
    q.delete_after_cron = text(cron);
    return unary_start(c, &method, machine, &q.base, answer_number, (api_done *)done, arg);
}

static void answer_account(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__WhoamiResponse *v = (const void *)m;
    struct boxd_account a = { 0 };

    if (r >= 0) {
        a.user_id = v->user_id;
        a.display_name = v->display_name;
        if (v->billing) {
            a.max_machines = v->billing->max_vms;
            a.vcpu = v->billing->vcpu;
            a.memory_bytes = v->billing->memory_bytes;
        }
    }
    ((boxd_account_done *)done)(arg, r, r < 0 ? NULL : &a);
}

struct boxd_call *boxd_whoami(struct boxd_client *c, boxd_account_done *done, void *arg)
{
    static const struct api_method method = METHOD(Whoami, whoami, "ask who I am", false);
    Boxd__Api__V1__WhoamiRequest q = BOXD__API__V1__WHOAMI_REQUEST__INIT;

    return unary_start(c, &method, NULL, &q.base, answer_account, (api_done *)done, arg);
}

static void answer_config(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__GetConfigResponse *v = (const void *)m;
    struct boxd_service_config config = { 0 };

    if (r >= 0)
        config = (struct boxd_service_config){ v->default_image, v->zone };
    ((boxd_service_config_done *)done)(arg, r, r < 0 ? NULL : &config);
}

struct boxd_call *boxd_get_config(struct boxd_client *c, boxd_service_config_done *done, void *arg)
{
    static const struct api_method method =
        METHOD(GetConfig, get_config, "get the service's configuration", false);
    Boxd__Api__V1__GetConfigRequest q = BOXD__API__V1__GET_CONFIG_REQUEST__INIT;

    return unary_start(c, &method, NULL, &q.base, answer_config, (api_done *)done, arg);
}
