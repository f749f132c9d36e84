/*
 * Frames of every kind that the format knows, decoded by the device in batches, and compared with the CPU's
 * decoder: sound ones byte by byte, damaged ones by verdict.
 */
#include "support.h"

#include "codec/bytes.h"
#include "codec/hash.h"
#include "gpu/batch.h"

static const char *corpus_path;

typedef struct record {
    uint8_t *frame, *raw;
    uint32_t size, raw_size;
} record;

static record *records;
static size_t record_count;

static void read_corpus(void)
{
    FILE *file = fopen(corpus_path, "rb");
    uint8_t sizes[8];
    size_t capacity = 0;
    assert_non_null(file);
    while (fread(sizes, 1, 8, file) == 8) {
        if (record_count == capacity)
            records = realloc(records, (capacity = 2 * capacity + 64) * sizeof *records);
        record *r = &records[record_count++];
        r->size = tp_load32(sizes);
        r->raw_size = tp_load32(sizes + 4);
        r->frame = malloc(r->size);
        r->raw = malloc(r->raw_size);
        assert_int_equal(fread(r->frame, 1, r->size, file), r->size);
        assert_int_equal(fread(r->raw, 1, r->raw_size, file), r->raw_size);
    }
    fclose(file);
    assert_true(record_count > 100);
}

/* ------------------------------------------------------------------------------------ a device at work */

#define OUTPUT ((size_t)8 << 20)
#define MARK 0x77

typedef struct rig {
    tp_device *device;
    tp_workers *workers;
    tp_batch batch;
    tp_memory output;
    uint8_t *back; /* OUTPUT bytes */
} rig;

static void rig_open(rig *r)
{
    tp_error error = {0};
    r->device = open_device();
    r->back = malloc(OUTPUT);
    assert_ok(tp_workers_create(1, &r->workers, &error), &error);
    assert_ok(tp_batch_create(&r->batch, r->device, r->workers, TP_BATCH_LEAST_STORED,
                              TP_BATCH_LEAST_EXPANDED, TP_FRAME_MAX_RAW, &error),
              &error);
    assert_ok(r->device->backend->memory_create(r->device, OUTPUT, &r->output, &error), &error);
}

static void rig_close(rig *r)
{
    r->device->backend->memory_destroy(&r->output);
    tp_batch_destroy(&r->batch);
    tp_workers_destroy(r->workers);
    tp_device_close(r->device);
    free(r->back);
    assert_clean();
}

static void fill_output(rig *r)
{
    tp_error error = {0};
    memset(r->back, MARK, OUTPUT);
    assert_ok(r->device->backend->upload(&r->batch.stream, &r->output, 0, r->back, OUTPUT, &error), &error);
    assert_ok(r->device->backend->wait(&r->batch.stream, &error), &error);
}

static void read_output(rig *r, size_t size)
{
    tp_error error = {0};
    assert_ok(r->device->backend->download(&r->batch.stream, &r->output, 0, r->back, size, &error), &error);
    assert_ok(r->device->backend->wait(&r->batch.stream, &error), &error);
}

/* Adds a frame that goes to `at`; false: the batch is full. */
static bool add(rig *r, const uint8_t *frame, size_t size, size_t at, tp_error *error, tp_status *status)
{
    tp_batch_frame *f = tp_batch_add(&r->batch, size);
    if (!f) return false;
    uint8_t *stored = tp_batch_stored(&r->batch, f);
    memcpy(stored, frame, size);
    memset(stored + size, 0, TP_SLACK);
    *status = tp_frame_validate(stored, size, true, &f->view, error);
    if (*status == TP_OK) *status = tp_frame_check_stated_hashes(&f->view, error);
    f->output = 0;
    f->output_at = at;
    return true;
}

static tp_status run_batch(rig *r, tp_error *error)
{
    size_t failed;
    while (r->batch.end < r->batch.count) {
        tp_status status = tp_batch_submit(&r->batch, &r->output, &failed, error);
        if (status == TP_OK) status = tp_batch_collect(&r->batch, &failed, error);
        if (status != TP_OK) return status;
    }
    return TP_OK;
}

/* How many of the records are used; how many damaged frames the device must have found by itself. */
static size_t used_count;
static unsigned least_bad;
static unsigned df11_rounds; /* damages of each DFloat11 frame */

/* -------------------------------------------------------------------------------------------- sound */

