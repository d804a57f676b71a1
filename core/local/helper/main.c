/* boxd-init: which mode to run. Without arguments it is a machine's init. */
#include "base/base.h"
#include "helper/helper.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "helper/sys.h"

static const struct {
    const char *name;
    int (*run)(const struct spec *s);
} modes[] = {
    { "base", mode_base },     { "start", mode_start },   { "exec", mode_exec },
    { "layer", mode_layer },   { "unpack", mode_unpack }, { "delete", mode_delete },
    { "signal", mode_signal }, { "guard", mode_guard },
};

int write_text(const char *path, const char *text)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t n = strlen(text);

    if (fd < 0)
        return -errno;
    return write(fd, text, n) == (ssize_t)n ? 0 : -errno;
}

int make_dir(const char *path, mode_t mode)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return boxd_words(-errno, "cannot make '%s': %m", path);
    return 0;
}

int die_with_parent(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return parent && getppid() != parent ? -ESRCH : 0;
}

int join_cgroups(const struct spec *s)
{
    char name[8];

    for (size_t i = 0; i < CGROUPS; i++) {
        int fd;

        snprintf(name, sizeof name, "cg%zu", i);
        fd = spec_fd(s, name);
        if (fd >= 0 && write(fd, "0", 1) < 0)
            return boxd_words(-errno, "cannot join a cgroup: %m");
    }
    return 0;
}

int enter_base(const struct spec *s)
{
    int user = spec_fd(s, "user"), mnt = spec_fd(s, "mount");

    if (user >= 0 && setns(user, CLONE_NEWUSER) < 0)
        return boxd_words(-errno, "cannot enter the user namespace: %m");
    if (mnt >= 0 && setns(mnt, CLONE_NEWNS) < 0)
        return boxd_words(-errno, "cannot enter the mount namespace: %m");
    return 0;
}

int main(int argc, char **argv)
{
    struct spec s = { 0 };
    int r;

    umask(022);
    if (argc < 2)
        init_main();
    r = spec_load(HELPER_SPEC, &s);
    if (r < 0) {
        fprintf(stderr, "boxd-init: this program is started by boxd-local only\n");
        return 1;
    }
    sys_close_range((unsigned)spec_num(&s, "fds", HELPER_FDS), ~0U, 0);
    close(HELPER_SPEC);
    r = die_with_parent((pid_t)spec_num(&s, "parent", 0));
    for (size_t i = 0; i < ARRAY_LEN(modes) && r == 0; i++)
        if (!strcmp(argv[1], modes[i].name)) {
            r = modes[i].run(&s);
            break;
        }
    if (r < 0)
        msg_error(HELPER_CONTROL, r);
    return r < 0 ? 1 : r;
}
