#include "codec/table.h"

#include <string.h>

#include "codec/bytes.h"

#define COST_BIT 65536u                /* costs are in 2^-16 bit */
#define EXCEPTION_COST (32 * COST_BIT) /* a u32 in the list */

void tp_log2_init(tp_log2 *log2)
{
    log2->of[0] = 0;
    for (uint32_t v = 1; v <= 4096; v++) {
        const unsigned whole = 31 - (unsigned)__builtin_clz(v);
        uint64_t x = (uint64_t)v << (31 - whole); /* mantissa in [2^31, 2^32) */
        uint32_t result = whole;
        for (unsigned bit = 0; bit < 16; bit++) { /* each squaring yields the next binary digit */
            x = x * x >> 31;
            result <<= 1;
            if (x >> 32) {
                result |= 1;
                x >>= 1;
            }
        }
        log2->of[v] = result;
    }
}

/* Of v > 0; rounded down, by at most 2^-11. */
static uint64_t log2_of(const tp_log2 *log2, uint64_t v)
{
    const unsigned bits = 64 - (unsigned)__builtin_clzll(v), shift = bits > 12 ? bits - 12 : 0;
    return log2->of[v >> shift] + (uint64_t)shift * COST_BIT;
}

uint64_t tp_entropy(const tp_log2 *log2, const uint32_t *counts, uint32_t alphabet, uint64_t total)
{
    uint64_t saved = 0;
    for (uint32_t i = 0; i < alphabet; i++)
        if (counts[i]) saved += counts[i] * log2_of(log2, counts[i]);
    const uint64_t most = total ? total * log2_of(log2, total) : 0;
    return most > saved ? most - saved : 0;
}

static void weigh(const tp_log2 *log2, uint64_t count, uint32_t F, uint32_t scale, uint64_t *gain,
                  uint64_t *loss)
{
    *gain = F < scale - 1 ? count * (log2->of[F + 1] - log2->of[F]) + 1 : 0;
    *loss = F > 1 ? count * (log2->of[F] - log2->of[F - 1]) + 1 : UINT64_MAX;
}

/*
 * Frequencies for count[0..n) that sum to `scale`, each at least 1 and at most scale - 1, near the least
 * cost -sum count * log2(F): rounded shares, brought to the sum by the cheapest single steps, then single
 * slots moved while that pays. n >= 2, total = sum of count > 0.
 */
static void quantise(const tp_log2 *log2, const uint64_t *count, uint32_t n, uint64_t total, uint32_t scale,
                     uint16_t *F)
{
    uint64_t gain[256], loss[256]; /* of a slot more or less; 0 and UINT64_MAX where that cannot be */
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t share = (count[i] * scale + total / 2) / total;
        if (share < 1) share = 1;
        if (share > scale - 1) share = scale - 1;
        F[i] = (uint16_t)share;
        sum += F[i];
        weigh(log2, count[i], F[i], scale, &gain[i], &loss[i]);
    }
    /* Every pass moves the sum by one or, once it is right, moves one slot; 2 * n passes are plenty, since
     * each share is off by less than 1 but for the n symbols raised to 1. */
    for (uint32_t moves = 0; sum != scale || moves < 2 * n; moves++) {
        uint32_t up = 0, down = 0;
        for (uint32_t i = 1; i < n && sum <= scale; i++)
            if (gain[i] > gain[up]) up = i;
        for (uint32_t i = 1; i < n && sum >= scale; i++)
            if (loss[i] < loss[down]) down = i;
        if (sum == scale && (up == down || gain[up] <= loss[down])) break;
        const bool more = sum <= scale, less = sum >= scale;
        if (more) {
            weigh(log2, count[up], ++F[up], scale, &gain[up], &loss[up]);
            sum++;
        }
        if (less) {
            weigh(log2, count[down], --F[down], scale, &gain[down], &loss[down]);
            sum--;
        }
    }
}

typedef struct kept_symbol {
    uint32_t count;
    uint32_t symbol;
} kept_symbol;

/* More frequent first; of equals the lower symbol. */
static bool before(kept_symbol a, kept_symbol b)
{
    return a.count != b.count ? a.count > b.count : a.symbol < b.symbol;
}

/* The `limit` most frequent symbols, in that order; rarer ones than 1/16384 are cheaper as exceptions: 32
 * bits now and then against a sixteenth of a slot from all others. */
