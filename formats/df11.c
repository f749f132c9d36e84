#include "formats/df11.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "formats/json.h"
#include "formats/layout.h"

#define METADATA_MAX ((uint64_t)64 << 20) /* of a header whose metadata is read */
#define NAME_MAX_SIZE 16384               /* of a regex, of an attribute's path */

static tp_status no_memory(tp_error *error)
{
    return tp_error_set(error, TP_NO_MEMORY, "out of memory");
}

/* --------------------------------------------------------------------------------------------- text */

void tp_text_add(tp_text_buffer *text, const char *data, size_t size)
{
    if (text->failed) return;
    if (size >= text->capacity - text->size || !text->data) {
        size_t capacity = text->capacity ? text->capacity : 256;
        while (capacity - text->size <= size) {
            if (capacity > SIZE_MAX / 2) {
                text->failed = true;
                return;
            }
            capacity *= 2;
        }
        char *grown = realloc(text->data, capacity);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    if (size) memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = 0;
}

void tp_text_print(tp_text_buffer *text, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int size = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= sizeof line)
        text->failed = true;
    else
        tp_text_add(text, line, (size_t)size);
}

void tp_text_quote(tp_text_buffer *text, const char *data, size_t size)
{
    tp_text_add(text, "\"", 1);
    for (size_t from = 0; from < size;) {
        size_t to = from;
        while (to < size && (unsigned char)data[to] >= 0x20 && data[to] != '"' && data[to] != '\\') to++;
        tp_text_add(text, data + from, to - from);
        if (to < size && (data[to] == '"' || data[to] == '\\')) {
            tp_text_add(text, "\\", 1);
            tp_text_add(text, data + to, 1);
        } else if (to < size) {
            tp_text_print(text, "\\u%04x", (unsigned char)data[to]);
        }
        from = to + 1;
    }
    tp_text_add(text, "\"", 1);
}

/* -------------------------------------------------------------------------------------------- names */

#define NAME(id, name) name,
const char *const tp_df11_array_names[TP_DF11_ARRAYS] = {TP_DF11_ARRAY_LIST(NAME)};
#undef NAME

bool tp_df11_is_array(const char *name, size_t size, tp_df11_array *array, size_t *unit_size)
{
    for (int a = 0; a < TP_DF11_ARRAYS; a++) {
        const size_t length = strlen(tp_df11_array_names[a]);
        if (size < length + 2 || name[size - length - 1] != '.') continue;
        if (memcmp(name + size - length, tp_df11_array_names[a], length) != 0) continue;
        *array = (tp_df11_array)a;
        *unit_size = size - length - 1;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------------------------------ patterns */

/* Of matching one name: what a real pattern needs is some hundreds of steps, and no memory to speak of. */
#define MATCH_STEPS_MAX 100000
#define MATCH_MEMORY_KIB 4096
/* Of all patterns together: a short one can be compiled into a hundred thousand bytes. */
#define COMPILED_MAX ((size_t)64 << 20)

/* Behind the '[' of a class: where its ']' is, or NULL. No classes in it, and of escapes only a few. */
static const char *class_end(const char *p)
{
    if (*p == '^') p++;
    if (*p == ']') return NULL;
    for (; *p != ']'; p++) {
        if (!*p || *p == '[') return NULL;
        if (*p == '\\' && (!*++p || !strchr("dw._-]\\", *p))) return NULL;
    }
    return p;
}

/*
 * Whether a regex means the same to Python, whose syntax the patterns have, and to PCRE2: literals, escaped
 * punctuation, \d and \w, classes, groups, | and quantifiers. PCRE2 finds what else is wrong with it.
 */
static bool is_known_syntax(const char *regex)
{
    for (const char *p = regex; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == '^' || *p == '$')
            return false; /* the whole name is matched */
        if (*p == '\\') {
            if (!*++p || !strchr("dw.[]{}()*+?|^$\\-_/", *p)) return false;
        } else if (*p == '[') {
            p = class_end(p + 1);
            if (!p) return false;
        } else if (*p == '(') {
            if (p[1] == '*' || (p[1] == '?' && p[2] != ':')) return false;
            if (p[1] == '?') p += 2;
        } else if (*p == '{') {
            if (p[1] < '0' || p[1] > '9') return false;
        }
    }
    return true;
}

static tp_status compile(tp_df11_patterns *patterns, tp_df11_pattern *pattern, const char *shown,
                         tp_error *error)
{
    int code;
    PCRE2_SIZE at;
    pattern->compiled = pcre2_compile((PCRE2_SPTR)pattern->regex, PCRE2_ZERO_TERMINATED,
                                      PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF | PCRE2_UCP |
                                          PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C,
                                      &code, &at, NULL);
    if (!pattern->compiled) {
        char reason[160];
        if (code == PCRE2_ERROR_HEAP_FAILED) return no_memory(error);
        if (pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason) < 0) reason[0] = 0;
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "pattern '%s': is not a valid regular expression: %s (at character %zu)", shown,
                            reason, (size_t)at);
    }
    size_t size;
    if (pcre2_pattern_info(pattern->compiled, PCRE2_INFO_SIZE, &size) != 0 ||
        size > COMPILED_MAX - patterns->compiled_size)
        return tp_error_set(error, TP_LIMIT, "pattern '%s': is too large together with those before it",
                            shown);
    patterns->compiled_size += size;
    return TP_OK;
}

