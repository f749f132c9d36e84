#include "support.h"

#include <time.h>

#define ENTRY(dtype, shape, begin, end)                                                                    \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"
#define T ENTRY("U8", "4", 0, 4)

/* Tensors and spans of a header, offsets made relative to the data by hand: 8 + strlen is added to them. */
static void assert_tensor(const tp_layout *layout, size_t index, const char *head, const char *header,
                          uint64_t begin, const char *tail)
{
    char expected[1024];
    snprintf(expected, sizeof expected, "%s %" PRIu64 "%s", head, 8 + strlen(header) + begin, tail);
    assert_string_equal(tensor_text(layout, index), expected);
}

/* That the only tensor is called this, its name given with its size. */
static void assert_name(const char *header, const char *name, size_t size)
{
    tp_layout layout = parse(header, 4);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
    assert_int_equal(layout.tensor_count, 1);
    assert_int_equal(layout.tensors[0].name_size, size);
    assert_memory_equal(layout.strings + layout.tensors[0].name, name, size);
    assert_int_equal(layout.opaque_tensors, 0);
    tp_layout_free(&layout);
}

static void assert_typed(const char *header, size_t data_size, size_t tensors)
{
    tp_layout layout = parse(header, data_size);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
    assert_int_equal(layout.tensor_count, tensors);
    tp_layout_free(&layout);
}

/* ------------------------------------------------------------------------------------- well-formed */

static void test_plain(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"w\":" ENTRY("BF16", "2,3", 0, 12) ",\"b\":" ENTRY("F32", "3", 12, 24) "}";
    tp_layout layout = parse(header, 24);
    assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
    assert_int_equal(layout.tensor_count, 2);
    assert_int_equal(layout.dtype_count, 2);
    assert_int_equal(layout.dim_count, 3);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_string_equal(layout.opaque_reason, "");
    assert_tensor(&layout, 0, "w BF16 [2,3]", header, 0, "+12 bf16 0");
    assert_tensor(&layout, 1, "b F32 [3]", header, 12, "+12 f32 0");
    assert_int_equal(layout.span_count, 3);
    assert_string_equal(spans_text(&layout), "0+152:bytes:- 152+12:bf16:0 164+12:f32:1");
    tp_layout_free(&layout);
}

static void test_no_tensors(void **state)
{
    (void)state;
    static const char *const headers[] = {"{}",
                                          "{ }",
                                          " { \t\r\n} ",
                                          "{\"__metadata__\":{}}",
                                          "{\"__metadata__\":null}",
                                          "{\"__metadata__\":{\"a\":\"b\",\"c\":\"\"}}"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        for (size_t data = 0; data < 3; data++) {
            tp_layout layout = parse(headers[i], data);
            assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
            assert_int_equal(layout.tensor_count, 0);
            assert_int_equal(layout.span_count, 1);
            tp_layout_free(&layout);
        }
    }
}

static void test_ranks(void **state)
{
    (void)state;
    const char *header =
        "{\"scalar\":" ENTRY("F64", "", 0, 8) ",\"empty\":" ENTRY("F32", "2,0,7", 8, 8) ",\"deep\":" ENTRY(
            "I8", "1,1,1,1,1,1,1,1,1,1,1,1,3", 8, 11) ",\"end\":" ENTRY("I64", "0", 11, 11) "}";
    tp_layout layout = parse(header, 11);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_tensor(&layout, 0, "scalar F64 []", header, 0, "+8 f64 0");
    assert_tensor(&layout, 1, "empty F32 [2,0,7]", header, 8, "+0 f32 0");
    assert_tensor(&layout, 2, "deep I8 [1,1,1,1,1,1,1,1,1,1,1,1,3]", header, 8, "+3 i8 0");
    assert_tensor(&layout, 3, "end I64 [0]", header, 11, "+0 i64 0");
    assert_int_equal(layout.span_count, 3);
    assert_int_equal(layout.spans[1].tensor, 0);
    assert_int_equal(layout.spans[2].tensor, 2);
    tp_layout_free(&layout);
}

/* Tensors without bytes claim none, wherever they say they are. */
static void test_empty_inside_another(void **state)
{
    (void)state;
    const char *header = "{\"a\":" ENTRY("U8", "8", 0, 8) ",\"e\":" ENTRY(
        "F32", "0", 3, 3) ",\"far\":" ENTRY("F32", "0", 9, 9) "}";
    tp_layout layout = parse(header, 8);
    assert_string_equal(layout.reason, "");
    assert_tensor(&layout, 1, "e F32 [0]", header, 3, "+0 f32 0");
    assert_tensor(&layout, 2, "far F32 [0]", header, 9, "+0 f32 2");
    assert_int_equal(layout.span_count, 2);
    tp_layout_free(&layout);
}

static void test_any_order(void **state)
{
    (void)state;
    const char *header = "{\"c\":" ENTRY("I32", "1", 8, 12) ",\"a\":" ENTRY(
        "U8", "4", 0, 4) ",\"b\":" ENTRY("F16", "2", 4, 8) "}";
    tp_layout layout = parse(header, 12);
    assert_tensor(&layout, 0, "c I32 [1]", header, 8, "+4 i32 0");
    assert_tensor(&layout, 1, "a U8 [4]", header, 0, "+4 i8 0");
    assert_tensor(&layout, 2, "b F16 [2]", header, 4, "+4 f16 0");
    assert_int_equal(layout.span_count, 4);
    assert_int_equal(layout.spans[1].tensor, 1);
    assert_int_equal(layout.spans[2].tensor, 2);
    assert_int_equal(layout.spans[3].tensor, 0);
    tp_layout_free(&layout);
}

/* The fields in any order, among unknown ones of every kind, with white space everywhere. */
static void test_fields(void **state)
{
    (void)state;
    const char *header =
        "\n{ \"t\" :\t{ \"x\" : [ 1 , { \"y\" : [ -0 , 1.5e+3 , 2E-1 ] , \"dtype\" : \"I64\" } , [ ] , { } "
        "] ,\r\n"
        " \"data_offsets\" : [ 2 , 6 ] , \"Shape\" : [ 9 ] , \"DTYPE\" : 7 , \"n\" : null , \"shape\" : [ "
        "2 , 1 ] ,"
        " \"b\" : [ true , false ] , \"\" : \"\\u00e4\\n\" , \"dtype\" : \"\\u004616\" } } ";
    tp_layout layout = parse(header, 6);
    assert_string_equal(layout.reason, "");
    assert_tensor(&layout, 0, "t F16 [2,1]", header, 2, "+4 f16 0");
    tp_layout_free(&layout);
}

/* ------------------------------------------------------------------------- what stays typed though odd */

static void test_holes_and_trailing(void **state)
{
    (void)state;
    const char *header = "{\"a\":" ENTRY("F32", "1", 3, 7) ",\"b\":" ENTRY("I16", "2", 10, 14) "}";
    uint64_t start = 8 + strlen(header);
    tp_layout layout = parse(header, 19);
    assert_string_equal(layout.reason, "");
    char expected[200];
    snprintf(expected, sizeof expected,
             "0+%" PRIu64 ":bytes:- %" PRIu64 "+4:f32:0 %" PRIu64 "+3:bytes:- %" PRIu64 "+4:i16:1 %" PRIu64
             "+5:bytes:-",
             start + 3, start + 3, start + 7, start + 10, start + 14);
    assert_string_equal(spans_text(&layout), expected);
    tp_layout_free(&layout);
}

