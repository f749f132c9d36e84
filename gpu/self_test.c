#include "gpu/self_test.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/df11.h"
#include "codec/hash.h"
#include "codec/kernels/geometry.h"
#include "codec/table.h"

#define INPUT ((size_t)6 << 20)
#define OUTPUT ((size_t)4 << 20)
#define GUARD 64
#define UNTOUCHED 0xa5
#define MAX_JOBS 1024

static const uint32_t sizes[] = {1, 2, 33, 1023, 1024, 1025, 1536, 2048, 5001, 9000};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef enum pattern { BELL, TWO_SYMBOLS, FLAT, DAMAGED, PATTERNS } pattern;

/* Some of everything that a launch needs, made up on the host. */
typedef struct test {
    tp_device *device;
    tp_kernel_id kernel;
    uint8_t *input, *expected; /* INPUT, OUTPUT bytes */
    size_t input_used, output_used;
    tp_jobs jobs;
    u64 expect_result[MAX_JOBS];
    bool expect_output[MAX_JOBS]; /* of a damaged job only the surroundings count */
    size_t job_out[MAX_JOBS], job_bytes[MAX_JOBS];
    uint64_t random;
    tp_log2 log2;
    tp_w32_encode_table tables[4];
    uint32_t counts[65536];
    uint8_t source[16384 * 8];
    uint8_t scratch[TP_ENCODE_SCRATCH] __attribute__((aligned(64)));
} test;

static uint32_t next_random(test *t)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->random >> 33);
}

/* Symbols as weights have them: around a middle, each step away half as likely. */
static uint32_t random_symbol(test *t, unsigned bits, pattern kind)
{
    const uint32_t mask = (1u << bits) - 1, middle = 3u << (bits - 2);
    if (kind == FLAT) return next_random(t) & mask;
    if (kind == TWO_SYMBOLS) return next_random(t) % 1024 ? middle : middle + 1;
    if (next_random(t) % 512 == 0) return next_random(t) & mask;
    const uint32_t away = (uint32_t)__builtin_ctz(next_random(t) | 1u << 12);
    return (next_random(t) & 1 ? middle + away / 2 : middle - away) & mask;
}

static void make_elements(test *t, const tp_shape *shape, uint32_t n, pattern kind)
{
    const size_t element = tp_shape_element(shape);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *e = t->source + i * element;
        const uint32_t top = tp_symbol_bits(*shape, random_symbol(t, shape->T - shape->R, kind)) |
                             (next_random(t) & tp_field(*shape, 0, shape->R) & ((1u << shape->T) - 1));
        for (unsigned y = 0; y < shape->low; y++) e[y] = (uint8_t)next_random(t);
        memcpy(e + shape->low, &top, shape->T / 8u);
    }
}

/* A job that fills so many bytes of the output. */
static tp_planned_job *add_job_at(test *t, size_t at, size_t bytes, u64 result)
{
    if (t->jobs.count == MAX_JOBS || at + bytes + GUARD > OUTPUT) return NULL;
    if (t->jobs.count == t->jobs.capacity) {
        tp_planned_job *list = realloc(t->jobs.list, MAX_JOBS * sizeof *list);
        if (!list) return NULL;
        t->jobs.list = list;
        t->jobs.capacity = MAX_JOBS;
    }
    t->output_used = at + bytes;
    const uint32_t number = (uint32_t)t->jobs.count;
    t->expect_result[number] = result;
    t->expect_output[number] = true;
    t->job_out[number] = at;
    t->job_bytes[number] = bytes;
    tp_planned_job *job = &t->jobs.list[t->jobs.count++];
    *job = (tp_planned_job){.kernel = (uint16_t)t->kernel};
    job->job.out = at;
    job->job.result = number;
    t->jobs.results = number + 1;
    return job;
}

/* The same where there is room in the output, with a guard around it. */
static tp_planned_job *add_job(test *t, size_t bytes, u64 result)
{
    return add_job_at(t, tp_align(t->output_used + GUARD, 256), bytes, result);
}

