/*
 * Streams to elements: W32, pairs and wide (docs/format.md section 7), one chunk a warp.
 *
 * A kernel is an instance for one shape, so that masks and shifts are constants: T, R, low and c as in the format,
 * K = 10, or 12 for wide; rotated: a float class. With `strided` a unit is the T-bit top part alone, and units lie
 * job.stride bytes apart: the low bytes are other parts' business (low_coded frames, byte planes).
 *
 * The host has validated the frame (codec/frame.h). Beyond that a stream can go wrong only by its words and states:
 * the words are counted once a group, of at most 1024 words, so that reads stay within TP_SLACK of the payload's
 * end. What is written is bounded by n alone.
 */
#ifndef TP_GPU_STREAM_H
#define TP_GPU_STREAM_H

#define SHAPE const int K, const int T, const int R, const int low, const int c, const int rotated, const int strided
#define SAME_SHAPE K, T, R, low, c, rotated, strided

/*
 * Tables in local memory, one of 2^K entries for each of the stream's tables.
 *   K = 10: F << 22 | symbol << VALUE | bias; pairs: this without the symbol, then the pair's bits in place
 *   K = 12: F << 20 | bias << 8 | symbol
 * VALUE is such that the symbol lies across bytes 1 and 2, where one PRMT fetches those of two entries.
 */
#define VALUE (T == 16 ? 10 : 14 + R)

/* u32 of one table */
#define TABLE_WORDS (K == 12 ? 4096 : 1024 * c)

FN u32 pair_bits(u32 symbol, const int R) { return (symbol & 255) << (R - 1) | (symbol >> 8 & 255) << (R + 15); }

/* By all threads of the work-group. start: where each entry's slots start, and the end of the last. */
FN void build_table(SHAPE, GLOBAL const u8 *record, LOCAL u32 *table, LOCAL u32 *start)
{
    const u32 entries = K == 12 ? 256 : 64 * c;
    GLOBAL const u16 *fields = (GLOBAL const u16 *)record; /* K = 12: F; else F, symbol */
    BARRIER();
    if (TID == 0) {
        u32 sum = 0;
        UNROLL_BY_4 for (u32 i = 0; i < entries; i++) {
            start[i] = sum;
            sum += fields[K == 12 ? i : 2 * i];
        }
        start[entries] = sum;
    }
    BARRIER();
    for (u32 slot = TID; slot < 1u << K; slot += NTHREADS) {
        u32 entry = 0; /* the last one that starts at this slot or before: it has a frequency */
        for (u32 reach = entries / 2; reach; reach >>= 1)
            if (start[entry + reach] <= slot) entry += reach;
        const u32 F = fields[K == 12 ? entry : 2 * entry], bias = (slot - start[entry]) & ((1u << K) - 1);
        const u32 symbol = K == 12 ? entry : fields[2 * entry + 1];
        if (K == 12) {
            table[slot] = F << 20 | bias << 8 | symbol;
        } else if (c == 2) {
            table[2 * slot] = F << 22 | bias;
            table[2 * slot + 1] = pair_bits(symbol, R);
        } else {
            table[slot] = F << 22 | (symbol & ((1u << (T - R)) - 1)) << VALUE | bias;
        }
    }
    BARRIER();
}

/* The entry of slot x mod 2^K; of pairs also the bits. */
FN u32 look_up(SHAPE, table_base table, u32 x, u32 *pair)
{
#ifdef __CUDACC__
    u32 entry;
    if (c == 2)
        asm volatile("{.reg .u32 a; mad.lo.u32 a,%2,8,%3; ld.shared.v2.u32 {%0,%1},[a];}"
                     : "=r"(entry), "=r"(*pair)
                     : "r"(x & 1023), "r"(table));
    else
        asm volatile("{.reg .u32 a; mad.lo.u32 a,%1,4,%2; ld.shared.u32 %0,[a];}"
                     : "=r"(entry)
                     : "r"(x & ((1u << K) - 1)), "r"(table));
    return entry;
#else
    const u32 slot = x & ((1u << K) - 1);
    if (c == 2) *pair = table[2 * slot + 1];
    return table[c * slot];
#endif
}

/*
 * The rest of a step: the states after their symbols, and the words that those below L = 2^K take. All lanes load
 * the word that would be theirs, so that no branch is needed.
 */
