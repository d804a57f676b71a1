/* Control groups, version 1 and 2: the freezer, and limits on memory and processes where they are
 * permitted. Everything is below OURS/boxd-local-PID/ID. Nothing here is needed for a machine to
 * run: without permission there are no limits and freezing is done with signals. */
#include "base/base.h"
#include "base/str.h"
#include "local/internal.h"

#include <boxd/error.h>
#include <boxd/log.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#define PREFIX "boxd-local-"
#define PIDS_MAX "16384"

/* In the order of host.cgroups: version 1 controllers and the unified tree; then those that only
 * privileged machines are in, whose containers make groups below theirs. */
static const char *const controllers[CGROUPS] = {
    "freezer", "memory", "pids", "", "devices", "cpu", "cpuacct", "cpuset", "blkio", "name=systemd",
};
enum { FREEZER, MEMORY, PIDS, UNIFIED, DEVICES, CPUSET = 7, PRIVILEGED = DEVICES };

/* What a privileged machine may open; it may make every node. */
static const char *const devices[] = {
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm" /* null */,
    "c 1:5 rwm" /* zero */,
    "c 1:7 rwm" /* full */,
    "c 1:8 rwm" /* random */,
    "c 1:9 rwm" /* urandom */,
    "c 5:0 rwm" /* tty */,
    "c 5:1 rwm" /* console: Docker gives it to every container, or fails */,
    "c 5:2 rwm" /* ptmx */,
    "c 136:* rwm" /* pts */,
    "c 10:229 rwm" /* fuse */,
    "c 10:200 rwm" /* net/tun */,
};

static int put(const char *dir, const char *file, const char *text)
{
    _cleanup_free_ char *path = strf("%s/%s", dir, file);
    _cleanup_close_ int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
    size_t n = strlen(text);

    if (fd < 0)
        return -errno;
    return write(fd, text, n) == (ssize_t)n ? 0 : -errno;
}

/* The devices of all privileged machines: of the group above theirs, which they cannot change. */
static int allow_devices(const char *dir)
{
    int r = put(dir, "devices.deny", "a");

    for (size_t i = 0; i < ARRAY_LEN(devices) && r == 0; i++)
        r = put(dir, "devices.allow", devices[i]);
    return r;
}

/* A new cpuset is empty, and nobody can join it. */
static int inherit(const char *parent, const char *dir)
{
    static const char *const files[] = { "cpuset.cpus", "cpuset.mems" };
    char text[4096];

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        _cleanup_free_ char *path = strf("%s/%s", parent, files[i]);
        _cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        int r;

        if (n < 0)
            return -errno;
        text[n] = '\0';
        r = put(dir, files[i], text);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The unified tree is for computers that have no version 1 freezer. */
static bool wanted(const struct host *h, size_t i)
{
    if (i == UNIFIED)
        return !h->cgroups[FREEZER];
    return i < PRIVILEGED || (h->allow_privileged && h->kind == HOST_ROOT);
}

/* Our own group in the hierarchy whose line in /proc/self/cgroup has this list of controllers. */
static char *own_group(const char *controller)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4096];

    while (f && fgets(line, sizeof line, f)) {
        char *at = line, *name;

        strsep(&at, ":");
        name = strsep(&at, ":");
        if (!name || !at)
            continue;
        at[strcspn(at, "\n")] = '\0';
        if (!*controller && !*name)
            return strdup(at);
        for (char *c; *controller && (c = strsep(&name, ","));)
            if (!strcmp(c, controller))
                return strdup(at);
    }
    return NULL;
}

/* Where a hierarchy is mounted: "cgroup" with the controller among its options, or "cgroup2". */
static char *mount_point(const char *controller)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/mounts", "re");
    char line[4096];

    while (f && fgets(line, sizeof line, f)) {
        char *at = line, *dir, *type, *options, *o;

        strsep(&at, " ");
        dir = strsep(&at, " ");
        type = strsep(&at, " ");
        options = strsep(&at, " ");
        if (!options || strcmp(type, *controller ? "cgroup" : "cgroup2") != 0)
            continue;
        if (!*controller)
            return strdup(dir);
        while ((o = strsep(&options, ",")))
            if (!strcmp(o, controller))
                return strdup(dir);
    }
    return NULL;
}

