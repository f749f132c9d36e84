#include "driver.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
#include "gpu/cuda_api.h"
#include "gpu/kernels/job.h"
#include "kernels_c.h"

#define API __attribute__((visibility("default")))
#define MAX_OBJECTS 4096
#define GUARD 256
#define GUARD_BYTE 0x5c

enum {
    ERROR_INVALID_CONTEXT = 201,
    ERROR_INVALID_HANDLE = 400,
    ERROR_NOT_FOUND = 500,
    ERROR_LAUNCH_FAILED = 719,
};

/* -------------------------------------------------------------------------------- what tests control */

#define MAX_FUNCTIONS 64
static struct {
    char name[48];
    unsigned calls;
} counted[MAX_FUNCTIONS];
static size_t counted_functions;
static char fail_function[48];
static unsigned fail_nth;
static int fail_code;
static char first_violation[256];
static unsigned long long used_memory, peak_memory, limit_memory;

static void violate(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void violate(const char *format, ...)
{
    va_list arguments;
    if (first_violation[0]) return;
    __builtin_va_start(arguments, format);
    vsnprintf(first_violation, sizeof first_violation, format, arguments);
    __builtin_va_end(arguments);
}

/* Counts a call; the code that it must fail with, or 0. */
static int enter(const char *function)
{
    size_t i = 0;
    while (i < counted_functions && strcmp(counted[i].name, function) != 0) i++;
    if (i == counted_functions && i < MAX_FUNCTIONS)
        snprintf(counted[counted_functions++].name, 48, "%s", function);
    const unsigned call = ++counted[i].calls;
    return strcmp(fail_function, function) == 0 && call == fail_nth ? fail_code : 0;
}
/* Functions that give something back do so before they fail: else a failure would look like a leak. */
#define ENTER(function)                                                                                    \
    do {                                                                                                   \
        const int forced_ = enter(function);                                                               \
        if (forced_) return forced_;                                                                       \
    } while (0)

/* -------------------------------------------------------------------------------------------- objects */

static unsigned held; /* times that the primary context is retained */
static char context, module, device_image;
static unsigned modules;
static bool initialised;
#define MAX_STACK 16
static CUcontext stack[MAX_STACK];
static unsigned depth;

typedef struct memory {
    uint8_t *block; /* GUARD before and after */
    size_t size;
    bool host;
} memory;
static memory memories[MAX_OBJECTS];
static size_t memory_count;

typedef enum kind { UPLOAD, DOWNLOAD, COPY, CLEAR, LAUNCH, RECORD, WAIT } kind;
typedef struct operation {
    struct operation *next;
    kind kind;
    void *host;
    CUdeviceptr to, from;
    size_t size;
    unsigned value;
    kernel_function *kernel;
    unsigned groups, warps, first, shared;
    CUdeviceptr in, out, jobs, results;
    CUevent event;
} operation;
struct CUstream_st {
    operation *first, **last;
};
struct CUevent_st {
    unsigned users; /* its owner and the operations that name it */
    bool destroyed, fired;
    CUstream stream; /* that it was recorded on last */
};
/* What handles 0 to 2 stand for. */
static struct CUstream_st default_stream = {.last = &default_stream.first};
static unsigned events;
static CUstream streams[MAX_OBJECTS];
static size_t stream_count;

static uint8_t *start_of(const memory *m)
{
    return m->block + GUARD;
}

/* The memory that a range lies in, wholly. */
static memory *find(const void *address, size_t size)
{
    for (size_t i = 0; i < memory_count; i++) {
        memory *m = &memories[i];
        const uint8_t *begin = start_of(m);
        if ((const uint8_t *)address >= begin && (const uint8_t *)address < begin + m->size &&
            size <= (size_t)(begin + m->size - (const uint8_t *)address))
            return m;
    }
    return NULL;
}

static bool is_device(CUdeviceptr address, size_t size)
{
    const memory *m = find((const void *)(uintptr_t)address, size);
    return m && !m->host;
}

static bool is_stream(CUstream stream)
{
    for (size_t i = 0; i < stream_count; i++)
        if (streams[i] == stream) return true;
    return false;
}

/* A call that needs the context. */
static int need_context(const char *function)
{
    if (depth > 0 && stack[depth - 1] == (CUcontext)&context && held > 0) return CUDA_SUCCESS;
    violate("%s: no context is current", function);
    return ERROR_INVALID_CONTEXT;
}
#define NEED_CONTEXT(function)                                                                             \
    do {                                                                                                   \
        const int code_ = need_context(function);                                                          \
        if (code_) return code_;                                                                           \
    } while (0)

static int allocate(size_t size, bool host, void **at)
{
    if (size == 0) {
        violate("an allocation of no bytes");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (memory_count == MAX_OBJECTS) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!host && limit_memory && used_memory + size > limit_memory) return CUDA_ERROR_OUT_OF_MEMORY;
    /* Exactly as large as asked for, so that a sanitizer sees the end. */
    uint8_t *block = NULL;
    if (posix_memalign((void **)&block, GUARD, size + 2 * GUARD) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(block, GUARD_BYTE, size + 2 * GUARD);
    memories[memory_count++] = (memory){.block = block, .size = size, .host = host};
    if (!host) used_memory += size;
    if (used_memory > peak_memory) peak_memory = used_memory;
    *at = block + GUARD;
    return CUDA_SUCCESS;
}

static void check_guards(const memory *m)
{
    for (size_t i = 0; i < GUARD; i++)
        if (m->block[i] != GUARD_BYTE || m->block[GUARD + m->size + i] != GUARD_BYTE)
            violate("bytes around memory are overwritten");
}

/* Something queued that would still use memory when it is freed. */
static void check_unused(const memory *m)
{
    const uint8_t *begin = start_of(m), *end = begin + m->size;
    for (size_t i = 0; i < stream_count; i++) {
        for (const operation *o = streams[i]->first; o; o = o->next) {
            const uint8_t *const uses[] = {o->host,
                                           (const uint8_t *)(uintptr_t)o->to,
                                           (const uint8_t *)(uintptr_t)o->from,
                                           (const uint8_t *)(uintptr_t)o->in,
                                           (const uint8_t *)(uintptr_t)o->jobs,
                                           (const uint8_t *)(uintptr_t)o->results};
            for (size_t k = 0; k < sizeof uses / sizeof *uses; k++)
                if (uses[k] >= begin && uses[k] < end) violate("memory is freed that a stream still uses");
        }
    }
}

static int release(void *address, bool host)
{
    for (size_t i = 0; i < memory_count; i++) {
        memory *m = &memories[i];
        if (start_of(m) != address || m->host != host) continue;
        check_guards(m);
        check_unused(m);
        if (!host) used_memory -= m->size;
        free(m->block);
        *m = memories[--memory_count];
        return CUDA_SUCCESS;
    }
    violate("memory is freed that is not allocated");
    return CUDA_ERROR_INVALID_VALUE;
}

/* ----------------------------------------------------------------------------------------- execution */

static int run_kernel(const operation *o)
{
    uint32_t *shared = NULL;
    if (posix_memalign((void **)&shared, 16, o->shared) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned group = 0; group < o->groups; group++)
        o->kernel((const uint8_t *)(uintptr_t)o->in, (uint8_t *)(uintptr_t)o->out,
                  (const tp_gpu_job *)(uintptr_t)o->jobs, (uint64_t *)(uintptr_t)o->results, o->first,
                  o->warps, shared, group);
    free(shared);
    return CUDA_SUCCESS;
}

static void let_go(CUevent event)
{
    if (--event->users == 0) free(event);
}

static int run_first(CUstream stream);

/* Work goes on elsewhere until the event has come. */
static int wait_event(CUevent event)
{
    int code = CUDA_SUCCESS;
    while (!event->fired && event->stream && event->stream->first && code == CUDA_SUCCESS)
        code = run_first(event->stream);
    return code;
}

static int run(const operation *o)
{
    switch (o->kind) {
    case RECORD:
        o->event->fired = true;
        return CUDA_SUCCESS;
    case WAIT:
        return wait_event(o->event);
    case UPLOAD:
        memcpy((void *)(uintptr_t)o->to, o->host, o->size);
        return CUDA_SUCCESS;
    case DOWNLOAD:
        memcpy(o->host, (const void *)(uintptr_t)o->from, o->size);
        return CUDA_SUCCESS;
    case COPY:
        memmove((void *)(uintptr_t)o->to, (const void *)(uintptr_t)o->from, o->size);
        return CUDA_SUCCESS;
    case CLEAR:
        for (size_t i = 0; i < o->size; i++) ((uint32_t *)(uintptr_t)o->to)[i] = o->value;
        return CUDA_SUCCESS;
    default:
        return run_kernel(o);
    }
}

/* Runs a stream's first operation and forgets it. */
static int run_first(CUstream stream)
{
    operation *o = stream->first;
    stream->first = o->next;
    if (!stream->first) stream->last = &stream->first;
    const int code = run(o);
    if (o->event) let_go(o->event);
    free(o);
    return code;
}

static int queue(CUstream stream, const operation *what)
{
    if ((uintptr_t)stream <= 2) stream = &default_stream;
    if (stream != &default_stream && !is_stream(stream)) {
        violate("an operation on what is no stream");
        return ERROR_INVALID_HANDLE;
    }
    operation *o = malloc(sizeof *o);
    if (!o) return CUDA_ERROR_OUT_OF_MEMORY;
    *o = *what;
    o->next = NULL;
    *stream->last = o;
    stream->last = &o->next;
    return CUDA_SUCCESS;
}

static void drop(CUstream stream)
{
    for (operation *o = stream->first, *next; o; o = next) {
        next = o->next;
        if (o->event) let_go(o->event);
        free(o);
    }
    stream->first = NULL;
    stream->last = &stream->first;
}

/* ------------------------------------------------------------------------------------ the interface */

API CUresult cuInit(unsigned flags)
{
    ENTER("cuInit");
    if (flags != 0) violate("cuInit with flags");
    initialised = true;
    return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int *version)
{
    ENTER("cuDriverGetVersion");
    *version = 12040;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count)
{
    ENTER("cuDeviceGetCount");
    if (!initialised) violate("cuDeviceGetCount before cuInit");
    *count = 2;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int index)
{
    ENTER("cuDeviceGet");
    if (index < 0 || index > 1) return 101;
    *device = 40 + index;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    ENTER("cuDeviceGetName");
    snprintf(name, (size_t)size, "stand-in %d", device - 40);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *size, CUdevice device)
{
    ENTER("cuDeviceTotalMem_v2");
    (void)device;
    *size = (size_t)1 << 34;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTER("cuDeviceGetAttribute");
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *at, CUdevice device)
{
    ENTER("cuDevicePrimaryCtxRetain");
    if (device != 40) violate("a context of a device that was not asked for");
    held++;
    *at = (CUcontext)&context;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    const int forced = enter("cuDevicePrimaryCtxRelease_v2");
    (void)device;
    if (held == 0) violate("the context is released too often");
    if (held > 0) held--;
    return forced;
}

API CUresult cuCtxPushCurrent_v2(CUcontext at)
{
    ENTER("cuCtxPushCurrent_v2");
    if (at != (CUcontext)&context || held == 0) {
        violate("what is pushed is no context");
        return ERROR_INVALID_CONTEXT;
    }
    if (depth == MAX_STACK) {
        violate("contexts are pushed and not popped");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[depth++] = at;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *at)
{
    const int forced = enter("cuCtxPopCurrent_v2");
    if (depth == 0) {
        violate("a context is popped that was not pushed");
        return ERROR_INVALID_CONTEXT;
    }
    *at = stack[--depth];
    return forced;
}

API CUresult cuModuleLoadData(CUmodule *at, const void *image)
{
    ENTER("cuModuleLoadData");
    NEED_CONTEXT("cuModuleLoadData");
    if (!image) violate("a module of no image");
    (void)device_image;
    modules++;
    *at = (CUmodule)&module;
    return CUDA_SUCCESS;
}

API CUresult cuModuleUnload(CUmodule at)
{
    const int forced = enter("cuModuleUnload");
    NEED_CONTEXT("cuModuleUnload");
    if (at != (CUmodule)&module || modules == 0) violate("what is unloaded is no module");
    if (modules > 0) modules--;
    return forced;
}

API CUresult cuModuleGetFunction(CUfunction *at, CUmodule from, const char *name)
{
    ENTER("cuModuleGetFunction");
    NEED_CONTEXT("cuModuleGetFunction");
    if (from != (CUmodule)&module) violate("a function of what is no module");
    kernel_function *const function = kernel_by_name(name);
    if (!function) return ERROR_NOT_FOUND;
    memcpy(at, &function, sizeof function);
    return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size)
{
    ENTER("cuMemAlloc_v2");
    NEED_CONTEXT("cuMemAlloc_v2");
    void *p = NULL;
    const int code = allocate(size, false, &p);
    *at = (uintptr_t)p;
    return code;
}

API CUresult cuMemFree_v2(CUdeviceptr at)
{
    const int forced = enter("cuMemFree_v2");
    NEED_CONTEXT("cuMemFree_v2");
    return release((void *)(uintptr_t)at, false) ? CUDA_ERROR_INVALID_VALUE : forced;
}

API CUresult cuMemHostAlloc(void **at, size_t size, unsigned flags)
{
    ENTER("cuMemHostAlloc");
    NEED_CONTEXT("cuMemHostAlloc");
    (void)flags;
    return allocate(size, true, at);
}

API CUresult cuMemFreeHost(void *at)
{
    const int forced = enter("cuMemFreeHost");
    NEED_CONTEXT("cuMemFreeHost");
    return release(at, true) ? CUDA_ERROR_INVALID_VALUE : forced;
}

API CUresult cuStreamCreate(CUstream *at, unsigned flags)
{
    ENTER("cuStreamCreate");
    NEED_CONTEXT("cuStreamCreate");
    (void)flags;
    if (stream_count == MAX_OBJECTS) return CUDA_ERROR_OUT_OF_MEMORY;
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
    stream->last = &stream->first;
    streams[stream_count++] = stream;
    *at = stream;
    return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(CUstream stream)
{
    const int forced = enter("cuStreamSynchronize");
    NEED_CONTEXT("cuStreamSynchronize");
    if (!is_stream(stream)) {
        violate("what is waited for is no stream");
        return ERROR_INVALID_HANDLE;
    }
    int code = forced; /* a stream that fails does no more */
    while (stream->first && code == CUDA_SUCCESS) code = run_first(stream);
    drop(stream);
    for (size_t i = 0; i < memory_count; i++) check_guards(&memories[i]);
    return code;
}

API CUresult cuStreamDestroy_v2(CUstream stream)
{
    const int forced = enter("cuStreamDestroy_v2");
    NEED_CONTEXT("cuStreamDestroy_v2");
    for (size_t i = 0; i < stream_count; i++) {
        if (streams[i] != stream) continue;
        if (stream->first) violate("a stream is destroyed with work in it");
        drop(stream);
        free(stream);
        streams[i] = streams[--stream_count];
        return forced;
    }
    violate("what is destroyed is no stream");
    return ERROR_INVALID_HANDLE;
}

API CUresult cuEventCreate(CUevent *at, unsigned flags)
{
    ENTER("cuEventCreate");
    NEED_CONTEXT("cuEventCreate");
    if (flags != CU_EVENT_DISABLE_TIMING) violate("an event that measures time");
    CUevent event = calloc(1, sizeof *event);
    if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
    event->users = 1;
    events++;
    *at = event;
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER("cuEventRecord");
    NEED_CONTEXT("cuEventRecord");
    if (event->destroyed) violate("an event that is destroyed");
    event->stream = (uintptr_t)stream <= 2 ? &default_stream : stream;
    event->fired = false;
    event->users++;
    return queue(stream, &(operation){.kind = RECORD, .event = event});
}

API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    ENTER("cuStreamWaitEvent");
    NEED_CONTEXT("cuStreamWaitEvent");
    if (event->destroyed || !event->stream || flags) violate("an event that is destroyed or never recorded");
    event->users++;
    return queue(stream, &(operation){.kind = WAIT, .event = event});
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    const int forced = enter("cuEventDestroy_v2");
    NEED_CONTEXT("cuEventDestroy_v2");
    if (event->destroyed) violate("an event is destroyed twice");
    event->destroyed = true;
    events--;
    let_go(event);
    return forced;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    ENTER("cuMemcpyHtoDAsync_v2");
    NEED_CONTEXT("cuMemcpyHtoDAsync_v2");
    if (!is_device(to, size)) {
        violate("an upload of %zu bytes beyond memory", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return queue(stream,
                 &(operation){.kind = UPLOAD, .to = to, .host = (void *)(uintptr_t)from, .size = size});
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER("cuMemcpyDtoHAsync_v2");
    NEED_CONTEXT("cuMemcpyDtoHAsync_v2");
    if (!is_device(from, size)) {
        violate("a download of %zu bytes beyond memory", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return queue(stream, &(operation){.kind = DOWNLOAD, .from = from, .host = to, .size = size});
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER("cuMemcpyDtoDAsync_v2");
    NEED_CONTEXT("cuMemcpyDtoDAsync_v2");
    if (!is_device(to, size) || !is_device(from, size)) {
        violate("a copy of %zu bytes beyond memory", size);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return queue(stream, &(operation){.kind = COPY, .to = to, .from = from, .size = size});
}

API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER("cuMemsetD32Async");
    NEED_CONTEXT("cuMemsetD32Async");
    if (to % 4 != 0 || !is_device(to, 4 * count)) {
        violate("%zu words are cleared beyond memory, or not on a word's boundary", count);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return queue(stream, &(operation){.kind = CLEAR, .to = to, .value = value, .size = count});
}

API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream stream, void **parameters,
                            void **extra)
{
    ENTER("cuLaunchKernel");
    NEED_CONTEXT("cuLaunchKernel");
    operation o = {.kind = LAUNCH, .groups = gx, .shared = shared};
    if (gx == 0 || gx > 0x7fffffff || gy != 1 || gz != 1 || bx == 0 || bx > 256 || bx % 32 || by != 1 ||
        bz != 1 || shared > 48 << 10 || extra || !parameters) {
        violate("a launch of %u x %u threads with %u bytes", gx, bx, shared);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&o.kernel, &function, sizeof function);
    memcpy(&o.in, parameters[0], 8);
    memcpy(&o.out, parameters[1], 8);
    memcpy(&o.jobs, parameters[2], 8);
    memcpy(&o.results, parameters[3], 8);
    memcpy(&o.first, parameters[4], 4);
    memcpy(&o.warps, parameters[5], 4);
    if (o.warps == 0 || o.warps > bx / 32 || o.jobs % 8 || o.results % 8 || o.in % 256 || o.out % 256 ||
        !is_device(o.jobs, ((size_t)o.first + (size_t)gx * o.warps) * sizeof(tp_gpu_job)) ||
        !is_device(o.results, 8) || !is_device(o.in, 1)) {
        violate("a launch with wrong memory");
        return ERROR_LAUNCH_FAILED;
    }
    return queue(stream, &o);
}

API CUresult cuGetErrorName(CUresult code, const char **name)
{
    ENTER("cuGetErrorName");
    *name = code == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorString(CUresult code, const char **text)
{
    ENTER("cuGetErrorString");
    *text = code == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "something else";
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------------------------------- control */

static void control_fail(const char *function, unsigned nth, int code)
{
    snprintf(fail_function, sizeof fail_function, "%s", function ? function : "");
    fail_nth = nth;
    fail_code = code;
}
static unsigned control_calls(const char *function)
{
    for (size_t i = 0; i < counted_functions; i++)
        if (strcmp(counted[i].name, function) == 0) return counted[i].calls;
    return 0;
}
static unsigned control_live(void)
{
    return held + modules + events + (unsigned)(memory_count + stream_count) + depth;
}
static const char *control_violation(void)
{
    return first_violation[0] ? first_violation : NULL;
}
/* What a failed test left behind goes too. */
static void control_reset(void)
{
    counted_functions = 0;
    memset(counted, 0, sizeof counted);
    control_fail(NULL, 0, 0);
    first_violation[0] = 0;
    for (size_t i = 0; i < stream_count; i++) {
        drop(streams[i]);
        free(streams[i]);
    }
    for (size_t i = 0; i < memory_count; i++) free(memories[i].block);
    stream_count = memory_count = 0;
    held = modules = depth = events = 0;
    drop(&default_stream);
    used_memory = peak_memory = limit_memory = 0;
}
static unsigned long long control_room(unsigned long long address)
{
    const memory *m = find((const void *)(uintptr_t)address, 1);
    return m ? (unsigned long long)(start_of(m) + m->size - (const uint8_t *)(uintptr_t)address) : 0;
}
static unsigned long long control_peak(void)
{
    return peak_memory;
}
static unsigned long long control_used(void)
{
    return used_memory;
}
static unsigned control_pending(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < stream_count; i++)
        for (const operation *o = streams[i]->first; o; o = o->next) count++;
    return count;
}
static void control_limit(unsigned long long bytes)
{
    limit_memory = bytes;
}

API const driver_control *driver_control_get(void)
{
    static const driver_control control = {.make_fail = control_fail,
                                           .calls = control_calls,
                                           .live = control_live,
                                           .violation = control_violation,
                                           .reset = control_reset,
                                           .room = control_room,
                                           .peak = control_peak,
                                           .used = control_used,
                                           .pending = control_pending,
                                           .memory_limit = control_limit};
    return &control;
}
