/*
 * Elements to W32, pairs and wide streams (docs/format.md section 7) with AVX2, and counts. Part of avx2.c.
 *
 * The two stages of entries_encode.h. Steps: register 2 * p + h holds the lanes 16 * p + h, + 2, + 4, ... +
 * 14, so that the words of two registers interleave to 16 lanes in ascending order. Of a register's
 * entries, those of its even and of its odd positions come to two registers: where multiplications want
 * them.
 */
#ifndef TP_CODEC_AVX2_ENCODE_H
#define TP_CODEC_AVX2_ENCODE_H

/* ---- elements ---- */

/* 16 bytes at p in the lower half, 16 bytes at p + apart in the upper. */
static INLINE __m256i load_halves(const uint8_t *p, size_t apart)
{
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low),
                                   _mm_loadu_si128((const __m128i *)(const void *)(p + apart)), 1);
}

/* The upper or lower halves of the units of two registers from load_halves, in element order. */
static INLINE __m256i upper_bytes(__m256i a, __m256i b)
{
    return _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
}
static INLINE __m256i lower_bytes(__m256i a, __m256i b)
{
    const __m256i byte = _mm256_set1_epi16(255);
    return _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
}
static INLINE __m256i upper_words(__m256i a, __m256i b)
{
    return _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
}
static INLINE __m256i lower_words(__m256i a, __m256i b)
{
    const __m256i zero = _mm256_setzero_si256();
    return _mm256_packus_epi32(_mm256_blend_epi16(a, zero, 0xaa), _mm256_blend_epi16(b, zero, 0xaa));
}

/* 32 bytes of tops from their elements; low bytes to their planes. */
static INLINE __m256i take_quarter(tp_shape s, const uint8_t *src, uint8_t *planes, size_t stride)
{
    if (s.low == 0) return load256(src);
    if (s.low == 1 || s.low == 2) {
        __m256i a = load_halves(src, 32), b = load_halves(src + 16, 32);
        if (planes) store256(planes, s.low == 1 ? lower_bytes(a, b) : lower_words(a, b));
        return s.low == 1 ? upper_bytes(a, b) : upper_words(a, b);
    }
    /* unit k of two elements becomes dword k; then dwords are transposed */
    const __m256i units =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    __m256i a = _mm256_shuffle_epi8(load_halves(src, 64), units);
    __m256i b = _mm256_shuffle_epi8(load_halves(src + 16, 64), units);
    __m256i c = _mm256_shuffle_epi8(load_halves(src + 32, 64), units);
    __m256i d = _mm256_shuffle_epi8(load_halves(src + 48, 64), units);
    if (planes) {
        __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        store256(planes, _mm256_unpacklo_epi64(ab, cd));
        store256(planes + stride, _mm256_unpackhi_epi64(ab, cd));
    }
    __m256i ab = _mm256_unpackhi_epi32(a, b), cd = _mm256_unpackhi_epi32(c, d);
    if (planes) store256(planes + 2 * stride, _mm256_unpacklo_epi64(ab, cd));
    return _mm256_unpackhi_epi64(ab, cd);
}

/* The symbols of 32 bytes of tops, u16 or u8. */
static INLINE __m256i symbols_of(tp_shape s, __m256i v)
{
    const int keep = (1 << (s.T - s.R)) - 1;
    v = _mm256_srli_epi16(v, s.rotated ? s.R - 1 : s.R);
    return _mm256_and_si256(v, s.T == 16 ? _mm256_set1_epi16((short)keep) : _mm256_set1_epi8((char)keep));
}

/* ---- keys ---- */

/* u16 keys of 16 symbols; pairs: u32 keys of 8 pairs of exponents. */
static INLINE __m256i keys_of(tp_shape s, const key_map *map, __m256i v)
{
    const __m256i first = _mm256_set1_epi16((short)map->first);
    v = symbols_of(s, v);
    if (__builtin_expect(map->window, 1)) {
        v = _mm256_min_epu16(_mm256_sub_epi16(v, first), _mm256_set1_epi16(s.c == 1 ? 255 : 15));
        return s.c == 1 ? v : _mm256_madd_epi16(v, _mm256_set1_epi32(1 | 16 << 16));
    }
    _Alignas(32) uint16_t symbols[16];
    if (s.c == 2) v = _mm256_or_si256(v, _mm256_srli_epi32(v, 8)); /* in every other u16 */
    store256(symbols, v);
    keys_by_table(map, symbols, 16, symbols);
    v = load256(symbols);
    return s.c == 1 ? v : _mm256_and_si256(v, _mm256_set1_epi32(255));
}

