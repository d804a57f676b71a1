/* rpc/status.h: gRPC's statuses and time-outs as text, both ways. Input is untrusted. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "rpc/rpc.h"

/* Longer grpc-messages are cut, at the end of a character. */
#define STATUS_MESSAGE_MAX 4096

/* A status number as it stands in grpc-status; unknown or malformed ones are RPC_UNKNOWN. */
enum rpc_code status_parse(const char *text);
/* What an HTTP status means when no grpc-status came. */
enum rpc_code status_of_http(unsigned http_status);
/* What a stream's HTTP/2 error code means when no grpc-status came. */
enum rpc_code status_of_reset(uint32_t error_code);
/* Whether a content-type is application/grpc, +proto and the like included. */
bool status_content_is_grpc(const char *content_type);
/* Percent-encodes for grpc-message, cut to what peers accept. */
int status_encode_message(struct buf *out, const char *message);
/* Decodes grpc-message into valid UTF-8 without control characters; what is not becomes '?'. */
int status_decode_message(struct buf *out, const char *text, size_t n);
/* grpc-timeout. */
void timeout_format(char out[16], uint64_t ms);
/* 0 and milliseconds (rounded up, at most UINT32_MAX), or -EINVAL. */
int timeout_parse(const char *text, uint64_t *ms);
