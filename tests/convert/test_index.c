/* Every rule of the index (docs/format.md section 4), broken one at a time. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/index.h"

/*
 * A file of three frames (1000, 500 and again 1000 bytes) and three tensors. Stored frames: 640 and 384
 * bytes from 128, so the index lies at 1152.
 */
#define FILE_INDEX_AT 1152

static void set_string(tp_index *x, size_t *at, uint32_t *length, const char *text)
{
    *length = (uint32_t)strlen(text);
    memcpy(x->strings + *at, text, *length);
    *at += *length;
}

/* Digests as they follow from the frames. */
static void set_digests(tp_index *x)
{
    uint64_t frame = 0;
    for (uint64_t f = 0; f < x->files; f++) {
        tp_hasher hasher;
        tp_hasher_init(&hasher);
        for (uint64_t end = frame + x->file_frames[f]; frame < end && frame < x->frames; frame++) {
            uint64_t part[3] = {x->frame_raw_size[frame], x->frame_raw_hash[2 * frame],
                                x->frame_raw_hash[2 * frame + 1]};
            tp_hasher_add(&hasher, part, sizeof part);
        }
        tp_hasher_end(&hasher, x->file_digest + 2 * f);
    }
}

static void set_frames(tp_index *x)
{
    static const uint32_t raw[3] = {1000, 500, 1000}, stored[3] = {640, 384, 640};
    static const uint64_t offset[3] = {128, 768, 128};
    for (unsigned i = 0; i < 3; i++) {
        x->frame_offset[i] = offset[i];
        x->frame_raw_size[i] = raw[i];
        x->frame_stored_size[i] = stored[i];
        x->frame_codec[i] = TP_FRAME_LZ4;
        x->frame_method[i] = TP_METHOD_LZ4;
        for (unsigned k = 0; k < 2; k++) {
            x->frame_stored_hash[2 * i + k] = offset[i] + k;
            x->frame_raw_hash[2 * i + k] = offset[i] + k + 10;
        }
    }
}

static void set_tensors(tp_index *x)
{
    static const uint64_t offset[3] = {0, 1000, 2500}, size[3] = {1000, 1500, 0};
    static const uint32_t dims[3] = {2, 1, 0};
    for (unsigned i = 0; i < 3; i++) {
        x->tensor_offset[i] = offset[i];
        x->tensor_nbytes[i] = size[i];
        x->tensor_ndim[i] = dims[i];
        x->tensor_dtype[i] = i % 2;
        x->tensor_flags[i] = 0;
    }
    for (unsigned i = 0; i < 3; i++) x->tensor_dims[i] = 10 * (i + 1);
}

static tp_index file_index(void)
{
    tp_index x = {
        .files = 1, .tensors = 3, .dims = 3, .frames = 3, .dtypes = 2, .string_bytes = 5 + 3 + 4 + 4};
    size_t at = 0;
    assert_int_equal(tp_index_allocate(&x, NULL), TP_OK);
    set_frames(&x);
    set_tensors(&x);
    x.file_size[0] = 2500;
    x.file_frames[0] = 3;
    x.file_tensors[0] = 3;
    x.file_mode[0] = 0;
    x.file_kind[0] = 0;
    x.file_format[0] = TP_FORMAT_SAFETENSORS;
    set_string(&x, &at, &x.file_path_len[0], "m.bin");
    set_string(&x, &at, &x.file_reason_len[0], "why");
    set_string(&x, &at, &x.tensor_name_len[0], "a");
    set_string(&x, &at, &x.tensor_name_len[1], "bb");
    set_string(&x, &at, &x.tensor_name_len[2], "c");
    set_string(&x, &at, &x.dtype_len[0], "F16");
    set_string(&x, &at, &x.dtype_len[1], "U");
    assert_int_equal(at, x.string_bytes);
    set_digests(&x);
    return x;
}

/* A folder of these entries ('/' at the end: a folder); the last file has the frames and tensors. With
 * SHA-256. */
