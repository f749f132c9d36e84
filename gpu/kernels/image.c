#include "gpu/kernels/image.h"

extern const char tp_cuda_image_begin[];
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".local tp_cuda_image_begin\n"
        "tp_cuda_image_begin:\n"
        ".incbin \"" TP_IMAGE_FILE "\"\n"
        ".popsection\n");

const void *tp_cuda_image(void)
{
    return tp_cuda_image_begin;
}
