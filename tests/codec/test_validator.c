/*
 * Every check of tp_frame_validate: a valid frame, one thing of it broken, its hashes made right again, and
 * the exact status and message.
 */
#include "registry.h"

#include "codec/bytes.h"

typedef struct subject {
    built_frame valid;
    uint8_t *frame; /* the copy that is broken; a payload may grow into it */
    size_t size;
    tp_decoder *decoder;
} subject;

static subject make_subject(const frame_plan *plan)
{
    subject s = {.size = 0};
    tp_error error;
    tp_frame_info info;
    build_frame(plan, &tp_kernels_portable, &s.valid);
    assert_int_equal(tp_decoder_create(&s.decoder), TP_OK);
    s.frame = exact(s.valid.size);
    if (tp_frame_check(s.valid.frame, s.valid.size, &info, &error))
        fail_msg("%s: %s", plan->name, error.message);
    return s;
}

static void free_subject(subject *s)
{
    built_frame_free(&s->valid);
    free(s->frame);
    tp_decoder_destroy(s->decoder);
}

static uint8_t *descriptor(const subject *s, uint32_t index)
{
    uint8_t *f = s->frame;
    return f + 128 + 256u * f[7] * f[10] + 512u * f[11] + 32 * (size_t)index;
}

static uint8_t *payload_of(const subject *s)
{
    return s->frame + frame_payload_at(s->frame, s->size);
}

static void start(subject *s)
{
    free(s->frame);
    s->frame = exact_copy(s->valid.frame, s->valid.size);
    s->size = s->valid.size;
}

/* The frame with its stored size lengthened or shortened, zeros at the end. */
static void resize(subject *s, size_t size)
{
    uint8_t *frame = exact(size);
    memset(frame, 0, size);
    memcpy(frame, s->frame, s->size < size ? s->size : size);
    free(s->frame);
    s->frame = frame;
    s->size = size;
    tp_store32(frame + 20, (uint32_t)size);
}

static void expect_as_is(subject *s, int line, tp_status status, const char *message)
{
    tp_error error = {0};
    tp_frame_info info;
    uint8_t *dst = exact(TP_FRAME_MAX_RAW);
    size_t raw_size;
    tp_status got = tp_frame_check(s->frame, s->size, &info, &error);
    if (got != status || strcmp(error.message, message) != 0)
        fail_msg("line %d: status %d, \"%s\", where %d, \"%s\" belongs", line, (int)got, error.message,
                 (int)status, message);
    assert_int_equal(error.status, status);
    memset(&error, 0, sizeof error);
    got = tp_decode(s->decoder, s->frame, s->size, dst, TP_FRAME_MAX_RAW, &raw_size, &error);
    if (got != status || strcmp(error.message, message) != 0)
        fail_msg("line %d: tp_decode: status %d, \"%s\"", line, (int)got, error.message);
    assert_int_equal(tp_decode(s->decoder, s->frame, s->size, dst, TP_FRAME_MAX_RAW, NULL, NULL), status);
    free(dst);
}

/* BREAK(subject, what to do to frame f, status, message) */
#define BREAK(s, change, status, message)                                                                  \
    do {                                                                                                   \
        start(&(s));                                                                                       \
        uint8_t *f = (s).frame;                                                                            \
        (void)f;                                                                                           \
        change;                                                                                            \
        frame_rehash((s).frame, (s).size);                                                                 \
        expect_as_is(&(s), __LINE__, status, message);                                                     \
    } while (0)
#define CORRUPT(s, change, message) BREAK(s, change, TP_CORRUPT, "frame: " message)

static frame_plan raw_plan(void)
{
    return (frame_plan){
        .codec = TP_FRAME_RAW, .cls = TP_CLASS_BF16, .chunks = 1, .last = 1500, .seed = 1, .name = "raw"};
}

/* Two chunks of bf16, W32, s = 9, with exceptions. */
static frame_plan w32_plan(void)
{
    frame_plan p = {.codec = TP_FRAME_SPLIT,
                    .cls = TP_CLASS_BF16,
                    .s = 9,
                    .c = 1,
                    .chunk_log2 = 10,
                    .chunks = 4,
                    .last = 1000,
                    .tables = 1,
                    .entries = 20,
                    .rare = 50,
                    .seed = 2,
                    .name = "w32"};
    for (unsigned i = 0; i < 4; i++) p.mode[i][0] = TP_MODE_W32;
    return p;
}

