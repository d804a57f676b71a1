/* rpc/frame.h: gRPC's framing of messages: one byte of flags, four of length, then the message.
 * Knows no HTTP/2. Every byte that comes in is untrusted. */
#pragma once

#include "base/base.h"
#include "base/buf.h"

#define FRAME_HEAD 5

/* The reading side: finds messages in a stream of bytes. `= {0}`, then frame_in_clear. */
struct frame_in {
    uint8_t head[FRAME_HEAD];
    unsigned head_len;
    bool delivered;  /* `body` holds a message that was given out */
    struct buf body; /* a message that did not come in one piece */
};

/* Takes bytes up to the end of one message. Returns how many were taken; when a message is whole,
 * *message points into `data` or into the reader and lives until the next call, else it is NULL.
 * -EMSGSIZE for a message above RPC_MESSAGE_MAX, -EPROTO for a compressed one, -ENOMEM. */
ssize_t frame_in_feed(struct frame_in *f, const uint8_t *data, size_t n, const uint8_t **message,
                      size_t *message_len);
/* Whether the bytes so far end in the middle of a message. */
bool frame_in_partial(const struct frame_in *f);
void frame_in_clear(struct frame_in *f);

/* The writing side: a queue of framed messages. frame_out_init, then frame_out_clear. */
struct frame_out {
    struct frame_chunk *head, **tail;
    size_t queued; /* bytes not taken yet, framing included */
    bool finished; /* no message will follow */
};

void frame_out_init(struct frame_out *q);
/* Copies one message into the queue; -EMSGSIZE or -ENOMEM. */
int frame_out_add(struct frame_out *q, const void *data, size_t n);
/* Moves up to n bytes out of the queue. */
size_t frame_out_take(struct frame_out *q, uint8_t *out, size_t n);
void frame_out_clear(struct frame_out *q);
