#include "support.h"

#include "codec/bytes.h"
#include "codec/hash.h"

rng rng_make(uint64_t seed)
{
    return (rng){seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du};
}

uint64_t rng_next(rng *r) /* splitmix64 */
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t rng_below(rng *r, uint32_t limit)
{
    return (uint32_t)((rng_next(r) >> 32) * limit >> 32);
}

void rng_fill(rng *r, void *dst, size_t size)
{
    uint8_t *p = dst;
    for (; size >= 8; size -= 8, p += 8) tp_store64(p, rng_next(r));
    for (; size; size--) *p++ = (uint8_t)rng_next(r);
}

double rng_normal(rng *r)
{
    int64_t sum = 0; /* of twelve uniform numbers: mean 0 and variance 1, and no libm */
    for (unsigned i = 0; i < 6; i++) {
        const uint64_t v = rng_next(r);
        sum += (int64_t)(v >> 32) + (int64_t)(v & 0xffffffff);
    }
    return (double)(sum - (int64_t)6 * 0xffffffff) / 4294967296.0;
}

int fail_allocation = -1;

static bool allocation_fails(void)
{
    return fail_allocation >= 0 && fail_allocation-- == 0;
}

/* The linker puts these in place of the real ones (--wrap). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return allocation_fails() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return allocation_fails() ? NULL : __real_aligned_alloc(alignment, size);
}

void *exact(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    return p;
}

void *exact_copy(const void *data, size_t size)
{
    void *p = exact(size);
    if (size) memcpy(p, data, size);
    return p;
}

/* ---------------------------------------------------------------------------------------------- data */

const char *data_kind_name(data_kind kind)
{
#define NAME(name, text) [name] = text,
    static const char *const names[] = {DATA_KIND_LIST(NAME)};
#undef NAME
    return names[kind];
}

/* exponent and mantissa bits of the float classes; mantissa 0: not a float */
static const struct {
    unsigned exponent, mantissa;
} floats[TP_CLASS_COUNT] = {
    [TP_CLASS_BF16] = {8, 7},  [TP_CLASS_F16] = {5, 10}, [TP_CLASS_F32] = {8, 23},
    [TP_CLASS_F64] = {11, 52}, [TP_CLASS_E4M3] = {4, 3}, [TP_CLASS_E5M2] = {5, 2},
};

/* The bits of v in a float class, mantissa truncated; out of range becomes 0 or the largest. */
static uint64_t float_bits(double v, unsigned exponent, unsigned mantissa)
{
    uint64_t d;
    memcpy(&d, &v, sizeof d);
    const uint64_t sign = d >> 63, fraction = (d & 0xfffffffffffffu) >> (52 - mantissa);
    int64_t e = (int64_t)(d >> 52 & 0x7ff) - 1023 + (1 << (exponent - 1)) - 1;
    if (e <= 0 || (d & 0x7ff0000000000000u) == 0) return sign << (exponent + mantissa);
    if (e >= (1 << exponent) - 1) e = (1 << exponent) - 2;
    return sign << (exponent + mantissa) | (uint64_t)e << mantissa | fraction;
}

static uint64_t weight(tp_class cls, rng *r, double scale)
{
    const double v = rng_normal(r) * scale;
    if (floats[cls].mantissa) return float_bits(v, floats[cls].exponent, floats[cls].mantissa);
    return (uint64_t)(int64_t)(v * (cls == TP_CLASS_I8 ? 1000 : 5000)); /* small numbers of both signs */
}

static uint64_t special(data_kind kind, tp_class cls, rng *r)
{
    const unsigned e = floats[cls].exponent, m = floats[cls].mantissa;
    const uint64_t sign = (rng_next(r) & 1) << (e + m), ones = (((uint64_t)1 << e) - 1) << m;
    const uint64_t fraction = rng_next(r) & (((uint64_t)1 << m) - 1);
    if (!m) return rng_next(r) & 1 ? rng_next(r) : (uint64_t)1 << rng_below(r, 64);
    switch (kind) {
    case DATA_NAN:
        return sign | ones | (fraction ? fraction : 1);
    case DATA_INFINITE:
        return sign | ones;
    case DATA_SUBNORMAL:
        return sign | fraction;
    default:
        return sign;
    }
}

