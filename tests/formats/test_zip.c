/* ZIP files and what is found in them: PyTorch's checkpoints, DDUF, NPZ; and NPY alone. */
#include "support.h"

#include <time.h>

#include "formats/zip.h"

/* ------------------------------------------------------------------------------------- hand-built files */

enum {
    STREAMED = 1, /* as PyTorch's: no CRC and sizes in the local header, but a data descriptor */
    ALIGNED = 2,  /* data at a multiple of 64, by an extra field */
    ZIP64 = 4     /* sizes in extra fields, here and in the directory; the offset too there */
};
#define TORCH (STREAMED | ALIGNED)
#define ENTRIES_MAX 200

typedef struct buffer {
    uint8_t *data;
    size_t size, capacity;
} buffer;

typedef struct zip {
    buffer file, directory;
    size_t count;
    size_t local[ENTRIES_MAX], start[ENTRIES_MAX]; /* in the file */
    size_t record[ENTRIES_MAX];                    /* in the directory; in the file once it is finished */
    size_t end, end64, locator;                    /* of a finished file */
} zip;

static void put(buffer *b, const void *data, size_t size)
{
    if (b->capacity - b->size < size) {
        b->capacity = 2 * (b->size + size);
        b->data = realloc(b->data, b->capacity);
        assert_non_null(b->data);
    }
    if (size != 0) memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_number(buffer *b, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) put(b, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void poke(zip *z, size_t at, uint64_t value, size_t size)
{
    assert_true(at + size <= z->file.size);
    for (size_t i = 0; i < size; i++) z->file.data[at + i] = (uint8_t)(value >> 8 * i);
}

/* Version, flags, method, time and date. */
static void put_common(buffer *b, unsigned how, unsigned method)
{
    put_number(b, (how & ZIP64) ? 45 : 0, 2);
    put_number(b, (how & STREAMED) ? 0x808 : 0x800, 2);
    put_number(b, method, 2);
    put_number(b, 0, 4);
}

static void add_as(zip *z, unsigned how, unsigned method, const char *name, const void *data, size_t size)
{
    size_t name_size = strlen(name), i = z->count++;
    assert_true(i < ENTRIES_MAX);
    uint32_t crc = 0x12345678; /* nobody looks */
    uint64_t told = (how & ZIP64) ? UINT32_MAX : size;
    z->local[i] = z->file.size;
    put(&z->file, "PK\3\4", 4);
    put_common(&z->file, how, method);
    put_number(&z->file, (how & STREAMED) ? 0 : crc, 4);
    for (int k = 0; k < 2; k++) put_number(&z->file, (how & STREAMED) ? 0 : told, 4);
    put_number(&z->file, name_size, 2);
    size_t extra = (how & ZIP64) ? 20 : 0, fill = 0;
    if (how & ALIGNED) {
        fill = 64 - (z->file.size + 2 + name_size + extra + 4) % 64;
        extra += 4 + fill;
    }
    put_number(&z->file, extra, 2);
    put(&z->file, name, name_size);
    if (how & ZIP64) {
        put_number(&z->file, 1 | 16 << 16, 4);
        put_number(&z->file, size, 8);
        put_number(&z->file, size, 8);
    }
    if (how & ALIGNED) {
        put(&z->file, "FB", 2);
        put_number(&z->file, fill, 2);
        for (size_t k = 0; k < fill; k++) put(&z->file, "Z", 1);
    }
    z->start[i] = z->file.size;
    put(&z->file, data, size);
    if (how & STREAMED) {
        put(&z->file, "PK\7\10", 4);
        put_number(&z->file, crc, 4);
        put_number(&z->file, size, 4);
        put_number(&z->file, size, 4);
    }

    buffer *d = &z->directory;
    z->record[i] = d->size;
    put(d, "PK\1\2", 4);
    put_number(d, 0, 2);
    put_common(d, how, method);
    put_number(d, crc, 4);
    put_number(d, told, 4);
    put_number(d, told, 4);
    put_number(d, name_size, 2);
    put_number(d, (how & ZIP64) ? 34 : 0, 2);
    put_number(d, 0, 8); /* no comment, disk 0, attributes */
    put_number(d, 0, 2);
    put_number(d, (how & ZIP64) ? UINT32_MAX : z->local[i], 4);
    put(d, name, name_size);
    if (how & ZIP64) {
        put_number(d, 0x7777 | 2 << 16, 4); /* somebody's extra field before */
        put_number(d, 0, 2);
        put_number(d, 1 | 24 << 16, 4);
        put_number(d, size, 8);
        put_number(d, size, 8);
        put_number(d, z->local[i], 8);
    }
}

static void add(zip *z, const char *name, const void *data, size_t size)
{
    add_as(z, TORCH, 0, name, data, size);
}

/* Data that are never looked at. */
static void add_data(zip *z, const char *name, size_t size)
{
    static const uint8_t data[4096];
    assert_true(size <= sizeof data);
    add(z, name, data, size);
}

/* The directory and the end; `zip64`: with its end record too, and the plain one's numbers full. */
static void finish_as(zip *z, bool zip64, bool full, const char *comment, size_t comment_size)
{
    size_t start = z->file.size, size = z->directory.size;
    put(&z->file, z->directory.data, size);
    for (size_t i = 0; i < z->count; i++) z->record[i] += start;
    if (zip64) {
        z->end64 = z->file.size;
        put(&z->file, "PK\6\6", 4);
        put_number(&z->file, 44, 8);
        put_number(&z->file, 45 << 16 | 45, 4);
        put_number(&z->file, 0, 8);
        put_number(&z->file, z->count, 8);
        put_number(&z->file, z->count, 8);
        put_number(&z->file, size, 8);
        put_number(&z->file, start, 8);
        z->locator = z->file.size;
        put(&z->file, "PK\6\7", 4);
        put_number(&z->file, 0, 4);
        put_number(&z->file, z->end64, 8);
        put_number(&z->file, 1, 4);
    }
    z->end = z->file.size;
    put(&z->file, "PK\5\6", 4);
    put_number(&z->file, 0, 4);
    put_number(&z->file, full ? UINT16_MAX : z->count, 2);
    put_number(&z->file, full ? UINT16_MAX : z->count, 2);
    put_number(&z->file, full ? UINT32_MAX : size, 4);
    put_number(&z->file, full ? UINT32_MAX : start, 4);
    put_number(&z->file, comment_size, 2);
    put(&z->file, comment, comment_size);
}

static void finish(zip *z)
{
    finish_as(z, true, false, "", 0);
}

static void zip_free(zip *z)
{
    free(z->file.data);
    free(z->directory.data);
    *z = (zip){0};
}

static tp_layout parse_zip(const zip *z, const char *name)
{
    file f = {.data = z->file.data, .size = z->file.size};
    tp_layout layout = parse_file(&f, name);
    assert_int_equal(layout.format, TP_FORMAT_BYTES);
    assert_string_equal(layout.reason, "");
    assert_int_equal(layout.tensor_count, 0);
    return layout;
}

/*
 * The typed spans must be exactly these, given by entry, offset in its data, length and class; the rest
 * bytes. The file is then freed.
 */
typedef struct range {
    size_t entry, offset, size;
    tp_class cls;
} range;

static void check_zip(zip *z, const char *name, const range *ranges, size_t count)
{
    tp_layout layout = parse_zip(z, name);
    size_t found = 0;
    for (size_t i = 0; i < layout.span_count; i++) {
        const tp_span *span = &layout.spans[i];
        assert_int_equal(span->tensor, TP_NO_TENSOR);
        if (span->cls == TP_CLASS_BYTES) continue;
        if (found == count) fail_msg("typed: %s", spans_text(&layout));
        const range *r = &ranges[found++];
        assert_int_equal(span->start, z->start[r->entry] + r->offset);
        assert_int_equal(span->length, r->size);
        assert_int_equal(span->cls, r->cls);
    }
    if (found != count) fail_msg("not typed: %s", spans_text(&layout));
    tp_layout_free(&layout);
}

#define TYPED_AS(z, name, ...)                                                                             \
    check_zip(z, name, (const range[]){__VA_ARGS__}, sizeof((const range[]){__VA_ARGS__}) / sizeof(range))
#define TYPED(z, ...) TYPED_AS(z, "model.pt", __VA_ARGS__)
#define UNTYPED(z) check_zip(z, "model.pt", NULL, 0)

/* ------------------------------------------------------------------------------------------ checkpoints */

/* A pickle of a dict of tensors, "KEY TYPE COUNT ..." in `storages`. */
static void put_pickle(buffer *p, const char *storages)
{
    char text[1000], *rest = text, *key;
    snprintf(text, sizeof text, "%s", storages);
    put(p, "\200\2}(", 4);
    while ((key = strtok_r(rest, " ", &rest)) != NULL) {
        const char *type = strtok_r(rest, " ", &rest);
        long count = strtol(strtok_r(rest, " ", &rest), NULL, 10);
        char line[100];
        put(p, "X\1\0\0\0w", 6);
        put(p, "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage", 47);
        put(p, line, (size_t)snprintf(line, sizeof line, "ctorch\n%s\nX", type));
        put_number(p, strlen(key), 4);
        put(p, key, strlen(key));
        put(p, "X\3\0\0\0cpuJ", 9);
        put_number(p, (uint64_t)count, 4);
        put(p, "tQK\0)))\211NtR", 11);
    }
    put(p, "u.", 2);
}

static void add_pickle(zip *z, unsigned how, const char *name, const char *storages)
{
    buffer p = {0};
    put_pickle(&p, storages);
    add_as(z, how, 0, name, p.data, p.size);
    free(p.data);
}

/* Entry 0 is the pickle. */
static zip start(const char *storages)
{
    zip z = {0};
    add_pickle(&z, TORCH, "m/data.pkl", storages);
    return z;
}

static void test_checkpoint(void **state)
{
    (void)state;
    zip z = start("0 FloatStorage 4 1 HalfStorage 3 2 LongStorage 2 3 BFloat16Storage 5");
    add(&z, "m/byteorder", "little", 6);
    add_data(&z, "m/data/0", 16);
    add_data(&z, "m/data/1", 6);
    add_data(&z, "m/data/2", 16);
    add_data(&z, "m/data/3", 10);
    add(&z, "m/version", "3\n", 2);
    finish(&z);
    tp_layout layout = parse_zip(&z, "model.pt");
    char expected[500];
    snprintf(expected, sizeof expected,
             "0+%zu:bytes:- %zu+16:f32:- %zu+%zu:bytes:- %zu+6:f16:- %zu+%zu:bytes:- %zu+16:i64:- "
             "%zu+%zu:bytes:- %zu+10:bf16:- %zu+%zu:bytes:-",
             z.start[2], z.start[2], z.start[2] + 16, z.start[3] - z.start[2] - 16, z.start[3],
             z.start[3] + 6, z.start[4] - z.start[3] - 6, z.start[4], z.start[4] + 16,
             z.start[5] - z.start[4] - 16, z.start[5], z.start[5] + 10, z.file.size - z.start[5] - 10);
    assert_string_equal(spans_text(&layout), expected);
    tp_layout_free(&layout);
    zip_free(&z);

    /* By content, whatever the name; but a name of a format stays that format's. */
    z = start("0 FloatStorage 1");
    add_data(&z, "m/data/0", 4);
    finish(&z);
    TYPED_AS(&z, "pytorch_model.bin", {1, 0, 4, TP_CLASS_F32});
    TYPED_AS(&z, NULL, {1, 0, 4, TP_CLASS_F32});
    file f = {.data = z.file.data, .size = z.file.size};
    layout = parse_file(&f, "x.safetensors");
    assert_int_equal(layout.span_count, 1);
    assert_int_not_equal(layout.reason[0], 0);
    tp_layout_free(&layout);
    zip_free(&z);
}

/* Writers differ: sizes in the local header, zip64 everywhere or nowhere, no alignment, no folder. */
static void test_writers(void **state)
{
    (void)state;
    for (unsigned how = 0; how < 8; how++) {
        for (unsigned end = 0; end < 4; end++) {
            zip z = {0};
            add_pickle(&z, how, "data.pkl", "0 FloatStorage 2 10 ShortStorage 2");
            add_as(&z, how, 0, "data/0", "12345678", 8);
            add_as(&z, how, 0, "data/10", "1234", 4);
            add_as(&z, how, 0, "data/", "", 0);
            finish_as(&z, end >= 1, end == 2, "a comment", end == 3 ? 9 : 0);
            TYPED(&z, {1, 0, 8, TP_CLASS_F32}, {2, 0, 4, TP_CLASS_I16});
            zip_free(&z);
        }
    }
}

/* Which entries are storages, and of which type and size. */
static void test_storages(void **state)
{
    (void)state;
    static const struct {
        const char *name, *storages;
        size_t size, typed;
        tp_class cls;
    } cases[] = {
        {"m/data/0", "0 FloatStorage 4", 16, 16, TP_CLASS_F32},
        {"m/data/94340341200128", "94340341200128 FloatStorage 4", 16, 16, TP_CLASS_F32},
        /* whole elements typed, the rest bytes */
        {"m/data/0", "0 FloatStorage 4", 19, 16, TP_CLASS_F32},
        {"m/data/0", "0 ComplexDoubleStorage 1", 16, 16, TP_CLASS_F64},
        {"m/data/0", "0 ComplexDoubleStorage 1", 31, 24, TP_CLASS_F64},
        /* the count does not fit */
        {"m/data/0", "0 FloatStorage 4", 20, 0, 0},
        {"m/data/0", "0 FloatStorage 4", 15, 0, 0},
        {"m/data/0", "0 FloatStorage 0", 16, 0, 0},
        {"m/data/0", "0 FloatStorage 0", 0, 0, 0},
        {"m/data/0", "0 FloatStorage 0", 3, 0, 0},
        {"m/data/0", "0 FloatStorage -1", 16, 0, 0},
        /* types that mean nothing here */
        {"m/data/0", "0 QInt8Storage 16", 16, 0, 0},
        {"m/data/0", "0 UntypedStorage 16", 16, 0, 0},
        {"m/data/0", "0 FloatStorage 4 0 IntStorage 4", 16, 0, 0},
        {"m/data/0", "0 FloatStorage 4 0 FloatStorage 4", 16, 16, TP_CLASS_F32},
        /* other names */
        {"m/data/1", "0 FloatStorage 4", 16, 0, 0},
        {"m/data/00", "0 FloatStorage 4", 16, 0, 0},
        {"n/data/0", "0 FloatStorage 4", 16, 0, 0},
        {"data/0", "0 FloatStorage 4", 16, 0, 0},
        {"m/n/data/0", "0 FloatStorage 4", 16, 0, 0},
        {"m/data/0/", "0 FloatStorage 4", 16, 0, 0},
        {"m/data.0", "0 FloatStorage 4", 16, 0, 0},
        {"m/data/", "0 FloatStorage 4", 16, 0, 0},
        {"m/data0", "0 FloatStorage 4", 16, 0, 0},
        {"", "0 FloatStorage 4", 16, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zip z = start(cases[i].storages);
        add_data(&z, cases[i].name, cases[i].size);
        finish(&z);
        if (cases[i].typed != 0)
            TYPED(&z, {1, 0, cases[i].typed, cases[i].cls});
        else
            UNTYPED(&z);
        zip_free(&z);
    }

    /* Two pickles, as TorchScript has them; the same key means two storages. */
    zip z = start("0 FloatStorage 4");
    add_data(&z, "m/data/0", 16);
    add_data(&z, "m/constants/0", 16);
    add_pickle(&z, TORCH, "m/constants.pkl", "0 LongStorage 2 1 CharStorage 3");
    add_data(&z, "m/constants/1", 3);
    finish(&z);
    TYPED(&z, {1, 0, 16, TP_CLASS_F32}, {2, 0, 16, TP_CLASS_I64}, {4, 0, 3, TP_CLASS_I8});
    zip_free(&z);

    /* Two of the same: whose storages are these? */
    z = start("0 FloatStorage 4");
    add_data(&z, "m/data/0", 16);
    add_pickle(&z, TORCH, "n/data.pkl", "0 FloatStorage 4");
    finish(&z);
    UNTYPED(&z);
    zip_free(&z);

    /* The pickle behind its storages; a broken one. */
    z = (zip){0};
    add_data(&z, "m/data/0", 16);
    add_pickle(&z, TORCH, "m/data.pkl", "0 FloatStorage 4");
    finish(&z);
    TYPED(&z, {0, 0, 16, TP_CLASS_F32});
    z.file.data[z.start[1] + 2] = 'I';
    UNTYPED(&z);
    zip_free(&z);
}

static void test_byte_order(void **state)
{
    (void)state;
    static const struct {
        const char *order;
        int typed; /* 2: swapped */
    } cases[] = {{"little", 1}, {"big", 2},      {"Little", 0}, {"", 0},
                 {"bigger", 0}, {"little\n", 0}, {"pig", 0}};
    static const struct {
        const char *type;
        size_t size;
        tp_class little, big;
    } types[] = {
        {"FloatStorage", 4, TP_CLASS_F32, TP_CLASS_I32},
        {"HalfStorage", 2, TP_CLASS_F16, TP_CLASS_I16},
        {"BFloat16Storage", 2, TP_CLASS_BF16, TP_CLASS_I16},
        {"DoubleStorage", 8, TP_CLASS_F64, TP_CLASS_I64},
        {"LongStorage", 8, TP_CLASS_I64, TP_CLASS_I64},
        {"CharStorage", 1, TP_CLASS_I8, TP_CLASS_I8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            char storages[50];
            snprintf(storages, sizeof storages, "0 %s 2", types[k].type);
            zip z = start(storages);
            add_data(&z, "m/data/0", 2 * types[k].size);
            add(&z, "m/byteorder", cases[i].order, strlen(cases[i].order));
            finish(&z);
            if (cases[i].typed == 0)
                UNTYPED(&z);
            else
                TYPED(&z, {1, 0, 2 * types[k].size, cases[i].typed == 1 ? types[k].little : types[k].big});
            zip_free(&z);
        }
    }
    zip z = start("0 FloatStorage 1");
    add_data(&z, "m/data/0", 4);
    add(&z, "m/byteorder", "little", 6);
    add(&z, "n/byteorder", "big", 3);
    finish(&z);
    UNTYPED(&z);
    zip_free(&z);
}

/* ----------------------------------------------------------------------------------------------- traps */

/* Three storages of F32, entries 1 to 3. */
static zip make(void)
{
    zip z = start("0 FloatStorage 4 1 FloatStorage 4 2 FloatStorage 4");
    add_data(&z, "m/data/0", 16);
    add_data(&z, "m/data/1", 16);
    add_data(&z, "m/data/2", 16);
    finish(&z);
    return z;
}

#define ALL                                                                                                \
    {1, 0, 16, TP_CLASS_F32}, {2, 0, 16, TP_CLASS_F32},                                                    \
    {                                                                                                      \
        3, 0, 16, TP_CLASS_F32                                                                             \
    }
#define BUT_SECOND                                                                                         \
    {1, 0, 16, TP_CLASS_F32},                                                                              \
    {                                                                                                      \
        3, 0, 16, TP_CLASS_F32                                                                             \
    }

/* An entry that is not what the directory says, or not stored, is bytes; the others are not touched. */
static void test_entries(void **state)
{
    (void)state;
    enum { LOCAL, RECORD };
    static const struct {
        int where;
        size_t offset, size;
        uint64_t value;
        bool typed;
    } cases[] = {
        {LOCAL, 0, 4, 0x04034B51, false}, /* signature */
        {LOCAL, 8, 2, 8, false},          /* method */
        {LOCAL, 18, 4, 17, false},        /* sizes */
        {LOCAL, 22, 4, 17, false},
        {LOCAL, 18, 4, 16, true},
        {LOCAL, 18, 4, UINT32_MAX, true},
        {LOCAL, 14, 4, 1, true},  /* CRC */
        {LOCAL, 26, 2, 7, false}, /* name */
        {LOCAL, 26, 2, 9, false},
        {LOCAL, 30, 1, 'n', false},
        {LOCAL, 28, 2, 0xFFFF, false}, /* extra field beyond the directory */
        {RECORD, 8, 2, 0x809, false},  /* encrypted */
        {RECORD, 8, 2, 0x2808, false},
        {RECORD, 10, 2, 8, false}, /* deflated */
        {RECORD, 10, 2, 99, false},
        {RECORD, 16, 4, 0, true},   /* CRC */
        {RECORD, 20, 4, 15, false}, /* stored and plain size differ */
        {RECORD, 24, 4, 17, false},
        {RECORD, 42, 4, 0, false}, /* local header: the pickle's */
        {RECORD, 42, 4, 1, false},
        {RECORD, 42, 4, 0xFFFFFFF0, false},
        {RECORD, 42, 4, UINT32_MAX, false}, /* in zip64's field, which is not there */
        {RECORD, 46, 1, 'n', false},        /* name */
        {RECORD, 36, 6, UINT64_MAX, true},  /* attributes */
        {RECORD, 34, 2, 1, true},           /* disk: of files that are not split, nobody's business */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zip z = make();
        poke(&z, (cases[i].where == LOCAL ? z.local : z.record)[2] + cases[i].offset, cases[i].value,
             cases[i].size);
        if (cases[i].typed)
            TYPED(&z, ALL);
        else
            TYPED(&z, BUT_SECOND);
        zip_free(&z);
    }
    /* Sizes that reach into the directory, or beyond the file. */
    static const uint64_t sizes[] = {4096, 100000, 0xFFFFFFF0, UINT32_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        zip z = make();
        poke(&z, z.record[2] + 20, sizes[i], 4);
        poke(&z, z.record[2] + 24, sizes[i], 4);
        TYPED(&z, BUT_SECOND);
        zip_free(&z);
    }
}

static void test_zip64_fields(void **state)
{
    (void)state;
    static const struct {
        size_t offset, size; /* from the end of the name */
        uint64_t value;
        bool typed;
    } cases[] = {
        {0, 2, 0x7778, true},                          /* the field before */
        {2, 2, 3, false},                              /* it swallows zip64's first byte */
        {2, 2, 0xFFFF, false},      {6, 2, 2, false},  /* not zip64's */
        {8, 2, 23, false},                             /* the offset is cut off */
        {8, 2, 16, false},          {8, 2, 25, false}, /* beyond the record */
        {10, 8, 17, false},         {18, 8, UINT64_MAX, false},
        {26, 8, UINT64_MAX, false}, {26, 8, (uint64_t)1 << 63, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zip z = start("0 FloatStorage 2 1 FloatStorage 2");
        add_as(&z, ZIP64, 0, "m/data/0", "12345678", 8);
        add_as(&z, ZIP64, 0, "m/data/1", "12345678", 8);
        finish(&z);
        poke(&z, z.record[2] + 46 + 8 + cases[i].offset, cases[i].value, cases[i].size);
        if (cases[i].typed)
            TYPED(&z, {1, 0, 8, TP_CLASS_F32}, {2, 0, 8, TP_CLASS_F32});
        else
            TYPED(&z, {1, 0, 8, TP_CLASS_F32});
        zip_free(&z);
    }
}

/* Without a directory that holds together, nothing is typed. */
static void test_directory(void **state)
{
    (void)state;
    enum { END, END64, LOCATOR, RECORD };
    static const struct {
        int where;
        size_t offset, size;
        uint64_t value;
        bool typed;
    } cases[] = {
        {END, 0, 4, 0, false},
        {END, 4, 2, 1, false}, /* disks */
        {END, 6, 2, 1, false},
        {END, 8, 2, 3, false}, /* counts */
        {END, 10, 2, 5, false},
        {END, 8, 4, 0x00050005, false},
        {END, 8, 4, UINT32_MAX, true}, /* as in zip64's */
        {END, 12, 4, UINT32_MAX, true},
        {END, 12, 4, 5, false},
        {END, 16, 4, UINT32_MAX, true},
        {END, 16, 4, 5, false},
        {END, 20, 2, 1, false}, /* a comment that is not there */
        {END64, 0, 4, 0, false},
        {END64, 16, 4, 1, false},
        {END64, 20, 4, 1, false},
        {END64, 24, 8, 3, false},
        {END64, 32, 8, UINT64_MAX, false},
        {END64, 40, 8, UINT64_MAX, false},
        {END64, 48, 8, UINT64_MAX, false},
        {LOCATOR, 0, 4, 0, true}, /* no zip64 then, and the plain end is complete */
        {LOCATOR, 8, 8, UINT64_MAX, false},
        {LOCATOR, 8, 8, 0, false},
        {LOCATOR, 8, 8, (uint64_t)1 << 63, false},
        {RECORD, 0, 4, 0, false},
        {RECORD, 28, 2, 0xFFFF, false}, /* name, extra field, comment beyond the end */
        {RECORD, 30, 2, 0xFFFF, false},
        {RECORD, 32, 2, 0xFFFF, false},
        {RECORD, 32, 2, 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        zip z = make();
        size_t where[] = {z.end, z.end64, z.locator, z.record[1]};
        poke(&z, where[cases[i].where] + cases[i].offset, cases[i].value, cases[i].size);
        if (cases[i].typed)
            TYPED(&z, ALL);
        else
            UNTYPED(&z);
        zip_free(&z);
    }
    /* Counts and sizes that agree with each other and with nothing else. */
    static const uint64_t counts[] = {0, 3, 5, 65534, 65535};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        zip z = make();
        poke(&z, z.end + 8, counts[i], 2);
        poke(&z, z.end + 10, counts[i], 2);
        poke(&z, z.end64 + 24, counts[i] == 65535 ? (uint64_t)1 << 40 : counts[i], 8);
        poke(&z, z.end64 + 32, counts[i] == 65535 ? (uint64_t)1 << 40 : counts[i], 8);
        UNTYPED(&z);
        zip_free(&z);
    }
}

static void test_ends(void **state)
{
    (void)state;
    /* A comment that looks like an end record: the last that ends with the file is the one. */
    static const uint8_t fake[22 + 5] = "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0abcde";
    zip z = start("0 FloatStorage 1");
    add_data(&z, "m/data/0", 4);
    finish_as(&z, false, false, (const char *)fake, sizeof fake);
    TYPED(&z, {1, 0, 4, TP_CLASS_F32});
    zip_free(&z);
    z = start("0 FloatStorage 1");
    add_data(&z, "m/data/0", 4);
    finish_as(&z, false, false, (const char *)fake, 22);
    UNTYPED(&z);
    zip_free(&z);

    /* The longest comment. */
    char *comment = calloc(1, 65535);
    z = start("0 FloatStorage 1");
    add_data(&z, "m/data/0", 4);
    finish_as(&z, true, true, comment, 65535);
    TYPED(&z, {1, 0, 4, TP_CLASS_F32});
    put(&z.file, "", 1); /* a byte that no comment counts */
    UNTYPED(&z);
    zip_free(&z);
    free(comment);

    /* Cut off anywhere; bytes before. */
    z = make();
    for (size_t size = z.file.size; size-- > 0;) {
        zip cut = z;
        cut.file.size = size;
        UNTYPED(&cut);
    }
    zip moved = {0};
    put(&moved.file, "PK\3\4", 4);
    put(&moved.file, z.file.data, z.file.size);
    UNTYPED(&moved);
    zip_free(&moved);
    zip_free(&z);

    /* Nothing inside. */
    finish(&z);
    UNTYPED(&z);
    zip_free(&z);
    for (size_t size = 0; size < 60; size++) {
        for (size_t i = 0; i < size; i++) put(&z.file, &"PK\3\4"[i % 4], 1);
        UNTYPED(&z);
        zip_free(&z);
    }
}

/* Entries that share bytes could have the same header read again and again. */
static void test_overlap(void **state)
{
    (void)state;
    zip z = make();
    poke(&z, z.record[3] + 42, z.local[2], 4); /* the same local header: another name, so it is not there */
    TYPED(&z, {1, 0, 16, TP_CLASS_F32}, {2, 0, 16, TP_CLASS_F32});
    zip_free(&z);

    /* One that reaches to the next one's header, and one byte further. */
    for (size_t more = 0; more < 2; more++) {
        z = make();
        uint64_t size = z.local[2] - z.start[1] + more;
        poke(&z, z.record[1] + 20, size, 4);
        poke(&z, z.record[1] + 24, size, 4);
        if (more)
            UNTYPED(&z);
        else
            TYPED(&z, {2, 0, 16, TP_CLASS_F32},
                  {3, 0, 16, TP_CLASS_F32}); /* but not what the pickle says */
        zip_free(&z);
    }

    /* A ZIP file inside a stored entry is nothing special; its directory is not the file's. */
    zip inner = make();
    z = start("0 FloatStorage 1");
    add_data(&z, "m/data/0", 4);
    add(&z, "inner.pt", inner.file.data, inner.file.size);
    finish(&z);
    TYPED(&z, {1, 0, 4, TP_CLASS_F32});
    zip_free(&inner);
    zip_free(&z);

    /* Entries in another order than the directory's. */
    z = make();
    uint8_t *records = z.file.data + z.record[1];
    size_t size = z.record[2] - z.record[1];
    uint8_t kept[100];
    assert_true(size <= sizeof kept);
    memcpy(kept, records, size);
    memmove(records, records + size, 2 * size);
    memcpy(records + 2 * size, kept, size);
    TYPED(&z, ALL);
    /* The same entry twice. */
    memcpy(records + size, records, size);
    UNTYPED(&z);
    zip_free(&z);
}

/* ------------------------------------------------------------------------------------- DDUF, NPZ, NPY */

static void test_safetensors(void **state)
{
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[2,10]},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[10,14]},"
                         "\"c\":{\"dtype\":\"NEW\",\"shape\":[1],\"data_offsets\":[14,18]}}";
    file f = file_make(header, SIZE_MAX, 20), bad = file_make("{", SIZE_MAX, 20);
    size_t data = 8 + strlen(header);
    zip z = {0};
    add_as(&z, ZIP64, 0, "model_index.json", "{}", 2);
    add_as(&z, ZIP64, 0, "unet/x.safetensors", f.data, f.size);
    add_as(&z, ZIP64, 0, "unet/bad.safetensors", bad.data, bad.size);
    add_as(&z, ZIP64, 0, "unet/empty.safetensors", "", 0);
    add_as(&z, ZIP64, 0, "vae/y.safetensors", f.data, f.size);
    add_as(&z, ZIP64, 0, "vae/cut.safetensors", f.data, f.size - 16); /* in b's first byte */
    add_as(&z, ZIP64, 8, "vae/deflated.safetensors", f.data, f.size);
    add_as(&z, ZIP64, 0, "vae/other.txt", f.data, f.size);
    finish(&z);
    TYPED_AS(&z, "model.dduf", {1, data + 2, 8, TP_CLASS_BF16}, {1, data + 10, 4, TP_CLASS_F32},
             {4, data + 2, 8, TP_CLASS_BF16}, {4, data + 10, 4, TP_CLASS_F32},
             {5, data + 2, 2, TP_CLASS_BF16});
    zip_free(&z);
    file_free(&f);
    file_free(&bad);
}

static void put_npy(buffer *b, unsigned version, const char *header, size_t elements_size)
{
    put(b, "\x93NUMPY", 6);
    put_number(b, version, 2);
    put_number(b, strlen(header), version == 1 ? 2 : 4);
    put(b, header, strlen(header));
    for (size_t i = 0; i < elements_size; i++) put(b, "x", 1);
}

static void test_npz(void **state)
{
    (void)state;
    buffer b = {0};
    put_npy(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  \n", 24);
    size_t at = b.size - 24;
    zip z = {0};
    add_as(&z, 0, 0, "a.npy", b.data, b.size);
    add_as(&z, ZIP64, 0, "folder/b.npy", b.data, b.size);
    add_as(&z, ZIP64, 8, "deflated.npy", b.data, b.size);
    add_as(&z, 0, 0, "cut.npy", b.data, b.size - 1);
    add_as(&z, 0, 0, "empty.npy", "", 0);
    add_as(&z, 0, 0, "no.npz", b.data, b.size);
    finish_as(&z, false, false, "", 0);
    TYPED_AS(&z, "x.npz", {0, at, 24, TP_CLASS_F32}, {1, at, 24, TP_CLASS_F32});
    zip_free(&z);
    free(b.data);
}

static void test_npy(void **state)
{
    (void)state;
#define REST ", 'fortran_order': False, 'shape': (2,), }\n"
    static const struct {
        const char *header;
        size_t typed; /* of 32 bytes */
        tp_class cls;
    } cases[] = {
        {"{'descr': '<f2'" REST, 4, TP_CLASS_F16},
        {"{'descr': '<f4'" REST, 8, TP_CLASS_F32},
        {"{'descr': '<f8'" REST, 16, TP_CLASS_F64},
        {"{'descr': '<c8'" REST, 16, TP_CLASS_F32},
        {"{'descr': '<c16'" REST, 32, TP_CLASS_F64},
        {"{'descr': '|i1'" REST, 2, TP_CLASS_I8},
        {"{'descr': '|u1'" REST, 2, TP_CLASS_I8},
        {"{'descr': '|b1'" REST, 2, TP_CLASS_I8},
        {"{'descr': '<i2'" REST, 4, TP_CLASS_I16},
        {"{'descr': '<u2'" REST, 4, TP_CLASS_I16},
        {"{'descr': '<i4'" REST, 8, TP_CLASS_I32},
        {"{'descr': '<u4'" REST, 8, TP_CLASS_I32},
        {"{'descr': '<i8'" REST, 16, TP_CLASS_I64},
        {"{'descr': '<u8'" REST, 16, TP_CLASS_I64},
        {"{'descr': '<V2'" REST, 4, TP_CLASS_BF16},
        {"{'descr': '|V2'" REST, 4, TP_CLASS_BF16},
        /* the other byte order */
        {"{'descr': '>f2'" REST, 4, TP_CLASS_I16},
        {"{'descr': '>f4'" REST, 8, TP_CLASS_I32},
        {"{'descr': '>f8'" REST, 16, TP_CLASS_I64},
        {"{'descr': '>i4'" REST, 8, TP_CLASS_I32},
        /* what is not numbers, or of no size that we know */
        {"{'descr': '|O'" REST, 0, 0},
        {"{'descr': '<U4'" REST, 0, 0},
        {"{'descr': '|S4'" REST, 0, 0},
        {"{'descr': '<M8[ns]'" REST, 0, 0},
        {"{'descr': '<f16'" REST, 0, 0},
        {"{'descr': '|V1'" REST, 0, 0},
        {"{'descr': '=f4'" REST, 0, 0},
        {"{'descr': 'f4'" REST, 0, 0},
        {"{'descr': '<'" REST, 0, 0},
        {"{'descr': ''" REST, 0, 0},
        {"{'descr': [('x', '<f4')]" REST, 0, 0},
        {"{'descr': \"<f4\"" REST, 0, 0},
        {"{'descr': '<f4\\''" REST, 0, 0},
#undef REST
        /* shapes */
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (), }", 4, TP_CLASS_F32},
        {"{'shape':(2,3),'fortran_order':False,'descr':'<f4'}", 24, TP_CLASS_F32},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2L, 3L), }\n", 24, TP_CLASS_F32},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (8), }\n", 32, TP_CLASS_F32},
        {" \n{ 'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 8 , ) , } \n", 32, TP_CLASS_F32},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (9,), }\n", 0, 0}, /* more than there is */
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (0, 5), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (-1,), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1.0,), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1 2), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,,2), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': 2, }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (18446744073709551616,), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (18446744073709551615,2), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (4611686018427387904,), }\n", 0, 0},
        /* the rest */
        {"{'descr': '<f4', 'fortran_order': None, 'shape': (2,), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, }\n", 0, 0},
        {"{'descr': '<f4', 'shape': (2,), }\n", 0, 0},
        {"{'fortran_order': True, 'shape': (2,), }\n", 0, 0},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': True, 'shape': (2,), }\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,), 'more': 1}\n", 0, 0},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,), } x\n", 0, 0},
        {"{'descr': '<f4' 'fortran_order': True, 'shape': (2,), }\n", 0, 0},
        {"{'descr' '<f4', 'fortran_order': True, 'shape': (2,), }\n", 0, 0},
        {"{", 0, 0},
        {"{}", 0, 0},
        {"", 0, 0},
        {"'descr'", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned version = 0; version < 5; version++) {
            zip z = {0};
            put_npy(&z.file, version, cases[i].header, 32);
            z.start[0] = z.file.size - 32;
            if (cases[i].typed != 0 && version >= 1 && version <= 3)
                TYPED_AS(&z, "x.npy", {0, 0, cases[i].typed, cases[i].cls});
            else
                UNTYPED(&z);
            zip_free(&z);
        }
    }

    zip z = {0};
    put_npy(&z.file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }\n", 32);
    size_t size = z.file.size;
    z.start[0] = size - 32;
    for (z.file.size = 0; z.file.size < size; z.file.size++) UNTYPED(&z); /* cut off anywhere */
    for (size_t at = 0; at < 8; at++) {                                   /* magic and version */
        z.file.data[at] ^= 0x40;
        UNTYPED(&z);
        z.file.data[at] ^= 0x40;
    }
    TYPED(&z, {0, 0, 32, TP_CLASS_F32});
    z.file.data[20] = 0;
    UNTYPED(&z);
    zip_free(&z);

    /* A header longer than any that is understood, as version 2 has it for long records. */
    char *header = malloc(5001);
    memset(header, ' ', 5000);
    header[5000] = 0;
    memcpy(header, "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }", 57);
    put_npy(&z.file, 2, header, 32);
    UNTYPED(&z);
    zip_free(&z);
    header[4096] = 0;
    put_npy(&z.file, 2, header, 32);
    z.start[0] = z.file.size - 32;
    TYPED(&z, {0, 0, 32, TP_CLASS_F32});
    zip_free(&z);
    free(header);
}

