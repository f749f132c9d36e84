/*
 * DFloat11 (docs/dfloat11.md): Huffman-coded exponents, and a byte for sign and mantissa of every element. A job is a
 * block, 4096 bytes of the stream, by a work-group:
 *
 *   1. a thread takes a window of 64 bits, starts at the bit that its gap tells, and counts the codes that start in
 *      it; the last must end where the next window's gap says
 *   2. the sums of the counts are each window's first element
 *   3. the windows are decoded again, their exponents put in order in local memory, and from there joined with signs
 *      and mantissas and stored, eight elements a thread, side by side
 *
 * The host has validated sizes, positions and tables, and has made of the tables what codec/df11.h calls
 * tp_df11_table. The verdict is that of codec/df11_decode.c: every gap and every count must be right. Whatever the
 * stream is, a window has at most 64 codes, and nothing is written beyond the block's elements, which the job tells.
 */
#ifndef TP_GPU_DF11_H
#define TP_GPU_DF11_H

#define DF11_WINDOWS 512  /* of a block */
#define DF11_STAGED 16384 /* exponents in local memory: what 256 windows have at most */

/* Local memory, u32 of each: the first table; exponents, from one of the first 8 bytes on; a word for each window,
 * and an unused one after each 32, so that 16 threads that go through 32 of them use 16 banks; sums of these 32. */
#define DF11_TABLE_WORDS 4096
#define DF11_STAGED_WORDS (DF11_STAGED / 4 + 2)
#define DF11_WINDOW_WORDS (DF11_WINDOWS / 32 * 33)
#define DF11_SUMS (DF11_WINDOWS / 32)
#define DF11_LOCAL_WORDS (DF11_TABLE_WORDS + DF11_STAGED_WORDS + DF11_WINDOW_WORDS + DF11_SUMS + 1 + 3)
#define DF11_WINDOW(w) ((w) + ((w) >> 5))

/* A window's word: bit 31 its last code ends where the next window begins, 24-30 codes, 16-20 gap, 0-15 codes of the
 * windows before it among its 32. */
#define DF11_CODES(word) ((word) >> 24 & 127)
#define DF11_GAP(word) ((word) >> 16 & 31)
#define DF11_BEFORE(word) ((word) & 0xffff)

#define DF11_NO_CODE 0x7fffu
#define DF11_POINTER 0x8000u

/* Where the arrays of a unit begin in its payload, and how many there are of what (docs/format.md, "Codec df11"). */
typedef struct df11_places {
    u32 blocks, gaps, stream, sign_mantissa;
} df11_places;

FN u32 align128(u32 v) { return (v + 127) & ~127u; }

FN df11_places df11_place(u32 stream_bytes)
{
    df11_places p;
    p.blocks = (stream_bytes + 4095) >> 12;
    p.gaps = align128(4 * (p.blocks + 1));
    p.stream = p.gaps + align128(320 * p.blocks);
    p.sign_mantissa = p.stream + align128(stream_bytes);
    return p;
}

/* Gap of window w, counted from the array's start. */
FN u32 df11_gap(GLOBAL const u8 *gaps, u32 w)
{
    GLOBAL const u8 *const p = gaps + (5 * w >> 3);
    return ((u32)p[0] << 8 | p[1]) >> (11 - (5 * w & 7)) & 31;
}

/* A window's bits from bit `at` of it on, and the 32 bits after the window. */
typedef struct df11_bits {
    u32 a, b, c;
} df11_bits;

FN void df11_skip(df11_bits *x, u32 bits) /* at most 32 */
{
    x->a = SHL64(x->a, x->b, bits);
    x->b = SHL64(x->b, x->c, bits);
    x->c = SHL64(x->c, 0, bits);
}

FN df11_bits df11_read(GLOBAL const u32 *words, u32 at)
{
    df11_bits x;
    x.a = PRMT(words[0], 0, 0x0123);
    x.b = PRMT(words[1], 0, 0x0123);
    x.c = PRMT(words[2], 0, 0x0123);
    df11_skip(&x, at);
    return x;
}

