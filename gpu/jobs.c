#include "gpu/jobs.h"

#include <lz4.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/hash.h"

/* A copy job's units are copied by one work-group; more of them are several jobs. A multiple of 16. */
#define COPY_PIECE ((uint32_t)1 << 18)

static const tp_kernel_shape shapes[TP_KERNEL_COUNT] = {{.name = "tp_copy"},
                                                        {.name = "tp_fill"},
                                                        {.name = "tp_df11"},
                                                        {.name = "tp_hash"},
#define SHAPE(name, ...) {#name, __VA_ARGS__},
                                                        TP_STREAM_KERNELS(SHAPE)
#undef SHAPE
};

const tp_kernel_shape *tp_kernel_shape_of(tp_kernel_id kernel)
{
    return &shapes[kernel];
}

size_t tp_kernel_local_bytes(tp_kernel_id kernel, unsigned tables)
{
    const tp_kernel_shape *s = &shapes[kernel];
    if (kernel == tp_df11_kernel) return 4 * TP_DF11_LOCAL_WORDS;
    const size_t after = 288; /* starts of 256 entries and the end, or votes and 32 u64 to exchange */
    const size_t table = s->K == 12 ? 4096 : s->K ? 1024u * s->c : 0;
    return 4 * (table * tables + after);
}

static tp_kernel_id stream_kernel(const tp_shape *shape, unsigned K, bool strided)
{
    for (unsigned i = tp_hash_kernel + 1; i < TP_KERNEL_COUNT; i++) {
        const tp_kernel_shape *s = &shapes[i];
        if (s->K == K && s->T == shape->T && s->R == shape->R && s->low == (strided ? 0 : shape->low) &&
            s->c == shape->c && s->rotated == shape->rotated && s->strided == strided)
            return (tp_kernel_id)i;
    }
    return TP_KERNEL_COUNT; /* the validator lets no other shape pass */
}

/* ---------------------------------------------------------------------------------- what the host decodes
 */

/* The parts of a frame that are lz4, in order; whole is the frame's own block. */
typedef struct lz4_part {
    const uint8_t *block;
    uint32_t size, decoded;
} lz4_part;

static uint32_t decoded_bytes(const tp_frame_view *view, uint32_t index, const tp_descriptor *d)
{
    const bool whole = view->info.codec == TP_FRAME_SPLIT && index % view->parts == 0;
    return whole ? d->n * (view->info.low_coded ? view->shape.T / 8u : view->group) : d->n;
}

/* Calls `each` for every lz4 part until it says false. */
static bool each_lz4(const tp_frame_view *view, bool (*each)(void *context, const lz4_part *part),
                     void *context)
{
    if (view->info.codec == TP_FRAME_LZ4)
        return each(context, &(lz4_part){view->payload, view->payload_size, view->info.raw_size});
    if (view->info.codec == TP_FRAME_DF11) return true;
    for (uint32_t i = 0; i < view->chunks * view->parts; i++) {
        tp_descriptor d;
        tp_descriptor_load(view, i, &d);
        if (d.mode != TP_MODE_LZ4) continue;
        if (!each(context, &(lz4_part){view->payload + d.offset, d.nw, decoded_bytes(view, i, &d)}))
            return false;
    }
    return true;
}

static bool add_size(void *context, const lz4_part *part)
{
    *(size_t *)context += tp_align(part->decoded, 128);
    return true;
}

size_t tp_frame_expanded_size(const tp_frame_view *view)
{
    size_t size = view->info.codec == TP_FRAME_DF11 ? tp_align(sizeof(tp_df11_table), 128) : 0;
    each_lz4(view, add_size, &size);
    return size;
}

static bool expand(void *context, const lz4_part *part)
{
    uint8_t **dst = context;
    if (LZ4_decompress_safe((const char *)part->block, (char *)*dst, (int)part->size, (int)part->decoded) !=
        (int)part->decoded)
        return false;
    *dst += tp_align(part->decoded, 128);
    return true;
}

/* The kernel finds the tables by these places. */
_Static_assert(sizeof(((tp_df11_table *)0)->several) == 16384 && offsetof(tp_df11_table, entry) == 16384,
               "the look-ups first, then the rows");

