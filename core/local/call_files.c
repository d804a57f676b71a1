/* local/call_files.c: the calls on files. Each runs a shell line inside the machine as its user and
 * never touches the machine's files from outside, so a hostile link leads nowhere. Paths travel as
 * arguments, never inside the line. */
#include "base/base.h"

#include "api/boxd.pb-c.h"
#include "api/wire.h"
#include "base/str.h"
#include "local/command.h"
#include "local/listing.h"
#include "local/service.h"
#include "local/validate.h"
#include "local/vm.h"
#include <boxd/error.h>

#define WORDS_MAX 4096          /* of stderr */
#define DOWNLOAD_MAX (4u << 20) /* of the call without a stream */
#define CHUNK_HEADER_MAX 32     /* digits of a size and a newline */

struct op;

struct op_type {
    const char *script; /* $1 and $2 are the paths */
    size_t limit;       /* of stdout; more of it ends the command */
    /* Takes stdout as it comes instead of collecting it; may be NULL. */
    void (*output)(struct op *op, const uint8_t *data, size_t n);
    /* The command ended well, or its output reached the limit. */
    void (*finish)(struct op *op);
};

struct op {
    struct call *call;
    const struct op_type *type;
    struct command *running; /* NULL: not started yet, or over */
    char *path, *second;
    struct buf out, err, input;
    bool full;            /* stdout reached its limit */
    bool sized;           /* download: the size was read */
    uint64_t total, done; /* up- and download: bytes in all, bytes so far */
};

static void op_free(void *data)
{
    struct op *op = data;

    free(op->path);
    free(op->second);
    buf_clear(&op->out);
    buf_clear(&op->err);
    buf_clear(&op->input);
    free(op);
}

/* ---- failures ----------------------------------------------------------------------------------
 */

/* What coreutils, busybox and the shells say, without the locale. */
static const struct {
    const char *said;
    int error;
    const char *words;
} reasons[] = {
    { "No such file", -ENOENT, "does not exist" },
    { "nonexistent directory", -ENOENT, "has no parent directory" },
    { "Directory nonexistent", -ENOENT, "has no parent directory" },
    { "Permission denied", -EACCES, "permission denied" },
    { "can't cd to", -EACCES, "permission denied" },
    { "Operation not permitted", -EPERM, "operation not permitted" },
    { "File exists", -EEXIST, "exists already" },
    { "Not a directory", -ENOTDIR, "a part of it is not a directory" },
    { "Is a directory", -EISDIR, "is a directory" },
    { "cannot overwrite directory", -EISDIR, "is a directory" },
    { "cannot overwrite non-directory", -ENOTDIR, "is not a directory" },
    { "Directory not empty", -ENOTEMPTY, "is not empty" },
    { "Not a regular file", -EISDIR, "is not a regular file" },
    { "No space left on device", -ENOSPC, "no space left" },
    { "Read-only file system", -EROFS, "is on a read-only file system" },
    { "File name too long", -ENAMETOOLONG, "name is too long" },
    { "Too many levels of symbolic links", -ELOOP, "too many symbolic links" },
};

static int shell_failure(const struct op *op, int exit_code)
{
    const char *said = buf_str(&op->err), *end = strchr(said, '\n');

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (strcasestr(said, reasons[i].said))
            return boxd_words(reasons[i].error, "path '%.200s' %s%s%.200s%s", op->path,
                              reasons[i].words, op->second ? " (or '" : "",
                              op->second ? op->second : "", op->second ? "')" : "");
    if (!utf8_valid(said, op->err.len))
        end = said;
    return boxd_words(-EIO, "path '%.200s': the machine's shell ended with %d: %.*s", op->path,
                      exit_code, (int)(end ? end - said : (ptrdiff_t)strlen(said)), said);
}

/* ---- running ----------------------------------------------------------------------------------
 */

static void on_output(void *arg, int fd, const void *data, size_t n)
{
    struct op *op = arg;
    struct buf *to = fd == 2 ? &op->err : &op->out;
    size_t max = fd == 2 ? WORDS_MAX : op->type->limit;
    int r;

    if (fd == 1 && op->type->output) {
        op->type->output(op, data, n);
        return;
    }
    op->full = op->full || (fd == 1 && n > max - to->len);
    r = buf_add(to, data, n > max - to->len ? max - to->len : n);
    if (r >= 0 && !op->full)
        return;
    command_cancel(steal_ptr(op->running));
    if (r < 0)
        call_fail(op->call, r);
    else
        op->type->finish(op);
}

static void on_drained(void *arg)
{
    struct op *op = arg;

    if (call_open(op->call))
        rpc_stream_pause(op->call->stream, false);
}

