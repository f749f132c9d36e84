/* What all codec tests share: random numbers, exact buffers, input data, hashes of a changed frame. */
#ifndef TESTS_CODEC_SUPPORT_H
#define TESTS_CODEC_SUPPORT_H

/* cmocka.h wants these four first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/frame.h"
#include "tensorpress.h"

/* ------------------------------------------------------------------------------------ random numbers */

typedef struct rng {
    uint64_t state;
} rng;

rng rng_make(uint64_t seed);
uint64_t rng_next(rng *r);
uint32_t rng_below(rng *r, uint32_t limit); /* limit > 0 */
void rng_fill(rng *r, void *dst, size_t size);
double rng_normal(rng *r); /* near N(0, 1), the same on every machine */

/* -------------------------------------------------------------------------------------------- memory */

/* Exactly size bytes, so that AddressSanitizer sees the first byte beyond; never NULL. */
void *exact(size_t size);
void *exact_copy(const void *data, size_t size);
/* 0 or more: the allocation after so many others fails, and this becomes -1. */
extern int fail_allocation;

/* ---------------------------------------------------------------------------------------------- data */

/* Values as they occur in checkpoints, and values that code likes to get wrong. */
#define DATA_KIND_LIST(X)                                                                                  \
    X(DATA_WEIGHTS, "weights") /* N(0, 0.02) */                                                            \
    X(DATA_CONSTANT, "constant")                                                                           \
    X(DATA_RANDOM, "random")                                                                               \
    X(DATA_NAN, "nan payloads")   /* NaN of every payload and sign among weights */                        \
    X(DATA_NEGATIVE_ZERO, "-0.0") /* zeros of both signs */                                                \
    X(DATA_SUBNORMAL, "subnormals")                                                                        \
    X(DATA_INFINITE, "infinities") /* of both signs among weights */                                       \
    X(DATA_UPCAST, "upcast")       /* the lower half of the mantissa is zero: bf16 in f32, f32 in f64 */   \
    X(DATA_RAMP, "ramp")                                                                                   \
    X(DATA_SPARSE, "sparse") /* mostly zeros */                                                            \
    X(DATA_TWO, "two values")

#define DATA_KIND_ENUM(name, text) name,
typedef enum data_kind { DATA_KIND_LIST(DATA_KIND_ENUM) DATA_KINDS } data_kind;
#undef DATA_KIND_ENUM

const char *data_kind_name(data_kind kind);
/* n elements of a class. */
void make_data(data_kind kind, tp_class cls, rng *r, uint8_t *dst, size_t n);

/* -------------------------------------------------------------------------------------------- frames */

/* Where the payload of a frame starts by its header, or 0 if that lies beyond size bytes. */
size_t frame_payload_at(const uint8_t *frame, size_t size);
/* Recomputes directory and stored hash of a changed frame of size >= 128 bytes. */
void frame_rehash(uint8_t *frame, size_t size);

/* ------------------------------------------------------------------------------------------- kernels */

#define MAX_KERNELS 8
/* All kernels that this CPU can run, the portable one first. */
size_t all_kernels(const tp_kernels *kernels[MAX_KERNELS]);

/* A limit from the environment, for more or less of a test than usual. */
/*
 * Raw rows, low planes, signs and mantissas make most of a frame, and one bit of them is like another: with
 * sanitizers, which take their time, every 13th is flipped, otherwise each. TP_TEST_BIT_STEP says another.
 */
size_t bulk_step(void);
unsigned long long number_from_environment(const char *name, unsigned long long otherwise);

/* The groups of tests; each returns the number of failures. */
int run_kernels(void);
int run_tables(void);
int run_streams(void);
int run_round_trips(void);
int run_combinations(void);
int run_validator(void);
int run_corruption(void);
int run_goldens(void);
int run_df11(void);

#endif
