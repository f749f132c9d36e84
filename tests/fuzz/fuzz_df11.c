/*
 * DFloat11. Elements made of any bytes are coded and come back, or are refused for their exponents; a unit
 * that was changed in any way, or that was never one, is refused or decoded within its buffers, and in
 * pieces as in one go; any texts are pattern dictionaries, config.json and metadata, or are not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/bytes.h"
#include "codec/df11.h"
#include "formats/df11.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static uint8_t *exact(const void *data, size_t size)
{
    uint8_t *p = malloc(size ? size : 1);
    require(p != NULL, "no memory");
    if (data && size) memcpy(p, data, size);
    return p;
}

/* Decodes in one go, and block by block: both agree. Returns the elements, or NULL. */
static uint8_t *decode(const tp_df11_unit *unit)
{
    tp_df11_decoder *decoder = aligned_alloc(64, (sizeof *decoder + 63) / 64 * 64);
    tp_df11_workspace *workspace = malloc(sizeof *workspace);
    require(decoder && workspace, "no memory");
    tp_error error = {0};
    uint8_t *all = NULL;
    if (tp_df11_open(unit, decoder, &error)) {
        require(error.message[0] != 0, "an error without a message");
    } else {
        all = exact(NULL, 2 * (size_t)unit->elements);
        const tp_status status = tp_df11_decode(decoder, 0, decoder->blocks, all, workspace, &error);
        require(status == TP_OK || status == TP_CORRUPT, "an impossible status");
        bool good = true;
        for (uint32_t g = 0; g < decoder->blocks; g++) {
            const uint64_t from = tp_df11_position(decoder, g), to = tp_df11_position(decoder, g + 1);
            uint8_t *some = exact(NULL, 2 * (size_t)(to - from));
            if (tp_df11_decode(decoder, g, 1, some, workspace, NULL))
                good = false;
            else if (!status)
                require(memcmp(some, all + 2 * from, 2 * (size_t)(to - from)) == 0,
                        "a block decodes differently");
            free(some);
        }
        require(good == (status == TP_OK), "blocks and the whole disagree");
        if (status) {
            free(all);
            all = NULL;
        }
    }
    free(decoder);
    free(workspace);
    return all;
}

/* Elements and, after them, changes to the arrays: u16 place, u8 value. */
static void code(const uint8_t *data, size_t size)
{
    if (size < 4) return;
    const size_t changes = data[0] % 8, tail = 4 * changes;
    const size_t cut = data[1];
    const bool any = data[2] & 1;
    data += 3;
    size -= 3;
    if (size < tail + 2) return;
    const size_t n = (size - tail) / 2;
    uint8_t *elements = exact(data, 2 * n);
    const uint8_t *list = data + 2 * n;
    for (size_t i = 0; i < n && !any; i++) elements[2 * i + 1] &= 0xbf; /* exponents below 128 */
    const size_t first = n * cut / 256;
    tp_df11_part parts[2] = {{.elements = elements, .n = first},
                             {.elements = elements + 2 * first, .n = n - first}};
    static tp_df11_plan plan;
    tp_error error = {0};
    for (int p = 0; p < 2; p++) tp_df11_part_count(&parts[p]);
    const tp_status planned = tp_df11_plan_make(parts, 2, &plan, &error);
    bool high = false;
    for (size_t i = 0; i < n; i++) high |= (tp_load16(elements + 2 * i) >> 7 & 0xff) >= TP_DF11_SYMBOLS;
    require(planned == (high ? TP_UNSUPPORTED : TP_OK), "planned otherwise than the exponents say");
    if (planned) {
        free(elements);
        return;
    }
    uint8_t *arrays[5] = {exact(plan.code.luts, plan.luts_size), exact(NULL, plan.encoded_size),
                          exact(NULL, n), exact(NULL, plan.positions_size), exact(NULL, plan.gaps_size)};
    const size_t sizes[5] = {plan.luts_size, plan.encoded_size, n, plan.positions_size, plan.gaps_size};
    uint8_t *workspace = exact(NULL, plan.workspace_size);
    const tp_df11_output output = {.encoded_exponent = arrays[1],
                                   .sign_mantissa = arrays[2],
                                   .output_positions = arrays[3],
                                   .gaps = arrays[4],
                                   .workspace = workspace};
    for (int p = 0; p < 2; p++)
        require(tp_df11_part_encode(&plan, &parts[p], &output, &error) == TP_OK, "a part is not coded");
    tp_df11_plan_finish(&plan, parts, 2, &output);
    const tp_df11_unit unit = {.luts = arrays[0],
                               .luts_size = sizes[0],
                               .encoded_exponent = arrays[1],
                               .encoded_size = sizes[1],
                               .sign_mantissa = arrays[2],
                               .elements = n,
                               .output_positions = arrays[3],
                               .positions_size = sizes[3],
                               .gaps = arrays[4],
                               .gaps_size = sizes[4]};
    uint8_t *decoded = decode(&unit);
    require(decoded && memcmp(decoded, elements, 2 * n) == 0, "it does not come back");
    free(decoded);
    for (size_t i = 0; i < changes; i++, list += 4) {
        const size_t which = list[0] % 5;
        arrays[which][tp_load16(list + 1) % sizes[which]] = list[3];
    }
    if (changes) free(decode(&unit));
    for (int a = 0; a < 5; a++) free(arrays[a]);
    free(workspace);
    free(elements);
}

