/* The verbs, one file each, and the small things that several of them do. */
#ifndef TP_CLI_VERBS_H
#define TP_CLI_VERBS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "convert/input.h"
#include "options.h"

extern const struct verb verb_compress, verb_decompress, verb_verify, verb_inspect, verb_extract,
    verb_bench, verb_doctor, verb_load, verb_convert;

/* Options common to the verbs that write. */
#define WRITING_OPTIONS                                                                                    \
    (HAS(OUTPUT) | HAS(STDOUT) | HAS(FORCE) | HAS(THREADS) | HAS(PROGRESS) | HAS(NO_PROGRESS) |            \
     HAS(QUIET) | HAS(VERBOSE))

/* "-" is stdin. */
bool is_stdin(const char *argument);

/*
 * The input's properties. A path that cannot be examined is an error (printed; its status is returned); of
 * stdin they are those of descriptor 0.
 */
int input_stat(const char *argument, struct stat *stat);

/*
 * Whether the file `output` (NULL: stdout) may be written: not the input itself, nothing else than a
 * regular file, and not there yet unless `force`. EXIT_OK or the status of an error that has been printed.
 * `input` may be NULL. The library sees to it again, without the gap between looking and writing.
 */
int output_check(const struct stat *input, const char *output, bool force);

/*
 * An open reader of a path or of stdin, which is copied first where it is a pipe. Prints errors and returns
 * the status. The struct must not move afterwards.
 */
struct opened {
    tp_reader *reader;
    tp_input input;   /* of stdin */
    const char *name; /* for messages */
};
int reader_open(const char *argument, struct opened *opened);
void reader_close(struct opened *opened);
/* The number of the file stored as `path`, or an error. */
int reader_find_file(const struct opened *opened, const char *path, size_t *file);

/*
 * Copies size bytes of a restored file from `offset` to the output that the options name, in bounded
 * pieces. Prints errors and returns the status; what cannot be read is called "KIND 'NAME'".
 */
int write_range(const struct opened *opened, size_t file, uint64_t offset, uint64_t size,
                const struct options *options, const char *output, const char *kind, const char *name);

/* "12 tensors", "1 tensor". The text lives until the eighth call after it. */
const char *counted(uint64_t count, const char *noun);
/* "66.02 %" of part in whole; "" where whole is 0. The same lifetime. */
const char *percent(uint64_t part, uint64_t whole);

#endif
