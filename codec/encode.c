/*
 * Encoding of frames: which codec, mode and table, decided in integers so that every machine makes the same
 * bytes. What is chosen when: docs/architecture.md, "What the encoder chooses".
 */
#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>

#include "codec/bytes.h"
#include "codec/choose.h"
#include "codec/class.h"
#include "codec/frame.h"
#include "codec/hash.h"
#include "codec/table.h"

#define MAX_CHUNKS TP_MAX_CHUNKS
#define MAX_PLANES 8  /* byte planes of an element: low planes, or codec planes */
#define SAMPLE_STEP 4 /* every fourth group is counted */
#define SAMPLE_FROM 32768u /* elements; below, all are counted */
#define SYMBOL_BIT_PAYS 4096 /* one symbol bit more must save this part of the bytes */
#define LZ4_SAMPLE 4096u
#define LZ4_SAMPLES 4u

_Static_assert(TP_FRAME_MAX_RAW >> TP_CHUNK_LOG2 == MAX_CHUNKS, "chunks of a frame");

/* What one part (a chunk's elements or tops, or one byte plane) becomes. */
typedef struct part_plan {
    uint8_t mode, table;
    bool try_lz4;        /* a sample shrinks: try it, and fall back to mode */
    uint64_t value;      /* of a constant */
    uint64_t estimate;   /* bytes */
} part_plan;

typedef struct wide_pool {
    uint32_t count;
    uint16_t F[TP_MAX_TABLES][256];
    tp_wide_encode_table table[TP_MAX_TABLES];
} wide_pool;

struct tp_encoder {
    const tp_kernels *kernels;
    tp_log2 log2;
    /* Counts by chunk and class of groups: 2^10 symbols in 16 chunks, 2^12 in 4, 2^7 in 32, in 4 classes each; or
     * those of one chunk of pairs, 2^16. */
    uint32_t counts[65536];
    uint32_t coarse_counts[32768]; /* the same with one symbol bit less */
    tp_choice choice, coarse_choice;
    uint32_t means[TP_MAX_GROUPS];
    uint8_t selectors[TP_MAX_GROUPS];
    tp_w32_encode_table *table; /* TP_MAX_TABLES of them, for choice.record */
    wide_pool wide;
    part_plan plan[MAX_CHUNKS][1 + MAX_PLANES];
    uint8_t *scratch; /* TP_ENCODE_SCRATCH, for the stream kernels */
    uint8_t *plane;   /* a chunk's byte planes: 2^17 elements of up to 8 bytes */
    uint8_t *block;   /* an lz4 block tried, as large */
    uint8_t *other;   /* a second frame, for level max */
    void *lz4hc;
};

#define PLANE_BYTES ((size_t)8 << TP_CHUNK_LOG2)

tp_status tp_encoder_create(tp_encoder **encoder)
{
    tp_encoder *e = aligned_alloc(64, (sizeof *e + 63) / 64 * 64);
    if (!e) return TP_NO_MEMORY;
    memset(e, 0, sizeof *e);
    e->kernels = tp_kernels_get();
    tp_log2_init(&e->log2);
    e->table = aligned_alloc(64, TP_MAX_TABLES * sizeof *e->table);
    e->scratch = aligned_alloc(64, (TP_ENCODE_SCRATCH + 63) / 64 * 64);
    e->plane = malloc(PLANE_BYTES);
    e->block = malloc(PLANE_BYTES);
    e->other = malloc(TP_FRAME_MAX_STORED);
    e->lz4hc = malloc((size_t)LZ4_sizeofStateHC());
    if (!e->table || !e->scratch || !e->plane || !e->block || !e->other || !e->lz4hc) {
        tp_encoder_destroy(e);
        return TP_NO_MEMORY;
    }
    *encoder = e;
    return TP_OK;
}

void tp_encoder_destroy(tp_encoder *encoder)
{
    if (!encoder) return;
    free(encoder->table);
    free(encoder->scratch);
    free(encoder->plane);
    free(encoder->block);
    free(encoder->other);
    free(encoder->lz4hc);
    free(encoder);
}

void tp_encoder_use(tp_encoder *encoder, const tp_kernels *kernels) { encoder->kernels = kernels; }

size_t tp_encode_bound(size_t raw_size) { return TP_FRAME_HEADER + (size_t)tp_align(raw_size, 128); }

/* One frame being made. */
typedef struct encode_state {
    tp_encoder *encoder;
    const tp_kernels *kernels;
    tp_class cls;
    const tp_class_traits *traits;
    tp_level level;
    bool lz4; /* typed parts may become lz4 blocks */
    const uint8_t *raw;
    size_t raw_size;
    uint8_t *frame; /* room for tp_encode_bound(raw_size) */
} encode_state;

static size_t chunk_bytes(const encode_state *s, uint32_t index, size_t chunk)
{
    const size_t left = s->raw_size - index * chunk;
    return left < chunk ? left : chunk;
}

