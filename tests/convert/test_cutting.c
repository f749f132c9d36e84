/* Which bytes share a frame. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "convert/cutting.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define MAX_SPANS 16

/* Spans of these classes and lengths, one after the other, must give these frames; a class of -1 ends a
 * list. */
typedef struct piece {
    int cls;
    uint64_t size;
} piece;
#define END                                                                                                \
    {                                                                                                      \
        -1, 0                                                                                              \
    }
#define BYTES TP_CLASS_BYTES

static void assert_cuts(const piece *spans, const piece *frames)
{
    tp_span list[MAX_SPANS];
    size_t count = 0;
    uint64_t at = 0;
    for (; spans[count].cls >= 0; count++) {
        list[count] = (tp_span){.start = at,
                                .length = spans[count].size,
                                .tensor = TP_NO_TENSOR,
                                .cls = (uint8_t)spans[count].cls};
        at += spans[count].size;
    }
    tp_cutter cutter;
    tp_cut cut;
    tp_cutter_init(&cutter, list, count);
    at = 0;
    for (; tp_cutter_next(&cutter, &cut); frames++) {
        assert_int_equal(cut.start, at);
        assert_int_equal(cut.cls, frames->cls);
        assert_int_equal(cut.size, frames->size);
        at += cut.size;
    }
    assert_int_equal(frames->cls, -1);
    assert_false(tp_cutter_next(&cutter, &cut));
}

#define CUTS(spans, ...) assert_cuts((const piece[])spans, (const piece[])__VA_ARGS__)
#define LIST(...)                                                                                          \
    {                                                                                                      \
        __VA_ARGS__, END                                                                                   \
    }

static void large_spans(void **state)
{
    (void)state;
    /* Whole chunks of 2^17 elements up to 4 MiB. */
    CUTS(LIST({TP_CLASS_BF16, 9 * MIB + 2}),
         LIST({TP_CLASS_BF16, 4 * MIB}, {TP_CLASS_BF16, 4 * MIB}, {TP_CLASS_BF16, MIB + 2}));
    CUTS(LIST({TP_CLASS_F64, 5 * MIB}), LIST({TP_CLASS_F64, 4 * MIB}, {TP_CLASS_F64, MIB}));
    CUTS(LIST({TP_CLASS_I8, MIB}), LIST({TP_CLASS_I8, MIB}));
    /* Neighbours stay outside, whatever they are. */
    CUTS(LIST({TP_CLASS_F32, MIB}, {TP_CLASS_F32, MIB}, {TP_CLASS_F32, 8 * KIB}, {BYTES, 5}),
         LIST({TP_CLASS_F32, MIB}, {TP_CLASS_F32, MIB}, {TP_CLASS_F32, 8 * KIB}, {BYTES, 5}));
}

static void runs(void **state)
{
    (void)state;
    CUTS(LIST({TP_CLASS_F32, 8 * KIB}, {TP_CLASS_F32, 100 * KIB}, {TP_CLASS_F32, 4}),
         LIST({TP_CLASS_F32, 108 * KIB + 4}));
    /* A few bytes of whole elements' length go with what is around them. */
    CUTS(
        LIST({TP_CLASS_F32, 2 * KIB}, {BYTES, 256}, {TP_CLASS_F32, 4}, {BYTES, 4}, {TP_CLASS_F32, 2 * KIB}),
        LIST({TP_CLASS_F32, 4 * KIB + 264}));
    CUTS(LIST({BYTES, 64}, {TP_CLASS_F32, 8 * KIB}, {BYTES, 64}, {TP_CLASS_F32, 8 * KIB}, {BYTES, 64}),
         LIST({BYTES, 64}, {TP_CLASS_F32, 16 * KIB + 64}, {BYTES, 64}));
    CUTS(LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 64}, {TP_CLASS_F32, MIB}, {BYTES, 64}, {TP_CLASS_F32, MIB}),
         LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 64}, {TP_CLASS_F32, MIB}, {BYTES, 64}, {TP_CLASS_F32, MIB}));
    CUTS(LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 64}, {TP_CLASS_I32, 8 * KIB}),
         LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 64}, {TP_CLASS_I32, 8 * KIB}));
    CUTS(LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 260}, {TP_CLASS_F32, 8 * KIB}),
         LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 260}, {TP_CLASS_F32, 8 * KIB}));
    /* Any other gap or another class ends a run. */
    CUTS(LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 1}, {TP_CLASS_F32, 8 * KIB}),
         LIST({TP_CLASS_F32, 8 * KIB}, {BYTES, 1}, {TP_CLASS_F32, 8 * KIB}));
    CUTS(LIST({TP_CLASS_F32, 8 * KIB}, {TP_CLASS_BF16, 8 * KIB}),
         LIST({TP_CLASS_F32, 8 * KIB}, {TP_CLASS_BF16, 8 * KIB}));
    /* Spans fill a frame while they fit whole. */
    CUTS(LIST({TP_CLASS_F32, MIB - 4}, {TP_CLASS_F32, MIB - 4}, {TP_CLASS_F32, MIB - 4},
              {TP_CLASS_F32, MIB - 4}, {TP_CLASS_F32, 16}, {TP_CLASS_F32, 4}),
         LIST({TP_CLASS_F32, 4 * MIB}, {TP_CLASS_F32, 4}));
    CUTS(LIST({TP_CLASS_F32, MIB - 4}, {TP_CLASS_F32, MIB - 4}, {TP_CLASS_F32, MIB - 4},
              {TP_CLASS_F32, MIB - 4}, {TP_CLASS_F32, 20}, {TP_CLASS_F32, 4}),
         LIST({TP_CLASS_F32, 4 * MIB - 16}, {TP_CLASS_F32, 24}));
}

