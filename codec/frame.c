#include "codec/frame.h"

#include "codec/bytes.h"
#include "codec/class.h"
#include "codec/df11_frame.h"
#include "codec/hash.h"

static const char magic[4] = {'T', 'P', 'F', 'R'};

/* False only where a hash that is compared differs; the fuzzing build passes over that. */
static bool same_hash(const uint64_t *a, const uint64_t *b, size_t words)
{
#ifdef TP_IGNORE_HASHES
    (void)a, (void)b, (void)words;
    return true;
#else
    return memcmp(a, b, words * sizeof *a) == 0;
#endif
}

static bool all_zero(const uint8_t *p, size_t size)
{
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++) any |= p[i];
    return any == 0;
}

static void load_hash(const uint8_t *p, uint64_t hash[2])
{
    hash[0] = tp_load64(p);
    hash[1] = tp_load64(p + 8);
}

/* XXH3-128 of the frame with the place of the hash itself zero. */
static void stored_hash(const uint8_t *frame, size_t size, uint64_t hash[2])
{
    static const uint8_t zeros[16];
    tp_hasher hasher;
    tp_hasher_init(&hasher);
    tp_hasher_add(&hasher, frame, 96);
    tp_hasher_add(&hasher, zeros, 16);
    tp_hasher_add(&hasher, frame + 112, size - 112);
    tp_hasher_end(&hasher, hash);
}

void tp_descriptor_load(const tp_frame_view *view, uint32_t index, tp_descriptor *d)
{
    const uint8_t *p = view->descriptors + (size_t)index * TP_DESCRIPTOR_SIZE;
    d->offset = tp_load64(p);
    d->nw = tp_load32(p + 8);
    d->nx = tp_load32(p + 12);
    d->n = tp_load32(p + 16);
    d->table = p[20];
    d->mode = p[21];
    d->hash = tp_load64(p + 24);
}

size_t tp_frame_chunk(const tp_frame_view *view, uint32_t index, size_t *start)
{
    const size_t length = view->chunks ? ((size_t)1 << view->chunk_log2) * view->group : TP_RAW_CHUNK;
    *start = index * length;
    const size_t left = view->info.raw_size - *start;
    return left < length ? left : length;
}

tp_status tp_frame_peek(const void *header, tp_frame_info *info, tp_error *error)
{
    const uint8_t *h = header;
    if (memcmp(h, magic, 4) != 0) return tp_error_set(error, TP_CORRUPT, "no frame here (magic)");
    info->codec = h[4];
    info->cls = h[5];
    info->symbol_bits = h[6];
    info->elements_per_symbol = h[7];
    info->low_coded = h[8] & 1;
    info->joined = h[8] >> 1 & 1;
    info->method = h[13];
    info->raw_size = tp_load32(h + 16);
    info->stored_size = tp_load32(h + 20);
    load_hash(h + 96, info->stored_hash);
    load_hash(h + 112, info->raw_hash);
    if (info->raw_size < 1 || info->raw_size > TP_FRAME_MAX_RAW)
        return tp_error_set(error, TP_CORRUPT, "frame: raw size %u is not in 1..%zu", info->raw_size,
                            TP_FRAME_MAX_RAW);
    if (info->stored_size % 128 || info->stored_size < TP_FRAME_MIN_STORED ||
        info->stored_size > TP_FRAME_HEADER + tp_align(info->raw_size, 128))
        return tp_error_set(error, TP_CORRUPT, "frame: stored size %u is not possible for raw size %u",
                            info->stored_size, info->raw_size);
    return TP_OK;
}

/* ---------------------------------------------------------------------------------------- validation */

#define CHECK(condition, ...)                                                                              \
    do {                                                                                                   \
        if (!(condition)) return tp_error_set(error, TP_CORRUPT, "frame: " __VA_ARGS__);                   \
    } while (0)

