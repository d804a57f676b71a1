/* One machine: its start step by step on the loop, its death, freezing, freeing. */
#include "base/base.h"
#include "base/str.h"
#include "local/internal.h"

#include <boxd/error.h>
#include <boxd/log.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define START_MS 60000
#define SETTLE_MS 2000

/* ---- ends -------------------------------------------------------------------------------------
 */

void machine_unref(struct host_machine *m)
{
    if (--m->handles || !m->freed)
        return;
    list_remove(&m->link);
    if (!m->settled)
        cgroup_remove(m->host, m->id);
    for (size_t i = 0; i < CGROUPS; i++)
        close_keep_errno(m->procs[i]);
    close_keep_errno(m->pts);
    close_keep_errno(m->inner);
    close_keep_errno(m->control);
    free(m->id);
    free(m->hostname);
    free(m->image);
    free(m->image_path);
    free(m);
}

static void init_closed(struct child *c)
{
    machine_unref(container_of(c, struct host_machine, init));
}

static void starter_closed(struct child *c)
{
    machine_unref(container_of(c, struct host_machine, starter));
}

static void begin_closed(uv_handle_t *h)
{
    machine_unref(container_of((uv_timer_t *)(void *)h, struct host_machine, begin));
}

static void control_closed(uv_handle_t *h)
{
    machine_unref(container_of((uv_poll_t *)(void *)h, struct host_machine, control_poll));
}

static void close_handle(void *handle, uv_close_cb closed)
{
    uv_handle_t *h = handle;

    if (h->type != UV_UNKNOWN_HANDLE && !uv_is_closing(h))
        uv_close(h, closed);
}

static void guard_ended(void *arg, int r)
{
    struct host_machine *m = arg;

    m->guard = NULL;
}

/* Starts the process that thaws the machine when this one is killed; where the freezer lets frozen
 * processes die none is needed. */
static int guard_start(struct host_machine *m)
{
    _cleanup_close_ int fd = cgroup_open_thaw(m->host, m->id);
    _cleanup_(spawn_clear) struct spawn s;

    spawn_init(&s);
    if (fd < 0)
        return 0;
    spawn_fd(&s, "thaw", fd);
    return job_start(m->host, &s, "guard", guard_ended, m, &m->guard);
}

static void guard_stop(struct host_machine *m)
{
    if (m->guard)
        job_cancel(m->guard);
    m->guard = NULL;
}

static void kill_children(struct host_machine *m)
{
    guard_stop(m);
    if (m->frozen || m->privileged)
        cgroup_thaw_all(m->host, m->id);
    if (m->starter.pid)
        kill(m->starter.pid, SIGKILL);
    if (m->init.pid)
        kill(m->init.pid, SIGKILL);
}

/* Tells the end of the start, once. The words of a failure have been remembered. */
static void finish(struct host_machine *m, int r)
{
    host_done *done = m->done;

    uv_timer_stop(&m->begin);
    if (m->state == MACHINE_STARTING)
        m->state = r < 0 ? MACHINE_DEAD : MACHINE_RUNNING;
    if (r < 0)
        kill_children(m);
    m->done = NULL;
    if (done)
        done(m->arg, r);
}

static void init_exited(struct child *c, int status)
{
    struct host_machine *m = container_of(c, struct host_machine, init);
    bool running = m->state == MACHINE_RUNNING;

    m->state = MACHINE_DEAD;
    if (running && m->died && !m->freed)
        m->died(m->died_arg);
    else if (m->done)
        finish(m, boxd_words(-EIO, "the machine's init ended while it was starting"));
}

static void starter_exited(struct child *c, int status)
{
}

/* ---- the start --------------------------------------------------------------------------------
 */

/* What the starter and init tell. */
static void on_message(struct host_machine *m, const struct msg *msg, int fds[MSG_FDS])
{
    int r;

    switch (msg->type) {
    case MSG_PID:
        m->init.exited = init_exited;
        m->init.closed = init_closed;
        r = child_watch(m->host->loop, &m->init, (pid_t)msg->value);
        if (r == 0)
            m->handles++;
        if (m->state == MACHINE_DEAD)
            kill((pid_t)msg->value, SIGKILL);
        else if (r < 0)
            finish(m, boxd_words(r, "cannot watch the machine's init: %m"));
        break;
    case MSG_INNER:
        m->inner = steal_fd(&fds[0]);
        break;
    case MSG_READY:
        m->pts = steal_fd(&fds[0]);
        finish(m, m->pts < 0 ? boxd_words(-EIO, "the machine has no terminals") : 0);
        break;
    case MSG_ERROR:
        finish(m, boxd_words(msg->value < 0 ? msg->value : -EIO, "%s", msg->text));
        break;
    default:
        finish(m, boxd_words(-EPROTO, "the machine's starter gave a wrong answer"));
    }
}

