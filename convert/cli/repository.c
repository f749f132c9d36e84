#include "repository.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "message.h"
#include "verbs.h"

#define NOWHERE SIZE_MAX
#define SHOWN 256

static const char index_suffix[] = ".safetensors.index.json";
static const char safetensors_suffix[] = ".safetensors";
static const char gguf_suffix[] = ".gguf";

/* ----------------------------------------------------------------------------------------- entries */

size_t repository_entries(const struct repository *r)
{
    return r->tree ? r->tree->count : tp_reader_files(r->container);
}

tp_text repository_path(const struct repository *r, size_t entry)
{
    if (r->tree) return (tp_text){tp_tree_path(r->tree, entry), strlen(tp_tree_path(r->tree, entry))};
    tp_file_info info;
    (void)tp_reader_file(r->container, entry, &info);
    return info.path;
}

bool repository_is_file(const struct repository *r, size_t entry)
{
    if (r->tree) return !r->tree->entries[entry].folder;
    tp_file_info info;
    return tp_reader_file(r->container, entry, &info) == TP_OK && !info.is_folder;
}

tp_status repository_open(const struct repository *r, size_t entry, tp_reader **reader, size_t *file,
                          tp_error *error)
{
    *file = r->tree ? 0 : entry;
    *reader = r->container;
    return r->tree ? tp_open_in_tree(r->tree, entry, reader, error) : TP_OK;
}

void repository_close(const struct repository *r, tp_reader *reader)
{
    if (r->tree) tp_close(reader);
}

