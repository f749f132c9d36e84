/*
 * The low-level calls, as a framework uses them: frames in its own memory, decoded into its own memory on
 * its own stream, with scratch of its own. And DLPack's structures.
 */
#include "support.h"

#include <unistd.h>

#include "checkpoints.h"
#include "codec/bytes.h"
#include "codec/frame.h"

/* ------------------------------------------------------------------------------- a framework's side of it
 */

enum { FRAMES = 13, MARK = 0x5a };

typedef struct sample {
    uint8_t *frame, *raw;
    size_t size, raw_size;
} sample;
static sample samples[FRAMES];

void decode_make_samples(void)
{
    static const tp_class classes[FRAMES] = {TP_CLASS_BF16, TP_CLASS_F32,  TP_CLASS_F16,   TP_CLASS_F64,
                                             TP_CLASS_E4M3, TP_CLASS_I8,   TP_CLASS_I32,   TP_CLASS_I64,
                                             TP_CLASS_F32,  TP_CLASS_BF16, TP_CLASS_BYTES, TP_CLASS_BYTES,
                                             TP_CLASS_BF16};
    tp_encoder *encoder;
    assert_int_equal(tp_encoder_create(&encoder), TP_OK);
    for (int i = 0; i < FRAMES; i++) {
        sample *s = &samples[i];
        const size_t element = tp_class_element_size(classes[i]), count = 3000 + random_below(40000);
        s->raw_size = element * count;
        s->raw = malloc(s->raw_size);
        for (size_t k = 0; k < count; k++) {
            const uint32_t away = (uint32_t)__builtin_ctz(random_below(1 << 20) | 1u << 10);
            uint64_t v = (uint64_t)(random_below(2) << 31 | (121 - away) << 23 | random_below(1 << 23));
            if (element == 2) v >>= 16;
            if (element == 1) v = classes[i] == TP_CLASS_BYTES ? k / 64 * 7 : v >> 22;
            if (element == 8) v = v << 32 | random_below(1 << 30);
            if (classes[i] == TP_CLASS_I32 || classes[i] == TP_CLASS_I64) v = k;
            if (i == 8) v = 7; /* constant */
            memcpy(s->raw + k * element, &v, element);
        }
        const size_t bound = tp_encode_bound(s->raw_size);
        s->frame = malloc(bound);
        const tp_codec_choice choice = i == 9    ? TP_CODEC_RAW
                                       : i == 10 ? TP_CODEC_LZ4
                                       : i == 12 ? TP_CODEC_DF11
                                                 : TP_CODEC_AUTO;
        assert_int_equal(tp_encode(encoder, classes[i], TP_LEVEL_DEFAULT, choice, s->raw, s->raw_size,
                                   s->frame, bound, &s->size),
                         TP_OK);
        if (i == 12) {
            tp_frame_info info;
            assert_int_equal(tp_frame_check(s->frame, s->size, &info, NULL), TP_OK);
            assert_int_equal(info.codec, TP_FRAME_DF11);
        }
    }
    tp_encoder_destroy(encoder);
}

void decode_free_samples(void)
{
    for (int i = 0; i < FRAMES; i++) {
        free(samples[i].frame);
        free(samples[i].raw);
    }
}

/* lz4, and df11. */
static bool needs_whole(const sample *s)
{
    tp_frame_view view;
    assert_int_equal(tp_frame_validate(s->frame, s->size, true, &view, NULL), TP_OK);
    return tp_frame_expanded_size(&view) > 0;
}

typedef struct framework {
    tp_device *device;
    tp_stream stream;
    tp_memory inputs, outputs, scratch;
    tp_host_memory host;
    tp_device_frame frames[FRAMES];
    uint8_t *heads[FRAMES]; /* where a frame's head is all that is in host memory */
    uint64_t output_at[FRAMES];
    tp_device_work work;
    size_t scratch_size, host_size;
} framework;

static tp_device_range range_of(const tp_memory *m, uint64_t at, uint64_t size)
{
    return (tp_device_range){
        .memory = m->address ? NULL : m->handle, .address = m->address + at, .size = size};
}

/*
 * where: 0 frames in host memory; 1 on the device too; 2 on the device and, where that is enough, only the
 * head in host memory; 3 mixed.
 */
