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

/* A step is some 85 micro-operations, and no more than 224 are under way at a time: streams one after the
 * other would wait for themselves. By llvm-mca's model of Skylake that is a sixth of the time. */
#define RANKS_FIRST 1

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

static INLINE __m512i shift_right32(__m512i v, __m512i by)
{
    return _mm512_srlv_epi32(v, _mm512_and_si512(by, _mm512_set1_epi32(31)));
}

static INLINE unsigned count_lower(uint32_t lanes)
{
    return (unsigned)_mm_popcnt_u32(lanes & 0xffff);
}

static INLINE __m512i load_widened16(const uint8_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* By halves: u32 can be expanded and compressed, u16 not. */
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