/* Saves at least 1 % of `whole` bytes. */
static bool pays(uint64_t bytes, uint64_t whole) { return bytes * 100 <= whole * 99; }

/* An lz4 block of at most `capacity` bytes, or 0. Level max searches harder where there is something to find. */
static size_t lz4_block(const encode_state *s, const uint8_t *src, size_t size, uint8_t *dst, size_t capacity)
{
    void *state = s->encoder->lz4hc;
    const char *from = (const char *)src;
    const int room = (int)capacity;
    int made = LZ4_compress_fast_extState(state, from, (char *)dst, (int)size, room, 1);
    if (s->level == TP_LEVEL_MAX && (s->cls == TP_CLASS_BYTES || (made > 0 && pays((uint64_t)made, size))))
        made = LZ4_compress_HC_extStateHC(state, from, (char *)dst, (int)size, room, LZ4HC_CLEVEL_DEFAULT);
    return made > 0 ? (size_t)made : 0;
}

/*
 * Whether lz4 may make less than `bytes` of a byte plane (element 1: of size bytes as they are), judged by a few
 * samples of it; level max: always worth a try.
 */
static bool lz4_may_pay(const encode_state *s, const uint8_t *src, size_t size, unsigned element, unsigned index,
                        uint64_t bytes)
{
    const size_t n = (size + element - 1 - index) / element;
    if (!s->lz4) return false;
    if (s->level == TP_LEVEL_MAX || n <= LZ4_SAMPLE * LZ4_SAMPLES) return true;
    size_t made = 0;
    for (size_t i = 0; i < LZ4_SAMPLES; i++) {
        uint8_t sample[LZ4_SAMPLE];
        const size_t at = (n - LZ4_SAMPLE) / (LZ4_SAMPLES - 1) * i * element, left = size - at;
        s->kernels->plane_get(src + at, left < LZ4_SAMPLE * element ? left : LZ4_SAMPLE * element, element, index,
                              sample);
        const size_t m = lz4_block(s, sample, LZ4_SAMPLE, s->encoder->block, LZ4_SAMPLE);
        made += m ? m : LZ4_SAMPLE;
    }
    return pays((uint64_t)made * n, bytes * (LZ4_SAMPLE * LZ4_SAMPLES));
}

static uint64_t value_of(const uint8_t *p, size_t width)
{
    uint64_t v = 0;
    memcpy(&v, p, width);
    return v;
}

/* All elements of size bytes equal the first (width bytes). */
static bool is_constant(const uint8_t *p, size_t size, size_t width)
{
    return memcmp(p, p + width, size - width) == 0;
}

/* ------------------------------------------------------------------------------------------- tables */

/* Cost of a table record in the units of table.h. */
#define RECORD_COST(bytes) ((uint64_t)(bytes)*8 * 65536)

/* The wide table of the pool that the counts cost least under, or a new one if that pays and there is room. */
static uint8_t choose_wide_table(tp_encoder *e, const uint32_t counts[256], uint64_t *cost)
{
    wide_pool *pool = &e->wide;
    uint64_t best_cost = UINT64_MAX;
    uint32_t best = 0;
    for (uint32_t i = 0; i < pool->count; i++) {
        const uint64_t c = tp_wide_record_cost(&e->log2, counts, pool->F[i]);
        if (c < best_cost) best_cost = c, best = i;
    }
    if (pool->count < TP_MAX_TABLES) {
        uint16_t *own = pool->F[pool->count];
        const uint64_t c = tp_wide_record_build(&e->log2, counts, own);
        if (best_cost > c + c / 1000 && best_cost - c > RECORD_COST(512)) {
            best = pool->count++;
            best_cost = c;
            tp_wide_encode_table_init(own, &pool->table[best]);
        }
    }
    *cost = best_cost;
    return (uint8_t)best;
}

/* --------------------------------------------------------------------------------------------- plans */

static uint64_t stream_bytes(uint64_t cost, uint64_t counted, uint64_t symbols, uint64_t fixed)
{
    /* cost < 2^17 symbols * 64 bit * 2^16 and symbols <= 2^17: no overflow */
    return fixed + (counted ? cost / 8 * symbols / counted >> 16 : 0);
}

static uint32_t count_step(const encode_state *s, uint32_t n)
{
    return s->level == TP_LEVEL_MAX || n < SAMPLE_FROM ? 1 : SAMPLE_STEP;
}

