/*
 * W32 and pairs streams to elements (docs/format.md section 7) with AVX-512. Part of avx512.c and
 * avx512bw.c.
 *
 * Two stages a group, joined by a buffer in the first-level cache:
 *
 * 1. ranks: the 32 lanes' states live in two registers of 32 u16, q = x >> 10 and low = x mod 2^16 (both
 * fit, as x < 2^26). A slot's table entry, its "rank", comes from 64 buckets of 16 slots by permutations,
 * not from memory. A step is some 40 cycles of latency and 9 of work, so several streams run interleaved.
 * This stage knows no shape.
 *
 * 2. merge: ranks to symbols; with raw rows and low planes to whole elements. One stream at a time.
 *
 * The streams read and write at some twenty places in turn, which hardware prefetchers do not follow. So
 * every step of stage 1 asks for its share of what the next group's merge touches; with all buffers in
 * memory that doubles the speed.
 */
#ifndef TP_CODEC_AVX512_DECODE_H
#define TP_CODEC_AVX512_DECODE_H

#define STREAMS 6       /* most that run interleaved */
#define WORDS_AHEAD 512 /* bytes: the words of some 40 steps */

/* Loops over streams must be unrolled in full, or their states do not stay in registers. */
#define EACH_STREAM(i, count, body)                                                                        \
    do {                                                                                                   \
        if ((count) > 0) {                                                                                 \
            enum { i = 0 };                                                                                \
            body                                                                                           \
        }                                                                                                  \
        if ((count) > 1) {                                                                                 \
            enum { i = 1 };                                                                                \
            body                                                                                           \
        }                                                                                                  \
        if ((count) > 2) {                                                                                 \
            enum { i = 2 };                                                                                \
            body                                                                                           \
        }                                                                                                  \
        if ((count) > 3) {                                                                                 \
            enum { i = 3 };                                                                                \
            body                                                                                           \
        }                                                                                                  \
        if ((count) > 4) {                                                                                 \
            enum { i = 4 };                                                                                \
            body                                                                                           \
        }                                                                                                  \
        if ((count) > 5) {                                                                                 \
            enum { i = 5 };                                                                                \
            body                                                                                           \
        }                                                                                                  \
    } while (0)

/* A tp_w32_table as the steps want it. */
typedef struct rank_table {
    __m512i bits[2]; /* by bucket: bit i - 1 is set if an interval starts at the bucket's slot i, 1..15 */
    __m512i next[2]; /* by bucket: the rank of its last slot */
    __m512i F[4];    /* by rank: F - L */
    __m512i start[4];
} rank_table;

/* What a group's merge touches: prefetched only, so it may lie anywhere. */
typedef struct touched {
    const uint8_t *dst, *raw, *low[3];
} touched;

typedef struct stream {
    __m512i q, low;
    const uint8_t *w;
    const rank_table *table;
    uint16_t *ranks; /* out: 32 a step */
    touched next;
} stream;

/* Bytes of each that belong to a step. */
typedef struct pace {
    size_t dst, raw, low;
} pace;

/* States after a symbol, given F - L and start of its interval. */
_Static_assert(TP_W32_K == 10 && TP_WIDE_K == 12, "shift counts");
static INLINE void advance(__m512i *q, __m512i *low, const uint8_t **w, __m512i F, __m512i start, int K)
{
    const bool wide = K == TP_WIDE_K; /* shift counts must be literals: 16 - K is 4 or 6 */
    /* x' = F * q + slot - start = x + (F - L) * q - start; l is its low half. What is above its low K bits
     * is F * q >> K or one more, and ends in bit K of l: that tells which. */
    __m512i bias = _mm512_sub_epi16(*low, start);
    KEEP(bias); /* the product comes late, and everything waits for it */
    __m512i l = _mm512_add_epi16(_mm512_mullo_epi16(F, *q), bias);
    __m512i h = _mm512_mulhi_epu16(_mm512_slli_epi16(F, wide ? 4 : 6), *q);
    /* x' < L just if F * q >> K is 0 (then x' < 2 * L, and so l = x') and l < L: sooner known than the sum
     * below, on which nothing else waits. */
    __m512i high = _mm512_set1_epi16((short)(0xffff << K));
    __m512i rest = _mm512_ternarylogic_epi32(h, l, high, 0xf8); /* h or (l and high) */
    __mmask32 take = _mm512_testn_epi16_mask(rest, rest);
    __m512i one = _mm512_set1_epi16(1);
    h = _mm512_add_epi16(h, _mm512_ternarylogic_epi32(h, _mm512_srli_epi16(l, wide ? 12 : 10), one, 0x28));

    /* x' < L, and so h = 0: x' = x' << 16 | word */
    *low = take_words(l, take, *w);
    *q = take_bits(h, take, l, *low, wide ? 4 : 6);
    *w += 2 * (unsigned)_mm_popcnt_u32(take);
}

