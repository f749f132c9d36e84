/* Deterministic data of every dtype class that looks like a model's, for bench. */
#ifndef TP_CLI_SYNTHETIC_H
#define TP_CLI_SYNTHETIC_H

#include <stdbool.h>
#include <stddef.h>

#include "tensorpress.h"

/* The normal numbers that all classes are made from, once for all. NULL: no memory. */
float *synthetic_pool(void);
/* Fills dst; size is a multiple of the class's element size. */
void synthetic_fill(tp_class cls, const float *pool, void *dst, size_t size);

#endif
