/*
 * Jobs done by a fixed pool of threads, put (written) in order by one of them at a time or by the calling
 * thread, and finished in order by the calling thread.
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
    uint8_t *raw;    /* TP_RAW_BUFFER bytes; all three at multiples of TP_FETCH_ALIGN */
    uint8_t *stored; /* TP_STORED_BUFFER bytes */
    uint8_t *other;  /* TP_RAW_BUFFER bytes, where the pipeline has them */
    /* What the job is, set by `next`. */
    void *owner; /* what the caller keeps for the job's file */
    uint64_t number;
    uint64_t start;
    uint32_t file, raw_size; /* 0: there is nothing to work on, only `put` and `finish` are called */
    tp_class cls;
    /* What came out, set by `work`. */
    const uint8_t *data; /* where in raw the bytes are, if they were fetched */
    tp_frame_info info;
    bool zeros; /* all of raw is zeros: decompress leaves a hole */
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
    /*
     * NULL, or writes what came out, in order, one call at a time; its status becomes job->status. After a
     * job that failed none is put. Whoever has just done the next job in order puts it, and those after it,
     * while the others work: several threads that write to one file only wait for each other. With fewer
     * threads than the process has CPUs the calling thread does it, which then costs no thread its time.
     */
    tp_status (*put)(void *context, tp_job *job);
    bool calling_thread_puts; /* in any case: it waits rather than computes, or calls the caller back */
    /* Takes a job that has been done and put, in the calling thread, in order. An error ends the run. */
    tp_status (*finish)(void *context, tp_job *job, tp_error *error);
    bool encodes, decodes; /* the workspaces that `work` needs */
    bool needs_other;
    unsigned threads;      /* 0: as many as the process may use */
    uint64_t jobs;         /* about: what the number of threads depends on */
    tp_progress *progress; /* finish moves progress->done on */
} tp_pipeline;

/* Runs until there are no more jobs, an error or a wish to stop (TP_CANCELLED). All threads have ended
 * then. */
tp_status tp_pipeline_run(const tp_pipeline *pipeline, tp_error *error);

/* How many threads to use for so many jobs when the caller wishes `wanted` (0: as many as the process may
 * use). */
unsigned tp_pipeline_threads(unsigned wanted, uint64_t jobs);

#endif
