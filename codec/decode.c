/* Decoding of validated frames. */
#include <lz4.h>
#include <stdlib.h>

#include "codec/bytes.h"
#include "codec/df11.h"
#include "codec/frame.h"
#include "codec/hash.h"
#include "codec/table.h"

/* Streams handed to a kernel at once, for it to interleave: with four the chunks are still in the
 * second-level cache when they are hashed (6 to 9 % faster than eight). */
#define BATCH 4

/* Low planes of the largest batch: 6 of 8 bytes of a frame's elements, each chunk padded to whole groups (a
 * frame of 2^10-element chunks has no padding but in its last chunk). */
#define LOW_SCRATCH (TP_FRAME_MAX_RAW / 8 * 6 + TP_GROUP * 6 + TP_SLACK)
#define MAX_PLANES 8
#define PLANE_BYTES ((size_t)1 << TP_CHUNK_LOG2)
#define PLANE_SCRATCH (PLANE_BYTES * MAX_PLANES) /* a chunk in byte planes */

struct tp_decoder {
    const tp_kernels *kernels;
    tp_w32_table w32[TP_MAX_TABLES];
    tp_wide_table wide[TP_MAX_TABLES];
    uint8_t *low;   /* LOW_SCRATCH */
    uint8_t *plane; /* PLANE_SCRATCH */
    uint8_t *tail;  /* the end of a frame that lacks TP_SLACK readable bytes after it */
    tp_df11_decoder df11;
    tp_df11_workspace df11_workspace;
};

tp_status tp_decoder_create(tp_decoder **decoder)
{
    tp_decoder *d = aligned_alloc(64, (sizeof *d + 63) / 64 * 64);
    if (!d) return TP_NO_MEMORY;
    memset(d, 0, sizeof *d);
    d->kernels = tp_kernels_get();
    d->low = calloc(1, LOW_SCRATCH);
    d->plane = malloc(PLANE_SCRATCH);
    d->tail = malloc(TP_FRAME_MAX_STORED + TP_SLACK);
    if (!d->low || !d->plane || !d->tail) {
        tp_decoder_destroy(d);
        return TP_NO_MEMORY;
    }
    *decoder = d;
    return TP_OK;
}

void tp_decoder_destroy(tp_decoder *decoder)
{
    if (!decoder) return;
    free(decoder->low);
    free(decoder->plane);
    free(decoder->tail);
    free(decoder);
}

void tp_decoder_use(tp_decoder *decoder, const tp_kernels *kernels)
{
    decoder->kernels = kernels;
}

typedef struct decode_state {
    tp_decoder *decoder;
    const tp_kernels *kernels;
    const tp_frame_view *view;
    const uint8_t
        *payload;        /* where offsets count from: the frame's own, or so that the tail's copy is hit */
    size_t slack_from;   /* parts that start here or later are read from the tail's copy */
    const uint8_t *tail; /* the byte at payload offset slack_from */
    uint8_t *dst;
    tp_error *error;
} decode_state;

static tp_status damaged(const decode_state *s, uint32_t descriptor, const char *what)
{
    return tp_error_set(s->error, TP_CORRUPT, "frame: descriptor %u: %s", descriptor, what);
}

static const uint8_t *part(const decode_state *s, uint64_t offset)
{
    return offset < s->slack_from ? s->payload + offset : s->tail + (offset - s->slack_from);
}

/* The parts whose ends lack slack are moved to a buffer that has it: those near the frame's end. */
static void provide_slack(decode_state *s, size_t readable)
{
    const tp_frame_view *view = s->view;
    const size_t payload_at = (size_t)(view->payload - view->frame);
    s->payload = view->payload;
    s->slack_from = SIZE_MAX;
    if (readable >= (size_t)view->info.stored_size + TP_SLACK) return;
    /* Everything from the first part that is nearer to the end than TP_SLACK. A part's end is the start of
     * the next one with data. */
    uint64_t end = view->payload_size;
    for (uint32_t i = view->chunks * view->parts; i-- > 0;) {
        tp_descriptor d;
        tp_descriptor_load(view, i, &d);
        if (d.mode == TP_MODE_CONSTANT) continue;
        if (payload_at + end + TP_SLACK <= readable) break;
        s->slack_from = end = d.offset;
    }
    if (s->slack_from == SIZE_MAX) return;
    const size_t size = view->info.stored_size - payload_at - s->slack_from;
    memcpy(s->decoder->tail, view->payload + s->slack_from, size);
    memset(s->decoder->tail + size, 0, TP_SLACK);
    s->tail = s->decoder->tail;
}

