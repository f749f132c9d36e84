/* tp_reader: bytes, tensors, rows and boxes at random. */
#include <stdio.h>
#include <string.h>

#include "codec/bytes.h"
#include "convert/box.h"
#include "convert/open.h"
#include "convert/reader_struct.h"

/* ------------------------------------------------------------------------------------------------ bytes */

/* A frame of a file, and the range of the file that it is. Empty at first. */
typedef struct position {
    uint64_t frame, start, end;
} position;

static tp_status borrow(tp_reader *r, uint64_t holds, tp_workspace **w, tp_error *error)
{
    *w = tp_workspaces_take(&r->shared->workspaces, holds);
    return *w ? TP_OK : tp_error_set(error, TP_NO_MEMORY, "%s: out of memory", r->input.name);
}

/* `size` bytes of a frame from `from`. */
static tp_status read_part(tp_reader *r, tp_workspace *w, uint64_t frame, size_t from, size_t size,
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

/* Bytes of a file of a container; `at` is where the last read ended. */
static tp_status read_frames(tp_reader *r, tp_workspace *w, position *at, size_t file, uint8_t *dst,
                             size_t size, uint64_t offset, tp_error *error)
{
    const tp_index *x = &r->container.index;
    tp_status status = TP_OK;
    while (status == TP_OK && size > 0) {
        if (offset < at->start || offset >= at->end) {
            at->frame =
                at->end == offset && at->end > 0 ? at->frame + 1 : tp_index_frame_at(x, file, offset);
            at->start = tp_index_frame_position(x, file, at->frame);
            at->end = at->start + x->frame_raw_size[at->frame];
        }
        size_t part = size < at->end - offset ? size : (size_t)(at->end - offset);
        status = read_part(r, w, at->frame, (size_t)(offset - at->start), part, dst, error);
        dst += part;
        offset += part;
        size -= part;
    }
    return status;
}

static tp_status read_plain(const tp_reader *r, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    return r->input.source.read(r->input.source.context, dst, size, offset, error);
}

tp_status tp_pread(tp_reader *r, size_t file, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    tp_file_info info;
    if (tp_reader_file(r, file, &info) != TP_OK)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: has no file %zu", r->input.name, file);
    if (offset > info.size || size > info.size - offset)
        return tp_error_set_at(error, TP_INVALID_ARGUMENT, offset,
                               "%s: %zu bytes at byte %llu reach beyond the file's end", r->input.name,
                               size, (unsigned long long)offset);
    if (size == 0) return TP_OK;
    if (!r->is_container) return read_plain(r, dst, size, offset, error);

    const tp_index *x = &r->container.index;
    position at = {0};
    tp_workspace *w;
    tp_status status = borrow(r, x->frame_offset[tp_index_frame_at(x, file, offset)], &w, error);
    if (status != TP_OK) return status;
    status = read_frames(r, w, &at, file, dst, size, offset, error);
    tp_workspaces_give(&r->shared->workspaces, w);
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

/* ---------------------------------------------------------------------------------------------- tensors */

typedef struct target {
    tp_tensor_info info;
    tp_file_info file;
} target;

static tp_status describe(const tp_reader *r, size_t tensor, target *t, tp_error *error)
{
    if (tp_reader_tensor(r, tensor, &t->info) == TP_OK) return tp_reader_file(r, t->info.file, &t->file);
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: has no tensor %zu", r->input.name, tensor);
}

/* "tensor 'NAME'", of a container of several files with the one that it is in. Returns `text`. */
#define SUBJECT 416
static const char *subject(const tp_reader *r, const target *t, char text[SUBJECT])
{
    char path[192], name[192];
    const tp_text *file = &t->file.path, *tensor = &t->info.name;
    tp_text_escape(file->data, file->size, path, sizeof path);
    tp_text_escape(tensor->data, tensor->size, name, sizeof name);
    if (tp_reader_is_folder(r))
        snprintf(text, SUBJECT, "file '%s': tensor '%s'", path, name);
    else
        snprintf(text, SUBJECT, "tensor '%s'", name);
    return text;
}

static tp_status tensor_error(const tp_reader *r, const target *t, tp_status status, const char *what,
                              tp_error *error)
{
    char text[SUBJECT];
    return tp_error_set(error, status, "%s: %s: %s", r->input.name, subject(r, t, text), what);
}

/* Names the tensor in an error of the reading below. */
static tp_status read_error(const tp_reader *r, const target *t, tp_status status, tp_error *error)
{
    if (!error) return status;
    tp_error cause = *error;
    const char *what = cause.message;
    size_t prefix = strlen(r->input.name);
    if (strncmp(what, r->input.name, prefix) == 0 && strncmp(what + prefix, ": ", 2) == 0)
        what += prefix + 2;
    tensor_error(r, t, status, what, error);
    error->sys_errno = cause.sys_errno;
    error->has_offset = cause.has_offset;
    error->offset = cause.offset;
    return status;
}

static tp_status too_small(const tp_reader *r, const target *t, tp_error *error)
{
    return tensor_error(r, t, TP_BUFFER_TOO_SMALL, "larger than the buffer", error);
}

static tp_status truncated(const tp_reader *r, const target *t, tp_error *error)
{
    tp_status status = tensor_error(r, t, TP_TRUNCATED, "truncated: the file ends before it", error);
    if (error) {
        error->has_offset = true;
        error->offset = t->info.offset;
    }
    return status;
}

/* Whether the tensor's bytes up to `end` are in its file. */
static bool is_there(const target *t, uint64_t end)
{
    uint64_t last;
    return tp_add(t->info.offset, end, &last) && last <= t->file.size;
}

/* Bytes from .. from + size - 1 of a tensor. */
static tp_status read_range(tp_reader *r, const target *t, uint64_t from, uint64_t size, void *dst,
                            size_t capacity, tp_error *error)
{
    if (size > capacity) return too_small(r, t, error);
    if (size == 0) return TP_OK;
    if (!is_there(t, from + size)) return truncated(r, t, error);
    tp_status status = tp_pread(r, t->info.file, dst, (size_t)size, t->info.offset + from, error);
    return status == TP_OK ? TP_OK : read_error(r, t, status, error);
}

tp_status tp_read_tensor(tp_reader *r, size_t tensor, void *dst, size_t capacity, tp_error *error)
{
    target t;
    tp_status status = describe(r, tensor, &t, error);
    if (status != TP_OK) return status;
    if (t.info.flags & TP_TENSOR_TRUNCATED) return truncated(r, &t, error);
    return read_range(r, &t, 0, t.info.nbytes, dst, capacity, error);
}

tp_status tp_read_rows(tp_reader *r, size_t tensor, uint64_t first, uint64_t last, void *dst,
                       size_t capacity, size_t *size, tp_error *error)
{
    target t;
    *size = 0;
    tp_status status = describe(r, tensor, &t, error);
    if (status != TP_OK) return status;
    const tp_tensor_info *info = &t.info;
    if (info->ndim == 0)
        return tensor_error(r, &t, TP_INVALID_ARGUMENT, "has no dimension to slice", error);
    if (info->flags & TP_TENSOR_OPAQUE)
        return tensor_error(r, &t, TP_INVALID_ARGUMENT,
                            "its size does not follow from dtype and shape, so it has no rows", error);
    uint64_t rows = t.file.format == TP_FORMAT_GGUF ? info->shape[info->ndim - 1] : info->shape[0];
    if (first > last || last > rows) {
        char what[96];
        snprintf(what, sizeof what, "rows %llu:%llu are out of range, it has %llu",
                 (unsigned long long)first, (unsigned long long)last, (unsigned long long)rows);
        return tensor_error(r, &t, TP_INVALID_ARGUMENT, what, error);
    }
    if (first == last) return TP_OK;
    /* The tensor's size is exactly its elements' bits, so rows are whole bytes just where this leaves no
     * rest. */
    if (info->nbytes % rows != 0)
        return tensor_error(r, &t, TP_INVALID_ARGUMENT, "its rows are not whole bytes", error);
    uint64_t row = info->nbytes / rows, wanted = row * (last - first); /* at most nbytes */
    if (wanted > SIZE_MAX) return too_small(r, &t, error);
    *size = (size_t)wanted;
    return dst ? read_range(r, &t, row * first, wanted, dst, capacity, error) : TP_OK;
}

/* ------------------------------------------------------------------------------------------------ boxes */

/*
 * Bytes between two runs of a plain file that are rather read too than skipped: a call costs as much as
 * some thousand bytes of a file, and as a million of one that is far away.
 */
#define GAP_MAX ((uint64_t)16 << 10)

static tp_status box_from_frames(tp_reader *r, tp_workspace *w, const target *t, tp_box *box, uint8_t *dst,
                                 tp_error *error)
{
    position at = {0};
    tp_status status;
    do {
        status = read_frames(r, w, &at, t->info.file, dst, (size_t)box->run, t->info.offset + box->offset,
                             error);
        dst += box->run;
    } while (status == TP_OK && tp_box_next(box));
    return status;
}

/* Runs that lie close together are read at once, as long as they fit into a buffer. */
static tp_status box_from_plain(tp_reader *r, tp_workspace *w, const target *t, tp_box *box, uint8_t *dst,
                                tp_error *error)
{
    for (;;) {
        uint64_t start = box->offset, end = start + box->run;
        tp_box ahead = *box;
        while (tp_box_next(&ahead) && ahead.offset - end <= GAP_MAX &&
               ahead.offset + box->run - start <= TP_FRAME_MAX_RAW)
            end = ahead.offset + box->run;
        bool single = end - start == box->run;
        tp_status status =
            read_plain(r, single ? dst : w->raw, (size_t)(end - start), t->info.offset + start, error);
        if (status != TP_OK) return status;
        do {
            if (!single) memcpy(dst, w->raw + (box->offset - start), (size_t)box->run);
            dst += box->run;
            if (!tp_box_next(box)) return TP_OK;
        } while (box->offset < end);
    }
}

tp_status tp_read_box(tp_reader *r, size_t tensor, const uint64_t *first, const uint64_t *last, size_t ndim,
                      void *dst, size_t capacity, size_t *size, tp_error *error)
{
    target t;
    tp_pack pack;
    tp_box box;
    tp_workspace *w;
    char what[128];
    *size = 0;
    tp_status status = describe(r, tensor, &t, error);
    if (status != TP_OK) return status;
    if (ndim != t.info.ndim) {
        snprintf(what, sizeof what, "has %zu dimensions, not %zu", t.info.ndim, ndim);
        return tensor_error(r, &t, TP_INVALID_ARGUMENT, what, error);
    }
    if (t.info.flags & TP_TENSOR_OPAQUE)
        return tensor_error(r, &t, TP_INVALID_ARGUMENT,
                            "its size does not follow from dtype and shape, so it has no boxes", error);
    if (!tp_pack_of(t.file.format, t.info.dtype, &pack))
        return tensor_error(r, &t, TP_UNSUPPORTED, "the size of its dtype's elements is not known", error);
    status = tp_box_make(&box, t.info.shape, ndim, t.file.format == TP_FORMAT_GGUF, pack, t.info.nbytes,
                         first, last, what);
    if (status != TP_OK) return tensor_error(r, &t, status, what, error);
    if (box.size > SIZE_MAX) return too_small(r, &t, error);
    *size = (size_t)box.size;
    if (!dst || box.size == 0) return TP_OK;
    if (box.size > capacity) return too_small(r, &t, error);
    if (!is_there(&t, box.end)) return truncated(r, &t, error);

    const tp_index *x = &r->container.index;
    uint64_t frame = r->is_container ? tp_index_frame_at(x, t.info.file, t.info.offset + box.offset) : 0;
    status = borrow(r, r->is_container ? x->frame_offset[frame] : 0, &w, error);
    if (status == TP_OK) {
        status = r->is_container ? box_from_frames(r, w, &t, &box, dst, error)
                                 : box_from_plain(r, w, &t, &box, dst, error);
        tp_workspaces_give(&r->shared->workspaces, w);
    }
    return status == TP_OK ? TP_OK : read_error(r, &t, status, error);
}
