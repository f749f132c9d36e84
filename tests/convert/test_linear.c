/*
 * Time and memory grow with what is there, not with what is claimed: many tiny tensors, and containers that
 * were made to hurt. Times are those of the processor and are compared with each other: twice the size
 * takes at most three times as long.
 */
#include "support.h"

#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/container.h"
#include "convert/container_writer.h"

static tp_error error;

#define OK(call)                                                                                           \
    do {                                                                                                   \
        if ((call) != TP_OK) fail_msg("%s", error.message);                                                \
    } while (0)

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * The best of three runs of each, small and twice as large. Threads that wake each other take very
 * different times on a busy machine: where that was not enough, there are more runs.
 */
static void assert_linear(const char *what, void (*run)(const char *, unsigned), const char *small_path,
                          const char *large_path, unsigned count)
{
    double best[2] = {1e9, 1e9};
    bool linear = false;
    for (unsigned i = 0; i < 6 || (i < 24 && !linear); i++) {
        double start = seconds(), took;
        run(i % 2 ? large_path : small_path, i % 2 ? 2 * count : count);
        took = seconds() - start;
        if (took < best[i % 2]) best[i % 2] = took;
        linear = best[1] <= 3 * best[0] + 0.02; /* what takes next to nothing is not measured */
    }
    fprintf(stderr, "%s: %u: %.3f s, %u: %.3f s\n", what, count, best[0], 2 * count, best[1]);
    if (!linear) fail_msg("%s: twice the size takes %.1f times as long", what, best[1] / best[0]);
}

/* Kilobytes of this process: VmRSS now, VmHWM at most. */
static long memory_kib(const char *field)
{
    char line[256], format[32];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    snprintf(format, sizeof format, "%s: %%ld kB", field);
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, format, &value) == 1) break;
    if (f) fclose(f);
    return value;
}

