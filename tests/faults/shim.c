/*
 * A library to preload that lets one system call fail, or all from a certain one on.
 *
 *   TP_FAULT=CALL:N:WHAT      what happens at the N-th CALL that the program makes
 *   TP_FAULT=CALL:N+:WHAT     at this one and all after it
 *   TP_FAULT=CALL:N%STEP:WHAT at this one and each STEP-th after it
 *   TP_FAULT_PATH=PATH        what `truncate`, `change`, `add` and `remove` work on
 *   TP_FAULT_NO_TMPFILE=1     the file system has no unnamed files
 *   TP_FAULT_REPORT=PATH      at the end of main: how often each call was made, how often the fault struck,
 * and what the program itself has allocated and not freed
 *
 * CALL is one of call_names below; those of one purpose share a name (`stat` is also fstat, lstat,
 * fstatat). WHAT is an errno's name; `short` (half of the bytes); a signal: `kill`, `int`, `term`; or a
 * change made behind the program's back just before the call. Calls before main, from inside of libc, and
 * to stderr do not count.
 *
 * Linux with glibc, 64 bits: there off_t and off64_t, open and open64 are the same.
 */
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* clang-format off */
#define CALLS(X)                                                                                           \
    X(open) X(openat) X(tmpfile) X(read) X(pread) X(write) X(pwrite) X(fsync) X(fsync_folder) X(syncfs)    \
    X(ftruncate) X(fallocate) X(linkat) X(renameat) X(renameat2) X(unlinkat) X(mkdirat) X(fchmod)          \
    X(fchmodat) X(close) X(stat) X(statvfs) X(fdopendir) X(readdir) X(access) X(lseek) X(poll)             \
    X(getrandom) X(thread) X(malloc)
/* clang-format on */

enum call {
#define AS_ENUM(name) C_##name,
    CALLS(AS_ENUM) CALL_COUNT
};
static const char *const call_names[] = {
#define AS_NAME(name) #name,
    CALLS(AS_NAME)};

enum { DO_SHORT = -1, DO_TRUNCATE = -2, DO_CHANGE = -3, DO_ADD = -4, DO_REMOVE = -5, DO_SIGNAL = -100 };

static const struct {
    const char *name;
    int what;
} actions[] = {{"EIO", EIO},
               {"ENOSPC", ENOSPC},
               {"EINTR", EINTR},
               {"ENOMEM", ENOMEM},
               {"EMFILE", EMFILE},
               {"EFBIG", EFBIG},
               {"EDQUOT", EDQUOT},
               {"EROFS", EROFS},
               {"EACCES", EACCES},
               {"EPERM", EPERM},
               {"EINVAL", EINVAL},
               {"EAGAIN", EAGAIN},
               {"ENOSYS", ENOSYS},
               {"short", DO_SHORT},
               {"kill", DO_SIGNAL - SIGKILL},
               {"int", DO_SIGNAL - SIGINT},
               {"term", DO_SIGNAL - SIGTERM},
               {"truncate", DO_TRUNCATE},
               {"change", DO_CHANGE},
               {"add", DO_ADD},
               {"remove", DO_REMOVE}};

static atomic_bool active;
static atomic_ulong counts[CALL_COUNT], hits;
static struct {
    int call, what;
    unsigned long first, step; /* step 0: only the first */
} fault = {.call = -1};
static const char *victim;
static bool no_tmpfile;

static bool parse(const char *text)
{
    char call[32], what[32];
    size_t length = strcspn(text, ":");
    char *end;
    if (length >= sizeof call || text[length] != ':') return false;
    memcpy(call, text, length);
    call[length] = 0;
    fault.first = strtoul(text + length + 1, &end, 10);
    fault.step = 0;
    if (*end == '+') {
        fault.step = 1;
        end++;
    } else if (*end == '%') {
        fault.step = strtoul(end + 1, &end, 10);
    }
    if (*end != ':' || strlen(end + 1) >= sizeof what) return false;
    strcpy(what, end + 1);
    bool known = false;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(actions[i].name, what) != 0) continue;
        fault.what = actions[i].what;
        known = true;
    }
    for (int i = 0; known && i < CALL_COUNT; i++)
        if (strcmp(call_names[i], call) == 0) fault.call = i;
    return fault.call >= 0;
}

