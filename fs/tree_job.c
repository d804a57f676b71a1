/* fs/tree_job.c: an op that needs the machine: waits until it answers, learns once who its user is,
 * then runs; an interruption ends whichever call is under way. */
#include "tree.h"

#include "deadline.h"

struct job *job_new(struct op *op, struct node *dir, const char *name, void (*run)(struct job *j))
{
    struct job *j = calloc(1, sizeof *j);
    int r = j ? 0 : -ENOMEM;

    if (j) {
        j->op = op;
        j->run = run;
        if (dir)
            j->dir = node_ref(dir);
        if (name && !(j->name = strdup(name)))
            r = -ENOMEM;
        if (r >= 0)
            r = tree_path(dir ? dir : op->node, name, &j->path);
    }
    if (r >= 0)
        return j;
    if (j)
        job_end(j);
    op_fail(op, r);
    return NULL;
}

struct op *job_end(struct job *j)
{
    struct op *op = j->op;

    op_wait(op, NULL, NULL);
    if (j->change)
        machine_changed(op->node->machine);
    if (j->dir)
        node_unref(j->dir);
    if (j->dir2)
        node_unref(j->dir2);
    free(j->name);
    free(j->name2);
    free(j->path);
    free(j->path2);
    free(j);
    return op;
}

void job_fail(struct job *j, int r)
{
    struct op *op = job_end(j);

    /* The machine is gone, by somebody else's hand: the kernel still holds a node of it. */
    if (r == -ENODEV)
        boxd_machine_stale(op->node->machine);
    op_fail(op, r == -ENODEV ? boxd_words(-ESTALE, "the machine does not exist any more") : r);
}

static void job_cancel(struct op *op, void *arg)
{
    struct job *j = arg;

    if (j->call)
        boxd_call_cancel(j->call); /* its callback ends the job with -ECANCELED */
    else
        job_fail(j, -EINTR);
}

void job_call(struct job *j, struct boxd_call *call)
{
    j->call = call;
    if (call)
        op_wait(j->op, job_cancel, j);
    else
        job_fail(j, -ENOMEM);
}

static void on_user(void *arg, int r, uid_t uid, gid_t gid)
{
    struct job *j = arg;
    struct tree_root *root = tree_root_of(j->op->node);

    job_called(j);
    if (r < 0) {
        job_fail(j, r);
        return;
    }
    root->user_known = true;
    root->uid = uid;
    root->gid = gid;
    j->run(j);
}

static void when_ready(struct job *j)
{
    struct mount *mnt = j->op->mnt;

    j->changes = fsmachine(j->op->node->machine)->changes;
    op_deadline(j->op); /* not before: a machine that starts has its own time */
    if (tree_root_of(j->op->node)->user_known)
        j->run(j);
    else
        job_call(j, boxd_script_user(mnt->client, j->op->node->machine->id, on_user, j));
}

static void on_ready(void *arg, int r)
{
    struct job *j = arg;

    job_called(j);
    if (r < 0)
        job_fail(j, r);
    else
        when_ready(j);
}

void job_start(struct job *j)
{
    struct boxd_machine *m = j->op->node->machine;

    if (m->gone)
        job_fail(j, -ENODEV);
    else if (m->ready)
        when_ready(j);
    else
        job_call(j, boxd_machine_wait(m, j->op->mnt->opt.ready_timeout_ms, on_ready, j));
}
