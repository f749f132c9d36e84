#ifndef TP_TESTS_KERNELS_C_H
#define TP_TESTS_KERNELS_C_H

#include <stdint.h>

struct tp_gpu_job;
/* One work-group: `group` of `warps` jobs each. */
typedef void kernel_function(const uint8_t *in, uint8_t *out, const struct tp_gpu_job *jobs,
                             uint64_t *results, const uint32_t first, const uint32_t warps,
                             uint32_t *shared, uint32_t group);
kernel_function *kernel_by_name(const char *name); /* NULL: none */

#endif
