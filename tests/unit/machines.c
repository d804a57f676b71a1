/* The machine set against a scripted service: what appears, vanishes and is renamed, odd names,
 * readiness and those who wait for it. */
#include "service.h"

#include <boxd/machines.h>

/* The service's machines, as the test wants them. */
struct row {
    const char *id, *name, *status;
    int64_t boot;
};

static struct row rows[16];
static size_t row_count;
static int polls_until_running; /* GetVm says "starting" so often */
static int probes_until_ready;  /* Exec answers FAILED_PRECONDITION so often */
static unsigned gets, probes, lists, resumes;
static const char *probe_words = "not yet";

static char events[2048];
static unsigned changes, released;

static void on_event(void *arg, struct boxd_machine *m, const char *text)
{
    size_t n = strlen(events);

    snprintf(events + n, sizeof events - n, "%s:%s;", m->shown, text);
}

static void on_changed(void *arg, struct boxd_machine *m)
{
    changes++;
}

static void on_released(void *arg, struct boxd_machine *m)
{
    released++;
}

static void fill(Boxd__Api__V1__GetVmResponse *vm, const struct row *r)
{
    boxd__api__v1__get_vm_response__init(vm);
    vm->vm_id = (char *)(uintptr_t)r->id;
    vm->name = (char *)(uintptr_t)r->name;
    vm->status = (char *)(uintptr_t)r->status;
    vm->boot_time_ms = r->boot;
}

static struct row *find(const char *id)
{
    for (size_t i = 0; i < row_count; i++)
        if (!strcmp(rows[i].id, id))
            return &rows[i];
    return NULL;
}

static void serve_list(struct request *q)
{
    Boxd__Api__V1__ListVmsResponse a = BOXD__API__V1__LIST_VMS_RESPONSE__INIT;
    Boxd__Api__V1__GetVmResponse vm[ARRAY_LEN(rows)], *vms[ARRAY_LEN(rows)];

    lists++;
    for (size_t i = 0; i < row_count; i++) {
        fill(&vm[i], &rows[i]);
        vms[i] = &vm[i];
    }
    a.vms = vms;
    a.n_vms = row_count;
    sv_answer(q, &a.base);
}

static void serve_get(struct request *q)
{
    _cleanup_wire_ ProtobufCMessage *m = sv_unpack(q, &boxd__api__v1__get_vm_request__descriptor);
    struct row *r = find(((Boxd__Api__V1__GetVmRequest *)m)->vm_id);
    Boxd__Api__V1__GetVmResponse vm;

    gets++;
    if (!r) {
        rpc_stream_end(q->stream, RPC_NOT_FOUND, "no such machine");
        return;
    }
    if (!strcmp(r->status, "starting") && polls_until_running-- <= 0)
        r->status = "running";
    fill(&vm, r);
    sv_answer(q, &vm.base);
}

static void serve_exec(struct request *q)
{
    Boxd__Api__V1__ExecChunk c = BOXD__API__V1__EXEC_CHUNK__INIT;

    probes++;
    if (probes_until_ready-- > 0)
        rpc_stream_end(q->stream, RPC_FAILED_PRECONDITION, probe_words);
    else
        sv_answer(q, &c.base);
}

static void serve_resume(struct request *q)
{
    Boxd__Api__V1__ResumeVmResponse a = BOXD__API__V1__RESUME_VM_RESPONSE__INIT;

    resumes++;
    rows[0].status = "running";
    sv_answer(q, &a.base);
}

static void serve_create(struct request *q)
{
    Boxd__Api__V1__CreateVmResponse a = BOXD__API__V1__CREATE_VM_RESPONSE__INIT;

    rows[row_count++] = (struct row){ "vm-new", "new", "starting", 0 };
    a.vm_id = (char *)"vm-new";
    a.name = (char *)"new";
    a.status = (char *)"pending";
    sv_answer(q, &a.base);
}

static void serve_destroy(struct request *q)
{
    Boxd__Api__V1__DestroyVmResponse a = BOXD__API__V1__DESTROY_VM_RESPONSE__INIT;

    if (row_count)
        row_count--;
    sv_answer(q, &a.base);
}

static void serve(struct request *q)
{
    static const struct {
        const char *path;
        void (*run)(struct request *q);
    } calls[] = { { "ListVms", serve_list },    { "GetVm", serve_get },
                  { "Exec", serve_exec },       { "ResumeVm", serve_resume },
                  { "CreateVm", serve_create }, { "DestroyVm", serve_destroy } };

    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (!strcmp(calls[i].path, q->path)) {
            calls[i].run(q);
            return;
        }
    rpc_stream_end(q->stream, RPC_UNIMPLEMENTED, NULL);
}

