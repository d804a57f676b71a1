/* api/wire.h: the one gate between protobuf messages and bytes, for the client and for boxd-local.
 *
 * Every message that is sent or received passes here. Refused in both directions: a string that is
 * not UTF-8 or holds a NUL byte, malformed bytes, and messages that would cost more memory than
 * WIRE_MEMORY_MAX when unpacked. Unknown fields are skipped. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include <protobuf-c/protobuf-c.h>

#define WIRE_MEMORY_MAX ((size_t)64 << 20)

/* Appends the message's bytes to `out`. 0, -EILSEQ with words that name the field whose text is not
 * UTF-8, -EMSGSIZE above RPC_MESSAGE_MAX, or -ENOMEM; `out` is unchanged on failure. */
int wire_pack(const ProtobufCMessage *m, struct buf *out);
/* Unpacks a message that the caller frees with wire_free(). 0, -EILSEQ with words that name the
 * field, -EBADMSG with words for malformed bytes, -EMSGSIZE for too much of it, or -ENOMEM.
 * Strings of the result are never NULL. */
int wire_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n,
                ProtobufCMessage **out);
/* NULL is ignored. */
void wire_free(ProtobufCMessage *m);
DEFINE_CLEANUP(ProtobufCMessage, wire_free);
#define _cleanup_wire_ _cleanup_(cleanup_wire_freep)

/* Checks bytes without unpacking them; results as of wire_unpack(). */
int wire_check(const ProtobufCMessageDescriptor *d, const void *data, size_t n);

/* ---- reading fields in place, for the messages that carry much data ---------------------------
 */

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_reader {
    const uint8_t *p, *end;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;      /* of the number types */
    const uint8_t *data; /* of WIRE_BYTES, inside the reader's bytes */
    size_t len;
};

/* 1: a field was read; 0: the end; -EBADMSG. */
int wire_next(struct wire_reader *r, struct wire_field *f);

/* The header of a bytes field, to be followed by `len` bytes of data. */
int wire_add_bytes_header(struct buf *out, uint32_t number, size_t len);
