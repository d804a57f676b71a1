/* boxd-view: serves this computer's /usr, read-only, to machines that cannot have it idmapped.
 * Only the top-level names of an allow list; a file only when everybody may read it and search
 * every directory above it, whoever asks (the machine's root passes the kernel's own checks).
 *     boxd-view FD KIND PARENT
 * FD: the FUSE device, already mounted. Ends with the mount, or with its parent. */
#define FUSE_USE_VERSION 35
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <grp.h>
#include <linux/openat2.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define TIMEOUT 10.0 /* seconds until a change of this computer's files is seen */
#define PERSONS 1000 /* ids from here on are people's, and nothing of them is shown */
#define BUCKETS 65536
#define NOBODY_ID 0x7ffffff0
#define SHIFT 100000

static const char *const top_names[] = { "usr",   "bin",    "sbin", "lib", "lib32",
                                         "lib64", "libx32", "nix",  "gnu" };

/* A name the kernel knows. */
struct node {
    struct node *parent, *next; /* next: in its bucket */
    uint64_t lookups, children;
    struct timespec mtime; /* as of the last open: what is cached is of this state */
    off_t size;
    ino_t ino;
    char name[];
};

static struct node root = { .lookups = 1 };
static struct node *buckets[BUCKETS];
static int base;
static bool one_id;
static uid_t shift;

static struct node **bucket_of(const struct node *parent, const char *name)
{
    uint64_t hash = (uint64_t)(uintptr_t)parent ^ 0xcbf29ce484222325ULL;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3ULL;
    return &buckets[(hash ^ (hash >> 32)) % BUCKETS];
}

static struct node *node_of(fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? &root : (struct node *)(uintptr_t)ino;
}

/* Finds or makes the node and counts one look-up; NULL: memory ran out. */
static struct node *node_get(struct node *parent, const char *name)
{
    struct node **b = bucket_of(parent, name), *n;
    size_t len = strlen(name) + 1;

    for (n = *b; n; n = n->next)
        if (n->parent == parent && !strcmp(n->name, name)) {
            n->lookups++;
            return n;
        }
    n = calloc(1, sizeof *n + len);
    if (!n)
        return NULL;
    memcpy(n->name, name, len);
    n->parent = parent;
    parent->children++;
    n->lookups = 1;
    n->next = *b;
    *b = n;
    return n;
}

static void node_put(struct node *n, uint64_t lookups)
{
    n->lookups -= lookups < n->lookups ? lookups : n->lookups;
    while (n != &root && !n->lookups && !n->children) {
        struct node *parent = n->parent, **p = bucket_of(parent, n->name);

        while (*p != n)
            p = &(*p)->next;
        *p = n->next;
        parent->children--;
        free(n);
        n = parent;
    }
}

/* The path below /; "." for the root. -ENAMETOOLONG. */
static int path_of(const struct node *n, const char *name, char out[PATH_MAX])
{
    size_t at = PATH_MAX - 1;

    out[at] = '\0';
    while (name || n != &root) {
        const char *part = name ? name : n->name;
        size_t len = strlen(part);

        if (len + 1 > at)
            return -ENAMETOOLONG;
        if (out[at])
            out[--at] = '/';
        at -= len;
        memcpy(out + at, part, len);
        n = name ? n : n->parent;
        name = NULL;
    }
    if (!out[at])
        out[--at] = '.';
    memmove(out, out + at, PATH_MAX - at);
    return 0;
}

static int open_node(const struct node *n, const char *name, int flags)
{
    struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
    char path[PATH_MAX];
    int fd = path_of(n, name, path);

    if (fd < 0)
        return fd;
    fd = (int)syscall(SYS_openat2, base, path, &how, sizeof how);
    return fd < 0 ? -errno : fd;
}

static bool shown(const struct node *parent, const char *name)
{
    if (parent != &root)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(top_names); i++)
        if (!strcmp(name, top_names[i]))
            return true;
    return false;
}

