/*
 * The kernels: what runs per element, once per instruction set behind one table of functions.
 *
 * A kernel gets arguments that have been validated (codec/frame.h) and must produce the same bytes as the
 * portable one. It allocates nothing. Streams: docs/format.md section 7.
 */
#ifndef TP_CODEC_KERNELS_H
#define TP_CODEC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TP_LANES 32
#define TP_GROUP 1024 /* elements */
#define TP_SLACK 4096 /* readable bytes that a decode job's payload has after its end */
#define TP_W32_K 10
#define TP_W32_L 1024u
#define TP_WIDE_K 12
#define TP_WIDE_L 4096u
#define TP_MAX_SYMBOLS 128 /* entries of a symbol table: 64, for pairs 128 */
#define TP_MAX_SELECTED 4  /* tables of a stream, chosen by selectors of at most two bits */

/* How the elements of a frame are cut (docs/format.md section 6). */
typedef struct tp_shape {
    uint8_t T;    /* top bits: 16 or 8 */
    uint8_t R;    /* raw bits of the top part: T - s; 0 only for wide streams */
    uint8_t low;  /* bytes below the top part: 0, 1, 2, 6 */
    uint8_t c;    /* elements per symbol: 1, or 2 (then T = 16 and R = 8) */
    bool rotated; /* the sign is moved to bit 0: float classes */
} tp_shape;

static inline size_t tp_shape_element(const tp_shape *shape)
{
    return shape->T / 8u + shape->low;
}

/* The same shape with one element a symbol. */
static inline tp_shape tp_shape_single(const tp_shape *shape)
{
    tp_shape single = *shape;
    single.c = 1;
    return single;
}

/* Decoding tables of a symbol table, in the forms that kernels like; built by tp_w32_table_init. */
typedef struct tp_slot {
    uint16_t F, bias, symbol, entry; /* bias = slot - start of the interval */
} tp_slot;
typedef struct tp_w32_table {
    uint32_t count;                          /* 2..64, pairs 2..128 */
    _Alignas(64) uint16_t F[TP_MAX_SYMBOLS]; /* by entry; 0 beyond count */
    _Alignas(64) uint16_t start[TP_MAX_SYMBOLS];
    _Alignas(64) uint16_t symbol[TP_MAX_SYMBOLS];
    /* slot -> entry without a gather: entry = bucket_entry[slot / 16] + popcount(bucket_bits[slot / 16] <<
     * (15 - slot % 16) & 0xffff), where bit i of bucket_bits is set if an interval starts at slot 16 *
     * bucket + i, i > 0 */
    _Alignas(64) uint16_t bucket_entry[64];
    _Alignas(64) uint16_t bucket_bits[64];
    _Alignas(64) tp_slot slot[1024];
} tp_w32_table;

/* slot -> F << 20 | bias << 8 | symbol */
typedef struct tp_wide_table {
    _Alignas(64) uint32_t slot[4096];
    _Alignas(64) uint16_t F[256];
} tp_wide_table;

/*
 * One W32 or pairs stream to decode. payload: its bytes (states, rows, ...), valid by the frame validator
 * and followed by TP_SLACK readable bytes. low: the low planes in the order of docs/format.md 7.3, G groups
 * (in the payload, or in scratch for low_coded frames); NULL if shape->low is 0. dst: n whole elements, no
 * alignment. Exceptions are applied by the kernel. good: every state and word came out as it must; the
 * contents of dst are unspecified otherwise.
 */
typedef struct tp_w32_job {
    const uint8_t *payload;
    const uint8_t *low;
    const uint8_t *words;      /* where the words start: payload + tp_stream_words_at() */
    const tp_w32_table *table; /* with selectors: the first of 2^selector_bits */
    uint8_t *dst;
    uint32_t n, nw, nx;
    const uint8_t *selectors; /* selector_bits a group, packed (docs/format.md section 7); NULL if
                                 selector_bits is 0 */
    uint8_t selector_bits;    /* 0, 1, 2 */
    bool good;
} tp_w32_job;