static void test_header(void **state)
{
    (void)state;
    frame_plan plan = raw_plan();
    subject s = make_subject(&plan);
    assert_int_equal(s.valid.size, 128 + 1536);

    start(&s);
    s.size = 127;
    expect_as_is(&s, __LINE__, TP_TRUNCATED, "frame: ends within its header");
    s.size = 0;
    expect_as_is(&s, __LINE__, TP_TRUNCATED, "frame: ends within its header");
    start(&s);
    s.size = 1664 - 128;
    expect_as_is(&s, __LINE__, TP_TRUNCATED, "frame: has 1536 of 1664 bytes");
    s.size = 128;
    expect_as_is(&s, __LINE__, TP_TRUNCATED, "frame: has 128 of 1664 bytes");
    BREAK(s, f[0] ^= 1, TP_CORRUPT, "no frame here (magic)");
    BREAK(s, f[3] = 0, TP_CORRUPT, "no frame here (magic)");
    CORRUPT(s, tp_store32(f + 16, 0), "raw size 0 is not in 1..4194304");
    CORRUPT(s, tp_store32(f + 16, 4194305), "raw size 4194305 is not in 1..4194304");
    CORRUPT(s, tp_store32(f + 16, UINT32_MAX), "raw size 4294967295 is not in 1..4194304");
    CORRUPT(s, tp_store32(f + 20, 1665), "stored size 1665 is not possible for raw size 1500");
    CORRUPT(s, tp_store32(f + 20, 128), "stored size 128 is not possible for raw size 1500");
    CORRUPT(s, tp_store32(f + 20, 0), "stored size 0 is not possible for raw size 1500");
    CORRUPT(s, tp_store32(f + 20, 1664 + 128), "stored size 1792 is not possible for raw size 1500");
    CORRUPT(s, tp_store32(f + 20, 0xffffff80), "stored size 4294967168 is not possible for raw size 1500");
    CORRUPT(s, tp_store32(f + 20, 1664 - 128), "128 bytes follow it");
    start(&s);
    s.frame[200] ^= 1;
    expect_as_is(&s, __LINE__, TP_CORRUPT, "frame: hash of the stored bytes does not match");
    start(&s);
    s.frame[111] ^= 0x80;
    expect_as_is(&s, __LINE__, TP_CORRUPT, "frame: hash of the stored bytes does not match");
    BREAK(s, f[4] = 6, TP_UNSUPPORTED, "frame: codec 6 is not known to this version");
    BREAK(s, f[4] = 255, TP_UNSUPPORTED, "frame: codec 255 is not known to this version");
    BREAK(s, f[5] = 11, TP_UNSUPPORTED, "frame: dtype class 11 is not known to this version");
    CORRUPT(s, f[8] = 4, "reserved bytes are set");
    CORRUPT(s, f[8] = 0x80, "reserved bytes are set");
    CORRUPT(s, f[14] = 1, "reserved bytes are set");
    CORRUPT(s, f[15] = 1, "reserved bytes are set");
    CORRUPT(s, f[40] = 1, "reserved bytes are set");
    CORRUPT(s, f[95] = 1, "reserved bytes are set");
    CORRUPT(s, f[10] = 17, "more than 16 tables");
    CORRUPT(s, f[11] = 17, "more than 16 tables");
    static const unsigned fields[] = {6, 7, 8, 9, 10, 11, 12};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        CORRUPT(s, f[fields[i]] = 1, "fields of other codecs in codec 0");
    CORRUPT(s, f[8] = 2, "fields of other codecs in codec 0");
    CORRUPT(s, tp_store32(f + 24, 1), "1 descriptors where 0 belong");
    CORRUPT(s, tp_store32(f + 24, UINT32_MAX), "4294967295 descriptors where 0 belong");
    CORRUPT(s, tp_store32(f + 28, 1536 + 1), "tables, descriptors and payload do not fill it");
    CORRUPT(s, tp_store32(f + 28, 1536 - 128), "tables, descriptors and payload do not fill it");
    CORRUPT(s, tp_store32(f + 28, UINT32_MAX), "tables, descriptors and payload do not fill it");
    CORRUPT(s, tp_store32(f + 28, 1499),
            "padding is not zero"); /* the last byte of data is one of padding now */
    CORRUPT(s, f[128 + 1500] = 1, "padding is not zero");
    CORRUPT(s, f[128 + 1535] = 1, "padding is not zero");
    CORRUPT(s, tp_store32(f + 28, 1501), "payload is 1501 bytes, raw size 1500");
    CORRUPT(s, f[13] = 0, "method is 0 where 1 belongs");
    CORRUPT(s, f[13] = 2, "method is 2 where 1 belongs");
    CORRUPT(s, f[13] = 255, "method is 255 where 1 belongs");
    free_subject(&s);
}

/* Only tp_decode says this: the validator is content. */
static void expect_decode(subject *s, int line, const char *message)
{
    tp_error error = {0};
    tp_frame_view view;
    frame_rehash(s->frame, s->size);
    if (tp_frame_validate(s->frame, s->size, true, &view, &error))
        fail_msg("line %d: %s", line, error.message);
    uint8_t *dst = exact(view.info.raw_size);
    const tp_status status =
        tp_decode(s->decoder, s->frame, s->size, dst, view.info.raw_size, NULL, &error);
    if (status != TP_CORRUPT || strcmp(error.message, message) != 0)
        fail_msg("line %d: status %d, \"%s\", where \"%s\" belongs", line, (int)status, error.message,
                 message);
    free(dst);
}
#define DECODE(s, change, message)                                                                         \
    do {                                                                                                   \
        start(&(s));                                                                                       \
        uint8_t *f = (s).frame;                                                                            \
        (void)f;                                                                                           \
        change;                                                                                            \
        expect_decode(&(s), __LINE__, "frame: " message);                                                  \
    } while (0)

