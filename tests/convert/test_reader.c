/* tp_reader: listing and random access, on containers and plain checkpoints. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/bytes.h"

static bytes small;
static tp_reader *plain, *packed;
static tp_error error;

static void compress(const char *in, const char *out, const tp_options *options)
{
    if (tp_compress_file(scratch(in), -1, scratch(out), -1, options, NULL, &error) != TP_OK)
        fail_msg("%s", error.message);
}

static int setup(void **state)
{
    (void)state;
    tp_options options;
    tp_options_init(&options);
    options.sha256 = true;
    small = small_checkpoint();
    write_file(scratch("small.safetensors"), small.data, small.size);
    compress("small.safetensors", "small.tpress", &options);
    assert_int_equal(tp_open(scratch("small.safetensors"), &plain, &error), TP_OK);
    assert_int_equal(tp_open(scratch("small.tpress"), &packed, &error), TP_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tp_close(plain);
    tp_close(packed);
    free(small.data);
    scratch_remove();
    return 0;
}

static void assert_text(tp_text text, const char *expected)
{
    assert_int_equal(text.size, strlen(expected));
    assert_memory_equal(text.data, expected, text.size);
}

static void files(void **state)
{
    (void)state;
    tp_file_info info;
    unsigned major, minor;
    assert_int_equal(tp_reader_format(packed), TP_FORMAT_TPRESS);
    assert_int_equal(tp_reader_format(plain), TP_FORMAT_SAFETENSORS);
    assert_false(tp_reader_is_folder(packed));
    assert_int_equal(tp_reader_original_size(packed), small.size);
    assert_int_equal(tp_reader_original_size(plain), small.size);
    assert_int_equal(tp_reader_size(plain), small.size);
    assert_true(tp_reader_size(packed) < small.size);
    tp_reader_format_version(packed, &major, &minor);
    assert_int_equal(major, TP_FORMAT_MAJOR);
    assert_int_equal(minor, TP_FORMAT_MINOR);
    assert_int_equal(tp_reader_files(packed), 1);
    assert_int_equal(tp_reader_file(packed, 0, &info), TP_OK);
    assert_text(info.path, "small.safetensors");
    assert_int_equal(info.format, TP_FORMAT_SAFETENSORS);
    assert_int_equal(info.size, small.size);
    assert_int_equal(info.tensors, 7);
    assert_int_equal(info.frames, 6);
    assert_true(info.has_sha256);
    assert_int_equal(info.reason.size, 0);
    assert_int_equal(tp_reader_file(plain, 0, &info), TP_OK);
    assert_text(info.path, "small.safetensors");
    assert_int_equal(info.tensors, 7);
    assert_false(info.has_sha256);
    assert_int_equal(tp_reader_file(packed, 1, &info), TP_INVALID_ARGUMENT);
    assert_int_equal(tp_reader_frames(plain), 0);
    assert_int_equal(tp_reader_frames(packed), 6);
    tp_frame_entry first, entry;
    assert_int_equal(tp_reader_frame(packed, 1, &first), TP_OK);
    assert_int_equal(tp_reader_frame(packed, 3, &entry), TP_OK);
    assert_false(first.duplicate);
    assert_true(entry.duplicate);
    assert_int_equal(entry.offset, first.offset);
    assert_int_equal(tp_reader_frame(packed, 6, &entry), TP_INVALID_ARGUMENT);
}

static void tensors(void **state)
{
    (void)state;
    tp_tensor_info a, b;
    uint64_t shares = 0;
    assert_int_equal(tp_reader_tensors(packed), 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(tp_reader_tensor(packed, i, &a), TP_OK);
        assert_int_equal(tp_reader_tensor(plain, i, &b), TP_OK);
        assert_int_equal(a.name.size, b.name.size);
        assert_memory_equal(a.name.data, b.name.data, a.name.size);
        assert_int_equal(a.dtype.size, b.dtype.size);
        assert_memory_equal(a.dtype.data, b.dtype.data, a.dtype.size);
        assert_int_equal(a.ndim, 2);
        assert_int_equal(b.ndim, 2);
        assert_memory_equal(a.shape, b.shape, 2 * sizeof *a.shape);
        assert_int_equal(a.offset, b.offset);
        assert_int_equal(a.nbytes, b.nbytes);
        assert_int_equal(a.flags, 0);
        assert_int_equal(b.stored_nbytes, 0);
        assert_int_equal(b.method, TP_METHOD_NONE);
        shares += a.stored_nbytes;
    }
    assert_true(shares < tp_reader_size(packed));
    tp_frame_entry frame;
    /* A tensor with a frame of its own has all of it, its duplicate nothing. */
    assert_int_equal(tp_reader_tensor(packed, 0, &a), TP_OK);
    assert_int_equal(tp_reader_frame(packed, 1, &frame), TP_OK);
    assert_int_equal(a.stored_nbytes, frame.stored_size);
    assert_int_equal(a.method, frame.method);
    assert_int_equal(tp_reader_tensor(packed, 2, &a), TP_OK);
    assert_int_equal(a.stored_nbytes, 0);
    assert_int_equal(a.method, frame.method);
    /* Two halves of one frame. */
    assert_int_equal(tp_reader_frame(packed, 4, &frame), TP_OK);
    assert_int_equal(frame.raw_size, 16384);
    for (size_t i = 3; i < 5; i++) {
        assert_int_equal(tp_reader_tensor(packed, i, &a), TP_OK);
        assert_int_equal(a.stored_nbytes, frame.stored_size / 2);
    }
    assert_int_equal(tp_reader_tensor(packed, 6, &a), TP_OK);
    assert_int_equal(a.nbytes, 0);
    assert_int_equal(a.stored_nbytes, 0);
    assert_int_equal(a.method, TP_METHOD_RAW);
    assert_int_equal(tp_reader_tensor(packed, 7, &a), TP_INVALID_ARGUMENT);
}

