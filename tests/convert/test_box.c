/* tp_read_box: every box against the whole tensor, and what reading one costs. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"

static tp_error error;

/* ------------------------------------------------------------------------------------------------ files */

typedef struct kind { /* of a tensor: the names in both formats */
    const char *name;
    unsigned elements, bytes; /* of a pack */
    uint32_t gguf;            /* id of the type; UINT32_MAX: safetensors only */
} kind;

static const kind kinds[] = {
    {"BF16", 1, 2, 30},
    {"F32", 1, 4, 0},
    {"U8", 1, 1, UINT32_MAX},
    {"I64", 1, 8, 27},
    {"F4", 2, 1, UINT32_MAX},
    {"C64", 1, 8, UINT32_MAX},
    {"F6_E2M3", 4, 3, UINT32_MAX},
    {"F6_E3M2", 4, 3, UINT32_MAX},
};
static const kind gguf_kinds[] = {
    {"F16", 1, 2, 1}, {"Q4_0", 32, 18, 2}, {"Q4_K", 256, 144, 12}, {"NVFP4", 64, 36, 40}, {"I8", 1, 1, 24}};

/* A GGUF file of one tensor. */
static bytes make_gguf(const kind *k, const uint64_t *shape, uint32_t ndim, const uint8_t *data,
                       size_t size)
{
    bytes b = {calloc(1, 4096 + size), 0};
    uint8_t *at = b.data;
    memcpy(at, "GGUF", 4);
    tp_store32(at + 4, 3);
    tp_store64(at + 8, 1);
    tp_store64(at + 24, 1);
    at[32] = 't';
    tp_store32(at + 33, ndim);
    at += 37;
    for (uint32_t i = 0; i < ndim; i++, at += 8) tp_store64(at, shape[i]);
    tp_store32(at, k->gguf);
    at += 12; /* and offset 0 */
    size_t start = ((size_t)(at - b.data) + 31) / 32 * 32;
    if (size > 0) memcpy(b.data + start, data, size);
    b.size = start + (size + 31) / 32 * 32;
    return b;
}

/* A safetensors file of one tensor, as it is and as a container. */
static void write_safetensors(const kind *k, const uint64_t *shape, size_t ndim, const uint8_t *data,
                              size_t size)
{
    tp_writer *writer;
    tp_options options;
    tp_options_init(&options);
    options.force = true;
    if (tp_writer_create(scratch("t.tpress"), -1, NULL, &options, &writer, &error) != TP_OK ||
        tp_writer_add(writer, "t", 1, k->name, shape, ndim, data, size, &error) != TP_OK ||
        tp_writer_finish(writer, NULL, &error) != TP_OK ||
        tp_decompress_file(scratch("t.tpress"), -1, scratch("t"), -1, &options, NULL, &error) != TP_OK)
        fail_msg("%s", error.message);
    tp_writer_close(writer);
}

static void write_gguf(const kind *k, const uint64_t *shape, size_t ndim, const uint8_t *data, size_t size)
{
    tp_options options;
    tp_options_init(&options);
    options.force = true;
    bytes b = make_gguf(k, shape, (uint32_t)ndim, data, size);
    write_file(scratch("t"), b.data, b.size);
    free(b.data);
    if (tp_compress_file(scratch("t"), -1, scratch("t.tpress"), -1, &options, NULL, &error) != TP_OK)
        fail_msg("%s", error.message);
}

/* -------------------------------------------------------------------------------------------- the truth */

/*
 * The box one pack after the other, dimensions slowest first. What is no whole packs is found by looking at
 * each element: the next one of a run is the next one in the tensor.
 */
static bool truth(const kind *k, const uint64_t *shape, size_t ndim, const uint64_t *first,
                  const uint64_t *last, const uint8_t *data, uint8_t *dst, size_t *size)
{
    uint64_t at[8], count = 1, before = UINT64_MAX - 1;
    *size = 0;
    for (size_t d = 0; d < ndim; d++) {
        at[d] = first[d];
        count *= last[d] - first[d];
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t element = 0;
        for (size_t d = 0; d < ndim; d++) element = element * shape[d] + at[d];
        if (element != before + 1 &&
            (element % k->elements != 0 || (i > 0 && (before + 1) % k->elements != 0)))
            return false;
        if (element % k->elements == 0) {
            memcpy(dst + *size, data + element / k->elements * k->bytes, k->bytes);
            *size += k->bytes;
        }
        before = element;
        for (size_t d = ndim; d-- > 0;) {
            if (++at[d] < last[d]) break;
            at[d] = first[d];
        }
    }
    return count == 0 || (before + 1) % k->elements == 0;
}

