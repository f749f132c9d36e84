#include "codec/class.h"

static const tp_class_traits traits[TP_CLASS_COUNT] = {
    [TP_CLASS_BYTES] = {.element = 1},
    [TP_CLASS_BF16] =
        {.element = 2, .T = 16, .s = {9, 8, 10}, .finer = 10, .planes = 2, .rotated = true, .pairs = true},
    [TP_CLASS_F16] = {.element = 2, .T = 8, .low = 1, .s = {7, 6}, .planes = 2, .rotated = true},
    [TP_CLASS_F32] = {.element = 4,
                      .T = 16,
                      .low = 2,
                      .s = {9, 8, 10},
                      .finer = 10,
                      .planes = 4,
                      .rotated = true,
                      .pairs = true},
    [TP_CLASS_F64] = {.element = 8, .T = 16, .low = 6, .s = {12, 11}, .planes = 8, .rotated = true},
    [TP_CLASS_E4M3] = {.element = 1, .T = 8, .s = {6, 5}, .planes = 1, .rotated = true, .wide_top = true},
    [TP_CLASS_E5M2] =
        {.element = 1, .T = 8, .s = {6, 5, 7}, .planes = 1, .rotated = true, .wide_top = true},
    [TP_CLASS_I8] = {.element = 1, .T = 8, .s = {7, 6}, .planes = 1, .wide_top = true},
    [TP_CLASS_I16] = {.element = 2, .planes = 2},
    [TP_CLASS_I32] = {.element = 4, .planes = 4},
    [TP_CLASS_I64] = {.element = 8, .planes = 8},
};

const tp_class_traits *tp_class_traits_of(unsigned cls)
{
    return cls < TP_CLASS_COUNT ? &traits[cls] : NULL;
}

const char *tp_class_name(tp_class cls)
{
#define NAME(name, value, text) [value] = text,
    static const char *const names[] = {TP_CLASS_LIST(NAME)};
#undef NAME
    return (unsigned)cls < TP_CLASS_COUNT ? names[cls] : "unknown";
}

size_t tp_class_element_size(tp_class cls)
{
    return (unsigned)cls < TP_CLASS_COUNT ? traits[cls].element : 1;
}

const char *tp_method_name(tp_method method)
{
#define NAME(name, text) [name] = text,
    static const char *const names[] = {TP_METHOD_LIST(NAME)};
#undef NAME
    return (unsigned)method < TP_METHOD_COUNT ? names[method] : "unknown";
}
