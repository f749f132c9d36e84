/*
 * Kernels for AArch64 with Advanced SIMD. Encoding, counts and planes are the portable code, which
 * compilers vectorise as far as it can be.
 */
#include <arm_neon.h>

#include "codec/kernels/lane_words.h"
#include "codec/kernels/portable.h"

#include "codec/kernels/hashes.h"
#include "codec/kernels/library_hasher.h"

#include "codec/kernels/entries.h"
#include "codec/kernels/neon_decode.h"

const tp_kernels tp_kernels_neon = {
    .name = "neon",
    .w32_decode = w32_decode,
    .wide_decode = wide_decode,
    .w32_encode = tp_portable_w32_encode,
    .wide_encode = tp_portable_wide_encode,
    .count_symbols = tp_portable_count_symbols,
    .count_pairs = tp_portable_count_pairs,
    .group_sums = tp_portable_group_sums,
    .count_bytes = tp_portable_count_bytes,
    .plane_get = tp_portable_plane_get,
    .plane_put = tp_portable_plane_put,
    .hash64 = hash64,
    .hash128 = hash128,
    .hasher_init = hasher_init,
    .hasher_add = hasher_add,
    .hasher_end = hasher_end,
};
