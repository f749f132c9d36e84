#include "support.h"

#include <time.h>

#include <cJSON.h>

#include "formats/gguf_types.h"

enum { U8, I8, U16, I16, U32, I32, FLOAT32, BOOLEAN, STRING, ARRAY, U64, I64, FLOAT64 };
enum {
    T_F32 = 0,
    T_F16 = 1,
    T_Q4_0 = 2,
    T_Q8_0 = 8,
    T_Q8_1 = 9,
    T_I8 = 24,
    T_I32 = 26,
    T_I64 = 27,
    T_F64 = 28,
    T_BF16 = 30
};

#define DIMS(...)                                                                                          \
    (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

/* ------------------------------------------------------------------------------------- hand-built files */

typedef struct gguf {
    file f;
    size_t capacity;
    unsigned version;
    bool swapped;
} gguf;

static void put(gguf *g, const void *data, size_t size)
{
    if (g->capacity - g->f.size < size) {
        g->capacity = 2 * (g->f.size + size);
        g->f.data = realloc(g->f.data, g->capacity);
        assert_non_null(g->f.data);
    }
    memcpy(g->f.data + g->f.size, data, size);
    g->f.size += size;
}

static void put_number(gguf *g, uint64_t value, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++) bytes[g->swapped ? size - 1 - i : i] = (uint8_t)(value >> 8 * i);
    put(g, bytes, size);
}

static void put_u32(gguf *g, uint32_t value)
{
    put_number(g, value, 4);
}

static void put_u64(gguf *g, uint64_t value)
{
    put_number(g, value, 8);
}

static void put_length(gguf *g, uint64_t value)
{
    put_number(g, value, g->version == 1 ? 4 : 8);
}

static void put_string(gguf *g, const char *text)
{
    put_length(g, strlen(text));
    put(g, text, strlen(text));
}

static gguf start_as(unsigned version, bool swapped, uint64_t tensors, uint64_t keys)
{
    gguf g = {.version = version, .swapped = swapped};
    put(&g, "GGUF", 4);
    put_u32(&g, version);
    put_length(&g, tensors);
    put_length(&g, keys);
    return g;
}

static gguf start(uint64_t tensors, uint64_t keys)
{
    return start_as(3, false, tensors, keys);
}

/* The value is to follow. */
static void put_key(gguf *g, const char *name, uint32_t type)
{
    put_string(g, name);
    put_u32(g, type);
}

static void put_alignment(gguf *g, uint32_t value)
{
    put_key(g, "general.alignment", U32);
    put_u32(g, value);
}

static void put_tensor(gguf *g, const char *name, const uint64_t *dims, size_t ndim, uint32_t type,
                       uint64_t offset)
{
    put_string(g, name);
    put_u32(g, (uint32_t)ndim);
    for (size_t i = 0; i < ndim; i++) put_length(g, dims[i]);
    put_u32(g, type);
    put_u64(g, offset);
}

static void put_bytes(gguf *g, size_t size)
{
    for (size_t i = 0; i < size; i++) put(g, &(uint8_t){(uint8_t)(i * 37 + 1)}, 1);
}

/* Padding up to the alignment, and bytes behind it. */
static void put_data(gguf *g, size_t alignment, size_t size)
{
    while (g->f.size % alignment != 0) put(g, "", 1);
    put_bytes(g, size);
}

static tp_layout end(gguf *g)
{
    tp_layout layout = parse_file(&g->f, "folder/m.gguf");
    file_free(&g->f);
    return layout;
}

static void end_with_reason(gguf *g, const char *reason)
{
    assert_file_reason(&g->f, "m.gguf", reason);
    file_free(&g->f);
}

/* One tensor "a" at offset 0, whose data begin at 64 if it has one dimension, and at 96 if it has more. */
static tp_layout one(uint32_t type, const uint64_t *dims, size_t ndim, size_t stored)
{
    gguf g = start(1, 0);
    put_tensor(&g, "a", dims, ndim, type, 0);
    put_data(&g, 32, stored);
    return end(&g);
}

static void assert_one(tp_layout layout, const char *tensor, const char *spans, const char *opaque_reason)
{
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_GGUF);
    assert_int_equal(layout.tensor_count, 1);
    assert_string_equal(tensor_text(&layout, 0), tensor);
    assert_string_equal(spans_text(&layout), spans);
    assert_string_equal(layout.opaque_reason, opaque_reason);
    assert_int_equal(layout.opaque_tensors, opaque_reason[0] != 0);
    tp_layout_free(&layout);
}

/* A file without tensors, with these keys and nothing behind them. */
static void assert_keys_accepted(gguf *g)
{
    tp_layout layout = end(g);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_GGUF);
    assert_int_equal(layout.tensor_count, 0);
    assert_int_equal(layout.span_count, 1);
    tp_layout_free(&layout);
}

/* ------------------------------------------------------------------------------------------- well-formed
 */

static void put_every_key(gguf *g)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (uint32_t type = 0; type < 13; type++) {
        if (type == ARRAY) continue;
        put_key(g, "single", type);
        if (type == STRING)
            put_string(g, "text");
        else
            put_number(g, 0xFEDCBA9876543210, sizes[type]);
        put_key(g, "array", ARRAY);
        put_u32(g, type);
        put_length(g, 3);
        for (int i = 0; i < 3; i++) {
            if (type == STRING)
                put_string(g, i == 1 ? "" : "abc");
            else
                put_number(g, 2, sizes[type]);
        }
    }
    put_key(g, "arrays", ARRAY);
    put_u32(g, ARRAY);
    put_length(g, 2);
    put_u32(g, STRING);
    put_length(g, 1);
    put_string(g, "x");
    put_u32(g, ARRAY);
    put_length(g, 1);
    put_u32(g, U16);
    put_length(g, 0);
}
#define EVERY_KEY 25

static void test_versions_and_byte_orders(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 3; version++) {
        for (int swapped = 0; swapped < 2; swapped++) {
            gguf g = start_as(version, swapped != 0, 4, EVERY_KEY + 1);
            put_every_key(&g);
            put_alignment(&g, 64);
            put_tensor(&g, "f", DIMS(3, 2), T_F32, 0);
            put_tensor(&g, "h", DIMS(4), T_F16, 64);
            put_tensor(&g, "q", DIMS(32, 1, 2), T_Q8_0, 128);
            put_tensor(&g, "d", DIMS(2, 2, 1, 1), T_F64, 256);
            size_t header = g.f.size, data = (header + 63) / 64 * 64;
            put_data(&g, 64, 256 + 32);
            size_t size = g.f.size;
            tp_layout layout = end(&g);
            assert_string_equal(layout.reason, "");
            assert_int_equal(layout.format, TP_FORMAT_GGUF);
            assert_int_equal(layout.opaque_tensors, 0);
            assert_int_equal(layout.tensor_count, 4);
            assert_int_equal(layout.dtype_count, 4);
            char expected[1000];
            snprintf(expected, sizeof expected, "f F32 [3,2] %zu+24 %s 0", data, swapped ? "i32" : "f32");
            assert_string_equal(tensor_text(&layout, 0), expected);
            snprintf(expected, sizeof expected, "h F16 [4] %zu+8 %s 0", data + 64, swapped ? "i16" : "f16");
            assert_string_equal(tensor_text(&layout, 1), expected);
            snprintf(expected, sizeof expected, "q Q8_0 [32,1,2] %zu+68 bytes 0", data + 128);
            assert_string_equal(tensor_text(&layout, 2), expected);
            snprintf(expected, sizeof expected, "d F64 [2,2,1,1] %zu+32 %s 0", data + 256,
                     swapped ? "i64" : "f64");
            assert_string_equal(tensor_text(&layout, 3), expected);
            snprintf(expected, sizeof expected,
                     "0+%zu:bytes:- %zu+24:%s:0 %zu+40:bytes:- %zu+8:%s:1 %zu+56:bytes:- %zu+68:bytes:2 "
                     "%zu+60:bytes:- %zu+32:%s:3",
                     data, data, swapped ? "i32" : "f32", data + 24, data + 64, swapped ? "i16" : "f16",
                     data + 72, data + 128, data + 196, data + 256, swapped ? "i64" : "f64");
            assert_string_equal(spans_text(&layout), expected);
            assert_int_equal(size, data + 288);
            tp_layout_free(&layout);
        }
    }
}

