/* fs/cmd_doctor.c: `boxdfs doctor`: what this computer has and lacks. One function a line of the
 * report; a failing one says its cure. Credentials are never shown. */
#include "fs.h"

#include "commands.h"
#include "mount.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define ASK_MS 10000

/* GOOD; WARN: something is missing that mounting here does not need; BAD: it does. */
enum verdict { GOOD, WARN, BAD };

struct line {
    struct buf text;
    struct buf cure;
};

static enum verdict say(struct line *l, enum verdict v, const char *text, const char *cure)
{
    if (buf_addstr(&l->text, text) < 0 || (cure && buf_addstr(&l->cure, cure) < 0))
        abort();
    return v;
}

static enum verdict check_versions(struct line *l)
{
    struct utsname u;
    _cleanup_free_ char *text = NULL;

    uname(&u);
    text = strf("boxdfs %s, Linux %s, libfuse %s, libuv %s", BOXDFS_VERSION, u.release,
                fuse_pkgversion(), uv_version_string());
    return say(l, GOOD, text ? text : "?", NULL);
}

static enum verdict check_fuse(struct line *l)
{
    int r = mount_able();

    if (r >= 0)
        return say(l, GOOD, "/dev/fuse can be opened", NULL);
    return say(l, BAD, boxd_error_words(r), NULL);
}

static enum verdict check_fusermount(struct line *l)
{
    struct stat st;

    if (stat("/usr/bin/fusermount3", &st) < 0 && stat("/bin/fusermount3", &st) < 0)
        return say(l, geteuid() ? BAD : WARN, "fusermount3 is missing",
                   "install the package fuse3; ordinary users mount through it");
    if (st.st_uid != 0 || !(st.st_mode & S_ISUID))
        return say(l, geteuid() ? BAD : WARN, "fusermount3 is not setuid root",
                   "as root: chmod u+s /usr/bin/fusermount3");
    return say(l, GOOD, "fusermount3 is setuid root", NULL);
}

static bool file_has_line(const char *path, const char *wanted)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    _cleanup_free_ char *line = NULL;
    size_t room = 0;

    while (f && getline(&line, &room, f) > 0) {
        line[strcspn(line, " \t\n#")] = '\0';
        if (!strcmp(line, wanted))
            return true;
    }
    return false;
}

static enum verdict check_fuse_conf(struct line *l)
{
    if (!geteuid() || file_has_line("/etc/fuse.conf", "user_allow_other"))
        return say(l, GOOD, "allow_other may be used", NULL);
    return say(l, WARN, "allow_other may not be used",
               "only for -o allow_other: as root, write user_allow_other into /etc/fuse.conf");
}

/* ---- the service ---- */

struct asked {
    uv_loop_t loop;
    uv_timer_t timer;
    bool answered;
    int r;
    char words[512];
};

static void on_account(void *arg, int r, const struct boxd_account *a)
{
    struct asked *q = arg;

    if (!q->answered) {
        q->answered = true;
        q->r = r;
        snprintf(q->words, sizeof q->words, "%s", r < 0 ? boxd_error_words(r) : "");
    }
    uv_stop(&q->loop);
}

static void on_late(uv_timer_t *t)
{
    on_account(t->data, boxd_words(-ETIMEDOUT, "no answer in %d s", ASK_MS / 1000), NULL);
}

