/* tp_compress_file: checkpoint, or a folder of them -> spans -> frames -> container. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/compress.h"
#include "convert/container.h"
#include "convert/container_writer.h"
#include "convert/cutting.h"
#include "convert/output.h"
#include "convert/pipeline.h"
#include "convert/tree.h"

#define MAX_NAME 255 /* of a stored path that is a base name */
#define NOBODY SIZE_MAX

/*
 * Input files that are open at once: those of which frames are under way. More than one, so that threads do
 * not wait at the end of each file; few, for descriptors are scarce.
 */
#define OPEN_FILES 16

/* Opened and laid out when the first of its jobs is handed out, closed when the last one is finished. */
typedef struct open_file {
    bool used; /* set by next_job, cleared by finish_job */
    bool warned;
    size_t number;
    tp_input input;
    tp_layout layout;
} open_file;

typedef struct compression {
    tp_options options;
    tp_progress progress;
    bool folder;
    tp_tree tree;            /* of a folder */
    tp_file_record *records; /* files and folders in the order of the container */
    size_t count;
    open_file files[OPEN_FILES];
    tp_output output;
    tp_container_writer writer;
    /* For next_job. */
    size_t next;        /* the file to open next */
    open_file *current; /* the file that jobs are being made of; NULL: none */
    tp_cutter cutter;
    tp_index counts; /* of the index so far, what is still to come at its smallest */
    bool failed;
    /* For put_job. */
    size_t ended;             /* entries before this one are complete */
    const open_file *putting; /* the file of the job that is being put */
    tp_input again;           /* an earlier file, opened once more to compare duplicates */
    size_t again_number;
    uint8_t *earlier; /* TP_FRAME_MAX_RAW bytes for comparing duplicates */
    /* For finish_job. */
    EVP_MD_CTX *sha256; /* NULL: not asked for */
} compression;

