/* boxd/file.h: the service's own file calls.
 *
 * Paths are absolute or relative to /home/boxd, and UTF-8. There is no stat, mode, link or ranged
 * read here: those go through boxd/exec.h.
 * Life, threads, errors and `done`: see boxd/client.h. */
#pragma once

#include <boxd/client.h>
#include <stdbool.h>
#include <stddef.h>

struct boxd_upload;

struct boxd_upload_handlers {
    /* Less than BOXD_UPLOAD_QUEUE bytes wait, after boxd_upload_write() returned more. May be NULL.
     */
    void (*writable)(void *arg);
    /* `written` = what the service confirmed; 0 although bytes were sent: it could not confirm. */
    void (*done)(void *arg, int r, uint64_t written);
};
#define BOXD_UPLOAD_QUEUE (1024 * 1024)

/* Creates or overwrites a file of exactly `size` bytes, given with boxd_upload_write(); the call
 * ends by itself after the last one. More bytes than `size`: -EINVAL from boxd_upload_write(). */
BOXD_API struct boxd_upload *boxd_upload_start(struct boxd_client *c, const char *machine,
                                               const char *path, uint64_t size,
                                               const struct boxd_upload_handlers *h, void *arg);
BOXD_API ssize_t boxd_upload_write(struct boxd_upload *u, const void *data, size_t n);
/* `done` runs with -ECANCELED before this returns. */
BOXD_API void boxd_upload_cancel(struct boxd_upload *u);

struct boxd_download_handlers {
    /* The size first, once (also for an empty file), then the bytes in order. May be NULL. */
    void (*size)(void *arg, uint64_t size);
    void (*data)(void *arg, const void *data, size_t n);
    /* -EIO when fewer or more bytes came than the announced size. */
    void (*done)(void *arg, int r);
};
struct boxd_download;
BOXD_API struct boxd_download *boxd_download_start(struct boxd_client *c, const char *machine,
                                                   const char *path,
                                                   const struct boxd_download_handlers *h,
                                                   void *arg);
BOXD_API void boxd_download_pause(struct boxd_download *d, bool paused);
BOXD_API void boxd_download_cancel(struct boxd_download *d);

struct boxd_dir_entry {
    const char *name;
    bool is_dir;
    uint64_t size;           /* 0 for a directory */
    const char *permissions; /* like -rw-r--r-- */
    int64_t modified_at, added_at;
};
typedef void boxd_list_dir_done(void *arg, int r, const struct boxd_dir_entry *entries,
                                size_t count, bool truncated);
BOXD_API struct boxd_call *boxd_list_dir(struct boxd_client *c, const char *machine,
                                         const char *path, boxd_list_dir_done *done, void *arg);
/* The parent must exist. */
BOXD_API struct boxd_call *boxd_mkdir(struct boxd_client *c, const char *machine, const char *path,
                                      boxd_done *done, void *arg);
BOXD_API struct boxd_call *boxd_rename_path(struct boxd_client *c, const char *machine,
                                            const char *from, const char *to, boxd_done *done,
                                            void *arg);
/* Recursive. */
BOXD_API struct boxd_call *boxd_delete_path(struct boxd_client *c, const char *machine,
                                            const char *path, boxd_done *done, void *arg);
/* Recursive. */
BOXD_API struct boxd_call *boxd_copy_path(struct boxd_client *c, const char *machine,
                                          const char *from, const char *to, boxd_done *done,
                                          void *arg);
