/* Tensors for other libraries, by DLPack's structures: laid out here as its header has them, so that it is
 * not needed. */
#include <stdlib.h>
#include <string.h>

#include "convert/reader.h"
#include "convert/text.h"
#include "gpu/loader.h"

enum { DL_CPU = 1, DL_CUDA = 2, DL_OPENCL = 4 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_OPAQUE, DL_BFLOAT, DL_COMPLEX, DL_BOOL };
enum {
    DL_FLOAT8_E4M3FN = 10,
    DL_FLOAT8_E4M3FNUZ = 11,
    DL_FLOAT8_E5M2 = 12,
    DL_FLOAT8_E5M2FNUZ = 13,
    DL_FLOAT8_E8M0FNU = 14
};

typedef struct dl_type {
    uint8_t code, bits;
    uint16_t lanes;
} dl_type;

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    dl_type dtype;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor;

/* The structure of before versions. */
struct DLManagedTensor {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *);
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    dl_tensor tensor;
};

/* Names of safetensors and GGUF that DLPack has a code for. All others are given as bytes. */
static const struct {
    const char *name;
    dl_type type;
} types[] = {
    {"F64", {DL_FLOAT, 64, 1}},
    {"F32", {DL_FLOAT, 32, 1}},
    {"F16", {DL_FLOAT, 16, 1}},
    {"BF16", {DL_BFLOAT, 16, 1}},
    {"I64", {DL_INT, 64, 1}},
    {"I32", {DL_INT, 32, 1}},
    {"I16", {DL_INT, 16, 1}},
    {"I8", {DL_INT, 8, 1}},
    {"U64", {DL_UINT, 64, 1}},
    {"U32", {DL_UINT, 32, 1}},
    {"U16", {DL_UINT, 16, 1}},
    {"U8", {DL_UINT, 8, 1}},
    {"BOOL", {DL_BOOL, 8, 1}},
    {"C64", {DL_COMPLEX, 64, 1}},
    {"F8_E4M3", {DL_FLOAT8_E4M3FN, 8, 1}},
    {"F8_E4M3FNUZ", {DL_FLOAT8_E4M3FNUZ, 8, 1}},
    {"F8_E5M2", {DL_FLOAT8_E5M2, 8, 1}},
    {"F8_E5M2FNUZ", {DL_FLOAT8_E5M2FNUZ, 8, 1}},
    {"F8_E8M0", {DL_FLOAT8_E8M0FNU, 8, 1}},
};

static const dl_type bytes_type = {DL_UINT, 8, 1};

/* One allocation: the structure that is given away, what its deleter needs, shape and strides. */
typedef struct export
{
    tp_slab *slab; /* NULL: no bytes */
    union {
        struct DLManagedTensor plain;
        struct DLManagedTensorVersioned versioned;
    } dl;
    int64_t numbers[];
}
export;

static void delete_export(export *e)
{
    if (e->slab) tp_slab_release(e->slab);
    free(e);
}
static void delete_plain(struct DLManagedTensor *tensor)
{
    if (tensor) delete_export(tensor->context);
}
static void delete_versioned(struct DLManagedTensorVersioned *tensor)
{
    if (tensor) delete_export(tensor->context);
}

/* The dtype if elements of it make up the tensor exactly; else bytes. */
static dl_type type_of(const tp_tensor_info *info, const tp_item *item)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strlen(types[i].name) != info->dtype.size ||
            memcmp(types[i].name, info->dtype.data, info->dtype.size) != 0)
            continue;
        uint64_t size = types[i].type.bits / 8;
        for (size_t d = 0; d < info->ndim; d++)
            if (info->shape[d] > INT64_MAX || __builtin_mul_overflow(size, info->shape[d], &size))
                return bytes_type;
        if (info->flags & TP_TENSOR_OPAQUE || size != info->nbytes || item->nbytes > size)
            return bytes_type;
        return types[i].type;
    }
    return bytes_type;
}

static int device_type(const tp_device *device)
{
    const char *name = device->backend->name;
    return strcmp(name, "cuda") == 0 ? DL_CUDA : strcmp(name, "opencl") == 0 ? DL_OPENCL : DL_CPU;
}

