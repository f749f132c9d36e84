/*
 * The CUDA back end, by the driver's interface. The driver is loaded at run time; the kernels are in the
 * library, compiled for the architectures that the build lists.
 *
 * The device's primary context is used, which frameworks share, and made current only for the time of a
 * call: what the caller's thread has current stays so, and no other device gets a context.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda_api.h"
#include "gpu/device.h"
#include "gpu/kernels/image.h"

static tp_cuda_driver cu;
static size_t found_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *driver_library = "libcuda.so.1";

void tp_cuda_use_driver(const char *library)
{
    driver_library = library;
}

static void find_devices(void)
{
    void *library = dlopen(driver_library, RTLD_NOW | RTLD_LOCAL);
    int count = 0;
    if (!library) return;
#define LOAD(member, name, parameters)                                                                     \
    *(void **)&cu.member = dlsym(library, #name);                                                          \
    if (!cu.member) return;
    TP_CUDA_FUNCTIONS(LOAD)
#undef LOAD
    if (cu.init(0) != CUDA_SUCCESS || cu.device_count(&count) != CUDA_SUCCESS || count < 0) return;
    found_count = (size_t)count;
}

static size_t cuda_count(void)
{
    pthread_once(&once, find_devices);
    return found_count;
}

static tp_status cuda_describe(size_t index, tp_device_info *info)
{
    *info = (tp_device_info){.backend = "cuda", .index = (unsigned)index};
    if (index >= cuda_count()) return TP_UNSUPPORTED;
    char name[128] = "";
    int major = 0, minor = 0, version = 0;
    size_t memory = 0;
    CUdevice device;
    snprintf(info->name, sizeof info->name, "cuda:%zu", index);
    if (cu.device_get(&device, (int)index) != CUDA_SUCCESS) return TP_UNSUPPORTED;
    if (cu.device_name(name, sizeof name - 1, device) != CUDA_SUCCESS) strcpy(name, "a CUDA device");
    if (cu.device_memory(&memory, device) != CUDA_SUCCESS) memory = 0;
    cu.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cu.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    cu.driver_version(&version);
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = ' ';
    snprintf(info->description, sizeof info->description, "%s, sm_%d%d, driver for CUDA %d.%d", name, major,
             minor, version / 1000, version % 1000 / 10);
    info->memory = memory;
    return TP_OK;
}

static tp_status failed(const tp_device *device, CUresult code, const char *what, tp_error *error)
{
    const char *name = NULL, *text = NULL;
    if (cu.error_name(code, &name) != CUDA_SUCCESS || !name) name = "an error";
    if (cu.error_text(code, &text) != CUDA_SUCCESS || !text) text = "unknown";
    const tp_status status =
        code == CUDA_ERROR_OUT_OF_MEMORY ? TP_NO_MEMORY
        : code == CUDA_ERROR_NO_BINARY_FOR_GPU || code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            ? TP_UNSUPPORTED
            : TP_IO;
    return tp_error_set(error, status, "%s: %s: %s (%s)", device->info.name, what, text, name);
}

/* ------------------------------------------------------------------------------------------ devices */

typedef struct cuda_device {
    tp_device base;
    CUdevice device;
    CUcontext context; /* NULL: not retained */
    CUmodule module;
    CUfunction functions[TP_KERNEL_COUNT];
} cuda_device;

static cuda_device *of(const tp_device *device)
{
    return (cuda_device *)device;
}

/* Makes the device's context current; leave() must follow where it succeeds. */
static CUresult enter(const tp_device *device)
{
    return cu.context_push(of(device)->context);
}
static void leave(void)
{
    CUcontext popped;
    cu.context_pop(&popped);
}

/* A call of the driver within the context. */
#define IN_CONTEXT(device, call)                                                                           \
    __extension__({                                                                                        \
        CUresult code_ = enter(device);                                                                    \
        if (code_ == CUDA_SUCCESS) {                                                                       \
            code_ = (call);                                                                                \
            leave();                                                                                       \
        }                                                                                                  \
        code_;                                                                                             \
    })

