/*
 * The OpenCL back end. The loader of drivers (libOpenCL) is itself loaded at run time, so that nothing is
 * linked and a machine without it has no such devices. OpenCL 1.2 is enough.
 *
 * Kernels are compiled when they are first needed, each on its own, and kept in the user's cache folder.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cache.h"
#include "gpu/device.h"
#include "gpu/kernels/text.h"

#define CL_FUNCTIONS(X)                                                                                    \
    X(clGetPlatformIDs)                                                                                    \
    X(clGetPlatformInfo)                                                                                   \
    X(clGetDeviceIDs)                                                                                      \
    X(clGetDeviceInfo)                                                                                     \
    X(clCreateContext)                                                                                     \
    X(clReleaseContext)                                                                                    \
    X(clCreateCommandQueue)                                                                                \
    X(clReleaseCommandQueue)                                                                               \
    X(clCreateBuffer)                                                                                      \
    X(clReleaseMemObject)                                                                                  \
    X(clCreateProgramWithSource)                                                                           \
    X(clCreateProgramWithBinary)                                                                           \
    X(clBuildProgram)                                                                                      \
    X(clGetProgramInfo)                                                                                    \
    X(clGetProgramBuildInfo)                                                                               \
    X(clReleaseProgram)                                                                                    \
    X(clCreateKernel)                                                                                      \
    X(clReleaseKernel)                                                                                     \
    X(clSetKernelArg)                                                                                      \
    X(clEnqueueNDRangeKernel)                                                                              \
    X(clEnqueueReadBuffer)                                                                                 \
    X(clEnqueueWriteBuffer)                                                                                \
    X(clEnqueueCopyBuffer)                                                                                 \
    X(clEnqueueFillBuffer)                                                                                 \
    X(clEnqueueMapBuffer)                                                                                  \
    X(clEnqueueUnmapMemObject)                                                                             \
    X(clEnqueueMarkerWithWaitList)                                                                         \
    X(clEnqueueBarrierWithWaitList)                                                                        \
    X(clReleaseEvent)                                                                                      \
    X(clGetCommandQueueInfo)                                                                               \
    X(clRetainContext)                                                                                     \
    X(clFlush)                                                                                             \
    X(clFinish)

static struct {
    void *library;
#define MEMBER(name) __typeof__(name) *name;
    CL_FUNCTIONS(MEMBER)
#undef MEMBER
} cl;

#define MAX_DEVICES 64
static struct {
    cl_platform_id platform;
    cl_device_id device;
} found[MAX_DEVICES];
static size_t found_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int forced_lane_loop = -1;

void tp_opencl_force_lane_loop(int lane_loop)
{
    forced_lane_loop = lane_loop;
}

/* Tests only, which use a device from one thread. */
static bool vary_groups;
static unsigned varied;

void tp_opencl_vary_groups(bool vary)
{
    vary_groups = vary;
}

static void find_devices(void)
{
    cl.library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cl.library) return;
#define LOAD(name)                                                                                         \
    *(void **)&cl.name = dlsym(cl.library, #name);                                                         \
    if (!cl.name) return;
    CL_FUNCTIONS(LOAD)
#undef LOAD
    cl_platform_id platforms[MAX_DEVICES];
    cl_uint platform_count = 0;
    if (cl.clGetPlatformIDs(MAX_DEVICES, platforms, &platform_count) != CL_SUCCESS) return;
    for (cl_uint p = 0; p < platform_count && p < MAX_DEVICES; p++) {
        cl_device_id devices[MAX_DEVICES];
        cl_uint count = 0;
        if (cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &count) != CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < count && d < MAX_DEVICES && found_count < MAX_DEVICES; d++) {
            cl_bool little = CL_FALSE, compiler = CL_FALSE;
            cl.clGetDeviceInfo(devices[d], CL_DEVICE_ENDIAN_LITTLE, sizeof little, &little, NULL);
            cl.clGetDeviceInfo(devices[d], CL_DEVICE_COMPILER_AVAILABLE, sizeof compiler, &compiler, NULL);
            if (!little || !compiler) continue; /* of no use here */
            found[found_count].platform = platforms[p];
            found[found_count++].device = devices[d];
        }
    }
}

static size_t opencl_count(void)
{
    pthread_once(&once, find_devices);
    return found_count;
}

