/* Builds a LAYER: what lies over BASE in every machine of this computer. /etc and /var are copies
 * by an allow list, everything else that is private is an empty directory or a whiteout. */
#include "base/base.h"
#include "base/str.h"
#include "helper/helper.h"
#include "helper/layer.h"

#include <boxd/error.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define READABLE_DIR (S_IROTH | S_IXOTH)
#define OVERFLOW_ID 65534

static int name_of(int dirfd, const char *path, char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "/proc/self/fd/%d/%s", dirfd, path);

    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int layer_own(const struct layer *l, const char *path, uid_t uid, gid_t gid)
{
    if (l->one)
        return 0;
    if (uid >= OVERFLOW_ID || (!l->real && uid >= 1000))
        uid = uid == 1000 ? uid : 0;
    if (gid >= OVERFLOW_ID || (!l->real && gid >= 1000))
        gid = gid == 1000 ? gid : 0;
    if (fchownat(l->out, path, l->shift + uid, l->shift + gid, AT_SYMLINK_NOFOLLOW) < 0)
        return boxd_words(-errno, "cannot give '%s' in the layer an owner: %m", path);
    return 0;
}

/* Makes the directories above `path`. */
static int make_parents(const struct layer *l, const char *path)
{
    _cleanup_free_ char *p = strdup(path);

    if (!p)
        return -ENOMEM;
    for (char *q = strchr(p, '/'); q; q = strchr(q + 1, '/')) {
        int r = 0;

        *q = '\0';
        if (mkdirat(l->out, p, 0755) == 0)
            r = layer_own(l, p, 0, 0);
        else if (errno != EEXIST)
            r = boxd_words(-errno, "cannot make '%s' in the layer: %m", p);
        if (r < 0)
            return r;
        *q = '/';
    }
    return 0;
}

int layer_dir(const struct layer *l, const char *path, mode_t mode, bool opaque)
{
    char name[PATH_MAX];
    int r = make_parents(l, path);

    if (r < 0)
        return r;
    if (mkdirat(l->out, path, 0755) < 0 && errno != EEXIST)
        return boxd_words(-errno, "cannot make '%s' in the layer: %m", path);
    r = layer_own(l, path, 0, 0);
    if (r < 0)
        return r;
    if (fchmodat(l->out, path, mode, 0) < 0)
        return -errno;
    if (!opaque || !l->real)
        return 0;
    r = name_of(l->out, path, name);
    if (r == 0 && setxattr(name, "trusted.overlay.opaque", "y", 1, 0) < 0)
        r = boxd_words(-errno, "cannot mark '%s' in the layer: %m", path);
    return r;
}

int layer_file(const struct layer *l, const char *path, const char *text, mode_t mode, gid_t gid)
{
    _cleanup_close_ int fd = -1;
    size_t n = strlen(text);
    int r = make_parents(l, path);

    if (r < 0)
        return r;
    unlinkat(l->out, path, 0); /* a copy of this computer's may be there */
    fd = openat(l->out, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, n) != (ssize_t)n)
        return boxd_words(-errno, "cannot write '%s' in the layer: %m", path);
    r = layer_own(l, path, 0, gid);
    return r < 0 ? r : fchmod(fd, mode) < 0 ? -errno : 0;
}

int layer_link(const struct layer *l, const char *target, const char *path)
{
    int r = make_parents(l, path);

    if (r < 0)
        return r;
    unlinkat(l->out, path, 0);
    if (symlinkat(target, l->out, path) < 0)
        return boxd_words(-errno, "cannot make '%s' in the layer: %m", path);
    return layer_own(l, path, 0, 0);
}

int copy_bytes(int from, int to)
{
    char data[65536];
    ssize_t n;

    while ((n = read(from, data, sizeof data)) > 0)
        for (ssize_t at = 0, w; at < n; at += w) {
            w = write(to, data + at, (size_t)(n - at));
            if (w < 0)
                return -errno;
        }
    return n < 0 ? -errno : 0;
}

