/*
 * What the files of the encoder share: the workspace, the frame being made, and the steps of making it. A
 * frame is planned first (plan.c: modes, tables, estimates), since the tables stand before the payload,
 * then its parts are written (parts.c), and its header and hashes last (encode.c).
 */
#ifndef TP_CODEC_ENCODER_H
#define TP_CODEC_ENCODER_H

#include "codec/bytes.h"
#include "codec/choose.h"
#include "codec/class.h"
#include "codec/df11.h"
#include "codec/frame.h"
#include "codec/table.h"

#define TP_MAX_PLANES 8 /* byte planes of an element: low planes, or codec planes */

/* What one part (a chunk's elements or tops, or one byte plane) becomes. */
typedef struct tp_part_plan {
    uint8_t mode, table;
    bool try_lz4;      /* a sample shrinks: try it, and fall back to mode */
    uint64_t value;    /* of a constant */
    uint64_t estimate; /* bytes */
} tp_part_plan;

typedef struct tp_wide_pool {
    uint32_t count;
    uint16_t F[TP_MAX_TABLES][256];
    tp_wide_encode_table table[TP_MAX_TABLES];
} tp_wide_pool;

struct tp_encoder {
    const tp_kernels *kernels;
    tp_log2 log2;
    /* Counts by chunk and class of groups: 2^10 symbols in 16 chunks, 2^12 in 4, 2^7 in 32, in 4 classes
     * each; or 2^8 pairs of codes in 16 chunks. */
    uint32_t counts[65536];
    tp_choice choices[2], *choice; /* the one that is taken, of these */
    uint32_t means[TP_MAX_GROUPS];
    uint8_t selectors[TP_MAX_GROUPS];
    uint64_t hash[TP_MAX_CHUNKS]; /* of the chunks' raw bytes */
    tp_w32_encode_table *table;   /* TP_MAX_TABLES of them, for choice.record */
    tp_wide_pool wide;
    tp_part_plan plan[TP_MAX_CHUNKS][1 + TP_MAX_PLANES];
    uint8_t *scratch; /* TP_ENCODE_SCRATCH, for the stream kernels */
    uint8_t *plane;   /* a chunk's byte planes: 2^17 elements of up to 8 bytes */
    uint8_t *block;   /* an lz4 block tried, as large */
    uint8_t *other;   /* a second frame, for level max */
    void *lz4hc;
    tp_df11_plan df11;
};

/* One frame being made. */
typedef struct tp_encode_state {
    tp_encoder *encoder;
    const tp_kernels *kernels;
    tp_class cls;
    const tp_class_traits *traits;
    tp_level level;
    bool lz4;      /* typed parts may become lz4 blocks */
    bool wide_top; /* elements of a byte may be wide symbols */
    const uint8_t *raw;
    size_t raw_size;
    uint8_t *frame; /* room for tp_encode_bound(raw_size) */
} tp_encode_state;

static inline size_t tp_chunk_bytes(const tp_encode_state *s, uint32_t index, size_t chunk)
{
    const size_t left = s->raw_size - index * chunk;
    return left < chunk ? left : chunk;
}

/* Saves at least 1 % of `whole` bytes. */
static inline bool tp_pays(uint64_t bytes, uint64_t whole)
{
    return bytes * 100 <= whole * 99;
}

/* plan.c: a byte plane (byte `index` of every `element` bytes at src); then the tables of a frame, its
 * chunks' hashes, and what becomes of each chunk's elements or, low_coded, their top parts. With `coarser`,
 * *shape may come back with one symbol bit less. */
void tp_plan_plane(const tp_encode_state *s, const uint8_t *src, size_t size, unsigned element,
                   unsigned index, tp_part_plan *plan);
void tp_plan_tops(const tp_encode_state *s, tp_shape *shape, bool coarser, uint32_t chunks, bool low_coded);

/* parts.c: where the parts of a frame go. */
typedef struct tp_payload_writer {
    uint8_t *at;          /* where the next part starts */
    uint8_t *start, *end; /* of the room for payload; end - start is a multiple of 128 */
    uint8_t *descriptor;  /* the next one */
    tp_method method;
} tp_payload_writer;

/* An lz4 block of at most `capacity` bytes, or 0. Level max searches harder where there is something to
 * find. */
size_t tp_lz4_block(const tp_encode_state *s, const uint8_t *src, size_t size, uint8_t *dst,
                    size_t capacity);
/* Each appends one part with its descriptor; false: no room (or, lz4: no gain), so something else must be
 * done. */
bool tp_put_lz4(const tp_encode_state *s, tp_payload_writer *w, const uint8_t *src, size_t size,
                uint64_t other, uint32_t n, tp_method method, uint64_t hash);
bool tp_put_raw(tp_payload_writer *w, const uint8_t *src, size_t size, uint32_t n, uint64_t hash);
bool tp_put_plane(const tp_encode_state *s, tp_payload_writer *w, const uint8_t *src, size_t size,
                  unsigned element, unsigned index, const tp_part_plan *plan, tp_method lz4_method,
                  uint64_t hash);
bool tp_put_top(const tp_encode_state *s, tp_payload_writer *w, const tp_shape *shape, const uint8_t *src,
                uint32_t n, bool low_coded, const tp_part_plan *plan, uint64_t hash);
/* Two neighbouring chunks' elements at once, as tp_put_top one after the other would (low planes in the
 * streams). Returns how many of them were put: 0 where they are no two streams, or do not pay. */
unsigned tp_put_two_tops(const tp_encode_state *s, tp_payload_writer *w, const tp_shape *shape,
                         const uint8_t *src, uint32_t n, uint32_t second_n,
                         const tp_part_plan *const plan[2], const uint64_t hash[2]);

#endif
