/* What the tests of the device level share. */
#ifndef TP_TESTS_GPU_SUPPORT_H
#define TP_TESTS_GPU_SUPPORT_H

/* cmocka.h wants these four first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "gpu/device.h"

/*
 * The device under test, by its name on the command line: cpu, opencl-loop and opencl-votes (the two ways
 * to compile kernels for OpenCL), stand-in (the CUDA back end over a driver library of the tests' own),
 * cuda.
 */
extern const char *wanted;
/* Opens it. The caller closes it. */
tp_device *open_device(void);
/* The stand-in's controls; NULL for other devices. The second loads it. */
const driver_control *stand_in(void);
const driver_control *load_stand_in(void);
/* After everything is closed: no rule was broken and nothing is left. */
void assert_clean(void);

uint32_t random_below(uint32_t limit);

#define assert_ok(status, error)                                                                           \
    do {                                                                                                   \
        const tp_status status_ = (status);                                                                \
        if (status_ != TP_OK) fail_msg("status %d: %s", (int)status_, (error)->message);                   \
    } while (0)

/* A folder for this run's files, removed at the end; "name" in it, one of at most 32. */
void make_folder(void);
void remove_folder(void);
const char *in_folder(const char *name);

/* Frames decoded by the low-level calls, all of it (test_decode.c), between making and freeing the frames. */
void decode_make_samples(void);
void decode_free_samples(void);
tp_status decode_in_framework(tp_device *device, tp_error *error);

/* The groups. */
int run_kernels(void);
int run_frames(const char *corpus, bool few);
int run_loader(void);
int run_decode(void);
int run_failures(void);

#endif