static void small_runs_are_bytes(void **state)
{
    (void)state;
    CUTS(LIST({TP_CLASS_F32, 4 * KIB - 4}), LIST({BYTES, 4 * KIB - 4}));
    CUTS(LIST({TP_CLASS_F32, 4 * KIB}), LIST({TP_CLASS_F32, 4 * KIB}));
    /* With all that is around them. */
    CUTS(LIST({BYTES, 1000}, {TP_CLASS_F32, 8}, {TP_CLASS_I64, 8}, {TP_CLASS_F32, 12}, {BYTES, 3}),
         LIST({BYTES, 1031}));
    CUTS(LIST({BYTES, 1000}, {TP_CLASS_F32, 8}, {TP_CLASS_I64, 4 * KIB}, {TP_CLASS_F32, 12}, {BYTES, 3}),
         LIST({BYTES, 1008}, {TP_CLASS_I64, 4 * KIB}, {BYTES, 15}));
    CUTS(LIST({TP_CLASS_F32, 8}, {TP_CLASS_F32, MIB}, {TP_CLASS_F32, 8}),
         LIST({BYTES, 8}, {TP_CLASS_F32, MIB}, {BYTES, 8}));
}

static void bytes_frames(void **state)
{
    (void)state;
    CUTS(LIST({BYTES, 9 * MIB}), LIST({BYTES, 4 * MIB}, {BYTES, 4 * MIB}, {BYTES, MIB}));
    CUTS(LIST({BYTES, 4 * MIB - 8}, {TP_CLASS_F32, 12}, {BYTES, 6}), LIST({BYTES, 4 * MIB}, {BYTES, 10}));
    assert_cuts((const piece[]){END}, (const piece[]){END});
}

/* Any spans: the frames cover them in order, keep the limits, and no small typed span is parted. */
static void random_spans(void **state)
{
    (void)state;
    uint64_t seed = 7;
    tp_span spans[200];
    for (unsigned round = 0; round < 3000; round++) {
        size_t count = 1 + random_next(&seed) % 200;
        uint64_t at = 0;
        for (size_t i = 0; i < count; i++) {
            uint8_t cls =
                (uint8_t)(random_next(&seed) % 3 == 0 ? random_next(&seed) % TP_CLASS_COUNT
                                                      : spans[i ? i - 1 : 0].cls % TP_CLASS_COUNT);
            uint64_t most = (uint64_t)1 << random_next(&seed) % 25;
            uint64_t size = tp_class_element_size((tp_class)cls) * (1 + random_next(&seed) % most);
            spans[i] = (tp_span){.start = at, .length = size, .tensor = (uint32_t)i, .cls = cls};
            at += size;
        }
        tp_cutter cutter;
        tp_cut cut;
        uint64_t end = 0;
        size_t span = 0;
        tp_cutter_init(&cutter, spans, count);
        while (tp_cutter_next(&cutter, &cut)) {
            assert_int_equal(cut.start, end);
            assert_true(cut.size >= 1 && cut.size <= TP_FRAME_MAX_RAW);
            end += cut.size;
            while (spans[span].start + spans[span].length <= cut.start) span++;
            for (size_t i = span; cut.cls != TP_CLASS_BYTES && i < count && spans[i].start < end; i++) {
                bool gap = spans[i].cls == TP_CLASS_BYTES && spans[i].length <= 256 &&
                           spans[i].length % tp_class_element_size(cut.cls) == 0;
                assert_true(spans[i].cls == cut.cls || gap);
                bool whole = spans[i].start >= cut.start && spans[i].start + spans[i].length <= end;
                assert_true(whole || spans[i].length >= TP_CUT_OWN);
            }
        }
        assert_int_equal(end, at);
    }
}

int test_cutting(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_spans),          cmocka_unit_test(runs),
        cmocka_unit_test(small_runs_are_bytes), cmocka_unit_test(bytes_frames),
        cmocka_unit_test(random_spans),
    };
    return cmocka_run_group_tests_name("cutting", tests, NULL, NULL);
}
