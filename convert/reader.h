/*
 * What the device level needs of a tp_reader beyond the public interface: the frames of a container as they
 * are stored. May be called from many threads at once.
 */
#ifndef TP_CONVERT_READER_H
#define TP_CONVERT_READER_H

#include "codec/frame.h"

/* The name of the file opened, for messages. */
const char *tp_reader_name(const tp_reader *reader);

/* Of a container: the frame that holds byte `offset` (which must lie inside the file), and where it starts
 * there. */
uint64_t tp_reader_frame_at(const tp_reader *reader, size_t file, uint64_t offset, uint64_t *start);

/* Bytes that tp_reader_read_frame needs at `stored`: a frame and what a decoder may read beyond it. */
#define TP_READER_STORED_BUFFER (TP_FRAME_MAX_STORED + TP_SLACK)

/*
 * Reads a frame of a container into stored, validates it and compares it with the index. TP_CORRUPT,
 * TP_UNSUPPORTED, TP_IO, ...
 */
tp_status tp_reader_read_frame(const tp_reader *reader, uint64_t frame, uint8_t *stored,
                               tp_frame_view *view, tp_error *error);

/* Says which frame of which file an error of the codec is about. */
tp_status tp_reader_frame_error(const tp_reader *reader, uint64_t frame, tp_status status,
                                const tp_error *cause, tp_error *error);

#endif
