/*
 * Opens any bytes as a container, lists all of it, and reads all of it, in two ways: as the conversions do,
 * frame by frame, and through tp_reader. The index is compressed, so half of the mutations are made inside
 * of it.
 */
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/container.h"

#define MOST_RAW ((uint64_t)32 << 20) /* bytes that one input may make us decode */
#define MOST_INDEX ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static void read_frames(const uint8_t *data, size_t size)
{
    static uint8_t stored[TP_STORED_BUFFER], raw[TP_FRAME_MAX_RAW];
    static tp_decoder *decoder;
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, data, size, "fuzz");
    tp_container container;
    tp_error error;
    uint64_t left = MOST_RAW;
    if (!decoder && tp_decoder_create(&decoder) != TP_OK) abort();
    if (tp_container_open(&container, &source, &error) != TP_OK) return;
    for (uint64_t i = 0; i < container.index.frames && left >= container.index.frame_raw_size[i]; i++) {
        if (tp_index_is_duplicate(&container.index, i)) continue;
        left -= container.index.frame_raw_size[i];
        tp_container_decode_frame(&container, i, decoder, stored, raw, &error);
    }
    tp_container_close(&container);
}

static void list(tp_reader *reader)
{
    tp_file_info file;
    tp_frame_entry frame;
    for (size_t i = 0; i < tp_reader_files(reader); i++)
        if (tp_reader_file(reader, i, &file) != TP_OK) abort();
    for (size_t i = 0; i < tp_reader_frames(reader); i++)
        if (tp_reader_frame(reader, i, &frame) != TP_OK) abort();
}

static void read_tensors(tp_reader *reader, uint8_t *buffer, size_t capacity)
{
    tp_error error;
    uint64_t left = MOST_RAW;
    for (size_t i = 0; i < tp_reader_tensors(reader); i++) {
        tp_tensor_info tensor;
        tp_file_info file;
        size_t found, size;
        if (tp_reader_tensor(reader, i, &tensor) != TP_OK ||
            tp_reader_file(reader, tensor.file, &file) != TP_OK)
            abort();
        if (i < 20 &&
            tp_reader_find(reader, tensor.file, tensor.name.data, tensor.name.size, &found) != TP_OK)
            abort();
        uint64_t sum = 0;
        for (size_t k = 0; k < tensor.ndim; k++) sum ^= tensor.shape[k];
        if (tensor.nbytes > left || sum == UINT64_MAX) continue;
        left -= tensor.nbytes;
        tp_read_tensor(reader, i, buffer, capacity, &error);
        if (tensor.ndim > 0)
            tp_read_rows(reader, i, 0, (tensor.shape[0] + 1) / 2, buffer, capacity, &size, &error);
    }
}

static void read_by_name(const uint8_t *data, size_t size)
{
    static uint8_t buffer[1 << 20];
    tp_reader *reader;
    tp_error error;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    if (tp_open_fd(fd, "fuzz", &reader, &error) == TP_OK) {
        list(reader);
        read_tensors(reader, buffer, sizeof buffer);
        tp_close(reader);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 8 && memcmp(data, TP_CONTAINER_MAGIC, 8) != 0) return 0;
    read_frames(data, size);
    read_by_name(data, size);
    return 0;
}

/* Changes the raw index of a container that has one, and makes footer and sizes follow. */
static size_t mutate_index(uint8_t *data, size_t size, size_t most)
{
    static uint8_t index[MOST_INDEX];
    if (size < 256) return 0;
    const uint8_t *footer = data + size - 128;
    uint64_t offset = tp_load64(footer), stored = tp_load64(footer + 8), raw = tp_load64(footer + 16),
             hash[2];
    if (offset > size - 128 || stored != size - 128 - offset || raw > sizeof index) return 0;
    if (LZ4_decompress_safe((const char *)data + offset, (char *)index, (int)stored, (int)raw) != (int)raw)
        return 0;
    uint8_t end[128];
    memcpy(end, footer, sizeof end);
    size_t changed = LLVMFuzzerMutate(index, (size_t)raw, sizeof index);
    if (most < offset + 128) return 0;
    size_t room = most - (size_t)offset - 128;
    int packed = LZ4_compress_default((const char *)index, (char *)data + offset, (int)changed,
                                      room > INT32_MAX ? INT32_MAX : (int)room);
    if (packed <= 0) return 0;
    tp_store64(end + 8, (uint64_t)packed);
    tp_store64(end + 16, changed);
    tp_hash128(data + offset, (size_t)packed, hash);
    memcpy(end + 32, hash, 16);
    tp_hash128(end, 104, hash);
    memcpy(end + 104, hash, 16);
    memcpy(data + offset + packed, end, sizeof end);
    return (size_t)offset + (size_t)packed + sizeof end;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size_t changed = seed % 2 ? mutate_index(data, size, most) : 0;
    return changed ? changed : LLVMFuzzerMutate(data, size, most);
}
