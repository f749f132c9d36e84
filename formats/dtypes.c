/* The dtypes of safetensors, in the order of its own library; classes as in docs/format.md section 6. */
#include <string.h>

#include "formats/layout.h"

static const struct {
    const char *name;
    uint8_t bits;
    uint8_t cls;
} dtypes[] = {
    {"BOOL", 8, TP_CLASS_I8},
    /* Several elements share a byte, so these are bytes, however well they are understood. */
    {"F4", 4, TP_CLASS_BYTES},
    {"F6_E2M3", 6, TP_CLASS_BYTES},
    {"F6_E3M2", 6, TP_CLASS_BYTES},
    {"U8", 8, TP_CLASS_I8},
    {"I8", 8, TP_CLASS_I8},
    {"F8_E5M2", 8, TP_CLASS_E5M2},
    {"F8_E4M3", 8, TP_CLASS_E4M3},
    {"F8_E8M0", 8, TP_CLASS_I8}, /* an exponent alone: no sign, no mantissa */
    {"F8_E4M3FNUZ", 8, TP_CLASS_E4M3},
    {"F8_E5M2FNUZ", 8, TP_CLASS_E5M2},
    {"I16", 16, TP_CLASS_I16},
    {"U16", 16, TP_CLASS_I16},
    {"F16", 16, TP_CLASS_F16},
    {"BF16", 16, TP_CLASS_BF16},
    {"I32", 32, TP_CLASS_I32},
    {"U32", 32, TP_CLASS_I32},
    {"F32", 32, TP_CLASS_F32},
    {"C64", 64, TP_CLASS_F32}, /* real and imaginary part, two F32 */
    {"F64", 64, TP_CLASS_F64},
    {"I64", 64, TP_CLASS_I64},
    {"U64", 64, TP_CLASS_I64},
};

int tp_safetensors_dtype_place(const char *name, size_t name_size)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strlen(dtypes[i].name) == name_size && memcmp(dtypes[i].name, name, name_size) == 0) return (int)i;
    return -1;
}

bool tp_safetensors_dtype(const char *name, size_t name_size, unsigned *bits, tp_class *cls)
{
    int place = tp_safetensors_dtype_place(name, name_size);
    if (place < 0) return false;
    *bits = dtypes[place].bits;
    *cls = (tp_class)dtypes[place].cls;
    return true;
}

tp_class tp_class_swapped(tp_class cls)
{
    switch (cls) {
    case TP_CLASS_BF16:
    case TP_CLASS_F16:
        return TP_CLASS_I16;
    case TP_CLASS_F32:
        return TP_CLASS_I32;
    case TP_CLASS_F64:
        return TP_CLASS_I64;
    default:
        return cls;
    }
}
