/* Header, footer, index and frames of a container, damaged one by one, with hashes that match and without.
 */
#include "support.h"

#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/container.h"

static bytes small, container; /* a checkpoint and its container */

static void make_container(const bytes *file, const char *name, bytes *result)
{
    tp_error error = {0};
    write_file(scratch(name), file->data, file->size);
    char path[600];
    snprintf(path, sizeof path, "%s.tpress", scratch(name));
    if (tp_compress_file(scratch(name), -1, path, -1, NULL, NULL, &error) != TP_OK)
        fail_msg("%s", error.message);
    *result = read_file(path);
    remove(path);
    remove(scratch(name));
}

/* Some 5 KiB: a header, a typed run, bytes; small enough to try every bit. */
static bytes tiny_checkpoint(void)
{
    checkpoint c = {0};
    fill_bf16(checkpoint_add(&c, "weight", "BF16", 2, 1100, 4400), 2200, 1);
    fill_random(checkpoint_add(&c, "tail", "U8", 3, 5, 15), 15, 5);
    return checkpoint_end(&c);
}

static int setup(void **state)
{
    (void)state;
    small = small_checkpoint();
    make_container(&small, "small.safetensors", &container);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(small.data);
    free(container.data);
    scratch_remove();
    return 0;
}

static void assert_opens_with(bytes file, tp_status expected, const char *message)
{
    tp_error error = {0};
    bytes restored;
    tp_status status = restore_memory(file, &restored, &error);
    free(restored.data);
    assert_error(status, error, expected, message);
}

static void restores(void **state)
{
    (void)state;
    tp_error error = {0};
    bytes restored;
    assert_int_equal(restore_memory(container, &restored, &error), TP_OK);
    assert_int_equal(restored.size, small.size);
    assert_memory_equal(restored.data, small.data, small.size);
    free(restored.data);
    /* The tools of these tests put together what the writer wrote. */
    parts p = take_apart(container);
    bytes again = put_together(&p);
    assert_int_equal(again.size, container.size);
    assert_memory_equal(again.data, container.data, container.size);
    free(again.data);
    parts_free(&p);
}

/* A change to the header, hash and all. */
#define HEADER(status, message, ...)                                                                       \
    do {                                                                                                   \
        parts p = take_apart(container);                                                                   \
        uint8_t *h = p.header;                                                                             \
        __VA_ARGS__;                                                                                       \
        bytes changed = put_together(&p);                                                                  \
        assert_opens_with(changed, status, "test.tpress: " message);                                       \
        free(changed.data);                                                                                \
        parts_free(&p);                                                                                    \
    } while (0)

static void header_rules(void **state)
{
    (void)state;
    HEADER(TP_NOT_CONTAINER, "not a tensorpress container", h[7] ^= 1);
    HEADER(TP_NEWER_VERSION, "has format version 1.1, this program reads 0.1", tp_store16(h + 8, 1));
    HEADER(TP_NEWER_VERSION, "has format version 0.2, this program reads 0.1", tp_store16(h + 10, 2));
    HEADER(TP_NEWER_VERSION, "has format version 0.0, this program reads 0.1", tp_store16(h + 10, 0));
    HEADER(TP_CORRUPT, "header: reserved flags are set", h[15] = 0x80);
    HEADER(TP_CORRUPT, "header: reserved bytes are not zero", h[16] = 1);
    HEADER(TP_CORRUPT, "header: reserved bytes are not zero", h[111] = 1);
    /* The hash is checked before the version is believed. */
    bytes copy = {malloc(container.size), container.size};
    memcpy(copy.data, container.data, copy.size);
    tp_store16(copy.data + 8, 9);
    assert_opens_with(copy, TP_CORRUPT, "test.tpress: header: damaged: its hash differs");
    free(copy.data);
    assert_opens_with((bytes){container.data, 0}, TP_NOT_CONTAINER,
                      "test.tpress: not a tensorpress container");
    assert_opens_with((bytes){container.data, 7}, TP_NOT_CONTAINER,
                      "test.tpress: not a tensorpress container");
    assert_opens_with((bytes){container.data, 8}, TP_TRUNCATED,
                      "test.tpress: ends within the container's header");
    assert_opens_with((bytes){container.data, 127}, TP_TRUNCATED,
                      "test.tpress: ends within the container's header");
    assert_opens_with((bytes){container.data, 128}, TP_TRUNCATED,
                      "test.tpress: ends within the container's footer");
    assert_opens_with((bytes){container.data, 255}, TP_TRUNCATED,
                      "test.tpress: ends within the container's footer");
    assert_opens_with((bytes){container.data, 256}, TP_TRUNCATED,
                      "test.tpress: no footer at its end: cut off, or something follows it");
    assert_opens_with((bytes){container.data, container.size - 1}, TP_TRUNCATED,
                      "test.tpress: no footer at its end: cut off, or something follows it");
}