/* The code that the 32 bits are the first of: its length << 8 and exponent, or DF11_NO_CODE. Pointers lead through at
 * most four tables, as the host has seen to. */
FN u32 df11_code(GLOBAL const u16 *rows, u32 bits)
{
    u32 e = rows[bits >> 24];
    while (e & DF11_POINTER) {
        bits <<= 8;
        e = rows[(e & 255) << 8 | bits >> 24];
    }
    return e;
}

/* A look-up of 11 bits: an entry of tp_df11_table.several, of which low is wanted only with `store`. */
FN u32 df11_look_up(const int store, table_base table, u32 bits, u32 *low)
{
#ifdef __CUDACC__
    u32 high;
    const u32 address = (bits >> 21) * 8 + table;
    if (store)
        asm volatile("ld.shared.v2.u32 {%0,%1},[%2];" : "=r"(*low), "=r"(high) : "r"(address));
    else
        asm volatile("ld.shared.u32 %0,[%1+4];" : "=r"(high) : "r"(address));
    return high;
#else
    *low = table[2 * (bits >> 21)];
    return table[2 * (bits >> 21) + 1];
#endif
}

/* `count` exponents, the first four in low, the fifth in high. */
FN void df11_put(LOCAL u8 *to, u32 low, u32 high, u32 count)
{
    if (count > 0) to[0] = (u8)low;
    if (count > 1) to[1] = (u8)(low >> 8);
    if (count > 2) to[2] = (u8)(low >> 16);
    if (count > 3) to[3] = (u8)(low >> 24);
    if (count > 4) to[4] = (u8)high;
}

/*
 * The codes that start in a window from bit `gap` on. Returns how many; *end: the bit after the last, 64 or more, or
 * 0 if its bits are no code. With `store` their exponents go to `to`.
 *
 * A look-up gives up to five codes, or none if the first is longer than 11 bits. Those that end within the window are
 * taken whole; of the one after them only the codes that start before the window's end.
 */
FN u32 df11_window(const int store, table_base table, GLOBAL const u16 *rows, GLOBAL const u32 *words, u32 gap,
                   LOCAL u8 *to, u32 *end)
{
    df11_bits x = df11_read(words, gap);
    u32 at = gap, count = 0, low = 0, high, bits = 0;
    *end = 64;
    /* 31 + 3 * 11 bits end with the window. A long code takes no bits here and stops the rest of them. */
    UNROLL for (int i = 0; i < 3; i++) {
        high = df11_look_up(store, table, x.a, &low);
        bits = high >> 28;
        if (store) df11_put(to + count, low, high, high >> 24 & 7);
        count += high >> 24 & 7;
        at += bits;
        df11_skip(&x, bits);
    }
    if (at == 64) return count;
    for (;;) {
        high = df11_look_up(store, table, x.a, &low);
        bits = high >> 28;
        if (bits == 0) { /* one long code, as an entry */
            const u32 code = df11_code(rows, x.a);
            low = code & 255;
            high = 1u << 24 | 1u << 8;
            bits = code == DF11_NO_CODE ? 64 : code >> 8;
        }
        if (at + bits >= 64) break;
        if (store) df11_put(to + count, low, high, high >> 24 & 7);
        count += high >> 24 & 7;
        at += bits;
        df11_skip(&x, bits);
    }
    *end = 0;
    if (bits == 64) return count;
    /* In `ends` the bits are the stream's, with the last code's end in bit 0. The last code taken is the first that
     * ends at the window's end or after it, and the window's end is bit `over`. */
    const u32 ends = high >> 8 & 0x7ff, over = at + bits - 64; /* at most 31 */
    const u32 last = TOP_BIT(ends & ((2u << over) - 1)), codes = POPC(ends >> last);
    if (store) df11_put(to + count, low, high, codes);
    *end = at + bits - last;
    return count + codes;
}

