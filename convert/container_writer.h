/*
 * Writes a container in one pass: frames in order, each distinct one once, then index and footer.
 *
 * A frame whose class, raw size and raw hash were seen is shared only after its bytes have been compared
 * with the input at the earlier place: hashes find candidates, they decide nothing. The first one wins, so
 * the result depends on the order of the frames alone.
 */
#ifndef TP_CONVERT_CONTAINER_WRITER_H
#define TP_CONVERT_CONTAINER_WRITER_H

#include "codec/frame.h"
#include "codec/hash.h"
#include "convert/index.h"
#include "convert/output.h"
#include "formats/formats.h"

typedef struct tp_frame_record { /* a logical frame */
    uint64_t offset, start;      /* in the container; in its input file */
    uint64_t stored_hash[2], raw_hash[2];
    uint32_t stored_size, raw_size, file;
    uint8_t codec, method, cls;
} tp_frame_record;

/*
 * One file of the container, or a folder in it. All that the index needs is kept here, for there may be
 * many files: of a layout its tensors, dimensions and names.
 */
typedef struct tp_file_record {
    const char *path; /* the caller's */
    char *reason;     /* or NULL */
    tp_layout_tensor *tensors;
    tp_layout_text *dtypes;
    uint64_t *dims;
    char *strings;
    size_t tensor_count, dtype_count;
    uint64_t size, digest[2];
    uint64_t frames;
    uint8_t sha256[32];
    uint16_t mode; /* 0 in a container of one file */
    uint8_t format;
    bool folder;
} tp_file_record;

/* Moves into the record what it keeps of the layout, which is then empty. TP_NO_MEMORY. */
tp_status tp_file_record_take(tp_file_record *record, tp_layout *layout, tp_error *error);
void tp_file_record_free(tp_file_record *record);

/* Whether the input bytes of an earlier frame equal `raw` (of the same size). */
typedef tp_status (*tp_same_input_fn)(void *context, const tp_frame_record *earlier, const void *raw,
                                      bool *same, tp_error *error);

typedef struct tp_container_writer {
    tp_output *output;
    tp_hasher digest, file_digest;
    uint64_t next; /* offset of the next stored frame */
    tp_frame_record *frames;
    uint64_t frame_count, frame_capacity, duplicates;
    uint64_t file_first; /* first frame of the current file */
    uint32_t *seen;      /* open addressing: number + 1 of a stored frame; 0: free */
    uint64_t seen_size, seen_count;
    tp_same_input_fn same_input;
    void *context;
} tp_container_writer;

/* Writes the header. */
tp_status tp_container_writer_begin(tp_container_writer *writer, tp_output *output,
                                    tp_same_input_fn same_input, void *context, tp_error *error);
/* The next frame of the current file: `stored` as info says, made from `raw` at `start` in the file. */
tp_status tp_container_writer_add(tp_container_writer *writer, const tp_frame_info *info,
                                  const void *stored, const void *raw, uint32_t file, uint64_t start,
                                  tp_error *error);
/* Ends a file, whose frames are all those since the last call: sets digest and frames of its record. */
void tp_container_writer_end_file(tp_container_writer *writer, tp_file_record *file);
/*
 * Writes index and footer: of a folder, or of the one file that there is. The index has passed the reader's
 * own checks then.
 */
tp_status tp_container_writer_finish(tp_container_writer *writer, const tp_file_record *files, size_t count,
                                     bool folder, bool sha256, tp_error *error);
void tp_container_writer_free(tp_container_writer *writer);

/* Adds a file's tensors to the counts of an index, from which tp_index_size tells how large it becomes. */
void tp_container_count(tp_index *counts, const tp_layout *layout);

#endif
