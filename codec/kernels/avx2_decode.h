/*
 * W32, pairs and wide streams to elements (docs/format.md section 7) with AVX2. Part of avx2.c.
 *
 * Two stages a group, joined by a buffer in the first-level cache:
 *
 * 1. steps: the 32 lanes' states live in four registers of 8 u32. A slot's table entry, 32 bits with
 * everything that a step needs, comes from memory, lane by lane: hardware gathers are no faster where they
 * are fast, and far slower where they carry mitigations. A step is one long chain of dependent operations,
 * so two streams run interleaved. This stage knows no shape.
 *
 * 2. merge: entries to symbols; with raw rows and low planes to whole elements. One stream at a time.
 */
#ifndef TP_CODEC_AVX2_DECODE_H
#define TP_CODEC_AVX2_DECODE_H

#ifndef STREAMS
#define STREAMS 2 /* most that run interleaved */
#endif

/* ---- words to the lanes that take one ---- */

/* By mask of the lanes: which bytes of the next words go to which lane, zeros to the others. */
#define TAKE(mask, lane)                                                                                   \
    ((mask) >> (lane)&1 ? 0x80800100u + 0x0202u * (unsigned)__builtin_popcount((mask) & ((1 << (lane)) - 1)) \
                        : 0x80808080u)
#define TAKES1(m)                                                                                          \
    {TAKE(m, 0), TAKE(m, 1), TAKE(m, 2), TAKE(m, 3), TAKE(m, 4), TAKE(m, 5), TAKE(m, 6), TAKE(m, 7)}
#define TAKES4(m) TAKES1(m), TAKES1((m) + 1), TAKES1((m) + 2), TAKES1((m) + 3)
#define TAKES16(m) TAKES4(m), TAKES4((m) + 4), TAKES4((m) + 8), TAKES4((m) + 12)
#define TAKES64(m) TAKES16(m), TAKES16((m) + 16), TAKES16((m) + 32), TAKES16((m) + 48)
static const _Alignas(64) uint32_t takes[256][8] = {TAKES64(0), TAKES64(64), TAKES64(128), TAKES64(192)};

/* ---- steps ---- */

static INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256(p);
}
static INLINE void store256(void *p, __m256i v)
{
    _mm256_storeu_si256(p, v);
}

/* Entries of 8 slots. The barriers keep the compiler from what it thinks is better: taking the indices out
 * of their register one by one, and shuffling the entries together instead of blending them. */
static INLINE __m256i lookup(const uint32_t *table, __m256i slots)
{
#if LOOKUP == 3
    return _mm256_i32gather_epi32((const int *)table, slots, 4);
#elif LOOKUP == 2
    uint64_t a = (uint64_t)_mm256_extract_epi64(slots, 0), b = (uint64_t)_mm256_extract_epi64(slots, 1), c = (uint64_t)_mm256_extract_epi64(slots, 2), d = (uint64_t)_mm256_extract_epi64(slots, 3);
    __m128i l = _mm_cvtsi32_si128((int)table[(uint32_t)a]);
    l = _mm_insert_epi32(l, (int)table[a >> 32], 1);
    l = _mm_insert_epi32(l, (int)table[(uint32_t)b], 2);
    l = _mm_insert_epi32(l, (int)table[b >> 32], 3);
    __m128i h = _mm_cvtsi32_si128((int)table[(uint32_t)c]);
    h = _mm_insert_epi32(h, (int)table[c >> 32], 1);
    h = _mm_insert_epi32(h, (int)table[(uint32_t)d], 2);
    h = _mm_insert_epi32(h, (int)table[d >> 32], 3);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(l), h, 1);
#else
#if LOOKUP == 4
    uint64_t q[4] = {(uint64_t)_mm256_extract_epi64(slots, 0), (uint64_t)_mm256_extract_epi64(slots, 1), (uint64_t)_mm256_extract_epi64(slots, 2), (uint64_t)_mm256_extract_epi64(slots, 3)};
    uint64_t r[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = table[(uint32_t)q[i]] | (uint64_t)table[q[i] >> 32] << 32;
    }
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_insert_epi64(_mm_cvtsi64_si128((long long)r[0]), (long long)r[1], 1)), _mm_insert_epi64(_mm_cvtsi64_si128((long long)r[2]), (long long)r[3], 1), 1);
#endif
    __m256i v[8];
