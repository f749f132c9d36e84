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
#define MAX_LOW 6 /* byte planes of low bytes */
#define PLANE_BYTES ((size_t)1 << TP_CHUNK_LOG2)
/* The low planes of a batch, or a chunk in byte planes. */
#define PLANE_SCRATCH (PLANE_BYTES * BATCH * MAX_LOW)
_Static_assert(MAX_PLANES <= BATCH * MAX_LOW, "plane scratch");

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

/* A byte plane of n bytes, by any mode but W32, pairs and raw, into out. */
static tp_status decode_plane(const decode_state *s, uint32_t index, const tp_descriptor *d, uint8_t *out)
{
    switch (d->mode) {
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

/* Wide streams gathered from planes, so that the kernel can interleave them. */
typedef struct wide_batch {
    tp_wide_job job[BATCH * MAX_LOW];
    uint32_t descriptor[BATCH * MAX_LOW];
    size_t count;
} wide_batch;

static tp_status run_wide(const decode_state *s, wide_batch *wide)
{
    if (wide->count) s->kernels->wide_decode(wide->job, wide->count);
    for (size_t i = 0; i < wide->count; i++)
        if (!wide->job[i].good)
            return damaged(s, wide->descriptor[i], "the stream does not end as it must");
    return TP_OK;
}

/* The byte planes of descriptors first .. first + count - 1 into room[]; those of wide streams only once
 * `wide` has been run. plane[]: where they are, which is in the frame for those stored as they are. */
static tp_status gather_byte_planes(const decode_state *s, uint32_t first, uint32_t count,
                                    uint8_t *const room[], const uint8_t *plane[], wide_batch *wide)
{
    for (uint32_t k = 0; k < count; k++) {
        tp_descriptor d;
        tp_descriptor_load(s->view, first + k, &d);
        plane[k] = room[k];
        if (d.mode == TP_MODE_RAW) {
            plane[k] = part(s, d.offset);
        } else if (d.mode == TP_MODE_WIDE) {
            wide->job[wide->count] = wide_job(s, &d, room[k]);
            wide->descriptor[wide->count++] = first + k;
        } else {
            const tp_status status = decode_plane(s, first + k, &d, room[k]);
            if (status) return status;
        }
    }
    return TP_OK;
}

/* Where the elements of chunk `chunk` (n of them) get their low bytes from. */
typedef struct low_part {
    uint32_t chunk, n;
    uint8_t *low; /* room for all planes in the order of docs/format.md 7.3 */
} low_part;

/* The low planes of up to BATCH chunks from their descriptors. */
static tp_status decode_low(const decode_state *s, const low_part *parts, size_t count)
{
    const tp_frame_view *view = s->view;
    const unsigned planes = view->shape.low;
    const uint8_t *plane[BATCH][MAX_LOW];
    wide_batch wide = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        uint8_t *room[MAX_LOW];
        for (unsigned y = 0; y < planes; y++) room[y] = s->decoder->plane + (i * MAX_LOW + y) * PLANE_BYTES;
        if (planes == 1) room[0] = parts[i].low;
        const tp_status status =
            gather_byte_planes(s, parts[i].chunk * view->parts + 1, planes, room, plane[i], &wide);
        if (status) return status;
    }
    const tp_status status = run_wide(s, &wide);
    if (status) return status;
    for (size_t i = 0; i < count; i++) {
        const low_part *p = &parts[i];
        const size_t stride = ((size_t)p->n + TP_GROUP - 1) / TP_GROUP * TP_GROUP * 2;
        if (planes == 1 && plane[i][0] != p->low) memcpy(p->low, plane[i][0], p->n);
        for (unsigned y = 0; planes > 1 && y < planes; y++)
            s->kernels->plane_put(plane[i][y], 2 * (size_t)p->n, 2, y & 1, p->low + (y >> 1) * stride);
    }
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

/* Chunks whose elements or tops are W32 or pairs streams, gathered. */
typedef struct stream_batch {
    tp_w32_job job[BATCH];
    low_part low[BATCH]; /* only of low_coded frames */
    uint32_t chunk[BATCH];
    size_t count;
    uint8_t *low_free;
} stream_batch;

/* Runs them and checks their chunks. */
static tp_status run_streams(const decode_state *s, stream_batch *batch, uint64_t *hashes)
{
    const size_t count = batch->count;
    if (count == 0) return TP_OK;
    if (s->view->info.low_coded) {
        const tp_status status = decode_low(s, batch->low, count);
        if (status) return status;
    }
    s->kernels->w32_decode(&s->view->shape, batch->job, count);
    for (size_t i = 0; i < count; i++) {
        if (!batch->job[i].good)
            return damaged(s, batch->chunk[i] * s->view->parts, "the stream does not end as it must");
        const tp_status status = check_chunk(s, batch->chunk[i], &hashes[batch->chunk[i]]);
        if (status) return status;
    }
    batch->count = 0;
    batch->low_free = s->decoder->low;
    return TP_OK;
}

static void add_stream(const decode_state *s, stream_batch *batch, uint32_t chunk, const tp_descriptor *d,
                       uint8_t *dst)
{
    const tp_frame_view *view = s->view;
    const tp_shape *shape = &view->shape;
    const uint8_t *payload = part(s, d->offset);
    const bool coded = view->info.low_coded;
    tp_w32_job job = {
        .payload = payload,
        .low = coded        ? batch->low_free
               : shape->low ? payload + tp_stream_words_at(shape, d->n, false)
                            : NULL,
        .words = payload + tp_stream_words_at(shape, d->n, !coded),
        .table = &s->decoder->w32[d->table],
        .dst = dst,
        .n = d->n,
        .nw = d->nw,
        .nx = d->nx,
        .selector_bits = (uint8_t)view->selector_bits,
    };
    if (view->selector_bits) job.selectors = job.words + tp_align(2 * (uint64_t)d->nw, 4);
    if (coded) {
        batch->low[batch->count] = (low_part){chunk, d->n, batch->low_free};
        batch->low_free += ((size_t)d->n + TP_GROUP - 1) / TP_GROUP * TP_GROUP * shape->low;
    }
    batch->chunk[batch->count] = chunk;
    batch->job[batch->count++] = job;
}

/* A chunk that is no stream, or whose tops are none. */
static tp_status decode_plain_chunk(const decode_state *s, uint32_t chunk, tp_descriptor *d, uint8_t *dst,
                                    size_t bytes, uint8_t *low)
{
    const tp_frame_view *view = s->view;
    const tp_shape *shape = &view->shape;
    if (view->info.low_coded) { /* raw or constant tops */
        const low_part one = {chunk, d->n, low};
        uint8_t *tops = s->decoder->plane;
        const tp_status status = decode_low(s, &one, 1);
        if (status) return status;
        if (d->mode == TP_MODE_CONSTANT)
            fill_constant(tops, (size_t)d->n * shape->T / 8, d->offset, shape->T / 8);
        merge_tops(view, d->mode == TP_MODE_CONSTANT ? tops : part(s, d->offset), low, d->n, dst);
    } else if (d->mode == TP_MODE_CONSTANT) {
        fill_constant(dst, bytes, d->offset, view->group);
    } else if (d->mode == TP_MODE_RAW) {
        memcpy(dst, part(s, d->offset), bytes);
    } else { /* wide: one byte an element; lz4: whole elements */
        d->n = (uint32_t)bytes;
        return decode_plane(s, chunk * view->parts, d, dst);
    }
    return TP_OK;
}

static tp_status decode_split(const decode_state *s, uint64_t *hashes)
{
    const tp_frame_view *view = s->view;
    stream_batch batch = {.count = 0, .low_free = s->decoder->low};
    tp_status status;
    for (uint32_t i = 0; i < view->chunks; i++) {
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        uint8_t *const dst = s->dst + start;
        tp_descriptor d;
        tp_descriptor_load(view, i * view->parts, &d);
        if (d.mode == TP_MODE_W32 || d.mode == TP_MODE_PAIRS) {
            add_stream(s, &batch, i, &d, dst);
            if (batch.count < BATCH) continue;
            status = run_streams(s, &batch, hashes);
            if (status) return status;
            continue;
        }
        status = decode_plain_chunk(s, i, &d, dst, bytes, batch.low_free);
        if (!status) status = check_chunk(s, i, &hashes[i]);
        if (status) return status;
    }
    return run_streams(s, &batch, hashes);
}

static tp_status decode_planes(const decode_state *s, uint64_t *hashes)
{
    const tp_frame_view *view = s->view;
    for (uint32_t i = 0; i < view->chunks; i++) {
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        uint8_t *room[MAX_PLANES], *next = s->decoder->plane;
        for (uint32_t k = 0; k < view->group; k++) { /* joined: without room between them */
            room[k] = next;
            next += view->info.joined ? (bytes + view->group - 1 - k) / view->group : PLANE_BYTES;
        }
        const uint8_t *planes[MAX_PLANES];
        wide_batch wide = {.count = 0};
        tp_status status = gather_byte_planes(s, i * view->parts, view->parts, room, planes, &wide);
        if (!status) status = run_wide(s, &wide);
        if (status) return status;
        for (uint32_t k = 1; view->info.joined && k < view->group; k++)
            planes[k] = planes[0] + (room[k] - room[0]);
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