static tp_status framework_start(framework *f, tp_device *device, int where, tp_error *error)
{
    const tp_backend *b = device->backend;
    uint64_t input = 0, output = 64;
    memset(f, 0, sizeof *f);
    f->device = device;
    for (int i = 0; i < FRAMES; i++) {
        f->output_at[i] = tp_align(output, 16);
        output = f->output_at[i] + samples[i].raw_size + 48;
        input = tp_align(input, 128) + samples[i].size + TP_DEVICE_SLACK;
    }
    tp_status status = b->stream_create(device, &f->stream, error);
    if (status == TP_OK) status = b->memory_create(device, input + 128, &f->inputs, error);
    if (status == TP_OK) status = b->memory_create(device, output + 64, &f->outputs, error);
    if (status != TP_OK) return status;
    input = 0;
    for (int i = 0; i < FRAMES; i++) {
        tp_device_frame *frame = &f->frames[i];
        const sample *s = &samples[i];
        *frame = (tp_device_frame){.host = s->frame, .host_size = s->size};
        frame->output = range_of(&f->outputs, f->output_at[i], s->raw_size);
        input = tp_align(input, 128);
        if (where == 1 || where == 2 || (where == 3 && i % 2)) {
            frame->stored = range_of(&f->inputs, input, s->size + TP_DEVICE_SLACK);
            status = b->upload(&f->stream, &f->inputs, input, s->frame, s->size, error);
            if (status != TP_OK) return status;
            if (where == 2 && !needs_whole(s)) {
                assert_int_equal(tp_frame_head_size(s->frame, &frame->host_size, error), TP_OK);
                f->heads[i] = malloc(frame->host_size);
                frame->host = memcpy(f->heads[i], s->frame, frame->host_size);
            }
        }
        input += s->size + TP_DEVICE_SLACK;
    }
    uint8_t *mark = malloc(f->outputs.size);
    memset(mark, MARK, f->outputs.size);
    status = b->upload(&f->stream, &f->outputs, 0, mark, f->outputs.size, error);
    if (status == TP_OK) status = b->wait(&f->stream, error);
    free(mark);
    if (status == TP_OK)
        status = tp_device_decode_size(device, f->frames, FRAMES, &f->scratch_size, &f->host_size, error);
    if (status == TP_OK && f->scratch_size)
        status = b->memory_create(device, f->scratch_size, &f->scratch, error);
    if (status == TP_OK && f->host_size) status = b->host_create(device, f->host_size, &f->host, error);
    if (status == TP_OK)
        f->work = (tp_device_work){.stream = (uintptr_t)f->stream.handle,
                                   .scratch = range_of(&f->scratch, 0, f->scratch_size),
                                   .host = f->host.data,
                                   .host_size = f->host_size};
    return status;
}

static void framework_end(framework *f)
{
    const tp_backend *b = f->device->backend;
    for (int i = 0; i < FRAMES; i++) free(f->heads[i]);
    if (f->stream.device) b->stream_destroy(&f->stream);
    if (f->inputs.device) b->memory_destroy(&f->inputs);
    if (f->outputs.device) b->memory_destroy(&f->outputs);
    if (f->scratch.device) b->memory_destroy(&f->scratch);
    if (f->host.device) b->host_destroy(&f->host);
}

static void compare_outputs(framework *f, size_t count)
{
    tp_error error = {0};
    const tp_backend *b = f->device->backend;
    uint8_t *back = malloc(f->outputs.size);
    assert_ok(b->download(&f->stream, &f->outputs, 0, back, f->outputs.size, &error), &error);
    assert_ok(b->wait(&f->stream, &error), &error);
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        for (; end < f->output_at[i]; end++)
            if (back[end] != MARK) fail_msg("before frame %zu a byte is changed", i);
        if (memcmp(back + end, samples[i].raw, samples[i].raw_size) != 0) fail_msg("frame %zu differs", i);
        end += samples[i].raw_size;
    }
    for (; count == FRAMES && end < f->outputs.size; end++) assert_int_equal(back[end], MARK);
    free(back);
}

tp_status decode_in_framework(tp_device *device, tp_error *error)
{
    framework f;
    tp_status status = framework_start(&f, device, 3, error);
    if (status == TP_OK) status = tp_device_decode(device, f.frames, FRAMES, &f.work, error);
    if (status == TP_OK) status = device->backend->wait(&f.stream, error);
    if (status == TP_OK) status = tp_device_decode_check(device, f.frames, FRAMES, &f.work, NULL, error);
    framework_end(&f);
    return status;
}