static void test_raw_hash(void **state)
{
    (void)state;
    frame_plan plan = raw_plan();
    subject s = make_subject(&plan);
    DECODE(s, f[112] ^= 1, "hash of the decoded bytes does not match");
    DECODE(s, f[127] ^= 0x80, "hash of the decoded bytes does not match");
    DECODE(s, f[128] ^= 1, "hash of the decoded bytes does not match");
    DECODE(s, f[128 + 1499] ^= 1, "hash of the decoded bytes does not match");
    free_subject(&s);
    plan = w32_plan();
    s = make_subject(&plan);
    DECODE(s, f[112] ^= 1, "hash of the decoded bytes does not match");
    free_subject(&s);
}

static void test_lz4(void **state)
{
    (void)state;
    frame_plan plan = raw_plan();
    plan.codec = TP_FRAME_LZ4;
    plan.last = 3000;
    subject s = make_subject(&plan);
    CORRUPT(s, f[12] = 1, "fields of other codecs in codec 1");
    CORRUPT(s, f[13] = 1, "method is 1 where 3 belongs");
    const uint32_t size = tp_load32(s.valid.frame + 28);
    {
        start(&s);
        tp_store32(s.frame + 16, size); /* raw size = payload size */
        frame_rehash(s.frame, s.size);
        char message[100];
        snprintf(message, sizeof message, "frame: an lz4 block of %u bytes for %u", size, size);
        expect_as_is(&s, __LINE__, TP_CORRUPT, message);
    }
    DECODE(s, f[128] &= 0x0f, "the lz4 block does not decode to its size");
    DECODE(s, tp_store32(f + 16, 2999), "the lz4 block does not decode to its size");
    DECODE(s, tp_store32(f + 16, 3001), "the lz4 block does not decode to its size");
    free_subject(&s);
}

static void test_split_header(void **state)
{
    (void)state;
    frame_plan plan = w32_plan();
    subject s = make_subject(&plan);
    CORRUPT(s, f[9] = 9, "chunk_log2 is 9");
    CORRUPT(s, f[9] = 18, "chunk_log2 is 18");
    CORRUPT(s, f[9] = 0, "chunk_log2 is 0");
    CORRUPT(s, f[5] = TP_CLASS_BYTES, "class bytes cannot be split");
    CORRUPT(s, f[5] = TP_CLASS_I16, "class i16 cannot be split");
    CORRUPT(s, f[5] = TP_CLASS_I64, "class i64 cannot be split");
    CORRUPT(s, tp_store32(f + 16, tp_load32(f + 16) - 1), "raw size is no multiple of the element size");
    CORRUPT(s, f[8] = 2, "joined in codec split");
    CORRUPT(s, f[8] = 1, "low_coded in class bf16");
    CORRUPT(s, f[6] = 0, "s = 0, c = 1 in class bf16");
    CORRUPT(s, f[6] = 7, "s = 7, c = 1 in class bf16");
    CORRUPT(s, f[6] = 16, "s = 16, c = 1 in class bf16");
    CORRUPT(s, f[7] = 0, "s = 9, c = 0 in class bf16");
    CORRUPT(s, f[7] = 2, "s = 9, c = 2 in class bf16");
    CORRUPT(s, f[7] = 3, "s = 9, c = 3 in class bf16");
    CORRUPT(s, (f[5] = TP_CLASS_I8, f[6] = 8, f[7] = 2), "s = 8, c = 2 in class i8");
    CORRUPT(s, (f[5] = TP_CLASS_E4M3, f[6] = 7), "s = 7, c = 1 in class e4m3");
    CORRUPT(s, (f[5] = TP_CLASS_F16, f[6] = 8), "s = 8, c = 1 in class f16");
    CORRUPT(s, f[12] = 0, "0 tables per stream");
    CORRUPT(s, f[12] = 3, "3 tables per stream");
    CORRUPT(s, f[12] = 8, "8 tables per stream");
    CORRUPT(s, tp_store32(f + 24, 3), "3 descriptors where 4 belong");
    CORRUPT(s, tp_store32(f + 24, 5), "5 descriptors where 4 belong");
    CORRUPT(s, f[9] = 11, "4 descriptors where 2 belong");
    CORRUPT(s, f[10] = 2, "tables, descriptors and payload do not fill it");
    CORRUPT(s, f[10] = 16, "tables, descriptors and payload do not fill it");
    start(&s);
    s.frame[32] ^= 1; /* the directory hash itself */
    {
        uint64_t directory = tp_load64(s.frame + 32);
        frame_rehash(s.frame, s.size);
        tp_store64(s.frame + 32, directory);
        memset(s.frame + 96, 0, 16);
        uint64_t hash[2];
        tp_kernels_portable.hash128(s.frame, s.size, hash);
        tp_store64(s.frame + 96, hash[0]);
        tp_store64(s.frame + 104, hash[1]);
        expect_as_is(&s, __LINE__, TP_CORRUPT, "frame: hash of its directory does not match");
    }
    free_subject(&s);

    /* three descriptors leave padding in front of the payload */
    plan.chunks = 3;
    s = make_subject(&plan);
    CORRUPT(s, descriptor(&s, 3)[0] = 1, "padding is not zero");
    CORRUPT(s, payload_of(&s)[-1] = 1, "padding is not zero");
    CORRUPT(s, f[13] = 1, "method is 1 where 5 belongs");
    CORRUPT(s, f[13] = 3, "method is 3 where 5 belongs");
    free_subject(&s);
}

