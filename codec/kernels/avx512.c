/*
 * Kernels for x86-64 with AVX-512 F, BW, DQ, VL, VBMI, VBMI2 and BITALG (Ice Lake, Zen 4 and later).
 *
 * The whole file is compiled for the instruction set: nothing that runs before the check for it may live here.
 */
#include <immintrin.h>
#include <string.h>

#include "codec/kernels/kernels.h"
#include "codec/kernels/portable.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define INLINE inline __attribute__((always_inline))
/* For loops of few, constant turns whose counter must fold; and for loops that must not grow. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#define ZIP4(i, half) (i), (half) + (i), (i) + 1, (half) + (i) + 1
#define ZIP16(i, half) ZIP4(i, half), ZIP4((i) + 2, half), ZIP4((i) + 4, half), ZIP4((i) + 6, half)
#define ZIP64(i, half) ZIP16(i, half), ZIP16((i) + 8, half), ZIP16((i) + 16, half), ZIP16((i) + 24, half)
static const _Alignas(64) uint32_t zip32[32] = {ZIP16(0, 16), ZIP16(8, 16)};
static const _Alignas(64) uint16_t zip16[64] = {ZIP16(0, 32), ZIP16(8, 32), ZIP16(16, 32), ZIP16(24, 32)};
static const _Alignas(64) uint8_t zip8[128] = {ZIP64(0, 64), ZIP64(32, 64)};
static const _Alignas(64) uint8_t widen8[128] = {ZIP64(0, 0), ZIP64(32, 0)};

#include "codec/kernels/avx512_decode.h"

static uint64_t hash64(const void *data, size_t size) { return XXH3_64bits(data, size); }

static void hash128(const void *data, size_t size, uint64_t hash[2])
{
    XXH128_hash_t h = XXH3_128bits(data, size);
    hash[0] = h.low64;
    hash[1] = h.high64;
}

const tp_kernels tp_kernels_avx512 = {
    .name = "avx512",
    .w32_decode = w32_decode,
    .wide_decode = tp_portable_wide_decode,
    .w32_encode = tp_portable_w32_encode,
    .wide_encode = tp_portable_wide_encode,
    .count_symbols = tp_portable_count_symbols,
    .group_sums = tp_portable_group_sums,
    .count_bytes = tp_portable_count_bytes,
    .plane_get = tp_portable_plane_get,
    .plane_put = tp_portable_plane_put,
    .hash64 = hash64,
    .hash128 = hash128,
};