static void cuda_close(tp_device *device)
{
    cuda_device *d = of(device);
    if (d->module) (void)IN_CONTEXT(device, cu.module_unload(d->module));
    if (d->context) cu.context_release(d->device);
    free(d);
}

static tp_status cuda_open(size_t index, tp_device **device, tp_error *error)
{
    cuda_device *d = calloc(1, sizeof *d);
    if (!d) return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    d->base.backend = &tp_backend_cuda;
    d->base.max_warps = TP_MAX_WARPS;
    d->base.max_allocation = SIZE_MAX / 2;
    d->base.one_address_space = true;
    const char *what = "cannot be opened";
    if (cuda_describe(index, &d->base.info) != TP_OK) {
        free(d);
        return tp_error_set(error, TP_UNSUPPORTED, "cuda:%zu: %s", index, what);
    }
    CUresult code = cu.device_get(&d->device, (int)index);
    if (code == CUDA_SUCCESS) code = cu.context_retain(&d->context, d->device);
    if (code == CUDA_SUCCESS) {
        what = "cannot load the kernels";
        code = IN_CONTEXT(&d->base, cu.module_load(&d->module, tp_cuda_image()));
    }
    for (int i = 0; i < TP_KERNEL_COUNT && code == CUDA_SUCCESS; i++)
        code = IN_CONTEXT(&d->base, cu.module_function(&d->functions[i], d->module,
                                                       tp_kernel_shape_of((tp_kernel_id)i)->name));
    if (code != CUDA_SUCCESS) {
        const tp_status status = failed(&d->base, code, what, error);
        cuda_close(&d->base);
        return status;
    }
    *device = &d->base;
    return TP_OK;
}

/* ------------------------------------------------------------------------------------------- memory */

static tp_status cuda_memory_create(tp_device *device, uint64_t size, tp_memory *memory, tp_error *error)
{
    CUdeviceptr address = 0;
    const CUresult code = IN_CONTEXT(device, cu.memory_allocate(&address, size));
    if (code != CUDA_SUCCESS) {
        char what[64];
        snprintf(what, sizeof what, "no room for %llu bytes", (unsigned long long)size);
        return failed(device, code, what, error);
    }
    *memory = (tp_memory){.device = device, .size = size, .address = address};
    return TP_OK;
}

static void cuda_memory_destroy(tp_memory *memory)
{
    if (memory->address) (void)IN_CONTEXT(memory->device, cu.memory_free(memory->address));
    tp_memory_none(memory);
}

static tp_status cuda_host_create(tp_device *device, size_t size, tp_host_memory *memory, tp_error *error)
{
    void *data = NULL;
    const CUresult code = IN_CONTEXT(device, cu.host_allocate(&data, size, 0));
    if (code != CUDA_SUCCESS) return failed(device, code, "no room for a staging buffer", error);
    *memory = (tp_host_memory){.device = device, .size = size, .data = data, .handle = data};
    return TP_OK;
}

static void cuda_host_destroy(tp_host_memory *memory)
{
    if (memory->handle) (void)IN_CONTEXT(memory->device, cu.host_free(memory->handle));
    *memory = (tp_host_memory){.device = NULL};
}

static tp_status cuda_stream_create(tp_device *device, tp_stream *stream, tp_error *error)
{
    CUstream handle = NULL;
    const CUresult code = IN_CONTEXT(device, cu.stream_create(&handle, CU_STREAM_NON_BLOCKING));
    if (code != CUDA_SUCCESS) return failed(device, code, "cannot make a stream", error);
    *stream = (tp_stream){.device = device, .handle = handle};
    return TP_OK;
}

static void cuda_stream_destroy(tp_stream *stream)
{
    /* Host memory that the stream works on is freed next, so it must have ended. */
    if (stream->handle)
        (void)IN_CONTEXT(stream->device,
                         (cu.stream_wait(stream->handle), cu.stream_destroy(stream->handle)));
    *stream = (tp_stream){.device = NULL};
}

