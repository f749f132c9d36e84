/* Whole files onto the device: samples and made ones, at every level and codec. */
#include "support.h"

#include "checkpoints.h"

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
    assert_ok(tp_loader_create(reader, device, &options, &loader, &error), &error);
    assert_ok(tp_loader_add_all(loader, &truncated, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    tp_loader_stats(loader, stats);
    assert_int_equal(stats->tensors + truncated, tp_reader_tensors(reader));
    assert_int_equal(tp_reader_tensors(plain), tp_reader_tensors(reader));
    for (size_t i = 0; i < tp_reader_tensors(reader); i++) {
        tp_tensor_info info;
        tp_loaded loaded;
        tp_reader_tensor(plain, i, &info);
        if (info.flags & TP_TENSOR_TRUNCATED) {
            assert_int_equal(tp_loader_tensor(loader, i, &loaded), TP_NOT_FOUND);
            continue;
        }
        uint8_t *expected = malloc(info.nbytes + 1), *actual = malloc(info.nbytes + 1);
        assert_ok(tp_read_tensor(plain, i, expected, info.nbytes, &error), &error);
        assert_int_equal(tp_loader_tensor(loader, i, &loaded), TP_OK);
        assert_int_equal(loaded.nbytes, info.nbytes);
        assert_int_equal(loaded.address % 256, 0);
        if (stand_in() && info.nbytes) assert_true(stand_in()->room(loaded.address) >= info.nbytes);
        assert_ok(tp_loader_read(loader, i, actual, info.nbytes, &error), &error);
        if (memcmp(expected, actual, info.nbytes) != 0) fail_msg("%s: tensor %zu differs", path, i);
        if (info.nbytes)
            assert_int_equal(tp_loader_read(loader, i, actual, info.nbytes - 1, &error),
                             TP_BUFFER_TOO_SMALL);
        free(expected);
        free(actual);
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
        }
    }
    tp_device_close(device);
    assert_clean();
}

/* Device memory is what is loaded and the staging, whatever the file holds. */
static void memory_is_bounded(void **state)
{
    (void)state;
    tp_load_stats stats;
    if (stand_in()) stand_in()->reset();
    tp_device *device = open_device();
    if (stand_in()) {
        make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT,
                       TP_CODEC_AUTO);
        load_and_compare(device, in_folder("c.tpress"), in_folder("made.safetensors"), 1, &stats);
        const uint64_t least =
            2 * (TP_FRAME_MAX_RAW * 2 + (64 << 10)); /* the least staging, as often as on the host */
        assert_true(stand_in()->peak() <=
                    stats.raw_bytes + (64 << 10) + least + 2 * 2 * TP_FRAME_MAX_RAW + (1 << 20));
    }
    tp_device_close(device);
    assert_clean();
}

static size_t find(tp_reader *reader, const char *name)
{
    size_t tensor = SIZE_MAX;
    assert_int_equal(tp_reader_find(reader, SIZE_MAX, name, strlen(name), &tensor), TP_OK);
    return tensor;
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
        tp_loaded loaded;
        uint8_t byte;
        assert_ok(tp_open(paths[which], &reader, &error), &error);
        assert_ok(tp_loader_create(reader, device, NULL, &loader, &error), &error);
        assert_int_equal(tp_loader_add(loader, tp_reader_tensors(reader), &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add(loader, SIZE_MAX, &error), TP_INVALID_ARGUMENT);
        for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
            assert_ok(tp_loader_add(loader, find(reader, chosen[i]), &error), &error);
        assert_int_equal(tp_loader_tensor(loader, find(reader, "f64"), &loaded), TP_NOT_FOUND);
        assert_int_equal(tp_loader_verify(loader, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_read(loader, find(reader, "f64"), &byte, 1, &error), TP_NOT_FOUND);
        assert_ok(tp_loader_run(loader, &error), &error);
        tp_loader_stats(loader, &stats);
        assert_int_equal(stats.tensors, 6); /* one was named twice */
        assert_int_equal(tp_loader_run(loader, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_add(loader, 0, &error), TP_INVALID_ARGUMENT);
        assert_int_equal(tp_loader_tensor(loader, find(reader, "i8"), &loaded), TP_NOT_FOUND);
        for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
            const size_t tensor = find(reader, chosen[i]);
            tp_tensor_info info;
            tp_reader_tensor(reader, tensor, &info);
            uint8_t *expected = malloc(info.nbytes + 1), *actual = malloc(info.nbytes + 1);
            assert_ok(tp_read_tensor(reader, tensor, expected, info.nbytes, &error), &error);
            assert_ok(tp_loader_read(loader, tensor, actual, info.nbytes, &error), &error);
            if (info.nbytes) assert_memory_equal(expected, actual, info.nbytes);
            free(expected);
            free(actual);
        }
        assert_ok(tp_loader_verify(loader, &error), &error);
        tp_loader_close(loader);
        tp_close(reader);
    }
    /* Nothing chosen. */
    tp_reader *reader;
    tp_loader *loader;
    assert_ok(tp_open(paths[0], &reader, &error), &error);
    assert_ok(tp_loader_create(reader, device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    assert_ok(tp_loader_verify(loader, &error), &error);
    tp_loader_close(loader);
    tp_loader_close(NULL);
    tp_close(reader);
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
        assert_ok(tp_loader_create(reader, device, NULL, &loader, &error), &error);
        assert_ok(tp_loader_add_all(loader, &truncated, &error), &error);
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
    assert_ok(tp_loader_create(reader, device, &options, &loader, &error), &error);
    assert_ok(tp_loader_add_all(loader, &truncated, &error), &error);
    assert_int_equal(tp_loader_run(loader, &error), TP_CANCELLED);
    assert_true(calls > 0);
    tp_loader_close(loader);
    options.progress = go_on;
    options.progress_context = seen;
    assert_ok(tp_loader_create(reader, device, &options, &loader, &error), &error);
    assert_ok(tp_loader_add_all(loader, &truncated, &error), &error);
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
        tp_loaded loaded;
        size_t truncated;
        make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT,
                       TP_CODEC_AUTO);
        assert_ok(tp_open(in_folder("c.tpress"), &reader, &error), &error);
        assert_ok(tp_loader_create(reader, device, NULL, &loader, &error), &error);
        assert_ok(tp_loader_add_all(loader, &truncated, &error), &error);
        assert_ok(tp_loader_run(loader, &error), &error);
        static const char *const tensors[] = {"big.bf16", "small.2", "i64", "noise"};
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(tp_loader_tensor(loader, find(reader, tensors[i]), &loaded), TP_OK);
            uint8_t *byte = (uint8_t *)(uintptr_t)loaded.address + loaded.nbytes - 1 - random_below(1000);
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
    assert_ok(tp_loader_create(reader, device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_add_all(loader, &truncated, &error), &error);
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
        cmocka_unit_test(every_sample),      cmocka_unit_test(every_dtype),
        cmocka_unit_test(memory_is_bounded), cmocka_unit_test(some_tensors),
        cmocka_unit_test(damaged_container), cmocka_unit_test(progress),
        cmocka_unit_test(verify_compares),   cmocka_unit_test(small_pieces),
    };
    make_folder();
    make_checkpoint(in_folder("made.safetensors"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder();
    return failed;
}
