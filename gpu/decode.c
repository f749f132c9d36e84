/*
 * Frames that are in memory already, decoded where the caller says (the low-level calls of tensorpress.h).
 * Nothing is kept between calls: what is needed is laid out anew in the caller's scratch each time.
 *
 *   device: [frames that are not there yet | what the host has decoded | jobs | results]
 *   host:   [the first two, to be copied | jobs | results, copied back | for planning: the jobs unsorted,
 * launches]
 */
#include <string.h>

#include "codec/bytes.h"
#include "gpu/device.h"

#define ALIGN 256u

typedef struct layout {
    size_t frames, expanded;                   /* bytes of both kinds */
    size_t jobs, results;                      /* counts: jobs as planned, results from 0 */
    uint64_t expanded_at, jobs_at, results_at; /* in both scratches; jobs before alignment to their size */
    uint64_t list_at, ranges_at;               /* of the host's */
    uint64_t device_size, host_size;
} layout;

static tp_status frame_failed(size_t number, tp_status status, tp_error *error)
{
    if (!error) return status;
    const tp_error cause = *error;
    const bool own = strncmp(cause.message, "frame: ", 7) == 0;
    return tp_error_set(error, status, "frame %zu: %s", number, cause.message + (own ? 7 : 0));
}

/* Checks what can be checked of a frame before it is decoded; whole: the hash of all of it too. */
static tp_status view_frame(const tp_device *device, const tp_device_frame *frame, bool hash,
                            tp_frame_view *view, tp_error *error)
{
    tp_frame_info info;
    if (frame->host_size < TP_FRAME_HEADER)
        return tp_error_set(error, TP_TRUNCATED, "frame: ends within its header");
    tp_status status = tp_frame_peek(frame->host, &info, error);
    if (status != TP_OK) return status;
    const bool whole = frame->host_size >= info.stored_size;
    if (!whole && frame->stored.size == 0)
        return tp_error_set(error, TP_TRUNCATED, "frame: has %zu of %u bytes", frame->host_size,
                            info.stored_size);
    status = whole ? tp_frame_validate(frame->host, info.stored_size, hash, view, error)
                   : tp_frame_validate_head(frame->host, frame->host_size, view, error);
    if (status == TP_OK && hash) status = tp_frame_check_stated_hashes(view, error);
    if (status != TP_OK || !device->backend->launch) return status;
    if (!whole && tp_frame_expanded_size(view))
        return tp_error_set(error, TP_UNSUPPORTED,
                            "frame: holds lz4, which needs all of it in host memory");
    return TP_OK;
}

/* A frame's places for tp_jobs_add_frame do not matter where jobs are only counted. */
static tp_status lay_out(tp_device *device, const tp_device_frame *frames, size_t count, layout *out,
                         tp_error *error)
{
    tp_jobs counted = {.fixed = true};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < count; i++) {
        tp_frame_view view;
        uint32_t first, job_results;
        const tp_frame_place nowhere = {.output = 0};
        const tp_status status = view_frame(device, &frames[i], false, &view, error);
        if (status != TP_OK) return frame_failed(i, status, error);
        if (!device->backend->launch) continue;
        const bool there = frames[i].stored.size != 0;
        /* On devices whose memories have no common addresses a launch reads from one: the scratch. */
        if (!there || !device->one_address_space)
            out->frames += tp_align((uint64_t)view.info.stored_size + TP_INPUT_SLACK, ALIGN);
        out->expanded += tp_frame_expanded_size(&view);
        (void)tp_jobs_add_frame(&counted, &view, &nowhere, &first, &job_results);
        if (counted.results >= UINT32_MAX / 2)
            return tp_error_set(error, TP_LIMIT, "too many frames at once");
    }
    if (!device->backend->launch) return TP_OK;
    out->jobs = counted.count;
    out->results = counted.results;
    out->expanded_at = out->frames;
    out->jobs_at = tp_align(out->expanded_at + out->expanded, ALIGN);
    /* One job more: the array starts at a multiple of a job's size from the start of the *memory*. */
    out->results_at = tp_align(out->jobs_at + (2 * out->jobs + 1) * sizeof(tp_gpu_job), ALIGN);
    out->device_size = out->results_at + out->results * sizeof(u64);
    out->list_at = tp_align(out->device_size, ALIGN);
    out->ranges_at = tp_align(out->list_at + out->jobs * sizeof(tp_planned_job), ALIGN);
    out->host_size = out->ranges_at + out->jobs * sizeof(tp_job_range);
    return TP_OK;
}