static void test_padding(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
    } pads[] = {{" ", 1}, {"       ", 7}, {"\t\n\r ", 4}, {"\0\0\0", 3}, {" \0 \n\0", 5}};
    for (size_t i = 0; i < sizeof pads / sizeof *pads; i++) {
        char header[200] = "{\"t\":" T "}";
        size_t size = strlen(header);
        memcpy(header + size, pads[i].text, pads[i].size);
        size += pads[i].size;
        file f = file_make(header, size, 4);
        tp_layout layout = parse_file(&f, "x.safetensors");
        assert_string_equal(layout.reason, "");
        assert_int_equal(layout.tensor_count, 1);
        assert_int_equal(layout.spans[1].start, 8 + size);
        tp_layout_free(&layout);
        file_free(&f);
    }
    /* Leading: white space, as the format's own library has it; no NUL, which would be another format. */
    assert_typed("    \n{\"t\":" T "}", 4, 1);
    file f = file_make("\0{}", 3, 4);
    assert_file_reason(&f, "x.safetensors", "its header is not valid JSON: byte 8: expected '{'");
    file_free(&f);
    /* A header padded to the size of a page, whose padding is longer than a window. */
    size_t size = 700000;
    char *header = malloc(size);
    memset(header, ' ', size);
    memcpy(header, "{\"t\":" T "}", strlen("{\"t\":" T "}"));
    f = file_make(header, size, 4);
    tp_layout layout = parse_file(&f, "x.safetensors");
    assert_int_equal(layout.tensor_count, 1);
    tp_layout_free(&layout);
    file_free(&f);
    header[size - 1] = '}';
    f = file_make(header, size, 4);
    assert_file_reason(&f, "x.safetensors",
                       "its header is not valid JSON: byte 700007: text after the header's '}'");
    file_free(&f);
    free(header);
}

static void test_text_after_the_brace(void **state)
{
    (void)state;
    assert_reason("{}{}", "its header is not valid JSON: byte 10: text after the header's '}'");
    assert_reason("{}  x", "its header is not valid JSON: byte 12: text after the header's '}'");
    assert_reason("{}\v", "its header is not valid JSON: byte 10: text after the header's '}'");
    assert_reason("{\"t\":" T "}]", "its header is not valid JSON: byte 61: text after the header's '}'");
}

static void test_unknown_dtypes(void **state)
{
    (void)state;
    const char *header =
        "{\"a\":" ENTRY("Q7_\\u00e4", "5", 0, 3) ",\"b\":" ENTRY("f32", "1", 3, 7) ",\"c\":" ENTRY(
            "", "", 7, 8) ",\"d\":" ENTRY("F32", "1", 8, 12) ",\"e\":" ENTRY("f32", "0", 12, 12) "}";
    tp_layout layout = parse(header, 12);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.opaque_tensors, 4);
    assert_string_equal(layout.opaque_reason, "tensor 'a': unknown dtype 'Q7_\xc3\xa4'");
    assert_int_equal(layout.dtype_count, 4);
    assert_tensor(&layout, 0, "a Q7_\xc3\xa4 [5]", header, 0, "+3 bytes 1");
    assert_tensor(&layout, 1, "b f32 [1]", header, 3, "+4 bytes 1");
    assert_tensor(&layout, 2, "c  []", header, 7, "+1 bytes 1");
    assert_tensor(&layout, 3, "d F32 [1]", header, 8, "+4 f32 0");
    assert_tensor(&layout, 4, "e f32 [0]", header, 12, "+0 bytes 1");
    assert_int_equal(layout.span_count, 5); /* every tensor's own, though three are bytes */
    tp_layout_free(&layout);
}

static void test_size_and_shape_disagree(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *reason;
        size_t data_size;
    } cases[] = {
        {ENTRY("F32", "1", 0, 5), "tensor 't': it has 5 bytes, but dtype and shape need 4", 5},
        {ENTRY("F32", "2", 0, 4), "tensor 't': it has 4 bytes, but dtype and shape need 8", 4},
        {ENTRY("F32", "", 0, 8), "tensor 't': it has 8 bytes, but dtype and shape need 4", 8},
        {ENTRY("F32", "0", 0, 4), "tensor 't': it has 4 bytes, but dtype and shape need 0", 4},
        {ENTRY("F32", "1", 0, 0), "tensor 't': it has 0 bytes, but dtype and shape need 4", 0},
        {ENTRY("F4", "3", 0, 1), "tensor 't': its elements do not fill whole bytes", 1},
        {ENTRY("F4", "3", 0, 2), "tensor 't': its elements do not fill whole bytes", 2},
        {ENTRY("F6_E2M3", "2", 0, 2), "tensor 't': its elements do not fill whole bytes", 2},
        {ENTRY("F6_E3M2", "4", 0, 4), "tensor 't': it has 4 bytes, but dtype and shape need 3", 4},
        {ENTRY("U8", "9223372036854775808,4,0", 0, 0), "tensor 't': its shape has too many elements", 0},
        {ENTRY("U8", "4294967296,4294967296", 0, 0), "tensor 't': its shape has too many elements", 0},
        /* 2^61 elements of 64 bits: the elements can be counted, the bits cannot */
        {ENTRY("F64", "2305843009213693952", 0, 0), "tensor 't': its shape has too many elements", 0},
        {ENTRY("U8", "18446744073709551615", 0, 0), "tensor 't': its shape has too many elements", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[300];
        snprintf(header, sizeof header, "{\"t\":%s}", cases[i].entry);
        tp_layout layout = parse(header, cases[i].data_size);
        assert_string_equal(layout.reason, "");
        assert_int_equal(layout.opaque_tensors, 1);
        assert_string_equal(layout.opaque_reason, cases[i].reason);
        assert_int_equal(layout.tensors[0].flags, TP_TENSOR_OPAQUE);
        assert_int_equal(layout.tensors[0].cls, TP_CLASS_BYTES);
        assert_int_equal(layout.tensors[0].nbytes, cases[i].data_size);
        tp_layout_free(&layout);
    }
    /* The order matters: a leading 0 keeps everything 0. */
    assert_typed("{\"t\":" ENTRY("U8", "0,9223372036854775808,4", 0, 0) "}", 0, 1);
    tp_layout layout = parse("{\"t\":" ENTRY("U8", "0,9223372036854775808,4", 0, 0) "}", 0);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_int_equal(layout.dims[1], (uint64_t)1 << 63);
    tp_layout_free(&layout);
}

/* Less than a byte an element: bytes, but understood. */
static void test_sub_byte(void **state)
{
    (void)state;
    const char *header = "{\"a\":" ENTRY("F4", "2,3", 0, 3) ",\"b\":" ENTRY("F6_E2M3", "4", 3, 6) "}";
    tp_layout layout = parse(header, 6);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_tensor(&layout, 0, "a F4 [2,3]", header, 0, "+3 bytes 0");
    assert_tensor(&layout, 1, "b F6_E2M3 [4]", header, 3, "+3 bytes 0");
    tp_layout_free(&layout);
}

