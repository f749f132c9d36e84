/* tensorpress inspect: headers only, as text or JSON; written as it goes, so that a million tensors are no
 * tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/text.h"
#include "json.h"
#include "message.h"
#include "repository.h"
#include "units.h"
#include "verbs.h"

#define NAME_COLUMNS 64 /* the widest column of names; longer names push their line */
#define SHOWN_DTYPES 64

static const char no_checkpoint[] = "neither safetensors nor GGUF";

/* Bytes of a file that looked like no checkpoint: said in words, so that there is always a reason. */
static tp_text reason_of(const tp_file_info *file)
{
    if (file->reason.size > 0) return file->reason;
    return (tp_text){no_checkpoint, sizeof no_checkpoint - 1};
}

/* ------------------------------------------------------------------------------------------ JSON */

static void json_text(struct json *json, const char *key, tp_text text)
{
    json_key(json, key);
    json_string(json, text.data, text.size);
}

static void json_word(struct json *json, const char *key, const char *word)
{
    json_key(json, key);
    json_string(json, word, strlen(word));
}

static void json_number(struct json *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_u64(json, value);
}

static void json_tensors(struct json *json, const tp_reader *reader, const tp_file_info *file,
                         bool container)
{
    json_key(json, "tensors");
    json_open(json, '[');
    for (size_t i = 0; i < file->tensors; i++) {
        tp_tensor_info t;
        if (tp_reader_tensor(reader, file->first_tensor + i, &t) != TP_OK) break;
        json_open(json, '{');
        json_name(json, "name", t.name);
        json_text(json, "dtype", t.dtype);
        json_key(json, "shape");
        json_open(json, '[');
        for (size_t d = 0; d < t.ndim; d++) json_u64(json, t.shape[d]);
        json_close(json, ']');
        json_number(json, "offset", t.offset);
        json_number(json, "nbytes", t.nbytes);
        if (container) {
            json_number(json, "stored_nbytes", t.stored_nbytes);
            json_word(json, "method", tp_method_name(t.method));
        }
        if (t.flags & TP_TENSOR_OPAQUE) {
            json_key(json, "opaque");
            json_true(json);
        }
        if (t.flags & TP_TENSOR_TRUNCATED) {
            json_key(json, "truncated");
            json_true(json);
        }
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void json_container(struct json *json, const tp_reader *reader)
{
    unsigned major = 0, minor = 0;
    char version[32];
    uint64_t size = tp_reader_size(reader), original = tp_reader_original_size(reader);
    tp_reader_format_version(reader, &major, &minor);
    snprintf(version, sizeof version, "%u.%u", major, minor);
    json_open(json, '{');
    json_word(json, "format", "tpress");
    json_word(json, "version", version);
    json_number(json, "size", size);
    json_number(json, "original_size", original);
    json_key(json, "ratio");
    if (original > 0)
        json_decimal(json, (double)size / (double)original, 6);
    else
        json_null(json);
    json_key(json, "files");
    json_open(json, '[');
    for (size_t i = 0; i < tp_reader_files(reader); i++) {
        tp_file_info file;
        if (tp_reader_file(reader, i, &file) != TP_OK) break;
        if (file.is_folder) continue;
        char hash[33];
        snprintf(hash, sizeof hash, "%016llx%016llx", (unsigned long long)file.digest[1],
                 (unsigned long long)file.digest[0]);
        json_open(json, '{');
        json_name(json, "path", file.path);
        json_word(json, "format", tp_format_name(file.format));
        json_number(json, "size", file.size);
        json_word(json, "hash", hash);
        if (file.has_sha256) {
            json_key(json, "sha256");
            json_hex(json, file.sha256, sizeof file.sha256);
        }
        json_tensors(json, reader, &file, true);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

/* A plain file, called `path` here. */
static int json_plain(struct json *json, tp_reader *reader, tp_text path)
{
    tp_file_info file;
    if (tp_reader_file(reader, 0, &file) != TP_OK)
        return fail(EXIT_DATA, "%.*s: cannot be described", (int)path.size, path.data);
    json_open(json, '{');
    json_name(json, "path", path);
    json_word(json, "format", tp_format_name(file.format));
    if (file.format == TP_FORMAT_BYTES) json_text(json, "reason", reason_of(&file));
    json_number(json, "size", file.size);
    json_tensors(json, reader, &file, false);
    json_close(json, '}');
    return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------ text */

struct dtype_row {
    tp_text dtype;
    uint64_t tensors, nbytes, stored;
    unsigned methods;
};

/* Sums by dtype: an open hash table, for a hostile file may name a million of them. */
struct dtype_table {
    struct dtype_row *rows;
    size_t count, capacity;
    size_t *slots; /* row + 1; 0: free; twice the capacity at least, a power of two */
    size_t slot_count;
};

static size_t hash_text(tp_text text)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < text.size; i++) h = (h ^ (unsigned char)text.data[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 32);
}

static bool same_text(tp_text a, tp_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static bool table_grow(struct dtype_table *table)
{
    size_t capacity = table->capacity ? 2 * table->capacity : 32, slot_count = 2 * capacity;
    struct dtype_row *rows = realloc(table->rows, capacity * sizeof *rows);
    if (!rows) return false;
    table->rows = rows;
    size_t *slots = calloc(slot_count, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < table->count; i++) {
        size_t at = hash_text(rows[i].dtype) & (slot_count - 1);
        while (slots[at]) at = (at + 1) & (slot_count - 1);
        slots[at] = i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
    table->capacity = capacity;
    return true;
}

static struct dtype_row *table_row(struct dtype_table *table, tp_text dtype)
{
    if (table->count == table->capacity && !table_grow(table)) return NULL;
    size_t at = hash_text(dtype) & (table->slot_count - 1);
    for (; table->slots[at]; at = (at + 1) & (table->slot_count - 1)) {
        struct dtype_row *row = &table->rows[table->slots[at] - 1];
        if (same_text(row->dtype, dtype)) return row;
    }
    struct dtype_row *row = &table->rows[table->count++];
    memset(row, 0, sizeof *row);
    row->dtype = dtype;
    table->slots[at] = table->count;
    return row;
}

static int by_bytes(const void *left, const void *right)
{
    const struct dtype_row *a = left, *b = right;
    if (a->nbytes != b->nbytes) return a->nbytes < b->nbytes ? 1 : -1;
    size_t n = a->dtype.size < b->dtype.size ? a->dtype.size : b->dtype.size;
    int order = n > 0 ? memcmp(a->dtype.data, b->dtype.data, n) : 0;
    return order ? order : a->dtype.size < b->dtype.size ? -1 : a->dtype.size > b->dtype.size;
}

/* Escaped text in a column: left-aligned, width counted in code points. */
static void put_column(tp_text text, size_t width)
{
    char shown[2048];
    tp_text_escape(text.data, text.size, shown, sizeof shown);
    size_t columns = 0;
    for (const char *p = shown; *p; p++) columns += ((unsigned char)*p & 0xc0) != 0x80;
    fputs(shown, stdout);
    for (; columns < width; columns++) putchar(' ');
}

static size_t column_width(tp_text text)
{
    char shown[4 * NAME_COLUMNS + 1];
    size_t columns = 0;
    tp_text_escape(text.data, text.size, shown, sizeof shown);
    for (const char *p = shown; *p; p++) columns += ((unsigned char)*p & 0xc0) != 0x80;
    return columns < NAME_COLUMNS ? columns : NAME_COLUMNS;
}

static void put_methods(unsigned methods)
{
    const char *comma = "";
    for (unsigned m = 0; m < TP_METHOD_COUNT; m++) {
        if (!(methods & 1u << m)) continue;
        printf("%s%s", comma, tp_method_name((tp_method)m));
        comma = ",";
    }
}

/* "checks": what stands for a tensor's bytes; the same for all of a file. */
static const char *checks_of(const tp_file_info *file)
{
    return file->has_sha256 ? "xxh3+sha256" : "xxh3";
}

static int text_dtypes(const tp_reader *reader, const tp_file_info *file, bool container)
{
    struct dtype_table table = {0};
    int status = EXIT_OK;
    for (size_t i = 0; i < file->tensors; i++) {
        tp_tensor_info t;
        if (tp_reader_tensor(reader, file->first_tensor + i, &t) != TP_OK) break;
        struct dtype_row *row = table_row(&table, t.dtype);
        if (!row) {
            status = fail(EXIT_SYSTEM, "out of memory");
            break;
        }
        row->tensors++;
        /* Declared sizes of a hostile header may add up to more than 64 bits hold. */
        if (__builtin_add_overflow(row->nbytes, t.nbytes, &row->nbytes)) row->nbytes = UINT64_MAX;
        row->stored += t.stored_nbytes;
        row->methods |= 1u << (unsigned)t.method;
    }
    if (status == EXIT_OK && table.count > 0) {
        qsort(table.rows, table.count, sizeof *table.rows, by_bytes);
        printf("\n  %-12s %10s %20s %8s", "dtype", "tensors", "bytes", "%");
        if (container) printf(" %20s %9s  %-12s %s", "stored", "ratio", "checks", "methods");
        putchar('\n');
        for (size_t i = 0; i < table.count && i < SHOWN_DTYPES; i++) {
            const struct dtype_row *row = &table.rows[i];
            fputs("  ", stdout);
            put_column(row->dtype, 12);
            printf(" %10llu %20llu %8.2f", (unsigned long long)row->tensors,
                   (unsigned long long)row->nbytes,
                   file->size > 0 ? 100.0 * (double)row->nbytes / (double)file->size : 0.0);
            if (container) {
                printf(" %20llu %9s  %-12s ", (unsigned long long)row->stored,
                       percent(row->stored, row->nbytes), checks_of(file));
                put_methods(row->methods);
            }
            putchar('\n');
        }
        if (table.count > SHOWN_DTYPES)
            printf("  and %llu more dtypes\n", (unsigned long long)(table.count - SHOWN_DTYPES));
    }
    free(table.rows);
    free(table.slots);
    return status;
}

static void text_tensors(const tp_reader *reader, const tp_file_info *file, bool container)
{
    size_t width = 4;
    tp_tensor_info t;
    for (size_t i = 0; i < file->tensors && width < NAME_COLUMNS; i++) {
        if (tp_reader_tensor(reader, file->first_tensor + i, &t) != TP_OK) break;
        size_t w = column_width(t.name);
        if (w > width) width = w;
    }
    fputs("\n  ", stdout);
    put_column((tp_text){"name", 4}, width);
    printf(" %-10s %14s %14s", "dtype", "offset", "bytes");
    if (container) printf(" %14s %9s %-8s %-11s", "stored", "ratio", "method", "checks");
    puts(" shape");
    for (size_t i = 0; i < file->tensors; i++) {
        if (tp_reader_tensor(reader, file->first_tensor + i, &t) != TP_OK) break;
        fputs("  ", stdout);
        put_column(t.name, width);
        putchar(' ');
        put_column(t.dtype, 10);
        printf(" %14llu %14llu", (unsigned long long)t.offset, (unsigned long long)t.nbytes);
        if (container)
            printf(" %14llu %9s %-8s %-11s", (unsigned long long)t.stored_nbytes,
                   percent(t.stored_nbytes, t.nbytes), tp_method_name(t.method), checks_of(file));
        fputs(" [", stdout);
        for (size_t d = 0; d < t.ndim; d++) printf("%s%llu", d ? ", " : "", (unsigned long long)t.shape[d]);
        putchar(']');
        if (t.flags & TP_TENSOR_OPAQUE) fputs(" opaque", stdout);
        if (t.flags & TP_TENSOR_TRUNCATED) fputs(" truncated", stdout);
        putchar('\n');
    }
}

static void put_summary(tp_text name, const tp_file_info *file)
{
    put_column(name, 0);
    printf(": %s, %s, %s", tp_format_name(file->format), counted(file->size, "byte"),
           counted(file->tensors, "tensor"));
    if (file->format == TP_FORMAT_BYTES) {
        tp_text reason = reason_of(file);
        fputs(": ", stdout);
        put_column(reason, 0);
    }
    putchar('\n');
}

static int text_file(const tp_reader *reader, const tp_file_info *file, tp_text name,
                     const struct options *options, bool container)
{
    put_summary(name, file);
    if (container) {
        printf("  checks: %s with XXH3-128 each, file %016llx%016llx", counted(file->frames, "frame"),
               (unsigned long long)file->digest[1], (unsigned long long)file->digest[0]);
        if (file->has_sha256) {
            fputs(", SHA-256 ", stdout);
            for (size_t i = 0; i < sizeof file->sha256; i++) printf("%02x", file->sha256[i]);
        }
        putchar('\n');
    }
    text_units(reader, file, options->tensors);
    int status = text_dtypes(reader, file, container);
    if (status == EXIT_OK && options->tensors && file->tensors > 0) text_tensors(reader, file, container);
    return status;
}

/* How many of a container's entries are files. */
static uint64_t count_files(const tp_reader *reader)
{
    tp_file_info file;
    uint64_t count = 0;
    for (size_t i = 0; i < tp_reader_files(reader); i++)
        count += tp_reader_file(reader, i, &file) == TP_OK && !file.is_folder;
    return count;
}

static int text_all(const struct opened *opened, const struct options *options)
{
    const tp_reader *reader = opened->reader;
    tp_text name = {opened->name, strlen(opened->name)};
    tp_file_info file;
    int status = EXIT_OK;
    if (tp_reader_format(reader) != TP_FORMAT_TPRESS) {
        if (tp_reader_file(reader, 0, &file) != TP_OK)
            return fail(EXIT_DATA, "%s: cannot be described", opened->name);
        return text_file(reader, &file, name, options, false);
    }
    unsigned major = 0, minor = 0;
    uint64_t size = tp_reader_size(reader), original = tp_reader_original_size(reader);
    tp_reader_format_version(reader, &major, &minor);
    put_column(name, 0);
    printf(": tpress %u.%u, %s for %s", major, minor, counted(size, "byte"), counted(original, "byte"));
    if (original > 0) printf(" (%s)", percent(size, original));
    printf(", %s, %s\n", counted(count_files(reader), "file"), counted(tp_reader_frames(reader), "frame"));
    for (size_t i = 0; status == EXIT_OK && i < tp_reader_files(reader); i++) {
        if (tp_reader_file(reader, i, &file) != TP_OK) break;
        if (file.is_folder) continue;
        putchar('\n');
        status = text_file(reader, &file, file.path, options, true);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------ folders */

static int describe_entry(const struct repository *folder, size_t entry, struct json *json,
                          const struct options *options)
{
    tp_reader *reader;
    tp_file_info file;
    tp_error error;
    size_t number;
    memset(&error, 0, sizeof error);
    tp_status status = repository_open(folder, entry, &reader, &number, &error);
    if (status != TP_OK) return fail_error(status, &error);
    int code = EXIT_OK;
    if (json) {
        code = json_plain(json, reader, repository_path(folder, entry));
    } else if (tp_reader_file(reader, 0, &file) == TP_OK) {
        putchar('\n');
        code = text_file(reader, &file, file.path, options, false);
    }
    repository_close(folder, reader);
    return code;
}

/* A file that cannot be opened is found before anything is printed. */
static tp_status try_files(const tp_tree *tree, tp_error *error)
{
    tp_status status = TP_OK;
    for (size_t i = 0; i < tree->count && status == TP_OK; i++) {
        tp_input input;
        if (tree->entries[i].folder) continue;
        status = tp_tree_open_file(tree, i, &input, error);
        tp_input_close(&input);
    }
    return status;
}

static int describe_folder(const struct repository *folder, struct json *json,
                           const struct options *options)
{
    const tp_tree *tree = folder->tree;
    int status = EXIT_OK;
    if (json) {
        json_open(json, '{');
        json_word(json, "format", "folder");
        json_name(json, "path", (tp_text){tree->name, strlen(tree->name)});
        json_number(json, "size", tree->size);
        json_key(json, "files");
        json_open(json, '[');
    } else {
        put_column((tp_text){tree->name, strlen(tree->name)}, 0);
        printf(": folder, %s, %s\n", counted(tree->size, "byte"), counted(tree->files, "file"));
    }
    for (size_t i = 0; i < tree->count && status == EXIT_OK; i++)
        if (!tree->entries[i].folder) status = describe_entry(folder, i, json, options);
    if (json && status == EXIT_OK) {
        json_close(json, ']');
        json_close(json, '}');
    }
    return status == EXIT_OK ? repository_check(folder) : status;
}

static int inspect_folder(const char *input, const struct options *options)
{
    tp_tree tree;
    tp_error error;
    struct json json;
    memset(&error, 0, sizeof error);
    tp_status status = tp_tree_open(&tree, input, -1, NULL, &error);
    if (status == TP_OK) status = try_files(&tree, &error);
    struct repository folder = {.name = tree.name, .tree = &tree};
    json_init(&json, stdout);
    int code = status == TP_OK ? describe_folder(&folder, options->json ? &json : NULL, options)
                               : fail_error(status, &error);
    tp_tree_close(&tree);
    return code;
}

static int run(const struct options *options)
{
    const char *input = options->arguments[0];
    struct stat stat;
    int status = input_stat(input, &stat);
    if (status != EXIT_OK) return status;
    if (S_ISDIR(stat.st_mode) && is_stdin(input)) return fail_usage("stdin: is a folder; name it as FILE");
    if (S_ISDIR(stat.st_mode)) return inspect_folder(input, options);
    struct opened opened;
    status = reader_open(input, &opened);
    if (status != EXIT_OK) return status;
    if (!options->json) {
        status = text_all(&opened, options);
    } else {
        struct json json;
        json_init(&json, stdout);
        if (tp_reader_format(opened.reader) == TP_FORMAT_TPRESS)
            json_container(&json, opened.reader);
        else
            status = json_plain(&json, opened.reader, (tp_text){opened.name, strlen(opened.name)});
    }
    if (status == EXIT_OK && tp_reader_is_folder(opened.reader)) {
        struct repository container = {.name = opened.name, .container = opened.reader};
        status = repository_check(&container);
    }
    reader_close(&opened);
    return status;
}

const struct verb verb_inspect = {
    .name = "inspect",
    .usage = "FILE [--json] [--tensors]",
    .about =
        "Shows what is in a checkpoint (safetensors, GGUF), a folder or a container: format, dtypes, "
        "shapes, "
        "offsets;\n"
        "of a container also methods, ratio (stored / original) and checks. Of a model in several files it "
        "warns where\n"
        "index and shards disagree. Reads headers only. --json always lists every tensor, with the keys "
        "that\n"
        "docs/cli.md promises. FILE may be - for stdin.",
    .examples = "  tensorpress inspect model.safetensors\n"
                "  tensorpress inspect --tensors model.safetensors.tpress\n"
                "  tensorpress inspect --json model.safetensors.tpress | jq '.files[].tensors[].name'\n",
    .options = HAS(JSON) | HAS(TENSORS),
    .min_arguments = 1,
    .max_arguments = 1,
    .argument_names = "FILE",
    .run = run,
};