static tp_index folder_index(const char *const *paths)
{
    tp_index x = {.folder = true,
                  .has_sha256 = true,
                  .tensors = 3,
                  .dims = 3,
                  .frames = 3,
                  .dtypes = 2,
                  .string_bytes = 4 + 4};
    size_t at = 0;
    for (; paths[x.files]; x.files++) {
        size_t size = strlen(paths[x.files]);
        x.string_bytes += size - (size > 1 && paths[x.files][size - 1] == '/');
    }
    x.sha256s = x.files;
    assert_int_equal(tp_index_allocate(&x, NULL), TP_OK);
    memset(x.file_sha256, 0, 32 * x.files);
    for (uint64_t f = 0; f < x.files; f++) {
        size_t size = strlen(paths[f]);
        bool last = f + 1 == x.files;
        x.file_kind[f] = size > 1 && paths[f][size - 1] == '/';
        x.file_path_len[f] = (uint32_t)(size - x.file_kind[f]);
        memcpy(x.strings + at, paths[f], x.file_path_len[f]);
        at += x.file_path_len[f];
        x.file_size[f] = last ? 2500 : 0;
        x.file_frames[f] = last ? 3 : 0;
        x.file_tensors[f] = last ? 3 : 0;
        x.file_reason_len[f] = 0;
        x.file_mode[f] = 0644;
        x.file_format[f] = TP_FORMAT_BYTES;
    }
    set_frames(&x);
    set_tensors(&x);
    set_string(&x, &at, &x.tensor_name_len[0], "a");
    set_string(&x, &at, &x.tensor_name_len[1], "bb");
    set_string(&x, &at, &x.tensor_name_len[2], "c");
    set_string(&x, &at, &x.dtype_len[0], "F16");
    set_string(&x, &at, &x.dtype_len[1], "U");
    set_digests(&x);
    return x;
}

static void assert_refused(tp_index *x, const char *message)
{
    tp_error error = {0};
    tp_index parsed;
    tp_status status = tp_index_parse(&parsed, x->raw, x->raw_size, FILE_INDEX_AT, "t", &error);
    if (status == TP_OK) tp_index_free(&parsed);
    assert_error(status, error, TP_CORRUPT, message);
}

#define REFUSED(base, message, ...)                                                                        \
    do {                                                                                                   \
        tp_index x = base;                                                                                 \
        __VA_ARGS__;                                                                                       \
        assert_refused(&x, "t: index: " message);                                                          \
    } while (0)
/* The same with digests that match the change. */
#define REFUSED_SEALED(base, message, ...) REFUSED(base, message, __VA_ARGS__; set_digests(&x))

static tp_index tree_index(void)
{
    static const char *const paths[] = {"sub/", "sub/deep/", "b.bin", "sub/a.bin", "sub/deep/m.bin", NULL};
    return folder_index(paths);
}

static void accepts(void **state)
{
    (void)state;
    tp_index x = file_index(), parsed;
    tp_error error = {0};
    assert_int_equal(tp_index_parse(&parsed, x.raw, x.raw_size, FILE_INDEX_AT, "t", &error), TP_OK);
    assert_int_equal(parsed.stored_count, 2);
    assert_false(tp_index_is_duplicate(&parsed, 0));
    assert_true(tp_index_is_duplicate(&parsed, 2));
    assert_int_equal(tp_index_first(&parsed, 2), 0);
    assert_int_equal(tp_index_first(&parsed, 1), 1);
    for (uint64_t offset = 0; offset < 2500; offset++)
        assert_int_equal(tp_index_frame_at(&parsed, 0, offset), offset < 1000 ? 0 : offset < 1500 ? 1 : 2);
    assert_int_equal(tp_index_frame_position(&parsed, 0, 2), 1500);
    assert_int_equal(tp_index_name(&parsed, 1).size, 2);
    assert_memory_equal(tp_index_name(&parsed, 1).data, "bb", 2);
    tp_index_free(&parsed);

    x = tree_index();
    assert_int_equal(tp_index_parse(&parsed, x.raw, x.raw_size, FILE_INDEX_AT, "t", &error), TP_OK);
    for (uint64_t t = 0; t < 3; t++) assert_int_equal(tp_index_tensor_file(&parsed, t), 4);
    assert_int_equal(tp_index_frame_at(&parsed, 4, 1000), 1);
    tp_index_free(&parsed);

    static const char *const nothing[] = {NULL};
    x = folder_index(nothing);
    tp_index empty = {.folder = true};
    free(x.raw);
    assert_int_equal(tp_index_allocate(&empty, &error), TP_OK);
    assert_int_equal(tp_index_parse(&parsed, empty.raw, empty.raw_size, 128, "t", &error), TP_OK);
    tp_index_free(&parsed);
}