static const struct {
    const char *name; /* NULL: removed */
    uint64_t elements, bytes;
    tp_class cls, swapped;
} types[] = {
    {"F32", 1, 4, TP_CLASS_F32, TP_CLASS_I32},
    {"F16", 1, 2, TP_CLASS_F16, TP_CLASS_I16},
    {"Q4_0", 32, 18, 0, 0},
    {"Q4_1", 32, 20, 0, 0},
    {NULL, 0, 0, 0, 0},
    {NULL, 0, 0, 0, 0},
    {"Q5_0", 32, 22, 0, 0},
    {"Q5_1", 32, 24, 0, 0},
    {"Q8_0", 32, 34, 0, 0},
    {"Q8_1", 32, 36, 0, 0},
    {"Q2_K", 256, 84, 0, 0},
    {"Q3_K", 256, 110, 0, 0},
    {"Q4_K", 256, 144, 0, 0},
    {"Q5_K", 256, 176, 0, 0},
    {"Q6_K", 256, 210, 0, 0},
    {"Q8_K", 256, 292, 0, 0},
    {"IQ2_XXS", 256, 66, 0, 0},
    {"IQ2_XS", 256, 74, 0, 0},
    {"IQ3_XXS", 256, 98, 0, 0},
    {"IQ1_S", 256, 50, 0, 0},
    {"IQ4_NL", 32, 18, 0, 0},
    {"IQ3_S", 256, 110, 0, 0},
    {"IQ2_S", 256, 82, 0, 0},
    {"IQ4_XS", 256, 136, 0, 0},
    {"I8", 1, 1, TP_CLASS_I8, TP_CLASS_I8},
    {"I16", 1, 2, TP_CLASS_I16, TP_CLASS_I16},
    {"I32", 1, 4, TP_CLASS_I32, TP_CLASS_I32},
    {"I64", 1, 8, TP_CLASS_I64, TP_CLASS_I64},
    {"F64", 1, 8, TP_CLASS_F64, TP_CLASS_I64},
    {"IQ1_M", 256, 56, 0, 0},
    {"BF16", 1, 2, TP_CLASS_BF16, TP_CLASS_I16},
    {NULL, 0, 0, 0, 0},
    {NULL, 0, 0, 0, 0},
    {NULL, 0, 0, 0, 0},
    {"TQ1_0", 256, 54, 0, 0},
    {"TQ2_0", 256, 66, 0, 0},
    {NULL, 0, 0, 0, 0},
    {NULL, 0, 0, 0, 0},
    {NULL, 0, 0, 0, 0},
    {"MXFP4", 32, 17, 0, 0},
    {"NVFP4", 64, 36, 0, 0},
    {"Q1_0", 128, 18, 0, 0},
    {"Q2_0", 64, 18, 0, 0},
};
#define TYPES (sizeof types / sizeof *types)

static void test_every_type(void **state)
{
    (void)state;
    assert_int_equal(TYPES, 43);
    for (uint32_t id = 0; id < TYPES; id++) {
        const tp_gguf_type *type = tp_gguf_type_find(id);
        assert_int_equal(type == NULL, types[id].name == NULL);
        if (type == NULL) continue;
        assert_string_equal(type->name, types[id].name);
        assert_int_equal(type->block_elements, types[id].elements);
        assert_int_equal(type->block_bytes, types[id].bytes);
        assert_int_equal(type->cls, types[id].cls);
        assert_int_equal(type->swapped_cls, types[id].swapped);

        size_t nbytes = 2 * 3 * types[id].bytes;
        for (int swapped = 0; swapped < 2; swapped++) {
            /* Exact, padded, and with one byte too many. */
            static const size_t paddings[] = {0, 31, 32};
            for (size_t i = 0; i < 3; i++) {
                gguf g = start_as(3, swapped != 0, 1, 0);
                put_tensor(&g, "a", DIMS(2 * types[id].elements, 3), id, 0);
                put_data(&g, 32, nbytes + paddings[i]);
                tp_layout layout = end(&g);
                bool opaque = paddings[i] > 31;
                char expected[200];
                tp_class cls = opaque ? TP_CLASS_BYTES : swapped ? types[id].swapped : types[id].cls;
                snprintf(expected, sizeof expected, "a %s [%" PRIu64 ",3] 96+%zu %s %d", types[id].name,
                         2 * types[id].elements, nbytes, tp_class_name(cls), opaque);
                assert_string_equal(tensor_text(&layout, 0), expected);
                tp_layout_free(&layout);
            }
        }
    }
    assert_null(tp_gguf_type_find(43));
    assert_null(tp_gguf_type_find(UINT32_MAX));
}

static void test_unknown_types(void **state)
{
    (void)state;
    static const uint32_t ids[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 97, 399, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char tensor[100], reason[100];
        snprintf(tensor, sizeof tensor, "a type-%" PRIu32 " [64] 64+57 bytes 1", ids[i]);
        snprintf(reason, sizeof reason, "tensor 'a': its type is unknown (type-%" PRIu32 ")", ids[i]);
        assert_one(one(ids[i], DIMS(64), 57), tensor, "0+64:bytes:- 64+57:bytes:0", reason);
    }
    /* Up to the next tensor, whatever lies between; the shape plays no part, unless it is empty. */
    gguf g = start(4, 0);
    put_tensor(&g, "u", DIMS(UINT64_MAX, UINT64_MAX), 36, 0);
    put_tensor(&g, "v", DIMS(2), T_F32, 100);
    put_tensor(&g, "w", DIMS(1), 97, 128);
    put_tensor(&g, "x", DIMS(0, 7), 98, 16);
    put_data(&g, 32, 200);
    tp_layout layout = end(&g);
    assert_int_equal(layout.opaque_tensors, 3);
    assert_string_equal(layout.opaque_reason, "tensor 'u': its type is unknown (type-36)");
    assert_string_equal(tensor_text(&layout, 0),
                        "u type-36 [18446744073709551615,18446744073709551615] 192+100 bytes 1");
    assert_string_equal(tensor_text(&layout, 1), "v F32 [2] 292+8 f32 0");
    assert_string_equal(tensor_text(&layout, 2), "w type-97 [1] 320+72 bytes 1");
    assert_string_equal(tensor_text(&layout, 3), "x type-98 [0,7] 208+0 bytes 1");
    assert_string_equal(spans_text(&layout),
                        "0+192:bytes:- 192+100:bytes:0 292+8:f32:1 300+20:bytes:- 320+72:bytes:2");
    tp_layout_free(&layout);

    /* Beyond the end there is nothing. */
    g = start(2, 0);
    put_tensor(&g, "u", DIMS(5), 36, 1000);
    put_tensor(&g, "v", DIMS(5), 36, 2000);
    put_data(&g, 32, 10);
    layout = end(&g);
    assert_string_equal(tensor_text(&layout, 0), "u type-36 [5] 1096+1000 bytes 3");
    assert_string_equal(tensor_text(&layout, 1), "v type-36 [5] 2096+0 bytes 3");
    assert_string_equal(spans_text(&layout), "0+106:bytes:-");
    tp_layout_free(&layout);
}

/* ---------------------------------------------------------------------------------------------- the start
 */