tp_status tp_device_decode_size(tp_device *device, const tp_device_frame *frames, size_t count,
                                size_t *scratch_size, size_t *host_size, tp_error *error)
{
    layout at;
    *scratch_size = *host_size = 0;
    const tp_status status = lay_out(device, frames, count, &at, error);
    if (status != TP_OK) return status;
    *scratch_size = at.device_size;
    *host_size = at.host_size;
    return TP_OK;
}

/* ---------------------------------------------------------------------------------------- at the caller's
 */

static tp_status misuse(const tp_device *device, const char *what, tp_error *error)
{
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: %s", device->info.name, what);
}

static bool overlap(const tp_device_range *a, const tp_device_range *b)
{
    return a->memory == b->memory && a->address < b->address + b->size && b->address < a->address + a->size;
}

/* A stored frame that kernels are to read. */
static tp_status check_stored(const tp_device *device, const tp_device_frame *frame,
                              const tp_frame_view *view, tp_error *error)
{
    if (!tp_device_is_range(device, &frame->stored, 128))
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "frame: it is in no memory of the device at a multiple of 128");
    if (frame->stored.size < (uint64_t)view->info.stored_size + TP_DEVICE_SLACK)
        return tp_error_set(error, TP_BUFFER_TOO_SMALL,
                            "frame: on the device has %llu bytes of %u and %d that may be read after them",
                            (unsigned long long)frame->stored.size, view->info.stored_size,
                            TP_DEVICE_SLACK);
    return TP_OK;
}

static tp_status check_places(const tp_device *device, const tp_device_frame *frame,
                              const tp_frame_view *view, tp_error *error)
{
    const bool kernels = device->backend->launch != NULL;
    if (!tp_device_is_range(device, &frame->output, kernels ? 16 : 1))
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "frame: its output is no memory of the device at a multiple of 16");
    if (frame->output.size < view->info.raw_size)
        return tp_error_set(error, TP_BUFFER_TOO_SMALL, "frame: its output has %llu bytes of %u",
                            (unsigned long long)frame->output.size, view->info.raw_size);
    const tp_device_range output = {
        .memory = frame->output.memory, .address = frame->output.address, .size = view->info.raw_size};
    tp_device_range own = frame->stored;
    if (kernels) {
        if (own.size == 0) return TP_OK;
        const tp_status status = check_stored(device, frame, view, error);
        if (status != TP_OK) return status;
    } else { /* it is decoded from where it was checked */
        if (view->head_only)
            return tp_error_set(error, TP_TRUNCATED, "frame: has %zu of %u bytes", frame->host_size,
                                view->info.stored_size);
        own = (tp_device_range){
            .memory = output.memory, .address = (uintptr_t)frame->host, .size = view->info.stored_size};
    }
    if (overlap(&own, &output))
        return tp_error_set(error, TP_INVALID_ARGUMENT, "frame: its output lies in its own memory");
    return TP_OK;
}

static tp_status check_work(const tp_device *device, const layout *at, const tp_device_work *work,
                            tp_error *error)
{
    if (!tp_device_is_range(device, &work->scratch, ALIGN))
        return misuse(device, "the scratch is no memory of the device at a multiple of 256", error);
    if (!work->host || (uintptr_t)work->host % 64)
        return misuse(device, "the host's scratch is not at a multiple of 64", error);
    if (work->scratch.size < at->device_size || work->host_size < at->host_size)
        return tp_error_set(error, TP_BUFFER_TOO_SMALL, "%s: the scratch is smaller than it was said to be",
                            device->info.name);
    /* Results are numbered from the start of the scratch's memory. */
    if (!device->one_address_space &&
        (work->scratch.address + at->results_at) / sizeof(u64) + at->results >= UINT32_MAX)
        return misuse(device, "the scratch lies too far into its memory", error);
    return TP_OK;
}

/* A decoding that is being put together. */
typedef struct work_at {
    tp_device *device;
    const tp_device_frame *frames;
    layout at;
    tp_memory scratch; /* as the back ends know it; offsets in it count from */
    uint64_t base;     /* here: not 0 for opencl */
    tp_memory
        input;   /* what jobs' inputs count from: the scratch, or the lowest address of it and the frames */
    uint64_t in; /* the scratch, counted so */
    uint8_t *host;
    tp_stream stream;
    tp_jobs jobs;
    tp_arranged arranged;
} work_at;

/* Number of the first result: opencl's memory may begin before the scratch. */
static uint32_t results_from(const work_at *w)
{
    return w->device->one_address_space ? 0 : (uint32_t)((w->base + w->at.results_at) / sizeof(u64));
}