static void sound_frames(void **state)
{
    (void)state;
    rig r = {.device = NULL};
    rig_open(&r);
    for (size_t i = 0; i < used_count;) {
        tp_error error = {0};
        const size_t first = i;
        size_t at = 0;
        tp_batch_clear(&r.batch);
        fill_output(&r);
        /* Outputs at odd multiples of 16, with a gap, so that whoever writes beyond his own is seen. */
        for (; i < used_count && at + records[i].raw_size + 64 <= OUTPUT; i++) {
            tp_status status;
            if (!add(&r, records[i].frame, records[i].size, at, &error, &status)) break;
            assert_ok(status, &error);
            at += tp_align(records[i].raw_size, 16) + 16;
        }
        assert_true(i > first);
        assert_ok(run_batch(&r, &error), &error);
        read_output(&r, OUTPUT);
        at = 0;
        for (size_t k = first; k < i; k++) {
            const size_t end = at + tp_align(records[k].raw_size, 16) + 16;
            if (memcmp(r.back + at, records[k].raw, records[k].raw_size) != 0)
                fail_msg("frame %zu differs", k);
            for (size_t b = at + records[k].raw_size; b < end; b++)
                if (r.back[b] != MARK)
                    fail_msg("frame %zu: byte %zu after it is overwritten", k,
                             b - at - records[k].raw_size);
            at = end;
        }
    }
    rig_close(&r);
}

/* ------------------------------------------------------------------------------------------ damaged */

static void hash_again(uint8_t *frame, size_t size)
{
    uint64_t hash[2];
    /* The directory lies between the header and the payload, whose place follows from the header. */
    const size_t tables = 256u * frame[7] * frame[10] + 512u * frame[11];
    const size_t payload = tp_align(128 + tables + 32 * (size_t)tp_load32(frame + 24), 128);
    if (payload <= size) tp_store64(frame + 32, tp_hash64(frame + 128, payload - 128));
    memset(frame + 96, 0, 16);
    tp_hash128(frame, size, hash);
    memcpy(frame + 96, hash, 16);
}

/* What one changed frame comes to on both; the hashes of its parts are made right again. */
static void compare_verdicts(rig *r, tp_decoder *decoder, uint8_t *frame, size_t size, size_t number,
                             unsigned *bad_by_device)
{
    tp_error cpu_error = {0}, error = {0};
    tp_frame_view view;
    size_t raw_size = 0;
    uint8_t *cpu = malloc(TP_FRAME_MAX_RAW);
    hash_again(frame, size);
    const tp_status validated = tp_frame_validate(frame, size, true, &view, &cpu_error);
    const tp_status on_cpu = tp_decode(decoder, frame, size, cpu, TP_FRAME_MAX_RAW, &raw_size, &cpu_error);
    if (validated == TP_OK) {
        tp_status on_device = TP_OK;
        tp_batch_clear(&r->batch);
        const uint32_t said = view.info.raw_size;
        const size_t guard = 4096;
        memset(r->back, MARK, said + guard);
        assert_ok(
            r->device->backend->upload(&r->batch.stream, &r->output, 0, r->back, said + guard, &error),
            &error);
        assert_ok(r->device->backend->wait(&r->batch.stream, &error), &error);
        assert_true(add(r, frame, size, 0, &error, &on_device));
        if (on_device == TP_OK) {
            on_device = run_batch(r, &error);
            if (on_device != TP_OK) ++*bad_by_device;
        }
        if ((on_cpu == TP_OK) != (on_device == TP_OK))
            fail_msg("frame %zu: the CPU says %d (%s), the device %d (%s)", number, on_cpu,
                     cpu_error.message, on_device, error.message);
        if (on_device != TP_OK) assert_int_equal(on_device, TP_CORRUPT);
        read_output(r, said + guard);
        if (on_cpu == TP_OK && memcmp(cpu, r->back, raw_size) != 0)
            fail_msg("frame %zu: the outputs differ", number);
        for (size_t i = said; i < said + guard; i++)
            if (r->back[i] != MARK)
                fail_msg("frame %zu: byte %zu beyond its output is overwritten", number, i - said);
    }
    free(cpu);
}

