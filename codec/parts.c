/* Writing the parts of a frame: payload and descriptors. */
#include <lz4.h>
#include <lz4hc.h>

#include "codec/encoder.h"

size_t tp_lz4_block(const tp_encode_state *s, const uint8_t *src, size_t size, uint8_t *dst,
                    size_t capacity)
{
    void *state = s->encoder->lz4hc;
    const char *from = (const char *)src;
    const int room = (int)capacity;
    int made = LZ4_compress_fast_extState(state, from, (char *)dst, (int)size, room, 1);
    if (s->level == TP_LEVEL_MAX &&
        (s->cls == TP_CLASS_BYTES || (made > 0 && tp_pays((uint64_t)made, size)))) {
        /* Searching harder finds less now and then. */
        const int harder = LZ4_compress_HC_extStateHC(state, from, (char *)dst, (int)size,
                                                      made > 0 ? made : room, LZ4HC_CLEVEL_DEFAULT);
        if (harder > 0) return (size_t)harder;
        if (made > 0) made = LZ4_compress_fast_extState(state, from, (char *)dst, (int)size, room, 1);
    }
    return made > 0 ? (size_t)made : 0;
}

static size_t room(const tp_payload_writer *w)
{
    return (size_t)(w->end - w->at);
}

static void put_descriptor(tp_payload_writer *w, uint64_t offset, uint32_t nw, uint32_t nx, uint32_t n,
                           uint8_t table, uint8_t mode, uint64_t hash)
{
    uint8_t *p = w->descriptor;
    tp_store64(p, offset);
    tp_store32(p + 8, nw);
    tp_store32(p + 12, nx);
    tp_store32(p + 16, n);
    p[20] = table;
    p[21] = mode;
    tp_store16(p + 22, 0);
    tp_store64(p + 24, hash);
    w->descriptor += TP_DESCRIPTOR_SIZE;
}

/* Appends a part of `size` bytes that lie at w->at already, padded to 128 bytes. */
static void end_part(tp_payload_writer *w, size_t size, uint32_t nw, uint32_t nx, uint32_t n, uint8_t table,
                     uint8_t mode, uint64_t hash)
{
    put_descriptor(w, (uint64_t)(w->at - w->start), nw, nx, n, table, mode, hash);
    const size_t padded = (size_t)tp_align(size, 128);
    memset(w->at + size, 0, padded - size);
    w->at += padded;
}

/* An lz4 block of the part if it has room and is smaller than what else it would be. */
bool tp_put_lz4(const tp_encode_state *s, tp_payload_writer *w, const uint8_t *src, size_t size,
                uint64_t other, uint32_t n, tp_method method, uint64_t hash)
{
    size_t capacity = other < size ? (size_t)other : size - 1;
    if (capacity > room(w)) capacity = room(w);
    const size_t made = capacity ? tp_lz4_block(s, src, size, w->at, capacity) : 0;
    if (!made || !tp_pays(made, size) || made >= other) return false;
    end_part(w, made, (uint32_t)made, 0, n, 0, TP_MODE_LZ4, hash);
    if (w->method != TP_METHOD_RANS) w->method = method;
    return true;
}

static void put_constant(tp_payload_writer *w, uint64_t value, uint32_t n, uint64_t hash)
{
    put_descriptor(w, value, 0, 0, n, 0, TP_MODE_CONSTANT, hash);
    if (w->method == TP_METHOD_RAW) w->method = TP_METHOD_CONSTANT;
}

/* false: no room, so the frame is stored raw */
bool tp_put_raw(tp_payload_writer *w, const uint8_t *src, size_t size, uint32_t n, uint64_t hash)
{
    if (tp_align(size, 128) > room(w)) return false;
    memcpy(w->at, src, size);
    end_part(w, size, 0, 0, n, 0, TP_MODE_RAW, hash);
    return true;
}

static bool put_wide(const tp_encode_state *s, tp_payload_writer *w, const uint8_t *src, uint32_t n,
                     uint8_t table, uint64_t hash)
{
    uint32_t nw;
    const size_t size = s->kernels->wide_encode(src, n, &s->encoder->wide.table[table], w->at, room(w),
                                                s->encoder->scratch, &nw);
    if (!size || !tp_pays(size, n)) return false;
    end_part(w, size, nw, 0, n, table, TP_MODE_WIDE, hash);
    w->method = TP_METHOD_RANS;
    return true;
}

