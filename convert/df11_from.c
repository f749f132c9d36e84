/* From a DFloat11 checkpoint to ordinary safetensors (docs/dfloat11.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "convert/df11_convert.h"
#include "convert/file_writer.h"
#include "convert/output.h"

#define WEIGHTS_MAX 4096 /* of a unit: names are matched one by one */

/* A tensor to be written: one of the input's as it is, or a weight of a unit. */
typedef struct result {
    char *name;
    const tp_source_tensor *tensor; /* NULL: of a unit */
    size_t unit;
    uint64_t start, nbytes; /* of a unit's weight: its first element; bytes */
    const uint64_t *dims;   /* of a unit's weight, if known */
    size_t ndim;
    uint64_t flat; /* its shape otherwise */
    bool placed;
} result;

typedef struct unit {
    char *name;
    tp_source_tensor *arrays[TP_DF11_ARRAYS];
    uint64_t elements;
    uint8_t *splits;
    size_t weights;
    size_t *results, result_count; /* its weights */
} unit;

/* A shape from `__metadata__`. */
typedef struct shape {
    char *name;
    uint64_t dims[16];
    size_t ndim;
    size_t number; /* in the order found */
} shape;

/* A text kept in `__metadata__`: the header of a file, or another file's content. */
typedef struct kept {
    char *name, *text;
} kept;

/* Where a result goes. */
typedef struct place {
    size_t result, file;
    uint64_t offset;
} place;

typedef struct file {
    const char *name;
    char *header; /* with the 8 bytes of its length, and that of them */
    size_t header_size;
    uint64_t size;
    int fd;
} file;

typedef struct from_df11 {
    tp_options options;
    tp_progress progress;
    tp_weights in, reference;
    bool has_reference;
    tp_target out;
    tp_df11_config config;
    tp_df11_patterns patterns;
    unit *units;
    size_t count;
    shape *shapes;
    size_t shape_count;
    kept *kept;
    size_t kept_count;
    result *results;
    size_t result_count;
    place *places; /* by result, once sorted */
    size_t place_count;
    file *files;
    size_t file_count;
    tp_df11_workers workers;
    tp_df11_report report;
    tp_error *error;
} from_df11;

static const char *show(const char *name, char shown[256])
{
    return tp_text_escape(name, strlen(name), shown, 256);
}

/* ------------------------------------------------------------------------------------------ metadata */

static tp_status add_shape(void *context, const char *name, const uint64_t *dims, size_t ndim,
                           tp_error *error)
{
    from_df11 *c = context;
    shape *grown = realloc(c->shapes, (c->shape_count + 1) * sizeof *grown);
    if (!grown) return tp_error_memory(error);
    c->shapes = grown;
    shape *s = &grown[c->shape_count];
    *s = (shape){.name = strdup(name), .ndim = ndim, .number = c->shape_count};
    if (!s->name) return tp_error_memory(error);
    memcpy(s->dims, dims, ndim * sizeof *dims);
    c->shape_count++;
    return TP_OK;
}

static tp_status take_metadata(void *context, const char *key, const char *value, tp_error *error)
{
    from_df11 *c = context;
    if (strcmp(key, TP_DF11_SHAPES) == 0) {
        const tp_status status = tp_df11_shapes_parse(value, add_shape, c, error);
        return status == TP_CORRUPT ? TP_OK : status; /* then there are none */
    }
    const size_t prefix = sizeof TP_DF11_SOURCE - 1;
    if (strncmp(key, TP_DF11_SOURCE, prefix) != 0) return TP_OK;
    kept *grown = realloc(c->kept, (c->kept_count + 1) * sizeof *grown);
    if (!grown) return tp_error_memory(error);
    c->kept = grown;
    kept *k = &grown[c->kept_count];
    *k = (kept){.name = strdup(key + prefix), .text = strdup(value)};
    if (!k->name || !k->text) {
        free(k->name);
        free(k->text);
        return tp_error_memory(error);
    }
    c->kept_count++;
    return TP_OK;
}

