#include "support.h"

#include <malloc.h>

#include <cJSON.h>

/* ----------------------------------------------------------------------------------------- allocator */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *memory);

size_t memory_peak, memory_in_use, memory_count, memory_fail_from = SIZE_MAX;

void memory_reset(void)
{
    memory_peak = memory_in_use = memory_count = 0;
    memory_fail_from = SIZE_MAX;
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = __wrap_malloc, .free_fn = __wrap_free});
}

static bool may_allocate(void)
{
    return memory_count++ < memory_fail_from;
}

static void *counted(void *memory)
{
    if (memory != NULL) memory_in_use += malloc_usable_size(memory);
    if (memory_in_use > memory_peak) memory_peak = memory_in_use;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return may_allocate() ? counted(__real_malloc(size)) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return may_allocate() ? counted(__real_calloc(count, size)) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
    if (!may_allocate()) return NULL;
    size_t before = old == NULL ? 0 : malloc_usable_size(old);
    void *memory = __real_realloc(old, size);
    if (memory != NULL) memory_in_use -= before;
    return counted(memory);
}

void __wrap_free(void *memory)
{
    if (memory != NULL) memory_in_use -= malloc_usable_size(memory);
    __real_free(memory);
}

/* --------------------------------------------------------------------------------------------- files */

file file_make(const char *header, size_t header_size, size_t data_size)
{
    if (header_size == SIZE_MAX) header_size = strlen(header);
    file f = {.size = 8 + header_size + data_size};
    f.data = __real_calloc(1, f.size);
    assert_non_null(f.data);
    for (int i = 0; i < 8; i++) f.data[i] = (uint8_t)((uint64_t)header_size >> 8 * i);
    memcpy(f.data + 8, header, header_size);
    return f;
}

void file_free(file *f)
{
    __real_free(f->data);
    *f = (file){0};
}

tp_layout parse_file(const file *f, const char *name)
{
    /* A copy of exact size, so that a sanitizer sees a byte read too far. */
    uint8_t *copy = __real_malloc(f->size == 0 ? 1 : f->size);
    assert_non_null(copy);
    if (f->size != 0) memcpy(copy, f->data, f->size);
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, copy, f->size, name);
    tp_layout layout;
    tp_error error = {0};
    tp_status status = tp_layout_parse(&source, &layout, &error);
    __real_free(copy);
    if (status != TP_OK) fail_msg("status %d: %s", (int)status, error.message);
    const char *wrong = tp_layout_check(&layout, f->size);
    if (wrong != NULL) fail_msg("%s", wrong);
    return layout;
}

tp_layout parse(const char *header, size_t data_size)
{
    file f = file_make(header, SIZE_MAX, data_size);
    tp_layout layout = parse_file(&f, "folder/x.safetensors");
    file_free(&f);
    return layout;
}

void assert_file_reason(const file *f, const char *name, const char *reason)
{
    tp_layout layout = parse_file(f, name);
    assert_string_equal(layout.reason, reason);
    assert_int_equal(layout.format, TP_FORMAT_BYTES);
    assert_int_equal(layout.tensor_count, 0);
    assert_int_equal(layout.span_count, f->size != 0);
    if (f->size != 0) {
        assert_int_equal(layout.spans[0].length, f->size);
        assert_int_equal(layout.spans[0].cls, TP_CLASS_BYTES);
        assert_int_equal(layout.spans[0].tensor, TP_NO_TENSOR);
    }
    tp_layout_free(&layout);
}

void assert_reason(const char *header, const char *reason)
{
    file f = file_make(header, SIZE_MAX, 64);
    assert_file_reason(&f, "x.safetensors", reason);
    file_free(&f);
}

const char *spans_text(const tp_layout *layout)
{
    static char text[4096];
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < layout->span_count && used < sizeof text - 100; i++) {
        const tp_span *span = &layout->spans[i];
        char tensor[16] = "-";
        if (span->tensor != TP_NO_TENSOR) snprintf(tensor, sizeof tensor, "%u", span->tensor);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 "+%" PRIu64 ":%s:%s",
                                 i == 0 ? "" : " ", span->start, span->length,
                                 tp_class_name((tp_class)span->cls), tensor);
    }
    return text;
}

const char *tensor_text(const tp_layout *layout, size_t index)
{
    static char text[4096];
    assert_true(index < layout->tensor_count);
    const tp_layout_tensor *t = &layout->tensors[index];
    char name[TP_SHOWN_SIZE], dtype[TP_SHOWN_SIZE];
    tp_show_tensor(name, layout, t);
    tp_show(dtype, layout->strings + layout->dtypes[t->dtype].start, layout->dtypes[t->dtype].size);
    size_t used = (size_t)snprintf(text, sizeof text, "%s %s [", name, dtype);
    for (uint32_t i = 0; i < t->ndim && used < sizeof text - 200; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64, i == 0 ? "" : ",",
                                 layout->dims[t->dims + i]);
    }
    snprintf(text + used, sizeof text - used, "] %" PRIu64 "+%" PRIu64 " %s %u", t->offset, t->nbytes,
             tp_class_name((tp_class)t->cls), t->flags);
    return text;
}
