/* A few threads that do numbered work while the calling thread watches, or does something else. */
#ifndef TP_GPU_WORKERS_H
#define TP_GPU_WORKERS_H

#include "tensorpress.h"

typedef struct tp_workers tp_workers;

/* threads 0: as many as the process may use. TP_NO_MEMORY. */
tp_status tp_workers_create(unsigned threads, tp_workers **workers, tp_error *error);
void tp_workers_destroy(tp_workers *workers);
unsigned tp_workers_count(const tp_workers *workers);

typedef tp_status (*tp_work_fn)(void *context, unsigned worker, size_t number, tp_error *error);
typedef tp_status (*tp_tick_fn)(void *context, tp_error *error);

/*
 * Calls work(context, worker, number) for all numbers below count, in ascending order as threads come free,
 * worker being the thread's number. Returns at once. What was started before must have been waited for or
 * stopped.
 */
void tp_workers_start(tp_workers *workers, tp_work_fn work, void *context, size_t count);
/*
 * Until all numbers below `until` are done, or one of them has failed: the error is then that of the lowest
 * one. After a failure no new numbers are handed out. `tick` is called in the calling thread about ten
 * times a second and may end the wait with its status; NULL: no ticks.
 */
tp_status tp_workers_wait(tp_workers *workers, size_t until, tp_tick_fn tick, void *tick_context,
                          tp_error *error);
/* Hands out no more numbers and waits for those in hand. */
void tp_workers_stop(tp_workers *workers);

/* All of it: start, wait, and after an error stop. */
tp_status tp_workers_run(tp_workers *workers, tp_work_fn work, tp_tick_fn tick, void *context, size_t count,
                         tp_error *error);

#endif
