/* What the server and its helper say to each other (local/proto.h). */
#include "base/base.h"
#include "local/proto.h"
#include "tap.h"

#include <sys/mman.h>
#include <sys/socket.h>

static int memfd_with(const char *data, size_t n)
{
    int fd = memfd_create("t", MFD_CLOEXEC);

    ok(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    return fd;
}

int main(void)
{
    _cleanup_buf_ struct buf b = { 0 };
    _cleanup_close_ int fd = -1, broken = -1;
    struct spec s, bad;
    int pair[2], fds[MSG_FDS];
    struct msg m;
    size_t n;

    t("a specification comes back as it was written, with equal keys in order");
    ok(spec_add(&b, "argv", "a=b") == 0 && spec_add(&b, "argv", "") == 0);
    ok(spec_add_num(&b, "fd.x", 7) == 0);
    fd = memfd_with(b.data, b.len);
    ok(spec_load(fd, &s) == 0);
    ok_str(spec_get(&s, "argv"), "a=b");
    ok(spec_fd(&s, "x") == 7 && spec_fd(&s, "y") == -1);
    const char **all = spec_all(&s, "argv");
    ok(all && !strcmp(all[0], "a=b") && !strcmp(all[1], "") && !all[2]);
    free(all);
    free(s.data);

    t("a specification without an end is read without running over it");
    broken = memfd_with("key=value", 9);
    ok(spec_load(broken, &bad) == 0);
    ok_str(spec_get(&bad, "key"), "value");
    ok(!spec_get(&bad, "ke") && spec_num(&bad, "key", 5) == 5);
    free(bad.data);

    t("a message carries descriptors, and a short or late one is refused");
    ok(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    m = (struct msg){ .type = MSG_NS, .value = 1 };
    ok(msg_send(pair[0], &m, (int[]){ fd }, 1) == 0);
    ok(msg_recv(pair[1], &m, fds, &n) == 0 && n == 1 && fds[0] >= 0 && m.type == MSG_NS);
    close(fds[0]);
    ok(send(pair[0], "x", 1, 0) == 1);
    ok(msg_recv(pair[1], &m, fds, &n) == -EBADMSG);
    close(pair[0]);
    ok(msg_recv(pair[1], &m, fds, &n) == -EPIPE);
    close(pair[1]);
    return tap_done();
}
