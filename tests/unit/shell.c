/* The wrapper that runs scripts in a machine, fed by pipes in the three shells it must live with:
 * whole, line by line and cut at random. */
#include "base/base.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/str.h"
#include "script/wrapper.h"
#include "tap.h"

#define NONCE "0123456789abcdef0123456789abcdef"

struct session {
    pid_t pid;
    int in, out;
    struct reports reports;
    struct buf text, partial;
    uint64_t sent, seen, ran;
    int ended; /* the status, or -1 */
};

static const char *interpreter;

static void on_output(void *arg, const char *data, size_t n)
{
    struct session *s = arg;

    buf_add(&s->text, data, n);
}

static bool on_report(void *arg, char kind, int status)
{
    struct session *s = arg;

    s->seen++;
    s->ran += kind == 'R';
    if (kind == 'X')
        s->ended = status;
    return kind != 'X';
}

/* The wrapper's line with every /bin/sh replaced by the shell under test. */
static char *line_for_shell(void)
{
    _cleanup_buf_ struct buf line = { 0 }, other = { 0 };
    const char *p, *at;

    wrapper_line(&line, "/");
    for (p = line.data; (at = strstr(p, "/bin/sh")); p = at + 7) {
        buf_add(&other, p, (size_t)(at - p));
        buf_addstr(&other, interpreter);
    }
    buf_addstr(&other, p);
    return buf_steal(&other);
}