static void header_rules(void **state)
{
    (void)state;
    REFUSED(file_index(), "smaller than its header", x.raw_size = 63);
    REFUSED(file_index(), "unknown root kind 2", tp_store32(x.raw, 2));
    REFUSED(file_index(), "reserved flags are set", tp_store32(x.raw + 4, 2));
    REFUSED(file_index(), "reserved bytes are not zero", x.raw[63] = 1);
    REFUSED(file_index(), "too many frames", tp_store64(x.raw + 24, (uint64_t)1 << 32));
    static const char size[] = "t: index: its size does not match its counts";
    for (unsigned field = 8; field < 56; field += 8) {
        for (unsigned kind = 0; kind < 4; kind++) {
            tp_index x = file_index();
            uint64_t value = tp_load64(x.raw + field);
            static const uint64_t changed[] = {0, 0, UINT64_MAX, UINT64_MAX / 8};
            if (kind == 0)
                value++;
            else if (kind == 1)
                value--;
            else
                value = changed[kind];
            if (field == 24 && kind >= 2) value = UINT32_MAX;
            tp_store64(x.raw + field, value);
            assert_refused(&x, size);
        }
    }
    REFUSED(file_index(), "its size does not match its counts", x.raw_size--);
    REFUSED(file_index(), "its size does not match its counts", tp_store32(x.raw + 4, 1));
}

static void sums(void **state)
{
    (void)state;
    REFUSED(file_index(), "the lengths of its strings do not add up", x.tensor_name_len[0]++);
    REFUSED(file_index(), "the lengths of its strings do not add up", x.file_path_len[0]--);
    REFUSED(file_index(), "the lengths of its strings do not add up", x.file_reason_len[0] = UINT32_MAX);
    REFUSED(file_index(), "the lengths of its strings do not add up", x.dtype_len[1] = UINT32_MAX);
    REFUSED(file_index(), "the frames of its files do not add up", x.file_frames[0] = 4);
    REFUSED(file_index(), "the frames of its files do not add up", x.file_frames[0] = 2);
    REFUSED(file_index(), "the tensors of its files do not add up", x.file_tensors[0] = 4);
    REFUSED(file_index(), "the tensors of its files do not add up", x.file_tensors[0] = 0);
    REFUSED(file_index(), "the dimensions of its tensors do not add up", x.tensor_ndim[2] = 1);
    REFUSED(file_index(), "the dimensions of its tensors do not add up", x.tensor_ndim[0] = 1);
}

