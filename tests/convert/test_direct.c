/* Reading and writing past the page cache gives the same bytes, whatever the file system can do of it. */
#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/container.h"
#include "convert/direct.h"
#include "convert/input.h"
#include "convert/output.h"
#include "faults.h"

#define SIZE (TP_DIRECT_LEAST * 3 + 777)

static tp_error error;

/* Whether the scratch folder's file system lets it be tried. */
static unsigned tries(void)
{
    write_file(scratch("probe"), "", 0);
    int fd = open(scratch("probe"), O_RDONLY);
    unsigned before = injected.direct_opened;
    int direct = tp_direct_open(fd, O_RDONLY);
    unsigned opened = injected.direct_opened - before;
    if (direct >= 0) close(direct);
    close(fd);
    scratch_remove_tree("probe");
    injected.direct_opened = before;
    return opened;
}

/* How a file system may behave. */
enum { WILLING, REFUSES_TO_OPEN, REFUSES_FIRST, REFUSES_LATER, DOES_A_PART, IN_MEMORY, WAYS };

static void behave(int way)
{
    scratch_remove();
    faults_reset();
    injected.no_direct = way == REFUSES_TO_OPEN;
    injected.short_io = way == DOES_A_PART;
    if (way == REFUSES_LATER) injected.direct_io = 2;
    if (way == REFUSES_FIRST) injected.direct_calls = injected.direct_io = 1;
    if (way == IN_MEMORY) scratch_in_memory();
}

static int clean(void **state)
{
    (void)state;
    faults_reset();
    scratch_remove();
    return 0;
}

/* Pieces of all sizes, some of them left out as holes. */
static void write_pieces(uint64_t total, uint64_t seed, bool direct)
{
    tp_output output;
    uint8_t *data = malloc(TP_DIRECT_LEAST * 2), *expected = calloc(1, total + 1);
    assert_int_equal(tp_output_open(&output, scratch("out"), -1, true, NULL, NULL, &error), TP_OK);
    if (direct) tp_output_direct(&output);
    assert_int_equal(tp_output_reserve(&output, total, &error), TP_OK);
    for (uint64_t at = 0; at < total;) {
        uint64_t kind = random_next(&seed) % 6, size = random_next(&seed);
        size = 1 + size % (kind < 2 ? 5000 : kind < 4 ? 300000 : TP_DIRECT_LEAST * 2);
        if (size > total - at) size = total - at;
        if (kind % 2 == 0) {
            fill_random(data, size, seed);
            memcpy(expected + at, data, size);
            assert_int_equal(tp_output_write_at(&output, data, size, at, &error), TP_OK);
        }
        at += size;
    }
    assert_int_equal(tp_output_commit(&output, &error), TP_OK);
    tp_output_close(&output);
    bytes b = read_file(scratch("out"));
    assert_int_equal(b.size, total);
    assert_true(memcmp(b.data, expected, total) == 0);
    free(b.data);
    free(expected);
    free(data);
}

static void writes_the_same(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 4095, 4096, 4097, TP_DIRECT_LEAST, SIZE};
    for (int way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (uint64_t seed = 1; seed <= 3; seed++) {
                behave(way);
                unsigned tried = tries();
                write_pieces(sizes[i], seed + i, true);
                assert_int_equal(injected.direct_opened, tried);
            }
        }
        scratch_remove();
    }
    behave(WILLING);
    write_pieces(SIZE, 1, false);
    assert_int_equal(injected.direct_opened, 0);
}

/* One after the other, as a container is written. */
static void appends_the_same(void **state)
{
    (void)state;
    uint8_t *data = malloc(SIZE);
    fill_random(data, SIZE, 5);
    for (int way = 0; way < WAYS; way++) {
        tp_output output;
        uint64_t seed = 3;
        behave(way);
        assert_int_equal(tp_output_open(&output, scratch("out"), -1, true, NULL, NULL, &error), TP_OK);
        tp_output_direct(&output);
        for (size_t at = 0, size; at < SIZE; at += size) {
            size = 128 * (1 + random_next(&seed) % 30000);
            if (size > SIZE - at) size = SIZE - at;
            assert_int_equal(tp_output_write(&output, data + at, size, &error), TP_OK);
            assert_int_equal(output.size, at + size);
        }
        assert_int_equal(tp_output_commit(&output, &error), TP_OK);
        tp_output_close(&output);
        bytes b = read_file(scratch("out"));
        assert_int_equal(b.size, SIZE);
        assert_true(memcmp(b.data, data, SIZE) == 0);
        free(b.data);
        scratch_remove();
    }
    free(data);
}