#if LOOKUP == 1
    uint64_t q[4] = {(uint64_t)_mm256_extract_epi64(slots, 0), (uint64_t)_mm256_extract_epi64(slots, 1), (uint64_t)_mm256_extract_epi64(slots, 2), (uint64_t)_mm256_extract_epi64(slots, 3)};
    UNROLL for (int i = 0; i < 4; i++)
    {
        __asm__("vpbroadcastd %1, %0" : "=x"(v[2*i]) : "m"(table[(uint32_t)q[i]]));
        __asm__("vpbroadcastd %1, %0" : "=x"(v[2*i+1]) : "m"(table[q[i] >> 32]));
    }
#else
    _Alignas(32) uint32_t at[8];
    _mm256_store_si256((__m256i *)(void *)at, slots);
    __asm__("" : "+m"(at));
    UNROLL for (int i = 0; i < 8; i++)
    {
        __asm__("vpbroadcastd %1, %0" : "=x"(v[i]) : "m"(table[at[i]]));
    }
#endif
    v[0] = _mm256_blend_epi32(v[0], v[1], 0x02);
    v[2] = _mm256_blend_epi32(v[2], v[3], 0x08);
    v[4] = _mm256_blend_epi32(v[4], v[5], 0x20);
    v[6] = _mm256_blend_epi32(v[6], v[7], 0x80);
    v[0] = _mm256_blend_epi32(v[0], v[2], 0x0c);
    v[4] = _mm256_blend_epi32(v[4], v[6], 0xc0);
    return _mm256_blend_epi32(v[0], v[4], 0xf0);
#endif
}

/* Where things are in an entry: bias = slot - start of the interval. W32: F in bits 0..9, bias in bits
 * 10..19, the symbol (pairs: the number of its entry) in bits 20..31. Wide: as in tp_wide_table. */
static INLINE __m256i entry_F(__m256i entry, int K)
{
    return K == TP_WIDE_K ? _mm256_srli_epi32(entry, 20) : _mm256_and_si256(entry, _mm256_set1_epi32(1023));
}
static INLINE __m256i entry_bias(__m256i entry, int K)
{
    return K == TP_WIDE_K ? _mm256_and_si256(_mm256_srli_epi32(entry, 8), _mm256_set1_epi32(4095))
                          : _mm256_and_si256(_mm256_srli_epi32(entry, 10), _mm256_set1_epi32(1023));
}

/* 8 lanes decode a symbol each; returns their entries. */
static INLINE __m256i step(__m256i *x, const uint8_t **w, const uint32_t *table, int K)
{
    const __m256i L = _mm256_set1_epi32(1 << K);
    __m256i entry = lookup(table, _mm256_and_si256(*x, _mm256_set1_epi32((1 << K) - 1)));
    __m256i next = _mm256_add_epi32(
        _mm256_mullo_epi32(entry_F(entry, K), _mm256_srli_epi32(*x, K == TP_WIDE_K ? TP_WIDE_K : TP_W32_K)),
        entry_bias(entry, K));
    /* next < 2^28 */
    __m256i take = _mm256_cmpgt_epi32(L, next);
    const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(take));
    __m256i words = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)*w));
    words = _mm256_shuffle_epi8(words, load256(takes[mask]));
    *x = _mm256_or_si256(_mm256_sllv_epi32(next, _mm256_and_si256(take, _mm256_set1_epi32(16))), words);
    *w += 2 * (unsigned)_mm_popcnt_u32(mask);
    return entry;
}

typedef struct stream {
    _Alignas(32) uint32_t x[TP_LANES];
    const uint8_t *w;
    const uint32_t *table;
    uint32_t *entries; /* out: 32 a step */
    const uint8_t *next_dst, *next_raw, *next_low[3]; /* prefetched only, so they may lie anywhere */
} stream;

/* Bytes of each that belong to a step. */
typedef struct pace {
    size_t dst, raw, low;
} pace;

#define PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define WORDS_AHEAD 512
static INLINE void prefetch_step(const stream *s, const uint8_t *w, size_t dst, size_t raw)
{
    PREFETCH(w + WORDS_AHEAD);
    PREFETCH(s->next_raw + raw);
    PREFETCH(s->next_dst + dst);
}

