#include "convert/index.h"

#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/frame.h"
#include "codec/hash.h"
#include "convert/text.h"

/* ------------------------------------------------------------------------------------------ layout */

bool tp_index_size(const tp_index *counts, uint64_t *size)
{
    uint64_t sum = TP_INDEX_HEADER, part;
#define ADD_COLUMN(name, type, per, count)                                                                 \
    if (!tp_mul(counts->count, per * sizeof(type), &part) || !tp_add(sum, part, &sum)) return false;
    TP_INDEX_COLUMNS(ADD_COLUMN)
#undef ADD_COLUMN
    *size = sum;
    return true;
}

/* The columns go from wide to narrow, so that each is aligned to its type. */
static void set_columns(tp_index *index)
{
    uint8_t *at = index->raw + TP_INDEX_HEADER;
#define SET_COLUMN(name, type, per, count)                                                                 \
    index->name = (type *)(void *)at;                                                                      \
    at += index->count * per * sizeof(type);
    TP_INDEX_COLUMNS(SET_COLUMN)
#undef SET_COLUMN
}

tp_status tp_index_allocate(tp_index *index, tp_error *error)
{
    uint64_t size;
    if (!tp_index_size(index, &size) || size > TP_INDEX_MAX_RAW || index->frames > UINT32_MAX)
        return tp_error_set(error, TP_LIMIT, "the index of the container would exceed 1 GiB");
    index->raw = malloc(size);
    if (!index->raw) return tp_error_memory(error);
    index->raw_size = size;
    uint8_t *header = index->raw;
    tp_store32(header, index->folder);
    tp_store32(header + 4, index->has_sha256);
    tp_store64(header + 8, index->files);
    tp_store64(header + 16, index->tensors);
    tp_store64(header + 24, index->frames);
    tp_store64(header + 32, index->dims);
    tp_store64(header + 40, index->dtypes);
    tp_store64(header + 48, index->string_bytes);
    tp_store64(header + 56, 0);
    set_columns(index);
    return TP_OK;
}

void tp_index_free(tp_index *index)
{
    free(index->raw);
    free(index->frame_start);
    free(index->frame_stored);
    free(index->frame_changes);
    free(index->stored);
    free(index->file_frame);
    free(index->file_tensor);
    free(index->path_at);
    free(index->reason_at);
    free(index->name_at);
    free(index->dtype_at);
    free(index->dim_at);
    memset(index, 0, sizeof *index);
}

/* ----------------------------------------------------------------------------------------- parsing */

typedef struct parser {
    tp_index *index;
    uint64_t index_offset;
    const char *name;
    tp_error *error;
} parser;

#define BAD(p, ...) tp_error_set((p)->error, TP_CORRUPT, __VA_ARGS__)

static tp_status parse_header(parser *p, uint64_t size)
{
    tp_index *index = p->index;
    const uint8_t *header = index->raw;
    uint64_t expected;
    if (size < TP_INDEX_HEADER) return BAD(p, "%s: index: smaller than its header", p->name);
    uint32_t root = tp_load32(header), flags = tp_load32(header + 4);
    if (root > 1) return BAD(p, "%s: index: unknown root kind %u", p->name, root);
    if (flags > 1) return BAD(p, "%s: index: reserved flags are set", p->name);
    if (tp_load64(header + 56) != 0) return BAD(p, "%s: index: reserved bytes are not zero", p->name);
    index->folder = root == 1;
    index->has_sha256 = flags & 1;
    index->files = tp_load64(header + 8);
    index->sha256s = index->has_sha256 ? index->files : 0;
    index->tensors = tp_load64(header + 16);
    index->frames = tp_load64(header + 24);
    index->dims = tp_load64(header + 32);
    index->dtypes = tp_load64(header + 40);
    index->string_bytes = tp_load64(header + 48);
    if (index->frames > UINT32_MAX) return BAD(p, "%s: index: too many frames", p->name);
    /* From here on every count is bounded by the size of the raw index. */
    if (!tp_index_size(index, &expected) || expected != size)
        return BAD(p, "%s: index: its size does not match its counts", p->name);
    set_columns(index);
    return TP_OK;
}

