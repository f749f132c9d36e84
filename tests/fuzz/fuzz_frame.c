/*
 * Frames: any bytes are refused or decoded, within their buffers, and alike by all kernels. Works best in a
 * build with TP_IGNORE_HASHES; in others the hashes of the stored bytes are made right, but those of the
 * decoded bytes stop it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/frame.h"
#include "codec/hash.h"

#define MAX_KERNELS 8
#define MAX_RAW ((uint32_t)1 << 20) /* larger ones only cost time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const tp_kernels *kernels[MAX_KERNELS];
static size_t kernel_count;
static tp_decoder *decoder;

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void start(void)
{
    for (const char *const *name = tp_kernel_names(); *name && kernel_count < MAX_KERNELS; name++) {
        bool available;
        const tp_kernels *k = tp_kernels_find(*name, &available);
        if (k && available) kernels[kernel_count++] = k;
    }
    require(tp_decoder_create(&decoder) == TP_OK, "no memory");
}

static void *exact(size_t size)
{
    void *p = malloc(size ? size : 1);
    require(p != NULL, "no memory");
    return p;
}

/* The public way, as it comes. */
static void decode(const uint8_t *frame, size_t size)
{
    tp_frame_info info;
    tp_error error = {0};
    const tp_status checked = tp_frame_check(frame, size, &info, &error);
    require(checked == TP_OK || (error.status == checked && error.message[0]),
            "an error without a message");
    const size_t capacity = checked == TP_OK ? info.raw_size : 0;
    if (capacity > MAX_RAW) return;
    uint8_t *dst = exact(capacity);
    size_t raw_size;
    const tp_status status = tp_decode(decoder, frame, size, dst, capacity, &raw_size, &error);
    if (checked)
        require(status == checked, "tp_decode and tp_frame_check disagree");
    else
        require(status == TP_CORRUPT || (status == TP_OK && raw_size == capacity), "an impossible status");
    free(dst);
}

/* Validator and decoder apart, every kernel, without and with readable bytes behind the frame. */
static void decode_with_all(const uint8_t *frame, size_t size)
{
    tp_frame_view view;
    if (tp_frame_validate(frame, size, false, &view, NULL) || view.info.raw_size > MAX_RAW) return;
    const uint32_t raw_size = view.info.raw_size;
    uint8_t *first = exact(raw_size);
    tp_decoder_use(decoder, kernels[0]);
    const tp_status expected = tp_frame_decode(decoder, &view, size, first, raw_size, NULL);
    require(expected == TP_OK || expected == TP_CORRUPT, "an impossible status");
    for (size_t k = 0; k < kernel_count; k++) {
        uint8_t *dst = exact(raw_size), *longer = exact(size + TP_SLACK);
        memcpy(longer, frame, size);
        memset(longer + size, 0xff, TP_SLACK);
        tp_decoder_use(decoder, kernels[k]);
        for (size_t slack = 0; slack <= TP_SLACK; slack += TP_SLACK / 2) {
            require(tp_frame_validate(longer, size, false, &view, NULL) == TP_OK, "a copy is not valid");
            memset(dst, 0x5a, raw_size);
            const tp_status status = tp_frame_decode(decoder, &view, size + slack, dst, raw_size, NULL);
            require(status == expected, "kernels disagree");
            require(status || memcmp(dst, first, raw_size) == 0, "kernels decode differently");
        }
        free(dst);
        free(longer);
    }
    free(first);
}

/* Sizes and hashes of the stored bytes as they must be. */
static void repair(uint8_t *frame, size_t size)
{
    const uint64_t directory = 256u * (uint64_t)frame[7] * frame[10] + 512u * (uint64_t)frame[11] +
                               (uint64_t)tp_load32(frame + 24) * TP_DESCRIPTOR_SIZE;
    const uint64_t payload_at = tp_align(TP_FRAME_HEADER + directory, 128);
    uint64_t hash[2];
    memcpy(frame, "TPFR", 4);
    tp_store32(frame + 20, (uint32_t)size);
    if (payload_at <= size)
        tp_store64(frame + 32, tp_hash64(frame + TP_FRAME_HEADER, (size_t)payload_at - TP_FRAME_HEADER));
    memset(frame + 96, 0, 16);
    tp_hash128(frame, size, hash);
    tp_store64(frame + 96, hash[0]);
    tp_store64(frame + 104, hash[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!decoder) start();
    uint8_t *frame = exact(size);
    if (size) memcpy(frame, data, size);
    decode(frame, size);
    decode_with_all(frame, size);
    free(frame);

    const size_t whole = size / 128 * 128;
    if (whole < TP_FRAME_MIN_STORED || whole > TP_FRAME_MAX_STORED) return 0;
    frame = exact(whole);
    memcpy(frame, data, whole);
    repair(frame, whole);
    decode(frame, whole);
    decode_with_all(frame, whole);
    free(frame);
    return 0;
}
