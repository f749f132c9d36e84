/*
 * GGUF: tensor infos behind a list of keys with values, then the tensors' data.
 *
 *     "GGUF", version u32, number of tensors u64, number of keys u64
 *     each key:    name, type i32, value
 *     each tensor: name, number of dimensions u32, dimensions u64, type i32, offset u64
 *     padding to a multiple of the alignment, then the data, to which the offsets relate
 *
 * A string is its length u64 and its bytes; an array is its elements' type i32, their number u64 and the
 * elements. In version 1 counts, lengths and dimensions are u32. In a big-endian file everything but the
 * magic is swapped, data too; no flag says so, but the version then has its bytes at the wrong end.
 *
 * The values are walked over and not kept: only general.alignment matters to the data. Where this accepts
 * more than ggml does (names of any length, duplicates, nested arrays, more than four dimensions, offsets
 * in any order, gaps, ...), it is because the bytes are kept as they are anyway. What leaves open where a
 * tensor lies makes the whole file bytes.
 *
 * The infos give no sizes: they follow from type and shape. But a type's number is no proof of its
 * meaning (forks use numbers of their own, and upstream has given some away twice). So a tensor is
 * believed to be of its type only if the bytes up to the next tensor are what the type needs, and padding.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_types.h"
#include "formats/layout.h"
#include "formats/source.h"

/* Longest header that is read, so that a hostile file ends soon. Real ones have megabytes of vocabulary. */
#define HEADER_MAX ((uint64_t)1 << 30)
/* Values in it, counting those in arrays of strings and of arrays. Real files have 10^6 at most. */
#define VALUES_MAX ((uint64_t)16 << 20)
/* ggml stops at 4, and says that this may change; nothing here depends on the number. */
#define DIMS_MAX 64
/* Arrays in arrays; each costs stack. ggml knows none. */
#define DEPTH_MAX 64
#define ALIGNMENT_DEFAULT 32

enum value_type {
    VALUE_I8 = 1,
    VALUE_I16 = 3,
    VALUE_U32 = 4,
    VALUE_I32 = 5,
    VALUE_STRING = 8,
    VALUE_ARRAY = 9,
    VALUE_U64 = 10,
    VALUE_I64 = 11,
    VALUE_TYPES = 13
};

/* Bytes of a value; strings and arrays have no fixed size. */
static const uint8_t value_sizes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* While the infos are read, a tensor whose size is not known has one of these in place of a class. */
enum { UNKNOWN_TYPE = TP_CLASS_COUNT, BROKEN_ROWS, TOO_MANY_ELEMENTS };

enum part { IN_START, IN_KEYS, IN_TENSORS };

typedef struct reader {
    tp_window window;
    tp_layout_builder *builder;
    bool swapped;
    bool short_lengths; /* version 1 */
    bool alignment_given;
    uint32_t alignment;
    uint64_t values;
    uint64_t field; /* where the last field began */
    /* What is being read, for messages. */
    enum part part;
    uint64_t number;                /* of the key or tensor, from 0 */
    bool named;                     /* and its name is known: */
    const tp_layout_tensor *tensor; /* in the layout's strings; */
    size_t key_size;                /* of a key, */
    char key[TP_SHOWN_SIZE];        /* as many bytes as a message can show */
} reader;

/* -------------------------------------------------------------------------------------------- messages */

