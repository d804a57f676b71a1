/* local/command.c: see command.h. Each descriptor has a poll handle of its own; the command's
 * memory goes when the command has ended and all of them are closed. */
#include "base/base.h"

#include "base/buf.h"
#include "base/str.h"
#include "local/command.h"
#include <boxd/error.h>
#include <boxd/log.h>
#include <sys/ioctl.h>

/* A terminal's last output reaches the master late; it is over after this long without any. */
#define TTY_QUIET_MS 50
#define INPUT_LOW (COMMAND_INPUT_HIGH / 2)

enum { IN, OUT, ERR, ENDS };

struct command_end {
    uv_poll_t poll;
    struct command *of;
    int fd; /* -1: closed or never there */
    bool polling;
    size_t left; /* bytes still to deliver once the command has ended */
};

struct command {
    struct list link; /* in vm.commands */
    struct vm *vm;    /* NULL: the machine went away */
    struct service *s;
    struct host_exec *exec; /* NULL once it has ended */
    struct command_end ends[ENDS];
    uv_timer_t quiet;
    struct buf input;
    size_t input_done; /* of `input`, already written */
    bool tty, eof, high, paused, exited, over;
    int exit_code;
    unsigned refs;
    struct command_handlers h;
    void *arg;
};

static void command_unref(struct command *j)
{
    if (--j->refs)
        return;
    list_remove(&j->link);
    buf_clear(&j->input);
    free(j);
}

static void on_handle_closed(uv_handle_t *h)
{
    command_unref(h->data);
}

static void end_close(struct command_end *e)
{
    if (e->fd < 0)
        return;
    uv_close((uv_handle_t *)&e->poll, on_handle_closed);
    close(e->fd);
    e->fd = -1;
    e->polling = false;
}

static int end_open(struct command *j, struct command_end *e, int *fd)
{
    int r = uv_poll_init(j->s->loop, &e->poll, *fd);

    if (r < 0)
        return boxd_words(r, "cannot watch the pipes of a command: %m");
    e->poll.data = j;
    e->fd = steal_fd(fd);
    j->refs++;
    return 0;
}

/* Ends the callbacks; the memory goes when the handles and the command are gone. */
static void command_over(struct command *j)
{
    j->over = true;
    for (int i = 0; i < ENDS; i++)
        end_close(&j->ends[i]);
    uv_close((uv_handle_t *)&j->quiet, on_handle_closed);
}

static void finish_if_done(struct command *j)
{
    if (j->over || !j->exited || j->ends[OUT].fd >= 0 || j->ends[ERR].fd >= 0)
        return;
    command_over(j);
    j->h.done(j->arg, 0, j->exit_code);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void on_output(uv_poll_t *poll, int status, int events);

static void watch_output(struct command *j)
{
    for (int i = OUT; i <= ERR; i++) {
        struct command_end *e = &j->ends[i];
        bool want = e->fd >= 0 && !j->paused;

        if (want == e->polling)
            continue;
        e->polling = want;
        if (want)
            uv_poll_start(&e->poll, UV_READABLE, on_output);
        else
            uv_poll_stop(&e->poll);
    }
}

static void on_quiet(uv_timer_t *timer)
{
    struct command *j = timer->data;

    if (j->paused)
        return;
    end_close(&j->ends[OUT]);
    finish_if_done(j);
}

static void wait_for_quiet(struct command *j)
{
    if (j->tty && j->exited)
        uv_timer_start(&j->quiet, on_quiet, TTY_QUIET_MS, 0);
}

static void read_end(struct command *j, int i)
{
    struct command_end *e = &j->ends[i];
    size_t max = SERVICE_IO_MAX;
    ssize_t n;

    if (j->exited && !j->tty && e->left < max)
        max = e->left;
    n = read(e->fd, j->s->io, max);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* a terminal whose last user is gone says EIO */
        end_close(e);
        return;
    }
    if (j->exited && !j->tty) {
        e->left -= (size_t)n;
        if (!e->left)
            end_close(e);
    }
    wait_for_quiet(j);
    j->h.output(j->arg, i, j->s->io, (size_t)n);
}

static void on_output(uv_poll_t *poll, int status, int events)
{
    struct command *j = poll->data;
    int i = poll == &j->ends[OUT].poll ? OUT : ERR;

    j->refs++;
    if (j->ends[i].fd >= 0 && !j->paused)
        read_end(j, i);
    finish_if_done(j);
    command_unref(j);
}

void command_pause(struct command *j, bool paused)
{
    if (j->paused == paused || j->over)
        return;
    j->paused = paused;
    watch_output(j);
    if (!paused)
        wait_for_quiet(j);
}

/* The command has ended: what is in its pipes now is the rest of its output. */
static void on_exit_code(void *arg, int exit_code)
{
    struct command *j = arg;

    j->exec = NULL;
    j->exited = true;
    j->exit_code = exit_code;
    if (!j->over) {
        end_close(&j->ends[IN]);
        wait_for_quiet(j);
        for (int i = OUT; i <= ERR && !j->tty; i++) {
            struct command_end *e = &j->ends[i];
            int left = 0;

            if (e->fd < 0)
                continue;
            if (ioctl(e->fd, FIONREAD, &left) < 0 || left <= 0)
                end_close(e);
            else
                e->left = (size_t)left;
        }
        finish_if_done(j);
    }
    command_unref(j);
}

/* ---- input ----------------------------------------------------------------------------------- */

static size_t waiting(const struct command *j)
{
    return j->input.len - j->input_done;
}

