#include "registry.h"

#include <lz4.h>

#include "codec/bytes.h"
#include "codec/hash.h"

const class_rule class_rules[TP_CLASS_COUNT] = {
    {.cls = TP_CLASS_BYTES},
    {.cls = TP_CLASS_BF16, .T = 16, .s = {9, 8, 10}, .element = 2, .rotated = true, .pairs = true},
    {.cls = TP_CLASS_F16, .T = 8, .low = 1, .s = {7, 6}, .element = 2, .rotated = true},
    {.cls = TP_CLASS_F32, .T = 16, .low = 2, .s = {9, 8, 10}, .element = 4, .rotated = true, .pairs = true},
    {.cls = TP_CLASS_F64, .T = 16, .low = 6, .s = {12, 11}, .element = 8, .rotated = true},
    {.cls = TP_CLASS_E4M3, .T = 8, .s = {6, 5}, .element = 1, .rotated = true, .wide_top = true},
    {.cls = TP_CLASS_E5M2, .T = 8, .s = {6, 5, 7}, .element = 1, .rotated = true, .wide_top = true},
    {.cls = TP_CLASS_I8, .T = 8, .s = {7, 6}, .element = 1, .wide_top = true},
    {.cls = TP_CLASS_I16, .element = 2},
    {.cls = TP_CLASS_I32, .element = 4},
    {.cls = TP_CLASS_I64, .element = 8},
};

size_t all_split_shapes(split_shape shapes[MAX_SPLIT_SHAPES])
{
    size_t n = 0;
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++)
        for (unsigned i = 0; i < 3; i++)
            for (unsigned c = 1; c <= 2; c++) {
                const unsigned s = class_rules[cls].s[i];
                if (!s || (c == 2 && !(class_rules[cls].pairs && s == 8))) continue;
                shapes[n++] = (split_shape){(tp_class)cls, s, c};
            }
    return n;
}

tp_shape kernel_shape(const split_shape *shape)
{
    const class_rule *rule = &class_rules[shape->cls];
    return (tp_shape){.T = (uint8_t)rule->T,
                      .R = (uint8_t)(rule->T - shape->s),
                      .low = (uint8_t)rule->low,
                      .c = (uint8_t)shape->c,
                      .rotated = rule->rotated};
}

ref_shape reference_shape(const split_shape *shape)
{
    const class_rule *rule = &class_rules[shape->cls];
    return (ref_shape){.K = 10,
                       .T = rule->T,
                       .R = rule->T - shape->s,
                       .low = rule->low,
                       .c = shape->c,
                       .rotated = rule->rotated};
}

/* ------------------------------------------------------------------------------------------- tables */

void make_table(rng *r, table_kind kind, unsigned entries, uint32_t alphabet, uint32_t scale,
                ref_table *table)
{
    uint32_t left = scale, F[256];
    if (entries > alphabet) entries = alphabet;
    for (unsigned i = 0; i < entries; i++) { /* every later entry needs at least 1 */
        const uint32_t later = entries - 1 - i;
        F[i] = later == 0                ? left
               : kind == TABLE_FLAT      ? left / (later + 1)
               : kind == TABLE_EXTREME   ? (i == 0 ? left - later : 1)
               : left / 2 > left - later ? left - later
                                         : left / 2;
        if (F[i] < 1) F[i] = 1;
        left -= F[i];
    }
    memset(table, 0, sizeof *table);
    table->entries = entries;
    for (unsigned i = 0; i < entries;
         i++) { /* distinct symbols, ascending, with a random one of the F each */
        uint32_t symbol;
        bool taken;
        do {
            symbol = rng_below(r, alphabet);
            taken = false;
            for (unsigned k = 0; k < i; k++) taken |= table->symbol[k] == symbol;
        } while (taken);
        unsigned at = i;
        for (; at && table->symbol[at - 1] > symbol; at--) table->symbol[at] = table->symbol[at - 1];
        table->symbol[at] = (uint16_t)symbol;
    }
    for (unsigned i = entries; i-- > 0;) {
        const unsigned k = rng_below(r, i + 1);
        table->F[i] = (uint16_t)F[k];
        F[k] = F[i];
    }
}

