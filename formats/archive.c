/*
 * Files that hold arrays among other things: PyTorch's checkpoints (ZIP, since version 1.6), DDUF (ZIP with
 * safetensors files) and NumPy's NPZ (ZIP) and NPY. They stay files of bytes, with no list of tensors:
 * found is only which of their bytes are elements of what class, so that they compress as such.
 *
 * Nothing here ever refuses a file, or warns: what is not understood is bytes. In a ZIP file only stored
 * entries are looked into, and only if no two of those that matter share bytes: otherwise the same header
 * could be read again and again.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/layout.h"
#include "formats/npy.h"
#include "formats/pickle.h"
#include "formats/zip.h"

/*
 * What an entry is. A pickle X.pkl has its storages in X/KEY; programs saved with TorchScript have two of
 * them, `data` and `constants`.
 */
enum part { NOTHING, ARRAY, TENSORS, ORDER, PICKLE, STORAGE = PICKLE + 2 };
enum { PICKLES = 2 };
static const char *const pickles[PICKLES] = {"data", "constants"};

typedef struct archive {
    tp_layout_builder *builder;
    tp_zip zip;
    tp_zip_entry *pickle[PICKLES], *order; /* NULL: there is none */
    bool swapped;
    tp_pickle storages[PICKLES];
} archive;

/* -------------------------------------------------------------------------------------------- entries */

static bool has_suffix(const char *name, size_t size, const char *suffix)
{
    size_t suffix_size = strlen(suffix);
    return size >= suffix_size && memcmp(name + size - suffix_size, suffix, suffix_size) == 0;
}

/* Bytes of the name up to and with its last '/'. */
static size_t folder_size(const char *name, size_t size)
{
    while (size != 0 && name[size - 1] != '/') size--;
    return size;
}

static bool is_file(const char *name, size_t size, size_t folder, const char *stem, const char *suffix)
{
    size_t stem_size = strlen(stem);
    return size == folder + stem_size + strlen(suffix) && memcmp(name + folder, stem, stem_size) == 0 &&
           has_suffix(name, size, suffix);
}

/* Entries that tell by their names alone what they are. False: there are two of what may be there once. */
static bool name_parts(archive *a)
{
    for (size_t i = 0; i < a->zip.count; i++) {
        tp_zip_entry *entry = &a->zip.entries[i];
        const char *name = tp_zip_name(&a->zip, entry);
        size_t size = entry->name_size, folder = folder_size(name, size);
        if (has_suffix(name, size, ".npy")) entry->part = ARRAY;
        if (has_suffix(name, size, ".safetensors")) entry->part = TENSORS;
        if (is_file(name, size, folder, "byteorder", "")) {
            if (a->order != NULL) return false;
            a->order = entry;
            entry->part = ORDER;
        }
        for (int k = 0; k < PICKLES; k++) {
            if (!is_file(name, size, folder, pickles[k], ".pkl")) continue;
            if (a->pickle[k] != NULL) return false;
            a->pickle[k] = entry;
            entry->part = (uint8_t)(PICKLE + k);
        }
    }
    return true;
}

/* The storages of this pickle: entries FOLDER/STEM/KEY, where it is FOLDER/STEM.pkl. */
static void name_storages(archive *a, int k)
{
    if (a->pickle[k] == NULL) return;
    const char *pickle = tp_zip_name(&a->zip, a->pickle[k]);
    size_t prefix = a->pickle[k]->name_size - strlen(".pkl");
    for (size_t i = 0; i < a->zip.count; i++) {
        tp_zip_entry *entry = &a->zip.entries[i];
        const char *name = tp_zip_name(&a->zip, entry);
        if (entry->part != NOTHING || entry->name_size <= prefix || name[prefix] != '/' ||
            memcmp(name, pickle, prefix) != 0) {
            continue;
        }
        if (tp_pickle_parse_key(name + prefix + 1, entry->name_size - prefix - 1, &entry->key))
            entry->part = (uint8_t)(STORAGE + k);
    }
}

static int order_of_headers(const void *a, const void *b)
{
    const tp_zip_entry *first = a, *second = b;
    return (first->header > second->header) - (first->header < second->header);
}

/* Keeps the entries that are something, finds their data and puts them into the file's order. False: two
 * share bytes. */
static tp_status locate_parts(archive *a, bool *apart)
{
    tp_zip *zip = &a->zip;
    size_t kept = 0;
    bool sorted = true;
    for (size_t i = 0; i < zip->count; i++) {
        tp_zip_entry entry = zip->entries[i];
        bool found = false;
        if (entry.part == NOTHING) continue;
        tp_status status = tp_zip_locate(zip, &entry, &found, a->builder->error);
        if (status != TP_OK) return status;
        if (!found) continue;
        if (kept != 0 && zip->entries[kept - 1].header > entry.header) sorted = false;
        zip->entries[kept++] = entry;
    }
    zip->count = kept;
    if (!sorted) qsort(zip->entries, kept, sizeof *zip->entries, order_of_headers);

    *apart = true;
    a->order = a->pickle[0] = a->pickle[1] = NULL;
    for (size_t i = 0; i < kept; i++) {
        tp_zip_entry *entry = &zip->entries[i];
        if (i != 0 && entry->header < entry[-1].start + entry[-1].size) *apart = false;
        if (entry->part == ORDER) a->order = entry;
        if (entry->part == PICKLE) a->pickle[0] = entry;
        if (entry->part == PICKLE + 1) a->pickle[1] = entry;
    }
    return TP_OK;
}