static void full_disk(void **state)
{
    (void)state;
    uint8_t *data = calloc(1, SIZE);
    data[0] = 1;
    for (int end = 0; end < 2; end++) { /* found out by a write, or by the last one */
        tp_output output;
        behave(WILLING);
        injected.write_room = end ? (int64_t)(SIZE - 100) : 5000000;
        assert_int_equal(tp_output_open(&output, scratch("out"), -1, true, NULL, NULL, &error), TP_OK);
        tp_output_direct(&output);
        tp_status status = tp_output_write(&output, data, SIZE, &error);
        if (end) {
            assert_int_equal(status, TP_OK);
            status = tp_output_commit(&output, &error);
        }
        assert_int_equal(status, TP_NO_SPACE);
        tp_output_close(&output);
        assert_only(NULL);
    }
    free(data);
}

static void fetches_the_same(void **state)
{
    (void)state;
    tp_input input;
    uint8_t *data = malloc(SIZE), *buffer = aligned_alloc(TP_FETCH_ALIGN, TP_RAW_BUFFER), *found;
    fill_random(data, SIZE, 9);
    for (int way = 0; way < WAYS; way++) {
        uint64_t seed = 7;
        behave(way);
        write_file(scratch("in"), data, SIZE);
        assert_int_equal(tp_input_open(&input, scratch("in"), -1, false, NULL, &error), TP_OK);
        unsigned tried = tries();
        tp_input_direct(&input);
        assert_int_equal(injected.direct_opened, tried);
        assert_int_equal(input.source.fetch == NULL, way == REFUSES_TO_OPEN || !tried);
        for (int i = 0; i < 60; i++) {
            uint64_t at = random_next(&seed) % SIZE, size = 1 + random_next(&seed) % TP_FRAME_MAX_RAW;
            if (i % 4 == 0) at -= at % 4096;
            if (i % 5 == 0) at = SIZE - 1 - at % 10000;
            if (size > SIZE - at) size = SIZE - at;
            assert_int_equal(tp_fetch(&input.source, buffer, size, at, &found, &error), TP_OK);
            assert_true(found >= buffer && found + size <= buffer + TP_RAW_BUFFER);
            assert_true(memcmp(found, data + at, size) == 0);
        }
        assert_int_equal(tp_fetch(&input.source, buffer, 2, SIZE - 1, &found, &error), TP_TRUNCATED);
        tp_input_close(&input);
        scratch_remove();
    }
    /* A file that has become shorter meanwhile. */
    behave(WILLING);
    write_file(scratch("in"), data, SIZE);
    assert_int_equal(tp_input_open(&input, scratch("in"), -1, false, NULL, &error), TP_OK);
    tp_input_direct(&input);
    injected.read_end = SIZE - 5000;
    assert_int_equal(tp_fetch(&input.source, buffer, 100000, SIZE - 200000, &found, &error), TP_OK);
    assert_int_equal(tp_fetch(&input.source, buffer, 100000, SIZE - 100000, &found, &error), TP_IO);
    tp_input_close(&input);
    free(buffer);
    free(data);
}

/* Descriptors of the caller's and small files are left alone. */
static void not_for_everything(void **state)
{
    (void)state;
    tp_input input;
    uint8_t *data = calloc(1, TP_DIRECT_LEAST);
    behave(WILLING);
    write_file(scratch("small"), data, TP_DIRECT_LEAST - 1);
    write_file(scratch("large"), data, TP_DIRECT_LEAST);
    free(data);
    assert_int_equal(tp_input_open(&input, scratch("small"), -1, false, NULL, &error), TP_OK);
    tp_input_direct(&input);
    assert_int_equal(injected.direct_opened, 0);
    tp_input_close(&input);
    assert_int_equal(tp_input_open(&input, scratch("large"), -1, false, NULL, &error), TP_OK);
    unsigned tried = tries();
    tp_input_direct(&input);
    assert_int_equal(injected.direct_opened, tried);
    int fd = input.fd;
    tp_input given;
    assert_int_equal(tp_input_open(&given, NULL, fd, false, NULL, &error), TP_OK);
    tp_input_direct(&given);
    assert_int_equal(injected.direct_opened, tried);
    tp_input_close(&given);
    tp_input_close(&input);
}

