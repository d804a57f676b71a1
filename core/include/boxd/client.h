/* boxd/client.h: a connection to the boxd service (or to boxd-local), and how its calls behave.
 *
 * Life: boxd_client_new() connects nothing; the first call does. boxd_client_free() cancels every
 * call under way, closes the connections and returns when no callback can run any more; its uv
 * handles finish closing on the loop afterwards, so run the loop once more before closing it.
 *
 * Calls: every function that starts one takes `done` and `arg` and returns a handle. `done` runs
 * exactly once, never before the starting function has returned, except that boxd_call_cancel()
 * and boxd_client_free() run it themselves with -ECANCELED before they return. The handle dies when
 * `done` returns. What `done` is given belongs to the library and dies when it returns.
 * A call that cannot even be queued still answers through `done`; only when memory ran out is the
 * handle NULL, and `done` never runs then.
 *
 * Errors: `r` is 0 or a negative errno by the table in core/api/errno.c (DESIGN: NOT_FOUND ENOENT,
 * ALREADY_EXISTS EEXIST, UNAUTHENTICATED and PERMISSION_DENIED EACCES, FAILED_PRECONDITION and
 * ABORTED EBUSY, INVALID_ARGUMENT EINVAL, RESOURCE_EXHAUSTED EDQUOT, UNIMPLEMENTED EOPNOTSUPP,
 * UNAVAILABLE EHOSTUNREACH, DEADLINE_EXCEEDED ETIMEDOUT, a result unknown because the connection
 * was lost ECONNRESET, else EIO); boxd_error_words(r) says it for people.
 *
 * Retries: UNAVAILABLE only, twice (after 0.5 s and 1 s), only unary calls and server streams that
 * delivered nothing; refused streams at once; never a call that changes something and may have
 * done so when the connection broke. UNAUTHENTICATED on an exchanged token: one exchange,
 * one repetition.
 *
 * Threads: all functions and callbacks run on the loop's thread. */
#pragma once

#include <boxd/visibility.h>
#include <stdint.h>
#include <uv.h>

struct boxd_client;
struct boxd_call;

struct boxd_client_options {
    /* http://HOST:PORT, https://HOST:PORT, HOST:PORT (TLS unless localhost or 127.*), unix:/PATH.
     * NULL: BOXD_BASE_URL, then BOXD_API_URL, then https://boxd.sh:9443. */
    const char *address;
    /* At most one; both NULL: BOXD_TOKEN, then BOXD_API_KEY, then the metadata adapter inside a
     * boxd machine. A unix: address needs none. Copied; never logged nor shown. */
    const char *token;
    const char *api_key;
    /* PEM file of certificates trusted instead of the system's; NULL: SSL_CERT_FILE, else the
     * system's. */
    const char *ca_file;
    /* Milliseconds for a unary call, retries not counted; 0: 60,000. */
    uint32_t timeout_ms;
};

/* Counters for people and tests. */
struct boxd_client_stats {
    uint64_t calls;       /* calls started, streams included */
    uint64_t round_trips; /* requests whose answer somebody waited for: unary calls and the
                           * opening of streams, retries included */
    uint64_t retries;
    uint64_t failures;   /* calls that ended with an error */
    uint64_t bytes_sent; /* on the wire */
    uint64_t bytes_received;
    uint64_t connections; /* opened so far */
    uint32_t latency_us;  /* smoothed round trip of PING; 0: not measured yet */
    uint8_t connected;    /* a connection is up now */
};

/* Returns 0, or -EINVAL for a malformed address, -ENOKEY when there are no credentials; the words
 * name the variable or option that cures it. */
BOXD_API int boxd_client_new(uv_loop_t *loop, const struct boxd_client_options *options,
                             struct boxd_client **out);
BOXD_API void boxd_client_free(struct boxd_client *c);
BOXD_API uv_loop_t *boxd_client_loop(struct boxd_client *c);
/* The address in use, for people. */
BOXD_API const char *boxd_client_address(const struct boxd_client *c);
BOXD_API void boxd_client_stats(const struct boxd_client *c, struct boxd_client_stats *out);

/* Ends a call; `done` runs with -ECANCELED before this returns. The server is told. */
BOXD_API void boxd_call_cancel(struct boxd_call *call);

/* A result without content. */
typedef void boxd_done(void *arg, int r);
