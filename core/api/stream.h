/* api/stream.h: one call of the service from its start to its end: credentials, attempts, retries,
 * errno and words. What the call means is its owner's matter (unary.h, exec.c, transfer.c).
 *
 * Life: stream_new() sends nothing; messages given before stream_begin() are kept until then. `end`
 * runs once, is the last callback, and the stream dies when it returns; stream_close() ends it
 * without. No callback runs inside a function of this header. Every function may be called from
 * inside a callback of the same stream. */
#pragma once

#include "base/base.h"
#include "api/client.h"
#include <protobuf-c/protobuf-c.h>

enum api_shape { API_UNARY, API_SERVER_STREAM, API_CLIENT_STREAM, API_BIDI };

/* A call is a row of this and a small function. */
struct api_method {
    const char *name; /* "CreateVm" */
    const char *what; /* for words: "create machine" */
    const ProtobufCMessageDescriptor *request, *response;
    enum api_shape shape;
    bool changes; /* repeating it after a lost connection could do it twice */
};

struct stream;

struct stream_spec {
    const struct api_method *method;
    const char *subject; /* for words; NULL: none. Copied */
    uint32_t deadline_ms;
    bool bulk; /* much data: goes over the connection for bulk */
    void (*message)(void *arg, const uint8_t *data, size_t n);
    void (*writable)(void *arg); /* may be NULL */
    void (*end)(void *arg, int r);
    void *arg;
};

/* NULL only when memory ran out. */
struct stream *stream_new(struct boxd_client *c, const struct stream_spec *spec);
void stream_begin(struct stream *s);
/* Packs and sends; 0 or more = bytes that wait, -ENOMEM; a message that cannot be packed fails the
 * stream with -EINVAL and words. */
ssize_t stream_send(struct stream *s, const ProtobufCMessage *m);
/* Sends bytes that are a whole message. */
ssize_t stream_send_bytes(struct stream *s, const void *data, size_t n);
void stream_finish(struct stream *s);
void stream_pause(struct stream *s, bool paused);
/* Ends the call towards the service; `end` gets r on the loop's next turn, with the words that are
 * remembered for r now. */
void stream_fail(struct stream *s, int r);
/* The answer cannot be used: fails with -EIO and words that say why. */
void stream_fail_answer(struct stream *s, const char *why);
void stream_close(struct stream *s);
