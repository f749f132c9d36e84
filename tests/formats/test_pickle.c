/* The walk over a checkpoint's pickle. */
#include "support.h"

#include <time.h>

#include "formats/pickle.h"

/* ---------------------------------------------------------------------------------- hand-built pickles */

typedef struct pickle {
    uint8_t data[20000];
    size_t size;
} pickle;

static void op(pickle *p, const void *bytes, size_t size)
{
    assert_true(size <= sizeof p->data - p->size);
    memcpy(p->data + p->size, bytes, size);
    p->size += size;
}

#define OP(p, literal) op(p, literal, sizeof(literal) - 1)

static void op_text(pickle *p, const char *text)
{
    op(p, "X", 1);
    op(p, &(uint32_t){(uint32_t)strlen(text)}, 4);
    op(p, text, strlen(text));
}

static void op_global(pickle *p, const char *module, const char *name)
{
    op(p, "c", 1);
    op(p, module, strlen(module));
    op(p, "\n", 1);
    op(p, name, strlen(name));
    op(p, "\n", 1);
}

/* A storage, with what torch.save writes for it. */
static void op_storage(pickle *p, const char *type, const char *key, uint32_t count)
{
    op(p, "(", 1);
    op_text(p, "storage");
    op_global(p, "torch", type);
    op_text(p, key);
    op_text(p, "cpu");
    op(p, "J", 1);
    op(p, &count, 4);
    op(p, "tQ", 2);
}

/* The other arguments of a tensor, from the storage's offset on. */
static void op_shape(pickle *p)
{
    OP(p, "K\0K\2K\3\206K\3K\1\206\211ccollections\nOrderedDict\n)R");
}

static void op_tensor(pickle *p, const char *type, const char *key, uint32_t count)
{
    op_global(p, "torch._utils", "_rebuild_tensor_v2");
    OP(p, "(");
    op_storage(p, type, key, count);
    op_shape(p);
    OP(p, "tR");
}

static void op_untyped(pickle *p, const char *key, uint32_t count, const char *dtype)
{
    op_global(p, "torch._utils", "_rebuild_tensor_v3");
    OP(p, "(");
    op_storage(p, "UntypedStorage", key, count);
    op_shape(p);
    op_global(p, "torch", dtype);
    OP(p, "tR");
}

static pickle start(void)
{
    pickle p = {.size = 0};
    OP(&p, "\200\2(");
    return p;
}

/* All that was pushed since start() becomes a tuple. */
static void stop(pickle *p)
{
    OP(p, "t.");
}

/* "KEY:CLASS/ELEMENT_SIZE*COUNT ...", 'u' in front of untyped ones. */
static const char *walk(const uint8_t *data, size_t size)
{
    static char text[4096];
    uint8_t *copy = malloc(size + 1); /* of exact size behind the first byte, which must not be read */
    assert_non_null(copy);
    if (size != 0) memcpy(copy + 1, data, size);
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, copy, size + 1, "x");
    tp_pickle found;
    tp_error error = {0};
    tp_status status = tp_pickle_read(&source, 1, size, &found, &error);
    if (status != TP_OK) fail_msg("status %d: %s", (int)status, error.message);
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < found.count && used < sizeof text - 100; i++) {
        const tp_storage *s = &found.storages[i];
        assert_ptr_equal(tp_pickle_find(&found, s->key), s);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%" PRIu64 ":%s/%u*%" PRIu64,
                                 i == 0 ? "" : " ", s->untyped ? "u" : "", s->key,
                                 tp_class_name((tp_class)s->cls), s->element_size, s->count);
    }
    assert_null(tp_pickle_find(&found, UINT64_MAX));
    tp_pickle_close(&found);
    tp_pickle_close(&found);
    free(copy);
    return text;
}

static const char *walk_pickle(const pickle *p)
{
    return walk(p->data, p->size);
}

/* ---------------------------------------------------------------------------------------------- types */

