#include "api/credentials.h"

#include <cjson/cJSON.h>
#include <netinet/in.h>

#include <boxd/error.h>
#include <boxd/log.h>

#include "api/http.h"
#include "base/str.h"

#define EXCHANGE_TIMEOUT_MS 10000u
#define RETRY_AFTER_DEFAULT 5u
#define RETRY_AFTER_MAX 60u
/* A token that the answer calls expired is still tried for so long: it is this computer's clock
 * that may be wrong. Also the pause after a renewal that failed while the old token still works. */
#define GRACE_MS 30000

enum kind { STATIC, API_KEY, METADATA };

struct credentials {
    uv_loop_t *loop;
    struct timers *timers;
    enum kind kind;
    char *url; /* where to ask */
    char *api_key;
    char *ca_file;
    char *authorization; /* "Bearer TOKEN", or NULL */
    char *api_url;
    uint64_t renew_at, expires_at; /* now_ms() */
    uint64_t generation;
    struct http *http;
    struct http_request *request;
    struct timer again; /* after a 429 */
    bool asked_again;
    struct list waiters;
    struct timer wake;
    int result; /* of the last exchange, for those who wait */
    bool final; /* no exchange can succeed any more */
    char words[256];
};

void credential_wait_init(struct credential_wait *w, void (*done)(struct credential_wait *w, int r))
{
    list_init(&w->link);
    w->done = done;
}

const char *credentials_api_url(const struct credentials *cs)
{
    return cs->api_url;
}

static bool under_way(const struct credentials *cs)
{
    return cs->request || timer_is_set(&cs->again) || timer_is_set(&cs->wake);
}

/* Tells the waiters on the loop's next turn: they may free everything, which must not happen inside
 * curl. */
static void exchanged(struct credentials *cs, int r, bool final)
{
    cs->result = r;
    cs->final = final;
    snprintf(cs->words, sizeof cs->words, "%s", r < 0 ? boxd_error_words(r) : "");
    if (r < 0) {
        cs->renew_at = now_ms() + GRACE_MS;
        boxd_log(BOXD_LOG_ERROR, "%s", cs->words);
    }
    timer_set(cs->timers, &cs->wake, 0);
}

static void wake_ran(struct timer *t)
{
    struct credentials *cs = container_of(t, struct credentials, wake);
    char words[sizeof cs->words];
    struct list waiters;
    int r = cs->result;

    list_init(&waiters);
    list_each_safe(it, &cs->waiters)
    {
        list_remove(it);
        list_add(&waiters, it);
    }
    memcpy(words, cs->words, sizeof words);
    while (!list_empty(&waiters)) {
        struct credential_wait *w = container_of(waiters.next, struct credential_wait, link);

        list_remove(&w->link);
        if (r < 0)
            boxd_words(r, "%s", words);
        w->done(w, r);
    }
}

static int use_token(struct credentials *cs, const char *json, size_t n)
{
    struct token_answer a;
    char *authorization;
    int64_t life;
    int r = token_parse(json, n, &a);

    if (r < 0)
        return r;
    authorization = strf("Bearer %s", a.token);
    life = a.expires_at * 1000 - wall_ms();
    if (life < GRACE_MS)
        life = GRACE_MS;
    if (authorization) {
        int64_t left = life - (cs->kind == METADATA ? 60000 : 300000);

        secret_free(cs->authorization);
        cs->authorization = authorization;
        free(cs->api_url);
        cs->api_url = steal_ptr(a.api_url);
        cs->generation++;
        cs->expires_at = now_ms() + (uint64_t)life;
        cs->renew_at = now_ms() + (uint64_t)(left > 0 ? left : GRACE_MS);
    }
    token_answer_clear(&a);
    return authorization ? 0 : -ENOMEM;
}

/* Asks once more after the time the console named. */
static void wait_and_ask(struct credentials *cs, unsigned seconds)
{
    seconds = seconds ? seconds : RETRY_AFTER_DEFAULT;
    cs->asked_again = true;
    timer_set(cs->timers, &cs->again,
              1000 * (seconds < RETRY_AFTER_MAX ? seconds : RETRY_AFTER_MAX));
}

