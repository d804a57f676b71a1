/* File operations that are one short exec each: build the line, run it, parse the answer. */
#include "base/base.h"

#include <boxd/error.h>
#include <boxd/exec.h>

#include "base/str.h"
#include "script/line.h"
#include "script/script.h"

#define SMALL_ANSWER (64u * 1024)
/* Some 300,000 entries. A machine that sends more is not worth the memory. */
#define LISTING_ANSWER (64u * 1024 * 1024)

struct request {
    union {
        boxd_done *none;
        boxd_stat_done *stat;
        boxd_listing_done *list;
        boxd_link_done *link;
        boxd_statvfs_done *statfs;
        boxd_user_done *user;
    } done;
    void *arg;
    /* Parses a good answer (r = 0) and calls `done`, or hands on r < 0. */
    void (*answer)(struct request *q, int r, const char *out, size_t n);
};

int script_result(int r, int code, const void *err, size_t n)
{
    if (r == -ENOENT)
        return boxd_words(-ENODEV, "the machine does not exist");
    if (r < 0)
        return r;
    return code ? line_errno(code, err, n) : 0;
}

static void ran(void *arg, int r, int code, const void *out, size_t out_len, const void *err,
                size_t err_len)
{
    struct request *q = arg;
    _cleanup_buf_ struct buf text = { 0 };

    r = script_result(r, code, err, err_len);
    if (r >= 0)
        r = buf_add(&text, out, out_len); /* ends it with NUL */
    q->answer(q, r < 0 ? r : 0, buf_str(&text), text.len);
    free(q);
}

/* Takes the line (cleared). A line that could not be made is reported by its own failing call:
 * every answer must come through the callback, later. */
static struct boxd_call *run(struct boxd_client *c, const char *machine, struct buf *line, int r,
                             size_t limit, struct request want)
{
    struct request *q = malloc(sizeof *q);
    struct boxd_call *call;

    if (!q)
        return NULL;
    *q = want;
    if (r == -ENOMEM) {
        free(q);
        return NULL;
    }
    /* An argument over PATH_MAX: let a shell line of its own fail the way the machine would. */
    call = boxd_run(c, machine, r < 0 ? "echo 'File name too long' >&2; exit 1" : line->data, NULL,
                    0, limit, 0, ran, q);
    if (!call)
        free(q);
    return call;
}

static void answer_none(struct request *q, int r, const char *out, size_t n)
{
    q->done.none(q->arg, r);
}

static void answer_stat(struct request *q, int r, const char *out, size_t n)
{
    struct stat st = { 0 };

    if (r >= 0)
        r = line_stat_parse(out, &st);
    q->done.stat(q->arg, r, r < 0 ? NULL : &st);
}

static void answer_list(struct request *q, int r, const char *out, size_t n)
{
    struct listing l = { 0 };

    if (r >= 0)
        r = listing_parse(&l, out, n);
    q->done.list(q->arg, r, r < 0 ? NULL : &l.self, l.entries, r < 0 ? 0 : l.count, l.kernel);
    listing_clear(&l);
}

static void answer_link(struct request *q, int r, const char *out, size_t n)
{
    const char *target = NULL, *resolved = NULL;

    if (r >= 0)
        r = line_readlink_parse(out, n, &target, &resolved);
    q->done.link(q->arg, r, target, resolved);
}

static void answer_statfs(struct request *q, int r, const char *out, size_t n)
{
    struct statvfs st = { 0 };

    if (r >= 0)
        r = line_statfs_parse(out, &st);
    q->done.statfs(q->arg, r, r < 0 ? NULL : &st);
}

static void answer_user(struct request *q, int r, const char *out, size_t n)
{
    uid_t uid = 0;
    gid_t gid = 0;

    if (r >= 0)
        r = line_user_parse(out, &uid, &gid);
    q->done.user(q->arg, r, uid, gid);
}

static struct boxd_call *run_stat(struct boxd_client *c, const char *machine, struct buf *line,
                                  int r, boxd_stat_done *done, void *arg)
{
    return run(c, machine, line, r, SMALL_ANSWER,
               (struct request){ .done.stat = done, .arg = arg, .answer = answer_stat });
}

struct boxd_call *boxd_script_stat(struct boxd_client *c, const char *machine, const char *path,
                                   boxd_stat_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_stat, (const char *[]){ path, NULL });

    return run_stat(c, machine, &line, r, done, arg);
}

