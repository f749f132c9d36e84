/*
 * The tables of a DFloat11 unit: from the rows of the format, which may hold anything, to tables in which
 * every entry is a code, leads on to the next table, or is marked as neither.
 */
#include <string.h>

#include "codec/df11.h"

#define LEVELS 4 /* tables that a code can lead through: 32 bits */

/* Marks the entries of a table at `level` that stand for codes: every code has all the entries that begin
 * with its last bits. What is left over is no code's (docs/dfloat11.md, "Tables"). */
static void mark_codes(const uint8_t *row, const uint8_t *lengths, uint32_t level, uint16_t *entry,
                       bool *found)
{
    for (uint32_t v = 0; v < 256;) {
        const uint8_t symbol = row[v];
        const uint32_t length = lengths[symbol];
        uint32_t same = 1;
        if (symbol < TP_DF11_SYMBOLS && length > 8 * level && length <= 8 * (level + 1)) {
            const uint32_t entries = 1u << (8 * (level + 1) - length);
            if (v % entries == 0) {
                while (same < entries && row[v + same] == symbol) same++;
                if (same == entries) {
                    for (uint32_t i = 0; i < entries; i++) entry[v + i] = (uint16_t)(length << 8 | symbol);
                    found[symbol] = true;
                }
            }
        }
        v += same;
    }
}

/* The code that the first bits of x are, by the rows alone; a pointer in the last level was never marked.
 */
static uint16_t look_up(const tp_df11_table *table, uint32_t x)
{
    uint16_t e = table->entry[0][x >> 24];
    for (unsigned shift = 16; e & TP_DF11_POINTER; shift -= 8)
        e = table->entry[e & 0xff][x >> shift & 0xff];
    return e;
}

static void several_make(tp_df11_table *table)
{
    enum { BITS = TP_DF11_LOOKUP_BITS, MASK = (1 << BITS) - 1 };
    uint16_t single[1 << BITS]; /* 0 if it is longer, or no code */
    for (uint32_t i = 0; i <= MASK; i++) {
        const uint16_t e = look_up(table, i << (32 - BITS));
        single[i] = e != TP_DF11_NOTHING && e >> 8 <= BITS ? e : 0;
    }
    for (uint32_t i = 0; i <= MASK; i++) {
        uint64_t symbols = 0, ends = 0, count = 0;
        unsigned bits = 0;
        while (count < 5 && bits < BITS) {
            const uint16_t e = single[i << bits & MASK];
            const unsigned length = e >> 8;
            if (!length || bits + length > BITS)
                break; /* bits beyond the 11 were taken for zeros: not used */
            symbols |= (uint64_t)(e & 0xff) << (8 * count++);
            ends = ends << length | 1;
            bits += length;
        }
        table->several[i] = symbols | ends << 40 | count << 56 | (uint64_t)bits << 60;
    }
}

tp_status tp_df11_table_make(const uint8_t *luts, uint64_t luts_size, tp_df11_table *table, tp_error *error)
{
    if (luts_size % 256 || luts_size < 2 * 256 || luts_size > TP_DF11_MAX_ROWS * 256)
        return tp_error_set(error, TP_CORRUPT, "luts: %llu bytes are not 2 to %d rows of 256",
                            (unsigned long long)luts_size, TP_DF11_MAX_ROWS);
    const uint32_t rows = (uint32_t)(luts_size / 256) - 1;
    const uint8_t *lengths = luts + rows * 256;
    for (uint32_t s = 0; s < 256; s++)
        if (lengths[s] > TP_DF11_MAX_LENGTH || (s >= TP_DF11_SYMBOLS && lengths[s]))
            return tp_error_set(error, TP_CORRUPT, "luts: exponent %u has a code of %u bits", s,
                                lengths[s]);
    for (uint32_t r = 0; r < TP_DF11_MAX_ROWS - 1; r++)
        for (uint32_t v = 0; v < 256; v++) table->entry[r][v] = TP_DF11_NOTHING;

    /* From the first table to those it points to, and so on. The first pointer to a table counts: the
     * reference repeats pointers where no code leads, also such as point to their own table, but only after
     * the real one. */
    uint8_t queue[TP_DF11_MAX_ROWS] = {0}, level[TP_DF11_MAX_ROWS] = {0};
    bool reached[TP_DF11_MAX_ROWS] = {true}, found[256] = {false};
    uint32_t count = 1;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t r = queue[i];
        mark_codes(luts + r * 256, lengths, level[r], table->entry[r], found);
        for (uint32_t v = 0; v < 256; v++) {
            const uint8_t value = luts[r * 256 + v];
            if (value < TP_DF11_SYMBOLS) continue;
            const uint32_t to = 256u - value;
            if (to >= rows)
                return tp_error_set(error, TP_CORRUPT, "luts: an entry points to table %u of %u", to, rows);
            if (reached[to] || level[r] + 1 == LEVELS) continue;
            reached[to] = true;
            level[to] = (uint8_t)(level[r] + 1);
            queue[count++] = (uint8_t)to;
            table->entry[r][v] = (uint16_t)(TP_DF11_POINTER | to);
        }
    }
    if (count < rows)
        return tp_error_set(error, TP_CORRUPT, "luts: %u of %u tables are out of reach", rows - count,
                            rows);
    bool any = false;
    for (uint32_t s = 0; s < TP_DF11_SYMBOLS; s++) {
        if (lengths[s] && !found[s])
            return tp_error_set(error, TP_CORRUPT, "luts: no code of %u bits leads to exponent %u",
                                lengths[s], s);
        any |= found[s];
    }
    if (!any) return tp_error_set(error, TP_CORRUPT, "luts: no codes");
    several_make(table);
    return TP_OK;
}
