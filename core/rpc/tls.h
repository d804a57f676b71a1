/* rpc/tls.h: OpenSSL behind six functions. Both ends: TLS 1.2 or newer, ALPN h2; the client checks
 * the chain and the host name. Results are negative errno with words; -EAGAIN has none. */
#pragma once

#include "base/base.h"
#include <openssl/ssl.h>

/* The client's settings. `ca_file` NULL: SSL_CERT_FILE, else the system's certificates. */
int tls_client_context(const char *ca_file, SSL_CTX **out);
int tls_server_context(const char *cert_file, const char *key_file, SSL_CTX **out);
/* A client's SSL that accepts certificates for `host` (a name or an address) only. */
int tls_client_new(SSL_CTX *ctx, const char *host, SSL **out);
/* Reads and writes go to the socket, without SIGPIPE. */
int tls_attach(SSL *ssl, int fd);
/* 0 when done; -EAGAIN and the poll events to wait for in *want. */
int tls_handshake(SSL *ssl, bool accepting, int *want);
ssize_t tls_read(SSL *ssl, void *data, size_t n);
ssize_t tls_write(SSL *ssl, const void *data, size_t n);
/* close_notify, if the socket takes it. */
void tls_say_goodbye(SSL *ssl);
DEFINE_CLEANUP(SSL_CTX, SSL_CTX_free);
DEFINE_CLEANUP(SSL, SSL_free);
