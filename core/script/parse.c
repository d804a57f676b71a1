/* Answers of shell lines to values. The machine is hostile: every number, name and count is
 * checked here, and nowhere else. */
#include "base/base.h"

#include <boxd/error.h>
#include <sys/sysmacros.h>

#include "base/str.h"
#include "script/line.h"

#define ENTRIES_MAX (1u << 20)

static int malformed(const char *what)
{
    return boxd_words(-EIO, "the machine's answer to %s is malformed", what);
}

/* A number in base 10 or 16, ended by `end`; moves *p behind it. */
static bool number(const char **p, int base, char end, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    const char *start = *p;

    for (;; (*p)++) {
        char c = **p;
        unsigned digit;

        if (c >= '0' && c <= '9')
            digit = (unsigned)(c - '0');
        else if (base == 16 && c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            break;
        if (v > (max - digit) / (unsigned)base)
            return false;
        v = v * (unsigned)base + digit;
    }
    if (*p == start || **p != end)
        return false;
    (*p)++;
    *out = v;
    return true;
}

static bool seconds(const char **p, char end, time_t *out)
{
    bool negative = **p == '-';
    uint64_t v;

    if (negative)
        (*p)++;
    /* what gmtime and the kernel can hold for certain */
    if (!number(p, 10, end, (uint64_t)1 << 40, &v))
        return false;
    *out = negative ? -(time_t)v : (time_t)v;
    return true;
}

/* The fraction in "2024-01-01 01:02:03.123456789 +0000|"; none is 0. Ends behind the bar. */
static bool fraction(const char **p, long *out)
{
    const char *bar = strchr(*p, '|'), *dot;
    long v = 0, unit = 100000000;

    if (!bar || bar - *p > 64)
        return false;
    dot = memchr(*p, '.', (size_t)(bar - *p));
    for (const char *d = dot ? dot + 1 : bar; d < bar && *d >= '0' && *d <= '9' && unit; d++) {
        v += (*d - '0') * unit;
        unit /= 10;
    }
    *out = v;
    *p = bar + 1;
    return true;
}

/* Moves *p behind the record; the fields are those of STAT_FORMAT in line.c. */
static bool stat_fields(const char **p, struct stat *st)
{
    uint64_t size, ino, dev, mode, nlink, uid, gid, blocks, blksize, major_, minor_;
    struct timespec a = { 0 }, m = { 0 }, c = { 0 };
    bool good = number(p, 10, ' ', INT64_MAX, &size) && number(p, 10, ' ', UINT64_MAX, &ino) &&
                number(p, 10, '|', UINT64_MAX, &dev) && fraction(p, &m.tv_nsec) &&
                fraction(p, &c.tv_nsec) && number(p, 16, ' ', 0177777, &mode) &&
                number(p, 10, ' ', UINT32_MAX, &nlink) && number(p, 10, ' ', UINT32_MAX, &uid) &&
                number(p, 10, ' ', UINT32_MAX, &gid) && number(p, 10, ' ', INT64_MAX, &blocks) &&
                number(p, 10, ' ', INT32_MAX, &blksize) && number(p, 16, ' ', 0xfff, &major_) &&
                number(p, 16, ' ', 0xfffff, &minor_) && seconds(p, ' ', &a.tv_sec) &&
                seconds(p, ' ', &m.tv_sec) && seconds(p, ' ', &c.tv_sec) && fraction(p, &a.tv_nsec);

    if (!good)
        return false;
    switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
        break;
    default:
        return false;
    }
    *st = (struct stat){
        .st_dev = dev,
        .st_ino = ino,
        .st_mode = (mode_t)mode,
        .st_nlink = (nlink_t)nlink,
        .st_uid = (uid_t)uid,
        .st_gid = (gid_t)gid,
        .st_rdev = makedev((unsigned)major_, (unsigned)minor_),
        .st_size = (off_t)size,
        .st_blksize = (blksize_t)blksize,
        .st_blocks = (blkcnt_t)blocks,
        .st_atim = a,
        .st_mtim = m,
        .st_ctim = c,
    };
    return true;
}

int line_stat_parse(const char *text, struct stat *st)
{
    return stat_fields(&text, st) && (!*text || !strcmp(text, "\n")) ? 0 : malformed("stat");
}

