/* Names by pattern, as in a shell. */
#ifndef TP_GPU_PATTERN_H
#define TP_GPU_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/*
 * `*` is any bytes, `?` any one, `[a-c_]` one of these and `[!...]` none of them, a backslash takes the
 * next byte as it is. A `[` without an end is itself. Bytes, whatever the locale; at most length x pattern
 * steps.
 */
bool tp_pattern_matches(const char *pattern, const char *name, size_t size);

#endif
