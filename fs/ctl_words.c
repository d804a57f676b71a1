/* fs/ctl_words.c: what the commands of `ctl` do. A new one is a line of a table and a function.
 * Each function starts one call and leaves; the call's answer starts the next or ends the run. */
#include "ctl.h"

/* ---- the life of a run ---- */

static void finish(struct ctl_run *run, int r)
{
    run->call = NULL;
    if (run->cancelled)
        r = boxd_words(-EINTR, "'%s' was interrupted", run->cmd.word->name);
    run->done(run, r, run->arg);
    if (run->m)
        boxd_machine_unref(run->m);
    ctl_command_clear(&run->cmd);
    buf_clear(&run->out);
    free(run);
}

/* Keeps the call that was just started, or ends the run when memory ran out. */
static void waits_for(struct ctl_run *run, struct boxd_call *call)
{
    run->call = call;
    if (!call)
        finish(run, -ENOMEM);
}

static void call_done(void *arg, int r)
{
    finish(arg, r);
}

void ctl_run_line(struct mount *mnt, struct boxd_machine *m, const char *line,
                  void (*done)(struct ctl_run *run, int r, void *arg), void *arg,
                  struct ctl_run **current)
{
    struct ctl_run *run = calloc(1, sizeof *run);
    int r;

    if (!run) {
        struct ctl_run none = { .mnt = mnt };

        done(&none, -ENOMEM, arg);
        return;
    }
    *run = (struct ctl_run){ .mnt = mnt, .done = done, .arg = arg };
    *current = run;
    r = ctl_parse(m ? ctl_machine_words : ctl_account_words, line, &run->cmd);
    if (r >= 0 && m && m->gone)
        r = boxd_words(-ENODEV, "machine '%s' does not exist any more", m->shown);
    if (r < 0 || !run->cmd.word) {
        finish(run, r);
        return;
    }
    if (m)
        run->m = boxd_machine_ref(m);
    run->cmd.word->run(run);
}

void ctl_run_cancel(struct ctl_run *run)
{
    run->cancelled = true;
    boxd_call_cancel(run->call); /* its `done` finishes the run */
}

/* ---- the machine that a command is about ---- */

static void machine_found(void *arg, int r)
{
    struct ctl_run *run = arg;
    const char *name = run->cmd.args[0];
    struct boxd_machine *m = boxd_machines_find(run->mnt->machines, name);

    run->call = NULL;
    if (!m)
        m = boxd_machines_find_id(run->mnt->machines, name);
    if (r < 0 || run->cancelled || !m) {
        finish(run, r < 0 ? r : boxd_words(-ENOENT, "machine '%s' does not exist", name));
        return;
    }
    run->m = boxd_machine_ref(m);
    run->cmd.word->run(run);
}

/* Sets run->m from the first argument of an account command, asking the service when the name is
 * not known; then the word runs again. False: not yet. */
static bool have_machine(struct ctl_run *run)
{
    struct boxd_machines *all = run->mnt->machines;
    struct boxd_machine *m;

    if (run->m)
        return true;
    m = boxd_machines_find(all, run->cmd.args[0]);
    if (!m)
        m = boxd_machines_find_id(all, run->cmd.args[0]);
    if (m)
        run->m = boxd_machine_ref(m);
    else
        waits_for(run, boxd_machines_refresh(all, machine_found, run));
    return m;
}

/* ---- create ---- */

static const struct ctl_option create_options[] = {
    { "name", CTL_TEXT, "NAME" },
    { "image", CTL_TEXT, "IMAGE" },
    { "vcpu", CTL_NUMBER, "N" },
    { "memory", CTL_SIZE, "SIZE" },
    { "disk", CTL_SIZE, "SIZE" },
    { "label", CTL_PAIR, NULL },
    { "env", CTL_PAIR, NULL },
    { "auto-suspend", CTL_SECONDS, "TIME" },
    { "restart", CTL_CHOICE, "always|never" },
    { "lease", CTL_SECONDS, "TIME" },
    { "delete-after", CTL_SECONDS, "TIME" },
    { "isolated", CTL_FLAG, NULL },
    { NULL, CTL_TEXT, NULL },
};

