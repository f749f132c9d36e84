/*
 * The walk keeps the stack and the memo of Python's unpickler, but of most objects only that they are
 * there. A value is a number, one of the strings and globals listed here, or a tuple that was recognised
 * when it was made; it never refers to another value. So nothing recurses, a pickle that contains itself is
 * nothing special, and time and memory are linear in the pickle's bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/layout.h"
#include "formats/pickle.h"
#include "formats/source.h"

/* A state dict of 100,000 tensors takes 5,000,000 opcodes, and 1,000,000 places of the memo. */
#define OPCODES_MAX ((uint64_t)32 << 20)
#define STACK_MAX ((size_t)1 << 20)
#define MEMO_MAX ((size_t)4 << 20)
#define STORAGES_MAX ((size_t)1 << 20)

/* Longest string or line of a global that is looked at; all below are shorter. */
#define TEXT_MAX 64
#define KEY_DIGITS_MAX 19 /* fit into u64 */

enum opcode {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    DUP = '2',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    EMPTY_LIST = ']',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    DICT = 'd',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    LIST = 'l',
    OBJ = 'o',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    EMPTY_TUPLE = ')',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    PROTO = 0x80,
    NEWOBJ = 0x81,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8A,
    LONG4 = 0x8B,
    SHORT_BINUNICODE = 0x8C,
    BINUNICODE8 = 0x8D,
    BINBYTES8 = 0x8E,
    EMPTY_SET = 0x8F,
    ADDITEMS = 0x90,
    FROZENSET = 0x91,
    NEWOBJ_EX = 0x92,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95,
    BYTEARRAY8 = 0x96
};

/* -------------------------------------------------------------------------------------------- globals */

enum { IN_TORCH = 1, IN_STORAGE = 2, IN_UTILS = 4 };
static const char *const modules[] = {"torch", "torch.storage", "torch._utils"}; /* by bit */

enum role { STORAGE_TYPE, UNTYPED_STORAGE, DTYPE, REBUILD_V3 };

