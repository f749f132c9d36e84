/*
 * test_gpu DEVICE GROUP [CORPUS]: the tests of the device level on one device (support.h lists them).
 *   kernels    the self-test of every kernel
 *   frames     every kind of frame of the corpus that the codec's tests write, good and damaged, against
 *              the CPU
 *   few-frames the smallest of each kind only, for a device that is slow, such as oclgrind's
 *   loader     whole files: samples and made ones
 *   decode     frames in the caller's memory; tensors by DLPack
 *   failures   (stand-in) every driver function made to fail
 * Exit status 77: there is no such device here.
 */
#include "support.h"

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    wanted = argv[1];
    if (strncmp(wanted, "opencl", 6) == 0 || strcmp(wanted, "cuda") == 0) {
        /* Not by open_device: what is not there is no failure. */
        tp_device *device;
        tp_error error;
        if (tp_device_open(*wanted == 'c' ? "cuda" : "opencl", &device, &error) == TP_UNSUPPORTED) {
            printf("skipped: %s\n", error.message);
            return 77;
        }
        tp_device_close(device);
    }
    if (strcmp(argv[2], "kernels") == 0) return run_kernels();
    if (strcmp(argv[2], "frames") == 0 && argc > 3) return run_frames(argv[3], false);
    if (strcmp(argv[2], "few-frames") == 0 && argc > 3) return run_frames(argv[3], true);
    if (strcmp(argv[2], "loader") == 0) return run_loader();
    if (strcmp(argv[2], "decode") == 0) return run_decode();
    if (strcmp(argv[2], "failures") == 0) return run_failures();
    return 2;
}
