/*
 * Inside the conversion to and from DFloat11: the checkpoint read, the folder written, and work shared by
 * threads.
 */
#ifndef TP_CONVERT_DF11_CONVERT_H
#define TP_CONVERT_DF11_CONVERT_H

#include "codec/df11.h"
#include "convert/folder.h"
#include "convert/tree.h"
#include "formats/df11.h"

/* ------------------------------------------------------------------------------- the checkpoint read */

/* A tensor; the texts are not terminated, but never hold a NUL. */
typedef struct tp_source_tensor {
    const char *name, *dtype;
    size_t name_size, dtype_size;
    const uint64_t *dims;
    size_t ndim;
    uint64_t offset, nbytes; /* in its file */
    size_t file;
    bool bf16;   /* two bytes an element, as many as the shape says */
    size_t unit; /* to DFloat11: of its module, SIZE_MAX: none */
    bool used;   /* by a unit, or otherwise not to be written as it is */
} tp_source_tensor;

typedef struct tp_weights_file {
    size_t entry; /* in the tree */
    const char *name;
    tp_input input;
    bool open;
    tp_layout layout;
} tp_weights_file;

/* A safetensors file, or all of those right in a folder, as one set of tensors. */
typedef struct tp_weights {
    tp_tree tree; /* of a folder */
    bool is_folder;
    char *path;
    tp_weights_file *files;
    size_t file_count, open_count;
    tp_source_tensor *list; /* by name */
    size_t count;
    char *config; /* the text of config.json, in the folder or next to the file; NULL: none */
    size_t config_size;
    char shown[TP_SHOWN_PATH];
} tp_weights;

/* TP_CORRUPT (no valid safetensors, a name twice), TP_TRUNCATED, TP_INVALID_ARGUMENT (none there), TP_IO,
 * ... */
tp_status tp_weights_open(tp_weights *weights, const char *path, tp_progress *progress, tp_error *error);
void tp_weights_close(tp_weights *weights);
/* The number of the first whose name is not below this one. */
size_t tp_weights_from(const tp_weights *weights, const char *name, size_t size);
/* NULL: there is none. */
tp_source_tensor *tp_weights_find(const tp_weights *weights, const char *name, size_t size);
/* Files are kept open only as long as needed: this opens one. Not while other threads read. */
tp_status tp_weights_hold(tp_weights *weights, size_t file, tp_error *error);
/* The files of several tensors. */
tp_status tp_weights_hold_all(tp_weights *weights, tp_source_tensor *const *tensors, size_t count,
                              tp_error *error);
/* Bytes of a tensor whose file is held. From any thread. */
tp_status tp_weights_read(const tp_weights *weights, const tp_source_tensor *weight, uint64_t offset,
                          void *dst, size_t size, tp_error *error);
/* The whole of a small file, with a NUL behind it; *text from malloc. TP_LIMIT. */
tp_status tp_read_text(const tp_source *source, char **text, size_t *size, tp_error *error);

/* -------------------------------------------------------------------------------- the folder written */

typedef struct tp_target {
    tp_folder folder;
    char **made; /* paths of the entries, to be taken back after an error */
    bool *made_folder;
    size_t made_count, made_capacity;
    uint8_t *buffer; /* TP_TARGET_BUFFER */
    tp_progress *progress;
} tp_target;
#define TP_TARGET_BUFFER ((size_t)4 << 20)

tp_status tp_target_open(tp_target *target, const char *path, bool force, tp_progress *progress,
                         tp_error *error);
/* Gives the folder its name. */
tp_status tp_target_commit(tp_target *target, tp_error *error);
/* Releases everything; removes what was not committed. */
void tp_target_close(tp_target *target);
/* A file of that size (a hole), open for writing, to be ended by tp_folder_end_file. */
tp_status tp_target_make_file(tp_target *target, const char *name, uint64_t size, int *fd, tp_error *error);
tp_status tp_target_put_file(tp_target *target, const char *name, const void *data, size_t size,
                             tp_error *error);
