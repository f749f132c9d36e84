#include "convert/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

tp_status tp_place_open(tp_place *place, const char *path, const char *name, tp_error *error)
{
    const char *base = tp_text_base(path);
    *place = (tp_place){.folder = -1, .name = name};
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            *path ? "%s: is a folder; name a file in it" : "%s: the output's name is empty",
                            name);
    place->final = strdup(base);
    char *folder = base > path ? strndup(path, (size_t)(base - path)) : strdup(".");
    if (!place->final || !folder) {
        free(folder);
        tp_place_close(place);
        return tp_error_memory(error);
    }
    do place->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (place->folder < 0 && errno == EINTR);
    /* A folder that may be written but not listed can be used, but not synced. */
    if (place->folder < 0 && errno == EACCES)
        place->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int saved = errno;
    free(folder);
    if (place->folder >= 0) return TP_OK;
    tp_place_close(place);
    return tp_error_system(error, saved, "%s: cannot open its folder", name);
}

void tp_place_close(tp_place *place)
{
    if (place->folder >= 0) close(place->folder);
    free(place->final);
    place->folder = -1;
    place->final = NULL;
}

bool tp_place_is_inside(const tp_place *place, const struct stat *folder)
{
    struct stat here, above;
    int fd = openat(place->folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool inside = false, more = fd >= 0 && fstat(fd, &here) == 0;
    while (more) {
        inside = here.st_dev == folder->st_dev && here.st_ino == folder->st_ino;
        int up = inside ? -1 : openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        more =
            up >= 0 && fstat(up, &above) == 0 &&
            (above.st_dev != here.st_dev || above.st_ino != here.st_ino); /* the root is its own parent */
        here = above;
        close(fd);
        fd = up;
    }
    if (fd >= 0) close(fd);
    return inside;
}

tp_status tp_place_temporary(const tp_place *place, char **temporary, tp_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[6];
    char end[7];
    *temporary = NULL;
    ssize_t n;
    do n = getrandom(random, sizeof random, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof random)
        return tp_error_system(error, errno, "%s: no random name", place->name);
    for (size_t i = 0; i < 6; i++) end[i] = letters[random[i] % (sizeof letters - 1)];
    end[6] = 0;
    size_t size = strlen(place->final) + sizeof "..tpress-XXXXXX";
    char *name = malloc(size);
    if (!name) return tp_error_memory(error);
    snprintf(name, size, ".%.*s.tpress-%s", NAME_MAX - 15, place->final, end);
    *temporary = name;
    return TP_OK;
}

bool tp_place_rename(const tp_place *place, const char *temporary, bool is_folder)
{
    if (renameat2(place->folder, temporary, place->folder, place->final, RENAME_NOREPLACE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS) return false;
    if (is_folder) {
        struct stat s;
        if (fstatat(place->folder, place->final, &s, AT_SYMLINK_NOFOLLOW) == 0) {
            errno = EEXIST;
            return false;
        }
        return renameat(place->folder, temporary, place->folder, place->final) == 0;
    }
    if (linkat(place->folder, temporary, place->folder, place->final, 0) != 0) return false;
    unlinkat(place->folder, temporary, 0);
    return true;
}

void tp_descriptor_path(int fd, char path[TP_DESCRIPTOR_PATH])
{
    snprintf(path, TP_DESCRIPTOR_PATH, "/proc/self/fd/%d", fd);
}

bool tp_sync(int fd)
{
    int result;
    do result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

tp_status tp_place_sync(const tp_place *place, tp_error *error)
{
    if (tp_sync(place->folder) || errno == EINVAL || errno == EBADF || errno == EROFS) return TP_OK;
    return tp_error_system(error, errno, "%s: is complete, but its folder cannot be synced", place->name);
}
