/*
 * The frame codec df11: one DFloat11 unit, with a hash for every chunk of its elements (docs/format.md
 * section 6, "Codec df11"). The unit itself: codec/df11.h.
 */
#include "codec/df11_frame.h"

#include "codec/bytes.h"

/* What the arrays take in the payload, each padded to a multiple of 128, in this order. */
typedef struct arrays {
    size_t positions, gaps, encoded, sign_mantissa, size;
    uint32_t blocks;
} arrays;

/* encoded_size is at most the payload, below 2^32; so nothing overflows. */
static arrays place(uint64_t elements, uint64_t encoded_size)
{
    const uint32_t blocks = (uint32_t)((encoded_size + TP_DF11_BLOCK - 1) / TP_DF11_BLOCK);
    arrays a = {.blocks = blocks, .positions = 0};
    a.gaps = a.positions + (size_t)tp_align(4 * ((uint64_t)blocks + 1), 128);
    a.encoded = a.gaps + (size_t)tp_align((uint64_t)blocks * TP_DF11_BLOCK_GAPS, 128);
    a.sign_mantissa = a.encoded + (size_t)tp_align(encoded_size, 128);
    a.size = a.sign_mantissa + (size_t)tp_align(elements, 128);
    return a;
}

static void pad(uint8_t *payload, size_t used, size_t next)
{
    memset(payload + used, 0, next - used);
}

bool tp_df11_frame_make(const tp_encode_state *s, uint64_t hashes[TP_MAX_CHUNKS], tp_df11_frame *made)
{
    tp_df11_plan *plan = &s->encoder->df11;
    tp_df11_part part = {.elements = s->raw, .n = s->raw_size / 2};
    const size_t chunk = (size_t)2 << TP_CHUNK_LOG2;

    tp_df11_part_count(&part);
    /* What cannot be coded (exponents of 240 and more) is no error here. */
    if (tp_df11_plan_make(&part, 1, plan, NULL)) return false;
    made->rows = plan->code.rows;
    made->encoded_size = (uint32_t)plan->encoded_size;
    made->chunks = (uint32_t)((s->raw_size + chunk - 1) / chunk);
    const arrays a = place(part.n, plan->encoded_size);
    const size_t directory = TP_FRAME_HEADER + plan->luts_size + (size_t)made->chunks * TP_DESCRIPTOR_SIZE;
    made->payload_at = (size_t)tp_align(directory, 128);
    made->payload_size = (uint32_t)a.size;
    /* Also the proof that it fits, and that the workspace does: a window stands for 8 bytes stored. */
    if (!tp_pays(made->payload_at + (uint64_t)a.size, tp_encode_bound(s->raw_size))) return false;
    _Static_assert(TP_FRAME_MAX_STORED / 8 + TP_DF11_BLOCK_WINDOWS + 1 <= TP_ENCODE_SCRATCH,
                   "a byte for every window");

    uint8_t *const payload = s->frame + made->payload_at;
    const tp_df11_output output = {.encoded_exponent = payload + a.encoded,
                                   .sign_mantissa = payload + a.sign_mantissa,
                                   .output_positions = payload + a.positions,
                                   .gaps = payload + a.gaps,
                                   .workspace = s->encoder->scratch};
    if (tp_df11_part_encode(plan, &part, &output, NULL)) return false;
    tp_df11_plan_finish(plan, &part, 1, &output);
    pad(payload, a.positions + plan->positions_size, a.gaps);
    pad(payload, a.gaps + plan->gaps_size, a.encoded);
    pad(payload, a.encoded + plan->encoded_size, a.sign_mantissa);
    pad(payload, a.sign_mantissa + part.n, a.size);

    memcpy(s->frame + TP_FRAME_HEADER, plan->code.luts, plan->luts_size);
    uint8_t *descriptor = s->frame + TP_FRAME_HEADER + plan->luts_size;
    for (uint32_t i = 0; i < made->chunks; i++, descriptor += TP_DESCRIPTOR_SIZE) {
        const size_t bytes = tp_chunk_bytes(s, i, chunk);
        hashes[i] = s->kernels->hash64(s->raw + i * chunk, bytes);
        memset(descriptor, 0, TP_DESCRIPTOR_SIZE);
        tp_store32(descriptor + 16, (uint32_t)(bytes / 2));
        descriptor[21] = TP_MODE_DF11;
        tp_store64(descriptor + 24, hashes[i]);
    }
    memset(descriptor, 0, made->payload_at - directory);
    return true;
}

#define CHECK(condition, ...)                                                                              \
    do {                                                                                                   \
        if (!(condition)) return tp_error_set(error, TP_CORRUPT, "frame: " __VA_ARGS__);                   \
    } while (0)

static bool all_zero(const uint8_t *p, size_t size)
{
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++) any |= p[i];
    return any == 0;
}

tp_status tp_df11_frame_check(tp_frame_view *view, tp_df11_decoder *decoder, tp_error *error)
{
    const uint64_t elements = view->info.raw_size / 2;
    const uint32_t encoded_size = tp_load32(view->frame + TP_FRAME_DF11_ENCODED);
    CHECK(encoded_size >= 1 && encoded_size <= view->payload_size,
          "a code stream of %u bytes in a payload of %u", encoded_size, view->payload_size);
    const arrays a = place(elements, encoded_size);
    CHECK(a.size == view->payload_size, "payload is %u bytes where its arrays have %zu", view->payload_size,
          a.size);
    for (uint32_t i = 0; i < view->chunks; i++) {
        const uint8_t *record = view->descriptors + (size_t)i * TP_DESCRIPTOR_SIZE;
        size_t start;
        const uint32_t n = (uint32_t)(tp_frame_chunk(view, i, &start) / 2);
        CHECK(record[21] == TP_MODE_DF11, "descriptor %u: mode %u in codec df11", i, record[21]);
        CHECK(tp_load32(record + 16) == n, "descriptor %u: has %u elements where %u belong", i,
              tp_load32(record + 16), n);
        CHECK(all_zero(record, 16) && record[20] == 0 && tp_load16(record + 22) == 0,
              "descriptor %u: a field that codec df11 does not have", i);
    }
    view->df11 = (tp_df11_unit){
        .luts = view->symbol_table,
        .luts_size = 256 * (uint64_t)view->symbol_tables,
        .output_positions = view->payload + a.positions,
        .positions_size = 4 * ((uint64_t)a.blocks + 1),
        .gaps = view->payload + a.gaps,
        .gaps_size = (uint64_t)a.blocks * TP_DF11_BLOCK_GAPS,
        .encoded_exponent = view->payload + a.encoded,
        .encoded_size = encoded_size,
        .sign_mantissa = view->payload + a.sign_mantissa,
        .elements = elements,
    };
    const tp_df11_unit *u = &view->df11;
    CHECK(all_zero(u->output_positions + u->positions_size,
                   a.gaps - a.positions - (size_t)u->positions_size) &&
              all_zero(u->gaps + u->gaps_size, a.encoded - a.gaps - (size_t)u->gaps_size) &&
              all_zero(u->encoded_exponent + encoded_size, a.sign_mantissa - a.encoded - encoded_size) &&
              all_zero(u->sign_mantissa + elements, a.size - a.sign_mantissa - (size_t)elements),
          "padding is not zero");
    tp_error inner;
    const tp_status status = tp_df11_open(u, decoder, &inner);
    return status ? tp_error_set(error, status, "frame: %s", inner.message) : TP_OK;
}
