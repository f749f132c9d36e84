/* Whole files onto the device: samples and made ones, at every level and codec. */
#include "support.h"

#include <time.h>

#include "checkpoints.h"
#include "gpu/loader.h"
#include "gpu/pattern.h"

static const char *const samples[] = {
    "safetensors/burn_mnist.safetensors",
    "safetensors/candle_jfk_codes.safetensors",
    "safetensors/runai_test.safetensors",
    "safetensors/runai_test_empty.safetensors",
    "safetensors/silero_vad_16k.safetensors",
    "safetensors/weight-inspect_tiny.safetensors",
    "gguf/all_types.gguf",
    "gguf/big_endian.gguf",
    "gguf/weight-inspect_tiny.gguf",
    "gguf/weight-inspect_empty.gguf",
    "gguf/ggml-vocab-gpt-2.gguf",
    "other/burn_mixed_types.pt",
};

static size_t find(tp_reader *reader, const char *name)
{
    size_t tensor = SIZE_MAX;
    assert_int_equal(tp_reader_find(reader, SIZE_MAX, name, strlen(name), &tensor), TP_OK);
    return tensor;
}

/* The bytes of an item, a tensor or rows of it, as a reader of the same tensors gives them. */
static uint8_t *expected_bytes(const tp_load_item *item, tp_reader *plain)
{
    tp_error error = {0};
    size_t size;
    uint8_t *bytes = malloc(item->nbytes + 1);
    if (item->whole)
        assert_ok(tp_read_tensor(plain, item->tensor, bytes, item->nbytes, &error), &error);
    else
        assert_ok(
            tp_read_rows(plain, item->tensor, item->first, item->last, bytes, item->nbytes, &size, &error),
            &error);
    return bytes;
}

static void compare_item(tp_loader *loader, size_t number, tp_reader *plain)
{
    tp_error error = {0};
    tp_load_item item;
    assert_int_equal(tp_loader_item(loader, number, &item), TP_OK);
    assert_true(item.loaded);
    uint8_t *expected = expected_bytes(&item, plain ? plain : item.reader),
            *actual = malloc(item.nbytes + 1);
    assert_ok(tp_loader_read(loader, number, actual, item.nbytes, &error), &error);
    if (memcmp(expected, actual, item.nbytes) != 0) fail_msg("item %zu differs", number);
    if (item.nbytes)
        assert_int_equal(tp_loader_read(loader, number, actual, item.nbytes - 1, &error),
                         TP_BUFFER_TOO_SMALL);
    free(expected);
    free(actual);
}

/* Loads all of `path` and compares each tensor with the one that the reader of `original` gives. */
static void load_and_compare(tp_device *device, const char *path, const char *original, size_t staging,
                             tp_load_stats *stats)
{
    tp_reader *reader, *plain;
    tp_loader *loader;
    tp_error error = {0};
    tp_load_options options;
    size_t truncated;
    assert_ok(tp_open(path, &reader, &error), &error);
    assert_ok(tp_open(original, &plain, &error), &error);
    tp_load_options_init(&options);
    options.threads = 2;
    options.staging = staging;
    assert_ok(tp_loader_create(device, &options, &loader, &error), &error);
    assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, &truncated, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    tp_loader_stats(loader, stats);
    assert_int_equal(stats->tensors + truncated, tp_reader_tensors(reader));
    assert_int_equal(tp_reader_tensors(plain), tp_reader_tensors(reader));
    assert_int_equal(tp_loader_items(loader), stats->tensors);
    for (size_t i = 0; i < tp_loader_items(loader); i++) {
        tp_load_item item;
        assert_int_equal(tp_loader_item(loader, i, &item), TP_OK);
        assert_true(item.loaded && item.whole && item.reader == reader);
        assert_int_equal(item.where.address % 256, 0);
        if (stand_in() && item.nbytes) assert_true(stand_in()->room(item.where.address) >= item.nbytes);
        compare_item(loader, i, plain);
    }
    assert_ok(tp_loader_verify(loader, &error), &error);
    tp_loader_close(loader);
    tp_close(reader);
    tp_close(plain);
}

static void every_sample(void **state)
{
    (void)state;
    tp_device *device = open_device();
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        char path[1024];
        tp_load_stats stats;
        snprintf(path, sizeof path, "%s/%s", TP_SAMPLES_DIR, samples[i]);
        load_and_compare(device, path, path, 0, &stats); /* as it is */
        assert_int_equal(stats.decoded_on_device_bytes + stats.decoded_on_host_bytes, 0);
        for (int level = TP_LEVEL_FAST; level <= TP_LEVEL_MAX; level++) {
            for (int codec = TP_CODEC_AUTO; codec <= TP_CODEC_DF11; codec++) {
                if (codec != TP_CODEC_AUTO && level != TP_LEVEL_DEFAULT) continue;
                make_container(path, in_folder("c.tpress"), (tp_level)level, (tp_codec_choice)codec);
                load_and_compare(device, in_folder("c.tpress"), path, 0, &stats);
                assert_int_equal(stats.decoded_on_device_bytes + stats.decoded_on_host_bytes,
                                 stats.raw_bytes);
                if (codec == TP_CODEC_RAW) assert_int_equal(stats.decoded_on_host_bytes, 0);
            }
        }
    }
    tp_device_close(device);
    assert_clean();
}