static void list_is(const struct row *want, size_t n)
{
    memcpy(rows, want, n * sizeof *want);
    row_count = n;
    events[0] = '\0';
}
#define LIST_IS(...)                             \
    list_is((const struct row[]){ __VA_ARGS__ }, \
            sizeof((const struct row[]){ __VA_ARGS__ }) / sizeof(struct row))

static struct boxd_machines *new_set(struct service *sv)
{
    static const struct boxd_machines_handlers handlers = { on_event, on_changed, on_released };
    struct boxd_machines *s = NULL;

    ok(boxd_machines_new(sv->client, &handlers, NULL, &s) == 0);
    return s;
}

static int refresh(struct service *sv, struct boxd_machines *s)
{
    struct got g = { 0 };

    ok(boxd_machines_refresh(s, got_done, &g) != NULL && g.times == 0);
    ok(sv_until(sv, &g.done) && g.times == 1);
    return g.r;
}

static bool add_name(void *arg, struct boxd_machine *m)
{
    size_t n = strlen(arg);

    snprintf((char *)arg + n, 256 - n, "%s;", m->shown);
    return true;
}

static const char *names(struct boxd_machines *s)
{
    static char text[256];

    text[0] = '\0';
    boxd_machines_each(s, add_name, text);
    return text;
}

static struct got wait_for(struct service *sv, struct boxd_machine *m, uint32_t ms)
{
    struct got g = { 0 };

    ok(boxd_machine_wait(m, ms, got_done, &g) != NULL && g.times == 0);
    ok(sv_until(sv, &g.done) && g.times == 1);
    return g;
}

/* ---- tests ---- */

static void test_changes(struct service *sv)
{
    struct boxd_machines *s = new_set(sv);
    struct boxd_machine *m, *kept;
    struct got g[3] = { 0 };
    unsigned before = released;

    t("what the service lists is the set, in the order of names; the first list is no news");
    LIST_IS({ "vm-2", "b", "running", 0 }, { "vm-1", "a", "starting", 0 });
    ok(boxd_machines_touch(s) == UINT64_MAX);
    ok(refresh(sv, s) == 0);
    ok_str(names(s), "a;b;");
    ok_str(events, "");
    ok(boxd_machines_touch(s) < 1000);
    t("appeared, changed, renamed and vanished machines are told");
    m = boxd_machines_find(s, "a");
    kept = boxd_machine_ref(boxd_machines_find(s, "b"));
    LIST_IS({ "vm-1", "z", "running", 0 }, { "vm-3", "c", "running", 0 });
    ok(refresh(sv, s) == 0);
    ok_str(names(s), "c;z;");
    ok_str(events, "z:running;b:destroyed;c:created;");
    ok(boxd_machines_find(s, "z") == m && boxd_machines_find_id(s, "vm-1") == m);
    t("a vanished machine lives as long as it is held, and a namesake is another");
    ok(kept->gone && released == before);
    LIST_IS({ "vm-1", "z", "running", 0 }, { "vm-4", "b", "running", 0 });
    ok(refresh(sv, s) == 0);
    ok(boxd_machines_find(s, "b") != kept);
    before = released;
    boxd_machine_unref(kept);
    ok(released == before + 1);
    t("refreshes asked for at once share one answer");
    lists = 0;
    for (size_t i = 0; i < 3; i++)
        boxd_machines_refresh(s, got_done, &g[i]);
    ok(sv_until(sv, &g[2].done) && g[0].done && g[1].done && lists == 1);
    t("while somebody looks it is refreshed by itself after 4 s");
    lists = 0;
    boxd_machines_touch(s);
    sv_for(sv, 4300);
    ok(lists == 1);
    boxd_machines_free(s);
}