static void test_symbol_tables(void **state)
{
    (void)state;
    frame_plan plan = w32_plan();
    plan.tables = 2;
    subject s = make_subject(&plan);
#define ENTRY(table, i) (f + 128 + 256 * (table) + 4 * (i))
    CORRUPT(s, tp_store16(ENTRY(0, 3), 1024), "symbol table 0: frequency 1024 is above 1023");
    CORRUPT(s, tp_store16(ENTRY(1, 0), 65535), "symbol table 1: frequency 65535 is above 1023");
    CORRUPT(s, tp_store16(ENTRY(0, 19) + 2, 512), "symbol table 0: symbol 512 has more than 9 bits");
    CORRUPT(s, tp_store16(ENTRY(1, 4) + 2, tp_load16(ENTRY(1, 3) + 2)),
            "symbol table 1: symbols do not ascend");
    CORRUPT(s, (tp_store16(ENTRY(0, 4) + 2, tp_load16(ENTRY(0, 3) + 2)), tp_store16(ENTRY(0, 3) + 2, 511)),
            "symbol table 0: symbols do not ascend");
    CORRUPT(s, memset(ENTRY(0, 0), 0, 256), "symbol table 0: fewer than two entries");
    CORRUPT(s, (memset(ENTRY(0, 1), 0, 252), tp_store16(ENTRY(0, 0), 1023)),
            "symbol table 0: fewer than two entries");
    CORRUPT(s,
            (memset(ENTRY(1, 0), 0, 256), tp_store16(ENTRY(1, 0), 1023), tp_store16(ENTRY(1, 1), 2),
             tp_store16(ENTRY(1, 1) + 2, 1)),
            "symbol table 1: frequencies sum to 1025, not 1024");
    CORRUPT(s,
            (memset(ENTRY(1, 0), 0, 256), tp_store16(ENTRY(1, 0), 1022), tp_store16(ENTRY(1, 1), 1),
             tp_store16(ENTRY(1, 1) + 2, 1)),
            "symbol table 1: frequencies sum to 1023, not 1024");
    CORRUPT(s, tp_store16(ENTRY(0, 20) + 2, 1), "symbol table 0: data after its last entry");
    CORRUPT(s, tp_store16(ENTRY(0, 63), 1), "symbol table 0: data after its last entry");
    CORRUPT(s, tp_store16(ENTRY(1, 63) + 2, 0xffff), "symbol table 1: data after its last entry");
#undef ENTRY
    free_subject(&s);

    plan = w32_plan();
    plan.s = 8;
    plan.c = 2;
    plan.entries = 128;
    for (unsigned i = 0; i < 4; i++) plan.mode[i][0] = TP_MODE_PAIRS;
    s = make_subject(&plan);
    CORRUPT(s, tp_store16(f + 128 + 4 * 127, 1023), "symbol table 0: frequencies sum to 2046, not 1024");
    free_subject(&s);
}

static void test_wide_tables(void **state)
{
    (void)state;
    frame_plan plan = {.codec = TP_FRAME_PLANES,
                       .cls = TP_CLASS_I16,
                       .chunk_log2 = 10,
                       .chunks = 3,
                       .last = 2001,
                       .tables = 1,
                       .seed = 3,
                       .name = "wide"};
    for (unsigned i = 0; i < 3; i++) plan.mode[i][0] = plan.mode[i][1] = TP_MODE_WIDE;
    subject s = make_subject(&plan);
    unsigned used = 0; /* a byte that has a frequency above 1 */
    while (tp_load16(s.valid.frame + 128 + 2 * used) < 2) used++;
    const unsigned F = tp_load16(s.valid.frame + 128 + 2 * used);
    char message[100];
    CORRUPT(s, tp_store16(f + 128, 4096), "wide table 0: frequency 4096 is above 4095");
    CORRUPT(s, tp_store16(f + 128 + 510, 65535), "wide table 0: frequency 65535 is above 4095");
    CORRUPT(s, memset(f + 128, 0, 512), "wide table 0: fewer than two symbols");
    CORRUPT(s, (memset(f + 128, 0, 512), tp_store16(f + 128 + 2 * used, 4095)),
            "wide table 0: fewer than two symbols");
    snprintf(message, sizeof message, "frame: wide table 0: frequencies sum to %u, not 4096", 4095u);
    BREAK(s, tp_store16(f + 128 + 2 * used, (uint16_t)(F - 1)), TP_CORRUPT, message);
    CORRUPT(s, f[7] = 1, "fields of codec split in codec planes");
    CORRUPT(s, f[6] = 9, "fields of codec split in codec planes");
    CORRUPT(s, f[10] = 1, "fields of codec split in codec planes");
    CORRUPT(s, f[12] = 1, "fields of codec split in codec planes");
    CORRUPT(s, f[8] = 1, "low_coded in codec planes");
    CORRUPT(s, f[5] = TP_CLASS_BYTES, "class bytes has no planes");
    CORRUPT(s, f[9] = 18, "chunk_log2 is 18");
    CORRUPT(s, f[13] = 4, "method is 4 where 5 belongs");
    free_subject(&s);
}

