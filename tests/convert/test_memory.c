/* What converting a large file takes: a ceiling on memory, and a million tensors listed in no time. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CEILING_KIB (160 << 10)
#define FILE_SIZE ((size_t)320 << 20) /* twice the ceiling */

static const char *program;

/* The high-water mark of this process alone (ru_maxrss would count what the parent had). */
static long peak_kib(void)
{
    char line[256];
    long peak = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld kB", &peak) == 1) break;
    if (f) fclose(f);
    return peak;
}

/* In a process of its own: arguments are verb, input, output. Exits with 0 if the memory stayed below the
 * ceiling. */
int memory_child(char **arguments)
{
    tp_options options;
    tp_error error = {0};
    tp_options_init(&options);
    options.threads = 2;
    tp_status status = strcmp(arguments[0], "compress") == 0
                           ? tp_compress_file(arguments[1], -1, arguments[2], -1, &options, NULL, &error)
                       : strcmp(arguments[0], "decompress") == 0
                           ? tp_decompress_file(arguments[1], -1, arguments[2], -1, &options, NULL, &error)
                           : tp_verify_file(arguments[1], -1, arguments[2], &options, NULL, &error);
    long peak = peak_kib();
    fprintf(stderr, "%s: %ld KiB\n", arguments[0], peak);
    if (status != TP_OK) fprintf(stderr, "%s\n", error.message);
    return status == TP_OK && peak < CEILING_KIB ? 0 : 1;
}

static void run_child(const char *verb, const char *in, const char *out)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, "--memory", verb, in, out, (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void ceiling(void **state)
{
    (void)state;
    if (SLOW_BUILD) skip(); /* sanitizers need memory of their own */
    FILE *f = fopen(scratch("large.safetensors"), "wb");
    char header[256];
    const size_t piece = (size_t)4 << 20, count = FILE_SIZE / piece;
    int n = snprintf(header, sizeof header,
                     "{\"w\":{\"dtype\":\"BF16\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                     count * piece / 2, count * piece);
    uint64_t size = (uint64_t)n;
    assert_int_equal(fwrite(&size, 8, 1, f), 1);
    assert_int_equal(fwrite(header, 1, (size_t)n, f), n);
    uint8_t *data = malloc(piece);
    fill_bf16(data, piece / 2, 1);
    for (size_t i = 0; i < count; i++) {
        memcpy(data, &i, sizeof i); /* no two alike */
        assert_int_equal(fwrite(data, 1, piece, f), piece);
    }
    free(data);
    fclose(f);
    run_child("compress", scratch("large.safetensors"), scratch("c.tpress"));
    run_child("decompress", scratch("c.tpress"), scratch("restored"));
    run_child("verify", scratch("c.tpress"), scratch("restored"));
    assert_same_file(scratch("large.safetensors"), scratch("restored"));
}

/* Many files take a few hundred bytes each; buffers do not grow with them. */
static void folder_ceiling(void **state)
{
    (void)state;
    if (SLOW_BUILD) skip();
    char path[64], content[64];
    scratch_in_memory();
    assert_int_equal(mkdir(scratch("many"), 0755), 0);
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(path, sizeof path, "many/%u", i % 50);
        if (i < 50) assert_int_equal(mkdir(scratch(path), 0755), 0);
        snprintf(path, sizeof path, "many/%u/a file with a name of some length %u", i % 50, i);
        int n = snprintf(content, sizeof content, "content %u\n", i);
        write_file(scratch(path), content, (size_t)n);
    }
    uint8_t *data = malloc((size_t)64 << 20);
    fill_random(data, (size_t)64 << 20, 1);
    write_file(scratch("many/large"), data, (size_t)64 << 20);
    free(data);
    run_child("compress", scratch("many"), scratch("m.tpress"));
    run_child("decompress", scratch("m.tpress"), scratch("back"));
    run_child("verify", scratch("m.tpress"), scratch("back"));
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void million_tensors(void **state)
{
    (void)state;
    const unsigned count = SLOW_BUILD ? 20000 : 1000000;
    tp_error error = {0};
    checkpoint c = {0};
    char name[64];
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "model.layers.%u.block.weight", i);
        uint8_t *data = checkpoint_add(&c, name, "BF16", 2, 2, 8);
        memcpy(data, &i, 4);
        memset(data + 4, 0, 4);
    }
    bytes b = checkpoint_end(&c);
    write_file(scratch("many.safetensors"), b.data, b.size);
    if (tp_compress_file(scratch("many.safetensors"), -1, scratch("many.tpress"), -1, NULL, NULL, &error) !=
        TP_OK)
        fail_msg("%s", error.message);
    tp_reader *reader;
    double start = seconds();
    assert_int_equal(tp_open(scratch("many.tpress"), &reader, &error), TP_OK);
    double opened = seconds() - start;
    assert_int_equal(tp_reader_tensors(reader), count);
    size_t found;
    tp_tensor_info info;
    for (unsigned i = 0; i < count; i += count / 5000) {
        snprintf(name, sizeof name, "model.layers.%u.block.weight", i);
        assert_int_equal(tp_reader_find(reader, SIZE_MAX, name, strlen(name), &found), TP_OK);
        assert_int_equal(found, i);
    }
    start = seconds();
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(tp_reader_tensor(reader, i, &info) == TP_OK);
        sum += info.nbytes;
    }
    double listed = seconds() - start;
    assert_int_equal(sum, (uint64_t)count * 8);
    for (size_t i = 0; i < count; i += 7) {
        uint8_t data[8];
        unsigned value;
        assert_true(tp_read_tensor(reader, i, data, 8, &error) == TP_OK);
        memcpy(&value, data, sizeof value);
        assert_true(value == i);
    }
    fprintf(stderr, "%u tensors: opened in %.3f s, listed in %.3f s\n", count, opened, listed);
    if (!SLOW_BUILD) assert_true(opened < 1.0 && listed < 1.0);
    tp_close(reader);
    free(b.data);
}

static int clean(void **state)
{
    (void)state;
    scratch_remove();
    return 0;
}

int test_memory(const char *self)
{
    program = self;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ceiling, clean),
        cmocka_unit_test_setup(folder_ceiling, clean),
        cmocka_unit_test_setup(million_tensors, clean),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, clean);
}
