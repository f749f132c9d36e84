/* The progress bar on stderr, and the way a signal reaches the library. */
#ifndef TP_CLI_PROGRESS_H
#define TP_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct options;

/* Shows a bar from now on where stderr is a terminal, or as --progress, --no-progress and -q say. */
void progress_start(const struct options *options, const char *label);
/* A tp_progress_fn: draws, and cancels once a signal has come. */
bool progress_report(void *context, uint64_t done, uint64_t total);
/* Takes the bar away, before another line is written. */
void progress_clear(void);
void progress_end(void);

/* Seconds of a clock that never goes back. */
double clock_seconds(void);

#endif
