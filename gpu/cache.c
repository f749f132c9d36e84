#include "gpu/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/hash.h"

#define MAX_PATH 4096

void tp_cache_key_of(const tp_cache_key *parts, size_t count, uint64_t key[2])
{
    tp_hasher hasher;
    tp_hasher_init(&hasher);
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = parts[i].size; /* so that no two lists of parts look the same */
        tp_hasher_add(&hasher, &size, sizeof size);
        tp_hasher_add(&hasher, parts[i].data, parts[i].size);
    }
    tp_hasher_end(&hasher, key);
}

/* $XDG_CACHE_HOME/tensorpress or ~/.cache/tensorpress. False where there is neither. */
static bool folder(char path[MAX_PATH], bool create)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (base && base[0] == '/')
        length = snprintf(path, MAX_PATH, "%s", base);
    else if (home && home[0] == '/')
        length = snprintf(path, MAX_PATH, "%s/.cache", home);
    if (length < 0 || length > MAX_PATH - 100) return false;
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST) return false;
    strcat(path, "/tensorpress");
    return !create || mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool entry_path(char path[MAX_PATH], const uint64_t key[2], bool create)
{
    if (!folder(path, create)) return false;
    const size_t length = strlen(path);
    snprintf(path + length, MAX_PATH - length, "/%016llx%016llx.clbin", (unsigned long long)key[1],
             (unsigned long long)key[0]);
    return true;
}

static bool read_all(int fd, void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t n = read(fd, (char *)data + at, size - at);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t n = write(fd, (const char *)data + at, size - at);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

/* An entry is the data's hash, then the data. */
void *tp_cache_load(const uint64_t key[2], size_t limit, size_t *size)
{
    char path[MAX_PATH];
    struct stat stat;
    uint64_t stated[2], actual[2];
    void *data = NULL;
    if (!entry_path(path, key, false)) return NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return NULL;
    /* Code is run from it: it must be a file of this user's own. */
    if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_uid == geteuid() &&
        !(stat.st_mode & 022) && stat.st_size > (off_t)sizeof stated &&
        (uint64_t)stat.st_size - sizeof stated <= limit) {
        *size = (size_t)stat.st_size - sizeof stated;
        data = malloc(*size);
    }
    bool good = data && read_all(fd, stated, sizeof stated) && read_all(fd, data, *size);
    if (good) {
        tp_hash128(data, *size, actual);
        good = actual[0] == stated[0] && actual[1] == stated[1];
    }
    close(fd);
    if (good) return data;
    free(data);
    return NULL;
}

void tp_cache_store(const uint64_t key[2], const void *data, size_t size)
{
    char path[MAX_PATH], temporary[MAX_PATH + 16];
    uint64_t hash[2];
    if (!entry_path(path, key, true)) return;
    snprintf(temporary, sizeof temporary, "%s-XXXXXX", path);
    const int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return;
    tp_hash128(data, size, hash);
    const bool good = write_all(fd, hash, sizeof hash) && write_all(fd, data, size);
    if (close(fd) != 0 || !good || rename(temporary, path) != 0) unlink(temporary);
}
