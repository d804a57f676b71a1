/* The parts of the token exchange that are only text: where to ask, and what the answer says. */
#include "api/credentials.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <strings.h>

#include <boxd/error.h>

#include "base/str.h"

/* grpcio accepts 12,000 bytes of metadata and refuses 16,000. */
#define TOKEN_MAX 8000

static bool is_address(const char *host)
{
    unsigned char raw[16];

    return inet_pton(AF_INET, host, raw) == 1 || inet_pton(AF_INET6, host, raw) == 1;
}

int console_url(const struct rpc_target *target, struct buf *out)
{
    const char *host = target->host;
    bool v6 = strchr(host, ':') != NULL;

    if (!strcasecmp(host, "localhost") || is_address(host) || !strncasecmp(host, "app.", 4))
        return buf_addf(out, "%s://%s%s%s:%u", target->tls ? "https" : "http", v6 ? "[" : "", host,
                        v6 ? "]" : "", target->port);
    return buf_addf(out, "https://app.%s", host);
}

int default_gateway(const char *route, uint32_t *address)
{
    for (const char *line = strchr(route, '\n'); line; line = strchr(line + 1, '\n')) {
        char interface[32], destination[9], gateway[9];

        if (sscanf(line + 1, "%31s %8[0-9A-Fa-f] %8[0-9A-Fa-f]", interface, destination, gateway) !=
                3 ||
            strspn(destination, "0") != 8 || strspn(gateway, "0") == 8)
            continue;
        *address = __builtin_bswap32((uint32_t)strtoul(gateway, NULL, 16));
        return 0;
    }
    return -ENOENT;
}

void secret_free(char *s)
{
    if (s)
        explicit_bzero(s, strlen(s));
    free(s);
}

void token_answer_clear(struct token_answer *a)
{
    secret_free(a->token);
    free(a->api_url);
    *a = (struct token_answer){ 0 };
}

static bool plain(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~')
            return false;
    return n > 0 && n <= TOKEN_MAX;
}

static int take(const cJSON *json, struct token_answer *out)
{
    const cJSON *token = cJSON_GetObjectItemCaseSensitive(json, "token");
    const cJSON *expires = cJSON_GetObjectItemCaseSensitive(json, "expires_at");
    const cJSON *url = cJSON_GetObjectItemCaseSensitive(json, "api_url");

    if (!cJSON_IsObject(json))
        return boxd_words(-EBADMSG, "the answer is not a JSON object");
    if (!cJSON_IsString(token) || !plain(token->valuestring))
        return boxd_words(-EBADMSG, "the answer has no usable 'token'");
    if (!cJSON_IsNumber(expires) || !(expires->valuedouble > 0) || expires->valuedouble > 1e12 ||
        (double)(int64_t)expires->valuedouble != expires->valuedouble)
        return boxd_words(-EBADMSG, "the answer has no usable 'expires_at'");
    *out = (struct token_answer){ .token = strdup(token->valuestring),
                                  .expires_at = (int64_t)expires->valuedouble };
    if (cJSON_IsString(url) && plain(url->valuestring))
        out->api_url = strdup(url->valuestring);
    return out->token ? 0 : -ENOMEM;
}

/* cJSON frees without wiping. */
static void wipe_strings(cJSON *json)
{
    for (cJSON *item = json ? json->child : NULL; item; item = item->next)
        if (cJSON_IsString(item) && item->valuestring)
            explicit_bzero(item->valuestring, strlen(item->valuestring));
}

int token_parse(const char *json, size_t n, struct token_answer *out)
{
    const char *end;
    cJSON *parsed = cJSON_ParseWithLengthOpts(json, n, &end, false);
    int r;

    while (parsed && end < json + n && strchr(" \t\r\n", *end))
        end++;
    if (!parsed || end != json + n)
        r = boxd_words(-EBADMSG, "the answer is not JSON");
    else
        r = take(parsed, out);
    wipe_strings(parsed);
    cJSON_Delete(parsed);
    return r;
}
