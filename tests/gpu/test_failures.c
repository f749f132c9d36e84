/* The CUDA back end with each function of the driver made to fail, at each of its calls. */
#include "support.h"

#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "gpu/cuda_api.h"

#define MOST_CALLS 40 /* of one function that are made to fail */

/* Failing, these change nothing that a caller could be told: texts for people, and giving back. */
static const char *const tolerated[] = {
    "cuDriverGetVersion", "cuDeviceGetName",  "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
    "cuGetErrorName",     "cuGetErrorString", "cuCtxPopCurrent_v2",  "cuModuleUnload",
    "cuMemFree_v2",       "cuMemFreeHost",    "cuStreamDestroy_v2",  "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
};
/* These are also called when things are given back, where a failure leaves nothing to be done or told. */
static const char *const also_last[] = {"cuCtxPushCurrent_v2", "cuStreamSynchronize"};
/* Called once in a process. */
static const char *const first_calls[] = {"cuInit", "cuDeviceGetCount"};

static bool is_in(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}
#define IS_IN(name, list) is_in(name, list, sizeof list / sizeof *list)

static const char *container;
static tp_reader *reader;

static tp_status load_all(tp_device *device, tp_error *error)
{
    tp_loader *loader = NULL;
    tp_status status =
        tp_loader_create(device, &(tp_load_options){.threads = 1, .staging = 1}, &loader, error);
    if (status == TP_OK) status = tp_loader_add_matching(loader, reader, "*", NULL, NULL, error);
    if (status == TP_OK) status = tp_loader_run(loader, error);
    if (status == TP_OK) status = tp_loader_verify(loader, error);
    tp_loader_close(loader);
    return status;
}

/*
 * Item by item after the caller's stream, some rows among them, one item in the caller's memory; each is
 * given away as soon as it is there, and the loader closed first. What was handed out before a failure is
 * sound.
 */
static tp_status load_next(tp_device *device, tp_error *error)
{
    const tp_backend *b = device->backend;
    tp_loader *loader = NULL;
    tp_stream stream = {.device = NULL};
    tp_memory own = {.device = NULL};
    struct DLManagedTensorVersioned {
        uint32_t version[2];
        void *context;
        void (*deleter)(struct DLManagedTensorVersioned *);
        uint64_t flags;
        uint8_t *data;
    } * given[64];
    size_t count = 0, placed = SIZE_MAX, item;
    tp_status status = b->stream_create(device, &stream, error);
    if (status == TP_OK) status = b->memory_create(device, 2300000 * 2 + 1, &own, error);
    const tp_load_options options = {.threads = 1, .staging = 1, .stream = (uintptr_t)stream.handle};
    if (status == TP_OK) status = tp_loader_create(device, &options, &loader, error);
    if (status == TP_OK) status = tp_loader_add_matching(loader, reader, "*", NULL, NULL, error);
    if (status == TP_OK) status = tp_loader_add_rows(loader, reader, 0, 1000, 2000000, NULL, error);
    if (status == TP_OK) status = tp_loader_add_named(loader, reader, "big.bf16", &placed, error);
    const tp_device_range where = {.address = own.address + 1, .size = own.size - 1};
    if (status == TP_OK) status = tp_loader_place(loader, placed, &where, error);
    while (status == TP_OK) {
        status = tp_loader_next(loader, &item, error);
        if (status != TP_OK || item == SIZE_MAX) break;
        tp_load_item info;
        assert_int_equal(tp_loader_item(loader, item, &info), TP_OK);
        assert_true(info.loaded);
        if (item != placed) {
            assert_int_equal(tp_loader_dlpack_versioned(loader, item, true, (void *)&given[count], error),
                             TP_OK);
            uint8_t *expected = malloc(info.nbytes + 1);
            size_t size;
            if (info.whole)
                assert_int_equal(tp_read_tensor(reader, info.tensor, expected, info.nbytes, NULL), TP_OK);
            else
                assert_int_equal(tp_read_rows(reader, info.tensor, info.first, info.last, expected,
                                              info.nbytes, &size, NULL),
                                 TP_OK);
            if (info.nbytes) assert_memory_equal(given[count]->data, expected, info.nbytes);
            free(expected);
            count++;
        }
    }
    tp_loader_close(loader);
    for (size_t i = 0; i < count; i++) given[i]->deleter(given[i]);
    if (own.device) b->memory_destroy(&own);
    if (stream.device) b->stream_destroy(&stream);
    return status;
}