static void every_dtype(void **state)
{
    (void)state;
    tp_device *device = open_device();
    const char *const path = in_folder("made.safetensors");
    uint64_t host_by_auto = 0;
    for (int level = TP_LEVEL_FAST; level <= TP_LEVEL_MAX; level++) {
        for (int codec = TP_CODEC_AUTO; codec <= TP_CODEC_DF11; codec++) {
            tp_load_stats stats;
            if (codec != TP_CODEC_AUTO && level != TP_LEVEL_DEFAULT) continue;
            make_container(path, in_folder("c.tpress"), (tp_level)level, (tp_codec_choice)codec);
            /* the least staging, and more than needed */
            load_and_compare(device, in_folder("c.tpress"), path, codec % 2 ? 1 : (size_t)1 << 28, &stats);
            assert_int_equal(stats.decoded_on_device_bytes + stats.decoded_on_host_bytes, stats.raw_bytes);
            if (codec == TP_CODEC_RANS || codec == TP_CODEC_RAW)
                assert_true(stats.decoded_on_host_bytes < 65536);
            if (codec == TP_CODEC_AUTO && level == TP_LEVEL_DEFAULT) host_by_auto = stats.decoded_on_host_bytes;
            if (codec == TP_CODEC_DF11) assert_true(stats.decoded_on_host_bytes <= host_by_auto);
        }
    }
    tp_device_close(device);
    assert_clean();
}

/*
 * Device memory is at its peak what is loaded and the staging, whatever the file holds and however it is
 * loaded; and afterwards what is loaded.
 */
static void memory_is_bounded(void **state)
{
    (void)state;
    tp_error error = {0};
    if (!stand_in()) {
        tp_device *device = open_device();
        tp_device_close(device);
    }
    if (!stand_in()) return; /* nobody else tells */
    enum { JOBS = 1 << 20, LEAST = 26 << 20 };
    static const size_t stagings[] = {1, 30 << 20};
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    const char *const paths[] = {in_folder("c.tpress"), in_folder("made.safetensors")};
    for (int way = 0; way < 16; way++) {
        const size_t staging = stagings[way / 8];
        tp_reader *reader;
        tp_loader *loader;
        size_t item;
        stand_in()->reset();
        tp_device *device = open_device();
        assert_ok(tp_open(paths[way % 2], &reader, &error), &error);
        const tp_load_options options = {.threads = 2, .staging = staging};
        assert_ok(tp_loader_create(device, &options, &loader, &error), &error);
        assert_int_equal(stand_in()->used(), 0);
        if (way / 2 % 4 == 2) {
            const size_t big = find(reader, "big.bf16");
            for (int i = 0; i < 5; i++)
                assert_ok(tp_loader_add_rows(loader, reader, big, (uint64_t)i * 400000,
                                             (uint64_t)i * 400000 + 500000, NULL, &error),
                          &error);
        } else {
            assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, NULL, &error), &error);
        }
        const uint64_t output = tp_loader_arena_size(loader); /* with what aligns the items */
        if (way / 2 % 4 == 1) assert_ok(tp_loader_use_arena(loader, NULL, &error), &error);
        if (way / 2 % 4 == 3) do
                assert_ok(tp_loader_next(loader, &item, &error), &error);
            while (item != SIZE_MAX);
        else
            assert_ok(tp_loader_run(loader, &error), &error);
        assert_int_equal(stand_in()->used(), output);
        if (stand_in()->peak() > output + (staging > LEAST ? staging : LEAST) + JOBS)
            fail_msg("way %d: %llu bytes at the peak for %llu", way, stand_in()->peak(),
                     (unsigned long long)output);
        assert_true(stand_in()->peak() > output + (4 << 20)); /* it went through staging */
        tp_loader_close(loader);
        tp_close(reader);
        tp_device_close(device);
        assert_clean();
    }
}

