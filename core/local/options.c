/* local/options.c: see options.h. The table is the manual's: man/boxd-local.1. */
#include "base/base.h"

#include "base/str.h"
#include "local/options.h"
#include <boxd/error.h>
#include <getopt.h>
#include <limits.h>

enum {
    OPT_SOCKET = 256,
    OPT_STATE,
    OPT_LISTEN,
    OPT_LISTEN_ANY,
    OPT_KEY_FILE,
    OPT_ALLOW_PRIVILEGED,
    OPT_IDLE_EXIT,
    OPT_FOREGROUND,
    OPT_BACKGROUND,
    OPT_READY_FD,
    OPT_LOG,
    OPT_START_DELAY,
    OPT_FAIL_START,
    OPT_PID_NAMESPACE,
    OPT_SINGLE,
    OPT_VIEW,
    OPT_HELP,
    OPT_VERSION,
};

static const struct option long_options[] = {
    { "socket", required_argument, NULL, OPT_SOCKET },
    { "state", required_argument, NULL, OPT_STATE },
    { "listen", required_argument, NULL, OPT_LISTEN },
    { "listen-any", no_argument, NULL, OPT_LISTEN_ANY },
    { "key-file", required_argument, NULL, OPT_KEY_FILE },
    { "allow-privileged", no_argument, NULL, OPT_ALLOW_PRIVILEGED },
    { "idle-exit", required_argument, NULL, OPT_IDLE_EXIT },
    { "foreground", no_argument, NULL, OPT_FOREGROUND },
    { "background", no_argument, NULL, OPT_BACKGROUND },
    { "ready-fd", required_argument, NULL, OPT_READY_FD },
    { "log", required_argument, NULL, OPT_LOG },
    { "start-delay", required_argument, NULL, OPT_START_DELAY },
    { "fail-start", required_argument, NULL, OPT_FAIL_START },
    { "exec-pid-namespace", no_argument, NULL, OPT_PID_NAMESPACE },
    { "force-single", no_argument, NULL, OPT_SINGLE },
    { "force-view", no_argument, NULL, OPT_VIEW },
    { "help", no_argument, NULL, OPT_HELP },
    { "version", no_argument, NULL, OPT_VERSION },
    { NULL, 0, NULL, 0 },
};

static const char help[] =
    "usage: boxd-local [OPTION]...\n"
    "Serves the boxd API; its machines are namespaces on this computer.\n"
    "\n"
    "  --socket PATH         listen there (default: $XDG_RUNTIME_DIR/boxd-local.sock,\n"
    "                        else run/boxd-local.sock in the state directory)\n"
    "  --state DIR           keep machines there (default: /var/lib/boxd-local as root,\n"
    "                        else $XDG_STATE_HOME/boxd-local)\n"
    "  --listen HOST:PORT    also listen on TCP, with a key\n"
    "  --listen-any          allow --listen on addresses that are not loopback\n"
    "  --key-file FILE       the key for TCP (default: key in the state directory,\n"
    "                        made when missing)\n"
    "  --allow-privileged    allow machines with image 'privileged:NAME': equal to root here\n"
    "  --idle-exit SECONDS   end that long after the last client and the last running\n"
    "                        machine (default: 60; 0: never)\n"
    "  --foreground          stay in the foreground (default)\n"
    "  --background          return when the socket answers\n"
    "  --ready-fd N          write the addresses to descriptor N when the socket answers\n"
    "  --log FILE            append a log to FILE\n"
    "  --help, --version\n"
    "\n"
    "For tests:\n"
    "  --start-delay SECONDS, --fail-start NAME-PREFIX, --exec-pid-namespace,\n"
    "  --force-single, --force-view\n";

static int read_seconds(const char *name, const char *text, uint64_t *out)
{
    if (parse_seconds(text, out) < 0 || *out > 365ull * 86400)
        return boxd_words(-EINVAL, "option '--%s' has no valid time '%s': use seconds, as in 60",
                          name, text);
    return 0;
}

static int read_start_delay(const char *text, struct options *o)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !(seconds >= 0) || seconds > 3600)
        return boxd_words(
            -EINVAL, "option '--start-delay' has no valid time '%s': use seconds, as in 3", text);
    o->start_delay_ms = (uint64_t)(seconds * 1000);
    return 0;
}

