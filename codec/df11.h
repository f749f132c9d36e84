/*
 * DFloat11: one unit of bf16 elements to and from the arrays of its checkpoint format (docs/dfloat11.md).
 *
 * The exponents of all elements are coded with one Huffman code, bit after bit; sign and mantissa are a
 * byte each. The stream is cut into windows of 64 bits and blocks of 512 windows. For every window a gap
 * tells at which of its bits its first code starts, for every block a position tells which element that is:
 * so blocks can be decoded independently of each other, and windows too.
 *
 * Nothing here allocates or locks. What may run on several threads at once says so.
 */
#ifndef TP_CODEC_DF11_H
#define TP_CODEC_DF11_H

#include "tensorpress.h"

#define TP_DF11_BLOCK 4096 /* bytes of the stream */
#define TP_DF11_BLOCK_WINDOWS 512
#define TP_DF11_BLOCK_GAPS 320 /* bytes: 5 bits a window */
#define TP_DF11_SYMBOLS 240    /* exponents below this can be coded; above, table entries are pointers */
#define TP_DF11_MAX_ROWS 18    /* of luts: the root, 16 further tables, the lengths */
#define TP_DF11_MAX_LENGTH 32  /* bits of a code */
#define TP_DF11_MAX_ELEMENTS 0x7fffffffu /* of a unit, and bytes of its stream: kernels count in int */

/* ------------------------------------------------------------------------------------------ the code */

/* Where a code or its tables cannot be those of the reference encoder. X(name, text) */
#define TP_DF11_DEPARTURE_LIST(X)                                                                          \
    X(TP_DF11_AS_REFERENCE, "none")                                                                        \
    X(TP_DF11_UNFILLED,                                                                                    \
      "the reference fails: nothing to fill the end code's place in the first table with")                 \
    X(TP_DF11_ENDLESS, "the reference fills the end code's place so that a kernel may never return")       \
    X(TP_DF11_TIE,                                                                                         \
      "codes above 32 bits, and equal counts at the limit: the reference's choice is undefined")           \
    X(TP_DF11_TABLES, "more than 16 further tables, which the format has no pointers for")

#define TP_DF11_DEPARTURE_ENUM(name, text) name,
typedef enum tp_df11_departure {
    TP_DF11_DEPARTURE_LIST(TP_DF11_DEPARTURE_ENUM) TP_DF11_DEPARTURES
} tp_df11_departure;
#undef TP_DF11_DEPARTURE_ENUM

typedef struct tp_df11_code {
    uint32_t word[256];  /* of an exponent, in the low bits */
    uint8_t length[256]; /* 0: does not occur */
    uint32_t end_word;   /* of the reference's end symbol, whose first bits fill up the last byte */
    uint8_t end_length;
    tp_df11_departure departure;
    uint32_t rows;
    uint8_t luts[TP_DF11_MAX_ROWS * 256]; /* rows * 256 of it */
} tp_df11_code;

/*
 * The code and its tables for these counts of exponents, as the reference encoder makes them.
 * TP_UNSUPPORTED: an exponent of TP_DF11_SYMBOLS or more occurs; the caller leaves the unit as it is.
 * TP_INVALID_ARGUMENT: nothing occurs.
 */
tp_status tp_df11_code_make(const uint64_t counts[256], tp_df11_code *code, tp_error *error);

/* ----------------------------------------------------------------------------------------- encoding */

/*
 * A run of elements. A unit is a list of parts: its tensors, or pieces of them, so that threads share the
 * work and no buffer needs to hold the whole unit. One after the other:
 *
 *   tp_df11_part_count    for each part, on any thread
 *   tp_df11_plan_make     once
 *   tp_df11_part_encode   for each part, on any thread
 *   tp_df11_plan_finish   once
 *
 * `elements` and `n` are the caller's to set, and to set again before encoding if the buffer was used
 * otherwise.
 */
typedef struct tp_df11_part {
    const void *elements; /* no alignment */
    uint64_t n;
    uint64_t counts[256]; /* of its exponents */
    uint64_t first_element, first_bit, end_bit;
    /* The windows that it shares with its neighbours, left for tp_df11_plan_finish: its first (if completed
     * by this part) and its last. */
    uint64_t head, tail;
} tp_df11_part;

/* What follows from the counts; sizes in bytes. */
typedef struct tp_df11_plan {
    tp_df11_code code;
    uint64_t elements, bits;
    uint32_t blocks;
    size_t luts_size, encoded_size, positions_size, gaps_size;
    size_t workspace_size;
} tp_df11_plan;

/* Where the arrays go, each of the plan's size; sign_mantissa has a byte an element. */
typedef struct tp_df11_output {
    uint8_t *encoded_exponent, *sign_mantissa, *output_positions, *gaps;
    uint8_t *workspace;
} tp_df11_output;

