/*
 * The frame codec df11: what the encoder makes of all sorts of bf16 data, frames with chunks of every size,
 * and damage. The units themselves are tested in tests/df11.
 */
#include "registry.h"

#include "codec/bytes.h"
#include "codec/df11_frame.h"
#include "codec/hash.h"

enum { FRAMES = 40 };

typedef struct frames {
    built_frame frame[FRAMES];
    size_t count;
    tp_encoder *encoder;
    tp_decoder *decoder;
} frames;

static void frames_make(frames *f)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(tp_encoder_create(&f->encoder), TP_OK);
    assert_int_equal(tp_decoder_create(&f->decoder), TP_OK);
}

static void frames_free(frames *f)
{
    for (size_t i = 0; i < f->count; i++) built_frame_free(&f->frame[i]);
    tp_encoder_destroy(f->encoder);
    tp_decoder_destroy(f->decoder);
}

/* Takes raw. */
static built_frame *add(frames *f, uint8_t *raw, size_t n)
{
    built_frame *b = &f->frame[f->count++];
    assert_in_range(f->count, 1, FRAMES);
    uint8_t *frame = exact(tp_encode_bound(2 * n));
    b->raw = raw;
    b->raw_size = 2 * n;
    assert_int_equal(tp_encode(f->encoder, TP_CLASS_BF16, TP_LEVEL_DEFAULT, TP_CODEC_DF11, raw, 2 * n,
                               frame, tp_encode_bound(2 * n), &b->size),
                     TP_OK);
    b->frame = exact_copy(frame, b->size);
    free(frame);
    assert_int_equal(b->frame[4], TP_FRAME_DF11);
    assert_int_equal(b->frame[13], TP_METHOD_DF11);
    return b;
}

/* Exponents 100, 101, ... with counts that halve until `symbols` of them, mixed: codes of many lengths. */
static uint8_t *halving(rng *r, unsigned symbols, size_t n)
{
    uint8_t *raw = exact(2 * n);
    for (size_t i = 0; i < n; i++) {
        unsigned s = 0;
        while (s + 1 < symbols && rng_below(r, 2)) s++;
        if (i < symbols) s = (unsigned)i;
        tp_store16(raw + 2 * i, (uint16_t)((100 + s) << 7 | rng_below(r, 128) | rng_below(r, 2) << 15));
    }
    return raw;
}

static uint8_t *weights(rng *r, size_t n)
{
    uint8_t *raw = exact(2 * n);
    make_data(DATA_WEIGHTS, TP_CLASS_BF16, r, raw, n);
    return raw;
}

/* The same frame with chunks of 2^log2 elements. */
static void rechunk(built_frame *b, unsigned log2)
{
    const size_t n = b->raw_size / 2, chunk = (size_t)1 << log2, chunks = (n + chunk - 1) / chunk;
    const size_t tables = 256u * (size_t)b->frame[10], from = frame_payload_at(b->frame, b->size);
    const size_t to = (size_t)tp_align(128 + tables + 32 * chunks, 128), size = b->size - from + to;
    uint8_t *frame = exact(size);
    uint64_t parts[1 + (TP_FRAME_MAX_RAW >> 11)], hash[2];
    memset(frame, 0, size);
    memcpy(frame, b->frame, 128 + tables);
    memcpy(frame + to, b->frame + from, b->size - from);
    frame[9] = (uint8_t)log2;
    tp_store32(frame + 20, (uint32_t)size);
    tp_store32(frame + 24, (uint32_t)chunks);
    parts[0] = b->raw_size;
    for (size_t i = 0; i < chunks; i++) {
        uint8_t *d = frame + 128 + tables + 32 * i;
        const size_t elements = n - i * chunk < chunk ? n - i * chunk : chunk;
        tp_store32(d + 16, (uint32_t)elements);
        d[21] = TP_MODE_DF11;
        parts[1 + i] = tp_hash64(b->raw + 2 * i * chunk, 2 * elements);
        tp_store64(d + 24, parts[1 + i]);
    }
    tp_hash128(parts, 8 * (1 + chunks), hash);
    tp_store64(frame + 112, hash[0]);
    tp_store64(frame + 120, hash[1]);
    frame_rehash(frame, size);
    free(b->frame);
    b->frame = frame;
    b->size = size;
}

/* Frames of every kind; the first few are small. */
static void add_all(frames *f, bool large)
{
    rng r = rng_make(70);
    add(f, halving(&r, 1, 1700), 1700);
    add(f, halving(&r, 9, 2600), 2600);
    add(f, weights(&r, 4200), 4200);
    rechunk(add(f, halving(&r, 6, 2500), 2500), 10);
    if (!large) return;
    for (unsigned log2 = 10; log2 <= 17; log2++) {
        const size_t n = log2 < 14 ? 20000 + log2 : ((size_t)1 << log2) + 1;
        rechunk(add(f, weights(&r, n), n), log2);
    }
    for (size_t n = 40000; n < 40012; n++) add(f, halving(&r, 18, n), n); /* ends of every kind */
    uint8_t *raw = exact(2 * 30000);
    for (size_t i = 0; i < 30000; i++) /* the most exponents, with codes of almost one length */
        tp_store16(raw + 2 * i, (uint16_t)((i * 7 % 90) << 7 | rng_below(&r, 128)));
    add(f, raw, 30000);
}