/* ------------------------------------------------------------------------------------------ low-level
 * calls */

static void frames_in_memory(void **state)
{
    (void)state;
    tp_error error = {0};
    for (int where = 0; where < 4; where++) {
        framework f;
        size_t failed = 0;
        tp_device *device = open_device();
        const bool kernels = device->backend->launch != NULL;
        assert_ok(framework_start(&f, device, where, &error), &error);
        const unsigned before[] = {stand_in() ? stand_in()->calls("cuMemAlloc_v2") : 0,
                                   stand_in() ? stand_in()->calls("cuMemHostAlloc") : 0,
                                   stand_in() ? stand_in()->calls("cuStreamSynchronize") : 0,
                                   stand_in() ? stand_in()->calls("cuDevicePrimaryCtxRetain") : 0,
                                   stand_in() ? stand_in()->calls("cuStreamCreate") : 0};
        assert_ok(tp_device_decode(device, f.frames, FRAMES, &f.work, &error), &error);
        if (stand_in()) {
            assert_int_equal(stand_in()->calls("cuMemAlloc_v2"), before[0]);
            assert_int_equal(stand_in()->calls("cuMemHostAlloc"), before[1]);
            assert_int_equal(stand_in()->calls("cuStreamSynchronize"), before[2]);
            assert_int_equal(stand_in()->calls("cuDevicePrimaryCtxRetain"), before[3]);
            assert_int_equal(stand_in()->calls("cuStreamCreate"), before[4]);
            assert_true(stand_in()->pending() > 0);
        }
        /* The stream has not come past: what lies in the host's scratch is no result. */
        if (stand_in())
            assert_int_equal(tp_device_decode_check(device, f.frames, FRAMES, &f.work, &failed, &error),
                             TP_IO);
        assert_ok(device->backend->wait(&f.stream, &error), &error);
        assert_ok(tp_device_decode_check(device, f.frames, FRAMES, &f.work, &failed, &error), &error);
        assert_int_equal(failed, SIZE_MAX);
        compare_outputs(&f, FRAMES);
        /* One alone, with the same scratch; and none. */
        assert_ok(tp_device_decode(device, f.frames, 1, &f.work, &error), &error);
        if (stand_in())
            assert_int_equal(tp_device_decode_check(device, f.frames, 1, &f.work, NULL, &error), TP_IO);
        assert_ok(device->backend->wait(&f.stream, &error), &error);
        assert_ok(tp_device_decode_check(device, f.frames, 1, &f.work, NULL, &error), &error);
        assert_ok(tp_device_decode(device, f.frames, 0, &f.work, &error), &error);
        assert_ok(tp_device_decode_check(device, f.frames, 0, &f.work, NULL, &error), &error);
        if (kernels) assert_true(f.scratch_size > 0 && f.host_size > 0);
        framework_end(&f);
        tp_device_close(device);
        assert_clean();
    }
}