/* ------------------------------------------------------------------------------------------ faults */

static void behind_the_back(void)
{
    int fd;
    if (fault.what == DO_REMOVE) {
        syscall(SYS_unlinkat, AT_FDCWD, victim, 0);
        return;
    }
    fd = (int)syscall(SYS_openat, AT_FDCWD, victim, fault.what == DO_ADD ? O_CREAT | O_WRONLY : O_RDWR,
                      0644);
    if (fd < 0) return;
    struct stat s;
    if (fault.what != DO_ADD && syscall(SYS_fstat, fd, &s) == 0) {
        char byte = 0;
        if (fault.what == DO_TRUNCATE) {
            syscall(SYS_ftruncate, fd, s.st_size / 2);
        } else {
            syscall(SYS_pread64, fd, &byte, 1, s.st_size * 2 / 3);
            byte ^= 1;
            syscall(SYS_pwrite64, fd, &byte, 1, s.st_size * 2 / 3);
        }
    }
    syscall(SYS_close, fd);
}

/* 0: nothing happens to this call; DO_SHORT; or the errno to fail with. */
static int strike(enum call call)
{
    if (!atomic_load(&active)) return 0;
    unsigned long n = atomic_fetch_add(&counts[call], 1) + 1;
    if ((int)call != fault.call || n < fault.first) return 0;
    if (n > fault.first && (fault.step == 0 || (n - fault.first) % fault.step != 0)) return 0;
    atomic_fetch_add(&hits, 1);
    if (fault.what > 0 || fault.what == DO_SHORT) return fault.what;
    if (fault.what <= DO_SIGNAL)
        syscall(SYS_kill, getpid(), DO_SIGNAL - fault.what);
    else if (victim)
        behind_the_back();
    return 0;
}

#define FAIL_AS(call, failure)                                                                             \
    do {                                                                                                   \
        int struck = strike(call);                                                                         \
        if (struck > 0) {                                                                                  \
            errno = struck;                                                                                \
            return failure;                                                                                \
        }                                                                                                  \
    } while (0)

static size_t shortened(int struck, size_t size)
{
    return struck == DO_SHORT && size > 1 ? size / 2 : size;
}

#define REAL(result, name, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

/* -------------------------------------------------------------------------------------------- files */

static int open_common(enum call call, int folder, const char *path, int flags, mode_t mode)
{
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        if (no_tmpfile && atomic_load(&active)) {
            errno = EOPNOTSUPP;
            return -1;
        }
        call = C_tmpfile;
    }
    FAIL_AS(call, -1);
    return (int)syscall(SYS_openat, folder, path, flags | O_LARGEFILE, mode);
}

