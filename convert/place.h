/* Where an output goes: a name in an open folder. Shared by files (output.h) and folders (folder.h). */
#ifndef TP_CONVERT_PLACE_H
#define TP_CONVERT_PLACE_H

#include <sys/stat.h>

#include "convert/text.h"

typedef struct tp_place {
    int folder;       /* open; -1: none */
    char *final;      /* the name in it */
    const char *name; /* the whole path, for messages; the caller's */
} tp_place;

/* TP_INVALID_ARGUMENT (no name in it), TP_IO, TP_NO_MEMORY. The place is empty then. */
tp_status tp_place_open(tp_place *place, const char *path, const char *name, tp_error *error);
void tp_place_close(tp_place *place);

/* Whether the place lies in this folder, at any depth. */
bool tp_place_is_inside(const tp_place *place, const struct stat *folder);

/*
 * A name for the time until the output is whole, which no other process will choose; from malloc. The shown
 * part is cut so that it stays a valid name.
 */
tp_status tp_place_temporary(const tp_place *place, char **temporary, tp_error *error);

/*
 * Renames within the folder without replacing anything: errno, EEXIST if there is something. Where the file
 * system cannot do that, a folder might replace one that is empty.
 */
bool tp_place_rename(const tp_place *place, const char *temporary, bool is_folder);
/* The path of an open file, by which it can be linked or opened again whatever its name is. Needs /proc. */
#define TP_DESCRIPTOR_PATH 32
void tp_descriptor_path(int fd, char path[TP_DESCRIPTOR_PATH]);
/* fsync, once more where a signal comes between; errno. */
bool tp_sync(int fd);
/* Syncs the folder, as far as it can be. TP_IO. */
tp_status tp_place_sync(const tp_place *place, tp_error *error);

#endif
