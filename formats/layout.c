#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/layout.h"

/* ---------------------------------------------------------------------------------- text for people */

unsigned tp_utf8_sequence(const uint8_t *text, size_t size)
{
    uint8_t lead = text[0];
    if (lead < 0x80) return 1;
    unsigned length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    /* C0 and C1 would be overlong, F5 and above beyond U+10FFFF. */
    if (lead < 0xC2 || lead > 0xF4 || size < length) return 0;
    /* The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF. */
    uint8_t low = 0x80, high = 0xBF;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (text[1] < low || text[1] > high) return 0;
    for (unsigned i = 2; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
    }
    return length;
}

const char *tp_show(char shown[TP_SHOWN_SIZE], const char *text, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";
    const size_t room = TP_SHOWN_SIZE - sizeof "...";
    const uint8_t *bytes = (const uint8_t *)text;
    size_t used = 0;
    for (size_t i = 0; i < size;) {
        unsigned length = tp_utf8_sequence(bytes + i, size - i);
        /* C2 80 to C2 9F are control characters too: some terminals obey U+009B as they do ESC [. */
        bool control =
            bytes[i] < 0x20 || bytes[i] == 0x7F || (bytes[i] == 0xC2 && length == 2 && bytes[i + 1] < 0xA0);
        bool escape = length == 0 || control;
        if (length == 0) length = 1;
        if (used + (escape ? 4 * length : length) > room) {
            memcpy(shown + used, "...", 3);
            used += 3;
            break;
        }
        for (unsigned k = 0; k < length; k++, i++) {
            if (escape) {
                shown[used++] = '\\';
                shown[used++] = 'x';
                shown[used++] = hex[bytes[i] >> 4];
                shown[used++] = hex[bytes[i] & 15];
            } else {
                shown[used++] = text[i];
            }
        }
    }
    shown[used] = 0;
    return shown;
}

const char *tp_show_tensor(char shown[TP_SHOWN_SIZE], const tp_layout *layout,
                           const tp_layout_tensor *tensor)
{
    if (tensor->name_size == 0) return tp_show(shown, "", 0); /* there may be no strings at all */
    return tp_show(shown, layout->strings + tensor->name, tensor->name_size);
}

/* ------------------------------------------------------------------------------------------ building */

tp_status tp_layout_refuse(tp_layout_builder *builder, const char *format, ...)
{
    if (!builder->refused) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(builder->layout->reason, sizeof builder->layout->reason, format, arguments);
        va_end(arguments);
        builder->refused = true;
    }
    return TP_CORRUPT;
}

tp_status tp_layout_no_memory(const tp_source *source, tp_error *error)
{
    char shown[TP_SHOWN_SIZE];
    const char *name = source->name == NULL ? "" : source->name;
    return tp_error_set(error, TP_NO_MEMORY, "%s: out of memory while reading the header",
                        tp_show(shown, name, strlen(name)));
}

/* Room for `more` items behind `count`; by half, so that large arrays can grow in place or be remapped. */
static tp_status grow(tp_layout_builder *builder, void *array, size_t *capacity, size_t count, size_t more,
                      size_t item)
{
    if (*capacity - count >= more) return TP_OK;
    /* count * item is bounded by TP_LAYOUT_MEMORY and more by a window: no overflow in 64 bits. */
    size_t wanted = count + more;
    if (wanted < count + count / 2) wanted = count + count / 2;
    if (wanted < 16) wanted = 16;
    void *grown;
    memcpy(&grown, array, sizeof grown);
    grown = realloc(grown, wanted * item);
    if (grown == NULL) return tp_layout_no_memory(builder->source, builder->error);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return TP_OK;
}

static tp_status charge(tp_layout_builder *builder, size_t size)
{
    if (size > TP_LAYOUT_MEMORY - builder->memory) {
        return tp_layout_refuse(builder, "its header needs more than %u MiB of memory",
                                (unsigned)(TP_LAYOUT_MEMORY >> 20));
    }
    builder->memory += size;
    return TP_OK;
}

