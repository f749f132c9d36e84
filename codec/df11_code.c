/*
 * From counts to a Huffman code and its tables, as the reference encoder makes them (docs/dfloat11.md, "The
 * code"). Byte for byte, so every tie and every filled place matters.
 */
#include <string.h>

#include "codec/df11.h"

#define END TP_DF11_SYMBOLS /* the end symbol, behind the exponents */
#define LEAVES (TP_DF11_SYMBOLS + 1)

typedef struct node {
    uint64_t weight;
    uint16_t first; /* its leaf that was first in all merges: decides between equal weights */
    uint16_t left, right;
    uint8_t depth;
    uint32_t word;
} node;

typedef struct tree {
    node node[2 * LEAVES - 1]; /* leaves by symbol, then merged nodes */
    uint16_t live[LEAVES];
    uint32_t longest;
} tree;

static bool before(const node *a, const node *b)
{
    if (a->weight != b->weight) return a->weight < b->weight;
    /* The end symbol comes before every exponent. */
    return (a->first + 1) % (END + 1) < (b->first + 1) % (END + 1);
}

/* Takes the smallest of the live nodes out. */
static uint16_t pop(tree *t, uint32_t *live)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < *live; i++)
        if (before(&t->node[t->live[i]], &t->node[t->live[best]])) best = i;
    uint16_t taken = t->live[best];
    t->live[best] = t->live[--*live];
    return taken;
}

/* The Huffman tree of the counts above 0 and of the end symbol with count 1. */
static void tree_make(tree *t, const uint64_t counts[TP_DF11_SYMBOLS])
{
    uint32_t live = 0;
    uint16_t next = LEAVES;
    for (uint16_t s = 0; s < LEAVES; s++) {
        t->node[s] = (node){.weight = s == END ? 1 : counts[s], .first = s};
        if (t->node[s].weight) t->live[live++] = s;
    }
    while (live > 1) {
        const uint16_t a = pop(t, &live), b = pop(t, &live);
        t->node[next] = (node){.weight = t->node[a].weight + t->node[b].weight,
                               .first = t->node[a].first,
                               .left = a,
                               .right = b};
        t->live[live++] = next++;
    }
    t->longest = 0;
    for (uint16_t i = next; i-- > LEAVES;) { /* parents first: the root was made last and has depth 0 */
        const node *parent = &t->node[i];
        node *left = &t->node[parent->left], *right = &t->node[parent->right];
        left->depth = right->depth = (uint8_t)(parent->depth + 1);
        left->word = parent->word << 1;
        right->word = parent->word << 1 | 1;
        if (left->depth > t->longest) t->longest = left->depth;
    }
}

/* The first `length` bits of a symbol's code, at most all. */
static uint32_t prefix_of(const node *leaf, uint32_t length)
{
    return (uint32_t)((uint64_t)leaf->word >> (leaf->depth - length));
}

/* Its table's level: how many bytes of the code lie before the last one. */
static uint32_t level_of(const node *leaf)
{
    return (leaf->depth - 1u) / 8;
}

typedef struct row {
    uint8_t level;
    uint32_t prefix; /* 8 * level bits */
} row;

typedef struct rows {
    uint32_t count;
    row row[LEAVES];
} rows;

static uint32_t find_row(const rows *r, uint32_t level, uint32_t prefix)
{
    uint32_t i = 0;
    while (i < r->count && (r->row[i].level != level || r->row[i].prefix != prefix)) i++;
    return i;
}

/* The tables that the codes need: by level, then by prefix. */
static void rows_make(rows *r, const tree *t)
{
    r->count = 1;
    r->row[0] = (row){0};
    for (uint32_t s = 0; s < TP_DF11_SYMBOLS; s++) {
        const node *leaf = &t->node[s];
        if (!leaf->weight) continue;
        const row made = {.level = (uint8_t)level_of(leaf), .prefix = prefix_of(leaf, 8 * level_of(leaf))};
        if (find_row(r, made.level, made.prefix) < r->count) continue;
        uint32_t at = r->count++;
        for (; at && (r->row[at - 1].level > made.level ||
                      (r->row[at - 1].level == made.level && r->row[at - 1].prefix > made.prefix));
             at--)
            r->row[at] = r->row[at - 1];
        r->row[at] = made;
    }
}

/* Makes the longest code fit, as the reference does: ever more of the rarest exponents are taken
 * for single ones. */
static void limit_length(tree *t, const uint64_t counts[TP_DF11_SYMBOLS], tp_df11_departure *departure)
{
    uint16_t order[TP_DF11_SYMBOLS];
    uint32_t present = 0;
    for (uint16_t s = 0; s < TP_DF11_SYMBOLS; s++) {
        if (!counts[s]) continue;
        uint32_t at = present++;
        for (; at && counts[order[at - 1]] > counts[s]; at--) order[at] = order[at - 1];
        order[at] = s;
    }
    uint64_t changed[TP_DF11_SYMBOLS];
    memcpy(changed, counts, sizeof changed);
    for (uint32_t k = 2; t->longest > TP_DF11_MAX_LENGTH; k++) {
        /* More than 32 bits take more than 32 exponents of different counts, so there are more than k: with
         * k counts of 1 and the others ascending as far as they must, the longest code fits long before the
         * end. */
        for (uint32_t i = 0; i < k && i < present; i++) changed[order[i]] = 1;
        *departure = k < present && counts[order[k - 1]] == counts[order[k]] && counts[order[k]] > 1
                         ? TP_DF11_TIE
                         : TP_DF11_AS_REFERENCE;
        tree_make(t, changed);
    }
}