static tp_status prepare_matching(tp_df11_patterns *patterns, tp_error *error)
{
    if (!patterns->match_data) patterns->match_data = pcre2_match_data_create(1, NULL);
    if (!patterns->match_context) patterns->match_context = pcre2_match_context_create(NULL);
    if (!patterns->match_data || !patterns->match_context) return no_memory(error);
    pcre2_set_match_limit(patterns->match_context, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(patterns->match_context, MATCH_MEMORY_KIB);
    return TP_OK;
}

tp_status tp_df11_patterns_add(tp_df11_patterns *patterns, const char *regex, const char *const *attrs,
                               size_t attr_count, tp_error *error)
{
    char shown[TP_SHOWN_SIZE];
    tp_show(shown, regex, strlen(regex));
    if (!*regex || strlen(regex) > NAME_MAX_SIZE || !is_known_syntax(regex))
        return tp_error_set(error, TP_INVALID_ARGUMENT,
                            "pattern '%s': is not a regular expression of the sort known here", shown);
    const tp_status status = prepare_matching(patterns, error);
    if (status) return status;
    if (patterns->count == patterns->capacity) {
        const size_t capacity = patterns->capacity ? 2 * patterns->capacity : 16;
        tp_df11_pattern *list = realloc(patterns->list, capacity * sizeof *list);
        if (!list) return no_memory(error);
        patterns->list = list;
        patterns->capacity = capacity;
    }
    tp_df11_pattern *pattern = &patterns->list[patterns->count++]; /* from here on freed with the rest */
    *pattern = (tp_df11_pattern){.regex = strdup(regex), .attrs = calloc(attr_count + 1, sizeof(char *))};
    if (!pattern->regex || !pattern->attrs) return no_memory(error);
    for (size_t i = 0; i < attr_count; i++) {
        pattern->attrs[i] = strdup(attrs[i]);
        if (!pattern->attrs[i]) return no_memory(error);
        pattern->attr_count++;
    }
    return compile(patterns, pattern, shown, error);
}

void tp_df11_patterns_free(tp_df11_patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++) {
        tp_df11_pattern *p = &patterns->list[i];
        for (size_t k = 0; k < p->attr_count; k++) free(p->attrs[k]);
        free(p->attrs);
        free(p->regex);
        pcre2_code_free(p->compiled);
    }
    pcre2_match_data_free(patterns->match_data);
    pcre2_match_context_free(patterns->match_context);
    free(patterns->list);
    *patterns = (tp_df11_patterns){0};
}