/* A change to the footer f of a copy; sealed: with its hash. */
#define FOOTER(sealed, message, ...)                                                                       \
    do {                                                                                                   \
        bytes copy = {malloc(container.size), container.size};                                             \
        memcpy(copy.data, container.data, copy.size);                                                      \
        uint8_t *f = copy.data + copy.size - 128;                                                          \
        __VA_ARGS__;                                                                                       \
        if (sealed) seal_footer(f);                                                                        \
        assert_opens_with(copy, TP_CORRUPT, "test.tpress: " message);                                      \
        free(copy.data);                                                                                   \
    } while (0)

static void footer_rules(void **state)
{
    (void)state;
    FOOTER(false, "footer: damaged: its magic differs", f[120] ^= 1);
    FOOTER(false, "footer: damaged: its hash differs", f[0] ^= 1);
    FOOTER(false, "footer: damaged: its hash differs", f[104] ^= 1);
    FOOTER(true, "footer: its version is not the header's", f[64] = 1);
    FOOTER(true, "footer: its version is not the header's", f[66] = 2);
    FOOTER(true, "footer: reserved flags are set", f[71] = 1);
    FOOTER(true, "footer: reserved bytes are not zero", f[24] = 1);
    FOOTER(true, "footer: reserved bytes are not zero", f[103] = 1);
    FOOTER(true, "footer: invalid offset of the index", tp_store64(f, tp_load64(f) + 1));
    FOOTER(true, "footer: invalid offset of the index", tp_store64(f, 0));
    FOOTER(true, "footer: the index does not end at the footer", tp_store64(f, tp_load64(f) - 128));
    FOOTER(true, "footer: the index does not end at the footer", tp_store64(f + 8, tp_load64(f + 8) + 1));
    FOOTER(true, "footer: the index does not end at the footer",
           tp_store64(f, UINT64_MAX & ~(uint64_t)127));
    FOOTER(true, "footer: impossible size of the index", tp_store64(f + 16, 63));
    FOOTER(true, "footer: impossible size of the index", tp_store64(f + 16, 255 * tp_load64(f + 8) + 65));
    FOOTER(true, "footer: impossible size of the index", tp_store64(f + 16, ((uint64_t)1 << 30) + 1));
    FOOTER(true, "footer: impossible size of the index", tp_store64(f + 16, UINT64_MAX));
    /* Stored larger than any LZ4 block of that content: the whole container as the index. */
    FOOTER(true, "footer: impossible size of the index", tp_store64(f, 128);
           tp_store64(f + 8, container.size - 256));
    FOOTER(true, "index: damaged: its hash differs", f[32] ^= 1);
    FOOTER(true, "index: does not decompress to its size", tp_store64(f + 16, tp_load64(f + 16) - 1));
    FOOTER(true, "index: does not decompress to its size", tp_store64(f + 16, tp_load64(f + 16) + 1));
    FOOTER(true, "the container's digest differs", f[48] ^= 1);
    FOOTER(true, "the container's digest differs", f[63] ^= 0x80);
}

/* Frames of the small container by their place in the index: columns are reached by parsing it. */
static void with_index(parts *p, void (*change)(tp_index *index, parts *p))
{
    tp_index index;
    uint8_t *copy = malloc(p->index.size);
    memcpy(copy, p->index.data, p->index.size);
    assert_int_equal(tp_index_parse(&index, copy, p->index.size, 128 + p->frames.size, "t", NULL), TP_OK);
    change(&index, p);
    /* Digests that match the change. */
    tp_hasher hasher;
    tp_hasher_init(&hasher);
    for (uint64_t i = 0; i < index.frames; i++) {
        uint64_t part[3] = {index.frame_raw_size[i], index.frame_raw_hash[2 * i],
                            index.frame_raw_hash[2 * i + 1]};
        tp_hasher_add(&hasher, part, sizeof part);
    }
    tp_hasher_end(&hasher, index.file_digest);
    memcpy(p->index.data, index.raw, p->index.size);
    tp_index_free(&index);
}

static void change_codec(tp_index *x, parts *p)
{
    (void)p;
    x->frame_codec[2] = TP_FRAME_RAW;
}
static void change_method(tp_index *x, parts *p)
{
    (void)p;
    x->frame_method[2] = TP_METHOD_LZ4;
}
static void change_raw_hash(tp_index *x, parts *p)
{
    (void)p;
    x->frame_raw_hash[5] ^= 1;
}
static void change_stored_hash(tp_index *x, parts *p)
{
    (void)p;
    x->frame_stored_hash[4] ^= 1;
}
static void change_raw_size(tp_index *x, parts *p)
{
    (void)p;
    x->frame_raw_size[2]--;
    x->file_size[0]--;
    x->tensor_nbytes[5]--; /* what lies at the end stays inside the file */
    x->tensor_offset[6]--;
}

