/*
 * Kernels for x86-64 with AVX-512 F, BW, DQ, VL, VBMI, VBMI2 and BITALG (Ice Lake, Zen 4 and later).
 *
 * The whole file is compiled for the instruction set: nothing that runs before the check for it may live
 * here.
 */
#include <immintrin.h>
#include <string.h>

#include "codec/kernels/geometry.h"
#include "codec/kernels/portable.h"

#include "codec/kernels/hashes.h"

/* Without optimisation gcc's intrinsics are macros, which pass masks as int. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE__)
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif

#define INLINE inline __attribute__((always_inline))
/* For loops of few, constant turns whose counter must fold; and for loops that must not grow. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#define PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0) /* p may be anywhere */
#define NOINLINE __attribute__((noinline))

/* Orders for permutations. RUN: i, i + step, ... */
#define RUN4(i, step) (i), (i) + (step), (i) + 2 * (step), (i) + 3 * (step)
#define RUN8(i, step) RUN4(i, step), RUN4((i) + 4 * (step), step)
#define RUN16(i, step) RUN8(i, step), RUN8((i) + 8 * (step), step)
#define RUN32(i, step) RUN16(i, step), RUN16((i) + 16 * (step), step)
#define ZIP4(i, half) (i), (half) + (i), (i) + 1, (half) + (i) + 1
#define ZIP16(i, half) ZIP4(i, half), ZIP4((i) + 2, half), ZIP4((i) + 4, half), ZIP4((i) + 6, half)
#define ZIP64(i, half) ZIP16(i, half), ZIP16((i) + 8, half), ZIP16((i) + 16, half), ZIP16((i) + 24, half)
/* Units of two registers in turn: their lower halves, then their upper ones. */
static const _Alignas(64) uint32_t zip32[32] = {ZIP16(0, 16), ZIP16(8, 16)};
static const _Alignas(64) uint16_t zip16[64] = {ZIP16(0, 32), ZIP16(8, 32), ZIP16(16, 32), ZIP16(24, 32)};
static const _Alignas(64) uint8_t zip8[128] = {ZIP64(0, 64), ZIP64(32, 64)};
static const _Alignas(64) uint8_t widen8[128] = {ZIP64(0, 0), ZIP64(32, 0)}; /* each byte twice */
/* The reverse. */
static const _Alignas(64) uint8_t even8[64] = {RUN32(0, 2), RUN32(64, 2)};
static const _Alignas(64) uint8_t odd8[64] = {RUN32(1, 2), RUN32(65, 2)};
static const _Alignas(64) uint16_t even16[32] = {RUN32(0, 2)};
static const _Alignas(64) uint16_t odd16[32] = {RUN32(1, 2)};
/* Units 0 and 1, and 2 and 3, of 16 elements of four units. */
static const _Alignas(64) uint16_t unit01[32] = {RUN16(0, 4), RUN16(1, 4)};
static const _Alignas(64) uint16_t unit23[32] = {RUN16(2, 4), RUN16(3, 4)};
/* Every fourth and eighth byte of two registers; all bytes of one. */
static const _Alignas(64) uint8_t every4[64] = {RUN32(0, 4)};
static const _Alignas(64) uint8_t every8[64] = {RUN16(0, 8)};
static const _Alignas(64) uint8_t count8[64] = {RUN32(0, 1), RUN32(32, 1)};
/* A row in the order of elements by step, last lane first: a step of 32 lanes (u16), two steps, four. */
static const _Alignas(64) uint8_t lanes1[64] = {RUN32(62, -2)};
static const _Alignas(64) uint8_t lanes2[64] = {RUN32(62, -2), RUN32(63, -2)};
static const _Alignas(64) uint8_t lanes4[128] = {
    RUN32(124, -4),
    RUN32(125, -4),
    RUN32(126, -4),
    RUN32(127, -4),
};
static const _Alignas(64) uint16_t turn16[32] = {RUN32(31, -1)};
/* Low and high halves of u32 in two registers to u16, undoing unpacklo and unpackhi. */
#define PACK8(i) RUN4(i, 2), RUN4((i) + 32, 2)
static const _Alignas(64) uint16_t pack_low[32] = {PACK8(0), PACK8(8), PACK8(16), PACK8(24)};
static const _Alignas(64) uint16_t pack_high[32] = {PACK8(1), PACK8(9), PACK8(17), PACK8(25)};

#include "codec/kernels/avx512_hash.h"
#include "codec/kernels/avx512_decode.h"
#include "codec/kernels/avx512_encode.h"
#include "codec/kernels/avx512_wide.h"
#include "codec/kernels/avx512_bytes.h"

const tp_kernels tp_kernels_avx512 = {
    .name = "avx512",
    .w32_decode = w32_decode,
    .wide_decode = wide_decode,
    .w32_encode = w32_encode,
    .w32_encode_two = w32_encode_two,
    .wide_encode = wide_encode,
    .count_symbols = count_symbols,
    .count_pairs = count_pairs,
    .group_sums = group_sums,
    .count_bytes = count_bytes,
    .plane_get = plane_get,
    .plane_put = plane_put,
    .hash64 = hash64,
    .hash128 = hash128,
    .hasher_init = hasher_init,
    .hasher_add = hasher_add,
    .hasher_end = hasher_end,
};
