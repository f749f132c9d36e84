/* Dtype classes: how the bits of an element are cut (docs/format.md section 6). */
#ifndef TP_CODEC_CLASS_H
#define TP_CODEC_CLASS_H

#include "tensorpress.h"

typedef struct tp_class_traits {
    uint8_t element; /* bytes */
    uint8_t T;       /* top bits; 0: no split (integers of 16 bits and more, bytes) */
    uint8_t low;     /* bytes below the top part */
    uint8_t s[3];    /* allowed symbol bits, the default first; 0: none */
    uint8_t finer;   /* s that level default tries beside s[0], one more; 0: none */
    uint8_t planes;  /* byte planes of codec planes; 0: not allowed */
    bool rotated;    /* the sign moves to bit 0 */
    bool pairs;      /* c = 2 with s = 8 allowed */
    bool wide_top;   /* the whole byte may be one wide symbol */
} tp_class_traits;

/* NULL if cls is none of TP_CLASS_LIST. */
const tp_class_traits *tp_class_traits_of(unsigned cls);

#endif
