/* System calls that fail on wish; the linker puts these before libc's (see CMakeLists.txt). */
#ifndef TP_TESTS_CONVERT_FAULTS_H
#define TP_TESTS_CONVERT_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct faults {
    bool no_tmpfile;    /* the file system has no unnamed files */
    bool no_noreplace;  /* nor a rename that replaces nothing */
    bool no_link;       /* nor links */
    int fsync_errno;    /* of files (not folders), if not 0 */
    int syncfs_errno;   /* if not 0 */
    const char *denied; /* opening a path that ends so is not permitted; NULL: none */
    bool short_io;      /* reads and writes are interrupted, or move a few bytes only */
    int64_t write_room; /* bytes until writing fails with ENOSPC, -1: no end */
    int64_t read_end;   /* a file seems to end here, -1: does not */
    bool no_direct;     /* the file system refuses O_DIRECT when a file is opened */
    unsigned direct_io; /* so many transfers past the page cache go well, then it refuses them; 0: all do */
    unsigned tmpfile_refused, noreplace_refused, short_calls, direct_opened, direct_calls;
} faults;

extern faults injected;
/* No faults. */
void faults_reset(void);

#endif
