/*
 * Golden frames: what once was written must decode for ever, and what once was refused must stay refused.
 * They are never compared with what the encoder makes today. tests/goldens/README.md says how to make new
 * ones.
 */
#include "registry.h"

#include "codec/bytes.h"

static uint8_t *read_file(const char *folder, const char *name, const char *suffix, size_t *size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s cannot be opened", path);
    uint8_t *data = exact((size_t)1 << 20);
    *size = fread(data, 1, (size_t)1 << 20, file);
    fclose(file);
    uint8_t *cut = exact_copy(data, *size);
    free(data);
    return cut;
}

static tp_status status_by_name(const char *name)
{
#define NAME(status, code, text) {#status, status},
    static const struct {
        const char *name;
        tp_status status;
    } names[] = {TP_STATUS_LIST(NAME)};
#undef NAME
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name)) return names[i].status;
    fail_msg("%s is no status", name);
    return TP_OK;
}

static void check_good(const char *name, tp_decoder *decoder)
{
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t count = all_kernels(kernels);
    size_t size, raw_size, decoded;
    uint8_t *frame = read_file(TP_GOLDENS_DIR, name, ".tpf", &size);
    uint8_t *raw = read_file(TP_GOLDENS_DIR, name, ".raw", &raw_size), *dst = exact(raw_size);
    tp_error error;
    for (size_t k = 0; k < count; k++) {
        tp_decoder_use(decoder, kernels[k]);
        if (tp_decode(decoder, frame, size, dst, raw_size, &decoded, &error))
            fail_msg("%s, kernel %s: %s", name, kernels[k]->name, error.message);
        assert_int_equal(decoded, raw_size);
        if (memcmp(dst, raw, raw_size))
            fail_msg("%s, kernel %s: decodes to other bytes", name, kernels[k]->name);
    }
    free(frame);
    free(raw);
    free(dst);
}

static void check_bad(const char *name, tp_status status, tp_decoder *decoder)
{
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t count = all_kernels(kernels);
    size_t size;
    uint8_t *frame = read_file(TP_GOLDENS_DIR, name, ".tpf", &size), *dst = exact(TP_FRAME_MAX_RAW);
    for (size_t k = 0; k < count; k++) {
        tp_decoder_use(decoder, kernels[k]);
        const tp_status got = tp_decode(decoder, frame, size, dst, TP_FRAME_MAX_RAW, NULL, NULL);
        if (got != status)
            fail_msg("%s, kernel %s: status %d where %d belongs", name, kernels[k]->name, (int)got,
                     (int)status);
    }
    free(frame);
    free(dst);
}

static void test_goldens(void **state)
{
    (void)state;
    FILE *list = fopen(TP_GOLDENS_DIR "/list.txt", "r");
    if (!list) fail_msg("%s/list.txt cannot be opened", TP_GOLDENS_DIR);
    tp_decoder *decoder;
    assert_int_equal(tp_decoder_create(&decoder), TP_OK);
    char line[200], name[100], status[100];
    unsigned good = 0, bad = 0;
    while (fgets(line, sizeof line, list)) {
        if (sscanf(line, "good %99s", name) == 1) {
            check_good(name, decoder);
            good++;
        } else if (sscanf(line, "bad %99s %99s", name, status) == 2) {
            check_bad(name, status_by_name(status), decoder);
            bad++;
        } else if (line[0] != '#' && line[0] != '\n') {
            fail_msg("list.txt: %s", line);
        }
    }
    fclose(list);
    tp_decoder_destroy(decoder);
    assert_true(good >= 20 && bad >= 10);
}

int run_goldens(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens)};
    return cmocka_run_group_tests_name("goldens", tests, NULL, NULL);
}

/* ---------------------------------------------------------------------------------------- making them */

typedef struct writer {
    const char *folder;
    FILE *list;
    bool failed;
    uint64_t seed;
} writer;

static void write_file(writer *w, const char *name, const char *suffix, const uint8_t *data, size_t size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", w->folder, name, suffix);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) w->failed = true;
}

static void write_good(writer *w, const char *name, const built_frame *b)
{
    write_file(w, name, ".tpf", b->frame, b->size);
    write_file(w, name, ".raw", b->raw, b->raw_size);
    fprintf(w->list, "good %s\n", name);
}

static void write_plan(writer *w, const char *name, frame_plan plan)
{
    built_frame b;
    plan.seed = ++w->seed;
    snprintf(plan.name, sizeof plan.name, "%s", name);
    build_frame(&plan, &tp_kernels_portable, &b);
    write_good(w, name, &b);
    built_frame_free(&b);
}

