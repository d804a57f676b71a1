/* local/auth.c: see auth.h. */
#include "base/base.h"

#include "base/buf.h"
#include "base/str.h"
#include "local/auth.h"
#include <boxd/error.h>
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#define TOKEN_SECONDS 3600
#define EXCHANGES_A_MINUTE 30
#define ADDRESSES 256
#define KEY_MIN 16
#define KEY_MAX 255
#define MAC_BYTES 32
#define NONCE_BYTES 16

struct window {
    char address[46];
    int64_t start;
    unsigned count;
};

struct auth {
    char key[KEY_MAX + 1];
    struct window windows[ADDRESSES];
};

DEFINE_CLEANUP(cJSON, cJSON_Delete);
#define _cleanup_json_ _cleanup_(cleanup_cJSON_Deletep)
DEFINE_CLEANUP(struct auth, auth_free);

/* ---- the key ------------------------------------------------------------------------------- */

static int make_key(const char *path)
{
    _cleanup_close_ int fd = -1;
    char key[5 + 64 + 1] = "bxd_";
    size_t n;
    int r = random_hex(key + 4, 32);

    if (r < 0)
        return boxd_words(r, "cannot make a key: %m");
    n = strlen(key);
    key[n++] = '\n';
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return 0;
    if (fd < 0 || write(fd, key, n) != (ssize_t)n || fsync(fd) < 0)
        return boxd_words(-errno, "cannot write key '%s': %m", path);
    return 0;
}

static int read_key(const char *path, char key[KEY_MAX + 1])
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return boxd_words(-errno, "cannot open key '%s': %m", path);
    if (!S_ISREG(st.st_mode) || st.st_mode & 077 || (st.st_uid != geteuid() && st.st_uid))
        return boxd_words(-EACCES, "key '%s' is not private: it must be a file of yours, mode 0600",
                          path);
    n = read(fd, key, KEY_MAX);
    if (n < 0)
        return boxd_words(-errno, "cannot read key '%s': %m", path);
    while (n && (key[n - 1] == '\n' || key[n - 1] == '\r' || key[n - 1] == ' '))
        n--;
    memset(key + n, 0, KEY_MAX + 1 - (size_t)n);
    if (n < KEY_MIN || strlen(key) != (size_t)n)
        return boxd_words(-EINVAL,
                          "key '%s' is not valid: it must be a line of %d to %d characters", path,
                          KEY_MIN, KEY_MAX - 1);
    return 0;
}

int auth_open(const char *path, bool create, struct auth **out)
{
    _cleanup_(cleanup_auth_freep) struct auth *a = calloc(1, sizeof(*a));
    int r = create && access(path, F_OK) < 0 ? make_key(path) : 0;

    if (!a)
        return -ENOMEM;
    if (!r)
        r = read_key(path, a->key);
    if (r < 0)
        return r;
    *out = steal_ptr(a);
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    OPENSSL_cleanse(a, sizeof(*a));
    free(a);
}

/* ---- tokens: "bxl_" EXPIRY NONCE MAC, in hexadecimal ----------------------------------------- */

struct token {
    unsigned char expiry[8], nonce[NONCE_BYTES], mac[MAC_BYTES];
};
#define TOKEN_PREFIX "bxl_"

