/* UploadFileStream and DownloadFileStream (boxd/file.h). */
#include "api/calls.h"

#include <boxd/error.h>
#include <boxd/file.h>

#include "api/errno.h"
#include "api/wire.h"

#define UPLOAD_PIECE ((size_t)256 * 1024)

/* Field numbers of the chunks, for the fields that are read and written in place. */
enum { UPLOAD_DATA = 4, DOWNLOAD_SIZE = 1, DOWNLOAD_DATA = 2 };

static const struct api_method upload_method = {
    "UploadFileStream",
    "write file",
    &boxd__api__v1__upload_file_chunk__descriptor,
    &boxd__api__v1__upload_file_response__descriptor,
    API_CLIENT_STREAM,
    true,
};

static const struct api_method download_method = {
    "DownloadFileStream",
    "read file",
    &boxd__api__v1__download_file_request__descriptor,
    &boxd__api__v1__download_file_chunk__descriptor,
    API_SERVER_STREAM,
    false,
};

/* ---- upload ------------------------------------------------------------------------------------
 */

struct boxd_upload {
    struct boxd_call call;
    struct stream *stream;
    char *path;
    uint64_t left, size;
    struct buf piece;
    bool answered;
    uint64_t written;
    struct boxd_upload_handlers handlers;
    void *arg;
};

static void upload_free(struct boxd_upload *u)
{
    call_remove(&u->call);
    buf_clear(&u->piece);
    free(u->path);
    free(u);
}

static int upload_result(const struct boxd_upload *u)
{
    char why[96];

    if (!u->answered)
        return api_words(-EIO, &upload_method, u->path, "the service answered nothing");
    if (u->left)
        return api_words(-EIO, &upload_method, u->path,
                         "the service answered before it had all bytes");
    if (u->written && u->written != u->size) {
        snprintf(why, sizeof why, "%" PRIu64 " of %" PRIu64 " bytes arrived", u->written, u->size);
        return api_words(-EIO, &upload_method, u->path, why);
    }
    return 0;
}

static void upload_end(void *arg, int r)
{
    struct boxd_upload *u = arg;

    if (r >= 0)
        r = upload_result(u);
    call_remove(&u->call);
    u->handlers.done(u->arg, r, r < 0 ? 0 : u->written);
    upload_free(u);
}

static void upload_message(void *arg, const uint8_t *data, size_t n)
{
    struct boxd_upload *u = arg;
    _cleanup_wire_ ProtobufCMessage *m = NULL;
    int r = wire_unpack(upload_method.response, data, n, &m);

    if (r < 0) {
        stream_fail_answer(u->stream, boxd_error_words(r));
        return;
    }
    u->answered = true;
    u->written = ((Boxd__Api__V1__UploadFileResponse *)m)->bytes_written;
}

static void upload_writable(void *arg)
{
    struct boxd_upload *u = arg;

    if (u->handlers.writable && u->left)
        u->handlers.writable(u->arg);
}

static void upload_cancel(struct boxd_call *call)
{
    struct boxd_upload *u = container_of(call, struct boxd_upload, call);

    stream_close(u->stream);
    call_remove(call);
    u->handlers.done(u->arg, -ECANCELED, 0);
    upload_free(u);
}

void boxd_upload_cancel(struct boxd_upload *u)
{
    upload_cancel(&u->call);
}

static struct boxd_upload *upload_new(struct boxd_client *c, const char *path)
{
    struct boxd_upload *u = calloc(1, sizeof *u);
    struct stream_spec spec = {
        .method = &upload_method,
        .subject = path,
        .bulk = true,
        .message = upload_message,
        .writable = upload_writable,
        .end = upload_end,
        .arg = u,
    };

    if (!u)
        return NULL;
    u->path = strdup(path);
    if (u->path)
        u->stream = stream_new(c, &spec);
    if (!u->stream) {
        free(u->path);
        free(u);
        return NULL;
    }
    return u;
}

struct boxd_upload *boxd_upload_start(struct boxd_client *c, const char *machine, const char *path,
                                      uint64_t size, const struct boxd_upload_handlers *h,
                                      void *arg)
{
    Boxd__Api__V1__UploadFileChunk q = BOXD__API__V1__UPLOAD_FILE_CHUNK__INIT;
    struct boxd_upload *u = upload_new(c, path);

    if (!u)
        return NULL;
    u->size = u->left = size;
    u->handlers = *h;
    u->arg = arg;
    call_init(&u->call, c, upload_cancel);
    q.vm_id = text(machine);
    q.path = text(path);
    q.total_size = size;
    if (stream_send(u->stream, &q.base) < 0)
        stream_fail(u->stream, -ENOMEM);
    if (!size)
        stream_finish(u->stream);
    stream_begin(u->stream);
    return u;
}

