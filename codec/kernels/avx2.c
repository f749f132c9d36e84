/*
 * Kernels for x86-64 with AVX2 and BMI2 (Haswell, Zen and later).
 *
 * The whole file is compiled for the instruction set: nothing that runs before the check for it may live
 * here.
 */
#include <immintrin.h>

#include "codec/kernels/lane_words.h"
#include "codec/kernels/portable.h"

#include "codec/kernels/hashes.h"
#include "codec/kernels/library_hasher.h"

#include "codec/kernels/entries.h"
#include "codec/kernels/avx2_decode.h"

#include "codec/kernels/counts.h"
#include "codec/kernels/entries_encode.h"
#include "codec/kernels/avx2_encode.h"

const tp_kernels tp_kernels_avx2 = {
    .name = "avx2",
    .w32_decode = w32_decode,
    .wide_decode = wide_decode,
    .w32_encode = w32_encode,
    .wide_encode = wide_encode,
    .count_symbols = count_symbols,
    .count_pairs = count_pairs,
    .group_sums = group_sums,
    .count_bytes = tp_portable_count_bytes,
    .plane_get = plane_get,
    .plane_put = plane_put,
    .hash64 = hash64,
    .hash128 = hash128,
    .hasher_init = hasher_init,
    .hasher_add = hasher_add,
    .hasher_end = hasher_end,
};
