/* fs/mounts.c: what is mounted where, from /proc/self/mountinfo. Touches no mount. */
#include "fs.h"

#include "commands.h"

/* Undoes the octal escapes of mountinfo in place. */
static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++) {
        if (s[0] == '\\' && strspn(s + 1, "01234567") >= 3) {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 3;
        } else {
            *to++ = *s;
        }
    }
    *to = '\0';
}

/* `36 35 98:0 /root /target options [tags] - type source options`; false for another form. */
static bool parse_line(char *line, struct mount_entry *e)
{
    char *rest = strstr(line, " - "), *save = NULL, *word;
    int field = 0;

    if (!rest)
        return false;
    *rest = '\0';
    rest += 3;
    for (word = strtok_r(line, " ", &save); word && field < 5; field++) {
        if (field == 2)
            e->device = word;
        e->target = word;
        word = field < 4 ? strtok_r(NULL, " ", &save) : word;
    }
    e->type = strtok_r(rest, " ", &save);
    e->source = e->type ? strtok_r(NULL, " ", &save) : NULL;
    e->options = e->source ? strtok_r(NULL, " \n", &save) : NULL;
    if (field < 5 || !e->options)
        return false;
    unescape(e->target);
    unescape(e->source);
    return true;
}

int mounts_each(bool (*each)(void *arg, const struct mount_entry *e), void *arg)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    struct mount_entry e;

    if (!f)
        return boxd_words(-errno, "cannot read /proc/self/mountinfo: %s", strerror(errno));
    while (getline(&line, &room, f) > 0)
        if (parse_line(line, &e) && !each(arg, &e))
            break;
    return 0;
}

struct type_of {
    const char *path;
    char *type;
    bool short_of_memory;
};

static bool remember_type(void *arg, const struct mount_entry *e)
{
    struct type_of *t = arg;

    if (strcmp(e->target, t->path))
        return true;
    free(t->type);
    t->type = strdup(e->type); /* the newest covers the others */
    t->short_of_memory = !t->type;
    return !t->short_of_memory;
}

int mounts_type(const char *path, char **type)
{
    struct type_of t = { .path = path };
    int r = mounts_each(remember_type, &t);

    *type = t.type;
    return t.short_of_memory ? -ENOMEM : r;
}