/*
 * A code that needs no more tables than there are pointers: rare exponents are counted as more than they
 * are, as little as it takes. It ends: equal counts give codes of 8 bits, and of 9 for the end symbol and a
 * neighbour.
 */
static void limit_tables(tree *t, rows *r, const uint64_t counts[TP_DF11_SYMBOLS])
{
    uint64_t changed[TP_DF11_SYMBOLS];
    for (uint64_t least = 2; r->count > TP_DF11_MAX_ROWS - 1 || t->longest > TP_DF11_MAX_LENGTH;
         least += least / 8 + 1) {
        for (uint32_t s = 0; s < TP_DF11_SYMBOLS; s++)
            changed[s] = counts[s] && counts[s] < least ? least : counts[s];
        tree_make(t, changed);
        if (t->longest <= TP_DF11_MAX_LENGTH) rows_make(r, t);
    }
}

/* How many further tables an entry of a table at this level can lead through: of genuine pointers only. */
static uint32_t height_of(const rows *r, uint32_t index)
{
    uint32_t height = 0;
    for (uint32_t i = 1; i < r->count; i++) {
        const row *below = &r->row[i];
        if (below->level > r->row[index].level &&
            below->prefix >> 8 * (below->level - r->row[index].level) == r->row[index].prefix) {
            const uint32_t levels = (uint32_t)below->level - r->row[index].level;
            if (levels > height) height = levels;
        }
    }
    return height;
}

static void luts_make(tp_df11_code *code, const tree *t, const rows *r)
{
    uint32_t some = 0; /* an exponent to fill with where the reference has none */
    while (!t->node[some].weight) some++;
    bool any = false;
    uint8_t last = 0; /* the reference never resets what it fills with, not even between tables */
    for (uint32_t i = 0; i < r->count; i++) {
        const row *own = &r->row[i];
        const uint32_t level = own->level;
        uint8_t value[256];
        bool set[256] = {false};
        for (uint32_t s = 0; s < TP_DF11_SYMBOLS; s++) {
            const node *leaf = &t->node[s];
            if (!leaf->weight || leaf->depth <= 8 * level || prefix_of(leaf, 8 * level) != own->prefix)
                continue;
            const bool ends = level_of(leaf) == level;
            const uint32_t bits = ends ? leaf->depth : 8 * (level + 1),
                           key = prefix_of(leaf, bits) << (8 * (level + 1) - bits) & 0xff;
            value[key] = (uint8_t)(ends ? s : 256 - find_row(r, level + 1, prefix_of(leaf, bits)));
            set[key] = true;
        }
        /* Where no exponent's code leads lies the end symbol's. */
        const node *end = &t->node[END];
        uint32_t end_from = 256, end_to = 256;
        if (level_of(end) == level && prefix_of(end, 8 * level) == own->prefix) {
            end_from = prefix_of(end, end->depth) << (8 * (level + 1) - end->depth) & 0xff;
            end_to = end_from + (1u << (8 * (level + 1) - end->depth));
        }
        for (uint32_t v = 0; v < 256; v++) {
            if (set[v]) {
                last = value[v];
                any = true;
            }
            code->luts[i * 256 + v] = last;
            if (v < end_from || v >= end_to) continue;
            if (!any) {
                code->luts[i * 256 + v] = (uint8_t)some;
                code->departure = TP_DF11_UNFILLED;
            } else if (last >= TP_DF11_SYMBOLS) {
                /* A kernel that decodes behind the stream's end may get here. It looks into at most four
                 * tables, and finds no way on from a pointer in the fourth. */
                const uint32_t to = 256u - last;
                if (to == i || level + 1 + 1 + height_of(r, to) > 4) {
                    code->luts[i * 256 + v] = (uint8_t)some;
                    code->departure = TP_DF11_ENDLESS;
                }
            }
        }
    }
    memcpy(code->luts + r->count * 256, code->length, 256);
    code->rows = r->count + 1;
}

tp_status tp_df11_code_make(const uint64_t counts[256], tp_df11_code *code, tp_error *error)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < 256; s++) {
        if (s >= TP_DF11_SYMBOLS && counts[s])
            return tp_error_set(error, TP_UNSUPPORTED,
                                "an element has the exponent %u: DFloat11 codes those below %u only (no "
                                "infinity, no NaN, nothing of 2^113 or more)",
                                s, TP_DF11_SYMBOLS);
        if (counts[s] > UINT64_MAX / 512) return tp_error_set(error, TP_LIMIT, "too many elements");
        sum += counts[s];
    }
    if (!sum) return tp_error_set(error, TP_INVALID_ARGUMENT, "a DFloat11 unit has at least one element");
    memset(code, 0, sizeof *code);
    tree t;
    rows r;
    tree_make(&t, counts);
    if (t.longest > TP_DF11_MAX_LENGTH) limit_length(&t, counts, &code->departure);
    rows_make(&r, &t);
    if (r.count > TP_DF11_MAX_ROWS - 1) {
        limit_tables(&t, &r, counts);
        code->departure = TP_DF11_TABLES;
    }
    for (uint32_t s = 0; s < TP_DF11_SYMBOLS; s++) {
        if (!t.node[s].weight) continue;
        code->length[s] = t.node[s].depth;
        code->word[s] = t.node[s].word;
    }
    code->end_length = t.node[END].depth;
    code->end_word = t.node[END].word;
    const tp_df11_departure chosen = code->departure;
    luts_make(code, &t, &r);
    if (chosen) code->departure = chosen;
    return TP_OK;
}
