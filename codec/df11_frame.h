/* The frame codec df11: one DFloat11 unit (docs/format.md section 6, "Codec df11"). */
#ifndef TP_CODEC_DF11_FRAME_H
#define TP_CODEC_DF11_FRAME_H

#include "codec/encoder.h"

#define TP_FRAME_DF11_ENCODED 40 /* place in the header of the code stream's size */

typedef struct tp_df11_frame {
    uint32_t rows, encoded_size, chunks, payload_size;
    size_t payload_at;
} tp_df11_frame;

/*
 * Writes tables, descriptors and payload behind the place of the header; hashes[] receives those of the
 * chunks. False if the elements cannot be coded, or not in a frame that saves 1 %.
 */
bool tp_df11_frame_make(const tp_encode_state *s, uint64_t hashes[TP_MAX_CHUNKS], tp_df11_frame *made);

/*
 * Descriptors, arrays and tables of a frame whose header, sizes and directory hash have been checked. Fills
 * view->df11 and opens *decoder, which points into the frame then.
 */
tp_status tp_df11_frame_check(tp_frame_view *view, tp_df11_decoder *decoder, tp_error *error);

#endif
