/* tp_reader: containers and plain checkpoints, opened, listed and searched. */
#include <stdlib.h>
#include <string.h>

#include "codec/hash.h"
#include "convert/open.h"
#include "convert/reader.h"
#include "convert/reader_struct.h"

/* A few look-ups are faster without a table: building it costs as much as some twenty of them. */
#define LOOKUPS_WITHOUT_TABLE 8

/* ---------------------------------------------------------------------------------------------- opening */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && memcmp(text + a - b, end, b) == 0;
}

/* The input is open. */
static tp_status recognise(tp_reader *r, const char *name, tp_error *error)
{
    const tp_source *source = &r->input.source;
    tp_status status = tp_container_recognise(source, &r->is_container, error);
    if (status != TP_OK) return status;
    if (r->is_container) return tp_container_open(&r->container, source, error);
    if (ends_with(source->name, ".tpress"))
        return tp_error_set_at(error, TP_NOT_CONTAINER, 0, "%s: not a tensorpress container", source->name);
    r->path = strdup(tp_text_base(name ? name : "stdin"));
    if (!r->path) return tp_error_memory(error);
    return tp_layout_parse(source, &r->layout, error);
}

static tp_reader *create_reader(void)
{
    tp_reader *r = calloc(1, sizeof *r);
    tp_reader_shared *s = calloc(1, sizeof *s);
    if (!r || !s) {
        free(r);
        free(s);
        return NULL;
    }
    r->shared = s;
    r->input.fd = -1;
    return r;
}

static tp_status end_opening(tp_reader **reader, tp_reader *r, tp_status status)
{
    if (status != TP_OK)
        tp_close(r);
    else
        *reader = r;
    return status;
}

static tp_status open_named(tp_reader **reader, const char *name, int fd, tp_error *error)
{
    *reader = NULL;
    tp_reader *r = create_reader();
    if (!r) return tp_error_memory(error);
    tp_status status = tp_input_open(&r->input, name, fd, false, NULL, error);
    if (status == TP_OK) status = recognise(r, name, error);
    return end_opening(reader, r, status);
}

tp_status tp_open(const char *path, tp_reader **reader, tp_error *error)
{
    return open_named(reader, path, -1, error);
}

tp_status tp_open_callback(tp_read_fn read, void *context, uint64_t size, const char *name,
                           tp_reader **reader, tp_error *error)
{
    *reader = NULL;
    if (!read) return tp_error_set(error, TP_INVALID_ARGUMENT, "no callback to read with");
    if (!name) name = "input";
    tp_reader *r = create_reader();
    if (!r) return tp_error_memory(error);
    tp_input_callback(&r->input, name, read, context, size);
    return end_opening(reader, r, recognise(r, name, error));
}

tp_status tp_open_in_tree(const tp_tree *tree, size_t entry, tp_reader **reader, tp_error *error)
{
    *reader = NULL;
    tp_reader *r = create_reader();
    if (!r) return tp_error_memory(error);
    tp_status status = tp_tree_open_file(tree, entry, &r->input, error);
    if (status == TP_OK && !(r->path = strdup(tp_tree_path(tree, entry)))) status = tp_error_memory(error);
    if (status == TP_OK) status = tp_layout_parse(&r->input.source, &r->layout, error);
    return end_opening(reader, r, status);
}

tp_status tp_open_fd(int fd, const char *name, tp_reader **reader, tp_error *error)
{
    *reader = NULL;
    if (fd < 0) return tp_error_set(error, TP_INVALID_ARGUMENT, "not an open descriptor");
    return open_named(reader, name, fd, error);
}

void tp_close(tp_reader *r)
{
    if (!r) return;
    tp_workspaces_free(&r->shared->workspaces);
    free(r->shared->names);
    free(r->shared);
    tp_container_close(&r->container);
    tp_layout_free(&r->layout);
    tp_input_close(&r->input);
    free(r->path);
    free(r);
}

/* ---------------------------------------------------------------------------------------------- listing */

tp_format tp_reader_format(const tp_reader *r)
{
    return r->is_container ? TP_FORMAT_TPRESS : r->layout.format;
}
bool tp_reader_is_folder(const tp_reader *r)
{
    return r->is_container && r->container.index.folder;
}
uint64_t tp_reader_size(const tp_reader *r)
{
    return r->input.source.size;
}
size_t tp_reader_files(const tp_reader *r)
{
    return r->is_container ? r->container.index.files : 1;
}
size_t tp_reader_tensors(const tp_reader *r)
{
    return r->is_container ? r->container.index.tensors : r->layout.tensor_count;
}
size_t tp_reader_frames(const tp_reader *r)
{
    return r->is_container ? r->container.index.frames : 0;
}

uint64_t tp_reader_original_size(const tp_reader *r)
{
    const tp_index *index = &r->container.index;
    return r->is_container ? index->frame_start[index->frames] : r->input.source.size;
}

