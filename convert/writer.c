/*
 * tp_writer: tensors in memory -> the safetensors file that they would make, never written -> container.
 * The file's header is made when all tensors are known; then the file is compressed like any other, through
 * a callback that copies from header and tensors. So everything that holds for conversions holds here:
 * bounded memory, the same container for the same content, safe output.
 */
#include <stdlib.h>
#include <string.h>

#include "convert/compress.h"
#include "convert/df11_convert.h"
#include "convert/text.h"

/* The format's own library reads no longer headers. */
#define HEADER_MAX ((uint64_t)100000000)

typedef struct entry { /* of __metadata__ */
    char *key, *value; /* in one allocation, at key */
    size_t key_size, value_size;
} entry;

struct tp_writer {
    tp_options options;
    char *out_path; /* or NULL */
    int out_fd;
    char *name;
    tp_piece *pieces; /* what a name points at, from malloc, holds dtype and dims too */
    size_t count, capacity;
    entry *entries;
    size_t entry_count, entry_capacity;
    tp_text_buffer header;
    bool finished;
    char shown[TP_SHOWN_PATH];
};

/* ----------------------------------------------------------------------------------------------- create */

/* The last part of the path without ".tpress"; from malloc. */
static char *default_name(const char *out_path)
{
    static const char suffix[] = ".tpress";
    const char *base = out_path ? tp_text_base(out_path) : "model.safetensors";
    size_t size = strlen(base), end = sizeof suffix - 1;
    if (size > end && memcmp(base + size - end, suffix, end) == 0) size -= end;
    return strndup(base, size);
}

tp_status tp_writer_create(const char *out_path, int out_fd, const char *name, const tp_options *options,
                           tp_writer **writer, tp_error *error)
{
    *writer = NULL;
    if (!out_path && out_fd < 0 && !(options && options->dry_run))
        return tp_error_set(error, TP_INVALID_ARGUMENT, "no output is given");
    tp_writer *w = calloc(1, sizeof *w);
    if (!w) return tp_error_memory(error);
    if (options)
        w->options = *options;
    else
        tp_options_init(&w->options);
    w->out_fd = out_fd;
    w->name = name ? strdup(name) : default_name(out_path);
    if (out_path) w->out_path = strdup(out_path);
    tp_status status = w->name && (w->out_path || !out_path) ? TP_OK : tp_error_memory(error);
    if (status == TP_OK) {
        tp_text_path(out_path ? out_path : w->name, w->shown);
        if (!tp_compress_name_fits(w->name) || strchr(w->name, '/')) {
            char path[TP_SHOWN_PATH];
            status = tp_error_set(error, TP_INVALID_ARGUMENT,
                                  "'%s': cannot be the name of a file in a container",
                                  tp_text_path(w->name, path));
        }
    }
    if (status == TP_OK)
        *writer = w;
    else
        tp_writer_close(w);
    return status;
}

void tp_writer_close(tp_writer *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->count; i++) free((char *)w->pieces[i].name);
    for (size_t i = 0; i < w->entry_count; i++) free(w->entries[i].key);
    free(w->pieces);
    free(w->entries);
    free(w->header.data);
    free(w->out_path);
    free(w->name);
    free(w);
}

/* -------------------------------------------------------------------------------------------------- add */

/* The array with room for one more element, or NULL, and then it is as it was. */
static void *grown(void *array, size_t element, size_t count, size_t *capacity)
{
    if (count < *capacity) return array;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *larger = realloc(array, wanted * element);
    if (larger) *capacity = wanted;
    return larger;
}

static tp_status no_memory(const tp_writer *w, tp_error *error)
{
    return tp_error_set(error, TP_NO_MEMORY, "%s: out of memory", w->shown);
}

static tp_status finished(const tp_writer *w, tp_error *error)
{
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: finished already", w->shown);
}

static tp_status refuse(const tp_writer *w, const char *what, const char *name, size_t size,
                        const char *why, tp_error *error)
{
    char shown[256];
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: %s '%s': %s", w->shown, what,
                        tp_text_escape(name, size, shown, sizeof shown), why);
}

