/*
 * The operations of avx512_vbmi.h, which says what each does, with no more than F, BW, DQ and VL. Part of
 * avx512bw.c.
 *
 * What bounds these processors (Skylake, Cascade Lake) is two ports for vectors, one of which does all
 * permutations: bytes are permuted within 16, and whole registers of u16 only where nothing else will do.
 */
#ifndef TP_CODEC_AVX512_BW_H
#define TP_CODEC_AVX512_BW_H

#include "codec/kernels/avx512_base.h"

/* ---- u16 ---- */

static INLINE __m512i popcount16(__m512i v)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    const __m512i counts = _mm512_set4_epi32(0x04030302, 0x03020201, 0x03020201, 0x02010100);
    __m512i low = _mm512_shuffle_epi8(counts, _mm512_and_si512(v, nibble));
    __m512i high = _mm512_shuffle_epi8(counts, _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble));
    return _mm512_maddubs_epi16(_mm512_add_epi8(low, high), _mm512_set1_epi8(1));
}

static INLINE __m512i shift_right16(__m512i v, __m512i by)
{
    return _mm512_srlv_epi16(v, _mm512_and_si512(by, _mm512_set1_epi16(15)));
}

static INLINE unsigned count_lower(uint32_t lanes)
{
    return (unsigned)_mm_popcnt_u32(lanes & 0xffff);
}

static INLINE __m512i load_widened16(const uint8_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static INLINE __m512i take_words(__m512i v, __mmask32 take, const uint8_t *w)
{
    const __mmask16 upper = (__mmask16)_kshiftri_mask32(take, 16);
    __m512i a = _mm512_maskz_expand_epi32((__mmask16)take, load_widened16(w));
    __m512i b = _mm512_maskz_expand_epi32(upper, load_widened16(w + 2 * count_lower(take)));
    return _mm512_mask_mov_epi16(v, take, _mm512_permutex2var_epi16(a, _mm512_load_si512(even16), b));
}

static INLINE __m512i take_bits(__m512i v, __mmask32 take, __m512i high, __m512i low, int by)
{
    __m512i a = by == 4 ? _mm512_maskz_slli_epi16(take, high, 4) : _mm512_maskz_slli_epi16(take, high, 6);
    __m512i b = by == 4 ? _mm512_maskz_srli_epi16(take, low, 12) : _mm512_maskz_srli_epi16(take, low, 10);
    return _mm512_ternarylogic_epi32(v, a, b, 0xfe); /* or */
}

static INLINE void store_narrowed(uint8_t *p, __m512i v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(v));
}

static INLINE void give_words(__m512i v, __mmask32 give, uint8_t *w)
{
    const __mmask16 upper = (__mmask16)_kshiftri_mask32(give, 16);
    __m512i a = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(v));
    __m512i b = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1));
    store_narrowed(w, _mm512_maskz_compress_epi32((__mmask16)give, a));
    store_narrowed(w + 2 * count_lower(give), _mm512_maskz_compress_epi32(upper, b));
}

/* ---- orders of bytes ---- */

/* Orders of 8 bytes: the lower halves of each 16, then the upper ones; and the reverse. */
static INLINE __m512i halves_apart(void)
{
    return _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
}
static INLINE __m512i halves_joined(void)
{
    return _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
}

static INLINE __m512i zip8_low(__m512i a, __m512i b)
{
    a = _mm512_permutexvar_epi64(halves_joined(), a);
    b = _mm512_permutexvar_epi64(halves_joined(), b);
    return _mm512_unpacklo_epi8(a, b);
}
static INLINE __m512i zip8_high(__m512i a, __m512i b)
{
    a = _mm512_permutexvar_epi64(halves_joined(), a);
    b = _mm512_permutexvar_epi64(halves_joined(), b);
    return _mm512_unpackhi_epi8(a, b);
}

static INLINE void widen_up(__m512i bytes, __m512i v[2])
{
    bytes = _mm512_permutexvar_epi64(halves_joined(), bytes);
    v[0] = _mm512_unpacklo_epi8(_mm512_setzero_si512(), bytes);
    v[1] = _mm512_unpackhi_epi8(_mm512_setzero_si512(), bytes);
}

/* Within 16 bytes: the even ones, then the odd ones. */
static INLINE __m512i evens_odds(__m512i v)
{
    return _mm512_shuffle_epi8(v, _mm512_set4_epi32(0x0f0d0b09, 0x07050301, 0x0e0c0a08, 0x06040200));
}
static INLINE __m512i even_bytes(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi64(evens_odds(a), _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0),
                                     evens_odds(b));
}
static INLINE __m512i odd_bytes(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi64(evens_odds(a), _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1),
                                     evens_odds(b));
}
static INLINE __m512i narrow(__m512i a, __m512i b)
{
    return _mm512_permutexvar_epi64(halves_apart(), _mm512_packus_epi16(a, b));
}