/* A text property, without anything that drives a terminal. */
static void device_text(cl_device_id device, cl_device_info what, char *text, size_t capacity)
{
    char value[512] = {0};
    if (cl.clGetDeviceInfo(device, what, sizeof value - 1, value, NULL) != CL_SUCCESS) value[0] = 0;
    for (char *c = value; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = ' ';
    snprintf(text, capacity, "%s", value);
}

static tp_status opencl_describe(size_t index, tp_device_info *info)
{
    *info = (tp_device_info){.backend = "opencl", .index = (unsigned)index};
    if (index >= opencl_count()) return TP_UNSUPPORTED;
    cl_ulong memory = 0;
    char name[128], version[128];
    snprintf(info->name, sizeof info->name, "opencl:%zu", index);
    device_text(found[index].device, CL_DEVICE_NAME, name, sizeof name);
    device_text(found[index].device, CL_DRIVER_VERSION, version, sizeof version);
    snprintf(info->description, sizeof info->description, "%s, driver %s", name, version);
    cl.clGetDeviceInfo(found[index].device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof memory, &memory, NULL);
    info->memory = memory;
    return TP_OK;
}

/* ------------------------------------------------------------------------------------------- errors */

static const char *code_name(cl_int code)
{
#define CODE(name)                                                                                         \
    case name:                                                                                             \
        return #name;
    switch (code) {
        CODE(CL_DEVICE_NOT_FOUND)
        CODE(CL_DEVICE_NOT_AVAILABLE)
        CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE)
        CODE(CL_OUT_OF_RESOURCES)
        CODE(CL_OUT_OF_HOST_MEMORY)
        CODE(CL_BUILD_PROGRAM_FAILURE)
        CODE(CL_MAP_FAILURE)
        CODE(CL_INVALID_VALUE)
        CODE(CL_INVALID_CONTEXT)
        CODE(CL_INVALID_MEM_OBJECT)
        CODE(CL_INVALID_BINARY)
        CODE(CL_INVALID_PROGRAM_EXECUTABLE)
        CODE(CL_INVALID_KERNEL_NAME)
        CODE(CL_INVALID_KERNEL_ARGS)
        CODE(CL_INVALID_WORK_GROUP_SIZE)
        CODE(CL_INVALID_COMMAND_QUEUE)
        CODE(CL_INVALID_BUFFER_SIZE)
    default:
        return "an error";
    }
#undef CODE
}

static tp_status failed(const tp_device *device, cl_int code, const char *what, tp_error *error)
{
    const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
                        code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
    return tp_error_set(error, memory ? TP_NO_MEMORY : TP_IO, "%s: %s: %s (%d)", device->info.name, what,
                        code_name(code), code);
}

/* ------------------------------------------------------------------------------------------ devices */

typedef struct opencl_device {
    tp_device base;
    cl_device_id device;
    cl_context context;
    bool lane_loop;
    size_t max_group;
    char identity[704]; /* what compiled kernels depend on */
    cl_kernel kernels[TP_KERNEL_COUNT];
} opencl_device;

static void opencl_close(tp_device *device)
{
    opencl_device *d = (opencl_device *)device;
    for (size_t i = 0; i < TP_KERNEL_COUNT; i++)
        if (d->kernels[i]) cl.clReleaseKernel(d->kernels[i]);
    if (d->context) cl.clReleaseContext(d->context);
    free(d);
}

/* context NULL: one of its own. */
static tp_status open_in(size_t index, cl_context context, tp_device **device, tp_error *error)
{
    opencl_device *d = calloc(1, sizeof *d);
    if (!d) return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    opencl_describe(index, &d->base.info);
    d->base.backend = &tp_backend_opencl;
    d->base.max_warps = 1;
    d->device = found[index].device;
    cl_ulong allocation = 0;
    cl_device_type type = 0;
    cl.clGetDeviceInfo(d->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof allocation, &allocation, NULL);
    cl.clGetDeviceInfo(d->device, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    cl.clGetDeviceInfo(d->device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof d->max_group, &d->max_group, NULL);
    d->base.max_allocation = allocation;
    cl_ulong local = 0;
    cl.clGetDeviceInfo(d->device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    if (local < tp_kernel_local_bytes(tp_df11_kernel, 1)) { /* what takes the most */
        const tp_status status = tp_error_set(
            error, TP_UNSUPPORTED, "%s: has %llu bytes of local memory, kernels need %zu",
            d->base.info.name, (unsigned long long)local, tp_kernel_local_bytes(tp_df11_kernel, 1));
        opencl_close(&d->base);
        return status;
    }
    d->lane_loop = forced_lane_loop >= 0 ? forced_lane_loop : !!(type & CL_DEVICE_TYPE_CPU);
    char platform[160] = {0}, version[160];
    cl.clGetPlatformInfo(found[index].platform, CL_PLATFORM_VERSION, sizeof platform - 1, platform, NULL);
    device_text(d->device, CL_DEVICE_VERSION, version, sizeof version);
    snprintf(d->identity, sizeof d->identity, "%s\n%s\n%s", platform, version, d->base.info.description);

    cl_int code = CL_SUCCESS;
    if (!context)
        d->context = cl.clCreateContext(NULL, 1, &d->device, NULL, NULL, &code);
    else if ((code = cl.clRetainContext(context)) == CL_SUCCESS)
        d->context = context;
    if (!d->context) {
        const tp_status status = failed(&d->base, code, "cannot be opened", error);
        opencl_close(&d->base);
        return status;
    }
    *device = &d->base;
    return TP_OK;
}

static tp_status opencl_open(size_t index, tp_device **device, tp_error *error)
{
    return open_in(index, NULL, device, error);
}

tp_status tp_opencl_open_queue(void *queue, tp_device **device, tp_error *error)
{
    cl_context context = NULL;
    cl_device_id id = NULL;
    const size_t count = opencl_count();
    *device = NULL;
    if (count == 0) return tp_error_set(error, TP_UNSUPPORTED, "no opencl driver with a device is present");
    if (!queue ||
        cl.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(cl_context), &context, NULL) != CL_SUCCESS ||
        cl.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(cl_device_id), &id, NULL) != CL_SUCCESS)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "not an OpenCL command queue");
    for (size_t i = 0; i < count; i++)
        if (found[i].device == id) return open_in(i, context, device, error);
    return tp_error_set(error, TP_UNSUPPORTED, "the queue's OpenCL device cannot be used here");
}