/* The keys of a row (v: its tops), as key_at finds them. */
static INLINE void row_keys(tp_shape s, const key_map *map, const __m256i v[4], uint8_t *keys)
{
    if (s.T == 8) {
        UNROLL for (int h = 0; h < 4; h++) store256(keys + 32 * h, symbols_of(s, v[h]));
        return;
    }
    __m256i key[4];
    UNROLL for (int h = 0; h < 4; h++) key[h] = keys_of(s, map, v[h]);
    if (s.c == 1) {
        store256(keys, _mm256_packus_epi16(key[0], key[1]));
        store256(keys + 32, _mm256_packus_epi16(key[2], key[3]));
    } else {
        store256(keys, _mm256_packus_epi16(_mm256_packus_epi32(key[0], key[1]),
                                           _mm256_packus_epi32(key[2], key[3])));
    }
}

/* Where in a row of so many steps the first key of a lane is; the others follow it. Packing two registers
 * puts the first 8 units of both into the lower half of the result. */
static INLINE size_t key_at(int row_steps, int lane)
{
    if (row_steps == 4) return 4 * (size_t)lane;
    const int unit = lane * row_steps, per_register = 8 * row_steps, of = unit / per_register;
    if (row_steps == 2) return (size_t)(of / 2 * 32 + unit % 16 / 8 * 16 + of % 2 * 8 + unit % 8);
    return (size_t)(unit % 8 / 4 * 16 + of * 4 + unit % 4);
}

/* ---- split ---- */

static INLINE __m256i rotl32(__m256i v, int by)
{
    return by ? _mm256_or_si256(_mm256_slli_epi32(v, by), _mm256_srli_epi32(v, 32 - by)) : v;
}

static INLINE void split_template(tp_shape s, const split *to)
{
    const int J = s.T / s.R;
    const size_t elements = 256u / s.T; /* a quarter row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2);
    const size_t src_step = elements * (size_t)(s.T / 8 + s.low);
    const size_t row_symbols = 1024u / s.T / s.c;
    const __m256i mask = _mm256_set1_epi32((int)tp_field(s, 0, s.R));
    const key_map *map = to->map;
    const uint8_t *src = to->src;
    uint8_t *raw = to->raw, *planes = to->low, *keys = to->keys;

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        __m256i word[4];
        UNROLL for (int j = 0; j < J; j++, keys += row_symbols)
        {
            __m256i v[4];
            UNROLL for (int h = 0; h < 4; h++, src += src_step)
            {
                v[h] = take_quarter(s, src, planes, to->low_stride);
                if (planes) planes += low_step;
                __m256i bits = rotl32(_mm256_and_si256(v[h], mask), s.R * j);
                word[h] = j ? _mm256_or_si256(word[h], bits) : bits;
            }
            row_keys(s, map, v, keys);
        }
        UNROLL for (int h = 0; h < 4; h++) store256(raw + 32 * h, word[h]);
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++, keys += row_symbols)
    {
        __m256i v[4];
        UNROLL for (int h = 0; h < 4; h++, src += src_step)
        {
            v[h] = take_quarter(s, src, planes, to->low_stride);
            if (planes) planes += low_step;
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const tp_spare at = tp_spare_bits(s, j, k);
                if (at.field) {
                    uint8_t *word = to->raw + 128 * k + 32 * h;
                    __m256i bits = _mm256_and_si256(v[h], _mm256_set1_epi32((int)at.field));
                    bits = rotl32(bits, at.by);
                    store256(word, _mm256_or_si256(load256(word), bits));
                }
            }
        }
        row_keys(s, map, v, keys);
    }
}

/* ---- steps ---- */

/* The lane at a position of a register. */
static INLINE int lane_of(int reg, int position)
{
    return 16 * (reg / 2) + reg % 2 + 2 * position;
}

/* The entries of four of a register's lanes: positions at, at + 2, at + 4, at + 6. */
static INLINE __m256i four_entries(const uint64_t *entries, const uint8_t *keys, int row_steps, int reg,
                                   int at)
{
    __m128i part[2];
    UNROLL for (int i = 0; i < 2; i++)
    {
        const uint64_t *a = entries + keys[key_at(row_steps, lane_of(reg, at + 4 * i))];
        const uint64_t *b = entries + keys[key_at(row_steps, lane_of(reg, at + 4 * i + 2))];
        __m128i lower = _mm_loadl_epi64((const __m128i *)(const void *)a);
        part[i] = _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(lower), (const __m64 *)(const void *)b));
    }
    return _mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1);
}

