#include "convert/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/direct.h"

static tp_status read_error(const tp_input *input, int errnum, uint64_t offset, tp_error *error)
{
    tp_status status = tp_error_system(error, errnum, "%s: cannot read at byte %llu", input->name,
                                       (unsigned long long)offset);
    if (error) {
        error->has_offset = true;
        error->offset = offset;
    }
    return status;
}

/* The callback's own words, if it has any. */
static tp_status call_error(const tp_input *input, int64_t result, uint64_t offset, tp_error *cause,
                            tp_error *error)
{
    int errnum = result < 0 && result >= -4095 ? (int)-result : EIO; /* all that Linux has */
    cause->message[sizeof cause->message - 1] = 0;
    if (!cause->message[0]) return read_error(input, errnum, offset, error);
    tp_status status = cause->status > TP_OK && cause->status < TP_STATUS_COUNT ? cause->status : TP_IO;
    char shown[512]; /* one line, whatever it says */
    tp_error_set_at(error, status, offset, "%s: cannot read at byte %llu: %s", input->name,
                    (unsigned long long)offset,
                    tp_text_escape(cause->message, strlen(cause->message), shown, sizeof shown));
    if (error) error->sys_errno = cause->sys_errno ? cause->sys_errno : errnum;
    return status;
}

/* One read: *n bytes, 0 at the end. */
static tp_status read_some(const tp_input *input, void *dst, size_t size, uint64_t offset, size_t *n,
                           tp_error *error)
{
    if (input->call) {
        tp_error cause = {0};
        int64_t result = input->call(input->call_context, dst, size, offset, &cause);
        if (result < 0) return call_error(input, result, offset, &cause, error);
        if ((uint64_t)result > size)
            return tp_error_set_at(error, TP_IO, offset,
                                   "%s: cannot read at byte %llu: the callback returned %lld of %zu bytes",
                                   input->name, (unsigned long long)offset, (long long)result, size);
        *n = (size_t)result;
        return TP_OK;
    }
    ssize_t result;
    do result = pread(input->fd, dst, size, (off_t)(input->base + offset));
    while (result < 0 && errno == EINTR);
    if (result < 0) return read_error(input, errno, offset, error);
    *n = (size_t)result;
    return TP_OK;
}

static tp_status input_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const tp_input *input = context;
    uint8_t *to = dst;
    if (offset > input->source.size || size > input->source.size - offset)
        return tp_error_set_at(error, TP_TRUNCATED, offset,
                               "%s: ends too early: %llu bytes at byte %llu are beyond its end",
                               input->name, (unsigned long long)size, (unsigned long long)offset);
    while (size > 0) {
        size_t n = 0;
        tp_status status = read_some(input, to, size, offset, &n, error);
        if (status != TP_OK) return status;
        if (n == 0)
            return tp_error_set_at(error, TP_IO, offset,
                                   "%s: changed while it was read: it now ends at byte %llu", input->name,
                                   (unsigned long long)offset);
        to += n;
        offset += n;
        size -= n;
    }
    return TP_OK;
}

/*
 * Past the page cache: the blocks that hold the bytes, at once. `done` of them are read then; where that is
 * too little, the ordinary descriptor goes on.
 */
static tp_status read_blocks(tp_input *input, uint8_t *buffer, size_t size, uint64_t offset, size_t *done,
                             tp_error *error)
{
    *done = 0;
    while (*done < size) {
        ssize_t n = pread(input->direct, buffer + *done, size - *done, (off_t)(offset + *done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && tp_direct_refused(errno)) {
            __atomic_store_n(&input->refused, true, __ATOMIC_RELAXED);
            return TP_OK;
        }
        if (n < 0) return read_error(input, errno, offset + *done, error);
        *done += (size_t)n;
        if (n == 0 || n % TP_DIRECT_ALIGN != 0) return TP_OK;
    }
    return TP_OK;
}

static tp_status input_fetch(void *context, uint8_t *buffer, size_t size, uint64_t offset, uint8_t **data,
                             tp_error *error)
{
    tp_input *input = context;
    size_t before = (size_t)(offset % TP_DIRECT_ALIGN), done = 0;
    *data = buffer + before;
    if (offset <= input->source.size && size <= input->source.size - offset &&
        !__atomic_load_n(&input->refused, __ATOMIC_RELAXED)) {
        size_t blocks = (before + size + TP_DIRECT_ALIGN - 1) / TP_DIRECT_ALIGN * TP_DIRECT_ALIGN;
        tp_status status = read_blocks(input, buffer, blocks, offset - before, &done, error);
        if (status != TP_OK) return status;
        done = done < before ? 0 : done - before < size ? done - before : size;
    }
    return input_read(input, *data + done, size - done, offset + done, error);
}

/* An unlinked file for the contents of a pipe. */
static int open_spool(const char **folder)
{
    *folder = secure_getenv("TMPDIR");
    if (!*folder || !**folder) *folder = "/tmp";
    int fd;
    do fd = open(*folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    while (fd < 0 && errno == EINTR);
    if (fd >= 0) return fd;
    char *path = malloc(strlen(*folder) + 32);
    if (!path) return -1;
    strcpy(path, *folder);
    strcat(path, "/.tensorpress-XXXXXX");
    fd = mkostemp(path, O_CLOEXEC);
    int saved = errno;
    if (fd >= 0) unlink(path);
    free(path);
    errno = saved;
    return fd;
}

static tp_status write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return TP_IO;
        data += n;
        size -= (size_t)n;
    }
    return TP_OK;
}

