/* tensorpress bench: ratio and speed in memory, by dtype, codec and CPU kernel. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/text.h"
#include "cpu.h"
#include "formats/formats.h"
#include "json.h"
#include "message.h"
#include "progress.h"
#include "synthetic.h"
#include "verbs.h"

#define FRAME TP_FRAME_MAX_RAW        /* as the container cuts large tensors of every class */
#define SYNTHETIC_FRAMES 8            /* of each class, or one for each thread */
#define FILE_SAMPLE (16 * FRAME)      /* of each dtype of a file */
#define SHORT_FRAME ((size_t)1 << 20) /* stands for a whole one where encoding is slow */
#define MAX_SAMPLES 32
#define MAX_FRAMES 2048
#define MIN_RUNS 5
#define MAX_RUNS 50
/* Seconds for all measurements of a default run, and for a codec and kernel on a dtype of a file; the five
 * runs and the sizes may take more. */
#define TIME_SYNTHETIC 12.0
#define TIME_CASE_FILE 1.0

struct sample {
    char dtype[64];
    tp_class cls;
    unsigned char *raw;
    size_t size;
};

static const struct codec {
    const char *name, *level_name;
    tp_codec_choice choice;
    tp_level level;
    bool typed; /* means nothing for plain bytes */
} codecs[] = {
    {"auto", "fast", TP_CODEC_AUTO, TP_LEVEL_FAST, false},
    {"auto", "default", TP_CODEC_AUTO, TP_LEVEL_DEFAULT, false},
    {"auto", "max", TP_CODEC_AUTO, TP_LEVEL_MAX, false},
    {"lz4", "default", TP_CODEC_LZ4, TP_LEVEL_DEFAULT, false},
    {"bg-lz4", "default", TP_CODEC_BG_LZ4, TP_LEVEL_DEFAULT, true},
    {"df11", "default", TP_CODEC_DF11, TP_LEVEL_DEFAULT, true},
    {"raw", "default", TP_CODEC_RAW, TP_LEVEL_DEFAULT, false},
};
enum { CODECS = sizeof codecs / sizeof *codecs };

/* ------------------------------------------------------------------------------- work on the frames */

enum operation {
    STORE,  /* encode whole frames, whose sizes count */
    ENCODE, /* encode for the clock, elsewhere */
    DECODE, /* what was stored */
    COPY,
    STOP
};

struct work {
    enum operation operation;
    const struct sample *sample;
    const struct codec *codec;
    size_t frames;                             /* of the sample */
    size_t count;                              /* the first frames of it, worked on by one operation */
    size_t encode_size;                        /* ENCODE: of each frame so many bytes at most */
    unsigned char *stored, *target, *restored; /* a slot for each frame */
    size_t stored_sizes[MAX_FRAMES];
    unsigned threads;
    pthread_barrier_t begin, end;
};

struct worker {
    struct work *work;
    unsigned number;
    pthread_t thread;
    tp_encoder *encoder;
    tp_decoder *decoder;
    tp_status status;
    tp_error error;
};

static size_t frame_size(const struct sample *sample, size_t frame)
{
    size_t left = sample->size - frame * FRAME;
    return left < FRAME ? left : FRAME;
}

static size_t slot_size(void)
{
    return tp_encode_bound(FRAME);
}

