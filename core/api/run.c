/* boxd_run(): a short command whose whole output is wanted. */
#include "api/client.h"

#include <boxd/error.h>
#include <boxd/exec.h>

#include "base/buf.h"

struct run {
    struct boxd_call call;
    struct boxd_exec *exec;
    struct buf outputs[2];
    size_t limit;
    int failure; /* why it was cancelled from here */
    boxd_run_done *done;
    void *arg;
};

static void run_free(struct run *u)
{
    call_remove(&u->call);
    buf_clear(&u->outputs[0]);
    buf_clear(&u->outputs[1]);
    free(u);
}

static void run_output(void *arg, int fd, const void *data, size_t n)
{
    struct run *u = arg;
    struct buf *b = &u->outputs[fd - 1];

    if (n > u->limit - b->len)
        u->failure = -EFBIG;
    else if (buf_add(b, data, n) < 0)
        u->failure = -ENOMEM;
    if (u->failure)
        boxd_exec_cancel(u->exec);
}

static void run_done(void *arg, int r, int exit_code)
{
    struct run *u = arg;

    if (u->failure == -EFBIG)
        r = boxd_words(-EFBIG, "the output of a command is longer than %zu bytes", u->limit);
    else if (u->failure)
        r = u->failure;
    call_remove(&u->call);
    u->done(u->arg, r, exit_code, buf_str(&u->outputs[0]), u->outputs[0].len,
            buf_str(&u->outputs[1]), u->outputs[1].len);
    run_free(u);
}

static void run_cancel(struct boxd_call *call)
{
    boxd_exec_cancel(container_of(call, struct run, call)->exec);
}

struct boxd_call *boxd_run(struct boxd_client *c, const char *machine, const char *command,
                           const void *input, size_t input_len, size_t limit, uint32_t timeout_ms,
                           boxd_run_done *done, void *arg)
{
    static const struct boxd_exec_handlers handlers = { run_output, NULL, run_done };
    struct boxd_exec_options o = { .machine = machine,
                                   .command = command,
                                   .timeout_ms = timeout_ms };
    struct run *u = calloc(1, sizeof *u);

    if (!u)
        return NULL;
    u->limit = limit;
    u->done = done;
    u->arg = arg;
    u->exec = boxd_exec_start(c, &o, &handlers, u);
    if (!u->exec) {
        free(u);
        return NULL;
    }
    call_init(&u->call, c, run_cancel);
    if (boxd_exec_write(u->exec, input, input_len) < 0)
        exec_fail(u->exec, -ENOMEM);
    else
        boxd_exec_eof(u->exec);
    return &u->call;
}
