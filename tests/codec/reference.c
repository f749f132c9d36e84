#include "reference.h"

#include <stdlib.h>
#include <string.h>

static uint32_t ones(unsigned bits)
{
    return bits >= 32 ? UINT32_MAX : (1u << bits) - 1;
}
static uint32_t rotl32(uint32_t v, unsigned k)
{
    return k % 32 ? v << k % 32 | v >> (32 - k % 32) : v;
}
static uint32_t rotr32(uint32_t v, unsigned k)
{
    return rotl32(v, 32 - k % 32);
}
static uint32_t u16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}
static uint32_t u32(const uint8_t *p)
{
    return u16(p) | u16(p + 2) << 16;
}
static void put(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> 8 * i);
}
static uint32_t groups_of(uint32_t n)
{
    return n / 1024 + (n % 1024 != 0);
}

/* Section 6: u is the top part rotated left by one within T bits, for class 7 the top part itself. */
static uint32_t u_of_top(const ref_shape *s, uint32_t top)
{
    return s->rotated ? ((top << 1) | top >> (s->T - 1)) & ones(s->T) : top;
}
static uint32_t top_of_u(const ref_shape *s, uint32_t u)
{
    return s->rotated ? u >> 1 | (u & 1) << (s->T - 1) : u;
}
uint32_t ref_symbol(const ref_shape *s, uint32_t top)
{
    return u_of_top(s, top) >> s->R;
}
uint32_t ref_raw(const ref_shape *s, uint32_t top)
{
    return u_of_top(s, top) & ones(s->R);
}
uint32_t ref_top(const ref_shape *s, uint32_t symbol, uint32_t raw)
{
    return top_of_u(s, symbol << s->R | raw);
}

/* Section 7.2: bits a .. a + len - 1 of u where they lie in the top part, for all elements of a lane. */
static uint32_t field(const ref_shape *s, unsigned a, unsigned len)
{
    uint32_t mask = 0;
    for (unsigned bit = a; bit < a + len; bit++) {
        const unsigned place = !s->rotated ? bit : bit == 0 ? s->T - 1 : bit - 1;
        for (unsigned e = 0; e < 32 / s->T; e++) mask |= 1u << (place + s->T * e);
    }
    return mask;
}

/* Element i of a group: row i / (32 E), lane (i / E) mod 32, position i mod E. */
static unsigned element_at(const ref_shape *s, unsigned row, unsigned lane, unsigned position)
{
    const unsigned E = 32 / s->T;
    return row * 32 * E + lane * E + position;
}

static void rows_to_words(const ref_shape *s, const uint32_t *row, uint32_t *word)
{
    const unsigned J = s->T / s->R, S = s->T - J * s->R;
    for (unsigned k = 0; k < s->R; k++) {
        word[k] = 0;
        for (unsigned j = 0; j < J; j++) word[k] |= rotl32(row[k * J + j] & field(s, 0, s->R), s->R * j);
    }
    for (unsigned j = s->R * J; j < s->T; j++)
        for (unsigned a = 0; a < s->R; a++) {
            const unsigned p = (j - s->R * J) * s->R + a;
            word[p / S] |= rotl32(row[j] & field(s, a, 1), J * s->R + p % S - a);
        }
}

static void words_to_rows(const ref_shape *s, const uint32_t *word, uint32_t *row)
{
    const unsigned J = s->T / s->R, S = s->T - J * s->R;
    for (unsigned j = 0; j < s->R * J; j++)
        row[j] = rotr32(word[j / J], s->R * (j % J)) & field(s, 0, s->R);
    for (unsigned j = s->R * J; j < s->T; j++) {
        row[j] = 0;
        for (unsigned a = 0; a < s->R; a++) {
            const unsigned p = (j - s->R * J) * s->R + a;
            row[j] |= rotr32(word[p / S], J * s->R + p % S - a) & field(s, a, 1);
        }
    }
}

size_t ref_bound(const ref_shape *s, uint32_t n)
{
    const size_t padded = (size_t)groups_of(n) * 1024;
    return 128 + padded * (2 + s->T / 8 + s->low + 4) + padded / 1024 + 256;
}

/* symbol t in decoding order (row, sub-step, lane) is of element (c = 2: of elements ... and ... + 1) */
static unsigned first_element(const ref_shape *s, uint32_t t, uint32_t *group)
{
    const unsigned steps = 32 / s->T / s->c, per_group = 1024 / s->c, in_group = t % per_group;
    const unsigned row = in_group / (32 * steps), b = in_group / 32 % steps, lane = in_group % 32;
    *group = t / per_group;
    return element_at(s, row, lane, b * s->c);
}

