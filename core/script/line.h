/* script/line.h: shell lines and what they answer. No I/O.
 *
 * A line is the prologue (pinned PATH, LC_ALL=C), `set --` with the arguments, then a body that
 * names them "$1", "$2"; so no argument ever passes through word splitting. An argument that is not
 * UTF-8 (a protobuf string must be) travels as printf octal. */
#pragma once

#include "base/buf.h"

#include <boxd/script.h>

/* Appends a whole line for `body` with the arguments of a NULL-ended array. -ENOMEM; -ENAMETOOLONG
 * for an argument over BOXD_PATH_MAX. */
int line_make(struct buf *out, const char *body, const char *const *args);

/* The bodies. `$f` is the format that line_stat_parse() reads; it is set by the prologue. */
extern const char line_stat[], line_list[], line_readlink[], line_mkdir[], line_mkfifo[],
    line_symlink[], line_link[], line_unlink[], line_rmdir[], line_rename[], line_statfs[],
    line_user[];
int line_create(struct buf *out, const char *path, mode_t mode, unsigned flags);
int line_setattr(struct buf *out, const char *path, const struct boxd_setattr *set);
int line_fetch(struct buf *out, const char *path, unsigned flags, uint64_t limit,
               const struct stat *known);
int line_store(struct buf *out, const char *path, unsigned flags);

/* Parses one line in the format `$f` (without its newline, NUL-ended); returns 0 or -EIO. */
int line_stat_parse(const char *text, struct stat *st);

struct listing {
    struct stat self;
    struct boxd_list_entry *entries; /* owned; names point into `names` */
    size_t count, cap;
    bool kernel;
    char *names; /* owned */
};
/* Parses the answer of line_list; the text is copied. -EIO with words. */
int listing_parse(struct listing *l, const char *text, size_t n);
void listing_clear(struct listing *l);

int line_statfs_parse(const char *text, struct statvfs *st);
/* target and resolved point into `text` (NUL-ended at n). -EIO. */
int line_readlink_parse(const char *text, size_t n, const char **target, const char **resolved);
int line_user_parse(const char *text, uid_t *uid, gid_t *gid);

/* The negative errno for a line that exited with `code` (not 0) and this stderr; gives words. */
int line_errno(int code, const char *err, size_t n);