/* Nothing reads the input any more: what waits is dropped, and what comes is ignored. */
static void drop_input(struct command *j)
{
    buf_clear(&j->input);
    j->input_done = 0;
    end_close(&j->ends[IN]);
}

static void write_input(struct command *j)
{
    while (waiting(j)) {
        ssize_t n = write(j->ends[IN].fd, j->input.data + j->input_done, waiting(j));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            drop_input(j);
            return;
        }
        j->input_done += (size_t)n;
    }
    buf_truncate(&j->input, 0);
    j->input_done = 0;
    if (j->eof)
        end_close(&j->ends[IN]);
}

static void on_input(uv_poll_t *poll, int status, int events);

static void watch_input(struct command *j)
{
    struct command_end *e = &j->ends[IN];
    bool want = e->fd >= 0 && waiting(j);

    if (want == e->polling)
        return;
    e->polling = want;
    if (want)
        uv_poll_start(&e->poll, UV_WRITABLE, on_input);
    else if (e->fd >= 0)
        uv_poll_stop(&e->poll);
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    struct command *j = poll->data;

    if (j->ends[IN].fd >= 0)
        write_input(j);
    watch_input(j);
    if (j->high && waiting(j) <= INPUT_LOW) {
        j->high = false;
        j->h.drained(j->arg);
    }
}

ssize_t command_write(struct command *j, const void *data, size_t n)
{
    int r;

    if (j->over || j->eof || j->ends[IN].fd < 0)
        return 0;
    if (j->input_done) {
        buf_consume(&j->input, j->input_done);
        j->input_done = 0;
    }
    r = buf_add(&j->input, data, n);
    if (r < 0)
        return r;
    write_input(j);
    watch_input(j);
    j->high = waiting(j) > COMMAND_INPUT_HIGH;
    return (ssize_t)waiting(j);
}

void command_eof(struct command *j)
{
    if (j->over || j->eof)
        return;
    /* A terminal has no half-close: its end of file is a character. */
    if (j->tty) {
        command_write(j, "\004", 1);
        return;
    }
    j->eof = true;
    if (j->ends[IN].fd >= 0 && !waiting(j))
        end_close(&j->ends[IN]);
}

void command_resize(struct command *j, uint32_t cols, uint32_t rows)
{
    if (j->exec && j->tty && cols && rows && cols <= UINT16_MAX && rows <= UINT16_MAX)
        host_exec_resize(j->exec, (uint16_t)cols, (uint16_t)rows);
}

/* ---- life ------------------------------------------------------------------------------------ */

static char **make_env(const struct pairs *env)
{
    char **v = calloc(env->count + 1, sizeof(*v));

    for (size_t i = 0; v && i < env->count; i++) {
        if (asprintf(&v[i], "%s=%s", env->items[i].key, env->items[i].value) < 0) {
            v[i] = NULL;
            strv_free(v);
            return NULL;
        }
    }
    return v;
}

static uint16_t dimension(uint32_t n, uint16_t otherwise)
{
    return n && n <= UINT16_MAX ? (uint16_t)n : otherwise;
}

static int command_run(struct command *j, const struct command_spec *spec)
{
    _cleanup_strv_ char **env = make_env(&j->vm->rec.env);
    _cleanup_close_ int in = -1, out = -1, err = -1;
    const struct host_exec_spec e = {
        .argv = spec->argv,
        .env = (const char *const *)env,
        .tty = spec->tty,
        .cols = dimension(spec->cols, 80),
        .rows = dimension(spec->rows, 24),
    };
    int r;

    if (!env)
        return -ENOMEM;
    r = host_exec_start(j->vm->host, &e, &in, &out, &err, on_exit_code, j, &j->exec);
    if (r < 0)
        return r;
    j->refs++;
    r = end_open(j, &j->ends[IN], &in);
    if (!r)
        r = end_open(j, &j->ends[OUT], &out);
    if (!r && err >= 0)
        r = end_open(j, &j->ends[ERR], &err);
    return r;
}

int command_start(struct vm *vm, const struct command_spec *spec, const struct command_handlers *h,
                  void *arg, struct command **out)
{
    struct command *j = calloc(1, sizeof(*j));
    int r;

    if (!j)
        return -ENOMEM;
    *j = (struct command){ .vm = vm, .s = vm->s, .tty = spec->tty, .h = *h, .arg = arg, .refs = 1 };
    for (int i = 0; i < ENDS; i++)
        j->ends[i] = (struct command_end){ .of = j, .fd = -1 };
    list_init(&j->link);
    uv_timer_init(vm->s->loop, &j->quiet);
    j->quiet.data = j;
    r = command_run(j, spec);
    if (r < 0) {
        command_cancel(j);
        return r;
    }
    list_add(&vm->commands, &j->link);
    vm_touch(vm);
    watch_output(j);
    *out = j;
    return 0;
}

void command_cancel(struct command *j)
{
    if (j->over)
        return;
    command_over(j);
    if (j->exec)
        host_exec_kill(j->exec, false);
}

void command_lose_all(struct vm *vm, const char *why)
{
    list_each_safe(it, &vm->commands)
    {
        struct command *j = container_of(it, struct command, link);

        list_remove(&j->link);
        j->vm = NULL;
        if (!j->over) {
            command_over(j);
            j->h.done(j->arg, boxd_words(-ESHUTDOWN, "command was lost: %s", why), 0);
        }
        if (j->exec) {
            host_exec_free(steal_ptr(j->exec));
            command_unref(j);
        }
    }
}
