/* boxd/machine.h: the calls of the service that concern machines and the account.
 *
 * Life, threads, errors and `done`: see boxd/client.h. A machine is named by id or by name.
 * Strings in requests must be UTF-8 (-EINVAL otherwise); unknown fields of answers are skipped, and
 * a status that this version does not know is passed on as it is. */
#pragma once

#include <boxd/client.h>
#include <stdbool.h>
#include <stddef.h>

struct boxd_label {
    const char *key, *value;
};

struct boxd_labels {
    const struct boxd_label *items;
    size_t count;
};

/* What the service says of a machine. Strings are never NULL. */
struct boxd_machine_info {
    const char *id, *name, *image;
    const char *status; /* pending starting running suspended hibernated stopped failed ... */
    const char *restart_policy; /* "always" or "never" */
    const char *source;         /* standalone, snapshot/NAME:VERSION, fork/NAME */
    const char *public_ip, *org;
    uint32_t vcpu;
    uint64_t memory_bytes, disk_bytes;
    uint32_t auto_suspend_seconds, auto_hibernate_seconds; /* 0: off */
    int64_t created_at;                                    /* seconds since 1970 */
    int64_t boot_time_ms, last_connected_ms, delete_at_ms; /* 0: none */
    bool isolated;
    struct boxd_labels labels;
};

/* A copy that the caller owns and frees with boxd_machine_info_free(); NULL: out of memory. */
BOXD_API struct boxd_machine_info *boxd_machine_info_dup(const struct boxd_machine_info *m);
BOXD_API void boxd_machine_info_free(struct boxd_machine_info *m);

struct boxd_env {
    const char *key, *value;
};

/* Zeroed = the service's defaults. Everything is copied. */
struct boxd_create_options {
    const char *name;  /* NULL: the service chooses */
    const char *image; /* NULL: the default image */
    const struct boxd_env *env;
    size_t env_count;
    const char *const *cmd; /* the image's command instead of its own */
    size_t cmd_count;
    const char *restart_policy; /* NULL: "always" */
    uint32_t vcpu;
    uint64_t memory_bytes, disk_bytes;
    int64_t auto_suspend_seconds; /* < 0: the service's default; 0: off */
    bool auto_suspend_set;        /* whether the field above is meant */
    struct boxd_labels labels;
    const char *org;
    bool isolated;
    const char *const *networks;
    size_t network_count;
};

struct boxd_created {
    const char *id, *name, *status, *image, *url, *public_ip;
};

typedef void boxd_created_done(void *arg, int r, const struct boxd_created *created);
typedef void boxd_machine_done(void *arg, int r, const struct boxd_machine_info *m);
typedef void boxd_machines_done(void *arg, int r, const struct boxd_machine_info *const *machines,
                                size_t count);
typedef void boxd_text_done(void *arg, int r, const char *text);
typedef void boxd_labels_done(void *arg, int r, const struct boxd_labels *labels);
typedef void boxd_number_done(void *arg, int r, int64_t number);

/* Answers when the machine is scheduled, not when it runs. -EEXIST, -EINVAL, -EDQUOT. */
BOXD_API struct boxd_call *boxd_create(struct boxd_client *c, const struct boxd_create_options *o,
                                       boxd_created_done *done, void *arg);
BOXD_API struct boxd_call *boxd_destroy(struct boxd_client *c, const char *machine, boxd_done *done,
                                        void *arg);
BOXD_API struct boxd_call *boxd_start(struct boxd_client *c, const char *machine, boxd_done *done,
                                      void *arg);
BOXD_API struct boxd_call *boxd_stop(struct boxd_client *c, const char *machine, boxd_done *done,
                                     void *arg);
BOXD_API struct boxd_call *boxd_reboot(struct boxd_client *c, const char *machine, boxd_done *done,
                                       void *arg);
/* Pause to RAM and back; `number` is the microseconds that the service took. */
BOXD_API struct boxd_call *boxd_suspend(struct boxd_client *c, const char *machine,
                                        boxd_number_done *done, void *arg);
BOXD_API struct boxd_call *boxd_resume(struct boxd_client *c, const char *machine,
                                       boxd_number_done *done, void *arg);
BOXD_API struct boxd_call *boxd_get(struct boxd_client *c, const char *machine,
                                    boxd_machine_done *done, void *arg);
/* `selectors` are "key=value" or "key", all must match; the answer is checked again here. */
BOXD_API struct boxd_call *boxd_list(struct boxd_client *c, const char *const *selectors,
                                     size_t selector_count, boxd_machines_done *done, void *arg);
BOXD_API struct boxd_call *boxd_suggest_name(struct boxd_client *c, boxd_text_done *done,
                                             void *arg);
/* Sets and removes labels, or with `replace_all` makes `set` all of them. */
BOXD_API struct boxd_call *boxd_update_labels(struct boxd_client *c, const char *machine,
                                              const struct boxd_labels *set,
                                              const char *const *remove, size_t remove_count,
                                              bool replace_all, boxd_labels_done *done, void *arg);
/* Seconds from now, or a cron line, not both; 0 and NULL clear. `number` = the time of deletion in
 * milliseconds since 1970, 0 when cleared. */
BOXD_API struct boxd_call *boxd_set_delete_after(struct boxd_client *c, const char *machine,
                                                 uint64_t seconds, const char *cron,
                                                 boxd_number_done *done, void *arg);

struct boxd_account {
    const char *user_id, *display_name;
    uint32_t max_machines; /* 0: not told */
    uint32_t vcpu;
    uint64_t memory_bytes;
};
typedef void boxd_account_done(void *arg, int r, const struct boxd_account *account);
BOXD_API struct boxd_call *boxd_whoami(struct boxd_client *c, boxd_account_done *done, void *arg);

struct boxd_service_config {
    const char *default_image, *zone;
};
typedef void boxd_service_config_done(void *arg, int r, const struct boxd_service_config *config);
BOXD_API struct boxd_call *boxd_get_config(struct boxd_client *c, boxd_service_config_done *done,
                                           void *arg);
