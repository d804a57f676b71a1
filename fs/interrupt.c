/* fs/interrupt.c: FUSE_INTERRUPT, by the rule of interrupt.h. */
#include "fs.h"

#include "interrupt.h"

#include <fcntl.h>
#include <signal.h>

#define LOOK_AGAIN_MS 200

static uint64_t bit(int sig)
{
    return UINT64_C(1) << (sig - 1);
}

/* A line `NAME:\t0123456789abcdef` of the file; 0 when it is not there. */
static uint64_t signal_set(const char *text, const char *name)
{
    const char *line = strstr(text, name);
    unsigned long long v;
    char *end;

    if (!line)
        return 0;
    line += strlen(name);
    v = strtoull(line, &end, 16);
    return end == line ? 0 : v;
}

bool interrupt_ends_wait(const char *proc_status)
{
    uint64_t pending = signal_set(proc_status, "\nSigPnd:") | signal_set(proc_status, "\nShdPnd:");
    uint64_t blocked = signal_set(proc_status, "\nSigBlk:");
    uint64_t fatal = bit(SIGINT) | bit(SIGTERM) | bit(SIGHUP) | bit(SIGQUIT) | bit(SIGKILL);

    return pending & ~blocked & fatal;
}

/* A caller that we cannot see (another pid namespace) or that is gone: nothing is known that would
 * speak against ending its wait. */
static bool caller_gives_up(pid_t tid)
{
    char path[32], text[8192];
    _cleanup_close_ int fd = -1;
    ssize_t n;

    if (!tid)
        return true;
    snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return true;
    text[n] = '\0';
    return interrupt_ends_wait(text);
}

/* Cancelling one op may answer others, so the walk starts again after each. */
static bool cancel_one(struct mount *mnt, bool *waiting)
{
    *waiting = false;
    list_each(it, &mnt->ops)
    {
        struct op *op = container_of(it, struct op, link);

        if (!op->asked || !op->cancel)
            continue;
        if (caller_gives_up(op->pid)) {
            op_cancel(op);
            return true;
        }
        *waiting = true;
    }
    return false;
}

static void look(uv_timer_t *timer)
{
    struct mount *mnt = timer->data;
    bool waiting;

    while (cancel_one(mnt, &waiting))
        ;
    if (!waiting)
        uv_timer_stop(timer);
}

int interrupts_init(struct mount *mnt)
{
    int r = uv_timer_init(&mnt->loop, &mnt->interrupts);

    mnt->interrupts.data = mnt;
    return r;
}

void interrupt_ask(struct op *op)
{
    op->asked = true;
    uv_timer_start(&op->mnt->interrupts, look, 0, LOOK_AGAIN_MS);
}