static void convert_both_ways(const char *name, const char *first_name)
{
    char original[256], first[256]; /* what scratch returns does not last */
    snprintf(original, sizeof original, "%s", scratch(name));
    snprintf(first, sizeof first, "%s", scratch(first_name));
    tp_options options;
    tp_options_init(&options);
    options.direct = true;
    for (unsigned threads = SLOW_BUILD ? 2 : 1; threads <= (SLOW_BUILD ? 2 : 3); threads++) {
        options.threads = threads;
        options.verify = threads == 2;
        options.sha256 = false;
        options.force = true;
        injected.direct_calls = injected.direct_io == 1; /* as it was in the beginning */
        if (tp_compress_file(original, -1, scratch("c"), -1, &options, NULL, &error) != TP_OK)
            fail_msg("%s", error.message);
        assert_same_file(scratch("c"), first);
        if (tp_verify_file(scratch("c"), -1, original, &options, NULL, &error) != TP_OK)
            fail_msg("%s", error.message);
        scratch_remove_tree("back");
        if (tp_decompress_file(scratch("c"), -1, scratch("back"), -1, &options, NULL, &error) != TP_OK)
            fail_msg("%s", error.message);
        if (tp_verify_file(scratch("c"), -1, scratch("back"), &options, NULL, &error) != TP_OK)
            fail_msg("%s", error.message);
    }
}

/* Weights, zeros, noise and weights that were there already, at an odd place of the file; and folders. */
static void conversions(void **state)
{
    (void)state;
    const size_t n = (size_t)5 << 18;
    for (int way = 0; way < WAYS; way++) {
        behave(way);
        if (way != WILLING) scratch_in_memory(); /* a disk is not what is tested then */
        checkpoint c = {0};
        fill_bf16(checkpoint_add(&c, "w", "BF16", 1, n, 2 * n), n, 1);
        memset(checkpoint_add(&c, "zeros", "BF16", 1, n, 2 * n), 0, 2 * n);
        fill_random(checkpoint_add(&c, "noise", "U8", 1, n + 77, n + 77), n + 77, 2);
        fill_bf16(checkpoint_add(&c, "again", "BF16", 1, n, 2 * n), n, 1);
        bytes b = checkpoint_end(&c);
        assert_int_equal(mkdir(scratch("folder"), 0755), 0);
        write_file(scratch("folder/a"), b.data, b.size);
        write_file(scratch("folder/b"), b.data, b.size - 12345);
        write_file(scratch("folder/small"), b.data, 100);
        write_file(scratch("folder/empty"), NULL, 0);
        free(b.data);
        const char *originals[] = {"folder/a", "folder/b", "folder/small", "folder/empty", "folder"};
        for (size_t i = 0; i < sizeof originals / sizeof *originals; i++) {
            tp_options options;
            tp_options_init(&options);
            options.force = true;
            assert_int_equal(
                tp_compress_file(scratch(originals[i]), -1, scratch("first"), -1, &options, NULL, &error),
                TP_OK);
            convert_both_ways(originals[i], "first");
        }
        assert_true(injected.direct_opened > 0 || !tries());
        scratch_remove();
    }
}

int test_direct(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(writes_the_same, clean),    cmocka_unit_test_setup(appends_the_same, clean),
        cmocka_unit_test_setup(full_disk, clean),          cmocka_unit_test_setup(fetches_the_same, clean),
        cmocka_unit_test_setup(not_for_everything, clean), cmocka_unit_test_setup(conversions, clean),
    };
    return cmocka_run_group_tests_name("direct", tests, NULL, clean);
}