static void test_descriptors(void **state)
{
    (void)state;
    frame_plan plan = w32_plan();
    subject s = make_subject(&plan);
    CORRUPT(s, descriptor(&s, 0)[22] = 1, "descriptor 0: reserved bytes are set");
    CORRUPT(s, descriptor(&s, 3)[23] = 1, "descriptor 3: reserved bytes are set");
    CORRUPT(s, tp_store32(descriptor(&s, 0) + 16, 1023),
            "descriptor 0: has 1023 elements where 1024 belong");
    CORRUPT(s, tp_store32(descriptor(&s, 3) + 16, 1024),
            "descriptor 3: has 1024 elements where 1000 belong");
    CORRUPT(s, tp_store32(descriptor(&s, 3) + 16, UINT32_MAX),
            "descriptor 3: has 4294967295 elements where 1000 belong");
    CORRUPT(s, descriptor(&s, 1)[20] = 1, "descriptor 1: no symbol table 1");
    CORRUPT(s, descriptor(&s, 1)[20] = 255, "descriptor 1: no symbol table 255");
    CORRUPT(s, f[12] = 2, "descriptor 0: no symbol table 1");
    CORRUPT(s, tp_store32(descriptor(&s, 1) + 8, 1025), "descriptor 1: more words than symbols");
    CORRUPT(s, tp_store32(descriptor(&s, 1) + 8, UINT32_MAX), "descriptor 1: more words than symbols");
    CORRUPT(s, tp_store32(descriptor(&s, 3) + 12, 1001), "descriptor 3: more exceptions than elements");
    CORRUPT(s, tp_store32(descriptor(&s, 3) + 12, UINT32_MAX),
            "descriptor 3: more exceptions than elements");
    CORRUPT(s, tp_store32(descriptor(&s, 3) + 12, 1000), "descriptor 3: runs beyond the payload");
    CORRUPT(s, descriptor(&s, 1)[21] = TP_MODE_PAIRS, "descriptor 1: mode 3 does not belong here");
    CORRUPT(s, (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = TP_MODE_WIDE),
            "descriptor 1: mode wide does not belong here");
    CORRUPT(s, (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = 6),
            "descriptor 1: unknown mode 6");
    CORRUPT(s, (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = 255),
            "descriptor 1: unknown mode 255");
    CORRUPT(s, descriptor(&s, 1)[21] = TP_MODE_LZ4, "descriptor 1: exceptions in mode 5");
    CORRUPT(s, (tp_store32(descriptor(&s, 1) + 12, 0), descriptor(&s, 1)[21] = TP_MODE_RAW),
            "descriptor 1: a count of words in mode 0");
    CORRUPT(s, (tp_store32(descriptor(&s, 1) + 12, 0), descriptor(&s, 1)[21] = TP_MODE_CONSTANT),
            "descriptor 1: a count of words in mode 1");
    CORRUPT(s,
            (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = TP_MODE_RAW,
             descriptor(&s, 1)[20] = 1),
            "descriptor 1: a table in mode 0");
    CORRUPT(s, (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = TP_MODE_LZ4),
            "descriptor 1: an lz4 block of 0 bytes for 2048");
    CORRUPT(s,
            (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = TP_MODE_LZ4,
             tp_store32(descriptor(&s, 1) + 8, 2048)),
            "descriptor 1: an lz4 block of 2048 bytes for 2048");
    CORRUPT(s,
            (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = TP_MODE_CONSTANT,
             tp_store64(descriptor(&s, 1), 0x10000)),
            "descriptor 1: constant wider than its element");
    CORRUPT(s,
            (memset(descriptor(&s, 1) + 8, 0, 8), descriptor(&s, 1)[21] = TP_MODE_CONSTANT,
             tp_store64(descriptor(&s, 1), 1)),
            "descriptor 2: starts at 2816 where 1408 belongs");
    CORRUPT(s, tp_store64(descriptor(&s, 0), 128), "descriptor 0: starts at 128 where 0 belongs");
    CORRUPT(s, tp_store64(descriptor(&s, 1), UINT64_MAX),
            "descriptor 1: starts at 18446744073709551615 where 1408 belongs");
    /* a chunk more payload than its parts have */
    CORRUPT(s, (tp_store32(f + 28, tp_load32(f + 28) + 128), resize(&s, s.size + 128)),
            "payload is 5760 bytes where its parts have 5632");
    DECODE(s, descriptor(&s, 2)[24] ^= 1, "chunk 2: hash of the decoded bytes does not match");
    DECODE(s, payload_of(&s)[0] ^= 1, "descriptor 0: the stream does not end as it must");
    DECODE(s, tp_store32(payload_of(&s) + 124, 1023), "descriptor 0: the stream does not end as it must");
    DECODE(s, tp_store32(payload_of(&s) + 1408, 1u << 26),
           "descriptor 1: the stream does not end as it must");
    DECODE(s, payload_of(&s)[130] ^= 1, "chunk 0: hash of the decoded bytes does not match");
    free_subject(&s);
}