struct boxd_call *boxd_script_list(struct boxd_client *c, const char *machine, const char *path,
                                   boxd_listing_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_list, (const char *[]){ path, NULL });

    return run(c, machine, &line, r, LISTING_ANSWER,
               (struct request){ .done.list = done, .arg = arg, .answer = answer_list });
}

struct boxd_call *boxd_script_readlink(struct boxd_client *c, const char *machine, const char *path,
                                       boxd_link_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_readlink, (const char *[]){ path, NULL });

    return run(c, machine, &line, r, SMALL_ANSWER,
               (struct request){ .done.link = done, .arg = arg, .answer = answer_link });
}

struct boxd_call *boxd_script_create(struct boxd_client *c, const char *machine, const char *path,
                                     mode_t mode, unsigned flags, boxd_stat_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_create(&line, path, mode, flags);

    return run_stat(c, machine, &line, r, done, arg);
}

/* mkdir and mkfifo: the mode is set exactly. */
static struct boxd_call *make_node(struct boxd_client *c, const char *machine, const char *body,
                                   const char *path, mode_t mode, boxd_stat_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    char octal[16];
    int r;

    snprintf(octal, sizeof octal, "%04o", (unsigned)mode & 07777);
    r = line_make(&line, body, (const char *[]){ path, octal, NULL });
    return run_stat(c, machine, &line, r, done, arg);
}

struct boxd_call *boxd_script_mkdir(struct boxd_client *c, const char *machine, const char *path,
                                    mode_t mode, boxd_stat_done *done, void *arg)
{
    return make_node(c, machine, line_mkdir, path, mode, done, arg);
}

struct boxd_call *boxd_script_mkfifo(struct boxd_client *c, const char *machine, const char *path,
                                     mode_t mode, boxd_stat_done *done, void *arg)
{
    return make_node(c, machine, line_mkfifo, path, mode, done, arg);
}

struct boxd_call *boxd_script_symlink(struct boxd_client *c, const char *machine,
                                      const char *target, const char *path, boxd_stat_done *done,
                                      void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_symlink, (const char *[]){ target, path, NULL });

    return run_stat(c, machine, &line, r, done, arg);
}

struct boxd_call *boxd_script_link(struct boxd_client *c, const char *machine, const char *from,
                                   const char *to, boxd_stat_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_link, (const char *[]){ from, to, NULL });

    return run_stat(c, machine, &line, r, done, arg);
}

struct boxd_call *boxd_script_setattr(struct boxd_client *c, const char *machine, const char *path,
                                      const struct boxd_setattr *set, boxd_stat_done *done,
                                      void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_setattr(&line, path, set);

    return run_stat(c, machine, &line, r, done, arg);
}

static struct boxd_call *run_plain(struct boxd_client *c, const char *machine, const char *body,
                                   const char *const *args, boxd_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, body, args);

    return run(c, machine, &line, r, SMALL_ANSWER,
               (struct request){ .done.none = done, .arg = arg, .answer = answer_none });
}

struct boxd_call *boxd_script_unlink(struct boxd_client *c, const char *machine, const char *path,
                                     boxd_done *done, void *arg)
{
    return run_plain(c, machine, line_unlink, (const char *[]){ path, NULL }, done, arg);
}

struct boxd_call *boxd_script_rmdir(struct boxd_client *c, const char *machine, const char *path,
                                    boxd_done *done, void *arg)
{
    return run_plain(c, machine, line_rmdir, (const char *[]){ path, NULL }, done, arg);
}

struct boxd_call *boxd_script_rename(struct boxd_client *c, const char *machine, const char *from,
                                     const char *to, bool no_replace, boxd_done *done, void *arg)
{
    const char *args[] = { from, to, no_replace ? "n" : "", NULL };

    return run_plain(c, machine, line_rename, args, done, arg);
}

struct boxd_call *boxd_script_statfs(struct boxd_client *c, const char *machine, const char *path,
                                     boxd_statvfs_done *done, void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_statfs, (const char *[]){ path, NULL });

    return run(c, machine, &line, r, SMALL_ANSWER,
               (struct request){ .done.statfs = done, .arg = arg, .answer = answer_statfs });
}

struct boxd_call *boxd_script_user(struct boxd_client *c, const char *machine, boxd_user_done *done,
                                   void *arg)
{
    _cleanup_buf_ struct buf line = { 0 };
    int r = line_make(&line, line_user, (const char *[]){ NULL });

    return run(c, machine, &line, r, SMALL_ANSWER,
               (struct request){ .done.user = done, .arg = arg, .answer = answer_user });
}
