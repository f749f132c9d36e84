/* tensorpress doctor */
#include <cJSON.h>
#include <lz4.h>
#include <openssl/crypto.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <string.h>

#include "cpu.h"
#include "message.h"
#include "verbs.h"

/* A device with its self-test, or why a kind has none. */
static int show_devices(void)
{
    static const char *const kinds[] = {"cuda", "opencl"};
    tp_device_info devices[64];
    size_t count = 0;
    int status = EXIT_OK;
    puts("devices:");
    tp_device_list(devices, sizeof devices / sizeof *devices, &count);
    if (count > sizeof devices / sizeof *devices) count = sizeof devices / sizeof *devices;
    for (size_t i = 0; i < count; i++) {
        tp_error error;
        tp_device *device;
        memset(&error, 0, sizeof error);
        printf("  %-10s %s", devices[i].name, devices[i].description);
        if (devices[i].memory) printf(", %.1f GiB", (double)devices[i].memory / (1 << 30));
        fflush(stdout); /* the test can take a while: kernels may have to be compiled first */
        tp_status result = tp_device_open(devices[i].name, &device, &error);
        if (result == TP_OK) {
            result = tp_device_self_test(device, &error);
            tp_device_close(device);
        }
        printf(", self-test %s\n", result == TP_OK ? "passed" : "FAILED");
        if (result != TP_OK) {
            fail(EXIT_DATA, "device %s: self-test failed: %s", devices[i].name,
                 error.message[0] ? error.message : tp_status_message(result));
            status = EXIT_DATA;
        }
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        bool present = false;
        for (size_t i = 0; i < count; i++) present |= strcmp(devices[i].backend, kinds[k]) == 0;
        tp_error error;
        tp_device *device;
        memset(&error, 0, sizeof error);
        if (present || tp_device_open(kinds[k], &device, &error) == TP_OK) continue;
        const char *why = strstr(error.message, ": ");
        printf("  %-10s none: %s\n", kinds[k], why ? why + 2 : error.message);
    }
    return status;
}

static int run(const struct options *options)
{
    (void)options;
    char cpu[128];
    int status = EXIT_OK;
    printf("tensorpress %s, container format %d.%d, library interface %d\n", tp_version(), TP_FORMAT_MAJOR,
           TP_FORMAT_MINOR, tp_abi_version());
    printf("lz4 %s\n", LZ4_versionString());
    printf("xxHash %d.%d.%d\n", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE);
    printf("cJSON %s\n", cJSON_Version());
    char pcre2[64] = ""; /* of at most 24 characters, by its documentation */
    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    printf("PCRE2 %s\n", pcre2);
    printf("%s\n", OpenSSL_version(OPENSSL_VERSION));
    printf("CPU: %s, %u usable\n", cpu_name(cpu, sizeof cpu), cpu_count());
    puts("kernels:");
    const char *active = tp_kernel_active();
    for (const char *const *name = tp_kernel_names(); *name; name++) {
        if (!tp_kernel_available(*name)) {
            printf("  %-10s not available on this CPU\n", *name);
            continue;
        }
        tp_error error;
        memset(&error, 0, sizeof error);
        tp_status result = tp_kernel_self_test(*name, &error);
        printf("  %-10s available%s, self-test %s\n", *name, strcmp(*name, active) == 0 ? ", active" : "",
               result == TP_OK ? "passed" : "FAILED");
        if (result != TP_OK) {
            fail(EXIT_DATA, "kernel %s: self-test failed: %s", *name,
                 error.message[0] ? error.message : tp_status_message(result));
            status = EXIT_DATA;
        }
    }
    const int devices = show_devices();
    return status != EXIT_OK ? status : devices;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .usage = "",
    .about = "Shows the versions of tensorpress and its libraries, the CPU kernels and which is active, "
             "and the devices.\n"
             "Every kernel that this CPU has and every device is tested; a failure is exit status 1.",
    .examples = "  tensorpress doctor\n",
    .options = 0,
    .min_arguments = 0,
    .max_arguments = 0,
    .argument_names = "",
    .run = run,
};