/* Where the exceptions, and what precedes them, lie in part `index` of a W32 frame. */
static uint8_t *after_words(const subject *s, uint32_t index)
{
    const uint8_t *f = s->frame, *d = descriptor(s, index);
    const size_t groups = (tp_load32(d + 16) + 1023) / 1024, R = 16u - f[6];
    return payload_of(s) + tp_load64(d) + 128 + groups * 128 * R + 2 * (size_t)tp_load32(d + 8);
}

static void test_exceptions(void **state)
{
    (void)state;
    frame_plan plan = w32_plan();
    subject s = make_subject(&plan);
    uint32_t odd = 0; /* a stream with an odd number of words */
    start(&s);
    while (odd < 4 && tp_load32(descriptor(&s, odd) + 8) % 2 == 0) odd++;
    assert_in_range(odd, 0, 3);
    char message[100];
    snprintf(message, sizeof message, "frame: descriptor %u: padding is not zero", odd);
    BREAK(s, after_words(&s, odd)[0] = 1, TP_CORRUPT, message);
    BREAK(s, after_words(&s, odd)[1] = 0x80, TP_CORRUPT, message);
    CORRUPT(s, payload_of(&s)[1407] = 1, "descriptor 0: padding is not zero");
#define EXCEPTION(part, i) (f + tp_align((uint64_t)(after_words(&s, part) - f), 4) + 4 * (i))
    start(&s);
    assert_true(tp_load32(descriptor(&s, 3) + 12) >= 3);
    CORRUPT(s, tp_store32(EXCEPTION(3, 0), 1000 | 5u << 18),
            "descriptor 3: exception 0 lies beyond the chunk");
    CORRUPT(s, tp_store32(EXCEPTION(3, 2), 0x3ffff), "descriptor 3: exception 2 lies beyond the chunk");
    CORRUPT(s, tp_store32(EXCEPTION(3, 1), tp_load32(EXCEPTION(3, 0))),
            "descriptor 3: exceptions do not ascend");
    CORRUPT(s, tp_store32(EXCEPTION(3, 1), 0), "descriptor 3: exceptions do not ascend");
    CORRUPT(s, tp_store32(EXCEPTION(0, 0), 512u << 18),
            "descriptor 0: exception 0 has a symbol of more than 9 bits");
    DECODE(s, tp_store32(EXCEPTION(0, 0), tp_load32(EXCEPTION(0, 0)) ^ 1u << 18),
           "chunk 0: hash of the decoded bytes does not match");
#undef EXCEPTION
    free_subject(&s);

    /* pairs count pairs: with 999 elements, 500 of them */
    plan.s = 8;
    plan.c = 2;
    plan.last = 999;
    for (unsigned i = 0; i < 4; i++) plan.mode[i][0] = TP_MODE_PAIRS;
    s = make_subject(&plan);
    start(&s);
    assert_true(tp_load32(descriptor(&s, 3) + 12) >= 1);
#define EXCEPTION(part, i) (f + tp_align((uint64_t)(after_words(&s, part) - f), 4) + 4 * (i))
    CORRUPT(s, tp_store32(EXCEPTION(3, 0), 500), "descriptor 3: exception 0 lies beyond the chunk");
    CORRUPT(s, tp_store32(descriptor(&s, 3) + 8, 513), "descriptor 3: more words than symbols");
    CORRUPT(s, descriptor(&s, 0)[21] = TP_MODE_W32, "descriptor 0: mode 2 does not belong here");
#undef EXCEPTION
    free_subject(&s);
}

static void test_selectors(void **state)
{
    (void)state;
    frame_plan plan = w32_plan();
    plan.selector_bits = 2;
    plan.tables = 5;
    plan.chunk_log2 = 12;
    subject s = make_subject(&plan);
    /* 4 groups of 2 bits, in one u32 */
#define SELECTORS (f + tp_align((uint64_t)(after_words(&s, 0) - f), 4))
    CORRUPT(s, SELECTORS[1] = 1, "descriptor 0: padding is not zero");
    CORRUPT(s, SELECTORS[3] = 0x80, "descriptor 0: padding is not zero");
    CORRUPT(s, descriptor(&s, 0)[20] = 2, "descriptor 0: no symbol table 5");
    CORRUPT(s, descriptor(&s, 0)[20] = 255, "descriptor 0: no symbol table 258");
    start(&s);
    assert_true(s.frame[10] == 5 && s.frame[12] == 4);
#undef SELECTORS
    free_subject(&s);
}

