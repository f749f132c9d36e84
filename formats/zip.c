/*
 *     entries:    local header (30 bytes, name, extra field), data, perhaps a data descriptor
 *     directory:  a record (46 bytes, name, extra field, comment) for each entry
 *     zip64:      end record (56 bytes or more) and its locator (20 bytes), if numbers are too large
 *     end record: 22 bytes, comment
 *
 * Writers that stream, as PyTorch's, leave CRC and sizes in the local header zero and put them into a data
 * descriptor behind the data; so sizes are taken from the directory, and from the local header only its own
 * length. PyTorch aligns data by an extra field of the local header that the directory does not have.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/layout.h"
#include "formats/zip.h"

/*
 * Longest directory that is read, for 300,000 entries of 100 bytes; checkpoints have an entry a storage.
 * The entries take at most as much memory again.
 */
#define DIRECTORY_MAX ((uint64_t)32 << 20)
/* Entries with longer names are passed over: none that matters has one. */
#define NAME_MAX_SIZE 1024

#define LOCAL_SIZE 30
#define RECORD_SIZE 46
#define END_SIZE 22
#define END64_SIZE 56
#define LOCATOR_SIZE 20
#define COMMENT_MAX 0xFFFF

static uint32_t decode_u16(const uint8_t *at)
{
    return (uint32_t)at[1] << 8 | at[0];
}

static uint32_t decode_u32(const uint8_t *at)
{
    return decode_u16(at + 2) << 16 | decode_u16(at);
}

static uint64_t decode_u64(const uint8_t *at)
{
    return (uint64_t)decode_u32(at + 4) << 32 | decode_u32(at);
}

static bool is_signature(const uint8_t *at, uint8_t third, uint8_t fourth)
{
    return at[0] == 'P' && at[1] == 'K' && at[2] == third && at[3] == fourth;
}

bool tp_zip_recognise(const uint8_t start[4])
{
    return is_signature(start, 3, 4);
}

/* -------------------------------------------------------------------------------------- end records */

typedef struct directory {
    uint64_t start, size, count;
} directory;

/* Finds the end record, whose comment must end with the file; of several such ones the last. */
static tp_status find_end(const tp_source *source, uint8_t end[END_SIZE], uint64_t *start, bool *found,
                          tp_error *error)
{
    *found = false;
    if (source->size < END_SIZE) return TP_OK;
    size_t size = END_SIZE + COMMENT_MAX;
    if (source->size < size) size = (size_t)source->size;
    uint64_t tail_start = source->size - size;
    uint8_t *tail = malloc(size);
    if (tail == NULL) return tp_layout_no_memory(source, error);
    tp_status status = source->read(source->context, tail, size, tail_start, error);
    for (size_t at = size - END_SIZE + 1; status == TP_OK && !*found && at-- > 0;) {
        if (!is_signature(tail + at, 5, 6) || decode_u16(tail + at + 20) != size - at - END_SIZE) continue;
        memcpy(end, tail + at, END_SIZE);
        *start = tail_start + at;
        *found = true;
    }
    free(tail);
    return status;
}

/* A number of the end record, of which zip64 has a wider copy: the two agree, or the narrow one is full. */
static bool agree(uint32_t narrow, uint32_t full, uint64_t wide)
{
    return narrow == full || narrow == wide;
}

static tp_status find_directory(const tp_source *source, directory *d, bool *found, tp_error *error)
{
    uint8_t end[END_SIZE];
    uint64_t limit; /* the directory ends here or before */
    tp_status status = find_end(source, end, &limit, found, error);
    if (status != TP_OK || !*found) return status;
    *found = false;
    /* Of files that are split over disks, only one part is here. */
    if (decode_u16(end + 4) != decode_u16(end + 6) || decode_u16(end + 8) != decode_u16(end + 10))
        return TP_OK;
    uint32_t count = decode_u16(end + 10), size = decode_u32(end + 12), start = decode_u32(end + 16);
    uint32_t disk = decode_u16(end + 4);
    *d = (directory){.start = start, .size = size, .count = count};

    uint8_t locator[LOCATOR_SIZE] = {0};
    if (limit >= LOCATOR_SIZE) {
        status = source->read(source->context, locator, sizeof locator, limit - sizeof locator, error);
        if (status != TP_OK) return status;
    }
    if (is_signature(locator, 6, 7)) {
        uint8_t end64[END64_SIZE];
        uint64_t at = decode_u64(locator + 8), before = limit - sizeof locator;
        if (at > before || before - at < sizeof end64) return TP_OK;
        status = source->read(source->context, end64, sizeof end64, at, error);
        if (status != TP_OK) return status;
        if (!is_signature(end64, 6, 6) || decode_u32(end64 + 16) != decode_u32(end64 + 20)) return TP_OK;
        if (decode_u64(end64 + 24) != decode_u64(end64 + 32)) return TP_OK;
        *d = (directory){.start = decode_u64(end64 + 48),
                         .size = decode_u64(end64 + 40),
                         .count = decode_u64(end64 + 32)};
        if (!agree(disk, UINT16_MAX, decode_u32(end64 + 16)) || !agree(count, UINT16_MAX, d->count) ||
            !agree(size, UINT32_MAX, d->size) || !agree(start, UINT32_MAX, d->start)) {
            return TP_OK;
        }
        disk = decode_u32(end64 + 16);
        limit = at;
    }
    if (disk != 0 || d->start > limit || d->size > limit - d->start) return TP_OK;
    *found = d->size <= DIRECTORY_MAX && d->count <= d->size / RECORD_SIZE;
    return TP_OK;
}

/* ---------------------------------------------------------------------------------------- directory */

