/* fs/ctl.c: the file `ctl`: text goes in, is cut into lines, and each line is a command; the write
 * that brings a line waits for it. What a command prints, and the words of a failure, are read from
 * the same open or at the same user's next read. Commands are known to ctl_words.c only.
 *
 * Every look-up makes a fresh node, because a waiting write holds its inode's lock: a second user
 * of the same inode could not be killed. */
#include "ctl.h"

#include <fcntl.h>
#include <sys/stat.h>

#define LINE_LIMIT ((size_t)64 * 1024)
#define ANSWERS_KEPT 64

/* ---- what waits for its user's next read ---- */

struct answer {
    struct list link;
    uid_t uid;
    pid_t session;
    char *machine; /* its id; "" for the account */
    struct buf text;
};

static void answer_free(struct answer *a)
{
    list_remove(&a->link);
    free(a->machine);
    buf_clear(&a->text);
    free(a);
}

/* The caller's own, else the newest of the same user; same machine in both cases. */
static struct answer *answer_find(struct mount *mnt, uid_t uid, pid_t session, const char *machine,
                                  bool exactly)
{
    struct answer *other = NULL;

    list_each(it, &mnt->ctl_answers)
    {
        struct answer *a = container_of(it, struct answer, link);

        if (a->uid != uid || strcmp(a->machine, machine))
            continue;
        if (a->session == session)
            return a;
        other = a;
    }
    return exactly ? NULL : other;
}

static struct answer *answer_new(struct mount *mnt, uid_t uid, pid_t session, const char *machine)
{
    struct answer *a = answer_find(mnt, uid, session, machine, true);
    size_t kept = 0;

    if (a)
        answer_free(a);
    list_each(it, &mnt->ctl_answers) kept++;
    if (kept >= ANSWERS_KEPT)
        answer_free(container_of(mnt->ctl_answers.next, struct answer, link));
    a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->uid = uid;
    a->session = session;
    list_add(&mnt->ctl_answers, &a->link);
    a->machine = strdup(machine);
    if (a->machine)
        return a;
    answer_free(a);
    return NULL;
}

void ctl_answers_free(struct mount *mnt)
{
    while (!list_empty(&mnt->ctl_answers))
        answer_free(container_of(mnt->ctl_answers.next, struct answer, link));
}

/* ---- an open file ---- */

struct ctl_node {
    struct node node;
    struct boxd_machine *m; /* referenced; NULL: the account's */
};

struct ctl_open {
    struct mount *mnt;
    struct boxd_machine *m; /* referenced; NULL: the account's */
    uid_t uid;
    pid_t session;
    int mode;          /* O_RDONLY, O_WRONLY, O_RDWR */
    struct buf text;   /* written, not run yet */
    struct buf answer; /* to be read */
    bool written;      /* a command was given in this open */
    int failed;        /* write-only: the first failure, which stays */
    struct op *writer; /* waits for its commands */
    size_t written_bytes;
    bool last_line; /* the text without a newline counts, too: the file is being closed */
    struct ctl_run *run;
    bool running; /* inside ctl_next() */
};

static const char *machine_key(const struct ctl_open *o)
{
    return o->m ? o->m->id : "";
}

static void open_free(struct ctl_open *o)
{
    if (o->m)
        boxd_machine_unref(o->m);
    buf_clear(&o->text);
    buf_clear(&o->answer);
    free(o);
}

/* What the caller will read: in this open, or, when it cannot be read here, at the next one. */
static int publish(struct ctl_open *o, const char *text, size_t n)
{
    struct answer *a;

    if (o->mode == O_RDWR)
        return buf_add(&o->answer, text, n);
    a = answer_find(o->mnt, o->uid, o->session, machine_key(o), true);
    if (!a && n)
        a = answer_new(o->mnt, o->uid, o->session, machine_key(o));
    return a && n ? buf_add(&a->text, text, n) : 0;
}

/* The first command of an open: what an earlier one left is old. */
static void begin(struct ctl_open *o)
{
    struct answer *a = answer_find(o->mnt, o->uid, o->session, machine_key(o), true);

    if (!o->written && a)
        answer_free(a);
    o->written = true;
}

