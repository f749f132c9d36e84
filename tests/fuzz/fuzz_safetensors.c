/* The parser: any bytes give a layout that covers them. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* By name it is parsed in any case; by content only if it is recognised, and then to the same end. */
    static const char *const names[] = {"x.safetensors", "x"};
    for (int i = 0; i < 2; i++) {
        tp_memory memory;
        tp_source source = tp_source_memory(&memory, data, size, names[i]);
        tp_layout layout;
        tp_error error = {0};
        tp_status status = tp_layout_parse(&source, &layout, &error);
        const char *wrong = status != TP_OK ? error.message : tp_layout_check(&layout, size);
        if (wrong != NULL) {
            fprintf(stderr, "%s\n", wrong);
            abort();
        }
        tp_layout_free(&layout);
    }
    return 0;
}