static int compare_text(tp_text a, tp_text b)
{
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size > 0 ? memcmp(a.data, b.data, size) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static tp_text text_of(const char *string)
{
    return (tp_text){string, strlen(string)};
}

/* The files of the repository by path, to be found. */
struct file {
    tp_text path;
    size_t entry;
};

struct checker {
    const struct repository *repository;
    struct file *files; /* ascending by path */
    size_t count;
};

static int by_path(const void *a, const void *b)
{
    return compare_text(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static size_t find_entry(const struct checker *c, tp_text path)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_text(c->files[middle].path, path);
        if (order == 0) return c->files[middle].entry;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NOWHERE;
}

static bool ends_with(tp_text path, const char *suffix)
{
    size_t size = strlen(suffix);
    return path.size >= size && memcmp(path.data + path.size - size, suffix, size) == 0;
}

/* ---------------------------------------------------------------------------------------- findings */

/* What disagrees, in one line. */
struct findings {
    char text[8192];
    size_t size;
};

static void add(struct findings *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct findings *f, const char *format, ...)
{
    va_list arguments;
    if (f->size > 0 && f->size + 2 < sizeof f->text) {
        memcpy(f->text + f->size, "; ", 3);
        f->size += 2;
    }
    va_start(arguments, format);
    int n = vsnprintf(f->text + f->size, sizeof f->text - f->size, format, arguments);
    va_end(arguments);
    if (n > 0) f->size += (size_t)n;
    if (f->size >= sizeof f->text) f->size = sizeof f->text - 1;
}

/* How many, and which is the first. */
struct example {
    uint64_t count;
    char first[SHOWN];
};

static void count_example(struct example *e, tp_text name)
{
    if (e->count++ == 0) tp_text_escape(name.data, name.size, e->first, sizeof e->first);
}

/* "tensor 'x'" or "2 tensors, the first is 'x'". */
static const char *tensors(const struct example *e, char text[SHOWN + 64])
{
    if (e->count == 1)
        snprintf(text, SHOWN + 64, "tensor '%s'", e->first);
    else
        snprintf(text, SHOWN + 64, "%llu tensors, the first is '%s'", (unsigned long long)e->count,
                 e->first);
    return text;
}

static void report(const struct checker *c, tp_text path, const char *what, const char *findings)
{
    static char line[10240];
    char shown[TP_SHOWN_PATH], *name = strndup(path.data, path.size);
    if (c->repository->tree) {
        tp_text_join(c->repository->name, name ? name : "", shown);
        snprintf(line, sizeof line, "%s: %s%s", shown, what, findings);
    } else {
        tp_text_escape(path.data, path.size, shown, sizeof shown);
        snprintf(line, sizeof line, "%s: file '%s': %s%s", c->repository->name, shown, what, findings);
    }
    free(name);
    warn(line);
}

/* ---------------------------------------------------------------------- the index of safetensors */

struct shard {
    const char *file;
    size_t entry;     /* NOWHERE: there is none */
    uint64_t weights; /* that the index says are in it */
    bool known;       /* it is a safetensors file that could be read */
};

struct weight {
    const char *tensor;
    size_t shard;
    bool found; /* in its shard, or in another one */
};

struct index_check {
    const struct checker *checker;
    tp_text folder; /* of the index, with its slash */
    struct weight *weights;
    struct shard *shards;
    size_t weight_count, shard_count;
    uint64_t bytes; /* of all tensors that are in the shards */
    struct example twice, elsewhere, unlisted, absent;
    char elsewhere_in[SHOWN], unlisted_in[SHOWN], absent_in[SHOWN];
    struct findings findings;
};

static int by_file(const void *a, const void *b)
{
    return strcmp(((const tp_weight *)a)->file, ((const tp_weight *)b)->file);
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->tensor, ((const struct weight *)b)->tensor);
}

static void show(const char *text, char shown[SHOWN])
{
    tp_text_escape(text, strlen(text), shown, SHOWN);
}

/* The entry called `file` in the index's folder. */
static size_t find_in_folder(const struct index_check *x, const char *file)
{
    size_t size = strlen(file);
    char *path = malloc(x->folder.size + size + 1);
    if (!path) return NOWHERE;
    if (x->folder.size > 0) memcpy(path, x->folder.data, x->folder.size);
    memcpy(path + x->folder.size, file, size + 1);
    size_t entry = find_entry(x->checker, (tp_text){path, x->folder.size + size});
    free(path);
    return entry;
}

/* The index's weights by name, and the shards that it names. */
static bool take_map(struct index_check *x, tp_weight_map *map)
{
    x->weights = calloc(map->count + 1, sizeof *x->weights);
    x->shards = calloc(map->count + 1, sizeof *x->shards);
    if (!x->weights || !x->shards) return false;
    qsort(map->weights, map->count, sizeof *map->weights, by_file);
    for (size_t i = 0; i < map->count; i++) {
        const tp_weight *w = &map->weights[i];
        if (i == 0 || strcmp(w->file, map->weights[i - 1].file) != 0)
            x->shards[x->shard_count++] =
                (struct shard){.file = w->file, .entry = find_in_folder(x, w->file)};
        x->weights[i] = (struct weight){.tensor = w->tensor, .shard = x->shard_count - 1};
        x->shards[x->shard_count - 1].weights++;
    }
    x->weight_count = map->count;
    qsort(x->weights, x->weight_count, sizeof *x->weights, by_tensor);
    for (size_t i = 1; i < x->weight_count; i++)
        if (strcmp(x->weights[i].tensor, x->weights[i - 1].tensor) == 0)
            count_example(&x->twice, text_of(x->weights[i].tensor));
    return true;
}

/* The first of the weights called so; NOWHERE: none. */
static size_t find_weight(const struct index_check *x, tp_text tensor)
{
    size_t low = 0, high = x->weight_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_text(text_of(x->weights[middle].tensor), tensor) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < x->weight_count && compare_text(text_of(x->weights[low].tensor), tensor) == 0 ? low
                                                                                               : NOWHERE;
}

static void look_up(struct index_check *x, size_t shard, tp_text tensor)
{
    size_t first = find_weight(x, tensor);
    if (first == NOWHERE) {
        if (x->unlisted.count == 0) show(x->shards[shard].file, x->unlisted_in);
        count_example(&x->unlisted, tensor);
        return;
    }
    /* Where it is listed twice, either may be right. */
    for (size_t i = first;
         i < x->weight_count && strcmp(x->weights[i].tensor, x->weights[first].tensor) == 0; i++) {
        if (x->weights[i].shard != shard) continue;
        x->weights[i].found = true;
        return;
    }
    x->weights[first].found = true;
    if (x->elsewhere.count == 0) show(x->shards[shard].file, x->elsewhere_in);
    count_example(&x->elsewhere, tensor);
}

/* Reads the header of a shard and looks its tensors up. */
static void check_shard(struct index_check *x, size_t number)
{
    struct shard *shard = &x->shards[number];
    tp_reader *reader;
    tp_file_info info;
    tp_error error;
    size_t file;
    char shown[SHOWN];
    show(shard->file, shown);
    if (shard->entry == NOWHERE) {
        add(&x->findings, "'%s' is missing (%s)", shown, counted(shard->weights, "tensor"));
        return;
    }
    memset(&error, 0, sizeof error);
    if (repository_open(x->checker->repository, shard->entry, &reader, &file, &error) != TP_OK) {
        add(&x->findings, "'%s' cannot be read: %s", shown, error.message);
        return;
    }
    shard->known = tp_reader_file(reader, file, &info) == TP_OK && info.format == TP_FORMAT_SAFETENSORS;
    if (!shard->known) add(&x->findings, "'%s' is no safetensors file", shown);
    for (size_t i = 0; shard->known && i < info.tensors; i++) {
        tp_tensor_info tensor;
        if (tp_reader_tensor(reader, info.first_tensor + i, &tensor) != TP_OK) break;
        if (__builtin_add_overflow(x->bytes, tensor.nbytes, &x->bytes)) x->bytes = UINT64_MAX;
        look_up(x, number, tensor.name);
    }
    repository_close(x->checker->repository, reader);
}

static bool is_named(const struct index_check *x, tp_text file)
{
    size_t low = 0, high = x->shard_count; /* ascending by name */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_text(text_of(x->shards[middle].file), file);
        if (order == 0) return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Shards by their names that the index does not know. */
static void find_strays(struct index_check *x, tp_text index)
{
    size_t stem = index.size - strlen(index_suffix), prefix;
    uint32_t number, count;
    struct example strays = {0};
    for (size_t i = 0; i < x->checker->count; i++) {
        tp_text path = x->checker->files[i].path;
        if (!tp_shard_name(path.data, path.size, safetensors_suffix, &prefix, &number, &count)) continue;
        if (prefix != stem || memcmp(path.data, index.data, stem) != 0) continue;
        tp_text name = {path.data + x->folder.size, path.size - x->folder.size};
        if (!is_named(x, name)) count_example(&strays, name);
    }
    if (strays.count == 1)
        add(&x->findings, "it does not name '%s'", strays.first);
    else if (strays.count > 1)
        add(&x->findings, "it does not name %llu shards ('%s' is the first)",
            (unsigned long long)strays.count, strays.first);
}

static void compare_index(struct index_check *x, tp_text index, const tp_weight_map *map)
{
    char text[SHOWN + 64];
    bool complete = true;
    for (size_t i = 0; i < x->shard_count; i++) check_shard(x, i);
    for (size_t i = 0; i < x->shard_count; i++) complete = complete && x->shards[i].known;
    for (size_t i = 0; i < x->weight_count; i++) {
        const struct shard *shard = &x->shards[x->weights[i].shard];
        if (x->weights[i].found || !shard->known) continue;
        /* Of a name that is listed twice only one can be found. */
        if (i > 0 && strcmp(x->weights[i - 1].tensor, x->weights[i].tensor) == 0) continue;
        if (x->absent.count == 0) show(shard->file, x->absent_in);
        count_example(&x->absent, text_of(x->weights[i].tensor));
    }
    find_strays(x, index);
    if (x->absent.count > 0)
        add(&x->findings, "not in the shard that it names: %s ('%s')", tensors(&x->absent, text),
            x->absent_in);
    if (x->elsewhere.count > 0)
        add(&x->findings, "in another shard than it names: %s (in '%s')", tensors(&x->elsewhere, text),
            x->elsewhere_in);
    if (x->unlisted.count > 0)
        add(&x->findings, "not listed: %s (in '%s')", tensors(&x->unlisted, text), x->unlisted_in);
    if (x->twice.count > 0) add(&x->findings, "listed twice: %s", tensors(&x->twice, text));
    if (complete && map->has_total && map->total != x->bytes)
        add(&x->findings, "total_size is %llu, but the tensors have %llu bytes",
            (unsigned long long)map->total, (unsigned long long)x->bytes);
}

/* The text of a small file, from malloc; NULL with a finding if it cannot be had. */
static char *read_text(const struct checker *c, size_t entry, size_t *size, struct findings *findings)
{
    tp_reader *reader;
    tp_file_info info;
    tp_error error;
    size_t file;
    char *text = NULL;
    memset(&error, 0, sizeof error);
    tp_status status = repository_open(c->repository, entry, &reader, &file, &error);
    if (status == TP_OK) {
        status = tp_reader_file(reader, file, &info);
        *size = (size_t)info.size;
        if (status == TP_OK && info.size > TP_WEIGHT_MAP_MAX)
            status = tp_error_set(&error, TP_LIMIT, "it is too large to be read");
        if (status == TP_OK && !(text = malloc(*size + 1))) status = tp_error_memory(&error);
        if (status == TP_OK) status = tp_pread(reader, file, text, *size, 0, &error);
        repository_close(c->repository, reader);
    }
    if (status == TP_OK) return text;
    free(text);
    add(findings, "%s", error.message);
    return NULL;
}

static int check_index(const struct checker *c, size_t number)
{
    tp_text path = c->files[number].path;
    const char *slash = memrchr(path.data, '/', path.size), *fault = NULL;
    struct index_check *x = calloc(1, sizeof *x);
    tp_weight_map map = {0};
    size_t size = 0;
    if (!x) return fail(EXIT_SYSTEM, "out of memory");
    x->checker = c;
    x->folder = (tp_text){path.data, slash ? (size_t)(slash + 1 - path.data) : 0};
    char *text = read_text(c, c->files[number].entry, &size, &x->findings);
    tp_status status = text ? tp_weight_map_parse(text, size, &map, &fault, NULL) : TP_OK;
    free(text);
    if (status == TP_OK && text && !fault) {
        if (take_map(x, &map))
            compare_index(x, path, &map);
        else
            status = TP_NO_MEMORY;
    }
    if (fault)
        report(c, path, "is no index of a model: ", fault);
    else if (status == TP_OK && !text)
        report(c, path, "cannot be compared with its shards: ", x->findings.text);
    else if (status == TP_OK && x->findings.size > 0)
        report(c, path, "index and shards disagree: ", x->findings.text);
    tp_weight_map_free(&map);
    free(x->weights);
    free(x->shards);
    free(x);
    return status == TP_OK ? EXIT_OK : fail(EXIT_SYSTEM, "out of memory");
}

/* ------------------------------------------------------------------------------------- split GGUF */

struct part {
    const struct file *file;
    tp_text prefix;
    uint32_t number, count;
};

struct split_check {
    const struct checker *checker;
    const struct part *parts; /* of one model, ascending by number */
    size_t count;
    char **names; /* of all tensors */
    size_t name_count, name_capacity;
    tp_split first;
    bool complete, no_memory;
    struct findings findings;
};

static int by_model(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    int order = compare_text(a->prefix, b->prefix);
    if (order != 0) return order;
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A name that holds a NUL is cut there, which only a hostile one does. */
static void keep_name(struct split_check *x, tp_text name)
{
    if (x->name_count == x->name_capacity) {
        size_t capacity = x->name_capacity ? 2 * x->name_capacity : 256;
        char **names = realloc(x->names, capacity * sizeof *names);
        if (!names) {
            x->no_memory = true;
            return;
        }
        x->names = names;
        x->name_capacity = capacity;
    }
    x->names[x->name_count] = strndup(name.data, name.size);
    if (x->names[x->name_count])
        x->name_count++;
    else
        x->no_memory = true;
}

static tp_text base_of(tp_text path)
{
    const char *slash = memrchr(path.data, '/', path.size);
    size_t start = slash ? (size_t)(slash + 1 - path.data) : 0;
    return (tp_text){path.data + start, path.size - start};
}

/* What the file itself says of its place: its header is read once more, for no reader keeps that. */
static void check_keys(struct split_check *x, const struct part *part, tp_reader *reader, size_t file,
                       const char *shown)
{
    tp_reader_file_source of = {reader, file};
    tp_source source = tp_source_reader(&of, gguf_suffix);
    tp_layout layout;
    tp_error error;
    memset(&error, 0, sizeof error);
    if (tp_layout_parse(&source, &layout, &error) != TP_OK) {
        add(&x->findings, "'%s' cannot be read: %s", shown, error.message);
        x->complete = false;
        return;
    }
    const tp_split *split = &layout.split;
    if (!split->has_number || !split->has_count)
        add(&x->findings, "'%s' does not say that it is part of a split", shown);
    else if (split->number + 1 != part->number || split->count != part->count)
        add(&x->findings, "'%s' says that it is part %llu of %llu", shown,
            (unsigned long long)(split->number == UINT64_MAX ? split->number : split->number + 1),
            (unsigned long long)split->count);
    if (split->has_tensors && !x->first.has_tensors) x->first = *split;
    if (split->has_tensors && split->tensors != x->first.tensors)
        add(&x->findings, "'%s' says that there are %llu tensors in all, another part %llu", shown,
            (unsigned long long)split->tensors, (unsigned long long)x->first.tensors);
    tp_layout_free(&layout);
}

static void check_part(struct split_check *x, const struct part *part)
{
    const struct repository *repository = x->checker->repository;
    tp_text base = base_of(part->file->path);
    tp_reader *reader;
    tp_file_info info;
    tp_error error;
    size_t file;
    char shown[SHOWN];
    tp_text_escape(base.data, base.size, shown, sizeof shown);
    memset(&error, 0, sizeof error);
    if (repository_open(repository, part->file->entry, &reader, &file, &error) != TP_OK) {
        add(&x->findings, "'%s' cannot be read: %s", shown, error.message);
        x->complete = false;
        return;
    }
    if (tp_reader_file(reader, file, &info) != TP_OK || info.format != TP_FORMAT_GGUF) {
        add(&x->findings, "'%s' is no GGUF file", shown);
        x->complete = false;
    } else {
        check_keys(x, part, reader, file, shown);
        for (size_t i = 0; i < info.tensors && !x->no_memory; i++) {
            tp_tensor_info tensor;
            if (tp_reader_tensor(reader, info.first_tensor + i, &tensor) == TP_OK)
                keep_name(x, tensor.name);
        }
    }
    repository_close(repository, reader);
}

/* Numbers from 1 to the count that no part has. */
static void find_missing(struct split_check *x)
{
    uint32_t count = x->parts[0].count, missing = 0, first = 0, next = 1;
    for (size_t i = 0; i <= x->count; i++) {
        uint32_t number = i < x->count ? x->parts[i].number : count + 1;
        if (number > next && next <= count) {
            uint32_t end = number <= count ? number : count + 1;
            if (missing == 0) first = next;
            missing += end - next;
        }
        if (i < x->count && (number == 0 || number > count))
            add(&x->findings, "there is a part %u of %u", number, count);
        next = number + 1;
    }
    if (missing == 1) add(&x->findings, "part %u of %u is missing", first, count);
    if (missing > 1)
        add(&x->findings, "%u of %u parts are missing, the first is %u", missing, count, first);
    x->complete = missing == 0;
}

static void check_split(struct split_check *x)
{
    struct example twice = {0};
    char text[SHOWN + 64];
    find_missing(x);
    for (size_t i = 0; i < x->count; i++) check_part(x, &x->parts[i]);
    if (x->complete && x->first.has_tensors && x->first.tensors != x->name_count)
        add(&x->findings, "the parts say that there are %llu tensors in all, but hold %llu",
            (unsigned long long)x->first.tensors, (unsigned long long)x->name_count);
    if (x->name_count > 0) qsort(x->names, x->name_count, sizeof *x->names, by_name);
    for (size_t i = 1; i < x->name_count; i++)
        if (strcmp(x->names[i], x->names[i - 1]) == 0) count_example(&twice, text_of(x->names[i]));
    if (twice.count > 0) add(&x->findings, "there more than once: %s", tensors(&twice, text));
}

/* The parts of one model. */
static int check_model(const struct checker *c, const struct part *parts, size_t count)
{
    struct split_check *x = calloc(1, sizeof *x);
    if (!x) return fail(EXIT_SYSTEM, "out of memory");
    x->checker = c;
    x->parts = parts;
    x->count = count;
    check_split(x);
    if (!x->no_memory && x->findings.size > 0)
        report(c, parts[0].file->path, "the parts of the split disagree: ", x->findings.text);
    int status = x->no_memory ? fail(EXIT_SYSTEM, "out of memory") : EXIT_OK;
    for (size_t i = 0; i < x->name_count; i++) free(x->names[i]);
    free(x->names);
    free(x);
    return status;
}

static int check_splits(const struct checker *c)
{
    struct part *parts = calloc(c->count + 1, sizeof *parts);
    size_t count = 0, prefix;
    int status = EXIT_OK;
    if (!parts) return fail(EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < c->count; i++) {
        struct part *p = &parts[count];
        tp_text path = c->files[i].path;
        if (!tp_shard_name(path.data, path.size, gguf_suffix, &prefix, &p->number, &p->count)) continue;
        p->file = &c->files[i];
        p->prefix = (tp_text){path.data, prefix};
        count++;
    }
    qsort(parts, count, sizeof *parts, by_model);
    for (size_t i = 0, end; i < count && status == EXIT_OK; i = end) {
        for (end = i + 1; end < count && parts[end].count == parts[i].count &&
                          compare_text(parts[end].prefix, parts[i].prefix) == 0;)
            end++;
        status = check_model(c, parts + i, end - i);
    }
    free(parts);
    return status;
}

/* ------------------------------------------------------------------------------------------- all of it */

int repository_check(const struct repository *repository)
{
    struct checker c = {.repository = repository};
    size_t entries = repository_entries(repository);
    int status = EXIT_OK;
    c.files = calloc(entries + 1, sizeof *c.files);
    if (!c.files) return fail(EXIT_SYSTEM, "out of memory");
    for (size_t i = 0; i < entries; i++)
        if (repository_is_file(repository, i))
            c.files[c.count++] = (struct file){repository_path(repository, i), i};
    qsort(c.files, c.count, sizeof *c.files, by_path);
    for (size_t i = 0; i < c.count && status == EXIT_OK; i++)
        if (ends_with(c.files[i].path, index_suffix)) status = check_index(&c, i);
    if (status == EXIT_OK) status = check_splits(&c);
    free(c.files);
    return status;
}
