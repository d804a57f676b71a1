/* local/validate.h: what the service accepts as names, labels, sizes and paths.
 *
 * The rules are the service's own (DESIGN, reference: machines). Every function takes untrusted
 * text that is known to be UTF-8 and returns 0 or -EINVAL with words. No state, no allocation. */
#pragma once

#include "base/base.h"

#define LABELS_MAX 64
#define LABEL_KEY_MAX 63
#define LABEL_VALUE_MAX 256 /* characters */
#define NAME_MAX_LEN 63

/* 1-63 of a-z 0-9 -, first and last a letter or digit. */
int validate_name(const char *name);
/* `key` and `value` of a label that a user sets. */
int validate_label(const char *key, const char *value);
/* "key" or "key=value". */
int validate_selector(const char *selector);
/* Whether a label answers to a selector. */
bool selector_matches(const char *selector, const char *key, const char *value);
/* Completes a size of which either part may be 0: 1/4G, 2/8G, 4/16G, 8/32G; both 0: 2/8G. */
int validate_size(uint32_t vcpu, uint64_t memory, uint32_t *vcpu_out, uint64_t *memory_out);
/* 0 or 100 GiB. */
int validate_disk(uint64_t bytes);
/* "", "always" or "never". */
int validate_restart_policy(const char *policy);
int validate_env_key(const char *key);
/* A path in a machine: not empty, at most 4095 bytes. */
int validate_path(const char *path);
