/*
 * Encoding by table entries from memory (docs/format.md section 7): what AVX2 and NEON have in common. Part
 * of avx2.c and neon.c, which define the functions declared below.
 *
 * Groups are taken last to first, as rANS runs backwards, each in two stages:
 *
 * 1. split: elements to raw rows, low planes, and keys: a byte a symbol, by which stage 2 finds its entry.
 *
 * 2. steps: 32 states, and words from the end of their room downwards. An entry is 64 bits with everything
 * that a step needs, so that what a lane looks up is one load.
 *
 * Symbols without an entry in the table have keys of their own, whose entries are the common one's, marked.
 * Stage 2 says in which steps it met a mark, and only rows of such steps are searched for exceptions.
 */
#ifndef TP_CODEC_ENTRIES_ENCODE_H
#define TP_CODEC_ENTRIES_ENCODE_H

#include "codec/kernels/encode.h"

/* Entries: m in bits 0..31, bias in bits 32..44, the mark in bit 45, F in bits 48..59, the shift above (see
 * rans_constants). Of the upper half: */
#define ENTRY_BIAS 0x1fff
#define ENTRY_MARK 0x2000
#define ENTRY_F 0x0fff0000 /* in place: F << 16, which states of a lane that gives no word are below */
#define ENTRY_SHIFT 28

static uint64_t encode_entry(uint32_t F, uint32_t start, uint32_t L, bool mark)
{
    uint32_t m, bias, shift;
    rans_constants(F, start, L, &m, &bias, &shift);
    return m | (uint64_t)(bias | (mark ? ENTRY_MARK : 0) | F << 16 | shift << ENTRY_SHIFT) << 32;
}

/*
 * Keys of a table. Windows: a symbol's distance from `first`, at most 255; pairs: of each half, at most 15,
 * the second's times 16. Tables that do not fit one: the entry's number or TP_NO_ENTRY, looked up one by
 * one.
 */
typedef struct key_map {
    const tp_w32_encode_table *table;
    uint32_t first;
    bool window;
    uint64_t entries[256];
} key_map;

static uint32_t key_of(const tp_shape *shape, const key_map *map, uint32_t symbol)
{
    if (!map->window) return map->table->entry[symbol];
    if (shape->c == 1) return symbol - map->first;
    return ((symbol & 255) - map->first) | ((symbol >> 8) - map->first) << 4;
}

static void key_map_init(key_map *map, const tp_shape *shape, const tp_w32_encode_table *table)
{
    uint32_t last = 0;
    map->table = table;
    map->first = UINT32_MAX;
    for (uint32_t i = 0; i < table->count; i++)
        for (unsigned k = 0; k < shape->c; k++) {
            const uint32_t whole = table->symbol[i];
            const uint32_t symbol = shape->c == 1 ? whole : whole >> 8 * k & 255;
            if (symbol < map->first) map->first = symbol;
            if (symbol > last) last = symbol;
        }
    if (shape->T == 8) map->first = 0; /* all symbols are below 128 */
    map->window = last - map->first < (shape->c == 1 ? 255 : 15);

    const uint32_t common = table->common;
    const uint64_t none = encode_entry(table->F[common], table->start[common], TP_W32_L, true);
    for (int i = 0; i < 256; i++) map->entries[i] = none;
    for (uint32_t i = 0; i < table->count; i++)
        map->entries[key_of(shape, map, table->symbol[i])] =
            encode_entry(table->F[i], table->start[i], TP_W32_L, false);
}

/* Keys of symbols in a table without a window. */
static NOINLINE void keys_by_table(const key_map *map, const uint16_t *symbols, int count, uint16_t *keys)
{
    for (int i = 0; i < count; i++) keys[i] = map->table->entry[symbols[i]];
}

/* Where one group goes. */
typedef struct split {
    const key_map *map;
    const uint8_t *src;
    uint8_t *raw, *low; /* low: NULL if not stored */
    size_t low_stride;
    uint8_t *keys; /* 1024 / c, by row; within a row as steps want them */
} split;

