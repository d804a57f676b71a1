/* Starts one machine: mounts its overlay in a private mount namespace, clones init into new
 * namespaces as the server's own child, writes its id maps. When this program has ended, the mount
 * is the machine's alone and vanishes with it. */
#include "base/base.h"
#include "base/str.h"
#include "helper/helper.h"
#include "helper/sys.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MACHINE_NAMESPACES \
    (CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWCGROUP)

/* machines/ID/{upper,work}; upper is the machine's /, so it belongs to the machine's root. Docker
 * inside needs a directory that is no overlay. */
static int machine_dirs(const char *id, bool shifted, bool privileged)
{
    static const char *const names[] = { "upper", "work", "docker" };
    char path[512];

    for (size_t i = 0; i < (privileged ? 3 : 2); i++) {
        snprintf(path, sizeof path, "machines/%s/%s", id, names[i]);
        if (mkdir(path, 0755) < 0) {
            if (errno == EEXIST)
                continue;
            return boxd_words(-errno, "cannot make '%s': %m", path);
        }
        if (shifted && chown(path, SHIFT, SHIFT) < 0)
            return boxd_words(-errno, "cannot give '%s' to the machine: %m", path);
    }
    return 0;
}

/* Shows an image directory under mnt/, so that the machine does not learn where it is; for root
 * with shifted ids, because its files have this computer's. */
static int mount_image(const struct spec *s, const char *image, const char *at)
{
    int shift = spec_fd(s, "shift");
    struct sys_mount_attr a = { .set = SYS_ATTR_IDMAP, .userns_fd = (uint64_t)shift };
    _cleanup_close_ int tree = sys_open_tree(AT_FDCWD, image, SYS_OPEN_TREE_CLONE | O_CLOEXEC);

    if (tree < 0)
        return boxd_words(-errno, "cannot open image '%s': %m", image);
    if (shift >= 0 && sys_mount_setattr(tree, "", AT_EMPTY_PATH, &a) < 0)
        return boxd_words(-errno,
                          "cannot shift the ids of image '%s': %m (its file system has no "
                          "idmapped mounts; use a tarball)",
                          image);
    if (sys_move_mount(tree, "", AT_FDCWD, at, SYS_MOVE_FROM_EMPTY) < 0)
        return boxd_words(-errno, "cannot mount image '%s': %m", image);
    return 0;
}

static int mount_machine(const struct spec *s)
{
    const char *id = spec_get(s, "id"), *lower = spec_get(s, "lower"), *base = spec_get(s, "base");
    bool user = spec_num(s, "userxattr", 0);
    _cleanup_free_ char *options = NULL;
    int r = 0;

    if (spec_get(s, "image")) {
        lower = user ? "mnt/image" : "mnt/image/image";
        r = mount_image(s, spec_get(s, "image"), lower);
    }
    if (r < 0)
        return r;
    options = strf("%slowerdir=%s%s%s,upperdir=machines/%s/upper,workdir=machines/%s/work",
                   user ? "userxattr," : "", lower, base ? ":" : "", base ? base : "", id, id);
    if (!options)
        return -ENOMEM;
    if (mount("boxd", "mnt/root", "overlay", 0, options) < 0)
        return boxd_words(-errno, "cannot mount the machine's overlay: %m");
    return chdir("mnt/root") < 0 ? -errno : 0;
}

