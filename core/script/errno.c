/* What a shell line's exit code and error text mean: one table. */
#include "base/base.h"

#include <boxd/error.h>
#include <strings.h>

#include "base/str.h"
#include "script/line.h"

/* Texts of GNU, busybox, dash and bash in the C locale, found anywhere in the last line of stderr.
 * The first match wins, so the more special ones stand first. */
static const struct {
    const char *text;
    int number;
} texts[] = {
    { "subdirectory of itself", EINVAL },
    { "overwrite directory", EISDIR },
    { "overwrite non-directory", ENOTDIR },
    { "cannot overwrite existing file", EEXIST },
    { "Directory nonexistent", ENOENT },
    { "nonexistent directory", ENOENT },
    { "No such file", ENOENT },
    { "Permission denied", EACCES },
    { "File exists", EEXIST },
    { "Directory not empty", ENOTEMPTY },
    { "Not a directory", ENOTDIR },
    { "is a directory", EISDIR },
    { "Read-only file system", EROFS },
    { "No space left on device", ENOSPC },
    { "Disk quota exceeded", EDQUOT },
    { "File name too long", ENAMETOOLONG },
    { "Too many levels of symbolic links", ELOOP },
    { "Too many links", EMLINK },
    { "Operation not permitted", EPERM },
    { "Operation not supported", EOPNOTSUPP },
    { "Function not implemented", EOPNOTSUPP },
    { "Invalid argument", EINVAL },
    { "Invalid cross-device link", EXDEV },
    { "cross-device", EXDEV },
    { "Device or resource busy", EBUSY },
    { "Text file busy", ETXTBSY },
    { "File too large", EFBIG },
    { "No such device or address", ENXIO },
    { "Stale file handle", ESTALE },
    { "Cannot allocate memory", ENOMEM },
    { "Too many open files", ENFILE },
    { "Argument list too long", E2BIG },
    { "Transport endpoint is not connected", EIO },
    { "Input/output error", EIO },
};

/* Exit codes that the bodies give themselves. */
static const int codes[] = { ENXIO, EACCES, EEXIST, EXDEV, EISDIR, EINVAL, EFBIG, ESTALE };

int line_errno(int code, const char *err, size_t n)
{
    char line[512];
    size_t start;

    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (code == codes[i])
            return boxd_words(-code, "%s", strerror(code));
    while (n && err[n - 1] == '\n')
        n--;
    for (start = n; start && err[start - 1] != '\n'; start--)
        ;
    /* only the end is kept: the reason stands behind the name */
    if (n - start > sizeof line - 1)
        start = n - (sizeof line - 1);
    if (n > start)
        memcpy(line, err + start, n - start);
    line[n - start] = '\0';
    make_plain(line);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (strcasestr(line, texts[i].text))
            return boxd_words(-texts[i].number, "%s", strerror(texts[i].number));
    if (line[0])
        return boxd_words(-EIO, "the machine said: %s", line);
    return boxd_words(-EIO, "the machine's shell ended with status %d and no reason", code);
}
