/* tp_writer: the file that it makes, byte for byte; its refusals; safe output. */
#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "faults.h"

static tp_error error;

#define OK(call)                                                                                           \
    do {                                                                                                   \
        if ((call) != TP_OK) fail_msg("%s", error.message);                                                \
    } while (0)

static tp_writer *create(const char *out, const char *name, const tp_options *options)
{
    tp_writer *writer;
    OK(tp_writer_create(scratch(out), -1, name, options, &writer, &error));
    return writer;
}

static tp_status add(tp_writer *writer, const char *name, const char *dtype, size_t ndim, uint64_t rows,
                     uint64_t columns, const void *data, uint64_t nbytes)
{
    const uint64_t shape[2] = {rows, columns};
    return tp_writer_add(writer, name, strlen(name), dtype, shape, ndim, data, nbytes, &error);
}

static tp_status put_metadata(tp_writer *writer, const char *key, const char *value)
{
    return tp_writer_metadata(writer, key, strlen(key), value, strlen(value), &error);
}

static void restore(const char *in, const char *out)
{
    OK(tp_decompress_file(scratch(in), -1, scratch(out), -1, NULL, NULL, &error));
}

static void assert_content(const char *name, const char *expected, size_t size)
{
    bytes got = read_file(scratch(name));
    assert_int_equal(got.size, size);
    assert_memory_equal(got.data, expected, size);
    free(got.data);
}

static int clean(void **state)
{
    (void)state;
    faults_reset();
    scratch_remove();
    return 0;
}

/* Files of safetensors 0.8.0 for Python, save({...}, metadata={"format": "pt"}) and save({}). */
static const char reference[] = "\x70\x01\0\0\0\0\0\0"
                                "{\"__metadata__\":{\"format\":\"pt\"},"
                                "\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[8,20]},"
                                "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[20,24]},"
                                "\"e\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[24,24]},"
                                "\"a\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[24,26]},"
                                "\"t\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[26,28]}}      "
                                "\7\0\0\0\0\0\0\0"
                                "\0\0\0\0\0\0\x80?\0\0\0@"
                                "\0\0\xc0?"
                                "\1\2"
                                "\1";
static const char reference_empty[] = "\10\0\0\0\0\0\0\0{}      ";

static void same_as_reference(void **state)
{
    (void)state;
    static const float b[] = {0, 1, 2}, c = 1.5f;
    static const int64_t s = 7;
    for (unsigned order = 0; order < 2; order++) {
        tp_writer *writer = create(order ? "y.tpress" : "x.tpress", "x", NULL);
        for (unsigned i = 0; i < 6; i++) {
            switch (order ? 5 - i : i) {
            case 0:
                OK(add(writer, "b", "F32", 1, 3, 0, b, 12));
                break;
            case 1:
                OK(add(writer, "a", "U8", 2, 2, 1, "\1\2", 2));
                break;
            case 2:
                OK(add(writer, "s", "I64", 0, 0, 0, &s, 8));
                break;
            case 3:
                OK(add(writer, "c", "F32", 1, 1, 0, &c, 4));
                break;
            case 4:
                OK(add(writer, "e", "F16", 2, 0, 4, NULL, 0));
                break;
            default:
                OK(add(writer, "t", "BOOL", 1, 2, 0, "\1", 2));
            }
        }
        OK(put_metadata(writer, "format", "pt"));
        tp_report report;
        OK(tp_writer_finish(writer, &report, &error));
        assert_int_equal(report.files, 1);
        assert_int_equal(report.tensors, 6);
        assert_int_equal(report.raw_bytes, sizeof reference);
        tp_writer_close(writer);
    }
    restore("x.tpress", "x");
    assert_content("x", reference, sizeof reference);           /* its last byte is the literal's NUL */
    assert_same_file(scratch("x.tpress"), scratch("y.tpress")); /* whatever the order was */

    tp_writer *writer = create("none.tpress", NULL, NULL);
    OK(tp_writer_finish(writer, NULL, &error));
    tp_writer_close(writer);
    restore("none.tpress", "none");
    assert_content("none", reference_empty, sizeof reference_empty - 1);
}

/* What the container holds is what compressing the restored file gives; threads and the output do not
 * matter. */
