#include "convert/container_writer.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "convert/container.h"
#include "convert/text.h"

tp_status tp_container_writer_begin(tp_container_writer *writer, tp_output *output,
                                    tp_same_input_fn same_input, void *context, tp_error *error)
{
    uint8_t header[TP_CONTAINER_HEADER];
    memset(writer, 0, sizeof *writer);
    writer->output = output;
    writer->same_input = same_input;
    writer->context = context;
    tp_hasher_init(&writer->digest);
    tp_hasher_init(&writer->file_digest);
    tp_container_header(header);
    tp_hasher_add(&writer->digest, header, sizeof header);
    writer->next = sizeof header;
    return tp_output_write(output, header, sizeof header, error);
}

void tp_container_writer_free(tp_container_writer *writer)
{
    free(writer->frames);
    free(writer->seen);
    memset(writer, 0, sizeof *writer);
}

/* ------------------------------------------------------------------------------------------- frames */

static bool same_key(const tp_frame_record *a, const tp_frame_info *b)
{
    return a->raw_hash[0] == b->raw_hash[0] && a->raw_hash[1] == b->raw_hash[1] &&
           a->raw_size == b->raw_size && a->cls == b->cls;
}

/* The slot of the frame with this key, or the free one where it belongs. */
static uint64_t seen_slot(const tp_container_writer *w, const tp_frame_info *info)
{
    uint64_t slot = info->raw_hash[0] & (w->seen_size - 1);
    while (w->seen[slot] != 0 && !same_key(&w->frames[w->seen[slot] - 1], info))
        slot = (slot + 1) & (w->seen_size - 1);
    return slot;
}

/* Room for one more frame in both arrays; the table stays at most half full. */
static tp_status grow(tp_container_writer *w, tp_error *error)
{
    if (w->frame_count == UINT32_MAX)
        return tp_error_set(error, TP_LIMIT, "too many frames for one container");
    if (w->frame_count == w->frame_capacity) {
        uint64_t capacity = w->frame_capacity ? w->frame_capacity * 2 : 64;
        tp_frame_record *frames = realloc(w->frames, capacity * sizeof *frames);
        if (!frames) return tp_error_memory(error);
        w->frames = frames;
        w->frame_capacity = capacity;
    }
    if (2 * (w->seen_count + 1) <= w->seen_size) return TP_OK;
    uint32_t *old = w->seen;
    uint64_t old_size = w->seen_size;
    w->seen_size = old_size ? old_size * 2 : 128;
    w->seen = calloc(w->seen_size, sizeof *w->seen);
    if (!w->seen) {
        w->seen = old;
        w->seen_size = old_size;
        return tp_error_memory(error);
    }
    for (uint64_t i = 0; i < old_size; i++) {
        if (old[i] == 0) continue;
        uint64_t slot = w->frames[old[i] - 1].raw_hash[0] & (w->seen_size - 1);
        while (w->seen[slot] != 0) slot = (slot + 1) & (w->seen_size - 1);
        w->seen[slot] = old[i];
    }
    free(old);
    return TP_OK;
}

tp_status tp_container_writer_add(tp_container_writer *w, const tp_frame_info *info, const void *stored,
                                  const void *raw, uint32_t file, uint64_t start, tp_error *error)
{
    tp_status status = grow(w, error);
    if (status != TP_OK) return status;
    uint64_t slot = seen_slot(w, info);
    bool same = false, candidate = w->seen[slot] != 0;
    tp_frame_record *frame = &w->frames[w->frame_count];
    if (candidate) {
        const tp_frame_record *earlier = &w->frames[w->seen[slot] - 1];
        status = w->same_input(w->context, earlier, raw, &same, error);
        if (status != TP_OK) return status;
        if (same) *frame = *earlier;
    }
    if (!same) {
        *frame = (tp_frame_record){.offset = w->next,
                                   .stored_size = info->stored_size,
                                   .raw_size = info->raw_size,
                                   .codec = (uint8_t)info->codec,
                                   .method = (uint8_t)info->method,
                                   .cls = (uint8_t)info->cls};
        memcpy(frame->stored_hash, info->stored_hash, 16);
        memcpy(frame->raw_hash, info->raw_hash, 16);
        status = tp_output_write(w->output, stored, info->stored_size, error);
        if (status != TP_OK) return status;
        tp_hasher_add(&w->digest, info->stored_hash, 16);
        w->next += info->stored_size;
        /* Different bytes of one hash: the table keeps the first, the others are stored each time. */
        if (!candidate) {
            w->seen[slot] = (uint32_t)w->frame_count + 1;
            w->seen_count++;
        }
    }
    frame->file = file;
    frame->start = start;
    w->duplicates += same;
    w->frame_count++;
    uint64_t part[3] = {frame->raw_size, frame->raw_hash[0], frame->raw_hash[1]};
    tp_hasher_add(&w->file_digest, part, sizeof part);
    return TP_OK;
}

