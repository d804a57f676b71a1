/* Exec: one shell line with its input and outputs as streams (boxd/exec.h). */
#include "api/calls.h"

#include <boxd/error.h>
#include <boxd/exec.h>

#include "api/errno.h"
#include "api/wire.h"

#define COMMAND_MAX ((size_t)1024 * 1024 - 4096)
#define INPUT_PIECE ((size_t)64 * 1024)

/* Field numbers of ExecChunk, for the fields that are read and written in place. */
enum { DATA = 1, STDIN = 2, EXIT_CODE = 6, IS_STDERR = 10 };

static const struct api_method method = {
    "Exec",
    "run a command in machine",
    &boxd__api__v1__exec_chunk__descriptor,
    &boxd__api__v1__exec_chunk__descriptor,
    API_BIDI,
    true,
};

struct boxd_exec {
    struct boxd_call call;
    struct stream *stream;
    struct boxd_exec_handlers handlers;
    void *arg;
    struct buf piece; /* the message being made of input */
    bool eof, any;    /* any: the service has said something */
    int exit_code;
};

static void exec_free(struct boxd_exec *e)
{
    call_remove(&e->call);
    buf_clear(&e->piece);
    free(e);
}

static void exec_end(void *arg, int r)
{
    struct boxd_exec *e = arg;

    if (r >= 0 && !e->any)
        r = api_words(-EIO, &method, NULL, "the service ended it without a result, it is unknown");
    call_remove(&e->call);
    e->handlers.done(e->arg, r, r < 0 ? 0 : e->exit_code);
    exec_free(e);
}

/* Output is most of the bytes there are, so it is handed on from where it lies. */
static void exec_message(void *arg, const uint8_t *data, size_t n)
{
    struct boxd_exec *e = arg;
    struct wire_reader reader = { data, data + n };
    struct wire_field f;
    const void *output = NULL;
    size_t len = 0;
    int fd = 1, r = wire_check(method.response, data, n);

    if (r < 0) {
        stream_fail_answer(e->stream, boxd_error_words(r));
        return;
    }
    e->any = true;
    e->exit_code = 0;
    while (wire_next(&reader, &f) > 0) {
        if (f.number == DATA && f.type == WIRE_BYTES) {
            output = f.data;
            len = f.len;
        } else if (f.number == EXIT_CODE && f.type == WIRE_VARINT) {
            e->exit_code = (int32_t)f.value;
        } else if (f.number == IS_STDERR && f.type == WIRE_VARINT) {
            fd = f.value ? 2 : 1;
        }
    }
    if (len && e->handlers.output)
        e->handlers.output(e->arg, fd, output, len);
}

static void exec_writable(void *arg)
{
    struct boxd_exec *e = arg;

    if (e->handlers.writable && !e->eof)
        e->handlers.writable(e->arg);
}

static void exec_cancel(struct boxd_call *call)
{
    struct boxd_exec *e = container_of(call, struct boxd_exec, call);

    stream_close(e->stream);
    call_remove(call);
    e->handlers.done(e->arg, -ECANCELED, 0);
    exec_free(e);
}

void boxd_exec_cancel(struct boxd_exec *e)
{
    exec_cancel(&e->call);
}

static void send_command(struct boxd_exec *e, const struct boxd_exec_options *o)
{
    Boxd__Api__V1__ExecChunk q = BOXD__API__V1__EXEC_CHUNK__INIT;

    if (strlen(o->command) > COMMAND_MAX) {
        stream_fail(e->stream, api_words(-E2BIG, &method, o->machine, "the command is too long"));
        return;
    }
    q.vm_id = text(o->machine);
    q.command = text(o->command);
    q.tty = o->tty;
    if (o->tty) {
        q.cols = o->cols ? o->cols : 80;
        q.rows = o->rows ? o->rows : 24;
    }
    if (stream_send(e->stream, &q.base) < 0)
        stream_fail(e->stream, -ENOMEM);
}

struct boxd_exec *boxd_exec_start(struct boxd_client *c, const struct boxd_exec_options *o,
                                  const struct boxd_exec_handlers *h, void *arg)
{
    struct boxd_exec *e = calloc(1, sizeof *e);
    struct stream_spec spec = {
        .method = &method,
        .subject = o->machine,
        .deadline_ms = o->timeout_ms,
        .bulk = o->bulk,
        .message = exec_message,
        .writable = exec_writable,
        .end = exec_end,
        .arg = e,
    };

    if (!e)
        return NULL;
    e->stream = stream_new(c, &spec);
    if (!e->stream) {
        free(e);
        return NULL;
    }
    e->handlers = *h;
    e->arg = arg;
    call_init(&e->call, c, exec_cancel);
    send_command(e, o);
    stream_begin(e->stream);
    return e;
}

/* { stdin: true, data: ... } */
static ssize_t send_piece(struct boxd_exec *e, const void *data, size_t n)
{
    static const uint8_t is_input[] = { STDIN << 3, 1 };
    int r;

    buf_truncate(&e->piece, 0);
    r = wire_add_bytes_header(&e->piece, DATA, n);
    if (r >= 0)
        r = buf_add(&e->piece, data, n);
    if (r >= 0)
        r = buf_add(&e->piece, is_input, sizeof is_input);
    return r < 0 ? r : stream_send_bytes(e->stream, e->piece.data, e->piece.len);
}

ssize_t boxd_exec_write(struct boxd_exec *e, const void *data, size_t n)
{
    const uint8_t *p = data;
    ssize_t r = 0;

    while (n && !e->eof && r >= 0) {
        size_t k = n < INPUT_PIECE ? n : INPUT_PIECE;

        r = send_piece(e, p, k);
        p += k;
        n -= k;
    }
    return r;
}

void exec_fail(struct boxd_exec *e, int r)
{
    stream_fail(e->stream, r);
}

void boxd_exec_eof(struct boxd_exec *e)
{
    e->eof = true;
    stream_finish(e->stream);
}

void boxd_exec_resize(struct boxd_exec *e, uint32_t cols, uint32_t rows)
{
    Boxd__Api__V1__ExecChunk q = BOXD__API__V1__EXEC_CHUNK__INIT;

    q.window_change = true;
    q.cols = cols;
    q.rows = rows;
    if (stream_send(e->stream, &q.base) < 0)
        stream_fail(e->stream, -ENOMEM);
}

void boxd_exec_pause(struct boxd_exec *e, bool paused)
{
    stream_pause(e->stream, paused);
}
