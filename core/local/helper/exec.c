/* Runs one command in a machine. Three processes:
 *   this one    in this computer's pid namespace: waits for orders, can see and signal everything
 *   supervisor  in the machine, its root: orphans of the command become its children, so that none
 *               can hide from a kill; ends with the command, what still runs then is init's
 *   command     session leader, the user's ids
 * The exit status goes up the same way. */
#include "base/base.h"
#include "base/str.h"
#include "helper/fake.h"
#include "helper/helper.h"
#include "helper/sys.h"
#include "helper/users.h"

#include <boxd/error.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define KILL_AFTER_MS 2000
#define KILL_ROUNDS 100
#define CANNOT_RUN 126
#define NOT_FOUND 127
#define MACHINE_ALL \
    (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP)

static _Noreturn void cannot_run(const char *what)
{
    int e = errno;

    fprintf(stderr, "cannot run '%s': %s\n", what, strerror(e));
    fflush(stderr);
    _exit(e == ENOENT || e == ENOTDIR ? NOT_FOUND : CANNOT_RUN);
}

/* An id of a machine that has only one: shown in a user namespace below. The namespace of boxd was
 * made with the machine; another id gets one of its own. */
static int become_single(const struct spec *s, const struct user *u)
{
    int inner = spec_fd(s, "inner");
    char map[32];

    if (u->uid == 0)
        return fake_ids();
    if (u->uid == 1000 && inner >= 0)
        return setns(inner, CLONE_NEWUSER) < 0 ? -errno : 0;
    if (prctl(PR_SET_DUMPABLE, 1) < 0 || unshare(CLONE_NEWUSER) < 0)
        return -errno;
    snprintf(map, sizeof map, "%u 0 1", (unsigned)u->uid);
    if (write_text("/proc/self/uid_map", map) < 0)
        return -errno;
    snprintf(map, sizeof map, "%u 0 1", (unsigned)u->gid);
    return write_text("/proc/self/gid_map", map);
}

