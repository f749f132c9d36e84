/* Writes JSON to a stream as it goes: no tree, no limit on size. Numbers are exact. */
#ifndef TP_CLI_JSON_H
#define TP_CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tensorpress.h"

#define JSON_DEPTH 16

struct json {
    FILE *out;
    unsigned depth;
    bool filled[JSON_DEPTH]; /* the object or array at this depth has a member */
    bool after_key;
};

void json_init(struct json *json, FILE *out);
void json_open(struct json *json, char bracket);  /* '{' or '[' */
void json_close(struct json *json, char bracket); /* '}' or ']' */
void json_key(struct json *json, const char *key);
/* Any bytes. What is not UTF-8 becomes U+FFFD. */
void json_string(struct json *json, const char *s, size_t size);
void json_u64(struct json *json, uint64_t value);
void json_true(struct json *json);
void json_bool(struct json *json, bool value);
void json_null(struct json *json);
/* A finite number with so many decimals. */
void json_decimal(struct json *json, double value, int decimals);
/* Bytes as lower-case hexadecimal digits. */
void json_hex(struct json *json, const void *bytes, size_t size);
/* "key": text, and "key_hex" with its exact bytes where it is not UTF-8. */
void json_name(struct json *json, const char *key, tp_text text);

#endif
