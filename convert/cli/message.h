/* What the command says on stderr: one line an error or warning, always safe for a terminal. */
#ifndef TP_CLI_MESSAGE_H
#define TP_CLI_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "tensorpress.h"

/* Exit statuses, as documented in docs/cli.md. */
enum { EXIT_OK = 0, EXIT_DATA = 1, EXIT_USAGE = 2, EXIT_SYSTEM = 3, EXIT_UNSUPPORTED = 4 };

/* The verb named in hints ("see 'tensorpress VERB --help'"); NULL: none. */
void message_verb(const char *verb);
/* -q: notes and warnings are not shown. */
void message_quiet(bool quiet);

/* Prints "tensorpress: ..." and returns `status`. */
int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A usage error whose text ends in what to do. Returns EXIT_USAGE. */
int fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A usage error that gets "; see 'tensorpress VERB --help'". Returns EXIT_USAGE. */
int fail_help(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * The error of a library function. One that ends the command with EXIT_USAGE gets what to do about it.
 * Prints nothing where the library was cancelled by a signal. Returns the exit status.
 */
int fail_error(tp_status status, const tp_error *error);

/* "tensorpress: LINE", also with -q: damage that verify found. */
void report_damage(const char *line);
/* A warning line of the library. */
void warn(const char *line);
/* A line without prefix, for people; not with -q. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* tp_warning_fn forms */
void warn_callback(void *context, const char *line);
void damage_callback(void *context, const char *line);

#endif