static void test_names(struct service *sv)
{
    static char long_name[258];
    struct boxd_machines *s = new_set(sv);

    t("what is no plain file name, or is taken, is shown by its id; an odd id not at all");
    memset(long_name, 'n', sizeof long_name - 2);
    LIST_IS({ "i1", "a/b", "running", 0 }, { "i2", "ctl", "running", 0 },
            { "i3", ".x", "running", 0 }, { "i4", long_name, "running", 0 },
            { "i5", "", "running", 0 }, { "i6", "dup", "running", 0 },
            { "i7", "dup", "running", 0 }, { "../etc", "evil", "running", 0 },
            { "", "none", "running", 0 }, { "i8", "i1", "running", 0 },
            { "i9", "new\nline", "running", 0 }, { "i6", "again", "running", 0 });
    ok(refresh(sv, s) == 0);
    ok(!boxd_machines_find(s, "evil") && !boxd_machines_find(s, "none"));
    ok(strstr(names(s), "dup;") != NULL);
    ok(boxd_machines_find(s, "i1") && boxd_machines_find(s, "i8") && boxd_machines_find(s, "i9"));
    ok(strlen(names(s)) == 9 * 3 - 3 + 4);
    t("a name that becomes free is given");
    LIST_IS({ "i7", "dup", "running", 0 });
    ok(refresh(sv, s) == 0 && refresh(sv, s) == 0);
    ok_str(names(s), "dup;");
    t("an id that is another's name makes the other give way");
    LIST_IS({ "i7", "dup", "running", 0 }, { "dup", "x", "running", 0 });
    ok(refresh(sv, s) == 0);
    ok_str(names(s), "i7;x;");
    boxd_machines_free(s);
}

static void test_ready(struct service *sv)
{
    struct boxd_machines *s = new_set(sv);
    struct boxd_machine *m;
    struct got g[3] = { 0 };

    t("waiting asks until the machine runs, then until a command succeeds, for all at once");
    LIST_IS({ "vm-1", "dev", "starting", 0 });
    ok(refresh(sv, s) == 0);
    m = boxd_machines_find(s, "dev");
    polls_until_running = 2;
    probes_until_ready = 1;
    gets = probes = 0;
    for (size_t i = 0; i < 3; i++)
        boxd_machine_wait(m, 0, got_done, &g[i]);
    ok(sv_until(sv, &g[2].done) && g[0].r == 0 && g[1].r == 0 && g[2].r == 0);
    ok(m->ready && gets == 4 && probes == 2);
    ok_str(events, "dev:running;");
    t("a ready machine is not asked again, and the answer still comes later");
    gets = probes = 0;
    ok(wait_for(sv, m, 0).r == 0 && !gets && !probes);
    t("after a command that changed it, it is");
    boxd_machine_stale(m);
    ok(!m->ready && wait_for(sv, m, 0).r == 0 && gets >= 1 && probes == 1);
    t("a new boot ends readiness");
    rows[0].boot = 5;
    ok(refresh(sv, s) == 0 && !m->ready);
    t("a suspended machine is woken");
    rows[0].status = "suspended";
    resumes = 0;
    ok(wait_for(sv, m, 0).r == 0 && resumes == 1);
    t("a stopped one is EBUSY, and the words say the cure");
    rows[0].status = "stopped";
    boxd_machine_stale(m);
    g[0] = wait_for(sv, m, 0);
    ok(g[0].r == -EBUSY);
    ok_str(g[0].words, "machine 'dev' is stopped (write 'start' to its ctl)");
    boxd_machines_free(s);
}

static void test_failures(struct service *sv)
{
    struct boxd_machines *s = new_set(sv);
    struct boxd_machine *m;
    struct boxd_call *call;
    struct got g[2] = { 0 };

    t("a machine that failed is EIO with the service's reason, kept in failure and events");
    LIST_IS({ "vm-1", "dev", "failed", 0 });
    ok(refresh(sv, s) == 0);
    m = boxd_machines_find(s, "dev");
    probes_until_ready = 1;
    probe_words = "machine 'dev' failed to start: image 'x' not found";
    g[0] = wait_for(sv, m, 0);
    ok(g[0].r == -EIO);
    ok_str(g[0].words, "machine 'dev' failed to start: image 'x' not found");
    ok_str(m->failure, "image 'x' not found");
    ok_str(events, "dev:failed: image 'x' not found;");
    t("patience ends with ETIMEDOUT");
    rows[0].status = "starting";
    polls_until_running = 1000000;
    g[0] = wait_for(sv, m, 200);
    ok(g[0].r == -ETIMEDOUT);
    ok_str(g[0].words, "machine 'dev' is not ready after 0.2 s (it is starting)");
    t("one of two waiters may give up; the other still gets its answer");
    g[0] = g[1] = (struct got){ 0 };
    call = boxd_machine_wait(m, 0, got_done, &g[0]);
    boxd_machine_wait(m, 0, got_done, &g[1]);
    sv_for(sv, 100);
    boxd_call_cancel(call);
    ok(g[0].times == 1 && g[0].r == -ECANCELED && !g[1].done);
    polls_until_running = 0;
    probes_until_ready = 0;
    ok(sv_until(sv, &g[1].done) && g[1].r == 0);
    t("when the last gives up, nothing more is asked");
    boxd_machine_stale(m);
    rows[0].status = "starting";
    polls_until_running = 1000000;
    g[0] = (struct got){ 0 };
    call = boxd_machine_wait(m, 0, got_done, &g[0]);
    sv_for(sv, 100);
    boxd_call_cancel(call);
    sv_for(sv, 20);
    gets = 0;
    sv_for(sv, 700);
    ok(gets == 0);
    t("a machine destroyed elsewhere ends the wait with EIO");
    boxd_machine_ref(m);
    g[0] = (struct got){ 0 };
    boxd_machine_wait(m, 0, got_done, &g[0]);
    row_count = 0;
    ok(sv_until(sv, &g[0].done) && g[0].r == -EIO && m->gone);
    ok_str(g[0].words, "machine 'dev' was destroyed");
    ok(wait_for(sv, m, 0).r == -EIO);
    t("freeing the set ends waits, and what is held stays readable");
    LIST_IS({ "vm-5", "five", "starting", 0 });
    ok(refresh(sv, s) == 0);
    g[0] = (struct got){ 0 };
    boxd_machine_wait(boxd_machines_find(s, "five"), 0, got_done, &g[0]);
    boxd_machines_free(s);
    ok(g[0].times == 1 && g[0].r == -ECANCELED);
    ok_str(m->info->id, "vm-1");
    boxd_machine_unref(m);
}

