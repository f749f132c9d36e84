#include "convert/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TEMPORARY_TRIES 100

static tp_status is_input(const tp_output *output, tp_error *error)
{
    return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: the output is the input; choose another name",
                        output->name);
}

static bool same_file(const tp_output *output, const struct stat *s)
{
    return output->input_ino != 0 && s->st_dev == output->input_dev && s->st_ino == output->input_ino;
}

/* A link into /proc (as /dev/stdout is) names an open descriptor, not a place for a file. */
static bool names_descriptor(int folder, const char *name)
{
    char target[16];
    ssize_t n = readlinkat(folder, name, target, sizeof target);
    return n >= 6 && memcmp(target, "/proc/", 6) == 0;
}

/* What may stand at the final name: nothing, or with force an ordinary file or a link to one. */
static tp_status check_final(const tp_output *output, tp_error *error)
{
    struct stat s, link;
    if (fstatat(output->place.folder, output->place.final, &link, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return TP_OK;
        return tp_error_system(error, errno, "%s: cannot create", output->name);
    }
    bool there = fstatat(output->place.folder, output->place.final, &s, 0) ==
                 0; /* false: a link that leads nowhere */
    if (there && same_file(output, &s)) return is_input(output, error);
    if (there && S_ISDIR(s.st_mode))
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: is a folder; name a file in it", output->name);
    if ((there && !S_ISREG(s.st_mode)) || names_descriptor(output->place.folder, output->place.final))
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "%s: is not an ordinary file; write to stdout for that", output->name);
    if (!output->force)
        return tp_error_set(error, TP_EXISTS, "%s: exists already; choose another name or force it",
                            output->name);
    return TP_OK;
}

