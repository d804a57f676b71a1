/* What this computer allows: the kind of its machines, the base they share, programs of ours. */
#include "base/base.h"
#include "base/str.h"
#include "local/internal.h"

#include <boxd/error.h>
#include <boxd/log.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define CLOSE_MS 5000

const char *host_kind_name(enum host_kind k)
{
    static const char *const names[] = { "root", "subuid", "single" };

    return (size_t)k < ARRAY_LEN(names) ? names[k] : "unknown";
}

enum host_kind host_get_kind(const struct host *h)
{
    return h->kind;
}

const char *host_limits(const struct host *h)
{
    return h->limits;
}

/* ---- programs of ours -------------------------------------------------------------------------
 */

int host_program(struct host *h, const char *name)
{
    const char *const dirs[] = { h->libexec, BOXD_LIBEXEC };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        _cleanup_free_ char *path = strf("%s/%s", dirs[i], name);
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        if (fd >= 0)
            return fd;
        if (errno != ENOENT)
            return boxd_words(-errno, "cannot open '%s': %m", path);
    }
    return boxd_words(-ENOENT, "cannot find '%s' beside this program or in '%s' (install boxdfs)",
                      name, BOXD_LIBEXEC);
}

/* The directory of the running program. */
static int own_directory(char **out)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    char *slash;

    if (n < 0)
        return -errno;
    path[n] = '\0';
    slash = strrchr(path, '/');
    *out = strndup(path, slash ? (size_t)(slash - path) : 0);
    return *out ? 0 : -ENOMEM;
}