tp_status tp_frame_expand(const tp_frame_view *view, uint8_t *dst, tp_error *error)
{
    if (view->info.codec == TP_FRAME_DF11) {
        tp_df11_table table;
        tp_error inner;
        const tp_status status = tp_df11_table_make(view->df11.luts, view->df11.luts_size, &table, &inner);
        memcpy(dst, &table, sizeof table);
        return status == TP_OK ? TP_OK : tp_error_set(error, status, "frame: %s", inner.message);
    }
    if (each_lz4(view, expand, &dst)) return TP_OK;
    return tp_error_set(error, TP_CORRUPT, "frame: an lz4 block does not decode to its size");
}

/* How many of start, start + stride, ... (`count` of them) lie in from .. to - 1. */
static uint64_t count_within(uint64_t start, uint64_t stride, uint64_t count, uint64_t from, uint64_t to)
{
    const uint64_t before_from = from <= start ? 0 : (from - start + stride - 1) / stride;
    const uint64_t before_to = to <= start ? 0 : (to - start + stride - 1) / stride;
    return (before_to < count ? before_to : count) - (before_from < count ? before_from : count);
}

uint64_t tp_frame_host_bytes(const tp_frame_view *view, uint32_t from, uint32_t size)
{
    const uint64_t to = (uint64_t)from + size;
    if (view->info.codec == TP_FRAME_LZ4) return size;
    if (view->info.codec == TP_FRAME_DF11) return 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < view->chunks * view->parts; i++) {
        tp_descriptor d;
        size_t start;
        tp_descriptor_load(view, i, &d);
        if (d.mode != TP_MODE_LZ4) continue;
        const size_t chunk_bytes = tp_frame_chunk(view, i / view->parts, &start);
        const uint32_t part = i % view->parts;
        if (view->info.codec == TP_FRAME_PLANES && !view->info.joined)
            bytes += count_within(start + part, view->group, d.n, from, to);
        else if (view->info.codec == TP_FRAME_SPLIT && part > 0)
            bytes += count_within(start + part - 1, view->group, d.n, from, to);
        else /* the chunk as a whole (low_coded tops are never lz4) */
            bytes += count_within(start, 1, chunk_bytes, from, to);
    }
    return bytes;
}

/* -------------------------------------------------------------------------------------------- jobs */

static tp_planned_job *add(tp_jobs *jobs, tp_kernel_id kernel, uint32_t output)
{
    if (jobs->count == jobs->capacity && !jobs->fixed) {
        const size_t capacity = jobs->capacity ? 2 * jobs->capacity : 256;
        tp_planned_job *list = realloc(jobs->list, capacity * sizeof *list);
        if (!list) return NULL;
        jobs->list = list;
        jobs->capacity = capacity;
    }
    tp_planned_job *job = jobs->count < jobs->capacity ? &jobs->list[jobs->count] : &jobs->spare;
    jobs->count++;
    *job = (tp_planned_job){.kernel = (uint16_t)kernel, .output = output};
    job->job.result = jobs->results++;
    return job;
}

/* What the parts of a frame have in common. */
typedef struct builder {
    tp_jobs *jobs;
    const tp_frame_view *view;
    const tp_frame_place *place;
    u64 payload_at, expanded_at;
    bool full; /* out of memory */
} builder;

static void add_copy(builder *b, u64 in, u64 out, uint32_t units, uint32_t unit, uint32_t stride)
{
    const uint32_t piece = COPY_PIECE / unit;
    for (uint32_t done = 0; done < units; done += piece) {
        tp_planned_job *job = add(b->jobs, tp_copy_kernel, b->place->output);
        if (!job) {
            b->full = true;
            return;
        }
        job->job.in = in + (u64)done * unit;
        job->job.out = out + (u64)done * stride;
        job->job.n = units - done < piece ? units - done : piece;
        job->job.unit = unit;
        job->job.stride = stride;
    }
}

static void add_fill(builder *b, u64 out, u64 value, uint32_t units, uint32_t unit, uint32_t stride)
{
    tp_planned_job *job = add(b->jobs, tp_fill_kernel, b->place->output);
    if (!job) {
        b->full = true;
        return;
    }
    job->job.out = out;
    job->job.table = value;
    job->job.n = units;
    job->job.unit = unit;
    job->job.stride = stride;
}

