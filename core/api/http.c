#include "api/http.h"

#include <curl/curl.h>
#include <strings.h>

#include <boxd/error.h>

#include "base/buf.h"
#include "base/str.h"

struct http {
    uv_loop_t *loop;
    struct timers *timers;
    CURLM *multi;
    struct timer timer;
};

/* A socket of curl that is watched; freed when its handle has closed. */
struct watch {
    uv_poll_t poll;
    struct http *http;
    curl_socket_t fd;
};

struct http_request {
    struct http *http;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    struct buf answer;
    unsigned retry_after;
    char error[CURL_ERROR_SIZE];
    http_done *done;
    void *arg;
};

/* Frees memory that held a key or a token. */
static void free_secret(void *p, size_t n)
{
    if (p)
        explicit_bzero(p, n);
    free(p);
}

void http_request_free(struct http_request *q)
{
    if (q->easy) {
        curl_multi_remove_handle(q->http->multi, q->easy);
        curl_easy_cleanup(q->easy);
    }
    curl_slist_free_all(q->headers);
    free_secret(q->body, q->body ? strlen(q->body) : 0);
    if (q->answer.data)
        explicit_bzero(q->answer.data, q->answer.cap);
    buf_clear(&q->answer);
    free(q);
}

static int result_errno(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_WRITE_ERROR:
        return -EFBIG;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return -EHOSTUNREACH;
    default:
        return -EIO;
    }
}

static void request_ended(struct http_request *q, CURLcode code)
{
    struct http_answer a = { .body = buf_str(&q->answer), .len = q->answer.len };
    long status = 0;
    int r = result_errno(code);

    a.retry_after = q->retry_after;
    if (r == -EFBIG)
        boxd_words(r, "the answer is longer than %u bytes", HTTP_BODY_MAX);
    else if (r < 0)
        boxd_words(r, "%s", q->error[0] ? q->error : curl_easy_strerror(code));
    else
        curl_easy_getinfo(q->easy, CURLINFO_RESPONSE_CODE, &status);
    a.status = (int)status;
    q->done(q->arg, r, &a);
    http_request_free(q);
}

/* `done` may free the http; a request at a time ends here, and the rest at the next turn. */
static void collect(struct http *h)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(h->multi, &left))) {
        struct http_request *q;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&q);
        if (left)
            timer_set(h->timers, &h->timer, 0);
        request_ended(q, m->data.result);
        return;
    }
}

static void timer_ran(struct timer *t)
{
    struct http *h = container_of(t, struct http, timer);
    int running;

    curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    collect(h);
}

static int on_timer(CURLM *multi, long ms, void *arg)
{
    struct http *h = arg;

    if (ms < 0)
        timer_clear(&h->timer);
    else
        timer_set(h->timers, &h->timer, (unsigned long)ms);
    return 0;
}

static void polled(uv_poll_t *poll, int status, int events)
{
    struct watch *w = poll->data;
    struct http *h = w->http;
    int flags = 0, running;

    if (status < 0)
        flags = CURL_CSELECT_ERR;
    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    curl_multi_socket_action(h->multi, w->fd, flags, &running);
    collect(h);
}

static void watch_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static struct watch *watch_new(struct http *h, curl_socket_t fd)
{
    struct watch *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->http = h;
    w->fd = fd;
    if (uv_poll_init_socket(h->loop, &w->poll, fd) < 0) {
        free(w);
        return NULL;
    }
    w->poll.data = w;
    return w;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct http *h = arg;
    struct watch *w = socket_arg;
    int events = 0;

    if (what == CURL_POLL_REMOVE) {
        if (w) {
            curl_multi_assign(h->multi, fd, NULL);
            uv_poll_stop(&w->poll);
            uv_close((uv_handle_t *)&w->poll, watch_closed);
        }
        return 0;
    }
    if (!w) {
        w = watch_new(h, fd);
        if (!w)
            return -1;
        curl_multi_assign(h->multi, fd, w);
    }
    if (what & CURL_POLL_IN)
        events |= UV_READABLE;
    if (what & CURL_POLL_OUT)
        events |= UV_WRITABLE;
    return uv_poll_start(&w->poll, events, polled) < 0 ? -1 : 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct http_request *q = arg;

    if (n > HTTP_BODY_MAX - q->answer.len || buf_add(&q->answer, data, n) < 0)
        return 0; /* ends the transfer with CURLE_WRITE_ERROR */
    return n;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    static const char name[] = "retry-after:";
    struct http_request *q = arg;
    char value[16];
    size_t from = sizeof name - 1, len;
    uint64_t seconds;

    if (n <= from || strncasecmp(data, name, from))
        return n;
    while (from < n && (data[from] == ' ' || data[from] == '\t'))
        from++;
    len = n - from;
    while (len && strchr(" \t\r\n", data[from + len - 1]))
        len--;
    if (len && len < sizeof value) {
        memcpy(value, data + from, len);
        value[len] = '\0';
        /* A date is also allowed by HTTP; it counts as not said. */
        if (!parse_u64(value, UINT32_MAX, &seconds))
            q->retry_after = (unsigned)seconds;
    }
    return n;
}

static bool set_options(struct http_request *q, const struct http_spec *spec)
{
    CURL *e = q->easy;
    CURLcode bad = 0;

    bad |= curl_easy_setopt(e, CURLOPT_URL, spec->url);
#if LIBCURL_VERSION_NUM >= 0x075500
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
    bad |= curl_easy_setopt(e, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    bad |= curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    bad |= curl_easy_setopt(e, CURLOPT_PROXY, "");
    bad |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)spec->timeout_ms);
    bad |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, q->error);
    bad |= curl_easy_setopt(e, CURLOPT_PRIVATE, q);
    bad |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(e, CURLOPT_WRITEDATA, q);
    bad |= curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(e, CURLOPT_HEADERDATA, q);
    bad |= curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);
    if (spec->ca_file)
        bad |= curl_easy_setopt(e, CURLOPT_CAINFO, spec->ca_file);
    if (q->body) {
        q->headers = curl_slist_append(NULL, "Content-Type: application/json");
        bad |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, q->body);
        bad |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, q->headers);
        if (!q->headers)
            return false;
    }
    return !bad;
}

int http_start(struct http *h, const struct http_spec *spec, struct http_request **out)
{
    struct http_request *q = calloc(1, sizeof *q);

    if (!q)
        return -ENOMEM;
    q->http = h;
    q->done = spec->done;
    q->arg = spec->arg;
    q->body = spec->body ? strdup(spec->body) : NULL;
    q->easy = curl_easy_init();
    if (!q->easy || (spec->body && !q->body) || !set_options(q, spec) ||
        curl_multi_add_handle(h->multi, q->easy)) {
        http_request_free(q);
        return -ENOMEM;
    }
    *out = q;
    return 0;
}

int http_new(uv_loop_t *loop, struct timers *timers, struct http **out)
{
    struct http *h = calloc(1, sizeof *h);

    if (!h)
        return -ENOMEM;
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(h);
        return boxd_words(-EIO, "libcurl cannot start");
    }
    h->loop = loop;
    h->timers = timers;
    timer_init(&h->timer, timer_ran);
    h->multi = curl_multi_init();
    if (!h->multi || curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket) ||
        curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h) ||
        curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timer) ||
        curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h)) {
        http_free(h);
        return -ENOMEM;
    }
    *out = h;
    return 0;
}

void http_free(struct http *h)
{
    if (h->multi)
        curl_multi_cleanup(h->multi);
    timer_clear(&h->timer);
    curl_global_cleanup();
    free(h);
}