static void test_storage_types(void **state)
{
    (void)state;
    static const struct {
        const char *type, *found;
    } cases[] = {
        {"FloatStorage", "0:f32/4*6"},
        {"HalfStorage", "0:f16/2*6"},
        {"BFloat16Storage", "0:bf16/2*6"},
        {"DoubleStorage", "0:f64/8*6"},
        {"LongStorage", "0:i64/8*6"},
        {"IntStorage", "0:i32/4*6"},
        {"ShortStorage", "0:i16/2*6"},
        {"CharStorage", "0:i8/1*6"},
        {"ByteStorage", "0:i8/1*6"},
        {"BoolStorage", "0:i8/1*6"},
        {"ComplexFloatStorage", "0:f32/8*6"},
        {"ComplexDoubleStorage", "0:f64/16*6"},
        {"QInt8Storage", "0:bytes/1*6"},
        {"QUInt4x2Storage", "0:bytes/1*6"},
        {"UntypedStorage", "u0:bytes/1*6"},
        {"floatstorage", "0:bytes/1*6"},
        {"FloatStorag", "0:bytes/1*6"},
        {"FloatStorages", "0:bytes/1*6"},
        {"float32", "0:bytes/1*6"}, /* is no storage */
        {"", "0:bytes/1*6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pickle p = start();
        op_tensor(&p, cases[i].type, "0", 6);
        stop(&p);
        assert_string_equal(walk_pickle(&p), cases[i].found);
    }
}

static void test_untyped(void **state)
{
    (void)state;
    static const struct {
        const char *dtype, *found;
    } cases[] = {
        {"float8_e4m3fn", "u0:e4m3/1*16"},
        {"float8_e4m3fnuz", "u0:e4m3/1*16"},
        {"float8_e5m2", "u0:e5m2/1*16"},
        {"float8_e5m2fnuz", "u0:e5m2/1*16"},
        {"float8_e8m0fnu", "u0:i8/1*16"},
        {"uint16", "u0:i16/2*16"},
        {"uint32", "u0:i32/4*16"},
        {"uint64", "u0:i64/8*16"},
        {"complex32", "u0:f16/4*16"},
        {"complex128", "u0:f64/16*16"},
        {"bfloat16", "u0:bf16/2*16"},
        {"float32", "u0:f32/4*16"},
        {"float4_e2m1fn_x2", "u0:bytes/1*16"},
        {"bits8", "u0:bytes/1*16"},
        {"FloatStorage", "u0:bytes/1*16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pickle p = start();
        op_untyped(&p, "0", 16, cases[i].dtype);
        stop(&p);
        assert_string_equal(walk_pickle(&p), cases[i].found);
    }

    /* The module that newer versions name. */
    pickle p = start();
    op_global(&p, "torch._utils", "_rebuild_tensor_v3");
    OP(&p, "((");
    op_text(&p, "storage");
    op_global(&p, "torch.storage", "UntypedStorage");
    op_text(&p, "7");
    op_text(&p, "cuda:0");
    OP(&p, "K\20tQ");
    op_shape(&p);
    op_global(&p, "torch", "float8_e5m2");
    OP(&p, "}tR"); /* with metadata */
    stop(&p);
    assert_string_equal(walk_pickle(&p), "u7:e5m2/1*16");

    /* Within a tensor that has attributes. */
    p = start();
    op_global(&p, "torch._tensor", "_rebuild_from_type_v2");
    OP(&p, "(");
    op_global(&p, "torch._utils", "_rebuild_tensor_v3");
    op_global(&p, "torch.nn.parameter", "Parameter");
    OP(&p, "(");
    op_storage(&p, "UntypedStorage", "1", 16);
    op_shape(&p);
    op_global(&p, "torch", "float8_e5m2");
    OP(&p, "t}tR");
    stop(&p);
    assert_string_equal(walk_pickle(&p), "u1:e5m2/1*16");

    /* A function that is not known may mean something else. */
    static const char *const functions[][2] = {{"torch._utils", "_rebuild_tensor_v4"},
                                               {"torch", "_rebuild_tensor_v3"},
                                               {"torch._utils", "float8_e5m2"},
                                               {"mine", "_rebuild_tensor_v3"}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        p = start();
        op_global(&p, functions[i][0], functions[i][1]);
        OP(&p, "(");
        op_storage(&p, "UntypedStorage", "0", 16);
        op_shape(&p);
        op_global(&p, "torch", "float8_e5m2");
        OP(&p, "tR");
        stop(&p);
        assert_string_equal(walk_pickle(&p), "u0:bytes/1*16");
    }
}

static void test_several(void **state)
{
    (void)state;
    /* In order of the keys, and each once. */
    pickle p = start();
    op_tensor(&p, "FloatStorage", "12", 6);
    op_tensor(&p, "HalfStorage", "3", 5);
    op_tensor(&p, "FloatStorage", "12", 6);
    op_tensor(&p, "LongStorage", "9223372036854775807", 1);
    op_untyped(&p, "4", 8, "float8_e5m2");
    op_untyped(&p, "4", 8, "float8_e5m2");
    op_storage(&p, "UntypedStorage", "4", 8);
    stop(&p);
    assert_string_equal(walk_pickle(&p), "3:f16/2*5 u4:e5m2/1*8 12:f32/4*6 9223372036854775807:i64/8*1");

    /* Whatever contradicts itself is bytes, in any order. */
    static const struct {
        const char *first, *second;
        uint32_t first_count, second_count;
        const char *found;
    } cases[] = {
        {"FloatStorage", "IntStorage", 4, 4, "1:bytes/1*4"},
        {"FloatStorage", "FloatStorage", 4, 5, "1:bytes/1*4"},
        {"FloatStorage", "ComplexFloatStorage", 4, 4, "1:bytes/1*4"},
        {"FloatStorage", "QInt8Storage", 4, 4, "1:bytes/1*4"},
        {"QInt8Storage", "FloatStorage", 4, 4, "1:bytes/1*4"},
        {"FloatStorage", "UntypedStorage", 4, 4, "1:bytes/1*4"},
        {"UntypedStorage", "FloatStorage", 4, 4, "1:bytes/1*4"},
        {"CharStorage", "ByteStorage", 4, 4, "1:i8/1*4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int again = 0; again < 2; again++) {
            p = start();
            op_tensor(&p, cases[i].first, "1", cases[i].first_count);
            op_tensor(&p, cases[i].second, "1", cases[i].second_count);
            if (again) op_tensor(&p, cases[i].first, "1", cases[i].first_count);
            stop(&p);
            assert_string_equal(walk_pickle(&p), cases[i].found);
        }
    }
    p = start();
    op_untyped(&p, "1", 4, "float8_e5m2");
    op_untyped(&p, "1", 4, "float8_e4m3fn");
    op_untyped(&p, "1", 4, "float8_e5m2");
    op_storage(&p, "UntypedStorage", "1", 4);
    stop(&p);
    assert_string_equal(walk_pickle(&p), "1:bytes/1*4");
    /* One storage from the memo, under two types. */
    p = start();
    op_storage(&p, "UntypedStorage", "1", 4);
    OP(&p, "q\0");
    static const char *const dtypes[] = {"uint16", "float8_e5m2", "uint16"};
    for (size_t i = 0; i < 3; i++) {
        op_global(&p, "torch._utils", "_rebuild_tensor_v3");
        OP(&p, "(h\0");
        op_shape(&p);
        op_global(&p, "torch", dtypes[i]);
        OP(&p, "tR");
    }
    stop(&p);
    assert_string_equal(walk_pickle(&p), "1:bytes/1*4");
}

static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key, *found;
    } cases[] = {
        {"0", "0:f32/4*1"},
        {"9999999999999999999", "9999999999999999999:f32/4*1"},
        {"94340341200128", "94340341200128:f32/4*1"},
        {"00", ""},
        {"01", ""},
        {"", ""},
        {"-1", ""},
        {"1 ", ""},
        {"x", ""},
        {"10000000000000000000", ""}, /* 20 digits */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pickle p = start();
        op_tensor(&p, "FloatStorage", cases[i].key, 1);
        stop(&p);
        assert_string_equal(walk_pickle(&p), cases[i].found);
    }
    /* Counts of every length; negative ones and such above 2^63 are none. */
    static const struct {
        const char *ops;
        size_t size;
        const char *found;
    } counts[] = {
        {"K\377", 2, "1:f32/4*255"},
        {"M\377\377", 3, "1:f32/4*65535"},
        {"J\377\377\377\177", 5, "1:f32/4*2147483647"},
        {"J\377\377\377\377", 5, ""},
        {"\212\0", 2, "1:f32/4*0"},
        {"\212\5\0\0\0\200\0", 7, "1:f32/4*2147483648"},
        {"\212\10\377\377\377\377\377\377\377\177", 10, "1:f32/4*9223372036854775807"},
        {"\212\10\377\377\377\377\377\377\377\377", 10, ""},
        {"\212\11\1\0\0\0\0\0\0\0\0", 11, ""},
        {"\213\1\0\0\0\7", 6, "1:f32/4*7"},
        {"G\0\0\0\0\0\0\0\0", 9, ""},
        {"N", 1, ""},
        {"X\1\0\0\0007", 6, ""},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        pickle p = start();
        OP(&p, "(");
        op_text(&p, "storage");
        op_global(&p, "torch", "FloatStorage");
        op_text(&p, "1");
        op_text(&p, "cpu");
        op(&p, counts[i].ops, counts[i].size);
        OP(&p, "tQ");
        stop(&p);
        assert_string_equal(walk_pickle(&p), counts[i].found);
    }
}

