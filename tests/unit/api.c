/* Unary calls against a scripted service: results, words, retries, cancel, hostile answers. */
#include "service.h"

#include <boxd/file.h>
#include <boxd/machine.h>

#define M(name) (&boxd__api__v1__##name##__descriptor)

static void got_text(void *arg, int r, const char *text)
{
    struct got *g = arg;

    got_r(g, r);
    snprintf(g->text, sizeof g->text, "%s", text ? text : "(null)");
}

static void got_machine(void *arg, int r, const struct boxd_machine_info *m)
{
    struct got *g = arg;

    got_r(g, r);
    if (m)
        snprintf(g->text, sizeof g->text, "%s %s %s %s=%s", m->id, m->status, m->source,
                 m->labels.count ? m->labels.items[0].key : "",
                 m->labels.count ? m->labels.items[0].value : "");
}

static void got_machines(void *arg, int r, const struct boxd_machine_info *const *list,
                         size_t count)
{
    struct got *g = arg;

    got_r(g, r);
    g->count = count;
    snprintf(g->text, sizeof g->text, "%s", count ? list[0]->name : "");
}

static void got_number(void *arg, int r, int64_t n)
{
    got_r(arg, r);
    ((struct got *)arg)->number = n;
}

/* ---- scripts ---- */

static void suggest(struct request *q)
{
    Boxd__Api__V1__SuggestVmNameResponse m = BOXD__API__V1__SUGGEST_VM_NAME_RESPONSE__INIT;

    m.name = (char *)"otter";
    sv_answer(q, &m.base);
}

/* `step` times UNAVAILABLE, then an answer. */
static void unavailable_then_suggest(struct request *q)
{
    if (q->sv->step-- > 0)
        rpc_stream_end(q->stream, RPC_UNAVAILABLE, "try later");
    else
        suggest(q);
}

static void fail_with_step(struct request *q)
{
    rpc_stream_end(q->stream, (enum rpc_code)q->sv->step, q->sv->data);
}

static void message_then_fail(struct request *q)
{
    Boxd__Api__V1__SuggestVmNameResponse m = BOXD__API__V1__SUGGEST_VM_NAME_RESPONSE__INIT;

    sv_send(q, &m.base);
    rpc_stream_end(q->stream, RPC_INTERNAL, "broke down");
}

/* Sends the bytes of `data` as the answer, `step` times. */
static void raw(struct request *q)
{
    for (int i = 0; i < q->sv->step; i++)
        rpc_stream_send(q->stream, q->sv->data, strlen(q->sv->data));
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

static void silence(struct request *q)
{
}

static struct got ask_name(struct service *sv)
{
    struct got g = { 0 };

    sv->requests = 0;
    ok(boxd_suggest_name(sv->client, got_text, &g) != NULL);
    ok(g.times == 0);
    ok(sv_until(sv, &g.done) && g.times == 1);
    return g;
}

/* ---- tests ---- */

static void test_answers(struct service *sv)
{
    struct got g;

    t("a call answers once, not before it returned, and carries the token");
    sv->request = suggest;
    g = ask_name(sv);
    ok(g.r == 0);
    ok_str(g.text, "otter");
    ok_str(sv->authorization, "Bearer t0k");
    t("unknown fields of an answer are skipped");
    sv->request = raw;
    sv->step = 1;
    sv->data = (void *)(uintptr_t) "\xc2\x3e\x03xyz\x0a\x03"
                                   "elk";
    g = ask_name(sv);
    ok(g.r == 0);
    ok_str(g.text, "elk");
}

static void test_errors(struct service *sv)
{
    static const struct {
        enum rpc_code code;
        int r;
    } rows[] = {
        { RPC_UNAUTHENTICATED, -EACCES },
        { RPC_PERMISSION_DENIED, -EACCES },
        { RPC_NOT_FOUND, -ENOENT },
        { RPC_ALREADY_EXISTS, -EEXIST },
        { RPC_FAILED_PRECONDITION, -EBUSY },
        { RPC_ABORTED, -EBUSY },
        { RPC_INVALID_ARGUMENT, -EINVAL },
        { RPC_RESOURCE_EXHAUSTED, -EDQUOT },
        { RPC_UNIMPLEMENTED, -EOPNOTSUPP },
        { RPC_DEADLINE_EXCEEDED, -ETIMEDOUT },
        { RPC_INTERNAL, -EIO },
        { RPC_UNKNOWN, -EIO },
        { RPC_DATA_LOSS, -EIO },
        { RPC_OUT_OF_RANGE, -EIO },
        { RPC_CANCELLED, -EIO },
    };
    struct got g = { 0 };

    t("each status has its errno, and none of these is tried twice");
    sv->request = fail_with_step;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sv->step = rows[i].code;
        sv->data = NULL;
        g = ask_name(sv);
        if (!ok(g.r == rows[i].r && sv->requests == 1))
            printf("# %s\n", rpc_code_name(rows[i].code));
    }
    t("the words say what failed, of what, and what the server said, harmlessly");
    sv->step = RPC_ALREADY_EXISTS;
    sv->data = (void *)(uintptr_t) "name \x1b[2J\ntaken";
    g = (struct got){ 0 };
    boxd_create(sv->client, &(struct boxd_create_options){ .name = "dev" }, (void *)got_text, &g);
    ok(sv_until(sv, &g.done) && g.r == -EEXIST);
    ok_str(g.words, "cannot create machine 'dev': name ?[2J taken");
    t("an error after a message is an error");
    sv->request = message_then_fail;
    g = ask_name(sv);
    ok(g.r == -EIO);
    ok_str(g.words, "cannot suggest a name: broke down");
}

