/* What compilers are told about functions and loops of kernels. */
#ifndef TP_CODEC_KERNELS_COMPILER_H
#define TP_CODEC_KERNELS_COMPILER_H

#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
/* For loops of few, constant turns whose counter must fold; and for loops that must not grow. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif

#endif
