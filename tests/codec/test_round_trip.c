/*
 * What the encoder makes of data as it occurs, at every level and choice, by every kernel: it must decode
 * to the same bytes, be the same bytes from every kernel and after anything done before, and fit its bound.
 */
#include "registry.h"

#include "codec/class.h"
#include "codec/encoder.h"

typedef struct codecs {
    const tp_kernels *kernels[MAX_KERNELS];
    size_t count;
    tp_encoder *encoder; /* reused for everything, as in use */
    tp_decoder *decoder;
} codecs;

static void codecs_make(codecs *c)
{
    c->count = all_kernels(c->kernels);
    assert_int_equal(tp_encoder_create(&c->encoder), TP_OK);
    assert_int_equal(tp_decoder_create(&c->decoder), TP_OK);
}

static void codecs_free(codecs *c)
{
    tp_encoder_destroy(c->encoder);
    tp_decoder_destroy(c->decoder);
}

typedef struct input {
    tp_class cls;
    tp_level level;
    tp_codec_choice choice;
    const char *what;
} input;

static const char *name_of(const input *in, size_t size)
{
    static char name[200];
    static const char *const levels[] = {"fast", "default", "max"};
    static const char *const choices[] = {"auto", "raw", "lz4", "bg-lz4", "rans"};
    snprintf(name, sizeof name, "%s, %s, %s, %s, %zu bytes", tp_class_name(in->cls), levels[in->level],
             choices[in->choice], in->what, size);
    return name;
}

/* raw is an exact buffer. Returns the stored size. */
static size_t round_trip(const codecs *c, const input *in, const uint8_t *raw, size_t size)
{
    const size_t bound = tp_encode_bound(size);
    uint8_t *first = NULL;
    size_t first_size = 0;
    for (size_t k = 0; k < c->count; k++) {
        uint8_t *frame = exact(bound);
        size_t made = 0;
        memset(frame, (int)(0x11 * (k + 1)), bound); /* nothing of it may stay */
        tp_encoder_use(c->encoder, c->kernels[k]);
        assert_int_equal(
            tp_encode(c->encoder, in->cls, in->level, in->choice, raw, size, frame, bound, &made), TP_OK);
        if (made > bound) fail_msg("%s: %zu bytes are beyond the bound", name_of(in, size), made);
        if (k == 0) {
            first = exact_copy(frame, made);
            first_size = made;
        } else if (made != first_size || memcmp(frame, first, made)) {
            fail_msg("%s: kernel %s encodes differently from portable", name_of(in, size),
                     c->kernels[k]->name);
        }
        free(frame);
    }
    tp_error error;
    tp_frame_info info;
    if (tp_frame_check(first, first_size, &info, &error))
        fail_msg("%s: %s", name_of(in, size), error.message);
    assert_int_equal(info.raw_size, size);
    assert_int_equal(info.stored_size, first_size);
    for (size_t k = 0; k < c->count; k++) {
        uint8_t *dst = exact(size);
        size_t raw_size = 0;
        memset(dst, 0x5a, size);
        tp_decoder_use(c->decoder, c->kernels[k]);
        if (tp_decode(c->decoder, first, first_size, dst, size, &raw_size, &error))
            fail_msg("%s: kernel %s: %s", name_of(in, size), c->kernels[k]->name, error.message);
        assert_int_equal(raw_size, size);
        if (memcmp(dst, raw, size))
            fail_msg("%s: kernel %s decodes something else", name_of(in, size), c->kernels[k]->name);
        free(dst);
    }
    free(first);
    return first_size;
}

static void test_small(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 31, 32, 33, 1023, 1024, 1025};
    codecs c;
    codecs_make(&c);
    rng r = rng_make(20);
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++)
        for (int kind = 0; kind < DATA_KINDS; kind++)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                const size_t size = lengths[i] * tp_class_element_size((tp_class)cls);
                uint8_t *raw = exact(size);
                make_data((data_kind)kind, (tp_class)cls, &r, raw, lengths[i]);
                size_t made[TP_LEVEL_MAX + 1] = {0};
                for (int level = 0; level <= TP_LEVEL_MAX; level++)
                    for (int choice = 0; choice < TP_CODEC_DF11; choice++) {
                        const input in = {(tp_class)cls, (tp_level)level, (tp_codec_choice)choice,
                                          data_kind_name((data_kind)kind)};
                        const size_t its = round_trip(&c, &in, raw, size);
                        if (choice == TP_CODEC_AUTO) made[level] = its;
                    }
                if (class_rules[cls].T) assert_in_range(made[TP_LEVEL_MAX], 1, made[TP_LEVEL_DEFAULT]);
                free(raw);
            }
    codecs_free(&c);
}

