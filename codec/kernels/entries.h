/*
 * Decoding by table entries from memory (docs/format.md section 7): what AVX2 and NEON have in common. Part
 * of avx2.c and neon.c, which define the functions declared below.
 *
 * Two stages a group, joined by a buffer in the first-level cache:
 *
 * 1. steps: states to table entries: 32 bits with everything that a step needs. A step is one long chain of
 * dependent operations, so two streams run interleaved. This stage knows no shape. It asks for what the
 * next group's merge touches, which is at more places in turn than hardware prefetchers follow.
 *
 * 2. merge: entries to symbols; with raw rows and low planes to whole elements. One stream at a time.
 *
 * Where things are in an entry: bias = slot - start of the interval. W32: F in bits 0..9, bias in
 * bits 10..19, the symbol (pairs: the number of its entry) in bits 20..31. Wide: as in tp_wide_table.
 */
#ifndef TP_CODEC_ENTRIES_H
#define TP_CODEC_ENTRIES_H

#include <string.h>

#include "codec/kernels/geometry.h"

#define STREAMS 2       /* most that run interleaved */
#define WORDS_AHEAD 512 /* bytes: the words of some 40 steps */

typedef struct stream {
    _Alignas(32) uint32_t x[TP_LANES];
    const uint8_t *w;
    const uint32_t *table;
    uint32_t *entries;                             /* out: 32 a step */
    const uint8_t *next_dst, *next_raw, *next_low; /* prefetched only, so they may lie anywhere */
} stream;

#define LINE 64 /* bytes of a cache line */

/* What a step asks for of the next group: a line of raw rows and of low planes, if there are any, and so
 * many of dst. Lines beyond the group are the one's after it. */
typedef struct pace {
    size_t dst_lines;
    bool low;
} pace;

static INLINE void prefetch_step(const stream *s, const uint8_t *w, const pace *per_step, int step)
{
    const size_t at = (size_t)step * LINE, dst = at * per_step->dst_lines;
    __builtin_prefetch(w + WORDS_AHEAD);
    __builtin_prefetch(s->next_raw + at);
    if (per_step->low) __builtin_prefetch(s->next_low + at);
    __builtin_prefetch(s->next_dst + dst);
    if (per_step->dst_lines > 1) __builtin_prefetch(s->next_dst + dst + LINE);
}

/* Where the parts of one group are. */
typedef struct group {
    const uint32_t *entries;
    const uint8_t *raw, *low;
    size_t low_stride;      /* bytes from one u16 plane to the next */
    const uint32_t *values; /* pairs: by entry, both symbols at their places */
    uint8_t *dst;
} group;

/* One group's steps, of one stream or two. */
typedef void steps_function(stream *const *streams, const pace *per_step, int steps);
static steps_function steps1, steps2, wide_steps1, wide_steps2;
/* One group. */
static void merge(const tp_shape *shape, const group *in);
/* A group's entries to bytes: the lowest of each. */
static void wide_merge(const uint32_t *entries, uint8_t *dst);

/* ---- the streams in flight ---- */

/* A table as both stages want it. */
typedef struct prepared_table {
    const tp_w32_table *source;
    _Alignas(64) uint32_t entries[1024];
    uint32_t values[TP_MAX_SYMBOLS];
} prepared_table;

#define PREPARED (2 * STREAMS * TP_MAX_SELECTED) /* at least what a full set of streams may want */

typedef struct prepared_tables {
    size_t count;
    prepared_table table[PREPARED];
} prepared_tables;

static void prepared_table_init(prepared_table *to, const tp_shape *shape, const tp_w32_table *from)
{
    to->source = from;
    for (int i = 0; i < 1024; i++) {
        const tp_slot slot = from->slot[i];
        const uint32_t symbol = shape->c == 2 ? slot.entry : slot.symbol;
        to->entries[i] = slot.F | (uint32_t)slot.bias << 10 | symbol << 20;
    }
    if (shape->c == 2)
        for (uint32_t i = 0; i < TP_MAX_SYMBOLS; i++)
            to->values[i] = tp_symbol_bits(*shape, from->symbol[i] & 255u) |
                            tp_symbol_bits(*shape, from->symbol[i] >> 8) << 16;
}