static void got_created(void *arg, int r, struct boxd_machine *m)
{
    got_r(arg, r);
    snprintf(((struct got *)arg)->text, 64, "%s", m ? m->shown : "");
}

static void test_create(struct service *sv)
{
    struct boxd_machines *s = new_set(sv);
    struct boxd_create_options o = { .name = "new" };
    struct got g = { 0 }, waited = { 0 };
    struct boxd_machine *m;

    t("a created machine is in the set at once, also when a list was on its way");
    LIST_IS({ "vm-1", "dev", "running", 0 });
    ok(refresh(sv, s) == 0);
    boxd_machines_refresh(s, got_done, &waited);
    boxd_machines_create(s, &o, got_created, &g);
    ok(sv_until(sv, &g.done) && g.r == 0);
    ok_str(g.text, "new");
    ok(sv_until(sv, &waited.done) && boxd_machines_find(s, "new"));
    ok(starts_with(events, "new:created;") && !strstr(events, "destroyed"));
    t("a destroyed machine has left it when done runs, and its waits end");
    m = boxd_machines_find(s, "new");
    polls_until_running = 1000000;
    g = waited = (struct got){ 0 };
    boxd_machine_wait(m, 0, got_done, &waited);
    boxd_machines_destroy(s, m, got_done, &g);
    ok(sv_until(sv, &g.done) && g.r == 0 && !boxd_machines_find(s, "new"));
    ok(sv_until(sv, &waited.done) && waited.r == -EIO);
    boxd_machines_free(s);
}

/* More machines than are believed, each with a long name. */
static void serve_flood(struct request *q)
{
    _cleanup_buf_ struct buf b = { 0 };
    _cleanup_buf_ struct buf one = { 0 };
    Boxd__Api__V1__GetVmResponse vm;
    char id[16];

    for (unsigned i = 0; i < 20000; i++) {
        snprintf(id, sizeof id, "id-%05u", i);
        fill(&vm, &(struct row){ id, id + 3, "running", 0 });
        buf_truncate(&one, 0);
        wire_pack(&vm.base, &one);
        wire_add_bytes_header(&b, 1, one.len);
        buf_add(&b, one.data, one.len);
    }
    rpc_stream_send(q->stream, b.data, b.len);
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

static bool count(void *arg, struct boxd_machine *m)
{
    (*(unsigned *)arg)++;
    return true;
}

static void test_flood(struct service *sv)
{
    struct boxd_machines *s = new_set(sv);
    uint64_t before = now_ms();
    unsigned n = 0;

    t("of twenty thousand machines ten thousand are shown, in little time");
    sv->request = serve_flood;
    ok(refresh(sv, s) == 0);
    boxd_machines_each(s, count, &n);
    ok(n == 10000);
    ok(now_ms() - before < 5000);
    sv->request = serve;
    boxd_machines_free(s);
}

int main(void)
{
    struct service sv;

    sv_start_all(&sv);
    sv.client = sv_client(&sv, "t0k", NULL);
    sv.request = serve;
    test_changes(&sv);
    test_names(&sv);
    test_ready(&sv);
    test_failures(&sv);
    test_create(&sv);
    test_flood(&sv);
    sv_stop(&sv);
    return tap_done();
}
