/* api/errno.h: the one table from gRPC status to errno, with words for people. */
#pragma once

#include "base/base.h"
#include "rpc/rpc.h"

struct api_method;

/* The result of a call that ended with `status` (not RPC_OK), with words made of what the call
 * does, its subject (NULL: none) and the server's message, whose control characters are replaced.
 */
int api_errno(const struct api_method *method, const char *subject,
              const struct rpc_status *status);
/* "cannot create machine 'dev': WHY" as the words for r; returns r. */
int api_words(int r, const struct api_method *method, const char *subject, const char *why);