tp_status tp_layout_add_text(tp_layout_builder *builder, const void *text, size_t size)
{
    tp_layout *layout = builder->layout;
    tp_status status = charge(builder, size);
    if (status == TP_OK) {
        status = grow(builder, &layout->strings, &builder->string_capacity, layout->string_size, size, 1);
    }
    if (status != TP_OK) return status;
    if (size != 0) memcpy(layout->strings + layout->string_size, text, size);
    layout->string_size += size;
    return TP_OK;
}

tp_status tp_layout_add_dim(tp_layout_builder *builder, uint64_t dim)
{
    tp_layout *layout = builder->layout;
    tp_status status = charge(builder, sizeof dim);
    if (status == TP_OK) {
        status = grow(builder, &layout->dims, &builder->dim_capacity, layout->dim_count, 1, sizeof dim);
    }
    if (status == TP_OK) layout->dims[layout->dim_count++] = dim;
    return status;
}

tp_status tp_layout_add_tensor(tp_layout_builder *builder, const tp_layout_tensor *tensor)
{
    tp_layout *layout = builder->layout;
    /* Later it also takes a place in the order, a span of its own and one for a hole before it. */
    tp_status status = charge(builder, sizeof *tensor + sizeof(uint32_t) + 2 * sizeof(tp_span));
    if (status == TP_OK) {
        status = grow(builder, &layout->tensors, &builder->tensor_capacity, layout->tensor_count, 1,
                      sizeof *tensor);
    }
    if (status == TP_OK) layout->tensors[layout->tensor_count++] = *tensor;
    return status;
}

/*
 * Names are looked up among the first ones only, which are all in practice; duplicates among further ones
 * are merged at the end by sorting. A hash table could be made quadratic by names that collide.
 */
#define DTYPES_LOOKED_UP 32

static int compare_text(const tp_layout *layout, const tp_layout_text *a, const tp_layout_text *b)
{
    uint32_t common = a->size < b->size ? a->size : b->size;
    int order = common == 0 ? 0 : memcmp(layout->strings + a->start, layout->strings + b->start, common);
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static bool is_dtype(const tp_layout *layout, size_t index, const char *name, size_t size)
{
    const tp_layout_text *text = &layout->dtypes[index];
    return text->size == size && (size == 0 || memcmp(layout->strings + text->start, name, size) == 0);
}

tp_status tp_layout_add_dtype(tp_layout_builder *builder, const char *name, size_t size, uint32_t *index)
{
    tp_layout *layout = builder->layout;
    if (builder->last_dtype < layout->dtype_count && is_dtype(layout, builder->last_dtype, name, size)) {
        *index = (uint32_t)builder->last_dtype;
        return TP_OK;
    }
    for (size_t i = 0; i < layout->dtype_count && i < DTYPES_LOOKED_UP; i++) {
        if (is_dtype(layout, i, name, size)) {
            builder->last_dtype = i;
            *index = (uint32_t)i;
            return TP_OK;
        }
    }
    tp_layout_text text = {.start = layout->string_size, .size = (uint32_t)size};
    /* And two numbers for the merging. */
    tp_status status = charge(builder, sizeof text + 2 * sizeof(uint32_t));
    if (status == TP_OK) status = tp_layout_add_text(builder, name, size);
    if (status == TP_OK) {
        status =
            grow(builder, &layout->dtypes, &builder->dtype_capacity, layout->dtype_count, 1, sizeof text);
    }
    if (status != TP_OK) return status;
    builder->last_dtype = layout->dtype_count;
    *index = (uint32_t)layout->dtype_count;
    layout->dtypes[layout->dtype_count++] = text;
    return TP_OK;
}

void tp_layout_opaque(tp_layout_builder *builder, tp_layout_tensor *tensor, const char *format, ...)
{
    tp_layout *layout = builder->layout;
    tensor->flags |= TP_TENSOR_OPAQUE;
    tensor->cls = TP_CLASS_BYTES;
    if (layout->opaque_tensors++ != 0) return;
    char shown[TP_SHOWN_SIZE];
    int used = snprintf(layout->opaque_reason, sizeof layout->opaque_reason,
                        "tensor '%s': ", tp_show_tensor(shown, layout, tensor));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(layout->opaque_reason + used, sizeof layout->opaque_reason - (size_t)used, format, arguments);
    va_end(arguments);
}

/* ----------------------------------------------------------------------------------------- finishing */

static int order_of_dtypes(const void *a, const void *b, void *context)
{
    const tp_layout *layout = context;
    uint32_t i, k;
    memcpy(&i, a, sizeof i);
    memcpy(&k, b, sizeof k);
    int order = compare_text(layout, &layout->dtypes[i], &layout->dtypes[k]);
    return order != 0 ? order : (i > k) - (i < k);
}

/* Gives every distinct dtype name one number, in the order of first appearance. */
static tp_status merge_dtypes(tp_layout_builder *builder)
{
    tp_layout *layout = builder->layout;
    size_t count = layout->dtype_count;
    if (count <= DTYPES_LOOKED_UP) return TP_OK;
    uint32_t *order = malloc(count * sizeof *order);
    uint32_t *first = malloc(count * sizeof *first);
    if (order == NULL || first == NULL) {
        free(order);
        free(first);
        return tp_layout_no_memory(builder->source, builder->error);
    }
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    qsort_r(order, count, sizeof *order, order_of_dtypes, layout);
    for (size_t i = 0; i < count; i++) {
        bool same =
            i != 0 && compare_text(layout, &layout->dtypes[order[i - 1]], &layout->dtypes[order[i]]) == 0;
        first[order[i]] = same ? first[order[i - 1]] : order[i];
    }
    uint32_t *number = order; /* of a first one among the distinct ones */
    uint32_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        if (first[i] != i) continue;
        number[i] = distinct;
        layout->dtypes[distinct++] = layout->dtypes[i];
    }
    for (size_t i = 0; i < layout->tensor_count; i++) {
        layout->tensors[i].dtype = number[first[layout->tensors[i].dtype]];
    }
    layout->dtype_count = distinct;
    free(order);
    free(first);
    return TP_OK;
}

