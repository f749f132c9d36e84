#include "codec/choose.h"

#include <string.h>

#define BINS 1024 /* that the means are sorted into */
#define UNITS 64  /* runs of bins, of which classes are made */

/* Groups with neighbouring means. */
typedef struct unit {
    uint32_t end; /* the bin after its last */
    uint32_t groups;
    uint64_t sum; /* of their bins */
} unit;

/* Cuts the bins into at most UNITS runs of about equally many groups. Returns how many. */
static uint32_t make_units(const uint32_t count[BINS], uint32_t groups, unit units[UNITS])
{
    const uint32_t each = (groups + UNITS - 1) / UNITS;
    uint32_t n = 0;
    units[0] = (unit){0, 0, 0};
    for (uint32_t bin = 0; bin < BINS; bin++) {
        if (!count[bin]) continue;
        if (units[n].groups >= each) units[++n] = (unit){0, 0, 0};
        units[n].groups += count[bin];
        units[n].sum += (uint64_t)count[bin] * bin;
        units[n].end = bin + 1;
    }
    return n + 1;
}

/*
 * What a group loses by a table that is not its own grows about with the square of the distance of its mean
 * from the mean of the groups that the table is made of. The sum of these squares is that of all bins
 * squared, less this for each class: the larger, the better.
 */
static uint64_t worth(uint32_t groups, uint64_t sum)
{
    return groups ? sum * sum / groups : 0; /* sum < BINS * TP_MAX_GROUPS = 2^22 */
}

/* Classes of neighbouring units, of most worth together: bound[1..] are the bins where they start. If there
 * are too few units, the first classes are empty. */
static void cut_units(const unit *units, uint32_t n, uint32_t classes, uint32_t *bound)
{
    /* of the first j units in k + 1 classes, and the unit that starts the last of these */
    uint64_t best[TP_MAX_CLASSES][UNITS + 1] = {{0}};
    uint8_t start[TP_MAX_CLASSES][UNITS + 1] = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t groups = 0;
        uint64_t sum = 0;
        for (uint32_t j = i + 1; j <= n; j++) {
            groups += units[j - 1].groups;
            sum += units[j - 1].sum;
            const uint64_t last = worth(groups, sum);
            if (i == 0) best[0][j] = last;
            for (uint32_t k = 1; k < classes; k++) {
                const uint64_t all = best[k - 1][i] + last;
                if (all <= best[k][j]) continue;
                best[k][j] = all;
                start[k][j] = (uint8_t)i;
            }
        }
    }
    uint32_t end = n;
    for (uint32_t k = classes - 1; k > 0; k--) {
        end = start[k][end];
        bound[k] = end ? units[end - 1].end : 0;
    }
}

uint32_t tp_classify_groups(const uint32_t *means, uint32_t groups, uint32_t step, uint32_t classes,
                            uint8_t *class)
{
    uint32_t least = UINT32_MAX, most = 0, count[BINS] = {0}, n = 0;
    for (uint32_t g = 0; g < groups; g += step) {
        if (means[g] < least) least = means[g];
        if (means[g] > most) most = means[g];
        n++;
    }
    unsigned shift = 0;
    while ((most - least) >> shift >= BINS) shift++;
    for (uint32_t g = 0; g < groups; g += step) count[(means[g] - least) >> shift]++;

    unit units[UNITS];
    uint32_t bound[TP_MAX_CLASSES];
    const uint32_t in_use = make_units(count, n, units);
    cut_units(units, in_use, classes, bound);
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t bin = means[g] > least ? (means[g] - least) >> shift : 0;
        class[g] = 0;
        for (uint32_t k = 1; k < classes; k++) class[g] = (uint8_t)(class[g] + (bin >= bound[k]));
    }

    /* The best cut into two. */
    uint32_t all_groups = 0, first_groups = 0, halves = classes / 2;
    uint64_t all_sum = 0, first_sum = 0, best = 0;
    for (uint32_t i = 0; i < in_use; i++) {
        all_groups += units[i].groups;
        all_sum += units[i].sum;
    }
    for (uint32_t k = 1, i = 0; k < classes; k++) {
        for (; i < in_use && units[i].end <= bound[k]; i++) {
            first_groups += units[i].groups;
            first_sum += units[i].sum;
        }
        const uint64_t both =
            worth(first_groups, first_sum) + worth(all_groups - first_groups, all_sum - first_sum);
        if (both > best) {
            best = both;
            halves = k;
        }
    }
    return halves;
}

