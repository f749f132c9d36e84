/*
 * Everything that docs/format.md sections 5 and 6 allow, as data: classes, shapes, and frames to build of
 * every combination, also those that the encoder never chooses.
 */
#ifndef TESTS_CODEC_REGISTRY_H
#define TESTS_CODEC_REGISTRY_H

#include "support.h"

#include "codec/table.h"
#include "reference.h"

/* The table of section 6. */
typedef struct class_rule {
    tp_class cls;
    unsigned T, low;  /* T 0: no split */
    unsigned s[3];    /* 0: none */
    unsigned element; /* also the group size of codec planes; 0: no planes */
    bool rotated, pairs, wide_top;
} class_rule;
extern const class_rule class_rules[TP_CLASS_COUNT];

/* Every (class, s, c) of codec split. */
typedef struct split_shape {
    tp_class cls;
    unsigned s, c;
} split_shape;
#define MAX_SPLIT_SHAPES 32
size_t all_split_shapes(split_shape shapes[MAX_SPLIT_SHAPES]);
tp_shape kernel_shape(const split_shape *shape);
ref_shape reference_shape(const split_shape *shape);

/* ------------------------------------------------------------------------------------------- tables */

typedef enum table_kind { TABLE_STEEP, TABLE_FLAT, TABLE_EXTREME, TABLE_KINDS } table_kind;
/* Random symbols below `alphabet`, `entries` of them (at most alphabet), frequencies that sum to `scale`.
 */
void make_table(rng *r, table_kind kind, unsigned entries, uint32_t alphabet, uint32_t scale,
                ref_table *table);
/* A symbol by its frequency. */
unsigned draw_symbol(rng *r, const ref_table *table, uint32_t scale);
/* The same table as the codec's records. */
void table_to_record(const ref_table *table, tp_symbol_record *record);
void table_to_wide(const ref_table *table, uint16_t F[256]);

/* n elements (T/8 + low bytes) whose symbols follow a table but for one in `rare` (0: none); the rest is
 * random. */
void make_elements(rng *r, const ref_shape *shape, const ref_table *table, uint32_t rare, uint8_t *dst,
                   uint32_t n);

/* -------------------------------------------------------------------------------------------- frames */

#define PLAN_CHUNKS 16
#define PLAN_TABLES 16

typedef struct frame_plan {
    tp_frame_codec codec;
    tp_class cls;
    unsigned s, c;
    bool low_coded, joined;
    unsigned chunk_log2;
    uint32_t chunks; /* of raw and lz4: 1 */
    uint32_t last;   /* elements (planes: bytes) of the last chunk; of raw and lz4: bytes in all */
    uint8_t mode[PLAN_CHUNKS][8]; /* tp_mode by chunk and part */
    unsigned tables;              /* of each sort that is used, taken in turn */
    unsigned selector_bits;       /* split: 2^selector_bits tables a stream */
    unsigned entries;             /* of a symbol table */
    table_kind kind;
    uint32_t rare; /* one symbol in so many has no entry; 0: none */
    uint64_t seed;
    char name[160];
} frame_plan;

/* A frame made by a plan, with data that suits its modes. */
typedef struct built_frame {
    uint8_t *raw, *frame; /* exact sizes, to be freed by built_frame_free */
    size_t raw_size, size;
} built_frame;
void build_frame(const frame_plan *plan, const tp_kernels *kernels, built_frame *built);
void built_frame_free(built_frame *built);

/*
 * Calls fn for plans of every (codec, class, s, c, flags, mode of tops, mode of low planes, tables per
 * stream), in frames of several chunks of 2^10 elements.
 */
void each_plan(void (*fn)(const frame_plan *plan, void *context), void *context);
/* As each_plan: plans of every chunk size. */
void each_chunk_size_plan(void (*fn)(const frame_plan *plan, void *context), void *context);

/* Calls fn for every coverage line of the second decoder (tests/decoder) that the document allows. */
void each_coverage_line(void (*fn)(const char *line, void *context), void *context);

#endif