/* ---------------------------------------------------------------------------------------------- limits */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As many entries as a directory may have, all of them safetensors with the same local header. */
static void test_many_entries(void **state)
{
    (void)state;
    const char *header = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}";
    file f = file_make(header, SIZE_MAX, 8);
    zip z = {0};
    add_as(&z, 0, 0, "x.safetensors", f.data, f.size);
    file_free(&f);
    size_t record = z.directory.size, count = 560000;
    uint8_t kept[200];
    assert_true(record <= sizeof kept);
    memcpy(kept, z.directory.data, record);
    for (size_t i = 1; i < count; i++) put(&z.directory, kept, record);
    z.count = 1;
    finish_as(&z, true, true, "", 0);
    poke(&z, z.end64 + 24, count, 8);
    poke(&z, z.end64 + 32, count, 8);
    memory_reset();
    double begin = seconds();
    UNTYPED(&z);
    assert_true(seconds() - begin < 5);
    assert_int_equal(memory_in_use, 0);
    assert_true(memory_peak < (size_t)128 << 20);

    /* One that is longer than may be is not read at all. */
    for (size_t i = 0; i < 20000; i++) put(&z.directory, kept, record);
    count += 20000;
    z.file.size = z.local[0];
    zip_free(&(zip){.file = z.file});
    z.file = (buffer){0};
    put(&z.file, "PK\3\4", 4);
    finish_as(&z, true, true, "", 0);
    poke(&z, z.end64 + 24, count, 8);
    poke(&z, z.end64 + 32, count, 8);
    memory_reset();
    UNTYPED(&z);
    assert_true(memory_peak < (size_t)1 << 20);
    zip_free(&z);
}

