/*
 * XXH3-64, seed 0, of decoded chunks: one a warp, in the output. Written from the algorithm's specification; the
 * constants are the specification's default secret.
 *
 * Of the eight accumulators lane l works on number l mod 8, and takes every fourth stripe of a block from l / 8:
 * within a block the sums may be taken in any order, and only the step from block to block is serial.
 */
#ifndef TP_GPU_HASH_H
#define TP_GPU_HASH_H

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 ((u64)0x9E3779B185EBCA87)
#define PRIME64_2 ((u64)0xC2B2AE3D27D4EB4F)
#define PRIME64_3 ((u64)0x165667B19E3779F9)
#define PRIME64_4 ((u64)0x85EBCA77C2B2AE63)
#define PRIME64_5 ((u64)0x27D4EB2F165667C5)
#define PRIME_MX1 ((u64)0x165667919E3779F9)
#define PRIME_MX2 ((u64)0x9FB21C651E98DF25)

/* The secret as words, so that no load is unaligned; one word more than its 192 bytes, never part of a result. */
CONSTANT_TABLE u64 secret_words[25] = {
    0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072, 0x78E5C0CC4EE679CB,
    0x2172FFCC7DD05A82, 0x8E2443F7744608B8, 0x4C263A81E69035E0, 0xCB00C391BB52283C, 0xA32E531B8B65D088,
    0x4EF90DA297486471, 0xD8ACDEA946EF1938, 0x3F349CE33F76FAA8, 0x1D4F0BC7C7BBDCF9, 0x3159B4CD4BE0518A,
    0x647378D9C97E9FC8, 0xC3EBD33483ACC5EA, 0xEB6313FAFFA081C5, 0x49DAF0B751DD0D17, 0x9E68D429265516D3,
    0xFCA1477D58BE162B, 0xCE31D07AD1B8F88F, 0x280416958F3ACB45, 0x7E404BBBCAFBD7AF, 0};

/* Eight bytes of the secret from byte `at`. */
FN u64 secret(u32 at)
{
    const u32 shift = 8 * (at & 7);
    const u64 a = secret_words[at >> 3];
    return shift ? a >> shift | secret_words[(at >> 3) + 1] << (64 - shift) : a;
}

FN u32 read32(GLOBAL const u8 *p) { return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24; }
FN u64 read64(GLOBAL const u8 *p) { return read32(p) | (u64)read32(p + 4) << 32; }

FN u64 xor_shift(u64 v, const int k) { return v ^ v >> k; }
FN u64 avalanche64(u64 v) { return xor_shift(xor_shift(xor_shift(v, 33) * PRIME64_2, 29) * PRIME64_3, 32); }
FN u64 avalanche(u64 v) { return xor_shift(xor_shift(v, 37) * PRIME_MX1, 32); }
FN u64 fold(u64 a, u64 b) { return (a * b) ^ MULHI64(a, b); }
FN u64 rotl64(u64 v, const int k) { return v << k | v >> (64 - k); }
FN u32 swap32(u32 v) { return v << 24 | (v << 8 & 0xff0000) | (v >> 8 & 0xff00) | v >> 24; }
FN u64 swap64(u64 v) { return (u64)swap32((u32)v) << 32 | swap32((u32)(v >> 32)); }

FN u64 mix16(GLOBAL const u8 *p, u32 at) { return fold(read64(p) ^ secret(at), read64(p + 8) ^ secret(at + 8)); }

/* At most 240 bytes. */
FN u64 hash_short(GLOBAL const u8 *p, u32 n)
{
    if (n == 0) return avalanche64(secret(56) ^ secret(64));
    if (n <= 3) {
        const u32 all = (u32)p[0] << 16 | (u32)p[n >> 1] << 24 | (u32)p[n - 1] | n << 8;
        return avalanche64(all ^ (u64)((u32)secret(0) ^ (u32)secret(4)));
    }
    if (n <= 8) {
        u64 v = (read32(p + n - 4) | (u64)read32(p) << 32) ^ secret(8) ^ secret(16);
        v ^= rotl64(v, 49) ^ rotl64(v, 24);
        v *= PRIME_MX2;
        v ^= (v >> 35) + n;
        v *= PRIME_MX2;
        return xor_shift(v, 28);
    }
    if (n <= 16) {
        const u64 a = read64(p) ^ secret(24) ^ secret(32), b = read64(p + n - 8) ^ secret(40) ^ secret(48);
        return avalanche(n + swap64(a) + b + fold(a, b));
    }
    u64 sum = n * PRIME64_1;
    if (n <= 128) {
        for (u32 i = (n - 1) / 32 + 1; i-- > 0;)
            sum += mix16(p + 16 * i, 32 * i) + mix16(p + n - 16 * (i + 1), 32 * i + 16);
        return avalanche(sum);
    }
    for (u32 i = 0; i < 8; i++) sum += mix16(p + 16 * i, 16 * i);
    sum = avalanche(sum);
    u64 more = mix16(p + n - 16, 136 - 17);
    for (u32 i = 8; i < n / 16; i++) more += mix16(p + 16 * i, 16 * (i - 8) + 3);
    return avalanche(sum + more);
}

