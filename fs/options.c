/* fs/options.c: one table for -o words, long options and fstab; nothing is mounted here. */
#include "fs.h"

#include "options.h"

#include <fnmatch.h>

#define DEFAULT_SCRIPT_MAX ((uint64_t)100 * 1024 * 1024)
#define DEFAULT_READY_MS (180 * 1000)
#define DEFAULT_OP_MS (60 * 1000)

enum kind { FLAG, TEXT, SIZE, SECONDS, CHOICE, IGNORED, REFUSED };

struct option {
    const char *name; /* for IGNORED a pattern */
    enum kind kind;
    size_t at;         /* in struct options */
    const char *value; /* CHOICE: the only value that switches on; REFUSED: why */
    const char *help;  /* NULL: not shown */
};

#define AT(field) offsetof(struct options, field)

static const struct option table[] = {
    { "local", FLAG, AT(local), NULL, "use machines on this computer (boxd-local)" },
    { "address", TEXT, AT(address), "URL", "use the service at URL, or unix:/PATH" },
    { "local_options", TEXT, AT(local_options), "TEXT",
      "options for a boxd-local that is started" },
    { "log", TEXT, AT(log), "FILE", "write a log" },
    { "debug", FLAG, AT(debug), NULL, "log more" },
    { "allow_other", FLAG, AT(allow_other), NULL, "let other users in (with default_permissions)" },
    { "default_permissions", FLAG, AT(default_permissions), NULL, "let the kernel check modes" },
    { "rmdir", CHOICE, AT(rmdir_deletes), "delete", "let rmdir destroy a machine" },
    { "special", CHOICE, AT(hide_special), "hidden", "do not list ctl and exec in machines" },
    { "script_max", SIZE, AT(script_max), "SIZE",
      "largest file that goes through a script (100M)" },
    { "ready_timeout", SECONDS, AT(ready_timeout_ms), "S", "longest wait for a machine (180)" },
    { "op_timeout", SECONDS, AT(op_timeout_ms), "S", "longest wait for a file operation (60)" },
    { "fsname", TEXT, AT(fsname), "NAME", "the source that df and mount show" },
    { "foreground", FLAG, AT(foreground), NULL, "stay in the foreground (-f)" },
    { "ro", REFUSED, 0, "machines cannot be mounted read-only", NULL },
    { "suid", REFUSED, 0, "a machine's set-user-id programs must not run here", NULL },
    { "dev", REFUSED, 0, "a machine's device files must not work here", NULL },
    { "rw", IGNORED, 0, NULL, NULL },
    { "defaults", IGNORED, 0, NULL, NULL },
    { "nosuid", IGNORED, 0, NULL, NULL }, /* always */
    { "nodev", IGNORED, 0, NULL, NULL },  /* always */
    { "exec", IGNORED, 0, NULL, NULL },
    { "auto", IGNORED, 0, NULL, NULL },
    { "noauto", IGNORED, 0, NULL, NULL },
    { "nofail", IGNORED, 0, NULL, NULL },
    { "_netdev", IGNORED, 0, NULL, NULL },
    { "user", IGNORED, 0, NULL, NULL },
    { "user=*", IGNORED, 0, NULL, NULL },
    { "users", IGNORED, 0, NULL, NULL },
    { "nouser", IGNORED, 0, NULL, NULL },
    { "owner", IGNORED, 0, NULL, NULL },
    { "group", IGNORED, 0, NULL, NULL },
    { "comment=*", IGNORED, 0, NULL, NULL },
    { "x-*", IGNORED, 0, NULL, NULL },
};

void options_init(struct options *o)
{
    *o = (struct options){ .script_max = DEFAULT_SCRIPT_MAX,
                           .ready_timeout_ms = DEFAULT_READY_MS,
                           .op_timeout_ms = DEFAULT_OP_MS };
}

void options_clear(struct options *o)
{
    free(o->mount_point);
    free(o->address);
    free(o->log);
    free(o->fsname);
    free(o->local_options);
    *o = (struct options){ 0 };
}