static const struct ctl_setting *setting(const struct ctl_run *run, const char *key)
{
    for (size_t i = 0; i < run->cmd.setting_count; i++)
        if (!strcmp(run->cmd.settings[i].option->key, key))
            return &run->cmd.settings[i];
    return NULL;
}

static const char *text_of(const struct ctl_run *run, const char *key)
{
    const struct ctl_setting *s = setting(run, key);

    return s ? s->value : NULL;
}

static uint64_t number_of(const struct ctl_run *run, const char *key)
{
    const struct ctl_setting *s = setting(run, key);

    return s ? s->number : 0;
}

static void create_answers(void *arg, int r)
{
    struct ctl_run *run = arg;

    if (r >= 0)
        r = buf_addf(&run->out, "%s\n", run->m->shown);
    finish(run, r);
}

static void wait_until_it_answers(struct ctl_run *run)
{
    waits_for(run, boxd_machine_wait(run->m, run->mnt->opt.ready_timeout_ms, create_answers, run));
}

static void create_leased(void *arg, int r, int64_t when)
{
    struct ctl_run *run = arg;

    run->call = NULL;
    if (r < 0 || run->cancelled)
        finish(run, r);
    else
        wait_until_it_answers(run);
}

static void create_accepted(void *arg, int r, struct boxd_machine *m)
{
    struct ctl_run *run = arg;
    uint64_t lease = number_of(run, "lease") | number_of(run, "delete-after");

    run->call = NULL;
    if (r < 0 || run->cancelled) {
        finish(run, r);
        return;
    }
    run->m = boxd_machine_ref(m);
    if (lease)
        waits_for(run,
                  boxd_set_delete_after(run->mnt->client, m->id, lease, NULL, create_leased, run));
    else
        wait_until_it_answers(run);
}

/* Labels and environment of the line, as the call wants them. */
static void create_pairs(const struct ctl_run *run, struct boxd_label *labels, size_t *label_count,
                         struct boxd_env *env, size_t *env_count)
{
    for (size_t i = 0; i < run->cmd.setting_count; i++) {
        const struct ctl_setting *s = &run->cmd.settings[i];

        if (s->option->kind != CTL_PAIR)
            continue;
        if (!strcmp(s->option->key, "label"))
            labels[(*label_count)++] = (struct boxd_label){ s->key, s->value };
        else
            env[(*env_count)++] = (struct boxd_env){ s->key, s->value };
    }
}

/* What cannot be right in a create, beyond its single words. */
static int create_check(const struct ctl_run *run, const char *name)
{
    if (run->cmd.arg_count && setting(run, "name"))
        return boxd_words(-EINVAL, "'create' has two names: '%s' and '%s'", run->cmd.args[0],
                          text_of(run, "name"));
    if (setting(run, "lease") && setting(run, "delete-after"))
        return boxd_words(-EINVAL, "'lease' and 'delete-after' are the same: give one");
    if (name && (name[0] == '.' || strchr(name, '/') || !strcmp(name, "ctl")))
        return boxd_words(-EINVAL,
                          "'%s' cannot be a machine's name: it would not be a plain "
                          "directory name",
                          name);
    return 0;
}

