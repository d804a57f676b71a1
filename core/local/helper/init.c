/* A machine's init: mounts what every machine has, takes the merged tree as its root, and then, as
 * a fresh program without environment or open files, only reaps. */
#include "base/base.h"
#include "base/buf.h"
#include "base/str.h"
#include "helper/helper.h"
#include "helper/sys.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Mounts by names relative to the new root, so that /proc/mounts shows no path of this computer. */
static const struct {
    const char *type, *target;
    unsigned long flags;
    const char *data;
    bool may_fail;
} mounts[] = {
    { "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false },
    { "sysfs", "sys", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true },
    { "tmpfs", "dev", MS_NOSUID, "mode=755,size=1m", false },
    { "tmpfs", "run", MS_NOSUID | MS_NODEV, "mode=755,size=128m", false },
};

static const struct {
    const char *name;
    unsigned major, minor;
} devices[] = {
    { "null", 1, 3 },   { "zero", 1, 5 },    { "full", 1, 7 },
    { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

static const struct {
    const char *target, *name;
} links[] = {
    { "pts/ptmx", "dev/ptmx" }, { "/proc/self/fd", "dev/fd" }, { "fd/0", "dev/stdin" },
    { "fd/1", "dev/stdout" },   { "fd/2", "dev/stderr" },
};

/* Whether a list with commas has this member. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strcspn(p, ",") == n && !memcmp(p, word, n))
            return true;
    return false;
}

/* Shows one device of this computer under dev/. */
static int bind_device(const char *from, const char *name)
{
    char to[32];
    int fd;

    snprintf(to, sizeof to, "dev/%s", name);
    fd = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    close(fd);
    if (mount(from, to, NULL, MS_BIND, NULL) < 0)
        return boxd_words(-errno, "cannot show '%s' in the machine: %m", from);
    return 0;
}

/* FUSE works inside only with a node that the machine may open: root has made one (a detached mount
 * of it is in `node`), an ordinary user depends on this computer's. */
static int bind_fuse(int node)
{
    struct stat st;
    int fd;

    if (node < 0)
        return stat("/dev/fuse", &st) == 0 && (st.st_mode & 06) == 06
                   ? bind_device("/dev/fuse", "fuse")
                   : 0;
    fd = open("dev/fuse", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return -errno;
    close(fd);
    if (sys_move_mount(node, "", AT_FDCWD, "dev/fuse", SYS_MOVE_FROM_EMPTY) < 0)
        return boxd_words(-errno, "cannot show FUSE in the machine: %m");
    return 0;
}

/* A privileged machine's own node: the mode of a bound one would be this computer's. */
static int make_device(const char *name, unsigned major, unsigned minor)
{
    char path[32];

    snprintf(path, sizeof path, "dev/%s", name);
    if (mknod(path, S_IFCHR | 0666, makedev(major, minor)) < 0 || chmod(path, 0666) < 0)
        return boxd_words(-errno, "cannot make the machine's '%s': %m", path);
    return 0;
}

static int make_devices(const struct spec *s, int fuse)
{
    bool privileged = spec_num(s, "privileged", 0);
    char from[32];
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(devices) && r == 0; i++) {
        snprintf(from, sizeof from, "/dev/%s", devices[i].name);
        r = privileged ? make_device(devices[i].name, devices[i].major, devices[i].minor)
                       : bind_device(from, devices[i].name);
    }
    if (r == 0 && !privileged)
        return bind_fuse(fuse);
    if (r == 0 && mkdir("dev/net", 0755) < 0)
        r = -errno;
    if (r == 0)
        r = make_device("net/tun", 10, 200);
    return r < 0 ? r : make_device("fuse", 10, 229);
}

static int mount_dev(const struct spec *s, int fuse)
{
    bool single = spec_num(s, "single", 0);
    int r = make_devices(s, fuse);

    for (size_t i = 0; i < ARRAY_LEN(links) && r == 0; i++)
        r = symlink(links[i].target, links[i].name) < 0 ? -errno : 0;
    if (r < 0)
        return r;
    if (mkdir("dev/pts", 0755) < 0 || mkdir("dev/shm", 0755) < 0)
        return -errno;
    if (mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              single ? "newinstance,ptmxmode=0666,mode=620"
                     : "newinstance,ptmxmode=0666,mode=620,gid=5") < 0)
        return boxd_words(-errno, "cannot mount the machine's terminals: %m");
    if (mount("shm", "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=512m") < 0)
        return boxd_words(-errno, "cannot mount the machine's /dev/shm: %m");
    return 0;
}

/* The control groups of a privileged machine for Docker inside, each hierarchy under the names of
 * its controllers; the machine's own group is the top, being that of its cgroup namespace. */
static int mount_cgroups(const struct spec *s)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
    _cleanup_free_ const char **ours = spec_all(s, "cgroup");
    char line[4096], dir[300], options[300];

    if (!f || !ours)
        return -errno;
    if (mount("tmpfs", "sys/fs/cgroup", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "mode=755,size=64k") < 0)
        return boxd_words(-errno, "cannot mount the machine's /sys/fs/cgroup: %m");
    while (fgets(line, sizeof line, f)) {
        char *at = line, *number = strsep(&at, ":"), *name = strsep(&at, ":");
        bool named, is_ours = false;

        if (!number || !name)
            continue;
        for (size_t i = 0; ours[i]; i++)
            is_ours |= *name && has_word(name, ours[i]);
        if (!is_ours)
            continue;
        named = starts_with(name, "name=");
        snprintf(dir, sizeof dir, "sys/fs/cgroup/%s", name + (named ? strlen("name=") : 0));
        snprintf(options, sizeof options, "%s%s", named ? "none," : "", name);
        if (mkdir(dir, 0755) < 0 ||
            mount("cgroup", dir, "cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0)
            return boxd_words(-errno, "cannot mount the machine's control groups '%s': %m", name);
    }
    return 0;
}

/* The directory of Docker's files, inside the machine's root: no link there leads out of it. */
static int mount_docker(int tree)
{
    static const char *const dirs[] = { "/var", "/var/lib", "/var/lib/docker" };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdir(dirs[i], 0755) < 0 && errno != EEXIST)
            return boxd_words(-errno, "cannot make '%s' in the machine: %m", dirs[i]);
    if (sys_move_mount(tree, "", AT_FDCWD, "/var/lib/docker", SYS_MOVE_FROM_EMPTY) < 0)
        return boxd_words(-errno, "cannot mount the machine's /var/lib/docker: %m");
    return 0;
}

static int loopback_up(void)
{
    struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    _cleanup_close_ int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (s < 0)
        return -errno == -EAFNOSUPPORT ? 0 : -errno;
    if (ioctl(s, SIOCSIFFLAGS, &ifr) < 0)
        return boxd_words(-errno, "cannot bring up the loopback interface: %m");
    return 0;
}

/* Replaces a small file of the machine's /etc, following no link. */
static int put_file(const char *path, const char *text, size_t n, int flags)
{
    _cleanup_close_ int fd = open(
        path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags, 0644);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -EINVAL;
    return write(fd, text, n) == (ssize_t)n ? 0 : -EIO;
}

/* Whether the text has the name as a word of a line that is no comment. */
static bool hosts_name(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = strstr(text, name); p; p = strstr(p + 1, name)) {
        const char *line = p;

        while (line > text && line[-1] != '\n' && line[-1] != '#')
            line--;
        if (p > line && (p[-1] == ' ' || p[-1] == '\t') && strchr(" \t\n", p[n]) &&
            (line == text || line[-1] == '\n'))
            return true;
    }
    return false;
}

/* A name that cannot be resolved makes sudo wait for a name server. What the machine did to its
 * /etc is its own affair: nothing here stops the start. */
static void name_machine(const char *name)
{
    char text[8192] = "";
    _cleanup_free_ char *line = strf("127.0.1.1\t%s\n", name);
    _cleanup_free_ char *file = strf("%s\n", name);
    int fd = open("/etc/hosts", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (line && !hosts_name(text, name)) {
        if (fd < 0 && errno == ENOENT)
            put_file("/etc/hosts", "127.0.0.1\tlocalhost\n", 20, O_TRUNC);
        put_file("/etc/hosts", line, strlen(line), O_APPEND);
    }
    if (file)
        put_file("/etc/hostname", file, strlen(file), O_TRUNC);
}

/* Takes a mount of the working directory's own tree, which can become a root. */
static int own_root(void)
{
    _cleanup_close_ int tree =
        sys_open_tree(AT_FDCWD, "", SYS_OPEN_TREE_CLONE | AT_EMPTY_PATH | O_CLOEXEC);

    if (tree < 0 ||
        sys_move_mount(tree, "", AT_FDCWD, "", SYS_MOVE_FROM_EMPTY | SYS_MOVE_TO_EMPTY) < 0 ||
        fchdir(tree) < 0)
        return boxd_words(-errno, "cannot take the machine's root: %m");
    return 0;
}

/* What every machine has; writes into a privileged one's /sys are its containers' networks. */
static int mount_all(const struct spec *s)
{
    unsigned long writable = spec_num(s, "privileged", 0) ? MS_RDONLY : 0;
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(mounts) && r == 0; i++) {
        if (mkdir(mounts[i].target, 0755) < 0 && errno != EEXIST)
            r = -errno;
        if (r == 0 &&
            mount(mounts[i].type, mounts[i].target, mounts[i].type, mounts[i].flags & ~writable,
                  mounts[i].data) < 0 &&
            !mounts[i].may_fail)
            r = boxd_words(-errno, "cannot mount the machine's /%s: %m", mounts[i].target);
    }
    return r;
}

int machine_setup(const struct spec *s, const struct detached *d)
{
    bool privileged = spec_num(s, "privileged", 0);
    const char *name = spec_get(s, "hostname");
    int r;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return boxd_words(-errno, "cannot make the machine's mounts private: %m");
    r = own_root();
    if (r == 0)
        r = mount_all(s);
    if (r == 0 && privileged)
        r = mount_cgroups(s);
    if (r == 0)
        r = mount_dev(s, d->fuse);
    if (r == 0)
        r = loopback_up();
    if (r < 0)
        return r;
    if (sethostname(name, strlen(name)) < 0)
        return boxd_words(-errno, "cannot set host name '%s': %m", name);
    if (sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return boxd_words(-errno, "cannot change to the machine's root: %m");
    umask(0);
    r = mkdir("/run/lock", 01777) < 0 ? -errno : 0;
    umask(022);
    if (r == 0 && privileged)
        r = mount_docker(d->docker);
    name_machine(name);
    return r;
}

/* Descriptor 3 is the server's socket; it is closed before anybody else can run here. */
_Noreturn void init_main(void)
{
    struct msg m = { .type = MSG_READY };
    int pts, null;

    prctl(PR_SET_NAME, "init");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getpid() != 1)
        _exit(1);
    signal(SIGCHLD, SIG_IGN); /* the kernel then reaps by itself */
    null = open("/dev/null", O_RDWR);
    pts = open("/dev/pts", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (null < 0 || pts < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        _exit(1);
    /* Fails when the server died before the signal was asked for. */
    if (msg_send(HELPER_CONTROL, &m, &pts, 1) < 0)
        _exit(1);
    sys_close_range(3, ~0U, 0);
    for (;;)
        pause();
}
