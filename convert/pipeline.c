#include "convert/pipeline.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "convert/container.h"
#include "convert/text.h"

#define MAX_THREADS 512u
/* Slots beyond one a thread: one that is being finished and two that wait for it, so that no thread is
 * idle. */
#define EXTRA_SLOTS 3u
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct slot {
    tp_job job;
    bool done;
} slot;

typedef struct run {
    const tp_pipeline *pipeline;
    slot *slots;
    uint8_t *buffers; /* of all slots */
    uint64_t slot_count;
    unsigned threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done;     /* there may be work; the next job to finish may be done */
    uint64_t taken, put, finished; /* jobs handed out, put, finished: slot i % slot_count holds job i */
    bool asking, putting;          /* a thread is in pipeline->next or ->put, so no other may be */
    bool workers_put;
    bool failed; /* a job, so those after it are not put */
    bool exhausted, stop;
    tp_status worker_status; /* of a thread without workspace */
} run;

/* That the process may use. */
static unsigned count_cpus(void)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (unsigned)CPU_COUNT(&set);
    return online > 0 ? (unsigned)online : 1; /* more CPUs than a cpu_set_t holds */
}

unsigned tp_pipeline_threads(unsigned wanted, uint64_t jobs)
{
    unsigned threads = wanted ? wanted : count_cpus();
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > jobs) threads = (unsigned)jobs;
    return threads ? threads : 1;
}

/* Lets `next` describe a job in the free slot s. Called and left with the lock held. */
static tp_next ask(run *r, slot *s)
{
    const tp_pipeline *p = r->pipeline;
    s->done = false;
    s->job.status = TP_OK;
    s->job.error.message[0] = 0;
    r->asking = true;
    pthread_mutex_unlock(&r->lock);
    tp_next next = p->next(p->context, &s->job);
    pthread_mutex_lock(&r->lock);
    r->asking = false;
    return next;
}

/* Called without the lock, by one thread at a time. */
static void put(run *r, tp_job *job)
{
    const tp_pipeline *p = r->pipeline;
    if (job->status == TP_OK && !r->failed) job->status = p->put(p->context, job);
    if (job->status != TP_OK) r->failed = true;
}

/*
 * A job has been done. Puts what can be put by now, unless another thread is at it: that one looks again
 * after each job. Called and left with the lock held.
 */
static void hand_over(run *r)
{
    if (!r->workers_put) {
        if (r->slots[r->finished % r->slot_count].done) pthread_cond_signal(&r->done);
        return;
    }
    if (r->putting) return;
    r->putting = true;
    while (!r->stop && r->put < r->taken && r->slots[r->put % r->slot_count].done) {
        pthread_mutex_unlock(&r->lock);
        put(r, &r->slots[r->put % r->slot_count].job);
        pthread_mutex_lock(&r->lock);
        if (r->put++ == r->finished) pthread_cond_signal(&r->done);
    }
    r->putting = false;
}

