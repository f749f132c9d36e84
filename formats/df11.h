/*
 * DFloat11 checkpoints by their names and texts (docs/dfloat11.md): which tensors form a unit, which
 * modules a pattern dictionary makes units of, config.json, and what tensorpress keeps in `__metadata__`.
 */
#ifndef TP_FORMATS_DF11_H
#define TP_FORMATS_DF11_H

#include "formats/formats.h"

/* The arrays of a unit NAME are tensors NAME.luts, NAME.gaps, ... */
#define TP_DF11_ARRAY_LIST(X)                                                                              \
    X(TP_DF11_LUTS, "luts")                                                                                \
    X(TP_DF11_ENCODED_EXPONENT, "encoded_exponent")                                                        \
    X(TP_DF11_SIGN_MANTISSA, "sign_mantissa")                                                              \
    X(TP_DF11_OUTPUT_POSITIONS, "output_positions")                                                        \
    X(TP_DF11_GAPS, "gaps")                                                                                \
    X(TP_DF11_SPLIT_POSITIONS, "split_positions")
#define TP_DF11_ARRAY_ENUM(id, name) id,
typedef enum tp_df11_array { TP_DF11_ARRAY_LIST(TP_DF11_ARRAY_ENUM) TP_DF11_ARRAYS } tp_df11_array;
#undef TP_DF11_ARRAY_ENUM
extern const char *const tp_df11_array_names[TP_DF11_ARRAYS];

/* Whether a tensor is called like an array of a unit, of which the first *unit_size bytes are the unit's
 * name. */
bool tp_df11_is_array(const char *name, size_t size, tp_df11_array *array, size_t *unit_size);

/* ------------------------------------------------------------------------------------------ patterns */

typedef struct tp_df11_pattern {
    char *regex;  /* Python's, matched against the whole name of a module */
    char **attrs; /* paths below the module, whose .weight form the unit, in this order; none: its own
                     .weight */
    size_t attr_count;
    struct pcre2_real_code_8 *compiled;
} tp_df11_pattern;

/* In the order in which they are tried. */
typedef struct tp_df11_patterns {
    tp_df11_pattern *list;
    size_t count, capacity;
    size_t compiled_size; /* bytes of all */
    struct pcre2_real_match_data_8 *match_data;
    struct pcre2_real_match_context_8 *match_context;
} tp_df11_patterns;

/*
 * From JSON: a pattern dictionary itself, or an object with one under "pattern_dict" or under
 * "dfloat11_config" and that. TP_INVALID_ARGUMENT (the message tells why), TP_NO_MEMORY.
 */
tp_status tp_df11_patterns_parse(const char *text, size_t size, tp_df11_patterns *patterns,
                                 tp_error *error);
/* Copies its texts. The same errors, the first for a pattern that is not understood; TP_LIMIT: too many. */
tp_status tp_df11_patterns_add(tp_df11_patterns *patterns, const char *regex, const char *const *attrs,
                               size_t attr_count, tp_error *error);
void tp_df11_patterns_free(tp_df11_patterns *patterns);
/* The first that matches, or NULL. `module` ends in a NUL. TP_LIMIT: a pattern that takes too long to match,
 * TP_NO_MEMORY. One thread at a time. */
tp_status tp_df11_patterns_match(const tp_df11_patterns *patterns, const char *module,
                                 const tp_df11_pattern **found, tp_error *error);

/* ------------------------------------------------------------------------------------------- config */

/* What config.json says, as far as it matters here. */
typedef struct tp_df11_config {
    char family[64]; /* model_type, or _class_name of diffusers; "" */
    bool diffusers;
    bool tied;     /* tie_word_embeddings */
    bool has_df11; /* there is a dfloat11_config */
    bool old;      /* ... of version 0.1, whose format is another */
} tp_df11_config;

/* TP_INVALID_ARGUMENT: not a JSON object. TP_UNSUPPORTED: threads or bytes per thread that no kernel has.
 */
tp_status tp_df11_config_parse(const char *text, size_t size, tp_df11_config *config, tp_error *error);

/*
 * The text with "dfloat11_config" put behind its last member, or taken out; all else stays as it was. The
 * result, from malloc, ends in a NUL. TP_NO_MEMORY.
 */
tp_status tp_df11_config_add(const char *text, size_t size, const tp_df11_patterns *patterns, char **result,
                             tp_error *error);
tp_status tp_df11_config_remove(const char *text, size_t size, char **result, bool *empty, tp_error *error);

/* The families that are known, each with its pattern dictionary. */
typedef struct tp_df11_known_pattern {
    const char *regex;
    const char *attrs[20]; /* up to a NULL */
} tp_df11_known_pattern;
typedef struct tp_df11_known {
    const char *family; /* as in tp_df11_config; NULL: recognised by a tensor's name */
    const char *tensor;
    tp_df11_known_pattern patterns[5]; /* up to one without regex */
} tp_df11_known;
extern const tp_df11_known tp_df11_known_families[];
extern const size_t tp_df11_known_count;

/* ------------------------------------------------------------------------------------------ metadata */

/*
 * Calls fn for the members of `__metadata__` in the header of a safetensors file that tp_layout_parse has
 * accepted. Headers above 64 MiB are taken to have none. fn returning anything but TP_OK ends it.
 */
typedef tp_status (*tp_metadata_fn)(void *context, const char *key, const char *value, tp_error *error);
tp_status tp_safetensors_metadata(const tp_source *source, tp_metadata_fn fn, void *context,
                                  tp_error *error);

/* A JSON object of shapes, {"NAME": [1, 2], ...}: calls fn for each. TP_CORRUPT: it is none. */
typedef tp_status (*tp_shape_fn)(void *context, const char *name, const uint64_t *dims, size_t ndim,
                                 tp_error *error);
tp_status tp_df11_shapes_parse(const char *text, tp_shape_fn fn, void *context, tp_error *error);

/* --------------------------------------------------------------------------------------------- text */

/* A growing text; after a failed allocation `failed` is set and nothing more is added. */
typedef struct tp_text_buffer {
    char *data; /* ends in a NUL once something was added */
    size_t size, capacity;
    bool failed;
} tp_text_buffer;
void tp_text_add(tp_text_buffer *text, const char *data, size_t size);
void tp_text_print(tp_text_buffer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* In quotes, as JSON. */
void tp_text_quote(tp_text_buffer *text, const char *data, size_t size);

#endif