static void test_start(void **state)
{
    (void)state;
    gguf g = start(0, 0);
    assert_keys_accepted(&g);

    /* The magic decides, and where it is missing, the name. */
    g = start(0, 0);
    memcpy(g.f.data, "FUGG", 4);
    assert_file_reason(&g.f, "m", "");
    end_with_reason(&g, "it does not begin with 'GGUF'");
    file nothing = {0};
    assert_file_reason(&nothing, "m.gguf", "byte 0: the header ends too early");
    assert_file_reason(&nothing, "m", "");
    g = start(0, 0);
    tp_layout layout = parse_file(&g.f, "m.safetensors");
    assert_int_equal(layout.format, TP_FORMAT_GGUF);
    tp_layout_free(&layout);
    file_free(&g.f);

    static const struct {
        uint32_t version;
        bool swapped;
        const char *reason;
    } versions[] = {
        {0, false, "byte 4: version 0 is not known"},
        {4, false, "byte 4: version 4 is not known"},
        {65535, false, "byte 4: version 65535 is not known"},
        {UINT32_MAX, false, "byte 4: version 4294967295 is not known"},
        {4, true, "byte 4: version 4 is not known"},
        {65535, true, "byte 4: version 65535 is not known"},
        {0x10003, false, "byte 4: version 65539 is not known"},
        /* read the wrong way it is the same */
        {0x30001, true, "byte 4: version 16777984 is not known"},
    };
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        g = start_as(versions[i].version, versions[i].swapped, 0, 0);
        end_with_reason(&g, versions[i].reason);
    }

    g = start(UINT64_MAX, 0);
    end_with_reason(&g, "byte 8: it has 18446744073709551615 tensors, but only 0 bytes follow");
    g = start(0, UINT64_MAX);
    end_with_reason(&g, "byte 16: it has 18446744073709551615 keys, but only 0 bytes follow");
    g = start_as(1, true, UINT32_MAX, 0);
    end_with_reason(&g, "byte 8: it has 4294967295 tensors, but only 0 bytes follow");
    g = start_as(1, false, 0, UINT32_MAX);
    end_with_reason(&g, "byte 12: it has 4294967295 keys, but only 0 bytes follow");

    /* The least that a tensor and a key can take, and a byte less. */
    for (unsigned version = 1; version <= 2; version++) {
        size_t tensor = version == 1 ? 20 : 24, key = version == 1 ? 9 : 13;
        for (size_t less = 0; less < 2; less++) {
            g = start_as(version, false, 1, 0);
            put_tensor(&g, "", NULL, 0, T_I8, 0);
            g.f.size -= less;
            char reason[100];
            snprintf(reason, sizeof reason, "byte 8: it has 1 tensors, but only %zu bytes follow",
                     tensor - 1);
            if (less != 0) {
                end_with_reason(&g, reason);
            } else {
                layout = end(&g);
                assert_int_equal(layout.tensor_count, 1);
                tp_layout_free(&layout);
            }
            g = start_as(version, false, 0, 1);
            put_key(&g, "", U8);
            put(&g, "x", 1 - less);
            snprintf(reason, sizeof reason, "byte %d: it has 1 keys, but only %zu bytes follow",
                     version == 1 ? 12 : 16, key - 1);
            if (less != 0)
                end_with_reason(&g, reason);
            else
                assert_keys_accepted(&g);
        }
    }
}

/* ----------------------------------------------------------------------------------------------- the keys
 */

static void test_keys(void **state)
{
    (void)state;
    gguf g = start(0, EVERY_KEY);
    put_every_key(&g);
    assert_keys_accepted(&g);

    g = start(0, 1);
    put_u64(&g, UINT64_MAX);
    put_bytes(&g, 20);
    end_with_reason(&g, "byte 24: key 0: its name has 18446744073709551615 bytes, but only 20 follow");
    g = start(0, 2);
    put_key(&g, "a", U8);
    put(&g, "x", 1);
    put_u64(&g, 6);
    put_bytes(&g, 5);
    end_with_reason(&g, "byte 38: key 1: its name has 6 bytes, but only 5 follow");
    /* The specification allows 65535 bytes. */
    g = start(0, 1);
    char *name = malloc(1000001);
    memset(name, 'k', 1000000);
    name[1000000] = 0;
    put_key(&g, name, U64);
    put_bytes(&g, 8);
    assert_keys_accepted(&g);
    g = start(0, 1);
    put_key(&g, name, 13);
    put_bytes(&g, 8);
    char reason[300];
    snprintf(reason, sizeof reason, "byte 1000032: key '%.128s...': unknown type of value 13", name);
    end_with_reason(&g, reason);
    free(name);

    /* ggml refuses these; nothing in them says where a tensor lies. */
    g = start(0, 1);
    put_key(&g, "", U8);
    put(&g, "x", 1);
    assert_keys_accepted(&g);
    g = start(0, 2);
    for (int i = 0; i < 2; i++) {
        put_key(&g, "same", U32);
        put_u32(&g, 5);
    }
    assert_keys_accepted(&g);
    g = start(0, 1);
    put_key(&g, "\xff\n", BOOLEAN);
    put(&g, "\7", 1);
    assert_keys_accepted(&g);

    static const uint32_t bad[] = {13, 14, 255, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        g = start(0, 1);
        put_key(&g, "a\033\xff", bad[i]);
        put_bytes(&g, 8);
        snprintf(reason, sizeof reason, "byte 35: key 'a\\x1B\\xFF': unknown type of value %" PRIu32,
                 bad[i]);
        end_with_reason(&g, reason);
        g = start(0, 1);
        put_key(&g, "a", ARRAY);
        put_u32(&g, bad[i]);
        put_u64(&g, 0);
        snprintf(reason, sizeof reason, "byte 37: key 'a': unknown type of value %" PRIu32, bad[i]);
        end_with_reason(&g, reason);
    }

    /* Values of each type, the last byte missing. */
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (uint32_t type = 0; type < 13; type++) {
        if (sizes[type] == 0) continue;
        g = start(0, 1);
        put_key(&g, "a", type);
        put_bytes(&g, sizes[type] - 1);
        snprintf(reason, sizeof reason, "byte %zu: key 'a': the header ends too early", 36 + sizes[type]);
        end_with_reason(&g, reason);
        g = start(0, 1);
        put_key(&g, "a", ARRAY);
        put_u32(&g, type);
        put_u64(&g, 5);
        put_bytes(&g, 5 * sizes[type] - 1);
        snprintf(reason, sizeof reason,
                 "byte 41: key 'a': an array has 5 elements, but only %zu bytes follow",
                 5 * sizes[type] - 1);
        end_with_reason(&g, reason);
    }
}

static void test_strings_and_arrays(void **state)
{
    (void)state;
    gguf g = start(0, 1);
    put_key(&g, "a", STRING);
    put_u64(&g, UINT64_MAX);
    put_bytes(&g, 3);
    end_with_reason(&g, "byte 37: key 'a': a string has 18446744073709551615 bytes, but only 3 follow");
    g = start(0, 1);
    put_key(&g, "a", STRING);
    put_bytes(&g, 7);
    end_with_reason(&g, "byte 44: key 'a': the header ends too early");

    for (uint32_t type = 0; type < 13; type++) {
        g = start(0, 1);
        put_key(&g, "a", ARRAY);
        put_u32(&g, type);
        put_u64(&g, UINT64_MAX);
        put_bytes(&g, 30);
        end_with_reason(
            &g, "byte 41: key 'a': an array has 18446744073709551615 elements, but only 30 bytes follow");
    }
    /* As many elements as could just have a length each. */
    g = start(0, 1);
    put_key(&g, "a", ARRAY);
    put_u32(&g, STRING);
    put_u64(&g, 3);
    for (int i = 0; i < 3; i++) put_u64(&g, 0);
    assert_keys_accepted(&g);
    g = start(0, 1);
    put_key(&g, "a", ARRAY);
    put_u32(&g, STRING);
    put_u64(&g, 3);
    put_u64(&g, 1);
    put_u64(&g, 0);
    put_u64(&g, 0);
    end_with_reason(&g, "byte 73: key 'a': the header ends too early");
    g = start(0, 1);
    put_key(&g, "a", ARRAY);
    put_u32(&g, STRING);
    put_u64(&g, 4);
    put_bytes(&g, 31);
    end_with_reason(&g, "byte 41: key 'a': an array has 4 elements, but only 31 bytes follow");
    g = start(0, 1);
    put_key(&g, "a", ARRAY);
    put_u32(&g, ARRAY);
    put_u64(&g, 2);
    put_bytes(&g, 23);
    end_with_reason(&g, "byte 41: key 'a': an array has 2 elements, but only 23 bytes follow");

    for (unsigned depth = 62; depth <= 66; depth++) {
        g = start(0, 1);
        put_key(&g, "a", ARRAY);
        for (unsigned i = 1; i < depth; i++) {
            put_u32(&g, ARRAY);
            put_u64(&g, 1);
        }
        put_u32(&g, STRING);
        put_u64(&g, 1);
        put_string(&g, "deep");
        if (depth <= 64)
            assert_keys_accepted(&g);
        else
            end_with_reason(&g, "byte 805: key 'a': more than 64 arrays in each other");
    }
}