static const uint32_t *counts_of(const tp_choice *c, uint32_t chunk, uint32_t class)
{
    return c->counts + ((size_t)chunk * c->classes + class) * c->alphabet;
}

uint64_t tp_choice_sum(tp_choice *c)
{
    const size_t symbols = (size_t)c->classes * c->alphabet;
    uint64_t total = 0;
    memset(c->class_sum, 0, symbols * sizeof *c->class_sum);
    for (uint32_t i = 0; i < c->chunks; i++) {
        const uint32_t *counts = counts_of(c, i, 0);
        for (size_t k = 0; c->total[i] && k < symbols; k++) c->class_sum[k] += counts[k];
        total += c->total[i];
    }
    return total;
}

/* from[2 * n] to to[n], which may be from. */
static void halve(const uint32_t *from, size_t n, uint32_t *to)
{
    for (size_t i = 0; i < n; i++) to[i] = from[2 * i] + from[2 * i + 1];
}

void tp_choice_halve(const tp_choice *from, tp_choice *to)
{
    to->counts = from->counts;
    memcpy(to->total, from->total, sizeof to->total);
    to->chunks = from->chunks;
    to->classes = from->classes;
    to->alphabet = to->candidates = from->alphabet / 2;
    to->limit = from->limit;
    to->step = from->step;
    to->groups = from->groups;
    to->halves = from->halves;
    halve(from->class_sum, (size_t)to->classes * to->alphabet, to->class_sum);
}

void tp_choice_halve_counts(tp_choice *c)
{
    halve(c->counts, (size_t)c->chunks * c->classes * c->alphabet, c->counts);
}

/* The counts of the classes first..last of all chunks, into c->sum; their number. */
static uint64_t sum_classes(tp_choice *c, uint32_t first, uint32_t last)
{
    uint64_t total = 0;
    memcpy(c->sum, c->class_sum + (size_t)first * c->alphabet, c->alphabet * sizeof *c->sum);
    for (uint32_t class = first + 1; class <= last; class ++)
        for (uint32_t k = 0; k < c->alphabet; k++) c->sum[k] += c->class_sum[class * c->alphabet + k];
    for (uint32_t k = 0; k < c->alphabet; k++) total += c->sum[k];
    return total;
}

/* ------------------------------------------------------------------------------- tables by the chunk */

/* Folds the classes of every chunk into its class 0, so that counts_of(c, i, 0) speaks for the chunk. */
static void fold_classes(tp_choice *c)
{
    for (uint32_t i = 0; i < c->chunks; i++) {
        uint32_t *into = c->counts + (size_t)i * c->classes * c->alphabet;
        for (uint32_t class = 1; class < c->classes; class ++)
            for (uint32_t k = 0; k < c->alphabet; k++) into[k] += into[class * c->alphabet + k];
    }
}

/* What all chunks save if they may use `record` too; cost: of each under it. */
static uint64_t saving(const tp_log2 *log2, const tp_choice *c, const tp_symbol_record *record,
                       uint64_t *cost)
{
    uint64_t saved = 0;
    for (uint32_t i = 0; i < c->chunks; i++) {
        if (!c->total[i]) continue;
        cost[i] = tp_symbol_record_cost(log2, counts_of(c, i, 0), c->total[i], record);
        if (cost[i] < c->cost[i]) saved += c->cost[i] - cost[i];
    }
    return saved;
}

/*
 * One table for all chunks; then, as long as that pays for its record, the own table of the chunk that
 * seems to gain most; then each is made anew from the chunks that chose it. own: about what each chunk
 * costs under a table of its own. Returns the cost of everything, or UINT64_MAX as soon as it cannot well
 * be below `limit`.
 */