static void some_tensors(void **state)
{
    (void)state;
    static const char *const chosen[] = {"small.2", "big.again", "small.3.again", "small.3",
                                         "nothing", "f64",       "small.2"};
    tp_device *device = open_device();
    tp_error error = {0};
    tp_load_stats stats;
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    const char *const paths[] = {in_folder("c.tpress"), in_folder("made.safetensors")};
    for (int which = 0; which < 2; which++) {
        tp_reader *reader;
        tp_loader *loader;
        tp_load_item info;
        size_t item, again;
        uint8_t byte;
        assert_ok(tp_open(paths[which], &reader, &error), &error);
        assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
        assert_int_equal(tp_loader_add(loader, reader, tp_reader_tensors(reader), NULL, &error),
                         TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add(loader, reader, SIZE_MAX, NULL, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add_named(loader, reader, "no.such", NULL, &error), TP_NOT_FOUND);
        assert_non_null(strstr(error.message, "no.such"));
        for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
            assert_ok(tp_loader_add_named(loader, reader, chosen[i], &item, &error), &error);
            assert_ok(tp_loader_add(loader, reader, find(reader, chosen[i]), &again, &error), &error);
            assert_int_equal(item, again);
            assert_int_equal(item, i == 6 ? 0 : i);
        }
        assert_int_equal(tp_loader_item(loader, 0, &info), TP_OK);
        assert_false(info.loaded);
        assert_int_equal(tp_loader_item(loader, 6, &info), TP_INVALID_ARGUMENT);
        assert_ok(tp_loader_verify(loader, &error), &error); /* of nothing */
        assert_int_equal(tp_loader_read(loader, 0, &byte, 1, &error), TP_NOT_FOUND);
        assert_ok(tp_loader_run(loader, &error), &error);
        tp_loader_stats(loader, &stats);
        assert_int_equal(stats.tensors, 6); /* one was named twice */
        for (size_t i = 0; i < 6; i++) compare_item(loader, i, reader);
        /* Random access: more of them afterwards, each by itself; what is there stays where it is. */
        tp_load_item before, after;
        tp_loader_item(loader, 1, &before);
        static const char *const more[] = {"i8", "small.1", "big.bf16", "f64"};
        for (size_t i = 0; i < 4; i++) {
            assert_ok(tp_loader_add_named(loader, reader, more[i], &item, &error), &error);
            assert_int_equal(item, i == 3 ? 5 : 6 + i);
            assert_ok(tp_loader_run(loader, &error), &error);
            compare_item(loader, item, reader);
        }
        tp_loader_item(loader, 1, &after);
        assert_int_equal(before.where.address, after.where.address);
        compare_item(loader, 1, reader);
        tp_loader_stats(loader, &stats);
        assert_int_equal(stats.tensors, 9);
        assert_ok(tp_loader_verify(loader, &error), &error);
        tp_loader_close(loader);
        tp_close(reader);
    }
    /* Nothing chosen. */
    tp_loader *loader;
    size_t item = 0;
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    assert_ok(tp_loader_next(loader, &item, &error), &error);
    assert_int_equal(item, SIZE_MAX);
    assert_int_equal(tp_loader_arena_size(loader), 0);
    assert_ok(tp_loader_use_arena(loader, NULL, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    assert_ok(tp_loader_verify(loader, &error), &error);
    tp_loader_close(loader);
    tp_loader_close(NULL);
    tp_device_close(device);
    assert_clean();
}

static void patterns(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"*", "", true},
        {"*", "a.b", true},
        {"", "", true},
        {"", "a", false},
        {"a", "a", true},
        {"a", "ab", false},
        {"a*", "a", true},
        {"*a", "ba", true},
        {"*a*b*", "xaxxbx", true},
        {"*a*b*", "xbxxax", false},
        {"*.weight", "model.layers.0.weight", true},
        {"*.weight", "model.layers.0.weights", false},
        {"model.layers.?.*", "model.layers.0.w", true},
        {"model.layers.?.*", "model.layers.10.w", false},
        {"?", "", false},
        {"[ab]", "b", true},
        {"[ab]", "c", false},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[^a-c]x", "dx", true},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[a-]", "-", true},
        {"[\\]]", "]", true},
        {"[a", "[a", true},
        {"[", "[", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\", "\\", true},
        {"a\\[b", "a[b", true},
        {"\xff?", "\xff\xfe", true},
        {"a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (tp_pattern_matches(cases[i].pattern, cases[i].name, strlen(cases[i].name)) != cases[i].matches)
            fail_msg("'%s' and '%s'", cases[i].pattern, cases[i].name);
    assert_true(tp_pattern_matches("a*c", "a\0c", 3));

    tp_device *device = open_device();
    tp_error error = {0};
    tp_reader *reader;
    tp_loader *loader;
    size_t added = 0, truncated = 1;
    assert_ok(tp_open(in_folder("made.safetensors"), &reader, &error), &error);
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_add_matching(loader, reader, "small.?", &added, &truncated, &error), &error);
    assert_int_equal(added, 4);
    assert_int_equal(truncated, 0);
    assert_ok(tp_loader_add_matching(loader, reader, "*.[23]*", &added, NULL, &error), &error);
    assert_int_equal(added, 3);
    assert_int_equal(tp_loader_items(loader), 5);
    assert_ok(tp_loader_add_matching(loader, reader, "none", &added, NULL, &error), &error);
    assert_int_equal(added, 0);
    assert_ok(tp_loader_run(loader, &error), &error);
    for (size_t i = 0; i < 5; i++) compare_item(loader, i, reader);
    tp_loader_close(loader);
    tp_close(reader);
    tp_device_close(device);
    assert_clean();
}

/* A checkpoint with a matrix of many frames, whose rows end anywhere in them. */
enum { ROWS = 700, COLUMNS = 5003 };
static void make_matrix(const char *path)
{
    char header[256];
    const size_t bytes = (size_t)ROWS * COLUMNS * 2;
    int length = snprintf(header, sizeof header,
                          "{\"m\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]},"
                          "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[%zu,%zu]}}",
                          ROWS, COLUMNS, bytes, bytes, bytes + 4);
    while (length % 8) header[length++] = ' ';
    const uint64_t size = (uint64_t)length;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(&size, 8, 1, file);
    fwrite(header, 1, size, file);
    for (size_t i = 0; i < bytes / 2 + 2; i++) {
        const uint32_t away = (uint32_t)__builtin_ctz(random_below(1 << 20) | 1u << 10);
        const uint16_t v = (uint16_t)(random_below(2) << 15 | (121 - away) << 7 | random_below(128));
        fwrite(&v, 2, 1, file);
    }
    assert_int_equal(fclose(file), 0);
}

static void rows(void **state)
{
    (void)state;
    static const uint64_t slices[][2] = {{0, 0},     {0, 1},      {0, ROWS},    {0, 233},
                                         {233, 466}, {466, ROWS}, {ROWS, ROWS}, {419, 420}};
    enum { COUNT = sizeof slices / sizeof *slices };
    tp_device *device = open_device();
    tp_error error = {0};
    make_matrix(in_folder("matrix.safetensors"));
    make_container(in_folder("matrix.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    const char *const paths[] = {in_folder("c.tpress"), in_folder("matrix.safetensors")};
    for (int which = 0; which < 2; which++) {
        tp_reader *reader;
        tp_loader *loader;
        tp_load_stats stats;
        size_t item;
        assert_ok(tp_open(paths[which], &reader, &error), &error);
        const size_t m = find(reader, "m");
        assert_ok(tp_loader_create(device, &(tp_load_options){.threads = 2, .staging = 1}, &loader, &error),
                  &error);
        assert_int_equal(tp_loader_add_rows(loader, reader, m, 0, ROWS + 1, &item, &error),
                         TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add_rows(loader, reader, m, 2, 1, &item, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add_rows(loader, reader, 99, 0, 1, &item, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add_rows(loader, reader, find(reader, "s"), 0, 0, &item, &error),
                         TP_INVALID_ARGUMENT);
        /* One shard alone reads the frames that hold it and no others. */
        assert_ok(tp_loader_add_rows(loader, reader, m, 10, 20, &item, &error), &error);
        assert_ok(tp_loader_run(loader, &error), &error);
        compare_item(loader, item, reader);
        tp_loader_stats(loader, &stats);
        assert_true(stats.stored_bytes <= TP_FRAME_MAX_RAW + 128);
        assert_int_equal(stats.raw_bytes, 10 * COLUMNS * 2);
        for (size_t i = 0; i < COUNT; i++) {
            assert_ok(tp_loader_add_rows(loader, reader, m, slices[i][0], slices[i][1], &item, &error),
                      &error);
            assert_int_equal(item, i + 1);
        }
        assert_ok(tp_loader_add(loader, reader, m, &item, &error), &error);
        assert_int_equal(item, COUNT + 1);
        assert_ok(tp_loader_run(loader, &error), &error);
        for (size_t i = 0; i < COUNT + 2; i++) compare_item(loader, i, reader);
        assert_ok(tp_loader_verify(loader, &error), &error);
        tp_loader_close(loader);
        tp_close(reader);
    }
    tp_device_close(device);
    assert_clean();
}

/* Containers and plain files in one loader, item by item. */
static void several_files(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_error error = {0};
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    make_container(in_folder("matrix.safetensors"), in_folder("d.tpress"), TP_LEVEL_FAST, TP_CODEC_AUTO);
    const char *const paths[] = {in_folder("c.tpress"), in_folder("matrix.safetensors"),
                                 in_folder("d.tpress"), in_folder("made.safetensors")};
    tp_reader *readers[4];
    tp_loader *loader;
    bool seen[64] = {false};
    size_t count = 0, item, handed = 0;
    assert_ok(tp_loader_create(device, &(tp_load_options){.staging = 1}, &loader, &error), &error);
    for (int i = 0; i < 4; i++) {
        assert_ok(tp_open(paths[i], &readers[i], &error), &error);
        assert_ok(tp_loader_add_matching(loader, readers[i], "*", NULL, NULL, &error), &error);
        count += tp_reader_tensors(readers[i]);
    }
    assert_int_equal(tp_loader_items(loader), count);
    for (;;) {
        assert_ok(tp_loader_next(loader, &item, &error), &error);
        if (item == SIZE_MAX) break;
        assert_true(item < count && !seen[item]);
        seen[item] = true;
        handed++;
        compare_item(loader, item, NULL); /* against its own reader */
        if (handed == 1) {
            tp_load_item info;
            size_t loaded = 0;
            for (size_t i = 0; i < count; i++) {
                tp_loader_item(loader, i, &info);
                loaded += info.loaded;
            }
            assert_int_equal(loaded, 1); /* nothing before it is handed out */
            assert_int_equal(tp_loader_add(loader, readers[0], 0, NULL, &error), TP_INVALID_ARGUMENT);
            assert_int_equal(tp_loader_verify(loader, &error), TP_INVALID_ARGUMENT);
            assert_int_equal(tp_loader_use_arena(loader, NULL, &error), TP_INVALID_ARGUMENT);
        }
    }
    assert_int_equal(handed, count);
    assert_ok(tp_loader_next(loader, &item, &error), &error);
    assert_int_equal(item, SIZE_MAX);
    assert_ok(tp_loader_verify(loader, &error), &error);
    tp_loader_close(loader);

    /* Some by the iterator, the rest at once; and closed in the middle. */
    for (int end = 0; end < 2; end++) {
        assert_ok(tp_loader_create(device, &(tp_load_options){.staging = 1}, &loader, &error), &error);
        for (int i = 0; i < 4; i++)
            assert_ok(tp_loader_add_matching(loader, readers[i], "*[!s]", NULL, NULL, &error), &error);
        for (int i = 0; i < 5; i++) assert_ok(tp_loader_next(loader, &item, &error), &error);
        if (end == 0) {
            assert_ok(tp_loader_run(loader, &error), &error);
            for (size_t i = 0; i < tp_loader_items(loader); i++) compare_item(loader, i, NULL);
        }
        tp_loader_close(loader);
    }
    for (int i = 0; i < 4; i++) tp_close(readers[i]);
    tp_device_close(device);
    assert_clean();
}

/* The order of the iterator is that of the ends in the file, and what follows goes on while nobody asks. */
static void work_goes_on(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_device_info info;
    tp_error error = {0};
    tp_reader *reader;
    tp_loader *loader;
    size_t item;
    tp_device_describe(device, &info);
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_RANS);
    assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
    const size_t count = tp_reader_tensors(reader);
    assert_ok(tp_loader_create(device, &(tp_load_options){.threads = 2, .staging = 1}, &loader, &error),
              &error);
    for (size_t i = count; i-- > 0;) /* chosen in another order than they lie */
        assert_ok(tp_loader_add(loader, reader, i, NULL, &error), &error);
    const uint64_t size = tp_loader_arena_size(loader);
    uint8_t *own = aligned_alloc(256, (size + 255) / 256 * 256);
    const bool cpu = strcmp(info.backend, "cpu") == 0;
    if (cpu) {
        memset(own, 0, size);
        assert_ok(tp_loader_use_arena(loader, &(tp_device_range){.address = (uintptr_t)own, .size = size},
                                      &error),
                  &error);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        tp_load_item what;
        tp_tensor_info tensor;
        assert_ok(tp_loader_next(loader, &item, &error), &error);
        assert_int_equal(tp_loader_item(loader, item, &what), TP_OK);
        if (what.nbytes == 0) continue;
        tp_reader_tensor(reader, what.tensor, &tensor);
        /* Second copies lie where the first ones do. */
        if (!strstr(tensor.name.data, "again")) {
            assert_true(tensor.offset + tensor.nbytes + TP_FRAME_MAX_RAW > end);
            end = tensor.offset + tensor.nbytes;
        }
        if (i == 1 && stand_in()) assert_true(stand_in()->pending() > 0);
        if (i == 1 && device->backend->launch) /* the threads are at the batch after that */
            assert_int_equal(loader->pass.states[loader->pass.turn], TP_BATCH_FILLING);
        if (i == 1 && cpu) { /* the last tensor's last byte comes without another call */
            const tp_load_item first = what;
            assert_int_equal(first.where.size, first.nbytes);
            uint8_t *expected = malloc(tensor.nbytes + ((size_t)1 << 23));
            tp_tensor_info last;
            const size_t big = find(reader, "small.4");
            tp_reader_tensor(reader, big, &last);
            assert_ok(tp_read_tensor(reader, big, expected, last.nbytes, &error), &error);
            /* small.4 is item count - 1 - big: its place follows from those before it. */
            uint64_t at = 0;
            for (size_t k = count - 1; k > big; k--) {
                tp_tensor_info other;
                tp_reader_tensor(reader, k, &other);
                at = (at + other.nbytes + 255) / 256 * 256;
            }
            const volatile uint8_t *seen = own + at + last.nbytes - 2;
            for (int tries = 0;
                 tries < 1000 && memcmp((const void *)seen, expected + last.nbytes - 2, 2) != 0; tries++)
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
            assert_memory_equal((const void *)(own + at), expected, last.nbytes);
            free(expected);
        }
    }
    tp_loader_close(loader);
    tp_close(reader);
    tp_device_close(device);
    free(own);
    assert_clean();
}

/* Memory of a caller's own, filled with a mark. */
typedef struct callers {
    tp_device *device;
    tp_memory memory;
    tp_stream stream;
    uint8_t *mark;
} callers;

static void callers_make(callers *c, tp_device *device, size_t size)
{
    tp_error error = {0};
    c->device = device;
    assert_ok(device->backend->memory_create(device, size, &c->memory, &error), &error);
    assert_ok(device->backend->stream_create(device, &c->stream, &error), &error);
    c->mark = malloc(size);
    memset(c->mark, 0xa5, size);
    assert_ok(device->backend->upload(&c->stream, &c->memory, 0, c->mark, size, &error), &error);
}

static tp_device_range callers_range(const callers *c, uint64_t at, uint64_t size)
{
    const tp_memory *m = &c->memory;
    return (tp_device_range){
        .memory = m->address ? NULL : m->handle, .address = m->address + at, .size = size};
}

/* Its bytes, once its stream has done all. */
static uint8_t *callers_bytes(callers *c)
{
    tp_error error = {0};
    uint8_t *bytes = malloc(c->memory.size);
    assert_ok(c->device->backend->download(&c->stream, &c->memory, 0, bytes, c->memory.size, &error),
              &error);
    assert_ok(c->device->backend->wait(&c->stream, &error), &error);
    return bytes;
}

static void callers_free(callers *c)
{
    c->device->backend->stream_destroy(&c->stream);
    c->device->backend->memory_destroy(&c->memory);
    free(c->mark);
}

/*
 * Into the caller's memory, at addresses of any alignment, with what lies between kept; after what the
 * caller's stream has still to do (which marks the memory).
 */
static void places(void **state)
{
    (void)state;
    static const char *const chosen[] = {"big.bf16", "small.3", "f64", "zeros",  "noise",
                                         "i64",      "f16",     "odd", "nothing"};
    enum { COUNT = sizeof chosen / sizeof *chosen, GAP = 64 };
    tp_device *device = open_device();
    tp_error error = {0};
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    const char *const paths[] = {in_folder("c.tpress"), in_folder("made.safetensors")};
    for (int which = 0; which < 4; which++) {
        tp_reader *reader;
        tp_loader *loader;
        callers own;
        uint64_t at[COUNT], size = 0;
        const unsigned step = which < 2 ? 16 : 1; /* as frames can be decoded directly, or not */
        assert_ok(tp_open(paths[which % 2], &reader, &error), &error);
        for (size_t i = 0; i < COUNT; i++) {
            tp_tensor_info info;
            tp_reader_tensor(reader, find(reader, chosen[i]), &info);
            at[i] = (size + GAP) / step * step + (step == 1 ? i : 0);
            size = at[i] + info.nbytes;
        }
        callers_make(&own, device, size + GAP);
        const tp_load_options options = {
            .threads = 2, .staging = 1, .stream = (uintptr_t)own.stream.handle};
        assert_ok(tp_loader_create(device, &options, &loader, &error), &error);
        tp_device_range range = callers_range(&own, 0, 1);
        assert_int_equal(tp_loader_place(loader, 0, &range, &error), TP_INVALID_ARGUMENT);
        for (size_t i = 0; i < COUNT; i++) {
            tp_load_item info;
            assert_ok(tp_loader_add_named(loader, reader, chosen[i], NULL, &error), &error);
            tp_loader_item(loader, i, &info);
            if (info.nbytes) {
                range = callers_range(&own, at[i], info.nbytes - 1);
                assert_int_equal(tp_loader_place(loader, i, &range, &error), TP_BUFFER_TOO_SMALL);
                assert_non_null(strstr(error.message, chosen[i]));
                assert_int_equal(tp_loader_place(loader, i, &(tp_device_range){.size = UINT64_MAX}, &error),
                                 TP_INVALID_ARGUMENT);
            }
            range = callers_range(&own, at[i], info.nbytes);
            assert_ok(tp_loader_place(loader, i, &range, &error), &error);
        }
        assert_int_equal(tp_loader_arena_size(loader), 0);
        const unsigned long long used = stand_in() ? stand_in()->used() : 0;
        assert_ok(tp_loader_run(loader, &error), &error);
        if (stand_in()) assert_int_equal(stand_in()->used(), used);
        range = callers_range(&own, 0, size);
        assert_int_equal(tp_loader_place(loader, 0, &range, &error), TP_INVALID_ARGUMENT);
        uint8_t *bytes = callers_bytes(&own);
        uint64_t end = 0;
        for (size_t i = 0; i < COUNT; i++) {
            tp_load_item info;
            tp_loader_item(loader, i, &info);
            if (info.nbytes) {
                range = callers_range(&own, at[i], info.nbytes);
                assert_memory_equal(&info.where, &range, sizeof range);
            }
            uint8_t *expected = expected_bytes(&info, reader);
            if (memcmp(bytes + at[i], expected, info.nbytes) != 0) fail_msg("%s differs", chosen[i]);
            for (; end < at[i]; end++)
                if (bytes[end] != 0xa5)
                    fail_msg("before %s the byte %zu is changed", chosen[i], (size_t)(at[i] - end));
            end = at[i] + info.nbytes;
            free(expected);
        }
        for (; end < size + GAP; end++) assert_int_equal(bytes[end], 0xa5);
        assert_ok(tp_loader_verify(loader, &error), &error);
        struct DLManagedTensor *tensor;
        assert_int_equal(tp_loader_dlpack(loader, 0, false, &tensor, &error), TP_INVALID_ARGUMENT);
        assert_null(tensor);
        tp_loader_close(loader);
        free(bytes);
        callers_free(&own);
        tp_close(reader);
    }
    tp_device_close(device);
    assert_clean();
}

static void arenas(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_error error = {0};
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    for (int which = 0; which < 2; which++) { /* the loader's own, the caller's */
        tp_reader *reader;
        tp_loader *loader;
        callers own;
        assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
        assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
        assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, NULL, &error), &error);
        const uint64_t size = tp_loader_arena_size(loader);
        const size_t count = tp_loader_items(loader);
        callers_make(&own, device, 512 + size);
        tp_device_range range = callers_range(&own, 512, size - 1);
        assert_int_equal(tp_loader_use_arena(loader, &range, &error), TP_BUFFER_TOO_SMALL);
        range = callers_range(&own, 16, size);
        assert_int_equal(tp_loader_use_arena(loader, &range, &error), TP_INVALID_ARGUMENT);
        range = callers_range(&own, 512, size);
        assert_ok(tp_loader_use_arena(loader, which ? &range : NULL, &error), &error);
        assert_ok(own.device->backend->wait(&own.stream, &error),
                  &error); /* the mark: no stream was named */
        const unsigned long long used = stand_in() ? stand_in()->used() : 0;
        assert_ok(tp_loader_run(loader, &error), &error);
        if (stand_in()) assert_int_equal(stand_in()->used() - used, which ? 0 : size);
        tp_load_item first, item;
        uint64_t end = 0;
        for (size_t i = 0; i < count; i++) {
            tp_loader_item(loader, i, &item);
            if (i == 0) first = item;
            if (item.nbytes == 0) continue;
            assert_int_equal(item.where.address - first.where.address, end);
            assert_ptr_equal(item.where.memory, first.where.memory);
            end = (end + item.nbytes + 255) / 256 * 256;
            compare_item(loader, i, reader);
        }
        if (which) assert_int_equal(first.where.address, range.address);
        assert_ok(tp_loader_verify(loader, &error), &error);
        if (which) {
            uint8_t *bytes = callers_bytes(&own);
            for (int i = 0; i < 512; i++) assert_int_equal(bytes[i], 0xa5);
            free(bytes);
        }
        /* The next ones are on their own again. */
        assert_int_equal(tp_loader_arena_size(loader), 0);
        size_t more;
        assert_ok(tp_loader_add_rows(loader, reader, find(reader, "f16"), 10, 20, &more, &error), &error);
        assert_int_equal(tp_loader_arena_size(loader), 20);
        assert_ok(tp_loader_run(loader, &error), &error);
        compare_item(loader, more, reader);
        /* An arena that is too small for what was chosen after it was given. */
        assert_ok(tp_loader_add_rows(loader, reader, find(reader, "f16"), 0, 10, NULL, &error), &error);
        range = callers_range(&own, 0, 20);
        assert_ok(tp_loader_use_arena(loader, &range, &error), &error);
        assert_ok(tp_loader_add_rows(loader, reader, find(reader, "f16"), 0, 10, NULL, &error), &error);
        assert_int_equal(tp_loader_run(loader, &error), TP_BUFFER_TOO_SMALL);
        tp_loader_close(loader);
        callers_free(&own);
        tp_close(reader);
    }
    tp_device_close(device);
    assert_clean();
}

/* The bytes of a file with a hole: its head, then zeros without end. */
typedef struct holed {
    char head[512];
    size_t size;
} holed;

static int64_t read_holed(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const holed *h = context;
    (void)error;
    memset(dst, 0, size);
    for (size_t i = 0; i < size && offset + i < h->size; i++)
        ((char *)dst)[i] = h->head[(size_t)offset + i];
    return (int64_t)size;
}

/* Items that have 2^64 bytes and a few together: no arena is large enough. */
static void arena_beyond_64_bits(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_error error = {0};
    tp_reader *reader;
    tp_loader *loader;
    callers own;
    holed h = {.size = 0};
    const uint64_t huge = (uint64_t)1 << 60;
    const int length = snprintf(h.head + 8, sizeof h.head - 8,
                                "{\"a\":{\"dtype\":\"U8\",\"shape\":[4,%llu],\"data_offsets\":[0,%llu]},"
                                "\"b\":{\"dtype\":\"U8\",\"shape\":[1000],\"data_offsets\":[%llu,%llu]}}",
                                (unsigned long long)huge / 4, (unsigned long long)huge,
                                (unsigned long long)huge, (unsigned long long)huge + 1000);
    const uint64_t header = (uint64_t)length;
    memcpy(h.head, &header, 8);
    h.size = 8 + (size_t)length;
    assert_ok(tp_open_callback(read_holed, &h, h.size + huge + 1000, "hole.safetensors", &reader, &error),
              &error);
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    callers_make(&own, device, 4096);
    const tp_device_range range = callers_range(&own, 0, 4096);
    for (unsigned i = 0; i < 16; i++) {
        assert_true(tp_loader_arena_size(loader) == i * huge);
        assert_ok(tp_loader_add_rows(loader, reader, find(reader, "a"), 0, 4, NULL, &error), &error);
    }
    assert_true(tp_loader_arena_size(loader) == UINT64_MAX);
    assert_ok(tp_loader_add_named(loader, reader, "b", NULL, &error), &error);
    assert_true(tp_loader_arena_size(loader) == UINT64_MAX);
    assert_int_equal(tp_loader_use_arena(loader, &range, &error), TP_BUFFER_TOO_SMALL);
    assert_ok(tp_loader_use_arena(loader, NULL, &error), &error);
    assert_int_equal(tp_loader_run(loader, &error), TP_LIMIT);
    tp_loader_close(loader);
    callers_free(&own);
    tp_close(reader);
    tp_device_close(device);
    assert_clean();
}

/* A device in the context of a queue of the caller's. */
static void callers_queue(void **state)
{
    (void)state;
    tp_error error = {0};
    tp_device *device = open_device(), *second = NULL;
    tp_device_info info;
    tp_device_describe(device, &info);
    assert_int_equal(tp_device_open_queue(NULL, &second, &error) == TP_OK, false);
    if (strcmp(info.backend, "opencl") == 0) {
        tp_reader *reader;
        tp_loader *loader;
        callers own; /* of the first device: another's, as seen from the second */
        assert_ok(tp_open(in_folder("made.safetensors"), &reader, &error), &error);
        make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT,
                       TP_CODEC_AUTO);
        tp_close(reader);
        assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
        callers_make(&own, device, 2300000 * 2);
        assert_ok(tp_device_open_queue(own.stream.handle, &second, &error), &error);
        const tp_load_options options = {.stream = (uintptr_t)own.stream.handle};
        assert_ok(tp_loader_create(second, &options, &loader, &error), &error);
        assert_ok(tp_loader_add_named(loader, reader, "big.bf16", NULL, &error), &error);
        const tp_device_range range = callers_range(&own, 0, own.memory.size);
        assert_ok(tp_loader_place(loader, 0, &range, &error), &error);
        assert_ok(tp_loader_run(loader, &error), &error);
        tp_load_item item;
        tp_loader_item(loader, 0, &item);
        uint8_t *bytes = callers_bytes(&own), *expected = expected_bytes(&item, reader);
        assert_memory_equal(bytes, expected, item.nbytes);
        free(bytes);
        free(expected);
        tp_loader_close(loader);
        tp_device_close(second);
        callers_free(&own);
        tp_close(reader);
    }
    tp_device_close(device);
    assert_clean();
}

/* Each frame damaged in turn: the load fails, says where, and leaves nothing behind. */
static void damaged_container(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_error error = {0};
    tp_reader *reader;
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
    const size_t frames = tp_reader_frames(reader);
    for (size_t i = 0; i < frames; i++) {
        tp_frame_entry entry;
        tp_loader *loader;
        size_t truncated;
        assert_int_equal(tp_reader_frame(reader, i, &entry), TP_OK);
        if (entry.duplicate || (i == 0 && frames > 1)) continue; /* the first holds the header, no tensor */
        FILE *file = fopen(in_folder("c.tpress"), "r+b");
        const long at = (long)(entry.offset + 128 + random_below(entry.stored_size - 128));
        fseek(file, at, SEEK_SET);
        const int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ 0x40, file);
        fclose(file);
        const unsigned before = stand_in() ? stand_in()->live() : 0;
        assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
        assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, &truncated, &error), &error);
        assert_int_equal(tp_loader_run(loader, &error), TP_CORRUPT);
        assert_non_null(strstr(error.message, "c.tpress"));
        assert_non_null(strstr(error.message, "tensor '"));
        if (stand_in()) assert_int_equal(stand_in()->live(), before + 1); /* the loader's own stream */
        tp_loader_close(loader);
        file = fopen(in_folder("c.tpress"), "r+b");
        fseek(file, at, SEEK_SET);
        fputc(byte, file);
        fclose(file);
    }
    tp_close(reader);
    tp_device_close(device);
    assert_clean();
}

