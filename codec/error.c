#include "tensorpress.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

const char *tp_version(void)
{
    return TEXT(TP_VERSION_MAJOR) "." TEXT(TP_VERSION_MINOR) "." TEXT(TP_VERSION_PATCH);
}

int tp_abi_version(void)
{
    return TP_ABI_VERSION;
}

const char *tp_status_message(tp_status status)
{
#define MESSAGE(name, code, text) [name] = text,
    static const char *const messages[] = {TP_STATUS_LIST(MESSAGE)};
#undef MESSAGE
    return (unsigned)status < TP_STATUS_COUNT ? messages[status] : "unknown status";
}

int tp_status_exit_code(tp_status status)
{
#define CODE(name, code, text) [name] = code,
    static const int codes[] = {TP_STATUS_LIST(CODE)};
#undef CODE
    return (unsigned)status < TP_STATUS_COUNT ? codes[status] : 3;
}

static tp_status set(tp_error *error, tp_status status, const char *format, va_list arguments)
{
    if (error) {
        error->status = status;
        error->sys_errno = 0;
        error->has_offset = false;
        error->offset = 0;
        vsnprintf(error->message, sizeof error->message, format, arguments);
    }
    return status;
}

tp_status tp_error_set(tp_error *error, tp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set(error, status, format, arguments);
    va_end(arguments);
    return status;
}

tp_status tp_error_set_at(tp_error *error, tp_status status, uint64_t offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set(error, status, format, arguments);
    va_end(arguments);
    if (error) {
        error->has_offset = true;
        error->offset = offset;
    }
    return status;
}