static uint64_t choose_by_chunk(const tp_log2 *log2, tp_choice *c, const uint64_t *own, uint64_t limit)
{
    uint64_t cost[TP_MAX_CHUNKS], all = 0, own_of_all = 0;
    const uint64_t record_cost = TP_COST_OF_BYTES(4 * c->limit) / c->step;
    c->selector_bits = 0;
    c->tables = 1;
    const uint64_t total = sum_classes(c, 0, c->classes - 1);
    tp_symbol_record_build(log2, c->sum, c->alphabet, c->candidates, c->limit, &c->record[0]);
    for (uint32_t i = 0; i < c->chunks; i++) {
        c->table[i] = 0;
        c->cost[i] = UINT64_MAX;
    }
    saving(log2, c, &c->record[0], c->cost);
    for (uint32_t i = 0; i < c->chunks; i++) {
        if (!c->total[i]) continue;
        all += c->cost[i];
        own_of_all += own[i];
    }
    /* What any table wastes, the common one about as much as one of a chunk. */
    const uint64_t estimate = tp_symbol_cost_estimate(log2, c->sum, c->candidates, total);
    const uint64_t waste = all > estimate ? (all - estimate) / total : 0;
    if (own_of_all + waste * total + record_cost > limit) return UINT64_MAX;
    while (c->tables < TP_MAX_TABLES) {
        uint32_t best = c->chunks;
        uint64_t most = record_cost / 2; /* so that two chunks can earn a table */
        tp_symbol_record *record = &c->record[c->tables];
        for (uint32_t i = 0; i < c->chunks; i++) {
            if (!c->total[i]) continue;
            const uint64_t expected = own[i] + waste * c->total[i];
            if (c->cost[i] > expected && c->cost[i] - expected > most)
                most = c->cost[i] - expected, best = i;
        }
        if (best == c->chunks) break;
        tp_symbol_record_build(log2, counts_of(c, best, 0), c->alphabet, c->candidates, c->limit, record);
        if (saving(log2, c, record, cost) <= record_cost) break;
        for (uint32_t i = 0; i < c->chunks; i++)
            if (c->total[i] && cost[i] < c->cost[i]) {
                c->cost[i] = cost[i];
                c->table[i] = (uint8_t)c->tables;
            }
        c->tables++;
    }
    all = c->tables * record_cost;
    for (uint32_t i = 0; i < c->chunks; i++)
        if (c->total[i]) all += c->cost[i];
    if (all - all / 512 > limit) return UINT64_MAX; /* new tables gain no more than that */
    if (c->tables > 1) {
        uint32_t kept = 0;
        for (uint32_t t = 0; t < c->tables; t++) {
            bool used = false;
            memset(c->sum, 0, c->alphabet * sizeof *c->sum);
            for (uint32_t i = 0; i < c->chunks; i++) {
                if (!c->total[i] || c->table[i] != t) continue;
                const uint32_t *counts = counts_of(c, i, 0);
                for (uint32_t k = 0; k < c->alphabet; k++) c->sum[k] += counts[k];
                used = true;
            }
            if (!used) continue;
            tp_symbol_record_build(log2, c->sum, c->alphabet, c->candidates, c->limit, &c->record[kept]);
            for (uint32_t i = 0; i < c->chunks; i++)
                if (c->total[i] && c->table[i] == t) {
                    c->table[i] = (uint8_t)kept;
                    c->cost[i] =
                        tp_symbol_record_cost(log2, counts_of(c, i, 0), c->total[i], &c->record[kept]);
                }
            kept++;
        }
        c->tables = kept;
    }
    all = c->tables * record_cost;
    for (uint32_t i = 0; i < c->chunks; i++)
        if (c->total[i]) all += c->cost[i];
    return all;
}

/* ------------------------------------------------------------------------------- tables by the group */

/* The first class of table t of so many. */
static uint32_t first_class(const tp_choice *c, uint32_t tables, uint32_t t)
{
    return tables == 2 && t == 1 ? c->halves : t * c->classes / tables;
}