static void walk_groups(const char *dir, void (*each)(const char *dir))
{
    _cleanup_closedir_ DIR *d = opendir(dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        _cleanup_free_ char *path = strf("%s/%s", dir, e->d_name);

        if (path && e->d_type == DT_DIR && e->d_name[0] != '.')
            walk_groups(path, each);
    }
    each(dir);
}

static void thaw_group(const char *dir)
{
    put(dir, "freezer.state", "THAWED");
    put(dir, "cgroup.freeze", "0");
}

static void drop_group(const char *dir)
{
    rmdir(dir); /* busy: what still ends there belongs to us, and host_close() comes again */
}

/* Kills what a dead server left in a group (frozen processes outlive it) and removes it. */
static void empty_group(const char *dir)
{
    _cleanup_free_ char *path = strf("%s/cgroup.procs", dir);
    FILE *f = path ? fopen(path, "re") : NULL;
    int pid;

    while (f && fscanf(f, "%d", &pid) == 1)
        if (pid > 1)
            kill(pid, SIGKILL);
    if (f)
        fclose(f);
    for (int i = 0; i < 50 && rmdir(dir) < 0 && errno == EBUSY; i++)
        poll(NULL, 0, 5);
}

static void remove_groups(const char *dir)
{
    walk_groups(dir, thaw_group);
    walk_groups(dir, empty_group);
}

/* Groups of servers that no longer run. */
static void remove_stale(const char *parent)
{
    _cleanup_closedir_ DIR *d = opendir(parent);
    struct dirent *e;
    uint64_t pid;

    while (d && (e = readdir(d))) {
        _cleanup_free_ char *path = NULL;

        if (!starts_with(e->d_name, PREFIX) ||
            parse_u64(e->d_name + strlen(PREFIX), INT32_MAX, &pid) < 0 ||
            ((pid_t)pid != getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH)))
            continue;
        path = strf("%s/%s", parent, e->d_name);
        if (path)
            remove_groups(path);
    }
}

/* Our place in a hierarchy, freed from groups of dead servers; NULL where there is no such one. */
static char *open_parent(const char *controller)
{
    _cleanup_free_ char *mnt = mount_point(controller), *own = own_group(controller);
    char *parent = mnt && own ? strf("%s%s", mnt, strcmp(own, "/") ? own : "") : NULL;

    if (parent)
        remove_stale(parent);
    return parent;
}

static void open_group(struct host *h, size_t i)
{
    _cleanup_free_ char *parent = open_parent(controllers[i]), *dir = NULL;

    if (!parent || !wanted(h, i))
        return;
    dir = strf("%s/" PREFIX "%d", parent, (int)getpid());
    if (!dir || (mkdir(dir, 0755) < 0 && errno != EEXIST))
        return;
    if (i == UNIFIED) { /* refused where processes are in the parent: no limits then */
        put(parent, "cgroup.subtree_control", "+memory");
        put(parent, "cgroup.subtree_control", "+pids");
        put(dir, "cgroup.subtree_control", "+memory");
        put(dir, "cgroup.subtree_control", "+pids");
    }
    if ((i == DEVICES && allow_devices(dir) < 0) || (i == CPUSET && inherit(parent, dir) < 0)) {
        rmdir(dir);
        return;
    }
    h->cgroups[i] = steal_ptr(dir);
}

void cgroup_open(struct host *h)
{
    for (size_t i = 0; i < CGROUPS; i++)
        open_group(h, i);
}

void cgroup_close(struct host *h)
{
    for (size_t i = 0; i < CGROUPS; i++) {
        if (h->cgroups[i])
            remove_groups(h->cgroups[i]);
        free(h->cgroups[i]);
        h->cgroups[i] = NULL;
    }
}