#define MODE(last)                                                                                         \
    mode_t mode = 0;                                                                                       \
    if (last & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {                                                   \
        va_list args;                                                                                      \
        va_start(args, last);                                                                              \
        mode = va_arg(args, mode_t);                                                                       \
        va_end(args);                                                                                      \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags);
    return open_common(C_open, AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...)
{
    MODE(flags);
    return open_common(C_open, AT_FDCWD, path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags);
    return open_common(C_openat, folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags);
    return open_common(C_openat, folder, path, flags, mode);
}
/* As fortified programs call them. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open_common(C_open, AT_FDCWD, path, flags, 0);
}
int __open64_2(const char *path, int flags);
int __open64_2(const char *path, int flags)
{
    return open_common(C_open, AT_FDCWD, path, flags, 0);
}
int __openat_2(int folder, const char *path, int flags);
int __openat_2(int folder, const char *path, int flags)
{
    return open_common(C_openat, folder, path, flags, 0);
}
int __openat64_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags)
{
    return open_common(C_openat, folder, path, flags, 0);
}

#define TRANSFER(call, number, ...)                                                                        \
    int struck = strike(call);                                                                             \
    if (struck > 0) {                                                                                      \
        errno = struck;                                                                                    \
        return -1;                                                                                         \
    }                                                                                                      \
    return (ssize_t)syscall(number, fd, data, shortened(struck, size) __VA_ARGS__)

ssize_t read(int fd, void *data, size_t size)
{
    TRANSFER(C_read, SYS_read, );
}
ssize_t __read_chk(int fd, void *data, size_t size, size_t capacity);
ssize_t __read_chk(int fd, void *data, size_t size, size_t capacity)
{
    (void)capacity;
    return read(fd, data, size);
}
ssize_t write(int fd, const void *data, size_t size)
{
    if (fd == STDERR_FILENO) return (ssize_t)syscall(SYS_write, fd, data, size);
    TRANSFER(C_write, SYS_write, );
}
ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    TRANSFER(C_pread, SYS_pread64, , offset);
}
ssize_t pread64(int fd, void *data, size_t size, off_t offset)
{
    TRANSFER(C_pread, SYS_pread64, , offset);
}
ssize_t __pread64_chk(int fd, void *data, size_t size, off_t offset, size_t capacity);
ssize_t __pread64_chk(int fd, void *data, size_t size, off_t offset, size_t capacity)
{
    (void)capacity;
    return pread(fd, data, size, offset);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    TRANSFER(C_pwrite, SYS_pwrite64, , offset);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    TRANSFER(C_pwrite, SYS_pwrite64, , offset);
}

/* Whatever close says, the descriptor is gone. */
int close(int fd)
{
    int struck = strike(C_close), result = (int)syscall(SYS_close, fd);
    if (struck <= 0) return result;
    errno = struck;
    return -1;
}

#define SIMPLE(type, name, call, parameters, ...)                                                          \
    type name parameters                                                                                   \
    {                                                                                                      \
        FAIL_AS(call, -1);                                                                                 \
        return (type)syscall(__VA_ARGS__);                                                                 \
    }

int fsync(int fd)
{
    struct stat s;
    bool folder = syscall(SYS_fstat, fd, &s) == 0 && S_ISDIR(s.st_mode);
    FAIL_AS(folder ? C_fsync_folder : C_fsync, -1);
    return (int)syscall(SYS_fsync, fd);
}
SIMPLE(int, fdatasync, C_fsync, (int fd), SYS_fdatasync, fd)
SIMPLE(int, syncfs, C_syncfs, (int fd), SYS_syncfs, fd)
SIMPLE(int, ftruncate, C_ftruncate, (int fd, off_t size), SYS_ftruncate, fd, size)
SIMPLE(int, ftruncate64, C_ftruncate, (int fd, off_t size), SYS_ftruncate, fd, size)
SIMPLE(int, fallocate, C_fallocate, (int fd, int mode, off_t at, off_t size), SYS_fallocate, fd, mode, at,
       size)
SIMPLE(int, fallocate64, C_fallocate, (int fd, int mode, off_t at, off_t size), SYS_fallocate, fd, mode, at,
       size)
SIMPLE(int, linkat, C_linkat, (int a, const char *from, int b, const char *to, int flags), SYS_linkat, a,
       from, b, to, flags)
SIMPLE(int, renameat, C_renameat, (int a, const char *from, int b, const char *to), SYS_renameat2, a, from,
       b, to, 0)
SIMPLE(int, renameat2, C_renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
       SYS_renameat2, a, from, b, to, flags)
SIMPLE(int, unlinkat, C_unlinkat, (int folder, const char *path, int flags), SYS_unlinkat, folder, path,
       flags)
SIMPLE(int, unlink, C_unlinkat, (const char *path), SYS_unlinkat, AT_FDCWD, path, 0)
SIMPLE(int, mkdirat, C_mkdirat, (int folder, const char *path, mode_t mode), SYS_mkdirat, folder, path,
       mode)
SIMPLE(int, fchmod, C_fchmod, (int fd, mode_t mode), SYS_fchmod, fd, mode)
SIMPLE(off_t, lseek, C_lseek, (int fd, off_t at, int whence), SYS_lseek, fd, at, whence)
SIMPLE(off_t, lseek64, C_lseek, (int fd, off_t at, int whence), SYS_lseek, fd, at, whence)
SIMPLE(ssize_t, getrandom, C_getrandom, (void *data, size_t size, unsigned flags), SYS_getrandom, data,
       size, flags)

int fchmodat(int folder, const char *path, mode_t mode, int flags)
{
    FAIL_AS(C_fchmodat, -1);
    return REAL(int, "fchmodat", int, const char *, mode_t, int)(folder, path, mode, flags);
}
int access(const char *path, int mode)
{
    FAIL_AS(C_access, -1);
    return REAL(int, "access", const char *, int)(path, mode);
}
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    FAIL_AS(C_poll, -1);
    return REAL(int, "poll", struct pollfd *, nfds_t, int)(fds, count, timeout);
}