static uint32_t keep_frequent(const uint32_t *counts, uint32_t candidates, uint64_t total, uint32_t limit,
                              kept_symbol *kept)
{
    uint32_t n = 0;
    for (uint32_t symbol = 0; symbol < candidates; symbol++) {
        const uint32_t c = counts[symbol];
        if (!c || ((uint64_t)c * 16384 < total && n >= 2)) continue;
        const kept_symbol new = {c, symbol};
        if (n == limit && !before(new, kept[n - 1])) continue;
        uint32_t at = n < limit ? n++ : n - 1;
        for (; at && before(new, kept[at - 1]); at--) kept[at] = kept[at - 1];
        kept[at] = new;
    }
    while (n > 2 && (uint64_t)kept[n - 1].count * 16384 < total) n--;
    return n;
}

static uint64_t build(const tp_log2 *log2, const kept_symbol *kept, uint32_t n, uint64_t total,
                      tp_symbol_record *record)
{
    kept_symbol two[2] = {{0, 0}, {0, 1}};
    if (n < 2) { /* a table has at least two entries */
        if (n == 1) {
            two[0] = kept[0];
            /* its neighbour: not code 15, the last of 16, where symbols are pairs of codes */
            two[1].symbol = kept[0].symbol % 16 ? kept[0].symbol - 1 : kept[0].symbol + 1;
        }
        kept = two;
        n = 2;
    }
    uint64_t count[TP_MAX_SYMBOLS] = {0}, exceptions = total, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        count[i] = kept[i].count;
        exceptions -= kept[i].count;
    }
    count[0] += exceptions; /* they are coded as the commonest symbol */
    for (uint32_t i = 0; i < n; i++) sum += count[i];
    uint16_t F[TP_MAX_SYMBOLS];
    quantise(log2, count, n, sum, 1u << TP_W32_K, F);

    uint64_t cost = exceptions * EXCEPTION_COST;
    for (uint32_t i = 0; i < n; i++) cost += count[i] * (TP_W32_K * COST_BIT - log2->of[F[i]]);

    record->count = n;
    for (uint32_t i = 0; i < n; i++) { /* by symbol */
        uint32_t at = 0;
        for (uint32_t k = 0; k < n; k++) at += kept[k].symbol < kept[i].symbol;
        record->symbol[at] = (uint16_t)kept[i].symbol;
        record->F[at] = F[i];
    }
    return cost;
}

uint64_t tp_symbol_record_build(const tp_log2 *log2, const uint32_t *counts, uint32_t alphabet,
                                uint32_t candidates, uint32_t limit, tp_symbol_record *record)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < alphabet; i++) total += counts[i];
    kept_symbol kept[TP_MAX_SYMBOLS];
    const uint32_t n = keep_frequent(counts, candidates, total, limit, kept);
    uint64_t cost = build(log2, kept, n, total, record);
    /* At most 32 entries fit one register of a decoder: preferred where it costs less than 0.05 %. */
    if (n > 32 && limit <= 64) {
        tp_symbol_record small;
        const uint64_t small_cost = build(log2, kept, 32, total, &small);
        if (small_cost <= cost + cost / 2048) {
            *record = small;
            cost = small_cost;
        }
    }
    return cost;
}

uint64_t tp_symbol_record_cost(const tp_log2 *log2, const uint32_t *counts, uint64_t total,
                               const tp_symbol_record *record)
{
    uint64_t cost = 0, exceptions = total;
    uint32_t common = 0;
    for (uint32_t i = 0; i < record->count; i++) {
        const uint32_t c = counts[record->symbol[i]];
        cost += (uint64_t)c * (TP_W32_K * COST_BIT - log2->of[record->F[i]]);
        exceptions -= c;
        if (record->F[i] > record->F[common]) common = i;
    }
    return cost + exceptions * (EXCEPTION_COST + TP_W32_K * COST_BIT - log2->of[record->F[common]]);
}

uint64_t tp_wide_record_build(const tp_log2 *log2, const uint32_t counts[256], uint16_t F[256])
{
    uint64_t count[256], total = 0, cost = 0;
    uint16_t f[256];
    uint8_t symbol[256];
    uint32_t n = 0;
    for (uint32_t i = 0; i < 256; i++) {
        if (!counts[i]) continue;
        count[n] = counts[i];
        symbol[n++] = (uint8_t)i;
        total += counts[i];
    }
    if (n < 2) { /* a table has at least two entries */
        count[1] = 0;
        symbol[1] = (uint8_t)(symbol[0] ^ 1);
        n = 2;
    }
    quantise(log2, count, n, total, 1u << TP_WIDE_K, f);
    memset(F, 0, 256 * sizeof F[0]);
    for (uint32_t i = 0; i < n; i++) {
        F[symbol[i]] = f[i];
        cost += count[i] * (TP_WIDE_K * COST_BIT - log2->of[f[i]]);
    }
    return cost;
}

