/* From counts to tables: logarithms, validity of every table, and how near the best one it is. */
#include "registry.h"

#include <math.h>

#include "codec/bytes.h"
#include "codec/choose.h"
#include "codec/table.h"

static tp_log2 logs;

static void test_log2(void **state)
{
    (void)state;
    tp_log2_init(&logs);
    for (unsigned k = 0; k <= 12; k++) assert_int_equal(logs.of[1u << k], k << 16);
    /* floor(2^16 log2 v) */
    assert_int_equal(logs.of[3], 103872);
    assert_int_equal(logs.of[5], 152169);
    assert_int_equal(logs.of[7], 183982);
    assert_int_equal(logs.of[1023], 655267);
    assert_int_equal(logs.of[4095], 786408);
    for (uint32_t v = 1; v <= 4096; v++) {
        const double exact_log = log2((double)v) * 65536;
        /* truncated: never above, and less than two units below */
        if ((double)logs.of[v] > exact_log + 1e-6 || (double)logs.of[v] < exact_log - 2)
            fail_msg("log2 of %u is %u, should be %f", v, logs.of[v], exact_log);
        if (v > 1) assert_true(logs.of[v] > logs.of[v - 1]);
    }
}

/* Frequencies by giving slot after slot to whoever gains most: the optimum, since gains only fall. */
static double best_cost(const double *count, unsigned n, unsigned scale)
{
    unsigned F[256];
    for (unsigned i = 0; i < n; i++) F[i] = 1;
    for (unsigned left = scale - n; left; left--) {
        unsigned best = 0;
        double gain = -1;
        for (unsigned i = 0; i < n; i++) {
            if (F[i] == scale - 1) continue;
            const double g = count[i] * log2(1 + 1.0 / F[i]);
            if (g > gain) gain = g, best = i;
        }
        F[best]++;
    }
    double cost = 0;
    for (unsigned i = 0; i < n; i++) cost += count[i] * log2((double)scale / F[i]);
    return cost;
}

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The least cost in bits over all numbers of entries; an exception is 32 bits and a coding of the
 * commonest. */
static double best_symbol_cost(const uint32_t *counts, uint32_t alphabet, unsigned limit)
{
    double *sorted = exact(alphabet * sizeof *sorted), best = INFINITY, total = 0;
    unsigned used = 0;
    for (uint32_t i = 0; i < alphabet; i++) {
        if (counts[i]) sorted[used++] = counts[i];
        total += counts[i];
    }
    qsort(sorted, used, sizeof *sorted, descending);
    for (unsigned n = 1; n <= used && n <= limit; n++) {
        double kept[TP_MAX_SYMBOLS] = {0}, sum = 0;
        for (unsigned i = 0; i < n; i++) sum += kept[i] = sorted[i];
        if (n + 8 < used && n + 8 < limit && (total - sum) * 32 > best)
            continue; /* hopeless, save the time */
        kept[0] += total - sum;
        unsigned entries = n;
        if (entries == 1) kept[entries++] = 0;
        const double cost = (total - sum) * 32 + best_cost(kept, entries, 1024);
        if (cost < best) best = cost;
    }
    free(sorted);
    return best;
}

static void check_record(const tp_symbol_record *record, uint32_t alphabet, unsigned limit)
{
    uint32_t sum = 0;
    assert_in_range(record->count, 2, limit);
    for (uint32_t i = 0; i < record->count; i++) {
        assert_in_range(record->F[i], 1, 1023);
        assert_in_range(record->symbol[i], 0, alphabet - 1);
        if (i) assert_true(record->symbol[i] > record->symbol[i - 1]);
        sum += record->F[i];
    }
    assert_int_equal(sum, 1024);
}