/* A byte plane: byte `index` of every `element` bytes at src. Extracted only where a sample shows skew. */
static void plan_plane(const encode_state *s, const uint8_t *src, size_t size, unsigned element, unsigned index,
                       part_plan *plan)
{
    tp_encoder *e = s->encoder;
    const size_t n = (size + element - 1 - index) / element;
    const uint32_t step = count_step(s, (uint32_t)n);
    *plan = (part_plan){.mode = TP_MODE_RAW, .estimate = n};
    if (n == 0) return;

    /* First a sample, straight from the elements: most planes of trained weights are noise. */
    uint32_t counts[256] = {0}, counted = 0;
    uint8_t group[TP_GROUP];
    for (size_t first = 0; first < n; first += (size_t)step * TP_GROUP) {
        const size_t m = n - first < TP_GROUP ? n - first : TP_GROUP;
        const size_t at = first * element, left = size - at;
        s->kernels->plane_get(src + at, left < m * element ? left : m * element, element, index, group);
        s->kernels->count_bytes(group, m, 1, counts);
        counted += (uint32_t)m;
    }
    uint16_t F[256];
    uint64_t cost = tp_wide_record_build(&e->log2, counts, F);
    plan->try_lz4 = lz4_may_pay(s, src, size, element, index, n);
    if (!pays(stream_bytes(cost, counted, n, 640), n)) return;

    s->kernels->plane_get(src, size, element, index, e->plane);
    if (is_constant(e->plane, n, 1)) {
        *plan = (part_plan){.mode = TP_MODE_CONSTANT, .value = e->plane[0]};
        return;
    }
    /* A wide table must hold every byte that occurs, so now all are counted. */
    const uint32_t tables = e->wide.count;
    memset(counts, 0, sizeof counts);
    s->kernels->count_bytes(e->plane, n, 1, counts);
    const uint8_t table = choose_wide_table(e, counts, &cost);
    const uint64_t estimate = cost == UINT64_MAX ? cost : stream_bytes(cost, n, n, 128);
    if (estimate < n && pays(estimate, n)) {
        plan->mode = TP_MODE_WIDE;
        plan->table = table;
        plan->estimate = estimate;
    } else {
        e->wide.count = tables; /* not used: not stored */
    }
}

static bool tops_are_constant(const tp_shape *shape, const uint8_t *src, uint32_t n, size_t element)
{
    const size_t top = shape->T / 8u;
    size_t i = 1;
    while (i < n && !memcmp(src + shape->low, src + i * element + shape->low, top)) i++;
    return i == n;
}

/* Means of the symbols of all groups (times 1024) and their classes, as first selectors. */
static void classify(const encode_state *s, const tp_shape *shape, uint32_t n, uint32_t step)
{
    tp_encoder *e = s->encoder;
    const uint32_t groups = (n + TP_GROUP - 1) / TP_GROUP, last = n % TP_GROUP;
    s->kernels->group_sums(shape, s->raw, n, e->means);
    if (last) e->means[groups - 1] = (uint32_t)((uint64_t)e->means[groups - 1] * TP_GROUP / last);
    tp_classify_groups(e->means, groups, step, TP_MAX_CLASSES, e->selectors);
}

/* Counts chunk i: by class of its groups if there are classes. Every step-th group, from the first. */
static void count_chunk(const encode_state *s, const tp_shape *shape, uint32_t i, const uint8_t *src, uint32_t n)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = &e->choice;
    const size_t element = s->traits->element, group_bytes = TP_GROUP * element;
    if (shape->c == 2) {
        memset(e->counts, 0, c->alphabet * sizeof *e->counts);
        s->kernels->count_symbols(shape, src, n, c->step, e->counts);
        for (uint32_t k = 0; k < c->alphabet; k++) c->total[i] += e->counts[k];
        tp_choose_next_table(&e->log2, c, i);
        return;
    }
    if (c->classes == 1) {
        s->kernels->count_symbols(shape, src, n, c->step, e->counts + (size_t)i * c->alphabet);
    } else {
        const uint8_t *class = e->selectors + ((size_t)i << TP_CHUNK_LOG2) / TP_GROUP;
        for (uint32_t g = 0; g * TP_GROUP < n; g += c->step) {
            const uint32_t left = n - g * TP_GROUP;
            s->kernels->count_symbols(shape, src + g * group_bytes, left < TP_GROUP ? left : TP_GROUP, 1,
                                      e->counts + ((size_t)i * c->classes + class[g]) * c->alphabet);
        }
    }
    for (uint32_t first = 0; first < n; first += c->step * TP_GROUP)
        c->total[i] += n - first < TP_GROUP ? n - first : TP_GROUP;
}

/*
 * The tables of a frame, from its counts, for shape and, if `coarser`, for one symbol bit less; *shape becomes the
 * better. Fewer symbols decode faster and are preferred where they cost less than 0.02 % of the frame.
 */