/* The ranks of the slots that the states are in. */
static INLINE __m512i find_ranks(__m512i low, const rank_table *table)
{
    /* vpermi2w takes the index modulo 64, and the count matters modulo 16: low needs no mask for either. */
    __m512i bucket = _mm512_srli_epi16(low, 4);
    __m512i bits = _mm512_permutex2var_epi16(table->bits[0], bucket, table->bits[1]);
    __m512i next = _mm512_permutex2var_epi16(table->next[0], bucket, table->next[1]);
    return _mm512_sub_epi16(next, popcount16(shift_right16(bits, low)));
}

/* dst_lines, low_planes: cache lines of each that belong to a step. */
static INLINE void prefetch_step(const touched *next, const pace *at, int dst_lines, int low_planes)
{
    PREFETCH(next->raw + at->raw);
    PREFETCH(next->dst + at->dst);
    if (dst_lines > 1) PREFETCH(next->dst + at->dst + 64);
    if (dst_lines > 2) PREFETCH(next->dst + at->dst + 128);
    if (dst_lines > 2) PREFETCH(next->dst + at->dst + 192);
    if (low_planes > 0) PREFETCH(next->low[0] + at->low);
    if (low_planes > 1) PREFETCH(next->low[1] + at->low);
    if (low_planes > 1) PREFETCH(next->low[2] + at->low);
}

/* One group of count streams. shared: all have the first one's table, which then stays in registers. */
static INLINE void ranks_template(stream *const *streams, const pace *per_step, int steps, int count,
                                  int entries, bool shared, int dst_lines, int low_planes)
{
    __m512i q[STREAMS], low[STREAMS];
    const uint8_t *w[STREAMS];
    /* Copies: what lies in memory might change with every store. */
    uint16_t *out[STREAMS];
    touched next[STREAMS];
    const rank_table *tables[STREAMS], table = *streams[0]->table;
    const pace step = *per_step;
    pace at = {0, 0, 0};
    EACH_STREAM(i, count, q[i] = streams[i]->q; low[i] = streams[i]->low; w[i] = streams[i]->w;
                out[i] = streams[i]->ranks; next[i] = streams[i]->next; tables[i] = streams[i]->table;);
    ROLLED for (int t = 0; t < steps; t++)
    {
        __m512i rank[STREAMS];
#define TABLE(i) (shared ? &table : tables[i])
#define ADVANCE(i)                                                                                         \
    advance(&q[i], &low[i], &w[i], lookup16(TABLE(i)->F, rank[i], entries),                                \
            lookup16(TABLE(i)->start, rank[i], entries), TP_W32_K)
        EACH_STREAM(i, count, prefetch_step(&next[i], &at, dst_lines, low_planes);
                    PREFETCH(w[i] + WORDS_AHEAD); rank[i] = find_ranks(low[i], TABLE(i));
                    _mm512_store_si512(out[i] + 32 * t, rank[i]); if (!RANKS_FIRST) ADVANCE(i););
        if (RANKS_FIRST) EACH_STREAM(i, count, ADVANCE(i););
#undef TABLE
#undef ADVANCE
        at.dst += step.dst;
        at.raw += step.raw;
        at.low += step.low;
    }
    EACH_STREAM(i, count, streams[i]->q = q[i]; streams[i]->low = low[i]; streams[i]->w = w[i];);
}

typedef void ranks_function(stream *const *streams, const pace *per_step, int steps);
#define RANKS(count, entries, shared, lines, planes)                                                       \
    static void ranks_##count##_##entries##_##shared##_##lines##_##planes(stream *const *streams,          \
                                                                          const pace *per_step, int steps) \
    {                                                                                                      \
        ranks_template(streams, per_step, steps, count, entries, shared, lines, planes);                   \
    }
