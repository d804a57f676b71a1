/* fs/data_store.c: sends what was changed back to the machine: only the end of a file that was
 * appended to, else all of it. Reads the temporary in pieces and never queues more than Exec wants.
 */
#include "data.h"

#include <boxd/exec.h>

#define PIECE (128u * 1024)

static void pump(struct data *d)
{
    _cleanup_free_ char *piece = malloc(PIECE);
    ssize_t queued = 0;

    while (piece && queued >= 0 && queued <= BOXD_EXEC_QUEUE && d->store_at < d->store_end) {
        size_t want =
            d->store_end - d->store_at < PIECE ? (size_t)(d->store_end - d->store_at) : PIECE;
        ssize_t n = pread(d->fd, piece, want, (off_t)d->store_at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) { /* truncated while it is sent: it is dirty again */
            d->store_end = d->store_at;
            break;
        }
        queued = boxd_store_write(d->store, piece, (size_t)n);
        d->store_at += (uint64_t)n;
    }
    if (!piece || queued < 0)
        d->store_end = d->store_at; /* the sizes will differ at the end */
    if (d->store_at >= d->store_end)
        boxd_store_eof(d->store);
}

static void on_writable(void *arg)
{
    data_moved(arg);
    pump(arg);
}

static void on_stored(void *arg, int r, const struct stat *st)
{
    struct data *d = arg;
    uint64_t sent = d->store_at - d->store_from;

    d->store = NULL;
    if (r != -ECANCELED) /* else the mount ends, perhaps without the machine */
        machine_changed(d->n->node.machine);
    if (r >= 0 && d->store_from == 0 && (uint64_t)st->st_size != sent && !d->dirty)
        r = boxd_words(-EIO, "the machine has %lld of %" PRIu64 " bytes", (long long)st->st_size,
                       sent);
    if (r < 0) {
        /* what the machine has now is unknown: all of it goes again */
        d->dirty = true;
        d->dirty_from = 0;
        d->error = r == -ENODEV ? -ESTALE : r;
        if (!d->opens)
            journal_add(machine_errors(d->n->node.mnt, d->n->node.machine), "write %s: %s",
                        d->n->node.name, boxd_error_words(r));
    } else {
        d->error = 0;
        d->remote = (uint64_t)st->st_size;
        d->known = d->n->last = *st;
        /* others wrote behind what we appended to */
        if (!d->dirty && d->remote != d->size)
            d->stale = true;
    }
    data_wake(d);
    data_unuse(d);
}

int data_store(struct data *d)
{
    static const struct boxd_store_handlers handlers = { .writable = on_writable,
                                                         .done = on_stored };
    struct mount *mnt = d->n->node.mnt;
    bool append = d->dirty_from >= d->remote && d->remote;
    unsigned flags = BOXD_STORE_FORCE | (append ? BOXD_STORE_APPEND : 0);
    _cleanup_free_ char *path = NULL;
    int r = tree_path(&d->n->node, NULL, &path);

    if (r >= 0)
        r = data_temporary(d);
    if (r < 0)
        return r;
    d->store = boxd_script_store(mnt->client, d->n->node.machine->id, path, flags, &handlers, d);
    if (!d->store)
        return -ENOMEM;
    d->store_from = d->store_at = append ? d->remote : 0;
    d->store_end = d->size;
    d->dirty = false;
    pump(d);
    return 0;
}