/* Five arrays of the sizes that are said. */
static void never_one(const uint8_t *data, size_t size)
{
    if (size < 8) return;
    const size_t encoded = tp_load16(data), elements = tp_load16(data + 2), rows = data[4] % 20,
                 split = data[5] % 4;
    const size_t blocks = (encoded + TP_DF11_BLOCK - 1) / TP_DF11_BLOCK;
    const size_t sizes[6] = {256 * rows, encoded, elements, 4 * (blocks + 1), TP_DF11_BLOCK_GAPS * blocks,
                             8 * split};
    uint8_t *arrays[6];
    size_t at = 8;
    for (int a = 0; a < 6; a++) { /* the arrays repeat what bytes there are */
        arrays[a] = exact(NULL, sizes[a]);
        for (size_t i = 0; i < sizes[a]; i++, at++)
            arrays[a][i] = size > 8 ? data[8 + (at - 8) % (size - 8)] : 0;
    }
    tp_store32(arrays[3], 0);
    tp_store32(arrays[3] + 4 * blocks, (uint32_t)elements);
    const tp_df11_unit unit = {.luts = arrays[0],
                               .luts_size = sizes[0],
                               .encoded_exponent = arrays[1],
                               .encoded_size = sizes[1],
                               .sign_mantissa = arrays[2],
                               .elements = sizes[2],
                               .output_positions = arrays[3],
                               .positions_size = sizes[3],
                               .gaps = arrays[4],
                               .gaps_size = sizes[4],
                               .split_positions = arrays[5],
                               .split_size = sizes[5]};
    free(decode(&unit));
    for (int a = 0; a < 6; a++) free(arrays[a]);
}

static tp_status take_shape(void *context, const char *name, const uint64_t *dims, size_t ndim,
                            tp_error *error)
{
    (void)name, (void)dims, (void)error;
    *(size_t *)context += ndim;
    return TP_OK;
}

static tp_status take_member(void *context, const char *key, const char *value, tp_error *error)
{
    (void)key;
    tp_df11_shapes_parse(value, take_shape, context, error);
    return TP_OK;
}

static void text(const uint8_t *data, size_t size)
{
    char *copy = (char *)exact(data, size);
    tp_error error = {0};
    tp_df11_patterns patterns;
    tp_df11_config config;
    size_t count = 0;
    if (tp_df11_patterns_parse(copy, size, &patterns, &error) == TP_OK) {
        const tp_df11_pattern *found;
        tp_df11_patterns_match(&patterns, "model.layers.12", &found, &error);
        char *result = NULL, *back = NULL;
        bool empty;
        const char *before = "{\n  \"a\": {\"}\": \"\\\"\"}\n}\n";
        require(tp_df11_config_add(before, strlen(before), &patterns, &result, &error) == TP_OK,
                "no memory");
        tp_df11_patterns again;
        require(tp_df11_patterns_parse(result, strlen(result), &again, &error) == TP_OK &&
                    again.count == patterns.count,
                "what was added is not what is read");
        tp_df11_patterns_free(&again);
        require(tp_df11_config_remove(result, strlen(result), &back, &empty, &error) == TP_OK &&
                    strcmp(back, before) == 0 && !empty,
                "the config is not what it was");
        free(result);
        free(back);
        tp_df11_patterns_free(&patterns);
    }
    tp_df11_config_parse(copy, size, &config, &error);
    char *result = NULL;
    bool empty;
    if (tp_df11_config_remove(copy, size, &result, &empty, &error) == TP_OK) free(result);
    tp_memory memory;
    const tp_source source = tp_source_memory(&memory, copy, size, "x.safetensors");
    tp_safetensors_metadata(&source, take_member, &count, &error);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    if (data[0] % 4 < 2)
        code(data + 1, size - 1);
    else if (data[0] % 4 == 2)
        never_one(data + 1, size - 1);
    else
        text(data + 1, size - 1);
    return 0;
}
