/* NumPy's file of one array: which of its bytes are elements, and of which class. */
#ifndef TP_FORMATS_NPY_H
#define TP_FORMATS_NPY_H

#include "formats/formats.h"

typedef struct tp_npy {
    uint64_t start; /* of the elements, in the source */
    uint64_t size;  /* a whole number of them; 0 if nothing is known of the file */
    tp_class cls;
} tp_npy;

/* Whether the first bytes are those of an array file. */
bool tp_npy_recognise(const uint8_t start[6]);
/* Reads the header of the array file that lies in these bytes of the source. TP_NO_MEMORY, or an error of
 * the source; a file that is not understood has no elements. */
tp_status tp_npy_read(const tp_source *source, uint64_t start, uint64_t size, tp_npy *npy, tp_error *error);

#endif