static void do_jobs(run *r, tp_encoder *encoder, tp_decoder *decoder)
{
    const tp_pipeline *p = r->pipeline;
    while (!r->stop && !r->exhausted) {
        if (r->asking || r->taken - r->finished == r->slot_count) {
            pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        slot *s = &r->slots[r->taken % r->slot_count];
        uint64_t finished = r->finished;
        tp_next next = ask(r, s);
        if (next == TP_NEXT_LATER) {
            /* Nothing to wait for if a job was finished since. */
            if (!r->stop && r->finished == finished) pthread_cond_wait(&r->work, &r->lock);
            continue;
        }
        if (next == TP_NEXT_NONE) {
            r->exhausted = true;
            pthread_cond_broadcast(&r->work);
            pthread_cond_signal(&r->done);
            break;
        }
        r->taken++;
        if (s->job.status != TP_OK) r->exhausted = true;
        pthread_cond_signal(&r->work); /* another thread may ask now */
        if (s->job.status == TP_OK && s->job.raw_size > 0) {
            pthread_mutex_unlock(&r->lock);
            s->job.status = p->work(p->context, encoder, decoder, &s->job);
            pthread_mutex_lock(&r->lock);
        }
        s->done = true;
        hand_over(r);
    }
}

static void *worker(void *argument)
{
    run *r = argument;
    tp_encoder *encoder = NULL;
    tp_decoder *decoder = NULL;
    tp_status status = r->pipeline->encodes ? tp_encoder_create(&encoder) : TP_OK;
    if (status == TP_OK && r->pipeline->decodes) status = tp_decoder_create(&decoder);
    pthread_mutex_lock(&r->lock);
    if (status == TP_OK) {
        do_jobs(r, encoder, decoder);
    } else {
        r->worker_status = status;
        pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->lock);
    tp_encoder_destroy(encoder);
    tp_decoder_destroy(decoder);
    return NULL;
}

/* Waits for the next job in order; NULL at the end. Called and left with the lock held. */
static slot *wait_for_next(run *r, tp_status *status, tp_error *error)
{
    const tp_pipeline *p = r->pipeline;
    slot *s = &r->slots[r->finished % r->slot_count];
    for (;;) {
        if (r->finished < (r->workers_put ? r->put : r->taken) && s->done) return s;
        if (r->exhausted && r->finished == r->taken) return NULL;
        if (r->worker_status != TP_OK) {
            *status = tp_error_set(error, r->worker_status, "%s", tp_status_message(r->worker_status));
            return NULL;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TP_TICK_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_nsec -= 1000000000L;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&r->done, &r->lock, &until);
        pthread_mutex_unlock(&r->lock);
        *status = tp_progress_tick(p->progress, false, error);
        pthread_mutex_lock(&r->lock);
        if (*status != TP_OK) return NULL;
    }
}

static tp_status finish_jobs(run *r, tp_error *error)
{
    const tp_pipeline *p = r->pipeline;
    tp_status status = TP_OK;
    pthread_mutex_lock(&r->lock);
    while (status == TP_OK) {
        slot *s = wait_for_next(r, &status, error);
        if (!s) break;
        pthread_mutex_unlock(&r->lock);
        if (p->put && !r->workers_put) put(r, &s->job);
        status = p->finish(p->context, &s->job, error);
        if (status == TP_OK) status = tp_progress_tick(p->progress, false, error);
        pthread_mutex_lock(&r->lock);
        r->finished++;
        pthread_cond_signal(&r->work);
    }
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    return status;
}

static void free_slots(run *r)
{
    free(r->slots);
    free(r->buffers);
}

static size_t rounded_up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

/*
 * The buffers are one piece of memory. If all of them will be used, it is made of huge pages: touching so
 * much memory for the first time, page by page, costs as much as decoding tens of megabytes.
 */
static bool allocate_slots(run *r)
{
    const size_t raw = rounded_up(TP_RAW_BUFFER, TP_FETCH_ALIGN);
    const size_t stored = rounded_up(TP_STORED_BUFFER, TP_FETCH_ALIGN);
    const size_t other = r->pipeline->needs_other ? raw : 0;
    const size_t size = rounded_up((raw + stored + other) * (size_t)r->slot_count, HUGE_PAGE);
    r->slots = calloc(r->slot_count, sizeof *r->slots);
    r->buffers = aligned_alloc(HUGE_PAGE, size);
    if (!r->slots || !r->buffers) return false;
    if (r->pipeline->jobs >= r->slot_count) (void)madvise(r->buffers, size, MADV_HUGEPAGE);
    uint8_t *at = r->buffers;
    for (uint64_t i = 0; i < r->slot_count; i++) {
        tp_job *job = &r->slots[i].job;
        job->raw = at;
        job->stored = job->raw + raw;
        if (other) job->other = job->stored + stored;
        at += raw + stored + other;
    }
    return true;
}

/* The threads block all signals, so that they arrive where the progress callback is called. */
static unsigned start_threads(run *r, pthread_t *threads, unsigned count)
{
    sigset_t all, before;
    unsigned started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count && pthread_create(&threads[started], NULL, worker, r) == 0) started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

tp_status tp_pipeline_run(const tp_pipeline *pipeline, tp_error *error)
{
    run r = {.pipeline = pipeline, .threads = tp_pipeline_threads(pipeline->threads, pipeline->jobs)};
    r.slot_count = r.threads + EXTRA_SLOTS;
    r.workers_put = pipeline->put && !pipeline->calling_thread_puts && r.threads >= count_cpus();
    pthread_t threads[MAX_THREADS];
    pthread_condattr_t monotonic;
    if (!allocate_slots(&r)) {
        free_slots(&r);
        return tp_error_memory(error);
    }
    pthread_mutex_init(&r.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r.work, NULL);
    pthread_cond_init(&r.done, &monotonic);
    pthread_condattr_destroy(&monotonic);

    unsigned started = start_threads(&r, threads, r.threads);
    tp_status status =
        started > 0 ? finish_jobs(&r, error) : tp_error_set(error, TP_NO_MEMORY, "cannot start a thread");
    for (unsigned i = 0; i < started; i++) pthread_join(threads[i], NULL);

    pthread_cond_destroy(&r.work);
    pthread_cond_destroy(&r.done);
    pthread_mutex_destroy(&r.lock);
    free_slots(&r);
    return status;
}