static frame_plan small_split(tp_class cls, unsigned s, unsigned c, bool low_coded)
{
    const uint8_t coded = c == 2 ? TP_MODE_PAIRS : TP_MODE_W32;
    frame_plan p = {.codec = TP_FRAME_SPLIT,
                    .cls = cls,
                    .s = s,
                    .c = c,
                    .low_coded = low_coded,
                    .chunk_log2 = 10,
                    .chunks = 3,
                    .last = 501,
                    .tables = 1,
                    .entries = 12,
                    .rare = 200};
    for (unsigned i = 0; i < 3; i++) {
        p.mode[i][0] = i == 1 ? TP_MODE_CONSTANT : coded; /* the constant chunk pays for the tables */
        for (unsigned k = 0; k < class_rules[cls].low; k++) {
            static const uint8_t low[] = {TP_MODE_CONSTANT, TP_MODE_WIDE, TP_MODE_LZ4, TP_MODE_RAW};
            p.mode[i][1 + k] = i == 1 ? TP_MODE_CONSTANT : low[(i + k) % 4];
        }
    }
    return p;
}

static frame_plan small_planes(tp_class cls, bool joined)
{
    static const uint8_t modes[] = {TP_MODE_WIDE, TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_RAW};
    frame_plan p = {
        .codec = TP_FRAME_PLANES, .cls = cls, .joined = joined, .chunk_log2 = 10, .chunks = 2, .tables = 1};
    p.last = 333 * class_rules[cls].element + class_rules[cls].element / 2;
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < 8; k++)
            p.mode[i][k] = joined ? (i ? TP_MODE_RAW : TP_MODE_LZ4) : modes[(i + k) % 4];
    return p;
}

static void write_encoded(writer *w, const char *name, tp_class cls, tp_level level, data_kind kind,
                          size_t n)
{
    tp_encoder *encoder;
    rng r = rng_make(++w->seed);
    built_frame b = {.raw_size = n * tp_class_element_size(cls)};
    b.raw = exact(b.raw_size);
    b.frame = exact(tp_encode_bound(b.raw_size));
    make_data(kind, cls, &r, b.raw, n);
    if (tp_encoder_create(&encoder) || tp_encode(encoder, cls, level, TP_CODEC_AUTO, b.raw, b.raw_size,
                                                 b.frame, tp_encode_bound(b.raw_size), &b.size))
        w->failed = true;
    write_good(w, name, &b);
    tp_encoder_destroy(encoder);
    built_frame_free(&b);
}

