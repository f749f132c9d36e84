/*
 * Counts, sums and byte planes with AVX-512. Part of avx512.c and avx512bw.c.
 */
#ifndef TP_CODEC_AVX512_BYTES_H
#define TP_CODEC_AVX512_BYTES_H

/* ---- symbols of a group ---- */

/* The symbols of 64 bytes of tops, u16 or u8. */
static INLINE __m512i take_symbols(tp_shape s, const uint8_t *src)
{
    const __m512i place = _mm512_set1_epi16((short)(s.rotated ? s.R - 1 : s.R));
    const int keep = (1 << (s.T - s.R)) - 1;
    return _mm512_and_si512(_mm512_srlv_epi16(take_half(s, src, NULL, 0), place),
                            s.T == 16 ? _mm512_set1_epi16((short)keep) : _mm512_set1_epi8((char)keep));
}

/* A whole group's symbols (c = 1) as u16, in element order. */
static INLINE void symbols_template(tp_shape s, const uint8_t *src, uint16_t *symbols)
{
    ROLLED for (int i = 0; i < TP_GROUP; i += 512 / s.T)
    {
        __m512i v = take_symbols(s, src + i * (s.T / 8 + s.low));
        if (s.T == 16) {
            _mm512_store_si512(symbols + i, v);
        } else {
            _mm512_store_si512(symbols + i, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)));
            _mm512_store_si512(symbols + i + 32, _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v, 1)));
        }
    }
}

static INLINE uint32_t sum_template(tp_shape s, const uint8_t *src)
{
    __m512i sum = _mm512_setzero_si512();
    ROLLED for (int i = 0; i < TP_GROUP; i += 512 / s.T)
    {
        __m512i v = take_symbols(s, src + i * (s.T / 8 + s.low));
        /* symbols are below 2^12: products fit i16, sums i32 */
        v = s.T == 16 ? _mm512_madd_epi16(v, _mm512_set1_epi16(1))
                      : _mm512_sad_epu8(v, _mm512_setzero_si512());
        sum = _mm512_add_epi32(sum, v);
    }
    return (uint32_t)_mm512_reduce_add_epi32(sum);
}

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

/* n < TP_GROUP elements and zeros. */
static void pad_group(const uint8_t *src, size_t n, size_t element, uint8_t padded[TP_GROUP * 8])
{
    memcpy(padded, src, n * element);
    memset(padded + n * element, 0, (TP_GROUP - n) * element);
}

/* The whole group at src + first * element, padded if there is less; *count: elements that exist. */
static const uint8_t *take_group(const uint8_t *src, size_t first, size_t n, size_t element,
                                 uint8_t padded[TP_GROUP * 8], size_t *count)
{
    const uint8_t *whole = src + first * element;
    *count = n - first;
    if (*count >= TP_GROUP) {
        *count = TP_GROUP;
        return whole;
    }
    pad_group(whole, *count, element, padded);
    return padded;
}

/* Equal symbols in a row would wait for each other's increments: two tables take turns. Larger alphabets
 * are counted in one, since clearing and adding up would cost more. */
#define COUNT_SPLIT 1024
#define COUNT_CLASSES 4

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
            uint64_t four;
            memcpy(&four, symbols + i, sizeof four);
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
                        uint32_t step, uint32_t counts[256])
{
    _Alignas(64) uint16_t symbols[TP_GROUP];
    _Alignas(64) uint8_t padded[TP_GROUP * 8], pairs[TP_GROUP / 2];
    uint32_t part[3][256];
    byte_table codes;
    const size_t element = tp_shape_element(shape);
    const tp_shape single = {
        .T = shape->T, .R = shape->R, .low = shape->low, .c = 1, .rotated = shape->rotated};
    byte_table_init(&codes, code);
    memset(part, 0, sizeof part);
    for (size_t first = 0, count; first < n; first += (size_t)step * TP_GROUP) {
        group_symbols(&single, take_group(src, first, n, element, padded, &count), symbols);
        for (size_t i = 0; i < TP_GROUP; i += 64) {
            __m512i v = narrow(_mm512_load_si512(symbols + i), _mm512_load_si512(symbols + i + 32));
            v = lookup8_256(&codes, v);
            v = _mm512_or_si512(v, _mm512_srli_epi16(v, 4));
            _mm256_store_si256((__m256i *)(void *)(pairs + i / 2), _mm512_cvtepi16_epi8(v));
        }
        size_t i = 0;
        for (; i + 4 <= count / 2; i += 4) {
            counts[pairs[i]]++;
            part[0][pairs[i + 1]]++;
            part[1][pairs[i + 2]]++;
            part[2][pairs[i + 3]]++;
        }
        for (; i < count / 2; i++) counts[pairs[i]]++;
    }
    for (int i = 0; i < 256; i++) counts[i] += part[0][i] + part[1][i] + part[2][i];
}

