/* Names of shards, the index of sharded safetensors, and what a GGUF file says of its place in a split. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "formats/formats.h"

static void shard_names(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        size_t prefix;
        uint32_t number, count;
    } good[] = {{"model-00001-of-00003.gguf", 5, 1, 3},
                {"a/b-c-00010-of-00010.gguf", 5, 10, 10},
                {"-99999-of-00000.gguf", 0, 99999, 0}};
    static const char *const bad[] = {"",
                                      ".gguf",
                                      "00001-of-00003.gguf",
                                      "model-0001-of-00003.gguf",
                                      "model-00001-of-0003.gguf",
                                      "model_00001-of-00003.gguf",
                                      "model-00001_of_00003.gguf",
                                      "model-0000x-of-00003.gguf",
                                      "model-00001-of-00003.gguf.tpress",
                                      "model-00001-of-00003.safetensors",
                                      "model-00001-of-00003"};
    size_t prefix;
    uint32_t number, count;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(tp_shard_name(good[i].path, strlen(good[i].path), ".gguf", &prefix, &number, &count));
        assert_int_equal(prefix, good[i].prefix);
        assert_int_equal(number, good[i].number);
        assert_int_equal(count, good[i].count);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(tp_shard_name(bad[i], strlen(bad[i]), ".gguf", &prefix, &number, &count));
}

static void weight_maps(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fault;
        size_t count;
        bool has_total;
        uint64_t total;
    } cases[] = {
        {"{\"weight_map\":{}}", NULL, 0, false, 0},
        {"{\"metadata\":{\"total_size\":12},\"weight_map\":{\"a\":\"x\",\"b\":\"y\"}}", NULL, 2, true, 12},
        {"{\"metadata\":{\"total_size\":1.2e10},\"weight_map\":{\"a\":\"x\"}} ", NULL, 1, true,
         12000000000},
        {"{\"metadata\":{\"total_size\":1.5},\"weight_map\":{\"a\":\"x\"}}", NULL, 1, false, 0},
        {"{\"metadata\":{\"total_size\":-1},\"weight_map\":{\"a\":\"x\"}}", NULL, 1, false, 0},
        {"{\"metadata\":{\"total_size\":1e30},\"weight_map\":{\"a\":\"x\"}}", NULL, 1, false, 0},
        {"{\"metadata\":{\"total_size\":\"12\"},\"weight_map\":{\"a\":\"x\"}}", NULL, 1, false, 0},
        {"{\"metadata\":[],\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", NULL, 2, false, 0},
        {"", "it is no JSON", 0, false, 0},
        {"{\"weight_map\":{", "it is no JSON", 0, false, 0},
        {"[]", "it has no weight_map", 0, false, 0},
        {"{}", "it has no weight_map", 0, false, 0},
        {"{\"Weight_Map\":{}}", "it has no weight_map", 0, false, 0},
        {"{\"weight_map\":[\"a\"]}", "it has no weight_map", 0, false, 0},
        {"{\"weight_map\":{\"a\":1}}", "its weight_map names something that is no file", 0, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_weight_map map;
        const char *fault;
        /* Of exactly this size, so that a byte read too far shows. */
        size_t size = strlen(cases[i].text);
        char *text = malloc(size ? size : 1);
        memcpy(text, cases[i].text, size);
        assert_int_equal(tp_weight_map_parse(text, size, &map, &fault, NULL), TP_OK);
        free(text);
        if (cases[i].fault)
            assert_string_equal(fault, cases[i].fault);
        else
            assert_null(fault);
        assert_int_equal(map.count, cases[i].count);
        assert_int_equal(map.has_total, cases[i].has_total);
        if (map.has_total) assert_int_equal(map.total, cases[i].total);
        if (map.count > 0) assert_string_equal(map.weights[0].tensor, "a");
        if (map.count > 0) assert_string_equal(map.weights[0].file, "x");
        tp_weight_map_free(&map);
    }
}

/* What would take gigabytes as a tree is not read. */
static void large_maps(void **state)
{
    (void)state;
    size_t size = (size_t)5 << 20;
    char *text = malloc(size);
    tp_weight_map map;
    const char *fault;
    memset(text, '[', size);
    assert_int_equal(tp_weight_map_parse(text, size, &map, &fault, NULL), TP_OK);
    assert_string_equal(fault, "it is too large to be read");
    tp_weight_map_free(&map);
    memset(text, ' ', size);
    assert_int_equal(tp_weight_map_parse(text, (size_t)TP_WEIGHT_MAP_MAX + 1, &map, &fault, NULL), TP_OK);
    assert_string_equal(fault, "it is too large to be read");
    free(text);
}

typedef struct gguf {
    uint8_t data[1024];
    size_t size;
    bool swapped;
} gguf;

static void put_number(gguf *g, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++)
        g->data[g->size++] = (uint8_t)(value >> 8 * (g->swapped ? size - 1 - i : i));
}

static void put_key(gguf *g, const char *name, unsigned type, uint64_t value)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    put_number(g, strlen(name), 8);
    memcpy(g->data + g->size, name, strlen(name));
    g->size += strlen(name);
    put_number(g, type, 4);
    if (type == 8) put_number(g, value, 8); /* an empty string */
    put_number(g, value, sizes[type]);
}

static gguf begin_gguf(bool swapped, unsigned keys)
{
    gguf g = {.swapped = swapped};
    memcpy(g.data, "GGUF", 4);
    g.size = 4;
    put_number(&g, 3, 4);
    put_number(&g, 0, 8);
    put_number(&g, keys, 8);
    return g;
}

static tp_split split_of(const gguf *g)
{
    tp_memory memory;
    tp_layout layout;
    tp_source source = tp_source_memory(&memory, g->data, g->size, "x.gguf");
    assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
    assert_int_equal(layout.format, TP_FORMAT_GGUF);
    tp_split split = layout.split;
    tp_layout_free(&layout);
    return split;
}

static void split_keys(void **state)
{
    (void)state;
    static const struct {
        unsigned type;
        uint64_t value;
        bool given;
    } cases[] = {{0, 200, true},     {1, 100, true},
                 {1, 0xff, false},   {2, 65535, true},
                 {3, 0xffff, false}, {4, UINT32_MAX, true},
                 {5, 7, true},       {5, 0x80000000, false},
                 {6, 0, false},      {7, 1, false},
                 {8, 0, false},      {10, UINT64_MAX, true},
                 {11, 5, true},      {11, (uint64_t)1 << 63, false},
                 {12, 0, false}};
    for (unsigned swapped = 0; swapped < 2; swapped++) {
        gguf g = begin_gguf(swapped, 4);
        put_key(&g, "split.no", 2, 1);
        put_key(&g, "split.count", 2, 3);
        put_key(&g, "split.tensors.count", 5, 500);
        put_key(&g, "split.other", 4, 9);
        tp_split split = split_of(&g);
        assert_true(split.has_number && split.has_count && split.has_tensors);
        assert_int_equal(split.number, 1);
        assert_int_equal(split.count, 3);
        assert_int_equal(split.tensors, 500);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            g = begin_gguf(swapped, 1);
            put_key(&g, "split.count", cases[i].type, cases[i].value);
            split = split_of(&g);
            assert_int_equal(split.has_count, cases[i].given);
            if (cases[i].given) assert_true(split.count == cases[i].value);
            assert_false(split.has_number || split.has_tensors);
        }
    }
}

int test_repository(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shard_names),
        cmocka_unit_test(weight_maps),
        cmocka_unit_test(large_maps),
        cmocka_unit_test(split_keys),
    };
    return cmocka_run_group_tests_name("repository", tests, NULL, NULL);
}
