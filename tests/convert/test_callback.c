/* tp_open_callback: the same file through a callback; what a callback may do, and what becomes of its
 * errors. */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static tp_error error;

typedef struct remote {
    bytes file;
    size_t most;       /* bytes a call delivers */
    uint64_t fails_at; /* a read from here on fails; UINT64_MAX: none */
    int64_t result;    /* with this */
    const char *text;  /* and this */
    tp_status status;
    unsigned calls;
    bool asked_beyond;
} remote;

static int64_t remote_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *cause)
{
    remote *r = context;
    r->calls++;
    if (size == 0 || offset > r->file.size || size > r->file.size - offset) r->asked_beyond = true;
    if (offset >= r->fails_at) {
        if (r->text) tp_error_set(cause, r->status, "%s", r->text);
        return r->result;
    }
    if (size > r->most) size = r->most;
    memcpy(dst, r->file.data + offset, size);
    return (int64_t)size;
}

static remote open_remote(const char *file)
{
    return (remote){.file = read_file(scratch(file)), .most = SIZE_MAX, .fails_at = UINT64_MAX};
}

static void compress(const char *in, const char *out)
{
    if (tp_compress_file(scratch(in), -1, scratch(out), -1, NULL, NULL, &error) != TP_OK)
        fail_msg("%s", error.message);
}

static int setup(void **state)
{
    (void)state;
    bytes small = small_checkpoint();
    assert_int_equal(mkdir(scratch("model"), 0755), 0);
    write_file(scratch("small.safetensors"), small.data, small.size);
    write_file(scratch("model/a.safetensors"), small.data, small.size);
    write_file(scratch("model/b.txt"), "text", 4);
    free(small.data);
    compress("small.safetensors", "small.tpress");
    compress("model", "model.tpress");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove();
    return 0;
}

/* Every tensor, in pieces of any size; the file's own bytes too. */
static void same_as_path(void **state)
{
    (void)state;
    static const char *const names[] = {"small.safetensors", "small.tpress", "model.tpress"};
    static const size_t most[] = {SIZE_MAX, 1000, 1};
    uint8_t *a = malloc(2400000), *b = malloc(2400000);
    for (size_t i = 0; i < 3; i++) {
        for (size_t m = 0; m < (SLOW_BUILD ? 2u : 3u); m++) {
            remote r = open_remote(names[i]);
            tp_reader *path, *reader;
            r.most = most[m];
            assert_int_equal(tp_open(scratch(names[i]), &path, &error), TP_OK);
            if (tp_open_callback(remote_read, &r, r.file.size, names[i], &reader, &error) != TP_OK)
                fail_msg("%s", error.message);
            assert_int_equal(tp_reader_format(reader), tp_reader_format(path));
            assert_int_equal(tp_reader_size(reader), r.file.size);
            assert_int_equal(tp_reader_files(reader), tp_reader_files(path));
            assert_int_equal(tp_reader_tensors(reader), 7);
            for (size_t t = 0; t < 7; t++) {
                tp_tensor_info info;
                assert_int_equal(tp_reader_tensor(reader, t, &info), TP_OK);
                assert_int_equal(tp_read_tensor(path, t, a, 2400000, &error), TP_OK);
                assert_int_equal(tp_read_tensor(reader, t, b, 2400000, &error), TP_OK);
                assert_memory_equal(a, b, info.nbytes);
            }
            assert_false(r.asked_beyond);
            tp_close(reader);
            tp_close(path);
            free(r.file.data);
        }
    }
    free(a);
    free(b);
}

/* Of a container little more than header, footer and index is read to open it. */
static void opening_is_cheap(void **state)
{
    (void)state;
    remote r = open_remote("small.tpress");
    tp_reader *reader;
    assert_int_equal(tp_open_callback(remote_read, &r, r.file.size, NULL, &reader, &error), TP_OK);
    assert_in_range(r.calls, 1, 5);
    tp_close(reader);
    free(r.file.data);
}

static void names(void **state)
{
    (void)state;
    remote r = open_remote("small.safetensors");
    tp_reader *reader;
    tp_file_info info;
    assert_int_equal(
        tp_open_callback(remote_read, &r, r.file.size, "https://host/a/b.safetensors", &reader, &error),
        TP_OK);
    assert_int_equal(tp_reader_file(reader, 0, &info), TP_OK);
    assert_int_equal(info.path.size, 13);
    assert_memory_equal(info.path.data, "b.safetensors", 13);
    tp_close(reader);
    assert_error(tp_open_callback(remote_read, &r, r.file.size, "x.tpress", &reader, &error), error,
                 TP_NOT_CONTAINER, "x.tpress: not a tensorpress container");
    assert_null(reader);
    assert_error(tp_open_callback(NULL, &r, 1, "x", &reader, &error), error, TP_INVALID_ARGUMENT,
                 "no callback to read with");
    assert_int_equal(tp_open_callback(remote_read, &r, 0, NULL, &reader, &error),
                     TP_OK); /* an empty file */
    assert_int_equal(tp_reader_format(reader), TP_FORMAT_BYTES);
    tp_close(reader);
    free(r.file.data);
}

