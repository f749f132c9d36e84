#include "gpu/plan.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "convert/reader.h"
#include "convert/text.h"

/* Plain files are read in pieces of this size. */
#define PIECE ((uint32_t)TP_FRAME_MAX_RAW)

bool tp_grow(void *array, size_t *capacity, size_t count, size_t size)
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

/* ------------------------------------------------------------------------------------------- choosing */

static tp_status tensor_error(const tp_reader *reader, const tp_tensor_info *info, tp_status status,
                              const char *what, tp_error *error)
{
    char shown[256];
    return tp_error_set(error, status, "%s: tensor '%s': %s", tp_reader_name(reader),
                        tp_text_escape(info->name.data, info->name.size, shown, sizeof shown), what);
}

void tp_choice_free(tp_choice *choice)
{
    for (size_t i = 0; i < choice->source_count; i++) free(choice->sources[i].item_of);
    free(choice->sources);
    free(choice->items);
    memset(choice, 0, sizeof *choice);
}

static tp_status find_source(tp_choice *choice, tp_reader *reader, uint32_t *source, tp_error *error)
{
    /* Most often it is the one before. */
    for (size_t i = choice->source_count; i-- > 0;) {
        if (choice->sources[i].reader != reader) continue;
        *source = (uint32_t)i;
        return TP_OK;
    }
    const size_t tensors = tp_reader_tensors(reader);
    if (!tp_grow(&choice->sources, &choice->source_capacity, choice->source_count, sizeof *choice->sources))
        return tp_error_memory(error);
    uint32_t *const item_of = malloc((tensors + 1) * sizeof *item_of);
    if (!item_of) return tp_error_memory(error);
    memset(item_of, 0xff, (tensors + 1) * sizeof *item_of);
    *source = (uint32_t)choice->source_count;
    choice->sources[choice->source_count++] =
        (tp_source_file){.reader = reader,
                         .container = tp_reader_format(reader) == TP_FORMAT_TPRESS,
                         .item_of = item_of,
                         .tensors = tensors};
    return TP_OK;
}

static tp_status add_item(tp_choice *choice, const tp_item *what, size_t *item, tp_error *error)
{
    if (choice->item_count == UINT32_MAX)
        return tp_error_set(error, TP_LIMIT, "%s: too many tensors to load", tp_item_file(choice, what));
    if (!tp_grow(&choice->items, &choice->item_capacity, choice->item_count, sizeof *choice->items))
        return tp_error_memory(error);
    *item = choice->item_count++;
    choice->items[*item] = *what;
    return TP_OK;
}

/* The tensor, if all of it is there. */
static tp_status describe(const tp_reader *reader, size_t tensor, tp_tensor_info *info, tp_error *error)
{
    tp_file_info file;
    uint64_t end;
    if (tp_reader_tensor(reader, tensor, info) != TP_OK ||
        tp_reader_file(reader, info->file, &file) != TP_OK)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: has no tensor %zu", tp_reader_name(reader),
                            tensor);
    if (info->flags & TP_TENSOR_TRUNCATED || !tp_add(info->offset, info->nbytes, &end) ||
        (info->nbytes > 0 && end > file.size))
        return tensor_error(reader, info, TP_TRUNCATED, "truncated: the file ends before it", error);
    return TP_OK;
}

tp_status tp_choose(tp_choice *choice, tp_reader *reader, size_t tensor, size_t *item, tp_error *error)
{
    tp_tensor_info info;
    uint32_t source = 0;
    tp_status status = describe(reader, tensor, &info, error);
    if (status == TP_OK) status = find_source(choice, reader, &source, error);
    if (status != TP_OK) return status;
    uint32_t *const known = &choice->sources[source].item_of[tensor];
    if (*known == UINT32_MAX) {
        const tp_item what = {.source = source, .tensor = tensor, .nbytes = info.nbytes, .whole = true};
        status = add_item(choice, &what, item, error);
        if (status == TP_OK) *known = (uint32_t)*item;
    } else {
        *item = *known;
    }
    return status;
}

tp_status tp_choose_rows(tp_choice *choice, tp_reader *reader, size_t tensor, uint64_t first, uint64_t last,
                         size_t *item, tp_error *error)
{
    tp_tensor_info info;
    uint32_t source = 0;
    size_t before = 0, size = 0;
    tp_status status = describe(reader, tensor, &info, error);
    /* Where the rows begin is where those before them end. */
    if (status == TP_OK) status = tp_read_rows(reader, tensor, first, last, NULL, SIZE_MAX, &size, error);
    if (status == TP_OK) status = tp_read_rows(reader, tensor, 0, first, NULL, SIZE_MAX, &before, error);
    if (status == TP_OK) status = find_source(choice, reader, &source, error);
    const tp_item what = {
        .source = source, .tensor = tensor, .from = before, .nbytes = size, .first = first, .last = last};
    return status == TP_OK ? add_item(choice, &what, item, error) : status;
}