unsigned draw_symbol(rng *r, const ref_table *table, uint32_t scale)
{
    uint32_t slot = rng_below(r, scale);
    unsigned i = 0;
    while (slot >= table->F[i]) slot -= table->F[i++];
    return table->symbol[i];
}

void table_to_record(const ref_table *table, tp_symbol_record *record)
{
    assert_in_range(table->entries, 2, TP_MAX_SYMBOLS);
    record->count = table->entries;
    for (unsigned i = 0; i < table->entries; i++) {
        record->F[i] = table->F[i];
        record->symbol[i] = table->symbol[i];
    }
}

void table_to_wide(const ref_table *table, uint16_t F[256])
{
    memset(F, 0, 256 * sizeof *F);
    for (unsigned i = 0; i < table->entries; i++) F[table->symbol[i]] = table->F[i];
}

void make_elements(rng *r, const ref_shape *shape, const ref_table *table, uint32_t rare, uint8_t *dst,
                   uint32_t n)
{
    const unsigned top_bytes = shape->T / 8, bits = shape->T - shape->R;
    uint32_t symbol = 0;
    for (uint32_t i = 0; i < n; i++, dst += top_bytes + shape->low) {
        if (i % shape->c == 0)
            symbol = rare && rng_below(r, rare) == 0 ? rng_below(r, 1u << bits * shape->c)
                                                     : draw_symbol(r, table, 1u << shape->K);
        else
            symbol >>= bits;
        const uint32_t top = ref_top(shape, symbol & ((1u << bits) - 1), rng_below(r, 1u << shape->R));
        rng_fill(r, dst, shape->low);
        for (unsigned k = 0; k < top_bytes; k++) dst[shape->low + k] = (uint8_t)(top >> 8 * k);
    }
}

/* -------------------------------------------------------------------------------------------- frames */

typedef struct builder {
    const frame_plan *plan;
    const tp_kernels *kernels;
    rng r;
    ref_shape shape; /* split */
    unsigned element, parts;
    ref_table symbols[PLAN_TABLES], wide[PLAN_TABLES];
    unsigned symbol_tables, wide_tables;
    uint8_t *payload;
    size_t payload_size, capacity;
    uint8_t *descriptors;
    uint32_t descriptor_count;
    unsigned method; /* bit by mode that occurs */
    uint8_t *scratch;
    uint8_t selector[128]; /* of the chunk's groups */
} builder;

/* Bytes of one kind of part: n units of `width` bytes. */
static void part_data(builder *b, uint8_t mode, unsigned table, unsigned width, uint8_t *dst, uint32_t n)
{
    switch (mode) {
    case TP_MODE_CONSTANT:
        if (n) rng_fill(&b->r, dst, width);
        for (uint32_t i = 1; i < n; i++) memcpy(dst + (size_t)i * width, dst, width);
        break;
    case TP_MODE_LZ4:
        for (size_t i = 0; i < (size_t)n * width; i++)
            dst[i] = (uint8_t)(i < 37                  ? rng_next(&b->r)
                               : rng_below(&b->r, 200) ? dst[i - 37]
                                                       : rng_next(&b->r));
        break;
    case TP_MODE_W32:
    case TP_MODE_PAIRS: {
        ref_shape shape = b->shape;
        if (b->plan->low_coded) shape.low = 0;
        for (uint32_t g = 0; g * 1024 < n; g++) {
            const uint32_t left = n - g * 1024;
            b->selector[g] = (uint8_t)rng_below(&b->r, 1u << b->plan->selector_bits);
            make_elements(&b->r, &shape, &b->symbols[table + b->selector[g]], b->plan->rare,
                          dst + (size_t)g * 1024 * width, left < 1024 ? left : 1024);
        }
        break;
    }
    case TP_MODE_WIDE:
        for (uint32_t i = 0; i < n; i++) dst[i] = (uint8_t)draw_symbol(&b->r, &b->wide[table], 4096);
        break;
    default:
        rng_fill(&b->r, dst, (size_t)n * width);
    }
}