static void *array(uint64_t entries, size_t size)
{
    return calloc(entries + 1, size);
}

static tp_status allocate_sums(parser *p)
{
    tp_index *x = p->index;
    x->frame_start = array(x->frames, sizeof *x->frame_start);
    x->frame_stored = array(x->frames, sizeof *x->frame_stored);
    x->frame_changes = array(x->frames, sizeof *x->frame_changes);
    x->stored = array(x->frames, sizeof *x->stored);
    x->file_frame = array(x->files, sizeof *x->file_frame);
    x->file_tensor = array(x->files, sizeof *x->file_tensor);
    x->path_at = array(x->files, sizeof *x->path_at);
    x->reason_at = array(x->files, sizeof *x->reason_at);
    x->name_at = array(x->tensors, sizeof *x->name_at);
    x->dim_at = array(x->tensors, sizeof *x->dim_at);
    x->dtype_at = array(x->dtypes, sizeof *x->dtype_at);
    if (!x->frame_start || !x->frame_stored || !x->frame_changes || !x->stored || !x->file_frame ||
        !x->file_tensor || !x->path_at || !x->reason_at || !x->name_at || !x->dim_at || !x->dtype_at)
        return tp_error_memory(p->error);
    return TP_OK;
}

/* at[i] = start + the lengths before i. false if the sum exceeds limit, which fits in u32 (at most 1 GiB).
 */
static bool sum_lengths(uint32_t *at, uint64_t start, const uint32_t *length, uint64_t count,
                        uint64_t limit)
{
    uint64_t sum = start;
    for (uint64_t i = 0; i < count; i++) {
        at[i] = (uint32_t)sum;
        sum += length[i];
        if (sum > limit) return false;
    }
    at[count] = (uint32_t)sum;
    return true;
}

static tp_status sum_all(parser *p)
{
    tp_index *x = p->index;
    uint64_t b = x->string_bytes;
    if (!sum_lengths(x->path_at, 0, x->file_path_len, x->files, b) ||
        !sum_lengths(x->reason_at, x->path_at[x->files], x->file_reason_len, x->files, b) ||
        !sum_lengths(x->name_at, x->reason_at[x->files], x->tensor_name_len, x->tensors, b) ||
        !sum_lengths(x->dtype_at, x->name_at[x->tensors], x->dtype_len, x->dtypes, b) ||
        x->dtype_at[x->dtypes] != b)
        return BAD(p, "%s: index: the lengths of its strings do not add up", p->name);
    if (!sum_lengths(x->file_frame, 0, x->file_frames, x->files, x->frames) ||
        x->file_frame[x->files] != x->frames)
        return BAD(p, "%s: index: the frames of its files do not add up", p->name);
    if (!sum_lengths(x->file_tensor, 0, x->file_tensors, x->files, x->tensors) ||
        x->file_tensor[x->files] != x->tensors)
        return BAD(p, "%s: index: the tensors of its files do not add up", p->name);
    if (!sum_lengths(x->dim_at, 0, x->tensor_ndim, x->tensors, x->dims) || x->dim_at[x->tensors] != x->dims)
        return BAD(p, "%s: index: the dimensions of its tensors do not add up", p->name);
    return TP_OK;
}

