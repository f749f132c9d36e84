/*
 * One kernel text, four ways to compile it. A *warp* is 32 lanes that decode one chunk together:
 *
 *   CUDA          the lanes are a warp's threads; votes are the hardware's
 *   OpenCL C 1.2  the lanes are a work-group's 32 work-items; votes go through local memory
 *   OpenCL C 1.2  with TP_LANE_LOOP: one work-item is the whole warp and loops over its lanes; for CPU devices
 *   C             the same loop, so that sanitizers and fuzzers reach the kernels
 *
 * What every lane has a value of its own of is an array of HELD elements, indexed by AT inside EACH_LANE { }:
 * one element that becomes a register, or 32. Code outside EACH_LANE is the same for all lanes. Addresses of what
 * lies lane by lane are a pointer plus LANE_IN_POINTER, made once, and an index plus LANE_IN_INDEX: one of them is 0.
 *
 * OUTPUT_AT(output, offset) is a byte of the output memory. Where one address space reaches all memory (gpu/device.h)
 * the output is null and offsets are addresses: C adds them as numbers, for null plus something is no pointer there.
 */
#ifndef TP_GPU_DIALECT_H
#define TP_GPU_DIALECT_H

#if defined(__CUDACC__)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__ void __launch_bounds__(256)
/*
 * With so many work-groups of 256 on a multiprocessor at least, which bounds the registers: 6 x 40, 5 x 48, 4 x 64,
 * 3 x 80. The numbers below are the densest at which nothing is spilled.
 */
#define KERNEL_DENSE(groups) extern "C" __global__ void __launch_bounds__(256, (groups))
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800 /* 1024 threads at most */
#define STREAM_DENSITY(K, low, c, strided) 4
#define DF11_DENSITY 4
/* Loads through it stay behind stores. The compiler moves them ahead until registers run out, and then spills. */
#define STAYS_BEHIND(pointer) asm("" : "+l"(pointer))
#else
#define STREAM_DENSITY(K, low, c, strided) \
    ((c) == 2 ? 4 - (strided) : (low) == 6 ? 5 : (strided) && (K) == 12 ? 3 : 6)
#define DF11_DENSITY 6
#define STAYS_BEHIND(pointer)
#endif
#define GLOBAL
#define LOCAL
#define CONSTANT_TABLE static __device__ __constant__ const
#define CONSTANT
#define RESTRICT __restrict__
#define OUTPUT_AT(output, offset) ((output) + (offset)) /* a number here would cost what RESTRICT tells */
#define FN static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_4 _Pragma("unroll 4")
#define ROLLED _Pragma("unroll 1")
#define GROUP blockIdx.x
#define TID threadIdx.x
#define NTHREADS blockDim.x
#define BARRIER() __syncthreads()
/* Where it begins is the compiler's business: from sm_90 on 1024 bytes lie before it, whatever alignment is asked for. */
#define SHARED_PARAMETER
#define SHARED_MEMORY extern __shared__ __align__(16) u32 shared[];
#define POPC(v) ((u32)__popc(v))
#define ROTR(v, k) __funnelshift_r((v), (v), (k))
#define PRMT(a, b, s) __byte_perm((a), (b), (s))
#define MULHI64(a, b) __umul64hi((a), (b))
#define SHL64(a, b, n) __funnelshift_lc((b), (a), (n)) /* the high half of (a, b) << n, n up to 32 */
#define TOP_BIT(v) ((u32)(31 - __clz((int)(v))))         /* of what is not 0 */
#define RAISE(flag) atomicOr((flag), 1u)                 /* in local memory, by any of the threads */
#define STORE2(p, a, b) (*(uint2 *)(p) = make_uint2((a), (b)))
#define STORE4(p, a, b, c, d) (*(uint4 *)(p) = make_uint4((a), (b), (c), (d)))
/* The value is the same in all lanes. Says so to the compiler, which else makes every branch on it a costly one. */
#define UNIFORM(v) __shfl_sync(~0u, (v), 0)

/* What was read through the pointer is read again from here on, rather than kept in registers across a loop. */
#define READ_AGAIN(pointer) asm volatile("" : "+l"(pointer))

#define HELD 1
#define AT 0
#define EACH_LANE
#define LANE (wp->lane)
#define LANE_PARAMETER
#define LANE_ARGUMENT
#define LANE_IN_POINTER LANE
#define LANE_IN_INDEX 0
#define EACH_WARP(count) const u32 warp = UNIFORM(TID >> 5);
#define WARP_STATE u32 lane;
#define WARP_BEGIN(w, memory) (w).lane = TID & 31;
#define WARP_FENCE() __syncwarp()
#define VOTE(mask, condition) mask = __ballot_sync(~0u, (condition))
#define FROM_LANE_XOR(to, from, k) to[0] = __shfl_xor_sync(~0u, from[0], (k))
#define VOTE_WORDS 0

#else /* OpenCL C and C */

