/* local/service.h: the service of boxd-local: its calls, and what their implementations share.
 *
 * One process, one loop, one thread: nothing here is locked. A call comes in through
 * service_handlers(), is looked up in the table of service.c and goes to one of local/call_*.c,
 * which check it, act through local/vm.h and local/command.h, and answer exactly once. */
#pragma once

#include "base/base.h"
#include "base/list.h"
#include "local/auth.h"
#include "local/host.h"
#include "local/options.h"
#include "rpc/server.h"
#include <protobuf-c/protobuf-c.h>

#define PB(name) Boxd__Api__V1__##name
#define SERVICE_IO_MAX (256 * 1024)

struct service {
    uv_loop_t *loop;
    const struct options *options;
    struct host *host; /* owned */
    struct auth *auth; /* owned; NULL: no TCP */
    struct list vms;   /* struct vm, in the order of creation */
    unsigned connections;
    uint64_t idle_since_ms;
    uv_timer_t tick;
    void (*idle)(struct service *s); /* nobody needed the server for --idle-exit seconds */
    uint8_t io[SERVICE_IO_MAX];      /* one read's bytes, never kept */
};

/* Loads the machines. Takes `host` and `auth` also on failure. 0 or a negative errno with words. */
int service_new(uv_loop_t *loop, const struct options *o, struct host *host, struct auth *auth,
                void (*idle)(struct service *s), struct service **out);
/* Kills every machine; calls must have ended (rpc_server_free). Memory goes when the loop has run
 * once more. */
void service_free(struct service *s);
/* The transport's handlers; their `arg` is the service. */
struct rpc_server_handlers service_handlers(void);

/* ---- one call ------------------------------------------------------------------------------- */

struct call;

struct call_type {
    const char *name;
    const ProtobufCMessageDescriptor *request;
    /* A message arrived; it dies when this returns. Called once, unless `stream`. */
    void (*message)(struct call *c, const ProtobufCMessage *m);
    bool stream;                        /* the client sends several messages */
    void (*half_close)(struct call *c); /* may be NULL */
};

struct call {
    struct service *s;
    const struct call_type *type;
    struct rpc_stream *stream; /* NULL once the client is gone or has all of the answer */
    bool started;              /* a message came */
    bool answered;
    unsigned refs;
    /* The implementation's. `gone` runs once when the stream is over, `writable` when the send
     * queue became short again, `free_data` with the last reference. */
    void *data;
    void (*free_data)(void *data);
    void (*gone)(struct call *c);
    void (*writable)(struct call *c);
};

/* Keeps a call beyond its stream, for an answer that comes later. */
struct call *call_ref(struct call *c);
void call_unref(struct call *c);
/* Whether somebody still waits for the answer. */
bool call_open(const struct call *c);
/* The answer of a unary call. All three do nothing when nobody waits any more. */
void call_reply(struct call *c, const ProtobufCMessage *m);
/* Ends the call with a status; `words` may be NULL. */
void call_end(struct call *c, enum rpc_code code, const char *words);
/* The status that belongs to a negative errno, with boxd_error_words(r). */
void call_fail(struct call *c, int r);
/* One message of an answer stream: bytes now queued, or a negative errno (the call then ended). */
ssize_t call_send(struct call *c, const ProtobufCMessage *m);

enum rpc_code service_code(int r);

/* The tables of call_machines.c, call_exec.c and call_files.c; each ends with a NULL name. */
extern const struct call_type machine_calls[], exec_calls[], file_calls[];
