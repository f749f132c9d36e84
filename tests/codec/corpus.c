/* The corpus for the second decoder: small frames of every combination, and the lines it must report for
 * them. */
#include "registry.h"

#include "codec/bytes.h"

typedef struct corpus {
    FILE *file;
    const tp_kernels *kernels;
} corpus;

static void write_record(FILE *file, const uint8_t *frame, size_t size, const uint8_t *raw, size_t raw_size)
{
    uint8_t sizes[8];
    tp_store32(sizes, (uint32_t)size);
    tp_store32(sizes + 4, (uint32_t)raw_size);
    fwrite(sizes, 1, sizeof sizes, file);
    fwrite(frame, 1, size, file);
    fwrite(raw, 1, raw_size, file);
}

static void write_plan(const frame_plan *plan, void *context)
{
    corpus *c = context;
    built_frame built;
    build_frame(plan, c->kernels, &built);
    write_record(c->file, built.frame, built.size, built.raw, built.raw_size);
    built_frame_free(&built);
}

/* What the encoder itself makes. */
static int write_encoded(FILE *file)
{
    tp_encoder *encoder;
    rng r = rng_make(40);
    if (tp_encoder_create(&encoder)) return 1;
    for (int cls = 0; cls < TP_CLASS_COUNT; cls++)
        for (int kind = 0; kind < DATA_KINDS; kind++)
            for (int level = kind % 3; level <= TP_LEVEL_MAX; level += 3)
                for (int choice = 0; choice < TP_CODEC_DF11; choice++) {
                    if (kind != DATA_WEIGHTS && kind != DATA_UPCAST && choice) continue;
                    const size_t n = 2000 + rng_below(&r, 300),
                                 size = n * tp_class_element_size((tp_class)cls);
                    uint8_t *raw = exact(size), *frame = exact(tp_encode_bound(size));
                    size_t made;
                    make_data((data_kind)kind, (tp_class)cls, &r, raw, n);
                    if (tp_encode(encoder, (tp_class)cls, (tp_level)level, (tp_codec_choice)choice, raw,
                                  size, frame, tp_encode_bound(size), &made))
                        return 1;
                    write_record(file, frame, made, raw, size);
                    free(raw);
                    free(frame);
                }
    tp_encoder_destroy(encoder);
    return 0;
}

typedef struct line_list {
    char *line[1000];
    size_t count;
} line_list;

static void collect(const char *line, void *context)
{
    line_list *lines = context;
    if (lines->count < sizeof lines->line / sizeof *lines->line) lines->line[lines->count++] = strdup(line);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int write_df11_frames(FILE *file); /* test_df11.c */

int write_corpus(const char *frames, const char *lines)
{
    corpus c = {.file = fopen(frames, "wb"), .kernels = tp_kernels_get()};
    if (!c.file) return 2;
    each_plan(write_plan, &c);
    int failed = write_encoded(c.file);
    failed |= write_df11_frames(c.file);
    failed |= fclose(c.file) != 0;

    FILE *file = fopen(lines, "w");
    if (!file) return 2;
    line_list list = {.count = 0};
    each_coverage_line(collect, &list);
    qsort(list.line, list.count, sizeof *list.line, by_text);
    for (size_t i = 0; i < list.count; i++) {
        fprintf(file, "%s\n", list.line[i]);
        free(list.line[i]);
    }
    return fclose(file) != 0 || failed ? 2 : 0;
}
