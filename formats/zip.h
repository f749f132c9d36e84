/*
 * The directory of a ZIP file, and where its stored (not deflated) entries have their data.
 *
 * Read here and by no library, because this is all that is wanted of ZIP, over a tp_source and of hostile
 * files: libzip does not tell where an entry's data lie, minizip only of an entry that it has opened, and
 * neither limits memory and work by the file's size. Nothing is ever inflated.
 */
#ifndef TP_FORMATS_ZIP_H
#define TP_FORMATS_ZIP_H

#include "formats/formats.h"

/* An entry whose bytes lie in the file as they are. */
typedef struct tp_zip_entry {
    uint64_t header; /* offset of its local header in the source */
    uint64_t start;  /* of its data; known once it has been located */
    uint64_t size;
    uint32_t name; /* offset in the directory */
    uint16_t name_size;
    uint8_t part; /* the user's, 0 at first */
    uint64_t key; /* the user's too */
} tp_zip_entry;

typedef struct tp_zip {
    const tp_source *source;
    uint8_t *directory;
    uint64_t directory_start;
    tp_zip_entry *entries; /* in the directory's order; stored ones only */
    size_t count;
} tp_zip;

/* Whether the first bytes are those of a ZIP file that has entries. */
bool tp_zip_recognise(const uint8_t start[4]);
/*
 * Reads the directory. A file whose directory cannot be trusted, or is too large, has no entries. Errors
 * are those of the source and TP_NO_MEMORY. Close it in any case.
 */
tp_status tp_zip_open(tp_zip *zip, const tp_source *source, tp_error *error);
/* Finds entry->start by the local header; false if that does not agree with the directory. */
tp_status tp_zip_locate(const tp_zip *zip, tp_zip_entry *entry, bool *found, tp_error *error);
void tp_zip_close(tp_zip *zip);

static inline const char *tp_zip_name(const tp_zip *zip, const tp_zip_entry *entry)
{
    return (const char *)zip->directory + entry->name;
}

#endif
