/*
 * Encoding of frames: codec, header, hashes, and the public calls. What is chosen when:
 * docs/architecture.md, "What the encoder chooses".
 */
#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>

#include "codec/df11_frame.h"
#include "codec/encoder.h"
#include "codec/hash.h"

#define MAX_CHUNKS TP_MAX_CHUNKS
#define PLANE_BYTES ((size_t)8 << TP_CHUNK_LOG2)

_Static_assert(TP_FRAME_MAX_RAW >> TP_CHUNK_LOG2 == MAX_CHUNKS, "chunks of a frame");

tp_status tp_encoder_create(tp_encoder **encoder)
{
    tp_encoder *e = aligned_alloc(64, (sizeof *e + 63) / 64 * 64);
    if (!e) return TP_NO_MEMORY;
    memset(e, 0, sizeof *e);
    e->kernels = tp_kernels_get();
    tp_log2_init(&e->log2);
    e->choice = &e->choices[0];
    e->table = aligned_alloc(64, TP_MAX_TABLES * sizeof *e->table);
    e->scratch = aligned_alloc(64, (TP_ENCODE_SCRATCH + 63) / 64 * 64);
    e->plane = malloc(PLANE_BYTES);
    e->block = malloc(PLANE_BYTES);
    e->other = malloc(TP_FRAME_MAX_STORED);
    e->lz4hc = malloc((size_t)LZ4_sizeofStateHC());
    if (!e->table || !e->scratch || !e->plane || !e->block || !e->other || !e->lz4hc) {
        tp_encoder_destroy(e);
        return TP_NO_MEMORY;
    }
    *encoder = e;
    return TP_OK;
}

void tp_encoder_destroy(tp_encoder *encoder)
{
    if (!encoder) return;
    free(encoder->table);
    free(encoder->scratch);
    free(encoder->plane);
    free(encoder->block);
    free(encoder->other);
    free(encoder->lz4hc);
    free(encoder);
}

void tp_encoder_use(tp_encoder *encoder, const tp_kernels *kernels)
{
    encoder->kernels = kernels;
}

size_t tp_encode_bound(size_t raw_size)
{
    return TP_FRAME_HEADER + (size_t)tp_align(raw_size, 128);
}

static void put_header(const tp_encode_state *s, tp_frame_codec codec, size_t stored, uint32_t payload_size,
                       tp_method method)
{
    uint8_t *h = s->frame;
    memset(h, 0, TP_FRAME_HEADER);
    memcpy(h, "TPFR", 4);
    h[4] = (uint8_t)codec;
    h[5] = (uint8_t)s->cls;
    h[13] = (uint8_t)method;
    tp_store32(h + 16, (uint32_t)s->raw_size);
    tp_store32(h + 20, (uint32_t)stored);
    tp_store32(h + 28, payload_size);
}

/* The hashes over directory, raw bytes (by their chunks' hashes) and the whole frame, in this order. */
static void put_hashes(const tp_encode_state *s, size_t payload_at, size_t stored,
                       const uint64_t *chunk_hashes, size_t chunks)
{
    uint8_t *h = s->frame;
    uint64_t hash[2], parts[1 + MAX_CHUNKS];
    parts[0] = s->raw_size;
    memcpy(parts + 1, chunk_hashes, chunks * sizeof *parts);
    s->kernels->hash128(parts, (1 + chunks) * sizeof *parts, hash);
    tp_store64(h + 32, s->kernels->hash64(h + TP_FRAME_HEADER, payload_at - TP_FRAME_HEADER));
    tp_store64(h + 112, hash[0]);
    tp_store64(h + 120, hash[1]);
    s->kernels->hash128(h, stored, hash); /* its own place is still zero */
    tp_store64(h + 96, hash[0]);
    tp_store64(h + 104, hash[1]);
}

/* Codecs raw and lz4: the payload lies at frame + 128 already. */
static size_t end_plain_frame(const tp_encode_state *s, tp_frame_codec codec, size_t payload_size)
{
    uint64_t hashes[MAX_CHUNKS];
    size_t chunks = 0;
    const size_t stored = TP_FRAME_HEADER + (size_t)tp_align(payload_size, 128);
    memset(s->frame + TP_FRAME_HEADER + payload_size, 0, stored - TP_FRAME_HEADER - payload_size);
    for (size_t at = 0; at < s->raw_size; at += TP_RAW_CHUNK) {
        const size_t left = s->raw_size - at;
        hashes[chunks++] = s->kernels->hash64(s->raw + at, left < TP_RAW_CHUNK ? left : TP_RAW_CHUNK);
    }
    put_header(s, codec, stored, (uint32_t)payload_size,
               codec == TP_FRAME_RAW ? TP_METHOD_RAW : TP_METHOD_LZ4);
    put_hashes(s, TP_FRAME_HEADER, stored, hashes, chunks);
    return stored;
}

