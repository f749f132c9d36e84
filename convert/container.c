#include "convert/container.h"

#include <lz4.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/text.h"

/* ------------------------------------------------------------------------------------ writing parts */

void tp_container_header(uint8_t header[TP_CONTAINER_HEADER])
{
    uint64_t hash[2];
    memset(header, 0, TP_CONTAINER_HEADER);
    memcpy(header, TP_CONTAINER_MAGIC, 8);
    tp_store16(header + 8, TP_FORMAT_MAJOR);
    tp_store16(header + 10, TP_FORMAT_MINOR);
    tp_hash128(header, 112, hash);
    memcpy(header + 112, hash, 16);
}

void tp_container_footer(uint8_t footer[TP_CONTAINER_FOOTER], uint64_t index_offset, uint64_t index_stored,
                         uint64_t index_raw, const uint64_t index_hash[2], const uint64_t digest[2])
{
    uint64_t hash[2];
    memset(footer, 0, TP_CONTAINER_FOOTER);
    tp_store64(footer, index_offset);
    tp_store64(footer + 8, index_stored);
    tp_store64(footer + 16, index_raw);
    memcpy(footer + 32, index_hash, 16);
    memcpy(footer + 48, digest, 16);
    tp_store16(footer + 64, TP_FORMAT_MAJOR);
    tp_store16(footer + 66, TP_FORMAT_MINOR);
    tp_hash128(footer, 104, hash);
    memcpy(footer + 104, hash, 16);
    memcpy(footer + 120, TP_CONTAINER_MAGIC, 8);
}

/* ------------------------------------------------------------------------------------------ opening */

static bool all_zero(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i]) return false;
    return true;
}

/* Whether the hash of `size` bytes is the one stored at `stored`. */
static bool hash_matches(const void *data, size_t size, const uint8_t *stored)
{
    uint64_t hash[2], expected[2];
    tp_hash128(data, size, hash);
    memcpy(expected, stored, 16);
    return tp_same_hash(hash, expected);
}

tp_status tp_container_recognise(const tp_source *source, bool *starts, tp_error *error)
{
    uint8_t magic[8];
    *starts = false;
    if (source->size < sizeof magic) return TP_OK;
    tp_status status = source->read(source->context, magic, sizeof magic, 0, error);
    *starts = status == TP_OK && memcmp(magic, TP_CONTAINER_MAGIC, sizeof magic) == 0;
    return status;
}

static tp_status read_header(tp_container *container, uint8_t header[TP_CONTAINER_HEADER], tp_error *error)
{
    const tp_source *source = container->source;
    bool starts;
    tp_status status = tp_container_recognise(source, &starts, error);
    if (status != TP_OK) return status;
    if (!starts)
        return tp_error_set_at(error, TP_NOT_CONTAINER, 0, "%s: not a tensorpress container", source->name);
    if (source->size < TP_CONTAINER_HEADER)
        return tp_error_set_at(error, TP_TRUNCATED, source->size, "%s: ends within the container's header",
                               source->name);
    status = source->read(source->context, header, TP_CONTAINER_HEADER, 0, error);
    if (status != TP_OK) return status;
    if (!hash_matches(header, 112, header + 112))
        return tp_error_set_at(error, TP_CORRUPT, 0, "%s: header: damaged: its hash differs", source->name);
    container->major = tp_load16(header + 8);
    container->minor = tp_load16(header + 10);
    if (container->major > TP_FORMAT_MAJOR || (TP_FORMAT_MAJOR == 0 && container->minor != TP_FORMAT_MINOR))
        return tp_error_set(error, TP_NEWER_VERSION,
                            "%s: has format version %u.%u, this program reads %u.%u", source->name,
                            container->major, container->minor, TP_FORMAT_MAJOR, TP_FORMAT_MINOR);
    if (tp_load32(header + 12) != 0)
        return tp_error_set_at(error, TP_CORRUPT, 12, "%s: header: reserved flags are set", source->name);
    if (!all_zero(header + 16, 96))
        return tp_error_set_at(error, TP_CORRUPT, 16, "%s: header: reserved bytes are not zero",
                               source->name);
    return TP_OK;
}

typedef struct footer {
    uint64_t index_offset, index_stored, index_raw;
    uint8_t index_hash[16], digest[16];
} footer;

