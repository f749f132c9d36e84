#include "synthetic.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* More than the elements of any frame but those of one byte, so that no frame repeats itself. */
#define POOL_SIZE ((size_t)1 << 22)
#define SIGMA 0.02f /* of the weights of a typical linear layer */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state; /* xorshift64* */
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545f4914f6cdd1du;
}

/* In (0, 1]: the logarithm of 0 is not wanted. */
static double next_unit(uint64_t *state)
{
    return (double)((next_random(state) >> 11) + 1) * 0x1p-53;
}

float *synthetic_pool(void)
{
    float *pool = malloc(POOL_SIZE * sizeof *pool);
    if (!pool) return NULL;
    uint64_t state = 20250101;
    for (size_t i = 0; i < POOL_SIZE; i += 2) { /* Box and Muller */
        double radius = sqrt(-2.0 * log(next_unit(&state))), angle = 6.283185307179586 * next_unit(&state);
        pool[i] = (float)(radius * cos(angle));
        pool[i + 1] = (float)(radius * sin(angle));
    }
    return pool;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/*
 * value as a small float with so many exponent and mantissa bits, rounded to the nearest, ties to even,
 * subnormals included; what is too large becomes the largest finite number.
 */
static unsigned small_float(float value, unsigned exponent_bits, unsigned mantissa_bits, unsigned largest)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    unsigned sign = value < 0 ? 1u << (exponent_bits + mantissa_bits) : 0;
    float magnitude = fabsf(value);
    if (magnitude == 0) return sign;
    int exponent = ilogbf(magnitude);
    if (exponent < 1 - bias)
        exponent = 1 - bias; /* subnormal: its steps are those of the smallest normal */
    /* In steps of the last mantissa bit; rintf rounds ties to even. */
    unsigned steps = (unsigned)rintf(ldexpf(magnitude, (int)mantissa_bits - exponent));
    unsigned code = ((unsigned)(exponent + bias - 1) << mantissa_bits) + steps;
    return sign | (code < largest ? code : largest);
}

/* Words of a small vocabulary, the earlier the commoner: something like text. */
static void fill_text(unsigned char *dst, size_t size)
{
    uint64_t state = 7;
    for (size_t i = 0; i < size;) {
        uint64_t rank = (uint64_t)(2000.0 * pow(next_unit(&state), 3.0)), word = rank * 0x9e3779b97f4a7c15u;
        size_t length = 2 + (size_t)(word >> 61);
        for (size_t k = 0; k < length && i < size; k++)
            dst[i++] = (unsigned char)('a' + (word >> 5 * k) % 26);
        if (i < size) dst[i++] = rank % 16 == 0 ? '\n' : ' ';
    }
}

void synthetic_fill(tp_class cls, const float *pool, void *dst, size_t size)
{
    unsigned char *out = dst;
    size_t element = tp_class_element_size(cls);
    if (cls == TP_CLASS_BYTES) {
        fill_text(out, size);
        return;
    }
    for (size_t i = 0; i < size / element; i++) {
        float normal = pool[i % POOL_SIZE], weight = SIGMA * normal;
        uint64_t bits;
        double wide;
        switch (cls) {
        case TP_CLASS_BF16:
            bits = bits_of(weight);
            bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            break;
        case TP_CLASS_F16:
            bits = small_float(weight, 5, 10, 0x7bff);
            break;
        case TP_CLASS_F32:
            bits = bits_of(weight);
            break;
        case TP_CLASS_F64:
            /* A second number fills the bits that a float does not have. */
            wide = (double)weight + (double)pool[(i + 1) % POOL_SIZE] * 0x1p-32;
            memcpy(&bits, &wide, sizeof bits);
            break;
        /* Scaled as quantisers do: the largest weight comes near the largest number. */
        case TP_CLASS_E4M3:
            bits = small_float(normal * 80, 4, 3, 0x7e);
            break;
        case TP_CLASS_E5M2:
            bits = small_float(normal * 10000, 5, 2, 0x7b);
            break;
        case TP_CLASS_I8:
            bits = (uint64_t)(int64_t)lrintf(fminf(fmaxf(normal * 28, -127), 127));
            break;
        case TP_CLASS_I16:
            bits = (uint64_t)(int64_t)lrintf(fminf(fmaxf(normal * 4000, -32767), 32767));
            break;
        default:
            bits = (uint64_t)llrintf(fabsf(normal) * 10000);
            break; /* token and position numbers */
        }
        memcpy(out + i * element, &bits, element); /* little-endian */
    }
}