static void damaged_frames(void **state)
{
    (void)state;
    rig r = {.device = NULL};
    tp_decoder *decoder;
    unsigned bad_by_device = 0;
    rig_open(&r);
    assert_int_equal(tp_decoder_create(&decoder), TP_OK);
    const size_t step = used_count / 150 + 1; /* a part of them, another one for each kind of damage */
    for (size_t i = 0; i < used_count; i += 1 + random_below((uint32_t)step * 2)) {
        const record *rec = &records[i];
        uint8_t *frame = malloc(rec->size);
        const size_t tables = 256u * rec->frame[7] * rec->frame[10] + 512u * rec->frame[11];
        const size_t payload = tp_align(128 + tables + 32 * (size_t)tp_load32(rec->frame + 24), 128);
        for (int kind = 0; kind < 6 && payload < rec->size; kind++) {
            memcpy(frame, rec->frame, rec->size);
            const size_t span = rec->size - payload;
            uint8_t *p = frame + payload;
            if (kind == 0) p[random_below((uint32_t)span)] ^= (uint8_t)(1u << random_below(8));
            if (kind == 1)
                p[random_below(128 < span ? 128 : (uint32_t)span)] ^=
                    (uint8_t)(1u << random_below(8)); /* states */
            if (kind == 2) memset(p, 0xff, span < 128 ? span : 128);
            if (kind == 3)
                for (size_t k = span / 2; k < span; k++) p[k] = (uint8_t)random_below(256);
            if (kind == 4) memset(p + span / 2, 0, span - span / 2);
            if (kind == 5 && payload > 128)
                frame[128 + random_below((uint32_t)(payload - 128))] ^= (uint8_t)(1u << random_below(8));
            compare_verdicts(&r, decoder, frame, rec->size, i, &bad_by_device);
        }
        free(frame);
    }
    tp_decoder_destroy(decoder);
    rig_close(&r);
    assert_true(bad_by_device >= least_bad); /* the kernels were reached */
}

static uint8_t *read_golden(const char *name, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TP_GOLDENS_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *data = malloc(1 << 20);
    assert_non_null(data);
    *size = fread(data, 1, 1 << 20, file);
    assert_true(*size > 0 && *size < 1 << 20);
    fclose(file);
    return data;
}

/* The frames that every decoder must refuse, with their hashes made right: what of that is damage is found by
 * the validator or the device. */
static void hostile_frames(void **state)
{
    (void)state;
    rig r = {.device = NULL};
    tp_decoder *decoder;
    unsigned bad_by_device = 0, count = 0;
    size_t size;
    rig_open(&r);
    assert_int_equal(tp_decoder_create(&decoder), TP_OK);
    uint8_t *list = read_golden("list.txt", &size);
    list[size] = 0;
    for (char *line = strtok((char *)list, "\n"); line; line = strtok(NULL, "\n")) {
        char name[128], file[160];
        if (sscanf(line, "bad %127s", name) != 1) continue;
        snprintf(file, sizeof file, "%s.tpf", name);
        uint8_t *frame = read_golden(file, &size);
        if (size >= 128) {
            compare_verdicts(&r, decoder, frame, size, count, &bad_by_device);
            count++;
        }
        free(frame);
    }
    free(list);
    tp_decoder_destroy(decoder);
    rig_close(&r);
    assert_true(count >= 20);
}

/* ------------------------------------------------------------------------------------------- DFloat11 */

/* Damages one of the arrays of a validated frame that validation looks at only in part. */
static void damage_df11(uint8_t *frame, const tp_frame_view *view)
{
    const tp_df11_unit *unit = &view->df11;
    uint8_t *const gaps = frame + (unit->gaps - view->frame);
    uint8_t *const stream = frame + (unit->encoded_exponent - view->frame);
    uint8_t *const positions = frame + (unit->output_positions - view->frame);
    const uint32_t blocks = (uint32_t)(unit->positions_size / 4 - 1);
    const uint64_t windows = (unit->encoded_size + 7) / 8, last = unit->encoded_size - 1;
    const uint8_t bit = (uint8_t)(1u << random_below(8));
    switch (random_below(7)) {
    case 0: /* a bit of the stream, often at its end */
        stream[random_below(2) ? last - random_below(last < 8 ? (uint32_t)last + 1 : 8)
                               : random_below((uint32_t)last + 1)] ^= bit;
        break;
    case 1: /* a gap */
        gaps[random_below(3) ? random_below((uint32_t)(5 * windows + 7) / 8) : 0] ^= bit;
        break;
    case 2: /* one of the last window's, or after it */
        gaps[5 * (windows - 1) / 8 + random_below(4)] ^= bit;
        break;
    case 3: /* a position by one */
        if (blocks > 1) {
            uint8_t *p = positions + 4 * (1 + random_below(blocks - 1));
            tp_store32(p, tp_load32(p) + (bit & 1 ? 1 : UINT32_MAX));
        }
        break;
    case 4: /* two windows swapped */
        if (windows > 2) {
            uint8_t window[8];
            uint8_t *a = stream + 8 * random_below((uint32_t)windows - 1), *b = stream;
            memcpy(window, a, 8);
            memcpy(a, b, 8);
            memcpy(b, window, 8);
        }
        break;
    case 5: /* a length, or an entry of a table */
        frame[128 + random_below((uint32_t)unit->luts_size)] ^= bit;
        break;
    default:
        frame[unit->sign_mantissa - view->frame + random_below((uint32_t)unit->elements)] ^= bit;
    }
}

