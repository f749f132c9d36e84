/* tensorpress compress */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/text.h"
#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

static void report(const char *input, const char *output, const struct options *options,
                   const tp_report *report, double seconds)
{
    if (options->dry_run) {
        if (options->quiet) return;
        printf("%s: %llu bytes would be stored in %llu", input, (unsigned long long)report->raw_bytes,
               (unsigned long long)report->stored_bytes);
        if (report->raw_bytes > 0) printf(" (%s)", percent(report->stored_bytes, report->raw_bytes));
        printf(": %s, %s, %s, %llu of them duplicates\n", counted(report->files, "file"),
               counted(report->tensors, "tensor"), counted(report->frames, "frame"),
               (unsigned long long)report->duplicate_frames);
        return;
    }
    double rate = seconds > 0 ? (double)report->raw_bytes / 1e6 / seconds : 0;
    note("%s: %llu -> %llu bytes%s%s, %.2f s, %.1f MB/s", output, (unsigned long long)report->raw_bytes,
         (unsigned long long)report->stored_bytes, report->raw_bytes > 0 ? ", " : "",
         percent(report->stored_bytes, report->raw_bytes), seconds, rate);
    if (options->verbose)
        note("%s: %s, %s, %s, %llu of them duplicates", output, counted(report->files, "file"),
             counted(report->tensors, "tensor"), counted(report->frames, "frame"),
             (unsigned long long)report->duplicate_frames);
}

/* A folder's name without slashes at its end; NULL: out of memory. */
static char *trimmed(const char *folder)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    return strndup(folder, length);
}

/* Whether a folder's name is one that an output can be named after. */
static bool has_name(const char *folder)
{
    const char *base = tp_text_base(folder);
    return *base && strcmp(base, ".") != 0 && strcmp(base, "..") != 0;
}

static int compress_to(const char *input, const char *output, const struct options *options)
{
    tp_options library;
    tp_report result;
    tp_error error;
    memset(&result, 0, sizeof result);
    memset(&error, 0, sizeof error);
    options_library(options, &library);
    bool from_stdin = is_stdin(input);
    const char *name = from_stdin ? "stdin" : input;

    signals_install();
    progress_start(options, "compress");
    double start = clock_seconds();
    tp_status status =
        tp_compress_file(name, from_stdin ? STDIN_FILENO : -1,
                         output             ? output
                         : options->dry_run ? NULL
                                            : "stdout",
                         !output && !options->dry_run ? STDOUT_FILENO : -1, &library, &result, &error);
    double seconds = clock_seconds() - start;
    progress_end();
    if (status != TP_OK) return fail_error(status, &error);
    report(name, output ? output : "stdout", options, &result, seconds);
    return EXIT_OK;
}

/* To the output that is asked for, or INPUT.tpress. */
static int compress_named(const char *input, const struct stat *stat, const struct options *options)
{
    char *made = NULL;
    const char *output = options->to_stdout ? NULL : options->output;
    if (options->dry_run) return compress_to(input, NULL, options);
    if (!options->to_stdout && !output) {
        if (S_ISDIR(stat->st_mode) && !has_name(input))
            return fail_usage("%s: a folder without a name of its own; name the output with -o", input);
        if (asprintf(&made, "%s.tpress", input) < 0) return fail(EXIT_SYSTEM, "out of memory");
        output = made;
    }
    int status = output_check(stat, output, options->force);
    if (status == EXIT_OK) status = compress_to(input, output, options);
    free(made);
    return status;
}

static int run(const struct options *options)
{
    const char *input = options->arguments[0];
    struct stat stat;
    bool needs_name = is_stdin(input) && !options->output && !options->to_stdout && !options->dry_run;
    if (needs_name) return fail_usage("stdin: the output has no name; use -o PATH or -c");
    int status = input_stat(input, &stat);
    if (status != EXIT_OK) return status;
    if (!S_ISDIR(stat.st_mode)) return compress_named(input, &stat, options);
    if (is_stdin(input)) return fail_usage("stdin: is a folder; name it as INPUT");
    char *folder = trimmed(input);
    if (!folder) return fail(EXIT_SYSTEM, "out of memory");
    status = compress_named(folder, &stat, options);
    free(folder);
    return status;
}

const struct verb verb_compress = {
    .name = "compress",
    .usage = "INPUT [-o OUT] [options]",
    .about =
        "Converts a checkpoint (safetensors, GGUF, PyTorch, NumPy; anything else as bytes) into a sidecar "
        "container.\n"
        "INPUT may be a folder: every file in it goes into one container, equal tensors once. It may be - "
        "for stdin.\n"
        "OUT is INPUT.tpress unless named. The input is not changed. All cores are used unless -j says "
        "otherwise;\n"
        "the container's bytes do not depend on it.",
    .examples = "  tensorpress compress model.safetensors\n"
                "  tensorpress compress models/my-model -o my-model.tpress\n"
                "  tensorpress compress -l max --sha256 --verify model.safetensors -o small.tpress\n"
                "  tensorpress compress --dry-run model.safetensors\n"
                "  cat model.safetensors | tensorpress compress - -o model.safetensors.tpress\n",
    .options =
        WRITING_OPTIONS | HAS(LEVEL) | HAS(CODEC) | HAS(SHA256) | HAS(VERIFY) | HAS(DRY_RUN) | HAS(DIRECT),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "INPUT",
    .run = run,
};