#define STAT(name, type, parameters, ...)                                                                  \
    int name parameters                                                                                    \
    {                                                                                                      \
        FAIL_AS(C_stat, -1);                                                                               \
        return (int)syscall(__VA_ARGS__);                                                                  \
    }
STAT(stat, stat, (const char *path, struct stat *s), SYS_newfstatat, AT_FDCWD, path, s, 0)
STAT(stat64, stat64, (const char *path, struct stat64 *s), SYS_newfstatat, AT_FDCWD, path, s, 0)
STAT(lstat, stat, (const char *path, struct stat *s), SYS_newfstatat, AT_FDCWD, path, s,
     AT_SYMLINK_NOFOLLOW)
STAT(lstat64, stat64, (const char *path, struct stat64 *s), SYS_newfstatat, AT_FDCWD, path, s,
     AT_SYMLINK_NOFOLLOW)
STAT(fstat, stat, (int fd, struct stat *s), SYS_fstat, fd, s)
STAT(fstat64, stat64, (int fd, struct stat64 *s), SYS_fstat, fd, s)
STAT(fstatat, stat, (int at, const char *path, struct stat *s, int flags), SYS_newfstatat, at, path, s,
     flags)
STAT(fstatat64, stat64, (int at, const char *path, struct stat64 *s, int flags), SYS_newfstatat, at, path,
     s, flags)

int fstatvfs(int fd, struct statvfs *s)
{
    FAIL_AS(C_statvfs, -1);
    return REAL(int, "fstatvfs", int, struct statvfs *)(fd, s);
}
int fstatvfs64(int fd, struct statvfs64 *s)
{
    FAIL_AS(C_statvfs, -1);
    return REAL(int, "fstatvfs64", int, struct statvfs64 *)(fd, s);
}
DIR *fdopendir(int fd)
{
    FAIL_AS(C_fdopendir, NULL);
    return REAL(DIR *, "fdopendir", int)(fd);
}
struct dirent *readdir(DIR *d)
{
    FAIL_AS(C_readdir, NULL);
    return REAL(struct dirent *, "readdir", DIR *)(d);
}
struct dirent64 *readdir64(DIR *d)
{
    FAIL_AS(C_readdir, NULL);
    return REAL(struct dirent64 *, "readdir64", DIR *)(d);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument)
{
    int struck = strike(C_thread);
    if (struck > 0) return struck;
    return REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *),
                void *)(thread, attributes, start, argument);
}

/* ------------------------------------------------------------------------------------------- memory */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

/* What the program itself, not a library, has allocated: open addressing; a freed entry keeps its place. */
#define TRACKED ((size_t)1 << 16)
static struct {
    uintptr_t memory, caller;
} tracked[TRACKED];
#define FREED ((uintptr_t)1)
static pthread_mutex_t tracked_lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t program_base, program_start, program_end;

