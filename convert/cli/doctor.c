/* tensorpress doctor */
#include <cJSON.h>
#include <lz4.h>
#include <openssl/crypto.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>
#include <string.h>

#include "cpu.h"
#include "message.h"
#include "verbs.h"

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
    puts("devices: none built in");
    return status;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .usage = "",
    .about = "Shows the versions of tensorpress and its libraries, the CPU kernels and which is active, "
             "and the devices.\n"
             "Every kernel that this CPU has is tested; a failure is exit status 1.",
    .examples = "  tensorpress doctor\n",
    .options = 0,
    .min_arguments = 0,
    .max_arguments = 0,
    .argument_names = "",
    .run = run,
};
