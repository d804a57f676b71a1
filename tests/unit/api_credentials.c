/* Credentials: where they come from, the token exchange and its failures. */
#include "service.h"

#include <boxd/machine.h>

#include "api/credentials.h"

#define KEY "bxd_s3cret"

static void got_text(void *arg, int r, const char *text)
{
    got_r(arg, r);
}

static void suggest(struct request *q)
{
    Boxd__Api__V1__SuggestVmNameResponse m = BOXD__API__V1__SUGGEST_VM_NAME_RESPONSE__INIT;

    if (q->sv->step-- > 0)
        rpc_stream_end(q->stream, RPC_UNAUTHENTICATED, "bad token");
    else
        sv_answer(q, &m.base);
}

/* A token numbered by the exchange, which lives as many seconds as `data` says. */
static void give_token(struct service *sv, struct rpc_http *h, const char *method, const char *path,
                       const void *body, size_t n)
{
    char json[128];

    snprintf(json, sizeof json, "{\"token\":\"tok%u\",\"expires_at\":%lld}", sv->exchanges,
             (long long)(wall_ms() / 1000 + (long)(intptr_t)sv->data));
    rpc_http_reply(h, 200, json, 0);
}

static void refuse(struct service *sv, struct rpc_http *h, const char *method, const char *path,
                   const void *body, size_t n)
{
    rpc_http_reply(h, 401, "{\"error\":\"no\"}", 0);
}

static void busy(struct service *sv, struct rpc_http *h, const char *method, const char *path,
                 const void *body, size_t n)
{
    rpc_http_reply(h, 429, "{}", 1);
}

static void busy_once(struct service *sv, struct rpc_http *h, const char *method, const char *path,
                      const void *body, size_t n)
{
    (sv->exchanges == 1 ? busy : give_token)(sv, h, method, path, body, n);
}

static void nonsense(struct service *sv, struct rpc_http *h, const char *method, const char *path,
                     const void *body, size_t n)
{
    rpc_http_reply(h, 200, sv->data, 0);
}

static struct got ask(struct service *sv)
{
    struct got g = { 0 };

    boxd_suggest_name(sv->client, got_text, &g);
    ok(g.times == 0);
    ok(sv_until(sv, &g.done) && g.times == 1);
    return g;
}

/* A new client with the key, and counters at 0. */
static void fresh(struct service *sv, intptr_t seconds)
{
    if (sv->client)
        boxd_client_free(sv->client);
    sv->client = sv_client(sv, NULL, KEY);
    sv->request = suggest;
    sv->http = give_token;
    sv->step = 0;
    sv->exchanges = sv->requests = 0;
    sv->data = (void *)seconds;
}

static void test_exchange(struct service *sv)
{
    struct got g[20] = { 0 };
    bool all = true;

    t("a key is exchanged at the same port of a local service, and only the token is sent on");
    fresh(sv, 3600);
    ok(ask(sv).r == 0);
    ok_str(sv->body, "{\"api_key\":\"" KEY "\"}");
    ok_str(sv->authorization, "Bearer tok1");
    t("twenty calls at once wait for one exchange");
    fresh(sv, 3600);
    for (size_t i = 0; i < ARRAY_LEN(g); i++)
        boxd_suggest_name(sv->client, got_text, &g[i]);
    for (size_t i = 0; i < ARRAY_LEN(g); i++)
        all = sv_until(sv, &g[i].done) && g[i].r == 0 && all;
    ok(all && sv->exchanges == 1);
    t("a call can be cancelled while it waits for the exchange");
    fresh(sv, 3600);
    g[0] = (struct got){ 0 };
    boxd_call_cancel(boxd_suggest_name(sv->client, got_text, &g[0]));
    ok(g[0].times == 1 && g[0].r == -ECANCELED);
    t("freeing the client in the middle of an exchange ends its calls");
    g[0] = (struct got){ 0 };
    boxd_suggest_name(sv->client, got_text, &g[0]);
    uv_run(&sv->loop, UV_RUN_NOWAIT);
    boxd_client_free(steal_ptr(sv->client));
    ok(g[0].times == 1 && g[0].r == -ECANCELED);
    sv_for(sv, 50); /* what was on its way */
}