/* Histograms from steep to flat, dense and sparse. */
static void make_counts(rng *r, uint32_t *counts, uint32_t alphabet, uint32_t total)
{
    memset(counts, 0, alphabet * sizeof *counts);
    const unsigned shape = rng_below(r, 6);
    const uint32_t used = shape == 0   ? 1
                          : shape == 1 ? 2
                                       : 1 + rng_below(r, alphabet < 300 ? alphabet : 300);
    const double ratio = shape == 2 ? 1 : 1 - 0.7 * (double)rng_below(r, 1000) / 1000;
    double share = 1;
    for (uint32_t i = 0; i < used; i++) {
        const double noise = 0.5 + (double)rng_below(r, 1000) / 1000;
        counts[rng_below(r, alphabet)] += 1 + (uint32_t)(share * noise * (1 - ratio + 0.002) * total);
        share *= ratio;
    }
}

static void test_symbol_tables(void **state)
{
    (void)state;
    tp_log2_init(&logs);
    uint32_t *counts = exact(65536 * sizeof *counts);
    rng r = rng_make(30);
    for (unsigned round = 0; round < 400; round++) {
        static const uint32_t alphabets[] = {512, 256, 1024, 65536, 32, 128, 4096};
        const uint32_t alphabet = alphabets[round % 7], total = 1u << (4 + rng_below(&r, 15));
        const unsigned limit = alphabet == 65536 ? 128 : 64;
        tp_symbol_record record;
        make_counts(&r, counts, alphabet, total);
        uint64_t all = 0;
        for (uint32_t i = 0; i < alphabet; i++) all += counts[i];
        const uint64_t cost = tp_symbol_record_build(&logs, counts, alphabet, alphabet, limit, &record);
        check_record(&record, alphabet, limit);
        assert_int_equal(cost, tp_symbol_record_cost(&logs, counts, all, &record));
        const double best = best_symbol_cost(counts, alphabet, limit), its = (double)cost / 65536;
        /* 0.1 %, what the preference for 32 entries may cost, and the rounding of logarithms */
        if (its > best * 1.0015 + (double)all * 3e-5)
            fail_msg("round %u: alphabet %u, %u symbols: %.1f bits where %.1f do (%.3f %%)", round,
                     alphabet, (unsigned)all, its, best, 100 * (its / best - 1));
    }
    free(counts);
}

/* Pairs of codes: what has a code 15 is counted, and never in a table; even if there is little else. */
static void test_pair_tables(void **state)
{
    (void)state;
    tp_log2_init(&logs);
    uint32_t counts[256];
    rng r = rng_make(32);
    for (unsigned round = 0; round < 400; round++) {
        tp_symbol_record record;
        memset(counts, 0, sizeof counts);
        for (uint32_t left = round % 5; left; left--) {
            uint32_t k = rng_below(&r, 255);
            if (k % 16 < 15 && k / 16 < 15) counts[k] = 1 + rng_below(&r, 1000);
        }
        counts[255] = round % 3 ? 1 + rng_below(&r, 100) : 0;
        uint64_t all = 0;
        for (uint32_t i = 0; i < 256; i++) all += counts[i];
        if (!all) continue;
        const uint64_t cost = tp_symbol_record_build(&logs, counts, 256, 255, 128, &record);
        check_record(&record, 256, 128);
        for (uint32_t i = 0; i < record.count; i++)
            assert_true(record.symbol[i] % 16 < 15 && record.symbol[i] / 16 < 15);
        assert_int_equal(cost, tp_symbol_record_cost(&logs, counts, all, &record));
    }
}

static void test_wide_tables(void **state)
{
    (void)state;
    tp_log2_init(&logs);
    rng r = rng_make(31);
    for (unsigned round = 0; round < 300; round++) {
        uint32_t counts[256], sum = 0;
        uint16_t F[256];
        make_counts(&r, counts, 256, 1u << (4 + rng_below(&r, 18)));
        const uint64_t cost = tp_wide_record_build(&logs, counts, F);
        double used[256];
        unsigned n = 0, non_zero = 0, missing = 256;
        double total = 0;
        for (unsigned i = 0; i < 256; i++) {
            assert_in_range(F[i], 0, 4095);
            if (counts[i]) {
                assert_int_not_equal(F[i], 0);
                used[n++] = counts[i];
                total += counts[i];
            } else {
                missing = i;
            }
            non_zero += F[i] != 0;
            sum += F[i];
        }
        assert_int_equal(sum, 4096);
        assert_true(non_zero >= 2);
        assert_int_equal(cost, tp_wide_record_cost(&logs, counts, F));
        if (n == 1) used[n++] = 0;
        const double best = best_cost(used, n, 4096), its = (double)cost / 65536;
        if (its > best * 1.001 + total * 3e-5)
            fail_msg("round %u: %.1f bits where %.1f do", round, its, best);
        if (missing < 256 && !F[missing]) {
            counts[missing] = 1;
            assert_true(tp_wide_record_cost(&logs, counts, F) == UINT64_MAX);
        }
    }
}