static tp_status read_input(const tp_input *input, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    return input->source.read(input->source.context, dst, size, offset, error);
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

/* The one line about what is stored differently than its looks suggest. */
static void warn_about(const compression *c, open_file *file)
{
    const tp_layout *layout = &file->layout;
    if (file->warned) return;
    file->warned = true;
    if (layout->reason[0])
        warn(c, "%s: stored as bytes: %s", file->input.name, layout->reason);
    else if (layout->opaque_tensors > 0)
        warn(c, "%s: %llu of %llu tensors stored as bytes: %s", file->input.name,
             (unsigned long long)layout->opaque_tensors, (unsigned long long)layout->tensor_count,
             layout->opaque_reason);
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

/* As bytes. */
static uint64_t fewest_frames(uint64_t size)
{
    return size / TP_FRAME_MAX_RAW + (size % TP_FRAME_MAX_RAW != 0);
}

/* Takes the whole file as one span of bytes. */
static tp_status forget_tensors(open_file *file, const char *reason, tp_error *error)
{
    tp_layout *layout = &file->layout;
    tp_layout_free(layout);
    memset(layout, 0, sizeof *layout);
    snprintf(layout->reason, sizeof layout->reason, "%s", reason);
    if (file->input.source.size == 0) return TP_OK;
    layout->spans = malloc(sizeof *layout->spans);
    if (!layout->spans) return tp_error_memory(error);
    *layout->spans =
        (tp_span){.length = file->input.source.size, .tensor = TP_NO_TENSOR, .cls = TP_CLASS_BYTES};
    layout->span_count = 1;
    return TP_OK;
}

static bool index_fits(const tp_index *counts)
{
    uint64_t size;
    return tp_index_size(counts, &size) && size <= TP_INDEX_MAX_RAW && counts->frames <= UINT32_MAX;
}

/*
 * Lists the file's tensors and counts what the index takes. A file whose tensors no longer fit is stored as
 * bytes, so that no content makes a conversion fail.
 */
static tp_status lay_out(compression *c, open_file *file, tp_error *error)
{
    tp_status status = tp_layout_parse(&file->input.source, &file->layout, error);
    for (unsigned tries = 0; status == TP_OK; tries++) {
        tp_index counts = c->counts;
        counts.frames += count_frames(&file->layout) - fewest_frames(file->input.source.size);
        tp_container_count(&counts, &file->layout);
        if (index_fits(&counts)) {
            c->counts = counts;
            return TP_OK;
        }
        if (tries > 0)
            return tp_error_set(error, TP_LIMIT, "%s: too large for one container", file->input.name);
        status = forget_tensors(file,
                                c->folder ? "the container's list of tensors would exceed 1 GiB"
                                          : "the list of its tensors would exceed 1 GiB",
                                error);
    }
    return status;
}

/* What the index takes at least, if nothing but the files' paths and sizes is known. */
static tp_status count_files(compression *c, const char *name, tp_error *error)
{
    c->counts = (tp_index){.files = c->count, .sha256s = c->options.sha256 ? c->count : 0};
    for (size_t i = 0; i < c->count; i++) {
        c->counts.string_bytes += strlen(c->records[i].path);
        c->counts.frames += fewest_frames(c->records[i].size);
    }
    return index_fits(&c->counts) ? TP_OK
                                  : tp_error_set(error, TP_LIMIT, "%s: too large for one container", name);
}

/* -------------------------------------------------------------------------------------------- frames */

/* The next file that is no folder, and a free place for it. TP_NEXT_LATER: all are taken. */
static tp_next find_file(compression *c, open_file **file)
{
    while (c->next < c->count && c->records[c->next].folder) c->next++;
    if (c->next == c->count) return TP_NEXT_NONE;
    for (size_t i = 0; i < OPEN_FILES; i++) {
        if (__atomic_load_n(&c->files[i].used, __ATOMIC_ACQUIRE)) continue;
        *file = &c->files[i];
        return TP_NEXT_JOB;
    }
    return TP_NEXT_LATER;
}

static tp_status begin_file(compression *c, open_file *file, tp_error *error)
{
    tp_status status = TP_OK;
    __atomic_store_n(&file->used, true, __ATOMIC_RELAXED);
    file->number = c->next++;
    file->warned = false;
    if (c->folder) status = tp_tree_open_file(&c->tree, file->number, &file->input, error);
    if (status == TP_OK && c->options.direct) tp_input_direct(&file->input);
    if (status == TP_OK) status = lay_out(c, file, error);
    tp_cutter_init(&c->cutter, file->layout.spans, file->layout.span_count);
    return status;
}

/* Every file ends in a job without bytes. */
static tp_next next_job(void *context, tp_job *job)
{
    compression *c = context;
    tp_cut cut = {0};
    if (c->failed) return TP_NEXT_NONE;
    if (!c->current) {
        tp_next found = find_file(c, &c->current);
        if (found != TP_NEXT_JOB) return found;
        job->status = begin_file(c, c->current, &job->error);
        if (job->status != TP_OK) {
            c->failed = true;
            return TP_NEXT_JOB;
        }
    }
    job->owner = c->current;
    if (!tp_cutter_next(&c->cutter, &cut)) {
        cut = (tp_cut){0};
        c->current = NULL;
    }
    job->start = cut.start;
    job->raw_size = cut.size;
    job->cls = cut.cls;
    return TP_NEXT_JOB;
}

/* Decodes the frame just made and compares: proves that this machine made no mistake. */
static tp_status check_job(const tp_input *input, tp_decoder *decoder, tp_job *job)
{
    tp_frame_view view;
    tp_status status = tp_frame_validate(job->stored, job->info.stored_size, true, &view, &job->error);
    if (status == TP_OK)
        status = tp_frame_decode(decoder, &view, TP_STORED_BUFFER, job->other, job->raw_size, &job->error);
    if (status == TP_OK && memcmp(job->data, job->other, job->raw_size) == 0) return TP_OK;
    return tp_error_set_at(&job->error, TP_CORRUPT, job->start,
                           "%s: verification failed at byte %llu: a frame does not decode to its input",
                           input->name, (unsigned long long)job->start);
}

static tp_status do_job(void *context, tp_encoder *encoder, tp_decoder *decoder, tp_job *job)
{
    const compression *c = context;
    const tp_input *input = &((const open_file *)job->owner)->input;
    size_t size;
    uint8_t *data;
    tp_status status = tp_fetch(&input->source, job->raw, job->raw_size, job->start, &data, &job->error);
    if (status != TP_OK) return status;
    job->data = data;
    status = tp_encode(encoder, job->cls, c->options.level, c->options.codec, data, job->raw_size,
                       job->stored, TP_STORED_BUFFER, &size);
    if (status == TP_OK) status = tp_frame_peek(job->stored, &job->info, NULL);
    if (status != TP_OK)
        return tp_error_set_at(&job->error, status, job->start, "%s: cannot encode the bytes from %llu: %s",
                               input->name, (unsigned long long)job->start, tp_status_message(status));
    return c->options.verify ? check_job(input, decoder, job) : TP_OK;
}

/* The input that an earlier frame was made from: the current file, or one opened once more. */
static tp_status open_earlier(compression *c, size_t number, const tp_input **input, tp_error *error)
{
    *input = &c->putting->input;
    if (number == c->putting->number) return TP_OK;
    *input = &c->again;
    if (number == c->again_number) return TP_OK;
    tp_input_close(&c->again);
    c->again_number = NOBODY;
    tp_status status = tp_tree_open_file(&c->tree, number, &c->again, error);
    if (status == TP_OK) c->again_number = number;
    return status;
}

static tp_status same_input(void *context, const tp_frame_record *earlier, const void *raw, bool *same,
                            tp_error *error)
{
    compression *c = context;
    const tp_input *input;
    *same = false;
    if (!c->earlier && !(c->earlier = malloc(TP_FRAME_MAX_RAW))) return tp_error_memory(error);
    tp_status status = open_earlier(c, earlier->file, &input, error);
    if (status == TP_OK) status = read_input(input, c->earlier, earlier->raw_size, earlier->start, error);
    *same = status == TP_OK && memcmp(c->earlier, raw, earlier->raw_size) == 0;
    return status;
}

static void end_entry(compression *c)
{
    tp_container_writer_end_file(&c->writer, &c->records[c->ended++]);
}

/* Folders have no jobs; their entries are completed before the frames of the next file, or at the end. */
static void end_folders(compression *c, size_t before)
{
    while (c->ended < before) end_entry(c);
}

static tp_status put_job(void *context, tp_job *job)
{
    compression *c = context;
    open_file *file = job->owner;
    end_folders(c, file->number);
    if (job->raw_size == 0) {
        end_entry(c);
        return TP_OK;
    }
    c->putting = file;
    return tp_container_writer_add(&c->writer, &job->info, job->stored, job->data, (uint32_t)file->number,
                                   job->start, &job->error);
}

static tp_status end_file(compression *c, open_file *file, tp_error *error)
{
    tp_file_record *record = &c->records[file->number];
    tp_status status = tp_input_unchanged(&file->input, error);
    if (status != TP_OK) return status;
    if (c->sha256 && (EVP_DigestFinal_ex(c->sha256, record->sha256, NULL) != 1 ||
                      EVP_DigestInit_ex(c->sha256, EVP_sha256(), NULL) != 1))
        return tp_error_memory(error);
    status = tp_file_record_take(record, &file->layout, error);
    tp_input_close(&file->input);
    __atomic_store_n(&file->used, false, __ATOMIC_RELEASE);
    return status;
}

static tp_status finish_job(void *context, tp_job *job, tp_error *error)
{
    compression *c = context;
    if (job->status != TP_OK) {
        if (error) *error = job->error;
        return job->status;
    }
    open_file *file = job->owner;
    warn_about(c, file);
    if (job->raw_size == 0) return end_file(c, file, error);
    if (c->sha256 && EVP_DigestUpdate(c->sha256, job->data, job->raw_size) != 1)
        return tp_error_memory(error);
    c->progress.done += job->raw_size;
    return TP_OK;
}

static tp_status convert_frames(compression *c, tp_error *error)
{
    uint64_t jobs = c->count; /* about */
    if (c->options.sha256) {
        c->sha256 = EVP_MD_CTX_new();
        if (!c->sha256 || EVP_DigestInit_ex(c->sha256, EVP_sha256(), NULL) != 1)
            return tp_error_memory(error);
    }
    for (size_t i = 0; i < c->count; i++) {
        c->progress.total += c->records[i].size;
        jobs += c->records[i].size / TP_CUT_OWN;
    }
    tp_pipeline pipeline = {
        .context = c,
        .next = next_job,
        .work = do_job,
        .put = put_job,
        .calling_thread_puts = c->options.direct || !tp_output_is_file(&c->output),
        .finish = finish_job,
        .encodes = true,
        .decodes = c->options.verify,
        .needs_other = c->options.verify,
        .threads = c->options.threads,
        .jobs = jobs,
        .progress = &c->progress,
    };
    tp_status status = tp_pipeline_run(&pipeline, error);
    if (status == TP_OK) end_folders(c, c->count);
    return status;
}

/* ------------------------------------------------------------------------------------------- inputs */

static tp_status open_output(compression *c, const char *path, int fd, const struct stat *input,
                             tp_error *error)
{
    if (c->options.dry_run) return TP_OK;
    tp_status status = tp_output_open(&c->output, path, fd, c->options.force, input, &c->progress, error);
    if (status == TP_OK && c->options.direct) tp_output_direct(&c->output);
    return status;
}

bool tp_compress_name_fits(const char *name)
{
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= MAX_NAME;
}

/* The one input, which is open, becomes the one file of the container. */
static tp_status take_single(compression *c, const char *in_path, const char *out_path, int out_fd,
                             tp_error *error)
{
    tp_input *input = &c->files[0].input;
    c->records = calloc(1, sizeof *c->records);
    if (!c->records) return tp_error_memory(error);
    const char *name = tp_text_base(in_path ? in_path : "stdin");
    if (!tp_compress_name_fits(name))
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: its name cannot be stored in a container",
                            input->name);
    c->count = 1;
    c->records[0] = (tp_file_record){.path = name, .size = input->source.size};
    tp_status status = open_output(c, out_path, out_fd, &input->stat, error);
    return status == TP_OK ? count_files(c, input->name, error) : status;
}

static tp_status open_single(compression *c, const char *in_path, int in_fd, const char *out_path,
                             int out_fd, tp_error *error)
{
    tp_status status = tp_input_open(&c->files[0].input, in_path, in_fd, true, &c->progress, error);
    return status == TP_OK ? take_single(c, in_path, out_path, out_fd, error) : status;
}

/* The output must be none of the files: it would become a part of itself, or replace one. */
static tp_status check_output(const compression *c, tp_error *error)
{
    struct stat s;
    char shown[TP_SHOWN_PATH];
    if (!tp_output_stat(&c->output, &s) || !S_ISREG(s.st_mode)) return TP_OK;
    for (size_t i = 0; i < c->tree.count; i++) {
        const tp_tree_entry *e = &c->tree.entries[i];
        if (e->folder || e->device != s.st_dev || e->inode != s.st_ino) continue;
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "%s: the output is the input %s; choose another name", c->output.name,
                            tp_text_join(c->tree.name, tp_tree_path(&c->tree, i), shown));
    }
    return TP_OK;
}