static void test_alignment(void **state)
{
    (void)state;
    static const struct {
        uint32_t value;
        bool good;
    } values[] = {
        {0, false},         {1, true},     {2, true},    {3, false},         {4, true},
        {6, false},         {8, true},     {12, false},  {13, false},        {16, true},
        {24, true},         {31, false},   {32, true},   {40, true},         {64, true},
        {96, true},         {4095, false}, {4096, true}, {0x80000000, true}, {UINT32_MAX, false},
        {0xFFFFFFF8, true},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        gguf g = start(1, 1);
        put_alignment(&g, values[i].value);
        put_tensor(&g, "a", DIMS(5), T_I8, 0);
        if (!values[i].good) {
            char reason[200];
            snprintf(reason, sizeof reason,
                     "byte 53: key 'general.alignment': %" PRIu32
                     " is neither a power of two nor a multiple of 8",
                     values[i].value);
            end_with_reason(&g, reason);
            continue;
        }
        assert_int_equal(g.f.size, 90);
        uint64_t begin = (90 + (uint64_t)values[i].value - 1) / values[i].value * values[i].value;
        if (begin < 10000) put_data(&g, values[i].value, 5);
        char expected[200];
        snprintf(expected, sizeof expected, "a I8 [5] %" PRIu64 "+5 i8 %d", begin,
                 begin < 10000 ? 0 : TP_TENSOR_TRUNCATED);
        tp_layout layout = end(&g);
        assert_string_equal(layout.reason, "");
        assert_string_equal(tensor_text(&layout, 0), expected);
        tp_layout_free(&layout);
    }

    /* Padding is less than the alignment. */
    static const uint32_t alignments[] = {1, 8, 32, 64};
    for (size_t i = 0; i < 4; i++) {
        for (size_t over = 0; over < 2; over++) {
            gguf g = start(2, 1);
            put_alignment(&g, alignments[i]);
            put_tensor(&g, "a", DIMS(5), T_F16, 0);
            put_tensor(&g, "b", DIMS(5), T_F16, 10 + alignments[i] - 1 + over);
            put_data(&g, alignments[i], 10 + alignments[i] - 1 + over + 10);
            tp_layout layout = end(&g);
            assert_int_equal(layout.tensors[0].flags, over != 0 ? TP_TENSOR_OPAQUE : 0);
            assert_int_equal(layout.tensors[0].nbytes, 10);
            assert_int_equal(layout.tensors[1].flags, 0);
            assert_int_equal(layout.tensors[1].cls, TP_CLASS_F16);
            tp_layout_free(&layout);
        }
    }

    for (uint32_t type = 0; type < 14; type++) {
        if (type == U32) continue;
        gguf g = start(0, 1);
        put_key(&g, "general.alignment", type);
        put_u64(&g, 32);
        char reason[200];
        snprintf(reason, sizeof reason,
                 "byte 49: key 'general.alignment': its type is %" PRIu32 ", not 4 (u32)", type);
        end_with_reason(&g, reason);
    }
    gguf g = start(0, 1);
    put_key(&g, "general.alignment", U32);
    put_bytes(&g, 3);
    end_with_reason(&g, "byte 56: key 'general.alignment': the header ends too early");
    g = start(0, 2);
    put_alignment(&g, 32);
    put_alignment(&g, 32);
    assert_keys_accepted(&g);
    g = start(0, 2);
    put_alignment(&g, 32);
    put_alignment(&g, 64);
    end_with_reason(&g, "byte 86: key 'general.alignment': it is there twice, with 32 and 64");
    /* Names are compared as they are. */
    g = start(0, 3);
    put_key(&g, "General.Alignment", U8);
    put(&g, "\15", 1);
    put_key(&g, "general.alignmen", U8);
    put(&g, "\15", 1);
    put_key(&g, "general.alignment.", U8);
    put(&g, "\15", 1);
    assert_keys_accepted(&g);
}

/* -------------------------------------------------------------------------------------------- the tensors
 */

static void test_names(void **state)
{
    (void)state;
    gguf g = start(1, 0);
    put_u64(&g, UINT64_MAX);
    put_bytes(&g, 30);
    end_with_reason(&g, "byte 24: tensor 0: its name has 18446744073709551615 bytes, but only 30 follow");

    static const size_t sizes[] = {0, 1, 63, 64, 65, 65536, 262144, 262145, 3000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *name = malloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++) name[k] = (char)('a' + (k * 7 + k / 1000) % 26);
        name[sizes[i]] = 0;
        g = start(1, 0);
        put_tensor(&g, name, DIMS(4), T_I8, 0);
        put_data(&g, 32, 4);
        tp_layout layout = end(&g);
        assert_int_equal(layout.tensor_count, 1);
        assert_int_equal(layout.tensors[0].name_size, sizes[i]);
        if (sizes[i] != 0) assert_memory_equal(layout.strings + layout.tensors[0].name, name, sizes[i]);
        assert_int_equal(layout.tensors[0].flags, 0);
        assert_int_equal(layout.tensors[0].cls, TP_CLASS_I8);
        tp_layout_free(&layout);
        free(name);
    }

    /* Any bytes; NUL and invalid UTF-8 too. */
    g = start(1, 0);
    put_u64(&g, 5);
    put(&g, "a\0\n\xff\"", 5);
    put_u32(&g, 1);
    put_u64(&g, 4);
    put_u32(&g, 77);
    put_u64(&g, 0);
    put_data(&g, 32, 4);
    tp_layout layout = end(&g);
    assert_int_equal(layout.tensors[0].name_size, 5);
    assert_memory_equal(layout.strings + layout.tensors[0].name, "a\0\n\xff\"", 5);
    assert_string_equal(layout.opaque_reason, "tensor 'a\\x00\\x0A\\xFF\"': its type is unknown (type-77)");
    tp_layout_free(&layout);

    /* Twice the same name: both are listed. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(32), T_I8, 0);
    put_tensor(&g, "a", DIMS(16), T_F16, 32);
    put_data(&g, 32, 64);
    layout = end(&g);
    assert_int_equal(layout.tensor_count, 2);
    assert_string_equal(tensor_text(&layout, 0), "a I8 [32] 96+32 i8 0");
    assert_string_equal(tensor_text(&layout, 1), "a F16 [16] 128+32 f16 0");
    tp_layout_free(&layout);
}

static void test_dimensions(void **state)
{
    (void)state;
    for (uint32_t ndim = 0; ndim <= 70; ndim++) {
        uint64_t dims[70];
        for (uint32_t i = 0; i < ndim; i++) dims[i] = 1;
        if (ndim > 1) dims[ndim - 1] = 3;
        gguf g = start(1, 0);
        put_tensor(&g, "a", dims, ndim, T_F32, 0);
        size_t header = g.f.size, data = (header + 31) / 32 * 32;
        put_data(&g, 32, ndim > 1 ? 12 : 4);
        if (ndim > 64) {
            char reason[100];
            snprintf(reason, sizeof reason,
                     "byte 33: tensor 'a': it has %" PRIu32 " dimensions, more than 64", ndim);
            end_with_reason(&g, reason);
            continue;
        }
        tp_layout layout = end(&g);
        assert_int_equal(layout.tensor_count, 1);
        assert_int_equal(layout.tensors[0].ndim, ndim);
        assert_int_equal(layout.tensors[0].nbytes, ndim > 1 ? 12 : 4);
        assert_int_equal(layout.tensors[0].offset, data);
        assert_int_equal(layout.tensors[0].cls, TP_CLASS_F32);
        assert_int_equal(layout.tensors[0].flags, 0);
        if (ndim != 0) assert_memory_equal(layout.dims + layout.tensors[0].dims, dims, ndim * sizeof *dims);
        tp_layout_free(&layout);
    }
    gguf g = start(1, 0);
    put_string(&g, "a");
    put_u32(&g, UINT32_MAX);
    put_bytes(&g, 30);
    end_with_reason(&g, "byte 33: tensor 'a': it has 4294967295 dimensions, more than 64");
    /* One element is no block. */
    assert_one(one(T_Q4_0, NULL, 0, 18), "a Q4_0 [] 64+18 bytes 1", "0+64:bytes:- 64+18:bytes:0",
               "tensor 'a': its rows are not whole blocks of Q4_0");
}