static int keep(char **where, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(*where);
    *where = copy;
    return 0;
}

static int take(struct options *o, int opt, const char *value)
{
    uint64_t n;
    int r = 0;

    switch (opt) {
    case OPT_SOCKET:
        return keep(&o->socket, value);
    case OPT_STATE:
        return keep(&o->state_dir, value);
    case OPT_LISTEN:
        o->listen = value;
        break;
    case OPT_LISTEN_ANY:
        o->listen_any = true;
        break;
    case OPT_KEY_FILE:
        o->key_file = value;
        break;
    case OPT_ALLOW_PRIVILEGED:
        o->allow_privileged = true;
        break;
    case OPT_IDLE_EXIT:
        return read_seconds("idle-exit", value, &o->idle_exit_seconds);
    case OPT_FOREGROUND:
    case OPT_BACKGROUND:
        o->background = opt == OPT_BACKGROUND;
        break;
    case OPT_READY_FD:
        r = parse_u64(value, INT_MAX, &n);
        if (r < 0)
            return boxd_words(-EINVAL, "option '--ready-fd' needs a descriptor, not '%s'", value);
        o->ready_fd = (int)n;
        break;
    case OPT_LOG:
        o->log_file = value;
        break;
    case OPT_START_DELAY:
        return read_start_delay(value, o);
    case OPT_FAIL_START:
        o->fail_start = value;
        break;
    case OPT_PID_NAMESPACE:
        o->exec_pid_namespace = true;
        break;
    case OPT_SINGLE:
        o->force_single = true;
        break;
    case OPT_VIEW:
        o->force_view = true;
        break;
    }
    return r;
}

/* The XDG rule: a variable counts only when it holds an absolute path. */
static const char *xdg(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

static int default_state(struct options *o)
{
    const char *base = xdg("XDG_STATE_HOME"), *home = xdg("HOME");

    if (!geteuid())
        o->state_dir = strdup("/var/lib/boxd-local");
    else if (base)
        o->state_dir = strf("%s/boxd-local", base);
    else if (home)
        o->state_dir = strf("%s/.local/state/boxd-local", home);
    else
        return boxd_words(-EINVAL, "state directory is unknown: give --state DIR or set HOME");
    return o->state_dir ? 0 : -ENOMEM;
}

static int make_absolute(char **path)
{
    _cleanup_free_ char *cwd = NULL;
    char *whole;

    if ((*path)[0] == '/')
        return 0;
    cwd = getcwd(NULL, 0);
    whole = cwd ? strf("%s/%s", cwd, *path) : NULL;
    if (!whole)
        return boxd_words(-errno, "cannot find the current directory: %m");
    free(*path);
    *path = whole;
    return 0;
}

static int complete(struct options *o)
{
    const char *runtime = xdg("XDG_RUNTIME_DIR");
    int r = o->state_dir ? 0 : default_state(o);

    if (!r)
        r = make_absolute(&o->state_dir);
    if (r < 0)
        return r;
    if (!o->socket)
        o->socket = runtime ? strf("%s/boxd-local.sock", runtime)
                            : strf("%s/run/boxd-local.sock", o->state_dir);
    o->vms_dir = strf("%s/vms", o->state_dir);
    if (!o->socket || !o->vms_dir)
        return -ENOMEM;
    if (o->key_file && !o->listen)
        return boxd_words(-EINVAL, "option '--key-file' needs --listen HOST:PORT");
    return make_absolute(&o->socket);
}

int options_parse(int argc, char **argv, struct options *out)
{
    int opt, r;

    *out = (struct options){ .idle_exit_seconds = 60, .ready_fd = -1 };
    while ((opt = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (opt == OPT_HELP || opt == OPT_VERSION) {
            fputs(opt == OPT_HELP ? help : "boxd-local " BOXDFS_VERSION "\n", stdout);
            return 1;
        }
        if (opt == '?')
            return boxd_words(-EINVAL, "command line is not valid: see --help");
        r = take(out, opt, optarg);
        if (r < 0)
            return r;
    }
    if (optind < argc)
        return boxd_words(-EINVAL, "argument '%s' is not expected: see --help", argv[optind]);
    return complete(out);
}

void options_clear(struct options *o)
{
    free(o->socket);
    free(o->state_dir);
    free(o->vms_dir);
    *o = (struct options){ .ready_fd = -1 };
}