typedef tp_status way(tp_device *device, tp_error *error);
static way *const ways[] = {load_all, load_next, decode_in_framework};
enum { WAYS = sizeof ways / sizeof *ways };

/* Opens, does it, closes; the first error. */
static tp_status whole_way(way *what, tp_error *error)
{
    tp_device *device;
    error->message[0] = 0;
    tp_status status = tp_device_open("cuda", &device, error);
    if (status != TP_OK) return status;
    status = what(device, error);
    tp_device_close(device);
    return status;
}

/* In a process of its own, since the driver is looked for once. */
static int open_in_child(const char *function)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        tp_device *device = NULL;
        tp_error error = {0};
        tp_device_info info;
        size_t count = 0;
        if (function) load_stand_in()->make_fail(function, 1, 999);
        if (!function) tp_cuda_use_driver("no-such-library.so");
        const tp_status status = tp_device_open("cuda", &device, &error);
        tp_device_list(&info, 1, &count);
        _exit(status == TP_UNSUPPORTED && !device && count >= 1 && strcmp(info.name, "cpu") == 0 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    return status;
}

static void no_driver(void **state)
{
    (void)state;
    assert_int_equal(open_in_child(NULL), 0);
    for (size_t i = 0; i < sizeof first_calls / sizeof *first_calls; i++)
        assert_int_equal(open_in_child(first_calls[i]), 0);
}

#define NAME(member, name, parameters) #name,
static const char *const functions[] = {TP_CUDA_FUNCTIONS(NAME)};
#undef NAME
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Function f fails at each of its `calls` calls in turn. */
static void one_function_fails(int w, const char *name, unsigned calls)
{
    const driver_control *control = load_stand_in();
    tp_error error = {0};
    const bool texts = strncmp(name, "cuGetError", 10) == 0;
    unsigned noticed = 0;
    const unsigned step = calls / MOST_CALLS + 1;
    for (unsigned nth = 1; nth <= (texts ? 1 : calls); nth += nth < 4 ? 1 : step) {
        control->reset();
        control->make_fail(name, nth, 999);
        if (texts) control->memory_limit(1 << 18); /* so that there is an error to put into words */
        const tp_status status = whole_way(ways[w], &error);
        if (IS_IN(name, tolerated) && !texts) {
            if (status != TP_OK) fail_msg("way %d, %s, call %u: %s", w, name, nth, error.message);
        } else {
            if (status == TP_OK && !IS_IN(name, also_last))
                fail_msg("way %d, %s, call %u: its failure is not noticed", w, name, nth);
            if (status != TP_OK && !strstr(error.message, "cuda"))
                fail_msg("way %d, %s, call %u: '%s' names no device", w, name, nth, error.message);
        }
        noticed += status != TP_OK;
        if (control->violation()) fail_msg("way %d, %s, call %u: %s", w, name, nth, control->violation());
        if (control->live() && !(status == TP_OK && IS_IN(name, also_last)))
            fail_msg("way %d, %s, call %u: %u things are left", w, name, nth, control->live());
    }
    if (!noticed && !IS_IN(name, tolerated))
        fail_msg("way %d, %s: none of its failures is noticed", w, name);
}

