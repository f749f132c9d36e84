/*
 * Elements to W32 and pairs streams (docs/format.md section 7) with AVX-512. Part of avx512.c and
 * avx512bw.c.
 *
 * Groups are taken last to first, as rANS runs backwards, each in two stages:
 *
 * 1. split: elements to raw rows, low planes, and a rank (table entry) a symbol, in the order of stage 2.
 *
 * 2. rANS: 32 states in two registers. A step is one chain of dependent operations, which takes longer than
 * its work. So what depends on nothing but the rank is looked up beside the chain, the chain itself has no
 * division and no correction, and two streams run interleaved where there are two.
 *
 * Words are written in the order of coding and turned around at the end: hence lanes are kept last to
 * first.
 *
 * All functions with constant parameters are templates: always inlined, the constants fold.
 */
#ifndef TP_CODEC_AVX512_ENCODE_H
#define TP_CODEC_AVX512_ENCODE_H

/* ---- symbols to ranks ---- */

enum {
    MAP_WINDOW,   /* symbols first .. first + 126 by 128 bytes; symbols of 8-bit tops, and pairs by codes */
    MAP_LOW_BYTE, /* by the low 8 bits, which differ for all symbols of the table; then compared */
    MAP_SCALAR,   /* one by one, from memory */
};

typedef struct symbol_map {
    const tp_w32_encode_table *table;
    int kind;
    union {
        byte_table ranks; /* TP_NO_ENTRY where there is none */
        word_table pairs; /* likewise, by code of the first exponent + 16 * code of the second */
    };
    __m512i symbols[2]; /* u16 by rank, for MAP_LOW_BYTE */
    byte_table codes;   /* pairs: an exponent's code 0..14, or 15 */
} symbol_map;

/* What depends on the table only, as stage 2 wants it (u16 by rank). */
#define SHIFT_BITS 5
typedef struct rans_table {
    __m512i F[4];
    __m512i bias[4];         /* above SHIFT_BITS that hold the shift */
    __m512i low[4], high[4]; /* halves of the reciprocal */
} rans_table;

static void rans_table_init(rans_table *to, const tp_w32_encode_table *from)
{
    _Alignas(64) uint16_t part[4][TP_MAX_SYMBOLS];
    memset(part, 0, sizeof part);
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t m, bias, shift;
        rans_constants(from->F[i], from->start[i], TP_W32_L, &m, &bias, &shift);
        part[0][i] = from->F[i];
        part[1][i] = (uint16_t)(bias << SHIFT_BITS | shift); /* bias < 2^11 */
        part[2][i] = (uint16_t)m;
        part[3][i] = (uint16_t)(m >> 16);
    }
    for (int i = 0; i < 4; i++) {
        to->F[i] = _mm512_load_si512(part[0] + 32 * i);
        to->bias[i] = _mm512_load_si512(part[1] + 32 * i);
        to->low[i] = _mm512_load_si512(part[2] + 32 * i);
        to->high[i] = _mm512_load_si512(part[3] + 32 * i);
    }
}

static void symbol_map_init(symbol_map *map, const tp_shape *shape, const tp_w32_encode_table *table)
{
    _Alignas(64) uint8_t ranks[256], codes[256];
    memset(ranks, TP_NO_ENTRY, sizeof ranks);
    map->table = table;
    map->kind = MAP_WINDOW;
    if (shape->c == 2) {
        unsigned used = 0;
        memset(codes, 15, sizeof codes);
        for (uint32_t i = 0; i < table->count && map->kind != MAP_SCALAR; i++) {
            const uint16_t symbol = table->symbol[i];
            for (unsigned half = 0; half < 2; half++) {
                const uint8_t byte = (uint8_t)(symbol >> 8 * half);
                if (codes[byte] == 15 && used < 15) codes[byte] = (uint8_t)used++;
                if (codes[byte] == 15) map->kind = MAP_SCALAR;
            }
            ranks[codes[symbol >> 8] * 16 + codes[symbol & 255]] = (uint8_t)i;
        }
        byte_table_init(&map->codes, codes);
    } else if (shape->T == 8) {
        memcpy(ranks, table->entry, (size_t)1 << (shape->T - shape->R));
    } else if (table->symbol[table->count - 1] - table->symbol[0] < 127) {
        for (uint32_t i = 0; i < table->count; i++) ranks[table->symbol[i] - table->symbol[0]] = (uint8_t)i;
    } else {
        map->kind = MAP_LOW_BYTE;
        for (uint32_t i = 0; i < table->count; i++) {
            uint8_t *rank = &ranks[table->symbol[i] & 255];
            if (*rank != TP_NO_ENTRY) map->kind = MAP_SCALAR;
            *rank = (uint8_t)i;
        }
        for (int i = 0; i < 2; i++) map->symbols[i] = _mm512_load_si512(table->symbol + 32 * i);
    }
    if (shape->c == 2)
        word_table_init(&map->pairs, ranks);
    else
        byte_table_init(&map->ranks, ranks);
}

