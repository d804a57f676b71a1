#include "base/base.h"

#include <arpa/inet.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <uv.h>

#include <boxd/error.h>

#include "rpc/tls.h"

static const unsigned char alpn_h2[] = { 2, 'h', '2' };

/* A socket BIO that never raises SIGPIPE: a library may not rely on the program's signals. */
static int bio_write(BIO *bio, const char *data, int n)
{
    ssize_t k;

    BIO_clear_retry_flags(bio);
    do
        k = send((int)(intptr_t)BIO_get_data(bio), data, (size_t)n, MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    if (k < 0 && errno == EAGAIN)
        BIO_set_retry_write(bio);
    return (int)k;
}

static int bio_read(BIO *bio, char *data, int n)
{
    ssize_t k;

    BIO_clear_retry_flags(bio);
    do
        k = recv((int)(intptr_t)BIO_get_data(bio), data, (size_t)n, 0);
    while (k < 0 && errno == EINTR);
    if (k < 0 && errno == EAGAIN)
        BIO_set_retry_read(bio);
    return (int)k;
}

static long bio_ctrl(BIO *bio, int cmd, long number, void *arg)
{
    return cmd == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "boxd socket");

    if (!m)
        return;
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_ctrl(m, bio_ctrl);
    bio_method = m;
}

int tls_attach(SSL *ssl, int fd)
{
    static uv_once_t once = UV_ONCE_INIT;
    BIO *bio;

    uv_once(&once, make_bio_method);
    bio = bio_method ? BIO_new(bio_method) : NULL;
    if (!bio)
        return -ENOMEM;
    BIO_set_data(bio, (void *)(intptr_t)fd);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    return 0;
}

/* The first of OpenSSL's reasons, for people. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());

    return text ? text : "unknown reason";
}

static SSL_CTX *new_context(const SSL_METHOD *method)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    if (!ctx)
        return NULL;
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_default_read_buffer_len(ctx, (size_t)64 * 1024);
    return ctx;
}

int tls_client_context(const char *ca_file, SSL_CTX **out)
{
    _cleanup_(cleanup_SSL_CTX_freep) SSL_CTX *ctx = new_context(TLS_client_method());
    const char *file = ca_file ? ca_file : getenv("SSL_CERT_FILE");

    if (!ctx)
        return -ENOMEM;
    ERR_clear_error();
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_alpn_protos(ctx, alpn_h2, sizeof alpn_h2);
    if (file && *file) {
        if (SSL_CTX_load_verify_locations(ctx, file, NULL) != 1)
            return boxd_words(-EINVAL, "cannot read certificates from '%s': %s", file, reason());
    } else if (SSL_CTX_set_default_verify_paths(ctx) != 1) {
        return boxd_words(-EINVAL, "cannot read the system's certificates: %s", reason());
    }
    *out = steal_ptr(ctx);
    return 0;
}

/* A client that speaks no ALPN (HTTP/1.1) is told apart by its first bytes later. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char ours[] = { 2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1' };

    if (SSL_select_next_proto((unsigned char **)(uintptr_t)out, out_len, ours, sizeof ours, in,
                              in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    return SSL_TLSEXT_ERR_OK;
}

int tls_server_context(const char *cert_file, const char *key_file, SSL_CTX **out)
{
    _cleanup_(cleanup_SSL_CTX_freep) SSL_CTX *ctx = new_context(TLS_server_method());

    if (!ctx)
        return -ENOMEM;
    ERR_clear_error();
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1)
        return boxd_words(-EINVAL, "cannot use certificate '%s': %s", cert_file, reason());
    if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return boxd_words(-EINVAL, "cannot use private key '%s': %s", key_file, reason());
    *out = steal_ptr(ctx);
    return 0;
}

static bool is_ip_address(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

int tls_client_new(SSL_CTX *ctx, const char *host, SSL **out)
{
    _cleanup_(cleanup_SSL_freep) SSL *ssl = SSL_new(ctx);
    int good;

    if (!ssl)
        return -ENOMEM;
    if (is_ip_address(host)) {
        good = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    } else {
        SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        good = SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
    }
    if (!good)
        return boxd_words(-EINVAL, "cannot check certificates for '%s'", host);
    *out = steal_ptr(ssl);
    return 0;
}

/* Turns a failed call into -EAGAIN or an errno with words. */
static int failure(SSL *ssl, int r)
{
    int saved = errno;

    switch (SSL_get_error(ssl, r)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return boxd_words(-ECONNRESET, "closed by the peer");
    case SSL_ERROR_SYSCALL:
        if (saved)
            return boxd_words(-saved, "%m");
        return boxd_words(-ECONNRESET, "closed by the peer");
    default:
        return boxd_words(-EPROTO, "TLS: %s", reason());
    }
}

static int handshake_failure(SSL *ssl, int r)
{
    long verdict = SSL_get_verify_result(ssl);
    int e = failure(ssl, r);

    if (e == -EAGAIN)
        return e;
    if (verdict != X509_V_OK)
        return boxd_words(-EPROTO, "the certificate is not trusted: %s (see SSL_CERT_FILE)",
                          X509_verify_cert_error_string(verdict));
    if (e == -EPROTO)
        return e;
    return boxd_words(-EPROTO, "the TLS handshake was cut off");
}

int tls_handshake(SSL *ssl, bool accepting, int *want)
{
    const unsigned char *protocol;
    unsigned length;
    int r;

    ERR_clear_error();
    errno = 0;
    r = accepting ? SSL_accept(ssl) : SSL_connect(ssl);
    if (r != 1) {
        *want = SSL_want_write(ssl) ? UV_READABLE | UV_WRITABLE : UV_READABLE;
        return handshake_failure(ssl, r);
    }
    SSL_get0_alpn_selected(ssl, &protocol, &length);
    if (!accepting && !(length == 2 && !memcmp(protocol, "h2", 2)))
        return boxd_words(-EPROTO, "the server does not offer HTTP/2 (ALPN h2)");
    return 0;
}

ssize_t tls_read(SSL *ssl, void *data, size_t n)
{
    int r;

    ERR_clear_error();
    errno = 0;
    r = SSL_read(ssl, data, n > INT_MAX ? INT_MAX : (int)n);
    if (r > 0)
        return r;
    return SSL_get_error(ssl, r) == SSL_ERROR_ZERO_RETURN ? 0 : failure(ssl, r);
}

ssize_t tls_write(SSL *ssl, const void *data, size_t n)
{
    int r;

    ERR_clear_error();
    errno = 0;
    r = SSL_write(ssl, data, n > INT_MAX ? INT_MAX : (int)n);
    return r > 0 ? r : failure(ssl, r);
}

void tls_say_goodbye(SSL *ssl)
{
    ERR_clear_error();
    (void)SSL_shutdown(ssl); /* a courtesy: the connection ends either way */
    ERR_clear_error();
}
