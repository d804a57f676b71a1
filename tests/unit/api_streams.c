/* Exec, uploads and downloads against a scripted service. */
#include "service.h"

#include <boxd/exec.h>
#include <boxd/file.h>

typedef Boxd__Api__V1__ExecChunk chunk;

/* What a stream's callbacks were given. */
struct heard {
    struct got got;
    struct buf out, err;
    int exit_code;
    uint64_t size, written;
    bool writable;
    bool cancel_in_output;
    struct boxd_exec *exec;
    struct boxd_download *download;
    bool cancel_in_size;
};

static void heard_clear(struct heard *h)
{
    buf_clear(&h->out);
    buf_clear(&h->err);
    *h = (struct heard){ 0 };
}

static void exec_output(void *arg, int fd, const void *data, size_t n)
{
    struct heard *h = arg;

    buf_add(fd == 1 ? &h->out : &h->err, data, n);
    if (h->cancel_in_output)
        boxd_exec_cancel(h->exec);
}

static void exec_writable(void *arg)
{
    ((struct heard *)arg)->writable = true;
}

static void exec_done(void *arg, int r, int exit_code)
{
    struct heard *h = arg;

    got_r(&h->got, r);
    h->exit_code = exit_code;
}

static struct boxd_exec *run_exec(struct service *sv, struct heard *h, const char *command)
{
    static const struct boxd_exec_handlers handlers = { exec_output, exec_writable, exec_done };
    struct boxd_exec_options o = { .machine = "dev", .command = command };

    h->exec = boxd_exec_start(sv->client, &o, &handlers, h);
    ok(h->exec != NULL && h->got.times == 0);
    return h->exec;
}

/* ---- exec ---- */

static void send_chunk(struct request *q, const char *data, bool err, int exit_code)
{
    chunk c = BOXD__API__V1__EXEC_CHUNK__INIT;

    c.data.data = (uint8_t *)(uintptr_t)data;
    c.data.len = strlen(data);
    c.is_stderr = err;
    c.exit_code = exit_code;
    sv_send(q, &c.base);
}

