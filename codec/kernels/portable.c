/* Plain C: the definition that every other kernel is compared with. */
#include "codec/kernels/portable.h"

#include "codec/kernels/counts.h"
#include "codec/kernels/geometry.h"

#include "codec/kernels/hashes.h"
#include "codec/kernels/library_hasher.h"

/* ------------------------------------------------------------------------------------------ decoding */

/*
 * Two stages a group, joined by a buffer: states to table entries, which is scalar code, and entries to
 * elements, which compilers vectorise. An entry: F in bits 0..9, bias in bits 10..19, the symbol (pairs:
 * the number of its entry in the table) in bits 20..31.
 */
static void entries_init(const tp_shape *shape, const tp_w32_table *from, uint32_t entries[1024])
{
    for (int i = 0; i < 1024; i++) {
        const tp_slot slot = from->slot[i];
        const uint32_t symbol = shape->c == 2 ? slot.entry : slot.symbol;
        entries[i] = slot.F | (uint32_t)slot.bias << 10 | symbol << 20;
    }
}

/* One lane: a symbol. There is no branch, which would be unpredictable. */
#define DECODE_LANE(lane, F, bias, K)                                                                      \
    do {                                                                                                   \
        const uint32_t entry = table[x[lane] & ((1u << (K)) - 1)];                                         \
        const uint32_t next = (F) * (x[lane] >> (K)) + (bias);                                             \
        const uint32_t take = (next - (1u << (K))) >> 31; /* next < 2^28 */                                \
        x[lane] = next << 16 * take | (tp_load16(words) & (0 - take));                                     \
        words += 2 * take;                                                                                 \
        out[lane] = entry;                                                                                 \
    } while (0)
#define DECODE_8(lane, F, bias, K)                                                                         \
    do {                                                                                                   \
        DECODE_LANE(lane, F, bias, K);                                                                     \
        DECODE_LANE((lane) + 1, F, bias, K);                                                               \
        DECODE_LANE((lane) + 2, F, bias, K);                                                               \
        DECODE_LANE((lane) + 3, F, bias, K);                                                               \
        DECODE_LANE((lane) + 4, F, bias, K);                                                               \
        DECODE_LANE((lane) + 5, F, bias, K);                                                               \
        DECODE_LANE((lane) + 6, F, bias, K);                                                               \
        DECODE_LANE((lane) + 7, F, bias, K);                                                               \
    } while (0)

/* Steps of 32 lanes. Returns the word pointer, at most 64 bytes a step further. */
static const uint8_t *decode_steps(const uint32_t *restrict table, uint32_t *restrict x,
                                   const uint8_t *words, uint32_t *restrict out, unsigned steps)
{
    for (; steps; steps--, out += TP_LANES)
        for (unsigned lane = 0; lane < TP_LANES; lane += 8)
            DECODE_8(lane, entry & 1023, entry >> 10 & 1023, TP_W32_K);
    return words;
}

/* Where the parts of one group are. */
typedef struct portable_group {
    const uint32_t *entries;
    const uint16_t *symbols; /* by number of the entry */
    const uint8_t *raw, *low;
    size_t low_stride; /* bytes from one u16 low plane to the next */
} portable_group;

/* A row's symbols at their places. */
static void row_values(tp_shape s, const uint32_t *restrict e, const uint16_t *symbols,
                       uint32_t *restrict v)
{
    const unsigned place = s.rotated ? s.R - 1u : s.R;
    if (s.c == 2)
        for (unsigned lane = 0; lane < TP_LANES; lane++) {
            const uint32_t pair = symbols[e[lane] >> 20];
            v[lane] = ((pair & 255u) | (pair >> 8) << 16) << place;
        }
    else if (s.T == 16)
        for (unsigned lane = 0; lane < TP_LANES; lane++)
            v[lane] = (e[lane] >> 20 | e[lane + 32] >> 20 << 16) << place;
    else
        for (unsigned lane = 0; lane < TP_LANES; lane++)
            v[lane] = (e[lane] >> 20 | e[lane + 32] >> 20 << 8 | e[lane + 64] >> 20 << 16 |
                       e[lane + 96] >> 20 << 24)
                      << place;
}