static void test_truncated(void **state)
{
    (void)state;
    const char *header = "{\"a\":" ENTRY("F32", "2", 0, 8) ",\"b\":" ENTRY(
        "F64", "3", 8, 32) ",\"c\":" ENTRY("U8", "4", 32, 36) "}";
    uint64_t start = 8 + strlen(header);
    static const struct {
        size_t present; /* bytes of data */
        const char *spans;
        unsigned flags[3];
    } cases[] = {
        {36, "8:f32:0 24:f64:1 4:i8:2", {0, 0, 0}},
        {35, "8:f32:0 24:f64:1 3:i8:2", {0, 0, 2}},
        {32, "8:f32:0 24:f64:1", {0, 0, 2}},
        {31, "8:f32:0 16:f64:1 7:bytes:1", {0, 2, 2}},
        {24, "8:f32:0 16:f64:1", {0, 2, 2}},
        {15, "8:f32:0 7:bytes:1", {0, 2, 2}},
        {8, "8:f32:0", {0, 2, 2}},
        {7, "4:f32:0 3:bytes:0", {2, 2, 2}},
        {3, "3:bytes:0", {2, 2, 2}},
        {0, "", {2, 2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tp_layout layout = parse(header, cases[i].present);
        assert_string_equal(layout.reason, "");
        char text[200] = "";
        size_t used = 0;
        for (size_t k = 1; k < layout.span_count; k++) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 ":%s:%u",
                                     k == 1 ? "" : " ", layout.spans[k].length,
                                     tp_class_name((tp_class)layout.spans[k].cls), layout.spans[k].tensor);
        }
        assert_string_equal(text, cases[i].spans);
        assert_int_equal(layout.spans[0].length, start);
        for (size_t k = 0; k < 3; k++) assert_int_equal(layout.tensors[k].flags, cases[i].flags[k]);
        assert_int_equal(layout.tensors[1].nbytes, 24);
        assert_int_equal(layout.tensors[2].offset, start + 32);
        assert_int_equal(layout.opaque_tensors, 0);
        tp_layout_free(&layout);
    }
}

static void test_far_beyond_the_end(void **state)
{
    (void)state;
    const char *header = "{\"a\":" ENTRY("U8", "4", 0, 4) ",\"b\":" ENTRY(
        "U8", "1", 18446744073709551614,
        18446744073709551615) ",\"c\":" ENTRY("U8", "10", 18446744073709551604,
                                              18446744073709551614) ",\"d\":" ENTRY("U8",
                                                                                    "2305843009213693951",
                                                                                    9,
                                                                                    2305843009213693960) "}";
    tp_layout layout = parse(header, 4);
    assert_string_equal(layout.reason, "");
    assert_string_equal(layout.opaque_reason, "");
    assert_int_equal(layout.tensors[0].flags, 0);
    assert_string_equal(tensor_text(&layout, 1), "b U8 [1] 18446744073709551615+1 i8 2");
    assert_string_equal(tensor_text(&layout, 2), "c U8 [10] 18446744073709551615+10 i8 2");
    assert_tensor(&layout, 3, "d U8 [2305843009213693951]", header, 9, "+2305843009213693951 i8 2");
    assert_int_equal(layout.span_count, 2);
    tp_layout_free(&layout);
    /* Overlap is a matter of what is declared, not of what is there. */
    assert_reason("{\"a\":" ENTRY("U8", "4", 100, 104) ",\"b\":" ENTRY("U8", "4", 103, 107) "}",
                  "tensor 'b' overlaps 'a'");
    assert_reason("{\"a\":" ENTRY("U8", "2", 18446744073709551613, 18446744073709551615) ",\"b\":" ENTRY(
                      "U8", "1", 18446744073709551614, 18446744073709551615) "}",
                  "tensor 'b' overlaps 'a'");
}

static void test_same_range(void **state)
{
    (void)state;
    const char *header = "{\"z\":" ENTRY("F32", "2", 4, 12) ",\"head\":" ENTRY(
        "I32", "1", 0, 4) ",\"y\":" ENTRY("I64", "1", 4, 12) ",\"x\":" ENTRY("X", "1", 4, 12) "}";
    tp_layout layout = parse(header, 12);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.span_count, 3);
    assert_int_equal(layout.spans[2].tensor, 0);
    assert_int_equal(layout.spans[2].cls, TP_CLASS_F32);
    assert_tensor(&layout, 0, "z F32 [2]", header, 4, "+8 f32 0");
    assert_tensor(&layout, 2, "y I64 [1]", header, 4, "+8 f32 0"); /* of the class of its span */
    assert_tensor(&layout, 3, "x X [1]", header, 4, "+8 bytes 1");
    tp_layout_free(&layout);
}

static void test_overlap(void **state)
{
    (void)state;
    assert_reason("{\"a\":" ENTRY("U8", "4", 0, 4) ",\"b\":" ENTRY("U8", "4", 3, 7) "}",
                  "tensor 'b' overlaps 'a'");
    assert_reason("{\"a\":" ENTRY("U8", "4", 3, 7) ",\"b\":" ENTRY("U8", "4", 0, 4) "}",
                  "tensor 'a' overlaps 'b'");
    /* inside, same start, same end */
    assert_reason("{\"a\":" ENTRY("U8", "9", 0, 9) ",\"b\":" ENTRY("U8", "1", 5, 6) "}",
                  "tensor 'b' overlaps 'a'");
    assert_reason("{\"a\":" ENTRY("U8", "9", 0, 9) ",\"b\":" ENTRY("U8", "1", 0, 1) "}",
                  "tensor 'a' overlaps 'b'");
    assert_reason("{\"a\":" ENTRY("U8", "9", 0, 9) ",\"b\":" ENTRY("U8", "1", 8, 9) "}",
                  "tensor 'b' overlaps 'a'");
    /* behind a tensor that has the same range as the first */
    assert_reason("{\"a\":" ENTRY("U8", "4", 0, 4) ",\"b\":" ENTRY("U8", "4", 0,
                                                                   4) ",\"c\":" ENTRY("U8", "2", 3, 5) "}",
                  "tensor 'c' overlaps 'a'");
    /* opaque ones count */
    assert_reason("{\"a\":" ENTRY("X", "4", 0, 4) ",\"b\":" ENTRY("Y", "4", 3, 7) "}",
                  "tensor 'b' overlaps 'a'");
    /* names for people */
    assert_reason("{\"a\\n\\u001b[2J\":" ENTRY("U8", "4", 0,
                                               4) ",\"\\u0000\\u009b\xc3\xa4\":" ENTRY("U8", "4", 3, 7) "}",
                  "tensor '\\x00\\xC2\\x9B\xc3\xa4' overlaps 'a\\x0A\\x1B[2J'");
}

static void test_backwards(void **state)
{
    (void)state;
    assert_reason("{\"a\":" T ",\"t\":" ENTRY("U8", "4", 8, 4) "}", "tensor 't': it ends before it begins");
    assert_reason("{\"t\":" ENTRY("Q", "4", 1, 0) "}", "tensor 't': it ends before it begins");
}