/* 2..limit entries, ascending symbols below 2^bits, frequencies 1..1023 that sum to 1024, zeros after. */
static tp_status check_symbol_table(const uint8_t *record, uint32_t limit, unsigned bits, unsigned number,
                                    tp_error *error)
{
    uint32_t sum = 0, n = 0, previous = 0;
    for (; n < limit; n++) {
        const uint32_t F = tp_load16(record + 4 * n), symbol = tp_load16(record + 4 * n + 2);
        if (F == 0) break;
        CHECK(F <= 1023, "symbol table %u: frequency %u is above 1023", number, F);
        CHECK(symbol >> bits == 0, "symbol table %u: symbol %u has more than %u bits", number, symbol,
              bits);
        CHECK(n == 0 || symbol > previous, "symbol table %u: symbols do not ascend", number);
        previous = symbol;
        sum += F;
    }
    CHECK(n >= 2, "symbol table %u: fewer than two entries", number);
    CHECK(sum == 1024, "symbol table %u: frequencies sum to %u, not 1024", number, sum);
    CHECK(all_zero(record + 4 * (size_t)n, 4 * (size_t)(limit - n)),
          "symbol table %u: data after its last entry", number);
    return TP_OK;
}

static tp_status check_wide_table(const uint8_t *record, unsigned number, tp_error *error)
{
    uint32_t sum = 0, used = 0;
    for (uint32_t i = 0; i < 256; i++) {
        const uint32_t F = tp_load16(record + 2 * i);
        CHECK(F <= 4095, "wide table %u: frequency %u is above 4095", number, F);
        sum += F;
        used += F != 0;
    }
    CHECK(used >= 2, "wide table %u: fewer than two symbols", number);
    CHECK(sum == 4096, "wide table %u: frequencies sum to %u, not 4096", number, sum);
    return TP_OK;
}

/* Exceptions: ascending positions below the number of symbols, symbols of the right width. */
static tp_status check_exceptions(const tp_frame_view *view, const uint8_t *list, const tp_descriptor *d,
                                  uint32_t index, tp_error *error)
{
    const unsigned position_bits = view->shape.c == 2 ? 16 : 18;
    const unsigned width = (unsigned)(view->shape.T - view->shape.R) * view->shape.c;
    const uint32_t positions = (d->n + view->shape.c - 1) / view->shape.c;
    uint32_t previous = 0;
    for (uint32_t i = 0; i < d->nx; i++) {
        const uint32_t entry = tp_load32(list + 4 * (size_t)i);
        const uint32_t position = entry & ((1u << position_bits) - 1), symbol = entry >> position_bits;
        CHECK(position < positions, "descriptor %u: exception %u lies beyond the chunk", index, i);
        CHECK(i == 0 || position > previous, "descriptor %u: exceptions do not ascend", index);
        CHECK(symbol >> width == 0, "descriptor %u: exception %u has a symbol of more than %u bits", index,
              i, width);
        previous = position;
    }
    return TP_OK;
}

/* The bytes of a part, of which `used` come before its padding. */
static tp_status check_part(const tp_frame_view *view, const tp_descriptor *d, uint32_t index,
                            const uint8_t *part, uint64_t used, tp_error *error)
{
    CHECK(all_zero(part + used, tp_align(used, 128) - used), "descriptor %u: padding is not zero", index);
    if (d->mode != TP_MODE_W32 && d->mode != TP_MODE_PAIRS) return TP_OK;
    const uint8_t *words = part + tp_stream_words_at(&view->shape, d->n, !view->info.low_coded);
    if (d->nw & 1)
        CHECK(all_zero(words + 2 * (size_t)d->nw, 2), "descriptor %u: padding is not zero", index);
    const uint8_t *selectors = words + tp_align(2 * (uint64_t)d->nw, 4);
    const size_t selector_bytes = tp_selector_bytes(d->n, view->selector_bits);
    const size_t bits = (size_t)((d->n + TP_GROUP - 1) / TP_GROUP) * view->selector_bits;
    /* Every selector is valid: all 2^bits tables exist. */
    for (size_t b = bits; b < 8 * selector_bytes; b++)
        CHECK(!(selectors[b / 8] >> (b & 7) & 1), "descriptor %u: padding is not zero", index);
    return check_exceptions(view, selectors + selector_bytes, d, index, error);
}