/* -------------------------------------------------------------------------------------------- streams */

/* Those of every step-th group. */
static void count_pairs(test *t, const tp_shape *shape, uint32_t n, uint32_t step)
{
    const size_t element = tp_shape_element(shape);
    for (size_t i = 0; i + 2 <= n; i += 2) {
        const uint8_t *top = t->source + i * element + shape->low;
        if (i / TP_GROUP % step == 0)
            t->counts[tp_symbol_of(*shape, tp_load16(top)) | tp_symbol_of(*shape, tp_load16(top + element))
                                                                 << 8]++;
    }
}

/* The tables of a stream into the input: of the source's own symbols, and for a second and more of others'.
 */
static u64 make_tables(test *t, const tp_shape *shape, uint32_t n, unsigned selector_bits, pattern kind)
{
    const u64 at = t->input_used;
    const uint32_t alphabet = 1u << (shape->T - shape->R) * shape->c;
    for (unsigned i = 0; i < 1u << selector_bits; i++) {
        tp_symbol_record record;
        memset(t->counts, 0, sizeof t->counts);
        if (shape->c == 2)
            count_pairs(t, shape, n, i + 1);
        else
            tp_kernels_portable.count_symbols(shape, t->source, n, i + 1, NULL, 1, t->counts);
        t->counts[random_symbol(t, shape->T - shape->R, kind)]++; /* so that there is one */
        tp_symbol_record_build(&t->log2, t->counts, alphabet, alphabet, 64u * shape->c, &record);
        tp_symbol_record_store(&record, shape->c == 2, t->input + t->input_used);
        tp_w32_encode_table_init(&record, alphabet, &t->tables[i]);
        t->input_used += 256u * shape->c;
    }
    t->input_used = tp_align(t->input_used, 128);
    return at;
}

/* Damages a stream so that it cannot end well: its last state, or a word too few. */
static void damage(test *t, tp_gpu_job *job)
{
    t->expect_result[job->result] = TP_JOB_BAD;
    t->expect_output[job->result] = false;
    if (job->nw > 0 && next_random(t) & 1)
        job->nw--;
    else
        memset(t->input + job->in, 0xff, 4);
    job->nx = 0;
}

static bool add_w32(test *t, const tp_kernel_shape *k, uint32_t n, unsigned selector_bits, pattern kind)
{
    const uint8_t low = !k->strided ? k->low : k->T == 8 ? 1 : k->R < 6 ? 6 : 2;
    const tp_shape shape = {.T = k->T, .R = k->R, .low = low, .c = k->c, .rotated = k->rotated};
    const uint32_t element = (uint32_t)tp_shape_element(&shape), skip = k->strided ? low : 0;
    uint8_t selectors[64];
    make_elements(t, &shape, n, kind);
    for (size_t g = 0; g < sizeof selectors; g++)
        selectors[g] = (uint8_t)(next_random(t) & ((1u << selector_bits) - 1));
    const u64 table = make_tables(t, &shape, n, selector_bits, kind);
    const size_t room = (INPUT - t->input_used - TP_INPUT_SLACK) / 128 * 128;
    tp_w32_encode_job encode = {.src = t->source,
                                .n = n,
                                .with_low = !k->strided,
                                .table = t->tables,
                                .selectors = selector_bits ? selectors : NULL,
                                .selector_bits = (uint8_t)selector_bits,
                                .payload = t->input + t->input_used,
                                .capacity = room,
                                .scratch = t->scratch};
    tp_kernels_portable.w32_encode(&shape, &encode);
    tp_planned_job *job = encode.size ? add_job(t, (size_t)n * element, TP_JOB_GOOD) : NULL;
    if (!job) return false;
    job->job.in = t->input_used;
    job->job.table = table;
    job->job.n = n;
    job->job.nw = encode.nw;
    job->job.nx = encode.nx;
    job->job.stride = element;
    job->job.tables = selector_bits;
    for (uint32_t i = 0; i < n; i++)
        memcpy(t->expected + job->job.out + (size_t)i * element, t->source + (size_t)i * element + skip,
               element - skip);
    if (kind == DAMAGED) damage(t, &job->job);
    t->input_used += encode.size;
    return true;
}

