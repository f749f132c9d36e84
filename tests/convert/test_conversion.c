/* Whole files: compress, restore, verify; determinism, duplicates, pipes, damage, limits, stopping. */
#include "support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "convert/container.h"
#include "convert/container_writer.h"
#include "faults.h"

static tp_error error;
static tp_report report;
static lines warnings;

static tp_options defaults(void)
{
    tp_options options;
    tp_options_init(&options);
    options.warning = lines_add;
    options.warning_context = &warnings;
    memset(&warnings, 0, sizeof warnings);
    memset(&error, 0, sizeof error);
    memset(&report, 0, sizeof report);
    return options;
}

static tp_status compress(const char *in, const char *out, const tp_options *options)
{
    return tp_compress_file(scratch(in), -1, scratch(out), -1, options, &report, &error);
}

static tp_status restore(const char *in, const char *out, const tp_options *options)
{
    return tp_decompress_file(scratch(in), -1, scratch(out), -1, options, &report, &error);
}

#define OK(call)                                                                                           \
    do {                                                                                                   \
        if ((call) != TP_OK) fail_msg("%s", error.message);                                                \
    } while (0)

static int clean(void **state)
{
    (void)state;
    faults_reset();
    scratch_remove();
    return 0;
}

static void write_small(void)
{
    bytes small = small_checkpoint();
    write_file(scratch("small.safetensors"), small.data, small.size);
    free(small.data);
}

static void round_trip(void **state)
{
    (void)state;
    tp_options options = defaults();
    write_small();
    for (unsigned mode = 0; mode < 8; mode++) {
        options.threads = 1 + mode % 3;
        options.verify = mode & 1;
        options.sha256 = mode & 2;
        options.force = mode > 0;
        OK(compress("small.safetensors", "c.tpress", &options));
        assert_int_equal(report.files, 1);
        assert_int_equal(report.tensors, 7);
        assert_int_equal(report.frames, 6);
        assert_int_equal(report.duplicate_frames, 1);
        struct stat s;
        assert_int_equal(stat(scratch("c.tpress"), &s), 0);
        assert_int_equal(report.stored_bytes, s.st_size);
        OK(restore("c.tpress", "restored", &options));
        assert_same_file(scratch("small.safetensors"), scratch("restored"));
        assert_int_equal(report.duplicate_frames, 1);
        OK(tp_verify_file(scratch("c.tpress"), -1, mode & 1 ? scratch("small.safetensors") : NULL, &options,
                          &report, &error));
        assert_int_equal(report.tensors, 7);
        assert_int_equal(warnings.count, 0);
    }
    assert_only("small.safetensors", "c.tpress", "restored", NULL);
}

static void any_file(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,      1,       127,     128,     4095,   262144,
                                   262145, 4194303, 4194304, 4194305, 9000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tp_options options = defaults();
        options.force = true;
        uint8_t *data = malloc(sizes[i] + 1);
        fill_random(data, sizes[i] / 2, i);
        memset(data + sizes[i] / 2, 'x', sizes[i] - sizes[i] / 2);
        write_file(scratch("any"), data, sizes[i]);
        free(data);
        OK(compress("any", "any.tpress", &options));
        assert_int_equal(report.raw_bytes, sizes[i]);
        assert_true(report.stored_bytes <= sizes[i] + sizes[i] / 1000 + 8192);
        OK(restore("any.tpress", "restored", &options));
        assert_same_file(scratch("any"), scratch("restored"));
        OK(tp_verify_file(scratch("any.tpress"), -1, scratch("any"), &options, &report, &error));
        assert_int_equal(warnings.count, 0);
    }
}

/* Zeros become holes, and come back. */
static void holes(void **state)
{
    (void)state;
    tp_options options = defaults();
    struct stat s;
    int fd = open(scratch("sparse"), O_CREAT | O_RDWR, 0666);
    assert_int_equal(ftruncate(fd, 40 << 20), 0);
    assert_int_equal(pwrite(fd, "x", 1, 20 << 20), 1);
    close(fd);
    OK(compress("sparse", "sparse.tpress", &options));
    assert_int_equal(report.duplicate_frames, 8); /* ten frames: zeros, the x among zeros, zeros */
    OK(restore("sparse.tpress", "restored", &options));
    assert_same_file(scratch("sparse"), scratch("restored"));
    assert_int_equal(stat(scratch("restored"), &s), 0);
    assert_true(s.st_blocks * 512 <= 8 << 20);
}

