/*
 * Words to the lanes that take one, and from those that give one, for instruction sets that can only
 * shuffle bytes within 16.
 */
#ifndef TP_CODEC_LANE_WORDS_H
#define TP_CODEC_LANE_WORDS_H

#include <stdint.h>

/* By mask of the lanes: which bytes of the next words go to which lane, zeros to the others. */
#define TAKE(mask, lane)                                                                                   \
    ((mask) >> (lane)&1                                                                                    \
         ? 0x80800100u + 0x0202u * (unsigned)__builtin_popcount((mask) & ((1 << (lane)) - 1))              \
         : 0x80808080u)
#define TAKES1(m)                                                                                          \
    {                                                                                                      \
        TAKE(m, 0), TAKE(m, 1), TAKE(m, 2), TAKE(m, 3), TAKE(m, 4), TAKE(m, 5), TAKE(m, 6), TAKE(m, 7)     \
    }
#define TAKES4(m) TAKES1(m), TAKES1((m) + 1), TAKES1((m) + 2), TAKES1((m) + 3)
#define TAKES16(m) TAKES4(m), TAKES4((m) + 4), TAKES4((m) + 8), TAKES4((m) + 12)
#define TAKES64(m) TAKES16(m), TAKES16((m) + 16), TAKES16((m) + 32), TAKES16((m) + 48)
static const _Alignas(64) uint32_t takes[256][8] = {TAKES64(0), TAKES64(64), TAKES64(128), TAKES64(192)};

/* By mask of 8 lanes: which bytes of their words (u16) come to stand at the end of 16, one behind another.
 */
#define GIVE(v, mask, lane)                                                                                \
    ((v) >> 16 * ((mask) >> (lane)&1) | (unsigned __int128)((mask) >> (lane)&1) * (0x100 + 0x202 * (lane)) \
                                            << 112)
#define GIVES1(m)                                                                                          \
    GIVE(                                                                                                  \
        GIVE(GIVE(GIVE(GIVE(GIVE(GIVE(GIVE((unsigned __int128)0, m, 0), m, 1), m, 2), m, 3), m, 4), m, 5), \
             m, 6),                                                                                        \
        m, 7)
#define GIVES4(m) GIVES1(m), GIVES1((m) + 1), GIVES1((m) + 2), GIVES1((m) + 3)
#define GIVES16(m) GIVES4(m), GIVES4((m) + 4), GIVES4((m) + 8), GIVES4((m) + 12)
#define GIVES64(m) GIVES16(m), GIVES16((m) + 16), GIVES16((m) + 32), GIVES16((m) + 48)
static const unsigned __int128 gives[256] = {GIVES64(0), GIVES64(64), GIVES64(128), GIVES64(192)};

#endif