static void test_low_coded(void **state)
{
    (void)state;
    frame_plan plan = {.codec = TP_FRAME_SPLIT,
                       .cls = TP_CLASS_F32,
                       .s = 9,
                       .c = 1,
                       .low_coded = true,
                       .chunk_log2 = 10,
                       .chunks = 3,
                       .last = 1024,
                       .tables = 1,
                       .entries = 20,
                       .seed = 4,
                       .name = "low_coded"};
    for (unsigned i = 0; i < 3; i++) {
        plan.mode[i][0] = i == 1 ? TP_MODE_RAW : TP_MODE_W32;
        plan.mode[i][1] = TP_MODE_CONSTANT;
        plan.mode[i][2] = i == 0 ? TP_MODE_LZ4 : TP_MODE_WIDE;
    }
    subject s = make_subject(&plan);
    CORRUPT(s, descriptor(&s, 1)[24] = 1, "descriptor 1: a hash where none belongs");
    CORRUPT(s, descriptor(&s, 2)[31] = 1, "descriptor 2: a hash where none belongs");
    CORRUPT(s, (descriptor(&s, 3)[21] = TP_MODE_LZ4, tp_store32(descriptor(&s, 3) + 8, 100)),
            "descriptor 3: mode lz4 does not belong here");
    CORRUPT(s, descriptor(&s, 3)[21] = TP_MODE_WIDE, "descriptor 3: mode wide does not belong here");
    CORRUPT(s, descriptor(&s, 1)[21] = TP_MODE_W32, "descriptor 1: mode 2 does not belong here");
    CORRUPT(s, descriptor(&s, 1)[21] = TP_MODE_PAIRS, "descriptor 1: mode 3 does not belong here");
    CORRUPT(s, tp_store64(descriptor(&s, 1), 256), "descriptor 1: constant wider than its element");
    CORRUPT(s, (descriptor(&s, 3)[21] = TP_MODE_CONSTANT, tp_store64(descriptor(&s, 3), 0x10000)),
            "descriptor 3: constant wider than its element");
    CORRUPT(s, descriptor(&s, 5)[20] = 1, "descriptor 5: no wide table 1");
    CORRUPT(s, tp_store32(descriptor(&s, 5) + 8, 1025), "descriptor 5: more words than symbols");
    CORRUPT(s, tp_store32(descriptor(&s, 5) + 12, 1), "descriptor 5: exceptions in mode 4");
    CORRUPT(s, tp_store32(descriptor(&s, 2) + 8, 0), "descriptor 2: an lz4 block of 0 bytes for 1024");
    CORRUPT(s, tp_store32(descriptor(&s, 2) + 8, 1024),
            "descriptor 2: an lz4 block of 1024 bytes for 1024");
    CORRUPT(s, descriptor(&s, 2)[20] = 1, "descriptor 2: a table in mode 5");
    CORRUPT(s, tp_store32(descriptor(&s, 1) + 8, 1), "descriptor 1: a count of words in mode 1");
    CORRUPT(s, f[8] = 0, "9 descriptors where 3 belong");
    DECODE(s, payload_of(&s)[tp_load64(descriptor(&s, 2))] &= 0x0f,
           "descriptor 2: the lz4 block does not decode to its size");
    DECODE(s, tp_store32(payload_of(&s) + tp_load64(descriptor(&s, 5)), 4095),
           "descriptor 5: the stream does not end as it must");
    DECODE(s, payload_of(&s)[tp_load64(descriptor(&s, 3))] ^= 1,
           "chunk 1: hash of the decoded bytes does not match");
    DECODE(s, descriptor(&s, 4)[0] ^= 1, "chunk 1: hash of the decoded bytes does not match");
    free_subject(&s);
}

