#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "convert/text.h"
#include "progress.h"
#include "signals.h"

/* Longest line before escaping: two paths and a sentence. Escaping makes at most 4 bytes of one. */
#define LINE_MAX_RAW 12288

static const char *current_verb;
static bool quiet_mode;

void message_verb(const char *verb)
{
    current_verb = verb;
}
void message_quiet(bool quiet)
{
    quiet_mode = quiet;
}

/* One write a line, so that lines of several processes do not mix. Nothing can be done about a failure. */
static void put_line(const char *prefix, const char *text)
{
    static char line[4 * LINE_MAX_RAW + 64];
    progress_clear();
    size_t start = strlen(prefix);
    memcpy(line, prefix, start);
    tp_text_escape(text, strlen(text), line + start, sizeof line - start - 1);
    size_t length = strlen(line);
    line[length++] = '\n';
    for (size_t done = 0; done < length;) {
        ssize_t n = write(STDERR_FILENO, line + done, length - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
}

__attribute__((format(printf, 2, 0))) static void put_format(const char *prefix, const char *format,
                                                             va_list arguments)
{
    static char text[LINE_MAX_RAW];
    if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = 0;
    put_line(prefix, text);
}

int fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_format("tensorpress: ", format, arguments);
    va_end(arguments);
    return status;
}

int fail_usage(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    put_format("tensorpress: ", format, arguments);
    va_end(arguments);
    return EXIT_USAGE;
}

int fail_help(const char *format, ...)
{
    static char text[LINE_MAX_RAW];
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0) text[0] = 0;
    va_end(arguments);
    return fail(EXIT_USAGE, "%s; see 'tensorpress %s%s--help'", text, current_verb ? current_verb : "",
                current_verb ? " " : "");
}

int fail_error(tp_status status, const tp_error *error)
{
    int code = tp_status_exit_code(status);
    if (status == TP_CANCELLED && signals_pending()) return code;
    const char *text = error && error->message[0] ? error->message : tp_status_message(status);
    if (status == TP_EXISTS) return fail(code, "%s (-f)", text);
    if (code == EXIT_USAGE && !strstr(text, "; ")) return fail_help("%s", text);
    return fail(code, "%s", text);
}

void report_damage(const char *line)
{
    put_line("tensorpress: ", line);
}

void warn(const char *line)
{
    if (!quiet_mode) put_line("tensorpress: ", line);
}

void note(const char *format, ...)
{
    if (quiet_mode) return;
    va_list arguments;
    va_start(arguments, format);
    put_format("", format, arguments);
    va_end(arguments);
}

void warn_callback(void *context, const char *line)
{
    (void)context;
    warn(line);
}

void damage_callback(void *context, const char *line)
{
    (void)context;
    report_damage(line);
}
