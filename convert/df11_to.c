/* From bf16 safetensors to a DFloat11 checkpoint (docs/dfloat11.md). */
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/df11_convert.h"

#define SOURCES_MAX ((uint64_t)32 << 20) /* of headers kept in `__metadata__`; readers stop at 100 MB */

/* A module whose weights are coded together. */
typedef struct unit {
    char *name;
    tp_source_tensor **weights; /* in the order of the pattern's attributes */
    size_t count;
    uint64_t elements;
    bool left; /* as it is: it cannot be coded */
} unit;

typedef struct to_df11 {
    tp_options options;
    tp_progress progress;
    tp_weights in;
    tp_target out;
    tp_df11_config config;
    tp_df11_patterns patterns; /* tried, and then those of config.json */
    unit *units;
    size_t count, capacity;
    tp_df11_workers workers;
    tp_df11_report report;
    tp_error *error;
} to_df11;

/* ------------------------------------------------------------------------------------ finding units */

static char *joined(const char *module, const char *attr, const char *end)
{
    const size_t a = strlen(module), b = strlen(attr), c = strlen(end);
    char *name = malloc(a + b + c + 2);
    if (!name) return NULL;
    memcpy(name, module, a);
    name[a] = '.';
    memcpy(name + a + 1, attr, b);
    memcpy(name + a + 1 + b, end, c + 1);
    return name;
}

/* The weight that can be part of a unit; NULL: none. false: no memory. */
static bool find_weight(const to_df11 *c, const char *module, const char *attr, tp_source_tensor **weight)
{
    char *name = attr ? joined(module, attr, ".weight") : joined(module, "weight", "");
    if (!name) return false;
    tp_source_tensor *w = tp_weights_find(&c->in, name, strlen(name));
    free(name);
    *weight = w && w->bf16 && w->ndim == 2 && w->nbytes && !w->used ? w : NULL;
    return true;
}

static tp_status add_unit(to_df11 *c, const char *name, tp_source_tensor **weights, size_t count)
{
    if (c->count == c->capacity) {
        const size_t capacity = c->capacity ? 2 * c->capacity : 64;
        unit *grown = realloc(c->units, capacity * sizeof *grown);
        if (!grown) return tp_error_memory(c->error);
        c->units = grown;
        c->capacity = capacity;
    }
    unit u = {.name = strdup(name), .weights = malloc(count * sizeof(tp_source_tensor *)), .count = count};
    if (!u.name || !u.weights) {
        free(u.name);
        free(u.weights);
        return tp_error_memory(c->error);
    }
    c->units[c->count++] = u;
    for (size_t i = 0; i < count; i++) {
        if (weights[i]->used)
            return tp_error_set(c->error, TP_INVALID_ARGUMENT,
                                "%s: the pattern of '%s' names a weight twice", c->in.shown, name);
        u.weights[i] = weights[i];
        weights[i]->used = true;
        c->units[c->count - 1].elements += weights[i]->nbytes / 2;
    }
    return TP_OK;
}

/* Calls fn for every module that a tensor lies in, once each: names are sorted, so those of one module are
 * neighbours. */
typedef tp_status (*module_fn)(to_df11 *c, const char *module, void *context);
static tp_status each_module(to_df11 *c, module_fn fn, void *context)
{
    tp_status status = TP_OK;
    size_t capacity = 256;
    char *module = malloc(capacity);
    if (!module) return tp_error_memory(c->error);
    for (size_t i = 0; i < c->in.count && !status; i++) {
        const tp_source_tensor *t = &c->in.list[i], *before = i ? t - 1 : NULL;
        size_t same = 0; /* bytes that it has in common with the one before */
        while (before && same < t->name_size && same < before->name_size &&
               t->name[same] == before->name[same])
            same++;
        if (t->name_size >= capacity) {
            capacity = t->name_size + 1;
            free(module);
            module = malloc(capacity);
            if (!module) return tp_error_memory(c->error);
        }
        for (size_t dot = 0; dot < t->name_size && !status; dot++) {
            if (t->name[dot] != '.' || dot < same || !dot) continue;
            memcpy(module, t->name, dot);
            module[dot] = 0;
            status = fn(c, module, context);
        }
    }
    free(module);
    return status;
}

