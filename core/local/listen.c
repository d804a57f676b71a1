/* local/listen.c: see listen.h. */
#include "base/base.h"

#include "base/str.h"
#include "local/listen.h"
#include <arpa/inet.h>
#include <boxd/error.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 128

/* ---- directories ------------------------------------------------------------------------------
 */

/* mkdir -p; only the last directory must be private. */
static int make_directories(const char *path)
{
    _cleanup_free_ char *copy = strdup(path);

    if (!copy)
        return -ENOMEM;
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return boxd_words(-errno, "cannot create directory '%s': %m", copy);
        *p = '/';
    }
    if (mkdir(copy, 0700) < 0 && errno != EEXIST)
        return boxd_words(-errno, "cannot create directory '%s': %m", copy);
    return 0;
}

static int check_private(const char *dir)
{
    struct stat st;

    if (lstat(dir, &st) < 0)
        return boxd_words(-errno, "cannot look at directory '%s': %m", dir);
    if (!S_ISDIR(st.st_mode))
        return boxd_words(-ENOTDIR, "'%s' is not a directory", dir);
    if (st.st_uid != geteuid())
        return boxd_words(-EACCES,
                          "directory '%s' belongs to user %u: give --state DIR of your own", dir,
                          (unsigned)st.st_uid);
    if (st.st_mode & 077 && chmod(dir, 0700) < 0)
        return boxd_words(-errno, "cannot make directory '%s' private: %m", dir);
    return 0;
}

static int tell_owner(int fd, const char *dir)
{
    char pid[24] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

    pid[n > 0 ? n : 0] = '\0';
    pid[strcspn(pid, "\n")] = '\0';
    return boxd_words(-EBUSY, "state directory '%s' is in use by boxd-local, pid %s", dir,
                      *pid ? pid : "unknown");
}

int state_dir_lock(const char *dir)
{
    _cleanup_free_ char *path = strf("%s/lock", dir);
    _cleanup_close_ int fd = -1;
    char pid[24];
    int n, r = make_directories(dir);

    if (!r)
        r = path ? check_private(dir) : -ENOMEM;
    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return boxd_words(-errno, "cannot open '%s': %m", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? tell_owner(fd, dir)
                                    : boxd_words(-errno, "cannot lock '%s': %m", path);
    n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)n, 0) != n)
        return boxd_words(-errno, "cannot write '%s': %m", path);
    return steal_fd(&fd);
}

/* ---- the unix socket ---------------------------------------------------------------------------
 */

/* Removes a socket that nobody answers. */
static int clear_place(const struct sockaddr_un *to)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat st;

    if (fd < 0)
        return boxd_words(-errno, "cannot make a socket: %m");
    if (lstat(to->sun_path, &st) < 0)
        return 0; /* bind() says what is wrong */
    if (!S_ISSOCK(st.st_mode))
        return boxd_words(-EEXIST, "'%s' exists and is not a socket: give another --socket",
                          to->sun_path);
    if (!connect(fd, (const struct sockaddr *)to, sizeof(*to)))
        return boxd_words(-EADDRINUSE, "socket '%s' is in use by another server", to->sun_path);
    if (errno != ECONNREFUSED)
        return boxd_words(-errno, "socket '%s' is not usable: %m", to->sun_path);
    if (unlink(to->sun_path) < 0)
        return boxd_words(-errno, "cannot remove dead socket '%s': %m", to->sun_path);
    return 0;
}

int listen_unix(const char *path)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    _cleanup_free_ char *dir = strdup(path);
    _cleanup_close_ int fd = -1;
    mode_t mask;
    int r;

    if (!dir)
        return -ENOMEM;
    if (strlen(path) >= sizeof(to.sun_path))
        return boxd_words(-ENAMETOOLONG, "socket path '%s' is too long: at most %zu bytes", path,
                          sizeof(to.sun_path) - 1);
    memcpy(to.sun_path, path, strlen(path));
    *strrchr(dir, '/') = '\0';
    r = *dir ? make_directories(dir) : 0;
    if (!r)
        r = clear_place(&to);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return boxd_words(-errno, "cannot make a socket: %m");
    mask = umask(0177);
    r = bind(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
    umask(mask);
    if (!r && listen(fd, BACKLOG) < 0)
        r = -errno;
    return r < 0 ? boxd_words(r, "cannot listen on '%s': %s", path, strerror(-r)) : steal_fd(&fd);
}

/* ---- TCP ------------------------------------------------------------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool is_loopback(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static int bad_address(const char *host_port)
{
    return boxd_words(-EINVAL,
                      "address '%s' is not valid: use HOST:PORT with a numeric host, as in "
                      "127.0.0.1:9443",
                      host_port);
}

/* Numeric addresses and "localhost" only: nothing here may wait for a name server. */
static int read_address(const char *host_port, union address *a, socklen_t *len)
{
    const char *colon = strrchr(host_port, ':');
    _cleanup_free_ char *host = NULL;
    uint64_t port;
    size_t n;

    if (!colon || parse_u64(colon + 1, 65535, &port) < 0)
        return bad_address(host_port);
    n = (size_t)(colon - host_port);
    host = n > 2 && host_port[0] == '[' && colon[-1] == ']' ? strndup(host_port + 1, n - 2)
                                                            : strndup(host_port, n);
    if (!host)
        return -ENOMEM;
    *a = (union address){ 0 };
    if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)port);
        *len = sizeof(a->v4);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons((uint16_t)port);
        *len = sizeof(a->v6);
        return 0;
    }
    return bad_address(host_port);
}

static char *print_address(const union address *a)
{
    bool v4 = a->any.sa_family == AF_INET;
    char text[INET6_ADDRSTRLEN];

    if (!inet_ntop(a->any.sa_family, v4 ? (const void *)&a->v4.sin_addr : &a->v6.sin6_addr, text,
                   sizeof(text)))
        return NULL;
    return strf(v4 ? "http://%s:%u" : "http://[%s]:%u", text,
                ntohs(v4 ? a->v4.sin_port : a->v6.sin6_port));
}

int listen_tcp(const char *host_port, bool any, char **address)
{
    _cleanup_close_ int fd = -1;
    union address a;
    socklen_t len;
    int one = 1, r = read_address(host_port, &a, &len);

    if (r < 0)
        return r;
    if (!any && !is_loopback(&a))
        return boxd_words(-EINVAL,
                          "address '%s' is not loopback: everybody who can reach it could try the "
                          "key; give --listen-any to allow it",
                          host_port);
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, &a.any, len) < 0 || listen(fd, BACKLOG) < 0 || getsockname(fd, &a.any, &len) < 0)
        return boxd_words(-errno, "cannot listen on '%s': %m", host_port);
    *address = print_address(&a);
    return *address ? steal_fd(&fd) : -ENOMEM;
}