static void put_part(builder *b, uint8_t mode, unsigned table, const uint8_t *data, const uint8_t *elements,
                     size_t bytes, uint32_t n, uint64_t hash)
{
    uint8_t *const at = b->payload + b->payload_size, *const d = b->descriptors +
                                                                 32 * (size_t)b->descriptor_count++;
    uint64_t offset = b->payload_size;
    size_t size = 0;
    uint32_t nw = 0, nx = 0;
    memset(d, 0, 32);
    switch (mode) {
    case TP_MODE_RAW:
        memcpy(at, data, bytes);
        size = bytes;
        break;
    case TP_MODE_CONSTANT:
        offset = 0;
        memcpy(&offset, data, bytes / n);
        break;
    case TP_MODE_LZ4: {
        const int made = LZ4_compress_default((const char *)data, (char *)at, (int)bytes, (int)bytes - 1);
        if (made <= 0) fail_msg("%s: lz4 does not shrink its part", b->plan->name);
        size = (size_t)made;
        nw = (uint32_t)size;
        break;
    }
    case TP_MODE_WIDE: {
        tp_wide_encode_table encode;
        uint16_t F[256];
        table_to_wide(&b->wide[table], F);
        tp_wide_encode_table_init(F, &encode);
        size =
            b->kernels->wide_encode(data, n, &encode, at, b->capacity - b->payload_size, b->scratch, &nw);
        assert_int_not_equal(size, 0);
        d[20] = (uint8_t)table;
        break;
    }
    default: {
        static tp_w32_encode_table encode[4];
        const split_shape split = {b->plan->cls, b->plan->s, b->plan->c};
        const tp_shape shape = kernel_shape(&split);
        for (unsigned t = 0; t < 1u << b->plan->selector_bits; t++) {
            tp_symbol_record record;
            table_to_record(&b->symbols[table + t], &record);
            tp_w32_encode_table_init(&record, 1u << b->plan->s * b->plan->c, &encode[t]);
        }
        tp_w32_encode_job job = {.src = elements,
                                 .n = n,
                                 .with_low = !b->plan->low_coded,
                                 .table = encode,
                                 .selectors = b->plan->selector_bits ? b->selector : NULL,
                                 .selector_bits = (uint8_t)b->plan->selector_bits,
                                 .payload = at,
                                 .capacity = b->capacity - b->payload_size,
                                 .scratch = b->scratch};
        b->kernels->w32_encode(&shape, &job);
        assert_int_not_equal(job.size, 0);
        size = job.size;
        nw = job.nw;
        nx = job.nx;
        d[20] = (uint8_t)table;
    }
    }
    const size_t padded = (size_t)tp_align(size, 128);
    memset(at + size, 0, padded - size);
    b->payload_size += padded;
    tp_store64(d, offset);
    tp_store32(d + 8, nw);
    tp_store32(d + 12, nx);
    tp_store32(d + 16, n);
    d[21] = mode;
    tp_store64(d + 24, hash);
    b->method |= 1u << mode;
}

static unsigned method_of(const frame_plan *plan, unsigned modes)
{
    if (modes & (1u << TP_MODE_W32 | 1u << TP_MODE_PAIRS | 1u << TP_MODE_WIDE)) return 5;
    if (plan->codec == TP_FRAME_LZ4 || (plan->codec == TP_FRAME_SPLIT && modes & 1u << TP_MODE_LZ4))
        return 3;
    if (modes & 1u << TP_MODE_LZ4) return 4;
    return modes & 1u << TP_MODE_CONSTANT ? 2 : 1;
}

static unsigned table_of(const frame_plan *plan, uint8_t mode, uint32_t chunk, unsigned part)
{
    const bool symbols = mode == TP_MODE_W32 || mode == TP_MODE_PAIRS;
    const unsigned choices = symbols ? plan->tables + 1 - (1u << plan->selector_bits) : plan->tables;
    return (chunk + part) % (choices ? choices : 1);
}