/* ------------------------------------------------------------------------------------- determinism */

/* Every dtype, large and small tensors, equal ones apart. */
static void write_varied(const char *path, size_t size)
{
    static const struct {
        const char *name;
        unsigned element;
    } dtypes[] = {{"BF16", 2},    {"F16", 2}, {"F32", 4}, {"F64", 8},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
                  {"F8_E8M0", 1}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"I16", 2},     {"U16", 2},
                  {"I32", 4},     {"U32", 4}, {"I64", 8}, {"U64", 8},  {"C64", 8}};
    const size_t count = sizeof dtypes / sizeof *dtypes;
    checkpoint c = {0};
    char name[64];
    for (unsigned i = 0; c.size < size; i++) {
        unsigned element = dtypes[i % count].element;
        size_t rows = i % 5 == 0 ? 3 : 300 + i % 7, columns = i % 3 == 0 ? 17 : 4096 + i,
               n = rows * columns * element;
        snprintf(name, sizeof name, "layer.%u.%s", i, dtypes[i % count].name);
        uint8_t *data = checkpoint_add(&c, name, dtypes[i % count].name, rows, columns, n);
        uint64_t seed = i % 4 == 3 ? i - count : i;
        if (element >= 2)
            fill_bf16(data, n / 2, seed);
        else
            fill_random(data, n / 2, seed), memset(data + n / 2, 7, n - n / 2);
        /* Every third time the last one again, with another name. */
        if (i % 3 == 2) {
            snprintf(name, sizeof name, "copy.%u", i);
            uint8_t *copy = checkpoint_add(&c, name, dtypes[i % count].name, rows, columns, n);
            memcpy(copy, copy - n, n);
        }
    }
    bytes b = checkpoint_end(&c);
    write_file(path, b.data, b.size);
    free(b.data);
}

static void same_container_always(void **state)
{
    (void)state;
    tp_options options = defaults();
    write_varied(scratch("varied.safetensors"), SLOW_BUILD ? (size_t)8 << 20 : (size_t)64 << 20);
    static const unsigned threads[] = {1, 2, 8};
    char name[32];
    for (size_t i = 0; i < 3; i++) {
        options.threads = threads[i];
        snprintf(name, sizeof name, "%u.tpress", threads[i]);
        OK(compress("varied.safetensors", name, &options));
        assert_true(report.duplicate_frames > 0);
        assert_int_equal(warnings.count, 0);
        assert_same_file(scratch("1.tpress"), scratch(name));
        snprintf(name, sizeof name, "restored.%u", threads[i]);
        OK(restore("1.tpress", name, &options));
        assert_same_file(scratch("varied.safetensors"), scratch(name));
    }
    OK(tp_verify_file(scratch("1.tpress"), -1, scratch("varied.safetensors"), &options, &report, &error));
    /* Interrupted and partial reads and writes change nothing. */
    injected.short_io = true;
    OK(compress("varied.safetensors", "short.tpress", &options));
    assert_same_file(scratch("1.tpress"), scratch("short.tpress"));
    OK(restore("1.tpress", "restored.short", &options));
    assert_same_file(scratch("varied.safetensors"), scratch("restored.short"));
    assert_true(injected.short_calls > 100);
}

/* ------------------------------------------------------------------------------------- duplicates */

typedef struct fake_input {
    bool same;
    unsigned asked;
} fake_input;

static tp_status fake_same(void *context, const tp_frame_record *earlier, const void *raw, bool *same,
                           tp_error *e)
{
    (void)earlier, (void)raw, (void)e;
    fake_input *f = context;
    f->asked++;
    *same = f->same;
    return TP_OK;
}

