/*
 * Counts, sums and byte planes with AVX-512. Part of avx512.c and avx512bw.c.
 */
#ifndef TP_CODEC_AVX512_BYTES_H
#define TP_CODEC_AVX512_BYTES_H

/* ---- symbols of a group ---- */

/* Of a whole group, as counts.h wants them. */
static INLINE void symbols_template(tp_shape s, const uint8_t *src, uint16_t *symbols)
{
    ROLLED for (int i = 0; i < TP_GROUP; i += 512 / s.T)
    {
        __m512i v = symbols_of(s, take_half(s, src + i * (s.T / 8 + s.low), NULL, 0));
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
        __m512i v = symbols_of(s, take_half(s, src + i * (s.T / 8 + s.low), NULL, 0));
        /* symbols are below 2^12: products fit i16, sums i32 */
        v = s.T == 16 ? _mm512_madd_epi16(v, _mm512_set1_epi16(1))
                      : _mm512_sad_epu8(v, _mm512_setzero_si512());
        sum = _mm512_add_epi32(sum, v);
    }
    return (uint32_t)_mm512_reduce_add_epi32(sum);
}

static void group_pairs(const uint8_t code[256], const uint16_t *symbols, uint8_t pairs[TP_GROUP / 2])
{
    byte_table codes;
    byte_table_init(&codes, code);
    ROLLED for (size_t i = 0; i < TP_GROUP; i += 64)
    {
        __m512i v = narrow(_mm512_load_si512(symbols + i), _mm512_load_si512(symbols + i + 32));
        v = lookup8_256(&codes, v);
        v = _mm512_or_si512(v, _mm512_srli_epi16(v, 4));
        _mm256_storeu_si256((__m256i *)(void *)(pairs + i / 2), _mm512_cvtepi16_epi8(v));
    }
}

#include "codec/kernels/counts.h"

/* ---- planes ---- */

/* 64 bytes of elements, byte `index` of each at the bottom. */
static INLINE __m512i load_elements(const uint8_t *p, unsigned index)
{
    return _mm512_srl_epi64(_mm512_loadu_si512(p), _mm_cvtsi32_si128((int)(8 * index)));
}

/* Byte `index` of every 4 and 8 bytes of 256. */
static INLINE __m512i plane_of_4(const uint8_t *p, unsigned index)
{
    __m128i part[4];
    UNROLL for (int i = 0; i < 4; i++) part[i] = _mm512_cvtepi32_epi8(load_elements(p + 64 * i, index));
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(part[1], part[0])),
                              _mm256_set_m128i(part[3], part[2]), 1);
}
static INLINE __m256i plane_of_8(const uint8_t *p, unsigned index)
{
    __m128i part[4];
    UNROLL for (int i = 0; i < 4; i++) part[i] = _mm512_cvtepi64_epi8(load_elements(p + 64 * i, index));
    return _mm256_set_m128i(_mm_unpacklo_epi64(part[2], part[3]), _mm_unpacklo_epi64(part[0], part[1]));
}

static void plane_get(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (element == 1) {
        memcpy(dst, src, size);
        return;
    }
    if (element == 2) {
        for (; at + 128 <= size; at += 128, dst += 64)
            _mm512_storeu_si512(
                dst, even_bytes(load_elements(src + at, index), load_elements(src + at + 64, index)));
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