/* One chunk: raw bytes to raw, parts to the payload; returns its hash. */
static uint64_t build_chunk(builder *b, uint32_t chunk, uint8_t *raw, size_t bytes)
{
    const frame_plan *plan = b->plan;
    uint8_t *part[8] = {NULL};
    uint32_t n[8];
    size_t size[8];
    for (unsigned k = 0; k < b->parts; k++) {
        const uint8_t mode = plan->mode[chunk][k];
        unsigned width = 1;
        if (plan->codec == TP_FRAME_SPLIT) {
            n[k] = (uint32_t)(bytes / b->element);
            if (k == 0) width = plan->low_coded ? b->shape.T / 8 : b->element;
        } else {
            n[k] = (uint32_t)(plan->joined ? bytes : (bytes + b->element - 1 - k) / b->element);
        }
        size[k] = (size_t)n[k] * width;
        part[k] = exact(size[k]);
        part_data(b, mode, table_of(plan, mode, chunk, k), width, part[k], n[k]);
    }
    if (plan->codec == TP_FRAME_PLANES) {
        const uint8_t *joined = part[0];
        for (unsigned k = 0; k < b->element; k++) {
            const uint8_t *plane = plan->joined ? joined : part[k];
            for (size_t i = k; i < bytes; i += b->element) raw[i] = *plane++;
            if (plan->joined) joined = plane;
        }
    } else if (plan->low_coded) {
        const unsigned top = b->shape.T / 8;
        for (size_t i = 0; i < n[0]; i++) {
            for (unsigned k = 0; k < b->shape.low; k++) raw[i * b->element + k] = part[1 + k][i];
            memcpy(raw + i * b->element + b->shape.low, part[0] + i * top, top);
        }
    } else {
        memcpy(raw, part[0], bytes);
    }
    const uint64_t hash = tp_hash64(raw, bytes);
    for (unsigned k = 0; k < b->parts; k++) {
        const uint8_t mode = n[k] ? plan->mode[chunk][k] : TP_MODE_RAW;
        put_part(b, mode, table_of(plan, mode, chunk, k), part[k], raw, size[k], n[k], k ? 0 : hash);
        free(part[k]);
    }
    return hash;
}

static void build_tables(builder *b)
{
    const frame_plan *plan = b->plan;
    bool symbols = false, wide = false;
    for (uint32_t i = 0; i < plan->chunks; i++)
        for (unsigned k = 0; k < b->parts; k++) {
            symbols |= plan->mode[i][k] == TP_MODE_W32 || plan->mode[i][k] == TP_MODE_PAIRS;
            wide |= plan->mode[i][k] == TP_MODE_WIDE;
        }
    for (unsigned i = 0; i < plan->tables && symbols; i++)
        make_table(&b->r, plan->kind, plan->entries, 1u << plan->s * plan->c, 1024,
                   &b->symbols[b->symbol_tables++]);
    for (unsigned i = 0; i < plan->tables && wide; i++)
        make_table(&b->r, plan->kind, 12 + i, 256, 4096, &b->wide[b->wide_tables++]);
}