ssize_t boxd_upload_write(struct boxd_upload *u, const void *data, size_t n)
{
    const uint8_t *p = data;
    ssize_t waiting = 0;

    if (n > u->left)
        return api_words(-EINVAL, &upload_method, u->path, "more bytes than were announced");
    while (n && waiting >= 0) {
        size_t k = n < UPLOAD_PIECE ? n : UPLOAD_PIECE;
        int r;

        buf_truncate(&u->piece, 0);
        r = wire_add_bytes_header(&u->piece, UPLOAD_DATA, k);
        if (r >= 0)
            r = buf_add(&u->piece, p, k);
        waiting = r < 0 ? r : stream_send_bytes(u->stream, u->piece.data, u->piece.len);
        p += k;
        n -= k;
        u->left -= k;
    }
    if (waiting >= 0 && !u->left)
        stream_finish(u->stream);
    return waiting;
}

/* ---- download ----------------------------------------------------------------------------------
 */

struct boxd_download {
    struct boxd_call call;
    struct stream *stream;
    char *path;
    bool sized;
    bool *gone; /* set while the size is told: whether the download ended meanwhile */
    uint64_t size, got;
    struct boxd_download_handlers handlers;
    void *arg;
};

static void download_free(struct boxd_download *d)
{
    call_remove(&d->call);
    free(d->path);
    free(d);
}

static void download_end(void *arg, int r)
{
    struct boxd_download *d = arg;
    char why[96];

    if (r >= 0 && d->got != d->size) {
        snprintf(why, sizeof why, "%" PRIu64 " of %" PRIu64 " bytes came", d->got, d->size);
        r = api_words(-EIO, &download_method, d->path, why);
    }
    call_remove(&d->call);
    /* Nothing at all, and no error: an empty file. */
    if (r >= 0 && !d->sized && d->handlers.size)
        d->handlers.size(d->arg, 0);
    d->handlers.done(d->arg, r);
    download_free(d);
}

/* Takes a chunk's fields from where they lie. */
static const char *download_chunk(struct boxd_download *d, const uint8_t *data, size_t n,
                                  struct wire_field *piece, bool *first)
{
    struct wire_reader reader = { data, data + n };
    struct wire_field f;
    uint64_t size = 0;
    int r = wire_check(download_method.response, data, n);

    if (r < 0)
        return boxd_error_words(r);
    while (wire_next(&reader, &f) > 0) {
        if (f.number == DOWNLOAD_SIZE && f.type == WIRE_VARINT)
            size = f.value;
        else if (f.number == DOWNLOAD_DATA && f.type == WIRE_BYTES)
            *piece = f;
    }
    *first = !d->sized;
    if (*first)
        d->size = size;
    else if (size && size != d->size)
        return "the file changed its size meanwhile";
    d->sized = true;
    if (piece->len > d->size - d->got)
        return "more bytes came than were announced";
    d->got += piece->len;
    return NULL;
}

static void download_message(void *arg, const uint8_t *data, size_t n)
{
    struct boxd_download *d = arg;
    struct wire_field piece = { 0 };
    bool first = false, gone = false;
    const char *wrong = download_chunk(d, data, n, &piece, &first);

    if (wrong) {
        stream_fail_answer(d->stream, wrong);
        return;
    }
    if (first && d->handlers.size) {
        d->gone = &gone; /* the callback may cancel the download */
        d->handlers.size(d->arg, d->size);
        if (gone)
            return;
        d->gone = NULL;
    }
    if (piece.len)
        d->handlers.data(d->arg, piece.data, piece.len);
}

static void download_cancel(struct boxd_call *call)
{
    struct boxd_download *d = container_of(call, struct boxd_download, call);

    stream_close(d->stream);
    if (d->gone)
        *d->gone = true;
    call_remove(call);
    d->handlers.done(d->arg, -ECANCELED);
    download_free(d);
}

void boxd_download_cancel(struct boxd_download *d)
{
    download_cancel(&d->call);
}

void boxd_download_pause(struct boxd_download *d, bool paused)
{
    stream_pause(d->stream, paused);
}

struct boxd_download *boxd_download_start(struct boxd_client *c, const char *machine,
                                          const char *path, const struct boxd_download_handlers *h,
                                          void *arg)
{
    Boxd__Api__V1__DownloadFileRequest q = BOXD__API__V1__DOWNLOAD_FILE_REQUEST__INIT;
    struct boxd_download *d = calloc(1, sizeof *d);
    struct stream_spec spec = {
        .method = &download_method,
        .subject = path,
        .bulk = true,
        .message = download_message,
        .end = download_end,
        .arg = d,
    };

    if (!d)
        return NULL;
    d->path = strdup(path);
    if (d->path)
        d->stream = stream_new(c, &spec);
    if (!d->stream) {
        free(d->path);
        free(d);
        return NULL;
    }
    d->handlers = *h;
    d->arg = arg;
    call_init(&d->call, c, download_cancel);
    q.vm_id = text(machine);
    q.path = text(path);
    if (stream_send(d->stream, &q.base) < 0)
        stream_fail(d->stream, -ENOMEM);
    stream_finish(d->stream);
    stream_begin(d->stream);
    return d;
}
