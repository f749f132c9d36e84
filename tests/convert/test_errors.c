/* What an error of a reader carries: status, file, tensor, place and errno, for every way of reading. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/index.h"

#define LARGEST 2400000

static tp_error error;
static uint8_t *buffer;

static int setup(void **state)
{
    (void)state;
    bytes small = small_checkpoint();
    buffer = malloc(LARGEST);
    assert_int_equal(mkdir(scratch("model"), 0755), 0);
    write_file(scratch("small.safetensors"), small.data, small.size);
    write_file(scratch("model/a\nb.safetensors"), small.data, small.size);
    free(small.data);
    if (tp_compress_file(scratch("small.safetensors"), -1, scratch("small.tpress"), -1, NULL, NULL,
                         &error) != TP_OK ||
        tp_compress_file(scratch("model"), -1, scratch("model.tpress"), -1, NULL, NULL, &error) != TP_OK)
        fail_msg("%s", error.message);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(buffer);
    scratch_remove();
    return 0;
}

/* Every function that reads tensor `number`, or a part of it that needs the frame at fault. */
static tp_status read_by(unsigned way, tp_reader *reader, size_t number, tp_error *e)
{
    static const uint64_t first[2] = {0, 0}, last[2] = {1, 1};
    size_t size;
    switch (way) {
    case 0:
        return tp_read_tensor(reader, number, buffer, LARGEST, e);
    case 1:
        return tp_read_rows(reader, number, 0, 1, buffer, LARGEST, &size, e);
    default:
        return tp_read_box(reader, number, first, last, 2, buffer, LARGEST, &size, e);
    }
}
#define WAYS 3u

static void assert_place(uint64_t offset)
{
    assert_true(error.has_offset);
    assert_int_equal(error.offset, offset);
}

/* A byte of the frame is changed. */
static void write_damaged(const char *from, const char *to, uint64_t at)
{
    bytes copy = read_file(scratch(from));
    copy.data[at] ^= 4;
    write_file(scratch(to), copy.data, copy.size);
    free(copy.data);
}

static uint64_t offset_of_frame(const char *file, size_t number)
{
    tp_reader *reader;
    tp_frame_entry frame;
    assert_int_equal(tp_open(scratch(file), &reader, &error), TP_OK);
    assert_int_equal(tp_reader_frame(reader, number, &frame), TP_OK);
    tp_close(reader);
    return frame.offset;
}

/* Errors name the file, in a container of several the one in it, tensor and frame; the offset is the
 * frame's. */
static void damaged_frame(void **state)
{
    (void)state;
    static const struct {
        const char *container, *subject;
    } cases[] = {{"small.tpress", "tensor 'first.weight'"},
                 {"model.tpress", "file 'a\\x0ab.safetensors': tensor 'first.weight'"}};
    char expected[700];
    for (size_t i = 0; i < 2; i++) {
        uint64_t at = offset_of_frame(cases[i].container, 1);
        write_damaged(cases[i].container, "damaged.tpress", at + 5000);
        tp_reader *reader;
        assert_int_equal(tp_open(scratch("damaged.tpress"), &reader, &error), TP_OK);
        for (unsigned way = 0; way < WAYS; way++) {
            snprintf(expected, sizeof expected,
                     "%s: %s: frame 1 at byte %llu: hash of the stored bytes does not match",
                     scratch("damaged.tpress"), cases[i].subject, (unsigned long long)at);
            assert_error(read_by(way, reader, 0, &error), error, TP_CORRUPT, expected);
            assert_place(at);
            assert_int_equal(error.sys_errno, 0);
            assert_int_equal(read_by(way, reader, 0, NULL), TP_CORRUPT);
            assert_int_equal(read_by(way, reader, 4, &error), TP_OK); /* what is whole can be read */
        }
        /* Bytes of the file are no tensor's. */
        snprintf(expected, sizeof expected,
                 "%s: frame 1 at byte %llu: hash of the stored bytes does not match",
                 scratch("damaged.tpress"), (unsigned long long)at);
        assert_error(tp_pread(reader, 0, buffer, 100, 1000, &error), error, TP_CORRUPT, expected);
        assert_place(at);
        tp_close(reader);
    }
}

