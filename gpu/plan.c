#include "gpu/plan.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "convert/reader.h"
#include "convert/text.h"

/* Small tensors share device memory up to this size: an allocation each would cost more than they do. */
#define SLAB ((uint64_t)256 << 20)
/* Plain files are read in pieces of this size. */
#define PIECE ((uint32_t)TP_FRAME_MAX_RAW)

static tp_status no_memory(tp_error *error)
{
    return tp_error_set(error, TP_NO_MEMORY, "out of memory");
}

static tp_status tensor_error(const tp_reader *reader, const tp_tensor_info *info, tp_status status,
                              const char *what, tp_error *error)
{
    char shown[256];
    return tp_error_set(error, status, "%s: tensor '%s': %s", tp_reader_name(reader),
                        tp_text_escape(info->name.data, info->name.size, shown, sizeof shown), what);
}

tp_status tp_plan_init(tp_plan *plan, const tp_reader *reader, tp_error *error)
{
    memset(plan, 0, sizeof *plan);
    plan->container = tp_reader_format(reader) == TP_FORMAT_TPRESS;
    plan->reader_tensors = tp_reader_tensors(reader);
    if (plan->reader_tensors >= UINT32_MAX)
        return tp_error_set(error, TP_LIMIT, "%s: too many tensors to load", tp_reader_name(reader));
    plan->of_reader = malloc((plan->reader_tensors + 1) * sizeof *plan->of_reader);
    if (!plan->of_reader) return no_memory(error);
    memset(plan->of_reader, 0xff, (plan->reader_tensors + 1) * sizeof *plan->of_reader);
    return TP_OK;
}

void tp_plan_free(tp_plan *plan)
{
    free(plan->tensors);
    free(plan->of_reader);
    free(plan->slabs);
    free(plan->placements);
    free(plan->frames);
    memset(plan, 0, sizeof *plan);
}

/* Room for one more; false: out of memory. */
static bool grow(void *array, size_t *capacity, size_t count, size_t size)
{
    void **at = array;
    if (count < *capacity) return true;
    const size_t more = *capacity ? 2 * *capacity : 64;
    void *p = realloc(*at, more * size);
    if (!p) return false;
    *at = p;
    *capacity = more;
    return true;
}

tp_status tp_plan_add(tp_plan *plan, const tp_reader *reader, size_t tensor, tp_error *error)
{
    tp_tensor_info info;
    tp_file_info file;
    uint64_t end;
    if (tp_reader_tensor(reader, tensor, &info) != TP_OK ||
        tp_reader_file(reader, info.file, &file) != TP_OK)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: has no tensor %zu", tp_reader_name(reader),
                            tensor);
    if (plan->of_reader[tensor] != UINT32_MAX) return TP_OK;
    if (info.flags & TP_TENSOR_TRUNCATED || !tp_add(info.offset, info.nbytes, &end) ||
        (info.nbytes > 0 && end > file.size))
        return tensor_error(reader, &info, TP_TRUNCATED, "truncated: the file ends before it", error);
    if (!grow(&plan->tensors, &plan->tensor_capacity, plan->tensor_count, sizeof *plan->tensors))
        return no_memory(error);
    plan->of_reader[tensor] = (uint32_t)plan->tensor_count;
    plan->tensors[plan->tensor_count++] = (tp_plan_tensor){.number = tensor, .nbytes = info.nbytes};
    plan->raw_bytes += info.nbytes;
    return TP_OK;
}

/* Where the tensors go. */
static tp_status assign_slabs(tp_plan *plan, const tp_reader *reader, uint64_t max_slab, tp_error *error)
{
    size_t capacity = 0;
    const uint64_t limit = max_slab < SLAB ? max_slab : SLAB;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        tp_plan_tensor *t = &plan->tensors[i];
        if (t->nbytes == 0) continue;
        if (t->nbytes > max_slab || t->nbytes > UINT64_MAX / 2) {
            tp_tensor_info info;
            tp_reader_tensor(reader, t->number, &info);
            return tensor_error(reader, &info, TP_LIMIT, "larger than the device's largest piece of memory",
                                error);
        }
        uint64_t *last = plan->slab_count ? &plan->slabs[plan->slab_count - 1] : NULL;
        const uint64_t at = last ? tp_align(*last, TP_TENSOR_ALIGN) : 0;
        if (!last || at + t->nbytes > limit) {
            if (!grow(&plan->slabs, &capacity, plan->slab_count, sizeof *plan->slabs))
                return no_memory(error);
            t->slab = (uint32_t)plan->slab_count;
            t->at = 0;
            plan->slabs[plan->slab_count++] = t->nbytes;
        } else {
            t->slab = (uint32_t)plan->slab_count - 1;
            t->at = at;
            *last = at + t->nbytes;
        }
    }
    return TP_OK;
}

