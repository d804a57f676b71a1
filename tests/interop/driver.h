/* driver.h: what the programs of this directory share: numbers that both ends of a stream can make,
 * and a clean way out. */
#pragma once

#include "base/base.h"
#include <openssl/evp.h>

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static inline void fill_random(uint64_t *state, uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(next_random(state) >> 32);
}

struct digest {
    EVP_MD_CTX *ctx;
};

static inline void digest_start(struct digest *d)
{
    d->ctx = EVP_MD_CTX_new();
    if (!d->ctx || EVP_DigestInit_ex(d->ctx, EVP_sha256(), NULL) != 1)
        abort();
}

static inline void digest_add(struct digest *d, const void *data, size_t n)
{
    if (EVP_DigestUpdate(d->ctx, data, n) != 1)
        abort();
}

static inline void digest_end(struct digest *d, char hex[65])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (EVP_DigestFinal_ex(d->ctx, bytes, &n) != 1 || n != 32)
        abort();
    for (unsigned i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    EVP_MD_CTX_free(d->ctx);
    d->ctx = NULL;
}