/* A pattern dictionary of the user's: as it is, or not at all. */
static tp_status try_given(to_df11 *c, const char *module, void *context)
{
    const tp_df11_pattern *p;
    (void)context;
    tp_status status = tp_df11_patterns_match(&c->patterns, module, &p, c->error);
    if (status || !p) return status;
    const size_t count = p->attr_count ? p->attr_count : 1;
    tp_source_tensor **weights = malloc(count * sizeof *weights);
    status = weights ? TP_OK : tp_error_memory(c->error);
    size_t found = 0;
    const char *missing = "weight";
    for (; found < count && !status; found++) {
        if (!find_weight(c, module, p->attr_count ? p->attrs[found] : NULL, &weights[found]))
            status = tp_error_memory(c->error);
        else if (!weights[found])
            break;
    }
    if (!status && found == count) {
        status = add_unit(c, module, weights, count);
    } else if (!status && (found || p->attr_count)) {
        char shown[256];
        if (p->attr_count) missing = p->attrs[found];
        tp_df11_warn(&c->options, "%s: module '%s' is left as it is: '%s' has no BF16 matrix that is free",
                     c->in.shown, tp_text_escape(module, strlen(module), shown, sizeof shown), missing);
    }
    free(weights);
    return status;
}

/* What is known of a family: whatever of its attributes a module has. */
typedef struct shape_group { /* modules with the same attributes */
    uint32_t has;            /* a bit for each of the pattern's */
    tp_text_buffer regex;    /* the modules' names */
    size_t modules;
} shape_group;
typedef struct known_state {
    const tp_df11_known_pattern *pattern;
    tp_df11_patterns matcher; /* of this pattern */
    shape_group groups[32];
    size_t count;
} known_state;

static void add_escaped(tp_text_buffer *text, const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (strchr(".[]{}()*+?|^$\\", name[i])) tp_text_add(text, "\\", 1);
        tp_text_add(text, name + i, 1);
    }
}

static tp_status try_known(to_df11 *c, const char *module, void *context)
{
    known_state *state = context;
    const tp_df11_pattern *p;
    const tp_status status = tp_df11_patterns_match(&state->matcher, module, &p, c->error);
    if (status || !p) return status;
    tp_source_tensor *weights[20];
    uint32_t has = 0;
    size_t count = 0;
    const char *const *attrs = state->pattern->attrs;
    for (size_t i = 0; i == 0 || attrs[i]; i++) {
        if (!find_weight(c, module, attrs[i], &weights[count])) return tp_error_memory(c->error);
        if (weights[count]) {
            count++;
            has |= 1u << i;
        }
        if (!attrs[i]) break;
    }
    if (!count) return TP_OK;
    size_t g = 0;
    while (g < state->count && state->groups[g].has != has) g++;
    if (g == sizeof state->groups / sizeof *state->groups) return TP_OK; /* of no model that exists */
    if (g == state->count) state->groups[state->count++] = (shape_group){.has = has};
    shape_group *group = &state->groups[g];
    if (group->modules++) tp_text_add(&group->regex, "|", 1);
    add_escaped(&group->regex, module, strlen(module));
    if (group->regex.failed) return tp_error_memory(c->error);
    return add_unit(c, module, weights, count);
}