static void test_renewal(struct service *sv)
{
    t("a token is renewed 300 s before its end, while the old one still serves");
    fresh(sv, 302);
    ok(ask(sv).r == 0 && sv->exchanges == 1);
    sv_for(sv, 2100);
    ok(ask(sv).r == 0);
    ok_str(sv->authorization, "Bearer tok1");
    sv_for(sv, 100);
    ok(ask(sv).r == 0 && sv->exchanges == 2);
    ok_str(sv->authorization, "Bearer tok2");
    t("a token that is refused is exchanged once more, and the call repeated once");
    fresh(sv, 3600);
    sv->step = 1;
    ok(ask(sv).r == 0 && sv->exchanges == 2 && sv->requests == 2);
    ok_str(sv->authorization, "Bearer tok2");
    sv->step = 99;
    sv->requests = 0;
    ok(ask(sv).r == -EACCES && sv->exchanges == 3 && sv->requests == 2);
    t("a given token that is refused is final");
    boxd_client_free(sv->client);
    sv->client = sv_client(sv, "given", NULL);
    sv->requests = sv->exchanges = 0;
    ok(ask(sv).r == -EACCES && sv->exchanges == 0 && sv->requests == 1);
}

static void test_refusals(struct service *sv)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"token\":\"\",\"expires_at\":9}",
        "{\"token\":\"a b\",\"expires_at\":9}",
        "{\"token\":\"x\\r\\ny\",\"expires_at\":9}",
        "{\"token\":\"x\"}",
        "{\"token\":\"x\",\"expires_at\":\"9\"}",
        "{\"token\":\"x\",\"expires_at\":-1}",
        "{\"token\":\"x\",\"expires_at\":1e300}",
        "{\"token\":\"x\",\"expires_at\":9}trash",
        "{\"token\":7,\"expires_at\":9}",
    };
    struct got g;
    uint64_t before;

    t("a key that is refused is final, asked once, and never shown");
    fresh(sv, 3600);
    sv->http = refuse;
    g = ask(sv);
    ok(g.r == -EACCES && strstr(g.words, "BOXD_API_KEY") && !strstr(g.words, KEY));
    ok(ask(sv).r == -EACCES && sv->exchanges == 1 && sv->requests == 0);
    t("429 waits as long as it says, once");
    fresh(sv, 3600);
    sv->http = busy_once;
    before = now_ms();
    ok(ask(sv).r == 0 && sv->exchanges == 2 && now_ms() - before >= 950);
    fresh(sv, 3600);
    sv->http = busy;
    ok(ask(sv).r == -EDQUOT && sv->exchanges == 2);
    t("a malformed answer of the console is refused");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        fresh(sv, 0);
        sv->http = nonsense;
        sv->data = (void *)(uintptr_t)bad[i];
        if (!ok(ask(sv).r == -EBADMSG && sv->requests == 0))
            printf("# %s\n", bad[i]);
    }
    t("a redirect is not followed");
    fresh(sv, 3600);
    sv->http = NULL; /* 404 stands for any other status */
    g = ask(sv);
    ok(g.r == -EIO && strstr(g.words, "404"));
}

static void test_sources(struct service *sv)
{
    struct boxd_client_options o = { .address = sv->address };
    struct boxd_client *c = NULL;
    int r;

    t("without credentials the words name BOXD_API_KEY and --local");
    unsetenv("BOXD_TOKEN");
    unsetenv("BOXD_API_KEY");
    unsetenv("BOXD_VM_ID");
    unsetenv("BOXD_VM_NAME");
    unsetenv("BOXD_PROXY_ENDPOINT");
    r = boxd_client_new(&sv->loop, &o, &c);
    ok(r == -ENOKEY && strstr(boxd_error_words(r), "BOXD_API_KEY"));
    ok(strstr(boxd_error_words(r), "boxdfs --local") != NULL);
    t("BOXD_TOKEN comes before BOXD_API_KEY");
    setenv("BOXD_API_KEY", KEY, 1);
    setenv("BOXD_TOKEN", "envtok", 1);
    boxd_client_free(sv->client);
    ok(boxd_client_new(&sv->loop, &o, &sv->client) == 0);
    sv->step = 0;
    sv->request = suggest;
    ok(ask(sv).r == 0);
    ok_str(sv->authorization, "Bearer envtok");
    t("a token that could smuggle a header is refused");
    o.token = "a\r\nb: c";
    ok(boxd_client_new(&sv->loop, &o, &c) == -EINVAL);
    t("both a token and a key are refused, and a key for a unix socket");
    o.token = "a";
    o.api_key = KEY;
    ok(boxd_client_new(&sv->loop, &o, &c) == -EINVAL);
    o = (struct boxd_client_options){ .address = "unix:/nowhere", .api_key = KEY };
    ok(boxd_client_new(&sv->loop, &o, &c) == -EINVAL);
    t("a unix socket needs no credentials");
    o.api_key = NULL;
    ok(boxd_client_new(&sv->loop, &o, &c) == 0);
    boxd_client_free(c);
    unsetenv("BOXD_TOKEN");
    unsetenv("BOXD_API_KEY");
}

