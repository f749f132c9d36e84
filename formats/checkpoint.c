#include <string.h>

#include "formats/layout.h"

static bool has_suffix(const char *name, const char *suffix)
{
    size_t size = strlen(name), suffix_size = strlen(suffix);
    return size >= suffix_size && strcmp(name + size - suffix_size, suffix) == 0;
}

/*
 * Finds the format and lets its parser work. The content goes before the name: a GGUF file may be called
 * model.safetensors. A format's name without its content is that format, damaged.
 */
static tp_status parse(tp_layout_builder *builder)
{
    static const char lfs[] = "version https://git-lfs.github.com/";
    const tp_source *source = builder->source;
    const char *name = source->name == NULL ? "" : source->name;
    char start[sizeof lfs - 1] = {0};
    size_t size = source->size < sizeof start ? (size_t)source->size : sizeof start;
    if (size != 0) {
        tp_status status = source->read(source->context, start, size, 0, builder->error);
        if (status != TP_OK) return status;
    }
    bool gguf = memcmp(start, "GGUF", 4) == 0;
    bool safetensors = !gguf && has_suffix(name, ".safetensors");
    if (!gguf && !safetensors) {
        tp_status status = tp_safetensors_recognise(source, &safetensors, builder->error);
        if (status != TP_OK) return status;
    }
    if (!gguf && !safetensors) gguf = has_suffix(name, ".gguf");

    if ((gguf || safetensors) && memcmp(start, lfs, sizeof start) == 0) {
        return tp_layout_refuse(builder, "it is a Git LFS pointer, not the file that it stands for");
    }
    if (safetensors) return tp_safetensors_parse(builder);
    if (gguf) return tp_gguf_parse(builder);
    return tp_archive_parse(builder);
}

tp_status tp_layout_parse(const tp_source *source, tp_layout *layout, tp_error *error)
{
    *layout = (tp_layout){0};
    tp_layout_builder builder = {.layout = layout, .source = source, .error = error};
    tp_status status = parse(&builder);
    if (builder.refused) status = tp_layout_bytes(&builder);
    if (status != TP_OK) tp_layout_free(layout);
    return status;
}