/* Equal hashes find a candidate, the bytes decide: two frames that collide are both stored. */
static void hashes_decide_nothing(void **state)
{
    (void)state;
    tp_encoder *encoder;
    tp_frame_info info;
    static uint8_t raw[8192], stored[16384];
    size_t size;
    assert_int_equal(tp_encoder_create(&encoder), TP_OK);
    assert_int_equal(tp_encode(encoder, TP_CLASS_BYTES, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, raw, sizeof raw,
                               stored, sizeof stored, &size),
                     TP_OK);
    assert_int_equal(tp_frame_peek(stored, &info, NULL), TP_OK);
    for (int same = 0; same < 2; same++) {
        fake_input input = {.same = same};
        tp_output output;
        tp_container_writer writer;
        tp_output_count(&output);
        assert_int_equal(tp_container_writer_begin(&writer, &output, fake_same, &input, &error), TP_OK);
        for (uint64_t i = 0; i < 300; i++)
            assert_int_equal(
                tp_container_writer_add(&writer, &info, stored, raw, 0, i * sizeof raw, &error), TP_OK);
        assert_int_equal(input.asked, 299);
        assert_int_equal(writer.duplicates, same ? 299 : 0);
        assert_int_equal(output.size, 128 + size * (same ? 1 : 300));
        tp_file_record file = {.path = "x", .size = 300 * sizeof raw};
        tp_container_writer_end_file(&writer, &file);
        assert_int_equal(file.frames, 300);
        assert_int_equal(tp_container_writer_finish(&writer, &file, 1, false, false, &error), TP_OK);
        tp_container_writer_free(&writer);
    }
    tp_encoder_destroy(encoder);
}

/* Another class is another frame, even of the same bytes. */
static void duplicates_keep_their_class(void **state)
{
    (void)state;
    tp_options options = defaults();
    checkpoint c = {0};
    memset(checkpoint_add(&c, "a", "F32", 1, 500000, 2000000), 1, 2000000);
    memset(checkpoint_add(&c, "b", "I32", 1, 500000, 2000000), 1, 2000000);
    memset(checkpoint_add(&c, "c", "F32", 1, 500000, 2000000), 1, 2000000);
    bytes b = checkpoint_end(&c);
    write_file(scratch("classes.safetensors"), b.data, b.size);
    free(b.data);
    OK(compress("classes.safetensors", "c.tpress", &options));
    assert_int_equal(report.frames, 4);
    assert_int_equal(report.duplicate_frames, 1);
    OK(restore("c.tpress", "restored", &options));
    assert_same_file(scratch("classes.safetensors"), scratch("restored"));
}

/* ------------------------------------------------------------------------------------- descriptors */

typedef struct feed {
    int fd;
    const char *path;
} feed;

static void *feeder(void *argument)
{
    feed *f = argument;
    bytes b = read_file(f->path);
    for (size_t at = 0; at < b.size;) {
        ssize_t n = write(f->fd, b.data + at, b.size - at);
        if (n <= 0) break;
        at += (size_t)n;
    }
    close(f->fd);
    free(b.data);
    return NULL;
}

static void *collector(void *argument)
{
    feed *f = argument;
    FILE *out = fopen(f->path, "wb");
    char buffer[70000];
    for (ssize_t n; (n = read(f->fd, buffer, sizeof buffer)) > 0;) fwrite(buffer, 1, (size_t)n, out);
    fclose(out);
    close(f->fd);
    return NULL;
}

static void through_pipes(void **state)
{
    (void)state;
    tp_options options = defaults();
    write_small();
    OK(compress("small.safetensors", "direct.tpress", &options));
    for (unsigned verb = 0; verb < 2; verb++) {
        int in[2], out[2];
        pthread_t threads[2];
        assert_int_equal(pipe(in), 0);
        assert_int_equal(pipe(out), 0);
        feed from = {in[1], scratch(verb ? "piped.tpress" : "small.safetensors")};
        feed to = {out[0], scratch(verb ? "restored" : "piped.tpress")};
        pthread_create(&threads[0], NULL, feeder, &from);
        pthread_create(&threads[1], NULL, collector, &to);
        OK(verb
               ? tp_decompress_file("stdin", in[0], "stdout", out[1], &options, &report, &error)
               : tp_compress_file("small.safetensors", in[0], "stdout", out[1], &options, &report, &error));
        close(in[0]);
        close(out[1]);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
    }
    assert_same_file(scratch("direct.tpress"),
                     scratch("piped.tpress")); /* the same name, so the same bytes */
    assert_same_file(scratch("small.safetensors"), scratch("restored"));
    assert_only("small.safetensors", "direct.tpress", "piped.tpress", "restored", NULL);
}

