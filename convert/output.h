/*
 * The output. A file appears under its name whole and synced, or not at all: it is born unnamed (O_TMPFILE)
 * or under `.NAME.tpress-XXXXXX` in the same folder, and never replaces what it was not asked to. A
 * descriptor of the caller's is written in order.
 */
#ifndef TP_CONVERT_OUTPUT_H
#define TP_CONVERT_OUTPUT_H

#include <sys/stat.h>

#include "convert/file_writer.h"
#include "convert/place.h"
#include "convert/progress.h"

typedef struct tp_output {
    int fd;         /* -1: only counts */
    tp_place place; /* of the file; empty for a descriptor */
    bool owned, force;
    bool waits;            /* a pipe or the like: writing may block */
    char *temporary;       /* name in the place's folder until the file is whole; NULL while it has none */
    uint64_t size;         /* written in order so far */
    tp_file_writer writer; /* of a file */
    dev_t input_dev;
    ino_t input_ino;
    tp_progress *progress;
    char name[TP_SHOWN_PATH]; /* for messages */
} tp_output;

/*
 * Prepares a file at path, or takes the descriptor fd >= 0 (path is then its name, NULL: "stdout").
 * `input`: the file that must not be the output, or NULL. progress is asked during long waits. TP_EXISTS,
 * TP_INVALID_ARGUMENT (the output is the input, a folder, or no ordinary file), TP_IO, TP_NO_SPACE.
 */
tp_status tp_output_open(tp_output *output, const char *path, int fd, bool force, const struct stat *input,
                         tp_progress *progress, tp_error *error);
/* An output that only counts. */
void tp_output_count(tp_output *output);
/* What stands at the output's name now, or is written to as a descriptor; false: nothing. */
bool tp_output_stat(const tp_output *output, struct stat *properties);

/* From here on a file is written past the page cache, where that can be (direct.h). */
void tp_output_direct(tp_output *output);

/* Appends: to a file from any thread, one at a time. */
tp_status tp_output_write(tp_output *output, const void *data, size_t size, tp_error *error);

/* Of files only: gives the file its size (a hole), TP_NO_SPACE if the file system has less left; writes
 * further and further on in it, from any thread, one at a time. */
bool tp_output_is_file(const tp_output *output);
tp_status tp_output_reserve(tp_output *output, uint64_t size, tp_error *error);
tp_status tp_output_write_at(tp_output *output, const void *data, size_t size, uint64_t offset,
                             tp_error *error);

/* Syncs the file and its folder and gives it its name. TP_EXISTS if somebody was faster. */
tp_status tp_output_commit(tp_output *output, tp_error *error);
/* Releases everything; removes what was not committed. */
void tp_output_close(tp_output *output);

#endif
