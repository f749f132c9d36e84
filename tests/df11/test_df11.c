/*
 * The DFloat11 codec: codes and tables, units of all kinds and lengths against a plain encoder, and damage.
 * (The official encoder and a second decoder: df11_reference.py, oracle.py.)
 */
/* cmocka.h wants these four first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "units.h"

static unsigned long long number_from_environment(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ------------------------------------------------------------------------------------------ the code */

/* The exponent and the length of the code at the top of x, by the format's rules alone. */
static uint32_t look_up(const tp_df11_code *code, uint32_t x, uint32_t *length)
{
    const uint8_t *lengths = code->luts + (code->rows - 1) * 256;
    uint32_t e = code->luts[x >> 24];
    for (int tables = 1; e >= TP_DF11_SYMBOLS; tables++) {
        assert_true(tables < 4);
        assert_true(256 - e < code->rows - 1);
        e = code->luts[(256 - e) * 256 + (x >> (24 - 8 * tables) & 0xff)];
    }
    *length = lengths[e];
    return e;
}

/* Codes are complete together with the end symbol's, the tables lead to each, and a decoder that strays
 * into the end symbol's place comes out of it. */
static void check_code(const tp_df11_code *code, const uint64_t counts[256])
{
    uint64_t sum = UINT64_C(1) << (32 - code->end_length);
    uint32_t length;
    assert_in_range(code->rows, 2, TP_DF11_MAX_ROWS);
    for (uint32_t s = 0; s < 256; s++) {
        assert_int_equal(!code->length[s], !counts[s]);
        assert_int_equal(code->luts[(code->rows - 1) * 256 + s], code->length[s]);
        if (!code->length[s]) continue;
        assert_in_range(code->length[s], 1, TP_DF11_MAX_LENGTH);
        sum += UINT64_C(1) << (32 - code->length[s]);
        const uint32_t top = code->word[s] << (32 - code->length[s]),
                       last = top | (uint32_t)((UINT64_C(1) << (32 - code->length[s])) - 1);
        assert_int_equal(look_up(code, top, &length), s);
        assert_int_equal(length, code->length[s]);
        assert_int_equal(look_up(code, last, &length), s);
    }
    assert_true(sum == UINT64_C(1) << 32);
    const uint32_t end = code->end_word << (32 - code->end_length);
    const uint32_t open = (uint32_t)((UINT64_C(1) << (32 - code->end_length)) - 1);
    for (uint32_t i = 0; i < 4096; i++) {
        look_up(code, end | (uint32_t)((uint64_t)open * i >> 12), &length);
        assert_int_not_equal(length, 0);
    }
    static tp_df11_table table;
    tp_error error = {0};
    if (tp_df11_table_make(code->luts, code->rows * 256, &table, &error)) fail_msg("%s", error.message);
}

static void make_code(const uint64_t counts[256], tp_df11_code *code)
{
    tp_error error = {0};
    if (tp_df11_code_make(counts, code, &error)) fail_msg("%s", error.message);
    check_code(code, counts);
}

static void test_codes_of_equal_counts(void **state)
{
    (void)state;
    for (uint32_t symbols = 1; symbols <= TP_DF11_SYMBOLS; symbols++)
        for (uint64_t count = 1; count < 4; count++) {
            uint64_t counts[256] = {0};
            tp_df11_code code;
            for (uint32_t s = 0; s < symbols; s++) counts[s] = count;
            make_code(counts, &code);
            assert_true(code.departure == TP_DF11_AS_REFERENCE || code.departure == TP_DF11_UNFILLED);
        }
}