static void from_the_position(void **state)
{
    (void)state;
    tp_options options = defaults();
    write_file(scratch("file"), "0123456789", 10);
    int fd = open(scratch("file"), O_RDONLY);
    assert_int_equal(lseek(fd, 4, SEEK_SET), 4);
    OK(tp_compress_file("stdin", fd, scratch("c.tpress"), -1, &options, &report, &error));
    close(fd);
    OK(restore("c.tpress", "restored", &options));
    bytes b = read_file(scratch("restored"));
    assert_int_equal(b.size, 6);
    assert_memory_equal(b.data, "456789", 6);
    free(b.data);
    assert_int_equal(tp_compress_file("..", 0, scratch("d.tpress"), -1, &options, &report, &error),
                     TP_INVALID_ARGUMENT);
    assert_string_equal(error.message, "..: its name cannot be stored in a container");
    assert_int_equal(tp_compress_file(NULL, -1, scratch("d.tpress"), -1, &options, &report, &error),
                     TP_INVALID_ARGUMENT);
}

/* ----------------------------------------------------------------------------------------- options */

static void dry_run(void **state)
{
    (void)state;
    tp_options options = defaults();
    write_small();
    OK(compress("small.safetensors", "c.tpress", &options));
    uint64_t size = report.stored_bytes;
    options.dry_run = true;
    OK(tp_compress_file(scratch("small.safetensors"), -1, NULL, -1, &options, &report, &error));
    assert_int_equal(report.stored_bytes, size);
    assert_int_equal(report.duplicate_frames, 1);
    assert_only("small.safetensors", "c.tpress", NULL);
    OK(tp_compress_file(scratch("small.safetensors"), -1, scratch("d.tpress"), -1, NULL, NULL, NULL));
    assert_same_file(scratch("c.tpress"), scratch("d.tpress"));
}

static void warns(void **state)
{
    (void)state;
    char expected[700];
    tp_options options = defaults();
    write_file(scratch("broken.safetensors"), "hello", 5);
    OK(compress("broken.safetensors", "b.tpress", &options));
    assert_int_equal(warnings.count, 1);
    snprintf(expected, sizeof expected, "%s: stored as bytes: ", scratch("broken.safetensors"));
    assert_memory_equal(warnings.text, expected, strlen(expected));
    tp_reader *reader;
    tp_file_info info;
    OK(tp_open(scratch("b.tpress"), &reader, &error));
    OK(tp_reader_file(reader, 0, &info));
    assert_true(info.reason.size > 0);
    assert_memory_equal(info.reason.data, warnings.text + strlen(expected), info.reason.size);
    tp_close(reader);

    options = defaults();
    checkpoint c = {0};
    memset(checkpoint_add(&c, "fine", "U8", 2, 2, 4), 1, 4);
    memset(checkpoint_add(&c, "odd", "U8", 2, 2, 5), 2, 5);
    memset(checkpoint_add(&c, "new", "F3_NEW", 2, 2, 5), 3, 5);
    bytes b = checkpoint_end(&c);
    write_file(scratch("opaque.safetensors"), b.data, b.size);
    free(b.data);
    OK(compress("opaque.safetensors", "o.tpress", &options));
    assert_int_equal(warnings.count, 1);
    snprintf(expected, sizeof expected, "%s: 2 of 3 tensors stored as bytes: tensor 'odd'",
             scratch("opaque.safetensors"));
    assert_memory_equal(warnings.text, expected, strlen(expected));
}

