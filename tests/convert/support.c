#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/bytes.h"
#include "codec/hash.h"
#include "convert/container.h"

/* ------------------------------------------------------------------------------------- scratch folder */

static char folder[256];
static bool in_memory;

void scratch_in_memory(void)
{
    assert_true(!folder[0]);
    in_memory = access("/dev/shm", W_OK) == 0;
}

static void make_folder(void)
{
    const char *base = in_memory ? "/dev/shm" : getenv("TMPDIR");
    if (folder[0]) return;
    snprintf(folder, sizeof folder, "%s/tensorpress-test-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
}

const char *scratch(const char *name)
{
    static char paths[16][512];
    static unsigned next;
    make_folder();
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Folders without permissions too. */
static void remove_all(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0) return;
    fchmodat(parent, name, 0700, 0);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) remove_all(fd, e->d_name);
    if (d) closedir(d);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void scratch_remove_tree(const char *name)
{
    remove_all(AT_FDCWD, scratch(name));
}

void scratch_remove(void)
{
    in_memory = false;
    if (!folder[0]) return;
    remove_all(AT_FDCWD, folder);
    folder[0] = 0;
}

void assert_only(const char *name, ...)
{
    unsigned found = 0, wanted = 0;
    va_list args;
    make_folder();
    va_start(args, name);
    for (const char *n = name; n; n = va_arg(args, const char *), wanted++) {
        if (!exists(scratch(n))) fail_msg("%s is missing", n);
    }
    va_end(args);
    DIR *d = opendir(folder);
    char others[1024] = "";
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        found++;
        snprintf(others + strlen(others), sizeof others - strlen(others), " %s", e->d_name);
    }
    closedir(d);
    if (found != wanted) fail_msg("the folder holds%s", others);
}

void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (size > 0) assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

bytes read_file(const char *path)
{
    struct stat s;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &s), 0);
    bytes b = {malloc((size_t)s.st_size + 1), (size_t)s.st_size};
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, f), b.size);
    fclose(f);
    return b;
}

bool exists(const char *path)
{
    struct stat s;
    return lstat(path, &s) == 0;
}

void assert_same_file(const char *a, const char *b)
{
    bytes x = read_file(a), y = read_file(b);
    assert_int_equal(x.size, y.size);
    if (x.size > 0 && memcmp(x.data, y.data, x.size) != 0) fail_msg("%s and %s differ", a, b);
    free(x.data);
    free(y.data);
}

/* ------------------------------------------------------------------------------------------- contents */

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void fill_random(uint8_t *dst, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++) dst[i] = (uint8_t)(random_next(&seed) >> 56);
}

void fill_bf16(uint8_t *dst, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = random_next(&seed);
        /* The sum of eight bytes is about normal. */
        int sum = -1020;
        for (unsigned k = 0; k < 8; k++) sum += (int)(r >> 8 * k & 255);
        float value = (float)sum * 1e-4f;
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        tp_store16(dst + 2 * i, (uint16_t)(word >> 16));
    }
}

uint8_t *checkpoint_add(checkpoint *c, const char *name, const char *dtype, uint64_t rows, uint64_t columns,
                        size_t size)
{
    if (c->header_size + 256 + strlen(name) > c->header_capacity) {
        c->header_capacity = 2 * c->header_capacity + 1024 + strlen(name);
        c->header = realloc(c->header, c->header_capacity);
        assert_non_null(c->header);
    }
    if (c->size + size > c->capacity) {
        c->capacity = 2 * c->capacity + size;
        c->data = realloc(c->data, c->capacity);
        assert_non_null(c->data);
    }
    c->header_size +=
        (size_t)sprintf(c->header + c->header_size,
                        "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu,%llu],\"data_offsets\":[%zu,%zu]}",
                        c->header_size ? ',' : '{', name, dtype, (unsigned long long)rows,
                        (unsigned long long)columns, c->size, c->size + size);
    c->size += size;
    return c->data ? c->data + c->size - size : NULL;
}

bytes checkpoint_end(checkpoint *c)
{
    c->header[c->header_size++] = '}';
    while (c->header_size % 8) c->header[c->header_size++] = ' ';
    bytes b = {malloc(8 + c->header_size + c->size), 8 + c->header_size + c->size};
    assert_non_null(b.data);
    tp_store64(b.data, c->header_size);
    memcpy(b.data + 8, c->header, c->header_size);
    if (c->size > 0) memcpy(b.data + 8 + c->header_size, c->data, c->size);
    free(c->header);
    free(c->data);
    memset(c, 0, sizeof *c);
    return b;
}