static void wrong_use(void **state)
{
    (void)state;
    tp_error error = {0};
    framework f;
    tp_device *device = open_device();
    const bool kernels = device->backend->launch != NULL;
    assert_ok(framework_start(&f, device, 3, &error), &error);
    tp_device_frame frame;
    tp_device_work work;
#define EXPECT(wanted)                                                                                     \
    do {                                                                                                   \
        error.message[0] = 0;                                                                              \
        assert_int_equal(tp_device_decode(device, &frame, 1, &work, &error), (wanted));                    \
        assert_true(error.message[0] != 0);                                                                \
        assert_ok(device->backend->wait(&f.stream, &error), &error);                                       \
    } while (0)
#define FRESH(number) (frame = f.frames[number], work = f.work)
    FRESH(0);
    frame.output.size--;
    EXPECT(TP_BUFFER_TOO_SMALL);
    FRESH(0);
    frame.host_size--;
    EXPECT(TP_TRUNCATED);
    FRESH(0);
    frame.host_size = 100;
    EXPECT(TP_TRUNCATED);
    FRESH(0);
    frame.host = "this is no frame, and that can be seen from its first four bytes; but there must be 128 "
                 "of them to be "
                 "looked at, so here are more of them than that";
    frame.host_size = 128;
    EXPECT(TP_CORRUPT);
    FRESH(0);
    frame.output.address = UINT64_MAX - 15;
    frame.output.memory = NULL;
    EXPECT(TP_INVALID_ARGUMENT);
    FRESH(0);
    frame.output = (tp_device_range){.size = UINT64_MAX};
    EXPECT(TP_INVALID_ARGUMENT);
    if (kernels) {
        FRESH(0);
        frame.output.address += 8;
        EXPECT(TP_INVALID_ARGUMENT);
        FRESH(0);
        work.scratch.size = 256;
        EXPECT(TP_BUFFER_TOO_SMALL);
        FRESH(0);
        work.host_size = 64;
        EXPECT(TP_BUFFER_TOO_SMALL);
        FRESH(0);
        work.host = (uint8_t *)work.host + 8;
        EXPECT(TP_INVALID_ARGUMENT);
        FRESH(0);
        work.host = NULL;
        EXPECT(TP_INVALID_ARGUMENT);
        FRESH(0);
        work.scratch.address += 128;
        EXPECT(TP_INVALID_ARGUMENT);
        FRESH(1);
        frame.stored.address += 64;
        EXPECT(TP_INVALID_ARGUMENT);
        FRESH(1);
        frame.stored.size--;
        EXPECT(TP_BUFFER_TOO_SMALL);
        FRESH(1);
        frame.output = range_of(&f.inputs, 0, f.inputs.size); /* where the frame itself is */
        frame.output.address = frame.stored.address;
        EXPECT(TP_INVALID_ARGUMENT);
        unsigned whole = 0;
        for (int i = 0; i < FRAMES; i++) {
            if (!needs_whole(&samples[i])) continue;
            whole++;
            FRESH(1);
            frame.host = samples[i].frame;
            frame.host_size = samples[i].size - 1;
            frame.stored.size = samples[i].size + TP_DEVICE_SLACK;
            EXPECT(TP_UNSUPPORTED);
        }
        assert_true(whole >= 2);
    } else { /* the device's memory is the host's */
        uint8_t *both = malloc(samples[0].size + samples[0].raw_size);
        memcpy(both, samples[0].frame, samples[0].size);
        FRESH(0);
        frame.host = both;
        frame.output = (tp_device_range){.address = (uintptr_t)both, .size = samples[0].raw_size};
        EXPECT(TP_INVALID_ARGUMENT);
        frame.output.address += samples[0].size - 1;
        EXPECT(TP_INVALID_ARGUMENT);
        frame.output.address++;
        assert_ok(tp_device_decode(device, &frame, 1, &work, &error), &error);
        assert_memory_equal(both + samples[0].size, samples[0].raw, samples[0].raw_size);
        free(both);
        /* A head alone, and a place that does not hold the frame. */
        uint8_t *head = malloc(samples[1].size);
        FRESH(1);
        assert_int_equal(tp_frame_head_size(samples[1].frame, &frame.host_size, &error), TP_OK);
        memcpy(head, samples[1].frame, frame.host_size);
        head = realloc(head, frame.host_size);
        frame.host = head;
        frame.stored.size = frame.host_size + TP_DEVICE_SLACK;
        EXPECT(TP_TRUNCATED);
        frame.stored = (tp_device_range){.size = samples[1].size + TP_DEVICE_SLACK};
        EXPECT(TP_TRUNCATED);
        free(head);
    }
    size_t size;
    assert_int_equal(tp_frame_head_size(samples[0].raw, &size, &error), TP_CORRUPT);
    framework_end(&f);
    tp_device_close(device);
    assert_clean();
}

/* Damage that the host can see, in any byte; and damage of the device's copy, which only the results show.
 */
