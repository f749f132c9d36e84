#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "progress.h"

#define LONG_ONLY 256 /* getopt's value of an option is its letter, or this + its id */
#define THREADS_MAX 1024
#define TENSOR_NAME 1 /* of "FILE NAME": the one argument that is no path, and may be empty */

static const struct definition {
    const char *name;
    int letter;
    const char *value, *help;
} definitions[OPTION_COUNT] = {
#define OPTION_DEFINITION(id, name, letter, value, help) {name, letter, value, help},
    OPTION_LIST(OPTION_DEFINITION)
#undef OPTION_DEFINITION
};

static uint32_t verb_options(const struct verb *verb)
{
    return verb->options | HAS(HELP) | HAS(VERSION);
}

static int getopt_value(int id)
{
    return definitions[id].letter ? definitions[id].letter : LONG_ONLY + id;
}

static int option_of_value(int value)
{
    if (value >= LONG_ONLY) return value - LONG_ONLY;
    for (int id = 0; id < OPTION_COUNT; id++)
        if (definitions[id].letter == value) return id;
    return -1;
}

bool parse_u64(const char *text, uint64_t *value)
{
    uint64_t v = 0;
    if (!*text) return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return false;
    }
    *value = v;
    return true;
}

/* "4096", "100K", "2G", "2GiB": powers of 1024. */
static bool parse_size(const char *text, uint64_t *value)
{
    char digits[24];
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n >= sizeof digits) return false;
    memcpy(digits, text, n);
    digits[n] = 0;
    uint64_t v;
    if (!parse_u64(digits, &v)) return false;
    const char *unit = text + n;
    unsigned shift = 0;
    if (*unit) {
        const char *letters = "KMGT";
        const char *at = strchr(letters, *unit == 'k' ? 'K' : *unit);
        if (!at || (unit[1] && strcmp(unit + 1, "iB") != 0)) return false;
        shift = 10 * (unsigned)(at - letters + 1);
    }
    if (v > UINT64_MAX >> shift) return false;
    *value = v << shift;
    return true;
}

static int set_level(const char *text, struct options *options)
{
    if (strcmp(text, "fast") == 0)
        options->level = TP_LEVEL_FAST;
    else if (strcmp(text, "default") == 0)
        options->level = TP_LEVEL_DEFAULT;
    else if (strcmp(text, "max") == 0)
        options->level = TP_LEVEL_MAX;
    else
        return fail_usage("--level %s: unknown level; use fast, default or max", text);
    return EXIT_OK;
}

static int set_codec(const char *text, struct options *options)
{
    static const struct {
        const char *name;
        tp_codec_choice choice;
    } codecs[] = {{"auto", TP_CODEC_AUTO},
                  {"raw", TP_CODEC_RAW},
                  {"lz4", TP_CODEC_LZ4},
                  {"bg-lz4", TP_CODEC_BG_LZ4},
                  {"rans", TP_CODEC_RANS},
                  {"df11", TP_CODEC_DF11}};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        if (strcmp(text, codecs[i].name) == 0) {
            options->codec = codecs[i].choice;
            return EXIT_OK;
        }
    }
    return fail_usage("--codec %s: unknown codec; use auto, raw, lz4, bg-lz4, rans or df11", text);
}

