/*
 * Wide streams (docs/format.md section 7) with AVX-512. Part of avx512.c.
 *
 * 256 symbols and 4096 slots are too many for registers. Decoding gathers, two gathers a step; encoding has
 * no slots, so its tables of 256 values, eight registers each, are permuted from the first-level cache.
 */
#ifndef TP_CODEC_AVX512_WIDE_H
#define TP_CODEC_AVX512_WIDE_H

#define WIDE_STREAMS 4 /* most that run interleaved */
_Static_assert(WIDE_STREAMS <= STREAMS, "EACH_STREAM");

typedef struct wide_flight {
    __m512i x[2]; /* lanes 0..15 and 16..31 */
    const uint8_t *w, *words_end;
    const uint32_t *slots;
    uint8_t *dst;
    tp_wide_job *job;
    uint32_t left; /* bytes */
    bool bad;
} wide_flight;

/* 16 lanes; their symbols in bits 0..7. */
static INLINE __m512i wide_step(__m512i *x, const uint8_t **w, const uint32_t *slots)
{
    __m512i slot = _mm512_and_si512(*x, _mm512_set1_epi32(TP_WIDE_L - 1));
    slot = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, slot, (const void *)slots, 4);
    __m512i F = _mm512_srli_epi32(slot, 20);
    __m512i bias = _mm512_and_si512(_mm512_srli_epi32(slot, 8), _mm512_set1_epi32(TP_WIDE_L - 1));
    __m512i v = _mm512_add_epi32(_mm512_mullo_epi32(F, _mm512_srli_epi32(*x, TP_WIDE_K)), bias);
    __mmask16 take = _mm512_cmplt_epu32_mask(v, _mm512_set1_epi32(TP_WIDE_L));
    __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)*w));
    *x = _mm512_mask_or_epi32(v, take, _mm512_slli_epi32(v, 16), _mm512_maskz_expand_epi32(take, words));
    *w += 2 * (unsigned)_mm_popcnt_u32(take);
    return _mm512_and_si512(slot, _mm512_set1_epi32(255));
}

/* One group of count streams to out. */
static INLINE void wide_group_template(wide_flight *flights, uint8_t *const *out, int count)
{
    __m512i x[STREAMS][2];
    const uint8_t *w[STREAMS];
    EACH_STREAM(i, count, x[i][0] = flights[i].x[0]; x[i][1] = flights[i].x[1]; w[i] = flights[i].w;);
    ROLLED for (size_t row = 0; row < TP_GROUP; row += 128)
    {
        __m512i v[STREAMS][2];
        EACH_STREAM(i, count, v[i][0] = v[i][1] = _mm512_setzero_si512(););
        ROLLED for (int b = 0; b < 4; b++)
        {
            /* the first symbol ends in the low byte */
            EACH_STREAM(i, count, __m512i a = wide_step(&x[i][0], &w[i], flights[i].slots);
                        v[i][0] = _mm512_or_si512(_mm512_srli_epi32(v[i][0], 8), _mm512_slli_epi32(a, 24));
                        __m512i c = wide_step(&x[i][1], &w[i], flights[i].slots);
                        v[i][1] =
                            _mm512_or_si512(_mm512_srli_epi32(v[i][1], 8), _mm512_slli_epi32(c, 24)););
        }
        EACH_STREAM(i, count, _mm512_storeu_si512(out[i] + row, v[i][0]);
                    _mm512_storeu_si512(out[i] + row + 64, v[i][1]););
    }
    EACH_STREAM(i, count, flights[i].x[0] = x[i][0]; flights[i].x[1] = x[i][1]; flights[i].w = w[i];);
}

typedef void wide_group_function(wide_flight *flights, uint8_t *const *out);
#define WIDE_GROUP(count)                                                                                  \
    static void wide_group_##count(wide_flight *flights, uint8_t *const *out)                              \
    {                                                                                                      \
        wide_group_template(flights, out, count);                                                          \
    }
WIDE_GROUP(1)
WIDE_GROUP(2)
WIDE_GROUP(3)
WIDE_GROUP(4)
static wide_group_function *const wide_groups[WIDE_STREAMS] = {wide_group_1, wide_group_2, wide_group_3,
                                                               wide_group_4};