static void answered(void *arg, int r, const struct http_answer *a)
{
    struct credentials *cs = arg;
    bool key = cs->kind == API_KEY, final = false;

    cs->request = NULL; /* dies when this returns */
    if (r >= 0 && a->status == 429 && !cs->asked_again) {
        wait_and_ask(cs, a->retry_after);
        return;
    }
    if (r >= 0 && a->status == 200)
        r = use_token(cs, a->body, a->len);
    else if (r >= 0 && a->status == 401) {
        final = key;
        r = boxd_words(-EACCES, "%s refused the %s (set BOXD_API_KEY to a valid key)", cs->url,
                       key ? "API key" : "request");
        exchanged(cs, r, final);
        return;
    } else if (r >= 0 && a->status == 429)
        r = boxd_words(-EDQUOT, "too many token requests from this address");
    else if (r >= 0)
        r = boxd_words(-EIO, "unexpected HTTP status %d", a->status);
    if (r < 0)
        r = boxd_words(r, "cannot get a token from '%s': %.120s%s", cs->url, boxd_error_words(r),
                       key ? "" : " (set BOXD_API_KEY, or use 'boxdfs --local')");
    exchanged(cs, r, false);
}

static char *exchange_body(const struct credentials *cs)
{
    cJSON *json;
    char *body = NULL;

    if (cs->kind != API_KEY)
        return NULL;
    json = cJSON_CreateObject();
    if (json && cJSON_AddStringToObject(json, "api_key", cs->api_key)) {
        body = cJSON_PrintUnformatted(json);
        explicit_bzero(json->child->valuestring, strlen(json->child->valuestring));
    }
    cJSON_Delete(json);
    return body;
}

static int ask(struct credentials *cs)
{
    char *body = exchange_body(cs);
    struct http_spec spec = {
        .url = cs->url,
        .body = body,
        .ca_file = cs->ca_file,
        .timeout_ms = EXCHANGE_TIMEOUT_MS,
        .done = answered,
        .arg = cs,
    };
    int r = 0;

    if (cs->kind == API_KEY && !body)
        return -ENOMEM;
    if (!cs->http)
        r = http_new(cs->loop, cs->timers, &cs->http);
    if (r >= 0)
        r = http_start(cs->http, &spec, &cs->request);
    secret_free(body);
    return r;
}

static void start_exchange(struct credentials *cs)
{
    int r;

    if (under_way(cs))
        return;
    cs->asked_again = false;
    r = ask(cs);
    if (r < 0)
        exchanged(cs, r, false);
}

static void again_ran(struct timer *t)
{
    struct credentials *cs = container_of(t, struct credentials, again);
    int r = ask(cs);

    if (r < 0)
        exchanged(cs, r, false);
}

int credentials_get(struct credentials *cs, const char **authorization, uint64_t *generation)
{
    uint64_t now = now_ms();

    *authorization = cs->authorization;
    *generation = cs->generation;
    if (cs->kind == STATIC)
        return 0;
    if (cs->final)
        return boxd_words(cs->result, "%s", cs->words);
    if (!cs->authorization || now >= cs->expires_at)
        return -EAGAIN;
    if (now >= cs->renew_at)
        start_exchange(cs); /* the old one is good until the new one comes */
    return 0;
}

void credentials_wait(struct credentials *cs, struct credential_wait *w)
{
    list_add(&cs->waiters, &w->link);
    start_exchange(cs);
}

bool credentials_renew(struct credentials *cs, uint64_t generation)
{
    if (cs->kind == STATIC || cs->final)
        return false;
    if (generation == cs->generation)
        cs->expires_at = 0;
    return true;
}

void credentials_free(struct credentials *cs)
{
    if (!cs)
        return;
    if (cs->request)
        http_request_free(cs->request);
    if (cs->http)
        http_free(cs->http);
    timer_clear(&cs->again);
    timer_clear(&cs->wake);
    list_each_safe(it, &cs->waiters) list_remove(it);
    secret_free(cs->authorization);
    secret_free(cs->api_key);
    free(cs->url);
    free(cs->api_url);
    free(cs->ca_file);
    free(cs);
}
DEFINE_CLEANUP(struct credentials, credentials_free);

/* ---- where they come from ----------------------------------------------------------------------
 */

