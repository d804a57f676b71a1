/* fs/cmd_umount.c: `boxdfs umount [-f] MNT`: returns when the mounting process has ended, so that
 * everything is sent; takes dead mounts away. */
#include "fs.h"

#include "commands.h"
#include "mount.h"
#include "status.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define END_MS 60000
#define HIDDEN_MS 1000

static int complain(int r)
{
    fprintf(stderr, "boxdfs: %s\n", boxd_error_words(r));
    return 1;
}

/* A descriptor of the mounting process; -1 when it is not known. */
static int mounting_process(const char *path)
{
    _cleanup_free_ char *file = strf("%s/.boxd/status", path), *text = NULL, *pid = NULL;
    uint64_t n;

    if (!file || !(text = read_text(file)) || !(pid = status_value(text, "pid")))
        return -1;
    if (parse_u64(pid, INT32_MAX, &n) < 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, (pid_t)n, 0);
}

static bool ended(int process, int timeout_ms)
{
    struct pollfd p = { .fd = process, .events = POLLIN };

    return process < 0 || poll(&p, 1, timeout_ms) == 1;
}

static bool is_other_device(void *arg, const struct mount_entry *e)
{
    char **device = arg;

    if (strcmp(e->device, *device) != 0)
        return true;
    *device = NULL;
    return false;
}

/* Whether no mount that we can see is of this device any more. */
static bool out_of_sight(dev_t dev)
{
    char text[32], *device = text;

    snprintf(text, sizeof text, "%u:%u", major(dev), minor(dev));
    return mounts_each(is_other_device, &device) == 0 && device;
}

static int wait_for_end(int process)
{
    if (ended(process, END_MS))
        return 0;
    return boxd_words(-ETIMEDOUT, "unmounted, but its process still runs after %d s",
                      END_MS / 1000);
}

/* Files are open in it, so the kernel would keep the process as long as they are: it is told to
 * end, and unmounts lazily. */
static int end_process(int process)
{
    if (process < 0)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0) < 0 ? -errno : 0;
}

static int unmount(const char *path, bool force)
{
    _cleanup_close_ int process = -1;
    struct stat st = { 0 };
    int r;

    if (mount_dead(path))
        return mount_recover(path);
    process = mounting_process(path);
    if (stat(path, &st) < 0)
        return boxd_words(-errno, "cannot look at '%s': %s", path, strerror(errno));
    r = mount_detach(path, false);
    if (r < 0 && force)
        r = end_process(process) < 0 ? mount_detach(path, true) : 0;
    else if (r < 0)
        return boxd_words(r, "%s (who uses it: fuser -vm '%s'; anyway: boxdfs umount -f '%s')",
                          boxd_error_words(r), path, path);
    /* A namespace that was made while it was mounted, as every container's is, holds a copy of the
     * mount that only its own processes could see, and the kernel waits for that too. */
    if (r == 0 && !ended(process, HIDDEN_MS) && out_of_sight(st.st_dev))
        end_process(process);
    return r < 0 ? r : wait_for_end(process);
}

int cmd_umount(int argc, char **argv)
{
    bool force = argc > 0 && !strcmp(argv[0], "-f");
    _cleanup_free_ char *path = NULL, *type = NULL;
    int r;

    if (argc != 1 + force || argv[force][0] == '-')
        return complain(boxd_words(-EINVAL, "usage: boxdfs umount [-f] MOUNTPOINT"));
    r = mount_path(argv[force], &path);
    if (r >= 0)
        r = mounts_type(path, &type);
    if (r >= 0 && (!type || strcmp(type, "fuse.boxdfs")))
        r = boxd_words(-EINVAL, "'%s' is not a boxdfs mount", path);
    if (r >= 0)
        r = unmount(path, force);
    return r < 0 ? complain(r) : 0;
}
