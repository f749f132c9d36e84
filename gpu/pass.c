/* From the files to the device: reading, checking and decoding, several frames at once, in stored order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "convert/reader.h"
#include "convert/text.h"
#include "gpu/loader.h"

#define DEFAULT_STAGING ((size_t)64 << 20)
#define LEAST_SCRATCH TP_FRAME_MAX_RAW

static tp_reader *reader_of(const tp_loader *l, const tp_placement *p)
{
    return l->choice.sources[p->source].reader;
}
static bool in_container(const tp_loader *l, const tp_placement *p)
{
    return l->choice.sources[p->source].container;
}

/* ------------------------------------------------------------------------------------------ threads */

tp_status tp_load_make_workspaces(tp_loader *l, bool decoding, tp_error *error)
{
    tp_status status = TP_OK;
    if (!l->workers) status = tp_workers_create(l->options.threads, &l->workers, error);
    if (status != TP_OK) return status;
    if (!l->workspaces) l->workspaces = calloc(tp_workers_count(l->workers), sizeof *l->workspaces);
    if (!l->workspaces) return tp_error_memory(error);
    for (unsigned i = 0; decoding && i < tp_workers_count(l->workers); i++) {
        tp_load_workspace *w = &l->workspaces[i];
        if (!w->stored) w->stored = aligned_alloc(64, TP_READER_STORED_BUFFER);
        if (!w->raw) w->raw = aligned_alloc(64, TP_FRAME_MAX_RAW);
        if (!w->stored || !w->raw || (!w->decoder && tp_decoder_create(&w->decoder) != TP_OK))
            return tp_error_memory(error);
    }
    return TP_OK;
}

void tp_load_free_workspaces(tp_loader *l)
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

tp_status tp_load_frame_error(const tp_loader *l, const tp_plan *plan, size_t frame, tp_status status,
                              tp_error *error)
{
    const tp_placement *p = tp_plan_frame(plan, frame);
    char shown[TP_SHOWN_NAME];
    if (!error || !in_container(l, p)) return status;
    if (strncmp(error->message, "frame: ", 7) == 0) {
        const tp_error cause = *error;
        tp_reader_frame_error(reader_of(l, p), p->frame, status, &cause, error);
    }
    tp_item_name(&l->choice, &l->choice.items[p->item], shown);
    const size_t length = strlen(error->message);
    snprintf(error->message + length, sizeof error->message - length, " (tensor '%s')", shown);
    return status;
}

/* --------------------------------------------------------------------------------- on the processors */

static uint8_t *host_address(const tp_loader *l, const tp_placement *p)
{
    const tp_item *t = &l->choice.items[p->item];
    return (uint8_t *)l->memories[t->memory].handle + t->at + p->to;
}

/* The bytes of a frame's placements by who decoded them; lz4 is the host's on every device, also where it
 * is the cpu. */
static void count_frame(const tp_loader *l, size_t frame, const tp_frame_view *view, uint64_t *device,
                        uint64_t *host)
{
    const tp_plan *plan = &l->pass.plan;
    for (size_t i = plan->frames[frame]; i < plan->frames[frame + 1]; i++) {
        const tp_placement *p = &plan->placements[i];
        const uint64_t by_host = tp_frame_host_bytes(view, p->from, p->size);
        *host += by_host;
        *device += p->size - by_host;
    }
}

static tp_status load_frame(void *context, unsigned worker, size_t frame, tp_error *error)
{
    tp_loader *l = context;
    const tp_plan *plan = &l->pass.plan;
    tp_load_workspace *w = &l->workspaces[worker];
    const size_t first = plan->frames[frame], end = plan->frames[frame + 1];
    const tp_placement *p = &plan->placements[first];
    const double start = tp_load_seconds();
    tp_frame_view view;
    if (!in_container(l, p)) {
        const tp_status status =
            tp_pread(reader_of(l, p), p->frame, host_address(l, p), p->size, p->stored_at, error);
        w->read_s += tp_load_seconds() - start;
        w->stored_bytes += p->size;
        l->done += p->size;
        return status;
    }
    tp_status status = tp_reader_read_frame(reader_of(l, p), p->frame, w->stored, &view, error);
    const double middle = tp_load_seconds();
    if (status != TP_OK) return tp_load_frame_error(l, plan, frame, status, error);
    const size_t direct = tp_plan_direct(plan, &l->choice, frame, view.info.raw_size);
    uint8_t *const dst = direct == SIZE_MAX ? w->raw : host_address(l, &plan->placements[direct]);
    status = tp_frame_decode(w->decoder, &view, view.info.stored_size + (size_t)TP_SLACK, dst,
                             view.info.raw_size, error);
    if (status != TP_OK) return tp_load_frame_error(l, plan, frame, status, error);
    for (size_t i = first; i < end; i++) {
        p = &plan->placements[i];
        if (i != direct) memcpy(host_address(l, p), dst + p->from, p->size);
        l->done += p->size;
    }
    count_frame(l, frame, &view, &w->device_bytes, &w->host_bytes);
    w->stored_bytes += view.info.stored_size;
    w->read_s += middle - start;
    w->decode_s += tp_load_seconds() - middle;
    return TP_OK;
}