void build_frame(const frame_plan *plan, const tp_kernels *kernels, built_frame *built)
{
    builder b = {.plan = plan, .kernels = kernels, .r = rng_make(plan->seed)};
    const class_rule *rule = &class_rules[plan->cls];
    const split_shape split = {plan->cls, plan->s, plan->c};
    const bool chunked = plan->codec == TP_FRAME_SPLIT || plan->codec == TP_FRAME_PLANES;
    size_t chunk = SIZE_MAX;
    b.element = rule->element ? rule->element : 1;
    b.parts = 1;
    if (chunked) chunk = ((size_t)1 << plan->chunk_log2) * b.element;
    if (plan->codec == TP_FRAME_SPLIT) {
        b.shape = reference_shape(&split);
        if (plan->low_coded) b.parts = 1 + rule->low;
    } else if (plan->codec == TP_FRAME_PLANES && !plan->joined) {
        b.parts = b.element;
    }
    const size_t last = (size_t)plan->last * (plan->codec == TP_FRAME_SPLIT ? b.element : 1);
    built->raw_size = last + (chunked ? (plan->chunks - 1) * chunk : 0);
    built->raw = exact(built->raw_size);
    b.capacity = built->raw_size * 8 + (size_t)plan->chunks * b.parts * 1024 + 8192;
    b.payload = exact(b.capacity);
    b.descriptors = exact((size_t)plan->chunks * b.parts * 32);
    b.scratch = aligned_alloc(64, (TP_ENCODE_SCRATCH + 63) / 64 * 64);
    assert_non_null(b.scratch);

    uint64_t hashes[1 + 64];
    uint32_t count = 0;
    hashes[count++] = built->raw_size;
    if (chunked) {
        build_tables(&b);
        for (uint32_t i = 0; i < plan->chunks; i++) {
            const size_t at = i * chunk, bytes = i + 1 < plan->chunks ? chunk : last;
            hashes[count++] = build_chunk(&b, i, built->raw + at, bytes);
        }
    } else {
        part_data(&b, plan->codec == TP_FRAME_LZ4 ? TP_MODE_LZ4 : TP_MODE_RAW, 0, 1, built->raw,
                  (uint32_t)built->raw_size);
        put_part(&b, plan->codec == TP_FRAME_LZ4 ? TP_MODE_LZ4 : TP_MODE_RAW, 0, built->raw, NULL,
                 built->raw_size, (uint32_t)built->raw_size, 0);
        if (plan->codec == TP_FRAME_LZ4) b.payload_size = tp_load32(b.descriptors + 8);
        b.descriptor_count = 0;
        if (plan->codec == TP_FRAME_RAW) b.payload_size = built->raw_size;
        for (size_t at = 0; at < built->raw_size; at += 262144) {
            const size_t left = built->raw_size - at;
            hashes[count++] = tp_hash64(built->raw + at, left < 262144 ? left : 262144);
        }
    }

    const size_t tables = 256u * plan->c * b.symbol_tables + 512u * b.wide_tables;
    const size_t payload_at = (size_t)tp_align(128 + tables + 32u * (size_t)b.descriptor_count, 128);
    built->size = payload_at + (size_t)tp_align(b.payload_size, 128);
    uint8_t *f = built->frame = exact(built->size);
    memset(f, 0, built->size);
    memcpy(f, "TPFR", 4);
    f[4] = (uint8_t)plan->codec;
    f[5] = (uint8_t)plan->cls;
    f[6] = (uint8_t)plan->s;
    f[7] = (uint8_t)plan->c;
    f[8] = (uint8_t)(plan->low_coded | plan->joined << 1);
    f[9] = (uint8_t)(chunked ? plan->chunk_log2 : 0);
    f[10] = (uint8_t)b.symbol_tables;
    f[11] = (uint8_t)b.wide_tables;
    f[12] = (uint8_t)(plan->codec == TP_FRAME_SPLIT ? 1u << plan->selector_bits : 0);
    f[13] = (uint8_t)method_of(plan, b.method);
    tp_store32(f + 16, (uint32_t)built->raw_size);
    tp_store32(f + 20, (uint32_t)built->size);
    tp_store32(f + 24, b.descriptor_count);
    tp_store32(f + 28, (uint32_t)b.payload_size);
    for (unsigned i = 0; i < b.symbol_tables; i++)
        for (unsigned k = 0; k < b.symbols[i].entries; k++) {
            tp_store16(f + 128 + 256u * plan->c * i + 4 * k, b.symbols[i].F[k]);
            tp_store16(f + 128 + 256u * plan->c * i + 4 * k + 2, b.symbols[i].symbol[k]);
        }
    for (unsigned i = 0; i < b.wide_tables; i++)
        for (unsigned k = 0; k < b.wide[i].entries; k++)
            tp_store16(f + 128 + 256u * plan->c * b.symbol_tables + 512u * i + 2u * b.wide[i].symbol[k],
                       b.wide[i].F[k]);
    memcpy(f + 128 + tables, b.descriptors, 32 * (size_t)b.descriptor_count);
    memcpy(f + payload_at, b.payload, b.payload_size);
    uint64_t raw_hash[2];
    tp_hash128(hashes, count * sizeof *hashes, raw_hash);
    tp_store64(f + 112, raw_hash[0]);
    tp_store64(f + 120, raw_hash[1]);
    frame_rehash(f, built->size);

    free(b.payload);
    free(b.descriptors);
    free(b.scratch);
    if (built->size > tp_encode_bound(built->raw_size))
        fail_msg("%s: the plan makes %zu bytes of %zu", plan->name, built->size, built->raw_size);
}

