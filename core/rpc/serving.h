/* rpc/serving.h: what server.c (connections) and stream.c (requests) share. Not for others. */
#pragma once

#include "base/base.h"
#include "rpc/h2.h"
#include "rpc/http1.h"
#include "rpc/server.h"

struct rpc_server {
    uv_loop_t *loop;
    struct rpc_server_handlers handlers;
    void *arg;
    uint32_t stream_window, connection_window;
    SSL_CTX *tls;
    struct later_queue queue;
    struct list listeners, conns;
    unsigned conn_count;
    unsigned refs; /* the user's, listeners', conns' and the queue's */
    bool freed;
};

struct server_conn {
    struct wire wire;
    struct h2 h2;
    struct rpc_server *server;
    struct rpc_peer peer;
    struct list link;
    uv_timer_t timer; /* until the client said what it speaks */
    uint8_t hello[32];
    size_t hello_len;
    struct http1 http;
    struct buf reply;
    bool replied, lingering, gone;
    unsigned refs; /* the wire's, the timer's and streams' */
};

struct rpc_http {
    struct server_conn *conn;
};

/* server.c, for stream.c. */
void server_conn_put(struct server_conn *c);
/* stream.c, for server.c. NULL: refuse. */
struct h2_stream *server_stream_new(struct server_conn *c);