/* Elements of a row from their top parts and low planes. */
static void store_row(unsigned low_bytes, const uint32_t v[TP_LANES], const uint8_t *restrict low,
                      size_t stride, uint8_t *restrict dst)
{
    uint8_t top[128];
    if (low_bytes == 0) {
        memcpy(dst, v, 128);
        return;
    }
    memcpy(top, v, sizeof top);
    if (low_bytes == 1)
        for (unsigned i = 0; i < 128; i++) {
            dst[2 * i] = low[i];
            dst[2 * i + 1] = top[i];
        }
    else if (low_bytes == 2)
        for (unsigned i = 0; i < 64; i++) {
            memcpy(dst + 4 * i, low + 2 * i, 2);
            memcpy(dst + 4 * i + 2, top + 2 * i, 2);
        }
    else
        for (unsigned i = 0; i < 64; i++) {
            memcpy(dst + 8 * i, low + 2 * i, 2);
            memcpy(dst + 8 * i + 2, low + stride + 2 * i, 2);
            memcpy(dst + 8 * i + 4, low + 2 * stride + 2 * i, 2);
            memcpy(dst + 8 * i + 6, top + 2 * i, 2);
        }
}

/* Adds the bits of the field that a row has in a raw word. The counts are the same for all lanes: vector
 * code. */
static void add_bits(uint32_t *restrict v, const uint32_t *restrict word, unsigned rotate, uint32_t field)
{
    for (unsigned lane = 0; lane < TP_LANES; lane++) v[lane] |= tp_rotl32(word[lane], rotate) & field;
}

/* A whole group. */
static void merge_group(tp_shape s, const portable_group *in, uint8_t *dst)
{
    const unsigned direct = s.T / s.R, spare = s.T - direct * s.R, per_row = 1024u / s.T;
    uint32_t raw[8][TP_LANES], v[TP_LANES];
    memcpy(raw, in->raw, (size_t)s.R * 128);
    for (unsigned row = 0; row < s.T; row++) {
        row_values(s, in->entries + row * (per_row / s.c), in->symbols, v);
        /* as tp_raw_bits, a word at a time */
        if (row < s.R * direct)
            add_bits(v, raw[row / direct], 32 - s.R * (row % direct), tp_field(s, 0, s.R));
        for (unsigned a = 0, len; spare && row >= s.R * direct && a < s.R; a += len) {
            const unsigned p = (row - s.R * direct) * s.R + a, k = p / spare, at = p % spare;
            len = spare - at < s.R - a ? spare - at : s.R - a;
            add_bits(v, raw[k], 32 - (direct * s.R + at - a), tp_field(s, a, len));
        }
        store_row(s.low, v, s.low ? in->low + row * per_row * (s.low == 1 ? 1 : 2) : NULL, in->low_stride,
                  dst + row * per_row * (s.T / 8u + s.low));
    }
}

static void decode_stream(tp_shape s, tp_w32_job *job)
{
    const uint32_t groups = (job->n + TP_GROUP - 1) / TP_GROUP;
    const unsigned element = s.T / 8u + s.low;
    const uint8_t *words = job->words, *const end = words + 2 * (size_t)job->nw;
    uint32_t tables[TP_MAX_SELECTED][1024], entries[TP_GROUP], x[TP_LANES], left = job->n;
    portable_group group = {.entries = entries,
                            .raw = job->payload + 128,
                            .low = job->low,
                            .low_stride = (size_t)groups * 2 * TP_GROUP};
    uint8_t *dst = job->dst;
    bool good = true;

    memcpy(x, job->payload, sizeof x);
    for (unsigned lane = 0; lane < TP_LANES; lane++)
        good &= x[lane] >= TP_W32_L && x[lane] < TP_W32_L << 16;
    for (unsigned i = 0; i < 1u << job->selector_bits; i++) entries_init(&s, job->table + i, tables[i]);
    /* A group consumes at most 2048 bytes of words, so one check a group keeps reads within the slack. */
    for (uint32_t g = 0; g < groups && good && words <= end; g++) {
        const unsigned selector = tp_selector(job->selectors, job->selector_bits, g);
        words = decode_steps(tables[selector], x, words, entries, 32u / s.c);
        group.symbols = job->table[selector].symbol;
        if (left < TP_GROUP) {
            uint8_t last[TP_GROUP * 8];
            merge_group(s, &group, last);
            memcpy(dst, last, left * element);
            break;
        }
        merge_group(s, &group, dst);
        left -= TP_GROUP;
        dst += TP_GROUP * element;
        group.raw += (size_t)s.R * 128;
        if (s.low) group.low += TP_GROUP * (s.low == 1 ? 1 : 2);
    }
    good &= words == end;
    for (unsigned lane = 0; lane < TP_LANES; lane++) good &= x[lane] == TP_W32_L;
    job->good = good;
    if (good)
        tp_w32_apply_exceptions(&s, end + (job->nw & 1) * 2 + tp_selector_bytes(job->n, job->selector_bits),
                                job->nx, job->n, job->dst);
}

