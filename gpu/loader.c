/* tp_loader: tensors of containers and plain checkpoints onto a device. What is chosen, where it goes, what
 * is there. */
#include "gpu/loader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/bytes.h"
#include "convert/reader.h"
#include "convert/text.h"
#include "gpu/pattern.h"

/* Small tensors share device memory up to this size: an allocation each would cost more than they do. */
#define SLAB ((uint64_t)256 << 20)

double tp_load_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tp_load_start_progress(tp_loader *l, uint64_t total)
{
    tp_options options;
    tp_options_init(&options);
    options.progress = l->options.progress;
    options.progress_context = l->options.progress_context;
    tp_progress_init(&l->progress, &options);
    l->progress.total = total;
    l->done = 0;
}

tp_status tp_load_tick(void *loader, tp_error *error)
{
    tp_loader *l = loader;
    l->progress.done = l->done;
    return tp_progress_tick(&l->progress, false, error);
}

/* ------------------------------------------------------------------------------------------ set up */

void tp_load_options_init(tp_load_options *options)
{
    *options = (tp_load_options){.threads = 0};
}

tp_status tp_loader_create(tp_device *device, const tp_load_options *options, tp_loader **loader,
                           tp_error *error)
{
    *loader = NULL;
    tp_loader *l = calloc(1, sizeof *l);
    if (!l) return tp_error_memory(error);
    l->device = device;
    if (options) l->options = *options;
    tp_device_retain(device);
    const tp_status status = device->backend->stream_create(device, &l->stream, error);
    if (status != TP_OK) {
        tp_loader_close(l);
        return status;
    }
    *loader = l;
    return TP_OK;
}

void tp_slab_release(tp_slab *slab)
{
    if (atomic_fetch_sub(&slab->references, 1) != 1) return;
    tp_device *device = slab->memory.device;
    device->backend->memory_destroy(&slab->memory);
    tp_device_close(device);
    free(slab);
}

void tp_loader_close(tp_loader *l)
{
    if (!l) return;
    tp_pass_end(l);
    for (size_t i = 0; i < l->memory_count; i++)
        if (l->slabs[i]) tp_slab_release(l->slabs[i]);
    free(l->slabs);
    free(l->memories);
    if (l->stream.device) l->device->backend->stream_destroy(&l->stream);
    tp_choice_free(&l->choice);
    tp_device_close(l->device);
    free(l);
}

/* ----------------------------------------------------------------------------------------- choosing */

/* While threads and devices work on them the items must stay as they are. */
static tp_status not_loading(const tp_loader *l, tp_error *error)
{
    if (!l->pass.active) return TP_OK;
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: loading is under way", l->device->info.name);
}

tp_status tp_loader_add(tp_loader *l, tp_reader *reader, size_t tensor, size_t *item, tp_error *error)
{
    size_t number;
    const tp_status status = not_loading(l, error);
    return status == TP_OK ? tp_choose(&l->choice, reader, tensor, item ? item : &number, error) : status;
}

tp_status tp_loader_add_named(tp_loader *l, tp_reader *reader, const char *name, size_t *item,
                              tp_error *error)
{
    size_t tensor;
    if (tp_reader_find(reader, SIZE_MAX, name, strlen(name), &tensor) == TP_OK)
        return tp_loader_add(l, reader, tensor, item, error);
    char shown[TP_SHOWN_NAME];
    return tp_error_set(error, TP_NOT_FOUND, "%s: has no tensor '%s'", tp_reader_name(reader),
                        tp_text_escape(name, strlen(name), shown, sizeof shown));
}

tp_status tp_loader_add_matching(tp_loader *l, tp_reader *reader, const char *pattern, size_t *added,
                                 size_t *truncated, tp_error *error)
{
    const size_t count = tp_reader_tensors(reader);
    size_t matching = 0, cut = 0;
    tp_status status = not_loading(l, error);
    for (size_t i = 0; i < count && status == TP_OK; i++) {
        tp_tensor_info info;
        tp_reader_tensor(reader, i, &info);
        if (!tp_pattern_matches(pattern, info.name.data, info.name.size)) continue;
        matching++;
        status = tp_loader_add(l, reader, i, NULL, error);
        if (status == TP_TRUNCATED) {
            cut++;
            status = TP_OK;
        }
    }
    if (added) *added = matching;
    if (truncated) *truncated = cut;
    return status;
}

