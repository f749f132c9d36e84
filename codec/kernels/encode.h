/*
 * What vector encoders have in common, whatever the instruction set: division by a frequency, the padding
 * of the last group, where things are in scratch.
 */
#ifndef TP_CODEC_KERNELS_ENCODE_H
#define TP_CODEC_KERNELS_ENCODE_H

#include <string.h>

#include "codec/kernels/geometry.h"
#include "codec/kernels/portable.h"

/*
 * x / F = x * m >> 32 + shift for all x < F << 16, with m = ceil(2^(32 + shift) / F): m * F exceeds
 * 2^(32 + shift) by e < F, and x * e < F * F << 16 < 2^(32 + shift), as F / 2 <= 2^shift < F < 2^14; and
 * m < 2^32. For F = 1 that would be m = 2^32: 2^32 - 1 yields x - 1, made good by a bias larger by L - 1.
 */
static inline void rans_constants(uint32_t F, uint32_t start, uint32_t L, uint32_t *m, uint32_t *bias,
                                  uint32_t *shift)
{
    *shift = F > 2 ? 31 - (uint32_t)__builtin_clz(F - 1) : 0;
    *m = F > 1 ? (uint32_t)((((uint64_t)1 << (32 + *shift)) + F - 1) / F) : UINT32_MAX;
    *bias = F > 1 ? start : start + L - 1;
}

/*
 * The last group, of left < TP_GROUP elements at src, made whole: elements of the common symbol, all other
 * bits zero. So no other code needs to know of padding, and the missing half of an odd last pair becomes
 * what it has to be.
 */
static inline void pad_last_group(const tp_shape *shape, const tp_w32_encode_table *table,
                                  const uint8_t *src, size_t left, uint8_t padded[TP_GROUP * 8])
{
    const size_t element = tp_shape_element(shape);
    const uint32_t common = table->symbol[table->common];
    memset(padded, 0, TP_GROUP * element);
    for (size_t i = left; i < TP_GROUP; i++) {
        const uint32_t symbol = shape->c == 1 ? common : common >> 8 * (i & 1) & 255;
        const uint32_t top = tp_symbol_bits(*shape, symbol);
        memcpy(padded + i * element + shape->low, &top, shape->T / 8);
    }
    memcpy(padded, src, left * element);
}

/* Group g of n bytes to be coded as wide symbols; the last one made whole by the common byte. */
static inline const uint8_t *wide_group(const tp_wide_encode_table *table, const uint8_t *src, uint32_t n,
                                        uint32_t g, uint8_t padded[TP_GROUP])
{
    const uint8_t *whole = src + (size_t)g * TP_GROUP;
    const uint32_t left = n - g * TP_GROUP;
    if (left >= TP_GROUP) return whole;
    memset(padded, (int)table->common, TP_GROUP);
    memcpy(padded, whole, left);
    return padded;
}

/* Scratch of a stream: words, and one vector too many, then exceptions, written from the end. */
#define SCRATCH_LIST (2 * TP_ENCODE_ELEMENTS + 64)
#define SCRATCH_STREAM (SCRATCH_LIST + 4 * TP_ENCODE_ELEMENTS)
_Static_assert(SCRATCH_STREAM <= TP_ENCODE_SCRATCH, "encode scratch");

#endif
