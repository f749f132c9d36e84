#include <stdlib.h>
#include <string.h>

#include "formats/layout.h"
#include "formats/source.h"

static tp_status memory_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const tp_memory *memory = context;
    (void)error;
    if (size != 0) memcpy(dst, memory->data + offset, size);
    return TP_OK;
}

tp_source tp_source_memory(tp_memory *memory, const void *data, uint64_t size, const char *name)
{
    memory->data = data;
    return (tp_source){.read = memory_read, .context = memory, .size = size, .name = name};
}

tp_status tp_window_open(tp_window *window, const tp_source *source, uint64_t start, uint64_t limit,
                         tp_error *error)
{
    uint64_t all = limit - start;
    *window = (tp_window){.source = source,
                          .capacity = all < TP_WINDOW_SIZE ? (size_t)all : TP_WINDOW_SIZE,
                          .next = start,
                          .limit = limit};
    /* The NUL behind the last byte is for parsers that look one byte too far. */
    window->buffer = malloc(window->capacity + 1);
    if (window->buffer == NULL) return tp_layout_no_memory(source, error);
    window->buffer[window->capacity] = 0;
    window->at = window->end = window->buffer;
    return TP_OK;
}

tp_status tp_window_fill(tp_window *window, size_t want, tp_error *error)
{
    size_t have = (size_t)(window->end - window->at);
    if (have >= want || window->next >= window->limit) return TP_OK;
    /*
     * There is room for a byte or more: a capacity of TP_WINDOW_SIZE is at least want, hence more than
     * have; a smaller one is all there is, and some of that has not been read.
     */
    if (have != 0) memmove(window->buffer, window->at, have);
    window->at = window->buffer;
    window->end = window->buffer + have;
    uint64_t rest = window->limit - window->next;
    size_t count = window->capacity - have;
    if (count > rest) count = (size_t)rest;
    tp_status status =
        window->source->read(window->source->context, window->buffer + have, count, window->next, error);
    if (status != TP_OK) return status;
    window->end += count;
    window->next += count;
    return TP_OK;
}

void tp_window_close(tp_window *window)
{
    free(window->buffer);
    *window = (tp_window){0};
}
