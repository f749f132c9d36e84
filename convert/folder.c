#include "convert/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TEMPORARY_TRIES 100
/* Until the end nobody else can put something into the folder, or a link in the way. */
#define PRIVATE 0700

static tp_status entry_error(const tp_folder *folder, const char *path, int errnum, const char *what,
                             tp_error *error)
{
    char shown[TP_SHOWN_PATH];
    return tp_error_system(error, errnum, "%s: %s", tp_text_join(folder->path, path, shown), what);
}

/* ------------------------------------------------------------------------------------------- place */

/* 1: holds nothing, 0: holds something, -1: cannot be read (errno). */
static int is_empty(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), empty = 1;
    if (fd < 0) return -1;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return -1;
    }
    errno = 0;
    for (const struct dirent *e; empty == 1 && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) empty = 0;
    if (empty == 1 && errno != 0) empty = -1;
    closedir(d);
    return empty;
}

static tp_status not_empty(const tp_folder *folder, tp_error *error)
{
    return tp_error_set(error, TP_INVALID_ARGUMENT,
                        "%s: is a folder that is not empty, which is never replaced; choose another name",
                        folder->name);
}

/* What may stand at the final name: nothing, or with force an empty folder. */
static tp_status check_final(const tp_folder *folder, tp_error *error)
{
    struct stat s;
    if (fstatat(folder->place.folder, folder->place.final, &s, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return TP_OK;
        return tp_error_system(error, errno, "%s: cannot create", folder->name);
    }
    if (!S_ISDIR(s.st_mode))
        return tp_error_set(
            error, TP_INVALID_ARGUMENT,
            "%s: exists and is no folder, which is never replaced by one; choose another name",
            folder->name);
    int empty = is_empty(folder->place.folder, folder->place.final);
    if (empty < 0) return tp_error_system(error, errno, "%s: cannot read", folder->name);
    if (!empty) return not_empty(folder, error);
    if (folder->force) return TP_OK;
    return tp_error_set(error, TP_EXISTS, "%s: exists already; choose another name or force it",
                        folder->name);
}

static tp_status make_temporary(tp_folder *folder, tp_error *error)
{
    for (int tries = 0; tries < TEMPORARY_TRIES; tries++) {
        char *name;
        tp_status status = tp_place_temporary(&folder->place, &name, error);
        if (status != TP_OK) return status;
        if (mkdirat(folder->place.folder, name, PRIVATE) == 0) {
            folder->temporary = name;
            return TP_OK;
        }
        free(name);
        if (errno != EEXIST) break;
    }
    return tp_error_system(error, errno, "%s: cannot create", folder->name);
}

/* The mode that a folder made here in the ordinary way gets. (umask could only be asked by changing it.) */
static tp_status find_mode(tp_folder *folder, tp_error *error)
{
    static const char probe[] = "mode";
    struct stat s;
    if (mkdirat(folder->fd, probe, 0777) != 0)
        return tp_error_system(error, errno, "%s: cannot create", folder->name);
    bool known = fstatat(folder->fd, probe, &s, AT_SYMLINK_NOFOLLOW) == 0;
    if (unlinkat(folder->fd, probe, AT_REMOVEDIR) != 0 || !known)
        return tp_error_system(error, errno, "%s: cannot create", folder->name);
    folder->mode = s.st_mode & 07777;
    return TP_OK;
}

tp_status tp_folder_open(tp_folder *folder, const char *path, bool force, tp_error *error)
{
    memset(folder, 0, sizeof *folder);
    folder->fd = folder->place.folder = -1;
    folder->force = force;
    /* "dir/" is "dir". */
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--;
    folder->path = strndup(path, size);
    if (!folder->path) return tp_error_memory(error);
    tp_status status =
        tp_place_open(&folder->place, folder->path, tp_text_path(folder->path, folder->name), error);
    if (status == TP_OK) status = check_final(folder, error);
    if (status == TP_OK) status = make_temporary(folder, error);
    if (status == TP_OK) {
        do
            folder->fd = openat(folder->place.folder, folder->temporary,
                                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        while (folder->fd < 0 && errno == EINTR);
        if (folder->fd < 0) status = tp_error_system(error, errno, "%s: cannot open", folder->name);
    }
    if (status == TP_OK) status = find_mode(folder, error);
    if (status != TP_OK) tp_folder_close(folder);
    return status;
}

tp_status tp_folder_reserve(const tp_folder *folder, uint64_t entries, uint64_t bytes, tp_error *error)
{
    struct statvfs v;
    if (fstatvfs(folder->fd, &v) != 0) return TP_OK; /* writing will tell */
    if (v.f_blocks > 0 && v.f_frsize > 0 && bytes / v.f_frsize > v.f_bavail)
        return tp_error_set(error, TP_NO_SPACE, "%s: needs %llu bytes, but only %llu are free",
                            folder->name, (unsigned long long)bytes,
                            (unsigned long long)v.f_bavail * v.f_frsize);
    if (v.f_files > 0 && entries > v.f_favail)
        return tp_error_set(error, TP_NO_SPACE,
                            "%s: needs %llu files and folders, but the file system has room for %llu",
                            folder->name, (unsigned long long)entries, (unsigned long long)v.f_favail);
    return TP_OK;
}

/* ----------------------------------------------------------------------------------------- entries */

tp_status tp_folder_make_folder(const tp_folder *folder, const char *path, tp_error *error)
{
    if (mkdirat(folder->fd, path, PRIVATE) == 0) return TP_OK;
    return entry_error(folder, path, errno, "cannot create", error);
}

tp_status tp_folder_make_file(const tp_folder *folder, const char *path, uint64_t size, int *fd,
                              tp_error *error)
{
    do *fd = openat(folder->fd, path, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return entry_error(folder, path, errno, "cannot create", error);
    int result = -1;
    if (size <= INT64_MAX) {
        do result = ftruncate(*fd, (off_t)size);
        while (result != 0 && errno == EINTR);
    }
    if (result == 0) return TP_OK;
    int saved = size <= INT64_MAX ? errno : EFBIG;
    close(*fd);
    tp_folder_remove(folder, path, false);
    *fd = -1;
    return entry_error(folder, path, saved, "cannot write", error);
}

tp_status tp_folder_end_file(int fd, uint16_t mode, const char *name, tp_error *error)
{
    int saved = fchmod(fd, mode) == 0 ? 0 : errno;
    /* Network file systems tell of failed writes here. */
    if (close(fd) != 0 && errno != EINTR && saved == 0) saved = errno;
    return saved == 0 ? TP_OK : tp_error_system(error, saved, "%s: cannot write", name);
}

tp_status tp_folder_set_mode(const tp_folder *folder, const char *path, uint16_t mode, tp_error *error)
{
    /* A folder here inherits the set-group-ID bit, if there is one. */
    if (fchmodat(folder->fd, path, mode | (folder->mode & S_ISGID), 0) == 0) return TP_OK;
    return entry_error(folder, path, errno, "cannot set its permissions", error);
}

void tp_folder_remove(const tp_folder *folder, const char *path, bool is_folder)
{
    unlinkat(folder->fd, path, is_folder ? AT_REMOVEDIR : 0);
}

/* ------------------------------------------------------------------------------------------ ending */

/* With force the rename itself replaces an empty folder, and nothing else. */
static bool publish(const tp_folder *folder)
{
    const tp_place *place = &folder->place;
    if (!folder->force) return tp_place_rename(place, folder->temporary, true);
    return renameat(place->folder, folder->temporary, place->folder, place->final) == 0;
}

tp_status tp_folder_commit(tp_folder *folder, tp_error *error)
{
    if (fchmod(folder->fd, folder->mode) != 0)
        return tp_error_system(error, errno, "%s: cannot set its permissions", folder->name);
    /* One call instead of one for each of perhaps many thousand files. */
    if (syncfs(folder->fd) != 0) return tp_error_system(error, errno, "%s: cannot write", folder->name);
    if (!publish(folder)) {
        if (errno == ENOTEMPTY || (errno == EEXIST && folder->force)) return not_empty(folder, error);
        if (errno == EEXIST || errno == ENOTDIR)
            return tp_error_set(error, TP_EXISTS, "%s: exists already; choose another name or force it",
                                folder->name);
        return tp_error_system(error, errno, "%s: cannot create", folder->name);
    }
    free(folder->temporary); /* nothing to remove from here on */
    folder->temporary = NULL;
    return tp_place_sync(&folder->place, error);
}

void tp_folder_close(tp_folder *folder)
{
    if (folder->fd >= 0) close(folder->fd);
    if (folder->temporary) unlinkat(folder->place.folder, folder->temporary, AT_REMOVEDIR);
    free(folder->temporary);
    free(folder->path);
    folder->temporary = folder->path = NULL;
    folder->fd = -1;
    tp_place_close(&folder->place);
}
