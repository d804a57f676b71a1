/* fs/machine.c: what the mount keeps with each machine. */
#include "fs.h"

struct fsmachine *fsmachine(struct boxd_machine *m)
{
    struct fsmachine *fm = m->user;

    if (fm)
        return fm;
    fm = calloc(1, sizeof *fm);
    if (!fm || !(fm->errors = journal_new()) || !(fm->events = journal_new()))
        abort();
    list_init(&fm->scripts);
    m->user = fm;
    return fm;
}

void fsmachine_free(struct boxd_machine *m)
{
    struct fsmachine *fm = m->user;

    if (!fm)
        return;
    m->user = NULL;
    if (fm->free_scripts)
        fm->free_scripts(fm);
    journal_free(fm->errors);
    journal_free(fm->events);
    free(fm);
}

struct journal *machine_errors(struct mount *mnt, struct boxd_machine *m)
{
    return m ? fsmachine(m)->errors : mnt->errors;
}

struct journal *machine_events(struct mount *mnt, struct boxd_machine *m)
{
    return m ? fsmachine(m)->events : mnt->events;
}
