/*
 * The tensor types of GGUF: how many elements a block has, in how many bytes, and the class of its span
 * (docs/format.md section 6). Ids that were removed, or that only a fork has, are not listed: what they
 * mean cannot be told from the file.
 */
#ifndef TP_FORMATS_GGUF_TYPES_H
#define TP_FORMATS_GGUF_TYPES_H

#include "tensorpress.h"

typedef struct tp_gguf_type {
    const char *name;
    uint16_t block_elements; /* 1: not quantised */
    uint16_t block_bytes;
    uint8_t cls; /* tp_class; bytes for the quantised types, and for no others */
    /*
     * In a big-endian file, whose elements are swapped. Exponent and mantissa do not lie where the float
     * classes look for them; byte planes do not care which end comes first.
     */
    uint8_t swapped_cls;
} tp_gguf_type;

/* NULL: unknown. */
const tp_gguf_type *tp_gguf_type_find(uint32_t id);
const tp_gguf_type *tp_gguf_type_named(const char *name, size_t size);

#endif
