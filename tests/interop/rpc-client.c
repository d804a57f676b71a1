/* rpc-client ADDRESS TEST [ARG]: our client against the server of rpc-server.py, one promise a run.
 * Exit status 0 when it held; what differed is said on stderr, figures on stdout. */
#include "base/base.h"

#include <signal.h>

#include <boxd/error.h>

#include "base/buf.h"
#include "base/str.h"
#include "driver.h"
#include "rpc/rpc.h"

static uv_loop_t loop;
static struct rpc_channel *channel;
static const char *arg;
static bool failed;

#define must(cond) must_at((cond), #cond, __LINE__)
static bool must_at(bool good, const char *text, int line)
{
    if (!good) {
        fprintf(stderr, "# rpc-client.c:%d: %s\n", line, text);
        failed = true;
    }
    return good;
}

struct result {
    struct buf got; /* the last message */
    size_t messages, bytes;
    struct digest digest;
    bool hashing, ended;
    enum rpc_code code;
    bool local, lost, unprocessed;
    char words[256];
};

static void got_message(void *p, const uint8_t *data, size_t n)
{
    struct result *r = p;

    if (r->hashing && n != 64)
        digest_add(&r->digest, data, n);
    buf_truncate(&r->got, 0);
    must(buf_add(&r->got, data, n) == 0);
    r->messages++;
    r->bytes += n;
}

static void got_end(void *p, const struct rpc_status *s)
{
    struct result *r = p;

    must(!r->ended);
    r->ended = true;
    r->code = s->code;
    r->local = s->local;
    r->lost = s->connection_lost;
    r->unprocessed = s->unprocessed;
    snprintf(r->words, sizeof r->words, "%s", s->message);
}

static void clear(struct result *r)
{
    buf_clear(&r->got);
    *r = (struct result){ 0 };
}

static struct rpc_call *start(const char *path, struct result *r, uint32_t deadline_ms)
{
    static const struct rpc_header header = { "x-test", "value of ours" };
    struct rpc_call_spec spec = { .path = path,
                                  .headers = &header,
                                  .header_count = 1,
                                  .deadline_ms = deadline_ms,
                                  .handlers = { .message = got_message, .end = got_end },
                                  .arg = r };
    struct rpc_call *call;

    clear(r);
    call = rpc_call_start(channel, &spec);
    if (!call)
        abort();
    return call;
}

