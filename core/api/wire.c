/* The gate of api/wire.h. The check runs on the bytes, before protobuf-c allocates anything: its
 * unpacker knows neither UTF-8 nor a limit, and cuts a string at a NUL byte. */
#include "api/wire.h"

#include <boxd/error.h>

#include "base/str.h"
#include "rpc/rpc.h"

/* Deeper than any message of the API; ends malicious nesting. */
#define DEPTH_MAX 16

static int malformed(const ProtobufCMessageDescriptor *d)
{
    return boxd_words(-EBADMSG, "malformed message %s", d->short_name);
}

static int read_varint(struct wire_reader *r, uint64_t *out)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        uint8_t byte = *r->p++;

        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out = v;
            return 0;
        }
    }
    return -EBADMSG;
}

static int read_fixed(struct wire_reader *r, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    if ((size_t)(r->end - r->p) < n)
        return -EBADMSG;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)r->p[i] << (8 * i);
    r->p += n;
    *out = v;
    return 0;
}

static int read_bytes(struct wire_reader *r, struct wire_field *f)
{
    uint64_t n;
    int e = read_varint(r, &n);

    if (e < 0)
        return e;
    if (n > (uint64_t)(r->end - r->p))
        return -EBADMSG;
    f->data = r->p;
    f->len = (size_t)n;
    r->p += n;
    return 0;
}

int wire_next(struct wire_reader *r, struct wire_field *f)
{
    uint64_t tag;
    int e;

    if (r->p == r->end)
        return 0;
    e = read_varint(r, &tag);
    if (e < 0 || tag >> 3 == 0 || tag > UINT32_MAX)
        return -EBADMSG;
    *f = (struct wire_field){ .number = (uint32_t)(tag >> 3), .type = tag & 7 };
    switch (f->type) {
    case WIRE_VARINT:
        e = read_varint(r, &f->value);
        break;
    case WIRE_FIXED64:
        e = read_fixed(r, 8, &f->value);
        break;
    case WIRE_FIXED32:
        e = read_fixed(r, 4, &f->value);
        break;
    case WIRE_BYTES:
        e = read_bytes(r, f);
        break;
    default: /* groups are not proto3 */
        e = -EBADMSG;
    }
    return e < 0 ? e : 1;
}

struct check {
    size_t memory; /* what unpacking costs, roughly */
    unsigned depth;
};

static int check_message(struct check *c, const ProtobufCMessageDescriptor *d,
                         struct wire_reader bytes);

static int charge(struct check *c, const ProtobufCMessageDescriptor *d, size_t n)
{
    c->memory += n;
    return c->memory <= WIRE_MEMORY_MAX
               ? 0
               : boxd_words(-EMSGSIZE, "message %s is too large", d->short_name);
}

static int check_field(struct check *c, const ProtobufCMessageDescriptor *d,
                       const struct wire_field *f)
{
    const ProtobufCFieldDescriptor *fd = protobuf_c_message_descriptor_get_field(d, f->number);
    /* What protobuf-c keeps beside the bytes: a pointer in an array, a scanned member or an unknown
     * field, and malloc's own. */
    int r = charge(c, d, f->len + 64);

    if (r < 0 || !fd || (fd->type != PROTOBUF_C_TYPE_STRING && fd->type != PROTOBUF_C_TYPE_MESSAGE))
        return r;
    if (f->type != WIRE_BYTES)
        return malformed(d);
    if (fd->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_message(c, fd->descriptor, (struct wire_reader){ f->data, f->data + f->len });
    if (memchr(f->data, '\0', f->len))
        return boxd_words(-EILSEQ, "field '%s' of %s holds a NUL byte", fd->name, d->short_name);
    if (!utf8_valid(f->data, f->len))
        return boxd_words(-EILSEQ, "field '%s' of %s is not valid UTF-8", fd->name, d->short_name);
    return 0;
}

static int check_message(struct check *c, const ProtobufCMessageDescriptor *d,
                         struct wire_reader bytes)
{
    struct wire_field f;
    int r;

    if (c->depth == DEPTH_MAX)
        return malformed(d);
    c->depth++;
    r = charge(c, d, d->sizeof_message);
    while (r >= 0) {
        r = wire_next(&bytes, &f);
        if (r < 0)
            return malformed(d);
        if (!r)
            break;
        r = check_field(c, d, &f);
    }
    c->depth--;
    return r;
}

int wire_check(const ProtobufCMessageDescriptor *d, const void *data, size_t n)
{
    static const uint8_t nothing[1];
    const uint8_t *p = n ? data : nothing;
    struct check c = { 0 };

    return check_message(&c, d, (struct wire_reader){ p, p + n });
}

int wire_pack(const ProtobufCMessage *m, struct buf *out)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    int r;

    if (n > RPC_MESSAGE_MAX)
        return boxd_words(-EMSGSIZE, "message %s is too large", m->descriptor->short_name);
    r = buf_reserve(out, n);
    if (r < 0)
        return r;
    protobuf_c_message_pack(m, (uint8_t *)out->data + out->len);
    r = wire_check(m->descriptor, out->data + out->len, n);
    if (r < 0) {
        out->data[out->len] = '\0';
        return r;
    }
    out->len += n;
    out->data[out->len] = '\0';
    return 0;
}

int wire_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n,
                ProtobufCMessage **out)
{
    int r = wire_check(d, data, n);

    if (r < 0)
        return r;
    *out = protobuf_c_message_unpack(d, NULL, n, data);
    /* The bytes are well formed for us; what remains is a wrong type or no memory. */
    return *out ? 0 : malformed(d);
}

void wire_free(ProtobufCMessage *m)
{
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
}

static int add_varint(struct buf *out, uint64_t v)
{
    int r = 0;

    for (; r >= 0 && v > 0x7f; v >>= 7)
        r = buf_addch(out, (char)(v | 0x80));
    return r < 0 ? r : buf_addch(out, (char)v);
}

int wire_add_bytes_header(struct buf *out, uint32_t number, size_t len)
{
    int r = add_varint(out, (uint64_t)number << 3 | WIRE_BYTES);

    return r < 0 ? r : add_varint(out, len);
}
