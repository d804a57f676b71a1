/* local/state.c: see state.h. */
#include "base/base.h"

#include "base/buf.h"
#include "base/str.h"
#include "local/state.h"
#include <boxd/error.h>
#include <boxd/log.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <sys/stat.h>

#define FILE_MAX (1024 * 1024)
#define EXACT_MAX ((double)((uint64_t)1 << 53))

DEFINE_CLEANUP(cJSON, cJSON_Delete);
#define _cleanup_json_ _cleanup_(cleanup_cJSON_Deletep)

/* ---- pairs --------------------------------------------------------------------------------- */

/* The index of the key, or where it belongs. */
static size_t pairs_find(const struct pairs *p, const char *key, bool *found)
{
    size_t i = 0;

    while (i < p->count && strcmp(p->items[i].key, key) < 0)
        i++;
    *found = i < p->count && !strcmp(p->items[i].key, key);
    return i;
}

int text_set(char **where, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(*where);
    *where = copy;
    return 0;
}

int pairs_set(struct pairs *p, const char *key, const char *value)
{
    _cleanup_free_ char *k = NULL, *v = NULL;
    struct pair *grown;
    bool found;
    size_t i = pairs_find(p, key, &found);

    if (found)
        return text_set(&p->items[i].value, value);
    k = strdup(key);
    v = strdup(value);
    grown = k && v ? reallocarray(p->items, p->count + 1, sizeof(*grown)) : NULL;
    if (!grown)
        return -ENOMEM;
    p->items = grown;
    memmove(grown + i + 1, grown + i, (p->count - i) * sizeof(*grown));
    grown[i] = (struct pair){ steal_ptr(k), steal_ptr(v) };
    p->count++;
    return 0;
}

void pairs_remove(struct pairs *p, const char *key)
{
    bool found;
    size_t i = pairs_find(p, key, &found);

    if (!found)
        return;
    free(p->items[i].key);
    free(p->items[i].value);
    p->count--;
    memmove(p->items + i, p->items + i + 1, (p->count - i) * sizeof(*p->items));
}

const char *pairs_get(const struct pairs *p, const char *key)
{
    bool found;
    size_t i = pairs_find(p, key, &found);

    return found ? p->items[i].value : NULL;
}

void pairs_clear(struct pairs *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->items[i].key);
        free(p->items[i].value);
    }
    free(p->items);
    *p = (struct pairs){ 0 };
}

int pairs_copy(struct pairs *to, const struct pairs *from)
{
    struct pairs copy = { 0 };

    for (size_t i = 0; i < from->count; i++) {
        if (pairs_set(&copy, from->items[i].key, from->items[i].value) < 0) {
            pairs_clear(&copy);
            return -ENOMEM;
        }
    }
    pairs_clear(to);
    *to = copy;
    return 0;
}