/*
 * One descriptor. bytes: what it stands for, decoded; whole: it stands for whole elements or tops, else for
 * a byte plane. *offset is where its part must start and is moved to where the next one does.
 */
static tp_status check_descriptor(const tp_frame_view *view, uint32_t index, uint32_t n, size_t bytes,
                                  bool whole, uint64_t *offset, tp_method *method, tp_error *error)
{
    tp_descriptor d;
    tp_descriptor_load(view, index, &d);
    const uint8_t *record = view->descriptors + (size_t)index * TP_DESCRIPTOR_SIZE;
    const bool split = view->info.codec == TP_FRAME_SPLIT, first = index % view->parts == 0;
    const bool low_coded = view->info.low_coded;

    CHECK(tp_load16(record + 22) == 0, "descriptor %u: reserved bytes are set", index);
    CHECK(d.n == n, "descriptor %u: has %u elements where %u belong", index, d.n, n);
    CHECK(first || d.hash == 0, "descriptor %u: a hash where none belongs", index);
    if (d.mode != TP_MODE_W32 && d.mode != TP_MODE_PAIRS) {
        CHECK(d.nx == 0, "descriptor %u: exceptions in mode %u", index, d.mode);
        if (d.mode != TP_MODE_WIDE) CHECK(d.table == 0, "descriptor %u: a table in mode %u", index, d.mode);
        if (d.mode != TP_MODE_WIDE && d.mode != TP_MODE_LZ4)
            CHECK(d.nw == 0, "descriptor %u: a count of words in mode %u", index, d.mode);
    }

    uint64_t used = 0; /* without padding */
    switch (d.mode) {
    case TP_MODE_RAW:
        used = bytes;
        break;
    case TP_MODE_CONSTANT: {
        CHECK(!view->info.joined && n, "descriptor %u: constant does not belong here", index);
        const size_t width = bytes / n; /* of one element, top or byte */
        CHECK(width == 8 || d.offset >> 8 * width == 0, "descriptor %u: constant wider than its element",
              index);
        if (*method == TP_METHOD_RAW) *method = TP_METHOD_CONSTANT;
        return TP_OK;
    }
    case TP_MODE_W32:
    case TP_MODE_PAIRS:
        CHECK(split && whole && view->shape.c == (d.mode == TP_MODE_PAIRS ? 2 : 1),
              "descriptor %u: mode %u does not belong here", index, d.mode);
        CHECK(d.table + (1u << view->selector_bits) <= view->symbol_tables,
              "descriptor %u: no symbol table %u", index, d.table + (1u << view->selector_bits) - 1);
        CHECK(d.nw <= (d.n + TP_GROUP - 1) / TP_GROUP * TP_GROUP / view->shape.c,
              "descriptor %u: more words than symbols", index);
        CHECK(d.nx <= d.n, "descriptor %u: more exceptions than elements", index);
        used = tp_stream_used(&view->shape, d.n, !low_coded, d.nw, d.nx, view->selector_bits);
        *method = TP_METHOD_RANS;
        break;
    case TP_MODE_WIDE:
        CHECK(n && (split ? (whole ? tp_class_traits_of(view->info.cls)->wide_top : low_coded)
                          : !view->info.joined),
              "descriptor %u: mode wide does not belong here", index);
        CHECK(d.table < view->wide_tables, "descriptor %u: no wide table %u", index, d.table);
        CHECK(d.nw <= (d.n + TP_GROUP - 1) / TP_GROUP * TP_GROUP, "descriptor %u: more words than symbols",
              index);
        used = 128 + 2 * (uint64_t)d.nw;
        *method = TP_METHOD_RANS;
        break;
    case TP_MODE_LZ4:
        CHECK(!split || !whole || !low_coded, "descriptor %u: mode lz4 does not belong here", index);
        CHECK(d.nw >= 1 && d.nw < bytes, "descriptor %u: an lz4 block of %u bytes for %zu", index, d.nw,
              bytes);
        used = d.nw;
        if (*method != TP_METHOD_RANS) *method = split ? TP_METHOD_LZ4 : TP_METHOD_BG_LZ4;
        break;
    default:
        CHECK(false, "descriptor %u: unknown mode %u", index, d.mode);
    }

    CHECK(d.offset == *offset, "descriptor %u: starts at %llu where %llu belongs", index,
          (unsigned long long)d.offset, (unsigned long long)*offset);
    CHECK(tp_align(used, 128) <= view->payload_size - *offset, "descriptor %u: runs beyond the payload",
          index);
    const uint8_t *part = view->payload + *offset;
    *offset += tp_align(used, 128);
    return view->head_only ? TP_OK : check_part(view, &d, index, part, used, error);
}