tp_status tp_df11_patterns_match(const tp_df11_patterns *patterns, const char *module,
                                 const tp_df11_pattern **found, tp_error *error)
{
    *found = NULL;
    for (size_t i = 0; i < patterns->count && !*found; i++) {
        const tp_df11_pattern *pattern = &patterns->list[i];
        const int result = pcre2_match(pattern->compiled, (PCRE2_SPTR)module, strlen(module), 0, 0,
                                       patterns->match_data, patterns->match_context);
        if (result >= 0) {
            *found = pattern;
        } else if (result == PCRE2_ERROR_NOMEMORY) {
            return no_memory(error);
        } else if (result != PCRE2_ERROR_NOMATCH) {
            char shown[TP_SHOWN_SIZE], name[TP_SHOWN_SIZE];
            tp_show(shown, pattern->regex, strlen(pattern->regex));
            tp_show(name, module, strlen(module));
            return tp_error_set(error, TP_LIMIT, "pattern '%s': takes too many steps to match '%s'", shown,
                                name);
        }
    }
    return TP_OK;
}

static tp_status add_member(tp_df11_patterns *patterns, const cJSON *item, tp_error *error)
{
    char shown[TP_SHOWN_SIZE];
    tp_show(shown, item->string, strlen(item->string));
    const int count = cJSON_IsArray(item) ? cJSON_GetArraySize(item) : -1;
    const char **attrs = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *attrs);
    if (!attrs) return no_memory(error);
    bool strings = count >= 0;
    size_t n = 0;
    for (const cJSON *child = strings ? item->child : NULL; child; child = child->next) {
        strings = strings && cJSON_IsString(child) && *child->valuestring &&
                  strlen(child->valuestring) <= NAME_MAX_SIZE;
        attrs[n++] = cJSON_IsString(child) ? child->valuestring : "";
    }
    const tp_status status =
        strings ? tp_df11_patterns_add(patterns, item->string, attrs, n, error)
                : tp_error_set(error, TP_INVALID_ARGUMENT, "pattern '%s': has no list of names", shown);
    free(attrs);
    return status;
}

tp_status tp_df11_patterns_parse(const char *text, size_t size, tp_df11_patterns *patterns, tp_error *error)
{
    *patterns = (tp_df11_patterns){0};
    cJSON *tree;
    tp_status status = tp_json_parse(text, size, &tree, error);
    const cJSON *at = tree;
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(at, "dfloat11_config");
    if (cJSON_IsObject(inner)) at = inner;
    inner = cJSON_GetObjectItemCaseSensitive(at, "pattern_dict");
    if (cJSON_IsObject(inner)) at = inner;
    if (!status && !cJSON_IsObject(at))
        status = tp_error_set(error, TP_INVALID_ARGUMENT, "is not a pattern dictionary (a JSON object)");
    for (const cJSON *item = status ? NULL : at->child; item && !status; item = item->next)
        status = add_member(patterns, item, error);
    cJSON_Delete(tree);
    if (status) tp_df11_patterns_free(patterns);
    return status;
}

/* ------------------------------------------------------------------------------------------- config */

static bool is_number(const cJSON *item, int value)
{
    return cJSON_IsNumber(item) && item->valuedouble == value;
}