/* ---- running what was written ---- */

static void write_ends(struct ctl_open *o, int r)
{
    struct op *op = steal_ptr(o->writer);

    if (r < 0) {
        buf_truncate(&o->text, 0);
        if (o->mode == O_WRONLY)
            o->failed = r;
    }
    if (!op)
        return;
    op_wait(op, NULL, NULL);
    if (r < 0)
        op_fail(op, r);
    else if (o->last_line)
        op_reply_ok(op);
    else
        op_reply_written(op, o->written_bytes);
}

/* Takes the next line to run off the text. False: there is none yet. */
static bool take_line(struct ctl_open *o, char **line)
{
    char *eol = o->text.len ? memchr(o->text.data, '\n', o->text.len) : NULL;
    size_t n = eol ? (size_t)(eol - o->text.data) : o->text.len;

    if (!eol && (!o->last_line || !n))
        return false;
    *line = strndup(o->text.data, n);
    buf_consume(&o->text, eol ? n + 1 : n);
    return true;
}

static void ctl_next(struct ctl_open *o);

static void command_done(struct ctl_run *run, int r, void *arg)
{
    struct ctl_open *o = arg;
    _cleanup_free_ char *words = r < 0 ? strf("%s\n", boxd_error_words(r)) : NULL;
    int p = publish(o, buf_str(&run->out), run->out.len);

    o->run = NULL;
    if (o->m)
        machine_changed(o->m);
    if (p >= 0 && words)
        p = publish(o, words, strlen(words));
    if (r >= 0)
        r = p;
    else
        boxd_words(r, "%.*s", (int)strcspn(words ? words : "", "\n"), words ? words : "");
    if (r < 0)
        write_ends(o, r);
    if (!o->running)
        ctl_next(o);
}

/* Runs lines until one has to wait or none is left. */
static void ctl_next(struct ctl_open *o)
{
    char *line;

    o->running = true;
    while (!o->run && take_line(o, &line)) {
        _cleanup_free_ _unused_ char *owned = line;

        if (!line) {
            write_ends(o, -ENOMEM);
            break;
        }
        begin(o);
        ctl_run_line(o->mnt, o->m, line, command_done, o, &o->run);
    }
    o->running = false;
    if (!o->run && o->writer)
        write_ends(o, 0);
}

static void ctl_cancel(struct op *op, void *arg)
{
    struct ctl_open *o = arg;

    ctl_run_cancel(o->run); /* command_done() answers the op */
}

/* The op waits for the commands that the text holds. */
static void run_text(struct ctl_open *o, struct op *op, size_t bytes, bool last_line)
{
    o->writer = op;
    o->written_bytes = bytes;
    o->last_line = last_line;
    ctl_next(o);
    if (o->writer)
        op_wait(op, ctl_cancel, o);
}

/* ---- operations ---- */

static struct ctl_open *open_of(const struct fuse_file_info *fi)
{
    return (struct ctl_open *)(uintptr_t)fi->fh;
}

static int usage(const struct ctl_open *o, struct buf *out)
{
    _cleanup_free_ char *title = NULL;

    if (!o->m)
        return ctl_usage(ctl_account_words, "the account: echo COMMAND > ctl", out);
    title = strf("machine '%s': echo COMMAND > ctl", o->m->shown);
    return title ? ctl_usage(ctl_machine_words, title, out) : -ENOMEM;
}

/* A reader gets what was left for it, once; else the usage. */
static int first_answer(struct ctl_open *o)
{
    struct answer *a = answer_find(o->mnt, o->uid, o->session, machine_key(o), false);

    if (o->mode != O_RDONLY)
        return 0;
    if (!a)
        return usage(o, &o->answer);
    o->answer = a->text;
    a->text = (struct buf){ 0 };
    answer_free(a);
    return 0;
}