FN void advance(SHAPE, warp_state *wp, const u32 *entry, u32 *x, GLOBAL const u16 *words, u32 *taken)
{
    u32 below;
    (void)wp;
    EACH_LANE {
        x[AT] = K == 12 ? (entry[AT] >> 20) * (x[AT] >> 12) + (entry[AT] >> 8 & 4095)
                        : (entry[AT] >> 22) * (x[AT] >> 10) + (entry[AT] & 1023);
    }
#ifdef __CUDACC__
    /* The vote's predicate is made by hand, and again for the move: the compiler would compare twice and branch. */
    if (K == 12)
        asm volatile("{.reg .pred p; setp.lt.u32 p,%1,4096; vote.sync.ballot.b32 %0,p,-1;}" : "=r"(below) : "r"(x[0]));
    else
        asm volatile("{.reg .pred p; setp.lt.u32 p,%1,1024; vote.sync.ballot.b32 %0,p,-1;}" : "=r"(below) : "r"(x[0]));
    const u32 word = words[*taken + POPC(below & LANES_BELOW)];
    if (K == 12)
        asm volatile("{.reg .pred p; setp.lt.u32 p,%0,4096; @p prmt.b32 %0,%1,%0,0x5410;}" : "+r"(x[0]) : "r"(word));
    else
        asm volatile("{.reg .pred p; setp.lt.u32 p,%0,1024; @p prmt.b32 %0,%1,%0,0x5410;}" : "+r"(x[0]) : "r"(word));
#else
    VOTE(below, x[AT] < 1u << K)
    EACH_LANE {
        const u32 word = words[*taken + POPC(below & LANES_BELOW)];
        if (x[AT] < 1u << K) x[AT] = x[AT] << 16 | word;
    }
#endif
    *taken += POPC(below);
}

/* One row's symbols at their places in v; the other bits are junk. */
FN void row_symbols(SHAPE, warp_state *wp, table_base table, u32 *x, GLOBAL const u16 *words, u32 *taken, u32 *v)
{
    u32 e0[HELD], e1[HELD], e2[HELD], e3[HELD], pair;
    EACH_LANE e0[AT] = look_up(SAME_SHAPE, table, x[AT], c == 2 ? &v[AT] : &pair);
    advance(SAME_SHAPE, wp, e0, x, words, taken);
    if (c == 2) return;
    EACH_LANE e1[AT] = look_up(SAME_SHAPE, table, x[AT], &pair);
    advance(SAME_SHAPE, wp, e1, x, words, taken);
    if (T == 16) {
        EACH_LANE {
            const u32 both = PRMT(e0[AT], e1[AT], 0x6521);
            v[AT] = R >= 3 ? both << (R >= 3 ? R - 3 : 0) : both >> (R < 3 ? 3 - R : 0);
        }
        return;
    }
    EACH_LANE e2[AT] = look_up(SAME_SHAPE, table, x[AT], &pair);
    advance(SAME_SHAPE, wp, e2, x, words, taken);
    EACH_LANE e3[AT] = look_up(SAME_SHAPE, table, x[AT], &pair);
    advance(SAME_SHAPE, wp, e3, x, words, taken);
    EACH_LANE {
        if (K == 12)
            v[AT] = PRMT(PRMT(e0[AT], e1[AT], 0x0040), PRMT(e2[AT], e3[AT], 0x0040), 0x5410);
        else
            v[AT] = select_bits(0x00ff00ffu, PRMT(e0[AT], e2[AT], 0x6521) >> (rotated ? 7 : 6),
                                PRMT(e1[AT], e3[AT], 0x6521) << (rotated ? 1 : 2));
    }
}

/* The mask of bits a .. a + len - 1 of u, where they lie in the top part, for all elements of a lane. */
FN u32 field(const int T, const int rotated, const int a, const int len)
{
    u32 m = ((1u << len) - 1) << a;
    if (rotated) m = m >> 1 | (m & 1) << (T - 1);
    return T == 16 ? m * 0x10001u : m * 0x1010101u;
}

/* Word k of the lane's raw words: held, or in a partial group read again. */
#define RAW_WORD(k) (whole ? raw[k][AT] : rows[(u32)(k) * 32 + LANE_IN_INDEX])

/* v with the raw bits of row j of the group in place (docs/format.md section 7.2). */
FN u32 add_raw(SHAPE, const int whole, u32 (*raw)[HELD], GLOBAL const u32 *rows, const int j, u32 v LANE_PARAMETER)
{
    if (R == 0) return v;
    const int direct = T / (R ? R : 1), spare = T - direct * R;
    const u32 mask = field(T, rotated, 0, R);
    if (j < R * direct) return select_bits(mask, ROTR(RAW_WORD(j / direct), R * (j % direct)), v);
    if (spare == 0) return v;
    v &= ~mask;
    const int first = (j - R * direct) * R;
    UNROLL for (int a = 0; a < R;) {
        const int k = (first + a) / (spare ? spare : 1), at = (first + a) % (spare ? spare : 1);
        const int len = spare - at < R - a ? spare - at : R - a;
        v |= ROTR(RAW_WORD(k), (direct * R + at - a) & 31) & field(T, rotated, a, len);
        a += len;
    }
    return v;
}

