/* rpc/http1.h: a strict little reader of one HTTP/1.1 request, for the few plain requests that a
 * gRPC server answers. No chunked bodies, no pipelining, no keep-alive. Input is untrusted. */
#pragma once

#include "base/base.h"
#include "base/buf.h"

#define HTTP1_HEAD_MAX ((size_t)16 * 1024)
#define HTTP1_BODY_MAX ((size_t)64 * 1024)

/* `= {0}`, then http1_clear. */
struct http1 {
    struct buf in;
    size_t body_off, body_len;
    const char *method, *path; /* in `in`, once the request is whole */
};

/* 1: the request is whole; 0: more is needed; negative: -(HTTP status) to answer with. */
int http1_feed(struct http1 *h, const uint8_t *data, size_t n);
const void *http1_body(const struct http1 *h);
/* A whole response. */
int http1_response(struct buf *out, int status, const char *body, unsigned retry_after);
void http1_clear(struct http1 *h);
