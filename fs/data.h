/* fs/data.h: the content of a file that is open: an unlinked temporary of this computer, shared by
 * all opens of the file. The machine's content comes when it is needed and goes back at close,
 * fsync, and before a change of attributes. */
#pragma once

#include "tree.h"

struct data {
    struct list link;    /* in mnt->data */
    struct tree_node *n; /* referenced while something is under way or open */
    unsigned opens;
    int fd;            /* the temporary; -1 until bytes are there */
    uint64_t size;     /* of the file as it is seen here */
    uint64_t remote;   /* bytes that the machine's file has */
    uint64_t have;     /* the temporary holds the first `have` ... */
    uint64_t base;     /* ... of the machine's `base` bytes that are still wanted */
    struct stat known; /* the machine's file as last synchronized */
    bool refused;      /* a write went over script_max: nothing of it is sent, close fails */
    bool dirty, stale; /* stale: the machine's file changed since; read again when clean */
    uint64_t dirty_from;
    int error;           /* why the last store failed; told by every close until one succeeds */
    int load_error;      /* why the content did not come */
    struct loader *load; /* the fetch under way that fills this */
    struct boxd_store *store;
    uint64_t store_at, store_end, store_from;
    struct list waits;
};

/* The newest size: of the content here when it was changed, else what the machine says. */
off_t data_size(const struct data *d, off_t otherwise);
/* The machine's attributes of an open file were seen: has it changed? */
void data_seen(struct tree_node *n, const struct stat *st);
/* The mount ends: no answers, no network. */
void data_abandon(struct data *d);

/* Runs `then` once nothing is dirty and no store is under way: r = 0, or why the store failed. The
 * op of the wait may be interrupted (-EINTR). Answers at once when there is nothing to do. */
typedef void data_then(struct op *op, int r, void *arg);
void data_sync(struct data *d, struct op *op, data_then *then, void *arg);
/* Runs `then` once the whole content is here, so that the name may go. */
void data_hold(struct data *d, struct op *op, data_then *then, void *arg);
/* Sends everything that is changed in this machine's open files, for a script that must see it.
 * `done` runs once, when all is there or could not be sent: a file that failed stays dirty, its
 * words go to `.boxd/errors`, its close tries again. Returns 0 when there is nothing to wait for
 * (`done` does not run), 1, or -ENOMEM. */
struct data_push;
int data_push(struct mount *mnt, struct boxd_machine *m, void (*done)(void *arg), void *arg,
              struct data_push **out);
/* `done` does not run any more; what is being sent goes on. */
void data_push_forget(struct data_push *p);
/* Sets the size. -EFBIG, or the temporary's errno. */
int data_truncate(struct data *d, uint64_t size);

/* ---- between data.c, data_open.c and data_store.c ---- */

struct loader {
    struct boxd_fetch *fetch;
    struct data *d;          /* NULL until it opened, and when the data went */
    struct opening *opening; /* the open(2) that waits for it, or NULL */
    struct mount *mnt;
    bool content;
    bool busy; /* inside one of its callbacks: it cannot be cancelled now */
};

struct data *data_new(struct tree_node *n, const struct stat *st);
/* Frees it when nobody has it open and nothing is under way. */
void data_unuse(struct data *d);
/* The machine's file is `st` now and the temporary holds nothing of it yet. */
void data_reset(struct data *d, const struct stat *st);
bool data_loaded(const struct data *d);
/* Starts reading the content unless that is under way. */
int data_load(struct data *d);
/* Looks at every wait again: bytes came, a load or a store ended. */
void data_wake(struct data *d);
/* There is progress: what waits has its time anew. */
void data_moved(struct data *d);
int data_temporary(struct data *d);
/* Starts sending what is dirty; the content must be here. */
int data_store(struct data *d);
bool data_same_file(const struct stat *a, const struct stat *b);
/* Takes bytes of a fetch. */
void data_arrived(struct data *d, const void *bytes, size_t n);
void data_load_ended(struct data *d, int r);
/* A fetch that fills `d` (which may be NULL until it opened). */
extern const struct boxd_fetch_handlers loader_handlers;