static void on_limit(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

/* Runs the loop until *flag, at most so long. */
static bool wait_ms(const bool *flag, uint64_t ms)
{
    static uv_timer_t limit;
    bool late = false;

    limit.data = &late;
    uv_timer_init(&loop, &limit);
    uv_timer_start(&limit, on_limit, ms, 0);
    while (!*flag && !late)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&limit, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return *flag;
}

static void pass_ms(uint64_t ms)
{
    static const bool never;

    wait_ms(&never, ms);
}

static enum rpc_code one(const char *path, struct result *r, const char *text, uint32_t deadline_ms)
{
    struct rpc_call *call = start(path, r, deadline_ms);

    rpc_call_send(call, text, strlen(text));
    rpc_call_finish(call);
    if (!must(wait_ms(&r->ended, 120000)))
        exit(1);
    return r->code;
}

/* ---- promises ---- */

static void test_shapes(void)
{
    struct result r = { 0 };
    struct rpc_call *call;

    must(one("/t/unary", &r, "hello", 5000) == RPC_OK && !strcmp(buf_str(&r.got), "hello"));
    must(one("/t/unary", &r, "", 5000) == RPC_OK && r.messages == 1 && !r.bytes);
    must(one("/t/download", &r, "10 1000", 5000) == RPC_OK && r.messages == 11);
    call = start("/t/upload", &r, 5000);
    for (int i = 0; i < 100; i++)
        rpc_call_send(call, "x", 1);
    rpc_call_finish(call);
    must(wait_ms(&r.ended, 10000) && r.code == RPC_OK && r.got.len == 64);
    call = start("/t/echo", &r, 5000);
    for (size_t i = 1; i <= 20; i++) {
        rpc_call_send(call, "ping", 4);
        while (r.messages < i && !r.ended)
            uv_run(&loop, UV_RUN_ONCE);
    }
    rpc_call_finish(call);
    must(wait_ms(&r.ended, 10000) && r.code == RPC_OK && r.messages == 20);
    clear(&r);
}

static void test_errors(void)
{
    struct result r = { 0 };

    must(one("/t/error_headers", &r, "", 5000) == RPC_NOT_FOUND && !r.local);
    must(!strcmp(r.words, "50% of 'ä'\nlost"));
    must(one("/t/error_trailers", &r, "", 5000) == RPC_FAILED_PRECONDITION && r.messages == 1);
    must(!strcmp(r.words, "after one message"));
    must(one("/t/missing", &r, "", 5000) == RPC_UNIMPLEMENTED);
    must(one("/t/flaky", &r, "x", 5000) == RPC_UNAVAILABLE && !r.local && !r.lost);
    must(one("/t/flaky", &r, "x", 5000) == RPC_OK);
    must(one("/t/meta", &r, "", 5000) == RPC_OK && !strcmp(buf_str(&r.got), "value of ours"));
    clear(&r);
}

static void test_deadline(void)
{
    struct result r = { 0 };
    uint64_t begin = now_ms();

    start("/t/never", &r, 300);
    must(wait_ms(&r.ended, 5000) && r.code == RPC_DEADLINE_EXCEEDED);
    must(now_ms() - begin >= 290 && now_ms() - begin < 1500);
    must(one("/t/unary", &r, "x", 5000) == RPC_OK);
    clear(&r);
}

static void test_cancel(void)
{
    struct result r = { 0 }, before = { 0 };
    struct rpc_call *call;

    must(one("/t/cancelled", &before, "", 5000) == RPC_OK);
    call = start("/t/never", &r, 0);
    pass_ms(300);
    rpc_call_cancel(call);
    must(r.ended && r.code == RPC_CANCELLED);
    pass_ms(500);
    must(one("/t/cancelled", &r, "", 5000) == RPC_OK);
    must(strcmp(buf_str(&r.got), buf_str(&before.got)) != 0);
    clear(&r);
    clear(&before);
}

/* A reader that takes nothing and a slow stream hold up nobody. */
static void test_slow(void)
{
    struct result stuck = { 0 }, slow = { 0 }, r = { 0 };
    struct rpc_call *down = start("/t/download", &stuck, 0), *call = start("/t/slow", &slow, 0);
    uint64_t begin;

    rpc_call_pause(down, true);
    rpc_call_send(down, "64 1000000", 10);
    rpc_call_finish(down);
    rpc_call_send(call, "a", 1);
    rpc_call_send(call, "b", 1);
    rpc_call_finish(call);
    begin = now_ms();
    for (int i = 0; i < 100; i++)
        must(one("/t/unary", &r, "x", 5000) == RPC_OK);
    printf("# 100 calls beside a stuck and a slow one: %" PRIu64 " ms\n", now_ms() - begin);
    must(stuck.messages == 0);
    must(wait_ms(&slow.ended, 5000) && slow.code == RPC_OK && slow.messages == 2);
    rpc_call_pause(down, false);
    must(wait_ms(&stuck.ended, 20000) && stuck.code == RPC_OK && stuck.messages == 65);
    clear(&stuck);
    clear(&slow);
    clear(&r);
}

#define BULK ((size_t)256 << 20)
#define BLOCK ((size_t)1 << 20)

struct uploader {
    struct result result;
    struct rpc_call *call;
    struct digest digest;
    uint8_t *block;
    size_t left;
};

static void upload_more(void *p)
{
    struct uploader *u = p;
    ssize_t queued = 0;

    while (u->left && queued < (ssize_t)(4 * BLOCK)) {
        u->block[u->left % BLOCK]++;
        u->block[u->left / BLOCK]++;
        digest_add(&u->digest, u->block, BLOCK);
        queued = rpc_call_send(u->call, u->block, BLOCK);
        u->left -= BLOCK;
    }
    if (!u->left)
        rpc_call_finish(u->call);
}

static void test_bulk(void)
{
    struct uploader u = { .left = BULK, .block = calloc(1, BLOCK) };
    struct rpc_call_spec spec = {
        .path = "/t/upload",
        .handlers = { .message = got_message, .writable = upload_more, .end = got_end },
        .arg = &u
    };
    struct result r = { 0 };
    struct rpc_call *call;
    uint64_t begin = now_ms();
    char hex[65];

    digest_start(&u.digest);
    u.call = rpc_call_start(channel, &spec);
    upload_more(&u);
    must(wait_ms(&u.result.ended, 120000) && u.result.code == RPC_OK);
    digest_end(&u.digest, hex);
    must(!strcmp(hex, buf_str(&u.result.got)));
    printf("# 256 MiB up: %" PRIu64 " ms\n", now_ms() - begin);

    begin = now_ms();
    call = start("/t/download", &r, 0);
    digest_start(&r.digest);
    r.hashing = true;
    rpc_call_send(call, "256 1048576", 11);
    rpc_call_finish(call);
    must(wait_ms(&r.ended, 120000) && r.code == RPC_OK && r.bytes == BULK + 64);
    digest_end(&r.digest, hex);
    must(!strcmp(hex, buf_str(&r.got)));
    printf("# 256 MiB down: %" PRIu64 " ms\n", now_ms() - begin);
    free(u.block);
    clear(&u.result);
    clear(&r);
}

static void swallow_message(void *p, const uint8_t *data, size_t n)
{
    struct uploader *u = p;

    u->result.bytes += n;
}

static void pour_more(void *p)
{
    struct uploader *u = p;

    while (u->left && rpc_call_send(u->call, u->block, BLOCK / 4) < (ssize_t)(2 * BLOCK))
        u->left -= BLOCK / 4;
    if (!u->left)
        rpc_call_finish(u->call);
}

/* 1 GiB each way without checking, and a message back and forth: figures, for rpc-echo only. */
static void test_speed(void)
{
    static const char *const paths[] = { "/t/swallow", "/t/pour" };
    struct result r = { 0 };
    struct rpc_call *call;
    uint64_t begin;

    for (int i = 0; i < 2; i++) {
        struct uploader u = { .left = i ? 0 : 4 * BULK, .block = calloc(1, BLOCK) };
        struct rpc_call_spec spec = {
            .path = paths[i],
            .handlers = { .message = swallow_message, .writable = pour_more, .end = got_end },
            .arg = &u
        };

        begin = now_ms();
        u.call = rpc_call_start(channel, &spec);
        pour_more(&u);
        must(wait_ms(&u.result.ended, 120000) && u.result.code == RPC_OK);
        printf("# 1 GiB %s: %" PRIu64 " MB/s\n", i ? "down" : "up",
               4 * BULK / 1000 / (now_ms() - begin));
        free(u.block);
    }
    call = start("/t/echo", &r, 0);
    begin = uv_hrtime();
    for (size_t i = 1; i <= 10000; i++) {
        rpc_call_send(call, "ping", 4);
        while (r.messages < i && !r.ended)
            uv_run(&loop, UV_RUN_ONCE);
    }
    printf("# back and forth: %" PRIu64 " us\n", (uv_hrtime() - begin) / 10000000);
    rpc_call_finish(call);
    must(wait_ms(&r.ended, 10000) && r.code == RPC_OK);
    clear(&r);
}

/* The server closes connections after 1.5 s: no call notices. */
static void test_age(void)
{
    struct result r = { 0 }, longer = { 0 };
    struct rpc_channel_stats stats;
    struct rpc_call *call = start("/t/slow", &longer, 0);
    uint64_t begin = now_ms();
    size_t calls = 0, bad = 0;

    for (int i = 0; i < 25; i++)
        rpc_call_send(call, "x", 1);
    rpc_call_finish(call);
    while (now_ms() - begin < 4500 && !failed) {
        calls++;
        bad += one("/t/unary", &r, "x", 5000) != RPC_OK && !r.unprocessed;
        pass_ms(5);
    }
    must(!bad);
    must(wait_ms(&longer.ended, 10000) && longer.code == RPC_OK && longer.messages == 25);
    rpc_channel_stats(channel, &stats);
    must(stats.connections >= 3);
    printf("# %zu calls over %" PRIu64 " connections, %zu failed\n", calls, stats.connections, bad);
    clear(&longer);
    clear(&r);
}

/* server.stop(grace): what runs ends well, what is new never started. */
static void test_stop(void)
{
    struct result r = { 0 }, longer = { 0 };
    struct rpc_call *call = start("/t/slow", &longer, 0);

    for (int i = 0; i < 10; i++)
        rpc_call_send(call, "x", 1);
    rpc_call_finish(call);
    pass_ms(200);
    must(one("/t/stop", &r, "", 5000) == RPC_OK);
    pass_ms(300);
    must(one("/t/unary", &r, "", 5000) == RPC_UNAVAILABLE && r.unprocessed);
    must(wait_ms(&longer.ended, 10000) && longer.code == RPC_OK && longer.messages == 10);
    clear(&longer);
    clear(&r);
}

static void test_oversize(void)
{
    struct result r = { 0 };

    must(one("/t/big", &r, "", 20000) == RPC_RESOURCE_EXHAUSTED && r.local && !r.messages);
    must(one("/t/unary", &r, "x", 5000) == RPC_OK);
    clear(&r);
}

/* ARG: the server's process id. */
static void test_stopped(void)
{
    struct result r = { 0 }, warm = { 0 };
    uint64_t pid = 0, begin;

    must(parse_u64(arg, INT32_MAX, &pid) == 0);
    must(one("/t/unary", &warm, "x", 5000) == RPC_OK);
    start("/t/never", &r, 0);
    pass_ms(300);
    kill((pid_t)pid, SIGSTOP);
    begin = now_ms();
    must(wait_ms(&r.ended, 10000) && r.code == RPC_UNAVAILABLE && r.lost && r.local);
    printf("# a stopped server was noticed after %" PRIu64 " ms\n", now_ms() - begin);
    must(now_ms() - begin < 6000);
    kill((pid_t)pid, SIGCONT);
    clear(&r);
    clear(&warm);
}

/* A stream on which nothing happens outlives our PINGs. ARG: seconds. */
static void test_idle(void)
{
    struct result r = { 0 };
    struct rpc_channel_stats stats;
    uint64_t seconds = 0;
    struct rpc_call *call;

    must(parse_u64(arg, 3600, &seconds) == 0);
    call = start("/t/never", &r, 0);
    pass_ms(seconds * 1000);
    must(!r.ended);
    if (r.ended)
        fprintf(stderr, "# %s: %s\n", rpc_code_name(r.code), r.words);
    else
        rpc_call_cancel(call);
    rpc_channel_stats(channel, &stats);
    must(stats.latency_us > 0);
    clear(&r);
}

static void test_untrusted(void)
{
    struct result r = { 0 };

    must(one("/t/unary", &r, "x", 5000) == RPC_UNAVAILABLE && r.unprocessed && r.local);
    must(strstr(r.words, "certificate") != NULL);
    clear(&r);
}

/* ---- many streams ---- */

#define STREAMS 64

static struct {
    size_t streams, cancelled, bytes, wrong, lost;
} totals;
static uint64_t chance = 88172645463325252u, stop_at;
static unsigned alive;

struct churn {
    struct rpc_call *call;
    uint64_t out, in; /* the generators of what was sent and of what must come */
    size_t sent, received, messages_left;
    bool cancel;
    uv_timer_t timer;
};

static void churn_start(struct churn *c);

static void churn_message(void *p, const uint8_t *data, size_t n)
{
    struct churn *c = p;

    for (size_t i = 0; i < n; i++)
        totals.wrong += data[i] != (uint8_t)(next_random(&c->in) >> 32);
    c->received += n;
    totals.bytes += n;
    if (next_random(&chance) % 20 == 0)
        rpc_call_pause(c->call, true);
}

static void churn_end(void *p, const struct rpc_status *s)
{
    struct churn *c = p;

    if (s->code == RPC_OK)
        totals.wrong += c->received != c->sent;
    else if (s->code != RPC_CANCELLED || !c->cancel)
        totals.lost++;
    c->call = NULL;
}

static void churn_step(uv_timer_t *t)
{
    static uint8_t block[256 * 1024];
    struct churn *c = t->data;
    uint64_t dice = next_random(&chance);
    size_t n = dice % 8 ? dice % 3000 : dice % sizeof block;

    if (!c->call) {
        if (now_ms() >= stop_at) {
            uv_close((uv_handle_t *)t, NULL);
            alive--;
            return;
        }
        churn_start(c);
    } else if (c->messages_left && c->sent - c->received < 4 * sizeof block) {
        fill_random(&c->out, block, n);
        rpc_call_send(c->call, block, n);
        c->sent += n;
        if (!--c->messages_left)
            rpc_call_finish(c->call);
    } else if (c->cancel) {
        totals.cancelled++;
        rpc_call_cancel(c->call);
    }
    if (c->call && dice % 3 == 0)
        rpc_call_pause(c->call, false);
    uv_timer_start(t, churn_step, next_random(&chance) % 8, 0);
}

static void churn_start(struct churn *c)
{
    struct rpc_call_spec spec = { .path = "/t/echo",
                                  .handlers = { .message = churn_message, .end = churn_end },
                                  .arg = c };

    c->out = c->in = next_random(&chance) | 1;
    c->sent = c->received = 0;
    c->messages_left = 1 + next_random(&chance) % 40;
    c->cancel = next_random(&chance) % 3 == 0;
    c->call = rpc_call_start(channel, &spec);
    totals.streams++;
}

/* ARG: seconds. */
static void test_churn(void)
{
    static struct churn all[STREAMS];
    uint64_t seconds = 0, limit;

    must(parse_u64(arg, 3600, &seconds) == 0);
    stop_at = now_ms() + seconds * 1000;
    limit = stop_at + 30000;
    for (alive = 0; alive < STREAMS; alive++) {
        all[alive].timer.data = &all[alive];
        uv_timer_init(&loop, &all[alive].timer);
        uv_timer_start(&all[alive].timer, churn_step, 0, 0);
    }
    while (alive && now_ms() < limit)
        uv_run(&loop, UV_RUN_ONCE);
    printf("# %zu streams, %zu cancelled, %zu MB echoed, %zu wrong bytes, %zu lost statuses\n",
           totals.streams, totals.cancelled, totals.bytes / 1000000, totals.wrong, totals.lost);
    must(!alive && !totals.wrong && !totals.lost && totals.streams > STREAMS);
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    { "shapes", test_shapes },   { "errors", test_errors }, { "deadline", test_deadline },
    { "cancel", test_cancel },   { "slow", test_slow },     { "bulk", test_bulk },
    { "age", test_age },         { "stop", test_stop },     { "oversize", test_oversize },
    { "stopped", test_stopped }, { "idle", test_idle },     { "untrusted", test_untrusted },
    { "churn", test_churn },     { "speed", test_speed },
};

int main(int argc, char **argv)
{
    struct rpc_target target;
    int r;

    if (argc < 3)
        return 2;
    arg = argc > 3 ? argv[3] : "";
    uv_loop_init(&loop);
    r = rpc_target_parse(argv[1], &target);
    if (r == 0)
        r = rpc_channel_new(&loop, &target, NULL, &channel);
    if (r < 0) {
        fprintf(stderr, "# %s\n", boxd_error_words(r));
        return 2;
    }
    rpc_target_clear(&target);
    failed = true; /* unless a test of that name runs */
    for (size_t i = 0; i < ARRAY_LEN(tests); i++) {
        if (strcmp(tests[i].name, argv[2]) != 0)
            continue;
        failed = false;
        tests[i].run();
    }
    rpc_channel_free(channel);
    uv_run(&loop, UV_RUN_DEFAULT);
    must(uv_loop_close(&loop) == 0);
    return failed;
}