static size_t encode_raw(const tp_encode_state *s)
{
    memcpy(s->frame + TP_FRAME_HEADER, s->raw, s->raw_size);
    return end_plain_frame(s, TP_FRAME_RAW, s->raw_size);
}

/* This and the following return 0 where the frame would not be smaller than a raw one by 1 %. */
static size_t worth(const tp_encode_state *s, size_t stored)
{
    return tp_pays(stored, tp_encode_bound(s->raw_size)) ? stored : 0;
}

static size_t encode_lz4(const tp_encode_state *s)
{
    const size_t made = tp_lz4_block(s, s->raw, s->raw_size, s->frame + TP_FRAME_HEADER, s->raw_size - 1);
    if (!made || !worth(s, TP_FRAME_HEADER + (size_t)tp_align(made, 128))) return 0;
    return end_plain_frame(s, TP_FRAME_LZ4, made);
}

/* The room for payload behind `tables` bytes of tables and so many descriptors; false if there is none. */
static bool start_payload(const tp_encode_state *s, size_t tables, size_t descriptors, tp_payload_writer *w)
{
    const size_t directory = TP_FRAME_HEADER + tables + descriptors * TP_DESCRIPTOR_SIZE;
    const size_t payload_at = (size_t)tp_align(directory, 128), bound = tp_encode_bound(s->raw_size);
    if (payload_at > bound) return false;
    memset(s->frame + directory, 0, payload_at - directory);
    *w = (tp_payload_writer){
        .at = s->frame + payload_at,
        .start = s->frame + payload_at,
        .end = s->frame + bound,
        .descriptor = s->frame + TP_FRAME_HEADER + tables,
        .method = TP_METHOD_RAW,
    };
    return true;
}

/* With symbols of so many bits or, if `coarser`, one less where that is better. */
static size_t encode_split(const tp_encode_state *s, unsigned symbol_bits, unsigned per_symbol,
                           bool coarser)
{
    tp_encoder *e = s->encoder;
    tp_shape shape = {.T = s->traits->T,
                      .R = (uint8_t)(s->traits->T - symbol_bits),
                      .low = s->traits->low,
                      .c = (uint8_t)per_symbol,
                      .rotated = s->traits->rotated};
    const size_t element = s->traits->element, chunk = element << TP_CHUNK_LOG2;
    const uint32_t chunks = (uint32_t)((s->raw_size + chunk - 1) / chunk);
    e->choice->tables = 0;
    e->wide.count = 0;

    /* Are the low planes worth coding? One answer for the frame. */
    bool low_coded = false;
    for (uint32_t i = 0; i < chunks; i++) {
        const size_t start = i * chunk, bytes = tp_chunk_bytes(s, i, chunk);
        for (unsigned y = 0; y < shape.low; y++) {
            tp_part_plan *plan = &e->plan[i][1 + y];
            tp_plan_plane(s, s->raw + start, bytes, (unsigned)element, y, plan);
            low_coded |= plan->mode != TP_MODE_RAW || plan->try_lz4;
        }
    }
    if (!low_coded) e->wide.count = 0;
    tp_plan_tops(s, &shape, coarser, chunks, low_coded);

    const size_t parts = low_coded ? 1u + shape.low : 1, tables = 256u * per_symbol * e->choice->tables;
    tp_payload_writer w;
    if (!start_payload(s, tables + 512u * e->wide.count, chunks * parts, &w)) return 0;
    for (uint32_t i = 0; i < e->choice->tables; i++)
        tp_symbol_record_store(&e->choice->record[i], per_symbol == 2,
                               s->frame + TP_FRAME_HEADER + 256u * per_symbol * i);
    for (uint32_t i = 0; i < e->wide.count; i++)
        tp_wide_record_store(e->wide.F[i], s->frame + TP_FRAME_HEADER + tables + 512u * i);

    for (uint32_t i = 0; i < chunks; i++) {
        const size_t start = i * chunk, bytes = tp_chunk_bytes(s, i, chunk);
        const uint32_t n = (uint32_t)(bytes / element);
        if (!low_coded && i + 1 < chunks) {
            const unsigned put = tp_put_two_tops(
                s, &w, &shape, s->raw + start, n, (uint32_t)(tp_chunk_bytes(s, i + 1, chunk) / element),
                (const tp_part_plan *const[]){&e->plan[i][0], &e->plan[i + 1][0]}, &e->hash[i]);
            if (put) {
                i += put - 1;
                continue;
            }
        }
        if (!tp_put_top(s, &w, &shape, s->raw + start, n, low_coded, &e->plan[i][0], e->hash[i])) return 0;
        for (unsigned y = 0; low_coded && y < shape.low; y++)
            if (!tp_put_plane(s, &w, s->raw + start, bytes, (unsigned)element, y, &e->plan[i][1 + y],
                              TP_METHOD_LZ4, 0))
                return 0;
    }

    const size_t stored = (size_t)(w.at - s->frame);
    if (!worth(s, stored)) return 0;
    put_header(s, TP_FRAME_SPLIT, stored, (uint32_t)(w.at - w.start), w.method);
    uint8_t *h = s->frame;
    h[6] = (uint8_t)(shape.T - shape.R);
    h[7] = (uint8_t)per_symbol;
    h[8] = low_coded;
    h[9] = TP_CHUNK_LOG2;
    h[10] = (uint8_t)e->choice->tables;
    h[11] = (uint8_t)e->wide.count;
    h[12] = (uint8_t)(1u << e->choice->selector_bits);
    tp_store32(h + 24, (uint32_t)(chunks * parts));
    put_hashes(s, (size_t)(w.start - s->frame), stored, e->hash, chunks);
    return stored;
}

