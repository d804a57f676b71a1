/* Nodes and their counts, the rule of signals, journals, status texts. */
#include "fs.h"

#include "interrupt.h"
#include "status.h"
#include "tap.h"

static int freed;

static void count_free(struct node *n)
{
    freed++;
}

static const struct node_ops ops = { .kind = "test", .free = count_free };

static void test_life(void)
{
    struct mount mnt = { 0 };
    struct node *root, *a, *b;

    t("a node lives while the kernel, a child or a holder has it");
    ok(node_table_new(&mnt.nodes) == 0);
    root = node_new(&mnt, &ops, NULL, "", sizeof *root);
    ok(root->id == FUSE_ROOT_ID);
    a = node_new(&mnt, &ops, root, "a", sizeof *a);
    b = node_new(&mnt, &ops, a, "b", sizeof *b);
    b->lookups = 3; /* the kernel's, which is one reference */
    node_unref(a);
    ok(node_find(&mnt, b->id) == b && node_child(root, "a") == a && node_child(a, "b") == b);
    node_forget(b, 2);
    ok(freed == 0);
    node_forget(b, 99);
    ok(freed == 2 && !node_child(root, "a"));

    t("a number is never used twice");
    a = node_new(&mnt, &ops, root, "a", sizeof *a);
    ok(a->id > 3);
    node_unref(a);

    t("a renamed node is found at its new place only");
    a = node_new(&mnt, &ops, root, "a", sizeof *a);
    b = node_new(&mnt, &ops, root, "b", sizeof *b);
    ok(node_move(b, a, "c") == 0);
    ok(node_child(a, "c") == b && !node_child(root, "b"));
    node_detach(b);
    ok(!node_child(a, "c"));
    ok_str(b->name, "c");
    node_table_free(mnt.nodes);
}

static void test_many(void)
{
    enum { MANY = 20000 };
    struct mount mnt = { 0 };
    struct node *root;
    fuse_ino_t last = 0;
    int missing = 0;

    t("20,000 children are all found, by name and by number, and all freed");
    freed = 0;
    ok(node_table_new(&mnt.nodes) == 0);
    root = node_new(&mnt, &ops, NULL, "", sizeof *root);
    for (int i = 0; i < MANY; i++) {
        char name[16];

        snprintf(name, sizeof name, "f%d", i);
        last = ((struct node *)node_new(&mnt, &ops, root, name, sizeof *root))->id;
    }
    for (int i = 0; i < MANY; i++) {
        char name[16];

        snprintf(name, sizeof name, "f%d", i);
        missing += !node_child(root, name);
    }
    ok(missing == 0 && node_find(&mnt, last) && !node_find(&mnt, last + 1));
    node_table_free(mnt.nodes);
    ok(freed == MANY + 1);
}

static void test_interrupt(void)
{
    static const char form[] = "Name:\tx\nSigQ:\t1/2\nSigPnd:\t%016llx\nShdPnd:\t%016llx\n"
                               "SigBlk:\t%016llx\nSigIgn:\t0000000000000000\n";
    static const struct {
        unsigned long long pending, shared, blocked;
        bool ends;
    } rows[] = {
        { 0, 0, 0, false },
        { 0x2, 0, 0, true },        /* INT */
        { 0, 0x4000, 0, true },     /* TERM, for the process */
        { 0x1, 0, 0, true },        /* HUP */
        { 0x4, 0, 0, true },        /* QUIT */
        { 0x100, 0, 0, true },      /* KILL */
        { 0x2, 0, 0x2, false },     /* INT, blocked */
        { 0, 0x10000, 0, false },   /* CHLD */
        { 0x2000, 0, 0, false },    /* ALRM */
        { 0, 0x8000000, 0, false }, /* WINCH */
        { 0x10000, 0x2, 0x10000, true },
    };
    char text[512];

    t("a wait ends for INT, TERM, HUP, QUIT and KILL, pending and not blocked, and for nothing "
      "else");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(text, sizeof text, form, rows[i].pending, rows[i].shared, rows[i].blocked);
        ok(interrupt_ends_wait(text) == rows[i].ends);
    }
    ok(!interrupt_ends_wait("rubbish"));
}

static void test_journal(void)
{
    struct journal *j = journal_new();
    const struct buf *b = journal_text(j);
    size_t lines = 0;

    t("a journal keeps the last lines, whole");
    for (int i = 0; i < 5000; i++)
        journal_add(j, "line %d", i);
    for (size_t i = 0; i < b->len; i++)
        lines += b->data[i] == '\n';
    ok(lines >= 700 && lines <= 1000);
    ok(strstr(b->data, "line 4999\n") && !strstr(b->data, "line 1000\n"));
    ok(b->data[4] == '-' && b->data[b->len - 1] == '\n');

    t("its size is bounded, and a line is one line");
    for (int i = 0; i < 1000; i++)
        journal_add(j, "%01500d\nforged", i);
    ok(b->len <= 300 * 1024);
    ok(!strstr(b->data, "\nforged") && strstr(b->data, "?forged\n"));
    journal_free(j);
}

static void test_status(void)
{
    _cleanup_free_ char *v = status_value("a 1\nab 2 3\n\nc 4", "ab");
    _cleanup_free_ char *last = status_value("a 1\nab 2 3\n\nc 4", "c");

    t("a value of a status text is found by its whole key");
    ok_str(v, "2 3");
    ok_str(last, "4");
    ok(!status_value("ab 2\n", "a"));
}

int main(void)
{
    test_life();
    test_many();
    test_interrupt();
    test_journal();
    test_status();
    return tap_done();
}