static void work_on(struct worker *worker)
{
    struct work *work = worker->work;
    const struct sample *sample = work->sample;
    for (size_t i = worker->number; i < work->count && worker->status == TP_OK; i += work->threads) {
        size_t size = frame_size(sample, i), made;
        const unsigned char *raw = sample->raw + i * FRAME;
        unsigned char *stored = work->stored + i * slot_size(), *back = work->restored + i * FRAME;
        switch (work->operation) {
        case STORE:
            worker->status =
                tp_encode(worker->encoder, sample->cls, work->codec->level, work->codec->choice, raw, size,
                          stored, slot_size(), &work->stored_sizes[i]);
            break;
        case ENCODE:
            if (size > work->encode_size) size = work->encode_size;
            worker->status =
                tp_encode(worker->encoder, sample->cls, work->codec->level, work->codec->choice, raw, size,
                          work->target + i * slot_size(), slot_size(), &made);
            break;
        case DECODE:
            worker->status = tp_decode(worker->decoder, stored, work->stored_sizes[i], back, FRAME, &made,
                                       &worker->error);
            break;
        case COPY:
            memcpy(back, raw, size);
            break;
        case STOP:
            break;
        }
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    for (;;) {
        pthread_barrier_wait(&worker->work->begin);
        if (worker->work->operation == STOP) return NULL;
        work_on(worker);
        pthread_barrier_wait(&worker->work->end);
    }
}

/* The calling thread is worker 0. Returns the seconds that the operation took. */
static double run_once(struct worker *workers, enum operation operation)
{
    struct work *work = workers[0].work;
    work->operation = operation;
    if (work->threads == 1) {
        double start = clock_seconds();
        work_on(&workers[0]);
        return clock_seconds() - start;
    }
    pthread_barrier_wait(&work->begin);
    double start = clock_seconds();
    work_on(&workers[0]);
    pthread_barrier_wait(&work->end);
    return clock_seconds() - start;
}

static int worker_errors(const struct worker *workers, const char *what)
{
    for (unsigned i = 0; i < workers[0].work->threads; i++) {
        if (workers[i].status == TP_OK) continue;
        const char *text =
            workers[i].error.message[0] ? workers[i].error.message : tp_status_message(workers[i].status);
        return fail(tp_status_exit_code(workers[i].status), "bench: %s: %s", what, text);
    }
    return EXIT_OK;
}

/* Raw bytes of the first `count` frames, of each `limit` at most. */
static uint64_t raw_bytes(const struct work *work, size_t limit)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < work->count; i++) {
        size_t size = frame_size(work->sample, i);
        sum += size < limit ? size : limit;
    }
    return sum;
}

/* MB/s: the best of at least MIN_RUNS over as many frames as the time allows, the first run being the
 * warm-up. */
static double speed(struct worker *workers, enum operation operation, double seconds)
{
    struct work *work = workers[0].work;
    size_t limit = operation == ENCODE ? work->encode_size : FRAME;
    work->count = work->threads < work->frames ? work->threads : work->frames;
    double t = run_once(workers, operation), best = 1e30, start;
    double rounds = seconds / ((MIN_RUNS + 1) * (t > 1e-6 ? t : 1e-6));
    size_t count = rounds > MAX_FRAMES ? MAX_FRAMES : (size_t)rounds;
    if (count < 1) count = 1;
    count *= work->threads;
    work->count = count < work->frames ? count : work->frames;
    run_once(workers, operation);
    start = clock_seconds();
    for (int i = 0; i < MIN_RUNS || (i < MAX_RUNS && clock_seconds() - start < seconds); i++) {
        t = run_once(workers, operation);
        if (t < best) best = t;
    }
    return (double)raw_bytes(work, limit) / 1e6 / (best > 1e-9 ? best : 1e-9);
}

/* ----------------------------------------------------------------------------------------- results */

struct result {
    const char *input, *dtype, *codec, *level, *kernel;
    uint64_t raw, stored;
    double compress, decompress, copy; /* MB/s */
};

struct report {
    bool json;
    struct json writer;
};

static void put_result(struct report *report, const struct result *r)
{
    if (!report->json) {
        printf("%-9s %-7s %-8s %-9s %8s %12.1f %12.1f %12.1f\n", r->dtype, r->codec, r->level, r->kernel,
               percent(r->stored, r->raw), r->compress, r->decompress, r->copy);
        fflush(stdout);
        return;
    }
    struct json *j = &report->writer;
    const char *const words[] = {"input",  r->input, "dtype",  r->dtype, "codec",
                                 r->codec, "level",  r->level, "kernel", r->kernel};
    json_open(j, '{');
    for (size_t i = 0; i < sizeof words / sizeof *words; i += 2) {
        json_key(j, words[i]);
        json_string(j, words[i + 1], strlen(words[i + 1]));
    }
    json_key(j, "raw_bytes");
    json_u64(j, r->raw);
    json_key(j, "stored_bytes");
    json_u64(j, r->stored);
    json_key(j, "compress_MBps");
    json_decimal(j, r->compress, 1);
    json_key(j, "decompress_MBps");
    json_decimal(j, r->decompress, 1);
    json_key(j, "memcpy_MBps");
    json_decimal(j, r->copy, 1);
    json_close(j, '}');
}

