/*
 * Decoding of a DFloat11 unit, block by block (codec/df11.h).
 *
 * A block is cut into stretches of 128 windows, "chains", whose first bits the gaps tell. They are decoded
 * in turn, a few look-ups at a time, so that the processor works on several at once. The exponents go to a
 * buffer; when the block's counts, ends and gaps are known to agree, they are joined with sign and
 * mantissa.
 */
#include <string.h>

#include "codec/bytes.h"
#include "codec/df11.h"

#define CHAIN_WINDOWS (TP_DF11_BLOCK_WINDOWS / TP_DF11_CHAINS)
#define LOOKUPS 5 /* a turn: 55 of the 57 bits that a load gives */
#define TURN (LOOKUPS * TP_DF11_LOOKUP_BITS + TP_DF11_MAX_LENGTH) /* bits that it passes at most */

typedef uint16_t __attribute__((aligned(1), may_alias)) any16; /* loops over these are vectorised */

static uint64_t position(const tp_df11_unit *unit, uint32_t block)
{
    /* The reference leaves the last entry out where no code starts in the last block. */
    if (4 * (uint64_t)block >= unit->positions_size) return unit->elements;
    return tp_load32(unit->output_positions + 4 * (size_t)block);
}

uint64_t tp_df11_position(const tp_df11_decoder *decoder, uint32_t block)
{
    return position(&decoder->unit, block);
}

uint32_t tp_df11_block_of(const tp_df11_decoder *decoder, uint64_t element)
{
    uint32_t from = 0, to = decoder->blocks; /* position(from) <= element < position(to) */
    while (to - from > 1) {
        const uint32_t middle = from + (to - from) / 2;
        if (tp_df11_position(decoder, middle) <= element)
            from = middle;
        else
            to = middle;
    }
    return from;
}

size_t tp_df11_tensors(const tp_df11_decoder *decoder)
{
    return (size_t)(decoder->unit.split_size / 8) + 1;
}

uint64_t tp_df11_tensor_start(const tp_df11_decoder *decoder, size_t tensor)
{
    if (!tensor) return 0;
    if (tensor >= tp_df11_tensors(decoder)) return decoder->unit.elements;
    return tp_load64(decoder->unit.split_positions + 8 * (tensor - 1));
}

tp_status tp_df11_open(const tp_df11_unit *unit, tp_df11_decoder *decoder, tp_error *error)
{
    decoder->unit = *unit;
    if (!unit->elements || unit->elements > TP_DF11_MAX_ELEMENTS)
        return tp_error_set(error, TP_CORRUPT, "sign_mantissa: %llu elements",
                            (unsigned long long)unit->elements);
    if (!unit->encoded_size || unit->encoded_size > TP_DF11_MAX_ELEMENTS)
        return tp_error_set(error, TP_CORRUPT, "encoded_exponent: %llu bytes",
                            (unsigned long long)unit->encoded_size);
    decoder->windows = (unit->encoded_size + 7) / 8;
    decoder->blocks = (uint32_t)((unit->encoded_size + TP_DF11_BLOCK - 1) / TP_DF11_BLOCK);
    if (unit->gaps_size != (uint64_t)decoder->blocks * TP_DF11_BLOCK_GAPS)
        return tp_error_set(error, TP_CORRUPT, "gaps: %llu bytes, not %d for each of %u blocks",
                            (unsigned long long)unit->gaps_size, TP_DF11_BLOCK_GAPS, decoder->blocks);
    if (unit->positions_size != 4 * ((uint64_t)decoder->blocks + 1) &&
        unit->positions_size != 4 * (uint64_t)decoder->blocks)
        return tp_error_set(error, TP_CORRUPT, "output_positions: %llu bytes for %u blocks",
                            (unsigned long long)unit->positions_size, decoder->blocks);
    if (position(unit, 0) != 0)
        return tp_error_set(error, TP_CORRUPT, "output_positions: the first is not 0");
    for (uint32_t g = 0; g < decoder->blocks; g++) {
        if (position(unit, g + 1) < position(unit, g))
            return tp_error_set(error, TP_CORRUPT, "output_positions: number %u is below the one before",
                                g + 1);
        /* Blocks without a code have no place but at the end, where a last code may reach into one. */
        if (position(unit, g) < unit->elements) decoder->last = g;
    }
    if (position(unit, decoder->blocks) != unit->elements)
        return tp_error_set(error, TP_CORRUPT,
                            "output_positions: the last is not the number of elements, %llu",
                            (unsigned long long)unit->elements);
    if (decoder->windows - (uint64_t)decoder->last * TP_DF11_BLOCK_WINDOWS > TP_DF11_BLOCK_WINDOWS + 1)
        return tp_error_set(error, TP_CORRUPT, "output_positions: no code starts after block %u of %u",
                            decoder->last, decoder->blocks);
    if (unit->split_size % 8)
        return tp_error_set(error, TP_CORRUPT, "split_positions: %llu bytes",
                            (unsigned long long)unit->split_size);
    uint64_t before = 0;
    for (uint64_t i = 0; i < unit->split_size; i += 8) {
        const uint64_t split = tp_load64(unit->split_positions + i);
        if (split < before || split > unit->elements)
            return tp_error_set(error, TP_CORRUPT, "split_positions: number %llu is out of order",
                                (unsigned long long)(i / 8));
        before = split;
    }
    return tp_df11_table_make(unit->luts, unit->luts_size, &decoder->table, error);
}