static void test_codes_as_the_layout_shows(void **state)
{
    (void)state;
    /* 3C12 BC85 3C90 BD01 3BFF 3C80 3D7F BC03 3C88 3E10 */
    uint64_t counts[256] = {[119] = 1, [120] = 2, [121] = 4, [122] = 2, [124] = 1};
    tp_df11_code code;
    make_code(counts, &code);
    assert_int_equal(code.departure, TP_DF11_AS_REFERENCE);
    assert_int_equal(code.rows, 2);
    const struct {
        uint32_t exponent, length, word, from, to;
    } expected[] = {{121, 1, 0, 0, 127},
                    {124, 3, 4, 128, 175},
                    {119, 4, 11, 176, 191},
                    {120, 3, 6, 192, 223},
                    {122, 3, 7, 224, 255}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(code.length[expected[i].exponent], expected[i].length);
        assert_int_equal(code.word[expected[i].exponent], expected[i].word);
        for (uint32_t v = expected[i].from; v <= expected[i].to; v++)
            assert_int_equal(code.luts[v], expected[i].exponent);
    }
    assert_int_equal(code.end_length, 4);
    assert_int_equal(code.end_word, 10);
}

static void test_long_codes(void **state)
{
    (void)state;
    /* Fibonacci counts: a symbol more, a bit more, up to the limit; then ever more of the rarest count
     * once. */
    for (uint32_t symbols = 2; symbols <= 75; symbols++) {
        uint64_t counts[256] = {0}, a = 1, b = 2; /* the end symbol is the other 1 */
        for (uint32_t s = 0; s < symbols; s++) {
            counts[(s * 37 + 11) % TP_DF11_SYMBOLS] = a;
            const uint64_t next = a + b;
            a = b;
            b = next;
        }
        tp_df11_code code;
        make_code(counts, &code);
        uint32_t longest = code.end_length;
        for (uint32_t s = 0; s < 256; s++) longest = code.length[s] > longest ? code.length[s] : longest;
        if (symbols <= TP_DF11_MAX_LENGTH)
            assert_int_equal(longest, symbols);
        else
            assert_in_range(longest, 25, 32);
    }
}

static void test_a_tie_at_the_limit(void **state)
{
    (void)state;
    /* Pairs of equal counts: the last that is made 1 is one of a pair, or its second. */
    uint32_t cases[TP_DF11_DEPARTURES] = {0};
    for (uint32_t symbols = 33; symbols < 75; symbols++) {
        uint64_t counts[256] = {0};
        /* Equal ones only up to there, or the code does not grow long. */
        for (uint32_t s = 0; s < symbols; s++) counts[s] = UINT64_C(3) << (s < 40 ? s / 2 : s - 20);
        tp_df11_code code;
        make_code(counts, &code);
        cases[code.departure]++;
    }
    assert_int_not_equal(cases[TP_DF11_TIE], 0);
    assert_int_not_equal(cases[TP_DF11_AS_REFERENCE], 0);
}

static void test_too_many_tables(void **state)
{
    (void)state;
    uint64_t seed = 5;
    uint32_t cases = 0;
    for (uint32_t symbols = 20; symbols <= TP_DF11_SYMBOLS; symbols += 5)
        for (unsigned shift = 8; shift < 40; shift += 3) {
            uint64_t counts[256] = {0};
            for (uint32_t s = 0; s < symbols; s++) counts[s] = 1 + rng_below(&seed, 16);
            counts[symbols / 2] = UINT64_C(1) << shift;
            counts[symbols / 3] = UINT64_C(1) << (shift - 4);
            tp_df11_code code;
            make_code(counts, &code);
            cases += code.departure == TP_DF11_TABLES;
        }
    assert_in_range(cases, 100, 1000);
}

static void test_random_codes(void **state)
{
    (void)state;
    uint64_t seed = 6;
    uint32_t cases[TP_DF11_DEPARTURES] = {0};
    for (uint32_t i = 0; i < 3000; i++) {
        uint64_t counts[256] = {0};
        const uint32_t symbols = 1 + rng_below(&seed, i % 2 ? 40 : TP_DF11_SYMBOLS),
                       spread = 1 + rng_below(&seed, 36);
        for (uint32_t s = 0; s < symbols; s++)
            counts[rng_below(&seed, TP_DF11_SYMBOLS)] =
                1 + (rng_next(&seed) >> (63 - rng_below(&seed, spread)));
        tp_df11_code code;
        make_code(counts, &code);
        cases[code.departure]++;
    }
    assert_in_range(cases[TP_DF11_AS_REFERENCE], 1000, 3000);
    assert_int_not_equal(cases[TP_DF11_ENDLESS], 0);
}