/* All of it, to let reads and allocations fail. */
static zip everything(void)
{
    buffer b = {0};
    put_npy(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 8);
    file f = file_make("{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}", SIZE_MAX, 8);
    zip z = start("0 FloatStorage 4 1 HalfStorage 2");
    add(&z, "m/byteorder", "little", 6);
    add_data(&z, "m/data/1", 4);
    add_data(&z, "m/data/0", 16);
    add_pickle(&z, TORCH, "m/constants.pkl", "0 LongStorage 2 1 CharStorage 3");
    add_data(&z, "m/constants/0", 16);
    add(&z, "a.npy", b.data, b.size);
    add(&z, "m.safetensors", f.data, f.size);
    finish(&z);
    free(b.data);
    file_free(&f);
    return z;
}

typedef struct failing_source {
    const zip *z;
    size_t reads, fail_at;
} failing_source;

static tp_status failing_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    failing_source *f = context;
    assert_true(size > 0 && offset <= f->z->file.size && size <= f->z->file.size - offset);
    if (f->reads++ == f->fail_at) return tp_error_set_at(error, TP_IO, offset, "x: the disk is gone");
    memcpy(dst, f->z->file.data + offset, size);
    return TP_OK;
}

static void test_failures(void **state)
{
    (void)state;
    zip z = everything();
    failing_source failing = {.z = &z, .fail_at = SIZE_MAX};
    tp_source source = {.read = failing_read, .context = &failing, .size = z.file.size, .name = "model.pt"};
    tp_layout layout;
    memory_reset();
    assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_OK);
    assert_int_equal(layout.span_count, 11);
    assert_null(tp_layout_check(&layout, z.file.size));
    tp_layout_free(&layout);
    size_t reads = failing.reads;
    assert_true(reads > 15);
    for (size_t i = 0; i < reads; i++) {
        tp_error error = {0};
        failing.reads = 0;
        failing.fail_at = i;
        assert_int_equal(tp_layout_parse(&source, &layout, &error), TP_IO);
        assert_string_equal(error.message, "x: the disk is gone");
        assert_null(layout.spans);
        tp_layout_free(&layout);
        failing.reads = 0;
        assert_int_equal(tp_layout_parse(&source, &layout, NULL), TP_IO);
        assert_int_equal(memory_in_use, 0);
    }
    failing.fail_at = SIZE_MAX;
    for (size_t i = 0;; i++) {
        tp_error error = {0};
        memory_reset();
        memory_fail_from = i;
        tp_status status = tp_layout_parse(&source, &layout, &error);
        memory_fail_from = SIZE_MAX;
        if (status == TP_OK) {
            assert_true(i > 15);
            assert_int_equal(layout.span_count, 11);
            tp_layout_free(&layout);
            break;
        }
        assert_int_equal(status, TP_NO_MEMORY);
        assert_string_equal(error.message, "model.pt: out of memory while reading the header");
        assert_int_equal(memory_in_use, 0);
    }
    assert_int_equal(memory_in_use, 0);
    zip_free(&z);
}