static tp_status create_named(tp_output *output, tp_error *error)
{
    for (int tries = 0; tries < TEMPORARY_TRIES; tries++) {
        free(output->temporary);
        tp_status status = tp_place_temporary(&output->place, &output->temporary, error);
        if (status != TP_OK) return status;
        output->fd = openat(output->place.folder, output->temporary,
                            O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (output->fd >= 0) return TP_OK;
        if (errno != EEXIST && errno != EINTR) break;
    }
    int saved = errno;
    free(output->temporary);
    output->temporary = NULL;
    return tp_error_system(error, saved, "%s: cannot create", output->name);
}

static tp_status create(tp_output *output, tp_error *error)
{
    char path[TP_DESCRIPTOR_PATH];
    do output->fd = openat(output->place.folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    while (output->fd < 0 && errno == EINTR);
    if (output->fd >= 0) {
        tp_descriptor_path(output->fd, path);
        if (access(path, F_OK) == 0) return TP_OK;
        close(output->fd);
    }
    return create_named(output, error);
}

static tp_status open_file(tp_output *output, const char *path, tp_error *error)
{
    tp_status status = tp_place_open(&output->place, path, output->name, error);
    if (status == TP_OK) status = check_final(output, error);
    if (status == TP_OK) status = create(output, error);
    return status;
}

tp_status tp_output_open(tp_output *output, const char *path, int fd, bool force, const struct stat *input,
                         tp_progress *progress, tp_error *error)
{
    tp_output_count(output);
    output->force = force;
    output->progress = progress;
    if (input && S_ISREG(input->st_mode)) {
        output->input_dev = input->st_dev;
        output->input_ino = input->st_ino;
    }
    if (!path && fd < 0) return tp_error_set(error, TP_INVALID_ARGUMENT, "no output is given");
    tp_text_path(path ? path : "stdout", output->name);
    if (fd < 0) {
        tp_status status = open_file(output, path, error);
        output->owned = true;
        if (status == TP_OK)
            tp_file_writer_begin(&output->writer, output->fd, output->name, false);
        else
            tp_output_close(output);
        return status;
    }
    struct stat s;
    if (fstat(fd, &s) != 0) return tp_error_system(error, errno, "%s: cannot write", output->name);
    if (S_ISREG(s.st_mode) && same_file(output, &s)) return is_input(output, error);
    output->fd = fd;
    output->waits = !S_ISREG(s.st_mode) && !S_ISBLK(s.st_mode);
    return TP_OK;
}

void tp_output_count(tp_output *output)
{
    memset(output, 0, sizeof *output);
    output->fd = output->place.folder = -1;
    tp_file_writer_init(&output->writer);
}

void tp_output_direct(tp_output *output)
{
    if (tp_output_is_file(output)) tp_file_writer_begin(&output->writer, output->fd, output->name, true);
}

bool tp_output_stat(const tp_output *output, struct stat *properties)
{
    if (tp_output_is_file(output))
        return fstatat(output->place.folder, output->place.final, properties, 0) == 0;
    return output->fd >= 0 && fstat(output->fd, properties) == 0;
}

static tp_status write_error(const tp_output *output, int errnum, tp_error *error)
{
    return tp_error_system(error, errnum, "%s: cannot write", output->name);
}

tp_status tp_output_write(tp_output *output, const void *data, size_t size, tp_error *error)
{
    const uint8_t *from = data;
    if (tp_output_is_file(output)) {
        tp_status status = tp_output_write_at(output, data, size, output->size, error);
        output->size += size;
        return status;
    }
    while (size > 0 && output->fd >= 0) {
        size_t part = size;
        if (output->waits) {
            /* A reader that sleeps must not keep the caller from stopping: poll says that PIPE_BUF bytes
             * fit. */
            struct pollfd wait = {.fd = output->fd, .events = POLLOUT};
            int ready = poll(&wait, 1, TP_TICK_MS);
            tp_status status = tp_progress_tick(output->progress, false, error);
            if (status != TP_OK) return status;
            if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
            if (part > PIPE_BUF) part = PIPE_BUF;
        }
        ssize_t n = write(output->fd, from, part);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            tp_status status = tp_progress_tick(output->progress, false, error);
            if (status != TP_OK) return status;
            continue;
        }
        if (n < 0) return write_error(output, errno, error);
        from += n;
        output->size += (uint64_t)n;
        size -= (size_t)n;
    }
    output->size += size; /* what is only counted */
    return TP_OK;
}

bool tp_output_is_file(const tp_output *output)
{
    return output->place.folder >= 0;
}

tp_status tp_output_reserve(tp_output *output, uint64_t size, tp_error *error)
{
    struct statvfs v;
    if (fstatvfs(output->fd, &v) == 0 && v.f_blocks > 0 && v.f_frsize > 0 && size / v.f_frsize > v.f_bavail)
        return tp_error_set(error, TP_NO_SPACE, "%s: needs %llu bytes, but only %llu are free",
                            output->name, (unsigned long long)size,
                            (unsigned long long)v.f_bavail * v.f_frsize);
    if (size > INT64_MAX) return write_error(output, EFBIG, error);
    int result;
    do result = ftruncate(output->fd, (off_t)size);
    while (result != 0 && errno == EINTR);
    if (result != 0) return write_error(output, errno, error);
    output->size = size;
    return TP_OK;
}

tp_status tp_output_write_at(tp_output *output, const void *data, size_t size, uint64_t offset,
                             tp_error *error)
{
    return tp_file_writer_put(&output->writer, data, size, offset, error);
}

/* Gives the unnamed file the name `to`; errno on failure. */
static bool link_unnamed(const tp_output *output, const char *to)
{
    char path[TP_DESCRIPTOR_PATH];
    tp_descriptor_path(output->fd, path);
    return linkat(AT_FDCWD, path, output->place.folder, to, AT_SYMLINK_FOLLOW) == 0;
}

static tp_status publish(tp_output *output, tp_error *error)
{
    bool done;
    if (!output->force) {
        done = output->temporary ? tp_place_rename(&output->place, output->temporary, false)
                                 : link_unnamed(output, output->place.final);
    } else {
        tp_status status = check_final(output, error); /* what stands there may have changed meanwhile */
        for (int tries = 0; status == TP_OK && !output->temporary && tries < TEMPORARY_TRIES; tries++) {
            status = tp_place_temporary(&output->place, &output->temporary, error);
            if (status != TP_OK || link_unnamed(output, output->temporary)) break;
            int saved = errno;
            free(output->temporary);
            output->temporary = NULL;
            if (saved != EEXIST) status = write_error(output, saved, error);
        }
        if (status != TP_OK) return status;
        errno = EEXIST;
        done = output->temporary && renameat(output->place.folder, output->temporary, output->place.folder,
                                             output->place.final) == 0;
    }
    if (!done && errno == EEXIST)
        return tp_error_set(error, TP_EXISTS, "%s: exists already; choose another name or force it",
                            output->name);
    if (!done) return write_error(output, errno, error);
    free(output->temporary); /* nothing to remove from here on */
    output->temporary = NULL;
    return TP_OK;
}

tp_status tp_output_commit(tp_output *output, tp_error *error)
{
    if (!tp_output_is_file(output)) return TP_OK;
    tp_status status = tp_file_writer_end(&output->writer, error);
    if (status != TP_OK) return status;
    if (!tp_sync(output->fd)) return write_error(output, errno, error);
    status = tp_progress_tick(output->progress, true, error);
    if (status == TP_OK) status = publish(output, error);
    return status == TP_OK ? tp_place_sync(&output->place, error) : status;
}

void tp_output_close(tp_output *output)
{
    if (output->temporary) unlinkat(output->place.folder, output->temporary, 0);
    if (output->owned && output->fd >= 0) close(output->fd);
    free(output->temporary);
    tp_file_writer_free(&output->writer);
    output->temporary = NULL;
    output->fd = -1;
    tp_place_close(&output->place);
}