/* NULL if there is no room. */
static const prepared_table *prepare_table(prepared_tables *all, const tp_shape *shape,
                                           const tp_w32_table *source)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->table[i].source == source) return &all->table[i];
    if (all->count == PREPARED) return NULL;
    prepared_table *t = &all->table[all->count++];
    prepared_table_init(t, shape, source);
    return t;
}

/* false: one is out of range */
static bool load_states(const uint8_t *p, unsigned K, uint32_t x[TP_LANES])
{
    bool good = true;
    memcpy(x, p, TP_LANES * sizeof *x);
    for (int i = 0; i < TP_LANES; i++) good &= x[i] >> K != 0 && x[i] >> (16 + K) == 0;
    return good;
}

static bool states_ended(const uint32_t x[TP_LANES], unsigned K)
{
    bool good = true;
    for (int i = 0; i < TP_LANES; i++) good &= x[i] == 1u << K;
    return good;
}

typedef struct flight {
    stream s;
    group at;
    tp_w32_job *job;
    const prepared_table *table[TP_MAX_SELECTED]; /* by selector */
    const uint8_t *words_end;
    uint32_t group, groups; /* the next one; in all */
    bool bad;
} flight;

/* false: no room for its tables */
static bool flight_start(flight *f, const tp_shape *shape, tp_w32_job *job, prepared_tables *tables)
{
    for (unsigned i = 0; i < 1u << job->selector_bits; i++) {
        f->table[i] = prepare_table(tables, shape, job->table + i);
        if (!f->table[i]) return false;
    }
    f->job = job;
    f->bad = !load_states(job->payload, TP_W32_K, f->s.x);
    f->s.w = job->words;
    f->words_end = job->words + (size_t)job->nw * 2;
    f->group = 0;
    f->groups = (job->n + TP_GROUP - 1) / TP_GROUP;
    f->at.raw = job->payload + 128;
    f->at.low = job->low;
    f->at.low_stride = (size_t)f->groups * TP_GROUP * 2;
    f->at.dst = job->dst;
    return true;
}

static void flight_end(const flight *f, const tp_shape *shape)
{
    tp_w32_job *job = f->job;
    job->good = !f->bad && f->s.w == f->words_end && states_ended(f->s.x, TP_W32_K);
    if (job->good && job->nx) {
        const size_t words = ((size_t)job->nw * 2 + 3) & ~(size_t)3;
        tp_w32_apply_exceptions(shape, job->words + words + tp_selector_bytes(job->n, job->selector_bits),
                                job->nx, job->n, job->dst);
    }
}

