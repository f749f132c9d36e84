/*
 * A library that stands in for CUDA's driver, for tests: the functions that gpu/cuda.c uses, over ordinary
 * memory, with the kernels compiled as C. It is as strict as the documents allow: what is queued on a
 * stream happens only when the stream is waited for, every handle and range is checked, and a violation is
 * remembered.
 */
#ifndef TP_TESTS_DRIVER_H
#define TP_TESTS_DRIVER_H

typedef struct driver_control {
    /* From now on the call number `nth` (from 1) of this function fails with `code`; NULL: none does. */
    void (*make_fail)(const char *function, unsigned nth, int code);
    unsigned (*calls)(const char *function); /* since the last reset */
    unsigned (*live)(void);                  /* objects: contexts held, modules, memory, streams, events */
    const char *(*violation)(void);          /* the first rule that was broken, or NULL */
    void (*reset)(void);
    /* The memory at an address is this many bytes from here to its end; 0: none of it. */
    unsigned long long (*room)(unsigned long long address);
    unsigned long long (*peak)(void); /* the most device memory at a time since the last reset */
    unsigned long long (*used)(void); /* device memory now */
    unsigned (*pending)(void);        /* operations that are queued and not done */
    void (*memory_limit)(unsigned long long bytes); /* allocations beyond it fail; 0: none */
} driver_control;

/* Exported by the library. */
const driver_control *driver_control_get(void);

#endif
