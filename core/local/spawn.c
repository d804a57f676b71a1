/* Helper processes: boxd-init started from its sealed copy with named descriptors and nothing else,
 * and children known by pidfd (nobody else's children are ever waited for). */
#include "base/base.h"
#include "local/internal.h"

#include <boxd/error.h>
#include <boxd/log.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- children ---------------------------------------------------------------------------------
 */

static void child_closed(uv_handle_t *handle)
{
    struct child *c = container_of((uv_poll_t *)(void *)handle, struct child, poll);

    if (c->pidfd >= 0)
        close(c->pidfd);
    c->pidfd = -1;
    if (c->closed)
        c->closed(c);
}

void child_unwatch(struct child *c)
{
    if (c->pidfd >= 0 && !uv_is_closing((uv_handle_t *)&c->poll))
        uv_close((uv_handle_t *)&c->poll, child_closed);
}

/* True once it has been waited for. */
static bool child_reap(struct child *c, int *status)
{
    pid_t r;

    do {
        r = waitpid(c->pid, status, WNOHANG);
    } while (r < 0 && errno == EINTR);
    if (r == 0)
        return false;
    if (r < 0)
        *status = 0; /* cannot happen while SIGCHLD is not ignored */
    c->pid = 0;
    return true;
}

static void child_readable(uv_poll_t *poll, int status, int events)
{
    struct child *c = container_of(poll, struct child, poll);
    int wstatus;

    if (!c->pid || !child_reap(c, &wstatus))
        return;
    uv_poll_stop(poll);
    child_unwatch(c);
    if (c->exited)
        c->exited(c, wstatus);
}

int child_watch(uv_loop_t *loop, struct child *c, pid_t pid)
{
    int r;

    c->pid = pid;
    c->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (c->pidfd < 0)
        return -errno;
    r = uv_poll_init(loop, &c->poll, c->pidfd);
    if (r < 0) {
        close(c->pidfd);
        c->pidfd = -1;
        return r;
    }
    return uv_poll_start(&c->poll, UV_READABLE, child_readable);
}

bool child_wait(struct child *c, int ms)
{
    struct pollfd p = { c->pidfd, POLLIN, 0 };
    int status;

    if (!c->pid)
        return true;
    if (c->pidfd >= 0)
        poll(&p, 1, ms);
    if (!child_reap(c, &status))
        return false;
    child_unwatch(c);
    return true;
}

/* ---- specifications ---------------------------------------------------------------------------
 */

void spawn_init(struct spawn *s)
{
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < ARRAY_LEN(s->std); i++)
        s->std[i] = -1;
}

void spawn_clear(struct spawn *s)
{
    buf_clear(&s->spec);
}

void spawn_str(struct spawn *s, const char *key, const char *value)
{
    if (s->r == 0)
        s->r = spec_add(&s->spec, key, value);
}

void spawn_num(struct spawn *s, const char *key, uint64_t value)
{
    if (s->r == 0)
        s->r = spec_add_num(&s->spec, key, value);
}

void spawn_fd(struct spawn *s, const char *name, int fd)
{
    char key[32];

    if (fd < 0)
        return;
    if (s->nfds == SPAWN_FDS) {
        s->r = -EMFILE;
        return;
    }
    snprintf(key, sizeof key, "fd.%s", name);
    spawn_num(s, key, HELPER_FDS + s->nfds);
    s->fds[s->nfds++] = fd;
}

/* The specification as a file that the helper reads. */
static int spec_memfd(const struct buf *b)
{
    _cleanup_close_ int fd = memfd_create("spec", MFD_CLOEXEC);
    size_t at = 0;

    if (fd < 0)
        return -errno;
    while (at < b->len) {
        ssize_t n = write(fd, b->data + at, b->len - at);

        if (n < 0)
            return -errno;
        at += (size_t)n;
    }
    return steal_fd(&fd);
}

/* ---- starting ---------------------------------------------------------------------------------
 */

/* The descriptors of a start, in the order of their numbers in the helper. */
struct start {
    int from[3 + 2 + SPAWN_FDS];
    size_t n;
};

/* All sources above HIGH_FD: copies, closed by start_clear. */
static int start_fill(struct host *h, struct spawn *s, int control, int spec, struct start *st)
{
    int r = 0;

    for (size_t i = 0; i < 3; i++)
        st->from[st->n++] = s->std[i] < 0 ? h->null : s->std[i];
    st->from[st->n++] = control;
    st->from[st->n++] = spec;
    for (size_t i = 0; i < s->nfds; i++)
        st->from[st->n++] = s->fds[i];
    for (size_t i = 0; i < st->n; i++) {
        st->from[i] = r < 0 ? -1 : fcntl(st->from[i], F_DUPFD_CLOEXEC, HIGH_FD);
        if (st->from[i] < 0 && r == 0)
            r = -errno;
    }
    return r;
}