/* ------------------------------------------------------------------------------------------- memory */

static tp_status opencl_memory_create(tp_device *device, uint64_t size, tp_memory *memory, tp_error *error)
{
    opencl_device *d = (opencl_device *)device;
    cl_int code;
    const cl_mem handle = cl.clCreateBuffer(d->context, CL_MEM_READ_WRITE, size, NULL, &code);
    if (!handle) {
        char what[64];
        snprintf(what, sizeof what, "no room for %llu bytes", (unsigned long long)size);
        return failed(device, code, what, error);
    }
    *memory = (tp_memory){.device = device, .size = size, .handle = handle};
    return TP_OK;
}

static void opencl_memory_destroy(tp_memory *memory)
{
    if (memory->handle) cl.clReleaseMemObject(memory->handle);
    tp_memory_none(memory);
}

/* A buffer in host memory that stays mapped: drivers copy from it without a copy of their own. */
typedef struct mapped {
    cl_mem buffer;
    cl_command_queue queue;
} mapped;

static void opencl_host_destroy(tp_host_memory *memory)
{
    mapped *m = memory->handle;
    if (m) {
        if (memory->data) {
            cl.clEnqueueUnmapMemObject(m->queue, m->buffer, memory->data, 0, NULL, NULL);
            cl.clFinish(m->queue);
        }
        if (m->buffer) cl.clReleaseMemObject(m->buffer);
        if (m->queue) cl.clReleaseCommandQueue(m->queue);
        free(m);
    }
    *memory = (tp_host_memory){.device = NULL};
}

static tp_status opencl_host_create(tp_device *device, size_t size, tp_host_memory *memory, tp_error *error)
{
    opencl_device *d = (opencl_device *)device;
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    mapped *m = calloc(1, sizeof *m);
    *memory = (tp_host_memory){.device = device, .size = size, .handle = m};
    if (m) m->queue = cl.clCreateCommandQueue(d->context, d->device, 0, &code);
    if (m && m->queue)
        m->buffer =
            cl.clCreateBuffer(d->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, NULL, &code);
    if (m && m->buffer)
        memory->data = cl.clEnqueueMapBuffer(m->queue, m->buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                             size, 0, NULL, NULL, &code);
    if (memory->data) return TP_OK;
    opencl_host_destroy(memory);
    return failed(device, code, "no room for a staging buffer", error);
}

static tp_status opencl_stream_create(tp_device *device, tp_stream *stream, tp_error *error)
{
    opencl_device *d = (opencl_device *)device;
    cl_int code;
    *stream = (tp_stream){.device = device};
    stream->handle = cl.clCreateCommandQueue(d->context, d->device, 0, &code);
    return stream->handle ? TP_OK : failed(device, code, "cannot make a queue", error);
}

static void opencl_stream_destroy(tp_stream *stream)
{
    if (stream->handle) {
        cl.clFinish(stream->handle);
        cl.clReleaseCommandQueue(stream->handle);
    }
    *stream = (tp_stream){.device = NULL};
}

