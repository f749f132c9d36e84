/*
 * What is to be loaded: the items chosen, and for some of them which parts of which frames make them up and
 * in which order they are read.
 */
#ifndef TP_GPU_PLAN_H
#define TP_GPU_PLAN_H

#include "tensorpress.h"

#define TP_ITEM_ALIGN 256u

/* A file that items are of. */
typedef struct tp_source_file {
    tp_reader *reader;
    bool container;
    uint32_t *item_of; /* of each tensor the item that is all of it, UINT32_MAX: none */
    size_t tensors;
} tp_source_file;

/* A tensor, or some of its rows. */
typedef struct tp_item {
    uint32_t source;
    size_t tensor;
    uint64_t from, nbytes; /* of the tensor's bytes */
    bool whole;
    uint64_t first, last; /* rows, if not whole */
    uint32_t memory;      /* the loader's number of the memory it lies in; none if it has no bytes */
    uint64_t at;          /* there */
    uint8_t misaligned;   /* its address, modulo 16 */
    bool placed;          /* the caller has said where */
    bool loaded;
} tp_item;

typedef struct tp_choice {
    tp_source_file *sources;
    size_t source_count, source_capacity;
    tp_item *items;
    size_t item_count, item_capacity;
} tp_choice;

void tp_choice_free(tp_choice *choice);
/* A whole tensor, again for the same one the same item; or rows first .. last - 1. */
tp_status tp_choose(tp_choice *choice, tp_reader *reader, size_t tensor, size_t *item, tp_error *error);
tp_status tp_choose_rows(tp_choice *choice, tp_reader *reader, size_t tensor, uint64_t first, uint64_t last,
                         size_t *item, tp_error *error);
/* Items that could not be loaded are not chosen any more. */
void tp_choice_forget(tp_choice *choice, size_t item);

const char *tp_item_file(const tp_choice *choice, const tp_item *item); /* its file's name */
/* Its tensor's name, made safe to print. Returns shown. */
#define TP_SHOWN_NAME 256
const char *tp_item_name(const tp_choice *choice, const tp_item *item, char shown[TP_SHOWN_NAME]);

/* A part of a frame (or of a plain file) that belongs to an item. */
typedef struct tp_placement {
    uint64_t stored_at; /* where the frame is stored in the container: the same for duplicates; plain: in
                           the file */
    uint64_t frame;     /* logical frame; plain: the file's number */
    uint32_t from, size;
    uint32_t source, item;
    uint64_t to; /* in the item */
} tp_placement;

typedef struct tp_plan {
    tp_placement *placements; /* those of one stored frame together, in stored order, source by source */
    size_t placement_count;
    size_t *frames; /* the first placement of each frame, and the end */
    size_t frame_count;
    uint64_t raw_bytes;
} tp_plan;

/* For the items first .. end - 1, or of those that are loaded only. */
tp_status tp_plan_make(tp_plan *plan, const tp_choice *choice, size_t first, size_t end, bool loaded_only,
                       tp_error *error);
void tp_plan_free(tp_plan *plan);

static inline const tp_placement *tp_plan_frame(const tp_plan *plan, size_t frame)
{
    return &plan->placements[plan->frames[frame]];
}

/*
 * The placement of frame `frame` that the frame can be decoded into, whole, at an address that is a
 * multiple of 16; SIZE_MAX if it needs scratch.
 */
size_t tp_plan_direct(const tp_plan *plan, const tp_choice *choice, size_t frame, uint32_t raw_size);

/* Room for one more in a growing array; false: out of memory. */
bool tp_grow(void *array, size_t *capacity, size_t count, size_t size);

#endif
