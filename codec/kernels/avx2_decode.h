/*
 * W32, pairs and wide streams to elements (docs/format.md section 7) with AVX2. Part of avx2.c.
 *
 * The two stages of entries.h. Steps: the 32 lanes' states live in four registers of 8 u32. An entry comes
 * from memory, lane by lane: a gather is no faster where gathers are fast, and far slower where the CPU's
 * microcode guards them. Three streams are slower than two, as there are 16 registers.
 */
#ifndef TP_CODEC_AVX2_DECODE_H
#define TP_CODEC_AVX2_DECODE_H

/* ---- steps ---- */

static INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256(p);
}
static INLINE void store256(void *p, __m256i v)
{
    _mm256_storeu_si256(p, v);
}

/* Entries of 8 slots. */
static INLINE __m256i lookup(const uint32_t *table, __m256i slots)
{
    const uint64_t a = (uint64_t)_mm256_extract_epi64(slots, 0),
                   b = (uint64_t)_mm256_extract_epi64(slots, 1);
    const uint64_t c = (uint64_t)_mm256_extract_epi64(slots, 2),
                   d = (uint64_t)_mm256_extract_epi64(slots, 3);
    __m128i low = _mm_cvtsi32_si128((int)table[(uint32_t)a]);
    __m128i high = _mm_cvtsi32_si128((int)table[(uint32_t)c]);
    low = _mm_insert_epi32(low, (int)table[a >> 32], 1);
    high = _mm_insert_epi32(high, (int)table[c >> 32], 1);
    low = _mm_insert_epi32(low, (int)table[(uint32_t)b], 2);
    high = _mm_insert_epi32(high, (int)table[(uint32_t)d], 2);
    low = _mm_insert_epi32(low, (int)table[b >> 32], 3);
    high = _mm_insert_epi32(high, (int)table[d >> 32], 3);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

static INLINE __m256i entry_F(__m256i entry, int K)
{
    return K == TP_WIDE_K ? _mm256_srli_epi32(entry, 20) : _mm256_and_si256(entry, _mm256_set1_epi32(1023));
}
static INLINE __m256i entry_bias(__m256i entry, int K)
{
    return K == TP_WIDE_K ? _mm256_and_si256(_mm256_srli_epi32(entry, 8), _mm256_set1_epi32(4095))
                          : _mm256_and_si256(_mm256_srli_epi32(entry, 10), _mm256_set1_epi32(1023));
}

/* 8 lanes decode a symbol each, in two halves: their entries, then their next states. */
static INLINE __m256i step_entries(__m256i x, const uint32_t *table, int K)
{
    return lookup(table, _mm256_and_si256(x, _mm256_set1_epi32((1 << K) - 1)));
}
static INLINE __m256i step_states(__m256i x, __m256i entry, __m256i L, const uint8_t **w, int K)
{
    __m256i next = _mm256_add_epi32(
        _mm256_mullo_epi32(entry_F(entry, K), _mm256_srli_epi32(x, K == TP_WIDE_K ? TP_WIDE_K : TP_W32_K)),
        entry_bias(entry, K));
    /* next < 2^28 */
    __m256i take = _mm256_cmpgt_epi32(L, next);
    const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(take));
    __m256i words = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)*w));
    words = _mm256_shuffle_epi8(words, load256(takes[mask]));
    *w += 2 * (size_t)_mm_popcnt_u32(mask);
    return _mm256_or_si256(_mm256_sllv_epi32(next, _mm256_and_si256(take, _mm256_set1_epi32(16))), words);
}

/* Entries are looked up for so many registers before the first of them gets its states: a CPU's scheduler
 * fills with what waits for them, and then sees nothing of the registers beyond. */
#define AHEAD 3

