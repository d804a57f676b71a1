/* Shell lines for file operations: POSIX sh with cat, stat and the usual utilities, GNU or busybox.
 * Exit codes above 2 that a body gives itself are Linux errno numbers; see errno.c. */
#include "base/base.h"

#include "base/str.h"
#include "script/line.h"

/* Size, inode, device and times stand first: a fetch compares that much of it with what is known.
 * Seconds come from %X %Y %Z, nanoseconds from the fractions in %x %y %z. */
#define STAT_FORMAT "%s %i %d|%y|%z|%f %h %u %g %b %o %t %T %X %Y %Z %x|"

static const char prologue[] =
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C TZ=UTC0; export PATH LC_ALL TZ; unset CDPATH; "
    "umask 0; f='" STAT_FORMAT "'; ";

const char line_stat[] = "exec stat -c \"$f\" -- \"$1\"";

/* A record ends with a slash and a newline, which no name holds. The names are given in batches by
 * number, so that no argument list grows beyond what the kernel takes; with ./ before them, since
 * stat takes "-" for its input. */
const char line_list[] =
    "stat -c \"$f./\" -- \"$1/.\" || exit 1; cd \"$1/.\" && [ -r . ] || exit 13; "
    "t=$(stat -f -c %t .); printf '%s/\\n' \"$t\"; "
    "case $t in 9fa0|62656572|1cd1|27e0eb|63677270|64626720|74726163|73636673|cafe4a11|62656570|"
    "f97cff8c|19800202|de5e81e4|6165676c|42494e4d|65735543|6e736673) exit 0;; esac; "
    "set -- ./.* ./*; q=; i=0; "
    "[ $# -le 400 ] || while [ $i -lt 400 ]; do i=$((i+1)); q=\"$q \\\"\\${$i}\\\"\"; done; "
    "while [ $# -gt 400 ]; do eval \"stat -c \\\"\\$f%n/\\\" -- $q\"; shift 400; done "
    "2>/dev/null; "
    "stat -c \"$f%n/\" -- \"$@\" 2>/dev/null; exit 0";

const char line_readlink[] =
    "[ -L \"$1\" ] || { stat -c %i -- \"$1\" >/dev/null || exit 1; exit 22; }; "
    "readlink -n -- \"$1\" && printf '\\0' && readlink -fn -- \"$1\" 2>/dev/null; exit 0";

#define THEN_STAT(arg) " && exec stat -c \"$f\" -- \"$" arg "\"; exit 1"
const char line_mkdir[] = "mkdir -m \"$2\" -- \"$1\"" THEN_STAT("1");
const char line_mkfifo[] = "mkfifo -m \"$2\" -- \"$1\"" THEN_STAT("1");
#define UNLESS_EXISTS(arg) "if [ -e \"$" arg "\" ] || [ -L \"$" arg "\" ]; then exit 17; fi; "
const char line_symlink[] = UNLESS_EXISTS("2") "ln -s -- \"$1\" \"$2\"" THEN_STAT("2");
const char line_link[] = UNLESS_EXISTS("2") "ln -- \"$1\" \"$2\"" THEN_STAT("2");
const char line_unlink[] =
    "if [ -d \"$1\" ] && ! [ -L \"$1\" ]; then exit 21; fi; exec rm -- \"$1\" </dev/null";
const char line_rmdir[] = "exec rmdir -- \"$1\"";

/* mv would copy to another file system; rename(2) must say EXDEV. $3 is "n" for no_replace. */
const char line_rename[] =
    "stat -c %i -- \"$1\" \"${2%/*}/.\" >/dev/null || exit 1; "
    "a=$(stat -c %d -- \"${1%/*}/.\") && b=$(stat -c %d -- \"${2%/*}/.\") || exit 1; "
    "[ \"$a\" = \"$b\" ] || exit 18; "
    "if [ \"$3\" = n ]; then " UNLESS_EXISTS(
        "2") "mv -nT -- \"$1\" \"$2\" </dev/null || exit 1; "
             "if [ -e \"$1\" ] || [ -L \"$1\" ]; then exit 17; fi; exit 0; fi; "
             "if ! [ -L \"$1\" ] && ! [ -L \"$2\" ] && [ \"$1\" -ef \"$2\" ]; then exit 0; fi; "
             "exec mv -fT -- \"$1\" \"$2\"";