static void limits(void **state)
{
    (void)state;
    char expected[700];
    tp_options options = defaults();
    bytes small = small_checkpoint();
    write_small();
    OK(compress("small.safetensors", "c.tpress", &options));
    options.max_output = small.size - 1;
    snprintf(expected, sizeof expected, "%s: would restore %zu bytes, more than the limit of %zu",
             scratch("c.tpress"), small.size, small.size - 1);
    assert_error(restore("c.tpress", "restored", &options), error, TP_LIMIT, expected);
    assert_only("small.safetensors", "c.tpress", NULL);
    options.max_output = small.size;
    OK(restore("c.tpress", "restored", &options));
    free(small.data);
    assert_int_equal(restore("c.tpress", "restored", &options), TP_EXISTS);
    assert_int_equal(compress("small.safetensors", "c.tpress", &options), TP_EXISTS);
    options.force = true;
    assert_int_equal(compress("small.safetensors", "small.safetensors", &options), TP_INVALID_ARGUMENT);
    assert_int_equal(restore("c.tpress", "c.tpress", &options), TP_INVALID_ARGUMENT);
    assert_int_equal(restore("small.safetensors", "x", &options), TP_NOT_CONTAINER);
    assert_int_equal(compress(".", "x.tpress", &options), TP_INVALID_ARGUMENT); /* inside the input */
    assert_int_equal(restore(".", "x", &options), TP_NOT_CONTAINER);
    assert_only("small.safetensors", "c.tpress", "restored", NULL);
    injected.write_room = 3000000;
    assert_int_equal(restore("c.tpress", "x", &options), TP_NO_SPACE);
    injected.write_room = 1000000;
    assert_int_equal(compress("small.safetensors", "x", &options), TP_NO_SPACE);
    assert_only("small.safetensors", "c.tpress", "restored", NULL);
}

/* A container that claims more than the file system has. */
static void no_room(void **state)
{
    (void)state;
    tp_options options = defaults();
    uint64_t frames = 1000000; /* of 4 MiB of zeros each, stored once */
    tp_encoder *encoder;
    tp_frame_info info;
    size_t size;
    uint8_t *raw = calloc(1, TP_FRAME_MAX_RAW), *stored = malloc(TP_STORED_BUFFER);
    assert_int_equal(tp_encoder_create(&encoder), TP_OK);
    assert_int_equal(tp_encode(encoder, TP_CLASS_BYTES, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, raw,
                               TP_FRAME_MAX_RAW, stored, TP_STORED_BUFFER, &size),
                     TP_OK);
    assert_int_equal(tp_frame_peek(stored, &info, NULL), TP_OK);
    tp_output output;
    tp_container_writer writer;
    fake_input same = {.same = true};
    OK(tp_output_open(&output, scratch("huge.tpress"), -1, false, NULL, NULL, &error));
    OK(tp_container_writer_begin(&writer, &output, fake_same, &same, &error));
    for (uint64_t i = 0; i < frames; i++)
        assert_true(tp_container_writer_add(&writer, &info, stored, raw, 0, i * TP_FRAME_MAX_RAW, &error) ==
                    TP_OK);
    tp_file_record file = {.path = "huge", .size = frames * TP_FRAME_MAX_RAW};
    tp_container_writer_end_file(&writer, &file);
    OK(tp_container_writer_finish(&writer, &file, 1, false, false, &error));
    OK(tp_output_commit(&output, &error));
    tp_output_close(&output);
    tp_container_writer_free(&writer);
    tp_encoder_destroy(encoder);
    free(raw);
    free(stored);
    assert_int_equal(restore("huge.tpress", "huge", &options), TP_NO_SPACE);
    assert_non_null(strstr(error.message, "huge: needs 4194304000000 bytes, but only "));
    assert_only("huge.tpress", NULL);
    tp_reader *reader;
    OK(tp_open(scratch("huge.tpress"), &reader, &error));
    uint8_t byte = 1;
    OK(tp_pread(reader, 0, &byte, 1, 4000000000000, &error));
    assert_int_equal(byte, 0);
    tp_close(reader);
}

typedef struct stopper {
    unsigned calls, stop_at;
    uint64_t last, total;
} stopper;

static bool progress(void *context, uint64_t done, uint64_t total)
{
    stopper *s = context;
    assert_true(done >= s->last && done <= total);
    s->last = done;
    s->total = total;
    return ++s->calls != s->stop_at;
}