/* A frame that is whole, but not the one that the index names. */
static void other_frame(void **state)
{
    (void)state;
    uint64_t at = offset_of_frame("small.tpress", 1), other = offset_of_frame("small.tpress", 2);
    bytes copy = read_file(scratch("small.tpress"));
    char expected[700];
    tp_reader *reader;
    size_t size = tp_load32(copy.data + other + 20);
    assert_true(at + size <= other);
    memcpy(copy.data + at, copy.data + other, size);
    write_file(scratch("swapped.tpress"), copy.data, copy.size);
    free(copy.data);
    assert_int_equal(tp_open(scratch("swapped.tpress"), &reader, &error), TP_OK);
    for (unsigned way = 0; way < WAYS; way++) {
        assert_int_equal(read_by(way, reader, 0, &error), TP_CORRUPT);
        snprintf(expected, sizeof expected,
                 "%s: tensor 'first.weight': frame 1 at byte %llu: ", scratch("swapped.tpress"),
                 (unsigned long long)at);
        assert_memory_equal(error.message, expected, strlen(expected));
        assert_place(at);
    }
    tp_close(reader);
}

/* A frame, and its entry in the index, of a codec that only a later version has. */
static void unknown_codec(void **state)
{
    (void)state;
    uint64_t at = offset_of_frame("small.tpress", 1), hash[2] = {0, 0};
    bytes copy = read_file(scratch("small.tpress"));
    parts p = take_apart(copy);
    tp_index x;
    char expected[700];
    tp_reader *reader;
    assert_int_equal(tp_index_parse(&x, p.index.data, p.index.size, 128 + p.frames.size, "x", &error),
                     TP_OK);
    uint8_t *frame = p.frames.data + at - 128;
    frame[4] = 200;
    memset(frame + 96, 0, 16);
    tp_hash128(frame, tp_load32(frame + 20), hash);
    memcpy(frame + 96, hash, 16);
    for (uint64_t i = 0; i < x.frames; i++) {
        if (x.frame_offset[i] != at) continue;
        x.frame_codec[i] = 200;
        memcpy(x.frame_stored_hash + 2 * i, hash, 16);
    }
    bytes changed = put_together(&p);
    write_file(scratch("later.tpress"), changed.data, changed.size);
    assert_int_equal(tp_open(scratch("later.tpress"), &reader, &error), TP_OK);
    for (unsigned way = 0; way < WAYS; way++) {
        assert_int_equal(read_by(way, reader, 0, &error), TP_UNSUPPORTED);
        snprintf(expected, sizeof expected,
                 "%s: tensor 'first.weight': frame 1 at byte %llu: ", scratch("later.tpress"),
                 (unsigned long long)at);
        assert_memory_equal(error.message, expected, strlen(expected));
        assert_place(at);
        assert_int_equal(read_by(way, reader, 4, &error), TP_OK);
    }
    tp_close(reader);
    tp_index_free(&x); /* the index, too */
    p.index.data = NULL;
    parts_free(&p);
    free(changed.data);
    free(copy.data);
}

/* The file ends earlier than when it was opened. */
static void shrinking_file(void **state)
{
    (void)state;
    char expected[700];
    for (unsigned container = 0; container < 2; container++) {
        bytes copy = read_file(scratch(container ? "small.tpress" : "small.safetensors"));
        const char *name = container ? "shrinks.tpress" : "shrinks.safetensors";
        write_file(scratch(name), copy.data, copy.size);
        tp_reader *reader;
        assert_int_equal(tp_open(scratch(name), &reader, &error), TP_OK);
        assert_int_equal(truncate(scratch(name), 1000), 0);
        for (unsigned way = 0; way < WAYS; way++) {
            snprintf(expected, sizeof expected,
                     "%s: tensor 'second.weight': changed while it was read: it now ends at byte ",
                     scratch(name));
            assert_int_equal(read_by(way, reader, 2, &error), TP_IO);
            assert_memory_equal(error.message, expected, strlen(expected));
            assert_true(error.has_offset);
            assert_int_equal(error.offset, strtoull(error.message + strlen(expected), NULL, 10));
        }
        tp_close(reader);
        free(copy.data);
    }
}

