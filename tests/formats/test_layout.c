/* The parts below the formats: recognition, sources, windows, text, spans, memory. */
#include "support.h"

#include "formats/source.h"

/* --------------------------------------------------------------------------------------- recognition */

static void test_plain_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *data;
        size_t size;
    } files[] = {
        {"", "", 0},
        {"a.txt", "", 0},
        {"a.txt", "x", 1},
        {"config.json", "{\"a\":1}", 7},
        {"random.bin", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10},
        /* a length that fits, but no object behind it */
        {"small.bin", "\2\0\0\0\0\0\0\0[]", 10},
        {"small.bin", "\2\0\0\0\0\0\0\0  {}", 12},
        {"small.bin", "\1\0\0\0\0\0\0\0{}", 10},
        {"small.bin", "\3\0\0\0\0\0\0\0{}", 10},
        {"x.safetensors.bin", "abc", 3},
        {"lfs.txt", "version https://git-lfs.github.com/spec/v1\noid", 46},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        file f = {.data = (uint8_t *)(uintptr_t)files[i].data, .size = files[i].size};
        assert_file_reason(&f, files[i].name, "");
    }
}

static void test_recognised_by_content(void **state)
{
    (void)state;
    file f = file_make(" \t\r\n{}", SIZE_MAX, 3);
    tp_layout layout = parse_file(&f, "model.bin");
    assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
    assert_string_equal(spans_text(&layout), "0+17:bytes:-");
    tp_layout_free(&layout);
    layout = parse_file(&f, NULL);
    assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
    tp_layout_free(&layout);
    file_free(&f);

    /* Once it looks like it, it gets a reason. */
    f = file_make("{]", SIZE_MAX, 0);
    assert_file_reason(&f, "model.bin", "its header is not valid JSON: byte 9: expected a name in quotes");
    file_free(&f);
    /* More white space than a window holds. */
    size_t size = 600000;
    char *header = malloc(size);
    memset(header, ' ', size);
    memcpy(header + size - 2, "{}", 2);
    f = file_make(header, size, 0);
    layout = parse_file(&f, "model.bin");
    assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
    tp_layout_free(&layout);
    file_free(&f);
    header[size - 2] = ' ';
    header[size - 1] = ' ';
    f = file_make(header, size, 0);
    assert_file_reason(&f, "model.bin", "");
    assert_file_reason(&f, "model.safetensors",
                       "its header is not valid JSON: byte 600008: it ends too early");
    file_free(&f);
    free(header);
}

static void test_other_formats(void **state)
{
    (void)state;
    file f = {.data = (uint8_t *)(uintptr_t) "GGUF\3\0\0\0", .size = 8};
    assert_file_reason(&f, "model.gguf", "byte 8: the header ends too early");
    assert_file_reason(&f, "model.bin", "byte 8: the header ends too early");
    assert_file_reason(&f, "model.safetensors", "byte 8: the header ends too early");
    f = (file){.data = (uint8_t *)(uintptr_t) "GGU", .size = 3};
    assert_file_reason(&f, "model.gguf", "byte 3: the header ends too early");
    assert_file_reason(&f, "model", "");
    f = (file){.data = (uint8_t *)(uintptr_t) "version https://git-lfs.github.com/spec/v1\noid",
               .size = 46};
    assert_file_reason(&f, "model.safetensors", "it is a Git LFS pointer, not the file that it stands for");
    assert_file_reason(&f, "model.gguf", "it is a Git LFS pointer, not the file that it stands for");
}

/* ------------------------------------------------------------------------------------------- sources */

typedef struct slow_source {
    file f;
    size_t reads, fail_at; /* the read of this number fails */
    size_t largest;
} slow_source;

static tp_status slow_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    slow_source *slow = context;
    assert_true(size > 0 && offset <= slow->f.size && size <= slow->f.size - offset);
    if (size > slow->largest) slow->largest = size;
    if (slow->reads++ == slow->fail_at) return tp_error_set_at(error, TP_IO, offset, "x: the disk is gone");
    memcpy(dst, slow->f.data + offset, size);
    return TP_OK;
}

