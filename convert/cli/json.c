#include "json.h"

#include <string.h>

/*
 * Reads one code point of well-formed UTF-8 at s, size > 0. Returns its length, or 0 if there is none; then
 * *bad is the number of bytes that one U+FFFD stands for: the longest start of a well-formed sequence, at
 * least 1 (as Unicode recommends and common decoders do).
 */
static size_t utf8_next(const char *s, size_t size, uint32_t *code, size_t *bad)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned first = p[0];
    *bad = 1;
    if (first < 0x80) {
        *code = first;
        return 1;
    }
    size_t length;
    /* The range of the second byte shuts out overlong forms, surrogates and what lies beyond U+10FFFF. */
    unsigned low = 0x80, high = 0xbf;
    uint32_t value;
    if (first >= 0xc2 && first <= 0xdf) {
        length = 2;
        value = first & 0x1fu;
    } else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        value = first & 0x0fu;
        if (first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        value = first & 0x07u;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    } else {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if (i >= size || p[i] < low || p[i] > high) {
            *bad = i;
            return 0;
        }
        value = value << 6 | (p[i] & 0x3fu);
        low = 0x80;
        high = 0xbf;
    }
    *code = value;
    return length;
}

void json_init(struct json *json, FILE *out)
{
    memset(json, 0, sizeof *json);
    json->out = out;
}

static void begin_value(struct json *json)
{
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->filled[json->depth]) putc_unlocked(',', json->out);
    json->filled[json->depth] = true;
}

void json_open(struct json *json, char bracket)
{
    begin_value(json);
    putc_unlocked(bracket, json->out);
    json->filled[++json->depth] = false;
}

void json_close(struct json *json, char bracket)
{
    json->depth--;
    putc_unlocked(bracket, json->out);
    if (json->depth == 0) putc_unlocked('\n', json->out);
}

static void put_string(FILE *out, const char *s, size_t size, bool *valid)
{
    static const char digits[] = "0123456789abcdef";
    *valid = true;
    putc_unlocked('"', out);
    for (size_t i = 0; i < size;) {
        uint32_t code = 0;
        size_t bad;
        size_t n = utf8_next(s + i, size - i, &code, &bad);
        if (n == 0) {
            fputs("\xef\xbf\xbd", out);
            *valid = false;
            i += bad;
            continue;
        }
        if (code == '"' || code == '\\') {
            putc_unlocked('\\', out);
            putc_unlocked((int)code, out);
        } else if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            /* JSON wants the first range escaped; the second would drive a terminal. */
            fputs("\\u00", out);
            putc_unlocked(digits[code >> 4], out);
            putc_unlocked(digits[code & 15], out);
        } else {
            for (size_t k = 0; k < n; k++) putc_unlocked(s[i + k], out);
        }
        i += n;
    }
    putc_unlocked('"', out);
}

void json_key(struct json *json, const char *key)
{
    begin_value(json);
    bool valid;
    put_string(json->out, key, strlen(key), &valid);
    putc_unlocked(':', json->out);
    json->after_key = true;
}

void json_string(struct json *json, const char *s, size_t size)
{
    bool valid;
    begin_value(json);
    put_string(json->out, s, size, &valid);
}

void json_u64(struct json *json, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    begin_value(json);
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    fwrite(digits + at, 1, sizeof digits - at, json->out);
}

void json_true(struct json *json)
{
    begin_value(json);
    fputs("true", json->out);
}

void json_bool(struct json *json, bool value)
{
    begin_value(json);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json)
{
    begin_value(json);
    fputs("null", json->out);
}

void json_decimal(struct json *json, double value, int decimals)
{
    begin_value(json);
    fprintf(json->out, "%.*f", decimals, value);
}

void json_hex(struct json *json, const void *bytes, size_t size)
{
    const unsigned char *p = bytes;
    begin_value(json);
    putc_unlocked('"', json->out);
    for (size_t i = 0; i < size; i++) fprintf(json->out, "%02x", p[i]);
    putc_unlocked('"', json->out);
}

void json_name(struct json *json, const char *key, tp_text text)
{
    bool valid;
    json_key(json, key);
    begin_value(json);
    put_string(json->out, text.data, text.size, &valid);
    if (valid) return;
    char hex_key[32];
    snprintf(hex_key, sizeof hex_key, "%s_hex", key);
    json_key(json, hex_key);
    json_hex(json, text.data, text.size);
}
