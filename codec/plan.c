/* What becomes of each part of a frame, decided in integers: mode, table, estimate. */
#include "codec/encoder.h"

#define COUNT_STEP 8         /* every eighth group is counted */
#define SAMPLE_FROM 32768u   /* elements; below, and at level max, all are counted */
#define SAMPLED_GROUPS 32    /* of a frame, at least: of fewer, tables fit what was counted, not the rest */
#define SYMBOL_BIT_PAYS 4096 /* one symbol bit more must save one in so many bytes */
#define PLANE_STEP 16        /* groups, for a first look at a byte plane */
#define CODES_STEP 16        /* groups, where only the commonest exponents are looked for */
#define LZ4_SAMPLE 4096u
#define LZ4_SAMPLES 4u

/*
 * Whether lz4 may make less than `bytes` of a byte plane (element 1: of size bytes as they are), judged by
 * a few samples of it; level max: always worth a try.
 */
static bool lz4_may_pay(const tp_encode_state *s, const uint8_t *src, size_t size, unsigned element,
                        unsigned index, uint64_t bytes)
{
    const size_t n = (size + element - 1 - index) / element;
    if (!s->lz4) return false;
    if (s->level == TP_LEVEL_MAX || n <= LZ4_SAMPLE * LZ4_SAMPLES) return true;
    /* What the samples may become together; the search ends where they cannot keep to it. */
    uint64_t left = bytes * (LZ4_SAMPLE * LZ4_SAMPLES) * 99 / 100 / n;
    for (size_t i = 0; i < LZ4_SAMPLES; i++) {
        uint8_t sample[LZ4_SAMPLE];
        const size_t at = (n - LZ4_SAMPLE) / (LZ4_SAMPLES - 1) * i * element, rest = size - at;
        const uint8_t *from = src + at;
        if (element > 1) {
            s->kernels->plane_get(from, rest < LZ4_SAMPLE * element ? rest : LZ4_SAMPLE * element, element,
                                  index, sample);
            from = sample;
        }
        const size_t room = left < LZ4_SAMPLE ? (size_t)left : LZ4_SAMPLE;
        size_t made = room ? tp_lz4_block(s, from, LZ4_SAMPLE, s->encoder->block, room) : 0;
        if (!made) made = LZ4_SAMPLE;
        if (made > left) return false;
        left -= made;
    }
    return true;
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

/* The wide table of the pool that the counts cost least under, or a new one if that tp_pays and there is
 * room. */
static uint8_t choose_wide_table(tp_encoder *e, const uint32_t counts[256], uint64_t *cost)
{
    tp_wide_pool *pool = &e->wide;
    uint64_t best_cost = UINT64_MAX;
    uint32_t best = 0;
    for (uint32_t i = 0; i < pool->count; i++) {
        const uint64_t c = tp_wide_record_cost(&e->log2, counts, pool->F[i]);
        if (c < best_cost) best_cost = c, best = i;
    }
    if (pool->count < TP_MAX_TABLES) {
        uint16_t *own = pool->F[pool->count];
        const uint64_t c = tp_wide_record_build(&e->log2, counts, own);
        if (best_cost > c + c / 1000 && best_cost - c > TP_COST_OF_BYTES(512)) {
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

static uint32_t sample_step(const tp_encode_state *s, uint32_t n, uint32_t step)
{
    return s->level == TP_LEVEL_MAX || n < SAMPLE_FROM ? 1 : step;
}

/* Of a frame of n elements. */
static uint32_t frame_step(const tp_encode_state *s, uint32_t n, uint32_t step)
{
    const uint32_t most = n / TP_GROUP / SAMPLED_GROUPS;
    return sample_step(s, n, most < 1 ? 1 : most < step ? most : step);
}

/* A byte plane: byte `index` of every `element` bytes at src. Extracted only where a sample shows skew. */
void tp_plan_plane(const tp_encode_state *s, const uint8_t *src, size_t size, unsigned element,
                   unsigned index, tp_part_plan *plan)
{
    tp_encoder *e = s->encoder;
    const size_t n = (size + element - 1 - index) / element;
    const uint32_t step = sample_step(s, (uint32_t)n, PLANE_STEP);
    *plan = (tp_part_plan){.mode = TP_MODE_RAW, .estimate = n};
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
    uint64_t cost = tp_entropy(&e->log2, counts, 256, counted);
    plan->try_lz4 = lz4_may_pay(s, src, size, element, index, n);
    if (plan->try_lz4 && s->level == TP_LEVEL_MAX) { /* not judged by samples, so find out */
        s->kernels->plane_get(src, size, element, index, e->plane);
        const size_t made = tp_lz4_block(s, e->plane, n, e->block, n - 1);
        plan->try_lz4 = made && tp_pays(made, n);
    }
    if (!tp_pays(stream_bytes(cost, counted, n, 640), n)) return;

    s->kernels->plane_get(src, size, element, index, e->plane);
    if (is_constant(e->plane, n, 1)) {
        *plan = (tp_part_plan){.mode = TP_MODE_CONSTANT, .value = e->plane[0]};
        return;
    }
    /* A wide table must hold every byte that occurs, so now all are counted. */
    const uint32_t tables = e->wide.count;
    memset(counts, 0, sizeof counts);
    s->kernels->count_bytes(e->plane, n, 1, counts);
    const uint8_t table = choose_wide_table(e, counts, &cost);
    const uint64_t estimate = cost == UINT64_MAX ? cost : stream_bytes(cost, n, n, 128);
    if (estimate < n && tp_pays(estimate, n)) {
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

typedef struct pair_codes {
    uint8_t code[256];    /* by exponent */
    uint8_t exponent[15]; /* by code */
} pair_codes;

/* What is counted in a frame, and how; no counts yet. */
static void start_choice(const tp_encode_state *s, const tp_shape *shape, uint32_t chunks)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = e->choice;
    const uint32_t elements = (uint32_t)(s->raw_size / s->traits->element);
    const bool pairs = shape->c == 2;
    c->counts = e->counts;
    c->chunks = chunks;
    c->classes = s->level == TP_LEVEL_FAST && !pairs ? 1 : TP_MAX_CLASSES;
    c->alphabet = pairs ? 256 : 1u << (shape->T - shape->R);
    c->candidates = pairs ? 255 : c->alphabet;
    c->limit = pairs ? 128 : 64;
    c->step = frame_step(s, elements, COUNT_STEP);
    c->groups = (elements + TP_GROUP - 1) / TP_GROUP;
    memset(c->total, 0, sizeof c->total);
    memset(e->counts, 0, (size_t)c->chunks * c->classes * c->alphabet * sizeof *e->counts);
}

/* The classes of all groups, by the means of their symbols (times 1024), as first selectors. */
static void classify(const tp_encode_state *s, const tp_shape *shape)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = e->choice;
    const size_t element = s->traits->element, chunk = element << TP_CHUNK_LOG2;
    const uint32_t last = (uint32_t)(s->raw_size / element % TP_GROUP);
    const tp_shape single = tp_shape_single(shape);
    for (uint32_t i = 0; i < c->chunks; i++) {
        const uint8_t *src = s->raw + i * chunk;
        const size_t bytes = tp_chunk_bytes(s, i, chunk);
        e->hash[i] = s->kernels->hash64(src, bytes);
        s->kernels->group_sums(&single, src, (uint32_t)(bytes / element),
                               e->means + ((size_t)i << TP_CHUNK_LOG2) / TP_GROUP);
    }
    uint32_t *const mean = &e->means[c->groups - 1];
    if (last) *mean = (uint32_t)((uint64_t)*mean * TP_GROUP / last);
    c->halves = tp_classify_groups(e->means, c->groups, c->step, c->classes, e->selectors);
}

/*
 * Pairs are counted and encoded by codes: 0..14 for the commonest exponents of the frame in ascending
 * order, so that pairs of codes ascend as pairs of exponents do; 15 for all others, which are exceptions.
 */
static void choose_codes(const tp_encode_state *s, const tp_shape *shape, uint32_t n, pair_codes *codes)
{
    const tp_shape single = tp_shape_single(shape);
    uint32_t counts[256] = {0};
    s->kernels->count_symbols(&single, s->raw, n, frame_step(s, n, CODES_STEP), NULL, 1, counts);
    bool chosen[256] = {false};
    for (unsigned k = 0; k < 15; k++) {
        unsigned best = 256;
        for (unsigned i = 0; i < 256; i++)
            if (!chosen[i] && (best == 256 || counts[i] > counts[best])) best = i;
        chosen[best] = true;
    }
    uint8_t next = 0;
    for (unsigned i = 0; i < 256; i++) {
        if (chosen[i]) codes->exponent[next] = (uint8_t)i;
        codes->code[i] = chosen[i] ? next++ : 15;
    }
}

/* Counts chunk i, by class of its groups. Every step-th group, from the first. */
static void count_chunk(const tp_encode_state *s, const tp_shape *shape, const pair_codes *codes,
                        uint32_t i, const uint8_t *src, uint32_t n)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = e->choice;
    uint32_t *counts = e->counts + (size_t)i * c->classes * c->alphabet;
    const uint8_t *class = e->selectors + ((size_t)i << TP_CHUNK_LOG2) / TP_GROUP;
    for (uint32_t first = 0; first < n; first += c->step * TP_GROUP)
        c->total[i] += (n - first < TP_GROUP ? n - first : TP_GROUP) / shape->c;
    if (shape->c == 1) {
        s->kernels->count_symbols(shape, src, n, c->step, class, c->classes, counts);
        return;
    }
    s->kernels->count_pairs(shape, codes->code, src, n, c->step, class, c->classes, counts);
    for (uint32_t q = 0; q < c->classes; q++, counts += c->alphabet)
        for (unsigned k = 0; k < 255; k++) /* a code 15: never in a table, counted together as the last */
            if (k % 16 == 15 || k / 16 == 15) {
                counts[255] += counts[k];
                counts[k] = 0;
            }
}

/*
 * The tables of a frame, from its counts, for shape and, if `coarser`, for one symbol bit less; *shape
 * becomes the better. Fewer symbols decode faster and are preferred where more save less than one byte in
 * SYMBOL_BIT_PAYS. The two share the counts, which by group are not looked at: so first both are weighed by
 * group, and by chunk only the better.
 */
static void choose_shape(const tp_encode_state *s, tp_shape *shape, const pair_codes *codes, bool coarser)
{
    tp_encoder *e = s->encoder;
    tp_choice *c = e->choice;
    const uint64_t counted = tp_choice_sum(c);
    c->tables = c->selector_bits = 0;
    if (!counted) return;
    uint64_t cost = tp_choose_tables_by_group(&e->log2, c);
    if (coarser) { /* one raw bit more, for each element counted */
        tp_choice *const coarse = c == &e->choices[0] ? &e->choices[1] : &e->choices[0];
        tp_choice_halve(c, coarse);
        const uint64_t other = tp_choose_tables_by_group(&e->log2, coarse);
        if (other + counted * 65536 <= cost + counted * 8 * s->traits->element * 65536 / SYMBOL_BIT_PAYS) {
            tp_choice_halve_counts(c);
            e->choice = c = coarse;
            cost = other;
            shape->R++;
        }
    }
    tp_choose_tables_by_chunk(&e->log2, c, cost);
    if (c->selector_bits == 1)
        for (uint32_t g = 0; g < c->groups; g++) e->selectors[g] = e->selectors[g] >= c->halves;
    for (uint32_t t = 0; shape->c == 2 && t < c->tables; t++)
        for (uint32_t k = 0; k < c->record[t].count; k++) {
            uint16_t *symbol = &c->record[t].symbol[k];
            *symbol = (uint16_t)(codes->exponent[*symbol % 16] | codes->exponent[*symbol / 16] << 8);
        }
    for (uint32_t t = 0; t < c->tables; t++)
        tp_w32_encode_table_init(&c->record[t], 1u << (shape->T - shape->R) * shape->c, &e->table[t]);
}

/* Counts what is not constant, chunk by chunk, and hashes the chunks that `classify` did not. */
static void count_tops(const tp_encode_state *s, const tp_shape *shape, const pair_codes *codes,
                       bool low_coded)
{
    tp_encoder *e = s->encoder;
    const tp_choice *c = e->choice;
    const size_t element = s->traits->element, chunk = element << TP_CHUNK_LOG2;
    for (uint32_t i = 0; i < c->chunks; i++) {
        const uint8_t *src = s->raw + i * chunk;
        const size_t bytes = tp_chunk_bytes(s, i, chunk);
        const uint32_t n = (uint32_t)(bytes / element);
        tp_part_plan *plan = &e->plan[i][0];
        *plan = (tp_part_plan){.mode = TP_MODE_RAW};
        if (c->classes == 1) e->hash[i] = s->kernels->hash64(src, bytes);
        if (low_coded ? tops_are_constant(shape, src, n, element) : is_constant(src, bytes, element)) {
            plan->mode = TP_MODE_CONSTANT;
            plan->value = low_coded ? value_of(src + shape->low, shape->T / 8u) : value_of(src, element);
        } else {
            count_chunk(s, shape, codes, i, src, n);
        }
    }
}

/* What becomes of chunk i, n elements at src, which is not constant. */
static void plan_top(const tp_encode_state *s, const tp_shape *shape, uint32_t i, const uint8_t *src,
                     uint32_t n, bool low_coded)
{
    tp_encoder *e = s->encoder;
    const tp_choice *c = e->choice;
    tp_part_plan *plan = &e->plan[i][0];
    const uint32_t symbols = n / shape->c;
    const size_t whole = n * (low_coded ? shape->T / 8u : s->traits->element);
    plan->estimate = whole;
    if (c->total[i]) { /* a single element makes no pair */
        const uint64_t estimate =
            stream_bytes(c->cost[i], c->total[i], symbols,
                         tp_stream_words_at(shape, n, !low_coded) + tp_selector_bytes(n, c->selector_bits));
        if (tp_pays(estimate, whole))
            *plan = (tp_part_plan){.mode = shape->c == 2 ? TP_MODE_PAIRS : TP_MODE_W32,
                                   .table = c->table[i],
                                   .estimate = estimate};
    }
    if (s->wide_top) { /* the whole byte as a symbol */
        uint32_t counts[256] = {0};
        uint64_t cost;
        const uint32_t tables = e->wide.count;
        s->kernels->count_bytes(src, n, 1, counts);
        const uint8_t table = choose_wide_table(e, counts, &cost);
        const uint64_t estimate = cost == UINT64_MAX ? cost : stream_bytes(cost, n, n, 128);
        if (estimate < plan->estimate && tp_pays(estimate, whole))
            *plan = (tp_part_plan){.mode = TP_MODE_WIDE, .table = table, .estimate = estimate};
        else
            e->wide.count = tables;
    }
    if (!low_coded) plan->try_lz4 = lz4_may_pay(s, src, whole, 1, 0, plan->estimate);
}

/*
 * The tables of a frame and what becomes of each chunk's elements (or, low_coded, their top parts). With
 * `coarser`, *shape may come back with one symbol bit less. Also hashes the chunks: the first pass over a
 * frame is at the speed of memory, and what else needs all of a chunk follows while it is in the cache.
 */
void tp_plan_tops(const tp_encode_state *s, tp_shape *shape, bool coarser, uint32_t chunks, bool low_coded)
{
    tp_encoder *e = s->encoder;
    const size_t element = s->traits->element, chunk = element << TP_CHUNK_LOG2;
    pair_codes codes;
    start_choice(s, shape, chunks);
    if (e->choice->classes > 1)
        classify(s, shape);
    else
        memset(e->selectors, 0, e->choice->groups);
    if (shape->c == 2) choose_codes(s, shape, (uint32_t)(s->raw_size / element), &codes);
    count_tops(s, shape, &codes, low_coded);
    choose_shape(s, shape, &codes, coarser);

    bool streams = false;
    for (uint32_t i = 0; i < chunks; i++) {
        const uint32_t n = (uint32_t)(tp_chunk_bytes(s, i, chunk) / element);
        const tp_part_plan *plan = &e->plan[i][0];
        if (plan->mode != TP_MODE_CONSTANT) plan_top(s, shape, i, s->raw + i * chunk, n, low_coded);
        streams |= plan->mode == TP_MODE_W32 || plan->mode == TP_MODE_PAIRS;
    }
    if (!streams) e->choice->tables = e->choice->selector_bits = 0; /* not used: not stored */
}