static void ranges(void **state)
{
    (void)state;
    uint8_t *buffer = malloc(small.size);
    tp_reader *const readers[] = {plain, packed};
    uint64_t seed = 3;
    for (size_t r = 0; r < 2; r++) {
        assert_int_equal(tp_pread(readers[r], 0, buffer, small.size, 0, &error), TP_OK);
        assert_memory_equal(buffer, small.data, small.size);
        for (unsigned i = 0; i < (SLOW_BUILD ? 100u : 1000u); i++) {
            uint64_t offset = random_next(&seed) % small.size;
            size_t size = random_next(&seed) % 3 ? random_next(&seed) % 5000 : random_next(&seed) % 3000000;
            if (size > small.size - offset) size = small.size - offset;
            memset(buffer, 0xaa, size);
            assert_int_equal(tp_pread(readers[r], 0, buffer, size, offset, &error), TP_OK);
            assert_memory_equal(buffer, small.data + offset, size);
        }
        assert_int_equal(tp_pread(readers[r], 0, buffer, 0, small.size, &error), TP_OK);
        assert_int_equal(tp_pread(readers[r], 0, buffer, 1, small.size, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_pread(readers[r], 0, buffer, 2, small.size - 1, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_pread(readers[r], 0, buffer, 1, UINT64_MAX, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_pread(readers[r], 1, buffer, 1, 0, &error), TP_INVALID_ARGUMENT);
    }
    free(buffer);
}

static void whole_tensors_and_rows(void **state)
{
    (void)state;
    uint8_t *buffer = malloc(2400000);
    tp_reader *const readers[] = {plain, packed};
    for (size_t r = 0; r < 2; r++) {
        for (size_t i = 0; i < 7; i++) {
            tp_tensor_info info;
            size_t size;
            assert_int_equal(tp_reader_tensor(readers[r], i, &info), TP_OK);
            assert_int_equal(tp_read_tensor(readers[r], i, buffer, 2400000, &error), TP_OK);
            assert_memory_equal(buffer, small.data + info.offset, info.nbytes);
            if (info.nbytes == 0) continue;
            assert_int_equal(tp_read_tensor(readers[r], i, buffer, info.nbytes - 1, &error),
                             TP_BUFFER_TOO_SMALL);
            uint64_t rows = info.shape[0], row = info.nbytes / rows;
            for (uint64_t first = 0; first < rows; first += rows / 3 + 1) {
                uint64_t last = first + (rows - first + 1) / 2;
                assert_int_equal(tp_read_rows(readers[r], i, first, last, NULL, 0, &size, &error), TP_OK);
                assert_int_equal(size, row * (last - first));
                memset(buffer, 0xaa, size);
                assert_int_equal(tp_read_rows(readers[r], i, first, last, buffer, size, &size, &error),
                                 TP_OK);
                assert_memory_equal(buffer, small.data + info.offset + row * first, size);
                assert_int_equal(tp_read_rows(readers[r], i, first, last, buffer, size - 1, &size, &error),
                                 TP_BUFFER_TOO_SMALL);
            }
            assert_int_equal(tp_read_rows(readers[r], i, rows, rows, buffer, 0, &size, &error), TP_OK);
            assert_int_equal(size, 0);
            assert_int_equal(tp_read_rows(readers[r], i, 0, rows + 1, buffer, 2400000, &size, &error),
                             TP_INVALID_ARGUMENT);
            assert_int_equal(tp_read_rows(readers[r], i, 1, 0, buffer, 2400000, &size, &error),
                             TP_INVALID_ARGUMENT);
        }
        char expected[600];
        size_t size;
        snprintf(expected, sizeof expected, "%s: tensor 'tiny': rows 1:4 are out of range, it has 3",
                 scratch(r ? "small.tpress" : "small.safetensors"));
        assert_error(tp_read_rows(readers[r], 5, 1, 4, NULL, 0, &size, &error), error, TP_INVALID_ARGUMENT,
                     expected);
        assert_int_equal(tp_read_tensor(readers[r], 7, buffer, 1, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_read_rows(readers[r], 7, 0, 0, NULL, 0, &size, &error), TP_INVALID_ARGUMENT);
    }
    free(buffer);
}

static void finds_names(void **state)
{
    (void)state;
    tp_reader *const readers[] = {plain, packed};
    static const char *const names[] = {"first.weight", "zero", "second.weight", "norm",
                                        "norm2",        "tiny", "empty"};
    for (size_t r = 0; r < 2; r++) {
        for (unsigned round = 0; round < 4; round++) { /* without a table, then with one */
            size_t found;
            for (size_t i = 0; i < 7; i++) {
                assert_int_equal(tp_reader_find(readers[r], round % 2 ? 0 : SIZE_MAX, names[i],
                                                strlen(names[i]), &found),
                                 TP_OK);
                assert_int_equal(found, i);
            }
            assert_int_equal(tp_reader_find(readers[r], SIZE_MAX, "nor", 3, &found), TP_NOT_FOUND);
            assert_int_equal(tp_reader_find(readers[r], SIZE_MAX, "", 0, &found), TP_NOT_FOUND);
            assert_int_equal(tp_reader_find(readers[r], 1, "norm", 4, &found), TP_NOT_FOUND);
        }
    }
}

/* Of duplicate names the first; odd rows; opaque and truncated tensors; scalars. */
static void odd_tensors(void **state)
{
    (void)state;
    static const char header[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                 "\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                                 "\"odd\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[8,11]},"
                                 "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[11,12]},"
                                 "\"opaque\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[12,15]},"
                                 "\"cut\":{\"dtype\":\"U8\",\"shape\":[10,2],\"data_offsets\":[15,35]}}";
    uint8_t file[1024];
    size_t size = sizeof header - 1, total = 8 + size + 20, length,
           tensor; /* the last one has 5 of its 20 bytes */
    uint8_t buffer[64];
    tp_store64(file, size);
    memcpy(file + 8, header, size);
    for (uint8_t i = 0; i < 20; i++) file[8 + size + i] = i;
    write_file(scratch("odd.safetensors"), file, total);
    compress("odd.safetensors", "odd.tpress", NULL);
    for (unsigned r = 0; r < 2; r++) {
        tp_reader *reader;
        tp_tensor_info info;
        assert_int_equal(tp_open(scratch(r ? "odd.tpress" : "odd.safetensors"), &reader, &error), TP_OK);
        assert_int_equal(tp_reader_tensors(reader), 6);
        for (unsigned i = 0; i < 20; i++) {
            assert_int_equal(tp_reader_find(reader, SIZE_MAX, "t", 1, &tensor), TP_OK);
            assert_int_equal(tensor, 0);
        }
        assert_int_equal(tp_read_tensor(reader, 1, buffer, 4, &error), TP_OK);
        assert_int_equal(buffer[0], 4);
        assert_int_equal(tp_read_tensor(reader, 2, buffer, 3, &error), TP_OK);
        assert_int_equal(tp_read_rows(reader, 2, 0, 1, buffer, 3, &length, &error), TP_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, ": tensor 'odd': its rows are not whole bytes"));
        assert_int_equal(tp_read_tensor(reader, 3, buffer, 1, &error), TP_OK);
        assert_int_equal(buffer[0], 11);
        assert_int_equal(tp_read_rows(reader, 3, 0, 0, buffer, 3, &length, &error), TP_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, ": tensor 'scalar': has no dimension to slice"));
        assert_int_equal(tp_reader_tensor(reader, 4, &info), TP_OK);
        assert_int_equal(info.flags, TP_TENSOR_OPAQUE);
        assert_int_equal(tp_read_tensor(reader, 4, buffer, 3, &error), TP_OK);
        assert_int_equal(tp_read_rows(reader, 4, 0, 1, buffer, 3, &length, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_reader_tensor(reader, 5, &info), TP_OK);
        assert_int_equal(info.flags, TP_TENSOR_TRUNCATED);
        assert_int_equal(info.nbytes, 20);
        assert_int_equal(tp_read_tensor(reader, 5, buffer, 64, &error), TP_TRUNCATED);
        assert_non_null(strstr(error.message, ": tensor 'cut': truncated: the file ends before it"));
        assert_int_equal(tp_read_rows(reader, 5, 0, 2, buffer, 64, &length, &error),
                         TP_OK); /* these are there */
        assert_int_equal(length, 4);
        assert_int_equal(buffer[3], 18);
        assert_int_equal(tp_read_rows(reader, 5, 2, 3, buffer, 64, &length, &error), TP_TRUNCATED);
        tp_close(reader);
    }
}

/* Many tiny reads must not decode a frame each: a million of them would take hours. */
static void tiny_reads(void **state)
{
    (void)state;
    unsigned reads = SLOW_BUILD ? 20000 : 1000000;
    size_t step = small.size / reads;
    for (size_t i = 0; i < reads; i++) {
        uint8_t byte[2];
        assert_true(tp_pread(packed, 0, byte, 2, i * step, &error) == TP_OK);
        assert_true(memcmp(byte, small.data + i * step, 2) == 0);
    }
}

static void *read_randomly(void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    uint8_t *buffer = malloc(3000000);
    for (unsigned i = 0; i < 60; i++) {
        uint64_t offset = random_next(&seed) % small.size;
        size_t size = random_next(&seed) % 3000000;
        if (size > small.size - offset) size = small.size - offset;
        tp_error mine = {0};
        size_t found;
        bool good = tp_pread(packed, 0, buffer, size, offset, &mine) == TP_OK &&
                    memcmp(buffer, small.data + offset, size) == 0 &&
                    tp_reader_find(packed, 0, "norm2", 5, &found) == TP_OK && found == 4;
        if (!good) {
            free(buffer);
            return argument;
        }
    }
    free(buffer);
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    pthread_t threads[20];
    uint64_t seeds[20];
    for (uint64_t i = 0; i < 20; i++) {
        seeds[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, read_randomly, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < 20; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

/* What is whole can be read, what is damaged is refused. */
static void damaged_container(void **state)
{
    (void)state;
    bytes copy = read_file(scratch("small.tpress"));
    tp_frame_entry frame;
    uint8_t *buffer = malloc(2400000);
    assert_int_equal(tp_reader_frame(packed, 1, &frame), TP_OK);
    copy.data[frame.offset + 5000] ^= 4;
    write_file(scratch("damaged.tpress"), copy.data, copy.size);
    tp_reader *reader;
    assert_int_equal(tp_open(scratch("damaged.tpress"), &reader, &error), TP_OK);
    assert_int_equal(tp_read_tensor(reader, 0, buffer, 2400000, &error), TP_CORRUPT);
    assert_non_null(strstr(error.message, "damaged.tpress: tensor 'first.weight': frame 1 at byte "));
    assert_int_equal(tp_pread(reader, 0, buffer, 10, 1000, &error), TP_CORRUPT);
    assert_int_equal(tp_read_tensor(reader, 2, buffer, 2400000, &error),
                     TP_CORRUPT); /* stored there as well */
    assert_int_equal(tp_read_tensor(reader, 1, buffer, 2400000, &error), TP_OK);
    assert_int_equal(tp_read_tensor(reader, 4, buffer, 2400000, &error), TP_OK);
    tp_close(reader);
    free(buffer);
    free(copy.data);
}

static void other_files(void **state)
{
    (void)state;
    char expected[600];
    tp_reader *reader;
    tp_file_info info;
    write_file(scratch("notes.txt"), "hello", 5);
    assert_int_equal(tp_open(scratch("notes.txt"), &reader, &error), TP_OK);
    assert_int_equal(tp_reader_format(reader), TP_FORMAT_BYTES);
    assert_int_equal(tp_reader_tensors(reader), 0);
    tp_close(reader);
    write_file(scratch("broken.safetensors"), "hello", 5);
    assert_int_equal(tp_open(scratch("broken.safetensors"), &reader, &error), TP_OK);
    assert_int_equal(tp_reader_file(reader, 0, &info), TP_OK);
    assert_int_equal(info.format, TP_FORMAT_BYTES);
    assert_true(info.reason.size > 0);
    tp_close(reader);
    write_file(scratch("no.tpress"), "hello", 5);
    snprintf(expected, sizeof expected, "%s: not a tensorpress container", scratch("no.tpress"));
    assert_error(tp_open(scratch("no.tpress"), &reader, &error), error, TP_NOT_CONTAINER, expected);
    assert_null(reader);
    snprintf(expected, sizeof expected, "%s: cannot open: No such file or directory", scratch("none"));
    assert_error(tp_open(scratch("none"), &reader, &error), error, TP_IO, expected);
    assert_int_equal(tp_open_fd(-1, "x", &reader, &error), TP_INVALID_ARGUMENT);
    tp_close(NULL);

    int fd = open(scratch("small.tpress"), O_RDONLY);
    assert_true(lseek(fd, 100, SEEK_SET) == 100); /* its position does not matter */
    assert_int_equal(tp_open_fd(fd, "name", &reader, &error), TP_OK);
    assert_int_equal(tp_reader_tensors(reader), 7);
    tp_close(reader);
    assert_true(lseek(fd, 0, SEEK_CUR) == 100);
    close(fd);
}

int test_reader(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(tensors),
        cmocka_unit_test(ranges),
        cmocka_unit_test(whole_tensors_and_rows),
        cmocka_unit_test(finds_names),
        cmocka_unit_test(odd_tensors),
        cmocka_unit_test(tiny_reads),
        cmocka_unit_test(many_threads),
        cmocka_unit_test(damaged_container),
        cmocka_unit_test(other_files),
    };
    return cmocka_run_group_tests_name("reader", tests, setup, teardown);
}
