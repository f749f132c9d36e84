/* What the parts of tp_loader share: loader.c, pass.c, verify.c, dlpack.c. */
#ifndef TP_GPU_LOADER_H
#define TP_GPU_LOADER_H

#include <stdatomic.h>

#include "convert/progress.h"
#include "gpu/batch.h"
#include "gpu/plan.h"
#include "gpu/workers.h"

/* Memory of the loader's own. Tensors given to others (dlpack.c) keep it, and with it the device. */
typedef struct tp_slab {
    _Atomic unsigned references;
    bool delivered; /* items in it have been handed out */
    tp_memory memory;
} tp_slab;
void tp_slab_release(tp_slab *slab);

/* What a thread needs to read and decode a frame by itself, and what it has done. */
typedef struct tp_load_workspace {
    tp_decoder *decoder;
    uint8_t *stored, *raw;
    uint64_t stored_bytes, device_bytes, host_bytes;
    double read_s, decode_s;
} tp_load_workspace;

typedef enum tp_batch_state { TP_BATCH_EMPTY, TP_BATCH_FILLING, TP_BATCH_STARTED } tp_batch_state;

/* Loading of the items first .. end - 1, from its start to its end (pass.c). */
typedef struct tp_pass {
    bool active;
    size_t first, end;
    size_t first_memory; /* of those made for it */
    tp_plan plan;
    struct tp_pass_order { /* in which items are complete */
        size_t frames;     /* when these are done */
        uint32_t item;
    } * order;
    size_t delivered; /* of the order */
    size_t done;      /* frames that are complete */
    /* On a device with kernels: two batches in turn, at[turn] is filled or has been filled last. */
    tp_batch batches[2];
    tp_batch_state states[2];
    int turn;
    size_t next; /* frame to be read */
} tp_pass;

struct tp_loader {
    tp_device *device;
    tp_load_options options;
    tp_choice choice;
    size_t loaded_end; /* items before it have been in a pass */
    tp_memory *memories;
    tp_slab **slabs; /* the loader's own among the memories; NULL for the caller's */
    size_t memory_count, memory_capacity, slab_capacity;
    bool use_arena;
    tp_memory arena; /* the caller's; no device: the loader's own */
    uint64_t arena_at;
    tp_stream stream; /* for reading back */
    tp_workers *workers;
    tp_load_workspace *workspaces; /* one a worker */
    tp_pass pass;
    tp_load_stats stats;
    tp_progress progress;
    _Atomic uint64_t done; /* bytes, for progress */
};

#define TP_LOAD_PIECE TP_FRAME_MAX_RAW

double tp_load_seconds(void);
void tp_load_start_progress(tp_loader *loader, uint64_t total);
tp_status tp_load_tick(void *loader, tp_error *error);

/* Threads and a workspace for each. decoding: they decode frames too. */
tp_status tp_load_make_workspaces(tp_loader *loader, bool decoding, tp_error *error);
void tp_load_free_workspaces(tp_loader *loader);

/* Copies a loaded item's bytes back. */
tp_status tp_load_read_back(tp_loader *loader, const tp_item *item, uint64_t at, void *dst, uint64_t size,
                            tp_error *error);

/* What is wrong with a frame of the plan, where it is, and the first tensor that it belongs to. */
tp_status tp_load_frame_error(const tp_loader *loader, const tp_plan *plan, size_t frame, tp_status status,
                              tp_error *error);

/*
 * Loads items loaded_end .. item_count - 1. After tp_pass_start tp_pass_advance until all its frames are
 * done; tp_pass_end in any case: it stops what is under way and frees all but the memory of the items.
 */
tp_status tp_pass_start(tp_loader *loader, tp_error *error);
/* Until `frames` of them are done. */
tp_status tp_pass_advance(tp_loader *loader, size_t frames, tp_error *error);
void tp_pass_end(tp_loader *loader);

#endif
