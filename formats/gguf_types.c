/* Sizes are those of ggml's block structures, in which QK_K is 256. */
#include "formats/gguf_types.h"

#include <string.h>

#define BLOCKS(elements, bytes) elements, bytes, TP_CLASS_BYTES, TP_CLASS_BYTES

/* By id; the gaps are removed ones. */
static const tp_gguf_type types[] = {
    [0] = {"F32", 1, 4, TP_CLASS_F32, TP_CLASS_I32},
    [1] = {"F16", 1, 2, TP_CLASS_F16, TP_CLASS_I16},
    [2] = {"Q4_0", BLOCKS(32, 18)},
    [3] = {"Q4_1", BLOCKS(32, 20)},
    /* 4 was Q4_2 */
    /* 5 was Q4_3 */
    [6] = {"Q5_0", BLOCKS(32, 22)},
    [7] = {"Q5_1", BLOCKS(32, 24)},
    [8] = {"Q8_0", BLOCKS(32, 34)},
    [9] = {"Q8_1", BLOCKS(32, 36)},
    [10] = {"Q2_K", BLOCKS(256, 84)},
    [11] = {"Q3_K", BLOCKS(256, 110)},
    [12] = {"Q4_K", BLOCKS(256, 144)},
    [13] = {"Q5_K", BLOCKS(256, 176)},
    [14] = {"Q6_K", BLOCKS(256, 210)},
    [15] = {"Q8_K", BLOCKS(256, 292)},
    [16] = {"IQ2_XXS", BLOCKS(256, 66)},
    [17] = {"IQ2_XS", BLOCKS(256, 74)},
    [18] = {"IQ3_XXS", BLOCKS(256, 98)},
    [19] = {"IQ1_S", BLOCKS(256, 50)},
    [20] = {"IQ4_NL", BLOCKS(32, 18)},
    [21] = {"IQ3_S", BLOCKS(256, 110)},
    [22] = {"IQ2_S", BLOCKS(256, 82)},
    [23] = {"IQ4_XS", BLOCKS(256, 136)},
    [24] = {"I8", 1, 1, TP_CLASS_I8, TP_CLASS_I8},
    [25] = {"I16", 1, 2, TP_CLASS_I16, TP_CLASS_I16},
    [26] = {"I32", 1, 4, TP_CLASS_I32, TP_CLASS_I32},
    [27] = {"I64", 1, 8, TP_CLASS_I64, TP_CLASS_I64},
    [28] = {"F64", 1, 8, TP_CLASS_F64, TP_CLASS_I64},
    [29] = {"IQ1_M", BLOCKS(256, 56)},
    [30] = {"BF16", 1, 2, TP_CLASS_BF16, TP_CLASS_I16},
    /* 31 was Q4_0_4_4 */
    /* 32 was Q4_0_4_8 */
    /* 33 was Q4_0_8_8 */
    [34] = {"TQ1_0", BLOCKS(256, 54)},
    [35] = {"TQ2_0", BLOCKS(256, 66)},
    /* 36 was IQ4_NL_4_4, and is I2_S in files of BitNet */
    /* 37 was IQ4_NL_4_8 */
    /* 38 was IQ4_NL_8_8 */
    [39] = {"MXFP4", BLOCKS(32, 17)},
    [40] = {"NVFP4", BLOCKS(64, 36)},
    [41] = {"Q1_0", BLOCKS(128, 18)},
    [42] = {"Q2_0", BLOCKS(64, 18)},
};

const tp_gguf_type *tp_gguf_type_find(uint32_t id)
{
    if (id >= sizeof types / sizeof *types || types[id].name == NULL) return NULL;
    return &types[id];
}

const tp_gguf_type *tp_gguf_type_named(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].name != NULL && strlen(types[i].name) == size && memcmp(types[i].name, name, size) == 0)
            return &types[i];
    return NULL;
}
