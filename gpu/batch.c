#include "gpu/batch.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"

static tp_status no_memory(tp_error *error)
{
    return tp_error_set(error, TP_NO_MEMORY, "out of memory");
}

tp_status tp_batch_create(tp_batch *batch, tp_device *device, tp_workers *workers, size_t stored,
                          size_t expanded, size_t scratch, tp_error *error)
{
    const tp_backend *b = device->backend;
    memset(batch, 0, sizeof *batch);
    batch->device = device;
    batch->workers = workers;
    batch->stored_capacity = tp_align(stored, 256);
    batch->expanded_capacity = tp_align(expanded, 256);
    batch->scratch_capacity = scratch;
    batch->frames = calloc(TP_BATCH_FRAMES, sizeof *batch->frames);
    if (!batch->frames) {
        tp_batch_destroy(batch);
        return no_memory(error);
    }
    const size_t staging = batch->stored_capacity + batch->expanded_capacity;
    tp_status status = b->stream_create(device, &batch->stream, error);
    if (status == TP_OK) status = b->host_create(device, staging, &batch->staging, error);
    if (status == TP_OK) status = b->memory_create(device, staging + TP_INPUT_SLACK, &batch->input, error);
    if (status == TP_OK && scratch) status = b->memory_create(device, scratch, &batch->scratch, error);
    if (status != TP_OK) tp_batch_destroy(batch);
    return status;
}

void tp_batch_destroy(tp_batch *batch)
{
    if (!batch->device) return;
    const tp_backend *b = batch->device->backend;
    if (batch->stream.device) b->stream_destroy(&batch->stream);
    tp_memory *const memories[] = {&batch->input, &batch->scratch, &batch->jobs_memory,
                                   &batch->results_memory};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (memories[i]->device) b->memory_destroy(memories[i]);
    if (batch->staging.device) b->host_destroy(&batch->staging);
    free(batch->frames);
    free(batch->results);
    tp_jobs_free(&batch->jobs);
    tp_arranged_free(&batch->arranged);
    memset(batch, 0, sizeof *batch);
}

void tp_batch_clear(tp_batch *batch)
{
    batch->count = batch->first = batch->end = 0;
    batch->used = 0;
    batch->uploaded = false;
}

tp_batch_frame *tp_batch_add(tp_batch *batch, size_t stored_size)
{
    const size_t size = tp_align(stored_size + TP_SLACK, 256);
    if (batch->count == TP_BATCH_FRAMES || size > batch->stored_capacity - batch->used) return NULL;
    tp_batch_frame *frame = &batch->frames[batch->count++];
    memset(frame, 0, sizeof *frame);
    frame->at = batch->used;
    batch->used += size;
    return frame;
}

const tp_memory *tp_batch_output(const tp_batch *batch, const tp_memory *outputs,
                                 const tp_batch_frame *frame)
{
    return frame->output == UINT32_MAX ? &batch->scratch : &outputs[frame->output];
}

/* Device memory of at least so many bytes; what was in it is lost. */
static tp_status reserve(tp_batch *batch, tp_memory *memory, uint64_t size, tp_error *error)
{
    const tp_backend *b = batch->device->backend;
    if (memory->size >= size) return TP_OK;
    if (memory->device) b->memory_destroy(memory);
    return b->memory_create(batch->device, tp_align(size + size / 2, 65536), memory, error);
}

/* Frames of the smallest chunks have thousands of jobs: so many at once, or those of one frame. */
#define ROUND_JOBS 16384

/* Jobs of a frame, about. */
static size_t jobs_of(const tp_frame_view *view)
{
    const size_t parts = view->parts > view->group ? view->parts : view->group;
    return view->chunks * (parts + 1) + 2 * (view->info.raw_size / TP_RAW_CHUNK + 1);
}

/* How many frames the next round takes; sets where each goes in scratch. */
static size_t round_end(tp_batch *batch)
{
    size_t end = batch->end, expanded = 0, scratch = 0, jobs = 0;
    for (; end < batch->count; end++) {
        tp_batch_frame *f = &batch->frames[end];
        const bool needs_scratch = f->output == UINT32_MAX;
        const size_t room = needs_scratch ? tp_align(f->view.info.raw_size, 256) : 0;
        f->expanded = tp_frame_expanded_size(&f->view);
        jobs += jobs_of(&f->view);
        if (expanded + f->expanded > batch->expanded_capacity || scratch + room > batch->scratch_capacity ||
            (jobs > ROUND_JOBS && end > batch->end))
            break;
        f->expanded_at = batch->stored_capacity + expanded;
        expanded += f->expanded;
        if (needs_scratch) f->output_at = scratch;
        scratch += room;
    }
    return end;
}

/* What the host decodes of frame first + number. */
static tp_status expand_one(void *context, unsigned worker, size_t number, tp_error *error)
{
    tp_batch *batch = context;
    tp_batch_frame *f = &batch->frames[batch->first + number];
    (void)worker;
    if (!f->expanded) return TP_OK;
    const tp_status status = tp_frame_expand(&f->view, batch->staging.data + f->expanded_at, error);
    f->bad = status != TP_OK;
    return status;
}

