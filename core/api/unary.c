#include "api/unary.h"

#include <boxd/error.h>

#include "api/errno.h"
#include "api/wire.h"

struct unary {
    struct boxd_call call;
    const struct api_method *method;
    struct stream *stream;
    ProtobufCMessage *got;
    api_answer *answer;
    api_done *done;
    void *arg;
};

static void unary_free(struct unary *u)
{
    call_remove(&u->call);
    wire_free(u->got);
    free(u);
}

static void unary_end(void *arg, int r)
{
    struct unary *u = arg;

    if (r >= 0 && !u->got) {
        u->call.client->stats.failures++;
        r = api_words(-EIO, u->method, NULL, "the service answered nothing");
    }
    call_remove(&u->call); /* its `done` may free the client */
    u->answer(u->done, u->arg, r, r < 0 ? NULL : u->got);
    unary_free(u);
}

static void unary_message(void *arg, const uint8_t *data, size_t n)
{
    struct unary *u = arg;
    int r;

    if (u->got) {
        stream_fail_answer(u->stream, "the service answered twice");
        return;
    }
    r = wire_unpack(u->method->response, data, n, &u->got);
    if (r < 0)
        stream_fail_answer(u->stream, boxd_error_words(r));
}

static void unary_cancel(struct boxd_call *call)
{
    struct unary *u = container_of(call, struct unary, call);

    stream_close(u->stream);
    call_remove(call);
    u->answer(u->done, u->arg, -ECANCELED, NULL);
    unary_free(u);
}

struct boxd_call *unary_start(struct boxd_client *c, const struct api_method *method,
                              const char *subject, const ProtobufCMessage *request,
                              api_answer *answer, api_done *done, void *arg)
{
    struct unary *u = calloc(1, sizeof *u);
    struct stream_spec spec = {
        .method = method,
        .subject = subject,
        .deadline_ms = c->timeout_ms,
        .message = unary_message,
        .end = unary_end,
        .arg = u,
    };

    if (!u)
        return NULL;
    u->stream = stream_new(c, &spec);
    if (!u->stream) {
        free(u);
        return NULL;
    }
    u->method = method;
    u->answer = answer;
    u->done = done;
    u->arg = arg;
    call_init(&u->call, c, unary_cancel);
    if (stream_send(u->stream, request) < 0)
        stream_fail(u->stream, -ENOMEM);
    stream_finish(u->stream);
    stream_begin(u->stream);
    return &u->call;
}

void answer_nothing(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    ((boxd_done *)done)(arg, r);
}