/* Encodes the frames that the sizes are taken from; they do not depend on the kernel. */
static int store(struct worker *workers, size_t count, struct result *result)
{
    struct work *work = workers[0].work;
    work->count = count < work->frames ? count : work->frames;
    run_once(workers, STORE);
    int status = worker_errors(workers, "encoding");
    if (status != EXIT_OK) return status;
    result->raw = raw_bytes(work, FRAME);
    result->stored = 0;
    for (size_t i = 0; i < work->count; i++) result->stored += work->stored_sizes[i];
    /* Copies in the other slots, so that decoding has as much to read as the sample has frames. */
    for (size_t i = work->count; i < work->frames; i++) {
        size_t from = i % work->count;
        work->stored_sizes[i] = work->stored_sizes[from];
        memcpy(work->stored + i * slot_size(), work->stored + from * slot_size(), work->stored_sizes[from]);
    }
    return EXIT_OK;
}

/* One codec with the kernel in use. stored_count: the frames that `store` has encoded. */
static int measure(struct worker *workers, size_t stored_count, double seconds, struct result *result)
{
    struct work *work = workers[0].work;
    const struct sample *sample = work->sample;

    work->count = work->frames;
    run_once(workers, DECODE);
    int status = worker_errors(workers, "decoding");
    if (status != EXIT_OK) return status;
    for (size_t i = 0; i < work->frames; i++) {
        size_t from = i < stored_count ? i : i % stored_count;
        if (memcmp(sample->raw + from * FRAME, work->restored + i * FRAME, frame_size(sample, from)) != 0)
            return fail(EXIT_DATA, "bench: %s of %s with kernel %s does not restore its input",
                        work->codec->name, sample->dtype, tp_kernel_active());
    }
    result->decompress = speed(workers, DECODE, seconds / 3);

    /* Five runs over whole frames, if the time allows that at the speed of a short one. */
    work->encode_size = SHORT_FRAME;
    work->count = work->threads < work->frames ? work->threads : work->frames;
    double t = run_once(workers, ENCODE);
    if (t * (FRAME / SHORT_FRAME) * (MIN_RUNS + 1) < seconds) work->encode_size = FRAME;
    result->compress = speed(workers, ENCODE, seconds / 2);
    return worker_errors(workers, "measuring");
}

/* Encoders and decoders keep the kernel that was in use when they were made. NULL: the best. */
static int use_kernel(struct worker *workers, const char *kernel)
{
    tp_status status = tp_kernel_force(kernel);
    if (status != TP_OK)
        return fail(tp_status_exit_code(status), "kernel %s: %s", kernel ? kernel : "",
                    tp_status_message(status));
    for (unsigned i = 0; i < workers[0].work->threads; i++) {
        tp_encoder_destroy(workers[i].encoder);
        tp_decoder_destroy(workers[i].decoder);
        workers[i].encoder = NULL;
        workers[i].decoder = NULL;
        if (tp_encoder_create(&workers[i].encoder) != TP_OK ||
            tp_decoder_create(&workers[i].decoder) != TP_OK)
            return fail(EXIT_SYSTEM, "out of memory");
    }
    return EXIT_OK;
}

static bool takes_part(const char *kernel, const struct options *options)
{
    return tp_kernel_available(kernel) && (!options->kernel || strcmp(options->kernel, kernel) == 0);
}

static int measure_codec(struct worker *workers, struct result *result, const struct options *options,
                         double seconds, struct report *report)
{
    struct work *work = workers[0].work;
    /* Of synthetic data a frame for each thread is as good as all; of a file everything counts. */
    size_t stored_count = options->argument_count > 0 ? work->frames : work->threads;
    if (stored_count > work->frames) stored_count = work->frames;
    int status = use_kernel(workers, options->kernel);
    if (status == EXIT_OK) status = store(workers, stored_count, result);
    for (const char *const *name = tp_kernel_names(); status == EXIT_OK && *name; name++) {
        if (!takes_part(*name, options)) continue;
        status = use_kernel(workers, *name);
        if (status != EXIT_OK) break;
        result->kernel = *name;
        status = measure(workers, stored_count, seconds, result);
        if (status == EXIT_OK) put_result(report, result);
    }
    return status;
}

