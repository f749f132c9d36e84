#include "formats/json.h"

#include <errno.h>

tp_status tp_json_parse(const char *text, size_t size, cJSON **tree, tp_error *error)
{
    errno = 0; /* malloc leaves the reason here */
    *tree = cJSON_ParseWithLength(text, size);
    if (!*tree && errno == ENOMEM) return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    return TP_OK;
}