/* One option with its value; EXIT_OK or the status of an error that has been printed. */
static int apply(int id, const char *value, struct options *options)
{
    uint64_t number;
    /* An empty path names nothing, whatever it is for. */
    if ((id == OPTION_OUTPUT || id == OPTION_FILE || id == OPTION_AGAINST || id == OPTION_PATTERN_DICT ||
         id == OPTION_REFERENCE) &&
        !*value)
        return fail_help("--%s: the path is empty", definitions[id].name);
    switch (id) {
    case OPTION_OUTPUT:
        if (options->output) return fail_usage("-o %s: an output is named already; name one", value);
        options->output = value;
        break;
    case OPTION_STDOUT:
        options->to_stdout = true;
        break;
    case OPTION_FORCE:
        options->force = true;
        break;
    case OPTION_LEVEL:
        return set_level(value, options);
    case OPTION_CODEC:
        return set_codec(value, options);
    case OPTION_SHA256:
        options->sha256 = true;
        break;
    case OPTION_VERIFY:
        options->verify = true;
        break;
    case OPTION_DRY_RUN:
        options->dry_run = true;
        break;
    case OPTION_FILE:
        options->file = value;
        break;
    case OPTION_MAX_OUTPUT:
        /* 0 would mean no limit to the library. */
        if (!parse_size(value, &number) || number == 0)
            return fail_usage("--max-output %s: not a size; write bytes, or a number with K, M, G or T",
                              value);
        options->max_output = number;
        break;
    case OPTION_AGAINST:
        options->against = value;
        break;
    case OPTION_SLICE:
        options->slice = value;
        break;
    case OPTION_TO:
        options->to = value;
        break;
    case OPTION_PATTERN_DICT:
        options->pattern_dict = value;
        break;
    case OPTION_REFERENCE:
        options->reference = value;
        break;
    case OPTION_JSON:
        options->json = true;
        break;
    case OPTION_TENSORS:
        options->tensors = true;
        break;
    case OPTION_DIRECT:
        options->direct = true;
        break;
    case OPTION_DEVICE:
        options->device = value;
        break;
    case OPTION_KERNEL:
        options->kernel = value;
        break;
    case OPTION_THREADS:
        if (!parse_u64(value, &number) || number == 0 || number > THREADS_MAX)
            return fail_usage("-j %s: not a number of threads; use 1 to %d", value, THREADS_MAX);
        options->threads = (unsigned)number;
        break;
    case OPTION_PROGRESS:
        options->progress = 1;
        break;
    case OPTION_NO_PROGRESS:
        options->progress = 0;
        break;
    case OPTION_QUIET:
        options->quiet = true;
        options->verbose = false;
        break;
    case OPTION_VERBOSE:
        options->verbose = true;
        options->quiet = false;
        break;
    default:
        break;
    }
    return EXIT_OK;
}

/* The text of a long option on the command line without its dashes and value; its length. */
static size_t long_name(const char *argument, const char **name)
{
    *name = argument + 2;
    return strcspn(*name, "=");
}

static int unknown_long(const struct verb *verb, const char *argument)
{
    const char *name;
    size_t length = long_name(argument, &name);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (!(verb_options(verb) & 1u << id)) continue;
        if (length > 0 && strlen(definitions[id].name) == length &&
            memcmp(definitions[id].name, name, length) == 0)
            return fail_help("option --%s takes no value", definitions[id].name);
        if (length > 1 && strncmp(definitions[id].name, name, length) == 0)
            return fail_help("unknown option --%.*s, perhaps --%s", (int)length, name,
                             definitions[id].name);
    }
    return fail_help("%s has no option --%.*s", verb->name, (int)length, name);
}

static int check(const struct verb *verb, struct options *options)
{
    if (options->output && options->to_stdout)
        return fail_usage("-c and -o exclude each other; use -c for stdout or -o for a file");
    if (options->output && strcmp(options->output, "-") == 0) {
        options->output = NULL;
        options->to_stdout = true;
    }
    for (int i = 0; i < options->argument_count; i++)
        if (!*options->arguments[i] && i != TENSOR_NAME)
            return fail_help("%s: an argument is empty", verb->name);
    if (options->argument_count < verb->min_arguments) {
        /* "FILE NAME": the word that is not there */
        const char *missing = verb->argument_names;
        size_t length = strcspn(missing, " ");
        for (int i = 0; i < options->argument_count; i++) {
            missing += length + 1;
            length = strcspn(missing, " ");
        }
        return fail_help("%s: %.*s is missing", verb->name, (int)length, missing);
    }
    if (options->argument_count > verb->max_arguments) {
        const char *extra = options->arguments[verb->max_arguments];
        if (verb->max_arguments == 0) return fail_help("%s: %s takes no arguments", extra, verb->name);
        return fail_help("%s: one argument too many, %s takes %s", extra, verb->name, verb->argument_names);
    }
    return EXIT_OK;
}