void tp_portable_w32_decode(const tp_shape *shape, tp_w32_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) decode_stream(*shape, &jobs[i]);
}

void tp_w32_apply_exceptions(const tp_shape *shape, const uint8_t *list, uint32_t nx, uint32_t n,
                             uint8_t *dst)
{
    const tp_shape s = *shape;
    const unsigned bits = s.c == 2 ? 16 : 18, width = s.T - s.R;
    const size_t element = tp_shape_element(shape);
    const uint32_t keep = ~tp_symbol_bits(s, (1u << width) - 1);
    for (uint32_t i = 0; i < nx; i++) {
        const uint32_t entry = tp_load32(list + 4 * (size_t)i);
        uint32_t position = (entry & ((1u << bits) - 1)) * s.c, symbol = entry >> bits;
        for (unsigned k = 0; k < s.c && position < n; k++, position++, symbol >>= width) {
            uint8_t *top = dst + position * element + s.low;
            const uint32_t put = tp_symbol_bits(s, symbol & ((1u << width) - 1));
            if (s.T == 16)
                tp_store16(top, (uint16_t)((tp_load16(top) & keep) | put));
            else
                *top = (uint8_t)((*top & keep) | put);
        }
    }
}

static const uint8_t *wide_steps(const uint32_t *restrict table, uint32_t *restrict x, const uint8_t *words,
                                 uint32_t *restrict out)
{
    for (unsigned step = 0; step < TP_GROUP / TP_LANES; step++, out += TP_LANES)
        for (unsigned lane = 0; lane < TP_LANES; lane += 8)
            DECODE_8(lane, entry >> 20, entry >> 8 & 4095, TP_WIDE_K);
    return words;
}

static void wide_decode_one(tp_wide_job *job)
{
    const uint8_t *words = job->payload + 128, *const end = words + 2 * (size_t)job->nw;
    uint8_t *dst = job->dst;
    uint32_t entries[TP_GROUP], x[TP_LANES], left = job->n;
    bool good = true;

    memcpy(x, job->payload, sizeof x);
    for (unsigned lane = 0; lane < TP_LANES; lane++)
        good &= x[lane] >= TP_WIDE_L && x[lane] < TP_WIDE_L << 16;
    while (left && good && words <= end) {
        uint8_t group[TP_GROUP];
        words = wide_steps(job->table->slot, x, words, entries);
        for (unsigned row = 0; row < TP_GROUP; row += 128)
            for (unsigned lane = 0; lane < TP_LANES; lane++)
                for (unsigned b = 0; b < 4; b++)
                    group[row + lane * 4 + b] = (uint8_t)entries[row + b * TP_LANES + lane];
        const uint32_t count = left < TP_GROUP ? left : TP_GROUP;
        memcpy(dst, group, count);
        dst += count;
        left -= count;
    }
    good &= words == end && left == 0;
    for (unsigned lane = 0; lane < TP_LANES; lane++) good &= x[lane] == TP_WIDE_L;
    job->good = good;
}

void tp_portable_wide_decode(tp_wide_job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) wide_decode_one(&jobs[i]);
}

/* ------------------------------------------------------------------------------------------ encoding */

/* Scratch of an encode job: top parts as rows, then a byte per symbol (its entry), words (from where the
 * exceptions start downwards), exceptions. Room for 2^17 + 1024 elements each. */
#define SCRATCH_ENTRIES (2 * TP_ENCODE_ELEMENTS)
#define SCRATCH_EXCEPTIONS (8 * TP_ENCODE_ELEMENTS)
_Static_assert(SCRATCH_EXCEPTIONS + 4 * TP_ENCODE_ELEMENTS <= TP_ENCODE_SCRATCH, "encode scratch");

/* What a step needs of a table's entry, in one place. */
typedef struct coded_symbol {
    uint64_t reciprocal;
    uint32_t F, start;
} coded_symbol;