const char line_statfs[] = "exec stat -f -c '%b %f %a %S %c %d %l' -- \"$1\"";
const char line_user[] = "id -u && id -g";

/* An argument that is not UTF-8: octal through printf. The command substitution eats newlines at
 * the end, so an x stands behind them. */
static int add_octal(struct buf *out, unsigned number, const char *arg)
{
    int r = buf_addf(out, "a%u=$(printf '", number);

    for (const unsigned char *p = (const unsigned char *)arg; r >= 0 && *p; p++)
        r = buf_addf(out, "\\%03o", *p);
    if (r >= 0)
        r = buf_addf(out, "x'); a%u=${a%u%%x}; ", number, number);
    return r;
}

int line_make(struct buf *out, const char *body, const char *const *args)
{
    _cleanup_buf_ struct buf words = { 0 };
    int r = buf_addstr(out, prologue);

    for (unsigned i = 0; r >= 0 && args[i]; i++) {
        size_t n = strlen(args[i]);

        if (n > BOXD_PATH_MAX)
            return -ENAMETOOLONG;
        r = buf_addch(&words, ' ');
        if (r >= 0 && utf8_valid(args[i], n)) {
            r = shell_quote(&words, args[i]);
        } else if (r >= 0) {
            r = buf_addf(&words, "\"$a%u\"", i);
            if (r >= 0)
                r = add_octal(out, i, args[i]);
        }
    }
    if (r >= 0)
        r = buf_addf(out, "set --%s; ", buf_str(&words));
    return r < 0 ? r : buf_addstr(out, body);
}

int line_create(struct buf *out, const char *path, mode_t mode, unsigned flags)
{
    char octal[16];
    const char *args[] = { path, octal, NULL };
    const char *exists = flags & BOXD_CREATE_EXCL    ? "exit 17; "
                         : flags & BOXD_CREATE_TRUNC ? "[ -f \"$1\" ] || exit 6; : > \"$1\" || "
                                                       "exit 1; exec stat -c \"$f\" -- \"$1\"; "
                                                     : "[ -f \"$1\" ] || exit 6; [ -w \"$1\" ] || "
                                                       "exit 13; exec stat -c \"$f\" -- \"$1\"; ";
    _cleanup_buf_ struct buf body = { 0 };
    int r;

    snprintf(octal, sizeof octal, "0%04o", (unsigned)mode & 07777);
    /* noclobber makes the shell open with O_EXCL */
    r = buf_addf(&body,
                 "if [ -d \"$1\" ]; then exit 21; fi; "
                 "if [ -e \"$1\" ] || [ -L \"$1\" ]; then %sfi; "
                 "umask 077; set -C; : > \"$1\" && chmod -- \"$2\" \"$1\" && "
                 "exec stat -c \"$f\" -- \"$1\"; exit 1",
                 exists);
    return r < 0 ? r : line_make(out, body.data, args);
}

/* $f is taken; times go through touch -d @SECONDS, with the fraction where touch takes it. */
static int add_touch(struct buf *body, const char *which, bool now, const struct timespec *ts)
{
    if (now)
        return buf_addf(body, "touch -h -c -%s -- \"$1\" && ", which);
    return buf_addf(body,
                    "{ touch -h -c -%s -d @%lld.%09ld -- \"$1\" 2>/dev/null || "
                    "touch -h -c -%s -d @%lld -- \"$1\"; } && ",
                    which, (long long)ts->tv_sec, ts->tv_nsec, which, (long long)ts->tv_sec);
}

