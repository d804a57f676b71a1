/* local/auth.h: keys and tokens for clients that come over TCP.
 *
 * A token is its expiry and a nonce under an HMAC of the key, so none is stored and all outlive a
 * restart. Comparisons take constant time. Keys and tokens are never logged. */
#pragma once

#include "base/base.h"

struct auth;

/* Reads the key from `path`; makes one there (0600) when the file is missing and `create`.
 * 0 or a negative errno with words. */
int auth_open(const char *path, bool create, struct auth **out);
void auth_free(struct auth *a);

/* Whether the value of an authorization header is a token of ours that is still valid. */
bool auth_check(const struct auth *a, const char *authorization, int64_t now_s);

/* The answer to a token exchange. */
struct auth_answer {
    int status;
    unsigned retry_after; /* seconds; 0: no header */
    char *body;           /* JSON, malloc()ed; NULL: out of memory */
};
/* POST of {"api_key": ...} from an address; at most 30 a minute from each. */
void auth_exchange(struct auth *a, const char *address, const void *body, size_t n, int64_t now_s,
                   struct auth_answer *out);