/* What the threads have done since the last time. Only while they rest. */
static void count_workspaces(tp_loader *l)
{
    const unsigned workers = tp_workers_count(l->workers);
    for (unsigned i = 0; l->workspaces && i < workers; i++) {
        tp_load_workspace *w = &l->workspaces[i];
        l->stats.stored_bytes += w->stored_bytes;
        l->stats.decoded_on_device_bytes += w->device_bytes;
        l->stats.decoded_on_host_bytes += w->host_bytes;
        l->stats.read_s += w->read_s / workers;
        l->stats.decode_s += w->decode_s / workers;
        w->stored_bytes = w->device_bytes = w->host_bytes = 0;
        w->read_s = w->decode_s = 0;
    }
}

/* ------------------------------------------------------------------------------------- on the device */

static tp_status read_one(void *context, unsigned worker, size_t number, tp_error *error)
{
    tp_loader *l = context;
    tp_batch *batch = &l->pass.batches[l->pass.turn];
    tp_batch_frame *frame = &batch->frames[number];
    const tp_placement *p = tp_plan_frame(&l->pass.plan, frame->tag);
    uint8_t *stored = tp_batch_stored(batch, frame);
    (void)worker;
    if (!in_container(l, p))
        return tp_pread(reader_of(l, p), p->frame, stored, p->size, p->stored_at, error);
    tp_status status = tp_reader_read_frame(reader_of(l, p), p->frame, stored, &frame->view, error);
    if (status == TP_OK) status = tp_frame_check_stated_hashes(&frame->view, error);
    return status == TP_OK ? TP_OK : tp_load_frame_error(l, &l->pass.plan, frame->tag, status, error);
}

/* Lets the threads read as many frames as the batch whose turn it is has room for, all of one kind of file.
 */
static void start_fill(tp_loader *l)
{
    tp_pass *pass = &l->pass;
    tp_batch *batch = &pass->batches[pass->turn];
    const bool container = in_container(l, tp_plan_frame(&pass->plan, pass->next));
    tp_batch_clear(batch);
    for (; pass->next < pass->plan.frame_count; pass->next++) {
        const tp_placement *p = tp_plan_frame(&pass->plan, pass->next);
        tp_frame_entry entry = {.stored_size = p->size};
        if (in_container(l, p) != container) break;
        if (container) tp_reader_frame(reader_of(l, p), p->frame, &entry);
        tp_batch_frame *frame = tp_batch_add(batch, entry.stored_size);
        if (!frame) break;
        frame->tag = pass->next;
        l->stats.stored_bytes += entry.stored_size;
    }
    pass->states[pass->turn] = TP_BATCH_FILLING;
    tp_workers_start(l->workers, read_one, l, batch->count);
}

/* Whether a batch's frames are a container's. */
static bool decoding(const tp_loader *l, const tp_batch *batch)
{
    return in_container(l, tp_plan_frame(&l->pass.plan, batch->frames[0].tag));
}

static tp_status wait_fill(tp_loader *l, tp_batch *batch, tp_error *error)
{
    const double start = tp_load_seconds();
    const tp_status status = tp_workers_wait(l->workers, batch->count, tp_load_tick, l, error);
    for (size_t i = 0; i < batch->count && status == TP_OK && decoding(l, batch); i++) {
        tp_batch_frame *frame = &batch->frames[i];
        const size_t direct =
            tp_plan_direct(&l->pass.plan, &l->choice, frame->tag, frame->view.info.raw_size);
        frame->output = UINT32_MAX;
        if (direct == SIZE_MAX) continue;
        const tp_placement *p = &l->pass.plan.placements[direct];
        frame->output = l->choice.items[p->item].memory;
        frame->output_at = l->choice.items[p->item].at + p->to;
    }
    l->stats.read_s += tp_load_seconds() - start;
    return status;
}

/* Queues the copies of a submitted frame to where it was not decoded to, and counts its bytes. */
static tp_status scatter(tp_loader *l, tp_batch *batch, const tp_batch_frame *frame, tp_error *error)
{
    const tp_plan *plan = &l->pass.plan;
    const tp_memory *from = tp_batch_output(batch, l->memories, frame);
    const size_t direct = tp_plan_direct(plan, &l->choice, frame->tag, frame->view.info.raw_size);
    tp_status status = TP_OK;
    for (size_t i = plan->frames[frame->tag]; i < plan->frames[frame->tag + 1] && status == TP_OK; i++) {
        const tp_placement *p = &plan->placements[i];
        const tp_item *t = &l->choice.items[p->item];
        if (i != direct)
            status = l->device->backend->copy(&batch->stream, &l->memories[t->memory], t->at + p->to, from,
                                              frame->output_at + p->from, p->size, error);
    }
    count_frame(l, frame->tag, &frame->view, &l->stats.decoded_on_device_bytes,
                &l->stats.decoded_on_host_bytes);
    return status;
}

