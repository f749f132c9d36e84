/* The kernels' text, as OpenCL compiles it at run time. */
#ifndef TP_GPU_TEXT_H
#define TP_GPU_TEXT_H

#include <stddef.h>

typedef enum tp_text_part { TP_TEXT_COMMON, TP_TEXT_STREAM, TP_TEXT_PARTS, TP_TEXT_DF11, TP_TEXT_HASH } tp_text_part;

/* Not terminated. */
const char *tp_kernel_text(tp_text_part part, size_t *size);

#endif