static void same_as_compressed(void **state)
{
    (void)state;
    const size_t size = 9000000;
    uint8_t *data = malloc(2 * size), tiny[6] = {1, 2, 3, 4, 5, 6};
    fill_bf16(data, size / 2, 1);
    memcpy(data + size, data, size / 2); /* frames that occur twice */
    fill_random(data + size + size / 2, size / 2, 2);
    static const char odd[] = "q\"\\ \n\x01 \xc3\xa9 \xf0\x9f\x98\x80";
    for (unsigned run = 0; run < 3; run++) {
        tp_options options;
        tp_options_init(&options);
        options.threads = 1 + 3 * run;
        options.sha256 = true;
        options.verify = run == 2;
        char name[32];
        snprintf(name, sizeof name, "%u.tpress", run);
        tp_writer *writer = create(name, "m.safetensors", &options);
        OK(add(writer, "large", "BF16", 2, 3000, 1500, data, size));
        OK(add(writer, "other", "BF16", 2, 3000, 1500, data + size, size));
        OK(add(writer, odd, "F4", 2, 3, 4, tiny, 6));
        OK(add(writer, "", "U8", 1, 6, 0, tiny, 6));
        char small[32];
        for (unsigned i = 0; i < 2000; i++) {
            snprintf(small, sizeof small, "small.%u", i);
            OK(add(writer, small, "F32", 1, 1, 0, data + 4 * i, 4));
        }
        OK(put_metadata(writer, odd, odd));
        OK(put_metadata(writer, "", ""));
        if (run == 1) { /* to a descriptor */
            tp_writer_close(writer);
            int fd = open(scratch(name), O_CREAT | O_WRONLY, 0600);
            OK(tp_writer_create(NULL, fd, "m.safetensors", &options, &writer, &error));
            OK(add(writer, "large", "BF16", 2, 3000, 1500, data, size));
            OK(add(writer, "other", "BF16", 2, 3000, 1500, data + size, size));
            OK(add(writer, "", "U8", 1, 6, 0, tiny, 6));
            OK(add(writer, odd, "F4", 2, 3, 4, tiny, 6));
            for (unsigned i = 2000; i-- > 0;) {
                snprintf(small, sizeof small, "small.%u", i);
                OK(add(writer, small, "F32", 1, 1, 0, data + 4 * i, 4));
            }
            OK(put_metadata(writer, "", ""));
            OK(put_metadata(writer, odd, odd));
            OK(tp_writer_finish(writer, NULL, &error));
            close(fd);
        } else {
            tp_report report;
            OK(tp_writer_finish(writer, &report, &error));
            assert_true(report.duplicate_frames > 0);
        }
        tp_writer_close(writer);
    }
    assert_same_file(scratch("0.tpress"), scratch("1.tpress"));
    assert_same_file(scratch("0.tpress"), scratch("2.tpress"));
    restore("0.tpress", "m.safetensors");
    tp_options options;
    tp_options_init(&options);
    options.sha256 = true;
    OK(tp_compress_file(scratch("m.safetensors"), -1, scratch("3.tpress"), -1, &options, NULL, &error));
    assert_same_file(scratch("0.tpress"), scratch("3.tpress"));

    /* The file as our own reader sees it. */
    tp_reader *reader;
    tp_file_info file;
    size_t number;
    uint8_t got[6];
    OK(tp_open(scratch("m.safetensors"), &reader, &error));
    assert_int_equal(tp_reader_file(reader, 0, &file), TP_OK);
    assert_int_equal(file.format, TP_FORMAT_SAFETENSORS);
    assert_int_equal(file.tensors, 2004);
    assert_int_equal(tp_reader_find(reader, 0, odd, strlen(odd), &number), TP_OK);
    OK(tp_read_tensor(reader, number, got, 6, &error));
    assert_memory_equal(got, tiny, 6);
    uint64_t end = 0;
    tp_tensor_info tensor;
    for (size_t i = 0; i < file.tensors; i++) { /* no gaps, and the data begins at a multiple of 8 */
        assert_int_equal(tp_reader_tensor(reader, i, &tensor), TP_OK);
        assert_int_equal(tensor.flags, 0);
        if (i > 0) assert_int_equal(tensor.offset, end);
        if (i == 0) assert_int_equal(tensor.offset % 8, 0);
        end = tensor.offset + tensor.nbytes;
    }
    assert_int_equal(end, file.size);
    tp_close(reader);
    free(data);
}