static void test_empty_tensors(void **state)
{
    (void)state;
    assert_one(one(T_F32, DIMS(0), 0), "a F32 [0] 64+0 f32 0", "0+64:bytes:-", "");
    assert_one(one(T_F32, DIMS(0), 100), "a F32 [0] 64+0 f32 0", "0+164:bytes:-", "");
    assert_one(one(T_F32, DIMS(0, UINT64_MAX, 7), 0), "a F32 [0,18446744073709551615,7] 96+0 f32 0",
               "0+96:bytes:-", "");
    assert_one(one(T_Q8_0, DIMS(33, 0), 0), "a Q8_0 [33,0] 96+0 bytes 0", "0+96:bytes:-", "");
    assert_one(one(999, DIMS(33, 0), 0), "a type-999 [33,0] 96+0 bytes 1", "0+96:bytes:-",
               "tensor 'a': its type is unknown (type-999)");

    /* Inside, at the start and at the end of others, which they do not touch. */
    gguf g = start(6, 0);
    put_tensor(&g, "a", DIMS(16), T_F32, 0);
    put_tensor(&g, "b", DIMS(0), T_F32, 0);
    put_tensor(&g, "c", DIMS(0), T_F16, 32);
    put_tensor(&g, "d", DIMS(0), T_I8, 64);
    put_tensor(&g, "e", DIMS(1), T_F64, 64);
    put_tensor(&g, "f", DIMS(5, 0), T_F64, 72);
    put_data(&g, 32, 72);
    tp_layout layout = end(&g);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_string_equal(spans_text(&layout), "0+256:bytes:- 256+64:f32:0 320+8:f64:4");
    assert_string_equal(tensor_text(&layout, 2), "c F16 [0] 288+0 f16 0");
    assert_string_equal(tensor_text(&layout, 5), "f F64 [5,0] 328+0 f64 0");
    tp_layout_free(&layout);
}

static void test_shapes_too_large(void **state)
{
    (void)state;
    static const char too_many[] = "tensor 'a': its shape has too many elements";
    const uint64_t max = UINT64_MAX, big = (uint64_t)4 * INT32_MAX, half = (uint64_t)1 << 63;
    /* A negative dimension, as ggml reads it; the product beyond 2^64; the bytes beyond 2^64. */
    assert_one(one(T_F32, DIMS(max), 40), "a F32 [18446744073709551615] 64+40 bytes 1",
               "0+64:bytes:- 64+40:bytes:0", too_many);
    assert_one(one(T_I8, DIMS(max), 40), "a I8 [18446744073709551615] 64+40 bytes 1",
               "0+64:bytes:- 64+40:bytes:0", too_many);
    assert_one(one(T_I8, DIMS(half), 40), "a I8 [9223372036854775808] 64+40 bytes 1",
               "0+64:bytes:- 64+40:bytes:0", too_many);
    assert_one(one(T_I8, DIMS(half - 1), 40), "a I8 [9223372036854775807] 64+9223372036854775807 i8 2",
               "0+64:bytes:- 64+40:i8:0", "");
    assert_one(one(T_F32, DIMS(big, big), 40), "a F32 [8589934588,8589934588] 96+40 bytes 1",
               "0+96:bytes:- 96+40:bytes:0", too_many);
    assert_one(one(T_I64, DIMS(half / 4, 1), 40), "a I64 [2305843009213693952,1] 96+40 bytes 1",
               "0+96:bytes:- 96+40:bytes:0", too_many);
    assert_one(one(T_I64, DIMS(half / 4 - 1, 1), 44),
               "a I64 [2305843009213693951,1] 96+18446744073709551608 i64 2",
               "0+96:bytes:- 96+40:i64:0 136+4:bytes:0", "");
    assert_one(one(T_Q4_0, DIMS(half / 2, 2), 18), "a Q4_0 [4611686018427387904,2] 96+18 bytes 1",
               "0+96:bytes:- 96+18:bytes:0", too_many);
    assert_one(one(T_Q8_1, DIMS(half - 32), 18),
               "a Q8_1 [9223372036854775776] 64+10376293541461622748 bytes 2", "0+64:bytes:- 64+18:bytes:0",
               "");
}

static void test_broken_rows(void **state)
{
    (void)state;
    assert_one(one(T_Q4_0, DIMS(33), 36), "a Q4_0 [33] 64+36 bytes 1", "0+64:bytes:- 64+36:bytes:0",
               "tensor 'a': its rows are not whole blocks of Q4_0");
    /* As many elements as two blocks, but the rows are not. */
    assert_one(one(T_Q8_0, DIMS(16, 4), 68), "a Q8_0 [16,4] 96+68 bytes 1", "0+96:bytes:- 96+68:bytes:0",
               "tensor 'a': its rows are not whole blocks of Q8_0");
    assert_one(one(T_Q8_0, DIMS(64, 1), 68), "a Q8_0 [64,1] 96+68 bytes 0", "0+96:bytes:- 96+68:bytes:0",
               "");
}

/* ----------------------------------------------------------------------------------------------- the data
 */