static int measure_sample(struct worker *workers, const struct sample *sample, const char *input,
                          const struct options *options, double seconds, struct report *report)
{
    struct work *work = workers[0].work;
    work->sample = sample;
    work->frames = (sample->size + FRAME - 1) / FRAME;
    if (work->frames > MAX_FRAMES) work->frames = MAX_FRAMES;
    work->stored = malloc(work->frames * slot_size());
    work->target = malloc(work->frames * slot_size());
    work->restored = malloc(work->frames * FRAME);
    int status =
        work->stored && work->target && work->restored ? EXIT_OK : fail(EXIT_SYSTEM, "out of memory");
    struct result result = {.input = input, .dtype = sample->dtype};
    if (status == EXIT_OK) {
        /* Every page is there before the clock starts. */
        memset(work->stored, 1, work->frames * slot_size());
        memset(work->target, 1, work->frames * slot_size());
        memset(work->restored, 1, work->frames * FRAME);
        result.copy = speed(workers, COPY, seconds / 2);
    }
    for (size_t c = 0; status == EXIT_OK && c < CODECS; c++) {
        if (codecs[c].typed && sample->cls == TP_CLASS_BYTES) continue;
        if (codecs[c].choice == TP_CODEC_DF11 && sample->cls != TP_CLASS_BF16) continue;
        work->codec = &codecs[c];
        result.codec = codecs[c].name;
        result.level = codecs[c].level_name;
        status = measure_codec(workers, &result, options, seconds, report);
    }
    free(work->stored);
    free(work->target);
    free(work->restored);
    return status;
}

/* ----------------------------------------------------------------------------------------- samples */

/* One for each class, without its bytes: those are made when their turn comes. */
static void synthetic_samples(struct sample *samples, size_t *count, unsigned threads)
{
    /* As many for each thread. */
    size_t frames = threads > 1 ? (SYNTHETIC_FRAMES + threads - 1) / threads * threads : SYNTHETIC_FRAMES;
    for (unsigned cls = 0; cls < TP_CLASS_COUNT; cls++) {
        struct sample *s = &samples[(*count)++];
        snprintf(s->dtype, sizeof s->dtype, "%s", tp_class_name((tp_class)cls));
        s->cls = (tp_class)cls;
        s->size = frames * FRAME;
    }
}

static int make_sample(struct sample *sample, const float *pool)
{
    sample->raw = malloc(sample->size);
    if (!sample->raw) return fail(EXIT_SYSTEM, "out of memory");
    synthetic_fill(sample->cls, pool, sample->raw, sample->size);
    return EXIT_OK;
}

/* The sample of this dtype; NULL if there are too many already. */
static struct sample *sample_of(struct sample *samples, size_t *count, const char *dtype, tp_class cls)
{
    for (size_t i = 0; i < *count; i++)
        if (samples[i].cls == cls && strcmp(samples[i].dtype, dtype) == 0) return &samples[i];
    if (*count == MAX_SAMPLES) return NULL;
    struct sample *s = &samples[(*count)++];
    snprintf(s->dtype, sizeof s->dtype, "%s", dtype);
    s->cls = cls;
    return s;
}

/* Appends a range of a file to a sample, as far as there is room. */
static int append(const struct opened *opened, struct sample *sample, size_t file, uint64_t offset,
                  uint64_t size)
{
    size_t room = FILE_SAMPLE - sample->size;
    size_t n = size < room ? (size_t)size : room;
    n -= n % tp_class_element_size(sample->cls);
    if (n == 0) return EXIT_OK;
    unsigned char *larger = realloc(sample->raw, sample->size + n);
    if (!larger) return fail(EXIT_SYSTEM, "out of memory");
    sample->raw = larger;
    tp_error error;
    memset(&error, 0, sizeof error);
    tp_status status = tp_pread(opened->reader, file, larger + sample->size, n, offset, &error);
    if (status != TP_OK) return fail_error(status, &error);
    sample->size += n;
    return EXIT_OK;
}

