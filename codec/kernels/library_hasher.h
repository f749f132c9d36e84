/* A running XXH3-128 by the library, for kernels that have none of their own. */
#ifndef TP_CODEC_LIBRARY_HASHER_H
#define TP_CODEC_LIBRARY_HASHER_H

#include "codec/kernels/hashes.h"

_Static_assert(sizeof(XXH3_state_t) <= TP_HASHER_STATE, "tp_hasher holds an XXH3_state_t");
_Static_assert(_Alignof(XXH3_state_t) <= 64, "tp_hasher is aligned for an XXH3_state_t");

static void hasher_init(void *state)
{
    XXH3_128bits_reset(state);
}

static void hasher_add(void *state, const void *data, size_t size)
{
    XXH3_128bits_update(state, data, size);
}

static void hasher_end(const void *state, uint64_t hash[2])
{
    const XXH128_hash_t h = XXH3_128bits_digest(state);
    hash[0] = h.low64;
    hash[1] = h.high64;
}

#endif
