/* The gate of core/api/wire.h, tested with bytes. */
#include "base/base.h"

#include "api/boxd.pb-c.h"
#include "api/wire.h"
#include <boxd/error.h>

#include "tap.h"

#define D(name) (&boxd__api__v1__##name##__descriptor)

static int unpack(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n)
{
    _cleanup_wire_ ProtobufCMessage *m = NULL;

    boxd_words_clear();
    return wire_unpack(d, bytes, n, &m);
}
#define UNPACK(d, s) unpack(D(d), s, sizeof(s) - 1)

static void test_strings(void)
{
    t("a string that is not UTF-8 is refused in both directions, and its field is named");
    {
        _cleanup_buf_ struct buf b = { 0 };
        Boxd__Api__V1__CreateVmRequest q = BOXD__API__V1__CREATE_VM_REQUEST__INIT;

        q.name = (char *)"ok\xff";
        ok(wire_pack(&q.base, &b) == -EILSEQ);
        ok_str(boxd_error_words(-EILSEQ), "field 'name' of CreateVmRequest is not valid UTF-8");
        ok(b.len == 0);
        ok(UNPACK(create_vm_request, "\x0a\x03ok\xff") == -EILSEQ);
    }
    t("also inside a map and inside a nested message");
    ok(UNPACK(create_vm_request, "\x72\x06\x0a\x01k\x12\x01\xc0") == -EILSEQ);
    ok(UNPACK(list_vms_response, "\x0a\x03\x12\x01\x80") == -EILSEQ);
    t("a NUL byte in a string is refused, not cut");
    ok(UNPACK(create_vm_request, "\x0a\x03"
                                 "a\0b") == -EILSEQ);
    t("bytes fields take any byte");
    ok(UNPACK(exec_chunk, "\x0a\x03\xff\x00\xfe") == 0);
}

static void test_malformed(void)
{
    static const struct {
        const char *what;
        const char *bytes;
        size_t n;
    } rows[] = {
        { "a length beyond the end",
          "\x0a\x05"
          "abc",
          5 },
        { "a cut tag", "\x80", 1 },
        { "a varint of eleven bytes", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 },
        { "field number 0", "\x02\x00", 2 },
        { "a group", "\x0b\x0c", 2 },
        { "a string sent as a number", "\x08\x01", 2 },
        { "a huge length", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10 },
        { "a cut fixed64", "\xa1\x06\x01\x02", 4 },
    };

    t("malformed bytes are refused");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!ok(unpack(D(create_vm_request), rows[i].bytes, rows[i].n) == -EBADMSG))
            printf("# %s\n", rows[i].what);
}

static void test_unknown(void)
{
    _cleanup_wire_ ProtobufCMessage *m = NULL;
    /* field 100: varint, 101: fixed64, 102: bytes, 103: fixed32, then name = "a" */
    static const char bytes[] = "\xa0\x06\x07\xa9\x06"
                                "12345678\xb2\x06\x02\xff\xfe\xbd\x06"
                                "1234\x0a\x01"
                                "a";

    t("unknown fields of every type are skipped");
    ok(wire_unpack(D(suggest_vm_name_response), bytes, sizeof bytes - 1, &m) == 0);
    ok(m && !strcmp(((Boxd__Api__V1__SuggestVmNameResponse *)m)->name, "a"));
    t("an empty message is a message, and its strings are not NULL");
    wire_free(steal_ptr(m));
    ok(wire_unpack(D(get_vm_response), NULL, 0, &m) == 0);
    ok(m && !strcmp(((Boxd__Api__V1__GetVmResponse *)m)->name, ""));
}

static void test_limits(void)
{
    _cleanup_buf_ struct buf b = { 0 };
    int r = 0;

    t("two bytes that unpack to hundreds, a million times, are refused before any is allocated");
    for (size_t i = 0; i < 1000000 && r >= 0; i++)
        r = buf_add(&b, "\x0a\x00", 2);
    ok(r == 0);
    ok(unpack(D(list_vms_response), b.data, b.len) == -EMSGSIZE);
    t("unknown fields are counted too");
    buf_truncate(&b, 0);
    for (size_t i = 0; i < 1500000 && r >= 0; i++)
        r = buf_add(&b, "\xa0\x06\x00", 3);
    ok(unpack(D(list_vms_response), b.data, b.len) == -EMSGSIZE);
    t("a list of ten thousand machines is no problem");
    buf_truncate(&b, 0);
    for (size_t i = 0; i < 10000 && r >= 0; i++)
        r = buf_add(&b,
                    "\x0a\x05\x0a\x03"
                    "abc",
                    7);
    ok(unpack(D(list_vms_response), b.data, b.len) == 0);
}

static void test_round_trip(void)
{
    _cleanup_buf_ struct buf b = { 0 };
    _cleanup_wire_ ProtobufCMessage *m = NULL;
    Boxd__Api__V1__ExecChunk q = BOXD__API__V1__EXEC_CHUNK__INIT;
    struct wire_reader reader;
    struct wire_field f;

    t("what was packed is unpacked");
    q.command = (char *)"echo ä";
    q.exit_code = -7;
    ok(wire_pack(&q.base, &b) == 0);
    ok(wire_unpack(D(exec_chunk), b.data, b.len, &m) == 0);
    ok(m && ((Boxd__Api__V1__ExecChunk *)m)->exit_code == -7);
    t("fields are read in place");
    reader = (struct wire_reader){ (uint8_t *)b.data, (uint8_t *)b.data + b.len };
    ok(wire_next(&reader, &f) == 1 && f.number == 4 && f.len == strlen(q.command));
    ok(wire_next(&reader, &f) == 1 && f.number == 6 && (int32_t)f.value == -7);
    ok(wire_next(&reader, &f) == 0);
    t("a bytes header and its data are what protobuf writes");
    buf_truncate(&b, 0);
    ok(wire_add_bytes_header(&b, 1, 300) == 0 && b.len == 3 && !memcmp(b.data, "\x0a\xac\x02", 3));
}

int main(void)
{
    test_strings();
    test_malformed();
    test_unknown();
    test_limits();
    test_round_trip();
    return tap_done();
}
