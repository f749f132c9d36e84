/*
 * Wide streams (docs/format.md section 7) with AVX-512. Part of avx512.c and avx512bw.c.
 *
 * As W32, but tables of 256 values of u16 fill eight registers: they are read from the first-level cache at
 * every step, and a lookup takes four permutations and three blends.
 */
#ifndef TP_CODEC_AVX512_WIDE_H
#define TP_CODEC_AVX512_WIDE_H

/* ---- decoding ---- */

#define WIDE_STREAMS 6 /* most that run interleaved */
_Static_assert(WIDE_STREAMS <= STREAMS, "EACH_STREAM");

/* A tp_wide_table by rank, that is without the symbols that do not occur; buckets as in rank_table. */
typedef struct wide_ranks {
    const tp_wide_table *source;
    __m512i bits[8];
    word_table next;
    __m512i F[8]; /* F - L */
    __m512i start[8];
    word_table symbol;
} wide_ranks;

static void wide_ranks_init(wide_ranks *to, const tp_wide_table *from)
{
    _Alignas(64) uint16_t bits[256] = {0}, F[256] = {0}, start[256] = {0};
    _Alignas(64) uint8_t next[256] = {0}, symbol[256] = {0};
    uint32_t at = 0, rank = 0;
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t size = from->F[i];
        if (!size) continue;
        F[rank] = (uint16_t)(size - TP_WIDE_L);
        start[rank] = (uint16_t)at;
        symbol[rank] = (uint8_t)i;
        if (at & 15) bits[at / 16] |= (uint16_t)(1u << ((at & 15) - 1));
        for (uint32_t b = at / 16; b <= (at + size - 1) / 16 && b < 256; b++) next[b] = (uint8_t)rank;
        at += size;
        rank++;
    }
    to->source = from;
    for (int i = 0; i < 8; i++) {
        to->bits[i] = _mm512_load_si512(bits + 32 * i);
        to->F[i] = _mm512_load_si512(F + 32 * i);
        to->start[i] = _mm512_load_si512(start + 32 * i);
    }
    word_table_init(&to->next, next);
    word_table_init(&to->symbol, symbol);
}

typedef struct wide_flight {
    __m512i q, low;
    const uint8_t *w, *words_end;
    const wide_ranks *table;
    uint16_t *ranks; /* a group's */
    uint8_t *dst;
    tp_wide_job *job;
    uint32_t left; /* bytes */
    bool bad;
} wide_flight;

static INLINE void wide_step(__m512i *q, __m512i *low, const uint8_t **w, const wide_ranks *table,
                             uint16_t *ranks)
{
    const __m512i six = _mm512_set1_epi16(64), seven = _mm512_set1_epi16(128);
    /* bits 0..7 are the bucket; above them is some of q, which no lookup sees */
    __m512i bucket = _mm512_srli_epi16(*low, 4);
    __mmask32 bit6 = _mm512_test_epi16_mask(bucket, six), bit7 = _mm512_test_epi16_mask(bucket, seven);
    __m512i bits = lookup16_256(table->bits, bucket, bit6, bit7);
    __m512i next = lookup8_by_masks(&table->next, bucket, bit6, bit7);
    __m512i rank = _mm512_sub_epi16(next, popcount16(shift_right16(bits, *low))); /* in the low bytes */
    _mm512_store_si512(ranks, rank);
    bit6 = _mm512_test_epi16_mask(rank, six);
    bit7 = _mm512_test_epi16_mask(rank, seven);
    advance(q, low, w, lookup16_256(table->F, rank, bit6, bit7),
            lookup16_256(table->start, rank, bit6, bit7), TP_WIDE_K);
}

/* One group of count streams. */
static INLINE void wide_group_template(wide_flight *flights, int count)
{
    __m512i q[STREAMS], low[STREAMS];
    const uint8_t *w[STREAMS];
    EACH_STREAM(i, count, q[i] = flights[i].q; low[i] = flights[i].low; w[i] = flights[i].w;);
    ROLLED for (size_t at = 0; at < TP_GROUP; at += 32)
    {
        EACH_STREAM(i, count, PREFETCH(w[i] + WORDS_AHEAD); PREFETCH(flights[i].dst + TP_GROUP + at);
                    wide_step(&q[i], &low[i], &w[i], flights[i].table, flights[i].ranks + at););
    }
    EACH_STREAM(i, count, flights[i].q = q[i]; flights[i].low = low[i]; flights[i].w = w[i];);
}

typedef void wide_group_function(wide_flight *flights);
#define WIDE_GROUP(count)                                                                                  \
    static void wide_group_##count(wide_flight *flights)                                                   \
    {                                                                                                      \
        wide_group_template(flights, count);                                                               \
    }
WIDE_GROUP(1)
WIDE_GROUP(2)
WIDE_GROUP(3)
WIDE_GROUP(4)
WIDE_GROUP(5)
WIDE_GROUP(6)
static wide_group_function *const wide_groups[WIDE_STREAMS] = {wide_group_1, wide_group_2, wide_group_3,
                                                               wide_group_4, wide_group_5, wide_group_6};

/* A group's ranks to bytes. */
static void wide_merge(const uint16_t *ranks, const word_table *symbol, uint8_t *dst)
{
    const word_table table = *symbol;
    ROLLED for (int i = 0; i < TP_GROUP; i += 128)
    {
        const __m512i four[4] = {_mm512_load_si512(ranks + i), _mm512_load_si512(ranks + i + 32),
                                 _mm512_load_si512(ranks + i + 64), _mm512_load_si512(ranks + i + 96)};
        __m512i v[2];
        row_of_256(&table, four, v);
        _mm512_storeu_si512(dst + i, v[0]);
        _mm512_storeu_si512(dst + i + 64, v[1]);
    }
}