static void add_stream(builder *b, const tp_descriptor *d, u64 out, tp_kernel_id kernel, uint32_t stride)
{
    const tp_frame_view *view = b->view;
    tp_planned_job *job = add(b->jobs, kernel, b->place->output);
    if (!job) {
        b->full = true;
        return;
    }
    const bool wide = d->mode == TP_MODE_WIDE;
    const uint8_t *table =
        wide ? view->wide_table + 512u * d->table : view->symbol_table + 256u * view->shape.c * d->table;
    job->job.in = b->payload_at + d->offset;
    job->job.out = out;
    job->job.table = b->place->frame_at + (u64)(table - view->frame);
    job->job.n = d->n;
    job->job.nw = d->nw;
    job->job.nx = d->nx;
    job->job.stride = stride;
    job->job.tables = wide ? 0 : view->selector_bits;
}

/* The blocks of a unit in which codes start. */
static void add_df11(builder *b)
{
    const tp_df11_unit *unit = &b->view->df11;
    for (uint32_t block = 0, first = 0; first < unit->elements; block++) {
        const uint32_t end = tp_load32(unit->output_positions + 4 * ((size_t)block + 1));
        tp_planned_job *job = add(b->jobs, tp_df11_kernel, b->place->output);
        if (!job) {
            b->full = true;
            return;
        }
        job->job.in = b->payload_at;
        job->job.out = b->place->output_at;
        job->job.table = b->expanded_at;
        job->job.n = (uint32_t)unit->elements;
        job->job.nw = (uint32_t)unit->encoded_size;
        job->job.nx = block;
        job->job.unit = first;
        job->job.stride = end - first;
        first = end;
    }
}

/* One part: `units` units of `unit` bytes, `stride` apart. */
static void add_part(builder *b, const tp_descriptor *d, u64 out, uint32_t units, uint32_t unit,
                     uint32_t stride)
{
    const tp_shape *shape = &b->view->shape;
    if (units == 0) return;
    switch (d->mode) {
    case TP_MODE_RAW:
        add_copy(b, b->payload_at + d->offset, out, units, unit, stride);
        break;
    case TP_MODE_CONSTANT:
        add_fill(b, out, d->offset, units, unit, stride);
        break;
    case TP_MODE_LZ4:
        add_copy(b, b->expanded_at, out, units, unit, stride);
        b->expanded_at += tp_align((u64)units * unit, 128);
        break;
    case TP_MODE_WIDE:
        add_stream(b, d, out, stride == 1 ? tp_wide_kernel : tp_wide_strided_kernel, stride);
        break;
    default:
        add_stream(b, d, out, stream_kernel(shape, TP_W32_K, b->view->info.low_coded), stride);
    }
}

static void add_split_chunk(builder *b, uint32_t chunk, u64 out)
{
    const tp_frame_view *view = b->view;
    const uint32_t element = view->group;
    tp_descriptor d;
    tp_descriptor_load(view, chunk * view->parts, &d);
    if (!view->info.low_coded) {
        add_part(b, &d, out, d.n, element, element);
        return;
    }
    /* Tops above the low bytes. The stream's payload has no low planes then. */
    add_part(b, &d, out + view->shape.low, d.n, view->shape.T / 8u, element);
    for (uint32_t y = 0; y < view->shape.low; y++) {
        tp_descriptor_load(view, chunk * view->parts + 1 + y, &d);
        add_part(b, &d, out + y, d.n, 1, element);
    }
}

static void add_planes_chunk(builder *b, uint32_t chunk, u64 out, uint32_t bytes)
{
    const tp_frame_view *view = b->view;
    tp_descriptor d;
    if (!view->info.joined) {
        for (uint32_t k = 0; k < view->group; k++) {
            tp_descriptor_load(view, chunk * view->parts + k, &d);
            add_part(b, &d, out + k, d.n, 1, view->group);
        }
        return;
    }
    tp_descriptor_load(view, chunk * view->parts, &d);
    u64 in = d.mode == TP_MODE_LZ4 ? b->expanded_at : b->payload_at + d.offset;
    if (d.mode == TP_MODE_LZ4) b->expanded_at += tp_align(bytes, 128);
    for (uint32_t k = 0; k < view->group; k++) {
        const uint32_t n = (bytes + view->group - 1 - k) / view->group;
        add_copy(b, in, out + k, n, 1, view->group);
        in += n;
    }
}

uint32_t tp_frame_hash_count(const tp_frame_view *view)
{
    return view->chunks ? view->chunks
                        : (uint32_t)((view->info.raw_size + TP_RAW_CHUNK - 1) / TP_RAW_CHUNK);
}

