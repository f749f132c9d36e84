/*
 * safetensors: u64 N, little-endian; N bytes of JSON, an object with an entry for every tensor; the data.
 *
 *     {"__metadata__":{"format":"pt"},"NAME":{"dtype":"F16","shape":[1,16],"data_offsets":[BEGIN,END]},
 * ...}
 *
 * The header is not trusted and never held as a whole: a strict scanner walks it through a window, and
 * cJSON gets one entry at a time (a tree of the whole would take eight times the header). cJSON is the
 * laxer of the two (it takes 0123, raw control bytes, invalid UTF-8 and numbers as doubles), so the scanner
 * decides what is valid, and reads the integers.
 *
 * Where this accepts more than the format's own library (padding by NUL, holes, trailing bytes, a truncated
 * file, ...) the bytes are kept as they are anyway, and only the gain would be lost. What is not valid
 * JSON, or leaves open which bytes a tensor has, makes the whole file bytes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "formats/layout.h"
#include "formats/source.h"

/* Longest header that is read. The format's own library stops at 100,000,000 bytes, others write more. */
#define HEADER_MAX ((uint64_t)256 << 20)
/* Longest entry of a tensor; it has to fit into the window. */
#define ENTRY_MAX ((size_t)64 << 10)
/* Values in all entries together: each costs cJSON an allocation, 100 ns or more. Usual are 8 to 10 a
 * tensor. */
#define VALUES_MAX ((uint64_t)16 << 20)
/* Depth of nesting in an entry; it costs stack here and in cJSON. Usual are 2. */
#define DEPTH_MAX 64
/* cJSON reads no longer numbers. */
#define NUMBER_MAX 63

typedef struct number {
    uint64_t value;
    bool exact; /* a non-negative integer below 2^64, written without fraction and exponent */
} number;

typedef struct scanner {
    tp_window window;
    const uint8_t *stop; /* of the bytes that may be scanned without a look at the window */
    tp_layout_builder *builder;
    tp_status status; /* of the source */
    uint64_t values;
    /* While an entry is scanned, the window stands still. */
    bool in_entry;
    bool cut;     /* stop is ENTRY_MAX after the entry's start, and the header goes on */
    bool has_nul; /* the entry holds \u0000, where cJSON's strings end */
    const uint8_t *entry;
    const char *shown; /* its tensor's name for people */
    size_t numbers_size;
    number numbers[]; /* of the entry, in order; each takes 2 bytes at least, with a separator */
} scanner;

/* ------------------------------------------------------------------------------------------- scanning */

static size_t available(const scanner *s)
{
    return (size_t)(s->stop - s->window.at);
}

/* Whether `want` bytes lie at s->window.at, after a try to get them. */
static bool more(scanner *s, size_t want)
{
    if (available(s) >= want) return true;
    if (!s->in_entry && s->status == TP_OK) {
        s->status = tp_window_fill(&s->window, want, s->builder->error);
        s->stop = s->window.end;
    }
    return available(s) >= want;
}

/* The next byte, or -1 at the end of the header or entry, or after an error. */
static inline int peek(scanner *s)
{
    return more(s, 1) ? *s->window.at : -1;
}

/* The header is no valid JSON at the scanner's place; `what` follows "byte N: ". */
static tp_status bad(scanner *s, const char *what)
{
    if (s->status != TP_OK) return s->status;
    if (s->in_entry && s->cut &&
        available(s) < 12) { /* "\uD800\uDC00", the longest unit that is looked for */
        return tp_layout_refuse(s->builder, "tensor '%s': its entry is longer than %zu bytes", s->shown,
                                ENTRY_MAX);
    }
    if (available(s) == 0) what = "it ends too early";
    return tp_layout_refuse(s->builder, "its header is not valid JSON: byte %" PRIu64 ": %s",
                            tp_window_offset(&s->window), what);
}