/* A header of more than one window, with everything that can lie across a window's end. */
static file long_file(void)
{
    size_t capacity = 3000000, used = 0;
    char *header = malloc(capacity);
    assert_non_null(header);
    used += (size_t)snprintf(header, capacity, "{\"__metadata__\":{\"long\":\"");
    static const char *const pieces[] = {"abcdefgh",       "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                         "\\ud83d\\ude00", "\\n",      "\\u00e4"};
    for (size_t i = 0; used < 700000; i++) {
        const char *piece = pieces[i % 7];
        memcpy(header + used, piece, strlen(piece));
        used += strlen(piece);
    }
    used += (size_t)snprintf(header + used, capacity - used, "\"}");
    for (size_t i = 0; i < 20000; i++) {
        used += (size_t)snprintf(
            header + used, capacity - used,
            ",\"layer.%zu.\\u00e4\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}", i, 4 * i,
            4 * i + 4);
    }
    header[used++] = '}';
    file f = file_make(header, used, 80000);
    free(header);
    return f;
}

static void test_errors_of_the_source(void **state)
{
    (void)state;
    slow_source slow = {.f = long_file(), .fail_at = SIZE_MAX};
    tp_source source = {.read = slow_read, .context = &slow, .size = slow.f.size, .name = "x.bin"};
    tp_layout layout;
    tp_error error = {0};
    assert_int_equal(tp_layout_parse(&source, &layout, &error), TP_OK);
    assert_int_equal(layout.tensor_count, 20000);
    assert_int_equal(layout.span_count, 20001);
    assert_null(tp_layout_check(&layout, slow.f.size));
    char expected[100];
    snprintf(expected, sizeof expected, "layer.0.\xc3\xa4 F16 [2] %zu+4 f16 0", slow.f.size - 80000);
    assert_string_equal(tensor_text(&layout, 0), expected);
    tp_layout_free(&layout);
    assert_true(slow.largest <= TP_WINDOW_SIZE);

    size_t reads = slow.reads;
    assert_true(reads > 8);
    for (size_t i = 0; i < reads; i++) {
        slow.reads = 0;
        slow.fail_at = i;
        error = (tp_error){0};
        assert_int_equal(tp_layout_parse(&source, &layout, &error), TP_IO);
        assert_string_equal(error.message, "x: the disk is gone");
        assert_null(layout.spans);
        assert_null(layout.tensors);
        tp_layout_free(&layout);
        assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
        tp_layout_free(&layout);
        slow.reads = 0;
        assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_IO);
    }
    file_free(&slow.f);
}

static void test_window(void **state)
{
    (void)state;
    size_t size = 3 * TP_WINDOW_SIZE + 100;
    uint8_t *data = malloc(size);
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(i * 2654435761u >> 13);
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, data, size, "x");
    for (size_t step = 1; step <= TP_WINDOW_SIZE; step = step * 3 + 1) {
        tp_window window;
        assert_int_equal(tp_window_open(&window, &source, 5, size - 7, NULL), TP_OK);
        uint64_t place = 5;
        for (;;) {
            assert_int_equal(tp_window_fill(&window, step, NULL), TP_OK);
            assert_int_equal(tp_window_offset(&window), place);
            size_t have = (size_t)(window.end - window.at), wanted = step;
            if (wanted > size - 7 - place) wanted = (size_t)(size - 7 - place);
            assert_true(have >= wanted);
            assert_memory_equal(window.at, data + place, wanted);
            if (wanted == 0) break;
            window.at += wanted;
            place += wanted;
        }
        assert_int_equal(place, size - 7);
        tp_window_close(&window);
    }
    free(data);
}

