#include "units.h"

#include <math.h>

uint64_t rng_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t rng_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((rng_next(state) >> 32) * limit >> 32);
}

const char *kind_name(kind k)
{
#define KIND_NAME(name, text) text,
    static const char *const names[] = {KIND_LIST(KIND_NAME)};
#undef KIND_NAME
    return names[k];
}

/* The exponent of a normal number of scale 0.02; sums of twelve, so the same everywhere. */
static uint32_t normal_exponent(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(rng_next(state) >> 40) * 0x1p-24;
    const float value = (float)(sum * 0.02);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 23 & 0xff;
}

void make_elements(kind k, uint64_t *state, uint16_t *elements, size_t n)
{
    const uint32_t few = 2 + rng_below(state, 3), many = 1 + rng_below(state, TP_DF11_SYMBOLS);
    uint8_t order[TP_DF11_SYMBOLS]; /* of exponents, at random */
    for (uint32_t i = 0; i < TP_DF11_SYMBOLS; i++) {
        const uint32_t j = rng_below(state, i + 1);
        order[i] = order[j];
        order[j] = (uint8_t)i;
    }
    size_t done = 0;
    if (k == KIND_FIBONACCI || k == KIND_DOUBLING) {
        size_t a = 1, b = 1;
        for (uint32_t s = 0; s < TP_DF11_SYMBOLS && done < n; s++) {
            for (size_t i = 0; i < a && done < n; i++) elements[done++] = order[s];
            const size_t next = k == KIND_FIBONACCI ? a + b : 2 * b;
            a = b;
            b = next;
        }
    }
    for (; done < n; done++) {
        uint32_t e = 0;
        switch (k) {
        case KIND_GAUSSIAN:
            elements[done] = (uint16_t)normal_exponent(state);
            continue;
        case KIND_UNIFORM:
            e = rng_below(state, many);
            break;
        case KIND_GEOMETRIC:
            e = (uint32_t)__builtin_ctzll(rng_next(state) | UINT64_C(1) << 40);
            break;
        case KIND_SKEWED:
            e = rng_below(state, 8) ? 0 : rng_below(state, many);
            break;
        case KIND_FEW:
            e = rng_below(state, few);
            break;
        default:
            break;
        }
        elements[done] = order[e];
    }
    for (size_t i = n; i > 1; i--) {
        const size_t j = (size_t)(rng_next(state) % i);
        const uint16_t t = elements[i - 1];
        elements[i - 1] = elements[j];
        elements[j] = t;
    }
    for (size_t i = 0; i < n; i++)
        elements[i] = (uint16_t)((uint64_t)elements[i] << 7 | (rng_next(state) & 0x807f));
}

void *exact(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p) abort();
    return p;
}

void free_unit(owned_unit *u)
{
    free(u->luts);
    free(u->encoded_exponent);
    free(u->sign_mantissa);
    free(u->output_positions);
    free(u->gaps);
    free(u->split_positions);
    memset(u, 0, sizeof *u);
}

static void set_unit(owned_unit *u)
{
    u->unit.luts = u->luts;
    u->unit.encoded_exponent = u->encoded_exponent;
    u->unit.sign_mantissa = u->sign_mantissa;
    u->unit.output_positions = u->output_positions;
    u->unit.gaps = u->gaps;
    u->unit.split_positions = u->split_positions;
}

tp_status encode_unit(const uint16_t *elements, const uint64_t *tensor_elements, size_t tensors,
                      uint64_t *state, owned_unit *u, tp_error *error)
{
    memset(u, 0, sizeof *u);
    tp_df11_part *parts = exact(4 * tensors * sizeof *parts);
    size_t count = 0;
    uint64_t at = 0;
    for (size_t t = 0; t < tensors; t++) {
        uint64_t left = tensor_elements[t];
        for (int cuts = state ? 4 : 1; cuts--;) {
            const uint64_t n = !cuts                 ? left
                               : rng_below(state, 4) ? rng_next(state) % (left + 1)
                               : left < 3            ? left
                                                     : rng_next(state) % 3;
            parts[count++] = (tp_df11_part){.elements = elements + at, .n = n};
            at += n;
            left -= n;
        }
    }
    for (size_t p = 0; p < count; p++) tp_df11_part_count(&parts[p]);
    tp_df11_plan plan;
    tp_status status = tp_df11_plan_make(parts, count, &plan, error);
    if (!status) {
        u->departure = plan.code.departure;
        u->luts = exact(plan.luts_size);
        memcpy(u->luts, plan.code.luts, plan.luts_size);
        u->encoded_exponent = exact(plan.encoded_size);
        u->sign_mantissa = exact((size_t)plan.elements);
        u->output_positions = exact(plan.positions_size);
        u->gaps = exact(plan.gaps_size);
        u->split_positions = exact(8 * (tensors - 1));
        uint8_t *workspace = exact(plan.workspace_size);
        /* What is not written must show. */
        memset(u->encoded_exponent, 0xa5, plan.encoded_size);
        memset(u->output_positions, 0xa5, plan.positions_size);
        memset(u->gaps, 0xa5, plan.gaps_size);
        memset(workspace, 0xa5, plan.workspace_size);
        const tp_df11_output output = {u->encoded_exponent, u->sign_mantissa, u->output_positions, u->gaps,
                                       workspace};
        for (size_t p = count; p-- && !status;)
            status = tp_df11_part_encode(&plan, &parts[p], &output, error);
        if (!status) tp_df11_plan_finish(&plan, parts, count, &output);
        tp_df11_split_positions(tensor_elements, tensors, u->split_positions);
        u->unit = (tp_df11_unit){.luts_size = plan.luts_size,
                                 .encoded_size = plan.encoded_size,
                                 .elements = plan.elements,
                                 .positions_size = plan.positions_size,
                                 .gaps_size = plan.gaps_size,
                                 .split_size = 8 * (tensors - 1)};
        set_unit(u);
        free(workspace);
    }
    free(parts);
    if (status) free_unit(u);
    return status;
}

