/*
 * A sliding window over a tp_source: headers are read through 256 KiB, whatever length they claim.
 */
#ifndef TP_FORMATS_SOURCE_H
#define TP_FORMATS_SOURCE_H

#include "formats/formats.h"

#define TP_WINDOW_SIZE ((size_t)256 << 10)

typedef struct tp_window {
    const tp_source *source;
    uint8_t *buffer;    /* capacity bytes and a NUL */
    size_t capacity;    /* TP_WINDOW_SIZE, or all that there is if it is less */
    const uint8_t *at;  /* the reader's place; the reader moves it, up to end */
    const uint8_t *end; /* end of what has been read */
    uint64_t next;      /* offset of end in the source */
    uint64_t limit;     /* nothing is read from here on; at most the source's size */
} tp_window;

/* A window on the bytes from start to limit, still empty. TP_NO_MEMORY. Close it in any case. */
tp_status tp_window_open(tp_window *window, const tp_source *source, uint64_t start, uint64_t limit,
                         tp_error *error);
/*
 * Sees to it that `want` bytes (at most TP_WINDOW_SIZE), or all up to the limit if they are fewer, lie at
 * window->at. This may move what is there: pointers into the window end here, except at and end. On an
 * error of the source the window stays as it was.
 */
tp_status tp_window_fill(tp_window *window, size_t want, tp_error *error);
void tp_window_close(tp_window *window);

/* The offset in the source of the reader's place. */
static inline uint64_t tp_window_offset(const tp_window *window)
{
    return window->next - (uint64_t)(window->end - window->at);
}

#endif