/* Fails the allocations one after the other: always TP_NO_MEMORY, and nothing is left behind. */
static void test_no_memory(void **state)
{
    (void)state;
    char header[12000] = "{\"__metadata__\":{\"a\":\"b\"}";
    size_t used = strlen(header);
    for (unsigned i = 0; i < 60; i++) {
        used +=
            (size_t)snprintf(header + used, sizeof header - used,
                             ",\"tensor.%u\":{\"dtype\":\"X%u\",\"shape\":[2],\"data_offsets\":[%u,%u]}", i,
                             i % 40, 8 * (60 - i), 8 * (60 - i) + 4);
    }
    header[used++] = '}';
    file f = file_make(header, used, 500);
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, f.data, f.size, "model.bin");
    for (size_t i = 0;; i++) {
        tp_layout layout;
        tp_error error = {0};
        memory_reset();
        memory_fail_from = i;
        tp_status status = tp_layout_parse(&source, &layout, &error);
        memory_fail_from = SIZE_MAX;
        if (status == TP_OK) {
            assert_true(i > 500);
            assert_int_equal(layout.format, TP_FORMAT_SAFETENSORS);
            assert_int_equal(layout.tensor_count, 60);
            assert_int_equal(layout.dtype_count, 40);
            assert_null(tp_layout_check(&layout, f.size));
            tp_layout_free(&layout);
            break;
        }
        assert_int_equal(status, TP_NO_MEMORY);
        assert_string_equal(error.message, "model.bin: out of memory while reading the header");
        assert_int_equal(memory_in_use, 0);
        tp_layout_free(&layout);
    }
    assert_int_equal(memory_in_use, 0);
    memory_reset();
    /* A file of bytes needs memory too. */
    f.data[8] = 'x';
    memory_fail_from = 0;
    tp_layout layout;
    assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_NO_MEMORY);
    memory_reset();
    file_free(&f);
}

/* ---------------------------------------------------------------------------------------------- text */

static void test_utf8(void **state)
{
    (void)state;
    /* Against a decoder that does it the other way round: encode every code point, and nothing else is
     * valid. */
    for (uint32_t a = 0; a < 256; a++) {
        for (uint32_t b = 0; b < 256; b++) {
            for (uint32_t c = 0x7E; c < 0xC2; c++) {
                uint8_t text[4] = {(uint8_t)a, (uint8_t)b, (uint8_t)c, 0x80};
                unsigned expected = 0;
                uint32_t two = (a & 0x1F) << 6 | (b & 0x3F);
                uint32_t three = (a & 0x0F) << 12 | (b & 0x3F) << 6 | (c & 0x3F);
                uint32_t four = (a & 0x07) << 18 | (b & 0x3F) << 12 | (c & 0x3F) << 6;
                bool tail_b = (b & 0xC0) == 0x80, tail_c = (c & 0xC0) == 0x80;
                if (a < 0x80)
                    expected = 1;
                else if ((a & 0xE0) == 0xC0 && tail_b && two >= 0x80)
                    expected = 2;
                else if ((a & 0xF0) == 0xE0 && tail_b && tail_c && three >= 0x800 &&
                         (three < 0xD800 || three > 0xDFFF))
                    expected = 3;
                else if ((a & 0xF8) == 0xF0 && tail_b && tail_c && four >= 0x10000 && four <= 0x10FFFF)
                    expected = 4;
                if (tp_utf8_sequence(text, 4) != expected) fail_msg("%02X %02X %02X", a, b, c);
                for (size_t size = 1; size < 4; size++) {
                    assert_int_equal(tp_utf8_sequence(text, size), expected <= size ? expected : 0);
                }
            }
        }
    }
}