static const char *from_environment(const char *name)
{
    const char *v = getenv(name);

    return v && *v ? v : NULL;
}

static int check_secret(const char *s, const char *name)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (s[i] <= ' ' || s[i] > '~')
            return boxd_words(-EINVAL, "the %s holds characters that none has", name);
    if (!n || n > 7000)
        return boxd_words(-EINVAL, "the %s is %s", name, n ? "too long" : "empty");
    return 0;
}

static int use_static(struct credentials *cs, const char *token)
{
    int r = check_secret(token, "token");

    if (r < 0)
        return r;
    cs->kind = STATIC;
    cs->authorization = strf("Bearer %s", token);
    return cs->authorization ? 0 : -ENOMEM;
}

static int use_key(struct credentials *cs, const char *key, const struct rpc_target *target)
{
    _cleanup_buf_ struct buf url = { 0 };
    int r = check_secret(key, "API key");

    if (r < 0)
        return r;
    if (target->is_unix)
        return boxd_words(-EINVAL, "an API key cannot be exchanged over '%s' (it needs none)",
                          target->text);
    cs->kind = API_KEY;
    cs->api_key = strdup(key);
    r = console_url(target, &url);
    if (r >= 0)
        r = buf_addstr(&url, "/api/v1/auth/token");
    cs->url = r < 0 ? NULL : buf_steal(&url);
    return cs->api_key && cs->url ? 0 : -ENOMEM;
}

/* The URL of the metadata adapter, NULL outside a boxd machine. */
static char *metadata_url(void)
{
    char route[8192];
    uint32_t gw;
    size_t n;
    _cleanup_fclose_ FILE *f = NULL;

    if (!from_environment("BOXD_VM_ID") && !from_environment("BOXD_VM_NAME") &&
        !from_environment("BOXD_PROXY_ENDPOINT"))
        return NULL;
    f = fopen("/proc/net/route", "re");
    if (!f)
        return NULL;
    n = fread(route, 1, sizeof route - 1, f);
    route[n] = '\0';
    if (default_gateway(route, &gw) < 0)
        return NULL;
    return strf("http://%u.%u.%u.%u:9002/v1/auth/token", gw >> 24, gw >> 16 & 255, gw >> 8 & 255,
                gw & 255);
}

static int choose(struct credentials *cs, const struct credential_options *o)
{
    const char *v;

    if (o->token)
        return use_static(cs, o->token);
    if (o->api_key)
        return use_key(cs, o->api_key, o->target);
    if (!o->metadata_url) {
        v = from_environment("BOXD_TOKEN");
        if (v)
            return use_static(cs, v);
        v = from_environment("BOXD_API_KEY");
        if (v)
            return use_key(cs, v, o->target);
    }
    cs->kind = METADATA;
    cs->url = o->metadata_url ? strdup(o->metadata_url) : metadata_url();
    if (!cs->url)
        return boxd_words(-ENOKEY,
                          "no credentials for '%s' (set BOXD_API_KEY, or use 'boxdfs "
                          "--local' for machines on this computer)",
                          o->target->text);
    return 0;
}

int credentials_new(uv_loop_t *loop, struct timers *timers, const struct credential_options *o,
                    struct credentials **out)
{
    _cleanup_(cleanup_credentials_freep) struct credentials *cs = NULL;
    const char *ca = o->ca_file ? o->ca_file : from_environment("SSL_CERT_FILE");
    int r;

    *out = NULL;
    if (o->token && o->api_key)
        return boxd_words(-EINVAL, "a token and an API key are given (one is enough)");
    /* A token of the environment is the service's; a local server must not see it. */
    if (o->target->is_unix && !o->token && !o->api_key)
        return 0;
    cs = calloc(1, sizeof *cs);
    if (!cs)
        return -ENOMEM;
    cs->loop = loop;
    cs->timers = timers;
    list_init(&cs->waiters);
    timer_init(&cs->again, again_ran);
    timer_init(&cs->wake, wake_ran);
    if (ca) {
        cs->ca_file = strdup(ca);
        if (!cs->ca_file)
            return -ENOMEM;
    }
    r = choose(cs, o);
    if (r >= 0)
        *out = steal_ptr(cs);
    return r;
}