static void put_bits(uint8_t *bytes, uint64_t at, uint32_t value, unsigned count)
{
    for (unsigned i = 0; i < count; i++, at++)
        if (value >> (count - 1 - i) & 1) bytes[at / 8] |= (uint8_t)(0x80 >> at % 8);
}

void encode_plainly(const tp_df11_code *code, const uint16_t *elements, size_t n, owned_unit *u)
{
    memset(u, 0, sizeof *u);
    uint64_t bits = 0;
    for (size_t i = 0; i < n; i++) bits += code->length[elements[i] >> 7 & 0xff];
    const size_t bytes = (size_t)((bits + 7) / 8), blocks = (bytes + 4095) / 4096;
    u->departure = code->departure;
    u->luts = exact(code->rows * (size_t)256);
    memcpy(u->luts, code->luts, code->rows * (size_t)256);
    u->sign_mantissa = exact(n);
    u->output_positions = exact(4 * (blocks + 1));
    u->gaps = exact(320 * blocks);
    memset(u->gaps, 0, 320 * blocks);
    u->split_positions = exact(0);
    uint8_t *stream = exact(bytes + 4); /* the end symbol's code may reach beyond the last byte */
    memset(stream, 0, bytes + 4);
    uint64_t at = 0, next_window = 0, next_block = 0;
    for (size_t i = 0; i <= n; i++) {
        /* A code starts here; behind the last, the end symbol does if the last byte has room. */
        if (i < n || at % 8) {
            if (at / 64 >= next_window) {
                put_bits(u->gaps, 5 * (at / 64), at % 64, 5);
                next_window = at / 64 + 1;
            }
        }
        if (at / 32768 >= next_block && next_block < blocks) {
            const uint32_t number = (uint32_t)i;
            memcpy(u->output_positions + 4 * next_block++, &number, 4);
        }
        if (i == n) break;
        const uint32_t e = elements[i] >> 7 & 0xff;
        put_bits(stream, at, code->word[e], code->length[e]);
        at += code->length[e];
        u->sign_mantissa[i] = (uint8_t)(elements[i] >> 8 & 0x80) | (elements[i] & 0x7f);
    }
    const uint32_t total = (uint32_t)n;
    memcpy(u->output_positions + 4 * blocks, &total, 4);
    if (at % 8) put_bits(stream, at, code->end_word, code->end_length);
    u->encoded_exponent = exact(bytes);
    memcpy(u->encoded_exponent, stream, bytes);
    free(stream);
    u->unit = (tp_df11_unit){.luts_size = code->rows * (uint64_t)256,
                             .encoded_size = bytes,
                             .elements = n,
                             .positions_size = 4 * (blocks + 1),
                             .gaps_size = 320 * blocks};
    set_unit(u);
}

static bool same_array(const char *name, const uint8_t *a, uint64_t a_size, const uint8_t *b,
                       uint64_t b_size)
{
    if (a_size != b_size) {
        fprintf(stderr, "%s: %llu and %llu bytes\n", name, (unsigned long long)a_size,
                (unsigned long long)b_size);
        return false;
    }
    for (uint64_t i = 0; i < a_size; i++)
        if (a[i] != b[i]) {
            fprintf(stderr, "%s: byte %llu of %llu is %02x and %02x\n", name, (unsigned long long)i,
                    (unsigned long long)a_size, a[i], b[i]);
            return false;
        }
    return true;
}

bool same_unit(const owned_unit *a, const owned_unit *b)
{
    const tp_df11_unit *x = &a->unit, *y = &b->unit;
    return same_array("luts", x->luts, x->luts_size, y->luts, y->luts_size) &&
           same_array("encoded_exponent", x->encoded_exponent, x->encoded_size, y->encoded_exponent,
                      y->encoded_size) &&
           same_array("sign_mantissa", x->sign_mantissa, x->elements, y->sign_mantissa, y->elements) &&
           same_array("output_positions", x->output_positions, x->positions_size, y->output_positions,
                      y->positions_size) &&
           same_array("gaps", x->gaps, x->gaps_size, y->gaps, y->gaps_size);
}

uint16_t *decode_unit(const tp_df11_unit *unit, tp_error *error)
{
    static tp_df11_decoder decoder;
    static tp_df11_workspace workspace;
    if (tp_df11_open(unit, &decoder, error)) return NULL;
    uint16_t *elements = exact(2 * (size_t)unit->elements);
    if (!tp_df11_decode(&decoder, 0, decoder.blocks, elements, &workspace, error)) return elements;
    free(elements);
    return NULL;
}
