/* api/http.h: plain HTTP requests for the token exchange and the metadata adapter, by libcurl on
 * the loop. Never used for gRPC. No redirect is followed, no proxy is asked, no cookie is kept.
 *
 * Life: http_request_free() ends a request without its callback; http_free() needs none open.
 * `done` runs once, from the loop, and the request dies when it returns. Threads: the loop's. */
#pragma once

#include "base/base.h"
#include "api/timers.h"
#include <uv.h>

#define HTTP_BODY_MAX (64u * 1024)

struct http;
struct http_request;

struct http_answer {
    int status; /* 0: none came; boxd_error_words() of `r` says why */
    const char *body;
    size_t len;
    unsigned retry_after; /* seconds; 0: not said */
};
/* r: 0 when an answer came, whatever its status; -ETIMEDOUT, -EHOSTUNREACH, -EFBIG, -EIO. */
typedef void http_done(void *arg, int r, const struct http_answer *a);

struct http_spec {
    const char *url;     /* http: or https: */
    const char *body;    /* JSON to POST, NULL: GET. Copied, and wiped when the request ends */
    const char *ca_file; /* NULL: the system's */
    uint32_t timeout_ms;
    http_done *done;
    void *arg;
};

int http_new(uv_loop_t *loop, struct timers *timers, struct http **out);
/* The uv handles finish closing on the loop. */
void http_free(struct http *h);
int http_start(struct http *h, const struct http_spec *spec, struct http_request **out);
void http_request_free(struct http_request *q);
