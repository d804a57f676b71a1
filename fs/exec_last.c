/* fs/exec_last.c: what each caller's last script was, said and came to. Bounded: a few callers a
 * machine, and of long output the end. */
#include "exec.h"

#include <stdarg.h>

#define SCRIPTS_KEPT 32
#define TEXT_KEPT (1024u * 1024)
#define DROP (1024u * 1024) /* at once, so that a flood is not copied at every line */

struct script *script_ref(struct script *s)
{
    s->refs++;
    return s;
}

void script_unref(struct script *s)
{
    if (!s || --s->refs)
        return;
    buf_clear(&s->text);
    buf_clear(&s->output);
    buf_clear(&s->exit);
    free(s);
}

static void forget(struct script *s)
{
    list_remove(&s->link);
    script_unref(s);
}

static void free_scripts(struct fsmachine *fm)
{
    while (!list_empty(&fm->scripts))
        forget(container_of(fm->scripts.next, struct script, link));
}

struct script *script_last(struct boxd_machine *m, uid_t uid, pid_t session)
{
    list_each(it, &fsmachine(m)->scripts)
    {
        struct script *s = container_of(it, struct script, link);

        if (s->uid == uid && s->session == session)
            return s;
    }
    return NULL;
}

struct script *script_begin(struct boxd_machine *m, uid_t uid, pid_t session)
{
    struct fsmachine *fm = fsmachine(m);
    struct script *s = calloc(1, sizeof *s), *old = script_last(m, uid, session);
    unsigned count = 0;

    if (!s)
        return NULL;
    if (old)
        forget(old);
    list_each(it, &fm->scripts) count++;
    if (count >= SCRIPTS_KEPT)
        forget(container_of(fm->scripts.next, struct script, link));
    s->refs = 2; /* the list's and the caller's */
    s->uid = uid;
    s->session = session;
    list_add(&fm->scripts, &s->link);
    fm->free_scripts = free_scripts;
    return s;
}

void script_text(struct script *s, const void *text, size_t n)
{
    if (s->text.len + n <= TEXT_KEPT && buf_add(&s->text, text, n) < 0)
        boxd_log(BOXD_LOG_ERROR, "no memory to remember a script");
}

void script_output(struct script *s, const void *data, size_t n)
{
    size_t extra;

    if (buf_add(&s->output, data, n) < 0) {
        s->dropped += s->output.len + n;
        buf_clear(&s->output);
        return;
    }
    extra = s->output.len > OUTPUT_KEPT ? s->output.len - OUTPUT_KEPT : 0;
    if (extra >= DROP) {
        buf_consume(&s->output, extra);
        s->dropped += extra;
    }
}

void script_exit(struct script *s, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    buf_clear(&s->exit);
    if (buf_addf(&s->exit, "%s\n", text) < 0)
        boxd_log(BOXD_LOG_ERROR, "no memory to remember how a script ended");
}

const struct buf *exec_last(struct mount *mnt, struct boxd_machine *m, uid_t uid, pid_t session,
                            int what)
{
    struct script *s = script_last(m, uid, session);

    if (!s)
        return NULL;
    return what == 0 ? &s->text : what == 1 ? &s->output : &s->exit;
}
