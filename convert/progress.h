/* How far a conversion has come: calls the caller's callback, and so learns of a wish to stop. */
#ifndef TP_CONVERT_PROGRESS_H
#define TP_CONVERT_PROGRESS_H

#include "tensorpress.h"

#define TP_TICK_MS 100 /* no wait of the calling thread is longer without a call */

typedef struct tp_progress {
    tp_progress_fn call; /* may be NULL */
    void *context;
    uint64_t done, total;
    uint64_t last_ms;
    bool stopped;
} tp_progress;

void tp_progress_init(tp_progress *progress, const tp_options *options);
/* Calls back if TP_TICK_MS have passed (or `now`). TP_CANCELLED once the callback has asked for it. NULL:
 * TP_OK. */
tp_status tp_progress_tick(tp_progress *progress, bool now, tp_error *error);

#endif
