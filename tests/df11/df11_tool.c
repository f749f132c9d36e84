/*
 * The DFloat11 codec for scripts: many units a run. All numbers are little-endian u64.
 *
 *   df11_tool generate ELEMENTS SEED COUNT   made-up units of all kinds
 *   df11_tool encode ELEMENTS UNITS
 *   df11_tool decode UNITS ELEMENTS          (a unit that is refused ends it)
 *   df11_tool codes COUNTS CODES             the code alone
 *   df11_tool speed MILLIONS THREADS         measures with made-up weights
 *
 * ELEMENTS, a unit: number of tensors, their numbers of elements; then the elements, u16 each.
 * UNITS, a unit: status (0, or that of tp_df11_plan_make, and then nothing else), departure, sizes in bytes
 * of the six arrays; then luts, encoded_exponent, sign_mantissa, output_positions, gaps, split_positions.
 */
#include "units.h"

#include <pthread.h>
#include <time.h>

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "df11_tool: %s: %s\n", what, why);
    exit(1);
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *f = fopen(path, mode);
    if (!f) fail(path, "cannot be opened");
    return f;
}

static void write_all(FILE *f, const void *data, size_t size)
{
    if (fwrite(data, 1, size, f) != size) fail("output", "cannot be written");
}

static void read_all(FILE *f, void *data, size_t size)
{
    if (fread(data, 1, size, f) != size) fail("input", "ends too early");
}

static void close_output(FILE *f)
{
    if (fclose(f)) fail("output", "cannot be written");
}

static int generate(const char *path, uint64_t state, uint64_t count)
{
    FILE *f = open_file(path, "wb");
    for (uint64_t i = 0; i < count; i++) {
        /* Mostly small, some of several blocks; one to six tensors, also empty ones. */
        const size_t n = 1 + rng_below(&state, i % 16 == 0 ? 30000 : i % 4 ? 300 : 3000);
        uint16_t *elements = exact(2 * n);
        make_elements((kind)(i % KINDS), &state, elements, n);
        const uint64_t tensors = 1 + rng_below(&state, 6);
        uint64_t left = n;
        write_all(f, &tensors, 8);
        for (uint64_t t = tensors; t--;) {
            const uint64_t m = !t ? left : rng_below(&state, 4) ? rng_next(&state) % (left + 1) : 0;
            write_all(f, &m, 8);
            left -= m;
        }
        write_all(f, elements, 2 * n);
        free(elements);
    }
    close_output(f);
    return 0;
}

static int encode(const char *from, const char *to)
{
    FILE *in = open_file(from, "rb"), *out = open_file(to, "wb");
    uint64_t tensors;
    while (fread(&tensors, 1, 8, in) == 8) {
        uint64_t *numbers = exact(8 * (size_t)tensors), n = 0;
        read_all(in, numbers, 8 * (size_t)tensors);
        for (uint64_t t = 0; t < tensors; t++) n += numbers[t];
        uint16_t *elements = exact(2 * (size_t)n);
        read_all(in, elements, 2 * (size_t)n);
        owned_unit u;
        tp_error error;
        const tp_status status = encode_unit(elements, numbers, (size_t)tensors, NULL, &u, &error);
        const tp_df11_unit *x = &u.unit;
        const uint64_t header[8] = {status,      u.departure,       x->luts_size, x->encoded_size,
                                    x->elements, x->positions_size, x->gaps_size, x->split_size};
        write_all(out, header, sizeof header);
        if (!status) {
            write_all(out, x->luts, (size_t)x->luts_size);
            write_all(out, x->encoded_exponent, (size_t)x->encoded_size);
            write_all(out, x->sign_mantissa, (size_t)x->elements);
            write_all(out, x->output_positions, (size_t)x->positions_size);
            write_all(out, x->gaps, (size_t)x->gaps_size);
            write_all(out, x->split_positions, (size_t)x->split_size);
            free_unit(&u);
        }
        free(elements);
        free(numbers);
    }
    fclose(in);
    close_output(out);
    return 0;
}

static int decode(const char *from, const char *to)
{
    FILE *in = open_file(from, "rb"), *out = open_file(to, "wb");
    uint64_t header[8];
    for (uint64_t number = 0; fread(header, 1, sizeof header, in) == sizeof header; number++) {
        if (header[0]) fail(from, "holds a unit that could not be encoded");
        uint8_t *array[6];
        for (size_t i = 0; i < 6; i++) {
            array[i] = exact((size_t)header[2 + i]);
            read_all(in, array[i], (size_t)header[2 + i]);
        }
        const tp_df11_unit unit = {.luts = array[0],
                                   .encoded_exponent = array[1],
                                   .sign_mantissa = array[2],
                                   .output_positions = array[3],
                                   .gaps = array[4],
                                   .split_positions = array[5],
                                   .luts_size = header[2],
                                   .encoded_size = header[3],
                                   .elements = header[4],
                                   .positions_size = header[5],
                                   .gaps_size = header[6],
                                   .split_size = header[7]};
        tp_error error;
        uint16_t *elements = decode_unit(&unit, &error);
        if (!elements) {
            fprintf(stderr, "df11_tool: unit %llu: %s\n", (unsigned long long)number, error.message);
            return 1;
        }
        const uint64_t tensors = header[7] / 8 + 1;
        uint64_t before = 0;
        write_all(out, &tensors, 8);
        for (uint64_t t = 0; t < tensors; t++) {
            uint64_t start = header[4];
            if (t + 1 < tensors) memcpy(&start, array[5] + 8 * t, 8);
            const uint64_t n = start - before;
            write_all(out, &n, 8);
            before = start;
        }
        write_all(out, elements, 2 * (size_t)header[4]);
        free(elements);
        for (size_t i = 0; i < 6; i++) free(array[i]);
    }
    fclose(in);
    close_output(out);
    return 0;
}

