/*
 * A folder as an output. It is built under `.NAME.tpress-XXXXXX` next to its place, where nobody else may
 * enter, and gets modes and name when all of it is there: so it appears whole or not at all. It replaces
 * nothing but, with force, an empty folder.
 */
#ifndef TP_CONVERT_FOLDER_H
#define TP_CONVERT_FOLDER_H

#include "convert/place.h"
#include "convert/progress.h"

typedef struct tp_folder {
    tp_place place;
    char *temporary; /* name in the place's folder until all is there; NULL before and after */
    int fd;          /* of the folder */
    mode_t mode;     /* what it gets at the end: the mode of any new folder here */
    bool force;
    char *path;               /* as given, without slashes at its end */
    char name[TP_SHOWN_PATH]; /* the same for messages */
} tp_folder;

/* Makes the temporary folder. TP_EXISTS, TP_INVALID_ARGUMENT (something that is never replaced), TP_IO, ...
 */
tp_status tp_folder_open(tp_folder *folder, const char *path, bool force, tp_error *error);
/* TP_NO_SPACE if the file system has less left. */
tp_status tp_folder_reserve(const tp_folder *folder, uint64_t entries, uint64_t bytes, tp_error *error);

/*
 * Make an entry, whose folder must be there; `path` within the folder ends in a NUL. A file has its final
 * size (a hole) then; *fd is open for writing.
 */
tp_status tp_folder_make_folder(const tp_folder *folder, const char *path, tp_error *error);
tp_status tp_folder_make_file(const tp_folder *folder, const char *path, uint64_t size, int *fd,
                              tp_error *error);
/* A file is whole: gives it its permission bits and closes it, also on an error. `name` in messages. */
tp_status tp_folder_end_file(int fd, uint16_t mode, const char *name, tp_error *error);
/* Permission bits of a folder in it, when nothing more is made there. */
tp_status tp_folder_set_mode(const tp_folder *folder, const char *path, uint16_t mode, tp_error *error);
/* Takes back an entry; of a folder all that was in it is gone already. Failures are ignored. */
void tp_folder_remove(const tp_folder *folder, const char *path, bool is_folder);

/* Syncs all of it and gives it its name. TP_EXISTS if somebody was faster. */
tp_status tp_folder_commit(tp_folder *folder, tp_error *error);
/* Releases everything; the temporary folder, empty again, is removed. */
void tp_folder_close(tp_folder *folder);

#endif