/* ---------------------------------------------------------------------------------------------- opcodes */

/* Every opcode that a pickler of protocols 2 to 5 writes, around a storage. */
static void test_opcodes(void **state)
{
    (void)state;
    pickle p = {.size = 0};
    OP(&p, "\200\5\225\0\0\0\0\0\0\0\377(");
    OP(&p, "}(\214\1aK\1\214\1bK\2u\214\1cNs\224"); /* MEMOIZE: place 0 */
    OP(&p, "](\210\211eNa(Nl(Nd");                  /* APPENDS, APPEND, LIST, DICT */
    OP(&p, "\217(K\1\220(K\1\221");                 /* sets */
    OP(&p, ")(t\205\206");                          /* tuples, of the values before */
    OP(&p, "\214\6mine.x\214\1C\223)\201");         /* STACK_GLOBAL, NEWOBJ */
    OP(&p, "cmine\nC\n)}\222}b");                   /* NEWOBJ_EX, BUILD */
    OP(&p, "(cmine\nC\nNo");                        /* OBJ */
    OP(&p, "N0(NN1N2");                             /* POP, POP_MARK, DUP */
    OP(&p, "B\3\0\0\0abcC\2abT\1\0\0\0aU\1aG12345678");
    OP(&p, "\216\1\0\0\0\0\0\0\0a\226\1\0\0\0\0\0\0\0a\215\1\0\0\0\0\0\0\0a");
    OP(&p, "J\1\0\0\0M\1\0h\0j\0\0\0\0q\7r\10\0\0\0");
    OP(&p, "(\214\7storage\214\5torch\214\14FloatStorage\223\214\0013\224\214\3cpuK\2t\224Q");
    OP(&p, "h\11h\12");
    OP(&p, "Q");
    stop(&p);
    assert_string_equal(walk_pickle(&p), "3:f32/4*2");
}