static int codes(const char *from, const char *to)
{
    FILE *in = open_file(from, "rb"), *out = open_file(to, "wb");
    uint64_t counts[256];
    while (fread(counts, 1, sizeof counts, in) == sizeof counts) {
        tp_df11_code code;
        const tp_status status = tp_df11_code_make(counts, &code, NULL);
        const uint64_t header[3] = {status, status ? 0 : code.departure,
                                    status ? 0 : code.rows * UINT64_C(256)};
        write_all(out, header, sizeof header);
        write_all(out, code.luts, (size_t)header[2]);
    }
    fclose(in);
    close_output(out);
    return 0;
}

/* ------------------------------------------------------------------------------------------- speed */

#define MAX_THREADS 64
#define PARTS 128

typedef struct job {
    int index, threads;
    void (*work)(int index, int threads);
} job;

static tp_df11_part parts[PARTS];
static tp_df11_plan plan;
static tp_df11_output output;
static tp_df11_decoder decoder;
static tp_df11_workspace workspaces[MAX_THREADS];
static uint16_t *made, *decoded;

static void *run_job(void *argument)
{
    const job *j = argument;
    j->work(j->index, j->threads);
    return NULL;
}

static void on_threads(int threads, void (*work)(int index, int threads))
{
    pthread_t thread[MAX_THREADS];
    job jobs[MAX_THREADS];
    for (int i = threads; i--;) {
        jobs[i] = (job){i, threads, work};
        if (!i)
            run_job(&jobs[0]);
        else if (pthread_create(&thread[i], NULL, run_job, &jobs[i]))
            fail("speed", "no thread");
    }
    for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
}

static void count_parts(int index, int threads)
{
    for (int p = index; p < PARTS; p += threads) tp_df11_part_count(&parts[p]);
}

static void encode_parts(int index, int threads)
{
    tp_error error;
    for (int p = index; p < PARTS; p += threads)
        if (tp_df11_part_encode(&plan, &parts[p], &output, &error)) fail("speed", error.message);
}

static void decode_blocks(int index, int threads)
{
    tp_error error;
    for (uint32_t g = (uint32_t)index; g < decoder.blocks; g += (uint32_t)threads)
        if (tp_df11_decode(&decoder, g, 1, decoded + tp_df11_position(&decoder, g), &workspaces[index],
                           &error))
            fail("speed", error.message);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The best of several runs. */
static int speed(double millions, int threads)
{
    const size_t n = (size_t)(millions * 1e6);
    if (!n || threads < 1 || threads > MAX_THREADS) fail("speed", "no elements, or not so many threads");
    uint64_t state = 1;
    tp_error error = {0};
    double encoding = 1e9, decoding = 1e9;
    made = exact(2 * n);
    decoded = exact(2 * n);
    make_elements(KIND_GAUSSIAN, &state, made, n);
    output.sign_mantissa = exact(n);
    for (int i = 0; i < 9; i++) {
        double begin = now();
        for (size_t p = 0; p < PARTS; p++) {
            parts[p].elements = made + n * p / PARTS;
            parts[p].n = n * (p + 1) / PARTS - n * p / PARTS;
        }
        on_threads(threads, count_parts);
        if (tp_df11_plan_make(parts, PARTS, &plan, &error)) fail("speed", error.message);
        if (!output.gaps) {
            output.encoded_exponent = exact(plan.encoded_size);
            output.output_positions = exact(plan.positions_size);
            output.gaps = exact(plan.gaps_size);
            output.workspace = exact(plan.workspace_size);
        }
        on_threads(threads, encode_parts);
        tp_df11_plan_finish(&plan, parts, PARTS, &output);
        double end = now();
        if (end - begin < encoding) encoding = end - begin;
        const tp_df11_unit unit = {.luts = plan.code.luts,
                                   .encoded_exponent = output.encoded_exponent,
                                   .sign_mantissa = output.sign_mantissa,
                                   .output_positions = output.output_positions,
                                   .gaps = output.gaps,
                                   .luts_size = plan.luts_size,
                                   .encoded_size = plan.encoded_size,
                                   .elements = n,
                                   .positions_size = plan.positions_size,
                                   .gaps_size = plan.gaps_size};
        begin = now();
        if (tp_df11_open(&unit, &decoder, &error)) fail("speed", error.message);
        on_threads(threads, decode_blocks);
        end = now();
        if (end - begin < decoding) decoding = end - begin;
        if (memcmp(made, decoded, 2 * n) != 0) fail("speed", "decoded elements differ");
    }
    const double bits =
        8.0 * (double)(plan.luts_size + plan.encoded_size + n + plan.positions_size + plan.gaps_size);
    printf("%zu weights, %.3f bits a weight, %d threads: encode %.0f, decode %.0f million weights/s\n", n,
           bits / (double)n, threads, (double)n / encoding * 1e-6, (double)n / decoding * 1e-6);
    free(made);
    free(decoded);
    free(output.encoded_exponent);
    free(output.sign_mantissa);
    free(output.output_positions);
    free(output.gaps);
    free(output.workspace);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "generate"))
        return generate(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc == 4 && !strcmp(argv[1], "encode")) return encode(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "decode")) return decode(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "codes")) return codes(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "speed")) return speed(strtod(argv[2], NULL), atoi(argv[3]));
    fprintf(stderr, "usage: df11_tool generate|encode|decode|codes|speed ... (see its source)\n");
    return 2;
}