int line_setattr(struct buf *out, const char *path, const struct boxd_setattr *set)
{
    const char *args[] = { path, NULL };
    _cleanup_buf_ struct buf body = { 0 };
    int r = buf_addstr(&body, "stat -c %i -- \"$1\" >/dev/null || exit 1; ");

    if (r >= 0 && set->set_size)
        r = buf_addf(&body,
                     "if [ -d \"$1\" ]; then exit 21; fi; if ! [ -f \"$1\" ]; then exit 22; fi; "
                     "truncate -c -s %" PRIu64 " -- \"$1\" && ",
                     set->size);
    if (r >= 0 && (set->set_uid || set->set_gid)) {
        r = buf_addstr(&body, "chown -h ");
        if (r >= 0 && set->set_uid)
            r = buf_addf(&body, "%u", (unsigned)set->uid);
        if (r >= 0 && set->set_gid)
            r = buf_addf(&body, ":%u", (unsigned)set->gid);
        if (r >= 0)
            r = buf_addstr(&body, " -- \"$1\" && ");
    }
    if (r >= 0 && set->set_mode)
        r = buf_addf(&body, "chmod -- 0%04o \"$1\" && ", (unsigned)set->mode & 07777);
    if (r >= 0 && set->set_atime)
        r = add_touch(&body, "a", set->atime_now, &set->atime);
    if (r >= 0 && set->set_mtime)
        r = add_touch(&body, "m", set->mtime_now, &set->mtime);
    if (r >= 0)
        r = buf_addstr(&body, "exec stat -c \"$f\" -- \"$1\"; exit 1");
    return r < 0 ? r : line_make(out, body.data, args);
}

/* "SECONDS-as-date.NANOSECONDS zone" cannot be made here without the machine's calendar, but it is
 * always UTC in this format, so gmtime does it. */
static void add_time(char *out, size_t size, const struct timespec *ts)
{
    struct tm tm;
    size_t n = gmtime_r(&ts->tv_sec, &tm) ? strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm) : 0;

    snprintf(out + n, size - n, ".%09ld +0000", ts->tv_nsec);
}

int line_fetch(struct buf *out, const char *path, unsigned flags, uint64_t limit,
               const struct stat *known)
{
    char same[256] = "", mtime[64], ctime_[64], max[32];
    const char *args[] = { path, max, same, NULL };
    _cleanup_buf_ struct buf body = { 0 };
    int r;

    snprintf(max, sizeof max, "%" PRIu64, limit);
    if (known) {
        add_time(mtime, sizeof mtime, &known->st_mtim);
        add_time(ctime_, sizeof ctime_, &known->st_ctim);
        snprintf(same, sizeof same, "%lld %llu %llu|%s|%s|", (long long)known->st_size,
                 (unsigned long long)known->st_ino, (unsigned long long)known->st_dev, mtime,
                 ctime_);
    }
    r = buf_addf(&body,
                 "if ! [ -f \"$1\" ]; then if [ -d \"$1\" ]; then exit 21; fi; "
                 "stat -c %%i -- \"$1\" >/dev/null || exit 1; exit 6; fi; %s%s%s"
                 "h=$(stat -c \"$f\" -- \"$1\") || exit 1; "
                 "[ \"${h%%%% *}\" -le \"$2\" ] || exit 27; printf '%%s\\n' \"$h\"; ",
                 flags & BOXD_FETCH_READ ? "[ -r \"$1\" ] || exit 13; " : "",
                 flags & BOXD_FETCH_WRITE ? "[ -w \"$1\" ] || exit 13; " : "",
                 flags & BOXD_FETCH_TRUNC ? ": > \"$1\" || exit 1; " : "");
    if (r >= 0 && flags & BOXD_FETCH_CONTENT && known)
        r = buf_addstr(&body, "case $h in \"$3\"*) exit 0;; esac; ");
    if (r >= 0)
        r = buf_addstr(&body, flags & BOXD_FETCH_CONTENT ? "exec cat -- \"$1\"" : "exit 0");
    return r < 0 ? r : line_make(out, body.data, args);
}

int line_store(struct buf *out, const char *path, unsigned flags)
{
    const char *args[] = { path, NULL };
    _cleanup_buf_ struct buf body = { 0 };
    int r = buf_addf(&body,
                     "if [ -d \"$1\" ]; then exit 21; fi; [ -f \"$1\" ] || exit 116; m=; "
                     "%scat %s \"$1\"; s=$?; [ -z \"$m\" ] || chmod -- \"0$m\" \"$1\" || exit 1; "
                     "[ $s = 0 ] || exit $s; exec stat -c \"$f\" -- \"$1\"",
                     flags & BOXD_STORE_FORCE ? "[ -w \"$1\" ] || { m=$(stat -c %a -- \"$1\") && "
                                                "chmod -- u+w \"$1\"; } || exit 1; "
                                              : "",
                     flags & BOXD_STORE_APPEND ? ">>" : ">");

    return r < 0 ? r : line_make(out, body.data, args);
}
