#include "gpu/kernels/text.h"

/* The files are made by the build: the kernels' headers without their #include lines. */
#define EMBED(name, file)                                                                                  \
    extern const char name##_begin[], name##_end[];                                                        \
    __asm__(".pushsection .rodata\n"                                                                       \
            ".local " #name "_begin\n"                                                                     \
            ".local " #name "_end\n" #name "_begin:\n"                                                     \
            ".incbin \"" file "\"\n" #name "_end:\n"                                                       \
            ".byte 0\n"                                                                                    \
            ".popsection\n")

EMBED(text_common, TP_TEXT_FOLDER "/common.cl");
EMBED(text_stream, TP_TEXT_FOLDER "/stream.cl");
EMBED(text_parts, TP_TEXT_FOLDER "/parts.cl");
EMBED(text_df11, TP_TEXT_FOLDER "/df11.cl");
EMBED(text_hash, TP_TEXT_FOLDER "/hash.cl");

const char *tp_kernel_text(tp_text_part part, size_t *size)
{
    const char *begin = text_common_begin, *end = text_common_end;
    if (part == TP_TEXT_STREAM) begin = text_stream_begin, end = text_stream_end;
    if (part == TP_TEXT_PARTS) begin = text_parts_begin, end = text_parts_end;
    if (part == TP_TEXT_DF11) begin = text_df11_begin, end = text_df11_end;
    if (part == TP_TEXT_HASH) begin = text_hash_begin, end = text_hash_end;
    *size = (size_t)(end - begin);
    return begin;
}
