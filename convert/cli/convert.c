/* tensorpress convert: to DFloat11 and back */
#include <stdio.h>
#include <string.h>

#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

static int run(const struct options *options)
{
    const char *input = options->arguments[0], *output = options->output;
    if (!options->to) return fail_usage("%s: convert to what? use --to df11 or --to safetensors", input);
    const bool to_df11 = strcmp(options->to, "df11") == 0;
    if (!to_df11 && strcmp(options->to, "safetensors") != 0)
        return fail_usage("--to %s: unknown format; use df11 or safetensors", options->to);
    if (options->to_stdout) return fail_usage("convert writes a folder; name it with -o");
    if (!output) return fail_usage("%s: the output has no name; use -o OUTDIR", input);
    if (to_df11 && options->reference)
        return fail_usage("--reference goes with --to safetensors; leave it out");
    if (is_stdin(input))
        return fail_usage("stdin: a checkpoint is converted from a file or folder; name it");

    tp_options library;
    tp_df11_report report;
    tp_error error;
    memset(&report, 0, sizeof report);
    memset(&error, 0, sizeof error);
    options_library(options, &library);
    signals_install();
    progress_start(options, "convert");
    const double start = clock_seconds();
    const tp_status status =
        to_df11 ? tp_convert_to_df11(input, output, options->pattern_dict, &library, &report, &error)
                : tp_convert_from_df11(input, output, options->pattern_dict, options->reference, &library,
                                       &report, &error);
    const double seconds = clock_seconds() - start;
    progress_end();
    if (status != TP_OK) return fail_error(status, &error);
    const uint64_t from = to_df11 ? report.raw_bytes : report.stored_bytes,
                   to = to_df11 ? report.stored_bytes : report.raw_bytes;
    note("%s: %llu -> %llu bytes, %s, %.2f s, %.1f million weights/s", output, (unsigned long long)from,
         (unsigned long long)to, counted(report.units, "unit"), seconds,
         seconds > 0 ? (double)report.weights / 1e6 / seconds : 0);
    if (options->verbose)
        note("%s: %s, %llu weights in units, %s left as they are", output,
             counted(report.tensors, "tensor"), (unsigned long long)report.weights,
             counted(report.left_units, "unit"));
    return EXIT_OK;
}

const struct verb verb_convert = {
    .name = "convert",
    .usage = "INPUT -o OUTDIR --to df11|safetensors [options]",
    .about =
        "Converts a BF16 safetensors checkpoint into a DFloat11 checkpoint that the official loader reads, "
        "or back.\n"
        "INPUT is a file, or a folder with one or several; OUTDIR is a new folder. Which weights are "
        "coded\n"
        "together is known for common architectures by config.json; else every matrix is a unit, or "
        "--pattern-dict\n"
        "names a JSON file. On the way back, shapes come from --reference, or from what convert has kept.",
    .examples = "  tensorpress convert models/my-model -o my-model-df11 --to df11\n"
                "  tensorpress convert my-model-df11 -o my-model --to safetensors\n"
                "  tensorpress convert df11.safetensors -o restored --to safetensors --reference "
                "original.safetensors\n",
    .options =
        (WRITING_OPTIONS & ~HAS(STDOUT)) | HAS(TO) | HAS(PATTERN_DICT) | HAS(REFERENCE) | HAS(VERIFY),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "INPUT",
    .run = run,
};