/* ----------------------------------------------------------------------------------------- storages */

/* Files of before 2023 do not name the byte order, and were hardly ever written on a big-endian machine. */
static tp_status read_order(archive *a, bool *known)
{
    char text[6];
    const tp_source *source = a->zip.source;
    *known = true;
    if (a->order == NULL) return TP_OK;
    *known = false;
    size_t size = (size_t)a->order->size;
    if (a->order->size != strlen("little") && a->order->size != strlen("big")) return TP_OK;
    tp_status status = source->read(source->context, text, size, a->order->start, a->builder->error);
    if (status != TP_OK) return status;
    a->swapped = size == 3 && memcmp(text, "big", size) == 0;
    *known = a->swapped || (size == 6 && memcmp(text, "little", size) == 0);
    return TP_OK;
}

static tp_status read_pickles(archive *a)
{
    bool known;
    tp_status status = read_order(a, &known);
    for (int k = 0; k < PICKLES && status == TP_OK && known; k++) {
        const tp_zip_entry *entry = a->pickle[k];
        if (entry == NULL) continue;
        status =
            tp_pickle_read(a->zip.source, entry->start, entry->size, &a->storages[k], a->builder->error);
    }
    return status;
}

static tp_status type_storage(archive *a, const tp_zip_entry *entry)
{
    const tp_storage *storage = tp_pickle_find(&a->storages[entry->part - STORAGE], entry->key);
    if (storage == NULL || storage->cls == TP_CLASS_BYTES) return TP_OK;
    uint64_t count = storage->untyped ? entry->size : entry->size / storage->element_size;
    if (count != storage->count) return TP_OK;
    tp_class cls = (tp_class)storage->cls;
    return tp_layout_add_typed(a->builder, entry->start, entry->size,
                               a->swapped ? tp_class_swapped(cls) : cls);
}

/* --------------------------------------------------------------------------------- arrays and tensors */

static tp_status type_array(tp_layout_builder *builder, uint64_t start, uint64_t size)
{
    tp_npy npy;
    tp_status status = tp_npy_read(builder->source, start, size, &npy, builder->error);
    if (status != TP_OK) return status;
    return tp_layout_add_typed(builder, npy.start, npy.size, npy.cls);
}

/* An entry as a file of its own. */
typedef struct part_source {
    const tp_source *source;
    uint64_t start;
} part_source;

static tp_status part_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const part_source *part = context;
    return part->source->read(part->source->context, dst, size, part->start + offset, error);
}

static tp_status type_tensors(archive *a, const tp_zip_entry *entry)
{
    const tp_source *source = a->zip.source;
    part_source part = {.source = source, .start = entry->start};
    tp_source file = {.read = part_read, .context = &part, .size = entry->size, .name = source->name};
    tp_layout layout = {0};
    tp_layout_builder builder = {.layout = &layout, .source = &file, .error = a->builder->error};
    tp_status status = tp_safetensors_parse(&builder);
    if (status == TP_OK) {
        for (size_t i = 0; i < layout.span_count && status == TP_OK; i++) {
            const tp_span *span = &layout.spans[i];
            if (span->cls == TP_CLASS_BYTES) continue;
            status = tp_layout_add_typed(a->builder, entry->start + span->start, span->length,
                                         (tp_class)span->cls);
        }
    } else if (builder.refused) {
        status = TP_OK;
    }
    tp_layout_free(&layout);
    return status;
}

/* ---------------------------------------------------------------------------------------------- files */

static tp_status type_parts(archive *a)
{
    tp_status status = read_pickles(a);
    for (size_t i = 0; i < a->zip.count && status == TP_OK; i++) {
        const tp_zip_entry *entry = &a->zip.entries[i];
        if (entry->part == ARRAY)
            status = type_array(a->builder, entry->start, entry->size);
        else if (entry->part == TENSORS)
            status = type_tensors(a, entry);
        else if (entry->part >= STORAGE)
            status = type_storage(a, entry);
    }
    return status;
}

static tp_status type_archive(tp_layout_builder *builder)
{
    archive a = {.builder = builder};
    bool apart = false;
    tp_status status = tp_zip_open(&a.zip, builder->source, builder->error);
    if (status == TP_OK && name_parts(&a)) {
        for (int k = 0; k < PICKLES; k++) name_storages(&a, k);
        status = locate_parts(&a, &apart);
    }
    if (status == TP_OK && apart) status = type_parts(&a);
    for (int k = 0; k < PICKLES; k++) tp_pickle_close(&a.storages[k]);
    tp_zip_close(&a.zip);
    return status;
}

tp_status tp_archive_parse(tp_layout_builder *builder)
{
    const tp_source *source = builder->source;
    uint8_t start[6] = {0};
    size_t size = source->size < sizeof start ? (size_t)source->size : sizeof start;
    tp_status status = TP_OK;
    if (size != 0) status = source->read(source->context, start, size, 0, builder->error);
    if (status == TP_OK && tp_zip_recognise(start)) status = type_archive(builder);
    if (status == TP_OK && tp_npy_recognise(start)) status = type_array(builder, 0, source->size);
    if (status == TP_OK) return tp_layout_finish_typed(builder);
    if (!builder->refused) return status;
    /* Too many spans for the memory that a layout may take. */
    builder->refused = false;
    builder->layout->reason[0] = 0;
    return tp_layout_bytes(builder);
}