static tp_status cuda_stream_after(tp_stream *stream, void *callers, tp_error *error)
{
    CUevent event = NULL;
    CUresult code = enter(stream->device);
    if (code == CUDA_SUCCESS) {
        code = cu.event_create(&event, CU_EVENT_DISABLE_TIMING);
        if (code == CUDA_SUCCESS) code = cu.event_record(event, callers);
        if (code == CUDA_SUCCESS) code = cu.stream_wait_event(stream->handle, event, 0);
        if (event) cu.event_destroy(event); /* what waits for it does so all the same */
        leave();
    }
    return code == CUDA_SUCCESS ? TP_OK
                                : failed(stream->device, code, "cannot wait for the caller's stream", error);
}

static tp_status done(const tp_stream *stream, CUresult code, const char *what, tp_error *error)
{
    return code == CUDA_SUCCESS ? TP_OK : failed(stream->device, code, what, error);
}

static tp_status cuda_upload(tp_stream *stream, const tp_memory *to, uint64_t at, const void *from,
                             size_t size, tp_error *error)
{
    return done(stream, IN_CONTEXT(stream->device, cu.upload(to->address + at, from, size, stream->handle)),
                "cannot copy to the device", error);
}

static tp_status cuda_download(tp_stream *stream, const tp_memory *from, uint64_t at, void *to, size_t size,
                               tp_error *error)
{
    return done(stream,
                IN_CONTEXT(stream->device, cu.download(to, from->address + at, size, stream->handle)),
                "cannot copy from the device", error);
}

static tp_status cuda_copy(tp_stream *stream, const tp_memory *to, uint64_t to_at, const tp_memory *from,
                           uint64_t from_at, uint64_t size, tp_error *error)
{
    return done(stream,
                IN_CONTEXT(stream->device,
                           cu.copy(to->address + to_at, from->address + from_at, size, stream->handle)),
                "cannot copy on the device", error);
}

static tp_status cuda_clear(tp_stream *stream, const tp_memory *memory, uint64_t at, uint64_t size,
                            tp_error *error)
{
    return done(stream,
                IN_CONTEXT(stream->device, cu.clear(memory->address + at, 0, size / 4, stream->handle)),
                "cannot clear memory", error);
}

static tp_status cuda_wait(tp_stream *stream, tp_error *error)
{
    return done(stream, IN_CONTEXT(stream->device, cu.stream_wait(stream->handle)),
                "a kernel or copy failed", error);
}

/* ------------------------------------------------------------------------------------------ kernels */

static tp_status cuda_launch(tp_stream *stream, const tp_launch *launch, tp_error *error)
{
    const cuda_device *d = of(stream->device);
    CUdeviceptr input = launch->input->address, output = launch->output->address;
    CUdeviceptr jobs = launch->jobs->address + launch->jobs_at, results = launch->results->address;
    unsigned first = 0, warps = launch->warps;
    void *parameters[] = {&input, &output, &jobs, &results, &first, &warps};
    /* One job a work-group is one that all its threads share, if it is no stream's. */
    const unsigned threads = launch->kernel < tp_hash_kernel ? 256 : 32 * launch->warps;
    return done(stream,
                IN_CONTEXT(stream->device,
                           cu.launch(d->functions[launch->kernel], launch->groups, 1, 1, threads, 1, 1,
                                     (unsigned)launch->local_bytes, stream->handle, parameters, NULL)),
                "cannot start a kernel", error);
}

const tp_backend tp_backend_cuda = {
    .name = "cuda",
    .count = cuda_count,
    .describe = cuda_describe,
    .open = cuda_open,
    .close = cuda_close,
    .memory_create = cuda_memory_create,
    .memory_destroy = cuda_memory_destroy,
    .host_create = cuda_host_create,
    .host_destroy = cuda_host_destroy,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_after = cuda_stream_after,
    .upload = cuda_upload,
    .download = cuda_download,
    .copy = cuda_copy,
    .clear = cuda_clear,
    .launch = cuda_launch,
    .wait = cuda_wait,
};