/* ----------------------------------------------------------------------------------------- random boxes */

static size_t size_of(const kind *k, const uint64_t *shape, size_t ndim)
{
    size_t count = 1;
    for (size_t d = 0; d < ndim; d++) count *= (size_t)shape[d];
    return count / k->elements * k->bytes;
}

/* Ranges that are whole, empty, one element or anything; for packs often aligned ones. */
static void random_range(uint64_t *seed, uint64_t size, unsigned pack, uint64_t *first, uint64_t *last)
{
    uint64_t how = random_next(seed) % 8;
    uint64_t a = random_next(seed) % (size + 1), b = random_next(seed) % (size + 1);
    if (how < 3 || size == 0) {
        a = 0;
        b = size;
    } else if (how == 3 && a < size) {
        b = a + 1;
    } else if (how < 7) {
        a = a / pack * pack;
        b = b / pack * pack;
    }
    *first = a < b ? a : b;
    *last = a < b ? b : a;
}

static unsigned refused, taken;

static void check_boxes(const kind *k, bool gguf, const uint64_t *shape, size_t ndim, const uint8_t *data,
                        size_t size, uint64_t *seed, unsigned boxes)
{
    uint8_t *expected = malloc(size + 1), *got = malloc(size + 1);
    uint64_t slow[8], first[8], last[8], given_first[8], given_last[8];
    for (unsigned plain = 0; plain < 2; plain++) {
        tp_reader *reader;
        if (tp_open(scratch(plain ? "t" : "t.tpress"), &reader, &error) != TP_OK)
            fail_msg("%s", error.message);
        assert_int_equal(tp_reader_tensors(reader), 1);
        for (unsigned i = 0; i < boxes; i++) {
            for (size_t d = 0; d < ndim; d++) {
                size_t k_in_file = gguf ? ndim - 1 - d : d;
                slow[d] = shape[k_in_file];
                random_range(seed, slow[d], d == ndim - 1 ? k->elements : 1, &first[d], &last[d]);
                given_first[k_in_file] = first[d];
                given_last[k_in_file] = last[d];
            }
            size_t expected_size, got_size, asked;
            bool whole = truth(k, slow, ndim, first, last, data, expected, &expected_size);
            tp_status status =
                tp_read_box(reader, 0, given_first, given_last, ndim, NULL, 0, &asked, &error);
            if (!whole) {
                assert_int_equal(status, TP_INVALID_ARGUMENT);
                assert_non_null(
                    strstr(error.message, ": tensor 't': the box does not consist of whole packs of "));
                refused++;
                continue;
            }
            if (status != TP_OK) fail_msg("%s: %s", k->name, error.message);
            assert_int_equal(asked, expected_size);
            memset(got, 0xaa, size);
            if (tp_read_box(reader, 0, given_first, given_last, ndim, got, asked, &got_size, &error) !=
                TP_OK)
                fail_msg("%s: %s", k->name, error.message);
            assert_int_equal(got_size, expected_size);
            if (expected_size > 0) assert_memory_equal(got, expected, expected_size);
            for (size_t rest = expected_size; rest < size; rest++) assert_true(got[rest] == 0xaa);
            if (asked > 0)
                assert_int_equal(tp_read_box(reader, 0, given_first, given_last, ndim, got, asked - 1,
                                             &got_size, &error),
                                 TP_BUFFER_TOO_SMALL);
            taken++;
        }
        tp_close(reader);
    }
    free(expected);
    free(got);
}