/* In a child, so that what other tests took before does not count. Sanitizers need memory of their own. */
static void assert_memory(void (*run)(const char *, unsigned), const char *path, unsigned count,
                          long most_kib)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        long before = memory_kib("VmRSS");
        run(path, count);
        long took = memory_kib("VmHWM") - before;
        if (SLOW_BUILD || took <= most_kib) _exit(0);
        fprintf(stderr, "%ld KiB, more than %ld\n", took, most_kib);
        _exit(1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int clean(void **state)
{
    (void)state;
    scratch_remove();
    return 0;
}

/* ----------------------------------------------------------------------------------------- tiny tensors */

static void name_of(unsigned i, char name[32])
{
    snprintf(name, 32, "layers.%07u.scale", i);
}

static void write_tiny(const char *path, unsigned count)
{
    tp_writer *writer;
    uint32_t *values = malloc((size_t)count * sizeof *values);
    char name[32];
    const uint64_t shape[1] = {1};
    OK(tp_writer_create(path, -1, "tiny.safetensors", NULL, &writer, &error));
    for (unsigned i = 0; i < count; i++) {
        values[i] = i * 2654435761u;
        name_of(i, name);
        OK(tp_writer_add(writer, name, strlen(name), "F32", shape, 1, &values[i], 4, &error));
    }
    OK(tp_writer_finish(writer, NULL, &error));
    tp_writer_close(writer);
    free(values);
}

/* Finds each by its name, reads it, then by a box. */
static void read_tiny(const char *path, unsigned count)
{
    tp_reader *reader;
    char name[32];
    size_t number, size;
    uint32_t value;
    const uint64_t first[1] = {0}, last[1] = {1};
    OK(tp_open(path, &reader, &error));
    assert_int_equal(tp_reader_tensors(reader), count);
    for (unsigned i = 0; i < count; i++) {
        name_of(i, name);
        if (tp_reader_find(reader, SIZE_MAX, name, strlen(name), &number) != TP_OK ||
            tp_read_tensor(reader, number, &value, 4, &error) != TP_OK || value != i * 2654435761u)
            fail_msg("%s", name);
        if (tp_read_box(reader, number, first, last, 1, &value, 4, &size, &error) != TP_OK ||
            value != i * 2654435761u)
            fail_msg("%s", name);
    }
    tp_close(reader);
}

static void tiny_tensors(void **state)
{
    (void)state;
    scratch_in_memory();
    const unsigned count = SLOW_BUILD ? 20000 : 250000, most = SLOW_BUILD ? 40000 : 1000000;
    write_tiny(scratch("a.tpress"), count);
    write_tiny(scratch("b.tpress"), 2 * count);
    assert_linear("tensors found and read", read_tiny, scratch("a.tpress"), scratch("b.tpress"), count);
    OK(tp_decompress_file(scratch("a.tpress"), -1, scratch("a"), -1, NULL, NULL, &error));
    OK(tp_decompress_file(scratch("b.tpress"), -1, scratch("b"), -1, NULL, NULL, &error));
    assert_linear("the same of plain files", read_tiny, scratch("a"), scratch("b"), count);
    /* The index, a table of names of 16 bytes each, and one workspace. */
    write_tiny(scratch("c.tpress"), most);
    assert_memory(read_tiny, scratch("c.tpress"), most, (128 << 10) + (long)most * 300 / 1024);
}

/* ----------------------------------------------------------------------------- one frame, claimed often */

static tp_status always_same(void *context, const tp_frame_record *earlier, const void *raw, bool *same,
                             tp_error *e)
{
    (void)context, (void)earlier, (void)raw, (void)e;
    *same = true;
    return TP_OK;
}

/* A file of `frames` times 4 MiB of zeros, which is one stored frame, and one tensor that is all of it. */
static void write_claims(const char *path, unsigned frames)
{
    tp_encoder *encoder;
    tp_frame_info info;
    tp_output output;
    tp_container_writer writer;
    size_t size;
    uint8_t *raw = calloc(1, TP_FRAME_MAX_RAW), *stored = malloc(TP_STORED_BUFFER);
    assert_int_equal(tp_encoder_create(&encoder), TP_OK);
    assert_int_equal(tp_encode(encoder, TP_CLASS_BYTES, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, raw,
                               TP_FRAME_MAX_RAW, stored, TP_STORED_BUFFER, &size),
                     TP_OK);
    assert_int_equal(tp_frame_peek(stored, &info, NULL), TP_OK);
    OK(tp_output_open(&output, path, -1, false, NULL, NULL, &error));
    OK(tp_container_writer_begin(&writer, &output, always_same, NULL, &error));
    for (uint64_t i = 0; i < frames; i++)
        assert_true(tp_container_writer_add(&writer, &info, stored, raw, 0, i * TP_FRAME_MAX_RAW, &error) ==
                    TP_OK);
    uint64_t total = (uint64_t)frames * TP_FRAME_MAX_RAW, dims[2] = {frames, TP_FRAME_MAX_RAW};
    char strings[] = "tU8";
    tp_layout_tensor tensor = {.nbytes = total, .name_size = 1, .ndim = 2};
    tp_layout_text dtype = {.start = 1, .size = 2};
    tp_file_record file = {.path = "huge",
                           .size = total,
                           .format = TP_FORMAT_SAFETENSORS,
                           .tensors = &tensor,
                           .tensor_count = 1,
                           .dtypes = &dtype,
                           .dtype_count = 1,
                           .dims = dims,
                           .strings = strings};
    tp_container_writer_end_file(&writer, &file);
    OK(tp_container_writer_finish(&writer, &file, 1, false, false, &error));
    OK(tp_output_commit(&output, &error));
    tp_output_close(&output);
    tp_container_writer_free(&writer);
    tp_encoder_destroy(encoder);
    free(raw);
    free(stored);
}

/* Everything that can be asked of it without 4 TB to put it into. */
static void use_claims(const char *path, unsigned frames)
{
    tp_reader *reader;
    tp_tensor_info info;
    tp_options options;
    uint8_t bytes_read[64];
    size_t size;
    uint64_t seed = 1, total = (uint64_t)frames * TP_FRAME_MAX_RAW;
    OK(tp_open(path, &reader, &error));
    assert_int_equal(tp_reader_original_size(reader), total);
    assert_int_equal(tp_reader_tensor(reader, 0, &info), TP_OK);
    assert_int_equal(info.nbytes, total);
    assert_int_equal(tp_read_tensor(reader, 0, bytes_read, sizeof bytes_read, &error), TP_BUFFER_TOO_SMALL);
    for (unsigned i = 0; i < 1000; i++)
        OK(tp_pread(reader, 0, bytes_read, sizeof bytes_read, random_next(&seed) % (total - 64), &error));
    /* A column: one frame, decoded once, however many rows name it. */
    const uint64_t first[2] = {0, 5}, last[2] = {frames, 6};
    uint8_t *column = malloc(frames);
    OK(tp_read_box(reader, 0, first, last, 2, column, frames, &size, &error));
    assert_int_equal(size, frames);
    for (unsigned i = 0; i < frames; i++) assert_true(column[i] == 0);
    free(column);
    tp_close(reader);
    tp_options_init(&options);
    options.threads = 2;
    OK(tp_verify_file(path, -1, NULL, &options, NULL, &error));
    options.max_output = total - 1;
    assert_int_equal(tp_decompress_file(path, -1, scratch("never"), -1, &options, NULL, &error), TP_LIMIT);
}

static void many_references(void **state)
{
    (void)state;
    scratch_in_memory();
    const unsigned frames = SLOW_BUILD ? 10000 : 125000,
                   most = SLOW_BUILD ? 20000 : 1000000; /* these are 4 TB */
    write_claims(scratch("a.tpress"), frames);
    write_claims(scratch("b.tpress"), 2 * frames);
    assert_linear("references to one frame", use_claims, scratch("a.tpress"), scratch("b.tpress"), frames);
    write_claims(scratch("c.tpress"), most);
    assert_memory(use_claims, scratch("c.tpress"), most, ((128 + 2 * 16) << 10) + (long)most * 110 / 1024);
}

/* -------------------------------------------------------------------------------- an index that expands */

/* An index of `megabytes` zeros: 255 times less is stored, and what comes out are no counts that fit. */
static void write_bomb(const char *path, unsigned megabytes)
{
    int raw_size = (int)megabytes << 20, bound = LZ4_compressBound(raw_size);
    uint8_t *raw = calloc(1, (size_t)raw_size), *file = malloc(256 + (size_t)bound);
    uint64_t hash[2];
    assert_non_null(raw);
    assert_non_null(file);
    tp_container_header(file);
    int stored = LZ4_compress_default((const char *)raw, (char *)file + 128, raw_size, bound);
    assert_true(stored > 0 && (uint64_t)raw_size > 250u * (uint64_t)stored);
    tp_hash128(file + 128, (size_t)stored, hash);
    tp_container_footer(file + 128 + stored, 128, (uint64_t)stored, (uint64_t)raw_size, hash, hash);
    write_file(path, file, 256 + (size_t)stored);
    free(raw);
    free(file);
}

static void open_bomb(const char *path, unsigned megabytes)
{
    tp_reader *reader;
    (void)megabytes;
    assert_int_equal(tp_open(path, &reader, &error), TP_CORRUPT);
    assert_non_null(strstr(error.message, ": index: "));
}

static void expanding_index(void **state)
{
    (void)state;
    scratch_in_memory();
    const unsigned megabytes = SLOW_BUILD ? 8 : 64;
    write_bomb(scratch("a.tpress"), megabytes);
    write_bomb(scratch("b.tpress"), 2 * megabytes);
    assert_linear("megabytes of zeros", open_bomb, scratch("a.tpress"), scratch("b.tpress"), megabytes);
    assert_memory(open_bomb, scratch("b.tpress"), 2 * megabytes, (2 * (long)megabytes + 8) << 10);
}

int test_linear(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(tiny_tensors, clean),
        cmocka_unit_test_setup(many_references, clean),
        cmocka_unit_test_setup(expanding_index, clean),
    };
    return cmocka_run_group_tests_name("linear", tests, NULL, clean);
}
