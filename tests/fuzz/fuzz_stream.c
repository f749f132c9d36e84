/*
 * Streams, one kernel against the other: valid tables and shapes made of the input, then either its bytes
 * as the payload of a stream to decode (damaged, as good as always), or as elements to encode, decode and
 * compare; or as those of two streams, to encode at once and one by one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/frame.h"
#include "codec/table.h"

#define MAX_KERNELS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* docs/format.md section 6 */
static const tp_shape shapes[] = {
    {.T = 16, .R = 7, .low = 0, .c = 1, .rotated = true},
    {.T = 16, .R = 8, .low = 0, .c = 1, .rotated = true},
    {.T = 16, .R = 6, .low = 0, .c = 1, .rotated = true},
    {.T = 16, .R = 8, .low = 0, .c = 2, .rotated = true},
    {.T = 8, .R = 1, .low = 1, .c = 1, .rotated = true},
    {.T = 8, .R = 2, .low = 1, .c = 1, .rotated = true},
    {.T = 16, .R = 7, .low = 2, .c = 1, .rotated = true},
    {.T = 16, .R = 8, .low = 2, .c = 1, .rotated = true},
    {.T = 16, .R = 6, .low = 2, .c = 1, .rotated = true},
    {.T = 16, .R = 8, .low = 2, .c = 2, .rotated = true},
    {.T = 16, .R = 4, .low = 6, .c = 1, .rotated = true},
    {.T = 16, .R = 5, .low = 6, .c = 1, .rotated = true},
    {.T = 8, .R = 2, .low = 0, .c = 1, .rotated = true},
    {.T = 8, .R = 3, .low = 0, .c = 1, .rotated = true},
    {.T = 8, .R = 1, .low = 0, .c = 1, .rotated = true},
    {.T = 8, .R = 1, .low = 0, .c = 1, .rotated = false},
    {.T = 8, .R = 2, .low = 0, .c = 1, .rotated = false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, TABLES = 4 };

static const tp_kernels *kernels[MAX_KERNELS];
static size_t kernel_count;
static uint8_t *scratch;
static tp_w32_table *tables;
static tp_w32_encode_table *encode_tables;
static tp_wide_table *wide;
static tp_wide_encode_table wide_encode;

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void *exact(size_t size)
{
    void *p = malloc(size ? size : 1);
    require(p != NULL, "no memory");
    return p;
}

static void *aligned(size_t size)
{
    void *p = aligned_alloc(64, (size + 63) / 64 * 64);
    require(p != NULL, "no memory");
    return p;
}

static void start(void)
{
    for (const char *const *name = tp_kernel_names(); *name && kernel_count < MAX_KERNELS; name++) {
        bool available;
        const tp_kernels *k = tp_kernels_find(*name, &available);
        if (k && available) kernels[kernel_count++] = k;
    }
    scratch = aligned(TP_ENCODE_SCRATCH);
    tables = aligned(TABLES * sizeof *tables);
    encode_tables = aligned(TABLES * sizeof *encode_tables);
    wide = aligned(sizeof *wide);
}

/* The input, byte by byte; noise when it is used up. */
typedef struct bytes {
    const uint8_t *data;
    size_t size;
    uint64_t noise;
} bytes;

static uint8_t next(bytes *b)
{
    if (b->size) {
        b->size--;
        return *b->data++;
    }
    b->noise = b->noise * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(b->noise >> 56);
}

static uint32_t next32(bytes *b)
{
    uint32_t v = next(b);
    for (int i = 1; i < 4; i++) v = v << 8 | next(b);
    return v;
}

/* count frequencies of 1 or more that sum to scale */
static void make_frequencies(bytes *b, uint32_t count, uint32_t scale, uint16_t *F)
{
    uint32_t left = scale;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t later = count - 1 - i;
        uint32_t f = later ? 1 + (uint32_t)next(b) * next(b) * scale / 65025 : left;
        if (f > left - later) f = left - later;
        F[i] = (uint16_t)f;
        left -= f;
    }
}