/* By the threads; there may be nothing to do for them. */
static tp_status expand_all(tp_batch *batch, size_t *failed, tp_error *error)
{
    bool any = false;
    for (size_t i = batch->first; i < batch->end; i++) any |= batch->frames[i].expanded > 0;
    if (!any) return TP_OK;
    const tp_status status =
        tp_workers_run(batch->workers, expand_one, NULL, batch, batch->end - batch->first, error);
    /* The error is that of the first frame that failed. */
    for (size_t i = batch->first; status != TP_OK && i < batch->end && *failed == SIZE_MAX; i++)
        if (batch->frames[i].bad) *failed = i;
    return status;
}

static tp_status plan_jobs(tp_batch *batch, const tp_memory *outputs, tp_error *error)
{
    tp_jobs_clear(&batch->jobs);
    for (size_t i = batch->first; i < batch->end; i++) {
        tp_batch_frame *f = &batch->frames[i];
        const tp_memory *output = tp_batch_output(batch, outputs, f);
        tp_frame_place place = {.frame_at = f->at,
                                .expanded_at = f->expanded_at,
                                .output = f->output,
                                .output_at = f->output_at};
        if (batch->device->one_address_space) { /* one launch may write to all of it */
            place.output = 0;
            place.output_at += output->address;
        }
        if (tp_jobs_add_frame(&batch->jobs, &f->view, &place, &f->first_result, &f->job_results) != TP_OK)
            return no_memory(error);
    }
    if (tp_jobs_arrange(&batch->jobs, batch->device->max_warps, &batch->arranged) != TP_OK)
        return no_memory(error);
    if (batch->results_capacity < batch->jobs.results) {
        free(batch->results);
        batch->results_capacity = 2 * (size_t)batch->jobs.results;
        batch->results = malloc(batch->results_capacity * sizeof *batch->results);
        if (!batch->results) {
            batch->results_capacity = 0;
            return no_memory(error);
        }
    }
    return TP_OK;
}

static tp_status upload(tp_batch *batch, tp_error *error)
{
    const tp_backend *b = batch->device->backend;
    size_t expanded = 0;
    tp_status status = TP_OK;
    if (!batch->uploaded && batch->used)
        status = b->upload(&batch->stream, &batch->input, 0, batch->staging.data, batch->used, error);
    batch->uploaded = true;
    for (size_t i = batch->first; i < batch->end; i++) expanded += batch->frames[i].expanded;
    if (status == TP_OK && expanded)
        status = b->upload(&batch->stream, &batch->input, batch->stored_capacity,
                           batch->staging.data + batch->stored_capacity, expanded, error);
    const size_t jobs = batch->arranged.job_count * sizeof *batch->arranged.jobs;
    if (status == TP_OK) status = reserve(batch, &batch->jobs_memory, jobs, error);
    if (status == TP_OK)
        status = b->upload(&batch->stream, &batch->jobs_memory, 0, batch->arranged.jobs, jobs, error);
    return status;
}

static tp_status launch(tp_batch *batch, const tp_memory *outputs, tp_error *error)
{
    const tp_backend *b = batch->device->backend;
    const size_t results = batch->jobs.results * sizeof *batch->results;
    tp_memory everywhere; /* addresses count from 0 */
    tp_memory_none(&everywhere);
    tp_status status = reserve(batch, &batch->results_memory, results, error);
    if (status == TP_OK) status = b->clear(&batch->stream, &batch->results_memory, 0, results, error);
    for (size_t i = 0; i < batch->arranged.range_count && status == TP_OK; i++) {
        const tp_job_range *range = &batch->arranged.ranges[i];
        const tp_memory *output = range->output == UINT32_MAX ? &batch->scratch : &outputs[range->output];
        const tp_launch what = {.kernel = range->kernel,
                                .input = &batch->input,
                                .output = batch->device->one_address_space ? &everywhere : output,
                                .jobs = &batch->jobs_memory,
                                .results = &batch->results_memory,
                                .jobs_at = range->first * sizeof *batch->arranged.jobs,
                                .groups = range->groups,
                                .warps = range->warps,
                                .local_bytes = range->local_bytes};
        status = b->launch(&batch->stream, &what, error);
    }
    if (status == TP_OK)
        status = b->download(&batch->stream, &batch->results_memory, 0, batch->results, results, error);
    return status;
}

tp_status tp_batch_submit(tp_batch *batch, const tp_memory *outputs, size_t *failed, tp_error *error)
{
    *failed = SIZE_MAX;
    batch->first = batch->end;
    batch->end = round_end(batch);
    tp_status status = expand_all(batch, failed, error);
    if (status == TP_OK) status = plan_jobs(batch, outputs, error);
    if (status == TP_OK) status = upload(batch, error);
    if (status == TP_OK) status = launch(batch, outputs, error);
    return status;
}

tp_status tp_batch_collect(tp_batch *batch, size_t *failed, tp_error *error)
{
    *failed = SIZE_MAX;
    tp_status status = batch->device->backend->wait(&batch->stream, error);
    for (size_t i = batch->first; i < batch->end && status == TP_OK; i++) {
        const tp_batch_frame *f = &batch->frames[i];
        *failed = i;
        status = tp_frame_check_results(&f->view, batch->results + f->first_result, f->job_results, error);
    }
    batch->first = batch->end;
    return status;
}