static void control_readable(uv_poll_t *poll, int status, int events)
{
    struct host_machine *m = container_of(poll, struct host_machine, control_poll);

    while (!uv_is_closing((uv_handle_t *)poll)) {
        int fds[MSG_FDS], r;
        struct msg msg;
        size_t n;

        r = msg_recv(m->control, &msg, fds, &n);
        if (r == -EAGAIN)
            return;
        if (r == 0 && (m->done || msg.type == MSG_PID))
            on_message(m, &msg, fds);
        else if (r < 0 && m->done)
            finish(m, boxd_words(-EIO, "the machine's starter ended without an answer"));
        if (r < 0 || msg.type == MSG_READY) /* else init's pid may still come */
            close_handle(poll, control_closed);
        for (size_t i = 0; i < MSG_FDS; i++)
            close_keep_errno(fds[i]);
    }
}

static const char *base_of(const struct host_machine *m)
{
    if (m->privileged)
        return "mnt/plain-base/seen";
    return m->host->view ? "mnt/base" : "mnt/base/seen";
}

void machine_spawn_cgroups(const struct host_machine *m, struct spawn *s)
{
    char name[8];

    for (size_t i = 0; i < CGROUPS; i++) {
        snprintf(name, sizeof name, "cg%zu", i);
        spawn_fd(s, name, m->procs[i]);
    }
}

static void spawn_machine(struct host_machine *m, struct spawn *s)
{
    struct host *h = m->host;

    host_spawn_base(h, s);
    spawn_str(s, "id", m->id);
    spawn_str(s, "hostname", m->hostname);
    spawn_str(s, "lower", m->lower);
    if (m->uses_base)
        spawn_str(s, "base", base_of(m));
    spawn_num(s, "privileged", m->privileged);
    spawn_fd(s, "self", h->self);
    machine_spawn_cgroups(m, s);
    for (size_t i = 0; i < CGROUPS && m->privileged; i++)
        if (m->procs[i] >= 0)
            spawn_str(s, "cgroup", cgroup_name(i));
    if (h->kind == HOST_ROOT && !m->privileged) {
        spawn_num(s, "shifted", 1);
        spawn_str(s, "map", "0 100000 65536");
        spawn_fd(s, "shift", h->user);
    } else if (h->kind == HOST_USER_SUBUID) {
        spawn_str(s, "map", "0 0 1\n1 1 65535\n");
    } else if (h->kind == HOST_USER_SINGLE) {
        spawn_str(s, "map", "0 0 1\n");
    }
    if (m->image_path)
        spawn_str(s, "image", m->image_path);
    spawn_num(s, "userxattr", h->kind != HOST_ROOT);
}

/* Everything that lies below exists: start the helper. */
static void launch(void *arg, int r)
{
    struct host_machine *m = arg;
    struct host *h = m->host;
    _cleanup_(spawn_clear) struct spawn s;
    struct host_spec spec = {
        .id = m->id, .privileged = m->privileged, .memory_bytes = m->memory_bytes, .vcpu = m->vcpu
    };
    pid_t pid;

    m->building = false;
    spawn_init(&s);
    if (r == 0)
        r = cgroup_make(h, &spec, m->procs);
    if (r == 0) {
        spawn_machine(m, &s);
        r = spawn_run(h, &s, "start", &pid, &m->control);
    }
    if (r < 0) {
        finish(m, r);
        return;
    }
    fcntl(m->control, F_SETFL, O_NONBLOCK);
    m->starter.exited = starter_exited;
    m->starter.closed = starter_closed;
    r = child_watch(h->loop, &m->starter, pid);
    if (r < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        m->starter.pid = 0;
        finish(m, boxd_words(r, "cannot watch a helper process: %m"));
        return;
    }
    m->handles++;
    r = uv_poll_init(h->loop, &m->control_poll, m->control);
    if (r < 0) {
        finish(m, boxd_words(r, "cannot watch a helper process: %m"));
        return;
    }
    m->handles++;
    uv_poll_start(&m->control_poll, UV_READABLE | UV_DISCONNECT, control_readable);
}

