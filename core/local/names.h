/* local/names.h: names for machines whose creator gave none. */
#pragma once

#include "base/base.h"
#include "local/service.h"
#include "local/validate.h"

/* A free name; 0 or a negative errno with words. */
int suggest_name(struct service *s, char out[NAME_MAX_LEN + 1]);
