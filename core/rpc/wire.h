/* rpc/wire.h: one connected socket on the loop, with or without TLS: bytes in, bytes out.
 * Knows nothing of what the bytes mean.
 *
 * Life: wire_open() takes the socket and the SSL (on failure too). `closed` runs at most once, when
 * the connection ends by itself; wire_close() ends it without. After either, `released` runs from
 * the loop and is the last use of the memory, which is the owner's. Both may happen inside any
 * callback. Threads: the loop's thread. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "rpc/later.h"
#include <openssl/ssl.h>
#include <uv.h>

struct wire;

struct wire_ops {
    /* The socket is ready for the peer's bytes (after the TLS handshake). */
    void (*opened)(struct wire *w);
    /* Bytes came. A negative errno with words closes the connection. */
    int (*received)(struct wire *w, const uint8_t *data, size_t n);
    /* Adds bytes to send, about `room`; none added: nothing to send. A negative errno with words
     * closes the connection. */
    int (*produce)(struct wire *w, struct buf *out, size_t room);
    void (*closed)(struct wire *w, int r, const char *words);
    void (*released)(struct wire *w);
};

enum wire_state { WIRE_HANDSHAKE, WIRE_OPEN, WIRE_CLOSED };

struct wire {
    uv_poll_t poll;
    struct later_queue *queue;
    struct later flush; /* writes gathered over one turn of the loop */
    struct later more;  /* bytes left inside TLS after a long read */
    const struct wire_ops *ops;
    void *owner;
    int fd;
    SSL *ssl;
    bool accepting;
    enum wire_state state;
    int events;
    struct buf out;
    size_t out_off;
    uint8_t *in;
    uint64_t received, sent;
    uint64_t heard_ms; /* when bytes last came */
};

int wire_open(struct wire *w, uv_loop_t *loop, struct later_queue *queue, int fd, SSL *ssl,
              bool accepting, const struct wire_ops *ops, void *owner);
/* Asks for produce() on the next turn of the loop. */
void wire_want_write(struct wire *w);
/* Writes now what the socket takes. Not from inside received() or produce(). */
void wire_flush(struct wire *w);
/* Ends the connection as if it had broken: closed() runs with these words. */
void wire_fail(struct wire *w, int r, const char *words);
/* The peer sees the end of what was sent; it may still send. */
void wire_end_output(struct wire *w);
/* Safe on a wire that is closed already. */
void wire_close(struct wire *w);