/* The states, in the order of the registers, and the words so far. Up to 16 bytes before w are written. */
typedef struct coder {
    _Alignas(32) uint32_t x[TP_LANES];
    uint8_t *w;
} coder;

/* What the next group's split touches, prefetched only, so it may lie anywhere. */
typedef struct split_ahead {
    const uint8_t *src, *raw;
    size_t src_step, raw_step; /* bytes that belong to a step */
} split_ahead;

static INLINE void prefetch_split(split_ahead *next)
{
    __builtin_prefetch(next->raw);
    for (size_t i = 0; i < next->src_step; i += 64) __builtin_prefetch(next->src + i);
    next->src += next->src_step;
    next->raw += next->raw_step;
}

/* The two stages of one group. Its rows are of 1, 2 or 4 steps; bit t of what comes back: a mark in step t.
 */
static INLINE void split_template(tp_shape s, const split *to);
static INLINE uint32_t encode_template(coder *s, const uint64_t *entries, const uint8_t *keys,
                                       const split_ahead *next, int row_steps, int K);
/* The states, lane 0 first. */
static void coder_states(const coder *s, uint32_t states[TP_LANES]);

static NOINLINE void split_group(const tp_shape *shape, const split *to)
{
    TP_FOR_SHAPE(shape, split_template, to);
}

typedef uint32_t encode_function(coder *s, const uint64_t *entries, const uint8_t *keys,
                                 const split_ahead *next);
#define ENCODE_STEPS(name, row_steps, K)                                                                   \
    static NOINLINE uint32_t name(coder *s, const uint64_t *entries, const uint8_t *keys,                  \
                                  const split_ahead *next)                                                 \
    {                                                                                                      \
        return encode_template(s, entries, keys, next, row_steps, K);                                      \
    }
ENCODE_STEPS(encode_steps1, 1, TP_W32_K)
ENCODE_STEPS(encode_steps2, 2, TP_W32_K)
ENCODE_STEPS(encode_steps4, 4, TP_W32_K)
ENCODE_STEPS(wide_encode_steps, 4, TP_WIDE_K)

static void coder_init(coder *s, uint32_t L, uint8_t *words_end)
{
    for (int i = 0; i < TP_LANES; i++) s->x[i] = L;
    s->w = words_end;
}

/* Symbols without an entry in the rows of the steps at hand, to `list`; how many. */
static INLINE uint32_t exceptions_template(tp_shape s, const split *of, uint32_t position, uint32_t steps,
                                           uint32_t *list)
{
    const uint32_t per_row = 1024u / s.T / s.c, row_steps = per_row / TP_LANES;
    const size_t step = (size_t)(s.T / 8 + s.low) * s.c;
    uint32_t count = 0;
    for (uint32_t row = 0; steps; row++, steps >>= row_steps) {
        if (!(steps & ((1u << row_steps) - 1))) continue;
        for (uint32_t i = row * per_row; i < (row + 1) * per_row; i++) {
            const uint32_t symbol = tp_symbol_at(s, of->src + i * step);
            list[count] = (position + i) | symbol << (s.c == 2 ? 16 : 18);
            count += of->map->table->entry[symbol] == TP_NO_ENTRY; /* kept if need be */
        }
    }
    return count;
}

static NOINLINE uint32_t find_exceptions(const tp_shape *shape, const split *of, uint32_t position,
                                         uint32_t steps, uint32_t *list)
{
    uint32_t count = 0;
    TP_FOR_SHAPE(shape, count = exceptions_template, of, position, steps, list);
    return count;
}

