/* What the service takes as names, labels, sizes, paths and cron lines. */
#include "base/base.h"

#include "local/cron.h"
#include "local/validate.h"
#include "tap.h"

#define GIB ((uint64_t)1 << 30)

static const char *text(char c, size_t n)
{
    static char buffer[8192];

    memset(buffer, c, n);
    buffer[n] = '\0';
    return buffer;
}

static void test_names(void)
{
    static const char *const good[] = { "a", "a1", "0", "dev-box-2", "x--y" };
    static const char *const bad[] = {
        "", "-a", "a-", "A", "a.b", "a_b", "a b", "a/b", "\xc3\xa9"
    };

    t("host names are valid names");
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        ok(!validate_name(good[i]));
    ok(!validate_name(text('a', 63)));
    t("other names are refused");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ok(validate_name(bad[i]) == -EINVAL);
    ok(validate_name(text('a', 64)) == -EINVAL);
}

static void test_labels(void)
{
    static const char *const good[] = { "a", "team", "app.kubernetes/name", "x_y-z.0" };
    static const char *const bad[] = { "", ".a", "a-", "Team", "a b", "a=b", "boxd/x" };
    char wide[2 * 257 + 1] = "";

    t("label keys follow the service's rule");
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        ok(!validate_label(good[i], "v"));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ok(validate_label(bad[i], "v") == -EINVAL);
    ok(!validate_label(text('k', 63), ""));
    ok(validate_label(text('k', 64), "") == -EINVAL);

    t("label values are counted in characters");
    for (size_t i = 0; i < 256; i++)
        memcpy(wide + 2 * i, "\xc3\xa9", 3);
    ok(!validate_label("k", wide));
    memcpy(wide + 512, "\xc3\xa9", 3);
    ok(validate_label("k", wide) == -EINVAL);

    t("label values hold no control characters");
    ok(validate_label("k", "a\nb") == -EINVAL);
    ok(validate_label("k", "\x7f") == -EINVAL);
    ok(validate_label("k", "\xc2\x85") == -EINVAL);
    ok(!validate_label("k", "\xc2\xa0=,"));
}

static void test_selectors(void)
{
    t("a selector of a key matches any value");
    ok(!validate_selector("team"));
    ok(selector_matches("team", "team", "a"));
    ok(!selector_matches("team", "teams", "a"));
    t("a selector with a value matches that value only");
    ok(selector_matches("team=a=b", "team", "a=b"));
    ok(!selector_matches("team=a", "team", "ab"));
    ok(selector_matches("team=", "team", ""));
    t("malformed selectors are refused");
    ok(validate_selector("") == -EINVAL);
    ok(validate_selector("=a") == -EINVAL);
    ok(validate_selector("A=a") == -EINVAL);
}

static void test_sizes(void)
{
    uint32_t vcpu;
    uint64_t memory;

    t("either part of a size gives the other");
    ok(!validate_size(4, 0, &vcpu, &memory) && vcpu == 4 && memory == 16 * GIB);
    ok(!validate_size(0, 4 * GIB, &vcpu, &memory) && vcpu == 1 && memory == 4 * GIB);
    ok(!validate_size(0, 0, &vcpu, &memory) && vcpu == 2 && memory == 8 * GIB);
    ok(!validate_size(8, 32 * GIB, &vcpu, &memory));
    t("sizes outside the table are refused");
    ok(validate_size(3, 0, &vcpu, &memory) == -EINVAL);
    ok(validate_size(1, 8 * GIB, &vcpu, &memory) == -EINVAL);
    ok(validate_size(0, 1, &vcpu, &memory) == -EINVAL);
    t("disks are none or 100 GiB");
    ok(!validate_disk(0) && !validate_disk(100 * GIB) && validate_disk(1) == -EINVAL);
}

static void test_others(void)
{
    t("restart policies are always and never");
    ok(!validate_restart_policy("") && !validate_restart_policy("always"));
    ok(!validate_restart_policy("never") && validate_restart_policy("no") == -EINVAL);
    t("environment names are a shell's");
    ok(!validate_env_key("A_1") && !validate_env_key("_"));
    ok(validate_env_key("") == -EINVAL && validate_env_key("1A") == -EINVAL);
    ok(validate_env_key("A=B") == -EINVAL && validate_env_key("A;B") == -EINVAL);
    t("paths are neither empty nor too long");
    ok(!validate_path("a") && validate_path("") == -EINVAL);
    ok(!validate_path(text('p', 4095)) && validate_path(text('p', 4096)) == -EINVAL);
}

/* 2026-01-31 10:20:30 UTC, a Saturday */
#define FROM 1769854830

static int64_t next(const char *line)
{
    int64_t at;
    int r = cron_next(line, FROM, &at);

    return r < 0 ? r : at;
}

static void test_cron(void)
{
    static const char *const bad[] = { "",
                                       "* * * *",
                                       "* * * * * *",
                                       "60 * * * *",
                                       "* 24 * * *",
                                       "* * 0 * *",
                                       "* * * 13 *",
                                       "* * * * 8",
                                       "5-3 * * * *",
                                       "*/0 * * * *",
                                       "a * * * *",
                                       "1, * * * *",
                                       "1-99999999999 * * * *" };

    t("a cron line gives its next time in UTC");
    ok(next("* * * * *") == FROM - 30 + 60);
    ok(next("*/15 * * * *") == FROM - 30 + 10 * 60);
    ok(next("20 10 * * *") == FROM - 30 + 86400);
    ok(next("0 3 * * *") == 1769914800);  /* Feb 1 03:00 */
    ok(next("0 0 29 2 *") == 1835395200); /* Feb 29 2028 */
    ok(next("0 0 1 2 *") == 1769904000);  /* Feb 1 */
    ok(next("0 12 * * 1") == 1770033600); /* Monday Feb 2 */
    ok(next("0 12 * * 7") == next("0 12 * * 0"));
    ok(next("0,30 9-11 * * *") == 1769855400); /* 10:30 */
    t("day and weekday together mean either");
    ok(next("0 0 15 * 1") == 1769990400); /* Monday Feb 2 before the 15th */
    t("malformed cron lines, and those that never fire, are refused");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ok(next(bad[i]) == -EINVAL);
    ok(next("0 0 31 2 *") == -EINVAL);
}

int main(void)
{
    test_names();
    test_labels();
    test_selectors();
    test_sizes();
    test_others();
    test_cron();
    return tap_done();
}