/* The LAYER that the machine was born with, or the present one, which is then noted. */
static int choose_layer(struct host_machine *m, const char *fresh, char stamp[STAMP_SIZE])
{
    _cleanup_free_ char *path = strf("%s/machines/%s/layer", m->host->state, m->id);
    _cleanup_free_ char *part = strf("%s/machines/%s/.layer", m->host->state, m->id);
    _cleanup_close_ int fd = -1;
    ssize_t n;

    if (!path || !part)
        return -ENOMEM;
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, stamp, STAMP_SIZE - 1);
        if (n <= 0)
            return boxd_words(-EIO, "cannot read '%s'", path);
        stamp[n] = '\0';
        return strchr(stamp, '/') ? boxd_words(-EIO, "'%s' names no layer", path) : 0;
    }
    if (errno != ENOENT)
        return boxd_words(-errno, "cannot open '%s': %m", path);
    snprintf(stamp, STAMP_SIZE, "%s", fresh);
    fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, stamp, strlen(stamp)) != (ssize_t)strlen(stamp) ||
        rename(part, path) < 0)
        return boxd_words(-errno, "cannot write '%s': %m", path);
    return 0;
}

static int begin_host(struct host_machine *m)
{
    char fresh[STAMP_SIZE], stamp[STAMP_SIZE];
    int r = layer_stamp(m->host, m->privileged, fresh);

    if (m->privileged && !m->host->plain)
        return boxd_words(-EOPNOTSUPP,
                          "privileged machines of image 'host' cannot be made here: '/' cannot lie "
                          "under two overlays (use an image)");
    if (r == 0)
        r = choose_layer(m, fresh, stamp);
    if (r < 0)
        return r;
    m->uses_base = true;
    snprintf(m->lower, sizeof m->lower, "layers/%s", stamp);
    return layer_ensure(m->host, m->privileged, stamp, &m->build);
}

static int begin_image(struct host_machine *m)
{
    char fresh[STAMP_SIZE], stamp[STAMP_SIZE];
    _cleanup_close_ int fd = -1;
    int r = image_find(m->host, m->privileged, m->image, &m->image_path, &fd, fresh);

    if (r < 0)
        return r;
    if (m->image_path)
        return 0;
    r = choose_layer(m, fresh, stamp);
    if (r < 0)
        return r;
    snprintf(m->lower, sizeof m->lower, "unpacked/%s", stamp);
    return image_ensure(m->host, m->privileged, m->image, fd, stamp, &m->build);
}

static void start_deadline(uv_timer_t *timer)
{
    struct host_machine *m = container_of(timer, struct host_machine, begin);

    if (m->done && !m->building)
        finish(m, boxd_words(-ETIMEDOUT, "the machine did not start within a minute"));
}

int host_privileged_check(const struct host *h)
{
    if (h->kind == HOST_ROOT && h->allow_privileged)
        return 0;
    return boxd_words(-EACCES, "privileged machines are not allowed here (they equal root on this "
                               "computer; root can start 'boxd-local --allow-privileged')");
}

static void begin(uv_timer_t *timer)
{
    struct host_machine *m = container_of(timer, struct host_machine, begin);
    _cleanup_free_ char *dir = strf("%s/machines/%s", m->host->state, m->id);
    int r = m->privileged ? host_privileged_check(m->host) : 0;

    uv_timer_start(timer, start_deadline, START_MS, START_MS);
    machine_settle(m->host, m->id);
    if (r == 0 && !dir)
        r = -ENOMEM;
    else if (r == 0 && mkdir(dir, 0755) < 0 && errno != EEXIST)
        r = boxd_words(-errno, "cannot make '%s': %m", dir);
    if (r == 0)
        r = host_base_ready(m->host);
    if (r == 0)
        r = !strcmp(m->image, "host") ? begin_host(m) : begin_image(m);
    m->building = r > 0;
    if (r <= 0)
        launch(m, r);
}