static void failing_calls(void **state)
{
    (void)state;
    /* A descriptor that cannot be read from: write-only. */
    for (unsigned container = 0; container < 2; container++) {
        const char *name = container ? "small.tpress" : "small.safetensors";
        char expected[700];
        tp_reader *reader;
        int good = open(scratch(name), O_RDONLY), bad = open(scratch(name), O_WRONLY), saved = dup(good);
        assert_true(good >= 0 && bad >= 0 && saved >= 0);
        assert_int_equal(tp_open_fd(good, name, &reader, &error), TP_OK);
        assert_int_equal(dup2(bad, good), good);
        tp_tensor_info info;
        assert_int_equal(tp_reader_tensor(reader, 1, &info), TP_OK);
        for (unsigned way = 0; way < WAYS; way++) {
            uint64_t at = container ? offset_of_frame(name, 2) : info.offset;
            snprintf(expected, sizeof expected,
                     "%s: tensor 'zero': cannot read at byte %llu: Bad file descriptor", name,
                     (unsigned long long)at);
            assert_error(read_by(way, reader, 1, &error), error, TP_IO, expected);
            assert_int_equal(error.sys_errno, EBADF);
            assert_place(at);
        }
        assert_int_equal(dup2(saved, good), good);
        assert_int_equal(read_by(0, reader, 1, &error), TP_OK); /* nothing is left of it */
        tp_close(reader);
        close(good);
        close(bad);
        close(saved);
    }
}

static void arguments(void **state)
{
    (void)state;
    char expected[700];
    tp_reader *reader;
    size_t size;
    const char *name = scratch("model.tpress");
    const char subject[] = "file 'a\\x0ab.safetensors': tensor 'tiny': ";
    assert_int_equal(tp_open(name, &reader, &error), TP_OK);
#define SAYS(call, status, ...)                                                                            \
    do {                                                                                                   \
        size_t at = (size_t)snprintf(expected, sizeof expected, "%s: ", name);                             \
        snprintf(expected + at, sizeof expected - at, __VA_ARGS__);                                        \
        assert_error(call, error, status, expected);                                                       \
    } while (0)
    tp_file_info file;
    assert_int_equal(tp_reader_file(reader, 0, &file), TP_OK);
    SAYS(tp_pread(reader, 0, buffer, 2, file.size - 1, &error), TP_INVALID_ARGUMENT,
         "2 bytes at byte %llu reach beyond the file's end", (unsigned long long)file.size - 1);
    assert_place(file.size - 1);
    SAYS(tp_pread(reader, 9, buffer, 1, 0, &error), TP_INVALID_ARGUMENT, "has no file 9");
    SAYS(tp_read_tensor(reader, 7, buffer, 1, &error), TP_INVALID_ARGUMENT, "has no tensor 7");
    SAYS(tp_read_rows(reader, 7, 0, 1, buffer, 1, &size, &error), TP_INVALID_ARGUMENT, "has no tensor 7");
    SAYS(tp_read_tensor(reader, 5, buffer, 14, &error), TP_BUFFER_TOO_SMALL, "%slarger than the buffer",
         subject);
    SAYS(tp_read_rows(reader, 5, 0, 3, buffer, 14, &size, &error), TP_BUFFER_TOO_SMALL,
         "%slarger than the buffer", subject);
    SAYS(tp_read_rows(reader, 5, 1, 4, buffer, 99, &size, &error), TP_INVALID_ARGUMENT,
         "%srows 1:4 are out of range, it has 3", subject);
    tp_close(reader);
}

/* Of a truncated tensor the place is where it begins. */
static void truncated_tensor(void **state)
{
    (void)state;
    bytes copy = read_file(scratch("small.safetensors"));
    write_file(scratch("cut.safetensors"), copy.data, 3000000);
    free(copy.data);
    if (tp_compress_file(scratch("cut.safetensors"), -1, scratch("cut.tpress"), -1, NULL, NULL, &error) !=
        TP_OK)
        fail_msg("%s", error.message);
    for (unsigned container = 0; container < 2; container++) {
        const char *name = scratch(container ? "cut.tpress" : "cut.safetensors");
        char expected[700];
        tp_reader *reader;
        tp_tensor_info info;
        assert_int_equal(tp_open(name, &reader, &error), TP_OK);
        assert_int_equal(tp_reader_tensor(reader, 2, &info), TP_OK);
        assert_int_equal(info.flags, TP_TENSOR_TRUNCATED);
        for (unsigned way = 0; way < WAYS; way++) {
            snprintf(expected, sizeof expected,
                     "%s: tensor 'second.weight': truncated: the file ends before it", name);
            assert_error(read_by(way, reader, 2, &error), error, TP_TRUNCATED, expected);
            assert_place(info.offset);
        }
        tp_close(reader);
    }
}

int test_errors(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_frame),    cmocka_unit_test(other_frame),
        cmocka_unit_test(unknown_codec),    cmocka_unit_test(shrinking_file),
        cmocka_unit_test(failing_calls),    cmocka_unit_test(arguments),
        cmocka_unit_test(truncated_tensor),
    };
    return cmocka_run_group_tests_name("errors", tests, setup, teardown);
}