/* One group of count streams. */
static INLINE void steps_template(stream *const *streams, int steps, int count, int K)
{
    __m256i x[STREAMS][4];
    const uint8_t *w[STREAMS];
    const uint32_t *table[STREAMS];
    uint32_t *out[STREAMS];
    UNROLL for (int i = 0; i < count; i++)
    {
        UNROLL for (int k = 0; k < 4; k++) x[i][k] = load256(streams[i]->x + 8 * k);
        w[i] = streams[i]->w;
        table[i] = streams[i]->table;
        out[i] = streams[i]->entries;
    }
    ROLLED for (int t = 0; t < steps; t++)
    {
#if PRE
        UNROLL for (int i = 0; i < count; i++) prefetch_step(streams[i], w[i], (size_t)t * 64, (size_t)t * 28);
#endif
        UNROLL for (int k = 0; k < 4; k++)
        {
            UNROLL for (int i = 0; i < count; i++)
                store256(out[i] + 32 * t + 8 * k, step(&x[i][k], &w[i], table[i], K));
        }
    }
    UNROLL for (int i = 0; i < count; i++)
    {
        UNROLL for (int k = 0; k < 4; k++) store256(streams[i]->x + 8 * k, x[i][k]);
        streams[i]->w = w[i];
    }
}

static NOINLINE void steps1(stream *const *streams, int steps)
{
    steps_template(streams, steps, 1, TP_W32_K);
}
static NOINLINE void steps2(stream *const *streams, int steps)
{
    steps_template(streams, steps, 2, TP_W32_K);
}
#if STREAMS > 2
static NOINLINE void steps3(stream *const *streams, int steps)
{
    steps_template(streams, steps, 3, TP_W32_K);
}
#endif
static NOINLINE void wide_steps1(stream *const *streams, int steps)
{
    steps_template(streams, steps, 1, TP_WIDE_K);
}
static NOINLINE void wide_steps2(stream *const *streams, int steps)
{
    steps_template(streams, steps, 2, TP_WIDE_K);
}

/* ---- merge ---- */

/* Where the parts of one group are. */
typedef struct group {
    const uint32_t *entries;
    const uint8_t *raw, *low;
    size_t low_stride;      /* bytes from one u16 plane to the next */
    const uint32_t *values; /* pairs: by entry, both symbols at their places */
    uint8_t *dst;
} group;

/* The symbols of 8 lanes of a row at their places. */
static INLINE __m256i row_values(tp_shape s, const uint32_t *entries, const uint32_t *values)
{
    const int place = s.rotated ? s.R - 1 : s.R;
    __m256i e0 = load256(entries);
    if (s.c == 2) return lookup(values, _mm256_srli_epi32(e0, 20));
    if (s.T == 16) {
        /* to the upper 12 bits of each element */
        __m256i v = _mm256_blend_epi16(_mm256_srli_epi32(e0, 16), load256(entries + 32), 0xaa);
        return _mm256_slli_epi16(_mm256_srli_epi16(v, 4), place);
    }
    __m256i even = _mm256_blend_epi16(_mm256_srli_epi32(e0, 16), load256(entries + 64), 0xaa);
    __m256i odd = _mm256_blend_epi16(_mm256_srli_epi32(load256(entries + 32), 16), load256(entries + 96), 0xaa);
    /* symbols below 2^7: they stay within their bytes */
    even = _mm256_srli_epi16(even, 4);
    odd = _mm256_slli_epi16(_mm256_srli_epi16(odd, 4), 8);
    return _mm256_slli_epi16(_mm256_or_si256(even, odd), place);
}

/* a, b: units of two registers in turn, in memory order. */
static INLINE void store_zipped(__m256i low, __m256i high, uint8_t *dst)
{
    store256(dst, _mm256_permute2x128_si256(low, high, 0x20));
    store256(dst + 32, _mm256_permute2x128_si256(low, high, 0x31));
}