/* ---- the record and its JSON --------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} texts[] = {
    { "id", offsetof(struct vm_record, id) },
    { "name", offsetof(struct vm_record, name) },
    { "image", offsetof(struct vm_record, image) },
    { "restart_policy", offsetof(struct vm_record, restart_policy) },
    { "delete_cron", offsetof(struct vm_record, delete_cron) },
    { "failure", offsetof(struct vm_record, failure) },
};

static const char *const wanted_names[] = { "run", "stop", "failed", "gone" };

static char **text_at(const struct vm_record *r, size_t i)
{
    return (char **)(void *)((char *)(uintptr_t)r + texts[i].offset);
}

int vm_record_init(struct vm_record *r)
{
    *r = (struct vm_record){ 0 };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (text_set(text_at(r, i), "") < 0) {
            vm_record_clear(r);
            return -ENOMEM;
        }
    }
    return 0;
}

void vm_record_clear(struct vm_record *r)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(*text_at(r, i));
    pairs_clear(&r->labels);
    pairs_clear(&r->env);
    *r = (struct vm_record){ 0 };
}

static bool print_pairs(cJSON *to, const char *name, const struct pairs *p)
{
    cJSON *o = cJSON_AddObjectToObject(to, name);
    bool good = o;

    for (size_t i = 0; good && i < p->count; i++)
        good = cJSON_AddStringToObject(o, p->items[i].key, p->items[i].value);
    return good;
}

char *vm_record_print(const struct vm_record *r)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        { "vcpu", r->vcpu },
        { "memory", (double)r->memory },
        { "disk", (double)r->disk },
        { "auto_suspend", r->auto_suspend },
        { "created_at", (double)r->created_at },
        { "boot_time_ms", (double)r->boot_time_ms },
        { "last_connected_ms", (double)r->last_connected_ms },
        { "delete_at_ms", (double)r->delete_at_ms },
    };
    _cleanup_json_ cJSON *o = cJSON_CreateObject();
    bool good = o;

    for (size_t i = 0; good && i < ARRAY_LEN(texts); i++)
        good = cJSON_AddStringToObject(o, texts[i].name, *text_at(r, i));
    for (size_t i = 0; good && i < ARRAY_LEN(numbers); i++)
        good = cJSON_AddNumberToObject(o, numbers[i].name, numbers[i].value);
    good = good && cJSON_AddStringToObject(o, "wanted", wanted_names[r->wanted]) &&
           cJSON_AddBoolToObject(o, "isolated", r->isolated) &&
           print_pairs(o, "labels", &r->labels) && print_pairs(o, "env", &r->env);
    return good ? cJSON_Print(o) : NULL;
}

static int bad(const char *what)
{
    return boxd_words(-EBADMSG, "field '%s' is missing or damaged", what);
}

static int read_number(const cJSON *o, const char *name, double max, double *out)
{
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, name);

    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 0) || n->valuedouble > max)
        return bad(name);
    *out = n->valuedouble;
    return 0;
}

static int read_pairs(const cJSON *o, const char *name, struct pairs *out)
{
    const cJSON *from = cJSON_GetObjectItemCaseSensitive(o, name), *item;

    if (!cJSON_IsObject(from))
        return bad(name);
    cJSON_ArrayForEach(item, from)
    {
        if (!cJSON_IsString(item) || !item->string)
            return bad(name);
        if (pairs_set(out, item->string, item->valuestring) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int read_numbers(const cJSON *o, struct vm_record *out)
{
    double vcpu, memory, disk, suspend, created, boot, connected, delete_at;
    const struct {
        const char *name;
        double *to, max;
    } numbers[] = {
        { "vcpu", &vcpu, UINT32_MAX },
        { "memory", &memory, EXACT_MAX },
        { "disk", &disk, EXACT_MAX },
        { "auto_suspend", &suspend, UINT32_MAX },
        { "created_at", &created, EXACT_MAX },
        { "boot_time_ms", &boot, EXACT_MAX },
        { "last_connected_ms", &connected, EXACT_MAX },
        { "delete_at_ms", &delete_at, EXACT_MAX },
    };

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int r = read_number(o, numbers[i].name, numbers[i].max, numbers[i].to);

        if (r < 0)
            return r;
    }
    out->vcpu = (uint32_t)vcpu;
    out->memory = (uint64_t)memory;
    out->disk = (uint64_t)disk;
    out->auto_suspend = (uint32_t)suspend;
    out->created_at = (int64_t)created;
    out->boot_time_ms = (int64_t)boot;
    out->last_connected_ms = (int64_t)connected;
    out->delete_at_ms = (int64_t)delete_at;
    return 0;
}

static int read_record(const cJSON *o, struct vm_record *out)
{
    const cJSON *wanted = cJSON_GetObjectItemCaseSensitive(o, "wanted");
    int r = read_numbers(o, out);

    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const cJSON *s = cJSON_GetObjectItemCaseSensitive(o, texts[i].name);

        if (!cJSON_IsString(s))
            return bad(texts[i].name);
        if (text_set(text_at(out, i), s->valuestring) < 0)
            return -ENOMEM;
    }
    if (!*out->id || strchr(out->id, '/') || out->id[0] == '.')
        return bad("id");
    out->isolated = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(o, "isolated"));
    r = read_pairs(o, "labels", &out->labels);
    if (!r)
        r = read_pairs(o, "env", &out->env);
    if (r < 0)
        return r;
    for (size_t i = 0; cJSON_IsString(wanted) && i < ARRAY_LEN(wanted_names); i++) {
        if (!strcmp(wanted->valuestring, wanted_names[i])) {
            out->wanted = (enum vm_wanted)i;
            return 0;
        }
    }
    return bad("wanted");
}

int vm_record_parse(const char *json, size_t n, struct vm_record *out)
{
    _cleanup_json_ cJSON *o = cJSON_ParseWithLength(json, n);
    int r;

    if (!cJSON_IsObject(o))
        return boxd_words(-EBADMSG, "it is not a JSON object");
    r = vm_record_init(out);
    if (r < 0)
        return r;
    r = read_record(o, out);
    if (r < 0)
        vm_record_clear(out);
    return r;
}

/* ---- files --------------------------------------------------------------------------------- */