/* A frame of few groups, every eighth of them unlike the rest: what is counted must speak for all. */
static void test_few_groups(void **state)
{
    (void)state;
    enum { GROUPS = 34, N = GROUPS * 1024 };
    codecs c;
    codecs_make(&c);
    rng r = rng_make(27);
    uint8_t *raw = exact(2 * (size_t)N);
    for (size_t i = 0; i < N; i++) {
        const uint32_t exponent = (i / 1024 % 8 ? 100 : 60) + rng_below(&r, 4);
        tp_store16(raw + 2 * i, (uint16_t)(exponent << 7 | rng_below(&r, 128)));
    }
    for (int level = 0; level <= TP_LEVEL_MAX; level++) {
        const input in = {TP_CLASS_BF16, (tp_level)level, TP_CODEC_RANS, "groups that differ"};
        /* 8 bits as they are and some 2 to 3 of the exponent, of 16 */
        assert_in_range(round_trip(&c, &in, raw, 2 * (size_t)N), 1, N * 13 / 8);
    }
    free(raw);
    codecs_free(&c);
}

/* Searching harder for an LZ4 block may find less: then level max keeps what level default has. */
static void test_lz4_max(void **state)
{
    (void)state;
    codecs c;
    codecs_make(&c);
    for (uint32_t seed = 1; seed <= 100; seed++) {
        uint8_t raw[64], made[64];
        size_t size[TP_LEVEL_MAX + 1];
        uint32_t x = seed;
        for (size_t i = 0; i < sizeof raw; i++) {
            x = x * 1664525u + 1013904223u;
            raw[i] = (uint8_t)((x >> 24) % 2 * ((x >> 12 & 7) < 6));
        }
        for (int level = 0; level <= TP_LEVEL_MAX; level++) {
            const tp_encode_state s = {
                .encoder = c.encoder, .cls = TP_CLASS_BYTES, .level = (tp_level)level};
            size[level] = tp_lz4_block(&s, raw, sizeof raw, made, sizeof raw);
        }
        assert_in_range(size[TP_LEVEL_MAX], 1, size[TP_LEVEL_DEFAULT]);
    }
    codecs_free(&c);
}

/* Around a group's, chunk's and frame's end. */
static void test_large(void **state)
{
    (void)state;
    codecs c;
    codecs_make(&c);
    rng r = rng_make(21);
    static const data_kind kinds[] = {DATA_WEIGHTS, DATA_SPARSE, DATA_UPCAST, DATA_NAN};
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++) {
        const size_t element = tp_class_element_size((tp_class)cls), whole = TP_FRAME_MAX_RAW / element;
        const size_t lengths[] = {131071, 131072, 131073, whole - 1, whole, 40000};
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const size_t size = lengths[i] * element;
            /* data kinds and levels in turn: all meet over the classes */
            const data_kind kind = kinds[((size_t)cls + i) % (sizeof kinds / sizeof *kinds)];
            const tp_level level = lengths[i] == 40000 ? TP_LEVEL_MAX : (tp_level)(((size_t)cls + i) % 2);
            const tp_codec_choice choice = i == 5 ? TP_CODEC_RANS : TP_CODEC_AUTO;
            const input in = {(tp_class)cls, level, choice, data_kind_name(kind)};
            uint8_t *raw = exact(size);
            make_data(kind, (tp_class)cls, &r, raw, lengths[i]);
            round_trip(&c, &in, raw, size);
            free(raw);
        }
    }
    codecs_free(&c);
}

/* Chunks of very different kinds in one frame: many tables, constants, noise. */
static void test_mixed(void **state)
{
    (void)state;
    codecs c;
    codecs_make(&c);
    rng r = rng_make(22);
    for (int cls = TP_CLASS_BF16; cls < TP_CLASS_COUNT; cls++) {
        const size_t element = tp_class_element_size((tp_class)cls),
                     size = TP_FRAME_MAX_RAW / element * element;
        uint8_t *raw = exact(size);
        const size_t n = size / element, piece = 40000;
        for (size_t at = 0; at < n; at += piece)
            make_data((data_kind)rng_below(&r, DATA_KINDS), (tp_class)cls, &r, raw + at * element,
                      n - at < piece ? n - at : piece);
        for (int level = 0; level <= (cls == TP_CLASS_I8 ? TP_LEVEL_MAX : TP_LEVEL_DEFAULT); level++) {
            const input in = {(tp_class)cls, (tp_level)level, TP_CODEC_AUTO, "a mixture"};
            round_trip(&c, &in, raw, size);
        }
        free(raw);
    }
    codecs_free(&c);
}

