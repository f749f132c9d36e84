/*
 * The input: bounded random access to an open file by pread. (Not mmap: a file that shrinks must give an
 * error, not a signal.) What cannot be read at random, a pipe say, is first copied into an unlinked
 * temporary file.
 */
#ifndef TP_CONVERT_INPUT_H
#define TP_CONVERT_INPUT_H

#include <sys/stat.h>

#include "convert/progress.h"
#include "convert/text.h"
#include "formats/formats.h"

typedef struct tp_input {
    tp_source source; /* its name is `name` */
    int fd;           /* -1: none, as with a callback */
    int direct;       /* the same without the page cache (direct.h), if source.fetch is set */
    bool refused;     /* the file system cannot do that after all */
    tp_read_fn call;  /* reads in place of fd; NULL: none */
    void *call_context;
    bool owned, spooled;
    uint64_t base;            /* where the input starts in fd */
    struct stat stat;         /* of the original file, when it was opened */
    char name[TP_SHOWN_PATH]; /* for messages */
} tp_input;

/*
 * Opens path, or takes the descriptor fd >= 0, which stays the caller's (path is then its name, NULL:
 * "stdin"). A regular file's descriptor is read from its position if from_position, else as a whole.
 * The struct must not move afterwards. progress may be NULL.
 * TP_IO, TP_NO_SPACE (for the copy of a pipe), TP_CANCELLED, TP_UNSUPPORTED (a folder).
 */
tp_status tp_input_open(tp_input *input, const char *path, int fd, bool from_position,
                        tp_progress *progress, tp_error *error);
/*
 * Takes over an open regular file as a whole, `shown` being its name in messages (at most TP_SHOWN_PATH
 * bytes). On an error it is closed. TP_IO, also where it is no regular file.
 */
tp_status tp_input_take(tp_input *input, int fd, const char *shown, tp_error *error);
/* Takes the caller's callback in place of a file. The same holds of the struct. */
void tp_input_callback(tp_input *input, const char *name, tp_read_fn call, void *context, uint64_t size);
/* What is fetched from a large file, which was opened by its name, is read past the page cache from here
 * on, where that can be (direct.h). */
void tp_input_direct(tp_input *input);
void tp_input_close(tp_input *input);

/* source->fetch, or read where there is none; the buffer must do for both. */
tp_status tp_fetch(const tp_source *source, uint8_t *buffer, size_t size, uint64_t offset, uint8_t **data,
                   tp_error *error);

/* TP_IO if the file's size or time has changed since it was opened. Of a callback nothing is known. */
tp_status tp_input_unchanged(const tp_input *input, tp_error *error);

#endif