tp_status tp_df11_config_parse(const char *text, size_t size, tp_df11_config *config, tp_error *error)
{
    *config = (tp_df11_config){0};
    cJSON *tree;
    tp_status status = tp_json_parse(text, size, &tree, error);
    if (!status && !cJSON_IsObject(tree))
        status = tp_error_set(error, TP_INVALID_ARGUMENT, "is not a JSON object");
    const cJSON *family = cJSON_GetObjectItemCaseSensitive(tree, "_class_name");
    config->diffusers = cJSON_IsString(family);
    if (!config->diffusers) family = cJSON_GetObjectItemCaseSensitive(tree, "model_type");
    if (cJSON_IsString(family) && strlen(family->valuestring) < sizeof config->family)
        strcpy(config->family, family->valuestring);
    config->tied = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tree, "tie_word_embeddings"));
    const cJSON *df11 = cJSON_GetObjectItemCaseSensitive(tree, "dfloat11_config");
    if (cJSON_IsObject(df11)) {
        config->has_df11 = true;
        const cJSON *version = cJSON_GetObjectItemCaseSensitive(df11, "version");
        config->old = cJSON_IsString(version) && strncmp(version->valuestring, "0.1", 3) == 0 &&
                      (version->valuestring[3] == '.' || !version->valuestring[3]);
        const cJSON *threads = cJSON_GetObjectItemCaseSensitive(df11, "threads_per_block");
        if (cJSON_IsArray(threads)) threads = threads->child;
        const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(df11, "bytes_per_thread");
        if (!status && !config->old &&
            ((threads && !is_number(threads, 512)) || (bytes && !is_number(bytes, 8))))
            status =
                tp_error_set(error, TP_UNSUPPORTED,
                             "dfloat11_config: only 512 threads a block and 8 bytes a thread are known");
    }
    cJSON_Delete(tree);
    return status;
}

static size_t skip_space(const char *text, size_t size, size_t at)
{
    while (at < size && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) at++;
    return at;
}

/* The end of the string or other value that starts at `at`, in text that is valid JSON; size if it is not.
 */
static size_t skip_value(const char *text, size_t size, size_t at)
{
    size_t depth = 0;
    for (bool string = false; at < size; at++) {
        const char c = text[at];
        if (string) {
            if (c == '\\')
                at++;
            else if (c == '"')
                string = false;
            if (!string && !depth) return at + 1;
            continue;
        }
        if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (!depth) return at;
            if (!--depth) return at + 1;
        } else if (!depth && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t')) {
            return at;
        }
    }
    return size;
}

/* A member of the outermost object. */
typedef struct member {
    size_t before; /* the end of what stands before it: the comma, the brace or the value */
    size_t start, value, end;
    bool first, found;
} member;

/* Finds the member of that name, or, if there is none (NULL: never), where the last member ends (`before`).
 */
static member find_member(const char *text, size_t size, const char *name)
{
    member m = {.first = true};
    size_t at = skip_space(text, size, 0);
    if (at >= size || text[at] != '{') return m;
    m.before = ++at;
    const size_t length = name ? strlen(name) : 0;
    for (;;) {
        m.start = at = skip_space(text, size, at);
        if (at >= size || text[at] != '"') break;
        const size_t key_end = skip_value(text, size, at);
        const bool same = name && key_end - at == length + 2 && memcmp(text + at + 1, name, length) == 0;
        at = skip_space(text, size, key_end);
        if (at >= size || text[at] != ':') break;
        m.value = at = skip_space(text, size, at + 1);
        m.end = at = skip_value(text, size, at);
        if (same) {
            m.found = true;
            return m;
        }
        m.first = false;
        m.before = m.end;
        at = skip_space(text, size, at);
        if (at >= size || text[at] != ',') break;
        at++;
    }
    return m;
}

