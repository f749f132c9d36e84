/* cJSON, with the one thing that it does not tell: whether a text is no JSON or memory ran out. */
#ifndef TP_FORMATS_JSON_H
#define TP_FORMATS_JSON_H

#include <cJSON.h>

#include "tensorpress.h"

/* *tree is freed with cJSON_Delete; NULL with TP_OK where the text is no JSON. TP_NO_MEMORY. */
tp_status tp_json_parse(const char *text, size_t size, cJSON **tree, tp_error *error);

#endif