static bool add_wide(test *t, const tp_kernel_shape *k, uint32_t n, uint32_t stride, pattern kind)
{
    uint32_t counts[256] = {0};
    uint16_t F[256];
    tp_wide_encode_table table;
    const u64 table_at = t->input_used;
    if (!k->strided) stride = 1;
    for (uint32_t i = 0; i < n; i++) counts[t->source[i] = (uint8_t)random_symbol(t, 8, kind)]++;
    tp_wide_record_build(&t->log2, counts, F);
    tp_wide_record_store(F, t->input + table_at);
    tp_wide_encode_table_init(F, &table);
    t->input_used += 512;
    const size_t room = (INPUT - t->input_used - TP_INPUT_SLACK) / 128 * 128;
    uint32_t nw = 0;
    const size_t size = tp_kernels_portable.wide_encode(t->source, n, &table, t->input + t->input_used,
                                                        room, t->scratch, &nw);
    tp_planned_job *job = size ? add_job(t, (size_t)n * stride, TP_JOB_GOOD) : NULL;
    if (!job) return false;
    job->job.in = t->input_used;
    job->job.table = table_at;
    job->job.n = n;
    job->job.nw = nw;
    job->job.stride = stride;
    for (uint32_t i = 0; i < n; i++) t->expected[job->job.out + (size_t)i * stride] = t->source[i];
    if (kind == DAMAGED) damage(t, &job->job);
    t->input_used += size;
    return true;
}

static bool add_streams(test *t, const tp_kernel_shape *k)
{
    for (unsigned i = 0; i < SIZES; i++) {
        for (unsigned kind = 0; kind < PATTERNS; kind++) {
            const bool good = k->K == 12 ? add_wide(t, k, sizes[i], 2u << (i + kind) % 3, kind)
                                         : add_w32(t, k, sizes[i], (i + kind) % 3, kind);
            if (!good) return false;
        }
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- DFloat11 */

/*
 * Usual exponents; one only; all that can be; codes of 1 to 32 bits, as many of each; codes of 63 times 1
 * bit, 32, and 3 times 11 bits, so that look-ups end with windows; usual ones and a wrong gap; codes of 1
 * to 32 bits, the last of which reaches into a block of its own, whose gap tells where to, and the same
 * with a wrong one.
 */
typedef enum exponents {
    USUAL,
    ONLY_ONE,
    ALL,
    LONG_CODES,
    FULL_WINDOWS,
    WRONG_GAP,
    LONG_END,
    WRONG_END,
    EXPONENTS
} exponents;

static bool is_long(exponents kind)
{
    return kind == LONG_CODES || kind == FULL_WINDOWS || kind == LONG_END || kind == WRONG_END;
}

static uint8_t random_exponent(test *t, exponents kind, uint32_t i, const uint8_t by_length[33])
{
    static const uint8_t lengths[] = {32, 11, 11, 11};
    if (kind == ONLY_ONE) return 120;
    if (kind == ALL) return (uint8_t)(next_random(t) % TP_DF11_SYMBOLS);
    if (kind == FULL_WINDOWS) return by_length[i % 67 < 63 ? 1 : lengths[i % 67 - 63]];
    if (is_long(kind)) return by_length[1 + next_random(t) % 32];
    return (uint8_t)(random_symbol(t, 8, BELL) % TP_DF11_SYMBOLS);
}

/* n elements to the source and a code for them; for long ones one with every length, whatever they are. */
static bool make_code(test *t, exponents kind, uint32_t n, tp_df11_code *code)
{
    uint64_t counts[256] = {0}, more = 1;
    uint8_t by_length[33] = {0};
    for (uint32_t i = 0; is_long(kind) && i < 32; i++) {
        counts[100 + i] = more; /* Fibonacci's numbers: each code is one bit longer than the next */
        more += i ? counts[99 + i] : 0;
    }
    if (is_long(kind) && tp_df11_code_make(counts, code, NULL) != TP_OK) return false;
    for (uint32_t i = 0; is_long(kind) && i < 32; i++)
        by_length[code->length[100 + i]] = (uint8_t)(100 + i);
    for (uint32_t length = 1; is_long(kind) && length <= 32; length++)
        if (!by_length[length]) return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t e = random_exponent(t, kind, i, by_length);
        tp_store16(t->source + 2 * i,
                   (uint16_t)(e << 7 | next_random(t) % 128 | (next_random(t) & 1) << 15));
        if (!is_long(kind)) counts[e]++;
    }
    return is_long(kind) || tp_df11_code_make(counts, code, NULL) == TP_OK;
}

static unsigned code_length(const test *t, const tp_df11_code *code, uint32_t i)
{
    return code->length[tp_load16(t->source + 2 * i) >> 7 & 255];
}

/* So many of the n elements that the last one's code begins in one block and ends within another; 0: it
 * cannot be. */
static uint32_t cut_across(const test *t, const tp_df11_code *code, uint32_t n)
{
    uint32_t cut = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t block = at / (8 * TP_DF11_BLOCK);
        at += code_length(t, code, i);
        if (at / (8 * TP_DF11_BLOCK) > block && at % 8 != 0) cut = i + 1;
    }
    return cut;
}