static void choose_shape(const encode_state *s, tp_shape *shape, bool coarser)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = &e->choice;
    if (coarser) { /* one raw bit more, for each element counted */
        uint64_t counted = 0;
        const size_t symbols = (size_t)c->chunks * c->classes * c->alphabet;
        for (size_t i = 0; i < symbols / 2; i++) e->coarse_counts[i] = e->counts[2 * i] + e->counts[2 * i + 1];
        e->coarse_choice = (tp_choice){.counts = e->coarse_counts, .chunks = c->chunks, .classes = c->classes,
                                       .alphabet = c->alphabet / 2, .limit = c->limit, .step = c->step,
                                       .groups = c->groups};
        memcpy(e->coarse_choice.total, c->total, sizeof c->total);
        for (uint32_t i = 0; i < c->chunks; i++) counted += c->total[i];
        const uint64_t fine = tp_choose_tables(&e->log2, c);
        const uint64_t coarse = tp_choose_tables(&e->log2, &e->coarse_choice) + counted * 65536;
        if (coarse <= fine + counted * 8 * s->traits->element * 65536 / SYMBOL_BIT_PAYS) {
            *c = e->coarse_choice;
            shape->R++;
        }
    } else if (shape->c == 1) {
        tp_choose_tables(&e->log2, c);
    }
    if (c->selector_bits == 1) /* two tables: classes 0 and 1, 2 and 3 */
        for (uint32_t g = 0; g < c->groups; g++) e->selectors[g] >>= 1;
    for (uint32_t t = 0; t < c->tables; t++)
        tp_w32_encode_table_init(&c->record[t], 1u << (shape->T - shape->R) * shape->c, &e->table[t]);
}

/*
 * The tables of a frame and what becomes of each chunk's elements (or, low_coded, their top parts). With
 * `coarser`, *shape may come back with one symbol bit less.
 */
static void plan_tops(const encode_state *s, tp_shape *shape, bool coarser, uint32_t chunks, bool low_coded)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = &e->choice;
    const size_t element = s->traits->element, top = shape->T / 8u, chunk = element << TP_CHUNK_LOG2;
    const uint32_t elements = (uint32_t)(s->raw_size / element);
    const bool pairs = shape->c == 2;
    c->counts = e->counts;
    c->chunks = chunks;
    c->tables = 0;
    c->selector_bits = 0;
    c->classes = pairs || s->level == TP_LEVEL_FAST ? 1 : TP_MAX_CLASSES;
    c->alphabet = 1u << (shape->T - shape->R) * shape->c;
    c->limit = pairs ? 128 : 64;
    c->step = count_step(s, elements);
    c->groups = (elements + TP_GROUP - 1) / TP_GROUP;
    memset(c->total, 0, sizeof c->total);
    if (!pairs) memset(e->counts, 0, (size_t)c->chunks * c->classes * c->alphabet * sizeof *e->counts);
    if (c->classes > 1) classify(s, shape, elements, c->step);

    for (uint32_t i = 0; i < chunks; i++) {
        const uint8_t *src = s->raw + i * chunk;
        const size_t bytes = chunk_bytes(s, i, chunk);
        const uint32_t n = (uint32_t)(bytes / element);
        part_plan *plan = &e->plan[i][0];
        *plan = (part_plan){.mode = TP_MODE_RAW};
        if (low_coded ? tops_are_constant(shape, src, n, element) : is_constant(src, bytes, element)) {
            plan->mode = TP_MODE_CONSTANT;
            plan->value = low_coded ? value_of(src + shape->low, top) : value_of(src, element);
        } else {
            count_chunk(s, shape, i, src, n);
        }
    }
    choose_shape(s, shape, coarser);

    for (uint32_t i = 0; i < chunks; i++) {
        const uint8_t *src = s->raw + i * chunk;
        const size_t bytes = chunk_bytes(s, i, chunk);
        const uint32_t n = (uint32_t)(bytes / element), symbols = pairs ? n / 2 : n;
        const size_t whole = low_coded ? n * top : bytes;
        part_plan *plan = &e->plan[i][0];
        if (plan->mode == TP_MODE_CONSTANT) continue;
        plan->estimate = whole;
        if (c->total[i]) { /* a single element makes no pair */
            const uint64_t estimate = stream_bytes(c->cost[i], c->total[i], symbols,
                                                   tp_stream_words_at(shape, n, !low_coded) +
                                                       tp_selector_bytes(n, c->selector_bits));
            if (pays(estimate, whole))
                *plan = (part_plan){.mode = pairs ? TP_MODE_PAIRS : TP_MODE_W32, .table = c->table[i],
                                    .estimate = estimate};
        }
        /* The whole byte as a symbol: int8 always, fp8 at level max. */
        if (s->traits->wide_top && (s->cls == TP_CLASS_I8 || s->level == TP_LEVEL_MAX)) {
            uint32_t counts[256] = {0};
            uint64_t cost;
            const uint32_t tables = e->wide.count;
            s->kernels->count_bytes(src, n, 1, counts);
            const uint8_t table = choose_wide_table(e, counts, &cost);
            const uint64_t estimate = cost == UINT64_MAX ? cost : stream_bytes(cost, n, n, 128);
            if (estimate < plan->estimate && pays(estimate, whole))
                *plan = (part_plan){.mode = TP_MODE_WIDE, .table = table, .estimate = estimate};
            else
                e->wide.count = tables;
        }
        if (!low_coded) plan->try_lz4 = lz4_may_pay(s, src, whole, 1, 0, plan->estimate);
    }
}

/* -------------------------------------------------------------------------------------- writing parts */