/* The known stored frame at this offset; UINT64_MAX if there is none. */
static uint64_t find_stored(const tp_index *x, uint64_t offset)
{
    uint64_t low = 0, high = x->stored_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (x->frame_offset[x->stored[middle]] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < x->stored_count && x->frame_offset[x->stored[low]] == offset ? x->stored[low] : UINT64_MAX;
}

static bool same_entry(const tp_index *x, uint64_t a, uint64_t b)
{
    return x->frame_stored_size[a] == x->frame_stored_size[b] &&
           x->frame_raw_size[a] == x->frame_raw_size[b] && x->frame_codec[a] == x->frame_codec[b] &&
           x->frame_method[a] == x->frame_method[b] &&
           memcmp(x->frame_stored_hash + 2 * a, x->frame_stored_hash + 2 * b, 16) == 0 &&
           memcmp(x->frame_raw_hash + 2 * a, x->frame_raw_hash + 2 * b, 16) == 0;
}

static tp_status check_frames(parser *p)
{
    tp_index *x = p->index;
    uint64_t next = TP_FRAME_HEADER;
    for (uint64_t i = 0; i < x->frames; i++) {
        uint32_t raw = x->frame_raw_size[i], stored = x->frame_stored_size[i];
        unsigned long long number = i;
        if (raw < 1 || raw > TP_FRAME_MAX_RAW)
            return BAD(p, "%s: index: frame %llu: raw size %u is out of range", p->name, number, raw);
        if (stored % 128 != 0 || stored < TP_FRAME_MIN_STORED ||
            stored > TP_FRAME_HEADER + tp_align(raw, 128))
            return BAD(p, "%s: index: frame %llu: stored size %u is out of range", p->name, number, stored);
        uint64_t added = 0;
        if (x->frame_offset[i] == next) {
            /* At most 2^32 frames of at most 2^22 + 128 bytes: no overflow, here and below. */
            added = stored;
            next += stored;
            x->stored[x->stored_count++] = (uint32_t)i;
        } else {
            uint64_t first = find_stored(x, x->frame_offset[i]);
            if (first == UINT64_MAX)
                return BAD(p, "%s: index: frame %llu: no frame starts at byte %llu", p->name, number,
                           (unsigned long long)x->frame_offset[i]);
            if (!same_entry(x, i, first))
                return BAD(
                    p, "%s: index: frame %llu: differs from frame %llu, which is stored at the same place",
                    p->name, number, (unsigned long long)first);
        }
        x->frame_start[i + 1] = x->frame_start[i] + raw;
        x->frame_stored[i + 1] = x->frame_stored[i] + added;
        bool change = i + 1 < x->frames && x->frame_method[i + 1] != x->frame_method[i];
        x->frame_changes[i + 1] = x->frame_changes[i] + change;
    }
    if (next != p->index_offset)
        return BAD(p, "%s: index: its frames end at byte %llu, not at the index", p->name,
                   (unsigned long long)next);
    return TP_OK;
}

static const char *path_fault(tp_text path, bool folder)
{
    if (path.size == 0) return "is empty";
    if (path.size > TP_MAX_PATH) return "is longer than 4095 bytes";
    if (memchr(path.data, 0, path.size)) return "contains a zero byte";
    if (path.data[0] == '/') return "is absolute";
    for (size_t start = 0, end; start <= path.size; start = end + 1) {
        const char *slash = memchr(path.data + start, '/', path.size - start);
        end = slash ? (size_t)(slash - path.data) : path.size;
        const char *component = path.data + start;
        if (slash && !folder) return "names a folder in a container of one file";
        if (end == start) return "has an empty component";
        if (end - start == 1 && component[0] == '.') return "has a component '.'";
        if (end - start == 2 && component[0] == '.' && component[1] == '.') return "has a component '..'";
        if (end - start > TP_MAX_COMPONENT) return "has a component of more than 255 bytes";
    }
    return NULL;
}

static bool all_zero(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i]) return false;
    return true;
}

