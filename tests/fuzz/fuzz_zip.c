/* ZIP and NPY files: any bytes give a layout of bytes that covers them. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, data, size, "x.pt");
    tp_layout layout;
    tp_error error = {0};
    tp_status status = tp_layout_parse(&source, &layout, &error);
    const char *wrong = status != TP_OK ? error.message : tp_layout_check(&layout, size);
    if (wrong != NULL) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    tp_layout_free(&layout);
    return 0;
}