void tp_df11_part_count(tp_df11_part *part);
/* TP_UNSUPPORTED (exponents, see above), TP_LIMIT (too many elements), TP_INVALID_ARGUMENT (none). */
tp_status tp_df11_plan_make(tp_df11_part *parts, size_t count, tp_df11_plan *plan, tp_error *error);
/* Writes only bytes of the output that no other part writes. TP_MISMATCH: these are not the elements
 * counted. */
tp_status tp_df11_part_encode(const tp_df11_plan *plan, tp_df11_part *part, const tp_df11_output *output,
                              tp_error *error);
void tp_df11_plan_finish(const tp_df11_plan *plan, const tp_df11_part *parts, size_t count,
                         const tp_df11_output *output);

/* split_positions: where the tensors of a unit start, the first left out; i64 each, tensors - 1 of them. */
void tp_df11_split_positions(const uint64_t *elements_by_tensor, size_t tensors, uint8_t *split_positions);

/* ----------------------------------------------------------------------------------------- decoding */

/* A unit as read: nothing of it is believed. */
typedef struct tp_df11_unit {
    const uint8_t *luts, *encoded_exponent, *sign_mantissa, *output_positions, *gaps;
    const uint8_t *split_positions; /* i64 each; NULL if split_size is 0 */
    uint64_t luts_size, encoded_size, elements, positions_size, gaps_size, split_size;
} tp_df11_unit;

#define TP_DF11_LOOKUP_BITS 11

/*
 * The tables of a unit. An entry of `several` stands for the codes that lie wholly within 11 bits, at most
 * 5: bits 0-39 their exponents, 40-50 a bit for each of theirs, the last in bit 40, set where a code ends,
 * 56-58 how many codes, 60-63 how many bits; 0 if the first code is longer than that, or none.
 */
typedef struct tp_df11_table {
    _Alignas(64) uint64_t several[1 << TP_DF11_LOOKUP_BITS];
    uint16_t entry[TP_DF11_MAX_ROWS - 1]
                  [256]; /* length << 8 | exponent; TP_DF11_POINTER | row; TP_DF11_NOTHING */
} tp_df11_table;
#define TP_DF11_POINTER 0x8000
#define TP_DF11_NOTHING 0x7fff

/* TP_CORRUPT: the tables are no code. */
tp_status tp_df11_table_make(const uint8_t *luts, uint64_t luts_size, tp_df11_table *table,
                             tp_error *error);

/* An open unit; the same for all threads. */
typedef struct tp_df11_decoder {
    tp_df11_unit unit;
    uint32_t blocks;
    uint32_t last;    /* the last block in which a code starts */
    uint64_t windows; /* that hold bits of the stream */
    tp_df11_table table;
} tp_df11_decoder;

/* One a thread. */
#define TP_DF11_CHAINS 4 /* stretches of a block that are decoded side by side */
#define TP_DF11_CHAIN_EXPONENTS (TP_DF11_BLOCK_WINDOWS / TP_DF11_CHAINS * 64 + 128)
typedef struct tp_df11_workspace {
    uint8_t exponents[TP_DF11_CHAINS][TP_DF11_CHAIN_EXPONENTS];
    uint8_t stream[TP_DF11_BLOCK + 64];
    uint8_t gaps[TP_DF11_BLOCK_WINDOWS + 8], found[TP_DF11_BLOCK_WINDOWS + 8];
} tp_df11_workspace;

/* Checks everything but the stream against the gaps. The unit's arrays must stay. TP_CORRUPT. */
tp_status tp_df11_open(const tp_df11_unit *unit, tp_df11_decoder *decoder, tp_error *error);

/* The number of the first element of a block (of `blocks`: the number of elements), and the block of an
 * element. */
uint64_t tp_df11_position(const tp_df11_decoder *decoder, uint32_t block);
uint32_t tp_df11_block_of(const tp_df11_decoder *decoder, uint64_t element);
/* The tensors of a unit, and where they start; `tensors` itself ends the last. */
size_t tp_df11_tensors(const tp_df11_decoder *decoder);
uint64_t tp_df11_tensor_start(const tp_df11_decoder *decoder, size_t tensor);

/*
 * Decodes blocks first .. first + count - 1 to dst (no alignment), which has room for exactly their
 * elements, and checks their gaps and positions. Several threads may decode different blocks. TP_CORRUPT;
 * then the contents of dst are unspecified.
 */
tp_status tp_df11_decode(const tp_df11_decoder *decoder, uint32_t first, uint32_t count, void *dst,
                         tp_df11_workspace *workspace, tp_error *error);

#endif
