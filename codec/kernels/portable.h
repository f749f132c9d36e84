/* What portable.c has for all kernels: those by name that others have nothing better for, and how every
 * encoder ends. */
#ifndef TP_CODEC_PORTABLE_H
#define TP_CODEC_PORTABLE_H

#include "codec/kernels/kernels.h"

void tp_portable_count_bytes(const uint8_t *src, size_t n, uint32_t step, uint32_t *counts);
void tp_portable_plane_get(const uint8_t *src, size_t size, unsigned element, unsigned index, uint8_t *dst);
void tp_portable_plane_put(const uint8_t *plane, size_t size, unsigned element, unsigned index,
                           uint8_t *dst);

/* For kernels without a table of 256 bytes in registers (codec/kernels/counts.h). */
static inline void tp_group_pairs(const uint8_t code[256], const uint16_t *symbols, uint8_t *pairs)
{
    for (int i = 0; i < TP_GROUP / 2; i++)
        pairs[i] = (uint8_t)(code[symbols[2 * i] & 255] | code[symbols[2 * i + 1] & 255] << 4);
}

/* How every encoder ends. W32, once job->nw and job->nx are set: job->size and, if it fits, states, words,
 * selectors, exceptions and padding to the payload; raw rows and low planes are there or come afterwards.
 * Wide: likewise; returns the size or 0. */
void tp_w32_encode_end(const tp_shape *shape, tp_w32_encode_job *job, const uint32_t states[TP_LANES],
                       const uint8_t *words, const uint8_t *exceptions);
size_t tp_wide_encode_end(const uint32_t states[TP_LANES], const uint8_t *words, uint32_t nw,
                          uint8_t *payload, size_t capacity);
/* Of a W32 payload of `size` bytes, what comes behind its words, which end at out. */
void tp_w32_stream_end(tp_w32_encode_job *job, uint8_t *out, const uint8_t *exceptions, size_t size);

#endif
