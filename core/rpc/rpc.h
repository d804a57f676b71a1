/* rpc/rpc.h: gRPC over HTTP/2, client side. Knows bytes and statuses, no protobuf.
 *
 * Rules of the transport (windows, when to consume, cancel, GOAWAY, TLS, liveness) are in
 * core/rpc/README.md.
 *
 * Life: a channel is one target; it connects when a call needs it, keeps at most one connection for
 * new calls, and old ones until their streams end. A call dies when its `end` callback returns.
 * `end` runs exactly once and is the last callback; rpc_call_cancel() and rpc_channel_free() run it
 * with RPC_CANCELLED before they return. No callback runs before rpc_call_start() has returned, and
 * no callback is entered while another of the same call is running.
 * Threads: the loop's thread. */
#pragma once

#include "base/base.h"
#include <uv.h>

/* gRPC's status codes. */
enum rpc_code {
    RPC_OK = 0,
    RPC_CANCELLED = 1,
    RPC_UNKNOWN = 2,
    RPC_INVALID_ARGUMENT = 3,
    RPC_DEADLINE_EXCEEDED = 4,
    RPC_NOT_FOUND = 5,
    RPC_ALREADY_EXISTS = 6,
    RPC_PERMISSION_DENIED = 7,
    RPC_RESOURCE_EXHAUSTED = 8,
    RPC_FAILED_PRECONDITION = 9,
    RPC_ABORTED = 10,
    RPC_OUT_OF_RANGE = 11,
    RPC_UNIMPLEMENTED = 12,
    RPC_INTERNAL = 13,
    RPC_UNAVAILABLE = 14,
    RPC_DATA_LOSS = 15,
    RPC_UNAUTHENTICATED = 16,
};
#define RPC_CODE_LAST RPC_UNAUTHENTICATED

/* A message is at most this long in either direction; a longer one ends the call with
 * RPC_RESOURCE_EXHAUSTED before it is buffered. */
#define RPC_MESSAGE_MAX (16u * 1024 * 1024)
/* A call whose send queue was above this is told `writable` when it falls below. */
#define RPC_QUEUE_LOW (256u * 1024)

struct rpc_status {
    enum rpc_code code;
    const char *message; /* UTF-8, decoded; never NULL */
    /* How far the request got, for the retry rule. */
    bool
        unprocessed; /* the server certainly did not start on it (refused, GOAWAY, no connection) */
    bool local;      /* made on this side (connection, deadline, cancel), not sent by the server */
    bool connection_lost; /* the connection broke while the call was open */
};

/* A parsed address. Which forms: see boxd/client.h. */
struct rpc_target {
    char *text; /* as given */
    char *host; /* or the path of a unix socket */
    uint16_t port;
    bool tls, is_unix;
};
/* 0, or -EINVAL with words. */
int rpc_target_parse(const char *address, struct rpc_target *out);
void rpc_target_clear(struct rpc_target *t);

struct rpc_channel_options {
    const char *ca_file;         /* PEM; NULL: SSL_CERT_FILE, else the system's */
    uint32_t connect_timeout_ms; /* 0: 10,000 */
    uint32_t stream_window;      /* 0: 4 MiB */
    uint32_t connection_window;  /* 0: 32 MiB */
    uint32_t ping_interval_ms;   /* asks if the server lives; 0: 1,000; only while calls are open */
    uint32_t ping_timeout_ms;    /* 0: 3,000 without a byte = the connection is dead */
};

struct rpc_channel;
struct rpc_call;

int rpc_channel_new(uv_loop_t *loop, const struct rpc_target *target,
                    const struct rpc_channel_options *options, struct rpc_channel **out);
/* Ends every call (RPC_CANCELLED) and connection. uv handles finish closing on the loop. */
void rpc_channel_free(struct rpc_channel *ch);

struct rpc_channel_stats {
    uint64_t calls, bytes_sent, bytes_received, connections;
    uint32_t latency_us; /* smoothed round trip; 0: none yet */
    bool connected;
};
void rpc_channel_stats(const struct rpc_channel *ch, struct rpc_channel_stats *out);

struct rpc_header {
    const char *name, *value; /* name in lower case */
};

struct rpc_call_handlers {
    /* One whole message; `data` dies when the callback returns. NULL: a message is an error. */
    void (*message)(void *arg, const uint8_t *data, size_t n);
    void (*writable)(void *arg); /* may be NULL */
    void (*end)(void *arg, const struct rpc_status *status);
};

struct rpc_call_spec {
    const char *path;                 /* "/boxd.api.v1.BoxdApi/GetVm" */
    const struct rpc_header *headers; /* copied; no blanks around values */
    size_t header_count;
    uint32_t deadline_ms; /* 0: none. Sent as grpc-timeout and enforced here */
    struct rpc_call_handlers handlers;
    void *arg;
};

/* NULL only when memory ran out. */
struct rpc_call *rpc_call_start(struct rpc_channel *ch, const struct rpc_call_spec *spec);
/* Queues one message (copied). Returns the bytes waiting in this call's queue, or -ENOMEM,
 * -EMSGSIZE. Ignored (0) once the request side is closed. */
ssize_t rpc_call_send(struct rpc_call *call, const void *data, size_t n);
/* Half-close: no more messages will be sent. */
void rpc_call_finish(struct rpc_call *call);
/* While paused no message is delivered and the stream's window is not reopened; `end` waits. */
void rpc_call_pause(struct rpc_call *call, bool paused);
/* RST_STREAM(CANCEL); `end` runs with RPC_CANCELLED before this returns. */
void rpc_call_cancel(struct rpc_call *call);
/* grpc status name for logs and words: "NOT_FOUND". */
const char *rpc_code_name(enum rpc_code code);