TP_INLINE void gather_tops(tp_shape s, const uint8_t *src, uint32_t n, uint32_t padded, uint8_t *tops)
{
    const unsigned element = s.T / 8u + s.low, top = s.T / 8u;
    if (s.low == 0)
        memcpy(tops, src, (size_t)n * top);
    else
        for (uint32_t i = 0; i < n; i++)
            memcpy(tops + (size_t)i * top, src + (size_t)i * element + s.low, top);
    memset(tops + (size_t)n * top, 0, (size_t)(padded - n) * top);
}

/* Entries of all symbols, and the exceptions; returns the number of these. */
TP_INLINE uint32_t find_entries(tp_shape s, const tp_w32_encode_job *job, const uint8_t *tops,
                                uint32_t padded, uint8_t *entries, uint8_t *exceptions)
{
    const unsigned top = s.T / 8u, position_bits = s.c == 2 ? 16 : 18, width = s.T - s.R;
    const uint32_t n = job->n;
    const uint32_t symbols = (n + s.c - 1) / s.c, group = (uint32_t)TP_GROUP / s.c;
    const tp_w32_encode_table *table = job->table;
    uint32_t nx = 0;
    for (uint32_t i = 0; i < symbols; i++) {
        if (job->selectors && i % group == 0) table = job->table + job->selectors[i / group];
        uint32_t symbol = 0;
        for (unsigned k = 0; k < s.c; k++) {
            const uint8_t *p = tops + ((size_t)i * s.c + k) * top;
            symbol |= tp_symbol_of(s, s.T == 16 ? tp_load16(p) : *p) << width * k;
        }
        /* The missing half of an odd last pair: ignored by decoders, here always that of the common symbol.
         */
        if (s.c == 2 && i * 2 + 1 == n) symbol = (symbol & 255u) | (table->symbol[table->common] & 0xff00u);
        uint8_t entry = table->entry[symbol];
        if (entry == TP_NO_ENTRY) {
            tp_store32(exceptions + 4 * (size_t)nx++, i | symbol << position_bits);
            entry = (uint8_t)table->common;
        }
        entries[i] = entry;
    }
    memset(entries + symbols, (int)table->common, padded / s.c - symbols);
    return nx;
}

TP_INLINE void encode_stream(tp_shape s, tp_w32_encode_job *job)
{
    const uint32_t n = job->n, groups = (n + TP_GROUP - 1) / TP_GROUP, padded = groups * TP_GROUP;
    const unsigned element = s.T / 8u + s.low, steps = 32u / s.T / s.c;
    uint8_t *const tops = job->scratch, *const entries = job->scratch + SCRATCH_ENTRIES;
    uint8_t *const words_end = job->scratch + SCRATCH_EXCEPTIONS, *const exceptions = words_end;
    const unsigned rows_per_group = s.T;

    job->size = 0;
    const size_t words_at = tp_stream_words_at(&s, n, job->with_low);
    if (words_at > job->capacity) return;
    gather_tops(s, job->src, n, padded, tops);
    job->nx = find_entries(s, job, tops, padded, entries, exceptions);

    coded_symbol codes[TP_MAX_SELECTED][TP_MAX_SYMBOLS];
    for (unsigned t = 0; t < 1u << job->selector_bits; t++)
        for (uint32_t i = 0; i < job->table[t].count; i++)
            codes[t][i] =
                (coded_symbol){job->table[t].reciprocal[i], job->table[t].F[i], job->table[t].start[i]};

    /* rANS runs backwards: the last symbol first, and words from the end. */
    uint32_t x[TP_LANES];
    uint8_t *words = words_end;
    for (unsigned lane = 0; lane < TP_LANES; lane++) x[lane] = TP_W32_L;
    for (uint32_t row = groups * rows_per_group; row-- > 0;) {
        const coded_symbol *const code = codes[job->selectors ? job->selectors[row / rows_per_group] : 0];
        for (unsigned b = steps; b-- > 0;)
            for (unsigned lane = TP_LANES; lane-- > 0;) {
                const coded_symbol c = code[entries[((size_t)row * TP_LANES + lane) * steps + b]];
                /* without a branch, which nobody could predict: written in any case, kept if need be */
                const uint32_t give = x[lane] >> 16 >= c.F;
                tp_store16(words - 2, (uint16_t)x[lane]);
                words -= 2 * give;
                const uint32_t v = x[lane] >> 16 * give;
                const uint32_t q = (uint32_t)(v * c.reciprocal >> 36);
                x[lane] = (q << TP_W32_K) + c.start + (v - q * c.F);
            }
    }
    job->nw = (uint32_t)(words_end - words) / 2;
    const tp_shape shape = s; /* a copy: what has an address does not fold */
    tp_w32_encode_end(&shape, job, x, words, exceptions);
    if (!job->size) return;

    uint8_t *out = job->payload + 128;
    for (uint32_t g = 0; g < groups; g++, out += (size_t)s.R * 128) {
        uint32_t raw[16][TP_LANES] = {{0}};
        const uint8_t *const rows = tops + (size_t)g * s.T * TP_LANES * 4;
        UNROLL for (unsigned j = 0; j < 16; j++) /* so that tp_raw_put folds, and lanes become vectors */
            for (unsigned lane = 0; j < s.T && lane < TP_LANES; lane++)
                tp_raw_put(s, &raw[0][lane], j, tp_load32(rows + (j * TP_LANES + lane) * 4));
        memcpy(out, raw, (size_t)s.R * 128);
    }
    if (s.low && job->with_low) {
        memset(out, 0, (size_t)padded * s.low);
        for (uint32_t i = 0; i < n; i++) {
            const uint8_t *e = job->src + (size_t)i * element;
            if (s.low == 1) out[i] = e[0];
            for (unsigned y = 0; y < s.low / 2u; y++)
                memcpy(out + (size_t)y * padded * 2 + 2 * (size_t)i, e + 2 * y, 2);
        }
    }
}