/* The low planes of a group, as far as there are any; each with its LANE_IN_POINTER. */
typedef struct low_planes {
    GLOBAL const u32 *p0, *p1, *p2;
} low_planes;

/* A lane's elements, 32 / T of them, as up to four u32. */
FN void join_low(SHAPE, u32 v, const low_planes *plane, u32 at, u32 *element)
{
    if (low == 0 || strided) {
        element[0] = v;
    } else if (low == 1) {
        const u32 l = plane->p0[at];
        element[0] = PRMT(l, v, 0x5140);
        element[1] = PRMT(l, v, 0x7362);
    } else if (low == 2) {
        const u32 l = plane->p0[at];
        element[0] = PRMT(l, v, 0x5410);
        element[1] = PRMT(l, v, 0x7632);
    } else {
        const u32 l0 = plane->p0[at], l1 = plane->p1[at], l2 = plane->p2[at];
        element[0] = PRMT(l0, l1, 0x5410);
        element[1] = PRMT(l2, v, 0x5410);
        element[2] = PRMT(l0, l1, 0x7632);
        element[3] = PRMT(l2, v, 0x7632);
    }
}

/* The lane's elements of row j to a full group: whole and aligned, since n * element and chunk starts are. */
FN void store_row(SHAPE, GLOBAL u8 *to, const u32 *element)
{
    if (low == 0)
        *(GLOBAL u32 *)to = element[0];
    else if (low < 6)
        STORE2(to, element[0], element[1]);
    else
        STORE4(to, element[0], element[1], element[2], element[3]);
}

/* Those of them that exist, bytes at a time. index: the first one's number, of n. */
FN void store_elements(SHAPE, GLOBAL u8 *to, const u32 *element, u32 index, u32 n)
{
    const int bytes = T / 8 + low;
    UNROLL for (int i = 0; i < 32 / T; i++) {
        if (index + (u32)i >= n) continue;
        UNROLL for (int y = 0; y < bytes; y++) {
            const int z = i * bytes + y;
            to[z] = (u8)(element[z >> 2] >> 8 * (z & 3));
        }
    }
}

/* Top parts alone. */
FN void store_strided(SHAPE, const int whole, GLOBAL u8 *to, u32 stride, u32 v, u32 index, u32 n)
{
    UNROLL for (int i = 0; i < 32 / T; i++) {
        if (!whole && index + (u32)i >= n) continue;
        if (T == 16)
            *(GLOBAL u16 *)(to + (u32)i * stride) = (u16)(v >> T * i); /* even: chunks, low and stride are */
        else
            to[(u32)i * stride] = (u8)(v >> T * i);
    }
}

/* Row j of a group, see below. */
FN void decode_row(SHAPE, const int whole, warp_state *wp, table_base table, u32 *x, GLOBAL const u16 *words,
                   u32 *taken, u32 (*raw)[HELD], GLOBAL const u32 *rows, const low_planes *plane, GLOBAL u8 *to,
                   u32 stride, u32 first, u32 n, const int j)
{
    const u32 per_lane = 32 / T; /* elements of a lane and row */
    const u32 element_bytes = strided ? stride : (u32)(T / 8 + low);
    u32 v[HELD];
    row_symbols(SAME_SHAPE, wp, table, x, words, taken, v);
    EACH_LANE {
        u32 element[4];
        const u32 at = (u32)j * 32 + LANE_IN_INDEX;
        const u32 index = first + ((u32)j * 32 + LANE) * per_lane;
        const u32 value = add_raw(SAME_SHAPE, whole, raw, rows, j, v[AT] LANE_ARGUMENT);
        GLOBAL u8 *const q = to + at * per_lane * element_bytes;
        join_low(SAME_SHAPE, value, plane, at, element);
        if (strided)
            store_strided(SAME_SHAPE, whole, q, stride, value, index, n);
        else if (whole)
            store_row(SAME_SHAPE, q, element);
        else
            store_elements(SAME_SHAPE, q, element, index, n);
    }
}

/*
 * A group of 1024 elements. rows, plane, to: its own, with their LANE_IN_POINTER. whole: all of its elements exist,
 * and for CUDA the code is laid out row by row; else those from `first` on that are below n, in a small loop.
 */
