#include "checkpoints.h"

#include "support.h"

typedef struct made {
    const char *name, *dtype;
    size_t count, element;
    int kind; /* 0 weights, 1 constant, 2 ramp, 3 random, 4 the one before again, in place; 5 the first
                 again */
} made;

static const made list[] = {
    {"big.bf16", "BF16", 2300000, 2, 0},
    {"f32", "F32", 300001, 4, 0},
    {"f32.coarse", "F32", 300000, 4, 6},
    {"f16", "F16", 530000, 2, 0},
    {"f64", "F64", 140000, 8, 0},
    {"e4m3", "F8_E4M3", 1100000, 1, 0},
    {"e5m2", "F8_E5M2", 1100001, 1, 0},
    {"i8", "I8", 1100000, 1, 0},
    {"i16", "I16", 600000, 2, 2},
    {"i32", "I32", 300000, 4, 2},
    {"i64", "I64", 150001, 8, 2},
    {"zeros", "F32", 400000, 4, 1},
    {"noise", "U8", 1200000, 1, 3},
    {"nothing", "F32", 0, 4, 0},
    {"small.1", "BF16", 777, 2, 0},
    {"small.2", "BF16", 1001, 2, 0},
    {"small.3", "BF16", 3000, 2, 0},
    {"small.3.again", "BF16", 3000, 2, 4},
    {"odd", "U8", 13, 1, 3},
    {"small.4", "F16", 4000, 2, 0},
    {"big.again", "BF16", 2300000, 2, 5},
};
enum { COUNT = sizeof list / sizeof *list };

static void fill(uint8_t *data, const made *m)
{
    for (size_t i = 0; i < m->count; i++) {
        uint64_t v = 0;
        if (m->kind == 0 || m->kind == 6) { /* a sign, an exponent near a middle, noise below */
            const uint32_t away = (uint32_t)__builtin_ctz(random_below(1 << 20) | 1u << 10);
            const uint32_t noise = random_below(1 << 23);
            const uint32_t f32 =
                random_below(2) << 31 | (121 - away) << 23 | (m->kind == 6 ? noise & 0x7f0000 : noise);
            if (m->element == 4) v = f32;
            if (m->element == 2)
                v = m->dtype[0] == 'B' ? f32 >> 16
                                       : (random_below(2) << 15 | (9 - away % 8) << 10 | (noise & 1023));
            if (m->element == 1) v = random_below(2) << 7 | (9 - away % 8) << 3 | (noise & 7);
            if (m->element == 8)
                v = (uint64_t)(random_below(2) << 11 | (1017 - away)) << 52 | (uint64_t)noise << 29 |
                    random_below(1 << 29);
        }
        if (m->kind == 1) v = 0;
        if (m->kind == 2) v = i * 3;
        if (m->kind == 3) v = random_below(256);
        memcpy(data + i * m->element, &v, m->element);
    }
}

void make_checkpoint(const char *path)
{
    static char header[8192];
    static uint8_t *parts[COUNT];
    size_t length = (size_t)snprintf(header, sizeof header, "{"), offset = 0, last = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const size_t size = list[i].count * list[i].element;
        const size_t start = list[i].kind == 4 ? last : offset;
        length +=
            (size_t)snprintf(header + length, sizeof header - length,
                             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                             i ? "," : "", list[i].name, list[i].dtype, list[i].count, start, start + size);
        last = start;
        if (list[i].kind != 4) offset += size;
    }
    length += (size_t)snprintf(header + length, sizeof header - length, "}");
    while (length % 8) header[length++] = ' ';
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const uint64_t size = length;
    fwrite(&size, 8, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < COUNT; i++) {
        const size_t bytes = list[i].count * list[i].element;
        if (list[i].kind == 4) continue;
        parts[i] = malloc(bytes + 1);
        if (list[i].kind == 5)
            memcpy(parts[i], parts[0], bytes);
        else
            fill(parts[i], &list[i]);
        fwrite(parts[i], 1, bytes, file);
    }
    assert_int_equal(fclose(file), 0);
    for (size_t i = 0; i < COUNT; i++) {
        free(parts[i]);
        parts[i] = NULL;
    }
}

void make_container(const char *from, const char *to, tp_level level, tp_codec_choice codec)
{
    tp_options options;
    tp_report report;
    tp_error error = {0};
    tp_options_init(&options);
    options.level = level;
    options.codec = codec;
    options.threads = 1;
    options.force = true;
    assert_ok(tp_compress_file(from, -1, to, -1, &options, &report, &error), &error);
}
