/* Streams: every kernel against the reference, which was written from docs/format.md, and streams by hand.
 */
#include "registry.h"

#include "codec/bytes.h"

/* A payload as kernels want it: followed by TP_SLACK readable bytes, of which none may matter. */
static uint8_t *with_slack(const uint8_t *payload, size_t size, uint8_t slack)
{
    uint8_t *p = exact(size + TP_SLACK);
    memcpy(p, payload, size);
    memset(p + size, slack, TP_SLACK);
    return p;
}

typedef struct stream_case {
    split_shape split;
    tp_shape shape;
    ref_shape reference;
    ref_table table[4];
    unsigned selector_bits;
    bool with_low;
    uint32_t n, rare;
    uint8_t *src;
    size_t raw_size;
    uint8_t selector[128]; /* a byte a group */
    /* as the reference encodes it */
    uint8_t *payload;
    size_t size;
    uint32_t nw, nx;
    char name[200];
} stream_case;

/* The decoding table by way of the record's bytes. */
static void decode_table(const ref_table *table, bool pairs, tp_w32_table *out)
{
    uint8_t record[512] = {0};
    for (unsigned i = 0; i < table->entries; i++) {
        tp_store16(record + 4 * i, table->F[i]);
        tp_store16(record + 4 * i + 2, table->symbol[i]);
    }
    tp_w32_table_init(record, pairs, out);
}

static ref_tables tables_of(const stream_case *c)
{
    return (ref_tables){.tables = c->table, .bits = c->selector_bits, .selector = c->selector};
}

/* Data by the tables, and the stream as the reference makes it. */
static void make_case(stream_case *c, rng *r)
{
    const uint32_t groups = (c->n + 1023) / 1024;
    c->shape = kernel_shape(&c->split);
    c->reference = reference_shape(&c->split);
    const size_t element = tp_shape_element(&c->shape);
    c->raw_size = c->n * element;
    c->src = exact(c->raw_size);
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t left = c->n - g * 1024;
        c->selector[g] = (uint8_t)rng_below(r, 1u << c->selector_bits);
        make_elements(r, &c->reference, &c->table[c->selector[g]], c->rare,
                      c->src + (size_t)g * 1024 * element, left < 1024 ? left : 1024);
    }
    const ref_tables tables = tables_of(c);
    c->payload = exact(ref_bound(&c->reference, c->n));
    c->size = ref_encode(&c->reference, &tables, c->src, c->n, c->with_low, c->payload, &c->nw, &c->nx);
    snprintf(c->name, sizeof c->name,
             "%s s %u c %u, %u elements, %u entries in the first of %u tables, one in %u rare, %s",
             tp_class_name(c->split.cls), c->split.s, c->split.c, c->n, c->table[0].entries,
             1u << c->selector_bits, c->rare,
             c->with_low ? "low planes in the stream" : "low planes apart");
    assert_int_equal(
        c->size,
        tp_align(tp_stream_used(&c->shape, c->n, c->with_low, c->nw, c->nx, c->selector_bits), 128));
}

/* A decode job for the stream at payload (a copy with slack); low planes apart at low. */
static tp_w32_job job_of(const stream_case *c, const uint8_t *payload, const uint8_t *low,
                         const tp_w32_table *tables, uint8_t *dst)
{
    const uint8_t *words = payload + tp_stream_words_at(&c->shape, c->n, c->with_low);
    return (tp_w32_job){.payload = payload,
                        .low = low            ? low
                               : c->shape.low ? payload + tp_stream_words_at(&c->shape, c->n, false)
                                              : NULL,
                        .words = words,
                        .table = tables,
                        .selectors = c->selector_bits ? words + tp_align(2 * (uint64_t)c->nw, 4) : NULL,
                        .selector_bits = (uint8_t)c->selector_bits,
                        .dst = dst,
                        .n = c->n,
                        .nw = c->nw,
                        .nx = c->nx};
}

/* The low planes of the elements, in the order of docs/format.md 7.3, as a low_coded frame hands them over.
 */