static void test_retries(struct service *sv)
{
    uint64_t before;
    struct got g;

    t("UNAVAILABLE is tried twice more, after 0.5 s and 1 s");
    sv->request = unavailable_then_suggest;
    sv->step = 2;
    before = now_ms();
    g = ask_name(sv);
    ok(g.r == 0 && sv->requests == 3);
    ok(now_ms() - before >= 1450);
    t("and then it is the result");
    sv->step = 99;
    g = ask_name(sv);
    ok(g.r == -EHOSTUNREACH && sv->requests == 3);
    ok_str(g.words, "cannot suggest a name: try later");
}

static void test_hostile(struct service *sv)
{
    static const struct {
        const char *what, *bytes;
        int times;
    } rows[] = {
        { "an answer that is missing", "", 0 },
        { "two answers", "", 2 },
        { "ten thousand answers", "\x0a\x01x", 10000 },
        { "bytes that are no message", "\x0a\x7f", 1 },
        { "text that is not UTF-8", "\x0a\x01\xff", 1 },
        { "a string as a number", "\x08\x01", 1 },
    };
    struct got g = { 0 };

    t("an unusable answer is EIO");
    sv->request = raw;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sv->step = rows[i].times;
        sv->data = (void *)(uintptr_t)rows[i].bytes;
        g = ask_name(sv);
        if (!ok(g.r == -EIO && sv->requests == 1))
            printf("# %s: %d %s\n", rows[i].what, g.r, g.words);
    }
    t("text that is not UTF-8 is never sent");
    sv->requests = 0;
    g = (struct got){ 0 };
    boxd_mkdir(sv->client, "dev", "a\xff", got_done, &g);
    ok(g.times == 0);
    ok(sv_until(sv, &g.done) && g.r == -EINVAL && sv->requests == 0);
    ok(strstr(g.words, "field 'path' of MkdirRequest is not valid UTF-8") != NULL);
}

static void test_cancel(struct service *sv)
{
    struct got g = { 0 };
    struct boxd_call *call;

    t("cancel runs done before it returns, and the server is told");
    sv->request = silence;
    sv->cancelled = 0;
    call = boxd_suggest_name(sv->client, got_text, &g);
    sv_for(sv, 30);
    boxd_call_cancel(call);
    ok(g.times == 1 && g.r == -ECANCELED);
    sv_for(sv, 30);
    ok(sv->cancelled == 1 && g.times == 1);
    t("freeing the client ends what is under way and what waits for a retry");
    g = (struct got){ 0 };
    boxd_suggest_name(sv->client, got_text, &g);
    sv_for(sv, 30);
    boxd_client_free(sv->client);
    ok(g.times == 1 && g.r == -ECANCELED);
    sv->client = sv_client(sv, "t0k", NULL);
    sv->request = unavailable_then_suggest;
    sv->step = 99;
    g = (struct got){ 0 };
    boxd_suggest_name(sv->client, got_text, &g);
    sv_for(sv, 50);
    boxd_client_free(sv->client);
    ok(g.times == 1 && g.r == -ECANCELED);
    sv->client = sv_client(sv, "t0k", NULL);
}

