#include "base/base.h"

#include "rpc/frame.h"
#include "rpc/rpc.h"

/* Room is made at once for a message up to this, beyond only as its bytes come: a length alone must
 * not cost memory. A buffer that held a longer one is not kept for the next. */
#define BODY_AT_ONCE ((size_t)1 << 20)
#define BODY_KEEP (2 * BODY_AT_ONCE)

struct frame_chunk {
    struct frame_chunk *next;
    size_t len, off;
    uint8_t data[];
};

static uint32_t body_length(const struct frame_in *f)
{
    return (uint32_t)f->head[1] << 24 | (uint32_t)f->head[2] << 16 | (uint32_t)f->head[3] << 8 |
           f->head[4];
}

static void start_over(struct frame_in *f)
{
    f->delivered = false;
    f->head_len = 0;
    if (f->body.cap > BODY_KEEP)
        buf_clear(&f->body);
    buf_truncate(&f->body, 0);
}

static int check_head(const struct frame_in *f)
{
    if (f->head[0] != 0)
        return -EPROTO;
    return body_length(f) > RPC_MESSAGE_MAX ? -EMSGSIZE : 0;
}

ssize_t frame_in_feed(struct frame_in *f, const uint8_t *data, size_t n, const uint8_t **message,
                      size_t *message_len)
{
    size_t used = 0, missing;
    int r;

    *message = NULL;
    *message_len = 0;
    if (f->delivered)
        start_over(f);
    while (f->head_len < FRAME_HEAD && used < n)
        f->head[f->head_len++] = data[used++];
    if (f->head_len < FRAME_HEAD)
        return (ssize_t)used;
    r = check_head(f);
    if (r < 0)
        return r;

    missing = body_length(f) - f->body.len;
    if (!f->body.len && missing <= n - used) { /* in one piece: no copy */
        *message = data + used;
        *message_len = missing;
        f->delivered = true;
        return (ssize_t)(used + missing);
    }
    if (!f->body.len) {
        r = buf_reserve(&f->body, missing < BODY_AT_ONCE ? missing : BODY_AT_ONCE);
        if (r < 0)
            return r;
    }
    if (missing > n - used)
        missing = n - used;
    r = buf_add(&f->body, data + used, missing);
    if (r < 0)
        return r;
    if (f->body.len == body_length(f)) {
        *message = (const uint8_t *)f->body.data;
        *message_len = f->body.len;
        f->delivered = true;
    }
    return (ssize_t)(used + missing);
}

bool frame_in_partial(const struct frame_in *f)
{
    return f->head_len && !f->delivered;
}

void frame_in_clear(struct frame_in *f)
{
    buf_clear(&f->body);
    *f = (struct frame_in){ 0 };
}

void frame_out_init(struct frame_out *q)
{
    *q = (struct frame_out){ 0 };
    q->tail = &q->head;
}

int frame_out_add(struct frame_out *q, const void *data, size_t n)
{
    struct frame_chunk *c;

    if (n > RPC_MESSAGE_MAX)
        return -EMSGSIZE;
    c = malloc(sizeof *c + FRAME_HEAD + n);
    if (!c)
        return -ENOMEM;
    c->next = NULL;
    c->off = 0;
    c->len = FRAME_HEAD + n;
    c->data[0] = 0;
    for (int i = 0; i < 4; i++)
        c->data[1 + i] = (uint8_t)(n >> (24 - 8 * i));
    if (n)
        memcpy(c->data + FRAME_HEAD, data, n);
    *q->tail = c;
    q->tail = &c->next;
    q->queued += c->len;
    return 0;
}

size_t frame_out_take(struct frame_out *q, uint8_t *out, size_t n)
{
    size_t done = 0;

    while (q->head && done < n) {
        struct frame_chunk *c = q->head;
        size_t k = c->len - c->off;

        if (k > n - done)
            k = n - done;
        memcpy(out + done, c->data + c->off, k);
        c->off += k;
        done += k;
        if (c->off < c->len)
            break;
        q->head = c->next;
        if (!q->head)
            q->tail = &q->head;
        free(c);
    }
    q->queued -= done;
    return done;
}

void frame_out_clear(struct frame_out *q)
{
    while (q->head) {
        struct frame_chunk *c = q->head;

        q->head = c->next;
        free(c);
    }
    frame_out_init(q);
}