static uint64_t element(data_kind kind, tp_class cls, rng *r, size_t i)
{
    const unsigned m = floats[cls].mantissa;
    switch (kind) {
    case DATA_WEIGHTS:
        return weight(cls, r, 0.02);
    case DATA_RANDOM:
        return rng_next(r);
    case DATA_NAN:
    case DATA_INFINITE:
        return rng_below(r, 4) ? weight(cls, r, 0.02) : special(kind, cls, r);
    case DATA_NEGATIVE_ZERO:
    case DATA_SUBNORMAL:
        return special(kind, cls, r);
    case DATA_UPCAST:
        return weight(cls, r, 0.02) & ~(((uint64_t)1 << (m ? (m + 1) / 2 : 2)) - 1);
    case DATA_RAMP:
        return m ? float_bits((double)i * 0.001, floats[cls].exponent, m) : (uint64_t)i;
    case DATA_SPARSE:
        return rng_below(r, 20) ? 0 : weight(cls, r, 0.02);
    default:
        return 0;
    }
}

void make_data(data_kind kind, tp_class cls, rng *r, uint8_t *dst, size_t n)
{
    static const char words[] = "the quick brown fox jumps over a lazy dog; ";
    const size_t size = tp_class_element_size(cls);
    const uint64_t first = rng_next(r), second = rng_next(r);
    for (size_t i = 0; i < n; i++, dst += size) {
        uint64_t v;
        if (kind == DATA_CONSTANT)
            v = first;
        else if (kind == DATA_TWO)
            v = rng_below(r, 5) ? first : second;
        else if (cls == TP_CLASS_BYTES && kind == DATA_WEIGHTS)
            v = (uint8_t)words[rng_below(r, 8) ? i % (sizeof words - 1) : rng_below(r, sizeof words - 1)];
        else
            v = element(kind, cls, r, i);
        memcpy(dst, &v, size);
    }
}

/* -------------------------------------------------------------------------------------------- frames */

size_t frame_payload_at(const uint8_t *frame, size_t size)
{
    const uint64_t directory = 256u * (uint64_t)frame[7] * frame[10] + 512u * (uint64_t)frame[11] +
                               (uint64_t)tp_load32(frame + 24) * TP_DESCRIPTOR_SIZE;
    const uint64_t at = tp_align(TP_FRAME_HEADER + directory, 128);
    return at <= size ? (size_t)at : 0;
}

void frame_rehash(uint8_t *frame, size_t size)
{
    const size_t payload_at = frame_payload_at(frame, size);
    uint64_t hash[2];
    if (payload_at)
        tp_store64(frame + 32, tp_hash64(frame + TP_FRAME_HEADER, payload_at - TP_FRAME_HEADER));
    memset(frame + 96, 0, 16);
    tp_hash128(frame, size, hash);
    tp_store64(frame + 96, hash[0]);
    tp_store64(frame + 104, hash[1]);
}

/* ------------------------------------------------------------------------------------------- kernels */

size_t all_kernels(const tp_kernels *kernels[MAX_KERNELS])
{
    size_t n = 0;
    for (const char *const *name = tp_kernel_names(); *name; name++) {
        bool available;
        const tp_kernels *k = tp_kernels_find(*name, &available);
        assert_non_null(k);
        assert_in_range(n, 0, MAX_KERNELS - 1);
        if (available) kernels[n++] = k;
    }
    return n;
}

size_t bulk_step(void)
{
    const size_t step = (size_t)number_from_environment("TP_TEST_BIT_STEP", TP_SANITIZED ? 13 : 1);
    return step ? step : 1;
}

unsigned long long number_from_environment(const char *name, unsigned long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}