static tp_wide_job wide_job(const decode_state *s, const tp_descriptor *d, uint8_t *out)
{
    return (tp_wide_job){.payload = part(s, d->offset),
                         .table = &s->decoder->wide[d->table],
                         .dst = out,
                         .n = d->n,
                         .nw = d->nw};
}

/* A byte plane of n bytes, by any mode but W32 and pairs, into out. */
static tp_status decode_plane(const decode_state *s, uint32_t index, const tp_descriptor *d, uint8_t *out)
{
    switch (d->mode) {
    case TP_MODE_RAW:
        if (d->n) memcpy(out, part(s, d->offset), d->n);
        return TP_OK;
    case TP_MODE_CONSTANT:
        memset(out, (int)d->offset, d->n);
        return TP_OK;
    case TP_MODE_WIDE: {
        tp_wide_job job = wide_job(s, d, out);
        s->kernels->wide_decode(&job, 1);
        return job.good ? TP_OK : damaged(s, index, "the stream does not end as it must");
    }
    default: /* TP_MODE_LZ4 */
        if (LZ4_decompress_safe((const char *)part(s, d->offset), (char *)out, (int)d->nw, (int)d->n) !=
            (int)d->n)
            return damaged(s, index, "the lz4 block does not decode to its size");
        return TP_OK;
    }
}

static void fill_constant(uint8_t *dst, size_t bytes, uint64_t value, size_t width)
{
    if (width == 1) {
        memset(dst, (int)value, bytes);
        return;
    }
    memcpy(dst, &value, width);
    for (size_t done = width; done < bytes;) { /* doubling what is there */
        const size_t more = done < bytes - done ? done : bytes - done;
        memcpy(dst + done, dst, more);
        done += more;
    }
}

/* Top parts and low planes (both n elements) into elements, for tops that come from no stream. */
static void merge_tops(const tp_frame_view *view, const uint8_t *tops, const uint8_t *low, uint32_t n,
                       uint8_t *dst)
{
    const size_t element = view->group, top = view->shape.T / 8;
    const size_t stride = ((size_t)n + TP_GROUP - 1) / TP_GROUP * TP_GROUP * 2;
    for (size_t i = 0; i < n; i++) {
        uint8_t *e = dst + i * element;
        if (view->shape.low == 1) e[0] = low[i];
        for (size_t y = 0; y < view->shape.low / 2u; y++) memcpy(e + 2 * y, low + y * stride + 2 * i, 2);
        memcpy(e + view->shape.low, tops + i * top, top);
    }
}

/* The byte planes of descriptors first .. first + count - 1 into out[]; the wide streams among them
 * together, for the kernel to interleave. */
static tp_status decode_byte_planes(const decode_state *s, uint32_t first, uint32_t count,
                                    uint8_t *const out[])
{
    tp_wide_job jobs[MAX_PLANES];
    uint32_t index[MAX_PLANES];
    size_t wide = 0;
    for (uint32_t k = 0; k < count; k++) {
        tp_descriptor d;
        tp_descriptor_load(s->view, first + k, &d);
        if (d.mode == TP_MODE_WIDE) {
            jobs[wide] = wide_job(s, &d, out[k]);
            index[wide++] = first + k;
            continue;
        }
        const tp_status status = decode_plane(s, first + k, &d, out[k]);
        if (status) return status;
    }
    if (wide) s->kernels->wide_decode(jobs, wide);
    for (size_t i = 0; i < wide; i++)
        if (!jobs[i].good) return damaged(s, index[i], "the stream does not end as it must");
    return TP_OK;
}

/* The low planes of chunk `chunk` from their descriptors into `low`, in the order of docs/format.md 7.3. */
static tp_status decode_low(const decode_state *s, uint32_t chunk, uint32_t n, uint8_t *low)
{
    const tp_frame_view *view = s->view;
    const size_t stride = ((size_t)n + TP_GROUP - 1) / TP_GROUP * TP_GROUP * 2;
    uint8_t *planes[MAX_PLANES];
    for (uint32_t y = 0; y < view->shape.low; y++) planes[y] = s->decoder->plane + y * PLANE_BYTES;
    if (view->shape.low == 1) planes[0] = low;
    const tp_status status = decode_byte_planes(s, chunk * view->parts + 1, view->shape.low, planes);
    if (status) return status;
    for (uint32_t y = 0; view->shape.low > 1 && y < view->shape.low; y++)
        s->kernels->plane_put(planes[y], 2 * (size_t)n, 2, y & 1, low + (y >> 1) * stride);
    return TP_OK;
}