static void test_room(void **state)
{
    (void)state;
    /* Exact, with the padding, without it, one byte too many. */
    assert_one(one(T_F16, DIMS(5), 10), "a F16 [5] 64+10 f16 0", "0+64:bytes:- 64+10:f16:0", "");
    assert_one(one(T_F16, DIMS(5), 32), "a F16 [5] 64+10 f16 0", "0+64:bytes:- 64+10:f16:0 74+22:bytes:-",
               "");
    assert_one(one(T_F16, DIMS(5), 41), "a F16 [5] 64+10 f16 0", "0+64:bytes:- 64+10:f16:0 74+31:bytes:-",
               "");
    assert_one(one(T_F16, DIMS(5), 42), "a F16 [5] 64+10 bytes 1",
               "0+64:bytes:- 64+10:bytes:0 74+32:bytes:-",
               "tensor 'a': 42 bytes are there for it, but F16 and its shape need 10");
    /* A byte short: the file ends in it. */
    assert_one(one(T_F16, DIMS(5), 9), "a F16 [5] 64+10 f16 2", "0+64:bytes:- 64+8:f16:0 72+1:bytes:0", "");
    assert_one(one(T_Q8_0, DIMS(32), 33), "a Q8_0 [32] 64+34 bytes 2", "0+64:bytes:- 64+33:bytes:0", "");
    assert_one(one(T_F16, DIMS(5), 0), "a F16 [5] 64+10 f16 2", "0+64:bytes:-", "");
    /* Without the padding before the data. */
    gguf g = start(1, 0);
    put_tensor(&g, "a", DIMS(5), T_F16, 0);
    assert_int_equal(g.f.size, 57);
    assert_one(end(&g), "a F16 [5] 64+10 f16 2", "0+57:bytes:-", "");
    g = start(1, 0);
    put_tensor(&g, "a", DIMS(5), 36, 0);
    assert_one(end(&g), "a type-36 [5] 64+0 bytes 3", "0+57:bytes:-",
               "tensor 'a': its type is unknown (type-36)");
    /* Offsets of no alignment, and such that reach beyond 2^64. */
    g = start(1, 0);
    put_tensor(&g, "a", DIMS(5), T_F16, 13);
    put_data(&g, 32, 23);
    assert_one(end(&g), "a F16 [5] 77+10 f16 0", "0+77:bytes:- 77+10:f16:0", "");
    g = start(1, 0);
    put_tensor(&g, "a", DIMS(5), T_F16, UINT64_MAX);
    put_data(&g, 32, 23);
    assert_one(end(&g), "a F16 [5] 18446744073709551615+10 f16 2", "0+87:bytes:-", "");
    /* Two of 2^63 - 64 bytes. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(0x7FFFFFFFFFFFFFC0), T_I8, 0);
    put_tensor(&g, "b", DIMS(0x7FFFFFFFFFFFFFC0), T_I8, 0x7FFFFFFFFFFFFFC0);
    put_data(&g, 32, 5);
    tp_layout layout = end(&g);
    assert_string_equal(layout.reason, "");
    assert_string_equal(tensor_text(&layout, 0), "a I8 [9223372036854775744] 96+9223372036854775744 i8 2");
    assert_string_equal(tensor_text(&layout, 1),
                        "b I8 [9223372036854775744] 9223372036854775840+9223372036854775744 i8 2");
    assert_string_equal(spans_text(&layout), "0+96:bytes:- 96+5:i8:0");
    tp_layout_free(&layout);
}

static void test_types_that_do_not_fit(void **state)
{
    (void)state;
    /* Blocks of 40 bytes, as some programs have them; the second of the type's own size. */
    gguf g = start(2, 0);
    put_tensor(&g, "a", DIMS(256), T_Q8_1, 0);
    put_tensor(&g, "b", DIMS(256), T_Q8_1, 320);
    put_data(&g, 32, 320 + 288);
    tp_layout layout = end(&g);
    assert_string_equal(tensor_text(&layout, 0), "a Q8_1 [256] 96+288 bytes 1");
    assert_string_equal(tensor_text(&layout, 1), "b Q8_1 [256] 416+288 bytes 0");
    assert_string_equal(layout.opaque_reason,
                        "tensor 'a': 320 bytes are there for it, but Q8_1 and its shape need 288");
    assert_string_equal(spans_text(&layout), "0+96:bytes:- 96+288:bytes:0 384+32:bytes:- 416+288:bytes:1");
    tp_layout_free(&layout);

    /* A quantised type with too little room before the next tensor is another type: its bytes end there. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(256), T_Q8_0, 0);
    put_tensor(&g, "b", DIMS(8), T_F32, 160);
    put_data(&g, 32, 192);
    layout = end(&g);
    assert_string_equal(tensor_text(&layout, 0), "a Q8_0 [256] 96+160 bytes 1");
    assert_string_equal(tensor_text(&layout, 1), "b F32 [8] 256+32 f32 0");
    assert_string_equal(layout.opaque_reason,
                        "tensor 'a': 160 bytes are there for it, but Q8_0 and its shape need 272");
    assert_string_equal(spans_text(&layout), "0+96:bytes:- 96+160:bytes:0 256+32:f32:1");
    tp_layout_free(&layout);

    /* The first reason is that of the first tensor in the header, wherever it lies. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(2), T_F32, 128);
    put_tensor(&g, "b", DIMS(2), 36, 0);
    put_data(&g, 32, 200);
    layout = end(&g);
    assert_int_equal(layout.opaque_tensors, 2);
    assert_string_equal(layout.opaque_reason,
                        "tensor 'a': 72 bytes are there for it, but F32 and its shape need 8");
    tp_layout_free(&layout);
}

static void test_orders_and_gaps(void **state)
{
    (void)state;
    /* In any order. */
    gguf g = start(3, 0);
    put_tensor(&g, "a", DIMS(8), T_F32, 64);
    put_tensor(&g, "b", DIMS(8), T_BF16, 0);
    put_tensor(&g, "c", DIMS(8), T_I64, 96);
    put_data(&g, 32, 160);
    tp_layout layout = end(&g);
    assert_string_equal(layout.opaque_reason,
                        "tensor 'b': 64 bytes are there for it, but BF16 and its shape need 16");
    assert_string_equal(tensor_text(&layout, 0), "a F32 [8] 192+32 f32 0");
    assert_string_equal(tensor_text(&layout, 1), "b BF16 [8] 128+16 bytes 1");
    assert_string_equal(tensor_text(&layout, 2), "c I64 [8] 224+64 i64 0");
    assert_string_equal(spans_text(&layout),
                        "0+128:bytes:- 128+16:bytes:1 144+48:bytes:- 192+32:f32:0 224+64:i64:2");
    tp_layout_free(&layout);

    /* A gap before the first leaves all typed. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(8), T_F32, 320);
    put_tensor(&g, "b", DIMS(8), T_F32, 352);
    put_data(&g, 32, 384);
    layout = end(&g);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_string_equal(spans_text(&layout), "0+416:bytes:- 416+32:f32:0 448+32:f32:1");
    tp_layout_free(&layout);

    /* Packed without padding, where 32 is the alignment. */
    g = start(3, 0);
    put_tensor(&g, "a", DIMS(3), T_F32, 0);
    put_tensor(&g, "b", DIMS(3), T_I8, 12);
    put_tensor(&g, "c", DIMS(3), T_F16, 15);
    put_data(&g, 32, 21);
    layout = end(&g);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_string_equal(spans_text(&layout), "0+128:bytes:- 128+12:f32:0 140+3:i8:1 143+6:f16:2");
    tp_layout_free(&layout);
}

static void test_overlaps(void **state)
{
    (void)state;
    gguf g = start(2, 0);
    put_tensor(&g, "a", DIMS(8), T_F32, 0);
    put_tensor(&g, "b", DIMS(8), T_F32, 16);
    put_data(&g, 32, 48);
    end_with_reason(&g, "tensor 'b' overlaps 'a'");
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(8), T_F32, 28);
    put_tensor(&g, "b", DIMS(8), T_F32, 0);
    put_data(&g, 32, 60);
    end_with_reason(&g, "tensor 'a' overlaps 'b'");
    /* Of the same start, but not the same size. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(32), T_Q8_0, 0);
    put_tensor(&g, "b", DIMS(32), T_Q4_0, 0);
    put_data(&g, 32, 34);
    end_with_reason(&g, "tensor 'a' overlaps 'b'");
    /* Beyond the file's end as well. */
    g = start(2, 0);
    put_tensor(&g, "a", DIMS(8), T_F32, 4096);
    put_tensor(&g, "b", DIMS(8), T_F32, 4097);
    put_data(&g, 32, 10);
    end_with_reason(&g, "tensor 'b' overlaps 'a'");

    /* The same range is one span, of the first one's class. */
    g = start(4, 0);
    put_tensor(&g, "a", DIMS(8), T_F32, 32);
    put_tensor(&g, "b", DIMS(4, 2), T_F32, 32);
    put_tensor(&g, "c", DIMS(16), T_BF16, 32);
    put_tensor(&g, "d", DIMS(8), T_F32, 0);
    put_data(&g, 32, 64);
    tp_layout layout = end(&g);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.opaque_tensors, 0);
    assert_string_equal(tensor_text(&layout, 1), "b F32 [4,2] 224+32 f32 0");
    assert_string_equal(tensor_text(&layout, 2), "c BF16 [16] 224+32 f32 0");
    assert_string_equal(spans_text(&layout), "0+192:bytes:- 192+32:f32:3 224+32:f32:0");
    tp_layout_free(&layout);
    g = start(3, 0);
    put_tensor(&g, "a", DIMS(8), 36, 0);
    put_tensor(&g, "b", DIMS(9), 36, 0);
    put_tensor(&g, "c", DIMS(8), T_F32, 64);
    put_data(&g, 32, 96);
    layout = end(&g);
    assert_int_equal(layout.opaque_tensors, 2);
    assert_string_equal(spans_text(&layout), "0+128:bytes:- 128+64:bytes:0 192+32:f32:2");
    tp_layout_free(&layout);
}

