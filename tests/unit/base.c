/* Buffers, numbers, words split as a shell does, UTF-8, words for people. */
#include "base/base.h"

#include <boxd/error.h>

#include "base/buf.h"
#include "base/str.h"
#include "tap.h"

static void test_buf(void)
{
    _cleanup_buf_ struct buf b = { 0 };

    t("a buffer grows, keeps a NUL behind its text and can be stolen");
    ok_str(buf_str(&b), "");
    for (int i = 0; i < 1000; i++)
        ok(buf_addf(&b, "%d,", i) == 0);
    ok(b.len == strlen(b.data));
    buf_consume(&b, 2);
    ok(starts_with(buf_str(&b), "1,2,"));
    buf_truncate(&b, 3);
    ok_str(b.data, "1,2");
    ok(buf_reserve(&b, SIZE_MAX - 2) == -EOVERFLOW);
    ok_str(b.data, "1,2");
}

static void test_numbers(void)
{
    uint64_t v = 0;

    t("numbers are whole, unsigned and checked for overflow");
    ok(parse_u64("18446744073709551615", UINT64_MAX, &v) == 0 && v == UINT64_MAX);
    ok(parse_u64("18446744073709551616", UINT64_MAX, &v) == -ERANGE);
    ok(parse_u64("", 1, &v) == -EINVAL);
    ok(parse_u64("-1", UINT64_MAX, &v) == -EINVAL);
    ok(parse_u64(" 1", UINT64_MAX, &v) == -EINVAL);
    ok(parse_u64("11", 10, &v) == -ERANGE);
    t("sizes and seconds take units");
    ok(parse_size("512M", &v) == 0 && v == 512u << 20);
    ok(parse_size("4GiB", &v) == 0 && v == (uint64_t)4 << 30);
    ok(parse_size("99999999999G", &v) == -ERANGE);
    ok(parse_size("4X", &v) == -EINVAL);
    ok(parse_seconds("2h", &v) == 0 && v == 7200);
    ok(parse_seconds("2hh", &v) == -EINVAL);
}

static void split(const char *line, int want_r, const char *want)
{
    _cleanup_strv_ char **v = NULL;
    _cleanup_buf_ struct buf joined = { 0 };
    size_t n = 0;
    int r = shell_split(line, &v, &n);

    ok(r == want_r);
    for (size_t i = 0; i < n; i++)
        buf_addf(&joined, "%s<%s>", i ? " " : "", v[i]);
    if (r >= 0)
        ok_str(buf_str(&joined), want);
}

static void test_split(void)
{
    t("lines are split as a POSIX shell does");
    split("a  b\tc\n", 0, "<a> <b> <c>");
    split("create 'a b' label.x=\"c d\"", 0, "<create> <a b> <label.x=c d>");
    split("a\\ b 'it'\\''s' \"\\$x \\y\"", 0, "<a b> <it's> <$x \\y>");
    split("'' \"\"", 0, "<> <>");
    split("a # rest", 0, "<a>");
    split("a#b", 0, "<a#b>");
    split("  # only", 0, "");
    split("'open", -EINVAL, NULL);
    split("end\\", -EINVAL, NULL);
}

static void test_utf8(void)
{
    t("UTF-8 is well-formed or refused");
    ok(utf8_valid("h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    ok(!utf8_valid("\xc0\x80", 2));
    ok(!utf8_valid("\xed\xa0\x80", 3));
    ok(!utf8_valid("\xf4\x90\x80\x80", 4));
    ok(!utf8_valid("\xe2\x82", 2));
    ok(!utf8_valid("\xff", 1));
}

static void test_words(void)
{
    t("words belong to the result they were given for");
    ok(boxd_words(-ENOENT, "machine '%s' does not exist", "dev") == -ENOENT);
    ok_str(boxd_error_words(-ENOENT), "machine 'dev' does not exist");
    ok_str(boxd_error_words(-EIO), "Input/output error");
    boxd_words(-EIO, "cannot stat: %s", boxd_error_words(-ENOENT));
    ok_str(boxd_error_words(-EIO), "cannot stat: machine 'dev' does not exist");
    boxd_words_clear();
    ok_str(boxd_error_words(-ENOENT), "No such file or directory");
}

static void test_quote(void)
{
    _cleanup_buf_ struct buf b = { 0 };

    t("shell quoting survives quotes");
    ok(shell_quote(&b, "it's; $x") == 0);
    ok_str(b.data, "'it'\\''s; $x'");
}

int main(void)
{
    test_buf();
    test_numbers();
    test_split();
    test_utf8();
    test_words();
    test_quote();
    return tap_done();
}
