/* The self-test of a kernel: every class and level on awkward data, compared with the portable kernel. */
#include <stdlib.h>
#include <string.h>

#include "codec/frame.h"

#define SIZE ((size_t)300 * 1024) /* more than a chunk of the small classes, not a multiple of a group */

static uint64_t next(uint64_t *seed) /* xorshift64 */
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Bytes whose top byte of every `element` has a steep distribution, with some of everything thrown in. */
static void pattern(uint8_t *data, size_t size, size_t element, unsigned kind, uint64_t seed)
{
    for (size_t i = 0; i < size; i++) data[i] = kind == 2 ? 0x3f : (uint8_t)next(&seed);
    if (kind != 0) return;
    for (size_t i = 0; i + element <= size; i += element) {
        const uint64_t r = next(&seed);
        if (r % 1000 == 0) continue;
        const unsigned depth = r >> 10 ? (unsigned)__builtin_ctzll(r >> 10) : 0;
        data[i + element - 1] = (uint8_t)((r >> 60 & 1) << 7 | (0x3c - (depth & 15)));
    }
}

typedef struct self_test {
    tp_encoder *encoder;
    tp_decoder *decoder;
    uint8_t *raw, *expected, *made, *decoded;
} self_test;

static tp_status run(self_test *t, const tp_kernels *kernels, tp_class cls, tp_level level, unsigned kind,
                     tp_error *error)
{
    const size_t element = tp_class_element_size(cls), size = SIZE / element * element;
    size_t expected_size, made_size, raw_size;
    pattern(t->raw, size, element, kind, 0x9e3779b97f4a7c15u + (uint64_t)cls);
    tp_encoder_use(t->encoder, &tp_kernels_portable);
    tp_status status = tp_encode(t->encoder, cls, level, TP_CODEC_AUTO, t->raw, size, t->expected,
                                 tp_encode_bound(size), &expected_size);
    if (status) return tp_error_set(error, status, "self-test: %s", tp_status_message(status));
    tp_encoder_use(t->encoder, kernels);
    status = tp_encode(t->encoder, cls, level, TP_CODEC_AUTO, t->raw, size, t->made, tp_encode_bound(size),
                       &made_size);
    if (status) return tp_error_set(error, status, "self-test: %s", tp_status_message(status));
    if (made_size != expected_size || memcmp(t->made, t->expected, made_size) != 0)
        return tp_error_set(error, TP_MISMATCH, "kernel %s encodes %s differently from the portable one",
                            kernels->name, tp_class_name(cls));
    tp_decoder_use(t->decoder, kernels);
    memset(t->decoded, 0, size);
    status = tp_decode(t->decoder, t->made, made_size, t->decoded, size, &raw_size, error);
    if (status) return status;
    if (raw_size != size || memcmp(t->decoded, t->raw, size) != 0)
        return tp_error_set(error, TP_MISMATCH, "kernel %s does not decode %s to what was encoded",
                            kernels->name, tp_class_name(cls));
    return TP_OK;
}

tp_status tp_kernel_self_test(const char *name, tp_error *error)
{
    bool available;
    const tp_kernels *kernels = tp_kernels_find(name, &available);
    if (!kernels) return tp_error_set(error, TP_NOT_FOUND, "there is no kernel '%s'", name);
    if (!available) return tp_error_set(error, TP_UNSUPPORTED, "this CPU cannot run kernel '%s'", name);

    self_test t = {0};
    tp_status status = TP_NO_MEMORY;
    t.raw = malloc(SIZE);
    t.decoded = malloc(SIZE);
    t.expected = malloc(tp_encode_bound(SIZE));
    t.made = malloc(tp_encode_bound(SIZE));
    if (t.raw && t.decoded && t.expected && t.made && !tp_encoder_create(&t.encoder) &&
        !tp_decoder_create(&t.decoder)) {
        status = TP_OK;
        for (int cls = 0; cls < TP_CLASS_COUNT && !status; cls++)
            for (int level = 0; level <= TP_LEVEL_MAX && !status; level++)
                for (unsigned kind = 0; kind < 3 && !status; kind++)
                    status = run(&t, kernels, (tp_class)cls, (tp_level)level, kind, error);
    } else {
        tp_error_set(error, status, "self-test: %s", tp_status_message(status));
    }
    tp_encoder_destroy(t.encoder);
    tp_decoder_destroy(t.decoder);
    free(t.raw);
    free(t.decoded);
    free(t.expected);
    free(t.made);
    return status;
}
