/*
 * W32, pairs and wide streams to elements (docs/format.md section 7) with Advanced SIMD. Part of neon.c.
 *
 * The two stages of entries.h. Steps: the 32 lanes' states live in eight registers of 4 u32. Shifts are
 * written as operators, not intrinsics: those demand literal counts, before anything is inlined.
 */
#ifndef TP_CODEC_NEON_DECODE_H
#define TP_CODEC_NEON_DECODE_H

/* ---- steps ---- */

/* Entries of 4 slots. */
static INLINE uint32x4_t lookup(const uint32_t *table, uint32x4_t slots)
{
    const uint64x2_t two = vreinterpretq_u64_u32(slots);
    const uint64_t a = vgetq_lane_u64(two, 0), b = vgetq_lane_u64(two, 1);
    uint32x4_t v = vdupq_n_u32(table[(uint32_t)a]);
    v = vld1q_lane_u32(table + (a >> 32), v, 1);
    v = vld1q_lane_u32(table + (uint32_t)b, v, 2);
    return vld1q_lane_u32(table + (b >> 32), v, 3);
}

/* All lanes decode a symbol each; their entries to out. */
static INLINE void step(uint32x4_t x[8], const uint8_t **w, const uint32_t *table, uint32_t *out, int K)
{
    static const uint8_t lane_bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const bool wide = K == TP_WIDE_K;
    uint32x4_t next[8], take[8];
    UNROLL for (int k = 0; k < 8; k++)
    {
        uint32x4_t entry = lookup(table, x[k] & vdupq_n_u32((1u << K) - 1));
        vst1q_u32(out + 4 * k, entry);
        uint32x4_t F = wide ? entry >> 20 : entry & vdupq_n_u32(1023);
        uint32x4_t bias = wide ? (entry >> 8 & vdupq_n_u32(4095)) : (entry >> 10 & vdupq_n_u32(1023));
        next[k] = vmlaq_u32(bias, F, x[k] >> K);
        take[k] = vcltq_u32(next[k], vdupq_n_u32(1u << K));
    }
    /* Masks of 8 lanes, a byte each; how many each takes, and all up to it. */
    uint8x16_t bytes[2];
    UNROLL for (int h = 0; h < 2; h++)
    {
        uint16x8_t a =
            vuzp1q_u16(vreinterpretq_u16_u32(take[4 * h]), vreinterpretq_u16_u32(take[4 * h + 1]));
        uint16x8_t b =
            vuzp1q_u16(vreinterpretq_u16_u32(take[4 * h + 2]), vreinterpretq_u16_u32(take[4 * h + 3]));
        bytes[h] = vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b)) & vld1q_u8(lane_bits);
    }
    uint8x16_t sums = vpaddq_u8(bytes[0], bytes[1]);
    sums = vpaddq_u8(sums, sums);
    sums = vpaddq_u8(sums, sums);
    const uint32_t masks = vgetq_lane_u32(vreinterpretq_u32_u8(sums), 0);
    const uint32_t counts = vgetq_lane_u32(vreinterpretq_u32_u8(vcntq_u8(sums)), 0);
    const uint32_t before = counts * 0x01010100u; /* byte k: of the masks before it */
    UNROLL for (int k = 0; k < 4; k++)
    {
        const uint8x16_t words = vld1q_u8(*w + 2 * (before >> 8 * k & 255));
        const uint8_t *order = (const uint8_t *)takes[masks >> 8 * k & 255];
        UNROLL for (int h = 2 * k; h < 2 * k + 2; h++)
        {
            uint8x16_t word = vqtbl1q_u8(words, vld1q_u8(order + 16 * (h & 1)));
            x[h] = vbslq_u32(take[h], next[h] << 16, next[h]) | vreinterpretq_u32_u8(word);
        }
    }
    *w += 2 * ((before >> 24) + (counts >> 24));
}

/* One group of count streams. */
static INLINE void steps_template(stream *const *streams, const pace *per_step, int steps, int count, int K)
{
    uint32x4_t x[STREAMS][8];
    const uint8_t *w[STREAMS];
    UNROLL for (int i = 0; i < count; i++)
    {
        UNROLL for (int k = 0; k < 8; k++) x[i][k] = vld1q_u32(streams[i]->x + 4 * k);
        w[i] = streams[i]->w;
    }
    ROLLED for (int t = 0; t < steps; t++)
    {
        UNROLL for (int i = 0; i < count; i++)
        {
            prefetch_step(streams[i], w[i], per_step, t);
            step(x[i], &w[i], streams[i]->table, streams[i]->entries + 32 * t, K);
        }
    }
    UNROLL for (int i = 0; i < count; i++)
    {
        UNROLL for (int k = 0; k < 8; k++) vst1q_u32(streams[i]->x + 4 * k, x[i][k]);
        streams[i]->w = w[i];
    }
}

static NOINLINE void steps1(stream *const *streams, const pace *per_step, int steps)
{
    steps_template(streams, per_step, steps, 1, TP_W32_K);
}
static NOINLINE void steps2(stream *const *streams, const pace *per_step, int steps)
{
    steps_template(streams, per_step, steps, 2, TP_W32_K);
}
static NOINLINE void wide_steps1(stream *const *streams, const pace *per_step, int steps)
{
    steps_template(streams, per_step, steps, 1, TP_WIDE_K);
}
static NOINLINE void wide_steps2(stream *const *streams, const pace *per_step, int steps)
{
    steps_template(streams, per_step, steps, 2, TP_WIDE_K);
}

/* ---- merge ---- */