/* Decoding tables in all their forms against the intervals they stand for. */
static void test_decoding_tables(void **state)
{
    (void)state;
    static tp_w32_table table;
    static tp_wide_table wide;
    rng r = rng_make(32);
    for (unsigned round = 0; round < 300; round++) {
        const bool pairs = round % 2;
        const unsigned limit = pairs ? 128 : 64;
        ref_table expected;
        make_table(&r, (table_kind)(round / 2 % TABLE_KINDS),
                   round % 5 == 0 ? limit : 2 + rng_below(&r, limit - 1), pairs ? 65536 : 512, 1024,
                   &expected);
        tp_symbol_record record;
        uint8_t stored[512];
        memset(stored, 0xff, sizeof stored);
        table_to_record(&expected, &record);
        tp_symbol_record_store(&record, pairs, stored);
        for (unsigned i = 0; i < limit; i++) {
            assert_int_equal(tp_load16(stored + 4 * i), i < expected.entries ? expected.F[i] : 0);
            assert_int_equal(tp_load16(stored + 4 * i + 2), i < expected.entries ? expected.symbol[i] : 0);
        }
        memset(&table, 0xff, sizeof table);
        tp_w32_table_init(stored, pairs, &table);
        assert_int_equal(table.count, expected.entries);
        uint32_t at = 0;
        for (unsigned i = 0; i < TP_MAX_SYMBOLS; i++) {
            assert_int_equal(table.F[i], i < expected.entries ? expected.F[i] : 0);
            if (i >= expected.entries) continue;
            assert_int_equal(table.start[i], at);
            assert_int_equal(table.symbol[i], expected.symbol[i]);
            for (unsigned bias = 0; bias < expected.F[i]; bias++, at++) {
                const tp_slot *slot = &table.slot[at];
                assert_int_equal(slot->F, expected.F[i]);
                assert_int_equal(slot->bias, bias);
                assert_int_equal(slot->symbol, expected.symbol[i]);
                assert_int_equal(slot->entry, i);
                const unsigned bits = table.bucket_bits[at / 16] << (15 - at % 16) & 0xffff;
                assert_int_equal(table.bucket_entry[at / 16] + (unsigned)__builtin_popcount(bits), i);
            }
        }
        assert_int_equal(at, 1024);

        make_table(&r, (table_kind)(round % TABLE_KINDS), 2 + rng_below(&r, 255), 256, 4096, &expected);
        uint16_t F[256];
        table_to_wide(&expected, F);
        tp_wide_record_store(F, stored);
        tp_wide_table_init(stored, &wide);
        at = 0;
        for (unsigned i = 0; i < 256; i++) {
            assert_int_equal(wide.F[i], F[i]);
            for (unsigned bias = 0; bias < F[i]; bias++, at++)
                assert_int_equal(wide.slot[at], (uint32_t)F[i] << 20 | bias << 8 | i);
        }
        assert_int_equal(at, 4096);
    }
}

