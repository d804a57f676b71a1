/* helper/sys.h: system calls that this C library may not have yet, and their constants. */
#pragma once

#include "base/base.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

#define SYS_OPEN_TREE_CLONE 1
#define SYS_MOVE_FROM_EMPTY 4
#define SYS_MOVE_TO_EMPTY 0x40
#define SYS_ATTR_IDMAP 0x00100000

struct sys_mount_attr {
    uint64_t set, clear, propagation, userns_fd;
};

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static inline int sys_move_mount(int from, const char *from_path, int to, const char *to_path,
                                 unsigned flags)
{
    return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int sys_mount_setattr(int fd, const char *path, unsigned flags,
                                    struct sys_mount_attr *a)
{
    return (int)syscall(SYS_mount_setattr, fd, path, flags, a, sizeof *a);
}

static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

static inline pid_t sys_clone3(struct clone_args *a)
{
    return (pid_t)syscall(SYS_clone3, a, sizeof *a);
}

static inline int sys_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static inline int sys_pidfd_signal(int pidfd, int sig)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}