static void damage(void **state)
{
    (void)state;
    tp_error error = {0};
    framework f;
    tp_device *device = open_device();
    const bool kernels = device->backend->launch != NULL;
    assert_ok(framework_start(&f, device, 2, &error), &error);
    unsigned seen = 0;
    for (int i = 0; i < FRAMES; i++) {
        const sample *s = &samples[i];
        uint8_t *copy = malloc(s->size + TP_DEVICE_SLACK);
        memcpy(copy, s->frame, s->size);
        memset(copy + s->size, 0, TP_DEVICE_SLACK);
        const size_t at = 128 + random_below((uint32_t)s->size - 128);
        copy[at] ^= (uint8_t)(1u << random_below(8));
        tp_device_frame frame = f.frames[i];
        frame.host = copy;
        frame.host_size = s->size;
        assert_int_equal(tp_device_decode(device, &frame, 1, &f.work, &error), TP_CORRUPT);
        free(copy);
        if (!kernels || needs_whole(s)) continue;
        /* On the device alone: in the payload, and in the tables that kernels read. */
        size_t head;
        assert_int_equal(tp_frame_head_size(s->frame, &head, &error), TP_OK);
        for (int kind = 0; kind < 2; kind++) {
            copy = malloc(s->size);
            memcpy(copy, s->frame, s->size);
            const size_t from = kind ? 128 : head, to = kind ? head : s->size;
            if (from == to) {
                free(copy);
                continue;
            }
            for (int k = 0; k < 64; k++)
                copy[from + random_below((uint32_t)(to - from))] ^= (uint8_t)(1u << random_below(8));
            assert_ok(device->backend->upload(&f.stream, &f.inputs,
                                              f.frames[i].stored.address - f.inputs.address, copy, s->size,
                                              &error),
                      &error);
            assert_ok(tp_device_decode(device, &f.frames[i], 1, &f.work, &error), &error);
            assert_ok(device->backend->wait(&f.stream, &error), &error);
            size_t failed = 7;
            const tp_status status =
                tp_device_decode_check(device, &f.frames[i], 1, &f.work, &failed, &error);
            assert_true(status == TP_OK || status == TP_CORRUPT);
            if (status == TP_OK) { /* then it was in what nobody reads */
                assert_int_equal(failed, SIZE_MAX);
                uint8_t *back = malloc(s->raw_size);
                assert_ok(device->backend->download(&f.stream, &f.outputs, f.output_at[i], back,
                                                    s->raw_size, &error),
                          &error);
                assert_ok(device->backend->wait(&f.stream, &error), &error);
                assert_memory_equal(back, s->raw, s->raw_size);
                free(back);
            } else {
                assert_int_equal(failed, 0);
                seen++;
            }
            assert_ok(device->backend->upload(&f.stream, &f.inputs,
                                              f.frames[i].stored.address - f.inputs.address, s->frame,
                                              s->size, &error),
                      &error);
            assert_ok(device->backend->wait(&f.stream, &error), &error);
            free(copy);
        }
    }
    if (kernels) assert_true(seen >= 8);
    /* All sound again, and one of many that is not. */
    assert_ok(tp_device_decode(device, f.frames, FRAMES, &f.work, &error), &error);
    assert_ok(device->backend->wait(&f.stream, &error), &error);
    assert_ok(tp_device_decode_check(device, f.frames, FRAMES, &f.work, NULL, &error), &error);
    compare_outputs(&f, FRAMES);
    if (kernels) {
        size_t head, failed;
        const sample *s = &samples[2];
        assert_int_equal(tp_frame_head_size(s->frame, &head, &error), TP_OK);
        static const uint8_t zeros[64];
        assert_ok(device->backend->upload(&f.stream, &f.inputs,
                                          f.frames[2].stored.address - f.inputs.address + head + 128, zeros,
                                          64, &error),
                  &error);
        assert_ok(tp_device_decode(device, f.frames, FRAMES, &f.work, &error), &error);
        assert_ok(device->backend->wait(&f.stream, &error), &error);
        assert_int_equal(tp_device_decode_check(device, f.frames, FRAMES, &f.work, &failed, &error),
                         TP_CORRUPT);
        assert_int_equal(failed, 2);
        assert_non_null(strstr(error.message, "frame 2: "));
    }
    framework_end(&f);
    tp_device_close(device);
    assert_clean();
}

/* ----------------------------------------------------------------------------------------------------
 * dlpack */

/* As dlpack.h has them. */
typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;
struct DLManagedTensor {
    dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *);
};
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    dl_tensor dl_tensor;
};