void tp_reader_format_version(const tp_reader *r, unsigned *major, unsigned *minor)
{
    *major = r->container.major;
    *minor = r->container.minor;
}

static tp_format known_format(uint8_t format)
{
    return format == TP_FORMAT_SAFETENSORS || format == TP_FORMAT_GGUF ? (tp_format)format
                                                                       : TP_FORMAT_BYTES;
}

tp_status tp_reader_file(const tp_reader *r, size_t file, tp_file_info *info)
{
    memset(info, 0, sizeof *info);
    if (file >= tp_reader_files(r)) return TP_INVALID_ARGUMENT;
    if (!r->is_container) {
        info->path = (tp_text){r->path, strlen(r->path)};
        info->format = r->layout.format;
        info->size = r->input.source.size;
        info->reason = (tp_text){r->layout.reason, strlen(r->layout.reason)};
        info->tensors = r->layout.tensor_count;
        return TP_OK;
    }
    const tp_index *x = &r->container.index;
    info->path = tp_index_path(x, file);
    info->format = known_format(x->file_format[file]);
    info->is_folder = x->file_kind[file] == 1;
    info->mode = x->file_mode[file];
    info->size = x->file_size[file];
    info->reason = (tp_text){x->strings + x->reason_at[file], x->file_reason_len[file]};
    memcpy(info->digest, x->file_digest + 2 * file, 16);
    info->has_sha256 = x->has_sha256 && !info->is_folder;
    if (info->has_sha256) memcpy(info->sha256, x->file_sha256 + 32 * file, 32);
    info->first_tensor = x->file_tensor[file];
    info->tensors = x->file_tensors[file];
    info->first_frame = x->file_frame[file];
    info->frames = x->file_frames[file];
    return TP_OK;
}

static tp_method known_method(uint8_t method)
{
    return method <= TP_METHOD_GGUF ? (tp_method)method : TP_METHOD_NONE;
}

tp_status tp_reader_frame(const tp_reader *r, size_t frame, tp_frame_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    if (frame >= tp_reader_frames(r)) return TP_INVALID_ARGUMENT;
    const tp_index *x = &r->container.index;
    entry->offset = x->frame_offset[frame];
    entry->stored_size = x->frame_stored_size[frame];
    entry->raw_size = x->frame_raw_size[frame];
    entry->codec = (tp_frame_codec)x->frame_codec[frame];
    entry->method = known_method(x->frame_method[frame]);
    entry->duplicate = tp_index_is_duplicate(x, frame);
    memcpy(entry->stored_hash, x->frame_stored_hash + 2 * frame, 16);
    memcpy(entry->raw_hash, x->frame_raw_hash + 2 * frame, 16);
    return TP_OK;
}

/*
 * The share of the bytes start .. end - 1 (not empty) of a file in the stored sizes of their frames: whole
 * frames count as they are, the first and the last by raw bytes; the sum is exact, then rounded down.
 */
static uint64_t stored_share(const tp_index *x, uint64_t file, uint64_t first, uint64_t last,
                             uint64_t start, uint64_t end)
{
    uint64_t sum = 0, rest[2] = {0, 0}, unit[2] = {1, 1};
    if (last > first + 1) sum = x->frame_stored[last] - x->frame_stored[first + 1];
    for (unsigned k = 0; k < (last > first ? 2u : 1u); k++) {
        uint64_t frame = k == 0 ? first : last;
        if (tp_index_is_duplicate(x, frame)) continue;
        uint64_t from = tp_index_frame_position(x, file, frame), to = from + x->frame_raw_size[frame];
        uint64_t part = (end < to ? end : to) - (start > from ? start : from);
        uint64_t product = part * x->frame_stored_size[frame]; /* below 2^45 */
        unit[k] = x->frame_raw_size[frame];
        sum += product / unit[k];
        rest[k] = product % unit[k];
    }
    return sum + (rest[0] * unit[1] + rest[1] * unit[0]) / (unit[0] * unit[1]); /* both below 2^46 */
}

static void tensor_frames(const tp_index *x, tp_tensor_info *info)
{
    uint64_t size = x->file_size[info->file], start = info->offset, end;
    info->method = TP_METHOD_RAW; /* of no bytes */
    if (start >= size || info->nbytes == 0) return;
    end = info->nbytes < size - start ? start + info->nbytes : size;
    uint64_t first = tp_index_frame_at(x, info->file, start),
             last = tp_index_frame_at(x, info->file, end - 1);
    info->stored_nbytes = stored_share(x, info->file, first, last, start, end);
    bool same = x->frame_changes[first] == x->frame_changes[last];
    info->method = same ? known_method(x->frame_method[first]) : TP_METHOD_MIXED;
}

static tp_text name_of(const tp_reader *r, uint64_t tensor)
{
    if (r->is_container) return tp_index_name(&r->container.index, tensor);
    return (tp_text){r->layout.strings + r->layout.tensors[tensor].name,
                     r->layout.tensors[tensor].name_size};
}