/* The header fields of split, planes and df11: shape, group, chunks, parts. */
static tp_status check_geometry(const uint8_t *h, tp_frame_view *view, tp_error *error)
{
    const tp_frame_info *info = &view->info;
    const tp_class_traits *traits = tp_class_traits_of(info->cls);
    view->chunk_log2 = h[9];
    CHECK(view->chunk_log2 >= 10 && view->chunk_log2 <= 17, "chunk_log2 is %u", view->chunk_log2);
    if (info->codec == TP_FRAME_SPLIT) {
        CHECK(traits->T, "class %s cannot be split", tp_class_name(info->cls));
        CHECK(info->raw_size % traits->element == 0, "raw size is no multiple of the element size");
        CHECK(!info->joined, "joined in codec split");
        CHECK(!info->low_coded || traits->low, "low_coded in class %s", tp_class_name(info->cls));
        const unsigned c = info->elements_per_symbol, s = info->symbol_bits;
        bool allowed = false;
        for (unsigned i = 0; i < 3; i++) allowed |= s && traits->s[i] == s;
        CHECK(allowed && (c == 1 || (c == 2 && traits->pairs && s == 8)), "s = %u, c = %u in class %s", s,
              c, tp_class_name(info->cls));
        CHECK(h[12] == 1 || h[12] == 2 || h[12] == 4, "%u tables per stream", h[12]);
        view->selector_bits = h[12] / 2; /* 1, 2, 4 tables: 0, 1, 2 bits */
        view->shape = (tp_shape){.T = traits->T,
                                 .R = (uint8_t)(traits->T - s),
                                 .low = traits->low,
                                 .c = (uint8_t)c,
                                 .rotated = traits->rotated};
        view->group = traits->element;
        view->parts = info->low_coded ? 1u + traits->low : 1;
    } else if (info->codec == TP_FRAME_DF11) {
        CHECK(info->cls == TP_CLASS_BF16, "class %s in codec df11", tp_class_name(info->cls));
        CHECK(info->raw_size % traits->element == 0, "raw size is no multiple of the element size");
        CHECK(info->symbol_bits == 0 && info->elements_per_symbol == 1 && h[8] == 0 && h[11] == 0 &&
                  h[12] == 0,
              "fields of other codecs in codec df11");
        view->group = traits->element;
    } else {
        CHECK(traits->planes, "class %s has no planes", tp_class_name(info->cls));
        CHECK(!info->low_coded, "low_coded in codec planes");
        CHECK(info->symbol_bits == 0 && info->elements_per_symbol == 0 && h[12] == 0 && h[10] == 0,
              "fields of codec split in codec planes");
        view->group = traits->planes;
        view->parts = info->joined ? 1 : view->group;
    }
    const size_t chunk = ((size_t)1 << view->chunk_log2) * view->group;
    view->chunks = (uint32_t)((info->raw_size + chunk - 1) / chunk);
    return TP_OK;
}

