/*
 * Inside formats/: building a tp_layout. A format's parser adds tensors with ranges relative to the start
 * of the data, then the spans are made from them, in one way for all formats.
 */
#ifndef TP_FORMATS_LAYOUT_H
#define TP_FORMATS_LAYOUT_H

#include "formats/formats.h"

/*
 * Memory that a layout may take. A header can name a tensor in about 48 bytes, for which a layout needs
 * three times as much, or a dimension in 2 bytes: without a limit of its own the memory would be several
 * times the largest header. Enough for 1,700,000 tensors with names of 40 bytes and two dimensions.
 */
#define TP_LAYOUT_MEMORY ((uint64_t)256 << 20)

/* Room for a name in a message, with its NUL; longer ones end in "...". */
#define TP_SHOWN_SIZE 132

typedef struct tp_layout_builder {
    tp_layout *layout;
    const tp_source *source;
    tp_error *error;
    bool refused; /* layout->reason says why the file is to be taken as bytes; the status is TP_CORRUPT */
    uint64_t memory;
    size_t span_capacity, tensor_capacity, dtype_capacity, dim_capacity, string_capacity;
    size_t last_dtype;
} tp_layout_builder;

/* Refuses the file: sets the reason, unless there is one. Always TP_CORRUPT. */
tp_status tp_layout_refuse(tp_layout_builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
tp_status tp_layout_no_memory(const tp_source *source, tp_error *error);

/* These return TP_OK, TP_NO_MEMORY, or TP_CORRUPT if TP_LAYOUT_MEMORY is exceeded (the file is refused). */
tp_status tp_layout_add_text(tp_layout_builder *builder, const void *text, size_t size);
tp_status tp_layout_add_dim(tp_layout_builder *builder, uint64_t dim);
tp_status tp_layout_add_tensor(tp_layout_builder *builder, const tp_layout_tensor *tensor);
tp_status tp_layout_add_dtype(tp_layout_builder *builder, const char *name, size_t size, uint32_t *index);

/* Flags the tensor opaque, counts it, and keeps the reason if it is the first. The tensor's name must be
 * set. */
void tp_layout_opaque(tp_layout_builder *builder, tp_layout_tensor *tensor, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Sorts the tensors' ranges, refuses ranges that overlap in part, builds the spans and makes the tensors'
 * offsets, until now relative to data_start, absolute. data_start may lie beyond the file's end, and the
 * tensors with it. The last step of a parser.
 */
tp_status tp_layout_finish(tp_layout_builder *builder, uint64_t data_start);

/*
 * For files of bytes in which some ranges are known to be elements of a class: adds such a range, which
 * lies behind those before and inside the file. Whole elements are typed, what is left of it is bytes, as
 * is all between the ranges. Status as above. The last step is tp_layout_finish_typed.
 */
tp_status tp_layout_add_typed(tp_layout_builder *builder, uint64_t start, uint64_t length, tp_class cls);
tp_status tp_layout_finish_typed(tp_layout_builder *builder);

/* Empties the layout to one span of bytes; the reason stays. */
tp_status tp_layout_bytes(tp_layout_builder *builder);

/* Length of the valid UTF-8 sequence at text, of which size bytes (>= 1) are there; 0 if there is none. */
unsigned tp_utf8_sequence(const uint8_t *text, size_t size);
/* A name for people: control bytes and invalid UTF-8 as \xNN, cut to TP_SHOWN_SIZE. Returns shown. */
const char *tp_show(char shown[TP_SHOWN_SIZE], const char *text, size_t size);
const char *tp_show_tensor(char shown[TP_SHOWN_SIZE], const tp_layout *layout,
                           const tp_layout_tensor *tensor);

/*
 * The class for elements of this one whose bytes are in the other order. Exponent and mantissa then do not
 * lie where the float classes look for them; byte planes do not care which end comes first.
 */
tp_class tp_class_swapped(tp_class cls);

/* NULL, or what is wrong with the layout of a file of that size; for tests. */
const char *tp_layout_check(const tp_layout *layout, uint64_t size);

/* ------------------------------------------------------------------------------------------ formats */

/* Whether the content (not the name) looks like safetensors. TP_NO_MEMORY, or an error of the source. */
tp_status tp_safetensors_recognise(const tp_source *source, bool *yes, tp_error *error);
tp_status tp_safetensors_parse(tp_layout_builder *builder);
/* A file that begins with "GGUF" or is called so. */
tp_status tp_gguf_parse(tp_layout_builder *builder);
/* Any other file: bytes, with typed ranges if it holds arrays in a way that is known. Never refused. */
tp_status tp_archive_parse(tp_layout_builder *builder);

#endif
