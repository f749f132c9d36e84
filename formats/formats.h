/*
 * formats/: turns the headers of a checkpoint into spans and tensors. It decodes and writes nothing.
 *
 * Spans cover the file from 0 to its end without gap or overlap. Whatever is not understood is a span of
 * class TP_CLASS_BYTES; a file that is not understood as a whole is one such span, with a reason where it
 * looked like a checkpoint. Only I/O errors, lack of memory and the like are errors.
 */
#ifndef TP_FORMATS_H
#define TP_FORMATS_H

#include "tensorpress.h"

/*
 * Bounded random access to untrusted bytes. `read` delivers all of size or fails; never asked beyond size.
 * `fetch`, where there is one, reads into a buffer at a multiple of TP_FETCH_ALIGN, with so many bytes before and
 * after what is asked for to spare, and says where in it the bytes are.
 */
#define TP_FETCH_ALIGN 4096
typedef struct tp_source {
    tp_status (*read)(void *context, void *dst, size_t size, uint64_t offset, tp_error *error);
    tp_status (*fetch)(void *context, uint8_t *buffer, size_t size, uint64_t offset, uint8_t **data,
                       tp_error *error);
    void *context;
    uint64_t size;
    const char *name; /* file name, for the choice of the format by suffix and for messages */
} tp_source;

#define TP_NO_TENSOR UINT32_MAX

/*
 * A range of a tensor is one span; two where the file ends inside one of its elements: the whole elements,
 * and what is there of the next as bytes. What lies between (header, padding, holes) is one span up to the
 * next. In a file of format bytes a typed span has no tensor: what its elements are is known, but not whose
 * they are (PyTorch's checkpoints, NumPy's arrays, safetensors inside DDUF).
 */
typedef struct tp_span {
    uint64_t start;
    uint64_t length; /* >= 1 */
    uint32_t tensor; /* the first tensor of this range, or TP_NO_TENSOR */
    uint8_t cls;     /* tp_class; of a typed span the length is a multiple of the element size */
} tp_span;

typedef struct tp_layout_tensor {
    uint64_t name;   /* offset in strings */
    uint64_t dims;   /* index in dims */
    uint64_t offset; /* from the start of the file, as declared (saturated at UINT64_MAX) */
    uint64_t nbytes; /* as declared: end - begin */
    uint32_t name_size;
    uint32_t ndim;
    uint32_t dtype; /* index in dtypes */
    uint8_t cls;    /* class of its span (of several in one range: the first's); bytes if opaque */
    uint8_t flags;  /* TP_TENSOR_OPAQUE, TP_TENSOR_TRUNCATED */
} tp_layout_tensor;

typedef struct tp_layout_text {
    uint64_t start; /* offset in strings */
    uint32_t size;
} tp_layout_text;

/* What a GGUF file says of its place among several that hold one model (keys split.no, split.count, ...). */
typedef struct tp_split {
    bool has_number, has_count, has_tensors;
    uint64_t number;  /* from 0 */
    uint64_t count;   /* of files */
    uint64_t tensors; /* in all files together */
} tp_split;

/* Arrays without elements are NULL. */
typedef struct tp_layout {
    tp_format format;
    tp_split split; /* GGUF only */
    char reason[512];        /* format bytes: why, if it looked like a checkpoint; else "" */
    uint64_t opaque_tensors; /* how many tensors are opaque, and why the first is */
    char opaque_reason[512];
    tp_span *spans;
    size_t span_count;
    tp_layout_tensor *tensors; /* in header order */
    size_t tensor_count;
    tp_layout_text *dtypes; /* distinct dtype names */
    size_t dtype_count;
    uint64_t *dims;
    size_t dim_count;
    char *strings;
    size_t string_size;
} tp_layout;

/* Recognises the format by content and suffix and fills *layout; TP_IO (from the source), TP_NO_MEMORY. */
tp_status tp_layout_parse(const tp_source *source, tp_layout *layout, tp_error *error);
void tp_layout_free(tp_layout *layout);

/*
 * The index of a model in several safetensors files (`*.safetensors.index.json`): which file each tensor is in.
 * Texts end in a NUL, and live as long as the index.
 */
typedef struct tp_weight {
    const char *tensor, *file;
} tp_weight;

typedef struct tp_weight_map {
    tp_weight *weights; /* in the index's order */
    size_t count;
    bool has_total; /* metadata.total_size is there and is a size */
    uint64_t total;
    void *tree; /* holds the texts */
} tp_weight_map;

#define TP_WEIGHT_MAP_MAX ((uint64_t)64 << 20) /* bytes of an index that is read */

/* *fault: NULL, or why the text is no index (the map is empty then). TP_NO_MEMORY. */
tp_status tp_weight_map_parse(const char *text, size_t size, tp_weight_map *map, const char **fault,
                              tp_error *error);
void tp_weight_map_free(tp_weight_map *map);

/*
 * Whether a path is PREFIX-NNNNN-of-NNNNNSUFFIX, the name of one of several files that hold one model.
 * *prefix: bytes of PREFIX.
 */
bool tp_shard_name(const char *path, size_t size, const char *suffix, size_t *prefix, uint32_t *number,
                   uint32_t *count);

/* A source over memory. */
typedef struct tp_memory {
    const uint8_t *data;
} tp_memory;
tp_source tp_source_memory(tp_memory *memory, const void *data, uint64_t size, const char *name);

/* Bits per element and class of a safetensors dtype name; false if unknown. */
bool tp_safetensors_dtype(const char *name, size_t name_size, unsigned *bits, tp_class *cls);
/* Its place in the order in which the format's own library lists, and writes, the dtypes; -1 if unknown. */
int tp_safetensors_dtype_place(const char *name, size_t name_size);

#endif
