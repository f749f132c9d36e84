/*
 * Elements to W32, pairs and wide streams (docs/format.md section 7) with Advanced SIMD, counts and planes.
 * Part of neon.c.
 *
 * The two stages of entries_encode.h. Steps: register 2 * p + h holds the lanes 8 * p + h, + 2, + 4, + 6,
 * so that the words of two registers interleave to 8 lanes in ascending order.
 */
#ifndef TP_CODEC_NEON_ENCODE_H
#define TP_CODEC_NEON_ENCODE_H

/* ---- elements ---- */

/* 16 bytes of tops from their elements; low bytes to their planes. */
static INLINE uint8x16_t take_eighth(tp_shape s, const uint8_t *src, uint8_t *planes, size_t stride)
{
    if (s.low == 0) return vld1q_u8(src);
    if (s.low == 1) {
        const uint8x16x2_t v = vld2q_u8(src);
        if (planes) vst1q_u8(planes, v.val[0]);
        return v.val[1];
    }
    const uint16x8_t a = vreinterpretq_u16_u8(vld1q_u8(src)), b = vreinterpretq_u16_u8(vld1q_u8(src + 16));
    const uint16x8_t even = vuzp1q_u16(a, b), odd = vuzp2q_u16(a, b);
    if (s.low == 2) {
        if (planes) vst1q_u8(planes, vreinterpretq_u8_u16(even));
        return vreinterpretq_u8_u16(odd);
    }
    const uint16x8_t c = vreinterpretq_u16_u8(vld1q_u8(src + 32)),
                     d = vreinterpretq_u16_u8(vld1q_u8(src + 48));
    const uint16x8_t even2 = vuzp1q_u16(c, d), odd2 = vuzp2q_u16(c, d); /* units 0 and 2; 1 and 3 */
    if (planes) {
        vst1q_u8(planes, vreinterpretq_u8_u16(vuzp1q_u16(even, even2)));
        vst1q_u8(planes + stride, vreinterpretq_u8_u16(vuzp1q_u16(odd, odd2)));
        vst1q_u8(planes + 2 * stride, vreinterpretq_u8_u16(vuzp2q_u16(even, even2)));
    }
    return vreinterpretq_u8_u16(vuzp2q_u16(odd, odd2));
}

/* The symbols of 16 bytes of tops: u16, or u8. */
static INLINE uint16x8_t symbols16_of(tp_shape s, uint8x16_t v)
{
    const int place = s.rotated ? s.R - 1 : s.R;
    return vreinterpretq_u16_u8(v) >> place & vdupq_n_u16((uint16_t)((1 << (s.T - s.R)) - 1));
}
static INLINE uint8x16_t symbols8_of(tp_shape s, uint8x16_t v)
{
    const int place = s.rotated ? s.R - 1 : s.R;
    return v >> place & vdupq_n_u8((uint8_t)((1 << (s.T - s.R)) - 1));
}

/* ---- keys ---- */

/* u16 keys of 8 symbols; pairs: of 4 pairs of exponents, in every other u16. */
static INLINE uint16x8_t keys_of(tp_shape s, const key_map *map, uint8x16_t tops)
{
    uint16x8_t v = symbols16_of(s, tops);
    if (__builtin_expect(map->window, 1)) {
        v = vminq_u16(v - vdupq_n_u16((uint16_t)map->first), vdupq_n_u16(s.c == 1 ? 255 : 15));
        if (s.c == 1) return v;
        const uint32x4_t pairs = vreinterpretq_u32_u16(v);
        return vreinterpretq_u16_u32(pairs | pairs >> 12);
    }
    uint16_t symbols[8];
    const uint32x4_t pairs = vreinterpretq_u32_u16(v);
    if (s.c == 2) v = vreinterpretq_u16_u32(pairs | pairs >> 8);
    vst1q_u16(symbols, v);
    keys_by_table(map, symbols, 8, symbols);
    return vld1q_u16(symbols);
}

/* The keys of a row (v: its tops), in the order of the symbols. */
static INLINE void row_keys(tp_shape s, const key_map *map, const uint8x16_t v[8], uint8_t *keys)
{
    if (s.T == 8) {
        UNROLL for (int h = 0; h < 8; h++) vst1q_u8(keys + 16 * h, symbols8_of(s, v[h]));
        return;
    }
    uint8x16_t key[4];
    UNROLL for (int h = 0; h < 4; h++)
    {
        key[h] = vuzp1q_u8(vreinterpretq_u8_u16(keys_of(s, map, v[2 * h])),
                           vreinterpretq_u8_u16(keys_of(s, map, v[2 * h + 1])));
        if (s.c == 1) vst1q_u8(keys + 16 * h, key[h]);
    }
    if (s.c == 1) return;
    UNROLL for (int h = 0; h < 2; h++) vst1q_u8(keys + 16 * h, vuzp1q_u8(key[2 * h], key[2 * h + 1]));
}