static int by_shape_name(const void *left, const void *right)
{
    const shape *a = left, *b = right;
    const int order = strcmp(a->name, b->name);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

static tp_status read_metadata(from_df11 *c)
{
    tp_status status = TP_OK;
    for (size_t i = 0; i < c->in.file_count && !status; i++) {
        status = tp_weights_hold(&c->in, i, c->error);
        if (!status)
            status = tp_safetensors_metadata(&c->in.files[i].input.source, take_metadata, c, c->error);
    }
    if (c->shape_count) qsort(c->shapes, c->shape_count, sizeof *c->shapes, by_shape_name);
    return status;
}

static const shape *find_shape(const from_df11 *c, const char *name)
{
    size_t from = 0, to = c->shape_count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (strcmp(c->shapes[middle].name, name) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < c->shape_count && strcmp(c->shapes[from].name, name) == 0 ? &c->shapes[from] : NULL;
}

/* ------------------------------------------------------------------------------------- units, results */

/* Takes r->name, also on failure. */
static tp_status add_result(from_df11 *c, const result *r)
{
    if ((c->result_count & (c->result_count - 1)) == 0) { /* a power of two is full */
        result *grown = realloc(c->results, (c->result_count ? 2 * c->result_count : 1) * sizeof *grown);
        if (!grown) {
            free(r->name);
            return tp_error_memory(c->error);
        }
        c->results = grown;
    }
    c->results[c->result_count++] = *r;
    return r->name ? TP_OK : tp_error_memory(c->error);
}

static char *joined(const char *module, const char *attr)
{
    const size_t size = strlen(module) + strlen(attr) + sizeof "..weight";
    char *name = malloc(size);
    if (name) snprintf(name, size, *attr ? "%s.%s.weight" : "%s%s.weight", module, attr);
    return name;
}

/* The unit of which `luts` is an array. */
static tp_status add_unit(from_df11 *c, tp_source_tensor *luts, size_t name_size)
{
    unit *u = &c->units[c->count];
    char shown[256];
    *u = (unit){.name = strndup(luts->name, name_size)};
    if (!u->name) return tp_error_memory(c->error);
    c->count++;
    for (int a = 0; a < TP_DF11_ARRAYS; a++) {
        char *name = malloc(name_size + 32);
        if (!name) return tp_error_memory(c->error);
        snprintf(name, name_size + 32, "%s.%s", u->name, tp_df11_array_names[a]);
        u->arrays[a] = tp_weights_find(&c->in, name, strlen(name));
        free(name);
        const bool wide = a == TP_DF11_SPLIT_POSITIONS;
        const tp_source_tensor *t = u->arrays[a];
        if (!t)
            return tp_error_set(c->error, TP_CORRUPT, "%s: unit '%s' has no %s", c->in.shown,
                                show(u->name, shown), tp_df11_array_names[a]);
        if (t->dtype_size != (wide ? 3 : 2) || memcmp(t->dtype, wide ? "I64" : "U8", t->dtype_size) != 0)
            return tp_error_set(c->error, TP_CORRUPT, "%s: unit '%s': %s is not of dtype %s", c->in.shown,
                                show(u->name, shown), tp_df11_array_names[a], wide ? "I64" : "U8");
        u->arrays[a]->used = true;
    }
    u->elements = u->arrays[TP_DF11_SIGN_MANTISSA]->nbytes;
    const tp_source_tensor *t = u->arrays[TP_DF11_SPLIT_POSITIONS];
    if (t->nbytes % 8 || t->nbytes >= 8 * (uint64_t)WEIGHTS_MAX)
        return tp_error_set(c->error, TP_CORRUPT, "%s: unit '%s': split_positions has %llu bytes",
                            c->in.shown, show(u->name, shown), (unsigned long long)t->nbytes);
    u->weights = (size_t)(t->nbytes / 8) + 1;
    u->splits = malloc((size_t)t->nbytes + 8);
    if (!u->splits) return tp_error_memory(c->error);
    tp_status status = tp_weights_hold(&c->in, t->file, c->error);
    if (!status) status = tp_weights_read(&c->in, t, 0, u->splits, (size_t)t->nbytes, c->error);
    uint64_t before = 0;
    for (size_t i = 0; i + 1 < u->weights && !status; i++) {
        const uint64_t split = tp_load64(u->splits + 8 * i);
        if (split < before || split > u->elements)
            status = tp_error_set(c->error, TP_CORRUPT, "%s: unit '%s': split_positions are out of order",
                                  c->in.shown, show(u->name, shown));
        before = split;
    }
    return status;
}

/* The names of a unit's weights, from malloc each; `names` has room for u->weights. */
static tp_status name_weights(from_df11 *c, const unit *u, char **names)
{
    char shown[256];
    const tp_df11_pattern *p;
    const tp_status status = tp_df11_patterns_match(&c->patterns, u->name, &p, c->error);
    if (status) return status;
    size_t count = 0;
    if (p && (p->attr_count == u->weights || (!p->attr_count && u->weights == 1))) {
        for (; count < u->weights; count++) {
            names[count] = joined(u->name, p->attr_count ? p->attrs[count] : "");
            if (!names[count]) return tp_error_memory(c->error);
        }
        return TP_OK;
    }
    if (u->weights == 1) { /* its own, or what our metadata says */
        names[0] = joined(u->name, "");
        return names[0] ? TP_OK : tp_error_memory(c->error);
    }
    /* Those in our metadata whose names start with the unit's, in their order there. */
    const size_t size = strlen(u->name);
    for (size_t wanted = 0; wanted < u->weights; wanted++) {
        const shape *next = NULL;
        for (size_t i = 0; i < c->shape_count; i++) {
            const shape *s = &c->shapes[i];
            if (strncmp(s->name, u->name, size) != 0 || s->name[size] != '.') continue;
            bool taken = false;
            for (size_t k = 0; k < wanted; k++) taken |= strcmp(names[k], s->name) == 0;
            if (!taken && (!next || s->number < next->number)) next = s;
        }
        if (!next)
            return tp_error_set(
                c->error, TP_INVALID_ARGUMENT,
                "%s: unit '%s': nothing says what its %zu weights are called; name a pattern "
                "dictionary",
                c->in.shown, show(u->name, shown), u->weights);
        names[wanted] = strdup(next->name);
        if (!names[wanted]) return tp_error_memory(c->error);
    }
    return TP_OK;
}

/* The shape if it is one of so many elements. */
static bool take_shape(result *r, const uint64_t *dims, size_t ndim)
{
    uint64_t n = 1;
    for (size_t i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(n, dims[i], &n)) return false;
    if (n != r->nbytes / 2) return false;
    r->dims = dims;
    r->ndim = ndim;
    return true;
}

static tp_status add_unit_results(from_df11 *c, size_t number)
{
    const unit *u = &c->units[number];
    char **names = calloc(u->weights, sizeof *names);
    if (!names) return tp_error_memory(c->error);
    tp_status status = name_weights(c, u, names);
    for (size_t i = 0; i < u->weights && !status; i++) {
        const uint64_t start = i ? tp_load64(u->splits + 8 * (i - 1)) : 0;
        const uint64_t end = i + 1 < u->weights ? tp_load64(u->splits + 8 * i) : u->elements;
        result r = {.name = names[i],
                    .unit = number,
                    .start = start,
                    .nbytes = 2 * (end - start),
                    .flat = end - start};
        names[i] = NULL;
        const tp_source_tensor *t =
            c->has_reference ? tp_weights_find(&c->reference, r.name, strlen(r.name)) : NULL;
        const shape *s = find_shape(c, r.name);
        if (!(t && t->bf16 && take_shape(&r, t->dims, t->ndim)) && s) take_shape(&r, s->dims, s->ndim);
        status = add_result(c, &r);
    }
    for (size_t i = 0; i < u->weights; i++) free(names[i]);
    free(names);
    return status;
}

static int by_result_name(const void *left, const void *right)
{
    return strcmp(((const result *)left)->name, ((const result *)right)->name);
}

static result *find_result(const from_df11 *c, const char *name, size_t size)
{
    size_t from = 0, to = c->result_count;
    size = strnlen(name, size); /* as results' names end */
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        result *r = &c->results[middle];
        int order = strncmp(r->name, name, size);
        if (!order) order = r->name[size] != 0; /* it is longer */
        if (!order) return r;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

/* Without another pattern dictionary: that of a family known by the names of its tensors. */
static tp_status add_known_patterns(from_df11 *c)
{
    for (size_t k = 0; k < tp_df11_known_count && !c->patterns.count; k++) {
        const tp_df11_known *known = &tp_df11_known_families[k];
        const char *dot = known->tensor ? strchr(known->tensor, '.') : NULL;
        if (!dot) continue;
        /* The unit of that tensor: its first pattern's module. */
        dot = strchr(dot + 1, '.');
        char luts[128];
        snprintf(luts, sizeof luts, "%.*s.luts", (int)(dot - known->tensor), known->tensor);
        if (!tp_weights_find(&c->in, luts, strlen(luts))) continue;
        for (size_t i = 0; known->patterns[i].regex; i++) {
            size_t count = 0;
            while (known->patterns[i].attrs[count]) count++;
            const tp_status status = tp_df11_patterns_add(&c->patterns, known->patterns[i].regex,
                                                          known->patterns[i].attrs, count, c->error);
            if (status) return status;
        }
    }
    return TP_OK;
}

static tp_status find_results(from_df11 *c, const char *pattern_dict)
{
    tp_status status = read_metadata(c);
    size_t luts = 0;
    for (size_t pass = 0; pass < 2 && !status; pass++) {
        for (size_t i = 0; i < c->in.count && !status; i++) {
            tp_source_tensor *t = &c->in.list[i];
            tp_df11_array array;
            size_t size;
            if (!tp_df11_is_array(t->name, t->name_size, &array, &size) || array != TP_DF11_LUTS) continue;
            if (pass)
                status = add_unit(c, t, size);
            else
                luts++;
        }
        if (pass || status) break;
        if (!luts)
            return tp_error_set(c->error, TP_INVALID_ARGUMENT, "%s: holds no DFloat11 units", c->in.shown);
        c->units = calloc(luts, sizeof *c->units);
        if (!c->units) return tp_error_memory(c->error);
    }
    if (!status && pattern_dict)
        status = tp_df11_patterns_read(pattern_dict, &c->patterns, c->error);
    else if (!status && c->config.has_df11 &&
             tp_df11_patterns_parse(c->in.config, c->in.config_size, &c->patterns, c->error) ==
                 TP_NO_MEMORY)
        status = TP_NO_MEMORY;
    if (!status) status = add_known_patterns(c);
    for (size_t i = 0; i < c->count && !status; i++) status = add_unit_results(c, i);
    for (size_t i = 0; i < c->in.count && !status; i++) {
        const tp_source_tensor *t = &c->in.list[i];
        if (t->used) continue;
        const result r = {.name = strndup(t->name, t->name_size), .tensor = t, .nbytes = t->nbytes};
        status = add_result(c, &r);
    }
    if (status) return status;
    qsort(c->results, c->result_count, sizeof *c->results, by_result_name);
    for (size_t i = 1; i < c->result_count; i++)
        if (by_result_name(&c->results[i - 1], &c->results[i]) == 0) {
            char shown[256];
            return tp_error_set(c->error, TP_CORRUPT, "%s: there are two tensors '%s'", c->in.shown,
                                show(c->results[i].name, shown));
        }
    for (size_t i = 0; i < c->result_count; i++) {
        const result *r = &c->results[i];
        if (r->tensor) continue;
        unit *u = &c->units[r->unit];
        if (!u->results) u->results = calloc(u->weights, sizeof *u->results);
        if (!u->results) return tp_error_memory(c->error);
        u->results[u->result_count++] = i;
    }
    return TP_OK;
}

/* ------------------------------------------------------------------------------------------- places */

static void forget_files(from_df11 *c)
{
    for (size_t i = 0; i < c->file_count; i++) free(c->files[i].header);
    free(c->files);
    free(c->places);
    c->files = NULL;
    c->places = NULL;
    c->file_count = c->place_count = 0;
    for (size_t i = 0; i < c->result_count; i++) c->results[i].placed = false;
}

static tp_status add_file(from_df11 *c, const char *name, char *header, size_t header_size)
{
    file *grown = realloc(c->files, (c->file_count + 1) * sizeof *grown);
    if (!grown) {
        free(header);
        return tp_error_memory(c->error);
    }
    c->files = grown;
    grown[c->file_count++] =
        (file){.name = name, .header = header, .header_size = header_size, .size = header_size, .fd = -1};
    return TP_OK;
}

static tp_status add_place(from_df11 *c, result *r, uint64_t offset)
{
    place *grown = c->places;
    if ((c->place_count & (c->place_count - 1)) == 0) {
        grown = realloc(c->places, (c->place_count ? 2 * c->place_count : 1) * sizeof *grown);
        if (!grown) return tp_error_memory(c->error);
        c->places = grown;
    }
    grown[c->place_count++] =
        (place){.result = (size_t)(r - c->results), .file = c->file_count - 1, .offset = offset};
    file *f = &c->files[c->file_count - 1];
    if (offset + r->nbytes > f->size) f->size = offset + r->nbytes;
    r->placed = true;
    return TP_OK;
}

/* The result that a tensor of a layout is to be. With tied embeddings the head is not stored. */
static result *result_of(const from_df11 *c, const char *name, size_t size)
{
    static const char head[] = "lm_head.weight", embed[] = "model.embed_tokens.weight";
    result *r = find_result(c, name, size);
    if (!r && c->config.tied && size == sizeof head - 1 && memcmp(name, head, size) == 0)
        r = find_result(c, embed, sizeof embed - 1);
    return r;
}

/* The places in a file with this layout, whose header was added. `*fits`: all its tensors are there. */
static tp_status place_layout(from_df11 *c, const tp_layout *layout, bool *fits)
{
    tp_status status = TP_OK;
    uint64_t end = c->files[c->file_count - 1].header_size; /* without holes nothing lies behind it */
    *fits = true;
    for (size_t i = 0; i < layout->tensor_count && *fits; i++)
        *fits = !__builtin_add_overflow(end, layout->tensors[i].nbytes, &end);
    if (!*fits) tp_error_set(c->error, TP_MISMATCH, "its tensors are too large");
    for (size_t i = 0; i < layout->tensor_count && *fits && !status; i++) {
        const tp_layout_tensor *t = &layout->tensors[i];
        const tp_layout_text *dtype = &layout->dtypes[t->dtype];
        const char *dtype_text = layout->strings + dtype->start;
        result *r = result_of(c, layout->strings + t->name, t->name_size);
        *fits = r && r->nbytes == t->nbytes && t->offset <= INT64_MAX && t->nbytes <= end &&
                t->offset <= end - t->nbytes &&
                (r->tensor ? dtype->size == r->tensor->dtype_size &&
                                 memcmp(dtype_text, r->tensor->dtype, dtype->size) == 0
                           : dtype->size == 4 && memcmp(dtype_text, "BF16", 4) == 0);
        if (*fits) {
            status = add_place(c, r, t->offset);
        } else {
            char shown[256];
            tp_error_set(c->error, TP_MISMATCH, "tensor '%s' is not there, or of another size or dtype",
                         tp_text_escape(layout->strings + t->name, t->name_size, shown, sizeof shown));
        }
    }
    return status;
}

static bool all_placed(const from_df11 *c)
{
    for (size_t i = 0; i < c->result_count; i++)
        if (!c->results[i].placed) {
            char shown[256];
            tp_error_set(c->error, TP_MISMATCH, "tensor '%s' is not among the original's",
                         show(c->results[i].name, shown));
            return false;
        }
    return true;
}

/* As the reference's files. */
static tp_status place_like_reference(from_df11 *c)
{
    tp_status status = TP_OK;
    for (size_t i = 0; i < c->reference.file_count && !status; i++) {
        tp_weights_file *f = &c->reference.files[i];
        bool fits = true;
        uint64_t size = 0;
        /* The spans' first is what stands before the tensors. */
        for (size_t s = 0; s < f->layout.span_count; s++)
            if (f->layout.spans[s].tensor == TP_NO_TENSOR) size += f->layout.spans[s].length;
        if (f->layout.span_count && size != f->layout.spans[0].length)
            return tp_error_set(c->error, TP_UNSUPPORTED,
                                "%s: has bytes between its tensors, or behind them", f->input.name);
        char *header = malloc((size_t)size);
        status = header ? tp_weights_hold(&c->reference, i, c->error) : tp_error_memory(c->error);
        if (!status)
            status = f->input.source.read(f->input.source.context, header, (size_t)size, 0, c->error);
        if (status) {
            free(header);
            return status;
        }
        status = add_file(c, f->name, header, (size_t)size);
        if (!status) status = place_layout(c, &f->layout, &fits);
        if (!status && !fits) status = TP_MISMATCH;
    }
    if (!status && !all_placed(c)) status = TP_MISMATCH;
    if (status == TP_MISMATCH) {
        const tp_error inner = *c->error;
        tp_error_set(c->error, status, "%s: does not fit %s: %s", c->reference.shown, c->in.shown,
                     inner.message);
    }
    return status;
}

static bool is_name(const char *name, const char *end)
{
    const size_t size = strlen(name), length = strlen(end);
    return size > length && size <= 255 && name[0] != '.' && !strchr(name, '/') &&
           strcmp(name + size - length, end) == 0;
}

/* As the files were whose headers are in `__metadata__`; *fits false: they do not fit, if there are any. */
static tp_status place_like_kept(from_df11 *c, bool *fits)
{
    tp_status status = TP_OK;
    *fits = true;
    for (size_t i = 0; i < c->kept_count && *fits && !status; i++) {
        const kept *k = &c->kept[i];
        if (!is_name(k->name, ".safetensors")) continue;
        const size_t length = strlen(k->text);
        char *header = malloc(length + 9);
        if (!header) return tp_error_memory(c->error);
        tp_store64(header, length);
        memcpy(header + 8, k->text, length + 1);
        tp_memory memory;
        tp_layout layout;
        /* The tensors lie beyond its end, but that does not matter here. */
        const tp_source source = tp_source_memory(&memory, header, length + 8, k->name);
        status = tp_layout_parse(&source, &layout, c->error);
        if (status) {
            free(header);
            return status;
        }
        status = add_file(c, k->name, header, length + 8);
        *fits = layout.format == TP_FORMAT_SAFETENSORS;
        if (!status && *fits) status = place_layout(c, &layout, fits);
        tp_layout_free(&layout);
    }
    *fits = *fits && c->file_count && all_placed(c);
    return status;
}

static const char *usual_name(const from_df11 *c)
{
    return c->config.diffusers ? "diffusion_pytorch_model.safetensors" : "model.safetensors";
}

/* One file of everything. */
static tp_status place_in_one(from_df11 *c)
{
    tp_piece *pieces = calloc(c->result_count + 1, sizeof *pieces);
    if (!pieces) return tp_error_memory(c->error);
    size_t flat = 0;
    for (size_t i = 0; i < c->result_count; i++) {
        const result *r = &c->results[i];
        const tp_source_tensor *t = r->tensor;
        flat += !t && !r->dims;
        pieces[i] = (tp_piece){.name = r->name,
                               .name_size = strlen(r->name),
                               .dtype = t ? t->dtype : "BF16",
                               .dtype_size = t ? t->dtype_size : 4,
                               .dims = t         ? t->dims
                                       : r->dims ? r->dims
                                                 : &r->flat,
                               .ndim = t         ? t->ndim
                                       : r->dims ? r->ndim
                                                 : 1,
                               .nbytes = r->nbytes,
                               .tag = i};
    }
    if (flat)
        tp_df11_warn(&c->options,
                     "%s: the shapes of %zu weights are not known: they become one-dimensional; a "
                     "reference would tell",
                     c->in.shown, flat);
    tp_text_buffer header = {0};
    uint64_t size;
    tp_status status =
        tp_pieces_layout(pieces, c->result_count, "{\"format\":\"pt\"}", &header, &size, c->error);
    if (status) {
        free(header.data);
    } else {
        status = add_file(c, usual_name(c), header.data, header.size);
        for (size_t i = 0; i < c->result_count && !status; i++)
            status = add_place(c, &c->results[pieces[i].tag], pieces[i].offset);
    }
    free(pieces);
    return status;
}

static int by_result(const void *left, const void *right)
{
    const place *a = left, *b = right;
    return a->result != b->result ? (a->result > b->result) - (a->result < b->result)
                                  : (a->offset > b->offset) - (a->offset < b->offset);
}

static tp_status find_places(from_df11 *c)
{
    tp_status status;
    if (c->has_reference) {
        status = place_like_reference(c);
    } else {
        bool fits;
        status = place_like_kept(c, &fits);
        if (!status && !fits) {
            if (c->kept_count)
                tp_df11_warn(&c->options, "%s: the original's files cannot be made again: %s", c->in.shown,
                             c->error->message);
            forget_files(c);
            for (size_t i = 0; i < c->kept_count; i++) free(c->kept[i].name), free(c->kept[i].text);
            c->kept_count = 0;
            status = place_in_one(c);
        }
    }
    /* Of one file the name carries no meaning: it is called as loaders expect it. */
    if (!status && c->file_count == 1) c->files[0].name = usual_name(c);
    if (!status && c->place_count) qsort(c->places, c->place_count, sizeof *c->places, by_result);
    return status;
}

/* ------------------------------------------------------------------------------------------ writing */

typedef struct decoding {
    const from_df11 *c;
    size_t unit;
    const size_t *weights; /* the results that are this unit's, by start */
    size_t count;
} decoding;

static const place *first_place(const from_df11 *c, size_t number)
{
    size_t from = 0, to = c->place_count;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (c->places[middle].result < number)
            from = middle + 1;
        else
            to = middle;
    }
    return c->places + from;
}

static tp_status put(const from_df11 *c, size_t number, uint64_t at, const uint8_t *data, size_t size,
                     tp_error *error)
{
    tp_status status = TP_OK;
    for (const place *p = first_place(c, number);
         p < c->places + c->place_count && p->result == number && !status; p++)
        status =
            tp_write_at(c->files[p->file].fd, data, size, p->offset + at, c->files[p->file].name, error);
    return status;
}

static tp_status put_batch(void *context, tp_df11_worker *worker, uint64_t first, size_t n, tp_error *error)
{
    const decoding *d = context;
    tp_status status = TP_OK;
    for (size_t i = 0; i < d->count && !status; i++) {
        const result *r = &d->c->results[d->weights[i]];
        const uint64_t from = first > r->start ? first : r->start, end = r->start + r->nbytes / 2;
        const uint64_t to = first + n < end ? first + n : end;
        if (from < to)
            status = put(d->c, d->weights[i], 2 * (from - r->start), worker->buffer + 2 * (from - first),
                         2 * (size_t)(to - from), error);
    }
    return status;
}

static tp_status load(from_df11 *c, const unit *u, tp_df11_array array, uint8_t **data, uint64_t *size)
{
    const tp_source_tensor *t = u->arrays[array];
    *size = t->nbytes;
    if (t->nbytes > SIZE_MAX / 2) return tp_error_memory(c->error);
    *data = malloc((size_t)t->nbytes + 1);
    return *data ? tp_weights_read(&c->in, t, 0, *data, (size_t)t->nbytes, c->error)
                 : tp_error_memory(c->error);
}

static tp_status write_unit(from_df11 *c, size_t number)
{
    const unit *u = &c->units[number];
    uint8_t *data[TP_DF11_ARRAYS] = {NULL};
    uint64_t sizes[TP_DF11_ARRAYS] = {0};
    char shown[256];
    show(u->name, shown);
    tp_df11_decoder *decoder = aligned_alloc(64, (sizeof *decoder + 63) / 64 * 64);
    tp_status status = decoder ? tp_weights_hold_all(&c->in, u->arrays, TP_DF11_ARRAYS, c->error)
                               : tp_error_memory(c->error);
    for (int a = 0; a < TP_DF11_ARRAYS && !status; a++)
        status = load(c, u, (tp_df11_array)a, &data[a], &sizes[a]);
    if (!status) {
        const tp_df11_unit read = {.luts = data[TP_DF11_LUTS],
                                   .luts_size = sizes[TP_DF11_LUTS],
                                   .encoded_exponent = data[TP_DF11_ENCODED_EXPONENT],
                                   .encoded_size = sizes[TP_DF11_ENCODED_EXPONENT],
                                   .sign_mantissa = data[TP_DF11_SIGN_MANTISSA],
                                   .elements = sizes[TP_DF11_SIGN_MANTISSA],
                                   .output_positions = data[TP_DF11_OUTPUT_POSITIONS],
                                   .positions_size = sizes[TP_DF11_OUTPUT_POSITIONS],
                                   .gaps = data[TP_DF11_GAPS],
                                   .gaps_size = sizes[TP_DF11_GAPS],
                                   .split_positions = data[TP_DF11_SPLIT_POSITIONS],
                                   .split_size = sizes[TP_DF11_SPLIT_POSITIONS]};
        tp_error inner;
        status = tp_df11_open(&read, decoder, &inner);
        if (status) tp_error_set(c->error, status, "%s: unit '%s': %s", c->in.shown, shown, inner.message);
    }
    if (!status) {
        char name[TP_SHOWN_PATH + 300];
        snprintf(name, sizeof name, "%s: unit '%s'", c->in.shown, shown);
        decoding d = {.c = c, .unit = number, .weights = u->results, .count = u->result_count};
        status = tp_df11_decode_all(decoder, &c->workers, put_batch, &d, name, &c->progress, c->error);
        c->report.units++;
        c->report.weights += u->elements;
        for (int a = 0; a < TP_DF11_ARRAYS; a++) c->progress.done += sizes[a];
    }
    for (int a = 0; a < TP_DF11_ARRAYS; a++) free(data[a]);
    free(decoder);
    return status;
}

static tp_status write_files(from_df11 *c)
{
    tp_status status = TP_OK;
    for (size_t i = 0; i < c->file_count && !status; i++) {
        file *f = &c->files[i];
        status = tp_target_make_file(&c->out, f->name, f->size, &f->fd, c->error);
        if (!status) status = tp_write_at(f->fd, f->header, f->header_size, 0, f->name, c->error);
    }
    for (size_t i = 0; i < c->count && !status; i++) status = write_unit(c, i);
    for (size_t i = 0; i < c->place_count && !status; i++) {
        const place *p = &c->places[i];
        const tp_source_tensor *t = c->results[p->result].tensor;
        if (t)
            status = tp_target_copy(&c->out, &c->in, t, c->files[p->file].fd, p->offset,
                                    c->files[p->file].name, c->error);
    }
    for (size_t i = 0; i < c->file_count; i++) {
        file *f = &c->files[i];
        if (f->fd < 0) continue;
        const tp_status ended =
            tp_folder_end_file(f->fd, tp_target_file_mode(&c->out), f->name, status ? NULL : c->error);
        f->fd = -1;
        if (!status) status = ended;
    }
    return status;
}

/* The index of the files, from `__metadata__` or the reference. */
static tp_status write_index(from_df11 *c)
{
    static const char end[] = ".safetensors.index.json";
    tp_status status = TP_OK;
    for (size_t i = 0; i < c->kept_count && !c->has_reference && !status; i++)
        if (is_name(c->kept[i].name, end))
            status = tp_target_put_file(&c->out, c->kept[i].name, c->kept[i].text, strlen(c->kept[i].text),
                                        c->error);
    const tp_tree *tree = &c->reference.tree;
    for (size_t i = 0; c->reference.is_folder && i < tree->count && !status; i++) {
        if (tree->entries[i].folder || !is_name(tp_tree_path(tree, i), end)) continue;
        tp_input input;
        char *text = NULL;
        size_t size;
        status = tp_tree_open_file(tree, i, &input, c->error);
        if (status) break;
        status = tp_read_text(&input.source, &text, &size, c->error);
        if (!status) status = tp_target_put_file(&c->out, tp_tree_path(tree, i), text, size, c->error);
        free(text);
        tp_input_close(&input);
    }
    return status;
}

static tp_status write_config(from_df11 *c)
{
    char *text = NULL;
    bool empty;
    if (!c->in.config) return TP_OK;
    tp_status status = tp_df11_config_remove(c->in.config, c->in.config_size, &text, &empty, c->error);
    if (!status && !empty)
        status = tp_target_put_file(&c->out, "config.json", text, strlen(text), c->error);
    free(text);
    return status;
}

static tp_status convert(from_df11 *c, const char *out_path, const char *pattern_dict)
{
    struct stat s;
    tp_status status = TP_OK;
    if (c->in.config) {
        tp_error inner;
        status = tp_df11_config_parse(c->in.config, c->in.config_size, &c->config, &inner);
        if (status)
            return tp_error_set(c->error, status, "%s: config.json: %s", c->in.shown, inner.message);
        if (c->config.old)
            return tp_error_set(c->error, TP_UNSUPPORTED,
                                "%s: is DFloat11 of version 0.1, another format, which is not read",
                                c->in.shown);
    }
    status = find_results(c, pattern_dict);
    if (!status) status = find_places(c);
    if (!status) status = tp_target_open(&c->out, out_path, c->options.force, &c->progress, c->error);
    if (!status && c->in.is_folder && fstat(c->in.tree.fd, &s) == 0 &&
        tp_place_is_inside(&c->out.folder.place, &s))
        status = tp_error_set(c->error, TP_INVALID_ARGUMENT,
                              "%s: lies inside the input folder; choose another name", c->out.folder.name);
    if (!status) status = tp_df11_workers_make(&c->workers, c->options.threads, c->error);
    for (size_t i = 0; i < c->in.count; i++) {
        c->progress.total += c->in.list[i].nbytes;
        c->report.stored_bytes += c->in.list[i].nbytes;
    }
    for (size_t i = 0; i < c->result_count; i++) c->report.raw_bytes += c->results[i].nbytes;
    c->report.tensors = c->result_count;
    if (!status) status = write_files(c);
    if (!status) status = write_index(c);
    if (!status) status = write_config(c);
    if (!status) status = tp_target_copy_others(&c->out, &c->in, c->error);
    if (!status && c->in.is_folder) status = tp_tree_unchanged(&c->in.tree, &c->progress, c->error);
    if (!status && !c->in.is_folder) status = tp_input_unchanged(&c->in.files[0].input, c->error);
    if (!status) status = tp_target_commit(&c->out, c->error);
    if (!status) tp_progress_tick(&c->progress, true, NULL);
    return status;
}

tp_status tp_convert_from_df11(const char *in_path, const char *out_path, const char *pattern_dict,
                               const char *reference, const tp_options *options, tp_df11_report *report,
                               tp_error *error)
{
    tp_error ignored;
    from_df11 c = {.error = error ? error : &ignored};
    memset(c.error, 0, sizeof *c.error);
    if (options)
        c.options = *options;
    else
        tp_options_init(&c.options);
    tp_progress_init(&c.progress, &c.options);
    c.out.folder.fd = c.out.folder.place.folder = -1;
    tp_status status = tp_weights_open(&c.in, in_path, &c.progress, c.error);
    if (!status && reference) {
        status = tp_weights_open(&c.reference, reference, &c.progress, c.error);
        c.has_reference = !status;
    }
    if (!status) status = convert(&c, out_path, pattern_dict);
    tp_target_close(&c.out);
    tp_weights_close(&c.in);
    if (c.has_reference) tp_weights_close(&c.reference);
    forget_files(&c);
    for (size_t i = 0; i < c.count; i++) {
        free(c.units[i].name);
        free(c.units[i].splits);
        free(c.units[i].results);
    }
    free(c.units);
    for (size_t i = 0; i < c.shape_count; i++) free(c.shapes[i].name);
    free(c.shapes);
    for (size_t i = 0; i < c.kept_count; i++) free(c.kept[i].name), free(c.kept[i].text);
    free(c.kept);
    for (size_t i = 0; i < c.result_count; i++) free(c.results[i].name);
    free(c.results);
    tp_df11_patterns_free(&c.patterns);
    tp_df11_workers_free(&c.workers);
    if (report) *report = c.report;
    return status;
}
