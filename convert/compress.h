/* Compressing what is no file: the same conversion as tp_compress_file, of bytes that a callback delivers.
 */
#ifndef TP_CONVERT_COMPRESS_H
#define TP_CONVERT_COMPRESS_H

#include "tensorpress.h"

/*
 * `name`: what the file is stored as, its base name. The callback is called by several threads at once, for
 * pieces of what is compressed and, to compare duplicates, once more. Otherwise as tp_compress_file.
 */
tp_status tp_compress_callback(tp_read_fn read, void *context, uint64_t size, const char *name,
                               const char *out_path, int out_fd, const tp_options *options,
                               tp_report *report, tp_error *error);
/* Whether a file may be stored under this base name. */
bool tp_compress_name_fits(const char *name);

#endif