static int open_dir(const char *dir)
{
    int fd;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return boxd_words(-errno, "cannot create directory '%s': %m", dir);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? boxd_words(-errno, "cannot open directory '%s': %m", dir) : fd;
}

static int write_whole(int fd, const char *data, size_t n)
{
    while (n) {
        ssize_t w = write(fd, data, n);

        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        data += w;
        n -= (size_t)w;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static int write_file(int dir, const char *name, const char *text)
{
    _cleanup_free_ char *temporary = strf("%s.new", name);
    _cleanup_close_ int fd = -1;
    int r;

    if (!temporary)
        return -ENOMEM;
    fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = write_whole(fd, text, strlen(text));
    if (!r && renameat(dir, temporary, dir, name) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(dir, temporary, 0);
        return r;
    }
    return fsync(dir) < 0 ? -errno : 0;
}

int state_save(const char *dir, const struct vm_record *rec)
{
    _cleanup_free_ char *text = vm_record_print(rec), *name = strf("%s.json", rec->id);
    _cleanup_close_ int fd = -1;
    int r;

    if (!text || !name)
        return -ENOMEM;
    fd = open_dir(dir);
    if (fd < 0)
        return fd;
    r = write_file(fd, name, text);
    return r < 0 ? boxd_words(r, "cannot save state of machine '%s' in '%s': %s", rec->name, dir,
                              strerror(-r))
                 : 0;
}

int state_remove(const char *dir, const char *id)
{
    _cleanup_free_ char *name = strf("%s.json", id);
    _cleanup_close_ int fd = -1;

    if (!name)
        return -ENOMEM;
    fd = open_dir(dir);
    if (fd < 0)
        return fd;
    if ((unlinkat(fd, name, 0) < 0 && errno != ENOENT) || fsync(fd) < 0)
        return boxd_words(-errno, "cannot remove '%s' in '%s': %m", name, dir);
    return 0;
}

static int read_file(int dir, const char *name, struct buf *out)
{
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t n;

        if (out->len > FILE_MAX)
            return -EFBIG;
        if (buf_reserve(out, 16384) < 0)
            return -ENOMEM;
        n = read(fd, out->data + out->len, 16384);
        if (n < 0)
            return -errno;
        if (!n)
            return 0;
        out->len += (size_t)n;
        out->data[out->len] = '\0';
    }
}

/* Loads one file; sets it aside when it is damaged. */
static int load_file(int dir, const char *name, int (*each)(void *arg, struct vm_record *r),
                     void *arg)
{
    _cleanup_buf_ struct buf text = { 0 };
    _cleanup_free_ char *aside = NULL, *expected = NULL;
    struct vm_record rec;
    int r = read_file(dir, name, &text);

    boxd_words_clear();
    if (!r)
        r = vm_record_parse(buf_str(&text), text.len, &rec);
    if (!r) {
        expected = strf("%s.json", rec.id);
        if (!expected || strcmp(expected, name)) {
            r = expected ? bad("id") : -ENOMEM;
        } else {
            r = each(arg, &rec);
        }
        vm_record_clear(&rec);
        if (r != -EBADMSG)
            return r;
    }
    if (r == -ENOMEM)
        return r;
    boxd_log(BOXD_LOG_ERROR, "state file '%s' is damaged and set aside as '%s.damaged': %s", name,
             name, boxd_error_words(r));
    aside = strf("%s.damaged", name);
    if (!aside)
        return -ENOMEM;
    if (renameat(dir, name, dir, aside) < 0)
        return boxd_words(-errno, "cannot set damaged state file '%s' aside: %m", name);
    return 0;
}

int state_load(const char *dir, int (*each)(void *arg, struct vm_record *r), void *arg)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = open_dir(dir);
    struct dirent *e;

    if (fd < 0)
        return fd;
    d = fdopendir(fd);
    if (!d) {
        close(fd);
        return boxd_words(-ENOMEM, "cannot list '%s': %m", dir);
    }
    while ((e = readdir(d))) {
        size_t n = strlen(e->d_name);
        int r = 0;

        if (n > 5 && !strcmp(e->d_name + n - 5, ".json"))
            r = load_file(fd, e->d_name, each, arg);
        if (r < 0)
            return r;
    }
    return 0;
}