/* Each of these ends the walk, at whatever place it stands, so that nothing is typed. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *ops;
        size_t size;
    } cases[] = {
#define CASE(literal) {literal, sizeof(literal) - 1}
        CASE("I1\n"),
        CASE("L1L\n"),
        CASE("F1.0\n"),
        CASE("S'a'\n"),
        CASE("Va\n"),
        CASE("g0\n"),
        CASE("p0\n"),
        CASE("Pa\n"),
        CASE("iposix\nsystem\n"),
        CASE("\202\1"),
        CASE("\203\1\0"),
        CASE("\204\1\0\0\0"),
        CASE("\227"),
        CASE("\230"),
        CASE("\231"),
        CASE("\0"),
        CASE("\377"),
        CASE("\200\2"), /* PROTO again */
        CASE("h\0"),    /* nothing was put there */
        CASE("j\377\377\377\377"),
        CASE("Nr\377\377\377\377"), /* far beyond what was put */
        CASE("Nr\0\0\1\0"),
        CASE("(q\0"), /* a mark in the memo */
        CASE("0000"), /* takes the first mark, then nothing */
        CASE("tttt"),
        CASE("\206"), /* a mark in a tuple */
        CASE("NQ"),   /* other persistent ids */
        CASE("X\7\0\0\0storageQ"),
        CASE("Ns"),
        CASE("NNN(NNN(s"),
        CASE("a"),
        CASE("((Nu"),
        CASE("R"),
        CASE("\223"),
        CASE("X\377\377\377\377"), /* beyond the end */
        CASE("\215\377\377\377\377\377\377\377\377"),
        CASE("\216\0\0\0\0\0\0\0\200"),
        CASE("\213\377\377\377\377"),
        CASE("ctorch"),
        CASE("ctorch\nFloatStorage"),
        CASE("N."), /* ends while a mark is open */