/* Whether everybody may search this directory and all above it. */
static bool searchable(const struct node *n)
{
    for (; n != &root; n = n->parent) {
        _cleanup_close_ int fd = open_node(n, NULL, O_PATH);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0 || !(st.st_mode & S_IXOTH))
            return false;
    }
    return true;
}

static void change_ids(struct stat *st)
{
    st->st_uid = shift + (one_id || st->st_uid >= PERSONS ? 0 : st->st_uid);
    st->st_gid = shift + (one_id || st->st_gid >= PERSONS ? 0 : st->st_gid);
}

static int stat_node(const struct node *n, const char *name, struct stat *st)
{
    _cleanup_close_ int fd = open_node(n, name, O_PATH);

    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        return -errno;
    change_ids(st);
    return 0;
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static void view_init(void *arg, struct fuse_conn_info *conn)
{
    conn->want |= conn->capable & (FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
                                   FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
}

/* The entry of a name; its node has one look-up more when there is one. */
static int entry_of(struct node *parent, const char *name, struct fuse_entry_param *e)
{
    struct node *n;
    int r;

    memset(e, 0, sizeof *e);
    e->attr_timeout = e->entry_timeout = TIMEOUT;
    r = shown(parent, name) ? stat_node(parent, name, &e->attr) : -ENOENT;
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    n = node_get(parent, name);
    if (!n)
        return -ENOMEM;
    e->ino = (fuse_ino_t)(uintptr_t)n;
    return 0;
}

static void view_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node *p = node_of(parent);
    struct fuse_entry_param e;
    int r = searchable(p) ? entry_of(p, name, &e) : -EACCES;

    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_entry(req, &e);
}

static void view_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    node_put(node_of(ino), count);
    fuse_reply_none(req);
}

static void view_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;
    int r = stat_node(node_of(ino), NULL, &st);

    if (r < 0)
        fuse_reply_err(req, -r);
    else
        fuse_reply_attr(req, &st, TIMEOUT);
}

static void view_readlink(fuse_req_t req, fuse_ino_t ino)
{
    _cleanup_close_ int fd = open_node(node_of(ino), NULL, O_PATH);
    char target[PATH_MAX];
    ssize_t n = fd < 0 ? fd : readlinkat(fd, "", target, sizeof target - 1);

    if (n < 0) {
        fuse_reply_err(req, fd < 0 ? -fd : errno);
        return;
    }
    target[n] = '\0';
    fuse_reply_readlink(req, target);
}

/* Notes the state at an open; whether it is the one that the kernel may have cached. */
static bool unchanged(struct node *n, const struct stat *st)
{
    bool same = n->ino == st->st_ino && n->size == st->st_size &&
                n->mtime.tv_sec == st->st_mtim.tv_sec && n->mtime.tv_nsec == st->st_mtim.tv_nsec;

    n->ino = st->st_ino;
    n->size = st->st_size;
    n->mtime = st->st_mtim;
    return same;
}

/* Opens what everybody may read. */
static int open_public(struct node *n, int flags, mode_t need, struct fuse_file_info *fi)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (!searchable(n == &root ? n : n->parent))
        return -EACCES;
    fd = open_node(n, NULL, flags | O_NONBLOCK);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((st.st_mode & need) != need || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return -EACCES;
    fi->keep_cache = unchanged(n, &st);
    return steal_fd(&fd);
}

static void view_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int fd = open_public(node_of(ino), O_RDONLY, S_IROTH, fi);

    if (fd < 0) {
        fuse_reply_err(req, -fd);
        return;
    }
    fi->fh = (uint64_t)fd;
    if (fuse_reply_open(req, fi) < 0)
        close(fd);
}

static void view_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
    struct fuse_bufvec b = FUSE_BUFVEC_INIT(size);

    b.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
    b.buf[0].fd = (int)fi->fh;
    b.buf[0].pos = off;
    fuse_reply_data(req, &b, FUSE_BUF_SPLICE_MOVE);
}

static void view_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    close((int)fi->fh);
    fuse_reply_err(req, 0);
}