FN void decode_group(SHAPE, const int whole, warp_state *wp, table_base table, u32 *x, GLOBAL const u16 *words,
                     u32 *taken, GLOBAL const u32 *rows, const low_planes *plane, GLOBAL u8 *to, u32 stride, u32 first,
                     u32 n)
{
    u32 raw[8][HELD];
    if (whole) {
        UNROLL for (int k = 0; k < R; k++) EACH_LANE raw[k][AT] = rows[(u32)k * 32 + LANE_IN_INDEX];
    }
#ifdef __CUDACC__
    if (whole) {
        UNROLL for (int j = 0; j < T; j++)
            decode_row(SAME_SHAPE, 1, wp, table, x, words, taken, raw, rows, plane, to, stride, first, n, j);
        return;
    }
#endif
    ROLLED for (int j = 0; j < T; j++)
        decode_row(SAME_SHAPE, whole, wp, table, x, words, taken, raw, rows, plane, to, stride, first, n, j);
}

/* Replaces symbols (docs/format.md section 7.4). Returns whether all of this lane's are as they must be. */
FN u32 apply_exception(SHAPE, GLOBAL const u32 *list, u32 i, GLOBAL u8 *to, u32 element_bytes, u32 n)
{
    const int position_bits = c == 2 ? 16 : 18, s = T - R;
    const u32 entry = list[i], position = entry & ((1u << position_bits) - 1);
    u32 symbol = entry >> position_bits;
    if (position * c >= n || symbol >> (c == 2 ? 16 : s)) return 0;
    if (i && (list[i - 1] & ((1u << position_bits) - 1)) >= position) return 0;
    for (u32 y = 0; y < (u32)c && position * c + y < n; y++, symbol >>= s) {
        GLOBAL u8 *const q = to + (u64)(position * c + y) * element_bytes;
        const u32 bits = (symbol & ((1u << s) - 1)) << (rotated ? R - 1 : R), keep = field(T, rotated, 0, R);
        if (T == 16)
            *(GLOBAL u16 *)q = (u16)((*(GLOBAL const u16 *)q & keep) | bits);
        else
            *q = (u8)((*q & keep) | bits);
    }
    return 1;
}

/* Where the parts of a stream's payload begin. */
FN u64 words_at(SHAPE, u32 groups)
{
    return 128 + (u64)groups * (u32)(128 * R + (strided ? 0 : 1024 * low));
}
FN u64 selectors_at(SHAPE, u32 groups, u32 nw) { return words_at(SAME_SHAPE, groups) + 2 * (u64)((nw + 1) & ~1u); }

/* The table of group g. chosen: the selectors from this group on, as many as a word holds. */
FN table_base group_table(SHAPE, GLOBAL const u32 *selectors, u32 g, u32 selector_bits, u32 *chosen, table_base tables)
{
    const u32 bit = g * selector_bits;
    *chosen = (bit & 31) ? *chosen >> selector_bits : UNIFORM(selectors[bit >> 5]);
    const u32 selector = *chosen & ((1u << selector_bits) - 1);
#ifdef __CUDACC__
    return tables + selector * (TABLE_WORDS * 4);
#else
    return tables + selector * TABLE_WORDS;
#endif
}

/* All exceptions of a stream; whether all of this lane's are as they must be. */
FN u32 apply_exceptions(SHAPE, GLOBAL const u8 *in, GLOBAL u8 *out, GLOBAL const tp_gpu_job *job, u32 lane)
{
    const u32 n = job->n, nx = job->nx, groups = (n + 1023) >> 10;
    const u32 element_bytes = strided ? job->stride : (u32)(T / 8 + low);
    GLOBAL const u32 *const list = (GLOBAL const u32 *)(in + job->in + selectors_at(SAME_SHAPE, groups, job->nw)) +
                                   ((groups * job->tables + 31) >> 5);
    u32 good = 1;
    for (u32 i = lane; i < nx; i += 32)
        good &= apply_exception(SAME_SHAPE, list, i, OUTPUT_AT(out, job->out + (strided ? 0 : low)), element_bytes, n);
    return good;
}

