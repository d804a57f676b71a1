/* fs/ctl.h: the words of `ctl`: tables, the parser, and one command under way.
 *
 * A line is split as a shell does. The first word is looked up in a table; the others are arguments
 * or `key=value` options of that word. Everything is checked before anything is sent. */
#pragma once

#include "fs.h"

struct ctl_run;

/* A value that an option can have. */
enum ctl_kind {
    CTL_TEXT,    /* not empty */
    CTL_NUMBER,  /* 1 to 1024 */
    CTL_SIZE,    /* 4G */
    CTL_SECONDS, /* 0 or 90, 10m, 2h */
    CTL_CHOICE,  /* one of `values` */
    CTL_FLAG,    /* no value */
    CTL_PAIR,    /* PREFIX.KEY=VALUE; the value may be empty */
};

struct ctl_option {
    const char *key; /* CTL_PAIR: the prefix, "label" */
    enum ctl_kind kind;
    const char *values; /* CTL_CHOICE: "always|never"; else what the usage shows */
};

struct ctl_word {
    const char *name, *alias;         /* alias may be NULL */
    unsigned min, max;                /* arguments */
    const char *args;                 /* for the usage: "NAME" */
    const struct ctl_option *options; /* ends with a NULL key; NULL: none */
    void (*run)(struct ctl_run *run);
    const char *help;
};

struct ctl_setting {
    const struct ctl_option *option;
    const char *key;   /* CTL_PAIR: what follows the prefix */
    const char *value; /* NULL for CTL_FLAG */
    uint64_t number;   /* CTL_NUMBER, CTL_SIZE, CTL_SECONDS */
};

struct ctl_command {
    const struct ctl_word *word; /* NULL: the line was empty or a comment */
    char **words;                /* owns the text */
    const char **args;
    size_t arg_count;
    struct ctl_setting *settings;
    size_t setting_count;
};

/* Both end with a NULL name. */
extern const struct ctl_word ctl_account_words[], ctl_machine_words[];

/* Fills *c, which the caller clears also after a failure. 0 or -EINVAL with words. */
int ctl_parse(const struct ctl_word *table, const char *line, struct ctl_command *c);
void ctl_command_clear(struct ctl_command *c);
/* The table as text for people, every line a comment. */
int ctl_usage(const struct ctl_word *table, const char *title, struct buf *out);

/* A command under way. */
struct ctl_run {
    struct mount *mnt;
    struct boxd_machine *m; /* the machine it is about, referenced; NULL: none (yet) */
    struct ctl_command cmd;
    struct buf out;         /* for the one who asked */
    struct boxd_call *call; /* what it waits for */
    bool cancelled;
    void (*done)(struct ctl_run *run, int r, void *arg); /* r has words; the run is dying */
    void *arg;
};

/* Starts the command that `line` holds; `done` runs exactly once, perhaps before this returns, and
 * gives back what the run owns when it returns. */
void ctl_run_line(struct mount *mnt, struct boxd_machine *m, const char *line,
                  void (*done)(struct ctl_run *run, int r, void *arg), void *arg,
                  struct ctl_run **current);
/* Ends it early: `done` runs with -EINTR before this returns. */
void ctl_run_cancel(struct ctl_run *run);
