/* boxd-sudo: sudo (and su) for machines in which this computer's own cannot work: `sudo -n` for
 * root, boxd and the groups sudo and wheel, without passwords. Two ways to become somebody:
 *   the setuid bit     where several ids exist
 *   a user namespace   where only one does: it is shown under another number, and changes of owner
 *                      are pretended; there is no separation, and none is claimed
 * It is part of no boundary: inside its machine boxd is root already. */
#include "base/base.h"
#include "base/str.h"
#include "helper/fake.h"
#include "helper/users.h"

#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <sched.h>

#define SAFE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

extern char **environ;

struct request {
    const char *user, *group;
    bool keep, set_home, login, shell, only_check;
    char **words; /* assignments and the command */
};

static _Noreturn void die(const char *what, const char *subject)
{
    fprintf(stderr, "sudo: %s%s%s\n", what, subject ? " " : "", subject ? subject : "");
    exit(1);
}

/* Whether this namespace has one id only. */
static bool single(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/uid_map", "re");
    unsigned long inside, outside, count = 0;

    return f && fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3 && count == 1;
}

/* su's words as sudo's. */
static void parse_su(int argc, char **argv, struct request *q, char **command)
{
    const char *run = NULL;

    q->shell = true;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-") || !strcmp(argv[i], "-l") || !strcmp(argv[i], "--login"))
            q->login = true;
        else if (!strcmp(argv[i], "-c") && i + 1 < argc)
            run = argv[++i];
        else if (!strcmp(argv[i], "-s") && i + 1 < argc)
            i++;
        else if (argv[i][0] != '-')
            q->user = argv[i];
    }
    q->set_home = true;
    q->shell = !q->login;
    if (run) {
        q->shell = q->login = false;
        command[0] = strdup("/bin/sh");
        command[1] = strdup("-c");
        command[2] = (char *)(uintptr_t)run;
    }
    q->words = command;
}

static void parse_sudo(int argc, char **argv, struct request *q)
{
    int c;

    while ((c = getopt(argc, argv, "+nHEisSkKvlbPAu:g:p:C:")) != -1)
        switch (c) {
        case 'H':
            q->set_home = true;
            break;
        case 'E':
            q->keep = true;
            break;
        case 'i':
            q->login = true;
            break;
        case 's':
            q->shell = true;
            break;
        case 'u':
            q->user = optarg;
            break;
        case 'g':
            q->group = optarg;
            break;
        case 'v':
        case 'l':
        case 'k':
        case 'K':
            q->only_check = true;
            break;
        case '?':
            exit(1);
        default:
            break;
        }
    q->words = argv + optind;
}

/* root, boxd, and who is in one of the groups that may. */
static bool allowed(const struct user *me)
{
    static const char *const names[] = { "sudo", "wheel" };

    if (me->uid == 0 || !strcmp(me->name, "boxd"))
        return true;
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        gid_t gid;

        if (group_find(names[k], &gid) < 0)
            continue;
        for (size_t i = 0; i < me->ngroups; i++)
            if (me->groups[i] == gid)
                return true;
    }
    return false;
}

static void set_group(const char *name, struct user *u)
{
    uint64_t id;

    if (name[0] == '#' && parse_u64(name + 1, UINT32_MAX - 1, &id) == 0)
        u->gid = (gid_t)id;
    else if (group_find(name, &u->gid) < 0)
        die("unknown group", name);
    u->groups[0] = u->gid;
}

static int put(const char *path, const char *text)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* Shows the only id as this user's. */
static void become_single(const struct user *u)
{
    char uid[64], gid[64];

    snprintf(uid, sizeof uid, "%u %u 1", (unsigned)u->uid, (unsigned)geteuid());
    snprintf(gid, sizeof gid, "%u %u 1", (unsigned)u->gid, (unsigned)getegid());
    if (unshare(CLONE_NEWUSER) < 0)
        die("cannot make a user namespace:", strerror(errno));
    put("/proc/self/setgroups", "deny"); /* mostly denied already, and then refused */
    if (put("/proc/self/uid_map", uid) < 0 || put("/proc/self/gid_map", gid) < 0)
        die("cannot map the user:", strerror(errno));
    if (fake_ids() < 0)
        die("cannot set the system call filter:", strerror(errno));
}