/* 32 bytes to u16. */
static INLINE __m512i load_widened(const uint8_t *p)
{
    return _mm512_cvtepu8_epi16(_mm256_load_si256((const __m256i *)(const void *)p));
}

/* Where one group goes. */
typedef struct split {
    const symbol_map *map;
    const uint8_t *src;
    uint8_t *raw, *low; /* low: NULL if not stored */
    size_t low_stride;
    uint8_t *ranks;       /* 1024 bytes: of two steps (pairs: one) 64 */
    uint32_t *exceptions; /* room for 1024 / c */
    uint32_t position;    /* of the group's first element (pairs: pair) */
} split;

static NOINLINE void ranks_scalar(const tp_w32_encode_table *table, const uint16_t *symbols, int count,
                                  uint8_t *ranks)
{
    for (int i = 0; i < count; i++) ranks[i] = table->entry[symbols[i]];
}

/* Appends the symbols of a row that have no entry: bit i of missing is symbol i. */
static INLINE uint32_t *add_exceptions(tp_shape s, uint64_t missing, const uint8_t *src, uint32_t position,
                                       uint32_t *exceptions)
{
    const size_t step = (size_t)(s.T / 8 + s.low) * s.c;
    for (; missing; missing &= missing - 1) {
        const uint32_t i = (uint32_t)_tzcnt_u64(missing);
        *exceptions++ = (position + i) | tp_symbol_at(s, src + i * step) << (s.c == 2 ? 16 : 18);
    }
    return exceptions;
}

/* The bytes of a row of four steps, for two steps at a time. */
static INLINE void by_two_steps(__m512i a, __m512i b, uint8_t *dst)
{
    const __m512i evens = _mm512_load_si512(paired_evens);
    _mm512_store_si512(dst, _mm512_permutex2var_epi16(a, evens, b));
    const __m512i odds = _mm512_add_epi16(evens, _mm512_set1_epi16(1));
    _mm512_store_si512(dst + 64, _mm512_permutex2var_epi16(a, odds, b));
}

/* The symbols of 64 bytes of tops, u16 or u8. */
static INLINE __m512i symbols_of(tp_shape s, __m512i v)
{
    const int keep = (1 << (s.T - s.R)) - 1;
    v = _mm512_srlv_epi16(v, _mm512_set1_epi16((short)(s.rotated ? s.R - 1 : s.R)));
    return _mm512_and_si512(v, s.T == 16 ? _mm512_set1_epi16((short)keep) : _mm512_set1_epi8((char)keep));
}

/*
 * The ranks of a row's symbols (v: its tops), and which of them have none: bit i is symbol i. Of 8 bits:
 * those of half a row.
 */
static INLINE __m512i ranks_of_8(tp_shape s, const symbol_map *map, __m512i v, uint64_t *missing)
{
    __m512i rank = lookup8_128(&map->ranks, symbols_of(s, v));
    *missing = _mm512_movepi8_mask(rank);
    return rank;
}