/* Takes sizes and offset, where they are full, from the extra field's zip64 part, which has no others. */
static bool widen(const uint8_t *extra, size_t extra_size, uint64_t *plain, uint64_t *stored,
                  uint64_t *header)
{
    uint64_t *const numbers[] = {plain, stored, header};
    while (extra_size >= 4) {
        size_t size = decode_u16(extra + 2);
        if (size > extra_size - 4) return false;
        if (decode_u16(extra) == 1) {
            const uint8_t *at = extra + 4, *const end = at + size;
            for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
                if (*numbers[i] != UINT32_MAX) continue;
                if (end - at < 8) return false;
                *numbers[i] = decode_u64(at);
                at += 8;
            }
            return true;
        }
        extra += 4 + size;
        extra_size -= 4 + size;
    }
    return *plain != UINT32_MAX && *stored != UINT32_MAX && *header != UINT32_MAX;
}

/*
 * The record at `at`, of which `size` bytes of directory are left; its size, or 0 if it is none. An entry
 * that is not stored, or whose numbers are wrong, is given no name.
 */
static size_t read_record(const tp_zip *zip, size_t at, size_t size, tp_zip_entry *entry)
{
    const uint8_t *record = zip->directory + at;
    if (size < RECORD_SIZE || !is_signature(record, 1, 2)) return 0;
    size_t name_size = decode_u16(record + 28), extra_size = decode_u16(record + 30);
    size_t whole = RECORD_SIZE + name_size + extra_size + decode_u16(record + 32);
    if (whole > size) return 0;
    *entry = (tp_zip_entry){0};

    const uint32_t encrypted = 1 | 1 << 13; /* the data; the local headers */
    uint64_t stored = decode_u32(record + 20), plain = decode_u32(record + 24),
             header = decode_u32(record + 42);
    if ((decode_u16(record + 8) & encrypted) != 0 || decode_u16(record + 10) != 0) return whole;
    if (!widen(record + RECORD_SIZE + name_size, extra_size, &plain, &stored, &header)) return whole;
    uint64_t limit = zip->directory_start;
    if (plain != stored || header > limit || limit - header < LOCAL_SIZE + name_size) return whole;
    if (stored > limit - header - LOCAL_SIZE - name_size || name_size > NAME_MAX_SIZE) return whole;
    entry->header = header;
    entry->size = stored;
    entry->name = (uint32_t)at + RECORD_SIZE; /* below DIRECTORY_MAX */
    entry->name_size = (uint16_t)name_size;
    return whole;
}

/* Whether the directory is what it claims to be; then the stored entries are counted, or also kept. */
static bool read_records(tp_zip *zip, const directory *d, bool keep)
{
    size_t left = (size_t)d->size, at = 0;
    uint64_t records = 0;
    zip->count = 0;
    while (left != 0) {
        tp_zip_entry entry;
        size_t size = read_record(zip, at, left, &entry);
        if (size == 0) return false;
        at += size;
        left -= size;
        records++;
        if (entry.name_size == 0) continue;
        if (keep) zip->entries[zip->count] = entry;
        zip->count++;
    }
    return records == d->count;
}

tp_status tp_zip_open(tp_zip *zip, const tp_source *source, tp_error *error)
{
    *zip = (tp_zip){.source = source};
    directory d;
    bool found;
    tp_status status = find_directory(source, &d, &found, error);
    if (status != TP_OK || !found || d.size == 0) return status;
    zip->directory_start = d.start;
    zip->directory = malloc((size_t)d.size);
    if (zip->directory == NULL) return tp_layout_no_memory(source, error);
    status = source->read(source->context, zip->directory, (size_t)d.size, d.start, error);
    if (status != TP_OK) return status;
    /* Read twice, so that only as much is allocated as there are entries. */
    bool good = read_records(zip, &d, false);
    if (good && zip->count != 0) {
        zip->entries = malloc(zip->count * sizeof *zip->entries);
        if (zip->entries == NULL) {
            zip->count = 0;
            return tp_layout_no_memory(source, error);
        }
        read_records(zip, &d, true);
    }
    if (!good) zip->count = 0;
    return TP_OK;
}

tp_status tp_zip_locate(const tp_zip *zip, tp_zip_entry *entry, bool *found, tp_error *error)
{
    uint8_t local[LOCAL_SIZE + NAME_MAX_SIZE];
    const tp_source *source = zip->source;
    *found = false;
    /* read_record has seen that all of it lies before the directory. */
    tp_status status =
        source->read(source->context, local, LOCAL_SIZE + (size_t)entry->name_size, entry->header, error);
    if (status != TP_OK) return status;
    if (!is_signature(local, 3, 4) || decode_u16(local + 8) != 0) return TP_OK;
    if (decode_u16(local + 26) != entry->name_size ||
        memcmp(local + LOCAL_SIZE, tp_zip_name(zip, entry), entry->name_size) != 0) {
        return TP_OK;
    }
    /* Sizes may be missing here (zero) or stand in an extra field (full), but they may not differ. */
    for (size_t at = 18; at <= 22; at += 4) {
        uint32_t size = decode_u32(local + at);
        if (size != 0 && size != UINT32_MAX && size != entry->size) return TP_OK;
    }
    uint64_t start = entry->header + LOCAL_SIZE + entry->name_size + decode_u16(local + 28);
    if (start > zip->directory_start || entry->size > zip->directory_start - start) return TP_OK;
    entry->start = start;
    *found = true;
    return TP_OK;
}

void tp_zip_close(tp_zip *zip)
{
    free(zip->directory);
    free(zip->entries);
    *zip = (tp_zip){0};
}