static void begin(work_at *w, tp_device *device, const tp_device_frame *frames, size_t count,
                  const tp_device_work *work)
{
    w->device = device;
    w->frames = frames;
    w->scratch = tp_device_wrap(device, &work->scratch, &w->base);
    w->input = w->scratch;
    for (size_t i = 0; device->one_address_space && i < count; i++)
        if (frames[i].stored.size && frames[i].stored.address < w->input.address)
            w->input.address = frames[i].stored.address / ALIGN * ALIGN;
    w->in = w->base + w->scratch.address - w->input.address;
    w->host = work->host;
    w->stream = (tp_stream){.device = device, .handle = (void *)work->stream};
    w->jobs = (tp_jobs){.list = (void *)(w->host + w->at.list_at),
                        .capacity = w->at.jobs,
                        .results = results_from(w),
                        .fixed = true};
    w->arranged = (tp_arranged){.jobs = (void *)(w->host + w->at.jobs_at),
                                .job_capacity = 2 * w->at.jobs,
                                .ranges = (void *)(w->host + w->at.ranges_at),
                                .range_capacity = w->at.jobs,
                                .fixed = true};
}

/* Brings one frame to where it is read from and plans its jobs. */
static tp_status add_frame(work_at *w, size_t number, uint64_t *frame_at, uint64_t *expanded_at,
                           tp_error *error)
{
    const tp_device_frame *frame = &w->frames[number];
    const tp_backend *b = w->device->backend;
    tp_frame_view view;
    uint32_t first, job_results;
    tp_status status = view_frame(w->device, frame, true, &view, error);
    if (status == TP_OK) status = check_places(w->device, frame, &view, error);
    if (status != TP_OK) return status;
    const size_t stored = view.info.stored_size, expanded = tp_frame_expanded_size(&view);
    const size_t room = tp_align(stored + TP_INPUT_SLACK, ALIGN);
    const bool there = frame->stored.size && w->device->one_address_space;
    /* As laid out, unless the frame is being changed. */
    if ((!there && room > w->at.frames - *frame_at) ||
        expanded > w->at.expanded_at + w->at.expanded - *expanded_at)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "frame: has changed");
    tp_frame_place place = {.output = w->device->one_address_space ? 0 : (uint32_t)number,
                            .output_at = frame->output.address};
    if (there) {
        place.frame_at = frame->stored.address - w->input.address;
    } else {
        place.frame_at = w->in + *frame_at;
        if (frame->stored.size) {
            uint64_t from_at;
            const tp_memory from = tp_device_wrap(w->device, &frame->stored, &from_at);
            status = b->copy(&w->stream, &w->scratch, w->base + *frame_at, &from, from_at, stored, error);
        } else {
            memcpy(w->host + *frame_at, frame->host, stored);
            status =
                b->upload(&w->stream, &w->scratch, w->base + *frame_at, w->host + *frame_at, stored, error);
        }
        *frame_at += room;
    }
    place.expanded_at = w->in + *expanded_at;
    if (status == TP_OK && expanded) status = tp_frame_expand(&view, w->host + *expanded_at, error);
    *expanded_at += expanded;
    if (status == TP_OK) (void)tp_jobs_add_frame(&w->jobs, &view, &place, &first, &job_results);
    return status;
}

static tp_status launch_all(work_at *w, tp_error *error)
{
    const tp_backend *b = w->device->backend;
    const bool one = w->device->one_address_space;
    const layout *at = &w->at;
    const uint64_t size = sizeof(tp_gpu_job);
    /* In OpenCL jobs are found by number from the start of the memory. */
    const uint64_t jobs_at = one ? at->jobs_at : (w->base + at->jobs_at + size - 1) / size * size - w->base;
    tp_memory everywhere, results = w->scratch;
    tp_memory_none(&everywhere); /* addresses count from 0 */
    if (one) results.address += at->results_at;
    tp_status status = b->upload(&w->stream, &w->scratch, w->base + jobs_at, w->arranged.jobs,
                                 w->arranged.job_count * size, error);
    if (status == TP_OK)
        status =
            b->clear(&w->stream, &w->scratch, w->base + at->results_at, at->results * sizeof(u64), error);
    for (size_t i = 0; i < w->arranged.range_count && status == TP_OK; i++) {
        const tp_job_range *range = &w->arranged.ranges[i];
        uint64_t unused;
        const tp_memory output =
            one ? everywhere : tp_device_wrap(w->device, &w->frames[range->output].output, &unused);
        const tp_launch what = {.kernel = range->kernel,
                                .input = &w->input,
                                .output = &output,
                                .jobs = &w->scratch,
                                .results = &results,
                                .jobs_at = w->base + jobs_at + range->first * size,
                                .groups = range->groups,
                                .warps = range->warps,
                                .local_bytes = range->local_bytes};
        status = b->launch(&w->stream, &what, error);
    }
    if (status == TP_OK)
        status = b->download(&w->stream, &w->scratch, w->base + at->results_at, w->host + at->results_at,
                             at->results * sizeof(u64), error);
    return status;
}