/* Names that a container is stored under. */
static void names(void **state)
{
    (void)state;
    static const struct {
        const char *out, *name, *stored;
    } cases[] = {{"a.safetensors.tpress", NULL, "a.safetensors"},
                 {"b.tpress", NULL, "b"},
                 {"c", NULL, "c"},
                 {"d.tpress", "model.safetensors", "model.safetensors"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_writer *writer = create(cases[i].out, cases[i].name, NULL);
        OK(add(writer, "t", "U8", 1, 1, 0, "x", 1));
        OK(tp_writer_finish(writer, NULL, &error));
        tp_writer_close(writer);
        tp_reader *reader;
        tp_file_info file;
        OK(tp_open(scratch(cases[i].out), &reader, &error));
        assert_int_equal(tp_reader_file(reader, 0, &file), TP_OK);
        assert_int_equal(file.path.size, strlen(cases[i].stored));
        assert_memory_equal(file.path.data, cases[i].stored, file.path.size);
        assert_int_equal(file.format, TP_FORMAT_SAFETENSORS);
        assert_int_equal(tp_reader_tensors(reader), 1);
        tp_close(reader);
    }
    tp_writer *writer = NULL;
    char longest[257];
    memset(longest, 'n', 256);
    longest[256] = 0;
    static const char *const bad[] = {"", ".", "..", "a/b", "/", NULL};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(
            tp_writer_create(scratch("x.tpress"), -1, bad[i] ? bad[i] : longest, NULL, &writer, &error),
            TP_INVALID_ARGUMENT);
        assert_null(writer);
        assert_non_null(strstr(error.message, "': cannot be the name of a file in a container"));
    }
    assert_error(tp_writer_create(NULL, -1, NULL, NULL, &writer, &error), error, TP_INVALID_ARGUMENT,
                 "no output is given");
    tp_writer_close(NULL);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name, *dtype;
        size_t ndim;
        uint64_t shape[3];
        const char *data;
        uint64_t nbytes;
        const char *reason;
    } cases[] = {
        {"a\xff", "U8", 1, {1}, "x", 1, "tensor 'a\\xff': its name is not UTF-8"},
        {"__metadata__", "U8", 1, {1}, "x", 1, "tensor '__metadata__': this name is reserved"},
        {"a", "bf16", 1, {1}, "xx", 2, "tensor 'a': safetensors has no such dtype"},
        {"a", "Q4_0", 1, {32}, "xx", 18, "tensor 'a': safetensors has no such dtype"},
        {"a", "U8", 1, {2}, "x", 1, "tensor 'a': its size is not that of its dtype and shape"},
        {"a", "F32", 2, {2, 3}, "x", 25, "tensor 'a': its size is not that of its dtype and shape"},
        {"a", "F32", 0, {0}, "x", 3, "tensor 'a': its size is not that of its dtype and shape"},
        {"a", "F4", 1, {3}, "xx", 2, "tensor 'a': its elements are not whole bytes"},
        {"a", "F6_E2M3", 1, {2}, "xx", 2, "tensor 'a': its elements are not whole bytes"},
        {"a", "U8", 2, {(uint64_t)1 << 63, 2}, "x", 0, "tensor 'a': its shape is too large"},
        {"a", "U8", 3, {(uint64_t)1 << 63, 4, 0}, "x", 0, "tensor 'a': its shape is too large"},
        {"a", "F64", 1, {(uint64_t)1 << 60}, "x", 0, "tensor 'a': its shape is too large"},
        {"a", "U8", 1, {1}, NULL, 1, "tensor 'a': it has no data"},
    };
    char expected[700];
    tp_writer *writer = create("x.tpress", NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(expected, sizeof expected, "%s: %s", scratch("x.tpress"), cases[i].reason);
        assert_error(tp_writer_add(writer, cases[i].name, strlen(cases[i].name), cases[i].dtype,
                                   cases[i].shape, cases[i].ndim, cases[i].data, cases[i].nbytes, &error),
                     error, TP_INVALID_ARGUMENT, expected);
    }
    assert_int_equal(put_metadata(writer, "k", "\x80"), TP_INVALID_ARGUMENT);
    assert_int_equal(put_metadata(writer, "\xed\xa0\x80", "v"),
                     TP_INVALID_ARGUMENT); /* half a surrogate pair */
    /* A refused tensor is not there; the writer goes on. */
    OK(add(writer, "a", "U8", 1, 1, 0, "x", 1));
    OK(tp_writer_finish(writer, NULL, &error));
    assert_int_equal(tp_writer_finish(writer, NULL, &error), TP_INVALID_ARGUMENT);
    assert_int_equal(add(writer, "b", "U8", 1, 1, 0, "x", 1), TP_INVALID_ARGUMENT);
    assert_int_equal(put_metadata(writer, "k", "v"), TP_INVALID_ARGUMENT);
    snprintf(expected, sizeof expected, "%s: finished already", scratch("x.tpress"));
    assert_string_equal(error.message, expected);
    tp_writer_close(writer);

    writer = create("y.tpress", NULL, NULL);
    OK(add(writer, "t", "U8", 1, 1, 0, "x", 1));
    OK(add(writer, "u", "U8", 1, 1, 0, "x", 1));
    OK(add(writer, "t", "I64", 1, 0, 0, NULL, 0)); /* of another dtype too */
    snprintf(expected, sizeof expected, "%s: tensor 't': was added twice", scratch("y.tpress"));
    assert_error(tp_writer_finish(writer, NULL, &error), error, TP_INVALID_ARGUMENT, expected);
    tp_writer_close(writer);
    writer = create("y.tpress", NULL, NULL);
    OK(put_metadata(writer, "k", "v"));
    OK(put_metadata(writer, "k", "w"));
    snprintf(expected, sizeof expected, "%s: metadata 'k': was added twice", scratch("y.tpress"));
    assert_error(tp_writer_finish(writer, NULL, &error), error, TP_INVALID_ARGUMENT, expected);
    tp_writer_close(writer);

    writer = create("y.tpress", NULL, NULL);
    const uint64_t huge = (uint64_t)1 << 60;
    for (char name[] = "a"; *name < 'i'; ++*name) OK(add(writer, name, "U8", 1, huge, 0, "x", huge));
    snprintf(expected, sizeof expected, "%s: the tensors have too many bytes for a file", scratch("y.tpress"));
    assert_error(tp_writer_finish(writer, NULL, &error), error, TP_LIMIT, expected);
    tp_writer_close(writer);

    /* One byte more of a header than the format's own library reads, and the longest that it does. */
    const char around[] = "{\"__metadata__\":{\"\":\"\"}}";
    const size_t longest = 100000000 - (sizeof around - 1);
    char *text = malloc(longest + 1);
    memset(text, 'v', longest + 1);
    for (unsigned more = 0; more < 2; more++) {
        writer = create("z.tpress", NULL, NULL);
        OK(tp_writer_metadata(writer, "", 0, text, longest + more, &error));
        assert_int_equal(tp_writer_finish(writer, NULL, &error), more ? TP_LIMIT : TP_OK);
        tp_writer_close(writer);
    }
    assert_non_null(
        strstr(error.message, "z.tpress: the header of 100000008 bytes is longer than 100000000"));
    free(text);
    assert_only("x.tpress", "z.tpress", NULL);
}

