/* tp_loader: tensors of a container or plain checkpoint onto a device. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/bytes.h"
#include "convert/progress.h"
#include "convert/reader.h"
#include "convert/text.h"
#include "gpu/batch.h"
#include "gpu/plan.h"
#include "gpu/workers.h"

#define DEFAULT_STAGING ((size_t)64 << 20)
#define PIECE TP_FRAME_MAX_RAW

/* What a thread needs to read and decode a frame by itself, and what it has done. */
typedef struct workspace {
    tp_decoder *decoder;
    uint8_t *stored, *raw;
    uint64_t stored_bytes, device_bytes, host_bytes;
    double read_s, decode_s;
} workspace;

struct tp_loader {
    tp_reader *reader;
    tp_device *device;
    tp_load_options options;
    tp_plan plan;
    tp_memory *slabs; /* plan.slab_count; those not made have no device */
    tp_stream stream; /* for reading back */
    tp_workers *workers;
    workspace *workspaces; /* one a worker */
    bool ran, loaded;
    tp_load_stats stats;
    tp_progress progress;
    _Atomic uint64_t done; /* bytes, for progress */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tp_status no_memory(tp_error *error)
{
    return tp_error_set(error, TP_NO_MEMORY, "out of memory");
}

/* ------------------------------------------------------------------------------------------ set up */

void tp_load_options_init(tp_load_options *options)
{
    *options = (tp_load_options){.threads = 0};
}

tp_status tp_loader_create(tp_reader *reader, tp_device *device, const tp_load_options *options,
                           tp_loader **loader, tp_error *error)
{
    *loader = NULL;
    tp_loader *l = calloc(1, sizeof *l);
    if (!l) return no_memory(error);
    l->reader = reader;
    l->device = device;
    if (options) l->options = *options;
    tp_status status = tp_plan_init(&l->plan, reader, error);
    if (status == TP_OK) status = device->backend->stream_create(device, &l->stream, error);
    if (status != TP_OK) {
        tp_loader_close(l);
        return status;
    }
    *loader = l;
    return TP_OK;
}

static void free_slabs(tp_loader *l)
{
    for (size_t i = 0; l->slabs && i < l->plan.slab_count; i++)
        if (l->slabs[i].device) l->device->backend->memory_destroy(&l->slabs[i]);
    free(l->slabs);
    l->slabs = NULL;
}

static void free_workspaces(tp_loader *l)
{
    for (unsigned i = 0; l->workspaces && i < tp_workers_count(l->workers); i++) {
        tp_decoder_destroy(l->workspaces[i].decoder);
        free(l->workspaces[i].stored);
        free(l->workspaces[i].raw);
    }
    free(l->workspaces);
    l->workspaces = NULL;
    tp_workers_destroy(l->workers);
    l->workers = NULL;
}

void tp_loader_close(tp_loader *l)
{
    if (!l) return;
    free_workspaces(l);
    free_slabs(l);
    if (l->stream.device) l->device->backend->stream_destroy(&l->stream);
    tp_plan_free(&l->plan);
    free(l);
}

tp_status tp_loader_add(tp_loader *l, size_t tensor, tp_error *error)
{
    if (l->ran)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: loaded already", tp_reader_name(l->reader));
    return tp_plan_add(&l->plan, l->reader, tensor, error);
}

tp_status tp_loader_add_all(tp_loader *l, size_t *truncated, tp_error *error)
{
    *truncated = 0;
    for (size_t i = 0; i < l->plan.reader_tensors; i++) {
        const tp_status status = tp_loader_add(l, i, error);
        if (status == TP_TRUNCATED)
            ++*truncated;
        else if (status != TP_OK)
            return status;
    }
    return TP_OK;
}

/* Threads and a workspace for each. decoding: they decode frames too. */
static tp_status make_workspaces(tp_loader *l, bool decoding, tp_error *error)
{
    tp_status status = TP_OK;
    if (!l->workers) status = tp_workers_create(l->options.threads, &l->workers, error);
    if (status != TP_OK) return status;
    if (!l->workspaces) l->workspaces = calloc(tp_workers_count(l->workers), sizeof *l->workspaces);
    if (!l->workspaces) return no_memory(error);
    for (unsigned i = 0; decoding && i < tp_workers_count(l->workers); i++) {
        workspace *w = &l->workspaces[i];
        if (!w->stored) w->stored = aligned_alloc(64, TP_READER_STORED_BUFFER);
        if (!w->raw) w->raw = aligned_alloc(64, TP_FRAME_MAX_RAW);
        if (!w->stored || !w->raw || (!w->decoder && tp_decoder_create(&w->decoder) != TP_OK))
            return no_memory(error);
    }
    return TP_OK;
}

static tp_status tick(void *context, tp_error *error)
{
    tp_loader *l = context;
    l->progress.done = l->done;
    return tp_progress_tick(&l->progress, false, error);
}

static void start_progress(tp_loader *l)
{
    tp_options options;
    tp_options_init(&options);
    options.progress = l->options.progress;
    options.progress_context = l->options.progress_context;
    tp_progress_init(&l->progress, &options);
    l->progress.total = l->plan.raw_bytes;
    l->done = 0;
}

/* ------------------------------------------------------------------------------------------- errors */

/* What is wrong with a frame, where it is, and the first tensor that it belongs to. */
static tp_status frame_error(const tp_loader *l, size_t frame, tp_status status, tp_error *error)
{
    const tp_placement *p = &l->plan.placements[l->plan.frames[frame]];
    tp_tensor_info info;
    char shown[256];
    if (!error || !l->plan.container) return status;
    if (strncmp(error->message, "frame: ", 7) == 0) {
        const tp_error cause = *error;
        tp_reader_frame_error(l->reader, p->frame, status, &cause, error);
    }
    if (tp_reader_tensor(l->reader, l->plan.tensors[p->tensor].number, &info) != TP_OK) return status;
    tp_text_escape(info.name.data, info.name.size, shown, sizeof shown);
    const size_t length = strlen(error->message);
    snprintf(error->message + length, sizeof error->message - length, " (tensor '%s')", shown);
    return status;
}

/* --------------------------------------------------------------------------------- on the processors */

static uint8_t *host_address(const tp_loader *l, const tp_placement *p)
{
    const tp_plan_tensor *t = &l->plan.tensors[p->tensor];
    return (uint8_t *)l->slabs[t->slab].handle + t->at + p->to;
}

/*
 * The bytes of a frame's placements by who decoded them. A codec that has no kernel is not the host's where the
 * device is the host; lz4 is counted as on every device.
 */
static void count_frame(const tp_loader *l, size_t frame, const tp_frame_view *view, uint64_t *device,
                        uint64_t *host)
{
    const bool here = !l->device->backend->launch && tp_frame_needs_decoder(view);
    for (size_t i = l->plan.frames[frame]; i < l->plan.frames[frame + 1]; i++) {
        const tp_placement *p = &l->plan.placements[i];
        const uint64_t by_host = here ? 0 : tp_frame_host_bytes(view, p->from, p->size);
        *host += by_host;
        *device += p->size - by_host;
    }
}

static tp_status load_frame(void *context, unsigned worker, size_t frame, tp_error *error)
{
    tp_loader *l = context;
    workspace *w = &l->workspaces[worker];
    const size_t first = l->plan.frames[frame], end = l->plan.frames[frame + 1];
    const tp_placement *p = &l->plan.placements[first];
    const double start = seconds();
    tp_frame_view view;
    if (!l->plan.container) {
        const tp_status status =
            tp_pread(l->reader, p->frame, host_address(l, p), p->size, p->stored_at, error);
        w->read_s += seconds() - start;
        w->stored_bytes += p->size;
        l->done += p->size;
        return status;
    }
    tp_status status = tp_reader_read_frame(l->reader, p->frame, w->stored, &view, error);
    const double middle = seconds();
    if (status != TP_OK) return frame_error(l, frame, status, error);
    const size_t direct = tp_plan_direct(&l->plan, frame, view.info.raw_size);
    uint8_t *const dst = direct == SIZE_MAX ? w->raw : host_address(l, &l->plan.placements[direct]);
    status = tp_frame_decode(w->decoder, &view, view.info.stored_size + (size_t)TP_SLACK, dst,
                             view.info.raw_size, error);
    if (status != TP_OK) return frame_error(l, frame, status, error);
    for (size_t i = first; i < end; i++) {
        p = &l->plan.placements[i];
        if (i != direct) memcpy(host_address(l, p), dst + p->from, p->size);
        l->done += p->size;
    }
    count_frame(l, frame, &view, &w->device_bytes, &w->host_bytes);
    w->stored_bytes += view.info.stored_size;
    w->read_s += middle - start;
    w->decode_s += seconds() - middle;
    return TP_OK;
}

static tp_status load_on_host(tp_loader *l, tp_error *error)
{
    tp_status status = make_workspaces(l, true, error);
    if (status != TP_OK) return status;
    status = tp_workers_run(l->workers, load_frame, tick, l, l->plan.frame_count, error);
    const unsigned workers = tp_workers_count(l->workers);
    for (unsigned i = 0; i < workers; i++) {
        const workspace *w = &l->workspaces[i];
        l->stats.stored_bytes += w->stored_bytes;
        l->stats.decoded_on_device_bytes += w->device_bytes;
        l->stats.decoded_on_host_bytes += w->host_bytes;
        l->stats.read_s += w->read_s / workers;
        l->stats.decode_s += w->decode_s / workers;
    }
    return status;
}

/* ------------------------------------------------------------------------------------- on the device */

/* A batch being filled, for the threads. */
typedef struct filling {
    tp_loader *loader;
    tp_batch *batch;
} filling;

static tp_status read_one(void *context, unsigned worker, size_t number, tp_error *error)
{
    const filling *f = context;
    tp_loader *l = f->loader;
    tp_batch_frame *frame = &f->batch->frames[number];
    const tp_placement *p = &l->plan.placements[l->plan.frames[frame->tag]];
    uint8_t *stored = tp_batch_stored(f->batch, frame);
    (void)worker;
    if (!l->plan.container) return tp_pread(l->reader, p->frame, stored, p->size, p->stored_at, error);
    tp_status status = tp_reader_read_frame(l->reader, p->frame, stored, &frame->view, error);
    if (status == TP_OK) status = tp_frame_check_stated_hashes(&frame->view, error);
    return status == TP_OK ? TP_OK : frame_error(l, frame->tag, status, error);
}

static tp_status tick_filling(void *context, tp_error *error)
{
    return tick(((const filling *)context)->loader, error);
}

/* Reads as many of the frames from *next on as the batch has room for. */
static tp_status fill(tp_loader *l, tp_batch *batch, size_t *next, tp_error *error)
{
    const double start = seconds();
    tp_batch_clear(batch);
    for (; *next < l->plan.frame_count; ++*next) {
        const tp_placement *p = &l->plan.placements[l->plan.frames[*next]];
        tp_frame_entry entry = {.stored_size = p->size};
        if (l->plan.container) tp_reader_frame(l->reader, p->frame, &entry);
        tp_batch_frame *frame = tp_batch_add(batch, entry.stored_size);
        if (!frame) break;
        frame->tag = *next;
        l->stats.stored_bytes += entry.stored_size;
    }
    filling f = {.loader = l, .batch = batch};
    tp_status status = tp_workers_run(l->workers, read_one, tick_filling, &f, batch->count, error);
    for (size_t i = 0; i < batch->count && status == TP_OK && l->plan.container; i++) {
        tp_batch_frame *frame = &batch->frames[i];
        const size_t direct = tp_plan_direct(&l->plan, frame->tag, frame->view.info.raw_size);
        frame->output = UINT32_MAX;
        if (direct == SIZE_MAX) continue;
        const tp_placement *p = &l->plan.placements[direct];
        frame->output = l->plan.tensors[p->tensor].slab;
        frame->output_at = l->plan.tensors[p->tensor].at + p->to;
    }
    l->stats.read_s += seconds() - start;
    return status;
}

/* Queues the copies of a submitted frame to where it was not decoded to, and counts its bytes. */
static tp_status scatter(tp_loader *l, tp_batch *batch, const tp_batch_frame *frame, tp_error *error)
{
    const tp_memory *from = tp_batch_output(batch, l->slabs, frame);
    const size_t direct = tp_plan_direct(&l->plan, frame->tag, frame->view.info.raw_size);
    tp_status status = TP_OK;
    for (size_t i = l->plan.frames[frame->tag]; i < l->plan.frames[frame->tag + 1] && status == TP_OK;
         i++) {
        const tp_placement *p = &l->plan.placements[i];
        const tp_plan_tensor *t = &l->plan.tensors[p->tensor];
        if (i != direct)
            status = l->device->backend->copy(&batch->stream, &l->slabs[t->slab], t->at + p->to, from,
                                              frame->output_at + p->from, p->size, error);
    }
    count_frame(l, frame->tag, &frame->view, &l->stats.decoded_on_device_bytes,
                &l->stats.decoded_on_host_bytes);
    return status;
}

static tp_status submit(tp_loader *l, tp_batch *batch, tp_error *error)
{
    size_t failed;
    tp_status status = tp_batch_submit(batch, l->slabs, &failed, error);
    if (status != TP_OK && failed != SIZE_MAX)
        return frame_error(l, batch->frames[failed].tag, status, error);
    for (size_t i = batch->first; i < batch->end && status == TP_OK; i++)
        status = scatter(l, batch, &batch->frames[i], error);
    return status;
}

/* The pieces of a plain file go where they belong as they are. */
static tp_status upload_pieces(tp_loader *l, tp_batch *batch, tp_error *error)
{
    tp_status status = TP_OK;
    for (size_t i = 0; i < batch->count && status == TP_OK; i++) {
        const tp_batch_frame *frame = &batch->frames[i];
        const tp_placement *p = &l->plan.placements[l->plan.frames[frame->tag]];
        const tp_plan_tensor *t = &l->plan.tensors[p->tensor];
        status = l->device->backend->upload(&batch->stream, &l->slabs[t->slab], t->at + p->to,
                                            tp_batch_stored(batch, frame), p->size, error);
    }
    batch->end = batch->count;
    return status;
}

static tp_status start(tp_loader *l, tp_batch *batch, tp_error *error)
{
    return l->plan.container ? submit(l, batch, error) : upload_pieces(l, batch, error);
}

/* Waits for all that is in a batch, with the rounds that it has left. */
static tp_status finish(tp_loader *l, tp_batch *batch, tp_error *error)
{
    for (;;) {
        const size_t first = batch->first;
        size_t failed = SIZE_MAX;
        tp_status status = l->plan.container ? tp_batch_collect(batch, &failed, error)
                                             : l->device->backend->wait(&batch->stream, error);
        if (status != TP_OK && failed != SIZE_MAX)
            return frame_error(l, batch->frames[failed].tag, status, error);
        for (size_t i = first; i < batch->end && status == TP_OK; i++) {
            const size_t frame = batch->frames[i].tag;
            for (size_t k = l->plan.frames[frame]; k < l->plan.frames[frame + 1]; k++)
                l->done += l->plan.placements[k].size;
        }
        if (status == TP_OK) status = tick(l, error);
        if (status != TP_OK || batch->end == batch->count) return status;
        status = submit(l, batch, error);
        if (status != TP_OK) return status;
    }
}

static bool any_needs_scratch(const tp_loader *l)
{
    for (size_t i = 0; i < l->plan.frame_count; i++) {
        const tp_placement *p = &l->plan.placements[l->plan.frames[i]];
        tp_frame_entry entry;
        if (tp_reader_frame(l->reader, p->frame, &entry) != TP_OK) continue;
        if (tp_plan_direct(&l->plan, i, entry.raw_size) == SIZE_MAX) return true;
    }
    return false;
}

static tp_status load_on_device(tp_loader *l, tp_error *error)
{
    tp_batch batches[2] = {{.device = NULL}, {.device = NULL}};
    bool busy[2] = {false, false};
    const size_t staging = l->options.staging ? l->options.staging : DEFAULT_STAGING;
    size_t stored = staging / 2 / 8 * 5, expanded = staging / 2 / 8 * 3, scratch = 0, next = 0;
    if (stored < TP_BATCH_LEAST_STORED) stored = TP_BATCH_LEAST_STORED;
    if (expanded < TP_BATCH_LEAST_EXPANDED) expanded = TP_BATCH_LEAST_EXPANDED;
    if (l->plan.container && any_needs_scratch(l))
        scratch = stored > 2 * PIECE ? stored : 2 * PIECE; /* bounded like the rest */

    tp_status status = make_workspaces(l, false, error);
    for (int i = 0; i < 2 && status == TP_OK; i++)
        status = tp_batch_create(&batches[i], l->device, l->workers, stored, expanded, scratch, error);
    for (int at = 0; status == TP_OK && (next < l->plan.frame_count || busy[at] || busy[1 - at]);
         at = 1 - at) {
        if (busy[at]) {
            const double begin = seconds();
            busy[at] = false;
            status = finish(l, &batches[at], error);
            l->stats.decode_s += seconds() - begin;
        }
        if (status != TP_OK || next == l->plan.frame_count) continue;
        status = fill(l, &batches[at], &next, error);
        if (status != TP_OK) break;
        const double begin = seconds();
        busy[at] = true;
        status = start(l, &batches[at], error);
        l->stats.decode_s += seconds() - begin;
    }
    for (int i = 0; i < 2; i++) tp_batch_destroy(&batches[i]);
    return status;
}

tp_status tp_loader_run(tp_loader *l, tp_error *error)
{
    if (l->ran)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: loaded already", tp_reader_name(l->reader));
    const double begin = seconds();
    l->ran = true;
    start_progress(l);
    tp_status status = tp_plan_make(&l->plan, l->reader, l->device->max_allocation, error);
    if (status == TP_OK && l->plan.slab_count) {
        l->slabs = calloc(l->plan.slab_count, sizeof *l->slabs);
        if (!l->slabs) status = no_memory(error);
    }
    for (size_t i = 0; i < l->plan.slab_count && status == TP_OK; i++)
        status = l->device->backend->memory_create(l->device, l->plan.slabs[i], &l->slabs[i], error);
    if (status == TP_OK)
        status = l->device->backend->launch ? load_on_device(l, error) : load_on_host(l, error);
    if (status == TP_OK) {
        l->progress.done = l->done;
        status = tp_progress_tick(&l->progress, true, error);
    }
    free_workspaces(l);
    if (status != TP_OK) free_slabs(l);
    l->loaded = status == TP_OK;
    l->stats.tensors = l->plan.tensor_count;
    l->stats.raw_bytes = l->plan.raw_bytes;
    l->stats.total_s = seconds() - begin;
    return status;
}

/* ------------------------------------------------------------------------------------- what is there */

static const tp_plan_tensor *find(const tp_loader *l, size_t tensor)
{
    if (!l->loaded || tensor >= l->plan.reader_tensors || l->plan.of_reader[tensor] == UINT32_MAX)
        return NULL;
    return &l->plan.tensors[l->plan.of_reader[tensor]];
}

tp_status tp_loader_tensor(const tp_loader *l, size_t tensor, tp_loaded *loaded)
{
    const tp_plan_tensor *t = find(l, tensor);
    *loaded = (tp_loaded){.nbytes = 0};
    if (!t) return TP_NOT_FOUND;
    loaded->nbytes = t->nbytes;
    if (t->nbytes == 0) return TP_OK;
    const tp_memory *slab = &l->slabs[t->slab];
    loaded->memory = slab->address ? NULL : slab->handle;
    loaded->address = slab->address + t->at;
    return TP_OK;
}

tp_status tp_loader_read(tp_loader *l, size_t tensor, void *dst, size_t capacity, tp_error *error)
{
    const tp_plan_tensor *t = find(l, tensor);
    if (!t)
        return tp_error_set(error, TP_NOT_FOUND, "%s: tensor %zu is not loaded", tp_reader_name(l->reader),
                            tensor);
    if (t->nbytes > capacity)
        return tp_error_set(error, TP_BUFFER_TOO_SMALL, "%s: tensor %zu is larger than the buffer",
                            tp_reader_name(l->reader), tensor);
    if (t->nbytes == 0) return TP_OK;
    const tp_backend *b = l->device->backend;
    tp_status status = b->download(&l->stream, &l->slabs[t->slab], t->at, dst, t->nbytes, error);
    return status == TP_OK ? b->wait(&l->stream, error) : status;
}

void tp_loader_stats(const tp_loader *l, tp_load_stats *stats)
{
    *stats = l->stats;
}

/* ------------------------------------------------------------------------------------------- verify */

/* A few frames at once: the threads decode them, then the calling thread reads back and compares. */
typedef struct verifying {
    tp_loader *loader;
    size_t first; /* frame */
} verifying;

/* Frame first + number into the raw buffer of workspace `number`. */
static tp_status decode_again(void *context, unsigned worker, size_t number, tp_error *error)
{
    const verifying *v = context;
    tp_loader *l = v->loader;
    workspace *w = &l->workspaces[number];
    const size_t frame = v->first + number;
    const tp_placement *p = &l->plan.placements[l->plan.frames[frame]];
    tp_frame_view view;
    (void)worker;
    if (!l->plan.container) return tp_pread(l->reader, p->frame, w->raw, p->size, p->stored_at, error);
    tp_status status = tp_reader_read_frame(l->reader, p->frame, w->stored, &view, error);
    if (status == TP_OK)
        status = tp_frame_decode(w->decoder, &view, view.info.stored_size + (size_t)TP_SLACK, w->raw,
                                 view.info.raw_size, error);
    return status == TP_OK ? TP_OK : frame_error(l, frame, status, error);
}

static tp_status tick_verifying(void *context, tp_error *error)
{
    return tick(((const verifying *)context)->loader, error);
}

static tp_status compare_placement(tp_loader *l, const tp_placement *p, const uint8_t *raw, uint8_t *back,
                                   tp_error *error)
{
    const tp_backend *b = l->device->backend;
    const tp_plan_tensor *t = &l->plan.tensors[p->tensor];
    tp_status status = b->download(&l->stream, &l->slabs[t->slab], t->at + p->to, back, p->size, error);
    if (status == TP_OK) status = b->wait(&l->stream, error);
    if (status != TP_OK) return status;
    l->done += p->size;
    if (memcmp(back, raw + p->from, p->size) == 0) return TP_OK;
    tp_tensor_info info;
    char shown[256] = "";
    uint32_t at = 0;
    while (back[at] == raw[p->from + at]) at++;
    if (tp_reader_tensor(l->reader, t->number, &info) == TP_OK)
        tp_text_escape(info.name.data, info.name.size, shown, sizeof shown);
    return tp_error_set(error, TP_MISMATCH, "%s: tensor '%s' on %s differs from the file at its byte %llu",
                        tp_reader_name(l->reader), shown, l->device->info.name,
                        (unsigned long long)(p->to + at));
}

tp_status tp_loader_verify(tp_loader *l, tp_error *error)
{
    if (!l->loaded)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: not loaded", tp_reader_name(l->reader));
    start_progress(l);
    tp_host_memory back = {.device = NULL};
    tp_status status = make_workspaces(l, true, error);
    if (status == TP_OK) status = l->device->backend->host_create(l->device, PIECE, &back, error);
    for (size_t first = 0, count; status == TP_OK && first < l->plan.frame_count; first += count) {
        verifying v = {.loader = l, .first = first};
        count = tp_workers_count(l->workers);
        if (count > l->plan.frame_count - first) count = l->plan.frame_count - first;
        status = tp_workers_run(l->workers, decode_again, tick_verifying, &v, count, error);
        for (size_t i = 0; i < count && status == TP_OK; i++)
            for (size_t k = l->plan.frames[first + i]; k < l->plan.frames[first + i + 1] && status == TP_OK;
                 k++)
                status =
                    compare_placement(l, &l->plan.placements[k], l->workspaces[i].raw, back.data, error);
        if (status == TP_OK) status = tick(l, error);
    }
    if (back.device) l->device->backend->host_destroy(&back);
    free_workspaces(l);
    return status;
}