static INLINE __m512i ranks_of_16(tp_shape s, const symbol_map *map, const __m512i v[2], uint64_t *missing)
{
    const __m512i symbol[2] = {symbols_of(s, v[0]), symbols_of(s, v[1])};
    __m512i rank;
    if (__builtin_expect(map->kind == MAP_WINDOW, 1)) {
        const __m512i first = _mm512_set1_epi16((short)map->table->symbol[0]),
                      last = _mm512_set1_epi16(127);
        __m512i a = _mm512_min_epu16(_mm512_sub_epi16(symbol[0], first), last);
        __m512i b = _mm512_min_epu16(_mm512_sub_epi16(symbol[1], first), last);
        rank = lookup8_128(&map->ranks, narrow(a, b));
        *missing = _mm512_movepi8_mask(rank);
    } else if (map->kind == MAP_LOW_BYTE) {
        rank = lookup8_256(&map->ranks, even_bytes(symbol[0], symbol[1]));
        __m512i a = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(rank));
        __m512i b = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(rank, 1));
        /* no entry: the rank is that of another symbol of the table, or 255, taken as 63 */
        *missing = _mm512_cmpneq_epi16_mask(lookup16(map->symbols, a, 64), symbol[0]) |
                   (uint64_t)_mm512_cmpneq_epi16_mask(lookup16(map->symbols, b, 64), symbol[1]) << 32;
        *missing |= _mm512_movepi8_mask(rank);
    } else {
        _Alignas(64) uint16_t symbols[64];
        _Alignas(64) uint8_t found[64];
        _mm512_store_si512(symbols, symbol[0]);
        _mm512_store_si512(symbols + 32, symbol[1]);
        ranks_scalar(map->table, symbols, 64, found);
        rank = _mm512_load_si512(found);
        *missing = _mm512_movepi8_mask(rank);
    }
    return rank;
}

/* Of 32 pairs: every even byte is a rank. */
static INLINE __m512i ranks_of_pairs(tp_shape s, const symbol_map *map, const __m512i v[2],
                                     uint64_t *missing)
{
    const __m512i place = _mm512_set1_epi16((short)(s.R - 1));
    __m512i pairs = even_bytes(_mm512_srlv_epi16(v[0], place), _mm512_srlv_epi16(v[1], place)), rank;
    if (__builtin_expect(map->kind == MAP_SCALAR, 0)) {
        _Alignas(64) uint16_t symbols[32];
        _Alignas(64) uint8_t found[32];
        _mm512_store_si512(symbols, pairs);
        ranks_scalar(map->table, symbols, 32, found);
        rank = load_widened(found);
    } else {
        /* exponents to codes, a pair's codes to an index */
        __m512i code = lookup8_256(&map->codes, pairs);
        code = _mm512_or_si512(code, _mm512_srli_epi16(code, 4));
        rank = lookup8_by_word(&map->pairs, code);
    }
    *missing = _mm512_test_epi16_mask(rank, _mm512_set1_epi16(0x80));
    return rank;
}

/*
 * Ranks of a row's symbols (v: its tops) to `ranks`, exceptions to the list. A u16 a lane, in the order of
 * `paired`: its low byte is the rank of one step, its high byte that of the next; of a pair, only the low
 * byte counts.
 */
static INLINE uint32_t *row_ranks(tp_shape s, const symbol_map *map, const __m512i v[2], const uint8_t *src,
                                  uint32_t position, uint8_t *ranks, uint32_t *exceptions)
{
    const __m512i common = _mm512_set1_epi8((char)map->table->common);
    uint64_t missing;
    if (s.T == 8) {
        __m512i rank[2];
        UNROLL for (int h = 0; h < 2; h++)
        {
            rank[h] = ranks_of_8(s, map, v[h], &missing);
            if (__builtin_expect(missing != 0, 0)) {
                rank[h] = _mm512_mask_mov_epi8(rank[h], missing, common);
                exceptions = add_exceptions(s, missing, src + 64 * h * (1 + s.low),
                                            position + 64 * (uint32_t)h, exceptions);
            }
        }
        by_two_steps(rank[0], rank[1], ranks);
        return exceptions;
    }
    __m512i rank = s.c == 2 ? ranks_of_pairs(s, map, v, &missing) : ranks_of_16(s, map, v, &missing);
    if (__builtin_expect(missing != 0, 0)) {
        rank = s.c == 2 ? _mm512_mask_mov_epi16(rank, (__mmask32)missing, common)
                        : _mm512_mask_mov_epi8(rank, missing, common);
        exceptions = add_exceptions(s, missing, src, position, exceptions);
    }
    _mm512_store_si512(ranks, _mm512_permutexvar_epi16(_mm512_load_si512(paired), rank));
    return exceptions;
}