/* Sizes that are no multiple of the element are coded as bytes. */
static void test_odd_sizes(void **state)
{
    (void)state;
    codecs c;
    codecs_make(&c);
    rng r = rng_make(23);
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++)
        for (size_t size = 1; size < 5000; size = size * 2 + 1) {
            uint8_t *raw = exact(size + 8);
            make_data(DATA_SPARSE, (tp_class)cls, &r, raw, size / tp_class_element_size((tp_class)cls) + 1);
            uint8_t *cut = exact_copy(raw, size);
            const input in = {(tp_class)cls, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, "odd size"};
            round_trip(&c, &in, cut, size);
            free(raw);
            free(cut);
        }
    codecs_free(&c);
}

static void test_arguments(void **state)
{
    (void)state;
    codecs c;
    codecs_make(&c);
    uint8_t raw[300] = {0}, frame[512];
    size_t size = 77;
#define ENCODE(cls, level, choice, n, capacity)                                                            \
    tp_encode(c.encoder, (tp_class)(cls), (tp_level)(level), (tp_codec_choice)(choice), raw, n, frame,     \
              capacity, &size)
    assert_int_equal(ENCODE(TP_CLASS_BF16, 0, 0, 0, sizeof frame), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(TP_CLASS_BF16, 0, 0, TP_FRAME_MAX_RAW + 1, SIZE_MAX), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(TP_CLASS_BF16, 0, 0, SIZE_MAX, SIZE_MAX), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(TP_CLASS_COUNT, 0, 0, 10, sizeof frame), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(-1, 0, 0, 10, sizeof frame), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(TP_CLASS_BF16, 3, 0, 10, sizeof frame), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(TP_CLASS_BF16, -1, 0, 10, sizeof frame), TP_INVALID_ARGUMENT);
    assert_int_equal(ENCODE(TP_CLASS_BF16, 0, 99, 10, sizeof frame), TP_INVALID_ARGUMENT);
    assert_int_equal(tp_encode_bound(300), 128 + 384);
    assert_int_equal(ENCODE(TP_CLASS_BF16, 0, 0, 300, 511), TP_BUFFER_TOO_SMALL);
    assert_int_equal(size, 77);
    assert_int_equal(ENCODE(TP_CLASS_BF16, 0, TP_CODEC_RAW, 300, 512), TP_OK);
#undef ENCODE
    assert_int_equal(size, 512);
    tp_error error;
    assert_int_equal(tp_decode(c.decoder, frame, size, raw, 299, NULL, &error), TP_BUFFER_TOO_SMALL);
    assert_string_equal(error.message, "frame: 299 bytes of room for 300");
    assert_int_equal(error.status, TP_BUFFER_TOO_SMALL);
    assert_int_equal(tp_decode(c.decoder, frame, size, raw, 300, NULL, NULL), TP_OK);
    assert_int_equal(tp_decode(c.decoder, frame, size - 1, raw, 300, NULL, NULL), TP_TRUNCATED);
    assert_int_equal(tp_decode(c.decoder, frame, 0, raw, 300, NULL, &error), TP_TRUNCATED);
    tp_encoder_destroy(NULL);
    tp_decoder_destroy(NULL);
    codecs_free(&c);
}

/* The same input gives the same bytes from a new encoder and from one that has seen everything. */
static void test_determinism(void **state)
{
    (void)state;
    codecs c;
    codecs_make(&c);
    rng r = rng_make(24);
    enum { N = 50000 };
    for (int round = 0; round < 24; round++) {
        const tp_class cls = (tp_class)(round % TP_CLASS_COUNT);
        const tp_level level = (tp_level)(round % 3);
        const size_t element = tp_class_element_size(cls), size = N * element,
                     bound = tp_encode_bound(size);
        uint8_t *raw = exact(size), *a = exact(bound), *b = exact(bound), *other = exact(bound + 1);
        size_t a_size, b_size, other_size;
        make_data((data_kind)(round % DATA_KINDS), cls, &r, raw, N);
        assert_int_equal(tp_encode(c.encoder, cls, level, TP_CODEC_AUTO, raw, size, a, bound, &a_size),
                         TP_OK);
        /* dirty the workspace with something else */
        const tp_class another = (tp_class)(1 + rng_below(&r, TP_CLASS_COUNT - 1));
        assert_int_equal(tp_encode(c.encoder, another, TP_LEVEL_MAX, TP_CODEC_AUTO, raw, size / 8 * 3,
                                   other, bound + 1, &other_size),
                         TP_OK);
        assert_int_equal(tp_encode(c.encoder, cls, level, TP_CODEC_AUTO, raw, size, b, bound, &b_size),
                         TP_OK);
        assert_int_equal(a_size, b_size);
        assert_memory_equal(a, b, a_size);
        tp_encoder *fresh;
        assert_int_equal(tp_encoder_create(&fresh), TP_OK);
        uint8_t *shifted = exact(size + 3); /* and at other addresses */
        memcpy(shifted + 3, raw, size);
        assert_int_equal(
            tp_encode(fresh, cls, level, TP_CODEC_AUTO, shifted + 3, size, other + 1, bound, &b_size),
            TP_OK);
        assert_int_equal(a_size, b_size);
        assert_memory_equal(a, other + 1, a_size);
        tp_encoder_destroy(fresh);
        free(raw);
        free(a);
        free(b);
        free(other);
        free(shifted);
    }
    codecs_free(&c);
}

