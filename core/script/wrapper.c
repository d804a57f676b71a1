#include "base/base.h"

#include "base/str.h"
#include "script/wrapper.h"

#define STATUS_DIGITS 5

/* Names start with __b so that they meet no script's own. What a script may change and this must
 * survive: set -e -u -x -a -v (noted after each eval, restored inside the next), stdin, stdout
 * (reports go to descriptor 7, closed for the script), break and continue outside of a loop (the
 * inner loops take them; the report is printed at the top), $? (restored when it is not 0). */
static const char inner[] =
    "IFS=' ' read -r __b_nonce __b_mode\n"
    "exec 7>&1\n"
    "__b_nl='\n'\n"
    "__b_text= __b_report= __b_eof= __b_s=0\n"
    "[ \"$__b_mode\" != e ] || set -e\n"
    "while [ -z \"$__b_eof\" ]; do while :; do while :; do\n"
    "{ __b_f=$-; set +euxav; } 2>/dev/null\n"
    "[ -z \"$__b_report\" ] || printf '%s%s\\n' \"$__b_nonce\" \"$__b_report\" >&7\n"
    "__b_report=\n"
    "__b_set=\n"
    "for __b_x in e u x a v; do case $__b_f in *$__b_x*) __b_set=$__b_set$__b_x;; esac; done\n"
    "__b_pre=\n"
    "[ -z \"$__b_set\" ] || __b_pre=\"set -$__b_set; \"\n"
    "case $__b_s$__b_set in 0*|*e*) ;; *) __b_pre=\"$__b_pre(exit $__b_s); \";; esac\n"
    "IFS=' ' read -r __b_lines __b_last || { __b_eof=1; break 2; }\n"
    "__b_piece=\n"
    "while [ \"$__b_lines\" -gt 0 ]; do\n"
    "IFS= read -r __b_x || :\n"
    "__b_piece=\"$__b_piece$__b_x$__b_nl\"\n"
    "__b_lines=$((__b_lines-1))\n"
    "done\n"
    "__b_more=$__b_text\n"
    "__b_text=$__b_text$__b_piece\n"
    "__b_report=I\n"
    /* text that was incomplete before is looked at again only when the write ends */
    "if [ \"$__b_last\" = 0 ] && [ -n \"$__b_more\" ]; then eval \"$__b_pre:\"; continue; fi\n"
    /* plain words are complete: no shell needs to be started to say so */
    "__b_odd=plain\n"
    "case $__b_text in *[!A-Za-z0-9_./=:,+@%\" $__b_nl\"-]*) __b_odd=0;; esac\n"
    "for __b_x in if then else elif fi do done case esac while until for in function select time "
    "coproc; do\n"
    "case $__b_nl$__b_text in *[\" $__b_nl\"]$__b_x[\" $__b_nl\"]*) __b_odd=0;; esac; done\n"
    "if [ $__b_odd = plain ]; then __b_report=R; else\n"
    "__b_x=${__b_text%\"$__b_nl\"}\n"
    "while case $__b_x in *\\\\) ;; *) false;; esac; do\n"
    "__b_x=${__b_x%\\\\}; __b_odd=$((1-__b_odd)); done\n"
    "if [ $__b_odd = 0 ]; then\n"
    "if __b_x=$(printf %s \"$__b_text\" | LC_ALL=C /bin/sh -n 2>&1); then\n"
    "__b_report=R\n"
    /* inside an open here-document a parenthesis would be accepted as its text */
    "case $__b_text in *'<<'*)\n"
    "if printf '%s)\\n' \"$__b_text\" | /bin/sh -n 2>/dev/null; then __b_report=I; fi;; esac\n"
    "else\n"
    /* an error that more text cannot mend runs, so that it fails its own write */
    "case $__b_x in *'end of file'*|*EOF*|*nterminated*|*issing*) ;;\n"
    "*nexpected*) __b_report=R;; esac\n"
    "fi\n"
    "fi\n"
    "fi\n"
    "if [ $__b_report = I ]; then eval \"$__b_pre:\"; continue; fi\n"
    "__b_x=$__b_text __b_text= __b_piece= __b_s=0\n"
    "eval \"$__b_pre$__b_x\" </dev/null 7>&-\n"
    "{ __b_s=$?; } 2>/dev/null\n"
    "done; done; done\n"
    "[ -n \"$__b_text\" ] || __b_text=:\n"
    "eval \"$__b_pre$__b_text\" </dev/null 7>&-\n";

