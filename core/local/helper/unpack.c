/* Unpacks an image's tarball once, with tar, inside the user namespace whose ids its files get. */
#include "base/base.h"
#include "helper/helper.h"
#include "helper/sys.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/wait.h>

static _Noreturn void run_tar(const struct spec *s)
{
    char image[64];
    char *argv[] = { (char[]){ "tar" },
                     (char[]){ "--numeric-owner" },
                     (char[]){ "-xpf" },
                     image,
                     (char[]){ "--exclude=./dev/*" },
                     (char[]){ "--exclude=dev/*" },
                     (char[]){ "--keep-directory-symlink" },
                     spec_num(s, "single", 0) ? (char[]){ "--no-same-owner" } : NULL,
                     NULL };
    char *envp[] = { (char[]){ "PATH=/usr/local/bin:/usr/bin:/bin" }, NULL };

    snprintf(image, sizeof image, "/proc/self/fd/%d", spec_fd(s, "image"));
    sys_close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    fcntl(spec_fd(s, "image"), F_SETFD, 0);
    execvpe("tar", argv, envp);
    _exit(127);
}

int mode_unpack(const struct spec *s)
{
    const char *stamp = spec_get(s, "stamp");
    int shift = spec_fd(s, "shift"), status;
    char part[128], done[128];
    int r = enter_base(s);
    pid_t p;

    if (r < 0 || chdir(spec_get(s, "state")) < 0)
        return r < 0 ? r : -errno;
    snprintf(part, sizeof part, "unpacked/.%s", stamp);
    snprintf(done, sizeof done, "unpacked/%s", stamp);
    r = remove_tree(AT_FDCWD, part);
    if (r < 0 && r != -ENOENT)
        return r;
    r = make_dir(part, 0755);
    if (r == 0 && shift >= 0 && chown(part, SHIFT, SHIFT) < 0)
        r = -errno;
    if (r < 0)
        return r;
    p = fork();
    if (p < 0)
        return -errno;
    if (p == 0) {
        if (chdir(part) < 0 || (shift >= 0 && setns(shift, CLONE_NEWUSER) < 0) ||
            (shift >= 0 &&
             (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)) ||
            die_with_parent(0) < 0)
            _exit(126);
        run_tar(s);
    }
    if (waitpid(p, &status, 0) < 0 || status != 0)
        return boxd_words(-EIO, "cannot unpack image '%s': tar %s", spec_get(s, "name"),
                          WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "is not installed"
                                                                          : "failed");
    if (rename(part, done) < 0)
        return boxd_words(-errno, "cannot finish unpacking: %m");
    return msg_simple(HELPER_CONTROL, MSG_DONE, 0);
}
