/* What boxd-local remembers on disk, and the text of a listing that a machine sends. */
#include "base/base.h"

#include "local/listing.h"
#include "local/state.h"
#include "tap.h"
#include <fcntl.h>
#include <sys/stat.h>

static char dir[] = "/tmp/boxdfs-state.XXXXXX";
static char vms[64];

static void fill(struct vm_record *r)
{
    ok(!vm_record_init(r));
    text_set(&r->id, "vm-1");
    text_set(&r->name, "dev");
    text_set(&r->image, "host");
    text_set(&r->restart_policy, "always");
    text_set(&r->failure, "line\n\"quoted\" \xc3\xa9");
    pairs_set(&r->labels, "team", "b");
    pairs_set(&r->labels, "env", "");
    pairs_set(&r->env, "A", "1 2");
    r->vcpu = 4;
    r->memory = (uint64_t)16 << 30;
    r->created_at = 1769854830;
    r->delete_at_ms = 1769854830123;
    r->wanted = VM_WANT_STOP;
}

static void check(const struct vm_record *r)
{
    ok_str(r->name, "dev");
    ok_str(r->failure, "line\n\"quoted\" \xc3\xa9");
    ok_str(pairs_get(&r->labels, "team"), "b");
    ok_str(pairs_get(&r->labels, "env"), "");
    ok_str(pairs_get(&r->env, "A"), "1 2");
    ok(r->vcpu == 4 && r->memory == (uint64_t)16 << 30 && r->wanted == VM_WANT_STOP);
    ok(r->created_at == 1769854830 && r->delete_at_ms == 1769854830123);
}

static int count_records(void *arg, struct vm_record *r)
{
    ++*(int *)arg;
    return 0;
}

static int check_record(void *arg, struct vm_record *r)
{
    check(r);
    return count_records(arg, r);
}

static void write_raw(const char *name, const char *text)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", vms, name);
    f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static bool exists(const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", vms, name);
    return !access(path, F_OK);
}

static void test_disk(void)
{
    struct vm_record r;
    int n = 0;

    t("a saved machine is loaded as it was");
    fill(&r);
    ok(!state_save(vms, &r) && !state_save(vms, &r));
    ok(!state_load(vms, check_record, &n) && n == 1);

    t("damaged files are set aside and the others loaded");
    write_raw("vm-2.json", "{\"id\":\"vm-2\"");
    write_raw("vm-3.json", "{}");
    write_raw("vm-4.json", "");
    write_raw("note.txt", "not ours");
    n = 0;
    ok(!state_load(vms, count_records, &n) && n == 1);
    ok(exists("vm-2.json.damaged") && exists("vm-3.json.damaged") && exists("vm-4.json.damaged"));
    ok(!exists("vm-2.json") && exists("note.txt") && exists("vm-1.json"));

    t("a removed machine is not loaded");
    n = 0;
    ok(!state_remove(vms, "vm-1") && !state_load(vms, count_records, &n) && n == 0);
    ok(!state_remove(vms, "vm-1"));
    vm_record_clear(&r);
}

static void test_hostile(void)
{
    _cleanup_free_ char *json = NULL;
    struct vm_record r, copy;

    fill(&r);
    json = vm_record_print(&r);
    t("every cut of a record is refused, none crashes");
    for (size_t n = 0; n + 1 < strlen(json); n++)
        ok(vm_record_parse(json, n, &copy) == -EBADMSG);
    t("a record cannot name a file elsewhere");
    text_set(&r.id, "../x");
    free(json);
    json = vm_record_print(&r);
    ok(vm_record_parse(json, strlen(json), &copy) == -EBADMSG);
    vm_record_clear(&r);
}

static void test_pairs(void)
{
    struct pairs p = { 0 };

    t("pairs are sorted, unique and removable");
    ok(!pairs_set(&p, "b", "1") && !pairs_set(&p, "a", "2") && !pairs_set(&p, "b", "3"));
    ok(p.count == 2 && !strcmp(p.items[0].key, "a"));
    ok_str(pairs_get(&p, "b"), "3");
    pairs_remove(&p, "a");
    pairs_remove(&p, "zz");
    ok(p.count == 1 && !pairs_get(&p, "a"));
    pairs_clear(&p);
}

static int parse(const char *text, bool cut, struct listing *l)
{
    *l = (struct listing){ 0 };
    return listing_parse(text, strlen(text), cut, l);
}

static void test_listing(void)
{
    static const char plain[] = "81a4 5 1700000000 1700000001/./a\n41ed 4096 7 8/./d\n";
    static const char *const bad[] = { "x",
                                       "81a4 5 1 1/./",
                                       "81a4 5 1 1/./\n",
                                       "zz 5 1 1/./a\n",
                                       "81a4 -5 1 1/./a\n",
                                       "81a4 5 1/./a\n",
                                       "/./a\n",
                                       "81a4 99999999999999999999999 1 1/./a\n" };
    struct listing l;

    t("a listing is read with its kinds, sizes, modes and times");
    ok(!parse(plain, false, &l) && l.count == 2 && !l.truncated);
    ok_str(l.entries[0]->name, "a");
    ok_str(l.entries[0]->permissions, "-rw-r--r--");
    ok(l.entries[0]->size_bytes == 5 && l.entries[0]->modified_at == 1700000000);
    ok(l.entries[0]->added_at == 1700000001 && !l.entries[0]->is_dir);
    ok(l.entries[1]->is_dir && !l.entries[1]->size_bytes);
    ok_str(l.entries[1]->permissions, "drwxr-xr-x");
    listing_clear(&l);

    t("a name that looks like a record is a name");
    ok(!parse("81a4 5 1 1/./a\n81a4 5 1 1\n41ed 0 1 1/./b\n", false, &l) && l.count == 2);
    ok_str(l.entries[0]->name, "a\n81a4 5 1 1");
    listing_clear(&l);

    t("a name that is not UTF-8 shows as UTF-8");
    ok(!parse("81a4 5 1 1/./x\xff\n", false, &l) && l.count == 1);
    ok_str(l.entries[0]->name, "x\xef\xbf\xbd");
    listing_clear(&l);

    t("a cut listing is truncated after its last whole record");
    ok(!parse("81a4 5 1 1/./a\n81a4 5 1 1/./b", true, &l) && l.count == 1 && l.truncated);
    listing_clear(&l);
    ok(!parse("", false, &l) && !l.count && !l.truncated);

    t("rubbish instead of a listing is refused");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ok(parse(bad[i], false, &l) == -EIO);
        listing_clear(&l);
    }
}

static void clean_up(void)
{
    static const char *const names[] = { "vm-2.json.damaged", "vm-3.json.damaged",
                                         "vm-4.json.damaged", "note.txt" };
    char path[128];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", vms, names[i]);
        unlink(path);
    }
    t("nothing else is left in the state directory");
    ok(!rmdir(vms) && !rmdir(dir));
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    snprintf(vms, sizeof(vms), "%s/vms", dir);
    test_disk();
    test_hostile();
    test_pairs();
    test_listing();
    clean_up();
    return tap_done();
}
