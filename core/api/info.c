/* What the service says of a machine, from its message, and copies of it. */
#include "api/calls.h"

#include <boxd/machine.h>

static const char *source_text(char *out, size_t size, const Boxd__Api__V1__GetVmResponse *m)
{
    const Boxd__Api__V1__VmSource *s = m->source_info;

    if (m->source[0] || !s || !s->kind[0])
        return m->source;
    if (!s->name[0])
        snprintf(out, size, "%s", s->kind);
    else if (s->version)
        snprintf(out, size, "%s/%s:%" PRIu64, s->kind, s->name, s->version);
    else
        snprintf(out, size, "%s/%s", s->kind, s->name);
    return out;
}

void info_fill(struct boxd_machine_info *out, struct boxd_label *labels, char *source,
               size_t source_size, const Boxd__Api__V1__GetVmResponse *m)
{
    for (size_t i = 0; i < m->n_labels; i++)
        labels[i] = (struct boxd_label){ m->labels[i]->key, m->labels[i]->value };
    *out = (struct boxd_machine_info){
        .id = m->vm_id,
        .name = m->name,
        .image = m->image_ref,
        .status = m->status,
        .restart_policy = m->restart_policy,
        .source = source_text(source, source_size, m),
        .public_ip = m->public_ip,
        .org = m->org,
        .vcpu = m->vcpu,
        .memory_bytes = m->memory_bytes,
        .disk_bytes = m->disk_bytes,
        .auto_suspend_seconds = m->auto_suspend_timeout_secs,
        .auto_hibernate_seconds = m->auto_hibernate_timeout_secs,
        .created_at = m->created_at,
        .boot_time_ms = m->boot_time_ms,
        .last_connected_ms = m->last_connected_ms,
        .delete_at_ms = m->delete_at_ms,
        .isolated = m->isolated,
        .labels = { labels, m->n_labels },
    };
}

/* A copy is one block: the struct, its labels, then all text. */
static const char *put(char **at, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = *at;

    memcpy(p, s, n);
    *at += n;
    return p;
}

static const size_t text_fields[] = {
    offsetof(struct boxd_machine_info, id),
    offsetof(struct boxd_machine_info, name),
    offsetof(struct boxd_machine_info, image),
    offsetof(struct boxd_machine_info, status),
    offsetof(struct boxd_machine_info, restart_policy),
    offsetof(struct boxd_machine_info, source),
    offsetof(struct boxd_machine_info, public_ip),
    offsetof(struct boxd_machine_info, org),
};

static const char **text_field(struct boxd_machine_info *m, size_t i)
{
    return (const char **)(void *)((char *)m + text_fields[i]);
}

struct boxd_machine_info *boxd_machine_info_dup(const struct boxd_machine_info *m)
{
    struct boxd_machine_info copy = *m, *out;
    struct boxd_label *labels;
    size_t n = sizeof *out + m->labels.count * sizeof *labels;
    char *at;

    for (size_t i = 0; i < ARRAY_LEN(text_fields); i++)
        n += strlen(*text_field(&copy, i)) + 1;
    for (size_t i = 0; i < m->labels.count; i++)
        n += strlen(m->labels.items[i].key) + strlen(m->labels.items[i].value) + 2;
    out = malloc(n);
    if (!out)
        return NULL;
    *out = *m;
    labels = (struct boxd_label *)(void *)(out + 1);
    at = (char *)(labels + m->labels.count);
    for (size_t i = 0; i < ARRAY_LEN(text_fields); i++)
        *text_field(out, i) = put(&at, *text_field(&copy, i));
    for (size_t i = 0; i < m->labels.count; i++) {
        labels[i].key = put(&at, m->labels.items[i].key);
        labels[i].value = put(&at, m->labels.items[i].value);
    }
    out->labels.items = labels;
    return out;
}

void boxd_machine_info_free(struct boxd_machine_info *m)
{
    free(m);
}
