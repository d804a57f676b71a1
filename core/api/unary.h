/* api/unary.h: calls with one request and one answer, driven by a row of struct api_method. */
#pragma once

#include "base/base.h"
#include "api/stream.h"

/* A callback of the embedder, cast; the function that fills it in casts it back. */
typedef void api_done(void);
/* Turns the answer (NULL when r < 0) into the arguments of `done`. */
typedef void api_answer(api_done *done, void *arg, int r, const ProtobufCMessage *m);

/* `subject` is the machine or path for words, NULL: none. NULL only when memory ran out. */
struct boxd_call *unary_start(struct boxd_client *c, const struct api_method *method,
                              const char *subject, const ProtobufCMessage *request,
                              api_answer *answer, api_done *done, void *arg);
/* An api_answer for `done` of type boxd_done. */
void answer_nothing(api_done *done, void *arg, int r, const ProtobufCMessage *m);
