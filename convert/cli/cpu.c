#include "cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "convert/text.h"

const char *cpu_name(char *dst, size_t capacity)
{
    snprintf(dst, capacity, "unknown");
    FILE *info = fopen("/proc/cpuinfo", "re");
    char line[512];
    while (info && fgets(line, sizeof line, info)) {
        /* "model name" on x86; arm64 gives numbers only. */
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *value = strchr(line, ':');
        if (!value) continue;
        value += strspn(value, ": \t");
        size_t length = strcspn(value, "\n");
        if (length > 0) tp_text_escape(value, length, dst, capacity);
        break;
    }
    if (info) fclose(info);
    return dst;
}

unsigned cpu_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? (unsigned)count : 1;
}