/* Exclusive or with a gap's five bits. */
static void flip_gap(uint8_t *gaps, size_t window, unsigned value)
{
    for (unsigned b = 0; b < 5; b++) {
        const size_t bit = 5 * window + b;
        gaps[bit / 8] ^= (uint8_t)((value >> (4 - b) & 1) << (7 - bit % 8));
    }
}

/* A unit of n elements or fewer, one code after the other, as the arrays of a frame's payload. */
static bool add_df11(test *t, uint32_t n, exponents kind)
{
    tp_df11_code code;
    tp_df11_table tables;
    if (!make_code(t, kind, n, &code)) return false;
    if (kind == LONG_END || kind == WRONG_END) n = cut_across(t, &code, n);
    if (n == 0) return true;
    if (tp_df11_table_make(code.luts, 256 * (uint64_t)code.rows, &tables, NULL) != TP_OK) return false;
    uint64_t bits = 0;
    for (uint32_t i = 0; i < n; i++) bits += code_length(t, &code, i);
    const size_t stream_bytes = (size_t)(bits + 7) / 8,
                 blocks = (stream_bytes + TP_DF11_BLOCK - 1) / TP_DF11_BLOCK;
    const size_t table_at = t->input_used, payload_at = table_at + tp_align(sizeof tables, 128);
    const size_t gaps_at = payload_at + tp_align(4 * (blocks + 1), 128);
    const size_t stream_at = gaps_at + tp_align(blocks * TP_DF11_BLOCK_GAPS, 128);
    const size_t sign_mantissa_at = stream_at + tp_align(stream_bytes, 128);
    t->input_used = sign_mantissa_at + tp_align(n, 128);
    if (t->input_used + TP_INPUT_SLACK > INPUT) return false;
    memcpy(t->input + table_at, &tables, sizeof tables);

    uint8_t *const positions = t->input + payload_at, *const gaps = t->input + gaps_at;
    uint8_t *const stream = t->input + stream_at;
    uint64_t at = 0;
    uint32_t windows = 0, starting = 0; /* in which a code starts */
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t element = tp_load16(t->source + 2 * i);
        const uint8_t e = (uint8_t)(element >> 7);
        for (; starting <= at / (8 * TP_DF11_BLOCK); starting++) tp_store32(positions + 4 * starting, i);
        if (windows <= at / 64) {
            windows = (uint32_t)(at / 64) + 1;
            flip_gap(gaps, windows - 1, at % 64);
        }
        for (unsigned b = code.length[e]; b-- > 0; at++)
            stream[at / 8] |= (uint8_t)((code.word[e] >> b & 1) << (7 - at % 8));
        t->input[sign_mantissa_at + i] = (uint8_t)((element >> 8 & 0x80) | (element & 0x7f));
    }
    for (uint32_t g = starting; g <= blocks; g++) tp_store32(positions + 4 * g, n);

    uint32_t wrong = UINT32_MAX; /* block */
    if (kind == WRONG_GAP) {
        /* Not the gap of a block's first window, which is two blocks' business; that of all is one's. */
        uint32_t window = next_random(t) % windows;
        if (window % TP_DF11_BLOCK_WINDOWS == 0) window = windows > 1 ? 1 : 0;
        flip_gap(gaps, window, 1 + next_random(t) % 31);
        wrong = window / TP_DF11_BLOCK_WINDOWS;
    }
    if (kind == LONG_END || kind == WRONG_END) {
        const unsigned end = bits % 64; /* 1 to 31 */
        flip_gap(gaps, windows, kind == LONG_END ? end : end < 31 ? end + 1 : end - 1);
        if (kind == WRONG_END) wrong = starting - 1;
    }
    const size_t out = tp_align(t->output_used + GUARD, 256);
    if (out + 2 * (size_t)n + GUARD > OUTPUT) return false;
    for (uint32_t g = 0; g < starting; g++) {
        const uint32_t first = tp_load32(positions + 4 * g), end = tp_load32(positions + 4 * (g + 1));
        const bool good = g != wrong;
        tp_planned_job *job = add_job_at(t, out + 2 * (size_t)first, 2 * ((size_t)end - first),
                                         good ? TP_JOB_GOOD : TP_JOB_BAD);
        if (!job) return false;
        t->expect_output[job->job.result] = good;
        job->job.in = payload_at;
        job->job.out = out;
        job->job.table = table_at;
        job->job.n = n;
        job->job.nw = (uint32_t)stream_bytes;
        job->job.nx = g;
        job->job.unit = first;
        job->job.stride = end - first;
    }
    memcpy(t->expected + out, t->source, 2 * (size_t)n);
    return true;
}