uint16_t tp_target_file_mode(const tp_target *target);
/* Copies a tensor's bytes. */
tp_status tp_target_copy(tp_target *target, tp_weights *weights, const tp_source_tensor *weight, int fd,
                         uint64_t offset, const char *name, tp_error *error);
/*
 * Copies everything of the input's folder but config.json, the safetensors files that were read, and their
 * index.
 */
tp_status tp_target_copy_others(tp_target *target, const tp_weights *weights, tp_error *error);

/* A tensor of a safetensors file to be written: from memory, from the input, or filled in by the caller. */
typedef struct tp_piece {
    const char *name, *dtype;
    size_t name_size, dtype_size;
    const uint64_t *dims;
    size_t ndim;
    uint64_t nbytes;
    const void *data;               /* or NULL */
    const tp_source_tensor *weight; /* or NULL */
    size_t tag;                     /* the caller's */
    uint64_t offset;                /* in the file */
} tp_piece;

/*
 * Puts the pieces into the order of the format's own library (wide dtypes first, then by name), sets their
 * offsets and makes the header; `metadata` is a JSON object, or NULL. *size receives the file's size.
 */
tp_status tp_pieces_layout(tp_piece *pieces, size_t count, const char *metadata, tp_text_buffer *header,
                           uint64_t *size, tp_error *error);
/* The whole file; pieces without data and weight are left as holes. */
tp_status tp_target_put_pieces(tp_target *target, tp_weights *weights, const char *name, tp_piece *pieces,
                               size_t count, const char *metadata, tp_error *error);

/* ----------------------------------------------------------------------------------------------- work */

/*
 * Calls fn for 0 .. count - 1 in `threads` threads; `worker` is the number of the thread. The calling
 * thread calls the progress callback. The error of the smallest number is reported.
 */
typedef tp_status (*tp_each_fn)(void *context, unsigned worker, size_t index, tp_error *error);
tp_status tp_each(unsigned threads, size_t count, tp_each_fn fn, void *context, tp_progress *progress,
                  tp_error *error);

/* What threads need for one unit after the other: buffers for pieces, and decoding. */
#define TP_DF11_BATCH 32 /* blocks decoded at once */
#define TP_DF11_PIECE                                                                                      \
    ((size_t)(TP_DF11_BATCH * (TP_DF11_BLOCK * 8 + 1))) /* elements: of codes of one bit */
typedef struct tp_df11_worker {
    uint8_t *buffer, *other; /* 2 * TP_DF11_PIECE bytes each */
    tp_df11_workspace *workspace;
} tp_df11_worker;
typedef struct tp_df11_workers {
    unsigned count;
    tp_df11_worker *list;
} tp_df11_workers;
tp_status tp_df11_workers_make(tp_df11_workers *workers, unsigned wanted, tp_error *error);
void tp_df11_workers_free(tp_df11_workers *workers);

/*
 * Decodes a unit batch by batch in all threads: fn gets elements first .. first + n - 1. decoder->unit must
 * be open. `name` in messages.
 */
typedef tp_status (*tp_df11_batch_fn)(void *context, tp_df11_worker *worker, uint64_t first, size_t n,
                                      tp_error *error);
tp_status tp_df11_decode_all(const tp_df11_decoder *decoder, const tp_df11_workers *workers,
                             tp_df11_batch_fn fn, void *context, const char *name, tp_progress *progress,
                             tp_error *error);

/* A line to the caller's warning function. */
void tp_df11_warn(const tp_options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The patterns of a file; errors name it. */
tp_status tp_df11_patterns_read(const char *path, tp_df11_patterns *patterns, tp_error *error);

/* Keys of ours in `__metadata__`. */
#define TP_DF11_SHAPES                                                                                     \
    "tensorpress.shapes" /* {"NAME": [rows, columns], ...} of a unit's weights, in order */
#define TP_DF11_SOURCE                                                                                     \
    "tensorpress.source." /* and a name: the text of that file's header, or of its index */

#endif