struct host_machine *host_machine_start(struct host *h, const struct host_spec *spec,
                                        host_done *done, void *arg)
{
    struct host_machine *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->host = h;
    m->id = strdup(spec->id);
    m->hostname = strdup(spec->hostname);
    m->image = strdup(spec->image);
    if (!m->id || !m->hostname || !m->image || uv_timer_init(h->loop, &m->begin) < 0) {
        free(m->id);
        free(m->hostname);
        free(m->image);
        free(m);
        return NULL;
    }
    m->handles = 1;
    m->privileged = spec->privileged;
    m->memory_bytes = spec->memory_bytes;
    m->vcpu = spec->vcpu;
    m->control = m->pts = m->inner = m->init.pidfd = m->starter.pidfd = -1;
    for (size_t i = 0; i < CGROUPS; i++)
        m->procs[i] = -1;
    m->done = done;
    m->arg = arg;
    m->build.done = launch;
    m->build.arg = m;
    list_init(&m->build.link);
    list_init(&m->link);
    list_add(&h->machines, &m->link);
    uv_timer_start(&m->begin, begin, 0, 0);
    return m;
}

void host_machine_on_death(struct host_machine *m, void (*died)(void *arg), void *arg)
{
    m->died = died;
    m->died_arg = arg;
}

void host_machine_free(struct host_machine *m)
{
    if (!m || m->freed)
        return;
    m->done = NULL;
    m->freed = true;
    m->state = MACHINE_DEAD;
    build_forget(&m->build);
    kill_children(m);
    list_remove(&m->link);
    list_add(&m->host->dying, &m->link);
    close_handle(&m->begin, begin_closed);
    /* the other handles close when init and the starter have been reaped */
}

void machines_lose_view(struct host *h)
{
    list_each_safe(l, &h->machines)
    {
        struct host_machine *m = container_of(l, struct host_machine, link);

        if (m->uses_base && !m->privileged)
            kill_children(m);
    }
}

void machine_settle(struct host *h, const char *id)
{
    list_each_safe(l, &h->dying)
    {
        struct host_machine *m = container_of(l, struct host_machine, link);

        if (strcmp(m->id, id) != 0)
            continue;
        child_wait(&m->starter, SETTLE_MS);
        child_wait(&m->init, SETTLE_MS);
        /* Now, not when its handles close: a new start makes a group of the same name. */
        if (!m->settled)
            cgroup_remove(h, m->id);
        m->settled = true;
    }
}

/* ---- freezing ---------------------------------------------------------------------------------
 */

/* Without a freezer: stops every process from inside, in one step. */
static int signal_machine(struct host_machine *m, int sig)
{
    _cleanup_(spawn_clear) struct spawn s;
    int control, status, r;
    pid_t pid;

    spawn_init(&s);
    spawn_fd(&s, "machine", m->init.pidfd);
    spawn_num(&s, "privileged", m->privileged);
    spawn_num(&s, "signal", (uint64_t)sig);
    r = spawn_run(m->host, &s, "signal", &pid, &control);
    if (r < 0)
        return r;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0) {
        struct msg msg;
        int fds[MSG_FDS];
        size_t n;

        fcntl(control, F_SETFL, O_NONBLOCK);
        r = msg_recv(control, &msg, fds, &n) == 0 && msg.type == MSG_ERROR
                ? boxd_words(msg.value < 0 ? msg.value : -EIO, "%s", msg.text)
                : boxd_words(-EIO, "cannot signal the machine's processes");
    }
    close(control);
    return r;
}

int host_machine_freeze(struct host_machine *m, bool frozen)
{
    int r;

    if (m->state != MACHINE_RUNNING)
        return boxd_words(-ESRCH, "the machine does not run");
    if (m->frozen == frozen)
        return 0;
    r = frozen ? guard_start(m) : 0;
    if (r == 0)
        r = cgroup_freeze(m->host, m->id, frozen);
    if (r == -EOPNOTSUPP)
        r = signal_machine(m, frozen ? SIGSTOP : SIGCONT);
    else if (r < 0 && frozen) /* some of its processes may be frozen already */
        cgroup_freeze(m->host, m->id, false);
    if (r == 0)
        m->frozen = frozen;
    if (!m->frozen)
        guard_stop(m);
    return r;
}
