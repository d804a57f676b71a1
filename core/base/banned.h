/* base/banned.h: functions that have no safe use here become compile errors.
 * Included last by base.h; use snprintf, memcpy with a checked length, parse_u64(), gmtime_r. */
#pragma once

#define BANNED(fn) sorry_##fn##_is_a_banned_function

#undef strcpy
#define strcpy(x, y) BANNED(strcpy)
#undef strncpy
#define strncpy(x, y, n) BANNED(strncpy)
#undef strcat
#define strcat(x, y) BANNED(strcat)
#undef strncat
#define strncat(x, y, n) BANNED(strncat)
#undef sprintf
#define sprintf(...) BANNED(sprintf)
#undef vsprintf
#define vsprintf(...) BANNED(vsprintf)
#undef strtok
#define strtok(x, y) BANNED(strtok)
#undef atoi
#define atoi(x) BANNED(atoi)
#undef atol
#define atol(x) BANNED(atol)
#undef localtime
#define localtime(x) BANNED(localtime)
#undef gmtime
#define gmtime(x) BANNED(gmtime)
#undef system
#define system(x) BANNED(system)
#undef popen
#define popen(x, y) BANNED(popen)
#undef alloca
#define alloca(x) BANNED(alloca)