static void progress_and_stopping(void **state)
{
    (void)state;
    tp_options options = defaults();
    stopper s = {0};
    bytes small = small_checkpoint();
    write_small();
    options.progress = progress;
    options.progress_context = &s;
    OK(compress("small.safetensors", "c.tpress", &options));
    assert_true(s.calls >= 1);
    assert_int_equal(s.last, small.size);
    assert_int_equal(s.total, small.size);
    free(small.data);
    s = (stopper){.stop_at = 1};
    assert_int_equal(compress("small.safetensors", "d.tpress", &options), TP_CANCELLED);
    assert_int_equal(s.calls, 1); /* it is not asked again */
    s = (stopper){.stop_at = 1};
    assert_int_equal(restore("c.tpress", "restored", &options), TP_CANCELLED);
    s = (stopper){.stop_at = 1};
    assert_int_equal(tp_verify_file(scratch("c.tpress"), -1, NULL, &options, &report, &error),
                     TP_CANCELLED);
    assert_only("small.safetensors", "c.tpress", NULL);
}

/* ------------------------------------------------------------------------------------- changing input */

static void changing_input(void **state)
{
    (void)state;
    char expected[700];
    tp_options options = defaults();
    write_small();
    injected.read_end = 5000000; /* the file has become shorter since it was opened */
    snprintf(expected, sizeof expected, "%s: changed while it was read: it now ends at byte 5000000",
             scratch("small.safetensors"));
    assert_error(compress("small.safetensors", "c.tpress", &options), error, TP_IO, expected);
    faults_reset();
    assert_only("small.safetensors", NULL);
}

static bool touch(void *context, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    int fd = open(context, O_WRONLY);
    while (pwrite(fd, "y", 1, 20000000) != 1) continue; /* makes it longer */
    close(fd);
    return true;
}

static void growing_input(void **state)
{
    (void)state;
    char expected[700], path[512];
    tp_options options = defaults();
    /* Large enough that the callback comes before the end. */
    uint8_t *data = malloc(16 << 20);
    fill_random(data, 16 << 20, 1);
    write_file(scratch("growing"), data, 16 << 20);
    free(data);
    strcpy(path, scratch("growing"));
    options.progress = touch;
    options.progress_context = path;
    options.threads = 1;
    options.level = TP_LEVEL_MAX;
    injected.short_io = true; /* and slow */
    tp_status status = compress("growing", "c.tpress", &options);
    faults_reset();
    if (status == TP_OK) skip(); /* this machine was done within a tenth of a second */
    snprintf(expected, sizeof expected, "%s: changed while it was read", path);
    assert_error(status, error, TP_IO, expected);
    assert_only("growing", NULL);
}

/* ------------------------------------------------------------------------------------------- verify */

