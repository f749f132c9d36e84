/* tp_compress_file: checkpoint -> spans -> frames -> container. */
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/container.h"
#include "convert/container_writer.h"
#include "convert/cutting.h"
#include "convert/input.h"
#include "convert/output.h"
#include "convert/pipeline.h"

#define MAX_NAME 255 /* of a stored path, which is a base name here */

typedef struct compression {
    tp_options options;
    tp_progress progress;
    tp_input input;
    tp_layout layout;
    tp_cutter cutter;
    tp_output output;
    tp_container_writer writer;
    tp_file_record file;
    EVP_MD_CTX *sha256; /* NULL: not asked for */
    uint8_t *earlier;   /* TP_FRAME_MAX_RAW bytes for comparing duplicates */
    uint64_t frames;
} compression;

static tp_status read_input(const compression *c, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    return c->input.source.read(c->input.source.context, dst, size, offset, error);
}

/* ------------------------------------------------------------------------------------------- layout */

static void warn(const compression *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(const compression *c, const char *format, ...)
{
    char line[2048];
    va_list args;
    if (!c->options.warning) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    c->options.warning(c->options.warning_context, line);
}

static uint64_t count_frames(const tp_layout *layout)
{
    tp_cutter cutter;
    tp_cut cut;
    uint64_t frames = 0;
    tp_cutter_init(&cutter, layout->spans, layout->span_count);
    while (tp_cutter_next(&cutter, &cut)) frames++;
    return frames;
}

/* Takes the whole file as one span of bytes. */
static tp_status forget_tensors(compression *c, const char *reason, tp_error *error)
{
    tp_layout_free(&c->layout);
    memset(&c->layout, 0, sizeof c->layout);
    snprintf(c->layout.reason, sizeof c->layout.reason, "%s", reason);
    c->layout.spans = malloc(sizeof *c->layout.spans);
    if (!c->layout.spans) return tp_error_memory(error);
    *c->layout.spans =
        (tp_span){.length = c->input.source.size, .tensor = TP_NO_TENSOR, .cls = TP_CLASS_BYTES};
    c->layout.span_count = 1;
    return TP_OK;
}

static tp_status lay_out(compression *c, tp_error *error)
{
    tp_status status = tp_layout_parse(&c->input.source, &c->layout, error);
    if (status != TP_OK) return status;
    c->frames = count_frames(&c->layout);
    if (tp_container_index_size(c->file.path, &c->layout, c->frames) > TP_INDEX_MAX_RAW &&
        c->input.source.size > 0) {
        status = forget_tensors(c, "the list of its tensors would exceed 1 GiB", error);
        if (status != TP_OK) return status;
        c->frames = count_frames(&c->layout);
        if (tp_container_index_size(c->file.path, &c->layout, c->frames) > TP_INDEX_MAX_RAW)
            return tp_error_set(error, TP_LIMIT, "%s: too large for one container", c->input.name);
    }
    const tp_layout *layout = &c->layout;
    if (layout->reason[0])
        warn(c, "%s: stored as bytes: %s", c->input.name, layout->reason);
    else if (layout->opaque_tensors > 0)
        warn(c, "%s: %llu of %llu tensors stored as bytes: %s", c->input.name,
             (unsigned long long)layout->opaque_tensors, (unsigned long long)layout->tensor_count,
             layout->opaque_reason);
    return TP_OK;
}

/* -------------------------------------------------------------------------------------------- frames */

static bool next_job(void *context, tp_job *job)
{
    compression *c = context;
    tp_cut cut;
    if (!tp_cutter_next(&c->cutter, &cut)) return false;
    job->start = cut.start;
    job->raw_size = cut.size;
    job->cls = cut.cls;
    return true;
}

/* Decodes the frame just made and compares: proves that this machine made no mistake. */
static tp_status check_job(const compression *c, tp_decoder *decoder, tp_job *job)
{
    tp_frame_view view;
    tp_status status = tp_frame_validate(job->stored, job->info.stored_size, true, &view, &job->error);
    if (status == TP_OK)
        status = tp_frame_decode(decoder, &view, TP_STORED_BUFFER, job->other, job->raw_size, &job->error);
    if (status == TP_OK && memcmp(job->raw, job->other, job->raw_size) == 0) return TP_OK;
    return tp_error_set_at(&job->error, TP_CORRUPT, job->start,
                           "%s: verification failed at byte %llu: a frame does not decode to its input",
                           c->input.name, (unsigned long long)job->start);
}

static tp_status do_job(void *context, tp_encoder *encoder, tp_decoder *decoder, tp_job *job)
{
    const compression *c = context;
    size_t size;
    tp_status status = read_input(c, job->raw, job->raw_size, job->start, &job->error);
    if (status != TP_OK) return status;
    status = tp_encode(encoder, job->cls, c->options.level, c->options.codec, job->raw, job->raw_size,
                       job->stored, TP_STORED_BUFFER, &size);
    if (status == TP_OK) status = tp_frame_peek(job->stored, &job->info, NULL);
    if (status != TP_OK)
        return tp_error_set_at(&job->error, status, job->start, "%s: cannot encode the bytes from %llu: %s",
                               c->input.name, (unsigned long long)job->start, tp_status_message(status));
    return c->options.verify ? check_job(c, decoder, job) : TP_OK;
}

static tp_status same_input(void *context, const tp_frame_record *earlier, const void *raw, bool *same,
                            tp_error *error)
{
    compression *c = context;
    if (!c->earlier && !(c->earlier = malloc(TP_FRAME_MAX_RAW))) return tp_error_memory(error);
    tp_status status = read_input(c, c->earlier, earlier->raw_size, earlier->start, error);
    *same = status == TP_OK && memcmp(c->earlier, raw, earlier->raw_size) == 0;
    return status;
}

static tp_status finish_job(void *context, tp_job *job, tp_error *error)
{
    compression *c = context;
    if (job->status != TP_OK) {
        if (error) *error = job->error;
        return job->status;
    }
    if (c->sha256 && EVP_DigestUpdate(c->sha256, job->raw, job->raw_size) != 1)
        return tp_error_memory(error);
    c->progress.done += job->raw_size;
    return tp_container_writer_add(&c->writer, &job->info, job->stored, job->raw, 0, job->start, error);
}

static tp_status convert_frames(compression *c, tp_error *error)
{
    if (c->options.sha256) {
        c->sha256 = EVP_MD_CTX_new();
        if (!c->sha256 || EVP_DigestInit_ex(c->sha256, EVP_sha256(), NULL) != 1)
            return tp_error_memory(error);
    }
    c->progress.total = c->input.source.size;
    tp_cutter_init(&c->cutter, c->layout.spans, c->layout.span_count);
    tp_pipeline pipeline = {
        .context = c,
        .next = next_job,
        .work = do_job,
        .finish = finish_job,
        .encodes = true,
        .decodes = c->options.verify,
        .needs_other = c->options.verify,
        .threads = tp_pipeline_threads(c->options.threads, c->frames),
        .progress = &c->progress,
    };
    return tp_pipeline_run(&pipeline, error);
}

/* ------------------------------------------------------------------------------------------ the file */

static tp_status write_index(compression *c, tp_error *error)
{
    tp_container_writer_end_file(&c->writer, &c->file);
    c->file.size = c->input.source.size;
    if (c->sha256 && EVP_DigestFinal_ex(c->sha256, c->file.sha256, NULL) != 1)
        return tp_error_memory(error);
    free(c->layout.spans); /* not needed any more: the memory goes to the index */
    c->layout.spans = NULL;
    c->layout.span_count = 0;
    return tp_container_writer_finish(&c->writer, &c->file, 1, c->options.sha256, error);
}

static tp_status compress(compression *c, const char *in_path, int in_fd, const char *out_path, int out_fd,
                          tp_error *error)
{
    tp_status status = tp_input_open(&c->input, in_path, in_fd, true, &c->progress, error);
    if (status != TP_OK) return status;
    c->file.path = tp_text_base(in_path ? in_path : "stdin");
    c->file.layout = &c->layout;
    const char *name = c->file.path;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) > MAX_NAME)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: its name cannot be stored in a container",
                            c->input.name);
    if (!c->options.dry_run) {
        status = tp_output_open(&c->output, out_path, out_fd, c->options.force, &c->input.stat,
                                &c->progress, error);
        if (status != TP_OK) return status;
    }
    status = lay_out(c, error);
    if (status == TP_OK) status = tp_container_writer_begin(&c->writer, &c->output, same_input, c, error);
    if (status == TP_OK) status = convert_frames(c, error);
    if (status == TP_OK) status = tp_input_unchanged(&c->input, error);
    if (status == TP_OK) status = write_index(c, error);
    if (status == TP_OK) status = tp_progress_tick(&c->progress, true, error);
    if (status == TP_OK) status = tp_output_commit(&c->output, error);
    return status;
}

tp_status tp_compress_file(const char *in_path, int in_fd, const char *out_path, int out_fd,
                           const tp_options *options, tp_report *report, tp_error *error)
{
    compression *c = calloc(1, sizeof *c);
    if (!c) return tp_error_memory(error);
    if (options)
        c->options = *options;
    else
        tp_options_init(&c->options);
    tp_progress_init(&c->progress, &c->options);
    tp_output_count(&c->output);
    c->input.fd = -1;
    tp_status status = compress(c, in_path, in_fd, out_path, out_fd, error);
    if (report && status == TP_OK)
        *report = (tp_report){.files = 1,
                              .tensors = c->layout.tensor_count,
                              .frames = c->writer.frame_count,
                              .duplicate_frames = c->writer.duplicates,
                              .raw_bytes = c->input.source.size,
                              .stored_bytes = c->output.size};
    tp_output_close(&c->output);
    tp_input_close(&c->input);
    tp_container_writer_free(&c->writer);
    tp_layout_free(&c->layout);
    EVP_MD_CTX_free(c->sha256);
    free(c->earlier);
    free(c);
    return status;
}
