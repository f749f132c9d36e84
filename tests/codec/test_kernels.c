/* The choice of kernels, and every kernel function against plain loops. */
#include "registry.h"

#include "codec/class.h"

static void test_names(void **state)
{
    (void)state;
    const char *const *names = tp_kernel_names();
    assert_string_equal(names[0], "portable");
    assert_true(tp_kernel_available("portable"));
    assert_false(tp_kernel_available("no such kernel"));
    assert_false(tp_kernel_available(""));
    assert_int_equal(tp_kernel_force("no such kernel"), TP_NOT_FOUND);
    const char *best = "portable";
    for (; *names; names++) {
        if (!tp_kernel_available(*names)) {
            assert_int_equal(tp_kernel_force(*names), TP_UNSUPPORTED);
            assert_int_equal(tp_kernel_self_test(*names, NULL), TP_UNSUPPORTED);
            continue;
        }
        best = *names;
        assert_int_equal(tp_kernel_force(*names), TP_OK);
        assert_string_equal(tp_kernel_active(), *names);
        tp_error error;
        if (tp_kernel_self_test(*names, &error)) fail_msg("%s", error.message);
    }
    assert_int_equal(tp_kernel_force(NULL), TP_OK);
    assert_string_equal(tp_kernel_active(), best);
    assert_int_equal(tp_kernel_self_test("no such kernel", NULL), TP_NOT_FOUND);
}

static void test_classes(void **state)
{
    (void)state;
    for (unsigned cls = 0; cls < TP_CLASS_COUNT; cls++) {
        const class_rule *rule = &class_rules[cls];
        const tp_class_traits *traits = tp_class_traits_of(cls);
        assert_int_equal(rule->cls, cls);
        assert_int_equal(traits->T, rule->T);
        assert_int_equal(traits->low, rule->low);
        assert_int_equal(traits->element, rule->element ? rule->element : 1);
        assert_int_equal(traits->planes, rule->element);
        assert_int_equal(tp_class_element_size((tp_class)cls), rule->element ? rule->element : 1);
        assert_int_equal(traits->rotated, rule->rotated);
        assert_int_equal(traits->pairs, rule->pairs);
        assert_int_equal(traits->wide_top, rule->wide_top);
        for (unsigned i = 0; i < 3; i++) assert_int_equal(traits->s[i], rule->s[i]);
        if (rule->T) assert_int_equal(rule->T / 8 + rule->low, rule->element);
    }
    assert_null(tp_class_traits_of(TP_CLASS_COUNT));
    assert_null(tp_class_traits_of(UINT32_MAX));
    assert_string_equal(tp_class_name((tp_class)TP_CLASS_COUNT), "unknown");
    assert_string_equal(tp_class_name(TP_CLASS_BF16), "bf16");
    assert_string_equal(tp_method_name(TP_METHOD_BG_LZ4), "bg-lz4");
    assert_string_equal(tp_method_name(TP_METHOD_COUNT), "unknown");
}

static const size_t sizes[] = {1,    2,    7,    8,    31,   33,   63,   64,    65,    255,   256,   257,  511, 1000,
                               1023, 1024, 1025, 2047, 2048, 4095, 4096, 4097,  5120,  8191,  10000, 70001};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void test_planes(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t n = all_kernels(kernels);
    rng r = rng_make(1);
    for (size_t k = 0; k < n; k++)
        for (unsigned element = 1; element <= 8; element++)
            for (size_t i = 0; i < SIZES; i++)
                for (unsigned index = 0; index < element && index < sizes[i]; index++) {
                    const size_t size = sizes[i], count = (size + element - 1 - index) / element;
                    uint8_t *src = exact(size), *plane = exact(count), *back = exact(size), *kept = exact(size);
                    rng_fill(&r, src, size);
                    rng_fill(&r, back, size);
                    memcpy(kept, back, size);
                    kernels[k]->plane_get(src, size, element, index, plane);
                    kernels[k]->plane_put(plane, size, element, index, back);
                    for (size_t at = 0; at < count; at++)
                        if (plane[at] != src[at * element + index])
                            fail_msg("%s: plane_get, %u bytes an element, byte %u, size %zu: wrong at %zu",
                                     kernels[k]->name, element, index, size, at);
                    for (size_t at = 0; at < size; at++)
                        if (back[at] != (at % element == index ? src[at] : kept[at]))
                            fail_msg("%s: plane_put, %u bytes an element, byte %u, size %zu: wrong at %zu",
                                     kernels[k]->name, element, index, size, at);
                    free(src);
                    free(plane);
                    free(back);
                    free(kept);
                }
}

