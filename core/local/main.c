/* local/main.c: boxd-local: takes its places, serves until it is told to end or nobody needs it,
 * and leaves nothing behind. Knows no call and no machine. */
#include "base/base.h"

#include "base/str.h"
#include "local/auth.h"
#include "local/host.h"
#include "local/listen.h"
#include "local/options.h"
#include "local/service.h"
#include "rpc/server.h"
#include <boxd/error.h>
#include <boxd/log.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

struct program {
    struct options options;
    uv_loop_t loop;
    uv_signal_t signals[3];
    struct service *service;
    struct rpc_server *server;
    int lock, parent; /* parent: the pipe to the process that waits for us; -1: none */
    char *tcp;        /* "http://..." or NULL */
    bool ending;
};

static int complain(int r)
{
    fprintf(stderr, "boxd-local: %s\n", boxd_error_words(r));
    boxd_log(BOXD_LOG_ERROR, "%s", boxd_error_words(r));
    return 1;
}

/* ---- ending ------------------------------------------------------------------------------------
 */

static void end(struct program *p)
{
    if (p->ending)
        return;
    p->ending = true;
    unlink(p->options.socket);
    for (size_t i = 0; i < ARRAY_LEN(p->signals); i++)
        uv_close((uv_handle_t *)&p->signals[i], NULL);
    rpc_server_free(p->server);
    service_free(p->service);
}

static void on_signal(uv_signal_t *h, int number)
{
    boxd_log(BOXD_LOG_INFO, "ends: signal %d", number);
    end(h->data);
}

static void on_idle(struct service *s)
{
    end(s->loop->data);
}

/* ---- starting ----------------------------------------------------------------------------------
 */

static int watch_signals(struct program *p)
{
    static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };

    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int r = uv_signal_init(&p->loop, &p->signals[i]);

        p->signals[i].data = p;
        if (!r)
            r = uv_signal_start(&p->signals[i], on_signal, numbers[i]);
        if (r < 0)
            return boxd_words(r, "cannot watch signals: %m");
    }
    return 0;
}

static int open_auth(const struct options *o, struct auth **out)
{
    _cleanup_free_ char *path = o->key_file ? strdup(o->key_file) : strf("%s/key", o->state_dir);

    *out = NULL;
    if (!o->listen)
        return 0;
    return path ? auth_open(path, !o->key_file, out) : -ENOMEM;
}

static int open_service(struct program *p)
{
    const struct options *o = &p->options;
    const struct host_options ho = {
        .state_dir = o->state_dir,
        .allow_privileged = o->allow_privileged,
        .exec_pid_namespace = o->exec_pid_namespace,
        .force_single = o->force_single,
        .force_view = o->force_view,
    };
    struct auth *auth;
    struct host *host;
    int r = open_auth(o, &auth);

    if (r < 0)
        return r;
    r = host_open(&p->loop, &ho, &host);
    if (r < 0) {
        auth_free(auth);
        return r;
    }
    return service_new(&p->loop, o, host, auth, on_idle, &p->service);
}

static int open_server(struct program *p)
{
    struct rpc_server_options options = { .handlers = service_handlers(), .arg = p->service };
    int fd, r = rpc_server_new(&p->loop, &options, &p->server);

    if (r < 0)
        return r;
    fd = listen_unix(p->options.socket);
    r = fd < 0 ? fd : rpc_server_listen(p->server, fd);
    if (r >= 0 && p->options.listen) {
        fd = listen_tcp(p->options.listen, p->options.listen_any, &p->tcp);
        r = fd < 0 ? fd : rpc_server_listen(p->server, fd);
        if (r < 0)
            unlink(p->options.socket);
    }
    if (r < 0)
        rpc_server_free(p->server);
    return r < 0 ? r : 0;
}

/* Everything is taken or nothing. */
static int start(struct program *p)
{
    int r;

    p->lock = state_dir_lock(p->options.state_dir);
    if (p->lock < 0)
        return p->lock;
    r = uv_loop_init(&p->loop);
    if (r < 0)
        return boxd_words(r, "cannot make an event loop: %m");
    p->loop.data = p;
    r = open_service(p);
    if (r < 0)
        return r;
    r = open_server(p);
    if (r < 0) {
        service_free(p->service);
        uv_run(&p->loop, UV_RUN_DEFAULT);
        return r;
    }
    return watch_signals(p);
}

/* ---- telling that it runs -----------------------------------------------------------------------
 */

static void write_text(int fd, const char *text)
{
    size_t n = strlen(text);

    if (write(fd, text, n) != (ssize_t)n)
        boxd_log(BOXD_LOG_ERROR, "cannot tell that the server is ready: %s", strerror(errno));
}

/* From here on nobody reads stderr. */
static void leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; null >= 0 && fd < 3; fd++)
        dup2(null, fd);
    close_keep_errno(null);
}

static void tell_ready(struct program *p)
{
    const struct options *o = &p->options;
    _cleanup_free_ char *text =
        strf("unix:%s\n%s%s", o->socket, p->tcp ? p->tcp : "", p->tcp ? "\n" : "");

    if (p->tcp)
        fprintf(stderr, "boxd-local: listens on %s, the key is in '%s%s'\n", p->tcp,
                o->key_file ? o->key_file : o->state_dir, o->key_file ? "" : "/key");
    boxd_log(BOXD_LOG_INFO, "boxd-local " BOXDFS_VERSION " serves %s", text ? text : "");
    if (o->ready_fd >= 0) {
        write_text(o->ready_fd, text ? text : "");
        close(o->ready_fd);
    }
    if (p->parent >= 0) {
        leave_terminal();
        write_text(p->parent, "+");
        close(p->parent);
    }
}

/* The first process waits until the second serves, or has said on stderr why it does not. Returns
 * in the second one. */
static int go_to_background(struct program *p)
{
    int ends[2];
    pid_t child;
    char answer;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return boxd_words(-errno, "cannot go to the background: %m");
    child = fork();
    if (child < 0)
        return boxd_words(-errno, "cannot go to the background: %m");
    if (child) {
        close(ends[1]);
        _exit(read(ends[0], &answer, 1) == 1 ? 0 : 1);
    }
    close(ends[0]);
    setsid();
    p->parent = ends[1];
    return chdir("/") < 0 ? boxd_words(-errno, "cannot change to '/': %m") : 0;
}

static void finish(struct program *p)
{
    int r = uv_loop_close(&p->loop);

    if (r < 0)
        boxd_log(BOXD_LOG_ERROR, "event loop still has handles at the end");
    close_keep_errno(p->lock);
    free(p->tcp);
    options_clear(&p->options);
}

int main(int argc, char **argv)
{
    /* Neither a core file nor a debugger of another process may see keys. */
    const struct rlimit no_core = { 0, 0 };
    static struct program p = { .lock = -1, .parent = -1 }; /* lives as long as the process */
    int r = options_parse(argc, argv, &p.options);

    if (r > 0)
        return 0;
    if (r < 0)
        return complain(r);
    setrlimit(RLIMIT_CORE, &no_core);
    r = boxd_log_open(p.options.log_file, false);
    if (!r && p.options.background)
        r = go_to_background(&p);
    if (!r)
        r = start(&p);
    if (r < 0)
        return complain(r);
    tell_ready(&p);
    uv_run(&p.loop, UV_RUN_DEFAULT);
    finish(&p);
    return 0;
}
