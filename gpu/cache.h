/* Compiled kernels in the user's cache folder. Never an error: what is not there is compiled again. */
#ifndef TP_GPU_CACHE_H
#define TP_GPU_CACHE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tp_cache_key { /* one of the things that the entry depends on */
    const void *data;
    size_t size;
} tp_cache_key;
void tp_cache_key_of(const tp_cache_key *parts, size_t count, uint64_t key[2]);

/* NULL: not there or damaged. From malloc. */
void *tp_cache_load(const uint64_t key[2], size_t limit, size_t *size);
void tp_cache_store(const uint64_t key[2], const void *data, size_t size);

#endif
