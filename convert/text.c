#include "convert/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Length of the UTF-8 sequence at p (1..4) and its code point; 0 if it is not a valid one. */
static size_t utf8_sequence(const unsigned char *p, size_t left, uint32_t *code)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = p[0] < 0x80                   ? 1
                  : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                  : (p[0] & 0xf0) == 0xe0       ? 3
                  : (p[0] & 0xf8) == 0xf0       ? 4
                                                : 0;
    if (size == 0 || size > left) return 0;
    uint32_t c = size == 1 ? p[0] : p[0] & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < smallest[size] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *code = c;
    return size;
}

/* Controls (C0, DEL, C1), line and paragraph separator, marks that change the direction of what follows. */
static bool harmless(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x200e && c <= 0x200f) &&
           !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069) && c != 0x61c;
}

bool tp_text_is_utf8(const char *data, size_t size)
{
    uint32_t code;
    for (size_t i = 0, length; i < size; i += length)
        if ((length = utf8_sequence((const unsigned char *)data + i, size - i, &code)) == 0) return false;
    return true;
}

/* As tp_text_escape; returns whether all of it fitted. */
static bool escape(const char *data, size_t size, char *dst, size_t capacity)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = (const unsigned char *)data;
    size_t at = 0, fits = 0; /* fits: the longest output so far that leaves room for "..." */
    for (size_t i = 0; i < size;) {
        uint32_t code = 0;
        size_t length = utf8_sequence(p + i, size - i, &code);
        bool plain = length != 0 && harmless(code);
        if (length == 0) length = 1;
        size_t need = plain ? length : 4 * length;
        if (at + need + 1 > capacity) {
            memcpy(dst + fits, "...", 4);
            return false;
        }
        if (plain) {
            memcpy(dst + at, p + i, length);
        } else {
            for (size_t k = 0; k < length; k++) {
                dst[at + 4 * k] = '\\';
                dst[at + 4 * k + 1] = 'x';
                dst[at + 4 * k + 2] = hex[p[i + k] >> 4];
                dst[at + 4 * k + 3] = hex[p[i + k] & 15];
            }
        }
        at += need;
        i += length;
        if (at + 4 <= capacity) fits = at;
    }
    dst[at] = 0;
    return true;
}

char *tp_text_escape(const char *data, size_t size, char *dst, size_t capacity)
{
    escape(data, size, dst, capacity);
    return dst;
}

char *tp_text_path(const char *path, char dst[TP_SHOWN_PATH])
{
    /* The end of a path says more than its beginning. Escaping makes four bytes of one at most. */
    static const size_t keeps[] = {SIZE_MAX, TP_SHOWN_PATH - 4, (TP_SHOWN_PATH - 4) / 4};
    size_t size = strlen(path);
    for (size_t i = 0; i < sizeof keeps / sizeof keeps[0]; i++) {
        size_t keep = size < keeps[i] ? size : keeps[i];
        const char *from = path + (size - keep);
        while (from > path && ((unsigned char)*from & 0xc0) == 0x80) from++; /* not into a character */
        size_t dots = from > path ? 3 : 0;
        memcpy(dst, "...", dots);
        if (escape(from, size - (size_t)(from - path), dst + dots, TP_SHOWN_PATH - dots)) break;
    }
    return dst;
}

char *tp_text_join(const char *folder, const char *path, char dst[TP_SHOWN_PATH])
{
    char joined[2 * TP_SHOWN_PATH]; /* only the end of a longer path would be shown */
    size_t size = strlen(folder), path_size = strlen(path);
    bool slash = path_size > 0 && size > 0 && folder[size - 1] != '/';
    if (size + slash + path_size < sizeof joined) {
        snprintf(joined, sizeof joined, "%s%s%s", folder, slash ? "/" : "", path);
        return tp_text_path(joined, dst);
    }
    /* As much of the folder's end as there is room for. */
    size_t room = path_size + slash < sizeof joined ? sizeof joined - 1 - path_size - slash : 0;
    if (room == 0) return tp_text_path(path, dst);
    snprintf(joined, sizeof joined, "%s%s%s", folder + (size - room), slash ? "/" : "", path);
    return tp_text_path(joined, dst);
}

const char *tp_text_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

tp_status tp_error_system(tp_error *error, int errnum, const char *format, ...)
{
    tp_status status = errnum == ENOSPC || errnum == EDQUOT ? TP_NO_SPACE
                       : errnum == ENOMEM                   ? TP_NO_MEMORY
                                                            : TP_IO;
    char what[sizeof error->message], text[128];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    tp_error_set(error, status, "%s: %s", what, strerror_r(errnum, text, sizeof text));
    if (error) error->sys_errno = errnum;
    return status;
}

tp_status tp_error_memory(tp_error *error)
{
    return tp_error_set(error, TP_NO_MEMORY, "out of memory");
}