static void wide_decode(tp_wide_job *jobs, size_t count)
{
    _Alignas(64) uint8_t tail[WIDE_STREAMS][TP_GROUP];
    wide_flight flights[WIDE_STREAMS];
    size_t next = 0;
    int n = 0;
    const __m512i least = _mm512_set1_epi32(TP_WIDE_L),
                  span = _mm512_set1_epi32((TP_WIDE_L << 16) - TP_WIDE_L);
    for (;;) {
        while (n < WIDE_STREAMS && next < count) {
            wide_flight *f = &flights[n++];
            tp_wide_job *job = &jobs[next++];
            f->bad = false;
            for (int h = 0; h < 2; h++) {
                f->x[h] = _mm512_loadu_si512(job->payload + 64 * h);
                f->bad |= _mm512_cmpge_epu32_mask(_mm512_sub_epi32(f->x[h], least), span) != 0;
            }
            f->w = job->payload + 128;
            f->words_end = f->w + (size_t)job->nw * 2;
            f->slots = job->table->slot;
            f->dst = job->dst;
            f->job = job;
            f->left = job->n;
        }
        if (n == 0) return;
        uint8_t *out[WIDE_STREAMS];
        for (int i = 0; i < n; i++) {
            wide_flight *f = &flights[i];
            out[i] = f->left < TP_GROUP ? tail[i] : f->dst;
            if (f->w > f->words_end) { /* as in w32_decode */
                f->bad = true;
                f->w = f->job->payload + 128;
            }
        }
        wide_groups[n - 1](flights, out);
        for (int i = 0; i < n;) {
            wide_flight *f = &flights[i];
            if (f->left > TP_GROUP) {
                f->left -= TP_GROUP;
                f->dst += TP_GROUP;
                i++;
                continue;
            }
            if (f->left < TP_GROUP) memcpy(f->dst, out[i], f->left);
            f->job->good = !f->bad && f->w == f->words_end &&
                           _mm512_cmpneq_epi32_mask(f->x[0], least) == 0 &&
                           _mm512_cmpneq_epi32_mask(f->x[1], least) == 0;
            n--;
            flights[i] = flights[n];
            out[i] = out[n];
        }
    }
}

/* ---- encoding ---- */

enum { WIDE_F, WIDE_BIAS, WIDE_SHIFT, WIDE_LOW, WIDE_HIGH, WIDE_PARTS };

static INLINE __m512i lookup16_256(const __m512i table[8], __m512i index, __mmask32 bit6, __mmask32 bit7)
{
    __m512i a = _mm512_permutex2var_epi16(table[0], index, table[1]);
    __m512i b = _mm512_permutex2var_epi16(table[2], index, table[3]);
    __m512i c = _mm512_permutex2var_epi16(table[4], index, table[5]);
    __m512i d = _mm512_permutex2var_epi16(table[6], index, table[7]);
    return _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(a, bit6, b), bit7,
                                 _mm512_mask_mov_epi16(c, bit6, d));
}

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
        const uint8_t *group_src = src + (size_t)g * TP_GROUP;
        if (n - g * TP_GROUP < TP_GROUP) {
            memset(padded, (int)table->common, sizeof padded);
            memcpy(padded, group_src, n - g * TP_GROUP);
            group_src = padded;
        }
        for (int row = 0; row < TP_GROUP; row += 128) {
            __m512i a = _mm512_loadu_si512(group_src + row), b = _mm512_loadu_si512(group_src + row + 64);
            _mm512_store_si512(symbols + row, _mm512_permutex2var_epi8(a, _mm512_load_si512(lanes4), b));
            _mm512_store_si512(symbols + row + 64,
                               _mm512_permutex2var_epi8(a, _mm512_load_si512(lanes4 + 64), b));
        }
        ROLLED for (int at = TP_GROUP - 32; at >= 0; at -= 32)
        {
            __m512i index =
                _mm512_cvtepu8_epi16(_mm256_load_si256((const __m256i *)(const void *)(symbols + at)));
            __mmask32 bit6 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
            __mmask32 bit7 = _mm512_test_epi16_mask(index, _mm512_set1_epi16(128));
            rans_step(x, &w, lookup16_256(tables[WIDE_F], index, bit6, bit7),
                      lookup16_256(tables[WIDE_BIAS], index, bit6, bit7),
                      lookup16_256(tables[WIDE_SHIFT], index, bit6, bit7),
                      lookup16_256(tables[WIDE_LOW], index, bit6, bit7),
                      lookup16_256(tables[WIDE_HIGH], index, bit6, bit7), TP_WIDE_K);
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