static void make_dtypes(const char *path)
{
    static const char header[] =
        "{\"f64\":{\"dtype\":\"F64\",\"shape\":[3,5],\"data_offsets\":[0,120]},"
        "\"bf16\":{\"dtype\":\"BF16\",\"shape\":[2,3,4],\"data_offsets\":[120,168]},"
        "\"u8\":{\"dtype\":\"U8\",\"shape\":[4,8],\"data_offsets\":[168,200]},"
        "\"bool\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[200,208]},"
        "\"e4m3\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[208,216]},"
        "\"e5m2\":{\"dtype\":\"F8_E5M2\",\"shape\":[8],\"data_offsets\":[216,224]},"
        "\"e8m0\":{\"dtype\":\"F8_E8M0\",\"shape\":[8],\"data_offsets\":[224,232]},"
        "\"c64\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[232,248]},"
        "\"i16\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[248,250]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[250,250]},"
        "\"u16\":{\"dtype\":\"U16\",\"shape\":[3],\"data_offsets\":[250,256]},"
        "\"other\":{\"dtype\":\"X9\",\"shape\":[5],\"data_offsets\":[256,264]}}";
    FILE *file = fopen(path, "wb");
    const uint64_t size = sizeof header - 1;
    assert_non_null(file);
    fwrite(&size, 8, 1, file);
    fwrite(header, 1, size, file);
    for (int i = 0; i < 264; i++) fputc(i * 7 & 255, file);
    assert_int_equal(fclose(file), 0);
}

