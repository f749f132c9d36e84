/* Text for people: names from files made safe to print, and messages about failed system calls. */
#ifndef TP_CONVERT_TEXT_H
#define TP_CONVERT_TEXT_H

#include "tensorpress.h"

/*
 * Writes size bytes of untrusted text to dst so that they can neither break a line nor drive a terminal:
 * control characters, line separators, direction marks and what is not UTF-8 become \xNN for each byte.
 * Ends in "..." where capacity (at least 4) is too small. Returns dst, terminated.
 */
char *tp_text_escape(const char *data, size_t size, char *dst, size_t capacity);

/* A path as messages show it: escaped, shortened at its front to TP_SHOWN_PATH bytes. Returns dst. */
#define TP_SHOWN_PATH 512
char *tp_text_path(const char *path, char dst[TP_SHOWN_PATH]);

/* The same of `path` in `folder`; an empty path is the folder itself. */
char *tp_text_join(const char *folder, const char *path, char dst[TP_SHOWN_PATH]);

bool tp_text_is_utf8(const char *data, size_t size);

/* The part after the last slash; never NULL. */
const char *tp_text_base(const char *path);

/*
 * As tp_error_set, for a failed call: the status follows from errnum (TP_NO_SPACE, TP_NO_MEMORY, else
 * TP_IO) and its text ends the message.
 */
tp_status tp_error_system(tp_error *error, int errnum, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tp_status tp_error_memory(tp_error *error);

#endif
