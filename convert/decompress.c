/* tp_decompress_file: container -> frames -> the original file or folder. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/container.h"
#include "convert/direct.h"
#include "convert/folder.h"
#include "convert/input.h"
#include "convert/output.h"
#include "convert/pipeline.h"

#define OPEN_FILES 16 /* as in compress.c */

/* A file of a folder from its creation to its last job. */
typedef struct open_file {
    bool used; /* set by next_in_folder, cleared by finish_in_folder */
    int fd;
    uint64_t number;
    char name[TP_SHOWN_PATH]; /* for messages */
} open_file;

typedef struct restoration {
    tp_options options;
    tp_progress progress;
    tp_input input;
    tp_container container;
    uint64_t next;     /* frame of the next job */
    uint64_t position; /* where it lies in its file */
    uint64_t size;     /* of all that is restored */
    /* A single file: */
    tp_output output;
    /* A folder: */
    tp_folder folder;
    open_file files[OPEN_FILES];
    open_file *current; /* the file that jobs are being made for; NULL: none */
    uint64_t created;   /* entries before this one exist */
    bool failed;
    tp_file_writer writer;
} restoration;

static bool all_zero(const uint8_t *data, size_t size)
{
    return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

static void next_frame(restoration *r, tp_job *job)
{
    job->number = r->next++;
    job->start = r->position;
    job->raw_size = r->container.index.frame_raw_size[job->number];
    r->position += job->raw_size;
}

static tp_status work(void *context, tp_encoder *encoder, tp_decoder *decoder, tp_job *job)
{
    const restoration *r = context;
    (void)encoder;
    const tp_status status =
        tp_container_decode_frame(&r->container, job->number, decoder, job->stored, job->raw, &job->error);
    /* Here, not where frames are put: that is one thread at a time. */
    job->zeros = status == TP_OK && all_zero(job->raw, job->raw_size);
    return status;
}

/* ---------------------------------------------------------------------------------------- one file */

static tp_next next_in_file(void *context, tp_job *job)
{
    restoration *r = context;
    if (r->next == r->container.index.frames) return TP_NEXT_NONE;
    next_frame(r, job);
    return TP_NEXT_JOB;
}

/* In a file zeros are a hole already. */
static tp_status put_in_file(void *context, tp_job *job)
{
    restoration *r = context;
    if (!tp_output_is_file(&r->output))
        return tp_output_write(&r->output, job->raw, job->raw_size, &job->error);
    if (job->zeros) return TP_OK;
    return tp_output_write_at(&r->output, job->raw, job->raw_size, job->start, &job->error);
}

static tp_status finish_in_file(void *context, tp_job *job, tp_error *error)
{
    restoration *r = context;
    if (job->status != TP_OK) {
        if (error) *error = job->error;
        return job->status;
    }
    r->progress.done += job->raw_size;
    return TP_OK;
}

/* ---------------------------------------------------------------------------------------- a folder */

/* The path of an entry as the system takes it. The rules for paths hold it below TP_MAX_PATH + 1. */
static void entry_path(const restoration *r, uint64_t entry, char path[TP_MAX_PATH + 1])
{
    tp_text text = tp_index_path(&r->container.index, entry);
    memcpy(path, text.data, text.size);
    path[text.size] = 0;
}

static open_file *free_place(restoration *r)
{
    for (size_t i = 0; i < OPEN_FILES; i++)
        if (!__atomic_load_n(&r->files[i].used, __ATOMIC_ACQUIRE)) return &r->files[i];
    return NULL;
}

static tp_status begin_file(restoration *r, open_file *file, const char *path, tp_error *error)
{
    tp_status status =
        tp_folder_make_file(&r->folder, path, r->container.index.file_size[r->created], &file->fd, error);
    if (status != TP_OK) return status;
    file->number = r->created++;
    tp_text_join(r->folder.path, path, file->name);
    r->position = 0;
    r->current = file;
    __atomic_store_n(&file->used, true, __ATOMIC_RELAXED);
    return TP_OK;
}

/* Makes the next file, and the folders before it. TP_NEXT_NONE: there is no more. */
static tp_next find_file(restoration *r, tp_job *job)
{
    const tp_index *index = &r->container.index;
    char path[TP_MAX_PATH + 1];
    while (r->created < index->files) {
        bool folder = index->file_kind[r->created] == 1;
        open_file *file = folder ? NULL : free_place(r);
        if (!folder && !file) return TP_NEXT_LATER;
        entry_path(r, r->created, path);
        job->status = folder ? tp_folder_make_folder(&r->folder, path, &job->error)
                             : begin_file(r, file, path, &job->error);
        r->failed = job->status != TP_OK;
        if (r->failed || !folder) return TP_NEXT_JOB;
        r->created++;
    }
    return TP_NEXT_NONE;
}

/* Every file ends in a job without bytes. */
static tp_next next_in_folder(void *context, tp_job *job)
{
    restoration *r = context;
    if (r->failed) return TP_NEXT_NONE;
    if (!r->current) {
        tp_next found = find_file(r, job);
        if (found != TP_NEXT_JOB || r->failed) return found;
    }
    job->owner = r->current;
    if (r->next < r->container.index.file_frame[r->current->number + 1]) {
        next_frame(r, job);
    } else {
        job->raw_size = 0;
        r->current = NULL;
    }
    return TP_NEXT_JOB;
}

/* Jobs come in order, so one file is written at a time. */
static tp_status put_in_folder(void *context, tp_job *job)
{
    restoration *r = context;
    const open_file *file = job->owner;
    if (job->raw_size == 0) return tp_file_writer_end(&r->writer, &job->error);
    if (job->start == 0) {
        uint64_t size = r->container.index.file_size[file->number];
        bool direct = r->options.direct && size >= TP_DIRECT_LEAST;
        tp_file_writer_begin(&r->writer, file->fd, file->name, direct);
    }
    if (job->zeros) return TP_OK;
    return tp_file_writer_put(&r->writer, job->raw, job->raw_size, job->start, &job->error);
}

static tp_status finish_in_folder(void *context, tp_job *job, tp_error *error)
{
    restoration *r = context;
    open_file *file = job->owner;
    if (job->status != TP_OK) {
        if (error) *error = job->error;
        return job->status;
    }
    r->progress.done += job->raw_size;
    if (job->raw_size > 0) return TP_OK;
    int fd = file->fd;
    file->fd = -1;
    tp_status status =
        tp_folder_end_file(fd, r->container.index.file_mode[file->number], file->name, error);
    __atomic_store_n(&file->used, false, __ATOMIC_RELEASE);
    return status;
}

/* What a folder contains comes after it: backwards, no folder is closed to what is still to be done in it.
 */
static tp_status set_modes(restoration *r, tp_error *error)
{
    const tp_index *index = &r->container.index;
    char path[TP_MAX_PATH + 1];
    tp_status status = TP_OK;
    for (uint64_t i = index->files; i-- > 0 && status == TP_OK;) {
        if (index->file_kind[i] != 1) continue;
        entry_path(r, i, path);
        status = tp_folder_set_mode(&r->folder, path, index->file_mode[i], error);
        if (status == TP_OK) status = tp_progress_tick(&r->progress, false, error);
    }
    return status;
}

/* Takes back all that was made; whatever their modes are by now, the folders have to let us. */
static void remove_entries(restoration *r)
{
    const tp_index *index = &r->container.index;
    char path[TP_MAX_PATH + 1];
    for (uint64_t i = 0; i < r->created; i++) {
        if (index->file_kind[i] != 1) continue;
        entry_path(r, i, path);
        (void)tp_folder_set_mode(&r->folder, path, 0700, NULL);
    }
    for (uint64_t i = r->created; i-- > 0;) {
        entry_path(r, i, path);
        tp_folder_remove(&r->folder, path, index->file_kind[i] == 1);
    }
}

/* ------------------------------------------------------------------------------------------- all of it */

static tp_status run(restoration *r, tp_error *error)
{
    const tp_index *index = &r->container.index;
    r->progress.total = r->size;
    tp_pipeline pipeline = {
        .context = r,
        .next = index->folder ? next_in_folder : next_in_file,
        .work = work,
        .put = index->folder ? put_in_folder : put_in_file,
        .calling_thread_puts = r->options.direct || (!index->folder && !tp_output_is_file(&r->output)),
        .finish = index->folder ? finish_in_folder : finish_in_file,
        .decodes = true,
        .threads = r->options.threads,
        .jobs = index->frames,
        .progress = &r->progress,
    };
    tp_status status = tp_pipeline_run(&pipeline, error);
    if (status == TP_OK && index->folder) status = set_modes(r, error);
    if (status == TP_OK) status = tp_progress_tick(&r->progress, true, error);
    return status;
}

static tp_status restore_file(restoration *r, const char *out_path, int out_fd, tp_error *error)
{
    tp_status status =
        tp_output_open(&r->output, out_path, out_fd, r->options.force, &r->input.stat, &r->progress, error);
    if (status == TP_OK && tp_output_is_file(&r->output))
        status = tp_output_reserve(&r->output, r->size, error);
    if (status == TP_OK && r->options.direct && r->size >= TP_DIRECT_LEAST) tp_output_direct(&r->output);
    if (status == TP_OK) status = run(r, error);
    if (status == TP_OK) status = tp_output_commit(&r->output, error);
    return status;
}

static tp_status restore_folder(restoration *r, const char *out_path, int out_fd, tp_error *error)
{
    if (out_fd >= 0 || !out_path)
        return tp_error_set(
            error, TP_INVALID_ARGUMENT,
            "%s: holds a folder, which only a path can receive; name the output, or choose a file",
            r->input.name);
    tp_status status = tp_folder_open(&r->folder, out_path, r->options.force, error);
    if (status == TP_OK) status = tp_folder_reserve(&r->folder, r->container.index.files, r->size, error);
    if (status == TP_OK) status = run(r, error);
    if (status == TP_OK) status = tp_folder_commit(&r->folder, error);
    if (r->folder.temporary) remove_entries(r);
    tp_folder_close(&r->folder);
    return status;
}

static tp_status restore(restoration *r, const char *in_path, int in_fd, const char *out_path, int out_fd,
                         tp_error *error)
{
    tp_status status =
        tp_container_open_input(&r->container, &r->input, in_path, in_fd, &r->progress, error);
    if (status != TP_OK) return status;
    if (r->options.direct) tp_input_direct(&r->input);
    const tp_index *index = &r->container.index;
    r->size = index->frame_start[index->frames];
    if (r->options.max_output > 0 && r->size > r->options.max_output)
        return tp_error_set(error, TP_LIMIT, "%s: would restore %llu bytes, more than the limit of %llu",
                            r->input.name, (unsigned long long)r->size,
                            (unsigned long long)r->options.max_output);
    return index->folder ? restore_folder(r, out_path, out_fd, error)
                         : restore_file(r, out_path, out_fd, error);
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
    tp_file_writer_init(&r->writer);
    r->input.fd = -1;
    for (size_t i = 0; i < OPEN_FILES; i++) r->files[i].fd = -1;
    tp_status status = restore(r, in_path, in_fd, out_path, out_fd, error);
    const tp_index *index = &r->container.index;
    if (report && status == TP_OK)
        *report = (tp_report){.files = tp_index_regular_files(index),
                              .tensors = index->tensors,
                              .frames = index->frames,
                              .duplicate_frames = index->frames - index->stored_count,
                              .raw_bytes = r->size,
                              .stored_bytes = r->input.source.size};
    for (size_t i = 0; i < OPEN_FILES; i++)
        if (r->files[i].fd >= 0) close(r->files[i].fd);
    tp_output_close(&r->output);
    tp_file_writer_free(&r->writer);
    tp_container_close(&r->container);
    tp_input_close(&r->input);
    free(r);
    return status;
}