static tp_status read_footer(const tp_container *container, footer *f, tp_error *error)
{
    const tp_source *source = container->source;
    uint8_t data[TP_CONTAINER_FOOTER];
    if (source->size < TP_CONTAINER_HEADER + TP_CONTAINER_FOOTER)
        return tp_error_set_at(error, TP_TRUNCATED, source->size, "%s: ends within the container's footer",
                               source->name);
    uint64_t at = source->size - TP_CONTAINER_FOOTER;
    tp_status status = source->read(source->context, data, sizeof data, at, error);
    if (status != TP_OK) return status;
    bool magic = memcmp(data + 120, TP_CONTAINER_MAGIC, 8) == 0, hash = hash_matches(data, 104, data + 104);
    if (!magic && !hash)
        return tp_error_set_at(error, TP_TRUNCATED, at,
                               "%s: no footer at its end: cut off, or something follows it", source->name);
    if (!magic)
        return tp_error_set_at(error, TP_CORRUPT, at + 120, "%s: footer: damaged: its magic differs",
                               source->name);
    if (!hash)
        return tp_error_set_at(error, TP_CORRUPT, at, "%s: footer: damaged: its hash differs",
                               source->name);
    if (tp_load16(data + 64) != container->major || tp_load16(data + 66) != container->minor)
        return tp_error_set_at(error, TP_CORRUPT, at + 64, "%s: footer: its version is not the header's",
                               source->name);
    if (tp_load32(data + 68) != 0)
        return tp_error_set_at(error, TP_CORRUPT, at + 68, "%s: footer: reserved flags are set",
                               source->name);
    if (!all_zero(data + 24, 8) || !all_zero(data + 72, 32))
        return tp_error_set_at(error, TP_CORRUPT, at, "%s: footer: reserved bytes are not zero",
                               source->name);
    f->index_offset = tp_load64(data);
    f->index_stored = tp_load64(data + 8);
    f->index_raw = tp_load64(data + 16);
    memcpy(f->index_hash, data + 32, 16);
    memcpy(f->digest, data + 48, 16);
    if (f->index_offset % 128 != 0 || f->index_offset < TP_CONTAINER_HEADER)
        return tp_error_set_at(error, TP_CORRUPT, at, "%s: footer: invalid offset of the index",
                               source->name);
    uint64_t end;
    if (!tp_add(f->index_offset, f->index_stored, &end) || end != at)
        return tp_error_set_at(error, TP_CORRUPT, at, "%s: footer: the index does not end at the footer",
                               source->name);
    /*
     * An LZ4 block cannot expand by more than 255, nor be larger than its contents by more than a byte in
     * 255 and a few: a sequence costs at most as much as it stands for but for the length bytes of its
     * literals.
     */
    if (f->index_raw < TP_INDEX_HEADER || f->index_raw > TP_INDEX_MAX_RAW ||
        (f->index_stored <= TP_INDEX_MAX_RAW && f->index_raw > 255 * f->index_stored + 64) ||
        f->index_stored > f->index_raw + f->index_raw / 255 + 16)
        return tp_error_set_at(error, TP_CORRUPT, at + 8, "%s: footer: impossible size of the index",
                               source->name);
    return TP_OK;
}

static tp_status read_index(tp_container *container, const footer *f, tp_error *error)
{
    const tp_source *source = container->source;
    size_t stored =
        (size_t)f->index_stored; /* at most 1 GiB and a little, as the raw size: both fit in int */
    uint8_t *data = malloc(stored ? stored : 1), *raw = NULL;
    tp_status status =
        data ? source->read(source->context, data, stored, f->index_offset, error) : tp_error_memory(error);
    if (status == TP_OK && !hash_matches(data, stored, f->index_hash))
        status = tp_error_set_at(error, TP_CORRUPT, f->index_offset, "%s: index: damaged: its hash differs",
                                 source->name);
    if (status == TP_OK && !(raw = malloc((size_t)f->index_raw))) status = tp_error_memory(error);
    if (status == TP_OK && LZ4_decompress_safe((const char *)data, (char *)raw, (int)stored,
                                               (int)f->index_raw) != (int)f->index_raw)
        status = tp_error_set_at(error, TP_CORRUPT, f->index_offset,
                                 "%s: index: does not decompress to its size", source->name);
    free(data);
    if (status == TP_OK)
        return tp_index_parse(&container->index, raw, f->index_raw, f->index_offset, source->name, error);
    free(raw);
    return status;
}