static uint8_t *low_planes(const stream_case *c)
{
    const size_t padded = ((size_t)c->n + 1023) / 1024 * 1024, size = padded * c->shape.low;
    const unsigned width = c->shape.low == 1 ? 1 : 2, element = (unsigned)tp_shape_element(&c->shape);
    uint8_t *low = exact(size + TP_SLACK);
    memset(low, 0xa5, size + TP_SLACK);
    for (size_t i = 0; i < c->n; i++)
        for (unsigned k = 0; k < c->shape.low; k++)
            low[(k / width * padded + i) * width + k % width] = c->src[i * element + k];
    return low;
}

static void decode_with_all(const stream_case *c, const tp_kernels *const *kernels, size_t kernel_count)
{
    static tp_w32_table table[4]; /* aligned as its type wants */
    for (unsigned t = 0; t < 1u << c->selector_bits; t++)
        decode_table(&c->table[t], c->shape.c == 2, &table[t]);
    uint8_t *low = c->with_low || !c->shape.low ? NULL : low_planes(c);
    uint8_t *expected = exact(c->raw_size);
    const ref_tables tables = tables_of(c);
    if (!ref_decode(&c->reference, &tables, c->payload, c->nw, c->nx, c->n, c->with_low, low, expected) ||
        memcmp(expected, c->src, c->raw_size))
        fail_msg("%s: the reference does not restore it", c->name);
    free(expected);
    for (size_t k = 0; k < kernel_count; k++) {
        uint8_t *payload = with_slack(c->payload, c->size, k ? 0xff : 0);
        uint8_t *dst = exact(c->raw_size + 1); /* at an odd address */
        memset(dst, 0x5a, c->raw_size + 1);
        tp_w32_job job = job_of(c, payload, low, table, dst + 1);
        kernels[k]->w32_decode(&c->shape, &job, 1);
        if (!job.good) fail_msg("%s: kernel %s refuses it", c->name, kernels[k]->name);
        if (dst[0] != 0x5a || memcmp(dst + 1, c->src, c->raw_size)) {
            size_t at = 0;
            while (at + 1 < c->raw_size && dst[1 + at] == c->src[at]) at++;
            fail_msg("%s: kernel %s decodes something else, from byte %zu on", c->name, kernels[k]->name,
                     at);
        }
        /* one word more or less than there is must not pass */
        job.nx = 0;
        if (c->nw) {
            job.nw = c->nw - 1;
            kernels[k]->w32_decode(&c->shape, &job, 1);
            assert_false(job.good);
        }
        job.nw = c->nw + 1;
        kernels[k]->w32_decode(&c->shape, &job, 1);
        assert_false(job.good);
        free(payload);
        free(dst);
    }
    free(low);
}

/* The stream's tables, until the next call. */
static const tp_w32_encode_table *encode_tables(const stream_case *c)
{
    static tp_w32_encode_table table[TP_MAX_SELECTED];
    for (unsigned t = 0; t < 1u << c->selector_bits; t++) {
        tp_symbol_record record;
        table_to_record(&c->table[t], &record);
        tp_w32_encode_table_init(&record, 1u << c->split.s * c->split.c, &table[t]);
    }
    return table;
}

/* The whole stream, without room for it. */
static tp_w32_encode_job encode_job(const stream_case *c, const tp_w32_encode_table *table,
                                    uint8_t *scratch)
{
    return (tp_w32_encode_job){.src = c->src,
                               .n = c->n,
                               .with_low = c->with_low,
                               .table = table,
                               .selectors = c->selector_bits ? c->selector : NULL,
                               .selector_bits = (uint8_t)c->selector_bits,
                               .scratch = scratch};
}