tp_status tp_jobs_add_frame(tp_jobs *jobs, const tp_frame_view *view, const tp_frame_place *place,
                            uint32_t *first_result, uint32_t *job_results)
{
    builder b = {.jobs = jobs,
                 .view = view,
                 .place = place,
                 .payload_at = place->frame_at + (u64)(view->payload - view->frame),
                 .expanded_at = place->expanded_at};
    *first_result = jobs->results;
    if (view->info.codec == TP_FRAME_RAW)
        add_copy(&b, b.payload_at, place->output_at, view->info.raw_size, 1, 1);
    if (view->info.codec == TP_FRAME_LZ4)
        add_copy(&b, b.expanded_at, place->output_at, view->info.raw_size, 1, 1);
    if (view->info.codec == TP_FRAME_DF11) add_df11(&b);
    const bool chunked = view->info.codec == TP_FRAME_SPLIT || view->info.codec == TP_FRAME_PLANES;
    for (uint32_t i = 0; chunked && i < view->chunks && !b.full; i++) {
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        if (view->info.codec == TP_FRAME_SPLIT)
            add_split_chunk(&b, i, place->output_at + start);
        else
            add_planes_chunk(&b, i, place->output_at + start, (uint32_t)bytes);
    }
    *job_results = jobs->results - *first_result;
    for (uint32_t i = 0; i < tp_frame_hash_count(view) && !b.full; i++) {
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        tp_planned_job *job = add(jobs, tp_hash_kernel, place->output);
        b.full = !job;
        if (!job) break;
        job->job.out = place->output_at + start;
        job->job.n = (uint32_t)bytes;
    }
    return b.full ? TP_NO_MEMORY : TP_OK;
}

/* ------------------------------------------------------------------------------------------- results */

static tp_status check_raw_hash(const tp_frame_view *view, tp_error *error, const u64 *hashes,
                                uint32_t count)
{
    uint64_t raw[2];
    tp_hasher hasher;
    const uint64_t size = view->info.raw_size;
    tp_hasher_init(&hasher);
    tp_hasher_add(&hasher, &size, sizeof size);
    tp_hasher_add(&hasher, hashes, (size_t)count * sizeof *hashes);
    tp_hasher_end(&hasher, raw);
    (void)error; /* unused where hashes are not compared */
#ifndef TP_IGNORE_HASHES
    if (raw[0] != view->info.raw_hash[0] || raw[1] != view->info.raw_hash[1])
        return tp_error_set(error, TP_CORRUPT, "frame: hash of the decoded bytes does not match");
#endif
    return TP_OK;
}

tp_status tp_frame_check_stated_hashes(const tp_frame_view *view, tp_error *error)
{
    u64 hashes[TP_FRAME_MAX_RAW >> 10];
    if (!view->chunks) return TP_OK;
    for (uint32_t i = 0; i < view->chunks; i++) {
        tp_descriptor d;
        tp_descriptor_load(view, i * view->parts, &d);
        hashes[i] = d.hash;
    }
    return check_raw_hash(view, error, hashes, view->chunks);
}

tp_status tp_frame_check_results(const tp_frame_view *view, const u64 *results, uint32_t job_results,
                                 tp_error *error)
{
    for (uint32_t i = 0; i < job_results; i++) {
        if (results[i] == TP_JOB_NOT_RUN)
            return tp_error_set(error, TP_IO, "frame: the device did not run a kernel");
        if (results[i] != TP_JOB_GOOD)
            return tp_error_set(error, TP_CORRUPT, "frame: a stream does not end as it must");
    }
    results += job_results;
    if (!view->chunks) return check_raw_hash(view, error, results, tp_frame_hash_count(view));
#ifndef TP_IGNORE_HASHES
    for (uint32_t i = 0; i < view->chunks; i++) {
        tp_descriptor d;
        tp_descriptor_load(view, i * view->parts, &d);
        if (results[i] != d.hash)
            return tp_error_set(error, TP_CORRUPT,
                                "frame: chunk %u: hash of the decoded bytes does not match", i);
    }
#endif
    return TP_OK;
}

void tp_jobs_clear(tp_jobs *jobs)
{
    jobs->count = 0;
    jobs->results = 0;
}

void tp_jobs_free(tp_jobs *jobs)
{
    free(jobs->list);
    memset(jobs, 0, sizeof *jobs);
}

/* ------------------------------------------------------------------------------------------ launches */

