/* The shell lines, run by the real shells and utilities of this computer (GNU with dash and bash,
 * busybox with its own), and their answers compared with what lstat says. */
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/str.h"
#include "script/line.h"
#include "tap.h"

static char top[64]; /* the scratch directory */
static const char *const *shell;
static struct buf out, err;
static char applets[80]; /* a directory of busybox's own utilities, instead of the pinned PATH */

/* The line with the pinned PATH replaced where busybox's own utilities are tested. */
static char *with_path(const char *line)
{
    static const char pinned[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin ";

    if (!*applets || !starts_with(line, pinned))
        return strdup(line);
    return strf("PATH=%s %s", applets, line + strlen(pinned));
}

/* Runs `line` with `input` and collects its output; returns the exit code. */
static int sh(const char *line, const char *input)
{
    _cleanup_free_ char *text = with_path(line);
    char tmp[3][96];
    int status, fd[3];
    pid_t pid;

    for (int i = 0; i < 3; i++) {
        snprintf(tmp[i], sizeof tmp[i], "%s.%d", top, i);
        fd[i] = open(tmp[i], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        unlink(tmp[i]);
    }
    if (input && (write(fd[0], input, strlen(input)) < 0 || lseek(fd[0], 0, SEEK_SET)))
        abort();
    pid = fork();
    if (!pid) {
        char *argv[6] = { 0 };
        int n = 0;

        for (int i = 0; i < 3; i++)
            dup2(fd[i], i);
        for (; shell[n]; n++)
            argv[n] = (char *)shell[n];
        argv[n++] = (char *)"-c";
        argv[n] = text;
        execvp(argv[0], argv);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    for (int i = 1; i < 3; i++) {
        struct buf *b = i == 1 ? &out : &err;
        char chunk[65536];
        ssize_t n;

        buf_clear(b);
        lseek(fd[i], 0, SEEK_SET);
        while ((n = read(fd[i], chunk, sizeof chunk)) > 0)
            buf_add(b, chunk, (size_t)n);
    }
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Makes a line, runs it, and turns its end into 0 or an errno. */
static int body(const char *text, const char *a, const char *b, const char *c)
{
    const char *args[] = { a, b, c, NULL };
    _cleanup_buf_ struct buf line = { 0 };
    int code, r = line_make(&line, text, args);

    if (r < 0)
        return r;
    code = sh(line.data, NULL);
    return code ? line_errno(code, buf_str(&err), err.len) : 0;
}

static int run_line(struct buf *line, int r, const char *input)
{
    int code;

    if (r < 0)
        return r;
    code = sh(line->data, input);
    buf_clear(line);
    return code ? line_errno(code, buf_str(&err), err.len) : 0;
}

static char *in_top(const char *name)
{
    return strf("%s/%s", top, name);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_mode == b->st_mode &&
           a->st_nlink == b->st_nlink && a->st_uid == b->st_uid && a->st_gid == b->st_gid &&
           a->st_size == b->st_size && a->st_blocks == b->st_blocks && a->st_rdev == b->st_rdev &&
           !memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim) &&
           !memcmp(&a->st_ctim, &b->st_ctim, sizeof a->st_ctim);
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
    close(fd);
}

static bool content_is(const char *path, const char *want)
{
    char text[256];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);

    if (fd >= 0)
        close(fd);
    return n == (ssize_t)strlen(want) && !memcmp(text, want, (size_t)n);
}

static const char *const awkward[] = {
    "plain",   "with space",        "-n",       "-",           "--help", "new\nline", "end\n",
    "'quote'", "\"double\"",        "$HOME",    "`id`",        "a\\nb",  "*",         ".hidden",
    "..two",   "\xc3\xa9t\xc3\xa9", "\xff\xfe", "latin\xe9\n", "%s%n",   "tab\there", "\\",
};

static void test_stat(void)
{
    struct stat want, got;

    t("stat of awkward names is what lstat says");
    for (size_t i = 0; i < ARRAY_LEN(awkward); i++) {
        _cleanup_free_ char *path = in_top(awkward[i]);

        put(path, awkward[i]);
        ok(lstat(path, &want) == 0);
        ok(body(line_stat, path, NULL, NULL) == 0);
        ok(line_stat_parse(buf_str(&out), &got) == 0 && same(&got, &want));
    }
    t("stat of a device has its number, of a link its own attributes");
    ok(body(line_stat, "/dev/null", NULL, NULL) == 0 && stat("/dev/null", &want) == 0);
    ok(line_stat_parse(buf_str(&out), &got) == 0 && got.st_rdev == want.st_rdev);
    t("stat fails as the system does");
    ok(body(line_stat, "/nonexistent/x", NULL, NULL) == -ENOENT);
    ok(body(line_stat, "/dev/null/x", NULL, NULL) == -ENOTDIR);
}

static void test_list(void)
{
    _cleanup_free_ char *dir = in_top("list"), *name = NULL;
    struct listing l;
    struct stat want;
    char longest[256];

    t("a directory of 1200 files, 255-byte and awkward names lists as lstat says");
    ok(mkdir(dir, 0755) == 0);
    memset(longest, 'x', 255);
    longest[255] = '\0';
    for (int i = 0; i < 1200; i++) {
        _cleanup_free_ char *path = strf("%s/f%d", dir, i);

        put(path, "");
    }
    for (size_t i = 0; i <= ARRAY_LEN(awkward); i++) {
        _cleanup_free_ char *path =
            strf("%s/%s", dir, i < ARRAY_LEN(awkward) ? awkward[i] : longest);

        put(path, "1");
    }
    ok(body(line_list, dir, NULL, NULL) == 0);
    ok(listing_parse(&l, buf_str(&out), out.len) == 0);
    ok(l.count == 1200 + ARRAY_LEN(awkward) + 1 && !l.kernel);
    for (size_t i = 0; i < l.count; i++) {
        _cleanup_free_ char *path = strf("%s/%s", dir, l.entries[i].name);

        ok(lstat(path, &want) == 0 && same(&want, &l.entries[i].st));
    }
    ok(lstat(dir, &want) == 0 && same(&want, &l.self));
    listing_clear(&l);
    t("an empty directory is empty, proc is given empty, a file is no directory");
    name = in_top("list2");
    ok(mkdir(name, 0755) == 0 && body(line_list, name, NULL, NULL) == 0);
    ok(listing_parse(&l, buf_str(&out), out.len) == 0 && l.count == 0 && !l.kernel);
    listing_clear(&l);
    ok(body(line_list, "/proc", NULL, NULL) == 0);
    ok(listing_parse(&l, buf_str(&out), out.len) == 0 && l.count == 0 && l.kernel);
    listing_clear(&l);
    ok(body(line_list, "/dev/null", NULL, NULL) == -ENOTDIR);
    ok(body(line_list, "/nonexistent", NULL, NULL) == -ENOENT);
}

static void test_hostile(void)
{
    static const char good[] = "0 1 2|x.5|x|41ed 2 0 0 8 4096 0 0 1 2 3 x|./\nef53/\n";
    static const char file[] = "0 1 2|x|x|81a4 1 0 0 0 4096 0 0 1 2 3 x|./";
    static const char *const names[] = { "a", "/", "", "a/b", "..\n", NULL };
    struct listing l;
    struct stat st;

    t("a hostile listing is refused: empty, split, long and cut names, bad numbers");
    ok(listing_parse(&l, good, strlen(good)) == 0 && l.self.st_mtim.tv_nsec == 500000000);
    listing_clear(&l);
    for (int i = 0; names[i]; i++) {
        _cleanup_free_ char *text = strf("%s%s%s/\n", good, file, names[i]);
        int r = listing_parse(&l, text, strlen(text));

        ok(!strcmp(names[i], "a") || !strcmp(names[i], "..\n") ? r == 0 : r == -EIO);
        listing_clear(&l);
    }
    for (size_t n = 0; n < strlen(good); n++) {
        ok(listing_parse(&l, good, n) == -EIO);
        listing_clear(&l);
    }
    ok(line_stat_parse("99999999999999999999 1 2|x|x|41ed 2 0 0 8 4096 0 0 1 2 3 x|", &st) == -EIO);
    ok(line_stat_parse("-1 1 2|x|x|41ed 2 0 0 8 4096 0 0 1 2 3 x|", &st) == -EIO);
    ok(line_stat_parse("0 1 2|x|x|01ed 2 0 0 8 4096 0 0 1 2 3 x|", &st) == -EIO);
    ok(line_stat_parse("", &st) == -EIO);
}

static void test_links(void)
{
    static const char *const targets[] = { "plain", "/etc/hosts", "../x\n", "\xff\n\n", "-n" };
    const char *target, *resolved;

    t("a link's target comes back byte for byte");
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        _cleanup_free_ char *path = in_top("link");

        unlink(path);
        ok(body(line_symlink, targets[i], path, NULL) == 0);
        ok(body(line_readlink, path, NULL, NULL) == 0);
        ok(line_readlink_parse(buf_str(&out), out.len, &target, &resolved) == 0);
        ok_str(target, targets[i]);
        ok(body(line_symlink, "x", path, NULL) == -EEXIST);
    }
    t("readlink of what is no link is EINVAL, of nothing ENOENT");
    ok(body(line_readlink, top, NULL, NULL) == -EINVAL);
    ok(body(line_readlink, "/nonexistent", NULL, NULL) == -ENOENT);
}

static void test_changes(void)
{
    _cleanup_buf_ struct buf line = { 0 };
    _cleanup_free_ char *f = in_top("new\xff\n"), *d = in_top("dir"), *g = in_top("dir/-g");
    _cleanup_free_ char *fifo = in_top("fifo");
    struct boxd_setattr set = { 0 };
    struct stat st;

    t("create makes exactly this mode, exclusively or not");
    ok(run_line(&line, line_create(&line, f, 0444, BOXD_CREATE_EXCL), NULL) == 0);
    ok(lstat(f, &st) == 0 && st.st_mode == (S_IFREG | 0444) && st.st_size == 0);
    ok(run_line(&line, line_create(&line, f, 0644, BOXD_CREATE_EXCL), NULL) == -EEXIST);
    ok(run_line(&line, line_create(&line, "/nonexistent/x", 0644, 0), NULL) == -ENOENT);
    t("store replaces, appends and honours an open made before the mode forbade it");
    ok(run_line(&line, line_store(&line, f, BOXD_STORE_FORCE), "hello") == 0);
    ok(content_is(f, "hello"));
    ok(run_line(&line, line_store(&line, f, BOXD_STORE_FORCE | BOXD_STORE_APPEND), "!\n") == 0);
    ok(content_is(f, "hello!\n") && lstat(f, &st) == 0 && st.st_mode == (S_IFREG | 0444));
    ok(run_line(&line, line_store(&line, "/nonexistent", 0), "x") == -ESTALE);
    ok(run_line(&line, line_store(&line, top, 0), "x") == -EISDIR);
    t("fetch gives header and content; over the limit, a FIFO and a directory are refused");
    ok(run_line(&line, line_fetch(&line, f, BOXD_FETCH_READ | BOXD_FETCH_CONTENT, 7, NULL), NULL) ==
       0);
    ok(out.len > 7 && !memcmp(out.data + out.len - 8, "\nhello!\n", 8));
    ok(lstat(f, &st) == 0);
    ok(run_line(&line, line_fetch(&line, f, BOXD_FETCH_CONTENT, 7, &st), NULL) == 0);
    ok(!memmem(out.data, out.len, "hello", 5));
    ok(run_line(&line, line_fetch(&line, f, BOXD_FETCH_CONTENT, 6, NULL), NULL) == -EFBIG);
    ok(body(line_mkfifo, fifo, "0640", NULL) == 0 && lstat(fifo, &st) == 0 &&
       st.st_mode == (S_IFIFO | 0640));
    ok(run_line(&line, line_fetch(&line, fifo, BOXD_FETCH_CONTENT, 9, NULL), NULL) == -ENXIO);
    ok(run_line(&line, line_fetch(&line, top, BOXD_FETCH_CONTENT, 9, NULL), NULL) == -EISDIR);
    t("mkdir, rename, rmdir and unlink fail as the system does");
    ok(body(line_mkdir, d, "1750", NULL) == 0 && lstat(d, &st) == 0 &&
       st.st_mode == (S_IFDIR | 01750));
    ok(body(line_mkdir, d, "0755", NULL) == -EEXIST);
    ok(body(line_rename, f, g, "") == 0 && content_is(g, "hello!\n"));
    ok(body(line_rename, d, g, "") == -EINVAL || body(line_rename, d, g, "") == -ENOTDIR);
    ok(body(line_rename, g, top, "") == -EISDIR);
    ok(body(line_rename, g, fifo, "n") == -EEXIST);
    ok(body(line_rename, g, fifo, "") == 0 && content_is(fifo, "hello!\n"));
    ok(body(line_rename, g, f, "") == -ENOENT);
    ok(body(line_rename, fifo, g, "") == 0);
    ok(body(line_rmdir, d, NULL, NULL) == -ENOTEMPTY);
    ok(body(line_unlink, d, NULL, NULL) == -EISDIR);
    ok(body(line_link, g, f, NULL) == 0 && lstat(f, &st) == 0 && st.st_nlink == 2);
    ok(body(line_unlink, f, NULL, NULL) == 0 && body(line_unlink, f, NULL, NULL) == -ENOENT);
    t("setattr sets mode, size and times");
    ok(chmod(g, 0644) == 0); /* a mode that lets an ordinary user change the size */
    set.set_mode = set.set_size = set.set_mtime = set.set_atime = true;
    set.mode = 04751;
    set.size = 3;
    set.mtime = (struct timespec){ 1234567890, 123456789 };
    set.atime = (struct timespec){ 86400, 0 };
    ok(run_line(&line, line_setattr(&line, g, &set), NULL) == 0);
    ok(lstat(g, &st) == 0 && st.st_mode == (S_IFREG | 04751) && st.st_size == 3);
    ok(st.st_mtim.tv_sec == 1234567890 && st.st_atim.tv_sec == 86400);
    ok(strcmp(shell[0], "busybox") ? st.st_mtim.tv_nsec == 123456789 : 1);
    ok(run_line(&line, line_setattr(&line, "/nonexistent", &set), NULL) == -ENOENT);
    ok(body(line_unlink, g, NULL, NULL) == 0 && body(line_rmdir, d, NULL, NULL) == 0);
}

static void test_rest(void)
{
    struct statvfs st;
    uid_t uid = 0;
    gid_t gid = 0;

    t("statfs and the user are told");
    ok(body(line_statfs, top, NULL, NULL) == 0 && line_statfs_parse(buf_str(&out), &st) == 0);
    ok(st.f_blocks > 0 && st.f_namemax > 0 && st.f_bsize >= 512);
    ok(body(line_user, NULL, NULL, NULL) == 0 && line_user_parse(buf_str(&out), &uid, &gid) == 0);
    ok(uid == geteuid() && gid == getegid());
    t("a path longer than PATH_MAX is refused before it is sent");
    {
        _cleanup_free_ char *path = malloc(5001);

        memset(path, 'a', 5000);
        path[5000] = '\0';
        ok(body(line_stat, path, NULL, NULL) == -ENAMETOOLONG);
    }
}

int main(void)
{
    static const char *const dash[] = { "dash", NULL }, *const bash[] = { "bash", "--posix", NULL },
                             *const ash[] = { "busybox", "ash", NULL };
    const char *const *shells[] = { dash, bash, ash };

    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        _cleanup_free_ char *clean = NULL, *probe = NULL;

        shell = shells[i];
        *applets = '\0';
        probe = strf("command -v %s >/dev/null", shell[0]);
        snprintf(top, sizeof top, "/tmp/boxd-script-XXXXXX");
        if (!mkdtemp(top))
            return 1;
        if (sh(probe, NULL)) {
            rmdir(top);
            t("skipped a shell that is not installed # SKIP");
            continue;
        }
        if (shell == ash) {
            _cleanup_free_ char *install =
                strf("mkdir %s.applets && busybox --install -s %s.applets", top, top);

            ok(sh(install, NULL) == 0);
            snprintf(applets, sizeof applets, "%s.applets", top);
        }
        test_stat();
        test_list();
        test_hostile();
        test_links();
        test_changes();
        test_rest();
        clean = strf("rm -rf %s %s.applets", top, top);
        ok(sh(clean, NULL) == 0);
    }
    buf_clear(&out);
    buf_clear(&err);
    return tap_done();
}