static void w32_encode(const tp_shape *shape, tp_w32_encode_job *job)
{
    _Alignas(64) uint8_t keys[TP_GROUP], padded[TP_GROUP * 8];
    uint32_t exceptions[TP_GROUP], states[TP_LANES];
    key_map maps[TP_MAX_SELECTED];
    coder s;
    const uint32_t groups = (job->n + TP_GROUP - 1) / TP_GROUP;
    const size_t element = tp_shape_element(shape), raw_group = (size_t)128 * shape->R;
    const size_t low_group = (size_t)TP_GROUP * (shape->low == 1 ? 1 : 2);
    const size_t steps = 32u / shape->c;
    encode_function *const encode = shape->T == 8   ? encode_steps4
                                    : shape->c == 1 ? encode_steps2
                                                    : encode_steps1;

    job->size = 0;
    if (tp_stream_words_at(shape, job->n, job->with_low) > job->capacity) return;
    for (unsigned i = 0; i < 1u << job->selector_bits; i++) key_map_init(&maps[i], shape, job->table + i);

    coder_init(&s, TP_W32_L, job->scratch + SCRATCH_LIST);
    uint8_t *const list_end = job->scratch + SCRATCH_STREAM;
    uint8_t *list = list_end;
    uint8_t *const raw = job->payload + 128, *const low = raw + groups * raw_group;
    split_ahead next = {.src_step = TP_GROUP * element / steps, .raw_step = raw_group / steps};
    split to = {.keys = keys, .low_stride = (size_t)groups * TP_GROUP * 2};
    for (uint32_t g = groups; g-- > 0;) {
        const key_map *map = &maps[job->selectors ? job->selectors[g] : 0];
        const size_t left = job->n - (size_t)g * TP_GROUP;
        to.map = map;
        to.src = job->src + (size_t)g * TP_GROUP * element;
        if (left < TP_GROUP) {
            pad_last_group(shape, map->table, to.src, left, padded);
            to.src = padded;
        }
        to.raw = raw + g * raw_group;
        to.low = shape->low && job->with_low ? low + g * low_group : NULL;
        split_group(shape, &to);

        next.src = job->src + (size_t)(g ? g - 1 : 0) * TP_GROUP * element;
        next.raw = raw + (g ? g - 1 : 0) * raw_group;
        const uint32_t marked = encode(&s, map->entries, keys, &next);
        if (marked) {
            const size_t bytes =
                4 * (size_t)find_exceptions(shape, &to, g * (TP_GROUP / shape->c), marked, exceptions);
            list -= bytes;
            memcpy(list, exceptions, bytes);
        }
    }

    job->nw = (uint32_t)(job->scratch + SCRATCH_LIST - s.w) / 2;
    job->nx = (uint32_t)(list_end - list) / 4;
    coder_states(&s, states);
    tp_w32_encode_end(shape, job, states, s.w, list);
}

/* ---- wide streams ---- */

static size_t wide_encode(const uint8_t *src, uint32_t n, const tp_wide_encode_table *table,
                          uint8_t *payload, size_t capacity, uint8_t *scratch, uint32_t *nw)
{
    _Alignas(64) uint8_t padded[TP_GROUP];
    uint32_t states[TP_LANES];
    uint64_t entries[256];
    uint8_t *const words_end = scratch + SCRATCH_LIST;
    coder s;
    for (int i = 0; i < 256; i++)
        entries[i] = table->F[i] ? encode_entry(table->F[i], table->start[i], TP_WIDE_L, false) : 0;
    coder_init(&s, TP_WIDE_L, words_end);
    split_ahead next = {.src_step = TP_GROUP / 32, .raw_step = 0};
    for (uint32_t g = (n + TP_GROUP - 1) / TP_GROUP; g-- > 0;) {
        const uint8_t *keys = wide_group(table, src, n, g, padded);
        next.src = next.raw = src + (size_t)(g ? g - 1 : 0) * TP_GROUP;
        wide_encode_steps(&s, entries, keys, &next);
    }
    *nw = (uint32_t)(words_end - s.w) / 2;
    coder_states(&s, states);
    return tp_wide_encode_end(states, s.w, *nw, payload, capacity);
}

#endif
