/* rpc-echo ADDRESS [CERT KEY]: our server for rpc-client.py and for throughput: the same calls as
 * rpc-server.py has. ADDRESS is unix:PATH, or tcp for a port of its own choice on 127.0.0.1, which
 * it prints. Ends when its standard input does. */
#include "base/base.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <boxd/error.h>

#include "base/buf.h"
#include "base/str.h"
#include "driver.h"
#include "rpc/server.h"

static uv_loop_t loop;
static struct rpc_server *server;
static unsigned cancelled;

struct serving {
    struct rpc_stream *stream;
    const struct method *method;
    struct digest digest;
    size_t left, size; /* download */
    uint8_t *block;
};

struct method {
    const char *path;
    void (*message)(struct serving *v, const uint8_t *data, size_t n);
    void (*half_close)(struct serving *v);
    void (*writable)(struct serving *v);
};

static void echo(struct serving *v, const uint8_t *data, size_t n)
{
    /* A client that does not read is not read from. */
    if (rpc_stream_send(v->stream, data, n) > 4 << 20)
        rpc_stream_pause(v->stream, true);
}

static void echo_on(struct serving *v)
{
    rpc_stream_pause(v->stream, false);
}

static void end_ok(struct serving *v)
{
    rpc_stream_end(v->stream, RPC_OK, NULL);
}

static void hash(struct serving *v, const uint8_t *data, size_t n)
{
    if (!v->digest.ctx)
        digest_start(&v->digest);
    digest_add(&v->digest, data, n);
}

static void send_hash(struct serving *v)
{
    char hex[65];

    hash(v, NULL, 0);
    digest_end(&v->digest, hex);
    rpc_stream_send(v->stream, hex, 64);
    rpc_stream_end(v->stream, RPC_OK, NULL);
}

static void ignore(struct serving *v, const uint8_t *data, size_t n)
{
}

static void send_more(struct serving *v)
{
    ssize_t queued = 0;

    while (v->left && queued < 4 << 20) {
        v->block[v->left % v->size]++;
        hash(v, v->block, v->size);
        queued = rpc_stream_send(v->stream, v->block, v->size);
        v->left--;
    }
    if (!v->left)
        send_hash(v);
}

static void download(struct serving *v, const uint8_t *data, size_t n)
{
    unsigned count = 0, size = 0;
    char text[64];

    snprintf(text, sizeof text, "%.*s", (int)(n < 63 ? n : 63), (const char *)data);
    if (sscanf(text, "%u %u", &count, &size) != 2 || !size || size > RPC_MESSAGE_MAX) {
        rpc_stream_end(v->stream, RPC_INVALID_ARGUMENT, "COUNT SIZE expected");
        return;
    }
    v->left = count;
    v->size = size;
    v->block = calloc(1, size);
    if (!v->block)
        abort();
    send_more(v);
}

/* As much as the client takes, for measuring. */
static void pour(struct serving *v)
{
    static uint8_t block[256 * 1024];

    while (v->left && rpc_stream_send(v->stream, block, sizeof block) < 2 << 20)
        v->left--;
    if (!v->left)
        rpc_stream_end(v->stream, RPC_OK, NULL);
}

static void start_pouring(struct serving *v)
{
    v->left = 4096;
    pour(v);
}

static void send_trailers_error(struct serving *v)
{
    rpc_stream_send(v->stream, "first", 5);
    rpc_stream_end(v->stream, RPC_FAILED_PRECONDITION, "after one message");
}

static void send_cancelled(struct serving *v)
{
    char text[16];

    snprintf(text, sizeof text, "%u", cancelled);
    rpc_stream_send(v->stream, text, strlen(text));
    rpc_stream_end(v->stream, RPC_OK, NULL);
}

static const struct method methods[] = {
    { "/t/unary", echo, end_ok, echo_on },
    { "/t/echo", echo, end_ok, echo_on },
    { "/t/upload", hash, send_hash, NULL },
    { "/t/swallow", ignore, end_ok, NULL },
    { "/t/pour", ignore, start_pouring, pour },
    { "/t/download", download, NULL, send_more },
    { "/t/never", ignore, NULL, NULL },
    { "/t/error_trailers", ignore, send_trailers_error, NULL },
    { "/t/cancelled", ignore, send_cancelled, NULL },
};

static void on_message(void *arg, const uint8_t *data, size_t n)
{
    struct serving *v = arg;

    v->method->message(v, data, n);
}

static void on_half_close(void *arg)
{
    struct serving *v = arg;

    if (v->method->half_close)
        v->method->half_close(v);
}

static void on_writable(void *arg)
{
    struct serving *v = arg;

    if (v->method->writable)
        v->method->writable(v);
}

static void on_end(void *arg, bool was_cancelled)
{
    struct serving *v = arg;

    cancelled += was_cancelled;
    EVP_MD_CTX_free(v->digest.ctx);
    free(v->block);
    free(v);
}

static void on_start(void *arg, struct rpc_stream *s, const char *path, const char *authorization)
{
    static const struct rpc_stream_handlers handlers = { on_message, on_half_close, on_writable,
                                                         on_end };
    struct serving *v;

    if (!strcmp(path, "/t/error_headers")) {
        rpc_stream_end(s, RPC_NOT_FOUND, "50% of 'ä'\nlost");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (strcmp(methods[i].path, path) != 0)
            continue;
        v = calloc(1, sizeof *v);
        if (!v)
            abort();
        v->stream = s;
        v->method = &methods[i];
        rpc_stream_accept(s, &handlers, v);
        return;
    }
}

static void on_http(void *arg, struct rpc_http *h, const char *method, const char *path,
                    const void *body, size_t n)
{
    char text[256];

    snprintf(text, sizeof text, "{\"method\":\"%s\",\"path\":\"%s\",\"length\":%zu}", method, path,
             n);
    rpc_http_reply(h, strcmp(path, "/busy") ? 200 : 429, text, strcmp(path, "/busy") ? 0 : 7);
}

static int listen_on(const char *address)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    bool local = starts_with(address, "unix:");
    socklen_t n = sizeof in;
    int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (local)
        snprintf(un.sun_path, sizeof un.sun_path, "%s", address + 5);
    if (bind(fd, local ? (void *)&un : (void *)&in, local ? sizeof un : sizeof in) < 0 ||
        listen(fd, 64) < 0) {
        fprintf(stderr, "cannot listen on '%s': %m\n", address);
        exit(1);
    }
    if (!local && getsockname(fd, (struct sockaddr *)&in, &n) == 0)
        printf("%u\n", ntohs(in.sin_port));
    fflush(stdout);
    return fd;
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    char c;

    if (read(0, &c, 1) > 0)
        return;
    rpc_server_free(server);
    uv_close((uv_handle_t *)poll, NULL);
}

int main(int argc, char **argv)
{
    struct rpc_server_options options = { .handlers = { .start = on_start, .http = on_http } };
    uv_poll_t input;
    int r;

    if (argc != 2 && argc != 4)
        return 2;
    if (argc == 4) {
        options.cert_file = argv[2];
        options.key_file = argv[3];
    }
    uv_loop_init(&loop);
    r = rpc_server_new(&loop, &options, &server);
    if (r == 0)
        r = rpc_server_listen(server, listen_on(argv[1]));
    if (r < 0) {
        fprintf(stderr, "%s\n", boxd_error_words(r));
        return 1;
    }
    uv_poll_init(&loop, &input, 0);
    uv_poll_start(&input, UV_READABLE, on_input);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) != 0;
}