static tp_status check_descriptors(tp_frame_view *view, tp_method *method, tp_error *error)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < view->chunks; i++) {
        size_t start;
        const size_t bytes = tp_frame_chunk(view, i, &start);
        for (unsigned part = 0; part < view->parts; part++) {
            uint32_t n;
            size_t part_bytes;
            bool whole = true;
            if (view->info.codec == TP_FRAME_SPLIT) {
                n = (uint32_t)(bytes / view->group);
                whole = part == 0;
                part_bytes = view->info.low_coded ? (whole ? (size_t)n * view->shape.T / 8 : n) : bytes;
            } else {
                n = (uint32_t)(view->info.joined ? bytes : (bytes + view->group - 1 - part) / view->group);
                part_bytes = n;
            }
            const tp_status status = check_descriptor(view, i * view->parts + part, n, part_bytes, whole,
                                                      &offset, method, error);
            if (status) return status;
        }
    }
    CHECK(offset == view->payload_size, "payload is %u bytes where its parts have %llu", view->payload_size,
          (unsigned long long)offset);
    return TP_OK;
}

/* Of `size` bytes `present` are there: all, or those of the head at least. */
static tp_status validate(const uint8_t *h, size_t size, size_t present, bool check_hash,
                          tp_frame_view *view, tp_error *error)
{
    memset(view, 0, sizeof *view);
    tp_frame_info *const info = &view->info;
    tp_status status = tp_frame_peek(h, info, error);
    if (status) return status;
    if (info->stored_size > size)
        return tp_error_set(error, TP_TRUNCATED, "frame: has %zu of %u bytes", size, info->stored_size);
    CHECK(info->stored_size == size, "%zu bytes follow it", size - info->stored_size);
    if (check_hash) {
        uint64_t hash[2];
        stored_hash(h, size, hash);
        CHECK(same_hash(hash, info->stored_hash, 2), "hash of the stored bytes does not match");
    }
    if ((unsigned)info->codec > TP_FRAME_DF11)
        return tp_error_set(error, TP_UNSUPPORTED, "frame: codec %u is not known to this version",
                            info->codec);
    if ((unsigned)info->cls >= TP_CLASS_COUNT)
        return tp_error_set(error, TP_UNSUPPORTED, "frame: dtype class %u is not known to this version",
                            info->cls);

    const bool df11 = info->codec == TP_FRAME_DF11;
    CHECK((h[8] & ~3u) == 0 && h[14] == 0 && h[15] == 0 && all_zero(h + 44, 52) &&
              (df11 || all_zero(h + 40, 4)),
          "reserved bytes are set");
    const uint32_t descriptors = tp_load32(h + 24);
    view->frame = h;
    view->head_only = present < size;
    view->symbol_tables = h[10];
    view->wide_tables = h[11];
    view->payload_size = tp_load32(h + 28);
    view->group = 1;
    view->parts = 1;
    CHECK(view->symbol_tables <= (df11 ? TP_DF11_MAX_ROWS : TP_MAX_TABLES) &&
              view->wide_tables <= TP_MAX_TABLES,
          "more than %d tables", df11 ? TP_DF11_MAX_ROWS : TP_MAX_TABLES);

    const bool chunked = df11 || info->codec == TP_FRAME_SPLIT || info->codec == TP_FRAME_PLANES;
    if (chunked) {
        status = check_geometry(h, view, error);
        if (status) return status;
    } else {
        CHECK(h[6] == 0 && h[7] == 0 && h[8] == 0 && h[9] == 0 && h[10] == 0 && h[11] == 0 && h[12] == 0,
              "fields of other codecs in codec %u", info->codec);
    }
    CHECK(descriptors == view->chunks * view->parts, "%u descriptors where %u belong", descriptors,
          view->chunks * view->parts);

    const size_t tables = 256u * info->elements_per_symbol * view->symbol_tables + 512u * view->wide_tables;
    const size_t directory = tables + (size_t)descriptors * TP_DESCRIPTOR_SIZE;
    const size_t payload = (size_t)tp_align(TP_FRAME_HEADER + directory, 128);
    if (view->head_only && payload > present)
        return tp_error_set(error, TP_TRUNCATED, "frame: has %zu of the %zu bytes of its head", present, payload);
    CHECK(payload <= size && tp_align(payload + (uint64_t)view->payload_size, 128) == size,
          "tables, descriptors and payload do not fill it");
    view->symbol_table = h + TP_FRAME_HEADER;
    view->wide_table = view->symbol_table + tables - 512u * view->wide_tables;
    view->descriptors = h + TP_FRAME_HEADER + tables;
    view->payload = h + payload;
    CHECK(all_zero(h + TP_FRAME_HEADER + directory, payload - TP_FRAME_HEADER - directory) &&
              (view->head_only ||
               all_zero(view->payload + view->payload_size, size - payload - view->payload_size)),
          "padding is not zero");
    const uint64_t directory_hash = tp_hash64(h + TP_FRAME_HEADER, payload - TP_FRAME_HEADER);
    const uint64_t claimed = tp_load64(h + 32);
    CHECK(same_hash(&directory_hash, &claimed, 1), "hash of its directory does not match");

    tp_method method = TP_METHOD_RAW;
    if (df11) {
        if (view->head_only)
            return tp_error_set(error, TP_UNSUPPORTED, "frame: codec df11 is not checked by its head alone");
        tp_df11_decoder opened; /* for its checks */
        status = tp_df11_frame_check(view, &opened, error);
        if (status) return status;
        method = TP_METHOD_DF11;
    } else if (chunked) {
        for (unsigned i = 0; i < view->symbol_tables; i++) {
            status = check_symbol_table(view->symbol_table + 256u * info->elements_per_symbol * i,
                                        64u * info->elements_per_symbol,
                                        (unsigned)info->symbol_bits * info->elements_per_symbol, i, error);
            if (status) return status;
        }
        for (unsigned i = 0; i < view->wide_tables; i++) {
            status = check_wide_table(view->wide_table + 512u * i, i, error);
            if (status) return status;
        }
        status = check_descriptors(view, &method, error);
        if (status) return status;
    } else if (info->codec == TP_FRAME_RAW) {
        CHECK(view->payload_size == info->raw_size, "payload is %u bytes, raw size %u", view->payload_size,
              info->raw_size);
    } else {
        CHECK(view->payload_size >= 1 && view->payload_size < info->raw_size,
              "an lz4 block of %u bytes for %u", view->payload_size, info->raw_size);
        method = TP_METHOD_LZ4;
    }
    CHECK(info->method == method, "method is %u where %u belongs", info->method, method);
    return TP_OK;
}