static tp_status open_folder(compression *c, const char *in_path, int in_fd, const struct stat *folder,
                             const char *out_path, int out_fd, tp_error *error)
{
    if (!in_path) in_path = "stdin";
    c->folder = true;
    tp_status status = open_output(c, out_path, out_fd, NULL, error);
    if (status == TP_OK && tp_output_is_file(&c->output) && tp_place_is_inside(&c->output.place, folder))
        status =
            tp_error_set(error, TP_INVALID_ARGUMENT,
                         "%s: lies inside the input folder; name an output outside of it", c->output.name);
    if (status == TP_OK) status = tp_tree_open(&c->tree, in_path, in_fd, &c->progress, error);
    if (status == TP_OK) status = check_output(c, error);
    if (status != TP_OK) return status;
    c->count = c->tree.count;
    c->records = calloc(c->count + 1, sizeof *c->records);
    if (!c->records) return tp_error_memory(error);
    for (size_t i = 0; i < c->count; i++) {
        const tp_tree_entry *e = &c->tree.entries[i];
        c->records[i] = (tp_file_record){
            .path = tp_tree_path(&c->tree, i), .size = e->size, .mode = e->mode, .folder = e->folder};
    }
    return count_files(c, c->tree.name, error);
}

static tp_status open_all(compression *c, const char *in_path, int in_fd, const char *out_path, int out_fd,
                          tp_error *error)
{
    struct stat s;
    char shown[TP_SHOWN_PATH];
    bool given = in_fd >= 0 || in_path;
    if (given && (in_fd >= 0 ? fstat(in_fd, &s) : stat(in_path, &s)) != 0)
        return tp_error_system(error, errno, "%s: cannot open",
                               tp_text_path(in_path ? in_path : "stdin", shown));
    if (given && S_ISDIR(s.st_mode)) return open_folder(c, in_path, in_fd, &s, out_path, out_fd, error);
    return open_single(c, in_path, in_fd, out_path, out_fd, error);
}