/* ---- split ---- */

/* 64 bytes of tops from their elements; low bytes to their planes. */
static INLINE __m512i take_half(tp_shape s, const uint8_t *src, uint8_t *planes, size_t stride)
{
    __m512i a = _mm512_loadu_si512(src);
    if (s.low == 0) return a;
    __m512i b = _mm512_loadu_si512(src + 64);
    if (s.low == 1) {
        if (planes) _mm512_storeu_si512(planes, even_bytes(a, b));
        return odd_bytes(a, b);
    }
    if (s.low == 2) {
        if (planes) _mm512_storeu_si512(planes, _mm512_permutex2var_epi16(a, _mm512_load_si512(even16), b));
        return _mm512_permutex2var_epi16(a, _mm512_load_si512(odd16), b);
    }
    __m512i c = _mm512_loadu_si512(src + 128), d = _mm512_loadu_si512(src + 192);
    if (planes) { /* unit 0 of 16 elements, then unit 1 */
        __m512i ab = _mm512_permutex2var_epi16(a, _mm512_load_si512(unit01), b);
        __m512i cd = _mm512_permutex2var_epi16(c, _mm512_load_si512(unit01), d);
        _mm512_storeu_si512(planes, _mm512_shuffle_i64x2(ab, cd, 0x44));
        _mm512_storeu_si512(planes + stride, _mm512_shuffle_i64x2(ab, cd, 0xee));
    }
    __m512i ab = _mm512_permutex2var_epi16(a, _mm512_load_si512(unit23), b);
    __m512i cd = _mm512_permutex2var_epi16(c, _mm512_load_si512(unit23), d);
    if (planes) _mm512_storeu_si512(planes + 2 * stride, _mm512_shuffle_i64x2(ab, cd, 0x44));
    return _mm512_shuffle_i64x2(ab, cd, 0xee);
}

