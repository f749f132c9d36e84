/*
 * The index of a container: its files, tensors and logical frames (docs/format.md section 4). The columns
 * are used where they lie in the raw index; only prefix sums are added (8 bytes a tensor, 24 bytes a
 * frame).
 */
#ifndef TP_CONVERT_INDEX_H
#define TP_CONVERT_INDEX_H

#include "tensorpress.h"

#define TP_INDEX_HEADER 64
#define TP_INDEX_MAX_RAW ((uint64_t)1 << 30)
#define TP_MAX_PATH 4095     /* bytes of a path */
#define TP_MAX_COMPONENT 255 /* and of each of its parts */

/* Column name, C type, elements per entry. In stored order. X(name, type, per, entries counted by) */
#define TP_INDEX_COLUMNS(X)                                                                                \
    X(file_size, uint64_t, 1, files)                                                                       \
    X(file_digest, uint64_t, 2, files)                                                                     \
    X(file_sha256, uint8_t, 32, sha256s)                                                                   \
    X(tensor_offset, uint64_t, 1, tensors)                                                                 \
    X(tensor_nbytes, uint64_t, 1, tensors)                                                                 \
    X(tensor_dims, uint64_t, 1, dims)                                                                      \
    X(frame_offset, uint64_t, 1, frames)                                                                   \
    X(frame_stored_hash, uint64_t, 2, frames)                                                              \
    X(frame_raw_hash, uint64_t, 2, frames)                                                                 \
    X(file_frames, uint32_t, 1, files)                                                                     \
    X(file_tensors, uint32_t, 1, files)                                                                    \
    X(file_path_len, uint32_t, 1, files)                                                                   \
    X(file_reason_len, uint32_t, 1, files)                                                                 \
    X(tensor_name_len, uint32_t, 1, tensors)                                                               \
    X(tensor_ndim, uint32_t, 1, tensors)                                                                   \
    X(tensor_dtype, uint32_t, 1, tensors)                                                                  \
    X(dtype_len, uint32_t, 1, dtypes)                                                                      \
    X(frame_stored_size, uint32_t, 1, frames)                                                              \
    X(frame_raw_size, uint32_t, 1, frames)                                                                 \
    X(file_mode, uint16_t, 1, files)                                                                       \
    X(file_kind, uint8_t, 1, files)                                                                        \
    X(file_format, uint8_t, 1, files)                                                                      \
    X(tensor_flags, uint8_t, 1, tensors)                                                                   \
    X(frame_codec, uint8_t, 1, frames)                                                                     \
    X(frame_method, uint8_t, 1, frames)                                                                    \
    X(strings, char, 1, string_bytes)

typedef struct tp_index {
    uint8_t *raw; /* owned; the columns point into it */
    uint64_t raw_size;
    bool folder, has_sha256;
    uint64_t files, sha256s, tensors, dims, frames, dtypes, string_bytes;
#define TP_INDEX_POINTER(name, type, per, count) type *name;
    TP_INDEX_COLUMNS(TP_INDEX_POINTER)
#undef TP_INDEX_POINTER

    /* Prefix sums, each with a last entry for the end. */
    uint64_t *frame_start;   /* raw bytes of all frames before; a file's position is relative to its first
                                frame's */
    uint64_t *frame_stored;  /* stored bytes of all frames before, duplicates counted as 0 */
    uint32_t *frame_changes; /* how often the method changed up to this frame */
    uint32_t *stored;        /* logical frame where each stored frame occurs first, ascending in offset */
    uint64_t stored_count;
    uint32_t *file_frame, *file_tensor;                 /* the first of each file */
    uint32_t *path_at, *reason_at, *name_at, *dtype_at; /* in strings */
    uint32_t *dim_at;
} tp_index;

/* Bytes of a raw index with these counts; false on overflow. */
bool tp_index_size(const tp_index *counts, uint64_t *size);
/* Allocates a raw index with the counts already in *index and sets the columns' pointers. TP_NO_MEMORY,
 * TP_LIMIT. */
tp_status tp_index_allocate(tp_index *index, tp_error *error);

/*
 * Takes over `raw`, from malloc, and checks every rule of docs/format.md section 4. index_offset: where the
 * index lies in the container. `name` of the container serves messages. On an error nothing is left to
 * free. TP_CORRUPT, TP_NO_MEMORY.
 */
tp_status tp_index_parse(tp_index *index, uint8_t *raw, uint64_t size, uint64_t index_offset,
                         const char *name, tp_error *error);
void tp_index_free(tp_index *index);

/* The frame of the file that holds its byte `offset` (which must lie inside the file). */
uint64_t tp_index_frame_at(const tp_index *index, uint64_t file, uint64_t offset);
/* Start of a frame within its file, which must own it. */
uint64_t tp_index_frame_position(const tp_index *index, uint64_t file, uint64_t frame);
/* The file that owns a tensor. */
uint64_t tp_index_tensor_file(const tp_index *index, uint64_t tensor);
/* The first logical frame with the same stored frame: `frame` itself unless it is a duplicate. */
uint64_t tp_index_first(const tp_index *index, uint64_t frame);
bool tp_index_is_duplicate(const tp_index *index, uint64_t frame);

/* Equality of two XXH3-128. Always true in a build that leaves out all hash checks, for fuzzing. */
static inline bool tp_same_hash(const uint64_t a[2], const uint64_t b[2])
{
#ifdef TP_IGNORE_HASHES
    (void)a, (void)b;
    return true;
#else
    return a[0] == b[0] && a[1] == b[1];
#endif
}

/* How many entries are files, not folders. */
uint64_t tp_index_regular_files(const tp_index *index);
/* The numbers of all files in the byte order of their paths, from malloc. TP_NO_MEMORY. */
tp_status tp_index_sort(const tp_index *index, uint32_t **sorted, tp_error *error);

tp_text tp_index_path(const tp_index *index, uint64_t file);
tp_text tp_index_name(const tp_index *index, uint64_t tensor);

#endif
