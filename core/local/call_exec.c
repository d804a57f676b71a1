/* local/call_exec.c: the call Exec: joins a stream of ExecChunk to a command, with back-pressure
 * both ways. The first message names the machine and the command; the last one of the answer
 * carries the exit code. */
#include "base/base.h"

#include "api/boxd.pb-c.h"
#include "api/wire.h"
#include "local/command.h"
#include "local/service.h"
#include "local/vm.h"
#include <boxd/error.h>

struct exec {
    struct call *call;
    struct command *running; /* NULL: not started yet, or over */
    char *command;
    bool tty, eof;
    uint32_t cols, rows;
    struct buf early; /* input that came with the first message */
};

static void exec_free(void *data)
{
    struct exec *x = data;

    free(x->command);
    buf_clear(&x->early);
    free(x);
}

static void on_output(void *arg, int fd, const void *data, size_t n)
{
    struct exec *x = arg;
    PB(ExecChunk) chunk = BOXD__API__V1__EXEC_CHUNK__INIT;
    ssize_t queued;

    chunk.data.data = (uint8_t *)(uintptr_t)data;
    chunk.data.len = n;
    chunk.is_stderr = fd == 2;
    queued = call_send(x->call, &chunk.base);
    if (queued > RPC_QUEUE_LOW)
        command_pause(x->running, true);
}

static void on_call_writable(struct call *c)
{
    struct exec *x = c->data;

    if (x->running)
        command_pause(x->running, false);
}

static void on_drained(void *arg)
{
    struct exec *x = arg;

    if (call_open(x->call))
        rpc_stream_pause(x->call->stream, false);
}

static void on_done(void *arg, int r, int exit_code)
{
    struct exec *x = arg;
    PB(ExecChunk) chunk = BOXD__API__V1__EXEC_CHUNK__INIT;

    x->running = NULL;
    chunk.exit_code = exit_code;
    if (r < 0)
        call_fail(x->call, r);
    else
        call_reply(x->call, &chunk.base);
}

/* A slow command must slow its client down, not fill this process. */
static void feed(struct exec *x, const void *data, size_t n)
{
    ssize_t waiting = n ? command_write(x->running, data, n) : 0;

    if (waiting < 0)
        call_fail(x->call, (int)waiting);
    else if (call_open(x->call))
        rpc_stream_pause(x->call->stream, (size_t)waiting > COMMAND_INPUT_HIGH);
}

static void on_ready(void *arg, struct vm *vm, int r)
{
    struct exec *x = arg;
    struct call *c = x->call;
    /* A terminal without a command is a login shell, as ssh does it. */
    const char *const argv[] = { "/bin/sh", "-c",
                                 *x->command ? x->command : "exec \"${SHELL:-/bin/sh}\" -l", NULL };
    const struct command_spec spec = { argv, x->tty, x->cols, x->rows };
    const struct command_handlers handlers = { on_output, on_drained, on_done };

    if (!r && call_open(c))
        r = command_start(vm, &spec, &handlers, x, &x->running);
    if (r < 0)
        call_fail(c, r);
    if (x->running) {
        feed(x, x->early.data, x->early.len);
        if (x->eof)
            command_eof(x->running);
    }
    call_unref(c);
}

static void on_gone(struct call *c)
{
    struct exec *x = c->data;

    if (x->running)
        command_cancel(steal_ptr(x->running));
}

static void start(struct call *c, const PB(ExecChunk) * m)
{
    struct vm *vm = vm_find(c->s, m->vm_id);
    struct exec *x;

    if (!vm) {
        call_fail(c, -ENOENT);
        return;
    }
    if (!*m->command && !m->tty) {
        call_end(c, RPC_INVALID_ARGUMENT, "command is empty");
        return;
    }
    x = calloc(1, sizeof(*x));
    if (x)
        x->command = strdup(m->command);
    if (!x || !x->command || (m->data.len && buf_add(&x->early, m->data.data, m->data.len) < 0)) {
        if (x)
            exec_free(x);
        call_fail(c, -ENOMEM);
        return;
    }
    x->call = c;
    x->tty = m->tty;
    x->cols = m->cols;
    x->rows = m->rows;
    c->data = x;
    c->free_data = exec_free;
    c->gone = on_gone;
    c->writable = on_call_writable;
    rpc_stream_pause(c->stream, true);
    call_ref(c);
    vm_need(vm, on_ready, x);
}

static void exec_message(struct call *c, const ProtobufCMessage *message)
{
    const PB(ExecChunk) *m = (const PB(ExecChunk) *)message;
    struct exec *x = c->data;

    if (!x) {
        start(c, m);
        return;
    }
    if (!x->running)
        return; /* it ended: the status is on its way */
    if (m->window_change)
        command_resize(x->running, m->cols, m->rows);
    if (m->data.len)
        feed(x, m->data.data, m->data.len);
}

static void exec_half_close(struct call *c)
{
    struct exec *x = c->data;

    x->eof = true;
    if (x->running)
        command_eof(x->running);
}

const struct call_type exec_calls[] = {
    { .name = "Exec",
      .request = &boxd__api__v1__exec_chunk__descriptor,
      .message = exec_message,
      .half_close = exec_half_close,
      .stream = true },
    { 0 },
};