static void test_length_not_a_multiple_of_8(void **state)
{
    (void)state;
    char header[200] = "{\"t\":" ENTRY("F64", "2", 0, 16) "}";
    for (int i = 0; i < 9; i++) {
        assert_typed(header, 16, 1);
        strcat(header, " ");
    }
}

/* ------------------------------------------------------- the traps of cJSON against the format's library
 */

static void test_duplicate_names(void **state)
{
    (void)state;
    const char *header = "{\"t\":" ENTRY("U8", "4", 0, 4) ",\"t\":" ENTRY("F32", "1", 4, 8) ",\"t\":" ENTRY(
        "U8", "4", 0, 4) ",\"T\":" ENTRY("U8", "1", 8, 9) "}";
    tp_layout layout = parse(header, 9);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.tensor_count, 4);
    assert_int_equal(layout.span_count, 4);
    assert_tensor(&layout, 0, "t U8 [4]", header, 0, "+4 i8 0");
    assert_tensor(&layout, 1, "t F32 [1]", header, 4, "+4 f32 0");
    assert_tensor(&layout, 2, "t U8 [4]", header, 0, "+4 i8 0");
    assert_tensor(&layout, 3, "T U8 [1]", header, 8, "+1 i8 0");
    tp_layout_free(&layout);
}

static void test_names(void **state)
{
    (void)state;
    assert_name("{\"\":" T "}", "", 0);
    assert_name("{\"a\\u0000b\":" T "}", "a\0b", 3);
    assert_name("{\"\\u0000\":" T "}", "\0", 1);
    assert_name("{\"\\\"\\\\\\/\\b\\f\\n\\r\\t\":" T "}", "\"\\/\b\f\n\r\t", 8);
    assert_name("{\"\\u0041\\u00e4\\u20AC\\ud83D\\uDe00\":" T "}", "A\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
                10);
    assert_name("{\"\\uD800\\uDC00\\uDBFF\\uDFFF\\uD7FF\\uE000\\uFFFF\\u007f\\u0080\\u07FF\\u0800\":" T "}",
                "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\x7f\xc2\x80\xdf\xbf"
                "\xe0\xa0\x80",
                25);
    assert_name("{\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f\":" T "}",
                "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x7f", 10);
    assert_name("{\"__metadata\":" T "}", "__metadata", 10);
    assert_name("{\"__metadata__\\u0000\":" T "}", "__metadata__\0", 13);
    assert_name("{\"__METADATA__\":" T "}", "__METADATA__", 12);
    /* "a" and "a\u0000b" are two */
    const char *header = "{\"a\":" T ",\"a\\u0000b\":" ENTRY("U8", "1", 4, 5) "}";
    tp_layout layout = parse(header, 5);
    assert_int_equal(layout.tensor_count, 2);
    assert_int_equal(layout.tensors[0].name_size, 1);
    assert_int_equal(layout.tensors[1].name_size, 3);
    tp_layout_free(&layout);
    /* A name of a million bytes. */
    size_t size = 1000000;
    char *text = malloc(size + 200);
    strcpy(text, "{\"");
    memset(text + 2, 'n', size);
    strcpy(text + 2 + size, "\":" T "}");
    layout = parse(text, 4);
    assert_int_equal(layout.tensor_count, 1);
    assert_int_equal(layout.tensors[0].name_size, size);
    tp_layout_free(&layout);
    free(text);
}

static void test_nul_and_blanks_between_tokens(void **state)
{
    (void)state;
    static const char header[] = "{\0\"t\":" T "}";
    file f = file_make(header, sizeof header - 1, 4);
    assert_file_reason(&f, "x.safetensors",
                       "its header is not valid JSON: byte 9: expected a name in quotes");
    file_free(&f);
    static const char inside[] = "{\"t\":{\"dtype\":\"U8\",\0\"shape\":[4],\"data_offsets\":[0,4]}}";
    f = file_make(inside, sizeof inside - 1, 4);
    assert_file_reason(&f, "x.safetensors",
                       "its header is not valid JSON: byte 27: expected a name in quotes");
    file_free(&f);
    for (char c = 1; c < ' '; c++) {
        char text[] = "{ \"t\": {\"dtype\":\"U8\",?\"shape\":[4],\"data_offsets\":[0,4]}}";
        *strchr(text, '?') = c;
        if (c == '\t' || c == '\n' || c == '\r')
            assert_typed(text, 4, 1);
        else
            assert_reason(text, "its header is not valid JSON: byte 29: expected a name in quotes");
    }
    assert_reason("{\"t\":" T ",}", "its header is not valid JSON: byte 61: expected a name in quotes");
}

static void test_numbers(void **state)
{
    (void)state;
    static const char shape[] = "tensor 't': its shape is not an array of integers from 0 to 2^64-1";
    static const char offsets[] = "tensor 't': its data_offsets are not two integers from 0 to 2^64-1";
    static const char invalid[] = "its header is not valid JSON: byte %zu: a number that is not JSON";
    static const struct {
        const char *number;
        bool json; /* valid, only no integer */
    } numbers[] = {
        {"0123", false},
        {"00", false},
        {"-01", false},
        {"1.", false},
        {"1.e3", false},
        {"1e", false},
        {"1e+", false},
        {"-", false},
        {"1e3", true},
        {"1E0", true},
        {"1.5", true},
        {"4.0", true},
        {"1e400", true},
        {"-1", true},
        {"-0", true},
        {"0.0", true},
        {"0e0", true},
        {"18446744073709551616", true},
        {"99999999999999999999999", true},
        {"1e-5", true},
        {"1.25E+10", true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char header[300], reason[200];
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,4]}}",
                 numbers[i].number);
        snprintf(reason, sizeof reason, invalid, (size_t)(strchr(header, '[') - header) + 9);
        assert_reason(header, numbers[i].json ? shape : reason);
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%s,4]}}",
                 numbers[i].number);
        snprintf(reason, sizeof reason, invalid, (size_t)(strrchr(header, '[') - header) + 9);
        assert_reason(header, numbers[i].json ? offsets : reason);
        snprintf(header, sizeof header,
                 "{\"t\":{\"dtype\":\"U8\",\"x\":%s,\"shape\":[4],\"data_offsets\":[0,4]}}",
                 numbers[i].number);
        snprintf(reason, sizeof reason, invalid, (size_t)(strchr(header, 'x') - header) + 8 + 3);
        /* In a field that is ignored any number will do. */
        if (numbers[i].json)
            assert_typed(header, 4, 1);
        else
            assert_reason(header, reason);
    }
    static const char *const others[] = {"+1",    ".5",  "NaN", "Infinity", "0x10",
                                         "1_000", "tru", "nul", "truee",    "'1'"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char header[300];
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,4]}}",
                 others[i]);
        file f = file_make(header, SIZE_MAX, 4);
        tp_layout layout = parse_file(&f, "x.safetensors");
        assert_int_equal(strncmp(layout.reason, "its header is not valid JSON: byte ", 35), 0);
        tp_layout_free(&layout);
        file_free(&f);
    }
    /* As exact as they come: beyond doubles, and up to the last value. */
    const char *header =
        "{\"t\":{\"x\":[1,[2],{\"y\":3}],\"dtype\":\"U8\",\"z\":4,"
        "\"data_offsets\":[9007199254740993,18014398509481987],\"shape\":[9007199254740994,5e0]}}";
    assert_reason(header, shape);
    header = "{\"t\":{\"x\":[1,[2],{\"y\":3}],\"dtype\":\"U8\",\"z\":4,"
             "\"data_offsets\":[9007199254740993,18014398509481987],\"shape\":[9007199254740994]}}";
    tp_layout layout = parse(header, 4);
    assert_int_equal(layout.opaque_tensors, 0);
    assert_tensor(&layout, 0, "t U8 [9007199254740994]", header, 9007199254740993,
                  "+9007199254740994 i8 2");
    tp_layout_free(&layout);
    header =
        "{\"t\":" ENTRY("U8", "18446744073709551615,0", 18446744073709551615, 18446744073709551615) "}";
    layout = parse(header, 4);
    assert_int_equal(layout.dims[0], UINT64_MAX);
    assert_int_equal(layout.tensors[0].offset, UINT64_MAX);
    tp_layout_free(&layout);
}

