/* fs/mount.c: the mounting process: it asks the service once, mounts, serves on the loop, and ends
 * when the kernel unmounts or a signal comes. */
#include "fs.h"

#include "deadline.h"
#include "dispatch.h"
#include "interrupt.h"
#include "mount.h"
#include "options.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define SERVICE_MS 20000 /* the first answer of the service */

struct runner {
    struct mount mnt; /* first: a mount is its runner */
    void (*ready)(void *arg, int r);
    void *arg;
    uv_signal_t signals[3];
    uv_timer_t patience;
    uv_work_t unmount;
    bool attached, told, unmounting;
    int result;
};

static void tell(struct runner *r, int result)
{
    if (r->told)
        return;
    r->told = true;
    r->result = result;
    r->ready(r->arg, result);
}

/* ---- the end ---- */

void mount_end(struct mount *mnt)
{
    if (mnt->ending)
        return;
    mnt->ending = true;
    /* Each cancel answers its op, and perhaps others: look again from the start. */
    for (bool again = true; again;) {
        again = false;
        list_each(it, &mnt->ops)
        {
            struct op *op = container_of(it, struct op, link);

            if (!op->cancel)
                continue;
            op_cancel(op);
            again = true;
            break;
        }
    }
    uv_stop(&mnt->loop);
}

static void unmount_work(uv_work_t *w)
{
    struct runner *r = w->data;

    /* In a thread: the kernel may ask us things before it lets go. Open files keep it busy; then it
     * goes lazily. */
    if (mount_detach(r->mnt.opt.mount_point, false) < 0 &&
        mount_detach(r->mnt.opt.mount_point, true) < 0)
        boxd_log(BOXD_LOG_ERROR, "cannot unmount '%s'", r->mnt.opt.mount_point);
}

static void unmount_done(uv_work_t *w, int status)
{
    struct runner *r = w->data;

    r->unmounting = false;
    r->mnt.unmounted = true;
    mount_end(&r->mnt);
}

static void on_signal(uv_signal_t *s, int number)
{
    struct runner *r = s->data;

    if (r->unmounting)
        return;
    boxd_log(BOXD_LOG_INFO, "signal %d: unmounting", number);
    tell(r, boxd_words(-EINTR, "interrupted"));
    if (!r->attached || r->mnt.unmounted) {
        mount_end(&r->mnt);
        return;
    }
    r->unmounting = true;
    r->unmount.data = r;
    uv_queue_work(&r->mnt.loop, &r->unmount, unmount_work, unmount_done);
}

/* ---- the beginning ---- */

static void on_ready(struct mount *mnt)
{
    struct runner *r = (struct runner *)mnt;

    mnt->on_ready = NULL;
    tell(r, 0);
}

static int attach(struct runner *r)
{
    static char name[] = "boxdfs";
    char *argv[] = { name, NULL }, path[32];
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct mount *mnt = &r->mnt;
    int fd;

    mnt->se = fuse_session_new(&args, &dispatch_ops, sizeof dispatch_ops, mnt);
    fuse_opt_free_args(&args);
    if (!mnt->se)
        return boxd_words(-ENOMEM, "cannot make a fuse session");
    fd = mount_attach(&mnt->opt);
    if (fd < 0)
        return fd;
    r->attached = true;
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    if (fuse_session_mount(mnt->se, path) < 0) {
        close(fd);
        return boxd_words(-EIO, "cannot start a fuse session");
    }
    mnt->on_ready = on_ready;
    return dispatch_start(mnt);
}

static void service_answered(void *arg, int result)
{
    struct runner *r = arg;

    uv_timer_stop(&r->patience);
    if (r->told)
        return;
    if (result >= 0)
        result = attach(r);
    if (result < 0) {
        tell(r, result);
        mount_end(&r->mnt);
    }
}

static void service_silent(uv_timer_t *t)
{
    struct runner *r = t->data;

    tell(r, boxd_words(-ETIMEDOUT, "the service at %s does not answer",
                       boxd_client_address(r->mnt.client)));
    mount_end(&r->mnt);
}

static void on_event(void *arg, struct boxd_machine *m, const char *text)
{
    journal_add(machine_events(arg, m), "%s", text);
}

static void on_released(void *arg, struct boxd_machine *m)
{
    fsmachine_free(m);
}