/* A sealed copy: machines run it, and can neither change it nor learn where it was. */
static int seal_helper(struct host *h)
{
    _cleanup_close_ int from = host_program(h, "boxd-init");
    _cleanup_close_ int to = -1;
    char data[65536];
    ssize_t n;

    if (from < 0)
        return from;
    to = memfd_create("init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (to < 0)
        return boxd_words(-errno, "cannot make a file in memory: %m");
    while ((n = read(from, data, sizeof data)) > 0)
        if (write(to, data, (size_t)n) != n)
            return boxd_words(-errno, "cannot copy 'boxd-init': %m");
    if (n < 0 || fchmod(to, 0755) < 0 ||
        fcntl(to, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return boxd_words(-errno, "cannot seal 'boxd-init': %m");
    h->self = fcntl(to, F_DUPFD_CLOEXEC, HIGH_FD); /* it is executed after the dup2()s */
    return h->self < 0 ? -errno : 0;
}

/* ---- kind and base ----------------------------------------------------------------------------
 */

void host_spawn_base(struct host *h, struct spawn *s)
{
    spawn_str(s, "state", h->state);
    spawn_num(s, "single", h->kind == HOST_USER_SINGLE);
    spawn_fd(s, "mount", h->mnt);
    if (h->kind != HOST_ROOT)
        spawn_fd(s, "user", h->user);
}

/* The first range of this user in /etc/subuid or subgid with room for a machine's ids. */
static bool subid_range(const char *file, const char *name, uid_t uid, uint64_t *start)
{
    _cleanup_fclose_ FILE *f = fopen(file, "re");
    char line[512];

    while (f && fgets(line, sizeof line, f)) {
        char *at = line, *who = strsep(&at, ":"), *first = strsep(&at, ":");
        uint64_t id, count;

        if (!at || !first)
            continue;
        at[strcspn(at, "\n")] = '\0';
        if (strcmp(who, name) != 0 && (parse_u64(who, UINT32_MAX, &id) < 0 || id != uid))
            continue;
        if (parse_u64(first, UINT32_MAX, start) == 0 && parse_u64(at, UINT32_MAX, &count) == 0 &&
            count >= 65535)
            return true;
    }
    return false;
}

/* Runs newuidmap or newgidmap for the helper's new namespace. */
static int map_ids(const char *program, pid_t pid, uint64_t own, uint64_t start)
{
    char p[16], o[16], s[24];
    char *argv[] = {
        (char *)(uintptr_t)program, p,   (char[]){ "0" }, o, (char[]){ "1" }, (char[]){ "1" }, s,
        (char[]){ "65535" },        NULL
    };
    char *envp[] = { (char[]){ "PATH=/usr/local/bin:/usr/bin:/bin" }, NULL };
    int r, status;
    pid_t child;

    snprintf(p, sizeof p, "%d", (int)pid);
    snprintf(o, sizeof o, "%" PRIu64, own);
    snprintf(s, sizeof s, "%" PRIu64, start);
    r = posix_spawnp(&child, program, NULL, NULL, argv, envp);
    if (r)
        return boxd_words(-r, "cannot run '%s': %m (package uidmap)", program);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return status == 0 ? 0 : boxd_words(-EPERM, "'%s' refused this user's range of ids", program);
}

static bool find_program(const char *name)
{
    static const char *const dirs[] = { "/usr/bin", "/bin", "/usr/local/bin" };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        _cleanup_free_ char *path = strf("%s/%s", dirs[i], name);

        if (path && access(path, X_OK) == 0)
            return true;
    }
    return false;
}

static void find_kind(struct host *h, bool force_single)
{
    struct passwd *pw = getpwuid(geteuid());
    const char *name = pw ? pw->pw_name : "";

    if (geteuid() == 0 && !force_single)
        h->kind = HOST_ROOT;
    else if (!force_single && subid_range("/etc/subuid", name, geteuid(), &h->ids[0]) &&
             subid_range("/etc/subgid", name, geteuid(), &h->ids[1]) && find_program("newuidmap") &&
             find_program("newgidmap"))
        h->kind = HOST_USER_SUBUID;
    else
        h->kind = HOST_USER_SINGLE;
    if (h->kind == HOST_USER_SINGLE)
        snprintf(h->limits, sizeof h->limits,
                 "no separation between user ids in a machine: every user there is this one (an "
                 "administrator can change it: usermod --add-subuids 100000-165535 "
                 "--add-subgids 100000-165535 %s)",
                 name);
}

static void view_exited(struct child *c, int status)
{
    struct host *h = container_of(c, struct host, view_child);

    if (h->closing)
        return;
    boxd_log(BOXD_LOG_ERROR,
             "'boxd-view' ended (status %d): machines that show this computer's "
             "/usr end too",
             status);
    h->base_lost = true;
    machines_lose_view(h);
}

/* Starts the program that serves the view on this device. */
static int start_view(struct host *h, int fuse)
{
    _cleanup_close_ int program = host_program(h, "boxd-view");
    _cleanup_close_ int device = -1;
    char path[64], dev[16], kind[16], parent[16];
    char *argv[] = { (char[]){ "boxd-view" }, dev, kind, parent, NULL };
    char *envp[] = { NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int r;

    if (program < 0)
        return program;
    device = fcntl(fuse, F_DUPFD_CLOEXEC, HIGH_FD);
    if (device < 0)
        return -errno;
    snprintf(path, sizeof path, "/proc/self/fd/%d", program);
    snprintf(dev, sizeof dev, "%d", 3);
    snprintf(kind, sizeof kind, "%s", host_kind_name(h->kind));
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    posix_spawn_file_actions_init(&actions);
    r = posix_spawn_file_actions_adddup2(&actions, device, 3);
    if (!r)
        r = posix_spawn_file_actions_adddup2(&actions, h->null, 0);
    if (!r)
        r = posix_spawn_file_actions_adddup2(&actions, h->null, 1);
    if (!r)
        r = posix_spawn(&pid, path, &actions, NULL, argv, envp);
    posix_spawn_file_actions_destroy(&actions);
    if (r)
        return boxd_words(-r, "cannot start 'boxd-view': %m");
    h->view_child.exited = view_exited;
    r = child_watch(h->loop, &h->view_child, pid);
    if (r < 0)
        return boxd_words(r, "cannot watch 'boxd-view': %m");
    uv_unref((uv_handle_t *)&h->view_child.poll);
    return 0;
}

/* One message of the base helper; 1 when it was the last one. */
static int base_message(struct host *h, int control)
{
    int fds[MSG_FDS], r;
    struct msg m;
    size_t n;

    r = msg_recv(control, &m, fds, &n);
    if (r < 0)
        return boxd_words(-EIO, "the helper that makes the base ended without an answer");
    if (m.type == MSG_ERROR)
        return boxd_words(m.value < 0 ? m.value : -EIO, "%s", m.text);
    if (m.type == MSG_PID) {
        r = map_ids("newuidmap", (pid_t)m.value, geteuid(), h->ids[0]);
        if (r == 0)
            r = map_ids("newgidmap", (pid_t)m.value, getegid(), h->ids[1]);
        return r < 0 ? r : msg_simple(control, MSG_GO, 0);
    }
    h->user = fds[0];
    h->mnt = fds[1];
    if (m.type != MSG_NS || h->user < 0 || h->mnt < 0)
        return boxd_words(-EPROTO, "the helper that makes the base gave a wrong answer");
    h->view = m.value & NS_VIEW;
    h->plain = m.value & NS_PLAIN;
    if (h->view) {
        r = start_view(h, fds[2]);
        close_keep_errno(fds[2]);
    }
    return r < 0 ? r : 1;
}

static int make_base(struct host *h)
{
    _cleanup_(spawn_clear) struct spawn s;
    _cleanup_close_ int control = -1;
    pid_t pid;
    int r;

    spawn_init(&s);
    spawn_str(&s, "state", h->state);
    spawn_num(&s, "root", h->kind == HOST_ROOT);
    spawn_num(&s, "single", h->kind == HOST_USER_SINGLE);
    spawn_num(&s, "plain", h->kind == HOST_ROOT && h->allow_privileged);
    spawn_num(&s, "view", h->force_view || h->kind != HOST_ROOT);
    r = spawn_run(h, &s, "base", &pid, &control);
    if (r < 0)
        return r;
    do {
        r = base_message(h, control);
    } while (r == 0);
    control = close_keep_errno(control);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r < 0 ? r : 0;
}

int host_base_ready(struct host *h)
{
    int r;

    if (!h->base_lost)
        return 0;
    h->user = close_keep_errno(h->user);
    h->mnt = close_keep_errno(h->mnt);
    r = make_base(h);
    h->base_lost = r < 0;
    return r;
}

/* ---- life -------------------------------------------------------------------------------------
 */

static void host_free(struct host *h)
{
    cgroup_close(h);
    close_keep_errno(h->self);
    close_keep_errno(h->null);
    close_keep_errno(h->user);
    close_keep_errno(h->mnt);
    free(h->libexec);
    free(h->state);
    free(h);
}
DEFINE_CLEANUP(struct host, host_free);

static int state_dirs(struct host *h)
{
    static const char *const dirs[] = { "machines", "layers", "images", "unpacked" };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        _cleanup_free_ char *path = strf("%s/%s", h->state, dirs[i]);

        if (!path)
            return -ENOMEM;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return boxd_words(-errno, "cannot make '%s': %m", path);
    }
    return 0;
}

int host_open(uv_loop_t *loop, const struct host_options *o, struct host **out)
{
    _cleanup_(cleanup_host_freep) struct host *h = calloc(1, sizeof *h);
    int r;

    if (!h)
        return -ENOMEM;
    h->loop = loop;
    h->self = h->user = h->mnt = h->view_child.pidfd = -1;
    h->exec_pid_namespace = o->exec_pid_namespace;
    h->allow_privileged = o->allow_privileged;
    h->force_view = o->force_view;
    list_init(&h->machines);
    list_init(&h->dying);
    list_init(&h->jobs);
    list_init(&h->builds);
    h->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (h->null < 0)
        return boxd_words(-errno, "cannot open '/dev/null': %m");
    h->state = strdup(o->state_dir);
    r = h->state ? own_directory(&h->libexec) : -ENOMEM;
    if (r == 0)
        r = state_dirs(h);
    if (r == 0)
        r = seal_helper(h);
    if (r < 0)
        return r;
    find_kind(h, o->force_single);
    cgroup_open(h);
    r = make_base(h);
    if (r < 0)
        return r;
    *out = steal_ptr(h);
    return 0;
}

static void close_late(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static void timer_gone(uv_handle_t *timer)
{
    *(bool *)timer->data = true;
}

static void view_closed(struct child *c)
{
    container_of(c, struct host, view_child)->view = false;
}

/* Runs the loop until everything of ours has been reaped; false when something does not die. */
static bool wait_dead(struct host *h)
{
    uv_timer_t timer;
    bool late = false, gone = false;

    if (uv_timer_init(h->loop, &timer) < 0)
        return false;
    timer.data = &late;
    uv_timer_start(&timer, close_late, CLOSE_MS, 0);
    while (!late && (!list_empty(&h->dying) || !list_empty(&h->jobs) || h->view))
        uv_run(h->loop, UV_RUN_ONCE);
    timer.data = &gone;
    uv_close((uv_handle_t *)&timer, timer_gone);
    while (!gone)
        uv_run(h->loop, UV_RUN_ONCE);
    return !late;
}

void host_close(struct host *h)
{
    if (!h)
        return;
    h->closing = true;
    while (!list_empty(&h->machines))
        host_machine_free(container_of(h->machines.next, struct host_machine, link));
    list_each(l, &h->jobs) job_cancel(container_of(l, struct job, link));
    build_drop_all(h);
    if (h->view_child.pid) {
        h->view_child.closed = view_closed;
        uv_ref((uv_handle_t *)&h->view_child.poll);
        kill(h->view_child.pid, SIGKILL);
    } else {
        h->view = false;
    }
    if (wait_dead(h))
        host_free(h);
    else /* callbacks may still come: its memory has to stay */
        boxd_log(BOXD_LOG_ERROR, "some processes of machines do not die");
}

void host_delete(struct host *h, const char *id, host_done *done, void *arg)
{
    _cleanup_(spawn_clear) struct spawn s;
    int r;

    machine_settle(h, id);
    spawn_init(&s);
    host_spawn_base(h, &s);
    spawn_str(&s, "id", id);
    r = job_start(h, &s, "delete", done, arg, NULL);
    if (r < 0)
        host_defer(h, r, done, arg);
}