static void encode_with_all(const stream_case *c, const tp_kernels *const *kernels, size_t kernel_count)
{
    const tp_w32_encode_table *table = encode_tables(c);
    uint8_t *scratch = aligned_alloc(64, (TP_ENCODE_SCRATCH + 63) / 64 * 64);
    assert_non_null(scratch);
    for (size_t k = 0; k < kernel_count; k++) {
        memset(scratch, 0x77, TP_ENCODE_SCRATCH); /* nothing may come from an earlier stream */
        uint8_t *payload = exact(c->size);
        memset(payload, 0xee, c->size);
        tp_w32_encode_job job = encode_job(c, table, scratch);
        job.payload = payload;
        job.capacity = c->size;
        kernels[k]->w32_encode(&c->shape, &job);
        if (job.size != c->size || job.nw != c->nw || job.nx != c->nx)
            fail_msg("%s: kernel %s makes %zu bytes, %u words, %u exceptions, the reference %zu, %u, %u",
                     c->name, kernels[k]->name, job.size, job.nw, job.nx, c->size, c->nw, c->nx);
        if (memcmp(payload, c->payload, c->size)) {
            size_t at = 0;
            while (payload[at] == c->payload[at]) at++;
            fail_msg("%s: kernel %s encodes differently, from byte %zu on", c->name, kernels[k]->name, at);
        }
        free(payload);
        payload = exact(c->size - 128); /* too small: nothing beyond may be touched */
        job.payload = payload;
        job.capacity = c->size - 128;
        kernels[k]->w32_encode(&c->shape, &job);
        assert_int_equal(job.size, 0);
        free(payload);
    }
    free(scratch);
}

/* The stream and one of its first elements, in one call, against one by one. */
static void encode_two(const stream_case *c, uint32_t second_n, const tp_kernels *const *kernels,
                       size_t kernel_count)
{
    const tp_w32_encode_table *table = encode_tables(c);
    uint8_t *scratch = aligned_alloc(64, (TP_ENCODE_SCRATCH + 63) / 64 * 64);
    assert_non_null(scratch);
    const size_t room = c->size * 2 + 4096;
    uint8_t *alone = exact(room);
    const tp_w32_encode_job job = encode_job(c, table, scratch);
    for (size_t k = 0; k < kernel_count; k++) {
        if (!kernels[k]->w32_encode_two) continue;
        tp_w32_encode_job second = job;
        second.n = second_n;
        second.payload = alone;
        second.capacity = room / 128 * 128;
        kernels[k]->w32_encode(&c->shape, &second);
        const size_t second_size = second.size;
        assert_true(second_size > 0);
        for (int which = 0; which < 2; which++) { /* the shorter one first, too */
            const size_t sizes[2] = {which ? second_size : c->size, which ? c->size : second_size};
            const uint8_t *const expected[2] = {which ? alone : c->payload, which ? c->payload : alone};
            /* with room for both, one and none */
            for (size_t fit = 0; fit < 3; fit++) {
                tp_w32_encode_job two[2] = {job, job};
                two[!which].n = second_n;
                two[0].capacity = (fit > 0 ? sizes[0] : 0) + (fit > 1 ? sizes[1] : 0);
                if (fit < 2) two[0].capacity += sizes[fit] - 128;
                two[0].payload = exact(two[0].capacity);
                two[1].scratch = NULL;
                memset(scratch, 0x77, TP_ENCODE_SCRATCH);
                uint8_t *const start = two[0].payload;
                kernels[k]->w32_encode_two(&c->shape, &two[0], &two[1]);
                const uint8_t *at = start;
                for (size_t i = 0; i < 2; i++) {
                    assert_int_equal(two[i].size, i < fit ? sizes[i] : 0);
                    if (i < fit) assert_memory_equal(at, expected[i], sizes[i]);
                    at += two[i].size;
                }
                free(start);
            }
        }
    }
    free(alone);
    free(scratch);
}

static void run_case(stream_case *c, rng *r, const tp_kernels *const *kernels, size_t kernel_count)
{
    make_case(c, r);
    decode_with_all(c, kernels, kernel_count);
    encode_with_all(c, kernels, kernel_count);
    encode_two(c, 1 + rng_below(r, c->n), kernels, kernel_count);
    free(c->src);
    free(c->payload);
}

