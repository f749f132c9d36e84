/*
 * Encoding of a DFloat11 unit, in parts (codec/df11.h). Every part knows its first bit from the counts of
 * those before it, so parts are coded independently; of the stream they share at most one window with each
 * neighbour.
 */
#include <string.h>

#include "codec/bytes.h"
#include "codec/df11.h"

#define PIECE 4096 /* elements whose exponents lie in the first-level cache while they are coded */

typedef uint16_t __attribute__((aligned(1), may_alias)) any16; /* loops over these are vectorised */

void tp_df11_part_count(tp_df11_part *part)
{
    const uint8_t *src = part->elements;
    uint64_t left = part->n;
    memset(part->counts, 0, sizeof part->counts);
    while (left) {
        /* Four tables, so that equal exponents in a row do not wait for each other; u32 for a bounded
         * stretch. */
        const size_t n = left < 1u << 30 ? (size_t)left : 1u << 30;
        uint32_t table[4][256];
        memset(table, 0, sizeof table);
        size_t i = 0;
        for (; i + 4 <= n; i += 4) {
            const uint64_t v = tp_load64(src + 2 * i);
            table[0][v >> 7 & 0xff]++;
            table[1][v >> 23 & 0xff]++;
            table[2][v >> 39 & 0xff]++;
            table[3][v >> 55 & 0xff]++;
        }
        for (; i < n; i++) table[0][tp_load16(src + 2 * i) >> 7 & 0xff]++;
        for (size_t s = 0; s < 256; s++)
            part->counts[s] += (uint64_t)table[0][s] + table[1][s] + table[2][s] + table[3][s];
        src += 2 * n;
        left -= n;
    }
}

tp_status tp_df11_plan_make(tp_df11_part *parts, size_t count, tp_df11_plan *plan, tp_error *error)
{
    uint64_t counts[256] = {0}, elements = 0;
    for (size_t p = 0; p < count; p++) {
        if (parts[p].n > TP_DF11_MAX_ELEMENTS || (elements += parts[p].n) > TP_DF11_MAX_ELEMENTS)
            return tp_error_set(error, TP_LIMIT, "a DFloat11 unit has at most 2^31 - 1 elements");
        for (size_t s = 0; s < 256; s++) counts[s] += parts[p].counts[s]; /* sums of n < 2^31 */
    }
    const tp_status status = tp_df11_code_make(counts, &plan->code, error);
    if (status) return status;
    uint64_t bits = 0, first = 0;
    for (size_t p = 0; p < count; p++) {
        parts[p].first_element = first;
        parts[p].first_bit = bits;
        for (size_t s = 0; s < TP_DF11_SYMBOLS; s++) bits += parts[p].counts[s] * plan->code.length[s];
        parts[p].end_bit = bits;
        first += parts[p].n;
    }
    const uint64_t encoded = (bits + 7) / 8;
    if (encoded > TP_DF11_MAX_ELEMENTS)
        return tp_error_set(error, TP_LIMIT,
                            "the exponents of a DFloat11 unit take at most 2^31 - 1 bytes");
    plan->elements = elements;
    plan->bits = bits;
    plan->blocks = (uint32_t)((encoded + TP_DF11_BLOCK - 1) / TP_DF11_BLOCK);
    plan->luts_size = plan->code.rows * (size_t)256;
    plan->encoded_size = (size_t)encoded;
    plan->positions_size = 4 * ((size_t)plan->blocks + 1);
    plan->gaps_size = (size_t)plan->blocks * TP_DF11_BLOCK_GAPS;
    /* A byte a window, and one for a window that starts where the last block ends. */
    plan->workspace_size = (size_t)plan->blocks * TP_DF11_BLOCK_WINDOWS + 1;
    return TP_OK;
}

static void split(const any16 *src, size_t n, uint8_t *restrict exponents, uint8_t *restrict sign_mantissa)
{
    for (size_t i = 0; i < n; i++) {
        exponents[i] = (uint8_t)(src[i] >> 7);
        sign_mantissa[i] = (uint8_t)((src[i] >> 8 & 0x80) | (src[i] & 0x7f));
    }
}

/* The bit stream of a part under way. */
typedef struct writer {
    uint64_t window, end; /* the window being filled; that of the part's last bit */
    uint64_t word;        /* its bits so far, in the low ones */
    unsigned bits;        /* how many, 0..63, with those of the part before, which are zero */
    bool first;           /* it is the part's first window */
} writer;

static void store_window(uint8_t *stream, uint64_t window, uint64_t word)
{
    tp_store64(stream + 8 * window, __builtin_bswap64(word));
}

#define ABSENT (UINT64_C(1) << 63)

