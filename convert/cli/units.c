/* What inspect says about the DFloat11 units of a file, which are known by the names of their tensors. */
#include "units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/text.h"
#include "formats/df11.h"
#include "verbs.h"

struct df11_unit {
    tp_text name;
    uint64_t weights, bytes, tensors; /* weights; bytes of its arrays; tensors it was made of */
};

/* The unit whose luts a tensor is, if all of its arrays are in the same file. */
static bool find_unit(const tp_reader *reader, const tp_tensor_info *luts, struct df11_unit *unit)
{
    tp_df11_array array;
    size_t size;
    if (!tp_df11_is_array(luts->name.data, luts->name.size, &array, &size) || array != TP_DF11_LUTS)
        return false;
    *unit = (struct df11_unit){.name = {luts->name.data, size}};
    char *name = malloc(size + 32);
    if (!name) return false;
    memcpy(name, luts->name.data, size);
    bool all = true;
    for (int a = 0; a < TP_DF11_ARRAYS && all; a++) {
        const int end = snprintf(name + size, 32, ".%s", tp_df11_array_names[a]);
        size_t number;
        tp_tensor_info t;
        all = tp_reader_find(reader, luts->file, name, size + (size_t)end, &number) == TP_OK &&
              tp_reader_tensor(reader, number, &t) == TP_OK &&
              !__builtin_add_overflow(unit->bytes, t.nbytes, &unit->bytes);
        if (!all) break;
        if (a == TP_DF11_SIGN_MANTISSA) unit->weights = t.nbytes;
        if (a == TP_DF11_SPLIT_POSITIONS) unit->tensors = t.nbytes / 8 + 1;
    }
    free(name);
    return all;
}

static double bits(const struct df11_unit *unit)
{
    return unit->weights ? 8.0 * (double)unit->bytes / (double)unit->weights : 0;
}

void text_units(const tp_reader *reader, const tp_file_info *file, bool each)
{
    struct df11_unit unit, sum = {.weights = 0};
    uint64_t count = 0;
    for (int pass = 0; pass < (each ? 2 : 1); pass++) {
        for (size_t i = 0; i < file->tensors; i++) {
            tp_tensor_info t;
            if (tp_reader_tensor(reader, file->first_tensor + i, &t) != TP_OK) break;
            if (!find_unit(reader, &t, &unit)) continue;
            if (pass) {
                char shown[512];
                printf("  unit %s: %s in %s, %s, %.3f bits a weight\n",
                       tp_text_escape(unit.name.data, unit.name.size, shown, sizeof shown),
                       counted(unit.weights, "weight"), counted(unit.tensors, "tensor"),
                       counted(unit.bytes, "byte"), bits(&unit));
                continue;
            }
            count++;
            if (__builtin_add_overflow(sum.weights, unit.weights, &sum.weights)) sum.weights = UINT64_MAX;
            if (__builtin_add_overflow(sum.bytes, unit.bytes, &sum.bytes)) sum.bytes = UINT64_MAX;
        }
        if (!count) return;
        if (!pass)
            printf("  DFloat11: %s, %s, %s, %.3f bits a weight\n", counted(count, "unit"),
                   counted(sum.weights, "weight"), counted(sum.bytes, "byte"), bits(&sum));
    }
}