static void test_codes_refused(void **state)
{
    (void)state;
    tp_df11_code code;
    tp_error error;
    uint64_t counts[256] = {0};
    assert_int_equal(tp_df11_code_make(counts, &code, &error), TP_INVALID_ARGUMENT);
    for (uint32_t s = 239; s < 256; s++) {
        memset(counts, 0, sizeof counts);
        counts[100] = 1000;
        counts[s] = 1;
        assert_int_equal(tp_df11_code_make(counts, &code, &error), s < 240 ? TP_OK : TP_UNSUPPORTED);
    }
}

/* ---------------------------------------------------------------------------------------------- units */

/* Encodes in one part and in many, plainly, and decodes: all must agree. */
static tp_df11_departure check_unit(const uint16_t *elements, size_t n, uint64_t *seed)
{
    tp_error error = {0};
    owned_unit whole, cut, plain;
    const uint64_t tensor = n;
    if (encode_unit(elements, &tensor, 1, NULL, &whole, &error)) fail_msg("%s", error.message);
    uint64_t counts[256] = {0};
    for (size_t i = 0; i < n; i++) counts[elements[i] >> 7 & 0xff]++;
    tp_df11_code code;
    make_code(counts, &code);
    encode_plainly(&code, elements, n, &plain);
    assert_true(same_unit(&whole, &plain));
    /* Tensors of all sizes, also of none. */
    uint64_t tensors[5], left = n;
    for (size_t t = 0; t < 4; t++)
        left -= tensors[t] = rng_below(seed, 3) ? rng_next(seed) % (left + 1) : 0;
    tensors[4] = left;
    if (encode_unit(elements, tensors, 5, seed, &cut, &error)) fail_msg("%s", error.message);
    assert_true(same_unit(&cut, &plain));

    uint16_t *decoded = decode_unit(&cut.unit, &error);
    if (!decoded) fail_msg("%zu elements: %s", n, error.message);
    assert_memory_equal(decoded, elements, 2 * n);
    free(decoded);

    /* Block by block, in an order of their own; tensors' and blocks' numbers. */
    static tp_df11_decoder decoder;
    static tp_df11_workspace workspace;
    assert_int_equal(tp_df11_open(&cut.unit, &decoder, &error), TP_OK);
    assert_int_equal(tp_df11_tensors(&decoder), 5);
    uint64_t start = 0;
    for (size_t t = 0; t <= 5; t++) {
        assert_int_equal(tp_df11_tensor_start(&decoder, t), start);
        if (t < 5) start += tensors[t];
    }
    for (uint32_t g = decoder.blocks; g--;) {
        const uint64_t from = tp_df11_position(&decoder, g), to = tp_df11_position(&decoder, g + 1);
        uint16_t *dst = exact(2 * (size_t)(to - from));
        if (tp_df11_decode(&decoder, g, 1, dst, &workspace, &error))
            fail_msg("block %u: %s", g, error.message);
        assert_memory_equal(dst, elements + from, 2 * (size_t)(to - from));
        free(dst);
        if (from < to) {
            assert_int_equal(tp_df11_block_of(&decoder, from), g);
            assert_int_equal(tp_df11_block_of(&decoder, to - 1), g);
        }
    }
    assert_int_equal(tp_df11_decode(&decoder, decoder.blocks, 0, NULL, &workspace, &error), TP_OK);
    assert_int_equal(tp_df11_decode(&decoder, 1, decoder.blocks, NULL, &workspace, &error),
                     TP_INVALID_ARGUMENT);

    /* The reference leaves the last position out where no code starts in the last block. */
    const uint32_t blocks = decoder.blocks;
    if (tp_df11_position(&decoder, blocks - 1) == n) {
        cut.unit.positions_size -= 4;
        decoded = decode_unit(&cut.unit, &error);
        if (!decoded) fail_msg("%zu elements: %s", n, error.message);
        assert_memory_equal(decoded, elements, 2 * n);
        free(decoded);
    }
    free_unit(&whole);
    free_unit(&cut);
    free_unit(&plain);
    return code.departure;
}