static bool matches(const struct option *e, const char *word, size_t name_len)
{
    if (e->kind == IGNORED)
        return fnmatch(e->name, word, 0) == 0;
    return strlen(e->name) == name_len && !strncmp(e->name, word, name_len);
}

static int set_text(char **field, const char *value)
{
    char *copy = strdup(value);

    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

static int set_seconds(uint32_t *field, const char *name, const char *value)
{
    uint64_t s;

    if (parse_seconds(value, &s) < 0 || !s || s > UINT32_MAX / 1000)
        return boxd_words(-EINVAL, "option '%s' needs seconds from 1 to %u, not '%s'", name,
                          UINT32_MAX / 1000, value);
    *field = (uint32_t)(s * 1000);
    return 0;
}

static int set_size(uint64_t *field, const char *name, const char *value)
{
    if (parse_size(value, field) < 0 || !*field)
        return boxd_words(-EINVAL, "option '%s' needs a size like 100M, not '%s'", name, value);
    return 0;
}

static int set_choice(bool *field, const struct option *e, const char *value)
{
    if (strcmp(value, e->value))
        return boxd_words(-EINVAL, "option '%s' can only be '%s', not '%s'", e->name, e->value,
                          value);
    *field = true;
    return 0;
}

static int set(struct options *o, const struct option *e, const char *value)
{
    void *field = (char *)o + e->at;

    if (e->kind == REFUSED)
        return boxd_words(-EINVAL, "option '%s' is refused: %s", e->name, e->value);
    if (e->kind == IGNORED)
        return 0;
    if (e->kind == FLAG && value)
        return boxd_words(-EINVAL, "option '%s' takes no value", e->name);
    if (e->kind != FLAG && (!value || !*value))
        return boxd_words(-EINVAL, "option '%s' needs a value: %s=%s", e->name, e->name, e->value);
    switch (e->kind) {
    case TEXT:
        return set_text(field, value);
    case SIZE:
        return set_size(field, e->name, value);
    case SECONDS:
        return set_seconds(field, e->name, value);
    case CHOICE:
        return set_choice(field, e, value);
    default:
        *(bool *)field = true;
        return 0;
    }
}

static const struct option *find(const char *word)
{
    size_t n = strcspn(word, "=");

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (matches(&table[i], word, n))
            return &table[i];
    return NULL;
}

static int parse_word(struct options *o, const char *word)
{
    const struct option *e = find(word);
    const char *eq = strchr(word, '=');

    if (!e)
        return boxd_words(-EINVAL, "unknown option '%.*s' (see 'boxdfs help')",
                          (int)strcspn(word, "="), word);
    return set(o, e, eq ? eq + 1 : NULL);
}

int options_parse_list(struct options *o, const char *list)
{
    _cleanup_buf_ struct buf word = { 0 };
    int r = 0;

    for (const char *p = list; r >= 0; p++) {
        if (*p && *p != ',') {
            if (*p == '\\' && p[1])
                p++;
            r = buf_addch(&word, *p);
            continue;
        }
        if (word.len)
            r = parse_word(o, buf_str(&word));
        buf_truncate(&word, 0);
        if (!*p)
            break;
    }
    return r;
}

/* `--script-max=1G` or `--script-max 1G` is `script_max=1G`; *used = words taken. */
static int parse_long(struct options *o, char **argv, int *used)
{
    _cleanup_free_ char *word = strdup(argv[0] + 2);
    _cleanup_free_ char *joined = NULL;
    const struct option *e;

    if (!word)
        return -ENOMEM;
    for (char *p = word; *p && *p != '='; p++)
        if (*p == '-')
            *p = '_';
    e = find(word);
    *used = 1;
    if (!e || e->kind == IGNORED || e->kind == REFUSED)
        return boxd_words(-EINVAL, "unknown option '%s' (see 'boxdfs help')", argv[0]);
    if (e->kind == FLAG || strchr(word, '=') || !argv[1])
        return parse_word(o, word);
    *used = 2;
    joined = strf("%s=%s", word, argv[1]);
    return joined ? parse_word(o, joined) : -ENOMEM;
}

/* -o LIST or -oLIST; *used = words taken. */
static int parse_o(struct options *o, char **argv, int *used)
{
    const char *list = argv[0][2] ? argv[0] + 2 : argv[1];

    *used = argv[0][2] ? 1 : 2;
    return list ? options_parse_list(o, list) : boxd_words(-EINVAL, "option '-o' needs a list");
}

static int check(const struct options *o)
{
    if (!o->mount_point)
        return boxd_words(-EINVAL, "a mount point is missing (see 'boxdfs help')");
    if (o->local && o->address)
        return boxd_words(-EINVAL, "'local' and 'address' exclude each other");
    if (o->local_options && !o->local)
        return boxd_words(-EINVAL, "'local_options' needs --local");
    if (o->allow_other && !o->default_permissions)
        return boxd_words(-EINVAL, "'allow_other' without 'default_permissions' would let every "
                                   "user act as you: add -o default_permissions");
    return 0;
}

static int set_mount_point(struct options *o, const char *path)
{
    if (o->mount_point)
        return boxd_words(-EINVAL, "one mount point, not two: '%s' and '%s'", o->mount_point, path);
    return set_text(&o->mount_point, path);
}

int options_parse(struct options *o, int argc, char **argv)
{
    bool only_names = false;

    for (int i = 1, used, r; i < argc; i += used) {
        const char *a = argv[i];

        used = 1;
        r = 0;
        if (only_names || a[0] != '-' || !a[1])
            r = set_mount_point(o, a);
        else if (!strcmp(a, "--"))
            only_names = true;
        else if (!strcmp(a, "-h") || !strcmp(a, "--help"))
            return OPTIONS_HELP;
        else if (!strcmp(a, "-V") || !strcmp(a, "--version"))
            return OPTIONS_VERSION;
        else if (!strcmp(a, "-f"))
            o->foreground = true;
        else if (starts_with(a, "--"))
            r = parse_long(o, argv + i, &used);
        else if (starts_with(a, "-o"))
            r = parse_o(o, argv + i, &used);
        else
            r = boxd_words(-EINVAL, "unknown option '%s' (see 'boxdfs help')", a);
        if (r < 0)
            return r;
    }
    return check(o);
}

int options_parse_helper(struct options *o, int argc, char **argv)
{
    const char *source = NULL;
    bool fake = false;

    for (int i = 1, used, r; i < argc; i += used) {
        const char *a = argv[i];

        used = 1;
        r = 0;
        if (starts_with(a, "-o"))
            r = parse_o(o, argv + i, &used);
        else if (!strcmp(a, "-t") || !strcmp(a, "-N"))
            used = 2;
        else if (a[0] == '-' && a[1] && strspn(a + 1, "sfnvrw") == strlen(a + 1))
            fake = fake || strchr(a, 'f');
        else if (a[0] == '-')
            r = boxd_words(-EINVAL,
                           "unknown option '%s' (usage: mount.boxdfs SOURCE MOUNTPOINT "
                           "[-o OPTIONS])",
                           a);
        else if (!source)
            source = a;
        else
            r = set_mount_point(o, a);
        if (r < 0)
            return r;
    }
    if (source && !strcmp(source, "local"))
        o->local = true;
    else if (source && !o->address && set_text(&o->address, source) < 0)
        return -ENOMEM;
    if (source && !o->fsname && set_text(&o->fsname, source) < 0)
        return -ENOMEM;
    return check(o) < 0 ? -EINVAL : fake ? OPTIONS_NOTHING : OPTIONS_MOUNT;
}

void options_print(FILE *to)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct option *e = &table[i];

        if (e->help)
            fprintf(to, "  -o %s%s%-*s %s\n", e->name, e->value ? "=" : "",
                    24 - (int)strlen(e->name) - (e->value != NULL), e->value ? e->value : "",
                    e->help);
    }
}
