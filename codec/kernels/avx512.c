/*
 * Kernels for x86-64 with AVX-512 F, BW, DQ, VL, VBMI, VBMI2 and BITALG (Ice Lake, Zen 4 and later).
 *
 * The whole file is compiled for the instruction set: nothing that runs before the check for it may live
 * here.
 */
#include "codec/kernels/avx512_vbmi.h"
#include "codec/kernels/avx512_kernels.h"

const tp_kernels tp_kernels_avx512 = {.name = "avx512", AVX512_KERNELS};