tp_status tp_loader_add_rows(tp_loader *l, tp_reader *reader, size_t tensor, uint64_t first, uint64_t last,
                             size_t *item, tp_error *error)
{
    size_t number;
    const tp_status status = not_loading(l, error);
    if (status != TP_OK) return status;
    return tp_choose_rows(&l->choice, reader, tensor, first, last, item ? item : &number, error);
}

/* -------------------------------------------------------------------------------------- where they go */

/* A number for memory; slab NULL: the caller's. */
static tp_status add_memory(tp_loader *l, const tp_memory *memory, tp_slab *slab, uint32_t *number,
                            tp_error *error)
{
    if (l->memory_count == UINT32_MAX ||
        !tp_grow(&l->memories, &l->memory_capacity, l->memory_count, sizeof *l->memories) ||
        !tp_grow(&l->slabs, &l->slab_capacity, l->memory_count, sizeof *l->slabs))
        return tp_error_memory(error);
    *number = (uint32_t)l->memory_count++;
    l->memories[*number] = *memory;
    l->slabs[*number] = slab;
    return TP_OK;
}

static tp_status item_error(const tp_loader *l, const tp_item *t, tp_status status, const char *what,
                            tp_error *error)
{
    char shown[TP_SHOWN_NAME];
    return tp_error_set(error, status, "%s: tensor '%s': %s", tp_item_file(&l->choice, t),
                        tp_item_name(&l->choice, t, shown), what);
}

tp_status tp_loader_place(tp_loader *l, size_t item, const tp_device_range *where, tp_error *error)
{
    tp_status status = not_loading(l, error);
    if (status != TP_OK) return status;
    if (item < l->loaded_end || item >= l->choice.item_count)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: item %zu is not waiting to be loaded",
                            l->device->info.name, item);
    tp_item *t = &l->choice.items[item];
    if (t->nbytes == 0) return TP_OK;
    if (!tp_device_is_range(l->device, where, 1))
        return item_error(l, t, TP_INVALID_ARGUMENT, "its place is no memory of the device", error);
    if (where->size < t->nbytes)
        return item_error(l, t, TP_BUFFER_TOO_SMALL, "larger than its place", error);
    const tp_memory memory = tp_device_wrap(l->device, where, &t->at);
    status = add_memory(l, &memory, NULL, &t->memory, error);
    if (status != TP_OK) return status;
    t->misaligned = where->address % 16;
    t->placed = true;
    return TP_OK;
}

uint64_t tp_loader_arena_size(const tp_loader *l)
{
    uint64_t size = 0;
    for (size_t i = l->loaded_end; i < l->choice.item_count; i++) {
        const tp_item *t = &l->choice.items[i];
        if (t->placed || t->nbytes == 0) continue;
        /* The same rows can be chosen again and again, and files have holes: there may be 2^64 bytes. */
        if (size > UINT64_MAX - TP_ITEM_ALIGN || !tp_add(tp_align(size, TP_ITEM_ALIGN), t->nbytes, &size))
            return UINT64_MAX;
    }
    return size;
}

tp_status tp_loader_use_arena(tp_loader *l, const tp_device_range *arena, tp_error *error)
{
    const tp_status status = not_loading(l, error);
    if (status != TP_OK) return status;
    const uint64_t size = tp_loader_arena_size(l);
    l->arena = (tp_memory){.device = NULL};
    if (arena && size) {
        if (!tp_device_is_range(l->device, arena, TP_ITEM_ALIGN))
            return tp_error_set(error, TP_INVALID_ARGUMENT,
                                "%s: the arena is no memory of the device at a multiple of %u",
                                l->device->info.name, TP_ITEM_ALIGN);
        if (arena->size < size)
            return tp_error_set(error, TP_BUFFER_TOO_SMALL, "%s: the arena has %llu bytes of %llu",
                                l->device->info.name, (unsigned long long)arena->size,
                                (unsigned long long)size);
        l->arena = tp_device_wrap(l->device, arena, &l->arena_at);
    }
    l->use_arena = true;
    return TP_OK;
}