/* Refuses the file: `what`, at this byte, of this key or tensor. */
static tp_status refuse(reader *r, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static tp_status refuse(reader *r, uint64_t offset, const char *format, ...)
{
    char what[200], place[TP_SHOWN_SIZE + 16] = "", shown[TP_SHOWN_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const char *kind = r->part == IN_KEYS ? "key" : "tensor";
    if (r->part != IN_START && r->named) {
        const char *name = r->part == IN_KEYS ? tp_show(shown, r->key, r->key_size)
                                              : tp_show_tensor(shown, r->builder->layout, r->tensor);
        snprintf(place, sizeof place, "%s '%s': ", kind, name);
    } else if (r->part != IN_START) {
        snprintf(place, sizeof place, "%s %" PRIu64 ": ", kind, r->number);
    }
    return tp_layout_refuse(r->builder, "byte %" PRIu64 ": %s%s", offset, place, what);
}

/* The header goes on where nothing is read any more. */
static tp_status ends(reader *r)
{
    if (r->window.limit < r->builder->source->size) {
        return tp_layout_refuse(r->builder, "its header is longer than %" PRIu64 " bytes", HEADER_MAX);
    }
    return refuse(r, r->window.limit, "the header ends too early");
}

/* --------------------------------------------------------------------------------------------- reading */

static size_t available(const reader *r)
{
    return (size_t)(r->window.end - r->window.at);
}

/* The bytes of the file from the reader's place on. */
static uint64_t remaining(const reader *r)
{
    return r->builder->source->size - tp_window_offset(&r->window);
}

static tp_status need(reader *r, size_t size)
{
    if (available(r) >= size) return TP_OK;
    tp_status status = tp_window_fill(&r->window, size, r->builder->error);
    if (status != TP_OK) return status;
    return available(r) >= size ? TP_OK : ends(r);
}

static uint32_t decode_u32(const uint8_t *at, bool swapped)
{
    if (swapped) return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

static uint64_t decode_u64(const uint8_t *at, bool swapped)
{
    uint64_t first = decode_u32(at, swapped), second = decode_u32(at + 4, swapped);
    return swapped ? first << 32 | second : second << 32 | first;
}

static tp_status take_u32(reader *r, uint32_t *value)
{
    tp_status status = need(r, 4);
    if (status != TP_OK) return status;
    r->field = tp_window_offset(&r->window);
    *value = decode_u32(r->window.at, r->swapped);
    r->window.at += 4;
    return TP_OK;
}

static tp_status take_u64(reader *r, uint64_t *value)
{
    tp_status status = need(r, 8);
    if (status != TP_OK) return status;
    r->field = tp_window_offset(&r->window);
    *value = decode_u64(r->window.at, r->swapped);
    r->window.at += 8;
    return TP_OK;
}

/* A count, a length or a dimension. */
static tp_status take_length(reader *r, uint64_t *value)
{
    if (!r->short_lengths) return take_u64(r, value);
    uint32_t small;
    tp_status status = take_u32(r, &small);
    if (status == TP_OK) *value = small;
    return status;
}

static uint64_t length_size(const reader *r)
{
    return r->short_lengths ? 4 : 8;
}

/* `size` bytes, which the file must have, are passed over, most of them unread. */
static tp_status skip(reader *r, uint64_t size)
{
    size_t have = available(r);
    if (size <= have) {
        r->window.at += size;
        return TP_OK;
    }
    if (size - have > r->window.limit - r->window.next) return ends(r);
    r->window.at = r->window.end;
    r->window.next += size - have;
    return TP_OK;
}

/* A string's length, checked against the file's end. */
static tp_status take_string(reader *r, const char *what, uint64_t *size)
{
    tp_status status = take_length(r, size);
    if (status != TP_OK) return status;
    uint64_t left = remaining(r);
    if (*size <= left) return TP_OK;
    return refuse(r, r->field, "%s has %" PRIu64 " bytes, but only %" PRIu64 " follow", what, *size, left);
}

/* ------------------------------------------------------------------------------------------------ keys */

static tp_status skip_string(reader *r)
{
    uint64_t size;
    tp_status status = take_string(r, "a string", &size);
    return status == TP_OK ? skip(r, size) : status;
}

static tp_status skip_value(reader *r, uint32_t type, unsigned depth);

static tp_status skip_array(reader *r, unsigned depth)
{
    uint32_t type;
    uint64_t count;
    if (depth == DEPTH_MAX) {
        return refuse(r, tp_window_offset(&r->window), "more than %d arrays in each other", DEPTH_MAX);
    }
    tp_status status = take_u32(r, &type);
    if (status != TP_OK) return status;
    if (type >= VALUE_TYPES) return refuse(r, r->field, "unknown type of value %" PRIu32, type);
    status = take_length(r, &count);
    if (status != TP_OK) return status;

    /* An element has its size, or a length at least, an array also a type: so the walk is linear. */
    uint64_t least = value_sizes[type];
    if (least == 0) least = length_size(r) + (type == VALUE_ARRAY ? 4 : 0);
    uint64_t left = remaining(r);
    if (count > left / least) {
        return refuse(r, r->field, "an array has %" PRIu64 " elements, but only %" PRIu64 " bytes follow",
                      count, left);
    }
    if (value_sizes[type] != 0) return skip(r, count * least);
    for (uint64_t i = 0; i < count && status == TP_OK; i++) status = skip_value(r, type, depth + 1);
    return status;
}

static tp_status skip_value(reader *r, uint32_t type, unsigned depth)
{
    if (++r->values > VALUES_MAX) {
        return tp_layout_refuse(r->builder, "its header holds more than %" PRIu64 " values", VALUES_MAX);
    }
    if (type == VALUE_STRING) return skip_string(r);
    if (type == VALUE_ARRAY) return skip_array(r, depth);
    tp_status status = need(r, value_sizes[type]);
    if (status == TP_OK) r->window.at += value_sizes[type];
    return status;
}

/* ggml takes powers of two, the specification multiples of 8; writers of either exist. */
static tp_status read_alignment(reader *r, uint32_t type)
{
    uint32_t value;
    if (type != VALUE_U32) return refuse(r, r->field, "its type is %" PRIu32 ", not 4 (u32)", type);
    tp_status status = take_u32(r, &value);
    if (status != TP_OK) return status;
    if (value == 0 || ((value & (value - 1)) != 0 && value % 8 != 0)) {
        return refuse(r, r->field, "%" PRIu32 " is neither a power of two nor a multiple of 8", value);
    }
    if (r->alignment_given && value != r->alignment) {
        return refuse(r, r->field, "it is there twice, with %" PRIu32 " and %" PRIu32, r->alignment, value);
    }
    r->alignment_given = true;
    r->alignment = value;
    return TP_OK;
}

static bool is_key(const reader *r, uint64_t size, const char *name)
{
    return size == strlen(name) && memcmp(r->key, name, strlen(name)) == 0;
}

/* A key about the file's place among several: kept if it is an integer that is not negative. */
static tp_status read_split(reader *r, uint32_t type, bool *given, uint64_t *value)
{
    uint64_t bits = 0;
    uint8_t size = value_sizes[type];
    bool is_integer = type <= VALUE_I32 || type == VALUE_U64 || type == VALUE_I64;
    if (!is_integer) return skip_value(r, type, 0);
    r->values++;
    tp_status status = need(r, size);
    if (status != TP_OK) return status;
    for (unsigned i = 0; i < size; i++) bits = bits << 8 | r->window.at[r->swapped ? i : size - 1u - i];
    r->window.at += size;
    bool is_signed = type == VALUE_I8 || type == VALUE_I16 || type == VALUE_I32 || type == VALUE_I64;
    *given = !is_signed || bits >> (8 * size - 1) == 0;
    *value = bits;
    return TP_OK;
}

static tp_status read_key(reader *r)
{
    uint64_t size;
    uint32_t type;
    r->named = false;
    tp_status status = take_string(r, "its name", &size);
    if (status != TP_OK) return status;
    r->key_size = size < sizeof r->key ? (size_t)size : sizeof r->key;
    status = need(r, r->key_size);
    if (status != TP_OK) return status;
    memcpy(r->key, r->window.at, r->key_size);
    r->named = true;
    status = skip(r, size);
    if (status == TP_OK) status = take_u32(r, &type);
    if (status != TP_OK) return status;

    if (is_key(r, size, "general.alignment")) return read_alignment(r, type);
    if (type >= VALUE_TYPES) return refuse(r, r->field, "unknown type of value %" PRIu32, type);
    tp_split *split = &r->builder->layout->split;
    if (is_key(r, size, "split.no")) return read_split(r, type, &split->has_number, &split->number);
    if (is_key(r, size, "split.count")) return read_split(r, type, &split->has_count, &split->count);
    if (is_key(r, size, "split.tensors.count"))
        return read_split(r, type, &split->has_tensors, &split->tensors);
    return skip_value(r, type, 0);
}

/* --------------------------------------------------------------------------------------------- tensors */

/* A name of any length, to the end of the layout's strings. */
static tp_status read_name(reader *r, tp_layout_tensor *tensor)
{
    uint64_t size;
    tp_status status = take_string(r, "its name", &size);
    if (status != TP_OK) return status;
    tensor->name = r->builder->layout->string_size;
    while (size != 0 && status == TP_OK) {
        status = need(r, 1);
        if (status != TP_OK) break;
        size_t piece = available(r);
        if (piece > size) piece = (size_t)size;
        status = tp_layout_add_text(r->builder, r->window.at, piece);
        r->window.at += piece;
        size -= piece;
    }
    /* Less than TP_LAYOUT_MEMORY. */
    tensor->name_size = (uint32_t)(r->builder->layout->string_size - tensor->name);
    return status;
}

/*
 * Size and class by type and shape; or, in place of the class, why there is no size. An empty tensor of an
 * unknown type has no bytes either.
 */
static void measure(const reader *r, tp_layout_tensor *tensor, const tp_gguf_type *type)
{
    const uint64_t *dims = r->builder->layout->dims;
    uint64_t elements = 1, row = tensor->ndim == 0 ? 1 : dims[tensor->dims];
    bool empty = false, overflow = false;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        uint64_t dim = dims[tensor->dims + i];
        empty = empty || dim == 0;
        overflow = overflow || __builtin_mul_overflow(elements, dim, &elements);
    }
    tensor->nbytes = 0;
    if (type == NULL) {
        tensor->cls = UNKNOWN_TYPE;
        return;
    }
    tensor->cls = r->swapped ? type->swapped_cls : type->cls;
    if (empty) return;
    /* ggml counts in int64_t. */
    if (overflow || elements > INT64_MAX) {
        tensor->cls = TOO_MANY_ELEMENTS;
    } else if (row % type->block_elements != 0) {
        tensor->cls = BROKEN_ROWS;
    } else if (__builtin_mul_overflow(elements / type->block_elements, (uint64_t)type->block_bytes,
                                      &tensor->nbytes)) {
        tensor->nbytes = 0;
        tensor->cls = TOO_MANY_ELEMENTS;
    }
}

static tp_status read_tensor(reader *r)
{
    tp_layout_builder *builder = r->builder;
    tp_layout_tensor tensor = {0};
    uint32_t id;
    r->named = false;
    tp_status status = read_name(r, &tensor);
    if (status != TP_OK) return status;
    r->tensor = &tensor;
    r->named = true;
    status = take_u32(r, &tensor.ndim);
    if (status != TP_OK) return status;
    if (tensor.ndim > DIMS_MAX) {
        return refuse(r, r->field, "it has %" PRIu32 " dimensions, more than %d", tensor.ndim, DIMS_MAX);
    }
    tensor.dims = builder->layout->dim_count;
    for (uint32_t i = 0; i < tensor.ndim; i++) {
        uint64_t dim;
        status = take_length(r, &dim);
        if (status == TP_OK) status = tp_layout_add_dim(builder, dim);
        if (status != TP_OK) return status;
    }
    status = take_u32(r, &id);
    if (status == TP_OK) status = take_u64(r, &tensor.offset);
    if (status != TP_OK) return status;

    const tp_gguf_type *type = tp_gguf_type_find(id);
    char number[] = "type-4294967295";
    const char *name = type == NULL ? number : type->name;
    if (type == NULL) snprintf(number, sizeof number, "type-%" PRIu32, id);
    status = tp_layout_add_dtype(builder, name, strlen(name), &tensor.dtype);
    if (status != TP_OK) return status;
    measure(r, &tensor, type);
    return tp_layout_add_tensor(builder, &tensor);
}

/* ---------------------------------------------------------------------------------------------- ranges */

static int order_of_offsets(const void *a, const void *b, void *context)
{
    const tp_layout *layout = context;
    uint32_t i, k;
    memcpy(&i, a, sizeof i);
    memcpy(&k, b, sizeof k);
    uint64_t first = layout->tensors[i].offset, second = layout->tensors[k].offset;
    return (first > second) - (first < second);
}

static bool has_bytes(const tp_layout *layout, const tp_layout_tensor *tensor)
{
    if (tensor->cls < TP_CLASS_COUNT) return tensor->nbytes != 0;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (layout->dims[tensor->dims + i] == 0) return false;
    }
    return true;
}

/*
 * The bytes from each tensor's start to the next tensor (one that begins there too is none), or to the
 * data's end. Returns where the last tensor begins.
 */
static uint64_t find_room(tp_layout *layout, uint64_t data_size, uint32_t *order, uint64_t *room)
{
    size_t count = 0;
    bool sorted = true;
    for (size_t i = 0; i < layout->tensor_count; i++) {
        room[i] = 0;
        if (!has_bytes(layout, &layout->tensors[i])) continue;
        order[count++] = (uint32_t)i;
        if (count > 1 && layout->tensors[i].offset < layout->tensors[order[count - 2]].offset)
            sorted = false;
    }
    if (count == 0) return 0;
    if (!sorted) qsort_r(order, count, sizeof *order, order_of_offsets, layout);
    uint64_t last = layout->tensors[order[count - 1]].offset;
    for (size_t i = count, next = count; i-- > 0;) {
        uint64_t offset = layout->tensors[order[i]].offset;
        if (i + 1 < next && layout->tensors[order[i + 1]].offset != offset) next = i + 1;
        if (next < count) {
            room[order[i]] = layout->tensors[order[next]].offset - offset;
        } else {
            room[order[i]] = data_size > offset ? data_size - offset : 0;
        }
    }
    return last;
}

/* Compares what a tensor needs with the room it has, and flags it opaque unless they agree. */
static void fit(reader *r, tp_layout_tensor *tensor, uint64_t room, bool last)
{
    tp_layout *layout = r->builder->layout;
    const tp_layout_text *dtype = &layout->dtypes[tensor->dtype];
    const char *name = layout->strings + dtype->start;
    int name_size = (int)dtype->size;
    if (tensor->cls >= TP_CLASS_COUNT) {
        unsigned why = tensor->cls;
        tensor->nbytes = room;
        if (why == UNKNOWN_TYPE) {
            tp_layout_opaque(r->builder, tensor, "its type is unknown (%.*s)", name_size, name);
        } else if (why == BROKEN_ROWS) {
            tp_layout_opaque(r->builder, tensor, "its rows are not whole blocks of %.*s", name_size, name);
        } else {
            tp_layout_opaque(r->builder, tensor, "its shape has too many elements");
        }
        return;
    }
    uint64_t nbytes = tensor->nbytes;
    if (nbytes == 0) return;
    if (nbytes > room) {
        /* Cut off by the file's end. */
        if (last) return;
        /* Plain types mean what they say: that is an overlap. */
        if (tensor->cls != TP_CLASS_BYTES) return;
        tensor->nbytes = room;
    } else if (room - nbytes < r->alignment) {
        return;
    }
    tp_layout_opaque(r->builder, tensor,
                     "%" PRIu64 " bytes are there for it, but %.*s and its shape need %" PRIu64, room,
                     name_size, name, nbytes);
}

static tp_status fit_tensors(reader *r, uint64_t data_start)
{
    tp_layout *layout = r->builder->layout;
    size_t count = layout->tensor_count;
    if (count == 0) return TP_OK;
    uint64_t size = r->builder->source->size;
    /* Together less than the spans, for which memory is accounted and which come after. */
    uint32_t *order = malloc(count * sizeof *order);
    uint64_t *room = malloc(count * sizeof *room);
    if (order == NULL || room == NULL) {
        free(order);
        free(room);
        return tp_layout_no_memory(r->builder->source, r->builder->error);
    }
    uint64_t last = find_room(layout, size > data_start ? size - data_start : 0, order, room);
    for (size_t i = 0; i < count; i++)
        fit(r, &layout->tensors[i], room[i], layout->tensors[i].offset == last);
    free(order);
    free(room);
    return TP_OK;
}

/* ---------------------------------------------------------------------------------------------- header */

static tp_status read_start(reader *r, uint64_t *tensors, uint64_t *keys)
{
    uint32_t version;
    tp_status status = need(r, 4);
    if (status != TP_OK) return status;
    if (memcmp(r->window.at, "GGUF", 4) != 0) {
        return tp_layout_refuse(r->builder, "it does not begin with 'GGUF'");
    }
    r->window.at += 4;
    status = take_u32(r, &version);
    if (status != TP_OK) return status;
    if (version != 0 && (version & 0xFFFF) == 0) {
        r->swapped = true;
        version = version >> 24 | (version >> 8 & 0xFF00);
    }
    if (version < 1 || version > 3) return refuse(r, r->field, "version %" PRIu32 " is not known", version);
    r->short_lengths = version == 1;

    status = take_length(r, tensors);
    if (status != TP_OK) return status;
    uint64_t at = r->field;
    status = take_length(r, keys);
    if (status != TP_OK) return status;
    uint64_t left = remaining(r);
    /* A tensor has a name's length, a number of dimensions, type and offset at least; a key a name's
     * length, a type and a byte. */
    if (*tensors > left / (length_size(r) + 16)) {
        return refuse(r, at, "it has %" PRIu64 " tensors, but only %" PRIu64 " bytes follow", *tensors,
                      left);
    }
    if (*keys > left / (length_size(r) + 5)) {
        return refuse(r, r->field, "it has %" PRIu64 " keys, but only %" PRIu64 " bytes follow", *keys,
                      left);
    }
    return TP_OK;
}

static tp_status read_header(reader *r)
{
    uint64_t tensors, keys;
    tp_status status = read_start(r, &tensors, &keys);
    r->part = IN_KEYS;
    for (r->number = 0; status == TP_OK && r->number < keys; r->number++) status = read_key(r);
    if (status != TP_OK) return status;
    r->part = IN_TENSORS;
    for (r->number = 0; status == TP_OK && r->number < tensors; r->number++) status = read_tensor(r);
    return status;
}

tp_status tp_gguf_parse(tp_layout_builder *builder)
{
    const tp_source *source = builder->source;
    reader r = {.builder = builder, .alignment = ALIGNMENT_DEFAULT};
    uint64_t limit = source->size < HEADER_MAX ? source->size : HEADER_MAX;
    tp_status status = tp_window_open(&r.window, source, 0, limit, builder->error);
    if (status == TP_OK) status = read_header(&r);
    uint64_t data_start = tp_window_offset(&r.window);
    tp_window_close(&r.window);
    if (status != TP_OK) return status;

    /* Files without tensors end without padding. At most HEADER_MAX + 2^32. */
    uint64_t over = data_start % r.alignment;
    if (builder->layout->tensor_count != 0 && over != 0) data_start += r.alignment - over;
    status = fit_tensors(&r, data_start);
    if (status != TP_OK) return status;
    builder->layout->format = TP_FORMAT_GGUF;
    return tp_layout_finish(builder, data_start);
}