/* A file of everything, cut at every length: what the header announces stays, once it is whole. */
static void test_truncation(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        gguf g = start_as(kind == 0 ? 1 : 3, kind == 2, 4, EVERY_KEY + 1);
        put_every_key(&g);
        put_alignment(&g, 16);
        put_tensor(&g, "a", DIMS(5), T_F32, 0);
        put_tensor(&g, "b", DIMS(32), T_Q4_0, 32);
        put_tensor(&g, "c", DIMS(3), 36, 64);
        put_tensor(&g, "d", DIMS(3), T_F64, 80);
        size_t header = g.f.size, data = (header + 15) / 16 * 16;
        put_data(&g, 16, 104 + 8);
        size_t whole = g.f.size;
        for (size_t size = 0; size <= whole; size++) {
            g.f.size = size;
            tp_layout layout = parse_file(&g.f, "m.gguf");
            assert_int_equal(layout.format, size < header ? TP_FORMAT_BYTES : TP_FORMAT_GGUF);
            assert_int_equal(layout.reason[0] != 0, size < header);
            assert_int_equal(layout.tensor_count, size < header ? 0 : 4);
            if (size >= header) {
                static const size_t ends[] = {20, 32 + 18, 80, 104};
                for (size_t i = 0; i < 4; i++) {
                    assert_int_equal((layout.tensors[i].flags & TP_TENSOR_TRUNCATED) != 0,
                                     size < data + ends[i]);
                    assert_int_equal((layout.tensors[i].flags & TP_TENSOR_OPAQUE) != 0, i == 2);
                    assert_int_equal(layout.tensors[i].nbytes, i == 0   ? 20
                                                               : i == 1 ? 18
                                                               : i == 2 ? 16
                                                                        : 24);
                }
            }
            tp_layout_free(&layout);
        }
        g.f.size = whole;
        file_free(&g.f);
    }
}

/* -------------------------------------------------------------------------------------------------- limits
 */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A source of a file that is mostly a hole. */
typedef struct sparse {
    gguf head;
    uint64_t read; /* bytes in all */
} sparse;

static tp_status sparse_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    sparse *s = context;
    (void)error;
    memset(dst, 0, size);
    s->read += size;
    if (offset < s->head.f.size) {
        size_t have = s->head.f.size - (size_t)offset;
        memcpy(dst, s->head.f.data + offset, have < size ? have : size);
    }
    return TP_OK;
}

static tp_layout parse_sparse(sparse *s, uint64_t size)
{
    tp_source source = {.read = sparse_read, .context = s, .size = size, .name = "m.gguf"};
    tp_layout layout;
    s->read = 0;
    assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
    assert_null(tp_layout_check(&layout, size));
    file_free(&s->head.f);
    return layout;
}

static void test_huge_files(void **state)
{
    (void)state;
    const uint64_t size = (uint64_t)1 << 50;
    /* 2^46 empty strings, then as many empty keys: neither memory nor time follow the claim. */
    double begin = seconds();
    sparse s = {.head = start(0, 1)};
    put_key(&s.head, "a", ARRAY);
    put_u32(&s.head, STRING);
    put_u64(&s.head, (uint64_t)1 << 46);
    memory_reset();
    tp_layout layout = parse_sparse(&s, size);
    assert_string_equal(layout.reason, "its header holds more than 16777216 values");
    tp_layout_free(&layout);
    s.head = start(0, (uint64_t)1 << 46);
    layout = parse_sparse(&s, size);
    assert_string_equal(layout.reason, "its header holds more than 16777216 values");
    tp_layout_free(&layout);
    assert_true(memory_peak < 1 << 20);
    /* Tensors cost memory, which has a limit of its own. */
    s.head = start((uint64_t)1 << 40, 0);
    layout = parse_sparse(&s, size);
    assert_string_equal(layout.reason, "its header needs more than 256 MiB of memory");
    tp_layout_free(&layout);
    /* Long values are passed over unread. */
    s.head = start(0, 2);
    put_key(&s.head, "a", STRING);
    put_u64(&s.head, 1000000000);
    layout = parse_sparse(&s, size);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_GGUF);
    assert_true(s.read < 2 << 20);
    tp_layout_free(&layout);
    s.head = start(0, 1);
    put_key(&s.head, "a", ARRAY);
    put_u32(&s.head, FLOAT64);
    put_u64(&s.head, (uint64_t)1 << 46);
    layout = parse_sparse(&s, size);
    assert_string_equal(layout.reason, "its header is longer than 1073741824 bytes");
    assert_true(s.read < 2 << 20);
    tp_layout_free(&layout);
    double took = seconds() - begin;
    print_message("huge files: %.2f s\n", took);
    assert_true(took < 30);
}

static void test_many_tensors(void **state)
{
    (void)state;
    /* Backwards, so that they have to be sorted. */
    const size_t count = 300000;
    gguf g = start(count, 0);
    for (size_t i = 0; i < count; i++) {
        char name[40];
        snprintf(name, sizeof name, "blk.%zu.weight", i);
        put_tensor(&g, name, DIMS(8), T_F32, 32 * (count - 1 - i));
    }
    put_data(&g, 32, 32 * count);
    size_t size = g.f.size;
    double begin = seconds();
    tp_layout layout = end(&g);
    double took = seconds() - begin;
    print_message("%zu tensors: %.2f s\n", count, took);
    assert_true(took < 10);
    assert_int_equal(layout.tensor_count, count);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_int_equal(layout.span_count, count + 1);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(layout.tensors[i].offset, size - 32 * (i + 1));
        assert_int_equal(layout.tensors[i].cls, TP_CLASS_F32);
    }
    tp_layout_free(&layout);

    /* All in one place; and all of types of their own. */
    g = start(count, 0);
    for (size_t i = 0; i < count; i++) put_tensor(&g, "x", DIMS(8), i % 2 == 0 ? T_F32 : T_I32, 0);
    put_data(&g, 32, 32);
    layout = end(&g);
    assert_int_equal(layout.tensor_count, count);
    assert_int_equal(layout.span_count, 2);
    tp_layout_free(&layout);
    g = start(count, 0);
    for (size_t i = 0; i < count; i++) put_tensor(&g, "x", DIMS(8), 100 + (uint32_t)(i % (count / 2)), i);
    put_data(&g, 32, count);
    begin = seconds();
    layout = end(&g);
    assert_true(seconds() - begin < 10);
    assert_int_equal(layout.opaque_tensors, count);
    assert_int_equal(layout.dtype_count, count / 2);
    assert_string_equal(tensor_text(&layout, count - 1) + 7, "150099 [8] 10200031+1 bytes 1");
    tp_layout_free(&layout);
}

static gguf small_file(void)
{
    gguf g = start(3, EVERY_KEY + 1);
    put_every_key(&g);
    put_key(&g, "long", STRING);
    put_u64(&g, 600000);
    put_bytes(&g, 600000);
    put_tensor(&g, "a", DIMS(8), T_F32, 96);
    put_tensor(&g, "b", DIMS(3), 36, 64);
    put_tensor(&g, "c", DIMS(32), T_Q8_0, 0);
    put_data(&g, 32, 128);
    return g;
}

static void test_no_memory(void **state)
{
    (void)state;
    gguf g = small_file();
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, g.f.data, g.f.size, "m.gguf");
    for (size_t fail = 0;; fail++) {
        assert_true(fail < 100);
        tp_layout layout;
        tp_error error = {0};
        memory_reset();
        memory_fail_from = fail;
        tp_status status = tp_layout_parse(&source, &layout, &error);
        memory_fail_from = SIZE_MAX;
        if (status == TP_OK) {
            assert_int_equal(layout.tensor_count, 3);
            tp_layout_free(&layout);
            assert_int_equal(memory_in_use, 0);
            break;
        }
        assert_int_equal(status, TP_NO_MEMORY);
        assert_string_equal(error.message, "m.gguf: out of memory while reading the header");
        assert_int_equal(memory_in_use, 0);
        tp_layout_free(&layout);
    }
    file_free(&g.f);
}

typedef struct failing {
    file f;
    size_t reads, fail_at;
} failing;

