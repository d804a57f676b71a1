/* The words of ctl: the parser takes what the tables say and names what it refuses. */
#include "ctl.h"

#include "tap.h"

static const struct ctl_option options[] = {
    { "vcpu", CTL_NUMBER, "N" },
    { "memory", CTL_SIZE, "SIZE" },
    { "lease", CTL_SECONDS, "TIME" },
    { "label", CTL_PAIR, NULL },
    { "restart", CTL_CHOICE, "always|never" },
    { "isolated", CTL_FLAG, NULL },
    { NULL, CTL_TEXT, NULL },
};
static const struct ctl_word words[] = {
    { "create", "new", 0, 1, "[NAME]", options, NULL, "make" },
    { "destroy", NULL, 1, 1, "NAME", NULL, NULL, "delete" },
    { "list", NULL, 0, 3, "[LABEL]...", NULL, NULL, "list" },
    { 0 },
};

static int parse(const char *line, struct ctl_command *c)
{
    boxd_words_clear();
    return ctl_parse(words, line, c);
}

static void test_good(void)
{
    struct ctl_command c;

    t("a command has its arguments and its options");
    ok(parse("create 'my box' vcpu=4 memory=8G label.team='a b' lease=2h restart=never isolated",
             &c) == 0);
    ok_str(c.word->name, "create");
    ok(c.arg_count == 1 && c.setting_count == 6);
    ok_str(c.args[0], "my box");
    ok(c.settings[0].number == 4);
    ok(c.settings[1].number == UINT64_C(8) << 30);
    ok_str(c.settings[2].key, "team");
    ok_str(c.settings[2].value, "a b");
    ok(c.settings[3].number == 7200);
    ok_str(c.settings[4].value, "never");
    ok(!c.settings[5].value);
    ctl_command_clear(&c);

    t("an alias is the same word, and a word without options takes '=' as text");
    ok(parse("new", &c) == 0);
    ok_str(c.word->name, "create");
    ctl_command_clear(&c);
    ok(parse("list team=a stage", &c) == 0);
    ok(c.arg_count == 2 && c.setting_count == 0);
    ok_str(c.args[0], "team=a");
    ctl_command_clear(&c);

    t("empty lines and comments are no commands");
    for (const char *const *p = (const char *const[]){ "", "   ", "# destroy x", NULL }; *p; p++) {
        ok(parse(*p, &c) == 0 && !c.word);
        ctl_command_clear(&c);
    }
}

static void test_bad(void)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        { "creat x", "unknown command 'creat': did you mean 'create'" },
        { "frobnicate", "unknown command 'frobnicate' (reading ctl shows the commands)" },
        { "destroy", "'destroy' needs NAME" },
        { "destroy a b", "'destroy' does not take 'b' (usage: destroy NAME)" },
        { "create a cpu=2", "'create' has no option 'cpu': did you mean 'vcpu'" },
        { "create a vcpu=many", "option 'vcpu' needs a number from 1 to 1024, not 'many'" },
        { "create a vcpu=0", "option 'vcpu' needs a number from 1 to 1024, not '0'" },
        { "create a vcpu", "option 'vcpu' needs a value: a number from 1 to 1024" },
        { "create a memory=4X", "option 'memory' needs a size like 4G, not '4X'" },
        { "create a restart=alway", "option 'restart' needs always|never, not 'alway'" },
        { "create a isolated=yes", "option 'isolated' takes no value" },
        { "create a vcpu=1 vcpu=2", "option 'vcpu' is given twice" },
        { "create a label.=x", "'create' has no option 'label.': did you mean 'label'" },
        { "create a b", "'create' does not take 'b' (usage: create [NAME])" },
        { "create a zzzzzzz=1", "'create' has no option 'zzzzzzz': it takes vcpu memory lease "
                                "label.KEY restart isolated" },
    };

    t("a bad word is named, with what was expected");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ctl_command c;
        int r = parse(rows[i].line, &c);

        ok(r == -EINVAL);
        ok_str(boxd_error_words(r), rows[i].words);
        ctl_command_clear(&c);
    }

    t("an open quote is refused");
    struct ctl_command c;
    ok(parse("destroy 'a", &c) == -EINVAL);
    ctl_command_clear(&c);

    t("bytes that are no text are refused");
    ok(parse("destroy \xff", &c) == -EINVAL);
    ctl_command_clear(&c);
    ok(parse("create a label.x=\xff", &c) == -EINVAL);
    ctl_command_clear(&c);
}

static bool all_comments(const char *text)
{
    for (const char *p = text; *p; p = strchr(p, '\n') + 1)
        if (*p != '#' || !strchr(p, '\n'))
            return false;
    return true;
}

static void test_tables(void)
{
    _cleanup_buf_ struct buf account = { 0 }, machine = { 0 };

    t("the usage is comments only, and names every command");
    ok(ctl_usage(ctl_account_words, "the account", &account) == 0);
    ok(ctl_usage(ctl_machine_words, "a machine", &machine) == 0);
    ok(all_comments(account.data) && all_comments(machine.data));
    for (const struct ctl_word *w = ctl_account_words; w->name; w++)
        ok(strstr(account.data, w->name) && w->run && w->help && w->min <= w->max);
    for (const struct ctl_word *w = ctl_machine_words; w->name; w++)
        ok(strstr(machine.data, w->name) && w->run && w->help && w->min <= w->max);
}

int main(void)
{
    test_good();
    test_bad();
    test_tables();
    return tap_done();
}