/* 32 bytes of top parts with their low bytes, to dst. */
static INLINE void store_quarter(tp_shape s, __m256i v, const uint8_t *low, size_t stride, uint8_t *dst)
{
    if (s.low == 0) {
        store256(dst, v);
    } else if (s.low == 1) {
        __m256i l = load256(low);
        store_zipped(_mm256_unpacklo_epi8(l, v), _mm256_unpackhi_epi8(l, v), dst);
    } else if (s.low == 2) {
        __m256i l = load256(low);
        store_zipped(_mm256_unpacklo_epi16(l, v), _mm256_unpackhi_epi16(l, v), dst);
    } else {
        __m256i l0 = load256(low), l1 = load256(low + stride), l2 = load256(low + 2 * stride);
        __m256i a = _mm256_unpacklo_epi16(l0, l1), b = _mm256_unpacklo_epi16(l2, v);
        __m256i c = _mm256_unpackhi_epi16(l0, l1), d = _mm256_unpackhi_epi16(l2, v);
        __m256i p0 = _mm256_unpacklo_epi32(a, b), p1 = _mm256_unpackhi_epi32(a, b);
        __m256i p2 = _mm256_unpacklo_epi32(c, d), p3 = _mm256_unpackhi_epi32(c, d);
        store256(dst, _mm256_permute2x128_si256(p0, p1, 0x20));
        store256(dst + 32, _mm256_permute2x128_si256(p2, p3, 0x20));
        store256(dst + 64, _mm256_permute2x128_si256(p0, p1, 0x31));
        store256(dst + 96, _mm256_permute2x128_si256(p2, p3, 0x31));
    }
}

static INLINE __m256i rotr32(__m256i v, int by)
{
    return by ? _mm256_or_si256(_mm256_srli_epi32(v, by), _mm256_slli_epi32(v, 32 - by)) : v;
}

static INLINE void merge_template(tp_shape s, const group *in)
{
    const int J = s.T / s.R, spare = s.T - J * s.R;
    const int steps = 32 / s.T / s.c; /* a row */
    const size_t elements = 256u / s.T; /* a quarter row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2);
    const size_t dst_step = elements * (size_t)(s.T / 8 + s.low);
    const uint32_t *entries = in->entries;
    const uint8_t *raw = in->raw, *low = in->low;
    uint8_t *dst = in->dst;
    const __m256i mask = _mm256_set1_epi32((int)tp_field(s, 0, s.R));

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        UNROLL for (int j = 0; j < J; j++, entries += 32 * steps)
        {
            UNROLL for (int h = 0; h < 4; h++, dst += dst_step)
            {
                __m256i bits = _mm256_and_si256(rotr32(load256(raw + 32 * h), s.R * j), mask);
                __m256i v = _mm256_or_si256(row_values(s, entries + 8 * h, in->values), bits);
                store_quarter(s, v, low, in->low_stride, dst);
                if (s.low) low += low_step;
            }
        }
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++, entries += 32 * steps)
    {
        UNROLL for (int h = 0; h < 4; h++, dst += dst_step)
        {
            __m256i v = row_values(s, entries + 8 * h, in->values);
            /* The row has bits j * R .. j * R + R - 1 of all spare bits, word k those from k * spare on. */
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const int from = k * spare > j * s.R ? k * spare : j * s.R;
                const int end = (k + 1) * spare < (j + 1) * s.R ? (k + 1) * spare : (j + 1) * s.R;
                if (from < end) {
                    const int a = from - j * s.R;
                    const uint32_t field = tp_field(s, (unsigned)a, (unsigned)(end - from));
                    __m256i bits = rotr32(load256(in->raw + 128 * k + 32 * h), J * s.R + (from - k * spare) - a);
                    v = _mm256_or_si256(v, _mm256_and_si256(bits, _mm256_set1_epi32((int)field)));
                }
            }
            store_quarter(s, v, low, in->low_stride, dst);
            if (s.low) low += low_step;
        }
    }
}

static NOINLINE void merge(const tp_shape *shape, const group *in)
{
    TP_FOR_SHAPE(shape, merge_template, in);
}

/* ---- the streams in flight ---- */

/* A table as both stages want it. */
typedef struct prepared_table {
    const tp_w32_table *source;
    _Alignas(64) uint32_t entries[1024];
    uint32_t values[TP_MAX_SYMBOLS];
} prepared_table;

