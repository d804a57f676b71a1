#include "base/base.h"

#include <ctype.h>
#include <sys/un.h>

#include <boxd/error.h>

#include "base/str.h"
#include "rpc/rpc.h"

#define HOST_MAX 253

static const struct {
    const char *prefix;
    bool tls;
} schemes[] = {
    { "http://", false },
    { "https://", true },
};

static int bad(const char *address, const char *why)
{
    return boxd_words(-EINVAL,
                      "address '%.300s' %s (forms: https://HOST:PORT, http://HOST:PORT, HOST:PORT, "
                      "unix:/PATH)",
                      address, why);
}

void rpc_target_clear(struct rpc_target *t)
{
    free(t->text);
    free(t->host);
    *t = (struct rpc_target){ 0 };
}

static int parse_unix(const char *address, const char *path, struct rpc_target *out)
{
    if (starts_with(path, "//"))
        path += 2;
    if (path[0] != '/')
        return bad(address, "needs an absolute path");
    if (strlen(path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return bad(address, "has too long a path");
    out->is_unix = true;
    out->host = strdup(path);
    return out->host ? 0 : -ENOMEM;
}

static bool host_good(const char *host, size_t n, bool brackets)
{
    if (!n || n > HOST_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)host[i];

        if (brackets ? !isxdigit(c) && !strchr(":.%", c) : !isalnum(c) && !strchr("-._", c))
            return false;
    }
    return true;
}

static int parse_port(const char *address, const char *text, size_t n, uint16_t *out)
{
    char digits[8];
    uint64_t port;

    if (!n)
        return 0;
    if (text[0] != ':' || n > 6)
        return bad(address, "has a malformed port");
    memcpy(digits, text + 1, n - 1);
    digits[n - 1] = '\0';
    if (parse_u64(digits, 65535, &port) < 0 || !port)
        return bad(address, "has a malformed port");
    *out = (uint16_t)port;
    return 0;
}

static int parse_host(const char *address, const char *rest, struct rpc_target *out)
{
    size_t n = strcspn(rest, "/"), host_len;
    bool brackets = rest[0] == '[';
    const char *host = rest + brackets;
    int r;

    if (rest[n] && strcmp(rest + n, "/") != 0)
        return bad(address, "has a path, which gRPC does not use");
    if (brackets) {
        host_len = strcspn(host, "]/");
        if (host[host_len] != ']')
            return bad(address, "lacks a ']'");
    } else {
        host_len = strcspn(host, ":/");
    }
    if (!host_good(host, host_len, brackets))
        return bad(address, "has a malformed host");
    host_len += 2u * brackets;
    r = parse_port(address, rest + host_len, n - host_len, &out->port);
    if (r < 0)
        return r;
    out->host = strndup(host, host_len - 2u * brackets);
    return out->host ? 0 : -ENOMEM;
}

int rpc_target_parse(const char *address, struct rpc_target *out)
{
    const char *rest = address;
    int r;

    *out = (struct rpc_target){ 0 };
    if (starts_with(address, "unix:")) {
        r = parse_unix(address, address + strlen("unix:"), out);
    } else {
        out->tls = !starts_with(address, "localhost") && !starts_with(address, "127.");
        for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
            if (!starts_with(address, schemes[i].prefix))
                continue;
            rest = address + strlen(schemes[i].prefix);
            out->tls = schemes[i].tls;
        }
        out->port = out->tls ? 443 : 80;
        r = parse_host(address, rest, out);
    }
    if (r == 0) {
        out->text = strdup(address);
        r = out->text ? 0 : -ENOMEM;
    }
    if (r < 0)
        rpc_target_clear(out);
    return r;
}