/* Both outputs, with exit codes that are not the last one. */
static void talk(struct request *q)
{
    send_chunk(q, "one", false, 9);
    send_chunk(q, "two", true, 9);
    send_chunk(q, "three", false, q->sv->step);
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

/* Exit 0 as the service may say it: an empty message last. */
static void talk_empty_last(struct request *q)
{
    send_chunk(q, "x", false, 7);
    rpc_stream_send(q->stream, "", 0);
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

static void end_ok(struct request *q)
{
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

/* cat: every piece of input comes back; the end of input ends it. */
static void echo_message(struct request *q, const uint8_t *data, size_t n)
{
    ProtobufCMessage *m = NULL;
    const chunk *c;
    chunk back = BOXD__API__V1__EXEC_CHUNK__INIT;

    ok(wire_unpack(&boxd__api__v1__exec_chunk__descriptor, data, n, &m) == 0);
    c = (const chunk *)m;
    if (q->messages == 1)
        ok(!strcmp(c->command, "cat") && !strcmp(c->vm_id, "dev") && !c->stdin);
    if (c->window_change)
        q->sv->step = (int)(c->cols * 1000 + c->rows);
    if (c->stdin) {
        ok(c->data.len <= 65536);
        q->sent += c->data.len;
        back.data = c->data;
        sv_send(q, &back.base);
    }
    wire_free(m);
}

static void echo_end(struct request *q)
{
    send_chunk(q, "", false, 0);
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

static void flood(struct request *q)
{
    static char zeros[32768];
    chunk c = BOXD__API__V1__EXEC_CHUNK__INIT;

    c.data.data = (uint8_t *)zeros;
    c.data.len = sizeof zeros;
    for (int i = 0; i < 64; i++)
        sv_send(q, &c.base);
}

static void fail_open(struct request *q)
{
    rpc_stream_end(q->stream, (enum rpc_code)q->sv->step, "machine is stopped");
}

static void test_exec_results(struct service *sv)
{
    struct heard h = { 0 };

    t("outputs come apart, and the last chunk's exit code is the command's");
    sv->request = talk;
    sv->step = 3;
    boxd_exec_eof(run_exec(sv, &h, "x"));
    ok(sv_until(sv, &h.got.done) && h.got.r == 0 && h.exit_code == 3);
    ok_str(buf_str(&h.out), "onethree");
    ok_str(buf_str(&h.err), "two");
    heard_clear(&h);
    t("an empty last message is exit code 0");
    sv->request = talk_empty_last;
    boxd_exec_eof(run_exec(sv, &h, "x"));
    ok(sv_until(sv, &h.got.done) && h.got.r == 0 && h.exit_code == 0);
    heard_clear(&h);
    t("a stream that ends well without a chunk is no success");
    sv->request = end_ok;
    boxd_exec_eof(run_exec(sv, &h, "x"));
    ok(sv_until(sv, &h.got.done) && h.got.r == -EIO && strstr(h.got.words, "unknown"));
    heard_clear(&h);
    t("a refused command has the errno of its status");
    sv->request = NULL;
    sv->open = fail_open;
    sv->step = RPC_FAILED_PRECONDITION;
    run_exec(sv, &h, "x");
    ok(sv_until(sv, &h.got.done) && h.got.r == -EBUSY);
    ok_str(h.got.words, "cannot run a command in machine 'dev': machine is stopped");
    heard_clear(&h);
    t("UNAVAILABLE is not tried again: the command may have begun");
    sv->requests = 0;
    sv->step = RPC_UNAVAILABLE;
    run_exec(sv, &h, "x");
    ok(sv_until(sv, &h.got.done) && h.got.r == -EHOSTUNREACH && sv->requests == 1);
    heard_clear(&h);
    sv->open = NULL;
}

static void test_exec_input(struct service *sv)
{
    struct heard h = { 0 };
    size_t n = 3 * 1024 * 1024 + 5;
    _cleanup_free_ char *data = malloc(n);
    struct boxd_exec *e;
    ssize_t waiting;

    t("input of any size comes back through the command, in pieces of 64 KiB");
    ok(random_bytes(data, n) == 0);
    sv->message = echo_message;
    sv->request = echo_end;
    e = run_exec(sv, &h, "cat");
    waiting = boxd_exec_write(e, data, n);
    ok(waiting > BOXD_EXEC_QUEUE);
    boxd_exec_resize(e, 132, 43);
    boxd_exec_eof(e);
    ok(sv_until(sv, &h.got.done) && h.got.r == 0);
    ok(h.out.len == n && !memcmp(h.out.data, data, n));
    t("a new size of the terminal is told");
    ok(sv->step == 132043);
    heard_clear(&h);
    t("after a full queue, writable is told");
    e = run_exec(sv, &h, "cat");
    ok(boxd_exec_write(e, data, n) > BOXD_EXEC_QUEUE);
    ok(sv_until(sv, &h.writable) && !h.got.done);
    boxd_exec_cancel(e);
    heard_clear(&h);
    sv->message = NULL;
}

static void run_result(void *arg, int r, int exit_code, const void *out, size_t out_len,
                       const void *err, size_t err_len)
{
    struct heard *h = arg;

    got_r(&h->got, r);
    h->exit_code = exit_code;
    buf_add(&h->out, out, out_len);
    buf_add(&h->err, err, err_len);
}

static void test_exec_ends(struct service *sv)
{
    struct heard h = { 0 };
    struct boxd_exec_options o = { .machine = "dev", .command = "sleep", .timeout_ms = 100 };
    static const struct boxd_exec_handlers handlers = { NULL, NULL, exec_done };

    t("cancelling from inside the output runs done once, before it returns");
    sv->request = talk;
    h.cancel_in_output = true;
    boxd_exec_eof(run_exec(sv, &h, "x"));
    ok(sv_until(sv, &h.got.done) && h.got.r == -ECANCELED && h.out.len == 3);
    sv_for(sv, 20);
    ok(h.got.times == 1);
    heard_clear(&h);
    t("a time-out is ETIMEDOUT");
    sv->request = NULL;
    boxd_exec_start(sv->client, &o, &handlers, &h);
    ok(sv_until(sv, &h.got.done) && h.got.r == -ETIMEDOUT);
    heard_clear(&h);
    t("a command line over the limit is refused here");
    {
        _cleanup_free_ char *big = malloc(1100000);

        memset(big, 'x', 1099999);
        big[1099999] = '\0';
        run_exec(sv, &h, big);
        ok(sv_until(sv, &h.got.done) && h.got.r == -E2BIG);
    }
    heard_clear(&h);
    t("boxd_run gathers both outputs");
    sv->request = talk;
    sv->step = 4;
    boxd_run(sv->client, "dev", "x", NULL, 0, 100, 0, run_result, &h);
    ok(sv_until(sv, &h.got.done) && h.got.r == 0 && h.exit_code == 4);
    ok_str(buf_str(&h.out), "onethree");
    heard_clear(&h);
    t("and gives up with EFBIG above its limit");
    sv->request = flood;
    sv->cancelled = 0;
    boxd_run(sv->client, "dev", "x", NULL, 0, 100000, 0, run_result, &h);
    ok(sv_until(sv, &h.got.done) && h.got.r == -EFBIG && h.got.times == 1);
    sv_for(sv, 50);
    ok(sv->cancelled == 1);
    heard_clear(&h);
    t("paused output waits");
    sv->request = talk;
    boxd_exec_eof(run_exec(sv, &h, "x"));
    boxd_exec_pause(h.exec, true);
    sv_for(sv, 50);
    ok(!h.out.len && !h.got.done);
    boxd_exec_pause(h.exec, false);
    ok(sv_until(sv, &h.got.done) && h.got.r == 0 && h.out.len == 8);
    heard_clear(&h);
}

/* ---- files ---- */

static void upload_done(void *arg, int r, uint64_t written)
{
    got_r(&((struct heard *)arg)->got, r);
    ((struct heard *)arg)->written = written;
}

static void download_size(void *arg, uint64_t size)
{
    struct heard *h = arg;

    h->size = size;
    h->got.count++;
    if (h->cancel_in_size)
        boxd_download_cancel(h->download);
}

static void download_data(void *arg, const void *data, size_t n)
{
    buf_add(&((struct heard *)arg)->out, data, n);
}

static void download_done(void *arg, int r)
{
    got_r(&((struct heard *)arg)->got, r);
}

/* Answers an upload with the number of bytes that came; `step` is added to it. */
static void upload_message(struct request *q, const uint8_t *data, size_t n)
{
    ProtobufCMessage *m = NULL;

    ok(wire_unpack(&boxd__api__v1__upload_file_chunk__descriptor, data, n, &m) == 0);
    q->sent += ((Boxd__Api__V1__UploadFileChunk *)m)->data.len;
    if (q->messages == 1)
        ok(!strcmp(((Boxd__Api__V1__UploadFileChunk *)m)->path, "/tmp/f"));
    wire_free(m);
}

static void upload_end(struct request *q)
{
    Boxd__Api__V1__UploadFileResponse a = BOXD__API__V1__UPLOAD_FILE_RESPONSE__INIT;

    a.bytes_written = q->sent + (size_t)q->sv->step;
    sv_answer(q, &a.base);
}

static void test_uploads(struct service *sv)
{
    static const struct boxd_upload_handlers handlers = { NULL, upload_done };
    static char data[700000];
    static const size_t sizes[] = { 0, 1, 262144, sizeof data };
    struct heard h = { 0 };
    struct boxd_upload *u;

    t("files of every size are uploaded, the empty one too");
    sv->message = upload_message;
    sv->request = upload_end;
    sv->step = 0;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        u = boxd_upload_start(sv->client, "dev", "/tmp/f", sizes[i], &handlers, &h);
        if (sizes[i])
            ok(boxd_upload_write(u, data, sizes[i]) >= 0);
        ok(boxd_upload_write(u, data, 1) == -EINVAL);
        ok(sv_until(sv, &h.got.done) && h.got.r == 0 && h.written == sizes[i]);
        heard_clear(&h);
    }
    t("fewer bytes confirmed than sent is EIO");
    sv->step = -1;
    u = boxd_upload_start(sv->client, "dev", "/tmp/f", 5, &handlers, &h);
    boxd_upload_write(u, "12345", 5);
    ok(sv_until(sv, &h.got.done) && h.got.r == -EIO);
    ok_str(h.got.words, "cannot write file '/tmp/f': 4 of 5 bytes arrived");
    heard_clear(&h);
    t("a cancelled upload reaches the service as cancelled");
    sv->cancelled = 0;
    u = boxd_upload_start(sv->client, "dev", "/tmp/f", 5, &handlers, &h);
    sv_for(sv, 30);
    boxd_upload_cancel(u);
    ok(h.got.times == 1 && h.got.r == -ECANCELED);
    sv_for(sv, 30);
    ok(sv->cancelled == 1);
    heard_clear(&h);
    sv->message = NULL;
}

/* Rows of chunks, each a size and a text; NULL ends. */
struct file_script {
    const char *what;
    struct {
        uint64_t size;
        const char *text;
    } chunks[4];
    int r;
    const char *content;
};

static void download_script(struct request *q)
{
    const struct file_script *f = q->sv->data;

    for (size_t i = 0; f->chunks[i].text; i++) {
        Boxd__Api__V1__DownloadFileChunk c = BOXD__API__V1__DOWNLOAD_FILE_CHUNK__INIT;

        c.total_size = f->chunks[i].size;
        c.data.data = (uint8_t *)(uintptr_t)f->chunks[i].text;
        c.data.len = strlen(f->chunks[i].text);
        sv_send(q, &c.base);
    }
    rpc_stream_end(q->stream, RPC_OK, NULL);
}

static void test_downloads(struct service *sv)
{
    static const struct boxd_download_handlers handlers = { download_size, download_data,
                                                            download_done };
    static const struct file_script rows[] = {
        { "a file in two chunks", { { 5, "abc" }, { 5, "de" } }, 0, "abcde" },
        { "the size only first", { { 5, "abc" }, { 0, "de" } }, 0, "abcde" },
        { "an empty file", { { 0, "" } }, 0, "" },
        { "nothing at all", { { 0, NULL } }, 0, "" },
        { "too few bytes", { { 5, "abc" } }, -EIO, "abc" },
        { "too many bytes", { { 2, "ab" }, { 2, "c" } }, -EIO, "ab" },
        { "a size that changes", { { 5, "abc" }, { 4, "d" } }, -EIO, "abc" },
    };
    struct heard h = { 0 };

    t("a download is right only when its bytes are as many as announced");
    sv->request = download_script;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sv->data = (void *)(uintptr_t)&rows[i];
        h.download = boxd_download_start(sv->client, "dev", "/f", &handlers, &h);
        if (!ok(sv_until(sv, &h.got.done) && h.got.r == rows[i].r &&
                !strcmp(buf_str(&h.out), rows[i].content) && h.got.count == 1))
            printf("# %s: %d %s\n", rows[i].what, h.got.r, h.got.words);
        heard_clear(&h);
    }
    t("a download can be cancelled when its size is told");
    sv->data = (void *)(uintptr_t)&rows[0];
    h.cancel_in_size = true;
    h.download = boxd_download_start(sv->client, "dev", "/f", &handlers, &h);
    ok(sv_until(sv, &h.got.done) && h.got.r == -ECANCELED && !h.out.len);
    sv_for(sv, 20);
    ok(h.got.times == 1);
    heard_clear(&h);
}

int main(void)
{
    struct service sv;

    sv_start_all(&sv);
    sv.client = sv_client(&sv, "t0k", NULL);
    test_exec_results(&sv);
    test_exec_input(&sv);
    test_exec_ends(&sv);
    test_uploads(&sv);
    test_downloads(&sv);
    sv_stop(&sv);
    return tap_done();
}
