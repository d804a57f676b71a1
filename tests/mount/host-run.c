/* host-run: drives machines (local/host.h) without any service, for the tests of what a machine is.
 *     host-run [-s] [-v] [-p] [-P] [-N] [-i IMAGE] [-n ID] [-u USER] [-t] [-k MS] [-f] [-H] [-b N]
 * [-d] STATE CMD [ARG]... Starts machine ID (default "m"), runs the command with our stdin and
 * shows its output; the exit status is the command's. -k kills it (TERM) after MS, -K hard; -f
 * freezes for a second while it runs; -H prints init's pid and stays until stdin ends; -b measures
 * N starts and execs; -d deletes the machine's files at the end; -s single id, -v FUSE view, -p
 * privileged, -N own pid namespace. */
#include "base/base.h"
#include "base/str.h"
#include "local/host.h"

#include <boxd/error.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

static uv_loop_t loop;
static struct host *host;
static bool answered;
static int result;

static void done(void *arg, int r)
{
    answered = true;
    result = r;
    if (r < 0)
        fprintf(stderr, "host-run: %s\n", boxd_error_words(r));
}

static void ended(void *arg, int code)
{
    *(int *)arg = code;
}

static void wait_answer(void)
{
    while (!answered)
        uv_run(&loop, UV_RUN_ONCE);
    answered = false;
}

static struct host_machine *start(const struct host_spec *spec)
{
    struct host_machine *m = host_machine_start(host, spec, done, NULL);

    if (!m)
        exit(125);
    wait_answer();
    if (result < 0) {
        host_machine_free(m);
        host_close(host);
        exit(125);
    }
    return m;
}

struct stream {
    uv_poll_t poll;
    int fd, to;
    unsigned *open;
};

static void readable(uv_poll_t *p, int status, int events)
{
    struct stream *s = (struct stream *)(void *)p;
    char data[65536];
    ssize_t n = read(s->fd, data, sizeof data);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        uv_poll_stop(p);
        --*s->open;
        return;
    }
    if (write(s->to, data, (size_t)n) != n)
        exit(125);
}

static struct host_exec *current;
static bool hard;

static void kill_now(uv_timer_t *t)
{
    if (current)
        host_exec_kill(current, hard);
}

static struct host_machine *frozen_machine;

static void thaw(uv_timer_t *t)
{
    printf("thaw %d\n", host_machine_freeze(frozen_machine, false));
    fflush(stdout);
}

static void freeze(uv_timer_t *t)
{
    printf("freeze %d\n", host_machine_freeze(frozen_machine, true));
    fflush(stdout);
    uv_timer_start(t, thaw, 1000, 0);
}

/* Feeds all of our stdin; small inputs only. */
static void feed(int fd)
{
    char data[65536];
    ssize_t n;

    while ((n = read(0, data, sizeof data)) > 0)
        for (ssize_t at = 0, w; at < n; at += w) {
            struct pollfd p = { fd, POLLOUT, 0 };

            poll(&p, 1, -1);
            w = write(fd, data + at, (size_t)(n - at));
            if (w < 0)
                return;
        }
}

static int run(struct host_machine *m, const struct host_exec_spec *spec, bool input, long kill_ms,
               bool freeze_it)
{
    int in, out, err, code = -1;
    unsigned open = 0;
    static struct stream streams[2];
    static uv_timer_t timer;
    int r = host_exec_start(m, spec, &in, &out, &err, ended, &code, &current);

    if (r < 0) {
        fprintf(stderr, "host-run: %s\n", boxd_error_words(r));
        return 125;
    }
    if (input)
        feed(in);
    if (!spec->tty)
        close(in);
    for (int i = 0; i < 2; i++) {
        streams[i] = (struct stream){ .fd = i ? err : out, .to = i ? 2 : 1, .open = &open };
        if (streams[i].fd < 0)
            continue;
        open++;
        uv_poll_init(&loop, &streams[i].poll, streams[i].fd);
        uv_poll_start(&streams[i].poll, UV_READABLE, readable);
    }
    if (kill_ms >= 0 || freeze_it) {
        frozen_machine = m;
        uv_timer_init(&loop, &timer);
        uv_timer_start(&timer, freeze_it ? freeze : kill_now, kill_ms > 0 ? (uint64_t)kill_ms : 300,
                       0);
    }
    while (code < 0)
        uv_run(&loop, UV_RUN_ONCE);
    current = NULL;
    for (int i = 0; i < 2; i++) /* what is in the pipes already */
        if (streams[i].fd >= 0) {
            struct pollfd p = { streams[i].fd, POLLIN, 0 };

            while (uv_is_active((uv_handle_t *)&streams[i].poll) && poll(&p, 1, 0) > 0)
                readable(&streams[i].poll, 0, 0);
            uv_close((uv_handle_t *)&streams[i].poll, NULL);
        }
    uv_run(&loop, UV_RUN_NOWAIT);
    close(out);
    if (err >= 0)
        close(err);
    return code;
}