/* 5 bits each, the first on top; `groups` of 8. */
static void unpack_gaps(const uint8_t *gaps, size_t groups, uint8_t *windows)
{
    for (size_t g = 0; g < groups; g++) {
        uint64_t packed = 0;
        for (size_t i = 0; i < 5; i++) packed = packed << 8 | gaps[5 * g + i];
        for (size_t i = 0; i < 8; i++) windows[8 * g + i] = (uint8_t)(packed >> (35 - 5 * i) & 31);
    }
}

/* Bits are numbered from the block's first. */
typedef struct chain {
    uint64_t at, end; /* the next code; where the codes must end */
    uint8_t *next;    /* exponent to be written */
} chain;

/* What a block is decoded with. stream has 8 readable bytes after its last code's first byte. */
typedef struct block {
    const tp_df11_table *table;
    const uint8_t *stream;
    uint8_t *found; /* by window: the bit at which its first code starts */
} block;

static inline uint64_t bits_at(const uint8_t *stream, uint64_t at)
{
    return __builtin_bswap64(tp_load64(stream + at / 8)) << at % 8; /* 57 or more */
}

/* One code of any length; false if there is none. */
static bool step(const block *b, chain *c)
{
    uint64_t x = bits_at(b->stream, c->at);
    uint16_t e = b->table->entry[0][x >> 56];
    while (e & TP_DF11_POINTER) { /* at most three times: no table of the fourth level has pointers */
        x <<= 8;
        e = b->table->entry[e & 0xff][x >> 56];
    }
    if (e == TP_DF11_NOTHING) return false;
    const uint64_t to = c->at + (e >> 8);
    b->found[c->at / 64 + 1] = to % 64; /* if it is not there yet, a later one is, and overwrites this */
    *c->next++ = (uint8_t)e;
    c->at = to;
    return true;
}

