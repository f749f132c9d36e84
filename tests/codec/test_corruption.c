/*
 * Damaged frames. With the hashes as they were, everything must be refused. With the hashes made right
 * again, the validator and the decoder have to find out themselves; whatever they find, they stay within
 * their buffers (which have exact sizes, for AddressSanitizer), and all kernels find the same.
 */
#include "registry.h"

#include "codec/bytes.h"

enum { VICTIMS = 600 };

typedef struct victims {
    built_frame frame[VICTIMS];
    char name[VICTIMS][160];
    size_t count;
    const tp_kernels *kernels[MAX_KERNELS];
    size_t kernel_count;
    tp_decoder *decoder;
    unsigned long long refused, failed, restored; /* by the validator, by the decoder, not at all */
} victims;

static void victims_make(victims *v)
{
    memset(v, 0, sizeof *v);
    v->kernel_count = all_kernels(v->kernels);
    assert_int_equal(tp_decoder_create(&v->decoder), TP_OK);
}

static void victims_free(victims *v)
{
    for (size_t i = 0; i < v->count; i++) built_frame_free(&v->frame[i]);
    tp_decoder_destroy(v->decoder);
}

static void add_plan(const frame_plan *plan, void *context)
{
    victims *v = context;
    assert_in_range(v->count, 0, VICTIMS - 1);
    build_frame(plan, &tp_kernels_portable, &v->frame[v->count]);
    memcpy(v->name[v->count++], plan->name, sizeof plan->name);
}

/* The smallest frames of every codec and mode: a chunk or two. */
static void add_small(victims *v)
{
    frame_plan p = {
        .codec = TP_FRAME_RAW, .cls = TP_CLASS_I8, .chunks = 1, .last = 333, .seed = 1, .name = "raw"};
    add_plan(&p, v);
    p = (frame_plan){
        .codec = TP_FRAME_LZ4, .cls = TP_CLASS_I8, .chunks = 1, .last = 700, .seed = 2, .name = "lz4"};
    add_plan(&p, v);
    p = (frame_plan){.codec = TP_FRAME_PLANES,
                     .cls = TP_CLASS_I16,
                     .chunk_log2 = 10,
                     .chunks = 2,
                     .last = 301,
                     .tables = 1,
                     .seed = 3,
                     .name = "planes",
                     .mode = {{TP_MODE_WIDE, TP_MODE_LZ4}, {TP_MODE_RAW, TP_MODE_CONSTANT}}};
    add_plan(&p, v);
    p = (frame_plan){.codec = TP_FRAME_PLANES,
                     .cls = TP_CLASS_I16,
                     .joined = true,
                     .chunk_log2 = 10,
                     .chunks = 2,
                     .last = 301,
                     .seed = 4,
                     .name = "joined",
                     .mode = {{TP_MODE_LZ4}, {TP_MODE_RAW}}};
    add_plan(&p, v);
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_split_shapes(shapes);
    for (size_t i = 0; i < n; i++) {
        const class_rule *rule = &class_rules[shapes[i].cls];
        for (unsigned low_coded = 0; low_coded <= (rule->low ? 1u : 0u); low_coded++) {
            p = (frame_plan){.codec = TP_FRAME_SPLIT,
                             .cls = shapes[i].cls,
                             .s = shapes[i].s,
                             .c = shapes[i].c,
                             .low_coded = low_coded,
                             .chunk_log2 = 11,
                             .chunks = 2,
                             .last = 1800,
                             .entries = 9,
                             .rare = 300,
                             .seed = 10 + i};
            p.selector_bits = (unsigned)(i + low_coded) % 3;
            p.tables = 1u << p.selector_bits;
            /* a constant chunk, which pays for the tables */
            for (unsigned k = 0; k <= rule->low; k++) p.mode[0][k] = TP_MODE_CONSTANT;
            p.mode[1][0] = shapes[i].c == 2 ? TP_MODE_PAIRS : TP_MODE_W32;
            for (unsigned k = 0; k < rule->low; k++)
                p.mode[1][1 + k] = k % 2 ? TP_MODE_LZ4 : TP_MODE_CONSTANT;
            if (low_coded && rule->low == 6) p.mode[1][6] = TP_MODE_WIDE;
            snprintf(p.name, sizeof p.name, "%s s %u c %u%s", tp_class_name(p.cls), p.s, p.c,
                     low_coded ? " low_coded" : "");
            add_plan(&p, v);
            if (i % 4) continue;
            p.chunk_log2 = 10; /* and modes that are no streams */
            p.last = 100;
            p.selector_bits = 0;
            p.mode[1][0] = low_coded ? TP_MODE_CONSTANT : i == 0 ? TP_MODE_LZ4 : TP_MODE_RAW;
            add_plan(&p, v);
        }
    }
    p = (frame_plan){.codec = TP_FRAME_SPLIT,
                     .cls = TP_CLASS_E4M3,
                     .s = 6,
                     .c = 1,
                     .chunk_log2 = 10,
                     .chunks = 2,
                     .last = 500,
                     .tables = 1,
                     .seed = 60,
                     .name = "wide tops",
                     .mode = {{TP_MODE_WIDE}, {TP_MODE_CONSTANT}}};
    add_plan(&p, v);
}

