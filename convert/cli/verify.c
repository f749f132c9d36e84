/* tensorpress verify */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "convert/text.h"
#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

static int run(const struct options *options)
{
    const char *input = options->arguments[0];
    struct stat stat;
    int code = input_stat(input, &stat);
    if (code != EXIT_OK) return code;
    if (S_ISDIR(stat.st_mode))
        return fail(EXIT_DATA, "%s: is a folder, not a tensorpress container",
                    is_stdin(input) ? "stdin" : input);
    if (options->against) {
        struct stat other; /* "-" is no stdin here: it is the container that may come from there */
        if (lstat(options->against, &other) != 0 || access(options->against, R_OK) != 0)
            return fail(EXIT_SYSTEM, "%s: %s", options->against, strerror(errno));
    }

    tp_options library;
    tp_report report;
    tp_error error;
    memset(&report, 0, sizeof report);
    memset(&error, 0, sizeof error);
    options_library(options, &library);
    library.warning = damage_callback;
    bool from_stdin = is_stdin(input);
    const char *name = from_stdin ? "stdin" : input;

    signals_install();
    progress_start(options, "verify");
    double start = clock_seconds();
    tp_status status =
        tp_verify_file(name, from_stdin ? STDIN_FILENO : -1, options->against, &library, &report, &error);
    double seconds = clock_seconds() - start;
    progress_end();
    if (status != TP_OK) return fail_error(status, &error);
    if (!options->quiet) {
        char shown[4096];
        printf("%s: %s, %s, %s: bit-exact\n", tp_text_escape(name, strlen(name), shown, sizeof shown),
               counted(report.files, "file"), counted(report.tensors, "tensor"),
               counted(report.raw_bytes, "byte"));
    }
    if (options->verbose)
        note("%s: %s, %.2f s, %.1f MB/s", name, counted(report.frames, "frame"), seconds,
             seconds > 0 ? (double)report.raw_bytes / 1e6 / seconds : 0);
    return EXIT_OK;
}

const struct verb verb_verify = {
    .name = "verify",
    .usage = "FILE [--against ORIGINAL] [options]",
    .about = "Decodes a container in memory and checks every checksum; with --against also compares byte "
             "for byte with\n"
             "the original file, or with the original folder: names, permissions and contents. One line on "
             "stdout says what\n"
             "was found to be bit-exact. Each damaged tensor is a line on stderr, and the last line there "
             "is the "
             "verdict.\n"
             "FILE may be - for stdin.",
    .examples = "  tensorpress verify model.safetensors.tpress\n"
                "  tensorpress verify model.safetensors.tpress --against model.safetensors && rm "
                "model.safetensors\n",
    .options = HAS(AGAINST) | HAS(DIRECT) | HAS(THREADS) | HAS(PROGRESS) | HAS(NO_PROGRESS) | HAS(QUIET) |
               HAS(VERBOSE),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "FILE",
    .run = run,
};
