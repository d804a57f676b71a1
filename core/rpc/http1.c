#include "base/base.h"

#include <strings.h>

#include "base/str.h"
#include "rpc/http1.h"

static const struct {
    int status;
    const char *text;
} reasons[] = {
    { 200, "OK" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 408, "Request Timeout" },
    { 413, "Content Too Large" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 503, "Service Unavailable" },
    { 505, "HTTP Version Not Supported" },
};

static const char *reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}

void http1_clear(struct http1 *h)
{
    buf_clear(&h->in);
    *h = (struct http1){ 0 };
}

/* "METHOD PATH HTTP/1.x", NUL-ended, is cut into its words. */
static int request_line(char *line)
{
    char *path = strchr(line, ' '), *version;

    if (!path)
        return -400;
    *path++ = '\0';
    version = strchr(path, ' ');
    if (!version || path[0] != '/')
        return -400;
    *version++ = '\0';
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return -505;
    if (strcmp(line, "GET") != 0 && strcmp(line, "POST") != 0)
        return -405;
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f)
            return -400;
    return 0;
}

static int header_line(struct http1 *h, char *line, bool *have_length)
{
    size_t name_len = strcspn(line, ": \t");
    char *value = line + name_len;
    uint64_t length;

    if (!name_len || *value != ':')
        return -400;
    *value++ = '\0';
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n && strchr(" \t", value[n - 1]); n--)
        value[n - 1] = '\0';
    if (!strcasecmp(line, "transfer-encoding"))
        return -501;
    if (strcasecmp(line, "content-length") != 0)
        return 0;
    if (*have_length || parse_u64(value, UINT64_MAX, &length) < 0)
        return -400;
    if (length > HTTP1_BODY_MAX)
        return -413;
    *have_length = true;
    h->body_len = (size_t)length;
    return 0;
}

/* The head ends at `end` (its blank line included). */
static int parse_head(struct http1 *h, size_t end)
{
    bool have_length = false;
    char *line = h->in.data, *next;
    int r = -400;

    if (memchr(line, '\0', end))
        return -400;
    for (bool first = true; (next = strstr(line, "\r\n")) != line; first = false, line = next + 2) {
        *next = '\0';
        r = first ? request_line(line) : header_line(h, line, &have_length);
        if (r < 0)
            return r;
    }
    h->body_off = end;
    return r;
}

int http1_feed(struct http1 *h, const uint8_t *data, size_t n)
{
    char *end;
    int r;

    if (h->in.len + n > HTTP1_HEAD_MAX + HTTP1_BODY_MAX)
        return -413;
    if (buf_add(&h->in, data, n) < 0)
        return -503;
    if (!h->body_off) {
        end = memmem(h->in.data, h->in.len, "\r\n\r\n", 4);
        if (!end && h->in.len > HTTP1_HEAD_MAX)
            return -431;
        if (!end)
            return 0;
        if ((size_t)(end - h->in.data) > HTTP1_HEAD_MAX)
            return -431;
        r = parse_head(h, (size_t)(end - h->in.data) + 4);
        if (r < 0)
            return r;
    }
    if (h->in.len - h->body_off < h->body_len)
        return 0;
    h->method = h->in.data;
    h->path = h->in.data + strlen(h->in.data) + 1;
    return 1;
}

const void *http1_body(const struct http1 *h)
{
    return h->in.data + h->body_off;
}

int http1_response(struct buf *out, int status, const char *body, unsigned retry_after)
{
    int r = buf_addf(out,
                     "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n",
                     status, reason(status), strlen(body));

    if (r == 0 && retry_after)
        r = buf_addf(out, "Retry-After: %u\r\n", retry_after);
    if (r == 0)
        r = buf_addf(out, "\r\n%s", body);
    return r;
}