static void on_done(void *arg, int r, int exit_code)
{
    struct op *op = arg;

    op->running = NULL;
    if (!r && exit_code)
        r = shell_failure(op, exit_code);
    if (r < 0)
        call_fail(op->call, r);
    else
        op->type->finish(op);
}

/* Input of an upload: exactly `total` bytes. */
static void feed(struct op *op, const void *data, size_t n)
{
    ssize_t waiting = n ? command_write(op->running, data, n) : 0;

    if (waiting < 0) {
        call_fail(op->call, (int)waiting);
        return;
    }
    if (call_open(op->call))
        rpc_stream_pause(op->call->stream, (size_t)waiting > COMMAND_INPUT_HIGH);
    if (op->done == op->total)
        command_eof(op->running);
}

static void on_ready(void *arg, struct vm *vm, int r)
{
    struct op *op = arg;
    const char *const argv[] = {
        "/bin/sh", "-c", op->type->script, "sh", op->path, op->second, NULL
    };
    const struct command_spec spec = { .argv = argv };
    const struct command_handlers handlers = { on_output, on_drained, on_done };

    if (!r && call_open(op->call))
        r = command_start(vm, &spec, &handlers, op, &op->running);
    if (r < 0)
        call_fail(op->call, r);
    if (op->running) {
        feed(op, op->input.data, op->input.len);
        buf_clear(&op->input);
    }
    call_unref(op->call);
}

static void on_gone(struct call *c)
{
    struct op *op = c->data;

    if (op->running)
        command_cancel(steal_ptr(op->running));
}

static void on_call_writable(struct call *c)
{
    struct op *op = c->data;

    if (op->running)
        command_pause(op->running, false);
}

/* A path as an argument that no tool takes for an option; relative ones start in the home. */
static char *as_argument(const char *path)
{
    return path[0] == '/' ? strdup(path) : strf("./%s", path);
}

/* Starts the operation; NULL when the call has been answered. `second` may be NULL. */
static struct op *op_start(struct call *c, const struct op_type *type, const char *machine,
                           const char *path, const char *second, const ProtobufCBinaryData *input,
                           uint64_t total)
{
    struct vm *vm = vm_find(c->s, machine);
    struct op *op;
    int r = vm ? validate_path(path) : -ENOENT;

    if (!r && second)
        r = validate_path(second);
    if (r < 0) {
        call_fail(c, r);
        return NULL;
    }
    op = calloc(1, sizeof(*op));
    if (!op) {
        call_fail(c, -ENOMEM);
        return NULL;
    }
    op->call = c;
    op->type = type;
    op->total = total;
    op->path = as_argument(path);
    op->second = second ? as_argument(second) : NULL;
    c->data = op;
    c->free_data = op_free;
    c->gone = on_gone;
    c->writable = on_call_writable;
    if (input && input->len)
        r = buf_add(&op->input, input->data, input->len);
    if (!op->path || (second && !op->second) || r < 0) {
        call_fail(c, -ENOMEM);
        return NULL;
    }
    op->done = op->input.len;
    if (c->type->stream)
        rpc_stream_pause(c->stream, true);
    call_ref(c);
    vm_need(vm, on_ready, op);
    return op;
}

/* ---- names ------------------------------------------------------------------------------------
 */

#define SCRIPT_START "export LC_ALL=C; "

static void finish_mkdir(struct op *op)
{
    PB(MkdirResponse) m = BOXD__API__V1__MKDIR_RESPONSE__INIT;

    call_reply(op->call, &m.base);
}

static void finish_rename(struct op *op)
{
    PB(RenamePathResponse) m = BOXD__API__V1__RENAME_PATH_RESPONSE__INIT;

    call_reply(op->call, &m.base);
}

static void finish_delete(struct op *op)
{
    PB(DeletePathResponse) m = BOXD__API__V1__DELETE_PATH_RESPONSE__INIT;

    call_reply(op->call, &m.base);
}

static void finish_copy(struct op *op)
{
    PB(CopyPathResponse) m = BOXD__API__V1__COPY_PATH_RESPONSE__INIT;

    call_reply(op->call, &m.base);
}

static const struct op_type mkdir_type = { SCRIPT_START "exec mkdir -- \"$1\"", WORDS_MAX, NULL,
                                           finish_mkdir };
static const struct op_type rename_type = { SCRIPT_START "exec mv -f -T -- \"$1\" \"$2\"",
                                            WORDS_MAX, NULL, finish_rename };
static const struct op_type delete_type = {
    SCRIPT_START
    "[ -e \"$1\" ] || [ -L \"$1\" ] || { echo 'No such file or directory' >&2; exit 1; }; "
    "exec rm -rf -- \"$1\"",
    WORDS_MAX, NULL, finish_delete
};
static const struct op_type copy_type = { SCRIPT_START "exec cp -a -T -- \"$1\" \"$2\"", WORDS_MAX,
                                          NULL, finish_copy };