#define RANKS_COUNTS(entries, shared, lines, planes)                                                       \
    RANKS(1, entries, shared, lines, planes)                                                               \
    RANKS(2, entries, shared, lines, planes)                                                               \
    RANKS(3, entries, shared, lines, planes)                                                               \
    RANKS(4, entries, shared, lines, planes)                                                               \
    RANKS(5, entries, shared, lines, planes)                                                               \
    RANKS(6, entries, shared, lines, planes)                                                               \
    static ranks_function *const ranks_##entries##_##shared##_##lines##_##planes[STREAMS] = {              \
        ranks_1_##entries##_##shared##_##lines##_##planes,                                                 \
        ranks_2_##entries##_##shared##_##lines##_##planes,                                                 \
        ranks_3_##entries##_##shared##_##lines##_##planes,                                                 \
        ranks_4_##entries##_##shared##_##lines##_##planes,                                                 \
        ranks_5_##entries##_##shared##_##lines##_##planes,                                                 \
        ranks_6_##entries##_##shared##_##lines##_##planes,                                                 \
    };
RANKS_COUNTS(32, 1, 1, 0) /* bf16, 8 bits */
RANKS_COUNTS(32, 0, 1, 0)
RANKS_COUNTS(64, 0, 1, 0)
RANKS_COUNTS(32, 0, 1, 1) /* f16 */
RANKS_COUNTS(64, 0, 1, 1)
RANKS_COUNTS(32, 0, 2, 1) /* f32 */
RANKS_COUNTS(64, 0, 2, 1)
RANKS_COUNTS(32, 0, 4, 3) /* f64 */
RANKS_COUNTS(64, 0, 4, 3)
RANKS_COUNTS(128, 0, 2, 1) /* bf16 pairs */
RANKS_COUNTS(128, 0, 4, 3) /* f32 pairs */

static ranks_function *ranks_find(const tp_shape *shape, int count, uint32_t entries, bool shared)
{
    ranks_function *const *by_count;
    const bool small = entries <= 32;
    if (shape->c == 2)
        by_count = shape->low ? ranks_128_0_4_3 : ranks_128_0_2_1;
    else if (shape->low == 6)
        by_count = small ? ranks_32_0_4_3 : ranks_64_0_4_3;
    else if (shape->low == 2)
        by_count = small ? ranks_32_0_2_1 : ranks_64_0_2_1;
    else if (shape->low == 1)
        by_count = small ? ranks_32_0_1_1 : ranks_64_0_1_1;
    else
        by_count = !small ? ranks_64_0_1_0 : shared ? ranks_32_1_1_0 : ranks_32_0_1_0;
    return by_count[count - 1];
}

static void rank_table_init(rank_table *to, const tp_w32_table *from)
{
    for (int i = 0; i < 2; i++) {
        __m512i bits = _mm512_load_si512(from->bucket_bits + 32 * i);
        to->bits[i] = _mm512_srli_epi16(bits, 1);
        to->next[i] = _mm512_load_si512(from->bucket_entry + 32 * i);
        to->next[i] = _mm512_add_epi16(to->next[i], popcount16(bits));
    }
    for (int i = 0; i < 4; i++) {
        to->F[i] = _mm512_sub_epi16(_mm512_load_si512(from->F + 32 * i), _mm512_set1_epi16(TP_W32_L));
        to->start[i] = _mm512_load_si512(from->start + 32 * i);
    }
}

/* ---- merge ---- */

/* Where the parts of one group are. */
typedef struct group {
    const uint16_t *ranks;
    const uint8_t *raw, *low;
    size_t low_stride; /* bytes from one u16 plane to the next */
    const __m512i
        *values; /* by rank: u16 or u8, the symbol at its place in the top part; pairs: as it is */
    uint8_t *dst;
} group;

/* A row's symbols at their places: 32 lanes x 32 bits in two registers. */
static INLINE void row_values(tp_shape s, const uint16_t *ranks, const __m512i *values, int entries,
                              __m512i v[2])
{
    if (s.c == 2) {
        __m512i pair = lookup16(values, _mm512_load_si512(ranks), entries);
        /* byte i of the 64 to bits 8..15 of element i; T = 16 and R = 8 put it at bit 7 */
        widen_up(pair, v);
        v[0] = _mm512_srli_epi16(v[0], 1);
        v[1] = _mm512_srli_epi16(v[1], 1);
    } else if (s.T == 16) {
        __m512i a = _mm512_load_si512(ranks), b = _mm512_load_si512(ranks + 32);
        v[0] = lookup16(values, zip16_low(a, b), entries);
        v[1] = lookup16(values, zip16_high(a, b), entries);
    } else {
        const __m512i four[4] = {_mm512_load_si512(ranks), _mm512_load_si512(ranks + 32),
                                 _mm512_load_si512(ranks + 64), _mm512_load_si512(ranks + 96)};
        row_of_64(values, four, entries, v);
    }
}