static void test_show(void **state)
{
    (void)state;
    char shown[TP_SHOWN_SIZE];
    assert_string_equal(tp_show(shown, "", 0), "");
    assert_string_equal(tp_show(shown, "a.b \xc3\xa4 \xf0\x9f\x98\x80", 11),
                        "a.b \xc3\xa4 \xf0\x9f\x98\x80");
    assert_string_equal(tp_show(shown, "a\0b\n\x1b[2J\x7f", 9), "a\\x00b\\x0A\\x1B[2J\\x7F");
    assert_string_equal(tp_show(shown, "\xff\xc3", 2), "\\xFF\\xC3");
    assert_string_equal(tp_show(shown, "\xc2\x9b\xc2\xa0", 4), "\\xC2\\x9B\xc2\xa0");
    char text[300], expected[300];
    memset(text, 'a', sizeof text);
    memset(expected, 'a', sizeof expected);
    strcpy(expected + 128, "");
    assert_string_equal(tp_show(shown, text, 128), expected);
    strcpy(expected + 128, "...");
    assert_string_equal(tp_show(shown, text, 129), expected);
    memcpy(text + 127, "\xc3\xa4", 2);
    strcpy(expected + 127, "...");
    assert_string_equal(tp_show(shown, text, 129), expected);
    memset(text, 0, sizeof text);
    tp_show(shown, text, sizeof text);
    assert_int_equal(strlen(shown), 131);
}

static void test_check_finds_faults(void **state)
{
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                         "\"b\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[4,8]}}";
    uint64_t size = 8 + strlen(header) + 8;
    tp_layout layout = parse(header, 8);
    assert_null(tp_layout_check(&layout, size));
    assert_non_null(tp_layout_check(&layout, size + 1));
    assert_non_null(tp_layout_check(&layout, size - 1));
    layout.spans[1].length = 3;
    assert_non_null(tp_layout_check(&layout, size));
    layout.spans[1].length = 4;
    layout.spans[2].start++;
    assert_non_null(tp_layout_check(&layout, size));
    layout.spans[2].start--;
    layout.spans[2].tensor = 0;
    assert_non_null(tp_layout_check(&layout, size));
    layout.spans[2].tensor = 7;
    assert_non_null(tp_layout_check(&layout, size));
    layout.spans[2].tensor = 1;
    assert_null(tp_layout_check(&layout, size));
    layout.spans[1].cls = TP_CLASS_BF16;
    assert_non_null(tp_layout_check(&layout, size));
    layout.spans[1].cls = TP_CLASS_F32;
    layout.spans[0].cls = TP_CLASS_I8;
    assert_non_null(tp_layout_check(&layout, size));
    layout.spans[0].cls = TP_CLASS_BYTES;
    tp_layout_tensor *tensor = &layout.tensors[1], kept = *tensor;
    tensor->flags = TP_TENSOR_TRUNCATED;
    assert_non_null(tp_layout_check(&layout, size));
    tensor->flags = TP_TENSOR_OPAQUE;
    assert_non_null(tp_layout_check(&layout, size));
    *tensor = kept;
    tensor->dtype = 2;
    assert_non_null(tp_layout_check(&layout, size));
    *tensor = kept;
    tensor->name_size = 100;
    assert_non_null(tp_layout_check(&layout, size));
    *tensor = kept;
    tensor->ndim = 3;
    assert_non_null(tp_layout_check(&layout, size));
    *tensor = kept;
    layout.dtypes[1].size = 100;
    assert_non_null(tp_layout_check(&layout, size));
    layout.dtypes[1].size = 3;
    layout.opaque_tensors = 1;
    assert_non_null(tp_layout_check(&layout, size));
    layout.opaque_tensors = 0;
    strcpy(layout.reason, "none");
    assert_non_null(tp_layout_check(&layout, size));
    strcpy(layout.reason, "");
    assert_null(tp_layout_check(&layout, size));
    tp_layout_free(&layout);
    tp_layout_free(&layout);
    tp_layout_free(NULL);
}

int run_layout(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_files),
        cmocka_unit_test(test_recognised_by_content),
        cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_errors_of_the_source),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_show),
        cmocka_unit_test(test_check_finds_faults),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