/* By kernel, hashes last; then output; then table, so that work-groups share it. */
static int compare_jobs(const void *a, const void *b)
{
    const tp_planned_job *x = a, *y = b;
    const bool hash_x = x->kernel == tp_hash_kernel, hash_y = y->kernel == tp_hash_kernel;
    if (hash_x != hash_y) return hash_x ? 1 : -1;
    if (x->kernel != y->kernel) return x->kernel < y->kernel ? -1 : 1;
    if (x->output != y->output) return x->output < y->output ? -1 : 1;
    const bool stream = x->kernel > tp_hash_kernel;
    if (stream && x->job.tables != y->job.tables) return x->job.tables < y->job.tables ? -1 : 1;
    if (stream && x->job.table != y->job.table) return x->job.table < y->job.table ? -1 : 1;
    return x->job.result < y->job.result ? -1 : x->job.result > y->job.result;
}

static bool same_range(const tp_planned_job *a, const tp_planned_job *b)
{
    return a->kernel == b->kernel && a->output == b->output &&
           (a->kernel <= tp_hash_kernel || a->job.tables == b->job.tables);
}

static bool same_table(const tp_planned_job *a, const tp_planned_job *b)
{
    return a->kernel <= tp_hash_kernel || a->job.table == b->job.table;
}

/* Jobs of a work-group: as many as share their table on average, so that few are idle. */
static unsigned choose_warps(const tp_planned_job *list, size_t count, unsigned max_warps)
{
    if (list->kernel < tp_hash_kernel) return 1; /* one job a work-group, by all its threads */
    size_t runs = 1;
    for (size_t i = 1; i < count; i++) runs += !same_table(&list[i - 1], &list[i]);
    unsigned warps = max_warps;
    while (warps > 1 && warps > count / runs) warps /= 2;
    return warps;
}

static bool grow(void *array, size_t *capacity, size_t wanted, size_t size, bool fixed)
{
    void **at = array;
    if (wanted <= *capacity) return true;
    if (fixed) return false;
    const size_t more = wanted > 2 * *capacity ? wanted : 2 * *capacity;
    void *p = realloc(*at, more * size);
    if (!p) return false;
    *at = p;
    *capacity = more;
    return true;
}

tp_status tp_jobs_arrange(tp_jobs *jobs, unsigned max_warps, tp_arranged *arranged)
{
    arranged->job_count = arranged->range_count = 0;
    if (jobs->count == 0) return TP_OK;
    qsort(jobs->list, jobs->count, sizeof *jobs->list, compare_jobs);
    for (size_t first = 0, end; first < jobs->count; first = end) {
        const tp_planned_job *const list = jobs->list + first;
        end = first + 1;
        while (end < jobs->count && same_range(list, &jobs->list[end])) end++;
        const size_t count = end - first;
        const unsigned warps = choose_warps(list, count, max_warps);
        if (!grow(&arranged->ranges, &arranged->range_capacity, arranged->range_count + 1,
                  sizeof *arranged->ranges, arranged->fixed) ||
            /* Of at most count / warps tables each fills up its last work-group: fewer idle jobs than
               others. */
            !grow(&arranged->jobs, &arranged->job_capacity, arranged->job_count + 2 * count,
                  sizeof *arranged->jobs, arranged->fixed))
            return TP_NO_MEMORY;
        tp_job_range *range = &arranged->ranges[arranged->range_count++];
        *range = (tp_job_range){
            .kernel = (tp_kernel_id)list->kernel,
            .output = list->output,
            .first = arranged->job_count,
            .warps = warps,
            .local_bytes = tp_kernel_local_bytes((tp_kernel_id)list->kernel, 1u << list->job.tables)};
        for (size_t i = 0; i < count; i++) {
            if (i > 0 && !same_table(&list[i - 1], &list[i]))
                while ((arranged->job_count - range->first) % warps)
                    arranged->jobs[arranged->job_count++] = (tp_gpu_job){.n = 0};
            arranged->jobs[arranged->job_count++] = list[i].job;
        }
        while ((arranged->job_count - range->first) % warps)
            arranged->jobs[arranged->job_count++] = (tp_gpu_job){.n = 0};
        range->groups = (uint32_t)((arranged->job_count - range->first) / warps);
    }
    return TP_OK;
}

void tp_arranged_free(tp_arranged *arranged)
{
    free(arranged->jobs);
    free(arranged->ranges);
    memset(arranged, 0, sizeof *arranged);
}
