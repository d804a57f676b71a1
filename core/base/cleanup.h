/* base/cleanup.h: ownership by type, clean-up by attribute.
 *
 * A variable marked _cleanup_x_ owns what it holds and releases it when it goes out of scope;
 * steal_x() hands the thing over and leaves the empty value behind. Types of the project add their
 * own with DEFINE_CLEANUP(). */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(cleanup_freep)
#define _cleanup_close_ _cleanup_(cleanup_closep)
#define _cleanup_fclose_ _cleanup_(cleanup_fclosep)
#define _cleanup_closedir_ _cleanup_(cleanup_closedirp)
#define _printf_(fmt, first) __attribute__((format(printf, fmt, first)))
#define _unused_ __attribute__((unused))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Defines cleanup_<fn>p for `type *`, calling fn(pointer) unless it is NULL. */
#define DEFINE_CLEANUP(type, fn)                 \
    static inline void cleanup_##fn##p(type **p) \
    {                                            \
        if (*p)                                  \
            fn(*p);                              \
    }                                            \
    static inline void cleanup_##fn##p(type **p)

static inline void cleanup_freep(void *p)
{
    free(*(void **)p);
}

/* Closes without changing errno, so that a failing function can clean up and then look at it. */
static inline int close_keep_errno(int fd)
{
    int saved = errno;

    if (fd >= 0)
        close(fd);
    errno = saved;
    return -1;
}

static inline void cleanup_closep(int *fd)
{
    close_keep_errno(*fd);
}

static inline void cleanup_fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
}

static inline void cleanup_closedirp(DIR **d)
{
    if (*d)
        closedir(*d);
}

static inline int steal_fd(int *fd)
{
    int r = *fd;

    *fd = -1;
    return r;
}

/* Hands a pointer over and leaves NULL. */
#define steal_ptr(p)                           \
    __extension__({                            \
        __typeof__(p) *stolen_from_ = &(p);    \
        __typeof__(p) stolen_ = *stolen_from_; \
        *stolen_from_ = NULL;                  \
        stolen_;                               \
    })
