/*
 * XXH3, compiled anew in every kernel file with that file's instruction set: a shared library's build of it
 * runs at a third of the speed.
 */
#ifndef TP_CODEC_HASHES_H
#define TP_CODEC_HASHES_H

#include <stddef.h>
#include <stdint.h>

/* Bytes. Hashing is often the first to read: the processor's own prefetchers end with a page. */
#define XXH_PREFETCH_DIST 4096
#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "codec/hash.h"

static uint64_t hash64(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

static void hash128(const void *data, size_t size, uint64_t hash[2])
{
    const XXH128_hash_t h = XXH3_128bits(data, size);
    hash[0] = h.low64;
    hash[1] = h.high64;
}

#endif