static void random_boxes(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static uint8_t data[1 << 20];
    fill_random(data, sizeof data, 3);
    refused = taken = 0;
    for (unsigned round = 0; round < (SLOW_BUILD ? 60u : 300u); round++) {
        bool gguf = random_next(&seed) % 3 == 0;
        const kind *k = gguf ? &gguf_kinds[random_next(&seed) % (sizeof gguf_kinds / sizeof *gguf_kinds)]
                             : &kinds[random_next(&seed) % (sizeof kinds / sizeof *kinds)];
        uint64_t shape[8];
        size_t ndim = random_next(&seed) % (gguf ? 5 : 7); /* 0 too */
        if (gguf && k->elements > 1 && ndim == 0) ndim = 2;
        for (size_t d = 0; d < ndim; d++) shape[d] = 1 + random_next(&seed) % (d > 3 ? 3 : 7);
        if (ndim > 0 && random_next(&seed) % 16 == 0) shape[random_next(&seed) % ndim] = 0;
        /* Whole packs as a tensor; of GGUF's types in every row. F4 and F6 have rows that are none. */
        if (ndim > 0 && k->elements > 1) {
            size_t fast = gguf ? 0 : random_next(&seed) % ndim;
            shape[fast] = (1 + random_next(&seed) % 3) * k->elements;
        }
        if (ndim == 0 && k->elements > 1) continue;
        size_t size = size_of(k, shape, ndim);
        assert_true(size < sizeof data);
        (gguf ? write_gguf : write_safetensors)(k, shape, ndim, data, size);
        check_boxes(k, gguf, shape, ndim, data, size, &seed, 30);
    }
    assert_true(refused > 100 && taken > 1000);
}

/* ---------------------------------------------------------------------------------------- large tensors */

typedef struct counting {
    bytes file;
    unsigned calls;
    uint64_t read;
} counting;

static int64_t count_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *cause)
{
    counting *c = context;
    (void)cause;
    c->calls++;
    c->read += size;
    memcpy(dst, c->file.data + offset, size);
    return (int64_t)size;
}

/*
 * Two columns of a tensor over several frames: each frame is read and decoded once, not once a row, and of
 * a plain file, whose rows are short, it is few reads too. One row of many is one frame.
 */
static void few_reads(void **state)
{
    (void)state;
    const kind k = {"BF16", 1, 2, 30};
    uint64_t shape[2] = {5000, 2000}, first[2] = {0, 998}, last[2] = {5000, 1000};
    size_t size = 20000000, got_size;
    uint8_t *data = malloc(size), *got = malloc(size);
    fill_bf16(data, size / 2, 1);
    write_safetensors(&k, shape, 2, data, size);
    for (unsigned plain = 0; plain < 2; plain++) {
        counting c = {.file = read_file(scratch(plain ? "t" : "t.tpress"))};
        tp_reader *reader;
        assert_int_equal(tp_open_callback(count_read, &c, c.file.size, "t.safetensors", &reader, &error),
                         TP_OK);
        size_t frames = plain ? 5 : tp_reader_frames(reader) - 1;
        assert_in_range(frames, 5, 6);
        c.calls = 0;
        assert_int_equal(tp_read_box(reader, 0, first, last, 2, got, size, &got_size, &error), TP_OK);
        assert_int_equal(got_size, 20000);
        for (size_t row = 0; row < 5000; row++)
            assert_true(memcmp(got + 4 * row, data + 4000 * row + 1996, 4) == 0);
        assert_int_equal(c.calls, frames);
        /* A range of rows, and one row. */
        uint64_t some_first[2] = {2100, 0}, some_last[2] = {2102, 2000};
        c.calls = 0;
        c.read = 0;
        assert_int_equal(tp_read_box(reader, 0, some_first, some_last, 2, got, size, &got_size, &error),
                         TP_OK);
        assert_int_equal(got_size, 8000);
        assert_memory_equal(got, data + 2100 * 4000, 8000);
        assert_int_equal(c.calls, 1);
        if (plain) assert_int_equal(c.read, 8000);
        tp_close(reader);
        free(c.file.data);
    }
    /* Two pieces with whole frames between them, which are not read. */
    uint64_t planes[3] = {2, 5000, 1000}, from[3] = {0, 7, 3}, to[3] = {2, 9, 5};
    write_safetensors(&k, planes, 3, data, size);
    for (unsigned plain = 0; plain < 2; plain++) {
        counting c = {.file = read_file(scratch(plain ? "t" : "t.tpress"))};
        tp_reader *reader;
        assert_int_equal(tp_open_callback(count_read, &c, c.file.size, "t", &reader, &error), TP_OK);
        c.calls = 0;
        assert_int_equal(tp_read_box(reader, 0, from, to, 3, got, size, &got_size, &error), TP_OK);
        assert_int_equal(got_size, 16);
        for (size_t i = 0; i < 4; i++)
            assert_memory_equal(got + 4 * i, data + (i / 2 * 5000 + 7 + i % 2) * 2000 + 6, 4);
        assert_int_equal(c.calls, 2);
        tp_close(reader);
        free(c.file.data);
    }
    /* Rows far apart in a plain file are read one by one, and nothing between them. */
    shape[0] = 10;
    shape[1] = 1000000;
    last[0] = 10;
    write_safetensors(&k, shape, 2, data, size);
    counting c = {.file = read_file(scratch("t"))};
    tp_reader *reader;
    assert_int_equal(tp_open_callback(count_read, &c, c.file.size, "t", &reader, &error), TP_OK);
    c.calls = 0;
    c.read = 0;
    assert_int_equal(tp_read_box(reader, 0, first, last, 2, got, size, &got_size, &error), TP_OK);
    for (size_t row = 0; row < 10; row++)
        assert_memory_equal(got + 4 * row, data + 2000000 * row + 1996, 4);
    assert_int_equal(c.calls, 10);
    assert_int_equal(c.read, 40);
    tp_close(reader);
    free(c.file.data);
    free(data);
    free(got);
}

