/* tensorpress decompress */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/text.h"
#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

/* FILE without ".tpress"; NULL if it does not end so, or nothing would be left. */
static char *without_suffix(const char *input)
{
    static const char suffix[] = ".tpress";
    size_t length = strlen(input), suffix_length = sizeof suffix - 1;
    if (length <= suffix_length || strcmp(input + length - suffix_length, suffix) != 0) return NULL;
    if (input[length - suffix_length - 1] == '/') return NULL;
    return strndup(input, length - suffix_length);
}

/* The name of the file that is asked for, in the container's folder. */
static char *beside(const char *input, const char *file)
{
    char *output;
    int folder = (int)(tp_text_base(input) - input);
    return asprintf(&output, "%.*s%s", folder, input, tp_text_base(file)) < 0 ? NULL : output;
}

/* Where no output is named. */
static int default_output(const char *input, const struct options *options, char **output)
{
    if (is_stdin(input)) return fail_usage("stdin: the output has no name; use -o PATH or -c");
    if (options->file && !*tp_text_base(options->file))
        return fail_help("--file %s: is no file", options->file);
    *output = options->file ? beside(input, options->file) : without_suffix(input);
    if (*output) return EXIT_OK;
    return fail_usage("%s: its name is not NAME.tpress; name the output with -o", input);
}

/* One file of a container, through the reader. */
static int restore_file(const char *input, const char *output, const struct options *options)
{
    struct opened opened;
    int status = reader_open(input, &opened);
    if (status != EXIT_OK) return status;
    size_t file = 0;
    tp_file_info info;
    if (tp_reader_format(opened.reader) != TP_FORMAT_TPRESS)
        status = fail(EXIT_DATA, "%s: not a tensorpress container", opened.name);
    else
        status = reader_find_file(&opened, options->file, &file);
    if (status == EXIT_OK && tp_reader_file(opened.reader, file, &info) != TP_OK)
        status = fail(EXIT_DATA, "%s: the file's entry is damaged", opened.name);
    if (status == EXIT_OK && info.is_folder)
        status = fail_help("%s: --file %s is a folder", opened.name, options->file);
    if (status == EXIT_OK && options->max_output > 0 && info.size > options->max_output)
        status =
            fail(EXIT_SYSTEM, "%s: --file %s has %llu bytes, more than --max-output %llu", opened.name,
                 options->file, (unsigned long long)info.size, (unsigned long long)options->max_output);
    if (status == EXIT_OK) {
        signals_install();
        progress_start(options, "decompress");
        status = write_range(&opened, file, 0, info.size, options, output, "file", options->file);
        progress_end();
    }
    reader_close(&opened);
    return status;
}

/* -c has no meaning for a folder; only a look inside tells. */
static int refuse_folder(const char *input)
{
    struct opened opened;
    int status = reader_open(input, &opened);
    if (status != EXIT_OK) return status;
    if (tp_reader_format(opened.reader) != TP_FORMAT_TPRESS)
        status = fail(EXIT_DATA, "%s: not a tensorpress container", opened.name);
    else if (tp_reader_is_folder(opened.reader))
        status = fail_usage("%s: holds a folder; restore it with -o, or choose one file with --file PATH",
                            opened.name);
    reader_close(&opened);
    return status;
}

static int restore(const char *input, const char *output, const struct options *options)
{
    bool from_stdin = is_stdin(input);
    if (!from_stdin && options->to_stdout) {
        int status = refuse_folder(input);
        if (status != EXIT_OK) return status;
    }
    tp_options library;
    tp_report report;
    tp_error error;
    memset(&report, 0, sizeof report);
    memset(&error, 0, sizeof error);
    options_library(options, &library);

    signals_install();
    progress_start(options, "decompress");
    double start = clock_seconds();
    tp_status status = tp_decompress_file(from_stdin ? "stdin" : input, from_stdin ? STDIN_FILENO : -1,
                                          output ? output : "stdout", output ? -1 : STDOUT_FILENO, &library,
                                          &report, &error);
    double seconds = clock_seconds() - start;
    progress_end();
    if (status != TP_OK) return fail_error(status, &error);
    if (options->verbose)
        note("%s: %llu -> %llu bytes, %.2f s, %.1f MB/s", output ? output : "stdout",
             (unsigned long long)report.stored_bytes, (unsigned long long)report.raw_bytes, seconds,
             seconds > 0 ? (double)report.raw_bytes / 1e6 / seconds : 0);
    return EXIT_OK;
}

static bool is_folder(const char *path)
{
    struct stat s;
    return path && stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static int run(const struct options *options)
{
    const char *input = options->arguments[0];
    struct stat stat;
    char *made = NULL;
    const char *output = options->to_stdout ? NULL : options->output;
    if (!options->to_stdout && !output) {
        int status = default_output(input, options, &made);
        if (status != EXIT_OK) return status;
        output = made;
    }
    int status = input_stat(input, &stat);
    if (status == EXIT_OK && S_ISDIR(stat.st_mode))
        status = fail(EXIT_DATA, "%s: is a folder, not a tensorpress container",
                      is_stdin(input) ? "stdin" : input);
    /* Whether a folder may stand there depends on what the container holds: the library knows. */
    if (status == EXIT_OK && !is_folder(output)) status = output_check(&stat, output, options->force);
    if (status == EXIT_OK)
        status = options->file ? restore_file(input, output, options) : restore(input, output, options);
    free(made);
    return status;
}

const struct verb verb_decompress = {
    .name = "decompress",
    .usage = "FILE [-o OUT] [options]",
    .about =
        "Restores the original file or folder from a container, checking everything. FILE may be - for "
        "stdin. OUT is\n"
        "FILE without .tpress unless named. A folder appears as a whole or not at all; -f replaces an "
        "empty "
        "one only.\n"
        "--file PATH restores one file, by default under its own name next to FILE. All cores are used "
        "unless -j\n"
        "says otherwise.",
    .examples = "  tensorpress decompress model.safetensors.tpress\n"
                "  tensorpress decompress model.safetensors.tpress -o restored.safetensors -f\n"
                "  tensorpress decompress -c model.safetensors.tpress | sha256sum\n"
                "  tensorpress decompress my-model.tpress --file config.json -c\n"
                "  tensorpress decompress --max-output 20G untrusted.tpress -o model.safetensors\n",
    .options = WRITING_OPTIONS | HAS(FILE) | HAS(MAX_OUTPUT) | HAS(DIRECT),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "FILE",
    .run = run,
};