void built_frame_free(built_frame *built)
{
    free(built->raw);
    free(built->frame);
    memset(built, 0, sizeof *built);
}

/* --------------------------------------------------------------------------------------------- plans */

static const char *const mode_names[] = {"raw", "constant", "w32", "pairs", "wide", "lz4"};

static void name_plan(frame_plan *p, const char *what)
{
    static const char *const codecs[] = {"raw", "lz4", "split", "planes"};
    snprintf(p->name, sizeof p->name, "%s %s s%u c%u k%u%s%s, chunks of 2^%u, %s", codecs[p->codec],
             tp_class_name(p->cls), p->s, p->c, 1u << p->selector_bits, p->low_coded ? " low_coded" : "",
             p->joined ? " joined" : "", p->chunk_log2, what);
}

typedef struct plan_sink {
    void (*fn)(const frame_plan *plan, void *context);
    void *context;
    uint64_t seed;
} plan_sink;

static void give(plan_sink *sink, frame_plan *plan, const char *what)
{
    plan->seed = ++sink->seed;
    name_plan(plan, what);
    sink->fn(plan, sink->context);
}

/* Chunks of coded parts pay for those that are not. */
static frame_plan split_plan(const split_shape *shape, bool low_coded, unsigned chunk_log2, uint32_t chunks)
{
    frame_plan p = {.codec = TP_FRAME_SPLIT,
                    .cls = shape->cls,
                    .s = shape->s,
                    .c = shape->c,
                    .low_coded = low_coded,
                    .chunk_log2 = chunk_log2,
                    .chunks = chunks,
                    .tables = 1,
                    .entries = 20,
                    .rare = 150};
    const uint8_t coded = shape->c == 2 ? TP_MODE_PAIRS : TP_MODE_W32;
    for (uint32_t i = 0; i < chunks; i++) {
        p.mode[i][0] = coded;
        for (unsigned k = 0; k < class_rules[shape->cls].low; k++)
            p.mode[i][1 + k] = low_coded && k % 2 == 0 ? TP_MODE_CONSTANT : TP_MODE_RAW;
    }
    p.last = 777;
    return p;
}

static void split_plans(plan_sink *sink, const split_shape *shape)
{
    const class_rule *rule = &class_rules[shape->cls];
    const uint8_t coded = shape->c == 2 ? TP_MODE_PAIRS : TP_MODE_W32;
    static const uint8_t others[] = {TP_MODE_RAW, TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_WIDE};
    frame_plan p = split_plan(shape, false, 10, 7);
    give(sink, &p, "coded");
    for (unsigned i = 0; i < 4; i++) {
        if (others[i] == TP_MODE_WIDE && !rule->wide_top) continue;
        p = split_plan(shape, false, 10, 9);
        p.mode[1][0] = p.mode[5][0] = p.mode[8][0] = others[i];
        give(sink, &p, mode_names[others[i]]);
    }
    /* Sharp edges of lengths, tables and exceptions. */
    for (unsigned i = 0; i < 3; i++) {
        static const uint32_t last[] = {1, 33, 1023};
        p = split_plan(shape, false, 10, 8);
        p.last = last[i];
        p.kind = (table_kind)i;
        p.entries = i == 0 ? 64 * shape->c : i == 1 ? 3 : 33;
        p.rare = i == 0 ? 0 : 200;
        p.tables = i == 2 ? 2 : 1;
        p.mode[1][0] = TP_MODE_CONSTANT; /* pays for a last chunk padded to a group */
        give(sink, &p, "edges");
    }
    for (unsigned bits = 1; bits <= 2; bits++) /* selectors */
        for (unsigned low_coded = 0; low_coded <= (rule->low ? 1u : 0u); low_coded++) {
            p = split_plan(shape, low_coded, 12, 3);
            p.selector_bits = bits;
            p.tables = (1u << bits) + 1;
            p.last = 1024 * bits + 77;
            p.mode[1][0] = low_coded ? TP_MODE_RAW : TP_MODE_CONSTANT;
            give(sink, &p, "selectors");
        }
    if (!rule->low) return;
    /* Low planes coded: every mode of tops with every mode of low planes. */
    for (unsigned top = 0; top < 3; top++) {
        const uint8_t top_mode = top == 2 ? coded : others[top];
        p = split_plan(shape, true, 10, 9);
        for (uint32_t chunk = 0; chunk < p.chunks; chunk++)
            for (unsigned k = 0; k < rule->low; k++)
                if (chunk % 2 == 0 || k == chunk / 2 % rule->low)
                    p.mode[chunk][1 + k] = others[(chunk / 2 + k) % 4];
        for (uint32_t chunk = 0; chunk < p.chunks; chunk++)
            if (top == 2 || chunk % 2 == 0) p.mode[chunk][0] = top_mode;
        p.tables = 2;
        give(sink, &p,
             top == 2 ? "low planes under coded tops"
             : top    ? "low planes under constant tops"
                      : "low planes under raw tops");
    }
}

