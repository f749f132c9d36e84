/* One reader used by many threads at once, and by children that are forked meanwhile. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define LARGEST 2400000

static tp_error error;
static bytes small;
static tp_reader *readers[2]; /* of the container, of the plain file */
static bool stop;

static int setup(void **state)
{
    (void)state;
    small = small_checkpoint();
    write_file(scratch("small.safetensors"), small.data, small.size);
    if (tp_compress_file(scratch("small.safetensors"), -1, scratch("small.tpress"), -1, NULL, NULL,
                         &error) != TP_OK)
        fail_msg("%s", error.message);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(small.data);
    scratch_remove();
    return 0;
}

static void open_readers(void)
{
    assert_int_equal(tp_open(scratch("small.tpress"), &readers[0], &error), TP_OK);
    assert_int_equal(tp_open(scratch("small.safetensors"), &readers[1], &error), TP_OK);
}

static void close_readers(void)
{
    tp_close(readers[0]);
    tp_close(readers[1]);
}

static bool read_bytes(tp_reader *reader, uint64_t *seed, uint8_t *buffer)
{
    uint64_t offset = random_next(seed) % small.size;
    size_t size = random_next(seed) % 4 ? random_next(seed) % 300 : random_next(seed) % LARGEST;
    if (size > small.size - offset) size = small.size - offset;
    return tp_pread(reader, 0, buffer, size, offset, NULL) == TP_OK &&
           memcmp(buffer, small.data + offset, size) == 0;
}

static bool read_tensor(tp_reader *reader, const tp_tensor_info *info, size_t number, uint8_t *buffer)
{
    size_t found;
    return tp_reader_find(reader, SIZE_MAX, info->name.data, info->name.size, &found) == TP_OK &&
           found == number && tp_read_tensor(reader, number, buffer, LARGEST, NULL) == TP_OK &&
           memcmp(buffer, small.data + info->offset, info->nbytes) == 0;
}

static bool read_box(tp_reader *reader, const tp_tensor_info *info, size_t number, uint64_t *seed,
                     uint8_t *buffer)
{
    uint64_t first[2], last[2];
    size_t size;
    for (unsigned d = 0; d < 2; d++) {
        uint64_t a = random_next(seed) % (info->shape[d] + 1), b = random_next(seed) % (info->shape[d] + 1);
        first[d] = a < b ? a : b;
        last[d] = a < b ? b : a;
    }
    if (tp_read_box(reader, number, first, last, 2, buffer, LARGEST, &size, NULL) != TP_OK) return false;
    uint64_t elements = info->shape[0] * info->shape[1],
             element = elements > 0 ? info->nbytes / elements : 0;
    size_t row = (size_t)((last[1] - first[1]) * element);
    if (size != row * (last[0] - first[0])) return false;
    for (uint64_t i = first[0]; i < last[0]; i++, buffer += row)
        if (memcmp(buffer, small.data + info->offset + (i * info->shape[1] + first[1]) * element, row) != 0)
            return false;
    return true;
}

/* One random thing of one of the readers, compared with the truth. No function of cmocka: these end
 * threads. */
static bool read_something(uint64_t *seed, uint8_t *buffer)
{
    tp_reader *reader = readers[random_next(seed) % 2];
    size_t number = random_next(seed) % 7;
    tp_tensor_info info;
    if (tp_reader_tensor(reader, number, &info) != TP_OK) return false;
    switch (random_next(seed) % 4) {
    case 0:
        return read_tensor(reader, &info, number, buffer);
    case 1:
        return read_box(reader, &info, number, seed, buffer);
    default:
        return read_bytes(reader, seed, buffer);
    }
}

static void *read_many(void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    uint8_t *buffer = malloc(LARGEST);
    bool good = true;
    for (unsigned i = 0; good && i < (SLOW_BUILD ? 60u : 400u); i++) good = read_something(&seed, buffer);
    free(buffer);
    return good ? NULL : argument;
}

static void *read_until_stopped(void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    uint8_t *buffer = malloc(LARGEST);
    bool good = true;
    while (good && !__atomic_load_n(&stop, __ATOMIC_RELAXED)) good = read_something(&seed, buffer);
    free(buffer);
    return good ? NULL : argument;
}

static pthread_t threads[THREADS];
static uint64_t seeds[THREADS];

static void start(void *(*run)(void *))
{
    for (uint64_t i = 0; i < THREADS; i++) {
        seeds[i] = 100 + i;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &seeds[i]), 0);
    }
}

static void join(void)
{
    for (unsigned i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void one_reader(void **state)
{
    (void)state;
    open_readers(); /* fresh ones: the first look-ups race as well */
    start(read_many);
    join();
    close_readers();
}

static int read_as_child(uint64_t seed)
{
    uint8_t *buffer = malloc(LARGEST);
    alarm(120); /* a lock that nobody is left to open would be this signal */
    for (unsigned i = 0; i < 20; i++)
        if (!read_something(&seed, buffer)) return 1;
    close_readers();
    free(buffer);
    return 0;
}

/* Whatever other threads are doing at that moment, a child reads on with the reader that it inherits. */
static void after_fork(void **state)
{
    (void)state;
    open_readers();
    stop = false;
    start(read_until_stopped);
    unsigned failed = 0;
    for (unsigned i = 0; i < (SLOW_BUILD ? 10u : 60u); i++) {
        int status;
        pid_t child = fork();
        if (child == 0) _exit(read_as_child(i));
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    join();
    assert_int_equal(failed, 0);
    close_readers();
}

int test_threads(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_reader),
        cmocka_unit_test(after_fork),
    };
    return cmocka_run_group_tests_name("threads", tests, setup, teardown);
}