#ifdef __OPENCL_VERSION__
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
#define KERNEL __kernel void
#define KERNEL_DENSE(groups) KERNEL
#define GLOBAL __global
#define LOCAL __local
#define CONSTANT_TABLE __constant
#define CONSTANT __constant
#define RESTRICT restrict
#define OUTPUT_AT(output, offset) ((output) + (offset))
#define FN static inline
#define GROUP ((u32)get_group_id(0))
#define SHARED_PARAMETER , __local u32 *shared
#define POPC(v) popcount((u32)(v))
#define MULHI64(a, b) mul_hi((u64)(a), (u64)(b))
#define TOP_BIT(v) (31 - clz((u32)(v)))
#define RAISE(flag) atomic_or((flag), 1u)
#define STORE2(p, a, b) (*(__global uint2 *)(p) = (uint2)((a), (b)))
#define STORE4(p, a, b, c, d) (*(__global uint4 *)(p) = (uint4)((a), (b), (c), (d)))
#else
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#define KERNEL void
#define KERNEL_DENSE(groups) KERNEL
#define GLOBAL
#define LOCAL
#define CONSTANT_TABLE static const
#define CONSTANT
#define RESTRICT restrict
#define OUTPUT_AT(output, offset) ((u8 *)((uintptr_t)(output) + (uintptr_t)(offset)))
#define FN static inline
#define GROUP group
#define SHARED_PARAMETER , u32 *shared, u32 group
#define POPC(v) ((u32)__builtin_popcount(v))
#define MULHI64(a, b) ((u64)((unsigned __int128)(a) * (b) >> 64))
#define TOP_BIT(v) ((u32)(31 - __builtin_clz(v)))
#define RAISE(flag) (*(flag) = 1)
#define STORE2(p, a, b) (((u32 *)(p))[0] = (a), ((u32 *)(p))[1] = (b))
#define STORE4(p, a, b, c, d) (STORE2(p, a, b), STORE2((p) + 8, c, d))
#define TP_LANE_LOOP
#endif

#define UNROLL
#define UNROLL_BY_4
#define ROLLED
#define SHARED_MEMORY
#define UNIFORM(v) (v)
#define READ_AGAIN(pointer)
#define STAYS_BEHIND(pointer)
#define SHL64(a, b, n) ((u32)(((u64)(a) << 32 | (b)) << (n) >> 32))
#define ROTR(v, k) ((u32)(v) >> ((k) & 31) | (u32)(v) << (-(k) & 31))
FN u32 prmt_byte(u32 a, u32 b, u32 i) { return ((i & 4 ? b : a) >> 8 * (i & 3)) & 255; }
#define PRMT(a, b, s) \
    (prmt_byte((a), (b), (s)) | prmt_byte((a), (b), (s) >> 4) << 8 | prmt_byte((a), (b), (s) >> 8) << 16 | \
     prmt_byte((a), (b), (s) >> 12) << 24)

#ifdef TP_LANE_LOOP
#define TID 0u
#define NTHREADS 1u
#define BARRIER()
#define HELD 32
#define AT lane
#define EACH_LANE for (u32 lane = 0; lane < 32; lane++)
#define LANE lane
#define LANE_PARAMETER , u32 lane
#define LANE_ARGUMENT , lane
#define LANE_IN_POINTER 0
#define LANE_IN_INDEX lane
#define EACH_WARP(count) for (u32 warp = 0; warp < (count); warp++)
#define WARP_STATE u32 unused;
#define WARP_BEGIN(w, memory) (w).unused = 0;
#define WARP_FENCE()
#define VOTE(mask, condition) \
    { \
        mask = 0; \
        EACH_LANE mask |= (u32)((condition) != 0) << lane; \
    }
#define FROM_LANE_XOR(to, from, k) EACH_LANE to[lane] = from[lane ^ (k)]
#define VOTE_WORDS 0
#else
#define TID ((u32)get_local_id(0))
#define NTHREADS ((u32)get_local_size(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define HELD 1
#define AT 0
#define EACH_LANE
#define LANE (wp->lane)
#define LANE_PARAMETER
#define LANE_ARGUMENT
#define LANE_IN_POINTER LANE
#define LANE_IN_INDEX 0
/* One warp a work-group, so that a barrier is the warp's. */
#define EACH_WARP(count) const u32 warp = 0;
#define WARP_STATE u32 lane, turn; LOCAL u32 *vote;
#define WARP_BEGIN(w, memory) \
    (w).lane = TID & 31; \
    (w).turn = 0; \
    (w).vote = (memory); \
    if (TID == 0) (memory)[0] = (memory)[1] = (memory)[2] = 0; \
    BARRIER();
#define WARP_FENCE() BARRIER()
/*
 * Three words take turns, so that one barrier a vote is enough: while this one is voted in and read, the next is
 * cleared, and the one read last time may still be read by slower lanes.
 */
#define VOTE(mask, condition) \
    { \
        const u32 next_ = wp->turn == 2 ? 0 : wp->turn + 1; \
        if (wp->lane == 0) wp->vote[next_] = 0; \
        if (condition) atomic_or(&wp->vote[wp->turn], 1u << wp->lane); \
        BARRIER(); \
        mask = wp->vote[wp->turn]; \
        wp->turn = next_; \
    }
#define FROM_LANE_XOR(to, from, k) \
    { \
        LOCAL u64 *exchange_ = (LOCAL u64 *)(wp->vote + 4); \
        exchange_[wp->lane] = from[0]; \
        BARRIER(); \
        to[0] = exchange_[wp->lane ^ (k)]; \
        BARRIER(); \
    }
#define VOTE_WORDS (4 + 64)
#endif

#endif

typedef struct warp_state {
    WARP_STATE
} warp_state;

/* Tables in local memory. */
#ifdef __CUDACC__
typedef u32 table_base; /* an address in shared memory */
FN table_base table_at(const u32 *shared) { return (u32)__cvta_generic_to_shared(shared); }
#else
typedef LOCAL const u32 *table_base;
#define table_at(shared) (shared)
#endif

/* Lanes below this one, as bits. */
#define LANES_BELOW ((1u << LANE) - 1)

/* (a & mask) | (b & ~mask); the compiler would make two of it. */
FN u32 select_bits(u32 mask, u32 a, u32 b)
{
#ifdef __CUDACC__
    u32 both;
    asm("lop3.b32 %0,%1,%2,%3,0xca;" : "=r"(both) : "r"(mask), "r"(a), "r"(b));
    return both;
#else
    return (a & mask) | (b & ~mask);
#endif
}

#endif