static unsigned most_frequent(const ref_table *table)
{
    unsigned best = 0;
    for (unsigned i = 1; i < table->entries; i++)
        if (table->F[i] > table->F[best]) best = i;
    return best;
}

/* Bytes of the packed selectors: G of so many bits, in whole u32. */
static size_t selector_bytes(uint32_t G, unsigned bits)
{
    return ((size_t)G * bits + 31) / 32 * 4;
}

size_t ref_encode(const ref_shape *s, const ref_tables *tables, const uint8_t *src, uint32_t n,
                  bool with_low, uint8_t *dst, uint32_t *nw, uint32_t *nx)
{
    const uint32_t G = groups_of(n), symbols = G * 1024 / s->c;
    const unsigned element = s->T / 8 + s->low, E = 32 / s->T;
    uint32_t *top = calloc((size_t)G * 1024 + 1, sizeof *top);
    uint16_t *entry = malloc(((size_t)symbols + 1) * sizeof *entry),
             *words = malloc(2 * ((size_t)symbols + 1));
    uint32_t *exception = malloc(4 * ((size_t)n + 1));
    if (!top || !entry || !words || !exception) abort();

    for (uint32_t i = 0; i < n; i++)
        for (unsigned k = 0; k < s->T / 8; k++)
            top[i] |= (uint32_t)src[(size_t)i * element + s->low + k] << 8 * k;

    *nx = 0;
    for (uint32_t p = 0; p < symbols; p++) { /* p: the symbol's place in element order */
        const ref_table *table = &tables->tables[tables->bits ? tables->selector[p * s->c / 1024] : 0];
        const unsigned filler = most_frequent(table);
        entry[p] = (uint16_t)filler;
        if (p * s->c >= n) continue;
        uint32_t symbol = ref_symbol(s, top[p * s->c]);
        if (s->c == 2)
            symbol |= (p * 2 + 1 < n ? ref_symbol(s, top[p * 2 + 1]) : table->symbol[filler] >> 8) << 8;
        unsigned found = 0;
        while (found < table->entries && table->symbol[found] != symbol) found++;
        if (found < table->entries)
            entry[p] = (uint16_t)found;
        else
            exception[(*nx)++] = p | symbol << (s->c == 2 ? 16 : 18);
    }

    uint32_t x[32];
    for (unsigned lane = 0; lane < 32; lane++) x[lane] = 1u << s->K;
    uint32_t at = symbols; /* words are made last one first */
    for (uint32_t t = symbols; t-- > 0;) {
        uint32_t group;
        const uint32_t e = first_element(s, t, &group), i = entry[(group * 1024 + e) / s->c];
        const ref_table *table = &tables->tables[tables->bits ? tables->selector[group] : 0];
        uint32_t *state = &x[t % 32], start = 0;
        for (unsigned k = 0; k < i; k++) start += table->F[k];
        if (*state >= (uint32_t)table->F[i] << 16) {
            words[--at] = (uint16_t)*state;
            *state >>= 16;
        }
        *state = (*state / table->F[i] << s->K) + start + *state % table->F[i];
    }
    *nw = symbols - at;

    uint8_t *out = dst;
    for (unsigned lane = 0; lane < 32; lane++, out += 4) put(out, x[lane], 4);
    for (uint32_t g = 0; g < G && s->R; g++, out += (size_t)s->R * 128)
        for (unsigned lane = 0; lane < 32; lane++) {
            uint32_t row[32], word[16];
            for (unsigned j = 0; j < s->T; j++) {
                row[j] = 0;
                for (unsigned e = 0; e < E; e++)
                    row[j] |= top[g * 1024 + element_at(s, j, lane, e)] << s->T * e;
            }
            rows_to_words(s, row, word);
            for (unsigned k = 0; k < s->R; k++) put(out + k * 128 + lane * 4, word[k], 4);
        }
    if (with_low && s->low) {
        const unsigned width = s->low == 1 ? 1 : 2;
        memset(out, 0, (size_t)G * 1024 * s->low);
        for (unsigned plane = 0; plane < s->low / width; plane++, out += (size_t)G * 1024 * width)
            for (uint32_t i = 0; i < n; i++)
                memcpy(out + (size_t)i * width, src + (size_t)i * element + plane * width, width);
    }
    for (uint32_t i = 0; i < *nw; i++, out += 2) put(out, words[at + i], 2);
    while ((out - dst) % 4) *out++ = 0;
    memset(out, 0, selector_bytes(G, tables->bits));
    for (uint32_t g = 0; g < G && tables->bits; g++)
        for (unsigned b = 0; b < tables->bits; b++)
            if (tables->selector[g] >> b & 1)
                out[(g * tables->bits + b) / 8] |= (uint8_t)(1 << (g * tables->bits + b) % 8);
    out += selector_bytes(G, tables->bits);
    for (uint32_t i = 0; i < *nx; i++, out += 4) put(out, exception[i], 4);
    while ((out - dst) % 128) *out++ = 0;

    free(top);
    free(entry);
    free(words);
    free(exception);
    return (size_t)(out - dst);
}

