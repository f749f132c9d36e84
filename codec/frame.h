/*
 * The frame: layout, validation, encoding, decoding (docs/format.md section 5). Used by convert/ and gpu/.
 */
#ifndef TP_CODEC_FRAME_H
#define TP_CODEC_FRAME_H

#include "tensorpress.h"
#include "codec/df11.h"
#include "codec/kernels/kernels.h"

#define TP_FRAME_HEADER 128
#define TP_FRAME_MIN_STORED 256
#define TP_FRAME_MAX_STORED (TP_FRAME_HEADER + TP_FRAME_MAX_RAW)
#define TP_DESCRIPTOR_SIZE 32
#define TP_RAW_CHUNK ((size_t)262144) /* piece that raw and lz4 frames are hashed by */
#define TP_MAX_TABLES 16
#define TP_CHUNK_LOG2 17

typedef enum tp_mode {
    TP_MODE_RAW,
    TP_MODE_CONSTANT,
    TP_MODE_W32,
    TP_MODE_PAIRS,
    TP_MODE_WIDE,
    TP_MODE_LZ4,
    TP_MODE_DF11
} tp_mode;

typedef struct tp_descriptor {
    uint64_t offset; /* or the constant's value */
    uint32_t nw, nx, n;
    uint8_t table, mode;
    uint64_t hash;
} tp_descriptor;

/* A frame that has passed tp_frame_validate; points into it. */
typedef struct tp_frame_view {
    tp_frame_info info;
    tp_shape shape; /* split */
    unsigned group; /* planes: byte planes */
    unsigned chunk_log2;
    unsigned parts;                      /* descriptors a chunk */
    unsigned selector_bits;              /* split: 2^selector_bits tables a stream */
    uint32_t chunks;                     /* with descriptors; 0 for raw and lz4 */
    uint32_t symbol_tables, wide_tables; /* df11: rows of luts, 0 */
    const uint8_t *frame, *symbol_table, *wide_table, *descriptors, *payload;
    uint32_t payload_size;
    bool head_only;    /* of the payload nothing may be read */
    tp_df11_unit df11; /* df11 */
} tp_frame_view;

void tp_descriptor_load(const tp_frame_view *view, uint32_t index, tp_descriptor *d);
/* Decoded bytes of chunk `index` and where they start in the frame's raw bytes. */
size_t tp_frame_chunk(const tp_frame_view *view, uint32_t index, size_t *start);

/*
 * Every check that needs no decoding, in the order of docs/format.md section 5: afterwards a decoder that
 * follows the descriptors stays within the frame (plus TP_SLACK) and within raw_size bytes of output.
 * check_hash false leaves out the stored hash (already checked by the caller).
 */
tp_status tp_frame_validate(const void *frame, size_t size, bool check_hash, tp_frame_view *view,
                            tp_error *error);

/*
 * The same for a frame of which only the first bytes are at hand, `present` of them: at least its head (header,
 * tables and descriptors, tp_frame_head_size). What is not seen is not checked: the stored hash, exceptions, and
 * that padding is zero. TP_UNSUPPORTED: codec df11.
 */
tp_status tp_frame_validate_head(const void *head, size_t present, tp_frame_view *view, tp_error *error);

/* Only the fixed fields of a header, for a reader of a range of a container; believed later. TP_CORRUPT. */
tp_status tp_frame_peek(const void *header, tp_frame_info *info, tp_error *error);

/*
 * Decodes a validated frame. `readable` bytes from the frame's start may be read (at least its size; with
 * size + TP_SLACK nothing needs to be copied). Checks every hash.
 */
tp_status tp_frame_decode(tp_decoder *decoder, const tp_frame_view *view, size_t readable, void *dst,
                          size_t capacity, tp_error *error);

/* Uses these kernels instead of those that were in use when the handle was made. For tests and self-tests.
 */
void tp_encoder_use(tp_encoder *encoder, const tp_kernels *kernels);
void tp_decoder_use(tp_decoder *decoder, const tp_kernels *kernels);

#endif