/* One wide stream to decode: n bytes to dst. */
typedef struct tp_wide_job {
    const uint8_t *payload;
    const tp_wide_table *table;
    uint8_t *dst;
    uint32_t n, nw;
    bool good;
} tp_wide_job;

/* Encoding tables; built by tp_w32_encode_table_init. */
#define TP_NO_ENTRY 0xff
typedef struct tp_w32_encode_table {
    uint32_t count;
    /* Entry that padding and exceptions are coded as; its high byte also stands for the missing half of an
     * odd last pair. */
    uint32_t common;
    _Alignas(64) uint16_t F[TP_MAX_SYMBOLS]; /* by entry */
    _Alignas(64) uint16_t start[TP_MAX_SYMBOLS];
    _Alignas(64) uint16_t symbol[TP_MAX_SYMBOLS]; /* ascending */
    uint64_t reciprocal[TP_MAX_SYMBOLS]; /* ceil(2^36 / F): x / F = x * reciprocal >> 36 for x < 2^26 */
    uint8_t entry[65536]; /* symbol -> entry or TP_NO_ENTRY; only the first 2^s are set (pairs: all) */
} tp_w32_encode_table;

typedef struct tp_wide_encode_table {
    uint32_t common;
    uint16_t F[256], start[256];
    uint64_t reciprocal[256]; /* ceil(2^40 / F): x / F = x * reciprocal >> 40 for x < 2^28 */
} tp_wide_encode_table;

/* One stream to encode. */
typedef struct tp_w32_encode_job {
    const uint8_t *src; /* n whole elements, no alignment */
    uint32_t n;
    bool with_low;                    /* store the low planes in the payload */
    const tp_w32_encode_table *table; /* with selectors: the first of 2^selector_bits */
    const uint8_t *selectors;         /* a byte a group; NULL if selector_bits is 0 */
    uint8_t selector_bits;            /* 0, 1, 2 */
    uint8_t *payload;                 /* room for capacity bytes */
    size_t capacity;                  /* give up (size 0) rather than store more; a multiple of 128 */
    uint8_t *scratch;                 /* TP_ENCODE_SCRATCH bytes, 64-byte aligned */
    size_t size;     /* out: payload size, a multiple of 128, padding zeroed; 0 if it does not fit */
    uint32_t nw, nx; /* out */
} tp_w32_encode_job;
/* Room for what an encoder holds back until it is known whether and where a stream fits: words (2 bytes a
 * symbol) and exceptions (4 bytes) of two streams, and of the second what comes before its words (up to 8
 * bytes an element). What portable code needs is less. */
#define TP_ENCODE_ELEMENTS ((size_t)131072 + TP_GROUP)
#define TP_ENCODE_SCRATCH (20 * TP_ENCODE_ELEMENTS + 1024)

