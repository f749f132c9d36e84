#include <string.h>

#include "tensorpress.h"

void tp_options_init(tp_options *options)
{
    memset(options, 0, sizeof *options);
    options->level = TP_LEVEL_DEFAULT;
    options->codec = TP_CODEC_AUTO;
}

const char *tp_format_name(tp_format format)
{
    switch (format) {
    case TP_FORMAT_BYTES:
        return "bytes";
    case TP_FORMAT_SAFETENSORS:
        return "safetensors";
    case TP_FORMAT_GGUF:
        return "gguf";
    case TP_FORMAT_TPRESS:
        return "tpress";
    }
    return "bytes"; /* of a later version: all that is known is that it is a file */
}
