/*
 * What a kernel is told to do: one job a chunk, or a part of one. Shared by the host and every dialect of
 * the kernels, so it uses the dialects' type names (gpu/kernels/dialect.h, gpu/kernels.h).
 *
 * Addresses are bytes from the start of the launch's input and output memory.
 */
#ifndef TP_GPU_JOB_H
#define TP_GPU_JOB_H

typedef struct tp_gpu_job {
    u64 in;     /* stream: its payload; df11: the frame's; copy: the bytes */
    u64 out;    /* where the first unit goes; df11: the frame's first element; hash: the bytes */
    u64 table;  /* stream: its first table's record, in the input; df11: the tables made by the host; fill: the value */
    u32 n;      /* stream: elements; df11: the frame's; copy, fill: units; hash: bytes. 0: nothing to do */
    u32 nw, nx; /* stream: words, exceptions; df11: bytes of the code stream, number of the block */
    u32 stride; /* bytes from one unit to the next in the output; df11: elements of the block */
    u32 unit;   /* copy, fill: bytes of a unit; df11: number of the block's first element */
    u32 tables; /* stream: log2 of the number of tables: bits of a selector */
    u32 result; /* where the result goes */
    u32 reserved;
} tp_gpu_job;

#define TP_DF11_LOCAL_WORDS 8744 /* u32 of local memory (df11.h) */

/* Results: of hash the hash, of all others one of these. The host clears them before a launch. */
#define TP_JOB_NOT_RUN 0
#define TP_JOB_BAD 1
#define TP_JOB_GOOD 2

#endif
