/* What the DFloat11 tests share: made-up elements, units in buffers of exact size, a plain second encoder.
 */
#ifndef TESTS_DF11_UNITS_H
#define TESTS_DF11_UNITS_H

#include "codec/df11.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t rng_next(uint64_t *state);
uint32_t rng_below(uint64_t *state, uint32_t limit);

/* Kinds of exponents; n elements of them with random signs and mantissas. X(name, text) */
#define KIND_LIST(X)                                                                                       \
    X(KIND_GAUSSIAN, "gaussian")   /* as trained weights */                                                \
    X(KIND_UNIFORM, "uniform")     /* 1 to 240 exponents, about equally often */                           \
    X(KIND_GEOMETRIC, "geometric") /* every one half as often as the one before */                         \
    X(KIND_DOUBLING, "doubling")   /* the same with exact counts, so with ties */                          \
    X(KIND_FIBONACCI, "fibonacci") /* counts that force codes as long as can be */                         \
    X(KIND_SKEWED, "skewed")       /* one exponent, and many rare ones: many tables */                     \
    X(KIND_CONSTANT, "constant")                                                                           \
    X(KIND_FEW, "few") /* 2 to 4 exponents */

#define KIND_ENUM(name, text) name,
typedef enum kind { KIND_LIST(KIND_ENUM) KINDS } kind;
#undef KIND_ENUM
const char *kind_name(kind k);

/* Fills and shuffles. Fibonacci and doubling take the first exponents' counts that fit into n. */
void make_elements(kind k, uint64_t *state, uint16_t *elements, size_t n);

/* A unit whose arrays are allocated with exactly their sizes. */
typedef struct owned_unit {
    tp_df11_unit unit;
    uint8_t *luts, *encoded_exponent, *sign_mantissa, *output_positions, *gaps, *split_positions;
    tp_df11_departure departure;
} owned_unit;
void free_unit(owned_unit *u);

/* Exactly size bytes, so that AddressSanitizer sees the first byte beyond; never NULL. */
void *exact(size_t size);

/* Encodes with codec/df11.h: tensors of these sizes (sum n), cut further into parts at random if state is
 * not NULL. */
tp_status encode_unit(const uint16_t *elements, const uint64_t *tensor_elements, size_t tensors,
                      uint64_t *state, owned_unit *u, tp_error *error);

/* Encodes with a given code, one bit at a time, straight from the layout. */
void encode_plainly(const tp_df11_code *code, const uint16_t *elements, size_t n, owned_unit *u);

/* Both arrays of every kind are equal; false and a line on stderr if not. */
bool same_unit(const owned_unit *a, const owned_unit *b);

/* Opens and decodes all into exactly n elements (allocated; NULL on an error). */
uint16_t *decode_unit(const tp_df11_unit *unit, tp_error *error);

#endif