/* The words of the lanes that give one (all u16 of 8 lanes, and a mask) to before *w. */
static INLINE void put_words(uint8_t **w, __m128i words, unsigned give)
{
    const __m128i order = _mm_loadu_si128((const __m128i *)(const void *)&gives[give]);
    _mm_storeu_si128((__m128i *)(void *)(*w - 16), _mm_shuffle_epi8(words, order));
    *w -= 2 * (unsigned)_mm_popcnt_u32(give);
}

/* All lanes encode a symbol each. Returns the upper halves of their entries, or'ed. */
static INLINE __m256i encode_step(__m256i x[4], uint8_t **w, const uint64_t *entries, const uint8_t *keys,
                                  int row_steps, int K)
{
    const __m256i L = _mm256_set1_epi32(1 << K), sixteen = _mm256_set1_epi32(16);
    __m256i seen = _mm256_setzero_si256();
    UNROLL for (int p = 1; p >= 0; p--)
    {
        __m256i keep[2], *const pair = x + 2 * p;
        const __m256i words = _mm256_blend_epi16(pair[0], _mm256_slli_epi32(pair[1], 16), 0xaa);
        UNROLL for (int h = 0; h < 2; h++)
        {
            const __m256i even = four_entries(entries, keys, row_steps, 2 * p + h, 0);
            const __m256i odd = four_entries(entries, keys, row_steps, 2 * p + h, 1);
            const __m256i upper = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
            seen = _mm256_or_si256(seen, upper);
            const __m256i limit = _mm256_and_si256(upper, _mm256_set1_epi32(ENTRY_F));
            keep[h] = _mm256_cmpgt_epi32(limit, pair[h]); /* both below 2^31 */
            const __m256i v = _mm256_srlv_epi32(pair[h], _mm256_andnot_si256(keep[h], sixteen));
            __m256i q = _mm256_blend_epi32(_mm256_srli_epi64(_mm256_mul_epu32(v, even), 32),
                                           _mm256_mul_epu32(_mm256_srli_epi64(v, 32), odd), 0xaa);
            q = _mm256_srlv_epi32(q, _mm256_srli_epi32(upper, ENTRY_SHIFT));
            /* (q << K) + v - q * F + start */
            const __m256i rest = _mm256_sub_epi32(L, _mm256_srli_epi32(limit, 16));
            const __m256i bias = _mm256_and_si256(upper, _mm256_set1_epi32(ENTRY_BIAS));
            pair[h] = _mm256_add_epi32(_mm256_add_epi32(v, bias), _mm256_mullo_epi32(q, rest));
        }
        const __m256i kept = _mm256_blend_epi16(keep[0], keep[1], 0xaa);
        const unsigned give = ~(unsigned)_mm256_movemask_epi8(_mm256_packs_epi16(kept, kept));
        put_words(w, _mm256_extracti128_si256(words, 1), give >> 16 & 255);
        put_words(w, _mm256_castsi256_si128(words), give & 255);
    }
    return seen;
}

static INLINE uint32_t encode_template(coder *s, const uint64_t *entries, const uint8_t *keys,
                                       const split_ahead *next, int row_steps, int K)
{
    __m256i x[4];
    uint8_t *w = s->w;
    uint32_t marked = 0;
    split_ahead ahead = *next;
    UNROLL for (int i = 0; i < 4; i++) x[i] = load256(s->x + 8 * i);
    ROLLED for (int t = row_steps == 1 ? 15 : 31; t >= 0; t--)
    {
        const uint8_t *row = keys + t / row_steps * (32 * row_steps);
        prefetch_split(&ahead);
        const __m256i seen = encode_step(x, &w, entries, row + t % row_steps, row_steps, K);
        marked = marked << 1 | !_mm256_testz_si256(seen, _mm256_set1_epi32(ENTRY_MARK));
    }
    UNROLL for (int i = 0; i < 4; i++) store256(s->x + 8 * i, x[i]);
    s->w = w;
    return marked;
}

static void coder_states(const coder *s, uint32_t states[TP_LANES])
{
    for (int i = 0; i < TP_LANES; i++) states[lane_of(i / 8, i % 8)] = s->x[i];
}

/* ---- counts ---- */

