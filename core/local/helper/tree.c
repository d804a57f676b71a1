/* Deleting trees that may be another user's and hostile: by descriptors, following no link. */
#include "base/base.h"
#include "helper/helper.h"

#include <boxd/error.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

/* One descriptor a level is open; what lies deeper is first moved up into the top directory. */
#define DEPTH_MAX 200

static int remove_level(int top, int parent, const char *name, unsigned depth);

static int remove_content(int top, int fd, unsigned depth)
{
    _cleanup_closedir_ DIR *d = fdopendir(fd);
    struct dirent *e;
    int r = 0;

    if (!d) {
        close(fd);
        return -ENOMEM;
    }
    while (r == 0 && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM)
            r = -errno;
        else
            r = remove_level(top >= 0 ? top : dirfd(d), dirfd(d), e->d_name, depth + 1);
    }
    return r;
}

static int remove_level(int top, int parent, const char *name, unsigned depth)
{
    static unsigned counter;
    char moved[32];
    int fd, r;

    if (depth > DEPTH_MAX) {
        snprintf(moved, sizeof moved, ".deep-%u", counter++);
        return renameat(parent, name, top, moved) < 0 ? -errno : 0;
    }
    fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
        fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = remove_content(top, fd, depth);
    return r == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : r;
}

int remove_tree(int parent, const char *name)
{
    int r;

    do { /* again for what was moved up */
        r = remove_level(-1, parent, name, 0);
    } while (r == -ENOTEMPTY);
    return r;
}

int mode_delete(const struct spec *s)
{
    _cleanup_close_ int machines = -1;
    const char *id = spec_get(s, "id");
    int r = enter_base(s);

    if (r < 0 || chdir(spec_get(s, "state")) < 0)
        return r < 0 ? r : -errno;
    machines = open("machines", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = machines < 0 ? -errno : remove_tree(machines, id);
    if (r < 0 && r != -ENOENT)
        return boxd_words(r, "cannot delete the files of machine '%s': %m", id);
    return msg_simple(HELPER_CONTROL, MSG_DONE, 0);
}