static const uint32_t lengths[] = {1,   2,   31,   32,   33,   63,   64,   65,   127,
                                   128, 129, 1023, 1024, 1025, 2047, 2048, 3000, 7169};

static void make_tables(stream_case *c, rng *r, unsigned entries, table_kind kind)
{
    const unsigned limit = 64 * c->split.c;
    for (unsigned t = 0; t < 1u << c->selector_bits; t++) {
        static const unsigned of_64[] = {64, 20, 50, 3}; /* so that the others differ */
        const unsigned its = t ? of_64[t] : entries;
        make_table(r, (table_kind)((kind + t) % TABLE_KINDS), its < limit ? its : limit,
                   1u << c->split.s * c->split.c, 1024, &c->table[t]);
    }
}

static void test_w32(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t kernel_count = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    rng r = rng_make(10);
    for (size_t i = 0; i < shape_count; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
            for (unsigned variant = 0; variant < 6; variant++) {
                static const unsigned entries[] = {2, 16, 32, 33, 64, 128};
                static const uint32_t rare[] = {0, 100, 9, 2, 1, 40};
                stream_case c = {.split = shapes[i], .n = lengths[j], .with_low = variant % 2 == 0};
                if (!class_rules[shapes[i].cls].low) c.with_low = true;
                c.selector_bits = (variant + (unsigned)j) % 3;
                c.rare = rare[(variant + j) % 6];
                make_tables(&c, &r, entries[variant], (table_kind)(variant % TABLE_KINDS));
                run_case(&c, &r, kernels, kernel_count);
            }
}

static void test_w32_long(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t kernel_count = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    rng r = rng_make(11);
    for (size_t i = 0; i < shape_count; i++)
        for (unsigned worst = 0; worst < 2; worst++) {
            stream_case c = {
                .split = shapes[i], .n = 131072 - (uint32_t)((i + worst) % 2), .with_low = true};
            c.selector_bits = (unsigned)(i / 2 + worst) % 3;
            /* at worst almost every symbol is an exception, or most take a word */
            c.rare = worst ? 1 : 50;
            make_tables(&c, &r, worst && i % 2 ? 2 : 64,
                        worst ? TABLE_FLAT : (table_kind)(i % TABLE_KINDS));
            run_case(&c, &r, kernels, kernel_count);
        }
}

/* A table whose symbols (pairs: their halves) lie in a window first .. first + span, both ends among them.
 */
static void make_near_table(rng *r, const split_shape *split, unsigned entries, uint32_t span,
                            table_kind kind, ref_table *table)
{
    const uint32_t width = span + 1, first = rng_below(r, (1u << split->s) - span);
    make_table(r, kind, entries, split->c == 2 ? width * width : width, 1024, table);
    table->symbol[0] = 0;
    table->symbol[table->entries - 1] = (uint16_t)(split->c == 2 ? width * width - 1 : span);
    for (unsigned i = 0; i < table->entries; i++) {
        const uint32_t v = table->symbol[i];
        table->symbol[i] =
            (uint16_t)(split->c == 2 ? (first + v % width) | (first + v / width) << 8 : first + v);
    }
}

/* Kernels may look symbols up by their distance from the lowest: just possible, just not, and all kinds of
 * symbols that have no entry. */
static void test_w32_windows(void **state)
{
    (void)state;
    static const uint32_t spans[] = {1, 13, 14, 15, 16, 30, 62, 63, 125, 126, 127, 128, 253, 254, 255, 256};
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t kernel_count = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    rng r = rng_make(15);
    for (size_t i = 0; i < shape_count; i++)
        for (size_t j = 0; j < sizeof spans / sizeof *spans; j++) {
            stream_case c = {.split = shapes[i],
                             .n = 5120 + (uint32_t)j,
                             .with_low = true,
                             .selector_bits = (unsigned)j % 3,
                             .rare = j % 2 ? 2 : 50};
            if (spans[j] >= 1u << shapes[i].s) continue;
            for (unsigned t = 0; t < 1u << c.selector_bits; t++)
                make_near_table(&r, &shapes[i], 64 * shapes[i].c, spans[j],
                                (table_kind)((j + t) % TABLE_KINDS), &c.table[t]);
            run_case(&c, &r, kernels, kernel_count);
        }
}

enum { BATCH_JOBS = 26, BATCH_TABLES = 64 };
static tp_w32_table batch_tables[BATCH_TABLES];

/*
 * So many jobs at once must give what they give one by one, good ones beside bad ones, of any lengths.
 * small: with tables of at most 32 entries, which kernels may treat apart.
 */
static void run_batch(rng *r, const split_shape *split, size_t count, unsigned selector_bits, bool small,
                      const tp_kernels *const *kernels, size_t kernel_count)
{
    static stream_case c[BATCH_JOBS];
    static ref_table table[BATCH_TABLES];
    uint8_t *payload[BATCH_JOBS], *expected[BATCH_JOBS];
    unsigned first[BATCH_JOBS];
    bool good[BATCH_JOBS];
    const unsigned limit = 64 * split->c, most = small ? 32 : limit;
    const uint32_t tables = count > 13 ? BATCH_TABLES : 1 + rng_below(r, 8);
    for (unsigned t = 0; t < tables + 3; t++) { /* 3: for selectors */
        if (t == BATCH_TABLES) break;
        make_table(r, TABLE_STEEP, t % 5 == 0 ? most : 2 + rng_below(r, most - 1),
                   1u << split->s * split->c, 1024, &table[t]);
        decode_table(&table[t], split->c == 2, &batch_tables[t]);
    }
    for (size_t j = 0; j < count; j++) {
        c[j] = (stream_case){.split = *split,
                             .n = 1 + rng_below(r, count > 13 ? 2100 : 4000),
                             .with_low = true,
                             .rare = 30,
                             .selector_bits = selector_bits};
        first[j] = rng_below(r, tables > BATCH_TABLES - 3 ? BATCH_TABLES - 3 : tables);
        memcpy(c[j].table, table + first[j], sizeof *table << selector_bits);
        make_case(&c[j], r);
        payload[j] = with_slack(c[j].payload, c[j].size, 0x80);
        if (rng_below(r, 4) == 0) { /* a bad initial state, or a wrong one */
            const uint32_t lane = rng_below(r, 32);
            if (rng_below(r, 2))
                tp_store32(payload[j] + 4 * lane, rng_below(r, 2) ? rng_below(r, 1024) : 1u << 26);
            else
                payload[j][4 * lane] ^= 1; /* which may go unnoticed but for other symbols */
        }
        const ref_tables by = tables_of(&c[j]);
        expected[j] = exact(c[j].raw_size);
        good[j] =
            ref_decode(&c[j].reference, &by, payload[j], c[j].nw, c[j].nx, c[j].n, true, NULL, expected[j]);
    }
    for (size_t k = 0; k < kernel_count; k++) {
        tp_w32_job jobs[BATCH_JOBS];
        for (size_t j = 0; j < count; j++) {
            uint8_t *dst = exact(c[j].raw_size);
            memset(dst, 0x5a, c[j].raw_size);
            jobs[j] = job_of(&c[j], payload[j], NULL, &batch_tables[first[j]], dst);
        }
        const tp_shape shape = kernel_shape(split);
        kernels[k]->w32_decode(&shape, jobs, count);
        for (size_t j = 0; j < count; j++) {
            if (jobs[j].good != good[j] || (good[j] && memcmp(jobs[j].dst, expected[j], c[j].raw_size)))
                fail_msg("kernel %s, %s: job %zu of %zu, %s, comes out %s", kernels[k]->name, c[j].name, j,
                         count, good[j] ? "good" : "damaged", jobs[j].good ? "good" : "bad");
            free(jobs[j].dst);
        }
    }
    for (size_t j = 0; j < count; j++) {
        free(c[j].src);
        free(c[j].payload);
        free(payload[j]);
        free(expected[j]);
    }
}

static void test_batches(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t kernel_count = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    rng r = rng_make(12);
    for (size_t i = 0; i < shape_count; i++) {
        for (size_t count = 0; count <= 13; count++)
            for (unsigned small = 0; small < 2; small++)
                run_batch(&r, &shapes[i], count, (unsigned)(count + i) % 3, small, kernels, kernel_count);
        run_batch(&r, &shapes[i], BATCH_JOBS, 2, i % 2, kernels,
                  kernel_count); /* more tables than any set of streams needs */
    }
}

/* ----------------------------------------------------------------------------------------------- wide */

static void test_wide(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t kernel_count = all_kernels(kernels);
    const ref_shape shape = {.K = 12, .T = 8, .c = 1};
    static tp_wide_table decode;
    static tp_wide_encode_table encode;
    uint8_t *scratch = aligned_alloc(64, (TP_ENCODE_SCRATCH + 63) / 64 * 64);
    assert_non_null(scratch);
    rng r = rng_make(13);
    static const uint32_t wide_lengths[] = {1,    2,    31,   32,   33,   127,    128,   129,
                                            1023, 1024, 1025, 2048, 9999, 131071, 131072};
    for (size_t i = 0; i < sizeof wide_lengths / sizeof *wide_lengths; i++)
        for (unsigned variant = 0; variant < 6; variant++) {
            static const unsigned entries[] = {2, 3, 16, 100, 255, 256};
            const uint32_t n = wide_lengths[i];
            ref_table table;
            uint16_t F[256];
            uint8_t record[512];
            make_table(&r, (table_kind)(variant % TABLE_KINDS), entries[variant], 256, 4096, &table);
            table_to_wide(&table, F);
            tp_wide_record_store(F, record);
            tp_wide_table_init(record, &decode);
            tp_wide_encode_table_init(F, &encode);
            uint8_t *src = exact(n), *expected = exact(ref_bound(&shape, n));
            make_elements(&r, &shape, &table, 0, src, n);
            if (variant == 5) /* the rare ones: the most words */
                for (uint32_t at = 0; at < n; at++)
                    src[at] = (uint8_t)table.symbol[rng_below(&r, table.entries)];
            uint32_t nw, nx;
            const size_t size =
                ref_encode(&shape, &(ref_tables){.tables = &table}, src, n, false, expected, &nw, &nx);
            assert_int_equal(nx, 0);
            for (size_t k = 0; k < kernel_count; k++) {
                uint32_t made_nw;
                uint8_t *payload = exact(size);
                memset(scratch, 0x77, TP_ENCODE_SCRATCH);
                const size_t made =
                    kernels[k]->wide_encode(src, n, &encode, payload, size, scratch, &made_nw);
                if (made != size || made_nw != nw || memcmp(payload, expected, size))
                    fail_msg("kernel %s encodes %u bytes (%u entries) differently", kernels[k]->name, n,
                             table.entries);
                free(payload);
                payload = exact(size - 128);
                assert_int_equal(
                    kernels[k]->wide_encode(src, n, &encode, payload, size - 128, scratch, &made_nw), 0);
                free(payload);

                payload = with_slack(expected, size, 0xff);
                uint8_t *dst = exact(n);
                tp_wide_job job = {.payload = payload, .table = &decode, .dst = dst, .n = n, .nw = nw};
                kernels[k]->wide_decode(&job, 1);
                if (!job.good || memcmp(dst, src, n))
                    fail_msg("kernel %s does not decode %u bytes (%u entries)", kernels[k]->name, n,
                             table.entries);
                job.nw = nw + 1;
                kernels[k]->wide_decode(&job, 1);
                assert_false(job.good);
                if (nw) {
                    job.nw = nw - 1;
                    kernels[k]->wide_decode(&job, 1);
                    assert_false(job.good);
                }
                job.nw = nw;
                tp_store32(payload + 4 * rng_below(&r, 32), variant % 2 ? 4095 : 4096u << 16);
                kernels[k]->wide_decode(&job, 1);
                assert_false(job.good);
                free(payload);
                free(dst);
            }
            free(src);
            free(expected);
        }
    free(scratch);
}

static void test_wide_batches(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t kernel_count = all_kernels(kernels);
    const ref_shape shape = {.K = 12, .T = 8, .c = 1};
    static tp_wide_table decode[2];
    enum { JOBS = 7 };
    ref_table table[2];
    rng r = rng_make(14);
    for (unsigned t = 0; t < 2; t++) {
        uint16_t F[256];
        uint8_t record[512];
        make_table(&r, TABLE_STEEP, t ? 200 : 20, 256, 4096, &table[t]);
        table_to_wide(&table[t], F);
        tp_wide_record_store(F, record);
        tp_wide_table_init(record, &decode[t]);
    }
    for (size_t count = 0; count <= JOBS; count++) {
        uint8_t *src[JOBS], *payload[JOBS];
        uint32_t n[JOBS], nw[JOBS], nx, broken = 0;
        for (size_t j = 0; j < count; j++) {
            n[j] = 1 + rng_below(&r, 5000);
            src[j] = exact(n[j]);
            make_elements(&r, &shape, &table[j % 2], 0, src[j], n[j]);
            payload[j] = exact(ref_bound(&shape, n[j]) + TP_SLACK);
            memset(payload[j], 0, ref_bound(&shape, n[j]) + TP_SLACK);
            ref_encode(&shape, &(ref_tables){.tables = &table[j % 2]}, src[j], n[j], false, payload[j],
                       &nw[j], &nx);
            if (rng_below(&r, 3) == 0) {
                tp_store32(payload[j] + 4 * rng_below(&r, 32), 1u << 28);
                broken |= 1u << j;
            }
        }
        for (size_t k = 0; k < kernel_count; k++) {
            tp_wide_job jobs[JOBS];
            for (size_t j = 0; j < count; j++)
                jobs[j] = (tp_wide_job){.payload = payload[j],
                                        .table = &decode[j % 2],
                                        .dst = exact(n[j]),
                                        .n = n[j],
                                        .nw = nw[j]};
            if (count) kernels[k]->wide_decode(jobs, count);
            for (size_t j = 0; j < count; j++) {
                const bool good = !(broken >> j & 1);
                assert_int_equal(jobs[j].good, good);
                if (good) assert_memory_equal(jobs[j].dst, src[j], n[j]);
                free(jobs[j].dst);
            }
        }
        for (size_t j = 0; j < count; j++) {
            free(src[j]);
            free(payload[j]);
        }
    }
}

/* ------------------------------------------------------------------------------------------- by hand */

/*
 * One bf16 element of 1.0 = 0x3f80, s = 9. u = 0x3f80 rotated left by one = 0x7f00; symbol = u >> 7 = 0xfe,
 * raw bits 0. The table has 0xfe with F = 1023 from slot 0 and 0xff with F = 1. Padding is coded as 0xfe
 * too, so all 1024 symbols are 0xfe. A decoding step from state x in slot i < 1023 gives 1023 (x >> 10) +
 * i; every lane takes 32 steps and must end at 1024 without a word. Backwards, x -> (x / 1023 << 10) + x
 * mod 1023 makes 1024 -> 1025 -> 1026 ... so that after 32 steps the state is 1056.
 */
static void test_by_hand(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t kernel_count = all_kernels(kernels);
    const tp_shape shape = {.T = 16, .R = 7, .low = 0, .c = 1, .rotated = true};
    uint8_t record[256] = {0xff, 0x03, 0xfe, 0x00, 0x01, 0x00, 0xff, 0x00};
    static tp_w32_table table;
    tp_w32_table_init(record, false, &table);
    const size_t size = 128 + 7 * 128;
    uint8_t payload[128 + 7 * 128 + TP_SLACK] = {0};
    for (unsigned lane = 0; lane < 32; lane++) tp_store32(payload + 4 * lane, 1056);
    for (size_t k = 0; k < kernel_count; k++) {
        uint8_t dst[2] = {0};
        tp_w32_job job = {.payload = payload, .words = payload + size, .table = &table, .dst = dst, .n = 1};
        kernels[k]->w32_decode(&shape, &job, 1);
        assert_true(job.good);
        assert_int_equal(tp_load16(dst), 0x3f80);
    }
    /*
     * The same with sign, low mantissa bits and an exception: elements 0xbf81 (u = 0x7f03, symbol 0xfe, raw
     * bits 3) and 0x4000 (u = 0x8000, symbol 0x100, no entry). Both lie in row 0, lane 0. u's bit 0 is the
     * sign: bit 15 of the top part and u's bit 1 is the top part's bit 0, so word 0 of lane 0 is 0x8001.
     */
    tp_store32(payload + 128, 0x8001);
    tp_store32(payload + size, 1 | 0x100u << 18);
    for (size_t k = 0; k < kernel_count; k++) {
        uint8_t dst[4] = {0};
        tp_w32_job job = {
            .payload = payload, .words = payload + size, .table = &table, .dst = dst, .n = 2, .nx = 1};
        kernels[k]->w32_decode(&shape, &job, 1);
        assert_true(job.good);
        assert_int_equal(tp_load32(dst), 0x4000bf81);
    }
    /* A state one off ends one off; a state out of range is refused. */
    static const uint32_t wrong[] = {1055, 1057, 1023, 0, 1u << 26, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t k = 0; k < kernel_count; k++) {
            uint8_t dst[4];
            uint8_t *copy = exact_copy(payload, sizeof payload);
            tp_store32(copy + 4 * 31, wrong[i]);
            tp_w32_job job = {.payload = copy, .words = copy + size, .table = &table, .dst = dst, .n = 2};
            kernels[k]->w32_decode(&shape, &job, 1);
            assert_false(job.good);
            free(copy);
        }
}

/*
 * A wide stream by the same arithmetic: 'a' has F = 4095 from slot 0, 'b' F = 1, padding is coded as 'a'. A
 * lane of 'a' alone starts at 4096 + 32. "baa": lane 0 has 'b' in its first step, and 31 times 'a',
 * backwards to 4127, then 'b' makes 4127 * 4096 + 4095 of it. "bba": 30 times 'a' makes 4126, the second
 * 'b' x = 4126 * 4096 + 4095; that is not below 1 * 2^16, so the first 'b' writes the word x mod 2^16 and
 * goes on from x >> 16 = 257.
 */
static void test_wide_by_hand(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t kernel_count = all_kernels(kernels);
    uint8_t record[512] = {0}, payload[256 + TP_SLACK] = {0};
    static tp_wide_table table;
    tp_store16(record + 2 * 'a', 4095);
    tp_store16(record + 2 * 'b', 1);
    tp_wide_table_init(record, &table);
    for (unsigned lane = 0; lane < 32; lane++) tp_store32(payload + 4 * lane, 4096 + 32);
    for (size_t k = 0; k < kernel_count; k++) {
        uint8_t dst[3] = {0};
        tp_store32(payload, 4127u * 4096 + 4095);
        tp_wide_job job = {.payload = payload, .table = &table, .dst = dst, .n = 3};
        kernels[k]->wide_decode(&job, 1);
        assert_true(job.good);
        assert_memory_equal(dst, "baa", 3);

        tp_store16(payload + 128, (4126u * 4096 + 4095) & 0xffff);
        tp_store32(payload, 257u * 4096 + 4095);
        job.nw = 1;
        kernels[k]->wide_decode(&job, 1);
        assert_true(job.good);
        assert_memory_equal(dst, "bba", 3);
    }
}

int run_streams(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),     cmocka_unit_test(test_wide_by_hand),
        cmocka_unit_test(test_w32),         cmocka_unit_test(test_w32_long),
        cmocka_unit_test(test_w32_windows), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_wide),        cmocka_unit_test(test_wide_batches),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