/* Half a row: 64 bytes of top parts with their low bytes, to dst. */
static INLINE void store_half(tp_shape s, __m512i v, const uint8_t *low, size_t stride, uint8_t *dst)
{
    if (s.low == 0) {
        _mm512_storeu_si512(dst, v);
    } else if (s.low == 1) {
        __m512i l = _mm512_loadu_si512(low);
        _mm512_storeu_si512(dst, zip8_low(l, v));
        _mm512_storeu_si512(dst + 64, zip8_high(l, v));
    } else if (s.low == 2) {
        __m512i l = _mm512_loadu_si512(low);
        _mm512_storeu_si512(dst, zip16_low(l, v));
        _mm512_storeu_si512(dst + 64, zip16_high(l, v));
    } else {
        __m512i l0 = _mm512_loadu_si512(low), l1 = _mm512_loadu_si512(low + stride);
        __m512i l2 = _mm512_loadu_si512(low + 2 * stride);
        __m512i a = zip16_low(l0, l1), b = zip16_low(l2, v);
        _mm512_storeu_si512(dst, zip32_low(a, b));
        _mm512_storeu_si512(dst + 64, zip32_high(a, b));
        a = zip16_high(l0, l1);
        b = zip16_high(l2, v);
        _mm512_storeu_si512(dst + 128, zip32_low(a, b));
        _mm512_storeu_si512(dst + 192, zip32_high(a, b));
    }
}

static INLINE void merge_template(tp_shape s, const group *in, int max_entries)
{
    const int J = s.T / s.R, entries = s.c == 2 ? 128 : max_entries;
    const int ranks_step = 32 * (32 / s.T) / s.c;            /* ranks a row */
    const size_t elements = 512u / s.T;                      /* a half row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2); /* of a low plane */
    const size_t dst_step = elements * (size_t)(s.T / 8 + s.low);
    const uint16_t *ranks = in->ranks;
    const uint8_t *raw = in->raw, *low = in->low;
    uint8_t *dst = in->dst;
    __m512i values[4];
    for (int i = 0; i < 4; i++) values[i] = in->values[i];
    const __m512i mask = _mm512_set1_epi32((int)tp_field(s, 0, s.R));

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        __m512i word[2] = {_mm512_loadu_si512(raw), _mm512_loadu_si512(raw + 64)};
        UNROLL for (int j = 0; j < J; j++)
        {
            __m512i v[2];
            row_values(s, ranks, values, entries, v);
            ranks += ranks_step;
            UNROLL for (int h = 0; h < 2; h++)
            {
                __m512i bits = j ? _mm512_rorv_epi32(word[h], _mm512_set1_epi32(s.R * j)) : word[h];
                /* v or (bits and mask) */
                store_half(s, _mm512_ternarylogic_epi32(v[h], bits, mask, 0xf8), low, in->low_stride, dst);
                if (s.low) low += low_step;
                dst += dst_step;
            }
        }
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++)
    {
        __m512i v[2];
        row_values(s, ranks, values, entries, v);
        ranks += ranks_step;
        UNROLL for (int h = 0; h < 2; h++)
        {
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const tp_spare at = tp_spare_bits(s, j, k);
                if (at.field) {
                    __m512i bits = _mm512_loadu_si512(in->raw + 128 * k + 64 * h);
                    bits = _mm512_rorv_epi32(bits, _mm512_set1_epi32(at.by));
                    v[h] = _mm512_ternarylogic_epi32(v[h], bits, _mm512_set1_epi32((int)at.field), 0xf8);
                }
            }
            store_half(s, v[h], low, in->low_stride, dst);
            if (s.low) low += low_step;
            dst += dst_step;
        }
    }
}

/* One group; small: the table has at most 32 entries. */
static NOINLINE void merge(const tp_shape *shape, const group *in, bool small)
{
    if (small)
        TP_FOR_SHAPE(shape, merge_template, in, 32);
    else
        TP_FOR_SHAPE(shape, merge_template, in, 64);
}

