/*
 *     93 'NUMPY', version u8 u8, length of the header u16 (version 1) or u32 (2 and 3), header, elements
 *
 * The header is a literal of Python, of which just this is read (blanks anywhere, keys in any order):
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * A descr that is a list (records), or 'O' (what follows then is a pickle), or anything else that is not
 * listed below, leaves the file bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/layout.h"
#include "formats/npy.h"

/* Longest header that is read. Those of the arrays that are understood have 128 bytes at most. */
#define HEADER_MAX 4096
#define MAGIC_SIZE 6

/* descr without its first character, the byte order */
static const struct {
    char text[4];
    uint8_t bytes;
    uint8_t cls;
} descrs[] = {
    {"f2", 2, TP_CLASS_F16},
    {"f4", 4, TP_CLASS_F32},
    {"f8", 8, TP_CLASS_F64},
    {"c8", 8, TP_CLASS_F32},
    {"c16", 16, TP_CLASS_F64},
    {"i1", 1, TP_CLASS_I8},
    {"u1", 1, TP_CLASS_I8},
    {"b1", 1, TP_CLASS_I8},
    {"i2", 2, TP_CLASS_I16},
    {"u2", 2, TP_CLASS_I16},
    {"i4", 4, TP_CLASS_I32},
    {"u4", 4, TP_CLASS_I32},
    {"i8", 8, TP_CLASS_I64},
    {"u8", 8, TP_CLASS_I64},
    /* NumPy has no bfloat16 of its own: this is what the type of the package ml_dtypes is written as. */
    {"V2", 2, TP_CLASS_BF16},
};

typedef struct literal {
    const char *at, *end;
} literal;

static char peek(literal *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\n')) l->at++;
    return l->at < l->end ? *l->at : 0;
}

static bool take(literal *l, char c)
{
    if (peek(l) != c) return false;
    l->at++;
    return true;
}

static bool take_word(literal *l, const char *word)
{
    size_t size = strlen(word);
    peek(l);
    if ((size_t)(l->end - l->at) < size || memcmp(l->at, word, size) != 0) return false;
    l->at += size;
    return true;
}

/* A string in single quotes; escapes are not understood. */
static bool take_string(literal *l, const char **text, size_t *size)
{
    if (!take(l, '\'')) return false;
    *text = l->at;
    while (l->at < l->end && *l->at != '\'' && *l->at != '\\') l->at++;
    *size = (size_t)(l->at - *text);
    if (l->at == l->end || *l->at != '\'') return false;
    l->at++;
    return true;
}

static bool take_number(literal *l, uint64_t *value)
{
    char c = peek(l);
    if (c < '0' || c > '9') return false;
    *value = 0;
    for (; l->at < l->end && *l->at >= '0' && *l->at <= '9'; l->at++) {
        uint64_t digit = (uint64_t)(*l->at - '0');
        if (__builtin_mul_overflow(*value, UINT64_C(10), value) ||
            __builtin_add_overflow(*value, digit, value)) {
            return false;
        }
    }
    if (l->at < l->end && *l->at == 'L') l->at++; /* written by Python 2 */
    return true;
}

/* A tuple of numbers: their product. */
static bool take_shape(literal *l, uint64_t *elements)
{
    *elements = 1;
    if (!take(l, '(')) return false;
    while (!take(l, ')')) {
        uint64_t dim;
        if (!take_number(l, &dim) || __builtin_mul_overflow(*elements, dim, elements)) return false;
        if (peek(l) != ')' && !take(l, ',')) return false;
    }
    return true;
}

static bool take_descr(literal *l, uint64_t *bytes, tp_class *cls)
{
    const char *text;
    size_t size;
    if (!take_string(l, &text, &size) || size < 2) return false;
    if (text[0] != '<' && text[0] != '>' && text[0] != '|') return false;
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++) {
        if (strlen(descrs[i].text) != size - 1 || memcmp(descrs[i].text, text + 1, size - 1) != 0) continue;
        *bytes = descrs[i].bytes;
        *cls = (tp_class)descrs[i].cls;
        if (text[0] == '>') *cls = tp_class_swapped(*cls);
        return true;
    }
    return false;
}

/* Bytes and class of the array by its header; false if that is not understood. */
static bool read_header(literal l, uint64_t *size, tp_class *cls)
{
    uint64_t bytes = 0, elements = 0;
    enum { DESCR = 1, ORDER = 2, SHAPE = 4, ALL = 7 };
    unsigned seen = 0;
    if (!take(&l, '{')) return false;
    while (!take(&l, '}')) {
        unsigned key;
        bool good;
        if (take_word(&l, "'descr'")) {
            key = DESCR;
            good = take(&l, ':') && take_descr(&l, &bytes, cls);
        } else if (take_word(&l, "'fortran_order'")) {
            key = ORDER;
            good = take(&l, ':') && (take_word(&l, "True") || take_word(&l, "False"));
        } else if (take_word(&l, "'shape'")) {
            key = SHAPE;
            good = take(&l, ':') && take_shape(&l, &elements);
        } else {
            return false;
        }
        if (!good || (seen & key) != 0) return false;
        seen |= key;
        if (peek(&l) != '}' && !take(&l, ',')) return false;
    }
    if (peek(&l) != 0 || l.at != l.end) return false;
    return seen == ALL && !__builtin_mul_overflow(elements, bytes, size);
}

bool tp_npy_recognise(const uint8_t start[6])
{
    return memcmp(start, "\x93NUMPY", MAGIC_SIZE) == 0;
}

tp_status tp_npy_read(const tp_source *source, uint64_t start, uint64_t size, tp_npy *npy, tp_error *error)
{
    uint8_t fixed[MAGIC_SIZE + 6] = {0};
    *npy = (tp_npy){.cls = TP_CLASS_BYTES};
    if (size < sizeof fixed) return TP_OK;
    tp_status status = source->read(source->context, fixed, sizeof fixed, start, error);
    if (status != TP_OK) return status;
    unsigned version = fixed[MAGIC_SIZE];
    if (!tp_npy_recognise(fixed) || version < 1 || version > 3 || fixed[MAGIC_SIZE + 1] != 0) return TP_OK;
    uint32_t length = (uint32_t)fixed[9] << 8 | fixed[8];
    if (version > 1) length |= (uint32_t)fixed[11] << 24 | (uint32_t)fixed[10] << 16;
    uint64_t before = version > 1 ? 12 : 10;
    if (length == 0 || length > HEADER_MAX || length > size - before) return TP_OK;

    char header[HEADER_MAX];
    status = source->read(source->context, header, length, start + before, error);
    if (status != TP_OK) return status;
    uint64_t array_size;
    tp_class cls = TP_CLASS_BYTES;
    if (!read_header((literal){header, header + length}, &array_size, &cls)) return TP_OK;
    if (array_size > size - before - length) return TP_OK;
    *npy = (tp_npy){.start = start + before + length, .size = array_size, .cls = cls};
    return TP_OK;
}