/* A device without kernels. */
static tp_status decode_now(tp_device *device, const tp_device_frame *frames, size_t count, tp_error *error)
{
    if (!device->decoder && tp_decoder_create(&device->decoder) != TP_OK)
        return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        tp_frame_view view;
        tp_device_frame frame = frames[i];
        /* Its device memory is host memory; what is there of the frame may be the head alone. */
        if (tp_device_is_range(device, &frame.stored, 1) && frame.stored.size > TP_DEVICE_SLACK &&
            frame.host_size < frame.stored.size - TP_DEVICE_SLACK) {
            frame.host = (const void *)(uintptr_t)frame.stored.address;
            frame.host_size = frame.stored.size;
        }
        tp_status status = view_frame(device, &frame, true, &view, error);
        if (status == TP_OK) status = check_places(device, &frame, &view, error);
        if (status == TP_OK)
            status = tp_frame_decode(device->decoder, &view, view.info.stored_size,
                                     (void *)(uintptr_t)frame.output.address, view.info.raw_size, error);
        if (status != TP_OK) return frame_failed(i, status, error);
    }
    return TP_OK;
}

tp_status tp_device_decode(tp_device *device, const tp_device_frame *frames, size_t count,
                           const tp_device_work *work, tp_error *error)
{
    work_at w;
    if (count == 0) return TP_OK;
    if (!device->backend->launch) return decode_now(device, frames, count, error);
    tp_status status = lay_out(device, frames, count, &w.at, error);
    if (status == TP_OK) status = check_work(device, &w.at, work, error);
    if (status != TP_OK) return status;
    begin(&w, device, frames, count, work);
    uint64_t frame_at = 0, expanded_at = w.at.expanded_at;
    for (size_t i = 0; i < count; i++) {
        status = add_frame(&w, i, &frame_at, &expanded_at, error);
        if (status != TP_OK) return frame_failed(i, status, error);
    }
    if (w.jobs.count > w.jobs.capacity || tp_jobs_arrange(&w.jobs, device->max_warps, &w.arranged) != TP_OK)
        return misuse(device, "a frame has changed while it was planned", error);
    /* What an earlier decoding left there would pass for this one's results until they come. */
    memset(w.host + w.at.results_at, 0, w.at.results * sizeof(u64));
    if (w.at.expanded)
        status = device->backend->upload(&w.stream, &w.scratch, w.base + w.at.expanded_at,
                                         w.host + w.at.expanded_at, w.at.expanded, error);
    return status == TP_OK ? launch_all(&w, error) : status;
}

tp_status tp_device_decode_check(tp_device *device, const tp_device_frame *frames, size_t count,
                                 const tp_device_work *work, size_t *failed, tp_error *error)
{
    layout at;
    if (failed) *failed = SIZE_MAX;
    if (!device->backend->launch || count == 0) return TP_OK; /* tp_device_decode has told */
    tp_status status = lay_out(device, frames, count, &at, error);
    if (status == TP_OK) status = check_work(device, &at, work, error);
    if (status != TP_OK) return status;
    const u64 *results = (const void *)((const uint8_t *)work->host + at.results_at);
    tp_jobs counted = {.fixed = true};
    for (size_t i = 0; i < count; i++) {
        tp_frame_view view;
        uint32_t first, job_results;
        const tp_frame_place nowhere = {.output = 0};
        status = view_frame(device, &frames[i], false, &view, error);
        if (status == TP_OK) {
            (void)tp_jobs_add_frame(&counted, &view, &nowhere, &first, &job_results);
            status = counted.results <= at.results
                         ? tp_frame_check_results(&view, results + first, job_results, error)
                         : tp_error_set(error, TP_INVALID_ARGUMENT, "frame: has changed");
        }
        if (status == TP_OK) continue;
        if (failed) *failed = i;
        return frame_failed(i, status, error);
    }
    return TP_OK;
}
