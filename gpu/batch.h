/*
 * Some frames on their way to the device: read into staging memory, uploaded, decoded in a few launches,
 * checked. A loader has two, so that one is filled while the device works on the other.
 */
#ifndef TP_GPU_BATCH_H
#define TP_GPU_BATCH_H

#include "gpu/device.h"
#include "gpu/workers.h"

#define TP_BATCH_FRAMES 1024
#define TP_BATCH_LEAST_STORED (TP_FRAME_MAX_STORED + TP_SLACK + 256) /* room for any frame */
#define TP_BATCH_LEAST_EXPANDED (TP_FRAME_MAX_RAW + 4096) /* and for what the host decodes of it */

typedef struct tp_batch_frame {
    size_t tag; /* the caller's number */
    size_t at;  /* in the staging memory */
    tp_frame_view view;
    uint32_t output; /* number of the memory that it is decoded into, UINT32_MAX: the batch's scratch */
    uint64_t output_at;
    size_t expanded_at, expanded; /* what the host decodes: where in the staging memory, bytes */
    uint32_t first_result, job_results;
    bool bad;
} tp_batch_frame;

typedef struct tp_batch {
    tp_device *device;
    tp_workers *workers;   /* the caller's */
    tp_host_memory staging;
    size_t stored_capacity, used; /* staging: stored frames up to here, what the host decodes behind it */
    size_t expanded_capacity;
    size_t scratch_capacity;
    tp_memory input, scratch, jobs_memory, results_memory;
    tp_stream stream;
    tp_batch_frame *frames; /* TP_BATCH_FRAMES */
    size_t count;
    size_t first, end; /* those that have been submitted and not collected */
    bool uploaded;
    tp_jobs jobs;
    tp_arranged arranged;
    u64 *results;
    size_t results_capacity;
} tp_batch;

/*
 * stored, expanded: bytes of staging for stored frames and for what the host decodes, at least the least.
 * scratch: bytes on the device for frames that are not decoded to where they belong, at least
 * TP_FRAME_MAX_RAW, or 0 if there are none.
 */
tp_status tp_batch_create(tp_batch *batch, tp_device *device, tp_workers *workers, size_t stored,
                          size_t expanded, size_t scratch, tp_error *error);
void tp_batch_destroy(tp_batch *batch);

void tp_batch_clear(tp_batch *batch);
/* Reserves room for a stored frame and what may be read beyond it; NULL: the batch is full. */
tp_batch_frame *tp_batch_add(tp_batch *batch, size_t stored_size);
/* Where it is to be read to; its view is the caller's to fill. */
static inline uint8_t *tp_batch_stored(const tp_batch *batch, const tp_batch_frame *frame)
{
    return batch->staging.data + frame->at;
}

/*
 * Submits the next frames, as many as there is room for what the host decodes and for scratch, at least
 * one. outputs: the memories that frames go to. What fails is about frame *failed, or none: SIZE_MAX.
 */
tp_status tp_batch_submit(tp_batch *batch, const tp_memory *outputs, size_t *failed, tp_error *error);
/* The memory that a submitted frame is decoded into, and where: for copies queued behind it on
 * batch->stream. */
const tp_memory *tp_batch_output(const tp_batch *batch, const tp_memory *outputs,
                                 const tp_batch_frame *frame);
/* Waits for them and checks their results. */
tp_status tp_batch_collect(tp_batch *batch, size_t *failed, tp_error *error);

#endif