static void test_units_of_all_kinds(void **state)
{
    (void)state;
    uint64_t seed = number_from_environment("TP_SEED", 1);
    const uint64_t rounds = number_from_environment("TP_ROUNDS", 30);
    uint16_t *elements = exact(2 * 60000);
    for (kind k = 0; k < KINDS; k++)
        for (uint64_t i = 0; i < rounds; i++) {
            const size_t n = 1 + rng_below(&seed, i % 3 ? 3000 : 60000);
            make_elements(k, &seed, elements, n);
            check_unit(elements, n, &seed);
        }
    free(elements);
}

static void test_every_length(void **state)
{
    (void)state;
    uint64_t seed = 2;
    uint16_t *elements = exact(2 * 70000);
    /* All small lengths; then those with which the stream ends around windows, chains and blocks. */
    for (kind k = 0; k < KINDS; k++)
        for (size_t n = 1; n < 400; n += k < KIND_CONSTANT ? 3 : 1) {
            make_elements(k, &seed, elements, n);
            check_unit(elements, n, &seed);
        }
    const size_t edges[] = {8192, 16384, 24576, 32768, 65536};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (size_t n = edges[i] - 70; n < edges[i] + 70; n += i < 3 ? 3 : 1) {
            make_elements(KIND_CONSTANT, &seed, elements, n); /* a bit an element */
            check_unit(elements, n, &seed);
        }
    free(elements);
}

/* Codes of up to 32 bits, which small units do not have: coded plainly, with a code made for other counts.
 */
static void test_streams_of_long_codes(void **state)
{
    (void)state;
    uint64_t seed = 3, straddled = 0, bare = 0;
    for (uint32_t symbols = 2; symbols <= 40; symbols++) {
        uint64_t counts[256] = {0}, a = 1, b = 1;
        for (uint32_t s = 0; s < symbols; s++) {
            counts[s + 90] = a;
            const uint64_t next = a + b;
            a = b;
            b = next;
        }
        tp_df11_code code;
        make_code(counts, &code);
        for (uint32_t i = 0; i < 60; i++) {
            uint16_t elements[6000];
            const size_t n = 1 + rng_below(&seed, i % 2 ? 6000 : 200);
            for (size_t j = 0; j < n; j++)
                elements[j] =
                    (uint16_t)((90 + rng_below(&seed, symbols)) << 7 | (rng_next(&seed) & 0x807f));
            owned_unit u;
            encode_plainly(&code, elements, n, &u);
            tp_error error = {0};
            uint16_t *decoded = decode_unit(&u.unit, &error);
            if (!decoded) fail_msg("%u symbols, %zu elements: %s", symbols, n, error.message);
            assert_memory_equal(decoded, elements, 2 * n);
            free(decoded);
            free_unit(&u);
        }
        /* The last code reaches into the last block by 1 to 31 bits, and starts in the one before. */
        if (symbols < 8) continue;
        for (uint32_t reach = 1; reach < 32 && reach < code.length[90]; reach++) {
            static uint16_t elements[40000];
            size_t n = 0;
            const uint32_t common = 90 + symbols - 1;
            assert_int_equal(code.length[common], 1);
            while (n < 32768 + reach - code.length[90]) elements[n++] = (uint16_t)(common << 7);
            elements[n++] = 90 << 7;
            owned_unit u;
            encode_plainly(&code, elements, n, &u);
            assert_int_equal(u.unit.encoded_size, 4096 + (reach + 7) / 8);
            assert_int_equal(u.unit.gaps_size, 640);
            for (int entries = 3; entries >= 2;
                 entries--) { /* the reference leaves the last out if reach % 8 is 0 */
                tp_error error = {0};
                u.unit.positions_size = 4 * (uint64_t)entries;
                uint16_t *decoded = decode_unit(&u.unit, &error);
                if (!decoded) fail_msg("reach %u: %s", reach, error.message);
                assert_memory_equal(decoded, elements, 2 * n);
                free(decoded);
            }
            straddled++;
            bare += reach % 8 == 0;
            /* Its gap may be 0 too, but nothing else. */
            u.unit.positions_size = 12;
            for (uint32_t gap = 0; gap < 32; gap++) {
                tp_error error = {0};
                u.gaps[320] = (uint8_t)(gap << 3);
                uint16_t *decoded = decode_unit(&u.unit, &error);
                assert_int_equal(decoded != NULL, gap == 0 || gap == reach);
                free(decoded);
            }
            free_unit(&u);
        }
    }
    assert_in_range(straddled, 500, 2000);
    assert_in_range(bare, 40, 500);
}

