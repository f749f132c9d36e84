/*
 * From a validated frame to jobs for the kernels (gpu/kernels/), and from jobs to launches.
 *
 * Every part of a chunk is one job that writes its bytes where they belong in the chunk's elements, so
 * parts need no order and no scratch. What the host has decoded (lz4) is a copy. Of a df11 frame every block is a job.
 */
#ifndef TP_GPU_JOBS_H
#define TP_GPU_JOBS_H

#include "codec/frame.h"

typedef uint32_t u32;
typedef uint64_t u64;
#include "gpu/kernels/job.h"
#include "gpu/kernels/list.h"

#define TP_KERNEL_ENUM(name, ...) name##_kernel,
typedef enum tp_kernel_id {
    tp_copy_kernel,
    tp_fill_kernel,
    tp_df11_kernel,
    tp_hash_kernel, /* those before it: one job a work-group, by all its threads; from here on one a warp */
    TP_STREAM_KERNELS(TP_KERNEL_ENUM) TP_KERNEL_COUNT
} tp_kernel_id;
#undef TP_KERNEL_ENUM

/* What a stream kernel is an instance for; its fields are those of list.h. K is 0 for the others. */
typedef struct tp_kernel_shape {
    const char *name;
    uint8_t K, T, R, low, c, rotated, strided;
} tp_kernel_shape;
const tp_kernel_shape *tp_kernel_shape_of(tp_kernel_id kernel);

/* Local memory of a work-group: tables and, for the way that OpenCL votes, some words after them. */
size_t tp_kernel_local_bytes(tp_kernel_id kernel, unsigned tables);

#define TP_MAX_WARPS 8 /* jobs of a work-group */

typedef struct tp_planned_job {
    tp_gpu_job job;
    uint16_t kernel;
    uint32_t output; /* the memory that it writes to, by the caller's numbers */
} tp_planned_job;

typedef struct tp_jobs {
    tp_planned_job *list;
    size_t count, capacity;
    uint32_t results; /* result numbers given out */
    bool fixed;       /* does not grow: jobs beyond the capacity are counted and forgotten */
    tp_planned_job spare;
} tp_jobs;

/* Where a frame is to go. */
typedef struct tp_frame_place {
    u64 frame_at;    /* the frame in the input memory, a multiple of 128 */
    u64 expanded_at; /* what tp_frame_expand has made of it, in the input memory */
    uint32_t output;
    u64 output_at; /* a multiple of 16 */
} tp_frame_place;

/*
 * Bytes that the host makes of a frame for the kernels, each part padded to 128: what is lz4, decoded, and of df11 the
 * tables (tp_df11_table); 0 if there is nothing.
 */
size_t tp_frame_expanded_size(const tp_frame_view *view);
/* Makes them in dst. TP_CORRUPT. */
tp_status tp_frame_expand(const tp_frame_view *view, uint8_t *dst, tp_error *error);
/* Of the decoded bytes from .. from + size - 1 of the frame those that the host decodes. */
uint64_t tp_frame_host_bytes(const tp_frame_view *view, uint32_t from, uint32_t size);

/* Chunks for hashing: those of the frame, or for raw and lz4 the pieces. */
uint32_t tp_frame_hash_count(const tp_frame_view *view);

/*
 * Adds the frame's jobs. The results from *first_result on are *job_results of decoding, then one of the
 * hash of each chunk. TP_NO_MEMORY.
 */
tp_status tp_jobs_add_frame(tp_jobs *jobs, const tp_frame_view *view, const tp_frame_place *place,
                            uint32_t *first_result, uint32_t *job_results);
/* What the results say: TP_CORRUPT if a job failed or a hash is not the frame's. */
tp_status tp_frame_check_results(const tp_frame_view *view, const u64 *results, uint32_t job_results,
                                 tp_error *error);
/* Whether the chunk hashes that the frame states make up its raw hash. Frames without descriptors state
 * none. */
tp_status tp_frame_check_stated_hashes(const tp_frame_view *view, tp_error *error);

void tp_jobs_clear(tp_jobs *jobs);
void tp_jobs_free(tp_jobs *jobs);

/* Jobs of one kernel and output, in work-groups. */
typedef struct tp_job_range {
    tp_kernel_id kernel;
    uint32_t output;
    size_t first; /* in the arranged jobs */
    uint32_t groups, warps;
    size_t local_bytes;
} tp_job_range;

/*
 * Sorts the jobs into launches, hashes last, with idle jobs where a work-group has no more with the same
 * tables. max_warps: jobs of a work-group at most, 1 or a power of two up to TP_MAX_WARPS. Both arrays grow
 * by realloc as needed; their capacities are kept. TP_NO_MEMORY.
 */
typedef struct tp_arranged {
    tp_gpu_job *jobs;
    size_t job_count, job_capacity;
    tp_job_range *ranges;
    size_t range_count, range_capacity;
    bool fixed; /* does not grow; room for twice as many jobs and as many ranges as there are jobs is enough */
} tp_arranged;
tp_status tp_jobs_arrange(tp_jobs *jobs, unsigned max_warps, tp_arranged *arranged);
void tp_arranged_free(tp_arranged *arranged);

#endif