/* The divisions by multiplication, at both ends and around every multiple that matters. */
static void test_reciprocals(void **state)
{
    (void)state;
    static tp_w32_encode_table table;
    static tp_wide_encode_table wide;
    for (uint32_t F = 1; F <= 4095; F++) {
        uint16_t wide_F[256] = {0};
        wide_F[3] = (uint16_t)F;
        wide_F[200] = (uint16_t)(4096 - F);
        tp_wide_encode_table_init(wide_F, &wide);
        assert_int_equal(wide.start[200], F);
        assert_int_equal(wide.common, F >= 4096 - F ? 3 : 200);
        if (F < 1024) {
            const tp_symbol_record record = {
                .count = 2, .F = {(uint16_t)F, (uint16_t)(1024 - F)}, .symbol = {5, 9}};
            tp_w32_encode_table_init(&record, 512, &table);
            assert_int_equal(table.entry[5], 0);
            assert_int_equal(table.entry[9], 1);
            assert_int_equal(table.entry[0], TP_NO_ENTRY);
            assert_int_equal(table.entry[511], TP_NO_ENTRY);
            assert_int_equal(table.common, F >= 1024 - F ? 0 : 1);
        }
        for (uint32_t i = 0; i < 400; i++) {
            /* x below F << 16, after the renormalisation; multiples of F and their neighbours */
            const uint32_t limit = F << 16;
            uint32_t x = i < 100   ? i * F
                         : i < 200 ? limit - 1 - (i - 100)
                                   : (uint32_t)((uint64_t)limit * i / 400 / F * F);
            for (uint32_t d = 0; d < 2; d++) {
                const uint32_t y = x - (x > d ? d : 0);
                if (y >= limit) continue;
                if (F < 1024) assert_int_equal(y * table.reciprocal[0] >> 36, y / F);
                assert_int_equal((uint64_t)((unsigned __int128)y * wide.reciprocal[3] >> 40), y / F);
            }
        }
    }
}

/* --------------------------------------------------------------------------------- classes and choices */

/* The sum of the squared distances of means[from..to) from their own mean. */
static double spread(const uint32_t *means, uint32_t from, uint32_t to)
{
    double sum = 0, squares = 0;
    for (uint32_t i = from; i < to; i++) {
        sum += means[i];
        squares += (double)means[i] * means[i];
    }
    return to > from ? squares - sum * sum / (to - from) : 0;
}

static int ascending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Few enough means for every cut to be tried; they are bins as they are. */
static void test_group_classes(void **state)
{
    enum { N = 40 };
    (void)state;
    rng r = rng_make(21);
    for (unsigned round = 0; round < 20; round++) {
        uint32_t means[N];
        uint8_t class[N];
        for (uint32_t i = 0; i < N; i++) /* a few scales, of unequal numbers, or all kinds of values */
            means[i] = round % 2 ? rng_below(&r, 1024)
                                 : (i < 23   ? 100
                                    : i < 35 ? 400
                                             : 900) +
                                       rng_below(&r, 60);
        qsort(means, N, sizeof *means, ascending);
        const uint32_t halves = tp_classify_groups(means, N, 1, 4, class);
        double best = INFINITY, made = 0, two = INFINITY;
        for (uint32_t a = 0; a <= N; a++)
            for (uint32_t b = a; b <= N; b++)
                for (uint32_t c = b; c <= N; c++) {
                    const double all = spread(means, 0, a) + spread(means, a, b) + spread(means, b, c) +
                                       spread(means, c, N);
                    if (all < best) best = all;
                }
        uint32_t start[5] = {0, 0, 0, 0, N};
        for (uint32_t i = 1; i < N; i++) assert_true(class[i] >= class[i - 1] && class[i] < 4);
        for (uint32_t k = 1; k < 4; k++)
            while (start[k] < N && class[start[k]] < k) start[k]++;
        for (uint32_t k = 0; k < 4; k++) made += spread(means, start[k], start[k + 1]);
        assert_true(made <= best + 4); /* each class's share is rounded down */
        for (uint32_t k = 1; k < 4; k++) {
            const double cut = spread(means, 0, start[k]) + spread(means, start[k], N);
            if (cut < two) two = cut;
        }
        assert_true(halves >= 1 && halves < 4);
        assert_true(spread(means, 0, start[halves]) + spread(means, start[halves], N) <= two + 2);
    }
    /* Equal means; a single group; groups beyond all that were judged. */
    uint32_t means[N];
    uint8_t class[N];
    for (uint32_t i = 0; i < N; i++) means[i] = 77;
    tp_classify_groups(means, N, 4, 4, class);
    for (uint32_t i = 1; i < N; i++) assert_int_equal(class[i], class[0]);
    tp_classify_groups(means, 1, 4, 4, class);
    for (uint32_t i = 0; i < N; i++) means[i] = i % 4 ? (i % 4 == 1 ? 0 : UINT32_MAX) : 1000000 + i * 1000;
    tp_classify_groups(means, N, 4, 4, class);
    for (uint32_t i = 1; i < N; i++) {
        if (i % 4 == 1) assert_int_equal(class[i], class[0]);
        if (i % 4 > 1) assert_int_equal(class[i], class[36]);
    }
}

