/* fs/attach.c: puts the mount on its mount point and takes it off: as root with mount(2), as an
 * ordinary user through fusermount3. Own code instead of libfuse's, whose failures go to stderr in
 * several lines. Everything here may block; nothing here needs the loop. */
#include "fs.h"

#include "commands.h"
#include "mount.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TYPE "fuse.boxdfs"
#define HUNG_MS 10000

/* ---- fusermount3 ---- */

static const char *fusermount(void)
{
    static const char *const places[] = { "/usr/bin/fusermount3", "/bin/fusermount3",
                                          "/usr/local/bin/fusermount3" };

    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (!access(places[i], X_OK))
            return places[i];
    return NULL;
}

/* Starts fusermount3; its errors go into *errors (a pipe to read). Returns its pid. */
static pid_t fusermount_start(char *const argv[], int comm, int *errors)
{
    const char *program = fusermount();
    int p[2];
    pid_t pid;

    if (!program)
        return boxd_words(-ENOENT, "fusermount3 is missing: install the package fuse3");
    if (pipe2(p, O_CLOEXEC) < 0)
        return boxd_words(-errno, "cannot start fusermount3: %s", strerror(errno));
    pid = fork();
    if (pid == 0) {
        char number[16];

        snprintf(number, sizeof number, "%d", comm);
        if (dup2(p[1], STDERR_FILENO) < 0 || (comm >= 0 && fcntl(comm, F_SETFD, 0) < 0) ||
            setenv("_FUSE_COMMFD", number, 1) < 0)
            _exit(127);
        execv(program, argv);
        _exit(127);
    }
    close(p[1]);
    if (pid < 0) {
        close(p[0]);
        return boxd_words(-errno, "cannot start fusermount3: %s", strerror(errno));
    }
    *errors = p[0];
    return pid;
}

/* Waits for it. Its words, cut to one line, become ours. */
static int fusermount_wait(pid_t pid, int errors)
{
    char text[512];
    size_t n = 0;
    ssize_t k;
    int status;
    char *words;

    while (n < sizeof text - 1 && (k = read(errors, text + n, sizeof text - 1 - n)) != 0) {
        if (k < 0 && errno != EINTR)
            break;
        n += k > 0 ? (size_t)k : 0;
    }
    close(errors);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return boxd_words(-errno, "cannot wait for fusermount3: %s", strerror(errno));
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    words = strchr(text, ':');
    return boxd_words(-EPERM, "fusermount3 refused: %s", words ? words + 2 : "it gave no reason");
}

/* The descriptor of /dev/fuse that fusermount3 sends. */
static int receive_fd(int sock)
{
    char byte, control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
    };
    struct cmsghdr *c;
    ssize_t n;
    int fd;

    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof fd))
        return -EIO;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* ---- options as the kernel and fusermount3 want them ---- */

static const char *source_of(const struct options *o)
{
    return o->fsname ? o->fsname : o->local ? "local" : "boxd";
}

/* A value in a list: commas and backslashes are escaped. */
static int add_escaped(struct buf *b, const char *s)
{
    int r = 0;

    for (; *s && r >= 0; s++) {
        if (*s == ',' || *s == '\\')
            r = buf_addch(b, '\\');
        if (r >= 0)
            r = buf_addch(b, *s);
    }
    return r;
}

static int add_access(struct buf *b, const struct options *o)
{
    int r = o->default_permissions ? buf_addstr(b, ",default_permissions") : 0;

    return r >= 0 && o->allow_other ? buf_addstr(b, ",allow_other") : r;
}

static int attach_as_user(const struct options *o)
{
    _cleanup_buf_ struct buf list = { 0 };
    _cleanup_close_ int ours = -1, theirs = -1;
    char *argv[] = { (char *)"fusermount3", (char *)"-o", NULL, (char *)"--", NULL, NULL };
    int sock[2], errors, fd, r;
    pid_t pid;

    if (buf_addstr(&list, "nosuid,nodev,subtype=boxdfs,fsname=") < 0 ||
        add_escaped(&list, source_of(o)) < 0 || add_access(&list, o) < 0)
        return -ENOMEM;
    argv[2] = list.data;
    argv[4] = o->mount_point;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) < 0)
        return boxd_words(-errno, "cannot talk to fusermount3: %s", strerror(errno));
    ours = sock[0];
    theirs = sock[1];
    pid = fusermount_start(argv, theirs, &errors);
    if (pid < 0)
        return pid;
    close(steal_fd(&theirs));
    fd = receive_fd(ours);
    r = fusermount_wait(pid, errors);
    if (r < 0 || fd < 0) {
        close_keep_errno(fd);
        return r < 0 ? r : boxd_words(-EIO, "fusermount3 gave no descriptor");
    }
    return fd;
}

static int attach_as_root(const struct options *o)
{
    _cleanup_buf_ struct buf data = { 0 };
    _cleanup_close_ int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    int r;

    if (fd < 0)
        return boxd_words(-errno, "cannot open /dev/fuse: %s", strerror(errno));
    r = buf_addf(&data, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd, getuid(), getgid());
    if (r < 0 || (r = add_access(&data, o)) < 0)
        return r;
    if (mount(source_of(o), o->mount_point, TYPE, MS_NOSUID | MS_NODEV, data.data) < 0)
        return boxd_words(-errno, "cannot mount on '%s': %s", o->mount_point, strerror(errno));
    return steal_fd(&fd);
}

int mount_attach(const struct options *o)
{
    return geteuid() == 0 ? attach_as_root(o) : attach_as_user(o);
}

