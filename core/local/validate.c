/* local/validate.c: see validate.h. */
#include "base/base.h"

#include "base/str.h"
#include "local/validate.h"
#include <boxd/error.h>

#define GIB ((uint64_t)1 << 30)

static const struct {
    uint32_t vcpu;
    uint64_t memory;
} sizes[] = { { 1, 4 * GIB }, { 2, 8 * GIB }, { 4, 16 * GIB }, { 8, 32 * GIB } };

static bool lower_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Text of `set` and lower letters and digits, which also begin and end it. */
static bool plain_word(const char *s, size_t n, size_t max, const char *set)
{
    if (!n || n > max || !lower_or_digit(s[0]) || !lower_or_digit(s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!lower_or_digit(s[i]) && !strchr(set, s[i]))
            return false;
    return true;
}

int validate_name(const char *name)
{
    if (plain_word(name, strlen(name), NAME_MAX_LEN, "-"))
        return 0;
    return boxd_words(-EINVAL,
                      "name '%.80s' is not valid: use 1 to 63 of a-z 0-9 -, "
                      "starting and ending with a letter or digit",
                      name);
}

static int validate_key(const char *key, size_t n)
{
    if (plain_word(key, n, LABEL_KEY_MAX, "._/-"))
        return 0;
    return boxd_words(-EINVAL,
                      "label key '%.*s' is not valid: use 1 to 63 of a-z 0-9 . _ / -, "
                      "starting and ending with a letter or digit",
                      (int)(n > 80 ? 80 : n), key);
}

/* Counts characters; -1 when one is a control character (C0, DEL, C1). */
static int count_characters(const char *s)
{
    int n = 0;

    for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
        if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
            return -1;
        n += (*p & 0xc0) != 0x80;
    }
    return n;
}

static int validate_value(const char *key, size_t key_len, const char *value)
{
    int n = count_characters(value);

    if (n < 0)
        return boxd_words(-EINVAL, "value of label '%.*s' holds a control character", (int)key_len,
                          key);
    if (n > LABEL_VALUE_MAX)
        return boxd_words(-EINVAL, "value of label '%.*s' is too long: at most %d characters",
                          (int)key_len, key, LABEL_VALUE_MAX);
    return 0;
}

int validate_label(const char *key, const char *value)
{
    size_t n = strlen(key);
    int r = validate_key(key, n);

    if (r < 0)
        return r;
    if (starts_with(key, "boxd/"))
        return boxd_words(-EINVAL, "label key '%s' is not valid: 'boxd/' is reserved", key);
    return validate_value(key, n, value);
}

int validate_selector(const char *selector)
{
    const char *eq = strchr(selector, '=');
    size_t n = eq ? (size_t)(eq - selector) : strlen(selector);
    int r = validate_key(selector, n);

    if (r < 0 || !eq)
        return r;
    return validate_value(selector, n, eq + 1);
}

bool selector_matches(const char *selector, const char *key, const char *value)
{
    const char *eq = strchr(selector, '=');
    size_t n = eq ? (size_t)(eq - selector) : strlen(selector);

    return strlen(key) == n && !memcmp(key, selector, n) && (!eq || !strcmp(eq + 1, value));
}

int validate_size(uint32_t vcpu, uint64_t memory, uint32_t *vcpu_out, uint64_t *memory_out)
{
    if (!vcpu && !memory)
        vcpu = 2;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        if ((vcpu && vcpu != sizes[i].vcpu) || (memory && memory != sizes[i].memory))
            continue;
        *vcpu_out = sizes[i].vcpu;
        *memory_out = sizes[i].memory;
        return 0;
    }
    return boxd_words(-EINVAL,
                      "size of %" PRIu32 " vcpu and %" PRIu64
                      " bytes does not exist: use 1/4G, 2/8G, 4/16G or 8/32G",
                      vcpu, memory);
}

int validate_disk(uint64_t bytes)
{
    if (!bytes || bytes == 100 * GIB)
        return 0;
    return boxd_words(-EINVAL, "disk of %" PRIu64 " bytes does not exist: use 0 or 100G", bytes);
}

int validate_restart_policy(const char *policy)
{
    if (!*policy || !strcmp(policy, "always") || !strcmp(policy, "never"))
        return 0;
    return boxd_words(-EINVAL, "restart policy '%.80s' is not valid: use always or never", policy);
}

int validate_env_key(const char *key)
{
    for (const char *p = key; *p; p++)
        if (!(lower_or_digit(*p) || (*p >= 'A' && *p <= 'Z') || *p == '_') ||
            (p == key && *p >= '0' && *p <= '9'))
            key = "";
    if (*key)
        return 0;
    return boxd_words(-EINVAL, "environment variable has no valid name: use letters, digits and _");
}

int validate_path(const char *path)
{
    if (!*path)
        return boxd_words(-EINVAL, "path is empty");
    if (strlen(path) > 4095)
        return boxd_words(-EINVAL, "path '%.40s...' is too long: at most 4095 bytes", path);
    return 0;
}