/* errno and the callback's own text and status come through, with file, tensor and place. */
static void its_errors(void **state)
{
    (void)state;
    static const struct {
        int64_t result;
        const char *text;
        tp_status text_status, status;
        int sys_errno;
        const char *reason;
    } cases[] = {
        {-EIO, NULL, TP_OK, TP_IO, EIO, "Input/output error"},
        {-ENOMEM, NULL, TP_OK, TP_NO_MEMORY, ENOMEM, "Cannot allocate memory"},
        {-ETIMEDOUT, "the server sent status 503", TP_IO, TP_IO, ETIMEDOUT, "the server sent status 503"},
        {-ECANCELED, "stopped by the user", TP_CANCELLED, TP_CANCELLED, ECANCELED, "stopped by the user"},
        {-1000000, NULL, TP_OK, TP_IO, EIO, "Input/output error"}, /* no errno */
        {INT64_MIN, NULL, TP_OK, TP_IO, EIO, "Input/output error"},
        {-EIO, "odd", (tp_status)1000, TP_IO, EIO, "odd"},
    };
    uint8_t *buffer = malloc(2400000);
    for (unsigned container = 0; container < 2; container++) {
        const char *name = container ? "small.tpress" : "small.safetensors";
        remote r = open_remote(name);
        tp_reader *reader;
        tp_tensor_info info;
        char expected[300];
        if (tp_open_callback(remote_read, &r, r.file.size, name, &reader, &error) != TP_OK)
            fail_msg("%s", error.message);
        assert_int_equal(tp_reader_tensor(reader, 1, &info), TP_OK);
        uint64_t at = info.offset;
        if (container) {
            tp_frame_entry frame;
            assert_int_equal(tp_reader_frame(reader, 2, &frame), TP_OK);
            at = frame.offset;
        }
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            r.fails_at = at;
            r.result = cases[i].result;
            r.text = cases[i].text;
            r.status = cases[i].text_status;
            memset(&error, 0xff, sizeof error);
            snprintf(expected, sizeof expected, "%s: tensor 'zero': cannot read at byte %llu: %s", name,
                     (unsigned long long)at, cases[i].reason);
            assert_error(tp_read_tensor(reader, 1, buffer, 2400000, &error), error, cases[i].status,
                         expected);
            assert_int_equal(error.sys_errno, cases[i].sys_errno);
            assert_true(error.has_offset);
            assert_int_equal(error.offset, at);
            assert_int_equal(tp_read_tensor(reader, 1, buffer, 2400000, NULL), cases[i].status);
            r.fails_at = UINT64_MAX; /* the reader is as good as before */
            assert_int_equal(tp_read_tensor(reader, 1, buffer, 2400000, &error), TP_OK);
        }
        /* More than there was room for, and an end before the end. */
        r.fails_at = at;
        r.text = NULL;
        r.result = INT64_MAX;
        assert_int_equal(tp_read_tensor(reader, 1, buffer, 2400000, &error), TP_IO);
        assert_non_null(strstr(error.message, ": the callback returned 9223372036854775807 of "));
        r.result = 0;
        snprintf(expected, sizeof expected,
                 "%s: tensor 'zero': changed while it was read: it now ends at byte %llu", name,
                 (unsigned long long)at);
        assert_error(tp_read_tensor(reader, 1, buffer, 2400000, &error), error, TP_IO, expected);
        assert_int_equal(error.offset, at);
        tp_close(reader);
        /* While it is opened. */
        r.fails_at = container ? r.file.size - 128 : 8;
        r.result = -EACCES;
        assert_int_equal(tp_open_callback(remote_read, &r, r.file.size, name, &reader, &error), TP_IO);
        assert_null(reader);
        assert_int_equal(error.sys_errno, EACCES);
        snprintf(expected, sizeof expected, "%s: cannot read at byte %llu: Permission denied", name,
                 (unsigned long long)r.fails_at);
        assert_string_equal(error.message, expected);
        free(r.file.data);
    }
    free(buffer);
}

int test_callback(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_path),
        cmocka_unit_test(opening_is_cheap),
        cmocka_unit_test(names),
        cmocka_unit_test(its_errors),
    };
    return cmocka_run_group_tests_name("callback", tests, setup, teardown);
}