/* Memory of the loader's own. */
static tp_status make_slab(tp_loader *l, uint64_t size, uint32_t *number, tp_error *error)
{
    tp_slab *slab = calloc(1, sizeof *slab);
    if (!slab) return tp_error_memory(error);
    tp_status status = l->device->backend->memory_create(l->device, size, &slab->memory, error);
    if (status != TP_OK) {
        free(slab);
        return status;
    }
    tp_device_retain(l->device);
    slab->references = 1;
    status = add_memory(l, &slab->memory, slab, number, error);
    if (status != TP_OK) tp_slab_release(slab);
    return status;
}

/* Gives memory to the items from *next on, as many as one piece of memory holds. */
static tp_status fill_slab(tp_loader *l, size_t *next, uint64_t limit, tp_error *error)
{
    const size_t first = *next, end = l->choice.item_count;
    uint64_t size = 0;
    uint32_t number = UINT32_MAX;
    for (; *next < end; ++*next) {
        tp_item *t = &l->choice.items[*next];
        if (t->placed || t->nbytes == 0) continue;
        const uint64_t at = tp_align(size, TP_ITEM_ALIGN);
        if (size && (t->nbytes > limit || at > limit - t->nbytes)) break;
        t->at = at;
        size = at + t->nbytes;
    }
    if (size == 0) return TP_OK;
    tp_status status;
    uint64_t arena_at = 0;
    if (l->use_arena && l->arena.device) {
        status = add_memory(l, &l->arena, NULL, &number, error);
        arena_at = l->arena_at;
    } else {
        status = make_slab(l, size, &number, error);
    }
    for (size_t i = first; i < *next && status == TP_OK; i++) {
        tp_item *t = &l->choice.items[i];
        if (t->placed || t->nbytes == 0) continue;
        t->memory = number;
        t->at += arena_at;
    }
    return status;
}

static tp_status give_memory(tp_loader *l, tp_error *error)
{
    const uint64_t most = l->device->max_allocation;
    const uint64_t limit = l->use_arena ? UINT64_MAX / 2 : most < SLAB ? most : SLAB;
    for (size_t i = l->loaded_end; i < l->choice.item_count; i++) {
        const tp_item *t = &l->choice.items[i];
        if (!t->placed && t->nbytes > (most < UINT64_MAX / 2 ? most : UINT64_MAX / 2))
            return item_error(l, t, TP_LIMIT, "larger than the device's largest piece of memory", error);
    }
    if (l->use_arena && !l->arena.device && tp_loader_arena_size(l) > most)
        return tp_error_set(error, TP_LIMIT, "%s: the arena is larger than its largest piece of memory",
                            l->device->info.name);
    if (l->use_arena && l->arena.device && tp_loader_arena_size(l) > l->arena.size - l->arena_at)
        return tp_error_set(error, TP_BUFFER_TOO_SMALL, "%s: more was chosen than the arena has room for",
                            l->device->info.name);
    tp_status status = TP_OK;
    for (size_t next = l->loaded_end; next < l->choice.item_count && status == TP_OK;)
        status = fill_slab(l, &next, limit, error);
    return status;
}

/* ------------------------------------------------------------------------------------------- loading */

static tp_status begin(tp_loader *l, tp_error *error)
{
    l->pass = (tp_pass){.active = true,
                        .first = l->loaded_end,
                        .end = l->choice.item_count,
                        .first_memory = l->memory_count};
    tp_status status = give_memory(l, error);
    if (status == TP_OK) status = tp_pass_start(l, error);
    return status;
}

/* The next one in the order is complete. */
static size_t deliver(tp_loader *l)
{
    const size_t number = l->pass.order[l->pass.delivered++].item;
    tp_item *t = &l->choice.items[number];
    t->loaded = true;
    if (t->nbytes && l->slabs[t->memory]) l->slabs[t->memory]->delivered = true;
    l->stats.tensors++;
    l->stats.raw_bytes += t->nbytes;
    return number;
}

/* Memory of which nothing has been handed out goes, and its items are not chosen any more. */
static void take_back(tp_loader *l)
{
    for (size_t i = l->pass.first; i < l->pass.end; i++)
        if (!l->choice.items[i].loaded) tp_choice_forget(&l->choice, i);
    for (size_t i = l->pass.first_memory; i < l->memory_count; i++) {
        if (!l->slabs[i] || l->slabs[i]->delivered) continue;
        tp_slab_release(l->slabs[i]);
        l->slabs[i] = NULL;
        tp_memory_none(&l->memories[i]);
    }
}