typedef struct payload_writer {
    uint8_t *at;         /* where the next part starts */
    uint8_t *start, *end; /* of the room for payload; end - start is a multiple of 128 */
    uint8_t *descriptor; /* the next one */
    tp_method method;
} payload_writer;

static size_t room(const payload_writer *w) { return (size_t)(w->end - w->at); }

static void put_descriptor(payload_writer *w, uint64_t offset, uint32_t nw, uint32_t nx, uint32_t n, uint8_t table,
                           uint8_t mode, uint64_t hash)
{
    uint8_t *p = w->descriptor;
    tp_store64(p, offset);
    tp_store32(p + 8, nw);
    tp_store32(p + 12, nx);
    tp_store32(p + 16, n);
    p[20] = table;
    p[21] = mode;
    tp_store16(p + 22, 0);
    tp_store64(p + 24, hash);
    w->descriptor += TP_DESCRIPTOR_SIZE;
}

/* Appends a part of `size` bytes that lie at w->at already, padded to 128 bytes. */
static void end_part(payload_writer *w, size_t size, uint32_t nw, uint32_t nx, uint32_t n, uint8_t table,
                     uint8_t mode, uint64_t hash)
{
    put_descriptor(w, (uint64_t)(w->at - w->start), nw, nx, n, table, mode, hash);
    const size_t padded = (size_t)tp_align(size, 128);
    memset(w->at + size, 0, padded - size);
    w->at += padded;
}

/* An lz4 block of the part if it has room and is smaller than what else it would be. */
static bool put_lz4(const encode_state *s, payload_writer *w, const uint8_t *src, size_t size, uint64_t other,
                    uint32_t n, tp_method method, uint64_t hash)
{
    size_t capacity = other < size ? (size_t)other : size - 1;
    if (capacity > room(w)) capacity = room(w);
    const size_t made = capacity ? lz4_block(s, src, size, w->at, capacity) : 0;
    if (!made || !pays(made, size) || made >= other) return false;
    end_part(w, made, (uint32_t)made, 0, n, 0, TP_MODE_LZ4, hash);
    if (w->method != TP_METHOD_RANS) w->method = method;
    return true;
}

static void put_constant(payload_writer *w, uint64_t value, uint32_t n, uint64_t hash)
{
    put_descriptor(w, value, 0, 0, n, 0, TP_MODE_CONSTANT, hash);
    if (w->method == TP_METHOD_RAW) w->method = TP_METHOD_CONSTANT;
}

/* false: no room, so the frame is stored raw */
static bool put_raw(payload_writer *w, const uint8_t *src, size_t size, uint32_t n, uint64_t hash)
{
    if (tp_align(size, 128) > room(w)) return false;
    memcpy(w->at, src, size);
    end_part(w, size, 0, 0, n, 0, TP_MODE_RAW, hash);
    return true;
}

static bool put_wide(const encode_state *s, payload_writer *w, const uint8_t *src, uint32_t n, uint8_t table,
                     uint64_t hash)
{
    uint32_t nw;
    const size_t size = s->kernels->wide_encode(src, n, &s->encoder->wide.table[table], w->at, room(w),
                                                s->encoder->scratch, &nw);
    if (!size || !pays(size, n)) return false;
    end_part(w, size, nw, 0, n, table, TP_MODE_WIDE, hash);
    w->method = TP_METHOD_RANS;
    return true;
}

/* A byte plane, extracted to the encoder's plane buffer. */
static bool put_plane(const encode_state *s, payload_writer *w, const uint8_t *src, size_t size, unsigned element,
                      unsigned index, const part_plan *plan, tp_method lz4_method, uint64_t hash)
{
    uint8_t *plane = s->encoder->plane;
    const uint32_t n = (uint32_t)((size + element - 1 - index) / element);
    if (plan->mode == TP_MODE_CONSTANT) {
        put_constant(w, plan->value, n, hash);
        return true;
    }
    s->kernels->plane_get(src, size, element, index, plane);
    if (plan->try_lz4 && put_lz4(s, w, plane, n, plan->estimate, n, lz4_method, hash)) return true;
    if (plan->mode == TP_MODE_WIDE && put_wide(s, w, plane, n, plan->table, hash)) return true;
    return put_raw(w, plane, n, n, hash);
}