/* What the encoder makes, so that its ways of cutting are there too. */
static void add_encoded(victims *v)
{
    tp_encoder *encoder;
    rng r = rng_make(50);
    assert_int_equal(tp_encoder_create(&encoder), TP_OK);
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++)
        for (int level = 0; level <= TP_LEVEL_MAX; level++) {
            const size_t n = 5000 + rng_below(&r, 20000), size = n * tp_class_element_size((tp_class)cls);
            built_frame *b = &v->frame[v->count];
            uint8_t *frame = exact(tp_encode_bound(size));
            b->raw = exact(size);
            b->raw_size = size;
            make_data(level == 1 ? DATA_UPCAST : DATA_WEIGHTS, (tp_class)cls, &r, b->raw, n);
            assert_int_equal(tp_encode(encoder, (tp_class)cls, (tp_level)level, TP_CODEC_AUTO, b->raw, size,
                                       frame, tp_encode_bound(size), &b->size),
                             TP_OK);
            b->frame = exact_copy(frame, b->size);
            free(frame);
            snprintf(v->name[v->count++], sizeof v->name[0], "encoded %s", tp_class_name((tp_class)cls));
        }
    tp_encoder_destroy(encoder);
}

/* A damaged frame, hashes right: validator, then decoder. */
static void try_damaged(victims *v, size_t which, const uint8_t *frame, size_t size)
{
    tp_frame_view view;
    tp_error error;
    const tp_status status = tp_frame_validate(frame, size, true, &view, &error);
    if (status) {
        v->refused++;
        assert_int_equal(error.status, status);
        assert_true(error.message[0] != 0);
        assert_int_equal(tp_decode(v->decoder, frame, size, NULL, 0, NULL, NULL), status);
        return;
    }
    if (view.info.raw_size < 1 || view.info.raw_size > TP_FRAME_MAX_RAW)
        fail_msg("%s: raw size", v->name[which]);
    tp_status first = TP_OK;
    for (size_t k = 0; k < v->kernel_count; k++) {
        uint8_t *dst = exact(view.info.raw_size);
        memset(dst, 0x5a, view.info.raw_size);
        tp_decoder_use(v->decoder, v->kernels[k]);
        const tp_status decoded = tp_frame_decode(v->decoder, &view, size, dst, view.info.raw_size, &error);
        if (k == 0) first = decoded;
        if (decoded != first)
            fail_msg("%s: kernel %s has another opinion", v->name[which], v->kernels[k]->name);
        if (decoded && decoded != TP_CORRUPT) fail_msg("%s: status %d", v->name[which], (int)decoded);
        /* The hash of the raw bytes was not changed to fit, so what passes can only be what it was. */
        if (!decoded && (view.info.raw_size != v->frame[which].raw_size ||
                         memcmp(dst, v->frame[which].raw, view.info.raw_size)))
            fail_msg("%s: kernel %s decodes something else", v->name[which], v->kernels[k]->name);
        free(dst);
    }
    *(first ? &v->failed : &v->restored) += 1;
}

static void report(const victims *v, const char *what)
{
    print_message("%s: %llu refused by the validator, %llu by the decoder, %llu restored all the same\n",
                  what, v->refused, v->failed, v->restored);
}

