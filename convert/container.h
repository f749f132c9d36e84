/* The container around the frames: header, footer, index (docs/format.md sections 2 to 4), and reading a
 * frame. */
#ifndef TP_CONVERT_CONTAINER_H
#define TP_CONVERT_CONTAINER_H

#include "codec/frame.h"
#include "convert/index.h"
#include "convert/input.h"
#include "formats/formats.h"

#define TP_CONTAINER_MAGIC "\x89TPRS\r\n\x1a"
#define TP_CONTAINER_HEADER 128
#define TP_CONTAINER_FOOTER 128

/*
 * Bytes that tp_container_read_frame needs at `stored`: a frame, what a decoder may read beyond it (no less
 * than what fetching may), and what fetching may need before it. At a multiple of TP_FETCH_ALIGN if the
 * source fetches.
 */
#define TP_STORED_BUFFER (TP_FETCH_ALIGN + TP_FRAME_MAX_STORED + TP_SLACK)
_Static_assert(TP_SLACK >= TP_FETCH_ALIGN, "fetching reads whole blocks");
/* Bytes for a frame's raw bytes, fetched. */
#define TP_RAW_BUFFER (TP_FETCH_ALIGN + TP_FRAME_MAX_RAW + TP_FETCH_ALIGN)

typedef struct tp_container {
    const tp_source *source; /* the caller's */
    unsigned major, minor;
    tp_index index;
} tp_container;

/* Whether the source begins as a container does; *starts says so. TP_IO. */
tp_status tp_container_recognise(const tp_source *source, bool *starts, tp_error *error);

/*
 * Reads and checks header, footer and index, file digests and container digest: all but the frames' own
 * bytes. TP_NOT_CONTAINER, TP_TRUNCATED, TP_CORRUPT, TP_NEWER_VERSION, TP_IO, TP_NO_MEMORY.
 */
tp_status tp_container_open(tp_container *container, const tp_source *source, tp_error *error);
/* Opens the input (path, or a descriptor from its position) and the container in it. */
tp_status tp_container_open_input(tp_container *container, tp_input *input, const char *path, int fd,
                                  tp_progress *progress, tp_error *error);
void tp_container_close(tp_container *container);

/*
 * Reads logical frame `frame` into stored (TP_STORED_BUFFER bytes), validates it and compares it with the
 * index. TP_CORRUPT, TP_UNSUPPORTED, TP_IO, ...
 */
tp_status tp_container_read_frame(const tp_container *container, uint64_t frame, uint8_t *stored,
                                  tp_frame_view *view, tp_error *error);
/* The same, decoded into raw (the frame's raw size). */
tp_status tp_container_decode_frame(const tp_container *container, uint64_t frame, tp_decoder *decoder,
                                    uint8_t *stored, uint8_t *raw, tp_error *error);

/* Says which frame of which file an error of the codec is about. */
tp_status tp_container_frame_error(const tp_container *container, uint64_t frame, tp_status status,
                                   const tp_error *cause, tp_error *error);

/* The parts that the writer needs. */
void tp_container_header(uint8_t header[TP_CONTAINER_HEADER]);
void tp_container_footer(uint8_t footer[TP_CONTAINER_FOOTER], uint64_t index_offset, uint64_t index_stored,
                         uint64_t index_raw, const uint64_t index_hash[2], const uint64_t digest[2]);

#endif
