#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/output.h"
#include "message.h"
#include "progress.h"
#include "signals.h"
#include "verbs.h"

#define PIECE ((size_t)4 << 20)

bool is_stdin(const char *argument)
{
    return strcmp(argument, "-") == 0;
}

int input_stat(const char *argument, struct stat *properties)
{
    int result = is_stdin(argument) ? fstat(STDIN_FILENO, properties) : stat(argument, properties);
    if (result == 0) return EXIT_OK;
    return fail(EXIT_SYSTEM, "%s: %s", is_stdin(argument) ? "stdin" : argument, strerror(errno));
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a && S_ISREG(a->st_mode) && a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

int output_check(const struct stat *input, const char *output, bool force)
{
    struct stat there, link;
    if (!output) {
        if (fstat(STDOUT_FILENO, &there) == 0 && same_file(input, &there))
            return fail_usage("stdout: is the input itself; write to another file");
        return EXIT_OK;
    }
    bool exists = stat(output, &there) == 0;
    if (exists && same_file(input, &there))
        return fail_usage("%s: is the input itself; name another output with -o", output);
    if (exists && S_ISDIR(there.st_mode)) return fail_usage("%s: is a folder; name a file with -o", output);
    if (exists && !S_ISREG(there.st_mode))
        return fail_usage("%s: is not a regular file; use -c to write to such a thing", output);
    /* A link that leads nowhere is something that exists, too. */
    if (!force && (exists || lstat(output, &link) == 0))
        return fail_usage("%s: exists already; use -f to overwrite it or -o to name another output",
                          output);
    return EXIT_OK;
}

int reader_open(const char *argument, struct opened *opened)
{
    tp_error error;
    tp_status status;
    memset(opened, 0, sizeof *opened);
    memset(&error, 0, sizeof error);
    opened->input.fd = -1;
    if (!is_stdin(argument)) {
        opened->name = argument;
        status = tp_open(argument, &opened->reader, &error);
    } else {
        tp_options options;
        tp_progress progress;
        tp_options_init(&options);
        options.progress = progress_report;
        tp_progress_init(&progress, &options);
        opened->name = "stdin";
        status = tp_input_open(&opened->input, NULL, STDIN_FILENO, false, &progress, &error);
        if (status == TP_OK) status = tp_open_fd(opened->input.fd, "stdin", &opened->reader, &error);
    }
    if (status == TP_OK) return EXIT_OK;
    reader_close(opened);
    return fail_error(status, &error);
}

void reader_close(struct opened *opened)
{
    tp_close(opened->reader);
    opened->reader = NULL;
    if (opened->input.fd >= 0) tp_input_close(&opened->input);
    opened->input.fd = -1;
}

int reader_find_file(const struct opened *opened, const char *path, size_t *file)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < tp_reader_files(opened->reader); i++) {
        tp_file_info info;
        if (tp_reader_file(opened->reader, i, &info) != TP_OK) break;
        if (info.path.size == length && memcmp(info.path.data, path, length) == 0) {
            *file = i;
            return EXIT_OK;
        }
    }
    return fail_usage("%s: holds no file '%s'; list them with 'tensorpress inspect'", opened->name, path);
}

static tp_status copy_range(const struct opened *opened, size_t file, uint64_t offset, uint64_t size,
                            tp_output *output, tp_error *error)
{
    size_t piece = size < PIECE ? (size_t)size : PIECE;
    unsigned char *buffer = malloc(piece > 0 ? piece : 1);
    tp_status status = buffer ? TP_OK : tp_error_memory(error);
    for (uint64_t done = 0; status == TP_OK && done < size;) {
        size_t n = size - done < piece ? (size_t)(size - done) : piece;
        status = tp_pread(opened->reader, file, buffer, n, offset + done, error);
        if (status == TP_OK) status = tp_output_write(output, buffer, n, error);
        if (status != TP_OK) break;
        done += n;
        if (!progress_report(NULL, done, size)) status = TP_CANCELLED;
    }
    free(buffer);
    return status;
}

/* Errors of the reader begin with its name, those of the output with the output's. */
static int fail_range(const struct opened *opened, const char *kind, const char *name, tp_status status,
                      const tp_error *error)
{
    const size_t length = strlen(opened->name);
    if (status == TP_CANCELLED || strncmp(error->message, opened->name, length) != 0 ||
        strncmp(error->message + length, ": ", 2) != 0)
        return fail_error(status, error);
    return fail(tp_status_exit_code(status), "%s: %s '%s'%s", opened->name, kind, name,
                error->message + length);
}

int write_range(const struct opened *opened, size_t file, uint64_t offset, uint64_t size,
                const struct options *options, const char *path, const char *kind, const char *name)
{
    tp_error error;
    tp_output output;
    tp_options library;
    tp_progress progress;
    struct stat input;
    memset(&error, 0, sizeof error);
    tp_options_init(&library);
    library.progress = progress_report;
    tp_progress_init(&progress, &library);
    bool known = opened->input.fd >= 0 ? fstat(STDIN_FILENO, &input) == 0 : stat(opened->name, &input) == 0;
    tp_status status = tp_output_open(&output, path, path ? -1 : STDOUT_FILENO, options->force,
                                      known ? &input : NULL, &progress, &error);
    if (status != TP_OK) return fail_error(status, &error);
    if (tp_output_is_file(&output)) {
        /* Asks for the space first; the size is then set by what is written. */
        status = tp_output_reserve(&output, size, &error);
        output.size = 0;
    }
    if (status == TP_OK) status = copy_range(opened, file, offset, size, &output, &error);
    if (status == TP_OK) status = tp_output_commit(&output, &error);
    tp_output_close(&output);
    return status == TP_OK ? EXIT_OK : fail_range(opened, kind, name, status, &error);
}

/* Short texts for one message; a few may be in use at a time. */
static char *short_text(void)
{
    static char texts[8][40];
    static unsigned next;
    return texts[next++ % 8];
}

const char *counted(uint64_t count, const char *noun)
{
    char *text = short_text();
    snprintf(text, 40, "%llu %s%s", (unsigned long long)count, noun, count == 1 ? "" : "s");
    return text;
}

const char *percent(uint64_t part, uint64_t whole)
{
    char *text = short_text();
    text[0] = 0;
    if (whole > 0) snprintf(text, 40, "%.2f %%", 100.0 * (double)part / (double)whole);
    return text;
}
