#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

faults injected = {.write_room = -1, .read_end = -1};

void faults_reset(void)
{
    memset(&injected, 0, sizeof injected);
    injected.write_room = injected.read_end = -1;
}

int __real_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *path, int flags, ...);
int __real_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags);
int __real_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_syncfs(int fd);
int __wrap_syncfs(int fd);
ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __real_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset);
ssize_t __real_pread(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset);

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    if (injected.no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        injected.tmpfile_refused++;
        errno = EOPNOTSUPP;
        return -1;
    }
    if ((flags & O_DIRECT) == O_DIRECT) {
        __atomic_add_fetch(&injected.direct_opened, 1, __ATOMIC_RELAXED);
        if (injected.no_direct) {
            errno = EINVAL;
            return -1;
        }
    }
    size_t size = strlen(path), end = injected.denied ? strlen(injected.denied) : 0;
    if (end > 0 && size >= end && memcmp(path + size - end, injected.denied, end) == 0) {
        errno = EACCES;
        return -1;
    }
    return __real_openat(folder, path, flags, mode);
}

#define WITH_MODE(call)                                                                                    \
    va_list args;                                                                                          \
    va_start(args, flags);                                                                                 \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;                                \
    va_end(args);                                                                                          \
    return call(folder, path, flags, mode)

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    WITH_MODE(open_at);
}
int __wrap_openat64(int folder, const char *path, int flags, ...)
{
    WITH_MODE(open_at);
}

int __wrap_renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (injected.no_noreplace) {
        injected.noreplace_refused++;
        errno = EINVAL;
        return -1;
    }
    return __real_renameat2(from_folder, from, to_folder, to, flags);
}

int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    if (injected.no_link) {
        errno = EPERM;
        return -1;
    }
    return __real_linkat(from_folder, from, to_folder, to, flags);
}

int __wrap_fsync(int fd)
{
    struct stat s;
    if (injected.fsync_errno && fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) {
        errno = injected.fsync_errno;
        return -1;
    }
    return __real_fsync(fd);
}

int __wrap_syncfs(int fd)
{
    if (injected.syncfs_errno) {
        errno = injected.syncfs_errno;
        return -1;
    }
    return __real_syncfs(fd);
}

static bool is_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) == O_DIRECT;
}

/* Every other call is interrupted, the others move a third at most; past the page cache whole sectors. */
static bool interrupted(int fd, size_t *size)
{
    if (!injected.short_io) return false;
    unsigned call = __atomic_add_fetch(&injected.short_calls, 1, __ATOMIC_RELAXED);
    if (call % 2) {
        errno = EINTR;
        return true;
    }
    *size = (*size + 2) / 3;
    if (is_direct(fd)) *size = (*size + 511) / 512 * 512;
    return false;
}

/* Some file systems open a file so and refuse only what is done with it. */
static bool refused(int fd)
{
    if (!is_direct(fd)) return false;
    unsigned call = __atomic_add_fetch(&injected.direct_calls, 1, __ATOMIC_RELAXED);
    if (injected.direct_io == 0 || call <= injected.direct_io) return false;
    errno = EINVAL;
    return true;
}

static bool no_room(size_t *size)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    bool full = false;
    pthread_mutex_lock(&lock);
    if (injected.write_room >= 0) {
        full = injected.write_room == 0;
        if ((int64_t)*size > injected.write_room) *size = (size_t)injected.write_room;
        injected.write_room -= (int64_t)*size;
    }
    pthread_mutex_unlock(&lock);
    if (full) errno = ENOSPC;
    return full;
}

ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    return interrupted(fd, &size) || no_room(&size) ? -1 : __real_write(fd, data, size);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return refused(fd) || interrupted(fd, &size) || no_room(&size) ? -1
                                                                   : __real_pwrite(fd, data, size, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return __wrap_pwrite(fd, data, size, offset);
}

ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset)
{
    if (refused(fd) || interrupted(fd, &size)) return -1;
    if (injected.read_end >= 0) {
        if (offset >= injected.read_end) return 0;
        if ((int64_t)size > injected.read_end - offset) size = (size_t)(injected.read_end - offset);
    }
    return __real_pread(fd, data, size, offset);
}

ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset)
{
    return __wrap_pread(fd, data, size, offset);
}