/* One job by one warp. */
FN void decode_stream(SHAPE, warp_state *wp, GLOBAL const u8 *in, GLOBAL u8 *out, GLOBAL const tp_gpu_job *job,
                      GLOBAL u64 *results, LOCAL const u32 *tables)
{
    const u32 n = UNIFORM(job->n), nw = UNIFORM(job->nw), selector_bits = UNIFORM(job->tables);
    const u32 stride = strided ? UNIFORM(job->stride) : 0;
    const u32 element_bytes = strided ? stride : (u32)(T / 8 + low), groups = (n + 1023) >> 10;
    GLOBAL const u8 *const payload = in + job->in;
    GLOBAL u8 *to = OUTPUT_AT(out, job->out + LANE_IN_POINTER * (32 / T) * element_bytes);
    GLOBAL const u32 *rows = (GLOBAL const u32 *)(payload + 128) + LANE_IN_POINTER;
    low_planes plane;
    GLOBAL const u16 *words = (GLOBAL const u16 *)(payload + words_at(SAME_SHAPE, groups));
    u32 x[HELD], taken = 0, chosen = 0, bad, off;

    STAYS_BEHIND(words);
    plane.p0 = rows + (u64)groups * R * 32;
    plane.p1 = plane.p0 + groups * 512; /* a plane of u16 */
    plane.p2 = plane.p1 + groups * 512;
    EACH_LANE x[AT] = ((GLOBAL const u32 *)payload)[LANE];
    VOTE(bad, x[AT] - (1u << K) >= (1u << (K + 16)) - (1u << K));
    for (u32 g = 0; g < groups && taken <= nw && !bad; g++) {
        table_base table = table_at(tables);
        if (selector_bits)
            table = group_table(SAME_SHAPE, (GLOBAL const u32 *)(payload + selectors_at(SAME_SHAPE, groups, nw)), g,
                                selector_bits, &chosen, table);
        const u32 first = g << 10;
#ifdef __CUDACC__
        if (first + 1024 <= n)
            decode_group(SAME_SHAPE, 1, wp, table, x, words, &taken, rows, &plane, to, stride, first, n);
        else
            decode_group(SAME_SHAPE, 0, wp, table, x, words, &taken, rows, &plane, to, stride, first, n);
#else
        decode_group(SAME_SHAPE, first + 1024 <= n, wp, table, x, words, &taken, rows, &plane, to, stride, first, n);
#endif
        rows += R * 32;
        plane.p0 += low == 1 ? 256 : 512;
        plane.p1 += 512;
        plane.p2 += 512;
        to += 1024 * element_bytes;
    }
    bad |= taken != nw;
    VOTE(off, x[AT] != 1u << K);
    bad |= off;
    READ_AGAIN(job);
    if (R) {
        u32 good[HELD];
        WARP_FENCE(); /* the elements before their exceptions */
        EACH_LANE good[AT] = bad ? 1 : apply_exceptions(SAME_SHAPE, in, out, job, LANE);
        VOTE(off, !good[AT]);
        bad |= off;
    }
#ifdef TP_LANE_LOOP
    results[job->result] = bad ? TP_JOB_BAD : TP_JOB_GOOD;
#else
    if (LANE == 0) results[job->result] = bad ? TP_JOB_BAD : TP_JOB_GOOD;
#endif
}

/* `warps` jobs a work-group, all with the tables of the first one, which is not idle. */
FN void decode_streams(SHAPE, GLOBAL const u8 *in, GLOBAL u8 *out, GLOBAL const tp_gpu_job *jobs, GLOBAL u64 *results,
                       const u32 warps, LOCAL u32 *shared)
{
    warp_state state;
    const u32 tables = 1u << UNIFORM(jobs->tables);
    LOCAL u32 *const after = shared + tables * TABLE_WORDS; /* the tables' starts while they are built, then votes */
    for (u32 i = 0; i < tables; i++)
        build_table(SAME_SHAPE, in + jobs->table + (u64)i * (K == 12 ? 512 : 256 * c), shared + i * TABLE_WORDS, after);
    WARP_BEGIN(state, after)
    EACH_WARP(warps)
    if (UNIFORM(jobs[warp].n)) decode_stream(SAME_SHAPE, &state, in, out, jobs + warp, results, shared);
}

#define STREAM_KERNEL(name, K, T, R, low, c, rotated, strided)                                                    \
    KERNEL_DENSE(STREAM_DENSITY(K, low, c, strided))                                                             \
    name(GLOBAL const u8 *RESTRICT in, GLOBAL u8 *RESTRICT out, GLOBAL const tp_gpu_job *RESTRICT jobs,           \
         GLOBAL u64 *RESTRICT results, const u32 first, const u32 warps SHARED_PARAMETER)                         \
    {                                                                                                             \
        SHARED_MEMORY                                                                                             \
        decode_streams(K, T, R, low, c, rotated, strided, in, out, jobs + first + (u64)GROUP * warps, results, warps, shared); \
    }

#endif