int write_df11_frames(FILE *file)
{
    frames f;
    frames_make(&f);
    add_all(&f, true);
    for (size_t i = 0; i < f.count; i++) {
        uint8_t sizes[8];
        tp_store32(sizes, (uint32_t)f.frame[i].size);
        tp_store32(sizes + 4, (uint32_t)f.frame[i].raw_size);
        fwrite(sizes, 1, sizeof sizes, file);
        fwrite(f.frame[i].frame, 1, f.frame[i].size, file);
        fwrite(f.frame[i].raw, 1, f.frame[i].raw_size, file);
    }
    frames_free(&f);
    return 0;
}

/* -------------------------------------------------------------------------------------- round trips */

static void test_frames(void **state)
{
    (void)state;
    frames f;
    frames_make(&f);
    add_all(&f, true);
    for (size_t i = 0; i < f.count; i++) {
        const built_frame *b = &f.frame[i];
        uint8_t *dst = exact(b->raw_size);
        size_t raw_size;
        tp_error error;
        if (tp_decode(f.decoder, b->frame, b->size, dst, b->raw_size, &raw_size, &error))
            fail_msg("frame %zu: %s", i, error.message);
        assert_int_equal(raw_size, b->raw_size);
        assert_memory_equal(dst, b->raw, raw_size);
        free(dst);
    }
    frames_free(&f);
}

/* What cannot be df11, or does not gain by it, is what auto makes. */
static void test_fallback(void **state)
{
    (void)state;
    frames f;
    frames_make(&f);
    rng r = rng_make(71);
    unsigned coded = 0, others = 0;
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++)
        for (int kind = 0; kind < DATA_KINDS; kind++)
            for (int level = 0; level <= TP_LEVEL_MAX; level++) {
                const size_t n = 9000 + rng_below(&r, 100);
                const size_t size = n * tp_class_element_size((tp_class)cls) + (rng_below(&r, 8) == 0);
                const size_t bound = tp_encode_bound(size);
                uint8_t *raw = exact(size), *a = exact(bound), *b = exact(bound), *dst = exact(size);
                size_t a_size, b_size, raw_size;
                raw[size - 1] = 1;
                make_data((data_kind)kind, (tp_class)cls, &r, raw, n);
                assert_int_equal(tp_encode(f.encoder, (tp_class)cls, (tp_level)level, TP_CODEC_DF11, raw,
                                           size, a, bound, &a_size),
                                 TP_OK);
                assert_int_equal(tp_decode(f.decoder, a, a_size, dst, size, &raw_size, NULL), TP_OK);
                assert_int_equal(raw_size, size);
                assert_memory_equal(dst, raw, size);
                if (a[4] == TP_FRAME_DF11) {
                    coded++;
                    assert_int_equal(cls, TP_CLASS_BF16);
                    assert_true(kind != DATA_NAN && kind != DATA_INFINITE && kind != DATA_RANDOM);
                    assert_true(a_size * 100 <= bound * 99);
                } else {
                    others++;
                    assert_true(cls != TP_CLASS_BF16 || kind != DATA_WEIGHTS || size % 2);
                    assert_int_equal(tp_encode(f.encoder, (tp_class)cls, (tp_level)level, TP_CODEC_AUTO,
                                               raw, size, b, bound, &b_size),
                                     TP_OK);
                    assert_int_equal(a_size, b_size);
                    assert_memory_equal(a, b, a_size);
                }
                free(raw);
                free(a);
                free(b);
                free(dst);
            }
    assert_in_range(coded, 6, others);
    frames_free(&f);
}

/* A whole frame, and one element more or fewer than fits into blocks and chunks. */
static void test_large(void **state)
{
    (void)state;
    frames f;
    frames_make(&f);
    rng r = rng_make(72);
    const size_t lengths[] = {TP_FRAME_MAX_RAW / 2, TP_FRAME_MAX_RAW / 2 - 1, 131071, 131072, 131073};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const built_frame *b = add(&f, weights(&r, lengths[i]), lengths[i]);
        uint8_t *dst = exact(b->raw_size);
        assert_int_equal(tp_decode(f.decoder, b->frame, b->size, dst, b->raw_size, NULL, NULL), TP_OK);
        assert_memory_equal(dst, b->raw, b->raw_size);
        assert_true(b->size * 100 < b->raw_size * 70);
        free(dst);
    }
    frames_free(&f);
}

/* ------------------------------------------------------------------------------------------- damage */