static bool put_top(const encode_state *s, payload_writer *w, const tp_shape *shape, const uint8_t *src, uint32_t n,
                    bool low_coded, const part_plan *plan, uint64_t hash)
{
    const size_t whole = (size_t)n * (low_coded ? shape->T / 8u : s->traits->element);
    if (plan->mode == TP_MODE_CONSTANT) {
        put_constant(w, plan->value, n, hash);
        return true;
    }
    if (plan->try_lz4 && put_lz4(s, w, src, whole, plan->estimate, n, TP_METHOD_LZ4, hash)) return true;
    if (plan->mode == TP_MODE_W32 || plan->mode == TP_MODE_PAIRS) {
        tp_w32_encode_job job = {.src = src, .n = n, .with_low = !low_coded, .table = &s->encoder->table[plan->table],
                                 .payload = w->at, .capacity = room(w), .scratch = s->encoder->scratch};
        if (s->encoder->choice.selector_bits) {
            const size_t element_index = (size_t)(src - s->raw) / s->traits->element;
            job.selectors = s->encoder->selectors + element_index / TP_GROUP;
            job.selector_bits = (uint8_t)s->encoder->choice.selector_bits;
        }
        s->kernels->w32_encode(shape, &job);
        if (job.size && pays(job.size, whole)) {
            end_part(w, job.size, job.nw, job.nx, n, plan->table, plan->mode, hash);
            w->method = TP_METHOD_RANS;
            return true;
        }
    }
    if (plan->mode == TP_MODE_WIDE && put_wide(s, w, src, n, plan->table, hash)) return true;
    if (!low_coded) return put_raw(w, src, whole, n, hash);
    const size_t top = shape->T / 8u;
    for (size_t i = 0; i < n; i++) memcpy(s->encoder->plane + i * top, src + i * s->traits->element + shape->low, top);
    return put_raw(w, s->encoder->plane, whole, n, hash);
}

/* -------------------------------------------------------------------------------------------- frames */

static void put_header(const encode_state *s, tp_frame_codec codec, size_t stored, uint32_t payload_size,
                       tp_method method)
{
    uint8_t *h = s->frame;
    memset(h, 0, TP_FRAME_HEADER);
    memcpy(h, "TPFR", 4);
    h[4] = (uint8_t)codec;
    h[5] = (uint8_t)s->cls;
    h[13] = (uint8_t)method;
    tp_store32(h + 16, (uint32_t)s->raw_size);
    tp_store32(h + 20, (uint32_t)stored);
    tp_store32(h + 28, payload_size);
}

/* The hashes over directory, raw bytes (by their chunks' hashes) and the whole frame, in this order. */
static void put_hashes(const encode_state *s, size_t payload_at, size_t stored, const uint64_t *chunk_hashes,
                       size_t chunks)
{
    uint8_t *h = s->frame;
    uint64_t hash[2], parts[1 + MAX_CHUNKS];
    parts[0] = s->raw_size;
    memcpy(parts + 1, chunk_hashes, chunks * sizeof *parts);
    s->kernels->hash128(parts, (1 + chunks) * sizeof *parts, hash);
    tp_store64(h + 32, s->kernels->hash64(h + TP_FRAME_HEADER, payload_at - TP_FRAME_HEADER));
    tp_store64(h + 112, hash[0]);
    tp_store64(h + 120, hash[1]);
    s->kernels->hash128(h, stored, hash); /* its own place is still zero */
    tp_store64(h + 96, hash[0]);
    tp_store64(h + 104, hash[1]);
}

/* Codecs raw and lz4: the payload lies at frame + 128 already. */
static size_t end_plain_frame(const encode_state *s, tp_frame_codec codec, size_t payload_size)
{
    uint64_t hashes[MAX_CHUNKS];
    size_t chunks = 0;
    const size_t stored = TP_FRAME_HEADER + (size_t)tp_align(payload_size, 128);
    memset(s->frame + TP_FRAME_HEADER + payload_size, 0, stored - TP_FRAME_HEADER - payload_size);
    for (size_t at = 0; at < s->raw_size; at += TP_RAW_CHUNK) {
        const size_t left = s->raw_size - at;
        hashes[chunks++] = s->kernels->hash64(s->raw + at, left < TP_RAW_CHUNK ? left : TP_RAW_CHUNK);
    }
    put_header(s, codec, stored, (uint32_t)payload_size, codec == TP_FRAME_RAW ? TP_METHOD_RAW : TP_METHOD_LZ4);
    put_hashes(s, TP_FRAME_HEADER, stored, hashes, chunks);
    return stored;
}

static size_t encode_raw(const encode_state *s)
{
    memcpy(s->frame + TP_FRAME_HEADER, s->raw, s->raw_size);
    return end_plain_frame(s, TP_FRAME_RAW, s->raw_size);
}

/* This and the following return 0 where the frame would not be smaller than a raw one by 1 %. */
static size_t worth(const encode_state *s, size_t stored)
{
    return pays(stored, tp_encode_bound(s->raw_size)) ? stored : 0;
}

static size_t encode_lz4(const encode_state *s)
{
    const size_t made = lz4_block(s, s->raw, s->raw_size, s->frame + TP_FRAME_HEADER, s->raw_size - 1);
    if (!made || !worth(s, TP_FRAME_HEADER + (size_t)tp_align(made, 128))) return 0;
    return end_plain_frame(s, TP_FRAME_LZ4, made);
}

