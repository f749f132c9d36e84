/* The self-test of one kernel, for doctor and the tests. */
#ifndef TP_GPU_SELF_TEST_H
#define TP_GPU_SELF_TEST_H

#include "gpu/device.h"

/*
 * Runs a kernel over patterns of many sizes, sound and damaged, in one launch with several jobs, and
 * compares the output (and what lies around it) with what was encoded. TP_MISMATCH names the kernel.
 */
tp_status tp_kernel_device_test(tp_device *device, tp_kernel_id kernel, tp_error *error);

#endif