/* A byte plane, extracted to the encoder's plane buffer. */
bool tp_put_plane(const tp_encode_state *s, tp_payload_writer *w, const uint8_t *src, size_t size,
                  unsigned element, unsigned index, const tp_part_plan *plan, tp_method lz4_method,
                  uint64_t hash)
{
    uint8_t *plane = s->encoder->plane;
    const uint32_t n = (uint32_t)((size + element - 1 - index) / element);
    if (plan->mode == TP_MODE_CONSTANT) {
        put_constant(w, plan->value, n, hash);
        return true;
    }
    s->kernels->plane_get(src, size, element, index, plane);
    if (plan->try_lz4 && tp_put_lz4(s, w, plane, n, plan->estimate, n, lz4_method, hash)) return true;
    if (plan->mode == TP_MODE_WIDE && put_wide(s, w, plane, n, plan->table, hash)) return true;
    return tp_put_raw(w, plane, n, n, hash);
}

static tp_w32_encode_job stream_job(const tp_encode_state *s, tp_payload_writer *w, const uint8_t *src,
                                    uint32_t n, bool low_coded, const tp_part_plan *plan)
{
    tp_w32_encode_job job = {.src = src,
                             .n = n,
                             .with_low = !low_coded,
                             .table = &s->encoder->table[plan->table],
                             .payload = w->at,
                             .capacity = room(w),
                             .scratch = s->encoder->scratch};
    if (s->encoder->choice->selector_bits) {
        const size_t element_index = (size_t)(src - s->raw) / s->traits->element;
        job.selectors = s->encoder->selectors + element_index / TP_GROUP;
        job.selector_bits = (uint8_t)s->encoder->choice->selector_bits;
    }
    return job;
}

/* A stream that lies at w->at; false: it does not pay. */
static bool put_stream(tp_payload_writer *w, const tp_w32_encode_job *job, size_t whole,
                       const tp_part_plan *plan, uint64_t hash)
{
    if (!job->size || !tp_pays(job->size, whole)) return false;
    end_part(w, job->size, job->nw, job->nx, job->n, plan->table, plan->mode, hash);
    w->method = TP_METHOD_RANS;
    return true;
}

static bool is_stream(const tp_part_plan *plan)
{
    return plan->mode == TP_MODE_W32 || plan->mode == TP_MODE_PAIRS;
}

bool tp_put_top(const tp_encode_state *s, tp_payload_writer *w, const tp_shape *shape, const uint8_t *src,
                uint32_t n, bool low_coded, const tp_part_plan *plan, uint64_t hash)
{
    const size_t whole = (size_t)n * (low_coded ? shape->T / 8u : s->traits->element);
    if (plan->mode == TP_MODE_CONSTANT) {
        put_constant(w, plan->value, n, hash);
        return true;
    }
    if (plan->try_lz4 && tp_put_lz4(s, w, src, whole, plan->estimate, n, TP_METHOD_LZ4, hash)) return true;
    if (is_stream(plan)) {
        tp_w32_encode_job job = stream_job(s, w, src, n, low_coded, plan);
        s->kernels->w32_encode(shape, &job);
        if (put_stream(w, &job, whole, plan, hash)) return true;
    }
    if (plan->mode == TP_MODE_WIDE && put_wide(s, w, src, n, plan->table, hash)) return true;
    if (!low_coded) return tp_put_raw(w, src, whole, n, hash);
    const size_t top = shape->T / 8u;
    for (size_t i = 0; i < n; i++)
        memcpy(s->encoder->plane + i * top, src + i * s->traits->element + shape->low, top);
    return tp_put_raw(w, s->encoder->plane, whole, n, hash);
}

unsigned tp_put_two_tops(const tp_encode_state *s, tp_payload_writer *w, const tp_shape *shape,
                         const uint8_t *src, uint32_t n, uint32_t second_n,
                         const tp_part_plan *const plan[2], const uint64_t hash[2])
{
    if (!s->kernels->w32_encode_two) return 0;
    for (int i = 0; i < 2; i++)
        if (plan[i]->try_lz4 || !is_stream(plan[i])) return 0;
    const size_t element = s->traits->element;
    tp_w32_encode_job first = stream_job(s, w, src, n, false, plan[0]);
    tp_w32_encode_job second = stream_job(s, w, src + n * element, second_n, false, plan[1]);
    s->kernels->w32_encode_two(shape, &first, &second);
    if (!put_stream(w, &first, n * element, plan[0], hash[0])) return 0;
    return put_stream(w, &second, second_n * element, plan[1], hash[1]) ? 2 : 1;
}