static void view_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    int fd = open_public(node_of(ino), O_RDONLY | O_DIRECTORY, S_IROTH | S_IXOTH, fi);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        if (fd >= 0)
            close(fd);
        fuse_reply_err(req, fd < 0 ? -fd : ENOMEM);
        return;
    }
    fi->fh = (uint64_t)(uintptr_t)d;
    fi->cache_readdir = 1;
    if (fuse_reply_open(req, fi) < 0)
        closedir(d);
}

/* Adds one name to a listing; 0 when it did not fit. */
static size_t add_name(fuse_req_t req, struct node *dir, const struct dirent *e, bool plus,
                       char *out, size_t room)
{
    struct fuse_entry_param entry = { .attr = { .st_ino = e->d_ino,
                                                .st_mode = DTTOIF(e->d_type) } };
    size_t n;

    if (!plus)
        return fuse_add_direntry(req, out, room, e->d_name, &entry.attr, e->d_off);
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
        entry_of(dir, e->d_name, &entry) < 0)
        entry.ino = 0;
    n = fuse_add_direntry_plus(req, out, room, e->d_name, &entry, e->d_off);
    if (n > room && entry.ino)
        node_put(node_of(entry.ino), 1);
    return n;
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi,
                 bool plus)
{
    DIR *d = (DIR *)(uintptr_t)fi->fh;
    struct node *dir = node_of(ino);
    _cleanup_free_ char *out = malloc(size);
    size_t used = 0;
    struct dirent *e;

    if (!out) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    seekdir(d, off);
    while ((e = readdir(d))) {
        size_t n;

        if (e->d_name[0] != '.' && !shown(dir, e->d_name))
            continue;
        if (dir == &root && e->d_name[0] == '.' && strcmp(e->d_name, ".") != 0 &&
            strcmp(e->d_name, "..") != 0)
            continue;
        n = add_name(req, dir, e, plus, out + used, size - used);
        if (n > size - used)
            break;
        used += n;
    }
    fuse_reply_buf(req, out, used);
}

static void view_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                         struct fuse_file_info *fi)
{
    list(req, ino, size, off, fi, false);
}

static void view_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                             struct fuse_file_info *fi)
{
    list(req, ino, size, off, fi, true);
}

static void view_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    closedir((DIR *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}

static void view_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct statvfs st;

    if (fstatvfs(base, &st) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_statfs(req, &st);
}

static const struct fuse_lowlevel_ops operations = {
    .init = view_init,
    .lookup = view_lookup,
    .forget = view_forget,
    .getattr = view_getattr,
    .readlink = view_readlink,
    .open = view_open,
    .read = view_read,
    .release = view_release,
    .opendir = view_opendir,
    .readdir = view_readdir,
    .readdirplus = view_readdirplus,
    .releasedir = view_releasedir,
    .statfs = view_statfs,
};

/* Root gives everything up: the kernel then refuses by itself what is not public. */
static int drop_root(void)
{
    if (geteuid() != 0)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(NOBODY_ID, NOBODY_ID, NOBODY_ID) < 0 ||
                   setresuid(NOBODY_ID, NOBODY_ID, NOBODY_ID) < 0
               ? -errno
               : 0;
}

int main(int argc, char **argv)
{
    char name[] = "boxd-view", device[32];
    char *args[] = { name, NULL };
    struct fuse_args a = FUSE_ARGS_INIT(1, args);
    struct fuse_session *se;
    int r;

    if (argc != 4) {
        fprintf(stderr, "boxd-view: this program is started by boxd-local only\n");
        return 2;
    }
    one_id = !strcmp(argv[2], "single");
    shift = strcmp(argv[2], "root") ? 0 : SHIFT;
    base = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (base < 0 || drop_root() < 0)
        return 1;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != (pid_t)strtol(argv[3], NULL, 10))
        return 1;
    se = fuse_session_new(&a, &operations, sizeof operations, NULL);
    if (!se)
        return 1;
    snprintf(device, sizeof device, "/dev/fd/%.10s", argv[1]);
    r = fuse_session_mount(se, device);
    if (r == 0)
        r = fuse_session_loop(se);
    fuse_session_destroy(se);
    return r == 0 ? 0 : 1;
}
