/* The kernels compiled as C: what the stand-in driver runs, and what sanitizers see. */
#include "gpu/kernels/dialect.h"
#include "gpu/kernels/job.h"
#include "gpu/kernels/stream.h"
#include "gpu/kernels/parts.h"
#include "gpu/kernels/hash.h"
#include "gpu/kernels/df11.h"
#include "gpu/kernels/list.h"

TP_STREAM_KERNELS(STREAM_KERNEL)

#include "kernels_c.h"

#include <string.h>

_Static_assert(DF11_LOCAL_WORDS <= TP_DF11_LOCAL_WORDS, "what the host asks for");

#define ENTRY(name, ...) {#name, name},
static const struct {
    const char *name;
    kernel_function *function;
} kernels[] = {ENTRY(tp_copy) ENTRY(tp_fill) ENTRY(tp_df11) ENTRY(tp_hash) TP_STREAM_KERNELS(ENTRY)};

kernel_function *kernel_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, name) == 0) return kernels[i].function;
    return NULL;
}