static void close_handle(uv_handle_t *h, void *arg)
{
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static enum verdict ask_service(struct line *l, struct boxd_client *c, struct asked *q)
{
    _cleanup_free_ char *text = NULL;

    q->timer.data = q;
    uv_timer_init(&q->loop, &q->timer);
    uv_timer_start(&q->timer, on_late, ASK_MS, 0);
    if (!boxd_whoami(c, on_account, q))
        return say(l, WARN, "out of memory", NULL);
    uv_run(&q->loop, UV_RUN_DEFAULT);
    text = strf("%s %s", boxd_client_address(c), q->r < 0 ? "does not serve: " : "answers");
    say(l, GOOD, text ? text : "?", NULL);
    if (q->r >= 0)
        return GOOD;
    return say(l, WARN, q->words,
               "check BOXD_API_KEY, BOXD_BASE_URL and the network; --local needs "
               "none of them");
}

static enum verdict check_service(struct line *l)
{
    struct boxd_client_options o = { 0 };
    struct boxd_client *c = NULL;
    struct asked q = { 0 };
    enum verdict v;
    int r = uv_loop_init(&q.loop);

    if (r < 0)
        return say(l, BAD, uv_strerror(r), NULL);
    r = boxd_client_new(&q.loop, &o, &c);
    if (r == -ENOKEY)
        v = say(l, WARN, "no credentials for the boxd service",
                "set BOXD_API_KEY, or mount with --local, which needs none");
    else if (r < 0)
        v = say(l, WARN, boxd_error_words(r), "check BOXD_BASE_URL");
    else
        v = ask_service(l, c, &q);
    if (c)
        boxd_client_free(c);
    uv_walk(&q.loop, close_handle, NULL);
    uv_run(&q.loop, UV_RUN_DEFAULT);
    uv_loop_close(&q.loop);
    return v;
}

/* ---- for --local ---- */

/* Whether `path` has a line "NAME:..." or "UID:..." of this user. */
static bool has_subids(const char *path)
{
    const struct passwd *pw = getpwuid(getuid());
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    _cleanup_free_ char *line = NULL, *uid = strf("%u", getuid());
    size_t room = 0;

    while (f && getline(&line, &room, f) > 0) {
        line[strcspn(line, ":")] = '\0';
        if ((pw && !strcmp(line, pw->pw_name)) || (uid && !strcmp(line, uid)))
            return true;
    }
    return false;
}

static enum verdict check_subids(struct line *l)
{
    if (!geteuid())
        return say(l, GOOD, "root needs no subordinate ids", NULL);
    if (!has_subids("/etc/subuid") || !has_subids("/etc/subgid"))
        return say(l, WARN, "no subordinate ids in /etc/subuid and /etc/subgid",
                   "local machines then have one user only; as root: usermod --add-subuids "
                   "100000-165535 --add-subgids 100000-165535 USER");
    if (access("/usr/bin/newuidmap", X_OK) < 0)
        return say(l, WARN, "newuidmap is missing", "install the package uidmap");
    return say(l, GOOD, "subordinate ids and newuidmap", NULL);
}

static enum verdict check_userns(struct line *l)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (status == 0)
        return say(l, GOOD, "user namespaces work", NULL);
    return say(
        l, WARN, "user namespaces do not work",
        "local machines need them; as root: sysctl user.max_user_namespaces=15000, and "
        "kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0 "
        "where these exist");
}

static enum verdict check_sudo(struct line *l)
{
    struct stat st;

    if (stat("/usr/bin/sudo", &st) < 0)
        return say(
            l, WARN, "sudo is missing",
            "local machines use a small stand-in; install the package sudo for the real one");
    return say(l, GOOD, "sudo is there for local machines", NULL);
}

static const struct check {
    const char *name;
    enum verdict (*run)(struct line *l);
} checks[] = {
    { "versions", check_versions },      { "fuse", check_fuse },
    { "fusermount3", check_fusermount }, { "fuse.conf", check_fuse_conf },
    { "service", check_service },        { "subuids", check_subids },
    { "namespaces", check_userns },      { "sudo", check_sudo },
};

int cmd_doctor(int argc, char **argv)
{
    static const char *const marks[] = { "ok", "note", "FAIL" };
    bool bad = false;

    if (argc) {
        fprintf(stderr, "boxdfs: usage: boxdfs doctor\n");
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        struct line l = { 0 };
        enum verdict v = checks[i].run(&l);

        printf("%-4s %-12s %s", marks[v], checks[i].name, buf_str(&l.text));
        if (v != GOOD && l.cure.len)
            printf(" (%s)", buf_str(&l.cure));
        printf("\n");
        bad |= v == BAD;
        buf_clear(&l.text);
        buf_clear(&l.cure);
    }
    return bad;
}
