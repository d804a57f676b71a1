/* base/base.h: the first include of every source file of the project.
 * It brings the C library's headers that everybody needs, ownership helpers and the banned list. */
#pragma once

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

#include "base/banned.h"