/* Elements that change between counting and encoding. */
static void test_changed_elements(void **state)
{
    (void)state;
    uint64_t seed = 4;
    uint16_t elements[3000];
    for (uint32_t i = 0; i < 300; i++) {
        const size_t n = 1 + rng_below(&seed, 3000);
        make_elements(i % 2 ? KIND_GAUSSIAN : KIND_FIBONACCI, &seed, elements, n);
        tp_df11_part parts[2] = {{.elements = elements, .n = n / 2},
                                 {.elements = elements + n / 2, .n = n - n / 2}};
        tp_df11_part_count(&parts[0]);
        tp_df11_part_count(&parts[1]);
        tp_df11_plan plan;
        tp_error error;
        assert_int_equal(tp_df11_plan_make(parts, 2, &plan, &error), TP_OK);
        const tp_df11_output output = {exact(plan.encoded_size), exact(n), exact(plan.positions_size),
                                       exact(plan.gaps_size), exact(plan.workspace_size)};
        for (uint32_t j = 0, many = rng_below(&seed, 3) ? 1 : 3000; j < many; j++)
            elements[n / 2 + rng_below(&seed, (uint32_t)(n - n / 2))] = (uint16_t)rng_next(&seed);
        uint64_t bits = 0;
        bool absent = false;
        for (size_t j = n / 2; j < n; j++) {
            const uint8_t length = plan.code.length[elements[j] >> 7 & 0xff];
            bits += length;
            absent |= !length;
        }
        assert_int_equal(tp_df11_part_encode(&plan, &parts[0], &output, &error), TP_OK);
        assert_int_equal(tp_df11_part_encode(&plan, &parts[1], &output, &error),
                         absent || bits != parts[1].end_bit - parts[1].first_bit ? TP_MISMATCH : TP_OK);
        free(output.encoded_exponent);
        free(output.sign_mantissa);
        free(output.output_positions);
        free(output.gaps);
        free(output.workspace);
    }
}

/* --------------------------------------------------------------------------------------------- damage */

typedef struct damage_count {
    uint64_t refused, same, differs;
} damage_count;

static void try_damaged(const owned_unit *u, const uint16_t *elements, damage_count *count)
{
    tp_error error = {0};
    uint16_t *decoded = decode_unit(&u->unit, &error);
    if (!decoded) {
        assert_int_equal(error.status, TP_CORRUPT);
        assert_int_not_equal(error.message[0], 0);
        count->refused++;
    } else if (!memcmp(decoded, elements, 2 * (size_t)u->unit.elements)) {
        count->same++;
    } else {
        count->differs++;
    }
    free(decoded);
}

/* Every bit of the array, and every byte inverted. */
static damage_count damage_array(const owned_unit *u, uint8_t *array, uint64_t size,
                                 const uint16_t *elements)
{
    damage_count count = {0};
    for (uint64_t i = 0; i < size; i++)
        for (unsigned m = 0; m < 9; m++) {
            const uint8_t mask = (uint8_t)(m < 8 ? 1 << m : 0xff);
            array[i] ^= mask;
            try_damaged(u, elements, &count);
            array[i] ^= mask;
        }
    return count;
}

