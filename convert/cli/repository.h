/*
 * A model repository: a folder, or a container of one. Where what it says of its own shards (an index of
 * safetensors, the names and keys of a split GGUF) and the shards themselves disagree, a warning says so.
 */
#ifndef TP_CLI_REPOSITORY_H
#define TP_CLI_REPOSITORY_H

#include "convert/open.h"

struct repository {
    const char *name;     /* for messages */
    const tp_tree *tree;  /* a folder; NULL: */
    tp_reader *container; /* a container */
};

size_t repository_entries(const struct repository *repository);
/* The path of an entry; whether it is a file. */
tp_text repository_path(const struct repository *repository, size_t entry);
bool repository_is_file(const struct repository *repository, size_t entry);

/* A file: the reader that knows it, and its number there. */
tp_status repository_open(const struct repository *repository, size_t entry, tp_reader **reader,
                          size_t *file, tp_error *error);
void repository_close(const struct repository *repository, tp_reader *reader);

/* Looks at every index and every split, and warns with one line for each that disagrees. EXIT_OK, or the
 * status of an error that has been printed. */
int repository_check(const struct repository *repository);

#endif