static tp_status check_digest(const tp_container *container, const uint8_t *header, const footer *f,
                              tp_error *error)
{
    const tp_index *index = &container->index;
    tp_hasher hasher;
    uint64_t digest[2], expected[2];
    tp_hasher_init(&hasher);
    tp_hasher_add(&hasher, header, TP_CONTAINER_HEADER);
    for (uint64_t i = 0; i < index->stored_count; i++)
        tp_hasher_add(&hasher, index->frame_stored_hash + 2 * (size_t)index->stored[i], 16);
    tp_hasher_add(&hasher, f->index_hash, 16);
    tp_hasher_end(&hasher, digest);
    memcpy(expected, f->digest, 16);
    if (tp_same_hash(digest, expected)) return TP_OK;
    return tp_error_set(error, TP_CORRUPT, "%s: the container's digest differs", container->source->name);
}

tp_status tp_container_open(tp_container *container, const tp_source *source, tp_error *error)
{
    uint8_t header[TP_CONTAINER_HEADER];
    footer f;
    memset(container, 0, sizeof *container);
    container->source = source;
    tp_status status = read_header(container, header, error);
    if (status == TP_OK) status = read_footer(container, &f, error);
    if (status == TP_OK) status = read_index(container, &f, error);
    if (status == TP_OK) status = check_digest(container, header, &f, error);
    if (status != TP_OK) tp_container_close(container);
    return status;
}

tp_status tp_container_open_input(tp_container *container, tp_input *input, const char *path, int fd,
                                  tp_progress *progress, tp_error *error)
{
    tp_status status = tp_input_open(input, path, fd, true, progress, error);
    if (status == TP_UNSUPPORTED)
        return tp_error_set(error, TP_NOT_CONTAINER, "%s: is a folder, not a tensorpress container",
                            input->name);
    return status == TP_OK ? tp_container_open(container, &input->source, error) : status;
}

void tp_container_close(tp_container *container)
{
    tp_index_free(&container->index);
}

/* ------------------------------------------------------------------------------------------- frames */

tp_status tp_container_frame_error(const tp_container *container, uint64_t frame, tp_status status,
                                   const tp_error *cause, tp_error *error)
{
    uint64_t offset = container->index.frame_offset[frame];
    const char *what = cause->message;
    if (strncmp(what, "frame: ", 7) == 0) what += 7;
    return tp_error_set_at(error, status, offset, "%s: frame %llu at byte %llu: %s",
                           container->source->name, (unsigned long long)frame, (unsigned long long)offset,
                           what);
}

tp_status tp_container_read_frame(const tp_container *container, uint64_t frame, uint8_t *stored,
                                  tp_frame_view *view, tp_error *error)
{
    const tp_index *index = &container->index;
    const tp_source *source = container->source;
    uint32_t size = index->frame_stored_size[frame];
    uint8_t *data;
    tp_status status = tp_fetch(source, stored, size, index->frame_offset[frame], &data, error);
    if (status != TP_OK) return status;
    memset(data + size, 0, TP_SLACK);
    tp_error cause = {0};
    status = tp_frame_validate(data, size, true, view, &cause);
    if (status != TP_OK) return tp_container_frame_error(container, frame, status, &cause, error);
    const tp_frame_info *info = &view->info;
    if (info->stored_size != size || info->raw_size != index->frame_raw_size[frame] ||
        (unsigned)info->codec != index->frame_codec[frame] ||
        (unsigned)info->method != index->frame_method[frame] ||
        !tp_same_hash(info->stored_hash, index->frame_stored_hash + 2 * frame) ||
        !tp_same_hash(info->raw_hash, index->frame_raw_hash + 2 * frame)) {
        tp_error_set(&cause, TP_CORRUPT, "is not the frame that the index names");
        return tp_container_frame_error(container, frame, TP_CORRUPT, &cause, error);
    }
    return TP_OK;
}

tp_status tp_container_decode_frame(const tp_container *container, uint64_t frame, tp_decoder *decoder,
                                    uint8_t *stored, uint8_t *raw, tp_error *error)
{
    tp_frame_view view;
    tp_error cause = {0};
    tp_status status = tp_container_read_frame(container, frame, stored, &view, error);
    if (status != TP_OK) return status;
    status = tp_frame_decode(decoder, &view, view.info.stored_size + (size_t)TP_SLACK, raw,
                             view.info.raw_size, &cause);
    return status == TP_OK ? TP_OK : tp_container_frame_error(container, frame, status, &cause, error);
}