static void start_clear(struct start *st)
{
    for (size_t i = 0; i < st->n; i++)
        if (st->from[i] >= 0)
            close(st->from[i]);
}

static int start_program(struct host *h, const struct start *st, const char *mode, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t all, none;
    char path[64];
    char *argv[] = { (char[]){ "boxd" }, (char *)(uintptr_t)mode, NULL };
    char *envp[] = { NULL };
    int r;

    snprintf(path, sizeof path, "/proc/self/fd/%d", h->self);
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setsigmask(&attr, &none);
    r = 0;
    for (size_t i = 0; i < st->n && r == 0; i++)
        r = posix_spawn_file_actions_adddup2(&actions, st->from[i], (int)i);
    if (r == 0)
        r = posix_spawn(pid, path, &actions, &attr, argv, envp);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

int spawn_run(struct host *h, struct spawn *s, const char *mode, pid_t *pid, int *control)
{
    _cleanup_close_ int ours = -1, theirs = -1, spec = -1;
    struct start st = { .n = 0 };
    int pair[2], r;

    spawn_num(s, "fds", HELPER_FDS + s->nfds);
    spawn_num(s, "parent", (uint64_t)getpid());
    if (s->r < 0)
        return s->r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return boxd_words(-errno, "cannot make a socket pair: %m");
    ours = pair[0];
    theirs = pair[1];
    spec = spec_memfd(&s->spec);
    if (spec < 0)
        return boxd_words(spec, "cannot make a file in memory: %m");
    r = start_fill(h, s, theirs, spec, &st);
    if (r == 0)
        r = start_program(h, &st, mode, pid);
    start_clear(&st);
    if (r < 0)
        return boxd_words(r, "cannot start a helper process: %m");
    *control = steal_fd(&ours);
    return 0;
}

/* ---- jobs -------------------------------------------------------------------------------------
 */

static void job_closed(struct child *c)
{
    struct job *j = container_of(c, struct job, child);

    list_remove(&j->link);
    close(j->control);
    free(j);
}

static void job_exited(struct child *c, int status)
{
    struct job *j = container_of(c, struct job, child);
    struct msg m;
    int fds[MSG_FDS], r;
    size_t n;

    r = msg_recv(j->control, &m, fds, &n);
    if (r < 0)
        r = boxd_words(-EIO, "a helper process ended without an answer (status %d)", status);
    else if (m.type == MSG_ERROR && m.value < 0)
        r = boxd_words(m.value, "%s", m.text);
    else if (m.type != MSG_DONE)
        r = boxd_words(-EIO, "a helper process gave a wrong answer");
    if (j->done)
        j->done(j->arg, r);
}

int job_start(struct host *h, struct spawn *s, const char *mode, host_done *done, void *arg,
              struct job **out)
{
    struct job *j = calloc(1, sizeof *j);
    pid_t pid;
    int r;

    if (!j)
        return -ENOMEM;
    r = spawn_run(h, s, mode, &pid, &j->control);
    if (r < 0) {
        free(j);
        return r;
    }
    fcntl(j->control, F_SETFL, O_NONBLOCK);
    j->host = h;
    j->done = done;
    j->arg = arg;
    j->child.exited = job_exited;
    j->child.closed = job_closed;
    list_init(&j->link);
    r = child_watch(h->loop, &j->child, pid);
    if (r < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(j->control);
        free(j);
        return boxd_words(r, "cannot watch a helper process: %m");
    }
    list_add(&h->jobs, &j->link);
    if (out)
        *out = j;
    return 0;
}

void job_cancel(struct job *j)
{
    j->done = NULL;
    if (j->child.pid)
        kill(j->child.pid, SIGKILL);
}

/* ---- deferring --------------------------------------------------------------------------------
 */

struct deferred {
    uv_timer_t timer;
    host_done *done;
    void *arg;
    int r;
    char words[1024];
};

static void deferred_closed(uv_handle_t *handle)
{
    free(container_of((uv_timer_t *)(void *)handle, struct deferred, timer));
}

static void deferred_run(uv_timer_t *timer)
{
    struct deferred *d = container_of(timer, struct deferred, timer);

    if (d->r < 0)
        boxd_words(d->r, "%s", d->words);
    d->done(d->arg, d->r);
    uv_close((uv_handle_t *)timer, deferred_closed);
}

void host_defer(struct host *h, int r, host_done *done, void *arg)
{
    struct deferred *d = calloc(1, sizeof *d);

    if (!d || uv_timer_init(h->loop, &d->timer) < 0) {
        free(d);
        boxd_log(BOXD_LOG_ERROR, "out of memory");
        abort(); /* an answer that never comes would hang its caller for ever */
    }
    d->done = done;
    d->arg = arg;
    d->r = r;
    snprintf(d->words, sizeof d->words, "%s", boxd_error_words(r));
    uv_timer_start(&d->timer, deferred_run, 0, 0);
}