/* All that follows once input and output are open. */
static tp_status convert(compression *c, tp_error *error)
{
    tp_status status = tp_container_writer_begin(&c->writer, &c->output, same_input, c, error);
    if (status == TP_OK) status = convert_frames(c, error);
    if (status == TP_OK && c->folder) status = tp_tree_unchanged(&c->tree, &c->progress, error);
    if (status == TP_OK)
        status = tp_container_writer_finish(&c->writer, c->records, c->count, c->folder, c->options.sha256,
                                            error);
    if (status == TP_OK) status = tp_progress_tick(&c->progress, true, error);
    if (status == TP_OK) status = tp_output_commit(&c->output, error);
    return status;
}

static tp_report report_of(const compression *c)
{
    tp_report report = {.frames = c->writer.frame_count,
                        .duplicate_frames = c->writer.duplicates,
                        .raw_bytes = c->progress.total,
                        .stored_bytes = c->output.size};
    for (size_t i = 0; i < c->count; i++) {
        report.files += !c->records[i].folder;
        report.tensors += c->records[i].tensor_count;
    }
    return report;
}

static void close_all(compression *c)
{
    for (size_t i = 0; i < OPEN_FILES; i++) {
        tp_input_close(&c->files[i].input);
        tp_layout_free(&c->files[i].layout);
    }
    for (size_t i = 0; i < c->count; i++) tp_file_record_free(&c->records[i]);
    tp_output_close(&c->output);
    tp_input_close(&c->again);
    tp_tree_close(&c->tree);
    tp_container_writer_free(&c->writer);
    EVP_MD_CTX_free(c->sha256);
    free(c->records);
    free(c->earlier);
    free(c);
}