static void make_symbol_record(bytes *b, const tp_shape *shape, tp_symbol_record *record)
{
    const uint32_t alphabet = 1u << (shape->T - shape->R) * shape->c, limit = 64u * shape->c;
    uint32_t count = 2 + next(b) % (limit - 1), symbol = 0, n = 0;
    if (count > alphabet) count = alphabet;
    for (; n < count; n++) { /* ascending, with room for those that follow */
        const uint32_t room = alphabet - (count - n) - symbol, step = room ? next32(b) % (room / 4 + 1) : 0;
        symbol += step;
        record->symbol[n] = (uint16_t)symbol++;
    }
    record->count = count;
    make_frequencies(b, count, 1024, record->F);
}

static void make_tables(bytes *b, const tp_shape *shape, unsigned selector_bits)
{
    for (unsigned t = 0; t < 1u << selector_bits; t++) {
        tp_symbol_record record;
        uint8_t stored[512];
        make_symbol_record(b, shape, &record);
        tp_symbol_record_store(&record, shape->c == 2, stored);
        tp_w32_table_init(stored, shape->c == 2, &tables[t]);
        tp_w32_encode_table_init(&record, 1u << (shape->T - shape->R) * shape->c, &encode_tables[t]);
    }
}

static void decode_w32(const tp_shape *shape, const uint8_t *payload, size_t size, uint32_t n,
                       bool with_low, unsigned selector_bits, uint32_t nw, uint32_t nx,
                       const uint8_t *expected)
{
    const size_t raw_size = n * tp_shape_element(shape);
    const uint8_t *words = payload + tp_stream_words_at(shape, n, with_low);
    const size_t groups = (n + 1023) / 1024, low_size = groups * 1024 * shape->low;
    uint8_t *low = NULL, *first = NULL;
    bool good = false;
    if (!with_low && shape->low) { /* apart: of whole groups, with slack as a payload */
        low = exact(low_size + TP_SLACK);
        memset(low, 0x33, low_size + TP_SLACK);
        const size_t element = tp_shape_element(shape), width = shape->low == 1 ? 1 : 2;
        for (size_t i = 0; expected && i < n; i++)
            for (size_t k = 0; k < shape->low; k++)
                low[(k / width * groups * 1024 + i) * width + k % width] = expected[i * element + k];
    }
    for (size_t k = 0; k < kernel_count; k++) {
        /* two jobs of the same stream, so that they run side by side */
        uint8_t *dst[2] = {exact(raw_size), exact(raw_size)};
        tp_w32_job jobs[2];
        for (int i = 0; i < 2; i++)
            jobs[i] =
                (tp_w32_job){.payload = payload,
                             .low = low          ? low
                                    : shape->low ? payload + tp_stream_words_at(shape, n, false)
                                                 : NULL,
                             .words = words,
                             .table = tables,
                             .dst = dst[i],
                             .n = n,
                             .nw = nw,
                             .nx = nx,
                             .selectors = selector_bits ? words + tp_align(2 * (uint64_t)nw, 4) : NULL,
                             .selector_bits = (uint8_t)selector_bits};
        kernels[k]->w32_decode(shape, jobs, 2);
        require(jobs[0].good == jobs[1].good, "two equal jobs come out differently");
        if (k == 0) {
            good = jobs[0].good;
            first = exact(raw_size);
            memcpy(first, dst[0], raw_size);
        }
        require(jobs[0].good == good, "kernels disagree");
        require(!good || (!memcmp(dst[0], first, raw_size) && !memcmp(dst[1], first, raw_size)),
                "kernels decode differently");
        free(dst[0]);
        free(dst[1]);
    }
    require(!expected || (good && !memcmp(first, expected, raw_size)),
            "a stream does not decode to what was encoded");
    free(first);
    free(low);
    (void)size;
}