static void make_damaged(const char *name, size_t frame, const tp_options *options)
{
    tp_reader *reader;
    tp_frame_entry entry;
    OK(compress("small.safetensors", name, options));
    OK(tp_open(scratch(name), &reader, &error));
    OK(tp_reader_frame(reader, frame, &entry));
    tp_close(reader);
    int fd = open(scratch(name), O_RDWR);
    uint8_t byte;
    off_t at = (off_t)entry.offset + entry.stored_size - 200;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static unsigned lines_with(const char *text)
{
    unsigned count = 0;
    for (const char *at = warnings.text; (at = strstr(at, text)); at++) count++;
    return count;
}

static void verify_names_the_damaged(void **state)
{
    (void)state;
    char expected[700];
    tp_options options = defaults();
    write_small();
    for (unsigned sha256 = 0; sha256 < 2; sha256++) {
        options.force = true;
        options.sha256 = sha256;
        make_damaged("one.tpress", 1, &options);
        memset(&warnings, 0, sizeof warnings);
        snprintf(expected, sizeof expected, "%s: damaged: 2 of 7 tensors", scratch("one.tpress"));
        assert_error(tp_verify_file(scratch("one.tpress"), -1, NULL, &options, &report, &error), error,
                     TP_CORRUPT, expected);
        assert_int_equal(warnings.count, 2);
        snprintf(expected, sizeof expected, "%s: tensor 'first.weight': frame 1 at byte ",
                 scratch("one.tpress"));
        assert_memory_equal(warnings.text, expected, strlen(expected));
        assert_int_equal(lines_with("tensor 'second.weight': frame "), 1); /* stored at the same place */
    }
    /* A frame that two tensors share. */
    make_damaged("run.tpress", 4, &options);
    memset(&warnings, 0, sizeof warnings);
    assert_int_equal(tp_verify_file(scratch("run.tpress"), -1, NULL, &options, &report, &error),
                     TP_CORRUPT);
    assert_int_equal(warnings.count, 2);
    assert_int_equal(lines_with("tensor 'norm': frame 4"), 1);
    assert_int_equal(lines_with("tensor 'norm2': frame 4"), 1);
    /* The header is nobody's. */
    make_damaged("header.tpress", 0, &options);
    memset(&warnings, 0, sizeof warnings);
    snprintf(expected, sizeof expected, "%s: damaged", scratch("header.tpress"));
    assert_error(tp_verify_file(scratch("header.tpress"), -1, NULL, &options, &report, &error), error,
                 TP_CORRUPT, expected);
    assert_int_equal(warnings.count, 1);
    assert_int_equal(lines_with("file 'small.safetensors': frame 0"), 1);
    /* Restoring stops at the first, and leaves nothing. */
    assert_int_equal(restore("one.tpress", "restored", &options), TP_CORRUPT);
    snprintf(expected, sizeof expected, "%s: frame 1 at byte ", scratch("one.tpress"));
    assert_memory_equal(error.message, expected, strlen(expected));
    assert_only("small.safetensors", "one.tpress", "run.tpress", "header.tpress", NULL);
}

static void verify_against(void **state)
{
    (void)state;
    char expected[1300];
    tp_options options = defaults();
    write_small();
    OK(compress("small.safetensors", "c.tpress", &options));
    bytes other = read_file(scratch("small.safetensors"));
    size_t at = other.size - 20000; /* in second.weight */
    other.data[at] ^= 1;
    write_file(scratch("other"), other.data, other.size);
    snprintf(expected, sizeof expected, "%s: intact, but differs from %s", scratch("c.tpress"),
             scratch("other"));
    assert_error(tp_verify_file(scratch("c.tpress"), -1, scratch("other"), &options, &report, &error),
                 error, TP_MISMATCH, expected);
    snprintf(expected, sizeof expected, "%s: tensor 'second.weight': differs from %s at byte %zu\n",
             scratch("c.tpress"), scratch("other"), at);
    assert_string_equal(warnings.text, expected);
    other.data[at] ^= 1;

    memset(&warnings, 0, sizeof warnings);
    write_file(scratch("other"), other.data, other.size - 1);
    assert_int_equal(tp_verify_file(scratch("c.tpress"), -1, scratch("other"), &options, &report, &error),
                     TP_MISMATCH);
    snprintf(expected, sizeof expected, "%s: file 'small.safetensors': has %zu bytes, %s has %zu\n",
             scratch("c.tpress"), other.size, scratch("other"), other.size - 1);
    assert_string_equal(warnings.text, expected);

    memset(&warnings, 0, sizeof warnings);
    write_file(scratch("other"), NULL, 0);
    assert_int_equal(tp_verify_file(scratch("c.tpress"), -1, scratch("other"), &options, &report, &error),
                     TP_MISMATCH);
    assert_int_equal(warnings.count, 1);
    assert_int_equal(tp_verify_file(scratch("c.tpress"), -1, scratch("none"), &options, &report, &error),
                     TP_IO);
    assert_int_equal(tp_verify_file(scratch("small.safetensors"), -1, NULL, &options, &report, &error),
                     TP_NOT_CONTAINER);
    free(other.data);
}

/* The stored SHA-256 is the one that every other tool computes. */
static void sha256(void **state)
{
    (void)state;
    static const uint8_t of_abc[32] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                       0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                       0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};
    static const uint8_t of_nothing[32] = {0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4,
                                           0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b,
                                           0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55};
    for (unsigned i = 0; i < 2; i++) {
        tp_options options = defaults();
        options.sha256 = options.force = true;
        write_file(scratch("abc"), "abc", i ? 0 : 3);
        OK(compress("abc", "c.tpress", &options));
        tp_reader *reader;
        tp_file_info info;
        OK(tp_open(scratch("c.tpress"), &reader, &error));
        OK(tp_reader_file(reader, 0, &info));
        assert_true(info.has_sha256);
        assert_memory_equal(info.sha256, i ? of_nothing : of_abc, 32);
        tp_close(reader);
        OK(tp_verify_file(scratch("c.tpress"), -1, NULL, &options, &report, &error));
        /* Another one in its place, with all else intact. */
        bytes c = read_file(scratch("c.tpress"));
        parts p = take_apart(c);
        p.index.data[64 + 24] ^= 1; /* after file_size and file_digest */
        bytes changed = put_together(&p);
        write_file(scratch("c.tpress"), changed.data, changed.size);
        assert_int_equal(tp_verify_file(scratch("c.tpress"), -1, NULL, &options, &report, &error),
                         TP_CORRUPT);
        assert_int_equal(lines_with(": file 'abc': its SHA-256 differs"), 1);
        parts_free(&p);
        free(changed.data);
        free(c.data);
    }
}

