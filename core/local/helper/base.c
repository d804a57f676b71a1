/* The namespace that holds BASE, this computer's /usr as machines may see it: as root an idmapped
 * clone of / under an overlay that is mounted with nobody's credentials (the kernel itself then
 * refuses what is not world-readable), else a FUSE mount that boxd-view serves.
 * It holds no process: the server keeps it alive by descriptors. */
#include "base/base.h"
#include "helper/helper.h"
#include "helper/sys.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define NOBODY_ID 0x7ffffff0 /* nobody's files, no mapped id */

/* A user namespace with root's map, held by a descriptor. */
static int shifted_userns(int *out)
{
    char path[64], map[64];
    int ready[2];
    char c;
    int r = 0;
    pid_t p;

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -errno;
    p = fork();
    if (p < 0)
        return -errno;
    if (p == 0) {
        if (die_with_parent(0) < 0)
            _exit(1);
        if (unshare(CLONE_NEWUSER) < 0 || write(ready[1], "k", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    close(ready[1]);
    if (read(ready[0], &c, 1) != 1)
        r = boxd_words(-EPERM, "cannot make a user namespace: it is switched off here (see "
                               "'sysctl user.max_user_namespaces')");
    close(ready[0]);
    snprintf(map, sizeof map, "0 %d %d", SHIFT, IDS);
    for (int i = 0; i < 2 && r == 0; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)p, i ? "gid_map" : "uid_map");
        r = write_text(path, map);
    }
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)p);
    if (r == 0) {
        *out = open(path, O_RDONLY | O_CLOEXEC);
        r = *out < 0 ? -errno : 0;
    }
    kill(p, SIGKILL);
    waitpid(p, NULL, 0);
    return r;
}

/* Root's bases: a clone of / and the names over it. */
struct base {
    const char *lower, *top, *base;
    uid_t owner; /* of the names */
};
static const struct base shifted = { "mnt/idmap", "mnt/top/shifted", "mnt/base", SHIFT };
static const struct base plain = { "mnt/plain", "mnt/top/plain", "mnt/plain-base", 0 };

/* Clones /, with shifted ids when there is a user namespace. An error means: this file system
 * cannot. */
static int mount_clone(const struct base *b, int userns)
{
    struct sys_mount_attr a = { .set = SYS_ATTR_IDMAP, .userns_fd = (uint64_t)userns };
    _cleanup_close_ int tree = sys_open_tree(AT_FDCWD, "/", SYS_OPEN_TREE_CLONE | O_CLOEXEC);

    if (tree < 0 || (userns >= 0 && sys_mount_setattr(tree, "", AT_EMPTY_PATH, &a) < 0) ||
        sys_move_mount(tree, "", AT_FDCWD, b->lower, SYS_MOVE_FROM_EMPTY) < 0)
        return -errno;
    return 0;
}

/* The names of / that machines see, in the directory "seen": links are copied, a directory is an
 * empty one that overlayfs redirects to this computer's, as if it had been renamed. What else is in
 * /, now or later, has no name there. */