static tp_status check_chunk(const decode_state *s, uint32_t chunk, uint64_t *hash)
{
    size_t start;
    const size_t bytes = tp_frame_chunk(s->view, chunk, &start);
    tp_descriptor d;
    tp_descriptor_load(s->view, chunk * s->view->parts, &d);
    *hash = s->kernels->hash64(s->dst + start, bytes);
#ifndef TP_IGNORE_HASHES
    if (*hash != d.hash)
        return tp_error_set(s->error, TP_CORRUPT,
                            "frame: chunk %u: hash of the decoded bytes does not match", chunk);
#endif
    return TP_OK;
}

/* Runs the streams gathered so far and checks their chunks. */
static tp_status run_batch(const decode_state *s, tp_w32_job *jobs, const uint32_t *chunks, size_t count,
                           uint64_t *hashes)
{
    if (count == 0) return TP_OK;
    s->kernels->w32_decode(&s->view->shape, jobs, count);
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].good)
            return damaged(s, chunks[i] * s->view->parts, "the stream does not end as it must");
        const tp_status status = check_chunk(s, chunks[i], &hashes[chunks[i]]);
        if (status) return status;
    }
    return TP_OK;
}

static tp_status decode_split(const decode_state *s, uint64_t *hashes)
{
    const tp_frame_view *view = s->view;
    const tp_shape *shape = &view->shape;
    tp_w32_job jobs[BATCH];
    uint32_t chunks[BATCH];
    size_t count = 0;
    uint8_t *low_free = s->decoder->low;
    tp_status status;

    for (uint32_t i = 0; i < view->chunks; i++) {
        const uint32_t index = i * view->parts;
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        uint8_t *const dst = s->dst + start;
        tp_descriptor d;
        tp_descriptor_load(view, index, &d);
        uint8_t *low = NULL;
        if (view->info.low_coded) {
            low = low_free;
            status = decode_low(s, i, d.n, low);
            if (status) return status;
        }
        if (d.mode == TP_MODE_W32 || d.mode == TP_MODE_PAIRS) {
            const uint8_t *payload = part(s, d.offset);
            jobs[count] = (tp_w32_job){
                .payload = payload,
                .low = low          ? low
                       : shape->low ? payload + tp_stream_words_at(shape, d.n, false)
                                    : NULL,
                .words = payload + tp_stream_words_at(shape, d.n, low == NULL),
                .table = &s->decoder->w32[d.table],
                .dst = dst,
                .n = d.n,
                .nw = d.nw,
                .nx = d.nx,
                .selector_bits = (uint8_t)view->selector_bits,
            };
            if (view->selector_bits)
                jobs[count].selectors = jobs[count].words + tp_align(2 * (uint64_t)d.nw, 4);
            chunks[count++] = i;
            if (low) low_free += ((size_t)d.n + TP_GROUP - 1) / TP_GROUP * TP_GROUP * shape->low;
            if (count == BATCH) {
                status = run_batch(s, jobs, chunks, count, hashes);
                if (status) return status;
                count = 0;
                low_free = s->decoder->low;
            }
            continue;
        }
        if (low) { /* raw or constant tops */
            uint8_t *tops = s->decoder->plane;
            if (d.mode == TP_MODE_CONSTANT)
                fill_constant(tops, (size_t)d.n * shape->T / 8, d.offset, shape->T / 8);
            merge_tops(view, d.mode == TP_MODE_CONSTANT ? tops : part(s, d.offset), low, d.n, dst);
        } else if (d.mode == TP_MODE_CONSTANT) {
            fill_constant(dst, bytes, d.offset, view->group);
        } else if (d.mode == TP_MODE_RAW) {
            memcpy(dst, part(s, d.offset), bytes);
        } else { /* wide: one byte an element; lz4: whole elements */
            d.n = (uint32_t)bytes;
            status = decode_plane(s, index, &d, dst);
            if (status) return status;
        }
        status = check_chunk(s, i, &hashes[i]);
        if (status) return status;
    }
    return run_batch(s, jobs, chunks, count, hashes);
}

static tp_status decode_planes(const decode_state *s, uint64_t *hashes)
{
    const tp_frame_view *view = s->view;
    for (uint32_t i = 0; i < view->chunks; i++) {
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        uint8_t *planes[MAX_PLANES], *next = s->decoder->plane;
        for (uint32_t k = 0; k < view->group; k++) { /* joined: without room between them */
            planes[k] = next;
            next += view->info.joined ? (bytes + view->group - 1 - k) / view->group : PLANE_BYTES;
        }
        tp_status status = decode_byte_planes(s, i * view->parts, view->parts, planes);
        if (status) return status;
        for (uint32_t k = 0; k < view->group; k++)
            s->kernels->plane_put(planes[k], bytes, view->group, k, s->dst + start);
        status = check_chunk(s, i, &hashes[i]);
        if (status) return status;
    }
    return TP_OK;
}