static void frame_rules(void **state)
{
    (void)state;
    REFUSED_SEALED(file_index(), "frame 1: raw size 0 is out of range", x.frame_raw_size[1] = 0);
    REFUSED_SEALED(file_index(), "frame 1: raw size 4194305 is out of range",
                   x.frame_raw_size[1] = 4194305);
    REFUSED_SEALED(file_index(), "frame 0: stored size 639 is out of range", x.frame_stored_size[0] = 639);
    REFUSED_SEALED(file_index(), "frame 0: stored size 128 is out of range", x.frame_stored_size[0] = 128);
    REFUSED_SEALED(file_index(), "frame 1: stored size 768 is out of range", x.frame_stored_size[1] = 768);
    REFUSED_SEALED(file_index(), "frame 0: no frame starts at byte 256", x.frame_offset[0] = 256);
    REFUSED_SEALED(file_index(), "frame 1: no frame starts at byte 896", x.frame_offset[1] = 896);
    REFUSED_SEALED(file_index(), "frame 2: no frame starts at byte 640", x.frame_offset[2] = 640);
    REFUSED_SEALED(file_index(), "frame 1: no frame starts at byte 768", x.frame_stored_size[0] = 512);
    static const char different[] =
        "t: index: frame 2: differs from frame 0, which is stored at the same place";
    for (unsigned kind = 0; kind < 6; kind++) {
        tp_index x = file_index();
        if (kind == 0) x.frame_stored_size[2] = 512;
        if (kind == 1) x.frame_raw_size[2] = 999;
        if (kind == 2) x.frame_codec[2]++;
        if (kind == 3) x.frame_method[2]++;
        if (kind == 4) x.frame_stored_hash[5] ^= (uint64_t)1 << 63;
        if (kind == 5) x.frame_raw_hash[4] ^= 1;
        set_digests(&x);
        assert_refused(&x, different);
    }
    REFUSED_SEALED(file_index(), "its frames end at byte 1024, not at the index",
                   x.frame_stored_size[1] = 256);
    REFUSED_SEALED(file_index(), "its frames end at byte 1792, not at the index", x.frame_offset[2] = 1152);
}

static void file_rules(void **state)
{
    (void)state;
    REFUSED(file_index(), "file 0: its frames do not add up to its size", x.file_size[0] = 2501);
    REFUSED(file_index(), "file 0: its frames do not add up to its size", x.file_size[0] = 0);
    REFUSED(file_index(), "file 0: its digest does not match its frames", x.file_digest[1] ^= 1);
    REFUSED(file_index(), "file 0: its digest does not match its frames", x.frame_raw_hash[2] ^= 1);
    REFUSED(file_index(), "file 0: unknown kind 2", x.file_kind[0] = 2);
    REFUSED(file_index(), "file 0: a folder in a container of one file", x.file_kind[0] = 1);
    REFUSED(file_index(), "file 0: invalid permission bits", x.file_mode[0] = 0644);
    REFUSED(tree_index(), "file 2: invalid permission bits", x.file_mode[2] = 01000);
    REFUSED(tree_index(), "file 4: a folder with frames or tensors", x.file_kind[4] = 1);
    REFUSED(tree_index(), "file 0: a folder with a SHA-256", x.file_sha256[31] = 1);
    REFUSED(tree_index(), "file 0: its digest does not match its frames", x.file_digest[0] ^= 1);
    REFUSED(tree_index(), "file 3: its frames do not add up to its size", x.file_size[3] = 1);
    REFUSED(tree_index(), "has not exactly one file", tp_store32(x.raw, 0));
}

static void tensor_rules(void **state)
{
    (void)state;
    REFUSED(file_index(), "tensor 1: unknown dtype name", x.tensor_dtype[1] = 2);
    REFUSED(file_index(), "tensor 2: reserved flags are set", x.tensor_flags[2] = 4);
    REFUSED(file_index(), "tensor 1: lies beyond the end of its file", x.tensor_nbytes[1] = 1501);
    REFUSED(file_index(), "tensor 2: lies beyond the end of its file", x.tensor_offset[2] = 2501);
    REFUSED(file_index(), "tensor 0: lies beyond the end of its file", x.tensor_nbytes[0] = UINT64_MAX;
            x.tensor_offset[0] = 5);
    /* A truncated one may. */
    tp_index x = file_index(), parsed;
    x.tensor_nbytes[1] = UINT64_MAX;
    x.tensor_flags[1] = TP_TENSOR_TRUNCATED;
    assert_int_equal(tp_index_parse(&parsed, x.raw, x.raw_size, FILE_INDEX_AT, "t", NULL), TP_OK);
    tp_index_free(&parsed);
}

#define REFUSED_PATHS(message, ...)                                                                        \
    do {                                                                                                   \
        static const char *const paths[] = {__VA_ARGS__, NULL};                                            \
        tp_index x = folder_index(paths);                                                                  \
        assert_refused(&x, "t: index: " message);                                                          \
    } while (0)