/* By start, then length, then place in the header, so that of equal ranges the first tensor comes first. */
static int compare_ranges(const tp_layout *layout, uint32_t i, uint32_t k)
{
    const tp_layout_tensor *a = &layout->tensors[i], *b = &layout->tensors[k];
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->nbytes != b->nbytes) return a->nbytes < b->nbytes ? -1 : 1;
    return (i > k) - (i < k);
}

static int order_of_ranges(const void *a, const void *b, void *context)
{
    uint32_t i, k;
    memcpy(&i, a, sizeof i);
    memcpy(&k, b, sizeof k);
    return compare_ranges(context, i, k);
}

/* Where the spans so far end. */
static uint64_t spans_end(const tp_layout *layout)
{
    if (layout->span_count == 0) return 0;
    const tp_span *last = &layout->spans[layout->span_count - 1];
    return last->start + last->length;
}

static tp_status add_span(tp_layout_builder *builder, uint64_t length, uint32_t tensor, uint8_t cls)
{
    tp_layout *layout = builder->layout;
    if (length == 0) return TP_OK;
    tp_status status =
        grow(builder, &layout->spans, &builder->span_capacity, layout->span_count, 1, sizeof(tp_span));
    if (status != TP_OK) return status;
    layout->spans[layout->span_count] =
        (tp_span){.start = spans_end(layout), .length = length, .tensor = tensor, .cls = cls};
    layout->span_count++;
    return TP_OK;
}

/* The spans, from the sorted ranges of the tensors that have bytes. */
static tp_status build_spans(tp_layout_builder *builder, const uint32_t *order, size_t count,
                             uint64_t data_start)
{
    tp_layout *layout = builder->layout;
    uint64_t size = builder->source->size, data_size = size > data_start ? size - data_start : 0;
    uint64_t covered = 0; /* the spans so far end here */
    const tp_layout_tensor *previous = NULL;
    for (size_t i = 0; i < count; i++) {
        tp_layout_tensor *tensor = &layout->tensors[order[i]];
        if (previous != NULL) {
            if (tensor->offset == previous->offset && tensor->nbytes == previous->nbytes) {
                /* The same bytes again: they lie in the first tensor's span, of its class. */
                if (!(tensor->flags & TP_TENSOR_OPAQUE)) tensor->cls = previous->cls;
                continue;
            }
            if (tensor->offset - previous->offset < previous->nbytes) {
                char first[TP_SHOWN_SIZE], second[TP_SHOWN_SIZE];
                return tp_layout_refuse(builder, "tensor '%s' overlaps '%s'",
                                        tp_show_tensor(second, layout, tensor),
                                        tp_show_tensor(first, layout, previous));
            }
        }
        previous = tensor;
        if (tensor->offset >= data_size)
            continue; /* beyond the end; overlaps are looked for all the same */
        uint64_t start = data_start + tensor->offset;
        uint64_t present = data_size - tensor->offset;
        if (present > tensor->nbytes) present = tensor->nbytes;
        /* Part of an element is left only where the file ends inside a tensor. */
        uint64_t rest = present % tp_class_element_size((tp_class)tensor->cls);
        tp_status status = add_span(builder, start - covered, TP_NO_TENSOR, TP_CLASS_BYTES);
        if (status == TP_OK) status = add_span(builder, present - rest, order[i], tensor->cls);
        if (status == TP_OK) status = add_span(builder, rest, order[i], TP_CLASS_BYTES);
        if (status != TP_OK) return status;
        covered = start + present;
    }
    return add_span(builder, size - covered, TP_NO_TENSOR, TP_CLASS_BYTES);
}

