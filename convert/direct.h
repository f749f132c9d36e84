/*
 * Files read and written past the page cache (O_DIRECT). That is about caching alone: where a file system
 * refuses it, at once or at the first transfer, the ordinary descriptor does the same.
 */
#ifndef TP_CONVERT_DIRECT_H
#define TP_CONVERT_DIRECT_H

#include <stdbool.h>

#include "formats/formats.h"

/* Places in the file, sizes and addresses are multiples of this: no known disk asks for more than a page of
 * 4096 bytes. */
#define TP_DIRECT_ALIGN TP_FETCH_ALIGN
/* Smaller files are not worth a second descriptor. */
#define TP_DIRECT_LEAST ((uint64_t)4 << 20)

/*
 * A second descriptor of an open file, for O_RDONLY or O_WRONLY, whose transfers go past the page cache.
 * -1: the file system cannot do that, or only with larger multiples.
 */
int tp_direct_open(int fd, int access);
/* Whether a transfer failed because the file system cannot do it so (errno). */
bool tp_direct_refused(int errnum);

#endif