static tp_status use_known(to_df11 *c, const tp_df11_known_pattern *pattern, tp_df11_patterns *made)
{
    known_state *state = calloc(1, sizeof *state);
    if (!state) return tp_error_memory(c->error);
    state->pattern = pattern;
    tp_status status = tp_df11_patterns_add(&state->matcher, pattern->regex, NULL, 0, c->error);
    if (!status) status = each_module(c, try_known, state);
    for (size_t g = 0; g < state->count && !status; g++) {
        const char *attrs[20];
        size_t count = 0;
        for (size_t i = 0; pattern->attrs[i]; i++)
            if (state->groups[g].has >> i & 1) attrs[count++] = pattern->attrs[i];
        /* One pattern for all modules, unless they differ. */
        status = tp_df11_patterns_add(
            made, state->count == 1 ? pattern->regex : state->groups[g].regex.data, attrs, count, c->error);
    }
    for (size_t g = 0; g < state->count; g++) free(state->groups[g].regex.data);
    tp_df11_patterns_free(&state->matcher);
    free(state);
    return status;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The pattern of a module's name, from malloc: numbers between points match any number. NULL: no memory. */
static char *pattern_of(const char *module)
{
    tp_text_buffer regex = {0};
    for (const char *at = module; *at;) {
        const size_t part = strcspn(at, ".");
        if (part && strspn(at, "0123456789") == part)
            tp_text_add(&regex, "\\d+", 3);
        else
            add_escaped(&regex, at, part);
        at += part;
        if (*at) add_escaped(&regex, at++, 1);
    }
    if (!regex.failed) return regex.data;
    free(regex.data);
    return NULL;
}

/* A unit for every matrix that is called NAME.weight, and a pattern for each sort of name. */
static tp_status use_each(to_df11 *c, tp_df11_patterns *made)
{
    static const char end[] = ".weight";
    const size_t length = sizeof end - 1;
    void *known = NULL; /* the patterns in `made`: a tree, since there may be as many as tensors */
    tp_status status = TP_OK;
    for (size_t i = 0; i < c->in.count && !status; i++) {
        tp_source_tensor *w = &c->in.list[i];
        if (!w->bf16 || w->ndim != 2 || !w->nbytes || w->used || w->name_size <= length) continue;
        const size_t size = w->name_size - length;
        if (memcmp(w->name + size, end, length) != 0) continue;
        char *module = strndup(w->name, size);
        char *regex = module ? pattern_of(module) : NULL;
        char **node = regex ? tsearch(regex, &known, compare_text) : NULL;
        if (!node)
            status = tp_error_memory(c->error);
        else if (*node == regex)
            status = tp_df11_patterns_add(made, regex, NULL, 0, c->error);
        if (!status) status = add_unit(c, module, &w, 1);
        if (!node || *node != regex) free(regex);
        free(module);
    }
    tdestroy(known, free);
    return status;
}

static bool is_edge(const tp_df11_known_pattern *pattern)
{
    return strcmp(pattern->regex, "lm_head") == 0 || strcmp(pattern->regex, "model\\.embed_tokens") == 0;
}

/* Equal bytes of two tensors. */
static tp_status same_bytes(to_df11 *c, tp_source_tensor *a, tp_source_tensor *b, bool *same)
{
    const size_t half = TP_TARGET_BUFFER / 2;
    tp_source_tensor *const both[] = {a, b};
    tp_status status = tp_weights_hold_all(&c->in, both, 2, c->error);
    *same = a->nbytes == b->nbytes;
    for (uint64_t at = 0; at < a->nbytes && *same && !status; at += half) {
        const size_t n = a->nbytes - at < half ? (size_t)(a->nbytes - at) : half;
        status = tp_weights_read(&c->in, a, at, c->out.buffer, n, c->error);
        if (!status) status = tp_weights_read(&c->in, b, at, c->out.buffer + half, n, c->error);
        *same = !status && memcmp(c->out.buffer, c->out.buffer + half, n) == 0;
        if (!status) status = tp_progress_tick(&c->progress, false, c->error);
    }
    return status;
}

/* With tied embeddings the second of the two is not stored, if it is the first again. */
static tp_status drop_tied(to_df11 *c)
{
    tp_source_tensor *head = tp_weights_find(&c->in, "lm_head.weight", 14);
    tp_source_tensor *embed = tp_weights_find(&c->in, "model.embed_tokens.weight", 25);
    bool same = false;
    if (!head || !embed) return TP_OK;
    const tp_status status = same_bytes(c, head, embed, &same);
    if (!status && same)
        head->used = true;
    else if (!status)
        tp_df11_warn(
            &c->options,
            "%s: tie_word_embeddings is set, but lm_head.weight is not model.embed_tokens.weight; both "
            "are kept",
            c->in.shown);
    return status;
}

static const tp_df11_known *find_known(const to_df11 *c)
{
    for (size_t i = 0; i < tp_df11_known_count; i++) {
        const tp_df11_known *k = &tp_df11_known_families[i];
        if (k->family ? strcmp(k->family, c->config.family) == 0
                      : tp_weights_find(&c->in, k->tensor, strlen(k->tensor)) != NULL)
            return k;
    }
    return NULL;
}

static int by_unit_name(const void *a, const void *b)
{
    return strcmp(((const unit *)a)->name, ((const unit *)b)->name);
}

/* Sorts the units, and gives every tensor the innermost unit in whose module it lies. */
static tp_status find_siblings(to_df11 *c)
{
    if (!c->count) return TP_OK;
    qsort(c->units, c->count, sizeof *c->units, by_unit_name);
    for (size_t i = 0; i < c->in.count; i++) {
        tp_source_tensor *t = &c->in.list[i];
        char *module = strndup(t->name, t->name_size);
        if (!module) return tp_error_memory(c->error);
        for (char *dot; t->unit == SIZE_MAX && (dot = strrchr(module, '.'));) {
            *dot = 0;
            const unit key = {.name = module};
            const unit *u = bsearch(&key, c->units, c->count, sizeof key, by_unit_name);
            if (u) t->unit = (size_t)(u - c->units);
        }
        free(module);
    }
    return TP_OK;
}

static tp_status find_units(to_df11 *c, const char *pattern_dict)
{
    tp_status status = TP_OK;
    if (c->config.tied) status = drop_tied(c);
    if (status) return status;
    if (pattern_dict) {
        status = tp_df11_patterns_read(pattern_dict, &c->patterns, c->error);
        if (!status) status = each_module(c, try_given, NULL);
    } else {
        const tp_df11_known *known = find_known(c);
        for (size_t i = 0; known && known->patterns[i].regex && !status; i++)
            if (!c->config.tied || !is_edge(&known->patterns[i]))
                status = use_known(c, &known->patterns[i], &c->patterns);
        if (!c->count && !status) status = use_each(c, &c->patterns);
    }
    if (!status) status = find_siblings(c);
    if (!status && !c->count)
        return tp_error_set(c->error, TP_INVALID_ARGUMENT,
                            "%s: holds no BF16 matrix that a unit could be made of", c->in.shown);
    return status;
}

/* ----------------------------------------------------------------------------------------- a unit */

/* Part of a unit that is read, counted and coded at once. */
typedef struct stretch {
    const tp_source_tensor *weight;
    uint64_t offset; /* in the tensor, in bytes */
} stretch;

typedef struct coding {
    const to_df11 *c;
    const unit *unit;
    stretch *stretches;
    tp_df11_part *parts;
    size_t count;
    tp_df11_plan plan;
    tp_df11_output output;
    uint8_t *memory;
} coding;

static tp_status read_part(coding *k, unsigned worker, size_t index, tp_error *error)
{
    uint8_t *buffer = k->c->workers.list[worker].buffer;
    k->parts[index].elements = buffer;
    return tp_weights_read(&k->c->in, k->stretches[index].weight, k->stretches[index].offset, buffer,
                           2 * (size_t)k->parts[index].n, error);
}

static tp_status count_part(void *context, unsigned worker, size_t index, tp_error *error)
{
    coding *k = context;
    const tp_status status = read_part(k, worker, index, error);
    if (!status) tp_df11_part_count(&k->parts[index]);
    return status;
}

static tp_status encode_part(void *context, unsigned worker, size_t index, tp_error *error)
{
    coding *k = context;
    tp_status status = read_part(k, worker, index, error);
    if (!status) status = tp_df11_part_encode(&k->plan, &k->parts[index], &k->output, error);
    return status == TP_MISMATCH
               ? tp_error_set(error, TP_IO, "%s: changed while it was read", k->c->in.shown)
               : status;
}

static tp_status compare_batch(void *context, tp_df11_worker *worker, uint64_t first, size_t n,
                               tp_error *error)
{
    const coding *k = context;
    uint64_t start = 0;
    size_t done = 0;
    tp_status status = TP_OK;
    for (size_t i = 0; i < k->unit->count && done < n && !status; i++) {
        const tp_source_tensor *w = k->unit->weights[i];
        const uint64_t elements = w->nbytes / 2, at = first + done;
        if (at < start + elements) {
            const uint64_t left = start + elements - at;
            const size_t some = left < n - done ? (size_t)left : n - done;
            status =
                tp_weights_read(&k->c->in, w, 2 * (at - start), worker->other + 2 * done, 2 * some, error);
            done += some;
        }
        start += elements;
    }
    if (!status && memcmp(worker->buffer, worker->other, 2 * n) != 0)
        status = tp_error_set(error, TP_MISMATCH, "%s: unit '%s' does not decode to what it was made of",
                              k->c->in.shown, k->unit->name);
    return status;
}

static tp_status prepare_parts(to_df11 *c, coding *k)
{
    const size_t piece = (size_t)1 << 20; /* elements: small enough for the second-level cache to help */
    for (size_t i = 0; i < k->unit->count; i++)
        k->count += (size_t)((k->unit->weights[i]->nbytes / 2 + piece - 1) / piece);
    k->stretches = calloc(k->count, sizeof *k->stretches);
    k->parts = calloc(k->count, sizeof *k->parts);
    if (!k->stretches || !k->parts) return tp_error_memory(c->error);
    size_t at = 0;
    for (size_t i = 0; i < k->unit->count; i++) {
        const tp_source_tensor *w = k->unit->weights[i];
        for (uint64_t from = 0; from < w->nbytes / 2; from += piece, at++) {
            const uint64_t left = w->nbytes / 2 - from;
            k->stretches[at] = (stretch){.weight = w, .offset = 2 * from};
            k->parts[at].n = left < piece ? left : piece;
        }
    }
    return TP_OK;
}

static void leave(to_df11 *c, unit *u, const char *reason)
{
    char shown[256];
    tp_df11_warn(&c->options, "%s: unit '%s' is left as it is: %s", c->in.shown,
                 tp_text_escape(u->name, strlen(u->name), shown, sizeof shown), reason);
    for (size_t i = 0; i < u->count; i++) u->weights[i]->used = false;
    u->left = true;
    c->report.left_units++;
}

static tp_status encode(to_df11 *c, unit *u, coding *k)
{
    tp_status status = tp_weights_hold_all(&c->in, u->weights, u->count, c->error);
    if (!status) status = prepare_parts(c, k);
    if (!status) status = tp_each(c->workers.count, k->count, count_part, k, &c->progress, c->error);
    if (status) return status;
    tp_error why;
    status = tp_df11_plan_make(k->parts, k->count, &k->plan, &why);
    if (status == TP_UNSUPPORTED || status == TP_LIMIT) {
        leave(c, u, why.message);
        return TP_OK;
    }
    if (status) return tp_error_set(c->error, status, "%s: %s", c->in.shown, why.message);
    const tp_df11_plan *p = &k->plan;
    k->memory = malloc((size_t)p->elements + p->encoded_size + p->positions_size + p->gaps_size +
                       p->workspace_size);
    if (!k->memory) return tp_error_memory(c->error);
    k->output.sign_mantissa = k->memory;
    k->output.encoded_exponent = k->output.sign_mantissa + p->elements;
    k->output.output_positions = k->output.encoded_exponent + p->encoded_size;
    k->output.gaps = k->output.output_positions + p->positions_size;
    k->output.workspace = k->output.gaps + p->gaps_size;
    status = tp_each(c->workers.count, k->count, encode_part, k, &c->progress, c->error);
    if (status) return status;
    tp_df11_plan_finish(p, k->parts, k->count, &k->output);
    return TP_OK;
}

static tp_status verify(to_df11 *c, const unit *u, coding *k, const uint8_t *splits)
{
    const tp_df11_plan *p = &k->plan;
    const tp_df11_unit made = {.luts = p->code.luts,
                               .luts_size = p->luts_size,
                               .encoded_exponent = k->output.encoded_exponent,
                               .encoded_size = p->encoded_size,
                               .sign_mantissa = k->output.sign_mantissa,
                               .elements = p->elements,
                               .output_positions = k->output.output_positions,
                               .positions_size = p->positions_size,
                               .gaps = k->output.gaps,
                               .gaps_size = p->gaps_size,
                               .split_positions = splits,
                               .split_size = 8 * (uint64_t)(u->count - 1)};
    tp_df11_decoder *decoder = aligned_alloc(64, (sizeof *decoder + 63) / 64 * 64);
    if (!decoder) return tp_error_memory(c->error);
    tp_status status = tp_df11_open(&made, decoder, c->error);
    if (!status)
        status =
            tp_df11_decode_all(decoder, &c->workers, compare_batch, k, u->name, &c->progress, c->error);
    free(decoder);
    return status;
}

/* "{"format":"pt","tensorpress.shapes":"{...}"}" */
static void unit_metadata(const unit *u, tp_text_buffer *text)
{
    tp_text_buffer shapes = {0};
    for (size_t i = 0; i < u->count; i++) {
        const tp_source_tensor *w = u->weights[i];
        tp_text_add(&shapes, i ? "," : "{", 1);
        tp_text_quote(&shapes, w->name, w->name_size);
        tp_text_print(&shapes, ":[%llu,%llu]", (unsigned long long)w->dims[0],
                      (unsigned long long)w->dims[1]);
    }
    tp_text_add(&shapes, "}", 1);
    tp_text_print(text, "{\"format\":\"pt\",\"" TP_DF11_SHAPES "\":");
    if (shapes.failed)
        text->failed = true;
    else
        tp_text_quote(text, shapes.data, shapes.size);
    tp_text_add(text, "}", 1);
    free(shapes.data);
}

/* The file of unit "model.layers.0" is "model_layers_0.safetensors", from malloc. */
static char *file_name(const char *unit_name, const char *taken)
{
    static const char end[] = ".safetensors", other_end[] = "_unit.safetensors";
    const size_t size = strlen(unit_name);
    char *name = malloc(size + sizeof other_end);
    if (!name) return NULL;
    for (size_t i = 0; i < size; i++)
        name[i] = unit_name[i] == '.' || unit_name[i] == '/' ? '_' : unit_name[i];
    memcpy(name + size, end, sizeof end);
    if (strcmp(name, taken) == 0) memcpy(name + size, other_end, sizeof other_end);
    return name;
}

/* Whether a tensor's name, or the start of it, is this one. */
static bool starts_with(const tp_source_tensor *t, const char *name)
{
    const size_t size = strlen(name);
    return t->name_size >= size && memcmp(t->name, name, size) == 0;
}

static const char *remainder_name(const to_df11 *c)
{
    return c->config.diffusers ? "diffusion_pytorch_model.safetensors" : "model.safetensors";
}

static tp_status write_unit(to_df11 *c, unit *u, const coding *k, const uint8_t *splits)
{
    const tp_df11_plan *p = &k->plan;
    const void *data[TP_DF11_ARRAYS] = {p->code.luts,
                                        k->output.encoded_exponent,
                                        k->output.sign_mantissa,
                                        k->output.output_positions,
                                        k->output.gaps,
                                        splits};
    const uint64_t sizes[TP_DF11_ARRAYS] = {p->luts_size, p->encoded_size,
                                            p->elements,  p->positions_size,
                                            p->gaps_size, 8 * (uint64_t)(u->count - 1)};
    const uint64_t luts_dims[2] = {p->code.rows, 256}, split_dims[1] = {u->count - 1};
    /* The other tensors of its module, which are neighbours. */
    const size_t number = (size_t)(u - c->units), first = tp_weights_from(&c->in, u->name, strlen(u->name));
    size_t end = first, siblings = 0;
    for (; end < c->in.count && starts_with(&c->in.list[end], u->name); end++)
        siblings += c->in.list[end].unit == number && !c->in.list[end].used;
    tp_piece *pieces = calloc(TP_DF11_ARRAYS + siblings, sizeof *pieces);
    char *names[TP_DF11_ARRAYS] = {NULL}, *file = file_name(u->name, remainder_name(c));
    tp_text_buffer metadata = {0};
    tp_status status = pieces && file ? TP_OK : tp_error_memory(c->error);
    for (int a = 0; a < TP_DF11_ARRAYS && !status; a++) {
        names[a] = joined(u->name, tp_df11_array_names[a], "");
        if (!names[a]) {
            status = tp_error_memory(c->error);
            break;
        }
        const bool wide = a == TP_DF11_SPLIT_POSITIONS;
        pieces[a] = (tp_piece){.name = names[a],
                               .name_size = strlen(names[a]),
                               .dtype = wide ? "I64" : "U8",
                               .dtype_size = wide ? 3 : 2,
                               .dims = a == TP_DF11_LUTS ? luts_dims
                                       : wide            ? split_dims
                                                         : &sizes[a],
                               .ndim = a == TP_DF11_LUTS ? 2 : 1,
                               .nbytes = sizes[a],
                               .data = data[a]};
    }
    size_t at = TP_DF11_ARRAYS;
    for (size_t i = first; i < end && !status; i++) {
        tp_source_tensor *t = &c->in.list[i];
        if (t->unit != number || t->used) continue;
        t->used = true;
        pieces[at++] = (tp_piece){.name = t->name,
                                  .name_size = t->name_size,
                                  .dtype = t->dtype,
                                  .dtype_size = t->dtype_size,
                                  .dims = t->dims,
                                  .ndim = t->ndim,
                                  .nbytes = t->nbytes,
                                  .weight = t};
    }
    if (!status) unit_metadata(u, &metadata);
    if (!status && metadata.failed) status = tp_error_memory(c->error);
    if (!status) status = tp_target_put_pieces(&c->out, &c->in, file, pieces, at, metadata.data, c->error);
    for (size_t i = 0; i < at && pieces; i++) c->report.stored_bytes += pieces[i].nbytes;
    for (int a = 0; a < TP_DF11_ARRAYS; a++) free(names[a]);
    free(metadata.data);
    free(pieces);
    free(file);
    return status;
}

static tp_status do_unit(to_df11 *c, unit *u)
{
    coding *k = calloc(1, sizeof *k);
    uint64_t *elements = calloc(u->count, sizeof *elements);
    uint8_t *splits = malloc(8 * u->count);
    tp_status status = k && elements && splits ? TP_OK : tp_error_memory(c->error);
    if (!status) {
        k->c = c;
        k->unit = u;
        status = encode(c, u, k);
    }
    if (!status && !u->left) {
        for (size_t i = 0; i < u->count; i++) elements[i] = u->weights[i]->nbytes / 2;
        tp_df11_split_positions(elements, u->count, splits);
        if (c->options.verify) status = verify(c, u, k, splits);
        if (!status) status = write_unit(c, u, k, splits);
        c->report.units++;
        c->report.weights += u->elements;
        c->progress.done += 2 * u->elements;
    }
    if (k) {
        free(k->stretches);
        free(k->parts);
        free(k->memory);
    }
    free(k);
    free(elements);
    free(splits);
    return status;
}

/* ------------------------------------------------------------------------------------------ the rest */

/* Whether the file is its header and tensors, without gaps, so that it can be made again from them. */
static bool is_whole(const tp_layout *layout)
{
    for (size_t i = 1; i < layout->span_count; i++)
        if (layout->spans[i].tensor == TP_NO_TENSOR) return false;
    return layout->span_count > 0 && layout->spans[0].tensor == TP_NO_TENSOR;
}

static tp_status add_source(to_df11 *c, tp_text_buffer *text, const char *name, const char *data,
                            size_t size)
{
    if (memchr(data, 0, size))
        return TP_OK; /* padding by NUL, which no JSON string holds for all readers */
    tp_text_add(text, ",", 1);
    tp_text_buffer key = {0};
    tp_text_print(&key, TP_DF11_SOURCE);
    tp_text_add(&key, name, strlen(name));
    if (key.failed)
        text->failed = true;
    else
        tp_text_quote(text, key.data, key.size);
    free(key.data);
    tp_text_add(text, ":", 1);
    tp_text_quote(text, data, size);
    return text->failed ? tp_error_memory(c->error) : TP_OK;
}

/* The headers of the files, and their index, so that the way back gives the same files. */
static tp_status add_sources(to_df11 *c, tp_text_buffer *text)
{
    uint64_t total = 0;
    for (size_t i = 0; i < c->in.file_count; i++) {
        const tp_layout *layout = &c->in.files[i].layout;
        if (!is_whole(layout) || layout->spans[0].length > SOURCES_MAX) return TP_OK;
        total += layout->spans[0].length;
    }
    if (total > SOURCES_MAX) return TP_OK;
    tp_status status = TP_OK;
    for (size_t i = 0; i < c->in.file_count && !status; i++) {
        tp_weights_file *f = &c->in.files[i];
        const size_t size = (size_t)f->layout.spans[0].length - 8;
        char *header = malloc(size);
        status = header ? tp_weights_hold(&c->in, i, c->error) : tp_error_memory(c->error);
        if (!status) status = f->input.source.read(f->input.source.context, header, size, 8, c->error);
        if (!status) status = add_source(c, text, f->name, header, size);
        free(header);
    }
    static const char end[] = ".safetensors.index.json";
    for (size_t i = 0; c->in.is_folder && i < c->in.tree.count && !status; i++) {
        const char *name = tp_tree_path(&c->in.tree, i);
        const size_t size = strlen(name);
        if (c->in.tree.entries[i].folder || strchr(name, '/') || size < sizeof end ||
            strcmp(name + size - (sizeof end - 1), end) != 0)
            continue;
        tp_input input;
        char *index = NULL;
        size_t length;
        status = tp_tree_open_file(&c->in.tree, i, &input, c->error);
        if (status) break;
        status = tp_read_text(&input.source, &index, &length, c->error);
        if (!status) status = add_source(c, text, name, index, length);
        free(index);
        tp_input_close(&input);
    }
    return status;
}

static tp_status write_remainder(to_df11 *c)
{
    tp_text_buffer metadata = {0};
    size_t count = 0, at = 0;
    for (size_t i = 0; i < c->in.count; i++) count += !c->in.list[i].used;
    tp_piece *pieces = calloc(count + 1, sizeof *pieces);
    tp_status status = pieces ? TP_OK : tp_error_memory(c->error);
    for (size_t i = 0; i < c->in.count && !status; i++) {
        const tp_source_tensor *t = &c->in.list[i];
        if (t->used) continue;
        pieces[at++] = (tp_piece){.name = t->name,
                                  .name_size = t->name_size,
                                  .dtype = t->dtype,
                                  .dtype_size = t->dtype_size,
                                  .dims = t->dims,
                                  .ndim = t->ndim,
                                  .nbytes = t->nbytes,
                                  .weight = t};
        c->report.stored_bytes += t->nbytes;
    }
    tp_text_print(&metadata, "{\"format\":\"pt\"");
    if (!status) status = add_sources(c, &metadata);
    tp_text_add(&metadata, "}", 1);
    if (!status && metadata.failed) status = tp_error_memory(c->error);
    if (!status)
        status = tp_target_put_pieces(&c->out, &c->in, remainder_name(c), pieces, count, metadata.data,
                                      c->error);
    free(pieces);
    free(metadata.data);
    return status;
}

static tp_status write_config(to_df11 *c)
{
    char *text = NULL;
    const char *before = c->in.config ? c->in.config : "{}\n";
    tp_status status = tp_df11_config_add(before, strlen(before), &c->patterns, &text, c->error);
    if (!status) status = tp_target_put_file(&c->out, "config.json", text, strlen(text), c->error);
    free(text);
    return status;
}

static tp_status check_input(to_df11 *c)
{
    if (c->in.config) {
        tp_error inner;
        const tp_status status = tp_df11_config_parse(c->in.config, c->in.config_size, &c->config, &inner);
        if (status)
            return tp_error_set(c->error, status, "%s: config.json: %s", c->in.shown, inner.message);
        if (strlen(c->in.config) != c->in.config_size)
            return tp_error_set(c->error, TP_INVALID_ARGUMENT, "%s: config.json: holds a NUL", c->in.shown);
    }
    if (c->config.has_df11 && !c->in.is_folder) { /* it is about other files next to this one */
        char *text;
        bool empty;
        const tp_status status =
            tp_df11_config_remove(c->in.config, c->in.config_size, &text, &empty, c->error);
        if (status) return status;
        free(c->in.config);
        c->in.config = text;
        c->in.config_size = strlen(text);
        c->config.has_df11 = false;
    }
    for (size_t i = 0; i < c->in.count; i++) {
        tp_df11_array array;
        size_t size;
        if (!c->config.has_df11 &&
            !(tp_df11_is_array(c->in.list[i].name, c->in.list[i].name_size, &array, &size) &&
              array == TP_DF11_LUTS))
            continue;
        return tp_error_set(c->error, TP_INVALID_ARGUMENT, "%s: is DFloat11 already", c->in.shown);
    }
    return TP_OK;
}

static tp_status convert(to_df11 *c, const char *out_path, const char *pattern_dict)
{
    struct stat s;
    tp_status status = check_input(c);
    if (!status) status = tp_target_open(&c->out, out_path, c->options.force, &c->progress, c->error);
    if (!status && c->in.is_folder && fstat(c->in.tree.fd, &s) == 0 &&
        tp_place_is_inside(&c->out.folder.place, &s))
        status = tp_error_set(c->error, TP_INVALID_ARGUMENT,
                              "%s: lies inside the input folder; choose another name", c->out.folder.name);
    if (!status) status = find_units(c, pattern_dict);
    if (!status) status = tp_df11_workers_make(&c->workers, c->options.threads, c->error);
    for (size_t i = 0; i < c->in.count; i++) {
        c->progress.total += c->in.list[i].nbytes;
        c->report.raw_bytes += c->in.list[i].nbytes;
    }
    c->report.tensors = c->in.count;
    for (size_t i = 0; i < c->count && !status; i++) status = do_unit(c, &c->units[i]);
    if (!status) status = write_remainder(c);
    if (!status) status = write_config(c);
    if (!status) status = tp_target_copy_others(&c->out, &c->in, c->error);
    if (!status && c->in.is_folder) status = tp_tree_unchanged(&c->in.tree, &c->progress, c->error);
    if (!status && !c->in.is_folder) status = tp_input_unchanged(&c->in.files[0].input, c->error);
    if (!status) status = tp_target_commit(&c->out, c->error);
    if (!status) tp_progress_tick(&c->progress, true, NULL);
    return status;
}

tp_status tp_convert_to_df11(const char *in_path, const char *out_path, const char *pattern_dict,
                             const tp_options *options, tp_df11_report *report, tp_error *error)
{
    tp_error ignored;
    to_df11 c = {.error = error ? error : &ignored};
    memset(c.error, 0, sizeof *c.error);
    if (options)
        c.options = *options;
    else
        tp_options_init(&c.options);
    tp_progress_init(&c.progress, &c.options);
    c.out.folder.fd = c.out.folder.place.folder = -1;
    tp_status status = tp_weights_open(&c.in, in_path, &c.progress, c.error);
    if (!status) {
        status = convert(&c, out_path, pattern_dict);
        tp_target_close(&c.out);
        tp_weights_close(&c.in);
    }
    for (size_t i = 0; i < c.count; i++) {
        free(c.units[i].name);
        free(c.units[i].weights);
    }
    free(c.units);
    tp_df11_patterns_free(&c.patterns);
    tp_df11_workers_free(&c.workers);
    if (report) *report = c.report;
    return status;
}
