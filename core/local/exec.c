/* Commands in a machine: pipes or a terminal here, the rest in the helper (helper/exec.c). */
#include "base/base.h"
#include "local/internal.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <signal.h>
#include <linux/openat2.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PIPE_SIZE (1 << 20)

struct host_exec {
    struct child child;
    struct host_machine *machine; /* kept until the helper has been reaped */
    int control;                  /* closing it kills the command hard */
    int tty;                      /* the terminal's master, or -1 */
    host_exec_done *done;
    void *arg;
};

/* Our ends and the command's. */
struct ends {
    int ours[3], theirs[3];
};

static void ends_clear(struct ends *e)
{
    for (size_t i = 0; i < 3; i++) {
        close_keep_errno(e->ours[i]);
        close_keep_errno(e->theirs[i]);
    }
}

static int make_pipes(struct ends *e)
{
    for (int i = 0; i < 3; i++) {
        int p[2], mine = i == 0 ? 1 : 0;

        if (pipe2(p, O_CLOEXEC) < 0)
            return boxd_words(-errno, "cannot make a pipe: %m");
        e->ours[i] = p[mine];
        e->theirs[i] = p[!mine];
        fcntl(p[0], F_SETPIPE_SZ, PIPE_SIZE); /* smaller is slower, not wrong */
        if (fcntl(p[mine], F_SETFL, O_NONBLOCK) < 0)
            return -errno;
    }
    return 0;
}

/* The machine's own terminals, whatever it did to its /dev since. */
static int make_tty(const struct host_machine *m, uint16_t cols, uint16_t rows, struct ends *e)
{
    bool shifted = m->host->kind == HOST_ROOT && !m->privileged;
    struct open_how how = { .flags = O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK,
                            .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS };
    struct winsize size = { .ws_col = cols ? cols : 80, .ws_row = rows ? rows : 24 };
    int unlock = 0;

    if (shifted) /* the terminal shall be the machine's root's, who gives it to the user */
        setfsuid(SHIFT);
    e->ours[0] = (int)syscall(SYS_openat2, m->pts, "ptmx", &how, sizeof how);
    if (shifted)
        setfsuid(geteuid());
    if (e->ours[0] < 0 || ioctl(e->ours[0], TIOCSPTLCK, &unlock) < 0)
        return boxd_words(-errno, "cannot open a terminal in the machine: %m");
    e->theirs[0] = ioctl(e->ours[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (e->theirs[0] < 0 || ioctl(e->ours[0], TIOCSWINSZ, &size) < 0)
        return boxd_words(-errno, "cannot open a terminal in the machine: %m");
    e->ours[1] = fcntl(e->ours[0], F_DUPFD_CLOEXEC, 0);
    return e->ours[1] < 0 ? -errno : 0;
}

static void fill_spec(struct host_machine *m, const struct host_exec_spec *spec,
                      const struct ends *e, struct spawn *s)
{
    struct host *h = m->host;

    for (size_t i = 0; i < 3; i++)
        s->std[i] = spec->tty ? e->theirs[0] : e->theirs[i];
    spawn_fd(s, "machine", m->init.pidfd);
    spawn_fd(s, "inner", m->inner);
    machine_spawn_cgroups(m, s);
    spawn_num(s, "tty", spec->tty);
    spawn_num(s, "privileged", m->privileged);
    spawn_num(s, "single", h->kind == HOST_USER_SINGLE);
    spawn_num(s, "pidns", h->exec_pid_namespace);
    if (spec->user)
        spawn_str(s, "user", spec->user);
    if (spec->cwd)
        spawn_str(s, "cwd", spec->cwd);
    for (size_t i = 0; spec->argv[i]; i++)
        spawn_str(s, "argv", spec->argv[i]);
    for (size_t i = 0; spec->env && spec->env[i]; i++)
        spawn_str(s, "env", spec->env[i]);
}

static void exec_closed(struct child *c)
{
    struct host_exec *e = container_of(c, struct host_exec, child);

    close_keep_errno(e->control);
    close_keep_errno(e->tty);
    machine_unref(e->machine);
    free(e);
}

static void exec_exited(struct child *c, int status)
{
    struct host_exec *e = container_of(c, struct host_exec, child);
    host_exec_done *done = e->done;
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);

    e->done = NULL;
    if (done)
        done(e->arg, code);
}

static int start_exec(struct host_machine *m, struct spawn *s, struct ends *ends, bool tty,
                      struct host_exec *e)
{
    pid_t pid;
    int r;

    if (tty) {
        e->tty = fcntl(ends->ours[0], F_DUPFD_CLOEXEC, 0);
        if (e->tty < 0)
            return -errno;
    }
    r = spawn_run(m->host, s, "exec", &pid, &e->control);
    if (r < 0)
        return r;
    fcntl(e->control, F_SETFL, O_NONBLOCK);
    e->child.exited = exec_exited;
    e->child.closed = exec_closed;
    r = child_watch(m->host->loop, &e->child, pid);
    if (r < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return boxd_words(r, "cannot watch the command: %m");
    }
    return 0;
}

int host_exec_start(struct host_machine *m, const struct host_exec_spec *spec, int *in_fd,
                    int *out_fd, int *err_fd, host_exec_done *done, void *arg,
                    struct host_exec **out)
{
    struct ends ends = { { -1, -1, -1 }, { -1, -1, -1 } };
    _cleanup_(spawn_clear) struct spawn s;
    struct host_exec *e;
    int r;

    spawn_init(&s);
    if (m->state != MACHINE_RUNNING)
        return boxd_words(-ESRCH, "the machine does not run");
    if (m->frozen)
        return boxd_words(-EBUSY, "the machine is paused (resume it first)");
    e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->control = e->tty = -1;
    e->done = done;
    e->arg = arg;
    r = spec->tty ? make_tty(m, spec->cols, spec->rows, &ends) : make_pipes(&ends);
    if (r == 0)
        fill_spec(m, spec, &ends, &s);
    if (r == 0)
        r = start_exec(m, &s, &ends, spec->tty, e);
    if (r < 0) {
        ends_clear(&ends);
        close_keep_errno(e->control);
        close_keep_errno(e->tty);
        free(e);
        return r;
    }
    e->machine = m;
    m->handles++;
    *in_fd = steal_fd(&ends.ours[0]);
    *out_fd = steal_fd(&ends.ours[1]);
    *err_fd = steal_fd(&ends.ours[2]);
    ends_clear(&ends);
    *out = e;
    return 0;
}

void host_exec_kill(struct host_exec *e, bool hard)
{
    if (e->control >= 0)
        msg_simple(e->control, hard ? MSG_KILL : MSG_TERM, 0);
}

int host_exec_resize(struct host_exec *e, uint16_t cols, uint16_t rows)
{
    struct winsize size = { .ws_col = cols, .ws_row = rows };

    if (e->tty < 0)
        return boxd_words(-ENOTTY, "the command has no terminal");
    return ioctl(e->tty, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

void host_exec_free(struct host_exec *e)
{
    if (!e)
        return;
    e->done = NULL;
    e->control = close_keep_errno(e->control); /* the helper then kills hard and ends */
}