void tp_w32_encode_end(const tp_shape *shape, tp_w32_encode_job *job, const uint32_t states[TP_LANES],
                       const uint8_t *words, const uint8_t *exceptions)
{
    const size_t used = tp_stream_used(shape, job->n, job->with_low, job->nw, job->nx, job->selector_bits);
    const size_t size = (size_t)tp_align(used, 128);
    job->size = 0;
    if (size > job->capacity) return;
    memcpy(job->payload, states, 4 * TP_LANES);
    uint8_t *out = job->payload + tp_stream_words_at(shape, job->n, job->with_low);
    memcpy(out, words, 2 * (size_t)job->nw);
    out += 2 * (size_t)job->nw;
    tp_w32_stream_end(job, out, exceptions, size);
}

void tp_w32_stream_end(tp_w32_encode_job *job, uint8_t *out, const uint8_t *exceptions, size_t size)
{
    const uint32_t groups = (job->n + TP_GROUP - 1) / TP_GROUP;
    if (job->nw & 1) {
        memset(out, 0, 2);
        out += 2;
    }
    if (job->selector_bits) {
        const size_t bytes = tp_selector_bytes(job->n, job->selector_bits);
        memset(out, 0, bytes);
        for (uint32_t g = 0; g < groups; g++)
            out[g * job->selector_bits / 8] |= (uint8_t)(job->selectors[g] << (g * job->selector_bits & 7));
        out += bytes;
    }
    memcpy(out, exceptions, 4 * (size_t)job->nx);
    out += 4 * (size_t)job->nx;
    memset(out, 0, (size_t)(job->payload + size - out));
    job->size = size;
}

void tp_portable_w32_encode(const tp_shape *shape, tp_w32_encode_job *job)
{
    TP_FOR_SHAPE(shape, encode_stream, job);
}

size_t tp_portable_wide_encode(const uint8_t *src, uint32_t n, const tp_wide_encode_table *table,
                               uint8_t *payload, size_t capacity, uint8_t *scratch, uint32_t *nw)
{
    uint8_t *const end = scratch + TP_ENCODE_SCRATCH;
    uint8_t *words = end;
    uint32_t x[TP_LANES];
    for (unsigned lane = 0; lane < TP_LANES; lane++) x[lane] = TP_WIDE_L;
    for (uint32_t row = (n + TP_GROUP - 1) / TP_GROUP * (TP_GROUP / 128); row-- > 0;)
        for (unsigned b = 4; b-- > 0;)
            for (unsigned lane = TP_LANES; lane-- > 0;) {
                const uint32_t i = row * 128 + lane * 4 + b, symbol = i < n ? src[i] : table->common;
                const uint32_t F = table->F[symbol];
                const uint32_t give = x[lane] >> 16 >= F; /* as in encode_stream */
                tp_store16(words - 2, (uint16_t)x[lane]);
                words -= 2 * give;
                const uint32_t v = x[lane] >> 16 * give;
                const uint32_t q = (uint32_t)(((unsigned __int128)v * table->reciprocal[symbol]) >> 40);
                x[lane] = (q << TP_WIDE_K) + table->start[symbol] + (v - q * F);
            }
    *nw = (uint32_t)(end - words) / 2;
    return tp_wide_encode_end(x, words, *nw, payload, capacity);
}