static void dlpack(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint8_t code, bits;
        int32_t ndim;
        int64_t shape[3], strides[3];
    } expected[] = {
        {"f64", 2, 64, 2, {3, 5}, {5, 1}}, {"bf16", 4, 16, 3, {2, 3, 4}, {12, 4, 1}},
        {"u8", 1, 8, 2, {4, 8}, {8, 1}},   {"bool", 6, 8, 1, {8}, {1}},
        {"e4m3", 10, 8, 1, {8}, {1}},      {"e5m2", 12, 8, 1, {8}, {1}},
        {"e8m0", 14, 8, 1, {8}, {1}},      {"c64", 5, 64, 1, {2}, {1}},
        {"i16", 0, 16, 0, {0}, {0}},       {"empty", 2, 32, 2, {0, 7}, {7, 1}},
        {"u16", 1, 16, 1, {3}, {1}},       {"other", 1, 8, 1, {8}, {1}},
    };
    enum { COUNT = sizeof expected / sizeof *expected };
    tp_error error = {0};
    make_dtypes(in_folder("dtypes.safetensors"));
    make_container(in_folder("dtypes.safetensors"), in_folder("t.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    tp_device *device = open_device();
    tp_reader *reader;
    tp_loader *loader;
    tp_device_info info;
    struct DLManagedTensor *plain[COUNT];
    struct DLManagedTensorVersioned *versioned[COUNT];
    tp_device_describe(device, &info);
    const int type = strcmp(info.backend, "cuda") == 0 ? 2 : strcmp(info.backend, "opencl") == 0 ? 4 : 1;
    assert_ok(tp_open(in_folder("t.tpress"), &reader, &error), &error);
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    for (size_t i = 0; i < COUNT; i++)
        assert_ok(tp_loader_add_named(loader, reader, expected[i].name, NULL, &error), &error);
    assert_int_equal(tp_loader_dlpack(loader, 0, false, &plain[0], &error), TP_INVALID_ARGUMENT);
    assert_int_equal(tp_loader_dlpack_versioned(loader, 99, false, &versioned[0], &error),
                     TP_INVALID_ARGUMENT);
    assert_null(plain[0]);
    assert_ok(tp_loader_run(loader, &error), &error);
    for (size_t i = 0; i < COUNT; i++) {
        tp_load_item item;
        tp_loader_item(loader, i, &item);
        assert_ok(tp_loader_dlpack(loader, i, false, &plain[i], &error), &error);
        assert_ok(tp_loader_dlpack_versioned(loader, i, i % 2, &versioned[i], &error), &error);
        assert_int_equal(versioned[i]->major, 1);
        assert_int_equal(versioned[i]->minor, 1);
        assert_int_equal(versioned[i]->flags, 0);
        const dl_tensor *t = &plain[i]->dl_tensor;
        assert_int_equal(t->device_type, type);
        assert_int_equal(t->device_id, info.index);
        assert_int_equal(t->ndim, expected[i].ndim);
        assert_int_equal(t->code, expected[i].code);
        assert_int_equal(t->bits, expected[i].bits);
        assert_int_equal(t->lanes, 1);
        for (int d = 0; d < t->ndim; d++) {
            assert_int_equal(t->shape[d], expected[i].shape[d]);
            assert_int_equal(t->strides[d], expected[i].strides[d]);
        }
        if (type == 4) {
            assert_ptr_equal(t->data, item.where.memory);
            assert_int_equal(t->byte_offset, item.where.address);
        } else {
            assert_int_equal((uintptr_t)t->data + t->byte_offset, item.where.address);
        }
        const dl_tensor *v = &versioned[i]->dl_tensor;
        if (i % 2) {
            assert_int_equal(v->ndim, 1);
            assert_int_equal(v->shape[0], item.nbytes);
            assert_int_equal(v->code, 1);
            assert_int_equal(v->bits, 8);
        } else {
            assert_int_equal(v->ndim, t->ndim);
        }
        assert_ptr_equal(v->data, t->data);
    }
    /* Rows keep the other dimensions. */
    size_t rows, found;
    struct DLManagedTensor *some;
    assert_int_equal(tp_reader_find(reader, SIZE_MAX, "bf16", 4, &found), TP_OK);
    assert_ok(tp_loader_add_rows(loader, reader, found, 1, 2, &rows, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    assert_ok(tp_loader_dlpack(loader, rows, false, &some, &error), &error);
    assert_int_equal(some->dl_tensor.ndim, 3);
    assert_int_equal(some->dl_tensor.shape[0], 1);
    assert_int_equal(some->dl_tensor.shape[1], 3);
    assert_int_equal(some->dl_tensor.strides[0], 12);
    some->deleter(some);
    /* Everything is closed, the device last of all or first: the tensors are still there. */
    tp_loader_close(loader);
    tp_close(reader);
    tp_device_close(device);
    unlink(in_folder("t.tpress"));
    if (type == 1 || stand_in())
        for (size_t i = 0; i < COUNT; i++) {
            const uint8_t *bytes = plain[i]->dl_tensor.data;
            static const size_t at[COUNT] = {0, 120, 168, 200, 208, 216, 224, 232, 248, 250, 250, 256};
            static const size_t size[COUNT] = {120, 48, 32, 8, 8, 8, 8, 16, 2, 0, 6, 8};
            for (size_t k = 0; k < size[i]; k++) assert_int_equal(bytes[k], (at[i] + k) * 7 & 255);
        }
    if (stand_in()) assert_true(stand_in()->used() > 0);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 2) plain[i]->deleter(plain[i]);
        versioned[i]->deleter(versioned[i]);
        if (i % 2 == 0) plain[i]->deleter(plain[i]);
    }
    assert_clean();
}

/* GGUF lists the fastest dimension first, and has types that DLPack does not know. */
static void dlpack_gguf(void **state)
{
    (void)state;
    char path[1024];
    tp_error error = {0};
    tp_device *device = open_device();
    tp_reader *reader;
    tp_loader *loader;
    snprintf(path, sizeof path, "%s/gguf/all_types.gguf", TP_SAMPLES_DIR);
    assert_ok(tp_open(path, &reader, &error), &error);
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_add_matching(loader, reader, "*", NULL, NULL, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    unsigned typed = 0, blocks = 0;
    for (size_t i = 0; i < tp_loader_items(loader); i++) {
        struct DLManagedTensor *tensor;
        tp_load_item item;
        tp_tensor_info info;
        tp_loader_item(loader, i, &item);
        tp_reader_tensor(reader, item.tensor, &info);
        assert_ok(tp_loader_dlpack(loader, i, false, &tensor, &error), &error);
        const dl_tensor *t = &tensor->dl_tensor;
        if (t->code == 1 && t->bits == 8 && t->ndim == 1 && t->shape[0] == (int64_t)info.nbytes) {
            blocks++;
        } else {
            typed++;
            assert_int_equal(t->ndim, info.ndim);
            for (size_t d = 0; d < info.ndim; d++)
                assert_int_equal(t->shape[d], info.shape[info.ndim - 1 - d]);
        }
        tensor->deleter(tensor);
    }
    assert_true(typed >= 5 && blocks >= 10);
    tp_loader_close(loader);
    tp_close(reader);
    tp_device_close(device);
    assert_clean();
}

int run_decode(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_in_memory), cmocka_unit_test(wrong_use),   cmocka_unit_test(damage),
        cmocka_unit_test(dlpack),           cmocka_unit_test(dlpack_gguf),
    };
    make_folder();
    decode_make_samples();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    decode_free_samples();
    remove_folder();
    return failed;
}