static const struct global {
    const char *name;
    uint8_t modules; /* those that it may be in, by bits */
    uint8_t role;
    uint8_t cls, element_size; /* of a type */
} globals[] = {
    {"FloatStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_F32, 4},
    {"HalfStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_F16, 2},
    {"BFloat16Storage", IN_TORCH, STORAGE_TYPE, TP_CLASS_BF16, 2},
    {"DoubleStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_F64, 8},
    {"LongStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_I64, 8},
    {"IntStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_I32, 4},
    {"ShortStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_I16, 2},
    {"CharStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_I8, 1},
    {"ByteStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_I8, 1},
    {"BoolStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_I8, 1},
    {"ComplexFloatStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_F32, 8},
    {"ComplexDoubleStorage", IN_TORCH, STORAGE_TYPE, TP_CLASS_F64, 16},
    {"UntypedStorage", IN_TORCH | IN_STORAGE, UNTYPED_STORAGE, TP_CLASS_BYTES, 1},
    {"_rebuild_tensor_v3", IN_UTILS, REBUILD_V3, TP_CLASS_BYTES, 1},
    {"float8_e4m3fn", IN_TORCH, DTYPE, TP_CLASS_E4M3, 1},
    {"float8_e4m3fnuz", IN_TORCH, DTYPE, TP_CLASS_E4M3, 1},
    {"float8_e5m2", IN_TORCH, DTYPE, TP_CLASS_E5M2, 1},
    {"float8_e5m2fnuz", IN_TORCH, DTYPE, TP_CLASS_E5M2, 1},
    {"float8_e8m0fnu", IN_TORCH, DTYPE, TP_CLASS_I8, 1},
    {"bfloat16", IN_TORCH, DTYPE, TP_CLASS_BF16, 2},
    {"float16", IN_TORCH, DTYPE, TP_CLASS_F16, 2},
    {"float32", IN_TORCH, DTYPE, TP_CLASS_F32, 4},
    {"float64", IN_TORCH, DTYPE, TP_CLASS_F64, 8},
    {"int8", IN_TORCH, DTYPE, TP_CLASS_I8, 1},
    {"uint8", IN_TORCH, DTYPE, TP_CLASS_I8, 1},
    {"bool", IN_TORCH, DTYPE, TP_CLASS_I8, 1},
    {"int16", IN_TORCH, DTYPE, TP_CLASS_I16, 2},
    {"uint16", IN_TORCH, DTYPE, TP_CLASS_I16, 2},
    {"int32", IN_TORCH, DTYPE, TP_CLASS_I32, 4},
    {"uint32", IN_TORCH, DTYPE, TP_CLASS_I32, 4},
    {"int64", IN_TORCH, DTYPE, TP_CLASS_I64, 8},
    {"uint64", IN_TORCH, DTYPE, TP_CLASS_I64, 8},
    {"complex32", IN_TORCH, DTYPE, TP_CLASS_F16, 4},
    {"complex64", IN_TORCH, DTYPE, TP_CLASS_F32, 8},
    {"complex128", IN_TORCH, DTYPE, TP_CLASS_F64, 16},
};

/* --------------------------------------------------------------------------------------------- values */

enum kind {
    OTHER,
    A_MARK,
    INTEGER,     /* number; one that is not negative */
    TAG,         /* the string 'storage' */
    KEY,         /* a string: number in decimal */
    MODULE,      /* a string: modules[number] */
    NAME,        /* a string: the name of globals[number] */
    KNOWN,       /* globals[number] itself */
    SOME_GLOBAL, /* of the others */
    PERSISTENT,  /* tuple, the persistent id of storages[number] */
    STORAGE,     /* storages[number] */
    ARGUMENTS    /* tuple, what _rebuild_tensor_v3 takes: storages[number] is of dtype globals[dtype] */
};

typedef struct value {
    uint64_t number;
    uint8_t kind;
    uint8_t dtype;
} value;

typedef struct walker {
    tp_window window;
    tp_error *error;
    tp_status status;
    bool refused; /* there was something unexpected */
    value *stack, *memo;
    tp_storage
        *storages; /* of each `count` is as told, `cls` bytes if nothing or conflicting things were */
    size_t stack_size, stack_capacity, memo_size, memo_capacity, storage_count, storage_capacity;
} walker;

static bool ok(const walker *w)
{
    return w->status == TP_OK && !w->refused;
}

static void refuse(walker *w)
{
    w->refused = true;
}

/* Room for one more; all limits are far from overflow. */
static bool grow(walker *w, void *array, size_t *capacity, size_t wanted, size_t limit, size_t item)
{
    if (wanted <= *capacity) return true;
    if (wanted > limit) {
        refuse(w);
        return false;
    }
    size_t more = *capacity + *capacity / 2;
    if (more < wanted) more = wanted;
    if (more < 64) more = 64;
    if (more > limit) more = limit;
    void *grown;
    memcpy(&grown, array, sizeof grown);
    grown = realloc(grown, more * item);
    if (grown == NULL) {
        w->status = tp_layout_no_memory(w->window.source, w->error);
        return false;
    }
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return true;
}

static void push(walker *w, value v)
{
    if (!grow(w, &w->stack, &w->stack_capacity, w->stack_size + 1, STACK_MAX, sizeof v)) return;
    w->stack[w->stack_size++] = v;
}

static void push_kind(walker *w, enum kind kind, uint64_t number)
{
    push(w, (value){.kind = (uint8_t)kind, .number = number});
}

/* The topmost `count` values, none of them a mark, leave the stack; they stay readable up to the next push.
 * NULL: the pickle is refused. */
static const value *pop(walker *w, size_t count)
{
    if (count > w->stack_size) {
        refuse(w);
        return NULL;
    }
    const value *values = w->stack + w->stack_size - count;
    for (size_t i = 0; i < count; i++) {
        if (values[i].kind == A_MARK) {
            refuse(w);
            return NULL;
        }
    }
    w->stack_size -= count;
    return values;
}

/* The same with all down to the last mark, which goes too. */
static const value *pop_mark(walker *w, size_t *count)
{
    size_t at = w->stack_size;
    while (at != 0 && w->stack[at - 1].kind != A_MARK) at--;
    if (at == 0) {
        refuse(w);
        return NULL;
    }
    *count = w->stack_size - at;
    w->stack_size = at - 1;
    return w->stack + at;
}

/* ------------------------------------------------------------------------------------------ storages */

static bool same_type(const tp_storage *a, const tp_storage *b)
{
    return a->cls == b->cls && a->element_size == b->element_size;
}

/* A storage's type as another place has it: `from` is added to what `to` says. Once in doubt, for ever. */
static void merge(tp_storage *to, const tp_storage *from)
{
    const tp_storage doubt = {.key = to->key, .count = to->count, .cls = TP_CLASS_BYTES, .element_size = 1};
    if (to->untyped != from->untyped || to->count != from->count) {
        *to = doubt;
    } else if (to->untyped && to->cls == TP_CLASS_BYTES) {
        *to = *from;
    } else if (!same_type(to, from) && !(from->untyped && from->cls == TP_CLASS_BYTES)) {
        *to = doubt;
    }
}

/* A tensor of this type uses the untyped storage. */
static void view(walker *w, const value *arguments)
{
    const struct global *dtype = &globals[arguments->dtype];
    tp_storage *storage = &w->storages[arguments->number], seen = *storage;
    if (!storage->untyped) return;
    seen.cls = dtype->cls;
    seen.element_size = dtype->element_size;
    merge(storage, &seen);
}

/* The tuple's values, recognised if they are one that matters. */
static value make_tuple(walker *w, const value *v, size_t count)
{
    const value other = {.kind = OTHER};
    if (count == 5 && v[0].kind == TAG) {
        bool known = v[1].kind == KNOWN && globals[v[1].number].role <= UNTYPED_STORAGE;
        if (!known && v[1].kind != SOME_GLOBAL && v[1].kind != KNOWN) return other;
        if (v[2].kind != KEY || v[4].kind != INTEGER) return other;
        tp_storage storage = {
            .key = v[2].number, .count = v[4].number, .cls = TP_CLASS_BYTES, .element_size = 1};
        if (known) {
            const struct global *type = &globals[v[1].number];
            storage.cls = type->cls;
            storage.element_size = type->element_size;
            storage.untyped = type->role == UNTYPED_STORAGE;
        }
        if (!grow(w, &w->storages, &w->storage_capacity, w->storage_count + 1, STORAGES_MAX,
                  sizeof storage))
            return other;
        w->storages[w->storage_count] = storage;
        return (value){.kind = PERSISTENT, .number = w->storage_count++};
    }
    if ((count == 7 || count == 8) && v[0].kind == STORAGE && v[6].kind == KNOWN &&
        globals[v[6].number].role == DTYPE) {
        return (value){.kind = ARGUMENTS, .number = v[0].number, .dtype = (uint8_t)v[6].number};
    }
    /* torch._tensor._rebuild_from_type_v2(function, type, arguments, state), of tensors with attributes. */
    if (count == 4 && v[0].kind == KNOWN && globals[v[0].number].role == REBUILD_V3 &&
        v[2].kind == ARGUMENTS) {
        view(w, &v[2]);
    }
    return other;
}

static int order_of_keys(const void *a, const void *b)
{
    const tp_storage *first = a, *second = b;
    return (first->key > second->key) - (first->key < second->key);
}

/* One storage a key, in order. */
static void collect(walker *w, tp_pickle *pickle)
{
    size_t kept = 0;
    bool sorted = true;
    for (size_t i = 1; i < w->storage_count; i++)
        sorted = sorted && w->storages[i - 1].key <= w->storages[i].key;
    if (!sorted) qsort(w->storages, w->storage_count, sizeof *w->storages, order_of_keys);
    for (size_t i = 0; i < w->storage_count; i++) {
        if (kept != 0 && w->storages[kept - 1].key == w->storages[i].key)
            merge(&w->storages[kept - 1], &w->storages[i]);
        else
            w->storages[kept++] = w->storages[i];
    }
    *pickle = (tp_pickle){.storages = w->storages, .count = kept};
    w->storages = NULL;
}

/* ------------------------------------------------------------------------------------------- reading */

/* `size` bytes (no more than a window) at the walker's place, which moves behind them; NULL: not there. */
static const uint8_t *take(walker *w, size_t size)
{
    tp_window *window = &w->window;
    if ((size_t)(window->end - window->at) < size) {
        w->status = tp_window_fill(window, size, w->error);
        if (w->status != TP_OK) return NULL;
        if ((size_t)(window->end - window->at) < size) {
            refuse(w);
            return NULL;
        }
    }
    const uint8_t *bytes = window->at;
    window->at += size;
    return bytes;
}

static uint64_t take_number(walker *w, unsigned size)
{
    const uint8_t *bytes = take(w, size);
    uint64_t number = 0;
    for (unsigned i = size; bytes != NULL && i-- > 0;) number = number << 8 | bytes[i];
    return number;
}

static void skip(walker *w, uint64_t size)
{
    tp_window *window = &w->window;
    size_t have = (size_t)(window->end - window->at);
    if (size <= have) {
        window->at += size;
    } else if (size - have <= window->limit - window->next) {
        window->at = window->end;
        window->next += size - have;
    } else {
        refuse(w);
    }
}

static bool is_text(const char *known, const uint8_t *text, size_t size)
{
    /* Nearly all texts that are looked up are others: their first bytes tell. */
    return size != 0 && known[0] == (char)text[0] && strlen(known) == size &&
           memcmp(known, text, size) == 0;
}

static bool find_module(const uint8_t *text, size_t size, uint64_t *number)
{
    for (*number = 0; *number < sizeof modules / sizeof *modules; ++*number) {
        if (is_text(modules[*number], text, size)) return true;
    }
    return false;
}

static bool find_name(const uint8_t *text, size_t size, uint64_t *number)
{
    for (*number = 0; *number < sizeof globals / sizeof *globals; ++*number) {
        if (is_text(globals[*number].name, text, size)) return true;
    }
    return false;
}

static void push_string(walker *w, uint64_t size)
{
    uint64_t number;
    if (!ok(w)) return;
    if (size > TEXT_MAX) {
        skip(w, size);
        push_kind(w, OTHER, 0);
        return;
    }
    const uint8_t *text = take(w, (size_t)size);
    if (text == NULL) return;
    if (is_text("storage", text, (size_t)size))
        push_kind(w, TAG, 0);
    else if (tp_pickle_parse_key(text, (size_t)size, &number))
        push_kind(w, KEY, number);
    else if (find_module(text, (size_t)size, &number))
        push_kind(w, MODULE, number);
    else if (find_name(text, (size_t)size, &number))
        push_kind(w, NAME, number);
    else
        push_kind(w, OTHER, 0);
}

static void push_bytes(walker *w, uint64_t size)
{
    if (!ok(w)) return;
    skip(w, size);
    push_kind(w, OTHER, 0);
}

/* A little-endian number of any length, in two's complement. */
static void push_long(walker *w, uint64_t size)
{
    if (!ok(w)) return;
    if (size > 8) {
        push_bytes(w, size);
        return;
    }
    uint64_t number = take_number(w, (unsigned)size);
    bool negative = size != 0 && (number >> (8 * size - 1) & 1) != 0;
    push_kind(w, negative ? OTHER : INTEGER, number);
}

/* A line, without its end, at the walker's place; NULL: not there, or too long to be anybody's name. */
static const uint8_t *take_line(walker *w, size_t *size)
{
    enum { LINE_MAX_SIZE = 1024 };
    tp_window *window = &w->window;
    if ((size_t)(window->end - window->at) < LINE_MAX_SIZE) {
        w->status = tp_window_fill(window, LINE_MAX_SIZE, w->error);
        if (w->status != TP_OK) return NULL;
    }
    size_t have = (size_t)(window->end - window->at);
    const uint8_t *line = window->at;
    const uint8_t *end = memchr(line, '\n', have < LINE_MAX_SIZE ? have : LINE_MAX_SIZE);
    if (end == NULL) {
        refuse(w);
        return NULL;
    }
    *size = (size_t)(end - line);
    window->at = end + 1;
    return line;
}

static void push_global(walker *w, bool has_module, uint64_t module, bool has_name, uint64_t name)
{
    bool known = has_module && has_name && (globals[name].modules >> module & 1) != 0;
    push_kind(w, known ? KNOWN : SOME_GLOBAL, known ? name : 0);
}

static void walk_global(walker *w)
{
    size_t size;
    uint64_t module = 0, name = 0;
    const uint8_t *line = take_line(w, &size);
    if (line == NULL) return;
    bool has_module = find_module(line, size, &module);
    line = take_line(w, &size);
    if (line == NULL) return;
    bool has_name = find_name(line, size, &name);
    push_global(w, has_module, module, has_name, name);
}

static void walk_stack_global(walker *w)
{
    const value *v = pop(w, 2);
    if (v == NULL) return;
    push_global(w, v[0].kind == MODULE, v[0].number, v[1].kind == NAME, v[1].number);
}

/* -------------------------------------------------------------------------------------------- walking */

static void put(walker *w, uint64_t index)
{
    if (!ok(w)) return;
    /*
     * Python numbers the places from 0 on, so that an index is below the number of bytes before it. Which
     * also bounds the memory.
     */
    if (index > tp_window_offset(&w->window) || index >= MEMO_MAX || w->stack_size == 0 ||
        w->stack[w->stack_size - 1].kind == A_MARK) {
        refuse(w);
        return;
    }
    size_t at = (size_t)index;
    if (!grow(w, &w->memo, &w->memo_capacity, at + 1, MEMO_MAX, sizeof *w->memo)) return;
    for (; w->memo_size <= at; w->memo_size++) w->memo[w->memo_size] = (value){.kind = A_MARK};
    w->memo[at] = w->stack[w->stack_size - 1];
}

static void get(walker *w, uint64_t index)
{
    if (!ok(w)) return;
    if (index >= w->memo_size || w->memo[index].kind == A_MARK)
        refuse(w); /* nothing was put there */
    else
        push(w, w->memo[index]);
}

/* Takes `count` values and leaves one that does not matter. */
static void replace(walker *w, size_t count)
{
    if (pop(w, count) != NULL) push_kind(w, OTHER, 0);
}

static void replace_marked(walker *w)
{
    size_t count;
    if (pop_mark(w, &count) != NULL) push_kind(w, OTHER, 0);
}

/* Takes all down to the mark and adds it to the object below, which stays as it is. */
static void add_marked(walker *w)
{
    size_t count;
    if (pop_mark(w, &count) == NULL) return;
    if (w->stack_size == 0 || w->stack[w->stack_size - 1].kind == A_MARK) refuse(w);
}

static void add(walker *w, size_t count)
{
    if (pop(w, count) == NULL) return;
    if (w->stack_size == 0 || w->stack[w->stack_size - 1].kind == A_MARK) refuse(w);
}

static void push_tuple(walker *w, size_t count)
{
    const value *v = pop(w, count);
    if (v != NULL) push(w, make_tuple(w, v, count));
}

static void walk_opcode(walker *w, uint8_t opcode)
{
    const value *v;
    size_t count;
    switch (opcode) {
    case MARK:
        push_kind(w, A_MARK, 0);
        break;
    case POP:
        if (w->stack_size == 0)
            refuse(w);
        else
            w->stack_size--;
        break;
    case POP_MARK:
        pop_mark(w, &count);
        break;
    case DUP:
        v = pop(w, 1);
        if (v == NULL) break;
        w->stack_size++;
        push(w, *v);
        break;
    case FRAME:
        take_number(w, 8);
        break;

    case NONE:
    case NEWTRUE:
    case NEWFALSE:
    case EMPTY_LIST:
    case EMPTY_TUPLE:
    case EMPTY_DICT:
    case EMPTY_SET:
        push_kind(w, OTHER, 0);
        break;
    case BINFLOAT:
        push_bytes(w, 8);
        break;
    case BININT1:
        push_kind(w, INTEGER, take_number(w, 1));
        break;
    case BININT2:
        push_kind(w, INTEGER, take_number(w, 2));
        break;
    case BININT:
        push_long(w, 4);
        break;
    case LONG1:
        push_long(w, take_number(w, 1));
        break;
    case LONG4:
        push_long(w, take_number(w, 4));
        break;
    case SHORT_BINUNICODE:
        push_string(w, take_number(w, 1));
        break;
    case BINUNICODE:
        push_string(w, take_number(w, 4));
        break;
    case BINUNICODE8:
        push_string(w, take_number(w, 8));
        break;
    case SHORT_BINBYTES:
    case SHORT_BINSTRING:
        push_bytes(w, take_number(w, 1));
        break;
    case BINBYTES:
    case BINSTRING:
        push_bytes(w, take_number(w, 4));
        break;
    case BINBYTES8:
    case BYTEARRAY8:
        push_bytes(w, take_number(w, 8));
        break;

    case BINGET:
        get(w, take_number(w, 1));
        break;
    case LONG_BINGET:
        get(w, take_number(w, 4));
        break;
    case BINPUT:
        put(w, take_number(w, 1));
        break;
    case LONG_BINPUT:
        put(w, take_number(w, 4));
        break;
    case MEMOIZE:
        put(w, w->memo_size);
        break;

    case TUPLE:
        v = pop_mark(w, &count);
        if (v != NULL) push(w, make_tuple(w, v, count));
        break;
    case TUPLE1:
    case TUPLE2:
    case TUPLE3:
        push_tuple(w, (size_t)opcode - TUPLE1 + 1);
        break;
    case LIST:
    case DICT:
    case FROZENSET:
    case OBJ:
        replace_marked(w);
        break;
    case APPEND:
    case BUILD:
        add(w, 1);
        break;
    case SETITEM:
        add(w, 2);
        break;
    case APPENDS:
    case SETITEMS:
    case ADDITEMS:
        add_marked(w);
        break;

    case GLOBAL:
        walk_global(w);
        break;
    case STACK_GLOBAL:
        walk_stack_global(w);
        break;
    case REDUCE:
        v = pop(w, 2);
        if (v == NULL) break;
        if (v[0].kind == KNOWN && globals[v[0].number].role == REBUILD_V3 && v[1].kind == ARGUMENTS)
            view(w, &v[1]);
        push_kind(w, OTHER, 0);
        break;
    case NEWOBJ:
        replace(w, 2);
        break;
    case NEWOBJ_EX:
        replace(w, 3);
        break;
    case BINPERSID:
        v = pop(w, 1);
        if (v == NULL) break;
        if (v->kind != PERSISTENT)
            refuse(w);
        else
            push_kind(w, STORAGE, v->number);
        break;

    default:
        /* Opcodes of protocols 0 and 1 that 2 replaced, extensions, buffers outside the pickle, others. */
        refuse(w);
    }
}

static void walk(walker *w)
{
    const uint8_t *bytes = take(w, 2);
    if (bytes == NULL) return;
    if (bytes[0] != PROTO || bytes[1] < 2 || bytes[1] > 5) {
        refuse(w);
        return;
    }
    for (uint64_t opcodes = 0; ok(w); opcodes++) {
        bytes = take(w, 1);
        if (bytes == NULL) return;
        if (*bytes == STOP) break;
        if (opcodes == OPCODES_MAX)
            refuse(w);
        else
            walk_opcode(w, *bytes);
    }
    /* One object is left, and no more bytes. */
    if (w->stack_size != 1 || tp_window_offset(&w->window) != w->window.limit) refuse(w);
}

tp_status tp_pickle_read(const tp_source *source, uint64_t start, uint64_t size, tp_pickle *pickle,
                         tp_error *error)
{
    *pickle = (tp_pickle){0};
    walker w = {.error = error};
    w.status = tp_window_open(&w.window, source, start, start + size, error);
    if (w.status == TP_OK) walk(&w);
    if (ok(&w)) collect(&w, pickle);
    tp_window_close(&w.window);
    free(w.stack);
    free(w.memo);
    free(w.storages);
    return w.status;
}

bool tp_pickle_parse_key(const void *text, size_t size, uint64_t *key)
{
    const uint8_t *digits = text;
    if (size == 0 || size > KEY_DIGITS_MAX || (digits[0] == '0' && size != 1)) return false;
    *key = 0;
    for (size_t i = 0; i < size; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        *key = *key * 10 + (uint64_t)(digits[i] - '0');
    }
    return true;
}

const tp_storage *tp_pickle_find(const tp_pickle *pickle, uint64_t key)
{
    if (pickle->count == 0) return NULL;
    tp_storage wanted = {.key = key};
    return bsearch(&wanted, pickle->storages, pickle->count, sizeof wanted, order_of_keys);
}

void tp_pickle_close(tp_pickle *pickle)
{
    free(pickle->storages);
    *pickle = (tp_pickle){0};
}