static tp_status submit(tp_loader *l, tp_batch *batch, tp_error *error)
{
    size_t failed;
    tp_status status = tp_batch_submit(batch, l->memories, &failed, error);
    if (status != TP_OK && failed != SIZE_MAX)
        return tp_load_frame_error(l, &l->pass.plan, batch->frames[failed].tag, status, error);
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
        const tp_placement *p = tp_plan_frame(&l->pass.plan, frame->tag);
        const tp_item *t = &l->choice.items[p->item];
        status = l->device->backend->upload(&batch->stream, &l->memories[t->memory], t->at + p->to,
                                            tp_batch_stored(batch, frame), p->size, error);
    }
    batch->end = batch->count;
    return status;
}

/* Waits for all that is in a batch, with the rounds that it has left. */
static tp_status collect(tp_loader *l, tp_batch *batch, tp_error *error)
{
    const tp_plan *plan = &l->pass.plan;
    for (;;) {
        const size_t first = batch->first;
        size_t failed = SIZE_MAX;
        tp_status status = decoding(l, batch) ? tp_batch_collect(batch, &failed, error)
                                              : l->device->backend->wait(&batch->stream, error);
        if (status != TP_OK && failed != SIZE_MAX)
            return tp_load_frame_error(l, plan, batch->frames[failed].tag, status, error);
        for (size_t i = first; i < batch->end && status == TP_OK; i++) {
            const size_t frame = batch->frames[i].tag;
            for (size_t k = plan->frames[frame]; k < plan->frames[frame + 1]; k++)
                l->done += plan->placements[k].size;
        }
        if (status == TP_OK) status = tp_load_tick(l, error);
        if (status != TP_OK || batch->end == batch->count) return status;
        status = submit(l, batch, error);
        if (status != TP_OK) return status;
    }
}

static tp_status start_batch(tp_loader *l, int which, tp_error *error)
{
    tp_batch *batch = &l->pass.batches[which];
    tp_status status = wait_fill(l, batch, error);
    if (status != TP_OK) return status;
    const double start = tp_load_seconds();
    status = decoding(l, batch) ? submit(l, batch, error) : upload_pieces(l, batch, error);
    l->pass.states[which] = TP_BATCH_STARTED;
    l->stats.decode_s += tp_load_seconds() - start;
    return status;
}

static tp_status finish_batch(tp_loader *l, int which, tp_error *error)
{
    const double start = tp_load_seconds();
    tp_batch *batch = &l->pass.batches[which];
    const tp_status status = collect(l, batch, error);
    l->stats.decode_s += tp_load_seconds() - start;
    if (status != TP_OK) return status;
    l->pass.states[which] = TP_BATCH_EMPTY;
    l->pass.done = batch->frames[batch->count - 1].tag + 1;
    return TP_OK;
}

/*
 * Brings one batch from staging memory to its end. Whenever this returns, the device has the next batch and
 * the threads read the one after it, as far as there are any: the caller may take its time.
 */
static tp_status step(tp_loader *l, tp_error *error)
{
    tp_pass *pass = &l->pass;
    const size_t before = pass->done;
    tp_status status = TP_OK;
    while (status == TP_OK && pass->done == before) {
        const int filled = pass->turn, other = 1 - filled;
        if (pass->states[filled] == TP_BATCH_FILLING) status = start_batch(l, filled, error);
        if (status != TP_OK) break;
        if (pass->states[other] == TP_BATCH_STARTED)
            status = finish_batch(l, other, error);
        else if (pass->next == pass->plan.frame_count)
            status = finish_batch(l, filled, error);
        if (status != TP_OK || pass->next == pass->plan.frame_count) continue;
        pass->turn = other;
        start_fill(l);
    }
    return status;
}

/* --------------------------------------------------------------------------------------------- staging */

/* What a pass needs at most: so many bytes of each kind of staging memory. */
typedef struct needs {
    uint64_t stored, expanded, scratch;
    bool one_kind; /* of file */
} needs;