/* Each byte in turn has other values: whatever comes out, it is a layout (parse_file checks it). */
static void test_every_byte(void **state)
{
    (void)state;
    zip z = everything();
    static const uint8_t changes[] = {0x01, 0x80, 0xFF};
    for (size_t at = 4; at < z.file.size; at++) {
        for (size_t i = 0; i < sizeof changes; i++) {
            z.file.data[at] ^= changes[i];
            tp_layout layout = parse_zip(&z, "model.pt");
            tp_layout_free(&layout);
            z.file.data[at] ^= changes[i];
        }
    }
    zip_free(&z);
}

/* --------------------------------------------------------------------------------------------- samples */

static void test_samples(void **state)
{
    (void)state;
    static const struct {
        const char *name, *classes; /* of the typed spans, with their bytes */
    } cases[] = {
        {"burn_bfloat16.pt", " bf16:6"},
        {"burn_mixed_types.pt", " f32:8 i64:16 i8:2 f64:16"},
        {"burn_legacy_shared_storage.pt", ""}, /* the format before ZIP */
    };
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        bool last = i == sizeof cases / sizeof *cases;
        char path[1000], text[1000] = "";
        snprintf(path, sizeof path, "%s/other/%s", TP_SAMPLES_DIR,
                 last ? "taef2_encoder.pth" : cases[i].name);
        FILE *in = fopen(path, "rb");
        if (in == NULL) fail_msg("%s is missing", path);
        fseek(in, 0, SEEK_END);
        zip z = {.file.size = (size_t)ftell(in)};
        rewind(in);
        z.file.data = malloc(z.file.size);
        assert_non_null(z.file.data);
        assert_int_equal(fread(z.file.data, 1, z.file.size, in), z.file.size);
        fclose(in);
        tp_layout layout = parse_zip(&z, path);
        size_t typed = 0, halves = 0;
        for (size_t k = 0; k < layout.span_count; k++) {
            const tp_span *span = &layout.spans[k];
            if (span->cls == TP_CLASS_BYTES) continue;
            assert_int_equal(span->start % 64, 0);
            typed++;
            if (span->cls == TP_CLASS_F16) halves += span->length;
            if (!last) {
                snprintf(text + strlen(text), sizeof text - strlen(text), " %s:%" PRIu64,
                         tp_class_name((tp_class)span->cls), span->length);
            }
        }
        if (last) {
            assert_int_equal(typed, 79);
            assert_int_equal(halves, 2677056);
        } else {
            assert_string_equal(text, cases[i].classes);
        }
        tp_layout_free(&layout);
        zip_free(&z);
    }
}

int run_zip(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint),   cmocka_unit_test(test_writers),
        cmocka_unit_test(test_storages),     cmocka_unit_test(test_byte_order),
        cmocka_unit_test(test_entries),      cmocka_unit_test(test_zip64_fields),
        cmocka_unit_test(test_directory),    cmocka_unit_test(test_ends),
        cmocka_unit_test(test_overlap),      cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_npz),          cmocka_unit_test(test_npy),
        cmocka_unit_test(test_many_entries), cmocka_unit_test(test_failures),
        cmocka_unit_test(test_every_byte),   cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