/* LOOKUPS times up to five codes; false if one is no code. */
static inline __attribute__((always_inline)) bool turn(const block *b, chain *c)
{
    const uint64_t at = c->at;
    uint64_t x = bits_at(b->stream, at), e = 0;
    uint64_t starts = 1; /* a bit for every bit passed, set where a code starts, and one for the next */
    uint8_t *next = c->next;
    unsigned bits = 0;
    for (int i = 0; i < LOOKUPS; i++) {
        e = b->table->several[x >> (64 - TP_DF11_LOOKUP_BITS)];
        const unsigned taken = (unsigned)(e >> 60);
        tp_store64(next, e); /* the exponents, and three bytes to be overwritten */
        next += e >> 56 & 7;
        x <<= taken;
        bits += taken;
        starts = starts << taken | (e >> 40 & ((1 << TP_DF11_LOOKUP_BITS) - 1));
    }
    /* The first start after this window, if it is among them; else zeros, and what is stored is
     * overwritten. */
    starts = starts << (63 - bits) << (~at & 63) << 1;
    b->found[at / 64 + 1] = (uint8_t)__builtin_clzll(starts | 1);
    c->next = next;
    c->at = at + bits;
    /* A longer code, or none, stops the look-ups without a branch: the others after it find it again. */
    return e >> 60 || step(b, c);
}

/* Decodes `count` chains as far as whole turns fit before their ends, all of them in turn. */
static inline __attribute__((always_inline)) bool run(const block *b, chain *chains, unsigned count)
{
    for (;;) {
        bool fit = true;
        for (unsigned i = 0; i < count; i++) fit &= chains[i].at + TURN <= chains[i].end;
        if (!fit) return true;
        bool good = true;
        for (unsigned i = 0; i < count; i++) good &= turn(b, &chains[i]);
        if (!good) return false;
    }
}

static void join(const uint8_t *restrict exponents, const uint8_t *restrict sign_mantissa, size_t n,
                 any16 *restrict dst)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint16_t)((sign_mantissa[i] & 0x80) << 8 | exponents[i] << 7 | (sign_mantissa[i] & 0x7f));
}

/*
 * The gaps of block `last`, and of what follows it, where the codes end at bit `end`: there the window
 * found last may have no start, which the reference notes down if it is in the middle of a byte.
 */
static bool last_gaps_agree(const tp_df11_decoder *d, tp_df11_workspace *w, uint64_t end)
{
    const size_t at = (size_t)(end / 64);
    if (w->found[at] == end % 64 && w->gaps[at] == 0) w->found[at] = 0;
    memset(w->found + at + 1, 0, sizeof w->found - at - 1);
    if (memcmp(w->found, w->gaps, TP_DF11_BLOCK_WINDOWS + 8) != 0) return false;
    for (uint64_t i = ((uint64_t)d->last + 1) * TP_DF11_BLOCK_GAPS + 5; i < d->unit.gaps_size; i++)
        if (d->unit.gaps[i]) return false;
    return true;
}

static tp_status damaged(uint32_t number, const char *reason, tp_error *error)
{
    return tp_error_set(error, TP_CORRUPT, "block %u of a DFloat11 unit: %s", number, reason);
}