tp_status tp_writer_metadata(tp_writer *w, const char *key, size_t key_size, const char *value,
                             size_t value_size, tp_error *error)
{
    if (w->finished) return finished(w, error);
    if (!tp_text_is_utf8(key, key_size) || !tp_text_is_utf8(value, value_size))
        return refuse(w, "metadata", key, key_size, "is not UTF-8", error);
    entry *entries = grown(w->entries, sizeof *entries, w->entry_count, &w->entry_capacity);
    if (entries) w->entries = entries;
    char *text = entries ? malloc(key_size + value_size + 1) : NULL;
    if (!text) return no_memory(w, error);
    if (key_size > 0) memcpy(text, key, key_size);
    if (value_size > 0) memcpy(text + key_size, value, value_size);
    w->entries[w->entry_count++] =
        (entry){.key = text, .value = text + key_size, .key_size = key_size, .value_size = value_size};
    return TP_OK;
}

/*
 * What is wrong with a tensor, or NULL. The order of the multiplications is that of the format's own
 * library: it refuses [2^63,4,0].
 */
static const char *find_fault(const char *name, size_t name_size, const char *dtype, const uint64_t *shape,
                              size_t ndim, const void *data, uint64_t nbytes)
{
    static const char metadata[] = "__metadata__";
    unsigned bits;
    tp_class cls;
    uint64_t size = 1;
    if (!tp_text_is_utf8(name, name_size)) return "its name is not UTF-8";
    if (name_size == sizeof metadata - 1 && memcmp(name, metadata, name_size) == 0)
        return "this name is reserved";
    if (!tp_safetensors_dtype(dtype, strlen(dtype), &bits, &cls)) return "safetensors has no such dtype";
    for (size_t i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(size, shape[i], &size)) return "its shape is too large";
    if (__builtin_mul_overflow(size, bits, &size)) return "its shape is too large";
    if (size % 8 != 0) return "its elements are not whole bytes";
    if (size / 8 != nbytes) return "its size is not that of its dtype and shape";
    if (!data && nbytes > 0) return "it has no data";
    return NULL;
}

tp_status tp_writer_add(tp_writer *w, const char *name, size_t name_size, const char *dtype,
                        const uint64_t *shape, size_t ndim, const void *data, uint64_t nbytes,
                        tp_error *error)
{
    if (w->finished) return finished(w, error);
    const char *fault = find_fault(name, name_size, dtype, shape, ndim, data, nbytes);
    if (fault) return refuse(w, "tensor", name, name_size, fault, error);
    /* One block: the name, the dtype, and, where they are aligned, the dimensions. The caller has them all.
     */
    size_t dtype_size = strlen(dtype), dims_size = ndim * sizeof *shape,
           dims_at = (name_size + dtype_size + 7) / 8 * 8;
    tp_piece *pieces = grown(w->pieces, sizeof *pieces, w->count, &w->capacity);
    if (pieces) w->pieces = pieces;
    char *copy = pieces ? malloc(dims_at + dims_size) : NULL;
    if (!copy) return no_memory(w, error);
    if (name_size > 0) memcpy(copy, name, name_size);
    memcpy(copy + name_size, dtype, dtype_size);
    if (ndim > 0) memcpy(copy + dims_at, shape, dims_size);
    w->pieces[w->count++] = (tp_piece){.name = copy,
                                       .dtype = copy + name_size,
                                       .name_size = name_size,
                                       .dtype_size = dtype_size,
                                       .dims = (uint64_t *)(void *)(copy + dims_at),
                                       .ndim = ndim,
                                       .nbytes = nbytes,
                                       .data = data};
    return TP_OK;
}

/* ----------------------------------------------------------------------------------------------- finish */

static int compare_texts(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t size = a_size < b_size ? a_size : b_size;
    int order = size > 0 ? memcmp(a, b, size) : 0;
    return order ? order : (a_size > b_size) - (a_size < b_size);
}