void tp_container_writer_end_file(tp_container_writer *w, tp_file_record *file)
{
    tp_hasher_end(&w->file_digest, file->digest);
    tp_hasher_init(&w->file_digest);
    file->frames = w->frame_count - w->file_first;
    w->file_first = w->frame_count;
}

/* -------------------------------------------------------------------------------------------- files */

/* Gives back what an array that grew has too much; a failure to do so is none. */
static void *shrunk(void *array, size_t size)
{
    if (size == 0) {
        free(array);
        return NULL;
    }
    void *smaller = realloc(array, size);
    return smaller ? smaller : array;
}

tp_status tp_file_record_take(tp_file_record *record, tp_layout *layout, tp_error *error)
{
    record->format = (uint8_t)layout->format;
    record->tensor_count = layout->tensor_count;
    record->dtype_count = layout->dtype_count;
    record->tensors = shrunk(layout->tensors, layout->tensor_count * sizeof *layout->tensors);
    record->dtypes = shrunk(layout->dtypes, layout->dtype_count * sizeof *layout->dtypes);
    record->dims = shrunk(layout->dims, layout->dim_count * sizeof *layout->dims);
    record->strings = shrunk(layout->strings, layout->string_size);
    layout->tensors = NULL;
    layout->dtypes = NULL;
    layout->dims = NULL;
    layout->strings = NULL;
    record->reason = layout->reason[0] ? strdup(layout->reason) : NULL;
    bool complete = record->reason || !layout->reason[0];
    tp_layout_free(layout);
    memset(layout, 0, sizeof *layout);
    return complete ? TP_OK : tp_error_memory(error);
}

void tp_file_record_free(tp_file_record *record)
{
    free(record->reason);
    free(record->tensors);
    free(record->dtypes);
    free(record->dims);
    free(record->strings);
}

/* -------------------------------------------------------------------------------------------- index */

static void count_tensors(tp_index *counts, const tp_layout_tensor *tensors, size_t tensor_count,
                          const tp_layout_text *dtypes, size_t dtype_count)
{
    counts->tensors += tensor_count;
    counts->dtypes += dtype_count;
    for (size_t i = 0; i < tensor_count; i++) {
        counts->dims += tensors[i].ndim;
        counts->string_bytes += tensors[i].name_size;
    }
    for (size_t i = 0; i < dtype_count; i++) counts->string_bytes += dtypes[i].size;
}

void tp_container_count(tp_index *counts, const tp_layout *layout)
{
    counts->string_bytes += strlen(layout->reason);
    count_tensors(counts, layout->tensors, layout->tensor_count, layout->dtypes, layout->dtype_count);
}

static void count_file(tp_index *counts, const tp_file_record *file)
{
    counts->files++;
    counts->string_bytes += strlen(file->path) + (file->reason ? strlen(file->reason) : 0);
    count_tensors(counts, file->tensors, file->tensor_count, file->dtypes, file->dtype_count);
}

static void fill_frames(tp_index *x, const tp_container_writer *w)
{
    for (uint64_t i = 0; i < w->frame_count; i++) {
        const tp_frame_record *frame = &w->frames[i];
        x->frame_offset[i] = frame->offset;
        memcpy(x->frame_stored_hash + 2 * i, frame->stored_hash, 16);
        memcpy(x->frame_raw_hash + 2 * i, frame->raw_hash, 16);
        x->frame_stored_size[i] = frame->stored_size;
        x->frame_raw_size[i] = frame->raw_size;
        x->frame_codec[i] = frame->codec;
        x->frame_method[i] = frame->method;
    }
}

static char *put(char *at, const void *data, size_t size)
{
    if (size > 0) memcpy(at, data, size); /* data may be NULL then */
    return at + size;
}