size_t tp_wide_encode_end(const uint32_t states[TP_LANES], const uint8_t *words, uint32_t nw,
                          uint8_t *payload, size_t capacity)
{
    const size_t used = 128 + 2 * (size_t)nw, size = (size_t)tp_align(used, 128);
    if (size > capacity) return 0;
    memcpy(payload, states, 4 * TP_LANES);
    memcpy(payload + 128, words, 2 * (size_t)nw);
    memset(payload + used, 0, size - used);
    return size;
}

/* ---------------------------------------------------------------------------------- counts and planes */

TP_INLINE void symbols_template(tp_shape s, const uint8_t *restrict src, uint16_t *restrict symbols)
{
    for (size_t i = 0; i < TP_GROUP; i++)
        symbols[i] = (uint16_t)tp_symbol_at(s, src + i * (s.T / 8u + s.low));
}

TP_INLINE uint32_t sum_template(tp_shape s, const uint8_t *src)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < TP_GROUP; i++) sum += tp_symbol_at(s, src + i * (s.T / 8u + s.low));
    return sum;
}

static void group_pairs(const uint8_t code[256], const uint16_t *symbols, uint8_t pairs[TP_GROUP / 2])
{
    tp_group_pairs(code, symbols, pairs);
}

void tp_portable_count_bytes(const uint8_t *src, size_t n, uint32_t step, uint32_t *counts)
{
    uint32_t part[3][256]; /* as in count_symbols */
    memset(part, 0, sizeof part);
    for (size_t first = 0; first < n; first += (size_t)step * TP_GROUP) {
        const size_t last = n - first < TP_GROUP ? n : first + TP_GROUP;
        size_t i = first;
        for (; i + 8 <= last; i += 8) {
            const uint64_t eight = tp_load64(src + i);
            counts[eight & 255]++;
            part[0][eight >> 8 & 255]++;
            part[1][eight >> 16 & 255]++;
            part[2][eight >> 24 & 255]++;
            counts[eight >> 32 & 255]++;
            part[0][eight >> 40 & 255]++;
            part[1][eight >> 48 & 255]++;
            part[2][eight >> 56]++;
        }
        for (; i < last; i++) counts[src[i]]++;
    }
    for (int i = 0; i < 256; i++) counts[i] += part[0][i] + part[1][i] + part[2][i];
}

TP_INLINE void get_plane(const uint8_t *restrict src, size_t size, unsigned element, unsigned index,
                         uint8_t *restrict dst)
{
    if (index >= size) return;
    const size_t count = (size - index + element - 1) / element;
    for (size_t i = 0; i < count; i++) dst[i] = src[i * element + index];
}

void tp_portable_plane_get(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst)
{
    switch (element) { /* those that occur: compilers vectorise them */
    case 1:
        get_plane(src, size, 1, index, dst);
        break;
    case 2:
        get_plane(src, size, 2, index, dst);
        break;
    case 4:
        get_plane(src, size, 4, index, dst);
        break;
    case 8:
        get_plane(src, size, 8, index, dst);
        break;
    default:
        get_plane(src, size, element, index, dst);
        break;
    }
}

void tp_portable_plane_put(const uint8_t *plane, size_t size, unsigned element, unsigned index,
                           uint8_t *dst)
{
    for (size_t i = index; i < size; i += element) dst[i] = *plane++;
}

const tp_kernels tp_kernels_portable = {
    .name = "portable",
    .w32_decode = tp_portable_w32_decode,
    .wide_decode = tp_portable_wide_decode,
    .w32_encode = tp_portable_w32_encode,
    .wide_encode = tp_portable_wide_encode,
    .count_symbols = count_symbols,
    .count_pairs = count_pairs,
    .group_sums = group_sums,
    .count_bytes = tp_portable_count_bytes,
    .plane_get = tp_portable_plane_get,
    .plane_put = tp_portable_plane_put,
    .hash64 = hash64,
    .hash128 = hash128,
    .hasher_init = hasher_init,
    .hasher_add = hasher_add,
    .hasher_end = hasher_end,
};