static void path_rules(void **state)
{
    (void)state;
    REFUSED_PATHS("file 0: its path is empty", "", "a");
    REFUSED_PATHS("file 0: its path is absolute", "/etc/passwd");
    REFUSED_PATHS("file 1: its path is absolute", "a", "/");
    REFUSED_PATHS("file 0: its path has a component '..'", "..");
    REFUSED_PATHS("file 1: its path has a component '..'", "a/", "a/../b");
    REFUSED_PATHS("file 1: its path has a component '..'", "a/", "a/..");
    REFUSED_PATHS("file 0: its path has a component '.'", ".");
    REFUSED_PATHS("file 1: its path has a component '.'", "a/", "a/./b");
    REFUSED_PATHS("file 1: its path has an empty component", "a/", "a//b");
    REFUSED_PATHS("file 0: its path has an empty component", "a//", "b");
    REFUSED_PATHS("file 2: its path occurs twice", "a", "b", "a");
    REFUSED_PATHS("file 2: its path occurs twice", "a/", "b", "a");
    REFUSED_PATHS("file 1: its folder is a file", "a", "a/b");
    REFUSED_PATHS("file 0: its folder is not listed before it", "a/b", "a/", "z");
    REFUSED_PATHS("file 1: its folder is not listed before it", "ab/", "a/b");
    REFUSED_PATHS("file 1: its folder is not listed before it", "a/", "a/b/c");
    REFUSED(file_index(), "file 0: its path contains a zero byte", x.strings[2] = 0);
    REFUSED(file_index(), "file 0: its path names a folder in a container of one file", x.strings[2] = '/');
    REFUSED(file_index(), "file 0: its path is absolute", x.strings[0] = '/');
    REFUSED(file_index(), "file 0: its path is empty", x.file_path_len[0] = 0; x.file_reason_len[0] += 5);

    char longest[5000], name[300];
    const char *one[] = {name, NULL};
    memset(name, 'n', sizeof name);
    name[256] = 0;
    tp_index x = folder_index(one);
    assert_refused(&x, "t: index: file 0: its path has a component of more than 255 bytes");
    name[255] = 0;
    x = folder_index(one);
    tp_index parsed;
    assert_int_equal(tp_index_parse(&parsed, x.raw, x.raw_size, FILE_INDEX_AT, "t", NULL), TP_OK);
    tp_index_free(&parsed);
    for (size_t i = 0; i < sizeof longest; i++) longest[i] = i % 2 ? '/' : 'a';
    longest[4096] = 0;
    longest[4095] = 'a';
    one[0] = longest;
    x = folder_index(one);
    assert_refused(&x, "t: index: file 0: its path is longer than 4095 bytes");
}

/* Any bytes in place of a column: an error or an index whose numbers are safe to use. */
static void random_damage(void **state)
{
    (void)state;
    uint64_t seed = 11;
    unsigned good = 0;
    for (unsigned round = 0; round < 20000; round++) {
        tp_index x = round % 2 ? tree_index() : file_index(), parsed;
        for (uint64_t n = 1 + random_next(&seed) % 3; n > 0; n--)
            x.raw[random_next(&seed) % x.raw_size] ^= (uint8_t)(1 << random_next(&seed) % 8);
        if (tp_index_parse(&parsed, x.raw, x.raw_size, FILE_INDEX_AT, "t", NULL) != TP_OK) continue;
        good++;
        for (uint64_t f = 0; f < parsed.files; f++)
            for (uint64_t offset = 0; offset < parsed.file_size[f]; offset += 100)
                tp_index_frame_at(&parsed, f, offset);
        tp_index_free(&parsed);
    }
    assert_true(good > 100); /* names, dims and the like mean nothing to the checks */
}

int test_index(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts),     cmocka_unit_test(header_rules),  cmocka_unit_test(sums),
        cmocka_unit_test(frame_rules), cmocka_unit_test(file_rules),    cmocka_unit_test(tensor_rules),
        cmocka_unit_test(path_rules),  cmocka_unit_test(random_damage),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
