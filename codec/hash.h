/* XXH3 as used by the format (docs/format.md), by the kernels in use. */
#ifndef TP_CODEC_HASH_H
#define TP_CODEC_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t tp_hash64(const void *data, size_t size);
void tp_hash128(const void *data, size_t size, uint64_t hash[2]);

/* A running XXH3-128 (stored hashes, digests of files and containers). */
#define TP_HASHER_STATE 1280
typedef struct tp_hasher {
    _Alignas(64) unsigned char state[TP_HASHER_STATE]; /* the kernels' own */
    const struct tp_kernels *kernels;
} tp_hasher;
void tp_hasher_init(tp_hasher *hasher);
void tp_hasher_add(tp_hasher *hasher, const void *data, size_t size);
void tp_hasher_end(const tp_hasher *hasher, uint64_t hash[2]);

#endif