/* Block by block, which reads nothing beyond the arrays; a chunk is checked once its last block is there.
 */
static tp_status decode_df11(const decode_state *s, uint64_t *hashes)
{
    tp_df11_decoder *const d = &s->decoder->df11;
    tp_error inner;
    tp_status status = tp_df11_open(&s->view->df11, d, &inner);
    uint32_t block = 0;
    for (uint32_t i = 0; i < s->view->chunks && !status; i++) {
        size_t start;
        const size_t end = tp_frame_chunk(s->view, i, &start) + start;
        while (!status && block < d->blocks && 2 * tp_df11_position(d, block) < end) {
            status = tp_df11_decode(d, block, 1, s->dst + 2 * tp_df11_position(d, block),
                                    &s->decoder->df11_workspace, &inner);
            block++;
        }
        if (status) break;
        const tp_status checked = check_chunk(s, i, &hashes[i]);
        if (checked) return checked;
    }
    return status ? tp_error_set(s->error, status, "frame: %s", inner.message) : TP_OK;
}

tp_status tp_frame_decode(tp_decoder *decoder, const tp_frame_view *view, size_t readable, void *dst,
                          size_t capacity, tp_error *error)
{
    const tp_frame_info *info = &view->info;
    if (capacity < info->raw_size)
        return tp_error_set(error, TP_BUFFER_TOO_SMALL, "frame: %zu bytes of room for %u", capacity,
                            info->raw_size);
    decode_state s = {
        .decoder = decoder, .kernels = decoder->kernels, .view = view, .dst = dst, .error = error};
    uint64_t hashes[1 + (TP_FRAME_MAX_RAW >>
                         10)]; /* the raw size, then the chunks: of at least 2^10 bytes each */
    uint64_t raw[2];
    uint32_t chunks = view->chunks;
    tp_status status = TP_OK;

    const bool streams = info->codec == TP_FRAME_SPLIT || info->codec == TP_FRAME_PLANES;
    if (streams) provide_slack(&s, readable);
    for (uint32_t i = 0; streams && i < view->symbol_tables; i++)
        tp_w32_table_init(view->symbol_table + 256u * info->elements_per_symbol * i,
                          info->elements_per_symbol == 2, &decoder->w32[i]);
    for (uint32_t i = 0; i < view->wide_tables; i++)
        tp_wide_table_init(view->wide_table + 512u * i, &decoder->wide[i]);

    switch ((int)info->codec) {
    case TP_FRAME_SPLIT:
        status = decode_split(&s, hashes + 1);
        break;
    case TP_FRAME_PLANES:
        status = decode_planes(&s, hashes + 1);
        break;
    case TP_FRAME_DF11:
        status = decode_df11(&s, hashes + 1);
        break;
    case TP_FRAME_RAW:
        memcpy(dst, view->payload, info->raw_size);
        break;
    default: /* TP_FRAME_LZ4 */
        if (LZ4_decompress_safe((const char *)view->payload, dst, (int)view->payload_size,
                                (int)info->raw_size) != (int)info->raw_size)
            status = tp_error_set(error, TP_CORRUPT, "frame: the lz4 block does not decode to its size");
    }
    if (status) return status;
    if (!chunks) {
        chunks = (uint32_t)((info->raw_size + TP_RAW_CHUNK - 1) / TP_RAW_CHUNK);
        for (uint32_t i = 0; i < chunks; i++) {
            size_t start;
            const size_t bytes = tp_frame_chunk(view, i, &start);
            hashes[1 + i] = s.kernels->hash64((const uint8_t *)dst + start, bytes);
        }
    }
    hashes[0] = info->raw_size;
    s.kernels->hash128(hashes, (1 + (size_t)chunks) * sizeof *hashes, raw);
#ifndef TP_IGNORE_HASHES
    if (raw[0] != info->raw_hash[0] || raw[1] != info->raw_hash[1])
        return tp_error_set(error, TP_CORRUPT, "frame: hash of the decoded bytes does not match");
#endif
    return TP_OK;
}

tp_status tp_decode(tp_decoder *decoder, const void *frame, size_t size, void *dst, size_t capacity,
                    size_t *raw_size, tp_error *error)
{
    tp_frame_view view;
    tp_status status = tp_frame_validate(frame, size, true, &view, error);
    if (status) return status;
    status = tp_frame_decode(decoder, &view, size, dst, capacity, error);
    if (status == TP_OK && raw_size) *raw_size = view.info.raw_size;
    return status;
}