static bool stop(void *context, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    ++*(int *)context;
    return false;
}

static bool go_on(void *context, uint64_t done, uint64_t total)
{
    uint64_t *seen = context;
    assert_true(done >= seen[0] && done <= total);
    seen[0] = done;
    seen[1] = total;
    return true;
}

static void progress(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_error error = {0};
    tp_reader *reader;
    tp_loader *loader;
    tp_load_options options;
    tp_load_stats stats;
    size_t truncated;
    int calls = 0;
    uint64_t seen[2] = {0, 0};
    assert_ok(tp_open(in_folder("made.safetensors"), &reader, &error), &error);
    tp_load_options_init(&options);
    options.progress = stop;
    options.progress_context = &calls;
    assert_ok(tp_loader_create(device, &options, &loader, &error), &error);
    assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, &truncated, &error), &error);
    assert_int_equal(tp_loader_run(loader, &error), TP_CANCELLED);
    assert_true(calls > 0);
    tp_loader_close(loader);
    options.progress = go_on;
    options.progress_context = seen;
    assert_ok(tp_loader_create(device, &options, &loader, &error), &error);
    assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, &truncated, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    tp_loader_stats(loader, &stats);
    assert_int_equal(seen[0], stats.raw_bytes);
    assert_int_equal(seen[1], stats.raw_bytes);
    tp_loader_close(loader);
    tp_close(reader);
    tp_device_close(device);
    assert_clean();
}

