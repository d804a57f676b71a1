/* fs/local_server.c: finds this user's boxd-local, or starts it. Runs before the mount exists and
 * may block. It is reached through its socket only. */
#include "fs.h"

#include "commands.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define START_MS 20000
#define PROGRAM "boxd-local"

/* The XDG rule: a variable counts only when it holds an absolute path. */
static const char *directory(const char *name)
{
    const char *v = getenv(name);

    return v && v[0] == '/' ? v : NULL;
}

/* The state directory, by the rule of boxd-local; *chosen: the user named it. */
static char *state_directory(bool *chosen)
{
    const char *named = directory("BOXD_LOCAL_STATE"), *base = directory("XDG_STATE_HOME");
    const char *home = directory("HOME");

    *chosen = named;
    if (named)
        return strdup(named);
    if (geteuid() == 0)
        return strdup("/var/lib/boxd-local");
    if (base)
        return strf("%s/boxd-local", base);
    return home ? strf("%s/.local/state/boxd-local", home) : NULL;
}

static char *socket_path(const char *state)
{
    const char *runtime = directory("XDG_RUNTIME_DIR");

    return runtime ? strf("%s/boxd-local.sock", runtime) : strf("%s/run/boxd-local.sock", state);
}

/* 0: a server of this user (or root's own) listens there. */
static int probe(const char *path)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    struct ucred peer;
    socklen_t n = sizeof peer;

    if (strlen(path) >= sizeof a.sun_path)
        return boxd_words(-ENAMETOOLONG,
                          "socket '%s' of boxd-local has too long a path (set "
                          "XDG_RUNTIME_DIR to a shorter one)",
                          path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return boxd_words(-errno, "cannot connect to '%s': %s", path, strerror(errno));
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return boxd_words(-errno, "cannot tell who listens at '%s': %s", path, strerror(errno));
    if (peer.uid != geteuid())
        return boxd_words(-EACCES, "another user (%u) listens at '%s'", peer.uid, path);
    return 0;
}

/* ---- starting it ---- */

struct command_line {
    char *program;
    char **words; /* of local_options */
    char *argv[64];
};

/* Beside this program, as the installer and a build have it, or in PATH. */
static char *find_program(void)
{
    static const char *const beside[] = { "/" PROGRAM, "/../core/local/" PROGRAM };
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n <= 0)
        return strdup(PROGRAM);
    self[n] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash && i < ARRAY_LEN(beside); i++) {
        _cleanup_free_ char *path = strf("%.*s%s", (int)(slash - self), self, beside[i]);

        if (path && !access(path, X_OK))
            return steal_ptr(path);
    }
    return strdup(PROGRAM);
}

static int make_command(struct command_line *c, const char *socket, const char *state, bool named,
                        const char *options)
{
    size_t n = 0, words = 0;
    int r = options ? shell_split(options, &c->words, &words) : 0;

    if (r < 0)
        return r;
    c->program = find_program();
    if (!c->program)
        return -ENOMEM;
    if (words + 8 > ARRAY_LEN(c->argv))
        return boxd_words(-EINVAL, "local_options has more than %zu words", ARRAY_LEN(c->argv) - 8);
    c->argv[n++] = (char *)PROGRAM;
    c->argv[n++] = (char *)"--background";
    c->argv[n++] = (char *)"--socket";
    c->argv[n++] = (char *)socket;
    if (named) {
        c->argv[n++] = (char *)"--state";
        c->argv[n++] = (char *)state;
    }
    for (size_t i = 0; i < words; i++)
        c->argv[n++] = c->words[i];
    c->argv[n] = NULL;
    return 0;
}

static void run_child(const struct command_line *c, int errors)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(errors, 2) < 0)
        _exit(126);
    execvp(c->program, c->argv);
    _exit(127);
}

/* Reads what it says until it has ended; its first line is why. */
static int wait_for(pid_t pid, int errors)
{
    struct pollfd p = { .fd = errors, .events = POLLIN };
    uint64_t end = now_ms() + START_MS;
    char text[1024], *why;
    siginfo_t gone = { 0 };
    size_t n = 0;
    int status;

    while (n < sizeof text - 1 && now_ms() < end) {
        ssize_t k = poll(&p, 1, 100) > 0 ? read(errors, text + n, sizeof text - 1 - n) : -1;

        if (k == 0)
            break;
        n += k > 0 ? (size_t)k : 0;
        /* What it has started may hold its stderr for long: its end counts, too. */
        if (k < 0 && !waitid(P_PID, (id_t)pid, &gone, WEXITED | WNOHANG | WNOWAIT) && gone.si_pid)
            break;
    }
    if (now_ms() >= end)
        kill(pid, SIGTERM);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    text[n] = '\0';
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return boxd_words(-ENOENT, PROGRAM " is not installed beside boxdfs nor in PATH");
    why = starts_with(text, PROGRAM ": ") ? text + strlen(PROGRAM ": ") : text;
    return boxd_words(-EIO, PROGRAM " does not start: %.*s", (int)strcspn(why, "\n"),
                      *why ? why : "it gave no reason");
}

static int start(struct command_line *c)
{
    int p[2], r;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return boxd_words(-errno, "cannot start " PROGRAM ": %s", strerror(errno));
    pid = fork();
    if (pid == 0)
        run_child(c, p[1]);
    close(p[1]);
    r = pid < 0 ? boxd_words(-errno, "cannot start " PROGRAM ": %s", strerror(errno))
                : wait_for(pid, p[0]);
    close(p[0]);
    return r;
}

/* Somebody else may have started it at the same moment: then it soon answers. */
static int start_or_join(struct command_line *c, const char *socket)
{
    _cleanup_free_ char *words = NULL;
    int r = start(c);

    if (r >= 0)
        return probe(socket);
    words = strdup(boxd_error_words(r));
    for (int i = 0; i < 10; i++) {
        struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };

        if (probe(socket) >= 0)
            return 0;
        nanosleep(&pause, NULL);
    }
    return boxd_words(r, "%s", words ? words : strerror(-r));
}

int local_server_address(const char *options, char **address)
{
    bool named;
    _cleanup_free_ char *state = state_directory(&named);
    _cleanup_free_ char *socket = state ? socket_path(state) : NULL;
    struct command_line c = { 0 };
    int r;

    if (!state)
        return boxd_words(-ENOENT, "HOME is not set, so " PROGRAM " has no place for its state");
    if (!socket)
        return -ENOMEM;
    r = probe(socket);
    if (r < 0 && r != -EACCES && r != -ENAMETOOLONG) {
        r = make_command(&c, socket, state, named, options);
        if (r >= 0)
            r = start_or_join(&c, socket);
        free(c.program);
        strv_free(c.words);
    }
    if (r < 0)
        return r;
    *address = strf("unix:%s", socket);
    return *address ? 0 : -ENOMEM;
}