tp_status tp_df11_part_encode(const tp_df11_plan *plan, tp_df11_part *part, const tp_df11_output *output,
                              tp_error *error)
{
    const uint8_t *src = part->elements;
    uint8_t exponents[PIECE];
    uint64_t code[256], seen = 0; /* word << 8 | length */
    for (size_t s = 0; s < 256; s++) {
        code[s] = (uint64_t)plan->code.word[s] << 8 | plan->code.length[s];
        if (!code[s]) code[s] = ABSENT;
    }
    writer w = {.window = part->first_bit / 64,
                .end = part->end_bit / 64,
                .bits = part->first_bit % 64,
                .first = true};
    for (uint64_t at = 0; at < part->n; at += PIECE) {
        const size_t n = part->n - at < PIECE ? (size_t)(part->n - at) : PIECE;
        const uint64_t number = part->first_element + at;
        split((const any16 *)(const void *)(src + 2 * at), n, exponents, output->sign_mantissa + number);
        for (size_t i = 0; i < n; i++) {
            const uint64_t entry = code[exponents[i]], word = entry >> 8;
            const unsigned length = entry & 0xff;
            seen |= entry;
            w.bits += length;
            if (w.bits < 64) {
                w.word = w.word << length | word;
                continue;
            }
            if (w.window == w.end) goto changed; /* more bits than were counted */
            w.bits -= 64; /* of this code, for the next window: fewer than length, at most 31 */
            w.word = w.word << (length - w.bits) | word >> w.bits;
            if (w.first)
                part->head = w.word;
            else
                store_window(output->encoded_exponent, w.window, w.word);
            w.first = false;
            w.window++;
            w.word = word; /* the bits above the low w.bits are shifted out in time */
            output->workspace[w.window] = (uint8_t)w.bits;
            if (w.window % TP_DF11_BLOCK_WINDOWS == 0)
                tp_store32(output->output_positions + w.window / TP_DF11_BLOCK_WINDOWS * 4,
                           (uint32_t)(number + i + 1));
        }
    }
    if (w.window != w.end || w.bits != part->end_bit % 64 || seen & ABSENT) goto changed;
    part->tail = w.bits ? w.word << (64 - w.bits) : 0;
    return TP_OK;
changed:
    return tp_error_set(error, TP_MISMATCH, "the elements changed while they were encoded");
}

/* Stores the window if it has bits; its bytes up to the stream's end. */
static void put_window(const tp_df11_plan *plan, uint8_t *stream, uint64_t window, uint64_t word)
{
    uint8_t bytes[8];
    store_window(bytes, 0, word);
    for (size_t i = 0; i < 8 && 8 * window + i < plan->encoded_size; i++) stream[8 * window + i] = bytes[i];
}

/* 5 bits each of 8 windows, the first on top. */
static void pack_gaps(const uint8_t *windows, size_t groups, uint8_t *gaps)
{
    for (size_t g = 0; g < groups; g++) {
        uint64_t packed = 0;
        for (size_t i = 0; i < 8; i++) packed = packed << 5 | windows[8 * g + i];
        for (size_t i = 0; i < 5; i++) gaps[5 * g + i] = (uint8_t)(packed >> (32 - 8 * i));
    }
}

void tp_df11_plan_finish(const tp_df11_plan *plan, const tp_df11_part *parts, size_t count,
                         const tp_df11_output *output)
{
    /* The windows at the parts' edges, put together. */
    uint64_t window = 0, word = 0;
    for (size_t p = 0; p < count; p++) {
        const tp_df11_part *part = &parts[p];
        if (!part->n) continue;
        if (part->end_bit / 64 > part->first_bit / 64) {
            put_window(plan, output->encoded_exponent, window, word | part->head);
            window = part->end_bit / 64;
            word = 0;
        }
        word |= part->tail;
    }
    const unsigned rest = plan->bits % 8;
    if (rest) {
        /* The last byte is filled up with the first bits of the end symbol's code, or all of it and zeros.
         */
        const uint64_t end =
            (uint64_t)plan->code.end_word << (64 - plan->code.end_length) >> (plan->bits % 64);
        word |= end & (uint64_t)0xff << (56 - (plan->bits % 64 - rest));
    }
    put_window(plan, output->encoded_exponent, window, word);

    output->workspace[0] = 0;
    const size_t windows = (size_t)plan->blocks * TP_DF11_BLOCK_WINDOWS, last = (size_t)(plan->bits / 64);
    /* If the last code ends in a window where none starts, the end symbol does, unless there is no place
     * for it. */
    if (!rest && output->workspace[last] == plan->bits % 64) output->workspace[last] = 0;
    memset(output->workspace + last + 1, 0, windows - last);
    pack_gaps(output->workspace, windows / 8, output->gaps);
    tp_store32(output->output_positions, 0);
    tp_store32(output->output_positions + 4 * (size_t)plan->blocks, (uint32_t)plan->elements);
}

void tp_df11_split_positions(const uint64_t *elements_by_tensor, size_t tensors, uint8_t *split_positions)
{
    uint64_t sum = 0;
    for (size_t i = 0; i + 1 < tensors; i++) {
        sum += elements_by_tensor[i];
        tp_store64(split_positions + 8 * i, sum);
    }
}