static void op_ctl_open(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct ctl_node *c = (struct ctl_node *)n;
    struct ctl_open *o = calloc(1, sizeof *o);
    int r;

    if (!o) {
        op_fail(op, -ENOMEM);
        return;
    }
    o->mnt = op->mnt;
    o->m = c->m ? boxd_machine_ref(c->m) : NULL;
    o->uid = op->uid;
    o->session = op_session(op);
    o->mode = fi->flags & O_ACCMODE;
    r = first_answer(o);
    if (r < 0) {
        open_free(o);
        op_fail(op, r);
        return;
    }
    op_reply_open_stream(op, (uintptr_t)o);
}

static void op_ctl_read(struct op *op, struct node *n, size_t size, off_t off,
                        struct fuse_file_info *fi)
{
    struct ctl_open *o = open_of(fi);
    _cleanup_buf_ struct buf piece = { 0 };
    size_t k;
    int r = 0;

    if (o->mode == O_RDWR && !o->written) {
        r = usage(o, &o->answer);
        o->written = true; /* once */
    }
    k = size < o->answer.len ? size : o->answer.len;
    if (r >= 0 && k)
        r = buf_add(&piece, o->answer.data, k);
    if (r < 0) {
        op_fail(op, r);
        return;
    }
    buf_consume(&o->answer, k);
    op_reply_buf(op, piece.data, k);
}

static void op_ctl_write(struct op *op, struct node *n, const void *data, size_t size, off_t off,
                         struct fuse_file_info *fi)
{
    struct ctl_open *o = open_of(fi);
    int r = 0;

    if (o->failed)
        r = boxd_words(o->failed, "an earlier command of this open failed");
    else if (o->writer)
        r = boxd_words(-EBUSY, "another write to this open of ctl is under way");
    else if (size && memchr(data, '\0', size))
        r = boxd_words(-EINVAL, "ctl takes text, not a NUL byte");
    else if (o->text.len + size > LINE_LIMIT && !memchr(data, '\n', size))
        r = boxd_words(-EINVAL, "a line of ctl is longer than %zu bytes", LINE_LIMIT);
    else
        r = buf_add(&o->text, data, size);
    if (r < 0)
        op_fail(op, r);
    else
        run_text(o, op, size, false);
}

static void op_ctl_flush(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct ctl_open *o = open_of(fi);

    /* FLUSH also comes for other descriptors of this open, and before the first write. */
    if (o->mode != O_WRONLY || o->writer || !o->text.len)
        op_reply_ok(op);
    else
        run_text(o, op, 0, true);
}

static void op_ctl_release(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct ctl_open *o = open_of(fi);

    /* No writer is left, so no command runs. */
    open_free(o);
    op_reply_ok(op);
}

static void op_ctl_getattr(struct op *op, struct node *n, struct fuse_file_info *fi)
{
    struct stat st;

    special_stat(n, &st);
    op_reply_attr(op, &st);
}

/* `> ctl` truncates, and touch sets times: both change nothing. */
static void op_ctl_setattr(struct op *op, struct node *n, const struct stat *st, int to_set,
                           struct fuse_file_info *fi)
{
    if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        op_fail(op, boxd_words(-EPERM, "ctl belongs to the mount and cannot be changed"));
    else
        op_ctl_getattr(op, n, fi);
}

static void op_ctl_free(struct node *n)
{
    struct ctl_node *c = (struct ctl_node *)n;

    if (c->m)
        boxd_machine_unref(c->m);
}

static const struct node_ops ctl_ops = {
    .kind = "ctl",
    .owner_only = true,
    .missing = -EPERM,
    .getattr = op_ctl_getattr,
    .setattr = op_ctl_setattr,
    .open = op_ctl_open,
    .read = op_ctl_read,
    .write = op_ctl_write,
    .flush = op_ctl_flush,
    .release = op_ctl_release,
    .free = op_ctl_free,
};

struct node *ctl_node(struct mount *mnt, struct node *dir, struct boxd_machine *m)
{
    struct ctl_node *c = node_new(mnt, &ctl_ops, dir, "ctl", sizeof *c);

    if (!c)
        return NULL;
    node_detach(&c->node);
    if (m)
        c->m = boxd_machine_ref(m);
    return &c->node;
}