/* Returns the number of exceptions. */
static INLINE uint32_t split_template(tp_shape s, const split *to)
{
    const int J = s.T / s.R;
    const size_t elements = 512u / s.T; /* a half row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2),
                 src_step = elements * (size_t)(s.T / 8 + s.low);
    const uint32_t row_symbols = 1024u / s.T / s.c;
    const __m512i mask = _mm512_set1_epi32((int)tp_field(s, 0, s.R));
    const symbol_map *map = to->map;
    const uint8_t *src = to->src;
    uint8_t *raw = to->raw, *planes = to->low, *ranks = to->ranks;
    uint32_t *exceptions = to->exceptions, position = to->position;

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        __m512i word[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        UNROLL for (int j = 0; j < J; j++)
        {
            __m512i v[2];
            const uint8_t *row = src;
            UNROLL for (int h = 0; h < 2; h++)
            {
                v[h] = take_half(s, src, planes, to->low_stride);
                __m512i bits = _mm512_and_si512(v[h], mask);
                if (j) bits = _mm512_rolv_epi32(bits, _mm512_set1_epi32(s.R * j));
                word[h] = _mm512_or_si512(word[h], bits);
                src += src_step;
                if (planes) planes += low_step;
            }
            exceptions = row_ranks(s, map, v, row, position, ranks, exceptions);
            position += row_symbols;
            ranks += 1024 / s.T;
        }
        _mm512_storeu_si512(raw, word[0]);
        _mm512_storeu_si512(raw + 64, word[1]);
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++)
    {
        __m512i v[2];
        const uint8_t *row = src;
        UNROLL for (int h = 0; h < 2; h++)
        {
            v[h] = take_half(s, src, planes, to->low_stride);
            src += src_step;
            if (planes) planes += low_step;
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const tp_spare at = tp_spare_bits(s, j, k);
                if (at.field) {
                    uint8_t *word = to->raw + 128 * k + 64 * h;
                    __m512i bits = _mm512_and_si512(v[h], _mm512_set1_epi32((int)at.field));
                    bits = _mm512_rolv_epi32(bits, _mm512_set1_epi32(at.by));
                    _mm512_storeu_si512(word, _mm512_or_si512(_mm512_loadu_si512(word), bits));
                }
            }
        }
        exceptions = row_ranks(s, map, v, row, position, ranks, exceptions);
        position += row_symbols;
        ranks += 1024 / s.T;
    }
    return (uint32_t)(exceptions - to->exceptions);
}

static NOINLINE uint32_t split_group(const tp_shape *shape, const split *to)
{
    uint32_t count = 0;
    TP_FOR_SHAPE(shape, count = split_template, to);
    return count;
}

/* ---- rANS ---- */

/* x[0]: lanes 31 .. 16, x[1]: 15 .. 0. */
typedef struct rans_state {
    __m512i x[2];
    uint8_t *w;
} rans_state;

/*
 * A step of 32 lanes, given by lane (u16 in the order of `paired`): F, the shift in the low SHIFT_BITS, the
 * halves of the reciprocal, and the bias, above SHIFT_BITS if it comes with the shift.
 */
static INLINE void rans_step(__m512i x[2], uint8_t **w, __m512i F, __m512i shift, __m512i low, __m512i high,
                             const __m512i *bias, int K)
{
    const __m512i zero = _mm512_setzero_si512();
    const __m512i rest = _mm512_sub_epi16(_mm512_set1_epi16((short)(1 << K)), F); /* L - F */
    /* words of the states x >= F << 16 */
    __mmask16 full[2];
    full[0] = _mm512_cmpge_epu32_mask(x[0], _mm512_unpacklo_epi16(zero, F));
    full[1] = _mm512_cmpge_epu32_mask(x[1], _mm512_unpackhi_epi16(zero, F));
    const __mmask32 give = _mm512_kunpackw(full[1], full[0]);
    give_words(_mm512_permutex2var_epi16(x[0], _mm512_load_si512(even16), x[1]), give, *w);
    *w += 2 * (unsigned)_mm_popcnt_u32(give);

    UNROLL for (int h = 0; h < 2; h++)
    {
        __m512i m = h ? _mm512_unpackhi_epi16(low, high) : _mm512_unpacklo_epi16(low, high);
        __m512i r = h ? _mm512_unpackhi_epi16(rest, zero) : _mm512_unpacklo_epi16(rest, zero);
        __m512i s = h ? _mm512_unpackhi_epi16(shift, zero) : _mm512_unpacklo_epi16(shift, zero);
        __m512i b = !bias ? _mm512_srli_epi32(s, SHIFT_BITS)
                    : h   ? _mm512_unpackhi_epi16(*bias, zero)
                          : _mm512_unpacklo_epi16(*bias, zero);
        __m512i v = _mm512_mask_srli_epi32(x[h], full[h], x[h], 16);
        __m512i even = _mm512_mul_epu32(v, m);
        __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(v, 32), _mm512_srli_epi64(m, 32));
        /* the upper halves of all products, shifted */
        __m512i q = shift_right32(_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB), s);
        /* (q << K) + v - q * F + start */
        x[h] = _mm512_add_epi32(_mm512_add_epi32(v, b), _mm512_mullo_epi32(q, r));
    }
}

#define ENCODE_STREAMS 2 /* most that run interleaved */

/* A stream in the second stage. */
typedef struct ranking {
    rans_state state;
    const rans_table *table;
    const uint8_t *ranks; /* of a group */
    /* What the split of a group to come touches: prefetched only, so it may lie anywhere. */
    const uint8_t *next_src, *next_raw, *next_low[3];
} ranking;

/* Bytes of each that belong to a step. */
typedef struct split_pace {
    size_t src, raw, low;
} split_pace;