static void test_long_numbers(void **state)
{
    (void)state;
    char digits[80], header[300];
    memset(digits, '1', sizeof digits);
    digits[63] = 0;
    snprintf(header, sizeof header,
             "{\"t\":{\"dtype\":\"U8\",\"x\":%s,\"shape\":[4],\"data_offsets\":[0,4]}}", digits);
    assert_typed(header, 4, 1);
    digits[63] = '1';
    digits[64] = 0;
    snprintf(header, sizeof header,
             "{\"t\":{\"dtype\":\"U8\",\"x\":%s,\"shape\":[4],\"data_offsets\":[0,4]}}", digits);
    assert_reason(header, "its header is not valid JSON: byte 31: a number of more than 63 characters");
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
        size_t at; /* from the start of the text */
    } cases[] = {
        {"\n", "a control byte in a string", 0},
        {"a\x1f", "a control byte in a string", 1},
        {"\xff", "invalid UTF-8", 0},
        {"a\x80", "invalid UTF-8", 1},
        {"\xc0\x80", "invalid UTF-8", 0},
        {"\xe0\x9f\xbf", "invalid UTF-8", 0},
        {"\xed\xa0\x80", "invalid UTF-8", 0},
        {"\xf4\x90\x80\x80", "invalid UTF-8", 0},
        {"\xf8\x88\x80\x80\x80", "invalid UTF-8", 0},
        {"\xe2\x82", "invalid UTF-8", 0},
        {"\\x", "an escape that JSON does not have", 0},
        {"\\U0041", "an escape that JSON does not have", 0},
        {"\\u004", "an escape that JSON does not have", 0},
        {"\\u00g0", "an escape that JSON does not have", 0},
        {"\\ud800", "half a surrogate pair", 0},
        {"\\ud800a", "half a surrogate pair", 0},
        {"\\ud800\\n", "half a surrogate pair", 0},
        {"\\ud800\\ud800", "half a surrogate pair", 0},
        {"b\\udc00", "half a surrogate pair", 1},
        {"\\udfff\\ud800", "half a surrogate pair", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* In a name, in the metadata, in an entry: each is read in its own way. */
        static const char *const forms[] = {
            "{\"%s\":" T "}", "{\"__metadata__\":{\"%s\":\"\"},\"t\":" T "}",
            "{\"__metadata__\":{\"k\":\"%s\"},\"t\":" T "}", "{\"t\":{\"%s\":1,\"dtype\":\"U8\"}}",
            "{\"t\":{\"dtype\":\"%s\"}}"};
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            char header[300], reason[200];
            size_t place = 8 + (size_t)(strstr(forms[k], "%s") - forms[k]) + cases[i].at;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(header, sizeof header, forms[k], cases[i].text);
#pragma GCC diagnostic pop
            snprintf(reason, sizeof reason, "its header is not valid JSON: byte %zu: %s", place,
                     cases[i].what);
            assert_reason(header, reason);
        }
    }
    file f = file_make("{\"a\0b\":" T "}", 7 + strlen(T) + 1, 4);
    assert_file_reason(&f, "x.safetensors",
                       "its header is not valid JSON: byte 11: a control byte in a string");
    file_free(&f);
}

static void test_byte_order_mark(void **state)
{
    (void)state;
    assert_reason("\xef\xbb\xbf{\"t\":" T "}", "its header is not valid JSON: byte 8: expected '{'");
}

/* ----------------------------------------------------------------------------------- what is refused */

static void test_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *header, *reason;
    } cases[] = {
        {"", "byte 8: it ends too early"},
        {" ", "byte 9: it ends too early"},
        {"{", "byte 9: it ends too early"},
        {"[]", "byte 8: expected '{'"},
        {"null", "byte 8: expected '{'"},
        {"\"t\"", "byte 8: expected '{'"},
        {"{t:1}", "byte 9: expected a name in quotes"},
        {"{,}", "byte 9: expected a name in quotes"},
        {"{\"t", "byte 11: it ends too early"},
        {"{\"t\\", "byte 12: it ends too early"},
        {"{\"t\"", "byte 12: it ends too early"},
        {"{\"t\" ", "byte 13: it ends too early"},
        {"{\"t\":", "byte 13: it ends too early"},
        {"{\"t\": ", "byte 14: it ends too early"},
        {"{\"t\";1}", "byte 12: expected ':'"},
        {"{\"t\":}", "byte 13: expected a value"},
        {"{\"t\":{", "byte 14: it ends too early"},
        {"{\"t\":{]", "byte 14: expected a name in quotes"},
        {"{\"t\":{\"a\"", "byte 17: it ends too early"},
        {"{\"t\":{\"a\":", "byte 18: it ends too early"},
        {"{\"t\":{\"a\":1", "byte 19: it ends too early"},
        {"{\"t\":{\"a\":1,", "byte 20: it ends too early"},
        {"{\"t\":{\"a\":1,}", "byte 20: expected a name in quotes"},
        {"{\"t\":{\"a\" 1}}", "byte 18: expected ':'"},
        {"{\"t\":{\"a\":1 \"b\":2}}", "byte 20: expected ',' or '}'"},
        {"{\"t\":{\"a\":[1 2]}}", "byte 21: expected ',' or ']'"},
        {"{\"t\":{\"a\":[1,]}}", "byte 21: expected a value"},
        {"{\"t\":{\"a\":[1}}", "byte 20: expected ',' or ']'"},
        {"{\"t\":{\"a\":[1,2", "byte 22: it ends too early"},
        {"{\"t\":{\"a\":-", "byte 19: it ends too early"},
        {"{\"t\":" T, "byte 60: it ends too early"},
        {"{\"t\":" T " ", "byte 61: it ends too early"},
        {"{\"t\":" T ",", "byte 61: it ends too early"},
        {"{\"t\":" T "]", "byte 60: expected ',' or '}'"},
        {"{\"t\":" T " \"u\":" T "}", "byte 61: expected ',' or '}'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char reason[200];
        snprintf(reason, sizeof reason, "its header is not valid JSON: %s", cases[i].reason);
        assert_reason(cases[i].header, reason);
    }
    /* Every truncation of a valid header, the length with it. */
    const char *header =
        "{\"__metadata__\":{\"a\":\"\\ud83d\\ude00\\n\xe2\x82\xac\"},"
        "\"t\":{\"x\":[true,null,-1.5e3],\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    for (size_t size = 0; size < strlen(header); size++) {
        file f = file_make(header, size, 4);
        tp_layout layout = parse_file(&f, "x.safetensors");
        assert_int_equal(layout.format, TP_FORMAT_BYTES);
        assert_true(layout.reason[0] != 0);
        tp_layout_free(&layout);
        file_free(&f);
    }
    assert_typed(header, 4, 1);
}