static int file_samples(const char *path, struct sample *samples, size_t *count)
{
    struct opened opened;
    int status = reader_open(path, &opened);
    if (status != EXIT_OK) return status;
    for (size_t i = 0; status == EXIT_OK && i < tp_reader_tensors(opened.reader); i++) {
        tp_tensor_info t;
        if (tp_reader_tensor(opened.reader, i, &t) != TP_OK) break;
        if (t.flags & TP_TENSOR_TRUNCATED || t.nbytes == 0) continue;
        unsigned bits;
        tp_class cls = TP_CLASS_BYTES;
        if (t.flags & TP_TENSOR_OPAQUE || !tp_safetensors_dtype(t.dtype.data, t.dtype.size, &bits, &cls))
            cls = TP_CLASS_BYTES;
        char dtype[64];
        tp_text_escape(t.dtype.data, t.dtype.size, dtype, sizeof dtype);
        struct sample *sample = sample_of(samples, count, dtype, cls);
        if (sample) status = append(&opened, sample, t.file, t.offset, t.nbytes);
    }
    /* Without tensors: the files' bytes. */
    for (size_t i = 0;
         status == EXIT_OK && tp_reader_tensors(opened.reader) == 0 && i < tp_reader_files(opened.reader);
         i++) {
        tp_file_info file;
        if (tp_reader_file(opened.reader, i, &file) != TP_OK) break;
        struct sample *sample = sample_of(samples, count, "bytes", TP_CLASS_BYTES);
        if (sample) status = append(&opened, sample, i, 0, file.size);
    }
    reader_close(&opened);
    return status;
}

/* -------------------------------------------------------------------------------------------- verb */

/* EXIT_OK, or the status of the error about a kernel that is unknown or not to be had. */
static int check_kernel(const char *kernel)
{
    static const char *const known[] = {"portable", "avx2", "avx512bw", "avx512", "neon"};
    bool is_known = false, built_in = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is_known = is_known || strcmp(kernel, known[i]) == 0;
    for (const char *const *name = tp_kernel_names(); *name; name++)
        built_in = built_in || strcmp(kernel, *name) == 0;
    if (!is_known && !built_in)
        return fail_usage("--kernel %s: unknown kernel; use portable, avx2, avx512bw, avx512 or neon",
                          kernel);
    if (!built_in) return fail(EXIT_UNSUPPORTED, "--kernel %s: not built into this program", kernel);
    if (!tp_kernel_available(kernel))
        return fail(EXIT_UNSUPPORTED, "--kernel %s: this CPU lacks it", kernel);
    return EXIT_OK;
}

static int measure_all(struct worker *workers, struct sample *samples, size_t count,
                       const struct options *options, const char *input)
{
    struct report report = {.json = options->json};
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    size_t kernels = 0;
    for (const char *const *name = tp_kernel_names(); *name; name++) kernels += tp_kernel_available(*name);
    if (options->kernel) kernels = 1;
    double seconds =
        options->argument_count > 0 ? TIME_CASE_FILE : TIME_SYNTHETIC / (double)(count * CODECS * kernels);
    if (options->json) {
        json_init(&report.writer, stdout);
        json_open(&report.writer, '{');
        json_key(&report.writer, "cpu");
        json_string(&report.writer, cpu, strlen(cpu));
        json_key(&report.writer, "threads");
        json_u64(&report.writer, workers[0].work->threads);
        json_key(&report.writer, "results");
        json_open(&report.writer, '[');
    } else {
        char shown[1024];
        printf("%s, %s, %s\nMB/s: 10^6 raw bytes a second, hashing included, best of %d runs or more\n\n",
               tp_text_escape(input, strlen(input), shown, sizeof shown), cpu,
               counted(workers[0].work->threads, "thread"), MIN_RUNS);
        printf("%-9s %-7s %-8s %-9s %8s %12s %12s %12s\n", "dtype", "codec", "level", "kernel", "ratio",
               "compress", "decompress", "memcpy");
    }
    float *pool = options->argument_count > 0 ? NULL : synthetic_pool();
    int status = pool || options->argument_count > 0 ? EXIT_OK : fail(EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; status == EXIT_OK && i < count; i++) {
        if (samples[i].size == 0) continue;
        if (!samples[i].raw) status = make_sample(&samples[i], pool);
        if (status == EXIT_OK)
            status = measure_sample(workers, &samples[i], input, options, seconds, &report);
        free(samples[i].raw);
        samples[i].raw = NULL;
    }
    free(pool);
    if (options->json) {
        json_close(&report.writer, ']');
        json_close(&report.writer, '}');
    }
    return status;
}