/* The upper halves of two registers of u32, in turn: of an element's and the next one's entry. */
static INLINE uint16x8_t upper_halves(const uint32_t *even, const uint32_t *odd)
{
    return vtrn2q_u16(vreinterpretq_u16_u32(vld1q_u32(even)), vreinterpretq_u16_u32(vld1q_u32(odd)));
}

/* The symbols of 4 lanes of a row at their places. */
static INLINE uint32x4_t row_values(tp_shape s, const uint32_t *entries, const uint32_t *values)
{
    const int place = s.rotated ? s.R - 1 : s.R;
    uint16x8_t v;
    if (s.c == 2) return lookup(values, vld1q_u32(entries) >> 20);
    if (s.T == 16) {
        v = upper_halves(entries, entries + 32) >> 4;
    } else {
        /* symbols below 2^7: they stay within their bytes */
        v = upper_halves(entries, entries + 64) >> 4;
        v |= upper_halves(entries + 32, entries + 96) >> 4 << 8;
    }
    return vreinterpretq_u32_u16(v << place);
}

/* 16 bytes of top parts with their low bytes, to dst. */
static INLINE void store_eighth(tp_shape s, uint32x4_t v, const uint8_t *low, size_t stride, uint8_t *dst)
{
    const uint8x16_t bytes = vreinterpretq_u8_u32(v);
    if (s.low == 0) {
        vst1q_u8(dst, bytes);
    } else if (s.low == 1) {
        vst2q_u8(dst, ((uint8x16x2_t){{vld1q_u8(low), bytes}}));
    } else {
        const uint16x8_t top = vreinterpretq_u16_u32(v), l0 = vreinterpretq_u16_u8(vld1q_u8(low));
        const uint16x8_t a = vzip1q_u16(l0, top), b = vzip2q_u16(l0, top);
        if (s.low == 2) {
            vst1q_u8(dst, vreinterpretq_u8_u16(a));
            vst1q_u8(dst + 16, vreinterpretq_u8_u16(b));
            return;
        }
        const uint16x8_t l1 = vreinterpretq_u16_u8(vld1q_u8(low + stride));
        const uint16x8_t l2 = vreinterpretq_u16_u8(vld1q_u8(low + 2 * stride));
        const uint32x4_t p0 = vreinterpretq_u32_u16(vzip1q_u16(l0, l1));
        const uint32x4_t p1 = vreinterpretq_u32_u16(vzip2q_u16(l0, l1));
        const uint32x4_t q0 = vreinterpretq_u32_u16(vzip1q_u16(l2, top));
        const uint32x4_t q1 = vreinterpretq_u32_u16(vzip2q_u16(l2, top));
        vst1q_u8(dst, vreinterpretq_u8_u32(vzip1q_u32(p0, q0)));
        vst1q_u8(dst + 16, vreinterpretq_u8_u32(vzip2q_u32(p0, q0)));
        vst1q_u8(dst + 32, vreinterpretq_u8_u32(vzip1q_u32(p1, q1)));
        vst1q_u8(dst + 48, vreinterpretq_u8_u32(vzip2q_u32(p1, q1)));
    }
}

static INLINE uint32x4_t raw_word(const uint8_t *raw, int rotated_right)
{
    const uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(raw));
    return rotated_right ? v >> rotated_right | v << (32 - rotated_right) : v;
}

static INLINE void merge_template(tp_shape s, const group *in)
{
    const int J = s.T / s.R;
    const int steps = 32 / s.T / s.c;   /* a row */
    const size_t elements = 128u / s.T; /* an eighth of a row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2);
    const size_t dst_step = elements * (size_t)(s.T / 8 + s.low);
    const uint32_t *entries = in->entries;
    const uint8_t *raw = in->raw, *low = in->low;
    uint8_t *dst = in->dst;
    const uint32x4_t mask = vdupq_n_u32(tp_field(s, 0, s.R));

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        UNROLL for (int j = 0; j < J; j++, entries += 32 * steps)
        {
            ROLLED for (int h = 0; h < 8; h++, dst += dst_step)
            {
                uint32x4_t v = row_values(s, entries + 4 * h, in->values);
                store_eighth(s, v | (raw_word(raw + 16 * h, s.R * j) & mask), low, in->low_stride, dst);
                if (s.low) low += low_step;
            }
        }
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++, entries += 32 * steps)
    {
        ROLLED for (int h = 0; h < 8; h++, dst += dst_step)
        {
            uint32x4_t v = row_values(s, entries + 4 * h, in->values);
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const tp_spare at = tp_spare_bits(s, j, k);
                if (at.field) {
                    v |= raw_word(in->raw + 128 * k + 16 * h, at.by) & vdupq_n_u32(at.field);
                }
            }
            store_eighth(s, v, low, in->low_stride, dst);
            if (s.low) low += low_step;
        }
    }
}

static NOINLINE void merge(const tp_shape *shape, const group *in)
{
    TP_FOR_SHAPE(shape, merge_template, in);
}

static void wide_merge(const uint32_t *entries, uint8_t *dst)
{
    ROLLED for (int row = 0; row < TP_GROUP; row += 128, entries += 128)
    {
        UNROLL for (int h = 0; h < 8; h++)
        {
            /* bytes 0 and 1 of a lane from two steps, then of all four */
            const uint8_t *e = (const uint8_t *)(entries + 4 * h);
            uint8x16_t even = vtrn1q_u8(vld1q_u8(e), vld1q_u8(e + 128));
            uint8x16_t odd = vtrn1q_u8(vld1q_u8(e + 256), vld1q_u8(e + 384));
            uint16x8_t v = vtrn1q_u16(vreinterpretq_u16_u8(even), vreinterpretq_u16_u8(odd));
            vst1q_u8(dst + row + 16 * h, vreinterpretq_u8_u16(v));
        }
    }
}

#endif