static void call_mkdir(struct call *c, const ProtobufCMessage *message)
{
    const PB(MkdirRequest) *m = (const PB(MkdirRequest) *)message;

    op_start(c, &mkdir_type, m->vm_id, m->path, NULL, NULL, 0);
}

static void call_rename(struct call *c, const ProtobufCMessage *message)
{
    const PB(RenamePathRequest) *m = (const PB(RenamePathRequest) *)message;

    op_start(c, &rename_type, m->vm_id, m->old_path, m->new_path, NULL, 0);
}

static void call_delete(struct call *c, const ProtobufCMessage *message)
{
    const PB(DeletePathRequest) *m = (const PB(DeletePathRequest) *)message;

    op_start(c, &delete_type, m->vm_id, m->path, NULL, NULL, 0);
}

static void call_copy(struct call *c, const ProtobufCMessage *message)
{
    const PB(CopyPathRequest) *m = (const PB(CopyPathRequest) *)message;

    op_start(c, &copy_type, m->vm_id, m->old_path, m->new_path, NULL, 0);
}

/* ---- listing ----------------------------------------------------------------------------------
 */

static void finish_list(struct op *op)
{
    PB(ListDirResponse) m = BOXD__API__V1__LIST_DIR_RESPONSE__INIT;
    struct listing l = { 0 };
    int r = listing_parse(op->out.data, op->out.len, op->full, &l);

    if (r < 0) {
        call_fail(op->call, r);
    } else {
        m.n_entries = l.count;
        m.entries = l.entries;
        m.truncated = l.truncated;
        call_reply(op->call, &m.base);
    }
    listing_clear(&l);
}

static const struct op_type list_type = { SCRIPT_START LISTING_SCRIPT, LISTING_BYTES_MAX, NULL,
                                          finish_list };

static void call_list(struct call *c, const ProtobufCMessage *message)
{
    const PB(ListDirRequest) *m = (const PB(ListDirRequest) *)message;

    op_start(c, &list_type, m->vm_id, *m->path ? m->path : ".", NULL, NULL, 0);
}

/* ---- upload -----------------------------------------------------------------------------------
 */

static void finish_upload(struct op *op)
{
    PB(UploadFileResponse) m = BOXD__API__V1__UPLOAD_FILE_RESPONSE__INIT;

    /* The command ended well without reading all: somebody in the machine made it do so. */
    if (op->done != op->total)
        call_end(op->call, RPC_ABORTED, "file was closed before all of it was written");
    m.bytes_written = op->total;
    call_reply(op->call, &m.base);
}

/* A FIFO or device would block or do worse, so only files and new names are written. */
static const struct op_type upload_type = {
    SCRIPT_START "if [ -d \"$1\" ]; then echo 'Is a directory' >&2; exit 1; fi; "
                 "if [ -e \"$1\" ] && ! [ -f \"$1\" ]; then "
                 "echo 'Not a regular file' >&2; exit 1; fi; exec cat >\"$1\"",
    WORDS_MAX, NULL, finish_upload
};

static void call_upload(struct call *c, const ProtobufCMessage *message)
{
    const PB(UploadFileRequest) *m = (const PB(UploadFileRequest) *)message;

    op_start(c, &upload_type, m->vm_id, m->path, NULL, &m->data, m->data.len);
}

static void end_upload(struct op *op, const char *words)
{
    call_end(op->call, RPC_INVALID_ARGUMENT, words);
    if (op->running)
        command_cancel(steal_ptr(op->running));
}

static void upload_message(struct call *c, const ProtobufCMessage *message)
{
    const PB(UploadFileChunk) *m = (const PB(UploadFileChunk) *)message;
    struct op *op = c->data;

    if (!op) {
        if (m->data.len > m->total_size)
            call_end(c, RPC_INVALID_ARGUMENT, "upload is longer than its total_size");
        else
            op_start(c, &upload_type, m->vm_id, m->path, NULL, &m->data, m->total_size);
        return;
    }
    if (m->data.len > op->total - op->done) {
        end_upload(op, "upload is longer than its total_size");
        return;
    }
    op->done += m->data.len;
    if (op->running)
        feed(op, m->data.data, m->data.len);
}

static void upload_half_close(struct call *c)
{
    struct op *op = c->data;

    if (op && op->done != op->total)
        end_upload(op, "upload ended before its total_size was reached");
}

/* ---- download ---------------------------------------------------------------------------------
 */

/* Files of proc say size 0 and are not empty. */
#define DOWNLOAD_SCRIPT                                                                 \
    SCRIPT_START                                                                        \
    "if [ -d \"$1\" ]; then echo 'Is a directory' >&2; exit 1; fi; "                    \
    "if [ -e \"$1\" ] && ! [ -f \"$1\" ]; then echo 'Not a regular file' >&2; exit 1; " \
    "fi; exec <\"$1\" || exit 1; n=$(stat -L -c %s \"$1\") || exit 1; "                 \
    "[ \"$n\" != 0 ] || n=$(wc -c <\"$1\") || exit 1; "                                 \
    "printf '%s\\n' \"$n\"; exec head -c \"$n\""