#undef CASE
    };
    pickle good = start();
    op_tensor(&good, "FloatStorage", "0", 1);
    size_t before = good.size;
    stop(&good);
    assert_string_equal(walk_pickle(&good), "0:f32/4*1");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pickle p = {.size = 0};
        op(&p, good.data, before);
        op(&p, cases[i].ops, cases[i].size);
        stop(&p);
        if (walk_pickle(&p)[0] != 0) fail_msg("case %zu is taken", i);
        p.size = before + cases[i].size;
        if (walk_pickle(&p)[0] != 0) fail_msg("case %zu is taken at the end", i);
    }
    /* Cut short anywhere, or with something behind. */
    for (size_t size = 0; size < good.size; size++) assert_string_equal(walk(good.data, size), "");
    OP(&good, ".");
    assert_string_equal(walk_pickle(&good), "");
    /* Protocols. */
    for (unsigned protocol = 0; protocol < 256; protocol++) {
        good.size = before;
        stop(&good);
        good.data[1] = (uint8_t)protocol;
        assert_string_equal(walk_pickle(&good), protocol >= 2 && protocol <= 5 ? "0:f32/4*1" : "");
    }
    assert_string_equal(walk((const uint8_t *)"\200\2N", 3), "");
    assert_string_equal(walk((const uint8_t *)"\200\2N.", 4), "");
    assert_string_equal(walk((const uint8_t *)"N.", 2), "");
}

/* Tuples that only resemble a storage: what is not one at all ends the walk, as an unknown persistent id.
 */
