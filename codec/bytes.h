/* Little-endian loads and stores at any address, alignment and checked u64 arithmetic. */
#ifndef TP_CODEC_BYTES_H
#define TP_CODEC_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensorpress runs on little-endian machines"
#endif

static inline uint16_t tp_load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t tp_load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t tp_load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void tp_store16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void tp_store32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void tp_store64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* x rounded up to a multiple of a, a power of two; the caller makes sure that x + a - 1 does not overflow.
 */
static inline uint64_t tp_align(uint64_t x, uint64_t a)
{
    return (x + a - 1) & ~(a - 1);
}

/* false on overflow, then *out is unspecified */
static inline bool tp_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool tp_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

#endif
