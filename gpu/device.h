/*
 * Devices: what the loader needs of one, and nothing that it does not use.
 *
 * A back end is a table of functions. Memory of a device is used through streams: what is queued on a
 * stream happens in order, streams are independent of each other, and nothing but wait, read-backs through
 * it and closing blocks. The cpu back end has no kernels: frames are decoded by codec/ where it is used.
 */
#ifndef TP_GPU_DEVICE_H
#define TP_GPU_DEVICE_H

#include <stdatomic.h>

#include "gpu/jobs.h"
#include "tensorpress.h"

/* Room behind input memory that kernels may read (docs/format.md section 8). */
#define TP_INPUT_SLACK 4096

typedef struct tp_memory { /* of a device */
    tp_device *device;
    uint64_t size;
    void *handle;     /* opencl: cl_mem */
    uint64_t address; /* cpu: the pointer; cuda: the device pointer; 0 for opencl */
} tp_memory;

typedef struct tp_host_memory { /* from which a device copies at full speed */
    tp_device *device;
    size_t size;
    uint8_t *data;
    void *handle;
} tp_host_memory;

typedef struct tp_stream {
    tp_device *device;
    void *handle;
} tp_stream;

/* One kernel over groups * warps jobs. Addresses in the jobs count from the starts of input and output. */
typedef struct tp_launch {
    tp_kernel_id kernel;
    const tp_memory *input, *output, *jobs, *results;
    uint64_t jobs_at; /* bytes */
    uint32_t groups, warps;
    size_t local_bytes;
} tp_launch;

/* Every function that can fail fills the error with a line that names the device. */
typedef struct tp_backend {
    const char *name;
    /* Devices that are there; none, without an error, where there is no driver. */
    size_t (*count)(void);
    tp_status (*describe)(size_t index, tp_device_info *info);
    tp_status (*open)(size_t index, tp_device **device, tp_error *error);
    void (*close)(tp_device *device);

    tp_status (*memory_create)(tp_device *device, uint64_t size, tp_memory *memory, tp_error *error);
    void (*memory_destroy)(tp_memory *memory);
    tp_status (*host_create)(tp_device *device, size_t size, tp_host_memory *memory, tp_error *error);
    void (*host_destroy)(tp_host_memory *memory);
    tp_status (*stream_create)(tp_device *device, tp_stream *stream, tp_error *error);
    void (*stream_destroy)(tp_stream *stream); /* waits first */
    /* What is queued on `stream` from now on happens after what has been queued on the caller's stream. */
    tp_status (*stream_after)(tp_stream *stream, void *callers, tp_error *error);

    /* The host's bytes must stay as they are until the stream has been waited for. */
    tp_status (*upload)(tp_stream *stream, const tp_memory *to, uint64_t at, const void *from, size_t size,
                        tp_error *error);
    tp_status (*download)(tp_stream *stream, const tp_memory *from, uint64_t at, void *to, size_t size,
                          tp_error *error);
    tp_status (*copy)(tp_stream *stream, const tp_memory *to, uint64_t to_at, const tp_memory *from,
                      uint64_t from_at, uint64_t size, tp_error *error);
    tp_status (*clear)(tp_stream *stream, const tp_memory *memory, uint64_t at, uint64_t size,
                       tp_error *error);
    /* NULL: no kernels. */
    tp_status (*launch)(tp_stream *stream, const tp_launch *launch, tp_error *error);
    /* Until all that is queued has been done; reports what failed since. */
    tp_status (*wait)(tp_stream *stream, tp_error *error);
} tp_backend;

struct tp_device { /* begins every back end's own */
    const tp_backend *backend;
    tp_device_info info;
    unsigned max_warps;      /* jobs of a work-group, at most */
    uint64_t max_allocation; /* bytes */
    bool one_address_space;  /* addresses reach all memory, so that a launch may write to any of it */
    _Atomic unsigned more_users; /* than one; the last to close it closes it */
    tp_decoder *decoder;         /* of a device without kernels, made when first needed (decode.c) */
};

/* One more who will call tp_device_close. From any thread. */
void tp_device_retain(tp_device *device);

/* Whether it can be memory of the device at all, at a multiple of `alignment`. */
bool tp_device_is_range(const tp_device *device, const tp_device_range *range, uint64_t alignment);
/* The caller's memory as the back ends know it. *at: what offsets in it begin with; not 0 for opencl only. */
tp_memory tp_device_wrap(tp_device *device, const tp_device_range *range, uint64_t *at);

extern const tp_backend tp_backend_cpu;
#ifdef TP_HAVE_OPENCL
extern const tp_backend tp_backend_opencl;
/* A device in the context of a cl_command_queue. */
tp_status tp_opencl_open_queue(void *queue, tp_device **device, tp_error *error);
/* Tests choose how OpenCL kernels are compiled: lanes as work-items or as a loop. -1: what suits the
 * device. */
void tp_opencl_force_lane_loop(int lane_loop);
/* And work-groups of another size for each launch of a kernel that takes any. */
void tp_opencl_vary_groups(bool vary);
#endif
#ifdef TP_HAVE_CUDA
extern const tp_backend tp_backend_cuda;
/* Tests name a library that stands in for the driver, before anything else is called. */
void tp_cuda_use_driver(const char *library);
#endif

/* The back ends built in, NULL at the end. */
const tp_backend *const *tp_backends(void);

/* A memory of no size, for a launch that uses none. Destroying it does nothing. */
static inline void tp_memory_none(tp_memory *memory)
{
    *memory = (tp_memory){.device = NULL};
}

#endif