static void test_nesting(void **state)
{
    (void)state;
    /* The entry's object is the first level of 64. */
    for (int depth = 62; depth <= 65; depth++) {
        char header[400] = "{\"t\":{\"x\":";
        size_t used = strlen(header);
        for (int i = 0; i < depth; i++) header[used++] = '[';
        for (int i = 0; i < depth; i++) header[used++] = ']';
        strcpy(header + used, ",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}");
        if (depth <= 63)
            assert_typed(header, 4, 1);
        else
            assert_reason(header, "its header is not valid JSON: byte 81: nested too deeply");
    }
    size_t size = 1000000;
    char *bomb = malloc(size + 1);
    memset(bomb, '[', size);
    bomb[size] = 0;
    memcpy(bomb, "{\"t\":{\"a\":", 10);
    assert_reason(bomb, "its header is not valid JSON: byte 81: nested too deeply");
    free(bomb);
}

static void test_entries(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *reason;
    } cases[] = {
        {"1", "its entry is not a JSON object"},
        {"null", "its entry is not a JSON object"},
        {"\"F32\"", "its entry is not a JSON object"},
        {"[\"U8\",[4],[0,4]]", "its entry is not a JSON object"},
        {"{}", "it has no dtype"},
        {"{\"shape\":[4],\"data_offsets\":[0,4]}", "it has no dtype"},
        {"{\"dtype\":\"U8\",\"data_offsets\":[0,4]}", "it has no shape"},
        {"{\"dtype\":\"U8\",\"shape\":[4]}", "it has no data_offsets"},
        {"{\"Dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", "it has no dtype"},
        {"{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", "it has two dtypes"},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"shape\":[4],\"data_offsets\":[0,4]}", "it has two shapes"},
        {"{\"data_offsets\":[0,4],\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}",
         "it has two data_offsets"},
        {"{\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]}", "its dtype is not a string"},
        {"{\"dtype\":null,\"shape\":[4],\"data_offsets\":[0,4]}", "its dtype is not a string"},
        {"{\"dtype\":[\"U8\"],\"shape\":[4],\"data_offsets\":[0,4]}", "its dtype is not a string"},
        {"{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]}",
         "its shape is not an array of integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":null,\"data_offsets\":[0,4]}",
         "its shape is not an array of integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":{\"a\":4},\"data_offsets\":[0,4]}",
         "its shape is not an array of integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[\"4\"],\"data_offsets\":[0,4]}",
         "its shape is not an array of integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[[4]],\"data_offsets\":[0,4]}",
         "its shape is not an array of integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[true],\"data_offsets\":[0,4]}",
         "its shape is not an array of integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[]}",
         "its data_offsets are not two integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}",
         "its data_offsets are not two integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,8]}",
         "its data_offsets are not two integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,\"4\"]}",
         "its data_offsets are not two integers from 0 to 2^64-1"},
        {"{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":{\"0\":4}}",
         "its data_offsets are not two integers from 0 to 2^64-1"},
        /* where cJSON's strings would end too early */
        {"{\"dtype\":\"U8\\u0000\",\"shape\":[4],\"data_offsets\":[0,4]}", "its entry holds \\u0000"},
        {"{\"dtype\\u0000\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", "its entry holds \\u0000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[300], reason[300];
        snprintf(header, sizeof header, "{\"ok\":" T ",\"a\\tb\":%s}", cases[i].entry);
        snprintf(reason, sizeof reason, "tensor 'a\\x09b': %s", cases[i].reason);
        assert_reason(header, reason);
    }
}

static void test_metadata(void **state)
{
    (void)state;
    static const char wrong[] = "__metadata__ is not an object of strings";
    static const char *const cases[] = {
        "1", "\"\"", "[]", "true", "{\"a\":1}", "{\"a\":null}", "{\"a\":{}}", "{\"a\":\"b\",\"c\":[]}"};
    char header[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(header, sizeof header, "{\"__metadata__\":%s,\"t\":" T "}", cases[i]);
        assert_reason(header, wrong);
        snprintf(header, sizeof header, "{\"t\":" T ",\"\\u005f_metadata__\":%s}", cases[i]);
        assert_reason(header, wrong);
    }
    assert_reason("{\"__metadata__\":nil}", "its header is not valid JSON: byte 24: expected a value");
    assert_reason("{\"__metadata__\":{\"a\"}}", "its header is not valid JSON: byte 28: expected ':'");
    assert_reason("{\"__metadata__\":{\"a\":\"b\",}}",
                  "its header is not valid JSON: byte 33: expected a name in quotes");
    assert_reason("{\"__metadata__\":{\"a\":\"b\"]",
                  "its header is not valid JSON: byte 32: expected ',' or '}'");
    assert_reason("{\"__metadata__\":{\"a\":", "its header is not valid JSON: byte 29: it ends too early");
    assert_reason("{\"__metadata__\":", "its header is not valid JSON: byte 24: it ends too early");
    assert_reason("{\"__metadata__\":nul", "its header is not valid JSON: byte 24: expected a value");
    /* Anywhere, more than once, with any text, and no tensor of that name. */
    assert_typed(
        "{\"t\":" T
        ",\"__metadata__\":{\"a\\u0000\":\"\\u0000\",\"a\\u0000\":\"\"} , \"__metadata__\" : null }",
        4, 1);
    tp_layout layout = parse("{\"__metadata__\":{\"dtype\":\"U8\"},\"t\":" T "}", 4);
    assert_int_equal(layout.tensor_count, 1);
    assert_int_equal(layout.string_size, 3);
    tp_layout_free(&layout);
}

static void test_long_entries(void **state)
{
    (void)state;
    /* Entries of 65536 and 65537 bytes, by white space, by a string and by dimensions. */
    static const char *const fills[] = {" ", "x", "1,", "\\u00e4"};
    size_t capacity = 400000;
    char *header = malloc(capacity);
    for (size_t kind = 0; kind < 4; kind++) {
        for (size_t size = 65535; size <= 65538; size++) {
            const char *before = kind == 1 || kind == 3 ? "{\"s\":\"" : kind == 2 ? "{\"shape\":[" : "{";
            const char *after = kind == 1 || kind == 3
                                    ? "\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"
                                : kind == 2 ? "4],\"dtype\":\"U8\",\"data_offsets\":[0,4]}"
                                            : "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}";
            size_t rest = size - strlen(before) - strlen(after), unit = strlen(fills[kind]);
            size_t used = (size_t)snprintf(header, capacity, "{\"t\":%s", before);
            for (; rest >= unit; rest -= unit, used += unit) memcpy(header + used, fills[kind], unit);
            if (kind == 2 || kind == 0) {
                for (; rest > 0; rest--) header[used++] = ' ';
            } else {
                for (; rest > 0; rest--) header[used++] = 'x';
            }
            used += (size_t)snprintf(header + used, capacity - used, "%s,\"u\":" ENTRY("U8", "1", 4, 5) "}",
                                     after);
            if (size <= 65536) {
                assert_typed(header, 5, 2);
            } else {
                assert_reason(header, "tensor 't': its entry is longer than 65536 bytes");
            }
        }
    }
    /* The same with nothing behind it: what is missing is the end. */
    memset(header, ' ', 100000);
    memcpy(header, "{\"t\":{", 6);
    header[65536] = 0;
    assert_reason(header, "its header is not valid JSON: byte 65544: it ends too early");
    header[65536] = ' ';
    header[99999] = 0;
    assert_reason(header, "tensor 't': its entry is longer than 65536 bytes");
    free(header);
}

/* ------------------------------------------------------------------------------------- header length */

static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *data, *reason;
        size_t size;
    } cases[] = {
        {"", "its 0 bytes are less than the 8 of the header's length", 0},
        {"\2\0\0\0\0\0\0", "its 7 bytes are less than the 8 of the header's length", 7},
        {"\0\0\0\0\0\0\0\0", "its header is not valid JSON: byte 8: it ends too early", 8},
        {"\1\0\0\0\0\0\0\0\xff", "its header is not valid JSON: byte 8: expected '{'", 9},
        {"\1\0\0\0\0\0\0\0{", "its header is not valid JSON: byte 9: it ends too early", 9},
        {"\2\0\0\0\0\0\0\0", "its header claims 2 bytes, but only 0 follow", 8},
        {"\3\0\0\0\0\0\0\0{}", "its header claims 3 bytes, but only 2 follow", 10},
        {"\x3c\0\0\0\0\xff\xff\xff{}", "its header claims 18446742974197923900 bytes, but only 2 follow",
         10},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}",
         "its header claims 18446744073709551615 bytes, but only 2 follow", 10},
        {"\xe8\3\0\0\0\0\0\0{\"a\":1}", "its header claims 1000 bytes, but only 7 follow", 15},
        {"hello world", "its header claims 8031924123371070824 bytes, but only 3 follow", 11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file f = {.data = (uint8_t *)(uintptr_t)cases[i].data, .size = cases[i].size};
        assert_file_reason(&f, "x.safetensors", cases[i].reason);
    }
}

