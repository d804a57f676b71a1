/* Layers and unpacked images: which one, and building it once for all who wait. */
#include "base/base.h"
#include "base/str.h"
#include "local/internal.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <sys/stat.h>

#define GENERATOR 1 /* a change of what the layer is made of */

/* One build under way. */
struct build {
    struct list link; /* in host.builds */
    struct list waiters;
    char stamp[STAMP_SIZE];
    struct host *host;
};

static void mix(uint64_t *hash, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        *hash ^= (v >> (8 * i)) & 0xff;
        *hash *= 0x100000001b3ULL; /* FNV-1a */
    }
}

static void mix_file(uint64_t *hash, const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        memset(&st, 0, sizeof st);
    mix(hash, (uint64_t)st.st_size);
    mix(hash, (uint64_t)st.st_ino);
    mix(hash, (uint64_t)st.st_mtim.tv_sec);
    mix(hash, (uint64_t)st.st_mtim.tv_nsec);
}

/* Whose ids the files of a layer or an unpacked image have. */
static const char *ids_name(const struct host *h, bool privileged)
{
    return privileged ? "privileged" : host_kind_name(h->kind);
}

int layer_stamp(struct host *h, bool privileged, char out[STAMP_SIZE])
{
    static const char *const files[] = { "/var/lib/dpkg/status",  "/var/lib/rpm", "/etc",
                                         "/var/lib/pacman/local", "/etc/passwd",  "/etc/group" };
    uint64_t hash = 0xcbf29ce484222325ULL;

    mix(&hash, GENERATOR);
    mix(&hash, h->view && !privileged);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        mix_file(&hash, files[i]);
    snprintf(out, STAMP_SIZE, "%s-%016" PRIx64, ids_name(h, privileged), hash);
    return 0;
}

static void build_done(void *arg, int r)
{
    struct build *b = arg;
    _cleanup_free_ char *words = r < 0 ? strdup(boxd_error_words(r)) : NULL;

    list_remove(&b->link);
    while (!list_empty(&b->waiters)) {
        struct build_waiter *w = container_of(b->waiters.next, struct build_waiter, link);

        list_remove(&w->link);
        if (words)
            boxd_words(r, "%s", words);
        w->done(w->arg, r);
    }
    free(b);
}

void build_forget(struct build_waiter *w)
{
    list_remove(&w->link);
}

void build_drop_all(struct host *h)
{
    list_each_safe(l, &h->builds) free(container_of(l, struct build, link));
    list_init(&h->builds);
}

/* Joins a build under way. */
static bool build_join(struct host *h, const char *stamp, struct build_waiter *w)
{
    list_each(l, &h->builds)
    {
        struct build *b = container_of(l, struct build, link);

        if (!strcmp(b->stamp, stamp)) {
            list_add(&b->waiters, &w->link);
            return true;
        }
    }
    return false;
}

static int build_start(struct host *h, struct spawn *s, const char *mode, const char *stamp,
                       struct build_waiter *w)
{
    struct build *b = calloc(1, sizeof *b);
    int r;

    if (!b)
        return -ENOMEM;
    snprintf(b->stamp, sizeof b->stamp, "%s", stamp);
    list_init(&b->waiters);
    b->host = h;
    r = job_start(h, s, mode, build_done, b, NULL);
    if (r < 0) {
        free(b);
        return r;
    }
    list_add(&h->builds, &b->link);
    list_add(&b->waiters, &w->link);
    return 1;
}

static int exists(struct host *h, const char *dir, const char *stamp)
{
    _cleanup_free_ char *path = strf("%s/%s/%s", h->state, dir, stamp);

    if (!path)
        return -ENOMEM;
    if (access(path, F_OK) == 0)
        return 1;
    return errno == ENOENT ? 0 : boxd_words(-errno, "cannot open '%s': %m", path);
}

/* The computer's sudo, when the machine's ids can run it. */
static bool needs_shim(struct host *h)
{
    struct stat st;

    return h->kind == HOST_USER_SINGLE || stat("/usr/bin/sudo", &st) < 0 ||
           !(st.st_mode & S_IROTH) || !(st.st_mode & S_ISUID);
}

