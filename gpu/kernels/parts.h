/* Parts that are no streams: raw bytes and constants. One job a work-group. */
#ifndef TP_GPU_PARTS_H
#define TP_GPU_PARTS_H

/* n units of 1 or 2 bytes to every `stride` bytes; or, with stride = unit, n * unit bytes as they are. */
KERNEL tp_copy(GLOBAL const u8 *RESTRICT in, GLOBAL u8 *RESTRICT out, GLOBAL const tp_gpu_job *RESTRICT jobs,
               GLOBAL u64 *RESTRICT results, const u32 first, const u32 warps SHARED_PARAMETER)
{
    GLOBAL const tp_gpu_job *const job = jobs + first + GROUP;
    GLOBAL const u8 *const from = in + job->in;
    GLOBAL u8 *const to = OUTPUT_AT(out, job->out);
    const u32 stride = job->stride, unit = job->unit, n = job->n;
    if (stride == unit) {
        const u32 bytes = n * unit;
        /* Addresses are of the memory plus an offset, and memory is aligned well: the offsets tell. */
        const u32 quads = ((job->in | job->out) & 15) ? 0 : bytes >> 4;
        for (u32 i = TID; i < quads; i += NTHREADS) {
            GLOBAL const u32 *const q = (GLOBAL const u32 *)from + 4 * i;
            STORE4(to + 16 * i, q[0], q[1], q[2], q[3]);
        }
        for (u32 i = 16 * quads + TID; i < bytes; i += NTHREADS) to[i] = from[i];
    } else {
        for (u32 i = TID; i < n; i += NTHREADS)
            for (u32 y = 0; y < unit; y++) to[(u64)i * stride + y] = from[(u64)i * unit + y];
    }
    if (TID == 0) results[job->result] = TP_JOB_GOOD;
}

/* n units of 1, 2, 4 or 8 bytes, each the low bytes of the value, at every `stride` bytes. */
KERNEL tp_fill(GLOBAL const u8 *RESTRICT in, GLOBAL u8 *RESTRICT out, GLOBAL const tp_gpu_job *RESTRICT jobs,
               GLOBAL u64 *RESTRICT results, const u32 first, const u32 warps SHARED_PARAMETER)
{
    GLOBAL const tp_gpu_job *const job = jobs + first + GROUP;
    GLOBAL u8 *const to = OUTPUT_AT(out, job->out);
    const u32 stride = job->stride, unit = job->unit, n = job->n;
    const u64 value = job->table;
    u32 done = 0;
    if (stride == unit && !(job->out & 7)) {
        u64 pattern = value;
        for (u32 width = unit; width < 8; width *= 2) pattern |= pattern << 8 * width;
        const u32 words = (u32)((u64)n * unit >> 3);
        for (u32 i = TID; i < words; i += NTHREADS) STORE2(to + (u64)8 * i, (u32)pattern, (u32)(pattern >> 32));
        done = words * (8 / unit);
    }
    for (u32 i = done + TID; i < n; i += NTHREADS)
        for (u32 y = 0; y < unit; y++) to[(u64)i * stride + y] = (u8)(value >> 8 * y);
    if (TID == 0) results[job->result] = TP_JOB_GOOD;
}

#endif
