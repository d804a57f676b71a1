/* local/proto.h: what the server and its helper program (boxd-init) say to each other: a
 * specification of "key=value" strings in a memfd, and messages on a seqpacket socket.
 * Linked into both; knows neither the loop nor namespaces. */
#pragma once

#include "base/base.h"
#include "base/buf.h"

enum msg_type {
    MSG_ERROR, /* value: negative errno; text: words */
    MSG_DONE,  /* the job is done */
    MSG_PID,   /* value: a process id in the server's pid namespace */
    MSG_GO,    /* from the server: what the helper waited for has been done */
    MSG_NS,    /* value: NS_ flags; descriptors: user, mount, [fuse] */
    MSG_INNER, /* descriptor: the user namespace in which boxd is 1000 (machines of one id) */
    MSG_READY, /* from init: the machine can be entered; descriptor: its /dev/pts */
    MSG_TERM,  /* to an exec helper: end the command's processes */
    MSG_KILL,
};

#define MSG_FDS 3

struct msg {
    int32_t type;
    int32_t value;
    char text[1016];
};

/* Sends one message with up to MSG_FDS descriptors, which stay the caller's. */
int msg_send(int sock, const struct msg *m, const int *fds, size_t nfds);
/* Receives one message; *nfds descriptors are the caller's (close-on-exec), the others are -1.
 * -EPIPE at the end of the stream, -EAGAIN on a non-blocking socket, -EBADMSG otherwise. */
int msg_recv(int sock, struct msg *m, int fds[MSG_FDS], size_t *nfds);
/* Short forms. msg_error sends the words that were remembered for r, and returns r. */
int msg_error(int sock, int r);
int msg_simple(int sock, enum msg_type type, int32_t value);

/* The specification: NUL-ended strings. A value is found by its key. */
struct spec {
    char *data;
    size_t len;
};

/* Where the specification and the socket are in a helper; more descriptors are named in it. */
#define HELPER_CONTROL 3
#define HELPER_SPEC 4
#define HELPER_FDS 5

/* Flags of MSG_NS. */
#define NS_VIEW 1  /* a FUSE view has to be served on the third descriptor */
#define NS_PLAIN 2 /* there is a base for privileged machines */

/* The most control groups that a machine is in; their cgroup.procs are passed as "cg0"... */
#define CGROUPS 10

int spec_add(struct buf *b, const char *key, const char *value);
int spec_add_num(struct buf *b, const char *key, uint64_t value);
/* Reads the whole specification from a memfd. */
int spec_load(int fd, struct spec *s);
/* The first value of `key`, or NULL. */
const char *spec_get(const struct spec *s, const char *key);
/* The number under `key`, or `missing`. */
uint64_t spec_num(const struct spec *s, const char *key, uint64_t missing);
/* The descriptor passed under this name, or -1. */
int spec_fd(const struct spec *s, const char *name);
/* All values of `key` as a NULL-ended array that points into the specification. */
const char **spec_all(const struct spec *s, const char *key);