static void planes_plans(plan_sink *sink, tp_class cls)
{
    const class_rule *rule = &class_rules[cls];
    static const uint8_t modes[] = {TP_MODE_WIDE, TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_RAW};
    for (unsigned variant = 0; variant < 6; variant++) {
        frame_plan p = {.codec = TP_FRAME_PLANES, .cls = cls, .chunk_log2 = 10, .chunks = 9, .tables = 2};
        /* last chunks: whole, a few bytes short, one byte */
        p.last = variant % 3 == 0   ? 1024 * rule->element
                 : variant % 3 == 1 ? 1000 * rule->element + rule->element / 2
                                    : 1;
        if (!p.last) p.last = 1;
        for (uint32_t chunk = 0; chunk < p.chunks; chunk++)
            for (unsigned k = 0; k < rule->element; k++)
                p.mode[chunk][k] = variant < 3    ? modes[(chunk + k) % 4]
                                   : variant == 3 ? TP_MODE_CONSTANT
                                                  : modes[1 + (chunk + k) % 3];
        give(sink, &p, variant < 3 ? "all modes" : variant == 3 ? "constant" : "no streams");

        p.joined = true;
        for (uint32_t chunk = 0; chunk < p.chunks; chunk++)
            p.mode[chunk][0] =
                chunk % 3 == 1 || (chunk == p.chunks - 1 && p.last < 200) ? TP_MODE_RAW : TP_MODE_LZ4;
        if (variant == 3)
            for (uint32_t chunk = 0; chunk < p.chunks; chunk++) p.mode[chunk][0] = TP_MODE_LZ4;
        give(sink, &p, "joined");
    }
}

void each_plan(void (*fn)(const frame_plan *plan, void *context), void *context)
{
    plan_sink sink = {fn, context, 1000};
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++) {
        frame_plan p = {.codec = TP_FRAME_RAW, .cls = (tp_class)cls, .chunks = 1, .last = 1500};
        give(&sink, &p, "raw");
        p.codec = TP_FRAME_LZ4;
        p.last = 3000;
        give(&sink, &p, "lz4");
        if (cls != TP_CLASS_BYTES) planes_plans(&sink, (tp_class)cls);
    }
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_split_shapes(shapes);
    for (size_t i = 0; i < n; i++) split_plans(&sink, &shapes[i]);
}

