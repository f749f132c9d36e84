/* All kernels for CUDA. */
#include "dialect.h"
#include "job.h"
#include "stream.h"
#include "parts.h"
#include "hash.h"
#include "df11.h"
#include "list.h"

TP_STREAM_KERNELS(STREAM_KERNEL)