/* --------------------------------------------------------------------------------------------- refusals */

/* Every refusal has its whole message. */
static void refusals(void **state)
{
    (void)state;
    static const char header[] = "{\"m\":{\"dtype\":\"U8\",\"shape\":[4,5],\"data_offsets\":[0,20]},"
                                 "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[20,21]},"
                                 "\"o\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[21,24]},"
                                 "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[24,27]},"
                                 "\"cut\":{\"dtype\":\"U8\",\"shape\":[4,5],\"data_offsets\":[27,47]}}";
    uint8_t file[1024], got[64];
    size_t start = 8 + sizeof header - 1, size;
    char expected[700];
    tp_reader *reader;
    tp_store64(file, sizeof header - 1);
    memcpy(file + 8, header, sizeof header - 1);
    for (uint8_t i = 0; i < 40; i++) file[start + i] = i;
    write_file(scratch("r.safetensors"), file, start + 39); /* "cut" has two rows and two of the third */
    if (tp_compress_file(scratch("r.safetensors"), -1, scratch("r.tpress"), -1, NULL, NULL, &error) !=
        TP_OK)
        fail_msg("%s", error.message);
    for (unsigned plain = 0; plain < 2; plain++) {
        const char *name = plain ? "r.safetensors" : "r.tpress";
        assert_int_equal(tp_open(scratch(name), &reader, &error), TP_OK);
#define REFUSED(tensor, first, last, ndim, room, status, text)                                             \
    do {                                                                                                   \
        snprintf(expected, sizeof expected, "%s: " text, scratch(name));                                   \
        assert_error(tp_read_box(reader, tensor, (const uint64_t[])first, (const uint64_t[])last, ndim,    \
                                 got, room, &size, &error),                                                \
                     error, status, expected);                                                             \
    } while (0)
#define TO(a, b) {a, b}
        REFUSED(0, TO(0, 0), TO(4, 6), 2, 64, TP_INVALID_ARGUMENT,
                "tensor 'm': 0:6 is out of range, dimension 1 has 5");
        REFUSED(0, TO(3, 0), TO(2, 5), 2, 64, TP_INVALID_ARGUMENT,
                "tensor 'm': 3:2 is out of range, dimension 0 has 4");
        REFUSED(0, TO(0, 0), TO(4, UINT64_MAX), 2, 64, TP_INVALID_ARGUMENT,
                "tensor 'm': 0:18446744073709551615 is out of range, dimension 1 has 5");
        REFUSED(0, TO(0, 0), TO(4, 5), 1, 64, TP_INVALID_ARGUMENT, "tensor 'm': has 2 dimensions, not 1");
        REFUSED(0, TO(0, 0), TO(4, 5), 2, 19, TP_BUFFER_TOO_SMALL, "tensor 'm': larger than the buffer");
        REFUSED(1, TO(0, 0), TO(1, 1), 1, 64, TP_INVALID_ARGUMENT, "tensor 's': has 0 dimensions, not 1");
        REFUSED(2, TO(0, 0), TO(1, 1), 1, 64, TP_INVALID_ARGUMENT,
                "tensor 'o': its size does not follow from dtype and shape, so it has no boxes");
        REFUSED(3, TO(0, 0), TO(1, 3), 2, 64, TP_INVALID_ARGUMENT,
                "tensor 'f4': the box does not consist of whole packs of 2 elements in 1 bytes");
        REFUSED(3, TO(0, 1), TO(2, 2), 2, 64, TP_INVALID_ARGUMENT,
                "tensor 'f4': the box does not consist of whole packs of 2 elements in 1 bytes");
        REFUSED(4, TO(2, 2), TO(3, 3), 2, 64, TP_TRUNCATED,
                "tensor 'cut': truncated: the file ends before it");
        assert_true(error.has_offset);
        REFUSED(5, TO(0, 0), TO(1, 1), 2, 64, TP_INVALID_ARGUMENT, "has no tensor 5");
        /* What is there of a truncated tensor can be read; a scalar has one box; an empty box has no bytes.
         */
        assert_int_equal(
            tp_read_box(reader, 4, (uint64_t[]){0, 1}, (uint64_t[]){3, 2}, 2, got, 3, &size, &error),
            TP_OK);
        assert_memory_equal(got, "\x1c\x21\x26", 3);
        assert_int_equal(tp_read_box(reader, 1, NULL, NULL, 0, got, 1, &size, &error), TP_OK);
        assert_int_equal(size, 1);
        assert_int_equal(got[0], 20);
        assert_int_equal(
            tp_read_box(reader, 0, (uint64_t[]){4, 0}, (uint64_t[]){4, 5}, 2, got, 0, &size, &error),
            TP_OK);
        assert_int_equal(size, 0);
        assert_int_equal(
            tp_read_box(reader, 0, (uint64_t[]){0, 0}, (uint64_t[]){4, 6}, 2, NULL, 0, &size, NULL),
            TP_INVALID_ARGUMENT);
        tp_close(reader);
    }
}