static bool stop(void *context, uint64_t done, uint64_t total)
{
    (void)context, (void)done, (void)total;
    return false;
}

/* The container is there whole, or not at all. */
static void safe_output(void **state)
{
    (void)state;
    uint8_t *data = malloc(3000000);
    fill_random(data, 3000000, 1);
    tp_options options;
    tp_options_init(&options);
    for (unsigned i = 0; i < 5; i++) {
        tp_writer *writer;
        options.force = i == 4;
        options.dry_run = i == 2;
        options.progress = i == 1 ? stop : NULL;
        writer = create("x.tpress", NULL, &options);
        OK(add(writer, "t", "U8", 1, 3000000, 0, data, 3000000));
        tp_report report = {0};
        if (i == 0) injected.write_room = 1000000;
        tp_status status = tp_writer_finish(writer, &report, &error);
        faults_reset();
        static const tp_status expected[] = {TP_NO_SPACE, TP_CANCELLED, TP_OK, TP_EXISTS, TP_OK};
        assert_int_equal(status, expected[i]);
        if (i < 3) assert_only(NULL);
        if (i == 2) {
            assert_true(report.stored_bytes > 3000000);
            write_file(scratch("x.tpress"), "old", 3);
        }
        if (i == 3) assert_content("x.tpress", "old", 3);
        tp_writer_close(writer);
    }
    tp_writer *writer = create("never.tpress", NULL, NULL);
    OK(add(writer, "t", "U8", 1, 3000000, 0, data, 3000000));
    tp_writer_close(writer); /* without finishing */
    assert_only("x.tpress", NULL);
    restore("x.tpress", "x");
    free(data);
}

int test_writer(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(same_as_reference, clean),
        cmocka_unit_test_setup(same_as_compressed, clean),
        cmocka_unit_test_setup(names, clean),
        cmocka_unit_test_setup(refusals, clean),
        cmocka_unit_test_setup(safe_output, clean),
    };
    return cmocka_run_group_tests_name("writer", tests, NULL, clean);
}