/* The bit after `count` codes from bit `at` of a window on; if one is none, 0, where no stream ends. */
FN u32 df11_walk(GLOBAL const u16 *rows, df11_bits x, u32 at, u32 count)
{
    ROLLED for (; count; count--) {
        const u32 code = df11_code(rows, x.a);
        if (code == DF11_NO_CODE) return 0;
        at += code >> 8;
        df11_skip(&x, code >> 8);
    }
    return at;
}

/* The exponents of eight elements with signs and mantissas, four at a time: as bytes, high and low ones. */
FN void df11_join(GLOBAL u8 *to, u32 e0, u32 e1, u32 s0, u32 s1)
{
    const u32 h0 = select_bits(0x80808080u, s0, e0 >> 1), l0 = select_bits(0x80808080u, e0 << 7, s0);
    const u32 h1 = select_bits(0x80808080u, s1, e1 >> 1), l1 = select_bits(0x80808080u, e1 << 7, s1);
    STORE4(to, PRMT(l0, h0, 0x5140), PRMT(l0, h0, 0x7362), PRMT(l1, h1, 0x5140), PRMT(l1, h1, 0x7362));
}

/* Elements first .. end - 1 of the unit, whose exponents lie in order, the first at staged + first mod 8. */
FN void df11_store(GLOBAL const u8 *sign_mantissa, GLOBAL u8 *out, LOCAL const u32 *staged, u32 first, u32 end)
{
    const u32 base = first >> 3;
    ROLLED for (u32 q = base + TID; 8 * q < end; q += NTHREADS) {
        LOCAL const u32 *const e = staged + 2 * (q - base);
        if (8 * q >= first && 8 * q + 8 <= end) {
            GLOBAL const u32 *const s = (GLOBAL const u32 *)sign_mantissa + 2 * q;
            df11_join(out + 16 * q, e[0], e[1], s[0], s[1]);
            continue;
        }
        ROLLED for (u32 i = 8 * q; i < 8 * q + 8; i++) {
            if (i < first || i >= end) continue;
            const u32 s = sign_mantissa[i], exponent = ((LOCAL const u8 *)e)[i & 7];
            *(GLOBAL u16 *)(out + 2 * i) = (u16)((s & 0x80) << 8 | exponent << 7 | (s & 0x7f));
        }
    }
}