static void merge_values(const tp_shape *shape, const tp_w32_table *table, __m512i values[4])
{
    const __m128i place = _mm_cvtsi32_si128(shape->c == 2 ? 0 : shape->rotated ? shape->R - 1 : shape->R);
    for (int i = 0; i < 4; i++)
        values[i] = _mm512_sll_epi16(_mm512_load_si512(table->symbol + 32 * i), place);
    if (shape->T == 8) row_values_init(values);
}

/* ---- the streams in flight ---- */

/* A table as both stages want it. */
typedef struct prepared_table {
    const tp_w32_table *source;
    __m512i values[4];
    rank_table ranks;
} prepared_table;

#define PREPARED (2 * STREAMS * TP_MAX_SELECTED) /* at least what a full set of streams may want */

typedef struct prepared_tables {
    size_t count;
    prepared_table table[PREPARED];
} prepared_tables;

/* NULL if there is no room. */
static const prepared_table *prepare_table(prepared_tables *all, const tp_shape *shape,
                                           const tp_w32_table *source)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->table[i].source == source) return &all->table[i];
    if (all->count == PREPARED) return NULL;
    prepared_table *t = &all->table[all->count++];
    t->source = source;
    merge_values(shape, source, t->values);
    rank_table_init(&t->ranks, source);
    return t;
}

typedef struct flight {
    stream s;
    group at;
    tp_w32_job *job;
    const prepared_table *table[TP_MAX_SELECTED]; /* by selector */
    const uint8_t *words_end;
    uint32_t entries;       /* the most of its tables */
    uint32_t small;         /* bit i: table i has at most 32 */
    uint32_t group, groups; /* the next one; in all */
    bool bad;
} flight;

/* The low halves of 32 u32. */
static INLINE __m512i pack32(__m512i a, __m512i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)), _mm512_cvtepi32_epi16(b),
                              1);
}

/* q and low of 32 states; false if one is out of range. */
static bool load_states(const uint8_t *p, unsigned K, __m512i *q, __m512i *low)
{
    const __m128i by = _mm_cvtsi32_si128((int)K);
    const __m512i least = _mm512_set1_epi32(1 << K), span = _mm512_set1_epi32((1 << (16 + K)) - (1 << K));
    __m512i x0 = _mm512_loadu_si512(p), x1 = _mm512_loadu_si512(p + 64);
    __m512i q0 = _mm512_srl_epi32(x0, by), q1 = _mm512_srl_epi32(x1, by);
    *q = pack32(q0, q1);
    *low = pack32(x0, x1);
    return _mm512_cmpge_epu32_mask(_mm512_sub_epi32(x0, least), span) == 0 &&
           _mm512_cmpge_epu32_mask(_mm512_sub_epi32(x1, least), span) == 0;
}

/* All states are L. */
static bool states_ended(__m512i q, __m512i low, unsigned K)
{
    return _mm512_cmpneq_epi16_mask(q, _mm512_set1_epi16(1)) == 0 &&
           _mm512_test_epi16_mask(low, _mm512_set1_epi16((short)((1 << K) - 1))) == 0;
}

/* false: no room for its tables */
static bool flight_start(flight *f, const tp_shape *shape, tp_w32_job *job, prepared_tables *tables)
{
    f->entries = f->small = 0;
    for (unsigned i = 0; i < 1u << job->selector_bits; i++) {
        f->table[i] = prepare_table(tables, shape, job->table + i);
        if (!f->table[i]) return false;
        if (job->table[i].count > f->entries) f->entries = job->table[i].count;
        if (job->table[i].count <= 32) f->small |= 1u << i;
    }
    f->job = job;
    f->bad = !load_states(job->payload, TP_W32_K, &f->s.q, &f->s.low);
    f->s.w = job->words;
    f->words_end = job->words + (size_t)job->nw * 2;
    f->group = 0;
    f->groups = (job->n + TP_GROUP - 1) / TP_GROUP;
    f->at.raw = job->payload + 128;
    f->at.low = job->low;
    f->at.low_stride = (size_t)f->groups * TP_GROUP * 2;
    f->at.dst = job->dst;
    return true;
}