void tp_choice_forget(tp_choice *choice, size_t item)
{
    const tp_item *t = &choice->items[item];
    uint32_t *known = &choice->sources[t->source].item_of[t->tensor];
    if (*known == item) *known = UINT32_MAX;
}

const char *tp_item_file(const tp_choice *choice, const tp_item *item)
{
    return tp_reader_name(choice->sources[item->source].reader);
}

const char *tp_item_name(const tp_choice *choice, const tp_item *item, char shown[TP_SHOWN_NAME])
{
    tp_tensor_info info;
    if (tp_reader_tensor(choice->sources[item->source].reader, item->tensor, &info) != TP_OK) return "";
    return tp_text_escape(info.name.data, info.name.size, shown, TP_SHOWN_NAME);
}

/* -------------------------------------------------------------------------------------------- the plan */

void tp_plan_free(tp_plan *plan)
{
    free(plan->placements);
    free(plan->frames);
    memset(plan, 0, sizeof *plan);
}

/* The pieces of an item. */
static tp_status place_item(tp_plan *plan, const tp_choice *choice, size_t number, size_t *capacity,
                            tp_error *error)
{
    const tp_item *t = &choice->items[number];
    const tp_source_file *source = &choice->sources[t->source];
    const tp_reader *reader = source->reader;
    tp_tensor_info info;
    tp_reader_tensor(reader, t->tensor, &info);
    const uint64_t offset = info.offset + t->from;
    uint64_t frame = 0, start = 0;
    if (source->container && t->nbytes) frame = tp_reader_frame_at(reader, info.file, offset, &start);
    for (uint64_t done = 0; done < t->nbytes;) {
        tp_placement p = {.source = t->source, .item = (uint32_t)number, .to = done};
        const uint64_t left = t->nbytes - done;
        if (source->container) {
            tp_frame_entry entry;
            if (tp_reader_frame(reader, frame, &entry) != TP_OK)
                return tensor_error(reader, &info, TP_CORRUPT, "has no frames", error);
            p.stored_at = entry.offset;
            p.frame = frame++;
            p.from = (uint32_t)(offset + done - start);
            p.size = entry.raw_size - p.from < left ? entry.raw_size - p.from : (uint32_t)left;
            start += entry.raw_size;
        } else {
            p.stored_at = offset + done;
            p.frame = info.file;
            p.size = left < PIECE ? (uint32_t)left : PIECE;
        }
        done += p.size;
        if (!tp_grow(&plan->placements, capacity, plan->placement_count, sizeof *plan->placements))
            return tp_error_memory(error);
        plan->placements[plan->placement_count++] = p;
    }
    plan->raw_bytes += t->nbytes;
    return TP_OK;
}

static int compare_placements(const void *a, const void *b)
{
    const tp_placement *x = a, *y = b;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    if (x->stored_at != y->stored_at) return x->stored_at < y->stored_at ? -1 : 1;
    if (x->item != y->item) return x->item < y->item ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

tp_status tp_plan_make(tp_plan *plan, const tp_choice *choice, size_t first, size_t end, bool loaded_only,
                       tp_error *error)
{
    size_t capacity = 0;
    tp_status status = TP_OK;
    memset(plan, 0, sizeof *plan);
    for (size_t i = first; status == TP_OK && i < end; i++)
        if (!loaded_only || choice->items[i].loaded) status = place_item(plan, choice, i, &capacity, error);
    if (status == TP_OK) {
        plan->frames = malloc((plan->placement_count + 1) * sizeof *plan->frames);
        if (!plan->frames) status = tp_error_memory(error);
    }
    if (status != TP_OK) {
        tp_plan_free(plan);
        return status;
    }
    if (plan->placement_count)
        qsort(plan->placements, plan->placement_count, sizeof *plan->placements, compare_placements);
    for (size_t i = 0; i < plan->placement_count; i++) {
        /* Pieces of a plain file are each their own: tensors may share bytes in part. */
        const tp_placement *p = &plan->placements[i];
        if (i > 0 && choice->sources[p->source].container && p->source == p[-1].source &&
            p->stored_at == p[-1].stored_at)
            continue;
        plan->frames[plan->frame_count++] = i;
    }
    plan->frames[plan->frame_count] = plan->placement_count;
    return TP_OK;
}

size_t tp_plan_direct(const tp_plan *plan, const tp_choice *choice, size_t frame, uint32_t raw_size)
{
    for (size_t i = plan->frames[frame]; i < plan->frames[frame + 1]; i++) {
        const tp_placement *p = &plan->placements[i];
        if (p->from == 0 && p->size == raw_size && (choice->items[p->item].misaligned + p->to) % 16 == 0)
            return i;
    }
    return SIZE_MAX;
}