static size_t encode_planes(const tp_encode_state *s, bool joined)
{
    tp_encoder *e = s->encoder;
    const unsigned group = s->traits->planes;
    const size_t chunk = (size_t)group << TP_CHUNK_LOG2, parts = joined ? 1 : group;
    const uint32_t chunks = (uint32_t)((s->raw_size + chunk - 1) / chunk);
    e->wide.count = 0;
    for (uint32_t i = 0; i < chunks && !joined; i++) {
        const size_t start = i * chunk, bytes = tp_chunk_bytes(s, i, chunk);
        for (unsigned k = 0; k < group; k++)
            tp_plan_plane(s, s->raw + start, bytes, group, k, &e->plan[i][k]);
    }
    tp_payload_writer w;
    if (!start_payload(s, 512u * e->wide.count, chunks * parts, &w)) return 0;
    for (uint32_t i = 0; i < e->wide.count; i++)
        tp_wide_record_store(e->wide.F[i], s->frame + TP_FRAME_HEADER + 512u * i);

    uint64_t hashes[MAX_CHUNKS];
    for (uint32_t i = 0; i < chunks; i++) {
        const size_t start = i * chunk, bytes = tp_chunk_bytes(s, i, chunk);
        const uint8_t *src = s->raw + start;
        hashes[i] = s->kernels->hash64(src, bytes);
        if (joined) {
            uint8_t *plane = e->plane;
            for (unsigned k = 0; k < group; k++) {
                s->kernels->plane_get(src, bytes, group, k, plane);
                plane += (bytes + group - 1 - k) / group;
            }
            if (!tp_put_lz4(s, &w, e->plane, bytes, bytes, (uint32_t)bytes, TP_METHOD_BG_LZ4, hashes[i]) &&
                !tp_put_raw(&w, e->plane, bytes, (uint32_t)bytes, hashes[i]))
                return 0;
            continue;
        }
        for (unsigned k = 0; k < group; k++)
            if (!tp_put_plane(s, &w, src, bytes, group, k, &e->plan[i][k], TP_METHOD_BG_LZ4,
                              k ? 0 : hashes[i]))
                return 0;
    }

    const size_t stored = (size_t)(w.at - s->frame);
    if (!worth(s, stored)) return 0;
    put_header(s, TP_FRAME_PLANES, stored, (uint32_t)(w.at - w.start), w.method);
    uint8_t *h = s->frame;
    h[8] = joined ? 2 : 0;
    h[9] = TP_CHUNK_LOG2;
    h[11] = (uint8_t)e->wide.count;
    tp_store32(h + 24, (uint32_t)(chunks * parts));
    put_hashes(s, (size_t)(w.start - s->frame), stored, hashes, chunks);
    return stored;
}