int wrapper_line(struct buf *out, const char *dir)
{
    int r = buf_addstr(out, "exec 2>&1; cd -- ");

    if (r >= 0)
        r = dir ? shell_quote(out, dir) : buf_addstr(out, "\"${HOME:-/}\"");
    if (r >= 0)
        r = buf_addstr(out, " || exit 1; read -r n; /bin/sh -c ");
    if (r >= 0)
        r = shell_quote(out, inner);
    if (r >= 0)
        r = buf_addstr(out, " sh; s=$?; printf '%sX%d\\n' \"$n\" \"$s\"; exit $s");
    return r;
}

int wrapper_greeting(struct buf *out, const char *nonce, bool stop)
{
    return buf_addf(out, "%s\n%s %s\n", nonce, nonce, stop ? "e" : "-");
}

/* One frame: as many whole lines as fit into FRAME_BYTES, but at least one. */
static size_t frame_length(const char *text, size_t n, unsigned *lines)
{
    size_t len = 0;

    *lines = 0;
    while (len < n) {
        const char *end = memchr(text + len, '\n', n - len);
        size_t next = end ? (size_t)(end - text) + 1 : n;

        if (*lines && next > FRAME_BYTES)
            break;
        len = next;
        ++*lines;
    }
    return len;
}

int wrapper_frames(struct buf *out, const char *text, size_t n, uint64_t *frames)
{
    int r = 0;

    while (r >= 0 && n) {
        unsigned lines;
        size_t len = frame_length(text, n, &lines);

        r = buf_addf(out, "%u %d\n", lines, len == n);
        for (size_t i = 0, from = 0; r >= 0 && i <= len; i++)
            if (i == len || !text[i]) {
                r = buf_add(out, text + from, i - from);
                from = i + 1;
            }
        text += len;
        n -= len;
        ++*frames;
    }
    return r;
}

/* Length of the report at `p`, 0 when it is none, -1 when more bytes are needed to tell. */
static ssize_t report_length(const struct reports *r, const char *p, size_t n, char *kind,
                             int *status)
{
    size_t same = n < NONCE_HEX ? n : NONCE_HEX, i = NONCE_HEX + 1;

    if (memcmp(p, r->nonce, same))
        return 0;
    if (n <= NONCE_HEX)
        return -1;
    *kind = p[NONCE_HEX];
    *status = 0;
    if (!strchr("RIX", *kind) || !*kind)
        return 0;
    for (; *kind == 'X' && i < n && p[i] >= '0' && p[i] <= '9'; i++) {
        if (i - NONCE_HEX > STATUS_DIGITS)
            return 0;
        *status = *status * 10 + (p[i] - '0');
    }
    if (i == n)
        return -1;
    return p[i] == '\n' ? (ssize_t)i + 1 : 0;
}

int reports_feed(struct reports *r, const char *data, size_t n)
{
    size_t at = 0, from = 0, left;
    int e = buf_add(&r->held, data, n);
    const char *p = r->held.data;

    if (e < 0)
        return e;
    n = r->held.len;
    while (at < n) {
        const char *first = memchr(p + at, r->nonce[0], n - at);
        ssize_t len;
        char kind;
        int status;

        at = first ? (size_t)(first - p) : n;
        if (!first)
            break;
        len = report_length(r, p + at, n - at, &kind, &status);
        if (len < 0)
            break;
        if (!len) {
            at++;
            continue;
        }
        if (at > from)
            r->output(r->arg, p + from, at - from);
        at += (size_t)len;
        from = at;
        if (!r->report(r->arg, kind, status)) {
            buf_clear(&r->held);
            return 0;
        }
    }
    if (at > from)
        r->output(r->arg, p + from, at - from);
    left = r->held.len - at;
    buf_consume(&r->held, at);
    if (!left)
        buf_clear(&r->held);
    return 0;
}

void reports_flush(struct reports *r)
{
    if (r->held.len)
        r->output(r->arg, r->held.data, r->held.len);
    buf_clear(&r->held);
}