/* What compression there must at least be, so that nothing falls back to raw unnoticed; in percent of the
 * raw size. */
static void test_ratios(void **state)
{
    (void)state;
    static const struct {
        tp_class cls;
        data_kind kind;
        tp_level level;
        tp_codec_choice choice;
        unsigned percent;
        tp_frame_codec codec;
        tp_method method;
    } expected[] = {
        {TP_CLASS_BF16, DATA_WEIGHTS, TP_LEVEL_FAST, TP_CODEC_AUTO, 70, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_BF16, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 68, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_BF16, DATA_WEIGHTS, TP_LEVEL_MAX, TP_CODEC_AUTO, 68, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_F16, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 86, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_F32, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 85, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_F32, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_RANS, 85, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_F32, DATA_UPCAST, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 51, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_F64, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 90, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_F64, DATA_UPCAST, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 58, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_E4M3, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 85, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_E5M2, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 85, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_I8, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 85, TP_FRAME_SPLIT, TP_METHOD_RANS},
        {TP_CLASS_I16, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 65, TP_FRAME_PLANES, TP_METHOD_RANS},
        {TP_CLASS_I32, DATA_RAMP, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 40, TP_FRAME_PLANES, TP_METHOD_BG_LZ4},
        {TP_CLASS_I64, DATA_SPARSE, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 10, TP_FRAME_PLANES, TP_METHOD_RANS},
        {TP_CLASS_F32, DATA_UPCAST, TP_LEVEL_DEFAULT, TP_CODEC_BG_LZ4, 70, TP_FRAME_PLANES,
         TP_METHOD_BG_LZ4},
        {TP_CLASS_BF16, DATA_CONSTANT, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 1, TP_FRAME_SPLIT,
         TP_METHOD_CONSTANT},
        {TP_CLASS_BF16, DATA_CONSTANT, TP_LEVEL_DEFAULT, TP_CODEC_LZ4, 1, TP_FRAME_LZ4, TP_METHOD_LZ4},
        {TP_CLASS_BF16, DATA_RANDOM, TP_LEVEL_MAX, TP_CODEC_AUTO, 101, TP_FRAME_RAW, TP_METHOD_RAW},
        {TP_CLASS_BYTES, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_AUTO, 80, TP_FRAME_LZ4, TP_METHOD_LZ4},
        {TP_CLASS_BF16, DATA_WEIGHTS, TP_LEVEL_DEFAULT, TP_CODEC_RAW, 101, TP_FRAME_RAW, TP_METHOD_RAW},
    };
    codecs c;
    codecs_make(&c);
    rng r = rng_make(25);
    enum { N = 200000 };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const size_t size = N * tp_class_element_size(expected[i].cls), bound = tp_encode_bound(size);
        uint8_t *raw = exact(size), *frame = exact(bound);
        size_t made;
        tp_frame_info info;
        tp_error error;
        make_data(expected[i].kind, expected[i].cls, &r, raw, N);
        assert_int_equal(tp_encode(c.encoder, expected[i].cls, expected[i].level, expected[i].choice, raw,
                                   size, frame, bound, &made),
                         TP_OK);
        const input in = {expected[i].cls, expected[i].level, expected[i].choice,
                          data_kind_name(expected[i].kind)};
        if (tp_frame_check(frame, made, &info, &error))
            fail_msg("%s: %s", name_of(&in, size), error.message);
        if (made * 100 > size * expected[i].percent || info.codec != expected[i].codec ||
            info.method != expected[i].method)
            fail_msg("%s: %.2f %% where %u %% should do, codec %d, method %s", name_of(&in, size),
                     100.0 * (double)made / (double)size, expected[i].percent, (int)info.codec,
                     tp_method_name(info.method));
        free(raw);
        free(frame);
    }
    codecs_free(&c);
}

int run_round_trips(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments), cmocka_unit_test(test_small),
        cmocka_unit_test(test_large),     cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_odd_sizes), cmocka_unit_test(test_determinism),
        cmocka_unit_test(test_ratios),    cmocka_unit_test(test_few_groups),
        cmocka_unit_test(test_lz4_max),
    };
    return cmocka_run_group_tests_name("round trips", tests, NULL, NULL);
}
