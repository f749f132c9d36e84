/*
 * A running XXH3-128 at the speed of the library's one-shot functions: the library's own streaming form
 * runs at a third of it. Data of up to 240 bytes is the library's. Part of avx512.c and avx512bw.c.
 *
 * XXH3: 1024-byte blocks of 16 stripes are added to eight 64-bit accumulators, which are scrambled after
 * each block that is not the last. Then come the whole stripes of the last block but its last byte's, and
 * once more the last 64 bytes, with another piece of the secret.
 */
#ifndef TP_CODEC_AVX512_HASH_H
#define TP_CODEC_AVX512_HASH_H

#define HASH_BLOCK ((size_t)1024)
#define HASH_STRIPE ((size_t)64)
#define HASH_SHORT ((size_t)240)
#define HASH_P32_1 0x9E3779B1u
#define HASH_P32_2 0x85EBCA77u
#define HASH_P32_3 0xC2B2AE3Du
#define HASH_P64_1 0x9E3779B185EBCA87u
#define HASH_P64_2 0xC2B2AE3D27D4EB4Fu
#define HASH_P64_3 0x165667B19E3779F9u
#define HASH_P64_4 0x85EBCA77C2B2AE63u
#define HASH_P64_5 0x27D4EB2F165667C5u
/* Places in the secret, of 192 bytes. */
#define HASH_SECRET_LAST (192 - 64 - 7)
#define HASH_SECRET_SCRAMBLE (192 - 64)
#define HASH_SECRET_LOW 11
#define HASH_SECRET_HIGH (192 - 64 - 11)

/* Blocks of `size` bytes that are followed by more. */
static INLINE size_t hash_blocks_of(size_t size)
{
    return size ? (size - 1) / HASH_BLOCK : 0;
}

static INLINE __m512i hash_start(void)
{
    return _mm512_set_epi64((long long)HASH_P32_1, (long long)HASH_P64_5, (long long)HASH_P32_2,
                            (long long)HASH_P64_4, (long long)HASH_P64_3, (long long)HASH_P64_2,
                            (long long)HASH_P64_1, (long long)HASH_P32_3);
}

static INLINE __m512i hash_stripe(__m512i acc, const uint8_t *p, __m512i secret)
{
    __m512i data = _mm512_loadu_si512(p), key = _mm512_xor_si512(data, secret);
    __m512i product = _mm512_mul_epu32(key, _mm512_srli_epi64(key, 32));
    return _mm512_add_epi64(product, _mm512_add_epi64(acc, _mm512_shuffle_epi32(data, _MM_PERM_BADC)));
}

static INLINE __m512i hash_secret(size_t at)
{
    return _mm512_loadu_si512(XXH3_kSecret + at);
}

/* Worth a tenth: frames come from far, and the processor's own prefetchers end with a page. */
#define HASH_AHEAD 4096

static NOINLINE __m512i hash_blocks(__m512i acc, const uint8_t *p, size_t blocks)
{
    const __m512i secret = hash_secret(HASH_SECRET_SCRAMBLE);
    __m512i stripe[16]; /* in registers: from memory, they would cross cache lines */
    UNROLL for (int i = 0; i < 16; i++)
    {
        stripe[i] = hash_secret(8 * (size_t)i);
        __asm__("" : "+v"(stripe[i])); /* not to be loaded again */
    }
    const __m512i prime = _mm512_set1_epi64((long long)HASH_P32_1);
    for (; blocks; blocks--, p += HASH_BLOCK) {
        __m512i other = _mm512_setzero_si512(); /* sums commute: two chains */
        UNROLL for (int i = 0; i < 16; i += 2)
        {
            PREFETCH(p + HASH_AHEAD + 64 * i);
            PREFETCH(p + HASH_AHEAD + 64 * i + 64);
            acc = hash_stripe(acc, p + 64 * i, stripe[i]);
            other = hash_stripe(other, p + 64 * i + 64, stripe[i + 1]);
        }
        acc = _mm512_add_epi64(acc, other);
        __m512i key = _mm512_ternarylogic_epi64(acc, _mm512_srli_epi64(acc, 47), secret, 0x96);
        __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(key, 32), prime);
        acc = _mm512_add_epi64(_mm512_mul_epu32(key, prime), _mm512_slli_epi64(high, 32));
    }
    return acc;
}

/* The bytes behind the whole blocks: 1 to 1024 at p, before which lie as many more as make 64. */
static __m512i hash_last_block(__m512i acc, const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < (size - 1) / HASH_STRIPE; i++)
        acc = hash_stripe(acc, p + HASH_STRIPE * i, hash_secret(8 * i));
    return hash_stripe(acc, p + size - HASH_STRIPE, hash_secret(HASH_SECRET_LAST));
}

static uint64_t hash_merge(__m512i state, size_t secret_at, uint64_t start)
{
    _Alignas(64) uint64_t acc[8];
    const uint8_t *secret = XXH3_kSecret + secret_at;
    _mm512_store_si512(acc, state);
    for (int i = 0; i < 4; i++) {
        const unsigned __int128 product = (unsigned __int128)(acc[2 * i] ^ tp_load64(secret + 16 * i)) *
                                          (acc[2 * i + 1] ^ tp_load64(secret + 16 * i + 8));
        start += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    start ^= start >> 37;
    start *= 0x165667919E3779F9u;
    return start ^ start >> 32;
}

typedef struct hasher {
    uint64_t acc[8];
    uint64_t size;
    size_t held; /* bytes of the block: 0 only at the start, as a block is taken when more follows */
    /* What went before the block, for the last stripe; the block. */
    uint8_t bytes[HASH_STRIPE + HASH_BLOCK];
} hasher;
_Static_assert(sizeof(hasher) <= TP_HASHER_STATE, "tp_hasher holds a hasher");

static void hasher_init(void *state)
{
    hasher *h = state;
    _mm512_storeu_si512(h->acc, hash_start());
    h->size = 0;
    h->held = 0;
}

static void hasher_add(void *state, const void *data, size_t size)
{
    hasher *h = state;
    uint8_t *const before = h->bytes, *const block = h->bytes + HASH_STRIPE;
    const uint8_t *p = data;
    if (!size) return;
    __m512i acc = _mm512_loadu_si512(h->acc);
    h->size += size;
    if (h->held) {
        size_t part = HASH_BLOCK - h->held;
        if (part > size) part = size;
        memcpy(block + h->held, p, part);
        h->held += part;
        p += part;
        size -= part;
        if (!size) return;
        acc = hash_blocks(acc, block, 1); /* it is full, and more follows */
        memcpy(before, block + HASH_BLOCK - HASH_STRIPE, HASH_STRIPE);
    }
    const size_t blocks = hash_blocks_of(size);
    _mm512_storeu_si512(h->acc, hash_blocks(acc, p, blocks));
    p += blocks * HASH_BLOCK;
    size -= blocks * HASH_BLOCK;
    if (blocks) memcpy(before, p - HASH_STRIPE, HASH_STRIPE);
    memcpy(block, p, size);
    h->held = size;
}

static void hasher_end(const void *state, uint64_t hash[2])
{
    const hasher *h = state;
    if (h->size <= HASH_SHORT) {
        hash128(h->bytes + HASH_STRIPE, (size_t)h->size, hash);
        return;
    }
    const __m512i acc = hash_last_block(_mm512_loadu_si512(h->acc), h->bytes + HASH_STRIPE, h->held);
    hash[0] = hash_merge(acc, HASH_SECRET_LOW, h->size * HASH_P64_1);
    hash[1] = hash_merge(acc, HASH_SECRET_HIGH, ~(h->size * HASH_P64_2));
}

#endif
