/* What is to be loaded: where each tensor goes, and which pieces of the file make it up. */
#ifndef TP_GPU_PLAN_H
#define TP_GPU_PLAN_H

#include "tensorpress.h"

#define TP_TENSOR_ALIGN 256u

typedef struct tp_plan_tensor {
    size_t number; /* the reader's */
    uint64_t nbytes;
    uint32_t slab; /* the device memory it lies in; none if it has no bytes */
    uint64_t at;   /* in the slab, a multiple of TP_TENSOR_ALIGN */
} tp_plan_tensor;

/* A part of a frame (or of a plain file) that belongs to a tensor. */
typedef struct tp_placement {
    uint64_t stored_at; /* where the frame is stored in the container: the same for duplicates; plain: in
                           the file */
    uint64_t frame;     /* logical frame; plain: the file's number */
    uint32_t from, size;
    uint32_t tensor; /* in the plan */
    uint64_t to;     /* in the tensor */
} tp_placement;

typedef struct tp_plan {
    tp_plan_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    uint32_t *of_reader; /* the plan's number of each of the reader's tensors, UINT32_MAX: not chosen */
    size_t reader_tensors;
    uint64_t raw_bytes;

    /* Made by tp_plan_make. */
    uint64_t *slabs; /* sizes */
    size_t slab_count;
    tp_placement *placements; /* those of one stored frame together, in stored order */
    size_t placement_count;
    size_t *frames; /* the first placement of each frame, and the end */
    size_t frame_count;
    bool container;
} tp_plan;

tp_status tp_plan_init(tp_plan *plan, const tp_reader *reader, tp_error *error);
void tp_plan_free(tp_plan *plan);
/* Again for the same tensor it does nothing. */
tp_status tp_plan_add(tp_plan *plan, const tp_reader *reader, size_t tensor, tp_error *error);
/* max_slab: bytes of device memory in one piece. TP_LIMIT: a tensor is larger. */
tp_status tp_plan_make(tp_plan *plan, const tp_reader *reader, uint64_t max_slab, tp_error *error);

/*
 * The placement of frame `frame` that the frame can be decoded into, whole, at an address that is a
 * multiple of 16; SIZE_MAX if it needs scratch.
 */
size_t tp_plan_direct(const tp_plan *plan, size_t frame, uint32_t raw_size);

#endif
