/* ListVms and labels. */
#include "api/calls.h"

#include <boxd/machine.h>

#include "base/str.h"

/* Selectors travel with the call, because an old service ignores them. */
struct list_call {
    boxd_machines_done *done;
    void *arg;
    char **selectors;
};

static bool matches_one(const Boxd__Api__V1__GetVmResponse *m, const char *selector)
{
    const char *equals = strchr(selector, '=');
    size_t n = equals ? (size_t)(equals - selector) : strlen(selector);

    for (size_t i = 0; i < m->n_labels; i++)
        if (strlen(m->labels[i]->key) == n && !memcmp(m->labels[i]->key, selector, n))
            return !equals || !strcmp(m->labels[i]->value, equals + 1);
    return false;
}

static bool matches(const Boxd__Api__V1__GetVmResponse *m, char *const *selectors)
{
    for (; *selectors; selectors++)
        if (!matches_one(m, *selectors))
            return false;
    return true;
}

/* One machine of the answer, with what info_fill() needs. */
struct listed {
    struct boxd_machine_info info;
    char source[512];
};

static int fill_list(const Boxd__Api__V1__ListVmsResponse *v, const struct list_call *l)
{
    size_t label_count = 0, n = 0, used = 0;
    _cleanup_free_ struct listed *listed = calloc(v->n_vms + 1, sizeof *listed);
    _cleanup_free_ const struct boxd_machine_info **list = calloc(v->n_vms + 1, sizeof *list);
    _cleanup_free_ struct boxd_label *labels = NULL;

    for (size_t i = 0; i < v->n_vms; i++)
        label_count += v->vms[i]->n_labels;
    labels = calloc(label_count + 1, sizeof *labels);
    if (!listed || !list || !labels)
        return -ENOMEM;
    for (size_t i = 0; i < v->n_vms; i++) {
        if (!matches(v->vms[i], l->selectors))
            continue;
        info_fill(&listed[n].info, labels + used, listed[n].source, sizeof listed[n].source,
                  v->vms[i]);
        used += v->vms[i]->n_labels;
        list[n] = &listed[n].info;
        n++;
    }
    l->done(l->arg, 0, list, n);
    return 0;
}

static void answer_list(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    struct list_call *l = arg;

    if (r >= 0)
        r = fill_list((const void *)m, l);
    if (r < 0)
        l->done(l->arg, r, NULL, 0);
    strv_free(l->selectors);
    free(l);
}

static char **strv_copy(const char *const *v, size_t n)
{
    _cleanup_strv_ char **copy = calloc(n + 1, sizeof *copy);

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(v[i]);
        if (!copy[i])
            return NULL;
    }
    return steal_ptr(copy);
}

struct boxd_call *boxd_list(struct boxd_client *c, const char *const *selectors,
                            size_t selector_count, boxd_machines_done *done, void *arg)
{
    static const struct api_method method = METHOD(ListVms, list_vms, "list machines", false);
    Boxd__Api__V1__ListVmsRequest q = BOXD__API__V1__LIST_VMS_REQUEST__INIT;
    struct list_call *l = calloc(1, sizeof *l);
    struct boxd_call *call = NULL;

    if (!l)
        return NULL;
    *l = (struct list_call){ done, arg, strv_copy(selectors, selector_count) };
    q.n_label_selector = selector_count;
    q.label_selector = l->selectors;
    if (l->selectors)
        call = unary_start(c, &method, NULL, &q.base, answer_list, NULL, l);
    if (!call) {
        strv_free(l->selectors);
        free(l);
    }
    return call;
}

static void answer_labels(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__UpdateVmLabelsResponse *v = (const void *)m;
    _cleanup_free_ struct boxd_label *items = NULL;
    struct boxd_labels labels = { 0 };

    if (r >= 0) {
        items = calloc(v->n_labels + 1, sizeof *items);
        if (!items)
            r = -ENOMEM;
    }
    for (size_t i = 0; r >= 0 && i < v->n_labels; i++)
        items[i] = (struct boxd_label){ v->labels[i]->key, v->labels[i]->value };
    if (r >= 0)
        labels = (struct boxd_labels){ items, v->n_labels };
    ((boxd_labels_done *)done)(arg, r, r < 0 ? NULL : &labels);
}

struct boxd_call *boxd_update_labels(struct boxd_client *c, const char *machine,
                                     const struct boxd_labels *set, const char *const *remove_keys,
                                     size_t remove_count, bool replace_all, boxd_labels_done *done,
                                     void *arg)
{
    typedef Boxd__Api__V1__UpdateVmLabelsRequest__SetEntry entry;
    static const struct api_method method =
        METHOD(UpdateVmLabels, update_vm_labels, "change the labels of machine", true);
    Boxd__Api__V1__UpdateVmLabelsRequest q = BOXD__API__V1__UPDATE_VM_LABELS_REQUEST__INIT;
    size_t n = set ? set->count : 0;
    _cleanup_free_ entry *entries = calloc(n + 1, sizeof *entries);
    _cleanup_free_ entry **list = calloc(n + 1, sizeof *list);

    if (!entries || !list)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        boxd__api__v1__update_vm_labels_request__set_entry__init(&entries[i]);
        entries[i].key = text(set->items[i].key);
        entries[i].value = text(set->items[i].value);
        list[i] = &entries[i];
    }
    q.vm = text(machine);
    q.n_set = n;
    q.set = list;
    q.n_remove = remove_count;
    q.remove = (char **)(uintptr_t)remove_keys;
    q.replace_all = replace_all;
    return unary_start(c, &method, machine, &q.base, answer_labels, (api_done *)done, arg);
}
