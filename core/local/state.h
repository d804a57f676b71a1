/* local/state.h: what boxd-local remembers of a machine, and how it is kept on disk.
 *
 * One JSON file a machine, STATE/vms/ID.json, replaced atomically and fsynced: after a call was
 * answered its effect survives a kill. Knows no RPC and starts nothing. */
#pragma once

#include "base/base.h"

struct pair {
    char *key, *value;
};
/* Owned; sorted by key, keys unique. */
struct pairs {
    struct pair *items;
    size_t count;
};
/* Sets a key or changes its value; 0 or -ENOMEM. */
int pairs_set(struct pairs *p, const char *key, const char *value);
void pairs_remove(struct pairs *p, const char *key);
/* NULL when absent. */
const char *pairs_get(const struct pairs *p, const char *key);
void pairs_clear(struct pairs *p);
/* Replaces `to` by a copy; 0 or -ENOMEM (`to` is then unchanged). */
int pairs_copy(struct pairs *to, const struct pairs *from);

/* What the user wants the machine to be; what it is at the moment is not kept. */
enum vm_wanted {
    VM_WANT_RUN,
    VM_WANT_STOP,
    VM_WANT_FAILED, /* the last start failed, see `failure` */
    VM_WANT_GONE,   /* destroyed; its files may still have to be deleted */
};

struct vm_record {
    char *id, *name, *image, *restart_policy, *delete_cron, *failure; /* never NULL */
    struct pairs labels, env;
    uint32_t vcpu;
    uint64_t memory, disk;
    uint32_t auto_suspend; /* seconds; 0: off */
    bool isolated;
    int64_t created_at;                                    /* seconds since 1970 */
    int64_t boot_time_ms, last_connected_ms, delete_at_ms; /* since 1970; 0: none */
    enum vm_wanted wanted;
};

/* A record with empty texts; -ENOMEM. */
int vm_record_init(struct vm_record *r);
void vm_record_clear(struct vm_record *r);
/* Replaces a text; 0 or -ENOMEM. */
int text_set(char **where, const char *text);

/* JSON, malloc()ed; NULL: out of memory. */
char *vm_record_print(const struct vm_record *r);
/* 0 (`out` is then to be cleared), -ENOMEM, or -EBADMSG with words. */
int vm_record_parse(const char *json, size_t n, struct vm_record *out);

/* `dir` is STATE/vms; it is created when missing. 0 or a negative errno with words. */
int state_save(const char *dir, const struct vm_record *r);
int state_remove(const char *dir, const char *id);
/* Calls `each` for every record, which takes what it points to (and leaves it cleared). A damaged
 * file is renamed to NAME.damaged with a line in the log and is no failure. */
int state_load(const char *dir, int (*each)(void *arg, struct vm_record *r), void *arg);
