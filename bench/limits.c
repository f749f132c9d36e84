/*
 * What bounds the speed of the codec: parts of its work by themselves, for bench/compare. A module that
 * Python loads; not part of the library.
 *
 * The decoder is compiled once more, without comparing hashes, so that it also runs with kernels that
 * compute none.
 */
#define TP_IGNORE_HASHES
#include "codec/decode.c" /* in place of the one in tp_codec */

#include <sys/mman.h>

#define PUBLIC __attribute__((visibility("default")))

typedef struct limits {
    tp_kernels kernels;
    tp_decoder *decoder;
    tp_encoder *encoder;
} limits;

/* Frames as bench/compare keeps them: the raw bytes in pieces of TP_FRAME_MAX_RAW, a slot for each. */
typedef struct limits_frames {
    uint8_t *raw;
    size_t raw_size;
    uint8_t *frames;
    size_t slot;
    size_t *sizes; /* of each frame */
} limits_frames;

static uint64_t no_hash64(const void *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}

static void no_hash128(const void *data, size_t size, uint64_t hash[2])
{
    (void)data, (void)size;
    hash[0] = hash[1] = 0;
}

PUBLIC void limits_close(limits *l);
PUBLIC tp_status limits_open(const char *kernel, int hashes, limits **opened);
PUBLIC tp_status limits_decode(limits *l, const limits_frames *f, int stored_hash, int times);
PUBLIC tp_status limits_encode(limits *l, const limits_frames *f, int cls, int level);
PUBLIC uint64_t limits_hash_chunks(limits *l, const limits_frames *f, size_t chunk);
PUBLIC uint64_t limits_hash_stored(limits *l, const limits_frames *f);
PUBLIC int limits_touch(size_t size);

void limits_close(limits *l)
{
    if (!l) return;
    tp_decoder_destroy(l->decoder);
    tp_encoder_destroy(l->encoder);
    free(l);
}

/* A decoder and an encoder with the named kernel, and with or without its hashes. */
tp_status limits_open(const char *kernel, int hashes, limits **opened)
{
    bool available;
    const tp_kernels *kernels = tp_kernels_find(kernel, &available);
    if (!kernels || !available) return TP_UNSUPPORTED;
    limits *l = calloc(1, sizeof *l);
    if (!l || tp_decoder_create(&l->decoder) || tp_encoder_create(&l->encoder)) {
        limits_close(l);
        return TP_NO_MEMORY;
    }
    l->kernels = *kernels;
    if (!hashes) {
        l->kernels.hash64 = no_hash64;
        l->kernels.hash128 = no_hash128;
    }
    tp_decoder_use(l->decoder, &l->kernels);
    tp_encoder_use(l->encoder, &l->kernels);
    *opened = l;
    return TP_OK;
}

static size_t piece(const limits_frames *f, size_t at)
{
    return f->raw_size - at < TP_FRAME_MAX_RAW ? f->raw_size - at : TP_FRAME_MAX_RAW;
}

/* Each frame `times` times before the next one: from the second time on it lies in the cache. */
tp_status limits_decode(limits *l, const limits_frames *f, int stored_hash, int times)
{
    for (size_t at = 0, i = 0; at < f->raw_size; at += TP_FRAME_MAX_RAW, i++) {
        for (int n = 0; n < times; n++) {
            tp_frame_view view;
            tp_status status =
                tp_frame_validate(f->frames + i * f->slot, f->sizes[i], stored_hash, &view, NULL);
            if (status == TP_OK)
                status = tp_frame_decode(l->decoder, &view, f->sizes[i], f->raw + at, piece(f, at), NULL);
            if (status) return status;
        }
    }
    return TP_OK;
}

/* Overwrites the frames; without hashes they decode here only. */
tp_status limits_encode(limits *l, const limits_frames *f, int cls, int level)
{
    for (size_t at = 0, i = 0; at < f->raw_size; at += TP_FRAME_MAX_RAW, i++) {
        const tp_status status =
            tp_encode(l->encoder, (tp_class)cls, (tp_level)level, TP_CODEC_AUTO, f->raw + at, piece(f, at),
                      f->frames + i * f->slot, f->slot, &f->sizes[i]);
        if (status) return status;
    }
    return TP_OK;
}

/* XXH3-64 of the raw bytes in pieces of `chunk`. The result keeps the compiler from leaving it out. */
uint64_t limits_hash_chunks(limits *l, const limits_frames *f, size_t chunk)
{
    uint64_t sum = 0;
    for (size_t at = 0; at < f->raw_size; at += chunk)
        sum += l->kernels.hash64(f->raw + at, f->raw_size - at < chunk ? f->raw_size - at : chunk);
    return sum;
}

/* XXH3-128 of each frame as stored. */
uint64_t limits_hash_stored(limits *l, const limits_frames *f)
{
    uint64_t sum = 0, hash[2];
    for (size_t at = 0, i = 0; at < f->raw_size; at += TP_FRAME_MAX_RAW, i++) {
        l->kernels.hash128(f->frames + i * f->slot, f->sizes[i], hash);
        sum += hash[0];
    }
    return sum;
}

/* Fresh memory: the first byte of every page is written, and all is given back. 0: done. */
int limits_touch(size_t size)
{
    uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -1;
    madvise(memory, size, MADV_NOHUGEPAGE); /* as files' pages are */
    for (size_t at = 0; at < size; at += 4096) ((volatile uint8_t *)memory)[at] = 1;
    return munmap(memory, size);
}