static tp_status check_files(parser *p)
{
    tp_index *x = p->index;
    if (!x->folder && x->files != 1) return BAD(p, "%s: index: has not exactly one file", p->name);
    for (uint64_t i = 0; i < x->files; i++) {
        unsigned long long number = i;
        const char *fault = path_fault(tp_index_path(x, i), x->folder);
        if (fault) return BAD(p, "%s: index: file %llu: its path %s", p->name, number, fault);
        if (x->file_kind[i] > 1)
            return BAD(p, "%s: index: file %llu: unknown kind %u", p->name, number, x->file_kind[i]);
        if (x->file_kind[i] == 1) {
            if (!x->folder)
                return BAD(p, "%s: index: file %llu: a folder in a container of one file", p->name, number);
            if (x->file_frames[i] != 0 || x->file_tensors[i] != 0)
                return BAD(p, "%s: index: file %llu: a folder with frames or tensors", p->name, number);
            if (x->file_format[i] != 0 || x->file_reason_len[i] != 0)
                return BAD(p, "%s: index: file %llu: a folder with a format or a reason", p->name, number);
            if (x->has_sha256 && !all_zero(x->file_sha256 + 32 * i, 32))
                return BAD(p, "%s: index: file %llu: a folder with a SHA-256", p->name, number);
        }
        if (x->folder ? x->file_mode[i] > 0777 : x->file_mode[i] != 0)
            return BAD(p, "%s: index: file %llu: invalid permission bits", p->name, number);
        if (x->frame_start[x->file_frame[i + 1]] - x->frame_start[x->file_frame[i]] != x->file_size[i])
            return BAD(p, "%s: index: file %llu: its frames do not add up to its size", p->name, number);
        tp_hasher hasher;
        uint64_t digest[2];
        tp_hasher_init(&hasher);
        for (uint64_t f = x->file_frame[i]; f < x->file_frame[i + 1]; f++) {
            uint64_t part[3] = {x->frame_raw_size[f], x->frame_raw_hash[2 * f],
                                x->frame_raw_hash[2 * f + 1]};
            tp_hasher_add(&hasher, part, sizeof part);
        }
        tp_hasher_end(&hasher, digest);
        if (!tp_same_hash(digest, x->file_digest + 2 * i))
            return BAD(p, "%s: index: file %llu: its digest does not match its frames", p->name, number);
    }
    return TP_OK;
}

