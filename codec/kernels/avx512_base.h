/*
 * What the AVX-512 kernels have in common that needs no more than F, BW, DQ and VL: macros, orders for
 * permutations, lookups of u16. Part of avx512.c and avx512bw.c.
 */
#ifndef TP_CODEC_AVX512_BASE_H
#define TP_CODEC_AVX512_BASE_H

#include <immintrin.h>
#include <string.h>

#include "codec/kernels/encode.h"
#include "codec/kernels/geometry.h"
#include "codec/kernels/portable.h"

#include "codec/kernels/hashes.h"

/* Without optimisation gcc's intrinsics are macros, which pass masks as int. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

/* The compiler knows nothing of v from here on: sums stay in the order in which they stand. */
#define KEEP(v) __asm__("" : "+v"(v))
#define PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0) /* p may be anywhere */

/* Orders for permutations. RUN: i, i + step, ... */
#define RUN4(i, step) (i), (i) + (step), (i) + 2 * (step), (i) + 3 * (step)
#define RUN8(i, step) RUN4(i, step), RUN4((i) + 4 * (step), step)
#define RUN16(i, step) RUN8(i, step), RUN8((i) + 8 * (step), step)
#define RUN32(i, step) RUN16(i, step), RUN16((i) + 16 * (step), step)
#define ZIP4(i, half) (i), (half) + (i), (i) + 1, (half) + (i) + 1
#define ZIP16(i, half) ZIP4(i, half), ZIP4((i) + 2, half), ZIP4((i) + 4, half), ZIP4((i) + 6, half)
/* Units of two registers in turn: their lower halves, then their upper ones. */
static const _Alignas(64) uint32_t zip32[32] = {ZIP16(0, 16), ZIP16(8, 16)};
static const _Alignas(64) uint16_t zip16[64] = {ZIP16(0, 32), ZIP16(8, 32), ZIP16(16, 32), ZIP16(24, 32)};
/* The reverse. */
static const _Alignas(64) uint16_t even16[32] = {RUN32(0, 2)};
static const _Alignas(64) uint16_t odd16[32] = {RUN32(1, 2)};
/* Units 0 and 1, and 2 and 3, of 16 elements of four units. */
static const _Alignas(64) uint16_t unit01[32] = {RUN16(0, 4), RUN16(1, 4)};
static const _Alignas(64) uint16_t unit23[32] = {RUN16(2, 4), RUN16(3, 4)};
static const _Alignas(64) uint16_t turn16[32] = {RUN32(31, -1)};
static const _Alignas(64) uint32_t turn32[16] = {RUN16(15, -1)};
/* Lanes so that unpacklo leaves 31 .. 16 and unpackhi 15 .. 0; and the same for every second u16 of two
 * registers. */
#define PAIRED4(i) RUN4(i, -1), RUN4((i)-16, -1)
static const _Alignas(64) uint16_t paired[32] = {PAIRED4(31), PAIRED4(27), PAIRED4(23), PAIRED4(19)};
#define EVENS4(i) RUN4(2 * (i), -2), RUN4(2 * (i)-32, -2)
static const _Alignas(64) uint16_t paired_evens[32] = {EVENS4(31), EVENS4(27), EVENS4(23), EVENS4(19)};

/* Interleave a and b: units 0, 1, ... of each (low), or the upper half's (high). */
static INLINE __m512i zip16_low(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(zip16), b);
}
static INLINE __m512i zip16_high(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi16(a, _mm512_load_si512(zip16 + 32), b);
}
static INLINE __m512i zip32_low(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi32(a, _mm512_load_si512(zip32), b);
}
static INLINE __m512i zip32_high(__m512i a, __m512i b)
{
    return _mm512_permutex2var_epi32(a, _mm512_load_si512(zip32 + 16), b);
}

/* 32, 64 or 128 values of u16 by index; the upper bits of an index are not looked at. */
static INLINE __m512i lookup16(const __m512i *table, __m512i index, int entries)
{
    if (entries <= 32) return _mm512_permutexvar_epi16(index, table[0]);
    __m512i v = _mm512_permutex2var_epi16(table[0], index, table[1]);
    if (entries <= 64) return v;
    __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    return _mm512_mask_mov_epi16(v, upper, _mm512_permutex2var_epi16(table[2], index, table[3]));
}

/* 256 values of u16; bit6 and bit7 of the indices as masks. */
static INLINE __m512i lookup16_256(const __m512i table[8], __m512i index, __mmask32 bit6, __mmask32 bit7)
{
    __m512i a = _mm512_permutex2var_epi16(table[0], index, table[1]);
    __m512i b = _mm512_permutex2var_epi16(table[2], index, table[3]);
    __m512i c = _mm512_permutex2var_epi16(table[4], index, table[5]);
    __m512i d = _mm512_permutex2var_epi16(table[6], index, table[7]);
    return _mm512_mask_mov_epi16(_mm512_mask_mov_epi16(a, bit6, b), bit7,
                                 _mm512_mask_mov_epi16(c, bit6, d));
}

#endif