/*
 * The device's verdict about a unit must be that of codec/df11_decode.c, not only in the end, where hashes
 * find all damage: blocks that are wrong are said to be before that.
 */
static void df11_verdicts(void **state)
{
    (void)state;
    rig r = {.device = NULL};
    unsigned bad = 0, good = 0;
    static tp_df11_decoder decoder;
    static tp_df11_workspace workspace;
    rig_open(&r);
    for (size_t i = 0; i < used_count; i++) {
        const record *rec = &records[i];
        if (rec->frame[4] != TP_FRAME_DF11 || rec->raw_size > 100000) continue;
        uint8_t *const frame = malloc(rec->size), *const cpu = malloc(rec->raw_size);
        for (unsigned round = 0; round < df11_rounds; round++) {
            tp_error error = {0}, cpu_error = {0};
            tp_frame_view view;
            tp_status on_device = TP_OK;
            memcpy(frame, rec->frame, rec->size);
            assert_int_equal(tp_frame_validate(frame, rec->size, true, &view, &error), TP_OK);
            for (unsigned k = 1 + random_below(8) / 7; k; k--) damage_df11(frame, &view);
            hash_again(frame, rec->size);
            if (tp_frame_validate(frame, rec->size, true, &view, &error) != TP_OK) continue;
            tp_status on_cpu = tp_df11_open(&view.df11, &decoder, &cpu_error);
            if (on_cpu == TP_OK)
                on_cpu = tp_df11_decode(&decoder, 0, decoder.blocks, cpu, &workspace, &cpu_error);
            tp_batch_clear(&r.batch);
            assert_true(add(&r, frame, rec->size, 0, &error, &on_device));
            assert_ok(on_device, &error);
            on_device = run_batch(&r, &error);
            const bool by_kernel = on_device != TP_OK && strstr(error.message, "does not end as it must");
            if (by_kernel != (on_cpu != TP_OK))
                fail_msg("frame %zu, round %u: the CPU says '%s', the device '%s'", i, round,
                         cpu_error.message, error.message);
            read_output(&r, rec->raw_size);
            if (on_cpu == TP_OK) assert_memory_equal(cpu, r.back, rec->raw_size);
            ++*(on_cpu == TP_OK ? &good : &bad);
        }
        free(frame);
        free(cpu);
    }
    rig_close(&r);
    assert_true(bad > df11_rounds / 8 && good > 0);
}

static bool same_kind(const record *a, const record *b)
{
    return memcmp(a->frame + 4, b->frame + 4, 5) == 0 && a->frame[12] == b->frame[12] &&
           a->frame[13] == b->frame[13];
}

static void swap_records(size_t a, size_t b)
{
    const record r = records[a];
    records[a] = records[b];
    records[b] = r;
}

int run_frames(const char *corpus, bool few)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_frames),
        cmocka_unit_test(damaged_frames),
        cmocka_unit_test(hostile_frames),
        cmocka_unit_test(df11_verdicts),
    };
    corpus_path = corpus;
    read_corpus();
    used_count = record_count;
    least_bad = 50;
    df11_rounds = 40;
    if (few) {
        /* The smallest of each kind: by codec, class, symbol bits, elements per symbol, flags, tables per
         * stream. */
        size_t kept = 0;
        for (size_t i = 0; i < record_count; i++) {
            size_t k = 0;
            while (k < kept && !same_kind(&records[k], &records[i])) k++;
            if (k == kept) {
                swap_records(kept++, i);
            } else if (records[i].raw_size < records[k].raw_size) {
                swap_records(k, i);
            }
        }
        used_count = kept;
        least_bad = 5;
        df11_rounds = 24;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < record_count; i++) {
        free(records[i].frame);
        free(records[i].raw);
    }
    free(records);
    return failed;
}