/* A sparse file that holds text at its start and then repeats one byte, without end and without memory. */
typedef struct endless {
    const char *start;
    size_t start_size;
    char repeated;
    uint64_t length_field;
} endless;

static tp_status endless_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    const endless *e = context;
    (void)error;
    uint8_t *out = dst;
    memset(out, e->repeated, size);
    for (size_t i = 0; i < size && offset + i < 8 + e->start_size; i++) {
        uint64_t place = offset + i;
        out[i] = (uint8_t)(place < 8 ? e->length_field >> 8 * place : (uint8_t)e->start[place - 8]);
    }
    return TP_OK;
}

static void test_huge_claims(void **state)
{
    (void)state;
    static const struct {
        uint64_t length, size;
        const char *reason;
    } cases[] = {
        {(uint64_t)16 << 40, 1000, "its header claims 17592186044416 bytes, but only 992 follow"},
        {(uint64_t)16 << 40, (uint64_t)17 << 40,
         "its header of 17592186044416 bytes is longer than 268435456"},
        {268435457, (uint64_t)17 << 40, "its header of 268435457 bytes is longer than 268435456"},
        {268435456, (uint64_t)17 << 40, "its header is not valid JSON: byte 268435464: it ends too early"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        endless e = {.start = "{", .start_size = 1, .repeated = ' ', .length_field = cases[i].length};
        tp_source source = {
            .read = endless_read, .context = &e, .size = cases[i].size, .name = "x.safetensors"};
        tp_layout layout;
        memory_reset();
        assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
        assert_string_equal(layout.reason, cases[i].reason);
        if (memory_peak > 1000000) fail_msg("%zu bytes of memory", memory_peak);
        tp_layout_free(&layout);
        assert_int_equal(memory_in_use, 0);
    }
}

/* ---------------------------------------------------------------------------------------------- scale */

typedef struct text {
    char *data;
    size_t size, capacity;
} text;

static void add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(text *t, const char *format, ...)
{
    if (t->capacity - t->size < 1000) {
        t->capacity = t->capacity * 2 + 4096;
        t->data = realloc(t->data, t->capacity);
        assert_non_null(t->data);
    }
    va_list arguments;
    va_start(arguments, format);
    t->size += (size_t)vsnprintf(t->data + t->size, t->capacity - t->size, format, arguments);
    va_end(arguments);
}

/* Any header ends within 10 s; with sanitizers a multiple of that, and still a quadratic step takes longer.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SECONDS_MAX 60
#endif
#endif
#ifndef SECONDS_MAX
#ifdef __SANITIZE_ADDRESS__
#define SECONDS_MAX 60
#else
#define SECONDS_MAX 10
#endif
#endif

/* Of the processor, so that a busy machine makes no test fail. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Parses a header of many tensors, within time and a given memory. */
static tp_layout parse_many(text *t, size_t data_size, size_t tensors, size_t memory)
{
    file f = file_make(t->data, t->size, data_size);
    free(t->data);
    tp_memory in_memory;
    tp_source source = tp_source_memory(&in_memory, f.data, f.size, "x.safetensors");
    tp_layout layout;
    memory_reset();
    double start = seconds();
    assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
    assert_true(seconds() - start < SECONDS_MAX);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.tensor_count, tensors);
    const char *wrong = tp_layout_check(&layout, f.size);
    if (wrong != NULL) fail_msg("%s", wrong);
    if (memory_peak > memory) fail_msg("%zu bytes of memory", memory_peak);
    file_free(&f);
    return layout;
}

static void test_many_tensors(void **state)
{
    (void)state;
    const size_t n = 200000;
    text t = {0};
    add(&t, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++) {
        /* not in the order of offsets: 77777 and n have no common factor */
        size_t place = i * 77777 % n;
        add(&t,
            ",\"model.layers.%zu.experts.%zu.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":"
            "[%zu,%zu]}",
            i / 100, i % 100, place * 12, place * 12 + 12);
    }
    add(&t, "}");
    tp_layout layout = parse_many(&t, n * 12, n, 1500000 + n * 300);
    assert_int_equal(layout.span_count, n + 1);
    assert_int_equal(layout.dtype_count, 1);
    assert_int_equal(layout.spans[1].tensor, 0);
    for (size_t i = 0; i < n; i += 997) assert_int_equal(layout.spans[1 + i * 77777 % n].tensor, i);
    tp_layout_free(&layout);
    assert_int_equal(memory_in_use, 0);
}