/* Gives back what an array has too much; if that fails, it stays as it is. */
static void trim(void *array, size_t count, size_t item)
{
    void *data;
    memcpy(&data, array, sizeof data);
    if (count == 0) {
        free(data);
        data = NULL;
    } else {
        void *trimmed = realloc(data, count * item);
        if (trimmed != NULL) data = trimmed;
    }
    memcpy(array, &data, sizeof data);
}

tp_status tp_layout_finish(tp_layout_builder *builder, uint64_t data_start)
{
    tp_layout *layout = builder->layout;
    tp_status status = merge_dtypes(builder);
    if (status != TP_OK) return status;

    uint32_t *order = NULL;
    size_t count = 0;
    if (layout->tensor_count != 0) {
        order = malloc(layout->tensor_count * sizeof *order);
        if (order == NULL) return tp_layout_no_memory(builder->source, builder->error);
    }
    bool sorted = true;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        if (layout->tensors[i].nbytes == 0) continue; /* has no bytes to overlap with others' */
        order[count] = (uint32_t)i;
        if (count != 0 && compare_ranges(layout, order[count - 1], order[count]) > 0) sorted = false;
        count++;
    }
    if (!sorted) qsort_r(order, count, sizeof *order, order_of_ranges, layout);
    status = build_spans(builder, order, count, data_start);
    free(order);
    if (status != TP_OK) return status;

    uint64_t size = builder->source->size;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        tp_layout_tensor *tensor = &layout->tensors[i];
        tensor->offset =
            tensor->offset > UINT64_MAX - data_start ? UINT64_MAX : tensor->offset + data_start;
        if (tensor->offset > size || tensor->nbytes > size - tensor->offset)
            tensor->flags |= TP_TENSOR_TRUNCATED;
    }
    trim(&layout->spans, layout->span_count, sizeof *layout->spans);
    trim(&layout->tensors, layout->tensor_count, sizeof *layout->tensors);
    trim(&layout->dtypes, layout->dtype_count, sizeof *layout->dtypes);
    trim(&layout->dims, layout->dim_count, sizeof *layout->dims);
    trim(&layout->strings, layout->string_size, 1);
    return TP_OK;
}

tp_status tp_layout_add_typed(tp_layout_builder *builder, uint64_t start, uint64_t length, tp_class cls)
{
    const tp_layout *layout = builder->layout;
    length -= length % tp_class_element_size(cls);
    if (length == 0 || cls == TP_CLASS_BYTES) return TP_OK;
    tp_status status = charge(builder, 2 * sizeof(tp_span));
    if (status == TP_OK)
        status = add_span(builder, start - spans_end(layout), TP_NO_TENSOR, TP_CLASS_BYTES);
    if (status == TP_OK) status = add_span(builder, length, TP_NO_TENSOR, (uint8_t)cls);
    return status;
}

tp_status tp_layout_finish_typed(tp_layout_builder *builder)
{
    tp_layout *layout = builder->layout;
    uint64_t rest = builder->source->size - spans_end(layout);
    tp_status status = add_span(builder, rest, TP_NO_TENSOR, TP_CLASS_BYTES);
    if (status == TP_OK) trim(&layout->spans, layout->span_count, sizeof *layout->spans);
    layout->format = TP_FORMAT_BYTES;
    return status;
}

