#include "api/client.h"

#include <boxd/error.h>

#include "api/credentials.h"

#define DEFAULT_ADDRESS "https://boxd.sh:9443"
#define DEFAULT_TIMEOUT_MS 60000

static void stop_channels(struct boxd_client *c)
{
    if (c->control)
        rpc_channel_free(c->control);
    if (c->bulk)
        rpc_channel_free(c->bulk);
    c->control = c->bulk = NULL;
}

void boxd_client_free(struct boxd_client *c)
{
    while (!list_empty(&c->calls)) {
        struct boxd_call *call = container_of(c->calls.next, struct boxd_call, link);

        call->cancel(call);
    }
    stop_channels(c);
    credentials_free(c->credentials);
    if (c->timers)
        timers_free(c->timers);
    rpc_target_clear(&c->target);
    free(c->ca_file);
    free(c);
}
DEFINE_CLEANUP(struct boxd_client, boxd_client_free);

static const char *choose_address(const struct boxd_client_options *o)
{
    static const char *const names[] = { "BOXD_BASE_URL", "BOXD_API_URL" };

    if (o->address)
        return o->address;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *v = getenv(names[i]);

        if (v && *v)
            return v;
    }
    return NULL;
}

int boxd_client_new(uv_loop_t *loop, const struct boxd_client_options *options,
                    struct boxd_client **out)
{
    static const struct boxd_client_options defaults;
    const struct boxd_client_options *o = options ? options : &defaults;
    _cleanup_(cleanup_boxd_client_freep) struct boxd_client *c = calloc(1, sizeof *c);
    struct credential_options wanted = { .token = o->token, .api_key = o->api_key };
    const char *address = choose_address(o);
    int r;

    if (!c)
        return -ENOMEM;
    list_init(&c->calls);
    c->loop = loop;
    c->default_address = !address;
    c->timeout_ms = o->timeout_ms ? o->timeout_ms : DEFAULT_TIMEOUT_MS;
    if (o->ca_file) {
        c->ca_file = strdup(o->ca_file);
        if (!c->ca_file)
            return -ENOMEM;
    }
    r = rpc_target_parse(address ? address : DEFAULT_ADDRESS, &c->target);
    if (r >= 0)
        r = timers_new(loop, &c->timers);
    if (r < 0)
        return r;
    wanted.target = &c->target;
    wanted.ca_file = c->ca_file;
    r = credentials_new(loop, c->timers, &wanted, &c->credentials);
    if (r < 0)
        return r;
    *out = steal_ptr(c);
    return 0;
}

/* Inside a boxd machine the metadata adapter knows the service better than the default does. */
static int follow_adapter(struct boxd_client *c)
{
    const char *url = c->credentials ? credentials_api_url(c->credentials) : NULL;
    struct rpc_target target;
    int r;

    if (!c->default_address || !url)
        return 0;
    r = rpc_target_parse(url, &target);
    if (r < 0)
        return r;
    rpc_target_clear(&c->target);
    c->target = target;
    c->default_address = false;
    return 0;
}

int client_channel(struct boxd_client *c, bool bulk, struct rpc_channel **out)
{
    struct rpc_channel **channel = bulk ? &c->bulk : &c->control;
    struct rpc_channel_options o = { .ca_file = c->ca_file };
    int r = 0;

    if (!*channel) {
        r = follow_adapter(c);
        if (r >= 0)
            r = rpc_channel_new(c->loop, &c->target, &o, channel);
    }
    *out = *channel;
    return r;
}

uv_loop_t *boxd_client_loop(struct boxd_client *c)
{
    return c->loop;
}

const char *boxd_client_address(const struct boxd_client *c)
{
    return c->target.text;
}

static void add_stats(struct boxd_client_stats *out, const struct rpc_channel *channel)
{
    struct rpc_channel_stats st;

    if (!channel)
        return;
    rpc_channel_stats(channel, &st);
    out->bytes_sent += st.bytes_sent;
    out->bytes_received += st.bytes_received;
    out->connections += st.connections;
    out->connected |= st.connected;
    if (!out->latency_us)
        out->latency_us = st.latency_us;
}

void boxd_client_stats(const struct boxd_client *c, struct boxd_client_stats *out)
{
    *out = c->stats;
    add_stats(out, c->control);
    add_stats(out, c->bulk);
}

void call_init(struct boxd_call *call, struct boxd_client *c,
               void (*cancel)(struct boxd_call *call))
{
    call->client = c;
    call->cancel = cancel;
    list_add(&c->calls, &call->link);
}

void call_remove(struct boxd_call *call)
{
    list_remove(&call->link);
}

void boxd_call_cancel(struct boxd_call *call)
{
    call->cancel(call);
}