tp_status tp_df11_config_add(const char *text, size_t size, const tp_df11_patterns *patterns, char **result,
                             tp_error *error)
{
    const member m = find_member(text, size, NULL);
    tp_text_buffer b = {0};
    tp_text_add(&b, text, m.before);
    tp_text_print(
        &b,
        "%s\n  \"dfloat11_config\": {\n    \"version\": \"0.5.0\",\n    \"threads_per_block\": [\n"
        "      512\n    ],\n    \"bytes_per_thread\": 8,\n    \"pattern_dict\": {",
        m.first ? "" : ",");
    for (size_t i = 0; i < patterns->count; i++) {
        const tp_df11_pattern *p = &patterns->list[i];
        tp_text_print(&b, "%s\n      ", i ? "," : "");
        tp_text_quote(&b, p->regex, strlen(p->regex));
        tp_text_print(&b, ": [");
        for (size_t k = 0; k < p->attr_count; k++) {
            tp_text_print(&b, "%s\n        ", k ? "," : "");
            tp_text_quote(&b, p->attrs[k], strlen(p->attrs[k]));
        }
        tp_text_print(&b, p->attr_count ? "\n      ]" : "]");
    }
    tp_text_print(&b, "\n    }\n  }%s", m.first ? "\n" : "");
    tp_text_add(&b, text + m.before, size - m.before);
    if (b.failed) {
        free(b.data);
        return no_memory(error);
    }
    *result = b.data;
    return TP_OK;
}

tp_status tp_df11_config_remove(const char *text, size_t size, char **result, bool *empty, tp_error *error)
{
    const member m = find_member(text, size, "dfloat11_config");
    size_t from = size, to = size;
    if (m.found) {
        from = m.before;
        to = m.end;
        if (m.first) { /* the comma behind it goes with it */
            const size_t at = skip_space(text, size, to);
            if (at < size && text[at] == ',') to = at + 1;
        }
    }
    tp_text_buffer b = {0};
    tp_text_add(&b, text, from);
    tp_text_add(&b, text + to, size - to);
    if (b.failed) {
        free(b.data);
        return no_memory(error);
    }
    *result = b.data;
    size_t at = skip_space(b.data, b.size, 0);
    *empty = at < b.size && b.data[at] == '{';
    at = skip_space(b.data, b.size, at + 1);
    *empty = *empty && at < b.size && b.data[at] == '}';
    return TP_OK;
}

/* ------------------------------------------------------------------------------------------ metadata */

tp_status tp_safetensors_metadata(const tp_source *source, tp_metadata_fn fn, void *context,
                                  tp_error *error)
{
    uint8_t bytes[8];
    uint64_t length = 0;
    if (source->size < 10) return TP_OK;
    tp_status status = source->read(source->context, bytes, sizeof bytes, 0, error);
    if (status) return status;
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    if (length > source->size - 8 || length > METADATA_MAX) return TP_OK;
    char *header = malloc((size_t)length + 1);
    if (!header) return no_memory(error);
    status = source->read(source->context, header, (size_t)length, 8, error);
    const member m = status ? (member){0} : find_member(header, (size_t)length, "__metadata__");
    if (!status && m.found) {
        cJSON *tree;
        status = tp_json_parse(header + m.value, m.end - m.value, &tree, error);
        for (const cJSON *item = cJSON_IsObject(tree) ? tree->child : NULL; item && !status;
             item = item->next)
            if (cJSON_IsString(item)) status = fn(context, item->string, item->valuestring, error);
        cJSON_Delete(tree);
    }
    free(header);
    return status;
}

tp_status tp_df11_shapes_parse(const char *text, tp_shape_fn fn, void *context, tp_error *error)
{
    cJSON *tree;
    tp_status status = tp_json_parse(text, strlen(text), &tree, error);
    if (!status && !cJSON_IsObject(tree))
        status = tp_error_set(error, TP_CORRUPT, "its shapes are no JSON object");
    for (const cJSON *item = status ? NULL : tree->child; item && !status; item = item->next) {
        uint64_t dims[16];
        size_t ndim = 0;
        bool good = cJSON_IsArray(item);
        for (const cJSON *child = good ? item->child : NULL; child && good; child = child->next) {
            good = ndim < 16 && cJSON_IsNumber(child) && child->valuedouble >= 0 &&
                   child->valuedouble < 0x1p53;
            if (good) dims[ndim++] = (uint64_t)child->valuedouble;
        }
        status = good ? fn(context, item->string, dims, ndim, error)
                      : tp_error_set(error, TP_CORRUPT, "its shapes are not lists of numbers");
    }
    cJSON_Delete(tree);
    return status;
}