static void word_create(struct ctl_run *run)
{
    size_t n = run->cmd.setting_count + 1;
    _cleanup_free_ struct boxd_label *labels = calloc(n, sizeof *labels);
    _cleanup_free_ struct boxd_env *env = calloc(n, sizeof *env);
    const struct ctl_setting *suspend = setting(run, "auto-suspend");
    struct boxd_create_options o = {
        .name = run->cmd.arg_count ? run->cmd.args[0] : text_of(run, "name"),
        .image = text_of(run, "image"),
        .restart_policy = text_of(run, "restart"),
        .vcpu = (uint32_t)number_of(run, "vcpu"),
        .memory_bytes = number_of(run, "memory"),
        .disk_bytes = number_of(run, "disk"),
        .auto_suspend_set = suspend,
        .auto_suspend_seconds = suspend ? (int64_t)suspend->number : 0,
        .isolated = setting(run, "isolated"),
    };
    int r = labels && env ? create_check(run, o.name) : -ENOMEM;

    if (r < 0) {
        finish(run, r);
        return;
    }
    create_pairs(run, labels, &o.labels.count, env, &o.env_count);
    o.labels.items = labels;
    o.env = env;
    waits_for(run, boxd_machines_create(run->mnt->machines, &o, create_accepted, run));
}

/* ---- a machine's state ---- */

static void ready_again(void *arg, int r)
{
    struct ctl_run *run = arg;

    run->call = NULL;
    if (r < 0 || run->cancelled) {
        finish(run, r);
        return;
    }
    boxd_machine_stale(run->m);
    waits_for(run, boxd_machine_wait(run->m, run->mnt->opt.ready_timeout_ms, call_done, run));
}

static void ready_again_number(void *arg, int r, int64_t microseconds)
{
    ready_again(arg, r);
}

static void changed(void *arg, int r)
{
    struct ctl_run *run = arg;

    if (r >= 0)
        boxd_machine_stale(run->m);
    finish(run, r);
}

static void changed_number(void *arg, int r, int64_t microseconds)
{
    changed(arg, r);
}

static void word_start(struct ctl_run *run)
{
    if (have_machine(run))
        waits_for(run, boxd_start(run->mnt->client, run->m->id, ready_again, run));
}

static void word_stop(struct ctl_run *run)
{
    if (have_machine(run))
        waits_for(run, boxd_stop(run->mnt->client, run->m->id, changed, run));
}

static void word_reboot(struct ctl_run *run)
{
    if (have_machine(run))
        waits_for(run, boxd_reboot(run->mnt->client, run->m->id, ready_again, run));
}

static void word_pause(struct ctl_run *run)
{
    if (have_machine(run))
        waits_for(run, boxd_suspend(run->mnt->client, run->m->id, changed_number, run));
}

static void word_resume(struct ctl_run *run)
{
    if (have_machine(run))
        waits_for(run, boxd_resume(run->mnt->client, run->m->id, ready_again_number, run));
}

static void word_destroy(struct ctl_run *run)
{
    if (have_machine(run))
        waits_for(run, boxd_machines_destroy(run->mnt->machines, run->m, call_done, run));
}

/* ---- the account ---- */

/* Ends the line that begins at `from`. */
static int end_line(struct buf *out, size_t from)
{
    make_plain(out->data + from);
    return buf_addch(out, '\n');
}

static int list_line(struct buf *out, const struct boxd_machine_info *m)
{
    size_t from = out->len;
    int r = buf_addf(out, "%-20s %-10s %2u %6" PRIu64 "M %s", m->name, m->status, m->vcpu,
                     m->memory_bytes >> 20, m->image);

    for (size_t i = 0; i < m->labels.count && r >= 0; i++)
        r = buf_addf(out, " label.%s=%s", m->labels.items[i].key, m->labels.items[i].value);
    return r < 0 ? r : end_line(out, from);
}

static void list_done(void *arg, int r, const struct boxd_machine_info *const *machines,
                      size_t count)
{
    struct ctl_run *run = arg;

    for (size_t i = 0; i < count && r >= 0; i++)
        r = list_line(&run->out, machines[i]);
    finish(run, r);
}

static void word_list(struct ctl_run *run)
{
    waits_for(run, boxd_list(run->mnt->client, run->cmd.args, run->cmd.arg_count, list_done, run));
}

static int add_line(struct buf *out, const char *key, const char *value)
{
    size_t from = out->len;
    int r = buf_addf(out, "%s%s", key, value);

    return r < 0 || out->len == from ? r : end_line(out, from);
}