int layer_ensure(struct host *h, bool privileged, const char *stamp, struct build_waiter *w)
{
    _cleanup_(spawn_clear) struct spawn s;
    _cleanup_close_ int shim = -1;
    char fresh[STAMP_SIZE];
    int r = exists(h, "layers", stamp);

    spawn_init(&s);
    if (r != 0)
        return r < 0 ? r : 0;
    r = layer_stamp(h, privileged, fresh);
    if (r == 0 && strcmp(fresh, stamp) != 0)
        return boxd_words(-ENOENT, "the layer '%s' that this machine was made with is gone", stamp);
    if (build_join(h, stamp, w))
        return 1;
    if (needs_shim(h)) {
        shim = host_program(h, "boxd-sudo");
        if (shim < 0)
            return shim;
    }
    host_spawn_base(h, &s);
    spawn_str(&s, "stamp", stamp);
    spawn_fd(&s, "shim", shim);
    spawn_num(&s, "real", h->kind == HOST_ROOT);
    spawn_num(&s, "shift", h->kind == HOST_ROOT && !privileged ? SHIFT : 0);
    return build_start(h, &s, "layer", stamp, w);
}

/* ---- images -----------------------------------------------------------------------------------
 */

static const char *const image_endings[] = { "", ".tar", ".tar.gz", ".tar.zst" };

/* Opens `path` with each ending; the name that there is in *found. */
static int open_image(const char *path, char **found)
{
    for (size_t i = 0; i < ARRAY_LEN(image_endings); i++) {
        char *p = strf("%s%s", path, image_endings[i]);
        int fd;

        if (!p)
            return -ENOMEM;
        fd = open(p, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0) {
            *found = p;
            return fd;
        }
        free(p);
        if (errno != ENOENT)
            return -errno;
    }
    return -ENOENT;
}

int image_find(struct host *h, bool privileged, const char *image, char **path, int *fd,
               char stamp[STAMP_SIZE])
{
    _cleanup_free_ char *full =
        image[0] == '/' ? strdup(image) : strf("%s/images/%s", h->state, image);
    _cleanup_free_ char *found = NULL;
    _cleanup_close_ int file = -1;
    uint64_t hash = 0xcbf29ce484222325ULL;
    struct stat st;

    if (!full)
        return -ENOMEM;
    if (!*image || (image[0] != '/' && (strchr(image, '/') || image[0] == '.')))
        return boxd_words(-EINVAL, "'%s' is not the name of an image", image);
    file = open_image(full, &found);
    if (file < 0)
        return boxd_words(file,
                          file == -ENOENT ? "image '%s' does not exist (a directory or tarball of "
                                            "this name under '%s/images', or an absolute path)"
                                          : "cannot open image '%s' (looked under '%s/images')",
                          image, h->state);
    if (fstat(file, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode)) {
        *path = steal_ptr(found);
        return 0;
    }
    if (!S_ISREG(st.st_mode))
        return boxd_words(-EINVAL, "image '%s' is neither a directory nor a tarball", image);
    mix_file(&hash, found);
    for (const char *p = found; *p; p++)
        mix(&hash, (unsigned char)*p);
    snprintf(stamp, STAMP_SIZE, "%s-%016" PRIx64, ids_name(h, privileged), hash);
    *fd = steal_fd(&file);
    return 0;
}

int image_ensure(struct host *h, bool privileged, const char *name, int fd, const char *stamp,
                 struct build_waiter *w)
{
    _cleanup_(spawn_clear) struct spawn s;
    int r = exists(h, "unpacked", stamp);

    spawn_init(&s);
    if (r != 0)
        return r < 0 ? r : 0;
    if (build_join(h, stamp, w))
        return 1;
    host_spawn_base(h, &s);
    spawn_str(&s, "stamp", stamp);
    spawn_str(&s, "name", name);
    spawn_fd(&s, "image", fd);
    spawn_fd(&s, "shift", h->kind == HOST_ROOT && !privileged ? h->user : -1);
    return build_start(h, &s, "unpack", stamp, w);
}

int host_image_check(struct host *h, const char *image)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;
    char stamp[STAMP_SIZE];

    if (!strcmp(image, "host"))
        return 0;
    return image_find(h, false, image, &path, &fd, stamp);
}