/* src_lines, low_planes: cache lines of each that belong to a step. */
static INLINE void prefetch_split(const ranking *r, const split_pace *at, int src_lines, int low_planes)
{
    UNROLL for (int k = 0; k < src_lines; k++) PREFETCH(r->next_src + at->src + 64 * k);
    UNROLL for (int k = 0; k < low_planes; k++) PREFETCH(r->next_low[k] + at->low);
    PREFETCH(r->next_raw + at->raw);
}

/* One group of count streams. */
static INLINE void rans_template(ranking *const *streams, const split_pace *per_step, int count,
                                 int entries, int src_lines, int low_planes)
{
    const int per_load = entries > 64 ? 1 : 2; /* steps; only pairs have so many entries */
    __m512i x[ENCODE_STREAMS][2];
    uint8_t *w[ENCODE_STREAMS];
    rans_table table[ENCODE_STREAMS];
    UNROLL for (int i = 0; i < count; i++)
    {
        x[i][0] = streams[i]->state.x[0];
        x[i][1] = streams[i]->state.x[1];
        w[i] = streams[i]->state.w;
        table[i] = *streams[i]->table;
    }
    split_pace at_split = {0, 0, 0};
    ROLLED for (int at = TP_GROUP - 64; at >= 0; at -= 64)
    {
        __m512i ranks[ENCODE_STREAMS];
        UNROLL for (int i = 0; i < count; i++) ranks[i] = _mm512_load_si512(streams[i]->ranks + at);
        UNROLL for (int k = per_load - 1; k >= 0; k--)
        {
            UNROLL for (int i = 0; i < count; i++)
            {
                const rans_table *t = &table[i];
                const __m512i rank = k ? _mm512_srli_epi16(ranks[i], 8) : ranks[i];
                rans_step(x[i], &w[i], lookup16(t->F, rank, entries), lookup16(t->bias, rank, entries),
                          lookup16(t->low, rank, entries), lookup16(t->high, rank, entries), NULL,
                          TP_W32_K);
                prefetch_split(streams[i], &at_split, src_lines, low_planes);
            }
            at_split.src += per_step->src;
            at_split.raw += per_step->raw;
            at_split.low += per_step->low;
        }
    }
    UNROLL for (int i = 0; i < count; i++)
    {
        streams[i]->state.x[0] = x[i][0];
        streams[i]->state.x[1] = x[i][1];
        streams[i]->state.w = w[i];
    }
}

typedef void rans_function(ranking *const *streams, const split_pace *per_step);
#define RANS(count, entries, lines, planes)                                                                \
    static void rans##count##_##entries##_##lines##_##planes(ranking *const *streams,                      \
                                                             const split_pace *per_step)                   \
    {                                                                                                      \
        rans_template(streams, per_step, count, entries, lines, planes);                                   \
    }
#define RANS_COUNTS(entries, lines, planes)                                                                \
    RANS(1, entries, lines, planes)                                                                        \
    RANS(2, entries, lines, planes)                                                                        \
    static rans_function *const rans_##entries##_##lines##_##planes[ENCODE_STREAMS] = {                    \
        rans1_##entries##_##lines##_##planes,                                                              \
        rans2_##entries##_##lines##_##planes,                                                              \
    };
RANS_COUNTS(32, 1, 0) /* bf16, fp8 */
RANS_COUNTS(64, 1, 0)
RANS_COUNTS(32, 1, 1) /* f16 */
RANS_COUNTS(64, 1, 1)
RANS_COUNTS(32, 2, 1) /* f32 */
RANS_COUNTS(64, 2, 1)
RANS_COUNTS(32, 4, 3) /* f64 */
RANS_COUNTS(64, 4, 3)
RANS_COUNTS(128, 2, 0) /* bf16 pairs */
RANS_COUNTS(128, 4, 2) /* f32 pairs: one plane, two lines */

/* By the number of streams less one. */
static rans_function *const *rans_find(const tp_shape *shape, uint32_t entries)
{
    if (shape->c == 2) return shape->low ? rans_128_4_2 : rans_128_2_0;
    if (shape->low == 6) return entries <= 32 ? rans_32_4_3 : rans_64_4_3;
    if (shape->low == 2) return entries <= 32 ? rans_32_2_1 : rans_64_2_1;
    if (shape->low == 1) return entries <= 32 ? rans_32_1_1 : rans_64_1_1;
    return entries <= 32 ? rans_32_1_0 : rans_64_1_0;
}

