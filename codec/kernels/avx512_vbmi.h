/*
 * Operations that have instructions of their own in VBMI, VBMI2 and BITALG. Part of avx512.c; avx512_bw.h
 * has the same ones without.
 */
#ifndef TP_CODEC_AVX512_VBMI_H
#define TP_CODEC_AVX512_VBMI_H

#include "codec/kernels/avx512_base.h"

/* Whether the ranks of a step are found for all streams before the first of them goes on. */
#define RANKS_FIRST 0

/* ---- u16 ---- */

static INLINE __m512i popcount16(__m512i v)
{
    return _mm512_popcnt_epi16(v);
}

/* v >> (by mod 16), by lane */
static INLINE __m512i shift_right16(__m512i v, __m512i by)
{
    return _mm512_shrdv_epi16(v, _mm512_setzero_si512(), by);
}

/* v >> (by mod 32), by lane of u32 */
static INLINE __m512i shift_right32(__m512i v, __m512i by)
{
    return _mm512_shrdv_epi32(v, _mm512_setzero_si512(), by);
}

/* The lanes in take get the words at w, one after the other, the others keep v. Reads 64 bytes. */
static INLINE __m512i take_words(__m512i v, __mmask32 take, const uint8_t *w)
{
    return _mm512_mask_expand_epi16(v, take, _mm512_loadu_si512(w));
}

/* The lanes in take get high << by | low >> (16 - by), the others keep v; v is 0 in the lanes in take. by:
 * 4 or 6. */
static INLINE __m512i take_bits(__m512i v, __mmask32 take, __m512i high, __m512i low, int by)
{
    return by == 4 ? _mm512_mask_shldi_epi16(v, take, high, low, 4)
                   : _mm512_mask_shldi_epi16(v, take, high, low, 6);
}

/* The lanes in give to w, one after the other. Writes 64 bytes. */
static INLINE void give_words(__m512i v, __mmask32 give, uint8_t *w)
{
    _mm512_storeu_si512(w, _mm512_maskz_compress_epi16(give, v));
}

/* ---- orders of bytes ---- */

#define ZIP64(i, half) ZIP16(i, half), ZIP16((i) + 8, half), ZIP16((i) + 16, half), ZIP16((i) + 24, half)
static const _Alignas(64) uint8_t zip8[128] = {ZIP64(0, 64), ZIP64(32, 64)};
static const _Alignas(64) uint8_t widen8[128] = {ZIP64(0, 0), ZIP64(32, 0)}; /* each byte twice */
static const _Alignas(64) uint8_t even8[64] = {RUN32(0, 2), RUN32(64, 2)};
static const _Alignas(64) uint8_t odd8[64] = {RUN32(1, 2), RUN32(65, 2)};

/* As zip16_low and zip16_high. */
static INLINE __m512i zip8_low(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(zip8), b);
}
static INLINE __m512i zip8_high(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(zip8 + 64), b);
}

/* Bytes to the upper halves of 64 u16. */
static INLINE void widen_up(__m512i bytes, __m512i v[2])
{
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaa;
    v[0] = _mm512_maskz_permutexvar_epi8(odd, _mm512_load_si512(widen8), bytes);
    v[1] = _mm512_maskz_permutexvar_epi8(odd, _mm512_load_si512(widen8 + 64), bytes);
}

/* The bytes 0, 2, ... of a and b, or 1, 3, ... */
static INLINE __m512i even_bytes(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(even8), b);
}
static INLINE __m512i odd_bytes(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi8(a, _mm512_load_si512(odd8), b);
}
/* The same as even_bytes where all others are 0. */
static INLINE __m512i narrow(__m512i a, __m512i b)
{
    return even_bytes(a, b);
}

/* ---- tables of bytes ---- */

/* 256 bytes by bytes. */
typedef struct byte_table {
    __m512i part[4];
} byte_table;

static INLINE void byte_table_init(byte_table *to, const uint8_t from[256])
{
    for (int i = 0; i < 4; i++) to->part[i] = _mm512_loadu_si512(from + 64 * i);
}

/* Indices are below 128. */
static INLINE __m512i lookup8_128(const byte_table *table, __m512i index)
{
    return _mm512_permutex2var_epi8(table->part[0], index, table->part[1]);
}

static INLINE __m512i lookup8_256(const byte_table *table, __m512i index)
{
    return _mm512_mask_mov_epi8(_mm512_permutex2var_epi8(table->part[0], index, table->part[1]),
                                _mm512_movepi8_mask(index),
                                _mm512_permutex2var_epi8(table->part[2], index, table->part[3]));
}

/* 256 bytes by u16. */
typedef struct word_table {
    byte_table bytes;
} word_table;

static INLINE void word_table_init(word_table *to, const uint8_t from[256])
{
    byte_table_init(&to->bytes, from);
}

/* bit6 and bit7 of the indices as masks; only low bytes count. */
static INLINE __m512i lookup8_by_16(const word_table *table, __m512i index, __mmask32 bit6, __mmask32 bit7)
{
    const __m512i *part = table->bytes.part;
    (void)bit6;
    return _mm512_mask_mov_epi16(_mm512_permutex2var_epi8(part[0], index, part[1]), bit7,
                                 _mm512_permutex2var_epi8(part[2], index, part[3]));
}

/* A row of bytes by four steps of u16 indices, of which only the low bytes count. */
static INLINE void row_of_256(const word_table *table, const __m512i step[4], __m512i v[2])
{
    const __m512i byte = _mm512_set1_epi16(255);
    /* byte ? a : b << 8 */
    __m512i a = _mm512_ternarylogic_epi32(byte, step[0], _mm512_slli_epi16(step[1], 8), 0xca);
    __m512i c = _mm512_ternarylogic_epi32(byte, step[2], _mm512_slli_epi16(step[3], 8), 0xca);
    v[0] = lookup8_256(&table->bytes, zip16_low(a, c));
    v[1] = lookup8_256(&table->bytes, zip16_high(a, c));
}

/* Likewise with 64 values of u16 that are below 256; indices are below 64. row_values_init makes of them
 * what row_of_64 wants. */
static INLINE void row_values_init(__m512i values[2])
{
    __m256i a = _mm512_cvtepi16_epi8(values[0]), b = _mm512_cvtepi16_epi8(values[1]);
    values[0] = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
static INLINE void row_of_64(const __m512i values[2], const __m512i step[4], int entries, __m512i v[2])
{
    (void)entries;
    __m512i a = _mm512_or_si512(step[0], _mm512_slli_epi16(step[1], 8));
    __m512i c = _mm512_or_si512(step[2], _mm512_slli_epi16(step[3], 8));
    v[0] = _mm512_permutexvar_epi8(zip16_low(a, c), values[0]);
    v[1] = _mm512_permutexvar_epi8(zip16_high(a, c), values[0]);
}

#endif
