/*
 * Jobs done by a fixed pool of threads and finished in order by the calling thread.
 *
 * A bounded ring of job slots, each with its own buffers, is all the memory there is, whatever the size of
 * the file. Jobs are handed out in order, worked on at once, and finished in order: so the result does not
 * depend on the number of threads, and the first error in order is the one reported.
 */
#ifndef TP_CONVERT_PIPELINE_H
#define TP_CONVERT_PIPELINE_H

#include "codec/frame.h"
#include "convert/progress.h"

typedef struct tp_job {
    uint8_t *raw;    /* TP_FRAME_MAX_RAW bytes */
    uint8_t *stored; /* TP_STORED_BUFFER bytes */
    uint8_t *other;  /* TP_FRAME_MAX_RAW bytes, where the pipeline has them */
    /* What the job is, set by `next`. */
    void *owner; /* what the caller keeps for the job's file */
    uint64_t number;
    uint64_t start;
    uint32_t file, raw_size; /* 0: there is nothing to work on, only `finish` is called */
    tp_class cls;
    /* What came out, set by `work`. */
    tp_frame_info info;
    bool differs;
    uint64_t differs_at;
    tp_status status;
    tp_error error;
} tp_job;

/* TP_NEXT_LATER: there will be a job once another one has been finished. */
typedef enum tp_next { TP_NEXT_NONE, TP_NEXT_JOB, TP_NEXT_LATER } tp_next;

typedef struct tp_pipeline {
    void *context;
    /*
     * Describes the next job. One call at a time, in any thread, while others work and finish jobs. What
     * goes wrong here goes into job->status and job->error: such a job is not worked on, and is the last.
     */
    tp_next (*next)(void *context, tp_job *job);
    /* Does a job, in a thread of the pool; its status becomes job->status. */
    tp_status (*work)(void *context, tp_encoder *encoder, tp_decoder *decoder, tp_job *job);
    /* Takes a job that has been done, in the calling thread, in order. An error ends the run. */
    tp_status (*finish)(void *context, tp_job *job, tp_error *error);
    bool encodes, decodes; /* the workspaces that `work` needs */
    bool needs_other;
    unsigned threads;
    tp_progress *progress; /* finish moves progress->done on */
} tp_pipeline;

/* Runs until there are no more jobs, an error or a wish to stop (TP_CANCELLED). All threads have ended
 * then. */
tp_status tp_pipeline_run(const tp_pipeline *pipeline, tp_error *error);

/* How many threads to use for so many jobs when the caller wishes `wanted` (0: as many as the process may
 * use). */
unsigned tp_pipeline_threads(unsigned wanted, uint64_t jobs);

#endif
