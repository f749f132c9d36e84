/* tp_loader_verify: what is on the device against what the files hold, decoded again on the processors. */
#include <string.h>

#include "convert/reader.h"
#include "gpu/loader.h"

/* A few frames at once: the threads decode them, then the calling thread reads back and compares. */
typedef struct verifying {
    tp_loader *loader;
    const tp_plan *plan;
    size_t first; /* frame */
} verifying;

/* Frame first + number into the raw buffer of workspace `number`. */
static tp_status decode_again(void *context, unsigned worker, size_t number, tp_error *error)
{
    const verifying *v = context;
    tp_loader *l = v->loader;
    tp_load_workspace *w = &l->workspaces[number];
    const size_t frame = v->first + number;
    const tp_placement *p = tp_plan_frame(v->plan, frame);
    const tp_source_file *source = &l->choice.sources[p->source];
    tp_frame_view view;
    (void)worker;
    if (!source->container) return tp_pread(source->reader, p->frame, w->raw, p->size, p->stored_at, error);
    tp_status status = tp_reader_read_frame(source->reader, p->frame, w->stored, &view, error);
    if (status == TP_OK)
        status = tp_frame_decode(w->decoder, &view, view.info.stored_size + (size_t)TP_SLACK, w->raw,
                                 view.info.raw_size, error);
    return status == TP_OK ? TP_OK : tp_load_frame_error(l, v->plan, frame, status, error);
}

static tp_status compare_placement(tp_loader *l, const tp_placement *p, const uint8_t *raw, uint8_t *back,
                                   tp_error *error)
{
    const tp_item *t = &l->choice.items[p->item];
    const tp_status status = tp_load_read_back(l, t, p->to, back, p->size, error);
    if (status != TP_OK) return status;
    l->done += p->size;
    if (memcmp(back, raw + p->from, p->size) == 0) return TP_OK;
    char shown[TP_SHOWN_NAME];
    uint32_t at = 0;
    while (back[at] == raw[p->from + at]) at++;
    return tp_error_set(error, TP_MISMATCH, "%s: tensor '%s' on %s differs from the file at its byte %llu",
                        tp_item_file(&l->choice, t), tp_item_name(&l->choice, t, shown),
                        l->device->info.name, (unsigned long long)(t->from + p->to + at));
}

tp_status tp_loader_verify(tp_loader *l, tp_error *error)
{
    if (l->pass.active)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: loading is under way", l->device->info.name);
    tp_plan plan;
    tp_host_memory back = {.device = NULL};
    tp_status status = tp_plan_make(&plan, &l->choice, 0, l->choice.item_count, true, error);
    if (status != TP_OK) return status;
    tp_load_start_progress(l, plan.raw_bytes);
    status = tp_load_make_workspaces(l, true, error);
    if (status == TP_OK) status = l->device->backend->host_create(l->device, TP_LOAD_PIECE, &back, error);
    for (size_t first = 0, count; status == TP_OK && first < plan.frame_count; first += count) {
        verifying v = {.loader = l, .plan = &plan, .first = first};
        count = tp_workers_count(l->workers);
        if (count > plan.frame_count - first) count = plan.frame_count - first;
        tp_workers_start(l->workers, decode_again, &v, count);
        status = tp_workers_wait(l->workers, count, tp_load_tick, l, error);
        tp_workers_stop(l->workers);
        for (size_t i = 0; i < count && status == TP_OK; i++)
            for (size_t k = plan.frames[first + i]; k < plan.frames[first + i + 1] && status == TP_OK; k++)
                status = compare_placement(l, &plan.placements[k], l->workspaces[i].raw, back.data, error);
        if (status == TP_OK) status = tp_load_tick(l, error);
    }
    if (back.device) l->device->backend->host_destroy(&back);
    tp_load_free_workspaces(l);
    tp_plan_free(&plan);
    return status;
}
