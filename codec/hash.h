/* XXH3 as used by the format (docs/format.md), by the kernels in use. */
#ifndef TP_CODEC_HASH_H
#define TP_CODEC_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t tp_hash64(const void *data, size_t size);
void tp_hash128(const void *data, size_t size, uint64_t hash[2]);

/* A running XXH3-128 over small parts (file digests, container digest). */
typedef struct tp_hasher {
    _Alignas(64) unsigned char state[640]; /* an XXH3_state_t; the size is checked where it is used */
} tp_hasher;
void tp_hasher_init(tp_hasher *hasher);
void tp_hasher_add(tp_hasher *hasher, const void *data, size_t size);
void tp_hasher_end(const tp_hasher *hasher, uint64_t hash[2]);

#endif
