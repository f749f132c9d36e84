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

/* The class that starts the second part of the best cut into two. */
static uint32_t best_half(const unit *units, uint32_t n, uint32_t classes, const uint32_t *bound)
{
    uint32_t all_groups = 0, first_groups = 0, halves = classes / 2;
    uint64_t all_sum = 0, first_sum = 0, best = 0;
    for (uint32_t i = 0; i < n; i++) {
        all_groups += units[i].groups;
        all_sum += units[i].sum;
    }
    for (uint32_t k = 1, i = 0; k < classes; k++) {
        for (; i < n && units[i].end <= bound[k]; i++) {
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
    return best_half(units, in_use, classes, bound);
}

static const uint32_t *counts_of(const tp_choice *c, uint32_t chunk, uint32_t class)
{
    return c->counts + ((size_t)chunk * c->classes + class) * c->alphabet;
}

/* The symbols that occur: from c->first to before c->end. */
static void find_range(tp_choice *c)
{
    uint32_t *const all = c->sum;
    memcpy(all, c->class_sum, c->alphabet * sizeof *all);
    for (uint32_t class = 1; class < c->classes; class ++)
        for (uint32_t k = 0; k < c->alphabet; k++) all[k] |= c->class_sum[class * c->alphabet + k];
    for (c->first = 0; c->first < c->alphabet && !all[c->first];) c->first++;
    for (c->end = c->alphabet; c->end > c->first && !all[c->end - 1];) c->end--;
    memset(all, 0, c->alphabet * sizeof *all);
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
    find_range(c);
    return total;
}

/* How many of the counted symbols there are. */
static uint64_t count_all(const tp_choice *c, const uint32_t *counts)
{
    uint64_t total = 0;
    for (uint32_t k = c->first; k < c->end; k++) total += counts[k];
    return total;
}

static void add_counts(const tp_choice *c, const uint32_t *counts, uint32_t *into)
{
    for (uint32_t k = c->first; k < c->end; k++) into[k] += counts[k];
}

/* About what the symbols cost under a table of their own. */
static uint64_t estimate(const tp_log2 *log2, const tp_choice *c, const uint32_t *counts, uint64_t total)
{
    const uint32_t end = c->end < c->candidates ? c->end : c->candidates;
    return tp_symbol_cost_estimate(log2, counts + c->first, end > c->first ? end - c->first : 0, total);
}

/* Of a table, as the sample's symbols are counted: a step-th. */
static uint64_t record_cost(const tp_choice *c)
{
    return TP_COST_OF_BYTES(4 * c->limit) / c->step;
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
    find_range(to);
}

void tp_choice_halve_counts(tp_choice *c)
{
    halve(c->counts, (size_t)c->chunks * c->classes * c->alphabet, c->counts);
}

/* The counts of the classes first..last of all chunks, into c->sum; their number. */
static uint64_t sum_classes(tp_choice *c, uint32_t first, uint32_t last)
{
    memset(c->sum + c->first, 0, (c->end - c->first) * sizeof *c->sum);
    for (uint32_t class = first; class <= last; class ++)
        add_counts(c, c->class_sum + (size_t) class * c->alphabet, c->sum);
    return count_all(c, c->sum);
}

/* ------------------------------------------------------------------------------- tables by the chunk */

/* Folds the classes of every chunk into its class 0, so that counts_of(c, i, 0) speaks for the chunk. */
static void fold_classes(tp_choice *c)
{
    for (uint32_t i = 0; i < c->chunks; i++) {
        uint32_t *into = c->counts + (size_t)i * c->classes * c->alphabet;
        for (uint32_t class = 1; class < c->classes; class ++)
            add_counts(c, into + class * c->alphabet, into);
    }
}

/* Neighbouring chunks in the order of their means. */
typedef struct cluster {
    uint32_t first, end; /* places in that order */
    uint64_t total, cost;
    uint64_t loss; /* by becoming one with the cluster before */
} cluster;

typedef struct chunk_order {
    uint32_t n; /* chunks that were counted */
    uint8_t chunk[TP_MAX_CHUNKS];
} chunk_order;

typedef struct clusters {
    uint32_t n;
    cluster of[TP_MAX_CHUNKS];
    uint64_t cost; /* of all */
} clusters;

/* Puts the chunks into the order of their means, and the sums of the counts of the first 0, 1, .. into
 * c->sums. */
static void order_chunks(tp_choice *c, chunk_order *order)
{
    const uint32_t end = c->end < c->candidates ? c->end : c->candidates;
    uint64_t mean[TP_MAX_CHUNKS];
    order->n = 0;
    for (uint32_t i = 0; i < c->chunks; i++) {
        if (!c->total[i]) continue;
        const uint32_t *counts = counts_of(c, i, 0);
        uint64_t sum = 0;
        for (uint32_t k = c->first; k < end; k++) sum += (uint64_t)counts[k] * k;
        const uint64_t of_chunk = sum * 65536 / c->total[i]; /* sum < 2^29 */
        uint32_t at = order->n++;
        for (; at && mean[at - 1] > of_chunk; at--) {
            mean[at] = mean[at - 1];
            order->chunk[at] = order->chunk[at - 1];
        }
        mean[at] = of_chunk;
        order->chunk[at] = (uint8_t)i;
    }
    memset(c->sums, 0, c->alphabet * sizeof *c->sums);
    for (uint32_t i = 0; i < order->n; i++) {
        uint32_t *before = c->sums + i * c->alphabet, *sums = before + c->alphabet;
        memcpy(sums + c->first, before + c->first, (c->end - c->first) * sizeof *sums);
        add_counts(c, counts_of(c, order->chunk[i], 0), sums);
    }
}

/* The counts of the chunks at the places first..end - 1 of the order, into c->sum. */
static void sum_chunks(tp_choice *c, uint32_t first, uint32_t end)
{
    const uint32_t *before = c->sums + first * c->alphabet, *sums = c->sums + end * c->alphabet;
    for (uint32_t k = c->first; k < c->end; k++) c->sum[k] = sums[k] - before[k];
}

/* By sharing a table. */
static uint64_t loss_of(const tp_log2 *log2, tp_choice *c, const cluster *a, const cluster *b)
{
    sum_chunks(c, a->first, b->end);
    const uint64_t both = estimate(log2, c, c->sum, a->total + b->total);
    return both > a->cost + b->cost ? both - a->cost - b->cost : 0;
}

/* A cluster for every chunk. own: about what each chunk costs under a table of its own. */
static void start_clusters(const tp_log2 *log2, tp_choice *c, const chunk_order *order, const uint64_t *own,
                           clusters *all)
{
    all->n = order->n;
    all->cost = 0;
    for (uint32_t i = 0; i < order->n; i++) {
        const uint32_t chunk = order->chunk[i];
        cluster *const a = &all->of[i];
        *a = (cluster){
            .first = i, .end = i + 1, .total = c->total[chunk], .cost = own[chunk], .loss = UINT64_MAX};
        if (i) a->loss = loss_of(log2, c, a - 1, a);
        all->cost += own[chunk];
    }
}

/* As long as a table costs more than it saves, or there are too many, the two neighbours that lose least by
 * it share one. */
static void join_clusters(const tp_log2 *log2, tp_choice *c, clusters *all)
{
    /* What is promised by a sample is more than what comes of it. */
    const uint64_t worth_a_table = record_cost(c) + record_cost(c) / 2;
    while (all->n > 1) {
        uint32_t least = 1;
        for (uint32_t i = 2; i < all->n; i++)
            if (all->of[i].loss < all->of[least].loss) least = i;
        cluster *const a = &all->of[least - 1], *const b = &all->of[least];
        if (b->loss > worth_a_table && all->n <= TP_MAX_TABLES) break;
        a->end = b->end;
        a->total += b->total;
        a->cost += b->cost + b->loss;
        all->cost += b->loss;
        all->n--;
        memmove(b, b + 1, (all->n - least) * sizeof *b);
        if (least > 1) a->loss = loss_of(log2, c, a - 1, a);
        if (least < all->n) b->loss = loss_of(log2, c, a, b);
    }
}

/* Makes a table for each cluster. Returns the cost of everything, or UINT64_MAX if that will not be below
 * `limit`. */
static uint64_t choose_by_chunk(const tp_log2 *log2, tp_choice *c, const uint64_t *own, uint64_t limit)
{
    chunk_order order;
    clusters all;
    order_chunks(c, &order);
    start_clusters(log2, c, &order, own, &all);
    join_clusters(log2, c, &all);
    uint64_t cost = all.n * record_cost(c);
    if (all.n < 2 || all.cost + c->waste + cost >= limit) return UINT64_MAX;

    c->selector_bits = 0;
    c->tables = all.n;
    for (uint32_t t = 0; t < all.n; t++) {
        sum_chunks(c, all.of[t].first, all.of[t].end);
        tp_symbol_record_build(log2, c->sum, c->alphabet, c->candidates, c->limit, &c->record[t]);
        for (uint32_t at = all.of[t].first; at < all.of[t].end; at++) {
            const uint32_t i = order.chunk[at];
            c->table[i] = (uint8_t)t;
            c->cost[i] = tp_symbol_record_cost(log2, counts_of(c, i, 0), c->total[i], &c->record[t]);
            cost += c->cost[i];
        }
    }
    return cost;
}

/* ------------------------------------------------------------------------------- tables by the group */

/* The first class of table t of so many. */
static uint32_t first_class(const tp_choice *c, uint32_t tables, uint32_t t)
{
    return tables == 2 && t == 1 ? c->halves : t * c->classes / tables;
}

/* Of 2^bits tables, and of the selectors among them. */
static uint64_t overhead_by_group(const tp_choice *c, unsigned bits)
{
    return (record_cost(c) << bits) + TP_COST_OF_BYTES(c->groups * bits / 8) / c->step;
}

/* About what 2^bits tables, each of neighbouring classes, and their selectors cost, with all symbols. */
static uint64_t estimate_by_group(const tp_log2 *log2, tp_choice *c, unsigned bits)
{
    const uint32_t tables = 1u << bits;
    uint64_t all = overhead_by_group(c, bits);
    for (uint32_t t = 0; t < tables; t++) {
        const uint64_t total = sum_classes(c, first_class(c, tables, t), first_class(c, tables, t + 1) - 1);
        all += estimate(log2, c, c->sum, total);
    }
    return all;
}

/* Makes them; one without counts gets the table of all. Returns what they cost. */
static uint64_t choose_by_group(const tp_log2 *log2, tp_choice *c, unsigned bits)
{
    const uint32_t tables = 1u << bits;
    uint64_t all = overhead_by_group(c, bits);
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
            if (class == first_class(c, c->tables, t + 1)) t++;
            const uint32_t *counts = counts_of(c, i, class);
            c->cost[i] += tp_symbol_record_cost(log2, counts, count_all(c, counts), &c->record[t]);
        }
    }
}

uint64_t tp_choose_tables_by_group(const tp_log2 *log2, tp_choice *c)
{
    uint64_t least = UINT64_MAX;
    unsigned best = 0;
    for (unsigned bits = 0; 1u << bits <= c->classes; bits++) {
        const uint64_t cost = estimate_by_group(log2, c, bits);
        if (cost < least) least = cost, best = bits;
    }
    const uint64_t cost = choose_by_group(log2, c, best);
    c->waste = cost > least ? cost - least : 0;
    return cost;
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
        own[i] = estimate(log2, c, counts_of(c, i, 0), c->total[i]);
        least += own[i];
    }
    if (least + c->waste >= by_group) return; /* even if every chunk had its own table for nothing */
    memcpy(record, c->record, tables * sizeof *record);
    memcpy(cost, c->cost, sizeof cost);
    if (choose_by_chunk(log2, c, own, by_group) < by_group) return;
    c->tables = tables;
    c->selector_bits = bits;
    memcpy(c->record, record, tables * sizeof *record);
    memcpy(c->cost, cost, sizeof cost);
    memset(c->table, 0, sizeof c->table);
}