static tp_status failing_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    failing *s = context;
    assert_true(size > 0 && offset <= s->f.size && size <= s->f.size - offset);
    if (s->reads++ == s->fail_at) return tp_error_set_at(error, TP_IO, offset, "x: the disk is gone");
    memcpy(dst, s->f.data + offset, size);
    return TP_OK;
}

static void test_errors_of_the_source(void **state)
{
    (void)state;
    /* Beginning and end of the long string lie in different windows; one more window in each cut of a
     * value. */
    gguf g = small_file();
    failing s = {.f = g.f, .fail_at = SIZE_MAX};
    tp_source source = {.read = failing_read, .context = &s, .size = g.f.size, .name = "m.gguf"};
    tp_layout layout;
    assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
    tp_layout_free(&layout);
    size_t reads = s.reads;
    assert_true(reads >= 3);
    for (size_t i = 0; i < reads; i++) {
        tp_error error = {0};
        s.reads = 0;
        s.fail_at = i;
        assert_int_equal(tp_layout_parse(&source, &layout, &error), TP_IO);
        assert_string_equal(error.message, "x: the disk is gone");
        tp_layout_free(&layout);
    }
    file_free(&g.f);

    /* Fields across the window's end, at every place. */
    for (size_t shift = 0; shift < 80; shift++) {
        g = start(1, 2);
        put_key(&g, "long", ARRAY);
        put_u32(&g, U8);
        size_t fill = 262144 - shift - g.f.size;
        put_u64(&g, fill);
        put_bytes(&g, fill);
        put_alignment(&g, 8);
        put_tensor(&g, "tensor", DIMS(2, 3), T_F32, 0);
        size_t data = (g.f.size + 7) / 8 * 8;
        put_data(&g, 8, 24);
        layout = end(&g);
        char expected[100];
        snprintf(expected, sizeof expected, "tensor F32 [2,3] %zu+24 f32 0", data);
        assert_string_equal(tensor_text(&layout, 0), expected);
        tp_layout_free(&layout);
    }
}

/* ---------------------------------------------------------------------------------------------- real files
 */

static file read_sample(const char *name)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/gguf/%s", TP_SAMPLES_DIR, name);
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) fail_msg("%s is missing", path);
    file f = {0};
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    f.size = (size_t)ftell(stream);
    rewind(stream);
    f.data = malloc(f.size + 1);
    assert_int_equal(fread(f.data, 1, f.size, stream), f.size);
    f.data[f.size] = 0;
    fclose(stream);
    return f;
}

static void test_samples(void **state)
{
    (void)state;
    static const char *const vocabularies[] = {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf",
                                               "weight-inspect_empty.gguf"};
    for (size_t i = 0; i < 3; i++) {
        file f = read_sample(vocabularies[i]);
        tp_layout layout = parse_file(&f, vocabularies[i]);
        assert_string_equal(layout.reason, "");
        assert_int_equal(layout.format, TP_FORMAT_GGUF);
        assert_int_equal(layout.tensor_count, 0);
        assert_int_equal(layout.span_count, 1);
        tp_layout_free(&layout);
        /* Every byte belongs to the header. */
        f.size--;
        layout = parse_file(&f, vocabularies[i]);
        assert_int_equal(layout.format, TP_FORMAT_BYTES);
        assert_true(layout.reason[0] != 0);
        tp_layout_free(&layout);
        file_free(&f);
    }
    file f = read_sample("weight-inspect_tiny.gguf");
    tp_layout layout = parse_file(&f, "weight-inspect_tiny.gguf");
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_GGUF);
    assert_int_equal(layout.tensor_count, 1);
    assert_string_equal(spans_text(&layout), "0+122:bytes:-");
    assert_string_equal(tensor_text(&layout, 0), "test.weight.0 F32 [64,128] 128+32768 f32 2");
    tp_layout_free(&layout);
    file_free(&f);
}

static uint64_t integer(const cJSON *item)
{
    assert_true(cJSON_IsNumber(item));
    return (uint64_t)item->valuedouble;
}

/* What the `gguf` package's reader says of the files that it wrote: see make_gguf.py. */
static void assert_listing(const char *name, const char *listing, size_t tensors, bool swapped)
{
    file text = read_sample(listing), f = read_sample(name);
    cJSON *tree = cJSON_Parse((const char *)text.data);
    assert_true(cJSON_IsArray(tree));
    assert_int_equal(cJSON_GetArraySize(tree), tensors);
    tp_layout layout = parse_file(&f, name);
    assert_string_equal(layout.reason, "");
    assert_string_equal(layout.opaque_reason, "");
    assert_int_equal(layout.tensor_count, tensors);
    size_t index = 0;
    uint64_t end_of_data = 0;
    for (const cJSON *entry = tree->child; entry != NULL; entry = entry->next, index++) {
        const tp_layout_tensor *tensor = &layout.tensors[index];
        const char *wanted = cJSON_GetObjectItemCaseSensitive(entry, "name")->valuestring;
        assert_int_equal(tensor->name_size, strlen(wanted));
        assert_memory_equal(layout.strings + tensor->name, wanted, strlen(wanted));
        const tp_layout_text *dtype = &layout.dtypes[tensor->dtype];
        wanted = cJSON_GetObjectItemCaseSensitive(entry, "dtype")->valuestring;
        assert_int_equal(dtype->size, strlen(wanted));
        assert_memory_equal(layout.strings + dtype->start, wanted, strlen(wanted));
        const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
        assert_int_equal(tensor->ndim, cJSON_GetArraySize(shape));
        size_t dim = tensor->dims;
        for (const cJSON *item = shape->child; item != NULL; item = item->next) {
            assert_int_equal(layout.dims[dim++], integer(item));
        }
        assert_int_equal(tensor->offset, integer(cJSON_GetObjectItemCaseSensitive(entry, "offset")));
        assert_int_equal(tensor->nbytes, integer(cJSON_GetObjectItemCaseSensitive(entry, "nbytes")));
        assert_int_equal(tensor->flags, 0);
        for (size_t id = 0; id < TYPES; id++) {
            if (types[id].name == NULL || strcmp(types[id].name, wanted) != 0) continue;
            assert_int_equal(tensor->cls, swapped ? types[id].swapped : types[id].cls);
        }
        if (tensor->offset + tensor->nbytes > end_of_data) end_of_data = tensor->offset + tensor->nbytes;
    }
    assert_true(end_of_data <= f.size && f.size - end_of_data < 64);
    tp_layout_free(&layout);
    cJSON_Delete(tree);
    file_free(&f);
    file_free(&text);
}

static void test_files_of_the_package(void **state)
{
    (void)state;
    assert_listing("all_types.gguf", "all_types.json", 38, false);
    assert_listing("big_endian.gguf", "big_endian.json", 8, true);
}

/* Damage of every kind to a real file: a layout comes out, and its rules hold. */
static void test_damage(void **state)
{
    (void)state;
    file f = read_sample("all_types.gguf");
    const size_t header = 3072;
    uint32_t random = 1;
    size_t refused = 0;
    for (int round = 0; round < 3000; round++) {
        uint8_t old[8];
        random = random * 1664525 + 1013904223;
        size_t place = (random >> 8) % (header - 8);
        memcpy(old, f.data + place, 8);
        random = random * 1664525 + 1013904223;
        switch (random >> 29) {
        case 0:
            memset(f.data + place, 0xFF, 8);
            break;
        case 1:
            memset(f.data + place, 0, 8);
            break;
        default:
            f.data[place] = (uint8_t)(random >> 16);
            break;
        }
        tp_layout layout = parse_file(&f, "m.gguf");
        refused += layout.format == TP_FORMAT_BYTES;
        tp_layout_free(&layout);
        memcpy(f.data + place, old, 8);
    }
    assert_true(refused > 100 && refused < 2900);
    file_free(&f);
}

int run_gguf(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_and_byte_orders),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_unknown_types),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_strings_and_arrays),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_empty_tensors),
        cmocka_unit_test(test_shapes_too_large),
        cmocka_unit_test(test_broken_rows),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_types_that_do_not_fit),
        cmocka_unit_test(test_orders_and_gaps),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_huge_files),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_errors_of_the_source),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_files_of_the_package),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