/* Each field that index and frame share is compared: another frame in its place is damage. */
static void frame_against_index(void **state)
{
    (void)state;
    void (*const changes[])(tp_index *, parts *) = {change_codec, change_method, change_raw_hash,
                                                    change_raw_size};
    parts p = take_apart(container);
    tp_index index;
    uint8_t *copy = malloc(p.index.size);
    memcpy(copy, p.index.data, p.index.size);
    assert_int_equal(tp_index_parse(&index, copy, p.index.size, 128 + p.frames.size, "t", NULL), TP_OK);
    char expected[200];
    snprintf(expected, sizeof expected,
             "test.tpress: frame 2 at byte %llu: is not the frame that the index names",
             (unsigned long long)index.frame_offset[2]);
    tp_index_free(&index);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        parts q = take_apart(container);
        with_index(&q, changes[i]);
        bytes changed = put_together(&q);
        assert_opens_with(changed, TP_CORRUPT, expected);
        free(changed.data);
        parts_free(&q);
    }
    /* The stored hash enters the container's digest, too: there the difference shows first. */
    parts q = take_apart(container);
    with_index(&q, change_stored_hash);
    bytes changed = put_together(&q);
    assert_opens_with(changed, TP_CORRUPT, "test.tpress: the container's digest differs");
    free(changed.data);
    parts_free(&q);
    parts_free(&p);
}

static void damaged_frame(void **state)
{
    (void)state;
    bytes copy = {malloc(container.size), container.size};
    memcpy(copy.data, container.data, copy.size);
    copy.data[128 + 20] ^= 1; /* the first frame's stored size */
    tp_error error = {0};
    bytes restored;
    assert_int_equal(restore_memory(copy, &restored, &error), TP_CORRUPT);
    assert_memory_equal(error.message, "test.tpress: frame 0 at byte 128: ", 34);
    free(copy.data);
}

static void every_bit_and_length(void **state)
{
    (void)state;
    bytes tiny = tiny_checkpoint(), file;
    make_container(&tiny, "tiny.safetensors", &file);
    assert_true(file.size < 8192);
    tp_error error = {0};
    bytes restored;
    /* Sanitizers: a part of the bits, but each byte, unless told otherwise. */
    const char *told = getenv("TP_TEST_BIT_STEP");
    const size_t step = told && atoi(told) > 0 ? (size_t)atoi(told) : SLOW_BUILD ? 7 : 1;
    for (size_t bit = 0; bit < 8 * file.size; bit += step) {
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        tp_status status = restore_memory(file, &restored, &error);
        if (status == TP_OK) fail_msg("bit %zu of byte %zu may change unnoticed", bit % 8, bit / 8);
        assert_true(tp_status_exit_code(status) == 1 || tp_status_exit_code(status) == 4);
        file.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < file.size; size++) {
        bytes cut = {malloc(size + 1), size}; /* of its own, so that a sanitizer sees reading beyond */
        memcpy(cut.data, file.data, size);
        assert_int_not_equal(restore_memory(cut, &restored, &error), TP_OK);
        free(cut.data);
    }
    bytes longer = {calloc(1, file.size + 128), file.size + 128};
    memcpy(longer.data, file.data, file.size);
    assert_int_equal(restore_memory(longer, &restored, &error), TP_TRUNCATED);
    free(longer.data);
    assert_int_equal(restore_memory(file, &restored, &error), TP_OK);
    assert_memory_equal(restored.data, tiny.data, tiny.size);
    free(restored.data);
    free(file.data);
    free(tiny.data);
}

/* Damage inside the index with every hash recomputed: an error, or the same bytes (names may change). */
static void sealed_index_damage(void **state)
{
    (void)state;
    bytes tiny = tiny_checkpoint(), file;
    make_container(&tiny, "tiny.safetensors", &file);
    parts p = take_apart(file);
    for (size_t bit = 0; bit < 8 * p.index.size; bit++) {
        p.index.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bytes changed = put_together(&p), restored;
        tp_error error = {0};
        if (restore_memory(changed, &restored, &error) == TP_OK) {
            assert_int_equal(restored.size, tiny.size);
            assert_memory_equal(restored.data, tiny.data, tiny.size);
            free(restored.data);
        }
        free(changed.data);
        p.index.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    parts_free(&p);
    free(file.data);
    free(tiny.data);
}

int test_container(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restores),
        cmocka_unit_test(header_rules),
        cmocka_unit_test(footer_rules),
        cmocka_unit_test(frame_against_index),
        cmocka_unit_test(damaged_frame),
        cmocka_unit_test(every_bit_and_length),
        cmocka_unit_test(sealed_index_damage),
    };
    return cmocka_run_group_tests_name("container", tests, setup, teardown);
}
