/* fs/main.c: the words of the command line choose what boxdfs does. */
#include "fs.h"

#include "commands.h"
#include "mount.h"
#include "options.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static int fail(int r)
{
    fprintf(stderr, "boxdfs: %s\n", boxd_error_words(r));
    return 1;
}

static int cmd_help(int argc, char **argv)
{
    printf("usage: boxdfs [OPTION]... MOUNTPOINT\n"
           "       boxdfs COMMAND [WORD]...\n"
           "Shows boxd machines as directories.\n\n"
           "  --local                 use machines on this computer, no account needed\n"
           "  -f                      stay in the foreground\n"
           "  -h, --help  -V, --version\n");
    options_print(stdout);
    printf("\ncommands:\n"
           "  umount [-f] MOUNTPOINT  wait until everything is sent, then unmount\n"
           "  status [--errors] [MOUNTPOINT]\n"
           "                          machines of one mount, or of all your mounts\n"
           "  doctor                  what is missing for mounting here, with the cure\n"
           "  help, version\n"
           "\nBOXD_API_KEY holds the key of the account, BOXD_BASE_URL another service's address.\n"
           "A directory named like a command is written ./NAME.\n");
    return 0;
}

static int cmd_version(int argc, char **argv)
{
    printf("boxdfs %s\n", BOXDFS_VERSION);
    return 0;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "umount", cmd_umount }, { "status", cmd_status },   { "doctor", cmd_doctor },
    { "help", cmd_help },     { "version", cmd_version },
};

/* ---- in the foreground: the words go to stderr at once ---- */

static void ready_foreground(void *arg, int r)
{
    if (r < 0)
        fail(r);
}

/* ---- in the background: a child mounts, its words come through a pipe ---- */

struct report {
    int r;
    char words[1024];
};

static void ready_background(void *arg, int r)
{
    int *pipe_fd = arg, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct report rep = { .r = r };

    snprintf(rep.words, sizeof rep.words, "%s", r < 0 ? boxd_error_words(r) : "");
    if (null >= 0) {
        for (int fd = 0; fd <= 2; fd++)
            dup2(null, fd);
        if (null > 2)
            close(null);
    }
    /* A parent that was killed meanwhile does not read it: the mount stays. */
    if (write(*pipe_fd, &rep, sizeof rep) < 0)
        boxd_log(BOXD_LOG_INFO, "nobody waited for the mount");
    close(*pipe_fd);
}

static int wait_for_child(int fd, pid_t pid)
{
    struct report rep;
    ssize_t n;

    do
        n = read(fd, &rep, sizeof rep);
    while (n < 0 && errno == EINTR);
    if (n != sizeof rep) {
        waitpid(pid, NULL, 0);
        return fail(boxd_words(-EIO, "the mounting process died"));
    }
    rep.words[sizeof rep.words - 1] = '\0';
    if (rep.r >= 0)
        return 0;
    waitpid(pid, NULL, 0);
    fprintf(stderr, "boxdfs: %s\n", rep.words);
    return 1;
}

static int run_background(struct options *o)
{
    int p[2];
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return fail(boxd_words(-errno, "cannot make a pipe: %s", strerror(errno)));
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return fail(boxd_words(-errno, "cannot fork: %s", strerror(errno)));
    if (pid > 0) {
        close(p[1]);
        return wait_for_child(p[0], pid);
    }
    close(p[0]);
    setsid();
    if (chdir("/") < 0)
        return fail(boxd_words(-errno, "cannot enter /: %s", strerror(errno)));
    return mount_run(o, ready_background, &p[1]);
}

/* A file name of the options must mean the same after chdir. */
static int absolute_log(struct options *o)
{
    _cleanup_free_ char *cwd = NULL;
    char *path;

    if (!o->log || o->log[0] == '/')
        return 0;
    cwd = getcwd(NULL, 0);
    path = cwd ? strf("%s/%s", cwd, o->log) : NULL;
    if (!path)
        return boxd_words(-errno, "cannot find the current directory: %s", strerror(errno));
    free(o->log);
    o->log = path;
    return 0;
}

static int prepare(struct options *o)
{
    int r = mount_able();

    if (r >= 0)
        r = mount_point_check(o);
    if (r >= 0)
        r = absolute_log(o);
    if (r >= 0 && o->local)
        r = local_server_address(o->local_options, &o->address);
    return r;
}

static int mount_command(int argc, char **argv, int (*parse)(struct options *, int, char **))
{
    _cleanup_(options_clear) struct options o;
    int r;

    options_init(&o);
    r = parse(&o, argc, argv);
    if (r == OPTIONS_HELP)
        return cmd_help(0, NULL);
    if (r == OPTIONS_VERSION)
        return cmd_version(0, NULL);
    if (r == OPTIONS_NOTHING)
        return 0;
    if (r >= 0)
        r = prepare(&o);
    if (r < 0)
        return fail(r);
    return o.foreground ? mount_run(&o, ready_foreground, NULL) : run_background(&o);
}

/* Without them a file that we open could become the child's stdout. */
static int have_stdio(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return -errno;
    return 0;
}

int main(int argc, char **argv)
{
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *name = !argc ? "boxdfs" : slash ? slash + 1 : argv[0];

    if (have_stdio() < 0)
        return 1;
    if (!strcmp(name, "mount.boxdfs") || !strcmp(name, "mount.fuse.boxdfs"))
        return mount_command(argc, argv, options_parse_helper);
    for (size_t i = 0; argc > 1 && i < ARRAY_LEN(commands); i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 2, argv + 2);
    return mount_command(argc, argv, options_parse);
}