tp_status tp_layout_bytes(tp_layout_builder *builder)
{
    tp_layout *layout = builder->layout;
    char reason[sizeof layout->reason];
    memcpy(reason, layout->reason, sizeof reason);
    tp_layout_free(layout);
    memcpy(layout->reason, reason, sizeof reason);
    builder->span_capacity = 0;
    layout->format = TP_FORMAT_BYTES;
    return add_span(builder, builder->source->size, TP_NO_TENSOR, TP_CLASS_BYTES);
}

void tp_layout_free(tp_layout *layout)
{
    if (layout == NULL) return;
    free(layout->spans);
    free(layout->tensors);
    free(layout->dtypes);
    free(layout->dims);
    free(layout->strings);
    *layout = (tp_layout){0};
}

/* ----------------------------------------------------------------------------------------- checking */

const char *tp_layout_check(const tp_layout *layout, uint64_t size)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < layout->span_count; i++) {
        const tp_span *span = &layout->spans[i];
        if (span->start != covered) return "the spans do not join";
        if (span->length == 0) return "a span is empty";
        if (span->length > size - covered) return "a span ends beyond the file";
        if (span->cls >= TP_CLASS_COUNT) return "a span has no known class";
        if (span->length % tp_class_element_size((tp_class)span->cls) != 0)
            return "a span holds half an element";
        if (span->tensor == TP_NO_TENSOR) {
            if (span->cls != TP_CLASS_BYTES && layout->format != TP_FORMAT_BYTES)
                return "a typed span has no tensor";
            const tp_span *last = i == 0 ? NULL : span - 1;
            if (span->cls == TP_CLASS_BYTES && last != NULL && last->tensor == TP_NO_TENSOR &&
                last->cls == TP_CLASS_BYTES) {
                return "two spans should be one";
            }
        } else {
            if (span->tensor >= layout->tensor_count) return "a span names no tensor";
            const tp_layout_tensor *tensor = &layout->tensors[span->tensor];
            if (span->start < tensor->offset || span->start - tensor->offset > tensor->nbytes ||
                span->length > tensor->nbytes - (span->start - tensor->offset)) {
                return "a span lies outside its tensor";
            }
            if (span->cls != tensor->cls && span->cls != TP_CLASS_BYTES)
                return "span and tensor differ in class";
        }
        covered += span->length;
    }
    if (covered != size) return "the spans end before the file";

    uint64_t opaque = 0;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const tp_layout_tensor *tensor = &layout->tensors[i];
        bool beyond = tensor->offset > size || tensor->nbytes > size - tensor->offset;
        if (beyond != ((tensor->flags & TP_TENSOR_TRUNCATED) != 0))
            return "a tensor is wrongly called truncated";
        if ((tensor->flags & TP_TENSOR_OPAQUE) && tensor->cls != TP_CLASS_BYTES)
            return "an opaque tensor is typed";
        if (tensor->flags & TP_TENSOR_OPAQUE) opaque++;
        if (tensor->dtype >= layout->dtype_count) return "a tensor has no dtype";
        if (tensor->name > layout->string_size || tensor->name_size > layout->string_size - tensor->name) {
            return "a name lies outside the strings";
        }
        if (tensor->dims > layout->dim_count || tensor->ndim > layout->dim_count - tensor->dims) {
            return "a shape lies outside the dims";
        }
    }
    if (opaque != layout->opaque_tensors) return "the opaque tensors are miscounted";
    if ((opaque != 0) != (layout->opaque_reason[0] != 0)) return "opaque tensors and reason differ";
    for (size_t i = 0; i < layout->dtype_count; i++) {
        const tp_layout_text *text = &layout->dtypes[i];
        if (text->start > layout->string_size || text->size > layout->string_size - text->start) {
            return "a dtype name lies outside the strings";
        }
    }
    if (layout->format == TP_FORMAT_BYTES) {
        if (layout->tensor_count != 0) return "a file of bytes has tensors";
        if (layout->span_count > 1 && layout->reason[0] != 0) return "a file that was refused is one span";
    } else if (layout->reason[0] != 0) {
        return "a file that is understood has a reason";
    }
    return NULL;
}