/* ------------------------------------------------------------------------------------------- families */

#define LM_EDGES                                                                                           \
    {"lm_head", {NULL}},                                                                                   \
    {                                                                                                      \
        "model\\.embed_tokens",                                                                            \
        {                                                                                                  \
            NULL                                                                                           \
        }                                                                                                  \
    }
#define LLAMA                                                                                              \
    {                                                                                                      \
        LM_EDGES,                                                                                          \
        {                                                                                                  \
            "model\\.layers\\.\\d+",                                                                       \
            {                                                                                              \
                "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",            \
                    "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"                                        \
            }                                                                                              \
        }                                                                                                  \
    }

#define FLUX_DIFFUSERS                                                                                     \
    {                                                                                                      \
        {"transformer_blocks\\.\\d+",                                                                      \
         {"norm1.linear", "norm1_context.linear", "attn.to_q", "attn.to_k", "attn.to_v",                   \
          "attn.add_k_proj", "attn.add_v_proj", "attn.add_q_proj", "attn.to_out.0", "attn.to_add_out",     \
          "ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"}},                      \
        {                                                                                                  \
            "single_transformer_blocks\\.\\d+",                                                            \
            {                                                                                              \
                "norm.linear", "proj_mlp", "proj_out", "attn.to_q", "attn.to_k", "attn.to_v"               \
            }                                                                                              \
        }                                                                                                  \
    }

const tp_df11_known tp_df11_known_families[] = {
    {"llama", NULL, LLAMA},
    {"mistral", NULL, LLAMA},
    {"qwen2", NULL, LLAMA},
    {"qwen3", NULL, LLAMA},
    {"gemma", NULL, LLAMA},
    {"gemma2", NULL, LLAMA},
    {"gemma3_text", NULL, LLAMA},
    {"phi3",
     NULL,
     {LM_EDGES,
      {"model\\.layers\\.\\d+",
       {"self_attn.o_proj", "self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj"}}}},
    {"phi",
     NULL,
     {LM_EDGES,
      {"model\\.layers\\.\\d+",
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense", "mlp.fc1",
        "mlp.fc2"}}}},
    {"FluxTransformer2DModel", NULL, FLUX_DIFFUSERS},
    {"SD3Transformer2DModel",
     NULL,
     {{"transformer_blocks\\.\\d+",
       {"norm1.linear", "norm1_context.linear", "attn.to_q", "attn.to_k", "attn.to_v", "attn.add_k_proj",
        "attn.add_v_proj", "attn.add_q_proj", "attn.to_out.0", "attn.to_add_out", "ff.net.0.proj",
        "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2", "attn2.to_q", "attn2.to_k", "attn2.to_v",
        "attn2.to_out.0"}}}},
    {"WanTransformer3DModel",
     NULL,
     {{"blocks\\.\\d+",
       {"attn1.to_q", "attn1.to_k", "attn1.to_v", "attn1.to_out.0", "attn2.to_q", "attn2.to_k",
        "attn2.to_v", "attn2.add_k_proj", "attn2.add_v_proj", "attn2.to_out.0", "ffn.net.0.proj",
        "ffn.net.2"}}}},
    {NULL,
     "double_blocks.0.img_attn.qkv.weight", /* FLUX.1 as ComfyUI has it */
     {{"double_blocks\\.\\d+",
       {"img_mod.lin", "img_attn.qkv", "img_attn.proj", "img_mlp.0", "img_mlp.2", "txt_mod.lin",
        "txt_attn.qkv", "txt_attn.proj", "txt_mlp.0", "txt_mlp.2"}},
      {"single_blocks\\.\\d+", {"linear1", "linear2", "modulation.lin"}}}},
};
const size_t tp_df11_known_count = sizeof tp_df11_known_families / sizeof *tp_df11_known_families;