/* An index whose shapes, sizes and dtypes do not fit each other, as no writer makes it. */
static void hostile_shapes(void **state)
{
    (void)state;
    const kind k = {"U8", 1, 1, UINT32_MAX};
    static const uint64_t shapes[][2] = {{(uint64_t)1 << 63, 2},
                                         {(uint64_t)1 << 33, (uint64_t)1 << 33},
                                         {UINT64_MAX, 1},
                                         {((uint64_t)1 << 63) + 1, 30}, /* 30 modulo 2^64 */
                                         {7, 5},
                                         {0, 30}};
    uint8_t data[30] = {0}, got[64];
    uint64_t shape[2] = {6, 5};
    size_t size;
    write_safetensors(&k, shape, 2, data, sizeof data);
    bytes container = read_file(scratch("t.tpress"));
    parts p = take_apart(container);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        /* One file without SHA-256: size, digest; then the tensor's offset, size and dimensions. */
        tp_store64(p.index.data + 64 + 24 + 16, shapes[i][0]);
        tp_store64(p.index.data + 64 + 24 + 24, shapes[i][1]);
        bytes changed = put_together(&p);
        write_file(scratch("h.tpress"), changed.data, changed.size);
        free(changed.data);
        tp_reader *reader;
        if (tp_open(scratch("h.tpress"), &reader, &error) != TP_OK) fail_msg("%s", error.message);
        tp_tensor_info info;
        assert_int_equal(tp_reader_tensor(reader, 0, &info), TP_OK);
        assert_int_equal(info.shape[0], shapes[i][0]);
        uint64_t first[2] = {0, 0}, last[2] = {shapes[i][0] > 0, 1};
        assert_int_equal(tp_read_box(reader, 0, first, last, 2, got, sizeof got, &size, &error),
                         TP_CORRUPT);
        assert_non_null(strstr(error.message, ": tensor 't': its size is not that of its dtype and shape"));
        tp_close(reader);
    }
    parts_free(&p);
    free(container.data);
}

static int clean(void **state)
{
    (void)state;
    scratch_remove();
    return 0;
}

int test_box(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(random_boxes, clean),
        cmocka_unit_test_setup(few_reads, clean),
        cmocka_unit_test_setup(refusals, clean),
        cmocka_unit_test_setup(hostile_shapes, clean),
    };
    return cmocka_run_group_tests_name("box", tests, NULL, clean);
}