static void test_planes(void **state)
{
    (void)state;
    /* the last chunk is one byte: three of its planes are empty */
    frame_plan plan = {.codec = TP_FRAME_PLANES,
                       .cls = TP_CLASS_I32,
                       .chunk_log2 = 10,
                       .chunks = 3,
                       .last = 1,
                       .seed = 5,
                       .name = "planes"};
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < 4; k++) plan.mode[i][k] = k % 2 ? TP_MODE_LZ4 : TP_MODE_RAW;
    subject s = make_subject(&plan);
    CORRUPT(s, descriptor(&s, 9)[21] = TP_MODE_CONSTANT, "descriptor 9: constant does not belong here");
    CORRUPT(s, descriptor(&s, 9)[21] = TP_MODE_WIDE, "descriptor 9: mode wide does not belong here");
    CORRUPT(s, descriptor(&s, 9)[21] = TP_MODE_LZ4, "descriptor 9: an lz4 block of 0 bytes for 0");
    CORRUPT(s, tp_store32(descriptor(&s, 9) + 16, 1), "descriptor 9: has 1 elements where 0 belong");
    CORRUPT(s, tp_store64(descriptor(&s, 9), 0), "descriptor 9: starts at 0 where 4736 belongs");
    CORRUPT(s, descriptor(&s, 0)[21] = TP_MODE_W32, "descriptor 0: mode 2 does not belong here");
    CORRUPT(s, descriptor(&s, 0)[21] = TP_MODE_WIDE, "descriptor 0: no wide table 0");
    CORRUPT(s, descriptor(&s, 1)[24] = 1, "descriptor 1: a hash where none belongs");
    CORRUPT(s, f[8] = 2, "12 descriptors where 3 belong");
    CORRUPT(s, f[13] = 3, "method is 3 where 4 belongs");
    free_subject(&s);

    plan = (frame_plan){.codec = TP_FRAME_PLANES,
                        .cls = TP_CLASS_I32,
                        .joined = true,
                        .chunk_log2 = 10,
                        .chunks = 3,
                        .last = 4001,
                        .seed = 6,
                        .name = "joined"};
    for (unsigned i = 0; i < 3; i++) plan.mode[i][0] = TP_MODE_LZ4;
    s = make_subject(&plan);
    CORRUPT(s, (tp_store32(descriptor(&s, 1) + 8, 0), descriptor(&s, 1)[21] = TP_MODE_CONSTANT),
            "descriptor 1: constant does not belong here");
    CORRUPT(s, descriptor(&s, 1)[21] = TP_MODE_WIDE, "descriptor 1: mode wide does not belong here");
    CORRUPT(s, tp_store32(descriptor(&s, 2) + 16, 4000),
            "descriptor 2: has 4000 elements where 4001 belong");
    CORRUPT(s, f[13] = 5, "method is 5 where 4 belongs");
    DECODE(s, payload_of(&s)[0] &= 0x0f, "descriptor 0: the lz4 block does not decode to its size");
    free_subject(&s);
}

/* The method that follows from the parts of each kind. */
static void test_methods(void **state)
{
    (void)state;
    static const struct {
        tp_frame_codec codec;
        uint8_t modes[4];
        tp_method method;
    } cases[] = {
        {TP_FRAME_SPLIT,
         {TP_MODE_CONSTANT, TP_MODE_CONSTANT, TP_MODE_RAW, TP_MODE_RAW},
         TP_METHOD_CONSTANT},
        {TP_FRAME_SPLIT, {TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_RAW, TP_MODE_CONSTANT}, TP_METHOD_LZ4},
        {TP_FRAME_SPLIT, {TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_W32, TP_MODE_CONSTANT}, TP_METHOD_RANS},
        {TP_FRAME_SPLIT, {TP_MODE_W32, TP_MODE_LZ4, TP_MODE_RAW, TP_MODE_CONSTANT}, TP_METHOD_RANS},
        {TP_FRAME_PLANES,
         {TP_MODE_CONSTANT, TP_MODE_CONSTANT, TP_MODE_RAW, TP_MODE_RAW},
         TP_METHOD_CONSTANT},
        {TP_FRAME_PLANES, {TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_RAW, TP_MODE_RAW}, TP_METHOD_BG_LZ4},
        {TP_FRAME_PLANES, {TP_MODE_WIDE, TP_MODE_LZ4, TP_MODE_RAW, TP_MODE_RAW}, TP_METHOD_RANS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        frame_plan plan = w32_plan();
        plan.codec = cases[i].codec;
        if (plan.codec == TP_FRAME_PLANES) plan.s = plan.c = 0, plan.last = 2000;
        for (unsigned k = 0; k < 4; k++) plan.mode[k][0] = plan.mode[k][1] = cases[i].modes[k];
        subject s = make_subject(&plan);
        tp_frame_info info;
        assert_int_equal(tp_frame_check(s.valid.frame, s.valid.size, &info, NULL), TP_OK);
        assert_int_equal(info.method, cases[i].method);
        for (unsigned method = 0; method < 8; method++) {
            if (method == (unsigned)cases[i].method) continue;
            char message[100];
            snprintf(message, sizeof message, "frame: method is %u where %u belongs", method,
                     (unsigned)cases[i].method);
            BREAK(s, f[13] = (uint8_t)method, TP_CORRUPT, message);
        }
        free_subject(&s);
    }
}

int run_validator(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),        cmocka_unit_test(test_raw_hash),
        cmocka_unit_test(test_lz4),           cmocka_unit_test(test_split_header),
        cmocka_unit_test(test_symbol_tables), cmocka_unit_test(test_wide_tables),
        cmocka_unit_test(test_descriptors),   cmocka_unit_test(test_exceptions),
        cmocka_unit_test(test_selectors),     cmocka_unit_test(test_low_coded),
        cmocka_unit_test(test_planes),        cmocka_unit_test(test_methods),
    };
    return cmocka_run_group_tests_name("validator", tests, NULL, NULL);
}
