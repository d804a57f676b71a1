/* The machine's users, see users.h. */
#include "base/base.h"
#include "base/str.h"
#include "helper/users.h"

#include <fcntl.h>
#include <sys/stat.h>

#define FILE_MAX ((size_t)1 << 20) /* what is behind it is not looked at */
#define ID_MAX 0xfffffffeULL
#define FIELDS 7

/* Reads a regular file; an empty string when there is none. NULL: memory ran out. */
static char *slurp(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    size_t got = 0;
    char *text = calloc(1, FILE_MAX + 1);

    if (!text || fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return text;
    while (got < FILE_MAX) {
        ssize_t n = read(fd, text + got, FILE_MAX - got);

        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return text;
}

/* Cuts the next line into fields at its colons; how many there are, 0 at the end. */
static size_t next_line(char **at, char *f[FIELDS])
{
    char *line = strsep(at, "\n");
    size_t n = 0;

    if (!line)
        return 0;
    while (line && n < FIELDS)
        f[n++] = strsep(&line, ":");
    return n;
}

static bool parse_id(const char *s, uint32_t *id)
{
    uint64_t v;

    if (parse_u64(s, ID_MAX, &v) < 0)
        return false;
    *id = (uint32_t)v;
    return true;
}

/* Fills u from the line of `name`, or of `uid` when name is NULL. */
static bool find_line(const char *name, uid_t uid, struct user *u)
{
    _cleanup_free_ char *text = slurp("/etc/passwd");
    char *at = text, *f[FIELDS];
    size_t n;

    while (at && (n = next_line(&at, f))) {
        uid_t id;
        gid_t gid;

        if (n < FIELDS || !parse_id(f[2], &id) || !parse_id(f[3], &gid))
            continue;
        if (name ? strcmp(f[0], name) != 0 : id != uid)
            continue;
        u->uid = id;
        u->gid = gid;
        snprintf(u->name, sizeof u->name, "%s", f[0]);
        snprintf(u->home, sizeof u->home, "%s", f[5][0] == '/' ? f[5] : "/");
        snprintf(u->shell, sizeof u->shell, "%s", f[6][0] == '/' ? f[6] : "/bin/sh");
        return true;
    }
    return false;
}

static void find_groups(struct user *u)
{
    _cleanup_free_ char *text = slurp("/etc/group");
    char *at = text, *f[FIELDS];
    size_t n;

    u->groups[0] = u->gid;
    u->ngroups = 1;
    while (at && u->ngroups < USER_GROUPS && (n = next_line(&at, f))) {
        gid_t gid;
        char *members = n >= 4 ? f[3] : NULL, *m;

        if (!members || !parse_id(f[2], &gid) || gid == u->gid)
            continue;
        while ((m = strsep(&members, ",")))
            if (!strcmp(m, u->name)) {
                u->groups[u->ngroups++] = gid;
                break;
            }
    }
}

int user_find(const char *who, struct user *u)
{
    uint32_t id;

    memset(u, 0, sizeof *u);
    if (!who) {
        if (!find_line("boxd", 0, u) && !find_line("root", 0, u)) {
            snprintf(u->name, sizeof u->name, "root");
            snprintf(u->home, sizeof u->home, "/");
            snprintf(u->shell, sizeof u->shell, "/bin/sh");
        }
    } else if (!find_line(who, 0, u)) {
        if (!parse_id(who, &id))
            return -ENOENT;
        if (!find_line(NULL, id, u)) {
            u->uid = id;
            u->gid = 0;
            snprintf(u->name, sizeof u->name, "%u", id);
            snprintf(u->home, sizeof u->home, "/");
            snprintf(u->shell, sizeof u->shell, "/bin/sh");
        }
    }
    find_groups(u);
    return 0;
}

int group_find(const char *name, gid_t *gid)
{
    _cleanup_free_ char *text = slurp("/etc/group");
    char *at = text, *f[FIELDS];
    size_t n;

    while (at && (n = next_line(&at, f)))
        if (n >= 3 && !strcmp(f[0], name) && parse_id(f[2], gid))
            return 0;
    return -ENOENT;
}