static void text_done(void *arg, int r, const char *text)
{
    struct ctl_run *run = arg;

    if (r >= 0)
        r = add_line(&run->out, "", text);
    finish(run, r);
}

static void word_suggest_name(struct ctl_run *run)
{
    waits_for(run, boxd_suggest_name(run->mnt->client, text_done, run));
}

static void whoami_done(void *arg, int r, const struct boxd_account *a)
{
    struct ctl_run *run = arg;

    if (r >= 0)
        r = add_line(&run->out, "user ", a->user_id);
    if (r >= 0)
        r = add_line(&run->out, "name ", a->display_name);
    if (r >= 0 && a->max_machines)
        r = buf_addf(&run->out, "machines %u\n", a->max_machines);
    if (r >= 0 && a->vcpu)
        r = buf_addf(&run->out, "vcpu %u\nmemory %" PRIu64 "M\n", a->vcpu, a->memory_bytes >> 20);
    finish(run, r);
}

static void word_whoami(struct ctl_run *run)
{
    waits_for(run, boxd_whoami(run->mnt->client, whoami_done, run));
}

static void word_refresh(struct ctl_run *run)
{
    if (run->cmd.arg_count && strcmp(run->cmd.args[0], "now")) {
        finish(run, boxd_words(-EINVAL, "'refresh' takes only 'now', not '%s'", run->cmd.args[0]));
        return;
    }
    waits_for(run, boxd_machines_refresh(run->mnt->machines, call_done, run));
}

/* ---- the tables, in the order of the manual ---- */

#define NO_OPTIONS NULL

const struct ctl_word ctl_account_words[] = {
    { "create", "new", 0, 1, "[NAME]", create_options, word_create,
      "make a machine; waits until it answers" },
    { "destroy", "remove", 1, 1, "NAME", NO_OPTIONS, word_destroy, "delete a machine for good" },
    { "list", "ls", 0, 64, "[LABEL[=VALUE]]...", NO_OPTIONS, word_list,
      "machines, all or those with these labels" },
    { "start", NULL, 1, 1, "NAME", NO_OPTIONS, word_start, "start a stopped machine" },
    { "stop", NULL, 1, 1, "NAME", NO_OPTIONS, word_stop, "stop a machine" },
    { "reboot", NULL, 1, 1, "NAME", NO_OPTIONS, word_reboot, "stop it and start it again" },
    { "pause", "suspend", 1, 1, "NAME", NO_OPTIONS, word_pause, "freeze it in memory" },
    { "resume", NULL, 1, 1, "NAME", NO_OPTIONS, word_resume, "let it go on" },
    { "suggest-name", NULL, 0, 0, NULL, NO_OPTIONS, word_suggest_name, "a free name" },
    { "whoami", NULL, 0, 0, NULL, NO_OPTIONS, word_whoami, "the account" },
    { "refresh", NULL, 0, 0, NULL, NO_OPTIONS, word_refresh, "ask for the list of machines now" },
    { 0 },
};

const struct ctl_word ctl_machine_words[] = {
    { "start", NULL, 0, 0, NULL, NO_OPTIONS, word_start, "start it; waits until it answers" },
    { "stop", NULL, 0, 0, NULL, NO_OPTIONS, word_stop, "stop it" },
    { "reboot", NULL, 0, 0, NULL, NO_OPTIONS, word_reboot, "stop it and start it again" },
    { "pause", "suspend", 0, 0, NULL, NO_OPTIONS, word_pause, "freeze it in memory" },
    { "resume", NULL, 0, 0, NULL, NO_OPTIONS, word_resume, "let it go on" },
    { "destroy", "remove", 0, 0, NULL, NO_OPTIONS, word_destroy, "delete it for good" },
    { "refresh", NULL, 0, 1, "[now]", NO_OPTIONS, word_refresh, "ask for its state now" },
    { 0 },
};