static void group_sums(const tp_shape *shape, const uint8_t *src, uint32_t n, uint32_t *sums)
{
    const size_t element = tp_shape_element(shape);
    uint32_t g = 0;
    for (; n >= TP_GROUP; n -= TP_GROUP, src += TP_GROUP * element) sums[g++] = group_sum(shape, src);
    if (n) {
        _Alignas(64) uint8_t padded[TP_GROUP * 8];
        pad_group(src, n, element, padded);
        sums[g] = group_sum(shape, padded);
    }
}

static void count_bytes(const uint8_t *src, size_t n, uint32_t step, uint32_t *counts)
{
    uint32_t part[4][256];
    memset(part, 0, sizeof part);
    for (size_t first = 0; first < n; first += (size_t)step * TP_GROUP) {
        const size_t last = n - first < TP_GROUP ? n : first + TP_GROUP;
        size_t i = first;
        for (; i + 8 <= last; i += 8) {
            uint64_t eight;
            memcpy(&eight, src + i, sizeof eight);
            part[0][eight & 255]++;
            part[1][eight >> 8 & 255]++;
            part[2][eight >> 16 & 255]++;
            part[3][eight >> 24 & 255]++;
            part[0][eight >> 32 & 255]++;
            part[1][eight >> 40 & 255]++;
            part[2][eight >> 48 & 255]++;
            part[3][eight >> 56]++;
        }
        for (; i < last; i++) part[0][src[i]]++;
    }
    for (int i = 0; i < 256; i++) counts[i] += part[0][i] + part[1][i] + part[2][i] + part[3][i];
}

/* ---- planes ---- */

static void plane_get(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (element == 1) {
        memcpy(dst, src, size);
        return;
    }
    if (element == 2) {
        for (; at + 128 <= size; at += 128, dst += 64)
            _mm512_storeu_si512(dst, plane_of_2(src + at, index));
    } else if (element == 4) {
        for (; at + 256 <= size; at += 256, dst += 64)
            _mm512_storeu_si512(dst, plane_of_4(src + at, index));
    } else if (element == 8) {
        for (; at + 256 <= size; at += 256, dst += 32)
            _mm256_storeu_si256((__m256i *)(void *)dst, plane_of_8(src + at, index));
    }
    tp_portable_plane_get(src + at, size - at, element, index, dst);
}

/* 64 bytes of elements, at plane the lowest byte of each. */
static INLINE __m512i load_plane(const uint8_t *plane, unsigned element)
{
    if (element == 2) return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)plane));
    if (element == 4) return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)plane));
    return _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)plane));
}

/* Returns the bytes of dst that are done. */
static INLINE size_t plane_put_template(const uint8_t *plane, size_t size, unsigned element, unsigned index,
                                        uint8_t *dst)
{
    const uint64_t places = (element == 2   ? 0x5555555555555555u
                             : element == 4 ? 0x1111111111111111u
                                            : 0x0101010101010101u)
                            << index;
    const __m128i by = _mm_cvtsi32_si128((int)(8 * index));
    size_t at = 0;
    for (; at + 64 <= size; at += 64, plane += 64 / element) {
        __m512i v = _mm512_sll_epi64(load_plane(plane, element), by);
        _mm512_storeu_si512(dst + at, _mm512_mask_mov_epi8(_mm512_loadu_si512(dst + at), places, v));
    }
    return at;
}

static void plane_put(const uint8_t *plane, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (element == 1) {
        memcpy(dst, plane, size);
        return;
    }
    if (element == 2) at = plane_put_template(plane, size, 2, index, dst);
    if (element == 4) at = plane_put_template(plane, size, 4, index, dst);
    if (element == 8) at = plane_put_template(plane, size, 8, index, dst);
    tp_portable_plane_put(plane + at / element, size - at, element, index, dst + at);
}

#endif