void each_chunk_size_plan(void (*fn)(const frame_plan *plan, void *context), void *context)
{
    plan_sink sink = {fn, context, 5000};
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_split_shapes(shapes);
    for (unsigned log2 = 10; log2 <= 17; log2++) {
        for (size_t i = 0; i < n; i++)
            for (unsigned low_coded = 0; low_coded <= (class_rules[shapes[i].cls].low ? 1 : 0);
                 low_coded++) {
                /* many tables where chunks are small, full alphabets, last chunks longer than a group */
                const uint32_t chunks = log2 <= 12 ? PLAN_CHUNKS : 2;
                frame_plan p = split_plan(&shapes[i], low_coded, log2, chunks);
                p.tables = log2 == 12 ? 16 : 4;
                p.selector_bits = (log2 + (unsigned)i) % 3;
                p.entries = log2 % 2 ? 64 * shapes[i].c : 32;
                p.last = log2 == 10 ? 1000 : (1u << log2) - (log2 % 3 == 0 ? 0 : 1000 - log2);
                give(&sink, &p, "chunk size");
            }
        for (int cls = TP_CLASS_BF16; cls < TP_CLASS_COUNT; cls++) {
            frame_plan p = {.codec = TP_FRAME_PLANES,
                            .cls = (tp_class)cls,
                            .chunk_log2 = log2,
                            .chunks = 2,
                            .tables = 1};
            p.last = (1u << log2) * class_rules[cls].element - (log2 % 3 ? 1 : 0);
            for (uint32_t chunk = 0; chunk < 2; chunk++)
                for (unsigned k = 0; k < class_rules[cls].element; k++)
                    p.mode[chunk][k] = (chunk + k) % 2 ? TP_MODE_LZ4 : TP_MODE_WIDE;
            give(&sink, &p, "chunk size");
            p.joined = true;
            p.mode[0][0] = p.mode[1][0] = TP_MODE_LZ4;
            give(&sink, &p, "chunk size");
        }
    }
}

void each_coverage_line(void (*fn)(const char *line, void *context), void *context)
{
    char line[100];
#define LINE(...)                                                                                          \
    do {                                                                                                   \
        snprintf(line, sizeof line, __VA_ARGS__);                                                          \
        fn(line, context);                                                                                 \
    } while (0)
    static const uint8_t plane_modes[] = {TP_MODE_RAW, TP_MODE_CONSTANT, TP_MODE_LZ4, TP_MODE_WIDE};
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++) {
        const char *name = tp_class_name((tp_class)cls);
        LINE("raw %s raw s0 c0 k0 plain top", name);
        LINE("lz4 %s lz4 s0 c0 k0 plain top", name);
        if (cls == TP_CLASS_BF16) LINE("df11 %s df11 s0 c1 k0 plain top", name);
        if (cls == TP_CLASS_BYTES) continue;
        for (unsigned i = 0; i < 4; i++)
            LINE("planes %s %s s0 c0 k0 plain top", name, mode_names[plane_modes[i]]);
        LINE("planes %s raw s0 c0 k0 joined top", name);
        LINE("planes %s lz4 s0 c0 k0 joined top", name);
    }
    split_shape shapes[MAX_SPLIT_SHAPES];
    const size_t n = all_split_shapes(shapes);
    for (size_t i = 0; i < n; i++) {
        const split_shape *shape = &shapes[i];
        const class_rule *rule = &class_rules[shape->cls];
        const char *name = tp_class_name(shape->cls);
        for (unsigned mode = 0; mode < 6; mode++) {
            const bool stream = mode == (shape->c == 2 ? TP_MODE_PAIRS : TP_MODE_W32);
            const bool any = mode == TP_MODE_RAW || mode == TP_MODE_CONSTANT;
            const char *text = mode_names[mode];
            for (unsigned k = 1; k <= (stream ? 4u : 1u); k *= 2) {
                if (any || stream || mode == TP_MODE_LZ4 || (mode == TP_MODE_WIDE && rule->wide_top))
                    LINE("split %s %s s%u c%u k%u plain top", name, text, shape->s, shape->c, k);
                if (rule->low && (any || stream))
                    LINE("split %s %s s%u c%u k%u low_coded top", name, text, shape->s, shape->c, k);
            }
            if (rule->low && (any || mode == TP_MODE_LZ4 || mode == TP_MODE_WIDE))
                LINE("split %s %s s%u c%u k1 low_coded low", name, text, shape->s, shape->c);
        }
    }
#undef LINE
}