/* Threads 1 .. threads - 1, started; worker 0 is the caller. */
static int with_workers(struct sample *samples, size_t count, const struct options *options,
                        const char *input)
{
    unsigned threads = options->threads ? options->threads : 1, started = 1;
    struct work *work = calloc(1, sizeof *work);
    struct worker *workers = calloc(threads, sizeof *workers);
    int status = work && workers ? EXIT_OK : fail(EXIT_SYSTEM, "out of memory");
    bool barriers = false;
    if (status == EXIT_OK) {
        work->threads = threads;
        barriers = pthread_barrier_init(&work->begin, NULL, threads) == 0 &&
                   pthread_barrier_init(&work->end, NULL, threads) == 0;
        if (!barriers) status = fail(EXIT_SYSTEM, "cannot set up threads");
    }
    for (unsigned i = 0; status == EXIT_OK && i < threads; i++) {
        workers[i].work = work;
        workers[i].number = i;
    }
    for (; status == EXIT_OK && started < threads; started++)
        if (pthread_create(&workers[started].thread, NULL, worker_main, &workers[started]) != 0)
            /* The others wait at the barrier for one that never comes; the end of the process ends them. */
            return fail(EXIT_SYSTEM, "cannot start %u threads", threads);
    if (status == EXIT_OK) {
        status = measure_all(workers, samples, count, options, input);
        if (threads > 1) {
            work->operation = STOP;
            pthread_barrier_wait(&work->begin);
            for (unsigned i = 1; i < threads; i++) pthread_join(workers[i].thread, NULL);
        }
    }
    for (unsigned i = 0; workers && i < threads; i++) {
        tp_encoder_destroy(workers[i].encoder);
        tp_decoder_destroy(workers[i].decoder);
    }
    if (barriers) {
        pthread_barrier_destroy(&work->begin);
        pthread_barrier_destroy(&work->end);
    }
    free(workers);
    free(work);
    return status;
}

static int run(const struct options *options)
{
    struct sample samples[MAX_SAMPLES];
    size_t count = 0;
    memset(samples, 0, sizeof samples);
    int status = options->kernel ? check_kernel(options->kernel) : EXIT_OK;
    if (status != EXIT_OK) return status;
    const char *input = "synthetic";
    if (options->argument_count > 0) {
        struct stat stat;
        input = options->arguments[0];
        status = input_stat(input, &stat);
        if (status == EXIT_OK && S_ISDIR(stat.st_mode))
            status = fail(EXIT_UNSUPPORTED, "%s: is a folder; this version measures single files only",
                          is_stdin(input) ? "stdin" : input);
        if (status == EXIT_OK) status = file_samples(input, samples, &count);
    } else {
        synthetic_samples(samples, &count, options->threads);
    }
    if (status == EXIT_OK)
        status = with_workers(samples, count, options, is_stdin(input) ? "stdin" : input);
    for (size_t i = 0; i < count; i++) free(samples[i].raw);
    return status;
}

const struct verb verb_bench = {
    .name = "bench",
    .usage = "[FILE] [--json] [--kernel NAME] [-j N]",
    .about = "Measures ratio and speed in memory of every codec with every CPU kernel, on synthetic data "
             "of every dtype or\n"
             "on the tensors of FILE (the first 64 MiB of each dtype). MB are 10^6 raw bytes; buffers are "
             "touched before\n"
             "the clock starts; hashing is included; the best of at least 5 runs counts. What is slow is "
             "measured on less\n"
             "data. One thread unless -j says otherwise.",
    .examples = "  tensorpress bench\n"
                "  tensorpress bench model.safetensors --kernel portable\n"
                "  tensorpress bench -j8 --json | jq '.results[] | select(.dtype == \"bf16\")'\n",
    .options = HAS(JSON) | HAS(KERNEL) | HAS(THREADS),
    .min_arguments = 0,
    .max_arguments = 1,
    .argument_names = "FILE",
    .run = run,
};
