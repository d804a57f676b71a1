/* rpc/h2.h: one HTTP/2 connection and its streams of gRPC messages, the same for both ends:
 * windows, queues, pausing, liveness. The rules it keeps are in README.md. Knows no statuses.
 *
 * Life: h2 belongs to its owner, who embeds it beside its wire; released() is the last use. A
 * stream is reference counted; h2_stream_init() gives one reference to the owner, destroy() frees
 * it. Owners may close the connection or shut any stream inside any callback. Threads: the loop's
 * thread. */
#pragma once

#include "base/base.h"
#include "base/list.h"
#include "rpc/frame.h"
#include "rpc/later.h"
#include "rpc/wire.h"
#include <nghttp2/nghttp2.h>

struct h2;
struct h2_stream;

/* What happens to a connection. */
struct h2_ops {
    /* The peer's SETTINGS came: it speaks HTTP/2. */
    void (*ready)(struct h2 *h);
    /* Server: a request begins; NULL refuses it. */
    struct h2_stream *(*begin)(struct h2 *h);
    /* The first stream was opened, or the last one is over. May be NULL. */
    void (*busy)(struct h2 *h, bool busy);
    /* The peer sent GOAWAY: no new streams here. May be NULL. */
    void (*going_away)(struct h2 *h);
    /* The connection ended by itself; all its streams were told. */
    void (*closed)(struct h2 *h, int r, const char *words);
    void (*released)(struct h2 *h);
};

/* What happens to a stream. */
struct h2_stream_ops {
    void (*header)(struct h2_stream *s, const char *name, const char *value);
    /* A header block is whole; `end`: nothing follows it. */
    void (*headers)(struct h2_stream *s, bool end);
    void (*message)(struct h2_stream *s, const uint8_t *data, size_t n);
    void (*writable)(struct h2_stream *s);
    /* The peer sent END_STREAM. */
    void (*remote_end)(struct h2_stream *s);
    /* h2_stream_input_done() was called and everything before it was delivered. */
    void (*input_end)(struct h2_stream *s);
    /* What came is not gRPC: -EMSGSIZE, -EPROTO (compressed) or -ENOMEM. Nothing more is read. */
    void (*broken)(struct h2_stream *s, int r);
    /* Server: the queue is sent; submit the trailers. */
    void (*trailers)(struct h2_stream *s);
    /* The stream is over; `s->h2` is NULL now. */
    void (*stream_closed)(struct h2_stream *s, uint32_t error_code);
    /* The connection broke under the stream; `s->h2` is NULL now. */
    void (*stream_lost)(struct h2_stream *s, const char *words);
    void (*destroy)(struct h2_stream *s);
};

struct h2_settings {
    uint32_t stream_window, connection_window;
    uint32_t max_streams;  /* 0: not announced */
    uint32_t header_limit; /* bytes of one stream's headers */
};

struct h2 {
    struct wire *wire;
    nghttp2_session *session;
    const struct h2_ops *ops;
    struct h2_settings settings;
    struct list streams;
    unsigned stream_count;
    bool server, ready, going_away;
    bool inside;         /* nghttp2 is running: it must not be entered again */
    unsigned acks_due;   /* SETTINGS sent and not acknowledged */
    bool probe_waits;    /* the last of them is a probe */
    uint64_t probe_ns;   /* when it was sent */
    uint32_t latency_us; /* smoothed; 0: none yet */
    char reason[96];     /* why this side gave up, for the owner's words */
};

struct h2_stream {
    struct h2 *h2; /* NULL before it is submitted and when it is over */
    int32_t id;
    const struct h2_stream_ops *ops;
    struct later_queue *queue;
    struct later later;
    struct list link; /* in h2->streams */
    unsigned refs;
    size_t header_bytes;

    struct frame_in in;
    struct buf pending; /* bytes that wait for the reader, from pending_off */
    size_t pending_off;
    bool paused, discard, input_done, input_told;
    bool sent; /* client: the request's headers left */

    struct frame_out out;
    bool above_low, tell_writable;
};

/* Speaks HTTP/2 on an open wire, whose ops become h2's own. -ENOMEM with words. */
int h2_start(struct h2 *h, struct wire *wire, bool server, const struct h2_ops *ops,
             const struct h2_settings *settings);
extern const struct wire_ops h2_wire_ops;
/* For bytes that were read before h2_start(). */
int h2_received(struct wire *w, const uint8_t *data, size_t n);
/* Says GOAWAY if that can be said here and now, and ends the connection: streams are told that
 * they are lost; closed() does not run. */
void h2_close(struct h2 *h, const char *words);
/* Asks whether the peer is alive and how far away; does nothing while such a question is open. */
void h2_probe(struct h2 *h);

void h2_stream_init(struct h2_stream *s, const struct h2_stream_ops *ops,
                    struct later_queue *queue);
void h2_stream_ref(struct h2_stream *s);
void h2_stream_unref(struct h2_stream *s);
/* Client: sends the request's headers. 0 or a negative errno with words. */
int h2_stream_submit(struct h2_stream *s, struct h2 *h, const nghttp2_nv *headers, size_t n);
/* Server: sends response headers; `end`: and nothing else. */
int h2_stream_respond(struct h2_stream *s, const nghttp2_nv *headers, size_t n, bool end);
/* Bytes waiting, or -ENOMEM, -EMSGSIZE; 0 once finished. */
ssize_t h2_stream_send(struct h2_stream *s, const void *data, size_t n);
void h2_stream_finish(struct h2_stream *s);
void h2_stream_pause(struct h2_stream *s, bool paused);
/* No more input will come: input_end() runs from the loop when the reader has taken what came
 * before. */
void h2_stream_input_done(struct h2_stream *s);
/* Drops input, and the callbacks about it, from now on. */
void h2_stream_shut(struct h2_stream *s);
/* RST_STREAM; the stream is over, without a callback. */
void h2_stream_reset(struct h2_stream *s, uint32_t error_code);
/* Whether the peer still may wait for data from this side. */
bool h2_stream_local_open(const struct h2_stream *s);

/* A header field of two strings that outlive the submission. */
nghttp2_nv h2_nv(const char *name, const char *value);