static void fuzz_decode(bytes *b, const tp_shape *shape, uint32_t n, bool with_low, unsigned selector_bits)
{
    const uint32_t symbols = (n + 1023) / 1024 * 1024 / shape->c;
    const uint32_t nw = next32(b) % (symbols + 1), nx = next(b) % 4 ? 0 : next(b) % 9;
    const uint32_t positions = (n + shape->c - 1) / shape->c, bits = shape->c == 2 ? 16 : 18;
    uint32_t valid_nx = nx < positions ? nx : positions;
    const size_t size =
        (size_t)tp_align(tp_stream_used(shape, n, with_low, nw, valid_nx, selector_bits), 128);
    uint8_t *payload = exact(size + TP_SLACK);
    memset(payload + size, 0xff, TP_SLACK);
    for (size_t i = 0; i < size; i++) payload[i] = next(b);
    for (int lane = 0; lane < 32 && next(b) % 8; lane++) { /* mostly states in range */
        const uint32_t x = tp_load32(payload + 4 * lane);
        tp_store32(payload + 4 * lane, 1024 + x % ((1u << 26) - 1024));
    }
    uint8_t *exceptions = payload + tp_stream_used(shape, n, with_low, nw, 0, selector_bits);
    for (uint32_t i = 0, position = 0; i < valid_nx; i++) { /* the validator lets no others pass */
        const uint32_t room = positions - (valid_nx - i) - position;
        position += room ? next32(b) % (room / 4 + 1) : 0;
        const uint32_t symbol = next32(b) & ((1u << (shape->T - shape->R) * shape->c) - 1);
        tp_store32(exceptions + 4 * (size_t)i, position++ | symbol << bits);
    }
    decode_w32(shape, payload, size, n, with_low, selector_bits, nw, valid_nx, NULL);
    free(payload);
}

static void fuzz_encode(bytes *b, const tp_shape *shape, uint32_t n, bool with_low, unsigned selector_bits)
{
    const size_t raw_size = n * tp_shape_element(shape),
                 capacity = (size_t)tp_align(raw_size * 4 + 65536, 128);
    uint8_t *src = exact(raw_size), *payload = exact(capacity), *first = exact(capacity + TP_SLACK),
            selectors[16];
    tp_w32_encode_job made = {0};
    for (size_t i = 0; i < raw_size; i++) src[i] = next(b);
    for (size_t g = 0; g < sizeof selectors; g++)
        selectors[g] = (uint8_t)(next(b) & ((1u << selector_bits) - 1));
    for (size_t k = 0; k < kernel_count; k++) {
        memset(payload, (int)k, capacity);
        tp_w32_encode_job job = {.src = src,
                                 .n = n,
                                 .with_low = with_low,
                                 .table = encode_tables,
                                 .selectors = selector_bits ? selectors : NULL,
                                 .selector_bits = (uint8_t)selector_bits,
                                 .payload = payload,
                                 .capacity = capacity,
                                 .scratch = scratch};
        kernels[k]->w32_encode(shape, &job);
        require(job.size != 0 && job.size <= capacity, "a stream does not fit");
        if (k == 0) {
            made = job;
            memcpy(first, payload, job.size);
            memset(first + job.size, 0xff, TP_SLACK);
        }
        require(job.size == made.size && job.nw == made.nw && job.nx == made.nx &&
                    !memcmp(payload, first, job.size),
                "kernels encode differently");
        /* In just so much room it must fit, and in less it must not. */
        uint8_t *tight = exact(made.size);
        job.payload = tight;
        job.capacity = made.size;
        kernels[k]->w32_encode(shape, &job);
        require(job.size == made.size && !memcmp(tight, first, job.size), "a stream differs in tight room");
        free(tight);
        tight = exact(made.size - 128);
        job.payload = tight;
        job.capacity = made.size - 128;
        kernels[k]->w32_encode(shape, &job);
        require(job.size == 0, "a stream beyond its room");
        free(tight);
    }
    decode_w32(shape, first, made.size, n, with_low, selector_bits, made.nw, made.nx, src);
    free(src);
    free(payload);
    free(first);
}

