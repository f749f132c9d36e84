/*
 * What a kernel is told to do: one job a chunk, or a part of one. Shared by the host and every dialect of
 * the kernels, so it uses the dialects' type names (gpu/kernels/dialect.h, gpu/kernels.h).
 *
 * Addresses are bytes from the start of the launch's input and output memory.
 */
#ifndef TP_GPU_JOB_H
#define TP_GPU_JOB_H

typedef struct tp_gpu_job {
    u64 in;     /* stream: its payload; copy: the bytes */
    u64 out;    /* where the first unit goes; hash: the bytes */
    u64 table;  /* stream: its first table's record, in the input; fill: the value */
    u32 n;      /* stream: elements; copy, fill: units; hash: bytes. 0: nothing to do */
    u32 nw, nx; /* stream: words, exceptions */
    u32 stride; /* bytes from one unit to the next in the output */
    u32 unit;   /* copy, fill: bytes of a unit */
    u32 tables; /* stream: log2 of the number of tables: bits of a selector */
    u32 result; /* where the result goes */
    u32 reserved;
} tp_gpu_job;

/* Results: of hash the hash, of all others one of these. The host clears them before a launch. */
#define TP_JOB_NOT_RUN 0
#define TP_JOB_BAD 1
#define TP_JOB_GOOD 2

#endif
