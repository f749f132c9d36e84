/* Devices by name. */
#include "gpu/device.h"

#include <stdio.h>
#include <string.h>

#include "codec/bytes.h"

const tp_backend *const *tp_backends(void)
{
    static const tp_backend *const all[] = {
        &tp_backend_cpu,
#ifdef TP_HAVE_CUDA
        &tp_backend_cuda,
#endif
#ifdef TP_HAVE_OPENCL
        &tp_backend_opencl,
#endif
        NULL,
    };
    return all;
}

/* Names of back ends that exist, built in or not: a device of one that is not is absent, not malformed. */
static const char *const known[] = {"cpu", "cuda", "opencl"};

tp_status tp_device_list(tp_device_info *list, size_t capacity, size_t *count)
{
    *count = 0;
    for (const tp_backend *const *b = tp_backends(); *b; b++) {
        const size_t devices = (*b)->count();
        for (size_t i = 0; i < devices; i++) {
            if (*count < capacity && (*b)->describe(i, &list[*count]) != TP_OK) continue;
            ++*count;
        }
    }
    return TP_OK;
}

/* "cuda:1": the back end's name, and the number or 0. False: malformed. */
static bool parse_name(const char *name, const char **backend, size_t *index)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t length = strlen(known[i]);
        if (strncmp(name, known[i], length) != 0) continue;
        *backend = known[i];
        *index = 0;
        name += length;
        if (!*name) return true;
        if (*name++ != ':' || i == 0) return false; /* there is but one cpu */
        const size_t digits = strspn(name, "0123456789");
        if (digits == 0 || digits > 9 || name[digits]) return false;
        for (; *name; name++) *index = 10 * *index + (size_t)(*name - '0');
        return true;
    }
    return false;
}

tp_status tp_device_open(const char *name, tp_device **device, tp_error *error)
{
    const char *wanted;
    size_t index;
    *device = NULL;
    if (!parse_name(name, &wanted, &index))
        return tp_error_set(error, TP_INVALID_ARGUMENT, "device '%s': not a device's name", name);
    for (const tp_backend *const *b = tp_backends(); *b; b++) {
        if (strcmp((*b)->name, wanted) != 0) continue;
        const size_t count = (*b)->count();
        if (index < count) return (*b)->open(index, device, error);
        if (count == 0)
            return tp_error_set(error, TP_UNSUPPORTED, "device %s: no %s driver with a device is present",
                                name, wanted);
        return tp_error_set(error, TP_UNSUPPORTED, "device %s: not present, the last one is %s:%zu", name,
                            wanted, count - 1);
    }
    return tp_error_set(error, TP_UNSUPPORTED, "device %s: this build has no support for %s", name, wanted);
}

tp_status tp_device_open_queue(void *queue, tp_device **device, tp_error *error)
{
    *device = NULL;
#ifdef TP_HAVE_OPENCL
    return tp_opencl_open_queue(queue, device, error);
#else
    (void)queue;
    return tp_error_set(error, TP_UNSUPPORTED, "this build has no support for opencl");
#endif
}

void tp_device_retain(tp_device *device)
{
    atomic_fetch_add(&device->more_users, 1);
}

void tp_device_close(tp_device *device)
{
    if (!device || atomic_fetch_sub(&device->more_users, 1) != 0) return;
    tp_decoder_destroy(device->decoder);
    device->backend->close(device);
}

void tp_device_describe(const tp_device *device, tp_device_info *info)
{
    *info = device->info;
}

bool tp_device_is_range(const tp_device *device, const tp_device_range *range, uint64_t alignment)
{
    uint64_t end;
    if (!tp_add(range->address, range->size, &end) || range->address % alignment) return false;
    return device->one_address_space ? range->address != 0 : range->memory != NULL;
}

tp_memory tp_device_wrap(tp_device *device, const tp_device_range *range, uint64_t *at)
{
    *at = device->one_address_space ? 0 : range->address;
    if (!device->one_address_space)
        return (tp_memory){
            .device = device, .size = range->address + range->size, .handle = range->memory};
    return (tp_memory){.device = device,
                       .size = range->size,
                       .handle = (void *)(uintptr_t)range->address,
                       .address = range->address};
}