static int by_name(const void *left, const void *right)
{
    const tp_piece *a = left, *b = right;
    return compare_texts(a->name, a->name_size, b->name, b->name_size);
}

static int by_key(const void *left, const void *right)
{
    const entry *a = left, *b = right;
    return compare_texts(a->key, a->key_size, b->key, b->key_size);
}

static tp_status check_unique(tp_writer *w, tp_error *error)
{
    if (w->count > 0) qsort(w->pieces, w->count, sizeof *w->pieces, by_name);
    for (size_t i = 1; i < w->count; i++)
        if (by_name(&w->pieces[i - 1], &w->pieces[i]) == 0)
            return refuse(w, "tensor", w->pieces[i].name, w->pieces[i].name_size, "was added twice", error);
    if (w->entry_count > 0) qsort(w->entries, w->entry_count, sizeof *w->entries, by_key);
    for (size_t i = 1; i < w->entry_count; i++)
        if (by_key(&w->entries[i - 1], &w->entries[i]) == 0)
            return refuse(w, "metadata", w->entries[i].key, w->entries[i].key_size, "was added twice",
                          error);
    return TP_OK;
}

/* The JSON object of the metadata; empty without any. */
static void print_metadata(const tp_writer *w, tp_text_buffer *text)
{
    for (size_t i = 0; i < w->entry_count; i++) {
        const entry *e = &w->entries[i];
        tp_text_add(text, i ? "," : "{", 1);
        tp_text_quote(text, e->key, e->key_size);
        tp_text_add(text, ":", 1);
        tp_text_quote(text, e->value, e->value_size);
    }
    if (w->entry_count > 0) tp_text_add(text, "}", 1);
}

static tp_status make_header(tp_writer *w, uint64_t *size, tp_error *error)
{
    tp_text_buffer metadata = {0};
    tp_error cause;
    print_metadata(w, &metadata);
    tp_status status = metadata.failed
                           ? tp_error_memory(&cause)
                           : tp_pieces_layout(w->pieces, w->count, metadata.data, &w->header, size, &cause);
    free(metadata.data);
    if (status != TP_OK) return tp_error_set(error, status, "%s: %s", w->shown, cause.message);
    if (w->header.size - 8 > HEADER_MAX)
        return tp_error_set(error, TP_LIMIT, "%s: the header of %zu bytes is longer than %llu", w->shown,
                            w->header.size - 8, (unsigned long long)HEADER_MAX);
    return TP_OK;
}

/* The last piece that starts at or before the offset, which is not in the header: it holds that byte. */
static size_t piece_at(const tp_writer *w, uint64_t offset)
{
    size_t low = 0, high = w->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (w->pieces[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Bytes of the file that is not there; never asked beyond its end. */
static int64_t read_file(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const tp_writer *w = context;
    uint8_t *to = dst;
    size_t left = size;
    (void)error;
    if (offset < w->header.size) {
        size_t part = w->header.size - (size_t)offset < left ? w->header.size - (size_t)offset : left;
        memcpy(to, w->header.data + offset, part);
        to += part;
        left -= part;
        offset += part;
    }
    for (size_t i = left > 0 ? piece_at(w, offset) : 0; left > 0; i++) {
        const tp_piece *p = &w->pieces[i];
        uint64_t from = offset - p->offset, rest = p->nbytes - from;
        size_t part = rest < left ? (size_t)rest : left;
        if (part == 0) continue;
        memcpy(to, (const uint8_t *)p->data + from, part);
        to += part;
        left -= part;
        offset += part;
    }
    return (int64_t)size;
}

tp_status tp_writer_finish(tp_writer *w, tp_report *report, tp_error *error)
{
    uint64_t size;
    if (w->finished) return finished(w, error);
    w->finished = true;
    tp_status status = check_unique(w, error);
    if (status == TP_OK) status = make_header(w, &size, error);
    if (status != TP_OK) return status;
    return tp_compress_callback(read_file, w, size, w->name, w->out_path, w->out_fd, &w->options, report,
                                error);
}