/* Reads the first line, the size. Returns the bytes it took of `data`, or -1: the call has ended.
 */
static ssize_t take_size(struct op *op, const uint8_t *data, size_t n)
{
    const uint8_t *end = memchr(data, '\n', n);
    size_t used = end ? (size_t)(end - data) + 1 : n;
    const char *words = "machine's shell did not tell the size of the file";

    if (op->out.len + used <= CHUNK_HEADER_MAX && buf_add(&op->out, data, used) >= 0) {
        if (!end)
            return (ssize_t)used;
        buf_truncate(&op->out, op->out.len - 1);
        if (parse_u64(buf_str(&op->out), UINT64_MAX, &op->total) >= 0) {
            op->sized = true;
            return (ssize_t)used;
        }
    }
    command_cancel(steal_ptr(op->running));
    call_end(op->call, RPC_INTERNAL, words);
    return -1;
}

static void send_chunk(struct op *op, const uint8_t *data, size_t n)
{
    PB(DownloadFileChunk) chunk = BOXD__API__V1__DOWNLOAD_FILE_CHUNK__INIT;

    chunk.total_size = op->total;
    chunk.data.data = (uint8_t *)(uintptr_t)data;
    chunk.data.len = n;
    op->done += n;
    if (call_send(op->call, &chunk.base) > RPC_QUEUE_LOW)
        command_pause(op->running, true);
}

static void download_output(struct op *op, const uint8_t *data, size_t n)
{
    ssize_t used = op->sized ? 0 : take_size(op, data, n);

    if (used >= 0 && (size_t)used < n)
        send_chunk(op, data + used, n - (size_t)used);
}

static bool download_whole(struct op *op)
{
    if (op->sized && op->done == op->total)
        return true;
    call_end(op->call, RPC_ABORTED, "file changed while it was read: try again");
    return false;
}

static void finish_download(struct op *op)
{
    if (!download_whole(op))
        return;
    if (!op->total)
        send_chunk(op, NULL, 0);
    call_end(op->call, RPC_OK, NULL);
}

static const struct op_type download_type = { DOWNLOAD_SCRIPT, 0, download_output,
                                              finish_download };

static void call_download(struct call *c, const ProtobufCMessage *message)
{
    const PB(DownloadFileRequest) *m = (const PB(DownloadFileRequest) *)message;

    op_start(c, &download_type, m->vm_id, m->path, NULL, NULL, 0);
}

static void finish_download_once(struct op *op)
{
    PB(DownloadFileResponse) m = BOXD__API__V1__DOWNLOAD_FILE_RESPONSE__INIT;
    const char *newline = op->out.len ? memchr(op->out.data, '\n', op->out.len) : NULL;

    if (op->full || !newline) {
        call_end(op->call, RPC_RESOURCE_EXHAUSTED,
                 "file is larger than 4 MiB: use DownloadFileStream");
        return;
    }
    m.data.data = (uint8_t *)(uintptr_t)newline + 1;
    m.data.len = op->out.len - (size_t)(newline + 1 - op->out.data);
    call_reply(op->call, &m.base);
}

static const struct op_type download_once_type = { DOWNLOAD_SCRIPT, DOWNLOAD_MAX + CHUNK_HEADER_MAX,
                                                   NULL, finish_download_once };

static void call_download_once(struct call *c, const ProtobufCMessage *message)
{
    const PB(DownloadFileRequest) *m = (const PB(DownloadFileRequest) *)message;

    op_start(c, &download_once_type, m->vm_id, m->path, NULL, NULL, 0);
}

#define CALL(name_, request_, function)                                                         \
    {                                                                                           \
        .name = name_, .request = &boxd__api__v1__##request_##__descriptor, .message = function \
    }

const struct call_type file_calls[] = {
    CALL("UploadFile", upload_file_request, call_upload),
    { .name = "UploadFileStream",
      .request = &boxd__api__v1__upload_file_chunk__descriptor,
      .message = upload_message,
      .half_close = upload_half_close,
      .stream = true },
    CALL("DownloadFile", download_file_request, call_download_once),
    CALL("DownloadFileStream", download_file_request, call_download),
    CALL("ListDir", list_dir_request, call_list),
    CALL("Mkdir", mkdir_request, call_mkdir),
    CALL("RenamePath", rename_path_request, call_rename),
    CALL("DeletePath", delete_path_request, call_delete),
    CALL("CopyPath", copy_path_request, call_copy),
    { 0 },
};
