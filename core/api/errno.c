#include "api/errno.h"

#include <boxd/error.h>

#include "api/stream.h"

static const struct {
    enum rpc_code code;
    int error;
    const char *meaning; /* when the server says nothing */
    const char *cure;    /* NULL: none */
} table[] = {
    { RPC_CANCELLED, EIO, "the service cancelled the call", NULL },
    { RPC_UNKNOWN, EIO, "the service failed", NULL },
    { RPC_INVALID_ARGUMENT, EINVAL, "not a valid request", NULL },
    { RPC_DEADLINE_EXCEEDED, ETIMEDOUT, "no answer in time", NULL },
    { RPC_NOT_FOUND, ENOENT, "not found", NULL },
    { RPC_ALREADY_EXISTS, EEXIST, "already exists", NULL },
    { RPC_PERMISSION_DENIED, EACCES, "permission denied", NULL },
    { RPC_RESOURCE_EXHAUSTED, EDQUOT, "a quota or rate limit is reached", NULL },
    { RPC_FAILED_PRECONDITION, EBUSY, "not possible in its present state", NULL },
    { RPC_ABORTED, EBUSY, "in conflict with another change", NULL },
    { RPC_OUT_OF_RANGE, EIO, "out of range", NULL },
    { RPC_UNIMPLEMENTED, EOPNOTSUPP, "the service does not know this call", NULL },
    { RPC_INTERNAL, EIO, "internal error of the service", NULL },
    { RPC_UNAVAILABLE, EHOSTUNREACH, "the service is unavailable", NULL },
    { RPC_DATA_LOSS, EIO, "the service lost data", NULL },
    { RPC_UNAUTHENTICATED, EACCES, "the credentials were refused",
      "set BOXD_API_KEY to a valid key" },
};

/* Words are one line; rpc lets line ends and tabs of a server pass. */
static const char *one_line(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
    for (char *p = out; *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    return out;
}

int api_words(int r, const struct api_method *method, const char *subject, const char *why)
{
    if (subject)
        return boxd_words(r, "cannot %s '%s': %s", method->what, subject, why);
    return boxd_words(r, "cannot %s: %s", method->what, why);
}

int api_errno(const struct api_method *method, const char *subject, const struct rpc_status *status)
{
    char said[512], why[640];
    size_t i = 0;

    one_line(said, sizeof said, status->message);
    if (status->local && status->code == RPC_CANCELLED)
        return -ECANCELED;
    if (status->connection_lost && !status->unprocessed && method->changes) {
        snprintf(why, sizeof why, "the connection was lost, its result is unknown%s%s",
                 said[0] ? ": " : "", said);
        return api_words(-ECONNRESET, method, subject, why);
    }
    /* Made here, it means a message above the limit, not a quota. */
    if (status->local && status->code == RPC_RESOURCE_EXHAUSTED)
        return api_words(-EIO, method, subject, said[0] ? said : "the answer is too large");
    while (i < ARRAY_LEN(table) && table[i].code != status->code)
        i++;
    if (i == ARRAY_LEN(table))
        return api_words(-EIO, method, subject, said[0] ? said : "unknown status");
    snprintf(why, sizeof why, "%s%s%s%s", said[0] ? said : table[i].meaning,
             table[i].cure ? " (" : "", table[i].cure ? table[i].cure : "",
             table[i].cure ? ")" : "");
    return api_words(-table[i].error, method, subject, why);
}
