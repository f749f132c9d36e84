/* What the tests of convert/ share: a scratch folder, small files, checkpoints to convert, containers to
 * damage. */
#ifndef TP_TESTS_CONVERT_SUPPORT_H
#define TP_TESTS_CONVERT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensorpress.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#ifndef SLOW_BUILD
#define SLOW_BUILD 0
#endif

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

/* A path in the scratch folder, which is made at the first call and removed by scratch_remove. The text
 * lives until the 16th call after it. */
const char *scratch(const char *name);
void scratch_remove(void);
/* The next scratch folder lies in memory, where that is possible: thousands of files would measure the
 * disk. */
void scratch_in_memory(void);
/* Removes a file or folder in it, whatever its modes are. */
void scratch_remove_tree(const char *name);
/* Whether the scratch folder holds exactly these files (NULL ends the list). */
void assert_only(const char *name, ...);

void write_file(const char *path, const void *data, size_t size);
bytes read_file(const char *path);
bool exists(const char *path);
void assert_same_file(const char *a, const char *b);

uint64_t random_next(uint64_t *state);
/* n 16-bit floats that look like weights: normal about zero, as BF16. */
void fill_bf16(uint8_t *dst, size_t n, uint64_t seed);
void fill_random(uint8_t *dst, size_t size, uint64_t seed);

/* A safetensors file made of tensors in order; every shape is [rows, columns]. */
typedef struct checkpoint {
    char *header;
    size_t header_size, header_capacity;
    uint8_t *data;
    size_t size, capacity;
} checkpoint;
uint8_t *checkpoint_add(checkpoint *c, const char *name, const char *dtype, uint64_t rows, uint64_t columns,
                        size_t size);
bytes checkpoint_end(checkpoint *c); /* frees it */

/* The small checkpoint of several tests: two frames of bf16, a duplicate, small tensors, an empty one. */
bytes small_checkpoint(void);

/* The lines that a conversion has warned with, one after the other. */
typedef struct lines {
    char text[16384];
    size_t size;
    unsigned count;
} lines;
void lines_add(void *context, const char *line);

/* A container in parts, to be changed and put together again with hashes that match. */
typedef struct parts {
    uint8_t header[128], footer[128];
    bytes frames, index; /* the index decompressed */
} parts;
parts take_apart(bytes container);
/* Recompresses the index, and recomputes every hash, size and offset in header and footer. */
bytes put_together(const parts *p);
void parts_free(parts *p);
/* Recomputes the hash of a header or footer after a change. */
void seal_header(uint8_t *header);
void seal_footer(uint8_t *footer);

/* Opens a container in memory and decodes every frame. The restored first file in *restored if all is well.
 */
tp_status restore_memory(bytes container, bytes *restored, tp_error *error);

/* Fails unless status and the whole message are these. */
#define assert_error(status, error, expected_status, expected_message)                                     \
    do {                                                                                                   \
        tp_status got_status = (status);                                                                   \
        assert_string_equal((error).message, expected_message);                                            \
        assert_int_equal(got_status, expected_status);                                                     \
    } while (0)

int test_box(void);
int test_callback(void);
int test_cutting(void);
int test_container(void);
int test_conversion(void);
int test_errors(void);
int test_folder(void);
int test_index(void);
int test_linear(void);
int test_memory(const char *program);
int test_output(void);
int test_direct(void);
int test_reader(void);
int test_repository(void);
int test_text(void);
int test_threads(void);
int test_writer(void);
int memory_child(char **arguments);

#endif
