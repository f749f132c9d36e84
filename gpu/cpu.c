/* The cpu back end: memory is memory, and what is queued happens at once. */
#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"

#define ALIGNMENT 256

static size_t cpu_count(void)
{
    return 1;
}

static tp_status cpu_describe(size_t index, tp_device_info *info)
{
    *info = (tp_device_info){.backend = "cpu"};
    if (index > 0) return TP_UNSUPPORTED;
    strcpy(info->name, "cpu");
    strcpy(info->description, "this machine's processors, kernels: ");
    strncat(info->description, tp_kernel_active(),
            sizeof info->description - strlen(info->description) - 1);
    return TP_OK;
}

static tp_status cpu_open(size_t index, tp_device **device, tp_error *error)
{
    tp_device *d = calloc(1, sizeof *d);
    if (!d) return tp_error_set(error, TP_NO_MEMORY, "cpu: out of memory");
    d->backend = &tp_backend_cpu;
    d->max_warps = 1;
    d->max_allocation = SIZE_MAX / 2;
    d->one_address_space = true;
    *device = d;
    return cpu_describe(index, &d->info);
}

static void cpu_close(tp_device *device)
{
    free(device);
}

static tp_status cpu_memory_create(tp_device *device, uint64_t size, tp_memory *memory, tp_error *error)
{
    const uint64_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *p = size && size <= SIZE_MAX / 2 ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    if (!p)
        return tp_error_set(error, TP_NO_MEMORY, "cpu: no room for %llu bytes", (unsigned long long)size);
    *memory = (tp_memory){.device = device, .size = size, .handle = p, .address = (uintptr_t)p};
    return TP_OK;
}

static void cpu_memory_destroy(tp_memory *memory)
{
    free(memory->handle);
    tp_memory_none(memory);
}

static tp_status cpu_host_create(tp_device *device, size_t size, tp_host_memory *memory, tp_error *error)
{
    tp_memory plain = {.handle = NULL};
    const tp_status status = cpu_memory_create(device, size, &plain, error);
    if (status == TP_OK)
        *memory =
            (tp_host_memory){.device = device, .size = size, .data = plain.handle, .handle = plain.handle};
    return status;
}

static void cpu_host_destroy(tp_host_memory *memory)
{
    free(memory->handle);
    *memory = (tp_host_memory){.device = NULL};
}

static tp_status cpu_stream_create(tp_device *device, tp_stream *stream, tp_error *error)
{
    (void)error;
    *stream = (tp_stream){.device = device};
    return TP_OK;
}

static void cpu_stream_destroy(tp_stream *stream)
{
    *stream = (tp_stream){.device = NULL};
}

static tp_status cpu_stream_after(tp_stream *stream, void *callers, tp_error *error)
{
    (void)stream, (void)callers, (void)error;
    return TP_OK;
}

static uint8_t *bytes_of(const tp_memory *memory)
{
    return memory->handle;
}

static tp_status cpu_upload(tp_stream *stream, const tp_memory *to, uint64_t at, const void *from,
                            size_t size, tp_error *error)
{
    (void)stream, (void)error;
    memcpy(bytes_of(to) + at, from, size);
    return TP_OK;
}

static tp_status cpu_download(tp_stream *stream, const tp_memory *from, uint64_t at, void *to, size_t size,
                              tp_error *error)
{
    (void)stream, (void)error;
    memcpy(to, bytes_of(from) + at, size);
    return TP_OK;
}

static tp_status cpu_copy(tp_stream *stream, const tp_memory *to, uint64_t to_at, const tp_memory *from,
                          uint64_t from_at, uint64_t size, tp_error *error)
{
    (void)stream, (void)error;
    memcpy(bytes_of(to) + to_at, bytes_of(from) + from_at, size);
    return TP_OK;
}

static tp_status cpu_clear(tp_stream *stream, const tp_memory *memory, uint64_t at, uint64_t size,
                           tp_error *error)
{
    (void)stream, (void)error;
    memset(bytes_of(memory) + at, 0, size);
    return TP_OK;
}

static tp_status cpu_wait(tp_stream *stream, tp_error *error)
{
    (void)stream, (void)error;
    return TP_OK;
}

const tp_backend tp_backend_cpu = {
    .name = "cpu",
    .count = cpu_count,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .memory_create = cpu_memory_create,
    .memory_destroy = cpu_memory_destroy,
    .host_create = cpu_host_create,
    .host_destroy = cpu_host_destroy,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_after = cpu_stream_after,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .launch = NULL,
    .wait = cpu_wait,
};