/* About what 2^bits tables, each of neighbouring classes, and their selectors cost. */
static uint64_t estimate_by_group(const tp_log2 *log2, tp_choice *c, unsigned bits)
{
    const uint32_t tables = 1u << bits;
    uint64_t all = tables * TP_COST_OF_BYTES(4 * c->limit) / c->step +
                   TP_COST_OF_BYTES(c->groups * bits / 8) / c->step;
    for (uint32_t t = 0; t < tables; t++) {
        const uint64_t total = sum_classes(c, first_class(c, tables, t), first_class(c, tables, t + 1) - 1);
        all += tp_symbol_cost_estimate(log2, c->sum, c->candidates, total);
    }
    return all;
}

/* Makes them; one without counts gets the table of all. Returns what they cost. */
static uint64_t choose_by_group(const tp_log2 *log2, tp_choice *c, unsigned bits)
{
    const uint32_t tables = 1u << bits;
    uint64_t all = tables * TP_COST_OF_BYTES(4 * c->limit) / c->step +
                   TP_COST_OF_BYTES(c->groups * bits / 8) / c->step;
    c->selector_bits = bits;
    c->tables = tables;
    for (uint32_t t = 0; t < tables; t++) {
        tp_symbol_record *record = &c->record[t];
        if (sum_classes(c, first_class(c, tables, t), first_class(c, tables, t + 1) - 1))
            all += tp_symbol_record_build(log2, c->sum, c->alphabet, c->candidates, c->limit, record);
        else if (sum_classes(c, 0, c->classes - 1))
            tp_symbol_record_build(log2, c->sum, c->alphabet, c->candidates, c->limit, record);
    }
    return all;
}

/* What each chunk costs under the tables by group. */
static void cost_by_group(const tp_log2 *log2, tp_choice *c)
{
    for (uint32_t i = 0; i < c->chunks; i++) {
        c->table[i] = 0;
        c->cost[i] = 0;
        for (uint32_t class = 0, t = 0; c->total[i] && class < c->classes; class ++) {
            uint64_t total = 0;
            if (class == first_class(c, c->tables, t + 1)) t++;
            const uint32_t *counts = counts_of(c, i, class);
            for (uint32_t k = 0; k < c->alphabet; k++) total += counts[k];
            c->cost[i] += tp_symbol_record_cost(log2, counts, total, &c->record[t]);
        }
    }
}

uint64_t tp_choose_tables_by_group(const tp_log2 *log2, tp_choice *c)
{
    uint64_t least = UINT64_MAX;
    unsigned best = 0;
    for (unsigned bits = 0; 1u << bits <= c->classes; bits++) {
        const uint64_t cost = c->classes > 1 ? estimate_by_group(log2, c, bits) : 0;
        if (cost < least) least = cost, best = bits;
    }
    return choose_by_group(log2, c, best);
}

void tp_choose_tables_by_chunk(const tp_log2 *log2, tp_choice *c, uint64_t by_group)
{
    const uint32_t tables = c->tables;
    const unsigned bits = c->selector_bits;
    uint64_t cost[TP_MAX_CHUNKS], own[TP_MAX_CHUNKS], least = 0;
    tp_symbol_record record[TP_MAX_CLASSES];
    cost_by_group(log2, c);
    if (c->chunks < 2) return;
    fold_classes(c);
    for (uint32_t i = 0; i < c->chunks; i++) {
        own[i] = tp_symbol_cost_estimate(log2, counts_of(c, i, 0), c->candidates, c->total[i]);
        least += own[i];
    }
    if (least >= by_group) return; /* even if every chunk had its own table for nothing */
    memcpy(record, c->record, tables * sizeof *record);
    memcpy(cost, c->cost, sizeof cost);
    if (choose_by_chunk(log2, c, own, by_group) < by_group) return;
    c->tables = tables;
    c->selector_bits = bits;
    memcpy(c->record, record, tables * sizeof *record);
    memcpy(c->cost, cost, sizeof cost);
    memset(c->table, 0, sizeof c->table);
}