static void machine_answer(struct request *q)
{
    _cleanup_wire_ ProtobufCMessage *m = sv_unpack(q, M(get_vm_request));
    Boxd__Api__V1__GetVmResponse a = BOXD__API__V1__GET_VM_RESPONSE__INIT;
    Boxd__Api__V1__VmSource source = BOXD__API__V1__VM_SOURCE__INIT;
    Boxd__Api__V1__GetVmResponse__LabelsEntry label =
        BOXD__API__V1__GET_VM_RESPONSE__LABELS_ENTRY__INIT;
    Boxd__Api__V1__GetVmResponse__LabelsEntry *labels[] = { &label };

    a.vm_id = ((Boxd__Api__V1__GetVmRequest *)m)->vm_id;
    a.status = (char *)"dreaming";
    a.source_info = &source;
    source.kind = (char *)"snapshot";
    source.name = (char *)"base";
    source.version = 3;
    label.key = (char *)"team";
    label.value = (char *)"a";
    a.labels = labels;
    a.n_labels = 1;
    sv_answer(q, &a.base);
}

/* Three machines, whatever the selector says. */
static void list_answer(struct request *q)
{
    static const char *const values[] = { "a", "b", NULL };
    Boxd__Api__V1__ListVmsResponse a = BOXD__API__V1__LIST_VMS_RESPONSE__INIT;
    Boxd__Api__V1__GetVmResponse vm[3], *vms[3];
    Boxd__Api__V1__GetVmResponse__LabelsEntry label[3], *labels[3];
    char names[3][8];

    for (size_t i = 0; i < 3; i++) {
        boxd__api__v1__get_vm_response__init(&vm[i]);
        boxd__api__v1__get_vm_response__labels_entry__init(&label[i]);
        snprintf(names[i], sizeof names[i], "m%zu", i);
        vm[i].vm_id = vm[i].name = names[i];
        label[i].key = (char *)"team";
        label[i].value = (char *)(uintptr_t)(values[i] ? values[i] : "");
        labels[i] = &label[i];
        vm[i].labels = &labels[i];
        vm[i].n_labels = values[i] != NULL;
        vms[i] = &vm[i];
    }
    a.vms = vms;
    a.n_vms = 3;
    sv_answer(q, &a.base);
}

static void test_machines(struct service *sv)
{
    static const struct {
        const char *selectors[2];
        size_t n, want;
    } rows[] = { { { NULL }, 0, 3 },          { { "team" }, 1, 2 },  { { "team=b" }, 1, 1 },
                 { { "team=", NULL }, 1, 0 }, { { "other" }, 1, 0 }, { { "team", "team=a" }, 2, 1 },
                 { { "tea" }, 1, 0 } };
    struct got g = { 0 };

    t("a machine is passed on as the service tells it, an unknown status too");
    sv->request = machine_answer;
    boxd_get(sv->client, "vm-1", got_machine, &g);
    ok(sv_until(sv, &g.done) && g.r == 0);
    ok_str(g.text, "vm-1 dreaming snapshot/base:3 team=a");
    t("selectors are checked again here, because an old service ignores them");
    sv->request = list_answer;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        g = (struct got){ 0 };
        boxd_list(sv->client, rows[i].selectors, rows[i].n, got_machines, &g);
        if (!ok(sv_until(sv, &g.done) && g.r == 0 && g.count == rows[i].want))
            printf("# row %zu: %zu machines\n", i, g.count);
    }
}

static void create_check(struct request *q)
{
    _cleanup_wire_ ProtobufCMessage *m = sv_unpack(q, M(create_vm_request));
    const Boxd__Api__V1__CreateVmRequest *r = (const void *)m;
    Boxd__Api__V1__CreateVmResponse a = BOXD__API__V1__CREATE_VM_RESPONSE__INIT;

    ok_str(r->name, "dev");
    ok(r->n_env == 1 && !strcmp(r->env[0]->value, "v") && r->n_labels == 1);
    ok(r->config->vcpu == 4 && r->config->srf && r->config->srf->auto_suspend_timeout_secs == 0 &&
       r->config->srf->_auto_suspend_timeout_secs_case);
    ok(r->n_cmd == 2 && !strcmp(r->cmd[1], "infinity"));
    ok_str(r->restart_policy, "always");
    a.vm_id = (char *)"vm-2";
    sv_answer(q, &a.base);
}

static void number_answer(struct request *q)
{
    Boxd__Api__V1__SetDeleteAfterResponse a = BOXD__API__V1__SET_DELETE_AFTER_RESPONSE__INIT;

    a.delete_at_ms = 1234567890123;
    sv_answer(q, &a.base);
}