static void test_every_bit_of_small_units(void **state)
{
    (void)state;
    uint64_t seed = 7;
    const struct {
        kind k;
        size_t n;
    } units[] = {{KIND_GAUSSIAN, 150}, {KIND_FIBONACCI, 2600}, {KIND_UNIFORM, 90},
                 {KIND_CONSTANT, 77},  {KIND_FEW, 300},        {KIND_DOUBLING, 1500}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        uint16_t elements[3000];
        tp_error error = {0};
        owned_unit u;
        make_elements(units[i].k, &seed, elements, units[i].n);
        const uint64_t tensors[3] = {units[i].n / 3, 0, units[i].n - units[i].n / 3};
        assert_int_equal(encode_unit(elements, tensors, 3, NULL, &u, &error), TP_OK);

        /* All of the gaps and positions follow from the stream. */
        damage_count count = damage_array(&u, u.gaps, u.unit.gaps_size, elements);
        assert_int_equal(count.differs, 0);
        assert_true(count.same < 8); /* where a code may start or not behind the last */
        count = damage_array(&u, u.output_positions, u.unit.positions_size, elements);
        assert_int_equal(count.refused, 9 * u.unit.positions_size);
        count = damage_array(&u, u.split_positions, u.unit.split_size, elements);
        assert_int_equal(count.differs, 0);
        /* A table's entry with its block broken leads nowhere: damage there shows, or does not matter. */
        count = damage_array(&u, u.luts, u.unit.luts_size - 256, elements);
        assert_int_equal(count.differs, 0);
        /* Whatever these become, they stay within their buffers. */
        damage_array(&u, u.luts + u.unit.luts_size - 256, 256, elements);
        damage_array(&u, u.encoded_exponent, u.unit.encoded_size, elements);
        free_unit(&u);
    }
}

static void test_random_damage(void **state)
{
    (void)state;
    uint64_t seed = number_from_environment("TP_SEED", 8);
    const uint64_t rounds = number_from_environment("TP_ROUNDS", 400);
    uint16_t *elements = exact(2 * 40000);
    damage_count count = {0};
    for (kind k = 0; k < KINDS; k++) {
        const size_t n = 20000 + rng_below(&seed, 20000);
        tp_error error = {0};
        owned_unit u, good;
        make_elements(k, &seed, elements, n);
        const uint64_t tensor = n;
        assert_int_equal(encode_unit(elements, &tensor, 1, NULL, &u, &error), TP_OK);
        assert_int_equal(encode_unit(elements, &tensor, 1, NULL, &good, &error), TP_OK);
        const struct {
            uint8_t *to;
            const uint8_t *from;
            uint64_t size;
        } arrays[] = {{u.luts, good.luts, u.unit.luts_size},
                      {u.encoded_exponent, good.encoded_exponent, u.unit.encoded_size},
                      {u.output_positions, good.output_positions, u.unit.positions_size},
                      {u.gaps, good.gaps, u.unit.gaps_size}};
        for (uint64_t i = 0; i < rounds; i++) {
            for (uint32_t j = 1 + rng_below(&seed, 4); j--;) {
                const uint32_t a = rng_below(&seed, 4);
                arrays[a].to[rng_next(&seed) % arrays[a].size] = (uint8_t)rng_next(&seed);
            }
            try_damaged(&u, elements, &count);
            for (size_t a = 0; a < 4; a++) memcpy(arrays[a].to, arrays[a].from, arrays[a].size);
        }
        free_unit(&u);
        free_unit(&good);
    }
    assert_true(count.refused > count.differs);
    free(elements);
}