tp_status tp_reader_tensor(const tp_reader *r, size_t tensor, tp_tensor_info *info)
{
    memset(info, 0, sizeof *info);
    if (tensor >= tp_reader_tensors(r)) return TP_INVALID_ARGUMENT;
    info->name = name_of(r, tensor);
    if (!r->is_container) {
        const tp_layout_tensor *t = &r->layout.tensors[tensor];
        const tp_layout_text *dtype = &r->layout.dtypes[t->dtype];
        info->dtype = (tp_text){r->layout.strings + dtype->start, dtype->size};
        info->shape = t->ndim > 0 ? r->layout.dims + t->dims : NULL; /* without any, dims are NULL */
        info->ndim = t->ndim;
        info->offset = t->offset;
        info->nbytes = t->nbytes;
        info->flags = t->flags;
        return TP_OK;
    }
    const tp_index *x = &r->container.index;
    uint32_t dtype = x->tensor_dtype[tensor];
    info->file = tp_index_tensor_file(x, tensor);
    info->dtype = (tp_text){x->strings + x->dtype_at[dtype], x->dtype_len[dtype]};
    info->shape = x->tensor_dims + x->dim_at[tensor];
    info->ndim = x->tensor_ndim[tensor];
    info->offset = x->tensor_offset[tensor];
    info->nbytes = x->tensor_nbytes[tensor];
    info->flags = x->tensor_flags[tensor];
    tensor_frames(x, info);
    return TP_OK;
}

/* -------------------------------------------------------------------------------------- finding by name */

static bool is_named(const tp_reader *r, uint64_t tensor, const char *name, size_t size)
{
    tp_text text = name_of(r, tensor);
    return text.size == size && (size == 0 || memcmp(text.data, name, size) == 0);
}

static int compare_entries(const void *a, const void *b)
{
    const tp_name_entry *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/*
 * Sorted rather than hashed into slots: names that were made to collide must not make it quadratic. Threads
 * that need it at the same time each build it; the first one's is kept.
 */
static const tp_name_entry *name_table(const tp_reader *r)
{
    tp_reader_shared *s = r->shared;
    tp_name_entry *names = __atomic_load_n(&s->names, __ATOMIC_ACQUIRE), *before = NULL;
    if (names || __atomic_add_fetch(&s->lookups, 1, __ATOMIC_RELAXED) <= LOOKUPS_WITHOUT_TABLE)
        return names;
    size_t count = tp_reader_tensors(r);
    names = malloc((count ? count : 1) * sizeof *names);
    if (!names) return NULL;
    for (size_t i = 0; i < count; i++) {
        tp_text name = name_of(r, i);
        names[i] = (tp_name_entry){tp_hash64(name.data, name.size), i};
    }
    qsort(names, count, sizeof *names, compare_entries);
    if (__atomic_compare_exchange_n(&s->names, &before, names, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return names;
    free(names);
    return before;
}

tp_status tp_reader_find(const tp_reader *r, size_t file, const char *name, size_t name_size,
                         size_t *tensor)
{
    size_t first = 0, end = tp_reader_tensors(r);
    if (file != SIZE_MAX) {
        if (file >= tp_reader_files(r)) return TP_NOT_FOUND;
        if (r->is_container) {
            first = r->container.index.file_tensor[file];
            end = r->container.index.file_tensor[file + 1];
        }
    }
    const tp_name_entry *names = name_table(r);
    if (!names) {
        for (size_t i = first; i < end; i++) {
            if (!is_named(r, i, name, name_size)) continue;
            *tensor = i;
            return TP_OK;
        }
        return TP_NOT_FOUND;
    }
    tp_name_entry wanted = {tp_hash64(name, name_size), first};
    size_t low = 0, high = tp_reader_tensors(r);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_entries(&names[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < tp_reader_tensors(r) && names[low].hash == wanted.hash && names[low].tensor < end; low++) {
        if (!is_named(r, names[low].tensor, name, name_size)) continue;
        *tensor = names[low].tensor;
        return TP_OK;
    }
    return TP_NOT_FOUND;
}

/* --------------------------------------------------------------------------------- for the device level */

const char *tp_reader_name(const tp_reader *r)
{
    return r->input.source.name;
}

uint64_t tp_reader_frame_at(const tp_reader *r, size_t file, uint64_t offset, uint64_t *start)
{
    const tp_index *x = &r->container.index;
    uint64_t frame = tp_index_frame_at(x, file, offset);
    *start = tp_index_frame_position(x, file, frame);
    return frame;
}

tp_status tp_reader_read_frame(const tp_reader *r, uint64_t frame, uint8_t *stored, tp_frame_view *view,
                               tp_error *error)
{
    return tp_container_read_frame(&r->container, frame, stored, view, error);
}

tp_status tp_reader_frame_error(const tp_reader *r, uint64_t frame, tp_status status, const tp_error *cause,
                                tp_error *error)
{
    return tp_container_frame_error(&r->container, frame, status, cause, error);
}