/* The room for payload behind `tables` bytes of tables and so many descriptors; false if there is none. */
static bool start_payload(const encode_state *s, size_t tables, size_t descriptors, payload_writer *w)
{
    const size_t directory = TP_FRAME_HEADER + tables + descriptors * TP_DESCRIPTOR_SIZE;
    const size_t payload_at = (size_t)tp_align(directory, 128), bound = tp_encode_bound(s->raw_size);
    if (payload_at > bound) return false;
    memset(s->frame + directory, 0, payload_at - directory);
    *w = (payload_writer){
        .at = s->frame + payload_at,
        .start = s->frame + payload_at,
        .end = s->frame + bound,
        .descriptor = s->frame + TP_FRAME_HEADER + tables,
        .method = TP_METHOD_RAW,
    };
    return true;
}

/* With symbols of so many bits or, if `coarser`, one less where that is better. */
static size_t encode_split(const encode_state *s, unsigned symbol_bits, unsigned per_symbol, bool coarser)
{
    tp_encoder *e = s->encoder;
    tp_shape shape = {.T = s->traits->T, .R = (uint8_t)(s->traits->T - symbol_bits), .low = s->traits->low,
                      .c = (uint8_t)per_symbol, .rotated = s->traits->rotated};
    const size_t element = s->traits->element, chunk = element << TP_CHUNK_LOG2;
    const uint32_t chunks = (uint32_t)((s->raw_size + chunk - 1) / chunk);
    e->choice.tables = 0;
    e->wide.count = 0;

    /* Are the low planes worth coding? One answer for the frame. */
    bool low_coded = false;
    for (uint32_t i = 0; i < chunks; i++) {
        const size_t start = i * chunk, bytes = chunk_bytes(s, i, chunk);
        for (unsigned y = 0; y < shape.low; y++) {
            part_plan *plan = &e->plan[i][1 + y];
            plan_plane(s, s->raw + start, bytes, (unsigned)element, y, plan);
            low_coded |= plan->mode != TP_MODE_RAW || plan->try_lz4;
        }
    }
    if (!low_coded) e->wide.count = 0;
    plan_tops(s, &shape, coarser, chunks, low_coded);

    const size_t parts = low_coded ? 1u + shape.low : 1, tables = 256u * per_symbol * e->choice.tables;
    payload_writer w;
    if (!start_payload(s, tables + 512u * e->wide.count, chunks * parts, &w)) return 0;
    for (uint32_t i = 0; i < e->choice.tables; i++)
        tp_symbol_record_store(&e->choice.record[i], per_symbol == 2, s->frame + TP_FRAME_HEADER + 256u * per_symbol * i);
    for (uint32_t i = 0; i < e->wide.count; i++)
        tp_wide_record_store(e->wide.F[i], s->frame + TP_FRAME_HEADER + tables + 512u * i);

    uint64_t hashes[MAX_CHUNKS];
    for (uint32_t i = 0; i < chunks; i++) {
        const size_t start = i * chunk, bytes = chunk_bytes(s, i, chunk);
        hashes[i] = s->kernels->hash64(s->raw + start, bytes);
        if (!put_top(s, &w, &shape, s->raw + start, (uint32_t)(bytes / element), low_coded, &e->plan[i][0], hashes[i]))
            return 0;
        for (unsigned y = 0; low_coded && y < shape.low; y++)
            if (!put_plane(s, &w, s->raw + start, bytes, (unsigned)element, y, &e->plan[i][1 + y], TP_METHOD_LZ4, 0))
                return 0;
    }

    const size_t stored = (size_t)(w.at - s->frame);
    if (!worth(s, stored)) return 0;
    put_header(s, TP_FRAME_SPLIT, stored, (uint32_t)(w.at - w.start), w.method);
    uint8_t *h = s->frame;
    h[6] = (uint8_t)(shape.T - shape.R);
    h[7] = (uint8_t)per_symbol;
    h[8] = low_coded;
    h[9] = TP_CHUNK_LOG2;
    h[10] = (uint8_t)e->choice.tables;
    h[11] = (uint8_t)e->wide.count;
    h[12] = (uint8_t)(1u << e->choice.selector_bits);
    tp_store32(h + 24, (uint32_t)(chunks * parts));
    put_hashes(s, (size_t)(w.start - s->frame), stored, hashes, chunks);
    return stored;
}