static int compare_text(tp_text a, tp_text b)
{
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_paths(const void *a, const void *b, void *context)
{
    const tp_index *x = context;
    return compare_text(tp_index_path(x, *(const uint32_t *)a), tp_index_path(x, *(const uint32_t *)b));
}

tp_status tp_index_sort(const tp_index *x, uint32_t **sorted, tp_error *error)
{
    *sorted = array(x->files, sizeof **sorted);
    if (!*sorted) return tp_error_memory(error);
    for (uint64_t i = 0; i < x->files; i++) (*sorted)[i] = (uint32_t)i;
    qsort_r(*sorted, x->files, sizeof **sorted, compare_paths, (void *)(uintptr_t)x);
    return TP_OK;
}

/* Position in the sorted numbers of the entry with this path; false if there is none. */
static bool find_path(const tp_index *x, const uint32_t *sorted, tp_text path, uint32_t *file)
{
    uint64_t low = 0, high = x->files;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = compare_text(tp_index_path(x, sorted[middle]), path);
        if (order == 0) {
            *file = sorted[middle];
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* No path twice; each inside a folder that has its own entry before. So no file's path is another's folder.
 */
static tp_status check_tree(parser *p)
{
    tp_index *x = p->index;
    if (!x->folder) return TP_OK;
    uint32_t *sorted;
    tp_status status = tp_index_sort(x, &sorted, p->error);
    if (status != TP_OK) return status;
    for (uint64_t i = 1; i < x->files && status == TP_OK; i++)
        if (compare_paths(&sorted[i - 1], &sorted[i], x) == 0)
            status = BAD(p, "%s: index: file %u: its path occurs twice", p->name,
                         sorted[i] > sorted[i - 1] ? sorted[i] : sorted[i - 1]);
    for (uint64_t i = 0; i < x->files && status == TP_OK; i++) {
        tp_text path = tp_index_path(x, i);
        const char *slash = memrchr(path.data, '/', path.size);
        if (!slash) continue;
        uint32_t parent;
        bool found = find_path(x, sorted, (tp_text){path.data, (size_t)(slash - path.data)}, &parent);
        if (found && x->file_kind[parent] == 0)
            status = BAD(p, "%s: index: file %llu: its folder is a file", p->name, (unsigned long long)i);
        else if (!found || parent > i)
            status = BAD(p, "%s: index: file %llu: its folder is not listed before it", p->name,
                         (unsigned long long)i);
    }
    free(sorted);
    return status;
}

static tp_status check_tensors(parser *p)
{
    tp_index *x = p->index;
    for (uint64_t file = 0; file < x->files; file++) {
        for (uint64_t i = x->file_tensor[file]; i < x->file_tensor[file + 1]; i++) {
            unsigned flags = x->tensor_flags[i];
            uint64_t end;
            unsigned long long number = i;
            if (x->tensor_dtype[i] >= x->dtypes)
                return BAD(p, "%s: index: tensor %llu: unknown dtype name", p->name, number);
            if (flags & ~(unsigned)(TP_TENSOR_OPAQUE | TP_TENSOR_TRUNCATED))
                return BAD(p, "%s: index: tensor %llu: reserved flags are set", p->name, number);
            if (!(flags & TP_TENSOR_TRUNCATED) &&
                (!tp_add(x->tensor_offset[i], x->tensor_nbytes[i], &end) || end > x->file_size[file]))
                return BAD(p, "%s: index: tensor %llu: lies beyond the end of its file", p->name, number);
        }
    }
    return TP_OK;
}

tp_status tp_index_parse(tp_index *index, uint8_t *raw, uint64_t size, uint64_t index_offset,
                         const char *name, tp_error *error)
{
    memset(index, 0, sizeof *index);
    index->raw = raw;
    index->raw_size = size;
    parser p = {index, index_offset, name, error};
    tp_status status = parse_header(&p, size);
    if (status == TP_OK) status = allocate_sums(&p);
    if (status == TP_OK) status = sum_all(&p);
    if (status == TP_OK) status = check_frames(&p);
    if (status == TP_OK) status = check_files(&p);
    if (status == TP_OK) status = check_tree(&p);
    if (status == TP_OK) status = check_tensors(&p);
    if (status != TP_OK) tp_index_free(index);
    return status;
}

/* ------------------------------------------------------------------------------------------ access */

/* The last i in low .. high - 1 with at[i] <= value; at[low] <= value. */
static uint64_t last_not_above64(const uint64_t *at, uint64_t low, uint64_t high, uint64_t value)
{
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (at[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t tp_index_frame_at(const tp_index *x, uint64_t file, uint64_t offset)
{
    uint64_t first = x->file_frame[file];
    return last_not_above64(x->frame_start, first, x->file_frame[file + 1], x->frame_start[first] + offset);
}

uint64_t tp_index_frame_position(const tp_index *x, uint64_t file, uint64_t frame)
{
    return x->frame_start[frame] - x->frame_start[x->file_frame[file]];
}

uint64_t tp_index_tensor_file(const tp_index *x, uint64_t tensor)
{
    uint64_t low = 0, high = x->files;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (x->file_tensor[middle] <= tensor)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t tp_index_regular_files(const tp_index *x)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < x->files; i++) count += x->file_kind[i] == 0;
    return count;
}

bool tp_index_is_duplicate(const tp_index *x, uint64_t frame)
{
    return x->frame_stored[frame + 1] == x->frame_stored[frame];
}

uint64_t tp_index_first(const tp_index *x, uint64_t frame)
{
    return tp_index_is_duplicate(x, frame) ? find_stored(x, x->frame_offset[frame]) : frame;
}

tp_text tp_index_path(const tp_index *x, uint64_t file)
{
    return (tp_text){x->strings + x->path_at[file], x->file_path_len[file]};
}

tp_text tp_index_name(const tp_index *x, uint64_t tensor)
{
    return (tp_text){x->strings + x->name_at[tensor], x->tensor_name_len[tensor]};
}