static size_t place_of(uintptr_t memory)
{
    return (size_t)((memory >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 48) % TRACKED;
}

static void *track(void *memory, const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (!memory || !atomic_load(&active) || from < program_start || from >= program_end) return memory;
    pthread_mutex_lock(&tracked_lock);
    for (size_t i = 0, at = place_of((uintptr_t)memory); i < TRACKED; i++, at = (at + 1) % TRACKED) {
        if (tracked[at].memory > FREED) continue;
        tracked[at].memory = (uintptr_t)memory;
        tracked[at].caller = from;
        break;
    }
    pthread_mutex_unlock(&tracked_lock);
    return memory;
}

static void forget(const void *memory)
{
    if (!memory || program_end == 0) return;
    pthread_mutex_lock(&tracked_lock);
    for (size_t i = 0, at = place_of((uintptr_t)memory); i < TRACKED; i++, at = (at + 1) % TRACKED) {
        if (tracked[at].memory == 0) break;
        if (tracked[at].memory != (uintptr_t)memory) continue;
        tracked[at].memory = FREED;
        break;
    }
    pthread_mutex_unlock(&tracked_lock);
}

void *malloc(size_t size)
{
    FAIL_AS(C_malloc, NULL);
    return track(__libc_malloc(size), __builtin_return_address(0));
}
void *calloc(size_t count, size_t size)
{
    FAIL_AS(C_malloc, NULL);
    return track(__libc_calloc(count, size), __builtin_return_address(0));
}
void *realloc(void *old, size_t size)
{
    FAIL_AS(C_malloc, NULL);
    /* Forgotten first: once it is free, another thread may get it, and that entry must stay. */
    forget(old);
    void *memory = __libc_realloc(old, size);
    track(memory || size == 0 ? memory : old, __builtin_return_address(0));
    return memory;
}
void *aligned_alloc(size_t alignment, size_t size)
{
    FAIL_AS(C_malloc, NULL);
    return track(__libc_memalign(alignment, size), __builtin_return_address(0));
}
int posix_memalign(void **memory, size_t alignment, size_t size)
{
    int struck = strike(C_malloc);
    if (struck > 0) return struck;
    void *got = track(__libc_memalign(alignment, size), __builtin_return_address(0));
    if (!got) return ENOMEM;
    *memory = got;
    return 0;
}
char *strndup(const char *text, size_t most)
{
    FAIL_AS(C_malloc, NULL);
    size_t size = strnlen(text, most);
    char *copy = track(__libc_malloc(size + 1), __builtin_return_address(0));
    if (!copy) return NULL;
    memcpy(copy, text, size);
    copy[size] = 0;
    return copy;
}
char *strdup(const char *text)
{
    FAIL_AS(C_malloc, NULL);
    size_t size = strlen(text) + 1;
    char *copy = track(__libc_malloc(size), __builtin_return_address(0));
    return copy ? memcpy(copy, text, size) : NULL;
}
void free(void *memory)
{
    forget(memory);
    __libc_free(memory);
}

/* --------------------------------------------------------------------------------------------- main */

static int first_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                  to = from + info->dlpi_phdr[i].p_memsz;
        if (from < start) start = from;
        if (to > end) end = to;
    }
    program_base = info->dlpi_addr;
    program_start = start;
    program_end = end;
    return 1; /* the program itself comes first */
}

static void report(const char *path)
{
    char line[96];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644), n;
    if (fd < 0) return;
    for (int i = 0; i < CALL_COUNT; i++) {
        n = snprintf(line, sizeof line, "%s %lu\n", call_names[i], atomic_load(&counts[i]));
        syscall(SYS_write, fd, line, n);
    }
    n = snprintf(line, sizeof line, "hits %lu\n", atomic_load(&hits));
    syscall(SYS_write, fd, line, n);
    for (size_t i = 0; i < TRACKED; i++) {
        if (tracked[i].memory <= FREED) continue;
        n = snprintf(line, sizeof line, "leak 0x%lx\n", (unsigned long)(tracked[i].caller - program_base));
        syscall(SYS_write, fd, line, n);
    }
    syscall(SYS_close, fd);
}

static int (*program_main)(int, char **, char **);

static int run_main(int argc, char **argv, char **environment)
{
    const char *text = getenv("TP_FAULT"), *to = getenv("TP_FAULT_REPORT");
    victim = getenv("TP_FAULT_PATH");
    no_tmpfile = getenv("TP_FAULT_NO_TMPFILE") != NULL;
    if (text && !parse(text)) {
        static const char message[] = "shim: TP_FAULT is not CALL:N[+]:WHAT\n";
        syscall(SYS_write, STDERR_FILENO, message, sizeof message - 1);
        _exit(125);
    }
    dl_iterate_phdr(first_object, NULL);
    atomic_store(&active, true);
    int status = program_main(argc, argv, environment);
    atomic_store(&active, false);
    if (to) report(to);
    return status;
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack)
{
    program_main = main;
    return REAL(int, "__libc_start_main", int (*)(int, char **, char **), int, char **, void (*)(void),
                void (*)(void), void (*)(void),
                void *)(run_main, argc, argv, init, fini, loader_fini, stack);
}