static void flight_end(const flight *f, const tp_shape *shape)
{
    tp_w32_job *job = f->job;
    job->good = !f->bad && f->s.w == f->words_end && states_ended(f->s.q, f->s.low, TP_W32_K);
    if (job->good && job->nx) {
        const size_t words = ((size_t)job->nw * 2 + 3) & ~(size_t)3;
        tp_w32_apply_exceptions(shape, job->words + words + tp_selector_bytes(job->n, job->selector_bits),
                                job->nx, job->n, job->dst);
    }
}

static void w32_decode(const tp_shape *shape, tp_w32_job *jobs, size_t count)
{
    _Alignas(64) uint16_t ranks[STREAMS][TP_GROUP];
    _Alignas(64) uint8_t tail[TP_GROUP * 8];
    prepared_tables tables;
    flight flights[STREAMS];
    stream *streams[STREAMS];
    const size_t element = tp_shape_element(shape);
    const size_t raw_step = (size_t)128 * shape->R, low_step = (size_t)TP_GROUP * (shape->low == 1 ? 1 : 2);
    const int steps = 32 / shape->c;
    const pace per_step = {TP_GROUP * element / (size_t)steps, raw_step / (size_t)steps,
                           low_step / (size_t)steps};
    /* As many at once as make all rounds equally full. */
    const size_t rounds = (count + STREAMS - 1) / STREAMS;
    const size_t width = count ? (count + rounds - 1) / rounds : 0;
    size_t next = 0, n = 0;

    tables.count = 0;
    for (int i = 0; i < STREAMS; i++) streams[i] = &flights[i].s;
    for (;;) {
        while (n < width && next < count && flight_start(&flights[n], shape, &jobs[next], &tables)) {
            next++;
            n++;
        }
        if (n == 0) {
            if (next == count) return;
            tables.count = 0; /* full, and no stream uses them: make room for the next ones' */
            continue;
        }
        uint32_t run = UINT32_MAX, entries = 0;
        bool shared = true;
        for (size_t i = 0; i < n; i++) {
            flight *f = &flights[i];
            f->s.ranks = ranks[i];
            f->at.ranks = ranks[i];
            if (f->groups - f->group < run) run = f->groups - f->group;
            if (f->entries > entries) entries = f->entries;
            shared = shared && !f->job->selector_bits && f->table[0] == flights[0].table[0];
        }
        ranks_function *decode = ranks_find(shape, (int)n, entries, shared);
        for (; run; run--) {
            for (size_t i = 0; i < n; i++) {
                flight *f = &flights[i];
                /* A group takes at most 2048 bytes of words and looks at 64 more: with one check a group,
                 * reads stay within TP_SLACK. A damaged stream starts over, to be rejected at its end. */
                if (f->s.w > f->words_end) {
                    f->bad = true;
                    f->s.w = f->job->words;
                }
                f->s.table =
                    &f->table[tp_selector(f->job->selectors, f->job->selector_bits, f->group)]->ranks;
                touched *after = &f->s.next;
                after->dst = f->at.dst + TP_GROUP * element;
                after->raw = f->at.raw + raw_step;
                after->low[0] = shape->low ? f->at.low + low_step : after->raw;
                after->low[1] = after->low[0] + (shape->c == 2 ? 64 : f->at.low_stride);
                after->low[2] = after->low[0] + (shape->c == 2 ? 0 : 2 * f->at.low_stride);
            }
            decode(streams, &per_step, steps);
            for (size_t i = 0; i < n; i++) {
                flight *f = &flights[i];
                const unsigned selector = tp_selector(f->job->selectors, f->job->selector_bits, f->group);
                const bool small = f->small >> selector & 1;
                f->at.values = f->table[selector]->values;
                f->group++;
                const size_t left = f->job->n - (size_t)(f->group - 1) * TP_GROUP;
                if (left < TP_GROUP) {
                    uint8_t *dst = f->at.dst;
                    f->at.dst = tail;
                    merge(shape, &f->at, small);
                    memcpy(dst, tail, left * element);
                    continue; /* it was the last */
                }
                merge(shape, &f->at, small);
                f->at.dst += TP_GROUP * element;
                f->at.raw += raw_step;
                if (shape->low) f->at.low += low_step;
            }
        }
        for (size_t i = 0; i < n;) {
            if (flights[i].group < flights[i].groups) {
                i++;
                continue;
            }
            flight_end(&flights[i], shape);
            flights[i] = flights[--n];
        }
    }
}

#endif