tp_status tp_frame_validate(const void *frame, size_t size, bool check_hash, tp_frame_view *view,
                            tp_error *error)
{
    if (size < TP_FRAME_HEADER) return tp_error_set(error, TP_TRUNCATED, "frame: ends within its header");
    return validate(frame, size, size, check_hash, view, error);
}

tp_status tp_frame_validate_head(const void *head, size_t present, tp_frame_view *view, tp_error *error)
{
    tp_frame_info info = {.stored_size = 0};
    if (present < TP_FRAME_HEADER)
        return tp_error_set(error, TP_TRUNCATED, "frame: ends within its header");
    const tp_status status = tp_frame_peek(head, &info, error);
    if (status != TP_OK) return status;
    const size_t size = info.stored_size;
    return validate(head, size, present < size ? present : size, false, view, error);
}

tp_status tp_frame_head_size(const void *header, size_t *size, tp_error *error)
{
    const uint8_t *h = header;
    tp_frame_info info = {.stored_size = 0};
    const tp_status status = tp_frame_peek(h, &info, error);
    if (status != TP_OK) return status;
    const uint64_t tables = 256u * h[7] * h[10] + 512u * h[11];
    const uint64_t head = tp_align(TP_FRAME_HEADER + tables + (uint64_t)tp_load32(h + 24) * TP_DESCRIPTOR_SIZE, 128);
    CHECK(head <= info.stored_size, "tables and descriptors do not fit into it");
    *size = (size_t)head;
    return TP_OK;
}

tp_status tp_frame_check(const void *frame, size_t size, tp_frame_info *info, tp_error *error)
{
    tp_frame_view view;
    const tp_status status = tp_frame_validate(frame, size, true, &view, error);
    if (status == TP_OK && info) *info = view.info;
    return status;
}
