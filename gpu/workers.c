#include "gpu/workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "convert/pipeline.h"

#define TICK_NS 100000000L

typedef struct member {
    tp_workers *workers;
    unsigned number;
    size_t in_hand; /* SIZE_MAX: nothing */
    pthread_t thread;
} member;

struct tp_workers {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    unsigned count, busy; /* threads; those with a number in hand */
    bool quit;
    /* The run at hand. */
    tp_work_fn call;
    void *context;
    size_t next, end; /* numbers to hand out; those from end on will never be */
    size_t failed;    /* lowest number that failed, SIZE_MAX: none */
    tp_status status;
    tp_error error;
    member members[];
};

static void do_one(member *self, tp_error *error)
{
    tp_workers *w = self->workers;
    const size_t number = w->next++;
    self->in_hand = number;
    w->busy++;
    pthread_mutex_unlock(&w->lock);
    error->message[0] = 0;
    const tp_status status = w->call(w->context, self->number, number, error);
    pthread_mutex_lock(&w->lock);
    self->in_hand = SIZE_MAX;
    w->busy--;
    if (status != TP_OK) {
        w->end = w->next;
        if (number < w->failed) {
            w->failed = number;
            w->status = status;
            w->error = *error;
        }
    }
    pthread_cond_signal(&w->done);
}

static void *worker_main(void *argument)
{
    member *self = argument;
    tp_workers *w = self->workers;
    tp_error error = {0};
    pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        if (w->next < w->end)
            do_one(self, &error);
        else
            pthread_cond_wait(&w->work, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

tp_status tp_workers_create(unsigned threads, tp_workers **workers, tp_error *error)
{
    const unsigned wanted = tp_pipeline_threads(threads, UINT32_MAX);
    tp_workers *w = calloc(1, sizeof *w + wanted * sizeof w->members[0]);
    *workers = NULL;
    if (!w) return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    pthread_condattr_t monotonic;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    w->failed = SIZE_MAX;
    /* Signals are for the thread that calls, where progress can be asked to stop. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; w->count < wanted; w->count++) {
        member *m = &w->members[w->count];
        *m = (member){.workers = w, .number = w->count, .in_hand = SIZE_MAX};
        if (pthread_create(&m->thread, NULL, worker_main, m) != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (w->count == 0) {
        tp_workers_destroy(w);
        return tp_error_set(error, TP_NO_MEMORY, "cannot start a thread");
    }
    *workers = w;
    return TP_OK;
}

void tp_workers_destroy(tp_workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->count; i++) pthread_join(w->members[i].thread, NULL);
    pthread_cond_destroy(&w->work);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

unsigned tp_workers_count(const tp_workers *w)
{
    return w->count;
}

void tp_workers_start(tp_workers *w, tp_work_fn work, void *context, size_t count)
{
    pthread_mutex_lock(&w->lock);
    w->call = work;
    w->context = context;
    w->next = 0;
    w->end = count;
    w->failed = SIZE_MAX;
    w->status = TP_OK;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
}

/* All numbers below this one are done: they are handed out in ascending order. */
static size_t done_below(const tp_workers *w)
{
    size_t below = w->next;
    for (unsigned i = 0; i < w->count; i++)
        if (w->members[i].in_hand < below) below = w->members[i].in_hand;
    return below;
}

tp_status tp_workers_wait(tp_workers *w, size_t until, tp_tick_fn tick, void *tick_context, tp_error *error)
{
    tp_status stop = TP_OK;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        const size_t below = done_below(w);
        if (below >= until || below > w->failed || (w->busy == 0 && w->next == w->end)) break;
        struct timespec to;
        clock_gettime(CLOCK_MONOTONIC, &to);
        to.tv_nsec += TICK_NS;
        if (to.tv_nsec >= 1000000000L) {
            to.tv_nsec -= 1000000000L;
            to.tv_sec++;
        }
        pthread_cond_timedwait(&w->done, &w->lock, &to);
        if (!tick) continue;
        pthread_mutex_unlock(&w->lock);
        stop = tick(tick_context, error);
        pthread_mutex_lock(&w->lock);
        if (stop != TP_OK) break;
    }
    const tp_status status = w->failed < until ? w->status : TP_OK;
    if (stop == TP_OK && status != TP_OK && error) *error = w->error;
    pthread_mutex_unlock(&w->lock);
    return stop != TP_OK ? stop : status;
}

void tp_workers_stop(tp_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->end = w->next;
    while (w->busy > 0) pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

tp_status tp_workers_run(tp_workers *w, tp_work_fn work, tp_tick_fn tick, void *context, size_t count,
                         tp_error *error)
{
    tp_workers_start(w, work, context, count);
    const tp_status status = tp_workers_wait(w, count, tick, context, error);
    if (status != TP_OK) tp_workers_stop(w);
    return status;
}