static tp_status finish(tp_loader *l, tp_status status)
{
    tp_pass_end(l); /* before memory goes that it may still write to */
    if (status != TP_OK) take_back(l);
    l->pass.active = false;
    l->use_arena = false;
    l->loaded_end = l->pass.end;
    return status;
}

tp_status tp_loader_run(tp_loader *l, tp_error *error)
{
    const double start = tp_load_seconds();
    tp_pass *const p = &l->pass;
    tp_status status = p->active ? TP_OK : begin(l, error);
    if (status == TP_OK) status = tp_pass_advance(l, p->plan.frame_count, error);
    if (status == TP_OK) {
        l->progress.done = l->done;
        status = tp_progress_tick(&l->progress, true, error);
    }
    while (status == TP_OK && p->delivered < p->end - p->first) deliver(l);
    status = finish(l, status);
    l->stats.total_s += tp_load_seconds() - start;
    return status;
}

tp_status tp_loader_next(tp_loader *l, size_t *item, tp_error *error)
{
    *item = SIZE_MAX;
    tp_pass *const p = &l->pass;
    if (!p->active && l->loaded_end == l->choice.item_count) return TP_OK;
    const double start = tp_load_seconds();
    tp_status status = p->active ? TP_OK : begin(l, error);
    if (status == TP_OK) status = tp_pass_advance(l, p->order[p->delivered].frames, error);
    const bool last = status == TP_OK && p->delivered + 1 == p->end - p->first;
    if (last) {
        l->progress.done = l->done;
        status = tp_progress_tick(&l->progress, true, error);
    }
    if (status == TP_OK) *item = deliver(l);
    if (status != TP_OK || last) status = finish(l, status);
    l->stats.total_s += tp_load_seconds() - start;
    return status;
}

/* ------------------------------------------------------------------------------------- what is there */

size_t tp_loader_items(const tp_loader *l)
{
    return l->choice.item_count;
}

tp_status tp_loader_item(const tp_loader *l, size_t item, tp_load_item *info)
{
    memset(info, 0, sizeof *info);
    if (item >= l->choice.item_count) return TP_INVALID_ARGUMENT;
    const tp_item *t = &l->choice.items[item];
    info->reader = l->choice.sources[t->source].reader;
    info->tensor = t->tensor;
    info->whole = t->whole;
    info->first = t->first;
    info->last = t->last;
    info->nbytes = t->nbytes;
    info->loaded = t->loaded;
    if (!t->loaded || t->nbytes == 0) return TP_OK;
    const tp_memory *memory = &l->memories[t->memory];
    info->where = (tp_device_range){.memory = l->device->one_address_space ? NULL : memory->handle,
                                    .address = memory->address + t->at,
                                    .size = t->nbytes};
    return TP_OK;
}

tp_status tp_load_read_back(tp_loader *l, const tp_item *item, uint64_t at, void *dst, uint64_t size,
                            tp_error *error)
{
    const tp_backend *b = l->device->backend;
    tp_status status = b->download(&l->stream, &l->memories[item->memory], item->at + at, dst, size, error);
    if (status == TP_OK) status = b->wait(&l->stream, error);
    /* The caller may free dst now, so nothing may be on its way there, whatever has failed. */
    if (status != TP_OK) (void)b->wait(&l->stream, NULL);
    return status;
}

tp_status tp_loader_read(tp_loader *l, size_t item, void *dst, size_t capacity, tp_error *error)
{
    if (item >= l->choice.item_count || !l->choice.items[item].loaded)
        return tp_error_set(error, TP_NOT_FOUND, "%s: item %zu is not loaded", l->device->info.name, item);
    const tp_item *t = &l->choice.items[item];
    if (t->nbytes > capacity) return item_error(l, t, TP_BUFFER_TOO_SMALL, "larger than the buffer", error);
    return t->nbytes ? tp_load_read_back(l, t, 0, dst, t->nbytes, error) : TP_OK;
}

void tp_loader_stats(const tp_loader *l, tp_load_stats *stats)
{
    *stats = l->stats;
}
