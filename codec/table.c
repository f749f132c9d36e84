#include "codec/table.h"

#include <string.h>

#include "codec/bytes.h"

#define COST_BIT 65536u                /* costs are in 2^-16 bit */
#define EXCEPTION_COST (32 * COST_BIT) /* a u32 in the list */
/* Rarer symbols than one in so many are cheaper as exceptions: 32 bits now and then against a sixteenth of
 * a slot from all others. */
#define RARE 16384

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

/* Of v > 0; rounded down, by less than 2^-10, as v >> shift is at least 2^11. */
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

uint64_t tp_symbol_cost_estimate(const tp_log2 *log2, const uint32_t *counts, uint32_t candidates,
                                 uint64_t total)
{
    if (!total) return 0;
    const uint64_t least = total / RARE + (total % RARE != 0), most = log2_of(log2, total);
    uint64_t cost = 0, kept = 0;
    for (uint32_t i = 0; i < candidates; i++) {
        const uint64_t c = counts[i];
        if (c < least) continue;
        const uint64_t bits = most - log2_of(log2, c);
        cost += c * (bits < TP_W32_K * COST_BIT ? bits : TP_W32_K * COST_BIT);
        kept += c;
    }
    return cost + (total - kept) * EXCEPTION_COST;
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
    uint64_t shared = total;       /* by the symbols that are worth more than a slot */
    uint32_t sum = 0, slots = scale;
    for (uint32_t i = 0; i < n; i++)
        if (count[i] * scale < total) {
            shared -= count[i];
            slots--;
        }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t share = count[i] * scale < total ? 1 : (count[i] * slots + shared / 2) / shared;
        if (share < 1) share = 1;
        if (share > scale - 1) share = scale - 1;
        F[i] = (uint16_t)share;
        sum += F[i];
        weigh(log2, count[i], F[i], scale, &gain[i], &loss[i]);
    }
    /* Every pass moves the sum by one or, once it is right, moves one slot; 2 * n passes are plenty, since
     * each share is off by less than 1. */
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

/* Symbols that may become the entries of a table, ascending. */
typedef struct entry_list {
    uint32_t n;
    uint32_t count[TP_MAX_SYMBOLS];
    uint16_t symbol[TP_MAX_SYMBOLS];
} entry_list;

static void entry_remove(entry_list *list, uint32_t at)
{
    list->n--;
    memmove(list->count + at, list->count + at + 1, (list->n - at) * sizeof list->count[0]);
    memmove(list->symbol + at, list->symbol + at + 1, (list->n - at) * sizeof list->symbol[0]);
}

static void entry_insert(entry_list *list, uint32_t at, uint32_t count, uint32_t symbol)
{
    memmove(list->count + at + 1, list->count + at, (list->n - at) * sizeof list->count[0]);
    memmove(list->symbol + at + 1, list->symbol + at, (list->n - at) * sizeof list->symbol[0]);
    list->count[at] = count;
    list->symbol[at] = (uint16_t)symbol;
    list->n++;
}

/* The last of the least frequent. */
static uint32_t entry_rarest(const entry_list *list)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < list->n; i++)
        if (list->count[i] <= list->count[at]) at = i;
    return at;
}

static uint32_t entry_commonest(const entry_list *list)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < list->n; i++)
        if (list->count[i] > list->count[at]) at = i;
    return at;
}

/* The `limit` most frequent symbols (of equals the lower ones) that are not too rare; at least two. */
static void keep_frequent(const uint32_t *counts, uint32_t candidates, uint64_t total, uint32_t limit,
                          entry_list *list)
{
    const uint64_t least = total / RARE + (total % RARE != 0);
    list->n = 0;
    for (uint32_t symbol = 0; symbol < candidates; symbol++) {
        const uint32_t c = counts[symbol];
        if (c < least) continue;
        if (list->n == limit) {
            const uint32_t rarest = entry_rarest(list);
            if (list->count[rarest] >= c) continue;
            entry_remove(list, rarest);
        }
        entry_insert(list, list->n, c, symbol);
    }
    if (list->n >= 2) return;
    if (list->n == 0) entry_insert(list, 0, counts[0], 0); /* nothing but symbols that are no candidates */
    const uint32_t only = list->symbol[0];
    /* its neighbour, if there is nothing else; not code 15, the last of 16, where symbols are pairs of
     * codes */
    uint32_t second = only % 16 ? only - 1 : only + 1;
    for (uint32_t symbol = 0; symbol < candidates; symbol++)
        if (symbol != only && counts[symbol] > counts[second]) second = symbol;
    entry_insert(list, second > only, counts[second], second);
}

static uint64_t build(const tp_log2 *log2, const entry_list *list, uint64_t total, tp_symbol_record *record)
{
    uint64_t count[TP_MAX_SYMBOLS] = {0}, exceptions = total;
    for (uint32_t i = 0; i < list->n; i++) {
        count[i] = list->count[i];
        exceptions -= count[i];
    }
    count[entry_commonest(list)] += exceptions; /* they are coded as it */
    quantise(log2, count, list->n, total, 1u << TP_W32_K, record->F);
    uint64_t cost = exceptions * EXCEPTION_COST;
    for (uint32_t i = 0; i < list->n; i++)
        cost += count[i] * (TP_W32_K * COST_BIT - log2->of[record->F[i]]);
    record->count = list->n;
    memcpy(record->symbol, list->symbol, list->n * sizeof record->symbol[0]);
    return cost;
}

/* The `n` most frequent of the list; *dropped, *slots: the symbols counted and the slots of the others. */
static void keep_most_frequent(const entry_list *list, uint32_t n, const uint16_t *F, entry_list *kept,
                               uint64_t *dropped, uint32_t *slots)
{
    kept->n = 0;
    *dropped = *slots = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const uint32_t c = list->count[i];
        uint32_t before = 0;
        for (uint32_t k = 0; k < list->n; k++) before += list->count[k] > c;
        for (uint32_t k = 0; k < i; k++) before += list->count[k] == c;
        if (before < n) {
            entry_insert(kept, kept->n, c, list->symbol[i]);
        } else {
            *dropped += c;
            *slots += F[i];
        }
    }
}

uint64_t tp_symbol_record_build(const tp_log2 *log2, const uint32_t *counts, uint32_t alphabet,
                                uint32_t candidates, uint32_t limit, tp_symbol_record *record)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < alphabet; i++) total += counts[i];
    entry_list list;
    keep_frequent(counts, candidates, total, limit, &list);
    uint64_t cost = build(log2, &list, total, record);
    /* At most 32 entries fit one register of a decoder: preferred where it costs less than 0.05 %. */
    if (list.n > 32 && limit <= 64) {
        entry_list fewer;
        uint64_t dropped;
        uint32_t slots;
        keep_most_frequent(&list, 32, record->F, &fewer, &dropped, &slots);
        /* It is not tried where it must cost more: those without an entry become exceptions instead of at
         * most K bits, and the others share the slots. */
        const uint64_t loss = dropped * (EXCEPTION_COST - TP_W32_K * COST_BIT),
                       gain = total * (TP_W32_K * COST_BIT - log2->of[(1u << TP_W32_K) - slots]);
        if (loss > gain + cost / 2048) return cost;
        tp_symbol_record small;
        const uint64_t small_cost = build(log2, &fewer, total, &small);
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
