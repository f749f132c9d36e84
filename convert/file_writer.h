/*
 * Writes a file front to back, by one thread at a time. What is left out stays a hole. The system is asked
 * to write to the disk what was written so far while more is made, so that little is left for fsync to wait
 * for.
 */
#ifndef TP_CONVERT_FILE_WRITER_H
#define TP_CONVERT_FILE_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "tensorpress.h"

typedef struct tp_file_writer {
    int fd;            /* the caller's */
    const char *name;  /* the caller's, for messages */
    uint64_t position; /* all before it was written, or is a hole, or is held */
    uint64_t asked;    /* the system was asked to write to the disk what is before this one */
    /* Past the page cache (direct.h): */
    int direct;     /* -1: through it */
    uint8_t *block; /* the last `held` bytes before the position, from a multiple of TP_DIRECT_ALIGN on */
    size_t held;
} tp_file_writer;

/* All of it at `offset` of a file; `name` in messages. TP_IO, TP_NO_SPACE, ... */
tp_status tp_write_at(int fd, const void *data, size_t size, uint64_t offset, const char *name,
                      tp_error *error);

void tp_file_writer_init(tp_file_writer *writer);
/* Begins a file; what is held of the one before is dropped. direct: past the page cache, where that can be.
 */
void tp_file_writer_begin(tp_file_writer *writer, int fd, const char *name, bool direct);
/*
 * Writes at `offset`, which is the position or after it; then the file must have its size already. TP_IO,
 * TP_NO_SPACE, ...
 */
tp_status tp_file_writer_put(tp_file_writer *writer, const void *data, size_t size, uint64_t offset,
                             tp_error *error);
/* Writes what is held. */
tp_status tp_file_writer_end(tp_file_writer *writer, tp_error *error);
void tp_file_writer_free(tp_file_writer *writer);

#endif
