#include "convert/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "convert/place.h"

/* What the file system says; those that do not (before Linux 6.1, or ever) are tried. */
static bool fits(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx s;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) == 0 && s.stx_mask & STATX_DIOALIGN)
        return s.stx_dio_offset_align > 0 && TP_DIRECT_ALIGN % s.stx_dio_offset_align == 0 &&
               s.stx_dio_mem_align > 0 && TP_DIRECT_ALIGN % s.stx_dio_mem_align == 0;
#endif
    (void)fd;
    return true;
}

int tp_direct_open(int fd, int access)
{
    char path[TP_DESCRIPTOR_PATH];
    int direct;
    if (!fits(fd)) return -1;
    /* Not by the file's own name, which may be none, or another file's by now. */
    tp_descriptor_path(fd, path);
    do direct = openat(AT_FDCWD, path, access | O_DIRECT | O_CLOEXEC);
    while (direct < 0 && errno == EINTR);
    return direct;
}

bool tp_direct_refused(int errnum)
{
    return errnum == EINVAL || errnum == EOPNOTSUPP;
}
