/* fs/cmd_status.c: `boxdfs status [--errors] [MNT]`: a table of the machines of one mount, or of
 * all mounts of this user, read through the mounts. No machine is started by it. */
#include "fs.h"

#include "commands.h"
#include "mount.h"
#include "status.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ERROR_LINES 20
#define TEXT_LIMIT ((size_t)1024 * 1024)

char *read_text(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_buf_ struct buf b = { 0 };
    char piece[16384];
    ssize_t n;

    while (fd >= 0 && b.len < TEXT_LIMIT && (n = read(fd, piece, sizeof piece)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || buf_add(&b, piece, (size_t)n) < 0)
            return NULL;
    }
    return fd < 0 ? NULL : buf_steal(&b);
}

struct mounts {
    char **paths;
    size_t count;
    int r;
};

/* Whether the options of a mount say that this user made it. */
static bool is_ours(const char *options)
{
    const char *p = strstr(options, "user_id=");

    return p && strtoul(p + strlen("user_id="), NULL, 10) == getuid();
}

static bool add_mount(void *arg, const struct mount_entry *e)
{
    struct mounts *m = arg;
    char **paths;

    if (strcmp(e->type, "fuse.boxdfs") || !is_ours(e->options))
        return true;
    paths = reallocarray(m->paths, m->count + 1, sizeof *paths);
    if (paths)
        m->paths = paths;
    if (!paths || !(paths[m->count] = strdup(e->target))) {
        m->r = -ENOMEM;
        return false;
    }
    m->count++;
    return true;
}

/* ---- the table ---- */

static const char *or_dash(const char *s)
{
    return s && *s ? s : "-";
}

static void print_machine(const char *mount, const char *name)
{
    _cleanup_free_ char *file = strf("%s/%s/.boxd/status", mount, name);
    _cleanup_free_ char *text = file ? read_text(file) : NULL;
    _cleanup_free_ char *state = NULL, *vcpu = NULL, *memory = NULL, *image = NULL, *id = NULL;
    uint64_t bytes = 0;

    if (!text) { /* destroyed meanwhile, or the mount went */
        printf("%-20s %-10s\n", name, "?");
        return;
    }
    state = status_value(text, "state");
    vcpu = status_value(text, "vcpu");
    memory = status_value(text, "memory");
    image = status_value(text, "image");
    id = status_value(text, "id");
    if (memory && parse_u64(memory, UINT64_MAX, &bytes) < 0)
        bytes = 0;
    printf("%-20s %-10s %5s %7" PRIu64 "M %-12s %s\n", name, or_dash(state), or_dash(vcpu),
           bytes >> 20, or_dash(image), or_dash(id));
}

/* The last lines of a file of errors, each after `prefix`. */
static void print_errors(const char *file, const char *prefix)
{
    _cleanup_free_ char *text = file ? read_text(file) : NULL;
    char *p = text ? text + strlen(text) : NULL;
    size_t lines = 0;

    while (p && p > text && lines <= ERROR_LINES)
        if (*--p == '\n' && ++lines > ERROR_LINES)
            p++;
    for (char *save = NULL, *line = text ? strtok_r(p, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        printf("%s: %s\n", prefix, line);
}

static bool is_machine(const char *mount, const struct dirent *e)
{
    _cleanup_free_ char *path = strf("%s/%s", mount, e->d_name);
    struct stat st;

    if (e->d_name[0] == '.' || !strcmp(e->d_name, "ctl") || !path)
        return false;
    return e->d_type == DT_DIR ||
           (e->d_type == DT_UNKNOWN && !stat(path, &st) && S_ISDIR(st.st_mode));
}

static int print_mount(const char *path, bool errors)
{
    _cleanup_closedir_ DIR *d = NULL;
    _cleanup_free_ char *account = strf("%s/.boxd/errors", path);
    struct dirent *e;

    if (mount_dead(path))
        return boxd_words(-ENOTCONN,
                          "'%s' is dead: its process is gone (mount it again, or: "
                          "boxdfs umount '%s')",
                          path, path);
    d = opendir(path);
    if (!d)
        return boxd_words(-errno, "cannot list '%s': %s", path, strerror(errno));
    if (errors)
        print_errors(account, path);
    else
        printf("%s\n%-20s %-10s %5s %8s %-12s %s\n", path, "NAME", "STATE", "VCPU", "MEMORY",
               "IMAGE", "ID");
    while ((e = readdir(d))) {
        _cleanup_free_ char *file = strf("%s/%s/.boxd/errors", path, e->d_name);

        if (!is_machine(path, e))
            continue;
        if (errors)
            print_errors(file, e->d_name);
        else
            print_machine(path, e->d_name);
    }
    return 0;
}

static int print_or_complain(const char *path, bool errors)
{
    int r = print_mount(path, errors);

    fflush(stdout);
    if (r < 0)
        fprintf(stderr, "boxdfs: %s\n", boxd_error_words(r));
    return r < 0;
}

static int print_one(const char *arg, bool errors)
{
    _cleanup_free_ char *path = NULL, *type = NULL;
    int r = mount_path(arg, &path);

    if (r >= 0)
        r = mounts_type(path, &type);
    if (r >= 0 && (!type || strcmp(type, "fuse.boxdfs")))
        r = boxd_words(-EINVAL, "'%s' is not a boxdfs mount", path);
    if (r >= 0)
        return print_or_complain(path, errors);
    fprintf(stderr, "boxdfs: %s\n", boxd_error_words(r));
    return 1;
}

int cmd_status(int argc, char **argv)
{
    bool errors = argc > 0 && !strcmp(argv[0], "--errors");
    struct mounts m = { 0 };
    int failed = 0;

    if (argc > 1 + errors || (argc > errors && argv[errors][0] == '-')) {
        fprintf(stderr, "boxdfs: usage: boxdfs status [--errors] [MOUNTPOINT]\n");
        return 1;
    }
    if (argc > errors)
        return print_one(argv[errors], errors);
    m.r = mounts_each(add_mount, &m);
    for (size_t i = 0; i < m.count; i++) {
        failed |= print_or_complain(m.paths[i], errors);
        free(m.paths[i]);
    }
    free(m.paths);
    if (m.r >= 0 && !m.count)
        printf("no boxdfs mounts\n");
    return m.r < 0 ? 1 : failed;
}
