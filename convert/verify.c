/* tp_verify_file: decodes everything, checks everything, and says which tensors are damaged. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/container.h"
#include "convert/pipeline.h"
#include "convert/tree.h"

#define MAX_REASONS 1000 /* faults beyond this many are reported without details, to bound the memory */
#define SHOWN_NAME 512
#define OPEN_FILES 16 /* as in compress.c */
#define NOWHERE UINT32_MAX

/* A file to compare with, open from its first job to its last. */
typedef struct open_file {
    bool used; /* set by next_job, cleared by finish_job */
    tp_input input;
} open_file;

typedef struct fault { /* a frame that is damaged or differs */
    uint64_t frame;
    tp_status status;
    char *reason;   /* or NULL */
    bool in_tensor; /* named by a tensor's line */
} fault;

typedef struct verification {
    tp_options options;
    tp_progress progress;
    tp_input input;
    tp_container container;
    uint64_t next, file; /* frame of the next job, and its file */
    /* What it is compared with. */
    bool compares;
    char other[TP_SHOWN_PATH]; /* its name for messages */
    tp_tree tree;              /* of a folder */
    uint32_t *entries;         /* each file's entry in the tree, or NOWHERE; NULL: it is no folder */
    open_file files[OPEN_FILES];
    open_file *current; /* of the file that jobs are being made of; NULL: none */
    bool failed;
    fault *faults; /* ascending by frame */
    size_t fault_count, fault_capacity, reason_count;
    uint64_t lines, tensors_named;
    bool damaged, unsupported, differs;
    EVP_MD_CTX *sha256;
    uint64_t sha256_file; /* the file that it is being computed of */
    bool sha256_known;    /* no frame of it was damaged so far */
} verification;

