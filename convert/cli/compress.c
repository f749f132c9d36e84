/* tensorpress compress */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* true if `path` (its folder must exist) lies inside the folder `outer`, or is it. */
static bool lies_inside(const char *path, const char *outer)
{
    char *copy = strdup(path), *folder = NULL, *root = realpath(outer, NULL);
    bool inside = false;
    if (copy && root) {
        char *slash = strrchr(copy, '/');
        if (!slash)
            folder = realpath(".", NULL);
        else if (slash == copy)
            folder = realpath("/", NULL);
        else {
            *slash = 0;
            folder = realpath(copy, NULL);
        }
        size_t n = strlen(root);
        if (folder && strncmp(folder, root, n) == 0)
            inside = folder[n] == 0 || folder[n] == '/' || (n > 0 && root[n - 1] == '/');
    }
    free(copy);
    free(folder);
    free(root);
    return inside;
}

/* A folder as the input: what is wrong usage is so already; the rest is not here yet. */
static int refuse_folder(const char *input, const struct options *options)
{
    size_t length = strlen(input);
    while (length > 1 && input[length - 1] == '/') length--;
    size_t start = length;
    while (start > 0 && input[start - 1] != '/') start--;
    const char *base = input + start;
    size_t base_length = length - start;
    bool nameless = base_length == 0 || (base_length == 1 && base[0] == '.') ||
                    (base_length == 2 && base[0] == '.' && base[1] == '.');
    if (!options->output && !options->to_stdout && !options->dry_run) {
        if (nameless)
            return fail_usage("%s: a folder without a name of its own; name the output with -o", input);
        char *output;
        if (asprintf(&output, "%.*s.tpress", (int)length, input) < 0)
            return fail(EXIT_SYSTEM, "out of memory");
        int status = output_check(NULL, output, options->force);
        free(output);
        if (status != EXIT_OK) return status;
    } else if (options->output) {
        if (lies_inside(options->output, input))
            return fail_usage("%s: lies inside the input folder %s; name an output outside of it with -o",
                              options->output, input);
        int status = output_check(NULL, options->output, options->force);
        if (status != EXIT_OK) return status;
    }
    return fail(EXIT_UNSUPPORTED, "%s: is a folder; this version converts single files only", input);
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

static int run(const struct options *options)
{
    const char *input = options->arguments[0];
    struct stat stat;
    bool needs_name = is_stdin(input) && !options->output && !options->to_stdout && !options->dry_run;
    if (needs_name) return fail_usage("stdin: the output has no name; use -o PATH or -c");
    int status = input_stat(input, &stat);
    if (status != EXIT_OK) return status;
    if (S_ISDIR(stat.st_mode) && is_stdin(input))
        return fail(EXIT_UNSUPPORTED, "stdin: is a folder; name it as INPUT");
    if (S_ISDIR(stat.st_mode)) return refuse_folder(input, options);
    if (options->dry_run) return compress_to(input, NULL, options);

    char *made = NULL;
    const char *output = options->to_stdout ? NULL : options->output;
    if (!options->to_stdout && !output) {
        if (asprintf(&made, "%s.tpress", input) < 0) return fail(EXIT_SYSTEM, "out of memory");
        output = made;
    }
    status = output_check(&stat, output, options->force);
    if (status == EXIT_OK) status = compress_to(input, output, options);
    free(made);
    return status;
}

const struct verb verb_compress = {
    .name = "compress",
    .usage = "INPUT [-o OUT] [options]",
    .about = "Converts a checkpoint (safetensors; anything else as bytes) into a sidecar container. INPUT "
             "may be -\n"
             "for stdin. OUT is INPUT.tpress unless named. The input is not changed. All cores are used "
             "unless -j\n"
             "says otherwise; the container's bytes do not depend on it.",
    .examples = "  tensorpress compress model.safetensors\n"
                "  tensorpress compress -l max --sha256 --verify model.safetensors -o small.tpress\n"
                "  tensorpress compress --dry-run model.safetensors\n"
                "  cat model.safetensors | tensorpress compress - -o model.safetensors.tpress\n",
    .options = WRITING_OPTIONS | HAS(LEVEL) | HAS(CODEC) | HAS(SHA256) | HAS(VERIFY) | HAS(DRY_RUN),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "INPUT",
    .run = run,
};