static size_t encode_planes(const encode_state *s, bool joined)
{
    tp_encoder *e = s->encoder;
    const unsigned group = s->traits->planes;
    const size_t chunk = (size_t)group << TP_CHUNK_LOG2, parts = joined ? 1 : group;
    const uint32_t chunks = (uint32_t)((s->raw_size + chunk - 1) / chunk);
    e->wide.count = 0;
    for (uint32_t i = 0; i < chunks && !joined; i++) {
        const size_t start = i * chunk, bytes = chunk_bytes(s, i, chunk);
        for (unsigned k = 0; k < group; k++) plan_plane(s, s->raw + start, bytes, group, k, &e->plan[i][k]);
    }
    payload_writer w;
    if (!start_payload(s, 512u * e->wide.count, chunks * parts, &w)) return 0;
    for (uint32_t i = 0; i < e->wide.count; i++)
        tp_wide_record_store(e->wide.F[i], s->frame + TP_FRAME_HEADER + 512u * i);

    uint64_t hashes[MAX_CHUNKS];
    for (uint32_t i = 0; i < chunks; i++) {
        const size_t start = i * chunk, bytes = chunk_bytes(s, i, chunk);
        const uint8_t *src = s->raw + start;
        hashes[i] = s->kernels->hash64(src, bytes);
        if (joined) {
            uint8_t *plane = e->plane;
            for (unsigned k = 0; k < group; k++) {
                s->kernels->plane_get(src, bytes, group, k, plane);
                plane += (bytes + group - 1 - k) / group;
            }
            if (!put_lz4(s, &w, e->plane, bytes, bytes, (uint32_t)bytes, TP_METHOD_BG_LZ4, hashes[i]) &&
                !put_raw(&w, e->plane, bytes, (uint32_t)bytes, hashes[i]))
                return 0;
            continue;
        }
        for (unsigned k = 0; k < group; k++)
            if (!put_plane(s, &w, src, bytes, group, k, &e->plan[i][k], TP_METHOD_BG_LZ4, k ? 0 : hashes[i])) return 0;
    }

    const size_t stored = (size_t)(w.at - s->frame);
    if (!worth(s, stored)) return 0;
    put_header(s, TP_FRAME_PLANES, stored, (uint32_t)(w.at - w.start), w.method);
    uint8_t *h = s->frame;
    h[8] = joined ? 2 : 0;
    h[9] = TP_CHUNK_LOG2;
    h[11] = (uint8_t)e->wide.count;
    tp_store32(h + 24, (uint32_t)(chunks * parts));
    put_hashes(s, (size_t)(w.start - s->frame), stored, hashes, chunks);
    return stored;
}

/* The smaller of the frame at s->frame (`stored` bytes, 0: none) and one made now. */
#define TRY(made)                                                                                          \
    do {                                                                                                   \
        encode_state second = *s;                                                                          \
        second.frame = e->other;                                                                           \
        const encode_state *const s_ = &second;                                                            \
        const size_t size_ = made;                                                                         \
        if (size_ && (!stored || size_ < stored)) {                                                        \
            memcpy(s->frame, e->other, size_);                                                             \
            stored = size_;                                                                                \
        }                                                                                                  \
    } while (0)

/* Level max: everything that the class allows. */
static size_t encode_smallest(const encode_state *s)
{
    tp_encoder *e = s->encoder;
    size_t stored = 0;
    for (unsigned i = 0; i < 3 && s->traits->s[i]; i++) TRY(encode_split(s_, s->traits->s[i], 1, false));
    if (s->traits->pairs) TRY(encode_split(s_, 8, 2, false));
    if (s->traits->planes) TRY(encode_planes(s_, false));
    if (s->lz4) TRY(encode_lz4(s_));
    return stored;
}

tp_status tp_encode(tp_encoder *encoder, tp_class cls, tp_level level, tp_codec_choice choice, const void *raw,
                    size_t raw_size, void *dst, size_t capacity, size_t *size)
{
    const tp_class_traits *traits = tp_class_traits_of(cls);
    if (!traits || raw_size < 1 || raw_size > TP_FRAME_MAX_RAW || (unsigned)level > TP_LEVEL_MAX ||
        (unsigned)choice > TP_CODEC_DF11)
        return TP_INVALID_ARGUMENT;
    if (choice == TP_CODEC_DF11) return TP_UNSUPPORTED;
    if (capacity < tp_encode_bound(raw_size)) return TP_BUFFER_TOO_SMALL;
    if (raw_size % traits->element) {
        cls = TP_CLASS_BYTES;
        traits = tp_class_traits_of(cls);
    }
    const encode_state state = {.encoder = encoder, .kernels = encoder->kernels, .cls = cls, .traits = traits,
                                .level = level, .lz4 = choice != TP_CODEC_RANS, .raw = raw, .raw_size = raw_size,
                                .frame = dst};
    const encode_state *const s = &state;
    const unsigned finer = level == TP_LEVEL_DEFAULT ? traits->finer : 0;
    size_t stored = 0;
    if (choice == TP_CODEC_RAW)
        stored = 0;
    else if (choice == TP_CODEC_LZ4 || cls == TP_CLASS_BYTES || (choice == TP_CODEC_BG_LZ4 && traits->planes == 1))
        stored = raw_size > 1 ? encode_lz4(s) : 0;
    else if (choice == TP_CODEC_BG_LZ4)
        stored = encode_planes(s, true);
    else if (level == TP_LEVEL_MAX)
        stored = encode_smallest(s);
    else if (!traits->T)
        stored = encode_planes(s, false);
    else if (level == TP_LEVEL_FAST && traits->pairs)
        stored = encode_split(s, 8, 2, false);
    else
        stored = encode_split(s, finer ? finer : traits->s[0], 1, finer != 0);
    if (!stored) stored = encode_raw(s);
    *size = stored;
    return TP_OK;
}