static tp_status make_export(tp_loader *l, size_t number, bool as_bytes, export **made, dl_tensor *tensor,
                             tp_error *error)
{
    tp_tensor_info info;
    tp_file_info file;
    *made = NULL;
    const tp_item *t = number < l->choice.item_count ? &l->choice.items[number] : NULL;
    if (!t || !t->loaded)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: item %zu is not loaded", l->device->info.name,
                            number);
    if (t->nbytes && !l->slabs[t->memory])
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "%s: item %zu is in the caller's memory, which only the caller can give away",
                            l->device->info.name, number);
    const tp_source_file *source = &l->choice.sources[t->source];
    if (tp_reader_tensor(source->reader, t->tensor, &info) != TP_OK ||
        tp_reader_file(source->reader, info.file, &file) != TP_OK || info.ndim > INT32_MAX / 2)
        return tp_error_set(error, TP_INVALID_ARGUMENT, "%s: item %zu has no shape", l->device->info.name,
                            number);
    const dl_type type = as_bytes ? bytes_type : type_of(&info, t);
    const bool whole_bytes = as_bytes || memcmp(&type, &bytes_type, sizeof type) == 0;
    /* U8 as itself keeps its dimensions. */
    const bool flat =
        as_bytes || (whole_bytes && !(info.dtype.size == 2 && memcmp(info.dtype.data, "U8", 2) == 0));
    const size_t ndim = flat ? 1 : info.ndim;
    export *e = calloc(1, sizeof *e + 2 * (ndim + 1) * sizeof e->numbers[0]);
    if (!e) return tp_error_memory(error);
    int64_t *const shape = e->numbers, *const strides = e->numbers + ndim + 1;
    const bool gguf = file.format == TP_FORMAT_GGUF; /* lists the fastest dimension first */
    for (size_t d = 0; d < ndim && !flat; d++) shape[d] = (int64_t)info.shape[gguf ? ndim - 1 - d : d];
    if (!flat && !t->whole) shape[0] = (int64_t)(t->last - t->first);
    if (flat) shape[0] = (int64_t)t->nbytes;
    int64_t stride = 1; /* with a dimension of 0 nothing can overflow, else the size is the tensor's */
    for (size_t d = ndim; d-- > 0;) {
        strides[d] = stride;
        if (__builtin_mul_overflow(stride, shape[d] ? shape[d] : 1, &stride)) stride = 1;
    }
    *tensor = (dl_tensor){.device = {device_type(l->device), (int32_t)l->device->info.index},
                          .ndim = (int32_t)ndim,
                          .dtype = type,
                          .shape = shape,
                          .strides = strides};
    if (t->nbytes) {
        e->slab = l->slabs[t->memory];
        atomic_fetch_add(&e->slab->references, 1);
        const tp_memory *memory = &e->slab->memory;
        tensor->data = memory->address ? (void *)(uintptr_t)(memory->address + t->at) : memory->handle;
        tensor->byte_offset = memory->address ? 0 : t->at;
    }
    *made = e;
    return TP_OK;
}

tp_status tp_loader_dlpack(tp_loader *l, size_t item, bool as_bytes, struct DLManagedTensor **tensor,
                           tp_error *error)
{
    export *e;
    dl_tensor inner;
    *tensor = NULL;
    const tp_status status = make_export(l, item, as_bytes, &e, &inner, error);
    if (status != TP_OK) return status;
    e->dl.plain = (struct DLManagedTensor){.tensor = inner, .context = e, .deleter = delete_plain};
    *tensor = &e->dl.plain;
    return TP_OK;
}

tp_status tp_loader_dlpack_versioned(tp_loader *l, size_t item, bool as_bytes,
                                     struct DLManagedTensorVersioned **tensor, tp_error *error)
{
    export *e;
    dl_tensor inner;
    *tensor = NULL;
    const tp_status status = make_export(l, item, as_bytes, &e, &inner, error);
    if (status != TP_OK) return status;
    e->dl.versioned = (struct DLManagedTensorVersioned){
        .version = {1, 1}, .context = e, .deleter = delete_versioned, .tensor = inner};
    *tensor = &e->dl.versioned;
    return TP_OK;
}
