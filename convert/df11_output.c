/* The folder that a conversion to or from DFloat11 writes. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "convert/df11_convert.h"
#include "convert/file_writer.h"
#include "convert/output.h"

tp_status tp_target_open(tp_target *target, const char *path, bool force, tp_progress *progress,
                         tp_error *error)
{
    memset(target, 0, sizeof *target);
    target->folder.fd = target->folder.place.folder = -1;
    target->progress = progress;
    target->buffer = malloc(TP_TARGET_BUFFER);
    if (!target->buffer) return tp_error_memory(error);
    return tp_folder_open(&target->folder, path, force, error);
}

tp_status tp_target_commit(tp_target *target, tp_error *error)
{
    const tp_status status = tp_folder_commit(&target->folder, error);
    if (!target->folder.temporary) target->made_count = 0; /* it has its name, whatever came afterwards */
    return status;
}

void tp_target_close(tp_target *target)
{
    for (size_t i = target->made_count; i-- > 0;)
        tp_folder_remove(&target->folder, target->made[i], target->made_folder[i]);
    if (target->folder.path) tp_folder_close(&target->folder);
    for (size_t i = 0; i < target->made_capacity && target->made && target->made[i]; i++)
        free(target->made[i]);
    free(target->made);
    free(target->made_folder);
    free(target->buffer);
    memset(target, 0, sizeof *target);
}

/* Notes a path before it is made. */
static tp_status note(tp_target *target, const char *path, bool folder, tp_error *error)
{
    if (target->made_count + 1 >= target->made_capacity) { /* there is always a NULL behind the last */
        const size_t capacity = target->made_capacity ? 2 * target->made_capacity : 64;
        char **made = realloc(target->made, capacity * sizeof *made);
        if (!made) return tp_error_memory(error);
        memset(made + target->made_capacity, 0, (capacity - target->made_capacity) * sizeof *made);
        target->made = made;
        target->made_capacity = capacity;
        bool *folders = realloc(target->made_folder, capacity * sizeof *folders);
        if (!folders) return tp_error_memory(error);
        target->made_folder = folders;
    }
    char *copy = strdup(path);
    if (!copy) return tp_error_memory(error);
    target->made[target->made_count] = copy;
    target->made_folder[target->made_count++] = folder;
    return TP_OK;
}

tp_status tp_target_make_file(tp_target *target, const char *name, uint64_t size, int *fd, tp_error *error)
{
    *fd = -1;
    tp_status status = tp_folder_make_file(&target->folder, name, size, fd, error);
    if (status) return status;
    status = note(target, name, false, error);
    if (!status) return TP_OK;
    close(*fd);
    tp_folder_remove(&target->folder, name, false);
    *fd = -1;
    return status;
}

uint16_t tp_target_file_mode(const tp_target *target)
{
    return target->folder.mode & 0666;
}

static tp_status end_file(tp_target *target, int fd, uint16_t mode, const char *name, tp_status status,
                          tp_error *error)
{
    char shown[TP_SHOWN_PATH];
    const tp_status ended =
        tp_folder_end_file(fd, mode, tp_text_join(target->folder.path, name, shown), status ? NULL : error);
    return status ? status : ended;
}

tp_status tp_target_put_file(tp_target *target, const char *name, const void *data, size_t size,
                             tp_error *error)
{
    int fd;
    char shown[TP_SHOWN_PATH];
    tp_status status = tp_target_make_file(target, name, size, &fd, error);
    if (status) return status;
    status = tp_write_at(fd, data, size, 0, tp_text_join(target->folder.path, name, shown), error);
    return end_file(target, fd, tp_target_file_mode(target), name, status, error);
}

static tp_status copy(tp_target *target, const tp_source *source, uint64_t from, uint64_t size, int fd,
                      uint64_t to, const char *name, tp_error *error)
{
    char shown[TP_SHOWN_PATH];
    tp_text_join(target->folder.path, name, shown);
    tp_status status = TP_OK;
    for (uint64_t done = 0; done < size && !status;) {
        const size_t n = size - done < TP_TARGET_BUFFER ? (size_t)(size - done) : TP_TARGET_BUFFER;
        status = source->read(source->context, target->buffer, n, from + done, error);
        if (!status) status = tp_write_at(fd, target->buffer, n, to + done, shown, error);
        done += n;
        if (target->progress) target->progress->done += n;
        if (!status) status = tp_progress_tick(target->progress, false, error);
    }
    return status;
}

tp_status tp_target_copy(tp_target *target, tp_weights *weights, const tp_source_tensor *weight, int fd,
                         uint64_t offset, const char *name, tp_error *error)
{
    const tp_status status = tp_weights_hold(weights, weight->file, error);
    if (status) return status;
    return copy(target, &weights->files[weight->file].input.source, weight->offset, weight->nbytes, fd,
                offset, name, error);
}

static bool ends_in(const char *text, const char *end)
{
    const size_t size = strlen(text), length = strlen(end);
    return size >= length && memcmp(text + size - length, end, length) == 0;
}

