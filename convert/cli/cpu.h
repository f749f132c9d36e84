/* The machine, for people. */
#ifndef TP_CLI_CPU_H
#define TP_CLI_CPU_H

#include <stddef.h>

/* The CPU's name, escaped; returns dst. */
const char *cpu_name(char *dst, size_t capacity);
/* CPUs that this process may use. */
unsigned cpu_count(void);

#endif
