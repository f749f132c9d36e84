/*
 * The part of CUDA's driver interface that is used here, declared anew so that no toolkit is needed to
 * build the host's side: the functions are looked up at run time, by their versioned names.
 */
#ifndef TP_GPU_CUDA_API_H
#define TP_GPU_CUDA_API_H

#include <stddef.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
};
enum { CU_STREAM_NON_BLOCKING = 1 };
enum { CU_EVENT_DISABLE_TIMING = 2 };
enum {
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
};

/* X(member, name in the library, parameters) */
#define TP_CUDA_FUNCTIONS(X)                                                                               \
    X(init, cuInit, (unsigned))                                                                            \
    X(driver_version, cuDriverGetVersion, (int *))                                                         \
    X(device_count, cuDeviceGetCount, (int *))                                                             \
    X(device_get, cuDeviceGet, (CUdevice *, int))                                                          \
    X(device_name, cuDeviceGetName, (char *, int, CUdevice))                                               \
    X(device_memory, cuDeviceTotalMem_v2, (size_t *, CUdevice))                                            \
    X(device_attribute, cuDeviceGetAttribute, (int *, int, CUdevice))                                      \
    X(context_retain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                   \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (CUdevice))                                           \
    X(context_push, cuCtxPushCurrent_v2, (CUcontext))                                                      \
    X(context_pop, cuCtxPopCurrent_v2, (CUcontext *))                                                      \
    X(module_load, cuModuleLoadData, (CUmodule *, const void *))                                           \
    X(module_unload, cuModuleUnload, (CUmodule))                                                           \
    X(module_function, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                        \
    X(memory_allocate, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                             \
    X(memory_free, cuMemFree_v2, (CUdeviceptr))                                                            \
    X(host_allocate, cuMemHostAlloc, (void **, size_t, unsigned))                                          \
    X(host_free, cuMemFreeHost, (void *))                                                                  \
    X(stream_create, cuStreamCreate, (CUstream *, unsigned))                                               \
    X(stream_destroy, cuStreamDestroy_v2, (CUstream))                                                      \
    X(stream_wait, cuStreamSynchronize, (CUstream))                                                        \
    X(stream_wait_event, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                 \
    X(event_create, cuEventCreate, (CUevent *, unsigned))                                                  \
    X(event_record, cuEventRecord, (CUevent, CUstream))                                                    \
    X(event_destroy, cuEventDestroy_v2, (CUevent))                                                         \
    X(upload, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                         \
    X(download, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                             \
    X(copy, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                            \
    X(clear, cuMemsetD32Async, (CUdeviceptr, unsigned, size_t, CUstream))                                  \
    X(launch, cuLaunchKernel,                                                                              \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,         \
       void **, void **))                                                                                  \
    X(error_name, cuGetErrorName, (CUresult, const char **))                                               \
    X(error_text, cuGetErrorString, (CUresult, const char **))

typedef struct tp_cuda_driver {
#define TP_CUDA_MEMBER(member, name, parameters) CUresult(*member) parameters;
    TP_CUDA_FUNCTIONS(TP_CUDA_MEMBER)
#undef TP_CUDA_MEMBER
} tp_cuda_driver;

#endif
