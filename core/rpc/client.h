/* rpc/client.h: what channel.c (connections) and call.c (calls) share. Not for others. */
#pragma once

#include "base/base.h"
#include "rpc/dial.h"
#include "rpc/h2.h"
#include "rpc/rpc.h"

struct rpc_channel {
    uv_loop_t *loop;
    struct rpc_target target;
    struct rpc_channel_options options; /* defaults filled in */
    char *ca_file;
    SSL_CTX *tls;
    struct later_queue queue;
    struct list conns, calls;
    struct conn *current; /* takes new calls, or is being opened for them */
    uint64_t retry_at_ms; /* after a failed connection: when the next one may be tried */
    uint32_t backoff_ms;
    char *last_failure;
    uint64_t call_count, conn_count, sent, received; /* of connections that are gone */
    unsigned latency_us;
    unsigned refs; /* the user's, conns', calls' and the queue's */
    bool freed;
};

struct rpc_call {
    struct h2_stream stream;
    struct rpc_channel *channel;
    struct list link; /* in channel->calls, until `end` ran */
    struct rpc_call_handlers handlers;
    void *arg;
    struct call_text *text; /* path and headers, until they are sent */
    uv_timer_t timer;
    uint64_t deadline_ms; /* by the loop's clock; 0: none */
    bool waiting;         /* for a connection */
    bool ended;

    /* what came back */
    unsigned http_status;
    bool got_headers, got_status, grpc_content;
    struct rpc_status status;
    struct buf message;
    bool settled; /* the status is final; what came before may still be delivered */
};

/* channel.c, for call.c: a connection for new calls. 1: *out is ready, 0: it is being opened and
 * call_submit() will come; negative with words: not now. */
int channel_connection(struct rpc_channel *ch, struct h2 **out);
void channel_ref(struct rpc_channel *ch);
void channel_unref(struct rpc_channel *ch);

/* call.c, for channel.c. */
void call_submit(struct rpc_call *call, struct h2 *h);
/* Ends a call that never reached the server. */
void call_unprocessed(struct rpc_call *call, const char *words);
/* Ends a call with CANCELLED now. */
void call_abandon(struct rpc_call *call);
