/*
 * Counts and sums for kernels that take a group's symbols out of its elements with vectors. Part of the
 * files of instruction sets, which define the functions declared below.
 */
#ifndef TP_CODEC_COUNTS_H
#define TP_CODEC_COUNTS_H

#include <string.h>

#include "codec/kernels/geometry.h"

/* A whole group's symbols (c = 1) as u16, in element order; their sum. */
TP_INLINE void symbols_template(tp_shape s, const uint8_t *src, uint16_t *symbols);
TP_INLINE uint32_t sum_template(tp_shape s, const uint8_t *src);
/* A whole group's symbols, below 256, as pairs of codes: code[first] | code[second] << 4. */
static void group_pairs(const uint8_t code[256], const uint16_t *symbols, uint8_t pairs[TP_GROUP / 2]);

static NOINLINE void group_symbols(const tp_shape *shape, const uint8_t *src, uint16_t *symbols)
{
    TP_FOR_SHAPE(shape, symbols_template, src, symbols);
}

static NOINLINE uint32_t group_sum(const tp_shape *shape, const uint8_t *src)
{
    uint32_t sum = 0;
    TP_FOR_SHAPE(shape, sum = sum_template, src);
    return sum;
}

/* The whole group at src + first * element, padded with zeros if there is less; *count: elements that
 * exist. */
static const uint8_t *take_group(const uint8_t *src, size_t first, size_t n, size_t element,
                                 uint8_t padded[TP_GROUP * 8], size_t *count)
{
    const uint8_t *whole = src + first * element;
    *count = n - first;
    if (*count >= TP_GROUP) {
        *count = TP_GROUP;
        return whole;
    }
    memcpy(padded, whole, *count * element);
    memset(padded + *count * element, 0, (TP_GROUP - *count) * element);
    return padded;
}

/* Equal symbols in a row would wait for each other's increments: two tables take turns. Larger alphabets
 * are counted in one, since clearing and adding up would cost more. */
#define COUNT_SPLIT 1024
#define COUNT_CLASSES TP_MAX_SELECTED /* as many as encoders have */

static void count_symbols(const tp_shape *shape, const uint8_t *src, uint32_t n, uint32_t step,
                          const uint8_t *class, uint32_t classes, uint32_t *counts)
{
    _Alignas(64) uint16_t symbols[TP_GROUP];
    _Alignas(64) uint8_t padded[TP_GROUP * 8];
    uint32_t second[COUNT_CLASSES * COUNT_SPLIT];
    const size_t element = tp_shape_element(shape);
    const uint32_t alphabet = 1u << (shape->T - shape->R);
    const bool in_two = alphabet <= COUNT_SPLIT && classes <= COUNT_CLASSES && n > TP_GROUP;
    if (in_two) memset(second, 0, classes * alphabet * sizeof *second);
    for (size_t first = 0, count; first < n; first += (size_t)step * TP_GROUP) {
        const size_t at = class ? (size_t) class[first / TP_GROUP] * alphabet : 0;
        uint32_t *const a = counts + at, *const b = in_two ? second + at : a;
        group_symbols(shape, take_group(src, first, n, element, padded, &count), symbols);
        size_t i = 0;
        for (; i + 4 <= count; i += 4) {
            const uint64_t four = tp_load64(symbols + i);
            a[four & 0xffff]++;
            b[four >> 16 & 0xffff]++;
            a[four >> 32 & 0xffff]++;
            b[four >> 48]++;
        }
        for (; i < count; i++) a[symbols[i]]++;
    }
    if (in_two)
        for (uint32_t i = 0; i < classes * alphabet; i++) counts[i] += second[i];
}

static void count_pairs(const tp_shape *shape, const uint8_t code[256], const uint8_t *src, uint32_t n,
                        uint32_t step, const uint8_t *class, uint32_t classes, uint32_t *counts)
{
    _Alignas(64) uint16_t symbols[TP_GROUP];
    _Alignas(64) uint8_t padded[TP_GROUP * 8], pairs[TP_GROUP / 2];
    uint32_t second[COUNT_CLASSES * 256];
    const size_t element = tp_shape_element(shape);
    const tp_shape single = tp_shape_single(shape);
    const bool in_two = classes <= COUNT_CLASSES && n > TP_GROUP;
    if (in_two) memset(second, 0, classes * 256 * sizeof *second);
    for (size_t first = 0, count; first < n; first += (size_t)step * TP_GROUP) {
        const size_t at = class ? (size_t) class[first / TP_GROUP] * 256 : 0;
        uint32_t *const a = counts + at, *const b = in_two ? second + at : a;
        group_symbols(&single, take_group(src, first, n, element, padded, &count), symbols);
        group_pairs(code, symbols, pairs);
        size_t i = 0;
        for (; i + 8 <= count / 2; i += 8) {
            const uint64_t eight = tp_load64(pairs + i);
            a[eight & 255]++;
            b[eight >> 8 & 255]++;
            a[eight >> 16 & 255]++;
            b[eight >> 24 & 255]++;
            a[eight >> 32 & 255]++;
            b[eight >> 40 & 255]++;
            a[eight >> 48 & 255]++;
            b[eight >> 56]++;
        }
        for (; i < count / 2; i++) a[pairs[i]]++;
    }
    if (in_two)
        for (uint32_t i = 0; i < classes * 256; i++) counts[i] += second[i];
}

static void group_sums(const tp_shape *shape, const uint8_t *src, uint32_t n, uint32_t *sums)
{
    _Alignas(64) uint8_t padded[TP_GROUP * 8];
    const size_t element = tp_shape_element(shape);
    for (size_t first = 0, count; first < n; first += TP_GROUP)
        sums[first / TP_GROUP] = group_sum(shape, take_group(src, first, n, element, padded, &count));
}

#endif