bytes small_checkpoint(void)
{
    checkpoint c = {0};
    fill_bf16(checkpoint_add(&c, "first.weight", "BF16", 1200, 1000, 2400000), 1200000, 1);
    memset(checkpoint_add(&c, "zero", "F32", 600, 1000, 2400000), 0, 2400000);
    fill_bf16(checkpoint_add(&c, "second.weight", "BF16", 1200, 1000, 2400000), 1200000, 1);
    fill_bf16(checkpoint_add(&c, "norm", "BF16", 1, 4096, 8192), 4096, 3);
    fill_bf16(checkpoint_add(&c, "norm2", "BF16", 2, 2048, 8192), 4096, 4);
    fill_random(checkpoint_add(&c, "tiny", "U8", 3, 5, 15), 15, 5);
    checkpoint_add(&c, "empty", "F32", 0, 7, 0);
    return checkpoint_end(&c);
}

void lines_add(void *context, const char *line)
{
    lines *l = context;
    int n = snprintf(l->text + l->size, sizeof l->text - l->size, "%s\n", line);
    if (n > 0 && (size_t)n < sizeof l->text - l->size) l->size += (size_t)n;
    l->count++;
}

/* ----------------------------------------------------------------------------------------- containers */

void seal_header(uint8_t *header)
{
    uint64_t hash[2];
    tp_hash128(header, 112, hash);
    memcpy(header + 112, hash, 16);
}

void seal_footer(uint8_t *footer)
{
    uint64_t hash[2];
    tp_hash128(footer, 104, hash);
    memcpy(footer + 104, hash, 16);
}

parts take_apart(bytes container)
{
    parts p;
    memcpy(p.header, container.data, 128);
    memcpy(p.footer, container.data + container.size - 128, 128);
    size_t offset = tp_load64(p.footer), stored = tp_load64(p.footer + 8);
    p.index.size = tp_load64(p.footer + 16);
    p.index.data = malloc(p.index.size);
    p.frames.size = offset - 128;
    p.frames.data = malloc(p.frames.size + 1);
    assert_non_null(p.index.data);
    assert_non_null(p.frames.data);
    memcpy(p.frames.data, container.data + 128, p.frames.size);
    int raw = LZ4_decompress_safe((const char *)container.data + offset, (char *)p.index.data, (int)stored,
                                  (int)p.index.size);
    assert_int_equal(raw, p.index.size);
    return p;
}

bytes put_together(const parts *p)
{
    int bound = LZ4_compressBound((int)p->index.size);
    bytes b = {malloc(256 + p->frames.size + (size_t)bound), 0};
    uint8_t *index = b.data + 128 + p->frames.size, *footer;
    uint64_t hash[2];
    assert_non_null(b.data);
    memcpy(b.data, p->header, 128);
    seal_header(b.data);
    memcpy(b.data + 128, p->frames.data, p->frames.size);
    int stored =
        LZ4_compress_default((const char *)p->index.data, (char *)index, (int)p->index.size, bound);
    footer = index + stored;
    b.size = (size_t)(footer - b.data) + 128;
    memcpy(footer, p->footer, 128);
    tp_store64(footer, 128 + p->frames.size);
    tp_store64(footer + 8, (uint64_t)stored);
    tp_store64(footer + 16, p->index.size);
    tp_hash128(index, (size_t)stored, hash);
    memcpy(footer + 32, hash, 16);
    tp_hasher hasher;
    tp_hasher_init(&hasher);
    tp_hasher_add(&hasher, b.data, 128);
    for (size_t at = 0; at + 128 <= p->frames.size; at += tp_load32(p->frames.data + at + 20))
        tp_hasher_add(&hasher, p->frames.data + at + 96, 16);
    tp_hasher_add(&hasher, hash, 16);
    tp_hasher_end(&hasher, hash);
    memcpy(footer + 48, hash, 16);
    seal_footer(footer);
    return b;
}

void parts_free(parts *p)
{
    free(p->frames.data);
    free(p->index.data);
}

tp_status restore_memory(bytes container, bytes *restored, tp_error *error)
{
    static uint8_t stored[TP_STORED_BUFFER];
    static tp_decoder *decoder;
    tp_memory memory;
    tp_source source = tp_source_memory(&memory, container.data, container.size, "test.tpress");
    tp_container c;
    *restored = (bytes){NULL, 0};
    if (!decoder) assert_int_equal(tp_decoder_create(&decoder), TP_OK);
    tp_status status = tp_container_open(&c, &source, error);
    if (status != TP_OK) return status;
    restored->size = c.index.frame_start[c.index.frames];
    restored->data = malloc(restored->size + 1);
    assert_non_null(restored->data);
    for (uint64_t i = 0; i < c.index.frames && status == TP_OK; i++)
        status = tp_container_decode_frame(&c, i, decoder, stored, restored->data + c.index.frame_start[i],
                                           error);
    tp_container_close(&c);
    if (status != TP_OK) {
        free(restored->data);
        *restored = (bytes){NULL, 0};
    }
    return status;
}
