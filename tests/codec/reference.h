/*
 * The streams of docs/format.md section 7, one symbol and one bit at a time as the document says them.
 * Shares nothing with the codec: what the kernels are measured with.
 */
#ifndef TESTS_CODEC_REFERENCE_H
#define TESTS_CODEC_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ref_shape {
    unsigned K, T, R, low, c; /* wide streams: K = 12, T = 8, R = 0, low = 0, c = 1 */
    bool rotated;
} ref_shape;

typedef struct ref_table {
    unsigned entries;
    uint16_t F[256], symbol[256]; /* symbols ascending */
} ref_table;

uint32_t ref_symbol(const ref_shape *shape, uint32_t top); /* of a top part */
uint32_t ref_raw(const ref_shape *shape, uint32_t top);    /* its raw bits, low R bits of u */
uint32_t ref_top(const ref_shape *shape, uint32_t symbol, uint32_t raw);

/* Which table a group is coded with: tables[selector[group]], of 2^bits. bits 0: tables[0] for all. */
typedef struct ref_tables {
    const ref_table *tables;
    unsigned bits;
    const uint8_t *selector;
} ref_tables;

/*
 * One stream of n elements (T/8 + low bytes each) at src. Padding and exceptions are coded as the most
 * frequent entry (of equals the first). The payload, as long as the document says, goes to dst (room:
 * ref_bound). Returns its size.
 */
size_t ref_encode(const ref_shape *shape, const ref_tables *tables, const uint8_t *src, uint32_t n,
                  bool with_low, uint8_t *dst, uint32_t *nw, uint32_t *nx);
size_t ref_bound(const ref_shape *shape, uint32_t n);

/*
 * The reverse. With with_low the low planes are in the payload, else at `low` (the order of section 7.3).
 * False if a state, or the number of words, is not what it must be. Selectors are read from the payload.
 */
bool ref_decode(const ref_shape *shape, const ref_tables *tables, const uint8_t *payload, uint32_t nw,
                uint32_t nx, uint32_t n, bool with_low, const uint8_t *low, uint8_t *dst);

#endif
