/* The choice of kernels, every kernel function against plain loops, and the small things: errors, memory
 * that runs out. */
#include "registry.h"

#include "codec/class.h"
#include "codec/hash.h"

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

static const size_t sizes[] = {1,    2,    7,    8,    31,   33,   63,    64,   65,
                               255,  256,  257,  511,  1000, 1023, 1024,  1025, 2047,
                               2048, 4095, 4096, 4097, 5120, 8191, 10000, 70001};
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
                    uint8_t *src = exact(size), *plane = exact(count), *back = exact(size),
                            *kept = exact(size);
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

/* The symbol of element `at`. */
static uint32_t symbol_at(const ref_shape *reference, const tp_shape *shape, const uint8_t *src, size_t at)
{
    const uint8_t *p = src + at * tp_shape_element(shape) + shape->low;
    return ref_symbol(reference, shape->T == 16 ? p[0] | (uint32_t)p[1] << 8 : p[0]);
}

static void test_count_symbols(void **state)
{
    (void)state;
    enum { CLASSES = 4, GROUPS = 200 };
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    uint32_t *counts = exact(CLASSES * 4096 * 4), *expected = exact(CLASSES * 4096 * 4);
    uint8_t class[GROUPS], code[256];
    rng r = rng_make(3);
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < shape_count; j++)
            for (size_t i = 0; i < SIZES; i++) {
                const tp_shape shape = kernel_shape(&shapes[j]);
                const ref_shape reference = reference_shape(&shapes[j]);
                const uint32_t length = (uint32_t)sizes[i], step = 1 + (uint32_t)(i % 4);
                const bool pairs = shapes[j].c == 2, classes = i % 2;
                const uint32_t alphabet = pairs ? 256 : 1u << shapes[j].s,
                               size = (classes ? CLASSES : 1) * alphabet;
                uint8_t *src = exact(length * tp_shape_element(&shape));
                assert_in_range(length, 0, GROUPS * 1024);
                rng_fill(&r, src, length * tp_shape_element(&shape));
                if (i % 3 == 0) make_data(DATA_CONSTANT, shapes[j].cls, &r, src, length);
                for (size_t g = 0; g < GROUPS; g++) class[g] = (uint8_t)rng_below(&r, CLASSES);
                for (size_t v = 0; v < 256; v++) code[v] = (uint8_t)rng_below(&r, 16);
                for (size_t v = 0; v < size; v++) counts[v] = expected[v] = rng_below(&r, 9); /* added to */
                for (uint32_t at = 0; at + shapes[j].c <= length; at += shapes[j].c) {
                    if (at / 1024 % step) continue;
                    const uint32_t symbol = symbol_at(&reference, &shape, src, at);
                    uint32_t value = symbol;
                    if (pairs) {
                        const uint32_t second = symbol_at(&reference, &shape, src, at + 1);
                        value = code[symbol] | (uint32_t)code[second] << 4;
                    }
                    expected[(classes ? class[at / 1024] * alphabet : 0) + value]++;
                }
                if (pairs)
                    kernels[k]->count_pairs(&shape, code, src, length, step, classes ? class : NULL,
                                            classes ? CLASSES : 1, counts);
                else
                    kernels[k]->count_symbols(&shape, src, length, step, classes ? class : NULL,
                                              classes ? CLASSES : 1, counts);
                if (memcmp(counts, expected, size * sizeof *counts))
                    fail_msg("%s: counts of %u elements, %s s %u c %u, step %u", kernels[k]->name, length,
                             tp_class_name(shapes[j].cls), shapes[j].s, shapes[j].c, step);
                free(src);
            }
    free(counts);
    free(expected);
}

static void test_group_sums(void **state)
{
    (void)state;
    const tp_kernels *kernels[MAX_KERNELS];
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_kernels(kernels), shape_count = all_split_shapes(shapes);
    rng r = rng_make(5);
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < shape_count; j++)
            for (size_t i = 0; i < SIZES; i++) {
                if (shapes[j].c == 2) continue;
                const tp_shape shape = kernel_shape(&shapes[j]);
                const ref_shape reference = reference_shape(&shapes[j]);
                const uint32_t length = (uint32_t)sizes[i], groups = (length + 1023) / 1024;
                const size_t size = tp_shape_element(&shape);
                uint8_t *src = exact(length * size);
                uint32_t *sums = exact(groups * sizeof *sums), *expected = exact(groups * sizeof *sums);
                rng_fill(&r, src, length * size);
                if (i % 4 == 0) memset(src, 0xff, length * size); /* the largest sums */
                memset(sums, 0xee, groups * sizeof *sums);
                memset(expected, 0, groups * sizeof *expected);
                for (uint32_t at = 0; at < length; at++) {
                    const uint8_t *p = src + at * size + shape.low;
                    expected[at / 1024] +=
                        ref_symbol(&reference, shape.T == 16 ? p[0] | (uint32_t)p[1] << 8 : p[0]);
                }
                kernels[k]->group_sums(&shape, src, length, sums);
                if (memcmp(sums, expected, groups * sizeof *sums))
                    fail_msg("%s: group_sums of %u elements, %s s %u", kernels[k]->name, length,
                             tp_class_name(shapes[j].cls), shapes[j].s);
                free(src);
                free(sums);
                free(expected);
            }
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

