/*
 * A folder as an input: everything in it, listed once in the byte order of the paths, so that a folder
 * stands before what is in it. Links to files count as the files; what is neither file nor folder is an
 * error.
 *
 * Only paths and properties are kept, and one descriptor is open: that of the folder itself. What was read
 * is what was listed: a file is opened only if it still is the one listed, and at the end the folder is
 * listed again.
 */
#ifndef TP_CONVERT_TREE_H
#define TP_CONVERT_TREE_H

#include "convert/index.h"
#include "convert/input.h"

typedef struct tp_tree_entry {
    uint64_t path;          /* where it starts in tree->paths; it ends in a NUL */
    uint64_t size;          /* of a file */
    uint64_t device, inode; /* of a file */
    int64_t seconds;        /* of a file: when it was changed last */
    uint32_t nanoseconds;
    uint16_t mode; /* permission bits, 0777 */
    bool folder;
} tp_tree_entry;

typedef struct tp_tree {
    int fd;
    bool owned;
    char *name; /* the folder's, as given but without slashes at its end */
    tp_tree_entry *entries;
    size_t count, capacity;
    char *paths;
    size_t path_size, path_capacity;
    uint64_t files, size; /* number of files, and their bytes together */
} tp_tree;

/*
 * Opens the folder `path`, or takes the descriptor fd >= 0 of one, which stays the caller's (path is then
 * its name), and lists it. progress may be NULL. TP_IO (also for what cannot be stored: a link to a folder
 * or to nothing, a FIFO, a socket, a device), TP_LIMIT (a path too long), TP_NO_MEMORY, TP_CANCELLED.
 */
tp_status tp_tree_open(tp_tree *tree, const char *path, int fd, tp_progress *progress, tp_error *error);
void tp_tree_close(tp_tree *tree);

/* Lists the folder again: TP_IO if it is not as it was. */
tp_status tp_tree_unchanged(const tp_tree *tree, tp_progress *progress, tp_error *error);

/* The path of an entry within the folder. */
static inline const char *tp_tree_path(const tp_tree *tree, size_t entry)
{
    return tree->paths + tree->entries[entry].path;
}

/* Opens a file of the folder. TP_IO, also if its size or time is no longer what was listed. */
tp_status tp_tree_open_file(const tp_tree *tree, size_t entry, tp_input *input, tp_error *error);

#endif