/* A folder container made by hand: a folder with an empty file. */
static void folder_container(void **state)
{
    (void)state;
    tp_options options = defaults();
    bytes b;
    tp_index x = {.folder = true, .files = 2, .string_bytes = 1 + 3};
    OK(tp_index_allocate(&x, &error));
    memset(x.raw + 64, 0, x.raw_size - 64);
    x.file_kind[0] = 1;
    x.file_mode[0] = 0755;
    x.file_mode[1] = 0644;
    x.file_path_len[0] = 1;
    x.file_path_len[1] = 3;
    memcpy(x.strings, "dd/f", 4);
    tp_hasher hasher;
    tp_hasher_init(&hasher);
    for (unsigned i = 0; i < 2; i++) tp_hasher_end(&hasher, x.file_digest + 2 * i);
    parts p = {.index = {x.raw, x.raw_size}, .frames = {NULL, 0}};
    tp_container_header(p.header);
    static const uint64_t zero[2];
    tp_container_footer(p.footer, 0, 0, 0, zero, zero);
    p.frames.data = malloc(1);
    b = put_together(&p);
    write_file(scratch("folder.tpress"), b.data, b.size);
    free(b.data);
    parts_free(&p);
    tp_reader *reader;
    tp_file_info info;
    OK(tp_open(scratch("folder.tpress"), &reader, &error));
    assert_true(tp_reader_is_folder(reader));
    assert_int_equal(tp_reader_files(reader), 2);
    OK(tp_reader_file(reader, 0, &info));
    assert_true(info.is_folder);
    assert_int_equal(info.mode, 0755);
    OK(tp_reader_file(reader, 1, &info));
    assert_int_equal(info.path.size, 3);
    OK(tp_pread(reader, 1, &b, 0, 0, &error));
    tp_close(reader);
    OK(tp_verify_file(scratch("folder.tpress"), -1, NULL, &options, &report, &error));
    assert_int_equal(report.files, 1);
    OK(restore("folder.tpress", "x", &options));
    assert_int_equal(report.files, 1);
    OK(tp_verify_file(scratch("folder.tpress"), -1, scratch("x"), &options, &report, &error));
    assert_only("folder.tpress", "x", NULL);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(tp_format_name(TP_FORMAT_BYTES), "bytes");
    assert_string_equal(tp_format_name(TP_FORMAT_SAFETENSORS), "safetensors");
    assert_string_equal(tp_format_name(TP_FORMAT_GGUF), "gguf");
    assert_string_equal(tp_format_name(TP_FORMAT_TPRESS), "tpress");
}

int test_conversion(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(round_trip, clean),
        cmocka_unit_test_setup(any_file, clean),
        cmocka_unit_test_setup(holes, clean),
        cmocka_unit_test_setup(same_container_always, clean),
        cmocka_unit_test_setup(hashes_decide_nothing, clean),
        cmocka_unit_test_setup(duplicates_keep_their_class, clean),
        cmocka_unit_test_setup(through_pipes, clean),
        cmocka_unit_test_setup(from_the_position, clean),
        cmocka_unit_test_setup(dry_run, clean),
        cmocka_unit_test_setup(warns, clean),
        cmocka_unit_test_setup(limits, clean),
        cmocka_unit_test_setup(no_room, clean),
        cmocka_unit_test_setup(progress_and_stopping, clean),
        cmocka_unit_test_setup(changing_input, clean),
        cmocka_unit_test_setup(growing_input, clean),
        cmocka_unit_test_setup(verify_names_the_damaged, clean),
        cmocka_unit_test_setup(verify_against, clean),
        cmocka_unit_test_setup(sha256, clean),
        cmocka_unit_test_setup(folder_container, clean),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("conversion", tests, NULL, clean);
}
