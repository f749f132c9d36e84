/* Inside tp_reader: shared by opening, listing and finding (reader.c) and by reading (reading.c). */
#ifndef TP_CONVERT_READER_STRUCT_H
#define TP_CONVERT_READER_STRUCT_H

#include "convert/container.h"
#include "convert/workspaces.h"

typedef struct tp_name_entry {
    uint64_t hash;
    uint64_t tensor;
} tp_name_entry;

/* What changes after opening, by any thread, and so without a lock (see workspaces.h). */
typedef struct tp_reader_shared {
    tp_workspaces workspaces;
    tp_name_entry *names; /* ascending by hash, then tensor; NULL: not built yet */
    unsigned lookups;
} tp_reader_shared;

struct tp_reader {
    tp_input input;
    char *path; /* base name of a plain checkpoint */
    bool is_container;
    tp_container container;
    tp_layout layout; /* of a plain checkpoint */
    tp_reader_shared *shared;
};

#endif
