/* SIGINT, SIGTERM and SIGHUP end a conversion cleanly: temporary files go first, then the process dies of
 * the signal. */
#ifndef TP_CLI_SIGNALS_H
#define TP_CLI_SIGNALS_H

#include <stdbool.h>

/* SIGPIPE and SIGXFSZ are ignored for the whole run: the write that fails is the error. */
void signals_ignore_writes(void);
/* From now on the first signal only raises a flag; a second one kills at once. */
void signals_install(void);
bool signals_pending(void);
/* Where a signal has come: dies of it. Otherwise returns. */
void signals_die(void);

#endif