static void test_tuples(void **state)
{
    (void)state;
    static const char *const parts[][5] = {
        {"storage", "", "0", "cpu", "K\1"}, {"storage", NULL, "0", "cpu", "K\1"},
        {"Storage", "", "0", "cpu", "K\1"}, {"storage", "", "k", "cpu", "K\1"},
        {"storage", "", "0", "cpu", "N"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        pickle p = start();
        OP(&p, "(");
        op_text(&p, parts[i][0]);
        if (parts[i][1] != NULL)
            op_global(&p, "torch", "FloatStorage");
        else
            op_text(&p, "FloatStorage");
        op_text(&p, parts[i][2]);
        op_text(&p, parts[i][3]);
        op(&p, parts[i][4], strlen(parts[i][4]));
        OP(&p, "t");
        OP(&p, "Q");
        stop(&p);
        assert_string_equal(walk_pickle(&p), i == 0 ? "0:f32/4*1" : "");
    }
}

/* An object that contains itself: the memo holds no objects, so that nothing can go round. */
static void test_cycles(void **state)
{
    (void)state;
    pickle p = start();
    OP(&p, "]q\0h\0a}q\1(h\0h\1u(h\0h\1lq\2h\2a");
    op_tensor(&p, "FloatStorage", "0", 1);
    stop(&p);
    assert_string_equal(walk_pickle(&p), "0:f32/4*1");
}

/* ----------------------------------------------------------------------------------------------- limits */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* `count` times `unit`, between the ends of a pickle: time and memory that it took. */
static void assert_bounded(const char *unit, size_t unit_size, size_t count, const char *found)
{
    size_t size = 3 + unit_size * count + 2;
    uint8_t *data = malloc(size);
    assert_non_null(data);
    memcpy(data, "\200\2(", 3);
    for (size_t i = 0; i < count; i++) memcpy(data + 3 + i * unit_size, unit, unit_size);
    memcpy(data + size - 2, "t.", 2);
    memory_reset();
    double begin = seconds();
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, data, size, "x");
    tp_pickle pickle_;
    assert_int_equal(tp_pickle_read(&source, 0, size, &pickle_, NULL), TP_OK);
    double taken = seconds() - begin;
    assert_int_equal(pickle_.count != 0, found[0] != 0);
    tp_pickle_close(&pickle_);
    assert_int_equal(memory_in_use, 0);
    if (taken > 5) fail_msg("%.1f s for %zu bytes", taken, size);
    if (memory_peak > (size_t)128 << 20) fail_msg("%zu bytes of memory for %zu bytes", memory_peak, size);
    free(data);
}

#define BOUNDED(unit, count, found) assert_bounded(unit, sizeof(unit) - 1, count, found)

static void test_bounds(void **state)
{
    (void)state;
    BOUNDED("(", 8000000, "");
    BOUNDED("]", 8000000, "");
    BOUNDED("]]\206", 8000000, "");
    BOUNDED("N0", 8000000, "");
    BOUNDED("N0", 20000000, "");
    BOUNDED("N\2240", 3000000, "");
    BOUNDED("Nr\377\377\0\0000", 3000000, "");
    BOUNDED("X\1\0\0\0a0", 4000000, "");
    BOUNDED("ctorch\nfloat32\n0", 2000000, "");
    BOUNDED("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000NK\1tQ0", 1000000, "0");
    BOUNDED("(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000NK\1tQ0", 1100000, "");
}

/* One long string is passed over, not read. */
static size_t bytes_read;
static tp_status sparse_read(void *context, void *dst, size_t size, uint64_t offset, tp_error *error)
{
    (void)error;
    const pickle *ends = context; /* the first half, a hole of 2^40 bytes, the second half */
    const uint64_t hole = (uint64_t)1 << 40, half = 11;
    uint8_t *out = dst;
    bytes_read += size;
    for (size_t i = 0; i < size; i++) {
        uint64_t at = offset + i;
        out[i] = at < half ? ends->data[at] : at < half + hole ? 0 : ends->data[at - hole];
    }
    return TP_OK;
}

static void test_long_string(void **state)
{
    (void)state;
    pickle p = start();
    OP(&p, "\216");
    op(&p, &(uint64_t){(uint64_t)1 << 40}, 8);
    assert_int_equal(p.size, 12);
    memmove(p.data + 2, p.data + 3, 9); /* without the mark: eleven bytes before the hole */
    p.size = 11;
    OP(&p, "0(");
    op_storage(&p, "FloatStorage", "5", 1);
    stop(&p);
    tp_source source = {
        .read = sparse_read, .context = &p, .size = p.size + ((uint64_t)1 << 40), .name = "x"};
    tp_pickle found;
    bytes_read = 0;
    assert_int_equal(tp_pickle_read(&source, 0, source.size, &found, NULL), TP_OK);
    assert_int_equal(found.count, 1);
    assert_true(bytes_read < 1000000);
    tp_pickle_close(&found);
}

int run_pickle(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storage_types), cmocka_unit_test(test_untyped),
        cmocka_unit_test(test_several),       cmocka_unit_test(test_keys),
        cmocka_unit_test(test_opcodes),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_tuples),        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_bounds),        cmocka_unit_test(test_long_string),
    };
    return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