enum parsed options_parse(const struct verb *verb, int argc, char **argv, struct options *options,
                          int *status)
{
    struct option long_options[OPTION_COUNT + 1];
    char letters[2 * OPTION_COUNT + 4];
    size_t long_count = 0, letter_count = 0;
    memset(options, 0, sizeof *options);
    options->progress = -1;
    options->level = TP_LEVEL_DEFAULT;
    *status = EXIT_OK;

    /* '-': arguments come in order as option 1, so that options may follow them whatever POSIXLY_CORRECT
     * says.
     * ':': a missing value is told apart from an unknown option, and getopt prints nothing. */
    letters[letter_count++] = '-';
    letters[letter_count++] = ':';
    memset(long_options, 0, sizeof long_options);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (!(verb_options(verb) & 1u << id)) continue;
        long_options[long_count].name = definitions[id].name;
        long_options[long_count].has_arg = definitions[id].value ? required_argument : no_argument;
        long_options[long_count++].val = getopt_value(id);
        if (definitions[id].letter) {
            letters[letter_count++] = (char)definitions[id].letter;
            if (definitions[id].value) letters[letter_count++] = ':';
        }
    }
    letters[letter_count] = 0;

    options->arguments = calloc((size_t)argc + 1, sizeof *options->arguments);
    if (!options->arguments) {
        *status = fail(EXIT_SYSTEM, "out of memory");
        return PARSED_ERROR;
    }

    int sub_argc = argc - 1; /* the verb stands where getopt expects the program's name */
    char **sub_argv = argv + 1;
    opterr = 0;
    optind = 1;
    for (;;) {
        int long_index = -1;
        int value = getopt_long(sub_argc, sub_argv, letters, long_options, &long_index);
        if (value == -1) break;
        if (value == 1) {
            options->arguments[options->argument_count++] = optarg;
            continue;
        }
        const char *argument = sub_argv[optind - 1];
        if (value == ':') {
            int id = option_of_value(optopt);
            *status =
                fail_help("option %s%s needs a value: %s", strncmp(argument, "--", 2) == 0 ? "--" : "-",
                          strncmp(argument, "--", 2) == 0 ? definitions[id].name
                                                          : (char[2]){(char)definitions[id].letter, 0},
                          definitions[id].value);
            return PARSED_ERROR;
        }
        if (value == '?') {
            /* optopt is 0 for an unknown long option, the value of one of ours for a long option that takes
             * no value (a letter of ours cannot be unknown), else the unknown letter. */
            int known = option_of_value(optopt);
            if (optopt == 0 || (known >= 0 && verb_options(verb) & 1u << known))
                *status = unknown_long(verb, argument);
            else
                *status = fail_help("%s has no option -%c", verb->name, optopt);
            return PARSED_ERROR;
        }
        int id = option_of_value(value);
        if (definitions[id].value && optarg == argument && optind >= 2) argument = sub_argv[optind - 2];
        /* getopt takes any unambiguous start of a long option. What is unambiguous now need not stay so. */
        const char *name;
        if (long_index >= 0 && long_name(argument, &name) != strlen(definitions[id].name)) {
            *status = unknown_long(verb, argument);
            return PARSED_ERROR;
        }
        if (id == OPTION_HELP) return PARSED_HELP;
        if (id == OPTION_VERSION) return PARSED_VERSION;
        if (id == OPTION_STDOUT && options->output) {
            *status = fail_usage("-c and -o exclude each other; use -c for stdout or -o for a file");
            return PARSED_ERROR;
        }
        *status = apply(id, optarg, options);
        if (*status != EXIT_OK) return PARSED_ERROR;
    }
    while (optind < sub_argc) options->arguments[options->argument_count++] = sub_argv[optind++];
    *status = check(verb, options);
    if (*status != EXIT_OK) return PARSED_ERROR;
    message_quiet(options->quiet);
    return PARSED_RUN;
}

void options_free(struct options *options)
{
    free(options->arguments);
    options->arguments = NULL;
}

static const char *help_of(const struct verb *verb, int id)
{
    const bool to_stdout = verb->options & HAS(STDOUT);
    if (id == OPTION_VERIFY && verb->options & HAS(OUTPUT))
        return "decode all again and compare, before it is written";
    /* What cannot go to stdout is a folder. */
    if (id == OPTION_OUTPUT && !to_stdout) return "the folder to make";
    if (id == OPTION_FORCE && !to_stdout) return "replace an existing folder, if it is empty";
    return definitions[id].help;
}

void options_help(const struct verb *verb)
{
    printf("usage: tensorpress %s%s%s\n\n%s\n\nOptions (they may stand anywhere after the verb; -- ends "
           "them):\n",
           verb->name, *verb->usage ? " " : "", verb->usage, verb->about);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (!(verb_options(verb) & 1u << id)) continue;
        const struct definition *d = &definitions[id];
        char left[48];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", d->letter ? '-' : ' ', d->letter ? d->letter : ' ',
                 d->letter ? "," : " ", d->name, d->value ? " " : "", d->value ? d->value : "");
        printf("  %-26s %s\n", left, help_of(verb, id));
    }
    printf("\nExamples:\n%s\n"
           "Exit status: 0 done, 1 the data is wrong, 2 wrong usage, 3 the system refused, 4 not supported "
           "here.\n",
           verb->examples);
}

void options_library(const struct options *options, tp_options *library)
{
    tp_options_init(library);
    library->level = options->level;
    library->codec = options->codec;
    library->threads = options->threads;
    library->force = options->force;
    library->sha256 = options->sha256;
    library->verify = options->verify;
    library->dry_run = options->dry_run;
    library->direct = options->direct;
    library->max_output = options->max_output;
    library->progress = progress_report;
    library->warning = warn_callback;
}
