/* Ways to open a tp_reader beyond the public ones. */
#ifndef TP_CONVERT_OPEN_H
#define TP_CONVERT_OPEN_H

#include "convert/tree.h"

/*
 * Opens a file of a folder as it is stored in a container: by its format, and as bytes if it is a container
 * itself. Its stored path is the one in the folder.
 */
tp_status tp_open_in_tree(const tp_tree *tree, size_t entry, tp_reader **reader, tp_error *error);

/* A source over one file of a reader, which may be a container. Both must outlive it. */
typedef struct tp_reader_file_source {
    tp_reader *reader;
    size_t file;
} tp_reader_file_source;
tp_source tp_source_reader(tp_reader_file_source *of, const char *name);

#endif