static compression *create(const tp_options *options)
{
    compression *c = aligned_alloc(_Alignof(compression), sizeof *c); /* the hashers in it are aligned */
    if (!c) return NULL;
    memset(c, 0, sizeof *c);
    if (options)
        c->options = *options;
    else
        tp_options_init(&c->options);
    tp_progress_init(&c->progress, &c->options);
    tp_output_count(&c->output);
    for (size_t i = 0; i < OPEN_FILES; i++) c->files[i].input.fd = -1;
    c->again.fd = c->tree.fd = -1;
    c->again_number = NOBODY;
    return c;
}

static tp_status end(compression *c, tp_status status, tp_report *report)
{
    if (report && status == TP_OK) *report = report_of(c);
    close_all(c);
    return status;
}

tp_status tp_compress_file(const char *in_path, int in_fd, const char *out_path, int out_fd,
                           const tp_options *options, tp_report *report, tp_error *error)
{
    compression *c = create(options);
    if (!c) return tp_error_memory(error);
    tp_status status = open_all(c, in_path, in_fd, out_path, out_fd, error);
    if (status == TP_OK) status = convert(c, error);
    return end(c, status, report);
}

tp_status tp_compress_callback(tp_read_fn read, void *context, uint64_t size, const char *name,
                               const char *out_path, int out_fd, const tp_options *options,
                               tp_report *report, tp_error *error)
{
    compression *c = create(options);
    if (!c) return tp_error_memory(error);
    tp_input_callback(&c->files[0].input, name, read, context, size);
    tp_status status = take_single(c, name, out_path, out_fd, error);
    if (status == TP_OK) status = convert(c, error);
    return end(c, status, report);
}