static double ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void bench(const struct host_spec *spec, long n)
{
    const char *argv[] = { "/bin/true", NULL };
    struct host_exec_spec e = { .argv = argv };
    double create[100], exec[100];

    n = n > 100 ? 100 : n;
    for (long i = 0; i < n; i++) {
        char id[32];
        struct host_spec s = *spec;
        double t = ms();
        struct host_machine *m;

        snprintf(id, sizeof id, "b%ld", i);
        s.id = id;
        m = start(&s);
        run(m, &e, false, -1, false);
        create[i] = ms() - t;
        t = ms();
        run(m, &e, false, -1, false);
        exec[i] = ms() - t;
        host_machine_free(m);
        host_delete(host, id, done, NULL);
        wait_answer();
    }
    qsort(create, (size_t)n, sizeof *create, by_size);
    qsort(exec, (size_t)n, sizeof *exec, by_size);
    printf("%s: create to first exec done %.1f ms, exec %.1f ms (medians of %ld)\n",
           host_kind_name(host_get_kind(host)), create[n / 2], exec[n / 2], n);
}

int main(int argc, char **argv)
{
    struct host_options o = { 0 };
    struct host_spec spec = { .id = "m", .hostname = "box1", .image = "host" };
    struct host_exec_spec e = { 0 };
    bool hold = false, remove = false, freeze_it = false, input = false;
    long kill_ms = -1, count = 0;
    struct host_machine *m;
    char state[4096];
    int c, r;

    while ((c = getopt(argc, argv, "+svpNi:n:u:tk:K:fHb:dI")) != -1)
        switch (c) {
        case 's':
            o.force_single = true;
            break;
        case 'v':
            o.force_view = true;
            break;
        case 'p':
            o.allow_privileged = spec.privileged = true;
            break;
        case 'N':
            o.exec_pid_namespace = true;
            break;
        case 'i':
            spec.image = optarg;
            break;
        case 'n':
            spec.id = optarg;
            break;
        case 'u':
            e.user = optarg;
            break;
        case 't':
            e.tty = true;
            break;
        case 'K':
            hard = true;
            kill_ms = strtol(optarg, NULL, 10);
            break;
        case 'k':
            kill_ms = strtol(optarg, NULL, 10);
            break;
        case 'f':
            freeze_it = true;
            break;
        case 'H':
            hold = true;
            break;
        case 'I':
            input = true;
            break;
        case 'b':
            count = strtol(optarg, NULL, 10);
            break;
        case 'd':
            remove = true;
            break;
        default:
            return 125;
        }
    signal(SIGPIPE, SIG_IGN);
    mkdir(argv[optind], 0700);
    if (!realpath(argv[optind], state))
        return 125;
    o.state_dir = state;
    uv_loop_init(&loop);
    r = host_open(&loop, &o, &host);
    if (r < 0) {
        fprintf(stderr, "host-run: %s\n", boxd_error_words(r));
        return 125;
    }
    r = 0;
    if (count) {
        bench(&spec, count);
    } else {
        m = start(&spec);
        e.argv = (const char *const *)(argv + optind + 1);
        if (e.argv[0])
            r = run(m, &e, input, kill_ms, freeze_it);
        if (hold) {
            char x;

            printf("held\n");
            fflush(stdout);
            while (read(0, &x, 1) > 0)
                ;
        }
        host_machine_free(m);
    }
    if (remove) {
        host_delete(host, spec.id, done, NULL);
        wait_answer();
    }
    host_close(host);
    uv_run(&loop, UV_RUN_NOWAIT);
    return r;
}
