/* script/script.h: what the parts of core/script share. */
#pragma once

#include "base/base.h"

/* The result of an exec: `r` of its callback, or by the exit code and stderr of the line. */
int script_result(int r, int code, const void *err, size_t n);