/* States, lane 0 first. */
static void rans_store_states(const rans_state *s, uint8_t *out)
{
    const __m512i turn = _mm512_load_si512(turn32);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi32(turn, s->x[1]));
    _mm512_storeu_si512(out + 64, _mm512_permutexvar_epi32(turn, s->x[0]));
}

/* nw words from src to dst, last first. */
static void turn_words(const uint8_t *src, size_t nw, uint8_t *dst)
{
    const __m512i turn = _mm512_load_si512(turn16);
    const uint8_t *end = src + 2 * nw;
    for (; nw >= 32; nw -= 32, dst += 64) {
        end -= 64;
        _mm512_storeu_si512(dst, _mm512_permutexvar_epi16(turn, _mm512_loadu_si512(end)));
    }
    for (; nw; nw--, dst += 2) {
        end -= 2;
        memcpy(dst, end, 2);
    }
}

/* ---- streams ---- */

/* Behind the scratch of all streams: what comes before the words of the second one, until it is known where
 * that is. */
_Static_assert(ENCODE_STREAMS *SCRATCH_STREAM + TP_STREAM_MOST_BEFORE_WORDS <= TP_ENCODE_SCRATCH,
               "encode scratch");

typedef struct encoding {
    tp_w32_encode_job *job;
    uint32_t group; /* groups left: the next is the one before */
    split to;
    ranking run;
    uint8_t *start;           /* of what comes before the words */
    uint8_t *words;           /* in order of coding */
    uint8_t *list, *list_end; /* exceptions */
    symbol_map maps[TP_MAX_SELECTED];
    rans_table tables[TP_MAX_SELECTED];
    _Alignas(64) uint8_t ranks[TP_GROUP];
} encoding;

/* Returns the entries of the largest table. */
static uint32_t encoding_start(encoding *e, const tp_shape *shape, tp_w32_encode_job *job, uint8_t *start,
                               uint8_t *scratch)
{
    const __m512i least = _mm512_set1_epi32(TP_W32_L);
    uint32_t entries = 0;
    e->job = job;
    e->group = (job->n + TP_GROUP - 1) / TP_GROUP;
    e->start = start;
    e->words = scratch;
    e->list = e->list_end = scratch + SCRATCH_STREAM;
    e->run.state.x[0] = e->run.state.x[1] = least;
    e->run.state.w = scratch;
    e->run.ranks = e->to.ranks = e->ranks;
    e->to.low_stride = (size_t)e->group * TP_GROUP * 2;
    for (unsigned i = 0; i < 1u << job->selector_bits; i++) {
        symbol_map_init(&e->maps[i], shape, job->table + i);
        rans_table_init(&e->tables[i], job->table + i);
        if (job->table[i].count > entries) entries = job->table[i].count;
    }
    return entries;
}

/* The first stage for the next group. */
static void encoding_split(encoding *e, const tp_shape *shape)
{
    const tp_w32_encode_job *job = e->job;
    const size_t element = tp_shape_element(shape), step = TP_GROUP * element;
    const uint32_t g = --e->group, groups = (job->n + TP_GROUP - 1) / TP_GROUP;
    const unsigned selector = job->selectors ? job->selectors[g] : 0;
    const tp_w32_encode_table *table = job->table + selector;
    const size_t left = job->n - (size_t)g * TP_GROUP;
    const size_t raw_step = (size_t)128 * shape->R, low_step = (size_t)TP_GROUP * (shape->low == 1 ? 1 : 2);
    uint8_t *const raw = e->start + 128;
    _Alignas(64) uint8_t padded[TP_GROUP * 8];
    uint32_t exceptions[TP_GROUP];

    e->to.src = job->src + g * step;
    if (left < TP_GROUP) {
        pad_last_group(shape, table, e->to.src, left, padded);
        e->to.src = padded;
    }
    e->to.map = &e->maps[selector];
    e->to.raw = raw + g * raw_step;
    e->to.low = shape->low && job->with_low ? raw + groups * raw_step + g * low_step : NULL;
    e->to.position = g * (TP_GROUP / shape->c);
    e->to.exceptions = exceptions;
    const uint32_t count = split_group(shape, &e->to);
    e->list -= 4 * (size_t)count;
    memcpy(e->list, exceptions, 4 * (size_t)count);
    e->run.table = &e->tables[selector];
    /* Not the next group's: that comes too soon. */
    const size_t ahead = g > 1 ? g - 2 : 0;
    e->run.next_src = job->src + ahead * step;
    e->run.next_raw = raw + ahead * raw_step;
    const uint8_t *low = raw + groups * raw_step + ahead * low_step;
    for (unsigned k = 0; k < 3; k++)
        e->run.next_low[k] =
            !e->to.low ? e->run.next_raw : low + k * (shape->c == 2 ? 64 : e->to.low_stride);
}