#define MAX_SELECTED 4                        /* tables a stream */
#define PREPARED (2 * STREAMS * MAX_SELECTED) /* at least what a full set of streams may want */

typedef struct prepared_tables {
    size_t count;
    prepared_table table[PREPARED];
} prepared_tables;

static void prepared_table_init(prepared_table *to, const tp_shape *shape, const tp_w32_table *from)
{
    to->source = from;
    for (int i = 0; i < 1024; i++) {
        const tp_slot slot = from->slot[i];
        const uint32_t symbol = shape->c == 2 ? slot.entry : slot.symbol;
        to->entries[i] = slot.F | (uint32_t)slot.bias << 10 | symbol << 20;
    }
    if (shape->c == 2)
        for (uint32_t i = 0; i < TP_MAX_SYMBOLS; i++)
            to->values[i] = tp_symbol_bits(*shape, from->symbol[i] & 255u) |
                            tp_symbol_bits(*shape, from->symbol[i] >> 8) << 16;
}

/* NULL if there is no room. */
static const prepared_table *prepare_table(prepared_tables *all, const tp_shape *shape,
                                           const tp_w32_table *source)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->table[i].source == source) return &all->table[i];
    if (all->count == PREPARED) return NULL;
    prepared_table *t = &all->table[all->count++];
    prepared_table_init(t, shape, source);
    return t;
}

/* false: one is out of range */
static bool load_states(const uint8_t *p, unsigned K, uint32_t x[TP_LANES])
{
    bool good = true;
    memcpy(x, p, TP_LANES * sizeof *x);
    for (int i = 0; i < TP_LANES; i++) good &= x[i] >> K != 0 && x[i] >> (16 + K) == 0;
    return good;
}

static bool states_ended(const uint32_t x[TP_LANES], unsigned K)
{
    bool good = true;
    for (int i = 0; i < TP_LANES; i++) good &= x[i] == 1u << K;
    return good;
}

typedef struct flight {
    stream s;
    group at;
    tp_w32_job *job;
    const prepared_table *table[MAX_SELECTED]; /* by selector */
    const uint8_t *words_end;
    uint32_t group, groups; /* the next one; in all */
    bool bad;
} flight;

/* false: no room for its tables */
static bool flight_start(flight *f, const tp_shape *shape, tp_w32_job *job, prepared_tables *tables)
{
    for (unsigned i = 0; i < 1u << job->selector_bits; i++) {
        f->table[i] = prepare_table(tables, shape, job->table + i);
        if (!f->table[i]) return false;
    }
    f->job = job;
    f->bad = !load_states(job->payload, TP_W32_K, f->s.x);
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
    job->good = !f->bad && f->s.w == f->words_end && states_ended(f->s.x, TP_W32_K);
    if (job->good && job->nx) {
        const size_t words = ((size_t)job->nw * 2 + 3) & ~(size_t)3;
        tp_w32_apply_exceptions(shape, job->words + words + tp_selector_bytes(job->n, job->selector_bits),
                                job->nx, job->n, job->dst);
    }
}