static void say(verification *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(verification *v, const char *format, ...)
{
    char line[2048];
    va_list args;
    v->lines++;
    if (!v->options.warning) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    v->options.warning(v->options.warning_context, line);
}

static void say_file(verification *v, uint64_t file, const char *reason)
{
    char shown[SHOWN_NAME];
    tp_text path = tp_index_path(&v->container.index, file);
    say(v, "%s: file '%s': %s", v->input.name, tp_text_escape(path.data, path.size, shown, sizeof shown),
        reason);
}

/* ------------------------------------------------------------------------------------------- faults */

static void note_status(verification *v, tp_status status)
{
    if (status == TP_MISMATCH)
        v->differs = true;
    else if (status == TP_UNSUPPORTED)
        v->unsupported = true;
    else
        v->damaged = true;
}

/* The first fault of a frame not before `frame`; fault_count if there is none. */
static size_t fault_from(const verification *v, uint64_t frame)
{
    size_t low = 0, high = v->fault_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v->faults[middle].frame < frame)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static tp_status add_fault(verification *v, uint64_t frame, tp_status cause, const char *reason,
                           tp_error *error)
{
    if (v->fault_count == v->fault_capacity) {
        size_t capacity = v->fault_capacity ? 2 * v->fault_capacity : 16;
        fault *faults = realloc(v->faults, capacity * sizeof *faults);
        if (!faults) return tp_error_memory(error);
        v->faults = faults;
        v->fault_capacity = capacity;
    }
    char *copy = reason && v->reason_count < MAX_REASONS ? strdup(reason) : NULL;
    v->reason_count += copy != NULL;
    v->faults[v->fault_count++] = (fault){.frame = frame, .status = cause, .reason = copy};
    note_status(v, cause);
    return TP_OK;
}

static const char *fault_reason(const fault *f)
{
    return f->reason ? f->reason : tp_status_message(f->status);
}

/* ---------------------------------------------------------------------------------------------- jobs */

/* The file that `file` is compared with is opened. TP_NEXT_LATER: too many are open. */
static tp_next open_other(verification *v, uint64_t file, tp_job *job)
{
    for (size_t i = 0; i < OPEN_FILES; i++) {
        open_file *other = &v->files[i];
        if (__atomic_load_n(&other->used, __ATOMIC_ACQUIRE)) continue;
        __atomic_store_n(&other->used, true, __ATOMIC_RELAXED);
        job->status = tp_tree_open_file(&v->tree, v->entries[file], &other->input, &job->error);
        if (job->status == TP_OK && v->options.direct) tp_input_direct(&other->input);
        v->failed = job->status != TP_OK;
        v->current = other;
        return TP_NEXT_JOB;
    }
    return TP_NEXT_LATER;
}

static void describe(const verification *v, tp_job *job)
{
    const tp_index *index = &v->container.index;
    job->number = v->next;
    job->file = (uint32_t)v->file;
    job->start = tp_index_frame_position(index, v->file, v->next);
    job->raw_size = index->frame_raw_size[v->next];
    job->owner = v->current;
}

/* A file that is compared with one of a folder ends in a job without bytes. */
static tp_next next_job(void *context, tp_job *job)
{
    verification *v = context;
    const tp_index *index = &v->container.index;
    if (v->failed) return TP_NEXT_NONE;
    if (v->entries && v->current && v->next == index->file_frame[v->file + 1]) {
        job->owner = v->current;
        job->raw_size = 0;
        v->current = NULL;
        return TP_NEXT_JOB;
    }
    if (v->next == index->frames) return TP_NEXT_NONE;
    while (v->next >= index->file_frame[v->file + 1]) v->file++;
    if (v->entries && !v->current && v->entries[v->file] != NOWHERE) {
        tp_next opened = open_other(v, v->file, job);
        if (opened != TP_NEXT_JOB || v->failed) return opened;
    }
    describe(v, job);
    v->next++;
    return TP_NEXT_JOB;
}

/* A frame stored earlier has been checked there, unless its bytes are wanted again. */
static bool skips(const verification *v, uint64_t frame)
{
    return !v->compares && !v->container.index.has_sha256 &&
           tp_index_is_duplicate(&v->container.index, frame);
}

/* Compares the decoded frame with the original, as far as that goes: its size is looked at elsewhere. */
static tp_status compare(const tp_source *source, tp_job *job)
{
    uint64_t left = source->size > job->start ? source->size - job->start : 0;
    size_t size = left < job->raw_size ? (size_t)left : job->raw_size;
    if (size == 0) return TP_OK;
    uint8_t *other;
    tp_status status = tp_fetch(source, job->other, size, job->start, &other, &job->error);
    if (status != TP_OK || memcmp(job->raw, other, size) == 0) return status;
    size_t at = 0;
    while (job->raw[at] == other[at]) at++;
    return tp_error_set_at(&job->error, TP_MISMATCH, job->start + at, "differs from %s at byte %llu",
                           source->name, (unsigned long long)(job->start + at));
}

static tp_status do_job(void *context, tp_encoder *encoder, tp_decoder *decoder, tp_job *job)
{
    const verification *v = context;
    const open_file *other = job->owner;
    (void)encoder;
    if (skips(v, job->number)) return TP_OK;
    tp_status status =
        tp_container_decode_frame(&v->container, job->number, decoder, job->stored, job->raw, &job->error);
    return status == TP_OK && other ? compare(&other->input.source, job) : status;
}

/* The last job of a file in a folder. */
static tp_status close_other(open_file *other, tp_error *error)
{
    tp_status status = tp_input_unchanged(&other->input, error);
    tp_input_close(&other->input);
    __atomic_store_n(&other->used, false, __ATOMIC_RELEASE);
    return status;
}

static bool is_about_data(tp_status status)
{
    return status == TP_CORRUPT || status == TP_TRUNCATED || status == TP_UNSUPPORTED ||
           status == TP_MISMATCH;
}

/* Ends the SHA-256 of the files before `file` and begins those after, up to it. */
static tp_status sha256_to(verification *v, uint64_t file, tp_error *error)
{
    const tp_index *index = &v->container.index;
    uint8_t digest[32];
    for (; v->sha256_file < file; v->sha256_file++) {
        if (EVP_DigestFinal_ex(v->sha256, digest, NULL) != 1 ||
            EVP_DigestInit_ex(v->sha256, EVP_sha256(), NULL) != 1)
            return tp_error_memory(error);
        bool checked = v->sha256_known && index->file_kind[v->sha256_file] == 0;
        v->sha256_known = true;
        if (!checked || memcmp(digest, index->file_sha256 + 32 * v->sha256_file, 32) == 0) continue;
        v->damaged = true;
        say_file(v, v->sha256_file, "its SHA-256 differs");
    }
    return TP_OK;
}

static tp_status finish_job(void *context, tp_job *job, tp_error *error)
{
    verification *v = context;
    tp_status status = TP_OK;
    if (job->status != TP_OK && !is_about_data(job->status)) {
        if (error) *error = job->error;
        return job->status;
    }
    if (job->raw_size == 0) return close_other(job->owner, error);
    if (job->status != TP_OK) {
        /* The line names the container itself. */
        size_t prefix = strlen(v->input.name);
        const char *reason = job->error.message;
        if (strncmp(reason, v->input.name, prefix) == 0 && strncmp(reason + prefix, ": ", 2) == 0)
            reason += prefix + 2;
        status = add_fault(v, job->number, job->status, reason, error);
    } else if (skips(v, job->number)) {
        uint64_t first = tp_index_first(&v->container.index, job->number);
        size_t f = fault_from(v, first);
        if (f < v->fault_count && v->faults[f].frame == first)
            status = add_fault(v, job->number, v->faults[f].status, v->faults[f].reason, error);
    }
    if (status == TP_OK && v->sha256) {
        status = sha256_to(v, job->file, error);
        if (job->status != TP_OK && job->status != TP_MISMATCH)
            v->sha256_known = false;
        else if (status == TP_OK && EVP_DigestUpdate(v->sha256, job->raw, job->raw_size) != 1)
            status = tp_error_memory(error);
    }
    v->progress.done += job->raw_size;
    return status;
}

static tp_status check_frames(verification *v, tp_error *error)
{
    const tp_index *index = &v->container.index;
    v->progress.total = index->frame_start[index->frames];
    if (index->has_sha256) {
        v->sha256 = EVP_MD_CTX_new();
        v->sha256_known = true;
        if (!v->sha256 || EVP_DigestInit_ex(v->sha256, EVP_sha256(), NULL) != 1)
            return tp_error_memory(error);
    }
    tp_pipeline pipeline = {
        .context = v,
        .next = next_job,
        .work = do_job,
        .finish = finish_job,
        .decodes = true,
        .needs_other = v->compares,
        .threads = v->options.threads,
        .jobs = index->frames,
        .progress = &v->progress,
    };
    tp_status status = tp_pipeline_run(&pipeline, error);
    if (status == TP_OK && v->sha256) status = sha256_to(v, index->files, error);
    return status;
}

/* ------------------------------------------------------------------------------------------ reporting */

/*
 * One line for each tensor with a faulty frame. `marks`: how many more such tensors begin than end at each
 * fault, from which it follows afterwards which faults no tensor has named; tensors may overlap at will.
 */
static void report_tensors(verification *v, uint64_t file, int64_t *marks)
{
    const tp_index *index = &v->container.index;
    char path[SHOWN_NAME], place[SHOWN_NAME + 16] = "";
    tp_text text = tp_index_path(index, file);
    if (index->folder)
        snprintf(place, sizeof place,
                 "file '%s': ", tp_text_escape(text.data, text.size, path, sizeof path));
    for (uint64_t t = index->file_tensor[file]; t < index->file_tensor[file + 1]; t++) {
        uint64_t start = index->tensor_offset[t], size = index->file_size[file],
                 length = index->tensor_nbytes[t];
        if (start >= size || length == 0) continue;
        if (length > size - start) length = size - start; /* truncated */
        size_t first = fault_from(v, tp_index_frame_at(index, file, start));
        size_t end = fault_from(v, tp_index_frame_at(index, file, start + length - 1) + 1);
        if (first == end) continue;
        char shown[SHOWN_NAME];
        tp_text name = tp_index_name(index, t);
        marks[first]++;
        marks[end]--;
        v->tensors_named++;
        tp_text_escape(name.data, name.size, shown, sizeof shown);
        say(v, "%s: %stensor '%s': %s", v->input.name, place, shown, fault_reason(&v->faults[first]));
    }
}

static tp_status report_faults(verification *v, tp_error *error)
{
    const tp_index *index = &v->container.index;
    if (v->fault_count == 0) return TP_OK;
    int64_t *marks = calloc(v->fault_count + 1, sizeof *marks);
    if (!marks) return tp_error_memory(error);
    for (uint64_t file = 0; file < index->files; file++) report_tensors(v, file, marks);
    int64_t open = 0;
    for (size_t i = 0; i < v->fault_count; i++) {
        open += marks[i];
        v->faults[i].in_tensor = open > 0;
    }
    free(marks);
    for (uint64_t file = 0; file < index->files; file++) {
        size_t f = fault_from(v, index->file_frame[file]);
        while (f < v->fault_count && v->faults[f].in_tensor &&
               v->faults[f].frame < index->file_frame[file + 1])
            f++;
        if (f < v->fault_count && v->faults[f].frame < index->file_frame[file + 1])
            say_file(v, file, fault_reason(&v->faults[f]));
    }
    return TP_OK;
}

/* ---------------------------------------------------------------------------------------- comparing */

static void compare_sizes(verification *v, uint64_t file, uint64_t other, const char *name)
{
    uint64_t size = v->container.index.file_size[file];
    char reason[TP_SHOWN_PATH + 128];
    if (size == other) return;
    v->differs = true;
    snprintf(reason, sizeof reason, "has %llu bytes, %s has %llu", (unsigned long long)size, name,
             (unsigned long long)other);
    say_file(v, file, reason);
}

/* Kind, permission bits and size of an entry that both have. */
static void compare_properties(verification *v, uint64_t file, uint32_t entry)
{
    const tp_index *index = &v->container.index;
    const tp_tree_entry *e = &v->tree.entries[entry];
    char shown[TP_SHOWN_PATH], reason[TP_SHOWN_PATH + 128];
    bool folder = index->file_kind[file] == 1;
    tp_text_join(v->tree.name, tp_tree_path(&v->tree, entry), shown);
    if (folder != e->folder) {
        snprintf(reason, sizeof reason, "is a %s, but %s is a %s", folder ? "folder" : "file", shown,
                 folder ? "file" : "folder");
        v->differs = true;
        say_file(v, file, reason);
        return;
    }
    if (index->file_mode[file] != e->mode) {
        snprintf(reason, sizeof reason, "has the permissions %03o, %s has %03o", index->file_mode[file],
                 shown, e->mode);
        v->differs = true;
        say_file(v, file, reason);
    }
    if (!folder) compare_sizes(v, file, e->size, shown);
}

/* Only one of the two has it: `file` of the container, or an entry of the folder. */
static void say_missing(verification *v, const uint32_t *file, uint32_t entry)
{
    char shown[TP_SHOWN_PATH], reason[TP_SHOWN_PATH + 128];
    v->differs = true;
    if (file) {
        snprintf(reason, sizeof reason, "is not in %s", v->other);
        say_file(v, *file, reason);
    } else {
        say(v, "%s: is not in %s", tp_text_join(v->tree.name, tp_tree_path(&v->tree, entry), shown),
            v->input.name);
    }
}

static int compare_path(const verification *v, uint32_t file, uint32_t entry)
{
    tp_text path = tp_index_path(&v->container.index, file);
    const char *other = tp_tree_path(&v->tree, entry);
    size_t size = strlen(other);
    int order = memcmp(path.data, other, path.size < size ? path.size : size);
    return order ? order : (path.size > size) - (path.size < size);
}

/*
 * Walks the container's paths and the folder's together. First without a word, to find each file's entry;
 * at the end again, to say what differs.
 */
static tp_status compare_trees(verification *v, bool aloud, tp_error *error)
{
    const tp_index *index = &v->container.index;
    uint32_t *sorted;
    tp_status status = tp_index_sort(index, &sorted, error);
    if (status != TP_OK) return status;
    for (uint32_t i = 0, k = 0; i < index->files || k < v->tree.count;) {
        int order = i == index->files ? 1 : k == v->tree.count ? -1 : compare_path(v, sorted[i], k);
        if (order != 0 && aloud) say_missing(v, order < 0 ? &sorted[i] : NULL, k);
        if (order == 0 && aloud) compare_properties(v, sorted[i], k);
        if (order == 0 && !index->file_kind[sorted[i]] && !v->tree.entries[k].folder)
            v->entries[sorted[i]] = k;
        i += order <= 0;
        k += order >= 0;
    }
    free(sorted);
    return TP_OK;
}

static tp_status open_tree(verification *v, const char *against, tp_error *error)
{
    const tp_index *index = &v->container.index;
    tp_status status = tp_tree_open(&v->tree, against, -1, &v->progress, error);
    if (status != TP_OK) return status;
    v->entries = malloc((index->files + 1) * sizeof *v->entries);
    if (!v->entries) return tp_error_memory(error);
    for (uint64_t i = 0; i < index->files; i++) v->entries[i] = NOWHERE;
    return compare_trees(v, false, error);
}

static tp_status open_against(verification *v, const char *against, tp_error *error)
{
    struct stat s;
    v->compares = true;
    tp_text_path(against, v->other);
    if (stat(against, &s) != 0) return tp_error_system(error, errno, "%s: cannot open", v->other);
    bool folder = S_ISDIR(s.st_mode);
    if (folder != v->container.index.folder)
        return tp_error_set(error, TP_MISMATCH, "%s: holds a %s, but %s is a %s", v->input.name,
                            folder ? "file" : "folder", v->other, folder ? "folder" : "file");
    if (v->container.index.folder) return open_tree(v, against, error);
    tp_status status = tp_input_open(&v->files[0].input, against, -1, false, &v->progress, error);
    if (status != TP_OK) return status;
    if (v->options.direct) tp_input_direct(&v->files[0].input);
    v->current = &v->files[0];
    return TP_OK;
}

/* What is not about single frames, and whether the other side stayed as it was meanwhile. */
static tp_status compare_rest(verification *v, tp_error *error)
{
    if (!v->compares) return TP_OK;
    if (!v->entries) {
        const tp_input *other = &v->files[0].input;
        compare_sizes(v, 0, other->source.size, other->name);
        return tp_input_unchanged(other, error);
    }
    tp_status status = compare_trees(v, true, error);
    return status == TP_OK ? tp_tree_unchanged(&v->tree, &v->progress, error) : status;
}

/* ------------------------------------------------------------------------------------------- all of it */

static tp_status verdict(const verification *v, tp_error *error)
{
    const tp_index *index = &v->container.index;
    if (v->damaged && v->tensors_named > 0)
        return tp_error_set(error, TP_CORRUPT, "%s: damaged: %llu of %llu tensors", v->input.name,
                            (unsigned long long)v->tensors_named, (unsigned long long)index->tensors);
    if (v->damaged) return tp_error_set(error, TP_CORRUPT, "%s: damaged", v->input.name);
    if (v->unsupported)
        return tp_error_set(error, TP_UNSUPPORTED, "%s: holds frames that this version cannot decode",
                            v->input.name);
    if (v->differs)
        return tp_error_set(error, TP_MISMATCH, "%s: intact, but differs from %s", v->input.name, v->other);
    return TP_OK;
}

static tp_status verify(verification *v, const char *in_path, int in_fd, const char *against,
                        tp_error *error)
{
    tp_status status =
        tp_container_open_input(&v->container, &v->input, in_path, in_fd, &v->progress, error);
    if (status == TP_OK && v->options.direct) tp_input_direct(&v->input);
    if (status == TP_OK && against) status = open_against(v, against, error);
    if (status == TP_OK) status = check_frames(v, error);
    if (status == TP_OK) status = report_faults(v, error);
    if (status == TP_OK) status = compare_rest(v, error);
    if (status == TP_OK) status = tp_progress_tick(&v->progress, true, error);
    return status == TP_OK ? verdict(v, error) : status;
}

tp_status tp_verify_file(const char *in_path, int in_fd, const char *against, const tp_options *options,
                         tp_report *report, tp_error *error)
{
    verification *v = calloc(1, sizeof *v);
    if (!v) return tp_error_memory(error);
    if (options)
        v->options = *options;
    else
        tp_options_init(&v->options);
    tp_progress_init(&v->progress, &v->options);
    v->input.fd = v->tree.fd = -1;
    for (size_t i = 0; i < OPEN_FILES; i++) v->files[i].input.fd = -1;
    tp_status status = verify(v, in_path, in_fd, against, error);
    const tp_index *index = &v->container.index;
    if (report && status == TP_OK)
        *report = (tp_report){.files = tp_index_regular_files(index),
                              .tensors = index->tensors,
                              .frames = index->frames,
                              .duplicate_frames = index->frames - index->stored_count,
                              .raw_bytes = v->progress.total,
                              .stored_bytes = v->input.source.size};
    for (size_t i = 0; i < v->fault_count; i++) free(v->faults[i].reason);
    free(v->faults);
    EVP_MD_CTX_free(v->sha256);
    tp_container_close(&v->container);
    for (size_t i = 0; i < OPEN_FILES; i++) tp_input_close(&v->files[i].input);
    tp_tree_close(&v->tree);
    free(v->entries);
    tp_input_close(&v->input);
    free(v);
    return status;
}
