/* api/client.h: inside of a client, for the files of core/api and core/machine. */
#pragma once

#include "base/base.h"
#include "base/list.h"
#include "rpc/rpc.h"
#include "api/timers.h"
#include <boxd/client.h>

struct credentials;

struct boxd_client {
    uv_loop_t *loop;
    struct timers *timers;
    struct rpc_target target;
    bool default_address;               /* nobody named one */
    struct rpc_channel *control, *bulk; /* made when first needed */
    char *ca_file;
    struct credentials *credentials; /* NULL: none are needed */
    struct list calls;               /* struct boxd_call */
    uint32_t timeout_ms;
    struct boxd_client_stats stats;
};

/* The head of everything that boxd_client_free() must end. */
struct boxd_call {
    struct list link;
    struct boxd_client *client;
    /* Runs `done` with -ECANCELED and frees. */
    void (*cancel)(struct boxd_call *call);
};

void call_init(struct boxd_call *call, struct boxd_client *c,
               void (*cancel)(struct boxd_call *call));
/* The call has ended. */
void call_remove(struct boxd_call *call);

/* The channel for a call, made when needed. 0 or a negative errno with words. */
int client_channel(struct boxd_client *c, bool bulk, struct rpc_channel **out);

struct boxd_exec;
/* Ends a command from inside of libboxd: `done` gets r on the loop's next turn. */
void exec_fail(struct boxd_exec *e, int r);
