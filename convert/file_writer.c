#include "convert/file_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/direct.h"
#include "convert/text.h"

/* As much is written at once past the page cache; and as much is worth asking for. */
#define PIECE ((size_t)4 << 20)
/* The last page may get more bytes: it is left for the next time. */
#define PAGES ((uint64_t)64 << 10)

tp_status tp_write_at(int fd, const void *data, size_t size, uint64_t offset, const char *name,
                      tp_error *error)
{
    const uint8_t *from = data;
    while (size > 0) {
        ssize_t n = pwrite(fd, from, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tp_error_system(error, errno, "%s: cannot write", name);
        from += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return TP_OK;
}

void tp_file_writer_init(tp_file_writer *w)
{
    *w = (tp_file_writer){.fd = -1, .direct = -1};
}

static void go_through_the_cache(tp_file_writer *w)
{
    if (w->direct >= 0) close(w->direct);
    w->direct = -1;
}

void tp_file_writer_begin(tp_file_writer *w, int fd, const char *name, bool direct)
{
    go_through_the_cache(w);
    w->fd = fd;
    w->name = name;
    w->position = w->asked = 0;
    w->held = 0;
    if (direct && !w->block) w->block = aligned_alloc(TP_DIRECT_ALIGN, PIECE);
    if (direct && w->block) w->direct = tp_direct_open(fd, O_WRONLY);
}

/* An aligned piece; the ordinary descriptor writes what the other one does not. */
static tp_status write_direct(tp_file_writer *w, const uint8_t *data, size_t size, uint64_t offset,
                              tp_error *error)
{
    while (size >= TP_DIRECT_ALIGN && w->direct >= 0) {
        ssize_t n = pwrite(w->direct, data, size / TP_DIRECT_ALIGN * TP_DIRECT_ALIGN, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && tp_direct_refused(errno)) {
            go_through_the_cache(w);
            break;
        }
        if (n < 0) return tp_error_system(error, errno, "%s: cannot write", w->name);
        size_t whole = (size_t)n / TP_DIRECT_ALIGN * TP_DIRECT_ALIGN;
        if (whole == 0) break;
        data += whole;
        offset += whole;
        size -= whole;
    }
    return tp_write_at(w->fd, data, size, offset, w->name, error);
}

static tp_status flush(tp_file_writer *w, tp_error *error)
{
    tp_status status = write_direct(w, w->block, w->held, w->position - w->held, error);
    w->held = 0;
    return status;
}

static void hold(tp_file_writer *w, const uint8_t *data, size_t size)
{
    if (data)
        memcpy(w->block + w->held, data, size);
    else
        memset(w->block + w->held, 0, size);
    w->held += size;
    w->position += size;
}

/* Goes on at `offset`. In blocks that are written anyway the hole consists of zeros. */
static tp_status leave_hole(tp_file_writer *w, uint64_t offset, tp_error *error)
{
    uint64_t hole = offset - w->position;
    size_t rest = (size_t)(-w->position % TP_DIRECT_ALIGN);
    if (w->held > 0) hold(w, NULL, hole < rest ? (size_t)hole : rest);
    if (w->position == offset) return TP_OK;
    tp_status status = w->held > 0 ? flush(w, error) : TP_OK;
    rest = (size_t)(offset % TP_DIRECT_ALIGN);
    w->position = offset - rest;
    hold(w, NULL, rest);
    return status;
}

static tp_status put_direct(tp_file_writer *w, const uint8_t *data, size_t size, uint64_t offset,
                            tp_error *error)
{
    tp_status status = offset > w->position ? leave_hole(w, offset, error) : TP_OK;
    while (size > 0 && status == TP_OK) {
        size_t part = PIECE - w->held < size ? PIECE - w->held : size;
        hold(w, data, part);
        data += part;
        size -= part;
        if (w->held == PIECE) status = flush(w, error);
    }
    return status;
}

static void ask(tp_file_writer *w)
{
    uint64_t until = w->position / PAGES * PAGES;
    if (until < w->asked + PIECE) return;
    /* Whether it does so, and whether that worked, fsync will say. */
    (void)sync_file_range(w->fd, (off_t)w->asked, (off_t)(until - w->asked), SYNC_FILE_RANGE_WRITE);
    w->asked = until;
}

tp_status tp_file_writer_put(tp_file_writer *w, const void *data, size_t size, uint64_t offset,
                             tp_error *error)
{
    if (w->direct >= 0) return put_direct(w, data, size, offset, error);
    tp_status status = w->held > 0 ? flush(w, error) : TP_OK; /* refused meanwhile */
    if (status == TP_OK) status = tp_write_at(w->fd, data, size, offset, w->name, error);
    w->position = offset + size;
    if (status == TP_OK) ask(w);
    return status;
}

tp_status tp_file_writer_end(tp_file_writer *w, tp_error *error)
{
    tp_status status = w->held > 0 ? flush(w, error) : TP_OK;
    go_through_the_cache(w);
    return status;
}

void tp_file_writer_free(tp_file_writer *w)
{
    go_through_the_cache(w);
    free(w->block);
    w->block = NULL;
}
