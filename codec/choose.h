/*
 * The symbol tables of a frame: how many, from which counts, and which chunk or group uses which. All in
 * integers, so that every machine chooses alike.
 */
#ifndef TP_CODEC_CHOOSE_H
#define TP_CODEC_CHOOSE_H

#include "codec/frame.h"
#include "codec/table.h"

/* A frame's 4 MiB in chunks of 2^17 elements and groups of 2^10, of at least a byte each. Only the last
 * group may be partial. */
#define TP_MAX_CHUNKS 32
#define TP_MAX_GROUPS 4096
/* Of groups, by the mean of their symbols; each may have a table of its own. */
#define TP_MAX_CLASSES TP_MAX_SELECTED
#define TP_MAX_ALPHABET 4096

typedef struct tp_choice {
    /* In: the counts. counts[(chunk * classes + class) * alphabet + symbol] of the symbols counted, and
     * their number a chunk (0: a chunk that needs no table). Every step-th group was counted, and costs are
     * those of what was. */
    uint32_t *counts;
    uint64_t total[TP_MAX_CHUNKS];
    uint32_t chunks, classes, alphabet, limit, step, groups;
    uint32_t halves;     /* with two tables by group, the second serves the classes from this one on */
    uint32_t candidates; /* symbols below this may be in tables; others only count */
    /* Out */
    uint32_t tables;              /* 0 if nothing was counted */
    unsigned selector_bits;       /* tables per stream: 2^this */
    uint8_t table[TP_MAX_CHUNKS]; /* the chunk's (first) table */
    uint64_t cost[TP_MAX_CHUNKS]; /* of its counted symbols */
    tp_symbol_record record[TP_MAX_TABLES];
    /* Workspace */
    uint32_t first, end; /* symbols outside do not occur */
    uint64_t waste;      /* of tables by group, by rounding and few entries; by chunk it is about as much */
    uint32_t class_sum[TP_MAX_CLASSES * TP_MAX_ALPHABET]; /* the counts of all chunks */
    uint32_t sum[TP_MAX_ALPHABET];
    /* Of the chunks in some order, the counts of the first 0, 1, .. of them: 16 of 2^10 symbols, 4 of 2^12,
     * 32 of 2^7, or 16 of 2^8 pairs of codes. */
    uint32_t sums[TP_MAX_ALPHABET * 5];
} tp_choice;

/*
 * Sorts groups into classes by their means (of the symbols, scaled alike): class[g] = 0..classes - 1,
 * ascending, cut where the groups of a class lie closest together, judged by every step-th group. Returns
 * the class where a second half would start best.
 */
uint32_t tp_classify_groups(const uint32_t *means, uint32_t groups, uint32_t step, uint32_t classes,
                            uint8_t *class);

/* First, once the counts are there. Returns how many symbols were counted. */
uint64_t tp_choice_sum(tp_choice *choice);
/* The sums for one symbol bit less. Only tp_choose_tables_by_group may follow until tp_choice_halve_counts
 * has done the same to the counts, which the two share. */
void tp_choice_halve(const tp_choice *from, tp_choice *to);
void tp_choice_halve_counts(tp_choice *choice);
/*
 * One table for the frame or, with 4 classes, two or four tables chosen by group, whichever is cheapest.
 * Returns the cost of everything counted, records and selectors.
 */
uint64_t tp_choose_tables_by_group(const tp_log2 *log2, tp_choice *choice);
/* Then: tables chosen by chunk instead, where that is cheaper than by_group; table and cost of each chunk.
 * Changes the counts. */
void tp_choose_tables_by_chunk(const tp_log2 *log2, tp_choice *choice, uint64_t by_group);

#endif