static int copy_file(const struct layer *l, const char *path, const struct stat *st)
{
    _cleanup_close_ int from =
        openat(l->root, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    _cleanup_close_ int to = -1;
    struct timespec times[2] = { st->st_atim, st->st_mtim };
    int r;

    if (from < 0) /* readable by mode, and yet not: a parent or an ACL forbids it */
        return errno == EACCES || errno == ENOENT || errno == ELOOP ? 0 : -errno;
    to = openat(l->out, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return boxd_words(-errno, "cannot write '%s' in the layer: %m", path);
    r = copy_bytes(from, to);
    if (r == 0)
        r = layer_own(l, path, st->st_uid, st->st_gid);
    if (r == 0 && (fchmod(to, st->st_mode & 01777) < 0 || futimens(to, times) < 0))
        r = -errno;
    return r;
}

static int copy_link(const struct layer *l, const char *path, const struct stat *st)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(l->root, path, target, sizeof target - 1);

    if (n < 0)
        return errno == ENOENT ? 0 : -errno;
    target[n] = '\0';
    if (symlinkat(target, l->out, path) < 0)
        return boxd_words(-errno, "cannot make '%s' in the layer: %m", path);
    return layer_own(l, path, st->st_uid, st->st_gid);
}

static int copy_dir(const struct layer *l, const char *path, const struct stat *st,
                    bool (*hidden)(const char *path))
{
    int fd = openat(l->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r;
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    r = layer_dir(l, path, st->st_mode & 01777, false);
    if (r == 0)
        r = layer_own(l, path, st->st_uid, st->st_gid);
    if ((st->st_mode & READABLE_DIR) != READABLE_DIR)
        return r; /* the directory itself stays, empty */
    while (r == 0 && d && (e = readdir(d))) {
        char child[PATH_MAX];

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (snprintf(child, sizeof child, "%s/%s", path, e->d_name) < PATH_MAX)
            r = layer_copy(l, child, hidden);
    }
    return r;
}

int layer_copy(const struct layer *l, const char *path, bool (*hidden)(const char *path))
{
    struct stat st;

    if (hidden && hidden(path))
        return 0;
    if (fstatat(l->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || errno == EACCES ? 0 : -errno;
    if (S_ISDIR(st.st_mode))
        return copy_dir(l, path, &st, hidden);
    if (S_ISLNK(st.st_mode))
        return copy_link(l, path, &st);
    return S_ISREG(st.st_mode) && (st.st_mode & S_IROTH) ? copy_file(l, path, &st) : 0;
}

/* ---- /var -------------------------------------------------------------------------------------
 */

static const struct {
    const char *path;
    mode_t mode;
} var_dirs[] = {
    { "var/lib", 0755 },
    { "var/cache", 0755 },
    { "var/log", 0755 },
    { "var/tmp", 01777 },
    { "var/spool", 0755 },
    { "var/backups", 0755 },
    { "var/local", 0755 },
    { "var/opt", 0755 },
    { "var/cache/apt/archives/partial", 0755 },
    { "var/lib/apt/lists/partial", 0755 },
    { "var/log/apt", 0755 },
    { "var/mail", 01777 },
    { "var/spool/cron/crontabs", 01730 },
};

/* What package managers and their scripts remember. */
static const char *const var_lib[] = {
    "dpkg",
    "pam",
    "ucf",
    "python",
    "python3",
    "sgml-base",
    "xml-core",
    "misc",
    "vim",
    "texmf",
    "shells.state",
    "emacsen-common",
    "rpm",
    "pacman",
    "alternatives",
    "xfonts",
    "ghc",
    "ca-certificates-java",
    "dictionaries-common",
    "systemd/deb-systemd-helper-enabled",
    "systemd/deb-systemd-user-helper-enabled",
};

static int layer_var(const struct layer *l)
{
    int fd = openat(l->root, "var/lib", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    char path[PATH_MAX];

    r = layer_dir(l, "var", 0755, false);
    for (size_t i = 0; i < ARRAY_LEN(var_dirs) && r == 0; i++)
        r = layer_dir(l, var_dirs[i].path, var_dirs[i].mode, false);
    while (r == 0 && d && (e = readdir(d)))
        if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
            snprintf(path, sizeof path, "var/lib/%s", e->d_name) < PATH_MAX)
            r = layer_dir(l, path, 0755, false);
    for (size_t i = 0; i < ARRAY_LEN(var_lib) && r == 0; i++) {
        snprintf(path, sizeof path, "var/lib/%s", var_lib[i]);
        r = layer_copy(l, path, NULL);
    }
    if (r == 0)
        r = layer_copy(l, "var/lib/apt/extended_states", NULL);
    if (r == 0 && faccessat(l->out, "var/lib/dpkg/status", F_OK, 0) == 0) {
        static const char *const locks[] = { "lock", "lock-frontend", "triggers/Lock" };

        for (size_t i = 0; i < ARRAY_LEN(locks) && r == 0; i++) {
            snprintf(path, sizeof path, "var/lib/dpkg/%s", locks[i]);
            r = layer_file(l, path, "", 0640, 0);
        }
    }
    if (r == 0)
        r = layer_link(l, "/run", "var/run");
    if (r == 0)
        r = layer_link(l, "/run/lock", "var/lock");
    return r < 0 ? r : layer_link(l, "../mail", "var/spool/mail");
}

/* ---- the top level and /usr -------------------------------------------------------------------
 */

static const struct {
    const char *name;
    mode_t mode;
} empty_dirs[] = {
    { "home", 0755 }, { "root", 0700 },  { "tmp", 01777 }, { "srv", 0755 },
    { "mnt", 0755 },  { "media", 0755 }, { "run", 0755 },  { "proc", 0555 },
    { "sys", 0555 },  { "dev", 0755 },   { "boot", 0755 }, { "opt", 0755 },
};

static int layer_top(const struct layer *l)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(empty_dirs) && r == 0; i++)
        r = layer_dir(l, empty_dirs[i].name, empty_dirs[i].mode, false);
    return r;
}

static int layer_home(const struct layer *l)
{
    static const char *const files[] = { ".bashrc", ".profile", ".bash_logout" };
    char from[64], to[64];
    int r = layer_dir(l, "home/boxd", 0755, false);

    for (size_t i = 0; i < ARRAY_LEN(files) && r == 0; i++) {
        _cleanup_close_ int in = -1, out = -1;

        snprintf(from, sizeof from, "etc/skel/%s", files[i]);
        snprintf(to, sizeof to, "home/boxd/%s", files[i]);
        in = openat(l->root, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (in < 0)
            continue;
        out = openat(l->out, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        r = out < 0 ? -errno : copy_bytes(in, out);
        if (r == 0)
            r = layer_own(l, to, 1000, 1000);
    }
    return r < 0 ? r : layer_own(l, "home/boxd", 1000, 1000);
}

/* Root: what the kernel would refuse to the machine's own root is made empty or absent. */
static int hide_unreadable(const struct layer *l, int dir, const char *path)
{
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    _cleanup_closedir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *e;

    while (r == 0 && d && (e = readdir(d))) {
        char child[PATH_MAX];
        struct stat st;

        if (e->d_type == DT_LNK || !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            snprintf(child, sizeof child, "%s/%s", path, e->d_name) >= PATH_MAX)
            continue;
        if (S_ISDIR(st.st_mode) && (st.st_mode & READABLE_DIR) == READABLE_DIR) {
            _cleanup_close_ int fd =
                openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            r = fd < 0 ? 0 : hide_unreadable(l, fd, child);
        } else if (S_ISDIR(st.st_mode)) {
            r = layer_dir(l, child, st.st_mode & 07777, true);
            if (r == 0)
                r = layer_own(l, child, st.st_uid, st.st_gid);
        } else if (!(st.st_mode & S_IROTH)) {
            r = make_parents(l, child);
            if (r == 0 && mknodat(l->out, child, S_IFCHR, makedev(0, 0)) < 0 && errno != EEXIST)
                r = boxd_words(-errno, "cannot hide '/%s': %m", child);
        }
    }
    return r;
}

/* sudo where this computer has none that works here: a small program of ours. */
static int layer_shim(const struct layer *l)
{
    static const char *const names[] = { "usr/bin/sudo", "usr/bin/su" };
    int r = 0;

    for (size_t i = 0; i < (l->one ? 2 : 1) && r == 0; i++) {
        _cleanup_close_ int to = -1;

        r = make_parents(l, names[i]);
        if (r < 0)
            return r;
        to = openat(l->out, names[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        if (to < 0 || lseek(l->shim_fd, 0, SEEK_SET) < 0)
            return boxd_words(-errno, "cannot write '%s' in the layer: %m", names[i]);
        r = copy_bytes(l->shim_fd, to);
        if (r == 0)
            r = layer_own(l, names[i], 0, 0);
        if (r == 0 && fchmod(to, l->one ? 0755 : 04755) < 0)
            r = -errno;
    }
    return r;
}

/* Where packages must not put theirs over the shim: dpkg's local diversions. */
static int divert_shim(const struct layer *l)
{
    static const char text[] = "/usr/bin/sudo\n/usr/bin/sudo.distrib\n:\n"
                               "/usr/bin/su\n/usr/bin/su.distrib\n:\n";
    _cleanup_close_ int fd = -1;

    if (!l->one)
        return 0;
    fd = openat(l->out, "var/lib/dpkg/diversions", O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno; /* no dpkg here */
    return write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1 ? 0 : -EIO;
}

int mode_layer(const struct spec *s)
{
    _cleanup_close_ int out = -1, root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), usr = -1;
    struct layer l = { .shim_fd = spec_fd(s, "shim"),
                       .shift = (uid_t)spec_num(s, "shift", 0),
                       .one = spec_num(s, "single", 0),
                       .real = spec_num(s, "real", 0) };
    const char *stamp = spec_get(s, "stamp");
    char part[128], done[128];
    int r = enter_base(s);

    l.shim = l.shim_fd >= 0;
    if (r < 0 || chdir(spec_get(s, "state")) < 0)
        return r < 0 ? r : -errno;
    snprintf(part, sizeof part, "layers/.%s", stamp);
    snprintf(done, sizeof done, "layers/%s", stamp);
    r = remove_tree(AT_FDCWD, part); /* of a server that was killed */
    if (r < 0 && r != -ENOENT)
        return r;
    r = make_dir(part, 0755);
    out = open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r < 0 || out < 0 || root < 0)
        return r < 0 ? r : -errno;
    l.out = out;
    l.root = root;
    r = layer_own(&l, ".", 0, 0);
    if (r == 0)
        r = layer_etc(&l);
    if (r == 0)
        r = layer_var(&l);
    if (r == 0)
        r = layer_top(&l);
    if (r == 0)
        r = layer_home(&l);
    usr = openat(root, "usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && l.real && usr >= 0)
        r = hide_unreadable(&l, usr, "usr");
    if (r == 0 && l.shim)
        r = layer_shim(&l);
    if (r == 0 && l.shim)
        r = divert_shim(&l);
    if (r == 0 && rename(part, done) < 0)
        r = boxd_words(-errno, "cannot finish the layer: %m");
    return r < 0 ? r : msg_simple(HELPER_CONTROL, MSG_DONE, 0);
}