static bool add_df11_units(test *t)
{
    /* 32768 codes of one bit fill a block. */
    static const uint32_t elements[] = {1, 2, 33, 1500, 20000, 32767, 32768, 32769, 65536};
    for (unsigned i = 0; i < sizeof elements / sizeof *elements; i++)
        for (unsigned kind = 0; kind < EXPONENTS; kind++)
            if (!add_df11(t, elements[i], kind)) return false;
    return true;
}

/* --------------------------------------------------------------------------------------- other kernels */

static bool add_copies(test *t)
{
    static const uint32_t units[] = {1, 2, 4, 8}, strides[] = {1, 2, 4, 8};
    for (unsigned i = 0; i < SIZES; i++) {
        for (unsigned u = 0; u < 4; u++) {
            for (unsigned s = 0; s < 4; s++) {
                const uint32_t n = sizes[i] / 4 + 1, unit = units[u], stride = strides[s],
                               from = next_random(t) & 15;
                if (stride < unit || (unit > 2 && stride != unit)) continue;
                if (t->input_used + from + (size_t)n * unit + TP_INPUT_SLACK > INPUT) return false;
                tp_planned_job *job = add_job(t, (size_t)n * stride, TP_JOB_GOOD);
                if (!job) return false;
                job->job.n = n;
                job->job.unit = unit;
                job->job.stride = stride;
                if (t->kernel == tp_fill_kernel) {
                    job->job.table = (u64)next_random(t) << 32 | next_random(t) << 1;
                    if (unit < 8) job->job.table &= ((u64)1 << 8 * unit) - 1;
                    for (uint32_t k = 0; k < n; k++)
                        memcpy(t->expected + job->job.out + (size_t)k * stride, &job->job.table, unit);
                    continue;
                }
                job->job.in = t->input_used + (i & 1 ? from : 0);
                for (size_t k = 0; k < (size_t)n * unit; k++)
                    t->input[job->job.in + k] = (uint8_t)next_random(t);
                for (uint32_t k = 0; k < n; k++)
                    memcpy(t->expected + job->job.out + (size_t)k * stride,
                           t->input + job->job.in + (size_t)k * unit, unit);
                t->input_used = tp_align(job->job.in + (size_t)n * unit, 128);
            }
        }
    }
    return true;
}

