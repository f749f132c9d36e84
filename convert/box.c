#include "convert/box.h"

#include <stdio.h>

#include "formats/formats.h"
#include "formats/gguf_types.h"

bool tp_pack_of(tp_format format, tp_text dtype, tp_pack *pack)
{
    if (format == TP_FORMAT_GGUF) {
        const tp_gguf_type *type = tp_gguf_type_named(dtype.data, dtype.size);
        if (!type) return false;
        *pack = (tp_pack){type->block_elements, type->block_bytes};
        return true;
    }
    unsigned bits;
    tp_class cls;
    if (!tp_safetensors_dtype(dtype.data, dtype.size, &bits, &cls)) return false;
    unsigned elements = 1;
    while (elements * bits % 8 != 0) elements++;
    *pack = (tp_pack){elements, elements * bits / 8};
    return true;
}

/* The number of elements; false if it is 2^64 or more. */
static bool count_elements(const uint64_t *shape, size_t ndim, uint64_t *count)
{
    *count = 1;
    for (size_t k = 0; k < ndim; k++)
        if (shape[k] == 0) *count = 0;
    for (size_t k = 0; k<ndim && * count> 0; k++)
        if (__builtin_mul_overflow(*count, shape[k], count)) return false;
    return true;
}

tp_status tp_box_make(tp_box *box, const uint64_t *shape, size_t ndim, bool fastest_first, tp_pack pack,
                      uint64_t nbytes, const uint64_t *first, const uint64_t *last, char fault[128])
{
    uint64_t count, bytes;
    bool empty = false;
    *box = (tp_box){0};
    for (size_t k = 0; k < ndim; k++) {
        if (first[k] > last[k] || last[k] > shape[k]) {
            snprintf(fault, 128, "%llu:%llu is out of range, dimension %zu has %llu",
                     (unsigned long long)first[k], (unsigned long long)last[k], k,
                     (unsigned long long)shape[k]);
            return TP_INVALID_ARGUMENT;
        }
        empty |= first[k] == last[k];
    }
    if (!count_elements(shape, ndim, &count) || count % pack.elements != 0 ||
        __builtin_mul_overflow(count / pack.elements, pack.bytes, &bytes) || bytes != nbytes) {
        snprintf(fault, 128, "its size is not that of its dtype and shape");
        return TP_CORRUPT;
    }
    if (empty) return TP_OK;

    /*
     * In elements, from the fastest dimension on. As long as all faster dimensions are taken whole, a
     * dimension makes the run longer; the others spread the runs. No product is larger than the number of
     * elements.
     */
    uint64_t stride = 1, run = 1, start = 0, runs = 1;
    bool joined = true, whole_packs = true;
    for (size_t i = 0; i < ndim; i++) {
        size_t k = fastest_first ? i : ndim - 1 - i;
        uint64_t taken = last[k] - first[k];
        start += first[k] * stride;
        if (joined) {
            run *= taken;
            joined = taken == shape[k];
        } else if (taken > 1) {
            whole_packs &= stride % pack.elements == 0;
            runs *= taken;
            box->dim[box->dims].count = taken;
            box->dim[box->dims++].step = stride / pack.elements * pack.bytes;
        }
        stride *= shape[k];
    }
    if (!whole_packs || start % pack.elements != 0 || run % pack.elements != 0) {
        snprintf(fault, 128, "the box does not consist of whole packs of %u elements in %u bytes",
                 pack.elements, pack.bytes);
        return TP_INVALID_ARGUMENT;
    }
    box->run = run / pack.elements * pack.bytes;
    box->offset = start / pack.elements * pack.bytes;
    box->size = box->run * runs;
    box->end = box->offset + box->run;
    for (unsigned d = 0; d < box->dims; d++) box->end += (box->dim[d].count - 1) * box->dim[d].step;
    return TP_OK;
}

bool tp_box_next(tp_box *box)
{
    for (unsigned d = 0; d < box->dims; d++) {
        if (++box->dim[d].at < box->dim[d].count) {
            box->offset += box->dim[d].step;
            return true;
        }
        box->offset -= (box->dim[d].count - 1) * box->dim[d].step;
        box->dim[d].at = 0;
    }
    return false;
}