static void every_function_fails(void **state)
{
    (void)state;
    tp_error error = {0};
    const driver_control *control = load_stand_in();
    unsigned total[FUNCTIONS] = {0};
    make_container(in_folder("made.safetensors"), container, TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    assert_ok(tp_open(container, &reader, &error), &error);
    for (int w = 0; w < WAYS; w++) {
        /* How often each is called when all goes well. */
        unsigned calls[FUNCTIONS];
        control->reset();
        assert_ok(whole_way(ways[w], &error), &error);
        assert_clean();
        for (size_t f = 0; f < FUNCTIONS; f++) calls[f] = control->calls(functions[f]);
        for (size_t f = 0; f < FUNCTIONS; f++) {
            const bool texts = strncmp(functions[f], "cuGetError", 10) == 0;
            total[f] += texts ? 1 : calls[f];
            if (IS_IN(functions[f], first_calls) || (!calls[f] && !texts)) continue;
            one_function_fails(w, functions[f], calls[f]);
        }
    }
    for (size_t f = 0; f < FUNCTIONS; f++)
        if (!total[f] && !IS_IN(functions[f], first_calls))
            fail_msg("%s is never called: no test of its failure", functions[f]);
    control->reset();
}

static void out_of_memory(void **state)
{
    (void)state;
    tp_error error = {0};
    const driver_control *control = load_stand_in();
    for (int w = 0; w < WAYS; w++) {
        unsigned failed = 0;
        for (unsigned long long limit = 1 << 18; limit < 1 << 26; limit *= 2) {
            control->reset();
            control->memory_limit(limit);
            const tp_status status = whole_way(ways[w], &error);
            if (status != TP_OK) assert_int_equal(status, TP_NO_MEMORY);
            failed += status != TP_OK;
            assert_clean();
        }
        assert_true(failed > 0);
    }
    tp_close(reader);
    control->reset();
}

/* A tensor that fails leaves the loader usable: the others, and the same again when the cause has gone. */
static void goes_on_after_failure(void **state)
{
    (void)state;
    tp_error error = {0};
    const driver_control *control = load_stand_in();
    control->reset();
    tp_device *device;
    tp_loader *loader;
    size_t item;
    assert_ok(tp_open(container, &reader, &error), &error);
    assert_ok(tp_device_open("cuda", &device, &error), &error);
    assert_ok(tp_loader_create(device, NULL, &loader, &error), &error);
    assert_ok(tp_loader_add_named(loader, reader, "f64", &item, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    const unsigned long long used = control->used();
    const unsigned live = control->live();
    static const char *const failing[] = {"cuMemAlloc_v2", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
                                          "cuStreamSynchronize"};
    for (size_t i = 0; i < 4; i++) {
        control->make_fail(failing[i], control->calls(failing[i]) + 1, 999);
        assert_ok(tp_loader_add_named(loader, reader, "big.bf16", &item, &error), &error);
        assert_int_equal(item, i + 1); /* a new one each time */
        assert_int_not_equal(tp_loader_run(loader, &error), TP_OK);
        assert_non_null(strstr(error.message, "cuda:0"));
        control->make_fail(NULL, 0, 0);
        assert_int_equal(control->used(), used);
        assert_int_equal(control->live(), live);
        tp_load_item info;
        tp_loader_item(loader, item, &info);
        assert_false(info.loaded);
        assert_ok(tp_loader_verify(loader, &error), &error); /* f64 is as it was */
    }
    assert_ok(tp_loader_add_named(loader, reader, "big.bf16", &item, &error), &error);
    assert_ok(tp_loader_run(loader, &error), &error);
    assert_ok(tp_loader_verify(loader, &error), &error);
    tp_load_stats stats;
    tp_loader_stats(loader, &stats);
    assert_int_equal(stats.tensors, 2);
    tp_loader_close(loader);
    tp_device_close(device);
    tp_close(reader);
    assert_clean();
}

int run_failures(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),
        cmocka_unit_test(every_function_fails),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(goes_on_after_failure),
    };
    make_folder();
    make_checkpoint(in_folder("made.safetensors"));
    container = in_folder("c.tpress");
    decode_make_samples();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    decode_free_samples();
    remove_folder();
    return failed;
}
