/* Options of the command line, of -o and of fstab. */
#include "options.h"

#include "tap.h"

static struct options o;

static int parse(int (*fn)(struct options *, int, char **), const char *line)
{
    char **argv;
    size_t argc;
    int r = shell_split(line, &argv, &argc);

    if (r < 0)
        return r;
    options_clear(&o);
    options_init(&o);
    boxd_words_clear();
    r = fn(&o, (int)argc, argv);
    strv_free(argv);
    return r;
}

static void test_good(void)
{
    t("long options and -o are the same options");
    ok(parse(options_parse, "boxdfs --local -f --script-max 1G -o log=/l,debug,rmdir=delete /m") ==
       OPTIONS_MOUNT);
    ok(o.local && o.foreground && o.debug && o.rmdir_deletes && !o.allow_other);
    ok(o.script_max == UINT64_C(1) << 30);
    ok_str(o.log, "/l");
    ok_str(o.mount_point, "/m");
    ok(parse(options_parse, "boxdfs /m -o ready_timeout=2m --address=unix:/s") == OPTIONS_MOUNT);
    ok(o.ready_timeout_ms == 120000);
    ok_str(o.address, "unix:/s");

    t("the defaults are those of the manual");
    ok(parse(options_parse, "boxdfs /m") == OPTIONS_MOUNT);
    ok(o.script_max == UINT64_C(100) << 20 && o.ready_timeout_ms == 180000);

    t("a backslash keeps a comma, -- ends the options");
    ok(parse(options_parse, "boxdfs -o 'fsname=a\\,b' -- -m") == OPTIONS_MOUNT);
    ok_str(o.fsname, "a,b");
    ok_str(o.mount_point, "-m");

    t("help and version need no mount point");
    ok(parse(options_parse, "boxdfs --help") == OPTIONS_HELP);
    ok(parse(options_parse, "boxdfs -V") == OPTIONS_VERSION);
}

static void test_fstab(void)
{
    t("a line of fstab gives source, mount point and its own words");
    ok(parse(options_parse_helper,
             "mount.boxdfs local /m -o rw,_netdev,noauto,nofail,user,x-systemd.automount,debug") ==
       OPTIONS_MOUNT);
    ok(o.local && o.debug && !o.address);
    ok_str(o.fsname, "local");
    ok(parse(options_parse_helper, "mount.boxdfs https://h:1 /m -s") == OPTIONS_MOUNT);
    ok(!o.local);
    ok_str(o.address, "https://h:1");
    ok(parse(options_parse_helper, "mount.boxdfs local /m -fnv") == OPTIONS_NOTHING);
    ok(parse(options_parse_helper, "mount.boxdfs local") == -EINVAL);
}

static void test_bad(void)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        { "boxdfs", "a mount point is missing (see 'boxdfs help')" },
        { "boxdfs /a /b", "one mount point, not two: '/a' and '/b'" },
        { "boxdfs -o nonsense=1 /m", "unknown option 'nonsense' (see 'boxdfs help')" },
        { "boxdfs --nonsense /m", "unknown option '--nonsense' (see 'boxdfs help')" },
        { "boxdfs -x /m", "unknown option '-x' (see 'boxdfs help')" },
        { "boxdfs -o ro /m", "option 'ro' is refused: machines cannot be mounted read-only" },
        { "boxdfs -o script_max=lots /m",
          "option 'script_max' needs a size like 100M, not 'lots'" },
        { "boxdfs -o script_max /m", "option 'script_max' needs a value: script_max=SIZE" },
        { "boxdfs -o debug=1 /m", "option 'debug' takes no value" },
        { "boxdfs -o rmdir=yes /m", "option 'rmdir' can only be 'delete', not 'yes'" },
        { "boxdfs -o ready_timeout=0 /m",
          "option 'ready_timeout' needs seconds from 1 to 4294967, not '0'" },
        { "boxdfs -o allow_other /m",
          "'allow_other' without 'default_permissions' would let every user act as you: add -o "
          "default_permissions" },
        { "boxdfs --local --address=x /m", "'local' and 'address' exclude each other" },
    };

    t("a bad option is named, with its cure");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int r = parse(options_parse, rows[i].line);

        ok(r == -EINVAL);
        ok_str(boxd_error_words(r), rows[i].words);
    }
}

int main(void)
{
    test_good();
    test_fstab();
    test_bad();
    options_clear(&o);
    return tap_done();
}
