/*
 * What a checkpoint's pickle says of its storages: which element type each has. The pickle is walked, never
 * executed: nothing is imported, called or built.
 *
 * A storage stands in the pickle as a persistent id, the tuple
 *
 *     ('storage', torch.FloatStorage, KEY, DEVICE, COUNT)
 *
 * and its bytes in the ZIP entry data/KEY. Types without a class of their own (float8 and others) are
 * torch.UntypedStorage; their type stands in the tensors that use the storage,
 *
 *     torch._utils._rebuild_tensor_v3(STORAGE, offset, size, stride, requires_grad, hooks, torch.DTYPE,
 * ...)
 */
#ifndef TP_FORMATS_PICKLE_H
#define TP_FORMATS_PICKLE_H

#include "formats/formats.h"

typedef struct tp_storage {
    uint64_t key;         /* KEY, a decimal number */
    uint64_t count;       /* of elements; of bytes if untyped */
    uint8_t cls;          /* bytes: the type is not known, or means nothing to us */
    uint8_t element_size; /* of the type; for complex ones twice that of the class */
    bool untyped;
} tp_storage;

typedef struct tp_pickle {
    tp_storage *storages; /* by key, one for each */
    size_t count;
} tp_pickle;

/*
 * Walks the pickle that lies in these bytes of the source. One with anything unexpected has no storages.
 * Errors are those of the source and TP_NO_MEMORY. Close it in any case.
 */
tp_status tp_pickle_read(const tp_source *source, uint64_t start, uint64_t size, tp_pickle *pickle,
                         tp_error *error);
/* NULL: the pickle does not speak of it. */
const tp_storage *tp_pickle_find(const tp_pickle *pickle, uint64_t key);
void tp_pickle_close(tp_pickle *pickle);

/* A storage's key: a decimal number without leading zeros, since another spelling is another key. */
bool tp_pickle_parse_key(const void *text, size_t size, uint64_t *key);

#endif
