/* Loads the tensors of one or more files onto a device, one after the other as they are ready. */
#include <stdio.h>

#include "tensorpress.h"

static tp_status load(tp_device *device, tp_reader *const *readers, int count, const char *pattern,
                      tp_error *error)
{
    tp_loader *loader;
    size_t item;
    tp_status status = tp_loader_create(device, NULL, &loader, error);
    if (status != TP_OK) return status;
    for (int i = 0; i < count && status == TP_OK; i++)
        status = tp_loader_add_matching(loader, readers[i], pattern, NULL, NULL, error);

    while (status == TP_OK) {
        status = tp_loader_next(loader, &item, error); /* the next ones are read and decoded meanwhile */
        if (status != TP_OK || item == SIZE_MAX) break;
        tp_load_item loaded;
        tp_tensor_info tensor;
        tp_loader_item(loader, item, &loaded);
        tp_reader_tensor(loaded.reader, loaded.tensor, &tensor);
        /* loaded.where.address is a device pointer now, until the loader is closed. */
        printf("%.*s: %llu bytes\n", (int)tensor.name.size, tensor.name.data,
               (unsigned long long)loaded.nbytes);
    }
    tp_loader_close(loader);
    return status;
}

int main(int argc, char **argv)
{
    enum { MOST = 16 };
    tp_reader *readers[MOST];
    tp_device *device;
    tp_error error;
    int open = 0;
    if (argc < 4 || argc > 3 + MOST) {
        fprintf(stderr, "usage: %s DEVICE PATTERN FILE...\n", argv[0]);
        return 2;
    }
    tp_status status = tp_device_open(argv[1], &device, &error);
    if (status == TP_OK) {
        while (status == TP_OK && open < argc - 3) {
            status = tp_open(argv[3 + open], &readers[open], &error);
            if (status == TP_OK) open++;
        }
        if (status == TP_OK) status = load(device, readers, open, argv[2], &error);
        for (int i = 0; i < open; i++) tp_close(readers[i]);
        tp_device_close(device);
    }
    if (status != TP_OK) fprintf(stderr, "%s\n", error.message);
    return tp_status_exit_code(status);
}
