/* The walk over a pickle: any bytes give storages in order, each once and of a known class. */
#include <stdio.h>
#include <stdlib.h>

#include "formats/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, data, size, "x");
    tp_pickle pickle;
    tp_error error = {0};
    tp_status status = tp_pickle_read(&source, 0, size, &pickle, &error);
    const char *wrong = status != TP_OK ? error.message : NULL;
    for (size_t i = 0; i < pickle.count && wrong == NULL; i++) {
        const tp_storage *storage = &pickle.storages[i];
        if (i != 0 && storage[-1].key >= storage->key) wrong = "the storages are not in order";
        if (storage->cls >= TP_CLASS_COUNT) wrong = "a storage has no known class";
        if (storage->element_size == 0 ||
            storage->element_size % tp_class_element_size((tp_class)storage->cls) != 0) {
            wrong = "a storage's element size does not fit its class";
        }
    }
    if (wrong != NULL) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    tp_pickle_close(&pickle);
    return 0;
}
