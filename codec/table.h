/*
 * From counts to tables, in integers only (docs/format.md section 7, "Tables"): which symbols get an entry,
 * with which frequency, and what a chunk costs under a table. Costs are in 2^-16 bit.
 */
#ifndef TP_CODEC_TABLE_H
#define TP_CODEC_TABLE_H

#include "codec/kernels/kernels.h"

/* Bytes, as costs are counted. */
#define TP_COST_OF_BYTES(bytes) ((uint64_t)(bytes)*8 * 65536)

/* log2 of 1..4096 in 2^-16, computed once per encoder by integer squaring. */
typedef struct tp_log2 {
    uint32_t of[4097];
} tp_log2;
void tp_log2_init(tp_log2 *log2);
/* About the least that any table makes of counts[alphabet], `total` in all: their entropy. */
uint64_t tp_entropy(const tp_log2 *log2, const uint32_t *counts, uint32_t alphabet, uint64_t total);

/* The record as stored: F and symbols ascending. */
typedef struct tp_symbol_record {
    uint32_t count;
    uint16_t F[TP_MAX_SYMBOLS], symbol[TP_MAX_SYMBOLS];
} tp_symbol_record;

/*
 * Chooses entries and frequencies for counts[alphabet] (total > 0): at most `limit` entries, at least two,
 * sum 1024, all of symbols below `candidates`. Returns the cost of the counted symbols, exceptions
 * included.
 */
uint64_t tp_symbol_record_build(const tp_log2 *log2, const uint32_t *counts, uint32_t alphabet,
                                uint32_t candidates, uint32_t limit, tp_symbol_record *record);
/* About what that would return, without what rounding to 1024 slots and a limit of entries cost. */
uint64_t tp_symbol_cost_estimate(const tp_log2 *log2, const uint32_t *counts, uint32_t candidates,
                                 uint64_t total);
/* Cost of the counted symbols, `total` in all, under a record. */
uint64_t tp_symbol_record_cost(const tp_log2 *log2, const uint32_t *counts, uint64_t total,
                               const tp_symbol_record *record);
/* The same for bytes: F[256], sum 4096, at least two non-zero; every counted byte gets a frequency. */
uint64_t tp_wide_record_build(const tp_log2 *log2, const uint32_t counts[256], uint16_t F[256]);
/* UINT64_MAX if a counted byte has no frequency. */
uint64_t tp_wide_record_cost(const tp_log2 *log2, const uint32_t counts[256], const uint16_t F[256]);

/* Records as stored (64 or 128 entries; 256 u16) into tables. The record must be valid. */
void tp_w32_table_init(const uint8_t *record, bool pairs, tp_w32_table *table);
void tp_wide_table_init(const uint8_t *record, tp_wide_table *table);
void tp_w32_encode_table_init(const tp_symbol_record *record, uint32_t alphabet,
                              tp_w32_encode_table *table);
void tp_wide_encode_table_init(const uint16_t F[256], tp_wide_encode_table *table);
void tp_symbol_record_store(const tp_symbol_record *record, bool pairs, uint8_t *dst);
void tp_wide_record_store(const uint16_t F[256], uint8_t *dst);

#endif
