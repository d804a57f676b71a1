/* fs/data_push.c: sends what was written to a machine's open files before a script runs there, so
 * that the script sees every write(2) that has returned. A file that fails does not fail it. */
#include "data.h"

struct data_push {
    void (*done)(void *arg);
    void *arg;
    struct mount *mnt;
    struct boxd_machine *machine; /* referenced */
    unsigned left;                /* files under way */
};

static void push_left(struct data_push *p)
{
    if (--p->left)
        return;
    if (p->done)
        p->done(p->arg);
    boxd_machine_unref(p->machine);
    free(p);
}

struct pushed {
    struct data_push *push;
    char *path; /* in the machine */
};

static void pushed(struct op *op, int r, void *arg)
{
    struct pushed *f = arg;

    if (r < 0 && r != -ECANCELED)
        journal_add(machine_errors(f->push->mnt, f->push->machine),
                    "write %s: a script does not see what was written: %s", f->path,
                    boxd_error_words(r));
    push_left(f->push);
    free(f->path);
    free(f);
}

static bool unsent(const struct data *d, const struct boxd_machine *m)
{
    return d->n->node.machine == m && !d->n->deleted && (d->dirty || d->store);
}

static int push_one(struct data_push *p, struct data *d)
{
    struct pushed *f = calloc(1, sizeof *f);
    int r = f ? tree_path(&d->n->node, NULL, &f->path) : -ENOMEM;

    if (r < 0) {
        free(f);
        return r;
    }
    f->push = p;
    p->left++;
    data_sync(d, NULL, pushed, f);
    return 0;
}

int data_push(struct mount *mnt, struct boxd_machine *m, void (*done)(void *arg), void *arg,
              struct data_push **out)
{
    struct data_push *p = NULL;
    int r = 0;

    *out = NULL;
    /* What could not be started (data_sync() may end at once) can free its own data only. */
    list_each_safe(it, &mnt->data)
    {
        struct data *d = container_of(it, struct data, link);

        if (r < 0 || !unsent(d, m))
            continue;
        if (!p) {
            p = calloc(1, sizeof *p);
            if (!p)
                return -ENOMEM;
            *p = (struct data_push){ .arg = arg, .mnt = mnt, .machine = boxd_machine_ref(m) };
            p->left = 1;
        }
        r = push_one(p, d);
    }
    if (!p)
        return 0;
    if (r >= 0 && p->left > 1) {
        p->done = done;
        *out = p;
        r = 1;
    }
    push_left(p);
    return r;
}

void data_push_forget(struct data_push *p)
{
    p->done = NULL;
}
