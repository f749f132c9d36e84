/*
 * Where the bits of an element lie in rows and raw words (docs/format.md section 7.2). Always inlined with
 * constant shapes, so that masks and shift counts become constants.
 */
#ifndef TP_CODEC_GEOMETRY_H
#define TP_CODEC_GEOMETRY_H

#include "codec/bytes.h"
#include "codec/kernels/compiler.h"
#include "codec/kernels/kernels.h"

#define TP_INLINE static INLINE

TP_INLINE uint32_t tp_rotl32(uint32_t v, unsigned k)
{
    return v << (k & 31) | v >> (-k & 31);
}

/* The mask of bits a .. a + len - 1 of u, where they lie in the top part, for all elements of a lane. */
TP_INLINE uint32_t tp_field(tp_shape s, unsigned a, unsigned len)
{
    uint32_t m = ((1u << len) - 1) << a;
    if (s.rotated) m = m >> 1 | (m & 1) << (s.T - 1);
    return s.T == 16 ? m * 0x10001u : m * 0x01010101u;
}

/* A symbol at its place in the top part (rotated: the sign bit above it stays clear). */
TP_INLINE uint32_t tp_symbol_bits(tp_shape s, uint32_t symbol)
{
    return symbol << (s.rotated ? s.R - 1 : s.R);
}

/* The symbol of a top part. */
TP_INLINE uint32_t tp_symbol_of(tp_shape s, uint32_t top)
{
    return (top >> (s.rotated ? s.R - 1 : s.R)) & ((1u << (s.T - s.R)) - 1);
}

/* The symbol whose first element is at src. */
TP_INLINE uint32_t tp_symbol_at(tp_shape s, const uint8_t *src)
{
    uint32_t symbol = 0;
    for (int k = 0; k < s.c; k++) {
        const uint8_t *top = src + k * (s.T / 8 + s.low) + s.low;
        symbol |= tp_symbol_of(s, s.T == 16 ? tp_load16(top) : *top) << k * (s.T - s.R);
    }
    return symbol;
}

/* The raw bits of row j from the lane's raw words, word k at words[k * TP_LANES]. */
TP_INLINE uint32_t tp_raw_bits(tp_shape s, const uint32_t *words, unsigned j)
{
    const unsigned direct = s.T / s.R, spare = s.T - direct * s.R;
    if (j < s.R * direct)
        return tp_rotl32(words[(j / direct) * TP_LANES], 32 - s.R * (j % direct)) & tp_field(s, 0, s.R);
    uint32_t v = 0;
    for (unsigned a = 0, len; spare && a < s.R; a += len) { /* spare > 0 here: else all rows are direct */
        const unsigned p = (j - s.R * direct) * s.R + a, k = p / spare, at = p % spare;
        len = spare - at < s.R - a ? spare - at : s.R - a;
        v |= tp_rotl32(words[k * TP_LANES], 32 - (direct * s.R + at - a)) & tp_field(s, a, len);
    }
    return v;
}

/* The reverse: adds the raw bits of row j to the lane's raw words. */
TP_INLINE void tp_raw_put(tp_shape s, uint32_t *words, unsigned j, uint32_t row)
{
    const unsigned direct = s.T / s.R, spare = s.T - direct * s.R;
    if (j < s.R * direct) {
        words[(j / direct) * TP_LANES] |= tp_rotl32(row & tp_field(s, 0, s.R), s.R * (j % direct));
        return;
    }
    for (unsigned a = 0, len; spare && a < s.R; a += len) {
        const unsigned p = (j - s.R * direct) * s.R + a, k = p / spare, at = p % spare;
        len = spare - at < s.R - a ? spare - at : s.R - a;
        words[k * TP_LANES] |= tp_rotl32(row & tp_field(s, a, len), direct * s.R + at - a);
    }
}

/*
 * The bits of the j-th row after the direct ones that raw word k holds. Of all spare bits the row has those
 * from j * R on, R of them, and the word those from k * spare on.
 */
