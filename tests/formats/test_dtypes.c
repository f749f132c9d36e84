#include "support.h"

static void test_all(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned bits;
        tp_class cls;
    } dtypes[] = {
        {"BOOL", 8, TP_CLASS_I8},
        {"F4", 4, TP_CLASS_BYTES},
        {"F6_E2M3", 6, TP_CLASS_BYTES},
        {"F6_E3M2", 6, TP_CLASS_BYTES},
        {"U8", 8, TP_CLASS_I8},
        {"I8", 8, TP_CLASS_I8},
        {"F8_E5M2", 8, TP_CLASS_E5M2},
        {"F8_E4M3", 8, TP_CLASS_E4M3},
        {"F8_E8M0", 8, TP_CLASS_I8},
        {"F8_E4M3FNUZ", 8, TP_CLASS_E4M3},
        {"F8_E5M2FNUZ", 8, TP_CLASS_E5M2},
        {"I16", 16, TP_CLASS_I16},
        {"U16", 16, TP_CLASS_I16},
        {"F16", 16, TP_CLASS_F16},
        {"BF16", 16, TP_CLASS_BF16},
        {"I32", 32, TP_CLASS_I32},
        {"U32", 32, TP_CLASS_I32},
        {"F32", 32, TP_CLASS_F32},
        {"C64", 64, TP_CLASS_F32},
        {"F64", 64, TP_CLASS_F64},
        {"I64", 64, TP_CLASS_I64},
        {"U64", 64, TP_CLASS_I64},
    };
    assert_int_equal(sizeof dtypes / sizeof *dtypes, 22);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        unsigned bits = 0;
        tp_class cls = TP_CLASS_COUNT;
        assert_true(tp_safetensors_dtype(dtypes[i].name, strlen(dtypes[i].name), &bits, &cls));
        assert_int_equal(bits, dtypes[i].bits);
        assert_int_equal(cls, dtypes[i].cls);
        /* The same in a file: 8 elements, whatever the width. */
        char header[200];
        unsigned nbytes = dtypes[i].bits;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}",
                 dtypes[i].name, nbytes);
        tp_layout layout = parse(header, nbytes);
        char expected[200];
        snprintf(expected, sizeof expected, "t %s [8] %zu+%u %s 0", dtypes[i].name, 8 + strlen(header),
                 nbytes, tp_class_name(dtypes[i].cls));
        assert_string_equal(tensor_text(&layout, 0), expected);
        assert_int_equal(layout.opaque_tensors, 0);
        tp_layout_free(&layout);
    }
}

static void test_unknown(void **state)
{
    (void)state;
    static const char *const names[] = {"", "F", "f32", "F32 ", "F321", "BF1", "F128", "Q4_K"};
    unsigned bits;
    tp_class cls;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_false(tp_safetensors_dtype(names[i], strlen(names[i]), &bits, &cls));
    }
    assert_false(tp_safetensors_dtype("F32\0", 4, &bits, &cls));
}

int run_dtypes(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests_name("dtypes", tests, NULL, NULL);
}