static void start(struct session *s, bool stop)
{
    _cleanup_free_ char *line = line_for_shell(), *command = NULL;
    _cleanup_buf_ struct buf hello = { 0 };
    int in[2], out[2];

    *s = (struct session){
        .ended = -1,
        .reports = { .nonce = NONCE, .output = on_output, .report = on_report, .arg = s }
    };
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        abort();
    command = strf("exec %s -c \"$0\"", interpreter);
    s->pid = fork();
    if (!s->pid) {
        setsid();
        dup2(in[0], 0);
        dup2(out[1], 1);
        execl("/bin/sh", "sh", "-c", command, line, NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    s->in = in[1];
    s->out = out[0];
    wrapper_greeting(&hello, NONCE, stop);
    if (write(s->in, hello.data, hello.len) < 0)
        abort();
}

/* Waits until every frame is reported or the shell has ended; false after 10 s. */
static bool settle(struct session *s)
{
    uint64_t limit = now_ms() + 10000;

    while (s->ended < 0 && s->seen < s->sent && now_ms() < limit) {
        struct pollfd p = { .fd = s->out, .events = POLLIN };
        char data[65536];
        ssize_t n;

        if (poll(&p, 1, 100) <= 0)
            continue;
        n = read(s->out, data, sizeof data);
        if (n <= 0)
            return false;
        reports_feed(&s->reports, data, (size_t)n);
    }
    return s->ended >= 0 || s->seen == s->sent;
}

/* Gives text as one write; what stands behind the last newline is kept for the next. */
static bool give(struct session *s, const char *text, size_t n)
{
    _cleanup_buf_ struct buf frames = { 0 };
    size_t whole;

    buf_add(&s->partial, text, n);
    for (whole = s->partial.len; whole && s->partial.data[whole - 1] != '\n'; whole--)
        ;
    wrapper_frames(&frames, s->partial.data, whole, &s->sent);
    buf_consume(&s->partial, whole);
    if (frames.len && s->ended < 0 && write(s->in, frames.data, frames.len) < 0 && errno != EPIPE)
        return false;
    return settle(s);
}

/* Ends the text and returns the exit status, -1 when it hung. */
static int finish(struct session *s)
{
    if (s->partial.len)
        give(s, "\n", 1);
    close(s->in);
    s->sent = UINT64_MAX;
    settle(s);
    close(s->out);
    kill(-s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    buf_clear(&s->partial);
    buf_clear(&s->reports.held);
    return s->ended;
}

static const struct {
    const char *name, *text, *output; /* NULL: any */
    bool plain;                       /* without -e */
    int status;
} cases[] = {
    { "simple", "echo a\ncd /tmp; x=5\necho $x $PWD\n", "a\n5 /tmp\n", 0, 0 },
    { "no newline", "echo a", "a\n", 0, 0 },
    { "mid word", "echo abcd\n", "abcd\n", 0, 0 },
    { "if", "if true\nthen echo y\nfi\necho z\n", "y\nz\n", 0, 0 },
    { "here-document", "cat <<X\nl1\nl2\nX\necho after\n", "l1\nl2\nafter\n", 0, 0 },
    { "quote", "echo 'a\nb'\n", "a\nb\n", 0, 0 },
    { "backslash", "echo a \\\nb\n", "a b\n", 0, 0 },
    { "and", "true &&\necho yes\n", "yes\n", 0, 0 },
    { "function", "f(){\necho in $1\n}\nf 3\n", "in 3\n", 0, 0 },
    { "case", "case x in\nx) echo c;;\nesac\n", "c\n", 0, 0 },
    { "exit 3", "exit 3\necho no\n", "", 0, 3 },
    { "false", "false\necho no\n", "", 0, 1 },
    { "false without -e", "false\necho $?\n", "1\n", 1, 0 },
    { "alias", "alias q='echo aliased'\nq\n", NULL, 0, 0 },
    { "background", "sleep 0.2 &\necho fg\n", "fg\n", 0, 0 },
    { "stdin", "cat\nread x || echo eof\necho done\n", "eof\ndone\n", 0, 0 },
    { "exec of another", "exec sleep 0.1\n", "", 0, 0 },
    { "incomplete", "if true\nthen echo y\n", NULL, 0, -2 },
    { "fifo",
      "mkfifo /tmp/ff$$; (sleep 0.1; echo hi >/tmp/ff$$)& read v </tmp/ff$$; rm /tmp/ff$$\n"
      "echo v=$v\n",
      "v=hi\n", 0, 0 },
    { "wait", "sleep 0.1 & wait\necho w\n", "w\n", 0, 0 },
    { "subshell", "(cd /; exec sleep 0.1)\necho k | cat\n", "k\n", 0, 0 },
    { "exit trap", "trap 'echo bye' EXIT\necho t\n", "t\nbye\n", 0, 0 },
    { "set +e", "set +e\nfalse\necho on\n", "on\n", 0, 0 },
    { "set -x", "set -x\n: a\nset +x\necho off\n", NULL, 0, 0 },
    { "set -u", "set -u\necho ${a:-b}\n", "b\n", 0, 0 },
    { "positional", "set -- a b\necho $2\n", "b\n", 0, 0 },
    { "break outside", "break\ncontinue\necho still\n", NULL, 1, 0 },
    { "redirected", "exec >/dev/null\necho lost\n", "", 0, 0 },
    { "stderr in order", "echo a\necho b >&2\necho c\n", "a\nb\nc\n", 0, 0 },
    { "descriptor", "exec 9</dev/null\ncat <&9\necho nine\n", "nine\n", 0, 0 },
    { "no newline out", "printf x\nprintf y\n", "xy", 0, 0 },
};

/* How a text is cut: 0 whole, 1 line by line, 2 at random. */
static void run_case(size_t i, int cut)
{
    const char *text = cases[i].text;
    size_t n = strlen(text);
    struct session s;
    bool good = true;

    start(&s, !cases[i].plain);
    while (n && good) {
        const char *end = strchr(text, '\n');
        size_t take = cut == 0   ? n
                      : cut == 1 ? (end ? (size_t)(end - text) + 1 : n)
                                 : 1 + (size_t)rand() % 7;

        if (take > n)
            take = n;
        good = give(&s, text, take);
        text += take;
        n -= take;
    }
    ok(good);
    if (!good)
        printf("# %s, cut %d: no report\n", cases[i].name, cut);
    int status = finish(&s);

    if (cases[i].status == -2 ? status <= 0 : status != cases[i].status) {
        printf("# %s in %s, cut %d: status %d\n", cases[i].name, interpreter, cut, status);
        ok(!"the right status");
    }
    if (cases[i].output && !ok_str(buf_str(&s.text), cases[i].output))
        printf("# %s in %s, cut %d\n", cases[i].name, interpreter, cut);
    buf_clear(&s.text);
}

static void test_failures(void)
{
    struct session s;

    t("a syntax error fails at once, not at the end");
    start(&s, true);
    ok(give(&s, "echo one\n)\n", 11) && s.ended > 0);
    finish(&s);
    ok(starts_with(buf_str(&s.text), "one\n"));
    buf_clear(&s.text);
    t("a complete text has run when it is reported, an incomplete one has not");
    start(&s, true);
    ok(give(&s, "if true; then\n", 14) && s.ran == 0);
    ok(give(&s, "echo x; fi\n", 11) && s.ran == 1);
    ok_str(buf_str(&s.text), "x\n");
    ok(finish(&s) == 0);
    buf_clear(&s.text);
    t("set -x shows the script's commands and nothing of the wrapper");
    start(&s, true);
    ok(give(&s, "set -x\n", 7) && give(&s, "echo a\n", 7) && give(&s, "echo b\n", 7));
    ok(!strstr(buf_str(&s.text), "__b") && strstr(buf_str(&s.text), "+ echo b"));
    finish(&s);
    buf_clear(&s.text);
    t("exit, then binary rubbish: the exit counts");
    start(&s, true);
    ok(give(&s, "echo x; exit 4\n", 15) && s.ended == 4);
    ok(finish(&s) == 4);
    buf_clear(&s.text);
}

static void test_long(void)
{
    _cleanup_buf_ struct buf text = { 0 };
    uint64_t from = now_ms();
    struct session s;

    t("a script of 20000 lines runs in a moment");
    for (int i = 0; i < 20000; i++)
        buf_addf(&text, "x=$((%d+1))\n", i);
    buf_addstr(&text, "echo $x\n");
    start(&s, true);
    fcntl(s.in, F_SETPIPE_SZ, 1 << 20);
    ok(give(&s, text.data, text.len));
    ok(finish(&s) == 0);
    ok_str(buf_str(&s.text), "20000\n");
    ok(now_ms() - from < 40000); /* 2 s; work that grows with the square takes minutes */
    buf_clear(&s.text);
}

static bool stop_at_end(void *arg, char kind, int status)
{
    buf_addf(arg, "<%c%d>", kind, status);
    return kind != 'X';
}

static void add_text(void *arg, const char *data, size_t n)
{
    buf_add(arg, data, n);
}

static void test_reports(void)
{
    static const char stream[] =
        "a" NONCE "R\n0123" NONCE "Q\n" NONCE "X12345678\n" NONCE NONCE "I\nz" NONCE "X42\nrest";
    static const char want[] = "a<R0>0123" NONCE "Q\n" NONCE "X12345678\n" NONCE "<I0>z<X42>";

    t("reports are found wherever the stream is cut, near misses are output");
    for (size_t step = 1; step < sizeof stream; step++) {
        struct buf got = { 0 };
        struct reports r = {
            .nonce = NONCE, .output = add_text, .report = stop_at_end, .arg = &got
        };

        for (size_t i = 0; i < sizeof stream - 1 && !strstr(buf_str(&got), "X42"); i += step)
            reports_feed(&r, stream + i, i + step < sizeof stream ? step : sizeof stream - 1 - i);
        ok_str(buf_str(&got), want);
        buf_clear(&got);
        buf_clear(&r.held);
    }
}

int main(void)
{
    static const char *const shells[] = { "/bin/dash", "/bin/bash --posix", "/bin/busybox ash" };

    signal(SIGPIPE, SIG_IGN);
    test_reports();
    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        _cleanup_free_ char *path = strndup(shells[i], strcspn(shells[i], " "));

        if (access(path, X_OK)) {
            t("a shell that is not installed # SKIP");
            continue;
        }
        interpreter = shells[i];
        for (int cut = 0; cut < 3; cut++) {
            t(cut == 0 ? "scripts given whole" : cut == 1 ? "line by line" : "cut at random");
            for (size_t c = 0; c < ARRAY_LEN(cases); c++)
                run_case(c, cut);
        }
        test_failures();
        test_long();
    }
    return tap_done();
}