static tp_status opencl_stream_after(tp_stream *stream, void *callers, tp_error *error)
{
    cl_event event = NULL;
    cl_int code = cl.clEnqueueMarkerWithWaitList(callers, 0, NULL, &event);
    if (code == CL_SUCCESS) {
        code = cl.clEnqueueBarrierWithWaitList(stream->handle, 1, &event, NULL);
        /* Else nobody might ever start what is waited for. */
        if (code == CL_SUCCESS) code = cl.clFlush(callers);
        cl.clReleaseEvent(event);
    }
    return code == CL_SUCCESS ? TP_OK
                              : failed(stream->device, code, "cannot wait for the caller's queue", error);
}

static tp_status done(const tp_stream *stream, cl_int code, const char *what, tp_error *error)
{
    return code == CL_SUCCESS ? TP_OK : failed(stream->device, code, what, error);
}

static tp_status opencl_upload(tp_stream *stream, const tp_memory *to, uint64_t at, const void *from,
                               size_t size, tp_error *error)
{
    return done(
        stream,
        cl.clEnqueueWriteBuffer(stream->handle, to->handle, CL_FALSE, at, size, from, 0, NULL, NULL),
        "cannot copy to the device", error);
}

static tp_status opencl_download(tp_stream *stream, const tp_memory *from, uint64_t at, void *to,
                                 size_t size, tp_error *error)
{
    return done(stream,
                cl.clEnqueueReadBuffer(stream->handle, from->handle, CL_FALSE, at, size, to, 0, NULL, NULL),
                "cannot copy from the device", error);
}

static tp_status opencl_copy(tp_stream *stream, const tp_memory *to, uint64_t to_at, const tp_memory *from,
                             uint64_t from_at, uint64_t size, tp_error *error)
{
    return done(stream,
                cl.clEnqueueCopyBuffer(stream->handle, from->handle, to->handle, from_at, to_at, size, 0,
                                       NULL, NULL),
                "cannot copy on the device", error);
}

static tp_status opencl_clear(tp_stream *stream, const tp_memory *memory, uint64_t at, uint64_t size,
                              tp_error *error)
{
    const cl_uint zero = 0;
    return done(
        stream,
        cl.clEnqueueFillBuffer(stream->handle, memory->handle, &zero, sizeof zero, at, size, 0, NULL, NULL),
        "cannot clear memory", error);
}

static tp_status opencl_wait(tp_stream *stream, tp_error *error)
{
    return done(stream, cl.clFinish(stream->handle), "a kernel or copy failed", error);
}

/* ------------------------------------------------------------------------------------------ kernels */

#define MAX_BINARY ((size_t)64 << 20)

/* The compiled program to the cache, if it can be had. */
static void store_binary(cl_program program, const uint64_t key[2])
{
    size_t size = 0;
    if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != CL_SUCCESS)
        return;
    if (size == 0 || size > MAX_BINARY) return;
    unsigned char *binary = malloc(size);
    if (!binary) return;
    if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
        tp_cache_store(key, binary, size);
    free(binary);
}

static cl_program load_binary(opencl_device *d, const uint64_t key[2], const char *options)
{
    size_t size;
    unsigned char *binary = tp_cache_load(key, MAX_BINARY, &size);
    if (!binary) return NULL;
    cl_int code, status;
    cl_program program = cl.clCreateProgramWithBinary(d->context, 1, &d->device, &size,
                                                      (const unsigned char **)&binary, &status, &code);
    free(binary);
    if (!program) return NULL;
    if (code == CL_SUCCESS && cl.clBuildProgram(program, 1, &d->device, options, NULL, NULL) == CL_SUCCESS)
        return program;
    cl.clReleaseProgram(program);
    return NULL;
}