static void test_bit_flips(void **state)
{
    (void)state;
    static victims v;
    const size_t step = bulk_step();
    victims_make(&v);
    add_small(&v);
    for (size_t i = 0; i < v.count; i++) {
        const built_frame *b = &v.frame[i];
        uint8_t *frame = exact_copy(b->frame, b->size), *dst = exact(b->raw_size);
        const size_t payload_at = frame_payload_at(frame, b->size);
        tp_decoder_use(v.decoder, v.kernels[0]);
        for (size_t bit = 0; bit < 8 * b->size; bit++) {
            frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (tp_decode(v.decoder, frame, b->size, dst, b->raw_size, NULL, NULL) == TP_OK)
                fail_msg("%s: bit %zu of byte %zu does not matter", v.name[i], bit % 8, bit / 8);
            frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        for (size_t bit = 0; bit < 8 * b->size; bit++) {
            if (bit > 8 * (payload_at + 160) && bit + 8 * 700 < 8 * b->size) bit += step - 1;
            frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
            frame_rehash(frame, b->size);
            try_damaged(&v, i, frame, b->size);
            frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        free(frame);
        free(dst);
    }
    report(&v, "bit flips");
    victims_free(&v);
}

static void test_truncations(void **state)
{
    (void)state;
    static victims v;
    victims_make(&v);
    add_small(&v);
    for (size_t i = 0; i < v.count; i++) {
        const built_frame *b = &v.frame[i];
        uint8_t *dst = exact(b->raw_size);
        for (size_t size = 0; size < b->size; size++) {
            uint8_t *frame = exact_copy(b->frame, size);
            assert_int_equal(tp_decode(v.decoder, frame, size, dst, b->raw_size, NULL, NULL), TP_TRUNCATED);
            if (size >= 128 && size % 128 == 0) { /* as if it had always been so short */
                tp_store32(frame + 20, (uint32_t)size);
                frame_rehash(frame, size);
                assert_int_not_equal(tp_decode(v.decoder, frame, size, dst, b->raw_size, NULL, NULL),
                                     TP_OK);
                try_damaged(&v, i, frame, size);
            }
            free(frame);
        }
        for (size_t more = 128; more <= 1024; more += 128) { /* and longer */
            uint8_t *frame = exact(b->size + more);
            memset(frame, 0, b->size + more);
            memcpy(frame, b->frame, b->size);
            assert_int_equal(tp_decode(v.decoder, frame, b->size + more, dst, b->raw_size, NULL, NULL),
                             TP_CORRUPT);
            tp_store32(frame + 20, (uint32_t)(b->size + more));
            frame_rehash(frame, b->size + more);
            assert_int_not_equal(tp_decode(v.decoder, frame, b->size + more, dst, b->raw_size, NULL, NULL),
                                 TP_OK);
            tp_store32(frame + 28, tp_load32(frame + 28) + (uint32_t)more);
            frame_rehash(frame, b->size + more);
            assert_int_not_equal(tp_decode(v.decoder, frame, b->size + more, dst, b->raw_size, NULL, NULL),
                                 TP_OK);
            free(frame);
        }
        free(dst);
    }
    victims_free(&v);
}

static void change(rng *r, uint8_t *frame, size_t size)
{
    static const uint32_t values[] = {0,    1,     2,     127,    128,        255,        1023,
                                      1024, 65535, 65536, 131072, 0x7fffffff, 0x80000000, UINT32_MAX};
    static const unsigned fields[] = {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 20, 24, 28};
    static const unsigned parts[] = {0, 4, 8, 12, 16, 20, 21, 24};
    const size_t payload_at = frame_payload_at(frame, size),
                 directory = payload_at > 160 ? payload_at : 160;
    const size_t tables = 256u * (size_t)frame[7] * frame[10] + 512u * (size_t)frame[11];
    size_t at = rng_below(r, 2) ? rng_below(r, (uint32_t)(directory < size ? directory : size))
                                : rng_below(r, (uint32_t)size);
    const uint32_t what = rng_below(r, 10);
    if (what < 2) /* a field of the header */
        at = fields[rng_below(r, sizeof fields / sizeof *fields)];
    else if (what < 5 && payload_at > 160 + tables && payload_at <= size) /* a field of a descriptor */
        at = 128 + tables + 32 * rng_below(r, (uint32_t)(payload_at - 128 - tables) / 32) +
             parts[rng_below(r, sizeof parts / sizeof *parts)];
    if (at >= size) at = size - 1;
    switch (rng_below(r, 6)) {
    case 0:
        frame[at] ^= (uint8_t)(1 << rng_below(r, 8));
        break;
    case 1:
        frame[at] = (uint8_t)rng_next(r);
        break;
    case 2:
        frame[at] = (uint8_t)(frame[at] + (rng_below(r, 2) ? 1 : -1));
        break;
    case 3:
        if (at + 4 <= size) tp_store32(frame + at, values[rng_below(r, sizeof values / sizeof *values)]);
        break;
    case 4:
        if (at + 4 <= size)
            tp_store32(frame + at, tp_load32(frame + at) + (rng_below(r, 2) ? 128 : (uint32_t)-128));
        break;
    default: { /* a piece from elsewhere */
        const size_t from = rng_below(r, (uint32_t)size), length = 1 + rng_below(r, 64);
        if (at + length <= size && from + length <= size) memmove(frame + at, frame + from, length);
    }
    }
}

static void test_mutations(void **state)
{
    (void)state;
    const unsigned long long count = number_from_environment("TP_TEST_MUTATIONS", 20000);
    static victims v;
    victims_make(&v);
    add_small(&v);
    add_encoded(&v);
    each_plan(add_plan, &v);
    rng r = rng_make(51);
    for (unsigned long long i = 0; i < count; i++) {
        const size_t which = rng_below(&r, (uint32_t)v.count);
        const built_frame *b = &v.frame[which];
        size_t size = b->size;
        uint8_t *frame = exact(size);
        memcpy(frame, b->frame, size);
        for (uint32_t changes = 1 + rng_below(&r, rng_below(&r, 4) ? 2 : 8); changes; changes--)
            change(&r, frame, size);
        if (rng_below(&r, 20)) { /* mostly past the first checks */
            memcpy(frame, "TPFR", 4);
            tp_store32(frame + 20, (uint32_t)size);
        }
        frame_rehash(frame, size);
        try_damaged(&v, which, frame, size);
        free(frame);
    }
    report(&v, "mutations");
    victims_free(&v);
}

int run_corruption(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bit_flips),
        cmocka_unit_test(test_truncations),
        cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests_name("corruption", tests, NULL, NULL);
}