static void set_limits(struct host *h, size_t i, const char *dir, uint64_t memory)
{
    char bytes[32];

    snprintf(bytes, sizeof bytes, "%" PRIu64, memory);
    if (memory && i == MEMORY)
        put(dir, "memory.limit_in_bytes", bytes);
    if (memory && i == UNIFIED)
        put(dir, "memory.max", bytes);
    if (i == PIDS || i == UNIFIED)
        put(dir, "pids.max", PIDS_MAX);
}

int cgroup_make(struct host *h, const struct host_spec *spec, int fds[CGROUPS])
{
    for (size_t i = 0; i < CGROUPS; i++) {
        bool wants = h->cgroups[i] && (spec->privileged || i < PRIVILEGED);
        _cleanup_free_ char *dir = wants ? strf("%s/%s", h->cgroups[i], spec->id) : NULL;
        _cleanup_free_ char *procs = dir ? strf("%s/cgroup.procs", dir) : NULL;

        fds[i] = -1;
        if (!procs || (mkdir(dir, 0755) < 0 && errno != EEXIST))
            continue;
        set_limits(h, i, dir, spec->memory_bytes);
        if (i == CPUSET && inherit(h->cgroups[i], dir) < 0)
            continue;
        fds[i] = open(procs, O_WRONLY | O_CLOEXEC);
    }
    if (spec->privileged && fds[DEVICES] < 0)
        return boxd_words(-EOPNOTSUPP, "privileged machines cannot be made here: there is no "
                                       "version 1 control group 'devices' to keep them from this "
                                       "computer's disks");
    return 0;
}

const char *cgroup_name(size_t i)
{
    return controllers[i];
}

static void walk_machine(struct host *h, const char *id, void (*each)(const char *dir))
{
    for (size_t i = 0; i < CGROUPS; i++) {
        _cleanup_free_ char *dir = h->cgroups[i] ? strf("%s/%s", h->cgroups[i], id) : NULL;

        if (dir)
            walk_groups(dir, each);
    }
}

void cgroup_remove(struct host *h, const char *id)
{
    walk_machine(h, id, drop_group);
}

void cgroup_thaw_all(struct host *h, const char *id)
{
    walk_machine(h, id, thaw_group);
}

/* Waits until the version 1 freezer says so: it works through the processes one by one. */
static int freeze_v1(const char *dir, bool frozen)
{
    const char *want = frozen ? "FROZEN" : "THAWED";
    _cleanup_free_ char *path = strf("%s/freezer.state", dir);
    char state[32] = "";
    int r;

    if (!path)
        return -ENOMEM;
    r = put(dir, "freezer.state", want);
    for (int i = 0; r == 0 && i < 200; i++) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, state, sizeof state - 1);

        if (n < 0)
            return -errno;
        state[n] = '\0';
        if (starts_with(state, want))
            return 0;
        poll(NULL, 0, 1);
        r = put(dir, "freezer.state", want);
    }
    return r < 0 ? boxd_words(r, "cannot write '%s': %m", path)
                 : boxd_words(-EBUSY, "the machine's processes cannot be frozen now (try again)");
}

int cgroup_open_thaw(struct host *h, const char *id)
{
    _cleanup_free_ char *path =
        h->cgroups[FREEZER] ? strf("%s/%s/freezer.state", h->cgroups[FREEZER], id) : NULL;

    return path ? open(path, O_WRONLY | O_CLOEXEC) : -1;
}

int cgroup_freeze(struct host *h, const char *id, bool frozen)
{
    size_t i = h->cgroups[FREEZER] ? FREEZER : UNIFIED;
    _cleanup_free_ char *dir = h->cgroups[i] ? strf("%s/%s", h->cgroups[i], id) : NULL;
    int r;

    if (!dir || access(dir, F_OK) < 0)
        return -EOPNOTSUPP;
    if (i == FREEZER)
        return freeze_v1(dir, frozen);
    r = put(dir, "cgroup.freeze", frozen ? "1" : "0");
    return r == -ENOENT ? -EOPNOTSUPP : r;
}