static void test_count_bytes(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t n = all_kernels(kernels);
    rng r = rng_make(2);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < SIZES; i++)
            for (uint32_t step = 1; step <= 5; step += i % 2 ? 1 : 3) {
                uint8_t *src = exact(sizes[i]);
                uint32_t counts[256], expected[256];
                rng_fill(&r, src, sizes[i]);
                if (i % 3 == 0) memset(src, 7, sizes[i]); /* one counter takes all */
                for (unsigned v = 0; v < 256; v++) counts[v] = expected[v] = v;
                for (size_t at = 0; at < sizes[i]; at++)
                    if (at / 1024 % step == 0) expected[src[at]]++;
                kernels[k]->count_bytes(src, sizes[i], step, counts);
                if (memcmp(counts, expected, sizeof counts))
                    fail_msg("%s: count_bytes of %zu, step %u", kernels[k]->name, sizes[i], step);
                free(src);
            }
}

static void test_count_symbols(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    uint32_t *counts = exact(65536 * 4), *expected = exact(65536 * 4);
    rng r = rng_make(3);
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < shape_count; j++)
            for (size_t i = 0; i < SIZES; i++) {
                const tp_shape shape = kernel_shape(&shapes[j]);
                const ref_shape reference = reference_shape(&shapes[j]);
                const uint32_t length = (uint32_t)sizes[i], step = 1 + (uint32_t)(i % 4);
                const uint32_t alphabet = 1u << shapes[j].s * shapes[j].c;
                const size_t size = tp_shape_element(&shape);
                uint8_t *src = exact(length * size);
                rng_fill(&r, src, length * size);
                if (i % 3 == 0) make_data(DATA_CONSTANT, shapes[j].cls, &r, src, length);
                memset(counts, 0, alphabet * sizeof *counts);
                memset(expected, 0, alphabet * sizeof *expected);
                for (uint32_t at = 0; at + shapes[j].c <= length; at += shapes[j].c) {
                    if (at / 1024 % step) continue;
                    uint32_t symbol = 0;
                    for (unsigned e = 0; e < shapes[j].c; e++) {
                        const uint8_t *p = src + (at + e) * size + shape.low;
                        symbol |= ref_symbol(&reference, shape.T == 16 ? p[0] | (uint32_t)p[1] << 8 : p[0]) << 8 * e;
                    }
                    expected[symbol]++;
                }
                kernels[k]->count_symbols(&shape, src, length, step, counts);
                if (memcmp(counts, expected, alphabet * sizeof *counts))
                    fail_msg("%s: count_symbols of %u elements, %s s %u c %u, step %u", kernels[k]->name, length,
                             tp_class_name(shapes[j].cls), shapes[j].s, shapes[j].c, step);
                free(src);
            }
    free(counts);
    free(expected);
}

static void test_hashes(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    const size_t n = all_kernels(kernels);
    rng r = rng_make(4);
    /* XXH3-64 and XXH3-128 of nothing, by the algorithm's own test vectors */
    for (size_t k = 0; k < n; k++) {
        uint64_t hash[2];
        assert_int_equal(kernels[k]->hash64("", 0), 0x2d06800538d394c2u);
        kernels[k]->hash128("", 0, hash);
        assert_int_equal(hash[1], 0x99aa06d3014798d8u);
        assert_int_equal(hash[0], 0x6001c324468d497fu);
        for (size_t size = 0; size < 3000; size += size < 300 ? 1 : 97) {
            uint8_t *data = exact(size);
            uint64_t expected[2];
            rng_fill(&r, data, size);
            kernels[0]->hash128(data, size, expected);
            kernels[k]->hash128(data, size, hash);
            assert_memory_equal(hash, expected, sizeof hash);
            assert_int_equal(kernels[k]->hash64(data, size), kernels[0]->hash64(data, size));
            free(data);
        }
    }
}

int run_kernels(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_classes), cmocka_unit_test(test_planes),
        cmocka_unit_test(test_count_bytes), cmocka_unit_test(test_count_symbols), cmocka_unit_test(test_hashes),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
