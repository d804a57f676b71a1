/* local/options.h: the command line of boxd-local. */
#pragma once

#include "base/base.h"

struct options {
    char *socket, *state_dir, *vms_dir;                    /* absolute; owned */
    const char *listen, *key_file, *log_file, *fail_start; /* of argv; NULL: not given */
    uint64_t start_delay_ms, idle_exit_seconds;
    bool listen_any, allow_privileged, exec_pid_namespace, background;
    bool force_single, force_view; /* tests, see local/host.h */
    int ready_fd;                  /* -1: none */
};

/* 0: go on; 1: help or version was printed, exit 0; a negative errno with words. */
int options_parse(int argc, char **argv, struct options *out);
void options_clear(struct options *o);