static void fill_strings(tp_index *x, const tp_file_record *files, size_t count)
{
    char *at = x->strings;
    for (size_t f = 0; f < count; f++) at = put(at, files[f].path, strlen(files[f].path));
    for (size_t f = 0; f < count; f++)
        if (files[f].reason) at = put(at, files[f].reason, strlen(files[f].reason));
    for (size_t f = 0; f < count; f++)
        for (size_t i = 0; i < files[f].tensor_count; i++)
            at = put(at, files[f].strings + files[f].tensors[i].name, files[f].tensors[i].name_size);
    for (size_t f = 0; f < count; f++)
        for (size_t i = 0; i < files[f].dtype_count; i++)
            at = put(at, files[f].strings + files[f].dtypes[i].start, files[f].dtypes[i].size);
}

static void fill_files(tp_index *x, const tp_file_record *files, size_t count)
{
    uint64_t t = 0, d = 0, y = 0;
    for (size_t f = 0; f < count; f++) {
        const tp_file_record *file = &files[f];
        x->file_size[f] = file->size;
        memcpy(x->file_digest + 2 * f, file->digest, 16);
        if (x->has_sha256) memcpy(x->file_sha256 + 32 * f, file->sha256, 32);
        x->file_frames[f] = (uint32_t)file->frames;
        x->file_tensors[f] = (uint32_t)file->tensor_count;
        x->file_path_len[f] = (uint32_t)strlen(file->path);
        x->file_reason_len[f] = file->reason ? (uint32_t)strlen(file->reason) : 0;
        x->file_mode[f] = file->mode;
        x->file_kind[f] = file->folder;
        x->file_format[f] = file->format;
        for (size_t i = 0; i < file->tensor_count; i++, t++) {
            const tp_layout_tensor *tensor = &file->tensors[i];
            x->tensor_offset[t] = tensor->offset;
            x->tensor_nbytes[t] = tensor->nbytes;
            x->tensor_name_len[t] = tensor->name_size;
            x->tensor_ndim[t] = tensor->ndim;
            x->tensor_dtype[t] = (uint32_t)y + tensor->dtype;
            x->tensor_flags[t] = tensor->flags;
            for (uint32_t k = 0; k < tensor->ndim; k++) x->tensor_dims[d++] = file->dims[tensor->dims + k];
        }
        for (size_t i = 0; i < file->dtype_count; i++) x->dtype_len[y++] = file->dtypes[i].size;
    }
}

static tp_status build_index(const tp_container_writer *w, const tp_file_record *files, size_t count,
                             bool folder, bool sha256, tp_index *index, tp_error *error)
{
    tp_index x = {
        .folder = folder, .has_sha256 = sha256, .sha256s = sha256 ? count : 0, .frames = w->frame_count};
    for (size_t f = 0; f < count; f++) count_file(&x, &files[f]);
    tp_status status = tp_index_allocate(&x, error);
    if (status != TP_OK) return status;
    fill_files(&x, files, count);
    fill_frames(&x, w);
    fill_strings(&x, files, count);
    /* A container that its own reader refuses must never be written, whatever went wrong before. */
    return tp_index_parse(index, x.raw, x.raw_size, w->next, w->output->name, error);
}

tp_status tp_container_writer_finish(tp_container_writer *w, const tp_file_record *files, size_t count,
                                     bool folder, bool sha256, tp_error *error)
{
    tp_index index;
    free(w->seen); /* not needed any more: the memory goes to the index */
    w->seen = NULL;
    w->seen_size = w->seen_count = 0;
    tp_status status = build_index(w, files, count, folder, sha256, &index, error);
    if (status != TP_OK) return status;
    int raw = (int)index.raw_size, bound = LZ4_compressBound(raw); /* at most 1 GiB, and a little */
    char *stored = malloc((size_t)bound);
    int size = stored ? LZ4_compress_default((const char *)index.raw, stored, raw, bound) : 0;
    tp_index_free(&index);
    if (!stored) return tp_error_memory(error);
    uint8_t footer[TP_CONTAINER_FOOTER];
    uint64_t hash[2], digest[2];
    tp_hash128(stored, (size_t)size, hash);
    tp_hasher_add(&w->digest, hash, sizeof hash);
    tp_hasher_end(&w->digest, digest);
    tp_container_footer(footer, w->next, (uint64_t)size, (uint64_t)raw, hash, digest);
    status = tp_output_write(w->output, stored, (size_t)size, error);
    free(stored);
    if (status == TP_OK) status = tp_output_write(w->output, footer, sizeof footer, error);
    return status;
}