static int start_client(struct runner *r)
{
    static const struct boxd_machines_handlers handlers = { .event = on_event,
                                                            .released = on_released };
    struct mount *mnt = &r->mnt;
    struct boxd_client_options o = { .address = mnt->opt.address };
    int result = boxd_client_new(&mnt->loop, &o, &mnt->client);

    if (result == -ENOKEY)
        return boxd_words(result, "no credentials: set BOXD_API_KEY, or use --local for machines "
                                  "on this computer");
    if (result >= 0)
        result = boxd_machines_new(mnt->client, &handlers, mnt, &mnt->machines);
    if (result >= 0 && !boxd_machines_refresh(mnt->machines, service_answered, r))
        result = -ENOMEM;
    return result;
}

static int start_loop(struct runner *r)
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
    int result;

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        r->signals[i].data = r;
        result = uv_signal_init(&r->mnt.loop, &r->signals[i]);
        if (result >= 0)
            result = uv_signal_start(&r->signals[i], on_signal, numbers[i]);
        if (result < 0)
            return boxd_words(result, "cannot watch signals: %s", uv_strerror(result));
    }
    r->patience.data = r;
    uv_timer_init(&r->mnt.loop, &r->patience);
    uv_timer_start(&r->patience, service_silent, SERVICE_MS, 0);
    result = interrupts_init(&r->mnt);
    return result < 0 ? result : deadlines_init(&r->mnt);
}

static int mount_init(struct mount *mnt, struct options *o)
{
    int r = node_table_new(&mnt->nodes);

    mnt->opt = *o;
    *o = (struct options){ 0 };
    list_init(&mnt->ops);
    list_init(&mnt->opens);
    list_init(&mnt->data);
    list_init(&mnt->ctl_answers);
    mnt->uid = getuid();
    mnt->gid = getgid();
    mnt->since = time(NULL);
    mnt->errors = journal_new();
    mnt->events = journal_new();
    if (r < 0 || !mnt->errors || !mnt->events || !(mnt->root = root_new(mnt)))
        return -ENOMEM;
    /* The kernel holds the root without ever looking it up. */
    mnt->root->lookups = 1;
    return 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static bool forget_machine(void *arg, struct boxd_machine *m)
{
    fsmachine_free(m);
    return true;
}

/* Every op is answered. The order: nobody asks any more (session); what the kernel had open ends;
 * nodes, which hold machines; the set of machines, which holds calls; the connection. */
static void mount_clear(struct runner *r)
{
    struct mount *mnt = &r->mnt;

    mnt->ending = true;
    dispatch_stop(mnt);
    if (mnt->se)
        fuse_session_destroy(mnt->se); /* closes /dev/fuse */
    if (r->attached && !mnt->unmounted && mount_detach(mnt->opt.mount_point, true) < 0)
        boxd_log(BOXD_LOG_ERROR, "cannot unmount '%s'", mnt->opt.mount_point);
    if (mnt->nodes) {
        ops_close_all(mnt);
        node_table_free(mnt->nodes);
    }
    ctl_answers_free(mnt);
    if (mnt->machines) {
        boxd_machines_each(mnt->machines, forget_machine, NULL);
        boxd_machines_free(mnt->machines);
    }
    if (mnt->client)
        boxd_client_free(mnt->client);
    uv_walk(&mnt->loop, close_handle, NULL);
    uv_run(&mnt->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&mnt->loop) < 0)
        boxd_log(BOXD_LOG_ERROR, "the loop ended with work left");
    free(mnt->request.mem);
    journal_free(mnt->errors);
    journal_free(mnt->events);
    options_clear(&mnt->opt);
    free(r);
}

int mount_run(struct options *o, void (*ready)(void *arg, int r), void *arg)
{
    struct runner *r = calloc(1, sizeof *r);
    int result = r ? uv_loop_init(&r->mnt.loop) : -ENOMEM;

    if (result < 0) {
        ready(arg, boxd_words(result, "cannot start: %s", uv_strerror(result)));
        free(r);
        return 1;
    }
    r->ready = ready;
    r->arg = arg;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_DUMPABLE, 0); /* keys are in memory */
    umask(0077);
    result = boxd_log_open(o->log, o->debug);
    if (result >= 0)
        result = mount_init(&r->mnt, o);
    if (result >= 0)
        result = start_loop(r);
    if (result >= 0)
        result = start_client(r);
    if (result < 0)
        tell(r, result);
    else
        uv_run(&r->mnt.loop, UV_RUN_DEFAULT);
    result = r->result;
    mount_clear(r);
    return result < 0;
}
