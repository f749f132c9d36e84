/*
 * Kernels for x86-64 with AVX-512 F, BW, DQ and VL, and no more (Skylake-X, Cascade Lake, Cooper Lake).
 *
 * The whole file is compiled for the instruction set: nothing that runs before the check for it may live
 * here.
 */
#include "codec/kernels/avx512_bw.h"
#include "codec/kernels/avx512_kernels.h"

const tp_kernels tp_kernels_avx512bw = {.name = "avx512bw", AVX512_KERNELS};