static INLINE void symbols_template(tp_shape s, const uint8_t *src, uint16_t *symbols)
{
    ROLLED for (int i = 0; i < TP_GROUP; i += 256 / s.T)
    {
        __m256i v = symbols_of(s, take_quarter(s, src + i * (s.T / 8 + s.low), NULL, 0));
        if (s.T == 16) {
            store256(symbols + i, v);
        } else {
            store256(symbols + i, _mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)));
            store256(symbols + i + 16, _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1)));
        }
    }
}

static INLINE uint32_t sum_template(tp_shape s, const uint8_t *src)
{
    _Alignas(32) uint32_t part[8];
    __m256i sum = _mm256_setzero_si256();
    ROLLED for (int i = 0; i < TP_GROUP; i += 256 / s.T)
    {
        __m256i v = symbols_of(s, take_quarter(s, src + i * (s.T / 8 + s.low), NULL, 0));
        /* symbols are below 2^12: products fit i16, sums i32 */
        v = s.T == 16 ? _mm256_madd_epi16(v, _mm256_set1_epi16(1))
                      : _mm256_sad_epu8(v, _mm256_setzero_si256());
        sum = _mm256_add_epi32(sum, v);
    }
    store256(part, sum);
    return part[0] + part[1] + part[2] + part[3] + part[4] + part[5] + part[6] + part[7];
}

static void group_pairs(const uint8_t code[256], const uint16_t *symbols, uint8_t pairs[TP_GROUP / 2])
{
    tp_group_pairs(code, symbols, pairs);
}

/* ---- planes ---- */

/* From `element` registers of units of so many bytes the lowest bytes, 32 in all. */
static INLINE __m256i take_plane(const uint8_t *src, unsigned element)
{
    const __m256i byte = element == 2   ? _mm256_set1_epi16(255)
                         : element == 4 ? _mm256_set1_epi32(255)
                                        : _mm256_set1_epi64x(255);
    __m256i v[8];
    UNROLL for (unsigned i = 0; i < element; i++) v[i] =
        _mm256_and_si256(load_halves(src + 16 * i, 16 * element), byte);
    if (element == 8) {
        UNROLL for (int i = 0; i < 4; i++) v[i] = _mm256_packus_epi32(v[2 * i], v[2 * i + 1]);
    }
    if (element >= 4) {
        UNROLL for (int i = 0; i < 2; i++) v[i] = _mm256_packus_epi32(v[2 * i], v[2 * i + 1]);
    }
    return _mm256_packus_epi16(v[0], v[1]);
}

static INLINE size_t plane_get_template(const uint8_t *src, size_t size, unsigned element, uint8_t *dst)
{
    size_t at = 0;
    ROLLED for (; at + 32 * element <= size; at += 32 * element)
        store256(dst + at / element, take_plane(src + at, element));
    return at;
}

static void plane_get(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (index >= size) return;
    /* from byte `index` on, so that it is the lowest of its unit */
    if (element == 2) at = plane_get_template(src + index, size - index, 2, dst);
    if (element == 4) at = plane_get_template(src + index, size - index, 4, dst);
    if (element == 8) at = plane_get_template(src + index, size - index, 8, dst);
    tp_portable_plane_get(src + at, size - at, element, index, dst + at / element);
}

static INLINE size_t plane_put_template(const uint8_t *plane, size_t size, unsigned element, unsigned index,
                                        uint8_t *dst)
{
    const __m128i by = _mm_cvtsi32_si128((int)(8 * index));
    const uint64_t low = element == 2 ? 0x00ff00ff00ff00ff : element == 4 ? 0x000000ff000000ff : 0xff;
    const __m256i place = _mm256_sll_epi64(_mm256_set1_epi64x((long long)low), by);
    size_t at = 0;
    ROLLED for (; at + 32 <= size; at += 32)
    {
        __m128i bytes = _mm_setzero_si128();
        memcpy(&bytes, plane + at / element, 32 / element);
        __m256i v = element == 2   ? _mm256_cvtepu8_epi16(bytes)
                    : element == 4 ? _mm256_cvtepu8_epi32(bytes)
                                   : _mm256_cvtepu8_epi64(bytes);
        __m256i kept = _mm256_andnot_si256(place, load256(dst + at));
        store256(dst + at, _mm256_or_si256(kept, _mm256_sll_epi64(v, by)));
    }
    return at;
}

static void plane_put(const uint8_t *plane, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (element == 2) at = plane_put_template(plane, size, 2, index, dst);
    if (element == 4) at = plane_put_template(plane, size, 4, index, dst);
    if (element == 8) at = plane_put_template(plane, size, 8, index, dst);
    tp_portable_plane_put(plane + at / element, size - at, element, index, dst + at);
}

#endif
