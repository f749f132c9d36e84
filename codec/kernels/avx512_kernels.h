/*
 * The AVX-512 kernels, for either set of operations: avx512_vbmi.h or avx512_bw.h, which must be included
 * before.
 */
#ifndef TP_CODEC_AVX512_KERNELS_H
#define TP_CODEC_AVX512_KERNELS_H

#include "codec/kernels/avx512_hash.h"
#include "codec/kernels/avx512_decode.h"
#include "codec/kernels/avx512_encode.h"
#include "codec/kernels/avx512_wide.h"
#include "codec/kernels/avx512_bytes.h"

#define AVX512_KERNELS                                                                                     \
    .w32_decode = w32_decode, .wide_decode = wide_decode, .w32_encode = w32_encode,                        \
    .w32_encode_two = w32_encode_two, .wide_encode = wide_encode, .count_symbols = count_symbols,          \
    .count_pairs = count_pairs, .group_sums = group_sums, .count_bytes = tp_portable_count_bytes,          \
    .plane_get = plane_get, .plane_put = plane_put, .hash64 = hash64, .hash128 = hash128,                  \
    .hasher_init = hasher_init, .hasher_add = hasher_add, .hasher_end = hasher_end

#endif
