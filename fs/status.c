/* fs/status.c: writes and reads the text of `.boxd/status`. */
#include "fs.h"

#include "status.h"

static int add_time(struct buf *out, const char *key, int64_t seconds)
{
    char when[32];
    time_t t = (time_t)seconds;
    struct tm tm;

    if (seconds <= 0 || !gmtime_r(&t, &tm))
        return 0;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return buf_addf(out, "%s %s\n", key, when);
}

/* A value from outside stays on its line. */
static int add_text(struct buf *out, const char *key, const char *value)
{
    size_t at = out->len;
    int r = value && *value ? buf_addf(out, "%s %s", key, value) : 0;

    if (r < 0 || out->len == at)
        return r;
    make_plain(out->data + at);
    return buf_addch(out, '\n');
}

static int add_connection(struct buf *out, const struct mount *mnt)
{
    struct boxd_client_stats s;

    boxd_client_stats(mnt->client, &s);
    return buf_addf(out,
                    "connected %s\nlatency_us %" PRIu32 "\ncalls %" PRIu64 "\nround_trips %" PRIu64
                    "\nretries %" PRIu64 "\nfailures %" PRIu64 "\nbytes_sent %" PRIu64
                    "\nbytes_received %" PRIu64 "\nconnections %" PRIu64 "\n",
                    s.connected ? "yes" : "no", s.latency_us, s.calls, s.round_trips, s.retries,
                    s.failures, s.bytes_sent, s.bytes_received, s.connections);
}

static bool count_machine(void *arg, struct boxd_machine *m)
{
    ++*(unsigned *)arg;
    return true;
}

int status_account(struct mount *mnt, struct buf *out)
{
    unsigned machines = 0;
    int r = add_text(out, "version", BOXDFS_VERSION);

    boxd_machines_each(mnt->machines, count_machine, &machines);
    if (r >= 0)
        r = add_text(out, "address", boxd_client_address(mnt->client));
    if (r >= 0)
        r = add_text(out, "mount", mnt->opt.mount_point);
    if (r >= 0)
        r = add_time(out, "since", mnt->since);
    if (r >= 0)
        r = buf_addf(out, "pid %d\nmachines %u\nrequests %" PRIu64 "\n", (int)getpid(), machines,
                     mnt->requests);
    return r < 0 ? r : add_connection(out, mnt);
}

static int add_sizes(struct buf *out, const struct boxd_machine_info *i)
{
    return buf_addf(out,
                    "vcpu %" PRIu32 "\nmemory %" PRIu64 "\ndisk %" PRIu64 "\nauto_suspend %" PRIu32
                    "\nisolated %s\n",
                    i->vcpu, i->memory_bytes, i->disk_bytes, i->auto_suspend_seconds,
                    i->isolated ? "yes" : "no");
}

static int add_labels(struct buf *out, const struct boxd_labels *l)
{
    int r = 0;

    for (size_t i = 0; i < l->count && r >= 0; i++) {
        _cleanup_free_ char *text = strf("%s=%s", l->items[i].key, l->items[i].value);

        r = text ? add_text(out, "label", text) : -ENOMEM;
    }
    return r;
}

int status_machine(struct mount *mnt, struct boxd_machine *m, struct buf *out)
{
    const struct boxd_machine_info *i = m->info;
    const struct {
        const char *key, *value;
    } texts[] = {
        { "name", i->name },
        { "id", m->id },
        { "state", m->gone ? "destroyed" : i->status },
        { "ready", m->ready ? "yes" : "no" },
        { "failure", m->failure },
        { "image", i->image },
        { "restart", i->restart_policy },
        { "source", i->source },
        { "public_ip", i->public_ip },
        { "mode", "script" },
    };
    int r = 0;

    for (size_t k = 0; k < ARRAY_LEN(texts) && r >= 0; k++)
        r = add_text(out, texts[k].key, texts[k].value);
    if (r >= 0)
        r = add_sizes(out, i);
    if (r >= 0)
        r = add_labels(out, &i->labels);
    if (r >= 0)
        r = add_time(out, "created", i->created_at);
    if (r >= 0)
        r = add_time(out, "booted", i->boot_time_ms / 1000);
    if (r >= 0)
        r = add_time(out, "delete_at", i->delete_at_ms / 1000);
    if (r >= 0)
        r = buf_addf(out, "requests %" PRIu64 "\n", fsmachine(m)->requests);
    return r < 0 ? r : add_connection(out, mnt);
}

char *status_value(const char *text, const char *key)
{
    size_t n = strlen(key), line;

    for (const char *p = text; *p; p += line + (p[line] == '\n')) {
        line = strcspn(p, "\n");
        if (line > n && !strncmp(p, key, n) && p[n] == ' ')
            return strndup(p + n + 1, line - n - 1);
    }
    return NULL;
}