static void w32_decode(const tp_shape *shape, tp_w32_job *jobs, size_t count)
{
    _Alignas(64) uint32_t entries[STREAMS][TP_GROUP];
    _Alignas(64) uint8_t tail[TP_GROUP * 8];
    prepared_tables tables;
    flight flights[STREAMS];
    stream *streams[STREAMS];
    const size_t element = tp_shape_element(shape);
    const size_t raw_step = (size_t)128 * shape->R, low_step = (size_t)TP_GROUP * (shape->low == 1 ? 1 : 2);
    size_t next = 0, n = 0;

    tables.count = 0;
    for (int i = 0; i < STREAMS; i++) streams[i] = &flights[i].s;
    for (;;) {
        while (n < STREAMS && next < count && flight_start(&flights[n], shape, &jobs[next], &tables)) {
            next++;
            n++;
        }
        if (n == 0) {
            if (next == count) return;
            tables.count = 0; /* full, and no stream uses them: make room for the next ones' */
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            flight *f = &flights[i];
            /* A group takes at most 2048 bytes of words and looks at 16 more: with one check a group,
             * reads stay within TP_SLACK. A damaged stream starts over, to be rejected at its end. */
            if (f->s.w > f->words_end) {
                f->bad = true;
                f->s.w = f->job->words;
            }
            const prepared_table *t =
                f->table[tp_selector(f->job->selectors, f->job->selector_bits, f->group)];
            f->s.table = t->entries;
            f->at.values = t->values;
            f->s.next_dst = f->at.dst + TP_GROUP * element;
            f->s.next_raw = f->at.raw + raw_step;
            f->s.entries = entries[i];
            f->at.entries = entries[i];
        }
        
#if STREAMS > 2
        (n == 1 ? steps1 : n == 2 ? steps2 : steps3)
#else
        (n == 1 ? steps1 : steps2)
#endif
        (streams, 32 / shape->c);
        for (size_t i = 0; i < n;) {
            flight *f = &flights[i];
            const size_t left = f->job->n - (size_t)f->group * TP_GROUP;
            if (left > TP_GROUP) {
                merge(shape, &f->at);
                f->group++;
                f->at.dst += TP_GROUP * element;
                f->at.raw += raw_step;
                if (shape->low) f->at.low += low_step;
                i++;
                continue;
            }
            uint8_t *dst = f->at.dst;
            f->at.dst = tail;
            merge(shape, &f->at);
            memcpy(dst, tail, left * element);
            flight_end(f, shape);
            flights[i] = flights[--n];
        }
    }
}

/* ---- wide streams ---- */

/* A group's entries to bytes: the lowest of each. */
static void wide_merge(const uint32_t *entries, uint8_t *dst)
{
    const __m256i byte = _mm256_set1_epi32(255);
    ROLLED for (int row = 0; row < TP_GROUP; row += 128, entries += 128)
    {
        UNROLL for (int h = 0; h < 4; h++)
        {
            __m256i v = _mm256_and_si256(load256(entries + 8 * h), byte);
            UNROLL for (int b = 1; b < 4; b++)
            {
                __m256i e = _mm256_and_si256(load256(entries + 32 * b + 8 * h), byte);
                v = _mm256_or_si256(v, _mm256_slli_epi32(e, 8 * b));
            }
            store256(dst + row + 32 * h, v);
        }
    }
}

typedef struct wide_flight {
    stream s;
    const uint8_t *words_end;
    tp_wide_job *job;
    uint8_t *dst;
    uint32_t left; /* bytes */
    bool bad;
} wide_flight;

static void wide_decode(tp_wide_job *jobs, size_t count)
{
    _Alignas(64) uint32_t entries[STREAMS][TP_GROUP];
    _Alignas(64) uint8_t tail[TP_GROUP];
    wide_flight flights[STREAMS];
    stream *streams[STREAMS];
    size_t next = 0, n = 0;

    for (int i = 0; i < STREAMS; i++) streams[i] = &flights[i].s;
    for (;;) {
        for (; n < STREAMS && next < count; n++) {
            wide_flight *f = &flights[n];
            tp_wide_job *job = &jobs[next++];
            f->bad = !load_states(job->payload, TP_WIDE_K, f->s.x);
            f->s.w = job->payload + 128;
            f->words_end = f->s.w + (size_t)job->nw * 2;
            f->s.table = job->table->slot;
            f->dst = job->dst;
            f->job = job;
            f->left = job->n;
        }
        if (n == 0) return;
        for (size_t i = 0; i < n; i++) {
            wide_flight *f = &flights[i];
            f->s.entries = entries[i];
            f->s.next_dst = f->dst;
            f->s.next_raw = f->dst;
            if (f->s.w > f->words_end) { /* as in w32_decode */
                f->bad = true;
                f->s.w = f->job->payload + 128;
            }
        }
        (n == 1 ? wide_steps1 : wide_steps2)(streams, 32);
        for (size_t i = 0; i < n;) {
            wide_flight *f = &flights[i];
            if (f->left > TP_GROUP) {
                wide_merge(f->s.entries, f->dst);
                f->left -= TP_GROUP;
                f->dst += TP_GROUP;
                i++;
                continue;
            }
            wide_merge(f->s.entries, tail);
            memcpy(f->dst, tail, f->left);
            f->job->good = !f->bad && f->s.w == f->words_end && states_ended(f->s.x, TP_WIDE_K);
            flights[i] = flights[--n];
        }
    }
}

#endif
