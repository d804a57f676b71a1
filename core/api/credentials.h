/* api/credentials.h: what goes into a call's authorization header, and how it is had.
 *
 * A token is used as it is. An API key is exchanged for a token at the console, the metadata
 * adapter of a boxd machine gives one for nothing; both are renewed in time, one exchange at a time
 * however many calls wait for it. A key is sent to the console only. Keys and tokens never stand in
 * words or logs, and their memory is wiped.
 * Threads: the loop's thread. No callback runs inside a function of this header. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "api/timers.h"
#include "rpc/rpc.h"

struct credentials;

struct credential_options {
    const struct rpc_target *target;
    const char *ca_file;
    const char *token, *api_key; /* given; NULL: not */
    const char *metadata_url;    /* tests: the adapter is there, whatever the environment says */
};

/* *out is NULL where none are needed (unix sockets). -ENOKEY when there are none, -EINVAL when they
 * cannot be used; with words. */
int credentials_new(uv_loop_t *loop, struct timers *timers, const struct credential_options *o,
                    struct credentials **out);
/* Waiters are forgotten. NULL is ignored. */
void credentials_free(struct credentials *cs);

/* 0: *authorization is the header's value, which lives until the loop's next turn; -EAGAIN: wait
 * for it; another negative errno with words when waiting is useless. */
int credentials_get(struct credentials *cs, const char **authorization, uint64_t *generation);

struct credential_wait {
    struct list link;
    void (*done)(struct credential_wait *w, int r);
};
void credential_wait_init(struct credential_wait *w,
                          void (*done)(struct credential_wait *w, int r));
/* `done` runs once with 0 (ask again) or a negative errno with words; list_remove(&w->link) forgets
 * the waiter. */
void credentials_wait(struct credentials *cs, struct credential_wait *w);
/* The service refused the header of this generation. Whether asking again can give another. */
bool credentials_renew(struct credentials *cs, uint64_t generation);
/* The service's address as the metadata adapter tells it, or NULL. */
const char *credentials_api_url(const struct credentials *cs);

/* ---- parts, for tests -------------------------------------------------------------------------
 */

/* Appends the URL of the console that belongs to a service. */
int console_url(const struct rpc_target *target, struct buf *out);
/* Finds the default gateway in the text of /proc/net/route: 0 and its IPv4 address in host order,
 * or -ENOENT. */
int default_gateway(const char *route, uint32_t *address);

struct token_answer {
    char *token, *api_url; /* api_url may be NULL */
    int64_t expires_at;    /* seconds since 1970 */
};
/* -EBADMSG with words unless it is exactly what an exchange answers. */
int token_parse(const char *json, size_t n, struct token_answer *out);
void token_answer_clear(struct token_answer *a);
/* Frees a string after wiping it. */
void secret_free(char *s);
