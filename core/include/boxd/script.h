/* boxd/script.h: the files of a machine, each operation one POSIX shell line through Exec.
 *
 * For places where no helper can run in the machine: it needs sh, cat, stat and the usual file
 * utilities (GNU or busybox), nothing else. Nothing is cached. The machine's own user acts and the
 * machine decides what is allowed.
 *
 * Paths are absolute in the machine and may hold any bytes but NUL; longer than BOXD_PATH_MAX:
 * -ENAMETOOLONG. What the machine answers is checked as hostile: anything malformed is -EIO with
 * words. Life, threads and `done`: see boxd/client.h. Errors: the errno of the machine's operation;
 * the service's own are passed on (-ENOENT no such machine is given as -ENODEV, so that it cannot
 * be taken for a missing file). */
#pragma once

#include <boxd/client.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define BOXD_PATH_MAX 4095
#define BOXD_NAME_MAX 255

/* What stat says, with the machine's own numbers. */
typedef void boxd_stat_done(void *arg, int r, const struct stat *st);

BOXD_API struct boxd_call *boxd_script_stat(struct boxd_client *c, const char *machine,
                                            const char *path, boxd_stat_done *done, void *arg);

struct boxd_list_entry {
    const char *name; /* a plain name of 1 to 255 bytes */
    struct stat st;
};
/* `self` is the directory itself. `kernel`: it lies on a file system of the kernel (proc, sysfs,
 * ...) and is given empty, so that no walk enters it. */
typedef void boxd_listing_done(void *arg, int r, const struct stat *self,
                               const struct boxd_list_entry *entries, size_t count, bool kernel);
BOXD_API struct boxd_call *boxd_script_list(struct boxd_client *c, const char *machine,
                                            const char *path, boxd_listing_done *done, void *arg);

/* The link's target as it is stored, and where it leads in the machine ("" when nowhere). */
typedef void boxd_link_done(void *arg, int r, const char *target, const char *resolved);
BOXD_API struct boxd_call *boxd_script_readlink(struct boxd_client *c, const char *machine,
                                                const char *path, boxd_link_done *done, void *arg);

/* Changes; each answers with the attributes of what it made or changed. */
#define BOXD_CREATE_EXCL 1u  /* fail with -EEXIST when it exists */
#define BOXD_CREATE_TRUNC 2u /* empty an existing file */
/* Creates a regular file of exactly this mode. */
BOXD_API struct boxd_call *boxd_script_create(struct boxd_client *c, const char *machine,
                                              const char *path, mode_t mode, unsigned flags,
                                              boxd_stat_done *done, void *arg);
BOXD_API struct boxd_call *boxd_script_mkdir(struct boxd_client *c, const char *machine,
                                             const char *path, mode_t mode, boxd_stat_done *done,
                                             void *arg);
BOXD_API struct boxd_call *boxd_script_mkfifo(struct boxd_client *c, const char *machine,
                                              const char *path, mode_t mode, boxd_stat_done *done,
                                              void *arg);
BOXD_API struct boxd_call *boxd_script_symlink(struct boxd_client *c, const char *machine,
                                               const char *target, const char *path,
                                               boxd_stat_done *done, void *arg);
BOXD_API struct boxd_call *boxd_script_link(struct boxd_client *c, const char *machine,
                                            const char *from, const char *to, boxd_stat_done *done,
                                            void *arg);

struct boxd_setattr {
    bool set_mode, set_uid, set_gid, set_size;
    bool set_atime, set_mtime, atime_now, mtime_now; /* _now wins over the time given */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    uint64_t size;
    struct timespec atime, mtime; /* whole seconds where the machine's touch knows no more */
};
BOXD_API struct boxd_call *boxd_script_setattr(struct boxd_client *c, const char *machine,
                                               const char *path, const struct boxd_setattr *set,
                                               boxd_stat_done *done, void *arg);

BOXD_API struct boxd_call *boxd_script_unlink(struct boxd_client *c, const char *machine,
                                              const char *path, boxd_done *done, void *arg);
BOXD_API struct boxd_call *boxd_script_rmdir(struct boxd_client *c, const char *machine,
                                             const char *path, boxd_done *done, void *arg);
/* `no_replace` is checked before and after, as far as mv can tell. */
BOXD_API struct boxd_call *boxd_script_rename(struct boxd_client *c, const char *machine,
                                              const char *from, const char *to, bool no_replace,
                                              boxd_done *done, void *arg);

typedef void boxd_statvfs_done(void *arg, int r, const struct statvfs *st);
BOXD_API struct boxd_call *boxd_script_statfs(struct boxd_client *c, const char *machine,
                                              const char *path, boxd_statvfs_done *done, void *arg);

/* Who the machine's user is. */
typedef void boxd_user_done(void *arg, int r, uid_t uid, gid_t gid);
BOXD_API struct boxd_call *boxd_script_user(struct boxd_client *c, const char *machine,
                                            boxd_user_done *done, void *arg);

/* ---- whole files ---- */

#define BOXD_FETCH_READ 1u    /* fail with -EACCES unless it may be read */
#define BOXD_FETCH_WRITE 2u   /* fail with -EACCES unless it may be written */
#define BOXD_FETCH_TRUNC 4u   /* empty it */
#define BOXD_FETCH_CONTENT 8u /* send the content */

struct boxd_fetch_handlers {
    /* Once, before any data: what the file is. */
    void (*opened)(void *arg, const struct stat *st);
    void (*data)(void *arg, const void *data, size_t n);
    /* Exactly once and last. -EISDIR; -ENXIO for what is no regular file (a FIFO or device never
     * blocks); -EFBIG for more than `limit` bytes, before any is sent when the machine knows. */
    void (*done)(void *arg, int r);
};
struct boxd_fetch;
/* Opens a regular file: checks the rights asked for by `flags`, tells what it is and sends its
 * content. `known` (may be NULL): what is already here; the content is not sent when size, inode
 * and times are still the same. */
BOXD_API struct boxd_fetch *boxd_script_fetch(struct boxd_client *c, const char *machine,
                                              const char *path, unsigned flags, uint64_t limit,
                                              const struct stat *known,
                                              const struct boxd_fetch_handlers *h, void *arg);
BOXD_API void boxd_fetch_pause(struct boxd_fetch *f, bool paused);
/* `done` runs with -ECANCELED before this returns. */
BOXD_API void boxd_fetch_cancel(struct boxd_fetch *f);

#define BOXD_STORE_APPEND 1u /* add to the file's end instead of replacing its content */
#define BOXD_STORE_FORCE 2u  /* the file was opened for writing before its mode forbade it */

struct boxd_store_handlers {
    void (*writable)(void *arg); /* as in boxd/exec.h */
    /* `st`: the file afterwards. */
    void (*done)(void *arg, int r, const struct stat *st);
};
struct boxd_store;
/* Writes the content of an existing regular file; -ESTALE when it is not there any more. */
BOXD_API struct boxd_store *boxd_script_store(struct boxd_client *c, const char *machine,
                                              const char *path, unsigned flags,
                                              const struct boxd_store_handlers *h, void *arg);
/* As boxd_exec_write(). */
BOXD_API ssize_t boxd_store_write(struct boxd_store *s, const void *data, size_t n);
BOXD_API void boxd_store_eof(struct boxd_store *s);
BOXD_API void boxd_store_cancel(struct boxd_store *s);