static tp_status add_placement(tp_plan *plan, size_t *capacity, const tp_placement *placement,
                               tp_error *error)
{
    if (!grow(&plan->placements, capacity, plan->placement_count, sizeof *plan->placements))
        return no_memory(error);
    plan->placements[plan->placement_count++] = *placement;
    return TP_OK;
}

/* The pieces of tensor `number` of the plan. */
static tp_status place_tensor(tp_plan *plan, const tp_reader *reader, uint32_t number, size_t *capacity,
                              tp_error *error)
{
    const tp_plan_tensor *t = &plan->tensors[number];
    tp_tensor_info info;
    tp_reader_tensor(reader, t->number, &info);
    uint64_t frame = 0, start = 0;
    if (plan->container && t->nbytes) frame = tp_reader_frame_at(reader, info.file, info.offset, &start);
    for (uint64_t done = 0; done < t->nbytes;) {
        tp_placement p = {.tensor = number, .to = done};
        const uint64_t left = t->nbytes - done;
        if (plan->container) {
            tp_frame_entry entry;
            if (tp_reader_frame(reader, frame, &entry) != TP_OK)
                return tensor_error(reader, &info, TP_CORRUPT, "has no frames", error);
            p.stored_at = entry.offset;
            p.frame = frame++;
            p.from = (uint32_t)(info.offset + done - start);
            p.size = entry.raw_size - p.from < left ? entry.raw_size - p.from : (uint32_t)left;
            start += entry.raw_size;
        } else {
            p.stored_at = info.offset + done;
            p.frame = info.file;
            p.size = left < PIECE ? (uint32_t)left : PIECE;
        }
        done += p.size;
        const tp_status status = add_placement(plan, capacity, &p, error);
        if (status != TP_OK) return status;
    }
    return TP_OK;
}

static int compare_placements(const void *a, const void *b)
{
    const tp_placement *x = a, *y = b;
    if (x->stored_at != y->stored_at) return x->stored_at < y->stored_at ? -1 : 1;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

tp_status tp_plan_make(tp_plan *plan, const tp_reader *reader, uint64_t max_slab, tp_error *error)
{
    size_t capacity = 0;
    tp_status status = assign_slabs(plan, reader, max_slab, error);
    for (size_t i = 0; status == TP_OK && i < plan->tensor_count; i++)
        status = place_tensor(plan, reader, (uint32_t)i, &capacity, error);
    if (status != TP_OK) return status;
    if (plan->placement_count)
        qsort(plan->placements, plan->placement_count, sizeof *plan->placements, compare_placements);
    plan->frames = malloc((plan->placement_count + 1) * sizeof *plan->frames);
    if (!plan->frames) return no_memory(error);
    for (size_t i = 0; i < plan->placement_count; i++) {
        /* Pieces of a plain file are each their own: tensors may share bytes in part. */
        const tp_placement *p = &plan->placements[i];
        if (i > 0 && plan->container && p->stored_at == p[-1].stored_at) continue;
        plan->frames[plan->frame_count++] = i;
    }
    plan->frames[plan->frame_count] = plan->placement_count;
    return TP_OK;
}

size_t tp_plan_direct(const tp_plan *plan, size_t frame, uint32_t raw_size)
{
    for (size_t i = plan->frames[frame]; i < plan->frames[frame + 1]; i++) {
        const tp_placement *p = &plan->placements[i];
        if (p->from == 0 && p->size == raw_size && (plan->tensors[p->tensor].at + p->to) % 16 == 0)
            return i;
    }
    return SIZE_MAX;
}