static void w32_decode(const tp_shape *shape, tp_w32_job *jobs, size_t count)
{
    _Alignas(64) uint32_t entries[STREAMS][TP_GROUP];
    _Alignas(64) uint8_t tail[TP_GROUP * 8];
    prepared_tables tables;
    flight flights[STREAMS];
    stream *streams[STREAMS];
    const size_t element = tp_shape_element(shape);
    const size_t raw_step = (size_t)128 * shape->R, low_step = (size_t)TP_GROUP * (shape->low == 1 ? 1 : 2);
    const int steps = 32 / shape->c;
    const pace per_step = {(TP_GROUP * element / (size_t)steps + LINE - 1) / LINE, shape->low > 0};
    size_t next = 0, n = 0;

    tables.count = 0;
    for (int i = 0; i < STREAMS; i++) streams[i] = &flights[i].s;
    for (;;) {
        while (n < STREAMS && next < count && flight_start(&flights[n], shape, &jobs[next], &tables)) {
            next++;
            n++;
        }
        if (n == 0) {
            if (next == count) return;
            tables.count = 0; /* full, and no stream uses them: make room for the next ones' */
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            flight *f = &flights[i];
            /* A group takes at most 2048 bytes of words and looks at 16 more: with one check a group,
             * reads stay within TP_SLACK. A damaged stream starts over, to be rejected at its end. */
            if (f->s.w > f->words_end) {
                f->bad = true;
                f->s.w = f->job->words;
            }
            const prepared_table *t =
                f->table[tp_selector(f->job->selectors, f->job->selector_bits, f->group)];
            f->s.table = t->entries;
            f->at.values = t->values;
            f->s.next_dst = f->at.dst + TP_GROUP * element;
            f->s.next_raw = f->at.raw + raw_step;
            f->s.next_low = shape->low ? f->at.low + low_step : f->s.next_raw;
            f->s.entries = entries[i];
            f->at.entries = entries[i];
        }
        (n == 1 ? steps1 : steps2)(streams, &per_step, steps);
        for (size_t i = 0; i < n;) {
            flight *f = &flights[i];
            const size_t left = f->job->n - (size_t)f->group * TP_GROUP;
            if (left > TP_GROUP) {
                merge(shape, &f->at);
                f->group++;
                f->at.dst += TP_GROUP * element;
                f->at.raw += raw_step;
                if (shape->low) f->at.low += low_step;
                i++;
                continue;
            }
            uint8_t *dst = f->at.dst;
            f->at.dst = tail;
            merge(shape, &f->at);
            memcpy(dst, tail, left * element);
            flight_end(f, shape);
            flights[i] = flights[--n];
        }
    }
}

/* ---- wide streams ---- */

typedef struct wide_flight {
    stream s;
    const uint8_t *words_end;
    tp_wide_job *job;
    uint8_t *dst;
    uint32_t left; /* bytes */
    bool bad;
} wide_flight;

static void wide_decode(tp_wide_job *jobs, size_t count)
{
    _Alignas(64) uint32_t entries[STREAMS][TP_GROUP];
    _Alignas(64) uint8_t tail[TP_GROUP];
    wide_flight flights[STREAMS];
    stream *streams[STREAMS];
    const pace per_step = {1, false};
    size_t next = 0, n = 0;

    for (int i = 0; i < STREAMS; i++) streams[i] = &flights[i].s;
    for (;;) {
        for (; n < STREAMS && next < count; n++) {
            wide_flight *f = &flights[n];
            tp_wide_job *job = &jobs[next++];
            f->bad = !load_states(job->payload, TP_WIDE_K, f->s.x);
            f->s.w = job->payload + 128;
            f->words_end = f->s.w + (size_t)job->nw * 2;
            f->s.table = job->table->slot;
            f->dst = job->dst;
            f->job = job;
            f->left = job->n;
        }
        if (n == 0) return;
        for (size_t i = 0; i < n; i++) {
            wide_flight *f = &flights[i];
            f->s.entries = entries[i];
            f->s.next_dst = f->dst + TP_GROUP;
            f->s.next_raw = f->s.next_low = f->s.next_dst;
            if (f->s.w > f->words_end) { /* as in w32_decode */
                f->bad = true;
                f->s.w = f->job->payload + 128;
            }
        }
        (n == 1 ? wide_steps1 : wide_steps2)(streams, &per_step, 32);
        for (size_t i = 0; i < n;) {
            wide_flight *f = &flights[i];
            if (f->left > TP_GROUP) {
                wide_merge(f->s.entries, f->dst);
                f->left -= TP_GROUP;
                f->dst += TP_GROUP;
                i++;
                continue;
            }
            wide_merge(f->s.entries, tail);
            memcpy(f->dst, tail, f->left);
            f->job->good = !f->bad && f->s.w == f->words_end && states_ended(f->s.x, TP_WIDE_K);
            flights[i] = flights[--n];
        }
    }
}

#endif