/* Hashes right, all but that of the decoded bytes: refused, or what it was. Returns whether it was. */
static bool try_damaged(const frames *f, const built_frame *b, const uint8_t *frame, size_t size)
{
    tp_frame_info info;
    tp_error error;
    const tp_status status = tp_frame_check(frame, size, &info, &error);
    if (status) {
        assert_true(error.status == status && error.message[0]);
        return false;
    }
    uint8_t *dst = exact(info.raw_size);
    const tp_status decoded = tp_decode(f->decoder, frame, size, dst, info.raw_size, NULL, &error);
    if (!decoded && (info.raw_size != b->raw_size || memcmp(dst, b->raw, b->raw_size)))
        fail_msg("damage is decoded to something else");
    if (decoded && (decoded != TP_CORRUPT || !error.message[0])) fail_msg("status %d", (int)decoded);
    free(dst);
    return !decoded;
}

static void test_bit_flips(void **state)
{
    (void)state;
    frames f;
    frames_make(&f);
    add_all(&f, false);
    unsigned long harmless = 0, flips = 0;
    const size_t step = bulk_step();
    for (size_t i = 0; i < f.count; i++) {
        const built_frame *b = &f.frame[i];
        uint8_t *frame = exact_copy(b->frame, b->size);
        for (size_t bit = 0; bit < 8 * b->size; bit++, flips++) {
            frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (tp_decode(f.decoder, frame, b->size, NULL, 0, NULL, NULL) == TP_BUFFER_TOO_SMALL)
                fail_msg("frame %zu: bit %zu of byte %zu does not matter", i, bit % 8, bit / 8);
            if (bit / 8 + b->raw_size / 2 < b->size || bit % step == 0) { /* the last array is bulk */
                frame_rehash(frame, b->size);
                if (try_damaged(&f, b, frame, b->size)) harmless++;
            }
            memcpy(frame, b->frame, 128);
            frame[bit / 8] = b->frame[bit / 8];
        }
        assert_memory_equal(frame, b->frame, b->size);
        free(frame);
    }
    /* The places of the end symbol's code, and the bits behind the last code. */
    print_message("df11: %lu of %lu flips change nothing\n", harmless, flips);
    assert_in_range(harmless, 0, flips / 20);
    frames_free(&f);
}

static void test_fields(void **state)
{
    (void)state;
    frames f;
    frames_make(&f);
    add_all(&f, false);
    static const uint32_t values[] = {0, 1, 2, 127, 128, 4095, 65535, 131072, 0x7fffffff, UINT32_MAX};
    for (size_t i = 0; i < f.count; i++) {
        const built_frame *b = &f.frame[i];
        const size_t end = frame_payload_at(b->frame, b->size) + 1024; /* header, tables, positions, gaps */
        uint8_t *frame = exact_copy(b->frame, b->size);
        for (size_t at = 0; at + 4 <= end; at += at < 160 || at + 1200 > end ? 1 : 13) {
            for (size_t v = 0; v < 256 + sizeof values / sizeof *values;
                 v += v >= 256 ? 1 : 11) {
                if (v < 256)
                    frame[at] = (uint8_t)v;
                else
                    tp_store32(frame + at, values[v - 256]);
                tp_store32(frame + 20, (uint32_t)b->size);
                frame_rehash(frame, b->size);
                try_damaged(&f, b, frame, b->size);
                memcpy(frame, b->frame, b->size);
            }
        }
        free(frame);
    }
    frames_free(&f);
}

static void test_mutations(void **state)
{
    (void)state;
    const unsigned long long count = number_from_environment("TP_TEST_MUTATIONS", 20000) / 4;
    frames f;
    frames_make(&f);
    add_all(&f, true);
    rng r = rng_make(73);
    for (unsigned long long i = 0; i < count; i++) {
        const built_frame *b = &f.frame[rng_below(&r, (uint32_t)f.count)];
        const size_t payload_at = frame_payload_at(b->frame, b->size);
        size_t size = b->size;
        if (!rng_below(&r, 10)) size -= 128 * rng_below(&r, 4);
        uint8_t *frame = exact_copy(b->frame, size);
        for (uint32_t changes = 1 + rng_below(&r, 3); changes; changes--) {
            const size_t at = rng_below(&r, (uint32_t)(rng_below(&r, 2) ? payload_at + 800 : size));
            const size_t from = rng_below(&r, (uint32_t)size), length = 1 + rng_below(&r, 40);
            if (rng_below(&r, 3))
                frame[at] = (uint8_t)rng_next(&r);
            else if (at + length <= size && from + length <= size)
                memmove(frame + at, frame + from, length);
        }
        memcpy(frame, "TPFR", 4);
        tp_store32(frame + 20, (uint32_t)size);
        frame_rehash(frame, size);
        try_damaged(&f, b, frame, size);
        free(frame);
    }
    frames_free(&f);
}

int run_df11(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),    cmocka_unit_test(test_fallback), cmocka_unit_test(test_large),
        cmocka_unit_test(test_bit_flips), cmocka_unit_test(test_fields),   cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests_name("df11", tests, NULL, NULL);
}