static tp_status decode_block(const tp_df11_decoder *d, uint32_t number, any16 *dst, tp_df11_workspace *w,
                              tp_error *error)
{
    const tp_df11_unit *unit = &d->unit;
    const bool is_last = number == d->last;
    const uint64_t first = position(unit, number), elements = position(unit, number + 1) - first;
    const size_t start = (size_t)number * TP_DF11_BLOCK, rest = (size_t)unit->encoded_size - start;
    /* Of the last block, also the one window into which its last code may reach. */
    const uint64_t windows =
        is_last ? d->windows - (uint64_t)number * TP_DF11_BLOCK_WINDOWS : TP_DF11_BLOCK_WINDOWS;

    memset(w->gaps + TP_DF11_BLOCK_WINDOWS, 0, sizeof w->gaps - TP_DF11_BLOCK_WINDOWS);
    unpack_gaps(unit->gaps + (size_t)number * TP_DF11_BLOCK_GAPS,
                TP_DF11_BLOCK_WINDOWS / 8 + (number + 1 < d->blocks), w->gaps);
    if (!number && w->gaps[0])
        return damaged(number, "its first code does not start at its first bit", error);

    block b = {.table = &d->table, .stream = unit->encoded_exponent + start, .found = w->found};
    if (rest < TP_DF11_BLOCK + 16) { /* loads reach up to 8 bytes behind the last code's first */
        memcpy(w->stream, b.stream, rest);
        memset(w->stream + rest, 0, sizeof w->stream - rest);
        b.stream = w->stream;
    }

    /* The last chain of all has two windows at least: so a code starts in the first window of every chain.
     */
    unsigned count = (unsigned)((windows + CHAIN_WINDOWS - 2) / CHAIN_WINDOWS);
    if (count < 1) count = 1;
    if (count > TP_DF11_CHAINS) count = TP_DF11_CHAINS;
    chain c[TP_DF11_CHAINS];
    for (unsigned i = 0; i < count; i++) {
        const unsigned window = i * CHAIN_WINDOWS, following = window + CHAIN_WINDOWS;
        c[i] = (chain){.at = 64 * window + w->gaps[window],
                       .end = 64 * following + w->gaps[following],
                       .next = w->exponents[i]};
        w->found[window] = w->gaps[window];
    }
    /* Where the codes of the last chain of all end is not known, but it is in the last byte. */
    if (is_last) c[count - 1].end = 8 * (uint64_t)rest - 8;

    const char *const no_code = "its bits are no code";
    if (!(count == TP_DF11_CHAINS ? run(&b, c, TP_DF11_CHAINS) : run(&b, c, count)))
        return damaged(number, no_code, error);
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        while (c[i].at + TURN <= c[i].end)
            if (!turn(&b, &c[i])) return damaged(number, no_code, error);
        if (is_last && i == count - 1) {
            const uint64_t left = sum <= elements ? elements - sum : 0;
            while ((uint64_t)(c[i].next - w->exponents[i]) < left)
                if (c[i].at >= 8 * (uint64_t)rest || !step(&b, &c[i]))
                    return damaged(number, "its bits end too early", error);
            if (c[i].at > 8 * (uint64_t)rest || 8 * (uint64_t)rest - c[i].at >= 8)
                return damaged(number, "its elements are not those of its bits", error);
        } else {
            while (c[i].at < c[i].end)
                if (!step(&b, &c[i])) return damaged(number, no_code, error);
            if (c[i].at != c[i].end) return damaged(number, "its gaps are not those of its codes", error);
        }
        sum += (uint64_t)(c[i].next - w->exponents[i]);
    }
    if (sum != elements) return damaged(number, "output_positions are not those of its codes", error);
    if (is_last ? !last_gaps_agree(d, w, c[count - 1].at)
                : memcmp(w->found, w->gaps, TP_DF11_BLOCK_WINDOWS + 1) != 0)
        return damaged(number, "its gaps are not those of its codes", error);

    const uint8_t *sign_mantissa = unit->sign_mantissa + first;
    for (unsigned i = 0; i < count; i++) {
        const size_t n = (size_t)(c[i].next - w->exponents[i]);
        join(w->exponents[i], sign_mantissa, n, dst);
        sign_mantissa += n;
        dst += n;
    }
    return TP_OK;
}

tp_status tp_df11_decode(const tp_df11_decoder *decoder, uint32_t first, uint32_t count, void *dst,
                         tp_df11_workspace *workspace, tp_error *error)
{
    if (first > decoder->blocks || count > decoder->blocks - first)
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "a DFloat11 unit of %u blocks has no blocks %u to %llu", decoder->blocks, first,
                            (unsigned long long)first + count);
    any16 *out = dst;
    for (uint32_t g = first; g < first + count && g <= decoder->last; g++) {
        const tp_status status = decode_block(decoder, g, out, workspace, error);
        if (status) return status;
        out += position(&decoder->unit, g + 1) - position(&decoder->unit, g);
    }
    return TP_OK;
}