/* Copies all that comes from input->fd and puts the copy in its place. */
static tp_status spool(tp_input *input, tp_progress *progress, tp_error *error)
{
    const char *folder;
    size_t capacity = (size_t)1 << 20;
    int fd = open_spool(&folder);
    if (fd < 0)
        return tp_error_system(error, errno, "%s: cannot create a temporary file in %s for it", input->name,
                               folder);
    uint8_t *buffer = malloc(capacity);
    tp_status status = buffer ? TP_OK : tp_error_memory(error);
    uint64_t size = 0;
    while (status == TP_OK) {
        /* A wait of its own, so that a silent pipe does not keep the caller from stopping. */
        struct pollfd wait = {.fd = input->fd, .events = POLLIN};
        int ready = poll(&wait, 1, TP_TICK_MS);
        status = tp_progress_tick(progress, false, error);
        if (status != TP_OK) break;
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t n = read(input->fd, buffer, capacity);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) {
            status = tp_error_system(error, errno, "%s: cannot read", input->name);
        } else if (n == 0) {
            break;
        } else if (write_all(fd, buffer, (size_t)n) != TP_OK) {
            status = tp_error_system(error, errno, "%s: cannot keep its data in a temporary file in %s",
                                     input->name, folder);
        }
        if (status == TP_OK) size += (uint64_t)n;
    }
    free(buffer);
    if (status != TP_OK) {
        close(fd);
        return status;
    }
    if (input->owned) close(input->fd);
    input->fd = fd;
    input->owned = input->spooled = true;
    input->source.size = size;
    return TP_OK;
}

static void prepare(tp_input *input, int fd)
{
    memset(input, 0, sizeof *input);
    input->fd = fd;
    input->direct = -1;
    input->source.read = input_read;
    input->source.context = input;
    input->source.name = input->name;
}

tp_status tp_input_open(tp_input *input, const char *path, int fd, bool from_position,
                        tp_progress *progress, tp_error *error)
{
    prepare(input, fd);
    if (!path && fd < 0) {
        input->fd = -1;
        return tp_error_set(error, TP_INVALID_ARGUMENT, "no input is given");
    }
    tp_text_path(path ? path : "stdin", input->name);
    if (fd < 0) {
        input->owned = true;
        do input->fd = open(path, O_RDONLY | O_CLOEXEC);
        while (input->fd < 0 && errno == EINTR && tp_progress_tick(progress, true, NULL) == TP_OK);
        if (input->fd < 0) return tp_error_system(error, errno, "%s: cannot open", input->name);
    }
    tp_status status = TP_OK;
    if (fstat(input->fd, &input->stat) != 0) {
        status = tp_error_system(error, errno, "%s: cannot read its properties", input->name);
    } else if (S_ISDIR(input->stat.st_mode)) {
        status = tp_error_set(error, TP_UNSUPPORTED, "%s: is a folder, not a file", input->name);
    } else if (!S_ISREG(input->stat.st_mode)) {
        status = spool(input, progress, error);
    } else {
        input->source.size = (uint64_t)input->stat.st_size;
        off_t position = from_position && fd >= 0 ? lseek(fd, 0, SEEK_CUR) : 0;
        input->base = position > 0 ? (uint64_t)position : 0;
        if (input->base > input->source.size) input->base = input->source.size;
        input->source.size -= input->base;
    }
    if (status != TP_OK) tp_input_close(input);
    return status;
}

tp_status tp_input_take(tp_input *input, int fd, const char *shown, tp_error *error)
{
    tp_status status = TP_OK;
    prepare(input, fd);
    input->owned = true;
    snprintf(input->name, sizeof input->name, "%s", shown);
    if (fstat(fd, &input->stat) != 0)
        status = tp_error_system(error, errno, "%s: cannot read its properties", input->name);
    else if (!S_ISREG(input->stat.st_mode))
        status = tp_error_set(error, TP_IO, "%s: is not a regular file", input->name);
    else
        input->source.size = (uint64_t)input->stat.st_size;
    if (status != TP_OK) tp_input_close(input);
    return status;
}

void tp_input_callback(tp_input *input, const char *name, tp_read_fn call, void *context, uint64_t size)
{
    prepare(input, -1);
    input->call = call;
    input->call_context = context;
    input->source.size = size;
    tp_text_path(name, input->name);
}

void tp_input_direct(tp_input *input)
{
    if (!input->owned || input->spooled || input->source.size < TP_DIRECT_LEAST) return;
    input->direct = tp_direct_open(input->fd, O_RDONLY);
    if (input->direct >= 0) input->source.fetch = input_fetch;
}

tp_status tp_fetch(const tp_source *source, uint8_t *buffer, size_t size, uint64_t offset, uint8_t **data,
                   tp_error *error)
{
    if (source->fetch) return source->fetch(source->context, buffer, size, offset, data, error);
    *data = buffer;
    return source->read(source->context, buffer, size, offset, error);
}

void tp_input_close(tp_input *input)
{
    if (input->source.fetch) close(input->direct);
    input->source.fetch = NULL;
    if (input->owned && input->fd >= 0) close(input->fd);
    input->fd = -1;
}

tp_status tp_input_unchanged(const tp_input *input, tp_error *error)
{
    struct stat now;
    if (input->spooled || input->call) return TP_OK;
    if (fstat(input->fd, &now) != 0)
        return tp_error_system(error, errno, "%s: cannot read its properties", input->name);
    if (now.st_size != input->stat.st_size || now.st_mtim.tv_sec != input->stat.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != input->stat.st_mtim.tv_nsec)
        return tp_error_set(error, TP_IO, "%s: changed while it was read", input->name);
    return TP_OK;
}
