/* local/cron.h: when a cron line fires next. Five fields (minute, hour, day, month, weekday) with
 * `*`, lists, ranges and steps, numbers only, in UTC; day and weekday are joined by "or" when both
 * are given, as cron does. Untrusted text; no state. */
#pragma once

#include "base/base.h"

/* The first time after `from`, both in seconds since 1970. -EINVAL with words for a malformed line,
 * and for one that never fires within five years. */
int cron_next(const char *line, int64_t from, int64_t *out);