/* verify sees a changed byte; here where the memory can be reached. */
static void verify_compares(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_device_info info;
    tp_device_describe(device, &info);
    if (strcmp(info.backend, "cpu") == 0 || stand_in()) {
        tp_error error = {0};
        tp_reader *reader;
        tp_loader *loader;
        tp_load_item loaded;
        size_t truncated;
        make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT,
                       TP_CODEC_AUTO);
        assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
        assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
        assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, &truncated, &error), &error);
        assert_ok(tp_loader_run(loader, &error), &error);
        static const char *const tensors[] = {"big.bf16", "small.2", "i64", "noise"};
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(tp_loader_item(loader, find(reader, tensors[i]), &loaded), TP_OK);
            uint8_t *byte =
                (uint8_t *)(uintptr_t)loaded.where.address + loaded.nbytes - 1 - random_below(1000);
            *byte ^= 1;
            assert_int_equal(tp_loader_verify(loader, &error), TP_MISMATCH);
            assert_non_null(strstr(error.message, tensors[i]));
            *byte ^= 1;
        }
        assert_ok(tp_loader_verify(loader, &error), &error);
        tp_loader_close(loader);
        tp_close(reader);
    }
    tp_device_close(device);
    assert_clean();
}

/* Memory in small pieces only: several slabs, and a tensor that fits in none. */
static void small_pieces(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_load_stats stats;
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    const uint64_t usual = device->max_allocation;
    device->max_allocation = 5 << 20;
    load_and_compare(device, in_folder("c.tpress"), in_folder("made.safetensors"), 0, &stats);
    device->max_allocation = 4 << 20;
    tp_error error = {0};
    tp_reader *reader;
    tp_loader *loader;
    size_t truncated;
    assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, &truncated, &error), &error);
    assert_int_equal(tp_loader_run(loader, &error), TP_LIMIT);
    assert_non_null(strstr(error.message, "big.bf16"));
    tp_loader_close(loader);
    tp_close(reader);
    device->max_allocation = usual;
    tp_device_close(device);
    assert_clean();
}

int run_loader(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample),
        cmocka_unit_test(every_dtype),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(some_tensors),
        cmocka_unit_test(patterns),
        cmocka_unit_test(rows),
        cmocka_unit_test(several_files),
        cmocka_unit_test(work_goes_on),
        cmocka_unit_test(places),
        cmocka_unit_test(arenas),
        cmocka_unit_test(arena_beyond_64_bits),
        cmocka_unit_test(callers_queue),
        cmocka_unit_test(damaged_container),
        cmocka_unit_test(progress),
        cmocka_unit_test(verify_compares),
        cmocka_unit_test(small_pieces),
    };
    make_folder();
    make_checkpoint(in_folder("made.safetensors"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder();
    return failed;
}