static bool token_mac(const struct auth *a, const struct token *t, unsigned char mac[MAC_BYTES])
{
    unsigned n = 0;

    return HMAC(EVP_sha256(), a->key, (int)strlen(a->key), (const unsigned char *)t,
                offsetof(struct token, mac), mac, &n) &&
           n == MAC_BYTES;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool token_read(const char *text, struct token *t)
{
    unsigned char *to = (unsigned char *)t;

    if (!starts_with(text, TOKEN_PREFIX))
        return false;
    text += strlen(TOKEN_PREFIX);
    if (strlen(text) != 2 * sizeof(*t))
        return false;
    for (size_t i = 0; i < sizeof(*t); i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        to[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

bool auth_check(const struct auth *a, const char *authorization, int64_t now_s)
{
    unsigned char mac[MAC_BYTES];
    uint64_t expiry = 0;
    struct token t;

    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0 ||
        !token_read(authorization + 7, &t) || !token_mac(a, &t, mac) ||
        CRYPTO_memcmp(mac, t.mac, sizeof(mac)))
        return false;
    for (size_t i = 0; i < sizeof(t.expiry); i++)
        expiry = expiry << 8 | t.expiry[i];
    return now_s >= 0 && (uint64_t)now_s < expiry;
}

static char *token_make(const struct auth *a, int64_t expiry)
{
    struct token t;
    const unsigned char *from = (const unsigned char *)&t;
    _cleanup_buf_ struct buf out = { 0 };
    int r;

    for (size_t i = 0; i < sizeof(t.expiry); i++)
        t.expiry[i] = (unsigned char)((uint64_t)expiry >> (56 - 8 * i));
    if (random_bytes(t.nonce, sizeof(t.nonce)) < 0 || !token_mac(a, &t, t.mac))
        return NULL;
    r = buf_addstr(&out, TOKEN_PREFIX);
    for (size_t i = 0; !r && i < sizeof(t); i++)
        r = buf_addf(&out, "%02x", from[i]);
    return r < 0 ? NULL : buf_steal(&out);
}

/* ---- the exchange -------------------------------------------------------------------------- */

/* Seconds until this address may ask again; 0: now. An unknown one takes the oldest place. */
static unsigned rate_limit(struct auth *a, const char *address, int64_t now)
{
    struct window *w = &a->windows[0];

    for (size_t i = 0; i < ADDRESSES; i++) {
        if (!strcmp(a->windows[i].address, address)) {
            w = &a->windows[i];
            break;
        }
        if (a->windows[i].start < w->start)
            w = &a->windows[i];
    }
    if (strcmp(w->address, address) != 0 || now - w->start >= 60 || now < w->start) {
        snprintf(w->address, sizeof(w->address), "%s", address);
        w->start = now;
        w->count = 0;
    }
    if (w->count >= EXCHANGES_A_MINUTE)
        return (unsigned)(w->start + 60 - now);
    w->count++;
    return 0;
}

static bool key_matches(const struct auth *a, const void *body, size_t n)
{
    _cleanup_json_ cJSON *o = cJSON_ParseWithLength(body, n);
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(o, "api_key");
    char given[KEY_MAX + 1] = "";
    bool good;

    if (!cJSON_IsString(key) || strlen(key->valuestring) > KEY_MAX)
        return false;
    memcpy(given, key->valuestring, strlen(key->valuestring));
    good = !CRYPTO_memcmp(given, a->key, sizeof(given));
    OPENSSL_cleanse(given, sizeof(given));
    return good;
}

static void refuse(struct auth_answer *out, int status, unsigned retry_after, const char *words)
{
    out->status = status;
    out->retry_after = retry_after;
    out->body = strf("{\"error\":\"%s\"}", words);
}

void auth_exchange(struct auth *a, const char *address, const void *body, size_t n, int64_t now_s,
                   struct auth_answer *out)
{
    unsigned wait = rate_limit(a, address, now_s);
    _cleanup_free_ char *token = NULL;
    int64_t expiry = now_s + TOKEN_SECONDS;

    if (wait) {
        refuse(out, 429, wait, "too many token requests from this address");
        return;
    }
    if (!key_matches(a, body, n)) {
        refuse(out, 401, 0, "the API key is not valid");
        return;
    }
    token = token_make(a, expiry);
    if (!token) {
        refuse(out, 500, 0, "cannot make a token");
        return;
    }
    out->status = 200;
    out->retry_after = 0;
    out->body = strf("{\"token\":\"%s\",\"expires_at\":%" PRId64 "}", token, expiry);
}
