/* api/calls.h: shorthands for the files that are lists of calls. */
#pragma once

#include "base/base.h"
#include "api/boxd.pb-c.h"
#include "api/unary.h"

/* METHOD(CreateVm, create_vm, "create machine", true): a row for a unary call. */
#define METHOD(rpc, stem, what, changes)                                      \
    {                                                                         \
#rpc, what, &boxd__api__v1__##stem##_request__descriptor,             \
            &boxd__api__v1__##stem##_response__descriptor, API_UNARY, changes \
    }

/* protobuf-c's requests take char * and never write to it. */
static inline char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

struct boxd_machine_info;
struct boxd_label;

/* What a GetVmResponse says. The strings stay the message's; `labels` has room for its n_labels. */
void info_fill(struct boxd_machine_info *out, struct boxd_label *labels, char *source,
               size_t source_size, const Boxd__Api__V1__GetVmResponse *m);
