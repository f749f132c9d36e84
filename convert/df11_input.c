/* The checkpoint that a conversion to or from DFloat11 reads. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/df11_convert.h"

#define OPEN_MAX_FILES 128
#define TEXT_MAX ((uint64_t)16 << 20) /* of config.json and the like */

tp_status tp_read_text(const tp_source *source, char **text, size_t *size, tp_error *error)
{
    if (source->size > TEXT_MAX)
        return tp_error_set(error, TP_LIMIT,
                            "%s: has %llu bytes, more than the %llu that are read of such a file",
                            source->name, (unsigned long long)source->size, (unsigned long long)TEXT_MAX);
    *size = (size_t)source->size;
    *text = malloc(*size + 1);
    if (!*text) return tp_error_memory(error);
    const tp_status status = *size ? source->read(source->context, *text, *size, 0, error) : TP_OK;
    (*text)[*size] = 0;
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t size = strlen(text), length = strlen(end);
    return size >= length && memcmp(text + size - length, end, length) == 0;
}

static int by_name(const void *left, const void *right)
{
    const tp_source_tensor *a = left, *b = right;
    const int order = memcmp(a->name, b->name, a->name_size < b->name_size ? a->name_size : b->name_size);
    return order ? order : (a->name_size > b->name_size) - (a->name_size < b->name_size);
}

