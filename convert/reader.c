/* tp_reader: containers and plain checkpoints, listed and read at random. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/container.h"
#include "convert/open.h"
#include "convert/reader.h"

/*
 * What decoding a frame takes, and the last frame that was decoded so: small reads that follow each other
 * stay linear. Each thread that reads borrows one; there are as many as threads have ever read at once.
 */
typedef struct workspace {
    struct workspace *next;
    tp_decoder *decoder;
    uint8_t *stored, *raw;
    uint64_t holds; /* offset of the stored frame that `raw` is, 0: none */
} workspace;
#define KEPT_WORKSPACES 16

typedef struct name_entry {
    uint64_t hash;
    uint64_t tensor;
} name_entry;
/* A few look-ups are faster without a table: building it costs as much as some twenty of them. */
#define LOOKUPS_WITHOUT_TABLE 8

typedef struct shared {
    pthread_mutex_t lock;
    workspace *workspaces; /* free ones, last used first */
    unsigned workspace_count;
    name_entry *names; /* ascending by hash, then tensor; NULL: not built yet */
    unsigned lookups;
} shared;

struct tp_reader {
    tp_input input;
    char *path; /* base name of a plain checkpoint */
    bool is_container;
    tp_container container;
    tp_layout layout; /* of a plain checkpoint */
    shared *shared;
};

/* ------------------------------------------------------------------------------------------- opening */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && memcmp(text + a - b, end, b) == 0;
}