/* ---- split ---- */

static INLINE uint8x16_t field_bits(uint8x16_t v, uint32_t field, int rotated_left)
{
    const uint32x4_t bits = vreinterpretq_u32_u8(v) & vdupq_n_u32(field);
    return vreinterpretq_u8_u32(rotated_left ? bits << rotated_left | bits >> (32 - rotated_left) : bits);
}

static INLINE void split_template(tp_shape s, const split *to)
{
    const int J = s.T / s.R;
    const size_t elements = 128u / s.T; /* an eighth of a row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2);
    const size_t src_step = elements * (size_t)(s.T / 8 + s.low);
    const size_t row_symbols = 1024u / s.T / s.c;
    const key_map *map = to->map;
    const uint8_t *src = to->src;
    uint8_t *raw = to->raw, *planes = to->low, *keys = to->keys;

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        UNROLL for (int j = 0; j < J; j++, keys += row_symbols)
        {
            uint8x16_t v[8];
            UNROLL for (int h = 0; h < 8; h++, src += src_step)
            {
                v[h] = take_eighth(s, src, planes, to->low_stride);
                if (planes) planes += low_step;
                const uint8x16_t bits = field_bits(v[h], tp_field(s, 0, s.R), s.R * j);
                vst1q_u8(raw + 16 * h, j ? vld1q_u8(raw + 16 * h) | bits : bits);
            }
            row_keys(s, map, v, keys);
        }
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++, keys += row_symbols)
    {
        uint8x16_t v[8];
        UNROLL for (int h = 0; h < 8; h++, src += src_step)
        {
            v[h] = take_eighth(s, src, planes, to->low_stride);
            if (planes) planes += low_step;
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const tp_spare at = tp_spare_bits(s, j, k);
                if (at.field) {
                    uint8_t *word = to->raw + 128 * k + 16 * h;
                    const uint8x16_t bits = field_bits(v[h], at.field, at.by);
                    vst1q_u8(word, vld1q_u8(word) | bits);
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
    return 8 * (reg / 2) + reg % 2 + 2 * position;
}

/* The entries of two of a register's lanes. */
static INLINE uint32x4_t two_entries(const uint64_t *entries, const uint8_t *keys, int row_steps, int reg,
                                     int position)
{
    const uint64_t *a = entries + keys[row_steps * lane_of(reg, position)];
    const uint64_t *b = entries + keys[row_steps * lane_of(reg, position + 1)];
    return vreinterpretq_u32_u64(vcombine_u64(vld1_u64(a), vld1_u64(b)));
}

/* All lanes encode a symbol each. Returns the upper halves of their entries, or'ed. */
static INLINE uint32x4_t encode_step(uint32x4_t x[8], uint8_t **w, const uint64_t *entries,
                                     const uint8_t *keys, int row_steps, int K)
{
    static const uint16_t lane_bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint32x4_t seen = vdupq_n_u32(0);
    UNROLL for (int p = 3; p >= 0; p--)
    {
        uint32x4_t give[2], *const pair = x + 2 * p;
        const uint16x8_t words = vtrn1q_u16(vreinterpretq_u16_u32(pair[0]), vreinterpretq_u16_u32(pair[1]));
        UNROLL for (int h = 0; h < 2; h++)
        {
            const uint32x4_t a = two_entries(entries, keys, row_steps, 2 * p + h, 0);
            const uint32x4_t b = two_entries(entries, keys, row_steps, 2 * p + h, 2);
            const uint32x4_t m = vuzp1q_u32(a, b), upper = vuzp2q_u32(a, b);
            seen |= upper;
            const uint32x4_t limit = upper & vdupq_n_u32(ENTRY_F);
            give[h] = vcgeq_u32(pair[h], limit);
            const uint32x4_t v = vbslq_u32(give[h], pair[h] >> 16, pair[h]);
            const uint64x2_t low = vmull_u32(vget_low_u32(v), vget_low_u32(m)), high = vmull_high_u32(v, m);
            uint32x4_t q = vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
            q = q >> (upper >> ENTRY_SHIFT);
            /* (q << K) + v - q * F + start */
            const uint32x4_t rest = vdupq_n_u32(1u << K) - (limit >> 16);
            pair[h] = vmlaq_u32(v + (upper & vdupq_n_u32(ENTRY_BIAS)), q, rest);
        }
        /* the words that are given, to before *w */
        const uint16x8_t given = vtrn1q_u16(vreinterpretq_u16_u32(give[0]), vreinterpretq_u16_u32(give[1]));
        const unsigned mask = vaddvq_u16(given & vld1q_u16(lane_bits));
        const uint8x16_t order = vld1q_u8((const uint8_t *)&gives[mask]);
        vst1q_u8(*w - 16, vqtbl1q_u8(vreinterpretq_u8_u16(words), order));
        *w -= 2 * vaddvq_u16(given >> 15);
    }
    return seen;
}

static INLINE uint32_t encode_template(coder *s, const uint64_t *entries, const uint8_t *keys,
                                       const split_ahead *next, int row_steps, int K)
{
    uint32x4_t x[8];
    uint8_t *w = s->w;
    uint32_t marked = 0;
    split_ahead ahead = *next;
    UNROLL for (int i = 0; i < 8; i++) x[i] = vld1q_u32(s->x + 4 * i);
    ROLLED for (int t = row_steps == 1 ? 15 : 31; t >= 0; t--)
    {
        const uint8_t *row = keys + t / row_steps * (32 * row_steps);
        prefetch_split(&ahead);
        const uint32x4_t seen = encode_step(x, &w, entries, row + t % row_steps, row_steps, K);
        marked = marked << 1 | (vmaxvq_u32(seen & vdupq_n_u32(ENTRY_MARK)) != 0);
    }
    UNROLL for (int i = 0; i < 8; i++) vst1q_u32(s->x + 4 * i, x[i]);
    s->w = w;
    return marked;
}

static void coder_states(const coder *s, uint32_t states[TP_LANES])
{
    for (int i = 0; i < TP_LANES; i++) states[lane_of(i / 4, i % 4)] = s->x[i];
}

/* ---- counts ---- */

static INLINE void symbols_template(tp_shape s, const uint8_t *src, uint16_t *symbols)
{
    ROLLED for (int i = 0; i < TP_GROUP; i += 128 / s.T)
    {
        const uint8x16_t v = take_eighth(s, src + i * (s.T / 8 + s.low), NULL, 0);
        if (s.T == 16) {
            vst1q_u16(symbols + i, symbols16_of(s, v));
        } else {
            const uint8x16_t bytes = symbols8_of(s, v);
            vst1q_u16(symbols + i, vmovl_u8(vget_low_u8(bytes)));
            vst1q_u16(symbols + i + 8, vmovl_high_u8(bytes));
        }
    }
}

static INLINE uint32_t sum_template(tp_shape s, const uint8_t *src)
{
    uint32x4_t sum = vdupq_n_u32(0);
    ROLLED for (int i = 0; i < TP_GROUP; i += 128 / s.T)
    {
        const uint8x16_t v = take_eighth(s, src + i * (s.T / 8 + s.low), NULL, 0);
        sum = vpadalq_u16(sum, s.T == 16 ? symbols16_of(s, v) : vpaddlq_u8(symbols8_of(s, v)));
    }
    return vaddvq_u32(sum);
}

static void group_pairs(const uint8_t code[256], const uint16_t *symbols, uint8_t pairs[TP_GROUP / 2])
{
    tp_group_pairs(code, symbols, pairs);
}

/* ---- planes ---- */

static void plane_get(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (element == 2 || element == 4 || element == 8)
        /* from byte `index` on: of each unit the first byte, by halving */
        for (; at + 16 * element + index <= size; at += 16 * element) {
            uint8x16_t v[8];
            for (unsigned i = 0; i < element; i++) v[i] = vld1q_u8(src + at + index + 16 * i);
            for (unsigned left = element; left > 1; left /= 2)
                for (unsigned i = 0; i < left / 2; i++) v[i] = vuzp1q_u8(v[2 * i], v[2 * i + 1]);
            vst1q_u8(dst + at / element, v[0]);
        }
    tp_portable_plane_get(src + at, size - at, element, index, dst + at / element);
}

static void plane_put(const uint8_t *plane, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    size_t at = 0;
    if (element == 2 || element == 4 || element == 8) {
        uint8_t from[16], place[16]; /* byte i comes from byte i / element of what is left of the plane */
        for (unsigned i = 0; i < 16; i++) {
            from[i] = (uint8_t)(i / element);
            place[i] = i % element == index ? 0xff : 0;
        }
        const uint8x16_t order = vld1q_u8(from), mask = vld1q_u8(place);
        for (; at + 16 * element <= size; plane += 16) {
            const uint8x16_t bytes = vld1q_u8(plane);
            for (unsigned k = 0; k < element; k++, at += 16) {
                const uint8x16_t v = vqtbl1q_u8(bytes, order + vdupq_n_u8((uint8_t)(k * 16 / element)));
                vst1q_u8(dst + at, vbslq_u8(mask, v, vld1q_u8(dst + at)));
            }
        }
    }
    tp_portable_plane_put(plane, size - at, element, index, dst + at);
}

#endif