typedef struct tp_spare {
    uint32_t field; /* where they lie in the top part, for all elements of a lane; 0: there are none */
    int by;         /* in the word they lie so many further left, around its end */
} tp_spare;
TP_INLINE tp_spare tp_spare_bits(tp_shape s, int j, int k)
{
    const int direct = s.T / s.R, spare = s.T - direct * s.R;
    const int from = k * spare > j * s.R ? k * spare : j * s.R;
    const int end = (k + 1) * spare < (j + 1) * s.R ? (k + 1) * spare : (j + 1) * s.R;
    const int a = from - j * s.R;
    if (from >= end) return (tp_spare){0, 0};
    return (tp_spare){tp_field(s, (unsigned)a, (unsigned)(end - from)),
                      direct * s.R + (from - k * spare) - a};
}

/* Calls FN(constant shape, ...) for the shape at hand; one line a shape of docs/format.md section 6. */
#define TP_FOR_SHAPE(shape, FN, ...)                                                                       \
    do {                                                                                                   \
        const tp_shape *const s_ = (shape);                                                                \
        switch (s_->T << 16 | s_->R << 12 | s_->low << 8 | s_->c << 4 | s_->rotated) {                     \
            TP_SHAPE_CASE(16, 7, 0, 1, 1, FN, __VA_ARGS__) /* bf16 s = 9 */                                \
            TP_SHAPE_CASE(16, 8, 0, 1, 1, FN, __VA_ARGS__) /* bf16 s = 8 */                                \
            TP_SHAPE_CASE(16, 6, 0, 1, 1, FN, __VA_ARGS__) /* bf16 s = 10 */                               \
            TP_SHAPE_CASE(16, 8, 0, 2, 1, FN, __VA_ARGS__) /* bf16 pairs */                                \
            TP_SHAPE_CASE(8, 1, 1, 1, 1, FN, __VA_ARGS__)  /* f16 s = 7 */                                 \
            TP_SHAPE_CASE(8, 2, 1, 1, 1, FN, __VA_ARGS__)  /* f16 s = 6 */                                 \
            TP_SHAPE_CASE(16, 7, 2, 1, 1, FN, __VA_ARGS__) /* f32 s = 9 */                                 \
            TP_SHAPE_CASE(16, 8, 2, 1, 1, FN, __VA_ARGS__) /* f32 s = 8 */                                 \
            TP_SHAPE_CASE(16, 6, 2, 1, 1, FN, __VA_ARGS__) /* f32 s = 10 */                                \
            TP_SHAPE_CASE(16, 8, 2, 2, 1, FN, __VA_ARGS__) /* f32 pairs */                                 \
            TP_SHAPE_CASE(16, 4, 6, 1, 1, FN, __VA_ARGS__) /* f64 s = 12 */                                \
            TP_SHAPE_CASE(16, 5, 6, 1, 1, FN, __VA_ARGS__) /* f64 s = 11 */                                \
            TP_SHAPE_CASE(8, 2, 0, 1, 1, FN, __VA_ARGS__)  /* e4m3, e5m2 s = 6 */                          \
            TP_SHAPE_CASE(8, 3, 0, 1, 1, FN, __VA_ARGS__)  /* e4m3, e5m2 s = 5 */                          \
            TP_SHAPE_CASE(8, 1, 0, 1, 1, FN, __VA_ARGS__)  /* e5m2 s = 7 */                                \
            TP_SHAPE_CASE(8, 1, 0, 1, 0, FN, __VA_ARGS__)  /* i8 s = 7 */                                  \
            TP_SHAPE_CASE(8, 2, 0, 1, 0, FN, __VA_ARGS__)  /* i8 s = 6 */                                  \
        default:                                                                                           \
            break; /* the validator lets no other shape pass */                                            \
        }                                                                                                  \
    } while (0)
#define TP_SHAPE_CASE(T_, R_, low_, c_, rotated_, FN, ...)                                                 \
    case (T_) << 16 | (R_) << 12 | (low_) << 8 | (c_) << 4 | (rotated_):                                   \
        FN((tp_shape){.T = T_, .R = R_, .low = low_, .c = c_, .rotated = rotated_}, __VA_ARGS__);          \
        break;

#endif