/* One group of count streams. */
static INLINE void steps_template(stream *const *streams, const pace *per_step, int steps, int count, int K)
{
    const int registers = 4 * count;
    __m256i x[STREAMS * 4], entry[STREAMS * 4], L = _mm256_set1_epi32(1 << K);
    const uint8_t *w[STREAMS];
    const uint32_t *table[STREAMS];
    uint32_t *out[STREAMS];
    __asm__("" : "+x"(L)); /* a constant turns the comparison into two instructions */
    UNROLL for (int i = 0; i < count; i++)
    {
        UNROLL for (int k = 0; k < 4; k++) x[k * count + i] = load256(streams[i]->x + 8 * k);
        w[i] = streams[i]->w;
        table[i] = streams[i]->table;
        out[i] = streams[i]->entries;
    }
    ROLLED for (int t = 0; t < steps; t++)
    {
        UNROLL for (int i = 0; i < count; i++) prefetch_step(streams[i], w[i], per_step, t);
        UNROLL for (int r = 0; r < registers + AHEAD; r++)
        {
            const int before = r - AHEAD;
            if (r < registers) {
                entry[r] = step_entries(x[r], table[r % count], K);
                store256(out[r % count] + 32 * t + 8 * (r / count), entry[r]);
            }
            if (before >= 0) x[before] = step_states(x[before], entry[before], L, &w[before % count], K);
        }
    }
    UNROLL for (int i = 0; i < count; i++)
    {
        UNROLL for (int k = 0; k < 4; k++) store256(streams[i]->x + 8 * k, x[k * count + i]);
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

/* The symbols of 8 lanes of a row at their places. */
static INLINE __m256i row_values(tp_shape s, const uint32_t *entries, const uint32_t *values)
{
    const int place = s.rotated ? s.R - 1 : s.R;
    __m256i e0 = load256(entries);
    if (s.c == 2) return lookup(values, _mm256_srli_epi32(e0, 20));
    if (s.T == 16) {
        /* to the upper 12 bits of each element */
        __m256i v = _mm256_blend_epi16(_mm256_srli_epi32(e0, 16), load256(entries + 32), 0xaa);
        return _mm256_slli_epi16(_mm256_srli_epi16(v, 4), place);
    }
    __m256i even = _mm256_blend_epi16(_mm256_srli_epi32(e0, 16), load256(entries + 64), 0xaa);
    __m256i odd =
        _mm256_blend_epi16(_mm256_srli_epi32(load256(entries + 32), 16), load256(entries + 96), 0xaa);
    /* symbols below 2^7: they stay within their bytes */
    even = _mm256_srli_epi16(even, 4);
    odd = _mm256_slli_epi16(_mm256_srli_epi16(odd, 4), 8);
    return _mm256_slli_epi16(_mm256_or_si256(even, odd), place);
}

/* a, b: units of two registers in turn, in memory order. */
static INLINE void store_zipped(__m256i low, __m256i high, uint8_t *dst)
{
    store256(dst, _mm256_permute2x128_si256(low, high, 0x20));
    store256(dst + 32, _mm256_permute2x128_si256(low, high, 0x31));
}

/* 32 bytes of top parts with their low bytes, to dst. */
static INLINE void store_quarter(tp_shape s, __m256i v, const uint8_t *low, size_t stride, uint8_t *dst)
{
    if (s.low == 0) {
        store256(dst, v);
    } else if (s.low == 1) {
        __m256i l = load256(low);
        store_zipped(_mm256_unpacklo_epi8(l, v), _mm256_unpackhi_epi8(l, v), dst);
    } else if (s.low == 2) {
        __m256i l = load256(low);
        store_zipped(_mm256_unpacklo_epi16(l, v), _mm256_unpackhi_epi16(l, v), dst);
    } else {
        __m256i l0 = load256(low), l1 = load256(low + stride), l2 = load256(low + 2 * stride);
        __m256i a = _mm256_unpacklo_epi16(l0, l1), b = _mm256_unpacklo_epi16(l2, v);
        __m256i c = _mm256_unpackhi_epi16(l0, l1), d = _mm256_unpackhi_epi16(l2, v);
        __m256i p0 = _mm256_unpacklo_epi32(a, b), p1 = _mm256_unpackhi_epi32(a, b);
        __m256i p2 = _mm256_unpacklo_epi32(c, d), p3 = _mm256_unpackhi_epi32(c, d);
        store256(dst, _mm256_permute2x128_si256(p0, p1, 0x20));
        store256(dst + 32, _mm256_permute2x128_si256(p2, p3, 0x20));
        store256(dst + 64, _mm256_permute2x128_si256(p0, p1, 0x31));
        store256(dst + 96, _mm256_permute2x128_si256(p2, p3, 0x31));
    }
}

static INLINE __m256i rotr32(__m256i v, int by)
{
    return by ? _mm256_or_si256(_mm256_srli_epi32(v, by), _mm256_slli_epi32(v, 32 - by)) : v;
}

static INLINE void merge_template(tp_shape s, const group *in)
{
    const int J = s.T / s.R;
    const int steps = 32 / s.T / s.c;   /* a row */
    const size_t elements = 256u / s.T; /* a quarter row */
    const size_t low_step = elements * (s.low == 1 ? 1 : 2);
    const size_t dst_step = elements * (size_t)(s.T / 8 + s.low);
    const uint32_t *entries = in->entries;
    const uint8_t *raw = in->raw, *low = in->low;
    uint8_t *dst = in->dst;
    const __m256i mask = _mm256_set1_epi32((int)tp_field(s, 0, s.R));

    ROLLED for (int k = 0; k < s.R; k++, raw += 128)
    {
        UNROLL for (int j = 0; j < J; j++, entries += 32 * steps)
        {
            UNROLL for (int h = 0; h < 4; h++, dst += dst_step)
            {
                __m256i bits = _mm256_and_si256(rotr32(load256(raw + 32 * h), s.R * j), mask);
                __m256i v = _mm256_or_si256(row_values(s, entries + 8 * h, in->values), bits);
                store_quarter(s, v, low, in->low_stride, dst);
                if (s.low) low += low_step;
            }
        }
    }
    UNROLL for (int j = 0; j < s.T - J * s.R; j++, entries += 32 * steps)
    {
        UNROLL for (int h = 0; h < 4; h++, dst += dst_step)
        {
            __m256i v = row_values(s, entries + 8 * h, in->values);
            UNROLL for (int k = 0; k < s.R; k++)
            {
                const tp_spare at = tp_spare_bits(s, j, k);
                if (at.field) {
                    __m256i bits = rotr32(load256(in->raw + 128 * k + 32 * h), at.by);
                    v = _mm256_or_si256(v, _mm256_and_si256(bits, _mm256_set1_epi32((int)at.field)));
                }
            }
            store_quarter(s, v, low, in->low_stride, dst);
            if (s.low) low += low_step;
        }
    }
}

static NOINLINE void merge(const tp_shape *shape, const group *in)
{
    TP_FOR_SHAPE(shape, merge_template, in);
}

/* A group's entries to bytes: the lowest of each. */
static void wide_merge(const uint32_t *entries, uint8_t *dst)
{
    const __m256i byte = _mm256_set1_epi32(255);
    ROLLED for (int row = 0; row < TP_GROUP; row += 128, entries += 128)
    {
        UNROLL for (int h = 0; h < 4; h++)
        {
            __m256i v = _mm256_and_si256(load256(entries + 8 * h), byte);
            UNROLL for (int b = 1; b < 4; b++)
            {
                __m256i e = _mm256_and_si256(load256(entries + 32 * b + 8 * h), byte);
                v = _mm256_or_si256(v, _mm256_slli_epi32(e, 8 * b));
            }
            store256(dst + row + 32 * h, v);
        }
    }
}

#endif