static void wide_decode(tp_wide_job *jobs, size_t count)
{
    _Alignas(64) uint16_t ranks[WIDE_STREAMS][TP_GROUP];
    _Alignas(64) uint8_t tail[TP_GROUP];
    wide_ranks tables[WIDE_STREAMS]; /* by flight, unless another one has the same */
    wide_flight flights[WIDE_STREAMS];
    const size_t rounds = (count + WIDE_STREAMS - 1) / WIDE_STREAMS;
    const size_t width = count ? (count + rounds - 1) / rounds : 0;
    size_t next = 0, n = 0;

    for (size_t i = 0; i < WIDE_STREAMS; i++) tables[i].source = NULL;
    for (;;) {
        for (; n < width && next < count; n++) {
            wide_flight *f = &flights[n];
            tp_wide_job *job = &jobs[next++];
            /* one that is prepared, else one that no stream uses: there are as many as streams */
            size_t t = 0;
            while (t < WIDE_STREAMS && tables[t].source != job->table) t++;
            if (t == WIDE_STREAMS) {
                bool used[WIDE_STREAMS] = {false};
                for (size_t i = 0; i < n; i++) used[flights[i].table - tables] = true;
                for (t = 0; used[t];) t++;
                wide_ranks_init(&tables[t], job->table);
            }
            f->table = &tables[t];
            f->bad = !load_states(job->payload, TP_WIDE_K, &f->q, &f->low);
            f->w = job->payload + 128;
            f->words_end = f->w + (size_t)job->nw * 2;
            f->dst = job->dst;
            f->job = job;
            f->left = job->n;
        }
        if (n == 0) return;
        for (size_t i = 0; i < n; i++) {
            wide_flight *f = &flights[i];
            f->ranks = ranks[i];
            if (f->w > f->words_end) { /* as in w32_decode */
                f->bad = true;
                f->w = f->job->payload + 128;
            }
        }
        wide_groups[n - 1](flights);
        for (size_t i = 0; i < n;) {
            wide_flight *f = &flights[i];
            if (f->left > TP_GROUP) {
                wide_merge(f->ranks, &f->table->symbol, f->dst);
                f->left -= TP_GROUP;
                f->dst += TP_GROUP;
                i++;
                continue;
            }
            wide_merge(f->ranks, &f->table->symbol, tail);
            memcpy(f->dst, tail, f->left);
            f->job->good = !f->bad && f->w == f->words_end && states_ended(f->q, f->low, TP_WIDE_K);
            flights[i] = flights[--n];
        }
    }
}

/* ---- encoding ---- */

enum { WIDE_F, WIDE_BIAS, WIDE_SHIFT, WIDE_LOW, WIDE_HIGH, WIDE_PARTS };

static size_t wide_encode(const uint8_t *src, uint32_t n, const tp_wide_encode_table *table,
                          uint8_t *payload, size_t capacity, uint8_t *scratch, uint32_t *nw)
{
    _Alignas(64) uint16_t part[WIDE_PARTS][256];
    _Alignas(64) uint8_t symbols[TP_GROUP], padded[TP_GROUP];
    __m512i tables[WIDE_PARTS][8];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t m = 0, bias = 0, shift = 0;
        if (table->F[i]) rans_constants(table->F[i], table->start[i], TP_WIDE_L, &m, &bias, &shift);
        part[WIDE_F][i] = table->F[i];
        part[WIDE_BIAS][i] = (uint16_t)bias;
        part[WIDE_SHIFT][i] = (uint16_t)shift;
        part[WIDE_LOW][i] = (uint16_t)m;
        part[WIDE_HIGH][i] = (uint16_t)(m >> 16);
    }
    for (int k = 0; k < WIDE_PARTS; k++)
        for (int i = 0; i < 8; i++) tables[k][i] = _mm512_load_si512(part[k] + 32 * i);

    const __m512i least = _mm512_set1_epi32(TP_WIDE_L);
    __m512i x[2] = {least, least};
    uint8_t *w = scratch;
    for (uint32_t g = (n + TP_GROUP - 1) / TP_GROUP; g-- > 0;) {
        const uint8_t *group_src = wide_group(table, src, n, g, padded);
        for (int row = 0; row < TP_GROUP; row += 128)
            by_two_steps(_mm512_loadu_si512(group_src + row), _mm512_loadu_si512(group_src + row + 64),
                         symbols + row);
        ROLLED for (int at = TP_GROUP - 64; at >= 0; at -= 64)
        {
            __m512i both = _mm512_load_si512(symbols + at);
            ROLLED for (int k = 1; k >= 0; k--)
            {
                __m512i index = k ? _mm512_srli_epi16(both, 8) : both;
                __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
                __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
                __m512i bias = lookup16_256(tables[WIDE_BIAS], index, bit6, bit7);
                rans_step(x, &w, lookup16_256(tables[WIDE_F], index, bit6, bit7),
                          lookup16_256(tables[WIDE_SHIFT], index, bit6, bit7),
                          lookup16_256(tables[WIDE_LOW], index, bit6, bit7),
                          lookup16_256(tables[WIDE_HIGH], index, bit6, bit7), &bias, TP_WIDE_K);
            }
        }
    }
    *nw = (uint32_t)(w - scratch) / 2;
    const size_t used = 128 + 2 * (size_t)*nw, size = (used + 127) & ~(size_t)127;
    if (size > capacity) return 0;
    const rans_state state = {{x[0], x[1]}, w};
    rans_store_states(&state, payload);
    turn_words(scratch, *nw, payload + 128);
    memset(payload + used, 0, size - used);
    return size;
}

#endif
