/* rpc/server.h: gRPC over HTTP/2, server side, for boxd-local and the tests; and plain HTTP/1.1
 * requests on the same port, told apart by the first bytes.
 *
 * Life: rpc_server_free() ends all streams and connections; uv handles finish closing on the loop.
 * A stream dies when its `end` callback returns. `end` runs exactly once: after rpc_stream_end()
 * was sent, or when the client cancelled, the connection broke or the deadline passed
 * (`cancelled`). No callback of a stream runs before `start` returned or while another of it is
 * running. Threads: the loop's thread. */
#pragma once

#include "rpc/rpc.h"

struct rpc_server;
struct rpc_stream;

struct rpc_stream_handlers {
    void (*message)(void *arg, const uint8_t *data, size_t n);
    /* The client half-closed. May be NULL. */
    void (*half_close)(void *arg);
    void (*writable)(void *arg); /* may be NULL */
    void (*end)(void *arg, bool cancelled);
};

struct rpc_http;

/* Who is at the other end of a connection, told by the kernel. */
struct rpc_peer {
    bool is_unix;
    uid_t uid;        /* unix sockets only (SO_PEERCRED) */
    pid_t pid;        /* unix sockets only; 0: in another pid namespace */
    char address[46]; /* TCP: the numeric IP address; else "" */
};

struct rpc_server_handlers {
    /* A connection was accepted; false closes it before a byte is read. May be NULL. */
    bool (*peer)(void *arg, const struct rpc_peer *peer);
    /* A request arrived: set the handlers with rpc_stream_accept(), or end it at once with
     * rpc_stream_end(). `authorization` is the header's value or NULL. An unknown path is the
     * callee's to refuse (RPC_UNIMPLEMENTED). */
    void (*start)(void *arg, struct rpc_stream *s, const char *path, const char *authorization);
    /* An HTTP/1.1 request, whole (headers at most 16 KiB, body at most 64 KiB). Answer at once with
     * rpc_http_reply(). NULL: 404. */
    void (*http)(void *arg, struct rpc_http *h, const char *method, const char *path,
                 const void *body, size_t body_len);
    /* The number of connections changed. May be NULL. */
    void (*connections)(void *arg, unsigned count);
};
/* `retry_after` seconds > 0 adds the header. Text is JSON. */
void rpc_http_reply(struct rpc_http *h, int status, const char *body, unsigned retry_after);

/* Valid as long as the stream, or until the `http` callback returns. */
const struct rpc_peer *rpc_stream_peer(const struct rpc_stream *s);
const struct rpc_peer *rpc_http_peer(const struct rpc_http *h);

struct rpc_server_options {
    uint32_t stream_window;           /* 0: 8 MiB */
    uint32_t connection_window;       /* 0: 32 MiB */
    const char *cert_file, *key_file; /* PEM; both NULL: plaintext */
    struct rpc_server_handlers handlers;
    void *arg;
};
int rpc_server_new(uv_loop_t *loop, const struct rpc_server_options *options,
                   struct rpc_server **out);
/* Takes ownership of a listening socket (TCP or unix). May be called for several. */
int rpc_server_listen(struct rpc_server *s, int fd);
void rpc_server_free(struct rpc_server *s);

void rpc_stream_accept(struct rpc_stream *s, const struct rpc_stream_handlers *h, void *arg);
/* As rpc_call_send(): bytes waiting, or -ENOMEM, -EMSGSIZE; 0 once ended. */
ssize_t rpc_stream_send(struct rpc_stream *s, const void *data, size_t n);
/* Sends the status after what is queued; `message` may be NULL. */
void rpc_stream_end(struct rpc_stream *s, enum rpc_code code, const char *message);
void rpc_stream_pause(struct rpc_stream *s, bool paused);