/* BAD: a frame of the plan, changed (f: its bytes), hashes made right after that if `rehash`. */
static void write_bad(writer *w, const char *name, const char *status, built_frame *b, bool rehash)
{
    if (rehash) frame_rehash(b->frame, b->size);
    write_file(w, name, ".tpf", b->frame, b->size);
    fprintf(w->list, "bad %s %s\n", name, status);
    built_frame_free(b);
}
#define BAD(its_name, status, plan, rehash, change)                                                        \
    do {                                                                                                   \
        built_frame b;                                                                                     \
        frame_plan plan_ = plan;                                                                           \
        snprintf(plan_.name, sizeof plan_.name, "%s", its_name);                                           \
        plan_.seed = ++w.seed;                                                                             \
        build_frame(&plan_, &tp_kernels_portable, &b);                                                     \
        uint8_t *f = b.frame;                                                                              \
        uint8_t *d = f + 128 + 256u * f[7] * f[10] + 512u * f[11],                                         \
                *payload = f + frame_payload_at(f, b.size);                                                \
        (void)d, (void)payload;                                                                            \
        change;                                                                                            \
        write_bad(&w, its_name, #status, &b, rehash);                                                      \
    } while (0)

int write_goldens(const char *folder)
{
    char path[4096];
    writer w = {.folder = folder, .seed = 7000};
    snprintf(path, sizeof path, "%s/list.txt", folder);
    w.list = fopen(path, "w");
    if (!w.list) return 2;
    fprintf(
        w.list,
        "# good NAME: NAME.tpf decodes to NAME.raw. bad NAME STATUS: NAME.tpf is refused with STATUS.\n");

    write_plan(&w, "raw",
               (frame_plan){.codec = TP_FRAME_RAW, .cls = TP_CLASS_BYTES, .chunks = 1, .last = 1001});
    write_plan(&w, "lz4",
               (frame_plan){.codec = TP_FRAME_LZ4, .cls = TP_CLASS_I32, .chunks = 1, .last = 3001});
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_split_shapes(shapes);
    for (size_t i = 0; i < n; i++)
        for (unsigned low_coded = 0; low_coded <= (class_rules[shapes[i].cls].low ? 1u : 0u); low_coded++) {
            char name[100];
            frame_plan plan = small_split(shapes[i].cls, shapes[i].s, shapes[i].c, low_coded);
            snprintf(name, sizeof name, "split-%s-s%u%s%s", tp_class_name(shapes[i].cls), shapes[i].s,
                     shapes[i].c == 2 ? "-pairs" : "", low_coded ? "-low" : "");
            write_plan(&w, name, plan);
        }
    frame_plan plan = small_split(TP_CLASS_BF16, 9, 1, false);
    plan.mode[0][0] = TP_MODE_RAW;
    write_plan(&w, "split-raw-chunk", plan);
    plan.mode[0][0] = TP_MODE_LZ4;
    write_plan(&w, "split-lz4-chunk", plan);
    plan.mode[0][0] = TP_MODE_CONSTANT;
    write_plan(&w, "split-constant-chunk", plan);
    plan = small_split(TP_CLASS_E4M3, 6, 1, false);
    plan.mode[0][0] = plan.mode[2][0] = TP_MODE_WIDE;
    write_plan(&w, "split-wide-chunk", plan);
    plan = small_split(TP_CLASS_BF16, 9, 1, false);
    plan.chunk_log2 = 11;
    plan.last = 1500;
    plan.selector_bits = 1;
    plan.tables = 3;
    write_plan(&w, "split-2-tables", plan);
    plan.selector_bits = 2;
    plan.tables = 4;
    write_plan(&w, "split-4-tables", plan);
    write_plan(&w, "planes-2", small_planes(TP_CLASS_I16, false));
    write_plan(&w, "planes-4", small_planes(TP_CLASS_F32, false));
    write_plan(&w, "planes-8", small_planes(TP_CLASS_I64, false));
    write_plan(&w, "joined-4", small_planes(TP_CLASS_F32, true));
    write_encoded(&w, "encoded-bf16-fast", TP_CLASS_BF16, TP_LEVEL_FAST, DATA_WEIGHTS, 5000);
    write_encoded(&w, "encoded-bf16-default", TP_CLASS_BF16, TP_LEVEL_DEFAULT, DATA_WEIGHTS, 4000);
    write_encoded(&w, "encoded-f32-max", TP_CLASS_F32, TP_LEVEL_MAX, DATA_UPCAST, 3000);
    write_encoded(&w, "encoded-i8-default", TP_CLASS_I8, TP_LEVEL_DEFAULT, DATA_WEIGHTS, 6000);

    const frame_plan bf16 = small_split(TP_CLASS_BF16, 9, 1, false);
    const frame_plan lz4 = {.codec = TP_FRAME_LZ4, .cls = TP_CLASS_I32, .chunks = 1, .last = 700};
    BAD("bad-magic", TP_CORRUPT, bf16, true, f[0] = 'X');
    BAD("bad-stored-hash", TP_CORRUPT, bf16, false, payload[200] ^= 1);
    BAD("bad-short", TP_TRUNCATED, bf16, false, b.size -= 128);
    BAD("bad-long", TP_CORRUPT, bf16, true, tp_store32(f + 20, (uint32_t)b.size - 128));
    BAD("bad-codec", TP_UNSUPPORTED, bf16, true, f[4] = 200);
    BAD("bad-class", TP_UNSUPPORTED, bf16, true, f[5] = 200);
    BAD("bad-reserved", TP_CORRUPT, bf16, true, f[60] = 1);
    BAD("bad-symbol-bits", TP_CORRUPT, bf16, true, f[6] = 11);
    BAD("bad-tables-per-stream", TP_CORRUPT, bf16, true, f[12] = 3);
    BAD("bad-method", TP_CORRUPT, bf16, true, f[13] = 1);
    BAD("bad-frequencies", TP_CORRUPT, bf16, true, tp_store16(f + 128, (uint16_t)(tp_load16(f + 128) + 1)));
    BAD("bad-symbols", TP_CORRUPT, bf16, true, tp_store16(f + 128 + 6, tp_load16(f + 128 + 2)));
    BAD("bad-offset", TP_CORRUPT, bf16, true, tp_store64(d + 32, tp_load64(d + 32) + 128));
    BAD("bad-words", TP_CORRUPT, bf16, true, tp_store32(d + 8, tp_load32(d + 8) - 1));
    BAD("bad-state-range", TP_CORRUPT, bf16, true, tp_store32(payload, 1023));
    BAD("bad-state", TP_CORRUPT, bf16, true, payload[1] ^= 1);
    BAD("bad-raw-bits", TP_CORRUPT, bf16, true, payload[128] ^= 1);
    BAD("bad-chunk-hash", TP_CORRUPT, bf16, true, d[24] ^= 1);
    BAD("bad-raw-hash", TP_CORRUPT, bf16, true, f[112] ^= 1);
    BAD("bad-padding", TP_CORRUPT, bf16, true, f[b.size - 1] ^= 1);
    BAD("bad-lz4-block", TP_CORRUPT, lz4, true, f[128] &= 0x0f);
    BAD("bad-lz4-size", TP_CORRUPT, lz4, true, tp_store32(f + 16, 699));
    return fclose(w.list) || w.failed ? 2 : 0;
}
