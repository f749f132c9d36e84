/* tensorpress extract */
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

/* "A:B": either side may be empty. */
static bool parse_slice(const char *text, bool *has_first, uint64_t *first, bool *has_last, uint64_t *last)
{
    const char *colon = strchr(text, ':');
    char left[24];
    if (!colon || (size_t)(colon - text) >= sizeof left) return false;
    memcpy(left, text, (size_t)(colon - text));
    left[colon - text] = 0;
    *has_first = left[0] != 0;
    *has_last = colon[1] != 0;
    return (!*has_first || parse_u64(left, first)) && (!*has_last || parse_u64(colon + 1, last));
}

struct choice {
    size_t tensor;
    tp_tensor_info info;
    tp_file_info file;
};

static int find(const struct opened *opened, const struct options *options, const char *name,
                struct choice *choice)
{
    size_t file = SIZE_MAX;
    if (options->file) {
        int status = reader_find_file(opened, options->file, &file);
        if (status != EXIT_OK) return status;
    }
    if (tp_reader_find(opened->reader, file, name, strlen(name), &choice->tensor) != TP_OK) {
        if (tp_reader_tensors(opened->reader) == 0)
            return fail_usage("%s: holds no tensors, so no '%s'; see what it is with 'tensorpress inspect'",
                              opened->name, name);
        return fail_usage("%s: no tensor '%s'; list them with 'tensorpress inspect --tensors'",
                          opened->name, name);
    }
    if (tp_reader_tensor(opened->reader, choice->tensor, &choice->info) != TP_OK ||
        tp_reader_file(opened->reader, choice->info.file, &choice->file) != TP_OK)
        return fail(EXIT_DATA, "%s: the tensor's entry is damaged", opened->name);
    return EXIT_OK;
}

/* The bytes from *offset that the rows take, by the sizes that the library tells. */
static int rows(const struct opened *opened, const struct options *options, const char *name,
                const struct choice *choice, uint64_t *offset, uint64_t *size)
{
    bool has_first, has_last;
    uint64_t first = 0, last = 0;
    if (!parse_slice(options->slice, &has_first, &first, &has_last, &last))
        return fail_usage("--slice %s: not a slice; write A:B with row numbers, either may be left out",
                          options->slice);
    const tp_tensor_info *info = &choice->info;
    if (info->ndim == 0)
        return fail_usage("%s: tensor '%s' has no dimension to slice; leave out --slice", opened->name,
                          name);
    uint64_t count = choice->file.format == TP_FORMAT_GGUF ? info->shape[info->ndim - 1] : info->shape[0];
    if (!has_last) last = count;
    if (last > count || first > last)
        return fail_usage("--slice %s: tensor '%s' has %s; choose a part of them", options->slice, name,
                          counted(count, "row"));
    tp_error error;
    size_t before = 0, length = 0;
    memset(&error, 0, sizeof error);
    tp_status status = tp_read_rows(opened->reader, choice->tensor, first, last, NULL, 0, &length, &error);
    if (status == TP_OK)
        status = tp_read_rows(opened->reader, choice->tensor, 0, first, NULL, 0, &before, &error);
    if (status != TP_OK) return fail_error(status, &error);
    *offset = before;
    *size = length;
    return EXIT_OK;
}

static int run(const struct options *options)
{
    const char *input = options->arguments[0], *name = options->arguments[1];
    struct stat stat;
    if (!options->output && !options->to_stdout)
        return fail_usage("%s: the output has no name; use -o PATH or -c", name);
    int status = input_stat(input, &stat);
    if (status != EXIT_OK) return status;
    if (S_ISDIR(stat.st_mode))
        return fail(EXIT_UNSUPPORTED, "%s: is a folder; this version extracts from single files only",
                    is_stdin(input) ? "stdin" : input);
    status = output_check(&stat, options->output, options->force);
    if (status != EXIT_OK) return status;

    struct opened opened;
    struct choice choice;
    memset(&choice, 0, sizeof choice);
    status = reader_open(input, &opened);
    if (status != EXIT_OK) return status;
    status = find(&opened, options, name, &choice);
    uint64_t offset = 0, size = choice.info.nbytes;
    if (status == EXIT_OK && options->slice) status = rows(&opened, options, name, &choice, &offset, &size);
    /* A truncated tensor's declared range ends beyond the file; rows before that end are whole. */
    uint64_t start = 0, end = 0;
    if (status == EXIT_OK && size > 0 &&
        (__builtin_add_overflow(choice.info.offset, offset, &start) ||
         __builtin_add_overflow(start, size, &end) || end > choice.file.size))
        status =
            fail(EXIT_DATA, "%s: tensor '%s' is truncated: the file ends before it", opened.name, name);
    if (status == EXIT_OK) {
        signals_install();
        progress_start(options, "extract");
        status = write_range(&opened, choice.info.file, size > 0 ? start : 0, size, options,
                             options->output, "tensor", name);
        progress_end();
    }
    if (status == EXIT_OK && options->verbose)
        note("%s: tensor '%s', %llu bytes", options->output ? options->output : "stdout", name,
             (unsigned long long)size);
    reader_close(&opened);
    return status;
}

const struct verb verb_extract = {
    .name = "extract",
    .usage = "FILE NAME (-o OUT | -c) [--slice A:B] [options]",
    .about = "Writes the bytes of one tensor, or of some of its rows, from a container or a plain "
             "checkpoint, without\n"
             "decoding the rest. FILE may be - for stdin. Rows are counted along the slowest dimension "
             "(safetensors: the\n"
             "first, GGUF: the last). Of duplicate names the first is taken.",
    .examples = "  tensorpress extract model.safetensors.tpress model.embed_tokens.weight -o embed.bin\n"
                "  tensorpress extract model.safetensors lm_head.weight --slice 0:16 -c | xxd | head\n"
                "  tensorpress extract -o last.bin --slice 1000: -- model.tpress -odd-name-\n",
    .options = WRITING_OPTIONS | HAS(SLICE) | HAS(FILE),
    .min_arguments = 2,
    .max_arguments = 2,
    .argument_names = "FILE NAME",
    .run = run,
};