/* The counts of one chunk: near a geometric distribution upwards from `first`. */
static void put_counts(uint32_t *counts, uint32_t first, uint32_t largest)
{
    for (uint32_t k = first; largest; k++, largest /= 2) counts[k] = largest;
}

static void test_tables_by_chunk(void **state)
{
    enum { ALPHABET = 64 };
    (void)state;
    static tp_choice choice;
    static uint32_t counts[TP_MAX_CHUNKS * ALPHABET];
    /* Kinds of chunks: one, two that take turns, more than there may be tables. */
    for (unsigned kinds = 1; kinds <= TP_MAX_CHUNKS; kinds = kinds == 2 ? TP_MAX_CHUNKS : kinds + 1) {
        memset(&choice, 0, sizeof choice);
        memset(counts, 0, sizeof counts);
        choice.counts = counts;
        choice.chunks = TP_MAX_CHUNKS;
        choice.classes = 1;
        choice.alphabet = choice.candidates = ALPHABET;
        choice.limit = 64;
        choice.step = 1;
        choice.groups = TP_MAX_CHUNKS;
        for (uint32_t i = 0; i < TP_MAX_CHUNKS; i++) {
            if (i == 5) continue; /* of one value: not counted */
            put_counts(counts + i * ALPHABET, i % kinds, 32768);
            for (uint32_t k = 0; k < ALPHABET; k++) choice.total[i] += counts[i * ALPHABET + k];
        }
        assert_int_equal(tp_choice_sum(&choice), (TP_MAX_CHUNKS - 1) * choice.total[0]);
        const uint64_t by_group = tp_choose_tables_by_group(&logs, &choice);
        tp_choose_tables_by_chunk(&logs, &choice, by_group);
        assert_int_equal(choice.selector_bits, 0);
        if (kinds <= 2) assert_int_equal(choice.tables, kinds);
        assert_in_range(choice.tables, 1, TP_MAX_TABLES);
        uint64_t all = 0;
        for (uint32_t i = 0; i < TP_MAX_CHUNKS; i++) {
            if (i == 5) continue;
            if (kinds <= 2) assert_int_equal(choice.table[i], choice.table[i % kinds]);
            assert_in_range(choice.table[i], 0, choice.tables - 1);
            assert_int_equal(choice.cost[i],
                             tp_symbol_record_cost(&logs, counts + i * ALPHABET, choice.total[i],
                                                   &choice.record[choice.table[i]]));
            all += choice.cost[i];
        }
        assert_true(all <= by_group);
        if (kinds == 2) assert_true(choice.table[0] != choice.table[1]);
        if (kinds == TP_MAX_CHUNKS) assert_true(choice.tables > 8 && all < by_group / 2);
    }
}

int run_tables(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log2),
        cmocka_unit_test(test_symbol_tables),
        cmocka_unit_test(test_pair_tables),
        cmocka_unit_test(test_wide_tables),
        cmocka_unit_test(test_decoding_tables),
        cmocka_unit_test(test_reciprocals),
        cmocka_unit_test(test_group_classes),
        cmocka_unit_test(test_tables_by_chunk),
    };
    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