static int become(const struct spec *s, const struct user *u)
{
    if (spec_num(s, "single", 0))
        return become_single(s, u);
    if (setgroups(u->ngroups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        setresuid(u->uid, u->uid, u->uid) < 0)
        return -errno;
    return 0;
}

/* The default environment; what the caller gave replaces it. */
static char **environment(const struct spec *s, const struct user *u)
{
    const char **given = spec_all(s, "env");
    const char *term = spec_num(s, "tty", 0) ? "TERM=xterm-256color" : "TERM=dumb";
    char *defaults[] = { strf("HOME=%s", u->home),
                         strf("USER=%s", u->name),
                         strf("LOGNAME=%s", u->name),
                         strf("SHELL=%s", u->shell),
                         strf("LANG=C.UTF-8"),
                         strf("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
                         strf("%s", term) };
    size_t n = 0, k = 0;
    char **env;

    while (given && given[n])
        n++;
    env = calloc(n + ARRAY_LEN(defaults) + 1, sizeof *env);
    if (!given || !env)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
        bool replaced = !defaults[i];

        for (size_t j = 0; j < n && !replaced; j++)
            replaced = !strncmp(given[j], defaults[i], strcspn(defaults[i], "=") + 1);
        if (!replaced)
            env[k++] = defaults[i];
    }
    for (size_t j = 0; j < n; j++)
        env[k++] = (char *)(uintptr_t)given[j];
    free(given);
    return env;
}

static _Noreturn void command(const struct spec *s, const struct user *u)
{
    char **argv = (char **)(uintptr_t)spec_all(s, "argv"), **env = environment(s, u);
    const char *cwd = spec_get(s, "cwd");
    int r;

    if (!argv || !env || !argv[0]) {
        errno = ENOMEM;
        cannot_run("the command");
    }
    if (setsid() < 0 || (spec_num(s, "tty", 0) && ioctl(0, TIOCSCTTY, 0) < 0))
        cannot_run(argv[0]);
    r = become(s, u);
    if (r < 0) {
        errno = -r;
        cannot_run(argv[0]);
    }
    sys_close_range(3, ~0U, 0); /* the machine's pidfd, its cgroups, the server's socket */
    if (cwd && chdir(cwd) < 0)
        cannot_run(cwd);
    if (!cwd && chdir(u->home) < 0 && chdir("/") < 0)
        cannot_run("/");
    execve(argv[0], argv, env);
    cannot_run(argv[0]);
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* In an own pid namespace /proc has to be of that one. */
static void own_proc(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        cannot_run("/proc");
}

/* Set in the supervisor when the command is being killed. */
static volatile sig_atomic_t killing;

static void on_term(int sig)
{
    killing = 1;
}

/* Reaps until the process ends, and ends like it. While the command is being killed it stays until
 * the last descendant is gone: whoever ignored TERM must still be found as a descendant of it. */
static _Noreturn void end_with(pid_t p)
{
    int status, code = CANNOT_RUN;

    sys_close_range(0, ~0U, 0); /* else readers of the command's output would wait for us */
    for (;;) {
        pid_t pid = waitpid(-1, &status, 0);

        if (pid == p)
            code = exit_code(status);
        if ((pid == p && !killing) || (pid < 0 && errno != EINTR))
            _exit(code);
    }
}

static pid_t fork_or_end(void)
{
    pid_t p = fork();

    if (p < 0)
        cannot_run("the command");
    return p;
}

/* The first process of the exec's own pid namespace. */
static _Noreturn void first_process(const struct spec *s, const struct user *u)
{
    pid_t p;

    own_proc();
    p = fork_or_end();
    if (p == 0)
        command(s, u);
    end_with(p);
}

static _Noreturn void supervisor(const struct spec *s, const struct user *u)
{
    bool own = spec_num(s, "pidns", 0);
    pid_t p;

    signal(SIGTERM, on_term);
    if (die_with_parent(0) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
        (own && unshare(CLONE_NEWPID) < 0))
        cannot_run("the command");
    p = fork_or_end();
    if (p == 0 && own)
        first_process(s, u);
    if (p == 0)
        command(s, u);
    end_with(p);
}

/* ---- killing ----------------------------------------------------------------------------------
 */

struct process {
    pid_t pid, parent;
    bool ours;
};

/* The parent of a process, from /proc/PID/stat; 0 when it is gone. */
static pid_t parent_of(int proc, const char *pid)
{
    char path[32], text[512];
    _cleanup_close_ int fd = -1;
    ssize_t n;
    char *p;

    snprintf(path, sizeof path, "%.10s/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    p = strrchr(text, ')'); /* the name may contain anything */
    return p && strlen(p) > 4 ? (pid_t)strtol(p + 4, NULL, 10) : 0;
}

/* Every process of this computer; NULL when /proc cannot be read. */
static struct process *all_processes(int proc, size_t *count)
{
    int copy = openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct process *all = NULL;
    size_t room = 0;
    struct dirent *e;

    *count = 0;
    while (d && (e = readdir(d))) {
        uint64_t pid;

        if (parse_u64(e->d_name, INT32_MAX, &pid) < 0)
            continue;
        if (*count == room) {
            struct process *more = reallocarray(all, room + 256, sizeof *all);

            if (!more)
                break;
            all = more;
            room += 256;
        }
        all[(*count)++] = (struct process){ (pid_t)pid, parent_of(proc, e->d_name), false };
    }
    return all;
}

/* Sends `sig` to every descendant of `top`; how many there were. */
static size_t signal_descendants(int proc, pid_t top, int sig)
{
    size_t n, found = 0;
    _cleanup_free_ struct process *all = all_processes(proc, &n);
    bool more = true;

    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            if (all[i].ours)
                continue;
            for (size_t j = 0; j < n && !all[i].ours; j++)
                all[i].ours = all[i].parent == top || (all[j].ours && all[j].pid == all[i].parent);
            more |= all[i].ours;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (all[i].ours) {
            kill(all[i].pid, sig);
            found++;
        }
    return found;
}

/* Kills until nothing is left; the supervisor then ends by itself. */
static void kill_all(int proc, pid_t top)
{
    kill(top, SIGTERM);
    for (int round = 0; round < KILL_ROUNDS; round++) {
        if (!signal_descendants(proc, top, SIGKILL))
            break;
        poll(NULL, 0, 2);
    }
}

/* Waits for the end of the supervisor, and for orders. */
static int watch(int proc, pid_t top, int pidfd)
{
    struct pollfd p[] = { { pidfd, POLLIN, 0 }, { HELPER_CONTROL, POLLIN, 0 } };
    int timeout = -1, status, fds[MSG_FDS];
    struct msg m;
    size_t n;

    for (;;) {
        int r = poll(p, 2, timeout);

        if (r < 0 && errno != EINTR)
            return CANNOT_RUN;
        if (r > 0 && (p[0].revents & POLLIN))
            break;
        if (r > 0 && p[1].revents && msg_recv(HELPER_CONTROL, &m, fds, &n) < 0) {
            kill_all(proc, top);
            p[1].fd = -1;
        } else if (r > 0 && p[1].revents && m.type == MSG_TERM) {
            kill(top, SIGTERM);
            signal_descendants(proc, top, SIGTERM);
            signal_descendants(proc, top, SIGCONT);
            timeout = KILL_AFTER_MS;
        } else if (r == 0 || (r > 0 && p[1].revents)) {
            kill_all(proc, top);
            timeout = -1;
        }
    }
    return waitpid(top, &status, 0) == top ? exit_code(status) : CANNOT_RUN;
}

int mode_exec(const struct spec *s)
{
    int flags = MACHINE_ALL | (spec_num(s, "privileged", 0) ? 0 : CLONE_NEWUSER);
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), machine = spec_fd(s, "machine");
    struct clone_args ca = { .flags = CLONE_PIDFD, .exit_signal = SIGCHLD };
    int pidfd = -1;
    struct user u;
    pid_t p;

    ca.pidfd = (uint64_t)(uintptr_t)&pidfd;
    if (proc < 0 || join_cgroups(s) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        setns(machine, flags) < 0)
        cannot_run("the command");
    if (die_with_parent((pid_t)spec_num(s, "parent", 0)) < 0)
        _exit(CANNOT_RUN); /* again: the change of user namespace clears it */
    if (user_find(spec_get(s, "user"), &u) < 0) {
        fprintf(stderr, "no user '%s' in this machine\n", spec_get(s, "user"));
        _exit(CANNOT_RUN);
    }
    if (spec_num(s, "tty", 0) && !spec_num(s, "single", 0) && fchown(0, u.uid, (gid_t)-1) < 0)
        cannot_run("the terminal");
    p = sys_clone3(&ca);
    if (p < 0)
        cannot_run("the command");
    if (p == 0)
        supervisor(s, &u);
    sys_close_range(0, 2, 0);
    _exit(watch(proc, p, pidfd));
}

/* The version 1 freezer keeps killed processes: somebody has to thaw what a dead server froze. */
int mode_guard(const struct spec *s)
{
    int fds[MSG_FDS];
    struct msg m;
    size_t n;

    if (prctl(PR_SET_PDEATHSIG, 0) < 0)
        return -errno;
    while (msg_recv(HELPER_CONTROL, &m, fds, &n) == 0)
        ;
    return write(spec_fd(s, "thaw"), "THAWED", 6) == 6 ? 0 : -errno;
}

/* Every process of a machine but its init: kill(-1) inside its pid namespace is one step. */
int mode_signal(const struct spec *s)
{
    int flags = CLONE_NEWPID | (spec_num(s, "privileged", 0) ? 0 : CLONE_NEWUSER);
    int status;
    pid_t p;

    if (setns(spec_fd(s, "machine"), flags) < 0)
        return boxd_words(-errno, "cannot enter the machine: %m");
    p = fork();
    if (p < 0)
        return -errno;
    if (p == 0)
        _exit(kill(-1, (int)spec_num(s, "signal", SIGCONT)) < 0 && errno != ESRCH ? 1 : 0);
    if (waitpid(p, &status, 0) < 0 || status != 0)
        return boxd_words(-EPERM, "cannot signal the machine's processes");
    return 0;
}
