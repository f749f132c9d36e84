/* A few threads that do numbered work while the calling thread watches. */
#ifndef TP_GPU_WORKERS_H
#define TP_GPU_WORKERS_H

#include "tensorpress.h"

typedef struct tp_workers tp_workers;

/* threads 0: as many as the process may use. TP_NO_MEMORY. */
tp_status tp_workers_create(unsigned threads, tp_workers **workers, tp_error *error);
void tp_workers_destroy(tp_workers *workers);
unsigned tp_workers_count(const tp_workers *workers);

/*
 * Calls work(context, worker, number) for all numbers below count, worker being the thread's number. After
 * a failure no new numbers are handed out; the error reported is that of the lowest number that failed.
 * `tick` is called in the calling thread about ten times a second and may end the run with its status;
 * NULL: no ticks.
 */
typedef tp_status (*tp_work_fn)(void *context, unsigned worker, size_t number, tp_error *error);
typedef tp_status (*tp_tick_fn)(void *context, tp_error *error);
tp_status tp_workers_run(tp_workers *workers, tp_work_fn work, tp_tick_fn tick, void *context, size_t count,
                         tp_error *error);

#endif
