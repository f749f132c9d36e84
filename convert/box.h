/*
 * A box of a tensor (a range of every dimension) as runs of bytes: all of one length, in the order of the
 * file, each as long as the box is contiguous there.
 */
#ifndef TP_CONVERT_BOX_H
#define TP_CONVERT_BOX_H

#include "tensorpress.h"

/* Elements of a dtype come in packs of whole bytes: BF16 1 in 2, F4 2 in 1, F6_E2M3 4 in 3, Q4_K 256 in
 * 144. */
typedef struct tp_pack {
    unsigned elements, bytes;
} tp_pack;

/* The pack of a safetensors or GGUF dtype; false: an unknown one. */
bool tp_pack_of(tp_format format, tp_text dtype, tp_pack *pack);

/* Dimensions of two elements or more that a tensor can have: their product is below 2^64. */
#define TP_BOX_DIMS 64

typedef struct tp_box {
    uint64_t size;   /* bytes of all runs together; 0: there is none */
    uint64_t run;    /* bytes of each */
    uint64_t offset; /* of the current run, from the start of the tensor */
    uint64_t end;    /* where the last run ends */
    /* The dimensions that the runs are spread over, fastest first. */
    unsigned dims;
    struct {
        uint64_t count, at, step; /* step in bytes */
    } dim[TP_BOX_DIMS];
} tp_box;

/*
 * The box from first to last (exclusive) of a tensor of nbytes, its dimensions slowest first, or fastest
 * first. The current run is the first. TP_INVALID_ARGUMENT, TP_CORRUPT; *fault says what is wrong (128
 * bytes).
 */
tp_status tp_box_make(tp_box *box, const uint64_t *shape, size_t ndim, bool fastest_first, tp_pack pack,
                      uint64_t nbytes, const uint64_t *first, const uint64_t *last, char fault[128]);
/* Goes on to the next run; false: the current one was the last. */
bool tp_box_next(tp_box *box);

#endif
