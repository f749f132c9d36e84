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
};
/* These are also called when things are given back, where a failure leaves nothing to be done or told. */
static const char *const also_last[] = {"cuCtxPushCurrent_v2", "cuStreamSynchronize"};
/* Called once in a process in a process. */
static const char *const first_calls[] = {"cuInit", "cuDeviceGetCount"};

static bool is_in(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}
#define IS_IN(name, list) is_in(name, list, sizeof list / sizeof *list)

/* Opens, loads, reads back, closes; the first error. */
static tp_status whole_way(const char *path, tp_error *error)
{
    tp_device *device;
    tp_reader *reader;
    tp_loader *loader = NULL;
    size_t truncated;
    error->message[0] = 0;
    tp_status status = tp_device_open("cuda", &device, error);
    if (status != TP_OK) return status;
    assert_int_equal(tp_open(path, &reader, NULL), TP_OK);
    status =
        tp_loader_create(reader, device, &(tp_load_options){.threads = 1, .staging = 1}, &loader, error);
    if (status == TP_OK) status = tp_loader_add_all(loader, &truncated, error);
    if (status == TP_OK) status = tp_loader_run(loader, error);
    if (status == TP_OK) status = tp_loader_verify(loader, error);
    tp_loader_close(loader);
    tp_close(reader);
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

static void every_function_fails(void **state)
{
    (void)state;
    tp_error error = {0};
    const driver_control *control = load_stand_in();
    make_container(in_folder("made.safetensors"), in_folder("c.tpress"), TP_LEVEL_DEFAULT, TP_CODEC_AUTO);
    /* How often each is called when all goes well. */
    control->reset();
    assert_ok(whole_way(in_folder("c.tpress"), &error), &error);
    assert_clean();
#define NAME(member, name, parameters) #name,
    static const char *const functions[] = {TP_CUDA_FUNCTIONS(NAME)};
#undef NAME
    enum { FUNCTIONS = sizeof functions / sizeof *functions };
    unsigned calls[FUNCTIONS];
    for (size_t f = 0; f < FUNCTIONS; f++) calls[f] = control->calls(functions[f]);

    for (size_t f = 0; f < FUNCTIONS; f++) {
        const char *name = functions[f];
        if (IS_IN(name, first_calls)) continue;
        const bool texts = strncmp(name, "cuGetError", 10) == 0;
        if (!calls[f] && !texts) fail_msg("%s is never called: no test of its failure", name);
        unsigned noticed = 0;
        const unsigned step = calls[f] / MOST_CALLS + 1;
        for (unsigned nth = 1; nth <= (texts ? 1 : calls[f]); nth += nth < 4 ? 1 : step) {
            control->reset();
            control->make_fail(name, nth, 999);
            if (texts) control->memory_limit(1 << 20); /* so that there is an error to put into words */
            const tp_status status = whole_way(in_folder("c.tpress"), &error);
            if (IS_IN(name, tolerated) && !texts) {
                if (status != TP_OK) fail_msg("%s, call %u: %s", name, nth, error.message);
            } else {
                if (status == TP_OK && !IS_IN(name, also_last))
                    fail_msg("%s, call %u: its failure is not noticed", name, nth);
                if (status != TP_OK && !strstr(error.message, "cuda"))
                    fail_msg("%s, call %u: '%s' names no device", name, nth, error.message);
            }
            noticed += status != TP_OK;
            if (control->violation()) fail_msg("%s, call %u: %s", name, nth, control->violation());
            if (control->live() && !(status == TP_OK && IS_IN(name, also_last)))
                fail_msg("%s, call %u: %u things are left", name, nth, control->live());
        }
        if (!noticed && !IS_IN(name, tolerated)) fail_msg("%s: none of its failures is noticed", name);
    }
    control->reset();
}

static void out_of_memory(void **state)
{
    (void)state;
    tp_error error = {0};
    const driver_control *control = load_stand_in();
    for (unsigned long long limit = 1 << 20; limit < 1 << 26; limit *= 2) {
        control->reset();
        control->memory_limit(limit);
        const tp_status status = whole_way(in_folder("c.tpress"), &error);
        if (status != TP_OK) assert_int_equal(status, TP_NO_MEMORY);
        assert_clean();
    }
    control->reset();
}

int run_failures(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),
        cmocka_unit_test(every_function_fails),
        cmocka_unit_test(out_of_memory),
    };
    make_folder();
    make_checkpoint(in_folder("made.safetensors"));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder();
    return failed;
}
