/* A machine's /etc: a copy of what everybody may read of this computer's, without keys, users and
 * names, plus the files that make `boxd` and sudo work. */
#include "base/base.h"
#include "base/buf.h"
#include "base/str.h"
#include "helper/helper.h"
#include "helper/layer.h"

#include <boxd/error.h>
#include <dirent.h>
#include <fcntl.h>

static const char *const hidden_names[] = {
    "etc/ssh",
    "etc/sudoers",
    "etc/sudoers.d",
    "etc/NetworkManager",
    "etc/wpa_supplicant",
    "etc/ssl/private",
    "etc/cron.d",
    "etc/machine-id",
    "etc/fstab",
    "etc/mtab",
    "etc/resolv.conf",
    "etc/hostname",
    "etc/hosts",
    "etc/shadow",
    "etc/shadow-",
    "etc/gshadow",
    "etc/gshadow-",
    "etc/passwd",
    "etc/passwd-",
    "etc/group",
    "etc/group-",
    "etc/subuid",
    "etc/subgid",
    "etc/subuid-",
    "etc/subgid-",
    "etc/krb5.keytab",
    "etc/pam.d",
    "etc/nsswitch.conf",
    "etc/ld.so.preload",
    "etc/sudo.conf",
};

static bool hidden(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(hidden_names); i++)
        if (!strcmp(path, hidden_names[i]))
            return true;
    return false;
}