uint64_t tp_wide_record_cost(const tp_log2 *log2, const uint32_t counts[256], const uint16_t F[256])
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < 256; i++) {
        if (!counts[i]) continue;
        if (!F[i]) return UINT64_MAX;
        cost += (uint64_t)counts[i] * (TP_WIDE_K * COST_BIT - log2->of[F[i]]);
    }
    return cost;
}

/* ---------------------------------------------------------------------------- records and their tables */

void tp_symbol_record_store(const tp_symbol_record *record, bool pairs, uint8_t *dst)
{
    memset(dst, 0, pairs ? 512 : 256);
    for (uint32_t i = 0; i < record->count; i++) {
        tp_store16(dst + 4 * i, record->F[i]);
        tp_store16(dst + 4 * i + 2, record->symbol[i]);
    }
}

void tp_wide_record_store(const uint16_t F[256], uint8_t *dst)
{
    for (uint32_t i = 0; i < 256; i++) tp_store16(dst + 2 * i, F[i]);
}

void tp_w32_table_init(const uint8_t *record, bool pairs, tp_w32_table *table)
{
    const uint32_t limit = pairs ? 128 : 64;
    memset(table->F, 0, sizeof table->F);
    memset(table->start, 0, sizeof table->start);
    memset(table->symbol, 0, sizeof table->symbol);
    memset(table->bucket_bits, 0, sizeof table->bucket_bits);
    uint32_t at = 0, n = 0;
    for (; n < limit && at < 1024; n++) { /* a valid record sums to 1024 */
        const uint32_t F = tp_load16(record + 4 * n), symbol = tp_load16(record + 4 * n + 2);
        table->F[n] = (uint16_t)F;
        table->start[n] = (uint16_t)at;
        table->symbol[n] = (uint16_t)symbol;
        if (at & 15) table->bucket_bits[at / 16] |= (uint16_t)(1u << (at & 15));
        for (uint32_t bias = 0; bias < F && at < 1024; bias++, at++)
            table->slot[at] = (tp_slot){(uint16_t)F, (uint16_t)bias, (uint16_t)symbol, (uint16_t)n};
    }
    table->count = n;
    for (uint32_t b = 0; b < 64; b++) table->bucket_entry[b] = table->slot[16 * b].entry;
}

void tp_wide_table_init(const uint8_t *record, tp_wide_table *table)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t F = tp_load16(record + 2 * i);
        table->F[i] = (uint16_t)F;
        for (uint32_t bias = 0; bias < F && at < 4096; bias++, at++)
            table->slot[at] = F << 20 | bias << 8 | i;
    }
}

void tp_w32_encode_table_init(const tp_symbol_record *record, uint32_t alphabet, tp_w32_encode_table *table)
{
    memset(table, 0, offsetof(tp_w32_encode_table, entry));
    memset(table->entry, TP_NO_ENTRY, alphabet);
    table->count = record->count;
    uint32_t start = 0;
    for (uint32_t i = 0; i < record->count; i++) {
        table->F[i] = record->F[i];
        table->start[i] = (uint16_t)start;
        table->symbol[i] = record->symbol[i];
        table->reciprocal[i] = (((uint64_t)1 << 36) + record->F[i] - 1) / record->F[i];
        table->entry[record->symbol[i]] = (uint8_t)i;
        start += record->F[i];
        if (record->F[i] > record->F[table->common]) table->common = i;
    }
}

void tp_wide_encode_table_init(const uint16_t F[256], tp_wide_encode_table *table)
{
    memset(table, 0, sizeof *table);
    uint32_t start = 0;
    for (uint32_t i = 0; i < 256; i++) {
        table->F[i] = F[i];
        table->start[i] = (uint16_t)start;
        if (F[i]) table->reciprocal[i] = (((uint64_t)1 << 40) + F[i] - 1) / F[i];
        start += F[i];
        if (F[i] > F[table->common]) table->common = i;
    }
}