static int make_seen(int top, uid_t owner)
{
    static const char *const names[] = { "usr",   "bin",    "sbin", "lib", "lib32",
                                         "lib64", "libx32", "nix",  "gnu" };
    char target[256], from[16], to[64];

    if (mkdirat(top, "seen", 0755) < 0 || fchownat(top, "seen", owner, owner, 0) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct stat st;
        ssize_t n;

        snprintf(from, sizeof from, "/%s", names[i]);
        snprintf(to, sizeof to, "/proc/self/fd/%d/seen/%s", top, names[i]);
        if (lstat(from, &st) < 0)
            continue;
        n = readlink(from, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (n > 0 ? symlink(target, to) < 0
                  : mkdir(to, 0755) < 0 ||
                        setxattr(to, "trusted.overlay.redirect", from, strlen(from), 0) < 0)
            return -errno;
        if (lchown(to, owner, owner) < 0)
            return -errno;
    }
    return 0;
}

/* The read-only overlay over it, with credentials that own nothing. */
static int mount_restricted(const struct base *b)
{
    _cleanup_close_ int top = open(b->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int lower = open(b->lower, O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int base = open(b->base, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char options[128], target[64];
    int r;

    if (top < 0 || lower < 0 || base < 0)
        return -errno;
    r = make_seen(top, b->owner);
    if (r < 0)
        return r;
    snprintf(options, sizeof options,
             "redirect_dir=follow,lowerdir=/proc/self/fd/%d:/proc/self/fd/%d", top, lower);
    snprintf(target, sizeof target, "/proc/self/fd/%d", base);
    if (setgroups(0, NULL) < 0)
        return -errno;
    setfsgid(NOBODY_ID);
    setfsuid(NOBODY_ID);
    r = mount("base", target, "overlay", MS_RDONLY, options) < 0 ? -errno : 0;
    setfsuid(0);
    setfsgid(0);
    return r;
}

/* The mount that boxd-view will serve; *fuse is its device. */
static int mount_view(int *fuse)
{
    char options[128];

    *fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (*fuse < 0)
        return boxd_words(-errno, "cannot open '/dev/fuse': %m (an administrator can allow it: "
                                  "chmod 666 /dev/fuse)");
    snprintf(options, sizeof options,
             "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other,default_permissions", *fuse);
    if (mount("base", "mnt/base", "fuse", MS_RDONLY, options) < 0)
        return boxd_words(-errno, "cannot mount the view of this computer's /usr: %m");
    return 0;
}

/* An ordinary user's own namespace; the server writes the maps when there is a range of ids. */
static int user_namespace(const struct spec *s)
{
    char map[64];
    struct msg m;
    int fds[MSG_FDS];
    size_t n;
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int r;

    if (unshare(CLONE_NEWUSER) < 0)
        return boxd_words(-errno, "cannot make a user namespace: %m (an administrator can allow "
                                  "it: sysctl user.max_user_namespaces, "
                                  "kernel.apparmor_restrict_unprivileged_userns=0)");
    if (spec_num(s, "single", 0)) {
        r = write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "0 %u 1", (unsigned)uid);
        r = r < 0 ? r : write_text("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", (unsigned)gid);
        r = r < 0 ? r : write_text("/proc/self/gid_map", map);
        return r < 0 ? boxd_words(r, "cannot map this user into a namespace: %m") : 0;
    }
    r = msg_simple(HELPER_CONTROL, MSG_PID, (int32_t)getpid());
    if (r == 0)
        r = msg_recv(HELPER_CONTROL, &m, fds, &n);
    if (r < 0 || m.type != MSG_GO)
        return boxd_words(-EPIPE, "the server went away");
    return setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 || setgroups(0, NULL) < 0
               ? boxd_words(-errno, "cannot become root in the user namespace: %m")
               : 0;
}

/* Directories that are only mount points, and a device for FUSE inside root's machines. */
static int mount_points(bool root)
{
    static const char *const dirs[] = { "mnt",       "mnt/top",        "mnt/idmap", "mnt/base",
                                        "mnt/plain", "mnt/plain-base", "mnt/root",  "mnt/image" };
    int r = 0;

    for (size_t i = 0; i < ARRAY_LEN(dirs) && r == 0; i++)
        r = make_dir(dirs[i], 0755);
    if (r < 0 || !root)
        return r;
    if (mount("top", "mnt/top", "tmpfs", MS_NOSUID, "mode=755,size=128k") < 0 ||
        mkdir(shifted.top, 0755) < 0 || mkdir(plain.top, 0755) < 0)
        return boxd_words(-errno, "cannot mount a tmpfs: %m");
    if (mount("dev", "mnt/image", "tmpfs", MS_NOSUID, "mode=755,size=64k") < 0 ||
        mkdir("mnt/image/image", 0755) < 0)
        return boxd_words(-errno, "cannot mount a tmpfs: %m");
    if (access("/dev/fuse", F_OK) == 0 &&
        (mknod("mnt/image/fuse", S_IFCHR | 0666, makedev(10, 229)) < 0 ||
         chmod("mnt/image/fuse", 0666) < 0))
        return boxd_words(-errno, "cannot make a device node: %m");
    return 0;
}

/* Tells the server which namespaces to keep. */
static int hand_over(int user, int fuse, bool has_plain)
{
    _cleanup_close_ int mnt = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    struct msg m = { .type = MSG_NS,
                     .value = (fuse >= 0 ? NS_VIEW : 0) | (has_plain ? NS_PLAIN : 0) };
    int fds[MSG_FDS] = { user, mnt, fuse };

    if (mnt < 0)
        return -errno;
    return msg_send(HELPER_CONTROL, &m, fds, fuse >= 0 ? 3 : 2);
}

int mode_base(const struct spec *s)
{
    bool root = spec_num(s, "root", 0), view = spec_num(s, "view", 0), has_plain = false;
    _cleanup_close_ int user = -1, fuse = -1;
    int r = root ? shifted_userns(&user) : user_namespace(s);

    if (r < 0)
        return r;
    if (!root) {
        user = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
        if (user < 0)
            return -errno;
    }
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return boxd_words(-errno, "cannot make a mount namespace: %m");
    if (chdir(spec_get(s, "state")) < 0)
        return boxd_words(-errno, "cannot enter '%s': %m", spec_get(s, "state"));
    r = mount_points(root);
    if (r == 0 && !view)
        view = mount_clone(&shifted, user) < 0 || mount_restricted(&shifted) < 0;
    if (r == 0 && spec_num(s, "plain", 0))
        has_plain = mount_clone(&plain, -1) == 0 && mount_restricted(&plain) == 0;
    if (r == 0 && view)
        r = mount_view(&fuse);
    return r < 0 ? r : hand_over(user, fuse, has_plain);
}