static int add_entry(struct listing *l, const char *name, const struct stat *st)
{
    if (l->count >= ENTRIES_MAX)
        return boxd_words(-EIO, "the machine's directory has more than %u entries", ENTRIES_MAX);
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct boxd_list_entry *entries = reallocarray(l->entries, cap, sizeof *entries);

        if (!entries)
            return -ENOMEM;
        l->entries = entries;
        l->cap = cap;
    }
    l->entries[l->count++] = (struct boxd_list_entry){ .name = name, .st = *st };
    return 0;
}

/* Takes "NAME/\n" at *p (after "./"), ends the name with NUL there and moves behind it. */
static bool take_name(char **p, const char **name)
{
    char *slash = strchr(*p, '/');

    if (!slash || slash[1] != '\n' || slash - *p > BOXD_NAME_MAX)
        return false;
    *name = *p;
    *slash = '\0';
    *p = slash + 2;
    return true;
}

static bool skip(char **p, const char *text)
{
    size_t n = strlen(text);

    if (strncmp(*p, text, n))
        return false;
    *p += n;
    return true;
}

/* The directory's own record, then the type of its file system, then one record an entry. */
int listing_parse(struct listing *l, const char *text, size_t n)
{
    static const char kernel_types[][12] = {
        "9fa0",     "62656572", "1cd1",     "27e0eb",   "63677270", "64626720",
        "74726163", "73636673", "cafe4a11", "62656570", "f97cff8c", "19800202",
        "de5e81e4", "6165676c", "42494e4d", "65735543", "6e736673",
    };
    const char *name, *at;
    char *p;

    *l = (struct listing){ .names = malloc(n + 1) };
    if (!l->names)
        return -ENOMEM;
    memcpy(l->names, text, n);
    l->names[n] = '\0';
    p = l->names;
    if (memchr(text, '\0', n))
        return malformed("list");
    at = p;
    if (!stat_fields(&at, &l->self))
        return malformed("list");
    p += at - p;
    if (!skip(&p, "./\n") || !take_name(&p, &name))
        return malformed("list");
    for (size_t i = 0; i < ARRAY_LEN(kernel_types); i++)
        l->kernel |= !strcmp(name, kernel_types[i]);
    while (*p) {
        struct stat st;
        int r;

        at = p;
        if (!stat_fields(&at, &st))
            return malformed("list");
        p += at - p;
        if (!skip(&p, "./") || !take_name(&p, &name) || !*name)
            return malformed("list");
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        r = add_entry(l, name, &st);
        if (r < 0)
            return r;
    }
    return 0;
}

void listing_clear(struct listing *l)
{
    free(l->entries);
    free(l->names);
    *l = (struct listing){ 0 };
}

int line_statfs_parse(const char *text, struct statvfs *st)
{
    uint64_t blocks, bfree, bavail, size, files, ffree, namemax;
    const char *p = text;

    if (!number(&p, 10, ' ', INT64_MAX, &blocks) || !number(&p, 10, ' ', INT64_MAX, &bfree) ||
        !number(&p, 10, ' ', INT64_MAX, &bavail) || !number(&p, 10, ' ', 1u << 30, &size) ||
        !number(&p, 10, ' ', INT64_MAX, &files) || !number(&p, 10, ' ', INT64_MAX, &ffree) ||
        !number(&p, 10, '\n', UINT32_MAX, &namemax) || *p)
        return malformed("statfs");
    *st = (struct statvfs){
        .f_bsize = size,
        .f_frsize = size,
        .f_blocks = blocks,
        .f_bfree = bfree,
        .f_bavail = bavail,
        .f_files = files,
        .f_ffree = ffree,
        .f_favail = ffree,
        .f_namemax = namemax < BOXD_NAME_MAX ? namemax : BOXD_NAME_MAX,
    };
    return 0;
}

int line_readlink_parse(const char *text, size_t n, const char **target, const char **resolved)
{
    const char *end = text ? memchr(text, '\0', n) : NULL;

    if (!end || end == text || end - text > BOXD_PATH_MAX)
        return malformed("readlink");
    *target = text;
    *resolved = end + 1;
    if (memchr(*resolved, '\0', n - (size_t)(*resolved - text)) ||
        n - (size_t)(*resolved - text) > BOXD_PATH_MAX || (**resolved && **resolved != '/'))
        return malformed("readlink");
    return 0;
}

int line_user_parse(const char *text, uid_t *uid, gid_t *gid)
{
    uint64_t u, g;
    const char *p = text;

    if (!number(&p, 10, '\n', UINT32_MAX - 1, &u) || !number(&p, 10, '\n', UINT32_MAX - 1, &g) ||
        *p)
        return malformed("id");
    *uid = (uid_t)u;
    *gid = (gid_t)g;
    return 0;
}