/* Hashes read what is expected to be there: the output is uploaded first. */
static bool add_hashes(test *t)
{
    for (uint32_t n = 1; n < 300000; n += n < 300 ? 1 : n / 3) {
        tp_planned_job *job = add_job(t, n, 0);
        if (!job) return false;
        for (uint32_t i = 0; i < n; i++) t->expected[job->job.out + i] = (uint8_t)next_random(t);
        job->job.n = n;
        t->expect_result[job->job.result] = tp_hash64(t->expected + job->job.out, n);
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- running */

typedef struct memories {
    tp_stream stream;
    tp_memory input, output, jobs, results;
    tp_arranged arranged;
    uint8_t *actual; /* OUTPUT bytes */
    u64 results_back[MAX_JOBS];
} memories;

static tp_status run(test *t, memories *m, tp_error *error)
{
    const tp_backend *b = t->device->backend;
    m->actual = malloc(OUTPUT);
    if (!m->actual) return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    tp_status status = b->stream_create(t->device, &m->stream, error);
    if (status == TP_OK) status = b->memory_create(t->device, INPUT, &m->input, error);
    if (status == TP_OK) status = b->memory_create(t->device, OUTPUT, &m->output, error);
    if (status != TP_OK) return status;
    const u64 base = t->device->one_address_space ? m->output.address : 0;
    for (size_t i = 0; i < t->jobs.count; i++) t->jobs.list[i].job.out += base;
    if (tp_jobs_arrange(&t->jobs, t->device->max_warps, &m->arranged) != TP_OK)
        return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    const size_t jobs = m->arranged.job_count * sizeof(tp_gpu_job);
    memcpy(m->actual, t->expected, OUTPUT);
    if (t->kernel != tp_hash_kernel) memset(m->actual, UNTOUCHED, OUTPUT);
    status = b->memory_create(t->device, jobs, &m->jobs, error);
    if (status == TP_OK) status = b->memory_create(t->device, sizeof m->results_back, &m->results, error);
    if (status == TP_OK) status = b->upload(&m->stream, &m->input, 0, t->input, INPUT, error);
    if (status == TP_OK) status = b->upload(&m->stream, &m->output, 0, m->actual, OUTPUT, error);
    if (status == TP_OK) status = b->upload(&m->stream, &m->jobs, 0, m->arranged.jobs, jobs, error);
    if (status == TP_OK) status = b->clear(&m->stream, &m->results, 0, sizeof m->results_back, error);
    tp_memory everywhere;
    tp_memory_none(&everywhere);
    for (size_t i = 0; i < m->arranged.range_count && status == TP_OK; i++) {
        const tp_job_range *range = &m->arranged.ranges[i];
        status = b->launch(&m->stream,
                           &(tp_launch){.kernel = range->kernel,
                                        .input = &m->input,
                                        .output = t->device->one_address_space ? &everywhere : &m->output,
                                        .jobs = &m->jobs,
                                        .results = &m->results,
                                        .jobs_at = range->first * sizeof(tp_gpu_job),
                                        .groups = range->groups,
                                        .warps = range->warps,
                                        .local_bytes = range->local_bytes},
                           error);
    }
    if (status == TP_OK) status = b->wait(&m->stream, error);
    if (status == TP_OK) status = b->download(&m->stream, &m->output, 0, m->actual, OUTPUT, error);
    if (status == TP_OK)
        status = b->download(&m->stream, &m->results, 0, m->results_back, sizeof m->results_back, error);
    if (status == TP_OK) status = b->wait(&m->stream, error);
    return status;
}

static void release(const test *t, memories *m)
{
    const tp_backend *b = t->device->backend;
    if (m->stream.device) b->stream_destroy(&m->stream);
    tp_memory *const all[] = {&m->input, &m->output, &m->jobs, &m->results};
    for (size_t i = 0; i < 4; i++)
        if (all[i]->device) b->memory_destroy(all[i]);
    tp_arranged_free(&m->arranged);
    free(m->actual);
}

static tp_status compare(const test *t, memories *m, tp_error *error)
{
    const char *name = tp_kernel_shape_of(t->kernel)->name;
    for (size_t i = 0; i < t->jobs.count; i++) {
        if (m->results_back[i] != t->expect_result[i])
            return tp_error_set(error, TP_MISMATCH,
                                "%s: kernel %s: job %zu: result %llx where %llx was expected",
                                t->device->info.name, name, i, (unsigned long long)m->results_back[i],
                                (unsigned long long)t->expect_result[i]);
        if (!t->expect_output[i])
            memcpy(m->actual + t->job_out[i], t->expected + t->job_out[i], t->job_bytes[i]);
    }
    for (size_t i = 0, job = 0; i < OUTPUT; i++) {
        if (m->actual[i] == t->expected[i]) continue;
        while (job + 1 < t->jobs.count && t->job_out[job + 1] <= i) job++;
        return tp_error_set(error, TP_MISMATCH, "%s: kernel %s: job %zu of %zu: byte %zd of %zu is wrong",
                            t->device->info.name, name, job, t->jobs.count,
                            (ssize_t)i - (ssize_t)t->job_out[job], t->job_bytes[job]);
    }
    return TP_OK;
}

tp_status tp_kernel_device_test(tp_device *device, tp_kernel_id kernel, tp_error *error)
{
    test *t = aligned_alloc(64, tp_align(sizeof *t, 64));
    if (!t) return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    memset(t, 0, sizeof *t);
    memories m = {.actual = NULL};
    t->device = device;
    t->kernel = kernel;
    t->random = 0x9e3779b97f4a7c15u + kernel;
    t->input = calloc(1, INPUT);
    t->expected = malloc(OUTPUT);
    tp_status status = TP_OK;
    if (!t->input || !t->expected) {
        status = tp_error_set(error, TP_NO_MEMORY, "out of memory");
    } else {
        memset(t->expected, UNTOUCHED, OUTPUT);
        tp_log2_init(&t->log2);
        const tp_kernel_shape *shape = tp_kernel_shape_of(kernel);
        const bool made = shape->K                   ? add_streams(t, shape)
                          : kernel == tp_hash_kernel ? add_hashes(t)
                          : kernel == tp_df11_kernel ? add_df11_units(t)
                                                     : add_copies(t);
        if (!made)
            status = tp_error_set(error, TP_LIMIT, "kernel %s: its self-test does not fit", shape->name);
    }
    if (status == TP_OK) status = run(t, &m, error);
    if (status == TP_OK) status = compare(t, &m, error);
    release(t, &m);
    tp_jobs_free(&t->jobs);
    free(t->input);
    free(t->expected);
    free(t);
    return status;
}

tp_status tp_device_self_test(tp_device *device, tp_error *error)
{
    if (!device->backend->launch) return tp_kernel_self_test(tp_kernel_active(), error);
    tp_status status = TP_OK;
    for (int i = 0; i < TP_KERNEL_COUNT && status == TP_OK; i++)
        status = tp_kernel_device_test(device, (tp_kernel_id)i, error);
    return status;
}