static bool is_other(const char *path)
{
    return strchr(path, '/') || !(strcmp(path, "config.json") == 0 || ends_in(path, ".safetensors") ||
                                  ends_in(path, ".safetensors.index.json"));
}

tp_status tp_target_copy_others(tp_target *target, const tp_weights *weights, tp_error *error)
{
    const tp_tree *tree = &weights->tree;
    tp_status status = TP_OK;
    for (size_t i = 0; weights->is_folder && i < tree->count && !status; i++) {
        const char *path = tp_tree_path(tree, i);
        const tp_tree_entry *entry = &tree->entries[i];
        if (entry->folder) {
            status = tp_folder_make_folder(&target->folder, path, error);
            if (!status) status = note(target, path, true, error);
            continue;
        }
        if (!is_other(path)) continue;
        tp_input input;
        int fd;
        status = tp_tree_open_file(tree, i, &input, error);
        if (status) break;
        status = tp_target_make_file(target, path, entry->size, &fd, error);
        if (!status) {
            status = copy(target, &input.source, 0, entry->size, fd, 0, path, error);
            status = end_file(target, fd, entry->mode, path, status, error);
        }
        tp_input_close(&input);
    }
    for (size_t i = tree->count; weights->is_folder && i-- > 0 && !status;)
        if (tree->entries[i].folder)
            status =
                tp_folder_set_mode(&target->folder, tp_tree_path(tree, i), tree->entries[i].mode, error);
    return status;
}

/* ------------------------------------------------------------------------------------------ pieces */

static int by_place(const void *left, const void *right)
{
    const tp_piece *a = left, *b = right;
    const int a_place = tp_safetensors_dtype_place(a->dtype, a->dtype_size),
              b_place = tp_safetensors_dtype_place(b->dtype, b->dtype_size);
    if (a_place != b_place) return a_place < b_place ? 1 : -1;
    const int order = memcmp(a->name, b->name, a->name_size < b->name_size ? a->name_size : b->name_size);
    return order ? order : (a->name_size > b->name_size) - (a->name_size < b->name_size);
}

tp_status tp_pieces_layout(tp_piece *pieces, size_t count, const char *metadata, tp_text_buffer *header,
                           uint64_t *size, tp_error *error)
{
    if (count) qsort(pieces, count, sizeof *pieces, by_place);
    uint64_t at = 0;
    tp_text_add(header, "\0\0\0\0\0\0\0", 8);
    tp_text_add(header, "{", 1);
    if (metadata) {
        tp_text_print(header, "\"__metadata__\":");
        tp_text_add(header, metadata, strlen(metadata));
    }
    for (size_t i = 0; i < count; i++) {
        tp_piece *p = &pieces[i];
        if (i || metadata) tp_text_add(header, ",", 1);
        tp_text_quote(header, p->name, p->name_size);
        tp_text_print(header, ":{\"dtype\":");
        tp_text_quote(header, p->dtype, p->dtype_size);
        tp_text_print(header, ",\"shape\":[");
        for (size_t d = 0; d < p->ndim; d++)
            tp_text_print(header, "%s%llu", d ? "," : "", (unsigned long long)p->dims[d]);
        p->offset = at;
        if (__builtin_add_overflow(at, p->nbytes, &at) || at > INT64_MAX)
            return tp_error_set(error, TP_LIMIT, "the tensors have too many bytes for a file");
        tp_text_print(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)p->offset,
                      (unsigned long long)at);
    }
    tp_text_add(header, "}", 1);
    while (!header->failed && header->size % 8) tp_text_add(header, " ", 1);
    if (header->failed) return tp_error_memory(error);
    tp_store64(header->data, header->size - 8);
    for (size_t i = 0; i < count; i++) pieces[i].offset += header->size;
    *size = at + header->size;
    return TP_OK;
}

tp_status tp_target_put_pieces(tp_target *target, tp_weights *weights, const char *name, tp_piece *pieces,
                               size_t count, const char *metadata, tp_error *error)
{
    tp_text_buffer header = {0};
    uint64_t size;
    int fd = -1;
    char shown[TP_SHOWN_PATH];
    tp_text_join(target->folder.path, name, shown);
    tp_status status = tp_pieces_layout(pieces, count, metadata, &header, &size, error);
    if (!status) status = tp_target_make_file(target, name, size, &fd, error);
    if (!status) {
        status = tp_write_at(fd, header.data, header.size, 0, shown, error);
        for (size_t i = 0; i < count && !status; i++) {
            const tp_piece *p = &pieces[i];
            if (p->data)
                status = tp_write_at(fd, p->data, (size_t)p->nbytes, p->offset, shown, error);
            else if (p->weight)
                status = tp_target_copy(target, weights, p->weight, fd, p->offset, name, error);
        }
        status = end_file(target, fd, tp_target_file_mode(target), name, status, error);
    }
    free(header.data);
    return status;
}