/* The child, until it becomes init. */
static _Noreturn void child(const struct spec *s, int go, const struct detached *d)
{
    int self = spec_fd(s, "self");
    char *argv[] = { (char[]){ "init" }, NULL };
    char *envp[] = { NULL };
    char c;
    int r = 0;

    if (read(go, &c, 1) != 1)
        _exit(1);
    if (!spec_num(s, "single", 0) && !spec_num(s, "privileged", 0) && setgroups(0, NULL) < 0)
        r = boxd_words(-errno, "cannot drop groups: %m");
    if (r == 0 && (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
        r = boxd_words(-errno, "cannot become the machine's root: %m");
    if (r == 0)
        r = machine_setup(s, d);
    if (r == 0) {
        sys_close_range(HELPER_CONTROL + 1, ~0U, CLOSE_RANGE_CLOEXEC);
        fcntl(HELPER_CONTROL, F_SETFD, 0);
        syscall(SYS_execveat, self, "", argv, envp, AT_EMPTY_PATH);
        r = boxd_words(-errno, "cannot start init: %m");
    }
    msg_error(HELPER_CONTROL, r);
    _exit(1);
}

/* Inside, every id of root's is shifted; an ordinary user's were mapped by the base already. */
static int write_maps(const struct spec *s, pid_t pid)
{
    static const char *const files[] = { "uid_map", "gid_map" };
    const char *map = spec_get(s, "map");
    char path[64];

    for (size_t i = 0; map && i < ARRAY_LEN(files); i++) {
        int r;

        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, files[i]);
        r = write_text(path, map);
        if (r < 0)
            return boxd_words(r, "cannot map ids into the machine: %m");
    }
    return 0;
}

/* A machine of one id: the namespace below it in which that id is 1000, for boxd. It maps itself,
 * being in no namespace above; the server keeps it by descriptor. */
static int make_inner(pid_t init)
{
    char path[64];
    int status, ns;
    pid_t p;

    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)init);
    ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0)
        return boxd_words(-errno, "cannot open the machine's user namespace: %m");
    p = fork();
    if (p < 0)
        return -errno;
    if (p == 0) {
        struct msg m = { .type = MSG_INNER };
        int fd = -1, r = 0;

        if (setns(ns, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWUSER) < 0 ||
            prctl(PR_SET_DUMPABLE, 1) < 0)
            r = -errno;
        if (r == 0)
            r = write_text("/proc/self/uid_map", "1000 0 1");
        if (r == 0)
            r = write_text("/proc/self/gid_map", "1000 0 1");
        if (r == 0)
            fd = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
        if (r == 0 && fd < 0)
            r = -errno;
        if (r == 0)
            r = msg_send(HELPER_CONTROL, &m, &fd, 1);
        _exit(r < 0 ? -r : 0);
    }
    close(ns);
    if (waitpid(p, &status, 0) < 0 || status != 0)
        return boxd_words(WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO,
                          "cannot make the user namespace of boxd: %m");
    return 0;
}

static int start_init(const struct spec *s, const struct detached *d)
{
    struct clone_args ca = { .flags = MACHINE_NAMESPACES | CLONE_PARENT };
    int go[2], r;
    pid_t pid;

    if (!spec_num(s, "privileged", 0))
        ca.flags |= CLONE_NEWUSER;
    if (pipe2(go, O_CLOEXEC) < 0)
        return -errno;
    /* Entering a user namespace may have cleared it, and then nobody could write init's maps. */
    if (prctl(PR_SET_DUMPABLE, 1) < 0)
        return -errno;
    pid = sys_clone3(&ca);
    if (pid < 0)
        return boxd_words(-errno, "cannot make the machine's namespaces: %m");
    if (pid == 0) {
        close(go[1]);
        child(s, go[0], d);
    }
    close(go[0]);
    r = msg_simple(HELPER_CONTROL, MSG_PID, (int32_t)pid);
    if (r == 0)
        r = write_maps(s, pid);
    if (r == 0 && spec_num(s, "single", 0))
        r = make_inner(pid);
    if (r == 0 && write(go[1], "g", 1) != 1)
        r = -errno;
    return r; /* on an error the child sees the end of the pipe and ends */
}

/* What the machine gets from outside its own tree, as mounts without a place yet. */
static int open_detached(const struct spec *s, struct detached *d)
{
    _cleanup_free_ char *docker = strf("machines/%s/docker", spec_get(s, "id"));
    bool privileged = spec_num(s, "privileged", 0);

    d->fuse = d->docker = -1;
    if (spec_num(s, "shifted", 0))
        d->fuse = sys_open_tree(AT_FDCWD, "mnt/image/fuse", SYS_OPEN_TREE_CLONE | O_CLOEXEC);
    if (!docker)
        return -ENOMEM;
    if (privileged)
        d->docker = sys_open_tree(AT_FDCWD, docker, SYS_OPEN_TREE_CLONE | O_CLOEXEC);
    return privileged && d->docker < 0 ? boxd_words(-errno, "cannot open '%s': %m", docker) : 0;
}

int mode_start(const struct spec *s)
{
    struct detached d;
    int r = join_cgroups(s);

    if (r == 0)
        r = enter_base(s);
    if (r < 0)
        return r;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return boxd_words(-errno, "cannot make a mount namespace: %m");
    if (chdir(spec_get(s, "state")) < 0)
        return boxd_words(-errno, "cannot enter '%s': %m", spec_get(s, "state"));
    r = machine_dirs(spec_get(s, "id"), spec_num(s, "shifted", 0), spec_num(s, "privileged", 0));
    if (r == 0)
        r = open_detached(s, &d);
    if (r == 0)
        r = mount_machine(s);
    return r < 0 ? r : start_init(s, &d);
}