static void test_errors(void **state)
{
    (void)state;
    tp_error error;
    assert_int_equal(tp_error_set(NULL, TP_IO, "nobody hears %d", 1), TP_IO);
    assert_int_equal(tp_error_set_at(NULL, TP_IO, 7, "nobody hears %d", 1), TP_IO);
    memset(&error, 0xff, sizeof error);
    assert_int_equal(tp_error_set(&error, TP_CORRUPT, "%s %d", "what", 12), TP_CORRUPT);
    assert_int_equal(error.status, TP_CORRUPT);
    assert_string_equal(error.message, "what 12");
    assert_false(error.has_offset);
    memset(&error, 0xff, sizeof error);
    assert_int_equal(tp_error_set_at(&error, TP_TRUNCATED, 99, "there"), TP_TRUNCATED);
    assert_true(error.has_offset);
    assert_int_equal(error.offset, 99);
    char *longer = exact(3000);
    memset(longer, 'x', 2999);
    longer[2999] = 0;
    tp_error_set(&error, TP_CORRUPT, "%s", longer);
    assert_in_range(strlen(error.message), 1000, sizeof error.message - 1);
    free(longer);

    for (int status = 0; status < TP_STATUS_COUNT; status++) {
        assert_true(strlen(tp_status_message((tp_status)status)) > 1);
        assert_in_range(tp_status_exit_code((tp_status)status), 0, 130);
    }
    assert_int_equal(tp_status_exit_code(TP_OK), 0);
    assert_int_equal(tp_status_exit_code(TP_CORRUPT), 1);
    assert_int_equal(tp_status_exit_code(TP_UNSUPPORTED), 4);
    assert_non_null(tp_status_message((tp_status)-1));
    assert_non_null(tp_status_message(TP_STATUS_COUNT));
    assert_int_not_equal(tp_status_exit_code(TP_STATUS_COUNT), 0);

    char version[64];
    snprintf(version, sizeof version, "%d.%d.%d", TP_VERSION_MAJOR, TP_VERSION_MINOR, TP_VERSION_PATCH);
    assert_string_equal(tp_version(), version);
    assert_int_equal(tp_abi_version(), TP_ABI_VERSION);
}

/* Every allocation of a workspace fails once; AddressSanitizer sees what is left behind. */
static void test_out_of_memory(void **state)
{
    (void)state;
    unsigned failed = 0;
    for (int n = 0;; n++) {
        tp_encoder *encoder = NULL;
        fail_allocation = n;
        const tp_status status = tp_encoder_create(&encoder);
        const bool reached = fail_allocation < 0;
        fail_allocation = -1;
        if (!reached) {
            assert_int_equal(status, TP_OK);
            tp_encoder_destroy(encoder);
            break;
        }
        assert_int_equal(status, TP_NO_MEMORY);
        failed++;
    }
    assert_true(failed >= 3);
    failed = 0;
    for (int n = 0;; n++) {
        tp_decoder *decoder = NULL;
        fail_allocation = n;
        const tp_status status = tp_decoder_create(&decoder);
        const bool reached = fail_allocation < 0;
        fail_allocation = -1;
        if (!reached) {
            assert_int_equal(status, TP_OK);
            tp_decoder_destroy(decoder);
            break;
        }
        assert_int_equal(status, TP_NO_MEMORY);
        failed++;
    }
    assert_true(failed >= 3);
    for (int n = 0; n < 6; n++) { /* the self-test: four buffers, then the two workspaces */
        tp_error error;
        fail_allocation = n;
        assert_int_equal(tp_kernel_self_test("portable", &error), TP_NO_MEMORY);
        assert_true(fail_allocation < 0);
        assert_true(error.message[0] != 0);
    }
    fail_allocation = -1;
}

/* A running hash is that of the whole, however it is cut. */
static void test_running_hashes(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static const size_t cuts[] = {1,   3,   63,  64,   65,   96,   112,  239,
                                  240, 241, 960, 1023, 1024, 1025, 2048, 4000};
    uint8_t *data = exact(MOST);
    const tp_kernels *kernels[MAX_KERNELS];
    rng r = rng_make(9);
    for (size_t i = 0; i < MOST; i++) data[i] = (uint8_t)rng_next(&r);
    for (size_t k = all_kernels(kernels); k-- > 0;) {
        assert_int_equal(tp_kernel_force(kernels[k]->name), TP_OK);
        for (size_t size = 0; size <= MOST; size += size < 2200 ? 1 : 97) {
            uint64_t expected[2], hash[2];
            tp_kernels_portable.hash128(data, size, expected);
            for (size_t c = 0; c < 1 + sizeof cuts / sizeof *cuts; c++) {
                if (c && cuts[c - 1] < 63 && size > 300) continue; /* takes long */
                tp_hasher hasher;
                tp_hasher_init(&hasher);
                for (size_t at = 0, part; at < size; at += part) {
                    part = c ? cuts[c - 1] : 1 + rng_below(&r, 1500);
                    if (part > size - at) part = size - at;
                    tp_hasher_add(&hasher, data + at, part);
                    tp_hasher_add(&hasher, NULL, 0);
                }
                tp_hasher_end(&hasher, hash);
                if (memcmp(hash, expected, sizeof hash) != 0)
                    fail_msg("%s: %zu bytes in parts of %zu", kernels[k]->name, size, c ? cuts[c - 1] : 0);
            }
        }
    }
    assert_int_equal(tp_kernel_force(NULL), TP_OK);
    free(data);
}

int run_kernels(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),          cmocka_unit_test(test_classes),
        cmocka_unit_test(test_planes),         cmocka_unit_test(test_count_bytes),
        cmocka_unit_test(test_count_symbols),  cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_running_hashes), cmocka_unit_test(test_group_sums),
        cmocka_unit_test(test_errors),         cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
