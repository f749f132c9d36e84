/*
 * Models in several files: the index of sharded safetensors, and the names of shards.
 *
 *     {"metadata":{"total_size":SIZE},"weight_map":{"TENSOR":"model-00001-of-00002.safetensors", ...}}
 *
 * The index is read to compare it with the files, never to find a byte in them: published ones are wrong
 * often.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/json.h"
#include "formats/layout.h"

/* Separators of values in an index. Each value costs cJSON an allocation or two, so this bounds its memory.
 */
#define SEPARATORS_MAX ((size_t)2 << 20)

static size_t count_separators(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++) count += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return count;
}

/* A size: an integer that a double holds exactly. */
static bool is_size(const cJSON *item)
{
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return value >= 0 && value <= 9007199254740992.0 && value == (double)(uint64_t)value;
}

/* What makes the tree no index, or NULL; counts the weights. */
static const char *find_fault(const cJSON *tree, const cJSON **weights, size_t *count)
{
    *weights = cJSON_IsObject(tree) ? cJSON_GetObjectItemCaseSensitive(tree, "weight_map") : NULL;
    *count = 0;
    if (!cJSON_IsObject(*weights)) return "it has no weight_map";
    for (const cJSON *item = (*weights)->child; item; item = item->next, ++*count)
        if (!cJSON_IsString(item)) return "its weight_map names something that is no file";
    return NULL;
}

tp_status tp_weight_map_parse(const char *text, size_t size, tp_weight_map *map, const char **fault,
                              tp_error *error)
{
    const cJSON *weights;
    *map = (tp_weight_map){0};
    *fault = "it is too large to be read";
    if (size > TP_WEIGHT_MAP_MAX || count_separators(text, size) > SEPARATORS_MAX) return TP_OK;
    *fault = "it is no JSON";
    cJSON *tree;
    const tp_status status = tp_json_parse(text, size, &tree, error);
    if (status || !tree) return status;
    *fault = find_fault(tree, &weights, &map->count);
    if (*fault) {
        cJSON_Delete(tree);
        map->count = 0;
        return TP_OK;
    }
    map->tree = tree;
    map->weights = malloc((map->count ? map->count : 1) * sizeof *map->weights);
    if (!map->weights) {
        tp_weight_map_free(map);
        return tp_error_set(error, TP_NO_MEMORY, "out of memory");
    }
    size_t i = 0;
    for (const cJSON *item = weights->child; item; item = item->next)
        map->weights[i++] = (tp_weight){item->string, item->valuestring};
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(tree, "metadata");
    const cJSON *total =
        cJSON_IsObject(metadata) ? cJSON_GetObjectItemCaseSensitive(metadata, "total_size") : NULL;
    map->has_total = is_size(total);
    if (map->has_total) map->total = (uint64_t)total->valuedouble;
    return TP_OK;
}

void tp_weight_map_free(tp_weight_map *map)
{
    cJSON_Delete(map->tree);
    free(map->weights);
    *map = (tp_weight_map){0};
}

static bool five_digits(const char *text, uint32_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *value = *value * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

bool tp_shard_name(const char *path, size_t size, const char *suffix, size_t *prefix, uint32_t *number,
                   uint32_t *count)
{
    static const char form[] = "-NNNNN-of-NNNNN";
    size_t suffix_size = strlen(suffix), form_size = sizeof form - 1;
    if (size < suffix_size + form_size || memcmp(path + size - suffix_size, suffix, suffix_size) != 0)
        return false;
    *prefix = size - suffix_size - form_size;
    const char *at = path + *prefix;
    return at[0] == '-' && five_digits(at + 1, number) && memcmp(at + 6, "-of-", 4) == 0 &&
           five_digits(at + 10, count);
}