static void test_parts(void)
{
    static const struct {
        const char *address, *console;
    } rows[] = {
        { "https://boxd.sh:9443", "https://app.boxd.sh" },
        { "boxd.sh:9443", "https://app.boxd.sh" },
        { "https://app.example.org:9443", "https://app.example.org:9443" },
        { "http://127.0.0.1:8080", "http://127.0.0.1:8080" },
        { "localhost:7000", "http://localhost:7000" },
        { "https://10.1.2.3:9443", "https://10.1.2.3:9443" },
        { "http://eu.example.org:80", "https://app.eu.example.org" },
    };
    static const char route[] = "Iface\tDestination\tGateway\tFlags\n"
                                "eth0\t0000A8C0\t00000000\t0001\n"
                                "eth0\t00000000\t0101A8C0\t0003\n";
    uint32_t gw = 0;

    t("the console belongs to the service's address");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        _cleanup_buf_ struct buf b = { 0 };
        struct rpc_target target = { 0 };

        ok(rpc_target_parse(rows[i].address, &target) == 0 && console_url(&target, &b) == 0);
        ok_str(buf_str(&b), rows[i].console);
        rpc_target_clear(&target);
    }
    t("the default gateway is read from the routes");
    ok(default_gateway(route, &gw) == 0 && gw == 0xc0a80101);
    ok(default_gateway("", &gw) == -ENOENT && default_gateway("x\ny z\n", &gw) == -ENOENT);
}

struct waited {
    struct credential_wait wait;
    bool done;
    int r;
};

static void waited_done(struct credential_wait *w, int r)
{
    struct waited *v = container_of(w, struct waited, wait);

    v->done = true;
    v->r = r;
}

static void test_metadata(struct service *sv)
{
    struct rpc_target target = { 0 };
    struct credential_options o = { .target = &target };
    struct credentials *cs = NULL;
    struct timers *timers = NULL;
    struct waited w = { 0 };
    const char *auth;
    uint64_t generation;
    char url[128];

    t("the metadata adapter gives a token and the service's address");
    snprintf(url, sizeof url, "%s/v1/auth/token", sv->address);
    o.metadata_url = url;
    sv->http = nonsense;
    sv->data = (void *)(uintptr_t) "{\"token\":\"m\",\"expires_at\":99999999999,\"api_url\":"
                                   "\"https://x:1\"}";
    ok(rpc_target_parse("https://boxd.sh:9443", &target) == 0);
    ok(timers_new(&sv->loop, &timers) == 0);
    ok(credentials_new(&sv->loop, timers, &o, &cs) == 0);
    ok(credentials_get(cs, &auth, &generation) == -EAGAIN);
    credential_wait_init(&w.wait, waited_done);
    credentials_wait(cs, &w.wait);
    ok(!w.done && sv_until(sv, &w.done) && w.r == 0);
    ok(credentials_get(cs, &auth, &generation) == 0);
    ok_str(auth, "Bearer m");
    ok_str(credentials_api_url(cs), "https://x:1");
    credentials_free(cs);
    timers_free(timers);
    rpc_target_clear(&target);
}

int main(void)
{
    struct service sv;

    sv_start_all(&sv);
    test_parts();
    test_exchange(&sv);
    test_renewal(&sv);
    test_refusals(&sv);
    test_sources(&sv);
    test_metadata(&sv);
    sv_stop(&sv);
    return tap_done();
}
