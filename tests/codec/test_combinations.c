/* Frames of every combination that the format allows, built by the registry, through the decoder. */
#include "registry.h"

typedef struct combinations {
    const tp_kernels *kernels[MAX_KERNELS];
    size_t count;
    tp_decoder *decoder;
    unsigned plans;
} combinations;

static void run_plan(const frame_plan *plan, void *context)
{
    combinations *c = context;
    built_frame first = {0};
    tp_error error;
    c->plans++;
    for (size_t k = 0; k < c->count; k++) { /* equal bytes of all kernels */
        built_frame built;
        build_frame(plan, c->kernels[k], &built);
        if (k == 0) {
            first = built;
            continue;
        }
        if (built.size != first.size || memcmp(built.frame, first.frame, built.size))
            fail_msg("%s: kernel %s encodes differently", plan->name, c->kernels[k]->name);
        built_frame_free(&built);
    }
    tp_frame_info info;
    if (tp_frame_check(first.frame, first.size, &info, &error))
        fail_msg("%s: %s", plan->name, error.message);
    assert_int_equal(info.codec, plan->codec);
    assert_int_equal(info.cls, plan->cls);
    assert_int_equal(info.symbol_bits, plan->s);
    assert_int_equal(info.elements_per_symbol, plan->c);
    assert_int_equal(info.low_coded, plan->low_coded);
    assert_int_equal(info.joined, plan->joined);
    for (size_t k = 0; k < c->count; k++) {
        uint8_t *dst = exact(first.raw_size);
        size_t raw_size;
        memset(dst, 0x5a, first.raw_size);
        tp_decoder_use(c->decoder, c->kernels[k]);
        if (tp_decode(c->decoder, first.frame, first.size, dst, first.raw_size, &raw_size, &error))
            fail_msg("%s: kernel %s: %s", plan->name, c->kernels[k]->name, error.message);
        if (raw_size != first.raw_size || memcmp(dst, first.raw, raw_size))
            fail_msg("%s: kernel %s decodes something else", plan->name, c->kernels[k]->name);

        /* With all or part of the slack readable behind the frame, parts are read where they are. */
        for (size_t slack = 0; slack <= TP_SLACK; slack += 512) {
            uint8_t *longer = exact(first.size + slack);
            tp_frame_view view;
            memcpy(longer, first.frame, first.size);
            memset(longer + first.size, 0xff, slack);
            memset(dst, 0x5a, first.raw_size);
            assert_int_equal(tp_frame_validate(longer, first.size, false, &view, &error), TP_OK);
            if (tp_frame_decode(c->decoder, &view, first.size + slack, dst, first.raw_size, &error))
                fail_msg("%s: kernel %s, %zu bytes behind it: %s", plan->name, c->kernels[k]->name, slack,
                         error.message);
            assert_memory_equal(dst, first.raw, first.raw_size);
            free(longer);
            if (first.size > 20000) slack += 1536;
        }
        free(dst);
    }
    built_frame_free(&first);
}

static void run(void (*each)(void (*)(const frame_plan *, void *), void *), unsigned at_least)
{
    combinations c = {.plans = 0};
    c.count = all_kernels(c.kernels);
    assert_int_equal(tp_decoder_create(&c.decoder), TP_OK);
    each(run_plan, &c);
    tp_decoder_destroy(c.decoder);
    assert_true(c.plans >= at_least);
}

static void test_modes(void **state)
{
    (void)state;
    run(each_plan, 250);
}

static void test_chunk_sizes(void **state)
{
    (void)state;
    run(each_chunk_size_plan, 300);
}

int run_combinations(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_chunk_sizes),
    };
    return cmocka_run_group_tests_name("combinations", tests, NULL, NULL);
}
