#include "support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

const char *wanted;
static const driver_control *control;

const driver_control *stand_in(void)
{
    return control;
}

/* Loads the stand-in, once, in place of the driver. */
const driver_control *load_stand_in(void)
{
    if (control) return control;
    void *library = dlopen(TP_STAND_IN, RTLD_NOW);
    if (!library) fail_msg("%s", dlerror());
    const driver_control *(*get)(void);
    *(void **)&get = dlsym(library, "driver_control_get");
    assert_non_null(get);
    control = get();
    tp_cuda_use_driver(TP_STAND_IN);
    return control;
}

tp_device *open_device(void)
{
    tp_device *device;
    tp_error error = {0};
    const char *name = wanted;
    if (strcmp(wanted, "stand-in") == 0) {
        load_stand_in();
        name = "cuda";
    }
#ifdef TP_HAVE_OPENCL
    if (strncmp(wanted, "opencl", 6) == 0) {
        tp_opencl_force_lane_loop(strcmp(wanted, "opencl-loop") == 0);
        tp_opencl_vary_groups(true);
        name = "opencl";
    }
#endif
    const tp_status status = tp_device_open(name, &device, &error);
    assert_ok(status, &error);
    return device;
}

void assert_clean(void)
{
    if (!control) return;
    if (control->violation()) fail_msg("%s", control->violation());
    assert_int_equal(control->live(), 0);
}

uint32_t random_below(uint32_t limit)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % limit;
}

static char folder[512];

void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_gpu_XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) folder[0] = 0;
    assert_true(folder[0] != 0);
}

const char *in_folder(const char *name)
{
    static char paths[32][1024];
    for (size_t i = 0; i < 32; i++) {
        if (!paths[i][0]) snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
        if (strcmp(paths[i] + strlen(folder) + 1, name) == 0) return paths[i];
    }
    return "";
}

void remove_folder(void)
{
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) unlink(in_folder(entry->d_name));
    closedir(dir);
    rmdir(folder);
}
