/* Lists the tensors of a container or plain checkpoint, reads one, and verifies the whole file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorpress.h"

static void list(const tp_reader *reader)
{
    for (size_t i = 0; i < tp_reader_tensors(reader); i++) {
        tp_tensor_info tensor;
        if (tp_reader_tensor(reader, i, &tensor) != TP_OK) continue;
        /* Names are bytes from the file: not terminated, and not to be trusted with a terminal. */
        printf("%-24.*s %-6.*s [", (int)tensor.name.size, tensor.name.data, (int)tensor.dtype.size,
               tensor.dtype.data);
        for (size_t d = 0; d < tensor.ndim; d++)
            printf("%s%llu", d ? ", " : "", (unsigned long long)tensor.shape[d]);
        printf("]  %llu bytes, stored as %llu by %s\n", (unsigned long long)tensor.nbytes,
               (unsigned long long)tensor.stored_nbytes, tp_method_name(tensor.method));
    }
}

/* Only the frames that hold this tensor are read and decoded, and each is checked. */
static tp_status read_one(tp_reader *reader, const char *name, tp_error *error)
{
    size_t number;
    tp_tensor_info tensor;
    tp_status status = tp_reader_find(reader, SIZE_MAX, name, strlen(name), &number);
    if (status != TP_OK) return tp_error_set(error, status, "%s: no such tensor", name);
    status = tp_reader_tensor(reader, number, &tensor);
    if (status != TP_OK) return tp_error_set(error, status, "%s: %s", name, tp_status_message(status));

    size_t size = (size_t)tensor.nbytes;
    unsigned char *data = malloc(size ? size : 1);
    if (!data) return tp_error_set(error, TP_NO_MEMORY, "%s: no memory for %zu bytes", name, size);
    status = tp_read_tensor(reader, number, data, size, error);
    if (status == TP_OK) {
        printf("%s: %zu bytes", name, size);
        for (size_t i = 0; i < size && i < 8; i++) printf(" %02x", data[i]);
        printf("%s\n", size > 8 ? " ..." : "");
    }
    free(data);
    return status;
}

static void warn(void *context, const char *line)
{
    (void)context;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s FILE TENSOR\n", argv[0]);
        return 2;
    }
    tp_error error;
    tp_reader *reader;
    tp_status status = tp_open(argv[1], &reader, &error);
    if (status == TP_OK) {
        list(reader);
        status = read_one(reader, argv[2], &error);
        bool container = tp_reader_format(reader) == TP_FORMAT_TPRESS;
        tp_close(reader);

        if (status == TP_OK && container) {
            tp_options options;
            tp_report report;
            tp_options_init(&options);
            options.warning = warn; /* damage is told tensor by tensor */
            status = tp_verify_file(argv[1], -1, NULL, &options, &report, &error);
            if (status == TP_OK) {
                printf("%llu tensors, %llu bytes, bit-exact\n", (unsigned long long)report.tensors,
                       (unsigned long long)report.raw_bytes);
            }
        }
    }
    if (status != TP_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    return 0;
}