size_t tp_weights_from(const tp_weights *weights, const char *name, size_t size)
{
    const tp_source_tensor key = {.name = name, .name_size = size};
    size_t from = 0, to = weights->count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (by_name(&weights->list[middle], &key) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

tp_source_tensor *tp_weights_find(const tp_weights *weights, const char *name, size_t size)
{
    const tp_source_tensor key = {.name = name, .name_size = size};
    return weights->count ? bsearch(&key, weights->list, weights->count, sizeof key, by_name) : NULL;
}

static tp_status about_tensor(const tp_weights *weights, const tp_source_tensor *w, tp_status status,
                              const char *what, tp_error *error)
{
    char shown[256];
    return tp_error_set(error, status, "%s: tensor '%s' %s", weights->files[w->file].input.name,
                        tp_text_escape(w->name, w->name_size, shown, sizeof shown), what);
}

static tp_status add_tensors(tp_weights *weights, size_t file, tp_error *error)
{
    const tp_layout *layout = &weights->files[file].layout;
    if (!layout->tensor_count) return TP_OK;
    tp_source_tensor *list = realloc(weights->list, (weights->count + layout->tensor_count) * sizeof *list);
    if (!list) return tp_error_memory(error);
    weights->list = list;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const tp_layout_tensor *t = &layout->tensors[i];
        tp_source_tensor *w = &list[weights->count++];
        *w = (tp_source_tensor){.name = layout->strings + t->name,
                                .name_size = t->name_size,
                                .dtype = layout->strings + layout->dtypes[t->dtype].start,
                                .dtype_size = layout->dtypes[t->dtype].size,
                                .dims = t->ndim ? layout->dims + t->dims : NULL,
                                .ndim = t->ndim,
                                .offset = t->offset,
                                .nbytes = t->nbytes,
                                .file = file,
                                .unit = SIZE_MAX};
        w->bf16 = !(t->flags & TP_TENSOR_OPAQUE) && w->dtype_size == 4 && memcmp(w->dtype, "BF16", 4) == 0;
        if (t->flags & TP_TENSOR_TRUNCATED)
            return about_tensor(weights, w, TP_TRUNCATED, "ends beyond the file", error);
        if (!w->name_size || memchr(w->name, 0, w->name_size))
            return about_tensor(weights, w, TP_UNSUPPORTED, "has a name that cannot be converted", error);
    }
    return TP_OK;
}

tp_status tp_weights_hold(tp_weights *weights, size_t file, tp_error *error)
{
    tp_weights_file *f = &weights->files[file];
    if (f->open) return TP_OK;
    if (weights->open_count >= OPEN_MAX_FILES)
        for (size_t i = 0; i < weights->file_count; i++)
            if (weights->files[i].open) {
                tp_input_close(&weights->files[i].input);
                weights->files[i].open = false;
                weights->open_count--;
            }
    const tp_status status = tp_tree_open_file(&weights->tree, f->entry, &f->input, error);
    if (status) return status;
    f->open = true;
    weights->open_count++;
    return TP_OK;
}

tp_status tp_weights_hold_all(tp_weights *weights, tp_source_tensor *const *tensors, size_t count,
                              tp_error *error)
{
    tp_status status = TP_OK;
    /* Twice, since the first time may close some of them again to open another. */
    for (size_t i = 0; i < 2 * count && !status; i++)
        status = tp_weights_hold(weights, tensors[i % count]->file, error);
    return status;
}

static tp_status parse_file(tp_weights *weights, size_t file, tp_error *error)
{
    tp_weights_file *f = &weights->files[file];
    tp_status status = tp_layout_parse(&f->input.source, &f->layout, error);
    if (status) return status;
    if (f->layout.format != TP_FORMAT_SAFETENSORS)
        return tp_error_set(error, TP_CORRUPT, "%s: is no safetensors file: %s", f->input.name,
                            f->layout.reason[0] ? f->layout.reason : "its header is none");
    return add_tensors(weights, file, error);
}

static tp_status read_config(tp_weights *weights, tp_input *input, tp_error *error)
{
    const tp_status status = tp_read_text(&input->source, &weights->config, &weights->config_size, error);
    tp_input_close(input);
    return status;
}

static tp_status open_folder(tp_weights *weights, const char *path, tp_progress *progress, tp_error *error)
{
    tp_status status = tp_tree_open(&weights->tree, path, -1, progress, error);
    if (status) return status;
    weights->is_folder = true;
    const tp_tree *tree = &weights->tree;
    for (size_t i = 0; i < tree->count && !status; i++) {
        const char *name = tp_tree_path(tree, i);
        if (tree->entries[i].folder || strchr(name, '/')) continue;
        if (strcmp(name, "config.json") == 0) {
            tp_input input;
            status = tp_tree_open_file(tree, i, &input, error);
            if (!status) status = read_config(weights, &input, error);
        }
        if (ends_in(name, ".safetensors")) weights->file_count++;
    }
    if (status) return status;
    if (!weights->file_count)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: holds no safetensors file", weights->shown);
    weights->files = calloc(weights->file_count, sizeof *weights->files);
    if (!weights->files) return tp_error_memory(error);
    size_t file = 0;
    for (size_t i = 0; i < tree->count && !status; i++) {
        const char *name = tp_tree_path(tree, i);
        if (tree->entries[i].folder || strchr(name, '/') || !ends_in(name, ".safetensors")) continue;
        weights->files[file].entry = i;
        weights->files[file].name = name;
        status = tp_weights_hold(weights, file, error);
        if (!status) status = parse_file(weights, file++, error);
        if (!status) status = tp_progress_tick(progress, false, error);
    }
    return status;
}

static tp_status open_file(tp_weights *weights, const char *path, tp_progress *progress, tp_error *error)
{
    weights->files = calloc(1, sizeof *weights->files);
    if (!weights->files) return tp_error_memory(error);
    tp_weights_file *f = &weights->files[0];
    f->name = tp_text_base(path);
    tp_status status = tp_input_open(&f->input, path, -1, false, progress, error);
    if (status) {
        tp_input_close(&f->input);
        return status;
    }
    weights->file_count = weights->open_count = 1;
    f->open = true;
    status = parse_file(weights, 0, error);
    if (status) return status;

    static const char config[] = "config.json";
    const size_t folder = (size_t)(f->name - path);
    char *beside = malloc(folder + sizeof config);
    if (!beside) return tp_error_memory(error);
    memcpy(beside, path, folder);
    memcpy(beside + folder, config, sizeof config);
    if (access(beside, F_OK) == 0) {
        tp_input input;
        status = tp_input_open(&input, beside, -1, false, progress, error);
        if (status)
            tp_input_close(&input);
        else
            status = read_config(weights, &input, error);
    }
    free(beside);
    return status;
}

tp_status tp_weights_open(tp_weights *weights, const char *path, tp_progress *progress, tp_error *error)
{
    struct stat s;
    memset(weights, 0, sizeof *weights);
    weights->tree.fd = -1;
    tp_text_path(path, weights->shown);
    weights->path = strdup(path);
    tp_status status = weights->path ? TP_OK : tp_error_memory(error);
    if (!status && stat(path, &s) != 0)
        status = tp_error_system(error, errno, "%s: cannot read", weights->shown);
    if (!status)
        status = S_ISDIR(s.st_mode) ? open_folder(weights, path, progress, error)
                                    : open_file(weights, weights->path, progress, error);
    if (!status && weights->count) {
        qsort(weights->list, weights->count, sizeof *weights->list, by_name);
        for (size_t i = 1; i < weights->count && !status; i++)
            if (by_name(&weights->list[i - 1], &weights->list[i]) == 0)
                status = about_tensor(weights, &weights->list[i], TP_CORRUPT, "is there twice", error);
    }
    if (status) tp_weights_close(weights);
    return status;
}

void tp_weights_close(tp_weights *weights)
{
    for (size_t i = 0; i < weights->file_count; i++) {
        if (weights->files[i].open) tp_input_close(&weights->files[i].input);
        tp_layout_free(&weights->files[i].layout);
    }
    free(weights->files);
    free(weights->list);
    free(weights->config);
    free(weights->path);
    if (weights->is_folder) tp_tree_close(&weights->tree);
    memset(weights, 0, sizeof *weights);
    weights->tree.fd = -1;
}

tp_status tp_weights_read(const tp_weights *weights, const tp_source_tensor *weight, uint64_t offset,
                          void *dst, size_t size, tp_error *error)
{
    const tp_source *source = &weights->files[weight->file].input.source;
    return size ? source->read(source->context, dst, size, weight->offset + offset, error) : TP_OK;
}

tp_status tp_df11_patterns_read(const char *path, tp_df11_patterns *patterns, tp_error *error)
{
    tp_input input;
    char *text = NULL;
    size_t size;
    *patterns = (tp_df11_patterns){0};
    tp_status status = tp_input_open(&input, path, -1, false, NULL, error);
    if (!status) status = tp_read_text(&input.source, &text, &size, error);
    if (!status) {
        tp_error inner;
        status = tp_df11_patterns_parse(text, size, patterns, &inner);
        if (status) tp_error_set(error, status, "%s: %s", input.name, inner.message);
    }
    tp_input_close(&input);
    free(text);
    return status;
}