static tp_status compile(opencl_device *d, const char *const *texts, const size_t *sizes, cl_uint count,
                         const char *options, const char *name, cl_program *program, tp_error *error)
{
    cl_int code;
    *program = cl.clCreateProgramWithSource(d->context, count, (const char **)texts, sizes, &code);
    if (!*program) return failed(&d->base, code, "cannot compile a kernel", error);
    code = cl.clBuildProgram(*program, 1, &d->device, options, NULL, NULL);
    if (code == CL_SUCCESS) return TP_OK;
    char log[4096] = {0};
    cl.clGetProgramBuildInfo(*program, d->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
    for (char *c = log; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = ' ';
    cl.clReleaseProgram(*program);
    *program = NULL;
    return tp_error_set(error, TP_UNSUPPORTED, "%s: its compiler refuses kernel %s: %.300s (%d)",
                        d->base.info.name, name, log[0] ? log : code_name(code), code);
}

static tp_status make_kernel(opencl_device *d, tp_kernel_id id, tp_error *error)
{
    const tp_kernel_shape *s = tp_kernel_shape_of(id);
    char instance[128] = "";
    const tp_text_part part = s->K                   ? TP_TEXT_STREAM
                              : id == tp_hash_kernel ? TP_TEXT_HASH
                              : id == tp_df11_kernel ? TP_TEXT_DF11
                                                     : TP_TEXT_PARTS;
    const char *texts[3] = {NULL, NULL, instance};
    size_t sizes[3] = {0};
    texts[0] = tp_kernel_text(TP_TEXT_COMMON, &sizes[0]);
    texts[1] = tp_kernel_text(part, &sizes[1]);
    if (s->K)
        sizes[2] =
            (size_t)snprintf(instance, sizeof instance, "STREAM_KERNEL(%s, %d, %d, %d, %d, %d, %d, %d)\n",
                             s->name, s->K, s->T, s->R, s->low, s->c, s->rotated, s->strided);
    const char *options = d->lane_loop ? "-cl-std=CL1.2 -DTP_LANE_LOOP" : "-cl-std=CL1.2";

    uint64_t key[2];
    tp_cache_key parts[6] = {
        {d->identity, strlen(d->identity)}, {options, strlen(options)}, {s->name, strlen(s->name)}};
    for (size_t i = 0; i < 3; i++) parts[3 + i] = (tp_cache_key){texts[i], sizes[i]};
    tp_cache_key_of(parts, 6, key);
    cl_program program = load_binary(d, key, options);
    if (!program) {
        const tp_status status = compile(d, texts, sizes, 3, options, s->name, &program, error);
        if (status != TP_OK) return status;
        store_binary(program, key);
    }
    cl_int code;
    d->kernels[id] = cl.clCreateKernel(program, s->name, &code);
    cl.clReleaseProgram(program); /* the kernel keeps it */
    return d->kernels[id] ? TP_OK : failed(&d->base, code, "cannot make a kernel", error);
}

static tp_status opencl_launch(tp_stream *stream, const tp_launch *launch, tp_error *error)
{
    opencl_device *d = (opencl_device *)stream->device;
    if (!d->kernels[launch->kernel]) {
        const tp_status status = make_kernel(d, launch->kernel, error);
        if (status != TP_OK) return status;
    }
    const cl_kernel kernel = d->kernels[launch->kernel];
    const tp_memory *memories[4] = {launch->input, launch->output, launch->jobs, launch->results};
    const cl_uint first = (cl_uint)(launch->jobs_at / sizeof(tp_gpu_job)), warps = launch->warps;
    cl_int code = CL_SUCCESS;
    for (cl_uint i = 0; i < 4; i++)
        code |= cl.clSetKernelArg(kernel, i, sizeof(cl_mem), &memories[i]->handle);
    code |= cl.clSetKernelArg(kernel, 4, sizeof first, &first);
    code |= cl.clSetKernelArg(kernel, 5, sizeof warps, &warps);
    code |= cl.clSetKernelArg(kernel, 6, launch->local_bytes, NULL);
    if (code != CL_SUCCESS)
        return failed(stream->device, CL_INVALID_KERNEL_ARGS, "cannot start a kernel", error);
    /* A stream's and a hash's lanes are a work-group; the others take what there is. */
    size_t local = d->lane_loop ? 1 : 32;
    if (!d->lane_loop && launch->kernel < tp_hash_kernel && d->max_group >= 256) local = 256;
    if (vary_groups && local == 256) {
        static const size_t sizes[] = {256, 1, 96, 32, 7, 128};
        local = sizes[varied++ % (sizeof sizes / sizeof *sizes)];
    }
    const size_t global = local * launch->groups;
    return done(stream,
                cl.clEnqueueNDRangeKernel(stream->handle, kernel, 1, NULL, &global, &local, 0, NULL, NULL),
                "cannot start a kernel", error);
}

const tp_backend tp_backend_opencl = {
    .name = "opencl",
    .count = opencl_count,
    .describe = opencl_describe,
    .open = opencl_open,
    .close = opencl_close,
    .memory_create = opencl_memory_create,
    .memory_destroy = opencl_memory_destroy,
    .host_create = opencl_host_create,
    .host_destroy = opencl_host_destroy,
    .stream_create = opencl_stream_create,
    .stream_destroy = opencl_stream_destroy,
    .stream_after = opencl_stream_after,
    .upload = opencl_upload,
    .download = opencl_download,
    .copy = opencl_copy,
    .clear = opencl_clear,
    .launch = opencl_launch,
    .wait = opencl_wait,
};