static INLINE __m512i by_step2(__m512i v)
{
    v = _mm512_shuffle_epi8(v, _mm512_set4_epi32(0x01030507, 0x090b0d0f, 0x00020406, 0x080a0c0e));
    return _mm512_permutexvar_epi64(_mm512_set_epi64(1, 3, 5, 7, 0, 2, 4, 6), v);
}
static INLINE __m256i by_step1(__m512i v)
{
    return _mm512_castsi512_si256(by_step2(v));
}
static INLINE void by_step4(__m512i a, __m512i b, __m512i v[2])
{
    /* within 16 bytes, u32: of step 0, 1, 2, 3 */
    const __m512i order = _mm512_set4_epi32(0x03070b0f, 0x02060a0e, 0x0105090d, 0x0004080c);
    a = _mm512_shuffle_epi8(a, order);
    b = _mm512_shuffle_epi8(b, order);
    v[0] = _mm512_permutex2var_epi32(
        a, _mm512_set_epi32(1, 5, 9, 13, 17, 21, 25, 29, 0, 4, 8, 12, 16, 20, 24, 28), b);
    v[1] = _mm512_permutex2var_epi32(
        a, _mm512_set_epi32(3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30), b);
}

/* Byte `index` of the elements of 64 bytes to the bottom. */
static INLINE __m512i byte_down(const uint8_t *p, unsigned index)
{
    return _mm512_srl_epi64(_mm512_loadu_si512(p), _mm_cvtsi32_si128((int)(8 * index)));
}
static INLINE __m512i plane_of_2(const uint8_t *p, unsigned index)
{
    return even_bytes(byte_down(p, index), byte_down(p + 64, index));
}
static INLINE __m512i plane_of_4(const uint8_t *p, unsigned index)
{
    __m128i part[4];
    UNROLL for (int i = 0; i < 4; i++) part[i] = _mm512_cvtepi32_epi8(byte_down(p + 64 * i, index));
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(part[1], part[0])),
                              _mm256_set_m128i(part[3], part[2]), 1);
}
static INLINE __m256i plane_of_8(const uint8_t *p, unsigned index)
{
    __m128i part[4];
    UNROLL for (int i = 0; i < 4; i++) part[i] = _mm512_cvtepi64_epi8(byte_down(p + 64 * i, index));
    return _mm256_set_m128i(_mm_unpacklo_epi64(part[2], part[3]), _mm_unpacklo_epi64(part[0], part[1]));
}

/* ---- tables of bytes ---- */

/*
 * Rows of 16 bytes, each four times, and as the difference from the row before it, except the first of each
 * half. A lookup takes index - 16 * k in row k: that is 0 where it is negative, and else the index's low 4
 * bits choose. So the sum of the rows up to the index's own remains.
 */
typedef struct byte_table {
    __m512i row[16];
} byte_table;

static INLINE void byte_table_init(byte_table *to, const uint8_t from[256])
{
    for (int i = 0; i < 16; i++) {
        __m128i row = _mm_loadu_si128((const __m128i *)(const void *)(from + 16 * i));
        if (i % 8)
            row = _mm_xor_si128(row, _mm_loadu_si128((const __m128i *)(const void *)(from + 16 * i - 16)));
        to->row[i] = _mm512_broadcast_i64x2(row);
    }
}

/* Eight rows; of an index of 128 or more nothing comes that means anything. */
static INLINE __m512i lookup_half(const __m512i row[8], __m512i index)
{
    const __m512i width = _mm512_set1_epi8(16);
    __m512i v = _mm512_shuffle_epi8(row[0], index);
    UNROLL for (int i = 1; i < 8; i++)
    {
        index = _mm512_sub_epi8(index, width);
        v = _mm512_xor_si512(v, _mm512_shuffle_epi8(row[i], index));
    }
    return v;
}

static INLINE __m512i lookup8_128(const byte_table *table, __m512i index)
{
    return lookup_half(table->row, index);
}

static INLINE __m512i lookup8_256(const byte_table *table, __m512i index)
{
    return _mm512_mask_mov_epi8(
        lookup_half(table->row, index), _mm512_movepi8_mask(index),
        lookup_half(table->row + 8, _mm512_xor_si512(index, _mm512_set1_epi8(-128))));
}

typedef struct word_table {
    __m512i part[8];
} word_table;

static INLINE void word_table_init(word_table *to, const uint8_t from[256])
{
    for (int i = 0; i < 8; i++)
        to->part[i] =
            _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(from + 32 * i)));
}

static INLINE __m512i lookup8_by_16(const word_table *table, __m512i index, __mmask32 bit6, __mmask32 bit7)
{
    return lookup16_256(table->part, index, bit6, bit7);
}

/* The bytes of four steps of u16 as a row. */
static INLINE void row_of_steps(const __m512i step[4], __m512i v[2])
{
    __m512i a = _mm512_or_si512(step[0], _mm512_slli_epi16(step[1], 8));
    __m512i c = _mm512_or_si512(step[2], _mm512_slli_epi16(step[3], 8));
    v[0] = zip16_low(a, c);
    v[1] = zip16_high(a, c);
}

static INLINE void row_of_256(const word_table *table, const __m512i step[4], __m512i v[2])
{
    __m512i bytes[4];
    UNROLL for (int i = 0; i < 4; i++)
    {
        bytes[i] = lookup8_by_16(table, step[i], _mm512_test_epi16_mask(step[i], _mm512_set1_epi16(64)),
                                 _mm512_test_epi16_mask(step[i], _mm512_set1_epi16(128)));
    }
    row_of_steps(bytes, v);
}

static INLINE void row_values_init(__m512i values[2])
{
    (void)values;
}
static INLINE void row_of_64(const __m512i values[2], const __m512i step[4], int entries, __m512i v[2])
{
    __m512i bytes[4];
    UNROLL for (int i = 0; i < 4; i++) bytes[i] = lookup16(values, step[i], entries);
    row_of_steps(bytes, v);
}

#endif