static tp_status open_reader(tp_reader *r, const char *name, int fd, tp_error *error)
{
    tp_status status = tp_input_open(&r->input, name, fd, false, NULL, error);
    if (status != TP_OK) return status;
    const tp_source *source = &r->input.source;
    status = tp_container_recognise(source, &r->is_container, error);
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
    shared *s = calloc(1, sizeof *s);
    if (!r || !s) {
        free(r);
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    r->shared = s;
    r->input.fd = -1;
    return r;
}

static tp_status open_named(tp_reader **reader, const char *name, int fd, tp_error *error)
{
    *reader = NULL;
    tp_reader *r = create_reader();
    if (!r) return tp_error_memory(error);
    tp_status status = open_reader(r, name, fd, error);
    if (status != TP_OK)
        tp_close(r);
    else
        *reader = r;
    return status;
}

tp_status tp_open(const char *path, tp_reader **reader, tp_error *error)
{
    return open_named(reader, path, -1, error);
}

tp_status tp_open_in_tree(const tp_tree *tree, size_t entry, tp_reader **reader, tp_error *error)
{
    *reader = NULL;
    tp_reader *r = create_reader();
    if (!r) return tp_error_memory(error);
    tp_status status = tp_tree_open_file(tree, entry, &r->input, error);
    if (status == TP_OK && !(r->path = strdup(tp_tree_path(tree, entry)))) status = tp_error_memory(error);
    if (status == TP_OK) status = tp_layout_parse(&r->input.source, &r->layout, error);
    if (status != TP_OK)
        tp_close(r);
    else
        *reader = r;
    return status;
}

tp_status tp_open_fd(int fd, const char *name, tp_reader **reader, tp_error *error)
{
    *reader = NULL;
    if (fd < 0) return tp_error_set(error, TP_INVALID_ARGUMENT, "not an open descriptor");
    return open_named(reader, name, fd, error);
}

static void free_workspace(workspace *w)
{
    if (!w) return;
    tp_decoder_destroy(w->decoder);
    free(w->stored);
    free(w->raw);
    free(w);
}

void tp_close(tp_reader *r)
{
    if (!r) return;
    for (workspace *w = r->shared->workspaces, *next; w; w = next) {
        next = w->next;
        free_workspace(w);
    }
    pthread_mutex_destroy(&r->shared->lock);
    free(r->shared->names);
    free(r->shared);
    tp_container_close(&r->container);
    tp_layout_free(&r->layout);
    tp_input_close(&r->input);
    free(r->path);
    free(r);
}

/* ------------------------------------------------------------------------------------------- listing */

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
        info->shape = r->layout.dims + t->dims;
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

/* ------------------------------------------------------------------------------------ finding by name */

static bool is_named(const tp_reader *r, uint64_t tensor, const char *name, size_t size)
{
    tp_text text = name_of(r, tensor);
    return text.size == size && (size == 0 || memcmp(text.data, name, size) == 0);
}

static int compare_entries(const void *a, const void *b)
{
    const name_entry *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Sorted rather than hashed into slots: names that were made to collide must not make it quadratic. */
static const name_entry *name_table(const tp_reader *r)
{
    shared *s = r->shared;
    pthread_mutex_lock(&s->lock);
    if (!s->names && ++s->lookups > LOOKUPS_WITHOUT_TABLE) {
        size_t count = tp_reader_tensors(r);
        name_entry *names = malloc((count ? count : 1) * sizeof *names);
        for (size_t i = 0; names && i < count; i++) {
            tp_text name = name_of(r, i);
            names[i] = (name_entry){tp_hash64(name.data, name.size), i};
        }
        if (names) qsort(names, count, sizeof *names, compare_entries);
        s->names = names;
    }
    const name_entry *names = s->names;
    pthread_mutex_unlock(&s->lock);
    return names;
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
    const name_entry *names = name_table(r);
    if (!names) {
        for (size_t i = first; i < end; i++) {
            if (!is_named(r, i, name, name_size)) continue;
            *tensor = i;
            return TP_OK;
        }
        return TP_NOT_FOUND;
    }
    name_entry wanted = {tp_hash64(name, name_size), first};
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

/* ------------------------------------------------------------------------------------------- reading */

/* A workspace of the caller's own for a while, the one that holds this frame if there is one. */
static tp_status borrow(tp_reader *r, uint64_t holds, workspace **borrowed, tp_error *error)
{
    shared *s = r->shared;
    pthread_mutex_lock(&s->lock);
    workspace **at = &s->workspaces;
    while (*at && (*at)->holds != holds && (*at)->next) at = &(*at)->next;
    workspace *w = *at;
    if (w) {
        *at = w->next;
        s->workspace_count--;
    }
    pthread_mutex_unlock(&s->lock);
    if (!w) {
        w = calloc(1, sizeof *w);
        if (!w) return tp_error_memory(error);
        w->stored = aligned_alloc(64, TP_STORED_BUFFER);
        w->raw = aligned_alloc(64, TP_FRAME_MAX_RAW);
        if (!w->stored || !w->raw || tp_decoder_create(&w->decoder) != TP_OK) {
            free_workspace(w);
            return tp_error_memory(error);
        }
    }
    *borrowed = w;
    return TP_OK;
}

static void give_back(tp_reader *r, workspace *w)
{
    shared *s = r->shared;
    pthread_mutex_lock(&s->lock);
    bool keep = s->workspace_count < KEPT_WORKSPACES;
    if (keep) {
        w->next = s->workspaces;
        s->workspaces = w;
        s->workspace_count++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!keep) free_workspace(w);
}

/* `size` bytes of a frame from `from`. */
static tp_status read_part(tp_reader *r, workspace *w, uint64_t frame, size_t from, size_t size,
                           uint8_t *dst, tp_error *error)
{
    const tp_index *x = &r->container.index;
    uint64_t offset = x->frame_offset[frame];
    if (w->holds != offset) {
        bool whole = size == x->frame_raw_size[frame];
        if (!whole) w->holds = 0;
        tp_status status = tp_container_decode_frame(&r->container, frame, w->decoder, w->stored,
                                                     whole ? dst : w->raw, error);
        if (status != TP_OK || whole) return status;
        w->holds = offset;
    }
    memcpy(dst, w->raw + from, size);
    return TP_OK;
}

static tp_status beyond_end(const tp_reader *r, uint64_t offset, size_t size, tp_error *error)
{
    return tp_error_set_at(error, TP_INVALID_ARGUMENT, offset,
                           "%s: %zu bytes at byte %llu reach beyond the file's end", r->input.name, size,
                           (unsigned long long)offset);
}

tp_status tp_pread(tp_reader *r, size_t file, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    tp_file_info info;
    if (tp_reader_file(r, file, &info) != TP_OK)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: has no file %zu", r->input.name, file);
    if (offset > info.size || size > info.size - offset) return beyond_end(r, offset, size, error);
    if (size == 0) return TP_OK;
    if (!r->is_container) return r->input.source.read(r->input.source.context, dst, size, offset, error);

    const tp_index *x = &r->container.index;
    uint8_t *to = dst;
    uint64_t frame = tp_index_frame_at(x, file, offset);
    size_t from = (size_t)(offset - tp_index_frame_position(x, file, frame));
    workspace *w = NULL;
    tp_status status = borrow(r, x->frame_offset[frame], &w, error);
    if (status != TP_OK) return status;
    for (; status == TP_OK && size > 0; frame++, from = 0) {
        size_t left = x->frame_raw_size[frame] - from, part = size < left ? size : left;
        status = read_part(r, w, frame, from, part, to, error);
        to += part;
        size -= part;
    }
    give_back(r, w);
    return status;
}

static tp_status source_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const tp_reader_file_source *of = context;
    return tp_pread(of->reader, of->file, dst, size, offset, error);
}

tp_source tp_source_reader(tp_reader_file_source *of, const char *name)
{
    tp_file_info info;
    (void)tp_reader_file(of->reader, of->file, &info);
    return (tp_source){.read = source_read, .context = of, .size = info.size, .name = name};
}

static tp_status describe(const tp_reader *r, size_t tensor, tp_tensor_info *info, tp_error *error)
{
    if (tp_reader_tensor(r, tensor, info) == TP_OK) return TP_OK;
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: has no tensor %zu", r->input.name, tensor);
}

static tp_status tensor_error(const tp_reader *r, const tp_tensor_info *info, tp_status status,
                              const char *what, tp_error *error)
{
    char shown[256];
    return tp_error_set(error, status, "%s: tensor '%s': %s", r->input.name,
                        tp_text_escape(info->name.data, info->name.size, shown, sizeof shown), what);
}

/* Bytes from .. from + size - 1 of a tensor. */
static tp_status read_range(tp_reader *r, const tp_tensor_info *info, uint64_t from, uint64_t size,
                            void *dst, size_t capacity, tp_error *error)
{
    tp_file_info file;
    uint64_t start, end;
    if (size > capacity) return tensor_error(r, info, TP_BUFFER_TOO_SMALL, "larger than the buffer", error);
    if (size == 0) return TP_OK;
    tp_status status = tp_reader_file(r, info->file, &file);
    if (status != TP_OK || !tp_add(info->offset, from, &start) || !tp_add(start, size, &end) ||
        end > file.size)
        return tensor_error(r, info, TP_TRUNCATED, "truncated: the file ends before it", error);
    return tp_pread(r, info->file, dst, (size_t)size, start, error);
}

tp_status tp_read_tensor(tp_reader *r, size_t tensor, void *dst, size_t capacity, tp_error *error)
{
    tp_tensor_info info;
    tp_status status = describe(r, tensor, &info, error);
    if (status != TP_OK) return status;
    if (info.flags & TP_TENSOR_TRUNCATED)
        return tensor_error(r, &info, TP_TRUNCATED, "truncated: the file ends before it", error);
    return read_range(r, &info, 0, info.nbytes, dst, capacity, error);
}

tp_status tp_read_rows(tp_reader *r, size_t tensor, uint64_t first, uint64_t last, void *dst,
                       size_t capacity, size_t *size, tp_error *error)
{
    tp_tensor_info info;
    tp_file_info file;
    *size = 0;
    tp_status status = describe(r, tensor, &info, error);
    if (status == TP_OK) status = tp_reader_file(r, info.file, &file);
    if (status != TP_OK) return status;
    if (info.ndim == 0)
        return tensor_error(r, &info, TP_INVALID_ARGUMENT, "has no dimension to slice", error);
    if (info.flags & TP_TENSOR_OPAQUE)
        return tensor_error(r, &info, TP_INVALID_ARGUMENT,
                            "its size does not follow from dtype and shape, so it has no rows", error);
    uint64_t rows = file.format == TP_FORMAT_GGUF ? info.shape[info.ndim - 1] : info.shape[0];
    if (first > last || last > rows) {
        char what[96];
        snprintf(what, sizeof what, "rows %llu:%llu are out of range, it has %llu",
                 (unsigned long long)first, (unsigned long long)last, (unsigned long long)rows);
        return tensor_error(r, &info, TP_INVALID_ARGUMENT, what, error);
    }
    if (first == last) return TP_OK;
    /* The tensor's size is exactly its elements' bits, so rows are whole bytes just where this leaves no
     * rest. */
    if (info.nbytes % rows != 0)
        return tensor_error(r, &info, TP_INVALID_ARGUMENT, "its rows are not whole bytes", error);
    uint64_t row = info.nbytes / rows, wanted = row * (last - first); /* at most nbytes */
    if (wanted > SIZE_MAX)
        return tensor_error(r, &info, TP_BUFFER_TOO_SMALL, "larger than the buffer", error);
    *size = (size_t)wanted;
    return dst ? read_range(r, &info, row * first, wanted, dst, capacity, error) : TP_OK;
}

/* ----------------------------------------------------------------------------------- for the device level
 */

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
