#include "base/base.h"

#include <nghttp2/nghttp2.h>

#include "base/str.h"
#include "rpc/status.h"

/* Peers refuse long headers: grpcio takes 12,000 bytes and not 16,000. */
#define ENCODED_MAX 6000

static const char *const names[] = {
    [RPC_OK] = "OK",
    [RPC_CANCELLED] = "CANCELLED",
    [RPC_UNKNOWN] = "UNKNOWN",
    [RPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [RPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [RPC_NOT_FOUND] = "NOT_FOUND",
    [RPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [RPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [RPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [RPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [RPC_ABORTED] = "ABORTED",
    [RPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [RPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [RPC_INTERNAL] = "INTERNAL",
    [RPC_UNAVAILABLE] = "UNAVAILABLE",
    [RPC_DATA_LOSS] = "DATA_LOSS",
    [RPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

static const struct {
    unsigned http;
    enum rpc_code code;
} http_codes[] = {
    { 400, RPC_INTERNAL },      { 401, RPC_UNAUTHENTICATED }, { 403, RPC_PERMISSION_DENIED },
    { 404, RPC_UNIMPLEMENTED }, { 429, RPC_UNAVAILABLE },     { 502, RPC_UNAVAILABLE },
    { 503, RPC_UNAVAILABLE },   { 504, RPC_UNAVAILABLE },
};

static const struct {
    uint32_t error;
    enum rpc_code code;
} reset_codes[] = {
    { NGHTTP2_REFUSED_STREAM, RPC_UNAVAILABLE },
    { NGHTTP2_CANCEL, RPC_CANCELLED },
    { NGHTTP2_ENHANCE_YOUR_CALM, RPC_RESOURCE_EXHAUSTED },
    { NGHTTP2_INADEQUATE_SECURITY, RPC_PERMISSION_DENIED },
};

const char *rpc_code_name(enum rpc_code code)
{
    return (unsigned)code < ARRAY_LEN(names) ? names[code] : "UNKNOWN";
}

enum rpc_code status_parse(const char *text)
{
    uint64_t n;

    return parse_u64(text, RPC_CODE_LAST, &n) < 0 ? RPC_UNKNOWN : (enum rpc_code)n;
}

enum rpc_code status_of_http(unsigned http_status)
{
    for (size_t i = 0; i < ARRAY_LEN(http_codes); i++)
        if (http_codes[i].http == http_status)
            return http_codes[i].code;
    return RPC_UNKNOWN;
}

enum rpc_code status_of_reset(uint32_t error_code)
{
    for (size_t i = 0; i < ARRAY_LEN(reset_codes); i++)
        if (reset_codes[i].error == error_code)
            return reset_codes[i].code;
    return RPC_INTERNAL;
}

bool status_content_is_grpc(const char *content_type)
{
    static const char grpc[] = "application/grpc";
    char next;

    if (!starts_with(content_type, grpc))
        return false;
    next = content_type[sizeof grpc - 1];
    return !next || next == '+' || next == ';';
}

/* The length of a text cut to at most `max` bytes, at the end of a character. */
static size_t cut(const char *s, size_t n, size_t max)
{
    if (n <= max)
        return n;
    while (max && ((unsigned char)s[max] & 0xc0) == 0x80)
        max--;
    return max;
}

int status_encode_message(struct buf *out, const char *message)
{
    size_t n = cut(message, strlen(message), STATUS_MESSAGE_MAX), begin = out->len;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)message[i];
        bool plain = c >= 0x20 && c <= 0x7e && c != '%';
        int r;

        if (out->len - begin >= ENCODED_MAX && (c & 0xc0) != 0x80)
            break;
        r = plain ? buf_addch(out, (char)c) : buf_addf(out, "%%%02X", c);
        if (r < 0)
            return r;
    }
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

/* The length of the well-formed character at s, 0 when it is none. */
static size_t character(const char *s, size_t n)
{
    for (size_t k = 1; k <= 4 && k <= n; k++)
        if (utf8_valid(s, k))
            return k;
    return 0;
}

int status_decode_message(struct buf *out, const char *text, size_t n)
{
    _cleanup_buf_ struct buf raw = { 0 };
    size_t step, limit;
    int r;

    for (size_t i = 0; i < n && raw.len <= STATUS_MESSAGE_MAX; i++) {
        char c = text[i];

        if (c == '%' && i + 2 < n && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
            c = (char)(hex_digit(text[i + 1]) << 4 | hex_digit(text[i + 2]));
            i += 2;
        }
        r = buf_addch(&raw, c);
        if (r < 0)
            return r;
    }
    limit = cut(buf_str(&raw), raw.len, STATUS_MESSAGE_MAX);
    for (size_t i = 0; i < limit; i += step) {
        const char *s = raw.data + i;
        unsigned char c = (unsigned char)*s;
        size_t k = character(s, limit - i);
        bool good = k && c != 0x7f && (c >= 0x20 || c == '\n' || c == '\t');

        step = k ? k : 1;
        r = good ? buf_add(out, s, k) : buf_addch(out, '?');
        if (r < 0)
            return r;
    }
    return 0;
}

void timeout_format(char out[16], uint64_t ms)
{
    /* At most eight digits. */
    if (ms <= 99999999)
        snprintf(out, 16, "%" PRIu64 "m", ms);
    else
        snprintf(out, 16, "%" PRIu64 "S", ms / 1000 > 99999999 ? 99999999 : ms / 1000);
}

static const struct {
    char unit;
    uint64_t multiply, divide; /* to milliseconds */
} units[] = {
    { 'H', 3600000, 1 }, { 'M', 60000, 1 }, { 'S', 1000, 1 },
    { 'm', 1, 1 },       { 'u', 1, 1000 },  { 'n', 1, 1000000 },
};

int timeout_parse(const char *text, uint64_t *ms)
{
    size_t n = strlen(text);
    char digits[9];
    uint64_t value;

    if (n < 2 || n > 9)
        return -EINVAL;
    memcpy(digits, text, n - 1);
    digits[n - 1] = '\0';
    if (parse_u64(digits, 99999999, &value) < 0)
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (units[i].unit != text[n - 1])
            continue;
        *ms = (value * units[i].multiply + units[i].divide - 1) / units[i].divide;
        if (*ms > UINT32_MAX)
            *ms = UINT32_MAX;
        return 0;
    }
    return -EINVAL;
}