int mount_able(void)
{
    int fd;

    if (access("/dev/fuse", F_OK) < 0)
        return boxd_words(-ENODEV, "/dev/fuse is missing: load the kernel module with 'modprobe "
                                   "fuse' (in a container: start it with --device /dev/fuse)");
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return boxd_words(-errno, "cannot open /dev/fuse: %s (as root: chmod 666 /dev/fuse)",
                          strerror(errno));
    close(fd);
    if (geteuid() != 0 && !fusermount())
        return boxd_words(-ENOENT, "fusermount3 is missing: install the package fuse3");
    return 0;
}

int mount_detach(const char *path, bool lazy)
{
    char *argv[] = { (char *)"fusermount3", (char *)(lazy ? "-uz" : "-u"), (char *)"--",
                     (char *)path, NULL };
    int errors;
    pid_t pid;

    if (geteuid() == 0) {
        if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0)
            return boxd_words(-errno, "cannot unmount '%s': %s", path, strerror(errno));
        return 0;
    }
    pid = fusermount_start(argv, -1, &errors);
    return pid < 0 ? pid : fusermount_wait(pid, errors);
}

/* ---- dead mounts ---- */

/* Looks at `path` in a child, because a hung mount would hold us. 0, the errno of stat(2), or
 * ETIMEDOUT. */
static int probe(const char *path)
{
    int p[2], status = 0, error = ETIMEDOUT;
    struct pollfd pfd;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return errno;
    pid = fork();
    if (pid == 0) {
        struct stat st;

        error = stat(path, &st) < 0 ? errno : 0;
        _exit(write(p[1], &error, sizeof error) != sizeof error);
    }
    close(p[1]);
    pfd = (struct pollfd){ .fd = p[0], .events = POLLIN };
    if (pid > 0 && poll(&pfd, 1, HUNG_MS) == 1 && read(p[0], &error, sizeof error) != sizeof error)
        error = EIO;
    close(p[0]);
    if (pid > 0 && error == ETIMEDOUT)
        kill(pid, SIGKILL); /* it goes as soon as the mount is taken away; init buries it */
    else if (pid > 0)
        waitpid(pid, &status, 0);
    return error;
}

bool mount_dead(const char *path)
{
    int error = probe(path);

    return error == ENOTCONN || error == ETIMEDOUT || error == ECONNABORTED;
}

int mount_recover(const char *path)
{
    int r;

    if (geteuid() != 0)
        return mount_detach(path, true);
    /* Frees the callers of a daemon that died inside a notification; then the mount can go. */
    umount2(path, MNT_FORCE | UMOUNT_NOFOLLOW);
    r = mount_detach(path, true);
    return r == -EINVAL ? 0 : r; /* the first one took it away */
}

/* ---- the mount point ---- */

/* Absolute and without links, but without looking at the last component: it may hang. */
static int resolve(const char *path, char **out)
{
    _cleanup_free_ char *copy = strdup(path), *parent = NULL;
    size_t n = copy ? strlen(copy) : 0;
    char *slash, *name;

    if (!copy)
        return -ENOMEM;
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = '\0';
    slash = strrchr(copy, '/');
    name = slash ? slash + 1 : copy;
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) {
        *out = realpath(copy, NULL);
        return *out ? 0 : -errno;
    }
    if (slash)
        *slash = '\0';
    parent = realpath(!slash ? "." : *copy ? copy : "/", NULL);
    if (!parent)
        return -errno;
    *out = strf("%s/%s", strcmp(parent, "/") ? parent : "", name);
    return *out ? 0 : -ENOMEM;
}

int mount_path(const char *path, char **out)
{
    int r = resolve(path, out);

    return r < 0 ? boxd_words(r, "'%s': %s", path, strerror(-r)) : 0;
}

/* The mount that covers `path`, if any: a dead one of ours is taken away. */
static int uncover(const char *path)
{
    for (int tries = 0; tries < 8; tries++) {
        _cleanup_free_ char *type = NULL;
        int r = mounts_type(path, &type);

        if (r < 0 || !type)
            return r;
        if (strcmp(type, TYPE))
            return boxd_words(-EBUSY,
                              "mount point '%s' is busy: a file system of type %s is "
                              "mounted there (choose an empty directory)",
                              path, type);
        if (!mount_dead(path))
            return boxd_words(-EBUSY,
                              "'%s' is a boxdfs mount already (end it with: boxdfs umount "
                              "%s)",
                              path, path);
        r = mount_recover(path);
        if (r < 0)
            return r;
    }
    return boxd_words(-EBUSY, "'%s' is still covered by a dead mount", path);
}

static int is_empty(const char *path)
{
    _cleanup_closedir_ DIR *d = opendir(path);
    struct dirent *e;

    if (!d)
        return boxd_words(-errno, "cannot read mount point '%s': %s", path, strerror(errno));
    while ((e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            return boxd_words(-ENOTEMPTY,
                              "mount point '%s' is not empty (choose an empty "
                              "directory)",
                              path);
    return 0;
}

int mount_point_check(struct options *o)
{
    _cleanup_free_ char *path = NULL;
    struct stat st;
    int r = mount_path(o->mount_point, &path);

    if (r >= 0)
        r = uncover(path);
    if (r < 0)
        return r;
    free(o->mount_point);
    o->mount_point = realpath(path, NULL);
    if (!o->mount_point && errno == ENOENT)
        return boxd_words(-ENOENT, "mount point '%s' does not exist (make it with: mkdir %s)", path,
                          path);
    if (!o->mount_point || stat(o->mount_point, &st) < 0)
        return boxd_words(-errno, "mount point '%s': %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return boxd_words(-ENOTDIR, "mount point '%s' is not a directory", o->mount_point);
    /* A link may lead to another mount. */
    if (strcmp(path, o->mount_point) && (r = uncover(o->mount_point)) < 0)
        return r;
    return is_empty(o->mount_point);
}