static needs add_up(const tp_loader *l)
{
    needs n = {.one_kind = true};
    for (size_t i = 0; i < l->pass.plan.frame_count; i++) {
        const tp_placement *p = tp_plan_frame(&l->pass.plan, i);
        tp_frame_entry entry = {.stored_size = p->size};
        n.one_kind &= in_container(l, p) == in_container(l, tp_plan_frame(&l->pass.plan, 0));
        if (in_container(l, p)) {
            tp_reader_frame(reader_of(l, p), p->frame, &entry);
            n.expanded += entry.raw_size + (TP_BATCH_LEAST_EXPANDED - TP_FRAME_MAX_RAW);
            if (entry.codec == TP_FRAME_DF11) n.expanded += tp_align(sizeof(tp_df11_table), 128);
            if (tp_plan_direct(&l->pass.plan, &l->choice, i, entry.raw_size) == SIZE_MAX)
                n.scratch += tp_align(entry.raw_size, 256);
        }
        n.stored += tp_align((uint64_t)entry.stored_size + TP_SLACK, 256);
    }
    return n;
}

/* A share of the staging memory, but at least what one frame may need, and no more than all of them do. */
static size_t share(size_t wanted, size_t least, uint64_t needed)
{
    const size_t bytes = wanted > least ? wanted : least;
    return needed < bytes ? (size_t)needed : bytes;
}

static tp_status make_batches(tp_loader *l, tp_error *error)
{
    tp_pass *pass = &l->pass;
    const needs n = add_up(l);
    const size_t half = (l->options.staging ? l->options.staging : DEFAULT_STAGING) / 2;
    const size_t scratch = share(half / 4, LEAST_SCRATCH, n.scratch);
    const size_t expanded = share(n.scratch ? half / 4 : half / 8 * 3, TP_BATCH_LEAST_EXPANDED, n.expanded);
    const size_t rest = half > scratch + expanded ? half - scratch - expanded : 0;
    const size_t stored = share(rest, TP_BATCH_LEAST_STORED, n.stored);
    tp_status status = TP_OK;
    for (int i = 0; i < 2 && status == TP_OK; i++) {
        tp_batch *batch = &pass->batches[i];
        if (i == 1 && stored >= n.stored && n.one_kind && pass->plan.frame_count <= TP_BATCH_FRAMES) break;
        status = tp_batch_create(batch, l->device, l->workers, stored, expanded, scratch, error);
        if (status == TP_OK && l->options.stream)
            status = l->device->backend->stream_after(&batch->stream, (void *)l->options.stream, error);
    }
    return status;
}

/* ----------------------------------------------------------------------------------------------- passes */

static int compare_order(const void *a, const void *b)
{
    const struct tp_pass_order *x = a, *y = b;
    if (x->frames != y->frames) return x->frames < y->frames ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static tp_status make_order(tp_loader *l, tp_error *error)
{
    tp_pass *pass = &l->pass;
    const size_t count = pass->end - pass->first;
    pass->order = calloc(count + 1, sizeof *pass->order);
    if (!pass->order) return tp_error_memory(error);
    for (size_t i = 0; i < count; i++) pass->order[i].item = (uint32_t)(pass->first + i);
    for (size_t f = 0; f < pass->plan.frame_count; f++)
        for (size_t i = pass->plan.frames[f]; i < pass->plan.frames[f + 1]; i++)
            pass->order[pass->plan.placements[i].item - pass->first].frames = f + 1;
    if (count) qsort(pass->order, count, sizeof *pass->order, compare_order);
    return TP_OK;
}

tp_status tp_pass_start(tp_loader *l, tp_error *error)
{
    tp_pass *pass = &l->pass;
    const bool kernels = l->device->backend->launch != NULL;
    tp_status status = tp_plan_make(&pass->plan, &l->choice, pass->first, pass->end, false, error);
    if (status == TP_OK) status = make_order(l, error);
    tp_load_start_progress(l, pass->plan.raw_bytes);
    if (status != TP_OK || pass->plan.frame_count == 0) return status;
    status = tp_load_make_workspaces(l, !kernels, error);
    if (status == TP_OK && kernels) status = make_batches(l, error);
    if (status != TP_OK) return status;
    if (kernels)
        start_fill(l);
    else
        tp_workers_start(l->workers, load_frame, l, pass->plan.frame_count);
    return TP_OK;
}

tp_status tp_pass_advance(tp_loader *l, size_t frames, tp_error *error)
{
    tp_pass *pass = &l->pass;
    tp_status status = TP_OK;
    if (l->device->backend->launch) {
        while (status == TP_OK && pass->done < frames) status = step(l, error);
    } else if (pass->done < frames) {
        status = tp_workers_wait(l->workers, frames, tp_load_tick, l, error);
        if (status == TP_OK) pass->done = frames;
    }
    return status;
}

void tp_pass_end(tp_loader *l)
{
    tp_pass *pass = &l->pass;
    if (l->workers) tp_workers_stop(l->workers);
    for (int i = 0; i < 2; i++) tp_batch_destroy(&pass->batches[i]);
    if (l->workers) count_workspaces(l);
    tp_load_free_workspaces(l);
    tp_plan_free(&pass->plan);
    free(pass->order);
    pass->order = NULL;
}