static bool is_space(int c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_space(scanner *s)
{
    while (is_space(peek(s))) s->window.at++;
}

/* Skips blanks, and then this byte. */
static tp_status expect(scanner *s, char wanted, const char *what)
{
    skip_space(s);
    if (peek(s) != wanted) return bad(s, what);
    s->window.at++;
    return TP_OK;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

/* \uXXXX at the scanner's place: the value, or -1. */
static int32_t hex_escape(scanner *s)
{
    if (!more(s, 6)) return -1;
    const uint8_t *at = s->window.at;
    if (at[0] != '\\' || at[1] != 'u') return -1;
    int32_t value = 0;
    for (int i = 2; i < 6; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* An escape, decoded to UTF-8; the scanner stands at its backslash. */
static tp_status scan_escape(scanner *s, uint8_t decoded[4], size_t *size)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (!more(s, 2)) {
        s->window.at = s->stop;
        return bad(s, "");
    }
    const char *name = s->window.at[1] == 0 ? NULL : strchr(names, s->window.at[1]);
    if (name != NULL) {
        decoded[0] = (uint8_t)values[name - names];
        *size = 1;
        s->window.at += 2;
        return TP_OK;
    }
    int32_t code = hex_escape(s);
    if (code < 0) return bad(s, "an escape that JSON does not have");
    if (code >= 0xDC00 && code < 0xE000) return bad(s, "half a surrogate pair");
    if (code >= 0xD800 && code < 0xDC00) {
        if (!more(s, 12)) return bad(s, "half a surrogate pair");
        s->window.at += 6;
        int32_t low = hex_escape(s);
        if (low < 0xDC00 || low >= 0xE000) {
            s->window.at -= 6;
            return bad(s, "half a surrogate pair");
        }
        code = 0x10000 + ((code & 0x3FF) << 10 | (low & 0x3FF));
    }
    s->window.at += 6;
    if (code == 0) s->has_nul = true;
    if (code < 0x80) {
        decoded[0] = (uint8_t)code;
        *size = 1;
    } else if (code < 0x800) {
        decoded[0] = (uint8_t)(0xC0 | code >> 6);
        decoded[1] = (uint8_t)(0x80 | (code & 0x3F));
        *size = 2;
    } else if (code < 0x10000) {
        decoded[0] = (uint8_t)(0xE0 | code >> 12);
        decoded[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        decoded[2] = (uint8_t)(0x80 | (code & 0x3F));
        *size = 3;
    } else {
        decoded[0] = (uint8_t)(0xF0 | code >> 18);
        decoded[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
        decoded[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        decoded[3] = (uint8_t)(0x80 | (code & 0x3F));
        *size = 4;
    }
    return TP_OK;
}

/* A string, the scanner standing at its opening quote; `keep`: decoded to the end of the layout's strings.
 */
static tp_status scan_string(scanner *s, bool keep)
{
    s->window.at++;
    for (;;) {
        if (!more(s, 1)) return bad(s, "");
        const uint8_t *start = s->window.at, *at = start;
        while (at < s->stop && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\') at++;
        s->window.at = at;
        uint8_t decoded[4];
        const void *piece = start;
        size_t size = (size_t)(at - start);
        if (size == 0 && *at == '"') {
            s->window.at++;
            return TP_OK;
        }
        if (size == 0 && *at == '\\') {
            tp_status status = scan_escape(s, decoded, &size);
            if (status != TP_OK) return status;
            piece = decoded;
        } else if (size == 0 && *at >= 0x80) {
            more(s, 4);
            size = tp_utf8_sequence(s->window.at, available(s));
            if (size == 0) return bad(s, "invalid UTF-8");
            piece = s->window.at;
            s->window.at += size;
        } else if (size == 0) {
            return bad(s, "a control byte in a string");
        }
        if (keep) {
            tp_status status = tp_layout_add_text(s->builder, piece, size);
            if (status != TP_OK) return status;
        }
    }
}

/* -------------------------------------------------------------------------------------------- entries */

/* A number of an entry; the scanner stands at its first byte. */
static tp_status scan_number(scanner *s)
{
    const uint8_t *at = s->window.at, *const stop = s->stop, *const start = at;
    number n = {.exact = true};
    if (*at == '-') {
        n.exact = false;
        at++;
    }
    const uint8_t *digits = at;
    for (; at < stop && *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (n.value > (UINT64_MAX - digit) / 10)
            n.exact = false;
        else
            n.value = n.value * 10 + digit;
    }
    bool valid = at != digits && (*digits != '0' || at == digits + 1);
    if (valid && at < stop && *at == '.') {
        n.exact = false;
        digits = ++at;
        while (at < stop && *at >= '0' && *at <= '9') at++;
        valid = at != digits;
    }
    if (valid && at < stop && (*at == 'e' || *at == 'E')) {
        n.exact = false;
        at++;
        if (at < stop && (*at == '+' || *at == '-')) at++;
        digits = at;
        while (at < stop && *at >= '0' && *at <= '9') at++;
        valid = at != digits;
    }
    if (!valid) {
        if (at == stop) s->window.at = at;
        return bad(s, "a number that is not JSON");
    }
    if ((size_t)(at - start) > NUMBER_MAX) return bad(s, "a number of more than 63 characters");
    s->numbers[s->numbers_size++] = n;
    s->window.at = at;
    return TP_OK;
}

static tp_status scan_literal(scanner *s, const char *literal)
{
    size_t size = strlen(literal);
    if (available(s) < size || memcmp(s->window.at, literal, size) != 0) return bad(s, "expected a value");
    s->window.at += size;
    return TP_OK;
}

static tp_status scan_value(scanner *s, unsigned depth);

/* The rest of an object or array, the scanner standing at its bracket. */
static tp_status scan_collection(scanner *s, unsigned depth, char close)
{
    bool object = close == '}';
    const char *what = object ? "expected ',' or '}'" : "expected ',' or ']'";
    if (depth == DEPTH_MAX) return bad(s, "nested too deeply");
    s->window.at++;
    skip_space(s);
    if (peek(s) == close) {
        s->window.at++;
        return TP_OK;
    }
    for (;;) {
        tp_status status = TP_OK;
        if (object) {
            skip_space(s);
            if (peek(s) != '"') return bad(s, "expected a name in quotes");
            status = scan_string(s, false);
            if (status == TP_OK) status = expect(s, ':', "expected ':'");
        }
        if (status == TP_OK) status = scan_value(s, depth + 1);
        if (status != TP_OK) return status;
        skip_space(s);
        int c = peek(s);
        if (c != ',' && c != close) return bad(s, what);
        s->window.at++;
        if (c == close) return TP_OK;
    }
}

static tp_status scan_value(scanner *s, unsigned depth)
{
    skip_space(s);
    if (++s->values > VALUES_MAX) {
        return tp_layout_refuse(s->builder, "its header holds more than %" PRIu64 " values", VALUES_MAX);
    }
    int c = peek(s);
    switch (c) {
    case '{':
        return scan_collection(s, depth, '}');
    case '[':
        return scan_collection(s, depth, ']');
    case '"':
        return scan_string(s, false);
    case 't':
        return scan_literal(s, "true");
    case 'f':
        return scan_literal(s, "false");
    case 'n':
        return scan_literal(s, "null");
    default:
        break;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return scan_number(s);
    return bad(s, "expected a value");
}

/* Numbers in a tree that the scanner has bounded in depth. */
static size_t count_numbers(const cJSON *item)
{
    if (cJSON_IsNumber(item)) return 1;
    size_t count = 0;
    for (const cJSON *child = item->child; child != NULL; child = child->next)
        count += count_numbers(child);
    return count;
}

/* Whether the array holds nothing but exact numbers; they are numbers[0], [1], ... */
static bool is_integers(const cJSON *array, const number *numbers, size_t *count)
{
    if (!cJSON_IsArray(array)) return false;
    *count = 0;
    for (const cJSON *child = array->child; child != NULL; child = child->next, ++*count) {
        if (!cJSON_IsNumber(child) || !numbers[*count].exact) return false;
    }
    return true;
}

/* numbers: where the item's are; NULL: there was no such item. */
typedef struct fields {
    const cJSON *dtype;
    const number *shape, *offsets;
    size_t ndim;
} fields;

static tp_status refuse_entry(scanner *s, const char *what)
{
    return tp_layout_refuse(s->builder, "tensor '%s': %s", s->shown, what);
}

/*
 * Finds the three fields of an entry; others are ignored. The tree and the scanner meet the numbers in the
 * same order, which is how their exact values are found: cJSON's are doubles.
 */
static tp_status find_fields(scanner *s, const cJSON *tree, fields *f)
{
    const number *numbers = s->numbers;
    *f = (fields){0};
    for (const cJSON *item = tree->child; item != NULL; item = item->next) {
        size_t count;
        if (strcmp(item->string, "dtype") == 0) {
            if (f->dtype != NULL) return refuse_entry(s, "it has two dtypes");
            if (!cJSON_IsString(item)) return refuse_entry(s, "its dtype is not a string");
            f->dtype = item;
        } else if (strcmp(item->string, "shape") == 0) {
            if (f->shape != NULL) return refuse_entry(s, "it has two shapes");
            if (!is_integers(item, numbers, &count)) {
                return refuse_entry(s, "its shape is not an array of integers from 0 to 2^64-1");
            }
            f->shape = numbers;
            f->ndim = count;
        } else if (strcmp(item->string, "data_offsets") == 0) {
            if (f->offsets != NULL) return refuse_entry(s, "it has two data_offsets");
            if (!is_integers(item, numbers, &count) || count != 2) {
                return refuse_entry(s, "its data_offsets are not two integers from 0 to 2^64-1");
            }
            f->offsets = numbers;
        }
        numbers += count_numbers(item);
    }
    if (f->dtype == NULL) return refuse_entry(s, "it has no dtype");
    if (f->shape == NULL) return refuse_entry(s, "it has no shape");
    if (f->offsets == NULL) return refuse_entry(s, "it has no data_offsets");
    return TP_OK;
}

/*
 * Sets class and flags from dtype, shape and size. The order of the checks, and of the multiplications, is
 * that of the format's own library: [2^63,4,0] overflows there, [0,2^63,4] does not.
 */
static void classify(scanner *s, tp_layout_tensor *tensor, const fields *f)
{
    tp_layout_builder *builder = s->builder;
    unsigned element_bits = 0;
    tp_class cls = TP_CLASS_BYTES;
    const char *dtype = f->dtype->valuestring;
    if (!tp_safetensors_dtype(dtype, strlen(dtype), &element_bits, &cls)) {
        char shown[TP_SHOWN_SIZE];
        tp_layout_opaque(builder, tensor, "unknown dtype '%s'", tp_show(shown, dtype, strlen(dtype)));
        return;
    }
    uint64_t bits = 1;
    bool overflow = false;
    for (size_t i = 0; i < f->ndim && !overflow; i++) {
        overflow = __builtin_mul_overflow(bits, f->shape[i].value, &bits);
    }
    overflow = overflow || __builtin_mul_overflow(bits, (uint64_t)element_bits, &bits);
    if (overflow) {
        tp_layout_opaque(builder, tensor, "its shape has too many elements");
    } else if (bits % 8 != 0) {
        tp_layout_opaque(builder, tensor, "its elements do not fill whole bytes");
    } else if (bits / 8 != tensor->nbytes) {
        tp_layout_opaque(builder, tensor, "it has %" PRIu64 " bytes, but dtype and shape need %" PRIu64,
                         tensor->nbytes, bits / 8);
    } else {
        tensor->cls = (uint8_t)cls;
    }
}

static tp_status add_tensor(scanner *s, tp_layout_tensor *tensor, const cJSON *tree)
{
    fields f;
    tp_status status = find_fields(s, tree, &f);
    if (status != TP_OK) return status;
    uint64_t begin = f.offsets[0].value, end = f.offsets[1].value;
    if (begin > end) return refuse_entry(s, "it ends before it begins");
    tensor->offset = begin;
    tensor->nbytes = end - begin;
    tensor->ndim = (uint32_t)f.ndim; /* at most ENTRY_MAX / 2 */
    tensor->dims = s->builder->layout->dim_count;
    for (size_t i = 0; i < f.ndim; i++) {
        status = tp_layout_add_dim(s->builder, f.shape[i].value);
        if (status != TP_OK) return status;
    }
    const char *dtype = f.dtype->valuestring;
    status = tp_layout_add_dtype(s->builder, dtype, strlen(dtype), &tensor->dtype);
    if (status != TP_OK) return status;
    classify(s, tensor, &f);
    return tp_layout_add_tensor(s->builder, tensor);
}

/* The entry of the tensor whose name is known, the scanner standing before its value. */
static tp_status scan_entry(scanner *s, tp_layout_tensor *tensor)
{
    char shown[TP_SHOWN_SIZE];
    s->shown = tp_show_tensor(shown, s->builder->layout, tensor);
    if (peek(s) < 0) return bad(s, "");
    more(s, ENTRY_MAX + 1);
    if (s->status != TP_OK) return s->status;
    s->entry = s->window.at;
    s->cut = available(s) > ENTRY_MAX;
    if (s->cut) s->stop = s->entry + ENTRY_MAX;
    s->in_entry = true;
    s->has_nul = false;
    s->numbers_size = 0;

    bool object = *s->entry == '{';
    tp_status status = scan_value(s, 0);
    if (status != TP_OK) return status;
    s->in_entry = false;
    s->stop = s->window.end;
    if (!object) return refuse_entry(s, "its entry is not a JSON object");
    if (s->has_nul) return refuse_entry(s, "its entry holds \\u0000");

    /* The scanner has found the text to be valid, so that only memory can be what cJSON lacks. */
    const char *text = (const char *)s->entry, *parsed_end = NULL;
    size_t size = (size_t)(s->window.at - s->entry);
    cJSON *tree = cJSON_ParseWithLengthOpts(text, size, &parsed_end, false);
    if (tree == NULL) return tp_layout_no_memory(s->builder->source, s->builder->error);
    if (parsed_end != text + size || !cJSON_IsObject(tree)) {
        status = refuse_entry(s, "its entry is not a JSON object");
    } else {
        status = add_tensor(s, tensor, tree);
    }
    cJSON_Delete(tree);
    return status;
}

/* --------------------------------------------------------------------------------------------- header */

/* `__metadata__`, null or an object of strings: checked, never stored. It may be long. */
static tp_status scan_metadata(scanner *s)
{
    static const char wrong[] = "__metadata__ is not an object of strings";
    if (peek(s) == 'n') {
        more(s, 4);
        return scan_literal(s, "null");
    }
    if (peek(s) >= 0 && peek(s) != '{') return tp_layout_refuse(s->builder, wrong);
    tp_status status = expect(s, '{', "");
    if (status != TP_OK) return status;
    skip_space(s);
    if (peek(s) == '}') {
        s->window.at++;
        return TP_OK;
    }
    for (;;) {
        skip_space(s);
        if (peek(s) != '"') return bad(s, "expected a name in quotes");
        status = scan_string(s, false);
        if (status == TP_OK) status = expect(s, ':', "expected ':'");
        if (status != TP_OK) return status;
        skip_space(s);
        if (peek(s) >= 0 && peek(s) != '"') return tp_layout_refuse(s->builder, wrong);
        if (peek(s) < 0) return bad(s, "");
        status = scan_string(s, false);
        if (status != TP_OK) return status;
        skip_space(s);
        int c = peek(s);
        if (c != ',' && c != '}') return bad(s, "expected ',' or '}'");
        s->window.at++;
        if (c == '}') return TP_OK;
    }
}

static tp_status scan_member(scanner *s)
{
    tp_layout *layout = s->builder->layout;
    skip_space(s);
    if (peek(s) != '"') return bad(s, "expected a name in quotes");
    tp_layout_tensor tensor = {.name = layout->string_size};
    tp_status status = scan_string(s, true);
    if (status == TP_OK) status = expect(s, ':', "expected ':'");
    if (status != TP_OK) return status;
    tensor.name_size = (uint32_t)(layout->string_size - tensor.name); /* below HEADER_MAX */
    skip_space(s);
    static const char metadata[] = "__metadata__";
    if (tensor.name_size == sizeof metadata - 1 &&
        memcmp(layout->strings + tensor.name, metadata, sizeof metadata - 1) == 0) {
        layout->string_size -= tensor.name_size;
        return scan_metadata(s);
    }
    return scan_entry(s, &tensor);
}

static tp_status scan_header(scanner *s)
{
    tp_status status = expect(s, '{', "expected '{'");
    if (status != TP_OK) return status;
    skip_space(s);
    int c = peek(s);
    if (c == '}') s->window.at++;
    while (c != '}') {
        status = scan_member(s);
        if (status != TP_OK) return status;
        skip_space(s);
        c = peek(s);
        if (c != ',' && c != '}') return bad(s, "expected ',' or '}'");
        s->window.at++;
    }
    /* Writers pad with blanks, some with NUL. */
    while (is_space(peek(s)) || peek(s) == 0) s->window.at++;
    if (s->status == TP_OK && available(s) != 0) return bad(s, "text after the header's '}'");
    return s->status;
}

static tp_status read_length(const tp_source *source, uint64_t *length, tp_error *error)
{
    uint8_t bytes[8];
    tp_status status = source->read(source->context, bytes, sizeof bytes, 0, error);
    if (status != TP_OK) return status;
    *length = 0;
    for (int i = 7; i >= 0; i--) *length = *length << 8 | bytes[i];
    return TP_OK;
}

tp_status tp_safetensors_recognise(const tp_source *source, bool *yes, tp_error *error)
{
    *yes = false;
    uint64_t length = 0;
    if (source->size < 8 + 2) return TP_OK;
    tp_status status = read_length(source, &length, error);
    if (status != TP_OK || length < 2 || length > source->size - 8) return status;

    if (length > HEADER_MAX) length = HEADER_MAX;
    tp_window window;
    status = tp_window_open(&window, source, 8, 8 + length, error);
    while (status == TP_OK) {
        while (window.at < window.end && is_space(*window.at)) window.at++;
        if (window.at < window.end) {
            *yes = *window.at == '{';
            break;
        }
        if (window.next == window.limit) break;
        status = tp_window_fill(&window, 1, error);
    }
    tp_window_close(&window);
    return status;
}

tp_status tp_safetensors_parse(tp_layout_builder *builder)
{
    const tp_source *source = builder->source;
    if (source->size < 8) {
        return tp_layout_refuse(builder, "its %u bytes are less than the 8 of the header's length",
                                (unsigned)source->size);
    }
    uint64_t length = 0;
    tp_status status = read_length(source, &length, builder->error);
    if (status != TP_OK) return status;
    if (length > source->size - 8) {
        return tp_layout_refuse(builder, "its header claims %" PRIu64 " bytes, but only %" PRIu64 " follow",
                                length, source->size - 8);
    }
    if (length > HEADER_MAX) {
        return tp_layout_refuse(builder, "its header of %" PRIu64 " bytes is longer than %" PRIu64, length,
                                HEADER_MAX);
    }
    size_t numbers = (length < ENTRY_MAX ? (size_t)length : ENTRY_MAX) / 2;
    scanner *s = malloc(sizeof *s + numbers * sizeof *s->numbers);
    if (s == NULL) return tp_layout_no_memory(source, builder->error);
    *s = (scanner){.builder = builder};
    status = tp_window_open(&s->window, source, 8, 8 + length, builder->error);
    s->stop = s->window.end;
    if (status == TP_OK) status = scan_header(s);
    tp_window_close(&s->window);
    free(s);
    if (status != TP_OK) return status;
    builder->layout->format = TP_FORMAT_SAFETENSORS;
    return tp_layout_finish(builder, 8 + length);
}