bool ref_decode(const ref_shape *s, const ref_tables *tables, const uint8_t *payload, uint32_t nw,
                uint32_t nx, uint32_t n, bool with_low, const uint8_t *low, uint8_t *dst)
{
    const uint32_t G = groups_of(n), symbols = G * 1024 / s->c, L = 1u << s->K;
    const unsigned element = s->T / 8 + s->low, E = 32 / s->T;
    const uint8_t *rows = payload + 128, *words = rows + (size_t)G * s->R * 128;
    if (with_low) {
        low = words;
        words += (size_t)G * 1024 * s->low;
    }
    const uint8_t *selectors = words + (2 * (size_t)nw + 3) / 4 * 4;
    const uint8_t *exceptions = selectors + selector_bytes(G, tables->bits);
    uint32_t *symbol = calloc(symbols ? symbols : 1, sizeof *symbol); /* in element order */
    if (!symbol) abort();

    uint32_t x[32], used = 0;
    bool good = true;
    for (unsigned lane = 0; lane < 32; lane++) {
        x[lane] = u32(payload + 4 * lane);
        good &= x[lane] >= L && x[lane] < L << 16;
    }
    for (uint32_t t = 0; t < symbols && good; t++) {
        uint32_t *state = &x[t % 32], slot = *state % L, start = 0, group;
        unsigned i = 0, selector = 0;
        const uint32_t e = first_element(s, t, &group);
        for (unsigned b = 0; b < tables->bits; b++) {
            const uint32_t at = group * tables->bits + b;
            selector |= (selectors[at / 8] >> at % 8 & 1u) << b;
        }
        const ref_table *table = &tables->tables[selector];
        while (slot >= start + table->F[i]) start += table->F[i++];
        *state = table->F[i] * (*state >> s->K) + slot - start;
        if (*state < L) {
            if (used == nw)
                good = false;
            else
                *state = *state << 16 | u16(words + 2 * (size_t)used++);
        }
        symbol[(group * 1024 + e) / s->c] = table->symbol[i];
    }
    good &= used == nw;
    for (unsigned lane = 0; lane < 32; lane++) good &= x[lane] == L;

    for (uint32_t i = 0; i < nx && good; i++) {
        const unsigned bits = s->c == 2 ? 16 : 18;
        const uint32_t entry = u32(exceptions + 4 * (size_t)i);
        symbol[entry & ones(bits)] = entry >> bits;
    }
    for (uint32_t g = 0; g < G && good; g++)
        for (unsigned lane = 0; lane < 32; lane++) {
            uint32_t row[32] = {0}, word[16];
            for (unsigned k = 0; k < s->R; k++)
                word[k] = u32(rows + ((size_t)g * s->R + k) * 128 + lane * 4);
            if (s->R) words_to_rows(s, word, row);
            for (unsigned j = 0; j < s->T; j++)
                for (unsigned e = 0; e < E; e++) {
                    const uint32_t i = g * 1024 + element_at(s, j, lane, e);
                    if (i >= n) continue;
                    const uint32_t its = s->c == 2 ? symbol[i / 2] >> 8 * (i % 2) & 255 : symbol[i];
                    const uint32_t top = ref_top(s, its, 0) | (row[j] >> s->T * e & ones(s->T));
                    uint8_t *out = dst + (size_t)i * element;
                    const unsigned width = s->low == 1 ? 1 : 2;
                    for (unsigned k = 0; k < s->low; k++)
                        out[k] = low[((size_t)(k / width) * G * 1024 + i) * width + k % width];
                    put(out + s->low, top, s->T / 8);
                }
        }
    free(symbol);
    return good;
}