/* Eight bytes of a stripe into a lane's two sums: of its own accumulator, and of the neighbour's. */
FN void accumulate(u64 data, u64 key, u64 *own, u64 *neighbour)
{
    const u64 keyed = data ^ key;
    *own += (u64)(u32)keyed * (u32)(keyed >> 32);
    *neighbour += data;
}

/* Adds the lanes' sums to the accumulators, which four lanes hold each. */
FN void gather(warp_state *wp, u64 *own, const u64 *neighbour, u64 *acc)
{
    u64 other[HELD];
    (void)wp;
    FROM_LANE_XOR(other, neighbour, 1);
    EACH_LANE own[AT] += other[AT];
    FROM_LANE_XOR(other, own, 8);
    EACH_LANE own[AT] += other[AT];
    FROM_LANE_XOR(other, own, 16);
    EACH_LANE acc[AT] += own[AT] + other[AT];
}

/* More than 240 bytes, from an address that is a multiple of 8. In all lanes. */
FN u64 hash_long(warp_state *wp, GLOBAL const u8 *p, u32 n)
{
    u64 acc[HELD], own[HELD], neighbour[HELD];
    const u32 blocks = (n - 1) >> 10;
    EACH_LANE {
        const u32 a = LANE & 7;
        acc[AT] = a == 0   ? (u64)PRIME32_3
                  : a == 1 ? PRIME64_1
                  : a == 2 ? PRIME64_2
                  : a == 3 ? PRIME64_3
                  : a == 4 ? PRIME64_4
                  : a == 5 ? (u64)PRIME32_2
                  : a == 6 ? PRIME64_5
                           : (u64)PRIME32_1;
    }
    for (u32 block = 0; block < blocks; block++) {
        EACH_LANE {
            GLOBAL const u64 *const words = (GLOBAL const u64 *)(p + ((u64)block << 10));
            own[AT] = neighbour[AT] = 0;
            /* stripe 4 * i + l / 8, word l mod 8 of it: word 32 * i + l of the block; its secret starts at word
             * stripe + l mod 8 */
            UNROLL for (u32 i = 0; i < 4; i++)
                accumulate(words[32 * i + LANE], secret_words[4 * i + (LANE >> 3) + (LANE & 7)], &own[AT], &neighbour[AT]);
        }
        gather(wp, own, neighbour, acc);
        EACH_LANE acc[AT] = (xor_shift(acc[AT], 47) ^ secret_words[16 + (LANE & 7)]) * PRIME32_1;
    }
    const u32 stripes = (n - 1 - (blocks << 10)) >> 6; /* whole ones of the last block, but for the very last */
    EACH_LANE {
        own[AT] = neighbour[AT] = 0;
        for (u32 stripe = LANE >> 3; stripe < stripes; stripe += 4)
            accumulate(((GLOBAL const u64 *)(p + ((u64)blocks << 10)))[8 * stripe + (LANE & 7)],
                       secret_words[stripe + (LANE & 7)], &own[AT], &neighbour[AT]);
        if (LANE < 8) /* the last 64 bytes, whatever their alignment */
            accumulate(read64(p + n - 64 + 8 * LANE), secret(192 - 64 - 7 + 8 * LANE), &own[AT], &neighbour[AT]);
    }
    gather(wp, own, neighbour, acc);
    /* Pairs of accumulators are folded, and the four products added. */
    EACH_LANE own[AT] = acc[AT] ^ secret(11 + 8 * (LANE & 7));
    FROM_LANE_XOR(neighbour, own, 1);
    EACH_LANE own[AT] = fold(own[AT], neighbour[AT]);
    FROM_LANE_XOR(neighbour, own, 2);
    EACH_LANE own[AT] += neighbour[AT];
    FROM_LANE_XOR(neighbour, own, 4);
#ifdef TP_LANE_LOOP
    const u32 lane = 0;
#endif
    return avalanche(n * PRIME64_1 + own[AT] + neighbour[AT]);
}

KERNEL_DENSE(4) tp_hash(GLOBAL const u8 *RESTRICT in, GLOBAL u8 *RESTRICT out, GLOBAL const tp_gpu_job *RESTRICT jobs,
               GLOBAL u64 *RESTRICT results, const u32 first, const u32 warps SHARED_PARAMETER)
{
    SHARED_MEMORY
    warp_state state;
    WARP_BEGIN(state, shared)
    EACH_WARP(warps)
    {
        GLOBAL const tp_gpu_job *const job = jobs + first + (u64)GROUP * warps + warp;
        const u32 n = UNIFORM(job->n);
        GLOBAL const u8 *const p = OUTPUT_AT(out, job->out);
        if (n) {
            const u64 hash = n > 240 ? hash_long(&state, p, n) : hash_short(p, n);
#ifdef TP_LANE_LOOP
            results[job->result] = hash;
#else
            if (state.lane == 0) results[job->result] = hash;
#endif
        }
    }
}

#endif
