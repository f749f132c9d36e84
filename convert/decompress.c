/* tp_decompress_file: container -> frames -> the original file. */
#include <stdlib.h>
#include <string.h>

#include "convert/container.h"
#include "convert/input.h"
#include "convert/output.h"
#include "convert/pipeline.h"

typedef struct restoration {
    tp_options options;
    tp_progress progress;
    tp_input input;
    tp_container container;
    tp_output output;
    uint64_t next;     /* frame of the next job */
    uint64_t position; /* where it lies in the file */
    uint64_t size;     /* of the file */
} restoration;

static bool next_job(void *context, tp_job *job)
{
    restoration *r = context;
    if (r->next == r->container.index.frames) return false;
    job->number = r->next++;
    job->start = r->position;
    job->raw_size = r->container.index.frame_raw_size[job->number];
    r->position += job->raw_size;
    return true;
}

static bool all_zero(const uint8_t *data, size_t size)
{
    return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

/* Into a file frames are written where they belong as they come; zeros are a hole already. */
static tp_status do_job(void *context, tp_encoder *encoder, tp_decoder *decoder, tp_job *job)
{
    const restoration *r = context;
    (void)encoder;
    tp_status status =
        tp_container_decode_frame(&r->container, job->number, decoder, job->stored, job->raw, &job->error);
    if (status != TP_OK || !tp_output_is_file(&r->output) || all_zero(job->raw, job->raw_size))
        return status;
    return tp_output_write_at(&r->output, job->raw, job->raw_size, job->start, &job->error);
}

static tp_status finish_job(void *context, tp_job *job, tp_error *error)
{
    restoration *r = context;
    if (job->status != TP_OK) {
        if (error) *error = job->error;
        return job->status;
    }
    r->progress.done += job->raw_size;
    return tp_output_is_file(&r->output) ? TP_OK
                                         : tp_output_write(&r->output, job->raw, job->raw_size, error);
}

static tp_status restore_frames(restoration *r, tp_error *error)
{
    r->progress.total = r->size;
    tp_pipeline pipeline = {
        .context = r,
        .next = next_job,
        .work = do_job,
        .finish = finish_job,
        .decodes = true,
        .threads = tp_pipeline_threads(r->options.threads, r->container.index.frames),
        .progress = &r->progress,
    };
    return tp_pipeline_run(&pipeline, error);
}

static tp_status restore(restoration *r, const char *in_path, int in_fd, const char *out_path, int out_fd,
                         tp_error *error)
{
    tp_status status = tp_input_open(&r->input, in_path, in_fd, true, &r->progress, error);
    if (status == TP_OK) status = tp_container_open(&r->container, &r->input.source, error);
    if (status != TP_OK) return status;
    if (r->container.index.folder)
        return tp_error_set(error, TP_UNSUPPORTED,
                            "%s: holds a folder; folders are not supported by this version", r->input.name);
    r->size = r->container.index.file_size[0];
    if (r->options.max_output > 0 && r->size > r->options.max_output)
        return tp_error_set(error, TP_LIMIT, "%s: would restore %llu bytes, more than the limit of %llu",
                            r->input.name, (unsigned long long)r->size,
                            (unsigned long long)r->options.max_output);
    status =
        tp_output_open(&r->output, out_path, out_fd, r->options.force, &r->input.stat, &r->progress, error);
    if (status == TP_OK && tp_output_is_file(&r->output))
        status = tp_output_reserve(&r->output, r->size, error);
    if (status == TP_OK) status = restore_frames(r, error);
    if (status == TP_OK) status = tp_progress_tick(&r->progress, true, error);
    if (status == TP_OK) status = tp_output_commit(&r->output, error);
    return status;
}

tp_status tp_decompress_file(const char *in_path, int in_fd, const char *out_path, int out_fd,
                             const tp_options *options, tp_report *report, tp_error *error)
{
    restoration *r = calloc(1, sizeof *r);
    if (!r) return tp_error_memory(error);
    if (options)
        r->options = *options;
    else
        tp_options_init(&r->options);
    tp_progress_init(&r->progress, &r->options);
    tp_output_count(&r->output);
    r->input.fd = -1;
    tp_status status = restore(r, in_path, in_fd, out_path, out_fd, error);
    const tp_index *index = &r->container.index;
    if (report && status == TP_OK)
        *report = (tp_report){.files = 1,
                              .tensors = index->tensors,
                              .frames = index->frames,
                              .duplicate_frames = index->frames - index->stored_count,
                              .raw_bytes = r->size,
                              .stored_bytes = r->input.source.size};
    tp_output_close(&r->output);
    tp_container_close(&r->container);
    tp_input_close(&r->input);
    free(r);
    return status;
}
