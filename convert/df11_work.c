/* Work of a conversion to or from DFloat11 that threads share. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "convert/df11_convert.h"
#include "convert/pipeline.h"

typedef struct each {
    tp_each_fn fn;
    void *context;
    size_t count, next;
    unsigned running;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    tp_status status; /* of the smallest number that failed */
    size_t failed;
    tp_error error;
} each;

typedef struct each_thread {
    each *each;
    unsigned number;
    pthread_t thread;
} each_thread;

static void *run(void *argument)
{
    const each_thread *self = argument;
    each *e = self->each;
    pthread_mutex_lock(&e->lock);
    while (!e->status && e->next < e->count) {
        const size_t index = e->next++;
        pthread_mutex_unlock(&e->lock);
        tp_error error = {0};
        const tp_status status = e->fn(e->context, self->number, index, &error);
        pthread_mutex_lock(&e->lock);
        if (status && (!e->status || index < e->failed)) {
            e->status = status;
            e->failed = index;
            e->error = error;
        }
    }
    e->running--;
    pthread_cond_signal(&e->ended);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

tp_status tp_each(unsigned threads, size_t count, tp_each_fn fn, void *context, tp_progress *progress,
                  tp_error *error)
{
    if (!count) return TP_OK;
    if (threads > count) threads = (unsigned)count;
    each e = {.fn = fn, .context = context, .count = count};
    each_thread *list = calloc(threads, sizeof *list);
    if (!list) return tp_error_memory(error);
    pthread_mutex_init(&e.lock, NULL);
    pthread_cond_init(&e.ended, NULL);
    unsigned started = 0;
    int failed = 0;
    pthread_mutex_lock(&e.lock);
    for (; started < threads && !failed; started++) {
        list[started] = (each_thread){.each = &e, .number = started};
        failed = pthread_create(&list[started].thread, NULL, run, &list[started]);
        if (failed) break;
        e.running++;
    }
    if (!started) e.status = tp_error_system(&e.error, failed, "cannot start a thread");
    while (e.running) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TP_TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&e.ended, &e.lock, &until);
        if (e.status) continue;
        tp_error stop;
        const tp_status status = tp_progress_tick(progress, false, &stop);
        if (!status) continue;
        e.status = status;
        e.failed = 0;
        e.error = stop;
    }
    pthread_mutex_unlock(&e.lock);
    for (unsigned i = 0; i < started; i++) pthread_join(list[i].thread, NULL);
    pthread_cond_destroy(&e.ended);
    pthread_mutex_destroy(&e.lock);
    free(list);
    if (e.status && error) *error = e.error;
    return e.status;
}

tp_status tp_df11_workers_make(tp_df11_workers *workers, unsigned wanted, tp_error *error)
{
    *workers = (tp_df11_workers){.count = tp_pipeline_threads(wanted, UINT64_MAX)};
    workers->list = calloc(workers->count, sizeof *workers->list);
    if (!workers->list) return tp_error_memory(error);
    for (unsigned i = 0; i < workers->count; i++) {
        tp_df11_worker *w = &workers->list[i];
        w->buffer = malloc(2 * TP_DF11_PIECE);
        w->other = malloc(2 * TP_DF11_PIECE);
        w->workspace = malloc(sizeof *w->workspace);
        if (!w->buffer || !w->other || !w->workspace) return tp_error_memory(error);
    }
    return TP_OK;
}

void tp_df11_workers_free(tp_df11_workers *workers)
{
    for (unsigned i = 0; workers->list && i < workers->count; i++) {
        free(workers->list[i].buffer);
        free(workers->list[i].other);
        free(workers->list[i].workspace);
    }
    free(workers->list);
    *workers = (tp_df11_workers){0};
}

typedef struct decoding {
    const tp_df11_decoder *decoder;
    const tp_df11_workers *workers;
    tp_df11_batch_fn fn;
    void *context;
    const char *name;
} decoding;

static tp_status decode_batch(void *context, unsigned worker, size_t index, tp_error *error)
{
    const decoding *d = context;
    tp_df11_worker *w = &d->workers->list[worker];
    const uint32_t first = (uint32_t)index * TP_DF11_BATCH, left = d->decoder->blocks - first;
    const uint32_t blocks = left < TP_DF11_BATCH ? left : TP_DF11_BATCH;
    const uint64_t from = tp_df11_position(d->decoder, first),
                   to = tp_df11_position(d->decoder, first + blocks);
    tp_error inner;
    tp_status status =
        to - from > TP_DF11_PIECE
            ? tp_error_set(&inner, TP_CORRUPT, "output_positions: more elements than a block has bits")
            : tp_df11_decode(d->decoder, first, blocks, w->buffer, w->workspace, &inner);
    if (status) return tp_error_set(error, status, "%s: %s", d->name, inner.message);
    return to > from ? d->fn(d->context, w, from, (size_t)(to - from), error) : TP_OK;
}

tp_status tp_df11_decode_all(const tp_df11_decoder *decoder, const tp_df11_workers *workers,
                             tp_df11_batch_fn fn, void *context, const char *name, tp_progress *progress,
                             tp_error *error)
{
    decoding d = {.decoder = decoder, .workers = workers, .fn = fn, .context = context, .name = name};
    return tp_each(workers->count, (decoder->blocks + TP_DF11_BATCH - 1) / TP_DF11_BATCH, decode_batch, &d,
                   progress, error);
}

void tp_df11_warn(const tp_options *options, const char *format, ...)
{
    if (!options->warning) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    options->warning(options->warning_context, line);
}
