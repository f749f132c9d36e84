/* Every kernel by itself, and that its test can fail. */
#include "support.h"

#include "gpu/self_test.h"

static void all_kernels(void **state)
{
    (void)state;
    tp_device *device = open_device();
    tp_error error = {0};
    for (int i = 0; device->backend->launch && i < TP_KERNEL_COUNT; i++)
        assert_ok(tp_kernel_device_test(device, (tp_kernel_id)i, &error), &error);
    assert_ok(tp_device_self_test(device, &error), &error);
    tp_device_close(device);
    assert_clean();
}

/* A device whose launches do one thing differently: the self-test must see it. */
typedef enum fault { NOT_RUN, WRONG_OUTPUT, WRONG_RESULT, WRITES_BEYOND, FAULTS } fault;
static tp_backend faulty;
static const tp_backend *sound;
static fault made;

static tp_status faulty_launch(tp_stream *stream, const tp_launch *launch, tp_error *error)
{
    return made == NOT_RUN ? TP_OK : sound->launch(stream, launch, error);
}

static tp_status faulty_download(tp_stream *stream, const tp_memory *from, uint64_t at, void *to,
                                 size_t size, tp_error *error)
{
    tp_status status = sound->download(stream, from, at, to, size, error);
    if (status == TP_OK) status = sound->wait(stream, error);
    uint8_t *bytes = to;
    const bool results = size < 65536;
    if (made == WRONG_RESULT && results) bytes[8] ^= 1;
    if (made == WRONG_OUTPUT && !results) bytes[256] ^= 1;
    if (made == WRITES_BEYOND && !results) bytes[255] ^= 1;
    return status;
}

static void faults_are_seen(void **state)
{
    (void)state;
    tp_device *device = open_device();
    if (device->backend->launch) {
        sound = device->backend;
        faulty = *sound;
        faulty.launch = faulty_launch;
        faulty.download = faulty_download;
        device->backend = &faulty;
        for (made = NOT_RUN; made < FAULTS; made++) {
            tp_error error = {0};
            assert_int_equal(tp_kernel_device_test(device, tp_bf16_s9_kernel, &error), TP_MISMATCH);
            assert_non_null(strstr(error.message, "tp_bf16_s9"));
        }
        device->backend = sound;
    }
    tp_device_close(device);
    assert_clean();
}

static void names(void **state)
{
    (void)state;
    static const char *const malformed[] = {"",        "gpu",   "cpu:0",     "cuda:", "cuda:x",
                                            "cuda:1x", "cuda1", "opencl:-1", "CPU",   "opencl:12345678901"};
    tp_error error = {0};
    tp_device *device = NULL;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        assert_int_equal(tp_device_open(malformed[i], &device, &error), TP_INVALID_ARGUMENT);
    assert_int_equal(tp_device_open("opencl:4711", &device, &error), TP_UNSUPPORTED);
    assert_int_equal(tp_device_open("cuda:4711", &device, &error), TP_UNSUPPORTED);
    assert_null(device);
    tp_device_close(NULL);

    tp_device_info list[8];
    size_t count = 0, again = 0;
    assert_int_equal(tp_device_list(list, 8, &count), TP_OK);
    assert_true(count >= 1);
    assert_string_equal(list[0].name, "cpu");
    assert_int_equal(tp_device_list(NULL, 0, &again), TP_OK);
    assert_int_equal(count, again);
    for (size_t i = 0; i < count && i < 8; i++) assert_true(list[i].name[0] && list[i].description[0]);
}

int run_kernels(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kernels),
        cmocka_unit_test(faults_are_seen),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