/* The payload, if it fits in its capacity. */
static void encoding_end(const encoding *e, const tp_shape *shape)
{
    tp_w32_encode_job *job = e->job;
    const size_t words_at = tp_stream_words_at(shape, job->n, job->with_low);
    job->nw = (uint32_t)(e->run.state.w - e->words) / 2;
    job->nx = (uint32_t)(e->list_end - e->list) / 4;
    const size_t used = tp_stream_used(shape, job->n, job->with_low, job->nw, job->nx, job->selector_bits);
    const size_t size = (size_t)tp_align(used, 128);
    if (size > job->capacity) return;
    if (e->start != job->payload) memcpy(job->payload, e->start, words_at);
    rans_store_states(&e->run.state, job->payload);
    uint8_t *out = job->payload + words_at;
    turn_words(e->words, job->nw, out);
    tp_w32_stream_end(job, out + 2 * (size_t)job->nw, e->list, size);
}

/* One group of each of count streams. */
static void encoding_groups(encoding *const *encodings, int count, const tp_shape *shape,
                            rans_function *const *run)
{
    ranking *streams[ENCODE_STREAMS];
    const size_t steps = 32u / shape->c;
    const split_pace per_step = {TP_GROUP * tp_shape_element(shape) / steps, (size_t)128 * shape->R / steps,
                                 (size_t)TP_GROUP * (shape->low == 1 ? 1 : 2) / steps};
    for (int i = 0; i < count; i++) {
        encoding_split(encodings[i], shape);
        streams[i] = &encodings[i]->run;
    }
    run[count - 1](streams, &per_step);
}

static void w32_encode(const tp_shape *shape, tp_w32_encode_job *job)
{
    encoding e, *const one[] = {&e};
    job->size = 0;
    if (tp_stream_words_at(shape, job->n, job->with_low) > job->capacity) return;
    const uint32_t entries = encoding_start(&e, shape, job, job->payload, job->scratch);
    rans_function *const *run = rans_find(shape, entries);
    while (e.group) encoding_groups(one, 1, shape, run);
    encoding_end(&e, shape);
}

static void w32_encode_two(const tp_shape *shape, tp_w32_encode_job *first, tp_w32_encode_job *second)
{
    encoding a, b;
    encoding *const both[] = {&a, &b}, *const only_b[] = {&b};
    uint8_t *const scratch = first->scratch;
    first->size = second->size = 0;
    if (tp_stream_words_at(shape, first->n, first->with_low) > first->capacity) return;
    const uint32_t entries_a = encoding_start(&a, shape, first, first->payload, scratch);
    const uint32_t entries_b =
        encoding_start(&b, shape, second, scratch + 2 * SCRATCH_STREAM, scratch + SCRATCH_STREAM);
    rans_function *const *run = rans_find(shape, entries_a > entries_b ? entries_a : entries_b);
    while (a.group > b.group) encoding_groups(both, 1, shape, run);
    while (b.group > a.group) encoding_groups(only_b, 1, shape, run);
    while (a.group) encoding_groups(both, 2, shape, run);
    encoding_end(&a, shape);
    if (!first->size) return;
    second->payload = first->payload + first->size;
    second->capacity = first->capacity - first->size;
    encoding_end(&b, shape);
}

#endif