/* Two streams at once, of a table each, against the same one by one: in room enough for both, in room for
 * just both, and in less, down to none. */
static void fuzz_encode_two(bytes *b, const tp_shape *shape, uint32_t n, bool with_low,
                            unsigned selector_bits)
{
    const size_t element = tp_shape_element(shape);
    const uint32_t counts[2] = {n, next(b) % 2 ? 1 + next32(b) % 5000 : n};
    const size_t raw_size[2] = {counts[0] * element, counts[1] * element};
    const size_t capacity = (size_t)tp_align((raw_size[0] + raw_size[1]) * 4 + 65536, 128);
    const bool tables_apart = selector_bits == 1 && next(b) % 2;
    uint8_t *src = exact(raw_size[0] + raw_size[1]), *expected = exact(capacity), selectors[2][16];
    for (size_t i = 0; i < raw_size[0] + raw_size[1]; i++) src[i] = next(b);
    for (size_t g = 0; g < sizeof selectors; g++)
        selectors[g / 16][g % 16] = (uint8_t)(next(b) & ((1u << selector_bits) - 1));
    tp_w32_encode_job single[2], pair[2];
    uint8_t *payload = expected;
    for (int i = 0; i < 2; i++) {
        const bool selected = selector_bits && !tables_apart;
        single[i] = (tp_w32_encode_job){.src = src + (i ? raw_size[0] : 0),
                                        .n = counts[i],
                                        .with_low = with_low,
                                        .table = encode_tables + (tables_apart ? i : 0),
                                        .selectors = selected ? selectors[i] : NULL,
                                        .selector_bits = (uint8_t)(selected ? selector_bits : 0),
                                        .payload = payload,
                                        .capacity = capacity - (size_t)(payload - expected),
                                        .scratch = scratch};
        kernels[0]->w32_encode(shape, &single[i]);
        require(single[i].size != 0, "a stream does not fit");
        payload += single[i].size;
    }
    const size_t first = single[0].size, both = first + single[1].size;
    const size_t rooms[] = {capacity, both, both - 128, first, first - 128, tp_align(next32(b) % both, 128),
                            0};
    for (size_t k = 0; k < kernel_count; k++)
        for (size_t r = 0; kernels[k]->w32_encode_two && r < sizeof rooms / sizeof *rooms; r++) {
            uint8_t *room = exact(rooms[r]);
            memcpy(pair, single, sizeof pair);
            pair[0].payload = room;
            pair[0].capacity = rooms[r];
            pair[1].payload = pair[1].scratch = NULL;
            pair[1].capacity = 0;
            kernels[k]->w32_encode_two(shape, &pair[0], &pair[1]);
            size_t at = 0;
            for (int i = 0; i < 2; i++) {
                const bool fits = at + single[i].size <= rooms[r] && (i == 0 || pair[0].size);
                require(pair[i].size == (fits ? single[i].size : 0), "one of two streams has another size");
                if (!fits) continue;
                require(pair[i].nw == single[i].nw && pair[i].nx == single[i].nx &&
                            pair[i].payload == room + at &&
                            !memcmp(room + at, expected + at, single[i].size),
                        "two streams at once differ from one by one");
                at += single[i].size;
            }
            free(room);
        }
    free(src);
    free(expected);
}

