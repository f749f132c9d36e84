#include "convert/progress.h"

#include <time.h>

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void tp_progress_init(tp_progress *progress, const tp_options *options)
{
    *progress =
        (tp_progress){.call = options->progress, .context = options->progress_context, .last_ms = now_ms()};
}

tp_status tp_progress_tick(tp_progress *progress, bool now, tp_error *error)
{
    if (!progress || !progress->call) return TP_OK;
    uint64_t time = now_ms();
    if (!progress->stopped && (now || time - progress->last_ms >= TP_TICK_MS)) {
        progress->last_ms = time;
        progress->stopped = !progress->call(progress->context, progress->done, progress->total);
    }
    return progress->stopped ? tp_error_set(error, TP_CANCELLED, "cancelled") : TP_OK;
}