static void got_created(void *arg, int r, const struct boxd_created *c)
{
    got_r(arg, r);
    snprintf(((struct got *)arg)->text, 64, "%s", c ? c->id : "");
}

static void test_requests(struct service *sv)
{
    struct boxd_env env = { "K", "v" };
    struct boxd_label label = { "team", "a" };
    const char *const cmd[] = { "sleep", "infinity" };
    struct boxd_create_options o = { .name = "dev",
                                     .env = &env,
                                     .env_count = 1,
                                     .cmd = cmd,
                                     .cmd_count = 2,
                                     .vcpu = 4,
                                     .auto_suspend_set = true,
                                     .labels = { &label, 1 } };
    struct got g = { 0 };

    t("creating sends every option");
    sv->request = create_check;
    boxd_create(sv->client, &o, got_created, &g);
    ok(sv_until(sv, &g.done) && g.r == 0);
    ok_str(g.text, "vm-2");
    t("a lease is a number of milliseconds");
    sv->request = number_answer;
    g = (struct got){ 0 };
    boxd_set_delete_after(sv->client, "dev", 60, NULL, got_number, &g);
    ok(sv_until(sv, &g.done) && g.r == 0 && g.number == 1234567890123);
}

/* Breaks the connection; once its socket is closed, listens again. */
static void break_now(uv_timer_t *timer)
{
    struct service *sv = timer->data;

    if (sv->server) {
        rpc_server_free(steal_ptr(sv->server));
        uv_timer_start(timer, break_now, 20, 0);
        return;
    }
    sv_listen(sv);
    uv_close((uv_handle_t *)timer, (uv_close_cb)free);
}

static void break_connection(struct request *q)
{
    struct service *sv = q->sv;
    uv_timer_t *timer;

    if (sv->step-- <= 0) {
        suggest(q);
        return;
    }
    timer = calloc(1, sizeof *timer);
    timer->data = sv;
    uv_timer_init(&sv->loop, timer);
    uv_timer_start(timer, break_now, 0, 0);
}

static void test_lost(struct service *sv)
{
    struct got g = { 0 };

    t("a connection lost under a call that only reads: it is asked again");
    sv->request = break_connection;
    sv->step = 1;
    g = ask_name(sv);
    ok(g.r == 0 && sv->requests == 2);
    t("under a call that changes something: ECONNRESET, and it is not done twice");
    sv->step = 1;
    sv->requests = 0;
    g = (struct got){ 0 };
    boxd_reboot(sv->client, "dev", got_done, &g);
    ok(sv_until(sv, &g.done) && g.r == -ECONNRESET && sv->requests == 1);
    ok(strstr(g.words, "its result is unknown") != NULL);
    t("no service at all is EHOSTUNREACH");
    sv_for(sv, 50);
    rpc_server_free(steal_ptr(sv->server));
    sv_for(sv, 20);
    g = (struct got){ 0 };
    boxd_reboot(sv->client, "dev", got_done, &g);
    ok(sv_until(sv, &g.done) && g.r == -EHOSTUNREACH);
    sv_listen(sv);
}

static void test_timeout(struct service *sv)
{
    struct boxd_client_options o = { .address = sv->address, .token = "t", .timeout_ms = 100 };
    struct boxd_client *c = NULL;
    struct got g = { 0 };

    t("a service that never answers is ETIMEDOUT, asked once");
    sv->request = silence;
    sv->requests = 0;
    ok(boxd_client_new(&sv->loop, &o, &c) == 0);
    boxd_suggest_name(c, got_text, &g);
    ok(sv_until(sv, &g.done) && g.r == -ETIMEDOUT && sv->requests == 1);
    boxd_client_free(c);
}

int main(void)
{
    struct service sv;
    struct boxd_client_stats stats;

    sv_start_all(&sv);
    sv.client = sv_client(&sv, "t0k", NULL);
    test_answers(&sv);
    t("calls, round trips, retries and failures are counted");
    sv.request = unavailable_then_suggest;
    sv.step = 1;
    ask_name(&sv);
    boxd_client_stats(sv.client, &stats);
    ok(stats.calls == 3 && stats.round_trips == 4 && stats.retries == 1 && stats.failures == 0);
    ok(stats.connected && stats.connections == 1 && stats.bytes_sent && stats.bytes_received);
    test_errors(&sv);
    test_retries(&sv);
    test_hostile(&sv);
    test_cancel(&sv);
    test_machines(&sv);
    test_requests(&sv);
    test_lost(&sv);
    test_timeout(&sv);
    sv_stop(&sv);
    return tap_done();
}