static void become(const struct user *u, bool one)
{
    if (one)
        become_single(u);
    else if (setgroups(u->ngroups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
             setresuid(u->uid, u->uid, u->uid) < 0)
        die("cannot change ids:", strerror(errno));
}

/* ---- environment ------------------------------------------------------------------------------
 */

static void put_env(const char *name, const char *value)
{
    if (setenv(name, value, 1) < 0)
        die("out of memory", NULL);
}

/* Keeps what is harmless, or with -E all but what changes how programs load. */
static void filter_env(bool keep_all)
{
    static const char *const kept[] = { "TERM",   "COLORTERM", "DISPLAY",   "LANG",
                                        "LC_ALL", "TZ",        "LS_COLORS", "XAUTHORITY" };
    static const char *const dropped[] = { "LD_PRELOAD", "LD_LIBRARY_PATH",
                                           "LD_AUDIT",   "BASH_ENV",
                                           "ENV",        "IFS" };
    char *values[ARRAY_LEN(kept)];

    if (keep_all) {
        for (size_t i = 0; i < ARRAY_LEN(dropped); i++)
            unsetenv(dropped[i]);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        const char *v = getenv(kept[i]);

        values[i] = v ? strdup(v) : NULL;
    }
    clearenv();
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        if (values[i])
            put_env(kept[i], values[i]);
}

static void set_env(const struct request *q, const struct user *to, const struct user *me)
{
    char id[16];

    filter_env(q->keep);
    put_env("PATH", SAFE_PATH);
    if (!q->keep || q->set_home || q->login)
        put_env("HOME", to->home);
    put_env("USER", to->name);
    put_env("LOGNAME", to->name);
    put_env("SHELL", to->shell);
    put_env("SUDO_USER", me->name);
    snprintf(id, sizeof id, "%u", (unsigned)me->uid);
    put_env("SUDO_UID", id);
    snprintf(id, sizeof id, "%u", (unsigned)me->gid);
    put_env("SUDO_GID", id);
}

/* Takes VAR=value words off the front. */
static char **assignments(char **words)
{
    for (; *words; words++) {
        size_t n = strcspn(*words, "=/");

        if (!n || (*words)[n] != '=')
            break;
        if (putenv(*words) != 0)
            die("out of memory", NULL);
    }
    return words;
}

/* ---- running ----------------------------------------------------------------------------------
 */

/* One word for sh -c, as sudo does it. */
static char *join_words(char **words)
{
    struct buf b = { 0 };
    int r = 0;

    for (; *words && r == 0; words++) {
        for (const char *p = *words; *p && r == 0; p++) {
            bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                         (*p >= '0' && *p <= '9') || strchr("_-$", *p);

            r = plain ? 0 : buf_addch(&b, '\\');
            if (r == 0)
                r = buf_addch(&b, *p);
        }
        if (r == 0 && words[1])
            r = buf_addch(&b, ' ');
    }
    if (r < 0)
        die("out of memory", NULL);
    return buf_steal(&b);
}

static _Noreturn void run(const struct request *q, const struct user *to, char **words)
{
    const char *base = strrchr(to->shell, '/');
    char login[300];
    char *shell[4] = { (char *)(uintptr_t)to->shell, NULL, NULL, NULL };
    int e;

    if (q->login || q->shell) {
        if (q->login) {
            snprintf(login, sizeof login, "-%s", base ? base + 1 : to->shell);
            shell[0] = login;
            if (chdir(to->home) < 0)
                fprintf(stderr, "sudo: cannot change to '%s': %s\n", to->home, strerror(errno));
        }
        if (*words) {
            shell[1] = strdup("-c");
            shell[2] = join_words(words);
        }
        execv(to->shell, shell);
        words = shell;
    } else {
        execvp(words[0], words);
    }
    e = errno;
    fprintf(stderr, "sudo: %s: %s\n", words[0], e == ENOENT ? "command not found" : strerror(e));
    exit(e == ENOENT ? 1 : 126);
}

int main(int argc, char **argv)
{
    struct request q = { .user = "root" };
    struct user me, to;
    const char *name = strrchr(argv[0], '/');
    char *command[4] = { NULL, NULL, NULL, NULL }, uid[16];
    bool one = single();

    if (!strcmp(name ? name + 1 : argv[0], "su"))
        parse_su(argc, argv, &q, command);
    else
        parse_sudo(argc, argv, &q);
    if (!one && geteuid() != 0)
        die("its setuid bit is missing, or has no effect here", NULL);
    snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    if (user_find(uid, &me) < 0 || (!one && !allowed(&me)))
        die("a password is required", NULL);
    if (user_find(q.user[0] == '#' ? q.user + 1 : q.user, &to) < 0)
        die("unknown user", q.user);
    if (q.group)
        set_group(q.group, &to);
    if (q.only_check && !*q.words)
        return 0;
    set_env(&q, &to, &me);
    q.words = assignments(q.words);
    if (!*q.words && !q.login && !q.shell)
        die("usage: sudo [-nEHis] [-u USER|#UID] [-g GROUP] [VAR=value] [--] COMMAND", NULL);
    become(&to, one);
    run(&q, &to, q.words);
}
