/* local/listing.h: a directory's listing as the machine's own find and stat print it.
 *
 * A record is `MODE SIZE MTIME CTIME/./NAME` and a newline. A name holds no slash, so "/./" stands
 * only between the numbers and the name, and no name, whatever bytes it has, can pass for a record.
 * The text comes from a hostile machine: every byte is checked. */
#pragma once

#include "base/base.h"

#include "api/boxd.pb-c.h"

#define LISTING_BYTES_MAX (1u << 20)
#define LISTING_ENTRIES_MAX 10000

/* $1 is the directory. */
#define LISTING_SCRIPT                                                             \
    "if ! [ -d \"$1\" ]; then "                                                    \
    "if [ -e \"$1\" ]; then echo 'Not a directory'; "                              \
    "else echo 'No such file or directory'; fi >&2; exit 1; fi; "                  \
    "cd \"$1\" || exit 1; [ -r . ] || { echo 'Permission denied' >&2; exit 1; }; " \
    "find . ! -name . -prune -exec stat -c '%f %s %Y %Z/%n' {} + || :"

struct listing {
    Boxd__Api__V1__DirEntry **entries;
    size_t count;
    bool truncated;
};

/* `cut`: the text ends in the middle. 0, -EIO with words, or -ENOMEM. To be cleared in any case. */
int listing_parse(const char *text, size_t n, bool cut, struct listing *out);
void listing_clear(struct listing *l);
