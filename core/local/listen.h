/* local/listen.h: the places in the file system and on the network that boxd-local takes: its state
 * directory with the lock, its unix socket, its TCP address. */
#pragma once

#include "base/base.h"
#include "local/options.h"

/* Makes and checks the state directory and locks it for this process: the lock lasts as long as the
 * descriptor, which is returned. -EBUSY with words that name the pid when another server has it;
 * negative errno with words. */
int state_dir_lock(const char *dir);

/* Binds and listens with mode 0600; a socket nobody answers is replaced. The descriptor, or a
 * negative errno with words. */
int listen_unix(const char *path);

/* Binds HOST:PORT, loopback only unless `any`; *address gets "http://HOST:PORT" with the port in
 * use, malloc()ed. The descriptor, or a negative errno with words. */
int listen_tcp(const char *host_port, bool any, char **address);