static size_t encode_df11(const tp_encode_state *s)
{
    uint64_t hashes[MAX_CHUNKS];
    tp_df11_frame made;
    if (!tp_df11_frame_make(s, hashes, &made)) return 0;
    const size_t stored = made.payload_at + made.payload_size;
    put_header(s, TP_FRAME_DF11, stored, made.payload_size, TP_METHOD_DF11);
    uint8_t *h = s->frame;
    h[7] = 1;
    h[9] = TP_CHUNK_LOG2;
    h[10] = (uint8_t)made.rows;
    tp_store32(h + 24, made.chunks);
    tp_store32(h + TP_FRAME_DF11_ENCODED, made.encoded_size);
    put_hashes(s, made.payload_at, stored, hashes, made.chunks);
    return stored;
}

/* The smaller of the frame at s->frame (`stored` bytes, 0: none) and one made now. */
#define TRY(made)                                                                                          \
    do {                                                                                                   \
        const size_t size_ = made; /* into e->other */                                                     \
        if (size_ && (!stored || size_ < stored)) {                                                        \
            memcpy(s->frame, e->other, size_);                                                             \
            stored = size_;                                                                                \
        }                                                                                                  \
    } while (0)

/* What levels fast and default make of a class that can be split. Pairs are faster to decode only where
 * there are no low bytes to be moved too. */
static size_t encode_usual_split(const tp_encode_state *s)
{
    if (s->level == TP_LEVEL_FAST)
        return s->traits->pairs && !s->traits->low ? encode_split(s, 8, 2, false)
                                                   : encode_split(s, s->traits->s[0], 1, false);
    return s->traits->finer ? encode_split(s, s->traits->finer, 1, true)
                            : encode_split(s, s->traits->s[0], 1, false);
}

/* Level max: everything that the class allows, and what level default makes, so that it is never larger. */
static size_t encode_smallest(const tp_encode_state *s)
{
    tp_encoder *e = s->encoder;
    size_t stored = 0;
    tp_encode_state second = *s;
    second.frame = e->other;
    for (unsigned wide = 0; wide <= s->traits->wide_top; wide++)
        for (unsigned i = 0; i < 3 && s->traits->s[i]; i++) {
            second.wide_top = wide;
            TRY(encode_split(&second, s->traits->s[i], 1, false));
        }
    if (s->traits->pairs) TRY(encode_split(&second, 8, 2, false));
    if (s->traits->planes) TRY(encode_planes(&second, false));
    if (s->lz4) TRY(encode_lz4(&second));
    second.level = TP_LEVEL_DEFAULT;
    second.wide_top = s->wide_top;
    if (s->traits->T) TRY(encode_usual_split(&second));
    return stored;
}

/* 0: as it is. */
static size_t encode_chosen(const tp_encode_state *s, tp_codec_choice choice)
{
    if (choice == TP_CODEC_RAW) return 0;
    if (choice == TP_CODEC_LZ4 || s->cls == TP_CLASS_BYTES ||
        (choice == TP_CODEC_BG_LZ4 && s->traits->planes == 1))
        return s->raw_size > 1 ? encode_lz4(s) : 0;
    if (choice == TP_CODEC_BG_LZ4) return encode_planes(s, true);
    if (choice == TP_CODEC_DF11 && s->cls == TP_CLASS_BF16) {
        const size_t stored = encode_df11(s);
        if (stored) return stored;
    }
    if (s->level == TP_LEVEL_MAX) return encode_smallest(s);
    return s->traits->T ? encode_usual_split(s) : encode_planes(s, false);
}

tp_status tp_encode(tp_encoder *encoder, tp_class cls, tp_level level, tp_codec_choice choice,
                    const void *raw, size_t raw_size, void *dst, size_t capacity, size_t *size)
{
    const tp_class_traits *traits = tp_class_traits_of(cls);
    if (!traits || raw_size < 1 || raw_size > TP_FRAME_MAX_RAW || (unsigned)level > TP_LEVEL_MAX ||
        (unsigned)choice > TP_CODEC_DF11)
        return TP_INVALID_ARGUMENT;
    if (capacity < tp_encode_bound(raw_size)) return TP_BUFFER_TOO_SMALL;
    if (raw_size % traits->element) {
        cls = TP_CLASS_BYTES;
        traits = tp_class_traits_of(cls);
    }
    const tp_encode_state state = {.encoder = encoder,
                                   .kernels = encoder->kernels,
                                   .cls = cls,
                                   .traits = traits,
                                   .level = level,
                                   .lz4 = choice != TP_CODEC_RANS,
                                   .wide_top = cls == TP_CLASS_I8,
                                   .raw = raw,
                                   .raw_size = raw_size,
                                   .frame = dst};
    const tp_encode_state *const s = &state;
    size_t stored = encode_chosen(s, choice);
    if (!stored) stored = encode_raw(s);
    *size = stored;
    return TP_OK;
}