static void test_many_dtypes(void **state)
{
    (void)state;
    /* Each for two neighbours, and again much later, where it has to be found again. */
    const size_t n = 100000;
    text t = {0};
    for (size_t i = 0; i < n; i++) {
        add(&t, "%s\"%zu\":{\"dtype\":\"D%zu\",\"shape\":[],\"data_offsets\":[%zu,%zu]}",
            i == 0 ? "{" : ",", i, i % (n / 2) / 2, i, i + 1);
    }
    add(&t, "}");
    tp_layout layout = parse_many(&t, n, n, 1500000 + n * 300);
    assert_int_equal(layout.opaque_tensors, n);
    assert_int_equal(layout.dtype_count, n / 4);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(layout.tensors[i].dtype, i % (n / 2) / 2);
        char expected[32];
        const tp_layout_text *dtype = &layout.dtypes[layout.tensors[i].dtype];
        snprintf(expected, sizeof expected, "D%zu", i % (n / 2) / 2);
        assert_int_equal(dtype->size, strlen(expected));
        assert_memory_equal(layout.strings + dtype->start, expected, dtype->size);
    }
    tp_layout_free(&layout);
}

/* Dtypes that are prefixes of each other, and the known ones behind them. */
static void test_merged_dtypes(void **state)
{
    (void)state;
    text t = {0};
    size_t n = 0;
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 40; i++, n++) {
            add(&t, "%s\"%zu\":{\"dtype\":\"%.*s\",\"shape\":[4],\"data_offsets\":[%zu,%zu]}",
                n == 0 ? "{" : ",", n, (int)i, "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", 4 * n,
                4 * n + 4);
        }
        add(&t, ",\"%zu\":" ENTRY("U8", "0", 0, 0), n++);
    }
    add(&t, "}");
    tp_layout layout = parse_many(&t, 4 * n, n, 2000000);
    assert_int_equal(layout.dtype_count, 41);
    for (size_t i = 0; i < n; i++) assert_int_equal(layout.tensors[i].dtype, i % 41);
    assert_int_equal(layout.opaque_tensors, 120);
    tp_layout_free(&layout);
}

/* The overlap bomb: all at the same place. */
static void test_all_in_one_place(void **state)
{
    (void)state;
    const size_t n = 100000;
    text t = {0};
    for (size_t i = 0; i < n; i++) {
        add(&t, "%s\"t%zu\":{\"dtype\":\"F32\",\"shape\":[200,200],\"data_offsets\":[0,160000]}",
            i == 0 ? "{" : ",", i);
    }
    add(&t, "}");
    tp_layout layout = parse_many(&t, 160000, n, 1500000 + n * 300);
    assert_int_equal(layout.span_count, 2);
    assert_int_equal(layout.spans[1].tensor, 0);
    tp_layout_free(&layout);
}

/* Limits that no real file meets; memory stays bounded whatever is repeated. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *piece, *reason;
    } cases[] = {
        {",\"\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[0,0]}",
         "its header needs more than 256 MiB of memory"},
        {",\"\":{\"dtype\":\"U8\",\"x\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
         "0,0,0,0,0,0,0,"
         "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
         "0,0,0,0,0,0,0],"
         "\"shape\":[],\"data_offsets\":[0,0]}",
         "its header holds more than 16777216 values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size = 200000000, unit = strlen(cases[i].piece), used = 0;
        if (i == 1) size = 60000000;
        file f = file_make("", 0, size);
        for (int k = 0; k < 8; k++) f.data[k] = (uint8_t)((uint64_t)size >> 8 * k);
        char *header = (char *)f.data + 8;
        for (; used + unit < size; used += unit) memcpy(header + used, cases[i].piece, unit);
        header[0] = '{';
        tp_memory memory;
        tp_source source = tp_source_memory(&memory, f.data, f.size, "x.safetensors");
        tp_layout layout;
        memory_reset();
        double start = seconds();
        assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
        assert_string_equal(layout.reason, cases[i].reason);
        assert_true(memory_peak < (size_t)400 << 20);
        assert_true(seconds() - start < SECONDS_MAX);
        tp_layout_free(&layout);
        file_free(&f);
    }
}

/* ---------------------------------------------------------------------------------------- real files */

static tp_layout parse_sample(const char *name, uint64_t *size)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", TP_SAMPLES_DIR, name);
    FILE *in = fopen(path, "rb");
    if (in == NULL) fail_msg("%s is missing", path);
    fseek(in, 0, SEEK_END);
    size_t length = (size_t)ftell(in);
    rewind(in);
    file f = file_make("", 0, length);
    assert_int_equal(fread(f.data, 1, length, in), length);
    fclose(in);
    f.size = length;
    *size = length;
    tp_layout layout = parse_file(&f, path);
    file_free(&f);
    return layout;
}

static void test_samples(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t tensors, spans;
        const char *first;
    } samples[] = {
        {"safetensors/burn_mnist.safetensors", 20, 21, "norm1.num_batches_tracked I64 [] 1528+8 i64 0"},
        {"safetensors/candle_jfk_codes.safetensors", 1, 2, "codes I64 [1,2,828] 80+13248 i64 0"},
        {"safetensors/runai_test.safetensors", 10, 11, "tensor1.int64 I64 [3,2] 752+48 i64 0"},
        {"safetensors/runai_test_empty.safetensors", 0, 1, NULL},
        {"safetensors/silero_vad_16k.safetensors", 15, 16,
         "stft_conv.weight F32 [258,1,256] 1216+264192 f32 0"},
        /* 5 bytes behind the data that no tensor counts */
        {"safetensors/weight-inspect_tiny.safetensors", 1, 3, "test.weight.0 F32 [64,128] 83+32768 f32 0"},
    };
    uint64_t size;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        tp_layout layout = parse_sample(samples[i].name, &size);
        assert_string_equal(layout.reason, "");
        assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
        assert_int_equal(layout.tensor_count, samples[i].tensors);
        assert_int_equal(layout.span_count, samples[i].spans);
        assert_int_equal(layout.opaque_tensors, 0);
        if (samples[i].first != NULL) assert_string_equal(tensor_text(&layout, 0), samples[i].first);
        for (size_t k = 0; k < layout.tensor_count; k++) assert_int_equal(layout.tensors[k].flags, 0);
        tp_layout_free(&layout);
    }
    tp_layout layout = parse_sample("safetensors/runai_test.safetensors", &size);
    assert_string_equal(tensor_text(&layout, 3), "tensor1.bfloat16 BF16 [3,2] 896+12 bf16 0");
    assert_string_equal(tensor_text(&layout, 4), "tensor1.int32 I32 [3,2] 872+24 i32 0");
    tp_layout_free(&layout);
    layout = parse_sample("other/burn_mixed_types.pt", &size);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.format, TP_FORMAT_BYTES);
    tp_layout_free(&layout);
}

int run_safetensors(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_empty_inside_another),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_holes_and_trailing),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_text_after_the_brace),
        cmocka_unit_test(test_unknown_dtypes),
        cmocka_unit_test(test_size_and_shape_disagree),
        cmocka_unit_test(test_sub_byte),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_far_beyond_the_end),
        cmocka_unit_test(test_same_range),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_backwards),
        cmocka_unit_test(test_length_not_a_multiple_of_8),
        cmocka_unit_test(test_duplicate_names),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_nul_and_blanks_between_tokens),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_long_numbers),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_byte_order_mark),
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_long_entries),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_huge_claims),
        cmocka_unit_test(test_many_tensors),
        cmocka_unit_test(test_many_dtypes),
        cmocka_unit_test(test_merged_dtypes),
        cmocka_unit_test(test_all_in_one_place),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