static void fuzz_wide(bytes *b, uint32_t n, bool encode)
{
    uint16_t F[256] = {0}, f[256];
    uint8_t record[512], symbols[256];
    uint32_t count = 2 + next(b) % 255, at = next(b);
    for (uint32_t i = 0; i < count; i++)
        symbols[i] = (uint8_t)(at + i * 101); /* 101 is odd: all different */
    make_frequencies(b, count, 4096, f);
    for (uint32_t i = 0; i < count; i++) F[symbols[i]] = f[i];
    tp_wide_record_store(F, record);
    tp_wide_table_init(record, wide);
    tp_wide_encode_table_init(F, &wide_encode);

    uint8_t *src = exact(n);
    const size_t capacity = 256 + 4 * ((size_t)n + 1023) / 1024 * 1024;
    uint8_t *payload = exact(capacity + TP_SLACK);
    uint32_t nw = next32(b) % ((n + 1023) / 1024 * 1024 + 1);
    for (uint32_t i = 0; i < n; i++) src[i] = symbols[next(b) % count];
    if (encode) {
        size_t first_size = 0;
        for (size_t k = 0; k < kernel_count; k++) {
            uint8_t *made = exact(capacity);
            uint32_t its_nw;
            const size_t its_size =
                kernels[k]->wide_encode(src, n, &wide_encode, made, capacity / 128 * 128, scratch, &its_nw);
            require(its_size != 0, "a stream does not fit");
            if (k == 0) {
                first_size = its_size;
                nw = its_nw;
                memcpy(payload, made, its_size);
                memset(payload + its_size, 0xff, capacity + TP_SLACK - its_size);
            }
            require(its_size == first_size && its_nw == nw && !memcmp(made, payload, its_size),
                    "kernels encode differently");
            require(kernels[k]->wide_encode(src, n, &wide_encode, made, its_size - 128, scratch, &its_nw) ==
                        0,
                    "a stream beyond its room");
            free(made);
        }
    } else {
        for (size_t i = 0; i < capacity + TP_SLACK; i++) payload[i] = next(b);
        for (int lane = 0; lane < 32 && next(b) % 8; lane++) {
            const uint32_t x = tp_load32(payload + 4 * lane);
            tp_store32(payload + 4 * lane, 4096 + x % ((1u << 28) - 4096));
        }
    }
    /* exactly the stream and its slack */
    const size_t size = (size_t)tp_align(128 + 2 * (uint64_t)nw, 128) + TP_SLACK;
    uint8_t *cut = exact(size), *first = NULL;
    memcpy(cut, payload, size < capacity + TP_SLACK ? size : capacity + TP_SLACK);
    bool good = false;
    for (size_t k = 0; k < kernel_count; k++) {
        uint8_t *dst = exact(n);
        tp_wide_job job = {.payload = cut, .table = wide, .dst = dst, .n = n, .nw = nw};
        kernels[k]->wide_decode(&job, 1);
        if (k == 0) {
            good = job.good;
            first = exact(n);
            memcpy(first, dst, n);
        }
        require(job.good == good, "kernels disagree");
        require(!good || !memcmp(dst, first, n), "kernels decode differently");
        free(dst);
    }
    require(!encode || (good && !memcmp(first, src, n)), "a stream does not decode to what was encoded");
    free(first);
    free(cut);
    free(payload);
    free(src);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!kernel_count) start();
    if (size < 8) return 0;
    bytes b = {.data = data, .size = size, .noise = size};
    const uint8_t what = next(&b), flags = next(&b);
    const uint32_t n = 1 + next32(&b) % 5000;
    if (what % (SHAPES + 1) == SHAPES) {
        fuzz_wide(&b, n, flags & 1);
        return 0;
    }
    const tp_shape *shape = &shapes[what % (SHAPES + 1)];
    const bool with_low = shape->low == 0 || (flags & 2);
    const unsigned selector_bits = (flags >> 2) % 3;
    make_tables(&b, shape, selector_bits);
    if ((flags & 0x81) == 0x81)
        fuzz_encode_two(&b, shape, n, with_low, selector_bits);
    else if (flags & 1)
        fuzz_encode(&b, shape, n, with_low, selector_bits);
    else
        fuzz_decode(&b, shape, n, with_low, selector_bits);
    return 0;
}