/* Tables of nothing but chance, over a stream of it. */
static void test_units_of_chance(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (uint32_t i = 0; i < 4000; i++) {
        owned_unit u = {0};
        const size_t rows = 1 + rng_below(&seed, 20), bytes = 1 + rng_below(&seed, 40),
                     n = 1 + rng_below(&seed, 400);
        u.luts = exact(rows * 256);
        u.encoded_exponent = exact(bytes);
        u.sign_mantissa = exact(n);
        u.output_positions = exact(8);
        u.gaps = exact(320);
        memset(u.gaps, 0, 320);
        for (size_t j = 0; j < rows * 256; j++) {
            const uint32_t r = rng_below(&seed, 64);
            u.luts[j] = (uint8_t)(j / 256 == rows - 1 ? (j % 256 < 240 ? rng_below(&seed, 34) : 0)
                                  : r < 2             ? 256 - 1 - rng_below(&seed, (uint32_t)rows)
                                  : r < 60 && j % 256 ? u.luts[j - 1]
                                                      : rng_below(&seed, 240));
        }
        for (size_t j = 0; j < bytes; j++) u.encoded_exponent[j] = (uint8_t)rng_next(&seed);
        memset(u.sign_mantissa, 0, n);
        const uint32_t positions[2] = {0, (uint32_t)n};
        memcpy(u.output_positions, positions, 8);
        u.unit = (tp_df11_unit){.luts = u.luts,
                                .encoded_exponent = u.encoded_exponent,
                                .sign_mantissa = u.sign_mantissa,
                                .output_positions = u.output_positions,
                                .gaps = u.gaps,
                                .luts_size = rows * 256,
                                .encoded_size = bytes,
                                .elements = n,
                                .positions_size = 8,
                                .gaps_size = 320};
        tp_error error;
        free(decode_unit(&u.unit, &error));
        free_unit(&u);
    }
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    uint64_t seed = 10;
    static uint16_t elements[40000];
    tp_error error = {0};
    owned_unit u;
    make_elements(KIND_GAUSSIAN, &seed, elements, 40000);
    const uint64_t tensors[2] = {1000, 39000};
    assert_int_equal(encode_unit(elements, tensors, 2, NULL, &u, &error), TP_OK);
    uint64_t *const sizes[] = {&u.unit.luts_size,      &u.unit.encoded_size, &u.unit.elements,
                               &u.unit.positions_size, &u.unit.gaps_size,    &u.unit.split_size};
    for (size_t i = 0; i < 6; i++) {
        const uint64_t was = *sizes[i];
        for (uint64_t less = 1; less <= was && less <= 5000; less++) {
            *sizes[i] = was - less;
            uint16_t *decoded = decode_unit(&u.unit, &error);
            /* One tensor instead of two is a unit too, and the last position, the number of elements, may
             * be missing. */
            if ((i == 5 && less == 8) || (i == 3 && less == 4)) {
                assert_non_null(decoded);
                free(decoded);
                continue;
            }
            assert_null(decoded);
            assert_int_equal(error.status, TP_CORRUPT);
        }
        /* More: only where that is seen before anything there is read, which the caller has promised to be
         * there. */
        const uint64_t least[] = {1 << 13, 2 << 13, UINT64_C(1) << 31, 1, 1, 1};
        for (uint64_t more = least[i]; more && (i != 5 || more % 8); more <<= 1) {
            *sizes[i] = was + more;
            assert_null(decode_unit(&u.unit, &error));
        }
        *sizes[i] = was;
    }
    free(decode_unit(&u.unit, &error));
    free_unit(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_of_equal_counts),
        cmocka_unit_test(test_codes_as_the_layout_shows),
        cmocka_unit_test(test_long_codes),
        cmocka_unit_test(test_a_tie_at_the_limit),
        cmocka_unit_test(test_too_many_tables),
        cmocka_unit_test(test_random_codes),
        cmocka_unit_test(test_codes_refused),
        cmocka_unit_test(test_units_of_all_kinds),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_streams_of_long_codes),
        cmocka_unit_test(test_changed_elements),
        cmocka_unit_test(test_every_bit_of_small_units),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_units_of_chance),
        cmocka_unit_test(test_wrong_sizes),
    };
    return cmocka_run_group_tests_name("df11", tests, NULL, NULL);
}