typedef struct tp_kernels {
    const char *name;

    /* Decodes count jobs of one shape. Interleaving them is the kernel's business. */
    void (*w32_decode)(const tp_shape *shape, tp_w32_job *jobs, size_t count);
    void (*wide_decode)(tp_wide_job *jobs, size_t count);

    /* Encodes one stream. */
    void (*w32_encode)(const tp_shape *shape, tp_w32_encode_job *job);
    /* Encodes two of one shape, the second's payload right behind the first's: its payload and capacity are
     * set, its scratch is not looked at; both are of size 0 if the first does not fit. NULL where that is
     * not faster. */
    void (*w32_encode_two)(const tp_shape *shape, tp_w32_encode_job *first, tp_w32_encode_job *second);
    /* n bytes of src into payload; returns the size (a multiple of 128) or 0 if beyond capacity. */
    size_t (*wide_encode)(const uint8_t *src, uint32_t n, const tp_wide_encode_table *table,
                          uint8_t *payload, size_t capacity, uint8_t *scratch, uint32_t *nw);

    /* Adds to counts[class[group]][2^s] the symbols (c = 1) of the groups 0, step, 2 * step, ... of n
     * elements; of a partial last group the elements that exist. class is below `classes`; NULL: all 0. */
    void (*count_symbols)(const tp_shape *shape, const uint8_t *src, uint32_t n, uint32_t step,
                          const uint8_t *class, uint32_t classes, uint32_t *counts);
    /* Likewise the whole pairs (shape with c = 2) by code: counts[class[group]][code[first] | code[second]
     * << 4], codes 0..15. */
    void (*count_pairs)(const tp_shape *shape, const uint8_t code[256], const uint8_t *src, uint32_t n,
                        uint32_t step, const uint8_t *class, uint32_t classes, uint32_t *counts);
    /* sums[g]: the sum of the symbols (c = 1) of the elements of group g, for all groups of n elements. */
    void (*group_sums)(const tp_shape *shape, const uint8_t *src, uint32_t n, uint32_t *sums);
    /* Adds the bytes of the 1024-byte groups 0, step, ... to counts[256]. */
    void (*count_bytes)(const uint8_t *src, size_t n, uint32_t step, uint32_t *counts);

    /* Byte `index` of every `element` bytes of src (elements 1..8, size bytes in all; a last partial
     * element counts if it has that byte) to dst, and back. */
    void (*plane_get)(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst);
    void (*plane_put)(const uint8_t *plane, size_t size, unsigned element, unsigned index, uint8_t *dst);

    uint64_t (*hash64)(const void *data, size_t size);
    void (*hash128)(const void *data, size_t size, uint64_t hash[2]);
    /* A running XXH3-128, in TP_HASHER_STATE bytes aligned to 64 (codec/hash.h). */
    void (*hasher_init)(void *state);
    void (*hasher_add)(void *state, const void *data, size_t size);
    void (*hasher_end)(const void *state, uint64_t hash[2]);
} tp_kernels;

extern const tp_kernels tp_kernels_portable;
extern const tp_kernels tp_kernels_avx2;     /* x86-64 only; needs AVX2 BMI BMI2 POPCNT */
extern const tp_kernels tp_kernels_avx512bw; /* besides these, AVX-512 F BW DQ VL */
extern const tp_kernels tp_kernels_avx512;   /* besides these, VBMI VBMI2 BITALG */
extern const tp_kernels tp_kernels_neon;     /* AArch64 only */

/* The kernels in use: the best that CPU and operating system have, or the forced ones. Resolved once. */
const tp_kernels *tp_kernels_get(void);
/* By name, NULL if not built in; `available`: this CPU has them. */
const tp_kernels *tp_kernels_find(const char *name, bool *available);

/* Selector of group g from the packed array. */
static inline unsigned tp_selector(const uint8_t *selectors, unsigned bits, uint32_t group)
{
    return bits ? (unsigned)selectors[group * bits / 8] >> (group * bits & 7) & ((1u << bits) - 1) : 0;
}
/* Bytes of the packed selectors of n elements, a multiple of 4. */
static inline size_t tp_selector_bytes(uint32_t n, unsigned bits)
{
    return (((size_t)n + TP_GROUP - 1) / TP_GROUP * bits + 31) / 32 * 4;
}

/* Applies nx validated exceptions (u32 each at `list`) to the n elements at dst. Shared by all kernels. */
void tp_w32_apply_exceptions(const tp_shape *shape, const uint8_t *list, uint32_t nx, uint32_t n,
                             uint8_t *dst);

/* Bytes of a stream's payload before its words, and in all but the padding to 128 (docs/format.md section
 * 7). */
static inline size_t tp_stream_words_at(const tp_shape *shape, uint32_t n, bool with_low)
{
    size_t groups = ((size_t)n + TP_GROUP - 1) / TP_GROUP;
    return 128 + groups * 128 * shape->R + (with_low ? groups * TP_GROUP * shape->low : 0);
}
/* The most of any shape: an element has at most 8 bytes. */
#define TP_STREAM_MOST_BEFORE_WORDS (128 + TP_ENCODE_ELEMENTS * 8)
static inline size_t tp_stream_used(const tp_shape *shape, uint32_t n, bool with_low, uint32_t nw,
                                    uint32_t nx, unsigned selector_bits)
{
    return tp_stream_words_at(shape, n, with_low) + (((size_t)nw * 2 + 3) & ~(size_t)3) +
           tp_selector_bytes(n, selector_bits) + (size_t)nx * 4;
}

#endif
