/* local/listing.c: see listing.h. */
#include "base/base.h"

#include "base/buf.h"
#include "base/str.h"
#include "local/listing.h"
#include <boxd/error.h>
#include <sys/stat.h>

#define MARK "/./"

struct entry {
    Boxd__Api__V1__DirEntry message; /* first: freed by this address */
    char permissions[11];
    char name[];
};

/* Reads one number and the character after it. */
static bool number(const char **p, int base, char after, uint64_t *out)
{
    char *end;

    if (!((**p >= '0' && **p <= '9') || (base == 16 && **p >= 'a' && **p <= 'f')))
        return false;
    errno = 0;
    *out = strtoull(*p, &end, base);
    if (errno || *end != after)
        return false;
    *p = end + 1;
    return true;
}

static void print_permissions(uint32_t mode, char out[11])
{
    static const struct {
        uint32_t type;
        char letter;
    } types[] = { { S_IFDIR, 'd' }, { S_IFLNK, 'l' }, { S_IFIFO, 'p' },
                  { S_IFCHR, 'c' }, { S_IFBLK, 'b' }, { S_IFSOCK, 's' } };
    static const char letters[] = "rwxrwxrwx";

    out[0] = '-';
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if ((mode & S_IFMT) == types[i].type)
            out[0] = types[i].letter;
    for (int i = 0; i < 9; i++)
        out[i + 1] = mode & (1u << (8 - i)) ? letters[i] : '-';
    if (mode & S_ISUID)
        out[3] = mode & S_IXUSR ? 's' : 'S';
    if (mode & S_ISGID)
        out[6] = mode & S_IXGRP ? 's' : 'S';
    if (mode & S_ISVTX)
        out[9] = mode & S_IXOTH ? 't' : 'T';
    out[10] = '\0';
}

/* Names of other bytes than UTF-8 cannot travel in a message: each such byte shows as U+FFFD. */
static int readable_name(struct buf *out, const char *name, size_t n)
{
    bool good = utf8_valid(name, n);
    int r = 0;

    for (size_t i = 0; !r && i < n; i++)
        r = good || (unsigned char)name[i] < 0x80 ? buf_addch(out, name[i])
                                                  : buf_addstr(out, "\xef\xbf\xbd");
    return r;
}

static int unreadable(void)
{
    return boxd_words(-EIO, "machine's listing of the directory is not readable");
}

static int make_entry(const char *header, const char *name, size_t n, struct entry **out)
{
    _cleanup_buf_ struct buf text = { 0 };
    uint64_t mode, size, mtime, ctime;
    struct entry *e;

    if (!number(&header, 16, ' ', &mode) || !number(&header, 10, ' ', &size) ||
        !number(&header, 10, ' ', &mtime) || !number(&header, 10, '/', &ctime) || !n || n > 255)
        return unreadable();
    if (readable_name(&text, name, n) < 0)
        return -ENOMEM;
    e = calloc(1, sizeof(*e) + text.len + 1);
    if (!e)
        return -ENOMEM;
    memcpy(e->name, buf_str(&text), text.len);
    print_permissions((uint32_t)mode, e->permissions);
    boxd__api__v1__dir_entry__init(&e->message);
    e->message.name = e->name;
    e->message.permissions = e->permissions;
    e->message.is_dir = S_ISDIR((uint32_t)mode);
    e->message.size_bytes = e->message.is_dir ? 0 : size;
    e->message.modified_at = (int64_t)mtime;
    e->message.added_at = (int64_t)ctime;
    *out = e;
    return 0;
}

static int add(struct listing *l, struct entry *e)
{
    Boxd__Api__V1__DirEntry **grown = l->entries;

    /* Doubled at every power of two. */
    if (!(l->count & (l->count - 1)))
        grown = reallocarray(l->entries, l->count ? l->count * 2 : 1, sizeof(*grown));
    if (!grown) {
        free(e);
        return -ENOMEM;
    }
    l->entries = grown;
    l->entries[l->count++] = &e->message;
    return 0;
}

int listing_parse(const char *text, size_t n, bool cut, struct listing *out)
{
    const char *end = text + n, *header = text;

    while (header < end && out->count < LISTING_ENTRIES_MAX) {
        const char *mark = memmem(header, (size_t)(end - header), MARK, strlen(MARK));
        const char *name = mark ? mark + strlen(MARK) : end, *next, *stop;
        struct entry *e = NULL;
        int r;

        /* The name ends at the last newline before the next mark. */
        next = memmem(name, (size_t)(end - name), MARK, strlen(MARK));
        stop = memrchr(name, '\n', (size_t)((next ? next : end) - name));
        if (cut && !next)
            break;
        if (!mark || !stop)
            return unreadable();
        r = make_entry(header, name, (size_t)(stop - name), &e);
        if (!r)
            r = add(out, e);
        if (r < 0)
            return r;
        header = stop + 1;
    }
    out->truncated = cut || header < end;
    return 0;
}

void listing_clear(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->entries[i]);
    free(l->entries);
    *l = (struct listing){ 0 };
}
