/* What the tests of formats/ share: hand-built files, and an allocator that counts and fails on demand. */
#ifndef TP_TESTS_FORMATS_SUPPORT_H
#define TP_TESTS_FORMATS_SUPPORT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/layout.h"

/* A file in memory. */
typedef struct file {
    uint8_t *data;
    size_t size;
} file;

/* Header length, header, data_size bytes of data. `header_size` counts NULs inside; SIZE_MAX: strlen. */
file file_make(const char *header, size_t header_size, size_t data_size);
void file_free(file *f);

/* Parses and checks the layout's rules; the layout is the caller's to free. */
tp_layout parse_file(const file *f, const char *name);
/* file_make, named x.safetensors, with a header of a C string; parse_file; file_free. */
tp_layout parse(const char *header, size_t data_size);

/* The reason with which a file is taken as bytes; each checks that nothing else is left in the layout. */
void assert_reason(const char *header, const char *reason);
void assert_file_reason(const file *f, const char *name, const char *reason);

/* "START+LENGTH:CLASS:TENSOR ..." of all spans; '-' for no tensor. Valid until the next call. */
const char *spans_text(const tp_layout *layout);
/* Name, dtype, shape as "[2,3]", offset, nbytes, class, flags of a tensor: "NAME BF16 [2,3] 100+12 bf16 0".
 */
const char *tensor_text(const tp_layout *layout, size_t index);

/* The allocator. Only what formats/ and cJSON allocate is counted. */
extern size_t memory_peak;      /* most bytes at a time since memory_reset */
extern size_t memory_in_use;    /* now, since memory_reset */
extern size_t memory_count;     /* allocations since memory_reset */
extern size_t memory_fail_from; /* the allocation of this number and all later ones fail; SIZE_MAX: none */
void memory_reset(void);

int run_dtypes(void);
int run_layout(void);
int run_safetensors(void);
int run_gguf(void);
int run_pickle(void);
int run_zip(void);

#endif