KERNEL_DENSE(DF11_DENSITY)
tp_df11(GLOBAL const u8 *RESTRICT in, GLOBAL u8 *RESTRICT out, GLOBAL const tp_gpu_job *RESTRICT jobs,
        GLOBAL u64 *RESTRICT results, const u32 first_job, const u32 warps SHARED_PARAMETER)
{
    SHARED_MEMORY
    GLOBAL const tp_gpu_job *const job = jobs + first_job + GROUP;
    GLOBAL const u8 *const payload = in + job->in;
    const df11_places place = df11_place(job->nw);
    const u32 block = job->nx, rest = job->nw - 4096 * block; /* bytes of the stream from this block on */
    const u32 first = job->unit, elements = job->stride, is_last = first + elements == job->n;
    GLOBAL const u8 *const gaps = payload + place.gaps + 320 * block;
    GLOBAL const u32 *const stream = (GLOBAL const u32 *)(payload + place.stream + 4096 * block);
    GLOBAL const u64 *const tables = (GLOBAL const u64 *)(in + job->table);
    GLOBAL const u16 *const rows = (GLOBAL const u16 *)(tables + DF11_TABLE_WORDS / 2);

    LOCAL u64 *const first_table = (LOCAL u64 *)shared;
    const table_base table = table_at(shared);
    LOCAL u32 *const staged = shared + DF11_TABLE_WORDS;
    LOCAL u32 *const window = staged + DF11_STAGED_WORDS;
    LOCAL u32 *const sums = window + DF11_WINDOW_WORDS; /* and the sum of all */
    LOCAL u32 *const bad = sums + DF11_SUMS + 1;
    LOCAL u32 *const last = bad + 1; /* of the unit: its last element's window, and the bit after its code */

    UNROLL_BY_4 for (u32 i = TID; i < DF11_TABLE_WORDS / 2; i += NTHREADS) first_table[i] = tables[i];
    if (TID == 0) *bad = last[0] = last[1] = 0;
    BARRIER();

    /* 1 */
    ROLLED for (u32 w = TID; w < DF11_WINDOWS; w += NTHREADS) {
        const u32 gap = df11_gap(gaps, w);
        u32 end = 0, codes = 0;
        if (8 * w < rest) codes = df11_window(0, table, rows, stream + 2 * w, gap, 0, &end);
        window[DF11_WINDOW(w)] = (u32)(end == 64 + df11_gap(gaps, w + 1)) << 31 | codes << 24 | gap << 16;
    }
    BARRIER();

    /* 2 */
    for (u32 i = TID; i < DF11_SUMS; i += NTHREADS) {
        u32 sum = 0;
        UNROLL_BY_4 for (u32 w = 33 * i; w < 33 * i + 32; w++) {
            const u32 word = window[w];
            window[w] = word | sum;
            sum += DF11_CODES(word);
        }
        sums[i] = sum;
    }
    BARRIER();
    if (TID == 0) {
        u32 sum = 0;
        UNROLL_BY_4 for (u32 i = 0; i <= DF11_SUMS; i++) {
            const u32 more = i < DF11_SUMS ? sums[i] : 0;
            sums[i] = sum;
            sum += more;
        }
        if (is_last ? sum < elements : sum != elements) *bad = 1;
        if (block == 0 && DF11_GAP(window[0])) *bad = 1;
    }
    BARRIER();
    for (u32 w = TID; w < DF11_WINDOWS; w += NTHREADS) {
        const u32 word = window[DF11_WINDOW(w)], before = sums[w >> 5] + DF11_BEFORE(word);
        if (is_last && before >= elements) continue; /* after the last element */
        if (is_last && before + DF11_CODES(word) >= elements) {
            const u32 gap = DF11_GAP(word);
            last[0] = w;
            last[1] = 64 * w + df11_walk(rows, df11_read(stream + 2 * w, gap), gap, elements - before);
            if (last[1] > 8 * rest || last[1] + 8 <= 8 * rest) RAISE(bad); /* not in the stream's last byte */
        } else if (!(word >> 31)) {
            RAISE(bad);
        }
    }
    BARRIER();
    if (is_last) { /* no code starts in a window after that; but the gap may tell where the last one ends */
        for (u32 w = last[0] + 1 + TID; w < DF11_WINDOWS * (place.blocks - block); w += NTHREADS) {
            const u32 gap = df11_gap(gaps, w);
            if (gap && 64 * w + gap != last[1]) RAISE(bad);
        }
    }
    BARRIER();

    /* 3 */
    const u32 good = *bad == 0, step = sums[DF11_SUMS] <= DF11_STAGED ? DF11_WINDOWS : DF11_STAGED / 64;
    ROLLED for (u32 from = 0; from < (good ? DF11_WINDOWS : 0); from += step) {
        const u32 to = from + step;
        u32 begin = sums[from >> 5], stop = sums[to >> 5]; /* both are multiples of 32 */
        if (begin > elements) begin = elements;
        if (stop > elements) stop = elements;
        LOCAL u8 *const exponents = (LOCAL u8 *)staged + ((first + begin) & 7);
        ROLLED for (u32 w = from + TID; w < to; w += NTHREADS) {
            const u32 word = window[DF11_WINDOW(w)], before = sums[w >> 5] + DF11_BEFORE(word), gap = DF11_GAP(word);
            u32 end;
            if (before < stop)
                df11_window(1, table, rows, stream + 2 * w, gap, exponents + (before - begin), &end);
        }
        BARRIER();
        df11_store(payload + place.sign_mantissa, OUTPUT_AT(out, job->out), staged, first + begin, first + stop);
        BARRIER();
    }
    if (TID == 0) results[job->result] = good ? TP_JOB_GOOD : TP_JOB_BAD;
}

#endif