/* A whole small file of this computer's; "" when it cannot be read. */
static char *host_text(const struct layer *l, const char *path)
{
    _cleanup_close_ int fd = openat(l->root, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    _cleanup_buf_ struct buf b = { 0 };
    ssize_t n = 0;

    do {
        if (buf_reserve(&b, 65536) < 0)
            return NULL;
        n = fd < 0 ? 0 : read(fd, b.data + b.len, 65536);
        if (n > 0)
            b.len += (size_t)n;
    } while (n > 0 && b.len < ((size_t)4 << 20));
    return buf_add(&b, "", 0) < 0 ? NULL : strndup(buf_str(&b), b.len);
}

/* Whether the id of an account belongs to the system and not to a person. */
static bool system_id(const char *s)
{
    uint64_t id;

    return parse_u64(s, UINT32_MAX, &id) == 0 && (id < 1000 || id == 65534);
}

/* passwd and shadow: the system's accounts and boxd, nobody with a password. */
static int users(const struct layer *l, struct buf *passwd, struct buf *shadow)
{
    _cleanup_free_ char *text = host_text(l, "etc/passwd");
    char *at = text, *line;
    int r = text ? 0 : -ENOMEM;

    while (r == 0 && (line = strsep(&at, "\n"))) {
        char *f[7] = { 0 };
        size_t n = 0;

        while (line && n < ARRAY_LEN(f))
            f[n++] = strsep(&line, ":");
        if (n < ARRAY_LEN(f) || !system_id(f[2]) || !strcmp(f[0], "boxd") || !strcmp(f[0], "root"))
            continue;
        r = buf_addf(passwd, "%s:x:%s:%s:%s:%s:%s\n", f[0], f[2], f[3], f[4], f[5], f[6]);
        if (r == 0)
            r = buf_addf(shadow, "%s:*:19000:0:99999:7:::\n", f[0]);
    }
    return r;
}

/* Appends the members that are accounts of the machine. */
static int members(struct buf *group, char *list, const char *passwd)
{
    const char *name, *comma = "";
    int r = 0;

    while (r == 0 && (name = strsep(&list, ","))) {
        _cleanup_free_ char *entry = strf("\n%s:x:", name);

        if (!entry || !*name || !strstr(passwd, entry))
            continue;
        r = buf_addf(group, "%s%s", comma, name);
        comma = ",";
    }
    return r < 0 ? r : buf_addch(group, '\n');
}

static int groups(const struct layer *l, const char *passwd, struct buf *group, struct buf *gshadow,
                  gid_t *shadow_gid)
{
    _cleanup_free_ char *text = host_text(l, "etc/group");
    char *at = text, *line;
    uint64_t id;
    int r = text ? 0 : -ENOMEM;

    while (r == 0 && (line = strsep(&at, "\n"))) {
        char *f[4] = { 0 };
        size_t n = 0;

        while (line && n < ARRAY_LEN(f))
            f[n++] = strsep(&line, ":");
        if (n < ARRAY_LEN(f) || !system_id(f[2]) || !strcmp(f[0], "boxd"))
            continue;
        if (!strcmp(f[0], "shadow") && parse_u64(f[2], UINT32_MAX, &id) == 0)
            *shadow_gid = (gid_t)id;
        r = buf_addf(group, "%s:x:%s:", f[0], f[2]);
        if (r == 0)
            r = members(group, f[3], passwd);
        if (r == 0)
            r = buf_addf(gshadow, "%s:!::\n", f[0]);
    }
    return r;
}

static int accounts(const struct layer *l)
{
    _cleanup_buf_ struct buf passwd = { 0 }, shadow = { 0 }, group = { 0 }, gshadow = { 0 };
    gid_t gid = 0;
    int r = buf_addstr(&passwd, "root:x:0:0:root:/root:/bin/bash\n");

    if (faccessat(l->root, "bin/bash", X_OK, 0) < 0) {
        buf_clear(&passwd);
        r = buf_addstr(&passwd, "root:x:0:0:root:/root:/bin/sh\n");
    }
    if (r == 0)
        r = buf_addstr(&shadow, "root:*:19000:0:99999:7:::\n");
    if (r == 0)
        r = users(l, &passwd, &shadow);
    if (r == 0)
        r = groups(l, buf_str(&passwd), &group, &gshadow, &gid);
    if (r == 0)
        r = buf_addf(&passwd, "boxd:x:1000:1000:boxd:/home/boxd:%s\n",
                     faccessat(l->root, "bin/bash", X_OK, 0) < 0 ? "/bin/sh" : "/bin/bash");
    if (r == 0)
        r = buf_addstr(&shadow, "boxd:*:19000:0:99999:7:::\n");
    if (r == 0)
        r = buf_addstr(&group, "boxd:x:1000:\n");
    if (r == 0)
        r = buf_addstr(&gshadow, "boxd:!::\n");
    if (r == 0)
        r = layer_file(l, "etc/passwd", buf_str(&passwd), 0644, 0);
    if (r == 0)
        r = layer_file(l, "etc/group", buf_str(&group), 0644, 0);
    if (r == 0)
        r = layer_file(l, "etc/shadow", buf_str(&shadow), 0640, gid);
    return r < 0 ? r : layer_file(l, "etc/gshadow", buf_str(&gshadow), 0640, gid);
}

/* ---- fixed files ------------------------------------------------------------------------------
 */

static const struct {
    const char *path;
    mode_t mode;
    const char *text;
} files[] = {
    { "etc/subuid", 0644, "" },
    { "etc/subgid", 0644, "" },
    { "etc/fstab", 0644, "" },
    { "etc/resolv.conf", 0644, "" },
    { "etc/hostname", 0644, "localhost\n" },
    { "etc/hosts", 0644, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" },
    { "etc/nsswitch.conf", 0644,
      "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\n"
      "networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n" },
    { "etc/sudoers", 0440,
      "Defaults env_reset, runas_allow_unknown_id\n"
      "Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n"
      "Defaults !syslog, !lecture, !pam_session\n"
      "root ALL=(ALL:ALL) NOPASSWD: ALL\n"
      "boxd ALL=(ALL:ALL) NOPASSWD: ALL\n"
      "@includedir /etc/sudoers.d\n" },
    { "etc/sudo.conf", 0644, "Set probe_interfaces false\nSet disable_coredump false\n" },
};

/* This computer's PAM may ask directories and tokens that do not exist in a machine. */
#define PAM_ROOT "auth sufficient pam_rootok.so\n"
#define PAM_SYSTEM                                                     \
    "auth required pam_unix.so nullok\naccount required pam_unix.so\n" \
    "password required pam_unix.so\nsession required pam_unix.so\n"
#define PAM_ANYBODY                                                 \
    "auth required pam_permit.so\naccount required pam_permit.so\n" \
    "session required pam_permit.so\n"

static const struct {
    const char *names; /* separated by blanks */
    const char *text;
} pam[] = {
    { "common-auth", "auth required pam_unix.so nullok\n" },
    { "common-account", "account required pam_unix.so\n" },
    { "common-password", "password required pam_unix.so yescrypt\n" },
    { "common-session common-session-noninteractive", "session required pam_unix.so\n" },
    { "sudo sudo-i", PAM_ANYBODY },
    { "passwd chpasswd login other", PAM_SYSTEM },
    { "su su-l useradd userdel usermod groupadd groupdel groupmod chfn chsh newusers runuser "
      "runuser-l chage",
      PAM_ROOT PAM_SYSTEM },
};

static int pam_files(const struct layer *l)
{
    int r = layer_dir(l, "etc/pam.d", 0755, false);

    for (size_t i = 0; i < ARRAY_LEN(pam); i++) {
        _cleanup_free_ char *names = strdup(pam[i].names);
        char *at = names, *name;

        while (r == 0 && at && (name = strsep(&at, " "))) {
            char path[64];

            snprintf(path, sizeof path, "etc/pam.d/%s", name);
            r = layer_file(l, path, pam[i].text, 0644, 0);
        }
    }
    return r;
}

static int copy_etc(const struct layer *l)
{
    int fd = openat(l->root, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    char path[512];

    while (r == 0 && d && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(path, sizeof path, "etc/%s", e->d_name);
        r = layer_copy(l, path, hidden);
    }
    return r;
}

int layer_etc(const struct layer *l)
{
    char id[40];
    int r = layer_dir(l, "etc", 0755, false);

    if (r == 0)
        r = copy_etc(l);
    if (r == 0)
        r = layer_dir(l, "etc/ssh", 0755, false);
    if (r == 0)
        r = layer_dir(l, "etc/sudoers.d", 0755, false);
    if (r == 0)
        r = accounts(l);
    for (size_t i = 0; i < ARRAY_LEN(files) && r == 0; i++)
        r = layer_file(l, files[i].path, files[i].text, files[i].mode, 0);
    if (r == 0)
        r = pam_files(l);
    if (r == 0)
        r = random_hex(id, 16);
    if (r < 0)
        return r;
    id[32] = '\n';
    id[33] = '\0';
    r = layer_file(l, "etc/machine-id", id, 0444, 0);
    if (r == 0 && l->one)
        r = layer_file(l, "etc/apt/apt.conf.d/00boxd", "APT::Sandbox::User \"root\";\n", 0644, 0);
    return r < 0 ? r : layer_link(l, "../proc/self/mounts", "etc/mtab");
}
